/* Server-side apply: the caller says which fields he wants, everything else is left alone. A field
 * that another manager set to another value is a conflict, unless forced; fields that he wanted
 * once and no longer names go. */
#include "api/server/write/write_internal.h"

/* {"topology": "rack"} stands for {"topology": {"within": "rack"}}: ownership needs the long
 * form. */
static void long_forms(const struct schema *s, cJSON *o)
{
    for (unsigned i = 0; s && i < s->n; i++) {
        const struct field *f = &s->fields[i];
        cJSON *v = *f->json ? cJSON_GetObjectItemCaseSensitive(o, f->json) : NULL, *item;
        if (v && f->type == T_OBJ && (f->flags & FIELD_SHORT) && cJSON_IsString(v) && f->sub &&
            f->sub->n) {
            cJSON *full = cJSON_CreateObject();
            cJSON_AddItemToObject(full, f->sub->fields[0].json, cJSON_Duplicate(v, true));
            cJSON_ReplaceItemInObjectCaseSensitive(o, f->json, full);
            v = full;
        }
        if (v && f->type == T_OBJ && cJSON_IsObject(v))
            long_forms(f->sub, v);
        if (v && f->type == T_LIST && cJSON_IsArray(v))
            cJSON_ArrayForEach(item, v) if (cJSON_IsObject(item)) long_forms(f->sub, item);
    }
}

/* The same values as the server spells them ("90s" → "1m30s"), so that equal is equal. */
static int canonical(const struct kind *k, cJSON *applied, bool status, cJSON **ret,
                     struct err *err)
{
    void *body;
    AUTO_ARENA mem = arena_create(0);
    cJSON *copy = cJSON_Duplicate(applied, true);

    cJSON_DeleteItemFromObjectCaseSensitive(copy, "apiVersion");
    cJSON_DeleteItemFromObjectCaseSensitive(copy, "kind");
    int r = body_from_json(k->schema, copy,
                           DECODE_USER | DECODE_NO_REQUIRED | (status ? DECODE_STATUS : 0u), mem,
                           &body, err);
    cJSON_Delete(copy);
    if (r)
        return r;
    return body_to_json(k->schema, body, ret, err);
}

/* "one" with subresource "status" using hanse.dev/v1alpha1 at 2026-11-21T03:33:22Z, as Kubernetes
 * prints a manager: version and time are of an Update. */
static const char *owner_text(const struct owner *o, struct arena *a)
{
    char when[32] = "";
    AUTO_BUF b = {0};

    buf_init(&b, 1024);
    buf_printf(&b, "\"%s\"", o->manager);
    if (*o->sub)
        buf_printf(&b, " with subresource \"%s\"", o->sub);
    if (!strcmp(o->operation, "Update")) {
        buf_printf(&b, " using %s", o->api_version);
        if (o->time) {
            time_print(o->time / 1000 * 1000, when);
            buf_printf(&b, " at %s", when);
        }
    }
    return arena_strdup(a, b.n ? b.p : "");
}

struct telling {
    struct conflicts *c;
    const char *who;
    struct arena *a;
};

static bool conflict_each(const char *path, void *arg)
{
    struct telling *t = arg;

    if (t->c->n < CONFLICTS_MAX)
        t->c->v[t->c->n] = (struct conflict){t->who, arena_strdup(t->a, path)};
    t->c->n++;
    return true;
}

static cJSON *contested(const struct owner *o, const cJSON *wanted, const cJSON *live,
                        const cJSON *applied)
{
    cJSON *both = set_common(cJSON_Duplicate(wanted, true), o->set);
    return both ? set_keep_differing(both, live, applied) : NULL;
}

static int take_over(struct owners *w, const struct owner *me, const cJSON *wanted,
                     const cJSON *live, const cJSON *applied, bool force, struct arena *a,
                     struct conflicts **ret, struct err *err)
{
    struct conflicts *c = arena_new(a, struct conflicts);

    for (unsigned i = 0; i < w->n; i++) {
        struct owner *o = &w->v[i];
        if (o == me)
            continue;
        cJSON *fields = contested(o, wanted, live, applied);
        struct telling t = {c, fields && !force ? owner_text(o, a) : "", a};
        if (fields && force)
            o->set = set_minus(o->set, fields);
        else if (fields)
            (void)set_differing(fields, live, applied, conflict_each, &t);
        cJSON_Delete(fields);
    }
    if (!c->n)
        return 0;
    *ret = c;
    return err_field(err, E_CONFLICT, c->v[0].path, "conflict with %s: %s", c->v[0].who,
                     c->v[0].path);
}

static void let_go(struct owners *w, const struct owner *me, const cJSON *wanted, cJSON *live)
{
    cJSON *gone = me->set ? cJSON_Duplicate(me->set, true) : NULL;

    gone = set_minus(gone, wanted);
    for (unsigned i = 0; gone && i < w->n; i++)
        if (&w->v[i] != me && w->v[i].set)
            gone = set_minus(gone, w->v[i].set);
    if (gone)
        set_remove(gone, live);
    cJSON_Delete(gone);
}

int ssa_merge(const struct kind *k, cJSON *live, cJSON *applied, struct owners *owners,
              const char *manager, const char *sub, bool force, int64_t time, struct arena *a,
              struct conflicts **ret, struct err *err)
{
    cJSON *values = NULL;
    bool status = *sub != 0;

    if (cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(applied, "metadata"),
                                         "managedFields"))
        return err_field(err, E_SYNTAX, "metadata.managedFields",
                         "must not be given in server-side apply");
    long_forms(k->schema, applied);
    int r = canonical(k, applied, status, &values, err);
    if (r)
        return r;
    cJSON *wanted = set_of(k->schema, applied, status);
    cJSON *filled = cJSON_Duplicate(
        applied, true); /* what the canonical form leaves out (zeros) is taken as given */
    set_copy(wanted, values, filled);
    struct owner *me = owners_find(owners, manager, "Apply", sub);
    if (!me)
        me = owners_add(owners, a, k, manager, "Apply", sub);
    r = take_over(owners, me, wanted, live, filled, force, a, ret, err);
    if (!r) {
        let_go(owners, me, wanted, live);
        set_copy(wanted, filled, live);
        if (!me->set || !cJSON_Compare(me->set, wanted, true))
            me->time = time / 1000 * 1000;
        cJSON_Delete(me->set);
        me->set = wanted;
        wanted = NULL;
    }
    cJSON_Delete(wanted);
    cJSON_Delete(filled);
    cJSON_Delete(values);
    return r;
}
