/* What comes ahead of each answer that a part gets, and the table by which all are driven. */
#include "api/base/loop/loop.h"
#include "controlplane/leader/context/context.h"
#include "tests/support/unit.h"

#include <string.h>

/* A majority that answers when the test says so. */
static struct {
    void (*cb)(void *arg, const struct err *err);
    void *arg;
} asked;

void core_confirm(struct core *c, struct loop *from, uint64_t term, uint64_t deadline_ms,
                  read_cb cb, void *arg)
{
    (void)c;
    (void)from;
    (void)term;
    (void)deadline_ms;
    asked.cb = cb;
    asked.arg = arg;
}

static char order[64];

static void note(const char *what)
{
    size_t n = strlen(order);

    str_copy(order + n, sizeof order - n, what);
}

static void follow(struct brain *b)
{
    assert_int_equal(b->under_way, 0); /* it has come */
    note("root ");
}

static void confirmed(void *arg, const struct err *err)
{
    (void)arg;
    note(err ? "over " : "yes ");
}

/* The term moves on from 7 to that one before the majority answers. */
static const char *confirm(bool leads, uint64_t term)
{
    struct brain b = {.leads = true, .term = 7, .follow = follow};

    order[0] = '\0';
    brain_confirm(&b, 1000, confirmed, NULL);
    assert_int_equal(b.under_way, 1);
    b.leads = leads;
    b.term = term;
    asked.cb(asked.arg, NULL);
    return order;
}

static void test_the_root_is_looked_at_ahead_of_an_answer(void **state)
{
    (void)state;
    assert_string_equal(confirm(true, 7), "root yes ");
    assert_string_equal(confirm(false, 7), "root over ");
    assert_string_equal(confirm(true, 8), "root over "); /* another leadership was not confirmed */
}

static void told(struct call *c, enum outcome out, const struct observation *seen,
                 const struct err *err)
{
    (void)c;
    (void)seen;
    (void)err;
    note(out == OUT_DONE ? "done " : "unknown ");
}

static void test_the_root_is_looked_at_ahead_of_a_connector(void **state)
{
    struct err err;
    struct brain b = {.loop = loop_uv_create(&err), .follow = follow};
    struct brain_call x;
    struct call *c;

    (void)state;
    order[0] = '\0';
    c = brain_call(&b, &x, 1000, told);
    assert_int_equal(b.under_way, 1);
    assert_true(c->deadline_ms >= loop_now_ms(b.loop) + 1000);
    c->done(c, OUT_DONE, NULL, NULL);
    c = brain_call(&b, &x, 1000, told);
    c->done(c, OUT_UNKNOWN, NULL, NULL);
    assert_string_equal(order, "root done root unknown ");
    loop_uv_destroy(b.loop);
}

static void due(void *arg)
{
    (void)arg;
}

/* What was asked for in one leadership starts nothing beside the next. */
static void test_later_is_of_who_leads(void **state)
{
    struct err err;
    struct brain b = {.loop = loop_uv_create(&err)};
    struct timer t;

    (void)state;
    assert_non_null(b.loop);
    timer_init(&t, b.loop, due, NULL);
    brain_later(&b, &t, 1000);
    assert_false(timer_active(&t));
    b.leads = true;
    brain_later(&b, &t, 1000);
    assert_true(timer_active(&t));
    timer_stop(&t);
    loop_uv_destroy(b.loop);
}

static void one(struct brain *b)
{
    (void)b;
    note("one ");
}
static void two(struct brain *b)
{
    (void)b;
    note("two ");
}

static void test_all_tick_in_the_order_of_the_table(void **state)
{
    static const struct part parts[] = {
        {.name = "first", .tick = one}, {.name = "idle"}, {.name = "last", .tick = two}, {0}};
    struct brain b = {.parts = parts};

    (void)state;
    order[0] = '\0';
    brain_allowed(&b);
    assert_string_equal(order, "one two ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_root_is_looked_at_ahead_of_an_answer),
        cmocka_unit_test(test_the_root_is_looked_at_ahead_of_a_connector),
        cmocka_unit_test(test_later_is_of_who_leads),
        cmocka_unit_test(test_all_tick_in_the_order_of_the_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
