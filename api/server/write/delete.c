/* delete and deletecollection. Preconditions of DeleteOptions hold; with finalizers the object
 * stays, marked, until the last one is gone (the backend's apply sees to that). */
#include "api/server/write/write_internal.h"

#define BATCH 500 /* objects of one write */

struct deleting {
    bool dry_run;
    const char *uid, *dry;
    uint64_t rv;
    bool fresh;
    int64_t grace_seconds;
    const int64_t *grace; /* of those seconds; NULL: none was asked for */
    enum api_propagation propagation;
    struct api_write_op op;
    char name[256], ns[64], object_uid[64];
    /* of a collection */
    struct api_write_op *ops; /* the batch under way; name and ns: the last object looked at */
    size_t n;
    uint64_t limit, done;               /* limit 0: all */
    char after_name[256], after_ns[64]; /* all up to here are done, once started */
    bool started;
};

#define GRACE_MAX_S 86400

/* Kubernetes takes what is below 0 for 1. */
static int grace_take(struct deleting *d, double seconds, struct err *err)
{
    if (!(seconds <= GRACE_MAX_S) || seconds != (double)(int64_t)seconds)
        return err_field(err, E_INVALID, "gracePeriodSeconds",
                         "must be whole seconds from 0 (at once) to %d", GRACE_MAX_S);
    d->grace_seconds = seconds < 0 ? 1 : (int64_t)seconds;
    d->grace = &d->grace_seconds;
    return 0;
}

/* In the query or in the body, which wins; kinds whose objects run nothing have none. */
static int delete_grace(struct call *c, const cJSON *options, struct deleting *d, struct err *err)
{
    const char *query = call_param(c, "gracePeriodSeconds");
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(options, "gracePeriodSeconds");
    uint64_t seconds;
    int r = 0;

    if (v && !cJSON_IsNull(v))
        r = grace_take(d, cJSON_IsNumber(v) ? v->valuedouble : GRACE_MAX_S + 1.0, err);
    else if (*query && strcmp(query, "-1") != 0)
        r = grace_take(d, call_u64(query, &seconds) ? GRACE_MAX_S + 1.0 : (double)seconds, err);
    else if (*query)
        r = grace_take(d, -1, err);
    if (c->kind->id != KIND_WORKLOAD)
        d->grace = NULL;
    return r;
}

/* Indexes end with their array. Who wants them to stay must not find them gone. */
static int propagation_take(const struct call *c, const char *policy, struct deleting *d,
                            struct err *err)
{
    static const char *const names[] = {
        [API_BACKGROUND] = "Background", [API_FOREGROUND] = "Foreground", [API_ORPHAN] = "Orphan"};

    for (int i = API_BACKGROUND; *policy && i <= API_ORPHAN; i++)
        if (!strcmp(policy, names[i]))
            d->propagation = (enum api_propagation)i;
    if (*policy && d->propagation == API_DEFAULT)
        return err_field(err, E_INVALID, "propagationPolicy",
                         "must be Background, Foreground or Orphan");
    if (d->propagation != API_ORPHAN || c->kind->id != KIND_WORKLOAD)
        return 0;
    return err_field(err, E_INVALID, "propagationPolicy",
                     "Orphan is not possible for workloads, since the indexes of an array end with "
                     "it: leave it out; to begin no more, set spec.suspend or array.parallelism");
}

/* Background is what happens anyway, unless the object's own finalizers ask for something else. */
static enum api_propagation propagation_of(const struct deleting *d, const struct object *o)
{
    return d->propagation == API_BACKGROUND && !o->meta->n_finalizers ? API_DEFAULT
                                                                      : d->propagation;
}

/* What is in the body is done, or refused: nobody's object goes because a condition was spelled
 * wrong. Fields that are not known are passed over, as Kubernetes does. */
enum option_type { OPTION_TEXT, OPTION_OBJECT, OPTION_BOOL };
static int option_of(const cJSON *o, const char *name, enum option_type type, const cJSON **ret,
                     struct err *err)
{
    static const char *const types[] = {"a string", "an object", "true or false"};
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);

    *ret = v && !cJSON_IsNull(v) ? v : NULL;
    if (!*ret || (type == OPTION_TEXT     ? cJSON_IsString(v)
                  : type == OPTION_OBJECT ? cJSON_IsObject(v)
                                          : cJSON_IsBool(v)))
        return 0;
    return err_field(err, E_SYNTAX, name, "DeleteOptions: expected %s", types[type]);
}

static int options_kind(const cJSON *o, struct err *err)
{
    const cJSON *kind, *version;

    if (!cJSON_IsObject(o))
        return err_set(err, E_SYNTAX, "the body of a DELETE is a DeleteOptions");
    if (option_of(o, "kind", OPTION_TEXT, &kind, err) ||
        option_of(o, "apiVersion", OPTION_TEXT, &version, err))
        return err->code;
    if (kind && *kind->valuestring && strcmp(kind->valuestring, "DeleteOptions") != 0)
        return err_field(err, E_SYNTAX, "kind", "expected DeleteOptions, not %.100s",
                         kind->valuestring);
    return 0;
}

static int options_preconditions(const cJSON *o, struct deleting *d, struct err *err)
{
    const cJSON *p, *uid, *rv;

    if (option_of(o, "preconditions", OPTION_OBJECT, &p, err) ||
        option_of(p, "uid", OPTION_TEXT, &uid, err) ||
        option_of(p, "resourceVersion", OPTION_TEXT, &rv, err))
        return err->code;
    if (uid)
        d->uid = uid->valuestring;
    if (rv && *rv->valuestring && call_u64(rv->valuestring, &d->rv))
        return err_field(err, E_INVALID, "preconditions.resourceVersion", "must be a number");
    if (rv && *rv->valuestring && !d->rv)
        d->rv = UINT64_MAX; /* no object has version 0: it never holds */
    return 0;
}

static int options_dry(const cJSON *o, bool *dry, struct err *err)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, "dryRun"), *item;

    if (!v || cJSON_IsNull(v))
        return 0;
    if (!cJSON_IsArray(v))
        return err_field(err, E_SYNTAX, "dryRun", "DeleteOptions: expected [\"All\"]");
    cJSON_ArrayForEach(item, v)
    {
        if (!cJSON_IsString(item) || strcmp(item->valuestring, "All") != 0)
            return err_field(err, E_SYNTAX, "dryRun", "DeleteOptions: expected [\"All\"]");
        *dry = true;
    }
    return 0;
}

/* orphanDependents is the older spelling; both at once say two things. */
static int options_orphan(const struct call *c, const cJSON *o, const char **policy,
                          struct err *err)
{
    const cJSON *told = NULL, *named = NULL;
    const char *query = call_param(c, "orphanDependents");
    bool orphan;

    if (option_of(o, "orphanDependents", OPTION_BOOL, &told, err) ||
        option_of(o, "propagationPolicy", OPTION_TEXT, &named, err))
        return err->code;
    if (*query && !strstr(" true True 1 false False 0 ", arena_printf(c->mem, " %s ", query)))
        return err_field(err, E_SYNTAX, "orphanDependents", "must be true or false");
    if (named)
        *policy = named->valuestring;
    if (!told && !*query && !call_flag(c, "orphanDependents"))
        return 0;
    if (**policy)
        return err_field(err, E_INVALID, "orphanDependents",
                         "it and propagationPolicy exclude each other");
    orphan = told ? cJSON_IsTrue(told) : call_flag(c, "orphanDependents");
    *policy = orphan ? "Orphan" : "Background";
    return 0;
}

static int delete_options(struct call *c, struct deleting *d, struct err *err)
{
    const char *policy = call_param(c, "propagationPolicy");
    const cJSON *o = NULL;

    if (call_dry_run(c, &d->dry_run, err))
        return err->code;
    if (c->m->body.n) {
        o = call_body(c, err);
        if (!o || options_kind(o, err) || options_preconditions(o, d, err) ||
            options_dry(o, &d->dry_run, err))
            return err->code;
    }
    if (options_orphan(c, o, &policy, err) || propagation_take(c, policy, d, err))
        return err->code;
    if (delete_grace(c, o, d, err))
        return err->code;
    c->dry_run = d->dry_run;
    return 0;
}

static void success(struct call *c, const struct deleting *d)
{
    AUTO_BUF b = {0};

    buf_init(&b, 1 << 16);
    buf_str(&b, "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Success\","
                "\"details\":{");
    json_pair(&b, "name", d->name, true);
    json_pair(&b, "group", c->kind->group, true);
    json_pair(&b, "kind", c->kind->plural, true);
    json_pair(&b, "uid", d->object_uid, false);
    buf_str(&b, "}}\n");
    c->repr.yaml = false;
    call_reply_buf(c, 200, &b);
}

static void delete_go(struct call *c);

/* Whatever object has the name is meant. */
static bool deletes_again(const struct call *c)
{
    const struct deleting *d = c->state;

    return !d->rv && !d->uid && c->attempts < 5;
}

static void deleted(void *arg, const struct api_result *r, const struct err *err)
{
    struct call *c = arg;
    struct deleting *d = c->state;
    AUTO_BUF b = {0};

    c->settled = c->key && r->final;
    if (err && err->code) {
        if (err->code == E_CONFLICT && !c->settled && deletes_again(c)) {
            c->attempts++;
            call_fresh(c, 0, delete_go);
            return;
        }
        c->retry_s = r->retry_s;
        call_fail(c, err);
        return;
    }
    if (c->settled && r->repeated) { /* what has the name now may be another */
        d->object_uid[0] = 0;
        success(c, d);
        return;
    }
    c->api->counters.writes++;
    const struct object *o =
        r->view && !d->dry_run ? c->api->ops->get(r->view, c->kind, d->ns, d->name) : NULL;
    if (!o || strcmp(o->meta->uid, d->object_uid) != 0) {
        success(c, d);
        return;
    }
    buf_init(&b, ANSWER_MAX);
    repr_object(c->api, r->view, &c->repr, o, &b);
    call_reply_buf(c, 200, &b);
}

static void delete_go(struct call *c)
{
    struct deleting *d = c->state;
    const struct object *o = call_get(c, c->kind, c->ns, c->name);
    struct err e = {0};
    struct api_write w = {.user = c->asker,
                          .as = c->as ? c->as->user : NULL,
                          .ops = &d->op,
                          .n = 1,
                          .dry_run = d->dry_run,
                          .deadline_ms = DEADLINE_MS};

    if (!o)
        (void)call_not_found(c->kind, c->name, &e);
    else if (d->uid && strcmp(d->uid, o->meta->uid) != 0)
        (void)err_set(&e, E_CONFLICT,
                      "Precondition failed: UID in precondition: %s, UID in object meta: %s",
                      d->uid, o->meta->uid);
    else if (d->rv && d->rv != (uint64_t)o->meta->resourceVersion)
        (void)err_set(&e, E_CONFLICT, "Precondition failed: the resourceVersion is %lld",
                      (long long)o->meta->resourceVersion);
    if (e.code && !d->fresh) { /* our view may be behind */
        d->fresh = true;
        call_fresh(c, 0, delete_go);
        return;
    }
    if (e.code || !o) {
        call_fail(c, &e);
        return;
    }
    str_copy(d->name, sizeof d->name, c->name);
    str_copy(d->ns, sizeof d->ns, c->ns ? c->ns : "");
    str_copy(d->object_uid, sizeof d->object_uid, o->meta->uid);
    d->op = (struct api_write_op){.verb = API_DELETE,
                                  .kind = c->kind,
                                  .ns = d->ns,
                                  .name = d->name,
                                  .uid = d->object_uid,
                                  .rv = d->rv,
                                  .grace_seconds = d->grace,
                                  .propagation = propagation_of(d, o)};
    if (c->api->ops->check && c->api->ops->check(c->api->b, c->view, &w, &e)) {
        c->by_state = true;
        call_fail(c, &e);
        return;
    }
    w.again = deletes_again(c);
    write_name(c, &w);
    c->api->ops->write(c->api->b, &w, deleted, c);
}

void write_delete(struct call *c)
{
    struct deleting *d = arena_new(c->mem, struct deleting);
    struct err e = {0};

    c->state = d;
    if (repr_choose(c, &e) || delete_options(c, d, &e))
        call_fail(c, &e);
    else
        delete_go(c);
}

/* ---- all that match: in batches, each one write, from one view on ---- */
/* What is created meanwhile stays; so what is deleted is bounded by what there was at the start,
 * and an object that its finalizers keep is not seen twice. */
static bool collect(const struct object *o, void *arg)
{
    struct call *c = arg;
    struct deleting *d = c->state;

    if (d->n == BATCH || (d->limit && d->done + d->n == d->limit))
        return false;
    if (selector_holds(c->selector, o))
        d->ops[d->n++] = (struct api_write_op){.verb = API_DELETE,
                                               .kind = c->kind,
                                               .ns = o->meta->namespace_,
                                               .name = o->meta->name,
                                               .uid = o->meta->uid,
                                               .grace_seconds = d->grace,
                                               .propagation = propagation_of(d, o)};
    str_copy(d->ns, sizeof d->ns, o->meta->namespace_);
    str_copy(d->name, sizeof d->name, o->meta->name);
    return true;
}

static void collection_go(struct call *c);

static void collection_over(void *arg, const struct api_result *r, const struct err *err)
{
    struct call *c = arg;
    struct deleting *d = c->state;

    c->settled = c->key && r->final;
    if (err && err->code) {
        call_fail(c, err);
        return;
    }
    d->name[0] = 0; /* the answer is about the collection */
    success(c, d);
}

static void collection_deleted(void *arg, const struct api_result *r, const struct err *err)
{
    struct call *c = arg;
    struct deleting *d = c->state;

    c->settled = c->key && r && r->final;
    if (err && err->code) {
        /* Something of the batch went or was made anew: the same stretch again, as it is now. */
        if ((err->code == E_CONFLICT || err->code == E_NOTFOUND) && !c->settled &&
            c->attempts++ < 5) {
            str_copy(d->ns, sizeof d->ns, d->after_ns);
            str_copy(d->name, sizeof d->name, d->after_name);
            call_fresh(c, 0, collection_go);
            return;
        }
        c->retry_s = r ? r->retry_s : 0;
        call_fail(c, err);
        return;
    }
    if (c->settled) { /* it was carried out before: what was made since stays */
        collection_over(c, r, NULL);
        return;
    }
    c->api->counters.writes++;
    c->attempts = 0;
    d->done += d->n;
    d->started = true;
    str_copy(d->after_ns, sizeof d->after_ns, d->ns);
    str_copy(d->after_name, sizeof d->after_name, d->name);
    collection_go(c);
}

static void collection_go(struct call *c)
{
    struct deleting *d = c->state;
    struct api_write w = {.user = c->asker,
                          .as = c->as ? c->as->user : NULL,
                          .dry_run = d->dry_run,
                          .deadline_ms = DEADLINE_MS};
    struct err e = {0};

    d->n = 0;
    if (!d->limit || d->done < d->limit)
        c->api->ops->scan(c->view, c->kind, c->ns, d->started ? d->after_ns : NULL,
                          d->started ? d->after_name : NULL, collect, c);
    if (!d->n && (!c->key || d->dry_run)) {
        collection_over(c, &(struct api_result){0}, NULL);
        return;
    }
    w.ops = d->ops;
    w.n = d->n;
    w.again = w.part = d->n > 0; /* the end is a write of its own: from then on it was done */
    write_name(c, &w);
    if (!d->n)
        c->api->ops->write(c->api->b, &w, collection_over, c);
    else if (c->api->ops->check && c->api->ops->check(c->api->b, c->view, &w, &e))
        collection_deleted(c, NULL, &e);
    else
        c->api->ops->write(c->api->b, &w, collection_deleted, c);
}

void write_delete_collection(struct call *c)
{
    struct deleting *d = arena_new(c->mem, struct deleting);
    const char *limit = call_param(c, "limit");
    struct err e = {0};

    c->state = d;
    d->ops = arena_array(c->mem, struct api_write_op, BATCH);
    if (repr_choose(c, &e) || delete_options(c, d, &e) ||
        selector_parse(call_param(c, "labelSelector"), call_param(c, "fieldSelector"), c->kind,
                       &c->selector, &e))
        call_fail(c, &e);
    else if (d->uid || d->rv)
        call_fail_code(c, E_INVALID,
                       "preconditions are of one object: leave them out, or delete it by its name");
    else if (*limit && call_u64(limit, &d->limit))
        call_fail_code(c, E_SYNTAX, "limit must be a number");
    else
        call_fresh(c, 0, collection_go);
}
