/* The archive: what has left the state, and can still be explained.
 *
 * Whatever is removed (by retention, by a user, because its owner went) of the kinds in
 * archive_kinds is appended by apply, as the bytes that the state had, to the open segment. A
 * segment closes at a size or an age that the newest ARCHIVE command told. From then on the state
 * holds its description (struct archive_info) only; its records stay in the state until the next
 * one closes, so that a snapshot always carries what may not be in any file yet.
 *
 *   digest chain   d(0)   = SHA-256("hanse archive 1" prev number)
 *                  d(n+1) = SHA-256(d(n) record)             for each record, in order
 *                  digest = SHA-256(d(last) description)     `prev` of the segment that follows
 *   prev of segment 1 = SHA-256("hanse archive of " uid of the cluster)
 *
 * So one digest in the state vouches for everything that ever left it. Compression is outside of
 * it: files (segment.h) may differ from member to member, what is in them may not.
 *
 * Must never take in a Secret, nor any kind that is not listed; must never look at a clock. */
#ifndef HANSE_CONTROLPLANE_STORE_ARCHIVE_H
#define HANSE_CONTROLPLANE_STORE_ARCHIVE_H

#include "controlplane/store/store.h"

#define ARCHIVE_DIGEST 32
#define ARCHIVE_KINDS 5
extern const enum kind_id archive_kinds[ARCHIVE_KINDS]; /* Workload, Decision, Migration,
                                                           Checkpoint, Event */
#define ARCHIVE_RECORD_MAX (8u << 20) /* the largest object of the state, and its head */
#define ARCHIVE_CLOSE_MIN_BYTES (64u << 10)
#define ARCHIVE_CLOSE_MAX_BYTES (16u << 20)
/* An entry is taken in whole: a segment may be larger than the size at which it closes, by one
 * record. */
#define ARCHIVE_SEGMENT_MAX_BYTES (ARCHIVE_CLOSE_MAX_BYTES + ARCHIVE_RECORD_MAX)

struct archive_info {                 /* of one segment */
    uint64_t number;                  /* from 1 */
    uint64_t first_entry, last_entry; /* root_number of the entries that it was filled by */
    int64_t first_ms, last_ms;        /* their times */
    uint64_t records, bytes;          /* bytes: of all records, without compression */
    uint64_t counts[ARCHIVE_KINDS];
    unsigned char prev[ARCHIVE_DIGEST], digest[ARCHIVE_DIGEST]; /* of the open one: as it stands */
};
struct archive_totals { /* of the whole */
    bool begun;         /* an ARCHIVE was applied; before, what is removed is gone */
    uint64_t segments;  /* closed: 1 to that */
    uint64_t kept_from; /* the closed segments from there on have their records in the state */
    uint64_t records, bytes, counts[ARCHIVE_KINDS]; /* of closed and open ones together */
    struct archive_info open;                       /* records 0: it is empty */
};
struct archive_totals root_archive(const struct root *r);
uint64_t root_archive_newest(const struct root *r); /* number of the newest closed one, or 0 */
/* Of a closed segment, or the open one; false when there is none of that number. */
bool root_archive_info(const struct root *r, uint64_t number, struct archive_info *ret);
/* Its records in order, while the state has them; false when it has them no more. Each is borrowed
 * from the root. */
bool root_archive_records(const struct root *r, uint64_t number,
                          bool (*each)(struct slice record, void *arg), void *arg);

/* ---- one record ---- */
struct archive_record {
    enum kind_id kind;
    char ns[64], name[256];
    char workload[256], uid[64]; /* that it belongs to; "" for an Event about something else */
    uint64_t entry;              /* that removed it */
    int64_t at;                  /* when */
    char by[256];                /* who: a user, or hanse:retention */
    struct slice object;         /* its log bytes (object_decode); borrowed from the record */
};
int archive_record_read(struct slice in, struct archive_record *ret, struct err *err) MUST_CHECK;

/* ---- the chain, for whoever verifies it ---- */
void archive_chain_begin(struct archive_info *i); /* number and prev are set; digest begins */
void archive_chain_add(struct archive_info *i, struct slice record);
void archive_chain_end(struct archive_info *i); /* all is counted in: digest is the segment's */
void archive_chain_first(const char *cluster_uid, unsigned char ret[ARCHIVE_DIGEST]);
/* A description as bytes, its digest included. */
void archive_info_encode(const struct archive_info *i, struct buf *out);
int archive_info_decode(struct slice in, struct archive_info *ret, struct err *err) MUST_CHECK;
void archive_digest_text(const unsigned char d[ARCHIVE_DIGEST], char ret[2 * ARCHIVE_DIGEST + 8]);

/* ---- what is due ---- */
/* where spec.ttlSecondsAfterFinished is silent */
#define ARCHIVE_AFTER_MS (7ll * 24 * 3600 * 1000)
#define ARCHIVE_DECISIONS_KEPT 16 /* newest ones of a workload that goes on */
struct archive_cursor {           /* where to look next; zeroed: from the start */
    unsigned kind;
    char ns[64], name[256];
};
/* Looks at most at `look` objects from the cursor on, and lists what is due at `now` as ops of an
 * ARCHIVE, at most max. True when the end was reached; the cursor is at the start again then. */
bool root_archive_due(const struct root *r, int64_t now_ms, struct archive_cursor *c, size_t look,
                      struct write_op *ret, size_t max, size_t *ret_n);

#endif
