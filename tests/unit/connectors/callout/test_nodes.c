/* Nodes as a callout server tells them: devices by count, whose orders say how many; and a node
 * that cannot be read, which spoils nothing for the others and is not gone. */
#include "connectors/callout/callout.h"
#include "controlplane/leader/site/listing.h"
#include "tests/support/unit.h"
#include "tests/support/web/callout_world.h"
#include "tests/support/web/still_loop.h"

#include <cjson/cJSON.h>
#include <string.h>

static struct world {
    struct loop *loop;
    struct object *target;
    struct connector *c;
    struct listing nodes;
    unsigned lacks;
    struct notice notices[8];
    size_t n_notices;
} W;

static void on_reach(void *arg, bool reachable, const char *session, const char *why)
{
    (void)arg;
    (void)session;
    (void)why;
    if (reachable)
        listing_cut(&W.nodes);
}
static void on_observed(void *arg, const struct observation *o)
{
    (void)arg;
    (void)o;
}
static void on_nodes(void *arg, const struct inventory_page *p)
{
    struct err err;

    (void)arg;
    W.lacks += p->lacks;
    (void)!listing_take(&W.nodes, p, false, &err);
}
static void on_notices(void *arg, const struct notice *v, size_t n)
{
    (void)arg;
    assert_true(n <= sizeof W.notices / sizeof *W.notices);
    for (size_t i = 0; i < n; i++)
        W.notices[i] = v[i];
    W.n_notices = n;
}
static const char *secret_get(void *arg, const char *name, const char *key)
{
    (void)arg;
    (void)name;
    return !strcmp(key, "key") ? CALLOUT_WORLD_KEY : NULL;
}
static void secret_put(void *arg, const char *text)
{
    (void)arg;
    (void)text;
}

static int begin(void **state)
{
    static const struct connector_events events = {
        .reach = on_reach, .observed = on_observed, .nodes = on_nodes, .notices = on_notices};
    struct connector_env env = {.events = &events,
                                .secret_get = secret_get,
                                .secret_put = secret_put,
                                .web = &script_web_ops};
    cJSON *j = cJSON_Parse(
        "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Target\",\"metadata\":{\"name\":\"t1\"},"
        "\"spec\":{\"type\":\"callout\",\"tier\":\"hub\",\"connection\":{\"server\":"
        "\"https://rack.test\",\"credentialsFrom\":{\"secret\":\"rack\"}}}}");
    struct err e;

    (void)state;
    W = (struct world){.loop = still_loop_create(11)};
    listing_init(&W.nodes);
    W.nodes.counts = true;
    env.loop = W.loop;
    assert_int_equal(object_from_json(kind_by_id(KIND_TARGET), j, 0, &W.target, &e), 0);
    cJSON_Delete(j);
    callout_world_begin(W.loop);
    assert_int_equal(connector_callout_ops.create(&env, W.target, &W.c, &e), 0);
    still_loop_run(W.loop, 5000); /* it says hello */
    return 0;
}

static int end(void **state)
{
    (void)state;
    connector_callout_ops.destroy(W.c);
    listing_fini(&W.nodes);
    (void)object_unref(W.target);
    (void)still_loop_destroy(W.loop);
    return 0;
}

struct asked {
    struct call call; /* first */
    enum outcome out;
};
static void on_done(struct call *c, enum outcome out, const struct observation *seen,
                    const struct err *err)
{
    (void)seen;
    (void)err;
    ((struct asked *)c)->out = out;
}
static struct asked asked_now(void)
{
    return (struct asked){.call = {.deadline_ms = loop_now_ms(W.loop) + 15000, .done = on_done},
                          .out = OUT_UNKNOWN};
}

static void inventory(void)
{
    struct asked a = asked_now();

    connector_callout_ops.inventory(W.c, &a.call);
    still_loop_run(W.loop, 15001);
    assert_int_equal(a.out, OUT_DONE);
}

static const struct node *told(const char *name, struct arena *a)
{
    struct indexed *e = index_find(&W.nodes.by_name, name);
    const struct node_told *t = e ? container_of(e, struct node_told, by_name) : NULL;
    struct err err;
    void *body;

    assert_non_null(t);
    assert_int_equal(tlv_decode(&schema_node, slice_make(t->bytes, t->n), a, &body, &err), 0);
    return body;
}

static void devices_by_count(void **state)
{
    static const char *const argv[] = {"stays", NULL}, *const none[] = {NULL};
    static struct assignment two = {.node = "t1.n1", .mig = "", .count = 2, .gpuMilli = 1000};
    static struct placement p = {
        .target = "t1", .class_ = "h100", .assignments = &two, .n_assignments = 1};
    struct run_order o = {.key = {.uid = "counted", .epoch = 1, .try_ = 1},
                          .ns = "default",
                          .name = "w",
                          .principal = "",
                          .placement = &p,
                          .image = "",
                          .argv = argv,
                          .script = "",
                          .cwd = "",
                          .env = none,
                          .gpus = 2,
                          .signal = "",
                          .save_signal = "",
                          .document = "",
                          .checkpoint_dir = "",
                          .resume_path = "",
                          .resume_digest = ""};
    struct asked a = asked_now();
    AUTO_ARENA m = arena_create(0);

    (void)state;
    callout_world_node("n1", 8);
    callout_world.nodes[0].devices =
        "\"counted\":[{\"class\":\"h100\",\"count\":8,\"unhealthy\":1},{\"class\":\"h100\","
        "\"mig\":\"1g.10gb\",\"count\":14},{\"class\":\"h100\",\"shares\":4,\"count\":8}],"
        "\"others\":{\"classes\":[{\"class\":\"h100\",\"mig\":\"1g.10gb\",\"count\":2}]}";
    inventory();
    const struct node_spec *s = told("t1.n1", m)->spec;
    assert_int_equal(s->n_gpus, 0);
    assert_int_equal(s->counted[0].count, 8);
    assert_int_equal(s->counted[0].unhealthy, 1);
    assert_string_equal(s->counted[1].mig, "1g.10gb");
    assert_int_equal(s->counted[2].shares, 4);
    assert_string_equal(told("t1.n1", m)->status->others->classes[0].mig, "1g.10gb");
    a = asked_now();
    connector_callout_ops.submit(W.c, &o, &a.call);
    still_loop_run(W.loop, 15001);
    assert_int_equal(a.out, OUT_DONE);
    assert_non_null(strstr(callout_world.order, "\"workers\":[{\"node\":\"n1\",\"count\":2}]"));
    callout_world_end_run(callout_world_run(&o.key), 0);
    two = (struct assignment){.node = "t1.n1", .mig = "1g.10gb", .count = 1, .gpuMilli = 143};
    o.key.uid[0] = 'm';
    a = asked_now();
    connector_callout_ops.submit(W.c, &o, &a.call);
    still_loop_run(W.loop, 15001);
    assert_non_null(strstr(callout_world.order,
                           "\"workers\":[{\"node\":\"n1\",\"count\":1,\"mig\":\"1g.10gb\"}]"));
    callout_world_end_run(callout_world_run(&o.key), 0);
    two = (struct assignment){.node = "t1.n1", .mig = "", .count = 1, .shares = 4, .gpuMilli = 250};
    o.key.uid[0] = 's';
    a = asked_now();
    connector_callout_ops.submit(W.c, &o, &a.call);
    still_loop_run(W.loop, 15001);
    assert_non_null(strstr(callout_world.order,
                           "\"workers\":[{\"node\":\"n1\",\"count\":1,\"shares\":4}]"));
    callout_world_end_run(callout_world_run(&o.key), 0);
    still_loop_run(W.loop, 10000);
}

static void refused_is(const char *what)
{
    char now[512];

    assert_true(listing_refused(&W.nodes, now, sizeof now));
    if (*what)
        assert_non_null(strstr(now, what));
    else
        assert_string_equal(now, "");
}

/* A device without a number is no device 0. */
static void a_bad_node_spoils_no_page(void **state)
{
    AUTO_ARENA m = arena_create(0);

    (void)state;
    callout_world_node("n1", 8);
    callout_world_node("n2", 8);
    inventory();
    assert_int_equal(W.nodes.stage, LISTING_ENDED);
    assert_int_equal(W.lacks, 0);
    refused_is("");
    callout_world.nodes[0].devices = "\"gpus\":[{\"class\":\"h100\"},{\"class\":\"h100\"}]";
    callout_world_node("n1", 4);
    callout_world_node("n2", 4);
    still_loop_run(W.loop, 12000); /* as a change */
    assert_true(W.lacks > 0);
    refused_is("1 node cannot be read and is left out: t1.n1: a GPU without an index");
    assert_int_equal(told("t1.n1", m)->spec->cpu, 8000);
    assert_int_equal(told("t1.n2", m)->spec->cpu, 4000);
    W.lacks = 0;
    inventory(); /* and with all of them: none is taken away */
    assert_int_equal(W.lacks, 1);
    assert_int_equal(told("t1.n1", m)->spec->cpu, 8000);
    assert_int_equal(W.nodes.n_leaves, 0);
    assert_int_equal(W.nodes.stage, LISTING_NONE);
    refused_is("1 node cannot be read");
    callout_world.nodes[0].devices = NULL;
    callout_world_node("n1", 2);
    still_loop_run(W.loop, 12000);
    assert_int_equal(told("t1.n1", m)->spec->cpu, 2000);
    refused_is("");
}

static const struct notice *noticed(const char *name)
{
    for (size_t i = 0; i < W.n_notices; i++)
        if (!strcmp(W.notices[i].node, name))
            return &W.notices[i];
    return NULL;
}

/* Nor does a notice, or a text: the node is left out, and what was known of it stays. */
static void a_notice_that_cannot_be_read(void **state)
{
    static const char *const bad[] = {"{\"kind\":\"doom\",\"in\":\"2m\"}",
                                      "{\"kind\":\"spot\"}",
                                      "{\"kind\":\"spot\",\"in\":\"-5m\"}", "7"};
    static const char *const why[] = {"doom", "\"in\"", "-5m", "notice"};
    AUTO_ARENA m = arena_create(0);

    (void)state;
    callout_world.nodes[0].notice = "{\"kind\":\"spot\",\"in\":\"60m\"}";
    callout_world_node("n1", 8);
    callout_world_node("n2", 8);
    inventory();
    assert_int_equal(W.nodes.stage, LISTING_ENDED);
    assert_non_null(noticed("t1.n1"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        callout_world.nodes[0].notice = bad[i];
        callout_world_node("n1", 4);
        callout_world_node("n2", (unsigned)i + 1);
        inventory();
        assert_int_equal(told("t1.n1", m)->spec->cpu, 8000);
        assert_int_equal(told("t1.n2", m)->spec->cpu, (int)(i + 1) * 1000);
        refused_is("1 node cannot be read and is left out: t1.n1: ");
        if (i < 3)
            refused_is(why[i]);
        assert_non_null(noticed("t1.n1"));
        assert_int_equal(noticed("t1.n1")->kind, NOTICE_SPOT);
    }
    callout_world.nodes[0].notice = NULL;
    callout_world.nodes[0].devices = "\"labels\":{\"a\":\"\\ud800\"}";
    callout_world_node("n1", 4);
    callout_world_node("n2", 7);
    inventory();
    assert_int_equal(told("t1.n2", m)->spec->cpu, 7000);
    callout_world.nodes[0].devices = NULL;
    callout_world_node("n1", 2);
    inventory();
    assert_int_equal(told("t1.n1", m)->spec->cpu, 2000);
    assert_null(noticed("t1.n1"));
    refused_is("");
}

static void names_that_nobody_can_write(void **state)
{
    static const char *const names[] = {"Bad name", "a/b", "..", "\xc3\xbcnicode"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        callout_world_node(names[i], 8);
        inventory();
        refused_is("the name of a node is of letters");
        callout_world_node(names[i], 0);
    }
    callout_world_node("GPU-01_a.b", 8);
    inventory();
    refused_is("");
}

/* What the Target's key begins with may end a name: "a-secret" does. The key itself is in no label,
 * neither as its name nor as its value. */
static void names_like_a_secret(void **state)
{
    AUTO_ARENA m = arena_create(0);

    (void)state;
    callout_world_node("n-a-secret", 8);
    callout_world.nodes[callout_world.n_nodes - 1].devices =
        "\"labels\":{\"x-" CALLOUT_WORLD_KEY "\":\"of a-secret\",\"y\":\"" CALLOUT_WORLD_KEY
        "\"}";
    inventory();
    refused_is("");
    const struct node_spec *s = told("t1.n-a-secret", m)->spec;
    assert_int_equal(s->n_labels, 2);
    assert_string_equal(label_get(s->labels, s->n_labels, "x-***"), "of a-secret");
    assert_string_equal(label_get(s->labels, s->n_labels, "y"), "***");
}

/* A page that cannot be read at all takes no node away, and is told. */
static void a_page_that_cannot_be_read(void **state)
{
    AUTO_ARENA m = arena_create(0);

    (void)state;
    inventory();
    callout_world.nodes_page = "{\"revision\":\"r9\",\"nodes\":[],\"removed\":7}";
    struct asked a = asked_now();
    connector_callout_ops.inventory(W.c, &a.call);
    still_loop_run(W.loop, 15001);
    assert_int_equal(a.out, OUT_UNKNOWN);
    refused_is("not all of its nodes can be taken: a page of its nodes cannot be read: removed");
    assert_int_equal(told("t1.n1", m)->spec->cpu, 8000);
    assert_int_equal(W.nodes.n_leaves, 0);
    callout_world.nodes_page = NULL;
    inventory();
    refused_is("");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(devices_by_count, begin, end),
        cmocka_unit_test_setup_teardown(a_bad_node_spoils_no_page, begin, end),
        cmocka_unit_test_setup_teardown(a_notice_that_cannot_be_read, begin, end),
        cmocka_unit_test_setup_teardown(names_that_nobody_can_write, begin, end),
        cmocka_unit_test_setup_teardown(names_like_a_secret, begin, end),
        cmocka_unit_test_setup_teardown(a_page_that_cannot_be_read, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
