/* What a runner's program prints goes into a store through the hub: a piece comes when it is asked
 * for and let come, and who sends anything else is kept no more, and loses nothing by it. */
#include "connectors/home/home_internal.h"
#include "tests/support/home/home_world.h"

#include <stdio.h>
#include <string.h>

static char store[128], base[160];
static struct home_keep keep;

static int setup(void **state)
{
    int rc = home_world_setup(state);

    (void)snprintf(store, sizeof store, "%s/store", W.dir);
    (void)snprintf(base, sizeof base, "%s/_logs/c/dev/w-1/e1.2", store);
    keep = (struct home_keep){.queue = kept_queue_create(W.loop, 2, 1),
                              .base = base,
                              .roots = store,
                              .max_bytes = 1 << 20};
    H[0].keep = &keep;
    return rc;
}

static int teardown(void **state)
{
    C[0].caller = home_caller_destroy(C[0].caller);
    hub_end(&H[0]);
    keep.queue = kept_queue_destroy(keep.queue);
    return home_world_teardown(state);
}

static bool is_asked(void)
{
    return C[0].frame.type == SF_KEEP;
}

static bool is_let_come(void)
{
    return C[0].frame.type == SF_PAUSE;
}

static bool is_closed(void)
{
    return C[0].frame.type == SF_CLOSE;
}

static struct home_keeping *keeping(void)
{
    struct run_key k = token_of(1, 0, 1).key;

    return &home_session_find(home_run_newest(H[0].runs, &k), 0)->keeping;
}

static void begin(void)
{
    struct home_token t = token_of(1, 0, 1);

    caller_begin(&C[0], &t);
    until(welcome);
    assert_true(home_caller_keeps(C[0].caller));
    until(is_asked);
}

static void say(enum stream_frame type, const void *p, size_t n)
{
    frame_send(home_caller_stream(C[0].caller), (uint8_t)type, 1, C[0].frame.id, p, n);
}

static void piece(const char *text, bool last, struct buf *out)
{
    struct kept_piece *p = mem_new(struct kept_piece);
    uint32_t n = (uint32_t)strlen(text);
    struct err e;

    p->bytes = n;
    p->last = last;
    p->at.begins = true;
    p->at.n_marks = n > 0;
    p->at.marks[0] = (struct output_mark){n, 1764104400000};
    buf_init(out, KEPT_PACKED_MAX + 1);
    assert_int_equal(kept_pack(p, text, out, &e), 0);
    mem_free(p);
}

static void end_say(void)
{
    const struct wire_end end = {.text = ""};

    wire_tell(home_caller_stream(C[0].caller), SF_END, C[0].frame.id, wire_end, &end);
}

static bool nothing_stored(void)
{
    const struct kept_request q = {.base = "", .epoch = 1, .tail_lines = -1};
    struct kept_request of = q;
    struct kept_reader *r = NULL;
    char *end = strrchr(base, '/');

    *end = '\0';
    of.base = base;
    int rc = kept_open(&of, &r, NULL);
    *end = '/';
    (void)kept_close(r);
    return rc == E_NOTFOUND;
}

static bool forgotten(void)
{
    return !keeping()->writer;
}

static void test_a_piece_comes_and_is_kept(void **state)
{
    AUTO_BUF b;

    (void)state;
    begin();
    uint64_t first = C[0].frame.id;
    frame_send(home_caller_stream(C[0].caller), SF_OPENED, 0, first, NULL, 0);
    until(is_let_come);
    assert_int_equal(H[0].runs->places, 1);
    piece("one\n", true, &b);
    say(SF_DATA, b.p, b.n);
    end_say();
    until(is_asked); /* no more: it only hears that all is kept */
    assert_int_not_equal(C[0].frame.id, first);
    assert_true(keeping()->all);
    assert_int_equal(H[0].runs->places, 0);
    assert_false(nothing_stored());
    end_say();
    until(forgotten);
}

static void test_what_was_not_asked_for(void **state)
{
    AUTO_BUF b;

    (void)state;
    begin();
    piece("one\n", true, &b);
    H[0].runs->places = HOME_PLACES; /* others have them all, and it does not wait */
    say(SF_DATA, b.p, b.n);
    until(is_closed);
    assert_true(forgotten() && nothing_stored());
    assert_int_equal(H[0].runs->places, HOME_PLACES);
    assert_non_null(home_caller_stream(C[0].caller)); /* its session goes on */
}

static void test_too_much(void **state)
{
    static char much[65000];

    (void)state;
    begin();
    frame_send(home_caller_stream(C[0].caller), SF_OPENED, 0, C[0].frame.id, NULL, 0);
    until(is_let_come);
    for (int i = 0; i < 4; i++)
        say(SF_DATA, much, sizeof much);
    until(is_closed);
    assert_true(forgotten() && nothing_stored());
    assert_int_equal(H[0].runs->places, 0);
}

static void test_no_piece(void **state)
{
    (void)state;
    begin();
    frame_send(home_caller_stream(C[0].caller), SF_OPENED, 0, C[0].frame.id, NULL, 0);
    until(is_let_come);
    say(SF_DATA, "../../etc/passwd", 16);
    end_say();
    until(forgotten);
    assert_true(nothing_stored());
    assert_int_equal(H[0].runs->places, 0);
}

/* Its session is lost amid a piece: its place is free, and the next one begins anew. */
static void test_it_breaks_off(void **state)
{
    (void)state;
    begin();
    frame_send(home_caller_stream(C[0].caller), SF_OPENED, 0, C[0].frame.id, NULL, 0);
    until(is_let_come);
    say(SF_DATA, "half", 4);
    stream_abort(H[0].last, "cut");
    until(is_asked);
    assert_int_equal(H[0].runs->places, 0);
    assert_int_equal(keeping()->piece.n, 0);
    assert_true(nothing_stored());
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {T(test_a_piece_comes_and_is_kept),
                                       T(test_what_was_not_asked_for), T(test_too_much),
                                       T(test_no_piece), T(test_it_breaks_off)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
