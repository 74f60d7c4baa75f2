/* The bodies of the callout protocol and their signatures. What a server says is read field by
 * field, by callout.def; it must never be taken for more than a server can know: no lease, no
 * fence, no checkpoint. */
#include "connectors/callout/callout_internal.h"

#include "api/base/failpoint.h"
#include "connectors/report/hide.h"

#include <cjson/cJSON.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>

#define HEX_MAX 65
#define OWN_ENV_MAX 6 /* variables that are added to a run's own */

/* ---- descriptors ---- */
#define LONG FIELD_LONG
#define DESCRIBED_SCHEMAS CALLOUT_SCHEMAS
#define DESCRIBED_ENUMS(X)
#include "api/schema/describe.def"

__attribute__((constructor)) static void callout_init(void)
{
    describe();
}

/* ---- signatures ---- */
static void hex_of(const unsigned char digest[32], char out[HEX_MAX])
{
    for (unsigned i = 0; i < 32; i++)
        (void)snprintf(out + (size_t)2 * i, 3, "%02x", digest[i]);
}

static void sha256_hex(struct slice body, char out[HEX_MAX])
{
    unsigned char digest[32] = {0};

    INV(EVP_Digest(body.p, body.n, digest, NULL, EVP_sha256(), NULL) == 1);
    hex_of(digest, out);
}

static void hmac_hex(const char *key, const char *text, char out[HEX_MAX])
{
    unsigned char digest[32] = {0};
    unsigned n = 32;

    INV(HMAC(EVP_sha256(), key, (int)strlen(key), (const unsigned char *)text, strlen(text), digest,
             &n));
    hex_of(digest, out);
}

static void stamp(struct web_stamp *s, const char *name, const char *value)
{
    str_copy(s->headers[s->n].name, sizeof s->headers[0].name, name);
    str_copy(s->headers[s->n++].value, sizeof s->headers[0].value, value);
}

/* The date is told anew with each attempt: a server refuses what is older than it bears. */
static void sign(void *arg, const char *method, const char *path, struct slice body,
                 struct web_stamp *ret)
{
    struct callout *c = arg;
    char digest[HEX_MAX], date[32], signature[HEX_MAX];
    AUTO_BUF text;

    buf_init(&text, 16384);
    sha256_hex(body, digest);
    (void)snprintf(date, sizeof date, "%lld", (long long)loop_wall_ms(c->base.env.loop));
    buf_printf(&text, "hanse-callout-v1\n%s\n%s\n%s\n%s\n", method, path, date, digest);
    INV(!text.failed);
    const char *key = callout_key(c);
    if (!key) { /* taken away between two attempts: none is forged, and the server refuses it */
        stamp(ret, "Hanse-Date", date);
        return;
    }
    hmac_hex(key, text.p, signature);
    stamp(ret, "Hanse-Date", date);
    stamp(ret, "Hanse-Signature", signature);
    stamp(ret, "Content-Type", "application/json");
    str_copy(ret->mark, sizeof ret->mark, signature);
}

web_sign callout_signer(void)
{
    return sign;
}

static bool is_signed(const char *key, const char *text, const char *told)
{
    char wanted[HEX_MAX];

    hmac_hex(key, text, wanted);
    return strlen(told) == strlen(wanted) && CRYPTO_memcmp(told, wanted, strlen(wanted)) == 0;
}

int callout_verify(struct callout *c, const struct web_answer *a, struct err *err)
{
    const char *told = web_header_get(a, "Hanse-Signature");
    char digest[HEX_MAX], text[512];

    sha256_hex(a->body, digest);
    (void)snprintf(text, sizeof text, "hanse-callout-v1 answer\n%s\n%d\n%s\n", a->mark, a->status,
                   digest);
    bool by_new = is_signed(c->key, text, told);
    bool proved = by_new || (c->other_key && is_signed(c->other_key, text, told));

    /* It does not take this key: the other one is next. Who signs with a key knows that one. */
    bool other = c->other_key && a->status == 401 && (!proved || c->use_other == by_new);
    if (proved && !other)
        return 0;
    if (other)
        c->use_other = !c->use_other;
    return err_set(err, E_UNKNOWN,
                   "target %.100s answered %d %s: it proves nothing (does each side hold the same "
                   "key?)",
                   c->base.target, a->status,
                   proved  ? "by the other key"
                   : *told ? "with a wrong signature"
                           : "unsigned");
}

/* ---- what servers say ---- */
static bool is_member(const cJSON *j, const char *name)
{
    return j->string && strcmp(j->string, name) == 0;
}

/* Of all texts in it: also names of nodes, and what they and machines are labelled with, for which
 * a server makes up both name and value. Every other name is one of the protocol, or is not read.
 * A message alone may be cut. */
static void texts_hide(cJSON *j, const char *const *values, size_t n)
{
    bool map = is_member(j, "labels") || is_member(j, "tags");
    cJSON *child;

    if (cJSON_IsString(j) && j->valuestring) {
        if (is_member(j, "message"))
            hide_values_cut(j->valuestring, values, n);
        else
            hide_values(j->valuestring, values, n);
    }
    cJSON_ArrayForEach(child, j)
    {
        texts_hide(child, values, n);
        if (map && child->string)
            hide_values(child->string, values, n);
    }
}

/* `proxy`: it came with an order, as proxyAuth; `token` and the keys sign or open what is asked. */
struct cJSON *callout_body(const struct callout *c, const struct web_answer *a)
{
    static const char *const entries[] = {"key", "key.other", "token", "proxy"};
    const struct connector_env *e = &c->base.env;
    const char *v[2 + sizeof entries / sizeof *entries] = {c->key, c->other_key};
    const size_t n = sizeof v / sizeof *v;
    cJSON *body = json_parse_bytes(a->body.p, a->body.n);

    for (size_t i = 2; body && i < n; i++)
        v[i] = callout_secret(c, entries[i - 2]);
    if (body)
        texts_hide(body, v, n);
    for (size_t i = 2; i < n; i++)
        if (v[i])
            e->secret_put(e->arg, v[i]);
    return body;
}

int callout_read(const struct callout *c, const struct schema *schema, const struct web_answer *a,
                 struct arena *arena, void **ret, struct err *err)
{
    cJSON *body = callout_body(c, a);
    int rc = cJSON_IsObject(body)
                 ? callout_row_read(schema, body, arena, ret, err)
                 : err_set(err, E_SYNTAX, "a %s holds no JSON object", schema->name);

    cJSON_Delete(body);
    return rc;
}

int callout_read_rows(const struct callout *c, const struct schema *schema, const char *rows,
                      const struct web_answer *a, struct arena *arena, void **ret,
                      struct cJSON **ret_rows, struct err *err)
{
    cJSON *body = callout_body(c, a);
    cJSON *list = cJSON_DetachItemFromObjectCaseSensitive(body, rows);
    int rc = 0;

    if (!cJSON_IsObject(body))
        rc = err_set(err, E_SYNTAX, "a %s holds no JSON object", schema->name);
    else if (list && !cJSON_IsArray(list))
        rc = err_set(err, E_INVALID, "%s: it is no list", rows);
    else if (cJSON_GetArraySize(list) > CALLOUT_ROWS_MAX)
        rc = err_set(err, E_TOOLARGE, "%s: more than %d on a page", rows, CALLOUT_ROWS_MAX);
    else
        rc = callout_row_read(schema, body, arena, ret, err);
    cJSON_Delete(body);
    if (rc == 0)
        *ret_rows = list;
    else
        cJSON_Delete(list);
    return rc;
}

int callout_row_read(const struct schema *schema, const struct cJSON *row, struct arena *arena,
                     void **ret, struct err *err)
{
    arena_set_soft(arena, true);
    return cJSON_IsObject(row) ? body_from_json(schema, row, 0, arena, ret, err)
                               : err_set(err, E_SYNTAX, "it is no JSON object");
}

bool callout_row_unread(const struct callout *c, const struct cJSON *row, const struct err *why,
                        struct run_key *ret_key)
{
    const struct connector_env *e = &c->base.env;
    const cJSON *told = cJSON_GetObjectItemCaseSensitive(row, "key");
    struct run_key key;
    bool known = cJSON_IsString(told) && run_key_parse(told->valuestring, &key, NULL) == 0;
    char text[400];

    (void)snprintf(text, sizeof text, "%.60s%s%.300s", why->field, *why->field ? ": " : "",
                   why->text);
    if (e->events->run_unread)
        e->events->run_unread(e->arg, known ? &key : NULL, text);
    if (known && ret_key)
        *ret_key = key;
    return known;
}

static bool proof_is_a_servers(enum proof p)
{
    return p == PROOF_TREE_GONE || p == PROOF_CONTAINERS_ENDED || p == PROOF_ACCOUNTING ||
           p == PROOF_INSTANCE_GONE || p == PROOF_TREE_SEARCHED;
}

/* Why checkpoints or we ourselves ended it is not for a server to say. */
static bool reason_is_a_servers(const char *reason)
{
    const struct end_row *row = end_row(reason);

    return row->fault != FAULT_HANSE && row->checkpoint == CHECKPOINT_KEPT;
}

static bool reason_may_be(const struct callout *c, const char *reason)
{
    return reason_is_a_servers(reason) ||
           (callout_has_runners(c) && end_is_a_runners(reason));
}

int callout_seen(const struct callout *c, struct observation *o,
                 const struct callout_reported *left, struct run_workers *workers, struct arena *a,
                 struct err *err)
{
    char key[RUN_KEY_MAX];
    int rc;

    run_key_print(&o->key, key);
    if (o->state == RUN_ENDED && !proof_is_a_servers(o->proof))
        return err_set(err, E_UNKNOWN,
                       "target %.100s calls %s ended and says no proof that it can have",
                       c->base.target, key);
    if (o->state == RUN_ABSENT && o->proof != PROOF_NEVER_STARTED)
        return err_set(err, E_UNKNOWN, "target %.100s calls %s absent and does not promise it",
                       c->base.target, key);
    if (o->state != RUN_ENDED && o->state != RUN_ABSENT)
        o->proof = 0;
    if (!reason_may_be(c, o->reason))
        o->reason[0] = '\0';
    observation_settle(o);
    if (!callout_has_runners(c)) { /* these, too, runners leave behind for their server */
        o->checkpoint = (struct run_checkpoint_report){0};
        o->lease_lost = false;
    }
    if (o->state != RUN_UNKNOWN)
        o->unlisted = false;
    o->grant = 0;
    o->lease_held = false;
    o->save = (struct run_save){0};
    o->seen_ms = loop_now_ms(c->base.env.loop);
    rc = callout_reports_take(c, o, left, workers, a, err);
    if (rc < 0)
        return rc;
    if (!callout_has_runners(c))
        return 0;
    for (uint32_t i = 0; i < workers->n_workers; i++)
        if (workers->workers[i].ended_ms)
            home_runs_over(c->home, &o->key, workers->workers[i].rank);
    home_runs_fill(c->home, o);
    return 0;
}

static void seated(const struct callout *c, const struct observation *o,
                   const struct run_workers *s)
{
    bool left = o->state == RUN_STARTING || o->state == RUN_RUNNING || o->state == RUN_ENDED;
    struct placement p = {.target = c->base.target, .class_ = ""};
    AUTO_ARENA a = arena_create(0);

    if (!left || !s->n_workers || !c->base.env.events->seated)
        return;
    p.n_assignments = s->n_workers;
    p.assignments = arena_array(a, struct assignment, s->n_workers);
    for (uint32_t i = 0; i < s->n_workers; i++) {
        if (!*s->workers[i].node)
            return; /* it tells of ends only */
        p.assignments[i] = (struct assignment){.rank = s->workers[i].rank,
                                               .node = s->workers[i].node,
                                               .mig = "",
                                               .gpus = s->workers[i].gpus,
                                               .n_gpus = s->workers[i].n_gpus};
    }
    c->base.env.events->seated(c->base.env.arg, &o->key, &p);
}

void callout_workers(const struct callout *c, const struct observation *o,
                     const struct run_workers *told)
{
    struct run_workers t = *told;
    AUTO_ARENA a = arena_create(0);

    t.key = o->key;
    t.workers = arena_array(a, struct run_worker, told->n_workers + 1);
    for (uint32_t i = 0; i < told->n_workers; i++) {
        struct run_worker *w = &t.workers[i];
        *w = told->workers[i];
        if (*w->node)
            w->node = arena_printf(a, "%s.%s", c->base.target, w->node);
        if (!reason_may_be(c, w->reason))
            w->reason = "";
    }
    seated(c, o, &t);
    if (t.n_workers && c->base.env.events->workers)
        c->base.env.events->workers(c->base.env.arg, &t);
}

/* ---- what it is told ---- */
const char *callout_node(const struct callout *c, const char *name)
{
    size_t n = strlen(c->base.target);

    return strncmp(name, c->base.target, n) == 0 && name[n] == '.' ? name + n + 1 : name;
}

static void order_workers(const struct callout *c, const struct placement *p, struct arena *a,
                          struct callout_order *ret)
{
    ret->n_workers = p->n_assignments;
    ret->workers = arena_array(a, struct wire_worker, p->n_assignments + 1);
    for (uint32_t i = 0; i < p->n_assignments; i++)
        ret->workers[i] = (struct wire_worker){.rank = p->assignments[i].rank,
                                               .node = callout_node(c, p->assignments[i].node),
                                               .gpus = p->assignments[i].gpus,
                                               .n_gpus = p->assignments[i].n_gpus,
                                               .count = (int)p->assignments[i].count,
                                               .mig = p->assignments[i].mig,
                                               .shares = (int)p->assignments[i].shares};
}

static uint32_t texts(const char *const *v, struct arena *a, const char ***ret)
{
    uint32_t n = 0;

    while (v && v[n])
        n++;
    *ret = arena_array(a, const char *, n + 1 + OWN_ENV_MAX);
    for (uint32_t i = 0; i < n; i++)
        (*ret)[i] = v[i];
    return n;
}

/* The names that every program finds, wherever it runs (deploy/examples/README.md). Behind the
 * workload's own, so that they count. Which rank and which node it is only its server knows. */
static void order_env(const struct callout *c, const struct run_order *o, struct arena *a,
                      struct callout_order *ret)
{
    const char *const told[][2] = {{"HANSE_WORKLOAD_UID", o->key.uid},
                                   {"HANSE_WORKLOAD_NAME", o->name},
                                   {"HANSE_NAMESPACE", o->ns},
                                   {"HANSE_TARGET", c->base.target},
                                   {"HANSE_CLUSTER_UID", ret->cluster}};

    _Static_assert(sizeof told / sizeof *told < OWN_ENV_MAX, "and the interval");
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (*told[i][1])
            ret->env[ret->n_env++] = arena_printf(a, "%s=%s", told[i][0], told[i][1]);
}

/* What is its own is sent for its runs alone. */
static int order_principal(const struct callout *c, const struct run_order *o, struct arena *a,
                           struct callout_order *ret, struct err *err)
{
    const struct connector_env *e = &c->base.env;
    const char *token = NULL;

    ret->principal = o->principal ? o->principal : "";
    if (!*ret->principal || !e->principal_secret)
        return 0;
    int rc = e->principal_secret(e->arg, ret->principal, &token, err);
    if (rc < 0 || !token)
        return rc;
    ret->principal_token = arena_strdup(a, token);
    e->secret_put(e->arg, token);
    return 0;
}

int callout_order_make(const struct callout *c, const struct run_order *o, struct arena *a,
                       struct callout_order *ret, struct err *err)
{
    const struct connector_env *e = &c->base.env;
    int64_t time_ms = 0;
    char key[RUN_KEY_MAX];

    if (o->start_by_ms && !c->starts_by && !PLANTED("run.start-by-dropped"))
        return err_field(err, E_UNAVAIL, "spec.limits.startWithin",
                         "the server of target %.100s does not say that it keeps to startBy",
                         c->base.target);
    run_key_print(&o->key, key);
    *ret = (struct callout_order){.key = arena_strdup(a, key),
                                  .cluster = e->cluster_uid ? e->cluster_uid(e->arg) : "",
                                  .state_rv = e->state_rv ? e->state_rv(e->arg, &time_ms) : 0,
                                  .namespace_ = o->ns,
                                  .workload = o->name,
                                  .image = o->image,
                                  .script = o->script,
                                  .cwd = o->cwd,
                                  .grace_ms = o->grace_ms,
                                  .class_ = o->placement->class_,
                                  .memory_bytes = o->memory_bytes,
                                  .cpu_milli = o->cpu_milli,
                                  .gpus = o->gpus,
                                  .start_from_ms = o->start_from_ms,
                                  .start_by_ms = o->start_by_ms};
    ret->n_argv = texts(o->argv, a, &ret->argv);
    ret->n_env = texts(o->env, a, &ret->env);
    if (o->saves && o->checkpoint_interval_ms)
        ret->env[ret->n_env++] = arena_printf(a, "HANSE_CHECKPOINT_INTERVAL=%lld",
                                              (long long)(o->checkpoint_interval_ms + 999) / 1000);
    order_env(c, o, a, ret);
    order_workers(c, o->placement, a, ret);
    int rc = order_principal(c, o, a, ret, err);
    if (rc == 0)
        rc = callout_home_order(c, o, a, ret, err);
    if (rc == 0)
        callout_report_order(c, o, a, ret);
    return rc;
}
