/* Runs of which nobody can tell what has become: their target is out of reach, cannot tell, or is
 * spoken for by an agent that never had them. Which of these it is people are told as it is by now.
 * This file must never take one of them for an end. */
#include "controlplane/leader/drive/observed.h"

#include "api/base/failpoint.h"
#include "controlplane/leader/drive/calls.h"
#include "controlplane/leader/drive/lease.h"
#include "controlplane/leader/site/sites.h"

#include <stdio.h>
#include <string.h>

#define UNTOLD_ASKED_MS 5000
#define MAY_STILL_START "MayStillStart"
#define TARGET_UNREACHABLE "TargetUnreachable"
#define CANNOT_TELL "its target is in reach, and cannot tell what became of it"
#define AGENT_REPLACED                                                                             \
    "an agent with another state folder speaks for its target, and knows nothing of it: it may "   \
    "still run. Once its old machine is known to be off: hanse fence"

struct lost {
    const char *reason; /* static */
    char text[512];
};

bool driver_estranged(const struct driver *d, const struct site *t)
{
    const struct workload_status *s = d->o ? object_as(d->o, workload)->status : NULL;
    const struct intent *in = s ? s->intent : NULL;
    char agent[64];

    if (!t || !t->reachable || !in || !*in->agent)
        return false;
    site_agent_of(t, s->placement, agent);
    return *agent && strcmp(in->agent, agent) != 0 && !PLANTED("run.any-agent");
}

/* In reach, and unable to tell: as if it were out of reach. Its object is gone, its node does not
 * answer: that proves nothing, and must not hold its workload for ever. */
bool driver_untold(const struct driver *d, const struct site *t)
{
    return t && d->has_seen && d->seen.state == RUN_UNKNOWN && d->untold_since_ms &&
           loop_now_ms(d->brain->loop) - d->untold_since_ms >= site_suspect_after(t) &&
           !PLANTED("run.untold-runs-on");
}

bool driver_still_untold(struct driver *d, const struct site *t)
{
    if (!driver_untold(d, t) || object_as(d->o, workload)->status->phase != PHASE_UNKNOWN)
        return false;
    d->untold_asked_ms = loop_now_ms(d->brain->loop);
    driver_later(d, 0);
    return true;
}

bool driver_asks_again(struct driver *d)
{
    uint64_t now = loop_now_ms(d->brain->loop), since = now - d->untold_asked_ms;

    if (since < UNTOLD_ASKED_MS) {
        driver_later(d, UNTOLD_ASKED_MS - since);
        return false;
    }
    d->untold_asked_ms = now;
    return true;
}

/* Its target has it nowhere, and may still start it: until when, and that it is not tried elsewhere
 * before. */
static bool starts_still(const struct driver *d, struct lost *ret)
{
    int64_t until = d->unlisted_ms ? lease_starts_until(d) : 0;
    char at[32];

    if (!until)
        return false;
    time_print(until, at);
    ret->reason = MAY_STILL_START;
    (void)snprintf(ret->text, sizeof ret->text,
                   "target %.100s does not have it, and may still start it until %s: it is not "
                   "tried elsewhere before",
                   d->target, at);
    return true;
}

/* Why nobody can tell what has become of it; false: somebody can. */
static bool lost_find(const struct driver *d, const struct site *t, struct lost *ret)
{
    bool near = t && !t->suspect, estranged = near && driver_estranged(d, t);
    const char *text;

    if (near && !estranged && !driver_untold(d, t))
        return false;
    if (near && !estranged && starts_still(d, ret))
        return true;
    if (near && !estranged) {
        ret->reason = RUN_NOT_TOLD;
        text = *d->seen.message ? d->seen.message : CANNOT_TELL;
    } else if (near) {
        ret->reason = end_text(END_AGENT_REPLACED);
        text = AGENT_REPLACED;
    } else {
        ret->reason = TARGET_UNREACHABLE;
        text = t ? t->why : "its Target was removed";
    }
    str_cut(ret->text, sizeof ret->text, text);
    return true;
}

bool driver_lost(struct driver *d, const struct site *t)
{
    struct lost why;

    if (!lost_find(d, t, &why))
        return false;
    driver_step(d, STEP_UNKNOWN, why.reason, why.text);
    return true;
}

bool driver_lost_otherwise(struct driver *d, const struct site *t)
{
    const char *said = object_as(d->o, workload)->status->reason;
    const char *const ours[] = {MAY_STILL_START, RUN_NOT_TOLD, end_text(END_AGENT_REPLACED),
                                TARGET_UNREACHABLE};
    bool one = false;
    struct lost why;

    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        one = one || strcmp(said, ours[i]) == 0;
    if (!one || root_feature_level(d->brain->root) < FEATURE_TELLS || !lost_find(d, t, &why) ||
        strcmp(said, why.reason) == 0)
        return false;
    driver_step(d, STEP_UNKNOWN, why.reason, why.text);
    return true;
}
