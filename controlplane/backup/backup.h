/* Backups: the whole state of a cluster in one file, and the two ways back from less than a
 * majority: restore, from such a file, and taking on what one surviving member holds.
 *
 * Either way the state is one that went back. What was acknowledged after it is not in it, and what
 * runs may have gone on since. So it begins anew (store_begin_anew): the cluster's next generation
 * in a log of its own, resourceVersion far ahead, all that had not ended Unknown until targets have
 * told. Must never be started as if nothing had happened, and never overwrite anything.
 *
 * The file is a parcel (api/base/parcel.h) of these frames: */
#ifndef HANSE_CONTROLPLANE_BACKUP_H
#define HANSE_CONTROLPLANE_BACKUP_H

#include "api/base/loop/loop.h"
#include "api/base/parcel.h"
#include "controlplane/store/store.h"

enum backup_frame {
    BACKUP_ABOUT = PARCEL_ABOUT, /* JSON: struct backup_about */
    BACKUP_STATE,                /* the next piece of its snapshot */
    BACKUP_SEGMENT,              /* u64 number  u64 bytes: a file of the archive follows */
    BACKUP_SEGMENT_BYTES         /* the next piece of it */
};
struct backup_about {
    char cluster[64], version[32], digest[20]; /* version of hanse; digest of the state */
    uint64_t rv, number, objects;
    uint64_t known;         /* resourceVersion that a majority certainly had; 0: it is not told */
    uint32_t feature_level; /* what the state may hold */
    int64_t time_ms;        /* of its newest entry, as the cluster has it */
    uint64_t segments;      /* closed ones of the archive, that the state knows of */
    uint64_t absent;        /* those of which neither file nor records were there */
};
void backup_about_print(const struct backup_about *a, struct buf *out); /* JSON */
int backup_about_read(struct slice json, struct backup_about *ret, struct err *err) MUST_CHECK;

/* ---- making one ---- */
/* Pulled, a piece at a time; memory stays bounded. Any one thread at a time. */
struct backup;
struct backup *backup_create(struct loop *l, struct root *r, /* takes a reference */
                             uint64_t known,                 /* backup_about */
                             /* for its snapshot, in a file without name */
                             const char *archive_dir, const char *scratch_dir);
struct backup *backup_destroy(struct backup *b);                 /* NULL ok */
const struct backup_about *backup_about(const struct backup *b); /* after the first piece */
/* The next piece, appended to out; *ret_last: it was the last one. E_NOSPACE, E_IO, … */
int backup_next(struct backup *b, struct buf *out, bool *ret_last, struct err *err) MUST_CHECK;

/* ---- reading one ---- */
struct backup_read {
    struct backup_about about;
    struct root *root; /* the caller's */
};
/* The whole file, checked to its end before anything of it is believed. archive_dir: where its
 * segments go, as files; NULL: nowhere. */
int backup_read(struct loop *l, const char *path, const char *archive_dir, struct backup_read *ret,
                struct err *err) MUST_CHECK;
/* Do the keys of that ring open all Secrets? Counts them. */
int backup_keys_check(struct loop *l, const struct root *r, const char *ring, uint64_t *ret_secrets,
                      struct err *err) MUST_CHECK;

/* ---- commands ---- */
int backup_main(int argc, char **argv);  /* hanse backup: --data here, else api/cli's */
int restore_main(int argc, char **argv); /* hanse restore */
int quorum_main(int argc, char **argv);  /* hanse server recover-quorum */

/* ---- what the two ways back share (anew.c) ---- */
struct anew_ask {
    const char *data;          /* directory */
    struct member_info member; /* id, name and addresses; address "": as the state has it */
};
/* Begins *root anew, for that member alone, and makes the data directory `dir` of it. term: not
 * below it; known: resourceVersion that a majority certainly had. */
int anew_make(struct loop *l, const char *dir, struct root **root, struct anew_ask *ask,
              uint64_t term, uint64_t known, struct store_anew_found *ret,
              struct err *err) MUST_CHECK;
void anew_print(const struct root *r, const struct anew_ask *ask, const struct store_anew_found *f,
                bool json, const char *kept, uint64_t absent);
/* The end of such a command: work(), on a loop of its own, unless its options were refused (rv, and
 * err); what went wrong is printed. Returns the exit status. */
int anew_run(const char *command, int rv, int (*work)(struct loop *l, void *arg, struct err *err),
             void *arg, struct err *err);

#endif
