/* Notices in the world of agents: what was told of them, and the command that announces them. */
#include "tests/support/agent_world.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void agent_on_notices(void *arg, const struct notice *v, size_t n)
{
    struct agent_side *x = arg;

    assert_true(n <= sizeof x->notices / sizeof *x->notices);
    for (size_t i = 0; i < n; i++)
        x->notices[i] = v[i];
    x->n_notices = n;
    x->noticed++;
}

pid_t agent_notice_begin(unsigned side, const char *const *words)
{
    char *argv[16] = {"hanse", "agent", "notice", "--state"}, state[600], log[600];
    size_t n = 5;

    (void)snprintf(state, sizeof state, "%s/state-%s", A.dir, A.side[side].target);
    (void)snprintf(log, sizeof log, "%s/notice.log", A.dir);
    argv[4] = state;
    for (size_t i = 0; words[i]; i++) {
        assert_true(n + 1 < sizeof argv / sizeof *argv);
        argv[n++] = (char *)(uintptr_t)words[i];
    }
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        (void)dup2(fd, 2);
        (void)execv("/proc/self/exe", argv);
        _exit(127);
    }
    return pid;
}

int agent_notice_end(pid_t pid)
{
    int status = 0;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

uint32_t agent_peers_told(void *arg, struct arena *a, const char ***ret)
{
    uint32_t n = 0;

    (void)arg;
    *ret = arena_array(a, const char *, 2);
    for (; n < 2 && A.peers[n]; n++)
        (*ret)[n] = A.peers[n];
    return n;
}
