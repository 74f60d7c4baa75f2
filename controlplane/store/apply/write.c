/* WRITE: what users and GitOps ask for; and MEMBER. The whole command holds or none of it does.
 *
 * A user must never change what only the machine knows: status changes by UPDATE_STATUS only, and
 * of a Workload's status only the conditions; resourceVersion, generation, timestamps and the git
 * commit are set here. */
#include "controlplane/store/store_internal.h"

#include "api/base/failpoint.h"
#include "policy/policy.h"

#include <stdio.h>

static int check_bounds(struct txn *t, const struct write_op *op, const struct kind *k)
{
    if (!*op->name || k->namespaced != (*op->ns != 0))
        return err_field(t->err, E_INVALID, "metadata.namespace", "%s: %s",
                         sentence_named(t, k, op->name),
                         k->namespaced ? "a name and a namespace are needed"
                                       : "a name and no namespace are needed");
    if (op->verb == WRITE_DELETE)
        return 0;
    if (!op->object)
        return err_set(t->err, E_INVALID, "%s: no object was given",
                       sentence_named(t, k, op->name));
    const struct meta *m = op->object->meta;
    if (strcmp(m->name, op->name) != 0 || strcmp(m->namespace_, op->ns) != 0)
        return err_field(t->err, E_INVALID, "metadata.name",
                         "the object's name %.100s/%.100s is not that of the request",
                         m->namespace_, m->name);
    if (strlen(m->name) > 253 || strlen(m->namespace_) > 63 || strlen(m->uid) > 64)
        return err_field(t->err, E_INVALID, "metadata", "name, namespace or uid is too long");
    for (unsigned i = 0; i < k->schema->n; i++) {
        const struct field *f = &k->schema->fields[i];

        if (f->type == T_OBJ && (f->flags & FIELD_REQ) &&
            !*(const void *const *)(const void *)((const char *)op->object->body + f->off))
            return err_field(t->err, E_INVALID, f->json, "%s: %s is required",
                             sentence_named(t, k, op->name), f->json);
    }
    for (uint32_t i = 0; i < m->n_ownerReferences; i++)
        if (strlen(m->ownerReferences[i].uid) > 64)
            return err_field(t->err, E_INVALID, "metadata.ownerReferences",
                             "a uid is longer than 64 bytes");
    return 0;
}

static int check_namespace(struct txn *t, const struct write_op *op, const struct kind *k)
{
    if (!k->namespaced)
        return 0;
    const struct object *ns = root_get(t->w, KIND_NAMESPACE, "", op->ns);
    if (!ns)
        return err_set(t->err, E_NOTFOUND, "namespaces \"%s\" not found", op->ns);
    if (ns->meta->deletionTimestamp)
        return err_set(t->err, E_FORBIDDEN,
                       "%s is forbidden: unable to create new content in namespace %s because it "
                       "is being terminated",
                       sentence_named(t, k, op->name), op->ns);
    return 0;
}

static int check_precondition(struct txn *t, const struct write_op *op, const struct kind *k,
                              const struct object *o)
{
    const char *named = sentence_named(t, k, op->name);

    if (*op->uid && strcmp(op->uid, o->meta->uid) != 0)
        return err_set(t->err, E_CONFLICT,
                       "Operation cannot be fulfilled on %s: Precondition failed: UID in "
                       "precondition: %s, UID in object "
                       "meta: %s",
                       named, op->uid, o->meta->uid);
    if (op->rv && op->rv != (uint64_t)o->meta->resourceVersion && !PLANTED("store.lost-update"))
        return err_set(t->err, E_CONFLICT,
                       "Operation cannot be fulfilled on %s: the object has been modified; please "
                       "apply your changes to "
                       "the latest version and try again",
                       named);
    return 0;
}

/* As in Kubernetes, what is being deleted gets no new finalizer. And no finalizer goes round the
 * rule that the indexes of an array end with it. */
static int check_finalizers(struct txn *t, const struct write_op *op, const struct kind *k,
                            const struct object *old)
{
    const struct meta *m = op->object->meta;

    if (root_feature_level(t->w) < FEATURE_GRANTS)
        return 0;
    for (uint32_t i = 0; i < m->n_finalizers; i++) {
        const char *name = m->finalizers[i];

        if (old && meta_finalizer(old->meta, name))
            continue;
        if (old && old->meta->deletionTimestamp)
            return err_field(t->err, E_INVALID, "metadata.finalizers",
                             "no new finalizers can be added if the object is being deleted; "
                             "found \"%.100s\"",
                             name);
        if (k->id == KIND_WORKLOAD && strcmp(name, "orphan") == 0)
            return err_field(t->err, E_INVALID, "metadata.finalizers",
                             "orphan is not possible for workloads, since the indexes of an array "
                             "end with it: leave it out");
    }
    return 0;
}

/* Everything but metadata and status is equal. */
static bool same_spec(struct txn *t, const struct kind *k, const void *a, const void *b)
{
    struct any_body *x = arena_memdup(t->a, a, k->schema->size),
                    *y = arena_memdup(t->a, b, k->schema->size);
    void **sx = txn_status(k, x), **sy = txn_status(k, y);

    x->metadata = y->metadata = NULL;
    if (sx)
        *sx = *sy = NULL;
    return body_equal(k->schema, x, y);
}

const char *workload_queue(struct txn *t, const struct object *o)
{
    const char *named = object_as(o, workload)->spec->queue;
    size_t n;

    if (*named) /* the queues are only looked at for who names none */
        return arena_strdup(t->a, strlen(named) <= 253 ? named : ""); /* none has a longer one */
    const struct object *const *queues = txn_all(t, KIND_QUEUE, &n);
    return arena_strdup(t->a, policy_queue_of(o, queues, n));
}

/* ---- create ---- */
static void status_first(struct txn *t, const struct kind *k, const struct object *o, void *body)
{
    void **status = txn_status(k, body);

    if (!status)
        return;
    if (k->id == KIND_WORKLOAD) {
        struct workload_status *s = arena_new(t->a, struct workload_status);
        struct workload *w = body;

        s->phase = PHASE_QUEUED;
        s->queuedAt = s->phaseSince = t->now;
        s->queue = workload_queue(t, o);
        s->reason = w->spec->suspend ? reason_text(REASON_SUSPENDED) : "";
        s->message = w->spec->suspend ? reason_sentence(REASON_SUSPENDED) : "";
        *status = s;
    } else if (k->id == KIND_NAMESPACE) {
        struct namespace_status *s = arena_new(t->a, struct namespace_status);

        s->phase = "Active";
        *status = s;
    } else if (!(k->flags & KINDF_RO)) { /* what Hanse alone writes comes with its status */
        *status = NULL;
    }
}

static int op_create(struct txn *t, const struct write_cmd *c, const struct write_op *op,
                     const struct kind *k, bool *ret_unchanged)
{
    const struct object *old = root_get(t->w, k->id, op->ns, op->name);

    if (old && c->if_absent) {
        *ret_unchanged = true;
        return 0;
    }
    if (old)
        return err_set(t->err, E_EXISTS, "%s already exists", sentence_named(t, k, op->name));
    int r = check_namespace(t, op, k);
    if (r < 0)
        return r;
    if (!*op->object->meta->uid)
        return err_field(t->err, E_INVALID, "metadata.uid", "%s: the proposer gave no uid",
                         sentence_named(t, k, op->name));
    if (k->id == KIND_WORKLOAD && root_workload_by_uid(t->w, op->object->meta->uid))
        return err_field(t->err, E_CONFLICT, "metadata.uid", "the uid %s is taken",
                         op->object->meta->uid);
    if (k->id == KIND_TOKEN && (r = token_admit(t, op->object)) < 0)
        return r;
    struct any_body *b = object_edit(op->object, t->a);
    b->metadata->creationTimestamp = t->now;
    b->metadata->deletionTimestamp = 0;
    b->metadata->generation = 1;
    b->metadata->revision = c->apply ? c->revision : "";
    status_first(t, k, op->object, b);
    if ((r = quotas_take(t, k, NULL, b)) < 0)
        return r;
    if (k->id == KIND_MIGRATION && (r = move_create(t, (struct migration *)(void *)b)) < 0)
        return r;
    (void)txn_put(t, k, NULL, b);
    return 0;
}

/* ---- update ---- */
/* A Workload that still waits follows its spec; one that holds something keeps its queue until it
 * lets go. */
void workload_follow_spec(struct txn *t, const struct kind *k, const struct object *now, void *body)
{
    struct workload *w = body;

    if (k->id != KIND_WORKLOAD || !w->status || w->status->phase != PHASE_QUEUED)
        return;
    w->status->queue = workload_queue(t, now);
    if (w->spec->suspend) {
        w->status->reason = reason_text(REASON_SUSPENDED);
        w->status->message = reason_sentence(REASON_SUSPENDED);
        w->status->nominated = NULL;
    } else if (strcmp(w->status->reason, reason_text(REASON_SUSPENDED)) == 0) {
        w->status->reason = w->status->message = "";
    }
}

static void keep_meta(struct meta *m, const struct meta *old)
{
    m->uid = old->uid;
    m->resourceVersion = old->resourceVersion;
    m->generation = old->generation;
    m->creationTimestamp = old->creationTimestamp;
    m->deletionTimestamp = old->deletionTimestamp;
    meta_grace_keep(m, old);
    m->revision = old->revision;
}

static bool leads_elsewhere(const struct target_connection *a, const struct target_connection *b)
{
    static const struct target_connection none = {
        .server = "", .user = "", .namespace_ = "", .region = ""};

    a = a ? a : &none;
    b = b ? b : &none;
    return strcmp(a->server, b->server) || strcmp(a->user, b->user) ||
           strcmp(a->namespace_, b->namespace_) || strcmp(a->region, b->region);
}

static const char *context_of(const struct target_spec *s)
{
    return s->kubernetes ? s->kubernetes->context : "";
}

/* What runs there would be looked for where it never was, and be told absent. */
static int check_connection(struct txn *t, const struct object *old, const void *body)
{
    const struct target_spec *now = ((const struct target *)body)->spec;

    if (old->kind->id != KIND_TARGET || root_feature_level(t->w) < FEATURE_GRANTS)
        return 0;
    const struct target_spec *was = object_as(old, target)->spec;
    if ((!leads_elsewhere(was->connection, now->connection) &&
         !strcmp(context_of(was), context_of(now))) ||
        root_count_of(t->w->target_held, key_str(old->meta->name)) == 0)
        return 0;
    return err_field(t->err, E_CONFLICT, "spec.connection",
                     "work is held on target %s, and would be looked for elsewhere: drain it first "
                     "(hanse drain %s), then change server, user, namespace, region or context",
                     old->meta->name, old->meta->name);
}

static int op_update(struct txn *t, const struct write_cmd *c, const struct write_op *op,
                     const struct kind *k, const struct object *old, bool *ret_unchanged)
{
    struct any_body *b = object_edit(op->object, t->a), *was = object_edit(old, t->a);
    void **status = txn_status(k, b), **stored = txn_status(k, was);

    keep_meta(b->metadata, old->meta);
    if (status)
        *status = *stored;
    if (k->id == KIND_MIGRATION) /* nobody gives it another cause */
        ((struct migration *)(void *)b)->spec->cause = object_as(old, migration)->spec->cause;
    bool same = same_spec(t, k, b, old->body);
    if (!same) {
        b->metadata->generation++;
        b->metadata->revision = "";
        workload_follow_spec(t, k, op->object, b);
    }
    if (c->apply)
        b->metadata->revision = c->revision;
    /* A document that somebody applies again does not name it. */
    if (meta_finalizer(old->meta, LOGS_FINALIZER) && strcmp(t->user, LOGS_USER) != 0)
        logs_hold(t, b->metadata);
    if (k->id == KIND_TARGET && meta_finalizer(old->meta, TARGET_FINALIZER) &&
        strcmp(t->user, TARGET_USER) != 0)
        target_hold(t, b->metadata);
    if (body_equal(k->schema, b, old->body)) {
        *ret_unchanged = true;
        return 0;
    }
    struct object *now = NULL;
    int r = object_make_within(k, b, STORE_OBJECT_MAX_BYTES, &now, t->err);
    if (r < 0)
        return r;
    r = object_validate_update(old, now, t->err);
    if (r == 0 && k->id == KIND_WORKLOAD && root_feature_level(t->w) >= FEATURE_GRANTS)
        r = array_validate_update(old, now, t->err);
    (void)object_unref(now);
    if (r == 0)
        r = check_connection(t, old, b);
    if (r == 0)
        r = quotas_take(t, k, old, b);
    if (r < 0)
        return r;
    const struct object *o = txn_put(t, k, old, b);
    if (!o->meta->deletionTimestamp || o->meta->n_finalizers > 0)
        return 0;
    bool unused;
    txn_settle(t, k->id == KIND_NAMESPACE ? op->name : op->ns,
               k->id == KIND_TARGET ? op->name : NULL);
    return txn_delete(t, o, NULL, PROPAGATE_DEFAULT, &unused); /* its last finalizer went */
}

static int op_update_status(struct txn *t, const struct write_op *op, const struct kind *k,
                            const struct object *old, bool *ret_unchanged)
{
    struct any_body *b = object_edit(old, t->a), *given = object_edit(op->object, t->a);
    void **status = txn_status(k, b), **now = txn_status(k, given);

    if (!status)
        return err_set(t->err, E_METHOD, "%s has no status", k->kind);
    if (k->id == KIND_WORKLOAD) { /* phase, epoch and placement move by PLACE and RUN only */
        struct workload_status *s = *status;
        const struct workload_status *from = *now;

        if (s && from) {
            s->conditions = from->conditions;
            s->n_conditions = from->n_conditions;
        }
    } else if (k->id != KIND_MIGRATION) { /* which moves by MIGRATE only */
        if (k->id == KIND_TARGET)
            machines_keep(t, *status, now);
        *status = *now;
    }
    if (body_equal(k->schema, b, old->body)) {
        *ret_unchanged = true;
        return 0;
    }
    (void)txn_put(t, k, old, b);
    return 0;
}

/* ---- the command ---- */
static int op_apply(struct txn *t, const struct write_cmd *c, const struct write_op *op,
                    bool *ret_unchanged)
{
    const struct kind *k = kind_by_id(op->kind);

    if (!k)
        return err_set(t->err, E_INVALID, "unknown kind %d", (int)op->kind);
    int r = check_bounds(t, op, k);
    if (r < 0)
        return r;
    const struct object *old = root_get(t->w, k->id, op->ns, op->name);
    if (op->verb == WRITE_CREATE || op->verb == WRITE_UPDATE)
        r = check_finalizers(t, op, k, op->verb == WRITE_UPDATE ? old : NULL);
    if (r < 0)
        return r;
    if (op->verb == WRITE_CREATE)
        return op_create(t, c, op, k, ret_unchanged);
    if (!old)
        return err_set(t->err, E_NOTFOUND, "%s not found", sentence_named(t, k, op->name));
    if ((r = check_precondition(t, op, k, old)) < 0)
        return r;
    if (k->id == KIND_TOKEN && op->verb != WRITE_DELETE)
        return err_set(t->err, E_METHOD, "a token is never changed: revoke it, and make another");
    struct object *kept = object_ref(old);
    if (op->verb == WRITE_UPDATE)
        r = op_update(t, c, op, k, kept, ret_unchanged);
    else if (op->verb == WRITE_UPDATE_STATUS)
        r = op_update_status(t, op, k, kept, ret_unchanged);
    else
        r = txn_delete(t, kept, op->graced ? &op->grace_seconds : NULL, op->propagation,
                       ret_unchanged);
    (void)object_unref(kept);
    return r;
}

/* Namespaces are made before, and deleted after, all else of the same command. */
static int op_pass(const struct write_op *op)
{
    if (op->kind != KIND_NAMESPACE)
        return 1;
    return op->verb == WRITE_DELETE ? 2 : 0;
}

static int check_queues(struct txn *t, const struct write_cmd *c)
{
    size_t n;

    for (uint32_t i = 0; i < c->n; i++) {
        if (c->ops[i].kind != KIND_QUEUE || c->ops[i].verb == WRITE_UPDATE_STATUS)
            continue;
        t->res->op = i;
        const struct object *const *queues = txn_all(t, KIND_QUEUE, &n);
        return policy_queues_check(queues, n, t->err);
    }
    return 0;
}

int apply_write(struct txn *t, const struct write_cmd *c)
{
    bool all_same = true, classes = false;
    int r;

    for (int pass = 0; pass < 3; pass++) {
        for (uint32_t i = 0; i < c->n; i++) {
            bool same = false;

            if (op_pass(&c->ops[i]) != pass)
                continue;
            t->res->op = i;
            arena_reset(t->a);
            if ((r = op_apply(t, c, &c->ops[i], &same)) < 0)
                return r;
            if (t->failed.code)
                return t->failed.code; /* told by command_apply */
            all_same = all_same && same;
            classes = classes || (c->ops[i].kind == KIND_GPU_CLASS && !same);
        }
    }
    if ((r = check_queues(t, c)) < 0)
        return r;
    t->res->op = 0;
    t->res->unchanged = c->n > 0 && all_same;
    if (c->apply)
        str_copy(t->w->revision, sizeof t->w->revision, c->revision);
    if (classes)
        facts_reclass(t);
    return 0;
}

/* ---- members ---- */
static bool member_equal(const struct member_info *a, const struct member_info *b)
{
    return a->id == b->id && strcmp(a->address, b->address) == 0 &&
           strcmp(a->api_address, b->api_address) == 0 && strcmp(a->name, b->name) == 0 &&
           a->feature_level == b->feature_level;
}

static int put_member(struct txn *t, const struct member_cmd *c)
{
    struct root *w = t->w;
    struct member_info old[64];

    if (*c->cluster_uid && *w->cluster_uid && strcmp(c->cluster_uid, w->cluster_uid) != 0)
        return err_set(t->err, E_CONFLICT, "this is cluster %s, not %s", w->cluster_uid,
                       c->cluster_uid);
    if (*c->cluster_uid)
        str_copy(w->cluster_uid, sizeof w->cluster_uid, c->cluster_uid);
    if (c->member.id == 0)
        return 0;
    size_t n = root_members(w, old, sizeof old / sizeof old[0]);
    for (size_t i = 0; i < n; i++) {
        if (old[i].id != c->member.id)
            continue;
        t->res->unchanged = !c->remove && member_equal(&old[i], &c->member);
        if (!t->res->unchanged)
            root_put_member(w, &c->member, c->remove);
        return 0;
    }
    if (c->remove)
        return err_set(t->err, E_NOTFOUND, "no member %llu", (unsigned long long)c->member.id);
    if (n == sizeof old / sizeof old[0])
        return err_set(t->err, E_LIMIT, "at most %zu members", n);
    root_put_member(w, &c->member, false);
    return 0;
}

int apply_member(struct txn *t, const struct member_cmd *c)
{
    int r = put_member(t, c);

    if (r == 0 && root_feature_level(t->w) >= FEATURE_GRANTS)
        ledger_cpus_begin(t->w);
    return r;
}
