/* Streams through an HTTP proxy: once it is connected it is asked for a way to the peer (CONNECT),
 * and what it then carries is TLS with that peer. Nothing of the peer's name is looked up here, and
 * nothing that a proxy says is taken for the peer's. */
#include "api/base/uv/uv_internal.h"
#include "api/base/net/proxy.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#define REQUEST_MAX 2048

struct way {
    struct address peer;
    char name[600]; /* "PEER through the proxy PROXY" */
    char request[REQUEST_MAX];
    struct proxy_answer answer;
};

const char *way_host(const struct way *w)
{
    return w->peer.host;
}

const char *ustream_dialed(const struct uv_stream_impl *s)
{
    return s->way ? s->way->name : s->base.peer.address;
}

static void way_free(struct way *w)
{
    OPENSSL_cleanse(w->request, sizeof w->request);
    mem_free(w);
}

void way_forget(struct uv_stream_impl *s)
{
    if (s->way)
        way_free(s->way);
    s->way = NULL;
}

void way_ask(struct uv_stream_impl *s)
{
    s->state = ST_PROXY;
    ustream_send(s, s->way->request, strlen(s->way->request));
    if (s->state != ST_PROXY) /* it is over, and its way with it */
        return;
    OPENSSL_cleanse(s->way->request, sizeof s->way->request);
    ustream_read(s, true);
}

void way_input(struct uv_stream_impl *s, const char *p, size_t n)
{
    struct way *w = s->way;
    struct err why = {0};
    size_t taken = 0;
    int rc = proxy_answer_take(&w->answer, p, n, &taken, &why);

    if (rc == 0)
        return;
    if (rc > 0)
        rc = proxy_answer_judge(w->answer.status, s->base.peer.address, &why);
    /* The peer of a TLS client is silent until it was spoken to. */
    if (rc == 0 && taken < n)
        rc = err_set(&why, E_CONNECT, "it goes on after its answer, where only the peer may speak");
    if (rc < 0) {
        (void)err_prefix(&why, "%s", w->name);
        ustream_end(s, &why);
        return;
    }
    ustream_read(s, false);
    ustream_reached(s);
}

/* Of an address that comes from elsewhere no byte may end the line, or begin another word. */
static bool sendable(const char *address)
{
    for (const char *p = address; *p; p++)
        if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
              strchr("-._:[]", *p)))
            return false;
    return true;
}

int uv_connect_via_op(struct loop *l, const struct proxy *via, const char *address,
                      const struct tls_config *tls, const char *alpn, uint64_t deadline_ms,
                      const struct stream_events *ev, void *arg, struct stream **ret,
                      struct err *err)
{
    struct address peer;

    if (!proxy_is_for(via, address))
        return uv_connect_op(l, address, tls, alpn, deadline_ms, ev, arg, ret, err);
    int rc = address_parse(address, &peer, err);
    if (rc < 0)
        return rc;
    if (peer.is_unix || !peer.host[0] || !sendable(address))
        return err_set(err, E_INVALID, "\"%.100s\" is no HOST:PORT that a proxy could be told",
                       address);
    if (!tls)
        return err_set(err, E_TLS, "%s: TCP without TLS is not allowed", address);
    struct way *w = mem_new(struct way);
    bool login = via->authorization[0] != '\0';
    w->peer = peer;
    (void)snprintf(w->name, sizeof w->name, "%s through the proxy %s", address, via->address);
    int n = snprintf(w->request, sizeof w->request,
                     "CONNECT %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: hanse\r\n%s%s%s\r\n", address,
                     address, login ? "Proxy-Authorization: " : "", via->authorization,
                     login ? "\r\n" : "");
    INV(n > 0 && n < REQUEST_MAX);
    rc = ustream_dial(l, via->address, w, address, tls, alpn, deadline_ms, ev, arg, ret, err);
    if (rc < 0)
        way_free(w);
    return rc;
}
