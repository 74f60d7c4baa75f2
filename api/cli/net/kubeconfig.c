/* Reads kubeconfig files (kubeconfig.h). A field that weakens TLS is an error with a remedy, never
 * a shrug. */
#include "api/cli/net/kubeconfig.h"

#include "api/schema/schema.h"

#include <cjson/cJSON.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#define FILE_MAX_BYTES (4u << 20)
#define FILES_MAX 16

struct file {
    char *path;
    struct yaml_doc *docs;
    size_t n;
};
struct files {
    struct file v[FILES_MAX];
    unsigned n;
};

static const char *text(const cJSON *o, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsString(v) && *v->valuestring ? v->valuestring : NULL;
}

static int file_load(struct loop *l, const char *path, bool must, struct files *fs, struct arena *a,
                     struct err *err)
{
    AUTO_BUF b = {0};
    struct err e = {0};

    buf_init(&b, FILE_MAX_BYTES + 1);
    int rv = file_read(l, path, FILE_MAX_BYTES, &b, &e);
    if (rv == E_NOTFOUND && !must)
        return 0;
    if (rv) {
        if (err)
            *err = e;
        return err_prefix(err, "kubeconfig");
    }
    if (fs->n == FILES_MAX)
        return err_set(err, E_LIMIT, "more than %d kubeconfig files", FILES_MAX);
    struct file *f = &fs->v[fs->n];
    rv = yaml_parse_all(b.p ? b.p : "", b.n, path, &f->docs, &f->n, err);
    if (b.p)
        explicit_bzero(b.p, b.n);
    if (rv)
        return rv;
    f->path = arena_strdup(a, path);
    fs->n++;
    return 0;
}

/* The entry NAME of a list ("clusters", "cluster"), from the first file that has it. */
static const cJSON *entry(const struct files *fs, const char *list, const char *member,
                          const char *name, const char **ret_path)
{
    for (unsigned i = 0; i < fs->n; i++) {
        const cJSON *item;
        const cJSON *entries =
            fs->v[i].n ? cJSON_GetObjectItemCaseSensitive(fs->v[i].docs[0].json, list) : NULL;
        cJSON_ArrayForEach(item, entries)
        {
            const char *n = text(item, "name");
            if (n && name && !strcmp(n, name)) {
                *ret_path = fs->v[i].path;
                return cJSON_GetObjectItemCaseSensitive(item, member);
            }
        }
    }
    return NULL;
}

/* Relative to the file that names it. */
static const char *beside(struct arena *a, const char *config, const char *path)
{
    const char *slash = strrchr(config, '/');

    if (!path || *path == '/' || !slash)
        return path ? arena_strdup(a, path) : NULL;
    return arena_printf(a, "%.*s/%s", (int)(slash - config), config, path);
}

static int base64(struct arena *a, const char *what, const char *s, const char **ret,
                  struct err *err)
{
    size_t n = s ? strlen(s) : 0;

    if (!s)
        return 0;
    unsigned char *out = arena_alloc(a, n + 4);
    int got = n % 4 == 0 ? EVP_DecodeBlock(out, (const unsigned char *)s, (int)n) : -1;
    if (got < 0)
        return err_set(err, E_SYNTAX, "kubeconfig: %s is not base64", what);
    while (got > 0 && n > 0 && s[n - 1] == '=') {
        n--;
        got--;
    }
    out[got] = '\0';
    *ret = (const char *)out;
    return 0;
}

static int further_servers(const cJSON *cluster, struct arena *a, struct login *ret,
                           struct err *err)
{
    const cJSON *x, *s;

    cJSON_ArrayForEach(x, cJSON_GetObjectItemCaseSensitive(cluster, "extensions"))
    {
        const char *name = text(x, "name");
        if (!name || strcmp(name, "hanse.dev/servers") != 0)
            continue;
        cJSON_ArrayForEach(s, cJSON_GetObjectItemCaseSensitive(
                                  cJSON_GetObjectItemCaseSensitive(x, "extension"), "servers"))
        {
            if (!cJSON_IsString(s))
                return err_set(err, E_SYNTAX,
                               "kubeconfig: extension hanse.dev/servers: expected a list of URLs");
            bool known = false;
            for (unsigned i = 0; i < ret->n_servers; i++)
                known = known || !strcmp(ret->servers[i], s->valuestring);
            if (!known && ret->n_servers < LOGIN_SERVERS_MAX)
                ret->servers[ret->n_servers++] = arena_strdup(a, s->valuestring);
        }
    }
    return 0;
}

static int cluster_read(const cJSON *cluster, const char *path, struct arena *a, struct login *ret,
                        struct err *err)
{
    const char *server = text(cluster, "server"), *name = text(cluster, "tls-server-name");

    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(cluster, "insecure-skip-tls-verify")))
        return err_set(err, E_USAGE,
                       "%s: insecure-skip-tls-verify is refused: without a check anybody can pose "
                       "as the cluster; name "
                       "its CA with certificate-authority instead",
                       path);
    if (text(cluster, "proxy-url"))
        return err_set(err, E_NOTIMPL, "%s: proxy-url is not supported: reach the cluster directly",
                       path);
    if (!server)
        return err_set(err, E_SYNTAX, "%s: the cluster names no server", path);
    ret->servers[ret->n_servers++] = arena_strdup(a, server);
    ret->tls_server_name = name ? arena_strdup(a, name) : NULL;
    ret->ca_file = beside(a, path, text(cluster, "certificate-authority"));
    int rv = base64(a, "certificate-authority-data", text(cluster, "certificate-authority-data"),
                    &ret->ca_pem, err);
    return rv ? rv : further_servers(cluster, a, ret, err);
}

/* Passed over in silence, what is asked would be done with the login's own rights. */
static int as_read(const cJSON *user, const char *path, struct arena *a, struct login *ret,
                   struct err *err)
{
    static const char *const others[] = {"as-uid", "as-user-extra"};
    const char *as = text(user, "as");
    const cJSON *g;

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (cJSON_GetObjectItemCaseSensitive(user, others[i]))
            return err_set(err, E_NOTIMPL,
                           "%s: the user's \"%s\" is not supported: kubectl can do that", path,
                           others[i]);
    ret->as = as && *as ? arena_strdup(a, as) : NULL;
    cJSON_ArrayForEach(g, cJSON_GetObjectItemCaseSensitive(user, "as-groups"))
    {
        if (!cJSON_IsString(g) || ret->n_as_groups == LOGIN_GROUPS_MAX)
            return err_set(err, E_SYNTAX, "%s: as-groups: expected at most %d texts", path,
                           LOGIN_GROUPS_MAX);
        ret->as_groups[ret->n_as_groups++] = arena_strdup(a, g->valuestring);
    }
    return 0;
}

static int user_read(struct loop *l, const cJSON *user, const char *path, struct arena *a,
                     struct login *ret, struct err *err)
{
    const char *token = text(user, "token"), *token_file = beside(a, path, text(user, "tokenFile"));
    static const char *const others[] = {"exec", "auth-provider", "username"};

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (cJSON_GetObjectItemCaseSensitive(user, others[i]))
            return err_set(err, E_NOTIMPL,
                           "%s: the user's \"%s\" is not supported: use a client certificate, "
                           "token or tokenFile",
                           path, others[i]);
    int rv = as_read(user, path, a, ret, err);
    if (rv)
        return rv;
    ret->cert_file = beside(a, path, text(user, "client-certificate"));
    ret->key_file = beside(a, path, text(user, "client-key"));
    rv = base64(a, "client-certificate-data", text(user, "client-certificate-data"), &ret->cert_pem,
                err);
    if (!rv)
        rv = base64(a, "client-key-data", text(user, "client-key-data"), &ret->key_pem, err);
    if (rv)
        return rv;
    if (ret->cert_pem)
        ret->cert_file = NULL;
    if (ret->key_pem)
        ret->key_file = NULL;
    ret->token = token ? arena_strdup(a, token) : NULL;
    if (token_file) { /* it is renewed by others: the file wins */
        AUTO_BUF b = {0};
        buf_init(&b, 64u << 10);
        rv = file_read(l, token_file, 32u << 10, &b, err);
        if (rv)
            return err_prefix(err, "tokenFile");
        size_t n = b.n;
        while (n && strchr(" \r\n\t", b.p[n - 1]))
            n--;
        ret->token = arena_strndup(a, b.p ? b.p : "", n);
    }
    return 0;
}

static int login_read(struct loop *l, const struct files *fs, const char *wanted, struct arena *a,
                      struct login *ret, struct err *err)
{
    const char *name = wanted, *path = "", *cluster_path = "", *user_path = "";

    for (unsigned i = 0; i < fs->n && !name; i++)
        name = fs->v[i].n ? text(fs->v[i].docs[0].json, "current-context") : NULL;
    if (!name)
        return fs->n && wanted
                   ? err_set(err, E_USAGE, "no context is chosen: name one with --context")
                   : 0;
    const cJSON *context = entry(fs, "contexts", "context", name, &path);
    if (!context)
        return err_set(err, E_USAGE, "no context \"%s\" in %s", name,
                       fs->n ? fs->v[0].path : "any kubeconfig");
    ret->context = arena_strdup(a, name);
    const char *ns = text(context, "namespace");
    ret->ns = ns ? arena_strdup(a, ns) : NULL;
    const cJSON *cluster =
        entry(fs, "clusters", "cluster", text(context, "cluster"), &cluster_path);
    if (!cluster)
        return err_set(err, E_USAGE, "%s: context \"%s\" names no known cluster", path, name);
    const cJSON *user = entry(fs, "users", "user", text(context, "user"), &user_path);
    int rv = cluster_read(cluster, cluster_path, a, ret, err);
    return rv || !user ? rv : user_read(l, user, user_path, a, ret, err);
}

int kubeconfig_load(struct loop *l, const char *paths, bool must, const char *context,
                    struct arena *a, struct login *ret, struct err *err)
{
    struct files fs = {0};
    bool only = !strchr(paths, ':');
    int rv = 0;

    *ret = (struct login){0};
    for (const char *p = paths; *p && !rv;) {
        size_t n = strcspn(p, ":");
        if (n)
            rv = file_load(l, arena_strndup(a, p, n), must && only, &fs, a, err);
        p += n + (p[n] == ':');
    }
    if (!rv)
        rv = login_read(l, &fs, context, a, ret, err);
    for (unsigned i = 0; i < fs.n; i++)
        yaml_docs_free(fs.v[i].docs, fs.v[i].n);
    return rv;
}
