/* Names that ended runs hold (husks), and when they are let go: once nobody needs the promise, or
 * the Target itself is let go. And the nodes that runs hold. */
#include "connectors/kubernetes/runs/runs_internal.h"

#include <stdio.h>
#include <string.h>

#define LETTING_MAX 16 /* names are let go at once, where nothing else is asked */
#define LETTING_LOOK_MS 20
#define LETTING_ROOM_MS 5000 /* ahead of its deadline: the rest comes with the next one */
/* Of a Target that is let go nothing is ordered any more, and what comes late is never admitted. */
#define LEAVING_OLDER_MS 30000

/* What may have run, and is gone, has no end: whether it is needed the caller says. */
static bool is_husk(const struct kube_run *x)
{
    return kube_run_settled(x) || (x->job && x->tombstone && x->lost && list_empty(&x->pods));
}

/* By the server's clock, whose times are compared with nothing else: while that is not known (0)
 * no name is old. */
static int64_t kept_since(const struct kube_run *x)
{
    return x->gone_ms ? x->gone_ms : x->made_ms;
}

/* Its Job may go, and with it its name is free. An order that is still under way then would have to
 * be older than older_ms: no request lives so long. */
static void husk_deleted(struct kube_step *s, const struct kube_answer *a)
{
    struct kube_run *x = a->out == OUT_DONE && strcmp(kube_text(a->body, "kind"), "Job") == 0
                             ? kube_run_job(s->r, a->body)
                             : NULL;

    if (x && x->deleting && is_husk(x))
        kube_run_let_go(x); /* where that was not answered, the next round of promises comes */
}

static void let_go(struct kube_run *x)
{
    if (x->deleting)
        kube_run_let_go(x);
    else
        (void)kube_run_delete(x, NULL, husk_deleted);
}

/* A few at once, as long as the call lasts: each is asked about right before its name is let go. */
void kube_promises_go(struct kube_work *w)
{
    struct kube_runs *r = w->r;

    while (w->at < w->n_keys && r->asked < LETTING_MAX) {
        struct kube_run *x = kube_run_find(r, &w->keys[w->at++]);
        struct run_promise p;
        if (!x || !is_husk(x))
            continue;
        p = (struct run_promise){.uid = x->key.uid,
                                 .epoch = x->key.epoch,
                                 .cluster = x->mark.cluster,
                                 .rv = x->mark.state_rv};
        if (w->promise(&p, w->judge_arg))
            let_go(x);
    }
    if (w->at == w->n_keys ||
        loop_now_ms(r->env.base->env.loop) + LETTING_ROOM_MS >= w->deadline_ms) {
        kube_work_end(w, OUT_DONE, NULL, NULL);
        return;
    }
    w->next = kube_promises_go;
    timer_start(&w->pause, LETTING_LOOK_MS);
}

void kube_runs_promises(struct kube_runs *r, uint64_t rv, uint64_t older_ms, promise_judge judge,
                        void *arg, struct call *call)
{
    struct kube_work *w = kube_work_begin(r, KUBE_PROMISES, NULL, call, 0);
    int64_t before = kube_runs_wall_ms(r) - (int64_t)older_ms;
    size_t n = 0;

    (void)rv; /* a cluster has no place for it: of an older state nothing is refused */
    w->promise = judge;
    w->judge_arg = arg;
    list_for_each (it, &r->all)
        n++;
    w->keys = mem_alloc((n + 1) * sizeof *w->keys);
    list_for_each (it, &r->all) {
        const struct kube_run *x = container_of(it, struct kube_run, link);
        if (is_husk(x) && kept_since(x) <= before)
            w->keys[w->n_keys++] = x->key;
    }
}

/* By its Job, or by a pod that is there without one. */
static void named(const struct kube_run *x, struct kube_left *ret)
{
    const char *pod = x->job ? NULL : container_of(x->pods.next, struct kube_pod, link)->name;

    ret->kind = x->job ? "job" : "pod";
    str_copy(ret->place, sizeof ret->place, x->mark.place);
    str_cut(ret->name, sizeof ret->name, x->job ? x->name : pod ? pod : "");
}

void kube_runs_leave(struct kube_runs *r, struct kube_left *ret)
{
    int64_t before = kube_runs_wall_ms(r) - LEAVING_OLDER_MS;

    *ret = (struct kube_left){0};
    list_for_each (it, &r->all) {
        struct kube_run *x = container_of(it, struct kube_run, link);
        bool husk = is_husk(x);
        if (!x->job && list_empty(&x->pods))
            continue;
        if (!ret->n || (!husk && !ret->live))
            named(x, ret);
        ret->n++;
        ret->live += !husk;
        if (husk && kept_since(x) <= before && r->asked < LETTING_MAX)
            let_go(x);
    }
}

/* ---- where they are ---- */
static void nodes_each(const char *text, void (*each)(void *arg, const char *node), void *arg)
{
    while (*text) {
        size_t n = strcspn(text, " "), name = strcspn(text, " *");
        char node[256];
        (void)snprintf(node, sizeof node, "%.*s", (int)(name < 255 ? name : 255), text);
        each(arg, node);
        text += n + (text[n] == ' ');
    }
}

void kube_runs_each_node(const struct kube_runs *r, void (*each)(void *arg, const char *node),
                         void *arg)
{
    list_for_each (it, &r->works) {
        const struct kube_work *w = container_of(it, struct kube_work, link);
        if (w->op == KUBE_SUBMIT && w->m.job)
            nodes_each(kube_annotation(w->m.job, KUBE_NODES_ANNOTATION), each, arg);
    }
    list_for_each (it, &r->all) {
        const struct kube_run *x = container_of(it, struct kube_run, link);
        if (x->job && !x->tombstone && !x->end && x->nodes)
            nodes_each(x->nodes, each, arg);
        list_for_each (jt, &x->pods) {
            const struct kube_pod *p = container_of(jt, struct kube_pod, link);
            if (p->node && *p->node && p->seen.is != POD_ENDED && p->seen.is != POD_NEVER)
                each(arg, p->node);
        }
    }
}
