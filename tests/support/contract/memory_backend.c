/* See memory_backend.h. Views are copied whole on each write: plain, and enough for tests. */
#include "tests/support/contract/memory_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct any_kind {
    uint64_t has;
    struct slice unknown;
    struct meta *metadata;
};
struct rows {
    struct object **v;
    size_t n;
};
struct view {
    unsigned refs;
    uint64_t rv;
    struct memory_backend *m;
    struct rows kinds[KIND_LIMIT];
};
struct change {
    uint64_t rv;
    const struct kind *kind;
    struct object *before, *after;
};
struct done { /* what was answered under a key */
    char user[256], key[128], print[64];
    struct api_result result;
    struct err err;
};
struct memory_backend {
    struct backend backend;
    struct loop *loop;
    struct view *now;
    struct change *changes;
    size_t n_changes, keep;
    struct done *done;
    size_t n_done;
    uint64_t next_uid;
    void (*on_view)(void *arg);
    void *on_view_arg;
    bool told;
    unsigned posted;
};

static struct memory_backend *of(struct backend *b)
{
    return (struct memory_backend *)(void *)b;
}

/* ---- views ---- */
static struct view *view_ref(struct view *v)
{
    v->refs++;
    return v;
}
static void view_release(struct view *v)
{
    if (--v->refs)
        return;
    for (unsigned k = 0; k < KIND_LIMIT; k++) {
        for (size_t i = 0; i < v->kinds[k].n; i++)
            (void)object_unref(v->kinds[k].v[i]);
        free(v->kinds[k].v);
    }
    free(v);
}
static struct view *view_copy(const struct view *v)
{
    struct view *c = calloc(1, sizeof *c);

    c->refs = 1;
    c->rv = v->rv;
    c->m = v->m;
    for (unsigned k = 0; k < KIND_LIMIT; k++) {
        c->kinds[k].n = v->kinds[k].n;
        c->kinds[k].v = calloc(v->kinds[k].n + 64, sizeof *c->kinds[k].v);
        for (size_t i = 0; i < v->kinds[k].n; i++)
            c->kinds[k].v[i] = object_ref(v->kinds[k].v[i]);
    }
    return c;
}
static struct view *b_view(struct backend *b)
{
    return view_ref(of(b)->now);
}
static uint64_t b_view_rv(const struct view *v)
{
    return v->rv;
}

static int compare(const struct object *o, const char *ns, const char *name)
{
    int d = strcmp(o->meta->namespace_, ns);
    return d ? d : strcmp(o->meta->name, name);
}
static size_t place(const struct rows *r, const char *ns, const char *name, bool *ret_found)
{
    size_t lo = 0, hi = r->n;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (compare(r->v[mid], ns, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    *ret_found = lo < r->n && !compare(r->v[lo], ns, name);
    return lo;
}
static const struct object *b_get(const struct view *v, const struct kind *k, const char *ns,
                                  const char *name)
{
    bool found;
    size_t i = place(&v->kinds[k->id], ns ? ns : "", name, &found);

    return found ? v->kinds[k->id].v[i] : NULL;
}
static void b_scan(const struct view *v, const struct kind *k, const char *ns, const char *after_ns,
                   const char *after_name, bool (*each)(const struct object *o, void *arg),
                   void *arg)
{
    const struct rows *r = &v->kinds[k->id];
    bool found = false;
    size_t i = after_ns || after_name
                   ? place(r, after_ns ? after_ns : "", after_name ? after_name : "", &found)
                   : 0;

    for (i += found; i < r->n; i++)
        if ((!ns || !strcmp(ns, r->v[i]->meta->namespace_)) && !each(r->v[i], arg))
            return;
}
static uint64_t b_count(const struct view *v, const struct kind *k)
{
    return v->kinds[k->id].n;
}
static int b_changes(const struct view *v, uint64_t since,
                     bool (*each)(uint64_t, const struct kind *, const struct object *,
                                  const struct object *, void *),
                     void *arg, struct err *err)
{
    const struct memory_backend *m = v->m;

    if (since >= v->rv)
        return 0;
    if (!m->n_changes || m->changes[0].rv > since + 1)
        return err_set(err, E_GONE, "no longer kept");
    for (size_t i = 0; i < m->n_changes; i++) {
        const struct change *c = &m->changes[i];
        if (c->rv > since && c->rv <= v->rv && !each(c->rv, c->kind, c->before, c->after, arg))
            return 0;
    }
    return 0;
}
static void b_subscribe(struct backend *b, void (*on_view)(void *), void *arg)
{
    of(b)->on_view = on_view;
    of(b)->on_view_arg = arg;
}

/* ---- answers come later, as everywhere ---- */
struct later {
    struct memory_backend *m;
    void (*fresh)(void *arg, const struct err *err);
    void (*written)(void *arg, const struct api_result *r, const struct err *err);
    void (*operated)(void *arg, const char *json, const struct err *err);
    void *arg;
    struct err err;
    struct api_result result;
    char json[1024];
};
static struct later *later_new(struct memory_backend *m, void *arg)
{
    struct later *l = calloc(1, sizeof *l);

    l->m = m;
    l->arg = arg;
    m->posted++;
    return l;
}
static void later_run(void *p)
{
    struct later *l = p;
    const struct err *e = l->err.code ? &l->err : NULL;

    l->m->posted--;
    if (l->fresh)
        l->fresh(l->arg, e);
    if (l->written)
        l->written(l->arg, &l->result, e);
    if (l->operated)
        l->operated(l->arg, l->json, e);
    if (l->result.view)
        view_release(l->result.view);
    free(l);
}
static void b_fresh(struct backend *b, uint64_t min_rv, uint64_t deadline_ms,
                    void (*cb)(void *arg, const struct err *err), void *arg)
{
    struct later *l = later_new(of(b), arg);

    (void)deadline_ms;
    l->fresh = cb;
    if (min_rv > of(b)->now->rv)
        (void)err_set(&l->err, E_TIMEOUT, "Too large resource version: %llu, current: %llu",
                      (unsigned long long)min_rv, (unsigned long long)of(b)->now->rv);
    loop_post(of(b)->loop, later_run, l);
}
static void tell(void *p)
{
    struct memory_backend *m = p;

    m->posted--;
    m->told = false;
    if (m->on_view)
        m->on_view(m->on_view_arg);
}

/* ---- writing ---- */
static uint64_t bit_of(const struct kind *k, const char *name)
{
    for (unsigned i = 0; i < k->schema->n; i++)
        if (!strcmp(k->schema->fields[i].name, name))
            return (uint64_t)1 << k->schema->fields[i].bit;
    return 0;
}
static void seal(const struct kind *k, struct any_kind *body)
{
    struct secret *s = (struct secret *)(void *)body;

    if (k->id != KIND_SECRET || !s->data.n)
        return;
    s->sealed = s->data;
    s->data = (struct slice){0};
    s->has = (s->has & ~bit_of(k, "data")) | bit_of(k, "sealed");
}
static struct object *stamped(struct memory_backend *m, const struct object *o,
                              const struct object *old, uint64_t rv, int64_t deleted_ms,
                              const int64_t *grace)
{
    struct arena *a = arena_create(0);
    struct any_kind *body = object_edit(o, a);

    if (!old && !*body->metadata->uid)
        body->metadata->uid =
            arena_printf(a, "00000000-0000-4000-8000-%012llx", (unsigned long long)++m->next_uid);
    if (!old)
        body->metadata->creationTimestamp = loop_wall_ms(m->loop) / 1000 * 1000;
    if (deleted_ms)
        body->metadata->deletionTimestamp = deleted_ms;
    if (grace)
        meta_grace_set(body->metadata, *grace);
    body->metadata->resourceVersion = (int64_t)rv;
    seal(o->kind, body);
    struct object *made = object_make(o->kind, body);
    (void)arena_destroy(a);
    return made;
}
static void note(struct change **list, size_t *n, const struct change *c)
{
    *list = realloc(*list, (*n + 1) * sizeof **list);
    (*list)[(*n)++] = (struct change){c->rv, c->kind, c->before ? object_ref(c->before) : NULL,
                                      c->after ? object_ref(c->after) : NULL};
}
static void change_free(struct change *c)
{
    (void)object_unref(c->before);
    (void)object_unref(c->after);
}

struct applying {
    struct memory_backend *m;
    struct view *v;
    struct change *changes;
    size_t n;
    bool changed;
};

static void row_put(struct rows *r, size_t i, bool found, struct object *o)
{
    if (found) {
        (void)object_unref(r->v[i]);
    } else {
        r->v = realloc(r->v, (r->n + 1) * sizeof *r->v);
        memmove(&r->v[i + 1], &r->v[i], (r->n - i) * sizeof *r->v);
        r->n++;
    }
    r->v[i] = o;
}
static void row_del(struct rows *r, size_t i)
{
    (void)object_unref(r->v[i]);
    memmove(&r->v[i], &r->v[i + 1], (r->n - i - 1) * sizeof *r->v);
    r->n--;
}
static void drop(struct applying *a, const struct kind *k, size_t i, const struct object *last)
{
    struct object *gone = stamped(a->m, last, last, a->v->rv + 1, 0, NULL);
    struct change c = {++a->v->rv, k, gone, NULL};

    note(&a->changes, &a->n, &c);
    row_del(&a->v->kinds[k->id], i);
    (void)object_unref(gone);
    a->changed = true;
}
static void put(struct applying *a, const struct kind *k, size_t i, bool found, struct object *o)
{
    struct change c = {++a->v->rv, k, found ? a->v->kinds[k->id].v[i] : NULL, o};

    note(&a->changes, &a->n, &c);
    row_put(&a->v->kinds[k->id], i, found, o);
    a->changed = true;
}
static int apply_op(struct applying *a, const struct api_write_op *op, struct err *err)
{
    const struct kind *k = op->kind;
    struct rows *r = &a->v->kinds[k->id];
    bool found;
    size_t i = place(r, op->ns ? op->ns : "", op->name, &found);
    const struct object *old = found ? r->v[i] : NULL;

    if (op->verb == API_CREATE && found)
        return err_set(err, E_EXISTS, "%s \"%s\" already exists", k->plural, op->name);
    if (op->verb != API_CREATE && !found)
        return err_set(err, E_NOTFOUND, "%s \"%s\" not found", k->plural, op->name);
    if (found && ((op->rv && op->rv != (uint64_t)old->meta->resourceVersion) ||
                  (op->uid && strcmp(op->uid, old->meta->uid) != 0)))
        return err_set(err, E_CONFLICT,
                       "Operation cannot be fulfilled on %s \"%s\": the object has been modified",
                       k->plural, op->name);
    if (op->verb == API_DELETE) {
        if (!old->meta->n_finalizers)
            drop(a, k, i, old);
        else if (!old->meta->deletionTimestamp)
            put(a, k, i, true,
                stamped(a->m, old, old, a->v->rv + 1, loop_wall_ms(a->m->loop) / 1000 * 1000,
                        op->grace_seconds));
        return 0;
    }
    struct object *same =
        found ? stamped(a->m, op->object, old, (uint64_t)old->meta->resourceVersion, 0, NULL)
              : NULL;
    if (same && same->digest == old->digest) {
        (void)object_unref(same);
        return 0;
    }
    (void)object_unref(same);
    struct object *now = stamped(a->m, op->object, old, a->v->rv + 1, 0, NULL);
    if (now->meta->deletionTimestamp && !now->meta->n_finalizers) {
        drop(a, k, i, now);
        (void)object_unref(now);
    } else {
        put(a, k, i, found, now);
    }
    return 0;
}

static void publish(struct memory_backend *m, struct applying *a)
{
    view_release(m->now);
    m->now = view_ref(a->v);
    for (size_t i = 0; i < a->n; i++)
        note(&m->changes, &m->n_changes, &a->changes[i]);
    while (m->n_changes > m->keep) {
        change_free(&m->changes[0]);
        memmove(&m->changes[0], &m->changes[1], --m->n_changes * sizeof *m->changes);
    }
    if (!m->told) {
        m->told = true;
        m->posted++;
        loop_post(m->loop, tell, m);
    }
}
static int write_now(struct memory_backend *m, const struct api_write *w, struct api_result *ret,
                     struct err *err)
{
    struct applying a = {.m = m, .v = view_copy(m->now)};
    int code = 0;

    for (size_t i = 0; i < w->n && !code; i++) {
        code = apply_op(&a, &w->ops[i], err);
        ret->op = i;
    }
    if (!code && !w->dry_run && a.changed)
        publish(m, &a);
    for (size_t i = 0; i < a.n; i++)
        change_free(&a.changes[i]);
    free(a.changes);
    ret->unchanged = !a.changed;
    ret->rv = a.v->rv;
    ret->view = a.v;
    return code;
}
/* What is told under a key for good (backend.h). */
static bool is_final(const struct api_write *w, const struct err *e)
{
    enum err_retry retry = err_info(e->code)->retry;
    bool moved = e->code == E_CONFLICT || e->code == E_NOTFOUND || e->code == E_EXISTS;

    return !e->code ? !w->part
                    : !(w->again && moved) && (retry == RETRY_NEVER || retry == RETRY_AGAIN);
}
static struct done *done_find(struct memory_backend *m, const struct api_write *w)
{
    for (size_t i = 0; i < m->n_done; i++)
        if (!strcmp(m->done[i].key, w->key) && !strcmp(m->done[i].user, w->user))
            return &m->done[i];
    return NULL;
}
static void done_add(struct memory_backend *m, const struct api_write *w,
                     const struct api_result *r, const struct err *e)
{
    m->done = realloc(m->done, (m->n_done + 1) * sizeof *m->done);
    struct done *d = &m->done[m->n_done++];

    *d = (struct done){.result = *r, .err = *e};
    d->result.view = NULL;
    str_copy(d->user, sizeof d->user, w->user);
    str_copy(d->key, sizeof d->key, w->key);
    str_copy(d->print, sizeof d->print, w->fingerprint ? w->fingerprint : "");
}
static void b_write(struct backend *b, const struct api_write *w,
                    void (*cb)(void *arg, const struct api_result *r, const struct err *err),
                    void *arg)
{
    struct memory_backend *m = of(b);
    struct later *l = later_new(m, arg);
    struct done *d = w->key && !w->dry_run ? done_find(m, w) : NULL;

    l->written = cb;
    loop_post(m->loop, later_run, l);
    if (d) {
        l->result = d->result;
        l->result.view = view_ref(m->now);
        l->result.final = l->result.repeated = true;
        l->err = d->err;
        if (strcmp(d->print, w->fingerprint ? w->fingerprint : "") != 0)
            (void)err_field(&l->err, E_INVALID, "Idempotency-Key", "it was used before");
        return;
    }
    if (w->refusal) {
        l->err = *w->refusal;
        l->result = (struct api_result){.rv = m->now->rv, .view = view_ref(m->now)};
    } else {
        (void)write_now(m, w, &l->result, &l->err);
    }
    if (!w->key || w->dry_run)
        return;
    l->result.final = is_final(w, &l->err);
    if (l->result.final)
        done_add(m, w, &l->result, &l->err);
}
void memory_backend_put(struct memory_backend *m, struct object *o)
{
    struct api_write_op op = {.verb = API_CREATE,
                              .kind = o->kind,
                              .ns = o->meta->namespace_,
                              .name = o->meta->name,
                              .object = o};
    struct api_write w = {.user = "", .ops = &op, .n = 1};
    struct api_result r = {0};
    struct err e;

    INV(!write_now(m, &w, &r, &e));
    view_release(r.view);
}
static int b_secret_open(struct backend *b, const struct object *secret, struct buf *ret,
                         struct err *err)
{
    const struct secret *s = object_as(secret, secret);

    (void)b;
    (void)err;
    buf_add(ret, s->sealed.p, s->sealed.n);
    return 0;
}

/* ---- who, and the rest ---- */
static int b_token(struct backend *b, const char *token, struct api_identity *ret, struct err *err)
{
    const char *user = token + 2, *bar;

    (void)b;
    if (strncmp(token, "t|", 2) != 0 || !(bar = strchr(user, '|')))
        return err_set(err, E_UNAUTH,
                       strncmp(token, "expired|", 8) ? "no such token" : "the token has expired");
    (void)snprintf(ret->user, sizeof ret->user, "%.*s", (int)(bar - user), user);
    for (const char *p = bar + 1; *p && *p != '|'; p += strcspn(p, ",|"), p += *p == ',')
        (void)snprintf(ret->groups[ret->n_groups++], sizeof *ret->groups, "%.*s",
                       (int)strcspn(p, ",|"), p);
    if ((bar = strchr(bar + 1, '|')))
        (void)snprintf(ret->audiences[ret->n_audiences++], sizeof *ret->audiences, "%s", bar + 1);
    return 0;
}
static void b_operate(struct backend *b, const struct api_identity *who, const char *op,
                      const char *json,
                      void (*cb)(void *arg, const char *json, const struct err *err), void *arg)
{
    struct later *l = later_new(of(b), arg);

    l->operated = cb;
    if (!strcmp(op, "status") || !strcmp(op, "cost"))
        (void)snprintf(l->json, sizeof l->json, "{\"asked\":\"%s\",\"body\":%.700s}", who->user,
                       json);
    else if (!strcmp(op, "token.create"))
        (void)snprintf(l->json, sizeof l->json,
                       "{\"token\":\"t|bot|\",\"expirationTimestamp\":\"9999-12-31T23:59:59Z\"}");
    else if (!strcmp(op, "members.add"))
        (void)snprintf(l->json, sizeof l->json, "{}");
    else
        (void)err_set(&l->err, E_NOTIMPL, "there is no operation \"%.60s\"", op);
    loop_post(of(b)->loop, later_run, l);
}
struct api_exec_session {
    struct memory_backend *m;
    struct api_stream_sink sink;
    bool closed, over;
    uint64_t from;
};
static void session_free(struct api_exec_session *s)
{
    if (s->closed && s->over)
        free(s);
}
static void session_log(void *p)
{
    struct api_exec_session *s = p;

    s->m->posted--;
    if (!s->closed) {
        static const struct api_log_at at = {.known = true, .epoch = 1, .try_ = 3, .from = 8};
        s->sink.data(1, &"one\ntwo\n"[s->from], (size_t)(8 - s->from), s->sink.arg);
        if (s->sink.at)
            s->sink.at(&at, s->sink.arg);
        s->sink.end(0, NULL, s->sink.arg);
    }
    s->over = true;
    session_free(s);
}
static int b_exec(struct backend *b, const struct api_exec *e, const struct api_stream_sink *sink,
                  struct api_exec_session **ret, struct err *err)
{
    struct api_exec_session *s = calloc(1, sizeof *s);
    (void)err;
    *s = (struct api_exec_session){.m = of(b), .sink = *sink, .over = e->argv, .from = e->from % 9};
    *ret = s;
    s->m->posted += !e->argv;
    if (!e->argv)
        loop_post(s->m->loop, session_log, s);
    return 0;
}
static void b_exec_input(struct api_exec_session *s, const void *p, size_t n, bool eof)
{
    if (n)
        s->sink.data(1, p, n, s->sink.arg); /* echoes */
    if (eof)
        s->sink.end(7, NULL, s->sink.arg);
}
static void b_exec_close(struct api_exec_session *s)
{
    s->closed = true;
    session_free(s);
}
static int64_t b_now(struct backend *b)
{
    return loop_wall_ms(of(b)->loop);
}

static const struct backend_ops ops = {
    .view = b_view,
    .view_ref = view_ref,
    .view_release = view_release,
    .view_rv = b_view_rv,
    .fresh = b_fresh,
    .get = b_get,
    .scan = b_scan,
    .count = b_count,
    .changes = b_changes,
    .subscribe = b_subscribe,
    .write = b_write,
    .secret_open = b_secret_open,
    .token = b_token,
    .exec = b_exec,
    .exec_input = b_exec_input,
    .exec_close = b_exec_close,
    .operate = b_operate,
    .now = b_now,
};

struct memory_backend *memory_backend_create(struct loop *l)
{
    struct memory_backend *m = calloc(1, sizeof *m);

    m->backend.ops = &ops;
    m->loop = l;
    m->keep = 10000;
    m->now = calloc(1, sizeof *m->now);
    m->now->refs = 1;
    m->now->m = m;
    return m;
}
struct memory_backend *memory_backend_destroy(struct memory_backend *m)
{
    if (!m)
        return NULL;
    INV(!m->posted);
    view_release(m->now);
    for (size_t i = 0; i < m->n_changes; i++)
        change_free(&m->changes[i]);
    free(m->changes);
    free(m->done);
    free(m);
    return NULL;
}
struct backend *memory_backend_table(struct memory_backend *m)
{
    return &m->backend;
}
void memory_backend_keep_changes(struct memory_backend *m, size_t n)
{
    m->keep = n;
}
