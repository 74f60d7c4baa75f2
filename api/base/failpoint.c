/* Failpoints for tests (failpoint.h). Direct system calls on purpose: what dies here must not have
 * gone through a loop, a log or an allocation first. Empty in the release build. */
#include "api/base/failpoint.h"

#ifdef HANSE_FAILPOINTS
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SPEC_MAX 256
#define EXIT_STATUS 70
#define USAGE_STATUS 64

enum action { ACTION_KILL, ACTION_EXIT, ACTION_STOP, ACTION_PLANT };
struct spec {
    char name[128], role[64];
    unsigned long nth;
    enum action action;
};

bool failpoint_armed;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct spec own;
static bool has_own;
static unsigned long passed; /* of `own` */
static const char *file, *list, *role, *planted, *wall_shift;
static struct {
    void (*fn)(const char *name, void *arg);
    void *arg;
} hook;
static struct {
    ino_t inode;
    struct timespec written;
    unsigned long passed;
} seen; /* the file that is there now */

static bool action_parse(const char *s, enum action *ret)
{
    static const char *const names[] = {"kill", "exit", "stop", "plant"};

    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(s, names[i])) {
            *ret = (enum action)i;
            return true;
        }
    return false;
}

/* Cuts the text at the first `sep` and returns what follows, or NULL. */
static char *cut(char *s, char sep)
{
    char *at = strchr(s, sep);

    if (at)
        *at++ = '\0';
    return at;
}

static bool spec_parse(const char *text, struct spec *ret)
{
    char s[SPEC_MAX], *action, *nth, *where, *end = NULL;

    *ret = (struct spec){.nth = 1};
    if (strlen(text) >= sizeof s)
        return false;
    memcpy(s, text, strlen(text) + 1);
    s[strcspn(s, "\r\n")] = '\0';
    action = cut(s, '=');
    nth = cut(s, ':');
    where = cut(s, '@');
    if (!*s || strlen(s) >= sizeof ret->name || (where && strlen(where) >= sizeof ret->role))
        return false;
    memcpy(ret->name, s, strlen(s) + 1);
    if (where)
        memcpy(ret->role, where, strlen(where) + 1);
    if (nth) {
        ret->nth = strtoul(nth, &end, 10);
        if (end == nth || *end || !ret->nth)
            return false;
    }
    return !action || action_parse(action, &ret->action);
}

__attribute__((constructor)) void failpoint_init(void)
{
    const char *text = getenv("HANSE_FAILPOINT");

    file = getenv("HANSE_FAILPOINT_FILE");
    list = getenv("HANSE_FAILPOINT_LIST");
    role = getenv("HANSE_FAILPOINT_ROLE");
    wall_shift = getenv("HANSE_WALL_SHIFT_FILE");
    role = role ? role : "";
    has_own = text && *text;
    passed = 0;
    if (has_own && (!spec_parse(text, &own) || own.action == ACTION_PLANT)) {
        (void)fprintf(stderr, "HANSE_FAILPOINT=%s: expected NAME[@ROLE][:N][=kill|exit|stop]\n",
                      text);
        _exit(USAGE_STATUS);
    }
    failpoint_armed = has_own || (file && *file) || (list && *list) || planted || hook.fn;
}
void failpoint_plant(const char *name)
{
    planted = name;
    failpoint_init();
}
void failpoint_hook(void (*fn)(const char *name, void *arg), void *arg)
{
    hook.fn = fn;
    hook.arg = arg;
    failpoint_init();
}
bool failpoint_planted(const char *name)
{
    return planted && !strcmp(planted, name);
}

long long failpoint_wall_shift_ms(void)
{
    char text[512], *at = text, *end;
    int fd = wall_shift && *wall_shift ? open(wall_shift, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t n;

    if (fd < 0)
        return 0;
    n = read(fd, text, sizeof text - 1);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    for (;; at = end) {
        long pid = strtol(at, &end, 10);
        long long ms = strtoll(end, &end, 10);

        if (end == at)
            return 0;
        if (pid == 0 || pid == (long)getpid())
            return ms;
    }
}

static void die(enum action action)
{
    if (action == ACTION_EXIT)
        _exit(EXIT_STATUS);
    (void)raise(action == ACTION_STOP ? SIGSTOP : SIGKILL);
}

static bool meant(const struct spec *s, const char *name)
{
    return !strcmp(s->name, name) && (!*s->role || !strcmp(s->role, role));
}

static void append(const char *path, int flags, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);

    if (fd < 0)
        return;
    if (write(fd, text, strlen(text)) < 0)
        (void)fprintf(stderr, "%s: %s\n", path, strerror(errno));
    (void)close(fd);
}

/* Whoever renames it has it. */
static bool file_take(void)
{
    char fired[4096], line[64];

    (void)snprintf(fired, sizeof fired, "%s.fired", file);
    if (rename(file, fired))
        return false;
    (void)snprintf(line, sizeof line, "%ld\n", (long)getpid());
    append(fired, O_TRUNC, line);
    return true;
}

static bool file_fires(const char *name, bool plants, enum action *ret)
{
    char text[SPEC_MAX];
    struct spec s;
    struct stat st;
    int fd = open(file, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    bool known = fstat(fd, &st) == 0;
    (void)close(fd);
    if (n <= 0 || !known)
        return false;
    text[n] = '\0';
    if (!spec_parse(text, &s)) {
        (void)fprintf(stderr, "%s: expected NAME[@ROLE][:N][=kill|exit|stop|plant]: %s\n", file,
                      text);
        return false;
    }
    if (!meant(&s, name) || (s.action == ACTION_PLANT) != plants)
        return false;
    if (seen.inode != st.st_ino || memcmp(&seen.written, &st.st_mtim, sizeof seen.written)) {
        seen.inode = st.st_ino;
        seen.written = st.st_mtim;
        seen.passed = 0;
    }
    *ret = s.action;
    return ++seen.passed >= s.nth && file_take();
}

bool failpoint_takes(const char *name)
{
    enum action action;

    (void)pthread_mutex_lock(&mu);
    bool fires = file && *file && file_fires(name, true, &action);
    (void)pthread_mutex_unlock(&mu);
    return fires;
}

void failpoint_reached(const char *name)
{
    enum action action = ACTION_KILL;
    bool fires = false;

    if (hook.fn)
        hook.fn(name, hook.arg);
    (void)pthread_mutex_lock(&mu);
    if (list && *list) {
        char line[SPEC_MAX];
        (void)snprintf(line, sizeof line, "%s %s %ld\n", name, *role ? role : "-", (long)getpid());
        append(list, O_APPEND, line);
    }
    if (has_own && meant(&own, name) && ++passed == own.nth) {
        action = own.action;
        fires = true;
    }
    if (!fires && file && *file)
        fires = file_fires(name, false, &action);
    (void)pthread_mutex_unlock(&mu);
    if (fires)
        die(action);
}
#else
void failpoint_reached(const char *name)
{
    (void)name;
}
bool failpoint_planted(const char *name)
{
    (void)name;
    return false;
}
bool failpoint_takes(const char *name)
{
    (void)name;
    return false;
}
void failpoint_plant(const char *name)
{
    (void)name;
}
void failpoint_hook(void (*fn)(const char *name, void *arg), void *arg)
{
    (void)fn, (void)arg;
}
void failpoint_init(void)
{
}
#endif
