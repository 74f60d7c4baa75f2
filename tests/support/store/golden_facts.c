/* What FACTS tells of a target beside its nodes: who speaks for it, for a part of it, what it took
 * back, and which nodes cannot be read. */
#include "tests/support/store/golden_commands.h"

void facts_agent_make(union command *c, struct arena *a)
{
    facts_make(c, a);
    (void)snprintf(c->facts.agent, sizeof c->facts.agent, "00aa11bb");
    (void)snprintf(c->facts.rival, sizeof c->facts.rival, "two agents");
}
void facts_agent_check(const union command *c)
{
    facts_check(c);
    assert_string_equal(c->facts.agent, "00aa11bb");
    assert_string_equal(c->facts.rival, "two agents");
}
void facts_denies_make(union command *c, struct arena *a)
{
    facts_agent_make(c, a);
    (void)snprintf(c->facts.denies, sizeof c->facts.denies, "run u1.1.1 lives");
}
void facts_denies_check(const union command *c)
{
    facts_agent_check(c);
    assert_string_equal(c->facts.denies, "run u1.1.1 lives");
}
void facts_part_make(union command *c, struct arena *a)
{
    facts_make(c, a);
    (void)snprintf(c->facts.agent, sizeof c->facts.agent, "00aa11bb");
    (void)snprintf(c->facts.part, sizeof c->facts.part, "b");
    (void)snprintf(c->facts.part_why, sizeof c->facts.part_why, "no heartbeat");
    c->facts.part_reached = true;
}
void facts_part_check(const union command *c)
{
    facts_check(c);
    assert_string_equal(c->facts.part, "b");
    assert_string_equal(c->facts.part_why, "no heartbeat");
    assert_true(c->facts.part_reached);
}

/* Some nodes cannot be read. */
void facts_refused_make(union command *c, struct arena *a)
{
    facts_make(c, a);
    c->facts.reach_told = c->facts.refused_told = true;
    (void)snprintf(c->facts.refused, sizeof c->facts.refused, "1 node cannot be read");
}

void facts_refused_check(const union command *c)
{
    facts_check(c);
    assert_true(c->facts.refused_told);
    assert_string_equal(c->facts.refused, "1 node cannot be read");
}

/* Nor can some of what it lists of runs. */
void facts_unread_make(union command *c, struct arena *a)
{
    facts_make(c, a);
    c->facts.reach_told = c->facts.unread_told = true;
    (void)snprintf(c->facts.unread, sizeof c->facts.unread, "1 run cannot be read");
}

void facts_unread_check(const union command *c)
{
    facts_check(c);
    assert_true(c->facts.unread_told);
    assert_string_equal(c->facts.unread, "1 run cannot be read");
}

/* How busy the GPUs of a run are. */
void run_use_make(union command *c, struct arena *a)
{
    run_make(c, a);
    c->run.step = STEP_USE;
    c->run.use = arena_new(a, struct gpu_use);
    *c->run.use = (struct gpu_use){.measured = 8000,
                                   .idle = 8000,
                                   .idleSince = TIME_MS,
                                   .percent = 7,
                                   .memory = 1 << 30,
                                   .told = true};
}
void run_use_check(const union command *c)
{
    assert_int_equal(c->run.step, STEP_USE);
    assert_int_equal(c->run.use->measured, 8000);
    assert_int_equal(c->run.use->idle, 8000);
    assert_int_equal(c->run.use->idleSince, TIME_MS);
    assert_int_equal(c->run.use->percent, 7);
    assert_int_equal(c->run.use->memory, 1 << 30);
    assert_true(c->run.use->told);
}
