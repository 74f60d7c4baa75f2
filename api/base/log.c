/* The structured log. One line an event on stderr, written with one call so that lines of threads
 * do not mix. This file must never block on anything but stderr, and never let one noisy event
 * drown the others: each event name may write 100 lines a second, then one line tells how many were
 * dropped. */
#include "api/base/log.h"
#include "api/base/mem.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PER_SECOND 100
#define SLOTS 128

struct slot {
    char event[48];
    int64_t second;
    unsigned count, dropped;
};

static struct {
    pthread_mutex_t mu;
    enum log_level min;
    bool json;
    void (*capture)(const char *line, void *arg);
    void *capture_arg;
    unsigned dropping; /* slots with dropped > 0 */
    struct slot slots[SLOTS];
} logger = {.mu = PTHREAD_MUTEX_INITIALIZER, .min = LOG_INFO};

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void log_set(enum log_level min_level, bool json)
{
    (void)pthread_mutex_lock(&logger.mu);
    logger.min = min_level;
    logger.json = json;
    (void)pthread_mutex_unlock(&logger.mu);
}

void log_capture(void (*fn)(const char *line, void *arg), void *arg)
{
    (void)pthread_mutex_lock(&logger.mu);
    logger.capture = fn;
    logger.capture_arg = arg;
    memset(logger.slots, 0, sizeof logger.slots);
    logger.dropping = 0;
    (void)pthread_mutex_unlock(&logger.mu);
}

static bool bare(const char *s)
{
    if (!*s)
        return false;
    for (; *s; s++)
        if ((unsigned char)*s <= ' ' || *s == '"' || *s == '=' || *s == '\\' || *s == 0x7f)
            return false;
    return true;
}

static void put_quoted(struct buf *b, const char *s)
{
    buf_char(b, '"');
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;

        if (c == '"' || c == '\\')
            buf_printf(b, "\\%c", c);
        else if (c == '\n')
            buf_str(b, "\\n");
        else if (c < ' ' || c == 0x7f)
            buf_printf(b, "\\u%04x", c);
        else
            buf_char(b, (char)c);
    }
    buf_char(b, '"');
}

static void put_value(struct buf *b, const struct log_value *v)
{
    if (v->kind == 0 && !logger.json && bare(v->s))
        buf_str(b, v->s);
    else if (v->kind == 0)
        put_quoted(b, v->s);
    else if (v->kind == 1)
        buf_printf(b, "%lld", (long long)v->i);
    else if (v->kind == 2)
        buf_printf(b, "%llu", (unsigned long long)v->u);
    else if (isfinite(v->d))
        buf_printf(b, "%.6g", v->d);
    else
        buf_str(b, logger.json ? "null" : "nan");
}

static void put_key(struct buf *b, const char *key)
{
    if (logger.json) {
        if (b->n > 1)
            buf_char(b, ',');
        put_quoted(b, key);
        buf_char(b, ':');
    } else {
        if (b->n)
            buf_char(b, ' ');
        buf_printf(b, "%s=", key);
    }
}

static void put_field(struct buf *b, const char *key, struct log_value v)
{
    put_key(b, key);
    put_value(b, &v);
}

static void put_line(const struct timespec *ts, enum log_level level, const char *event,
                     const struct log_field *fields)
{
    char when[64];
    struct tm tm;
    struct buf b;
    size_t n;

    buf_init(&b, 16384); /* a longer line ends at the last field that fits */
    (void)gmtime_r(&ts->tv_sec, &tm);
    n = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(when + n, sizeof when - n, ".%03ldZ", ts->tv_nsec / 1000000);
    if (logger.json)
        buf_char(&b, '{');
    put_field(&b, "ts", log_str(when));
    put_field(&b, "level", log_str(level_names[level]));
    put_field(&b, "event", log_str(event));
    for (; fields && fields->key; fields++) {
        size_t before = b.n;

        put_field(&b, fields->key, fields->value);
        if (b.failed || b.n > b.max - 4) {
            b.failed = false;
            b.n = before;
            break;
        }
    }
    buf_str(&b, logger.json ? "}\n" : "\n");
    if (logger.capture) {
        b.p[b.n - 1] = '\0';
        logger.capture(b.p, logger.capture_arg);
    } else {
        ssize_t done = write(STDERR_FILENO, b.p, b.n); /* a log that cannot be written is lost */
        (void)done;
    }
    buf_fini(&b);
}

static void tell_dropped(const struct timespec *ts, struct slot *s)
{
    put_line(ts, LOG_WARN, "log.dropped",
             LOG_FIELDS({"of", log_str(s->event)}, {"lines", log_u64(s->dropped)}));
    s->dropped = 0;
    logger.dropping--;
}

static struct slot *slot_of(const char *event)
{
    unsigned h = 5381;

    for (const char *p = event; *p; p++)
        h = h * 33 + (unsigned char)*p;
    return &logger.slots[h % SLOTS];
}

/* True when the line may be written. Two names that share a slot take turns in it: neither is ever
 * silenced by the other, at the price of a new count. */
static bool admit(const struct timespec *ts, const char *event)
{
    struct slot *s = slot_of(event);

    if (logger.dropping)
        for (unsigned i = 0; i < SLOTS; i++)
            if (logger.slots[i].dropped && logger.slots[i].second != ts->tv_sec)
                tell_dropped(ts, &logger.slots[i]);
    if (s->second != ts->tv_sec || strncmp(s->event, event, sizeof s->event - 1) != 0) {
        if (s->dropped)
            tell_dropped(ts, s);
        s->second = ts->tv_sec;
        s->count = 0;
        str_copy(s->event, sizeof s->event, event);
    }
    if (s->count++ < PER_SECOND)
        return true;
    if (s->dropped++ == 0)
        logger.dropping++;
    return false;
}

void log_event(enum log_level level, const char *event, const struct log_field *fields)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_REALTIME, &ts);
    (void)pthread_mutex_lock(&logger.mu);
    if (level >= logger.min && admit(&ts, event))
        put_line(&ts, level, event, fields);
    (void)pthread_mutex_unlock(&logger.mu);
}

void log_err(enum log_level level, const char *event, const struct err *e)
{
    log_event(level, event,
              LOG_FIELDS({"code", log_str(e->code ? err_info(e->code)->name : "E_OK")},
                         {"error", log_str(e->text)}, {"field", log_str(e->field)},
                         {"file", log_str(e->file)}, {"line", log_i64(e->line)}));
}
