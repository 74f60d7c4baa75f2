/* The runner's system calls that the seam does not have. */
#include "connectors/home/home_runner.h"

#include "connectors/ranks/ranks.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

void home_memory_keep(void)
{
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

int home_folder_make(const char *installed, char ret[HOME_FOLDER_MAX])
{
    const char *below = getenv("TMPDIR");
    int n = installed
                ? snprintf(ret, HOME_FOLDER_MAX, "%s/" HOME_INSTALLED_TMP "/run-XXXXXX", installed)
                : snprintf(ret, HOME_FOLDER_MAX, "%s/hanse-run-XXXXXX",
                           below && *below ? below : "/tmp");

    if (n < 0 || n >= HOME_FOLDER_MAX)
        return ENAMETOOLONG;
    return mkdtemp(ret) ? 0 : errno;
}

int home_path_env(const char *installed, struct err *err)
{
    const char *path = getenv("PATH");
    AUTO_ARENA a = arena_create(0);

    if (!path || !*path)
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    path = arena_printf(a, "%s:%s/" HOME_INSTALLED_BIN, path, installed);
    return setenv("PATH", path, 1) == 0 ? 0 : err_set(err, E_IO, "PATH cannot be set");
}

void home_output_write(const char *p, size_t n)
{
    while (n > 0) {
        ssize_t done = write(STDOUT_FILENO, p, n);
        struct pollfd room = {.fd = STDOUT_FILENO, .events = POLLOUT};
        if (done < 0 && errno == EAGAIN) /* whoever else has it made it so */
            (void)poll(&room, 1, -1);
        else if (done < 0 && errno != EINTR)
            return;
        p += done > 0 ? done : 0;
        n -= done > 0 ? (size_t)done : 0;
    }
}

int home_peers_env(int64_t rank, int64_t ranks, struct err *err)
{
    const struct ranks_place at = {
        .host = getenv(RANKS_HOST), .port = getenv(RANKS_PORT), .rank = rank, .world = ranks};
    const struct ranks_name *v;
    AUTO_ARENA a = arena_create(0);

    if (ranks < 2 || !at.host || !*at.host || !at.port || !*at.port)
        return 0;
    size_t n = ranks_names(&at, a, &v);
    for (size_t i = 0; i < n; i++)
        if (setenv(v[i].name, v[i].value, 0) != 0)
            return err_set(err, E_IO, "%s cannot be set", v[i].name);
    return 0;
}
