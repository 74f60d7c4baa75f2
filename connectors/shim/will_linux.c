/* See will_linux.h. The file: "PID START" at its beginning, and INIT START of its namespace where
 * it has one, written by the program-to-be itself, so that a program which the will does not name
 * has never run; one letter for each flag from WILL_FLAGS on, by the shim or its guard; from
 * WILL_DEADLINE on, twice, until when the program may live. Not synced: it speaks of processes, and
 * a machine that went down has none. exit.json is, and goes before it. */
#include "connectors/shim/will_linux.h"

#include "connectors/shim/tree_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WILL_FLAGS 64
#define WILL_DEADLINE 72
#define WILL_MAX 128

static void will_path(const char *dir, char out[RUN_WILL_MAX])
{
    (void)snprintf(out, RUN_WILL_MAX, "%.4000s/" WILL_FILE, dir);
}

int will_begin(struct runner_os *os, const char *path, struct err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    (void)os;
    if (fd < 0)
        return err_set(err, errno == ENOSPC ? E_NOSPACE : E_IO, "opening %.300s: %s", path,
                       strerror(errno));
    (void)close(fd);
    return 0;
}

static bool put(const char *path, const char *p, size_t n, off_t at)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    bool ok = pwrite(fd, p, n, at) == (ssize_t)n;
    (void)close(fd);
    return ok;
}

bool will_program(const char *path, int64_t init)
{
    char s[WILL_FLAGS + 1];
    int n = snprintf(s, sizeof s, "%lld %llu", (long long)getpid(),
                     (unsigned long long)tree_process_start(getpid()));

    if (init && n < WILL_FLAGS)
        n += snprintf(s + n, sizeof s - (size_t)n, " %lld %llu", (long long)init,
                      (unsigned long long)tree_process_start(init));
    if (n < WILL_FLAGS)
        s[n++] = '\n';
    return put(path, s, (size_t)n, 0);
}

int will_open(const char *path)
{
    return *path ? open(path, O_WRONLY | O_CLOEXEC) : -1;
}

void will_flag_to(int fd, char flag)
{
    off_t at = flag == WILL_STOPPED      ? WILL_FLAGS
               : flag == WILL_LEASE_LOST ? WILL_FLAGS + 1
                                         : WILL_FLAGS + 2;

    if (fd >= 0)
        (void)!pwrite(fd, &flag, 1, at);
}

void will_flag(struct runner_os *os, const char *path, char flag)
{
    int fd = will_open(path);

    (void)os;
    will_flag_to(fd, flag);
    if (fd >= 0)
        (void)close(fd);
}

void will_deadline_tell(struct runner_os *os, const char *path, uint64_t until_ms, bool lost)
{
    char s[WILL_MAX];
    int n = snprintf(s, sizeof s, "%020llu %020llu\n", (unsigned long long)until_ms,
                     (unsigned long long)until_ms);

    (void)os;
    guard_deadline_tell(until_ms, lost);
    if (*path) /* a disk that takes nothing any more: then an agent that has restarted knows less */
        (void)put(path, s, (size_t)n, WILL_DEADLINE);
}

/* Twice, because it may be read while it is written: never a mixture of two. */
static uint64_t deadline_parse(const char *s, size_t n)
{
    char *end;
    uint64_t a, b;

    if (n < WILL_DEADLINE + 42 || s[WILL_DEADLINE] < '0')
        return 0;
    a = strtoull(s + WILL_DEADLINE, &end, 10);
    if (*end != ' ')
        return 0;
    b = strtoull(end, &end, 10);
    return *end == '\n' && a == b ? a : 0;
}

uint64_t will_deadline_read(struct runner_os *os, const char *dir)
{
    char path[RUN_WILL_MAX];
    struct will w = {0};

    (void)os;
    will_path(dir, path);
    for (int tries = 0; tries < 3 && !w.until_ms; tries++)
        (void)will_read(path, &w);
    return w.until_ms;
}

bool will_read(const char *path, struct will *ret)
{
    char s[WILL_MAX] = "", *end;
    int fd = *path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (fd < 0)
        return false;
    ssize_t n = read(fd, s, sizeof s - 1);
    (void)close(fd);
    if (n < 0)
        return false;
    *ret = (struct will){.pid = strtoll(s, &end, 10)};
    ret->start = *end == ' ' ? strtoull(end, &end, 10) : 0;
    ret->init = *end == ' ' ? strtoll(end, &end, 10) : 0;
    ret->init_start = *end == ' ' ? strtoull(end, &end, 10) : 0;
    if (*end != '\n' || ret->pid <= 0) /* cut off: it died before it became anything */
        ret->pid = ret->init = 0;
    ret->stopped = s[WILL_FLAGS] == WILL_STOPPED;
    ret->lease_lost = s[WILL_FLAGS + 1] == WILL_LEASE_LOST;
    ret->exited = s[WILL_FLAGS + 2] == WILL_EXITED;
    ret->until_ms = deadline_parse(s, (size_t)n);
    return true;
}

bool will_keeper_died(struct runner_os *os, const char *path)
{
    struct will w;

    (void)os;
    return will_read(path, &w) && w.init && !w.exited;
}

int64_t will_pid(struct runner_os *os, const char *dir)
{
    char path[RUN_WILL_MAX];
    struct will w;

    (void)os;
    will_path(dir, path);
    return will_read(path, &w) ? w.pid : 0;
}

bool will_exit_seen(struct runner_os *os, int64_t pid, int *ret_code, int *ret_signal)
{
    siginfo_t si = {0};

    (void)os;
    if (waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT) != 0 || si.si_pid == 0)
        return false;
    bool exited = si.si_code == CLD_EXITED;
    *ret_code = exited ? si.si_status : 0;
    *ret_signal = exited ? 0 : si.si_status;
    return true;
}

void will_exit_reap(struct runner_os *os, int64_t pid)
{
    (void)os;
    (void)waitpid((pid_t)pid, NULL, WNOHANG);
}

static bool exit_noted(const char *dir, struct run_report *ret)
{
    char path[RUN_WILL_MAX], text[8192];

    (void)snprintf(path, sizeof path, "%.4000s/" RUN_EXIT_FILE, dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text);
    (void)close(fd);
    return n > 0 && run_report_parse(text, (size_t)n, ret, NULL) == 0;
}

/* SIGKILL says nothing: the kernel sends it to the program when its shim dies, and so do we. Any
 * other end the program came to by itself, or had been asked for. */
static bool exit_inherited(const struct will *w, struct run_report *ret)
{
    int code, signo;

    /* The number alone may be another process's by now; together with its start it is not. */
    if (!w->pid || tree_process_start(w->pid) != w->start ||
        !will_exit_seen(NULL, w->pid, &code, &signo) || signo == SIGKILL)
        return false;
    run_report_exit(ret, code, signo);
    return true;
}

bool will_tell(const char *dir, const char *path, bool boot, struct run_report *ret)
{
    struct run_report r = {.step = RUN_STEP_ENDED};
    struct will w = {0};
    bool willed = will_read(path, &w);

    if (!(dir && exit_noted(dir, &r)) && !(boot && willed && exit_inherited(&w, &r)))
        return false;
    r.step = RUN_STEP_ENDED;
    r.unsealed = true;
    r.stopped = r.stopped || w.stopped;
    if (w.lease_lost && !r.lease_lost)
        run_report_lease_lost(&r);
    *ret = r;
    return true;
}

bool will_last_words(struct runner_os *os, const char *dir, bool boot, struct run_report *ret)
{
    char path[RUN_WILL_MAX];

    (void)os;
    will_path(dir, path);
    return will_tell(dir, path, boot, ret);
}

bool will_orphans_reap(struct runner_os *os, bool (*spared)(int64_t pid, void *arg), void *arg)
{
    (void)os;
    for (;;) {
        siginfo_t si = {0};
        if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) != 0 || si.si_pid == 0)
            return true;
        if (spared(si.si_pid, arg)) /* the kernel would tell us of the same one again */
            return false;
        (void)waitpid(si.si_pid, NULL, WNOHANG);
    }
}
