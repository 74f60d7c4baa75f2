/* GitOps: a whole set of documents becomes one write, all or nothing. Each document is applied as
 * server-side apply by the manager "hanse-apply:SET" would (forced), so what the set no longer
 * names goes and what others own stays; with prune, objects of the set that are in no document are
 * deleted. The commit is written on every object. */
#include "api/server/write/write_internal.h"

#define TRIES 5

enum { ACT_CREATED, ACT_CONFIGURED, ACT_UNCHANGED, ACT_PRUNED };
static const char *const act_text[] = {"created", "configured", "unchanged", "pruned"};

struct item {
    const struct kind *kind;
    const char *ns, *name;
    const cJSON *doc; /* NULL = pruned */
    int index, action;
    const struct object *old; /* of the view */
    bool deleting;            /* and is deleted: what is applied goes with it */
    struct object *now;
};
struct applying {
    const cJSON *docs;
    const char *revision, *set, *manager;
    bool prune, dry_run;
    struct item *items;
    struct api_write_op *ops;
    size_t n, cap;
    struct err err;
    unsigned tries;
};

static void applying_drop(struct applying *s)
{
    for (size_t i = 0; i < s->n; i++)
        s->items[i].now = object_unref(s->items[i].now);
    s->n = 0;
}

static void applying_fini(struct call *c)
{
    applying_drop(c->state);
}

static const char *text(const cJSON *o, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsString(v) ? v->valuestring : "";
}

static struct item *item_add(struct call *c, struct applying *s)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 64;
        struct item *more = arena_array(c->mem, struct item, cap);
        if (s->n)
            memcpy(more, s->items, s->n * sizeof *more);
        s->items = more;
        s->cap = cap;
    }
    s->items[s->n] = (struct item){0};
    return &s->items[s->n++];
}

/* ---- one document ---- */
static int item_kind(struct call *c, struct item *it, struct err *err)
{
    const cJSON *meta = cJSON_GetObjectItemCaseSensitive(it->doc, "metadata");

    if (!cJSON_IsObject(it->doc))
        return err_set(err, E_INVALID, "must be an object");
    it->kind = kind_by_api(text(it->doc, "apiVersion"), text(it->doc, "kind"));
    if (!it->kind)
        return err_field(err, E_INVALID, "kind",
                         "no such kind: apiVersion \"%.100s\", kind \"%.60s\"",
                         text(it->doc, "apiVersion"), text(it->doc, "kind"));
    if (it->kind->flags & KINDF_RO)
        return err_field(err, E_INVALID, "kind", "%s are written by Hanse itself",
                         it->kind->plural);
    it->name = text(meta, "name");
    if (!*it->name)
        return err_field(err, E_INVALID, "metadata.name", "is required");
    it->ns = it->kind->namespaced ? (*text(meta, "namespace") ? text(meta, "namespace") : "default")
                                  : "";
    (void)c;
    return 0;
}

static int item_twice(const struct applying *s, const struct item *it, struct err *err)
{
    for (const struct item *o = s->items; o < it; o++)
        if (o->kind == it->kind && !strcmp(o->name, it->name) && !strcmp(o->ns, it->ns))
            return err_field(err, E_INVALID, "metadata.name", "%s \"%s\" is also document %d",
                             it->kind->kind, it->name, o->index);
    return 0;
}

static bool namespace_made(const struct applying *s, const char *ns)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->items[i].kind && s->items[i].kind->id == KIND_NAMESPACE &&
            !strcmp(s->items[i].name, ns))
            return true;
    return false;
}

static cJSON *item_applied(const struct applying *s, const struct item *it)
{
    cJSON *doc = cJSON_Duplicate(it->doc, true),
          *meta = cJSON_GetObjectItemCaseSensitive(doc, "metadata");
    cJSON *notes = cJSON_GetObjectItemCaseSensitive(meta, "annotations");
    static const char *const stamped[] = {"uid", "resourceVersion", "creationTimestamp",
                                          "managedFields", "generation"};

    for (size_t i = 0; i < sizeof stamped / sizeof *stamped; i++)
        cJSON_DeleteItemFromObjectCaseSensitive(meta, stamped[i]);
    cJSON_DeleteItemFromObjectCaseSensitive(doc, "status");
    if (*it->ns && !*text(meta, "namespace"))
        cJSON_AddStringToObject(meta, "namespace", it->ns);
    if (!cJSON_IsObject(notes)) {
        cJSON_DeleteItemFromObjectCaseSensitive(meta, "annotations");
        notes = cJSON_AddObjectToObject(meta, "annotations");
    }
    cJSON_DeleteItemFromObjectCaseSensitive(notes, SET_ANNOTATION);
    cJSON_AddStringToObject(notes, SET_ANNOTATION, s->set);
    return doc;
}

/* Without what the server stamps. */
static int bare(struct api *a, const struct object *o, cJSON **ret, struct err *err)
{
    static const char *const stamped[] = {"resourceVersion", "managedFields", "generation",
                                          "revision"};
    int r = object_tree(a, o, ret, err);
    cJSON *meta = r == 0 ? cJSON_GetObjectItemCaseSensitive(*ret, "metadata") : NULL;

    for (size_t i = 0; i < sizeof stamped / sizeof *stamped; i++)
        cJSON_DeleteItemFromObjectCaseSensitive(meta, stamped[i]);
    return r;
}

static int item_changed(struct call *c, struct item *it, struct err *err)
{
    cJSON *a = NULL, *b = NULL, *plain = NULL;

    it->action = ACT_CREATED;
    if (!it->old)
        return 0;
    int r = bare(c->api, it->old, &a, err);
    if (!r)
        r = bare(c->api, it->now, &b, err);
    if (!r && it->kind->id == KIND_SECRET) /* what is to be written is not sealed yet */
        r = object_to_json(it->now, &plain, err);
    if (plain) {
        cJSON *data = cJSON_DetachItemFromObjectCaseSensitive(plain, "data");
        cJSON_DeleteItemFromObjectCaseSensitive(b, "data");
        if (data)
            cJSON_AddItemToObject(b, "data", data);
        cJSON_Delete(plain);
    }
    it->action = !r && cJSON_Compare(a, b, true) ? ACT_UNCHANGED : ACT_CONFIGURED;
    cJSON_Delete(a);
    cJSON_Delete(b);
    return r;
}

static int item_rights(struct call *c, const struct item *it, const char *verb, struct err *err)
{
    struct rbac_ask ask = {.verb = verb,
                           .group = it->kind->group,
                           .resource = it->kind->plural,
                           .name = it->name,
                           .ns = it->kind->id == KIND_NAMESPACE ? it->name : it->ns};
    return rbac_check(c, &ask, err);
}

static int item_merge(struct call *c, struct applying *s, struct item *it, struct err *err)
{
    struct owners owners;
    cJSON *live = it->old ? NULL : cJSON_CreateObject();
    int r = it->old ? object_tree(c->api, it->old, &live, err) : 0;

    if (r)
        return r;
    cJSON *applied = item_applied(s, it);
    struct build b = {.kind = it->kind,
                      .old = it->old,
                      .owners = &owners,
                      .user = c->who.user,
                      .revision = *s->revision ? s->revision : NULL};

    owners_load(&owners, it->old);
    if (!it->old) {
        cJSON_AddStringToObject(live, "apiVersion", kind_api_version(it->kind));
        cJSON_AddStringToObject(live, "kind", it->kind->kind);
        cJSON *meta = cJSON_AddObjectToObject(live, "metadata");
        cJSON_AddStringToObject(meta, "name", it->name);
        if (*it->ns)
            cJSON_AddStringToObject(meta, "namespace", it->ns);
    }
    if (it->kind->id == KIND_SECRET)
        r = secret_fold(applied, err);
    if (!r)
        r = ssa_merge(it->kind, live, applied, &owners, s->manager, "", true, call_now(c), c->mem,
                      &c->conflicts, err);
    if (!r)
        r = object_build(c->api, &b, live, &it->now, err);
    if (!r)
        call_warn_unkept(c, it->now);
    owners_free(&owners);
    cJSON_Delete(live);
    cJSON_Delete(applied);
    return r;
}

static int item_compute(struct call *c, struct applying *s, struct item *it, struct err *err)
{
    it->old = call_get(c, it->kind, it->ns, it->name);
    it->deleting = it->old && it->old->meta->deletionTimestamp;
    int r = item_rights(c, it, it->old ? "patch" : "create", err);

    if (!r && !it->old && *it->ns && !namespace_made(s, it->ns))
        r = namespace_ready(c, it->ns, err);
    if (!r)
        r = item_merge(c, s, it, err);
    if (!r)
        r = rbac_escalation(c, it->now, err);
    if (!r)
        r = item_changed(c, it, err);
    return r;
}

/* ---- the set ---- */
struct pruning {
    struct call *c;
    struct applying *s;
    const struct kind *kind;
    size_t documents;
    bool full;
};

static bool prune_each(const struct object *o, void *arg)
{
    struct pruning *p = arg;
    const char *set = label_get(o->meta->annotations, o->meta->n_annotations, SET_ANNOTATION);

    if (!set || strcmp(set, p->s->set) != 0 || o->meta->deletionTimestamp)
        return true;
    for (size_t i = 0; i < p->documents; i++) {
        const struct item *it = &p->s->items[i];
        if (it->kind == p->kind && !strcmp(it->name, o->meta->name) &&
            !strcmp(it->ns, o->meta->namespace_))
            return true;
    }
    if (p->s->n >= LIMIT_APPLY_MAX_OBJECTS) {
        p->full = true;
        return false;
    }
    struct item *it = item_add(p->c, p->s);
    it->kind = p->kind;
    it->ns = o->meta->namespace_;
    it->name = o->meta->name;
    it->index = -1;
    it->old = o;
    it->action = ACT_PRUNED;
    return true;
}

static int prune_find(struct call *c, struct applying *s, struct err *err)
{
    const struct kind *kinds[KIND_LIMIT];
    size_t n = kind_all(kinds, KIND_LIMIT), documents = s->n;
    int r = 0;

    for (size_t i = n; i-- > 0;) {
        struct pruning p = {.c = c, .s = s, .kind = kinds[i], .documents = documents};
        if (kinds[i]->flags & KINDF_RO)
            continue;
        c->api->ops->scan(c->view, kinds[i], NULL, NULL, NULL, prune_each, &p);
        if (p.full)
            return err_set(err, E_TOOLARGE, "more than %d objects in one apply",
                           LIMIT_APPLY_MAX_OBJECTS);
    }
    for (size_t i = documents; i < s->n && !r; i++)
        r = item_rights(c, &s->items[i], "delete", err);
    return r;
}

static int documents_read(struct call *c, struct applying *s, struct err *err)
{
    const cJSON *doc;
    int i = 0, r = 0;

    cJSON_ArrayForEach(doc, s->docs)
    {
        struct item *it = item_add(c, s);
        it->doc = doc;
        it->index = i++;
        r = item_kind(c, it, err);
        if (!r)
            r = item_twice(s, it, err);
        if (r)
            return err_prefix(err, "document %d", it->index);
    }
    c->by_state = true;
    for (size_t k = 0; k < s->n && !r; k++) {
        struct item *it = &s->items[k];
        r = item_compute(c, s, it, err);
        if (r)
            return err_prefix(err, "document %d (%s %s)", it->index, it->kind->kind, it->name);
    }
    return 0;
}

/* Namespaces first, deletions last; unchanged documents are written only when the commit is new to
 * them. */
static size_t ops_make(struct call *c, struct applying *s)
{
    size_t n = 0;

    s->ops = arena_array(c->mem, struct api_write_op, s->n + 1);
    for (int pass = 0; pass < 3; pass++)
        for (size_t i = 0; i < s->n; i++) {
            struct item *it = &s->items[i];
            int turn = !it->doc ? 2 : it->kind->id == KIND_NAMESPACE ? 0 : 1;
            bool stamped = it->action != ACT_UNCHANGED || !*s->revision ||
                           !strcmp(it->old->meta->revision, s->revision);
            if (turn != pass || (it->action == ACT_UNCHANGED && stamped))
                continue;
            s->ops[n++] =
                (struct api_write_op){.verb = !it->doc  ? API_DELETE
                                              : it->old ? API_UPDATE
                                                        : API_CREATE,
                                      .kind = it->kind,
                                      .ns = it->ns,
                                      .name = it->name,
                                      .object = it->now,
                                      .uid = it->old ? it->old->meta->uid : NULL,
                                      .rv = it->old ? (uint64_t)it->old->meta->resourceVersion : 0};
        }
    return n;
}

static void redact(cJSON *j)
{
    cJSON *data = cJSON_GetObjectItemCaseSensitive(j, "data"), *c;

    cJSON_ArrayForEach(c, data) if (cJSON_IsString(c))
    {
        explicit_bzero(c->valuestring, strlen(c->valuestring));
        cJSON_SetValuestring(c, "");
    }
}

static void diff_side(struct call *c, cJSON *to, const char *key, const struct object *o)
{
    if (!o)
        return;
    struct err e;
    cJSON *j = NULL;
    if (bare(c->api, o, &j, &e) < 0) { /* what was done stands: its diff says what is wrong */
        cJSON_AddStringToObject(to, key, e.text);
        return;
    }
    if (o->kind->id == KIND_SECRET)
        redact(j);
    cJSON_AddItemToObject(to, key, j);
}

static void answer(struct call *c, uint64_t rv)
{
    struct applying *s = c->state;
    cJSON *j = cJSON_CreateObject(), *list;
    int counts[4] = {0};

    cJSON_AddStringToObject(j, "kind", "ApplyResult");
    cJSON_AddStringToObject(j, "apiVersion", "hanse.dev/v1alpha1");
    cJSON_AddStringToObject(j, "set", s->set);
    cJSON_AddStringToObject(j, "revision", s->revision);
    cJSON_AddBoolToObject(j, "dryRun", s->dry_run);
    cJSON_AddStringToObject(j, "resourceVersion",
                            arena_printf(c->mem, "%llu", (unsigned long long)rv));
    list = cJSON_AddArrayToObject(j, "objects");
    for (size_t i = 0; i < s->n; i++) {
        const struct item *it = &s->items[i];
        cJSON *o = cJSON_CreateObject();
        counts[it->action]++;
        cJSON_AddStringToObject(o, "action", act_text[it->action]);
        cJSON_AddStringToObject(o, "apiVersion", kind_api_version(it->kind));
        cJSON_AddStringToObject(o, "kind", it->kind->kind);
        cJSON_AddStringToObject(o, "namespace", it->ns);
        cJSON_AddStringToObject(o, "name", it->name);
        if (it->index >= 0)
            cJSON_AddNumberToObject(o, "document", it->index);
        if (it->deleting)
            cJSON_AddBoolToObject(o, "deleting", true);
        if (s->dry_run && it->action != ACT_UNCHANGED) {
            diff_side(c, o, "old", it->old);
            diff_side(c, o, "new", it->now);
        }
        cJSON_AddItemToArray(list, o);
    }
    for (int a = 0; a < 4; a++)
        cJSON_AddNumberToObject(j, act_text[a], counts[a]);
    call_reply_tree(c, 200, j);
}

static void set_attempt(struct call *c);

static void set_written(void *arg, const struct api_result *r, const struct err *err)
{
    struct call *c = arg;
    struct applying *s = c->state;

    if (err && err->code) {
        struct err e = *err;
        bool moved = e.code == E_CONFLICT || e.code == E_EXISTS || e.code == E_NOTFOUND;
        c->settled = c->key && r && r->final;
        if (moved && !c->settled && s->tries++ < TRIES) {
            call_fresh(c, 0, set_attempt);
            return;
        }
        for (size_t i = 0; r && !r->retry_s && i < s->n; i++) {
            const struct item *it = &s->items[i];
            if (it->doc && s->ops[r->op].object == it->now && it->now) {
                (void)err_prefix(&e, "document %d (%s %s)", it->index, it->kind->kind, it->name);
                break;
            }
        }
        c->retry_s = r ? r->retry_s : 0;
        call_fail(c, &e);
        return;
    }
    c->api->counters.writes++;
    answer(c, r->rv);
}

/* Under a key also what changes nothing is sent: that it was done is then known. */
static void set_send(struct call *c, struct api_write *w)
{
    write_name(c, w);
    c->api->ops->write(c->api->b, w, set_written, c);
}

/* What the documents would do now says nothing of what they did then. */
static void set_done_before(struct call *c, const struct api_result *r)
{
    applying_drop(c->state);
    answer(c, r->rv);
}

static void set_attempt(struct call *c)
{
    struct applying *s = c->state;
    struct err e = {0};

    applying_drop(s);
    c->by_state = false;
    c->warning = NULL;
    int r = documents_read(c, s, &e);
    if (!r && s->prune)
        r = prune_find(c, s, &e);
    size_t n = r ? 0 : ops_make(c, s);
    struct api_write w = {.user = c->asker,
                          .as = c->as ? c->as->user : NULL,
                          .ops = s->ops,
                          .n = n,
                          .dry_run = s->dry_run,
                          .again = s->tries < TRIES,
                          .deadline_ms = DEADLINE_MS,
                          .revision = n && *s->revision ? s->revision : NULL};
    if (!r && n && c->api->ops->check)
        r = c->api->ops->check(c->api->b, c->view, &w, &e);
    if (r)
        call_fail(c, &e);
    else if (!n && (!c->key || s->dry_run))
        answer(c, c->api->ops->view_rv(c->view));
    else
        set_send(c, &w);
}

void apply_set(struct call *c)
{
    struct applying *s = arena_new(c->mem, struct applying);
    struct err e = {0};
    const cJSON *body = call_body(c, &e);

    c->state = s;
    c->fini = applying_fini;
    if (!body) {
        call_fail(c, &e);
        return;
    }
    s->docs = cJSON_GetObjectItemCaseSensitive(body, "documents");
    s->revision = text(body, "revision");
    s->set = *text(body, "set") ? text(body, "set") : "default";
    s->manager = arena_printf(c->mem, "hanse-apply:%s", s->set);
    s->prune = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(body, "prune"));
    s->dry_run = c->dry_run = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(body, "dryRun"));
    c->done_before = set_done_before;
    if (!cJSON_IsArray(s->docs))
        call_fail_code(c, E_INVALID, "documents: an array of objects is required");
    else if (cJSON_GetArraySize(s->docs) > LIMIT_APPLY_MAX_OBJECTS)
        call_fail_code(c, E_TOOLARGE, "too many documents in one apply");
    else if (strlen(s->set) > 63 || strlen(s->revision) > 127)
        call_fail_code(c, E_INVALID, "set has at most 63 characters, revision at most 127");
    else
        call_fresh(c, 0, set_attempt);
}
