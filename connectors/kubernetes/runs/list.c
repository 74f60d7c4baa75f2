/* What is asked of all runs together. Sweeps: all Jobs of the target that carry a label of ours,
 * page by page, and what the caller wants of each; promises that need not be kept any longer; and
 * why runs have no pods. What has no mark of this cluster's is passed over. */
#include "connectors/kubernetes/runs/runs_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 100
#define PAGE_BYTES ((size_t)32 << 20)
#define UNASKED_MAX 64 /* ends under way that nobody waits for; the next sweep finds the others */
#define SWEEP_GRACE_MS 30000
#define PODS_LATE_MS 2000 /* so long a controller may take before its Events are looked at */
#define EVENTS_AGAIN_MS 10000
#define EVENTS_REST_TIMES 20 /* so many times as long as it took it rests */
#define EVENTS_BUSY_MS 1000
#define EVENTS_PAGE 500
#define EVENTS_BYTES ((size_t)8 << 20)
#define NEXT_MAX 16384

static void page_ask(struct kube_work *w, const char *next);

/* ---- one run ---- */
static size_t holds_of(const struct kube_run *x, struct arena *a, const struct run_hold **ret)
{
    struct run_hold *v;
    size_t n = 0;

    list_for_each (it, &x->pods)
        n++;
    v = arena_array(a, struct run_hold, n + 1);
    n = 0;
    list_for_each (it, &x->pods) { /* which devices they have the kubelet does not say here */
        const struct kube_pod *p = container_of(it, struct kube_pod, link);
        if (*p->node && p->seen.is != POD_ENDED && p->seen.is != POD_NEVER)
            (void)snprintf(v[n++].node, sizeof v->node, "%.120s.%.120s", x->r->env.base->target,
                           p->node);
    }
    *ret = v;
    return n;
}

static void listed_of(struct kube_run *x, struct arena *a, struct run_listed *ret)
{
    struct run_workers workers;

    *ret = (struct run_listed){
        .state_rv = x->mark.state_rv, .since_ms = x->made_ms, .final = kube_run_settled(x)};
    kube_run_judge(x, a, &ret->seen, &workers);
    str_copy(ret->cluster, sizeof ret->cluster, x->mark.cluster);
    str_copy(ret->ns, sizeof ret->ns, x->mark.ns);
    str_copy(ret->name, sizeof ret->name, x->mark.name);
    ret->n_holds = holds_of(x, a, &ret->holds);
}

/* It is this cluster's from now on, which its mark says anew. */
static void claim(struct kube_run *x)
{
    const struct connector_env *e = &x->r->env.base->env;
    const char *own = e->cluster_uid ? e->cluster_uid(e->arg) : "";
    struct kube_mark m = x->mark;
    char mark[KUBE_MARK_MAX];
    struct err err;

    if (!*own || strcmp(own, m.cluster) == 0 || !x->job)
        return;
    str_copy(m.cluster, sizeof m.cluster, own);
    if (kube_mark_make(&m, e->keys, mark, &err) < 0)
        return;
    cJSON *body = cJSON_CreateObject(), *meta = cJSON_AddObjectToObject(body, "metadata");
    cJSON_AddStringToObject(meta, "uid", x->uid);
    cJSON_AddStringToObject(cJSON_AddObjectToObject(meta, "annotations"), KUBE_MARK_ANNOTATION,
                            mark);
    kube_run_patch(x, body);
}

static unsigned unasked(const struct kube_runs *r)
{
    unsigned n = 0;

    list_for_each (it, &r->works)
        n += container_of(it, struct kube_work, link)->call == NULL;
    return n;
}

static void judged(struct kube_work *w, struct kube_run *x)
{
    struct run_key k = x->key;
    struct run_listed l;
    AUTO_ARENA a = arena_create(0);

    if (x->tombstone && list_empty(&x->pods)) /* the driver clears it away by itself */
        return;
    listed_of(x, a, &l);
    enum run_verdict v = w->judge(&l, w->judge_arg);
    x = kube_run_find(w->r, &k);
    if (v == RUN_CLAIMED && x)
        claim(x);
    if (v != RUN_LET_GO || l.final || unasked(w->r) >= UNASKED_MAX)
        return;
    if (kube_over(&l.seen))
        kube_run_unasked(w->r, &k, KUBE_FINALIZE, 0);
    else
        kube_run_unasked(w->r, &k, KUBE_STOP, SWEEP_GRACE_MS);
}

/* ---- all of them ---- */
/* Pods whose Job somebody has taken away are runs, too. */
static void judge_jobless(struct kube_work *w)
{
    list_for_each_safe (it, tmp, &w->r->all) {
        struct kube_run *x = container_of(it, struct kube_run, link);
        if (!x->job && !list_empty(&x->pods))
            judged(w, x);
    }
}

static void page_came(struct kube_step *s, const struct kube_answer *a)
{
    struct kube_work *w = s->work;
    const char *next = kube_text(a->body, "metadata.continue");
    const cJSON *job;
    struct err err;

    if (a->out == OUT_UNKNOWN || kube_not_sent(a) || a->status == 410) {
        kube_work_again(w, kube_list_go);
        return;
    }
    if (a->out != OUT_DONE) {
        if (kube_work_throttled(w, a, kube_list_go))
            return;
        (void)err_set(&err, E_UNKNOWN, "%.250s", a->err->text);
        kube_work_end(w, OUT_UNKNOWN, NULL, &err);
        return;
    }
    cJSON_ArrayForEach(job, kube_at(a->body, "items"))
    {
        struct kube_run *x = kube_run_job(w->r, job);
        if (x)
            judged(w, x);
    }
    if (*next) {
        page_ask(w, next);
        return;
    }
    judge_jobless(w);
    kube_work_end(w, OUT_DONE, NULL, NULL);
}

/* Tokens of pages are of letters that a URL takes, but for these. */
void kube_token_print(const char *token, struct buf *out)
{
    for (; *token; token++) {
        if (strchr("+/=&%#? ", *token))
            buf_printf(out, "%%%02X", (unsigned char)*token);
        else
            buf_char(out, *token);
    }
}

static void page_ask(struct kube_work *w, const char *next)
{
    const struct target_spec *s = object_as(w->r->doc, target)->spec;
    bool one = s->connection && *s->connection->namespace_ &&
               (!s->kubernetes || !s->kubernetes->n_namespaces);
    struct err err;
    AUTO_BUF path;

    buf_init(&path, 65536);
    buf_printf(&path, "/apis/batch/v1%s%s/jobs?labelSelector=hanse.dev%%2Fkey&limit=%d",
               one ? "/namespaces/" : "", one ? s->connection->namespace_ : "", PAGE);
    if (*next)
        buf_str(&path, "&continue=");
    kube_token_print(next, &path);
    if (!path.failed && kube_step(w->r, &(struct kube_step_ask){.work = w,
                                                                .key = &w->key,
                                                                .method = "GET",
                                                                .path = path.p,
                                                                .idempotent = true,
                                                                .answer_max = PAGE_BYTES,
                                                                .done = page_came}))
        return;
    (void)err_set(&err, E_UNKNOWN, "target %.100s: its Jobs cannot be listed",
                  w->r->env.base->target);
    kube_work_end(w, OUT_UNKNOWN, NULL, &err);
}

void kube_list_go(struct kube_work *w)
{
    if (kube_runs_ready(w->r))
        page_ask(w, "");
    else
        w->waits = true;
}

/* ---- what is shown ---- */
static int trouble_of(const struct kube_pod *p)
{
    switch (p->seen.is) {
    case POD_RUNS:
        return p->seen.deleting ? 1 : 4;
    case POD_ENDED:
        return p->seen.exit_code || p->seen.term_signal ? 0 : 5;
    case POD_GATED:
    case POD_STARTS:
        return *p->seen.reason ? 2 : 3;
    case POD_WAITS:
        return 2;
    default:
        return 0;
    }
}

static enum kube_pod_life life_of(const struct kube_pod *p)
{
    switch (p->seen.is) {
    case POD_GATED:
    case POD_WAITS:
    case POD_STARTS:
        return POD_IS_TO_COME;
    case POD_RUNS:
    case POD_SILENT:
        return p->seen.over_alone ? POD_IS_OVER : POD_IS_THERE;
    default:
        return POD_IS_OVER;
    }
}

static const struct kube_run *shown_of(const struct kube_runs *r, const struct run_key *k)
{
    const struct kube_run *newest = NULL;

    if (k->try_)
        return kube_run_find(r, k);
    list_for_each (it, &r->all) {
        const struct kube_run *x = container_of(it, struct kube_run, link);
        if (strcmp(x->key.uid, k->uid) == 0 && x->key.epoch == k->epoch &&
            (!newest || x->key.try_ > newest->key.try_))
            newest = x;
    }
    return newest;
}

bool kube_runs_show(const struct kube_runs *r, const struct run_key *k, struct arena *a,
                    struct kube_run_shown *ret)
{
    const struct kube_run *x = shown_of(r, k);
    struct kube_pod_shown *v;
    size_t n = 0;

    if (!x)
        return false;
    list_for_each (it, &x->pods)
        n++;
    v = arena_array(a, struct kube_pod_shown, n + 1);
    n = 0;
    for (int named = 0; named < 2; named++)
        list_for_each (it, &x->pods) {
            const struct kube_pod *p = container_of(it, struct kube_pod, link);
            if (p->named != (named != 0))
                continue;
            v[n++] = (struct kube_pod_shown){
                .name = arena_strdup(a, p->name ? p->name : ""),
                .uid = arena_strdup(a, p->uid),
                .node = arena_strdup(a, p->node ? p->node : ""),
                .program = arena_strdup(a, p->program ? p->program : KUBE_CONTAINER),
                .rank = p->seen.rank,
                .phase = arena_strdup(a, p->seen.phase),
                .word = arena_strdup(a, p->seen.word),
                .message = arena_strdup(a, p->seen.message),
                .life = life_of(p),
                .trouble = trouble_of(p)};
        }
    *ret = (struct kube_run_shown){.place = arena_strdup(a, x->mark.place),
                                   .job = arena_strdup(a, x->name),
                                   .uid = arena_strdup(a, x->uid),
                                   .pods = v,
                                   .n = n};
    return true;
}

bool kube_runs_foreign(const struct kube_runs *r, const struct run_key *k)
{
    const struct kube_run *x = shown_of(r, k);

    return x && x->foreign;
}

const char *kube_runs_place(const struct kube_runs *r, const char *ns)
{
    return kube_place_of(object_as(r->env.doc, target)->spec, ns);
}

const char *kube_runs_home(const struct kube_runs *r, const char *place)
{
    const struct target_kubernetes *k = object_as(r->env.doc, target)->spec->kubernetes;

    for (uint32_t i = 0; k && i < k->n_namespaces; i++)
        if (strcmp(k->namespaces[i].as, place) == 0)
            return k->namespaces[i].namespace_;
    return place;
}

bool kube_runs_ours(const struct kube_runs *r, const cJSON *object, bool job)
{
    struct kube_mark m;

    return kube_mark_of(object, job, r->env.base->env.keys, &m);
}

/* ---- why runs have no pods ---- */
/* The Events of a namespace that say FailedCreate, looked at once for all runs there that wait: an
 * API server reads all of a namespace's Events for each such question, whatever it is asked to
 * select. One question at a time, and longer pauses where it takes long. */
struct kube_trouble {
    struct list link; /* kube_runs.troubles */
    struct kube_runs *r;
    char place[64];
    bool busy;                   /* at one of them at a time */
    uint64_t began_ms, again_ms; /* it is asked for no sooner */
    struct buf next;             /* its next page; empty: it begins */
};

static struct kube_trouble *namespace_of(struct kube_runs *r, const char *place)
{
    struct kube_trouble *t;

    list_for_each (it, &r->troubles) {
        t = container_of(it, struct kube_trouble, link);
        if (strcmp(t->place, place) == 0)
            return t;
    }
    t = mem_new(struct kube_trouble);
    t->r = r;
    str_copy(t->place, sizeof t->place, place);
    buf_init(&t->next, NEXT_MAX);
    list_push(&r->troubles, &t->link);
    return t;
}

void kube_troubles_drop(struct kube_runs *r)
{
    for (struct list *it; (it = list_pop(&r->troubles));) {
        struct kube_trouble *t = container_of(it, struct kube_trouble, link);
        buf_fini(&t->next);
        mem_free(t);
    }
}

/* "hanse-UID-EPOCH-TRY" of one of ours that is known, and whose Job that is. */
static struct kube_run *event_run(const struct kube_runs *r, const cJSON *event)
{
    const char *name = kube_text(event, "involvedObject.name");
    struct run_key k = {.epoch = 0};
    char copy[KUBE_NAME_MAX], *end;
    struct kube_run *x;

    if (strlen(name) >= sizeof copy || strncmp(name, "hanse-", 6) != 0)
        return NULL;
    str_copy(copy, sizeof copy, name + 6);
    for (int i = 0; i < 2; i++) {
        char *dash = strrchr(copy, '-');
        if (!dash)
            return NULL;
        *(i ? &k.epoch : &k.try_) = strtoll(dash + 1, &end, 10);
        if (*end || end == dash + 1)
            return NULL;
        *dash = '\0';
    }
    str_copy(k.uid, sizeof k.uid, copy);
    x = kube_run_find(r, &k);
    return x && x->job && strcmp(x->uid, kube_text(event, "involvedObject.uid")) == 0 ? x : NULL;
}

/* An Event's count grows, and its message may change: what comes last in time is told. */
static void event_take(const struct kube_runs *r, const cJSON *event)
{
    struct kube_run *x =
        strcmp(kube_text(event, "reason"), "FailedCreate") == 0 ? event_run(r, event) : NULL;
    const char *message = kube_text(event, "message");

    if (!x || x->admitted || !*message || (x->trouble && strcmp(x->trouble, message) == 0))
        return;
    int64_t at = kube_time_ms(kube_text(event, "lastTimestamp"));
    if (x->trouble && at < x->trouble_at)
        return;
    mem_free(x->trouble);
    x->trouble = mem_strdup(message);
    x->trouble_at = at;
    kube_run_touch(x);
}

static struct kube_trouble *busy_one(const struct kube_runs *r)
{
    list_for_each (it, &r->troubles)
        if (container_of(it, struct kube_trouble, link)->busy)
            return container_of(it, struct kube_trouble, link);
    return NULL;
}

static void trouble_rest(struct kube_trouble *t)
{
    uint64_t now = loop_now_ms(t->r->env.base->env.loop);
    uint64_t ms = (now - t->began_ms) * EVENTS_REST_TIMES;

    t->busy = false;
    t->again_ms = now + (ms > EVENTS_AGAIN_MS ? ms : EVENTS_AGAIN_MS);
    buf_reset(&t->next);
}

static void events_ask(struct kube_trouble *t);

static void events_came(struct kube_step *s, const struct kube_answer *a)
{
    struct kube_trouble *t = busy_one(s->r);
    const cJSON *items = a->out == OUT_DONE ? kube_at(a->body, "items") : NULL, *e;

    if (!t)
        return;
    cJSON_ArrayForEach(e, items)
    {
        event_take(t->r, e);
    }
    buf_reset(&t->next);
    kube_token_print(a->out == OUT_DONE ? kube_text(a->body, "metadata.continue") : "", &t->next);
    if (t->next.n && !t->next.failed)
        events_ask(t);
    else
        trouble_rest(t);
}

static void events_ask(struct kube_trouble *t)
{
    const struct run_key nobody = {.epoch = 0};
    AUTO_BUF path;
    AUTO_ARENA a = arena_create(0);

    buf_init(&path, NEXT_MAX + 1024);
    buf_printf(&path,
               "%s?fieldSelector=reason%%3DFailedCreate,involvedObject.kind%%3DJob&limit=%d%s%s",
               kube_path(a, "api/v1", t->place, "events", ""), EVENTS_PAGE,
               t->next.n ? "&continue=" : "", t->next.n ? t->next.p : "");
    t->busy = !path.failed && kube_step(t->r, &(struct kube_step_ask){.key = &nobody,
                                                                      .method = "GET",
                                                                      .path = path.p,
                                                                      .idempotent = true,
                                                                      .answer_max = EVENTS_BYTES,
                                                                      .done = events_came});
    if (!t->busy)
        trouble_rest(t);
}

void kube_trouble_look(struct kube_run *x)
{
    struct kube_runs *r = x->r;
    uint64_t now = loop_now_ms(r->env.base->env.loop);

    if (!x->trouble_ms)
        x->trouble_ms = now + PODS_LATE_MS;
    if (now < x->trouble_ms) {
        kube_run_later(x, x->trouble_ms - now);
        return;
    }
    struct kube_trouble *t = namespace_of(r, x->mark.place);
    uint64_t ms = EVENTS_AGAIN_MS;
    if (now < t->again_ms) {
        ms = t->again_ms - now;
    } else if (busy_one(r)) {
        ms = EVENTS_BUSY_MS;
    } else {
        t->began_ms = now;
        events_ask(t);
    }
    x->trouble_ms = now + ms;
    kube_run_later(x, ms);
}

/* ---- what their Target and their runners say ---- */
void kube_runs_update(struct kube_runs *r, const struct object *doc)
{
    struct object *had = r->doc;

    r->doc = object_ref(doc);
    r->env.doc = r->doc;
    (void)object_unref(had);
}

void kube_runs_told(struct kube_runs *r, const struct run_key *k)
{
    struct kube_run *x = kube_run_find(r, k);

    if (x)
        kube_run_touch(x);
}

const char *kube_runs_repeats(const struct kube_runs *r)
{
    return r->env.cluster ? r->env.cluster(r->env.base) : "";
}
