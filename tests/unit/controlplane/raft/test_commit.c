/* The commit index: kept by followers, and told to who waits for it before the next heartbeat. */
#include "tests/support/raft/core_rig.h"

#define HEARTBEAT_MS 1000
#define ELECTION_MS 2500
#define WRITES 6

static void start_slow(struct rig *r)
{
    rig_create(r, 3);
    for (unsigned id = 1; id <= 3; id++) {
        r->m[id].cfg.heartbeat_ms = HEARTBEAT_MS;
        r->m[id].cfg.election_ms = ELECTION_MS;
        rig_start(r, id);
    }
    assert_true(rig_until(r, 10 * ELECTION_MS, rig_has_leader, r));
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static int by_size(const void *p, const void *q)
{
    uint64_t a = *(const uint64_t *)p, b = *(const uint64_t *)q;

    return (a > b) - (a < b);
}

/* The median of lone writes at member `id`, each some time after the last thing that happened. */
static uint64_t lone_writes_ms(struct rig *r, unsigned id, const char *what)
{
    uint64_t ms[WRITES];

    for (unsigned i = 0; i < WRITES; i++) {
        char name[64];

        (void)rig_until(r, 150 + i * 370 % HEARTBEAT_MS, never, NULL);
        (void)snprintf(name, sizeof name, "%s-%u", what, i);
        uint64_t began = loop_now_ms(r->loop);
        assert_int_equal(rig_write(r, id, name), 0);
        assert_true(rig_has(r, id, name));
        ms[i] = loop_now_ms(r->loop) - began;
    }
    qsort(ms, WRITES, sizeof *ms, by_size);
    return ms[WRITES / 2];
}

/* Neither waits for the leader's next heartbeat, which here takes a second or two. */
static void test_a_lone_write_waits_for_no_heartbeat(void **state)
{
    struct rig r;

    (void)state;
    start_slow(&r);
    unsigned leader = rig_leader(&r);
    assert_int_equal(rig_write(&r, leader, "first"), 0);
    assert_in_range(lone_writes_ms(&r, leader % 3 + 1, "follower"), 0, HEARTBEAT_MS / 3);
    assert_in_range(lone_writes_ms(&r, leader, "leader"), 0, HEARTBEAT_MS / 3);
    rig_destroy(&r);
}

static bool all_committed(void *arg)
{
    struct rig *r = arg;

    for (unsigned id = 1; id <= 3; id++)
        if (raft_commit_index(&r->m[id].core->raft) <
            raft_last_index(&r->m[rig_leader(r)].core->raft))
            return false;
    return true;
}

/* An AppendEntries that was late, and reaches less far than what is committed: libraft 0.22.1 would
 * take the follower's commit index back to where it ends. */
static void test_a_late_message_takes_nothing_back(void **state)
{
    struct rig r;
    char name[32];

    (void)state;
    rig_create(&r, 3);
    for (unsigned id = 1; id <= 3; id++)
        rig_start(&r, id);
    rig_wait_for(&r, rig_has_leader, &r);
    unsigned leader = rig_leader(&r);
    for (unsigned i = 0; i < 5; i++) {
        (void)snprintf(name, sizeof name, "w-%u", i);
        assert_int_equal(rig_write(&r, leader, name), 0);
    }
    rig_wait_for(&r, all_committed, &r);

    struct core *c = r.m[leader % 3 + 1].core;
    raft_index commit = raft_commit_index(&c->raft);
    struct raft_message late = {
        .type = RAFT_APPEND_ENTRIES,
        .server_id = leader,
        .server_address = r.m[leader].cfg.address,
        .append_entries = {.term = raft_current_term(&c->raft),
                           .prev_log_index = commit - 2,
                           .prev_log_term = core_term_of(&c->raft, commit - 2),
                           .leader_commit = commit + 1},
    };
    fsm_recv(c->io, &late);
    assert_int_equal(raft_commit_index(&c->raft), commit);
    assert_int_equal(rig_write(&r, leader % 3 + 1, "after"), 0);
    rig_destroy(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_lone_write_waits_for_no_heartbeat),
        cmocka_unit_test(test_a_late_message_takes_nothing_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
