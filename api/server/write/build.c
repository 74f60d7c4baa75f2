/* From the wanted tree to the object that is written: decoded and validated, with what the server
 * itself keeps (uid, times, status or spec, owners of fields) carried over from the object that it
 * replaces. */
#include "api/server/write/write_internal.h"

#include "api/manifests/manifests.h"

static const struct field *top_field(const struct kind *k, const char *json)
{
    for (unsigned i = 0; i < k->schema->n; i++)
        if (!strcmp(k->schema->fields[i].json, json))
            return &k->schema->fields[i];
    return NULL;
}

/* Moves an OBJ member with its bit. */
static void carry_obj(const struct kind *k, const char *json, struct any_kind *to,
                      const struct any_kind *from)
{
    const struct field *f = top_field(k, json);

    if (!f || f->type != T_OBJ)
        return;
    void *p = from ? *(void *const *)(const void *)((const char *)from + f->off) : NULL;
    *(void **)(void *)((char *)to + f->off) = p;
    if (p)
        to->has |= (uint64_t)1 << f->bit;
    else
        to->has &= ~((uint64_t)1 << f->bit);
}

static void carry_meta(struct meta *m, const struct meta *old)
{
    m->uid = old ? old->uid : "";
    m->resourceVersion = old ? old->resourceVersion : 0;
    m->generation = old ? old->generation : 0;
    m->creationTimestamp = old ? old->creationTimestamp : 0;
    m->deletionTimestamp = old ? old->deletionTimestamp : 0;
    meta_grace_keep(m, old);
    m->revision = old ? old->revision : "";
    m->generateName = old ? old->generateName : m->generateName;
    if (old) {
        m->name = old->name;
        m->namespace_ = old->namespace_;
    }
}

static bool has_all(const cJSON *a, const cJSON *b)
{
    const cJSON *c;

    cJSON_ArrayForEach(c, a)
    {
        if (!strcmp(c->string, "metadata") || !strcmp(c->string, "status"))
            continue;
        const cJSON *d = cJSON_GetObjectItemCaseSensitive(b, c->string);
        if (!d || !cJSON_Compare(c, d, true))
            return false;
    }
    return true;
}

static int base64_ok(const char *s)
{
    size_t n = 0, pad = 0;

    for (; *s; s++) {
        if (*s == '\n' || *s == '\r')
            continue;
        if (*s == '=')
            pad++;
        else if (pad ||
                 !strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", *s))
            return E_INVALID;
        n++;
    }
    return n % 4 == 0 && pad <= 2 ? 0 : E_INVALID;
}

static cJSON *base64_item(const char *s)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = strlen(s);
    char *out = mem_alloc(n * 4 / 3 + 8), *p = out;

    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)(unsigned char)s[i] << 16 |
                     (i + 1 < n ? (uint32_t)(unsigned char)s[i + 1] << 8 : 0) |
                     (i + 2 < n ? (uint32_t)(unsigned char)s[i + 2] : 0);
        for (size_t k = 0; k < 4; k++)
            *p++ = i + k <= n ? digits[v >> (18 - 6 * k) & 63] : '=';
    }
    *p = 0;
    cJSON *j = cJSON_CreateString(out);
    explicit_bzero(out, (size_t)(p - out));
    mem_free(out);
    return j;
}

int secret_fold(cJSON *tree, struct err *err)
{
    cJSON *plain = cJSON_DetachItemFromObjectCaseSensitive(tree, "stringData");
    cJSON *data = cJSON_GetObjectItemCaseSensitive(tree, "data");
    const cJSON *c;
    char field[ERR_FIELD_MAX];
    int r = 0;

    if (data && cJSON_IsNull(data)) {
        cJSON_DeleteItemFromObjectCaseSensitive(tree, "data");
        data = NULL;
    }
    if (plain && !data && cJSON_IsObject(plain) && plain->child)
        data = cJSON_AddObjectToObject(tree, "data");
    if ((data && !cJSON_IsObject(data)) ||
        (plain && !cJSON_IsObject(plain) && !cJSON_IsNull(plain)))
        r = err_field(err, E_INVALID, "data", "data and stringData are maps of texts");
    cJSON_ArrayForEach(c, (r ? NULL : plain))
    {
        if (!cJSON_IsString(c)) {
            r = err_field(err, E_INVALID, "stringData", "values are texts");
            break;
        }
        cJSON_DeleteItemFromObjectCaseSensitive(data, c->string);
        cJSON_AddItemToObject(data, c->string, base64_item(c->valuestring));
    }
    cJSON_ArrayForEach(c, (r ? NULL : data)) if (!cJSON_IsString(c) || base64_ok(c->valuestring))
    {
        (void)snprintf(field, sizeof field, "data.%.100s", c->string);
        r = err_field(err, E_INVALID, field,
                      "must be base64 (or give it as text under stringData)");
        break;
    }
    cJSON_Delete(plain);
    return r;
}

static int secret_kept(struct api *a, const struct object *old, const cJSON *tree, struct err *err)
{
    if (!old || !object_as(old, secret)->immutable)
        return 0;
    cJSON *before = NULL;
    int r = object_tree(a, old, &before, err);
    if (r < 0)
        return r;
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(before, "data"),
                *y = cJSON_GetObjectItemCaseSensitive(tree, "data");
    bool same = x && y ? cJSON_Compare(x, y, true) : !x == !y;
    cJSON_Delete(before);
    return same ? 0 : err_field(err, E_INVALID, "data", "the Secret is immutable");
}

/* As clients expect it; whoever deletes a namespace's contents sets Terminating. */
static void namespace_active(struct namespace_ *ns, struct arena *mem)
{
    ns->status = arena_new(mem, struct namespace_status);
    ns->status->phase = "Active";
    ns->has |= (uint64_t)1 << top_field(kind_by_id(KIND_NAMESPACE), "status")->bit;
}

/* Causes other than "asked" are Hanse's own findings: a user's Migration that named one would pass
 * for a drain or a preemption, with the rights and the record of those. */
static int migration_asked(const struct object *o, struct err *err)
{
    enum move_cause cause = object_as(o, migration)->spec->cause;

    if (cause == MOVE_ASKED)
        return 0;
    return err_field(err, E_INVALID, "spec.cause",
                     "%s is found by Hanse itself; leave it out (asked)", move_cause_text(cause));
}

/* Whose cost it is: who submitted it, and nobody else's. A later version keeps it, whoever
 * writes. */
static int workload_user(const struct build *b, cJSON *tree, struct err *err)
{
    cJSON *spec = cJSON_GetObjectItemCaseSensitive(tree, "spec");
    const cJSON *given = cJSON_GetObjectItemCaseSensitive(spec, "user");
    const char *user = b->old ? object_as(b->old, workload)->spec->user : b->user;

    if (!cJSON_IsObject(spec) || strlen(user) > 253)
        user = "";
    if (cJSON_IsNull(given)) {
        cJSON_DeleteItemFromObjectCaseSensitive(spec, "user");
        given = NULL;
    }
    if (given && (!cJSON_IsString(given) || strcmp(given->valuestring, user) != 0))
        return err_field(err, E_INVALID, "spec.user",
                         "is set by the server: leave it out; who may submits as another by "
                         "impersonating him (--as)");
    if (!given && *user)
        (void)cJSON_AddStringToObject(spec, "user", user);
    return 0;
}

/* The first part of a status that the one has and the other has not so; NULL: there is none. */
static const char *status_differs(const cJSON *a, const cJSON *b, const char *but)
{
    const cJSON *c;

    cJSON_ArrayForEach(c, a) if (strcmp(c->string, but) != 0 &&
                                 !cJSON_Compare(c, cJSON_GetObjectItemCaseSensitive(b, c->string),
                                                true)) return c->string;
    return NULL;
}

/* What moves by Hanse's own steps only is not taken from others, and they are told so: of a
 * Workload's status they write conditions, of a Migration's nothing. */
static int status_ours(const struct object *old, const struct object *given, struct err *err)
{
    bool workload = given->kind->id == KIND_WORKLOAD;
    const char *but = workload ? "conditions" : "", *part;
    int r = 0;

    if (!workload && given->kind->id != KIND_MIGRATION)
        return 0;
    cJSON *was = NULL, *is = NULL;
    if ((r = object_to_json(old, &was, err)) || (r = object_to_json(given, &is, err))) {
        cJSON_Delete(was);
        return r;
    }
    const cJSON *a = cJSON_GetObjectItemCaseSensitive(was, "status"),
                *b = cJSON_GetObjectItemCaseSensitive(is, "status");
    if ((part = status_differs(a, b, but)) || (part = status_differs(b, a, but))) {
        char field[128];
        (void)snprintf(field, sizeof field, "status.%.100s", part);
        r = err_field(err, E_INVALID, field, "is written by Hanse alone%s",
                      workload ? "; others may write status.conditions" : "");
    }
    cJSON_Delete(was);
    cJSON_Delete(is);
    return r;
}

static bool zone_had(const struct object *old, const char *zone)
{
    const struct placement_policy_spec *s = old ? object_as(old, placement_policy)->spec : NULL;

    for (uint32_t i = 0; s && i < s->n_windows; i++)
        if (!strcmp(s->windows[i].timezone, zone))
            return true;
    return false;
}

/* A window in a zone that nobody can compute would let nothing start at any time. Which zones there
 * are the machine says, so apply never asks: what a member has let in holds on all of them. */
static int zones_admit(struct api *a, const struct object *old, const struct object *now,
                       struct err *err)
{
    char at[64];

    if (now->kind->id != KIND_PLACEMENT_POLICY || !a->ops->zone_known)
        return 0;
    const struct placement_policy_spec *s = object_as(now, placement_policy)->spec;
    for (uint32_t i = 0; i < s->n_windows; i++) {
        const char *zone = s->windows[i].timezone;

        if (zone_had(old, zone) || a->ops->zone_known(a->b, zone))
            continue;
        (void)snprintf(at, sizeof at, "spec.windows[%u].timezone", i);
        return err_field(err, E_INVALID, at,
                         "\"%.64s\" is no time zone that this member knows: write the IANA name as "
                         "in Europe/Berlin; if it is right, install the member's tzdata",
                         zone);
    }
    return 0;
}

/* Another wanted state is another generation. */
static int generation_count(struct api *a, const struct object *old, const struct object *given,
                            struct meta *m, struct err *err)
{
    cJSON *was = NULL, *is = NULL;
    int r = object_tree(a, old, &was, err);

    if (r == 0)
        r = object_to_json(given, &is, err);
    if (r == 0 && old->kind->id == KIND_SECRET) {
        cJSON_DeleteItemFromObjectCaseSensitive(was, "data");
        cJSON_DeleteItemFromObjectCaseSensitive(is, "data");
    }
    if (r == 0)
        m->generation += !has_all(was, is) || !has_all(is, was);
    cJSON_Delete(was);
    cJSON_Delete(is);
    return r;
}

int object_build(struct api *a, const struct build *b, cJSON *tree, struct object **ret,
                 struct err *err)
{
    const struct kind *k = b->kind;
    struct object *given = NULL, *now = NULL;
    cJSON *meta = cJSON_GetObjectItemCaseSensitive(tree, "metadata");
    int r = 0;

    cJSON_DeleteItemFromObjectCaseSensitive(meta, "managedFields");
    cJSON_DeleteItemFromObjectCaseSensitive(meta, "creationTimestamp"); /* kubectl sends null */
    if (k->id == KIND_WORKLOAD && !b->status)
        r = workload_user(b, tree, err);
    if (!r && k->id == KIND_SECRET)
        r = secret_fold(tree, err);
    if (!r && k->id == KIND_SECRET)
        r = secret_kept(a, b->old, tree, err);
    if (!r)
        r = object_from_json(k, tree, DECODE_USER | b->decode | (b->status ? DECODE_STATUS : 0u),
                             &given, err);
    if (r)
        return r;
    if (b->status && (r = status_ours(b->old, given, err))) {
        (void)object_unref(given);
        return r;
    }
    AUTO_ARENA mem = arena_create(0);
    struct any_kind *body = object_edit(b->status ? b->old : given, mem);
    if (b->status) {
        carry_obj(k, "status", body, object_edit(given, mem));
    } else {
        carry_obj(k, "status", body, b->old ? object_edit(b->old, mem) : NULL);
        carry_meta(body->metadata, b->old ? b->old->meta : NULL);
    }
    if (!b->old && k->id == KIND_NAMESPACE)
        namespace_active((struct namespace_ *)(void *)body, mem);
    if (b->revision)
        body->metadata->revision = b->revision;
    if (b->owners)
        owners_store(b->owners, body->metadata, mem);
    if (!b->old)
        body->metadata->generation = 1;
    else if (!b->status)
        r = generation_count(a, b->old, given, body->metadata, err);
    if (!r)
        r = object_make_within(k, body, 2 * (size_t)LIMIT_OBJECT_MAX_BYTES, &now, err);
    if (!r)
        r = object_validate(now, err);
    if (!r && !b->old && k->id == KIND_MIGRATION)
        r = migration_asked(now, err);
    if (!r && !b->status)
        r = object_admit(b->old, now, err);
    if (!r && !b->status)
        r = manifest_admit(b->old, now, err);
    if (!r && !b->status)
        r = zones_admit(a, b->old, now, err);
    if (!r && b->old)
        r = object_validate_update(b->old, now, err);
    if (!r && now->bytes > LIMIT_OBJECT_MAX_BYTES)
        r = err_set(err, E_TOOLARGE, "the object is larger than %d bytes", LIMIT_OBJECT_MAX_BYTES);
    (void)object_unref(given);
    if (r)
        (void)object_unref(now);
    else
        *ret = now;
    return r;
}

int namespace_ready(struct call *c, const char *ns, struct err *err)
{
    const struct object *o = call_get(c, kind_by_id(KIND_NAMESPACE), "", ns);

    if (!o)
        return call_not_found(kind_by_id(KIND_NAMESPACE), ns, err);
    if (o->meta->deletionTimestamp)
        return err_set(err, E_FORBIDDEN,
                       "namespace \"%s\" is being deleted: nothing new can be made in it", ns);
    return 0;
}
