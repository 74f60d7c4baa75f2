/* The end of a Target at which its connector keeps something: the finalizer that it gets once it is
 * reached, who may take it away, and what is told while it holds. The connector is scripted, the
 * clock is the test's, and the log is a kit that takes a command when the test says so. */
#include "controlplane/leader/drive/driver.h"
#include "controlplane/leader/keep/events.h"
#include "controlplane/leader/site/sites.h"
#include "controlplane/store/archive/archive.h"
#include "tests/support/store/store_kit.h"
#include "tests/support/web/still_loop.h"

#include <string.h>

static struct {
    unsigned n; /* proposed so far */
    union command *c;
    struct buf bytes;
    struct arena *a;
    propose_cb cb;
    void *arg;
    unsigned told; /* Events */
    char reason[64], text[512];
} log_;

void brain_propose(struct brain *b, const union command *c, propose_cb cb, void *arg)
{
    struct err err;

    (void)b;
    assert_null(log_.cb); /* one at a time */
    buf_reset(&log_.bytes);
    command_encode(c, &log_.bytes);
    assert_int_equal(command_decode(slice_make(log_.bytes.p, log_.bytes.n), log_.a, &log_.c, &err),
                     0);
    log_.n++;
    log_.cb = cb;
    log_.arg = arg;
}
void brain_request_id(struct brain *b, char out[REQUEST_ID_MAX])
{
    (void)b;
    (void)snprintf(out, REQUEST_ID_MAX, "leave-%u", log_.n);
}
void events_of_target(struct brain *b, const struct object *target, const char *reason,
                      const char *why)
{
    (void)b;
    assert_string_equal(target->meta->name, "fra");
    log_.told++;
    str_copy(log_.reason, sizeof log_.reason, reason);
    str_copy(log_.text, sizeof log_.text, why);
}

struct world {
    struct kit kit;
    struct brain brain;
    struct site site;
    struct connector connector;
    struct call *asked; /* to leave; NULL: not, or answered */
    unsigned n_asked;
};

static void leave(struct connector *c, struct call *call)
{
    struct world *x = container_of(c, struct world, connector);

    assert_null(x->asked);
    x->asked = call;
    x->n_asked++;
}
static const struct connector_ops leaves = {.leave = leave}, leaves_nothing = {.leave = NULL};

static void follow(struct brain *b)
{
    (void)b;
}

/* The site hears of what the state has. */
static const struct object *now(struct world *x)
{
    const struct object *o = root_get(x->kit.root, KIND_TARGET, "", "fra");

    x->brain.root = x->kit.root;
    if (x->site.doc)
        x->site.doc = object_unref(x->site.doc);
    if (o)
        x->site.doc = object_ref(o);
    x->site.gone = !o;
    return o;
}

static void made(struct world *x)
{
    struct target *t = arena_new(x->kit.a, struct target);

    t->spec = arena_new(x->kit.a, struct target_spec);
    t->spec->type = TARGET_AGENT;
    t->spec->tier = TIER_HUB;
    assert_int_equal(kit_create(&x->kit, KIND_TARGET, "", "fra", t).code, 0);
    (void)now(x);
}

/* Its timer is the test's: site_leave_look is called when that likes. */
static void renewed(void *arg)
{
    ((struct site *)arg)->renewals++;
}

static int setup(void **state)
{
    struct world *x = mem_new(struct world);

    memset(&log_, 0, sizeof log_);
    log_.a = arena_create(0);
    buf_init(&log_.bytes, LIMIT_COMMAND_MAX_BYTES);
    x->kit = (struct kit){.a = arena_create(0), .root = root_create(), .now = 3600000};
    kit_level_set(&x->kit, FEATURE_LEVEL);
    assert_true(root_feature_level(x->kit.root) >= FEATURE_TELLS);
    x->connector.ops = &leaves;
    x->brain.leads = true;
    x->brain.follow = follow;
    x->brain.loop = still_loop_create(7);
    still_loop_run(x->brain.loop, 1000);
    x->site.brain = &x->brain;
    x->site.connector = &x->connector;
    x->site.reachable = true;
    str_copy(x->site.name, sizeof x->site.name, "fra");
    list_init(&x->site.drivers);
    timer_init(&x->site.renew, x->brain.loop, renewed, &x->site);
    made(x);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct world *x = *state;

    timer_stop(&x->site.renew);
    (void)object_unref(x->site.doc);
    (void)root_unref(x->kit.root);
    (void)arena_destroy(x->kit.a);
    (void)arena_destroy(log_.a);
    buf_fini(&log_.bytes);
    (void)still_loop_destroy(x->brain.loop);
    mem_free(x);
    return 0;
}

static void look_after(struct world *x, uint64_t ms)
{
    (void)now(x);
    still_loop_run(x->brain.loop, ms);
    site_leave_look(&x->site);
}

/* What was proposed comes into the log. */
static struct result taken(struct world *x)
{
    propose_cb cb = log_.cb;

    assert_non_null(cb);
    struct result r = kit_apply(&x->kit, log_.c);
    command_release(log_.c);
    log_.cb = NULL;
    (void)now(x);
    cb(log_.arg, &r, NULL);
    return r;
}

static void answer(struct world *x, enum outcome out, const char *why)
{
    struct call *call = x->asked;
    struct err err;

    assert_non_null(call);
    x->asked = NULL;
    (void)err_set(&err, E_CONFLICT, "%s", why);
    call->done(call, out, NULL, out == OUT_DONE ? NULL : &err);
}

static bool is_kept(struct world *x)
{
    const struct object *o = now(x);

    return o && meta_finalizer(o->meta, TARGET_FINALIZER);
}

/* What it was made of goes with it, a part with each entry. */
static bool is_gone(struct world *x)
{
    union command c = {
        .collect = {.head = {.type = CMD_COLLECT}, .objects = 256, .bytes = 1 << 20}};

    for (unsigned i = 0; i < 4 && now(x); i++)
        (void)kit_apply(&x->kit, &c);
    return !now(x);
}

static bool is_told(const char *reason, const char *text)
{
    return strcmp(log_.reason, reason) == 0 && strstr(log_.text, text);
}

static void reached_and_deleted(struct world *x)
{
    look_after(x, 1000);
    assert_int_equal(taken(x).code, 0);
    assert_true(is_kept(x));
    assert_int_equal(kit_delete(&x->kit, KIND_TARGET, "", "fra").code, 0);
    assert_true(is_kept(x));
}

/* As people write it: without the finalizer. */
static struct result written(struct world *x, const char *annotation)
{
    struct target *t = object_edit_as(now(x), target, x->kit.a);

    t->metadata->n_finalizers = 0;
    if (*annotation) {
        t->metadata->annotations = arena_new(x->kit.a, struct kv);
        t->metadata->annotations[0] = (struct kv){annotation, "true"};
        t->metadata->n_annotations = 1;
    }
    if (*annotation)
        t->metadata->n_finalizers = 1; /* hanse delete says only that */
    return kit_update(&x->kit, KIND_TARGET, "", "fra", t, 0, false);
}

/* ---- the finalizer ---- */
static void one_that_is_reached_is_kept(void **state)
{
    struct world *x = *state;

    x->site.reachable = false;
    look_after(x, 1000);
    x->site.reachable = true;
    x->connector.ops = &leaves_nothing;
    look_after(x, 1000);
    x->connector.ops = &leaves;
    x->brain.leads = false;
    look_after(x, 1000);
    x->brain.leads = true;
    x->brain.in_doubt = true;
    look_after(x, 1000);
    x->brain.in_doubt = false;
    assert_int_equal(log_.n, 0);
    look_after(x, 1000);
    assert_int_equal(log_.n, 1);
    look_after(x, 1000); /* it is under way */
    assert_int_equal(log_.n, 1);
    assert_int_equal(taken(x).code, 0);
    assert_true(is_kept(x));
    look_after(x, 60000);
    assert_int_equal(log_.n, 1);
    assert_int_equal(x->n_asked, 0);
}

static void members_of_older_versions_keep_none(void **state)
{
    struct world *x = *state;

    (void)root_unref(x->kit.root);
    x->kit.root = root_create();
    kit_level_set(&x->kit, FEATURE_TELLS - 1);
    made(x);
    look_after(x, 1000);
    assert_int_equal(log_.n, 0);
    assert_int_equal(kit_delete(&x->kit, KIND_TARGET, "", "fra").code, 0);
    assert_true(is_gone(x));
}

static void who_applies_it_again_keeps_it(void **state)
{
    struct world *x = *state;

    look_after(x, 1000);
    (void)taken(x);
    assert_int_equal(written(x, "").code, 0);
    assert_true(is_kept(x));
    kit_reload(&x->kit);
    assert_true(is_kept(x));
}

/* It is the way out that needs nobody's help. */
static void who_deleted_it_may_take_it_away(void **state)
{
    struct world *x = *state;

    reached_and_deleted(x);
    assert_int_equal(written(x, "").code, 0);
    assert_true(is_gone(x));
}

static void what_was_refused_is_written_later(void **state)
{
    struct world *x = *state;

    look_after(x, 1000);
    struct target *t = object_edit_as(now(x), target, x->kit.a);
    t->spec->unschedulable = true; /* somebody wrote it meanwhile */
    assert_int_equal(kit_update(&x->kit, KIND_TARGET, "", "fra", t, 0, false).code, 0);
    assert_int_not_equal(taken(x).code, 0);
    look_after(x, 1000);
    assert_int_equal(log_.n, 1);
    look_after(x, 5000);
    assert_int_equal(log_.n, 2);
    assert_int_equal(taken(x).code, 0);
    assert_true(is_kept(x));
    assert_true(object_as(now(x), target)->spec->unschedulable);
}

/* ---- its end ---- */
static void nothing_is_asked_while_work_is_held(void **state)
{
    struct world *x = *state;
    struct workload w = {.metadata = &(struct meta){.name = "train", .namespace_ = "default"},
                         .status = &(struct workload_status){.phase = PHASE_RUNNING}};
    struct object *o = object_make(kind_by_id(KIND_WORKLOAD), &w);
    struct driver d = {.brain = &x->brain, .ns = "default", .name = "train", .o = o};

    reached_and_deleted(x);
    list_push(&x->site.drivers, &d.seat);
    look_after(x, 1000);
    assert_int_equal(x->n_asked, 0);
    assert_int_equal(log_.told, 1);
    assert_true(is_told("DeletionWaits", "default/train (Running)"));
    assert_true(is_told("DeletionWaits", "hanse fence WORKLOAD --yes"));
    look_after(x, 10000); /* said before */
    assert_int_equal(log_.told, 1);
    look_after(x, 600000);
    assert_int_equal(log_.told, 2);
    list_remove(&d.seat);
    (void)object_unref(o);
    look_after(x, 1000);
    assert_int_equal(x->n_asked, 1);
    assert_true(is_kept(x));
    answer(x, OUT_DONE, "");
    assert_int_equal(taken(x).code, 0);
    assert_true(is_gone(x));
}

static void what_is_left_is_told_and_asked_about_again(void **state)
{
    struct world *x = *state;

    reached_and_deleted(x);
    look_after(x, 1000);
    look_after(x, 20000); /* it is asked still */
    assert_int_equal(x->n_asked, 1);
    answer(x, OUT_REJECTED, "2 Jobs are there");
    assert_true(is_told("DeletionWaits", "2 Jobs are there"));
    assert_true(is_told("DeletionWaits", "hanse delete target NAME --leave-behind"));
    look_after(x, 500);
    assert_int_equal(x->n_asked, 1);
    still_loop_run(x->brain.loop, 1500);
    assert_int_equal(x->site.renewals, 1); /* it is looked at soon */
    look_after(x, 0);
    assert_int_equal(x->n_asked, 2);
    answer(x, OUT_UNKNOWN, "no answer");
    look_after(x, 1000);
    answer(x, OUT_REJECTED, "2 Jobs are there");
    look_after(x, 60000); /* less often after a minute */
    answer(x, OUT_REJECTED, "2 Jobs are there");
    look_after(x, 4000);
    assert_int_equal(x->n_asked, 4);
    look_after(x, 1000);
    assert_int_equal(x->n_asked, 5);
    assert_true(is_kept(x));
    assert_null(log_.cb);
    answer(x, OUT_DONE, "");
    assert_int_equal(taken(x).code, 0);
    assert_true(is_gone(x));
}

static void one_that_is_out_of_reach_is_told(void **state)
{
    struct world *x = *state;

    reached_and_deleted(x);
    x->site.reachable = false;
    str_copy(x->site.why, sizeof x->site.why, "no route to it");
    look_after(x, 1000); /* a new leader has not tried yet */
    assert_int_equal(log_.told, 0);
    x->site.last_contact_ms = loop_now_ms(x->brain.loop);
    look_after(x, 1000);
    assert_true(is_told("DeletionWaits", "out of reach (no route to it)"));
    assert_true(is_told("DeletionWaits", "--leave-behind"));
    look_after(x, 300000);
    assert_true(is_kept(x));
    assert_null(log_.cb);
    x->site.reachable = true;
    look_after(x, 5000);
    answer(x, OUT_DONE, "");
    (void)taken(x);
    assert_true(is_gone(x));
}

/* A cluster that is gone for good, and one at which something does not go. */
static void who_gives_up_gets_rid_of_it(void **state)
{
    struct world *x = *state;

    reached_and_deleted(x);
    x->site.reachable = false;
    x->site.last_contact_ms = 1;
    str_copy(x->site.why, sizeof x->site.why, "no route to it");
    look_after(x, 1000);
    assert_int_equal(written(x, LEAVE_BEHIND_ANNOTATION).code, 0);
    assert_true(is_kept(x));
    look_after(x, 30000); /* it may come back */
    assert_true(is_told("DeletionWaits", "no route"));
    look_after(x, 30000);
    assert_true(is_told("LeftBehind", "no route to it"));
    assert_int_equal(taken(x).code, 0);
    assert_true(is_gone(x));
    made(x);
    x->site.reachable = true;
    x->site.leave_since_ms = x->site.leave_again_ms = 0;
    reached_and_deleted(x);
    assert_int_equal(written(x, LEAVE_BEHIND_ANNOTATION).code, 0);
    look_after(x, 1000);
    answer(x, OUT_REJECTED, "it may not patch namespaces");
    assert_true(is_told("DeletionWaits", "patch"));
    look_after(x, 60000);
    answer(x, OUT_REJECTED, "it may not patch namespaces");
    assert_true(is_told("LeftBehind", "it may not patch namespaces"));
    (void)taken(x);
    assert_true(is_gone(x));
}

static void one_that_keeps_nothing_goes(void **state)
{
    struct world *x = *state;

    reached_and_deleted(x);
    x->connector.ops = &leaves_nothing;
    look_after(x, 1000);
    assert_int_equal(taken(x).code, 0);
    assert_true(is_gone(x));
    assert_int_equal(x->n_asked, 0);
}

/* Nothing that was said of the one is done to the other. */
static void another_one_of_the_same_name(void **state)
{
    struct world *x = *state;

    reached_and_deleted(x);
    look_after(x, 1000);
    answer(x, OUT_DONE, "");
    assert_int_equal(written(x, "").code, 0); /* ahead of the leader's */
    assert_true(is_gone(x));
    made(x);
    struct target *t = object_edit_as(now(x), target, x->kit.a);
    t->metadata->finalizers = arena_array(x->kit.a, const char *, 1);
    t->metadata->finalizers[0] = TARGET_FINALIZER;
    t->metadata->n_finalizers = 1;
    assert_int_equal(kit_update(&x->kit, KIND_TARGET, "", "fra", t, 0, false).code, 0);
    assert_int_not_equal(taken(x).code, 0);
    assert_true(is_kept(x));
}

/* A connector that is gone tells nothing any more. */
static void an_answer_may_come_late(void **state)
{
    struct world *x = *state;

    reached_and_deleted(x);
    look_after(x, 1000);
    x->brain.leads = false;
    answer(x, OUT_DONE, "");
    look_after(x, 5000);
    assert_null(log_.cb);
    assert_int_equal(log_.told, 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {T(one_that_is_reached_is_kept),
                                       T(members_of_older_versions_keep_none),
                                       T(who_applies_it_again_keeps_it),
                                       T(who_deleted_it_may_take_it_away),
                                       T(what_was_refused_is_written_later),
                                       T(nothing_is_asked_while_work_is_held),
                                       T(what_is_left_is_told_and_asked_about_again),
                                       T(one_that_is_out_of_reach_is_told),
                                       T(who_gives_up_gets_rid_of_it),
                                       T(one_that_keeps_nothing_goes),
                                       T(another_one_of_the_same_name),
                                       T(an_answer_may_come_late)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
