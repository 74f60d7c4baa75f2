/* Server-side apply: the caller says which fields he wants, everything else is left alone. A field
 * that another manager set to another value is a conflict, unless forced; fields that he wanted
 * once and no longer names go. */
#include "api/server/write/write_internal.h"

/* {"topology": "rack"} stands for {"topology": {"within": "rack"}}: ownership needs the long form.
 */
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
    *ret = body_to_json(k->schema, body);
    return 0;
}

struct conflict {
    const char *manager;
    struct err *err;
    unsigned n;
};

static bool conflict_each(const char *path, void *arg)
{
    struct conflict *c = arg;

    if (!c->n++)
        (void)err_field(c->err, E_CONFLICT, path,
                        "Apply failed with 1 conflict: conflict with \"%s\": %s", c->manager, path);
    else
        (void)snprintf(c->err->text, sizeof c->err->text,
                       "Apply failed with %u conflicts: conflict with \"%s\": %s", c->n, c->manager,
                       path);
    return true;
}

static cJSON *contested(const struct owner *o, const cJSON *wanted, const cJSON *live,
                        const cJSON *applied)
{
    cJSON *both = set_common(cJSON_Duplicate(wanted, true), o->set);
    return both ? set_keep_differing(both, live, applied) : NULL;
}

static int take_over(struct owners *w, const struct owner *me, const cJSON *wanted,
                     const cJSON *live, const cJSON *applied, bool force, struct err *err)
{
    struct conflict c = {.err = err};

    for (unsigned i = 0; i < w->n; i++) {
        struct owner *o = &w->v[i];
        if (o == me)
            continue;
        cJSON *fields = contested(o, wanted, live, applied);
        c.manager = o->manager;
        if (fields && force)
            o->set = set_minus(o->set, fields);
        else if (fields)
            (void)set_differing(fields, live, applied, conflict_each, &c);
        cJSON_Delete(fields);
    }
    return c.n ? E_CONFLICT : 0;
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
              struct err *err)
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
    r = take_over(owners, me, wanted, live, filled, force, err);
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
