/* Fair queueing: whose request goes when, and whose is refused. */
#include "api/server/fair.h"
#include "tests/support/unit.h"

#include "api/base/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 6000

struct asked {
    struct fair_item item;
    char user;
    bool keeps; /* holds its seats until it is let go */
    bool burns; /* lets the loop compute for long */
    unsigned parts;
    int begun, code; /* begun: the how many-th of all */
};

static struct world {
    struct loop *loop;
    struct fair *fair;
    struct timer limit;
    int begun;
    bool over;
    struct asked asked[MOST];
    unsigned n;
} W;

static void limit_over(void *arg)
{
    (void)arg;
    W.over = true;
    loop_stop(W.loop);
}

static int setup(void **state)
{
    struct err e;

    (void)state;
    memset(&W, 0, sizeof W);
    W.loop = loop_uv_create(&e);
    W.fair = fair_create(W.loop);
    timer_init(&W.limit, W.loop, limit_over, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (unsigned i = 0; i < W.n; i++)
        fair_leave(W.fair, &W.asked[i].item);
    W.fair = fair_destroy(W.fair);
    timer_stop(&W.limit);
    (void)loop_uv_destroy(W.loop);
    return 0;
}

/* Lets the loop turn for so long. */
static void turn(unsigned ms)
{
    W.over = false;
    timer_start(&W.limit, 5ul * ms); /* a busy machine has its time */
    while (!W.over)
        loop_uv_run(W.loop);
}

static void ran(struct fair_item *it, const struct err *why)
{
    struct asked *a = container_of(it, struct asked, item);

    uint64_t until = loop_computed_ns(W.loop) + 2000000;

    while (a->burns && loop_computed_ns(W.loop) < until)
        ;
    a->begun = ++W.begun;
    a->code = why ? why->code : 0;
    if (why)
        assert_null(it->flow);
    else if (a->parts)
        a->parts--, fair_again(W.fair, it->flow, it);
    else if (!a->keeps)
        fair_leave(W.fair, it);
}

static struct asked *ask_as(char user, unsigned width, size_t bytes, bool keeps, bool small)
{
    char name[] = {'u', user, 0};

    assert_true(W.n < MOST);
    struct asked *a = &W.asked[W.n++];
    *a = (struct asked){.item = {.run = ran, .width = width, .bytes = bytes}, .user = user};
    a->keeps = keeps;
    fair_enter(W.fair, name, &a->item, small);
    return a;
}

static unsigned begun_by(char user)
{
    unsigned n = 0;

    for (unsigned i = 0; i < W.n; i++)
        n += W.asked[i].user == user && W.asked[i].begun && !W.asked[i].code;
    return n;
}

static void one_alone_does_not_wait(void **state)
{
    (void)state;
    assert_int_equal(ask_as('a', 1, 0, false, false)->begun, 1);
    assert_int_equal(ask_as('a', 1, 0, false, false)->begun, 2);
}

static void the_others_wait_behind_none_of_it(void **state)
{
    (void)state;
    for (int i = 0; i < 500; i++)
        (void)ask_as('a', 1, 0, false, false);
    assert_true(begun_by('a') < 20); /* what comes in one turn of the loop does not hold it */
    unsigned before = begun_by('a');
    struct asked *b = ask_as('b', 1, 0, false, false), *c = ask_as('c', 1, 0, false, false);
    assert_int_equal(b->begun, before + 1); /* not in a later turn either */
    assert_int_equal(c->begun, before + 2);
    b = ask_as('b', 1, 0, false, false); /* he has had his part for now, but is the next */
    assert_int_equal(b->begun, 0);
    turn(100);
    assert_true(b->begun && b->begun <= (int)before + 8);
    assert_int_equal(begun_by('a'), 500);
}

static void who_asks_less_than_his_share_does_not_wait(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++)
        (void)ask_as('a', 1, 0, false, false);
    for (int i = 0; i < 50; i++) {
        for (int j = 0; j < 4; j++)
            turn(0); /* two of the other go, of those who wait */
        assert_true(ask_as('b', 1, 0, false, false)->begun);
    }
    assert_true(begun_by('a') < 500);
}

static void what_nobody_waited_for_is_not_held_against_him(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        assert_true(ask_as('a', 1, 0, false, false)->begun);
        turn(0);
    }
    for (int i = 0; i < 100; i++) {
        (void)ask_as('a', 1, 0, false, false);
        (void)ask_as('b', 1, 0, false, false);
    }
    while (begun_by('b') < 40)
        turn(0);
    assert_true(begun_by('a') >= 200 + 20);
}

static void many_newcomers_do_not_hold_the_loop(void **state)
{
    unsigned begun = 0;

    (void)state;
    for (int user = '!'; user <= '~'; user++)
        begun += ask_as((char)user, 1, 0, false, false)->begun != 0;
    assert_true(begun <= 16);
    turn(100);
    for (unsigned i = 0; i < W.n; i++)
        assert_true(W.asked[i].begun);
}

static void what_costs_more_comes_less_often(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++)
        (void)ask_as('a', FAIR_WIDTH_MAX, 0, false, false);
    for (int i = 0; i < 40; i++)
        (void)ask_as('b', 1, 0, false, false);
    turn(100);
    unsigned before = 0;
    for (unsigned i = 0; i < W.n; i++)
        before += W.asked[i].user == 'a' && W.asked[i].begun < W.asked[W.n - 1].begun;
    assert_true(before >= 1 && before <= 4); /* 40 of one against 32 of each of the other */
}

static void what_takes_long_comes_less_often(void **state)
{
    (void)state;
    (void)ask_as('a', FAIR_WIDTH_MAX, 0, false, false); /* fills this turn: all others wait */
    for (int i = 0; i < 40; i++)
        ask_as('a', 1, 0, false, false)->burns = true; /* 20 seats' worth */
    for (int i = 0; i < 40; i++)
        (void)ask_as('b', 1, 0, false, false);
    turn(300);
    unsigned before = 0;
    for (unsigned i = 1; i < W.n; i++)
        before += W.asked[i].user == 'a' && W.asked[i].begun < W.asked[W.n - 1].begun;
    assert_true(before >= 1 && before <= 6);
    assert_int_equal(begun_by('a'), 41);
}

static void a_newcomer_finds_room(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++)
        (void)ask_as('a', 1, 0, true, false);
    turn(100);
    assert_int_equal(begun_by('a'), LIMIT_REQUEST_SEATS / 2);
    struct asked *b = ask_as('b', 1, 0, true, false);
    turn(20);
    assert_true(b->begun);
    for (unsigned i = 0; i < W.n; i++) /* what it lets go it gets back only as far as its share */
        if (W.asked[i].user == 'a' && W.asked[i].begun)
            fair_leave(W.fair, &W.asked[i].item);
    turn(100);
    assert_int_equal(begun_by('a'), LIMIT_REQUEST_SEATS / 2 + LIMIT_REQUEST_SEATS / 3);
}

static void bounds(void **state)
{
    struct asked *last = NULL;
    unsigned refused = 0;

    (void)state;
    for (unsigned i = 0; i < LIMIT_USER_WAITING_MAX + LIMIT_REQUEST_SEATS; i++) {
        last = ask_as('a', 1, 0, true, false);
        refused += last->code == E_LIMIT;
    }
    assert_int_equal(last->code, E_LIMIT);
    assert_true(refused >= LIMIT_REQUEST_SEATS - 20);
    assert_int_equal(ask_as('b', 1, 0, true, false)->code, 0);
    turn(100);
    assert_int_equal(begun_by('b'), 1);
    for (int i = 0; i < 30; i++)
        (void)ask_as('c', FAIR_WIDTH_MAX, LIMIT_USER_WAITING_BYTES / 4, true, false);
    assert_int_equal(W.asked[W.n - 1].code, E_LIMIT); /* by their bytes */
    AUTO_BUF b;
    buf_init(&b, 1 << 16);
    fair_metrics(W.fair, &b);
    buf_char(&b, 0);
    assert_non_null(strstr(b.p, "hanse_api_requests_refused_total{why=\"queue-full\"} "));
    assert_null(strstr(b.p, "{why=\"queue-full\"} 0\n"));
    assert_non_null(strstr(b.p, "hanse_api_request_wait_seconds_count"));
}

static void the_small_pass(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++)
        (void)ask_as('a', 1, 0, true, false);
    for (int i = 0; i < 8; i++)
        assert_true(ask_as('a', 1, 0, true, true)->begun);
    assert_false(ask_as('a', 1, 0, true, true)->begun); /* the ninth is as all others */
}

static void slices_take_turns(void **state)
{
    (void)state;
    struct asked *a = ask_as('a', FAIR_WIDTH_MAX, 0, false, false);
    a->parts = 0;
    a = ask_as('a', 1, 0, true, false);
    turn(20);
    a->parts = 30;
    a->keeps = false;
    fair_again(W.fair, a->item.flow, &a->item);
    struct asked *b = ask_as('b', 1, 0, false, false);
    turn(100);
    assert_int_equal(a->parts, 0);
    assert_null(a->item.flow);
    assert_true(b->begun && a->begun - b->begun >= 20); /* it came between them */
}

static void what_lasts_is_counted_by_user(void **state)
{
    struct flow *flows[LIMIT_USER_LASTING_MAX + 1] = {NULL}, *more = NULL;
    struct err e;

    (void)state;
    for (int i = 0; i < LIMIT_USER_LASTING_MAX; i++)
        assert_int_equal(fair_last(W.fair, "a", &flows[i], &e), 0);
    assert_int_equal(fair_last(W.fair, "a", &flows[LIMIT_USER_LASTING_MAX], &e), E_LIMIT);
    assert_int_equal(fair_last(W.fair, "b", &flows[LIMIT_USER_LASTING_MAX], &e), 0);
    for (int i = 0; i < 3; i++) { /* its time is up, and then its connection ends: it is one */
        fair_lasted(W.fair, &flows[0]);
        assert_null(flows[0]);
    }
    assert_int_equal(fair_last(W.fair, "a", &flows[0], &e), 0);
    assert_int_equal(fair_last(W.fair, "a", &more, &e), E_LIMIT);
    assert_null(more);
}

static void at_the_end_what_waits_is_told(void **state)
{
    (void)state;
    for (int i = 0; i < 600; i++)
        (void)ask_as('a', 1, 0, true, false);
    turn(50);
    unsigned under_way = begun_by('a');
    fair_stop(W.fair);
    for (unsigned i = under_way; i < W.n; i++)
        assert_int_equal(W.asked[i].code, E_UNAVAIL);
    assert_int_equal(begun_by('a'), under_way);
    assert_int_equal(ask_as('b', 1, 0, false, false)->code, E_UNAVAIL);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {T(one_alone_does_not_wait),
                                       T(the_others_wait_behind_none_of_it),
                                       T(who_asks_less_than_his_share_does_not_wait),
                                       T(what_nobody_waited_for_is_not_held_against_him),
                                       T(many_newcomers_do_not_hold_the_loop),
                                       T(what_costs_more_comes_less_often),
                                       T(what_takes_long_comes_less_often),
                                       T(a_newcomer_finds_room),
                                       T(bounds),
                                       T(the_small_pass),
                                       T(slices_take_turns),
                                       T(what_lasts_is_counted_by_user),
                                       T(at_the_end_what_waits_is_told)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
