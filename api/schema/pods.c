/* What a Target of type kubernetes may say of the pods that it makes; promises.c has the
 * sentences. */
#include "api/schema/schema_internal.h"

#include "api/base/net/url.h"

#include <cjson/cJSON.h>

#define SPEC object_as(o, target)->spec
#define TOLERATIONS_MAX 64

bool pods_target(const struct object *o)
{
    return SPEC->type == TARGET_KUBERNETES;
}

bool pods_connection_unclear(const struct object *o)
{
    const struct target_connection *c = SPEC->connection;
    struct url u;

    if (!pods_target(o))
        return false;
    return !c || !c->credentialsFrom ||
           (*c->server && (url_parse(c->server, &u, NULL) < 0 || (!u.tls && !u.loopback)));
}

/* As a namespace is named: it is a part of the paths of requests. */
static bool space_wrong(const char *s)
{
    return *s && (!object_name_valid(s) || strlen(s) > 63 || strchr(s, '.'));
}

bool pods_namespace_unclear(const struct object *o)
{
    return pods_target(o) && SPEC->connection && space_wrong(SPEC->connection->namespace_);
}

bool pods_elsewhere(const struct object *o)
{
    return SPEC->kubernetes && !pods_target(o);
}

/* A folder by its whole path, spelled in one way. */
static bool folder_ok(const char *s)
{
    size_t n = strlen(s);

    if (n < 2 || *s != '/' || s[n - 1] == '/' || strpbrk(s, ":\\\"\n\r\t"))
        return false;
    for (const char *p = s; *p; p += 1 + strcspn(p + 1, "/")) {
        size_t part = strcspn(p + 1, "/");
        if (part == 0 || (part == 1 && p[1] == '.') || (part == 2 && p[1] == '.' && p[2] == '.'))
            return false;
    }
    return true;
}

bool pods_runner_unclear(const struct object *o)
{
    const struct target_kubernetes *k = SPEC->kubernetes;
    const struct kubernetes_runner *r = k ? k->runner : NULL;

    return pods_target(o) &&
           (!r || !*r->image == !*r->hostPath || (*r->hostPath && !folder_ok(r->hostPath)));
}

/* Where every image has something, and where the runner is. */
static bool folder_taken(const char *s)
{
    size_t n = strcspn(s + 1, "/");

    return (n == 3 && (!strncmp(s, "/dev", 4) || !strncmp(s, "/sys", 4))) ||
           (n == 4 && !strncmp(s, "/proc", 5)) || strncmp(s, "/.hanse", 7) == 0;
}

bool pods_volumes_unclear(const struct object *o)
{
    const struct target_kubernetes *k = SPEC->kubernetes;

    for (uint32_t i = 0; k && i < k->n_volumes; i++) {
        const struct kubernetes_volume *v = &k->volumes[i];
        if (!folder_ok(v->path) || folder_taken(v->path) || !*v->hostPath == !*v->claim ||
            (*v->hostPath && !folder_ok(v->hostPath)) ||
            (*v->claim && !object_name_valid(v->claim)))
            return true;
    }
    return false;
}

/* Neither standard lets a pod reach into its node's folders. */
bool pods_security_unclear(const struct object *o)
{
    const struct target_kubernetes *k = SPEC->kubernetes;

    if (!k || k->podSecurity < POD_SECURITY_BASELINE)
        return false;
    for (uint32_t i = 0; i < k->n_volumes; i++)
        if (*k->volumes[i].hostPath)
            return true;
    return k->runner && *k->runner->hostPath;
}

/* A folder that is in no volume would be one of the container, and go with it. */
bool pods_stores_unmounted(const struct object *o)
{
    const struct target_kubernetes *k = SPEC->kubernetes;

    for (uint32_t i = 0; pods_target(o) && i < SPEC->n_stores; i++) {
        const char *s = SPEC->stores[i];
        bool mounted = *s != '/';
        for (uint32_t v = 0; k && v < k->n_volumes; v++) {
            size_t n = strlen(k->volumes[v].path);
            mounted = mounted || (strncmp(s, k->volumes[v].path, n) == 0 && (!s[n] || s[n] == '/'));
        }
        if (!mounted)
            return true;
    }
    return false;
}

static bool label_ok(const struct kv *l)
{
    return label_key_ok(l->key) && (!*l->value || label_word(l->value, strlen(l->value), 63));
}

bool pods_labels_unclear(const struct object *o)
{
    const struct target_kubernetes *k = SPEC->kubernetes;

    for (uint32_t i = 0; k && i < k->n_podLabels; i++) {
        const struct kv *l = &k->podLabels[i];
        size_t n = strcspn(l->key, "/");
        bool ours = l->key[n] && n >= 9 && strncmp(l->key + n - 9, "hanse.dev", 9) == 0 &&
                    (n == 9 || l->key[n - 10] == '.');
        if (ours || !label_ok(l))
            return true;
    }
    return false;
}

bool pods_nodes_unclear(const struct object *o)
{
    const struct target_kubernetes *k = SPEC->kubernetes;

    for (uint32_t i = 0; k && i < k->n_nodeLabels; i++)
        if (!label_ok(&k->nodeLabels[i]))
            return true;
    return false;
}

static bool space_same(const struct kubernetes_namespace *a, const struct kubernetes_namespace *b)
{
    return a->managed == b->managed && a->network == b->network;
}

/* What a namespace of the cluster gets is said of it once, or in the same words each time. */
bool pods_spaces_unclear(const struct object *o)
{
    const struct target_kubernetes *k = SPEC->kubernetes;

    for (uint32_t i = 0; k && i < k->n_namespaces; i++) {
        if (k->namespaces[i].managed && !k->podSecurity)
            return true;
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(k->namespaces[i].as, k->namespaces[j].as) == 0 &&
                !space_same(&k->namespaces[i], &k->namespaces[j]))
                return true;
    }
    return false;
}

/* They run somewhere. */
bool pods_diagnostics_unclear(const struct object *o)
{
    const struct target_kubernetes *k = SPEC->kubernetes;
    const struct kubernetes_diagnostics *d = k ? k->diagnostics : NULL;

    if (!d || !pods_target(o))
        return false;
    return space_wrong(d->namespace_) ||
           (!*d->namespace_ && (!SPEC->connection || !*SPEC->connection->namespace_));
}

static bool name_wrong(const char *s)
{
    return *s && !object_name_valid(s);
}

bool pods_names_unclear(const struct object *o)
{
    const struct target_kubernetes *k = SPEC->kubernetes;

    if (!k)
        return false;
    for (uint32_t i = 0; i < k->n_namespaces; i++)
        if (space_wrong(k->namespaces[i].as))
            return true;
    for (uint32_t i = 0; i < k->n_imagePullSecrets; i++)
        if (!object_name_valid(k->imagePullSecrets[i]))
            return true;
    for (uint32_t i = 0; i < k->n_priorityClasses; i++)
        if (name_wrong(k->priorityClasses[i].as))
            return true;
    return name_wrong(k->serviceAccountName) || name_wrong(k->queue) ||
           strlen(k->queue) > 63 || /* it is the value of a label */
           name_wrong(k->schedulerName);
}

/* One of those that Kubernetes' own API takes. */
static bool toleration_ok(const cJSON *t)
{
    const char *key = "", *op = "Equal", *value = "", *effect = "";
    const struct {
        const char *name, **text;
    } texts[] = {{"key", &key}, {"operator", &op}, {"value", &value}, {"effect", &effect}};
    bool seconds = false;

    if (!cJSON_IsObject(t))
        return false;
    for (const cJSON *f = t->child; f; f = f->next) {
        size_t i = 0;
        while (i < sizeof texts / sizeof *texts && strcmp(f->string, texts[i].name) != 0)
            i++;
        if (i < sizeof texts / sizeof *texts && cJSON_IsString(f))
            *texts[i].text = f->valuestring;
        else if (!strcmp(f->string, "tolerationSeconds") && cJSON_IsNumber(f))
            seconds = true;
        else
            return false;
    }
    bool exists = strcmp(op, "Exists") == 0, evicts = strcmp(effect, "NoExecute") == 0;
    return (exists || strcmp(op, "Equal") == 0) && (*key ? label_key_ok(key) : exists) &&
           (!*value || (!exists && label_word(value, strlen(value), 63))) &&
           (seconds ? evicts
                    : !*effect || evicts || !strcmp(effect, "NoSchedule") ||
                          !strcmp(effect, "PreferNoSchedule"));
}

bool pods_tolerations_unclear(const struct object *o)
{
    const struct target_kubernetes *k = SPEC->kubernetes;
    cJSON *list = NULL;

    if (!k || !k->tolerations.n)
        return false;
    list = cJSON_ParseWithLength(k->tolerations.p, k->tolerations.n);
    bool bad = !cJSON_IsArray(list) || cJSON_GetArraySize(list) > TOLERATIONS_MAX;
    for (const cJSON *t = bad ? NULL : list->child; t; t = t->next)
        bad = bad || !toleration_ok(t);
    cJSON_Delete(list);
    return bad;
}
