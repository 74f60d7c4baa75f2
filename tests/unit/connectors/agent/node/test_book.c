/* The agent's book: it is full before it forgets, its pages fit whatever programs say, and what a
 * hub lets go leaves a floor behind, below which no order is taken. */
#include "connectors/agent/node/agent_internal.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE "0123456789abcdef0123456789abcdef"
#define HOUR 3600000

static struct loop *loop;
static char dir[64];
static struct book *b;
static const struct book_hub nobody = {"", 0};

static void again(void)
{
    struct err err = {0};

    book_close(b);
    if (book_open(b, loop, dir, &err) < 0)
        fail_msg("%s", err.text);
}

static struct run_key key_of(unsigned n, int64_t epoch)
{
    struct run_key k = {.epoch = epoch, .try_ = 1};

    (void)snprintf(k.uid, sizeof k.uid, "u%u", n);
    return k;
}

static void write_for(unsigned n, struct book_hub hub)
{
    struct run_key k = key_of(n, 1);
    struct err err;

    assert_int_equal(book_write(b, &k, NULL, hub, &err), 0);
}

static void the_book_does_not_forget(void **state)
{
    struct run_key k = {.uid = "u1", .epoch = 2, .try_ = 3},
                   older = {.uid = "u1", .epoch = 2, .try_ = 2};
    struct run_key newer = {.uid = "u1", .epoch = 3, .try_ = 1},
                   other = {.uid = "u2", .epoch = 1, .try_ = 1};
    struct observation end = {.key = k,
                              .state = RUN_ENDED,
                              .exit_code = 9,
                              .proof = PROOF_TREE_GONE},
                       got;
    struct err err = {0};

    (void)state;
    assert_false(book_refuses(b, &k));
    assert_int_equal(book_write(b, &k, &end, nobody, &err), 0);
    assert_int_equal(book_write(b, &older, NULL, nobody, &err), 0); /* must not lower it */
    again();
    assert_true(book_refuses(b, &k));
    assert_true(book_refuses(b, &older));
    assert_false(book_refuses(b, &newer));
    assert_false(book_refuses(b, &other));
    assert_true(book_find(b, &k, &got));
    assert_int_equal(got.exit_code, 9);
    assert_false(book_find(b, &older, &got));
}

/* Eight ends of nothing but control characters once made a page that the agent could not read. */
static void a_page_fits_whatever_programs_say(void **state)
{
    struct observation end = {.state = RUN_ENDED, .proof = PROOF_TREE_GONE}, got;
    struct err err;

    (void)state;
    memset(end.reason, 1, sizeof end.reason - 1);
    memset(end.message, 2, sizeof end.message - 1);
    end.checkpoint.present = true;
    memset(end.checkpoint.path, 3, sizeof end.checkpoint.path - 1);
    end.checkpoint.path[0] = '/';
    memset(end.checkpoint.digest, 4, sizeof end.checkpoint.digest - 1);
    memcpy(end.checkpoint.digest, "sha256:", 7);
    end.checkpoint.step = end.checkpoint.bytes = INT64_MAX / 1024;
    end.checkpoint.writtenAt = 253402300799999; /* the last that is written as a time */
    for (int64_t epoch = 1; epoch <= 2 * AGENT_BOOK_ENDS; epoch++) {
        struct run_key k = key_of(1, epoch);
        end.key = k;
        assert_int_equal(book_write(b, &k, &end, nobody, &err), 0);
        again();
        assert_true(book_refuses(b, &k));
        assert_true(book_find(b, &k, &got));
        assert_memory_equal(got.message, end.message, sizeof end.message);
        assert_memory_equal(got.checkpoint.path, end.checkpoint.path, sizeof end.checkpoint.path);
    }
    assert_true(b->bytes > 65536 && b->bytes <= AGENT_BOOK_PAGE_MAX);
}

/* Full by count: nothing is forgotten, nothing new promised, no run taken. Then the hub lets go. */
static void full_it_refuses_and_does_not_forget(void **state)
{
    const struct book_hub hub = {LINE, 500};
    struct err err;
    unsigned from = 0, next, listed = 0;

    (void)state;
    for (unsigned i = 0; i < AGENT_BOOK_MAX; i++) {
        char path[96];
        (void)snprintf(path, sizeof path, "%s/u%u", dir, i);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        (void)fprintf(f, "{\"epoch\":1,\"try\":1,\"rv\":%d,\"at\":1,\"cluster\":\"%s\"}",
                      400 + (int)(i % 200), i % 2 ? LINE : "");
        (void)fclose(f);
    }
    again();
    assert_int_equal(b->n, AGENT_BOOK_MAX);
    assert_int_equal(book_room(b, 0, &err), E_LIMIT);
    struct run_key fresh = key_of(AGENT_BOOK_MAX, 1), known = key_of(7, 2);
    assert_int_equal(book_write(b, &fresh, NULL, hub, &err), E_LIMIT);
    assert_int_equal(book_write(b, &known, NULL, nobody, &err), 0); /* its page is there */
    assert_int_equal(book_floor_raise(b, hub, &err), 0);
    do { /* page by page; what it was told to nobody of, or by a newer state, stays */
        AUTO_ARENA a = arena_create(0);
        struct wire_result page = {.outcome = OUT_DONE};
        book_list(b, from, HOUR + 1, HOUR, a, &page);
        next = (unsigned)page.next;
        assert_true(page.n_promises < 2 * WIRE_BOOK_PAGE);
        for (uint32_t i = 0; i < page.n_promises; i++) {
            const struct run_promise *p = &page.promises[i];
            bool may = p->rv <= hub.rv;
            listed++;
            if (may && listed > 3000)
                continue; /* enough: each is a file */
            assert_int_equal(book_forget(b, p->uid, hub, &err), may ? 0 : E_STALE);
        }
        from = next;
    } while (next);
    assert_int_equal(listed, AGENT_BOOK_MAX / 2 - 1);
    assert_int_equal(book_room(b, 0, &err), 0);
    unsigned left = b->n;
    again();
    assert_int_equal(b->n, left);
    assert_true(book_refuses(b, &known));
    assert_int_equal(book_admits(b, (struct book_hub){LINE, 499}, &err), E_STALE);
}

static void below_the_floor_nothing_is_taken(void **state)
{
    static const struct {
        const char *cluster;
        uint64_t rv;
        bool taken;
    } t[] = {{LINE ".2", 700, true},
             {LINE ".2", 699, false},
             {LINE, 800, false},
             {"", 0, false},
             {"", 900, false},
             {LINE ".3", 699, false},
             {LINE ".3", 700, true},
             {LINE ".3.0000aaaa", 1, true},
             {"ffff0000ffff0000ffff0000ffff0000", 1, true}};
    struct err err;

    (void)state;
    assert_int_equal(book_admits(b, nobody, &err), 0); /* a hub of an older version, before that */
    assert_int_equal(book_floor_raise(b, nobody, &err), E_INVALID);
    assert_int_equal(book_floor_raise(b, (struct book_hub){LINE, 900}, &err), 0);
    assert_int_equal(book_floor_raise(b, (struct book_hub){LINE, 600}, &err), 0);
    assert_int_equal(book_admits(b, (struct book_hub){LINE, 899}, &err), E_STALE);
    for (int i = 0; i < 2; i++) {
        char line[40];
        (void)snprintf(line, sizeof line, "%032d", i); /* another one that it served */
        assert_int_equal(book_floor_raise(b, (struct book_hub){line, 9}, &err), 0);
    }
    book_close(b);
    char path[96];
    (void)snprintf(path, sizeof path, "%s/floors.json", dir);
    assert_int_equal(unlink(path), 0);
    again();
    assert_int_equal(book_floor_raise(b, (struct book_hub){LINE ".2", 700}, &err), 0);
    for (int restarted = 0; restarted < 2; restarted++) {
        for (size_t i = 0; i < sizeof t / sizeof *t; i++)
            if ((book_admits(b, (struct book_hub){t[i].cluster, t[i].rv}, &err) == 0) != t[i].taken)
                fail_msg("%s at %d: %s", t[i].cluster, (int)t[i].rv, err.text);
        again();
    }
    for (unsigned i = 1; i < AGENT_BOOK_FLOORS; i++) {
        char line[40];
        (void)snprintf(line, sizeof line, "%032u", i);
        assert_int_equal(book_floor_raise(b, (struct book_hub){line, 9}, &err), 0);
    }
    assert_int_equal(
        book_floor_raise(b, (struct book_hub){"77770000ffff0000ffff0000ffff0000", 9}, &err),
        E_LIMIT); /* none is forgotten either */
}

/* Against a model: whatever comes in whatever order, what was promised and not let go is refused,
 * before a restart and after it. */
static void random_acts_keep_every_promise(void **state)
{
    enum { UIDS = 24, ACTS = 500 };
    int64_t refused[UIDS] = {0};
    struct book_hub hub[UIDS] = {{0}};
    unsigned seed = 7;
    uint64_t floor_ = 0;
    struct err err;

    (void)state;
    for (int act = 0; act < ACTS; act++) {
        unsigned n = (unsigned)rand_r(&seed) % UIDS, what = (unsigned)rand_r(&seed) % 20;
        int64_t epoch = 1 + rand_r(&seed) % 9;
        uint64_t rv = (uint64_t)(1 + rand_r(&seed) % 1000);
        if (what < 12) {
            struct observation end = {.key = key_of(n, epoch), .state = RUN_ENDED};
            for (size_t i = 0; i < sizeof end.message - 1; i++)
                end.message[i] = (char)(1 + rand_r(&seed) % 255);
            struct book_hub to = {what % 3 ? LINE : "", what % 3 ? rv : 0};
            assert_int_equal(book_write(b, &end.key, what % 2 ? &end : NULL, to, &err), 0);
            refused[n] = epoch > refused[n] ? epoch : refused[n];
            hub[n].cluster = to.cluster;
            hub[n].rv = to.rv > hub[n].rv ? to.rv : hub[n].rv;
        } else if (what < 18) {
            struct book_hub by = {LINE, rv};
            char uid[16];
            (void)snprintf(uid, sizeof uid, "u%u", n);
            bool may = hub[n].cluster && *hub[n].cluster && hub[n].rv <= rv && rv >= floor_;
            if (rv >= floor_) {
                assert_int_equal(book_floor_raise(b, by, &err), 0);
                floor_ = rv;
            }
            int rc = book_forget(b, uid, by, &err);
            assert_true(refused[n] ? (rc == 0) == may : rc == 0);
            if (refused[n] && may) {
                refused[n] = 0;
                hub[n] = (struct book_hub){0};
            }
        } else {
            again();
        }
        for (unsigned i = 0; i < UIDS; i++) {
            struct run_key k = key_of(i, refused[i]), newer = key_of(i, refused[i] + 1);
            assert_true(book_refuses(b, &k) == (refused[i] > 0));
            assert_false(book_refuses(b, &newer));
        }
        assert_true((book_admits(b, (struct book_hub){LINE, floor_}, &err) == 0));
        assert_true(!floor_ ||
                    book_admits(b, (struct book_hub){LINE, floor_ - 1}, &err) == E_STALE);
    }
    write_for(1, nobody);
}

static int setup(void **state)
{
    struct err err;

    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/hanse-book-XXXXXX");
    loop = loop_uv_create(NULL);
    if (!loop || !mkdtemp(dir))
        return -1;
    b = mem_new(struct book);
    return book_open(b, loop, dir, &err);
}

static int teardown(void **state)
{
    (void)state;
    book_close(b);
    mem_free(b);
    int rc = file_remove(loop, dir, NULL);
    loop_uv_destroy(loop);
    return rc;
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(the_book_does_not_forget), T(a_page_fits_whatever_programs_say),
        T(full_it_refuses_and_does_not_forget), T(below_the_floor_nothing_is_taken),
        T(random_acts_keep_every_promise)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
