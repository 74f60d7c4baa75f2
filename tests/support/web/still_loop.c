/* A loop in virtual time, for the unit tests of code that lives on one. What it has no answer for
 * (network, files, processes) is a NULL in its table. */
#include "tests/support/web/still_loop.h"

#include <string.h>

#define POSTS_MAX 1024
#define WALL_MS 1700000000000 /* the time of day at its start */
#define START_MS 1000

struct still {
    struct loop base;
    uint64_t now_ms, wake_ms, random;
    struct {
        void (*fn)(void *arg);
        void *arg;
    } posts[POSTS_MAX];
    size_t n_posts;
    bool stopped;
};

static uint64_t still_now(const struct loop *l)
{
    return ((const struct still *)l)->now_ms;
}

static int64_t still_wall(const struct loop *l)
{
    return WALL_MS + (int64_t)(still_now(l) - START_MS);
}

static void still_random(struct loop *l, void *p, size_t n)
{
    struct still *s = (struct still *)l;

    for (size_t i = 0; i < n; i++) {
        s->random ^= s->random << 13;
        s->random ^= s->random >> 7;
        s->random ^= s->random << 17;
        ((unsigned char *)p)[i] = (unsigned char)(s->random >> 24);
    }
}

static void still_wake_at(struct loop *l, uint64_t due_ms)
{
    ((struct still *)l)->wake_ms = due_ms;
}

static void still_post(struct loop *l, void (*fn)(void *), void *arg)
{
    struct still *s = (struct still *)l;

    INV(s->n_posts < POSTS_MAX);
    s->posts[s->n_posts].fn = fn;
    s->posts[s->n_posts++].arg = arg;
}

static void still_stop(struct loop *l)
{
    ((struct still *)l)->stopped = true;
}

static const struct loop_ops still_ops = {.now_ms = still_now,
                                          .wall_ms = still_wall,
                                          .random = still_random,
                                          .wake_at = still_wake_at,
                                          .post = still_post,
                                          .stop = still_stop};

struct loop *still_loop_create(uint64_t seed)
{
    struct still *s = mem_new(struct still);

    s->base.ops = &still_ops;
    s->now_ms = START_MS;
    s->wake_ms = UINT64_MAX;
    s->random = seed | 1;
    return &s->base;
}

void still_loop_run(struct loop *l, uint64_t ms)
{
    struct still *s = (struct still *)l;
    uint64_t until = ms < UINT64_MAX - s->now_ms ? s->now_ms + ms : UINT64_MAX - 1;

    for (s->stopped = false; !s->stopped;) {
        for (size_t i = 0; i < s->n_posts; i++)
            s->posts[i].fn(s->posts[i].arg);
        s->n_posts = 0;
        if (s->wake_ms > until)
            break;
        s->now_ms = s->wake_ms > s->now_ms ? s->wake_ms : s->now_ms;
        s->wake_ms = UINT64_MAX;
        loop_timers_run(l);
    }
    if (!s->stopped)
        s->now_ms = until;
}

void still_loop_go(struct loop *l)
{
    still_loop_run(l, UINT64_MAX);
    INV(((struct still *)l)->stopped); /* else nothing will ever happen again */
}

struct loop *still_loop_destroy(struct loop *l)
{
    loop_timers_fini(l);
    mem_free(l);
    return NULL;
}
