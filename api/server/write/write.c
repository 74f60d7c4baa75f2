/* create, update and patch: compute the new object from the newest state, send it, and compute
 * again when somebody was faster and the caller did not name a version. Our own view may be behind;
 * before a refusal is told that rests on it, the state is read afresh once. An outcome that is not
 * known is told as that, never as a failure. */
#include "api/server/write/write_internal.h"

#define ATTEMPTS_MAX 8

enum patch_type { PATCH_MERGE = 1, PATCH_JSON, PATCH_STRATEGIC, PATCH_APPLY };

/* ---- sending ---- */
static void attempt_cb(struct call *c)
{
    writing_attempt(c);
}

/* Computes again on a state that is certainly new enough; false when that was done already. */
static bool try_again(struct call *c)
{
    struct writing *w = c->state;

    if (c->attempts >= ATTEMPTS_MAX)
        return false;
    c->attempts++;
    w->fresh = true;
    call_fresh(c, 0, attempt_cb);
    return true;
}

/* The object as this write left it, also when somebody has changed or deleted it since: else the
 * client takes another's change for its own, and overwrites it at the next one. */
struct left {
    const struct kind *kind;
    const char *ns, *name; /* NULL: of any name */
    uint64_t rv;
    const struct object *o;
    bool created;
};
static bool left_each(uint64_t rv, const struct kind *k, const struct object *before,
                      const struct object *after, void *arg)
{
    struct left *l = arg;

    if (rv == l->rv && after && k == l->kind &&
        (!l->name || (!strcmp(after->meta->name, l->name) &&
                      !strcmp(after->meta->namespace_, l->ns ? l->ns : "")))) {
        l->o = after;
        l->created = !before;
    }
    return false;
}
static void left_find(struct call *c, const struct api_result *r, struct left *l)
{
    struct err e;

    l->rv = r->rv;
    if (r->view && r->rv && !r->unchanged)
        (void)c->api->ops->changes(r->view, r->rv - 1, left_each, l, &e);
}
static const struct object *as_left(struct call *c, const struct api_result *r, bool *ret_created)
{
    const struct writing *w = c->state;
    struct left l = {.kind = w->op.kind, .ns = w->op.ns, .name = w->op.name};
    const struct object *o =
        r->view ? c->api->ops->get(r->view, w->op.kind, w->op.ns, w->op.name) : w->now;

    *ret_created = w->created_status == 201;
    if (o && (w->dry_run || (uint64_t)o->meta->resourceVersion < r->rv))
        return o;
    left_find(c, r, &l);
    if (l.o) {
        *ret_created = l.created;
        return l.o;
    }
    if (o && (uint64_t)o->meta->resourceVersion == r->rv)
        return o;
    return o && !r->unchanged ? o : w->now;
}
static void tell_object(struct call *c, const struct api_result *r, const struct object *o,
                        int status)
{
    AUTO_BUF b = {0};

    c->api->counters.writes++;
    buf_init(&b, ANSWER_MAX);
    if (o)
        repr_object(c->api, r->view, &c->repr, o, &b);
    else
        buf_str(&b, "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},"
                    "\"status\":\"Success\"}");
    buf_char(&b, '\n');
    call_reply_buf(c, status, &b);
}
/* Nothing has moved in a dry run: the version is the one that the object has, none when it would be
 * new. Else clients see a change where there is none (kubectl diff). A new reference, or NULL. */
static int as_tried(struct call *c, const struct object *o, struct object **ret, struct err *err)
{
    struct any_kind *b = o ? object_edit(o, c->mem) : NULL;
    const struct writing *w = c->state;

    if (!b)
        return 0;
    b->metadata->resourceVersion = (int64_t)w->op.rv;
    return object_make_within(o->kind, b, OBJECT_MADE_MAX_BYTES, ret, err);
}

static void tell_written(struct call *c, const struct api_result *r)
{
    const struct writing *w = c->state;
    bool created;
    const struct object *o = as_left(c, r, &created);
    struct object *tried = NULL;
    struct err e = {0};

    if (w->dry_run && as_tried(c, o, &tried, &e)) {
        call_fail_at(c, &e, c->kind, w->op.name);
        return;
    }
    tell_object(c, r, tried ? tried : o, created ? 201 : 200);
    (void)object_unref(tried);
}
void write_tell_before(struct call *c, const struct api_result *r)
{
    struct left l = {.kind = c->kind, .ns = c->ns, .name = c->name};
    bool deletes = c->m->method == HTTP_DELETE_;

    if (c->kind && !deletes)
        left_find(c, r, &l);
    if (!l.o && c->kind && c->name && r->view && !deletes)
        l.o = c->api->ops->get(r->view, c->kind, c->ns ? c->ns : "", c->name);
    tell_object(c, r, l.o, l.created ? 201 : 200);
}
/* Somebody was faster than what this was computed from. */
static bool computes_again(const struct writing *w, int code)
{
    if (!w->retry)
        return false;
    return w->op.verb != API_CREATE ? code == E_CONFLICT || code == E_NOTFOUND
                                    : code == E_EXISTS && w->patch == PATCH_APPLY;
}
static void written(void *arg, const struct api_result *r, const struct err *err)
{
    struct call *c = arg;
    struct writing *w = c->state;

    if (err && err->code) {
        if (err->code == E_CONFLICT)
            c->api->counters.conflicts++;
        c->retry_s = r->retry_s;
        c->settled = c->key && r->final;
        if (!c->settled && computes_again(w, err->code) && try_again(c))
            return;
        call_fail_at(c, err, c->kind, w->op.name);
        return;
    }
    tell_written(c, r);
}

static void write_send(struct call *c)
{
    struct writing *w = c->state;
    struct err e = {0};
    struct api_write wr = {.user = c->asker,
                           .as = c->as ? c->as->user : NULL,
                           .ops = &w->op,
                           .n = 1,
                           .dry_run = w->dry_run,
                           .again = w->retry && c->attempts < ATTEMPTS_MAX &&
                                    (w->op.verb != API_CREATE || w->patch == PATCH_APPLY),
                           .deadline_ms = DEADLINE_MS};

    if (c->api->ops->check && c->api->ops->check(c->api->b, c->view, &wr, &e)) {
        if (!w->fresh && try_again(c))
            return;
        c->by_state = true;
        call_fail_at(c, &e, c->kind, w->op.name);
        return;
    }
    write_name(c, &wr);
    c->api->ops->write(c->api->b, &wr, written, c);
}

int write_build(struct call *c, const struct object *old, cJSON *tree, struct err *err)
{
    struct writing *w = c->state;
    struct err warning = {0};
    struct build b = {.kind = c->kind,
                      .old = old,
                      .status = w->status,
                      .decode = w->decode,
                      .user = c->who.user,
                      .owners = &w->owners};

    int r = object_build(c->api, &b, tree, &w->now, w->decode ? &warning : err);
    if (r && w->decode && err)
        *err = warning;
    if (!r && w->warn && *warning.text)
        c->warning = arena_strdup(c->mem, warning.text);
    if (!r && !w->status)
        call_warn_unkept(c, w->now);
    if (!r)
        r = rbac_escalation(c, w->now, err);
    if (r)
        return r;
    w->op.verb = !old ? API_CREATE : w->status ? API_UPDATE_STATUS : API_UPDATE;
    w->op.kind = c->kind;
    w->op.ns = w->now->meta->namespace_;
    w->op.name = w->now->meta->name;
    w->op.object = w->now;
    w->op.rv = old ? (uint64_t)old->meta->resourceVersion : 0;
    w->op.uid = old ? old->meta->uid : NULL;
    return 0;
}

static int hold(const struct writing *w, const struct object *old, struct err *err)
{
    if (w->uid && strcmp(w->uid, old->meta->uid) != 0)
        return err_set(err, E_CONFLICT,
                       "Precondition failed: UID in precondition: %s, UID in object meta: %s",
                       w->uid, old->meta->uid);
    if (w->rv && w->rv != (uint64_t)old->meta->resourceVersion)
        return err_set(err, E_CONFLICT,
                       "Operation cannot be fulfilled on %s \"%s\": the object has been modified; "
                       "please apply your changes to the latest version and try again",
                       old->kind->plural, old->meta->name);
    return 0;
}

void writing_attempt(struct call *c)
{
    struct writing *w = c->state;
    struct err e = {0};
    const struct object *old = NULL;
    int r = 0;

    w->fresh |= c->fresh;
    owners_free(&w->owners);
    w->now = object_unref(w->now);
    c->conflicts = NULL;
    c->warning = NULL;
    if (c->name)
        old = call_get(c, c->kind, c->ns, c->name);
    if (c->name && !old && w->patch != PATCH_APPLY)
        r = call_not_found(c->kind, c->name, &e);
    if (!r && old && w->op.verb != API_CREATE)
        r = hold(w, old, &e);
    if (!r && !old && c->kind->namespaced)
        r = namespace_ready(c, c->ns, &e);
    c->by_state = old != NULL;
    owners_load(&w->owners, old);
    if (!r)
        r = w->compute(c, old, &e);
    if (!r) {
        write_send(c);
        return;
    }
    /* The refusal may come from a state that is behind. */
    if (!w->fresh && r != E_SYNTAX && r != E_MEDIA && r != E_TOOLARGE && try_again(c))
        return;
    call_fail_at(c, &e,
                 e.code == E_NOTFOUND && strstr(e.text, "namespaces ") ? kind_by_id(KIND_NAMESPACE)
                                                                       : c->kind,
                 c->name ? c->name : write_meta(w->body, "name"));
}

/* ---- create ---- */
static bool tracked(const struct kind *k)
{
    return k->id != KIND_EVENT && k->id != KIND_LEASE;
}

static int create_compute(struct call *c, const struct object *old, struct err *err)
{
    struct writing *w = c->state;
    cJSON *tree = cJSON_Duplicate(w->body, true);

    (void)old;
    if (c->kind->id == KIND_SECRET && secret_fold(tree, err)) {
        cJSON_Delete(tree);
        return E_INVALID;
    }
    if (tracked(c->kind))
        owners_update(&w->owners, c->kind, NULL, tree, w->manager, "", call_now(c));
    int r = write_build(c, NULL, tree, err);
    cJSON_Delete(tree);
    return r;
}

static int create_name(struct call *c, cJSON *body, struct err *err)
{
    const char *prefix = write_meta(body, "generateName");
    cJSON *meta = cJSON_GetObjectItemCaseSensitive(body, "metadata");
    char suffix[6];

    if (*write_meta(body, "resourceVersion"))
        return err_field(err, E_SYNTAX, "metadata.resourceVersion",
                         "must not be given for an object to be created");
    cJSON_DeleteItemFromObjectCaseSensitive(meta, "uid");
    if (*write_meta(body, "name"))
        return 0;
    if (!*prefix)
        return err_field(err, E_INVALID, "metadata.name", "name or generateName is required");
    write_random_name(c, suffix, sizeof suffix);
    cJSON_DeleteItemFromObjectCaseSensitive(meta, "name");
    cJSON_AddStringToObject(meta, "name", arena_printf(c->mem, "%s%s", prefix, suffix));
    return 0;
}

void write_create(struct call *c)
{
    struct err e = {0};
    struct writing *w;

    if (writing_begin(c, &w, &e) || !(w->body = call_body(c, &e)) ||
        write_names_match(c, w->body, NULL, &e) || create_name(c, w->body, &e)) {
        call_fail(c, &e);
        return;
    }
    w->created_status = 201;
    w->op.verb = API_CREATE;
    w->compute = create_compute;
    writing_attempt(c);
}

/* ---- update ---- */
static int update_tree(struct call *c, const struct object *old, cJSON *tree, struct err *err)
{
    struct writing *w = c->state;
    cJSON *before;
    int r = 0;

    if (c->kind->id == KIND_SECRET)
        r = secret_fold(tree, err);
    if (!r && tracked(c->kind)) {
        r = object_tree(c->api, old, &before, err);
        if (r)
            return r;
        owners_update(&w->owners, c->kind, before, tree, w->manager, w->status ? "status" : "",
                      call_now(c));
        cJSON_Delete(before);
    }
    return r ? r : write_build(c, old, tree, err);
}

static int update_compute(struct call *c, const struct object *old, struct err *err)
{
    struct writing *w = c->state;
    cJSON *tree = cJSON_Duplicate(w->body, true);
    int r = update_tree(c, old, tree, err);

    cJSON_Delete(tree);
    return r;
}

void write_update(struct call *c)
{
    struct err e = {0};
    struct writing *w;

    if (writing_begin(c, &w, &e) || !(w->body = call_body(c, &e)) ||
        write_names_match(c, w->body, c->name, &e) || write_preconditions(w, w->body, &e)) {
        call_fail(c, &e);
        return;
    }
    w->compute = update_compute;
    writing_attempt(c);
}

/* ---- patch ---- */
static int apply_compute(struct call *c, const struct object *old, struct err *err)
{
    struct writing *w = c->state;
    cJSON *live = old ? NULL : cJSON_CreateObject();
    int r = old ? object_tree(c->api, old, &live, err) : 0;
    const char *sub = w->status ? "status" : "";

    if (r)
        return r;
    cJSON *applied = cJSON_Duplicate(w->body, true);
    if (!old && w->rv)
        r = err_set(err, E_CONFLICT, "there is no %s \"%s\" with that resourceVersion",
                    c->kind->plural, c->name);
    if (!r && !old) {
        struct rbac_ask ask = {
            .verb = "create", .group = c->group, .resource = c->res, .ns = c->ns, .name = c->name};
        r = w->status ? call_not_found(c->kind, c->name, err) : rbac_check(c, &ask, err);
        w->created_status = 201;
        cJSON_AddStringToObject(live, "apiVersion", kind_api_version(c->kind));
        cJSON_AddStringToObject(live, "kind", c->kind->kind);
        cJSON *meta = cJSON_AddObjectToObject(live, "metadata");
        cJSON_AddStringToObject(meta, "name", c->name);
        if (c->kind->namespaced)
            cJSON_AddStringToObject(meta, "namespace", c->ns);
    } else {
        w->created_status = 200;
    }
    if (!r && c->kind->id == KIND_SECRET)
        r = secret_fold(applied, err);
    if (!r)
        r = ssa_merge(c->kind, live, applied, &w->owners, w->manager, sub, w->force, call_now(c),
                      c->mem, &c->conflicts, err);
    if (!r)
        r = write_build(c, old, live, err);
    cJSON_Delete(live);
    cJSON_Delete(applied);
    return r;
}

/* A JSON patch may change the version: that is a condition, as it is in a body. */
static int json_patch_version(struct writing *w, const cJSON *tree, const struct object *old,
                              struct err *err)
{
    int r = write_preconditions(w, tree, err);

    if (!r)
        r = hold(w, old, err);
    w->rv = 0;
    w->uid = NULL;
    w->retry = true;
    return r;
}

static int patch_compute(struct call *c, const struct object *old, struct err *err)
{
    struct writing *w = c->state;
    const cJSON *given;
    cJSON *tree = NULL;
    int r = object_tree(c->api, old, &tree, err);

    if (r)
        return r;
    if (w->patch == PATCH_MERGE)
        merge_patch(tree, w->body);
    else if (w->patch == PATCH_JSON)
        r = json_patch(&tree, w->body, err);
    else
        r = strategic_patch(c->kind->schema, tree, w->body, err);
    if (!r && !cJSON_IsObject(tree))
        r = err_set(err, E_INVALID, "the patch leaves no object");
    if (!r)
        r = write_names_match(c, tree, c->name, err);
    if (!r && w->patch == PATCH_JSON)
        r = json_patch_version(w, tree, old, err);
    if (!r && w->patch == PATCH_JSON) {
        given = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(tree, "metadata"),
                                                 "managedFields");
        owners_read(&w->owners, given, c->mem);
    }
    if (!r)
        r = update_tree(c, old, tree, err);
    cJSON_Delete(tree);
    return r;
}

static int patch_type(struct call *c, struct writing *w, struct err *err)
{
    static const struct {
        const char *type;
        enum patch_type patch;
    } types[] = {{"application/merge-patch+json", PATCH_MERGE},
                 {"application/json-patch+json", PATCH_JSON},
                 {"application/strategic-merge-patch+json", PATCH_STRATEGIC},
                 {"application/apply-patch+yaml", PATCH_APPLY}};
    const char *have = http_header_get(c->rq, "content-type");

    for (size_t i = 0; have && i < sizeof types / sizeof *types; i++)
        if (!strncasecmp(have, types[i].type, strlen(types[i].type)))
            w->patch = (int)types[i].patch;
    if (!w->patch)
        return err_set(err, E_MEDIA,
                       "patches are application/merge-patch+json, json-patch+json, "
                       "strategic-merge-patch+json or apply-patch+yaml");
    return 0;
}

static int patch_body(struct call *c, struct writing *w, struct err *err)
{
    cJSON *j = NULL;
    int r;

    if (w->patch != PATCH_JSON) {
        w->body = call_body(c, err);
        return w->body ? 0 : err->code;
    }
    r = json_parse(c->m->body.p, c->m->body.n, &j, err);
    w->body = call_own(c, j);
    return r;
}

void write_patch(struct call *c)
{
    struct err e = {0};
    struct writing *w;
    int r = writing_begin(c, &w, &e);

    if (!r)
        r = patch_type(c, w, &e);
    if (!r)
        r = patch_body(c, w, &e);
    if (!r && w->patch != PATCH_JSON)
        r = write_preconditions(w, w->body, &e);
    if (!r && w->patch == PATCH_APPLY) {
        r = write_names_match(c, w->body, c->name, &e);
        if (!r && !*call_param(c, "fieldManager"))
            r = err_field(&e, E_SYNTAX, "fieldManager", "fieldManager is required for apply patch");
        w->force = call_flag(c, "force");
    }
    if (r) {
        call_fail(c, &e);
        return;
    }
    w->compute = w->patch == PATCH_APPLY ? apply_compute : patch_compute;
    writing_attempt(c);
}
