/* The contract of struct backend_ops, second part: Secrets, tokens and operations. */
#include "tests/support/contract/backend_contract_internal.h"

/* ---- secrets, tokens, operations ---- */
static struct object *secret_of(const char *name, const char *fields)
{
    char json[1024];

    (void)snprintf(json, sizeof json,
                   "{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"type\":\"Opaque\",\"metadata\":{"
                   "\"name\":\"%s\",\"namespace\":\"" NS "\"},%s}",
                   name, fields);
    return contract_object(KIND_SECRET, json);
}
static bool holds(const void *p, size_t n, const char *text)
{
    size_t m = strlen(text);

    for (size_t i = 0; i + m <= n; i++)
        if (!memcmp((const char *)p + i, text, m))
            return true;
    return false;
}
static const struct object *look_secret(struct backend *b, const struct view *v, const char *name)
{
    return b->ops->get(v, kind_by_id(KIND_SECRET), NS, name);
}

void backend_seals_secrets(void **state)
{
    struct backend_rig *r = *state;
    AUTO_ANSWER a;
    AUTO_ANSWER b;
    AUTO_ANSWER c;
    AUTO_BUF bytes;
    AUTO_BUF data;
    struct err e;

    buf_init(&bytes, 1u << 20);
    buf_init(&data, 1u << 20);
    assert_int_equal(
        contract_write(
            r,
            contract_op(API_CREATE, "sealed",
                        secret_of("sealed", "\"data\":{\"a\":\"" BACKEND_CANARY_B64
                                            "\"},\"stringData\":{\"b\":\"" BACKEND_CANARY "\"}")),
            &a),
        0);
    const struct object *o = look_secret(r->backend, a.view, "sealed");
    object_encode(o, &bytes);
    assert_false(holds(bytes.p, bytes.n, BACKEND_CANARY));
    assert_false(holds(bytes.p, bytes.n, BACKEND_CANARY_B64));
    assert_int_equal(r->backend->ops->secret_open(r->backend, o, &data, &e), 0);
    buf_char(&data, 0);
    assert_string_equal(data.p,
                        "{\"a\":\"" BACKEND_CANARY_B64 "\",\"b\":\"" BACKEND_CANARY_B64 "\"}");
    /* The same values again: not even the ciphertext moves. */
    assert_int_equal(
        contract_write(r,
                       contract_op(API_UPDATE, "sealed",
                                   secret_of("sealed", "\"data\":{\"a\":\"" BACKEND_CANARY_B64
                                                       "\",\"b\":\"" BACKEND_CANARY_B64 "\"}")),
                       &b),
        0);
    assert_true(b.unchanged);
    assert_int_equal(
        contract_write(
            r,
            contract_op(API_UPDATE, "sealed", secret_of("sealed", "\"stringData\":{\"c\":\"x\"}")),
            &c),
        0);
    assert_false(c.unchanged);
    buf_reset(&data);
    assert_int_equal(r->backend->ops->secret_open(
                         r->backend, look_secret(r->backend, c.view, "sealed"), &data, &e),
                     0);
    buf_char(&data, 0);
    assert_string_equal(data.p, "{\"c\":\"eA==\"}");
    /* Ciphertext belongs to its object: moved to another one it does not open. */
    AUTO_ARENA m = arena_create(0);
    struct secret *moved = object_edit_as(o, secret, m);
    moved->metadata->uid = "of-another";
    struct object *other = object_make(o->kind, moved);
    buf_reset(&data);
    assert_int_equal(r->backend->ops->secret_open(r->backend, other, &data, &e), E_CORRUPT);
    assert_false(data.p && holds(data.p, data.n, BACKEND_CANARY_B64));
    (void)object_unref(other);
}

static void on_operate(void *arg, const char *json, const struct err *err)
{
    struct contract_answer *a = arg;

    assert_false(a->done);
    a->done = true;
    a->code = err ? err->code : 0;
    if (err)
        a->err = *err;
    if (json)
        str_copy(a->json, sizeof a->json, json);
}
static int operate(struct backend_rig *r, const char *op, const char *json,
                   struct contract_answer *a)
{
    struct api_identity who = {.user = "contract"};

    *a = (struct contract_answer){0};
    r->backend->ops->operate(r->backend, &who, op, json, on_operate, a);
    contract_await(r, a);
    return a->code;
}

/* The token of an answer, with its two times equal. */
static char *token_of(const struct contract_answer *a)
{
    cJSON *j = cJSON_Parse(a->json);
    const cJSON *t = cJSON_GetObjectItemCaseSensitive(j, "token");
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(j, "expires");
    const cJSON *y = cJSON_GetObjectItemCaseSensitive(j, "expirationTimestamp");

    assert_true(cJSON_IsString(t) && cJSON_IsString(x) && cJSON_IsString(y));
    assert_string_equal(x->valuestring, y->valuestring);
    char *token = mem_strdup(t->valuestring);
    cJSON_Delete(j);
    return token;
}
static void token_is_kept_nowhere(struct backend_rig *r, const char *token)
{
    static const enum kind_id kinds[] = {KIND_SECRET, KIND_TOKEN};
    struct view *v = r->backend->ops->view(r->backend);
    AUTO_BUF bytes;

    buf_init(&bytes, 1u << 20);
    for (size_t i = 0; i < 2; i++) {
        const struct kind *k = kind_by_id(kinds[i]);
        struct contract_listed l = {0};
        r->backend->ops->scan(v, k, NULL, NULL, NULL, contract_list, &l);
        for (char *save = NULL, *p = strtok_r(l.text, " ", &save); p;
             p = strtok_r(NULL, " ", &save)) {
            char *slash = strchr(p, '/');
            *slash = '\0';
            const struct object *o = r->backend->ops->get(v, k, p, slash + 1);
            if (o)
                object_encode(o, &bytes);
        }
    }
    assert_true(bytes.n > 0);
    assert_false(holds(bytes.p, bytes.n, strrchr(token, '.') + 1));
    r->backend->ops->view_release(v);
}

static void account(struct backend_rig *r, enum api_write_verb verb, const char *name)
{
    char json[256];
    AUTO_ANSWER a;

    (void)snprintf(json, sizeof json,
                   "{\"apiVersion\":\"v1\",\"kind\":\"ServiceAccount\",\"metadata\":{\"name\":"
                   "\"%s\",\"namespace\":\"" NS "\"}}",
                   name);
    struct api_write_op op = contract_op(verb, name, NULL);
    op.kind = kind_by_id(KIND_SERVICE_ACCOUNT);
    op.object = verb == API_CREATE ? contract_object(KIND_SERVICE_ACCOUNT, json) : NULL;
    assert_int_equal(contract_write(r, op, &a), 0);
}

void backend_makes_tokens(void **state)
{
    struct backend_rig *r = *state;
    const struct backend_ops *ops = r->backend->ops;
    struct api_identity who;
    struct contract_answer a;
    struct err e;

    assert_int_equal(
        operate(r, "token.create", "{\"user\":\"ci\",\"groups\":\"g1,g2\",\"ttlSeconds\":600}", &a),
        0);
    char *token = token_of(&a);
    assert_int_equal(ops->token(r->backend, token, &who, &e), 0);
    assert_string_equal(who.user, "ci");
    assert_int_equal(who.n_groups, 2);
    assert_string_equal(who.groups[1], "g2");
    assert_int_equal(who.n_audiences, 1);
    assert_string_equal(who.audiences[0], API_AUDIENCE);
    assert_false(who.anonymous);
    token_is_kept_nowhere(r, token);
    token[strlen(token) - 1] = token[strlen(token) - 1] == '0' ? '1' : '0';
    assert_int_equal(ops->token(r->backend, token, &who, &e), E_UNAUTH);
    mem_free(token);
    static const char *const wrong[] = {"",
                                        "x",
                                        "hanse-",
                                        "hanse-.",
                                        "hanse-00.00",
                                        "hanse-0000000000000000.000000000000000000000000",
                                        "hanse-..",
                                        "hanse-default.0000000000000000.0000000000000000"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(ops->token(r->backend, wrong[i], &who, &e), E_UNAUTH);
    assert_int_equal(operate(r, "token.create", "{\"ttlSeconds\":600}", &a), E_INVALID);
    assert_string_equal(a.err.field, "user");
    assert_int_equal(operate(r, "token.create", "{\"user\":\"x\",\"ttlSeconds\":0}", &a),
                     E_INVALID);
    assert_string_equal(a.err.field, "ttlSeconds");
    assert_int_equal(operate(r, "token.create", "{\"serviceAccount\":\"bot\"}", &a), E_INVALID);
    assert_string_equal(a.err.field, "namespace");
}

#define OF_BOT "\"namespace\":\"" NS "\",\"serviceAccount\":\"bot\""

/* As TokenRequest has it; and with its account, or the object that it is bound to, it goes. */
void backend_binds_tokens(void **state)
{
    struct backend_rig *r = *state;
    const struct backend_ops *ops = r->backend->ops;
    struct api_identity who;
    struct contract_answer a;
    AUTO_ANSWER w;
    AUTO_ANSWER x;
    struct err e;

    assert_int_equal(operate(r, "token.create", "{" OF_BOT "}", &a), E_NOTFOUND);
    account(r, API_CREATE, "bot");
    assert_int_equal(operate(r, "token.create",
                             "{" OF_BOT ",\"expirationSeconds\":600,\"audiences\":[\"vault\"]}",
                             &a),
                     0);
    char *token = token_of(&a);
    assert_int_equal(ops->token(r->backend, token, &who, &e), 0);
    assert_string_equal(who.user, "system:serviceaccount:" NS ":bot");
    assert_int_equal(who.n_groups, 2);
    assert_string_equal(who.groups[0], "system:serviceaccounts");
    assert_string_equal(who.groups[1], "system:serviceaccounts:" NS);
    assert_string_equal(who.audiences[0], "vault");
    assert_true(*who.uid);
    account(r, API_DELETE, "bot");
    assert_int_equal(ops->token(r->backend, token, &who, &e), E_UNAUTH);
    account(r, API_CREATE, "bot"); /* another one */
    assert_int_equal(ops->token(r->backend, token, &who, &e), E_UNAUTH);
    mem_free(token);
    const char *bound = "{" OF_BOT ",\"boundObjectRef\":{\"apiVersion\":\"v1\",\"kind\":"
                        "\"Secret\",\"name\":\"bound\"}}";
    assert_int_equal(operate(r, "token.create", bound, &a), E_NOTFOUND);
    struct api_write_op op =
        contract_op(API_CREATE, "bound", secret_of("bound", "\"stringData\":{\"a\":\"b\"}"));
    assert_int_equal(contract_write(r, op, &w), 0);
    assert_int_equal(operate(r, "token.create", bound, &a), 0);
    token = token_of(&a);
    assert_int_equal(ops->token(r->backend, token, &who, &e), 0);
    op = contract_op(API_DELETE, "bound", NULL);
    op.kind = kind_by_id(KIND_SECRET);
    assert_int_equal(contract_write(r, op, &x), 0);
    assert_int_equal(ops->token(r->backend, token, &who, &e), E_UNAUTH);
    mem_free(token);
}

/* What names a user and a hash makes nobody that user, whoever wrote it and where. */
void backend_takes_no_secret_for_a_token(void **state)
{
    static const char json[] =
        "{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"type\":\"hanse.dev/token\",\"metadata\":{"
        "\"name\":\"token-a1\",\"namespace\":\"hanse-system\",\"annotations\":{"
        "\"hanse.dev/user\":\"ci\",\"hanse.dev/expires\":\"2099-01-01T00:00:00Z\","
        "\"hanse.dev/sha256\":"
        "\"2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\"}}}"; /* "secret" */
    static const char *const tokens[] = {"hanse-a1.secret", "hanse-hanse-system.a1.secret",
                                         "hanse-.a1.secret", "hanse-..secret", "hanse-a1."};
    struct backend_rig *r = *state;
    struct api_identity who;
    struct err e;
    AUTO_ANSWER a;
    struct api_write_op op =
        contract_op(API_CREATE, "token-a1", contract_object(KIND_SECRET, json));

    op.ns = "hanse-system";
    assert_int_equal(contract_write(r, op, &a), 0);
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        assert_int_equal(r->backend->ops->token(r->backend, tokens[i], &who, &e), E_UNAUTH);
}

void backend_knows_its_operations(void **state)
{
    struct backend_rig *r = *state;
    struct contract_answer a;

    assert_int_equal(operate(r, "make.coffee", "{}", &a), E_NOTIMPL);
    assert_non_null(strstr(a.err.text, "make.coffee"));
    assert_int_equal(operate(r, "status", "{", &a), E_SYNTAX);
    assert_int_equal(operate(r, "status", "", &a), 0);
    assert_true(a.json[0] == '{');
    assert_true(r->backend->ops->now(r->backend) > 1577836800000); /* 2020 */
    assert_null(r->backend->ops->leader(r->backend));
}
