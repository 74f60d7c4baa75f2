/* A target that contradicts itself: it told the end of a run, the log has it, and now it lists that
 * run as alive. One of the two is false, and nobody here can know which. So it is told, on the
 * Target and on the Workload; the run is stopped by its key, and asked about until the target says
 * again that it is over; until then its nodes take nothing new and no other run of its workload
 * starts. The end stays in the log: nothing is charged a second time. */
#include "controlplane/leader/recover/denials.h"

#include "api/base/log.h"
#include "controlplane/leader/keep/events.h"
#include "controlplane/leader/recover/orphans.h"
#include "controlplane/leader/site/sites.h"

#include <stdio.h>
#include <string.h>

#define DENIED_AFTER_MS 2000  /* a list may have been on its way when the end was told */
#define DENIED_TOLD_MS 600000 /* so long the Target says it, after the last one */

static bool lives(const struct observation *o)
{
    return o->state == RUN_STARTING || o->state == RUN_RUNNING || o->state == RUN_PENDING;
}

/* A lease that ran out, or an operator's fence, is no word of the target's. */
static bool told_by_it(const struct run_end *e, const char *target)
{
    return strcmp(e->target, target) == 0 && e->proof != PROOF_LEASE_EXPIRED &&
           e->proof != PROOF_OPERATOR;
}

bool denial_is(const struct root *r, const char *target, int64_t swept_at_ms,
               const struct run_listed *l)
{
    const struct object *o = root_workload_by_uid(r, l->seen.key.uid);
    const struct workload_status *s = o ? object_as(o, workload)->status : NULL;
    int64_t epoch = l->seen.key.epoch;

    if (!s || !lives(&l->seen) || epoch > s->epoch || (epoch == s->epoch && phase_holds(s->phase)))
        return false;
    for (uint32_t i = 0; i < s->n_ends; i++)
        if (s->ends[i].epoch == epoch && told_by_it(&s->ends[i], target))
            return s->ends[i].at + DENIED_AFTER_MS <= swept_at_ms;
    return false;
}

void denial_found(struct site *t, const struct run_listed *l)
{
    const struct object *o = root_workload_by_uid(t->brain->root, l->seen.key.uid);
    char key[RUN_KEY_MAX];

    run_key_print(&l->seen.key, key);
    t->denies_ms = loop_now_ms(t->brain->loop);
    t->sweep_due = true; /* with the next renewal: whether it is over */
    if (orphan_find(t, key)) /* told when it was listed first */
        return;
    (void)snprintf(t->denies, sizeof t->denies,
                   "it had told the end of run %.100s of %.63s/%.200s, and lists it as alive: it "
                   "is stopped again, and no other run of that workload starts before it is over",
                   key, l->ns, l->name);
    log_event(LOG_ERROR, "run.end_denied",
              LOG_FIELDS({"target", log_str(t->name)}, {"key", log_str(key)}));
    if (o)
        events_end_denied(t->brain, t->doc, o, t->denies);
    site_facts_soon(t);
}

void denials_look(struct site *t)
{
    if (!*t->denies || loop_now_ms(t->brain->loop) - t->denies_ms < DENIED_TOLD_MS)
        return;
    t->denies[0] = '\0';
    site_facts_soon(t);
}

bool denial_lives(const struct brain *b, const char *uid)
{
    for_each_site (t, b)
        for (size_t i = 0; i < t->orphans.n; i++) {
            const struct orphan *o = &t->orphans.v[i];
            if (o->why == ORPHAN_DENIED && lives(&o->seen) && strcmp(o->seen.key.uid, uid) == 0)
                return true;
        }
    return false;
}
