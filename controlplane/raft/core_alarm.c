/* Alarms: what is wrong with this member while it goes on. Each cause is a row of alarms.def. The
 * code that watches for the cause raises and clears the alarm; `hanse status`, /readyz and /metrics
 * show it. An alarm stops nothing by itself. */
#include "controlplane/raft/core_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *remedy;
    bool serves;
} rows[ALARM_NR] = {
#define A(id, name, serves, remedy) [ALARM_##id] = {name, remedy, serves},
#include "controlplane/raft/alarms.def"
#undef A
};

const char *core_alarm_name(enum alarm a)
{
    PRE(a < ALARM_NR);
    return rows[a].name;
}

void core_alarm_raise(struct core *c, enum alarm a, const char *fmt, ...)
{
    struct alarm_state *s = &c->alarms[a];
    char text[sizeof s->text];
    bool begins;
    va_list ap;

    PRE(a < ALARM_NR);
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&c->lock);
    begins = !s->on;
    if (begins)
        s->since_ms = loop_now_ms(c->loop);
    s->on = true;
    memcpy(s->text, text, sizeof text);
    pthread_mutex_unlock(&c->lock);
    if (begins)
        log_event(LOG_ERROR, "alarm.raised",
                  LOG_FIELDS({"alarm", log_str(rows[a].name)}, {"message", log_str(text)},
                             {"remedy", log_str(rows[a].remedy)}));
}

void core_alarm_clear(struct core *c, enum alarm a)
{
    uint64_t lasted = 0;
    bool ends;

    PRE(a < ALARM_NR);
    pthread_mutex_lock(&c->lock);
    ends = c->alarms[a].on;
    if (ends)
        lasted = loop_now_ms(c->loop) - c->alarms[a].since_ms;
    c->alarms[a].on = false;
    pthread_mutex_unlock(&c->lock);
    if (ends)
        log_event(
            LOG_INFO, "alarm.cleared",
            LOG_FIELDS({"alarm", log_str(rows[a].name)}, {"seconds", log_u64(lasted / 1000)}));
}

size_t core_alarms(struct core *c, struct core_alarm ret[ALARM_NR])
{
    uint64_t now = loop_now_ms(c->loop);
    size_t n = 0;

    pthread_mutex_lock(&c->lock);
    for (unsigned a = 0; a < ALARM_NR; a++) {
        const struct alarm_state *s = &c->alarms[a];

        if (!s->on)
            continue;
        ret[n] = (struct core_alarm){.id = (enum alarm)a,
                                     .name = rows[a].name,
                                     .remedy = rows[a].remedy,
                                     .serves = rows[a].serves,
                                     .for_ms = now - s->since_ms};
        memcpy(ret[n++].text, s->text, sizeof s->text);
    }
    pthread_mutex_unlock(&c->lock);
    return n;
}
