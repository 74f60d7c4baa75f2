/* The transport over libcurl's multi interface: its sockets are uv_poll handles of the production
 * loop, its timeouts a timer of the seam, so nothing here blocks or has a thread but libcurl's own
 * for looking up names.
 *
 * It must never follow a redirect, skip the verification of a certificate, write a secret to a
 * file, or call the client from inside begin, abort or pause. */
#include "connectors/web/web.h"
#include "connectors/web/web_rules.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <uv.h>

#define HEADER_LINE_MAX 32768

struct transport {
    struct web_transport base; /* first */
    struct loop *loop;
    const struct web_config *config;
    CURLM *multi;
    struct timer timer;
    bool tls;
};

struct exchange {
    struct transport *t;
    struct web_exchange *x;
    CURL *easy;
    struct curl_slist *headers;
    char error[CURL_ERROR_SIZE];
    struct timer resume;  /* libcurl hands over what it kept at once: not from inside pause() */
    bool paused, refused; /* refused: a callback of the client's said so */
};

struct socket { /* freed in its close callback, which may come after the transport has gone */
    uv_poll_t poll;
    struct transport *t;
};

/* ---- libcurl's sockets and timeouts on the loop ---- */
static void finished_look(struct transport *t);

static void act(struct transport *t, curl_socket_t fd, int events)
{
    int running;

    (void)curl_multi_socket_action(t->multi, fd, events, &running);
    finished_look(t);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct socket *s = poll->data;
    uv_os_fd_t fd;
    int what = status < 0 ? CURL_CSELECT_ERR : 0;

    what |= events & UV_READABLE ? CURL_CSELECT_IN : 0;
    what |= events & UV_WRITABLE ? CURL_CSELECT_OUT : 0;
    INV(uv_fileno((uv_handle_t *)poll, &fd) == 0);
    act(s->t, fd, what);
}

static void on_closed(uv_handle_t *h)
{
    mem_free(h->data);
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket)
{
    struct transport *t = arg;
    struct socket *s = socket;
    int events = 0;

    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (s)
            uv_close((uv_handle_t *)&s->poll, on_closed);
        (void)curl_multi_assign(t->multi, fd, NULL);
        return 0;
    }
    if (!s) {
        s = mem_new(struct socket);
        s->t = t;
        s->poll.data = s;
        INV(uv_poll_init_socket(loop_uv_handle(t->loop), &s->poll, fd) == 0);
        (void)curl_multi_assign(t->multi, fd, s);
    }
    events |= what & CURL_POLL_IN ? UV_READABLE : 0;
    events |= what & CURL_POLL_OUT ? UV_WRITABLE : 0;
    INV(uv_poll_start(&s->poll, events, on_poll) == 0);
    return 0;
}

static void on_timer(void *arg)
{
    act(arg, CURL_SOCKET_TIMEOUT, 0);
}

static int on_timeout(CURLM *multi, long ms, void *arg)
{
    struct transport *t = arg;

    (void)multi;
    if (ms < 0)
        timer_stop(&t->timer);
    else
        timer_start(&t->timer, (uint64_t)ms);
    return 0;
}

/* ---- one exchange ---- */
static void exchange_free(struct exchange *e)
{
    timer_stop(&e->resume);
    (void)curl_multi_remove_handle(e->t->multi, e->easy);
    curl_easy_cleanup(e->easy);
    curl_slist_free_all(e->headers);
    e->x->impl = NULL;
    mem_free(e);
}

/* Called right before the request is sent, on whatever connection: nothing has left before it. */
static int on_sending(void *arg, char *ip, char *own_ip, int port, int own_port)
{
    struct exchange *e = arg;
    bool here = strncmp(ip, "127.", 4) == 0 || strcmp(ip, "::1") == 0;

    (void)own_ip;
    (void)port;
    (void)own_port;
    if (!e->t->tls && !here) { /* "localhost" that leads elsewhere */
        e->refused = true;
        return CURL_PREREQFUNC_ABORT;
    }
    return e->x->ev->sending(e->x) ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT;
}

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
    struct exchange *e = arg;
    size_t bytes = size * n, end = bytes, at = 0;
    char line[HEADER_LINE_MAX];
    long status = 0;

    while (end && (p[end - 1] == '\r' || p[end - 1] == '\n' || p[end - 1] == ' '))
        end--;
    if (end >= 5 && strncmp(p, "HTTP/", 5) == 0) {
        (void)curl_easy_getinfo(e->easy, CURLINFO_RESPONSE_CODE, &status);
        e->x->ev->status(e->x, (int)status);
        return bytes;
    }
    const char *colon = memchr(p, ':', end);
    if (!colon || end >= sizeof line || memchr(p, '\0', end))
        return end == 0 ? bytes : 0;
    memcpy(line, p, end);
    line[end] = '\0';
    at = (size_t)(colon - p);
    line[at++] = '\0';
    while (line[at] == ' ' || line[at] == '\t')
        at++;
    return e->x->ev->header(e->x, line, line + at) ? bytes : 0;
}

static size_t on_data(char *p, size_t size, size_t n, void *arg)
{
    struct exchange *e = arg;

    if (e->paused)
        return CURL_WRITEFUNC_PAUSE;
    return e->x->ev->data(e->x, p, size * n) ? size * n : 0;
}

static void body_set(struct exchange *e)
{
    const struct web_exchange *x = e->x;
    bool has = x->body.n || !strcmp(x->method, "POST") || !strcmp(x->method, "PUT");

    if (!strcmp(x->method, "HEAD")) {
        (void)curl_easy_setopt(e->easy, CURLOPT_NOBODY, 1L);
        return;
    }
    if (has) {
        (void)curl_easy_setopt(e->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)x->body.n);
        (void)curl_easy_setopt(e->easy, CURLOPT_POSTFIELDS, x->body.n ? x->body.p : "");
    }
    (void)curl_easy_setopt(e->easy, CURLOPT_CUSTOMREQUEST, x->method);
}

static void options_set(struct exchange *e)
{
    const struct web_config *g = e->t->config;
    const struct web_trust trust = {.tls = e->t->tls,
                                    .direct = !e->t->tls, /* it is on this machine */
                                    .ca_pem = g->ca_pem,
                                    .cert_pem = g->cert_pem,
                                    .key_pem = g->key_pem};
    CURL *h = e->easy;

    (void)curl_easy_setopt(h, CURLOPT_URL, e->x->url);
    (void)curl_easy_setopt(h, CURLOPT_HTTP_VERSION,
                           (long)(e->t->tls ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1));
    (void)curl_easy_setopt(h, CURLOPT_PIPEWAIT, e->t->tls ? 1L : 0L);
    (void)curl_easy_setopt(h, CURLOPT_HTTPHEADER, e->headers);
    (void)curl_easy_setopt(h, CURLOPT_ERRORBUFFER, e->error);
    (void)curl_easy_setopt(h, CURLOPT_PRIVATE, e);
    (void)curl_easy_setopt(h, CURLOPT_PREREQFUNCTION, on_sending);
    (void)curl_easy_setopt(h, CURLOPT_PREREQDATA, e);
    (void)curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header);
    (void)curl_easy_setopt(h, CURLOPT_HEADERDATA, e);
    (void)curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_data);
    (void)curl_easy_setopt(h, CURLOPT_WRITEDATA, e);
    web_easy_secure(h, &trust);
    body_set(e);
}

static void headers_set(struct exchange *e)
{
    static const char *const silent[] = {"Expect:", "Content-Type:"};
    AUTO_BUF line;

    buf_init(&line, HEADER_LINE_MAX);
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++)
        e->headers = curl_slist_append(e->headers, silent[i]);
    for (size_t i = 0; i < e->x->n_headers; i++) {
        buf_reset(&line);
        buf_printf(&line, "%s: %s", e->x->headers[i].name, e->x->headers[i].value);
        e->headers = curl_slist_append(e->headers, line.p);
    }
    INV(e->headers);
}

static void finished_look(struct transport *t)
{
    CURLMsg *m;
    int left;

    while ((m = curl_multi_info_read(t->multi, &left)) != NULL) {
        char why[CURL_ERROR_SIZE + 64];
        CURLcode code = m->data.result;
        struct exchange *e = NULL;

        (void)curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &e);
        INV(e);
        (void)snprintf(why, sizeof why, "%s",
                       e->refused  ? "its name leads to another machine, and http is for this one"
                       : *e->error ? e->error
                                   : curl_easy_strerror(code));
        struct web_exchange *x = e->x;
        exchange_free(e);
        x->ev->over(x, web_easy_code((int)code), why);
    }
}

/* ---- the table ---- */
static void transport_destroy(struct web_transport *base)
{
    struct transport *t = container_of(base, struct transport, base);

    if (t->multi)
        (void)curl_multi_cleanup(t->multi);
    timer_stop(&t->timer);
    mem_free(t);
}

static int transport_create(struct loop *l, const struct web_config *config,
                            struct web_transport **ret, struct err *err)
{
    struct transport *t = mem_new(struct transport);

    t->base.ops = &web_curl;
    t->loop = l;
    t->config = config;
    t->tls = strncmp(config->url, "https:", 6) == 0;
    timer_init(&t->timer, l, on_timer, t);
    t->multi = curl_multi_init();
    if (!t->multi) {
        transport_destroy(&t->base);
        return err_set(err, E_NOMEM, "libcurl cannot be begun");
    }
    (void)curl_multi_setopt(t->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    (void)curl_multi_setopt(t->multi, CURLMOPT_SOCKETDATA, t);
    (void)curl_multi_setopt(t->multi, CURLMOPT_TIMERFUNCTION, on_timeout);
    (void)curl_multi_setopt(t->multi, CURLMOPT_TIMERDATA, t);
    (void)curl_multi_setopt(t->multi, CURLMOPT_MAX_HOST_CONNECTIONS, (long)config->in_flight);
    (void)curl_multi_setopt(t->multi, CURLMOPT_MAXCONNECTS, (long)config->in_flight);
    *ret = &t->base;
    return 0;
}

static void on_resume(void *arg)
{
    struct exchange *e = arg;
    struct transport *t = e->t;

    (void)curl_easy_pause(e->easy, CURLPAUSE_CONT);
    act(t, CURL_SOCKET_TIMEOUT, 0);
}

static void transport_begin(struct web_transport *base, struct web_exchange *x)
{
    struct transport *t = container_of(base, struct transport, base);
    struct exchange *e = mem_new(struct exchange);

    e->t = t;
    e->x = x;
    x->impl = e;
    timer_init(&e->resume, t->loop, on_resume, e);
    e->easy = curl_easy_init();
    INV(e->easy);
    headers_set(e);
    options_set(e);
    INV(curl_multi_add_handle(t->multi, e->easy) == CURLM_OK); /* its timer does the rest */
}

static void transport_abort(struct web_transport *base, struct web_exchange *x)
{
    (void)base;
    if (x->impl)
        exchange_free(x->impl);
}

static void transport_pause(struct web_transport *base, struct web_exchange *x, bool paused)
{
    struct exchange *e = x->impl;

    (void)base;
    if (!e || e->paused == paused)
        return;
    e->paused = paused;
    if (paused)
        timer_stop(&e->resume);
    else
        timer_start(&e->resume, 0);
}

const struct web_transport_ops web_curl = {.create = transport_create,
                                           .destroy = transport_destroy,
                                           .begin = transport_begin,
                                           .abort = transport_abort,
                                           .pause = transport_pause};
