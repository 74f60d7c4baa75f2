/* Requests about runs that nobody's call makes by itself: the admission of a run whose pods are
 * there, the gates of those that were admitted, the cause of what does not come. Each follows from
 * the state of the objects, so one that was lost is made again; and each names what it was decided
 * by (uid, resourceVersion), so one that comes late does nothing. */
#include "connectors/kubernetes/runs/runs_internal.h"

#include "api/base/failpoint.h"
#include "api/base/log.h"

#include <stdio.h>
#include <string.h>

#define AGAIN_MS 500
#define CONFLICT_MS 50
#define TOLD_MS 10000  /* what was answered and the watch does not tell is asked again after that */
#define GRACE_MS 30000 /* of those that others end, where their template does not say */
#define ASKED_MAX 64   /* a gang's gates are asked for together, whatever it comes to */

/* ---- requests ---- */
static void step_free(struct kube_step *s)
{
    list_remove(&s->link);
    mem_free(s);
}

bool kube_steps_full(const struct kube_runs *r)
{
    return r->asked >= ASKED_MAX;
}

static void counted_off(struct kube_step *s)
{
    struct kube_runs *r = s->r;

    if (s->work) {
        s->work->pending--;
        return;
    }
    INV(r->asked);
    r->asked--;
    if (!list_empty(&r->held))
        timer_start(&r->tick, 0);
}

static void step_done(void *arg, const struct kube_answer *a)
{
    struct kube_step *s = arg;

    s->rq = NULL;
    counted_off(s);
    list_remove(&s->link); /* nobody drops it any more */
    if (s->done)
        s->done(s, a);
    step_free(s);
}

const char *kube_path(struct arena *a, const char *group, const char *ns, const char *kind,
                      const char *name)
{
    return arena_printf(a, "/%s/namespaces/%s/%s%s%s", group, ns, kind, *name ? "/" : "", name);
}

static uint64_t until_of(const struct kube_step *s, uint64_t now)
{
    uint64_t until = now + (s->work ? KUBE_ANSWER_MS : KUBE_STEP_MS);

    return s->work && s->work->deadline_ms < until ? s->work->deadline_ms : until;
}

bool kube_step(struct kube_runs *r, const struct kube_step_ask *q)
{
    struct kube_client *c = r->env.client(r->env.base);
    uint64_t now = loop_now_ms(r->env.base->env.loop);
    struct kube_step *s;

    if (!c)
        return false;
    s = mem_new(struct kube_step);
    s->r = r;
    s->work = q->work;
    s->key = *q->key;
    str_copy(s->pod, sizeof s->pod, q->pod ? q->pod : "");
    s->done = q->done;
    list_push(&r->steps, &s->link);
    if (s->work)
        s->work->pending++;
    else
        r->asked++;
    const struct kube_ask ask = {.method = q->method,
                                 .path = q->path,
                                 .type = q->body ? q->type : NULL,
                                 .body = q->body,
                                 .as = q->as,
                                 .idempotent = q->idempotent,
                                 .answer_max = q->answer_max,
                                 .deadline_ms = until_of(s, now),
                                 .done = step_done,
                                 .arg = s};
    s->rq = kube_send(c, &ask);
    return true;
}

/* What they were about is looked at again by whoever comes next. */
static void unbusy(struct kube_step *s)
{
    struct kube_run *x = kube_run_find(s->r, &s->key);
    struct kube_pod *p = x && *s->pod ? kube_pod_find(x, s->pod) : NULL;

    if (p)
        p->busy = false;
    else if (x && !s->work) /* a call's are not what its Job is busy with */
        x->busy = false;
}

void kube_steps_drop(struct kube_runs *r, const struct kube_work *work)
{
    list_for_each_safe (it, tmp, &r->steps) {
        struct kube_step *s = container_of(it, struct kube_step, link);
        if (work && s->work != work)
            continue;
        if (s->rq)
            kube_cancel(s->rq);
        counted_off(s);
        unbusy(s);
        step_free(s);
    }
}

/* ---- admission ---- */
static bool is_candidate(const struct kube_run *x, const struct kube_pod *p)
{
    int64_t last = p->seen.count ? p->seen.base + p->seen.count - 1 : p->seen.rank;

    return p->seen.is == POD_GATED && !p->seen.deleting && p->seen.held &&
           (p->seen.count > 0) == (x->kind != NULL) && last >= 0 && last < x->mark.ranks &&
           strcmp(p->owner, x->uid) == 0;
}

/* Its own, or the first of its part that is free; -1: there is none. */
static int64_t place_of(const struct kube_pod *p, const struct kube_pod *const *by_rank)
{
    int64_t at = p->seen.count ? p->seen.base : p->seen.rank;
    int64_t end = p->seen.count ? p->seen.base + p->seen.count : p->seen.rank + 1;

    while (at < end && by_rank[at])
        at++;
    return at < end ? at : -1;
}

/* One of each rank, by rank; false: they are not all there. */
static bool candidates(const struct kube_run *x, struct buf *out)
{
    const struct kube_pod *by_rank[LIMIT_GANG_MAX] = {NULL};
    int64_t n = 0;

    list_for_each (it, &x->pods) {
        const struct kube_pod *p = container_of(it, struct kube_pod, link);
        int64_t at = is_candidate(x, p) ? place_of(p, by_rank) : -1;
        if (at < 0)
            continue;
        by_rank[at] = p;
        n++;
    }
    for (int64_t i = 0; n == x->mark.ranks && i < n; i++)
        buf_printf(out, "%s%s", i ? " " : "", by_rank[i]->uid);
    return n > 0 && n == x->mark.ranks && !out->failed;
}

static void job_asked(struct kube_step *s, const struct kube_answer *a)
{
    struct kube_run *x = kube_run_find(s->r, &s->key);

    if (!x)
        return;
    x->busy = false;
    if (a->out == OUT_DONE) {
        (void)kube_run_job(s->r, a->body);
        return;
    }
    /* It was changed meanwhile, which the watch tells: if it has not yet, it does soon. */
    uint64_t ms = strcmp(a->reason, "Conflict") == 0 ? CONFLICT_MS : AGAIN_MS;
    x->again_ms = loop_now_ms(s->r->env.base->env.loop) + ms;
    kube_run_later(x, ms);
}

static cJSON *object_in(cJSON *o, const char *name)
{
    return cJSON_AddObjectToObject(o, name);
}

/* A patch of what was read: of this uid, at this version. */
static cJSON *patch_of(const char *uid, const char *rv, cJSON **ret_meta)
{
    cJSON *o = cJSON_CreateObject();

    *ret_meta = object_in(o, "metadata");
    cJSON_AddStringToObject(*ret_meta, "uid", uid);
    if (*rv)
        cJSON_AddStringToObject(*ret_meta, "resourceVersion", rv);
    return o;
}

/* Of its Job; takes the body. done NULL: nobody waits. */
static bool job_patch(struct kube_run *x, cJSON *body,
                      void (*done)(struct kube_step *s, const struct kube_answer *a))
{
    AUTO_ARENA a = arena_create(0);
    bool sent =
        kube_step(x->r, &(struct kube_step_ask){
                            .key = &x->key,
                            .method = "PATCH",
                            .path = kube_path(a, "apis/batch/v1", x->mark.place, "jobs", x->name),
                            .type = KUBE_MERGE,
                            .body = body,
                            .done = done});

    cJSON_Delete(body);
    return sent;
}

void kube_run_patch(struct kube_run *x, cJSON *body)
{
    (void)job_patch(x, body, NULL);
}

static void admit(struct kube_run *x)
{
    AUTO_BUF uids;
    cJSON *meta, *body;

    buf_init(&uids, (size_t)LIMIT_GANG_MAX * KUBE_UID_MAX);
    if (!*x->rv || !candidates(x, &uids))
        return;
    body = patch_of(x->uid, x->rv, &meta);
    cJSON_AddStringToObject(object_in(meta, "annotations"), KUBE_ADMITTED_ANNOTATION, uids.p);
    x->busy = job_patch(x, body, job_asked);
}

/* Pods live under its key that this Job has not admitted. Whoever leads next hears of it also where
 * they are gone by then. */
static void lost_say(struct kube_run *x)
{
    cJSON *meta, *body;

    x->lost = true;
    if (!*x->rv)
        return;
    body = patch_of(x->uid, x->rv, &meta);
    cJSON_AddStringToObject(object_in(meta, "annotations"), KUBE_LOST_ANNOTATION, "true");
    x->busy = job_patch(x, body, job_asked);
}

/* ---- gates ---- */
static void pod_asked(struct kube_step *s, const struct kube_answer *a)
{
    struct kube_run *x = kube_run_find(s->r, &s->key);
    struct kube_pod *p = x ? kube_pod_find(x, s->pod) : NULL;

    if (!p)
        return;
    p->busy = false;
    if (a->out == OUT_DONE) { /* the watch tells it: until then nothing is asked again */
        str_copy(p->answered, sizeof p->answered, kube_text(a->body, "metadata.resourceVersion"));
        p->again_ms = loop_now_ms(s->r->env.base->env.loop) + TOLD_MS;
        kube_run_later(x, TOLD_MS);
        return;
    }
    if (a->out == OUT_REJECTED && a->status == 422)
        log_err(LOG_WARN, "kubernetes.gate", a->err);
    uint64_t ms = strcmp(a->reason, "Conflict") == 0 ? CONFLICT_MS : AGAIN_MS;
    p->again_ms = loop_now_ms(s->r->env.base->env.loop) + ms;
    kube_run_later(x, ms);
}

static cJSON *json_or(const char *text, cJSON *(*otherwise)(void))
{
    cJSON *o = text ? cJSON_Parse(text) : NULL;

    return o ? o : otherwise();
}

/* The one node that it is for: a name, which labels of the node do not have to repeat. What others
 * have asked of its node stays: to a gated pod it can only be added. */
static cJSON *terms_of(const struct kube_pod *p, const char *node)
{
    cJSON *list = json_or(p->terms, cJSON_CreateArray), *term;

    if (cJSON_GetArraySize(list) == 0)
        cJSON_AddItemToArray(list, cJSON_CreateObject());
    cJSON_ArrayForEach(term, list)
    {
        cJSON *fields = cJSON_GetObjectItemCaseSensitive(term, "matchFields");
        cJSON *e = cJSON_CreateObject();
        if (!cJSON_IsArray(fields))
            fields = cJSON_AddArrayToObject(term, "matchFields");
        cJSON_AddStringToObject(e, "key", "metadata.name");
        cJSON_AddStringToObject(e, "operator", "In");
        cJSON_AddItemToArray(cJSON_AddArrayToObject(e, "values"), cJSON_CreateString(node));
        cJSON_AddItemToArray(fields, e);
    }
    return list;
}

static void let_in(struct kube_run *x, struct kube_pod *p)
{
    AUTO_ARENA a = arena_create(0);
    const char *node = x->nodes ? kube_nodes_of_rank(x->nodes, p->seen.rank, a) : NULL;
    cJSON *meta, *body, *spec;

    if (!node || !*p->rv)
        return;
    body = patch_of(p->uid, p->rv, &meta);
    if (p->seen.count)
        cJSON_AddStringToObject(object_in(meta, "annotations"), KUBE_RANK_ANNOTATION,
                                arena_printf(a, "%lld", (long long)p->seen.rank));
    spec = object_in(body, "spec");
    cJSON_AddItemToObject(spec, "schedulingGates", json_or(p->gates, cJSON_CreateNull));
    cJSON_AddItemToObject(object_in(object_in(object_in(spec, "affinity"), "nodeAffinity"),
                                    "requiredDuringSchedulingIgnoredDuringExecution"),
                          "nodeSelectorTerms", terms_of(p, node));
    p->busy = kube_step(x->r, &(struct kube_step_ask){
                                  .key = &x->key,
                                  .pod = p->uid,
                                  .method = "PATCH",
                                  .path = kube_path(a, "api/v1", x->mark.place, "pods", p->name),
                                  .type = KUBE_MERGE,
                                  .body = body,
                                  .done = pod_asked});
    cJSON_Delete(body);
}

/* ---- ends ---- */
static cJSON *delete_options(const char *uid, const char *rv, int64_t grace_s)
{
    cJSON *o = cJSON_CreateObject(), *p;

    cJSON_AddStringToObject(o, "apiVersion", "v1");
    cJSON_AddStringToObject(o, "kind", "DeleteOptions");
    if (grace_s >= 0)
        cJSON_AddNumberToObject(o, "gracePeriodSeconds", (double)grace_s);
    else
        cJSON_AddStringToObject(o, "propagationPolicy", "Background");
    p = object_in(o, "preconditions");
    cJSON_AddStringToObject(p, "uid", uid);
    if (*rv)
        cJSON_AddStringToObject(p, "resourceVersion", rv);
    return o;
}

static bool pod_end(struct kube_run *x, struct kube_pod *p, struct kube_work *work,
                    uint64_t grace_ms,
                    void (*done)(struct kube_step *s, const struct kube_answer *a))
{
    AUTO_ARENA a = arena_create(0);
    cJSON *body = delete_options(p->uid, "", (int64_t)((grace_ms + 999) / 1000));

    p->busy = kube_step(x->r, &(struct kube_step_ask){
                                  .work = work,
                                  .key = &x->key,
                                  .pod = p->uid,
                                  .method = "DELETE",
                                  .path = kube_path(a, "api/v1", x->mark.place, "pods", p->name),
                                  .type = KUBE_JSON,
                                  .body = body,
                                  .idempotent = true,
                                  .done = done});
    p->asked_to_end |= p->busy;
    cJSON_Delete(body);
    return p->busy;
}

int kube_run_end_pods(struct kube_run *x, struct kube_work *work, uint64_t grace_ms,
                      void (*done)(struct kube_step *s, const struct kube_answer *a))
{
    int n = 0;

    list_for_each (it, &x->pods) {
        struct kube_pod *p = container_of(it, struct kube_pod, link);
        uint64_t own_ms = p->seen.grace_s > 0 ? (uint64_t)p->seen.grace_s * 1000 : 0;
        if (p->seen.is == POD_ENDED || p->seen.is == POD_NEVER)
            continue;
        if (!pod_end(x, p, work, own_ms > grace_ms ? own_ms : grace_ms, done))
            return -1;
        n++;
    }
    return n;
}

void kube_run_release_pods(struct kube_run *x, struct kube_work *work)
{
    uint64_t now = loop_now_ms(x->r->env.base->env.loop);

    list_for_each (it, &x->pods) {
        struct kube_pod *p = container_of(it, struct kube_pod, link);
        AUTO_ARENA a = arena_create(0);
        cJSON *meta, *body;
        if (!p->seen.held || p->busy || now < p->again_ms || !*p->rv)
            continue;
        if (!p->seen.deleting) {
            (void)pod_end(x, p, work, 0, pod_asked);
            continue;
        }
        body = patch_of(p->uid, p->rv, &meta);
        cJSON_AddItemToObject(meta, "finalizers", json_or(p->held_too, cJSON_CreateNull));
        p->busy = kube_step(
            x->r,
            &(struct kube_step_ask){.work = work,
                                    .key = &x->key,
                                    .pod = p->uid,
                                    .method = "PATCH",
                                    .path = kube_path(a, "api/v1", x->mark.place, "pods", p->name),
                                    .type = KUBE_MERGE,
                                    .body = body,
                                    .done = pod_asked});
        cJSON_Delete(body);
    }
}

static bool job_delete(struct kube_run *x, const char *rv, struct kube_work *work,
                       void (*done)(struct kube_step *s, const struct kube_answer *a))
{
    AUTO_ARENA a = arena_create(0);
    cJSON *body = delete_options(x->uid, rv, -1);
    bool sent =
        kube_step(x->r, &(struct kube_step_ask){
                            .work = work,
                            .key = &x->key,
                            .method = "DELETE",
                            .path = kube_path(a, "apis/batch/v1", x->mark.place, "jobs", x->name),
                            .type = KUBE_JSON,
                            .body = body,
                            .done = done});

    cJSON_Delete(body);
    return sent;
}

bool kube_run_delete(struct kube_run *x, struct kube_work *work,
                     void (*done)(struct kube_step *s, const struct kube_answer *a))
{
    return job_delete(x, "", work, done);
}

bool kube_run_undo(struct kube_run *x, struct kube_work *work,
                   void (*done)(struct kube_step *s, const struct kube_answer *a))
{
    return *x->rv && job_delete(x, x->rv, work, done);
}

void kube_run_let_go(struct kube_run *x)
{
    cJSON *meta, *body;

    if (!*x->rv)
        return;
    body = patch_of(x->uid, x->rv, &meta);
    cJSON_AddItemToObject(meta, "finalizers", json_or(x->held_too, cJSON_CreateNull));
    kube_run_patch(x, body);
}

static bool drop(const struct kube_drop *d, const char *kind, const char *name)
{
    AUTO_ARENA a = arena_create(0);

    if (!*d->place) /* a namespace that is not known */
        return false;
    return kube_step(d->r,
                     &(struct kube_step_ask){.work = d->work,
                                             .key = d->key,
                                             .method = "DELETE",
                                             .path = kube_path(a, "api/v1", d->place, kind, name),
                                             .idempotent = true,
                                             .done = d->done});
}

/* Whichever key of the ring was the newest when it was made. */
bool kube_drop_secret(const struct kube_drop *d)
{
    char name[KUBE_NAME_MAX];

    for (unsigned i = 0; kube_beside_name(&d->r->env.base->env, d->key, d->place, i, name); i++)
        if (!drop(d, "secrets", name) || (d->ranks != 1 && !drop(d, "services", name)))
            return false;
    return true;
}

bool kube_run_drop_secret(struct kube_run *x, struct kube_work *work,
                          void (*done)(struct kube_step *s, const struct kube_answer *a))
{
    return kube_drop_secret(&(struct kube_drop){.r = x->r,
                                                .work = work,
                                                .key = &x->key,
                                                .place = x->mark.place,
                                                .ranks = x->mark.ranks,
                                                .done = done});
}

/* Not every controller takes finalizers from its templates. */
static void hold(struct kube_run *x, struct kube_pod *p)
{
    AUTO_ARENA a = arena_create(0);
    cJSON *meta, *body, *list;

    if (!*p->rv)
        return;
    body = patch_of(p->uid, p->rv, &meta);
    list = json_or(p->held_too, cJSON_CreateArray);
    cJSON_AddItemToArray(list, cJSON_CreateString(KUBE_FINALIZER));
    cJSON_AddItemToObject(meta, "finalizers", list);
    p->busy = kube_step(x->r, &(struct kube_step_ask){
                                  .key = &x->key,
                                  .pod = p->uid,
                                  .method = "PATCH",
                                  .path = kube_path(a, "api/v1", x->mark.place, "pods", p->name),
                                  .type = KUBE_MERGE,
                                  .body = body,
                                  .done = pod_asked});
    cJSON_Delete(body);
}

static void others_end(struct kube_run *x, uint64_t now)
{
    list_for_each (it, &x->pods) {
        struct kube_pod *p = container_of(it, struct kube_pod, link);
        bool over = p->seen.is == POD_ENDED || p->seen.is == POD_NEVER;
        uint64_t grace_ms = p->seen.grace_s > 0 ? (uint64_t)p->seen.grace_s * 1000 : GRACE_MS;
        if (p->named && !over && !p->seen.deleting && !p->busy && now >= p->again_ms)
            (void)pod_end(x, p, NULL, grace_ms, pod_asked);
    }
}

/* ---- what its state asks for ---- */
static bool rests(struct kube_run *x, uint64_t now, uint64_t again_ms)
{
    if (now >= again_ms)
        return false;
    kube_run_later(x, again_ms - now);
    return true;
}

static bool is_wanted(const struct kube_run *x)
{
    return x->wanted || PLANTED("kube.admits-unasked");
}

static void not_admitted(struct kube_run *x)
{
    uint64_t now = loop_now_ms(x->r->env.base->env.loop);

    if (x->lost || x->busy || x->tombstone || rests(x, now, x->again_ms))
        return;
    if (x->deleting)
        return;
    /* It makes no other pods: it never starts, for good. */
    if ((x->failed || x->refused) && x->wanted) {
        x->busy = kube_run_undo(x, NULL, job_asked);
        return;
    }
    if (x->failed || x->refused || x->suspended || x->stopping || !is_wanted(x))
        return;
    if (kube_run_has_strays(x)) {
        lost_say(x);
        return;
    }
    if (!kube_anchor_step(x))
        return;
    admit(x);
    if (!x->busy && x->kind)
        kube_anchor_look(x);
    else if (!x->busy)
        kube_trouble_look(x);
}

void kube_run_step(struct kube_run *x)
{
    uint64_t now = loop_now_ms(x->r->env.base->env.loop);

    if (!kube_runs_ready(x->r) || !x->r->env.client(x->r->env.base) || x->end)
        return;
    if (x->job && !x->admitted)
        not_admitted(x);
    list_for_each (it, &x->pods) {
        struct kube_pod *p = container_of(it, struct kube_pod, link);
        if (p->busy || rests(x, now, p->again_ms))
            continue;
        bool named = p->named || PLANTED("kube.any-pod");
        if (named && p->seen.is == POD_GATED && !p->seen.deleting && x->job && is_wanted(x) &&
            !x->stopping)
            let_in(x, p);
        else if (x->kind && x->job && !x->admitted && is_wanted(x) && p->seen.is == POD_GATED &&
                 p->seen.count && !p->seen.held && !p->seen.deleting)
            hold(x, p);
        else if (p->named && p->seen.over_alone && !p->asked_to_end) /* others live beside it */
            (void)pod_end(x, p, NULL, 1000, pod_asked);
    }
    if (kube_run_decided(x))
        others_end(x, now);
}
