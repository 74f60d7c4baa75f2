/* One look at what others run on a target, from the question to its answer. Nothing of it goes into
 * the log, and nothing to the target but lists. */
#include "controlplane/leader/adopt/adopt.h"

#include "controlplane/leader/adopt/shadow.h"
#include "controlplane/leader/recover/orphans.h"
#include "controlplane/leader/site/sites.h"

#include <string.h>

#define PAGE_MS 15000   /* for one page, */
#define LOOK_MS 120000  /* and for all of them */
#define ANEW_MAX 3      /* times that its pages expire */
#define SLICE_MS 8      /* a slice of decisions ends with the one that passes it, */
#define SLICE_STEPS 256 /* or where no clock runs, after so many */
#define ANSWER_BYTES (32u << 20)

struct adopt_look {
    struct brain *b;
    char target[256], ns[64];
    size_t limit;
    void (*cb)(void *arg, const char *json, const struct err *err);
    void *arg;
    struct shadow *shadow;
    struct root *root; /* by which it decides; a reference */
    struct shadow_docs docs;
    struct shadow_place place;
    enum { LOOK_JOBS, LOOK_PODS, LOOK_PLACES } step;
    char *after; /* the next page; "": the first */
    uint64_t until_ms;
    unsigned anew;
    bool asking, dead; /* a page is on its way; who asked has been told already */
    struct timer next;
    uint64_t slice_ms; /* the slice under way: when it ends, */
    unsigned steps;    /* and how far it is */
};

/* ---- its end ---- */
static void look_free(struct adopt_look *x)
{
    timer_stop(&x->next);
    (void)root_unref(x->root);
    x->shadow = shadow_destroy(x->shadow);
    mem_free(x->after);
    mem_free(x);
}

static void look_end(struct adopt_look *x, const char *json, const struct err *err)
{
    void (*cb)(void *, const char *, const struct err *) = x->cb;
    void *arg = x->arg;

    x->b->adopts->now = NULL;
    x->dead = true;
    if (!x->asking)
        look_free(x); /* else when that page comes */
    cb(arg, json, err);
}

void adopt_drop(struct brain *b)
{
    struct err err;

    if (!b->adopts->now)
        return;
    (void)err_set(&err, E_UNAVAIL, "this member does not lead any more; ask again");
    look_end(b->adopts->now, NULL, &err);
}

static void look_tell(struct adopt_look *x)
{
    AUTO_BUF b;
    struct err err;

    buf_init(&b, ANSWER_BYTES);
    shadow_tell(x->shadow, x->limit, x->place.now_ms, &b);
    (void)err_set(&err, E_TOOLARGE, "the report has no room in an answer: ask for one namespace");
    look_end(x, b.failed ? NULL : b.p, b.failed ? &err : NULL);
}

/* ---- the state ---- */
/* While pages come, the newest there is; then the one that decisions began with. */
static const struct object *on_get(void *arg, enum kind_id kind, const char *ns, const char *name)
{
    const struct adopt_look *x = arg;

    return root_get(x->root ? x->root : x->b->root, kind, ns, name);
}

/* ---- decisions, in slices ---- */
static bool on_busy(void *arg, const char *node)
{
    const struct adopt_look *x = arg;
    const struct object *o = root_get(x->root, KIND_NODE, "", node);

    return orphan_on_node(x->b, x->target, node) || (o && *object_as(o, node)->spec->machine);
}

static bool on_more(void *arg)
{
    struct adopt_look *x = arg;

    return ++x->steps < SLICE_STEPS && loop_now_ms(x->b->loop) < x->slice_ms;
}

static void slice(struct adopt_look *x)
{
    x->slice_ms = loop_now_ms(x->b->loop) + SLICE_MS;
    x->steps = 0;
    if (shadow_step(x->shadow, &x->place, on_more, x))
        timer_start(&x->next, 0);
    else
        look_tell(x);
}

static void places_begin(struct adopt_look *x)
{
    struct brain *b = x->b;
    struct err err;

    if (!b->pool) {
        (void)err_set(&err, E_UNAVAIL, "this member has only begun to lead; ask again");
        look_end(x, NULL, &err);
        return;
    }
    x->step = LOOK_PLACES;
    x->root = root_ref(b->root);
    x->place = (struct shadow_place){.docs = &x->docs,
                                     .pool = b->pool,
                                     .now_ms = core_time_ms(b->cfg.core),
                                     .log_index = (int64_t)root_index(x->root),
                                     .busy = on_busy,
                                     .arg = x};
    shadow_begin(x->shadow, &x->place);
    x->place.pool = NULL; /* from now on its own copy alone */
    timer_start(&x->next, 0);
}

/* ---- pages ---- */
static void page_ask(struct adopt_look *x);

static void anew(struct adopt_look *x, const struct err *err)
{
    if (x->anew++ == ANEW_MAX) {
        look_end(x, NULL, err);
        return;
    }
    x->shadow = shadow_destroy(x->shadow);
    x->shadow = shadow_create(x->target, x->ns);
    x->step = LOOK_JOBS;
    mem_free(x->after);
    x->after = mem_strdup("");
    timer_start(&x->next, 0);
}

static void page_take(struct adopt_look *x, const struct foreign_page *p)
{
    for (size_t i = 0; i < p->n; i++) {
        if (x->step == LOOK_JOBS)
            shadow_job(x->shadow, &x->docs, &p->v[i]);
        else
            shadow_pod(x->shadow, &x->docs, &p->v[i]);
    }
    mem_free(x->after);
    x->after = mem_strdup(p->next);
    if (!*x->after && x->step == LOOK_PODS)
        places_begin(x);
    else {
        x->step = *x->after ? x->step : LOOK_PODS;
        timer_start(&x->next, 0);
    }
}

static void page_came(void *arg, const struct foreign_page *p, const struct err *err)
{
    struct adopt_look *x = arg;

    x->asking = false;
    if (x->dead)
        look_free(x);
    else if (p)
        page_take(x, p);
    else if (err->code == E_GONE)
        anew(x, err);
    else
        look_end(x, NULL, err);
}

static int can_list(const struct site *t, const char *target, struct err *err)
{
    if (t && t->connector && !t->connector->ops->foreign)
        return err_set(err, E_NOTIMPL,
                       "target %.100s is of type %s: what others run there is told by targets of "
                       "type kubernetes alone",
                       target, t->connector->ops->type);
    if (!t || !t->connector || !t->reachable)
        return err_set(err, E_UNAVAIL, "target %.100s is out of reach: %.120s", target,
                       t ? t->why : "it was removed");
    return 0;
}

static void page_ask(struct adopt_look *x)
{
    const struct site *t = site_find(x->b, x->target);
    uint64_t now = loop_now_ms(x->b->loop), ms = now + PAGE_MS;
    struct err err;
    int rc = can_list(t, x->target, &err);

    if (rc == 0 && now >= x->until_ms)
        rc = err_set(&err, E_TIMEOUT,
                     "target %.100s took longer than %d seconds to list what runs there: ask for "
                     "one namespace",
                     x->target, LOOK_MS / 1000);
    if (rc < 0) {
        look_end(x, NULL, &err);
        return;
    }
    const struct foreign_ask ask = {.what = x->step == LOOK_JOBS ? FOREIGN_JOBS : FOREIGN_PODS,
                                    .ns = x->ns,
                                    .after = x->after,
                                    .deadline_ms = ms < x->until_ms ? ms : x->until_ms};
    x->asking = true;
    t->connector->ops->foreign(t->connector, &ask, page_came, x);
}

static void on_next(void *arg)
{
    struct adopt_look *x = arg;

    if (x->step == LOOK_PLACES)
        slice(x);
    else
        page_ask(x);
}

/* ---- the question ---- */
static int may_look(struct brain *b, const struct adopt_ask *ask, struct err *err)
{
    if (!b->leads)
        return err_set(err, E_UNAVAIL, "this member does not lead");
    if (!root_get(b->root, KIND_TARGET, "", ask->target))
        return err_set(err, E_NOTFOUND, "there is no target \"%.100s\"", ask->target);
    if (b->adopts->now)
        return err_set(err, E_LIMIT,
                       "somebody asks this of target %.100s at the moment: one is "
                       "answered at a time; ask again",
                       b->adopts->now->target);
    if (strlen(ask->ns) >= sizeof b->adopts->now->ns)
        return err_field(err, E_INVALID, "namespace", "is longer than a namespace's name");
    return can_list(site_find(b, ask->target), ask->target, err);
}

void brain_adopt_shadow(struct brain *b, const struct adopt_ask *ask,
                        void (*cb)(void *arg, const char *json, const struct err *err), void *arg)
{
    struct err err;

    if (may_look(b, ask, &err) < 0) {
        cb(arg, NULL, &err);
        return;
    }
    struct adopt_look *x = mem_new(struct adopt_look);
    *x = (struct adopt_look){.b = b,
                             .limit = ask->limit,
                             .cb = cb,
                             .arg = arg,
                             .after = mem_strdup(""),
                             .until_ms = loop_now_ms(b->loop) + LOOK_MS};
    str_copy(x->target, sizeof x->target, ask->target);
    str_copy(x->ns, sizeof x->ns, ask->ns);
    x->docs = (struct shadow_docs){on_get, x};
    x->shadow = shadow_create(x->target, x->ns);
    timer_init(&x->next, b->loop, on_next, x);
    b->adopts->now = x;
    page_ask(x);
}
