/* Sets of fields, in the form that managedFields shows them (FieldsV1). Lists with a KEY field and
 * maps are owned item by item; every other list is owned whole. Names, versions and what Hanse
 * itself stamps are owned by nobody. */
#include "api/server/write/write_internal.h"

static const struct field *field_named(const struct schema *s, const char *json)
{
    for (unsigned i = 0; s && i < s->n; i++)
        if (*s->fields[i].json && !strcmp(s->fields[i].json, json))
            return &s->fields[i];
    return NULL;
}

static const struct field *key_field(const struct schema *s)
{
    for (unsigned i = 0; s && i < s->n; i++)
        if (s->fields[i].flags & FIELD_KEY)
            return &s->fields[i];
    return NULL;
}

static void add(cJSON *set, const char *prefix, const char *name, cJSON *child)
{
    AUTO_BUF b = {0};

    buf_init(&b, 1 << 20);
    buf_str(&b, prefix);
    buf_str(&b, name);
    cJSON_AddItemToObject(set, b.p ? b.p : prefix, child ? child : cJSON_CreateObject());
}

/* Of items with one key the first is meant: a set names each once. */
static void add_item(cJSON *set, const char *key_json, cJSON *child)
{
    const cJSON *c;

    cJSON_ArrayForEach(c, set)
    {
        if (!strcmp(c->string + strlen("k:"), key_json)) {
            cJSON_Delete(child);
            return;
        }
    }
    add(set, "k:", key_json, child);
}

static cJSON *body_set(const struct schema *s, const cJSON *o);

static cJSON *map_set(const cJSON *o)
{
    cJSON *set = cJSON_CreateObject();
    const cJSON *c;

    cJSON_ArrayForEach(c, o) add(set, "f:", c->string, NULL);
    return set;
}

static cJSON *list_set(const struct schema *s, const cJSON *list)
{
    const struct field *key = key_field(s);
    cJSON *set = cJSON_CreateObject();
    const cJSON *item;

    if (!key)
        return set;
    cJSON_ArrayForEach(item, list)
    {
        const cJSON *v = cJSON_GetObjectItemCaseSensitive(item, key->json);
        cJSON *k = cJSON_CreateObject(), *child = body_set(s, item);
        cJSON_AddItemToObject(k, key->json, v ? cJSON_Duplicate(v, true) : cJSON_CreateString(""));
        char *text = cJSON_PrintUnformatted(k);
        cJSON_AddItemToObject(child, ".", cJSON_CreateObject());
        add_item(set, text, child);
        cJSON_free(text);
        cJSON_Delete(k);
    }
    return set;
}

static cJSON *body_set(const struct schema *s, const cJSON *o)
{
    cJSON *set = cJSON_CreateObject();
    const cJSON *c;

    cJSON_ArrayForEach(c, o)
    {
        const struct field *f = field_named(s, c->string);
        bool map = f && (f->type == T_MAP || (f->type == T_RAW && (f->flags & FIELD_SECRET)));
        if (f && f->type == T_OBJ && cJSON_IsObject(c))
            add(set, "f:", c->string, body_set(f->sub, c));
        else if (f && f->type == T_LIST && cJSON_IsArray(c))
            add(set, "f:", c->string, list_set(f->sub, c));
        else if (map && cJSON_IsObject(c))
            add(set, "f:", c->string, map_set(c));
        else
            add(set, "f:", c->string, NULL);
    }
    return set;
}

static cJSON *meta_set(const cJSON *meta)
{
    static const char *const owned[] = {"labels", "annotations", "finalizers", "ownerReferences"};
    cJSON *some = cJSON_CreateObject(), *set;

    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) {
        cJSON *v = cJSON_GetObjectItemCaseSensitive(meta, owned[i]);
        if (v)
            cJSON_AddItemReferenceToObject(some, owned[i], v);
    }
    set = body_set(&schema_meta, some);
    cJSON_Delete(some);
    return set;
}

cJSON *set_of(const struct schema *s, const cJSON *object, bool status)
{
    cJSON *some = cJSON_CreateObject(), *set, *c;
    const cJSON *meta = cJSON_GetObjectItemCaseSensitive(object, "metadata");

    cJSON_ArrayForEach(c, object)
    {
        bool is_status = !strcmp(c->string, "status");
        if (strcmp(c->string, "apiVersion") && strcmp(c->string, "kind") &&
            strcmp(c->string, "metadata") && is_status == status)
            cJSON_AddItemReferenceToObject(some, c->string, c);
    }
    set = body_set(s, some);
    cJSON_Delete(some);
    if (meta && !status) {
        cJSON *m = meta_set(meta);
        if (m->child)
            cJSON_AddItemToObject(set, "f:metadata", m);
        else
            cJSON_Delete(m);
    }
    return set;
}

/* ---- algebra ---- */
static const cJSON *peer(const cJSON *set, const cJSON *node)
{
    return cJSON_GetObjectItemCaseSensitive(set, node->string);
}

static cJSON *prune(cJSON *a)
{
    if (a && !a->child) {
        cJSON_Delete(a);
        return NULL;
    }
    return a;
}

/* Keeps in a what is (keep) or is not (!keep) in b. */
static void filter(cJSON *a, const cJSON *b, bool keep)
{
    for (cJSON *c = a->child, *next; c; c = next) {
        const cJSON *p = b ? peer(b, c) : NULL;
        bool leaf = !c->child || (p && !p->child);
        next = c->next;
        if (!leaf && (p || keep)) {
            filter(c, p, keep);
            if (!c->child)
                cJSON_Delete(cJSON_DetachItemViaPointer(a, c));
        } else if (leaf && (p != NULL) != keep) {
            cJSON_Delete(cJSON_DetachItemViaPointer(a, c));
        }
    }
}

cJSON *set_minus(cJSON *a, const cJSON *b)
{
    if (a && b)
        filter(a, b, false);
    return prune(a);
}

cJSON *set_common(cJSON *a, const cJSON *b)
{
    if (a)
        filter(a, b, true);
    return prune(a);
}

cJSON *set_union(cJSON *a, const cJSON *b)
{
    const cJSON *c;

    if (!b)
        return a;
    if (!a)
        return cJSON_Duplicate(b, true);
    cJSON_ArrayForEach(c, b)
    {
        cJSON *have = cJSON_GetObjectItemCaseSensitive(a, c->string);
        if (!have)
            cJSON_AddItemToObject(a, c->string, cJSON_Duplicate(c, true));
        else
            (void)set_union(have, c);
    }
    return a;
}

/* ---- values at the places that a set names ---- */
static cJSON *list_item(const cJSON *list, const char *key_json)
{
    cJSON *k = cJSON_Parse(key_json), *item, *found = NULL;

    if (k && k->child)
        cJSON_ArrayForEach(item, list)
        {
            const cJSON *v = cJSON_GetObjectItemCaseSensitive(item, k->child->string);
            if (v ? cJSON_Compare(v, k->child, true)
                  : cJSON_IsString(k->child) && !*k->child->valuestring) {
                found = item;
                break;
            }
        }
    cJSON_Delete(k);
    return found;
}

static cJSON *step(const cJSON *o, const char *node)
{
    if (!o)
        return NULL;
    if (!strncmp(node, "f:", 2))
        return cJSON_GetObjectItemCaseSensitive(o, node + 2);
    if (!strncmp(node, "k:", 2))
        return list_item(o, node + 2);
    return NULL;
}

static bool equal(const cJSON *x, const cJSON *y)
{
    return x && y ? cJSON_Compare(x, y, true) : x == y;
}

/* .spec.gpus[class="h100"].burst, as Kubernetes spells it. */
static void path_add(struct buf *p, const char *node)
{
    if (!strncmp(node, "f:", 2)) {
        buf_printf(p, ".%s", node + 2);
        return;
    }
    cJSON *key = cJSON_Parse(node + 2);
    const cJSON *k;
    buf_char(p, '[');
    cJSON_ArrayForEach(k, key)
    {
        char *value = cJSON_PrintUnformatted(k);
        buf_printf(p, "%s%s=%s", k == key->child ? "" : ",", k->string, value ? value : "");
        cJSON_free(value);
    }
    buf_char(p, ']');
    cJSON_Delete(key);
}

static bool differing(const cJSON *set, const cJSON *x, const cJSON *y, struct buf *path,
                      set_each each, void *arg)
{
    const cJSON *c;

    cJSON_ArrayForEach(c, set)
    {
        size_t n = path->n;
        if (!strcmp(c->string, "."))
            continue;
        const cJSON *vx = step(x, c->string), *vy = step(y, c->string);
        path_add(path, c->string);
        if (c->child ? !differing(c, vx, vy, path, each, arg)
                     : !equal(vx, vy) && !each(path->p, arg))
            return false;
        path->n = n;
        path->p[n] = 0;
    }
    return true;
}

bool set_differing(const cJSON *set, const cJSON *x, const cJSON *y, set_each each, void *arg)
{
    AUTO_BUF path = {0};

    buf_init(&path, 1 << 20);
    (void)buf_reserve(&path, 64);
    return differing(set, x, y, &path, each, arg);
}

static void keep_differing(cJSON *set, const cJSON *x, const cJSON *y)
{
    for (cJSON *c = set->child, *next; c; c = next) {
        const cJSON *vx = step(x, c->string), *vy = step(y, c->string);
        bool same;
        next = c->next;
        if (!strcmp(c->string, ".")) {
            same = (x != NULL) == (y != NULL);
        } else if (c->child) {
            keep_differing(c, vx, vy);
            same = !c->child;
        } else {
            same = equal(vx, vy);
        }
        if (same)
            cJSON_Delete(cJSON_DetachItemViaPointer(set, c));
    }
}

cJSON *set_keep_differing(cJSON *set, const cJSON *x, const cJSON *y)
{
    keep_differing(set, x, y);
    return prune(set);
}

static cJSON *make_step(cJSON *to, const char *node, const cJSON *like)
{
    cJSON *v = step(to, node);

    if (v && cJSON_IsArray(v) == cJSON_IsArray(like) && cJSON_IsObject(v) == cJSON_IsObject(like))
        return v;
    if (!strncmp(node, "k:", 2)) {
        v = cJSON_Parse(node + 2);
        cJSON_AddItemToArray(to, v);
        return v;
    }
    cJSON_DeleteItemFromObjectCaseSensitive(to, node + 2);
    v = cJSON_IsArray(like) ? cJSON_CreateArray() : cJSON_CreateObject();
    cJSON_AddItemToObject(to, node + 2, v);
    return v;
}

void set_copy(const cJSON *set, const cJSON *from, cJSON *to)
{
    const cJSON *c;

    cJSON_ArrayForEach(c, set)
    {
        const cJSON *v = step(from, c->string);
        if (!v || !strcmp(c->string, "."))
            continue;
        if (c->child) {
            set_copy(c, v, make_step(to, c->string, v));
        } else if (!strncmp(c->string, "f:", 2)) {
            cJSON *have = step(to, c->string);
            bool both = have && cJSON_IsObject(have) && cJSON_IsObject(v) && !v->child;
            if (both) /* an empty object only says that it is there */
                continue;
            cJSON_DeleteItemFromObjectCaseSensitive(to, c->string + 2);
            cJSON_AddItemToObject(to, c->string + 2, cJSON_Duplicate(v, true));
        }
    }
}

void set_remove(const cJSON *set, cJSON *from)
{
    const cJSON *c;

    cJSON_ArrayForEach(c, set)
    {
        cJSON *v = step(from, c->string);
        if (!v)
            continue;
        if (c->child)
            set_remove(c, v);
        bool gone = !c->child || cJSON_GetObjectItemCaseSensitive(c, ".") ||
                    ((cJSON_IsObject(v) || cJSON_IsArray(v)) && !v->child);
        if (gone)
            cJSON_Delete(cJSON_DetachItemViaPointer(from, v));
    }
}
