/* Entries that no member can apply: of a newer version, damaged. Members stop there and stay up;
 * all of them step over it by the same act, and go on as one; who steps over something else is
 * refused; who did not step over it, and could apply it, is found out. */
#include "tests/support/raft/core_rig.h"

#include "controlplane/store/store_internal.h"

/* Elections of a busy machine. */
#define rig_patient(r, cond, arg) assert_true(rig_until((r), 60000, (cond), (arg)))

static bool all_stopped(void *arg)
{
    struct core_alarm a[ALARM_NR];
    struct rig *r = arg;

    for (unsigned id = 1; id <= r->n; id++)
        if (!r->m[id].core || core_alarms(r->m[id].core, a) != 1 || a[0].id != ALARM_APPLY)
            return false;
    return true;
}

static void planted_done(struct raft_apply *req, int status, void *result)
{
    (void)status;
    (void)result;
    mem_free(req);
}

/* Into the leader's log, past all that keeps such an entry out of it. */
static void plant(struct rig *r, bool newer)
{
    struct core *c = r->m[rig_leader(r)].core;
    struct raft_apply *req = mem_new(struct raft_apply);
    struct raft_buffer b;
    AUTO_BUF entry;

    buf_init(&entry, 4096);
    entry_begin(&entry, &(struct entry_head){root_number(c->root) + 1, c->lead_term, 1});
    entry_add(&entry, slice_make("\x4d\x01", 2)); /* command type 77 */
    entry_end(&entry);
    if (!newer)
        entry.p[entry.n - 1] ^= 1;
    b = (struct raft_buffer){raft_malloc(entry.n), entry.n};
    memcpy(b.base, entry.p, entry.n);
    assert_int_equal(raft_apply(&c->raft, req, &b, 1, planted_done), 0);
}

static void checksum_seen(struct rig *r, unsigned id, struct entry_skip *ret, const char *word)
{
    struct core_alarm a[ALARM_NR];
    unsigned long long index;

    assert_int_equal(core_alarms(r->m[id].core, a), 1);
    assert_false(a[0].serves);
    if (!strstr(a[0].text, word))
        fail_msg("%s", a[0].text);
    assert_null(strstr(a[0].text, "wipe"));
    const char *at = strstr(a[0].text, "checksum ");
    assert_non_null(at);
    assert_int_equal(sscanf(a[0].text, "stopped at entry %llu", &index), 1);
    *ret = (struct entry_skip){.index = index, .by = "alice", .reason = "a test", .at = "today"};
    memcpy(ret->checksum, at + strlen("checksum "), ENTRY_CHECKSUM_MAX - 1);
}

static bool event_each(const struct object *o, void *arg)
{
    *(unsigned *)arg += strcmp(object_as(o, event)->reason, "EntrySkipped") == 0;
    return true;
}

static unsigned events(struct rig *r, unsigned id)
{
    struct root *root = core_root(r->m[id].core);
    unsigned n = 0;

    root_scan(root, KIND_EVENT, "hanse-system", NULL, NULL, event_each, &n);
    (void)root_unref(root);
    return n;
}

static bool same_digest(void *arg)
{
    struct rig *r = arg;
    struct core_status s[4];

    for (unsigned id = 1; id <= r->n; id++) {
        if (!r->m[id].core)
            return false;
        core_status(r->m[id].core, &s[id]);
        if (s[id].digest != s[1].digest || !s[id].ready)
            return false;
    }
    return true;
}

static void step_over(bool newer, const char *word)
{
    struct entry_skip act, other;
    char dir[300];
    struct err e = {0};
    struct rig r;

    rig_create(&r, 3);
    for (unsigned id = 1; id <= 3; id++)
        rig_start(&r, id);
    rig_patient(&r, rig_has_leader, &r);
    assert_int_equal(rig_write(&r, 1, "before"), 0);
    plant(&r, newer);
    rig_patient(&r, all_stopped, &r);
    for (unsigned id = 1; id <= 3; id++)
        assert_false(r.m[id].fatal); /* the process goes on */
    assert_int_equal(rig_write(&r, 2, "refused"), E_UNAVAIL);
    checksum_seen(&r, 1, &act, word);

    /* again at the same place, and no worse, after a restart */
    for (unsigned id = 1; id <= 3; id++)
        rig_stop(&r, id);
    for (unsigned id = 1; id <= 3; id++)
        rig_start(&r, id);
    rig_patient(&r, all_stopped, &r);
    for (unsigned id = 1; id <= 3; id++)
        rig_stop(&r, id);

    other = act;
    other.checksum[0] = other.checksum[0] == '0' ? '1' : '0';
    rig_path(&r, "d%u", 1, dir, sizeof dir);
    assert_int_equal(core_skip_entry(r.loop, dir, &other, &e), E_CONFLICT);
    other = act;
    other.index++;
    assert_int_equal(core_skip_entry(r.loop, dir, &other, &e), E_CONFLICT);
    for (unsigned id = 1; id <= 3; id++) {
        rig_path(&r, "d%u", id, dir, sizeof dir);
        assert_int_equal(core_skip_entry(r.loop, dir, &act, &e), 0);
        rig_start(&r, id);
    }
    rig_patient(&r, rig_has_leader, &r);
    assert_int_equal(rig_write(&r, 3, "after"), 0);
    rig_patient(&r, same_digest, &r);
    for (unsigned id = 1; id <= 3; id++) {
        assert_true(rig_has(&r, id, "before") && rig_has(&r, id, "after"));
        assert_int_equal(events(&r, id), 1);
    }
    /* and it is in the state: the file may go, once a snapshot has it; a restart takes it again */
    for (unsigned id = 1; id <= 3; id++)
        rig_stop(&r, id);
    for (unsigned id = 1; id <= 3; id++)
        rig_start(&r, id);
    rig_patient(&r, rig_has_leader, &r);
    assert_int_equal(rig_write(&r, 1, "later"), 0);
    rig_destroy(&r);
}

static void test_newer_command(void **state)
{
    (void)state;
    step_over(true, "a newer version of hanse is needed: a command of type 77");
}

static void test_damaged_entry(void **state)
{
    (void)state;
    step_over(false, "checksum does not match");
}

/* The act is part of the digest, and the words of it, too. */
static void test_other_words_differ(void **state)
{
    struct entry_skip act = {.index = 9, .checksum = "00", .by = "a", .reason = "r", .at = "t"};
    struct root *a = root_create(), *b = root_create();

    (void)state;
    store_skip(&a, &act);
    store_skip(&b, &act);
    assert_true(root_digest(a) == root_digest(b) && root_index(a) == 9 && root_number(a) == 1);
    root_check(a);
    b = root_unref(b);
    b = root_create();
    act.reason[0] = 'q';
    store_skip(&b, &act);
    assert_true(root_digest(a) != root_digest(b));
    (void)root_unref(a);
    (void)root_unref(b);
    (void)tree_reap(SIZE_MAX);
}

static void test_newer_snapshot(void **state)
{
    unsigned char *p;
    struct root *r = root_create(), *again = NULL;
    struct err e = {0};
    AUTO_BUF b;

    (void)state;
    buf_init(&b, 1u << 20);
    assert_int_equal(snapshot_encode(r, &b, &e), 0);
    p = (unsigned char *)b.p;
    p[8] = 99;
    assert_int_equal(snapshot_decode(slice_make(b.p, b.n), &again, &e), E_NOTIMPL);
    assert_non_null(strstr(e.text, "newer version of hanse is needed"));
    (void)root_unref(r);
    (void)tree_reap(SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_newer_command), cmocka_unit_test(test_damaged_entry),
        cmocka_unit_test(test_other_words_differ), cmocka_unit_test(test_newer_snapshot)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
