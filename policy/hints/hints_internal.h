/* One search for hints: changes, tries, and the hints that result. Nothing here changes a pool for
 * longer than a try. */
#ifndef HANSE_POLICY_HINTS_INTERNAL_H
#define HANSE_POLICY_HINTS_INTERNAL_H

#include "policy/place/place_internal.h"

#define HINT_TRIES 96 /* decisions that one search for single changes may cost */
#define FIRSTS_MAX 24 /* first changes that a search for pairs may begin with */
#define HINT_TEXT_MAX 400

struct tried {
    bool placed, priced;
    const char *target, *currency; /* borrowed from the table and its price sheets */
    double price, useful;
};
/* One change: of the workload's spec, of a limit in a document (nothing that the pool has counted
 * by), or of the time alone. The function says which change; n, x, s and target say how far. What
 * these point to outlives the search. */
struct edit {
    /* changes the spec, or NULL */
    void (*apply)(const struct edit *e, struct workload_spec *s, struct arena *a);
    /* changes the body of document `at` of `kind`, or NULL */
    void (*limit)(const struct edit *e, void *body);
    int64_t at_ms; /* the time of the decision, UTC ms; 0: now */
    enum kind_id kind;
    uint32_t at;
    int64_t n;
    double x;
    const char *s;
    const struct object *target;
    int field;
    /* the change one step smaller has n or at_ms less step, and x less step_x; 0: there is none */
    int64_t step;
    double step_x;
};
/* A change that was tried, removed the first obstacle, and was not enough alone. */
struct first {
    struct edit edit;
    const char *words;
};
struct hints {
    struct pool *p;
    const struct place_request *rq;
    const struct workload_spec *spec;
    struct place *pl; /* the decision as it is: nothing fits */
    struct arena *a;  /* owns the texts */
    unsigned tries;   /* tries left */
    const char **texts;
    uint32_t n;
    size_t max;
    struct edit last;     /* the last change that admitted the workload */
    bool nearer;          /* the last try did not admit it, but met other obstacles */
    struct first *firsts; /* first changes; NULL: not collected */
    uint32_t n_firsts;
    struct edit *seconds; /* the changes of `texts`; NULL: not collected */
};

/* hints.c */
bool hint_try(struct hints *h, const struct object *workload, int64_t now_ms, struct tried *ret);
bool hint_try_edit(struct hints *h, const struct edit *e, struct tried *ret);
/* Returns the largest n of [low, high] with which the edit admits it, or low - 1. The search begins
 * at `guess`. */
int64_t hint_most(struct hints *h, struct edit *e, int64_t low, int64_t high, int64_t guess,
                  struct tried *ret);
/* Adds a hint for the change that admitted the workload last. */
void hint_add(struct hints *h, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Keeps a change that was tried last and was not enough, as the first of two. */
void hint_first(struct hints *h, const struct edit *e, const char *words);
/* Tries a change, and adds the hint "WORDS (ams-slurm, $1.31/h)", or keeps it as a first. */
bool hint_tell(struct hints *h, const struct edit *e, const char *words);
/* "(ams-slurm, $1.31/h)" */
const char *hint_where(struct hints *h, const struct tried *t);
/* true when a candidate failed for that reason */
bool hint_any(const struct hints *h, enum reason r);
bool hint_any_cure(const struct hints *h, enum reason_cure cure);

/* pairs.c: for a workload that no single change admits. A change that is in force until
 * hint_undo. */
struct done {
    struct place_request rq;
    const struct place_request *rq_was;
    const struct workload_spec *spec_was;
    struct object *made;
    const struct object *doc_was;
    enum kind_id kind;
    uint32_t at;
};
/* false: the change is not allowed */
bool hint_do(struct hints *h, const struct edit *e, struct done *ret);
void hint_undo(struct hints *h, struct done *d);
void hint_pairs(struct hints *h, void (*const *kinds)(struct hints *), size_t n_kinds);

/* The kinds of hints, in the order of their texts. */
void hint_classes(struct hints *h); /* wider.c: more places */
void hint_targets(struct hints *h);
void hint_devices(struct hints *h);
void hint_topology(struct hints *h);
void hint_quota(struct hints *h); /* limits.c: limits that others set */
void hint_policy(struct hints *h);
void hint_prices(struct hints *h); /* less.c: what the workload asks for */
void hint_ranks(struct hints *h);
void hint_workers(struct hints *h);
void hint_gpus(struct hints *h);
void hint_host(struct hints *h);
void hint_wait(struct hints *h); /* later.c */
void hint_priority(struct hints *h);

#endif
