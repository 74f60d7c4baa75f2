/* Members and their archives: each writes its own files, who comes by a snapshot or has lost some
 * fetches them, and what a disk has changed is found and replaced. */
#include "tests/support/raft/core_rig.h"

#include <fcntl.h>
#include <sys/stat.h>

#define PATIENCE_MS 40000 /* files are fsynced, and the machine may be busy */

static void propose(struct rig *r, unsigned id, union command *c, const char *request)
{
    struct rig_call call = {0};
    AUTO_BUF b;

    buf_init(&b, LIMIT_COMMAND_MAX_BYTES);
    str_copy(c->head.request_id, sizeof c->head.request_id, request);
    command_encode(c, &b);
    core_propose(r->m[id].core, r->loop, request, slice_make(b.p, b.n), 10000, rig_proposed, &call);
    rig_wait_for(r, rig_done, &call);
    assert_int_equal(call.code, 0);
}

/* Events that say much, and an ARCHIVE that takes them: about a segment a round. */
static void round_of(struct rig *r, unsigned id, unsigned n)
{
    enum { EVENTS = 40 };
    struct write_op ops[EVENTS];
    char name[64], request[64], text[2000];
    union command c = {.head = {.type = CMD_WRITE, .user = "test"}};

    for (unsigned i = 0; i < EVENTS; i++) {
        struct meta meta = {.name = name, .namespace_ = "default", .uid = name};
        struct object_ref about = {.kind = "Workload", .name = "w", .uid = "u"};
        struct event body = {.metadata = &meta, .involvedObject = &about, .message = text};

        (void)snprintf(name, sizeof name, "e%u-%u", n, i);
        (void)memset(text, 'a' + (int)((n + i) % 26), sizeof text - 1);
        text[sizeof text - 1] = '\0';
        ops[i] = (struct write_op){.verb = WRITE_CREATE, .kind = KIND_EVENT};
        (void)snprintf(ops[i].ns, sizeof ops[i].ns, "default");
        str_copy(ops[i].name, sizeof ops[i].name, name);
        ops[i].object = object_make(kind_by_id(KIND_EVENT), &body);
    }
    c.write.ops = ops;
    c.write.n = EVENTS;
    (void)snprintf(request, sizeof request, "write-%u", n);
    propose(r, id, &c, request);
    for (unsigned i = 0; i < EVENTS; i++) {
        ops[i].object = object_unref(ops[i].object);
        ops[i].verb = WRITE_DELETE;
    }
    union command a = {.archive = {.head = {.type = CMD_ARCHIVE, .user = "hanse:retention"},
                                   .close_bytes = ARCHIVE_CLOSE_MIN_BYTES,
                                   .close_after_ms = 0,
                                   .ops = ops,
                                   .n = EVENTS}};
    (void)snprintf(request, sizeof request, "archive-%u", n);
    propose(r, id, &a, request);
}

/* All members have told that they know of archives. */
static bool all_know(void *arg)
{
    struct rig *r = arg;

    if (!rig_leader(r))
        return false;
    struct root *root = core_root(r->m[rig_leader(r)].core);
    struct member_info m[RIG_MAX];
    bool ok = root_feature_level(root) >= FEATURE_ARCHIVE && root_members(root, m, RIG_MAX) == r->n;
    (void)root_unref(root);
    return ok;
}

struct want {
    struct rig *rig;
    unsigned id;
    uint64_t segments, bad;
};
static bool has_all(void *arg)
{
    const struct want *w = arg;
    struct archive_files_status s;

    core_archive_status(w->rig->m[w->id].core, &s);
    return s.segments >= w->segments && s.present == s.segments && s.bad >= w->bad;
}
static void wait_all(struct rig *r, unsigned id, uint64_t segments, uint64_t bad)
{
    struct want w = {r, id, segments, bad};

    assert_true(rig_until(r, PATIENCE_MS, has_all, &w));
}

static struct rig_member *member(struct rig *r, unsigned id)
{
    return &r->m[id];
}
static const char *file_of(struct rig *r, unsigned id, uint64_t number)
{
    static char path[ARCHIVE_PATH_MAX];
    char dir[300];

    archive_path(rig_path(r, "d%u/archive", id, dir, sizeof dir), number, path);
    return path;
}

/* Every file of a member, against the digests of another one's state. */
static void check_files(struct rig *r, unsigned id, unsigned by, uint64_t segments)
{
    struct root *root = core_root(member(r, by)->core);

    for (uint64_t n = 1; n <= segments; n++) {
        struct archive_info want, have;
        struct err e = {0};
        AUTO_BUF b;

        buf_init(&b, SEGMENT_FILE_MAX_BYTES);
        assert_true(root_archive_info(root, n, &want));
        if (file_read(r->loop, file_of(r, id, n), SEGMENT_FILE_MAX_BYTES, &b, &e) ||
            segment_verify(slice_make(b.p, b.n), want.digest, &have, &e))
            fail_msg("member %u, segment %u: %s", id, (unsigned)n, e.text);
    }
    (void)root_unref(root);
}

static void test_every_member_has_every_segment(void **state)
{
    struct rig r;
    struct err e;
    char dir[300];

    (void)state;
    rig_create(&r, 3);
    for (unsigned id = 1; id <= 3; id++) {
        r.m[id].cfg.snapshot_threshold = 16;
        r.m[id].cfg.snapshot_trailing = 4;
        rig_start(&r, id);
    }
    rig_wait_for(&r, rig_has_leader, &r);
    assert_true(rig_until(&r, PATIENCE_MS, all_know, &r));
    assert_int_equal(rig_write(&r, rig_leader(&r), "default"), 0);
    unsigned n = 0;
    for (; n < 3; n++)
        round_of(&r, rig_leader(&r), n);
    unsigned away = rig_leader(&r) == 3 ? 2 : 3;
    rig_stop(&r, away);
    for (; n < 20; n++) /* the log is cut: it comes back by a snapshot */
        round_of(&r, rig_leader(&r), n);
    struct root *root = core_root(r.m[rig_leader(&r)].core);
    uint64_t segments = root_archive_newest(root);
    (void)root_unref(root);
    assert_true(segments >= 14);
    for (unsigned id = 1; id <= 3; id++)
        if (id != away)
            wait_all(&r, id, segments, 0);
    rig_start(&r, away);
    wait_all(&r, away, segments, 0);
    check_files(&r, away, rig_leader(&r), segments);

    /* A byte that the disk changed: found, replaced. */
    struct stat st;
    assert_int_equal(stat(file_of(&r, away, 2), &st), 0);
    int fd = open(file_of(&r, away, 2), O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "#", 1, st.st_size - 7), 1);
    (void)close(fd);
    core_archive_suspect(r.m[away].core, 2);
    wait_all(&r, away, segments, 1);
    check_files(&r, away, rig_leader(&r), segments);

    /* All of them lost while it was stopped. */
    rig_stop(&r, away);
    assert_int_equal(file_remove(r.loop, rig_path(&r, "d%u/archive", away, dir, sizeof dir), &e),
                     0);
    rig_wait_for(&r, rig_has_leader, &r);
    rig_start(&r, away);
    wait_all(&r, away, segments, 0);
    check_files(&r, away, rig_leader(&r), segments);
    rig_destroy(&r);
}

/* A member of one stopped at any time has all of it when it is back: from its log or snapshot. */
static void test_a_member_that_restarts_completes_its_files(void **state)
{
    struct rig r;

    (void)state;
    rig_create(&r, 1);
    r.m[1].cfg.snapshot_threshold = 16;
    r.m[1].cfg.snapshot_trailing = 4;
    rig_start(&r, 1);
    rig_wait_for(&r, rig_has_leader, &r);
    assert_true(rig_until(&r, PATIENCE_MS, all_know, &r));
    assert_int_equal(rig_write(&r, 1, "default"), 0);
    uint64_t segments = 0;
    for (unsigned n = 0; n < 15; n++) {
        round_of(&r, 1, n);
        struct root *root = core_root(r.m[1].core);
        segments = root_archive_newest(root);
        (void)root_unref(root);
        if (n % 5 == 4) { /* at once: some files may not be written yet */
            rig_stop(&r, 1);
            if (n == 9) /* the newest was not written: the log or the snapshot has it */
                (void)unlink(file_of(&r, 1, segments));
            rig_start(&r, 1);
            rig_wait_for(&r, rig_has_leader, &r);
        }
    }
    wait_all(&r, 1, segments, 0);
    check_files(&r, 1, 1, segments);
    rig_destroy(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_member_has_every_segment),
        cmocka_unit_test(test_a_member_that_restarts_completes_its_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
