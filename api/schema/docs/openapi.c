/* What both OpenAPI documents share: definitions and paths, as JSON text. Version 2 is what old
 * clients validate against, version 3 what `kubectl explain` and server-side validation ask for;
 * they differ in how they refer (#/definitions, #/components/schemas) and in how a body is
 * declared. */
#include "api/schema/docs/openapi_internal.h"

#include <stdio.h>

#define META_PREFIX "io.k8s.apimachinery.pkg.apis.meta.v1."

static const struct {
    const struct schema *s;
    const char *name;
} reused[] = {
    {&schema_meta, META_PREFIX "ObjectMeta"},
    {&schema_owner_ref, META_PREFIX "OwnerReference"},
    {&schema_managed_fields, META_PREFIX "ManagedFieldsEntry"},
    {&schema_condition, META_PREFIX "Condition"},
    {&schema_label_selector, META_PREFIX "LabelSelector"},
    {&schema_selector_term, META_PREFIX "LabelSelectorRequirement"},
    {&schema_namespace_, "io.k8s.api.core.v1.Namespace"},
    {&schema_namespace_spec, "io.k8s.api.core.v1.NamespaceSpec"},
    {&schema_namespace_status, "io.k8s.api.core.v1.NamespaceStatus"},
    {&schema_secret, "io.k8s.api.core.v1.Secret"},
    {&schema_event, "io.k8s.api.core.v1.Event"},
    {&schema_event_source, "io.k8s.api.core.v1.EventSource"},
    {&schema_object_ref, "io.k8s.api.core.v1.ObjectReference"},
    {&schema_service_account, "io.k8s.api.core.v1.ServiceAccount"},
    {&schema_policy_rule, "io.k8s.api.rbac.v1.PolicyRule"},
    {&schema_role, "io.k8s.api.rbac.v1.Role"},
    {&schema_cluster_role, "io.k8s.api.rbac.v1.ClusterRole"},
    {&schema_subject, "io.k8s.api.rbac.v1.Subject"},
    {&schema_role_ref, "io.k8s.api.rbac.v1.RoleRef"},
    {&schema_role_binding, "io.k8s.api.rbac.v1.RoleBinding"},
    {&schema_cluster_role_binding, "io.k8s.api.rbac.v1.ClusterRoleBinding"},
    {&schema_resource_quota, "io.k8s.api.core.v1.ResourceQuota"},
    {&schema_resource_quota_spec, "io.k8s.api.core.v1.ResourceQuotaSpec"},
    {&schema_resource_quota_status, "io.k8s.api.core.v1.ResourceQuotaStatus"},
    {&schema_lease, "io.k8s.api.coordination.v1.Lease"},
    {&schema_lease_spec, "io.k8s.api.coordination.v1.LeaseSpec"},
};

const char *definition_name(const struct schema *s, char out[160])
{
    for (size_t i = 0; i < sizeof reused / sizeof reused[0]; i++)
        if (reused[i].s == s) {
            (void)snprintf(out, 160, "%s", reused[i].name);
            return out;
        }
    size_t n = (size_t)snprintf(out, 160, "dev.hanse.v1alpha1.");
    bool up = true;
    for (const char *p = s->name; *p && n < 159; p++) {
        if (*p == '_') {
            up = true;
            continue;
        }
        out[n++] = up ? (char)(*p & ~0x20) : *p;
        up = false;
    }
    out[n] = 0;
    return out;
}

static void string(struct openapi *o, const char *s)
{
    json_print_string(o->out, s, strlen(s));
}

static void ref(struct openapi *o, const char *name)
{
    buf_printf(o->out, "{\"$ref\":\"%s%s\"}", o->v3 ? "#/components/schemas/" : "#/definitions/",
               name);
}

static void ref_schema(struct openapi *o, const struct schema *s)
{
    char name[160];

    ref(o, definition_name(s, name));
}

void openapi_gvk(struct openapi *o, const struct kind *k, bool list)
{
    buf_printf(o->out,
               "\"x-kubernetes-group-version-kind\":%s{\"group\":\"%s\",\"kind\":\"%s\","
               "\"version\":\"%s\"}%s",
               list ? "[" : "", k->group, k->kind, k->version, list ? "]" : "");
}

/* ---- one field ---- */
static void enum_schema(struct openapi *o, const struct enum_desc *e)
{
    buf_str(o->out, "\"type\":\"string\",\"enum\":[");
    for (unsigned i = 0; i < e->n; i++)
        buf_printf(o->out, "%s\"%s\"", i ? "," : "", e->values[i].text);
    buf_char(o->out, ']');
}

/* Version 2 has no word for "a text or an object": such a field takes anything there. */
static void either(struct openapi *o)
{
    buf_str(o->out, o->v3 ? "\"oneOf\":[{\"type\":\"string\"},{\"type\":\"number\"}]"
                          : "\"x-kubernetes-int-or-string\":true");
}

static void list_schema(struct openapi *o, const struct field *f)
{
    buf_str(o->out, "\"type\":\"array\",\"items\":");
    ref_schema(o, f->sub);
    schema_for_each (k, f->sub)
        if (k->flags & FIELD_KEY) {
            buf_printf(
                o->out,
                ",\"x-kubernetes-list-type\":\"map\",\"x-kubernetes-list-map-keys\":[\"%s\"],"
                "\"x-kubernetes-patch-merge-key\":\"%s\",\"x-kubernetes-patch-strategy\":\"merge\"",
                k->json, k->json);
            return;
        }
    buf_str(o->out, ",\"x-kubernetes-list-type\":\"atomic\"");
}

static void typed(struct openapi *o, const struct field *f)
{
    bool loose = !o->v3 && f->flags & FIELD_SHORT;

    switch (f->type) {
    case T_OBJ:
        if (loose)
            buf_str(o->out, "\"x-kubernetes-preserve-unknown-fields\":true");
        else {
            buf_str(o->out, "\"allOf\":[");
            ref_schema(o, f->sub);
            buf_char(o->out, ']');
        }
        return;
    case T_LIST:
        list_schema(o, f);
        return;
    case T_STRS:
        buf_str(o->out, loose ? "\"x-kubernetes-preserve-unknown-fields\":true"
                              : "\"type\":\"array\",\"items\":{\"type\":\"string\"}");
        return;
    case T_ENUMS:
        if (loose) {
            buf_str(o->out, "\"x-kubernetes-preserve-unknown-fields\":true");
            return;
        }
        buf_str(o->out, "\"type\":\"array\",\"items\":{");
        enum_schema(o, f->en);
        buf_char(o->out, '}');
        return;
    case T_ENUM:
        enum_schema(o, f->en);
        return;
    case T_I64S:
        buf_str(o->out, "\"type\":\"array\",\"items\":{\"type\":\"integer\",\"format\":\"int64\"}");
        return;
    case T_MAP:
        buf_str(o->out, "\"type\":\"object\",\"additionalProperties\":{");
        if (f->flags & FIELD_MAP_QTY)
            either(o);
        else
            buf_str(o->out, "\"type\":\"string\"");
        buf_char(o->out, '}');
        return;
    case T_RAW:
        buf_str(o->out, f->flags & FIELD_SECRET
                            ? "\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"}"
                            : "\"type\":\"object\",\"x-kubernetes-preserve-unknown-fields\":true");
        return;
    case T_I64:
        buf_str(o->out, f->flags & FIELD_I64_TEXT ? "\"type\":\"string\""
                                                  : "\"type\":\"integer\",\"format\":\"int64\"");
        return;
    case T_F64:
        buf_str(o->out, "\"type\":\"number\",\"format\":\"double\"");
        return;
    case T_BOOL:
        buf_str(o->out, "\"type\":\"boolean\"");
        return;
    case T_TIME:
        buf_str(o->out, "\"type\":\"string\",\"format\":\"date-time\"");
        return;
    case T_B64:
        buf_str(o->out, "\"type\":\"string\",\"format\":\"byte\"");
        return;
    case T_PCT:
    case T_BYTES:
    case T_MILLI:
    case T_QTY:
        either(o);
        return;
    default:
        buf_str(o->out, "\"type\":\"string\"");
    }
}

static void property(struct openapi *o, const struct field *f)
{
    string(o, f->json);
    buf_str(o->out, ":{\"description\":");
    string(o, f->doc);
    buf_char(o->out, ',');
    typed(o, f);
    if (f->def) {
        bool bare = f->type == T_I64 || f->type == T_F64 || f->type == T_BOOL;
        buf_str(o->out, ",\"default\":");
        if (bare)
            buf_str(o->out, f->def);
        else
            string(o, f->def);
    }
    buf_char(o->out, '}');
}

static void definition(struct openapi *o, const struct schema *s)
{
    const struct kind *k = kind_of_schema(s);
    char name[160];
    bool comma = false;

    buf_printf(o->out, "%s\"%s\":{\"type\":\"object\",\"properties\":{", o->comma ? "," : "",
               definition_name(s, name));
    o->comma = true;
    if (k) {
        buf_str(o->out,
                "\"apiVersion\":{\"type\":\"string\",\"description\":\"version of the schema\"},"
                "\"kind\":{\"type\":\"string\",\"description\":\"kind of the object\"}");
        comma = true;
    }
    schema_for_each (f, s) {
        if (!*f->json)
            continue;
        if (comma)
            buf_char(o->out, ',');
        comma = true;
        property(o, f);
    }
    buf_char(o->out, '}');
    comma = false;
    schema_for_each (f, s) {
        if (!(f->flags & FIELD_REQ))
            continue;
        buf_printf(o->out, "%s\"%s\"", comma ? "," : ",\"required\":[", f->json);
        comma = true;
    }
    if (comma)
        buf_char(o->out, ']');
    if (k) {
        buf_char(o->out, ',');
        openapi_gvk(o, k, true);
    }
    buf_char(o->out, '}');
}

static void list_definition(struct openapi *o, const struct kind *k)
{
    char name[160];

    buf_printf(o->out,
               ",\"%sList\":{\"type\":\"object\",\"required\":[\"items\"],\"properties\":{"
               "\"apiVersion\":{\"type\":\"string\"},\"kind\":{\"type\":\"string\"},\"metadata\":",
               definition_name(k->schema, name));
    ref(o, META_PREFIX "ListMeta");
    buf_str(o->out, ",\"items\":{\"type\":\"array\",\"items\":");
    ref_schema(o, k->schema);
    buf_printf(o->out,
               "}},\"x-kubernetes-group-version-kind\":[{\"group\":\"%s\",\"kind\":\"%sList\","
               "\"version\":\"%s\"}]}",
               k->group, k->kind, k->version);
}

/* Bodies of requests and answers that are no kinds. */
static void extra_definitions(struct openapi *o)
{
    buf_printf(
        o->out,
        "%s\"" META_PREFIX
        "ListMeta\":{\"type\":\"object\",\"properties\":{\"continue\":{\"type\":\"string\"},"
        "\"remainingItemCount\":{\"type\":\"integer\",\"format\":\"int64\"},\"resourceVersion\":{"
        "\"type\":\"string\"}}},"
        "\"" META_PREFIX
        "Preconditions\":{\"type\":\"object\",\"properties\":{\"uid\":{\"type\":\"string\"},"
        "\"resourceVersion\":{\"type\":\"string\"}}},"
        "\"" META_PREFIX "Patch\":{\"type\":\"object\",\"description\":\"a patch of the type that "
        "Content-Type names\"},"
        "\"" META_PREFIX
        "Status\":{\"type\":\"object\",\"properties\":{\"apiVersion\":{\"type\":\"string\"},"
        "\"kind\":{\"type\":\"string\"},\"status\":{\"type\":\"string\"},\"message\":{\"type\":"
        "\"string\"},"
        "\"reason\":{\"type\":\"string\"},\"code\":{\"type\":\"integer\",\"format\":\"int32\"},"
        "\"details\":{\"type\":\"object\"},\"metadata\":",
        o->comma ? "," : "");
    ref(o, META_PREFIX "ListMeta");
    buf_str(
        o->out,
        "},\"x-kubernetes-group-version-kind\":[{\"group\":\"\",\"kind\":\"Status\",\"version\":"
        "\"v1\"}]},"
        "\"" META_PREFIX
        "DeleteOptions\":{\"type\":\"object\",\"properties\":{\"apiVersion\":{\"type\":\"string\"},"
        "\"kind\":{\"type\":\"string\"},\"dryRun\":{\"type\":\"array\",\"items\":{\"type\":"
        "\"string\"}},"
        "\"gracePeriodSeconds\":{\"type\":\"integer\",\"format\":\"int64\"},\"orphanDependents\":{"
        "\"type\":\"boolean\"},"
        "\"propagationPolicy\":{\"type\":\"string\"},\"preconditions\":");
    ref(o, META_PREFIX "Preconditions");
    buf_str(o->out, "}}");
}

static bool wanted(const struct openapi *o, const struct kind *k)
{
    return !o->group || (!strcmp(o->group, k->group) && !strcmp(o->version, k->version));
}

/* A schema belongs to the document when a kind in it leads there. */
static void reach(const struct schema *s, const struct schema **all, size_t n, bool *in)
{
    for (size_t i = 0; i < n; i++)
        if (all[i] == s) {
            if (in[i])
                return;
            in[i] = true;
        }
    schema_for_each (f, s)
        if (f->sub && *f->json)
            reach(f->sub, all, n, in);
}

void openapi_definitions(struct openapi *o)
{
    const struct schema *all[256];
    const struct kind *kinds[KIND_LIMIT];
    bool in[256] = {false};
    size_t n = schema_all(all, 256), nk = kind_all(kinds, KIND_LIMIT);

    INV(n < 256);
    for (size_t i = 0; i < nk; i++)
        if (wanted(o, kinds[i]))
            reach(kinds[i]->schema, all, n, in);
    for (size_t i = 0; i < n; i++)
        if (in[i])
            definition(o, all[i]);
    for (size_t i = 0; i < nk; i++)
        if (wanted(o, kinds[i]))
            list_definition(o, kinds[i]);
    extra_definitions(o);
}

/* ---- paths ---- */
struct verb {
    const char *method, *action, *id;
    bool item;         /* on one object; else on the collection */
    const char *query; /* query parameters */
    const char *body;  /* "" none, "kind", or a definition */
    const char *answer;
};
static const struct verb verbs[] = {
    {"get", "list", "list", false,
     "labelSelector fieldSelector limit continue resourceVersion watch allowWatchBookmarks "
     "timeoutSeconds",
     "", "list"},
    {"post", "post", "create", false, "dryRun fieldManager fieldValidation", "kind", "kind"},
    {"delete", "deletecollection", "deletecollection", false, "labelSelector fieldSelector dryRun",
     META_PREFIX "DeleteOptions", META_PREFIX "Status"},
    {"get", "get", "read", true, "resourceVersion", "", "kind"},
    {"put", "put", "replace", true, "dryRun fieldManager fieldValidation", "kind", "kind"},
    {"patch", "patch", "patch", true, "dryRun fieldManager fieldValidation force",
     META_PREFIX "Patch", "kind"},
    {"delete", "delete", "delete", true, "dryRun gracePeriodSeconds propagationPolicy",
     META_PREFIX "DeleteOptions", META_PREFIX "Status"},
};

static void parameter(struct openapi *o, const char *name, size_t n, const char *in)
{
    bool integer = !strncmp(name, "limit", n) || !strncmp(name, "timeoutSeconds", n) ||
                   !strncmp(name, "gracePeriodSeconds", n);
    bool boolean = !strncmp(name, "watch", n) || !strncmp(name, "allowWatchBookmarks", n) ||
                   !strncmp(name, "force", n);
    const char *type = integer ? "integer" : boolean ? "boolean" : "string";

    buf_printf(o->out, "{\"name\":\"%.*s\",\"in\":\"%s\"%s,", (int)n, name, in,
               *in == 'p' ? ",\"required\":true" : "");
    buf_printf(o->out,
               o->v3 ? "\"schema\":{\"type\":\"%s\",\"uniqueItems\":true}}"
                     : "\"type\":\"%s\",\"uniqueItems\":true}",
               type);
}

static void ref_of(struct openapi *o, const struct kind *k, const char *what)
{
    char name[160], list[170];

    if (!strcmp(what, "kind")) {
        ref_schema(o, k->schema);
    } else if (!strcmp(what, "list")) {
        (void)snprintf(list, sizeof list, "%sList", definition_name(k->schema, name));
        ref(o, list);
    } else {
        ref(o, what);
    }
}

static void content(struct openapi *o, const struct kind *k, const char *what, bool patch)
{
    static const char *const patches[] = {
        "application/apply-patch+yaml", "application/json-patch+json",
        "application/merge-patch+json", "application/strategic-merge-patch+json"};

    buf_str(o->out, "\"content\":{");
    for (size_t i = 0; i < (patch ? 4 : 1); i++) {
        buf_printf(o->out, "%s\"%s\":{\"schema\":", i ? "," : "",
                   patch ? patches[i] : "application/json");
        ref_of(o, k, what);
        buf_char(o->out, '}');
    }
    buf_char(o->out, '}');
}

static void operation(struct openapi *o, const struct kind *k, const struct verb *v,
                      bool all_namespaces, bool status)
{
    bool comma = false, patch = !strcmp(v->method, "patch");

    buf_printf(o->out, "\"%s\":{\"operationId\":\"%s%s%s%s%s%s\",\"x-kubernetes-action\":\"%s\",",
               v->method, v->id, k->kind, *k->group == 'h' || !*k->group ? "" : k->version,
               k->namespaced && !all_namespaces ? "Namespaced" : "",
               all_namespaces ? "ForAllNamespaces" : "", status ? "Status" : "", v->action);
    openapi_gvk(o, k, false);
    buf_str(o->out, ",\"parameters\":[");
    for (const char *p = v->query; *p; p += strspn(p, " ")) {
        size_t n = strcspn(p, " ");
        buf_str(o->out, comma ? "," : "");
        parameter(o, p, n, "query");
        comma = true;
        p += n;
    }
    if (!o->v3 && *v->body) {
        buf_printf(o->out, ",{\"name\":\"body\",\"in\":\"body\"%s,\"schema\":",
                   *v->method == 'd' ? "" : ",\"required\":true");
        ref_of(o, k, v->body);
        buf_char(o->out, '}');
    }
    buf_char(o->out, ']');
    if (!o->v3) {
        buf_printf(
            o->out, ",\"consumes\":[%s],\"produces\":[\"application/json\"]",
            patch
                ? "\"application/json-patch+json\",\"application/merge-patch+json\",\"application/"
                  "strategic-merge-patch+json\",\"application/apply-patch+yaml\""
                : "\"*/*\"");
    } else if (*v->body) {
        buf_str(o->out, ",\"requestBody\":{");
        content(o, k, v->body, patch);
        buf_char(o->out, '}');
    }
    buf_printf(o->out, ",\"responses\":{\"%s\":{\"description\":\"OK\",",
               *v->method == 'p' && v->method[1] == 'o' ? "201" : "200");
    if (o->v3) {
        content(o, k, v->answer, false);
    } else {
        buf_str(o->out, "\"schema\":");
        ref_of(o, k, v->answer);
    }
    buf_str(o->out, "}}}");
}

static bool permitted(const struct kind *k, const struct verb *v, bool all_namespaces, bool status)
{
    if (all_namespaces)
        return !strcmp(v->action, "list");
    if (status)
        return v->item && strcmp(v->method, "delete");
    return !(k->flags & KINDF_RO) || !strcmp(v->method, "get") ||
           ((k->flags & KINDF_REVOKED) && !strcmp(v->method, "delete"));
}

static void path_item(struct openapi *o, const struct kind *k, bool item, bool all_namespaces,
                      bool status)
{
    bool comma = false;

    buf_printf(o->out, "%s\"/%s%s%s/%s%s/%s%s%s\":{", o->comma ? "," : "",
               *k->group ? "apis/" : "api", k->group, "", k->version,
               k->namespaced && !all_namespaces ? "/namespaces/{namespace}" : "", k->plural,
               item ? "/{name}" : "", status ? "/status" : "");
    o->comma = true;
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        if (verbs[i].item != item || !permitted(k, &verbs[i], all_namespaces, status))
            continue;
        buf_str(o->out, comma ? "," : "");
        operation(o, k, &verbs[i], all_namespaces, status);
        comma = true;
    }
    buf_str(o->out, ",\"parameters\":[");
    if (item)
        parameter(o, "name", 4, "path");
    if (k->namespaced && !all_namespaces) {
        buf_str(o->out, item ? "," : "");
        parameter(o, "namespace", 9, "path");
    }
    buf_str(o->out, "]}");
}

void openapi_paths(struct openapi *o)
{
    const struct kind *kinds[KIND_LIMIT];
    size_t n = kind_all(kinds, KIND_LIMIT);

    for (size_t i = 0; i < n; i++) {
        const struct kind *k = kinds[i];
        if (!wanted(o, k))
            continue;
        if (k->namespaced)
            path_item(o, k, false, true, false);
        path_item(o, k, false, false, false);
        path_item(o, k, true, false, false);
        if (k->flags & KINDF_STATUSSUB)
            path_item(o, k, true, false, true);
    }
}
