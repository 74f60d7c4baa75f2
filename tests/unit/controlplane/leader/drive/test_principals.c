/* In whose name a run goes at its target: by which row of spec.principals, with whose Secret, and
 * that neither another's nor the target's own ever stands in. */
#include "controlplane/leader/context/context.h"
#include "controlplane/leader/context/hide.h"
#include "controlplane/leader/drive/order.h"
#include "controlplane/leader/site/sites.h"
#include "tests/support/store/store_kit.h"

struct world {
    struct kit kit;
    struct brain brain;
    struct site site;
    struct target *t;
    struct placement at;
    unsigned held; /* values that are not given back */
    bool hides;    /* the target's own is looked at, to take it out of a text */
};

static const char *secret_get(void *arg, const char *ns, const char *name, const char *key)
{
    struct world *x = arg;

    assert_string_equal(ns, "hanse-system");
    assert_true(x->hides || strcmp(name, "rack") != 0); /* the target's own is nobody else's */
    const char *wanted = !strcmp(name, "rack") ? "key" : PRINCIPAL_TOKEN;
    const char *v = strcmp(key, wanted) != 0 ? NULL
                    : !strcmp(name, "anna")  ? "token-of-anna"
                    : !strcmp(name, "ben")   ? "token-of-ben"
                    : !strcmp(name, "rack")  ? "key-of-rack"
                                             : NULL;
    x->held += v != NULL;
    return v;
}
static void secret_put(void *arg, const char *text)
{
    assert_non_null(text);
    ((struct world *)arg)->held--;
}

static struct secret_ref anna = {.secret = "anna"}, ben = {.secret = "ben"},
                         gone = {.secret = "gone"}, rack = {.secret = "rack"};
static const char *ns_a[] = {"a"}, *ns_ab[] = {"a", "b"}, *ns_c[] = {"c"}, *night[] = {"night"};
static struct target_principal rows[] = {
    {.name = "anna", .namespaces = ns_ab, .n_namespaces = 2, .credentialsFrom = &anna},
    {.name = "ben",
     .namespaces = ns_a,
     .n_namespaces = 1,
     .queues = night,
     .n_queues = 1,
     .credentialsFrom = &ben},
    {.name = "cleo", .namespaces = ns_c, .n_namespaces = 1, .credentialsFrom = &gone},
    {.name = "nobody"},
};

static void world_init(struct world *x, uint32_t n)
{
    struct arena *a = arena_create(0);
    struct target *t = arena_new(a, struct target);

    *x = (struct world){.kit = {.a = a, .root = root_create(), .now = 1000}};
    t->metadata = kit_meta(&x->kit, "", "rack");
    t->spec = arena_new(a, struct target_spec);
    t->spec->type = TARGET_CALLOUT;
    t->spec->connection = arena_new(a, struct target_connection);
    t->spec->connection->credentialsFrom = &rack;
    t->spec->principals = rows;
    t->spec->n_principals = n;
    assert_int_equal(kit_create(&x->kit, KIND_TARGET, "", "rack", t).code, 0);
    x->brain.root = x->kit.root;
    x->brain.cfg.secret_get = secret_get;
    x->brain.cfg.secret_put = secret_put;
    x->brain.cfg.arg = x;
    x->site.brain = &x->brain;
    x->site.doc = object_make(kind_by_id(KIND_TARGET), t);
    (void)snprintf(x->site.name, sizeof x->site.name, "rack");
    x->at = (struct placement){.target = "rack", .class_ = ""};
}
static void world_fini(struct world *x)
{
    assert_int_equal(x->held, 0);
    (void)object_unref(x->site.doc);
    (void)root_unref(x->kit.root);
    (void)arena_destroy(x->kit.a);
}

static struct object *workload_of(struct world *x, const char *ns, const char *queue)
{
    struct workload *w = arena_new(x->kit.a, struct workload);

    w->metadata = arena_new(x->kit.a, struct meta);
    w->metadata->name = "w";
    w->metadata->namespace_ = arena_strdup(x->kit.a, ns);
    w->metadata->uid = "u1";
    w->spec = arena_new(x->kit.a, struct workload_spec);
    w->spec->run = arena_new(x->kit.a, struct run_spec);
    w->status = arena_new(x->kit.a, struct workload_status);
    w->status->epoch = 1;
    w->status->queue = queue;
    w->status->placement = &x->at;
    return object_make(kind_by_id(KIND_WORKLOAD), w);
}

/* NULL: it is refused. */
static void goes_by(struct world *x, const char *ns, const char *queue, const char *name)
{
    struct run_key key = {.uid = "u1", .epoch = 1, .try_ = 1};
    struct object *o = workload_of(x, ns, queue);
    struct run_order r;
    struct err err;
    int rc = order_make(&x->site, o, &x->at, &key, x->kit.a, &r, &err);

    if (name) {
        assert_int_equal(rc, 0);
        assert_string_equal(r.principal, name);
    } else {
        assert_int_equal(rc, E_FORBIDDEN);
        assert_non_null(strstr(err.text, "have nobody for namespace"));
        assert_non_null(strstr(err.text, ns));
    }
    (void)object_unref(o);
}

static void test_whose_name(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, 4);
    goes_by(&x, "a", "", "anna");
    goes_by(&x, "b", "day", "anna");
    goes_by(&x, "a", "night", "ben"); /* the narrower row, though it comes later */
    goes_by(&x, "b", "night", "anna");
    goes_by(&x, "c", "night", "cleo"); /* a Queue gives no name by itself */
    goes_by(&x, "d", "", "nobody");
    world_fini(&x);
    world_init(&x, 3); /* nobody stands for the rest */
    goes_by(&x, "d", "night", NULL);
    goes_by(&x, "a", "", "anna");
    world_fini(&x);
    world_init(&x, 0);
    goes_by(&x, "d", "", ""); /* in the target's own name */
    world_fini(&x);
}

static void test_each_has_its_own_secret(void **state)
{
    const char *v;
    struct err err;
    struct world x;

    (void)state;
    world_init(&x, 4);
    assert_int_equal(site_principal_secret(&x.site, "anna", &v, &err), 0);
    assert_string_equal(v, "token-of-anna");
    secret_put(&x, v);
    assert_int_equal(site_principal_secret(&x.site, "ben", &v, &err), 0);
    assert_string_equal(v, "token-of-ben");
    secret_put(&x, v);
    assert_int_equal(site_principal_secret(&x.site, "nobody", &v, &err), 0);
    assert_null(v); /* it names none: not the target's instead */
    assert_int_equal(site_principal_secret(&x.site, "cleo", &v, &err), E_FORBIDDEN);
    assert_null(v);
    assert_non_null(strstr(err.text, "has no \"token\" for its principal"));
    assert_null(strstr(err.text, "gone")); /* which Secret that is, tenants do not hear */
    assert_int_equal(site_principal_secret(&x.site, "dora", &v, &err), 0);
    assert_null(v); /* no row of the Target is hers */
    world_fini(&x);
}

/* Targets repeat what they were given. */
static void test_no_target_tells_it(void **state)
{
    char text[80] = "bearer token-of-anna is not wanted, token-of-ben not ours; key-of-rack";
    struct world x;

    (void)state;
    world_init(&x, 4);
    struct object *o = workload_of(&x, "a", "");
    x.hides = true;
    hide_text(&x.brain, o, text);
    assert_string_equal(text, "bearer *** is not wanted, token-of-ben not ours; ***");
    (void)object_unref(o);
    world_fini(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whose_name), cmocka_unit_test(test_each_has_its_own_secret),
        cmocka_unit_test(test_no_target_tells_it)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
