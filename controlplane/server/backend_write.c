/* Writes of the API as commands: numbered and stamped, so that each is carried out at most once
 * however often it is sent; under a client's key, so that its answer is final. */
#include "controlplane/server/backend.h"

#include "api/base/hash.h"

#include "api/base/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WRITE_DEADLINE_MS 10000

struct pending_write {
    struct list link; /* of control.waiting */
    struct control *c;
    uint64_t number;
    struct control_user *user; /* whose share it is of */
    size_t bytes;
    bool old_refusal; /* asked of members that do not know REQUEST: any refusal is the answer */
    struct err refusal;
    struct result over; /* the quota's, where it was not proposed */
    void (*cb)(void *arg, const struct api_result *r, const struct err *err);
    void *arg;
};

static void result_err(const struct result *r, struct err *e)
{
    if (*r->field)
        (void)err_field(e, r->code, r->field, "%s", r->text);
    else
        (void)err_set(e, r->code, "%s", r->text);
}

static void written(void *arg, const struct result *r, const struct err *err)
{
    struct pending_write *p = arg;
    struct api_result ar = {0};
    struct err e;

    if (!err && r->code) {
        result_err(r, &e);
        err = &e;
    }
    if (r) {
        ar.rv = r->rv;
        ar.op = r->op;
        ar.unchanged = r->unchanged;
        ar.final = r->final;
        ar.repeated = r->repeated;
        ar.retry_s = r->retry_s;
        if (r->code == E_NOTFOUND && p->old_refusal) {
            ar.final = true;
            err = &p->refusal;
        }
    }
    struct root *root = core_root(p->c->core);
    ar.view = (struct view *)root;
    list_remove(&p->link);
    p->user->waiting--;
    p->user->bytes -= p->bytes;
    p->cb(p->arg, &ar, err);
    (void)root_unref(root);
    mem_free(p);
}

/* False: one of its objects became larger than an object may be. */
static bool command_fill(struct control *c, const struct api_write *w, const struct root *r,
                         struct write_cmd *cmd)
{
    bool fits = true;

    cmd->head.type = CMD_WRITE;
    str_copy(cmd->head.user, sizeof cmd->head.user, w->user ? w->user : "");
    str_copy(cmd->as, sizeof cmd->as, w->as ? w->as : "");
    str_copy(cmd->revision, sizeof cmd->revision, w->revision ? w->revision : "");
    cmd->apply = w->revision != NULL;
    cmd->n = (uint32_t)w->n;
    cmd->ops = mem_zalloc((w->n + 1) * sizeof *cmd->ops);
    for (size_t i = 0; i < w->n; i++) {
        const struct api_write_op *in = &w->ops[i];
        struct write_op *op = &cmd->ops[i];
        op->verb = (enum write_verb)in->verb;
        op->kind = in->kind->id;
        str_copy(op->ns, sizeof op->ns, in->ns ? in->ns : "");
        str_copy(op->name, sizeof op->name, in->name);
        str_copy(op->uid, sizeof op->uid, in->uid ? in->uid : "");
        op->rv = in->rv;
        op->graced = in->grace_seconds != NULL;
        op->grace_seconds = in->grace_seconds ? *in->grace_seconds : 0;
        op->propagation = (enum propagation)in->propagation;
        op->object = backend_op_object(c, in, r);
        fits = fits && (op->object || !in->object);
    }
    return fits;
}
_Static_assert((int)API_CREATE == (int)WRITE_CREATE && (int)API_UPDATE == (int)WRITE_UPDATE &&
                   (int)API_UPDATE_STATUS == (int)WRITE_UPDATE_STATUS &&
                   (int)API_DELETE == (int)WRITE_DELETE &&
                   (int)API_BACKGROUND == (int)PROPAGATE_BACKGROUND &&
                   (int)API_FOREGROUND == (int)PROPAGATE_FOREGROUND &&
                   (int)API_ORPHAN == (int)PROPAGATE_ORPHAN,
               "the verbs and the propagations are the same");

static void command_drop(struct write_cmd *cmd)
{
    for (uint32_t i = 0; i < cmd->n; i++)
        (void)object_unref(cmd->ops[i].object);
    mem_free(cmd->ops);
}

/* Dry run, and checks before a write is proposed: the command tried on the newest state, nothing
 * kept. */
static int try_write(struct control *c, const struct api_write *w, struct api_result *ar,
                     struct root **ret_after, struct err *err)
{
    struct root *r = core_root(c->core);
    union command cmd = {0};
    struct result res = {0};

    bool fits = command_fill(c, w, r, &cmd.write);
    if (fits)
        store_try(r, core_time_ms(c->core), &cmd, &res, ret_after);
    command_drop(&cmd.write);
    (void)root_unref(r);
    if (!fits)
        return err_set(err, E_TOOLARGE, "the write, or an object of it, is too large");
    ar->rv = res.rv;
    ar->op = res.op;
    ar->unchanged = res.unchanged;
    if (res.code)
        result_err(&res, err);
    return res.code;
}

struct dry {
    struct control *c;
    struct api_result ar;
    struct err err;
    int code;
    struct root *after;
    void (*cb)(void *arg, const struct api_result *r, const struct err *err);
    void *arg;
};
static void dry_told(void *arg)
{
    struct dry *d = arg;

    d->ar.view = (struct view *)d->after;
    d->cb(d->arg, &d->ar, d->code ? &d->err : NULL);
    (void)root_unref(d->after);
    mem_free(d);
}

/* ---- shares ---- */
/* What waits of one user leaves room for others; users that fall into one slot share its part. */
static struct control_user *user_of(struct control *c, const char *user)
{
    return &c->users[hash_slot(user ? user : "", CONTROL_USERS)];
}

static bool share_over(const struct control_user *u, size_t n)
{
    return u->waiting > LIMIT_USER_WRITES_MAX ||
           (u->waiting > 1 && u->bytes + n > LIMIT_USER_WRITES_BYTES);
}

/* ---- names and stamps ---- */
static struct pending_write *
pending_make(struct control *c, const char *user,
             void (*cb)(void *arg, const struct api_result *r, const struct err *err), void *arg)
{
    struct pending_write *p = mem_new(struct pending_write);

    *p = (struct pending_write){
        .c = c, .number = ++c->number, .user = user_of(c, user), .cb = cb, .arg = arg};
    p->user->waiting++;
    list_init(&p->link);
    list_push(&c->waiting, &p->link);
    return p;
}

/* Each start of a member is a session of its own, later than all that the state has seen of it. */
static uint64_t session_of(struct control *c, const struct root *r)
{
    struct core_status st;

    if (!c->session) {
        core_status(c->core, &st);
        c->member = st.id;
        c->session = ((uint64_t)core_time_ms(c->core) << 16 & INT64_MAX) |
                     (loop_random_u64(c->loop) & 0xffff);
    }
    uint64_t known = root_session(r, c->member);
    if (known > c->session)
        c->session = known + 1;
    return c->session;
}

static void refusal_fill(const struct err *e, struct request_cmd *q)
{
    q->refusal = (uint32_t)-e->code;
    str_copy(q->field, sizeof q->field, e->field);
    str_copy(q->text, sizeof q->text, e->text);
}

static void request_fill(struct pending_write *p, const struct api_write *w, const struct root *r,
                         struct request_cmd *q)
{
    struct control *c = p->c;

    q->write.head.type = CMD_REQUEST;
    q->session = session_of(c, r);
    q->member = c->member;
    q->number = p->number;
    q->floor = container_of(c->waiting.next, struct pending_write, link)->number;
    (void)snprintf(q->write.head.request_id, sizeof q->write.head.request_id,
                   "m%" PRIu64 ".%" PRIx64 ".%" PRIu64, q->member, q->session, q->number);
    if (!w->key)
        return;
    str_copy(q->key, sizeof q->key, w->key);
    (void)snprintf(q->old_id, sizeof q->old_id, OLD_KEY_PREFIX "%s",
                   w->old_key ? w->old_key : w->key);
    str_copy(q->fingerprint, sizeof q->fingerprint, w->fingerprint ? w->fingerprint : "");
    q->again = w->again;
    q->part = w->part;
    if (w->refusal)
        refusal_fill(w->refusal, q);
}

/* For members that do not know REQUEST: each attempt has an id of its own, and a refusal asks
 * whether the first one was done, by a write that can never be done. */
static void old_fill(struct pending_write *p, const struct api_write *w, struct write_cmd *cmd)
{
    const char *key = w->old_key ? w->old_key : w->key;
    char *id = cmd->head.request_id;
    size_t n = sizeof cmd->head.request_id;

    if (!key)
        uuid_make(p->c->loop, id);
    else if (w->attempt && !w->refusal)
        (void)snprintf(id, n, OLD_KEY_PREFIX "%s-%u", key, w->attempt);
    else
        (void)snprintf(id, n, OLD_KEY_PREFIX "%s", key);
    if (!w->refusal)
        return;
    p->old_refusal = true;
    p->refusal = *w->refusal;
    cmd->n = 1; /* command_fill made room for one */
    cmd->ops[0] = (struct write_op){.verb = WRITE_DELETE, .kind = KIND_NAMESPACE, .name = "-"};
}

static void too_large_told(void *arg)
{
    struct err e = {0};

    (void)err_set(
        &e, E_TOOLARGE,
        "the write is larger than %d bytes, or an object of it larger than %d (a Secret's "
        "values: 1 MiB)",
        LIMIT_COMMAND_MAX_BYTES, LIMIT_OBJECT_MAX_BYTES);
    written(arg, NULL, &e);
}
static void share_over_told(void *arg)
{
    struct err e = {0};

    (void)err_set(&e, E_LIMIT,
                  "too many writes of this user wait for their results: try again later");
    written(arg, NULL, &e);
}

/* Members of an older version would give each of its workers a folder of its own. */
static bool says_shared(const struct object *o)
{
    const struct checkpoint_spec *c =
        o && o->kind->id == KIND_WORKLOAD && object_as(o, workload)->spec
            ? object_as(o, workload)->spec->checkpoint
            : NULL;

    return c && c->layout == LAYOUT_SHARED;
}

/* Members of an older version would take it that its runners claim. */
static bool says_manifest(const struct object *o)
{
    const struct workload_spec *s =
        o && o->kind->id == KIND_WORKLOAD ? object_as(o, workload)->spec : NULL;

    return s && s->run && s->run->manifest.n;
}

/* They would not know who says that a node is sick, and would not keep namespaces. */
static bool says_more_of_pods(const struct object *target)
{
    const struct target_kubernetes *k = object_as(target, target)->spec->kubernetes;
    bool more = k && k->diagnostics;

    for (uint32_t i = 0; k && i < k->n_namespaces; i++)
        more = more || k->namespaces[i].managed || k->namespaces[i].network;
    return more;
}

/* A member of an older version would stop at a kind that it does not know, and pass over a grace, a
 * propagation, a layout or devices by count. */
static bool newer(const struct api_write *w, const struct root *r)
{
    uint32_t needs = FEATURE_FIRST;

    for (size_t i = 0; i < w->n; i++) {
        uint32_t kind = kind_feature_level(w->ops[i].kind->id);
        bool asks = w->ops[i].grace_seconds || w->ops[i].propagation != API_DEFAULT ||
                    says_shared(w->ops[i].object);
        uint32_t options = asks ? FEATURE_GRANTS : FEATURE_FIRST;

        if (w->ops[i].object && w->ops[i].kind->id == KIND_TARGET &&
            (object_as(w->ops[i].object, target)->spec->type == TARGET_CALLOUT ||
             object_as(w->ops[i].object, target)->spec->n_agents))
            kind = FEATURE_GRANTS;
        if (w->ops[i].object && w->ops[i].kind->id == KIND_TARGET &&
            object_as(w->ops[i].object, target)->spec->logs)
            kind = FEATURE_CLOSES;
        if (w->ops[i].object && w->ops[i].kind->id == KIND_TARGET &&
            object_as(w->ops[i].object, target)->spec->type == TARGET_KUBERNETES)
            kind = says_more_of_pods(w->ops[i].object) ? FEATURE_TELLS : FEATURE_PODS;
        if (says_manifest(w->ops[i].object))
            kind = FEATURE_TELLS;
        if (w->ops[i].object && w->ops[i].kind->id == KIND_NODE &&
            object_as(w->ops[i].object, node)->spec &&
            object_as(w->ops[i].object, node)->spec->n_counted)
            kind = FEATURE_COUNTS;
        needs = needs > kind ? needs : kind;
        needs = needs > options ? needs : options;
    }
    return needs > FEATURE_FIRST && needs > root_feature_level(r);
}

static void newer_told(void *arg)
{
    struct err e = {0};

    (void)err_set(&e, E_UNAVAIL,
                  "a member of an older version does not know this kind, gracePeriodSeconds, "
                  "propagationPolicy, checkpoint.layout, run.manifest, of a Target type callout or "
                  "kubernetes, agents, logs, kubernetes.diagnostics or managed namespaces, or a "
                  "Node's counted: it is done once every member runs this version. Go on with the "
                  "upgrade, and ask again");
    written(arg, NULL, &e);
}

/* Found here what apply would find: a flood does not fill the log. */
static bool rate_over(struct pending_write *p, const struct root *r, const struct request_cmd *q)
{
    return q->write.head.type == CMD_REQUEST &&
           root_rate_over(r, core_time_ms(p->c->core), q, &p->over);
}

static void rate_over_told(void *arg)
{
    struct pending_write *p = arg;

    written(p, &p->over, NULL);
}

void backend_write(struct backend *b, const struct api_write *w,
                   void (*cb)(void *arg, const struct api_result *r, const struct err *err),
                   void *arg)
{
    struct control *c = (struct control *)b;

    if (w->dry_run) {
        struct dry *d = mem_new(struct dry);
        d->c = c;
        d->cb = cb;
        d->arg = arg;
        d->code = try_write(c, w, &d->ar, &d->after, &d->err);
        loop_post(c->loop, dry_told, d);
        return;
    }
    c->writes++;
    struct root *r = core_root(c->core);
    struct pending_write *p = pending_make(c, w->user, cb, arg);
    union command cmd = {0};
    AUTO_BUF bytes;
    buf_init(&bytes, LIMIT_COMMAND_MAX_BYTES);
    bool fits = command_fill(c, w, r, &cmd.write);
    if (root_feature_level(r) >= FEATURE_GRANTS)
        request_fill(p, w, r, &cmd.request);
    else
        old_fill(p, w, &cmd.write);
    command_encode(&cmd, &bytes);
    bool large = bytes.failed || !fits, over = share_over(p->user, bytes.n);
    bool unknown = newer(w, r);
    if (rate_over(p, r, &cmd.request)) {
        loop_post(c->loop, rate_over_told, p);
    } else if (large || over || unknown) {
        loop_post(c->loop, unknown ? newer_told : large ? too_large_told : share_over_told, p);
    } else {
        p->bytes = bytes.n;
        p->user->bytes += bytes.n;
        core_propose(c->core, c->loop, cmd.head.request_id, slice_make(bytes.p, bytes.n),
                     w->deadline_ms ? w->deadline_ms : WRITE_DEADLINE_MS, written, p);
    }
    command_drop(&cmd.write);
    (void)root_unref(r);
}

static int quota_over(struct control *c, const struct api_write_op *in, struct err *err)
{
    struct write_op op = {.verb = (enum write_verb)in->verb,
                          .kind = in->kind->id,
                          .rv = in->rv,
                          .object = (struct object *)(uintptr_t)in->object};
    struct root *r = core_root(c->core);

    str_copy(op.ns, sizeof op.ns, in->ns ? in->ns : "");
    str_copy(op.name, sizeof op.name, in->name);
    str_copy(op.uid, sizeof op.uid, in->uid ? in->uid : "");
    int rv = root_quota_over(r, &op, err);
    (void)root_unref(r);
    return rv;
}

/* No entry is refused for it: what an older version took in stays as it is. */
static int names_clash(struct control *c, const struct api_write *w, struct err *err)
{
    struct root *r = core_root(c->core);
    int rv = 0;

    for (size_t i = 0; i < w->n && rv == 0; i++)
        if (w->ops[i].object && w->ops[i].kind->id == KIND_TARGET)
            rv = root_agents_clash(r, w->ops[i].object, err);
    (void)root_unref(r);
    return rv;
}

/* Whole sets (GitOps) and queues are tried before they are proposed, and quotas of objects are
 * asked: an error then costs no log entry. */
int backend_check(struct backend *b, const struct view *v, const struct api_write *w,
                  struct err *err)
{
    bool worth = w->revision != NULL || w->n > 1;
    struct api_result ar;
    struct root *after = NULL;

    (void)v;
    int clash = names_clash((struct control *)b, w, err);
    if (clash < 0)
        return clash;
    for (size_t i = 0; i < w->n && !worth; i++)
        worth = w->ops[i].kind->id == KIND_QUEUE;
    if (!worth)
        return w->n ? quota_over((struct control *)b, &w->ops[0], err) : 0;
    int rv = try_write((struct control *)b, w, &ar, &after, err);
    (void)root_unref(after);
    return rv;
}
