/* One search for hints: what is changed, tried, told. Nothing here changes a pool for longer than a
 * try. */
#ifndef HANSE_POLICY_HINTS_INTERNAL_H
#define HANSE_POLICY_HINTS_INTERNAL_H

#include "policy/place/place_internal.h"

#define HINT_TRIES 96 /* decisions that one search may cost */

struct tried {
    bool placed, priced;
    const char *target, *currency; /* of the table and its sheets */
    double price, useful;
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
};
/* One change of the workload's spec; which one is told by the function, how far by n, s, target. */
struct edit {
    void (*apply)(const struct edit *e, struct workload_spec *s, struct arena *a);
    int64_t n;
    double x;
    const char *s;
    const struct object *target;
    int field;
};

/* hints.c */
bool hint_try(struct hints *h, const struct object *workload, int64_t now_ms, struct tried *ret);
bool hint_try_edit(struct hints *h, const struct edit *e, struct tried *ret);
/* With another document of the same shape (limits differ, nothing that the pool has counted by) in
 * its place. */
bool hint_try_document(struct hints *h, enum kind_id kind, uint32_t at, const void *body,
                       struct tried *ret);
/* The largest n of [low, high] with which the edit admits it, or low - 1. `guess`: where to begin.
 */
int64_t hint_most(struct hints *h, struct edit *e, int64_t low, int64_t high, int64_t guess,
                  struct tried *ret);
void hint_add(struct hints *h, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "(ams-slurm, $1.31/h)" */
const char *hint_where(struct hints *h, const struct tried *t);
bool hint_any(const struct hints *h, enum reason r); /* did a candidate fail for that? */

/* In the order in which they are told. */
void hint_classes(struct hints *h); /* wider.c: more places */
void hint_targets(struct hints *h);
void hint_devices(struct hints *h);
void hint_topology(struct hints *h);
void hint_quota(struct hints *h); /* limits.c: what others set */
void hint_policy(struct hints *h);
void hint_prices(struct hints *h); /* less.c: what it asks for */
void hint_workers(struct hints *h);
void hint_gpus(struct hints *h);
void hint_host(struct hints *h);
void hint_wait(struct hints *h); /* later.c */
void hint_priority(struct hints *h);

#endif
