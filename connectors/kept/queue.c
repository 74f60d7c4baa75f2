/* Jobs of many writers on their way to the thread pool (kept.h). A store is somebody else's: it may
 * hang, and the pool has few threads, which others need. */
#include "api/base/list.h"
#include "connectors/kept/kept.h"

struct kept_queue {
    struct loop *loop;
    unsigned at_once, of_a_lane, running;
    struct list waiting, working;
};
struct turn { /* of one job */
    struct list link;
    struct kept_queue *of; /* NULL: it is gone */
    struct kept_job *job;
    const void *lane;
};

static void queue_next(struct kept_queue *q);

static void turn_work(void *arg)
{
    const struct turn *t = arg;

    kept_job_work(t->job);
}

static void turn_done(void *arg)
{
    struct turn *t = arg;
    struct kept_queue *q = t->of;

    if (q) {
        list_remove(&t->link);
        q->running--;
    }
    kept_job_done(t->job);
    mem_free(t);
    if (q)
        queue_next(q);
}

static bool lane_free(const struct kept_queue *q, const void *lane)
{
    unsigned n = 0;

    list_for_each (it, &q->working)
        n += container_of(it, struct turn, link)->lane == lane;
    return n < q->of_a_lane;
}

static void queue_next(struct kept_queue *q)
{
    list_for_each_safe (it, tmp, &q->waiting) {
        struct turn *t = container_of(it, struct turn, link);
        if (q->running >= q->at_once)
            return;
        if (!lane_free(q, t->lane))
            continue;
        list_remove(&t->link);
        list_push(&q->working, &t->link);
        q->running++;
        loop_work(q->loop, turn_work, turn_done, t);
    }
}

struct kept_queue *kept_queue_create(struct loop *l, unsigned at_once, unsigned of_a_lane)
{
    struct kept_queue *q = mem_new(struct kept_queue);

    q->loop = l;
    q->at_once = at_once;
    q->of_a_lane = of_a_lane;
    list_init(&q->waiting);
    list_init(&q->working);
    return q;
}

void kept_queue_add(struct kept_queue *q, struct kept_job *j, const void *lane)
{
    struct turn *t = mem_new(struct turn);

    t->of = q;
    t->job = j;
    t->lane = lane;
    list_push(&q->waiting, &t->link);
    queue_next(q);
}

/* What is on a thread ends later, and finds nobody. */
struct kept_queue *kept_queue_destroy(struct kept_queue *q)
{
    if (!q)
        return NULL;
    while (!list_empty(&q->working))
        container_of(list_pop(&q->working), struct turn, link)->of = NULL;
    while (!list_empty(&q->waiting)) {
        struct turn *t = container_of(list_pop(&q->waiting), struct turn, link);
        kept_job_done(t->job);
        mem_free(t);
    }
    mem_free(q);
    return NULL;
}
