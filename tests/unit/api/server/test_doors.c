/* Every route of routes.def, for every kind that it serves, asked by each kind of caller in his own
 * namespace, in another tenant's and in hanse-system: what is let in is what the roles that Hanse
 * begins with are meant to say, written here a second time and by hand. A new route or kind is
 * asked without a line here; a role that says more than meant fails. Who acts as another is let in
 * where that other one is, and nowhere else. */
#include "tests/support/api_world.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N(a) (sizeof(a) / sizeof *(a))

enum door { OPEN, PATH, RESOURCE, SELF };
struct row {
    const char *id, *method, *domain, *pattern, *verb;
    enum door access;
};
static const struct row rows[] = {
#define ROUTE(id, method, domain, pattern, verb, access, fn)                                       \
    {#id, #method, domain, pattern, verb, access},
#include "api/server/routes.def"
};

struct ask { /* of a row, with all that its pattern leaves open */
    const struct row *row;
    const char *group, *res, *sub, *ns, *name;
    char path[512];
};

/* ---- what the roles are meant to say ---- */
static bool one_of(const char *s, const char *const *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(s, v[i]))
            return true;
    return false;
}
#define ONE_OF(s, ...)                                                                             \
    one_of((s), (const char *const[]){__VA_ARGS__},                                                \
           sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static bool reads(const struct ask *a)
{
    return ONE_OF(a->row->verb, "get", "list", "watch");
}

/* Reads all but secrets, rights and what is asked by POST. */
static bool viewer_may(const struct ask *a)
{
    if (a->row->access == PATH || !reads(a))
        return false;
    if (!strcmp(a->group, "hanse.dev"))
        return true;
    if (!strcmp(a->res, "namespaces"))
        return true;
    if (!strcmp(a->res, "resourcequotas"))
        return true;
    return !*a->sub && ONE_OF(a->res, "events", "serviceaccounts", "leases");
}

/* Works in one namespace: his, with its secrets, but without its rights. */
static bool editor_may(const struct ask *a, const char *home)
{
    bool own = a->ns && !strcmp(a->ns, home);

    if (a->row->access == PATH || !own)
        return false;
    if (!strcmp(a->res, "namespaces"))
        return !strcmp(a->row->verb, "get");
    if (!strcmp(a->res, "operations"))
        return reads(a);
    if (!*a->sub && ONE_OF(a->res, "checkpoints", "decisions"))
        return reads(a);
    if (!strcmp(a->res, "resourcequotas")) /* who is limited does not write his limits */
        return reads(a);
    if (!*a->sub)
        return ONE_OF(a->res, "workloads", "datasets", "migrations", "reservations", "secrets",
                      "events", "serviceaccounts", "leases");
    if (!strcmp(a->sub, "status"))
        return reads(a) && ONE_OF(a->res, "workloads", "migrations", "reservations");
    return ONE_OF(a->sub, "log", "exec", "portforward", "token");
}

enum who { NOBODY, EXPIRED, VIEWER, EDITOR, OTHER, AGENT, ACTOR, POSER, WHO_NR };
static const struct {
    const char *name, *token, *headers;
} callers[WHO_NR] = {
    [NOBODY] = {"nobody", NULL, NULL},
    [EXPIRED] = {"expired", "expired|root|system:masters", NULL},
    [VIEWER] = {"viewer", "t|viewer|", NULL},
    [EDITOR] = {"editor", "t|editor|", NULL},
    [OTHER] = {"other tenant", "t|other|", NULL},
    [AGENT] = {"agent", "t|agent:a|hanse:agents", NULL},
    [ACTOR] = {"who may act as the editor", "t|actor|", "Impersonate-User: editor\r\n"},
    [POSER] = {"who may not", "t|editor|", "Impersonate-User: viewer\r\n"},
};

/* 'A' let in, 'F' 403, 'U' 401 */
static char meant(const struct ask *a, enum who who)
{
    if (who == EXPIRED)
        return 'U';
    if (who == POSER)
        return 'F';
    if (a->row->access == OPEN)
        return 'A';
    if (who == NOBODY)
        return 'U';
    if (a->row->access == SELF)
        return 'A';
    switch (who) {
    case VIEWER:
        return viewer_may(a) ? 'A' : 'F';
    case EDITOR:
    case ACTOR:
        return editor_may(a, "team-a") ? 'A' : 'F';
    case OTHER:
        return editor_may(a, "team-b") ? 'A' : 'F';
    default:
        return 'F';
    }
}

/* ---- asking ---- */
static struct api_world *w;
static unsigned asked;

static void ask_all(const struct ask *a)
{
    const char *body = strcmp(a->row->method, "GET") ? "{\"x\":1}" : NULL;

    for (int i = 0; i < WHO_NR; i++) {
        int status = api_ask_with(w, callers[i].token, a->row->method, a->path, callers[i].headers,
                                  NULL, body);
        char got = status == 401 ? 'U' : status == 403 ? 'F' : 'A', want = meant(a, i);
        if (got != want || !status)
            fail_msg("%s %s as %s: %d, expected %c", a->row->method, a->path, callers[i].name,
                     status, want);
        asked++;
    }
}

/* The pattern's segments, filled in. */
static void path_make(struct ask *a, const char *base)
{
    size_t n = (size_t)snprintf(a->path, sizeof a->path, "%s", base);
    unsigned at = 0, from = strstr(a->row->pattern, "{ns}") ? 2 : 0;

    a->sub = "";
    for (const char *s = a->row->pattern; *s; at++) {
        size_t len = strcspn(s, "/");
        const char *v = !strncmp(s, "{ns}", len)      ? a->ns
                        : !strncmp(s, "{res}", len)   ? a->res
                        : !strncmp(s, "{group}", len) ? "hanse.dev"
                        : !strncmp(s, "{version}", len)
                            ? (strstr(a->row->pattern, "openapi/v3/api/") ? "v1" : "v1alpha1")
                        : *s == '{' ? a->name
                                    : NULL;
        if (v)
            n += (size_t)snprintf(a->path + n, sizeof a->path - n, "/%s", v);
        else
            n += (size_t)snprintf(a->path + n, sizeof a->path - n, "/%.*s", (int)len, s);
        if (!v && at == from + 2)
            a->sub = s; /* the last one */
        s += len + (s[len] == '/');
    }
    if (!n)
        (void)snprintf(a->path, sizeof a->path, "/");
}

static void ask_kind(const struct row *row, const struct kind *k)
{
    static const char *const spaces[] = {"team-a", "team-b", "hanse-system"};
    bool in_ns = strstr(row->pattern, "{ns}") != NULL, of_ns = k->id == KIND_NAMESPACE;
    bool item = strstr(row->pattern, "{name}") != NULL;
    char base[128];

    if (k->namespaced ? !in_ns && (item || strcmp(row->verb, "list") != 0) : in_ns)
        return;
    if (strstr(row->pattern, "/status") && !(k->flags & KINDF_STATUSSUB) &&
        strcmp(row->verb, "get") != 0)
        return;
    (void)snprintf(base, sizeof base, *k->group ? "/apis/%s/%s" : "/api%s/%s", k->group,
                   k->version);
    for (size_t i = 0; i < (in_ns || (of_ns && item) ? N(spaces) : 1); i++) {
        struct ask a = {.row = row,
                        .group = k->group,
                        .res = k->plural,
                        .ns = in_ns || (of_ns && item) ? spaces[i] : NULL,
                        .name = of_ns ? spaces[i] : "x"};
        path_make(&a, base);
        ask_all(&a);
    }
}

/* Routes of one resource, in all namespaces that it may be asked in. */
static void ask_one(const struct row *row)
{
    static const char *const spaces[] = {"team-a", "team-b", "hanse-system"};
    bool op = strstr(row->pattern, "{op}") != NULL, in_ns = strstr(row->pattern, "{ns}") != NULL;
    bool of_ns = !strncmp(row->pattern, "namespaces/{name}", 17);
    const char *group = row->domain;
    char base[128] = "", name[64] = "";

    if (*group) {
        size_t n = strcspn(group, "/");
        (void)snprintf(name, sizeof name, "%.*s", (int)n, group);
        (void)snprintf(base, sizeof base, n ? "/apis/%s" : "/api%s", group);
    }
    for (size_t i = 0; i < (in_ns || of_ns ? N(spaces) : 1); i++) {
        struct ask a = {.row = row,
                        .group = name,
                        .res = of_ns                                ? "namespaces"
                               : strstr(row->pattern, "operations") ? "operations"
                               : strstr(row->pattern, "workloads")  ? "workloads"
                               : strstr(row->pattern, "serviceacc") ? "serviceaccounts"
                                                                    : "",
                        .ns = in_ns || of_ns ? spaces[i] : NULL,
                        .name = !op                              ? of_ns ? spaces[i] : "x"
                                : in_ns                          ? "cost"
                                : strstr(row->pattern, "stream") ? "backup"
                                : !strcmp(row->method, "POST")   ? "token.create"
                                                                 : "status"};
        path_make(&a, base);
        ask_all(&a);
    }
}

static void test_every_door(void **state)
{
    const struct kind *kinds[KIND_LIMIT];
    size_t n = kind_all(kinds, KIND_LIMIT);

    (void)state;
    for (size_t i = 0; i < N(rows); i++) {
        if (strcmp(rows[i].domain, "*") != 0)
            ask_one(&rows[i]);
        for (size_t k = 0; k < n && !strcmp(rows[i].domain, "*"); k++)
            ask_kind(&rows[i], kinds[k]);
    }
    print_message("%u requests\n", asked);
    assert_true(asked > 1000);
}

/* ---- the world ---- */
#define RBAC "/apis/rbac.authorization.k8s.io/v1"

static void make(const char *path, const char *body)
{
    int status = api_ask(w, ADMIN, "POST", path, NULL, body);

    if (status != 201)
        fail_msg("%s: %d %s", path, status, w->body);
}

static void bind(const char *ns, const char *user, const char *role)
{
    char path[256], body[512];

    (void)snprintf(path, sizeof path, RBAC "/%s%s%s", *ns ? "namespaces/" : "", ns,
                   *ns ? "/rolebindings" : "clusterrolebindings");
    (void)snprintf(body, sizeof body,
                   "{\"apiVersion\":\"rbac.authorization.k8s.io/v1\",\"kind\":\"%s\",\"metadata\":"
                   "{\"name\":\"%s\"},\"roleRef\":{\"kind\":\"ClusterRole\",\"name\":\"%s\"},"
                   "\"subjects\":[{\"kind\":\"User\",\"name\":\"%s\"}]}",
                   *ns ? "RoleBinding" : "ClusterRoleBinding", user, role, user);
    make(path, body);
}

static int setup(void **state)
{
    static const char *const spaces[] = {"team-a", "team-b"};
    char body[256];

    (void)state;
    w = api_world_create();
    for (size_t i = 0; i < N(spaces); i++) {
        (void)snprintf(
            body, sizeof body,
            "{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":\"%s\"}}",
            spaces[i]);
        make("/api/v1/namespaces", body);
    }
    make(RBAC "/clusterroles",
         "{\"apiVersion\":\"rbac.authorization.k8s.io/v1\",\"kind\":\"ClusterRole\",\"metadata\":{"
         "\"name\":\"acts\"},\"rules\":[{\"apiGroups\":[\"\"],\"resources\":[\"users\"],"
         "\"resourceNames\":[\"editor\"],\"verbs\":[\"impersonate\"]}]}");
    bind("", "viewer", "view");
    bind("team-a", "editor", "edit");
    bind("team-b", "other", "edit");
    bind("", "actor", "acts");
    return 0;
}
static int teardown(void **state)
{
    (void)state;
    w = api_world_destroy(w);
    return 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_door, setup, teardown)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
