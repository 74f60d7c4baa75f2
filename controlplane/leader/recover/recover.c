/* hanse recover --from-targets: takes over what targets carry, one run after the other. It reads
 * the run's document, asks the target what the run is now, and writes both into the log (RECOVER).
 * Of the runs of one workload only the newest counts. At the end recovery is settled, if every
 * Target has listed its runs or is named as dead.
 * brain_orphan_adopt takes over one run that a user names, under the same checks, without opening
 * or settling a recovery.
 *
 * It must never end anything, nor take over what no target listed. */
#include "api/base/failpoint.h"
#include "api/base/log.h"
#include "controlplane/leader/context/hide.h"
#include "controlplane/leader/doubt/back.h"
#include "controlplane/leader/keep/events.h"
#include "controlplane/leader/recover/strangers.h"
#include "controlplane/leader/recover/sweep.h"
#include "controlplane/leader/site/sites.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASK_MS 15000
#define COUNTING_MS 500
#define RUNS_MAX 100 /* in one call; the caller asks again from where it ended */

struct found_run {
    char target[256], cluster[CLUSTER_UID_MAX], ns[64], name[256];
    struct run_key key;
    uint64_t state_rv;
    bool deleted;
};
struct recovery {
    struct brain *brain;
    char who[256];
    char (*dead)[256];
    size_t n_dead;
    struct found_run *v;
    size_t n, at;
    bool more, begun, settled;
    char why[ERR_TEXT_MAX]; /* why it is not settled */
    uint64_t wait_ms;       /* ms after which it may be settled */
    cJSON *answer, *adopted, *refused;
    struct brain_call call;
    struct object *doc; /* document of the candidate under way */
    struct observation seen;
    recover_cb cb;
    void *arg;
    bool single; /* a user named this one run */
};

static void recovery_next(struct recovery *x);

static void recovery_end(struct recovery *x, const struct err *err)
{
    struct brain *b = x->brain;

    (void)cJSON_AddBoolToObject(x->answer, "settled", x->settled);
    (void)cJSON_AddStringToObject(x->answer, "why", x->why);
    (void)cJSON_AddNumberToObject(x->answer, "waitMs", (double)x->wait_ms);
    (void)cJSON_AddStringToObject(x->answer, "next", x->more && x->n ? x->v[x->n - 1].key.uid : "");
    char *text = cJSON_PrintUnformatted(x->answer);
    sites_sweep(b);
    x->cb(x->arg, err ? NULL : text, err);
    cJSON_free(text);
    cJSON_Delete(x->answer);
    (void)object_unref(x->doc);
    mem_free(x->v);
    mem_free(x->dead);
    mem_free(x);
    brain_under_way(b, -1);
}

/* ---- candidates ---- */
static int candidate_order(const void *p, const void *q)
{
    const struct found_run *a = p, *b = q;
    int c = strcmp(a->key.uid, b->key.uid);

    if (c)
        return c;
    if (a->key.epoch != b->key.epoch)
        return a->key.epoch > b->key.epoch ? -1 : 1;
    return a->key.try_ > b->key.try_ ? -1 : a->key.try_ < b->key.try_;
}

static void found_take(struct found_run *c, const struct site *t, const struct orphan *o)
{
    *c = (struct found_run){.key = o->seen.key,
                            .state_rv = o->state_rv,
                            .deleted = o->why == ORPHAN_DELETED && !PLANTED("recover.undeletes")};
    str_copy(c->target, sizeof c->target, t->name);
    str_copy(c->cluster, sizeof c->cluster, o->cluster);
    str_copy(c->ns, sizeof c->ns, o->ns);
    str_copy(c->name, sizeof c->name, o->name);
}

static void candidates(struct recovery *x, const char *after)
{
    size_t cap = 0, n = 0;

    for_each_site (t, x->brain)
        cap += t->orphans.n;
    x->v = mem_zalloc((cap + 1) * sizeof *x->v);
    for_each_site (t, x->brain) {
        for (size_t i = 0; i < t->orphans.n; i++) {
            const struct orphan *o = &t->orphans.v[i];
            if (strcmp(o->seen.key.uid, after) <= 0 || orphan_condemned(t, &o->seen.key))
                continue;
            found_take(&x->v[x->n++], t, o);
        }
    }
    qsort(x->v, x->n, sizeof *x->v, candidate_order);
    for (size_t i = 0; i < x->n; i++) /* keep the newest run of each workload */
        if (!n || strcmp(x->v[n - 1].key.uid, x->v[i].key.uid) != 0)
            x->v[n++] = x->v[i];
    x->more = n > RUNS_MAX;
    x->n = x->more ? RUNS_MAX : n;
}

static cJSON *told(const struct recovery *x)
{
    const struct found_run *c = &x->v[x->at];
    cJSON *j = cJSON_CreateObject();
    char key[RUN_KEY_MAX];

    run_key_print(&c->key, key);
    (void)cJSON_AddStringToObject(j, "target", c->target);
    (void)cJSON_AddStringToObject(j, "key", key);
    (void)cJSON_AddStringToObject(j, "namespace", x->doc ? x->doc->meta->namespace_ : c->ns);
    (void)cJSON_AddStringToObject(j, "workload", x->doc ? x->doc->meta->name : c->name);
    if (c->deleted)
        (void)cJSON_AddBoolToObject(j, "deleted", true);
    return j;
}

static void passed_over(struct recovery *x, const char *why)
{
    struct err err;

    if (x->single) {
        (void)err_set(&err, E_CONFLICT, "the run cannot be adopted: %.600s", why);
        recovery_end(x, &err);
        return;
    }
    cJSON *j = told(x);

    (void)cJSON_AddStringToObject(j, "why", why);
    (void)cJSON_AddItemToArray(x->refused, j);
    x->at++;
    recovery_next(x);
}

/* ---- one run: its document, its state, the log ---- */
static void adopted(void *arg, const struct result *r, const struct err *err)
{
    struct recovery *x = arg;

    if (err || r->code) {
        passed_over(x, err ? err->text : r->text);
        return;
    }
    cJSON *j = told(x);
    (void)cJSON_AddStringToObject(j, "state", x->seen.state == RUN_ENDED ? "ended" : "running");
    (void)cJSON_AddItemToArray(x->adopted, j);
    x->at++;
    recovery_next(x);
}

/* True, with an error, when something else may hold the workload of a run that is adopted alone. */
static bool spoken_for(struct recovery *x, struct err *err)
{
    const struct root *r = x->brain->root;
    const struct workload *told = object_as(x->doc, workload);
    const struct object *o = root_workload_by_uid(r, x->v[x->at].key.uid);
    const struct workload_status *s = o ? object_as(o, workload)->status : NULL;

    if (s && phase_holds(s->phase) && !(root_recovering(r) && s->epochFloor > s->epoch)) {
        (void)err_set(err, E_CONFLICT, "workload %s/%s is %s in epoch %lld on Target %.200s",
                      o->meta->namespace_, o->meta->name, phase_text(s->phase), (long long)s->epoch,
                      s->placement ? s->placement->target : "-");
        return true;
    }
    if (!o && !root_get(r, KIND_NAMESPACE, "", x->doc->meta->namespace_)) {
        (void)err_set(err, E_NOTFOUND, "namespaces \"%s\" not found: create it",
                      x->doc->meta->namespace_);
        return true;
    }
    if (!o && told->spec && *told->spec->queue && !root_get(r, KIND_QUEUE, "", told->spec->queue)) {
        (void)err_set(err, E_NOTFOUND, "queues \"%.200s\" not found: create it", told->spec->queue);
        return true;
    }
    return false;
}

static void adopt(struct recovery *x)
{
    struct found_run *at = &x->v[x->at];
    const struct observation *o = &x->seen;
    struct write_op op = {.verb = WRITE_CREATE, .kind = KIND_WORKLOAD, .object = x->doc};
    union command c = {.recover = {.head = {.type = CMD_RECOVER},
                                   .step = RECOVER_ADOPT,
                                   .epoch = at->key.epoch,
                                   .try_ = at->key.try_,
                                   .known = at->state_rv,
                                   .ops = &op,
                                   .n = 1}};
    struct run_checkpoint ck;
    AUTO_BUF bytes;

    brain_request_id(x->brain, c.head.request_id);
    str_copy(c.head.user, sizeof c.head.user, x->who);
    str_copy(c.recover.cluster_uid, sizeof c.recover.cluster_uid, at->cluster);
    str_copy(c.recover.uid, sizeof c.recover.uid, at->key.uid);
    str_copy(op.ns, sizeof op.ns, x->doc->meta->namespace_);
    str_copy(op.name, sizeof op.name, x->doc->meta->name);
    if (o->state == RUN_ENDED) {
        c.recover.ended = true;
        c.recover.exit_code = o->exit_code;
        c.recover.term_signal = o->term_signal;
        c.recover.proof = o->proof;
        c.recover.requeue = o->stopped || o->lease_lost || reason_of_target(o->reason) ||
                            end_says_saved(o->exit_code, o->term_signal, o->reason);
        str_copy(c.recover.reason, sizeof c.recover.reason, o->reason);
        str_copy(c.recover.message, sizeof c.recover.message, o->message);
        hide_text(x->brain, x->doc, c.recover.message);
        if (o->checkpoint.present) {
            ck = (struct run_checkpoint){.epoch = at->key.epoch,
                                         .step = o->checkpoint.step,
                                         .bytes = o->checkpoint.bytes,
                                         .writtenAt = o->checkpoint.writtenAt,
                                         .writeTime = o->checkpoint.writeTime,
                                         .ranks = o->checkpoint.ranks,
                                         .name = "",
                                         .digest = o->checkpoint.digest,
                                         .path = o->checkpoint.path};
            c.recover.checkpoint = &ck;
        }
    }
    buf_init(&bytes, LIMIT_COMMAND_MAX_BYTES);
    command_encode(&c, &bytes);
    if (bytes.failed)
        passed_over(x, "its document is larger than a command may be");
    else
        brain_propose_bytes(x->brain, c.head.request_id, slice_make(bytes.p, bytes.n), adopted, x);
}

static void namespaced(void *arg, const struct result *r, const struct err *err)
{
    (void)r;
    if (err)
        passed_over(arg, err->text);
    else
        adopt(arg); /* apply names what is still missing */
}

static void namespace_make(struct recovery *x)
{
    AUTO_ARENA a = arena_create(0);
    struct namespace_ *n = arena_new(a, struct namespace_);
    struct write_op op = {.verb = WRITE_CREATE, .kind = KIND_NAMESPACE};
    union command c = {
        .write = {.head = {.type = CMD_WRITE}, .ops = &op, .n = 1, .if_absent = true}};

    n->metadata = arena_new(a, struct meta);
    *n->metadata = (struct meta){
        .name = x->doc->meta->namespace_, .namespace_ = "", .uid = events_uid(x->brain, a)};
    str_copy(op.name, sizeof op.name, x->doc->meta->namespace_);
    op.object = object_make(kind_by_id(KIND_NAMESPACE), n);
    brain_request_id(x->brain, c.head.request_id);
    str_copy(c.head.user, sizeof c.head.user, x->who);
    brain_propose(x->brain, &c, namespaced, x);
    (void)object_unref(op.object);
}

static void looked(struct call *call, enum outcome out, const struct observation *seen,
                   const struct err *err)
{
    struct recovery *x = container_of(call, struct recovery, call.call);

    if (!x->brain->leads || out != OUT_DONE || !seen || seen->state == RUN_UNKNOWN) {
        passed_over(x, err && err->code ? err->text : "its target cannot say what it is now");
        return;
    }
    if (seen->state == RUN_ABSENT) {
        passed_over(x, "it never started");
        return;
    }
    x->seen = *seen;
    struct err why;
    if (x->single && spoken_for(x, &why))
        passed_over(x, why.text);
    else if (root_get(x->brain->root, KIND_NAMESPACE, "", x->doc->meta->namespace_))
        adopt(x);
    else
        namespace_make(x);
}

/* Takes in the document of a run: the agent may answer only for its own target and this run. */
static const char *document_take(struct recovery *x, const char *json)
{
    const struct found_run *c = &x->v[x->at];
    cJSON *j = NULL;
    struct err err;

    if (!json || json_parse(json, strlen(json), &j, &err) < 0)
        return "what is kept of it cannot be read";
    int rc = object_from_json(kind_by_id(KIND_WORKLOAD), j, 0, &x->doc, &err);
    cJSON_Delete(j);
    if (rc < 0) {
        x->doc = NULL;
        return "what is kept of it is no Workload";
    }
    const struct workload_status *s = object_as(x->doc, workload)->status;
    const struct placement *p = s ? s->placement : NULL;
    if (strcmp(x->doc->meta->uid, c->key.uid) != 0 || !p || strcmp(p->target, c->target) != 0)
        return "what is kept of it is of another run";
    for (uint32_t i = 0; i < p->n_assignments; i++)
        if (strncmp(p->assignments[i].node, c->target, strlen(c->target)) != 0 ||
            p->assignments[i].node[strlen(c->target)] != '.')
            return "what is kept of it names nodes of another target";
    return NULL;
}

static void document_told(void *arg, enum outcome out, const char *json, const struct err *err)
{
    struct recovery *x = arg;
    struct brain *b = x->brain;
    struct site *t = site_find(b, x->v[x->at].target);
    const char *why = out == OUT_DONE    ? document_take(x, json)
                      : err && err->code ? err->text
                                         : "its target keeps nothing of it";

    if (!why && (!b->leads || !t || !t->connector || !t->reachable))
        why = "its target is out of reach";
    if (why) {
        passed_over(x, why);
        return;
    }
    t->connector->ops->find(t->connector, &x->v[x->at].key,
                            brain_call(b, &x->call, ASK_MS, looked));
}

/* ---- the whole ---- */
static void settled(void *arg, const struct result *r, const struct err *err)
{
    struct recovery *x = arg;

    x->settled = !err && r->code == 0;
    if (!x->settled)
        str_copy(x->why, sizeof x->why, err ? err->text : r->text);
    recovery_end(x, NULL);
}

/* Finds a live run newer than its workload, which would be placed anew beside it once settled. */
static const struct orphan *left_alive(const struct brain *b, const struct site **ret_at)
{
    for_each_site (t, b) {
        for (size_t i = 0; i < t->orphans.n; i++) {
            const struct observation *seen = &t->orphans.v[i].seen;
            const struct object *o = root_workload_by_uid(b->root, seen->key.uid);
            const struct workload_status *s = o ? object_as(o, workload)->status : NULL;
            if (!s || (phase_final(s->phase) && !o->meta->deletionTimestamp) ||
                seen->state == RUN_ENDED || seen->state == RUN_ABSENT)
                continue;
            *ret_at = t;
            if (seen->key.epoch > s->epoch ||
                (seen->key.epoch == s->epoch && seen->key.try_ > (s->intent ? s->intent->try_ : 0)))
                return &t->orphans.v[i];
        }
    }
    return NULL;
}

static void settle(struct recovery *x)
{
    struct brain *b = x->brain;
    const struct site *at = NULL;
    char key[RUN_KEY_MAX];

    if (strangers_uncounted(b)) {
        (void)snprintf(x->why, sizeof x->why, "agents that have dialed in are being counted");
        x->wait_ms = COUNTING_MS;
        recovery_end(x, NULL);
        return;
    }
    const struct orphan *left = left_alive(b, &at);
    if (left) {
        run_key_print(&left->seen.key, key);
        (void)snprintf(
            x->why, sizeof x->why,
            "%s on Target %.200s is newer than the state, lives, and was not taken over: "
            "once it may end, hanse orphans end %.200s %s --yes",
            key, at->name, at->name, key);
        recovery_end(x, NULL);
        return;
    }
    AUTO_ARENA a = arena_create(0);
    size_t n = 0, cap = x->n_dead;
    union command c = {.recover = {.head = {.type = CMD_RECOVER}, .step = RECOVER_SETTLE}};

    for_each_site (t, b)
        cap++;
    struct write_op *ops = arena_array(a, struct write_op, cap + 1);
    for_each_site (t, b) {
        if (!t->listed || t->lacks || t->orphans.more)
            continue;
        ops[n] = (struct write_op){.verb = WRITE_DELETE, .kind = KIND_TARGET};
        str_copy(ops[n++].name, sizeof ops->name, t->name);
    }
    for (size_t i = 0; i < x->n_dead; i++) {
        ops[n] = (struct write_op){.verb = WRITE_DELETE, .kind = KIND_TARGET};
        str_copy(ops[n++].name, sizeof ops->name, x->dead[i]);
    }
    c.recover.ops = ops;
    c.recover.n = (uint32_t)n;
    brain_request_id(b, c.head.request_id);
    str_copy(c.head.user, sizeof c.head.user, x->who);
    brain_propose(b, &c, settled, x);
}

static void recovery_next(struct recovery *x)
{
    struct brain *b = x->brain;
    struct err err;

    x->doc = object_unref(x->doc);
    if (!b->leads) {
        (void)err_set(&err, E_UNAVAIL, "the leadership has gone: ask again");
        recovery_end(x, &err);
        return;
    }
    if (x->at == x->n && (x->more || x->single)) {
        recovery_end(x, NULL);
    } else if (x->at == x->n) {
        settle(x);
    } else if (x->v[x->at].deleted) {
        passed_over(x, RECOVER_WAS_DELETED);
    } else {
        struct site *t = site_find(b, x->v[x->at].target);
        if (!t || !t->connector || !t->connector->ops->document)
            passed_over(x, "its target keeps no documents of runs");
        else
            t->connector->ops->document(t->connector, &x->v[x->at].key,
                                        loop_now_ms(b->loop) + ASK_MS, document_told, x);
    }
}

static void begun(void *arg, const struct result *r, const struct err *err)
{
    struct recovery *x = arg;
    struct err e;

    if (!err && r->code) {
        (void)err_set(&e, r->code, "%s", r->text);
        err = &e;
    }
    if (err)
        recovery_end(x, err);
    else
        recovery_next(x);
}

/* Answers that recovery waits for agents that have had no time to dial yet; false: it need not. */
static bool recover_waits(struct brain *b, recover_cb cb, void *arg)
{
    uint64_t ms = strangers_wait_ms(b);
    cJSON *j;

    if (!ms)
        return false;
    j = cJSON_CreateObject();
    (void)cJSON_AddArrayToObject(j, "adopted");
    (void)cJSON_AddArrayToObject(j, "refused");
    (void)cJSON_AddBoolToObject(j, "settled", false);
    (void)cJSON_AddStringToObject(j, "why",
                                  "agents that this leader has not heard yet may be on their way: "
                                  "ask again in some seconds");
    (void)cJSON_AddStringToObject(j, "next", "");
    (void)cJSON_AddNumberToObject(j, "waitMs", (double)ms);
    char *text = cJSON_PrintUnformatted(j);
    cb(arg, text, NULL);
    cJSON_free(text);
    cJSON_Delete(j);
    return true;
}

void brain_recover(struct brain *b, const struct recover_ask *ask, recover_cb cb, void *arg)
{
    struct err err;
    union command c = {.recover = {.head = {.type = CMD_RECOVER}, .step = RECOVER_BEGIN}};

    if (!b->leads) {
        (void)err_set(&err, E_UNAVAIL, "this member does not lead; ask the leader");
        cb(arg, NULL, &err);
        return;
    }
    if (b->in_doubt || back_marking(b)) {
        (void)err_set(&err, E_UNAVAIL,
                      "the state went back to an older one, and its workloads are being marked: "
                      "try again in a moment");
        cb(arg, NULL, &err);
        return;
    }
    if (root_feature_level(b->root) < FEATURE_GRANTS) {
        (void)err_set(&err, E_UNAVAIL, "a member is too old for this: upgrade all members first");
        cb(arg, NULL, &err);
        return;
    }
    if (recover_waits(b, cb, arg))
        return;
    if (stranger_unnamed(b, ask, &err)) {
        cb(arg, NULL, &err);
        return;
    }
    struct recovery *x = mem_new(struct recovery);
    x->brain = b;
    x->cb = cb;
    x->arg = arg;
    str_copy(x->who, sizeof x->who, ask->who);
    x->dead = mem_alloc((ask->n_dead + 1) * sizeof *x->dead);
    for (; x->n_dead < ask->n_dead; x->n_dead++)
        str_copy(x->dead[x->n_dead], sizeof x->dead[0], ask->dead[x->n_dead]);
    x->answer = cJSON_CreateObject();
    x->adopted = cJSON_AddArrayToObject(x->answer, "adopted");
    x->refused = cJSON_AddArrayToObject(x->answer, "refused");
    candidates(x, ask->after);
    brain_under_way(b, 1);
    brain_request_id(b, c.head.request_id);
    str_copy(c.head.user, sizeof c.head.user, ask->who);
    brain_propose(b, &c, begun, x);
}

/* ---- one run ---- */
/* Finds a newer run of the same workload: only the newest is taken over. */
static const struct orphan *newer_of(const struct brain *b, const struct orphan *o,
                                     const struct site **ret_at)
{
    for_each_site (t, b) {
        for (size_t i = 0; i < t->orphans.n; i++) {
            const struct run_key *k = &t->orphans.v[i].seen.key, *own = &o->seen.key;
            if (strcmp(k->uid, own->uid) != 0 || k->epoch < own->epoch ||
                (k->epoch == own->epoch && k->try_ <= own->try_))
                continue;
            *ret_at = t;
            return &t->orphans.v[i];
        }
    }
    return NULL;
}

static bool adoptable(struct brain *b, const struct site *t, const struct orphan *o,
                      struct err *err)
{
    const struct site *at = NULL;
    const struct orphan *newer = o ? newer_of(b, o, &at) : NULL;
    char key[RUN_KEY_MAX];

    if (!o)
        return false;
    if (b->in_doubt || back_marking(b))
        (void)err_set(err, E_UNAVAIL,
                      "the state went back to an older one, and its workloads are being marked: "
                      "try again in a moment");
    else if (root_feature_level(b->root) < FEATURE_GRANTS)
        (void)err_set(err, E_UNAVAIL, "a member is too old for this: upgrade all members first");
    else if (orphan_condemned(t, &o->seen.key))
        (void)err_set(err, E_CONFLICT, "it is to be ended, and it is");
    else if (newer) {
        run_key_print(&newer->seen.key, key);
        (void)err_set(err, E_CONFLICT, "Target %.200s has a newer run of it, %s: adopt that one",
                      at->name, key);
    } else {
        return true;
    }
    return false;
}

void brain_orphan_adopt(struct brain *b, const char *target, const char *key, const char *who,
                        recover_cb cb, void *arg)
{
    struct err err = {0};
    struct site *t = orphan_site(b, target, &err);
    const struct orphan *o = t ? orphan_listed(t, key, &err) : NULL;

    if (!adoptable(b, t, o, &err)) {
        cb(arg, NULL, &err);
        return;
    }
    struct recovery *x = mem_new(struct recovery);
    x->brain = b;
    x->cb = cb;
    x->arg = arg;
    x->single = true;
    str_copy(x->who, sizeof x->who, who);
    x->answer = cJSON_CreateObject();
    x->adopted = cJSON_AddArrayToObject(x->answer, "adopted");
    x->refused = cJSON_AddArrayToObject(x->answer, "refused");
    x->v = mem_new(struct found_run);
    found_take(x->v, t, o);
    x->n = 1;
    brain_under_way(b, 1);
    events_act(b, who, target, "OrphanAdopted", begun, x,
               "%.100s said that the run %.100s of %.63s/%.100s, of cluster %.64s, is to be "
               "adopted",
               who, key, o->ns, o->name, *o->cluster ? o->cluster : "unknown");
}
