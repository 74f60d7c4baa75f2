/* One member on a real disk: propose, restart, kill -9, and what it must refuse. */
#include "controlplane/raft/aio/aio.h"
#include "tests/support/raft/core_rig.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* ---- kill -9: what was acknowledged is there afterwards ---- */
#define KILLS 20

static void child_acked(void *arg, const struct result *res, const struct err *err);
struct child {
    struct rig *rig;
    int fd;
    unsigned next;
    char name[64];
};
static void child_next(struct child *ch)
{
    struct buf b;

    (void)snprintf(ch->name, sizeof ch->name, "w-%u", ch->next);
    rig_command(ch->name, ch->name, &b);
    core_propose(ch->rig->m[1].core, ch->rig->loop, ch->name, slice_make(b.p, b.n), 10000,
                 child_acked, ch);
    buf_fini(&b);
}
static void child_acked(void *arg, const struct result *res, const struct err *err)
{
    struct child *ch = arg;

    if (err || res->code)
        _exit(3);
    if (write(ch->fd, &ch->next, sizeof ch->next) != sizeof ch->next)
        _exit(4);
    ch->next++;
    child_next(ch);
}
static bool never(void *arg)
{
    (void)arg;
    return false;
}

static void child_run(struct rig *r, int fd, unsigned first)
{
    struct child ch = {.rig = r, .fd = fd, .next = first};
    struct err e = {0};

    r->loop = loop_uv_create(&e);
    r->m[1].cfg.snapshot_threshold = 64;
    r->m[1].cfg.snapshot_trailing = 16;
    if (rig_try_start(r, 1, &e)) {
        (void)fprintf(stderr, "%s\n", e.text);
        _exit(2);
    }
    child_next(&ch);
    (void)rig_until(r, 60000, never, NULL);
    _exit(5);
}

static void test_kill_loop(void **state)
{
    struct rig r;
    unsigned acked = 0; /* every write below this one was acknowledged */

    (void)state;
    rig_create(&r, 1);
    loop_uv_destroy(r.loop);
    for (int k = 0; k < KILLS; k++) {
        int fd[2], status;
        unsigned got, wanted = acked + 5 + (unsigned)k * 7;
        pid_t pid;

        assert_int_equal(pipe(fd), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (!pid) {
            close(fd[0]);
            child_run(&r, fd[1], acked);
        }
        close(fd[1]);
        while (acked < wanted && read(fd[0], &got, sizeof got) == sizeof got)
            acked = got + 1;
        assert_int_equal(kill(pid, SIGKILL), 0);
        while (read(fd[0], &got, sizeof got) == sizeof got) /* acknowledged before it died */
            acked = got + 1;
        close(fd[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        assert_true(acked >= wanted);
    }
    r.loop = loop_uv_create(NULL);
    rig_start(&r, 1);
    rig_wait_for(&r, rig_has_leader, &r);
    for (unsigned i = 0; i < acked; i++) {
        char name[64];

        (void)snprintf(name, sizeof name, "w-%u", i);
        assert_true(rig_has(&r, 1, name));
    }
    rig_destroy(&r);
}

/* ---- in one process ---- */
static void test_propose_restart(void **state)
{
    struct rig r;
    struct core_status s;
    char uid[64];
    struct root *root;

    (void)state;
    rig_create(&r, 1);
    rig_start(&r, 1);
    rig_wait_for(&r, rig_has_leader, &r);
    for (int i = 0; i < 50; i++) {
        char name[64];

        (void)snprintf(name, sizeof name, "a-%d", i);
        assert_int_equal(rig_write(&r, 1, name), 0);
        assert_true(rig_has(&r, 1, name));
    }
    assert_int_equal(rig_write(&r, 1, "a-3"), 0); /* the same request id answers the first result */
    assert_int_equal(rig_read_at(&r, 1), 0);
    core_status(r.m[1].core, &s);
    assert_true(s.ready && s.leads && s.voters == 1);
    assert_int_equal(s.leader_id, 1);
    assert_string_equal(s.leader_api_address, "https://m1");
    root = core_root(r.m[1].core);
    str_copy(uid, sizeof uid, root_cluster_uid(root));
    root_unref(root);
    assert_true(uid[0]);
    rig_stop(&r, 1);
    rig_start(&r, 1);
    rig_wait_for(&r, rig_has_leader, &r);
    assert_true(rig_has(&r, 1, "a-0") && rig_has(&r, 1, "a-49"));
    root = core_root(r.m[1].core);
    assert_string_equal(root_cluster_uid(root), uid);
    root_unref(root);
    assert_int_equal(rig_write(&r, 1, "b"), 0);
    rig_destroy(&r);
}

static void test_many_at_once_share_entries(void **state)
{
    enum { N = 2000 };
    static struct rig_call calls[N];
    struct rig r;
    struct root *root;
    uint64_t before, entries;

    (void)state;
    rig_create(&r, 1);
    r.m[1].cfg.snapshot_threshold = 8;
    r.m[1].cfg.snapshot_trailing = 4;
    rig_start(&r, 1);
    rig_wait_for(&r, rig_has_leader, &r);
    root = core_root(r.m[1].core);
    before = root_number(root);
    root_unref(root);
    for (int i = 0; i < N; i++) {
        char name[64];

        (void)snprintf(name, sizeof name, "n-%d", i);
        rig_propose(&r, 1, name, 20000, &calls[i]);
    }
    for (int i = 0; i < N; i++) {
        rig_wait_for(&r, rig_done, &calls[i]);
        assert_int_equal(calls[i].code, 0);
    }
    root = core_root(r.m[1].core);
    entries = root_number(root) - before;
    root_unref(root);
    assert_true(entries > 0 && entries < N / 4);
    rig_destroy(&r);
}

struct longest {
    const char *dir;
    off_t bytes;
};
static void longest_look(const char *name, void *arg)
{
    struct longest *l = arg;
    char path[600];
    struct stat st;

    (void)snprintf(path, sizeof path, "%s/%s", l->dir, name);
    if (!stat(path, &st) && st.st_size > l->bytes)
        l->bytes = st.st_size;
}

/* The end of a segment holds the loop, and all writes with it, until the kernel has let go of its
 * AIO context, which is tens of milliseconds: it must be rare when one user writes much. */
static void test_segments_end_rarely(void **state)
{
    struct rig_call call = {0};
    struct err e = {0};
    struct rig r;

    (void)state;
    rig_create(&r, 1);
    rig_start(&r, 1);
    rig_propose(&r, 1, "one", 20000, &call);
    rig_wait_for(&r, rig_done, &call);
    struct longest l = {.dir = r.m[1].core->log_dir};
    assert_int_equal(file_list(r.loop, l.dir, longest_look, &l, &e), 0);
    assert_true(l.bytes >= 16 << 20);
    rig_destroy(&r);
}

/* libraft's io_destroy goes to a thread, and is over when the member is. */
static void test_segments_end_away(void **state)
{
    uint64_t before = aio_away(), at_end;
    struct rig_call call = {0};
    struct rig r;

    (void)state;
    rig_create(&r, 1);
    r.m[1].cfg.snapshot_threshold = 8; /* each of which ends a segment */
    r.m[1].cfg.snapshot_trailing = 4;
    rig_start(&r, 1);
    for (unsigned i = 0; i < 40; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "s-%u", i);
        rig_propose(&r, 1, name, 20000, &call);
        rig_wait_for(&r, rig_done, &call);
        assert_int_equal(call.code, 0);
        call = (struct rig_call){0};
    }
    assert_true(aio_away() >= before + 2);
    rig_destroy(&r);
    at_end = aio_away();
    assert_true(at_end > before);

    aio_context_t context = 0;
    assert_int_equal(syscall(SYS_io_setup, 1, &context), 0);
    assert_int_equal(syscall(SYS_io_destroy, context), 0);
    assert_int_equal(aio_away(), at_end + 1);
    aio_settle();
    struct io_event none;
    assert_int_equal(syscall(SYS_io_getevents, context, 0, 1, &none, NULL), -1);
    assert_int_equal(errno, EINVAL); /* there is no such context any more */
}

/* And an entry is applied in one turn of the core loop: it has no more commands than fit one. */
static void test_limits(void **state)
{
    enum { N = LIMIT_PROPOSALS_MAX + 50 };
    static struct rig_call calls[N];
    struct rig r;
    struct root *root;
    int limited = 0;

    (void)state;
    rig_create(&r, 1);
    rig_start(&r, 1);
    for (int i = 0; i < N; i++) { /* there is no leader yet: all of them wait */
        char name[64];

        (void)snprintf(name, sizeof name, "n-%d", i);
        rig_propose(&r, 1, name, 30000, &calls[i]);
    }
    for (int i = 0; i < N; i++) {
        rig_wait_for(&r, rig_done, &calls[i]);
        assert_true(calls[i].code == 0 || calls[i].code == E_LIMIT);
        limited += calls[i].code == E_LIMIT;
    }
    assert_true(limited >= 50 && limited < 60);
    root = core_root(r.m[1].core);
    assert_true(root_number(root) >= (uint64_t)(N - limited) / LIMIT_ENTRY_COMMANDS_MAX);
    (void)root_unref(root);
    rig_destroy(&r);
}

static void confirm_is(struct rig *r, uint64_t term, int code)
{
    struct rig_call call = {0};

    core_confirm(r->m[1].core, r->loop, term, 5000, rig_read, &call);
    rig_wait_for(r, rig_done, &call);
    assert_int_equal(call.code, code);
}

static void test_in_term(void **state)
{
    struct rig r;
    struct core_status s;
    struct rig_call call = {0};
    struct buf b;

    (void)state;
    rig_create(&r, 1);
    rig_start(&r, 1);
    rig_wait_for(&r, rig_has_leader, &r);
    core_status(r.m[1].core, &s);
    confirm_is(&r, s.term, 0);
    confirm_is(&r, s.term + 1, E_STALE);
    rig_command("t-1", "t-1", &b);
    core_propose_in_term(r.m[1].core, r.loop, s.term, "t-1", slice_make(b.p, b.n), 5000,
                         rig_proposed, &call);
    rig_wait_for(&r, rig_done, &call);
    assert_int_equal(call.code, 0);
    buf_fini(&b);
    call.done = false;
    rig_command("t-2", "t-2", &b);
    core_propose_in_term(r.m[1].core, r.loop, s.term + 1, "t-2", slice_make(b.p, b.n), 5000,
                         rig_proposed, &call);
    rig_wait_for(&r, rig_done, &call);
    assert_int_equal(call.code, E_STALE);
    assert_false(call.applied);
    assert_false(rig_has(&r, 1, "t-2"));
    buf_fini(&b);
    rig_destroy(&r);
}

static void refused(struct rig *r, int code, const char *says)
{
    struct err e = {0};

    assert_int_equal(rig_try_start(r, 1, &e), code);
    if (!strstr(e.text, says))
        fail_msg("\"%s\" does not say \"%s\"", e.text, says);
    if (code != E_BUSY) { /* the lock of the refused start lasts as long as this process */
        char lock[300];

        (void)unlink(rig_path(r, "d%u/lock", 1, lock, sizeof lock));
    }
}

/* Another process that holds member 1. A fork of a process with threads may find the sanitizer's
 * locks taken for good: then it is ended, and made once more. */
static pid_t holder(struct rig *r)
{
    for (int tries = 0; tries < 5; tries++) {
        int fd[2], status;
        char c;

        assert_int_equal(pipe(fd), 0);
        pid_t pid = fork();
        if (!pid) {
            struct err e = {0};

            (void)alarm(20);
            r->loop = loop_uv_create(NULL);
            if (rig_try_start(r, 1, &e))
                _exit(1);
            (void)alarm(0);
            (void)!write(fd[1], "x", 1);
            (void)rig_until(r, 60000, never, NULL);
            _exit(0);
        }
        close(fd[1]);
        ssize_t n = read(fd[0], &c, 1);
        close(fd[0]);
        if (n == 1)
            return pid;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
    }
    return -1;
}

static void test_refusals(void **state)
{
    struct rig r;
    int status;

    (void)state;
    rig_create(&r, 1);
    r.m[1].cfg.bootstrap = false;
    refused(&r, E_INVALID, "hanse members add");
    r.m[1].cfg.bootstrap = true;
    rig_start(&r, 1);
    rig_wait_for(&r, rig_has_leader, &r);
    rig_stop(&r, 1);
    r.m[1].cfg.id = 2;
    refused(&r, E_INVALID, "belongs to member 1");
    r.m[1].cfg.id = 1;
    /* another process holds it */
    char lock[300];

    pid_t pid = holder(&r);
    assert_true(pid > 0);
    char number[32];

    (void)snprintf(number, sizeof number, "%d", (int)pid);
    refused(&r, E_BUSY, number);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    (void)unlink(rig_path(&r, "d%u/lock", 1, lock, sizeof lock));
    rig_start(&r, 1);
    rig_destroy(&r);
}

/* ---- messages as no member of ours sends them ---- */
struct stranger {
    struct stream *s;
    unsigned char bytes[10 + 9 + 16 + 56];
    bool closed;
};
static void stranger_open(struct stream *s, void *arg)
{
    struct stranger *x = arg;

    stream_write(s, x->bytes, sizeof x->bytes);
}
static void stranger_data(struct stream *s, const void *p, size_t n, void *arg)
{
    (void)s, (void)p, (void)n, (void)arg;
}
static void stranger_closed(struct stream *s, const struct err *why, void *arg)
{
    (void)s, (void)why;
    ((struct stranger *)arg)->closed = true;
}
static bool stranger_gone(void *arg)
{
    return ((struct stranger *)arg)->closed;
}

/* An entry of nearly 4 GiB: its length, rounded up to 8, is no small number of 32 bits. */
static void test_entry_length_wraps(void **state)
{
    static const struct stream_events ev = {
        .open = stranger_open, .data = stranger_data, .closed = stranger_closed};
    struct stranger x = {0};
    struct err e = {0};
    struct rig r;
    unsigned char *header = x.bytes + 10 + 9 + 16;

    (void)state;
    x.bytes[0] = 2; /* hello: the member, its address */
    x.bytes[8] = 9;
    memcpy(x.bytes + 10, "127.0.0.1", 9);
    x.bytes[10 + 9] = RAFT_APPEND_ENTRIES; /* preamble: the type, the header's length */
    x.bytes[10 + 9 + 8] = 56;
    header[32] = 1;                    /* entries */
    memset(header + 40 + 12, 0xff, 4); /* the length of the first */
    rig_create(&r, 1);
    rig_start(&r, 1);
    rig_wait_for(&r, rig_has_leader, &r);
    rig_tls(&r, 2);
    assert_int_equal(
        stream_connect(r.loop, r.m[1].listen, r.m[2].client[1], ALPN_RAFT, 5000, &ev, &x, &x.s, &e),
        0);
    rig_wait_for(&r, stranger_gone, &x);
    rig_destroy(&r);
}

static void step_propose(struct rig *r, union command *c, struct rig_call *call)
{
    struct buf b;

    memset(call, 0, sizeof *call);
    buf_init(&b, LIMIT_COMMAND_MAX_BYTES);
    command_encode(c, &b);
    core_propose(r->m[1].core, r->loop, c->head.request_id, slice_make(b.p, b.n), 10000,
                 rig_proposed, call);
    buf_fini(&b);
    rig_wait_for(r, rig_done, call);
}

/* An older member would stop at what it does not know: the leader does not take it. */
static void test_what_not_all_know_is_not_taken(void **state)
{
    union command member = {.member = {.head = {.type = CMD_MEMBER}}};
    union command run = {.run = {.head = {.type = CMD_RUN}}};
    struct rig_call call;
    struct rig r;

    (void)state;
    rig_create(&r, 1);
    rig_start(&r, 1);
    rig_wait_for(&r, rig_has_leader, &r);
    for (int round = 0; round < 2; round++) {
        bool mixed = round == 1;
        member.member.member.id = mixed ? 7 : 1;
        member.member.member.feature_level = mixed ? 0 : FEATURE_LEVEL; /* 0: it tells none */
        (void)snprintf(member.head.request_id, sizeof member.head.request_id, "m-%d", round);
        step_propose(&r, &member, &call);
        assert_int_equal(call.code, 0);
        run.run.step = STEP_CHECKPOINT;
        (void)snprintf(run.head.request_id, sizeof run.head.request_id, "c-%d", round);
        step_propose(&r, &run, &call);
        assert_int_equal(call.code, mixed ? E_NOTIMPL : E_STALE); /* there is no such workload */
        assert_int_equal(call.applied, !mixed);
        run.run.step = STEP_ENDED;
        (void)snprintf(run.head.request_id, sizeof run.head.request_id, "e-%d", round);
        step_propose(&r, &run, &call);
        assert_int_equal(call.code, E_STALE);
        assert_true(call.applied);
    }
    rig_destroy(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill_loop),
        cmocka_unit_test(test_propose_restart),
        cmocka_unit_test(test_many_at_once_share_entries),
        cmocka_unit_test(test_segments_end_rarely),
        cmocka_unit_test(test_segments_end_away),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_in_term),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_entry_length_wraps),
        cmocka_unit_test(test_what_not_all_know_is_not_taken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
