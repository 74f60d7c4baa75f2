/* The last step before the program: it joins the control group, arranges to die with the shim, and
 * becomes the program, or the keeper of its namespace. It is a process of its own because the seam
 * starts programs, and these three must happen between fork and exec. */
#include "connectors/shim/shim.h"
#include "connectors/shim/tree_linux.h"
#include "connectors/shim/will_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int enter_become(const char *const *argv)
{
    union { /* execvp is declared without const, and does not write to it */
        const char *const *c;
        char **m;
    } args = {argv};

    for (char **e = environ; e && *e; e++)
        if (strncmp(*e, RUN_PROGRAM_ENV, strlen(RUN_PROGRAM_ENV)) == 0)
            *e += strlen(RUN_PROGRAM_ENV);
    (void)execvp(args.m[0], args.m);
    int e = errno;
    if (e == ENOENT)
        (void)fprintf(stderr, "hanse run: no program \"%s\" in PATH\n", argv[0]);
    else
        (void)fprintf(stderr, "hanse run: cannot start \"%s\": %s\n", argv[0], strerror(e));
    return e == ENOENT ? 127 : 126;
}

int enter_group(const struct enter_spec *s)
{
    if (!*s->group || group_join(s->group))
        return 0;
    (void)fprintf(stderr, "hanse run: cannot join %s: %s\n", s->group, strerror(errno));
    return 126;
}

int enter_exec(const struct enter_spec *s, const char *const *argv)
{
    if (s->own_namespace)
        return namespace_run(s, argv);
    if (enter_group(s))
        return 126;
    if (s->parent) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != (pid_t)s->parent) /* it died before we asked */
            return 128 + SIGKILL;
    }
    if (*s->will && !will_program(s->will, 0)) {
        (void)fprintf(stderr, "hanse run: cannot write %s: %s\n", s->will, strerror(errno));
        return 126;
    }
    return enter_become(argv);
}
