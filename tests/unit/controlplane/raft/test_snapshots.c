/* Snapshots and the log: cut by bytes, in pieces, an alarm when they fail; who comes by a snapshot
 * misses nothing that was written while it reads. */
#include "tests/support/raft/core_rig.h"

#include "api/base/failpoint.h"

#include <dirent.h>
#include <sys/stat.h>

#define BIG_BYTES (250u << 10)

static const char *filler(unsigned n)
{
    static char text[BIG_BYTES + 1];

    memset(text, 0, sizeof text);
    for (unsigned i = 0; i < BIG_BYTES; i++) /* what zlib makes little smaller */
        text[i] = (char)('a' + (i * 2654435761u + n * 40503u) % 7919 % 26);
    return text;
}

/* One object of 250 kB, written again and again under `name`. */
static int big_write(struct rig *r, unsigned id, const char *name, unsigned n)
{
    struct kv note = {"text", filler(n)};
    struct meta meta = {.name = (char *)(uintptr_t)name,
                        .uid = (char *)(uintptr_t)name,
                        .annotations = &note,
                        .n_annotations = 1};
    struct namespace_ body = {.metadata = &meta};
    struct write_op op = {.verb = n ? WRITE_UPDATE : WRITE_CREATE, .kind = KIND_NAMESPACE};
    union command c = {.head = {.type = CMD_WRITE, .user = "test"}};
    struct rig_call call = {0};
    AUTO_BUF b;

    op.object = object_make(kind_by_id(KIND_NAMESPACE), &body);
    str_copy(op.name, sizeof op.name, name);
    (void)snprintf(c.head.request_id, sizeof c.head.request_id, "%s-%u", name, n);
    c.write.ops = &op;
    c.write.n = 1;
    buf_init(&b, LIMIT_COMMAND_MAX_BYTES);
    command_encode(&c, &b);
    (void)object_unref(op.object);
    core_propose(r->m[id].core, r->loop, c.head.request_id, slice_make(b.p, b.n), 10000,
                 rig_proposed, &call);
    rig_wait_for(r, rig_done, &call);
    return call.code;
}

static uint64_t log_bytes_on_disk(struct rig *r, unsigned id)
{
    char dir[300], path[700];
    uint64_t sum = 0;
    struct dirent *e;
    struct stat st;
    DIR *d = opendir(rig_path(r, "d%u/log", id, dir, sizeof dir));

    assert_non_null(d);
    while ((e = readdir(d))) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (strncmp(e->d_name, "snapshot", 8) && strncmp(e->d_name, "open", 4) &&
            !stat(path, &st) && S_ISREG(st.st_mode))
            sum += (uint64_t)st.st_size;
    }
    (void)closedir(d);
    return sum;
}

static bool has_alarm(struct rig *r, unsigned id, enum alarm which, char *text)
{
    struct core_alarm a[ALARM_NR];
    size_t n = core_alarms(r->m[id].core, a);

    for (size_t i = 0; i < n; i++)
        if (a[i].id == which) {
            if (text)
                (void)snprintf(text, ALARM_TEXT_MAX, "%s", a[i].text);
            return true;
        }
    return false;
}

/* 250 kB each: 8192 of them would be 2 GB of log. */
static void test_log_is_cut_by_bytes(void **state)
{
    struct rig r;

    (void)state;
    rig_create(&r, 1);
    r.m[1].cfg.snapshot_bytes = 4u << 20;
    rig_start(&r, 1);
    rig_wait_for(&r, rig_has_leader, &r);
    for (unsigned n = 0; n < 200; n++)
        assert_int_equal(big_write(&r, 1, "big", n), 0);
    uint64_t bytes = log_bytes_on_disk(&r, 1);
    (void)fprintf(stderr, "50 MB were written, %u kB of log are left\n", (unsigned)(bytes >> 10));
    assert_true(bytes < 36u << 20); /* the window of changes is in each snapshot; 16 MiB trail */
    rig_stop(&r, 1);
    rig_start(&r, 1);
    rig_wait_for(&r, rig_has_leader, &r);
    assert_true(rig_has(&r, 1, "big"));
    rig_destroy(&r);
}

static bool alarm_raised(void *arg)
{
    return has_alarm(arg, 1, ALARM_SNAPSHOT, NULL);
}
static bool alarm_over(void *arg)
{
    return !has_alarm(arg, 1, ALARM_SNAPSHOT, NULL);
}

static void test_failing_snapshots_are_an_alarm(void **state)
{
    char text[ALARM_TEXT_MAX], name[32];
    struct rig r;
    unsigned n = 0;

    (void)state;
    rig_create(&r, 1);
    r.m[1].cfg.snapshot_threshold = 8;
    r.m[1].cfg.snapshot_trailing = 4;
    failpoint_plant("raft.snapshot-fails");
    rig_start(&r, 1);
    rig_wait_for(&r, rig_has_leader, &r);
    for (; n < 40; n++) {
        (void)snprintf(name, sizeof name, "w-%u", n);
        assert_int_equal(rig_write(&r, 1, name), 0); /* it stops nothing else */
    }
    rig_wait_for(&r, alarm_raised, &r);
    assert_true(has_alarm(&r, 1, ALARM_SNAPSHOT, text));
    assert_non_null(strstr(text, "larger than a snapshot may be"));
    failpoint_plant(NULL);
    for (unsigned i = 0; i < 200 && has_alarm(&r, 1, ALARM_SNAPSHOT, NULL); i++, n++) {
        (void)snprintf(name, sizeof name, "w-%u", n);
        assert_int_equal(rig_write(&r, 1, name), 0);
        (void)rig_until(&r, 50, alarm_over, &r);
    }
    assert_false(has_alarm(&r, 1, ALARM_SNAPSHOT, NULL));
    rig_destroy(&r);
}

/* What a file may have is told long before it is reached, and what it means once it is. */
static bool size_alarm(void *arg)
{
    return has_alarm(arg, 1, ALARM_SIZE, NULL);
}

static void test_too_large_is_told_before(void **state)
{
    char text[ALARM_TEXT_MAX], name[32];
    struct rig r;
    unsigned n = 0;

    (void)state;
    rig_create(&r, 1);
    r.m[1].cfg.snapshot_threshold = 4;
    r.m[1].cfg.snapshot_trailing = 2;
    r.m[1].cfg.snapshot_max = 1u << 20;
    rig_start(&r, 1);
    rig_wait_for(&r, rig_has_leader, &r);
    for (; n < 200 && !size_alarm(&r); n++) {
        (void)snprintf(name, sizeof name, "w-%u", n);
        assert_int_equal(n % 4 ? rig_write(&r, 1, name) : big_write(&r, 1, name, 0), 0);
        (void)rig_until(&r, 50, size_alarm, &r);
    }
    assert_true(has_alarm(&r, 1, ALARM_SIZE, text));
    assert_non_null(strstr(text, "% of what one may have"));
    assert_false(has_alarm(&r, 1, ALARM_SNAPSHOT, NULL));
    for (unsigned more = 0; more < 200 && !alarm_raised(&r); more++, n++) {
        (void)snprintf(name, sizeof name, "w-%u", n);
        assert_int_equal(n % 4 ? rig_write(&r, 1, name) : big_write(&r, 1, name, 0), 0);
        (void)rig_until(&r, 50, alarm_raised, &r);
    }
    assert_true(has_alarm(&r, 1, ALARM_SNAPSHOT, text));
    assert_non_null(strstr(text, "larger than 1 MiB"));
    assert_int_equal(rig_write(&r, 1, "goes-on"), 0);
    rig_destroy(&r);
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

/* It comes by a snapshot, and writes go on all the time: what is applied while it reads is not
 * lost, and its state is that of the others (the digest is compared each second). */
static void test_restored_while_writes_go_on(void **state)
{
    struct core_status a, b;
    char name[32];
    struct rig r;

    (void)state;
    rig_create(&r, 3);
    for (unsigned id = 1; id <= 3; id++) {
        r.m[id].cfg.snapshot_threshold = 16;
        r.m[id].cfg.snapshot_trailing = 4;
        rig_start(&r, id);
    }
    rig_wait_for(&r, rig_has_leader, &r);
    unsigned away = rig_leader(&r) % 3 + 1, via = rig_leader(&r);
    rig_stop(&r, away);
    for (unsigned n = 0; n < 60; n++) {
        (void)snprintf(name, sizeof name, "w-%u", n);
        assert_int_equal(n % 4 ? rig_write(&r, via, name) : big_write(&r, via, name, 0), 0);
    }
    rig_start(&r, away);
    for (unsigned n = 60; n < 120; n++) {
        (void)snprintf(name, sizeof name, "w-%u", n);
        assert_int_equal(rig_write(&r, via, name), 0);
    }
    struct seen s = {&r, away, "w-119"};
    rig_wait_for(&r, is_seen, &s);
    for (unsigned n = 0; n < 120; n++) {
        (void)snprintf(name, sizeof name, "w-%u", n);
        assert_true(rig_has(&r, away, name));
    }
    core_status(r.m[via].core, &a);
    core_status(r.m[away].core, &b);
    assert_false(r.m[away].fatal);
    struct root *x = core_root(r.m[via].core), *y = core_root(r.m[away].core);
    if (root_number(x) == root_number(y))
        assert_true(root_digest(x) == root_digest(y));
    (void)root_unref(x);
    (void)root_unref(y);
    rig_destroy(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_is_cut_by_bytes),
        cmocka_unit_test(test_failing_snapshots_are_an_alarm),
        cmocka_unit_test(test_too_large_is_told_before),
        cmocka_unit_test(test_restored_while_writes_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
