/* The archive: objects that have left the state and can still be explained.
 *
 * When an object of a kind in archive_kinds is removed (by retention, by a user, or with its
 * owner), apply appends it to the open segment, as the bytes that the state had. A segment closes
 * at the size or age that the newest ARCHIVE command named. From then on the state holds only its
 * description (struct archive_info). Its records stay in the state until the next segment closes,
 * so that a snapshot always carries what may not be in any file yet.
 *
 *   digest chain   d(0)   = SHA-256("hanse archive 1" prev number)
 *                  d(n+1) = SHA-256(d(n) record)             for each record, in order
 *                  digest = SHA-256(d(last) description)     `prev` of the segment that follows
 *   prev of segment 1 = SHA-256("hanse archive of " uid of the cluster)
 *
 * So one digest in the state vouches for everything that ever left it. The digests do not cover the
 * compression: files (segment.h) may differ from member to member, their contents may not.
 *
 * The archive must never take in a Secret, nor any kind that is not listed, and never look at a
 * clock. */
#ifndef HANSE_CONTROLPLANE_STORE_ARCHIVE_H
#define HANSE_CONTROLPLANE_STORE_ARCHIVE_H

#include "controlplane/store/store.h"

#define ARCHIVE_DIGEST 32
#define ARCHIVE_KINDS 5
extern const enum kind_id archive_kinds[ARCHIVE_KINDS]; /* Workload, Decision, Migration,
                                                           Checkpoint, Event */
#define ARCHIVE_RECORD_MAX (8u << 20) /* the largest object of the state, plus the record's head */
#define ARCHIVE_CLOSE_MIN_BYTES (64u << 10)
#define ARCHIVE_CLOSE_MAX_BYTES (16u << 20)
/* A record is never split: a segment may exceed the size at which it closes by one record. */
#define ARCHIVE_SEGMENT_MAX_BYTES (ARCHIVE_CLOSE_MAX_BYTES + ARCHIVE_RECORD_MAX)

struct archive_info { /* describes one segment */
    uint64_t number;  /* from 1 */
    /* root_number of the first and last entry that added a record */
    uint64_t first_entry, last_entry;
    int64_t first_ms, last_ms; /* times of these entries, UTC ms */
    uint64_t records, bytes;   /* bytes: of all records, uncompressed */
    uint64_t counts[ARCHIVE_KINDS];
    /* digest of the open segment: so far */
    unsigned char prev[ARCHIVE_DIGEST], digest[ARCHIVE_DIGEST];
};
struct archive_totals { /* totals of the whole archive */
    bool begun;         /* an ARCHIVE was applied; removals before it left no record */
    uint64_t segments;  /* number of closed segments; they are numbered from 1 */
    uint64_t kept_from; /* closed segments from this number on have their records in the state */
    uint64_t records, bytes, counts[ARCHIVE_KINDS]; /* of closed segments and the open one */
    struct archive_info open;                       /* records is 0 while it is empty */
};
struct archive_totals root_archive(const struct root *r);
uint64_t root_archive_newest(const struct root *r); /* number of the newest closed segment, or 0 */
/* Describes a closed segment, or the open one; false when there is none of that number. */
bool root_archive_info(const struct root *r, uint64_t number, struct archive_info *ret);
/* Passes the records of a segment to each(), in order; false when the state no longer has them.
 * Each is borrowed from the root. */
bool root_archive_records(const struct root *r, uint64_t number,
                          bool (*each)(struct slice record, void *arg), void *arg);

/* ---- one record ---- */
struct archive_record {
    enum kind_id kind;
    char ns[64], name[256];
    /* name and uid of its Workload; "" for an Event about something else */
    char workload[256], uid[64];
    uint64_t entry;      /* number of the entry that removed it */
    int64_t at;          /* time of that entry, UTC ms */
    char by[256];        /* the user who removed it, or hanse:retention */
    struct slice object; /* its log bytes (object_decode); borrowed from the record */
};
int archive_record_read(struct slice in, struct archive_record *ret, struct err *err) MUST_CHECK;

/* ---- the chain, for a verifier ---- */
void archive_chain_begin(struct archive_info *i); /* number and prev are set; starts the digest */
void archive_chain_add(struct archive_info *i, struct slice record);
void archive_chain_end(struct archive_info *i); /* all records are added: completes the digest */
void archive_chain_first(const char *cluster_uid, unsigned char ret[ARCHIVE_DIGEST]);
/* A description as bytes, its digest included. */
void archive_info_encode(const struct archive_info *i, struct buf *out);
int archive_info_decode(struct slice in, struct archive_info *ret, struct err *err) MUST_CHECK;
void archive_digest_text(const unsigned char d[ARCHIVE_DIGEST], char ret[2 * ARCHIVE_DIGEST + 8]);

/* ---- what is due ---- */
/* for a Workload without spec.ttlSecondsAfterFinished */
#define ARCHIVE_AFTER_MS (7ll * 24 * 3600 * 1000)
#define ARCHIVE_DECISIONS_KEPT 16 /* newest Decisions that a live workload keeps */
struct archive_cursor {           /* where the next look begins; zeroed: at the start */
    unsigned kind;
    char ns[64], name[256];
};
/* Looks at most at `look` objects from the cursor on, and lists the objects due at now_ms as ops of
 * an ARCHIVE, at most max. True when it reached the end; the cursor is at the start again then. */
bool root_archive_due(const struct root *r, int64_t now_ms, struct archive_cursor *c, size_t look,
                      struct write_op *ret, size_t max, size_t *ret_n);

/* ---- logs that are kept in a store, and go ahead of their Workload ---- */
/* A Workload has it from its first order on whose logs go to one, until they are removed. */
#define LOGS_FINALIZER "hanse.dev/logs"
#define LOGS_USER "hanse:logs" /* who alone takes it away while the Workload is not deleted */
struct meta;
struct txn;
/* Who alone takes TARGET_FINALIZER away while the Target is not deleted (leader/leave/leave.c). */
#define TARGET_USER "hanse:target"
void target_hold(const struct txn *t, struct meta *m); /* apply/collect.c */
void logs_hold(const struct txn *t, struct meta *m); /* apply/collect.c */
/* Nothing of it runs, and it is deleted, or only that keeps it from the archive. */
bool root_logs_due(const struct root *r, const struct object *o, int64_t now_ms);
struct logs_cursor {
    char ns[64], name[256];
};
/* The next one behind the cursor, which moves on; NULL: none of so many. At the end the cursor is
 * at the start again. */
const struct object *root_logs_due_next(const struct root *r, int64_t now_ms,
                                        struct logs_cursor *c, size_t look);

#endif
