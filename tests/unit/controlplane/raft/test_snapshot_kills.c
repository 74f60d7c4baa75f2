/* Killed in the midst of a snapshot: while one is encoded, written, received, read or installed.
 * Whatever was acknowledged is there when the members start again on what the disk has.
 *
 * Each life is a process of its own, which dies by SIGKILL inside of a failpoint; the next one
 * begins with its folders. */
#include "tests/support/raft/core_rig.h"

#include "api/base/failpoint.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define BIG_BYTES (64u << 10)
#define WRITES_MAX 200u

struct lives {      /* shared by all of one case */
    struct rig rig; /* where its folders and ports are */
    unsigned acked; /* of w-0, w-1, … */
};
static pid_t first_process;

#define COMES_MAX 10
#define LIFE(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            (void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                       \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void small_snapshots(struct rig *r)
{
    for (unsigned id = 1; id <= RIG_MAX; id++) {
        r->m[id].cfg.snapshot_threshold = 12;
        r->m[id].cfg.snapshot_trailing = 4;
    }
}

/* The same members, on what they left. */
static void rig_again(struct rig *r, const struct rig *was)
{
    struct err e = {0};

    *r = *was;
    r->loop = loop_uv_create(&e);
    LIFE(r->loop);
    for (unsigned id = 1; id <= RIG_MAX; id++) {
        struct rig_member *m = &r->m[id];

        m->rig = r;
        m->core = NULL;
        m->server = NULL;
        memset(m->client, 0, sizeof m->client);
        m->cfg.listen = m->listen;
        m->cfg.tls_arg = m;
        m->cfg.peers = id <= r->n ? r->peers : NULL;
    }
}

/* What zlib makes little smaller, other for each n. */
static int big_write(struct rig *r, unsigned id, unsigned n)
{
    char *text = mem_zalloc(BIG_BYTES + 1), name[32];
    struct kv note = {"text", text};
    struct meta meta = {.name = name, .uid = name, .annotations = &note, .n_annotations = 1};
    struct namespace_ body = {.metadata = &meta};
    struct write_op op = {.verb = WRITE_CREATE, .kind = KIND_NAMESPACE};
    union command c = {.head = {.type = CMD_WRITE, .user = "test"}};
    struct rig_call call = {0};
    uint64_t x = n + 1;
    AUTO_BUF b;

    for (unsigned i = 0; i < BIG_BYTES; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        text[i] = (char)('a' + (x >> 33) % 26);
    }
    (void)snprintf(name, sizeof name, "w-%u", n);
    op.object = object_make(kind_by_id(KIND_NAMESPACE), &body);
    mem_free(text);
    str_copy(op.name, sizeof op.name, name);
    str_copy(c.head.request_id, sizeof c.head.request_id, name);
    c.write.ops = &op;
    c.write.n = 1;
    buf_init(&b, LIMIT_COMMAND_MAX_BYTES);
    command_encode(&c, &b);
    (void)object_unref(op.object);
    core_propose(r->m[id].core, r->loop, c.head.request_id, slice_make(b.p, b.n), 60000,
                 rig_proposed, &call);
    LIFE(rig_until(r, 60000, rig_done, &call));
    return call.code;
}

static void write_until(struct rig *r, struct lives *l, unsigned id, unsigned n)
{
    while (l->acked < n) {
        LIFE(big_write(r, id, l->acked) == 0);
        l->acked++;
    }
}

static void arm(const char *spec)
{
    if (spec)
        LIFE(setenv("HANSE_FAILPOINT", spec, 1) == 0);
    else
        LIFE(unsetenv("HANSE_FAILPOINT") == 0);
    failpoint_init();
}

/* ---- lives ---- */
/* One member, which makes snapshots by itself. */
static void life_alone(struct lives *l, const char *spec)
{
    struct rig r;

    rig_create(&r, 1);
    small_snapshots(&r);
    l->rig = r;
    arm(spec);
    rig_start(&r, 1);
    LIFE(rig_until(&r, 60000, rig_has_leader, &r));
    write_until(&r, l, 1, WRITES_MAX);
}

struct seen {
    struct rig *r;
    unsigned id, n;
};
static bool is_seen(void *arg)
{
    const struct seen *s = arg;
    char name[32];

    (void)snprintf(name, sizeof name, "w-%u", s->n);
    return s->r->m[s->id].core && rig_has(s->r, s->id, name);
}

/* Three members; one was away for so long that it comes by a snapshot. */
static void life_of_three(struct lives *l, const char *spec)
{
    struct rig r;

    rig_create(&r, 3);
    small_snapshots(&r);
    l->rig = r;
    for (unsigned id = 1; id <= 3; id++)
        rig_start(&r, id);
    LIFE(rig_until(&r, 60000, rig_has_leader, &r));
    unsigned away = rig_leader(&r) % 3 + 1;
    rig_stop(&r, away);
    LIFE(rig_until(&r, 60000, rig_has_leader, &r));
    write_until(&r, l, rig_leader(&r), 30);
    arm(spec);
    rig_start(&r, away);
    struct seen s = {&r, away, 29};
    (void)rig_until(&r, 60000, is_seen, &s);
}

static bool all_agree(void *arg)
{
    struct rig *r = arg;
    struct core_status s[RIG_MAX + 1];

    for (unsigned id = 1; id <= r->n; id++) {
        core_status(r->m[id].core, &s[id]);
        if (r->m[id].fatal || !s[id].ready || s[id].index != s[1].index ||
            s[id].digest != s[1].digest)
            return false;
    }
    return true;
}

static void life_after(struct lives *l, const char *spec)
{
    struct rig r;

    (void)spec;
    arm(NULL);
    rig_again(&r, &l->rig);
    for (unsigned id = 1; id <= r.n; id++)
        rig_start(&r, id);
    LIFE(rig_until(&r, 60000, rig_has_leader, &r));
    unsigned known = l->acked;
    write_until(&r, l, rig_leader(&r),
                known + 16); /* the one that was not acknowledged among them */
    LIFE(rig_until(&r, 60000, all_agree, &r));
    for (unsigned id = 1; id <= r.n; id++)
        for (unsigned n = 0; n < l->acked; n++) {
            struct seen s = {&r, id, n};
            LIFE(is_seen(&s));
        }
    for (unsigned id = 1; id <= r.n; id++)
        rig_stop(&r, id);
    struct err e = {0};
    LIFE(file_remove(r.loop, r.dir, &e) == 0);
}

/* How it ended: 0, or the signal, or -1. */
static int life(void (*fn)(struct lives *l, const char *spec), struct lives *l, const char *spec)
{
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        (void)alarm(110);
        fn(l, spec);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) ? -1 : 0;
}

static void killed_at(void (*fn)(struct lives *l, const char *spec), const char *spec)
{
    struct lives *l =
        mmap(NULL, sizeof *l, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (getpid() != first_process) /* an assertion that failed in a life */
        _exit(1);
    assert_true(l != MAP_FAILED);
    print_message("%s\n", spec);
    int how = life(fn, l, spec);
    /* Messages of before may have been on their way to the one that was away: then it came by
     * these, and not by a snapshot. */
    for (int i = 0; how == 0 && i < COMES_MAX; i++) {
        memset(l, 0, sizeof *l);
        how = life(fn, l, spec);
    }
    assert_int_equal(how, SIGKILL);
    assert_true(l->acked > 4);
    assert_int_equal(life(life_after, l, NULL), 0);
    (void)munmap(l, sizeof *l);
}

static void test_while_it_is_made(void **state)
{
    (void)state;
    killed_at(life_alone, "snapshot.encode.before");
    killed_at(life_alone, "snapshot.encode.piece:2");
}

static void test_while_it_is_written(void **state)
{
    (void)state;
    killed_at(life_alone, "snapshot.write.begun:2");
    killed_at(life_alone, "snapshot.written");
}

static void test_while_it_comes(void **state)
{
    (void)state;
    killed_at(life_of_three, "snapshot.receive:4");
}

static void test_while_it_is_installed(void **state)
{
    (void)state;
    killed_at(life_of_three, "snapshot.install.before");
    killed_at(life_of_three, "snapshot.install.begun");
    killed_at(life_of_three, "snapshot.decode.before");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_while_it_is_made),
        cmocka_unit_test(test_while_it_is_written),
        cmocka_unit_test(test_while_it_comes),
        cmocka_unit_test(test_while_it_is_installed),
    };

    first_process = getpid();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
