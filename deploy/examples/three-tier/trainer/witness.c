/* See witness.h. The lock is held over each write, so that no heartbeat can follow the stop
 * line. */
#include "deploy/examples/three-tier/trainer/witness.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BEAT_NS = 100 * 1000 * 1000, LINE_MAX_BYTES = 4000, FIELD_MAX = 300 };

struct witness {
    int fd;
    bool failed, stopping;
    uint32_t rank;
    uint64_t step, last_ns;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    char who[LINE_MAX_BYTES - 400]; /* the fields that never change, with their commas */
};

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A JSON string, the epoch a number; characters that JSON would want escaped, or that are no ASCII,
 * become '?'. */
static void witness_append_field(char *who, size_t size, const char *key, const char *variable)
{
    const char *value = getenv(variable);
    char clean[FIELD_MAX];
    size_t n = 0;
    for (; value && value[n] && n + 1 < sizeof clean; n++) {
        char c = value[n];
        clean[n] = c < ' ' || c > '~' || c == '"' || c == '\\' ? '?' : c;
    }
    clean[n] = '\0';
    size_t used = strlen(who);
    bool number = strcmp(key, "epoch") == 0 && n > 0 && n < 16 && clean[0] != '0' &&
                  strspn(clean, "0123456789") == n;
    const char *quote = number ? "" : "\"";
    (void)snprintf(who + used, size - used, ",\"%s\":%s%s%s", key, quote, clean, quote);
}

/* With the lock held. `more` is JSON text that begins with a comma, or empty. */
static void witness_write(struct witness *w, const char *event, const char *more)
{
    char line[LINE_MAX_BYTES];
    uint64_t now = clock_ns(CLOCK_BOOTTIME);
    int n = snprintf(
        line, sizeof line,
        "{\"t\":%llu,\"wall\":%llu,\"event\":\"%s\"%s,\"rank\":%u,\"pid\":%ld,\"step\":%llu"
        "%s}\n",
        (unsigned long long)now, (unsigned long long)clock_ns(CLOCK_REALTIME), event, w->who,
        w->rank, (long)getpid(), (unsigned long long)w->step, more);
    w->last_ns = now;
    ssize_t done = -1;
    do {
        done = write(w->fd, line, (size_t)n);
    } while (done < 0 && errno == EINTR);
    w->failed = w->failed || done != n;
}

static void *witness_thread(void *argument)
{
    struct witness *w = argument;
    (void)pthread_mutex_lock(&w->lock);
    while (!w->stopping) {
        uint64_t now = clock_ns(CLOCK_BOOTTIME);
        if (now - w->last_ns >= BEAT_NS) {
            witness_write(w, "heartbeat", ",\"from\":\"timer\"");
        }
        uint64_t left = BEAT_NS - (clock_ns(CLOCK_BOOTTIME) - w->last_ns) % BEAT_NS;
        uint64_t until = clock_ns(CLOCK_MONOTONIC) + left;
        struct timespec t = {.tv_sec = (time_t)(until / 1000000000u),
                             .tv_nsec = (long)(until % 1000000000u)};
        (void)pthread_cond_timedwait(&w->wake, &w->lock, &t);
    }
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void witness_describe(struct witness *w)
{
    static const char *const fields[][2] = {
        {"uid", "HANSE_WORKLOAD_UID"},    {"name", "HANSE_WORKLOAD_NAME"},
        {"namespace", "HANSE_NAMESPACE"}, {"epoch", "HANSE_EPOCH"},
        {"target", "HANSE_TARGET"},       {"node", "HANSE_NODE"},
        {"gpus", "HANSE_GPUS"},
    };
    _Static_assert(sizeof fields / sizeof fields[0] * (FIELD_MAX + 20) < sizeof w->who,
                   "all fields must fit");
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        witness_append_field(w->who, sizeof w->who, fields[i][0], fields[i][1]);
    }
}

struct witness *witness_open(const char *path, uint32_t rank, uint64_t step, char *why,
                             size_t why_size)
{
    struct witness *w = calloc(1, sizeof *w);
    if (!w) {
        (void)snprintf(why, why_size, "no memory for the witness");
        return NULL;
    }
    w->fd = -1;
    w->rank = rank;
    w->step = step;
    if (!path) {
        return w;
    }
    witness_describe(w);
    w->fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (w->fd >= 0) {
        witness_write(w, "start", "");
    }
    if (w->fd < 0 || w->failed) {
        (void)snprintf(why, why_size, "witness %s: %m", path);
        goto fail;
    }
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_cond_init(&w->wake, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    if (pthread_create(&w->thread, NULL, witness_thread, w) != 0) {
        (void)snprintf(why, why_size, "witness %s: no thread for its heartbeat", path);
        goto fail;
    }
    return w;
fail:
    if (w->fd >= 0) {
        (void)close(w->fd);
    }
    free(w);
    return NULL;
}

int witness_step(struct witness *w, uint64_t step)
{
    if (w->fd < 0) {
        return 0;
    }
    (void)pthread_mutex_lock(&w->lock);
    w->step = step;
    if (clock_ns(CLOCK_BOOTTIME) - w->last_ns >= BEAT_NS) {
        witness_write(w, "heartbeat", ",\"from\":\"loop\"");
    }
    bool failed = w->failed;
    (void)pthread_mutex_unlock(&w->lock);
    return failed ? -1 : 0;
}

int witness_note(struct witness *w, const char *event, uint64_t step)
{
    if (w->fd < 0) {
        return 0;
    }
    (void)pthread_mutex_lock(&w->lock);
    w->step = step;
    witness_write(w, event, "");
    bool failed = w->failed;
    (void)pthread_mutex_unlock(&w->lock);
    return failed ? -1 : 0;
}

struct witness *witness_close(struct witness *w, const char *reason, int status)
{
    if (!w) {
        return NULL;
    }
    if (w->fd >= 0) {
        (void)pthread_mutex_lock(&w->lock);
        w->stopping = true;
        (void)pthread_cond_signal(&w->wake);
        (void)pthread_mutex_unlock(&w->lock);
        (void)pthread_join(w->thread, NULL);
        char more[96];
        (void)snprintf(more, sizeof more, ",\"reason\":\"%s\",\"exit\":%d", reason, status);
        witness_write(w, "stop", more);
        (void)close(w->fd);
        (void)pthread_cond_destroy(&w->wake);
        (void)pthread_mutex_destroy(&w->lock);
    }
    free(w);
    return NULL;
}
