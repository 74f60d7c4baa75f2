/* What the watches have told of runs: one record a key, with its Job and its pods. Records are
 * copies of what objects say, for whoever judges; when in doubt they are read again. Must never
 * take an object for ours whose mark does not hold. */
#include "connectors/kubernetes/runs/runs_internal.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#define TURN_MS 200
#define HELD_TURN 64

/* ---- runs ---- */
static void rested(void *arg)
{
    kube_run_touch(arg);
}

static int by_key(const void *a, const void *b)
{
    return run_key_compare(&((const struct kube_run *)a)->key, &((const struct kube_run *)b)->key);
}

static int by_uid(const void *a, const void *b)
{
    return strcmp(((const struct kube_run *)a)->key.uid, ((const struct kube_run *)b)->key.uid);
}

struct kube_run *kube_run_of_uid(const struct kube_runs *r, const char *uid)
{
    struct kube_run wanted;

    str_copy(wanted.key.uid, sizeof wanted.key.uid, uid);
    struct kube_run **found = tfind(&wanted, &r->by_uid, by_uid);
    return found ? *found : NULL;
}

struct kube_run *kube_run_find(const struct kube_runs *r, const struct run_key *k)
{
    const struct kube_run wanted = {.key = *k};
    struct kube_run **found = tfind(&wanted, &r->by_key, by_key);

    return found ? *found : NULL;
}

struct kube_run *kube_run_of(struct kube_runs *r, const struct run_key *k)
{
    struct kube_run *x = kube_run_find(r, k);

    if (x)
        return x;
    x = mem_new(struct kube_run);
    x->r = r;
    x->key = *k;
    if (kube_run_name(k, 1, x->name, NULL) < 0)
        x->name[0] = '\0';
    list_init(&x->pods);
    list_init(&x->dirty);
    list_init(&x->held);
    list_init(&x->kin);
    timer_init(&x->again, r->env.base->env.loop, rested, x);
    list_push(&r->all, &x->link);
    INV(tsearch(x, &r->by_key, by_key));
    struct kube_run **first = tsearch(x, &r->by_uid, by_uid);
    INV(first);
    if (*first != x)
        list_push(&(*first)->kin, &x->kin);
    return x;
}

/* The one that stands for its uid is followed by another of it. */
static void kin_leave(struct kube_run *x)
{
    struct kube_run **first = tfind(x, &x->r->by_uid, by_uid);
    struct kube_run *next =
        list_empty(&x->kin) ? NULL : container_of(x->kin.next, struct kube_run, kin);

    if (first && *first == x) {
        (void)tdelete(x, &x->r->by_uid, by_uid);
        INV(!next || tsearch(next, &x->r->by_uid, by_uid));
    }
    list_remove(&x->kin);
}

/* True when it is another one. */
static bool text_set(char **to, const char *from)
{
    if (strcmp(*to ? *to : "", from) == 0)
        return false;
    mem_free(*to);
    *to = *from ? mem_strdup(from) : NULL;
    return true;
}

static int by_pod_uid(const void *a, const void *b)
{
    return strcmp(((const struct kube_pod *)a)->uid, ((const struct kube_pod *)b)->uid);
}

static void pod_free(struct kube_pod *p)
{
    list_remove(&p->link);
    (void)tdelete(p, &p->run->r->pods_by_uid, by_pod_uid);
    mem_free(p->name);
    mem_free(p->node);
    mem_free(p->gates);
    mem_free(p->terms);
    mem_free(p->held_too);
    mem_free(p->left);
    mem_free(p->program);
    mem_free(p);
}

static void run_free(struct kube_run *x)
{
    while (!list_empty(&x->pods))
        pod_free(container_of(x->pods.next, struct kube_pod, link));
    timer_stop(&x->again);
    list_remove(&x->link);
    list_remove(&x->dirty);
    list_remove(&x->held);
    kin_leave(x);
    (void)tdelete(x, &x->r->by_key, by_key);
    mem_free(x->admitted);
    mem_free(x->nodes);
    mem_free(x->end);
    mem_free(x->trouble);
    mem_free(x->held_too);
    mem_free(x->makes);
    kube_kind_look_end(&x->kind_look);
    mem_free(x);
}

void kube_runs_records_fini(struct kube_runs *r)
{
    while (!list_empty(&r->all))
        run_free(container_of(r->all.next, struct kube_run, link));
}

/* That a run which had been admitted is nowhere any more is kept in mind: it proves nothing. */
static bool is_needed(const struct kube_run *x)
{
    return x->job || !list_empty(&x->pods) || x->wanted || kube_run_awaited(x->r, &x->key) ||
           (x->lost && !x->end);
}

/* ---- turns ---- */
bool kube_runs_ready(const struct kube_runs *r)
{
    return r->jobs_listed && r->pods_listed;
}

void kube_run_touch(struct kube_run *x)
{
    if (list_empty(&x->dirty))
        list_push(&x->r->dirty, &x->dirty);
    timer_start(&x->r->tick, 0);
}

void kube_run_later(struct kube_run *x, uint64_t ms)
{
    uint64_t at = loop_now_ms(x->r->env.base->env.loop) + ms;

    if (!timer_active(&x->again) || at < x->again.due_ms)
        timer_start(&x->again, ms);
}

static void touch_all(struct kube_runs *r)
{
    list_for_each (it, &r->all)
        kube_run_touch(container_of(it, struct kube_run, link));
}

/* What waits for a place goes on where there is one again; whoever asks nothing then makes way. */
static void held_again(struct kube_runs *r)
{
    for (unsigned n = 0; n < HELD_TURN && !kube_steps_full(r) && !list_empty(&r->held); n++)
        kube_run_touch(container_of(list_pop(&r->held), struct kube_run, held));
}

static void step(struct kube_run *x)
{
    if (!kube_steps_full(x->r))
        kube_run_step(x);
    else if (list_empty(&x->held))
        list_push(&x->r->held, &x->held);
}

/* Each record is looked at once: what its callees touch comes in the next turn. */
static void turn(void *arg)
{
    struct kube_runs *r = arg;
    struct list now;

    if (!kube_runs_ready(r))
        return;
    if (!r->env.client(r->env.base)) { /* who hears of it hears of the session first */
        timer_start(&r->tick, TURN_MS);
        return;
    }
    list_init(&now);
    for (struct list *it; (it = list_pop(&r->dirty));)
        list_push(&now, it);
    while (!list_empty(&now)) {
        struct kube_run *x = container_of(list_pop(&now), struct kube_run, dirty);
        struct run_key k = x->key;
        step(x);
        kube_run_tell(x);
        kube_works_look(r, &k);
        x = kube_run_find(r, &k);
        if (x && !is_needed(x))
            run_free(x);
    }
    held_again(r);
}

/* ---- Jobs ---- */
static uint64_t rv_of(const char *text)
{
    return strtoull(text, NULL, 10);
}

/* Of a part its rank is its place in the admission. */
static void pod_name(const struct kube_run *x, struct kube_pod *p)
{
    const char *at = x->admitted ? strstr(x->admitted, p->uid) : NULL;

    p->named = at != NULL;
    if (!at || !p->seen.count)
        return;
    p->seen.rank = 0;
    for (const char *s = x->admitted; s < at; s++)
        p->seen.rank += *s == ' ';
}

static void pods_name(struct kube_run *x)
{
    list_for_each (it, &x->pods)
        pod_name(x, container_of(it, struct kube_pod, link));
}

static void json_set(char **to, const cJSON *list)
{
    char *text = list && cJSON_GetArraySize(list) > 0 ? cJSON_PrintUnformatted(list) : NULL;

    (void)text_set(to, text ? text : "");
    cJSON_free(text);
}

static void held_too_set(char **to, const cJSON *object)
{
    cJSON *others = cJSON_Duplicate(kube_at(object, "metadata.finalizers"), true);

    for (int i = cJSON_GetArraySize(others) - 1; i >= 0; i--) {
        const cJSON *e = cJSON_GetArrayItem(others, i);
        if (cJSON_IsString(e) && strcmp(e->valuestring, KUBE_FINALIZER) == 0)
            cJSON_DeleteItemFromArray(others, i);
    }
    json_set(to, others);
    cJSON_Delete(others);
}

static void job_take(struct kube_run *x, const cJSON *job, const struct kube_mark *m)
{
    const cJSON *suspended = kube_at(job, "spec.suspend");
    bool other = strcmp(x->uid, kube_text(job, "metadata.uid")) != 0, named;
    bool admitted = *kube_annotation(job, KUBE_ADMITTED_ANNOTATION);
    const char *end = kube_end_of(job, x->r->env.base->env.keys);

    if (other) { /* the one of before is gone, with what was said of it */
        x->lost |= x->admitted && !x->end;
        (void)text_set(&x->admitted, "");
        (void)text_set(&x->trouble, "");
        x->made = x->refused = x->queued = x->unmade = false;
        x->lacking = 0;
    }
    if (m->ranks || !x->mark.ranks) /* of a tombstone: what its pods say goes first */
        x->mark = *m;
    x->job = true;
    str_copy(x->name, sizeof x->name, kube_text(job, "metadata.name"));
    str_copy(x->uid, sizeof x->uid, kube_text(job, "metadata.uid"));
    str_copy(x->rv, sizeof x->rv, kube_text(job, "metadata.resourceVersion"));
    x->deleting = kube_deleting(job);
    x->suspended = cJSON_IsTrue(suspended);
    x->foreign |=
        *kube_annotation(kube_at(job, "spec.template"), KUBE_CONTAINERS_ANNOTATION) != '\0';
    x->tombstone = *kube_annotation(job, KUBE_TOMBSTONE_ANNOTATION) != '\0';
    x->failed = kube_condition_is(job, "Failed") || kube_condition_is(job, "FailureTarget") ||
                kube_condition_is(job, "Complete") || kube_condition_is(job, "SuccessCriteriaMet");
    x->made_ms = kube_time_ms(kube_text(job, "metadata.creationTimestamp"));
    x->gone_ms = x->deleting ? kube_time_ms(kube_text(job, "metadata.deletionTimestamp")) : 0;
    held_too_set(&x->held_too, job);
    x->lost |= *kube_annotation(job, KUBE_LOST_ANNOTATION) != '\0';
    x->lost |= x->admitted && !x->end && !admitted;
    if (other && !admitted && !*end) /* nor does one that has admitted nothing deny that it ran */
        x->lost |= kube_has_run(x->r, &x->key);
    named = text_set(&x->admitted, kube_annotation(job, KUBE_ADMITTED_ANNOTATION));
    kube_anchor_take(x, job);
    (void)text_set(&x->nodes, kube_annotation(job, KUBE_NODES_ANNOTATION));
    (void)text_set(&x->end, end);
    if (kube_condition_is(job, "Failed"))
        (void)text_set(&x->trouble, kube_condition_message(job, "Failed"));
    if (other || named)
        pods_name(x);
}

/* Of another namespace while the one that is known is there: there is one of a key. */
static bool is_second(const struct kube_run *x, const cJSON *job, const struct kube_mark *m)
{
    return x->job && (strcmp(x->mark.place, m->place) != 0 ||
                      (strcmp(x->uid, kube_text(job, "metadata.uid")) == 0 &&
                       rv_of(kube_text(job, "metadata.resourceVersion")) < rv_of(x->rv)));
}

struct kube_run *kube_run_job(struct kube_runs *r, const cJSON *job)
{
    struct kube_mark m;
    struct kube_run *x;

    if (!kube_mark_of(job, true, r->env.base->env.keys, &m))
        return NULL;
    x = kube_run_of(r, &m.key);
    if (is_second(x, job, &m))
        return x;
    job_take(x, job, &m);
    kube_run_touch(x);
    return x;
}

void kube_run_gone(struct kube_run *x)
{
    x->lost |= x->job && x->admitted && !x->end;
    x->job = false;
    x->rv[0] = '\0';
    kube_run_touch(x);
}

void kube_run_unmarked(struct kube_runs *r, const cJSON *job)
{
    struct run_key k;
    struct kube_run *x = NULL;

    if (kube_run_named(kube_text(job, "metadata.name"), &k))
        x = kube_run_find(r, &k);
    if (x && x->job && strcmp(x->uid, kube_text(job, "metadata.uid")) == 0 &&
        rv_of(kube_text(job, "metadata.resourceVersion")) >= rv_of(x->rv))
        kube_run_gone(x);
}

void kube_runs_jobs_begin(struct kube_runs *r)
{
    list_for_each (it, &r->all) {
        struct kube_run *x = container_of(it, struct kube_run, link);
        x->listed = false;
        x->rv[0] = '\0'; /* what is listed counts, also where it is of an older state */
    }
}

void kube_runs_job(struct kube_runs *r, enum kube_change change, const cJSON *job)
{
    struct kube_mark m;
    struct kube_run *x;

    if (change == KUBE_IS) {
        x = kube_run_job(r, job);
        if (x)
            x->listed = true;
        else
            kube_run_unmarked(r, job);
        return;
    }
    if (!kube_mark_of(job, true, r->env.base->env.keys, &m))
        return;
    x = kube_run_find(r, &m.key);
    if (x && x->job && strcmp(x->uid, kube_text(job, "metadata.uid")) == 0)
        kube_run_gone(x);
}

static void listed(struct kube_runs *r)
{
    if (kube_runs_ready(r))
        touch_all(r);
    if (kube_runs_ready(r))
        kube_works_look(r, NULL);
}

void kube_runs_jobs_listed(struct kube_runs *r, const char *rv)
{
    (void)rv;
    list_for_each (it, &r->all) {
        struct kube_run *x = container_of(it, struct kube_run, link);
        if (x->job && !x->listed)
            kube_run_gone(x);
    }
    r->jobs_listed = true;
    listed(r);
}

/* ---- pods ---- */
struct kube_pod *kube_pod_find(const struct kube_run *x, const char *uid)
{
    list_for_each (it, &x->pods)
        if (strcmp(container_of(it, struct kube_pod, link)->uid, uid) == 0)
            return container_of(it, struct kube_pod, link);
    return NULL;
}

static void gates_set(struct kube_pod *p, const cJSON *pod)
{
    cJSON *others = cJSON_Duplicate(kube_at(pod, "spec.schedulingGates"), true);

    for (int i = cJSON_GetArraySize(others) - 1; i >= 0; i--)
        if (strcmp(kube_text(cJSON_GetArrayItem(others, i), "name"), KUBE_GATE) == 0)
            cJSON_DeleteItemFromArray(others, i);
    json_set(&p->gates, others);
    cJSON_Delete(others);
}

/* Of a part the Job that stands for what made it. */
static const char *owner_of(const cJSON *pod)
{
    const cJSON *o;

    if (*kube_annotation(pod, KUBE_PART_ANNOTATION))
        return kube_annotation(pod, KUBE_ANCHOR_ANNOTATION);
    cJSON_ArrayForEach(o, kube_at(pod, "metadata.ownerReferences"))
    {
        if (cJSON_IsTrue(kube_at(o, "controller")))
            return kube_text(o, "uid");
    }
    return "";
}

static void pod_take(struct kube_run *x, struct kube_pod *p, const cJSON *pod)
{
    str_copy(p->rv, sizeof p->rv, kube_text(pod, "metadata.resourceVersion"));
    if (*p->answered && rv_of(p->rv) >= rv_of(p->answered)) {
        p->answered[0] = '\0';
        p->again_ms = 0;
    }
    str_copy(p->owner, sizeof p->owner, owner_of(pod));
    (void)text_set(&p->name, kube_text(pod, "metadata.name"));
    mem_free(p->node);
    p->node = mem_strdup(kube_text(pod, "spec.nodeName"));
    kube_pod_read(pod, &p->seen);
    x->foreign |= *kube_annotation(pod, KUBE_CONTAINERS_ANNOTATION) != '\0';
    p->ran |= p->seen.is == POD_RUNS || p->seen.is == POD_SILENT;
    if (p->ran && p->seen.is == POD_NEVER) { /* a kubelet that began anew, and did not take it */
        p->seen.is = POD_LOST;
        p->seen.reason[0] = '\0';
        str_cut(p->seen.message, sizeof p->seen.message, KUBE_RAN_AND_NEVER);
    }
    (void)text_set(&p->left, kube_pod_left(pod));
    (void)text_set(&p->program, kube_annotation(pod, KUBE_CONTAINERS_ANNOTATION));
    if (p->program) { /* it goes into requests: a name of a container, or none */
        p->program[strcspn(p->program, ",")] = '\0';
        if (p->program[strspn(p->program, "abcdefghijklmnopqrstuvwxyz0123456789-")])
            (void)text_set(&p->program, "");
    }
    gates_set(p, pod);
    held_too_set(&p->held_too, pod);
    json_set(&p->terms, kube_at(pod, "spec.affinity.nodeAffinity."
                                     "requiredDuringSchedulingIgnoredDuringExecution."
                                     "nodeSelectorTerms"));
    pod_name(x, p);
}

void kube_runs_pods_begin(struct kube_runs *r)
{
    list_for_each (it, &r->all) {
        struct kube_run *x = container_of(it, struct kube_run, link);
        list_for_each (jt, &x->pods)
            container_of(jt, struct kube_pod, link)->listed = false;
    }
}

/* Of whatever run, by its uid: labels and marks may be others than they were. */
static struct kube_pod *pod_known(const struct kube_runs *r, const char *uid)
{
    struct kube_pod wanted;

    str_copy(wanted.uid, sizeof wanted.uid, uid);
    struct kube_pod **found = tfind(&wanted, &r->pods_by_uid, by_pod_uid);
    return found ? *found : NULL;
}

static struct kube_pod *pod_make(struct kube_run *x, const char *uid)
{
    struct kube_pod *p = mem_new(struct kube_pod);

    p->run = x;
    str_copy(p->uid, sizeof p->uid, uid);
    list_push(&x->pods, &p->link);
    INV(tsearch(p, &x->r->pods_by_uid, by_pod_uid));
    return p;
}

bool kube_runs_pod(struct kube_runs *r, enum kube_change change, const cJSON *pod)
{
    const char *uid = kube_text(pod, "metadata.uid");
    struct kube_mark m;
    struct kube_run *x = NULL;
    struct kube_pod *p;

    if (!*uid || strlen(uid) >= KUBE_UID_MAX)
        return false;
    p = pod_known(r, uid);
    if (change == KUBE_IS && kube_mark_of(pod, false, r->env.base->env.keys, &m))
        x = kube_run_of(r, &m.key);
    if (p && p->run != x) { /* gone, or not of that run any more */
        kube_run_touch(p->run);
        pod_free(p);
        p = NULL;
    }
    if (!x || (!p && x->job && strcmp(x->mark.place, m.place) != 0))
        return false;
    if (!x->mark.ranks)
        x->mark = m;
    if (!p)
        p = pod_make(x, uid);
    pod_take(x, p, pod);
    p->listed = true;
    kube_run_touch(x);
    return true;
}

void kube_runs_pods_listed(struct kube_runs *r, const char *rv)
{
    (void)rv;
    list_for_each (it, &r->all) {
        struct kube_run *x = container_of(it, struct kube_run, link);
        list_for_each_safe (jt, tmp, &x->pods) {
            struct kube_pod *p = container_of(jt, struct kube_pod, link);
            if (!p->listed) {
                pod_free(p);
                kube_run_touch(x);
            }
        }
    }
    r->pods_listed = true;
    listed(r);
}

/* ---- its life ---- */
struct kube_runs *kube_runs_create(const struct kube_runs_env *env)
{
    struct kube_runs *r = mem_new(struct kube_runs);

    r->env = *env;
    r->doc = object_ref(env->doc);
    r->env.doc = r->doc;
    list_init(&r->all);
    list_init(&r->dirty);
    list_init(&r->works);
    list_init(&r->steps);
    list_init(&r->held);
    list_init(&r->troubles);
    for (unsigned i = 0; i < KUBE_WORKS_HEADS; i++)
        list_init(&r->works_of[i]);
    timer_init(&r->tick, env->base->env.loop, turn, r);
    return r;
}

void kube_runs_lost(struct kube_runs *r, const char *why)
{
    struct err err;

    r->jobs_listed = r->pods_listed = false;
    kube_steps_drop(r, NULL);
    kube_troubles_drop(r);
    (void)err_set(&err, E_UNKNOWN, "target %.100s: %.200s", r->env.base->target, why);
    while (!list_empty(&r->works)) {
        struct kube_work *w = container_of(r->works.next, struct kube_work, link);
        if (w->why.code)
            kube_work_end(w, OUT_REJECTED, NULL, &w->why);
        else
            kube_work_end(w, OUT_UNKNOWN, NULL, &err);
    }
    list_for_each (it, &r->all) {
        struct kube_run *x = container_of(it, struct kube_run, link);
        x->told = false; /* whoever hears of the next session hears of it anew */
    }
}

struct kube_runs *kube_runs_destroy(struct kube_runs *r)
{
    if (!r)
        return NULL;
    kube_runs_lost(r, "its connector has ended");
    timer_stop(&r->tick);
    kube_runs_records_fini(r);
    (void)object_unref(r->doc);
    mem_free(r);
    return NULL;
}
