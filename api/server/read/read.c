/* get and list. Lists are made in bounded slices from one view, so that a large one holds up
 * nobody; pages of a list name the view that they come from, which is kept for a bounded time. */
#include "api/server/server_internal.h"

#define SLICE_BYTES (256u << 10)
#define SLICE_OBJECTS 4096

/* ---- views that `continue` tokens name ---- */
struct view *view_kept(struct api *a, uint64_t rv)
{
    uint64_t now = loop_now_ms(a->cfg.loop);

    for (unsigned i = 0; i < KEPT_VIEWS; i++) {
        struct kept_view *k = &a->kept[i];
        if (k->view && now - k->used_ms > KEPT_VIEW_MS) {
            a->ops->view_release(k->view);
            k->view = NULL;
        }
        if (k->view && k->rv == rv) {
            k->used_ms = now;
            return a->ops->view_ref(k->view);
        }
    }
    return NULL;
}

struct view *view_keep(struct api *a, struct view *v)
{
    uint64_t rv = a->ops->view_rv(v);
    struct kept_view *slot = &a->kept[0];
    struct view *known = view_kept(a, rv);

    if (known) {
        a->ops->view_release(known);
        return v;
    }
    for (unsigned i = 0; i < KEPT_VIEWS; i++)
        if (!a->kept[i].view || (slot->view && a->kept[i].used_ms < slot->used_ms))
            slot = &a->kept[i];
    if (slot->view)
        a->ops->view_release(slot->view);
    *slot = (struct kept_view){
        .view = a->ops->view_ref(v), .rv = rv, .used_ms = loop_now_ms(a->cfg.loop)};
    return v;
}

void views_drop(struct api *a)
{
    for (unsigned i = 0; i < KEPT_VIEWS; i++)
        if (a->kept[i].view)
            a->ops->view_release(a->kept[i].view);
    memset(a->kept, 0, sizeof a->kept);
}

/* ---- resourceVersion of a read ---- */
/* none: linearizable; 0: any; N: not older than N. Calls go(c) with the view to read from, or
 * answers. A member that has just started and read nothing yet has no version to show: it asks. */
static void read_at(struct call *c, void (*go)(struct call *c))
{
    const char *text = call_param(c, "resourceVersion");
    uint64_t rv = 0, has = c->api->ops->view_rv(c->view);

    if (!*text) {
        call_fresh(c, 0, go);
    } else if (call_u64(text, &rv)) {
        call_fail_code(c, E_SYNTAX, "resourceVersion must be a number");
    } else if (has > 0 && rv <= has) {
        go(c);
    } else {
        call_fresh(c, rv, go);
    }
}

static void get_reply(struct call *c)
{
    const struct object *o = call_get(c, c->kind, c->ns, c->name);
    struct err e = {0};
    AUTO_BUF b = {0};

    if (!o) {
        (void)call_not_found(c->kind, c->name, &e);
        call_fail(c, &e);
        return;
    }
    buf_init(&b, ANSWER_MAX);
    repr_object(c->api, c->view, &c->repr, o, &b);
    buf_char(&b, '\n');
    call_reply_buf(c, 200, &b);
}

void read_get(struct call *c)
{
    struct err e = {0};

    if (repr_choose(c, &e))
        call_fail(c, &e);
    else
        read_at(c, get_reply);
}

/* ---- list ---- */
struct listing {
    struct call *c;
    struct buf out;
    unsigned looked;           /* at objects, in this slice */
    uint64_t limit, n, before; /* before: items on earlier pages */
    char after_ns[64], after_name[256];
    bool started, streaming, more, full, first;
};

static void listing_fini(struct call *c)
{
    struct listing *l = c->state;

    buf_fini(&l->out);
    mem_free(l);
}

/* Token: base64url of "rv:seen:ns/name". */
static const char b64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static char *token_make(struct listing *l)
{
    char text[400];
    int n = snprintf(text, sizeof text, "%llu:%llu:%s/%s",
                     (unsigned long long)l->c->api->ops->view_rv(l->c->view),
                     (unsigned long long)l->before + l->n, l->after_ns, l->after_name);
    char *out = arena_alloc(l->c->mem, (size_t)n * 2 + 4), *p = out;
    for (int i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)(unsigned char)text[i] << 16 |
                     (i + 1 < n ? (uint32_t)(unsigned char)text[i + 1] << 8 : 0) |
                     (i + 2 < n ? (uint32_t)(unsigned char)text[i + 2] : 0);
        for (int k = 0; k < 4 && i + k <= n; k++)
            *p++ = b64[v >> (18 - 6 * k) & 63];
    }
    return out;
}

static int token_read(struct listing *l, const char *token, uint64_t *ret_rv)
{
    char text[400];
    size_t n = 0;
    uint32_t v = 0;
    unsigned bits = 0;
    unsigned long long rv, seen;
    char *colon, *at;

    for (; *token; token++) {
        const char *d = strchr(b64, *token);
        if (!d || n + 1 >= sizeof text)
            return E_SYNTAX;
        v = (v << 6 | (uint32_t)(d - b64)) & 0xffffff;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            text[n++] = (char)(v >> bits);
        }
    }
    text[n] = 0;
    rv = strtoull(text, &colon, 10);
    if (*colon++ != ':')
        return E_SYNTAX;
    seen = strtoull(colon, &at, 10);
    if (*at++ != ':')
        return E_SYNTAX;
    char *slash = strchr(at, '/');
    if (!slash || slash - at >= (long)sizeof l->after_ns ||
        strlen(slash + 1) >= sizeof l->after_name)
        return E_SYNTAX;
    *slash = 0;
    (void)snprintf(l->after_ns, sizeof l->after_ns, "%.63s", at);
    (void)snprintf(l->after_name, sizeof l->after_name, "%.255s", slash + 1);
    l->before = seen;
    l->started = true;
    *ret_rv = rv;
    return 0;
}

static bool list_each(const struct object *o, void *arg)
{
    struct listing *l = arg;

    if (l->looked++ == SLICE_OBJECTS && !l->c->repr.yaml) {
        l->full = true;
        return false;
    }
    if (!selector_holds(l->c->selector, o)) {
        l->started = true;
        str_copy(l->after_ns, sizeof l->after_ns, o->meta->namespace_);
        str_copy(l->after_name, sizeof l->after_name, o->meta->name);
        return true;
    }
    if (l->limit && l->n == l->limit) {
        l->more = true;
        return false;
    }
    if (l->out.n >= SLICE_BYTES && !l->c->repr.yaml) { /* YAML is made from the whole */
        l->full = true;
        return false;
    }
    if (!l->first)
        buf_str(&l->out, ",\n");
    l->first = false;
    repr_list_item(l->c->api, l->c->view, &l->c->repr, o, &l->out);
    l->n++;
    l->started = true;
    str_copy(l->after_ns, sizeof l->after_ns, o->meta->namespace_);
    str_copy(l->after_name, sizeof l->after_name, o->meta->name);
    return true;
}

static void list_finish(struct listing *l)
{
    struct call *c = l->c;
    const struct backend_ops *ops = c->api->ops;
    int64_t remaining = 0;
    char *token = NULL;

    if (l->more) {
        token = token_make(l);
        (void)view_keep(c->api, c->view);
        if (!c->selector && !(c->ns && *c->ns))
            remaining = (int64_t)(ops->count(c->view, c->kind) - l->before - l->n);
    }
    repr_list_end(&c->repr, ops->view_rv(c->view), token, remaining, &l->out);
    if (!l->streaming) {
        AUTO_BUF whole = l->out; /* the listing goes with the call */
        buf_init(&l->out, 1);
        call_reply_buf(c, 200, &whole);
        return;
    }
    struct http_request *rq = c->rq;
    http_chunk(rq, l->out.p, l->out.n);
    buf_reset(&l->out);
    http_chunk_end(rq);
}

static void list_closed(void *arg)
{
    call_release(arg);
}

static void list_slice(void *arg);

static void list_drained(void *arg)
{
    struct listing *l = arg;

    call_again(l->c, list_slice, l);
}

static void list_slice(void *arg)
{
    struct listing *l = arg;
    struct call *c = l->c;

    l->full = false;
    l->looked = 0;
    c->api->ops->scan(c->view, c->kind, c->ns, l->started ? l->after_ns : NULL,
                      l->started ? l->after_name : NULL, list_each, l);
    if (!l->full) {
        list_finish(l);
        return;
    }
    if (!l->streaming) {
        l->streaming = true;
        c->api->counters.by_class[2]++;
        http_chunk_begin(c->rq, 200, "application/json", NULL, list_closed, c);
    }
    http_chunk(c->rq, l->out.p, l->out.n);
    buf_reset(&l->out);
    if (http_pending(c->rq) > SLICE_BYTES)
        http_on_drained(c->rq, list_drained, l);
    else
        call_again(c, list_slice, l);
}

static void list_go(struct call *c)
{
    struct listing *l = c->state;

    repr_list_begin(&c->repr, c->kind, &l->out);
    call_again(c, list_slice, l);
}

static void list_exact(struct call *c, uint64_t rv, bool token)
{
    struct view *v = rv == c->api->ops->view_rv(c->view) ? c->api->ops->view_ref(c->view)
                                                         : view_kept(c->api, rv);

    if (!v) {
        call_fail_code(c, E_GONE,
                       token ? "the continue token is too old: list again from the start"
                             : "that resourceVersion is no longer kept: list without it");
        return;
    }
    c->api->ops->view_release(c->view);
    c->view = v;
    list_go(c);
}

static void list_start(struct call *c)
{
    struct listing *l = c->state;
    const char *token = call_param(c, "continue"), *limit = call_param(c, "limit");
    const char *match = call_param(c, "resourceVersionMatch"),
               *text = call_param(c, "resourceVersion");
    uint64_t rv = 0;

    if (*limit && call_u64(limit, &l->limit)) {
        call_fail_code(c, E_SYNTAX, "limit must be a number");
    } else if (*token) {
        if ((*text && strcmp(text, "0") != 0) || *match)
            call_fail_code(c, E_SYNTAX, "resourceVersion may not be given together with continue");
        else if (token_read(l, token, &rv))
            call_fail_code(c, E_SYNTAX, "the continue token is not one of ours");
        else
            list_exact(c, rv, true);
    } else if (*match && !*text) {
        call_fail_code(c, E_SYNTAX, "resourceVersionMatch needs a resourceVersion");
    } else if (!strcmp(match, "Exact")) {
        if (call_u64(text, &rv) || !rv)
            call_fail_code(c, E_SYNTAX,
                           "resourceVersionMatch=Exact needs a resourceVersion above 0");
        else
            list_exact(c, rv, false);
    } else if (*match && strcmp(match, "NotOlderThan") != 0) {
        call_fail_code(c, E_SYNTAX, "resourceVersionMatch must be Exact or NotOlderThan");
    } else {
        read_at(c, list_go);
    }
}

void read_list(struct call *c)
{
    struct err e = {0};
    struct listing *l;

    if (repr_choose(c, &e) ||
        selector_parse(call_param(c, "labelSelector"), call_param(c, "fieldSelector"), c->kind,
                       &c->selector, &e)) {
        call_fail(c, &e);
        return;
    }
    if (call_flag(c, "watch")) {
        read_watch(c);
        return;
    }
    l = mem_new(struct listing); /* a stream outlives the request's arena */
    l->c = c;
    l->first = true;
    buf_init(&l->out, c->repr.yaml ? ANSWER_MAX : SLICE_BYTES + 4 * (size_t)LIMIT_OBJECT_MAX_BYTES);
    c->state = l;
    c->fini = listing_fini;
    list_start(c);
}
