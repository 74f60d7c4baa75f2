/* Timers, posts, threads, work and signals of the production loop. */
#include "api/base/loop/loop.h"
#include "tests/support/unit.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the heap alone, on a loop whose clock stands still ---- */

static struct {
    uint64_t now, wake;
} fake;

static uint64_t fake_now(const struct loop *l)
{
    (void)l;
    return fake.now;
}

static void fake_wake(struct loop *l, uint64_t due)
{
    (void)l;
    fake.wake = due;
}

static const struct loop_ops fake_ops = {.now_ms = fake_now, .wake_at = fake_wake};

static struct {
    int fired[4096], n;
} order;

struct numbered {
    struct timer t;
    int id;
    uint64_t due;
    bool stopped;
};

static void fire(void *arg)
{
    order.fired[order.n++] = ((struct numbered *)arg)->id;
}

static void test_timer_order(void **state)
{
    static struct numbered v[2000];
    struct loop l = {.ops = &fake_ops};
    uint32_t x = 7;

    (void)state;
    fake.now = 1000;
    order.n = 0;
    for (int i = 0; i < 2000; i++) {
        x = x * 1664525 + 1013904223;
        v[i] = (struct numbered){.id = i};
        timer_init(&v[i].t, &l, fire, &v[i]);
        timer_start(&v[i].t, x >> 25); /* many of the same time */
        v[i].due = v[i].t.due_ms;
    }
    for (int i = 0; i < 2000; i += 3) { /* out of the middle of the heap */
        timer_stop(&v[i].t);
        timer_stop(&v[i].t);
        v[i].stopped = true;
        assert_false(timer_active(&v[i].t));
    }
    fake.now = 1063;
    loop_timers_run(&l);
    int half = order.n;
    assert_true(half > 100 && fake.wake > 1063 && fake.wake < 1200);
    fake.now = 5000;
    loop_timers_run(&l);
    assert_int_equal(order.n, 2000 - 667);
    assert_true(fake.wake == UINT64_MAX);
    for (int i = 0; i < order.n; i++) {
        assert_false(v[order.fired[i]].stopped);
        assert_true((v[order.fired[i]].due <= 1063) == (i < half));
        if (i == 0)
            continue;
        struct numbered *a = &v[order.fired[i - 1]], *b = &v[order.fired[i]];
        assert_true(a->due < b->due || (a->due == b->due && a->id < b->id));
    }
    loop_timers_fini(&l);
}

static struct timer again, victim;
static int again_n, victim_n;

static void restart(void *arg)
{
    (void)arg;
    again_n++;
    timer_stop(&victim);
    timer_start(&again, 0);
}

static void count(void *arg)
{
    ++*(int *)arg;
}

/* A callback stops a timer that is due as well, and starts itself with 0 ms: once a round, not for
 * ever. */
static void test_timer_in_callback(void **state)
{
    struct loop l = {.ops = &fake_ops};

    (void)state;
    fake.now = 10;
    timer_init(&again, &l, restart, NULL);
    timer_init(&victim, &l, count, &victim_n);
    timer_start(&again, 0);
    timer_start(&victim, 0);
    loop_timers_run(&l);
    assert_int_equal(again_n, 1);
    assert_int_equal(victim_n, 0);
    assert_int_equal(fake.wake, 10);
    loop_timers_run(&l);
    assert_int_equal(again_n, 2);
    timer_start(&again, UINT64_MAX); /* no overflow */
    assert_true(again.due_ms > 1000);
    loop_timers_fini(&l);
    assert_false(timer_active(&again));
}

/* ---- the production loop ---- */

static void stop_now(void *arg)
{
    loop_stop(arg);
}

static void test_real_timers(void **state)
{
    struct loop *l = loop_uv_create(NULL);
    struct timer late, soon, limit;
    int n = 0;

    (void)state;
    timer_init(&late, l, stop_now, l);
    timer_init(&soon, l, count, &n);
    timer_init(&limit, l, count, &n);
    uint64_t begin = loop_now_ms(l);
    timer_start(&limit, 60000);
    timer_start(&late, 60);
    timer_start(&soon, 10);
    loop_uv_run(l);
    assert_int_equal(n, 1);
    assert_true(loop_now_ms(l) - begin >= 60 && loop_now_ms(l) - begin < 10000);
    assert_true(loop_wall_ms(l) > 1700000000000);
    assert_true(loop_random_u64(l) != loop_random_u64(l));
    (void)loop_uv_destroy(l);
}

#define POSTS 20000
static struct {
    struct loop *l;
    int next[2], done;
} posts;

struct one {
    int thread, n;
};
static struct one ones[2][POSTS];

static void receive(void *arg)
{
    struct one *o = arg;

    assert_int_equal(posts.next[o->thread]++, o->n); /* first in, first out */
    if (++posts.done == 2 * POSTS)
        loop_stop(posts.l);
}

static void *poster(void *arg)
{
    for (int i = 0; i < POSTS; i++)
        loop_post(posts.l, receive, &((struct one *)arg)[i]);
    return NULL;
}

static void test_posts(void **state)
{
    pthread_t t[2];

    (void)state;
    posts.l = loop_uv_create(NULL);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < POSTS; i++)
            ones[k][i] = (struct one){k, i};
        assert_int_equal(pthread_create(&t[k], NULL, poster, ones[k]), 0);
    }
    loop_uv_run(posts.l);
    for (int k = 0; k < 2; k++)
        assert_int_equal(pthread_join(t[k], NULL), 0);
    assert_int_equal(posts.done, 2 * POSTS);
    (void)loop_uv_destroy(posts.l);
}

struct ping {
    struct loop *home, *away;
    pthread_t main, worked, threaded;
    int n;
    bool inside;
};

static void pong(void *arg);

static void ping(void *arg)
{
    struct ping *p = arg;

    assert_false(pthread_equal(pthread_self(), p->main));
    loop_post(p->home, pong, p);
}

static void work(void *arg)
{
    ((struct ping *)arg)->worked = pthread_self();
}

static void work_done(void *arg)
{
    struct ping *p = arg;

    assert_true(pthread_equal(pthread_self(), p->main));
    assert_false(pthread_equal(p->worked, p->main));
    assert_false(p->inside);
    loop_post(p->away, stop_now, p->away);
    loop_stop(p->home);
}

static void pong(void *arg)
{
    struct ping *p = arg;

    assert_true(pthread_equal(pthread_self(), p->main));
    if (++p->n < 100) {
        loop_post(p->away, ping, p);
        return;
    }
    p->inside = true;
    loop_work(p->home, work, work_done, p);
    p->inside = false;
}

static void thread_main(struct loop *l, void *arg)
{
    struct ping *p = arg;

    p->threaded = pthread_self();
    loop_post(l, ping, p);
}

static void test_threads(void **state)
{
    struct ping p = {.home = loop_uv_create(NULL), .main = pthread_self()};
    struct err err = {0};

    (void)state;
    assert_int_equal(loop_thread_start(p.home, "outer", thread_main, &p, &p.away, &err), 0);
    loop_uv_run(p.home);
    loop_thread_join(p.away);
    assert_int_equal(p.n, 100);
    (void)loop_uv_destroy(p.home);
}

struct sig {
    struct loop *l;
    int n;
};

static void on_signal(void *arg)
{
    struct sig *s = arg;

    s->n++;
    loop_stop(s->l);
}

static void test_signals(void **state)
{
    struct sig s = {.l = loop_uv_create(NULL)};

    (void)state;
    assert_int_equal(loop_signal(s.l, SIGTERM, on_signal, &s, NULL), 0);
    assert_int_equal(loop_signal(s.l, SIGUSR1, on_signal, &s, NULL), 0);
    assert_int_equal(kill(getpid(), SIGTERM), 0);
    loop_uv_run(s.l);
    assert_int_equal(kill(getpid(), SIGPIPE), 0); /* ignored */
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    loop_uv_run(s.l);
    assert_int_equal(s.n, 2);
    assert_int_equal(loop_signal(s.l, SIGUSR1, NULL, NULL, NULL), 0);
    (void)loop_uv_destroy(s.l);
}

/* ---- how long turns hold the loop ---- */
static uint64_t sum_ns(const struct durations *d)
{
    return d->sum_ns;
}

static void computes(void *arg)
{
    struct loop *l = arg;
    uint64_t from = loop_computed_ns(l);

    while (loop_computed_ns(l) - from < 30000000) {
    }
}

static void ends(void *arg)
{
    loop_stop(arg);
}

/* A turn is what it did, not what it waited for. */
static void test_turns(void **state)
{
    struct err err;
    struct loop *l = loop_uv_create(&err);
    struct timer first, last;
    uint64_t from = loop_now_ms(l);

    (void)state;
    timer_init(&first, l, computes, l);
    timer_init(&last, l, ends, l);
    timer_start(&first, 100);
    timer_start(&last, 250);
    loop_uv_run(l);
    uint64_t took = loop_now_ms(l) - from;
    const struct loop_turns *t = loop_turns(l);
    assert_non_null(t);
    assert_true(durations_max_ns(&t->held) >= 20000000); /* two clocks: one may be behind */
    assert_true(durations_max_ns(&t->computed) >= 30000000);
    assert_true(sum_ns(&t->computed) <= sum_ns(&t->held) + 10000000);
    assert_true(sum_ns(&t->held) / 1000000 + 100 <= took);
    (void)loop_uv_destroy(l);
}

static void on_usr1(void *arg)
{
    (void)arg;
}

static void *interrupter(void *arg)
{
    (void)poll(NULL, 0, 150); /* it waits by then; if not, there is nothing to see */
    (void)pthread_kill(*(pthread_t *)arg, SIGUSR1);
    return NULL;
}

/* Seen: a signal in the middle of a wait of 24 s, and the turn was said to have lasted as long. */
static void test_turn_after_a_signal(void **state)
{
    struct err err;
    struct loop *l = loop_uv_create(&err);
    pthread_t self = pthread_self(), other;
    struct timer last;
    uint64_t from = loop_now_ms(l);

    (void)state;
    assert_int_equal(loop_signal(l, SIGUSR1, on_usr1, NULL, &err), 0);
    timer_init(&last, l, ends, l);
    timer_start(&last, 300);
    assert_int_equal(pthread_create(&other, NULL, interrupter, &self), 0);
    loop_uv_run(l);
    uint64_t took = loop_now_ms(l) - from;
    assert_true(sum_ns(&loop_turns(l)->held) / 1000000 + 200 <= took);
    assert_int_equal(pthread_join(other, NULL), 0);
    (void)loop_uv_destroy(l);
}

static void test_durations(void **state)
{
    struct durations d = {0};
    AUTO_BUF out;

    (void)state;
    durations_add(&d, 20000000);
    durations_add(&d, 20000001);
    durations_add(&d, 6000000000);
    buf_init(&out, 1 << 16);
    durations_tell((const struct durations *[]){&d}, (const char *[]){"loop=\"x\""}, 1, "turn",
                   "a turn", &out);
    assert_non_null(strstr(out.p, "# HELP turn_seconds a turn\n# TYPE turn_seconds histogram\n"));
    assert_non_null(strstr(out.p, "turn_seconds_bucket{loop=\"x\",le=\"0.01\"} 0\n"));
    assert_non_null(strstr(out.p, "turn_seconds_bucket{loop=\"x\",le=\"0.02\"} 1\n"));
    assert_non_null(strstr(out.p, "turn_seconds_bucket{loop=\"x\",le=\"5\"} 2\n"));
    assert_non_null(strstr(out.p, "turn_seconds_bucket{loop=\"x\",le=\"+Inf\"} 3\n"));
    assert_non_null(strstr(out.p, "turn_seconds_count{loop=\"x\"} 3\n"));
    assert_non_null(strstr(out.p, "turn_max_seconds{loop=\"x\"} 6.000000\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_turn_after_a_signal),
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_timer_order),
        cmocka_unit_test(test_timer_in_callback),
        cmocka_unit_test(test_real_timers),
        cmocka_unit_test(test_posts),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_signals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
