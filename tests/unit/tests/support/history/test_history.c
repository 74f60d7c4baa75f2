/* The judge of histories: it must find what is wrong, and must not find what is right. */
#include "tests/support/history/history.h"
#include "tests/support/unit.h"

#include "api/base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define SEEDS 300

/* ---- histories of the literature ---- */
static const struct {
    const char *what;
    enum history_verdict verdict;
    const char *check, *lines;
} known[] = {
    {"one client after another", HISTORY_GOOD, "",
     "{'op':'create','key':'x','value':1,'rv':1,'outcome':'ok','called':1,'returned':2}\n"
     "{'op':'get','key':'x','value':1,'rv':1,'outcome':'ok','called':3,'returned':4}\n"
     "{'op':'update','key':'x','value':2,'expect':1,'rv':2,'outcome':'ok','called':5,'returned':6}"
     "\n"
     "{'op':'delete','key':'x','rv':3,'outcome':'ok','called':7,'returned':8}\n"
     "{'op':'get','key':'x','outcome':'absent','called':9,'returned':10}\n"},
    {"reads beside a write see it or not, in one order", HISTORY_GOOD, "",
     "{'op':'create','key':'x','value':1,'outcome':'ok','called':1,'returned':2}\n"
     "{'op':'update','key':'x','value':2,'outcome':'ok','called':3,'returned':20}\n"
     "{'op':'get','key':'x','value':1,'outcome':'ok','called':4,'returned':10}\n"
     "{'op':'get','key':'x','value':2,'outcome':'ok','called':5,'returned':6}\n"
     "{'op':'get','key':'x','value':2,'outcome':'ok','called':11,'returned':12}\n"},
    {"a repetition is answered as the first time", HISTORY_GOOD, "",
     "{'op':'create','key':'x','value':1,'rv':4,'outcome':'ok','called':1,'returned':2}\n"
     "{'op':'answer','client':0,'request':1,'outcome':'ok','rv':4}\n"
     "{'op':'answer','client':0,'request':1,'outcome':'unknown'}\n"
     "{'op':'answer','client':1,'request':1,'outcome':'absent'}\n"
     "{'op':'answer','client':0,'request':1,'outcome':'ok','rv':4}\n"},
    {"refused, and done all the same", HISTORY_BAD, "final",
     "{'op':'answer','client':0,'request':1,'outcome':'absent'}\n"
     "{'op':'answer','client':0,'request':1,'outcome':'ok','rv':4}\n"},
    {"stale read", HISTORY_BAD, "linear",
     "{'op':'create','key':'x','value':1,'outcome':'ok','called':1,'returned':2}\n"
     "{'op':'update','key':'x','value':2,'outcome':'ok','called':3,'returned':4}\n"
     "{'op':'get','key':'x','value':1,'outcome':'ok','called':5,'returned':6}\n"},
    {"new, then old, while the write is under way", HISTORY_BAD, "linear",
     "{'op':'create','key':'x','value':1,'outcome':'ok','called':1,'returned':2}\n"
     "{'op':'update','key':'x','value':2,'outcome':'ok','called':3,'returned':20}\n"
     "{'op':'get','key':'x','value':2,'outcome':'ok','called':4,'returned':5}\n"
     "{'op':'get','key':'x','value':1,'outcome':'ok','called':6,'returned':7}\n"},
    {"lost update: both had read the same", HISTORY_BAD, "linear",
     "{'op':'create','key':'x','value':1,'rv':1,'outcome':'ok','called':1,'returned':2}\n"
     "{'op':'update','key':'x','value':2,'expect':1,'rv':2,'outcome':'ok','called':3,'returned':9}"
     "\n"
     "{'op':'update','key':'x','value':3,'expect':1,'rv':3,'outcome':'ok','called':4,'returned':8}"
     "\n"},
    {"two create the same name", HISTORY_BAD, "linear",
     "{'op':'create','key':'x','value':1,'outcome':'ok','called':1,'returned':9}\n"
     "{'op':'create','key':'x','value':2,'outcome':'ok','called':2,'returned':8}\n"},
    {"an acknowledged write is lost", HISTORY_BAD, "linear",
     "{'op':'create','key':'x','value':1,'outcome':'ok','called':1,'returned':2}\n"
     "{'op':'get','key':'x','outcome':'absent','called':3,'returned':4}\n"},
    {"a write without an answer happens", HISTORY_GOOD, "",
     "{'op':'create','key':'x','value':1,'outcome':'unknown','called':1}\n"
     "{'op':'get','key':'x','outcome':'absent','called':2,'returned':3}\n"
     "{'op':'get','key':'x','value':1,'rv':7,'outcome':'ok','called':50,'returned':51}\n"},
    {"a write without an answer never happens", HISTORY_GOOD, "",
     "{'op':'create','key':'x','value':1,'outcome':'unknown','called':1}\n"
     "{'op':'create','key':'x','value':2,'outcome':'ok','called':2,'returned':3}\n"
     "{'op':'get','key':'x','value':2,'outcome':'ok','called':4,'returned':5}\n"},
    {"a write without an answer is read, then it is lost", HISTORY_BAD, "linear",
     "{'op':'create','key':'x','value':1,'outcome':'unknown','called':1}\n"
     "{'op':'get','key':'x','value':1,'outcome':'ok','called':2,'returned':3}\n"
     "{'op':'get','key':'x','outcome':'absent','called':4,'returned':5}\n"},
    {"a write is read before it was called", HISTORY_BAD, "linear",
     "{'op':'create','key':'x','value':1,'outcome':'ok','called':1,'returned':2}\n"
     "{'op':'get','key':'x','value':2,'outcome':'ok','called':3,'returned':4}\n"
     "{'op':'update','key':'x','value':2,'outcome':'ok','called':5,'returned':6}\n"},
    {"a conflict that there was no reason for", HISTORY_BAD, "linear",
     "{'op':'create','key':'x','value':1,'rv':1,'outcome':'ok','called':1,'returned':2}\n"
     "{'op':'update','key':'x','value':2,'expect':1,'outcome':'conflict','called':3,'returned':4}"
     "\n"},
    {"a conflict with a write that has no answer", HISTORY_GOOD, "",
     "{'op':'create','key':'x','value':1,'rv':1,'outcome':'ok','called':1,'returned':2}\n"
     "{'op':'update','key':'x','value':9,'outcome':'unknown','called':3}\n"
     "{'op':'update','key':'x','value':2,'expect':1,'outcome':'conflict','called':4,'returned':5}"
     "\n"},
    {"a retry that was applied twice, with another's write between", HISTORY_BAD, "linear",
     "{'op':'create','key':'x','value':1,'outcome':'ok','called':1,'returned':2}\n"
     "{'op':'update','key':'x','value':2,'outcome':'ok','called':3,'returned':8}\n"
     "{'op':'get','key':'x','value':2,'outcome':'ok','called':4,'returned':5}\n"
     "{'op':'update','key':'x','value':3,'outcome':'ok','called':6,'returned':7}\n"
     "{'op':'get','key':'x','value':2,'outcome':'ok','called':9,'returned':10}\n"},
    {"a value that was written at two versions", HISTORY_BAD, "order",
     "{'op':'create','key':'x','value':1,'rv':1,'outcome':'ok','called':1,'returned':2}\n"
     "{'op':'get','key':'x','value':1,'rv':4,'outcome':'ok','called':3,'returned':4}\n"},
    {"one version, two changes", HISTORY_BAD, "order",
     "{'op':'create','key':'x','value':1,'rv':1,'outcome':'ok','called':1,'returned':2}\n"
     "{'op':'create','key':'y','value':2,'rv':1,'outcome':'ok','called':1,'returned':2}\n"},
    {"versions of two objects against real time", HISTORY_BAD, "order",
     "{'op':'create','key':'x','value':1,'rv':5,'outcome':'ok','called':1,'returned':2}\n"
     "{'op':'create','key':'y','value':2,'rv':4,'outcome':'ok','called':3,'returned':4}\n"},
    {"a list that mixes two moments", HISTORY_BAD, "order",
     "{'op':'create','key':'x','value':1,'rv':1,'outcome':'ok','called':1,'returned':2}\n"
     "{'op':'update','key':'x','value':2,'rv':2,'outcome':'ok','called':1,'returned':20}\n"
     "{'op':'create','key':'y','value':3,'rv':3,'outcome':'ok','called':1,'returned':20}\n"
     "{'op':'list','rv':3,'called':3,'returned':9,'items':[{'key':'x','value':1,'rv':1},"
     "{'key':'y','value':3,'rv':3}]}\n"},
    {"a list of before what was acknowledged", HISTORY_BAD, "order",
     "{'op':'create','key':'x','value':1,'rv':1,'outcome':'ok','called':1,'returned':2}\n"
     "{'op':'create','key':'y','value':3,'rv':2,'outcome':'ok','called':3,'returned':4}\n"
     "{'op':'list','rv':1,'called':5,'returned':9,'items':[{'key':'x','value':1,'rv':1}]}\n"},
    {"the same, where it may be old", HISTORY_GOOD, "",
     "{'op':'create','key':'x','value':1,'rv':1,'outcome':'ok','called':1,'returned':2}\n"
     "{'op':'create','key':'y','value':3,'rv':2,'outcome':'ok','called':3,'returned':4}\n"
     "{'op':'list','rv':1,'stale':true,'called':5,'returned':9,'items':[{'key':'x','value':1,'rv':"
     "1}]}\n"},
    {"a watch in the order of writes", HISTORY_GOOD, "",
     "{'op':'create','key':'x','value':1,'rv':1,'outcome':'ok','called':1,'returned':2}\n"
     "{'op':'delete','key':'x','rv':2,'outcome':'ok','called':3,'returned':4}\n"
     "{'op':'create','key':'y','value':3,'rv':4,'outcome':'ok','called':5,'returned':6}\n"
     "{'op':'watch','from':1,'events':[{'at':4,'key':'x','rv':2},{'at':7,'key':'y','value':3,'rv':"
     "4}]}\n"},
    {"a watch that leaves one out", HISTORY_BAD, "watches",
     "{'op':'create','key':'x','value':1,'rv':1,'outcome':'ok','called':1,'returned':2}\n"
     "{'op':'delete','key':'x','rv':2,'outcome':'ok','called':3,'returned':4}\n"
     "{'op':'create','key':'y','value':3,'rv':4,'outcome':'ok','called':5,'returned':6}\n"
     "{'op':'watch','from':1,'events':[{'at':7,'key':'y','value':3,'rv':4}]}\n"},
    {"a watch that goes back", HISTORY_BAD, "watches",
     "{'op':'watch','from':0,'events':[{'at':4,'key':'x','value':2,'rv':2},{'at':7,'key':'y',"
     "'value':1,'rv':1}]}\n"},
    {"a watch that saw what nobody wrote so", HISTORY_BAD, "order",
     "{'op':'create','key':'x','value':1,'rv':1,'outcome':'ok','called':1,'returned':2}\n"
     "{'op':'watch','from':0,'events':[{'at':4,'key':'x','value':2,'rv':1}]}\n"},
    {"what a watch has seen is lost", HISTORY_BAD, "order",
     "{'op':'create','key':'x','value':1,'outcome':'unknown','called':1}\n"
     "{'op':'watch','from':0,'events':[{'at':4,'key':'x','value':1,'rv':7}]}\n"
     "{'op':'list','rv':6,'called':5,'returned':9,'items':[]}\n"},
};
static struct history *parse(const char *lines, size_t n)
{
    struct history *h = history_create();
    char *text = mem_zalloc(n + 1);
    struct err err;

    for (size_t i = 0; i < n; i++)
        text[i] = (char)(lines[i] == '\'' ? '"' : lines[i]);
    if (history_read(h, text, n, &err))
        fail_msg("%s", err.text);
    mem_free(text);
    return h;
}
/* Found by e2e/linear.py: refused under a key (client 2, object two, value 246), and done later. */
static void test_a_refused_write_was_done(void **state)
{
    gzFile f = gzopen("tests/data/histories/linear-refused-then-applied.jsonl.gz", "rb");
    struct history *h = history_create();
    struct history_report r;
    char part[1 << 14];
    struct err err;
    struct buf b;
    int n;

    (void)state;
    assert_non_null(f);
    buf_init(&b, 1 << 24);
    while ((n = gzread(f, part, sizeof part)) > 0)
        buf_add(&b, part, (size_t)n);
    assert_int_equal(gzclose(f), Z_OK);
    assert_int_equal(history_read(h, b.p, b.n, &err), 0);
    history_check(h, NULL, &r);
    assert_int_equal(r.verdict, HISTORY_BAD);
    assert_string_equal(r.check, "linear");
    assert_non_null(strstr(r.why, "246"));
    buf_fini(&b);
    (void)history_destroy(h);
}
static void test_known(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct history *h = parse(known[i].lines, strlen(known[i].lines));
        struct history_report r;

        history_check(h, NULL, &r);
        if (r.verdict != known[i].verdict || strcmp(r.check, known[i].check))
            fail_msg("%s: %s by %s: %s", known[i].what, history_verdict_text(r.verdict), r.check,
                     r.why);
        (void)history_destroy(h);
    }
}
static void test_lines_that_are_none(void **state)
{
    static const char *const bad[] = {
        "{",
        "[]",
        "{\"op\":\"get\"}",
        "{\"op\":\"get\",\"key\":\"x\",\"outcome\":\"ok\",\"called\":1,\"returned\":2}",
        "{\"op\":\"get\",\"key\":\"x\",\"outcome\":\"absent\",\"called\":3,\"returned\":2}",
        "{\"op\":\"get\",\"key\":\"x\",\"outcome\":\"absent\",\"called\":1}",
        "{\"op\":\"get\",\"key\":\"x\",\"outcome\":\"absent\",\"called\":1.5,\"returned\":2}",
        "{\"op\":\"list\",\"called\":1,\"returned\":2,\"items\":[]}",
        "{\"op\":\"answer\",\"client\":1,\"outcome\":\"ok\"}",
        "{\"op\":\"watch\"}"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct history *h = history_create();
        struct err err;

        assert_int_equal(history_read(h, bad[i], strlen(bad[i]), &err), E_INVALID);
        assert_memory_equal(err.text, "line 1: ", 8);
        (void)history_destroy(h);
    }
}

/* ---- good histories from a seed, and one false answer in each ---- */
static uint64_t seed_now;
static uint64_t below(uint64_t n)
{
    seed_now += 0x9e3779b97f4a7c15u;
    uint64_t x = seed_now;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (x ^ x >> 31) % n;
}
struct truth {
    bool there;
    uint64_t value, rv;
};
#define KEYS 3
#define CLIENTS 6
/* What happens does so at one moment between call and return; a few returns are lost. `versions`:
 * whether the answers tell them. */
static void make_good(struct history *h, unsigned n, bool versions, unsigned lost_percent)
{
    struct truth now[KEYS] = {{0}};
    uint64_t free_at[CLIENTS] = {0}, t = 0, rv = 0, value = 0;
    uint32_t keys[KEYS];

    for (unsigned i = 0; i < KEYS; i++)
        keys[i] = history_key(h, (char[]){(char)('a' + i), 0});
    for (unsigned i = 0; i < n; i++) {
        uint32_t c = (uint32_t)below(CLIENTS), k = (uint32_t)below(KEYS);
        struct truth *x = &now[k];
        struct history_op o = {.key = keys[k], .client = c, .outcome = HISTORY_OK};

        t += 10; /* the moment at which it happens */
        o.called = t - 1 - below(40);
        o.called = o.called > free_at[c] && o.called < t ? o.called : free_at[c] + 1;
        if (o.called >= t)
            o.called = t - 1;
        o.returned = t + below(40);
        o.kind = (enum history_kind)(1 + below(4));
        o.expect = x->there && o.kind >= HISTORY_UPDATE && below(2) ? x->rv - below(2) : 0;
        if (o.kind == HISTORY_CREATE || o.kind == HISTORY_UPDATE)
            o.value = ++value;
        if (o.kind == HISTORY_CREATE ? x->there : !x->there)
            o.outcome = o.kind == HISTORY_CREATE ? HISTORY_EXISTS : HISTORY_ABSENT;
        else if (o.expect && o.expect != x->rv)
            o.outcome = HISTORY_CONFLICT;
        else if (o.kind == HISTORY_GET)
            o.value = x->value, o.rv = x->rv;
        else {
            x->there = o.kind != HISTORY_DELETE;
            x->value = x->there ? o.value : 0;
            o.rv = x->rv = rv += 1 + below(3);
        }
        if (!versions && !o.expect && o.outcome == HISTORY_OK && o.kind == HISTORY_GET)
            o.rv = 0;
        if (below(100) < lost_percent)
            o.outcome = HISTORY_UNKNOWN;
        else
            free_at[c] = o.returned;
        history_add(h, &o);
    }
}
static void test_good_ones_are_good(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct history *h = history_create();
        struct history_report r;

        seed_now = seed;
        make_good(h, 40 + (unsigned)below(400), seed % 2, (unsigned)(seed % 3) * 8);
        history_check(h, NULL, &r);
        if (r.verdict != HISTORY_GOOD)
            fail_msg("seed %llu: %s by %s: %s", (unsigned long long)seed,
                     history_verdict_text(r.verdict), r.check, r.why);
        (void)history_destroy(h);
    }
}
/* A read answers what two acknowledged writes, one after the other and both over before it was
 * called, have replaced: whatever has no answer, that cannot be. */
static bool make_stale(struct history *h, struct history_op *get)
{
    for (size_t i = 0; history_at(h, i); i++) {
        const struct history_op *w = history_at(h, i);
        if (w->key != get->key || w->outcome != HISTORY_OK ||
            (w->kind != HISTORY_CREATE && w->kind != HISTORY_UPDATE))
            continue;
        for (size_t k = 0; history_at(h, k); k++) {
            const struct history_op *x = history_at(h, k);
            if (x->key == get->key && x->outcome == HISTORY_OK &&
                (x->kind == HISTORY_CREATE || x->kind == HISTORY_UPDATE) &&
                w->returned < x->called && x->returned < get->called) {
                get->value = w->value;
                get->rv = 0;
                return true;
            }
        }
    }
    return false;
}
/* A read answers what is only written after it has returned. */
static bool make_early(struct history *h, struct history_op *get)
{
    for (size_t i = 0; history_at(h, i); i++) {
        const struct history_op *w = history_at(h, i);
        if (w->key == get->key && w->kind == HISTORY_UPDATE && w->called > get->returned) {
            get->value = w->value;
            get->rv = 0;
            return true;
        }
    }
    return false;
}
static void test_one_false_answer_is_found(void **state)
{
    unsigned made = 0, stale = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct history *h = history_create();
        struct history_report r;
        struct history_op *get = NULL;
        bool done = false, early = seed % 2;

        seed_now = seed * 1000;
        make_good(h, 60 + (unsigned)below(200), false, (unsigned)(seed % 3) * 6);
        for (size_t from = below(50), i = from; !done && (get = history_at(h, i)); i++)
            if (get->kind == HISTORY_GET && get->outcome == HISTORY_OK)
                done = early ? make_early(h, get) : make_stale(h, get);
        if (done) {
            history_check(h, NULL, &r);
            if (r.verdict != HISTORY_BAD || strcmp(r.check, "linear"))
                fail_msg("seed %llu: a false answer (%s) was not found: %s %s",
                         (unsigned long long)seed, early ? "early" : "stale",
                         history_verdict_text(r.verdict), r.why);
            made++;
            stale += !early;
        }
        (void)history_destroy(h);
    }
    assert_true(made > SEEDS / 2 && stale > SEEDS / 4);
}
static void test_the_memory_is_bounded(void **state)
{
    struct history *h = history_create();
    struct history_report r;
    uint32_t key = history_key(h, "x");

    (void)state;
    history_add(h, &(struct history_op){1, 2, key, 0, HISTORY_CREATE, HISTORY_OK, 1, 0, 0});
    for (uint64_t i = 0; i < 24; i++) /* in any order, and what was read last explains none */
        history_add(h, &(struct history_op){3, 10, key, (uint32_t)i, HISTORY_UPDATE, HISTORY_OK,
                                            10 + i, 0, 0});
    history_add(h, &(struct history_op){11, 12, key, 0, HISTORY_GET, HISTORY_OK, 1, 0, 0});
    history_check(h, &(struct history_limits){.configurations = 10000}, &r);
    assert_int_equal(r.verdict, HISTORY_UNDECIDED);
    assert_true(r.configurations <= 10001);
    (void)history_destroy(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_known),
                                       cmocka_unit_test(test_a_refused_write_was_done),
                                       cmocka_unit_test(test_lines_that_are_none),
                                       cmocka_unit_test(test_good_ones_are_good),
                                       cmocka_unit_test(test_one_false_answer_is_found),
                                       cmocka_unit_test(test_the_memory_is_bounded)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
