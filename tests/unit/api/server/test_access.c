/* Every route with every identity, as routes.def says: a route without a SAMPLE fails, and so does
 * a route that lets somebody in, or keeps somebody out, otherwise than its row says. And: nobody
 * grants what he lacks. */
#include "tests/support/api_world.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct row {
    const char *id, *method;
};
struct sample {
    const char *id, *path, *expect;
};
static const struct row rows[] = {
#define ROUTE(id, method, ...) {#id, #method},
#include "api/server/routes.def"
};
static const struct sample samples[] = {
#define SAMPLE(id, path, expect) {#id, path, expect},
#include "api/server/routes.def"
};
#define N(a) (sizeof(a) / sizeof *(a))

/* none bad viewer editor other operator agent admin */
static const char *const tokens[] = {NULL,
                                     "wrong",
                                     "t|viewer|",
                                     "t|editor|",
                                     "t|other|",
                                     "t|operator|",
                                     "t|agent:a|hanse:agents",
                                     "t|root|system:masters"};

static struct api_world *w;

static void bind(const char *kind, const char *ns, const char *name, const char *role)
{
    char body[1024], path[256];

    (void)snprintf(path, sizeof path, "/apis/rbac.authorization.k8s.io/v1/%s%s%s",
                   *ns ? "namespaces/" : "", ns, *ns ? "/rolebindings" : "clusterrolebindings");
    (void)snprintf(body, sizeof body,
                   "{\"apiVersion\":\"rbac.authorization.k8s.io/"
                   "v1\",\"kind\":\"%s\",\"metadata\":{\"name\":\"%s\"},"
                   "\"roleRef\":{\"apiGroup\":\"rbac.authorization.k8s.io\",\"kind\":"
                   "\"ClusterRole\",\"name\":\"%s\"},"
                   "\"subjects\":[{\"kind\":\"User\",\"name\":\"%s\"}]}",
                   kind, name, role, name);
    assert_int_equal(api_ask(w, ADMIN, "POST", path, NULL, body), 201);
}
static void make_namespace(const char *name)
{
    char body[256];

    (void)snprintf(body, sizeof body,
                   "{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":\"%s\"}}",
                   name);
    assert_int_equal(api_ask(w, ADMIN, "POST", "/api/v1/namespaces", NULL, body), 201);
}
static int setup(void **state)
{
    (void)state;
    w = api_world_create();
    make_namespace("team-a");
    make_namespace("team-b");
    bind("ClusterRoleBinding", "", "viewer", "view");
    bind("ClusterRoleBinding", "", "operator", "admin");
    bind("RoleBinding", "team-a", "editor", "edit");
    bind("RoleBinding", "team-b", "other", "edit");
    return 0;
}
static int teardown(void **state)
{
    (void)state;
    w = api_world_destroy(w);
    return 0;
}

static const char *method_of(const char *id)
{
    for (size_t i = 0; i < N(rows); i++)
        if (!strcmp(rows[i].id, id))
            return rows[i].method;
    fail_msg("SAMPLE(%s) has no ROUTE", id);
    return "";
}

static void test_every_route_has_a_sample(void **state)
{
    (void)state;
    for (size_t i = 0; i < N(rows); i++) {
        bool found = false;
        for (size_t k = 0; k < N(samples); k++)
            found |= !strcmp(samples[k].id, rows[i].id);
        if (!found)
            fail_msg("ROUTE(%s) has no SAMPLE", rows[i].id);
    }
}

static void test_every_route_for_everybody(void **state)
{
    (void)state;
    for (size_t k = 0; k < N(samples); k++) {
        const struct sample *s = &samples[k];
        assert_int_equal(strlen(s->expect), N(tokens));
        for (size_t t = 0; t < N(tokens); t++) {
            const char *method = method_of(s->id);
            int status = api_ask(w, tokens[t], method, s->path, NULL,
                                 strcmp(method, "GET") ? "{\"x\":1}" : NULL);
            char got = status == 401 ? 'U' : status == 403 ? 'F' : 'A';
            if (got != s->expect[t] || !status)
                fail_msg("%s %s as %s: %d, expected %c", method, s->path,
                         tokens[t] ? tokens[t] : "nobody", status, s->expect[t]);
        }
    }
}

#define ROLE(verb)                                                                                 \
    "{\"apiVersion\":\"rbac.authorization.k8s.io/"                                                 \
    "v1\",\"kind\":\"ClusterRole\",\"metadata\":{\"name\":\"x\"},"                                 \
    "\"rules\":[{\"apiGroups\":[\"hanse.dev\"],\"resources\":[\"" verb                             \
    "\"],\"verbs\":[\"get\"]}]}"

static void test_nobody_grants_what_he_lacks(void **state)
{
    const char *path = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

    (void)state;
    assert_int_equal(api_ask(w, "t|operator|", "POST", path, NULL, ROLE("queues")), 201);
    assert_int_equal(api_ask(w, ADMIN, "DELETE",
                             "/apis/rbac.authorization.k8s.io/v1/clusterroles/x", NULL, NULL),
                     200);
    assert_int_equal(api_ask(w, "t|operator|", "POST", path, NULL, ROLE("*")), 403);
    assert_int_equal(
        api_ask(w, "t|operator|", "POST", path, NULL,
                "{\"apiVersion\":\"rbac.authorization.k8s.io/v1\",\"kind\":\"ClusterRole\","
                "\"metadata\":{\"name\":\"y\"},\"rules\":[{\"nonResourceURLs\":[\"*\"],"
                "\"verbs\":[\"*\"]}]}"),
        403);
    assert_int_equal(api_ask(w, ADMIN, "POST", path, NULL, ROLE("*")), 201);
    assert_int_equal(api_ask(w, "t|operator|", "POST",
                             "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", NULL,
                             "{\"apiVersion\":\"rbac.authorization.k8s.io/"
                             "v1\",\"kind\":\"ClusterRoleBinding\",\"metadata\":{\"name\":\"me\"},"
                             "\"roleRef\":{\"kind\":\"ClusterRole\",\"name\":\"cluster-admin\"},"
                             "\"subjects\":[{\"kind\":\"User\",\"name\":\"operator\"}]}"),
                     403);
}

static void test_reviews(void **state)
{
    const char *path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    const char *body = "{\"spec\":{\"resourceAttributes\":{\"namespace\":\"%s\",\"verb\":"
                       "\"create\",\"group\":\"hanse.dev\",\"resource\":\"workloads\"}}}";
    char text[512];

    (void)state;
    (void)snprintf(text, sizeof text, body, "team-a");
    assert_int_equal(api_ask(w, "t|editor|", "POST", path, NULL, text), 201);
    assert_string_equal(api_text(w, "status.allowed"), "true");
    (void)snprintf(text, sizeof text, body, "team-b");
    assert_int_equal(api_ask(w, "t|editor|", "POST", path, NULL, text), 201);
    assert_string_equal(api_text(w, "status.allowed"), "false");
    assert_int_equal(api_ask(w, "t|editor|", "POST",
                             "/apis/authentication.k8s.io/v1/selfsubjectreviews", NULL, "{}"),
                     201);
    assert_string_equal(api_text(w, "status.userInfo.username"), "editor");
    assert_int_equal(api_ask(w, "t|editor|", "POST",
                             "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", NULL,
                             "{\"spec\":{\"namespace\":\"team-a\"}}"),
                     201);
    assert_string_equal(api_text(w, "status.resourceRules.0.resources.0"), "workloads");
}

static void test_apply_asks_for_each_object(void **state)
{
    const char *body = "{\"documents\":[{\"apiVersion\":\"hanse.dev/"
                       "v1alpha1\",\"kind\":\"Dataset\",\"metadata\":{\"name\":\"d\",\"namespace\":"
                       "\"%s\"},\"spec\":{}}]}";
    char text[512];

    (void)state;
    (void)snprintf(text, sizeof text, body, "team-a");
    assert_int_equal(api_ask(w, "t|editor|", "POST", "/apis/hanse.dev/v1alpha1/apply", NULL, text),
                     200);
    (void)snprintf(text, sizeof text, body, "team-b");
    assert_int_equal(api_ask(w, "t|editor|", "POST", "/apis/hanse.dev/v1alpha1/apply", NULL, text),
                     403);
}

#define TOKENS "/apis/hanse.dev/v1alpha1/namespaces/team-a/tokens"
#define MAKE "/apis/hanse.dev/v1alpha1/operations/token.create"
#define REVIEW "/apis/authentication.k8s.io/v1/tokenreviews"

static const char a_token[] =
    "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Token\",\"metadata\":{\"name\":\"t\","
    "\"namespace\":\"team-a\"},\"spec\":{\"user\":\"root\",\"groups\":[\"system:masters\"]}}";

/* Tokens are what gives most: not even system:masters writes one by hand. */
static void test_tokens_are_nobodys_to_write(void **state)
{
    char text[1024];

    (void)state;
    assert_int_equal(api_ask(w, ADMIN, "POST", TOKENS, NULL, a_token), 405);
    assert_int_equal(api_ask(w, ADMIN, "PUT", TOKENS "/t", NULL, a_token), 405);
    assert_int_equal(api_ask(w, ADMIN, "PATCH", TOKENS "/t", "application/merge-patch+json", "{}"),
                     405);
    assert_int_equal(api_ask(w, ADMIN, "PATCH", TOKENS "/t?fieldManager=x",
                             "application/apply-patch+yaml", a_token),
                     405);
    (void)snprintf(text, sizeof text, "{\"documents\":[%s]}", a_token);
    assert_int_equal(api_ask(w, ADMIN, "POST", "/apis/hanse.dev/v1alpha1/apply", NULL, text), 422);
    /* Taking one away is another thing, and a right. */
    assert_int_equal(api_ask(w, ADMIN, "DELETE", TOKENS "/t", NULL, NULL), 404);
    assert_int_equal(api_ask(w, "t|operator|", "DELETE", TOKENS "/t", NULL, NULL), 404);
    assert_int_equal(api_ask(w, "t|editor|", "DELETE", TOKENS "/t", NULL, NULL), 403);
    assert_int_equal(api_ask(w, "t|viewer|", "GET", TOKENS, NULL, NULL), 200);
}

/* Once they were Secrets, and who could write those could be anybody. */
static void test_no_secret_is_a_token(void **state)
{
    const char *path = "/api/v1/namespaces/team-a/secrets";
    const char *body = "{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"type\":\"hanse.dev/token\","
                       "\"metadata\":{\"name\":\"token-00\",\"annotations\":{\"hanse.dev/user\":"
                       "\"root\",\"hanse.dev/groups\":\"system:masters\"}}}";
    char text[1024];

    (void)state;
    assert_int_equal(api_ask(w, "t|editor|", "POST", path, NULL, body), 422);
    assert_string_equal(api_text(w, "details.causes.0.field"), "type");
    assert_int_equal(api_ask(w, ADMIN, "POST", path, NULL, body), 422);
    (void)snprintf(text, sizeof text, "{\"documents\":[%s]}", body);
    assert_int_equal(api_ask(w, ADMIN, "POST", "/apis/hanse.dev/v1alpha1/apply", NULL, text), 422);
}

static const char may_make[] =
    "{\"apiVersion\":\"rbac.authorization.k8s.io/v1\",\"kind\":\"ClusterRole\",\"metadata\":"
    "{\"name\":\"maker\"},\"rules\":[{\"apiGroups\":[\"hanse.dev\"],\"resources\":[\"operations\"],"
    "\"verbs\":[\"create\"]},{\"apiGroups\":[\"\"],\"resources\":[\"users\"],\"resourceNames\":"
    "[\"ci\"],\"verbs\":[\"impersonate\"]},{\"apiGroups\":[\"\"],\"resources\":[\"groups\"],"
    "\"resourceNames\":[\"vision\"],\"verbs\":[\"impersonate\"]}]}";

/* The right to make tokens is not the right to be anybody. */
static void test_a_token_grants_what_its_maker_could_be(void **state)
{
    static const struct {
        const char *body;
        int status;
    } cases[] = {
        {"{\"user\":\"ci\"}", 200},
        {"{\"user\":\"ci\",\"groups\":\"vision\"}", 200},
        {"{\"user\":\"root\"}", 403},
        {"{\"user\":\"ci\",\"groups\":\"vision,system:masters\"}", 403},
        {"{\"user\":\"ci\",\"groups\":\"system:masters\"}", 403},
        {"{\"user\":\"system:serviceaccount:team-a:bot\"}", 422},
        {"{\"namespace\":\"team-a\",\"serviceAccount\":\"bot\"}", 403},
    };

    (void)state;
    assert_int_equal(api_ask(w, ADMIN, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles",
                             NULL, may_make),
                     201);
    bind("ClusterRoleBinding", "", "portal", "maker");
    for (size_t i = 0; i < N(cases); i++) {
        int status = api_ask(w, "t|portal|", "POST", MAKE, NULL, cases[i].body);
        if (status != cases[i].status)
            fail_msg("%s: %d, expected %d", cases[i].body, status, cases[i].status);
    }
    assert_int_equal(api_ask(w, ADMIN, "POST", MAKE, NULL, cases[3].body), 200);
}

/* One who may act as vic, in group vision, as bot of team-a and with a scope; and nobody else. */
static const char may_act[] =
    "{\"apiVersion\":\"rbac.authorization.k8s.io/v1\",\"kind\":\"ClusterRole\",\"metadata\":"
    "{\"name\":\"gateway\"},\"rules\":["
    "{\"apiGroups\":[\"\"],\"resources\":[\"users\"],\"resourceNames\":[\"vic\",\"editor\"],"
    "\"verbs\":[\"impersonate\"]},"
    "{\"apiGroups\":[\"\"],\"resources\":[\"groups\"],\"resourceNames\":[\"vision\"],"
    "\"verbs\":[\"impersonate\"]},"
    "{\"apiGroups\":[\"\"],\"resources\":[\"serviceaccounts\"],\"resourceNames\":[\"bot\"],"
    "\"verbs\":[\"impersonate\"]},"
    "{\"apiGroups\":[\"authentication.k8s.io\"],\"resources\":[\"uids\",\"userextras/scopes\"],"
    "\"verbs\":[\"impersonate\"]},"
    "{\"apiGroups\":[\"hanse.dev\"],\"resources\":[\"*\"],\"verbs\":[\"*\"]}]}";

#define SELF "/apis/authentication.k8s.io/v1/selfsubjectreviews"
#define A_DATASET "/apis/hanse.dev/v1alpha1/namespaces/team-a/datasets"
#define DATASET_D                                                                                  \
    "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Dataset\",\"metadata\":{\"name\":\"d\"},"   \
    "\"spec\":{}}"

static int as(const char *headers, const char *method, const char *path, const char *body)
{
    return api_ask_with(w, "t|gateway|", method, path, headers, NULL, body);
}

static void gateway(void)
{
    assert_int_equal(
        api_ask(w, ADMIN, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", NULL, may_act),
        201);
    bind("ClusterRoleBinding", "", "gateway", "gateway");
}

/* Who acts as another has that one's rights, and none of his own. */
static void test_impersonation(void **state)
{
    static const struct {
        const char *headers;
        int status;
    } cases[] = {
        {"Impersonate-User: vic\r\n", 201},
        {"Impersonate-User: root\r\n", 403},
        {"impersonate-user: vic\r\nImpersonate-Group: vision\r\n", 201},
        {"Impersonate-User: vic\r\nImpersonate-Group: system:masters\r\n", 403},
        {"Impersonate-User: vic\r\nImpersonate-Group: vision\r\nImpersonate-Group: x\r\n", 403},
        {"Impersonate-User: vic\r\nImpersonate-Uid: 7\r\n", 201},
        {"Impersonate-User: vic\r\nImpersonate-Extra-Scopes: view\r\n", 201},
        {"Impersonate-User: vic\r\nImpersonate-Extra-Roles: view\r\n", 403},
        {"Impersonate-User: system:serviceaccount:team-a:bot\r\n", 201},
        {"Impersonate-User: system:serviceaccount:team-a:other\r\n", 403},
        {"Impersonate-Group: vision\r\n", 400},
        {"Impersonate-User: \r\n", 400},
        {"Impersonate-User: vic\r\nImpersonate-User: vic\r\n", 400},
        {"Impersonate-User: vic\r\nImpersonate-Future: x\r\n", 400},
    };

    (void)state;
    gateway();
    for (size_t i = 0; i < N(cases); i++) {
        int status = as(cases[i].headers, "POST", SELF, "{}");
        if (status != cases[i].status)
            fail_msg("%s: %d, expected %d", cases[i].headers, status, cases[i].status);
    }
    assert_int_equal(as("Impersonate-User: vic\r\nImpersonate-Group: vision\r\nImpersonate-Uid: "
                        "7\r\nImpersonate-Extra-sc%6fpes: a\r\nImpersonate-Extra-Scopes: b\r\n",
                        "POST", SELF, "{}"),
                     201);
    assert_string_equal(api_text(w, "status.userInfo.username"), "vic");
    assert_string_equal(api_text(w, "status.userInfo.uid"), "7");
    assert_string_equal(api_text(w, "status.userInfo.groups.0"), "vision");
    assert_string_equal(api_text(w, "status.userInfo.groups.1"), "system:authenticated");
    assert_string_equal(api_text(w, "status.userInfo.extra.scopes.0"), "a");
    assert_string_equal(api_text(w, "status.userInfo.extra.scopes.1"), "b");
    assert_int_equal(
        as("Impersonate-User: system:serviceaccount:team-a:bot\r\n", "POST", SELF, "{}"), 201);
    assert_string_equal(api_text(w, "status.userInfo.groups.1"), "system:serviceaccounts:team-a");
    /* Nobody with nothing is nobody. */
    assert_int_equal(api_ask_with(w, NULL, "POST", SELF, "Impersonate-User: vic\r\n", NULL, "{}"),
                     401);
    assert_int_equal(
        api_ask_with(w, NULL, "GET", "/version", "Impersonate-User: vic\r\n", NULL, NULL), 401);
    assert_int_equal(api_ask_with(w, ADMIN, "POST", SELF, "Impersonate-User: anna\r\n", NULL, "{}"),
                     201);
    assert_string_equal(api_text(w, "status.userInfo.groups.0"), "system:authenticated");
    assert_string_equal(api_text(w, "status.userInfo.groups.1"), "");
}

static void test_impersonation_does_not_fall_back(void **state)
{
    const char *vic = "Impersonate-User: vic\r\n", *editor = "Impersonate-User: editor\r\n";
    const char *may = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    const char *question = "{\"spec\":{\"resourceAttributes\":{\"namespace\":\"team-a\",\"verb\":"
                           "\"delete\",\"group\":\"hanse.dev\",\"resource\":\"datasets\"}}}";

    (void)state;
    gateway();
    assert_int_equal(as("", "POST", A_DATASET, DATASET_D), 201);
    assert_int_equal(as(vic, "DELETE", A_DATASET "/d", NULL), 403);
    assert_int_equal(as(vic, "POST", may, question), 201);
    assert_string_equal(api_text(w, "status.allowed"), "false");
    assert_int_equal(as(editor, "POST", may, question), 201);
    assert_string_equal(api_text(w, "status.allowed"), "true");
    assert_int_equal(as("Impersonate-User: root\r\n", "DELETE", A_DATASET "/d", NULL), 403);
    assert_int_equal(as(editor, "DELETE", A_DATASET "/d", NULL), 200);
}

/* A key is of who really asks; under it, as another is another request. */
static void test_impersonation_and_keys(void **state)
{
    const char *editor = "Impersonate-User: editor\r\nIdempotency-Key: k1\r\n";
    const char *vic = "Impersonate-User: vic\r\nIdempotency-Key: k2\r\n";

    (void)state;
    gateway();
    assert_int_equal(as(editor, "POST", A_DATASET, DATASET_D), 201);
    assert_int_equal(as(editor, "POST", A_DATASET, DATASET_D), 201);
    assert_int_equal(as("Idempotency-Key: k1\r\n", "POST", A_DATASET, DATASET_D), 422);
    assert_int_equal(as(vic, "DELETE", A_DATASET "/d", NULL), 403);
    bind("RoleBinding", "team-a", "vic", "edit");
    assert_int_equal(as(vic, "DELETE", A_DATASET "/d", NULL), 403); /* it was refused for good */
    assert_int_equal(as("Impersonate-User: vic\r\n", "DELETE", A_DATASET "/d", NULL), 200);
}

static void test_audiences(void **state)
{
    (void)state;
    assert_int_equal(api_ask(w, "t|viewer||hanse", "GET", TOKENS, NULL, NULL), 200);
    assert_int_equal(api_ask(w, "t|viewer||vault", "GET", TOKENS, NULL, NULL), 401);
    assert_int_equal(api_ask(w, ADMIN "|vault", "GET", "/version", NULL, NULL), 401);
    assert_int_equal(
        api_ask(w, ADMIN, "POST", REVIEW, NULL, "{\"spec\":{\"token\":\"t|viewer|g|vault\"}}"),
        201);
    assert_string_equal(api_text(w, "status.authenticated"), "false");
    assert_int_equal(
        api_ask(w, ADMIN, "POST", REVIEW, NULL,
                "{\"spec\":{\"token\":\"t|viewer|g|vault\",\"audiences\":[\"x\",\"vault\"]}}"),
        201);
    assert_string_equal(api_text(w, "status.authenticated"), "true");
    assert_string_equal(api_text(w, "status.user.username"), "viewer");
    assert_string_equal(api_text(w, "status.user.groups.0"), "g");
    assert_string_equal(api_text(w, "status.user.groups.1"), "system:authenticated");
    assert_string_equal(api_text(w, "status.audiences.0"), "vault");
    assert_int_equal(api_ask(w, ADMIN, "POST", REVIEW, NULL, "{\"spec\":{\"token\":\"wrong\"}}"),
                     201);
    assert_string_equal(api_text(w, "status.authenticated"), "false");
    assert_int_equal(api_ask(w, ADMIN, "POST", REVIEW, NULL, "{\"spec\":{}}"), 400);
}

/* ---- the roles that every cluster begins with ---- */
static bool rule_names(const struct policy_rule *r, const struct kind *k)
{
    bool group = false, plural = false;

    for (uint32_t i = 0; i < r->n_apiGroups; i++)
        group |= strcmp(r->apiGroups[i], k->group) == 0;
    for (uint32_t i = 0; i < r->n_resources; i++)
        plural |= strcmp(r->resources[i], k->plural) == 0;
    return group && plural;
}

static void admin_is_told_of(struct object *o, void *arg)
{
    bool *told = arg;

    if (o->kind->id != KIND_CLUSTER_ROLE || strcmp(o->meta->name, "admin") != 0)
        return;
    for (int id = 1; id < KIND_LIMIT; id++)
        for (uint32_t i = 0; i < object_as(o, cluster_role)->n_rules; i++)
            told[id] |=
                kind_by_id((enum kind_id)id) &&
                rule_names(&object_as(o, cluster_role)->rules[i], kind_by_id((enum kind_id)id));
}

/* A kind that was forgotten there can be read and written by cluster-admin alone. */
static void test_role_admin_tells_of_every_kind(void **state)
{
    static const bool cluster_admin_alone[KIND_LIMIT] = {[KIND_CERTIFICATE_REVOCATION] = true};
    bool told[KIND_LIMIT] = {false};

    (void)state;
    api_bootstrap_objects(admin_is_told_of, told);
    for (int id = 1; id < KIND_LIMIT; id++)
        if (kind_by_id((enum kind_id)id) && told[id] == cluster_admin_alone[id])
            fail_msg("%s: a rule of the role admin names it (api/server/bootstrap.c), or the list "
                     "here says that it is for cluster-admin alone; not both",
                     kind_by_id((enum kind_id)id)->kind);
}

/* ---- a member that is behind ---- */
static struct behind {
    struct view *old; /* what it has, until it is asked to catch up */
    struct backend_ops real;
} behind;

static struct view *behind_view(struct backend *b)
{
    return behind.old ? behind.real.view_ref(behind.old) : behind.real.view(b);
}

static void behind_end(void)
{
    if (behind.old)
        behind.real.view_release(behind.old);
    behind.old = NULL;
}

static void behind_fresh(struct backend *b, uint64_t min_rv, uint64_t deadline_ms,
                         void (*cb)(void *arg, const struct err *err), void *arg)
{
    behind_end();
    behind.real.fresh(b, min_rv, deadline_ms, cb, arg);
}

/* What it has is from before the right was taken away. */
static int behind_ask(const char *token, const char *method, const char *path, const char *body)
{
    struct backend *b = memory_backend_table(w->mem);
    int status;

    behind.real = w->ops;
    bind("RoleBinding", "team-a", "late", "edit");
    behind.old = b->ops->view(b);
    w->ops.view = behind_view;
    w->ops.fresh = behind_fresh;
    struct view *kept = behind.old;
    behind.old = NULL;
    assert_int_equal(api_ask(w, ADMIN, "DELETE",
                             "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a/rolebindings/"
                             "late",
                             NULL, NULL),
                     200);
    behind.old = kept;
    status = api_ask(w, token, method, path, NULL, body);
    behind_end();
    w->ops = behind.real;
    return status;
}

#define WORKLOADS_A "/apis/hanse.dev/v1alpha1/namespaces/team-a/workloads"
static void test_a_member_that_is_behind(void **state)
{
    static const char late[] = "t|late|";

    (void)state;
    assert_int_equal(behind_ask(late, "GET", WORKLOADS_A, NULL), 403);
    assert_int_equal(behind_ask(late, "GET", WORKLOADS_A "?watch=1&resourceVersion=1", NULL), 403);
    assert_int_equal(behind_ask(late, "GET", WORKLOADS_A "/w/log", NULL), 403);
    assert_int_equal(behind_ask(late, "DELETE", WORKLOADS_A "/w", NULL), 403);
    assert_int_equal(behind_ask(late, "GET",
                                "/apis/hanse.dev/v1alpha1/namespaces/team-a/operations/history",
                                NULL),
                     403);
    /* Old rights, and old objects: as if it had been asked before. */
    assert_int_equal(behind_ask(late, "GET", WORKLOADS_A "?resourceVersion=0", NULL), 200);
}

static int behind_token(struct backend *b, const char *token, struct api_identity *ret,
                        struct err *err)
{
    return behind.old ? err_set(err, E_UNAUTH, "this member has not heard of it")
                      : behind.real.token(b, token, ret, err);
}

/* Nobody is anonymous in the log because the member that he asked was behind. */
static void test_a_token_that_is_new_to_a_member(void **state)
{
    struct backend *b = memory_backend_table(w->mem);

    (void)state;
    bind("RoleBinding", "team-a", "late", "edit");
    behind.real = w->ops;
    behind.old = b->ops->view(b);
    w->ops.view = behind_view;
    w->ops.fresh = behind_fresh;
    w->ops.token = behind_token;
    int status = api_ask(w, "t|late|", "POST", WORKLOADS_A, NULL,
                         "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Workload\","
                         "\"metadata\":{\"name\":\"new\"},"
                         "\"spec\":{\"run\":{\"command\":[\"true\"]}}}");
    behind_end();
    w->ops = behind.real;
    assert_int_equal(status, 201);
    assert_string_equal(api_text(w, "spec.user"), "late");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_route_has_a_sample),
                                              cmocka_unit_test(test_role_admin_tells_of_every_kind),
                                              T(test_every_route_for_everybody),
                                              T(test_nobody_grants_what_he_lacks),
                                              T(test_a_member_that_is_behind),
                                              T(test_a_token_that_is_new_to_a_member),
                                              T(test_reviews),
                                              T(test_apply_asks_for_each_object),
                                              T(test_tokens_are_nobodys_to_write),
                                              T(test_no_secret_is_a_token),
                                              T(test_a_token_grants_what_its_maker_could_be),
                                              T(test_audiences),
                                              T(test_impersonation),
                                              T(test_impersonation_does_not_fall_back),
                                              T(test_impersonation_and_keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
