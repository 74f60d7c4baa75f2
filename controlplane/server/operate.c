/* Operations and bearer tokens: what is not an object. Bodies are JSON, documented in
 * api/server/README.md. */
#include "controlplane/archive/keep.h"
#include "controlplane/server/backend.h"

#include "api/base/limits.h"

#include <cjson/cJSON.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPERATE_DEADLINE_MS 15000
#define TOKEN_SECRET_BYTES 24
#define TOKEN_PREFIX "hanse-"
#define TOKEN_SECONDS 3600
#define TOKEN_SECONDS_MAX (366L * 86400)

typedef void (*operate_cb)(void *arg, const char *json, const struct err *err);

struct operation {
    struct control *c;
    operate_cb cb;
    void *arg;
    char *answer; /* told when it is done; owned */
};

static void operation_end(struct operation *o, const struct err *err)
{
    o->cb(o->arg, err ? NULL : o->answer ? o->answer : "{}", err);
    if (o->answer)
        OPENSSL_cleanse(o->answer, strlen(o->answer));
    mem_free(o->answer);
    mem_free(o);
}
static void operation_read_done(void *arg, const struct err *err)
{
    operation_end(arg, err);
}
static void operation_tell(void *arg)
{
    operation_end(arg, NULL);
}
static void operation_write_done(void *arg, const struct api_result *r, const struct err *err)
{
    (void)r;
    operation_end(arg, err);
}

static const char *text_of(const cJSON *j, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, key);

    return cJSON_IsString(v) ? v->valuestring : "";
}

/* ---- status and members
 * --------------------------------------------------------------------------------------- */
static void members_print(const struct root *r, const struct core_status *st, cJSON *list)
{
    struct member_info m[64];
    size_t n = root_members(r, m, 64);

    for (size_t i = 0; i < n; i++) {
        cJSON *j = cJSON_CreateObject();
        (void)cJSON_AddNumberToObject(j, "id", (double)m[i].id);
        (void)cJSON_AddStringToObject(j, "name", m[i].name);
        (void)cJSON_AddStringToObject(j, "address", m[i].address);
        (void)cJSON_AddStringToObject(j, "api", m[i].api_address);
        (void)cJSON_AddBoolToObject(j, "leader", m[i].id == st->leader_id);
        bool voter = false;
        for (unsigned k = 0; k < st->voters; k++)
            voter = voter || st->voter_ids[k] == m[i].id;
        (void)cJSON_AddBoolToObject(j, "voter", voter);
        (void)cJSON_AddNumberToObject(j, "featureLevel", m[i].feature_level);
        (void)cJSON_AddItemToArray(list, j);
    }
}

/* The archive: how much, the newest digest, and how far this member's files are. */
static void archive_print(struct control *c, const struct root *r, cJSON *j)
{
    struct archive_totals t = root_archive(r);
    char digest[2 * ARCHIVE_DIGEST + 8];
    struct archive_info i;
    struct keep_status s;

    core_archive_status(c->core, &s);
    (void)cJSON_AddNumberToObject(j, "segments", (double)t.segments);
    (void)cJSON_AddNumberToObject(j, "records", (double)t.records);
    (void)cJSON_AddNumberToObject(j, "bytes", (double)t.bytes);
    if (t.segments && root_archive_info(r, t.segments, &i)) {
        archive_digest_text(i.digest, digest);
        (void)cJSON_AddStringToObject(j, "newestDigest", digest);
    }
    (void)cJSON_AddNumberToObject(j, "files", (double)s.present);
    (void)cJSON_AddNumberToObject(j, "waiting", (double)s.waiting);
    (void)cJSON_AddNumberToObject(j, "missing", (double)s.missing);
    (void)cJSON_AddNumberToObject(j, "damaged", (double)s.bad);
    if (*s.trouble)
        (void)cJSON_AddStringToObject(j, "trouble", s.trouble);
}

static void alarms_print(struct control *c, cJSON *list)
{
    struct core_alarm a[ALARM_NR];
    size_t n = core_alarms(c->core, a);
    char since[32];

    for (size_t i = 0; i < n; i++) {
        cJSON *j = cJSON_CreateObject();
        time_print(core_time_ms(c->core) - (int64_t)a[i].for_ms, since);
        (void)cJSON_AddStringToObject(j, "alarm", a[i].name);
        (void)cJSON_AddStringToObject(j, "since", since);
        (void)cJSON_AddNumberToObject(j, "seconds", floor((double)a[i].for_ms / 1000));
        (void)cJSON_AddStringToObject(j, "message", a[i].text);
        (void)cJSON_AddStringToObject(j, "remedy", a[i].remedy);
        (void)cJSON_AddItemToArray(list, j);
    }
}

static char *status_print(struct control *c)
{
    struct core_status st;
    struct root *r = core_root(c->core);
    cJSON *j = cJSON_CreateObject(), *me = cJSON_AddObjectToObject(j, "member");
    char digest[20];
    AUTO_BUF brain;

    core_status(c->core, &st);
    (void)cJSON_AddStringToObject(j, "cluster", root_cluster_uid(r));
    (void)cJSON_AddNumberToObject(me, "id", (double)st.id);
    (void)cJSON_AddNumberToObject(me, "pid", (double)getpid());
    (void)cJSON_AddBoolToObject(me, "leads", st.leads);
    (void)cJSON_AddBoolToObject(me, "ready", st.ready);
    (void)cJSON_AddNumberToObject(j, "term", (double)st.term);
    (void)cJSON_AddNumberToObject(j, "leader", (double)st.leader_id);
    (void)cJSON_AddStringToObject(j, "leaderApi", st.leader_api_address);
    (void)cJSON_AddNumberToObject(j, "appliedIndex", (double)st.index);
    (void)cJSON_AddNumberToObject(j, "commitIndex", (double)st.commit);
    (void)cJSON_AddNumberToObject(j, "resourceVersion", (double)root_rv(r));
    (void)snprintf(digest, sizeof digest, "%016llx", (unsigned long long)root_digest(r));
    (void)cJSON_AddStringToObject(j, "digest", digest);
    (void)cJSON_AddStringToObject(j, "revision", root_revision(r));
    (void)cJSON_AddNumberToObject(j, "voters", st.voters);
    alarms_print(c, cJSON_AddArrayToObject(j, "alarms"));
    members_print(r, &st, cJSON_AddArrayToObject(j, "members"));
    figures_print(r, cJSON_AddObjectToObject(j, "pool"));
    if (root_archive(r).begun)
        archive_print(c, r, cJSON_AddObjectToObject(j, "archive"));
    cJSON *counts = cJSON_AddObjectToObject(j, "objects");
    const struct kind *kinds[KIND_LIMIT];
    size_t n = kind_all(kinds, KIND_LIMIT);
    for (size_t i = 0; i < n; i++)
        if (root_count(r, kinds[i]->id))
            (void)cJSON_AddNumberToObject(counts, kinds[i]->plural,
                                          (double)root_count(r, kinds[i]->id));
    buf_init(&brain, 1u << 20);
    brain_status(c->brain, &brain);
    cJSON *b = brain.n ? cJSON_ParseWithLength(brain.p, brain.n) : NULL;
    if (b)
        (void)cJSON_AddItemToObject(j, "brain", b);
    char *text = cJSON_PrintUnformatted(j), *ret = mem_strdup(text);
    cJSON_free(text);
    cJSON_Delete(j);
    (void)root_unref(r);
    return ret;
}

static void op_status(struct operation *o, const struct api_identity *who, const cJSON *in)
{
    (void)who;
    (void)in;
    o->answer = status_print(o->c);
    loop_post(o->c->loop, operation_tell, o);
}

static void member_ask(struct operation *o, const cJSON *in, enum member_op op)
{
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(in, "id");
    struct core_peer p = {0};
    struct err e;

    if (!cJSON_IsNumber(id) || id->valuedouble < 1 || id->valuedouble > 1e9) {
        (void)err_field(&e, E_INVALID, "id", "expected the member's number, 1 or higher");
        operation_end(o, &e);
        return;
    }
    p.id = (uint64_t)id->valuedouble;
    (void)snprintf(p.address, sizeof p.address, "%s", text_of(in, "address"));
    if (op == MEMBER_JOIN && !*p.address) {
        (void)err_field(&e, E_INVALID, "address",
                        "expected HOST:PORT of the new member's peer listener");
        operation_end(o, &e);
        return;
    }
    core_member(o->c->core, o->c->loop, op, &p, OPERATE_DEADLINE_MS, operation_read_done, o);
}
static void op_join(struct operation *o, const struct api_identity *who, const cJSON *in)
{
    (void)who;
    member_ask(o, in, MEMBER_JOIN);
}
static void op_promote(struct operation *o, const struct api_identity *who, const cJSON *in)
{
    (void)who;
    member_ask(o, in, MEMBER_PROMOTE);
}
static void op_remove(struct operation *o, const struct api_identity *who, const cJSON *in)
{
    (void)who;
    member_ask(o, in, MEMBER_REMOVE);
}
static void op_transfer(struct operation *o, const struct api_identity *who, const cJSON *in)
{
    (void)who;
    member_ask(o, in, MEMBER_TRANSFER);
}

static void op_fence(struct operation *o, const struct api_identity *who, const cJSON *in)
{
    brain_fence(o->c->brain, text_of(in, "namespace"), text_of(in, "workload"), who->user,
                operation_read_done, o);
}

static void op_answer(void *arg, const char *json, const struct err *err)
{
    struct operation *o = arg;

    o->answer = json ? mem_strdup(json) : NULL;
    operation_end(o, err);
}
static void op_cost(struct operation *o, const struct api_identity *who, const cJSON *in)
{
    (void)who; /* the route asked for the right, and says whose cost is asked for */
    cost_operate(o->c, in, op_answer, o);
}
static void op_history(struct operation *o, const struct api_identity *who, const cJSON *in)
{
    (void)who; /* likewise: whose history is asked for */
    history_operate(o->c, in, op_answer, o);
}

/* ---- tokens
 * --------------------------------------------------------------------------------------------------------
 * hanse-ID.SECRET: the Secret hanse-system/token-ID keeps the SHA-256 of SECRET and who it stands
 * for. */
static void sha256_hex(const char *text, char out[65])
{
    unsigned char d[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    INV(EVP_Digest(text, strlen(text), d, &n, EVP_sha256(), NULL) == 1 && n == 32);
    for (size_t i = 0; i < 32; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", d[i]);
}

static void hex_random(struct loop *l, char *out, size_t bytes)
{
    unsigned char b[64];

    INV(bytes <= sizeof b);
    loop_random(l, b, bytes);
    for (size_t i = 0; i < bytes; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", b[i]);
}

static const char *annotation(const struct object *o, const char *key)
{
    const char *v = label_get(o->meta->annotations, o->meta->n_annotations, key);

    return v ? v : "";
}

int backend_token(struct backend *b, const char *token, struct api_identity *ret, struct err *err)
{
    struct control *c = (struct control *)b;
    char id[64], name[80], hash[65];
    const char *dot = strchr(token, '.');

    if (strncmp(token, TOKEN_PREFIX, strlen(TOKEN_PREFIX)) || !dot ||
        dot - token >= (int)(sizeof id + strlen(TOKEN_PREFIX)))
        return err_set(err, E_UNAUTH, "the bearer token is not one of this cluster's");
    (void)snprintf(id, sizeof id, "%.*s", (int)(dot - token) - (int)strlen(TOKEN_PREFIX),
                   token + strlen(TOKEN_PREFIX));
    (void)snprintf(name, sizeof name, "token-%s", id);
    sha256_hex(dot + 1, hash);
    struct root *r = core_root(c->core);
    const struct object *o = root_get(r, KIND_SECRET, "hanse-system", name);
    int rv = 0;
    int64_t expires = 0;
    if (!o || strcmp(object_as(o, secret)->type, "hanse.dev/token") ||
        strlen(annotation(o, "hanse.dev/sha256")) != 64 ||
        CRYPTO_memcmp(annotation(o, "hanse.dev/sha256"), hash, 64))
        rv = err_set(err, E_UNAUTH, "the bearer token is unknown or was revoked");
    else if (time_parse(annotation(o, "hanse.dev/expires"), &expires, NULL) ||
             expires < core_time_ms(c->core))
        rv = err_set(err, E_UNAUTH,
                     "the bearer token has expired; ask for a new one (hanse token create)");
    if (!rv) {
        *ret = (struct api_identity){0};
        (void)snprintf(ret->user, sizeof ret->user, "%s", annotation(o, "hanse.dev/user"));
        (void)snprintf(ret->uid, sizeof ret->uid, "%s", o->meta->uid);
        const char *p = annotation(o, "hanse.dev/groups");
        while (*p && ret->n_groups < 16) {
            size_t n = strcspn(p, ",");
            (void)snprintf(ret->groups[ret->n_groups++], sizeof ret->groups[0], "%.*s", (int)n, p);
            p += n + (p[n] == ',');
        }
    }
    (void)root_unref(r);
    return rv;
}

static struct object *token_secret(const char *id, const char *user, const char *groups,
                                   const char *expires, const char *hash)
{
    struct kv notes[] = {{"hanse.dev/expires", expires},
                         {"hanse.dev/groups", groups},
                         {"hanse.dev/sha256", hash},
                         {"hanse.dev/user", user}};
    char name[80];
    (void)snprintf(name, sizeof name, "token-%s", id);
    cJSON *j = cJSON_CreateObject(), *meta = cJSON_AddObjectToObject(j, "metadata");
    (void)cJSON_AddStringToObject(j, "apiVersion", "v1");
    (void)cJSON_AddStringToObject(j, "kind", "Secret");
    (void)cJSON_AddStringToObject(j, "type", "hanse.dev/token");
    (void)cJSON_AddStringToObject(meta, "name", name);
    (void)cJSON_AddStringToObject(meta, "namespace", "hanse-system");
    cJSON *a = cJSON_AddObjectToObject(meta, "annotations");
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
        (void)cJSON_AddStringToObject(a, notes[i].key, notes[i].value);
    struct object *o = NULL;
    if (object_from_json(kind_by_id(KIND_SECRET), j, DECODE_USER, &o, NULL))
        o = NULL;
    cJSON_Delete(j);
    return o;
}

/* Whom a token is asked for: {"user","groups":"a,b"}, or {"namespace","serviceAccount"} as
 * TokenRequest has it. */
static int token_subject(const cJSON *in, char user[256], char groups[256], struct err *err)
{
    const char *ns = text_of(in, "namespace"), *account = text_of(in, "serviceAccount");
    int n, g;

    if (*account) {
        if (!*ns)
            return err_field(err, E_INVALID, "namespace",
                             "expected the service account's namespace");
        n = snprintf(user, 256, "system:serviceaccount:%s:%s", ns, account);
        g = snprintf(groups, 256, "system:serviceaccounts,system:serviceaccounts:%s", ns);
    } else {
        n = snprintf(user, 256, "%s", text_of(in, "user"));
        g = snprintf(groups, 256, "%s", text_of(in, "groups"));
    }
    if (n == 0)
        return err_field(err, E_INVALID, "user", "expected whom the token stands for");
    if (n >= 256 || g >= 256)
        return err_field(err, E_INVALID, n >= 256 ? "user" : "groups", "at most 255 bytes");
    return 0;
}

static int64_t token_seconds(const cJSON *in)
{
    const cJSON *ttl = cJSON_GetObjectItemCaseSensitive(in, "ttlSeconds");
    double seconds;

    if (!cJSON_IsNumber(ttl))
        ttl = cJSON_GetObjectItemCaseSensitive(in, "expirationSeconds");
    seconds = cJSON_IsNumber(ttl) && ttl->valuedouble >= 1 ? ttl->valuedouble : TOKEN_SECONDS;
    return seconds < TOKEN_SECONDS_MAX ? (int64_t)seconds : TOKEN_SECONDS_MAX;
}

/* {subject, "ttlSeconds" or "expirationSeconds"} → {"token","expires","expirationTimestamp"}; both
 * times are the same. The clear token is told once and kept nowhere. */
static void op_token(struct operation *o, const struct api_identity *who, const cJSON *in)
{
    char user[256], groups[256], id[17], secret[2 * TOKEN_SECRET_BYTES + 1], hash[65], expires[32];
    struct err e;

    if (token_subject(in, user, groups, &e)) {
        operation_end(o, &e);
        return;
    }
    hex_random(o->c->loop, id, 8);
    hex_random(o->c->loop, secret, TOKEN_SECRET_BYTES);
    sha256_hex(secret, hash);
    time_print(core_time_ms(o->c->core) / 1000 * 1000 + token_seconds(in) * 1000, expires);
    struct object *s = token_secret(id, user, groups, expires, hash);
    if (!s) {
        (void)err_set(&e, E_INVALID, "the user's or a group's name is not allowed in a token");
        operation_end(o, &e);
        return;
    }
    char answer[512];
    (void)snprintf(answer, sizeof answer,
                   "{\"token\":\"" TOKEN_PREFIX
                   "%s.%s\",\"expires\":\"%s\",\"expirationTimestamp\":\"%s\"}",
                   id, secret, expires, expires);
    o->answer = mem_strdup(answer);
    OPENSSL_cleanse(answer, sizeof answer);
    OPENSSL_cleanse(secret, sizeof secret);
    struct api_write_op op = {.verb = API_CREATE,
                              .kind = s->kind,
                              .ns = "hanse-system",
                              .name = s->meta->name,
                              .object = s};
    struct api_write w = {.user = who->user, .ops = &op, .n = 1};
    o->c->backend.ops->write(&o->c->backend, &w, operation_write_done, o);
    (void)object_unref(s);
}

void backend_operate(struct backend *b, const struct api_identity *who, const char *op,
                     const char *json, operate_cb cb, void *arg)
{
    static const struct {
        const char *name;
        void (*run)(struct operation *o, const struct api_identity *who, const cJSON *in);
    } table[] = {
        {"status", op_status},
        {"members.list", op_status},
        {"members.add", op_join},
        {"members.promote", op_promote},
        {"members.remove", op_remove},
        {"members.transfer", op_transfer},
        {"workload.fence", op_fence},
        {"token.create", op_token},
        {"cost", op_cost},
        {"history", op_history},
    };
    struct operation *o = mem_new(struct operation);
    cJSON *in = NULL;
    struct err e;

    *o = (struct operation){.c = (struct control *)b, .cb = cb, .arg = arg};
    if (json && *json && json_parse(json, strlen(json), &in, &e)) {
        operation_end(o, &e);
        return;
    }
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (!strcmp(table[i].name, op)) {
            table[i].run(o, who, in);
            cJSON_Delete(in);
            return;
        }
    }
    if (recovery_operate(o->c, who, op, in, op_answer, o)) {
        cJSON_Delete(in);
        return;
    }
    cJSON_Delete(in);
    (void)err_set(
        &e, E_NOTIMPL,
        "no operation \"%s\"; there are status, members.list, members.add, members.promote, "
        "members.remove, members.transfer, workload.fence, orphans.list, orphans.end, "
        "orphans.adopt, "
        "recover.targets, "
        "token.create, cost and history",
        op);
    operation_end(o, &e);
}
