/* Requests to save and go on: one struct save for each workload that has one which is neither
 * answered nor refused. Like a driver it looks at the root and at what was last seen, and does the
 * one next thing: it commits that the program is about to be asked, asks the target, or commits
 * what came of it. One request is under way at a time; of those that come meanwhile the newest is
 * asked next, and stands for them all.
 *
 * It must never ask for a number that the log does not have as asked, and never say that something
 * was saved before the log has the checkpoint. */
#include "controlplane/leader/save/save.h"

#include "api/base/failpoint.h"
#include "controlplane/leader/context/index.h"
#include "controlplane/leader/site/sites.h"

#include <stdio.h>
#include <string.h>

#define CALL_MS 15000
#define AGAIN_MIN_MS 100
#define AGAIN_MAX_MS 5000

struct save {
    struct brain *brain;
    struct indexed by_uid;
    struct list link;
    char uid[64];
    const struct object *o; /* its Workload as the newest root has it; holds a reference */
    struct run_save seen;   /* the newest of this epoch and try */
    int64_t seen_step;      /* of the newest checkpoint that was told with it */
    int64_t seen_epoch, seen_try;
    bool proposing, calling, dead;
    struct brain_call call;
    int64_t called;     /* number that was asked for last */
    uint64_t session;   /* site.session in which the target took it; 0: in none */
    uint64_t called_in; /* site.session in which it was asked */
    bool refused;       /* the target cannot; why is in these: */
    char reason[64], message[512];
    uint32_t again_ms;
    struct timer again;
};

static void save_tick(struct save *v);

static void again(void *arg)
{
    save_tick(arg);
}

static void save_later(struct save *v)
{
    timer_start(&v->again, v->again_ms);
    v->again_ms = v->again_ms * 2 < AGAIN_MAX_MS ? v->again_ms * 2 : AGAIN_MAX_MS;
}

static const struct workload *workload_of(const struct save *v)
{
    return object_as(v->o, workload);
}

/* ---- what is wanted ---- */
static bool is_open(const struct save_status *s)
{
    return s && s->asked > s->saved && s->asked > s->failed;
}

static bool wanted(const struct object *o)
{
    const struct workload *w = o ? object_as(o, workload) : NULL;
    const struct workload_status *s = w ? w->status : NULL;

    return s && phase_live(s->phase) && !workload_array(w) &&
           (is_open(s->save) || w->spec->saveRequest > (s->save ? s->save->asked : 0));
}

/* ---- the table ---- */
static struct save *save_find(struct brain *b, const char *uid)
{
    struct indexed *e = index_find(&b->saves->by_uid, uid);

    return e ? container_of(e, struct save, by_uid) : NULL;
}

static void save_free(struct save *v)
{
    timer_stop(&v->again);
    v->dead = true;
    if (v->proposing || v->calling)
        return;
    index_remove(&v->brain->saves->by_uid, &v->by_uid);
    list_remove(&v->link);
    (void)object_unref(v->o);
    mem_free(v);
}

static struct save *save_create(struct brain *b, const struct object *o)
{
    struct save *v = mem_new(struct save);

    v->brain = b;
    str_copy(v->uid, sizeof v->uid, o->meta->uid);
    v->by_uid.key = v->uid;
    v->again_ms = AGAIN_MIN_MS;
    timer_init(&v->again, b->loop, again, v);
    index_add(&b->saves->by_uid, &v->by_uid);
    list_push(&b->saves->all, &v->link);
    return v;
}

static int64_t try_of(const struct workload_status *s)
{
    return s->intent ? s->intent->try_ : 0;
}

static void save_take(struct save *v, const struct object *o)
{
    const struct workload_status *s = object_as(o, workload)->status;

    (void)object_unref(v->o);
    v->o = object_ref(o);
    if (v->seen_epoch == s->epoch && v->seen_try == try_of(s))
        return;
    v->seen = (struct run_save){0};
    v->seen_step = -1;
    v->seen_epoch = s->epoch;
    v->seen_try = try_of(s);
    v->called = 0;
    v->session = 0;
    v->refused = false;
}

void save_change(struct brain *b, const struct object *before, const struct object *after)
{
    const struct object *o = after ? after : before;
    struct save *v = o ? save_find(b, o->meta->uid) : NULL;

    if (!v && !wanted(after))
        return;
    if (!wanted(after)) {
        save_free(v);
        return;
    }
    if (!v)
        v = save_create(b, after);
    v->dead = false;
    save_take(v, after);
    save_tick(v);
}

void saves_init(struct brain *b)
{
    list_init(&b->saves->all);
}

static bool reset_each(const struct object *o, void *arg)
{
    save_change(arg, NULL, o);
    return true;
}

void saves_reset(struct brain *b)
{
    root_scan(b->root, KIND_WORKLOAD, NULL, NULL, NULL, reset_each, b);
}

void saves_drop(struct brain *b)
{
    list_for_each_safe (it, tmp, &b->saves->all)
        save_free(container_of(it, struct save, link));
}

void saves_tick(struct brain *b)
{
    list_for_each_safe (it, tmp, &b->saves->all)
        save_tick(container_of(it, struct save, link));
}

void save_observed(struct brain *b, const char *workload_uid, const struct observation *o)
{
    struct save *v = save_find(b, workload_uid);

    if (!v || v->dead || o->key.epoch != v->seen_epoch || o->key.try_ != v->seen_try)
        return;
    v->seen = o->save;
    v->seen_step = o->checkpoint.present ? o->checkpoint.step : -1;
    save_tick(v);
}

/* ---- into the log ---- */
static void proposed(void *arg, const struct result *r, const struct err *err)
{
    struct save *v = arg;

    v->proposing = false;
    if (v->dead || !v->brain->leads) {
        save_free(v);
        return;
    }
    if (!err && r->code == 0)
        FAILPOINT("save.step.after");
    if (err || r->code)
        save_later(v);
    else
        save_tick(v);
}

static void propose(struct save *v, const struct save_status *told, const char *reason,
                    const char *message)
{
    const struct workload_status *s = workload_of(v)->status;
    struct save_status save = *told;
    union command c = {.run = {.head = {.type = CMD_RUN, .user = "hanse:save"},
                               .step = STEP_SAVE,
                               .epoch = s->epoch,
                               .try_ = try_of(s),
                               .save = &save}};

    save.checkpoint = save.reason = save.message = "";
    brain_request_id(v->brain, c.head.request_id);
    str_copy(c.run.ns, sizeof c.run.ns, v->o->meta->namespace_);
    str_copy(c.run.name, sizeof c.run.name, v->o->meta->name);
    str_copy(c.run.uid, sizeof c.run.uid, v->uid);
    str_copy(c.run.reason, sizeof c.run.reason, reason);
    str_copy(c.run.message, sizeof c.run.message, message);
    v->proposing = true;
    FAILPOINT("save.step.before");
    brain_propose(v->brain, &c, proposed, v);
}

/* ---- to the target ---- */
static void answered(struct call *c, enum outcome out, const struct observation *seen,
                     const struct err *err)
{
    struct save *v = container_of(c, struct save, call.call);

    (void)seen; /* what it says comes by the driver, like all observations */
    v->calling = false;
    if (v->dead || !v->brain->leads) {
        save_free(v);
        return;
    }
    FAILPOINT("save.call.answered");
    if (out == OUT_DONE) {
        v->session = v->called_in;
    } else if (out == OUT_REJECTED && err && err->code != E_UNAVAIL && err->code != E_CONNECT) {
        v->refused = true;
        str_copy(v->reason, sizeof v->reason, "TargetRefused");
        (void)snprintf(v->message, sizeof v->message, "%s%s%.400s", err->field,
                       *err->field ? ": " : "", err->text);
    }
    if (out == OUT_DONE || v->refused) {
        v->again_ms = AGAIN_MIN_MS;
        save_tick(v);
    } else { /* the same number again: it is asked for once */
        save_later(v);
    }
}

static void call(struct save *v, struct site *t, int64_t number)
{
    const struct workload_status *s = workload_of(v)->status;
    struct run_key k = {.epoch = s->epoch, .try_ = try_of(s)};

    str_copy(k.uid, sizeof k.uid, v->uid);
    v->calling = true;
    v->called = number;
    v->refused = false;
    v->called_in = t->session;
    v->session = 0;
    t->connector->ops->checkpoint(t->connector, &k, number, (uint64_t)workload_grace_ms(v->o),
                                  brain_call_about(v->brain, &v->call, v->uid, CALL_MS, answered));
    FAILPOINT("save.call.sent");
}

/* ---- the one next thing ---- */
/* Why it cannot even be asked; NULL: it can. */
static const char *cannot(const struct site *t)
{
    if (!t || !t->doc || !t->connector)
        return "its target has no driver in this build";
    if (!target_has(object_as(t->doc, target)->spec, CAN_ASK) || !t->connector->ops->checkpoint)
        return "its target cannot ask a program to save and go on";
    return NULL;
}

static void tick_open(struct save *v, struct site *t, const struct save_status *s)
{
    const struct run_save *seen = &v->seen;
    const struct workload_status *w = workload_of(v)->status;
    bool about = seen->present && seen->number == s->asked;

    if (about && seen->state == SAVE_DONE) {
        if (w->checkpoint && w->checkpoint->epoch == w->epoch &&
            w->checkpoint->step >=
                v->seen_step) /* else the driver is telling it: a change follows */
            propose(v, &(struct save_status){.saved = s->asked}, "", "");
    } else if (about && seen->state == SAVE_FAILED) {
        propose(v, &(struct save_status){.failed = s->asked}, seen->reason, seen->message);
    } else if (v->refused && v->called == s->asked) {
        propose(v, &(struct save_status){.failed = s->asked}, v->reason, v->message);
    } else if (w->phase == PHASE_RUNNING && t && t->reachable && t->connector &&
               (v->session != t->session || v->called != s->asked)) {
        call(v, t, s->asked);
    }
}

static void save_tick(struct save *v)
{
    struct brain *b = v->brain;
    const struct workload *w = v->o ? workload_of(v) : NULL;
    const struct save_status *s = w ? w->status->save : NULL;

    if (!b->leads || v->dead || !w || v->proposing || v->calling || b->in_doubt ||
        root_feature_level(b->root) < FEATURE_GRANTS)
        return;
    struct site *t = site_find(b, w->status->placement ? w->status->placement->target : "");
    if (is_open(s)) {
        tick_open(v, t, s);
        return;
    }
    if (w->status->phase != PHASE_RUNNING)
        return;
    const char *why = cannot(t);
    if (why)
        propose(v, &(struct save_status){.failed = w->spec->saveRequest}, "TargetCannotSave", why);
    else
        propose(v, &(struct save_status){.asked = w->spec->saveRequest}, "", "");
}
