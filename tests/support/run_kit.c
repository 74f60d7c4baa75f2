/* See run_kit.h. */
#include "tests/support/run_kit.h"
#include "tests/support/unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS 20000

char run_dir[64];

static void *haunt(void *arg)
{
    for (;;)
        (void)pause();
    return arg;
}

static int escape_main(const char *file, bool ghost)
{
    for (int i = 0; i < 2; i++) {
        if (fork() > 0)
            _exit(0);
        (void)setsid();
    }
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    FILE *f = fopen(file, "w");
    if (!f)
        return 1;
    (void)fprintf(f, "%d\n", (int)getpid());
    (void)fclose(f);
    if (ghost) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, haunt, NULL) == 0)
            pthread_exit(NULL);
        return 1;
    }
    for (;;)
        (void)pause();
}

/* Forks, and its parent exits, over and over: each lives for a moment, in a session of its own. It
 * ends when its file goes, and by itself: a test that was killed leaves nobody who removes it. */
#define CHAIN_LINKS_MAX 20000
static int chain_main(const char *file)
{
    int fd = open(file, O_RDWR | O_CREAT, 0600);
    _Atomic long *n = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, sizeof *n) == 0)
        n = mmap(NULL, sizeof *n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (n == MAP_FAILED)
        return 1;
    (void)signal(SIGTERM, SIG_IGN);
    for (;;) {
        pid_t pid = fork();
        if (pid != 0)
            _exit(pid < 0);
        (void)setsid();
        if (access(file, F_OK) != 0 || atomic_load(n) > CHAIN_LINKS_MAX)
            _exit(0);
        (void)poll(NULL, 0, 1); /* the machine has other tests to run */
        atomic_fetch_add(n, 1);
    }
}

int run_kit_main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "run") == 0)
        return run_main(argc - 1, argv + 1);
    if (argc > 2 && strcmp(argv[1], "escape") == 0)
        return escape_main(argv[2], false);
    if (argc > 2 && strcmp(argv[1], "chain") == 0)
        return chain_main(argv[2]);
    if (argc > 2 && strcmp(argv[1], "ghost") == 0)
        return escape_main(argv[2], true);
    return -1;
}

/* ---- processes ---- */
static char stat_read(long pid, long *ret_parent)
{
    char path[64], state = 'X';

    (void)snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return 'X';
    if (fscanf(f, "%*d (%*[^)]) %c %ld", &state, ret_parent) != 2)
        state = 'X';
    (void)fclose(f);
    return state;
}

char pid_state(long pid)
{
    long parent;

    return stat_read(pid, &parent);
}

bool pid_alive(long pid)
{
    char state = pid_state(pid);

    return state != 'Z' && state != 'X';
}

long pid_parent(long pid)
{
    long parent = 0;

    return stat_read(pid, &parent) == 'X' ? 0 : parent;
}

int pid_threads(long pid)
{
    char path[64];
    int n = 0;

    (void)snprintf(path, sizeof path, "/proc/%ld/task", pid);
    DIR *d = opendir(path);
    if (!d)
        return 0;
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    (void)closedir(d);
    return n;
}

static long number_in(const char *path)
{
    long n = 0;
    FILE *f = fopen(path, "r");

    if (f) {
        if (fscanf(f, "%ld", &n) != 1)
            n = 0;
        (void)fclose(f);
    }
    return n;
}

long pid_child(long pid)
{
    char path[64];

    (void)snprintf(path, sizeof path, "/proc/%ld/task/%ld/children", pid, pid);
    return number_in(path);
}

long pid_in_file(const char *p)
{
    return number_in(p);
}

bool pid_await(long pid, const char *states, uint64_t ms)
{
    uint64_t until = run_now_ms() + ms;

    while (!strchr(states, pid_state(pid))) {
        if (run_now_ms() > until)
            return false;
        (void)poll(NULL, 0, 2);
    }
    return true;
}

/* ---- `hanse run` ---- */
int run_kit_setup(void **state)
{
    (void)state;
    (void)snprintf(run_dir, sizeof run_dir, "/tmp/hanse-run-XXXXXX");
    return mkdtemp(run_dir) ? 0 : -1;
}

int run_kit_teardown(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        (void)execlp("rm", "rm", "-rf", run_dir, (char *)NULL);
        _exit(1);
    }
    return waitpid(pid, NULL, 0) == pid ? 0 : -1;
}

const char *run_file(const char *name)
{
    static char path[8][256];
    static unsigned n;

    n = (n + 1) % 8;
    (void)snprintf(path[n], sizeof path[n], "%s/%s", run_dir, name);
    return path[n];
}

uint64_t run_now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

long run_pid(const char *name)
{
    const char *file = run_file(name);
    uint64_t until = run_now_ms() + PATIENCE_MS;
    long pid;

    while ((pid = number_in(file)) == 0) {
        if (run_now_ms() > until)
            fail_msg("nobody wrote his pid to %s", file);
        (void)poll(NULL, 0, 2);
    }
    return pid;
}

pid_t run_start(const char *key, const char *const *argv)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        (void)dup2(null, 1);
        if (!getenv("HANSE_TEST_VERBOSE"))
            (void)dup2(null, 2);
        union {
            const char *const *c;
            char **m;
        } a = {argv};
        if (!key || setenv(RUN_MARKER_ENV, key, 1) == 0)
            (void)execv("/proc/self/exe", a.m);
        _exit(99);
    }
    return pid;
}

int run_finish(pid_t pid)
{
    uint64_t until = run_now_ms() + PATIENCE_MS;
    int status;

    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (run_now_ms() > until) {
            (void)kill(pid, SIGKILL);
            fail_msg("hanse run did not end in %d ms", PATIENCE_MS);
        }
        (void)poll(NULL, 0, 2);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int run_all(const char *const *argv)
{
    return run_finish(run_start(NULL, argv));
}

void run_ended(struct run_report *ret)
{
    char text[4096];
    struct err err;
    const char *end = run_file(RUN_END_FILE);
    FILE *f = fopen(end, "r");

    if (!f)
        fail_msg("there is no %s", end);
    size_t n = fread(text, 1, sizeof text, f);
    (void)fclose(f);
    if (run_report_parse(text, n, ret, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(ret->step, RUN_STEP_ENDED);
    assert_int_equal(unlink(end), 0);
}
