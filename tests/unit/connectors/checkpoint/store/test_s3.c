/* Checkpoints in an S3 store: the same layout and the same four reasons as in a directory, and what
 * only a store at the end of a wire can do. s3_kit.h has the server; it checks every signature. */
#include "connectors/checkpoint/store/store.h"
#include "tests/support/s3_kit.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define P S3_KIT_PREFIX "/"

static uint64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* What went wrong must not have said the key. */
static void says(const struct err *e, const char *text)
{
    if (!strstr(e->text, text))
        fail_msg("\"%s\" does not say \"%s\"", e->text, text);
    assert_null(strstr(e->text, S3_KIT_SECRET));
}

static int look(struct checkpoint_sealer *s, struct err *e)
{
    struct checkpoint_progress p = {0};

    memset(e, 0, sizeof *e);
    return checkpoint_sealer_look(s, false, &p, e);
}

static struct store *store_of(void)
{
    struct store *s = NULL;
    struct err e;

    if (store_open(&kit_at, NULL, &s, &e) < 0)
        fail_msg("%s", e.text);
    return s;
}

static void has_keys(const char *prefix, const char *expected)
{
    assert_string_equal(s3_kit_say("keys %s", prefix), expected);
}

/* The prefix has a blank in it: what is asked of the server is the part behind it. */
static bool has_key(const char *name)
{
    char line[256];

    (void)snprintf(line, sizeof line, P "%s\n", name);
    return s3_kit_count(s3_kit_say("keys"), line) == 1;
}

/* ---- the way there and back ---- */
static void it_is_laid_out_as_in_a_directory(void **state)
{
    struct cut c = kit_saved(1, 10, "some state to be kept");

    (void)state;
    assert_string_equal(c.path, "s3://bucket/" P "sealed/e1/cut-1.json");
    has_keys("", P "e1/0/\n" P "sealed/e1/0/s10/manifest.json\n" P "sealed/e1/0/s10/state-10\n" P
                   "sealed/e1/cut-1.json\n");
    kit_good(&c, 10);
}

static void another_machine_reads_it(void **state)
{
    struct cut c = kit_saved(1, 10, "some state to be kept");
    struct checkpoint_found f;
    char text[64], path[1200];
    struct err e;

    (void)state;
    s3_kit_machine("two");
    assert_false(kit_exists("two/sealed/e1/0/s10/state-10"));
    if (kit_verify_as(&c, WORKLOAD, 1, 0, &f, &e) < 0)
        fail_msg("%s", e.text);
    (void)snprintf(path, sizeof path, "%s/state-10", f.dir);
    kit_read_all(path, text, sizeof text);
    assert_string_equal(text, "some state to be kept");
    assert_int_equal(strncmp(f.dir, kit_at.scratch, strlen(kit_at.scratch)), 0);
    /* It is here now: not fetched again; spoilt, it is. */
    (void)s3_kit_say("requests");
    kit_good(&c, 10);
    assert_int_equal(s3_kit_count(s3_kit_say("requests"), "state-10"), 0);
    kit_put(f.dir, "state-10", "some state to be lost", 21);
    kit_good(&c, 10);
    assert_int_equal(s3_kit_count(s3_kit_say("requests"), "state-10"), 1);
    kit_read_all(path, text, sizeof text);
    assert_string_equal(text, "some state to be kept");
}

/* What stage has fetched the shim neither fetches nor reads again. */
static void proofs_hold_for_what_was_fetched(void **state)
{
    struct cut c = kit_saved(1, 10, "some state to be kept");
    struct checkpoint_progress p = {0};
    struct checkpoint_found f;
    char proofs[128];
    struct err e;

    (void)state;
    s3_kit_machine("two");
    (void)snprintf(proofs, sizeof proofs, "%s/proofs", kit_base);
    struct checkpoint_want w = {.path = c.path,
                                .at = kit_at,
                                .digest = c.digest,
                                .workload = WORKLOAD,
                                .world = 1,
                                .rank = -1,
                                .proofs_dir = proofs,
                                .write_proofs = true};
    if (checkpoint_verify(&w, &p, &f, &e) < 0)
        fail_msg("%s", e.text);
    assert_true(atomic_load(&p.bytes) > 0);
    w.rank = 0;
    w.write_proofs = false;
    atomic_store(&p.bytes, 0);
    assert_int_equal(checkpoint_verify(&w, &p, &f, &e), 0);
    assert_true(atomic_load(&p.bytes) < 2000); /* cut and manifest */
    assert_int_equal(s3_kit_count(s3_kit_say("requests"), "GET /bucket/" P "sealed/e1/0/s10/state"),
                     1);
}

static void names_may_be_odd(void **state)
{
    static const char *const names[] = {"a b+c%20\xc3\xa9&<x>'\"~*=?#.pt", "deep/er/$(rm)", "-"};
    struct checkpoint_sealer *s = kit_sealer(1, 0);
    const char *dir = checkpoint_sealer_dir(s);
    struct checkpoint_found f;
    char hex[65], m[2048], sub[512];
    struct err e;
    AUTO_BUF b;

    (void)state;
    buf_init(&b, sizeof m);
    kit_path_of(sub, dir, "deep");
    assert_int_equal(mkdir(sub, 0700), 0);
    kit_path_of(sub, dir, "deep/er");
    assert_int_equal(mkdir(sub, 0700), 0);
    kit_hex_of("x", 1, hex);
    buf_str(&b, "{\"step\":1,\"files\":[");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        kit_put(dir, names[i], "x", 1);
        buf_printf(&b, "%s{\"name\":\"", i ? "," : "");
        for (const char *p = names[i]; *p; p++)
            buf_printf(&b, "%s%c", *p == '"' ? "\\" : "", *p);
        buf_printf(&b, "\",\"bytes\":1,\"sha256\":\"%s\"}", hex);
    }
    buf_str(&b, "]}");
    kit_put_manifest(dir, b.p);
    kit_look(s);
    struct cut c = kit_cut(1, &s, 1);
    (void)checkpoint_sealer_destroy(s);
    assert_true(has_key("sealed/e1/0/s1/a b+c%20\xc3\xa9&<x>'\"~*=?#.pt"));
    s3_kit_machine("two");
    if (kit_verify_as(&c, WORKLOAD, 1, 0, &f, &e) < 0)
        fail_msg("%s", e.text);
    kit_path_of(sub, f.dir, names[0]);
    assert_int_equal(access(sub, F_OK), 0);
    struct store *store = store_of();
    assert_int_equal(store_remove(store, "sealed/e1/0/s1", &e), 0);
    (void)store_close(store);
    has_keys("", P "e1/0/\n" P "sealed/e1/cut-1.json\n");
}

/* A log that grows: the store has just what was sealed of it. */
static void of_a_log_it_has_what_was_sealed(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);
    char hex[65], m[512], text[64], path[1200];
    struct checkpoint_found f;
    struct err e;

    (void)state;
    kit_hex_of("12345", 5, hex);
    kit_put(checkpoint_sealer_dir(s), "log", "123456789", 9);
    (void)snprintf(m, sizeof m,
                   "{\"step\":1,\"files\":[{\"name\":\"log\",\"bytes\":5,\"sha256\":\"%s\"}]}",
                   hex);
    kit_put_manifest(checkpoint_sealer_dir(s), m);
    kit_look(s);
    struct cut c = kit_cut(1, &s, 1);
    (void)checkpoint_sealer_destroy(s);
    s3_kit_machine("two");
    assert_int_equal(kit_verify_as(&c, WORKLOAD, 1, 0, &f, &e), 0);
    (void)snprintf(path, sizeof path, "%s/log", f.dir);
    kit_read_all(path, text, sizeof text);
    assert_string_equal(text, "12345");
}

/* ---- what is refused ---- */
static void torn_missing_altered_are_told_apart(void **state)
{
    static const struct {
        const char *key, *how, *reason;
    } t[] = {{"sealed/e%d/0/s10/state-10", "remove", "CheckpointTorn"},
             {"sealed/e%d/0/s10/state-10", "cut", "CheckpointTorn"},
             {"sealed/e%d/0/s10/state-10", "byte", "CheckpointAltered"},
             {"sealed/e%d/0/s10/manifest.json", "remove", "CheckpointTorn"},
             {"sealed/e%d/0/s10/manifest.json", "cut", "CheckpointTorn"},
             {"sealed/e%d/cut-1.json", "remove", "CheckpointMissing"},
             {"sealed/e%d/cut-1.json", "cut", "CheckpointTorn"}};
    struct store *store = NULL;
    struct err e;
    char key[96], machine[16];

    (void)state;
    for (int i = 0; i < (int)(sizeof t / sizeof *t); i++) {
        struct cut c = kit_saved(i + 1, 10, "some state to be kept");
        (void)snprintf(machine, sizeof machine, "m%d", i);
        s3_kit_machine(machine);
        (void)snprintf(key, sizeof key, t[i].key, i + 1);
        (void)s3_kit_say("bend %s%s %s", "@", key, t[i].how);
        kit_refused(&c, t[i].reason);
    }
    struct cut c = kit_saved(20, 10, "some state to be kept");
    s3_kit_machine("last");
    kit_refused_as(&c, "other-uid", 1, "CheckpointForeign");
    kit_refused_as(&c, WORKLOAD, 2, "CheckpointRanks");
    store = store_of();
    assert_int_equal(store_remove(store, "sealed/e20/0/s10", &e), 0);
    (void)store_close(store);
    kit_refused(&c, "CheckpointMissing");
}

/* No verdict on the checkpoint: another store, no permission, no store at all, pages of somebody
 * else's. */
static void a_store_out_of_reach_is_no_verdict(void **state)
{
    static const struct {
        const char *env, *fault, *says;
    } t[] = {{NULL, "fault 100 * * 503", "SlowDown"},
             {NULL, "fault 100 * * html500", "500"},
             {NULL, "fault 100 * * html200", "200"},
             {NULL, "fault 1 * * 403", "AccessDenied"},
             {NULL, "fault 100 * * lost", "did not answer"},
             {NULL, "fault 100 * * short", "did not answer"},
             {"AWS_ACCESS_KEY_ID=nobody", "requests", "InvalidAccessKeyId"},
             {"AWS_SECRET_ACCESS_KEY=wrong", "requests", "SignatureDoesNotMatch"},
             {"AWS_ENDPOINT_URL_S3=http://127.0.0.1:1", "requests", "did not answer"},
             {NULL, "away", "did not answer"}};
    struct cut c = kit_saved(1, 10, "some state to be kept"), elsewhere = c;
    struct checkpoint_found f;
    struct err e;

    (void)state;
    s3_kit_machine("two");
    kit_at.patience_ms = 700;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        s3_kit_env(t[i].env);
        (void)s3_kit_say("%s", t[i].fault);
        uint64_t began = now_ms();
        int rc = kit_verify_as(&c, WORKLOAD, 1, 0, &f, &e);
        if (rc >= 0 || rc == E_CHECKPOINT || strcmp(e.field, CHECKPOINT_UNREACHABLE) != 0)
            fail_msg("%s: %d %s: %s", t[i].fault, rc, e.field, e.text);
        says(&e, t[i].says);
        assert_true(now_ms() - began < 8000);
        if (strcmp(t[i].fault, "away") != 0)
            (void)s3_kit_say("faults");
    }
    (void)s3_kit_say("back");
    (void)snprintf(elsewhere.path, sizeof elsewhere.path, "s3://another/x/sealed/e1/cut-1.json");
    assert_true(kit_verify_as(&elsewhere, WORKLOAD, 1, 0, &f, &e) < 0);
    assert_string_equal(e.field, CHECKPOINT_UNREACHABLE);
    says(&e, "no such bucket");
    kit_good(&c, 10);
}

/* ---- faults that pass ---- */
static void what_passes_is_waited_for(void **state)
{
    static const char *const faults[] = {"fault 1 PUT state 503",
                                         "fault 2 PUT state html500",
                                         "fault 1 PUT state lost",
                                         "fault 1 PUT state truncate",
                                         "fault 1 HEAD state html500",
                                         "fault 1 PUT manifest lost",
                                         "fault 1 PUT cut- lost",
                                         "fault 1 PUT cut- html500",
                                         "fault 1 GET cut- short",
                                         "fault 2 GET state short",
                                         "fault 1 GET state wrong",
                                         "fault 1 GET list-type short",
                                         "fault 1 * * skew"};
    char machine[16];

    (void)state;
    kit_at.patience_ms = 20000;
    for (int i = 0; i < (int)(sizeof faults / sizeof *faults); i++) {
        (void)snprintf(machine, sizeof machine, "m%d", i);
        s3_kit_machine(machine);
        kit_at.patience_ms = 20000;
        (void)s3_kit_say("requests");
        (void)s3_kit_say("%s", faults[i]);
        struct cut c = kit_saved(i + 1, 10, "some state to be kept");
        assert_string_equal(strrchr(c.path, '/'), "/cut-1.json");
        (void)snprintf(machine, sizeof machine, "n%d", i);
        s3_kit_machine(machine);
        kit_good(&c, 10);
        const char *kind = strrchr(faults[i], ' ');
        if (!s3_kit_count(s3_kit_say("requests"), kind))
            fail_msg("%s: never came to be", faults[i]);
    }
}

static void what_was_broken_off_goes_on_where_it_stopped(void **state)
{
    char *text = mem_alloc(1 << 20);
    struct cut c;

    (void)state;
    memset(text, 'x', (1 << 20) - 1);
    text[(1 << 20) - 1] = '\0';
    c = kit_saved(1, 10, text);
    mem_free(text);
    s3_kit_machine("two");
    (void)s3_kit_say("requests");
    (void)s3_kit_say("fault 1 GET state short");
    kit_good(&c, 10);
    const char *said = s3_kit_say("requests");
    assert_int_equal(s3_kit_count(said, "state-10 bytes=0-1048574"), 1);
    assert_int_equal(s3_kit_count(said, "state-10 bytes=524287-1048574"), 1);
}

static void retry_after_is_kept(void **state)
{
    uint64_t began;

    (void)state;
    struct cut c = kit_saved(1, 10, "some state to be kept");
    (void)s3_kit_say("fault 1 GET cut- 503");
    began = now_ms();
    kit_good(&c, 10);
    assert_true(now_ms() - began >= 1000);
}

static void *cancel_soon(void *arg)
{
    struct checkpoint_progress *p = arg;

    (void)s3_kit_say("requests"); /* a moment, by way of a question */
    atomic_store(&p->cancel, true);
    return NULL;
}

static void it_can_be_cancelled(void **state)
{
    struct cut c = kit_saved(1, 10, "some state to be kept");
    struct checkpoint_progress p = {0};
    struct checkpoint_found f;
    uint64_t began = now_ms();
    pthread_t other;
    struct err e;

    (void)state;
    kit_at.patience_ms = 60000;
    struct checkpoint_want w = {
        .path = c.path, .at = kit_at, .digest = "", .workload = "", .rank = -1};
    (void)s3_kit_say("fault 100 * * hang");
    assert_int_equal(pthread_create(&other, NULL, cancel_soon, &p), 0);
    assert_int_equal(checkpoint_verify(&w, &p, &f, &e), E_CANCELLED);
    assert_true(now_ms() - began < 10000);
    assert_int_equal(pthread_join(other, NULL), 0);
}

/* ---- sealing while the store is away ---- */
static void only_what_the_store_has_is_told(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);
    struct err e;

    (void)state;
    kit_save(checkpoint_sealer_dir(s), 10, "ten");
    kit_look(s);
    (void)s3_kit_say("away");
    (void)checkpoint_sealer_destroy(s);
    s3_kit_machine("one");
    kit_at.patience_ms = 600;
    struct checkpoint_sealer *none = NULL;
    assert_true(checkpoint_sealer_create(&kit_at, 1, 0, NULL, &none, &e) < 0);
    assert_string_equal(e.field, CHECKPOINT_UNREACHABLE);
    (void)s3_kit_say("back");
    s = kit_sealer(1, 0);
    assert_false(checkpoint_sealer_newest(s)->present); /* not asked yet */
    kit_look(s);
    assert_int_equal(checkpoint_sealer_newest(s)->step, 10);
    (void)s3_kit_say("away");
    kit_save(checkpoint_sealer_dir(s), 20, "twenty");
    assert_true(look(s, &e) < 0);
    assert_string_equal(e.field, CHECKPOINT_UNREACHABLE);
    assert_int_equal(checkpoint_sealer_newest(s)->step, 10);
    kit_save(checkpoint_sealer_dir(s), 30, "thirty");
    assert_true(look(s, &e) < 0);
    (void)s3_kit_say("back");
    kit_look(s);
    assert_int_equal(checkpoint_sealer_newest(s)->step, 30);
    assert_true(has_key("sealed/e1/0/s30/manifest.json"));
    assert_false(has_key("sealed/e1/0/s20/manifest.json"));
    /* Here only the newest is kept. */
    assert_true(kit_exists("one/sealed/e1/0/s30"));
    assert_false(kit_exists("one/sealed/e1/0/s10") || kit_exists("one/sealed/e1/0/s20"));
    (void)checkpoint_sealer_destroy(s);
}

/* Its shim was killed between the seal and the upload: whoever looks next brings it there. */
static void a_seal_that_was_left_here_is_brought_there(void **state)
{
    struct checkpoint_sealer *s;
    struct err e;

    (void)state;
    kit_at.patience_ms = 600;
    s = kit_sealer(1, 0);
    kit_save(checkpoint_sealer_dir(s), 10, "ten");
    (void)s3_kit_say("fault 1 PUT state 403");
    assert_true(look(s, &e) < 0);
    assert_false(checkpoint_sealer_newest(s)->present);
    (void)checkpoint_sealer_destroy(s);
    assert_false(has_key("sealed/e1/0/s10/manifest.json"));
    s = kit_sealer(1, 0);
    kit_look(s);
    assert_int_equal(checkpoint_sealer_newest(s)->step, 10);
    (void)s3_kit_say("requests");
    (void)checkpoint_sealer_destroy(s);
    s = kit_sealer(1, 0);
    kit_look(s);
    assert_int_equal(checkpoint_sealer_newest(s)->step, 10);
    assert_int_equal(s3_kit_count(s3_kit_say("requests"), "PUT /bucket/" P "sealed"), 0);
    (void)checkpoint_sealer_destroy(s);
}

/* Whoever writes over a sealed file in place: the store must not get what was not sealed. */
static void what_was_written_over_is_not_brought_there(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);
    char path[512];
    struct err e;

    (void)state;
    (void)s3_kit_say("away");
    kit_at.patience_ms = 300;
    kit_save(checkpoint_sealer_dir(s), 10, "some state to be kept");
    (void)checkpoint_sealer_destroy(s);
    (void)s3_kit_say("back");
    s3_kit_machine("one");
    kit_at.patience_ms = 600;
    s = kit_sealer(1, 0);
    (void)s3_kit_say("away");
    assert_true(look(s, &e) < 0);
    (void)s3_kit_say("back");
    kit_path_of(path, kit_base, "one/sealed/e1/0/s10");
    kit_put(path, "state-10", "some state to be lost", 21);
    assert_int_equal(look(s, &e), E_CHECKPOINT);
    assert_string_equal(e.field, "CheckpointAltered");
    assert_false(checkpoint_sealer_newest(s)->present);
    assert_false(has_key("sealed/e1/0/s10/manifest.json"));
    kit_save(checkpoint_sealer_dir(s), 10, "some other state, whole");
    kit_look(s);
    assert_int_equal(checkpoint_sealer_newest(s)->step, 10);
    (void)checkpoint_sealer_destroy(s);
}

/* ---- written once ---- */
static void what_is_written_once_stays(void **state)
{
    static const char *const faults[] = {"faults", "fault 9 PUT once 501", "fault 1 PUT once lost"};
    char name[32];
    struct err e;

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct store *s = store_of();
        (void)snprintf(name, sizeof name, "sealed/once-%d", i);
        (void)s3_kit_say("%s", faults[i]);
        if (store_create(s, name, "mine", 4, &e) < 0)
            fail_msg("%s", e.text);
        assert_int_equal(store_create(s, name, "yours", 5, &e), E_EXISTS);
        assert_int_equal(store_create(s, name, "mine", 4, &e), 0);
        AUTO_BUF b;
        buf_init(&b, 4096);
        assert_int_equal(store_get(s, name, 100, &b, NULL, &e), 0);
        assert_string_equal(b.p, "mine");
        (void)store_close(s);
        (void)s3_kit_say("faults");
    }
}

/* ---- many, and what may go ---- */
static int count_name(const char *name, void *arg)
{
    assert_true(*name && !strchr(name, '/'));
    ++*(int *)arg;
    return 0;
}

static void listings_come_in_pages(void **state)
{
    struct store *s = store_of();
    char name[64];
    struct err e;
    int n = 0;

    (void)state;
    for (int i = 0; i < 12; i++) {
        (void)snprintf(name, sizeof name, "sealed/e%d/cut-1.json", i);
        assert_int_equal(store_create(s, name, "x", 1, &e), 0);
    }
    (void)s3_kit_say("page 5");
    assert_int_equal(store_list(s, "sealed", count_name, &n, &e), 0);
    assert_int_equal(n, 12);
    n = 0;
    assert_int_equal(store_list(s, "nothing", count_name, &n, &e), 0);
    assert_int_equal(n, 0);
    int64_t written = 0;
    assert_int_equal(store_written(s, "sealed", STORE_ENTRIES, &written, &e), 0);
    assert_true(llabs(written / 1000000000 - time(NULL)) < 60);
    assert_int_equal(store_remove(s, "sealed", &e), 0);
    has_keys("", "");
    (void)store_close(s);
}

static void what_is_too_old_is_removed(void **state)
{
    struct checkpoint_sealer *s;
    int64_t floor = 50, epoch = INT64_MAX - 1, number = INT64_MAX;
    char path[CHECKPOINT_PATH_MAX];
    struct cut old = kit_saved(1, 5, "five");
    struct err e;

    (void)state;
    s = kit_sealer(2, 0);
    for (int step = 10; step <= 50; step += 10) {
        kit_save(checkpoint_sealer_dir(s), step, "state");
        kit_look(s);
        (void)kit_cut(2, &s, 1);
    }
    struct checkpoint_retain r = {.at = kit_at,
                                  .epoch = 2,
                                  .keep = 2,
                                  .known = 0,
                                  .told = 5,
                                  .resume_path = old.path,
                                  .floor = &floor,
                                  .n_ranks = 1};
    if (checkpoint_retain(&r, &e) < 0)
        fail_msg("%s", e.text);
    assert_true(has_key("sealed/e1/cut-1.json") && has_key("sealed/e2/0/s10/manifest.json"));
    r.known = r.told = 5;
    if (checkpoint_retain(&r, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(s3_kit_count(s3_kit_say("keys"), "/e1/"), 0);
    assert_int_equal(s3_kit_count(s3_kit_say("keys"), "cut-"), 2);
    assert_int_equal(s3_kit_count(s3_kit_say("keys"), "manifest.json"), 2);
    assert_int_equal(checkpoint_cut_before(&kit_at, &epoch, &number, path, &e), 0);
    assert_int_equal(number, 5);
    (void)checkpoint_sealer_destroy(s);
}

/* Shims alone: two ranks on two machines that share nothing but the store. */
static void ranks_gather_in_the_store(void **state)
{
    struct checkpoint_sealer *s[2];
    struct checkpoint_gather g = {
        .workload = WORKLOAD, .resume_path = "", .epoch = 1, .world = 2, .keep = 2};
    int64_t epoch = INT64_MAX - 1, number = INT64_MAX, newest = 0;
    struct cut c = {0};
    struct err e;

    (void)state;
    for (int i = 0; i < 2; i++) {
        s3_kit_machine(i ? "two" : "one");
        s[i] = kit_sealer(1, i);
        kit_save(checkpoint_sealer_dir(s[i]), 10, i ? "rank one" : "rank zero");
        kit_look(s[i]);
        (void)checkpoint_sealer_destroy(s[i]);
        g.at = kit_at;
        if (checkpoint_cut_gather(&g, false, NULL, &e) < 0)
            fail_msg("%s", e.text);
    }
    assert_int_equal(checkpoint_cut_before(&kit_at, &epoch, &number, c.path, &e), 0);
    assert_int_equal(checkpoint_epoch_newest(&kit_at, &newest, &e), 0);
    assert_int_equal(newest, 1);
    struct checkpoint_found f;
    s3_kit_machine("three");
    if (kit_verify_as(&c, WORKLOAD, 2, 1, &f, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(f.ranks, 2);
}

/* ---- files in parts ---- */
#define LARGE ((size_t)64 << 20)
static void save_large(struct checkpoint_sealer *s, int64_t step, size_t bytes)
{
    char hex[65], m[512], name[32];
    char *p = mem_alloc(bytes);

    for (size_t i = 0; i < bytes; i++)
        p[i] = (char)((i >> 8) * 31 + i + (size_t)step);
    (void)snprintf(name, sizeof name, "large-%lld", (long long)step);
    kit_put(checkpoint_sealer_dir(s), name, p, bytes);
    kit_hex_of(p, bytes, hex);
    mem_free(p);
    (void)snprintf(m, sizeof m,
                   "{\"step\":%lld,\"files\":[{\"name\":\"%s\",\"bytes\":%zu,\"sha256\":\"%s\"}]}",
                   (long long)step, name, bytes, hex);
    kit_put_manifest(checkpoint_sealer_dir(s), m);
}

static void large_files_go_in_parts(void **state)
{
    struct checkpoint_sealer *s;
    struct err e;

    (void)state;
    kit_at.patience_ms = 20000;
    s = kit_sealer(1, 0);
    save_large(s, 1, LARGE + 5);
    (void)s3_kit_say("fault 1 PUT partNumber=2 403");
    assert_true(look(s, &e) < 0);
    says(&e, "AccessDenied");
    assert_string_equal(s3_kit_say("uploads"), ""); /* given up, and nothing is left of it */
    assert_false(has_key("sealed/e1/0/s1/large-1"));
    (void)s3_kit_say("requests");
    (void)s3_kit_say("fault 1 PUT partNumber=1 lost");
    (void)s3_kit_say("fault 1 POST uploadId lost");
    kit_look(s);
    const char *said = s3_kit_say("requests");
    assert_int_equal(s3_kit_count(said, "PUT /bucket/" P "sealed/e1/0/s1/large-1?"), 3);
    assert_string_equal(s3_kit_say("uploads"), "");
    struct cut c = kit_cut(1, &s, 1);
    (void)checkpoint_sealer_destroy(s);
    s3_kit_machine("two");
    kit_at.patience_ms = 20000;
    kit_good(&c, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {S3T(it_is_laid_out_as_in_a_directory),
                                       S3T(another_machine_reads_it),
                                       S3T(proofs_hold_for_what_was_fetched),
                                       S3T(names_may_be_odd),
                                       S3T(of_a_log_it_has_what_was_sealed),
                                       S3T(torn_missing_altered_are_told_apart),
                                       S3T(a_store_out_of_reach_is_no_verdict),
                                       S3T(what_passes_is_waited_for),
                                       S3T(what_was_broken_off_goes_on_where_it_stopped),
                                       S3T(retry_after_is_kept),
                                       S3T(it_can_be_cancelled),
                                       S3T(only_what_the_store_has_is_told),
                                       S3T(a_seal_that_was_left_here_is_brought_there),
                                       S3T(what_was_written_over_is_not_brought_there),
                                       S3T(what_is_written_once_stays),
                                       S3T(listings_come_in_pages),
                                       S3T(what_is_too_old_is_removed),
                                       S3T(ranks_gather_in_the_store),
                                       S3T(large_files_go_in_parts)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
