/* Bodies in Kubernetes' protobuf, for the kinds that its own clients insist on sending that way
 * (kubectl create, auth can-i, create token, events). Decoded into the same tree as JSON by the
 * tables below; every other kind gets 415. Input from the net: every length is checked, nesting is
 * bounded by the tables. */
#include "api/server/server_internal.h"

enum proto_type {
    P_STR = 1,
    P_BOOL,
    P_INT,
    P_MSG,
    P_MSGS,
    P_STRS,
    P_MAP,
    P_BYTES_MAP,
    P_TIME,
    P_MICROTIME
};
struct proto_field {
    unsigned number;
    enum proto_type type;
    const char *json;
    const struct proto_field *sub;
};
#define END                                                                                        \
    {                                                                                              \
        0, 0, NULL, NULL                                                                           \
    }

static const struct proto_field owner_fields[] = {{1, P_STR, "kind", 0},
                                                  {3, P_STR, "name", 0},
                                                  {4, P_STR, "uid", 0},
                                                  {5, P_STR, "apiVersion", 0},
                                                  {6, P_BOOL, "controller", 0},
                                                  {7, P_BOOL, "blockOwnerDeletion", 0},
                                                  END};
static const struct proto_field meta_fields[] = {{1, P_STR, "name", 0},
                                                 {2, P_STR, "generateName", 0},
                                                 {3, P_STR, "namespace", 0},
                                                 {5, P_STR, "uid", 0},
                                                 {6, P_STR, "resourceVersion", 0},
                                                 {11, P_MAP, "labels", 0},
                                                 {12, P_MAP, "annotations", 0},
                                                 {13, P_MSGS, "ownerReferences", owner_fields},
                                                 {14, P_STRS, "finalizers", 0},
                                                 END};
#define META                                                                                       \
    {                                                                                              \
        1, P_MSG, "metadata", meta_fields                                                          \
    }
static const struct proto_field namespace_spec_fields[] = {{1, P_STRS, "finalizers", 0}, END};
static const struct proto_field namespace_fields[] = {
    META, {2, P_MSG, "spec", namespace_spec_fields}, END};
static const struct proto_field secret_fields[] = {META,
                                                   {2, P_BYTES_MAP, "data", 0},
                                                   {3, P_STR, "type", 0},
                                                   {4, P_MAP, "stringData", 0},
                                                   {5, P_BOOL, "immutable", 0},
                                                   END};
static const struct proto_field account_fields[] = {
    META, {4, P_BOOL, "automountServiceAccountToken", 0}, END};
static const struct proto_field ref_fields[] = {
    {1, P_STR, "kind", 0},       {2, P_STR, "namespace", 0},
    {3, P_STR, "name", 0},       {4, P_STR, "uid", 0},
    {5, P_STR, "apiVersion", 0}, {6, P_STR, "resourceVersion", 0},
    {7, P_STR, "fieldPath", 0},  END};
static const struct proto_field source_fields[] = {
    {1, P_STR, "component", 0}, {2, P_STR, "host", 0}, END};
static const struct proto_field event_fields[] = {META,
                                                  {2, P_MSG, "involvedObject", ref_fields},
                                                  {3, P_STR, "reason", 0},
                                                  {4, P_STR, "message", 0},
                                                  {5, P_MSG, "source", source_fields},
                                                  {6, P_TIME, "firstTimestamp", 0},
                                                  {7, P_TIME, "lastTimestamp", 0},
                                                  {8, P_INT, "count", 0},
                                                  {9, P_STR, "type", 0},
                                                  {10, P_MICROTIME, "eventTime", 0},
                                                  {12, P_STR, "action", 0},
                                                  {14, P_STR, "reportingComponent", 0},
                                                  {15, P_STR, "reportingInstance", 0},
                                                  END};
static const struct proto_field rule_fields[] = {
    {1, P_STRS, "verbs", 0},         {2, P_STRS, "apiGroups", 0},       {3, P_STRS, "resources", 0},
    {4, P_STRS, "resourceNames", 0}, {5, P_STRS, "nonResourceURLs", 0}, END};
static const struct proto_field role_fields[] = {META, {2, P_MSGS, "rules", rule_fields}, END};
static const struct proto_field subject_fields[] = {{1, P_STR, "kind", 0},
                                                    {2, P_STR, "apiGroup", 0},
                                                    {3, P_STR, "name", 0},
                                                    {4, P_STR, "namespace", 0},
                                                    END};
static const struct proto_field role_ref_fields[] = {
    {1, P_STR, "apiGroup", 0}, {2, P_STR, "kind", 0}, {3, P_STR, "name", 0}, END};
static const struct proto_field binding_fields[] = {
    META, {2, P_MSGS, "subjects", subject_fields}, {3, P_MSG, "roleRef", role_ref_fields}, END};
static const struct proto_field lease_spec_fields[] = {
    {1, P_STR, "holderIdentity", 0},    {2, P_INT, "leaseDurationSeconds", 0},
    {3, P_MICROTIME, "acquireTime", 0}, {4, P_MICROTIME, "renewTime", 0},
    {5, P_INT, "leaseTransitions", 0},  END};
static const struct proto_field lease_fields[] = {META, {2, P_MSG, "spec", lease_spec_fields}, END};
static const struct proto_field bound_fields[] = {{1, P_STR, "kind", 0},
                                                  {2, P_STR, "apiVersion", 0},
                                                  {3, P_STR, "name", 0},
                                                  {4, P_STR, "uid", 0},
                                                  END};
static const struct proto_field token_spec_fields[] = {{1, P_STRS, "audiences", 0},
                                                       {3, P_MSG, "boundObjectRef", bound_fields},
                                                       {4, P_INT, "expirationSeconds", 0},
                                                       END};
static const struct proto_field token_review_spec_fields[] = {
    {1, P_STR, "token", 0}, {2, P_STRS, "audiences", 0}, END};
static const struct proto_field token_review_fields[] = {
    META, {2, P_MSG, "spec", token_review_spec_fields}, END};
static const struct proto_field token_fields[] = {META, {2, P_MSG, "spec", token_spec_fields}, END};
static const struct proto_field self_fields[] = {META, END};
static const struct proto_field res_attr_fields[] = {
    {1, P_STR, "namespace", 0}, {2, P_STR, "verb", 0},
    {3, P_STR, "group", 0},     {4, P_STR, "version", 0},
    {5, P_STR, "resource", 0},  {6, P_STR, "subresource", 0},
    {7, P_STR, "name", 0},      END};
static const struct proto_field url_attr_fields[] = {
    {1, P_STR, "path", 0}, {2, P_STR, "verb", 0}, END};
static const struct proto_field access_spec_fields[] = {
    {1, P_MSG, "resourceAttributes", res_attr_fields},
    {2, P_MSG, "nonResourceAttributes", url_attr_fields},
    {3, P_STR, "user", 0},
    {4, P_STRS, "groups", 0},
    {6, P_STR, "uid", 0},
    END};
static const struct proto_field access_fields[] = {
    META, {2, P_MSG, "spec", access_spec_fields}, END};
static const struct proto_field rules_spec_fields[] = {{1, P_STR, "namespace", 0}, END};
static const struct proto_field rules_fields[] = {META, {2, P_MSG, "spec", rules_spec_fields}, END};
static const struct proto_field precondition_fields[] = {
    {1, P_STR, "uid", 0}, {2, P_STR, "resourceVersion", 0}, END};
static const struct proto_field delete_fields[] = {{1, P_INT, "gracePeriodSeconds", 0},
                                                   {2, P_MSG, "preconditions", precondition_fields},
                                                   {3, P_BOOL, "orphanDependents", 0},
                                                   {4, P_STR, "propagationPolicy", 0},
                                                   {5, P_STRS, "dryRun", 0},
                                                   END};

static const struct {
    const char *kind;
    const struct proto_field *fields;
} messages[] = {{"Namespace", namespace_fields},
                {"Secret", secret_fields},
                {"ServiceAccount", account_fields},
                {"Event", event_fields},
                {"Role", role_fields},
                {"ClusterRole", role_fields},
                {"RoleBinding", binding_fields},
                {"ClusterRoleBinding", binding_fields},
                {"Lease", lease_fields},
                {"TokenRequest", token_fields},
                {"TokenReview", token_review_fields},
                {"SelfSubjectReview", self_fields},
                {"SelfSubjectAccessReview", access_fields},
                {"SubjectAccessReview", access_fields},
                {"SelfSubjectRulesReview", rules_fields},
                {"DeleteOptions", delete_fields}};

/* ---- the wire ---- */
struct wire {
    const unsigned char *p, *end;
};
struct value {
    unsigned number, type; /* 0 varint, 2 bytes */
    uint64_t v;
    struct wire bytes;
};

static bool varint(struct wire *w, uint64_t *ret)
{
    uint64_t v = 0;

    for (unsigned shift = 0; w->p < w->end && shift < 64; shift += 7) {
        unsigned char b = *w->p++;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            *ret = v;
            return true;
        }
    }
    return false;
}

/* 1: a field; 0: the end; -1: torn. */
static int next(struct wire *w, struct value *ret)
{
    uint64_t tag, n;

    if (w->p == w->end)
        return 0;
    if (!varint(w, &tag) || tag >> 3 > 1u << 20)
        return -1;
    ret->number = (unsigned)(tag >> 3);
    ret->type = tag & 7;
    if (ret->type == 0)
        return varint(w, &ret->v) ? 1 : -1;
    if (ret->type == 2 ? !varint(w, &n)
                       : (n = ret->type == 1 ? 8 : 4, ret->type != 1 && ret->type != 5))
        return -1;
    if (n > (uint64_t)(w->end - w->p))
        return -1;
    ret->bytes = (struct wire){w->p, w->p + n};
    w->p += n;
    return 1;
}

static cJSON *text(const struct wire *w)
{
    size_t n = (size_t)(w->end - w->p);
    char *s = mem_alloc(n + 1);

    memcpy(s, w->p, n);
    s[n] = 0;
    cJSON *j = strlen(s) == n ? cJSON_CreateString(s) : NULL;
    explicit_bzero(s, n);
    mem_free(s);
    return j;
}

static cJSON *base64(const struct wire *w)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = (size_t)(w->end - w->p);
    char *out = mem_alloc(n * 4 / 3 + 8), *o = out;

    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)w->p[i] << 16 | (i + 1 < n ? (uint32_t)w->p[i + 1] << 8 : 0) |
                     (i + 2 < n ? w->p[i + 2] : 0u);
        for (size_t k = 0; k < 4; k++)
            *o++ = i + k <= n ? digits[v >> (18 - 6 * k) & 63] : '=';
    }
    *o = 0;
    cJSON *j = cJSON_CreateString(out);
    explicit_bzero(out, (size_t)(o - out));
    mem_free(out);
    return j;
}

static bool map_entry(struct wire w, bool bytes, cJSON *map)
{
    struct value v;
    cJSON *key = NULL, *value = NULL;
    int r;

    while ((r = next(&w, &v)) > 0) {
        if (v.type != 2 || (v.number == 1 ? key : value))
            break;
        if (v.number == 1)
            key = text(&v.bytes);
        else if (v.number == 2)
            value = bytes ? base64(&v.bytes) : text(&v.bytes);
    }
    bool ok = !r && key && !cJSON_GetObjectItemCaseSensitive(map, key->valuestring);
    if (ok)
        cJSON_AddItemToObject(map, key->valuestring, value ? value : cJSON_CreateString(""));
    else
        cJSON_Delete(value);
    cJSON_Delete(key);
    return ok;
}

/* Time{1 seconds, 2 nanos}; an empty one is no time. */
static bool time_value(struct wire w, cJSON *to, const char *json)
{
    struct value v;
    int64_t s = 0, nanos = 0;
    char out[32];
    int r;

    while ((r = next(&w, &v)) > 0) {
        if (v.type != 0)
            return false;
        if (v.number == 1)
            s = (int64_t)v.v;
        if (v.number == 2)
            nanos = (int64_t)v.v;
    }
    if (r || s < 0 || s > 253402300799 || nanos < 0 || nanos > 999999999)
        return !r && s < 0; /* year 1: not given */
    if (s || nanos) {
        time_print(s * 1000 + nanos / 1000000, out);
        cJSON_AddStringToObject(to, json, out);
    }
    return true;
}

static bool message(struct wire w, const struct proto_field *fields, cJSON *to);

static cJSON *list_of(cJSON *to, const struct proto_field *f, bool object)
{
    cJSON *have = cJSON_GetObjectItemCaseSensitive(to, f->json);
    return have     ? have
           : object ? cJSON_AddObjectToObject(to, f->json)
                    : cJSON_AddArrayToObject(to, f->json);
}

static bool put(const struct value *v, const struct proto_field *f, cJSON *to)
{
    bool bytes = f->type != P_BOOL && f->type != P_INT;
    cJSON *j;

    if (v->type != (bytes ? 2u : 0u))
        return false;
    switch (f->type) {
    case P_STR:
        j = text(&v->bytes);
        cJSON_DeleteItemFromObjectCaseSensitive(to, f->json);
        return j &&
               (*j->valuestring ? cJSON_AddItemToObject(to, f->json, j) : (cJSON_Delete(j), 1));
    case P_BOOL:
        cJSON_DeleteItemFromObjectCaseSensitive(to, f->json);
        return cJSON_AddBoolToObject(to, f->json, v->v != 0) != NULL;
    case P_INT:
        cJSON_DeleteItemFromObjectCaseSensitive(to, f->json);
        return cJSON_AddNumberToObject(to, f->json, (double)(int64_t)v->v) != NULL;
    case P_MSG:
        return message(v->bytes, f->sub, list_of(to, f, true));
    case P_MSGS:
        j = cJSON_CreateObject();
        cJSON_AddItemToArray(list_of(to, f, false), j);
        return message(v->bytes, f->sub, j);
    case P_STRS:
        j = text(&v->bytes);
        return j && cJSON_AddItemToArray(list_of(to, f, false), j);
    case P_MAP:
    case P_BYTES_MAP:
        return map_entry(v->bytes, f->type == P_BYTES_MAP, list_of(to, f, true));
    default:
        return time_value(v->bytes, to, f->json);
    }
}

static bool message(struct wire w, const struct proto_field *fields, cJSON *to)
{
    struct value v;
    int r;

    while ((r = next(&w, &v)) > 0) {
        const struct proto_field *f = fields;
        while (f->number && f->number != v.number)
            f++;
        if (f->number && !put(&v, f, to))
            return false;
    }
    return !r;
}

/* ---- the envelope: "k8s\0", then Unknown{1 TypeMeta{1 apiVersion, 2 kind}, 2 raw} ---- */
static const struct proto_field type_fields[] = {
    {1, P_STR, "apiVersion", 0}, {2, P_STR, "kind", 0}, END};

int proto_body(struct slice in, cJSON **ret, struct err *err)
{
    struct wire w = {in.p, (const unsigned char *)in.p + in.n}, raw = {0};
    struct value v;
    cJSON *j = cJSON_CreateObject();
    bool ok = in.n > 4 && !memcmp(in.p, "k8s\0", 4);
    const char *kind = "";
    int r = -1;

    if (ok)
        w.p += 4;
    while (ok && (r = next(&w, &v)) > 0) {
        if (v.number == 1 && v.type == 2)
            ok = message(v.bytes, type_fields, j);
        else if (v.number == 2 && v.type == 2)
            raw = v.bytes;
    }
    const cJSON *k = cJSON_GetObjectItemCaseSensitive(j, "kind");
    if (k)
        kind = k->valuestring;
    for (size_t i = 0; ok && !r && i < sizeof messages / sizeof *messages; i++)
        if (!strcmp(messages[i].kind, kind)) {
            if (raw.p && !message(raw, messages[i].fields, j))
                break;
            *ret = j;
            return 0;
        }
    bool known = false;
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++)
        known |= !strcmp(messages[i].kind, kind);
    r = !ok || r || known
            ? err_set(err, E_SYNTAX, "the protobuf body cannot be read")
            : err_set(err, E_MEDIA,
                      "protobuf bodies of kind \"%.60s\" are not read: send application/json",
                      kind);
    cJSON_Delete(j);
    return r;
}
