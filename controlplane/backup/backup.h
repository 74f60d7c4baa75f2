/* Backups: the whole state of a cluster in one file, and the two ways back from less than a
 * majority: a restore from such a file, and a recovery by one surviving member alone.
 *
 * Either way the state is one that went back: what was acknowledged after it is not in it, and runs
 * may have gone on since. So it begins anew (store_begin_anew): with the cluster's next generation
 * in a log of its own, resourceVersion far ahead, and every workload that had not ended Unknown
 * until targets have reported. It must never be started as if nothing had happened, and never
 * overwrite anything.
 *
 * The file is a parcel (api/base/parcel.h) of these frames: */
#ifndef HANSE_CONTROLPLANE_BACKUP_H
#define HANSE_CONTROLPLANE_BACKUP_H

#include "api/base/loop/loop.h"
#include "api/base/parcel.h"
#include "controlplane/store/store.h"

enum backup_frame {
    BACKUP_ABOUT = PARCEL_ABOUT, /* JSON: struct backup_about */
    BACKUP_STATE,                /* the next piece of the state's snapshot */
    BACKUP_SEGMENT,              /* u64 number  u64 bytes: a file of the archive follows */
    BACKUP_SEGMENT_BYTES         /* the next piece of that file */
};
struct backup_about {
    char cluster[64], version[32], digest[20]; /* version of hanse; digest of the state */
    uint64_t rv, number, objects;
    uint64_t known;         /* resourceVersion that a majority certainly had; 0: not known */
    uint32_t feature_level; /* feature level of the state */
    int64_t time_ms;        /* the cluster's time of its newest entry */
    uint64_t segments;      /* closed segments of the archive that the state knows */
    uint64_t absent;        /* segments of which neither file nor records were there */
};
void backup_about_print(const struct backup_about *a, struct buf *out); /* JSON */
int backup_about_read(struct slice json, struct backup_about *ret, struct err *err) MUST_CHECK;

/* ---- making one ---- */
/* The caller pulls a piece at a time, so that memory stays bounded. One thread at a time. */
struct backup;
struct backup *backup_create(struct loop *l, struct root *r, /* takes a reference */
                             uint64_t known,                 /* backup_about */
                             /* for its snapshot, in a file without name */
                             const char *archive_dir, const char *scratch_dir);
struct backup *backup_destroy(struct backup *b);                 /* NULL ok */
const struct backup_about *backup_about(const struct backup *b); /* after the first piece */
/* Appends the next piece to out; *ret_last: it was the last. E_NOSPACE, E_IO, … */
int backup_next(struct backup *b, struct buf *out, bool *ret_last, struct err *err) MUST_CHECK;

/* ---- reading one ---- */
struct backup_read {
    struct backup_about about;
    struct root *root; /* the caller owns it */
};
/* Reads the whole file, and checks it to its end before it believes anything. archive_dir: where
 * its segments are written as files; NULL: nowhere. */
int backup_read(struct loop *l, const char *path, const char *archive_dir, struct backup_read *ret,
                struct err *err) MUST_CHECK;
/* Checks that the keys of that ring open all Secrets, and counts these. */
int backup_keys_check(struct loop *l, const struct root *r, const char *ring, uint64_t *ret_secrets,
                      struct err *err) MUST_CHECK;

/* ---- commands ---- */
int backup_main(int argc, char **argv);  /* hanse backup: --data here, else api/cli's */
int restore_main(int argc, char **argv); /* hanse restore */
int quorum_main(int argc, char **argv);  /* hanse server recover-quorum */

/* ---- what the two ways back share (anew.c) ---- */
struct anew_ask {
    const char *data;          /* the data directory */
    struct member_info member; /* id, name and addresses; address "": the one in the state */
};
/* Begins *root anew, for that member alone, and makes the data directory `dir` of it. term: the new
 * term is not below it; known: resourceVersion that a majority certainly had. */
int anew_make(struct loop *l, const char *dir, struct root **root, struct anew_ask *ask,
              uint64_t term, uint64_t known, struct store_anew_found *ret,
              struct err *err) MUST_CHECK;
void anew_print(const struct root *r, const struct anew_ask *ask, const struct store_anew_found *f,
                bool json, const char *kept, uint64_t absent);
/* Runs such a command: work() on a loop of its own, unless its options were refused (rv, and err).
 * Prints errors, and returns the exit status. */
int anew_run(const char *command, int rv, int (*work)(struct loop *l, void *arg, struct err *err),
             void *arg, struct err *err);

#endif
