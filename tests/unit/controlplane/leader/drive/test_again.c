/* An order whose outcome is unknown: who is asked about it, and who gets the very same order again.
 * A scripted connector answers; the phase is the log's. */
#include "controlplane/leader/context/context.h"
#include "controlplane/leader/context/index.h"
#include "controlplane/leader/drive/calls.h"
#include "controlplane/leader/drive/driver.h"
#include "controlplane/leader/move/mover.h"
#include "controlplane/leader/site/sites.h"
#include "tests/support/store/store_kit.h"

static struct kit *log_kit;

void brain_propose(struct brain *b, const union command *c, propose_cb cb, void *arg)
{
    (void)cb;
    (void)kit_apply(log_kit, c);
    b->root = log_kit->root;
    mem_free(arg);
}
void brain_propose_bytes(struct brain *b, const char *id, struct slice s, propose_cb cb, void *arg)
{
    (void)b;
    (void)id;
    (void)s;
    (void)cb;
    (void)arg;
    fail();
}
void brain_request_id(struct brain *b, char out[REQUEST_ID_MAX])
{
    (void)b;
    (void)snprintf(out, REQUEST_ID_MAX, "r-%llu", (unsigned long long)log_kit->number);
}

struct world {
    struct kit kit;
    struct brain brain;
    struct sites sites;
    struct movers movers;
    struct site site;
    struct driver d;
    struct connector connector;
    const char *memory; /* that the connector names */
    const char *secret; /* NULL: it is gone */
    unsigned submits, finds;
};

static void submit(struct connector *c, const struct run_order *o, struct call *call)
{
    (void)o;
    (void)call;
    container_of(c, struct world, connector)->submits++;
}
static void find(struct connector *c, const struct run_key *k, struct call *call)
{
    (void)k;
    (void)call;
    container_of(c, struct world, connector)->finds++;
}
static const char *repeats(const struct connector *c)
{
    return container_of(c, struct world, connector)->memory;
}
static const struct connector_ops ops = {.submit = submit, .find = find, .repeats = repeats};
static const struct connector_ops ops_none = {.submit = submit, .find = find};

static void follow(struct brain *b)
{
    (void)b;
}
static const char *secret_get(void *arg, const char *ns, const char *name, const char *key)
{
    (void)ns;
    (void)name;
    (void)key;
    return ((struct world *)arg)->secret;
}
static void secret_put(void *arg, const char *text)
{
    (void)arg;
    (void)text;
}

/* Its environment has a Secret. */
static void with_secret(struct kit *k)
{
    static struct secret_key_ref ref = {.secret = "s", .key = "token"};
    struct workload *w = object_edit_as(kit_get(k, "w"), workload, k->a);

    if (!w->spec->run)
        w->spec->run = arena_new(k->a, struct run_spec);
    w->spec->run->env = arena_array(k->a, struct env_var, 1);
    w->spec->run->n_env = 1;
    w->spec->run->env[0] = (struct env_var){.name = "A", .value = "", .valueFrom = &ref};
    assert_int_equal(kit_update(k, KIND_WORKLOAD, k->ns, "w", w, 0, false).code, 0);
}

/* Placed, dispatched, and its order sent. */
static void ordered(struct world *x)
{
    union command c = {.member = {.head = {.type = CMD_MEMBER},
                                  .member = {.id = 1, .feature_level = FEATURE_LEVEL},
                                  .cluster_uid = "c"}};
    struct err err;

    *x = (struct world){.connector = {.ops = &ops}, .memory = "folder-1", .secret = "hush"};
    kit_begin(&x->kit);
    (void)snprintf(c.member.member.name, sizeof c.member.member.name, "m1");
    assert_int_equal(kit_apply(&x->kit, &c).code, 0);
    kit_pool(&x->kit, 1, 4);
    assert_int_equal(kit_workload(&x->kit, x->kit.ns, "w", 1, 1).code, 0);
    with_secret(&x->kit);
    log_kit = &x->kit;
    x->brain = (struct brain){.sites = &x->sites,
                              .movers = &x->movers,
                              .leads = true,
                              .term = 3,
                              .follow = follow,
                              .cfg = {.secret_get = secret_get, .secret_put = secret_put, .arg = x},
                              .loop = loop_uv_create(&err)};
    assert_non_null(x->brain.loop);
    sites_init(&x->brain);
    movers_init(&x->brain);
    list_init(&x->site.drivers);
    x->site.brain = &x->brain;
    x->site.connector = &x->connector;
    x->site.reachable = true;
    x->site.session = 1;
    x->site.doc = object_ref(root_get(x->kit.root, KIND_TARGET, "", "fra"));
    (void)snprintf(x->site.name, sizeof x->site.name, "fra");
    x->site.by_name.key = x->site.name;
    index_add(&x->sites.by_name, &x->site.by_name);
    assert_int_equal(kit_place(&x->kit, "w", "fra.n0", 0, 1, 1).code, 0);
    assert_int_equal(kit_run(&x->kit, "w", 1, 1, STEP_DISPATCH).code, 0);
    x->brain.root = x->kit.root;
    x->d = (struct driver){.brain = &x->brain, .backoff_ms = 50, .told_step = -1};
    x->d.o = object_ref(kit_get(&x->kit, "w"));
    str_copy(x->d.uid, sizeof x->d.uid, x->d.o->meta->uid);
    str_copy(x->d.ns, sizeof x->d.ns, x->kit.ns);
    str_copy(x->d.name, sizeof x->d.name, "w");
    str_copy(x->d.target, sizeof x->d.target, "fra");
    str_copy(x->d.key.uid, sizeof x->d.key.uid, x->d.uid);
    x->d.key.epoch = x->d.key.try_ = 1;
    list_init(&x->d.seat);
    timer_init(&x->d.again, x->brain.loop, (void (*)(void *))driver_tick, &x->d);
    driver_call(&x->d, &x->site, CALL_SUBMIT);
    assert_int_equal(x->submits, 1);
}

static void world_fini(struct world *x)
{
    timer_stop(&x->d.again);
    index_remove(&x->sites.by_name, &x->site.by_name);
    (void)object_unref(x->d.o);
    (void)object_unref(x->site.doc);
    loop_uv_destroy(x->brain.loop);
    kit_end(&x->kit);
}

/* It ends so, and the pause after it is over. */
static void answer(struct world *x, enum outcome out, const struct observation *seen)
{
    struct call *c = &x->d.call.call;
    struct err err;

    (void)err_set(&err, E_UNKNOWN, "no answer");
    c->done(c, out, seen, out == OUT_DONE ? NULL : &err);
    assert_int_equal(x->submits + x->finds, 1); /* not from inside of the answer */
    x->d.send_again_ms = 0;
}

static void test_the_same_order_where_it_is_the_same_run(void **state)
{
    struct world x;

    (void)state;
    ordered(&x);
    answer(&x, OUT_UNKNOWN, NULL);
    driver_tick(&x.d);
    assert_int_equal(x.submits, 2);
    assert_int_equal(x.finds, 0);
    world_fini(&x);
}

/* After a pause, and not for ever. */
static void test_within_bounds(void **state)
{
    struct world x;
    struct err err;

    (void)state;
    ordered(&x);
    (void)err_set(&err, E_UNKNOWN, "no answer");
    for (unsigned n = 2; n <= 4; n++) {
        struct call *c = &x.d.call.call;
        c->done(c, OUT_UNKNOWN, NULL, &err);
        driver_tick(&x.d);
        assert_int_equal(x.submits, n - 1); /* it waits */
        assert_true(timer_active(&x.d.again));
        x.d.send_again_ms = 0;
        driver_tick(&x.d);
        assert_int_equal(x.submits, n);
    }
    x.d.call.call.done(&x.d.call.call, OUT_UNKNOWN, NULL, &err);
    x.d.send_again_ms = 0;
    driver_tick(&x.d);
    assert_int_equal(x.submits, 4);
    assert_int_equal(x.finds, 1);
    world_fini(&x);
}

enum difference {
    NO_SUCH_TARGET,
    OTHER_MEMORY,
    NO_MEMORY,
    OTHER_TERM,
    OTHER_DOCUMENT,
    OTHER_PLACE,
    OTHER_SECRET,
    NO_SECRET,
    ASKED_ABOUT,
    SEEN,
    NOT_WANTED,
    CHANGE_NR
};

/* Its Workload is another one now: where it was placed, or what was asked for. */
static void another(struct driver *d, bool place)
{
    struct arena *a = arena_create(0);
    struct workload *w = arena_new(a, struct workload);
    const struct object *was = d->o;

    *w = *object_as(was, workload);
    if (place) {
        w->status = arena_new(a, struct workload_status);
        *w->status = *object_as(was, workload)->status;
        w->status->placement = arena_new(a, struct placement);
        *w->status->placement = *object_as(was, workload)->status->placement;
        w->status->placement->capacity = CAPACITY_SPOT;
    } else {
        w->spec = arena_new(a, struct workload_spec);
        *w->spec = *object_as(was, workload)->spec;
        w->spec->deadline = 1;
    }
    d->o = object_make(kind_by_id(KIND_WORKLOAD), w);
    (void)object_unref(was);
    (void)arena_destroy(a);
}

static void test_find_wherever_something_differs(void **state)
{
    struct observation seen = {.state = RUN_UNKNOWN};

    (void)state;
    for (int what = 0; what < CHANGE_NR; what++) {
        struct world x;

        ordered(&x);
        answer(&x, OUT_UNKNOWN, NULL);
        switch ((enum difference)what) {
        case NO_SUCH_TARGET:
            x.connector.ops = &ops_none;
            break;
        case OTHER_MEMORY:
            x.memory = "folder-2";
            break;
        case NO_MEMORY:
            x.memory = "";
            break;
        case OTHER_TERM:
            x.brain.term++;
            break;
        case OTHER_DOCUMENT:
        case OTHER_PLACE:
            another(&x.d, what == OTHER_PLACE);
            break;
        case OTHER_SECRET:
            x.secret = "Hush";
            break;
        case NO_SECRET: /* it is asked about, not given up */
            x.secret = NULL;
            break;
        case ASKED_ABOUT:
            x.d.sent.settled = true;
            break;
        case SEEN:
            seen.key = x.d.key;
            x.d.seen = seen;
            x.d.has_seen = true;
            break;
        case NOT_WANTED: /* it is asked to end: never an order after that */
            assert_int_equal(kit_run(&x.kit, "w", 1, 1, STEP_QUIESCE).code, 0);
            x.brain.root = x.kit.root;
            (void)object_unref(x.d.o);
            x.d.o = object_ref(kit_get(&x.kit, "w"));
            break;
        default:
            fail();
        }
        driver_call(&x.d, &x.site, CALL_FIND);
        if (x.submits != 1 || x.finds != 1)
            fail_msg("change %d: %u orders, %u finds", what, x.submits, x.finds);
        assert_true(x.d.sent.settled);
        world_fini(&x);
    }
}

/* In reach, and a part of it is away: each find is answered at once with "unknown". What follows
 * from that is judged then and there, and not after a pause that grows with each answer. */
static void test_what_stays_unknown_is_judged_at_once(void **state)
{
    struct observation seen = {.state = RUN_UNKNOWN};
    struct world x;

    (void)state;
    ordered(&x);
    answer(&x, OUT_UNKNOWN, NULL);
    seen.key = x.d.key;
    x.d.seen = seen;
    x.d.has_seen = true;
    x.d.untold_since_ms = loop_now_ms(x.brain.loop) - site_suspect_after(&x.site);
    driver_call(&x.d, &x.site, CALL_FIND);
    uint64_t pause = x.d.backoff_ms;
    x.d.call.call.done(&x.d.call.call, OUT_DONE, &seen, NULL);
    assert_int_equal(x.d.untold_asked_ms, 0); /* it is not Unknown yet: asked after a pause */
    assert_true(x.d.backoff_ms > pause);
    assert_int_equal(kit_run(&x.kit, "w", 1, 1, STEP_UNKNOWN).code, 0);
    x.brain.root = x.kit.root;
    (void)object_unref(x.d.o);
    x.d.o = object_ref(kit_get(&x.kit, "w"));
    driver_call(&x.d, &x.site, CALL_FIND);
    assert_int_equal(x.finds, 2);
    pause = x.d.backoff_ms;
    x.d.call.call.done(&x.d.call.call, OUT_DONE, &seen, NULL);
    assert_true(x.d.untold_asked_ms > 0);
    assert_int_equal(x.d.backoff_ms, pause);
    assert_true(timer_active(&x.d.again));
    driver_tick(&x.d);
    assert_int_equal(x.finds, 2); /* not asked again in the same breath */
    x.d.untold_asked_ms -= 5000;
    driver_tick(&x.d);
    assert_int_equal(x.finds, 3);
    world_fini(&x);
}

/* What no document shows counts, too: a Secret that is another one by now makes another order. */
static void test_all_of_it_is_the_same(void **state)
{
    const char *env[] = {"A=hush", NULL}, *other[] = {"A=Hush", NULL};
    const char *two[] = {"A=", "hush", NULL};
    struct world x;
    struct run_order o, again;

    (void)state;
    ordered(&x);
    order_stage(&x.site, x.d.o, object_as(x.d.o, workload)->status->placement, &x.d.key, x.kit.a,
                &o);
    o.env = env;
    x.d.sent = (struct order_sent){0};
    order_note(&x.d.sent, &o, &x.site);
    again = o;
    assert_true(order_same(&x.d.sent, &again));
    again.env = other;
    assert_false(order_same(&x.d.sent, &again));
    again.env = two;
    assert_false(order_same(&x.d.sent, &again));
    again = o;
    again.key.try_++;
    assert_false(order_same(&x.d.sent, &again));
    again = o;
    again.lease_ms++;
    assert_false(order_same(&x.d.sent, &again));
    world_fini(&x);
}

/* The first one may have run, and have ended: what refuses the second one proves nothing. */
static void test_a_refusal_of_the_second_says_nothing_of_the_first(void **state)
{
    struct world x;
    struct err err;

    (void)state;
    ordered(&x);
    answer(&x, OUT_UNKNOWN, NULL);
    driver_tick(&x.d);
    assert_int_equal(x.submits, 2);
    (void)err_set(&err, E_STALE, "this key was given up");
    x.d.call.call.refused = (struct refusal){.class_ = REFUSED_CONFLICT, .scope = BLAMES_WORKLOAD};
    x.d.call.call.done(&x.d.call.call, OUT_REJECTED, NULL, &err);
    assert_int_equal(kit_phase(&x.kit, x.kit.ns, "w"), PHASE_DISPATCHING); /* not given up */
    driver_tick(&x.d);
    assert_int_equal(x.submits, 2);
    assert_int_equal(x.finds, 1);
    world_fini(&x);
}

/* Its target fell silent before the order left, was asked when it came back, and the log lets it
 * live again: by then it is known there, as absent if nothing else. */
static void test_no_first_order_after_a_question(void **state)
{
    struct world x;
    struct err err;

    (void)state;
    ordered(&x);
    x.memory = "";
    answer(&x, OUT_UNKNOWN, NULL);
    x.d.own_epoch = x.d.own_try = 1; /* as if it had not left */
    driver_call(&x.d, &x.site, CALL_FIND);
    (void)err_set(&err, E_UNKNOWN, "no answer");
    x.d.call.call.done(&x.d.call.call, OUT_UNKNOWN, NULL, &err);
    driver_tick(&x.d);
    assert_int_equal(x.submits, 1);
    assert_int_equal(x.finds, 2);
    world_fini(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_order_where_it_is_the_same_run),
        cmocka_unit_test(test_within_bounds),
        cmocka_unit_test(test_find_wherever_something_differs),
        cmocka_unit_test(test_what_stays_unknown_is_judged_at_once),
        cmocka_unit_test(test_all_of_it_is_the_same),
        cmocka_unit_test(test_a_refusal_of_the_second_says_nothing_of_the_first),
        cmocka_unit_test(test_no_first_order_after_a_question),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
