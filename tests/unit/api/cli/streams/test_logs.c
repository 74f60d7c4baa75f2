/* How a log goes on when it is cut off, against a scripted member: by the byte, where places are
 * told; else by time, and it says so. */
#include "api/cli/cli_internal.h"
#include "tests/support/unit.h"

#include <stdlib.h>
#include <unistd.h>

#define ASKED_MAX 8
#define FRAMES_HEAD                                                                              \
    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/x-hanse-frames\r\n\r\n"
#define TEXT_HEAD "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
#define PLACE(byte, mid)                                                                         \
    {                                                                                            \
        5, "{\"epoch\":1,\"try\":3,\"byte\":" #byte ",\"midLine\":" #mid "}"                     \
    }
#define END                                                                                      \
    {                                                                                            \
        3, "{\"exitCode\":0}"                                                                    \
    }

struct frame_told {
    int type; /* 0: none more */
    const char *text;
};
struct answer_told {
    const char *head; /* as it is, with a body; */
    struct frame_told frames[6];
};
struct member {
    struct listener *listener;
    const struct answer_told *answers; /* to requests for the log, one after the other */
    unsigned n, asked;
    char requests[ASKED_MAX][1024];
    struct buf in;
};

static struct loop *loop;
static char dir[128];
static struct member m;
static char heard[4096], said[4096]; /* on standard output and error */

static void data(struct stream *s, const void *p, size_t n, void *arg)
{
    static const char work[] = "{\"status\":{\"phase\":\"Running\",\"epoch\":1}}";
    AUTO_BUF b = {0};

    (void)arg;
    buf_add(&m.in, p, n);
    if (!memmem(m.in.p, m.in.n, "\r\n\r\n", 4))
        return;
    buf_init(&b, 65536);
    if (!memmem(m.in.p, m.in.n, "/log?", 5)) {
        buf_printf(&b, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
                   sizeof work - 1, work);
    } else {
        const struct answer_told *a = &m.answers[m.asked < m.n ? m.asked : m.n - 1];
        if (m.asked < ASKED_MAX)
            (void)snprintf(m.requests[m.asked], sizeof m.requests[0], "%.*s", (int)m.in.n, m.in.p);
        m.asked++;
        buf_str(&b, a->head);
        for (const struct frame_told *f = a->frames; f->type; f++) {
            size_t length = strlen(f->text);
            const char head[] = {(char)f->type, 0, 0, (char)(length >> 8), (char)length};
            buf_add(&b, head, sizeof head);
            buf_str(&b, f->text);
        }
    }
    buf_reset(&m.in);
    stream_write(s, b.p, b.n);
    stream_close(s);
}

static const struct stream_events events = {.data = data};

static void accepted(struct listener *l, struct stream *s, void *arg)
{
    (void)l;
    (void)arg;
    buf_reset(&m.in);
    stream_set(s, &events, NULL);
}

static int begin(void **state)
{
    struct err e = {0};

    (void)state;
    (void)snprintf(dir, sizeof dir, "%s/hanse-logs-XXXXXX",
                   getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(dir));
    loop = loop_uv_create(&e);
    assert_non_null(loop);
    buf_init(&m.in, 65536);
    return 0;
}

static int end(void **state)
{
    (void)state;
    listener_close(m.listener);
    assert_int_equal(file_remove(loop, dir, NULL), 0);
    loop = loop_uv_destroy(loop);
    buf_fini(&m.in);
    m = (struct member){0};
    return 0;
}

static void read_back(FILE *f, char *to, size_t room)
{
    rewind(f);
    to[fread(to, 1, room - 1, f)] = '\0';
    (void)fclose(f);
}

static int logs(const struct answer_told *answers, unsigned n)
{
    char address[256];
    const char *servers[] = {address};
    const struct logs_wish w = {.tail = 7, .follow = true};
    struct cli c = {.loop = loop, .out = tmpfile(), .err = tmpfile(), .mem = arena_create(0)};
    struct client_spec spec = {
        .loop = loop, .servers = servers, .n_servers = 1, .timeout_ms = 5000};
    struct err e = {0};

    m.answers = answers;
    m.n = n;
    (void)snprintf(address, sizeof address, "unix:%s/m", dir);
    if (listener_create(loop, address, NULL, accepted, NULL, &m.listener, NULL, &e) ||
        client_create(&spec, &c.client, &e))
        fail_msg("%s", e.text);
    c.lane = client_lane_create(c.client);
    int rv = logs_print(&c, "default", "x", &w, NULL, &e);
    (void)client_lane_destroy(c.lane);
    (void)client_destroy(c.client);
    read_back(c.out, heard, sizeof heard);
    read_back(c.err, said, sizeof said);
    (void)arena_destroy(c.mem);
    return rv;
}

static void asked_is(unsigned i, const char *query)
{
    const char *p = strstr(m.requests[i], "/log?");

    assert_non_null(p);
    char got[512];
    (void)snprintf(got, sizeof got, "%.*s", (int)strcspn(p + 5, " "), p + 5);
    assert_string_equal(got, query);
}

/* The text without a place is not told: it comes once more. */
static void it_goes_on_from_the_byte_behind_what_was_told(void **state)
{
    static const struct answer_told v[] = {
        {FRAMES_HEAD, {{5, "{}"}, {1, "one\ntw"}, PLACE(6, true), {1, "o\nthr"}}},
        {FRAMES_HEAD,
         {PLACE(6, true), {1, "o\nthree\n"}, PLACE(14, false),
          {3, "{\"exitCode\":1,\"reason\":\"ServiceUnavailable\",\"message\":\"a\"}"}}},
        {FRAMES_HEAD, {PLACE(14, false), {1, "four\n"}, PLACE(19, false), END}}};

    (void)state;
    assert_int_equal(logs(v, 3), 0);
    assert_string_equal(heard, "one\ntwo\nthree\nfour\n");
    assert_string_equal(said, "");
    assert_int_equal(m.asked, 3);
    asked_is(0, "rank=0&tailLines=7&places=true&follow=true");
    asked_is(1, "rank=0&try=3&byte=6&midLine=true&epoch=1&places=true&follow=true");
    asked_is(2, "rank=0&try=3&byte=14&epoch=1&places=true&follow=true");
}

/* Cut off before anything was told: it is asked for as it was. */
static void nothing_told_is_no_place(void **state)
{
    static const struct answer_told v[] = {
        {FRAMES_HEAD, {{5, "{}"}, {1, "one\n"}}},
        {FRAMES_HEAD, {{5, "{}"}, {1, "one\n"}, PLACE(4, false), END}}};

    (void)state;
    assert_int_equal(logs(v, 2), 0);
    assert_string_equal(heard, "one\n");
    asked_is(1, "rank=0&tailLines=7&places=true&follow=true");
}

/* As of a pod: it tells no places. */
static void without_places_it_goes_on_by_time_and_says_so(void **state)
{
    static const struct answer_told v[] = {{FRAMES_HEAD, {{1, "one\ntw"}}},
                                           {FRAMES_HEAD, {{1, "two\n"}, END}}};

    (void)state;
    assert_int_equal(logs(v, 2), 0);
    assert_string_equal(heard, "one\ntw\ntwo\n");
    assert_non_null(strstr(said, "lines may come twice here, or be missing"));
    assert_non_null(strstr(m.requests[1], "/log?rank=0&sinceSeconds="));
}

static void a_server_without_places_is_asked_without(void **state)
{
    static const struct answer_told v[] = {
        {"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
         "{\"kind\":\"Status\",\"reason\":\"BadRequest\",\"message\":"
         "\"parameters: \\\"places\\\" is not known here; there are follow\"}",
         {{0}}},
        {TEXT_HEAD "4\r\none\n\r\n0\r\n\r\n", {{0}}}};

    (void)state;
    assert_int_equal(logs(v, 2), 0);
    assert_string_equal(heard, "one\n");
    asked_is(1, "rank=0&tailLines=7&follow=true");
}

/* A leader of an older version knows no byte: it would tell all of it once more. */
static void an_older_leader_is_asked_by_time(void **state)
{
    static const struct answer_told v[] = {
        {FRAMES_HEAD, {{5, "{}"}, {1, "one\n"}, PLACE(4, false)}},
        {FRAMES_HEAD, {{1, "one\ntwo\n"}, END}},
        {FRAMES_HEAD, {{1, "two\n"}, END}}};

    (void)state;
    assert_int_equal(logs(v, 3), 0);
    assert_string_equal(heard, "one\ntwo\n");
    assert_non_null(strstr(said, "a member of an older version leads"));
    assert_non_null(strstr(m.requests[2], "&sinceSeconds="));
}

#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)
int main(void)
{
    const struct CMUnitTest tests[] = {T(it_goes_on_from_the_byte_behind_what_was_told),
                                       T(nothing_told_is_no_place),
                                       T(without_places_it_goes_on_by_time_and_says_so),
                                       T(a_server_without_places_is_asked_without),
                                       T(an_older_leader_is_asked_by_time)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
