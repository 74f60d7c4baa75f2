/* Listening. This file must never take more connections than the limit: at the limit accepting
 * pauses, and the kernel's queue holds the rest. (When descriptors run out before, libuv's reserve
 * descriptor drops what came, so that the loop does not spin on EMFILE.) */
#include "api/base/uv/uv_internal.h"
#include "api/base/limits.h"
#include "api/base/net/tls.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 4096
#define SPARE_FDS 128ul /* for files, the log, children */

struct uv_listener {
    struct listener base;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } h;
    struct list link;
    const struct tls_config *tls;
    accept_cb cb;
    void *arg;
    bool is_unix, waits;
};

#define LISTENER_OF(li) container_of((li), struct uv_listener, base)

static void peer_address(struct uv_stream_impl *s, const struct uv_listener *li)
{
    struct sockaddr_storage ss;
    struct ucred who;
    char ip[INET6_ADDRSTRLEN] = "?";
    int n = sizeof ss, fd;
    socklen_t len = sizeof who;

    if (li->is_unix) {
        (void)snprintf(s->base.peer.address, sizeof s->base.peer.address, "unix:");
        s->base.peer.unix_uid = UINT32_MAX;
        if (uv_fileno(&s->h.handle, &fd) == 0 &&
            getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0) {
            s->base.peer.unix_uid = who.uid;
            s->base.peer.unix_pid = who.pid;
        }
        return;
    }
    if (uv_tcp_getpeername(&s->h.tcp, (struct sockaddr *)&ss, &n))
        return;
    if (ss.ss_family == AF_INET6) {
        struct sockaddr_in6 *a = (struct sockaddr_in6 *)&ss;

        (void)uv_ip6_name(a, ip, sizeof ip);
        (void)snprintf(s->base.peer.address, sizeof s->base.peer.address, "[%s]:%u", ip,
                       ntohs(a->sin6_port));
    } else {
        struct sockaddr_in *a = (struct sockaddr_in *)&ss;

        (void)uv_ip4_name(a, ip, sizeof ip);
        (void)snprintf(s->base.peer.address, sizeof s->base.peer.address, "%s:%u", ip,
                       ntohs(a->sin_port));
    }
}

static void accept_one(struct uv_listener *li)
{
    struct uv_impl *im = impl_of(li->base.loop);
    struct uv_stream_impl *s = ustream_create(im, NULL, NULL);
    struct err why = {0};
    union {
        const struct tls_config *c;
        struct tls_config *m;
    } u = {li->tls};

    s->server = true;
    s->listener = &li->base;
    s->accept = li->cb;
    s->accept_arg = li->arg;
    s->is_unix = li->is_unix;
    s->tls = li->tls ? tls_config_ref(u.m) : NULL;
    s->has_handle = true;
    s->state = ST_HANDSHAKE;
    if (li->is_unix)
        INV(uv_pipe_init(&im->uv, &s->h.pipe, 0) == 0);
    else
        INV(uv_tcp_init(&im->uv, &s->h.tcp) == 0);
    s->h.handle.data = s;
    if (uv_accept(&li->h.stream, &s->h.stream)) {
        ustream_fail(s, E_CONNECT, "the connection was gone before it was accepted");
        return;
    }
    if (!li->is_unix) {
        (void)uv_tcp_nodelay(&s->h.tcp, 1);
        (void)uv_tcp_keepalive(&s->h.tcp, 1, 60);
    }
    peer_address(s, li);
    if (!s->tls) {
        ustream_opened(s);
        return;
    }
    if (ustream_tls_begin(s, NULL, NULL, &why)) {
        ustream_end(s, &why);
        return;
    }
    timer_start(&s->deadline, im->handshake_ms);
    ustream_read(s, true);
}

static void on_connection(uv_stream_t *h, int status)
{
    struct uv_listener *li = h->data;
    struct uv_impl *im = impl_of(li->base.loop);

    if (status < 0)
        return;
    if (im->n_streams >= im->streams_max) {
        li->waits = true; /* libuv stops polling until uv_accept takes this one */
        im->accept_waits = true;
        return;
    }
    accept_one(li);
}

void uv_listeners_retry(struct uv_impl *im)
{
    if (!im->accept_waits || im->n_streams >= im->streams_max)
        return;
    im->accept_waits = false;
    list_for_each_safe (it, tmp, &im->listeners) {
        struct uv_listener *li = container_of(it, struct uv_listener, link);

        if (!li->waits)
            continue;
        if (im->n_streams < im->streams_max) {
            li->waits = false;
            accept_one(li);
        } else {
            im->accept_waits = true;
        }
    }
}

static void listener_free(uv_handle_t *h)
{
    struct uv_listener *li = h->data;
    union {
        const struct tls_config *c;
        struct tls_config *m;
    } u = {li->tls};

    (void)tls_config_unref(u.m);
    mem_free(li);
}

void uv_listener_close_op(struct listener *base)
{
    struct uv_listener *li = LISTENER_OF(base);
    struct uv_impl *im = impl_of(base->loop);

    if (uv_is_closing(&li->h.handle))
        return;
    list_remove(&li->link);
    list_for_each_safe (it, tmp, &im->streams) {
        struct uv_stream_impl *s = container_of(it, struct uv_stream_impl, link);

        if (s->listener == base && !s->opened)
            ustream_fail(s, E_CANCELLED, "the listener was closed");
    }
    uv_close(&li->h.handle, listener_free);
}

void uv_listeners_close(struct uv_impl *im)
{
    list_for_each_safe (it, tmp, &im->listeners)
        uv_listener_close_op(&container_of(it, struct uv_listener, link)->base);
}

/* Thousands of watchers need as many descriptors: the soft limit goes up to what the system
 * permits. */
static void raise_fd_limit(struct uv_impl *im)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) != 0)
        return;
    rlim_t want = (rlim_t)LIMIT_CONNECTIONS_MAX + SPARE_FDS;
    if (r.rlim_cur < want && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max < want ? r.rlim_max : want;
        (void)setrlimit(RLIMIT_NOFILE, &r);
        (void)getrlimit(RLIMIT_NOFILE, &r);
    }
    if (r.rlim_cur < want && r.rlim_cur > 2 * SPARE_FDS)
        im->streams_max = (unsigned)(r.rlim_cur - SPARE_FDS);
}

/* True when nobody listens on the socket file any more; then it is removed. */
static bool remove_stale(const char *path)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    struct stat st;
    bool stale = false;

    if (lstat(path, &st) != 0 || !S_ISSOCK(st.st_mode))
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    str_copy(sun.sun_path, sizeof sun.sun_path, path);
    if (connect(fd, (struct sockaddr *)&sun, sizeof sun) != 0 && errno == ECONNREFUSED)
        stale = unlink(path) == 0;
    (void)close(fd);
    return stale;
}

static int bind_unix(struct uv_impl *im, struct uv_listener *li, const struct address *a)
{
    int rc;

    INV(uv_pipe_init(&im->uv, &li->h.pipe, 0) == 0);
    li->h.handle.data = li;
    rc = uv_pipe_bind(&li->h.pipe, a->host);
    if (rc == UV_EADDRINUSE && remove_stale(a->host))
        rc = uv_pipe_bind(&li->h.pipe, a->host);
    /* Before uv_listen, so that nobody connects with other rights. */
    if (!rc && chmod(a->host, 0600) != 0)
        rc = uv_translate_sys_error(errno);
    return rc;
}

static int bind_tcp(struct uv_impl *im, struct uv_listener *li, const struct address *a)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    uv_getaddrinfo_t req;
    int rc;

    INV(uv_tcp_init(&im->uv, &li->h.tcp) == 0);
    li->h.handle.data = li;
    if (!a->host[0]) {
        struct sockaddr_in6 any6;
        struct sockaddr_in any4;
        int port = 0;

        for (const char *p = a->port; *p; p++)
            port = port * 10 + (*p - '0');
        (void)uv_ip6_addr("::", port, &any6);
        (void)uv_ip4_addr("0.0.0.0", port, &any4);
        rc = uv_tcp_bind(&li->h.tcp, (const struct sockaddr *)&any6, 0);
        return rc == UV_EAFNOSUPPORT ? uv_tcp_bind(&li->h.tcp, (const struct sockaddr *)&any4, 0)
                                     : rc;
    }
    rc = uv_getaddrinfo(&im->uv, &req, NULL, a->host, a->port, &hints);
    if (rc)
        return rc;
    rc = uv_tcp_bind(&li->h.tcp, req.addrinfo->ai_addr, 0); /* sets SO_REUSEADDR */
    uv_freeaddrinfo(req.addrinfo);
    return rc;
}

static int listen_error(int rc, const char *address, struct err *err)
{
    if (rc == UV_EADDRINUSE)
        return err_set(err, E_BUSY,
                       "%s is in use by another program: stop it, or listen on another address",
                       address);
    if (rc == UV_EACCES)
        return err_set(
            err, E_FORBIDDEN,
            "%s may not be listened on: take a port from 1024 on, or a directory that is "
            "yours",
            address);
    if (rc == UV_EADDRNOTAVAIL)
        return err_set(err, E_INVALID, "%s is no address of this machine", address);
    return err_set(err, E_CONNECT, "listening on %s: %s", address, uv_strerror(rc));
}

static int port_of(struct uv_listener *li)
{
    struct sockaddr_storage ss;
    int n = sizeof ss;

    if (li->is_unix || uv_tcp_getsockname(&li->h.tcp, (struct sockaddr *)&ss, &n))
        return 0;
    return ss.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&ss)->sin6_port)
                                    : ntohs(((struct sockaddr_in *)&ss)->sin_port);
}

int uv_listen_op(struct loop *l, const char *address, const struct tls_config *tls, accept_cb cb,
                 void *arg, struct listener **ret, int *ret_port, struct err *err)
{
    struct uv_impl *im = impl_of(l);
    struct address a;
    int rc = address_parse(address, &a, err);

    if (rc)
        return rc;
    if (!tls && !a.is_unix && strcmp(a.host, "127.0.0.1") != 0)
        return err_set(err, E_TLS, "%s: TCP without TLS is not allowed", address);
    struct uv_listener *li = mem_new(struct uv_listener);
    union {
        const struct tls_config *c;
        struct tls_config *m;
    } u = {tls};
    li->base.loop = l;
    li->tls = tls ? tls_config_ref(u.m) : NULL;
    li->cb = cb;
    li->arg = arg;
    li->is_unix = a.is_unix;
    list_push(&im->listeners, &li->link);
    raise_fd_limit(im);
    rc = a.is_unix ? bind_unix(im, li, &a) : bind_tcp(im, li, &a);
    if (!rc)
        rc = uv_listen(&li->h.stream, BACKLOG, on_connection);
    if (rc) {
        uv_listener_close_op(&li->base);
        return listen_error(rc, address, err);
    }
    *ret = &li->base;
    if (ret_port)
        *ret_port = port_of(li);
    return 0;
}
