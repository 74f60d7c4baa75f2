/* A gang whose ranks are with two agents: ordered, told of, stopped and ended as one, whichever of
 * the two refuses, is silent, fails or forgets. */
#include "tests/support/agent/fleet_world.h"

static struct assignment seats[3] = {
    {.node = "t.b.n", .rank = 0}, {.node = "t.a.n", .rank = 1}, {.node = "t.b.m", .rank = 2}};
static const char *env_given[2];
static char env_text[] = "SECRET=1";

static const char *base = "";
static bool shared;
static int64_t look_epoch;
static char log_text[] = "/logs";

/* Rank 0 is at b. */
static void order_or_stage(bool stage)
{
    struct placement p = {.target = "t", .assignments = seats, .n_assignments = 3};
    struct run_order o = {.key = key,
                          .placement = &p,
                          .checkpoint_dir = base,
                          .resume_path = "/ck/old",
                          .resume_digest = "d",
                          .look_epoch = look_epoch,
                          .shared = shared,
                          .log_base = log_text,
                          .env = env_given,
                          .grace_ms = 3000};

    env_given[0] = env_text;
    w.at[0] = "t.b.n";
    w.at[1] = "t.a.n";
    w.at[2] = "t.b.m";
    (stage ? w.c->ops->stage : w.c->ops->submit)(w.c, &o, call());
    str_copy(env_text, sizeof env_text, "gone"); /* it was borrowed for the call */
    str_copy(log_text, sizeof log_text, "gone");
}

static void order(void)
{
    order_or_stage(false);
}

static void begin(void)
{
    str_copy(env_text, sizeof env_text, "SECRET=1");
    str_copy(log_text, sizeof log_text, "/logs");
    base = "";
    shared = false;
    look_epoch = 0;
    world_init();
    comes(0, "sa");
    comes(1, "sb");
}

/* Both have it, and it runs. */
static void runs(void)
{
    begin();
    fakes[1]->port = 15007;
    order();
    says(1, SUBMIT, RUN_RUNNING);
    says(0, SUBMIT, RUN_RUNNING);
    assert_int_equal(w.out, OUT_DONE);
}

static struct observation ends(int exit_code, bool stopped)
{
    struct observation o = is(RUN_ENDED);

    o.exit_code = exit_code;
    o.stopped = stopped;
    o.proof = PROOF_TREE_GONE;
    return o;
}

static void finds(struct observation a, struct observation b)
{
    w.c->ops->find(w.c, &key, call());
    answer(0, FIND, OUT_DONE, &a);
    answer(1, FIND, OUT_DONE, &b);
    assert_int_equal(w.done, 1);
    assert_int_equal(w.out, OUT_DONE);
}

static void news(unsigned at, enum run_state state)
{
    const struct connector_env *e = &fakes[at]->base.env;
    struct observation o = is(state);

    e->events->observed(e->arg, &o);
}

/* ---- the order ---- */
static void test_the_first_tells_the_others_where_they_meet(void **state)
{
    (void)state;
    begin();
    fakes[1]->port = 15007;
    order();
    assert_int_equal(fakes[0]->asked[SUBMIT], 0); /* not before the port is known */
    assert_int_equal(fakes[1]->order.n, 2);
    assert_int_equal(fakes[1]->order.rank, 0);
    assert_int_equal(fakes[1]->order.port, 0);
    says(1, SUBMIT, RUN_RUNNING);
    assert_int_equal(w.done, 0);
    assert_int_equal(fakes[0]->order.n, 1);
    assert_int_equal(fakes[0]->order.rank, 1);
    assert_int_equal(fakes[0]->order.world, 3);
    assert_int_equal(fakes[0]->order.port, 15007);
    assert_int_equal(fakes[0]->order.n_peers, 2);
    assert_string_equal(fakes[0]->order.address, "10.0.0.2");
    assert_string_equal(fakes[0]->order.env, "SECRET=1");
    assert_string_equal(fakes[0]->staged.log, "/logs");
    says(0, SUBMIT, RUN_STARTING);
    assert_int_equal(w.out, OUT_DONE);
    assert_int_equal(w.seen.state, RUN_STARTING); /* not all of it runs */
    world_fini();
}

static void test_what_the_first_refuses_has_had_no_effect(void **state)
{
    (void)state;
    begin();
    order();
    answer(1, SUBMIT, OUT_REJECTED, NULL);
    assert_int_equal(w.out, OUT_REJECTED);
    assert_int_equal(fakes[0]->asked[SUBMIT] + fakes[0]->asked[STOP] + fakes[1]->asked[STOP], 0);
    goes(0);
    order(); /* nor is anything asked for while one of them is away */
    assert_int_equal(w.done, 0);
    pass(20);
    assert_int_equal(w.out, OUT_REJECTED);
    assert_non_null(strstr(w.err.text, "agent a of target t is away"));
    assert_int_equal(fakes[1]->asked[SUBMIT], 1);
    world_fini();
}

static void test_what_cannot_meet_is_refused(void **state)
{
    static const char *const others[] = {"c", "d", "a", "b", NULL}; /* the latter have none, then */
    struct object *changed = document(others, "first");

    (void)state;
    begin();
    w.c->ops->update(w.c, changed);
    (void)object_unref(changed);
    order();
    pass(20);
    assert_int_equal(w.out, OUT_REJECTED);
    assert_int_equal(w.refused, REFUSED_INVALID);
    assert_non_null(strstr(w.err.text, "agent b, and spec.agents of target t has no address"));
    world_fini();
}

/* Whatever became of the part that did not take it: none of it goes on, nothing is sent anew. */
static void half_taken(enum outcome out)
{
    struct observation o;

    begin();
    fakes[1]->port = 15007;
    order();
    says(1, SUBMIT, RUN_RUNNING);
    answer(0, SUBMIT, out, NULL);
    assert_int_equal(w.out, OUT_UNKNOWN); /* even where it was refused: the other one has it */
    assert_int_equal(fakes[0]->asked[STOP] + fakes[1]->asked[STOP], 2);
    assert_int_equal(fakes[1]->grace_ms, 3000);
    order();
    pass(20);
    assert_int_equal(w.out, OUT_UNKNOWN);
    assert_int_equal(fakes[1]->asked[SUBMIT], 1);
    says(0, STOP, RUN_ABSENT);
    o = ends(143, true);
    answer(1, STOP, OUT_DONE, &o);
    says(0, FIND, RUN_ABSENT); /* and is looked at once more */
    answer(1, FIND, OUT_DONE, &o);
    assert_int_equal(w.tellings, 1);
    assert_int_equal(w.told.state, RUN_ENDED);
    assert_string_equal(w.told.reason, "StartFailed");
    assert_non_null(strstr(w.told.message, "agent a did not take its part of the gang"));
    assert_int_equal(w.told.proof, PROOF_TREE_GONE);
    order(); /* it is over: agents answer for themselves */
    answer(1, SUBMIT, OUT_DONE, &o);
    assert_int_equal(w.out, OUT_UNKNOWN);
    world_fini();
}

static void test_a_gang_that_was_half_taken_is_stopped(void **state)
{
    (void)state;
    half_taken(OUT_REJECTED);
    half_taken(OUT_UNKNOWN);
}

/* Of one that could not be stopped either, for it is away: by and by. */
static void test_what_came_back_of_it_is_stopped(void **state)
{
    struct observation o = ends(143, true);

    (void)state;
    begin();
    fakes[1]->port = 15007;
    order();
    says(1, SUBMIT, RUN_RUNNING);
    answer(0, SUBMIT, OUT_UNKNOWN, NULL);
    answer(0, STOP, OUT_REJECTED, NULL);
    answer(1, STOP, OUT_DONE, &o);
    news(0, RUN_RUNNING); /* it had the order after all */
    says(0, FIND, RUN_RUNNING);
    answer(1, FIND, OUT_DONE, &o);
    assert_int_equal(fakes[0]->asked[STOP], 2);
    assert_int_equal(fakes[1]->asked[STOP], 1);
    assert_int_equal(w.told.state, RUN_RUNNING); /* for as long as any of it lives */
    world_fini();
}

/* ---- what is true of it ---- */
static void test_news_of_a_part_is_none_of_the_whole(void **state)
{
    (void)state;
    begin();
    fakes[1]->port = 15007;
    order();
    news(1, RUN_STARTING); /* the other one would promise to refuse what is on its way to it */
    assert_int_equal(fakes[0]->asked[FIND] + fakes[1]->asked[FIND], 0);
    says(1, SUBMIT, RUN_STARTING);
    says(0, SUBMIT, RUN_STARTING);
    assert_int_equal(w.tellings, 0);
    says(0, FIND, RUN_STARTING); /* asked once it was taken */
    says(1, FIND, RUN_RUNNING);
    assert_int_equal(w.tellings, 1);
    assert_int_equal(w.told.state, RUN_STARTING);
    news(0, RUN_RUNNING);
    news(0, RUN_RUNNING); /* while it is asked for: once more */
    says(0, FIND, RUN_RUNNING);
    says(1, FIND, RUN_RUNNING);
    assert_int_equal(w.told.state, RUN_RUNNING);
    says(0, FIND, RUN_RUNNING);
    answer(1, FIND, OUT_UNKNOWN, NULL);
    assert_int_equal(w.tellings, 2); /* what is not known of a part is not told */
    w.at[2] = w.at[1] = NULL;        /* all of it is with one */
    news(1, RUN_STARTING);
    assert_int_equal(w.told.state, RUN_STARTING);
    world_fini();
}

static void test_all_parts_make_the_whole(void **state)
{
    struct observation a = is(RUN_RUNNING), b = is(RUN_RUNNING);

    (void)state;
    runs();
    a.grant = 3;
    b.grant = 2;
    a.lease_held = true;
    finds(a, b);
    assert_int_equal(w.seen.state, RUN_RUNNING);
    assert_int_equal(w.seen.grant, 2);
    assert_false(w.seen.lease_held);
    b.lease_held = true;
    finds(a, b);
    assert_true(w.seen.lease_held);
    finds(a, ends(0, false)); /* done, and no failure: the other one goes on */
    assert_int_equal(w.seen.state, RUN_RUNNING);
    assert_int_equal(fakes[0]->asked[STOP], 0);
    finds(a, is(RUN_UNKNOWN));
    assert_int_equal(w.seen.state, RUN_UNKNOWN);
    finds(ends(0, false), is(RUN_UNKNOWN));
    assert_int_equal(w.seen.state, RUN_UNKNOWN);
    world_fini();
}

static void test_a_part_that_fails_takes_the_others_with_it(void **state)
{
    (void)state;
    runs();
    finds(is(RUN_RUNNING), ends(9, false));
    assert_int_equal(w.seen.state, RUN_RUNNING);
    assert_int_equal(fakes[0]->asked[STOP], 1);
    assert_int_equal(fakes[0]->grace_ms, 7000); /* as the log has it */
    assert_int_equal(fakes[1]->asked[STOP], 0);
    finds(is(RUN_RUNNING), ends(9, false)); /* it is on its way */
    assert_int_equal(fakes[0]->asked[STOP], 1);
    struct observation o = ends(75, true), failed = ends(9, false);
    answer(0, STOP, OUT_DONE, &o);
    answer(0, FIND, OUT_DONE, &o);
    answer(1, FIND, OUT_DONE, &failed);
    assert_int_equal(w.told.state, RUN_ENDED);
    assert_int_equal(w.told.exit_code, 9); /* the first that failed on its own tells why */
    finds(ends(75, true), ends(0, true)); /* stopped: one saved, one was done */
    assert_int_equal(w.seen.exit_code, 75);
    finds(ends(0, false), ends(0, false));
    assert_int_equal(w.seen.exit_code, 0);
    o = ends(0, false);
    o.proof = PROOF_TREE_SEARCHED;
    finds(ends(0, false), o);
    assert_int_equal(w.seen.proof, PROOF_TREE_SEARCHED); /* the weakest */
    finds(is(RUN_ABSENT), is(RUN_ABSENT));
    assert_int_equal(w.seen.state, RUN_ABSENT);
    world_fini();
}

/* Absent proves that it never started, and it was seen running: it may run on. */
static void test_a_part_that_forgets_proves_nothing(void **state)
{
    (void)state;
    runs();
    w.ran = true;
    finds(ends(1, false), is(RUN_ABSENT));
    assert_int_equal(w.seen.state, RUN_UNKNOWN);
    assert_non_null(strstr(w.seen.message, "agent b of target t says that nothing"));
    world_fini();
}

/* The end of one part, in the answer to a signal, is not that of the whole. */
static void test_a_signal_reaches_all(void **state)
{
    struct observation o = ends(75, true);

    (void)state;
    runs();
    w.c->ops->quiesce(w.c, &key, 15, 1000, call());
    answer(0, QUIESCE, OUT_DONE, &o);
    assert_int_equal(w.done, 0);
    says(1, QUIESCE, RUN_RUNNING);
    assert_int_equal(w.out, OUT_DONE);
    assert_int_equal(w.seen.state, RUN_RUNNING);
    w.c->ops->stop(w.c, &key, 1000, call());
    answer(0, STOP, OUT_DONE, &o);
    answer(1, STOP, OUT_DONE, &o);
    assert_int_equal(w.seen.state, RUN_ENDED);
    assert_int_equal(w.seen.exit_code, 75);
    world_fini();
}

/* A leader counts a renewal for all of it or not at all: the agents hear who is in reach. */
static void test_renewals_say_who_is_in_reach(void **state)
{
    (void)state;
    runs();
    assert_true(w.c->ops->reaches(w.c, &key));
    w.c->ops->renew(w.c, NULL, 0);
    assert_int_equal(fakes[0]->n_peers, 2);
    goes(1);
    assert_false(w.c->ops->reaches(w.c, &key));
    w.c->ops->renew(w.c, NULL, 0);
    assert_int_equal(fakes[0]->n_peers, 1);
    world_fini();
}

/* ---- what it saves ---- */
static struct observation saved_at(int64_t step)
{
    struct observation o = is(RUN_RUNNING);

    o.checkpoint = (struct run_checkpoint_report){.present = true, .step = step};
    return o;
}

/* All of them go by one store before any of them is ordered anything. */
static void test_who_saves_meets_at_its_store_first(void **state)
{
    (void)state;
    begin();
    base = "/ck/ns/w";
    fakes[1]->port = 15007;
    order();
    assert_true(fakes[1]->staged.leaves);
    assert_true(strncmp(fakes[1]->staged.meeting, "u.1.1.", 6) == 0);
    assert_int_equal(fakes[0]->asked[STAGE] + fakes[1]->asked[SUBMIT], 0);
    answer(1, STAGE, OUT_DONE, NULL);
    assert_false(fakes[0]->staged.leaves);
    assert_string_equal(fakes[0]->staged.meeting, fakes[1]->staged.meeting);
    news(1, RUN_STARTING); /* of an older try: nobody is asked while it is on its way */
    assert_int_equal(fakes[0]->asked[FIND] + fakes[1]->asked[SUBMIT], 0);
    answer(0, STAGE, OUT_DONE, NULL);
    assert_int_equal(fakes[0]->asked[SUBMIT], 0);
    says(1, SUBMIT, RUN_RUNNING);
    assert_string_equal(fakes[0]->order.env, "SECRET=1");
    says(0, SUBMIT, RUN_RUNNING);
    assert_int_equal(w.out, OUT_DONE);
    world_fini();
}

static void unseen(unsigned at, int code, enum refusal_class class_, const char *text)
{
    struct call *c;
    struct err err = {0};

    begin();
    base = "/ck/ns/w";
    order();
    if (at == 0)
        answer(1, STAGE, OUT_DONE, NULL);
    c = fakes[at]->open[STAGE];
    fakes[at]->open[STAGE] = NULL;
    (void)err_set(&err, code, "so it was told to");
    if (code != E_TIMEOUT)
        c->refused = refusal_of_code(code);
    c->done(c, code == E_TIMEOUT ? OUT_UNKNOWN : OUT_REJECTED, NULL, &err);
    assert_int_equal(w.done, 1);
    assert_int_equal(w.out, OUT_REJECTED); /* whatever is not known: nothing was ordered */
    assert_int_equal(w.refused, class_);
    assert_non_null(strstr(w.err.text, text));
    assert_int_equal(fakes[0]->asked[SUBMIT] + fakes[1]->asked[SUBMIT], 0);
    assert_int_equal(fakes[0]->asked[STOP] + fakes[1]->asked[STOP], 0);
    world_fini();
}

static void test_who_does_not_see_it_is_ordered_nothing(void **state)
{
    (void)state;
    unseen(0, E_INVALID, REFUSED_INVALID, "so it was told to");
    unseen(1, E_FORBIDDEN, REFUSED_AUTHORISATION, "so it was told to");
    unseen(0, E_TIMEOUT, REFUSED_CONFLICT, "agent a could not tell in time whether");
    unseen(1, E_TIMEOUT, REFUSED_CONFLICT, "agent b could not tell");
}

/* There is no folder that all could write to. */
static void test_one_folder_of_all_is_none_elsewhere(void **state)
{
    (void)state;
    begin();
    base = "s3://bucket/ns/w";
    shared = true;
    order();
    pass(20);
    assert_int_equal(w.out, OUT_REJECTED);
    assert_int_equal(w.refused, REFUSED_INVALID);
    assert_non_null(strstr(w.err.text, "layout shared needs a folder"));
    order_or_stage(true);
    pass(20);
    assert_int_equal(w.out, OUT_REJECTED);
    assert_int_equal(fakes[1]->asked[STAGE], 0);
    world_fini();
}

static void test_each_reads_what_it_resumes_from(void **state)
{
    struct observation o = is(RUN_UNKNOWN);

    (void)state;
    begin();
    base = "/ck/ns/w";
    order_or_stage(true);
    assert_string_equal(fakes[0]->staged.resume, "/ck/old");
    assert_int_equal(fakes[0]->staged.world, 3); /* all of it */
    says(0, STAGE, RUN_UNKNOWN);
    assert_int_equal(w.done, 0);
    says(1, STAGE, RUN_UNKNOWN);
    assert_int_equal(w.out, OUT_DONE);
    order_or_stage(true);
    str_copy(o.reason, sizeof o.reason, "CheckpointTorn");
    answer(0, STAGE, OUT_UNKNOWN, NULL);
    answer(1, STAGE, OUT_REJECTED, &o); /* one verdict is enough */
    assert_int_equal(w.out, OUT_REJECTED);
    assert_string_equal(w.seen.reason, "CheckpointTorn");
    order_or_stage(true);
    says(0, STAGE, RUN_UNKNOWN);
    answer(1, STAGE, OUT_UNKNOWN, NULL);
    assert_int_equal(w.out, OUT_UNKNOWN);
    world_fini();
}

/* One looks, and the others read what it found; or what was known, where that is the newest. */
static void test_one_looks_for_all(void **state)
{
    struct observation o = is(RUN_UNKNOWN);

    (void)state;
    begin();
    base = "/ck/ns/w";
    look_epoch = 4;
    order_or_stage(true);
    assert_int_equal(fakes[0]->staged.look, 4);
    assert_int_equal(fakes[1]->asked[STAGE], 0);
    o.checkpoint.present = true;
    str_copy(o.checkpoint.path, sizeof o.checkpoint.path, "/ck/new");
    str_copy(o.checkpoint.digest, sizeof o.checkpoint.digest, "e");
    answer(0, STAGE, OUT_DONE, &o);
    assert_int_equal(fakes[1]->staged.look, 0);
    assert_string_equal(fakes[1]->staged.resume, "/ck/new");
    says(1, STAGE, RUN_UNKNOWN);
    assert_int_equal(w.out, OUT_DONE);
    assert_string_equal(w.seen.checkpoint.path, "/ck/new");
    order_or_stage(true);
    says(0, STAGE, RUN_UNKNOWN);
    assert_string_equal(fakes[1]->staged.resume, "/ck/old");
    answer(1, STAGE, OUT_REJECTED, NULL);
    assert_int_equal(w.out, OUT_REJECTED);
    order_or_stage(true);
    answer(0, STAGE, OUT_UNKNOWN, NULL);
    assert_int_equal(w.out, OUT_UNKNOWN);
    order_or_stage(true);
    world_fini();
    assert_int_equal(w.out, OUT_UNKNOWN);
}

/* A cut is one of all ranks: whoever tells it, and whatever is not known of the others. */
static void test_a_checkpoint_is_told_while_a_part_is_silent(void **state)
{
    const struct connector_env *e;
    struct observation o = saved_at(40);

    (void)state;
    runs();
    finds(saved_at(30), saved_at(20));
    assert_int_equal(w.seen.checkpoint.step, 30);
    e = &fakes[0]->base.env;
    e->events->observed(e->arg, &o);
    assert_int_equal(w.saved.step, 40);
    assert_int_equal(w.tellings, 0);
    answer(0, FIND, OUT_DONE, &o);
    answer(1, FIND, OUT_UNKNOWN, NULL);
    assert_int_equal(w.tellings, 0);
    world_fini();
}

static struct observation asked(int64_t number, enum save_state state)
{
    struct observation o = is(RUN_RUNNING);

    o.save = (struct run_save){.present = number > 0, .number = number, .state = state};
    return o;
}

static void test_all_have_saved_or_none(void **state)
{
    (void)state;
    runs();
    w.c->ops->checkpoint(w.c, &key, 7, 1000, call());
    answer(0, SAVE, OUT_DONE, NULL);
    assert_int_equal(w.done, 0);
    answer(1, SAVE, OUT_DONE, NULL);
    assert_int_equal(w.out, OUT_DONE);
    finds(asked(7, SAVE_DONE), asked(0, SAVE_ASKED));
    assert_int_equal(w.seen.save.state, SAVE_ASKED);
    assert_int_equal(w.seen.save.number, 7);
    finds(asked(7, SAVE_DONE), asked(6, SAVE_DONE));
    assert_int_equal(w.seen.save.state, SAVE_ASKED);
    finds(asked(7, SAVE_DONE), asked(7, SAVE_ASKED));
    assert_int_equal(w.seen.save.state, SAVE_ASKED);
    finds(asked(7, SAVE_DONE), asked(7, SAVE_DONE));
    assert_int_equal(w.seen.save.state, SAVE_DONE);
    finds(asked(7, SAVE_FAILED), asked(7, SAVE_ASKED));
    assert_int_equal(w.seen.save.state, SAVE_FAILED);
    finds(asked(7, SAVE_DONE), ends(0, false)); /* it saves no more */
    assert_int_equal(w.seen.save.state, SAVE_DONE);
    finds(asked(0, SAVE_ASKED), asked(0, SAVE_ASKED));
    assert_false(w.seen.save.present);
    world_fini();
}

static void test_what_is_open_ends_with_the_connector(void **state)
{
    (void)state;
    runs();
    finds(is(RUN_RUNNING), ends(9, false));
    news(0, RUN_RUNNING);
    news(1, RUN_ENDED);
    world_fini();
    begin();
    order();
    world_fini();
    assert_int_equal(w.out, OUT_UNKNOWN);
    begin();
    fakes[1]->port = 1;
    order();
    says(1, SUBMIT, RUN_RUNNING);
    world_fini();
    assert_int_equal(w.out, OUT_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_tells_the_others_where_they_meet),
        cmocka_unit_test(test_what_the_first_refuses_has_had_no_effect),
        cmocka_unit_test(test_what_cannot_meet_is_refused),
        cmocka_unit_test(test_a_gang_that_was_half_taken_is_stopped),
        cmocka_unit_test(test_what_came_back_of_it_is_stopped),
        cmocka_unit_test(test_news_of_a_part_is_none_of_the_whole),
        cmocka_unit_test(test_all_parts_make_the_whole),
        cmocka_unit_test(test_a_part_that_fails_takes_the_others_with_it),
        cmocka_unit_test(test_a_part_that_forgets_proves_nothing),
        cmocka_unit_test(test_a_signal_reaches_all),
        cmocka_unit_test(test_renewals_say_who_is_in_reach),
        cmocka_unit_test(test_who_saves_meets_at_its_store_first),
        cmocka_unit_test(test_who_does_not_see_it_is_ordered_nothing),
        cmocka_unit_test(test_one_folder_of_all_is_none_elsewhere),
        cmocka_unit_test(test_each_reads_what_it_resumes_from),
        cmocka_unit_test(test_one_looks_for_all),
        cmocka_unit_test(test_a_checkpoint_is_told_while_a_part_is_silent),
        cmocka_unit_test(test_all_have_saved_or_none),
        cmocka_unit_test(test_what_is_open_ends_with_the_connector),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
