/* Child processes. This file must never leave a zombie: a process that is forgotten is still reaped
 * here. But for those that are kept (loop.h): they are reaped by who asked for that. */
#include "api/base/uv/uv_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct uv_child {
    struct process base;
    uv_process_t handle;
    struct list link;
    process_exit_cb cb; /* NULL: forgotten */
    void *arg;
    int64_t pid;
    bool session, kept;
    bool closed, forgotten; /* of one that is kept: freed when both */
};

#define CHILD_OF(p) container_of((p), struct uv_child, base)

static void child_free(uv_handle_t *h)
{
    mem_free(h->data);
}

static void kept_closed(uv_handle_t *h)
{
    struct uv_child *c = h->data;

    c->closed = true;
    if (c->forgotten)
        mem_free(c);
}

static void child_close(struct uv_child *c)
{
    list_remove(&c->link);
    uv_close((uv_handle_t *)&c->handle, child_free);
}

static void on_exit_(uv_process_t *h, int64_t code, int signo)
{
    struct uv_child *c = h->data;

    if (c->cb)
        c->cb(&c->base, (int)code, signo, c->arg);
    child_close(c);
}

void process_stdio_keep(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", O_RDWR); /* takes the lowest number that is free: this one */
}

/* Our own is never opened again by its name in /proc: that begins at offset 0, and fails for
 * sockets and for pipes of other users. */
static int open_output(const char *path, int own, int *ret_fd, struct err *err)
{
    int fd = -1;

    if (path && strcmp(path, PROCESS_OWN) == 0) {
        fd = fcntl(own, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        path = NULL;
    }
    if (fd < 0)
        fd = open(path ? path : "/dev/null", O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0)
        return err_errno(err, errno, "opening the output", path ? path : "/dev/null");
    *ret_fd = fd;
    return 0;
}

static int spawn_error(int rc, const struct process_spec *spec, struct err *err)
{
    struct stat st;

    if (spec->cwd && stat(spec->cwd, &st) != 0)
        return err_field(err, E_NOTFOUND, "cwd", "the working directory %s cannot be found: %s",
                         spec->cwd, strerror(errno));
    if (spec->cwd && !S_ISDIR(st.st_mode))
        return err_field(err, E_NOTFOUND, "cwd", "the working directory %s is not a directory",
                         spec->cwd);
    if (spec->cwd && access(spec->cwd, X_OK) != 0)
        return err_field(err, E_FORBIDDEN, "cwd", "the working directory %s may not be entered",
                         spec->cwd);
    if (rc == UV_ENOENT)
        return err_set(err, E_NOTFOUND, "no program %s in PATH", spec->argv[0]);
    if (rc == UV_EACCES)
        return err_set(err, E_FORBIDDEN, "%s may not be executed: check its mode", spec->argv[0]);
    if (rc == UV_E2BIG)
        return err_set(err, E_TOOLARGE, "arguments and environment of %s are too long",
                       spec->argv[0]);
    return err_set(err, rc == UV_EAGAIN || rc == UV_ENOMEM ? E_LIMIT : E_IO, "starting %s: %s",
                   spec->argv[0], uv_strerror(rc));
}

int uv_spawn_op(struct loop *l, const struct process_spec *spec, process_exit_cb cb, void *arg,
                struct process **ret, struct err *err)
{
    struct uv_impl *im = impl_of(l);
    int in = -1, out = -1, errfd = -1;
    int rc = open_output(spec->stdout_path, STDOUT_FILENO, &out, err);

    if (rc == 0)
        rc = open_output(spec->stderr_path, STDERR_FILENO, &errfd, err);
    if (rc == 0 && (in = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
        rc = err_errno(err, errno, "opening", "/dev/null");
    if (rc)
        goto done;
    struct uv_child *c = mem_new(struct uv_child);
    uv_stdio_container_t io[3] = {{.flags = UV_INHERIT_FD, .data.fd = in},
                                  {.flags = UV_INHERIT_FD, .data.fd = out},
                                  {.flags = UV_INHERIT_FD, .data.fd = errfd}};
    /* libuv declares these without const, and does not write to them. */
    union {
        const char *const *c;
        char **m;
    } argv = {spec->argv}, env = {spec->env};
    uv_process_options_t o = {.exit_cb = on_exit_,
                              .file = spec->argv[0],
                              .args = argv.m,
                              .env = env.m,
                              .cwd = spec->cwd,
                              .flags = spec->session ? UV_PROCESS_DETACHED : 0,
                              .stdio_count = 3,
                              .stdio = io};
    c->base.loop = l;
    c->handle.data = c;
    c->cb = cb;
    c->arg = arg;
    c->session = spec->session;
    list_push(&im->processes, &c->link);
    rc = uv_spawn(&im->uv, &c->handle, &o);
    if (rc) {
        rc = spawn_error(rc, spec, err);
        child_close(c);
        goto done;
    }
    c->pid = c->handle.pid;
    c->kept = spec->kept;
    if (c->kept) { /* libuv reaps what it has a handle of, before it says anything */
        list_remove(&c->link);
        uv_close((uv_handle_t *)&c->handle, kept_closed);
    }
    *ret = &c->base;
done:
    if (in >= 0)
        (void)close(in);
    if (out >= 0)
        (void)close(out);
    if (errfd >= 0)
        (void)close(errfd);
    return rc;
}

int64_t uv_pid_op(const struct process *p)
{
    return CHILD_OF(p)->pid;
}

void uv_signal_op(struct process *p, int signo)
{
    struct uv_child *c = CHILD_OF(p);

    (void)kill(c->session ? (pid_t)-c->pid : (pid_t)c->pid, signo);
}

void uv_unref_op(struct process *p)
{
    struct uv_child *c = CHILD_OF(p);

    c->cb = NULL;
    c->forgotten = true;
    if (c->kept && c->closed)
        mem_free(c);
}

void uv_processes_close(struct uv_impl *im)
{
    list_for_each_safe (it, tmp, &im->processes)
        child_close(container_of(it, struct uv_child, link));
}

/* ---- processes that are not children ---- */

/* Field 22 and the state. The name (field 2) may hold spaces and brackets: fields count from the
 * last ')'. */
static uint64_t proc_stat(int64_t pid, char *state)
{
    char path[64], text[1024];

    (void)snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    (void)close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    char *p = strrchr(text, ')');
    if (!p || p[1] != ' ' || !p[2])
        return 0;
    p += 2;
    *state = *p;
    for (int field = 3; field < 22; field++) {
        p = strchr(p, ' ');
        if (!p)
            return 0;
        p++;
    }
    return strtoull(p, NULL, 10);
}

uint64_t uv_start_ticks_op(struct loop *l, int64_t pid)
{
    char state;

    (void)l;
    return pid > 0 ? proc_stat(pid, &state) : 0;
}

bool uv_alive_op(struct loop *l, int64_t pid, uint64_t start_ticks)
{
    char state = 'X';

    (void)l;
    return pid > 0 && start_ticks && proc_stat(pid, &state) == start_ticks && state != 'Z' &&
           state != 'X';
}
