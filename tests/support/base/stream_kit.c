/* See stream_kit.h. */
#include "tests/support/base/stream_kit.h"

static const char *const mutual[] = {ALPN_RAFT, ALPN_AGENT, NULL};
static char dir[128];

const char *echo_path(const char *name)
{
    static char paths[8][256];
    static unsigned i;
    char *p = paths[i++ % 8];

    (void)snprintf(p, 256, "%s/%s", dir, name);
    return p;
}

static void issue(const char *ca, const char *name, const char *cn, bool server)
{
    static const char *const orgs[] = {"hanse:members", "second", NULL};
    static const char *const names[] = {"localhost", "127.0.0.1", NULL};
    struct pki_request rq = {cn, orgs, server ? names : NULL, server, 30};
    char files[4][64];
    struct err err = {0};

    (void)snprintf(files[0], 64, "%s.crt", ca);
    (void)snprintf(files[1], 64, "%s.key", ca);
    (void)snprintf(files[2], 64, "%s.crt", name);
    (void)snprintf(files[3], 64, "%s.key", name);
    if (pki_issue(echo_path(files[0]), echo_path(files[1]), &rq, echo_path(files[2]),
                  echo_path(files[3]), &err))
        fail_msg("%s", err.text);
}

int echo_make_pki(void **state)
{
    struct err err = {0};

    (void)state;
    (void)snprintf(dir, sizeof dir, "%s/hanse-stream-XXXXXX",
                   getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(dir));
    assert_int_equal(pki_ca_create(echo_path("ca.crt"), echo_path("ca.key"), "test CA", 30, &err),
                     0);
    assert_int_equal(
        pki_ca_create(echo_path("other.crt"), echo_path("other.key"), "other CA", 30, &err), 0);
    issue("ca", "server", "member:2", true);
    issue("ca", "client", "agent:fra", false);
    issue("other", "stranger", "agent:fra", false);
    return 0;
}

int echo_remove_pki(void **state)
{
    struct loop *l = loop_uv_create(NULL);

    (void)state;
    assert_int_equal(file_remove(l, dir, NULL), 0);
    (void)loop_uv_destroy(l);
    return 0;
}

static void server_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct echo *w = arg;

    w->echo_bytes += n;
    stream_write(s, p, n);
}

void echo_server_closed(struct stream *s, const struct err *why, void *arg)
{
    struct echo *w = arg;

    (void)s;
    w->server_closed = true;
    w->server_why = *why;
    w->s = NULL;
    if (w->stop_on_server_close || w->client_closed)
        loop_stop(w->l);
}

static const struct stream_events server_events = {.data = server_data,
                                                   .closed = echo_server_closed};

void echo_accept(struct listener *li, struct stream *s, void *arg)
{
    struct echo *w = arg;

    (void)li;
    w->accepted++;
    w->s = s;
    w->seen_by_server = *stream_peer(s);
    stream_set(s, &server_events, w);
}

static void client_open(struct stream *s, void *arg)
{
    struct echo *w = arg;

    (void)s;
    w->open = true;
}

static void client_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct echo *w = arg;

    for (size_t i = 0; i < n; i++)
        w->sum = w->sum * 31 + ((const unsigned char *)p)[i];
    w->got += n;
    if (w->got == ECHO_BIG && w->shut_after)
        stream_close(s);
}

static void client_drained(struct stream *s, void *arg)
{
    struct echo *w = arg;

    assert_int_equal(stream_pending(s), 0);
    w->drained = true;
}

void echo_client_closed(struct stream *s, const struct err *why, void *arg)
{
    struct echo *w = arg;

    (void)s;
    w->client_closed = true;
    w->why = *why;
    w->c = NULL;
    if (!w->s && !w->stop_on_server_close)
        loop_stop(w->l);
}

const struct stream_events echo_client_events = {.open = client_open,
                                                 .data = client_data,
                                                 .drained = client_drained,
                                                 .closed = echo_client_closed};

static void on_limit(void *arg)
{
    struct echo *w = arg;

    w->timed_out = true;
    loop_stop(w->l);
}

struct tls_config *echo_config(bool server, const char *name, const char *ca, const char *verify)
{
    char crt[64], key[64], ca_file[64];
    struct tls_config *c = NULL;
    struct err err = {0};

    (void)snprintf(crt, 64, "%s.crt", name ? name : "");
    (void)snprintf(key, 64, "%s.key", name ? name : "");
    (void)snprintf(ca_file, 64, "%s.crt", ca);
    struct tls_config_spec spec = {.cert_file = name ? echo_path(crt) : NULL,
                                   .key_file = name ? echo_path(key) : NULL,
                                   .ca_file = echo_path(ca_file),
                                   .alpn_mutual = server ? mutual : NULL,
                                   .server_name = verify};
    if (tls_config_create(&spec, server, &c, &err))
        fail_msg("%s", err.text);
    return c;
}

void echo_init(struct echo *w, const char *listen)
{
    struct err err = {0};

    *w = (struct echo){.l = loop_uv_create(&err)};
    assert_non_null(w->l);
    if (strncmp(listen, "unix:", 5) != 0)
        w->server = echo_config(true, "server", "ca", NULL);
    if (listener_create(w->l, listen, w->server, echo_accept, w, &w->li, &w->port, &err))
        fail_msg("%s", err.text);
    if (w->server)
        (void)snprintf(w->address, sizeof w->address, "127.0.0.1:%d", w->port);
    else
        str_copy(w->address, sizeof w->address, listen);
    timer_init(&w->limit, w->l, on_limit, w);
    timer_start(&w->limit, DEADLINE_MS);
}

void echo_connect(struct echo *w, const char *alpn, uint64_t deadline_ms)
{
    struct err err = {0};

    if (stream_connect(w->l, w->address, w->client, alpn, deadline_ms, &echo_client_events, w,
                       &w->c, &err))
        fail_msg("%s", err.text);
    assert_false(w->open); /* callbacks never come from inside the call */
}

void echo_fini(struct echo *w)
{
    timer_stop(&w->limit);
    w->l = loop_uv_destroy(w->l);
    (void)tls_config_unref(w->client);
    (void)tls_config_unref(w->server);
}

void echo_big(struct echo *w, const char *alpn)
{
    char *big = malloc(ECHO_BIG);
    uint32_t sum = 0;

    assert_non_null(big);
    for (size_t i = 0; i < ECHO_BIG; i++) {
        big[i] = (char)(i * 7 + i / 251);
        sum = sum * 31 + (unsigned char)big[i];
    }
    w->shut_after = true;
    echo_connect(w, alpn, 5000);
    stream_write(w->c, big, ECHO_BIG); /* before it is open: kept */
    assert_int_equal(stream_pending(w->c), ECHO_BIG);
    free(big);
    loop_uv_run(w->l);
    assert_false(w->timed_out);
    assert_true(w->open);
    assert_int_equal(w->got, ECHO_BIG);
    assert_int_equal(w->echo_bytes, ECHO_BIG);
    assert_true(w->sum == sum);
    assert_true(w->drained);
    assert_int_equal(w->why.code, 0);
    assert_true(w->server_closed);
    assert_int_equal(w->server_why.code, 0);
}
