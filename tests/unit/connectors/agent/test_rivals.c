/* Two agents with one certificate: a second machine, a wiped disk, a copied state folder. One is
 * taken and the other one told; and who speaks for the target is told with each session, so that
 * nobody's word counts for what was given to another one. */
#include "tests/support/agent_world.h"
#include "tests/support/run_kit.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool rival_is_told(void *arg)
{
    (void)arg;
    return A.side[0].rival[0] != '\0';
}

static bool memory_is(void *arg)
{
    return A.side[0].reachable && strcmp(A.side[0].memory, arg) == 0;
}

static void end(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

static void a_second_state_folder_is_turned_away(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = "exec sleep 600"};
    char first[64];
    struct asked a;

    (void)state;
    str_copy(first, sizeof first, A.side[0].memory);
    assert_int_equal(strlen(first), 32);
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await(&o.key, RUN_RUNNING);
    A.side[0].rival[0] = '\0';
    pid_t second = agent_second(0, "other");
    assert_true(agent_until(rival_is_told, NULL, PATIENCE_MS));
    assert_non_null(strstr(A.side[0].rival, "two agents speak for this target"));
    assert_true(A.side[0].reachable);
    assert_string_equal(A.side[0].memory, first);
    assert_int_equal(agent_find(0, &o.key, &a), OUT_DONE); /* asked of the one that has it */
    assert_int_equal(a.seen.state, RUN_RUNNING);
    assert_non_null(strstr(agent_file_text("other.log"), "two agents speak"));
    end(second);
    (void)agent_stop(0, &o.key, &a);
}

static void state_copy(const char *from, const char *to)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        (void)close(2); /* sockets are not copied, and cp says so */
        (void)execl("/bin/cp", "cp", "-r", agent_name("%s/%s", A.dir, from),
                    agent_name("%s/%s", A.dir, to), (char *)NULL);
        _exit(99);
    }
    (void)waitpid(pid, NULL, 0);
    assert_true(agent_file_exists("%s/id", to));
}

static void a_copied_state_folder_is_seen(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = "exec sleep 600"};
    char first[64];
    struct asked a;
    int status;

    (void)state;
    str_copy(first, sizeof first, A.side[0].memory);
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await(&o.key, RUN_RUNNING);
    state_copy("state-t1", "copy");
    pid_t second = agent_second(0, "copy"); /* it would end what it finds, and call that its own */
    assert_int_equal(waitpid(second, &status, 0), second);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0);
    assert_non_null(strstr(agent_file_text("copy.log"), "was copied"));
    assert_int_equal(agent_find(0, &o.key, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_RUNNING);
    (void)agent_stop(0, &o.key, &a);
    /* A clone of the whole machine has the same folder at the same place: here it is told to take
     * it. Its state is the same, and it is another process. */
    (void)unlink(agent_name("%s/copy/home", A.dir));
    A.side[0].rival[0] = '\0';
    second = agent_second(0, "copy");
    assert_true(agent_until(rival_is_told, NULL, PATIENCE_MS));
    assert_non_null(strstr(A.side[0].rival, "a copy of it"));
    assert_true(A.side[0].reachable);
    end(second);
}

static void one_that_restarts_is_no_rival(void **state)
{
    char first[64];

    (void)state;
    str_copy(first, sizeof first, A.side[0].memory);
    A.side[0].rival[0] = '\0';
    for (int i = 0; i < 3; i++) {
        agent_end(0, SIGKILL);
        agent_begin(0);
    }
    agent_cut_off(0, true);
    agent_cut_off(0, false);
    assert_string_equal(A.side[0].rival, "");
    assert_string_equal(A.side[0].memory, first);
}

/* Who spoke for it last has some seconds to come; then whoever is there is taken, and is another
 * one. */
static void a_machine_that_was_replaced_is_taken_in_the_end(void **state)
{
    char first[64];

    (void)state;
    str_copy(first, sizeof first, A.side[0].memory);
    A.side[0].rival[0] = '\0';
    agent_end(0, SIGKILL);
    uint64_t from = loop_now_ms(A.loop);
    pid_t second = agent_second(0, "new");
    agent_pass(2000);
    assert_false(A.side[0].reachable);
    agent_begin(0); /* the old one comes back in time */
    assert_true(memory_is(first));
    assert_true(agent_until(rival_is_told, NULL, PATIENCE_MS));
    agent_end(0, SIGKILL);
    while (loop_now_ms(A.loop) - from < 60000 && !A.side[0].reachable)
        agent_pass(100);
    assert_true(A.side[0].reachable);
    assert_string_not_equal(A.side[0].memory, first);
    A.side[0].agent = second;
    agent_end(0, SIGKILL);
    agent_begin(0); /* and waits in its turn */
    assert_string_equal(A.side[0].memory, first);
}

int main(int argc, char **argv)
{
    int rc = agent_world_main(argc, argv);

    if (rc >= 0)
        return rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_restarts_is_no_rival),
        cmocka_unit_test(a_second_state_folder_is_turned_away),
        cmocka_unit_test(a_copied_state_folder_is_seen),
        cmocka_unit_test(a_machine_that_was_replaced_is_taken_in_the_end),
    };
    return cmocka_run_group_tests(tests, agent_world_setup, agent_world_teardown);
}
