/* The last step before the program: joins the control group, asks to die with the shim, becomes the
 * program. A process of its own because the seam starts programs, and these three must happen
 * between fork and exec. */
#include "connectors/run/run.h"
#include "connectors/run/will_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int enter_exec(const char *group, int64_t parent, const char *will, const char *const *argv)
{
    union { /* execvp is declared without const, and does not write to it */
        const char *const *c;
        char **m;
    } args = {argv};
    char path[RUN_GROUP_MAX + 16];

    if (group && *group) {
        (void)snprintf(path, sizeof path, "%s/cgroup.procs", group);
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, "0", 1) != 1) {
            (void)fprintf(stderr, "hanse run: cannot join %s: %s\n", group, strerror(errno));
            return 126;
        }
        (void)close(fd);
    }
    if (parent) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != (pid_t)parent) /* it died before we asked */
            return 128 + SIGKILL;
    }
    if (*will && !will_program(will)) {
        (void)fprintf(stderr, "hanse run: cannot write %s: %s\n", will, strerror(errno));
        return 126;
    }
    (void)execvp(args.m[0], args.m);
    int e = errno;
    if (e == ENOENT)
        (void)fprintf(stderr, "hanse run: no program \"%s\" in PATH\n", argv[0]);
    else
        (void)fprintf(stderr, "hanse run: cannot start \"%s\": %s\n", argv[0], strerror(e));
    return e == ENOENT ? 127 : 126;
}
