/* Connecting: addresses, resolving, one attempt after the other, all within one deadline. Must
 * never wait for the resolver beyond that deadline: a slow answer finds that its stream has
 * left. */
#include "api/base/uv/uv_internal.h"
#include "api/base/net/tls.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

struct resolve {
    uv_getaddrinfo_t req;
    struct uv_stream_impl *s; /* NULL: nobody waits any more */
    struct address address;
    char alpn[32];
};

static int bad_address(const char *text, struct err *err)
{
    return err_set(err, E_INVALID,
                   "\"%s\" is no address: expected HOST:PORT, [IPV6]:PORT or unix:/PATH", text);
}

int address_parse(const char *text, struct address *ret, struct err *err)
{
    struct address a = {0};
    const char *colon = strrchr(text, ':'), *host = text, *end = colon;
    unsigned port = 0;

    if (strncmp(text, "unix:", 5) == 0) {
        const char *path = text + 5;

        if (!path[0])
            return bad_address(text, err);
        if (strlen(path) >= sizeof((struct sockaddr_un *)0)->sun_path)
            return err_set(err, E_INVALID, "%s: a socket's path has at most %zu bytes", text,
                           sizeof((struct sockaddr_un *)0)->sun_path - 1);
        a.is_unix = true;
        str_copy(a.host, sizeof a.host, path);
        *ret = a;
        return 0;
    }
    if (!colon || !colon[1] || strlen(colon + 1) >= 6)
        return bad_address(text, err);
    for (const char *p = colon + 1; *p; p++) {
        if (*p < '0' || *p > '9')
            return bad_address(text, err);
        port = port * 10 + (unsigned)(*p - '0');
    }
    if (*text == '[') {
        host = text + 1;
        end = colon - 1;
        if (end <= host || *end != ']')
            return bad_address(text, err);
    } else if (memchr(text, ':', (size_t)(colon - text))) {
        return bad_address(text, err); /* an IPv6 address without brackets */
    }
    if (port > 65535 || (size_t)(end - host) >= sizeof a.host)
        return bad_address(text, err);
    memcpy(a.host, host, (size_t)(end - host));
    (void)snprintf(a.port, sizeof a.port, "%u", port);
    *ret = a;
    return 0;
}

void ustream_resolve_forget(struct uv_stream_impl *s)
{
    struct resolve *r = s->resolve;

    if (s->addresses)
        uv_freeaddrinfo(s->addresses);
    s->addresses = s->next_address = NULL;
    s->resolve = NULL;
    if (!r)
        return;
    r->s = NULL;
    /* Running: its callback frees it. Otherwise it is ours. */
    if (r->req.data)
        (void)uv_cancel((uv_req_t *)&r->req);
    else
        mem_free(r);
}

void ustream_reached(struct uv_stream_impl *s)
{
    const struct resolve *r = s->resolve;
    const char *host = s->way ? way_host(s->way) : r->address.host;
    struct err why = {0};

    s->state = ST_HANDSHAKE;
    if (ustream_tls_begin(s, host, r->alpn[0] ? r->alpn : NULL, &why))
        ustream_end(s, &why);
    else
        ustream_shake_later(s);
}

static void on_connected(uv_connect_t *req, int status)
{
    struct uv_stream_impl *s = req->data;

    if (s->state == ST_GONE)
        return;
    if (status < 0) {
        if (s->next_address) {
            ustream_retry(s);
            return;
        }
        ustream_fail(s, E_CONNECT, "%s: %s%s", ustream_dialed(s), uv_strerror(status),
                     status == UV_ECONNREFUSED || status == UV_ENOENT ? " (is the server running?)"
                                                                      : "");
        return;
    }
    if (!s->is_unix) {
        (void)uv_tcp_nodelay(&s->h.tcp, 1);
        (void)uv_tcp_keepalive(&s->h.tcp, 1, 60);
    }
    if (s->way) {
        way_ask(s);
        return;
    }
    if (s->tls) {
        ustream_reached(s);
        return;
    }
    str_copy(s->base.peer.alpn, sizeof s->base.peer.alpn, s->resolve->alpn);
    ustream_opened(s);
}

/* Tries the next address; ends the stream when there is none. Runs from callbacks only. */
void ustream_connect_next(struct uv_stream_impl *s)
{
    struct resolve *r = s->resolve;
    struct addrinfo *ai = s->next_address;
    int rc = UV_EADDRNOTAVAIL;

    s->state = ST_CONNECT;
    s->connect_req.data = s;
    memset(&s->h, 0, sizeof s->h);
    s->has_handle = true;
    if (r->address.is_unix) {
        INV(uv_pipe_init(&s->im->uv, &s->h.pipe, 0) == 0);
        s->h.handle.data = s;
        uv_pipe_connect(&s->connect_req, &s->h.pipe, r->address.host, on_connected);
        return;
    }
    INV(uv_tcp_init(&s->im->uv, &s->h.tcp) == 0);
    s->h.handle.data = s;
    if (ai) {
        s->next_address = ai->ai_next;
        rc = uv_tcp_connect(&s->connect_req, &s->h.tcp, ai->ai_addr, on_connected);
    }
    if (rc && s->next_address)
        ustream_retry(s);
    else if (rc)
        ustream_fail(s, E_CONNECT, "%s: %s", ustream_dialed(s), uv_strerror(rc));
}

/* Resolvers say little: what a person can look at. */
static const char *resolve_why(int status)
{
    switch (status) {
    case UV_EAI_AGAIN:
        return "no name server answers (see /etc/resolv.conf)";
    case UV_EAI_NONAME:
    case UV_EAI_NODATA:
        return "no name server, and not /etc/hosts, knows it";
    default:
        return uv_strerror(status);
    }
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *res)
{
    struct resolve *r = req->data;
    struct uv_stream_impl *s = r->s;

    r->req.data = NULL;
    if (!s) {
        uv_freeaddrinfo(res);
        mem_free(r);
    } else if (status < 0) {
        ustream_fail(s, E_CONNECT, "%s: the host name cannot be resolved: %s", ustream_dialed(s),
                     resolve_why(status));
    } else {
        s->addresses = s->next_address = res;
        ustream_connect_next(s);
    }
}

int uv_connect_op(struct loop *l, const char *address, const struct tls_config *tls,
                  const char *alpn, uint64_t deadline_ms, const struct stream_events *ev, void *arg,
                  struct stream **ret, struct err *err)
{
    return ustream_dial(l, address, NULL, address, tls, alpn, deadline_ms, ev, arg, ret, err);
}

int ustream_dial(struct loop *l, const char *dialed, struct way *way, const char *address,
                 const struct tls_config *tls, const char *alpn, uint64_t deadline_ms,
                 const struct stream_events *ev, void *arg, struct stream **ret, struct err *err)
{
    struct uv_impl *im = impl_of(l);
    struct address a = {0};
    int rc = address_parse(dialed, &a, err);

    if (rc)
        return rc;
    if (im->closing)
        return err_set(err, E_CANCELLED, "%s: the loop is ending", address);
    if (!tls && !a.is_unix)
        return err_set(err, E_TLS, "%s: TCP without TLS is not allowed", address);
    if (!a.is_unix && !a.host[0])
        return bad_address(dialed, err);
    struct uv_stream_impl *s = ustream_create(im, ev, arg);
    union {
        const struct tls_config *c;
        struct tls_config *m;
    } u = {tls};
    s->tls = tls ? tls_config_ref(u.m) : NULL;
    s->is_unix = a.is_unix;
    s->way = way;
    s->state = ST_RESOLVE;
    str_copy(s->base.peer.address, sizeof s->base.peer.address, address);
    s->resolve = mem_new(struct resolve);
    s->resolve->s = s;
    s->resolve->address = a;
    str_copy(s->resolve->alpn, sizeof s->resolve->alpn, alpn ? alpn : "");
    timer_start(&s->deadline, deadline_ms);
    if (a.is_unix) {
        ustream_todo(s);
    } else {
        struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
        struct sockaddr_in6 probe;

        if (uv_ip4_addr(a.host, 0, (struct sockaddr_in *)(void *)&probe) == 0 ||
            uv_ip6_addr(a.host, 0, &probe) == 0)
            hints.ai_flags |= AI_NUMERICHOST;
        s->resolve->req.data = s->resolve;
        rc = uv_getaddrinfo(&im->uv, &s->resolve->req, on_resolved, a.host, a.port, &hints);
        if (rc) {
            s->resolve->req.data = NULL;
            ustream_fail(s, E_CONNECT, "%s: %s", ustream_dialed(s), uv_strerror(rc));
        }
    }
    *ret = &s->base;
    return 0;
}
