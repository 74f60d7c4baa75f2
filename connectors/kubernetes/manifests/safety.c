/* What of an order is kept from others: the Secret of a run has its environment, the tokens of its
 * ranks, whom they trust, its script. Its pods get the environment by reference, so that none of it
 * is in the Job; the tokens are read by the container that installs the runner, and by no other.
 * And what its pods may do (https://kubernetes.io/docs/concepts/security/pod-security-standards/),
 * which must never be less strict than the Target asks. */
#include "connectors/kubernetes/manifests/safety.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#define SECRET_MAX_BYTES ((size_t)1000000) /* the API server takes 1 MiB, with all around it */
#define ENV_MAX 2048
#define OWN_ENV 8

void kube_document_wipe(cJSON *o)
{
    for (cJSON *e = o ? o->child : NULL; e; e = e->next) {
        if (cJSON_IsString(e) && e->valuestring)
            OPENSSL_cleanse(e->valuestring, strlen(e->valuestring));
        for (cJSON *d = e->child; d; d = d->next)
            if (cJSON_IsString(d) && d->valuestring)
                OPENSSL_cleanse(d->valuestring, strlen(d->valuestring));
    }
    cJSON_Delete(o);
}

/* Returns the bytes that it adds. */
static size_t add(cJSON *data, const char *name, const char *value, size_t n)
{
    size_t size = 4 * ((n + 2) / 3) + 1;
    char *text = mem_alloc(size);

    INV(EVP_EncodeBlock((unsigned char *)text, (const unsigned char *)value, (int)n) ==
        (int)size - 1);
    cJSON_AddStringToObject(data, name, text);
    OPENSSL_cleanse(text, size);
    mem_free(text);
    return n + strlen(name);
}

/* What Kubernetes took as a name at all times; newer versions take more. */
static bool env_name_good(const char *s, size_t n)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-.0123456789";

    return n > 0 && n < 1024 && !(s[0] >= '0' && s[0] <= '9') && strspn(s, letters) >= n;
}

/* Of a name that comes twice the last one counts. */
static bool later(const char *const *env, uint32_t i, uint32_t n, const char *const *own,
                  uint32_t n_own, size_t name)
{
    for (uint32_t k = i + 1; k < n + n_own; k++) {
        const char *e = k < n ? env[k] : own[k - n];
        if (strncmp(e, i < n ? env[i] : own[i - n], name) == 0 && e[name] == '=')
            return true;
    }
    return false;
}

static void by_reference(cJSON *list, const char *name, size_t n, const char *secret,
                         const char *key)
{
    cJSON *e = cJSON_CreateObject(), *from = cJSON_CreateObject();
    char text[1024];

    (void)snprintf(text, sizeof text, "%.*s", (int)n, name);
    cJSON_AddStringToObject(e, "name", text);
    cJSON *ref = cJSON_AddObjectToObject(from, "secretKeyRef");
    cJSON_AddStringToObject(ref, "name", secret);
    cJSON_AddStringToObject(ref, "key", key);
    cJSON_AddItemToObject(e, "valueFrom", from);
    cJSON_AddItemToArray(list, e);
}

static int env_add(const char *const *env, const char *const *own, uint32_t n_own, cJSON *data,
                   cJSON *list, const char *secret, size_t *bytes, struct err *err)
{
    uint32_t n = 0;

    while (env && env[n])
        n++;
    if (n + n_own > ENV_MAX)
        return err_field(err, E_TOOLARGE, "spec.run.env", "more than %d variables", ENV_MAX);
    for (uint32_t i = 0; i < n + n_own; i++) {
        const char *e = i < n ? env[i] : own[i - n];
        size_t name = strcspn(e, "=");
        char key[32];
        if (!e[name] || !env_name_good(e, name))
            return err_field(err, E_INVALID, "spec.run.env",
                             "Kubernetes takes no variable of the name \"%.*s\": letters, digits, "
                             "_, - and ., and no digit first",
                             (int)(name < 100 ? name : 100), e);
        if (later(env, i, n, own, n_own, name))
            continue;
        (void)snprintf(key, sizeof key, "env-%u", i);
        *bytes += add(data, key, e + name + 1, strlen(e + name + 1));
        by_reference(list, e, name, secret, key);
    }
    return 0;
}

/* The names that every program finds, wherever it runs. Behind the workload's own, so that they
 * count. */
static uint32_t own_env(const struct connector *base, const struct run_order *o, struct arena *a,
                        const char *ret[OWN_ENV])
{
    const struct connector_env *e = &base->env;
    const char *cluster = e->cluster_uid ? e->cluster_uid(e->arg) : "";
    uint32_t n = 0;

    ret[n++] = arena_printf(a, "HANSE_WORKLOAD_UID=%s", o->key.uid);
    ret[n++] = arena_printf(a, "HANSE_WORKLOAD_NAME=%s", o->name);
    ret[n++] = arena_printf(a, "HANSE_NAMESPACE=%s", o->ns);
    ret[n++] = arena_printf(a, "HANSE_TARGET=%s", base->target);
    if (*cluster)
        ret[n++] = arena_printf(a, "HANSE_CLUSTER_UID=%s", cluster);
    if (o->saves && o->checkpoint_interval_ms)
        ret[n++] = arena_printf(a, "HANSE_CHECKPOINT_INTERVAL=%lld",
                                (long long)(o->checkpoint_interval_ms + 999) / 1000);
    INV(n <= OWN_ENV);
    return n;
}

int kube_secret_make(const struct connector *base, const struct run_order *o,
                     const struct home_brought *b, const char *const *tokens, cJSON *ret_data,
                     cJSON *ret_env, const char *secret, struct err *err)
{
    const char *own[OWN_ENV];
    AUTO_ARENA a = arena_create(0);
    uint32_t n_own = own_env(base, o, a, own);
    size_t bytes = 0;
    int rc = env_add(o->env, own, n_own, ret_data, ret_env, secret, &bytes, err);

    for (uint32_t i = 0; rc == 0 && tokens && i < o->placement->n_assignments; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "token-%u", i);
        bytes += add(ret_data, key, tokens[i], strlen(tokens[i]));
    }
    if (b && *b->way.ca)
        bytes += add(ret_data, "ca", b->way.ca, strlen(b->way.ca));
    if (b && *b->way.proxy && *b->way.proxy_login)
        bytes += add(ret_data, "proxy", b->way.proxy_login, strlen(b->way.proxy_login));
    if (*o->script)
        bytes += add(ret_data, "script", o->script, strlen(o->script));
    if (rc == 0 && bytes > SECRET_MAX_BYTES)
        return err_set(err, E_TOOLARGE,
                       "its environment, script and tokens have %zu bytes, and a Secret of "
                       "Kubernetes has room for %zu",
                       bytes, SECRET_MAX_BYTES);
    return rc;
}

/* ---- what pods may do ---- */
#define INSTALL_USER 65532 /* where the Target names nobody: the runner's image has no user */

static cJSON *context_of(cJSON *o)
{
    cJSON *c = cJSON_GetObjectItemCaseSensitive(o, "securityContext");

    return c ? c : cJSON_AddObjectToObject(o, "securityContext");
}

static void number_in(cJSON *o, const char *name, int64_t v)
{
    if (v)
        cJSON_AddNumberToObject(o, name, (double)v);
}

/* Restricted wants it of each container. */
static void containers_restrict(cJSON *pod, const char *list)
{
    cJSON *c;

    cJSON_ArrayForEach(c, cJSON_GetObjectItemCaseSensitive(pod, list))
    {
        cJSON *context = context_of(c);
        cJSON *capabilities = cJSON_AddObjectToObject(context, "capabilities");
        cJSON_AddFalseToObject(context, "allowPrivilegeEscalation");
        cJSON_AddItemToArray(cJSON_AddArrayToObject(capabilities, "drop"),
                             cJSON_CreateString("ALL"));
    }
}

void kube_security_in(const struct target_kubernetes *k, cJSON *pod)
{
    cJSON *install = cJSON_GetObjectItemCaseSensitive(pod, "initContainers"), *context;

    if (k->runAsUser || k->runAsGroup || k->fsGroup) {
        context = context_of(pod);
        number_in(context, "runAsUser", k->runAsUser);
        number_in(context, "runAsGroup", k->runAsGroup);
        number_in(context, "fsGroup", k->fsGroup);
    }
    if (k->podSecurity != POD_SECURITY_RESTRICTED)
        return;
    context = context_of(pod);
    cJSON_AddTrueToObject(context, "runAsNonRoot");
    cJSON_AddStringToObject(cJSON_AddObjectToObject(context, "seccompProfile"), "type",
                            "RuntimeDefault");
    containers_restrict(pod, "initContainers");
    containers_restrict(pod, "containers");
    if (!k->runAsUser &&
        strcmp(kube_text(cJSON_GetArrayItem(install, 0), "name"), "hanse-install") == 0)
        number_in(context_of(cJSON_GetArrayItem(install, 0)), "runAsUser", INSTALL_USER);
}
