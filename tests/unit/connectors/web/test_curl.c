/* The HTTP client over libcurl on the production loop, against a server of raw bytes behind real
 * TLS: what is kept, what is verified, and what a bad answer may cost. */
#include "connectors/web/web.h"
#include "tests/support/base/stream_kit.h"

#define PIECE 65536
#define HUGE_BYTES 1000000000ull
#define CALL_MS 10000

struct peer { /* one connection, as the server has it */
    struct stream *s;
    char in[8192];
    size_t n_in;
    struct timer trickle;
    bool huge;
};
static struct world {
    struct loop *l;
    struct tls_config *tls;
    struct listener *li;
    struct web_client *c;
    int port;
    unsigned accepted, requests, posts;
    uint64_t sent;
    char who[PEER_NAME_MAX], last[8192];
    bool cut_posts; /* a POST is taken, and its connection cut */
    struct timer limit;
} W;
struct heard {
    unsigned times;
    enum outcome out;
    int status;
    bool doubt;
    uint64_t at_ms;
    char body[256];
    struct err err;
};

/* ---- the server ---- */
static void say(struct stream *s, const char *text)
{
    stream_write(s, text, strlen(text));
}

static void flood(struct peer *p)
{
    static const char piece[PIECE] = {'x'};

    while (stream_pending(p->s) < 4 * PIECE && W.sent < HUGE_BYTES) {
        stream_write(p->s, piece, sizeof piece);
        W.sent += sizeof piece;
    }
}

static void on_trickle(void *arg)
{
    struct peer *p = arg;

    say(p->s, "x");
    timer_start(&p->trickle, 20);
}

static void serve(struct peer *p, const char *path)
{
    struct stream *s = p->s;

    if (!strcmp(path, "/redirect")) {
        say(s, "HTTP/1.1 302 Found\r\nLocation: https://127.0.0.1:1/stolen\r\n"
               "Content-Length: 0\r\n\r\n");
    } else if (!strcmp(path, "/half")) {
        say(s, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"a\":");
        stream_close(s);
    } else if (!strcmp(path, "/huge")) {
        say(s, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
        p->huge = true;
        flood(p);
    } else if (!strcmp(path, "/trickle")) {
        say(s, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
        timer_start(&p->trickle, 0);
    } else if (!strcmp(path, "/noise")) {
        say(s, "\x16\x03 nothing that is HTTP\r\n\r\n");
    } else if (strcmp(path, "/silent") != 0) {
        say(s, "HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\n"
               "HTTP/1.1 200 OK\r\nX-Late: 2 \r\nContent-Length: 3\r\n\r\nyes");
    }
}

static void server_data(struct stream *s, const void *data, size_t n, void *arg)
{
    struct peer *p = arg;
    char method[16] = "", path[64] = "";

    assert_true(p->n_in + n < sizeof p->in);
    memcpy(p->in + p->n_in, data, n);
    p->n_in += n;
    p->in[p->n_in] = '\0';
    const char *end = strstr(p->in, "\r\n\r\n"), *length = strstr(p->in, "Content-Length: ");
    if (!end || (length && strlen(end + 4) < strtoul(length + 16, NULL, 10)))
        return;
    W.requests++;
    memcpy(W.last, p->in, p->n_in + 1);
    p->n_in = 0;
    (void)sscanf(W.last, "%15s %63s", method, path);
    W.posts += !strcmp(method, "POST");
    if (W.cut_posts && !strcmp(method, "POST"))
        stream_abort(s, "the test wants it so");
    else
        serve(p, path);
}

static void server_drained(struct stream *s, void *arg)
{
    (void)s;
    if (((struct peer *)arg)->huge)
        flood(arg);
}

static void server_closed(struct stream *s, const struct err *why, void *arg)
{
    struct peer *p = arg;

    (void)s;
    (void)why;
    timer_stop(&p->trickle);
    mem_free(p);
}

static void on_accept(struct listener *li, struct stream *s, void *arg)
{
    static const struct stream_events ev = {
        .data = server_data, .drained = server_drained, .closed = server_closed};
    struct peer *p = mem_new(struct peer);

    (void)li;
    (void)arg;
    W.accepted++;
    str_copy(W.who, sizeof W.who, stream_peer(s)->name);
    p->s = s;
    timer_init(&p->trickle, W.l, on_trickle, p);
    stream_set(s, &ev, p);
}

/* ---- the world ---- */
static char *pem(const char *name)
{
    struct buf b;

    buf_init(&b, 65536);
    assert_int_equal(file_read(W.l, echo_path(name), 65536, &b, NULL), 0);
    return buf_steal(&b, NULL);
}

static void client_make(const char *ca, const char *who)
{
    char url[64], name[64], *ca_pem = pem(ca), *cert = NULL, *key = NULL;
    struct err e = {0};

    (void)snprintf(url, sizeof url, "https://127.0.0.1:%d", W.port);
    if (who) {
        (void)snprintf(name, sizeof name, "%s.crt", who);
        cert = pem(name);
        (void)snprintf(name, sizeof name, "%s.key", who);
        key = pem(name);
    }
    struct web_config g = {.target = "t1",
                           .url = url,
                           .ca_pem = ca_pem,
                           .cert_pem = cert,
                           .key_pem = key,
                           .token = "a-bearer-token"};
    if (web_client_create(W.l, &g, &W.c, &e))
        fail_msg("%s", e.text);
    mem_free(ca_pem); /* it has its own copies */
    mem_free(cert);
    mem_free(key);
}

static void too_late(void *arg)
{
    (void)arg;
    fail_msg("the test takes too long");
}

static void begin(void)
{
    struct err e;

    W = (struct world){.l = loop_uv_create(&e)};
    W.tls = echo_config(true, "server", "ca", NULL);
    assert_int_equal(
        listener_create(W.l, "127.0.0.1:0", W.tls, on_accept, NULL, &W.li, &W.port, &e), 0);
    timer_init(&W.limit, W.l, too_late, NULL);
    timer_start(&W.limit, 60000);
}

static void end(void)
{
    W.c = web_client_destroy(W.c);
    timer_stop(&W.limit);
    listener_close(W.li);
    W.l = loop_uv_destroy(W.l);
    W.tls = tls_config_unref(W.tls);
}

static void heard(void *arg, enum outcome out, const struct web_answer *a, const struct err *err)
{
    struct heard *h = arg;

    h->times++;
    h->out = out;
    h->at_ms = loop_now_ms(W.l);
    if (err)
        h->err = *err;
    if (a) {
        h->status = a->status;
        h->doubt = a->doubt;
        (void)snprintf(h->body, sizeof h->body, "%.*s", (int)a->body.n, (const char *)a->body.p);
        assert_string_equal(web_header_get(a, "x-early"), "");
        assert_string_equal(web_header_get(a, "X-LATE"), a->status == 200 ? "2" : "");
    }
    loop_stop(W.l);
}

static struct heard ask(const char *method, const char *path, const char *body, uint64_t ms)
{
    struct heard h = {0};
    struct web_ask q = {.method = method,
                        .path = path,
                        .body = slice_make(body, strlen(body)),
                        .answer_max = 100000,
                        .deadline_ms = loop_now_ms(W.l) + ms,
                        .done = heard,
                        .arg = &h};

    (void)web_ask(W.c, &q);
    loop_uv_run(W.l);
    assert_int_equal(h.times, 1);
    return h;
}

/* ---- tests ---- */
static void keeps_its_connection(void **state)
{
    (void)state;
    begin();
    client_make("ca.crt", "client");
    for (unsigned i = 0; i < 10; i++) {
        struct heard h = ask(i % 2 ? "PUT" : "GET", "/ok", i % 2 ? "{\"a\":1}" : "", CALL_MS);
        if (h.out != OUT_DONE)
            fail_msg("%s", h.err.text);
        assert_int_equal(h.status, 200);
        assert_string_equal(h.body, "yes");
    }
    assert_int_equal(W.accepted, 1);
    assert_int_equal(W.requests, 10);
    assert_string_equal(W.who, "agent:fra"); /* its certificate, from memory */
    assert_non_null(strstr(W.last, "Authorization: Bearer a-bearer-token\r\n"));
    assert_non_null(strstr(W.last, "\r\n\r\n{\"a\":1}"));
    assert_null(strstr(W.last, "Expect:"));
    end();
}

static void verifies_who_answers(void **state)
{
    struct heard h;

    (void)state;
    begin();
    client_make("other.crt", NULL);
    h = ask("GET", "/ok", "", CALL_MS);
    assert_int_equal(h.out, OUT_REJECTED); /* the request never left */
    assert_int_equal(h.err.code, E_TLS);
    assert_int_equal(W.requests, 0);
    end();
}

static void knows_what_never_left(void **state)
{
    struct heard h;

    (void)state;
    begin();
    client_make("ca.crt", NULL);
    listener_close(W.li);
    h = ask("POST", "/ok", "x", CALL_MS);
    assert_int_equal(h.out, OUT_REJECTED);
    assert_int_equal(h.err.code, E_CONNECT);
    assert_int_equal(listener_create(W.l, "127.0.0.1:0", W.tls, on_accept, NULL, &W.li, NULL, NULL),
                     0);
    end();
}

static void follows_nobody(void **state)
{
    struct heard h;

    (void)state;
    begin();
    client_make("ca.crt", NULL);
    h = ask("GET", "/redirect", "", CALL_MS);
    assert_int_equal(h.out, OUT_DONE);
    assert_int_equal(h.status, 302);
    assert_int_equal(W.requests, 1);
    end();
}

static void bad_answers_cost_nothing_else(void **state)
{
    struct heard h;
    uint64_t from;

    (void)state;
    begin();
    client_make("ca.crt", NULL);
    h = ask("GET", "/half", "", CALL_MS);
    assert_int_equal(h.out, OUT_UNKNOWN);
    h = ask("GET", "/noise", "", CALL_MS);
    assert_int_equal(h.out, OUT_UNKNOWN);
    h = ask("GET", "/huge", "", CALL_MS);
    assert_int_equal(h.out, OUT_UNKNOWN);
    assert_int_equal(h.err.code, E_TOOLARGE);
    assert_true(W.sent < 20u << 20); /* what buffers on the way took; it was no gigabyte */
    from = loop_now_ms(W.l);
    h = ask("GET", "/trickle", "", 500);
    assert_int_equal(h.out, OUT_UNKNOWN);
    assert_true(h.at_ms - from >= 500 && h.at_ms - from < 5000);
    h = ask("GET", "/ok", "", CALL_MS);
    assert_int_equal(h.status, 200);
    end();
}

/* A kept connection that dies under a request: libcurl would send it once more on a new one. */
static void sends_a_post_once(void **state)
{
    struct heard h;

    (void)state;
    begin();
    client_make("ca.crt", NULL);
    h = ask("GET", "/ok", "", CALL_MS);
    assert_int_equal(h.status, 200);
    W.cut_posts = true;
    h = ask("POST", "/ok", "x", CALL_MS);
    assert_int_equal(h.out, OUT_UNKNOWN);
    assert_int_equal(W.posts, 1);
    end();
}

static size_t taken;
static bool take(void *arg, const void *p, size_t n)
{
    (void)arg;
    (void)p;
    taken += n;
    if (taken > 1000000)
        loop_stop(W.l);
    return true;
}
static void stop(void *arg)
{
    (void)arg;
    loop_stop(W.l);
}

static void a_stream_waits_for_its_reader(void **state)
{
    struct heard h = {0};
    struct timer t;
    struct web_ask q = {.method = "GET", .path = "/huge", .data = take, .done = heard, .arg = &h};

    (void)state;
    begin();
    client_make("ca.crt", NULL);
    q.deadline_ms = loop_now_ms(W.l) + CALL_MS;
    taken = 0;
    struct web_request *r = web_ask(W.c, &q);
    loop_uv_run(W.l);
    web_pause(r, true);
    timer_init(&t, W.l, stop, NULL);
    timer_start(&t, 300);
    loop_uv_run(W.l);
    size_t had = taken;
    assert_true(W.sent < had + (20u << 20));
    timer_start(&t, 300);
    loop_uv_run(W.l);
    assert_int_equal(taken, had);
    web_pause(r, false);
    loop_uv_run(W.l);
    assert_true(taken > had);
    web_cancel(r);
    end();
    assert_int_equal(h.times, 0);
}

static void ends_in_the_middle(void **state)
{
    static const char *const paths[] = {"/silent", "/huge", "/trickle", "/ok"};
    struct heard h[4] = {{0}};
    struct timer t;

    (void)state;
    begin();
    client_make("ca.crt", NULL);
    for (unsigned i = 0; i < 4; i++) {
        struct web_ask q = {.method = "GET",
                            .path = paths[i],
                            .answer_max = 100u << 20,
                            .deadline_ms = loop_now_ms(W.l) + CALL_MS,
                            .done = heard,
                            .arg = &h[i]};
        (void)web_ask(W.c, &q);
    }
    timer_init(&t, W.l, stop, NULL);
    timer_start(&t, 50);
    loop_uv_run(W.l);
    timer_stop(&t);
    end();
    assert_int_equal(h[0].times + h[2].times, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_its_connection),          cmocka_unit_test(verifies_who_answers),
        cmocka_unit_test(knows_what_never_left),         cmocka_unit_test(follows_nobody),
        cmocka_unit_test(bad_answers_cost_nothing_else), cmocka_unit_test(sends_a_post_once),
        cmocka_unit_test(a_stream_waits_for_its_reader), cmocka_unit_test(ends_in_the_middle)};

    return cmocka_run_group_tests(tests, echo_make_pki, echo_remove_pki);
}
