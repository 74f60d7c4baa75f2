/* The persistent tree against a sorted array, with many versions alive at once. */
#include "controlplane/store/store_internal.h"
#include "tests/support/unit.h"

#include <stdint.h>
#include <stdio.h>
#include <pthread.h>

#define KEYS 700
#define VERSIONS 64

static uint64_t seed = 1;
static uint32_t rnd(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 11) % n;
}

static struct count_box *number(int64_t n)
{
    struct count_box *b = box_new(sizeof *b, NULL);

    b->n = n;
    return b;
}

struct model { /* key i is there when v[i] != 0 */
    int64_t v[KEYS];
    uint64_t n;
};
struct version {
    struct tree *t;
    struct model m;
};

static struct slice key_of(unsigned i, char out[16])
{
    int n = snprintf(out, 16, "k%0*u", i % 3 ? 4 : 5, i); /* of two lengths */

    return slice_make(out, (size_t)n);
}

struct walk {
    char last[16];
    size_t last_n;
    uint64_t n;
    int64_t sum;
    uint64_t stop_at;
};

static bool walk_each(struct slice key, const void *value, void *arg)
{
    struct walk *w = arg;
    size_t n = key.n < w->last_n ? key.n : w->last_n;
    int c = memcmp(w->last, key.p, n);

    assert_true(w->n == 0 || c < 0 || (c == 0 && w->last_n < key.n));
    memcpy(w->last, key.p, key.n);
    w->last_n = key.n;
    w->n++;
    w->sum += ((const struct count_box *)value)->n;
    return w->n != w->stop_at;
}

static void version_check(const struct version *v)
{
    struct walk w = {.n = 0};
    int64_t sum = 0;
    char key[16];

    tree_scan(v->t, slice_make("", 0), walk_each, &w);
    for (unsigned i = 0; i < KEYS; i++) {
        const struct count_box *b = tree_get(v->t, key_of(i, key));

        assert_int_equal(b ? b->n : 0, v->m.v[i]);
        sum += v->m.v[i];
    }
    assert_int_equal(w.n, v->m.n);
    assert_int_equal(w.sum, sum);
    assert_int_equal(tree_count(v->t), v->m.n);
    unsigned from = rnd(KEYS);
    struct walk part = {.n = 0};
    uint64_t want = 0;
    tree_scan(v->t, key_of(from, key), walk_each, &part);
    for (unsigned i = 0; i < KEYS; i++) {
        char other[16];
        struct slice a = key_of(i, other), b = key_of(from, key);
        size_t n = a.n < b.n ? a.n : b.n;
        int c = memcmp(a.p, b.p, n);

        want += v->m.v[i] && (c > 0 || (c == 0 && a.n >= b.n));
    }
    assert_int_equal(part.n, want);
}

static void test_against_array(void **state)
{
    static struct version v[VERSIONS];
    char key[16];

    (void)state;
    for (int i = 0; i < VERSIONS; i++)
        v[i].t = tree_create(&box_ops);
    for (int step = 0; step < 60000; step++) {
        struct version *from = &v[rnd(VERSIONS)], *to = &v[rnd(VERSIONS)];
        unsigned k = rnd(KEYS), phase = (unsigned)step / 10000 % 2;
        bool put = rnd(10) < (phase ? 3u : 7u);
        struct count_box *b = number(1 + rnd(1000));
        struct tree *next =
            put ? tree_put(from->t, key_of(k, key), b) : tree_del(from->t, key_of(k, key));

        struct model m = from->m;
        m.n += (uint64_t)(put && !m.v[k]) - (uint64_t)(!put && m.v[k]);
        m.v[k] = put ? b->n : 0;
        box_unref(b);
        (void)tree_unref(to->t);
        to->t = next;
        to->m = m;
        if (step % 97 == 0) {
            version_check(to);
            version_check(from);
        }
        (void)tree_reap(16);
    }
    for (int i = 0; i < VERSIONS; i++) {
        version_check(&v[i]);
        v[i].t = tree_unref(v[i].t);
    }
    assert_int_equal(tree_reap(SIZE_MAX), 0);
}

/* One owner, no other versions: changes in place; every size on the way down and up. */
static void test_in_place(void **state)
{
    struct tree *t = tree_create(&box_ops);
    struct count_box *b = number(1);
    char key[16];

    (void)state;
    for (unsigned i = 0; i < 5000; i++)
        t = tree_put_own(t, key_of(i * 7 % 5000, key), b);
    assert_int_equal(tree_count(t), 5000);
    for (unsigned i = 0; i < 5000; i++) {
        struct walk w = {.stop_at = 1};

        t = tree_del_own(t, key_of(i * 11 % 5000, key));
        assert_int_equal(tree_count(t), 4999 - i);
        assert_null(tree_get(t, key_of(i * 11 % 5000, key)));
        tree_scan(t, slice_make("", 0), walk_each, &w);
        assert_int_equal(w.n, i < 4999);
    }
    t = tree_del_own(t, key_of(1, key));
    assert_int_equal(tree_count(t), 0);
    (void)tree_unref(t);
    (void)tree_reap(SIZE_MAX);
    assert_int_equal(atomic_load(&b->box.refs), 1);
    box_unref(b);
}

static void test_reap_in_slices(void **state)
{
    struct tree *t = tree_create(&box_ops);
    struct count_box *b = number(1);
    char key[16];
    int slices = 0;

    (void)state;
    for (unsigned i = 0; i < 9000; i++)
        t = tree_put_own(t, key_of(i, key), b);
    (void)tree_reap(SIZE_MAX);
    (void)tree_unref(t);
    /* Counted by items, which may each be the last of an object: not by nodes of many. */
    for (uint64_t before = 9001, left; tree_reap(100) > 0; before = left) {
        left = atomic_load(&b->box.refs);
        assert_true(before - left <= 100 + 128);
        slices++;
    }
    assert_true(slices > 30);
    assert_int_equal(atomic_load(&b->box.refs), 1);
    box_unref(b);
}

static void *reader(void *arg)
{
    struct tree *t = arg;

    for (int i = 0; i < 200; i++) {
        struct walk w = {.n = 0};
        struct tree *mine = tree_ref(t);

        tree_scan(mine, slice_make("", 0), walk_each, &w);
        INV(w.n == tree_count(mine));
        (void)tree_unref(mine);
    }
    (void)tree_unref(t);
    return NULL;
}

static void test_threads(void **state)
{
    struct tree *t = tree_create(&box_ops);
    pthread_t thread[3];
    char key[16];

    (void)state;
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 500; i++) {
            struct count_box *b = number(round + 1);

            t = tree_put_own(t, key_of(rnd(KEYS), key), b);
            box_unref(b);
        }
        assert_int_equal(pthread_create(&thread[round], NULL, reader, tree_ref(t)), 0);
    }
    for (unsigned i = 0; i < 3000; i++) {
        t = tree_del_own(t, key_of(rnd(KEYS), key));
        (void)tree_reap(8);
    }
    for (int i = 0; i < 3; i++)
        (void)pthread_join(thread[i], NULL);
    (void)tree_unref(t);
    assert_int_equal(tree_reap(SIZE_MAX), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_array), cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_reap_in_slices), cmocka_unit_test(test_threads)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
