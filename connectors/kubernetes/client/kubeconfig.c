/* Whom to speak to, whom to believe and what to show: out of a kubeconfig, or out of the entries of
 * a Secret. What is said there comes from whoever wrote that Secret, so this file must never open a
 * file or start a program that a document names, nor let a server go unverified; a field that asks
 * for that is refused, by its name. No error shows a value of a field. */
#include "connectors/kubernetes/client/client.h"

#include "api/base/net/url.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#define KUBECONFIG_MAX (1u << 20)
#define PATH_MAX_ 96
#define BLANKS " \t\r\n"

/* ---- logins ---- */
static void wipe(char **text)
{
    if (*text)
        OPENSSL_cleanse(*text, strlen(*text));
    mem_free(*text);
    *text = NULL;
}

void kube_login_clear(struct kube_login *l)
{
    wipe(&l->server);
    wipe(&l->ca_pem);
    wipe(&l->cert_pem);
    wipe(&l->key_pem);
    wipe(&l->token);
    wipe(&l->namespace_);
}

static bool text_same(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

bool kube_login_same(const struct kube_login *a, const struct kube_login *b)
{
    return text_same(a->server, b->server) && text_same(a->ca_pem, b->ca_pem) &&
           text_same(a->cert_pem, b->cert_pem) && text_same(a->key_pem, b->key_pem) &&
           text_same(a->token, b->token) && text_same(a->namespace_, b->namespace_);
}

static void replace(char **text, const char *by)
{
    char *made = mem_strdup(by);

    wipe(text);
    *text = made;
}

/* `where` names its parts in errors. */
static int login_check(const struct kube_login *l, const char *where, struct err *err)
{
    struct url u;

    if (!l->server || url_parse(l->server, &u, NULL) < 0)
        return err_set(err, E_INVALID, "%s: its server is no URL such as https://HOST:6443", where);
    if (!u.tls && !u.loopback)
        return err_set(err, E_INVALID,
                       "%s: its server has http://, which is taken for this machine alone: say "
                       "https://",
                       where);
    if (!u.tls && (l->ca_pem || l->cert_pem))
        return err_set(err, E_INVALID, "%s: it has certificates, and its server no TLS", where);
    if (!l->cert_pem != !l->key_pem)
        return err_set(err, E_INVALID, "%s: a client certificate and its key come together", where);
    if (l->cert_pem && l->token)
        return err_set(err, E_INVALID,
                       "%s: it has both a token and a client certificate: whose rights would "
                       "count? Leave one out",
                       where);
    if (u.tls && !l->cert_pem && !l->token)
        return err_set(err, E_NOTFOUND, "%s: it has no token and no client certificate", where);
    for (const char *s = l->token ? l->token : ""; *s; s++)
        if (*s < '!' || *s > '~')
            return err_set(err, E_INVALID, "%s: its token has letters that no header takes", where);
    return 0;
}

/* A key that asks for a passphrase would have it asked on the terminal. */
static int pem_check(const char *pem, const char *what, bool key, struct err *err)
{
    const char *begin = strstr(pem, "-----BEGIN ");

    if (!begin || (key && !strstr(begin, "PRIVATE KEY-----")) ||
        (!key && !strstr(begin, "-----BEGIN CERTIFICATE-----")))
        return err_set(err, E_INVALID, "%s: no %s in PEM (-----BEGIN …)", what,
                       key ? "private key" : "certificate");
    if (key && strstr(pem, "ENCRYPTED"))
        return err_set(err, E_NOTIMPL,
                       "%s: the key is encrypted, and nobody is there to ask for its passphrase: "
                       "give it without one",
                       what);
    return 0;
}

/* ---- one kubeconfig ---- */
struct config {
    const cJSON *root;
    struct err *err;
    char at[PATH_MAX_]; /* of the entry under way: "users[admin].user" */
};

static const cJSON *child(const cJSON *o, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(o, name);
}

static const char *text_of(const cJSON *o, const char *name)
{
    const cJSON *v = child(o, name);

    return cJSON_IsString(v) ? v->valuestring : "";
}

/* kubectl writes some of them down without a value. */
static bool says(const cJSON *o, const char *name)
{
    const cJSON *v = child(o, name);

    if (!v || cJSON_IsNull(v) || cJSON_IsFalse(v))
        return false;
    if (cJSON_IsString(v))
        return *v->valuestring != '\0';
    return !(cJSON_IsObject(v) || cJSON_IsArray(v)) || v->child;
}

static int refuse(const struct config *c, int code, const char *field, const char *why)
{
    char path[ERR_FIELD_MAX];

    (void)snprintf(path, sizeof path, "%s%s%s", c->at, *c->at ? "." : "", field);
    return err_field(c->err, code, path, "kubeconfig: %s: %s", path, why);
}

/* Finds `list[].name`, and in it the object `inner`. */
static int entry(struct config *c, const char *list, const char *name, const char *inner,
                 const cJSON **ret)
{
    const cJSON *v, *found = NULL;

    (void)snprintf(c->at, sizeof c->at, "%s[%.50s]", list, name);
    cJSON_ArrayForEach(v, child(c->root, list))
    {
        if (strcmp(text_of(v, "name"), name) != 0)
            continue;
        if (found)
            return refuse(c, E_INVALID, "name", "it is there twice");
        found = v;
    }
    if (!found)
        return refuse(c, E_NOTFOUND, "name", "it is not there");
    *ret = child(found, inner);
    if (!cJSON_IsObject(*ret))
        return refuse(c, E_INVALID, inner, "it is not there, or no object");
    (void)snprintf(c->at, sizeof c->at, "%s[%.50s].%s", list, name, inner);
    return 0;
}

static const struct refused {
    const char *field, *why;
    int code;
} of_clusters[] =
    {{"certificate-authority",
      "files are not read: give certificate-authority-data, what is in it as base64", E_NOTIMPL},
     {"insecure-skip-tls-verify",
      "a server that is not verified is not spoken to: give certificate-authority-data", E_INVALID},
     {"proxy-url", "the server is spoken to without a proxy of its own: leave it out", E_NOTIMPL},
     {"tls-server-name",
      "the server's certificate is held against the name in server: leave it out", E_NOTIMPL}},
  of_users[] = {
      {"exec",
       "no program is started for credentials: give a token of a service account, or "
       "client-certificate-data and client-key-data",
       E_NOTIMPL},
      {"auth-provider",
       "such plugins are not there: give a token of a service account, or client-certificate-data "
       "and client-key-data",
       E_NOTIMPL},
      {"client-certificate",
       "files are not read: give client-certificate-data, what is in it as base64", E_NOTIMPL},
      {"client-key", "files are not read: give client-key-data, what is in it as base64",
       E_NOTIMPL},
      {"tokenFile", "files are not read: give token, what is in it", E_NOTIMPL},
      {"username", "passwords are not taken by API servers any more: give a token", E_NOTIMPL},
      {"password", "passwords are not taken by API servers any more: give a token", E_NOTIMPL},
      {"as", "whose name runs go by is said by spec.principals of the Target", E_NOTIMPL},
      {"as-uid", "whose name runs go by is said by spec.principals of the Target", E_NOTIMPL},
      {"as-groups", "whose name runs go by is said by spec.principals of the Target", E_NOTIMPL},
      {"as-user-extra", "whose name runs go by is said by spec.principals of the Target",
       E_NOTIMPL}};

static int refused_look(const struct config *c, const cJSON *o, const struct refused *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (says(o, v[i].field))
            return refuse(c, v[i].code, v[i].field, v[i].why);
    return 0;
}

static int base64_read(const char *text, char **ret)
{
    size_t n = strlen(text);
    EVP_ENCODE_CTX *x = EVP_ENCODE_CTX_new();
    unsigned char *out = mem_zalloc(n + 4);
    int a = 0, b = 0;
    bool good = x && strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                  "+/=" BLANKS) == n;

    if (good) {
        EVP_DecodeInit(x);
        good = EVP_DecodeUpdate(x, out, &a, (const unsigned char *)text, (int)n) >= 0 &&
               EVP_DecodeFinal(x, out + a, &b) >= 0 && strlen((char *)out) == (size_t)a + (size_t)b;
    }
    EVP_ENCODE_CTX_free(x);
    *ret = (char *)out;
    if (!good || a + b == 0)
        wipe(ret);
    return *ret ? 0 : E_INVALID;
}

static int pem_take(const struct config *c, const cJSON *o, const char *field, bool key, char **ret)
{
    char what[PATH_MAX_ + 64];

    if (!says(o, field))
        return 0;
    if (base64_read(text_of(o, field), ret) < 0)
        return refuse(c, E_INVALID, field, "it is no base64 of a text");
    (void)snprintf(what, sizeof what, "kubeconfig: %s.%s", c->at, field);
    return pem_check(*ret, what, key, c->err);
}

#define COUNT(v) (sizeof(v) / sizeof *(v))
static int cluster_take(struct config *c, const char *name, struct kube_login *ret)
{
    const cJSON *o = NULL;
    int rc = entry(c, "clusters", name, "cluster", &o);

    if (rc == 0)
        rc = refused_look(c, o, of_clusters, COUNT(of_clusters));
    if (rc == 0)
        rc = pem_take(c, o, "certificate-authority-data", false, &ret->ca_pem);
    if (rc == 0 && !says(o, "server"))
        rc = refuse(c, E_INVALID, "server", "it is not there");
    if (rc == 0)
        ret->server = mem_strdup(text_of(o, "server"));
    return rc;
}

static int user_take(struct config *c, const char *name, struct kube_login *ret)
{
    const cJSON *o = NULL;
    int rc = entry(c, "users", name, "user", &o);

    if (rc == 0)
        rc = refused_look(c, o, of_users, COUNT(of_users));
    if (rc == 0)
        rc = pem_take(c, o, "client-certificate-data", false, &ret->cert_pem);
    if (rc == 0)
        rc = pem_take(c, o, "client-key-data", true, &ret->key_pem);
    if (rc == 0 && child(o, "token") && !cJSON_IsString(child(o, "token")))
        rc = refuse(c, E_INVALID, "token", "it is no text: put it in quotes");
    if (rc == 0 && says(o, "token"))
        ret->token = mem_strdup(text_of(o, "token"));
    return rc;
}

static int config_take(struct config *c, const char *context, struct kube_login *ret)
{
    const char *name = context && *context ? context : text_of(c->root, "current-context");
    const cJSON *o = NULL;

    if (!cJSON_IsObject(c->root))
        return err_set(c->err, E_INVALID, "kubeconfig: it is no object");
    if (says(c->root, "kind") && strcmp(text_of(c->root, "kind"), "Config") != 0)
        return refuse(c, E_INVALID, "kind", "it is no Config");
    if (!*name)
        return refuse(c, E_INVALID, "current-context",
                      "it names none: say spec.kubernetes.context in the Target");
    int rc = entry(c, "contexts", name, "context", &o);
    if (rc == 0 && !says(o, "cluster"))
        rc = refuse(c, E_INVALID, "cluster", "it is not there");
    if (rc == 0 && !says(o, "user"))
        rc = refuse(c, E_INVALID, "user", "it is not there");
    if (rc == 0 && says(o, "namespace"))
        ret->namespace_ = mem_strdup(text_of(o, "namespace"));
    if (rc == 0)
        rc = cluster_take(c, text_of(o, "cluster"), ret);
    if (rc == 0)
        rc = user_take(c, text_of(o, "user"), ret);
    return rc;
}

static void tree_wipe(cJSON *j) /* as deep as its parser went */
{
    for (; j; j = j->next) {
        if (j->valuestring)
            OPENSSL_cleanse(j->valuestring, strlen(j->valuestring));
        tree_wipe(j->child);
    }
}

/* What the parser says may show a value; where it stands is enough. */
static int unreadable(const struct err *why, struct err *err)
{
    size_t n = strspn(why->text, "kubeconfig:0123456789");

    return err_set(err, E_INVALID,
                   "%.*s it cannot be read from here on: it is plain YAML, without anchors, "
                   "aliases, tags and repeated keys, and what looks like a number in an unusual "
                   "form is in quotes",
                   (int)(n < 40 ? n : 40), why->text);
}

int kube_kubeconfig_read(const char *text, const char *context, struct kube_login *ret,
                         struct err *err)
{
    struct yaml_doc *docs = NULL;
    struct kube_login made = {0};
    struct err why = {0};
    size_t n = strlen(text), n_docs = 0;
    int rc;

    if (n > KUBECONFIG_MAX)
        return err_set(err, E_TOOLARGE, "kubeconfig: it is larger than %u bytes", KUBECONFIG_MAX);
    if (yaml_parse_all(text, n, "kubeconfig", &docs, &n_docs, &why) < 0)
        return unreadable(&why, err);
    struct config c = {.root = n_docs ? docs[0].json : NULL, .err = err};
    rc = n_docs == 1 ? config_take(&c, context, &made)
                     : err_set(err, E_INVALID, "kubeconfig: it is not one document");
    if (rc == 0)
        rc = login_check(&made, "kubeconfig", err);
    for (size_t i = 0; i < n_docs; i++)
        tree_wipe(docs[i].json);
    yaml_docs_free(docs, n_docs);
    if (rc < 0)
        kube_login_clear(&made);
    else
        *ret = made;
    return rc;
}

/* ---- a Secret ---- */
struct entries {
    const char *config, *token, *ca, *cert, *key;
};

static void token_take(const char *text, char **ret) /* files end with a newline */
{
    size_t n = strlen(text);

    *ret = mem_strdup(text);
    while (n && strchr(BLANKS, (*ret)[n - 1]))
        (*ret)[--n] = '\0';
}

static int parts_take(const struct entries *e, const char *secret, struct kube_login *ret,
                      struct err *err)
{
    char what[160];
    int rc = 0;

    if (e->token)
        token_take(e->token, &ret->token);
    (void)snprintf(what, sizeof what, "Secret %.100s: ca.crt", secret);
    if (e->ca)
        rc = pem_check(e->ca, what, false, err);
    (void)snprintf(what, sizeof what, "Secret %.100s: tls.crt", secret);
    if (rc == 0 && e->cert)
        rc = pem_check(e->cert, what, false, err);
    (void)snprintf(what, sizeof what, "Secret %.100s: tls.key", secret);
    if (rc == 0 && e->key)
        rc = pem_check(e->key, what, true, err);
    if (rc < 0)
        return rc;
    ret->ca_pem = e->ca ? mem_strdup(e->ca) : NULL;
    ret->cert_pem = e->cert ? mem_strdup(e->cert) : NULL;
    ret->key_pem = e->key ? mem_strdup(e->key) : NULL;
    return 0;
}

static int secret_take(const struct entries *e, const struct target_spec *spec,
                       struct kube_login *ret, struct err *err)
{
    const struct target_connection *g = spec->connection;
    const char *secret = g->credentialsFrom->secret;
    const char *context = spec->kubernetes ? spec->kubernetes->context : "";
    char where[160];
    int rc;

    if (e->config && (e->token || e->cert || e->key))
        return err_set(err, E_INVALID,
                       "Secret %.100s has a kubeconfig, and token or tls.crt beside it: whose "
                       "rights would count? Leave one out",
                       secret);
    if (!e->config && *context)
        return err_field(err, E_INVALID, "spec.kubernetes.context",
                         "it is a context of a kubeconfig, and Secret %.100s has none", secret);
    if (!e->config && !*g->server)
        return err_field(err, E_INVALID, "spec.connection.server",
                         "it is needed, since Secret %.100s of namespace hanse-system has no "
                         "kubeconfig",
                         secret);
    rc = e->config ? kube_kubeconfig_read(e->config, context, ret, err)
                   : parts_take(e, secret, ret, err);
    if (rc == 0 && *g->server)
        replace(&ret->server, g->server);
    if (rc == 0 && *g->caBundle)
        replace(&ret->ca_pem, g->caBundle);
    (void)snprintf(where, sizeof where, "Secret %.100s", secret);
    return rc < 0 ? rc : login_check(ret, where, err);
}

int kube_login_read(const struct connector_env *env, const struct target_spec *spec,
                    struct kube_login *ret, struct err *err)
{
    static const char *const names[] = {"kubeconfig", "token", "ca.crt", "tls.crt", "tls.key"};
    const char *v[COUNT(names)];
    struct kube_login made = {0};

    if (!spec->connection || !spec->connection->credentialsFrom)
        return err_field(err, E_INVALID, "spec.connection.credentialsFrom",
                         "it names no Secret with a kubeconfig, a token or a certificate");
    for (size_t i = 0; i < COUNT(names); i++) {
        v[i] = env->secret_get(env->arg, spec->connection->credentialsFrom->secret, names[i]);
        if (v[i] && !v[i][strspn(v[i], BLANKS)]) { /* as good as none */
            env->secret_put(env->arg, v[i]);
            v[i] = NULL;
        }
    }
    const struct entries e = {v[0], v[1], v[2], v[3], v[4]};
    int rc = secret_take(&e, spec, &made, err);
    for (size_t i = 0; i < COUNT(names); i++)
        if (v[i])
            env->secret_put(env->arg, v[i]);
    if (rc < 0)
        kube_login_clear(&made);
    else
        *ret = made;
    return rc;
}
