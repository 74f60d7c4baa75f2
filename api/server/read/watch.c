/* watch: every change of a kind, in order, from a resourceVersion on. One hub reads the changes
 * once for all watchers; an event is encoded once for each representation in use and the same bytes
 * go to every watcher of it. A watcher that does not keep up is ended with 410: it must never hold
 * up the others, nor grow without bound. */
#include "api/server/server_internal.h"

#define SLICE_BYTES (256u << 10)
#define BOOKMARK_MS 60000
#define ENCODED_MAX 24
#define EVENT_MAX_BYTES (4 * (size_t)LIMIT_OBJECT_MAX_BYTES + (1 << 16))

enum event_type { EV_ADDED, EV_MODIFIED, EV_DELETED };
static const char *const event_text[] = {"ADDED", "MODIFIED", "DELETED"};

struct watch {
    struct list node; /* in the hub's list of its kind once it is live */
    struct hub *hub;
    struct http_request *rq;
    const struct kind *kind;
    char ns[64];
    bool all_ns, bookmarks, end_mark, over, initial, first_done;
    struct selector *selector;
    struct repr repr;
    uint64_t rv;       /* all changes up to it were sent */
    struct view *view; /* while the initial events are sent */
    char after_ns[64], after_name[256];
    struct buf out;
    struct timer timer;
    struct flow *flow;      /* whose it is, */
    struct fair_item slice; /* and in whose turns its initial events are made */
    uint64_t end_ms, bookmark_ms;
};
struct encoded {
    enum event_type type;
    struct repr repr;
    struct buf framed;
};
struct hub {
    struct api *a;
    struct list live[KIND_LIMIT];
    uint64_t rv, n;
    bool pumping;
    struct encoded cache[ENCODED_MAX];
    unsigned n_cache;
    /* that events are made from, while they are: for figures (backend.h: shown) */
    const struct view *view;
};

/* ---- events ---- */
/* An object that stops matching is shown as it was, with the version of the change that took it
 * away. Should it be too large to be made anew its own stays: who goes on from there is told of the
 * change once more. */
static void old_object(struct hub *h, const struct repr *r, const struct object *o, uint64_t rv,
                       struct buf *out)
{
    struct object *copy = NULL;

    if ((uint64_t)o->meta->resourceVersion != rv) {
        struct arena *mem = arena_create(0);
        void *body = object_edit(o, mem);
        for (unsigned i = 0; i < o->kind->schema->n; i++) {
            const struct field *f = &o->kind->schema->fields[i];
            if (strcmp(f->json, "metadata") != 0)
                continue;
            struct meta *m = *(struct meta **)(void *)((char *)body + f->off);
            m->resourceVersion = (int64_t)rv;
        }
        (void)!object_make_within(o->kind, body, OBJECT_MADE_MAX_BYTES, &copy, NULL);
        (void)arena_destroy(mem);
    }
    repr_object(h->a, h->view, r, copy ? copy : o, out);
    (void)object_unref(copy);
}

static void event_line(struct hub *h, enum event_type type, const struct repr *r,
                       const struct object *o, uint64_t rv, struct buf *line)
{
    buf_printf(line, "{\"type\":\"%s\",\"object\":", event_text[type]);
    if (type == EV_DELETED)
        old_object(h, r, o, rv, line);
    else
        repr_object(h->a, h->view, r, o, line);
    buf_str(line, "}\n");
}

static bool repr_same(const struct repr *a, const struct repr *b)
{
    return a->form == b->form && a->include == b->include && a->v1beta1 == b->v1beta1;
}

static const struct buf *encoded(struct hub *h, enum event_type type, const struct repr *r,
                                 const struct object *o, uint64_t rv)
{
    AUTO_BUF line = {0};

    for (unsigned i = 0; i < h->n_cache; i++)
        if (h->cache[i].type == type && repr_same(&h->cache[i].repr, r))
            return &h->cache[i].framed;
    INV(h->n_cache < ENCODED_MAX); /* 3 types x at most 8 representations */
    struct encoded *e = &h->cache[h->n_cache++];
    e->type = type;
    e->repr = *r;
    buf_init(&line, EVENT_MAX_BYTES);
    buf_init(&e->framed, EVENT_MAX_BYTES + 64);
    event_line(h, type, r, o, rv, &line);
    http_chunk_frame(&e->framed, line.p, line.n);
    return &e->framed;
}

static void cache_reset(struct hub *h)
{
    while (h->n_cache)
        buf_fini(&h->cache[--h->n_cache].framed);
}

/* ---- one watcher ---- */
static void watch_over(struct watch *w, int code, const char *why)
{
    if (w->over)
        return;
    if (code) {
        struct err e = {0};
        AUTO_BUF b = {0};
        buf_init(&b, 1 << 16);
        (void)err_set(&e, code, "%s", why);
        buf_str(&b, "{\"type\":\"ERROR\",\"object\":");
        status_json(&b, &e, NULL, w->kind, NULL, NULL, NULL, err_info(code)->http, 0);
        if (b.n && b.p[b.n - 1] == '\n')
            b.n--;
        buf_str(&b, "}\n");
        http_chunk(w->rq, b.p, b.n);
    }
    w->over = true;
    timer_stop(&w->timer);
    fair_leave(w->hub->a->fair, &w->slice);
    fair_lasted(w->hub->a->fair, &w->flow);
    list_remove(&w->node);
    http_chunk_end(w->rq); /* watch_closed follows */
}

static void watch_closed(void *arg)
{
    struct watch *w = arg;

    timer_stop(&w->timer);
    fair_leave(w->hub->a->fair, &w->slice);
    fair_lasted(w->hub->a->fair, &w->flow);
    list_remove(&w->node);
    w->selector = selector_free(w->selector);
    if (w->view)
        w->hub->a->ops->view_release(w->view);
    buf_fini(&w->out);
    w->hub->n--;
    mem_free(w);
}

static bool watch_wants(const struct watch *w, const struct object *o)
{
    return o && (w->all_ns || !strcmp(w->ns, o->meta->namespace_)) &&
           selector_holds(w->selector, o);
}

/* What a change is to this watcher; false = nothing. */
static bool watch_event(const struct watch *w, const struct object *before,
                        const struct object *after, enum event_type *ret)
{
    bool was = watch_wants(w, before), is = watch_wants(w, after);

    if (!was && !is)
        return false;
    *ret = is ? (was ? EV_MODIFIED : EV_ADDED) : EV_DELETED;
    return true;
}

static void watch_send(struct watch *w, enum event_type type, uint64_t rv,
                       const struct object *before, const struct object *after)
{
    struct hub *h = w->hub;

    const struct buf *b =
        encoded(h, type, &w->repr, after && type != EV_DELETED ? after : before, rv);
    size_t waits = http_pending(w->rq);
    if (waits && (waits + b->n > LIMIT_WATCH_BUFFER_MAX || http_crowded(w->rq, b->n))) {
        h->a->counters.watch_overflows++;
        http_last(w->rq); /* nor may the rest of it wait for long */
        watch_over(w, E_GONE, "this watcher does not keep up: list again and watch from there");
        return;
    }
    h->a->counters.watch_events++;
    http_chunk_raw(w->rq, b->p, b->n);
}

static void bookmark(struct watch *w, bool initial_end)
{
    AUTO_BUF meta = {0};
    AUTO_BUF b = {0};
    const struct kind *k = w->kind;
    const char *partial = "\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\"";

    buf_init(&meta, 1024);
    buf_init(&b, 4096);
    buf_printf(&meta, "\"metadata\":{\"resourceVersion\":\"%llu\",\"creationTimestamp\":null%s}",
               (unsigned long long)w->rv,
               initial_end ? ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}" : "");
    buf_str(&b, "{\"type\":\"BOOKMARK\",\"object\":{");
    if (w->repr.form == FORM_TABLE)
        buf_printf(&b,
                   "\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/"
                   "v1\",\"metadata\":{\"resourceVersion\":\"%llu\"},"
                   "\"columnDefinitions\":null,\"rows\":[{\"cells\":[],\"object\":{%s,%s}}]",
                   (unsigned long long)w->rv, partial, meta.p);
    else if (w->repr.form == FORM_PARTIAL)
        buf_printf(&b, "%s,%s", partial, meta.p);
    else
        buf_printf(&b, "\"kind\":\"%s\",\"apiVersion\":\"%s\",%s", k->kind, kind_api_version(k),
                   meta.p);
    buf_str(&b, "}}\n");
    http_chunk(w->rq, b.p, b.n);
}

static void watch_arm(struct watch *w)
{
    uint64_t now = loop_now_ms(w->hub->a->cfg.loop);
    uint64_t due = w->bookmarks && w->bookmark_ms < w->end_ms ? w->bookmark_ms : w->end_ms;

    timer_start(&w->timer, due > now ? due - now : 0);
}

static void watch_timer(void *arg)
{
    struct watch *w = arg;
    uint64_t now = loop_now_ms(w->hub->a->cfg.loop);

    if (w->bookmarks && w->first_done)
        bookmark(w, false);
    if (now >= w->end_ms) {
        watch_over(w, 0, NULL);
        return;
    }
    w->bookmark_ms = now + BOOKMARK_MS;
    watch_arm(w);
}

/* ---- the hub ---- */
static bool hub_change(uint64_t rv, const struct kind *k, const struct object *before,
                       const struct object *after, void *arg)
{
    struct hub *h = arg;
    enum event_type type;

    list_for_each_safe (it, next, &h->live[k->id]) {
        struct watch *w = container_of(it, struct watch, node);
        if (rv <= w->rv)
            continue;
        w->rv = rv;
        if (watch_event(w, before, after, &type))
            watch_send(w, type, rv, before, after);
    }
    cache_reset(h);
    return true;
}

static void hub_end_all(struct hub *h, const char *why)
{
    for (unsigned k = 0; k < KIND_LIMIT; k++)
        list_for_each_safe (it, next, &h->live[k])
            watch_over(container_of(it, struct watch, node), E_GONE, why);
}

static void hub_pump(void *arg)
{
    struct hub *h = arg;
    const struct backend_ops *ops = h->a->ops;
    struct view *v = ops->view(h->a->b);
    struct err e = {0};
    uint64_t rv = ops->view_rv(v);
    bool any = false;

    if (h->pumping) { /* from a request that follows a watch which just ended on its connection */
        ops->view_release(v);
        return;
    }
    h->pumping = true;
    h->view = v;
    for (unsigned k = 0; k < KIND_LIMIT && !any; k++)
        any = !list_empty(&h->live[k]);
    if (any && rv < h->rv)
        hub_end_all(h, "the state was replaced: list again");
    else if (any && rv > h->rv && ops->changes(v, h->rv, hub_change, h, &e))
        hub_end_all(h, "the changes in between are no longer kept: list again");
    h->rv = rv;
    for (unsigned k = 0; k < KIND_LIMIT; k++)
        list_for_each (it, &h->live[k]) {
            struct watch *w = container_of(it, struct watch, node);
            w->rv = w->rv > rv ? w->rv : rv; /* one that began meanwhile may be ahead of v */
        }
    h->view = NULL;
    h->pumping = false;
    ops->view_release(v);
}

struct hub *hub_create(struct api *a)
{
    struct hub *h = mem_new(struct hub);
    struct view *v = a->ops->view(a->b);

    h->a = a;
    for (unsigned k = 0; k < KIND_LIMIT; k++)
        list_init(&h->live[k]);
    h->rv = a->ops->view_rv(v);
    a->ops->view_release(v);
    a->ops->subscribe(a->b, hub_pump, h);
    return h;
}

struct hub *hub_destroy(struct hub *h)
{
    if (!h)
        return NULL;
    INV(h->n == 0);
    h->a->ops->subscribe(h->a->b, NULL, NULL);
    cache_reset(h);
    mem_free(h);
    return NULL;
}

uint64_t hub_watches(const struct hub *h)
{
    return h->n;
}

/* ---- coming up to the present ---- */
static bool catch_up_change(uint64_t rv, const struct kind *k, const struct object *before,
                            const struct object *after, void *arg)
{
    struct watch *w = arg;
    enum event_type type;

    if (k != w->kind || w->over || rv <= w->rv)
        return !w->over;
    w->rv = rv;
    if (watch_event(w, before, after, &type))
        watch_send(w, type, rv, before, after);
    cache_reset(w->hub);
    return !w->over;
}

static void watch_live(struct watch *w)
{
    struct hub *h = w->hub;
    const struct backend_ops *ops = h->a->ops;
    struct err e = {0};

    hub_pump(h);
    struct view *v = ops->view(h->a->b);
    const struct view *before = h->view;
    h->view = v;
    int code = ops->view_rv(v) > w->rv ? ops->changes(v, w->rv, catch_up_change, w, &e) : 0;
    uint64_t rv = ops->view_rv(v);
    h->view = before;
    ops->view_release(v);
    if (code) {
        watch_over(
            w, E_GONE,
            "too old resource version: the changes since then are no longer kept; list again");
        return;
    }
    if (w->over)
        return;
    if (rv > w->rv)
        w->rv = rv;
    w->first_done = true;
    list_push(&h->live[w->kind->id], &w->node);
}

static bool initial_each(const struct object *o, void *arg)
{
    struct watch *w = arg;

    if (w->out.n >= SLICE_BYTES)
        return false;
    str_copy(w->after_ns, sizeof w->after_ns, o->meta->namespace_);
    str_copy(w->after_name, sizeof w->after_name, o->meta->name);
    w->initial = true;
    if (selector_holds(w->selector, o))
        event_line(w->hub, EV_ADDED, &w->repr, o, 0, &w->out);
    return true;
}

static void initial_slice(struct fair_item *it, const struct err *why);

static void initial_again(void *arg)
{
    struct watch *w = arg;

    w->slice.run = initial_slice;
    if (!w->over)
        fair_again(w->hub->a->fair, w->flow, &w->slice);
}

static void initial_slice(struct fair_item *it, const struct err *why)
{
    struct watch *w = container_of(it, struct watch, slice);

    (void)why; /* what began is not refused */
    if (w->over)
        return;
    const struct view *before = w->hub->view;
    w->hub->view = w->view;
    w->hub->a->ops->scan(w->view, w->kind, w->all_ns ? NULL : w->ns,
                         w->initial ? w->after_ns : NULL, w->initial ? w->after_name : NULL,
                         initial_each, w);
    w->hub->view = before;
    bool more = w->out.n >= SLICE_BYTES;
    if (w->out.n)
        http_chunk(w->rq, w->out.p, w->out.n);
    buf_reset(&w->out);
    if (more) {
        if (http_pending(w->rq) > SLICE_BYTES)
            http_on_drained(w->rq, initial_again, w);
        else
            initial_again(w);
        return;
    }
    w->hub->a->ops->view_release(w->view);
    w->view = NULL;
    buf_fini(&w->out);
    if (w->end_mark)
        bookmark(w, true);
    watch_live(w);
}

/* ---- the request ---- */
static uint64_t watch_seconds(struct call *c)
{
    uint64_t s = 0;

    if (call_u64(call_param(c, "timeoutSeconds"), &s) || !s || s > 3600)
        s = 1800 + loop_random_u64(c->api->cfg.loop) % 1800; /* not all at once */
    return s;
}

static struct watch *watch_make(struct call *c)
{
    struct api *a = c->api;
    struct watch *w = mem_new(struct watch);
    uint64_t now = loop_now_ms(a->cfg.loop);

    list_init(&w->node);
    w->hub = a->hub;
    w->rq = c->rq;
    w->kind = c->kind;
    w->all_ns = !c->ns;
    str_copy(w->ns, sizeof w->ns, c->ns ? c->ns : "");
    w->selector = c->selector;
    c->selector = NULL;
    w->repr = c->repr;
    w->repr.yaml = false;
    w->bookmarks = call_flag(c, "allowWatchBookmarks");
    buf_init(&w->out, SLICE_BYTES + EVENT_MAX_BYTES);
    timer_init(&w->timer, a->cfg.loop, watch_timer, w);
    w->end_ms = now + watch_seconds(c) * 1000;
    w->bookmark_ms = now + BOOKMARK_MS;
    return w;
}

static bool stop_at_once(uint64_t rv, const struct kind *k, const struct object *before,
                         const struct object *after, void *arg)
{
    (void)rv, (void)k, (void)before, (void)after, (void)arg;
    return false;
}

static bool rv_kept(struct call *c, uint64_t rv)
{
    struct err e = {0};

    return rv >= c->api->ops->view_rv(c->view) ||
           !c->api->ops->changes(c->view, rv, stop_at_once, NULL, &e);
}

static void watch_start(struct call *c)
{
    struct api *a = c->api;
    const char *text = call_param(c, "resourceVersion"), *send = call_param(c, "sendInitialEvents");
    bool want_initial = !*text || !strcmp(text, "0");
    uint64_t rv = 0;

    if (*send)
        want_initial = call_flag(c, "sendInitialEvents");
    (void)call_u64(text, &rv);
    if (!want_initial && rv && !rv_kept(c, rv)) {
        call_fail_code(
            c, E_GONE,
            "too old resource version: the changes since then are no longer kept; list again");
        return;
    }
    struct flow *flow = call_lasts(c);
    if (!flow)
        return;
    struct watch *w = watch_make(c);
    w->flow = flow;
    w->hub->n++;
    w->rv = rv;
    w->end_mark = call_flag(c, "sendInitialEvents") && w->bookmarks;
    if (want_initial || !rv)
        w->rv = a->ops->view_rv(c->view);
    if (want_initial)
        w->view = a->ops->view_ref(c->view);
    a->counters.by_class[2]++;
    call_release(c);
    http_chunk_begin(w->rq, 200, "application/json", NULL, watch_closed, w);
    watch_arm(w);
    if (want_initial)
        initial_again(w);
    else
        watch_live(w);
}

void read_watch(struct call *c)
{
    const char *text = call_param(c, "resourceVersion"), *send = call_param(c, "sendInitialEvents");
    uint64_t rv = 0;

    if (hub_watches(c->api->hub) >= c->api->cfg.max_watches)
        call_fail_code(c, E_LIMIT, "the limit of watches is reached");
    else if (*text && call_u64(text, &rv))
        call_fail_code(c, E_SYNTAX, "resourceVersion must be a number");
    else if (*send && call_flag(c, "sendInitialEvents") &&
             strcmp(call_param(c, "resourceVersionMatch"), "NotOlderThan") != 0)
        call_fail_code(c, E_INVALID, "sendInitialEvents needs resourceVersionMatch=NotOlderThan");
    else if (!*text)
        call_fresh(c, 0, watch_start);
    else if (rv > c->api->ops->view_rv(c->view) || c->api->ops->view_rv(c->view) == 0)
        call_fresh(c, rv, watch_start);
    else
        watch_start(c);
}
