/* Promises: keys that a target promised never to start. It may forget those of Workloads that this
 * cluster's own log let go. The leader asks about them after a sweep, page by page, for promises
 * older than an hour.
 *
 * A state that may be an older one must never let a key go: a majority has confirmed this
 * leadership in this session first, and the target learns the resourceVersion of the state that let
 * it go. From then on it refuses orders of older states, which may still concern these keys. */

#include "controlplane/leader/recover/promises.h"

#include "api/base/log.h"
#include "controlplane/leader/keep/events.h"
#include "controlplane/leader/site/sites.h"

#include <stdio.h>
#include <string.h>

#define PROMISES_OLDER_MS 3600000
#define PROMISES_DEADLINE_MS 60000
#define CONFIRM_DEADLINE_MS 5000

struct letting {
    struct brain_call call;
    struct brain *brain;
    char target[256];
    uint64_t session;
};

/* True when the state knew the uid and let it go: its Workload is gone, which it never is before
 * the end of its runs is proved, or has ended. A state of another cluster uid may never have known
 * it. */
bool promise_let_go(const struct root *r, const struct run_promise *p)
{
    const struct object *o = root_workload_by_uid(r, p->uid);
    const struct workload_status *s = o ? object_as(o, workload)->status : NULL;

    if (!*root_cluster_uid(r) || strcmp(p->cluster, root_cluster_uid(r)) != 0)
        return false;
    return !s || (phase_final(s->phase) && p->epoch <= s->epoch);
}

static bool judge(const struct run_promise *p, void *arg)
{
    const struct site *t = arg;

    return t->brain->leads && !t->brain->in_doubt && t->session == t->letting_session &&
           promise_let_go(t->brain->root, p);
}

static void letting_over(struct letting *x, struct site *t)
{
    if (t)
        t->letting = false;
    brain_under_way(x->brain, -1);
    mem_free(x);
}

static void told(struct call *c, enum outcome out, const struct observation *seen,
                 const struct err *err)
{
    struct letting *x = container_of(c, struct letting, call.call);
    struct site *t = site_find(x->brain, x->target);

    (void)err; /* an agent of an older version knows no such question */
    if (t && t->doc && out == OUT_DONE && seen && *seen->message && x->brain->leads)
        events_book_full(x->brain, t->doc, seen->message);
    letting_over(x, t);
}

static void confirmed(void *arg, const struct err *err)
{
    struct letting *x = arg;
    struct brain *b = x->brain;
    struct site *t = site_find(b, x->target);

    if (err || !t || !t->connector || !t->reachable || t->session != x->session) {
        letting_over(x, t);
        return;
    }
    t->letting_session = x->session;
    t->connector->ops->promises(t->connector, root_rv(b->root), PROMISES_OLDER_MS, judge, t,
                                brain_call(b, &x->call, PROMISES_DEADLINE_MS, told));
}

void site_promises(struct site *t)
{
    struct brain *b = t->brain;

    if (t->letting || !t->connector || !t->connector->ops->promises || !t->reachable ||
        root_feature_level(b->root) < FEATURE_GRANTS) /* older members' orders name no state */
        return;
    struct letting *x = mem_new(struct letting);
    x->brain = b;
    x->session = t->session;
    str_copy(x->target, sizeof x->target, t->name);
    t->letting = true;
    brain_under_way(b, 1); /* up to letting_over */
    brain_confirm(b, CONFIRM_DEADLINE_MS, confirmed, x);
}
