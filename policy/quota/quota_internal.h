/* Who may hold how much, and who may take back what: over the pool, or over what a callback
 * tells. */
#ifndef HANSE_POLICY_QUOTA_INTERNAL_H
#define HANSE_POLICY_QUOTA_INTERNAL_H

#include "policy/pool/pool_internal.h"

struct quota_view {
    const struct object *const *queues;
    struct queue_tree tree;
    uint32_t n;
    uint64_t at;                /* of what is held and documented */
    struct quota_kept *kept[2]; /* of the class, of all classes */
    /* Whole GPUs × 1000 that a queue and those below hold; queue NONE = everybody; all = of every
     * class */
    int64_t (*held)(const struct quota_view *v, uint32_t queue, bool all);
    int64_t capacity, capacity_all; /* of the class, of all classes; below 0 = not known */
    const void *arg;
    const char *class_name;
    uint32_t class_;
};
struct quota_answer {
    enum reason reason;  /* REASON_NONE: within */
    const char *queue;   /* whose limit */
    int64_t held, limit; /* × 1000 */
    bool all;            /* the limit is on GPUs of any class */
    bool borrow;         /* borrowLimit, not burst */
};
struct quota_answer quota_check(const struct quota_view *v, uint32_t queue, int64_t milli);
/* A limit may be given as 0, which its bit tells; objects made in the process may carry a value
 * without it. */
#define QUOTA_PLACE_OF(type, c, ...) QUOTA_PLACE_##c,
enum { SCHEMA_queue_gpus(QUOTA_PLACE_OF) };
#undef QUOTA_PLACE_OF
#define QUOTA_GIVEN(g, c) ((g)->c != 0 || ((g)->has >> QUOTA_PLACE_##c & 1))
/* borrow.c: as policy_quota_borrowed says; claimant NONE = from anybody, queue NONE = work in no
 * queue. */
int64_t quota_borrowed(const struct quota_view *v, uint32_t queue, uint32_t claimant,
                       int64_t *ret_unfilled);
struct quota_view quota_view_pool(const struct pool *p, uint32_t class_); /* p is settled */
struct quota_callback { /* a view of what a callback tells: asked once a queue */
    uint32_t *words;    /* of the tree */
    int64_t *sum;       /* [queue][class, all]; last: everybody; then what is kept */
    struct quota_kept kept[2];
};
void quota_callback_init(struct quota_callback *c, struct quota_view *ret, const char *class_,
                         const struct object *const *queues, size_t n,
                         int64_t (*held)(const char *queue, const char *class_, void *arg),
                         void *arg);
void quota_callback_fini(struct quota_callback *c);
uint32_t quota_place(const struct object *const *queues, size_t n, const char *name); /* or NONE */
/* GPUs as 1/1000; what is beyond all bounds counts as very many. */
static inline int64_t quota_milli(int64_t gpus)
{
    return (gpus > INT32_MAX ? INT32_MAX : gpus < -INT32_MAX ? -INT32_MAX : gpus) * 1000;
}
const struct queue_gpus *quota_line(const struct object *queue, const char *class_); /* or NULL */

#endif
