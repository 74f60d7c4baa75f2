/* find, stop, quiesce and finalize: each reads the Job of its key, and goes on by what is known of
 * that run. A key that is nowhere is made one that can never start: its name is taken by a Job that
 * runs nothing, whatever order comes later. Must never call absent what may have been admitted. */
#include "connectors/kubernetes/runs/runs_internal.h"

#include "api/base/failpoint.h"

#include <stdio.h>
#include <string.h>

#define ROUNDS_MAX 8
#define GRACE_ROOM_MS 5000 /* for its runner to tell how it ended, ahead of the kubelet's SIGKILL */

static void again(struct kube_work *w)
{
    struct err err;

    if (++w->rounds < ROUNDS_MAX) {
        kube_ask_go(w);
        return;
    }
    (void)err_set(&err, E_UNKNOWN, "target %.100s: the Job %.63s changes as fast as it is read",
                  w->r->env.base->target, w->name);
    kube_work_end(w, OUT_UNKNOWN, NULL, &err);
}

/* What was not answered, or not even sent, is looked at again; what is refused stays so. */
static void unknown(struct kube_work *w, const struct kube_answer *a)
{
    struct err err;

    if (kube_work_throttled(w, a, kube_ask_go)) {
        w->told = false;
        return;
    }
    if (a->out == OUT_UNKNOWN || kube_not_sent(a) || a->status == 409 ||
        a->status == 410) { /* it has changed */
        w->told = false;
        kube_work_again(w, kube_ask_go);
        return;
    }
    (void)err_set(&err, E_UNKNOWN, "%.250s", a->err ? a->err->text : "it was not answered");
    kube_work_end(w, OUT_UNKNOWN, NULL, &err);
}

/* It is nowhere in what was listed whole, and nobody promises that it does not come yet. */
static void unlisted(struct kube_work *w, const char *why)
{
    struct observation o = {.key = w->key, .unlisted = kube_runs_ready(w->r)};
    struct err err;

    o.seen_ms = loop_now_ms(w->r->env.base->env.loop);
    str_cut(o.message, sizeof o.message, why);
    if (w->op != KUBE_QUIESCE) {
        kube_work_end(w, OUT_DONE, w->op == KUBE_FINALIZE ? NULL : &o, NULL);
        return;
    }
    (void)err_set(&err, E_NOTFOUND, "%s", why);
    if (w->call)
        w->call->refused = refusal_of_code(E_NOTFOUND);
    kube_work_end(w, OUT_REJECTED, NULL, &err);
}

/* ---- where its Job is, or would be ---- */
static const struct kube_run *relative(const struct kube_runs *r, const struct run_key *k)
{
    const struct kube_run *first = kube_run_of_uid(r, k->uid);

    if (!first || *first->mark.place)
        return first;
    list_for_each (it, &first->kin) {
        const struct kube_run *x = container_of(it, struct kube_run, kin);
        if (*x->mark.place)
            return x;
    }
    return NULL;
}

/* What the log knows: its namespace. */
static bool by_log(struct kube_work *w)
{
    const struct connector_env *e = &w->r->env.base->env;
    struct run_where where = {.ran = false};
    AUTO_ARENA a = arena_create(0);

    if (!e->where || !e->where(e->arg, &w->key, a, &where) || !where.ns)
        return false;
    str_copy(w->place, sizeof w->place,
             kube_place_of(object_as(w->r->doc, target)->spec, where.ns));
    return true;
}

static bool place_find(struct kube_work *w)
{
    const struct kube_run *x = kube_run_find(w->r, &w->key);
    const struct target_spec *s = object_as(w->r->doc, target)->spec;
    bool known = by_log(w);

    if (x && *x->mark.place) {
        str_copy(w->place, sizeof w->place, x->mark.place);
        return true;
    }
    if (known)
        return true;
    x = relative(w->r, &w->key);
    if (x)
        str_copy(w->place, sizeof w->place, x->mark.place);
    else if (s->connection && *s->connection->namespace_)
        str_copy(w->place, sizeof w->place, s->connection->namespace_);
    return *w->place != '\0';
}

/* ---- a name that is taken for good ---- */
static void tombstone_made(struct kube_step *s, const struct kube_answer *a)
{
    struct kube_work *w = s->work;
    struct kube_run *x = a->out == OUT_DONE ? kube_run_job(w->r, a->body) : NULL;

    if (x)
        kube_ask_look(w);
    else if (strcmp(a->reason, "AlreadyExists") == 0)
        again(w);
    else
        unknown(w, a);
}

/* A Job that can run nothing. */
static cJSON *tombstone_of(const struct kube_mark *m, const char *name, const char *mark, bool lost)
{
    char key[RUN_KEY_MAX];
    AUTO_BUF text;

    buf_init(&text, 8192);
    run_key_print(&m->key, key);
    buf_printf(&text,
               "{\"apiVersion\":\"batch/v1\",\"kind\":\"Job\",\"metadata\":{\"name\":\"%s\","
               "\"namespace\":\"%s\",\"labels\":{\"" KUBE_RUN_LABEL "\":\"%s\","
               "\"app.kubernetes.io/managed-by\":\"hanse\"},\"annotations\":{"
               "\"" KUBE_MARK_ANNOTATION "\":\"%s\",%s\"" KUBE_TOMBSTONE_ANNOTATION
               "\":\"true\"},\"finalizers\":[\"" KUBE_FINALIZER "\"]},\"spec\":{\"suspend\":true,"
               "\"parallelism\":0,\"completions\":1,\"backoffLimit\":0,\"template\":{\"spec\":{"
               "\"restartPolicy\":\"Never\",\"schedulingGates\":[{\"name\":\"" KUBE_GATE "\"}],"
               "\"containers\":[{\"name\":\"" KUBE_CONTAINER "\",\"image\":\"hanse.dev/none\"}]"
               "}}}}",
               name, m->place, key, mark, lost ? "\"" KUBE_LOST_ANNOTATION "\":\"true\"," : "");
    return cJSON_Parse(text.p);
}

static void tombstone_make(struct kube_work *w, bool lost)
{
    const struct connector_env *e = &w->r->env.base->env;
    int64_t time_ms = 0;
    struct kube_mark m = {.key = w->key,
                          .state_rv = e->state_rv ? e->state_rv(e->arg, &time_ms) : 0};
    char mark[KUBE_MARK_MAX];
    struct err err;
    AUTO_ARENA a = arena_create(0);

    str_copy(m.cluster, sizeof m.cluster, e->cluster_uid ? e->cluster_uid(e->arg) : "");
    str_copy(m.place, sizeof m.place, w->place);
    if (kube_mark_make(&m, e->keys, mark, &err) < 0) {
        kube_work_end(w, OUT_UNKNOWN, NULL, &err);
        return;
    }
    cJSON *job = tombstone_of(&m, w->name, mark, lost);
    (void)kube_work_step(w, "POST", kube_path(a, "apis/batch/v1", w->place, "jobs", ""), KUBE_JSON,
                         job, tombstone_made);
    cJSON_Delete(job);
}

/* Of what is deleted each tells; true: that was the last, and nothing is left. */
static bool all_dropped(struct kube_work *w, const struct kube_answer *a)
{
    bool gone = a->out == OUT_DONE || strcmp(a->reason, "NotFound") == 0;

    if (timer_active(&w->pause)) { /* it begins anew then, and asks for this one, too */
        w->told = w->told && gone;
        return false;
    }
    if (!gone)
        unknown(w, a);
    return gone && !w->pending;
}

static void dropped_of_nothing(struct kube_step *s, const struct kube_answer *a)
{
    struct kube_work *w = s->work;

    if (all_dropped(w, a))
        kube_work_end(w, OUT_DONE, NULL, NULL); /* nothing is kept of it */
}

/* Neither this driver nor the log has ever heard of it: then nothing is left of it, and what would
 * be taken away by its name an order may have made by the time that the request comes. */
static bool was_never(const struct kube_work *w, const struct kube_run *x)
{
    return (!x || (!*x->uid && !x->mark.ranks)) && !kube_has_run(w->r, &w->key);
}

/* That it ran, a Job that is nowhere does not deny. */
static void nowhere(struct kube_work *w)
{
    struct kube_run *x = kube_run_find(w->r, &w->key);

    if (x && x->job)
        kube_run_gone(x);
    if (w->op == KUBE_FINALIZE && was_never(w, x)) {
        kube_work_end(w, OUT_DONE, NULL, NULL);
        return;
    }
    if (w->op == KUBE_FINALIZE && (!x || list_empty(&x->pods))) {
        if (!kube_drop_secret(&(struct kube_drop){.r = w->r,
                                                  .work = w,
                                                  .key = &w->key,
                                                  .place = w->place,
                                                  .done = dropped_of_nothing}))
            again(w);
        return;
    }
    x = kube_run_of(w->r, &w->key);
    x->lost |= kube_has_run(w->r, &w->key);
    if (PLANTED("kube.no-tombstone")) {
        const struct observation o = {
            .key = w->key, .state = RUN_ABSENT, .proof = PROOF_NEVER_STARTED};
        kube_work_end(w, OUT_DONE, &o, NULL);
        return;
    }
    tombstone_make(w, x->lost);
}

/* ---- ending ---- */
static void undone(struct kube_step *s, const struct kube_answer *a)
{
    struct kube_work *w = s->work;

    if (a->out == OUT_DONE && strcmp(kube_text(a->body, "kind"), "Job") == 0 &&
        kube_run_job(w->r, a->body)) {
        kube_ask_look(w);
    } else if (a->out == OUT_DONE || strcmp(a->reason, "Conflict") == 0 ||
               strcmp(a->reason, "NotFound") == 0) {
        again(w);
    } else {
        unknown(w, a);
    }
}

/* QUIESCE is done once each of its pods was asked to end. */
static void pods_asked(struct kube_work *w)
{
    if (w->op == KUBE_QUIESCE && w->told && !w->pending)
        kube_work_end(w, OUT_DONE, NULL, NULL);
    else
        w->waits = true;
}

static void asked_to_end(struct kube_step *s, const struct kube_answer *a)
{
    struct kube_work *w = s->work;
    struct kube_run *x = kube_run_find(w->r, &w->key);
    struct kube_pod *p = x ? kube_pod_find(x, s->pod) : NULL;

    if (p)
        p->busy = false;
    bool good = a->out == OUT_DONE || strcmp(a->reason, "NotFound") == 0;
    if (timer_active(&w->pause)) { /* another one was not answered: it begins anew then */
        w->told = w->told && good;
        return;
    }
    if (!good)
        unknown(w, a);
    else if (w->op == KUBE_QUIESCE && !w->pending)
        kube_work_end(w, OUT_DONE, NULL, NULL);
}

static void end_go(struct kube_work *w, struct kube_run *x)
{
    struct err err;

    x->stopping = true;
    if (x->job && !x->admitted && !x->deleting && !x->tombstone) {
        if (!kube_run_undo(x, w, undone))
            again(w);
        return;
    }
    if (!w->told) {
        w->told = true;
        if (w->r->env.home && w->op == KUBE_STOP)
            (void)home_runs_stop(w->r->env.home, &w->key, 0, w->grace_ms);
        int n = kube_run_end_pods(x, w, w->grace_ms + GRACE_ROOM_MS, asked_to_end);
        if (n < 0) {
            w->told = false;
            again(w);
            return;
        }
        if (!n && w->op == KUBE_QUIESCE) {
            (void)err_set(&err, E_UNKNOWN, "no pod of it is there that could be told");
            kube_work_end(w, OUT_UNKNOWN, NULL, &err);
            return;
        }
    }
    pods_asked(w);
}

/* ---- what may go once the log has the end ---- */
static void changed(struct kube_step *s, const struct kube_answer *a)
{
    struct kube_work *w = s->work;
    struct kube_run *x = kube_run_find(w->r, &w->key);

    bool gone = strcmp(a->reason, "NotFound") == 0;

    if (a->out == OUT_DONE && strcmp(kube_text(a->body, "kind"), "Job") == 0)
        (void)kube_run_job(w->r, a->body);
    else if (x && (a->out == OUT_DONE || gone))
        kube_run_gone(x);
    if (a->out == OUT_DONE)
        kube_ask_look(w);
    else if (gone)
        again(w);
    else
        unknown(w, a);
}

static void dropped(struct kube_step *s, const struct kube_answer *a)
{
    struct kube_work *w = s->work;
    struct kube_run *x = kube_run_find(w->r, &w->key);

    if (!all_dropped(w, a))
        return;
    if (x)
        x->bare = true;
    kube_ask_look(w);
}

/* Nobody finalizes what has its end by its Job, nor what is lost: an order that came late may have
 * left something beside it. */
static bool bares(struct kube_work *w, struct kube_run *x)
{
    if (!x->job || x->bare || !(x->end || (x->tombstone && x->lost)))
        return false;
    if (w->pending)
        w->waits = true;
    else if (!kube_run_drop_secret(x, w, dropped))
        again(w);
    return true;
}

/* It is gone once that is said of each of its names: until then it is asked again. Where there is
 * no such kind any more, there is none of it. */
static void unmade(struct kube_step *s, const struct kube_answer *a)
{
    struct kube_work *w = s->work;
    struct kube_run *x = kube_run_find(s->r, &s->key);
    bool gone = strcmp(a->reason, "NotFound") == 0;

    w->at += gone;
    if (gone)
        kube_ask_look(w);
    else if (a->out == OUT_DONE)
        kube_work_again(w, kube_ask_go);
    else if (x && x->kind && kube_no_path(a))
        kube_anchor_kind(x, w);
    else
        unknown(w, a);
}

static void end_write(struct kube_work *w, struct kube_run *x, const struct observation *o)
{
    cJSON *body, *meta, *said;
    char mark[KUBE_MARK_MAX];
    AUTO_ARENA a = arena_create(0);
    AUTO_BUF text;
    struct err err;

    buf_init(&text, WIRE_OBSERVATION_MAX);
    if (body_print_json(&schema_observation, o, &text, &err) < 0) {
        kube_work_end(w, OUT_UNKNOWN, NULL, &err);
        return;
    }
    if (!kube_end_mark_make(x->uid, text.p, w->r->env.base->env.keys, mark)) {
        (void)err_set(&err, E_UNKNOWN, "this hub has no keys by which it could mark an end");
        kube_work_end(w, OUT_UNKNOWN, NULL, &err);
        return;
    }
    body = cJSON_CreateObject();
    meta = cJSON_AddObjectToObject(body, "metadata");
    cJSON_AddStringToObject(meta, "uid", x->uid);
    said = cJSON_AddObjectToObject(meta, "annotations");
    cJSON_AddStringToObject(said, KUBE_END_ANNOTATION, text.p);
    cJSON_AddStringToObject(said, KUBE_END_MARK_ANNOTATION, mark);
    (void)kube_work_step(w, "PATCH", kube_path(a, "apis/batch/v1", x->mark.place, "jobs", x->name),
                         KUBE_MERGE, body, changed);
    cJSON_Delete(body);
}

static bool are_held(const struct kube_run *x)
{
    list_for_each (it, &x->pods)
        if (container_of(it, struct kube_pod, link)->seen.held)
            return true;
    return false;
}

/* First what was secret goes; then its end is written down, by which that is known to be gone; then
 * its Job makes no other pods; then they may go. The Job itself stays, deleted and held: its name
 * is taken. */
static void release(struct kube_work *w, struct kube_run *x, const struct observation *o)
{
    struct err err;

    if (w->pending) {
        w->waits = true;
    } else if (!kube_over(o) && !PLANTED("kube.final-ends")) {
        (void)err_set(&err, E_BUSY, "it has not ended");
        if (w->call)
            w->call->refused = refusal_of_code(E_BUSY);
        kube_work_end(w, OUT_REJECTED, NULL, &err);
    } else if (!w->told) {
        w->told = true;
        if (!kube_run_drop_secret(x, w, dropped)) {
            w->told = false;
            again(w);
        }
    } else if (x->job && !x->end) {
        end_write(w, x, o);
    } else if (x->job && x->kind && !x->unmade) {
        int n = kube_anchor_drop(x, w, unmade);
        x->unmade = n == 0;
        if (n < 0)
            again(w);
        else if (n == 0)
            kube_ask_look(w);
    } else if (x->job && !x->deleting && !x->tombstone) {
        if (!kube_run_delete(x, w, changed))
            again(w);
    } else if (are_held(x)) {
        kube_run_release_pods(x, NULL);
        kube_run_later(x, 500);
        w->waits = true;
    } else {
        x->wanted = false;
        kube_run_touch(x);
        kube_work_end(w, OUT_DONE, NULL, NULL);
    }
}

/* ---- from the beginning ---- */
void kube_ask_look(struct kube_work *w)
{
    struct kube_run *x = kube_run_of(w->r, &w->key);
    struct run_workers workers;
    struct observation o;
    AUTO_ARENA a = arena_create(0);

    if (!kube_runs_ready(w->r)) {
        w->waits = true;
        return;
    }
    kube_run_judge(x, a, &o, &workers);
    if (w->op == KUBE_FINALIZE)
        release(w, x, &o);
    else if (w->op == KUBE_FIND && bares(w, x))
        return;
    else if (kube_over(&o) || w->op == KUBE_FIND)
        kube_work_seen(w);
    else if (w->op == KUBE_QUIESCE && w->told && x->admitted)
        pods_asked(w);
    else
        end_go(w, x);
}

/* A Job that does not say that it is ours, though it may have been: it is left alone. But what of
 * the run does say so need not stay. */
static void of_others(struct kube_work *w, const cJSON *job)
{
    struct kube_run *x = kube_run_find(w->r, &w->key);

    kube_run_unmarked(w->r, job);
    if (w->op == KUBE_FINALIZE && x && !list_empty(&x->pods))
        kube_ask_look(w);
    else
        unlisted(w, "a Job of somebody else has the name that this run would have");
}

static void got(struct kube_step *s, const struct kube_answer *a)
{
    struct kube_work *w = s->work;

    if (a->out == OUT_DONE && kube_run_job(w->r, a->body)) {
        kube_ask_look(w);
    } else if (a->out == OUT_DONE) {
        of_others(w, a->body);
    } else if (strcmp(a->reason, "NotFound") == 0) {
        nowhere(w);
    } else {
        unknown(w, a);
    }
}

/* Of an end that the log has, what the watches tell is enough to begin with: what is asked for
 * names the uid of that Job, and is refused of another one. */
static bool is_known(const struct kube_work *w)
{
    const struct kube_run *x = kube_run_find(w->r, &w->key);

    return w->op == KUBE_FINALIZE && !w->rounds && !w->pause_ms && x && x->job &&
           kube_runs_ready(w->r);
}

void kube_ask_go(struct kube_work *w)
{
    struct err err;
    AUTO_ARENA a = arena_create(0);

    if (kube_run_name(&w->key, 1, w->name, &err) < 0) { /* no order of it can ever be made */
        unlisted(w, err.text);
        return;
    }
    if (!place_find(w)) {
        unlisted(w, "neither the log nor the target knows in which namespace it would be");
        return;
    }
    if (is_known(w))
        kube_ask_look(w);
    else
        (void)kube_work_step(w, "GET", kube_path(a, "apis/batch/v1", w->place, "jobs", w->name),
                             NULL, NULL, got);
}
