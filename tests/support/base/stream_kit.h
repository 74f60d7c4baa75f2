/* A loop with an echo server and a client, and certificates for both: for the tests of streams. */
#ifndef HANSE_TESTS_SUPPORT_BASE_STREAM_KIT_H
#define HANSE_TESTS_SUPPORT_BASE_STREAM_KIT_H

#include "api/base/loop/loop.h"
#include "tests/support/unit.h"
#include "api/base/net/tls.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEADLINE_MS 20000
#define BIG (1u << 20)

static const char *const mutual[] = {ALPN_RAFT, ALPN_AGENT, NULL};
static char dir[128];

static inline const char *in_dir(const char *name)
{
    static char paths[8][256];
    static unsigned i;
    char *p = paths[i++ % 8];

    (void)snprintf(p, 256, "%s/%s", dir, name);
    return p;
}

static inline void issue(const char *ca, const char *name, const char *cn, bool server)
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
    if (pki_issue(in_dir(files[0]), in_dir(files[1]), &rq, in_dir(files[2]), in_dir(files[3]),
                  &err))
        fail_msg("%s", err.text);
}

static inline int make_pki(void **state)
{
    struct err err = {0};

    (void)state;
    (void)snprintf(dir, sizeof dir, "%s/hanse-stream-XXXXXX",
                   getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(dir));
    assert_int_equal(pki_ca_create(in_dir("ca.crt"), in_dir("ca.key"), "test CA", 30, &err), 0);
    assert_int_equal(pki_ca_create(in_dir("other.crt"), in_dir("other.key"), "other CA", 30, &err),
                     0);
    issue("ca", "server", "member:2", true);
    issue("ca", "client", "agent:fra", false);
    issue("other", "stranger", "agent:fra", false);
    return 0;
}

static inline int remove_pki(void **state)
{
    struct loop *l = loop_uv_create(NULL);

    (void)state;
    assert_int_equal(file_remove(l, dir, NULL), 0);
    (void)loop_uv_destroy(l);
    return 0;
}

/* ---- one loop with an echo server and a client ---- */

struct world {
    struct loop *l;
    struct tls_config *server, *client;
    struct listener *li;
    struct timer limit, step;
    int port;
    char address[160];
    struct stream *c, *s;
    struct peer_identity seen_by_server;
    bool open, client_closed, server_closed, timed_out, drained;
    struct err why, server_why;
    size_t got, echo_bytes;
    unsigned accepted;
    uint32_t sum;
    bool shut_after; /* the client closes when it has got what it sent */
    bool stop_on_server_close;
};

static inline void server_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct world *w = arg;

    w->echo_bytes += n;
    stream_write(s, p, n);
}

static inline void server_closed(struct stream *s, const struct err *why, void *arg)
{
    struct world *w = arg;

    (void)s;
    w->server_closed = true;
    w->server_why = *why;
    w->s = NULL;
    if (w->stop_on_server_close || w->client_closed)
        loop_stop(w->l);
}

static const struct stream_events server_events = {.data = server_data, .closed = server_closed};

static inline void on_accept(struct listener *li, struct stream *s, void *arg)
{
    struct world *w = arg;

    (void)li;
    w->accepted++;
    w->s = s;
    w->seen_by_server = *stream_peer(s);
    stream_set(s, &server_events, w);
}

static inline void client_open(struct stream *s, void *arg)
{
    struct world *w = arg;

    (void)s;
    w->open = true;
}

static inline void client_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct world *w = arg;

    for (size_t i = 0; i < n; i++)
        w->sum = w->sum * 31 + ((const unsigned char *)p)[i];
    w->got += n;
    if (w->got == BIG && w->shut_after)
        stream_close(s);
}

static inline void client_drained(struct stream *s, void *arg)
{
    struct world *w = arg;

    assert_int_equal(stream_pending(s), 0);
    w->drained = true;
}

static inline void client_closed(struct stream *s, const struct err *why, void *arg)
{
    struct world *w = arg;

    (void)s;
    w->client_closed = true;
    w->why = *why;
    w->c = NULL;
    if (!w->s && !w->stop_on_server_close)
        loop_stop(w->l);
}

static const struct stream_events client_events = {client_open, client_data, client_drained,
                                                   client_closed};

static inline void on_limit(void *arg)
{
    struct world *w = arg;

    w->timed_out = true;
    loop_stop(w->l);
}

static inline struct tls_config *config(bool server, const char *name, const char *ca,
                                        const char *verify)
{
    char crt[64], key[64], ca_file[64];
    struct tls_config *c = NULL;
    struct err err = {0};

    (void)snprintf(crt, 64, "%s.crt", name ? name : "");
    (void)snprintf(key, 64, "%s.key", name ? name : "");
    (void)snprintf(ca_file, 64, "%s.crt", ca);
    struct tls_config_spec spec = {.cert_file = name ? in_dir(crt) : NULL,
                                   .key_file = name ? in_dir(key) : NULL,
                                   .ca_file = in_dir(ca_file),
                                   .alpn_mutual = server ? mutual : NULL,
                                   .server_name = verify};
    if (tls_config_create(&spec, server, &c, &err))
        fail_msg("%s", err.text);
    return c;
}

static inline void world_init(struct world *w, const char *listen)
{
    struct err err = {0};

    *w = (struct world){.l = loop_uv_create(&err)};
    assert_non_null(w->l);
    if (strncmp(listen, "unix:", 5) != 0)
        w->server = config(true, "server", "ca", NULL);
    if (listener_create(w->l, listen, w->server, on_accept, w, &w->li, &w->port, &err))
        fail_msg("%s", err.text);
    if (w->server)
        (void)snprintf(w->address, sizeof w->address, "127.0.0.1:%d", w->port);
    else
        str_copy(w->address, sizeof w->address, listen);
    timer_init(&w->limit, w->l, on_limit, w);
    timer_start(&w->limit, DEADLINE_MS);
}

static inline void connect_client(struct world *w, const char *alpn, uint64_t deadline_ms)
{
    struct err err = {0};

    if (stream_connect(w->l, w->address, w->client, alpn, deadline_ms, &client_events, w, &w->c,
                       &err))
        fail_msg("%s", err.text);
    assert_false(w->open); /* callbacks never come from inside the call */
}

static inline void world_fini(struct world *w)
{
    timer_stop(&w->limit);
    w->l = loop_uv_destroy(w->l);
    (void)tls_config_unref(w->client);
    (void)tls_config_unref(w->server);
}

static inline void echo_big(struct world *w, const char *alpn)
{
    char *big = malloc(BIG);
    uint32_t sum = 0;

    assert_non_null(big);
    for (size_t i = 0; i < BIG; i++) {
        big[i] = (char)(i * 7 + i / 251);
        sum = sum * 31 + (unsigned char)big[i];
    }
    w->shut_after = true;
    connect_client(w, alpn, 5000);
    stream_write(w->c, big, BIG); /* before it is open: kept */
    assert_int_equal(stream_pending(w->c), BIG);
    free(big);
    loop_uv_run(w->l);
    assert_false(w->timed_out);
    assert_true(w->open);
    assert_int_equal(w->got, BIG);
    assert_int_equal(w->echo_bytes, BIG);
    assert_true(w->sum == sum);
    assert_true(w->drained);
    assert_int_equal(w->why.code, 0);
    assert_true(w->server_closed);
    assert_int_equal(w->server_why.code, 0);
}

#endif
