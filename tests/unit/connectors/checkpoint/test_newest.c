/* What is found in the store by who starts a workload again: the newest that holds, also where no
 * agent was left to make a cut of it; and when there is no verdict. */
#include "tests/support/checkpoint_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct asked {
    struct checkpoint_found found;
    struct buf passed;
    struct err err;
    int rc;
};

static void look_with(const struct checkpoint_search *q, struct asked *a)
{
    struct checkpoint_progress p = {0};

    *a = (struct asked){0};
    buf_init(&a->passed, 4096);
    a->rc = checkpoint_newest(q, &p, &a->found, &a->passed, &a->err);
}

static struct checkpoint_search question(int64_t epoch)
{
    return (struct checkpoint_search){.at = {.base = kit_base},
                                      .workload = WORKLOAD,
                                      .epoch = epoch,
                                      .known_step = -1,
                                      .world = 1,
                                      .workers = 1};
}

/* Looks, and expects that cut; NULL: nothing newer. */
static void finds(const struct checkpoint_search *q, const struct cut *want, int64_t step,
                  const char *passed)
{
    struct asked a;

    look_with(q, &a);
    if (a.rc)
        fail_msg("%s: %s", a.err.field, a.err.text);
    assert_string_equal(a.found.path, want ? want->path : "");
    assert_string_equal(a.found.digest, want ? want->digest : "");
    assert_int_equal(a.found.step, want ? step : 0);
    if (passed && (!a.passed.n || !strstr(a.passed.p, passed)))
        fail_msg("\"%s\" does not say \"%s\"", a.passed.n ? a.passed.p : "", passed);
    assert_true(passed || a.passed.n == 0);
    buf_fini(&a.passed);
}

static void spoil(const char *name)
{
    char path[512];

    kit_path_of(path, kit_base, name);
    assert_int_equal(truncate(path, 1), 0);
}

static void the_newest_that_holds(void **state)
{
    struct checkpoint_search q = question(2);

    (void)state;
    struct cut a = kit_saved(1, 10, "one"), b = kit_saved(1, 20, "two"), c = kit_saved(2, 15, "x");
    finds(&q, &c, 15, NULL); /* a later epoch counts for more than a higher step */
    q.epoch = 1;
    finds(&q, &b, 20, NULL); /* that epoch is none of the question */
    q.known_epoch = 1;
    q.known_step = 20;
    finds(&q, NULL, 0, NULL);
    q.known_step = 10;
    finds(&q, &b, 20, NULL);
    q.known_step = 5;
    spoil("sealed/e1/0/s20/state-20");
    finds(&q, &a, 10, "CheckpointTorn");
    q.known_step = 10;
    finds(&q, NULL, 0, "CheckpointTorn");
    q.epoch = 2;
    spoil("sealed/e2/cut-1.json"); /* its seals are whole: it is made anew */
    struct asked anew;
    look_with(&q, &anew);
    assert_int_equal(anew.rc, 0);
    assert_int_equal(anew.found.step, 15);
    assert_non_null(strstr(anew.found.path, "/sealed/e2/cut-2.json"));
    buf_fini(&anew.passed);
}

/* Of another workload, of another size, and one that lies where another epoch's should. */
static void foreign_ones_are_passed_over(void **state)
{
    struct checkpoint_search q = question(3);
    char from[512], to[512];

    (void)state;
    struct cut a = kit_saved(1, 10, "one");
    q.workload = "another";
    finds(&q, NULL, 0, "CheckpointForeign");
    q.workload = WORKLOAD;
    q.world = 2;
    finds(&q, NULL, 0, "CheckpointRanks");
    q.world = 0;
    finds(&q, &a, 10, NULL);
    q.world = 1;
    kit_path_of(from, kit_base, "sealed/e1");
    kit_path_of(to, kit_base, "sealed/e3");
    assert_int_equal(rename(from, to), 0);
    finds(&q, NULL, 0, "CheckpointForeign");
    assert_int_equal(rename(to, from), 0);
    finds(&q, &a, 10, NULL);
}

/* Every rank sealed, and their agent was gone: the newest step that all have becomes a cut. What
 * the log knows is not removed for it. */
static void seals_without_a_cut_are_gathered(void **state)
{
    struct checkpoint_search q = question(1);
    struct checkpoint_sealer *s[2];
    struct asked a;

    (void)state;
    q.world = 0; /* its place may have another number of workers */
    for (int i = 0; i < 2; i++) {
        s[i] = kit_sealer(1, i);
        kit_save(checkpoint_sealer_dir(s[i]), 10, "old");
        kit_look(s[i]);
    }
    struct cut known = kit_cut(1, s, 2);
    for (int64_t step = 20; step <= 30; step += 10)
        for (int i = 0; i < (step == 20 ? 2 : 1); i++) { /* one rank alone came to 30 */
            kit_save(checkpoint_sealer_dir(s[i]), step, "new");
            kit_look(s[i]);
        }
    for (int i = 0; i < 2; i++)
        (void)checkpoint_sealer_destroy(s[i]);
    q.known_epoch = 1;
    q.known_step = 10;
    q.workers = 0; /* not known: what ranks saved together is not cut apart */
    look_with(&q, &a);
    assert_int_equal(a.rc, 0);
    assert_string_equal(a.found.path, "");
    buf_fini(&a.passed);
    q.workers = 2;
    for (int again = 0; again < 2; again++) { /* asked again, it is the same one */
        look_with(&q, &a);
        assert_int_equal(a.rc, 0);
        assert_int_equal(a.found.step, 20);
        assert_int_equal(a.found.ranks, 2);
        assert_non_null(strstr(a.found.path, "/sealed/e1/cut-2.json"));
        assert_true(a.found.writtenAt > 0);
        buf_fini(&a.passed);
    }
    kit_refused_as(&known, WORKLOAD, 1, "CheckpointRanks"); /* it is there, with two ranks */
    struct checkpoint_found f;
    struct err e;
    assert_int_equal(kit_verify_as(&known, WORKLOAD, 2, -1, &f, &e), 0);
}

static void a_store_that_is_not_here_gives_no_verdict(void **state)
{
    struct checkpoint_search q = question(1);
    char gone[128];
    struct asked a;

    (void)state;
    (void)snprintf(gone, sizeof gone, "%s/elsewhere", kit_base);
    q.at.base = gone;
    look_with(&q, &a);
    assert_int_equal(a.rc, E_NOTFOUND);
    assert_string_equal(a.err.field, CHECKPOINT_UNREACHABLE);
    buf_fini(&a.passed);
    q.at.base = kit_base;
    struct checkpoint_sealer *s = kit_sealer(1, 0); /* it ran here, and saved nothing */
    (void)checkpoint_sealer_destroy(s);
    finds(&q, NULL, 0, NULL);
}

/* What was read is left for who resumes, under the name that it looks for. */
static void proofs_are_left(void **state)
{
    struct checkpoint_search q = question(1);
    char proofs[128];

    (void)state;
    struct cut c = kit_saved(1, 10, "one");
    (void)snprintf(proofs, sizeof proofs, "%s/proofs", kit_base);
    q.proofs = proofs;
    finds(&q, &c, 10, NULL);
    assert_true(kit_exists("proofs/%s/0", c.digest + 7));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(the_newest_that_holds),
        T(foreign_ones_are_passed_over),
        T(seals_without_a_cut_are_gathered),
        T(a_store_that_is_not_here_gives_no_verdict),
        T(proofs_are_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
