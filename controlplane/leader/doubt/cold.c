/* A hub that has just begun: no member of it was there to see that the state went on, so it may be
 * an older copy and nobody in reach may know. Then a workload that is older than this leadership is
 * not dispatched before every Target that the state has as connected has listed what runs there:
 * one of them may run it, or have heard more. Silent for its partition.suspectAfter, or drained, it
 * is not waited for: a site that is down must not stop the others.
 *
 * Must hold up nothing that runs, and no work that is new. */

#include "controlplane/leader/doubt/cold.h"

#include "api/base/failpoint.h"
#include "api/base/log.h"
#include "controlplane/leader/site/sites.h"

#include <string.h>

#define WARM_MS 60000 /* a member that has had a leader for so long is no new beginning */

void cold_known(struct brain *b)
{
    struct core_status st;

    if (b->cold->known_ms)
        return;
    core_status(b->cfg.core, &st);
    if (st.leader_id)
        b->cold->known_ms = loop_now_ms(b->loop);
}

static bool connected(const struct object *target)
{
    const struct target_status *s = object_as(target, target)->status;

    for (uint32_t i = 0; s && i < s->n_conditions; i++)
        if (strcmp(s->conditions[i].type, "Connected") == 0)
            return s->conditions[i].status == COND_TRUE;
    return false;
}

bool cold_awaits(const struct site *t)
{
    return t->brain->cold->on && t->awaited && !t->listed && !t->suspect && t->doc &&
           !object_as(t->doc, target)->spec->drain;
}

void cold_begin(struct brain *b)
{
    uint64_t now = loop_now_ms(b->loop);

    if (!b->cold->known_ms)
        b->cold->known_ms = now;
    b->cold->on = now - b->cold->known_ms < WARM_MS && !PLANTED("run.never-cold");
    b->cold->before_ms = core_time_ms(b->cfg.core);
}

void cold_mark(struct brain *b)
{
    for_each_site (t, b) {
        t->awaited = b->cold->on && connected(t->doc);
        if (cold_awaits(t))
            log_event(LOG_INFO, "hub.awaits", LOG_FIELDS({"target", log_str(t->name)}));
    }
    cold_look(b);
}

void cold_look(struct brain *b)
{
    if (!b->cold->on || !b->leads)
        return;
    for_each_site (t, b)
        if (cold_awaits(t))
            return;
    /* Who is not a Target of ours may have heard more as well (strangers.c). */
    uint64_t known = loop_now_ms(b->loop) - b->cold->known_ms;
    if (known < b->cfg.redial_ms) {
        timer_start(&b->cold->look, b->cfg.redial_ms - known);
        return;
    }
    b->cold->on = false;
    brain_allowed(b);
}

static void cold_due(void *arg)
{
    cold_look(arg);
}

void cold_init(struct brain *b)
{
    timer_init(&b->cold->look, b->loop, cold_due, b);
}

void cold_drop(struct brain *b)
{
    timer_stop(&b->cold->look);
}

bool cold_holds(const struct brain *b, const struct object *workload)
{
    return b->cold->on && workload->meta->creationTimestamp <= b->cold->before_ms;
}
