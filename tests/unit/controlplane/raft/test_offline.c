/* A member's data directory offline: taken with all of its log, made anew for one member.
 * Members of the old log are refused, told so, and stop, also where they are a majority among
 * themselves. */
#include "tests/support/raft/core_rig.h"

#include "api/base/cluster.h"

#define rig_patient(r, cond, arg) assert_true(rig_until((r), 60000, (cond), (arg)))

static bool all_know(void *arg)
{
    struct rig *r = arg;
    struct core_status s;
    uint64_t index = 0;

    for (unsigned id = 1; id <= r->n; id++) {
        if (!r->m[id].core)
            continue;
        core_status(r->m[id].core, &s);
        if (!s.ready || (index && s.index != index))
            return false;
        index = s.index;
        struct root *root = core_root(r->m[id].core);
        bool named = *root_cluster_uid(root) && root_count(root, KIND_NAMESPACE) >= 20;
        struct member_info all[8];
        size_t members = root_members(root, all, 8);
        (void)root_unref(root);
        if (!named || members != r->n)
            return false;
    }
    return true;
}

static void three_with_twenty(struct rig *r)
{
    rig_create(r, 3);
    for (unsigned id = 1; id <= 3; id++) {
        r->m[id].cfg.snapshot_threshold = 8; /* some of it in a snapshot, some in the log */
        rig_start(r, id);
    }
    rig_patient(r, rig_has_leader, r);
    for (unsigned i = 0; i < 20; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "n%02u", i);
        assert_int_equal(rig_write(r, rig_leader(r), name), 0);
    }
    rig_patient(r, all_know, r);
}

static void stop_all(struct rig *r)
{
    for (unsigned id = 1; id <= 3; id++)
        rig_stop(r, id);
}

static void unlock(const char *dir) /* as if this process had ended */
{
    char lock[1100];

    (void)snprintf(lock, sizeof lock, "%s/lock", dir);
    (void)unlink(lock);
}

static void begin_anew(struct rig *r, unsigned id, const char *dir)
{
    struct core_taken t = {0};
    struct err e = {0};

    if (core_offline_take(r->loop, r->m[id].cfg.data_dir, &t, &e))
        fail_msg("%s", e.text);
    unlock(r->m[id].cfg.data_dir);
    struct store_anew how = {.term = t.term + 1,
                             .member = {.id = id, .feature_level = FEATURE_LEVEL}};
    struct core_made made = {.member = id, .address = r->m[id].cfg.address};
    cluster_begin_anew(root_cluster_uid(t.root), 1750000000000, 7, how.cluster_uid);
    assert_int_equal(store_begin_anew(&t.root, &how, NULL, &e), 0);
    made.root = t.root;
    if (core_offline_make(r->loop, dir, &made, &e))
        fail_msg("%s", e.text);
    unlock(dir);
    assert_int_equal(core_offline_make(r->loop, dir, &made, &e), E_EXISTS); /* never over another */
    unlock(dir);
    (void)root_unref(t.root);
    str_copy(r->m[id].cfg.data_dir, sizeof r->m[id].cfg.data_dir, dir);
    r->m[id].cfg.bootstrap = false;
}

static void test_what_a_directory_holds(void **state)
{
    struct core_taken t = {0};
    struct rig r;
    struct err e = {0};

    (void)state;
    three_with_twenty(&r);
    struct root *root = core_root(r.m[1].core);
    uint64_t digest = root_digest(root), number = root_number(root);
    (void)root_unref(root);
    assert_int_equal(core_offline_take(r.loop, r.m[2].cfg.data_dir, &t, &e), E_BUSY);
    stop_all(&r);
    for (unsigned id = 1; id <= 3; id++) {
        if (core_offline_take(r.loop, r.m[id].cfg.data_dir, &t, &e))
            fail_msg("%s", e.text);
        assert_true(root_digest(t.root) == digest && root_number(t.root) == number);
        assert_int_equal(t.member, id);
        /* The newest write of a namespace may be in nobody else's log; what was before it is. */
        assert_true(t.known > 0 && t.known <= root_rv(t.root));
        (void)root_unref(t.root);
        unlock(r.m[id].cfg.data_dir);
    }
    assert_int_equal(core_offline_take(r.loop, r.dir, &t, &e), E_NOTFOUND);
    for (unsigned id = 1; id <= 3; id++) /* reading has harmed nothing */
        rig_start(&r, id);
    rig_patient(&r, rig_has_leader, &r);
    assert_int_equal(rig_write(&r, rig_leader(&r), "more"), 0);
    rig_destroy(&r);
}

static bool two_leads(void *arg)
{
    return rig_leader(arg) == 2;
}
static bool old_ones_stopped(void *arg)
{
    struct rig *r = arg;

    return r->m[1].fatal && r->m[3].fatal;
}
static bool old_ones_lead(void *arg)
{
    unsigned id = rig_leader(arg);

    return id == 1 || id == 3;
}

static void test_the_old_ones_are_left_behind(void **state)
{
    char dir[256];
    struct rig r;
    struct core_status s;

    (void)state;
    three_with_twenty(&r);
    stop_all(&r);
    begin_anew(&r, 2, rig_path(&r, "anew%u", 2, dir, sizeof dir));
    /* Two of three: they lead, as long as they know no better. */
    rig_start(&r, 1);
    rig_start(&r, 3);
    rig_patient(&r, old_ones_lead, &r);
    rig_start(&r, 2);
    rig_patient(&r, old_ones_stopped, &r);
    rig_patient(&r, two_leads, &r);
    core_status(r.m[2].core, &s);
    assert_int_equal(s.voters, 1);
    assert_int_equal(rig_write(&r, 2, "after"), 0);
    assert_true(rig_has(&r, 2, "n19"));
    struct root *root = core_root(r.m[2].core);
    assert_true(strstr(root_cluster_uid(root), ".1750000000.00000007") && root_recovering(root));
    (void)root_unref(root);
    assert_false(r.m[2].fatal);

    /* A member joins with an empty directory, and is of the new log from then on. */
    rig_stop(&r, 3);
    r.m[3].fatal = false;
    r.m[3].cfg.bootstrap = false;
    r.m[3].cfg.n_peers = 0;
    rig_path(&r, "fresh%u", 3, r.m[3].cfg.data_dir, sizeof r.m[3].cfg.data_dir);
    rig_start(&r, 3);
    struct rig_call call = {0};
    core_member(r.m[2].core, r.loop, MEMBER_JOIN, &r.peers[2], 30000, rig_read, &call);
    rig_patient(&r, rig_done, &call);
    assert_int_equal(call.code, 0);
    call = (struct rig_call){0};
    core_member(r.m[2].core, r.loop, MEMBER_PROMOTE, &r.peers[2], 30000, rig_read, &call);
    rig_patient(&r, rig_done, &call);
    assert_int_equal(call.code, 0);
    assert_int_equal(rig_write(&r, 2, "later"), 0);
    rig_destroy(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_a_directory_holds),
                                       cmocka_unit_test(test_the_old_ones_are_left_behind)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
