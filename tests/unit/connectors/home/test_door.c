/* What comes to the door and is no runner; and a machine whose clock is wrong. */
#include "connectors/streams/streams.h"
#include "tests/support/home/home_world.h"

#include <stdio.h>
#include <string.h>

/* ---- what is none ---- */
static struct raw {
    struct stream *stream;
    struct buf in;
    bool open, closed, execs; /* execs: what its HELLO says */
} R;

static void raw_open(struct stream *s, void *arg)
{
    (void)s;
    (void)arg;
    R.open = true;
}
static void raw_data(struct stream *s, const void *p, size_t n, void *arg)
{
    (void)s;
    (void)arg;
    buf_add(&R.in, p, n);
}
static void raw_closed(struct stream *s, const struct err *why, void *arg)
{
    (void)s;
    (void)why;
    (void)arg;
    R.closed = true;
}
static const struct stream_events raw_events = {
    .open = raw_open, .data = raw_data, .closed = raw_closed};

static bool raw_is_open(void)
{
    return R.open;
}
static bool raw_is_closed(void)
{
    return R.closed;
}
static bool raw_heard(void)
{
    return R.in.n > 0;
}

static void raw_begin(void)
{
    struct err e;

    buf_fini(&R.in);
    R = (struct raw){0};
    buf_init(&R.in, 65536);
    assert_int_equal(stream_connect(W.loop, H[0].address, W.client, ALPN_RUNNER, 5000, &raw_events,
                                    NULL, &R.stream, &e),
                     0);
    until(raw_is_open);
}

static void raw_hello(const struct home_token *t, int64_t grant)
{
    char token[HOME_TOKEN_MAX];
    struct run_report r = {.step = RUN_STEP_STARTING, .grant = grant};
    const struct home_hello h = {.token = token,
                                 .at_ms = 1,
                                 .report = &r,
                                 .instance = "raw",
                                 .logs = true,
                                 .execs = R.execs};

    home_token_make(t, &home_world_keys, token);
    wire_tell(R.stream, HOME_HELLO, 0, home_hello, &h);
}

static void test_what_is_no_hello_is_cut_off(void **state)
{
    static const char endless[64 << 10] = {0, 0, 127};

    (void)state;
    raw_begin();
    stream_write(R.stream, endless, sizeof endless);
    until(raw_is_closed);
    raw_begin();
    frame_send(R.stream, HOME_REPORT, 0, 0, "{}", 2);
    until(raw_is_closed);
    raw_begin();
    frame_send(R.stream, HOME_HELLO, 0, 0, "{\"token\":", 9);
    until(raw_is_closed);
    raw_begin(); /* half a frame, and nothing more: its time runs out */
    stream_write(R.stream, "\x40\0\0\0\1", 5);
    until(raw_is_closed);
    assert_int_equal(H[0].came, 0);
    buf_fini(&R.in);
}

static void test_what_is_no_report_ends_the_session(void **state)
{
    const struct home_token t = token_of(1, 0, 1);
    struct run_report back = {.step = RUN_STEP_RUNNING, .grant = 1};

    (void)state;
    raw_begin();
    raw_hello(&t, 1);
    until(raw_heard);
    assert_true(home_runs_reach(H[0].runs, &t.key));
    frame_send(R.stream, HOME_REPORT, 0, 1, "{\"state\":7}", 11);
    until(raw_is_closed);
    assert_false(home_runs_reach(H[0].runs, &t.key));
    raw_begin();
    raw_hello(&t, 5);
    until(raw_heard);
    wire_tell(R.stream, HOME_REPORT, 2, run_report, &back); /* its lease went back */
    until(raw_is_closed);
    buf_fini(&R.in);
}

/* ---- streams ---- */
static struct {
    unsigned opened, ends, eofs;
    char text[64];
    size_t bytes;
    int code, exit_code;
    bool full;
} L;

static void log_opened(void *arg)
{
    (void)arg;
    L.opened++;
}
static void log_data(int fd, const void *p, size_t n, void *arg)
{
    (void)fd;
    (void)arg;
    assert_int_equal(L.opened, 1);
    assert_int_equal(L.ends, 0);
    L.bytes += n;
    if (strlen(L.text) + n >= sizeof L.text)
        return;
    memcpy(L.text + strlen(L.text), p, n);
}
static void log_end(int exit_code, const struct err *err, void *arg)
{
    (void)arg;
    L.ends++;
    L.exit_code = exit_code;
    L.code = err ? err->code : 0;
}
static bool log_is_over(void)
{
    return L.ends > 0;
}
static bool log_is_text(void)
{
    return *L.text != '\0';
}

static int log_ask(const struct run_key *k, int64_t rank, uint64_t within_ms)
{
    static const struct log_sink sink = {.opened = log_opened, .data = log_data, .end = log_end};
    const struct log_request rq = {.rank = rank,
                                   .tail_lines = -1,
                                   .follow = true,
                                   .deadline_ms = loop_now_ms(W.loop) + within_ms};
    struct exec_session *s;
    struct err e;

    memset(&L, 0, sizeof L);
    return home_runs_logs(H[0].runs, k, &rq, &sink, &s, &e);
}

/* What a runner says of a stream of another runner is not heard. */
static void test_a_runner_tells_of_its_own_streams_alone(void **state)
{
    const struct home_token t = token_of(1, 0, 1), other = token_of(2, 0, 1);
    const struct run_report runs = {.step = RUN_STEP_RUNNING, .grant = 1};
    struct run_key newest = t.key;

    (void)state;
    newest.try_ = 0;
    assert_int_equal(log_ask(&t.key, 0, 5000), E_UNAVAIL);
    raw_begin();
    raw_hello(&t, 1);
    until(raw_heard);
    struct stream *first = R.stream;
    assert_int_equal(log_ask(&t.key, 1, 5000), E_NOTFOUND);
    assert_int_equal(log_ask(&newest, 0, 5000), 0);
    raw_begin();
    raw_hello(&other, 1);
    until(raw_heard);
    frame_send(R.stream, SF_OPENED, 0, 1, NULL, 0);
    frame_send(R.stream, SF_DATA, 1, 1, "false", 5);
    wire_tell(R.stream, SF_END, 1, wire_end, &(const struct wire_end){.text = ""});
    wire_tell(R.stream, HOME_REPORT, 1, run_report, &runs);
    R.in.n = 0;
    until(raw_heard); /* all of that has been read */
    assert_int_equal(L.opened + L.ends, 0);
    frame_send(first, SF_OPENED, 0, 1, NULL, 0);
    frame_send(first, SF_DATA, 1, 1, "true", 4);
    until(log_is_text);
    assert_string_equal(L.text, "true");
    stream_abort(first, "it goes"); /* its streams end with the session */
    until(log_is_over);
    assert_int_equal(L.code, E_CONNECT);
    assert_int_equal(log_ask(&other.key, 0, 100), 0); /* never opened */
    until(log_is_over);
    assert_int_equal(L.code, E_TIMEOUT);
    frame_send(R.stream, SF_DATA, 1, 2, "late", 4);
    for (int i = 0; i < STREAMS_MAX; i++)
        assert_int_equal(log_ask(&other.key, 0, 60000), 0);
    assert_int_equal(log_ask(&other.key, 0, 60000), E_LIMIT);
    stream_abort(R.stream, "it goes, too");
    until(log_is_over);
    assert_int_equal(L.opened, 0);
    buf_fini(&R.in);
}

static void exec_eof(void *arg)
{
    (void)arg;
    L.eofs++;
}
static bool exec_full(void *arg)
{
    (void)arg;
    return L.full;
}

static int exec_ask(const struct run_key *k, struct exec_session **ret)
{
    static const struct log_sink sink = {.opened = log_opened,
                                         .data = log_data,
                                         .end = log_end,
                                         .full = exec_full,
                                         .eof = exec_eof};
    const char *const argv[] = {"true", NULL};
    const struct exec_request rq = {.argv = argv, .with_stdin = true};
    struct err e;

    memset(&L, 0, sizeof L);
    return home_runs_exec(H[0].runs, k, &rq, &sink, ret, &e);
}

static void raw_runs(const struct home_token *t, bool execs)
{
    const struct run_report runs = {.step = RUN_STEP_RUNNING, .grant = 1};

    raw_begin();
    R.execs = execs;
    raw_hello(t, 1);
    until(raw_heard);
    wire_tell(R.stream, HOME_REPORT, 1, run_report, &runs);
    R.in.n = 0;
    until(raw_heard);
}

static void raw_says(uint8_t type, uint8_t flags, uint64_t id, const char *body)
{
    frame_send(R.stream, type, flags, id, body, strlen(body));
}

/* Nothing that a runner says of an exec does more than end it. */
static void test_a_runner_says_what_it_likes(void **state)
{
    static char much[60000];
    const struct home_token t = token_of(1, 0, 1);
    struct exec_session *s = NULL;

    (void)state;
    raw_runs(&t, false);
    assert_int_equal(exec_ask(&t.key, &s), E_NOTIMPL);
    stream_abort(R.stream, "it goes");
    until(raw_is_closed);
    raw_runs(&t, true);
    assert_int_equal(exec_ask(&t.key, &s), 0); /* 1 */
    raw_says(SF_EOF, 0, 1, "");                /* of a port alone */
    raw_says(SF_PAUSE, 1, 1, "");
    raw_says(SF_SIZE, 0, 1, "{}");
    raw_says(SF_INPUT, 0, 1, "none of a runner's");
    raw_says(SF_CLOSE, 0, 1, "");
    raw_says(77, 0, 1, "of a later version");
    raw_says(SF_DATA, 9, 1, "data");
    until(log_is_text);
    assert_int_equal(L.eofs + L.ends, 0);
    assert_true(asked_pending(s) > 1u << 20); /* it wants no input */
    raw_says(SF_END, 0, 1, "{\"exit\":4711}");
    until(log_is_over);
    assert_int_equal(L.exit_code, 1);
    assert_int_equal(L.code, 0);
    raw_says(SF_DATA, 1, 1, "of one that has ended");
    assert_int_equal(exec_ask(&t.key, &s), 0); /* 2 */
    raw_says(SF_END, 0, 2, "no JSON");
    until(log_is_over);
    assert_int_not_equal(L.code, 0);
    assert_int_equal(exec_ask(&t.key, &s), 0); /* 3 */
    L.full = true;
    memset(much, 'x', sizeof much - 1);
    for (int i = 0; i < 1000 && !L.ends; i++) { /* it does not heed that nobody takes it */
        raw_says(SF_DATA, 1, 3, much);
        while (stream_pending(R.stream) > 1u << 20 && !L.ends)
            (void)within(log_is_over, 2);
    }
    until(log_is_over);
    assert_int_equal(L.code, E_LIMIT);
    assert_in_range(L.bytes, 32 << 20, 33 << 20);
    assert_true(home_runs_reach(H[0].runs, &t.key));
    assert_int_equal(exec_ask(&t.key, &s), 0); /* 4, of which it is silent, as of all else */
    until(log_is_over);
    assert_int_equal(L.code, E_CONNECT);
    until(raw_is_closed);
    raw_runs(&t, true);
    assert_int_equal(exec_ask(&t.key, &s), 0); /* 5 */
    raw_says(SF_DATA, 1, 6, "of one that nobody ever opened");
    until(raw_is_closed);
    assert_int_equal(L.ends, 1);
    assert_false(home_runs_reach(H[0].runs, &t.key));
    buf_fini(&R.in);
}

/* ---- a clock that is wrong ---- */
static int client_at(int64_t ms, struct err *err)
{
    char ca[96];

    (void)snprintf(ca, sizeof ca, "%s/ca.crt", W.dir);
    const struct tls_config_spec spec = {.ca_file = ca, .not_before_ms = ms};
    W.client = tls_config_unref(W.client);
    return tls_config_create(&spec, false, &W.client, err);
}

/* The order was made long ago, as far as this machine knows: what holds since then is taken. What
 * had expired when the order was made is not. */
static void test_no_clock_is_asked(void **state)
{
    const struct home_token t = token_of(1, 0, 1);
    struct err e = {0};

    (void)state;
    assert_int_equal(client_at(1000, &e), 0); /* 1970 */
    caller_begin(&C[0], &t);
    until(welcome);
    assert_int_equal(client_at(4102444800000, &e), E_TLS); /* 2100 */
    assert_non_null(strstr(e.text, "expired"));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, home_world_setup, home_world_teardown)
    const struct CMUnitTest tests[] = {
        T(test_what_is_no_hello_is_cut_off),
        T(test_what_is_no_report_ends_the_session),
        T(test_a_runner_tells_of_its_own_streams_alone),
        T(test_a_runner_says_what_it_likes),
        T(test_no_clock_is_asked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
