/* Three members over TLS on one machine: replication, forwarding, failover, identity,
 * membership. */
#include "tests/support/raft/core_rig.h"

static void start_three(struct rig *r)
{
    rig_create(r, 3);
    for (unsigned id = 1; id <= 3; id++)
        rig_start(r, id);
    rig_wait_for(r, rig_has_leader, r);
}

struct seen {
    struct rig *r;
    unsigned id;
    const char *name;
};
static bool is_seen(void *arg)
{
    struct seen *s = arg;

    return rig_has(s->r, s->id, s->name);
}
static void wait_seen(struct rig *r, unsigned id, const char *name)
{
    struct seen s = {r, id, name};

    rig_wait_for(r, is_seen, &s);
}

static unsigned follower(struct rig *r)
{
    return rig_leader(r) % 3 + 1;
}

static void test_replicates_and_forwards(void **state)
{
    struct rig r;
    struct core_status a, b;

    (void)state;
    start_three(&r);
    for (unsigned i = 0; i < 30; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "w-%u", i);
        assert_int_equal(rig_write(&r, i % 3 + 1, name), 0);
        assert_true(rig_has(&r, i % 3 + 1, name)); /* applied here when the answer comes */
        assert_int_equal(rig_read_at(&r, (i + 1) % 3 + 1), 0);
        assert_true(
            rig_has(&r, (i + 1) % 3 + 1, name)); /* a linearizable read sees it on another */
    }
    for (unsigned id = 1; id <= 3; id++)
        wait_seen(&r, id, "w-29");
    core_status(r.m[rig_leader(&r)].core, &a);
    core_status(r.m[follower(&r)].core, &b);
    assert_int_equal(a.voters, 3);
    assert_int_equal(b.leader_id, a.id);
    rig_destroy(&r);
}

static void test_leader_lost(void **state)
{
    struct rig r;
    unsigned old;
    uint64_t began;

    (void)state;
    start_three(&r);
    assert_int_equal(rig_write(&r, 1, "before"), 0);
    for (int i = 0; i < 2; i++) {
        struct rig_call call;
        char name[32];

        rig_wait_for(&r, rig_has_leader, &r);
        old = rig_leader(&r);
        (void)snprintf(name, sizeof name, "after-%d", i);
        core_close(r.m[old].core, rig_closed, &r.m[old]);
        r.m[old].core = NULL;
        began = loop_now_ms(r.loop);
        rig_propose(&r, old % 3 + 1, name, 10000, &call);
        rig_wait_for(&r, rig_done, &call);
        assert_int_equal(call.code, 0);
        (void)fprintf(stderr, "writes again after %u ms\n",
                      (unsigned)(loop_now_ms(r.loop) - began));
        assert_true(loop_now_ms(r.loop) - began < 2000);
        rig_wait_for(&r, rig_is_closed, &r.m[old]);
        char lock[300];
        (void)unlink(rig_path(&r, "d%u/lock", old, lock, sizeof lock));
        rig_start(&r, old);
        wait_seen(&r, old, name);
        wait_seen(&r, old, "before");
    }
    rig_destroy(&r);
}

static void test_no_majority(void **state)
{
    struct rig r;
    struct rig_call call, read = {0};
    unsigned left;

    (void)state;
    start_three(&r);
    assert_int_equal(rig_write(&r, 1, "before"), 0);
    left = rig_leader(&r);
    rig_stop(&r, left % 3 + 1);
    rig_stop(&r, (left + 1) % 3 + 1);
    core_read(r.m[left].core, r.loop, 700, rig_read, &read);
    rig_propose(&r, left, "lost", 700, &call);
    rig_wait_for(&r, rig_done, &call);
    rig_wait_for(&r, rig_done, &read);
    assert_true(call.code == E_UNKNOWN || call.code == E_UNAVAIL);
    assert_false(call.applied);
    assert_int_equal(read.code, E_UNAVAIL);
    rig_destroy(&r);
}

static void test_wrong_identity_is_refused(void **state)
{
    struct rig r;

    (void)state;
    rig_create(&r, 3);
    r.m[3].certificate = 4; /* signed by the same CA, another member's name */
    rig_start(&r, 1);
    rig_start(&r, 2);
    rig_start(&r, 3);
    rig_wait_for(&r, rig_has_leader, &r);
    assert_true(rig_leader(&r) != 3);
    for (int i = 0; i < 20; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "w-%d", i);
        assert_int_equal(rig_write(&r, 1, name), 0);
    }
    assert_false(rig_has(&r, 3, "w-0"));
    rig_stop(&r, 3);
    r.m[3].server = tls_config_unref(r.m[3].server);
    for (unsigned i = 0; i <= RIG_MAX; i++)
        r.m[3].client[i] = tls_config_unref(r.m[3].client[i]);
    r.m[3].certificate = 3;
    rig_start(&r, 3); /* as itself it is let in */
    wait_seen(&r, 3, "w-19");
    rig_destroy(&r);
}

static bool all_recorded(void *arg)
{
    struct rig *r = arg;
    struct member_info all[8];
    struct root *root = core_root(r->m[1].core);
    size_t n = root_members(root, all, 8);

    root_unref(root);
    return n == 4;
}

static void test_membership(void **state)
{
    struct rig r;
    struct core_status s;
    unsigned leader;

    (void)state;
    start_three(&r);
    assert_int_equal(rig_write(&r, 1, "before"), 0);
    rig_start(&r, 4); /* an empty directory and no peers: it waits to be taken in */
    assert_int_equal(rig_member_op(&r, follower(&r), MEMBER_JOIN, 4), 0);
    wait_seen(&r, 4, "before");
    assert_int_equal(rig_member_op(&r, 1, MEMBER_PROMOTE, 4), 0);
    core_status(r.m[rig_leader(&r)].core, &s);
    assert_int_equal(s.voters, 4);
    assert_int_equal(rig_write(&r, 4, "through-four"), 0);
    rig_wait_for(&r, all_recorded, &r);
    assert_int_equal(rig_member_op(&r, 2, MEMBER_TRANSFER, 4), 0);
    rig_wait_for(&r, rig_has_leader, &r);
    leader = rig_leader(&r);
    assert_int_equal(leader, 4);
    assert_int_equal(rig_member_op(&r, 2, MEMBER_REMOVE, 4), E_INVALID); /* not while it leads */
    assert_int_equal(rig_member_op(&r, 2, MEMBER_TRANSFER, 1), 0);
    assert_int_equal(rig_member_op(&r, 2, MEMBER_REMOVE, 4), 0);
    rig_stop(&r, 4);
    assert_int_equal(rig_write(&r, 2, "without-four"), 0);
    core_status(r.m[1].core, &s);
    assert_int_equal(s.voters, 3);
    rig_destroy(&r);
}

static bool rig_is_fatal(void *arg)
{
    return ((struct rig_member *)arg)->fatal;
}

/* As a bug in apply would: one object more than the others have. */
static void rig_diverge(struct core *c)
{
    AUTO_ARENA a = arena_create(0);
    union command *command = NULL;
    struct result result;
    struct root *after = NULL;
    struct err e = {0};
    struct buf b;

    rig_command("ghost", "ghost", &b);
    assert_int_equal(command_decode(slice_make(b.p, b.n), a, &command, &e), 0);
    store_try(c->root, 0, command, &result, &after);
    assert_int_equal(result.code, 0);
    core_publish_root(c, after);
    command_release(command);
    buf_fini(&b);
}

static void test_a_member_that_differs_stops(void **state)
{
    struct rig r;
    unsigned odd;
    struct core *c;

    (void)state;
    start_three(&r);
    assert_int_equal(rig_write(&r, 1, "a"), 0);
    odd = follower(&r);
    c = r.m[odd].core;
    rig_diverge(c);
    assert_int_equal(rig_write(&r, odd % 3 + 1, "seen-by-all"), 0);
    rig_wait_for(&r, rig_is_fatal, &r.m[odd]);
    for (unsigned id = 1; id <= 3; id++)
        assert_int_equal(r.m[id].fatal, id == odd);
    assert_int_equal(rig_write(&r, odd % 3 + 1, "b"), 0);
    rig_destroy(&r);
}

static void test_snapshot_reaches_a_member_that_was_away(void **state)
{
    struct rig r;

    (void)state;
    rig_create(&r, 3);
    for (unsigned id = 1; id <= 3; id++) {
        r.m[id].cfg.snapshot_threshold = 16;
        r.m[id].cfg.snapshot_trailing = 4;
        rig_start(&r, id);
    }
    rig_wait_for(&r, rig_has_leader, &r);
    assert_int_equal(rig_write(&r, 1, "first"), 0);
    rig_stop(&r, 3);
    for (int i = 0; i < 100; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "w-%d", i);
        assert_int_equal(rig_write(&r, (unsigned)i % 2 + 1, name), 0);
    }
    rig_start(&r, 3);
    wait_seen(&r, 3, "w-99");
    wait_seen(&r, 3, "w-0");
    assert_int_equal(rig_write(&r, 3, "last"), 0);
    rig_destroy(&r);
}

static bool is_fatal(void *arg)
{
    return ((struct rig_member *)arg)->fatal;
}

/* It was down when it was removed, and comes back: it is told, says so and ends, and the others'
 * leader stays as it is. */
static void test_a_removed_member_is_told(void **state)
{
    struct core_status before, after;
    struct rig r;

    (void)state;
    start_three(&r);
    assert_int_equal(rig_write(&r, 1, "before"), 0);
    unsigned gone = follower(&r), via = rig_leader(&r);
    rig_stop(&r, gone);
    assert_int_equal(rig_member_op(&r, via, MEMBER_REMOVE, gone), 0);
    core_status(r.m[via].core, &before);
    assert_int_equal(before.voters, 2);
    rig_start(&r, gone);
    rig_wait_for(&r, is_fatal, &r.m[gone]);
    struct core_alarm a[ALARM_NR];
    assert_int_equal(core_alarms(r.m[gone].core, a), 1);
    assert_int_equal(a[0].id, ALARM_REMOVED);
    assert_false(a[0].serves);
    assert_non_null(strstr(a[0].text, "was removed from its cluster"));
    core_status(r.m[via].core, &after);
    assert_true(after.leads && after.term == before.term);
    rig_stop(&r, gone);
    /* Another one of its number, taken in as the sentence says, is welcome. */
    struct err e = {0};
    assert_int_equal(file_remove(r.loop, r.m[gone].cfg.data_dir, &e), 0);
    r.m[gone].fatal = false;
    r.m[gone].cfg.bootstrap = false;
    r.m[gone].cfg.n_peers = 0;
    rig_start(&r, gone);
    assert_int_equal(rig_member_op(&r, via, MEMBER_JOIN, gone), 0);
    assert_int_equal(rig_member_op(&r, via, MEMBER_PROMOTE, gone), 0);
    wait_seen(&r, gone, "before");
    assert_false(r.m[gone].fatal);
    rig_destroy(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replicates_and_forwards),
        cmocka_unit_test(test_leader_lost),
        cmocka_unit_test(test_no_majority),
        cmocka_unit_test(test_wrong_identity_is_refused),
        cmocka_unit_test(test_membership),
        cmocka_unit_test(test_a_member_that_differs_stops),
        cmocka_unit_test(test_a_removed_member_is_told),
        cmocka_unit_test(test_snapshot_reaches_a_member_that_was_away),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
