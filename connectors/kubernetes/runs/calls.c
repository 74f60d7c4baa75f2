/* Calls about runs: each begins by a fresh callback and ends once, by what its requests have
 * answered, by what the watches tell, or by its deadline. And orders: Secret, Service, Job, in this
 * order, so that a Job which is there lacks nothing. Must never call an order refused whose Job may
 * have been made. */
#include "connectors/kubernetes/runs/runs_internal.h"

#include "api/base/hash.h"

#include <string.h>

#define THROTTLED_MAX 3  /* so often an order that came too fast is sent again */
#define UNASKED_MS 30000 /* what nobody waits for is given up after so long */
#define PAUSE_MIN_MS 200
#define PAUSE_MAX_MS 3000

/* ---- their life ---- */
static const struct list *head_of(const struct kube_runs *r, const struct run_key *k)
{
    return &r->works_of[hash_more(HASH_START, k->uid, strlen(k->uid)) % KUBE_WORKS_HEADS];
}

static void order_go(struct kube_work *w);

static void go(struct kube_work *w)
{
    struct err err;

    if (!w->r->env.client(w->r->env.base)) {
        (void)err_set(&err, w->op == KUBE_SUBMIT ? E_UNAVAIL : E_UNKNOWN, "target %.100s: %.200s",
                      w->r->env.base->target, w->r->env.why(w->r->env.base));
        kube_work_end(w, w->op == KUBE_SUBMIT ? OUT_REJECTED : OUT_UNKNOWN, NULL, &err);
        return;
    }
    if (w->op == KUBE_SUBMIT)
        order_go(w);
    else if (w->op == KUBE_SWEEP)
        kube_list_go(w);
    else if (w->op == KUBE_PROMISES)
        kube_promises_go(w);
    else
        kube_ask_go(w);
}

static void fired(void *arg)
{
    struct kube_work *w = arg;
    uint64_t now = loop_now_ms(w->r->env.base->env.loop);
    struct err err;

    if (w->why.code) {
        kube_work_end(w, OUT_REJECTED, NULL, &w->why);
    } else if (!w->begun) {
        w->begun = true;
        timer_start(&w->timer, w->deadline_ms > now ? w->deadline_ms - now : 0);
        go(w);
    } else {
        (void)err_set(&err, E_UNKNOWN, "target %.100s has not answered in time",
                      w->r->env.base->target);
        kube_work_end(w, OUT_UNKNOWN, NULL, &err);
    }
}

static void rested(void *arg)
{
    struct kube_work *w = arg;

    w->next(w);
}

bool kube_work_throttled(struct kube_work *w, const struct kube_answer *a,
                         void (*next)(struct kube_work *w))
{
    if (a->status != 429 || (w->op == KUBE_SUBMIT && ++w->throttled > THROTTLED_MAX))
        return false;
    w->next = next;
    timer_start(&w->pause, a->retry_after_ms ? a->retry_after_ms : PAUSE_MAX_MS);
    return true;
}

void kube_work_again(struct kube_work *w, void (*next)(struct kube_work *w))
{
    w->next = next;
    w->pause_ms = w->pause_ms ? w->pause_ms * 2 : PAUSE_MIN_MS;
    w->pause_ms = w->pause_ms < PAUSE_MAX_MS ? w->pause_ms : PAUSE_MAX_MS;
    timer_start(&w->pause, w->pause_ms);
}

struct kube_work *kube_work_begin(struct kube_runs *r, enum kube_op op, const struct run_key *k,
                                  struct call *call, uint64_t deadline_ms)
{
    struct kube_work *w = mem_new(struct kube_work);

    w->r = r;
    w->op = op;
    w->call = call;
    w->deadline_ms = call ? call->deadline_ms : deadline_ms;
    if (k)
        w->key = *k;
    timer_init(&w->timer, r->env.base->env.loop, fired, w);
    timer_init(&w->pause, r->env.base->env.loop, rested, w);
    timer_start(&w->timer, 0);
    list_push(&r->works, &w->link);
    list_push((struct list *)(uintptr_t)head_of(r, &w->key), &w->of);
    return w;
}

void kube_work_reject(struct kube_work *w, const struct err *err)
{
    w->why = *err;
    if (w->call)
        w->call->refused = refusal_of_code(err->code);
}

void kube_work_end(struct kube_work *w, enum outcome out, const struct observation *seen,
                   const struct err *err)
{
    struct call *call = w->call;
    struct err why = err ? *err : (struct err){0};
    struct observation o = seen ? *seen : (struct observation){0};
    struct kube_run *x = kube_run_find(w->r, &w->key);

    if (!call && out != OUT_DONE && x)
        kube_run_later(x, UNASKED_MS); /* nobody else comes again */
    kube_steps_drop(w->r, w);
    timer_stop(&w->timer);
    timer_stop(&w->pause);
    list_remove(&w->link);
    list_remove(&w->of);
    kube_manifest_clear(&w->m);
    kube_kind_look_end(&w->kind_look);
    mem_free(w->keys);
    mem_free(w);
    if (call)
        call->done(call, out, seen ? &o : NULL, err ? &why : NULL);
}

void kube_work_failed(struct kube_work *w, const struct kube_answer *a)
{
    if (w->call && a->out == OUT_REJECTED)
        w->call->refused = a->refused;
    kube_work_end(w, a->out == OUT_DONE ? OUT_UNKNOWN : a->out, NULL, a->err);
}

void kube_work_seen(struct kube_work *w)
{
    struct kube_run *x = kube_run_of(w->r, &w->key);
    struct observation o;

    kube_run_answer(x, &o);
    x->wanted = !kube_over(&o);
    kube_run_touch(x);
    kube_work_end(w, OUT_DONE, &o, NULL);
}

bool kube_work_step(struct kube_work *w, const char *method, const char *path, const char *type,
                    const cJSON *body,
                    void (*done)(struct kube_step *s, const struct kube_answer *a))
{
    struct err err;
    bool patch = strcmp(method, "PATCH") == 0;

    if (kube_step(w->r, &(struct kube_step_ask){.work = w,
                                                .key = &w->key,
                                                .method = method,
                                                .path = path,
                                                .type = type,
                                                .body = body,
                                                .as = strcmp(method, "POST") == 0 ? w->m.as : NULL,
                                                .idempotent = !patch,
                                                .done = done}))
        return true;
    (void)err_set(&err, E_UNKNOWN, "target %.100s: %.200s", w->r->env.base->target,
                  w->r->env.why(w->r->env.base));
    kube_work_end(w, OUT_UNKNOWN, NULL, &err);
    return false;
}

static bool may_look(const struct kube_work *w)
{
    return w->waits && w->looked != w->r->looks;
}

static struct kube_work *next_of(struct kube_runs *r, const struct run_key *k)
{
    if (k) {
        list_for_each (it, head_of(r, k)) {
            struct kube_work *w = container_of(it, struct kube_work, of);
            if (run_key_same(&w->key, k) && may_look(w))
                return w;
        }
        return NULL;
    }
    list_for_each (it, &r->works) {
        struct kube_work *w = container_of(it, struct kube_work, link);
        if (may_look(w))
            return w;
    }
    return NULL;
}

/* Each that waits is looked at once; whoever hears of an end may ask for more, or end others. */
void kube_works_look(struct kube_runs *r, const struct run_key *k)
{
    r->looks++;
    for (struct kube_work *w; (w = next_of(r, k));) {
        w->looked = r->looks;
        w->waits = false;
        if (w->op == KUBE_SWEEP)
            kube_list_go(w);
        else
            kube_ask_look(w);
    }
}

bool kube_work_on(const struct kube_runs *r, const struct run_key *k, enum kube_op op)
{
    list_for_each (it, head_of(r, k)) {
        const struct kube_work *w = container_of(it, struct kube_work, of);
        if (w->op == op && run_key_same(&w->key, k))
            return true;
    }
    return false;
}

bool kube_run_awaited(const struct kube_runs *r, const struct run_key *k)
{
    list_for_each (it, head_of(r, k))
        if (run_key_same(&container_of(it, struct kube_work, of)->key, k))
            return true;
    return false;
}

void kube_run_unasked(struct kube_runs *r, const struct run_key *k, enum kube_op op,
                      uint64_t grace_ms)
{
    uint64_t until = loop_now_ms(r->env.base->env.loop) + grace_ms + UNASKED_MS;

    if (!kube_work_on(r, k, op))
        kube_work_begin(r, op, k, NULL, until)->grace_ms = grace_ms;
}

/* ---- orders ---- */
static void job_made(struct kube_step *s, const struct kube_answer *a);
static void job_get(struct kube_work *w);

static bool exists(const struct kube_answer *a)
{
    return strcmp(a->reason, "AlreadyExists") == 0;
}

static void job_send(struct kube_work *w)
{
    AUTO_ARENA a = arena_create(0);

    (void)kube_work_step(w, "POST", kube_path(a, "apis/batch/v1", w->m.ns, "jobs", ""), KUBE_JSON,
                         w->m.job, job_made);
}

/* ---- what was made for an order that is refused ---- */
static void order_refused(struct kube_work *w)
{
    struct kube_run *x = w->by_name ? kube_run_of(w->r, &w->key) : NULL;
    struct observation o;

    if (x)
        x->bare = true;
    if (!w->refusal.code) { /* it has ended long since */
        kube_work_seen(w);
        return;
    }
    if (x)
        kube_run_answer(x, &o);
    if (w->call)
        w->call->refused = w->blamed;
    kube_work_end(w, OUT_REJECTED, x ? &o : NULL, &w->refusal);
}

static void order_undo(struct kube_work *w);

static void undone(struct kube_step *s, const struct kube_answer *a)
{
    struct kube_work *w = s->work;
    bool gone = a->out == OUT_DONE || strcmp(a->reason, "NotFound") == 0 ||
                strcmp(a->reason, "Conflict") == 0; /* its name is another one's */

    if (timer_active(&w->pause))
        return;
    if (!gone && !kube_work_throttled(w, a, order_undo))
        kube_work_again(w, order_undo);
    else if (gone && !w->pending)
        order_refused(w);
}

/* By uid, so that a request which comes late does not take away what another order of the same name
 * has made; by name alone where no order of that name can begin. */
static bool need_drop(struct kube_work *w, const char *kind, const char *uid)
{
    AUTO_ARENA a = arena_create(0);
    cJSON *body = cJSON_CreateObject();

    cJSON_AddStringToObject(body, "apiVersion", "v1");
    cJSON_AddStringToObject(body, "kind", "DeleteOptions");
    if (!w->by_name)
        cJSON_AddStringToObject(cJSON_AddObjectToObject(body, "preconditions"), "uid", uid);
    bool good = (!w->by_name && !*uid) ||
                kube_work_step(w, "DELETE", kube_path(a, "api/v1", w->m.ns, kind, w->m.beside),
                               KUBE_JSON, body, undone);
    cJSON_Delete(body);
    return good;
}

static void order_undo(struct kube_work *w)
{
    if (need_drop(w, "secrets", w->secret_uid) &&
        (!w->m.service || need_drop(w, "services", w->service_uid)) && !w->pending)
        order_refused(w);
}

/* The refusal is told once what was made for it is known to be gone. An order of which that cannot
 * be known is in doubt: whoever finds its name free takes it, and clears up what has it. */
static void order_refuse(struct kube_work *w, const struct err *err, const struct refusal *blamed)
{
    struct err why;

    w->refusal = *err;
    w->blamed = *blamed;
    if (!w->doubt && !(w->inherits && !w->by_name)) {
        order_undo(w);
        return;
    }
    (void)err_set(&why, E_UNKNOWN, "%.250s", err->text);
    kube_work_end(w, OUT_UNKNOWN, NULL, &why);
}

/* It was not sent; what was made before is needed once it can be. */
static bool never_left(struct kube_work *w, const struct kube_answer *a,
                       void (*next)(struct kube_work *w))
{
    bool made = *w->secret_uid || *w->service_uid || w->inherits;

    if (!made || a->out != OUT_REJECTED || a->status || a->err->code != E_UNAVAIL)
        return false;
    kube_work_again(w, next);
    return true;
}

static bool need_made(struct kube_work *w, const struct kube_answer *a, char *uid)
{
    if (a->out == OUT_DONE)
        str_copy(uid, KUBE_UID_MAX, kube_text(a->body, "metadata.uid"));
    w->inherits |= a->out == OUT_UNKNOWN || (exists(a) && !*uid);
    if (a->out == OUT_DONE || exists(a))
        return true;
    if (never_left(w, a, order_go) || kube_work_throttled(w, a, order_go))
        return false;
    if (a->out == OUT_UNKNOWN)
        kube_work_again(w, order_go);
    else
        order_refuse(w, a->err, &a->refused); /* no Job was asked for */
    return false;
}

static void service_made(struct kube_step *s, const struct kube_answer *a)
{
    if (need_made(s->work, a, s->work->service_uid))
        job_send(s->work);
}

/* One after the other: none of them is under way when the next is refused. */
static void secret_made(struct kube_step *s, const struct kube_answer *a)
{
    struct kube_work *w = s->work;
    AUTO_ARENA mem = arena_create(0);

    if (!need_made(w, a, w->secret_uid))
        return;
    if (w->m.service)
        (void)kube_work_step(w, "POST", kube_path(mem, "api/v1", w->m.ns, "services", ""),
                             KUBE_JSON, w->m.service, service_made);
    else
        job_send(w);
}

/* Its name is taken: by this very run, by the promise to refuse it, or by a stranger. */
static void taken(struct kube_step *s, const struct kube_answer *a)
{
    struct kube_work *w = s->work;
    struct kube_run *x = a->out == OUT_DONE ? kube_run_job(w->r, a->body) : NULL;
    struct observation o;
    struct err err;

    if (a->out != OUT_DONE) { /* it is gone, or was not heard */
        struct kube_run *known = kube_run_find(w->r, &w->key);
        if (known && known->job && strcmp(a->reason, "NotFound") == 0)
            kube_run_gone(known);
        if (known && known->lost) { /* it may have started: no other Job is made for it */
            (void)err_set(&err, E_UNKNOWN,
                          "target %.100s: the Job %.63s is gone, and it may have run",
                          w->r->env.base->target, w->m.name);
            kube_work_end(w, OUT_UNKNOWN, NULL, &err);
            return;
        }
        kube_work_again(w, order_go);
        return;
    }
    if (x)
        kube_run_answer(x, &o);
    w->by_name = x && kube_over(&o);
    if (x && o.state == RUN_ENDED && x->end) {
        order_undo(w);
        return;
    }
    if (x && o.state != RUN_ABSENT) {
        kube_work_seen(w);
        return;
    }
    (void)err_set(&err, x ? E_STALE : E_CONFLICT,
                  x ? "target %.100s has promised to start nothing under this key: %.100s"
                    : "target %.100s has a Job of somebody else under the name %.100s",
                  w->r->env.base->target, w->m.name);
    const struct refusal blamed = refusal_of_code(err.code);
    w->doubt = false; /* it has been seen what has its name */
    order_refuse(w, &err, &blamed);
}

static void job_made(struct kube_step *s, const struct kube_answer *a)
{
    struct kube_work *w = s->work;

    if (exists(a)) {
        job_get(w);
        return;
    }
    if (a->out == OUT_DONE && kube_run_job(w->r, a->body)) {
        kube_work_seen(w);
        return;
    }
    if (never_left(w, a, job_send) || kube_work_throttled(w, a, job_send))
        return;
    if (a->out == OUT_REJECTED) { /* an earlier one may have been taken */
        order_refuse(w, a->err, &a->refused);
    } else {
        w->doubt = true;
        kube_work_again(w, job_send);
    }
}

/* What is known to be there needs nothing made for it. */
static bool is_known(const struct kube_work *w)
{
    const struct kube_run *x = kube_run_find(w->r, &w->key);

    return x && x->job && strcmp(x->mark.place, w->m.ns) == 0;
}

static void job_get(struct kube_work *w)
{
    AUTO_ARENA a = arena_create(0);

    (void)kube_work_step(w, "GET", kube_path(a, "apis/batch/v1", w->m.ns, "jobs", w->m.name), NULL,
                         NULL, taken);
}

static void kind_came(struct kube_step *s, const struct kube_answer *a)
{
    struct kube_work *w = s->work;
    const struct manifest_kind *k = w->m.kind;
    bool none = a->status == 404; /* of a group that is not there it says so in plain words */
    struct err err;

    w->served = a->out == OUT_DONE && kube_kind_served(k, a->body);
    if (w->served) {
        order_go(w);
        return;
    }
    if (a->out == OUT_DONE || none) {
        (void)err_field(&err, E_NOTIMPL, "spec.run.manifest",
                        "target %.100s serves no %s of %s/%s: its cluster lacks the controller, "
                        "and one that has it can be named by spec.targets",
                        w->r->env.base->target, k->kind, k->group, k->version);
        const struct refusal blamed = refusal_of_code(err.code);
        order_refuse(w, &err, &blamed);
    } else if (!kube_work_throttled(w, a, order_go)) {
        kube_work_again(w, order_go);
    }
}

static void order_go(struct kube_work *w)
{
    AUTO_ARENA a = arena_create(0);

    struct kube_run *x = kube_run_find(w->r, &w->key);

    if (is_known(w)) {
        job_get(w);
        return;
    }
    if (w->m.kind && !w->served) {
        (void)kube_work_step(w, "GET", kube_kind_path(w->m.kind, a), NULL, NULL, kind_came);
        return;
    }
    if (x)
        x->bare = false;
    (void)kube_work_step(w, "POST", kube_path(a, "api/v1", w->m.ns, "secrets", ""), KUBE_JSON,
                         w->m.secret, secret_made);
}

/* ---- from outside ---- */
static bool is_later(const struct kube_run *x, const struct run_key *k)
{
    return x->job && kube_key_newer(&x->key, k);
}

static int newer_check(const struct kube_runs *r, const struct run_key *k, struct err *err)
{
    const struct kube_run *first = kube_run_of_uid(r, k->uid);
    bool later = first && is_later(first, k);

    if (first)
        list_for_each (it, &first->kin)
            later |= is_later(container_of(it, struct kube_run, kin), k);
    return later ? err_set(err, E_STALE, "target %.100s has heard of a later run of it",
                           r->env.base->target)
                 : 0;
}

void kube_runs_submit(struct kube_runs *r, const struct run_order *o, struct call *call)
{
    struct kube_work *w = kube_work_begin(r, KUBE_SUBMIT, &o->key, call, 0);
    struct err err;
    AUTO_ARENA a = arena_create(0);

    if (newer_check(r, &o->key, &err) < 0 || kube_manifest_make(&r->env, o, a, &w->m, &err) < 0)
        kube_work_reject(w, &err);
}

void kube_runs_find(struct kube_runs *r, const struct run_key *k, struct call *call)
{
    (void)kube_work_begin(r, KUBE_FIND, k, call, 0);
}

void kube_runs_stop(struct kube_runs *r, const struct run_key *k, uint64_t grace_ms,
                    struct call *call)
{
    kube_work_begin(r, KUBE_STOP, k, call, 0)->grace_ms = grace_ms;
}

/* A kubelet sends no other signal than SIGTERM, which a runner takes as the request to stop; one
 * that has called home is told the signal itself. */
void kube_runs_quiesce(struct kube_runs *r, const struct run_key *k, int signo, uint64_t grace_ms,
                       struct call *call)
{
    struct kube_work *w = kube_work_begin(r, KUBE_QUIESCE, k, call, 0);

    w->grace_ms = grace_ms;
    w->told = r->env.home && home_runs_reach(r->env.home, k) &&
              home_runs_stop(r->env.home, k, signo, grace_ms) > 0;
}

void kube_runs_finalize(struct kube_runs *r, const struct run_key *k, struct call *call)
{
    (void)kube_work_begin(r, KUBE_FINALIZE, k, call, 0);
}

void kube_runs_sweep(struct kube_runs *r, run_judge judge, void *arg, struct call *call)
{
    struct kube_work *w = kube_work_begin(r, KUBE_SWEEP, NULL, call, 0);

    w->judge = judge;
    w->judge_arg = arg;
}
