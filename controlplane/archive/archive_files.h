/* A member's archive on disk: one file for each closed segment, in DATA_DIR/archive.
 *
 * It is level-triggered: the newest root says which segments there are, with their digests. A
 * segment that is missing here is written from the state's records while the state has them, else
 * fetched from a peer by digest. A file counts only after it has been written whole, fsynced and
 * renamed. The struct lives on the core loop; the thread pool works on the files, one job at a
 * time.
 *
 * It must never trust a file or a peer: it checks what it reads, and throws away a fetched file
 * whose digest is not the state's. */
#ifndef HANSE_CONTROLPLANE_ARCHIVE_ARCHIVE_FILES_H
#define HANSE_CONTROLPLANE_ARCHIVE_ARCHIVE_FILES_H

#include "api/base/loop/loop.h"
#include "controlplane/store/archive/archive.h"

struct archive_files;
struct archive_files_status {
    uint64_t segments;       /* segments that the state knows */
    uint64_t present;        /* segments whose files are here */
    uint64_t waiting;        /* segments to be written from the state's records */
    uint64_t missing;        /* segments to be fetched from a peer */
    uint64_t oldest_missing; /* number of the oldest missing segment; 0: none */
    uint64_t bad;            /* files found damaged since the start */
    char trouble[256];       /* why the newest job failed; "" once one succeeds */
};
/* Makes dir when it is missing; files in it count as good until they are read. */
int archive_files_open(struct loop *l, const char *dir, struct archive_files **ret,
                       struct err *err) MUST_CHECK;
/* Ends the work under way, frees k, and calls closed(arg). */
void archive_files_close(struct archive_files *k, void (*closed)(void *arg), void *arg);
/* called after each new root; cheap */
void archive_files_follow(struct archive_files *k, const struct root *r);
/* True when log entries may be dropped for a snapshot of r: no segment without records in r waits
 * to be written here. */
bool archive_files_settled(const struct archive_files *k, const struct root *r);
void archive_files_status(const struct archive_files *k, struct archive_files_status *ret);
const char *archive_files_dir(const struct archive_files *k);

/* Returns the number of the newest missing segment below `below` (0: any), or 0. */
uint64_t archive_files_missing(const struct archive_files *k, uint64_t below);
bool archive_files_has(const struct archive_files *k, uint64_t number);
/* largest size that its file can have */
uint64_t archive_files_bytes_max(const struct archive_files *k, uint64_t number);
/* Takes over a file that a peer sent, and keeps it when it has the digest of the state. done is
 * called in any case. */
void archive_files_give(struct archive_files *k, uint64_t number, struct buf *file,
                        void (*done)(void *arg, const struct err *err), void *arg);
/* Called when its file could not be read: verifies it, and fetches it anew when it is bad. */
void archive_files_suspect(struct archive_files *k, uint64_t number);

/* ---- any thread ---- */
#define ARCHIVE_PATH_MAX 1200
void archive_path(const char *dir, uint64_t number, char ret[ARCHIVE_PATH_MAX]);
uint64_t archive_path_number(const char *name); /* the number in a file's name; 0: it has none */

/* What left the state of one workload, or of all that ever had its name; the oldest segment first.
 * The newest segments are searched first, back to one whose work ended before since_ms. */
struct archive_search {
    const char *ns, *workload;
    const char *uid;    /* uid, or "": any */
    enum kind_id kind;  /* kind, or KIND_NONE: any */
    int64_t since_ms;   /* UTC ms; records archived earlier are not searched; 0: from the start */
    uint64_t before;    /* only segments below this number; 0: all */
    size_t records_max; /* the search ends at the segment that exceeds it */
    uint64_t segments_max;
};
struct archive_found {
    uint64_t searched, from; /* number of segments searched; number of the oldest of them */
    uint64_t next;           /* a further search has `before` = next; 0: the search is complete */
    /* segments without a file here, which were not searched */
    uint64_t absent, oldest_absent, newest_absent;
    uint64_t bad; /* number of the newest segment that could not be read */
    char why[256];
    size_t records;
};
/* Calls each(record, segment) for each match, newest segment first, within one in order. Runs on
 * the thread pool, because it reads files. dir "": searches the state's records only. */
int archive_find(struct loop *l, const char *dir, const struct root *r,
                 const struct archive_search *q,
                 bool (*each)(const struct archive_record *rec, uint64_t segment, void *arg),
                 void *arg, struct archive_found *ret, struct err *err) MUST_CHECK;

/* ---- the command: hanse archive verify [DIR] ---- */
int archive_main(int argc, char **argv);

#endif
