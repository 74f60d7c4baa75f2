/* Bearer tokens. hanse-NAMESPACE.ID.SECRET: the Token NAMESPACE/token-ID keeps the SHA-256 of
 * SECRET and whom it stands for. SECRET is made here, told once, and never enters the log.
 *
 * hanse-ID.SECRET are tokens of data from before that kind, in Secrets of hanse-system. Nobody can
 * make or change one any more (object_admit), but who made those that are there is not known:
 * so they hold until they expire, at most a year from when they were made, never for
 * system:masters, and for a ServiceAccount only that is older than they are. */
#include "controlplane/server/backend.h"

#include "api/base/limits.h"

#include <cjson/cJSON.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#define SECRET_BYTES 24
#define PREFIX "hanse-"
#define SYSTEM_NS "hanse-system"
#define SECONDS 3600
#define SECONDS_MAX (366LL * 86400)
#define HASH_BYTES 32
#define HEX_BYTES ((size_t)2 * HASH_BYTES)
#define ACCOUNT_PREFIX "system:serviceaccount:"

static void sha256(const char *text, unsigned char out[HASH_BYTES])
{
    unsigned char d[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    INV(EVP_Digest(text, strlen(text), d, &n, EVP_sha256(), NULL) == 1 && n == HASH_BYTES);
    memcpy(out, d, HASH_BYTES);
}

static void hex(const unsigned char *p, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", p[i]);
}

static void hex_random(struct loop *l, char *out, size_t bytes)
{
    unsigned char b[64];

    INV(bytes <= sizeof b);
    loop_random(l, b, bytes);
    hex(b, bytes, out);
    OPENSSL_cleanse(b, sizeof b);
}

/* ---- whose is it? ---- */
static void add_group(struct api_identity *who, const char *group, size_t n)
{
    if (who->n_groups < sizeof who->groups / sizeof *who->groups)
        (void)snprintf(who->groups[who->n_groups++], sizeof *who->groups, "%.*s", (int)n, group);
}

static void identity_fill(struct api_identity *who, const struct object *o)
{
    const struct token_spec *s = object_as(o, token)->spec;

    *who = (struct api_identity){0};
    str_copy(who->user, sizeof who->user, s->user);
    str_copy(who->uid, sizeof who->uid, s->serviceAccountUid);
    for (uint32_t i = 0; i < s->n_groups; i++)
        add_group(who, s->groups[i], strlen(s->groups[i]));
    for (uint32_t i = 0; i < s->n_audiences && i < sizeof who->audiences / sizeof *who->audiences;
         i++)
        (void)snprintf(who->audiences[who->n_audiences++], sizeof *who->audiences, "%s",
                       s->audiences[i]);
    struct api_extra *x = &who->extra[who->n_extra++];
    (void)snprintf(x->key, sizeof x->key, "authentication.kubernetes.io/credential-id");
    (void)snprintf(x->value, sizeof x->value, "JTI=%s", o->meta->uid);
}

static int unknown(struct err *err)
{
    return err_set(err, E_UNAUTH, "the bearer token is unknown or was revoked");
}

static int token_of(const struct root *r, const char *ns, const char *id, const char *secret,
                    int64_t now, struct api_identity *ret, struct err *err)
{
    unsigned char hash[HASH_BYTES];
    char name[80];

    (void)snprintf(name, sizeof name, "token-%s", id);
    sha256(secret, hash);
    const struct object *o = root_get(r, KIND_TOKEN, ns, name);
    const struct token_spec *s = o ? object_as(o, token)->spec : NULL;
    if (!s || s->hash.n != HASH_BYTES || CRYPTO_memcmp(s->hash.p, hash, HASH_BYTES))
        return unknown(err);
    const char *why = token_void(r, o, now);
    if (why)
        return err_set(err, E_UNAUTH, "the bearer token holds no more: %s", why);
    identity_fill(ret, o);
    return 0;
}

int backend_token(struct backend *b, const char *token, struct api_identity *ret, struct err *err)
{
    struct control *c = (struct control *)b;
    const char *p = token + strlen(PREFIX), *first, *second;
    char ns[64] = "", id[64];

    if (strncmp(token, PREFIX, strlen(PREFIX)) != 0 || !(first = strchr(p, '.')))
        return err_set(err, E_UNAUTH, "the bearer token is not one of this cluster's");
    second = strchr(first + 1, '.');
    if (!second || first - p >= (long)sizeof ns || second - first > (long)sizeof id)
        return unknown(err);
    (void)snprintf(ns, sizeof ns, "%.*s", (int)(first - p), p);
    (void)snprintf(id, sizeof id, "%.*s", (int)(second - first - 1), first + 1);
    struct root *r = core_root(c->core);
    int rv = token_of(r, ns, id, second + 1, core_time_ms(c->core), ret, err);
    (void)root_unref(r);
    return rv;
}

/* ---- token.create ---- */
struct making {
    struct control *c;
    char *answer; /* with the clear token: wiped */
    void (*cb)(void *arg, const char *json, const struct err *err);
    void *arg;
};

static void made(void *arg, const struct api_result *r, const struct err *err)
{
    struct making *m = arg;

    (void)r;
    m->cb(m->arg, err ? NULL : m->answer, err);
    OPENSSL_cleanse(m->answer, strlen(m->answer));
    mem_free(m->answer);
    mem_free(m);
}

static const char *text_of(const cJSON *j, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, key);

    return cJSON_IsString(v) ? v->valuestring : "";
}

static int texts_of(const cJSON *j, const char *field, uint32_t max, struct arena *a,
                    const char ***ret, uint32_t *ret_n, struct err *err)
{
    const cJSON *v;

    *ret = arena_array(a, const char *, max + 1);
    if (j && !cJSON_IsNull(j) && !cJSON_IsArray(j))
        return err_field(err, E_INVALID, field, "expected a list of texts");
    cJSON_ArrayForEach(v, j)
    {
        if (!cJSON_IsString(v) || !*v->valuestring || strlen(v->valuestring) > 255)
            return err_field(err, E_INVALID, field, "expected texts of 1 to 255 bytes");
        if (*ret_n == max)
            return err_field(err, E_INVALID, field, "at most %u", max);
        (*ret)[(*ret_n)++] = v->valuestring;
    }
    return 0;
}

static int subject_account(const struct root *r, const cJSON *in, struct arena *a,
                           struct token_spec *s, struct err *err)
{
    const char *ns = text_of(in, "namespace"), *name = text_of(in, "serviceAccount");
    const char **groups = arena_array(a, const char *, 2);

    if (!*ns)
        return err_field(err, E_INVALID, "namespace", "expected the service account's namespace");
    const struct object *o = root_get(r, KIND_SERVICE_ACCOUNT, ns, name);
    if (!o)
        return err_set(err, E_NOTFOUND, "serviceaccounts \"%s\" not found", name);
    s->serviceAccount = name;
    s->serviceAccountUid = arena_strdup(a, o->meta->uid);
    s->user = arena_printf(a, ACCOUNT_PREFIX "%s:%s", ns, name);
    groups[0] = "system:serviceaccounts";
    groups[1] = arena_printf(a, "system:serviceaccounts:%s", ns);
    s->groups = groups;
    s->n_groups = 2;
    return strlen(s->user) < 256 ? 0
                                 : err_field(err, E_INVALID, "serviceAccount",
                                             "its user name would be longer than 255 bytes");
}

static int subject_user(const cJSON *in, struct arena *a, struct token_spec *s, struct err *err)
{
    const cJSON *given = cJSON_GetObjectItemCaseSensitive(in, "groups");
    const char *user = text_of(in, "user");
    const char **groups = arena_array(a, const char *, 16);

    if (!*user || strlen(user) > 255)
        return err_field(err, E_INVALID, "user", "expected whom the token stands for");
    s->user = user;
    if (!cJSON_IsString(given) && given)
        return err_field(err, E_INVALID, "groups", "expected names with commas between them");
    s->groups = groups;
    for (const char *p = given ? given->valuestring : ""; *p;) {
        size_t n = strcspn(p, ",");
        if (!n || n > 255 || s->n_groups == 16)
            return err_field(err, E_INVALID, "groups", "at most 16 of 1 to 255 bytes");
        groups[s->n_groups++] = arena_strndup(a, p, n);
        p += n + (p[n] == ',');
    }
    return 0;
}

/* The object that it goes with: a Secret or a Workload of the same namespace. */
static int bound_of(const struct root *r, const char *ns, const cJSON *in, struct arena *a,
                    struct token_spec *s, struct err *err)
{
    const cJSON *j = cJSON_GetObjectItemCaseSensitive(in, "boundObjectRef");
    const struct kind *k = kind_by_api(text_of(j, "apiVersion"), text_of(j, "kind"));
    const char *name = text_of(j, "name"), *uid = text_of(j, "uid");

    if (!j || cJSON_IsNull(j))
        return 0;
    if (!*s->serviceAccount)
        return err_field(err, E_INVALID, "boundObjectRef",
                         "only a service account's token has one");
    if (!k || (k->id != KIND_SECRET && k->id != KIND_WORKLOAD))
        return err_field(err, E_INVALID, "spec.boundObjectRef.kind",
                         "a token is bound to a Secret (v1) or a Workload (hanse.dev/v1alpha1)");
    const struct object *o = root_get(r, k->id, ns, name);
    if (!o)
        return err_set(err, E_NOTFOUND, "%s \"%s\" not found", k->plural, name);
    if (*uid && strcmp(uid, o->meta->uid) != 0)
        return err_field(err, E_CONFLICT, "spec.boundObjectRef.uid",
                         "the UID in the bound object reference (%s) does not match the UID in "
                         "record (%s)",
                         uid, o->meta->uid);
    s->boundObjectRef = arena_new(a, struct token_bound);
    *s->boundObjectRef = (struct token_bound){.apiVersion = arena_strdup(a, kind_api_version(k)),
                                              .kind = k->kind,
                                              .name = name,
                                              .uid = arena_strdup(a, o->meta->uid)};
    return 0;
}

static int seconds_of(const cJSON *in, int64_t *ret, struct err *err)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(in, "ttlSeconds");
    const char *field = v ? "ttlSeconds" : "expirationSeconds";

    if (!v)
        v = cJSON_GetObjectItemCaseSensitive(in, field);
    *ret = SECONDS;
    if (!v || cJSON_IsNull(v))
        return 0;
    if (!cJSON_IsNumber(v) || !(v->valuedouble >= 1))
        return err_field(err, E_INVALID, field, "expected whole seconds, 1 or more");
    *ret = v->valuedouble < (double)SECONDS_MAX ? (int64_t)v->valuedouble : SECONDS_MAX;
    return 0;
}

static int spec_fill(struct control *c, const struct root *r, const char *ns, const cJSON *in,
                     struct arena *a, struct token_spec *s, struct err *err)
{
    int64_t seconds = 0;
    s->serviceAccount = s->serviceAccountUid = "";
    int rv = *text_of(in, "serviceAccount") ? subject_account(r, in, a, s, err)
                                            : subject_user(in, a, s, err);

    if (!rv)
        rv = seconds_of(in, &seconds, err);
    if (!rv)
        rv = texts_of(cJSON_GetObjectItemCaseSensitive(in, "audiences"), "spec.audiences", 8, a,
                      &s->audiences, &s->n_audiences, err);
    if (!rv)
        rv = bound_of(r, ns, in, a, s, err);
    if (rv)
        return rv;
    if (!s->n_audiences) {
        s->audiences[0] = API_AUDIENCE;
        s->n_audiences = 1;
    }
    s->expirationTimestamp = core_time_ms(c->core) / 1000 * 1000 + seconds * 1000;
    return 0;
}

static char *answer_print(const struct object *o, const char *id, const char *secret)
{
    const struct token_spec *s = object_as(o, token)->spec;
    char expires[32];
    cJSON *j = cJSON_CreateObject(), *list;
    AUTO_BUF text;

    time_print(s->expirationTimestamp, expires);
    buf_init(&text, 512);
    buf_printf(&text, PREFIX "%s.%s.%s", o->meta->namespace_, id, secret);
    (void)cJSON_AddStringToObject(j, "token", text.p);
    OPENSSL_cleanse(text.p, text.n);
    (void)cJSON_AddStringToObject(j, "namespace", o->meta->namespace_);
    (void)cJSON_AddStringToObject(j, "name", o->meta->name);
    (void)cJSON_AddStringToObject(j, "expires", expires);
    (void)cJSON_AddStringToObject(j, "expirationTimestamp", expires);
    list = cJSON_AddArrayToObject(j, "audiences");
    for (uint32_t i = 0; i < s->n_audiences; i++)
        (void)cJSON_AddItemToArray(list, cJSON_CreateString(s->audiences[i]));
    if (s->boundObjectRef) {
        cJSON *b = cJSON_AddObjectToObject(j, "boundObjectRef");
        (void)cJSON_AddStringToObject(b, "apiVersion", s->boundObjectRef->apiVersion);
        (void)cJSON_AddStringToObject(b, "kind", s->boundObjectRef->kind);
        (void)cJSON_AddStringToObject(b, "name", s->boundObjectRef->name);
        (void)cJSON_AddStringToObject(b, "uid", s->boundObjectRef->uid);
    }
    char *out = cJSON_PrintUnformatted(j), *ret = mem_strdup(out);
    OPENSSL_cleanse(out, strlen(out));
    cJSON_free(out);
    cJSON *clear = cJSON_GetObjectItemCaseSensitive(j, "token");
    OPENSSL_cleanse(clear->valuestring, strlen(clear->valuestring));
    cJSON_Delete(j);
    return ret;
}

static int token_make(struct making *m, const struct api_identity *who, const cJSON *in,
                      struct err *err)
{
    struct control *c = m->c;
    char id[17], secret[2 * SECRET_BYTES + 1], name[32];
    unsigned char hash[HASH_BYTES];
    AUTO_ARENA a = arena_create(0);
    struct meta *meta = arena_new(a, struct meta);
    struct token_spec *s = arena_new(a, struct token_spec);
    struct token *body = arena_new(a, struct token);
    const char *ns = *text_of(in, "serviceAccount") ? text_of(in, "namespace") : SYSTEM_NS;
    struct root *r = core_root(c->core);
    struct object *o = NULL;
    int rv = spec_fill(c, r, ns, in, a, s, err);

    (void)root_unref(r);
    if (rv)
        return rv;
    hex_random(c->loop, id, 8);
    hex_random(c->loop, secret, SECRET_BYTES);
    sha256(secret, hash);
    (void)snprintf(name, sizeof name, "token-%s", id);
    s->hash = slice_make(hash, sizeof hash);
    s->createdBy = who->user;
    meta->name = name;
    meta->namespace_ = ns;
    body->metadata = meta;
    body->spec = s;
    if ((rv = object_make_within(kind_by_id(KIND_TOKEN), body, LIMIT_OBJECT_MAX_BYTES, &o, err)))
        return rv;
    m->answer = answer_print(o, id, secret);
    OPENSSL_cleanse(secret, sizeof secret);
    struct api_write_op op = {
        .verb = API_CREATE, .kind = o->kind, .ns = ns, .name = name, .object = o};
    struct api_write w = {.user = *who->by ? who->by : who->user,
                          .as = *who->by ? who->user : NULL,
                          .ops = &op,
                          .n = 1};
    c->backend.ops->write(&c->backend, &w, made, m);
    (void)object_unref(o);
    return 0;
}

void token_operate(struct control *c, const struct api_identity *who, const struct cJSON *in,
                   void (*cb)(void *arg, const char *json, const struct err *err), void *arg)
{
    struct making *m = mem_new(struct making);
    struct err e = {0};

    *m = (struct making){.c = c, .cb = cb, .arg = arg};
    if (!token_make(m, who, in, &e))
        return;
    mem_free(m);
    cb(arg, NULL, &e);
}
