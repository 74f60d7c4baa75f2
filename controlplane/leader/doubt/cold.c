/* A hub that has just begun: none of its members was running to see whether the state went on, so
 * the state may be an older copy, and no agent in reach may know. Then a workload that is older
 * than this leadership is not dispatched before every Target that the state has as connected has
 * listed its runs: one of them may run the workload, or have heard more. The leader does not wait
 * for a Target that is drained, or silent for its partition.suspectAfter: a site that is down must
 * not stop the others.
 *
 * This must delay neither what runs nor new work. */

#include "controlplane/leader/doubt/cold.h"

#include "api/base/failpoint.h"
#include "api/base/log.h"
#include "controlplane/leader/site/sites.h"

#include <string.h>

#define WARM_MS 60000 /* a member that has had a leader for longer has not just begun */

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

/* Of several agents some are away: as long as a silent target may be. */
static uint64_t lacks_left_ms(const struct site *t)
{
    uint64_t passed = loop_now_ms(t->brain->loop) - t->lacks_since_ms;

    return t->lacks && passed < site_suspect_after(t) ? site_suspect_after(t) - passed : 0;
}

bool cold_awaits(const struct site *t)
{
    return t->brain->cold->on && t->awaited && (!t->listed || lacks_left_ms(t)) && !t->suspect &&
           t->doc && !object_as(t->doc, target)->spec->drain;
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
    for_each_site (t, b) {
        if (!cold_awaits(t))
            continue;
        if (t->listed)
            timer_start(&b->cold->look, lacks_left_ms(t));
        return;
    }
    /* The agent of an unknown Target may have heard more as well (strangers.c). */
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
