/* A member's archive on disk: one file for each closed segment, in DATA_DIR/archive.
 *
 * Level-triggered: the newest root says which segments there are and by which digests; what is
 * missing here is written from the state's records while it has them, else asked of a peer by
 * digest. A file counts only after it has been written whole, fsynced and renamed. Lives on the
 * core loop; work on files is done on the thread pool, one job at a time.
 *
 * Must never trust a file or a peer: what is read is checked, what is fetched gives the digest that
 * the state holds or is thrown away. */
#ifndef HANSE_CONTROLPLANE_ARCHIVE_ARCHIVE_FILES_H
#define HANSE_CONTROLPLANE_ARCHIVE_ARCHIVE_FILES_H

#include "api/base/loop/loop.h"
#include "controlplane/store/archive/archive.h"

struct archive_files;
struct archive_files_status {
    uint64_t segments;       /* that the state knows of */
    uint64_t present;        /* whose files are here */
    uint64_t waiting;        /* to be written from the state's records */
    uint64_t missing;        /* to be fetched from a peer */
    uint64_t oldest_missing; /* 0: none */
    uint64_t bad;            /* found to be damaged since the start */
    char trouble[256];       /* why the newest job failed; "" once one succeeds */
};
/* dir is made when it is not there; what lies there is believed until it is read. */
int archive_files_open(struct loop *l, const char *dir, struct archive_files **ret,
                       struct err *err) MUST_CHECK;
/* Ends the work under way, then calls closed(arg); k is gone then. */
void archive_files_close(struct archive_files *k, void (*closed)(void *arg), void *arg);
/* after each new root; cheap */
void archive_files_follow(struct archive_files *k, const struct root *r);
/* May log entries be dropped for a snapshot of r? Not while a segment that r has no records of
 * waits to be written here. */
bool archive_files_settled(const struct archive_files *k, const struct root *r);
void archive_files_status(const struct archive_files *k, struct archive_files_status *ret);
const char *archive_files_dir(const struct archive_files *k);

/* The newest segment that is missing and below `below` (0: any), 0 when there is none. */
uint64_t archive_files_missing(const struct archive_files *k, uint64_t below);
bool archive_files_has(const struct archive_files *k, uint64_t number);
/* that its file can have */
uint64_t archive_files_bytes_max(const struct archive_files *k, uint64_t number);
/* A file that a peer sent: checked against the digest of the state, kept when it is the one. done
 * is told in any case. Takes the bytes over. */
void archive_files_give(struct archive_files *k, uint64_t number, struct buf *file,
                        void (*done)(void *arg, const struct err *err), void *arg);
/* Somebody could not read it: it is verified, and fetched anew when it is bad. */
void archive_files_suspect(struct archive_files *k, uint64_t number);

/* ---- any thread ---- */
#define ARCHIVE_PATH_MAX 1200
void archive_path(const char *dir, uint64_t number, char ret[ARCHIVE_PATH_MAX]);
uint64_t archive_path_number(const char *name); /* of a file's name; 0: it is none */

/* What left the state of one workload: of all that was ever called that, the oldest segment first.
 * Newest segments are searched first, until one whose work ended before `since`. */
struct archive_search {
    const char *ns, *workload;
    const char *uid;    /* or "": of any */
    enum kind_id kind;  /* or KIND_NONE */
    int64_t since_ms;   /* what was archived before is not looked for; 0: from the start */
    uint64_t before;    /* only segments below; 0: all */
    size_t records_max; /* it ends at the segment that brings more */
    uint64_t segments_max;
};
struct archive_found {
    uint64_t searched, from; /* segments; the oldest one that was looked into */
    uint64_t next;           /* go on with `before` = next; 0: it is complete */
    uint64_t absent, oldest_absent, newest_absent; /* whose files are not here: not searched */
    uint64_t bad;                                  /* the newest that could not be read */
    char why[256];
    size_t records;
};
/* Calls each(record, segment) for what matches, newest segment first, within one in order. On the
 * thread pool: it reads files. dir "": the state's records only. */
int archive_find(struct loop *l, const char *dir, const struct root *r,
                 const struct archive_search *q,
                 bool (*each)(const struct archive_record *rec, uint64_t segment, void *arg),
                 void *arg, struct archive_found *ret, struct err *err) MUST_CHECK;

/* ---- the command: hanse archive verify [DIR] ---- */
int archive_main(int argc, char **argv);

#endif
