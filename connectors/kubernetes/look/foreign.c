/* What others run in the cluster, a page at a time, for whoever thinks of handing it over: Jobs as
 * they could be submitted, and pods with what they hold. It is read when somebody asks and at no
 * other time; one page is in memory. Must never tell a run of Hanse's: whoever took one for
 * another's would start its work a second time. */
#include "connectors/kubernetes/look/look_internal.h"

#include "api/manifests/manifests.h"

#include <stdio.h>
#include <string.h>

#define JOBS_PAGE 50 /* each is read as a manifest, within one turn of the loop */
#define PODS_PAGE 250
#define PAGE_BYTES (8u << 20)
#define AFTER_MAX 16384
#define URL_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~="

struct kube_foreign {
    struct list link; /* kube_look.foreign */
    struct kube_look *look;
    enum foreign_list what;
    char ns[64];
    char *after;
    uint64_t deadline_ms;
    unsigned limit;
    foreign_cb cb;
    void *arg;
    struct kube_request *rq;
    struct timer told; /* an end that is known comes from a fresh callback */
    struct err why;
};

/* ---- its end ---- */
static void foreign_end(struct kube_foreign *x, const struct foreign_page *p, const struct err *err)
{
    foreign_cb cb = x->cb;
    void *arg = x->arg;

    timer_stop(&x->told);
    list_remove(&x->link);
    if (x->rq)
        kube_cancel(x->rq);
    mem_free(x->after);
    mem_free(x);
    cb(arg, p, err);
}

void kube_foreign_end(struct kube_look *l, const struct err *why)
{
    while (!list_empty(&l->foreign))
        foreign_end(container_of(l->foreign.next, struct kube_foreign, link), NULL, why);
}

static void on_told(void *arg)
{
    struct kube_foreign *x = arg;
    struct err why = x->why;

    foreign_end(x, NULL, &why);
}

/* ---- one of them ---- */
static void item_named(struct foreign_item *i, const char *kind, const cJSON *o)
{
    const cJSON *owner;

    *i = (struct foreign_item){.kind = kind,
                               .ns = kube_text(o, "metadata.namespace"),
                               .name = kube_text(o, "metadata.name"),
                               .uid = kube_text(o, "metadata.uid"),
                               .owner_kind = "",
                               .owner_name = "",
                               .owner_uid = "",
                               .since_ms = kube_time_ms(kube_text(o, "metadata.creationTimestamp")),
                               .manifest = "",
                               .hanse_ns = "",
                               .place = "",
                               .node = ""};
    cJSON_ArrayForEach(owner, kube_at(o, "metadata.ownerReferences"))
    {
        if (!cJSON_IsTrue(kube_at(owner, "controller")))
            continue;
        i->owner_kind = kube_text(owner, "kind");
        i->owner_name = kube_text(owner, "name");
        i->owner_uid = kube_text(owner, "uid");
    }
}

/* A list's items name neither, as the API server prints them. */
static char *manifest_of(const cJSON *job, struct arena *a)
{
    cJSON *bare = manifest_bare(job);
    char *text, *copy;

    cJSON_DeleteItemFromObjectCaseSensitive(bare, "apiVersion");
    cJSON_DeleteItemFromObjectCaseSensitive(bare, "kind");
    cJSON_AddStringToObject(bare, "apiVersion", "batch/v1");
    cJSON_AddStringToObject(bare, "kind", "Job");
    text = cJSON_PrintUnformatted(bare);
    copy = arena_strdup(a, text ? text : "");
    cJSON_free(text);
    cJSON_Delete(bare);
    return copy;
}

static bool job_take(const struct kube_foreign *x, const cJSON *o, struct arena *a,
                     struct foreign_item *ret)
{
    const struct kube_runs *runs = x->look->env.runs;

    if (kube_condition_is(o, "Complete") || kube_condition_is(o, "Failed") || kube_deleting(o) ||
        kube_runs_ours(runs, o, true) || kube_checks_ours(x->look->env.checks, o, true))
        return false;
    item_named(ret, "Job", o);
    ret->suspended = cJSON_IsTrue(kube_at(o, "spec.suspend"));
    ret->manifest = manifest_of(o, a);
    ret->hanse_ns = kube_runs_home(runs, ret->ns);
    ret->place = kube_runs_place(runs, ret->hanse_ns);
    return true;
}

static bool pod_take(const struct kube_foreign *x, const cJSON *o, struct arena *a,
                     struct foreign_item *ret)
{
    const char *phase = kube_text(o, "status.phase"), *began = kube_text(o, "status.startTime");

    if (strcmp(phase, "Succeeded") == 0 || strcmp(phase, "Failed") == 0 ||
        kube_runs_ours(x->look->env.runs, o, false) ||
        kube_checks_ours(x->look->env.checks, o, false))
        return false;
    item_named(ret, "Pod", o);
    if (*began)
        ret->since_ms = kube_time_ms(began);
    ret->runs = strcmp(phase, "Running") == 0;
    kube_nodes_holds(x->look->env.nodes, o, a, ret);
    return true;
}

/* ---- a page ---- */
static void page_ask(struct kube_foreign *x);

static void page_take(struct kube_foreign *x, const cJSON *list)
{
    const cJSON *items = kube_at(list, "items"), *o;
    const char *next = kube_text(list, "metadata.continue");
    AUTO_ARENA a = arena_create(0);
    struct err why;

    if (!cJSON_IsArray(items) || strspn(next, URL_LETTERS) != strlen(next) ||
        strlen(next) > AFTER_MAX) {
        (void)err_set(&why, E_UNKNOWN, "target %.100s: what its server answers is no list",
                      x->look->env.base->target);
        foreign_end(x, NULL, &why);
        return;
    }
    struct foreign_item *v = arena_array(a, struct foreign_item, cJSON_GetArraySize(items) + 1);
    struct foreign_page p = {.v = v, .next = next};
    cJSON_ArrayForEach(o, items)
    {
        p.n += x->what == FOREIGN_JOBS ? job_take(x, o, a, &v[p.n]) : pod_take(x, o, a, &v[p.n]);
    }
    foreign_end(x, &p, NULL);
}

static void page_came(void *arg, const struct kube_answer *a)
{
    struct kube_foreign *x = arg;
    struct err why;

    x->rq = NULL;
    if (a->out == OUT_DONE) {
        page_take(x, a->body);
    } else if (a->err->code == E_TOOLARGE && x->limit > 1) {
        x->limit /= 2;
        page_ask(x);
    } else if (a->status == 410) {
        (void)err_set(&why, E_GONE, "%s", a->err->text);
        foreign_end(x, NULL, &why);
    } else {
        foreign_end(x, NULL, a->err);
    }
}

/* Its answers come from fresh callbacks. */
static void page_ask(struct kube_foreign *x)
{
    static const char *const roots[] = {
        [FOREIGN_JOBS] = "/apis/batch/v1", [FOREIGN_PODS] = "/api/v1"};
    static const char *const lists[] = {
        [FOREIGN_JOBS] = "jobs?",
        [FOREIGN_PODS] = "pods?fieldSelector=status.phase!%3DSucceeded,status.phase!%3DFailed&"};
    struct kube_client *c = x->look->env.client(x->look->env.base);
    AUTO_BUF path = {0};

    if (!c) {
        (void)err_set(&x->why, E_UNAVAIL, "target %.100s: %.200s", x->look->env.base->target,
                      x->look->env.why(x->look->env.base));
        timer_start(&x->told, 0);
        return;
    }
    buf_init(&path, AFTER_MAX + 1024);
    buf_str(&path, roots[x->what]);
    if (*x->ns)
        buf_printf(&path, "/namespaces/%s", x->ns);
    buf_printf(&path, "/%slimit=%u", lists[x->what], x->limit);
    if (*x->after)
        buf_printf(&path, "&continue=%s", x->after);
    INV(!path.failed);
    const struct kube_ask ask = {.method = "GET",
                                 .path = path.p,
                                 .answer_max = PAGE_BYTES,
                                 .deadline_ms = x->deadline_ms,
                                 .done = page_came,
                                 .arg = x};
    x->rq = kube_send(c, &ask);
}

void kube_look_foreign(struct kube_look *l, const struct foreign_ask *ask, foreign_cb cb, void *arg)
{
    struct kube_foreign *x = mem_new(struct kube_foreign);

    *x = (struct kube_foreign){.look = l,
                               .what = ask->what,
                               .after = mem_strdup(ask->after),
                               .deadline_ms = ask->deadline_ms,
                               .limit = ask->what == FOREIGN_JOBS ? JOBS_PAGE : PODS_PAGE,
                               .cb = cb,
                               .arg = arg};
    str_copy(x->ns, sizeof x->ns, ask->ns);
    timer_init(&x->told, l->env.base->env.loop, on_told, x);
    list_push(&l->foreign, &x->link);
    if (kube_runs_ready(l->env.runs) && strspn(ask->ns, URL_LETTERS) == strlen(ask->ns) &&
        strlen(ask->ns) < sizeof x->ns && strspn(ask->after, URL_LETTERS) == strlen(ask->after) &&
        strlen(ask->after) <= AFTER_MAX) {
        page_ask(x);
        return;
    }
    if (kube_runs_ready(l->env.runs))
        (void)err_set(&x->why, E_INVALID, "\"%.100s\" is no namespace of a cluster", ask->ns);
    else
        (void)err_set(&x->why, E_UNAVAIL, "target %.100s: %.200s", l->env.base->target,
                      l->env.client(l->env.base) ? "its pods are being listed"
                                                 : l->env.why(l->env.base));
    timer_start(&x->told, 0);
}
