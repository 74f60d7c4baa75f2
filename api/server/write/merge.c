/* The three patch formats that change a tree: merge patch (RFC 7386), JSON patch (RFC 6902) and,
 * for the kinds reused from Kubernetes, strategic merge. They know nothing of rights or versions;
 * the result is validated as any update. */
#include "api/server/write/write_internal.h"

#define PATCH_OPS_MAX 10000

/* A field that was kept as the bytes that came: parsed once a patch reaches into it. */
static cJSON *opened(cJSON *v)
{
    if (!v || !cJSON_IsRaw(v))
        return v;
    cJSON *p = cJSON_Parse(v->valuestring);
    if (!p)
        return v;
    v->type = (v->type & cJSON_StringIsConst) | (p->type & 0xff);
    v->child = p->child;
    v->valueint = p->valueint;
    v->valuedouble = p->valuedouble;
    cJSON_free(v->valuestring);
    v->valuestring = p->valuestring;
    p->child = NULL;
    p->valuestring = NULL;
    cJSON_Delete(p);
    return v;
}

void merge_patch(cJSON *target, const cJSON *patch)
{
    const cJSON *c;

    cJSON_ArrayForEach(c, patch)
    {
        cJSON *have = opened(cJSON_GetObjectItemCaseSensitive(target, c->string));
        if (cJSON_IsNull(c)) {
            cJSON_DeleteItemFromObjectCaseSensitive(target, c->string);
        } else if (cJSON_IsObject(c)) {
            if (!cJSON_IsObject(have)) {
                cJSON_DeleteItemFromObjectCaseSensitive(target, c->string);
                have = cJSON_AddObjectToObject(target, c->string);
            }
            merge_patch(have, c);
        } else {
            cJSON_DeleteItemFromObjectCaseSensitive(target, c->string);
            cJSON_AddItemToObject(target, c->string, cJSON_Duplicate(c, true));
        }
    }
}

/* ---- RFC 6902 ---- */
struct place { /* what a JSON pointer names: a member or an index of a parent */
    cJSON *parent, *value;
    char *name; /* unescaped last token, owned */
    int index;  /* in an array; its size = at the end */
};

static void place_free(struct place *p)
{
    mem_free(p->name);
}

static char *token(const char **p)
{
    size_t n = strcspn(*p, "/"), k = 0;
    char *out = mem_alloc(n + 1);

    for (size_t i = 0; i < n; i++) {
        char ch = (*p)[i];
        if (ch == '~' && i + 1 < n)
            ch = (*p)[++i] == '1' ? '/' : '~';
        out[k++] = ch;
    }
    out[k] = 0;
    *p += n;
    return out;
}

static int array_index(const cJSON *list, const char *name, int *ret)
{
    uint64_t v;

    if (!strcmp(name, "-")) {
        *ret = cJSON_GetArraySize(list);
        return 0;
    }
    if (call_u64(name, &v) || (name[0] == '0' && name[1]) || v > (uint64_t)cJSON_GetArraySize(list))
        return E_INVALID;
    *ret = (int)v;
    return 0;
}

static int locate(cJSON *root, const char *pointer, struct place *ret, struct err *err)
{
    const char *p = pointer;

    *ret = (struct place){.value = root};
    if (*p && *p != '/')
        return err_set(err, E_SYNTAX, "JSON patch: the pointer \"%.100s\" must begin with /",
                       pointer);
    while (*p == '/') {
        p++;
        mem_free(ret->name);
        ret->name = NULL;
        ret->parent = opened(ret->value);
        ret->name = token(&p);
        if (cJSON_IsObject(ret->parent))
            ret->value = cJSON_GetObjectItemCaseSensitive(ret->parent, ret->name);
        else if (cJSON_IsArray(ret->parent) && !array_index(ret->parent, ret->name, &ret->index))
            ret->value = cJSON_GetArrayItem(ret->parent, ret->index);
        else
            return err_set(err, E_INVALID, "JSON patch: there is no \"%.100s\"", pointer);
        if (!ret->value && *p)
            return err_set(err, E_INVALID, "JSON patch: there is no \"%.100s\"", pointer);
    }
    return 0;
}

static void put(cJSON **root, struct place *at, cJSON *v)
{
    if (!at->parent) {
        cJSON_Delete(*root);
        *root = v;
    } else if (cJSON_IsArray(at->parent)) {
        if (at->index >= cJSON_GetArraySize(at->parent))
            cJSON_AddItemToArray(at->parent, v);
        else
            cJSON_InsertItemInArray(at->parent, at->index, v);
    } else {
        cJSON_DeleteItemFromObjectCaseSensitive(at->parent, at->name);
        cJSON_AddItemToObject(at->parent, at->name, v);
    }
}

static int take(cJSON *root, const char *pointer, cJSON **ret, struct err *err)
{
    struct place at;
    int r = locate(root, pointer, &at, err);

    if (!r && (!at.value || !at.parent))
        r = err_set(err, E_INVALID, "JSON patch: there is no \"%.100s\" to remove", pointer);
    if (!r)
        *ret = cJSON_DetachItemViaPointer(at.parent, at.value);
    place_free(&at);
    return r;
}

static int add_at(cJSON **root, const char *pointer, cJSON *v, struct err *err)
{
    struct place at;
    int r = locate(*root, pointer, &at, err);

    if (r)
        cJSON_Delete(v);
    else
        put(root, &at, v);
    place_free(&at);
    return r;
}

static int copy_of(cJSON *root, const char *pointer, cJSON **ret, struct err *err)
{
    struct place at;
    int r = locate(root, pointer, &at, err);

    if (!r && !at.value)
        r = err_set(err, E_INVALID, "JSON patch: there is no \"%.100s\"", pointer);
    if (!r)
        *ret = cJSON_Duplicate(opened(at.value), true);
    place_free(&at);
    return r;
}

static int test(cJSON *root, const char *path, const cJSON *want, struct err *err)
{
    cJSON *have = NULL;
    int r = copy_of(root, path, &have, err);

    if (!r && !cJSON_Compare(have, want, true))
        r = err_set(err, E_INVALID, "JSON patch: the test of \"%.100s\" failed", path);
    cJSON_Delete(have);
    return r;
}

static int patch_op(cJSON **root, const cJSON *op, struct err *err)
{
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(op, "op"),
                *p = cJSON_GetObjectItemCaseSensitive(op, "path");
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(op, "value"),
                *f = cJSON_GetObjectItemCaseSensitive(op, "from");
    cJSON *moved = NULL;
    int r;

    if (!cJSON_IsString(o) || !cJSON_IsString(p))
        return err_set(err, E_SYNTAX, "JSON patch: each operation has an op and a path");
    const char *name = o->valuestring, *path = p->valuestring;
    bool add = !strcmp(name, "add"), replace = !strcmp(name, "replace"),
         is_test = !strcmp(name, "test");
    bool move = !strcmp(name, "move"), copy = !strcmp(name, "copy");
    if ((add || replace || is_test) && !v)
        return err_set(err, E_SYNTAX, "JSON patch: %s needs a value", name);
    if ((move || copy) && !cJSON_IsString(f))
        return err_set(err, E_SYNTAX, "JSON patch: %s needs from", name);
    if (add)
        return add_at(root, path, cJSON_Duplicate(v, true), err);
    if (is_test)
        return test(*root, path, v, err);
    if (replace && !*path)
        return add_at(root, path, cJSON_Duplicate(v, true), err);
    if (replace || !strcmp(name, "remove")) {
        r = take(*root, path, &moved, err);
        cJSON_Delete(moved);
        return r || !replace ? r : add_at(root, path, cJSON_Duplicate(v, true), err);
    }
    if (!move && !copy)
        return err_set(err, E_SYNTAX, "JSON patch: unknown op \"%.40s\"", name);
    if (move && !strncmp(path, f->valuestring, strlen(f->valuestring)) &&
        path[strlen(f->valuestring)] == '/')
        return err_set(err, E_INVALID, "JSON patch: a value cannot be moved into itself");
    r = move ? take(*root, f->valuestring, &moved, err)
             : copy_of(*root, f->valuestring, &moved, err);
    return r ? r : add_at(root, path, moved, err);
}

int json_patch(cJSON **target, const cJSON *ops, struct err *err)
{
    const cJSON *op;
    int r = 0;

    if (!cJSON_IsArray(ops))
        return err_set(err, E_SYNTAX, "a JSON patch is an array of operations");
    if (cJSON_GetArraySize(ops) > PATCH_OPS_MAX)
        return err_set(err, E_TOOLARGE, "a JSON patch has at most %d operations", PATCH_OPS_MAX);
    cJSON_ArrayForEach(op, ops)
    {
        r = patch_op(target, op, err);
        if (r)
            break;
    }
    return r;
}

/* ---- strategic merge ---- */
static const struct field *sub_field(const struct schema *s, const char *json)
{
    for (unsigned i = 0; s && i < s->n; i++)
        if (*s->fields[i].json && !strcmp(s->fields[i].json, json))
            return &s->fields[i];
    return NULL;
}

static const struct field *merge_key(const struct field *f)
{
    for (unsigned i = 0; f && f->type == T_LIST && f->sub && i < f->sub->n; i++)
        if (f->sub->fields[i].flags & FIELD_KEY)
            return &f->sub->fields[i];
    return NULL;
}

static const char *directive(const cJSON *o)
{
    const cJSON *d = cJSON_GetObjectItemCaseSensitive(o, "$patch");
    return cJSON_IsString(d) ? d->valuestring : "";
}

static cJSON *keyed(cJSON *list, const char *key, const cJSON *value)
{
    cJSON *item;

    cJSON_ArrayForEach(item, list) if (cJSON_Compare(cJSON_GetObjectItemCaseSensitive(item, key),
                                                     value, true)) return item;
    return NULL;
}

static int merge_list(const struct field *f, const char *key, cJSON *list, const cJSON *patch,
                      struct err *err)
{
    const cJSON *item;
    int r = 0;

    cJSON_ArrayForEach(item, patch)
    {
        const cJSON *k = cJSON_GetObjectItemCaseSensitive(item, key);
        if (!k)
            return err_field(err, E_INVALID, f->json,
                             "each item of the patch needs its merge key %s", key);
        cJSON *have = keyed(list, key, k);
        if (!strcmp(directive(item), "delete")) {
            if (have)
                cJSON_Delete(cJSON_DetachItemViaPointer(list, have));
            continue;
        }
        if (!have) {
            have = cJSON_CreateObject();
            cJSON_AddItemToArray(list, have);
        }
        r = strategic_patch(f->sub, have, item, err);
        if (r)
            return r;
    }
    return 0;
}

static void merge_words(cJSON *list, const cJSON *patch)
{
    const cJSON *w;
    cJSON *have;

    cJSON_ArrayForEach(w, patch)
    {
        bool known = false;
        cJSON_ArrayForEach(have, list) known |= cJSON_Compare(have, w, true);
        if (!known)
            cJSON_AddItemToArray(list, cJSON_Duplicate(w, true));
    }
}

static void delete_words(cJSON *target, const char *name, const cJSON *patch)
{
    cJSON *list = cJSON_GetObjectItemCaseSensitive(target, name);
    const cJSON *w;

    cJSON_ArrayForEach(w, patch) for (cJSON *have = list ? list->child : NULL, *next; have;
                                      have = next)
    {
        next = have->next;
        if (cJSON_Compare(have, w, true))
            cJSON_Delete(cJSON_DetachItemViaPointer(list, have));
    }
}

static int merge_member(const struct schema *s, cJSON *target, const cJSON *c, struct err *err)
{
    const struct field *f = sub_field(s, c->string), *key = merge_key(f);
    cJSON *have = opened(cJSON_GetObjectItemCaseSensitive(target, c->string));

    if (cJSON_IsNull(c)) {
        cJSON_DeleteItemFromObjectCaseSensitive(target, c->string);
        return 0;
    }
    if (cJSON_IsObject(c)) {
        if (!cJSON_IsObject(have)) {
            cJSON_DeleteItemFromObjectCaseSensitive(target, c->string);
            have = cJSON_AddObjectToObject(target, c->string);
        }
        return strategic_patch(f && f->type == T_OBJ ? f->sub : NULL, have, c, err);
    }
    if (cJSON_IsArray(c) && cJSON_IsArray(have) && key)
        return merge_list(f, key->json, have, c, err);
    if (cJSON_IsArray(c) && cJSON_IsArray(have) && !strcmp(c->string, "finalizers")) {
        merge_words(have, c);
        return 0;
    }
    cJSON_DeleteItemFromObjectCaseSensitive(target, c->string);
    cJSON_AddItemToObject(target, c->string, cJSON_Duplicate(c, true));
    return 0;
}

int strategic_patch(const struct schema *s, cJSON *target, const cJSON *patch, struct err *err)
{
    const cJSON *c;
    int r = 0;

    if (!strcmp(directive(patch), "replace"))
        while (target->child)
            cJSON_Delete(cJSON_DetachItemViaPointer(target, target->child));
    cJSON_ArrayForEach(c, patch)
    {
        if (!strncmp(c->string, "$deleteFromPrimitiveList/", 25))
            delete_words(target, c->string + 25, c);
        else if (*c->string != '$')
            r = merge_member(s, target, c, err);
        if (r)
            break;
    }
    return r;
}
