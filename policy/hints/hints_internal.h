/* One search for hints: what is changed, tried, told. Nothing here changes a pool for longer than a
 * try. */
#ifndef HANSE_POLICY_HINTS_INTERNAL_H
#define HANSE_POLICY_HINTS_INTERNAL_H

#include "policy/place/place_internal.h"

#define HINT_TRIES 96 /* decisions that one search may cost */
#define FIRSTS_MAX 24 /* changes that two may begin with */
#define HINT_TEXT_MAX 400

struct tried {
    bool placed, priced;
    const char *target, *currency; /* of the table and its sheets */
    double price, useful;
};
/* One change: of the workload's spec, of a document (limits differ, nothing that the pool has
 * counted by), or of the time alone. Which one is told by the function, how far by n, x, s, target:
 * what it points to outlives the search. */
struct edit {
    void (*apply)(const struct edit *e, struct workload_spec *s, struct arena *a); /* or */
    void (*limit)(const struct edit *e, void *body); /* of the document `at` of `kind`, or */
    int64_t at_ms;
    enum kind_id kind;
    uint32_t at;
    int64_t n;
    double x;
    const char *s;
    const struct object *target;
    int field;
    int64_t step; /* n, at_ms less this, x less that: one step smaller; 0 = there is none */
    double step_x;
};
/* A change that was tried, removed what stood in the way first, and was not enough alone. */
struct first {
    struct edit edit;
    const char *words;
};
struct hints {
    struct pool *p;
    const struct place_request *rq;
    const struct workload_spec *spec;
    struct place *pl; /* as it is: nothing fits */
    struct arena *a;  /* for texts */
    unsigned tries;   /* left */
    const char **texts;
    uint32_t n;
    size_t max;
    struct edit last;     /* that admitted it */
    bool nearer;          /* the last try did not, but other reasons stood in the way */
    struct first *firsts; /* NULL: not collected */
    uint32_t n_firsts;
    struct edit *seconds; /* of the texts; NULL: not collected */
};

/* hints.c */
bool hint_try(struct hints *h, const struct object *workload, int64_t now_ms, struct tried *ret);
bool hint_try_edit(struct hints *h, const struct edit *e, struct tried *ret);
/* The largest n of [low, high] with which the edit admits it, or low - 1. `guess`: where to
 * begin. */
int64_t hint_most(struct hints *h, struct edit *e, int64_t low, int64_t high, int64_t guess,
                  struct tried *ret);
/* The change that admitted it last, in words. */
void hint_add(struct hints *h, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Of a change that was tried last and was not enough. */
void hint_first(struct hints *h, const struct edit *e, const char *words);
/* Tries it, and tells it: "WORDS (ams-slurm, $1.31/h)", or keeps it as a first. */
bool hint_tell(struct hints *h, const struct edit *e, const char *words);
/* "(ams-slurm, $1.31/h)" */
const char *hint_where(struct hints *h, const struct tried *t);
bool hint_any(const struct hints *h, enum reason r); /* did a candidate fail for that? */
bool hint_any_cure(const struct hints *h, enum reason_cure cure);

/* pairs.c: for one whom no single change admits. As if a change were done, until it is undone. */
struct done {
    struct place_request rq;
    const struct place_request *rq_was;
    const struct workload_spec *spec_was;
    struct object *made;
    const struct object *doc_was;
    enum kind_id kind;
    uint32_t at;
};
bool hint_do(struct hints *h, const struct edit *e, struct done *ret); /* false: not allowed */
void hint_undo(struct hints *h, struct done *d);
void hint_pairs(struct hints *h, void (*const *kinds)(struct hints *), size_t n_kinds);

/* In the order in which they are told. */
void hint_classes(struct hints *h); /* wider.c: more places */
void hint_targets(struct hints *h);
void hint_devices(struct hints *h);
void hint_topology(struct hints *h);
void hint_quota(struct hints *h); /* limits.c: what others set */
void hint_policy(struct hints *h);
void hint_prices(struct hints *h); /* less.c: what it asks for */
void hint_ranks(struct hints *h);
void hint_workers(struct hints *h);
void hint_gpus(struct hints *h);
void hint_host(struct hints *h);
void hint_wait(struct hints *h); /* later.c */
void hint_priority(struct hints *h);

#endif
