/* A history: what clients asked of one replicated store and what they were told, when. And the
 * judge of it: is there one order of all that was done that explains every answer, and is
 * resourceVersion that order?
 *
 * Four questions, each answered by all of the history:
 *   linear   object by object: an order of the operations that keeps to real time and gives these
 *            answers (Wing and Gong, with Lowe's memory of what was tried)
 *   order    over all objects: one resourceVersion is one change, later changes have higher ones, a
 *            list is the state at its resourceVersion, one value was written once
 *   watches  each stream is the sequence of changes, with none left out, none added
 *   final    all answers to the attempts of one request say the same, the late ones too
 *
 * An operation without an answer may have happened at any time after it was called, or not at all.
 * The judge never says "bad" of a history that can be explained. */
#ifndef HANSE_TESTS_SUPPORT_HISTORY_HISTORY_H
#define HANSE_TESTS_SUPPORT_HISTORY_HISTORY_H

#include "api/base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HISTORY_NEVER UINT64_MAX /* returned: it has no answer */
#define HISTORY_KEY_MAX 64

enum history_kind { HISTORY_CREATE = 1, HISTORY_GET, HISTORY_UPDATE, HISTORY_DELETE };
enum history_outcome {
    HISTORY_UNKNOWN, /* no answer, or one that says so */
    HISTORY_OK,
    HISTORY_ABSENT,  /* there is no such object */
    HISTORY_EXISTS,  /* CREATE: there is one */
    HISTORY_CONFLICT /* it is not at `expect` */
};
struct history_op {
    uint64_t called, returned; /* of one clock; an answer comes after its call */
    uint32_t key, client;      /* key: by history_key */
    enum history_kind kind;
    enum history_outcome outcome;
    uint64_t value;  /* what is written, or was read; > 0, and never written by two operations */
    uint64_t expect; /* UPDATE, DELETE: only at this resourceVersion; 0 = at any */
    uint64_t rv;     /* of the change, or of what was read; 0 = not told */
};
struct history_item {
    uint32_t key;
    uint64_t value, rv;
};
struct history_list { /* all objects at once */
    uint64_t called, returned;
    uint32_t client;
    bool stale; /* any member may answer from what it has */
    uint64_t rv;
    struct history_item *items; /* owned by the history */
    size_t n;
};
struct history_event { /* of a watch */
    uint64_t at;       /* when it came */
    uint32_t watch;    /* the stream: by history_watch */
    uint32_t key;
    uint64_t value, rv; /* value 0: deleted */
};
/* To one attempt of a request, also one that nobody waited for any more. */
struct history_answer {
    uint32_t client;
    uint64_t request; /* of that client; its attempts have the same key */
    enum history_outcome outcome;
    uint64_t rv;
};
struct history;
struct history *history_create(void);
struct history *history_destroy(struct history *h); /* NULL ok */
uint32_t history_key(struct history *h, const char *name);
const char *history_key_name(const struct history *h, uint32_t key);
void history_add(struct history *h, const struct history_op *op);
void history_add_list(struct history *h, const struct history_list *l); /* copies the items */
/* A stream of the changes after `from`. */
uint32_t history_watch(struct history *h, uint32_t client, uint64_t from);
void history_add_event(struct history *h, const struct history_event *e);
void history_add_answer(struct history *h, const struct history_answer *a);
size_t history_ops(const struct history *h); /* lists included */
/* The stored operation, for tests that falsify one. */
struct history_op *history_at(struct history *h, size_t i);

enum history_verdict { HISTORY_GOOD, HISTORY_BAD, HISTORY_UNDECIDED };
struct history_limits {
    size_t configurations; /* that may be remembered for one object; 0 = 4,000,000 (64 MB) */
};
struct history_report {
    enum history_verdict verdict;
    char check[16]; /* "linear", "order", "watches" or "final", where it is bad or undecided */
    char why[512];
    size_t ops, keys, unknown, lists, events, configurations;
};
void history_check(struct history *h, const struct history_limits *l, struct history_report *ret);
const char *history_verdict_text(enum history_verdict v);

/* One JSON object a line; see README.md. Returns 0, or a negative E_* that names the line. */
struct err;
int history_read(struct history *h, const char *text, size_t n, struct err *err) MUST_CHECK;
void history_print_op(const struct history *h, const struct history_op *op, struct buf *out);

#endif
