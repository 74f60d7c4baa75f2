/* The end of a Target. What its connector keeps there for itself goes first, and then the Target:
 * once it was reached a Target whose connector can leave carries the finalizer TARGET_FINALIZER, so
 * that it stays, deleted, until nothing of Hanse is left there. Whoever leads goes on where another
 * one left off: to leave what was left is no error. Why a deleted Target is still there is told,
 * and how to give up on what cannot be taken away (LEAVE_BEHIND_ANNOTATION). */
#include "controlplane/leader/keep/events.h"
#include "controlplane/leader/site/sites.h"

#include "api/base/hash.h"
#include "controlplane/leader/drive/driver.h"
#include "controlplane/store/archive/archive.h"

#include <stdio.h>
#include <string.h>

#define CALL_MS 30000
#define AGAIN_MS 5000
#define SOON_MS 1000 /* in the first minute: most goes at once */
#define TOLD_AGAIN_MS 600000
#define WHY_MAX 480
#define GIVE_UP_MS 60000    /* after which it is left, where its user gives up on it */
#define FINALIZERS_MAX 64 /* kinds.def */

static void tell(struct site *t, const char *why)
{
    uint64_t hash = hash_text(why), now = loop_now_ms(t->brain->loop);

    if (hash == t->leave_told && now < t->leave_told_ms + TOLD_AGAIN_MS)
        return;
    t->leave_told = hash;
    t->leave_told_ms = now;
    events_of_target(t->brain, t->doc, "DeletionWaits", why);
}

void site_not_given(void *arg, const char *reason, const char *why)
{
    const struct site *t = arg;

    if (t->brain->leads && !t->gone)
        events_of_target(t->brain, t->doc, reason, why);
}

/* ---- the finalizer ---- */
static bool is_kept(const struct site *t)
{
    const struct meta *m = t->doc->meta;

    for (uint32_t i = 0; i < m->n_finalizers; i++)
        if (strcmp(m->finalizers[i], TARGET_FINALIZER) == 0)
            return true;
    return false;
}

static void written(void *arg, const struct result *r, const struct err *err)
{
    struct site *t = arg;

    t->leave_proposing = false;
    if (err || r->code) /* it is looked at again */
        t->leave_again_ms = loop_now_ms(t->brain->loop) + AGAIN_MS;
}

static void finalizer_write(struct site *t, bool on)
{
    struct brain *b = t->brain;
    AUTO_ARENA a = arena_create(0);
    struct target *w = object_edit_as(t->doc, target, a);
    struct meta *m = w->metadata;
    const char **all = arena_array(a, const char *, m->n_finalizers + 2);
    struct write_op op = {.verb = WRITE_UPDATE,
                          .kind = KIND_TARGET,
                          .rv = (uint64_t)t->doc->meta->resourceVersion};
    union command c = {
        .write = {.head = {.type = CMD_WRITE, .user = TARGET_USER}, .ops = &op, .n = 1}};
    uint32_t n = 0;

    for (uint32_t i = 0; i < m->n_finalizers; i++)
        if (strcmp(m->finalizers[i], TARGET_FINALIZER) != 0)
            all[n++] = m->finalizers[i];
    if (on && n == FINALIZERS_MAX)
        return;
    if (on)
        all[n++] = TARGET_FINALIZER;
    m->finalizers = all;
    m->n_finalizers = n;
    str_copy(op.name, sizeof op.name, t->doc->meta->name);
    str_copy(op.uid, sizeof op.uid, t->doc->meta->uid);
    if (object_make_within(t->doc->kind, w, LIMIT_OBJECT_MAX_BYTES, &op.object, NULL))
        return; /* it is full: nothing can be added to it */
    t->leave_proposing = true;
    brain_request_id(b, c.head.request_id);
    brain_propose(b, &c, written, t);
    (void)object_unref(op.object);
}

/* ---- what holds a Target that is deleted ---- */
static const struct driver *first_of(const struct site *t, size_t *ret_n)
{
    *ret_n = 0;
    list_for_each (it, &t->drivers)
        ++*ret_n;
    return *ret_n ? container_of(t->drivers.next, struct driver, seat) : NULL;
}

static bool is_held(struct site *t)
{
    size_t n;
    const struct driver *d = first_of(t, &n);
    char why[WHY_MAX];

    if (!d) /* of machines its pools tell (machines/pools.c) */
        return machines_live(object_as(t->doc, target)->status) > 0;
    (void)snprintf(why, sizeof why,
                   "its deletion waits: %zu workload%s of its runs may still live there, such as "
                   "%.60s/%.120s (%s): it ends when that does; where its machines are known to be "
                   "off: hanse fence WORKLOAD --yes",
                   n, n > 1 ? "s hold a place, and some" : " holds a place, and one", d->ns,
                   d->name, phase_text(object_as(d->o, workload)->status->phase));
    tell(t, why);
    return true;
}

static bool is_given_up(const struct site *t)
{
    const struct meta *m = t->doc->meta;
    const char *word = label_get(m->annotations, m->n_annotations, LEAVE_BEHIND_ANNOTATION);

    return word && strcmp(word, "true") == 0 &&
           loop_now_ms(t->brain->loop) >= t->leave_since_ms + GIVE_UP_MS;
}

static void something_is_left(struct site *t, const char *what)
{
    char why[WHY_MAX];

    if (is_given_up(t)) {
        (void)snprintf(why, sizeof why, "the Target goes, and leaves there what it kept: %.380s",
                       what);
        events_of_target(t->brain, t->doc, "LeftBehind", why);
        if (!t->leave_proposing)
            finalizer_write(t, false);
        return;
    }
    (void)snprintf(why, sizeof why,
                   "its deletion waits until nothing of it is left there: %.280s; to give up on "
                   "that, and leave it: hanse delete target NAME --leave-behind",
                   what);
    tell(t, why);
}

static void left(struct call *c, enum outcome out, const struct observation *seen,
                 const struct err *err)
{
    struct site *t = container_of(c, struct site, leaving.call);

    (void)seen;
    t->leave_calling = false;
    bool begins = loop_now_ms(t->brain->loop) < t->leave_since_ms + GIVE_UP_MS;
    t->leave_again_ms = loop_now_ms(t->brain->loop) + (begins ? SOON_MS : AGAIN_MS);
    if (t->gone || !t->brain->leads || !t->doc->meta->deletionTimestamp)
        return;
    if (out != OUT_DONE && begins)
        timer_start(&t->renew, SOON_MS); /* which looks at it (site/sites.c) */
    if (out != OUT_DONE)
        something_is_left(t, err ? err->text : "it does not answer");
    else if (!t->leave_proposing)
        finalizer_write(t, false);
}

static void leave(struct site *t)
{
    const struct connector *c = t->connector;
    char why[WHY_MAX];

    if (c && !c->ops->leave) {
        finalizer_write(t, false); /* of another version, whose driver kept something */
    } else if (c && t->reachable) {
        t->leave_calling = true;
        c->ops->leave(t->connector, brain_call(t->brain, &t->leaving, CALL_MS, left));
    } else if (!c || t->last_contact_ms) { /* before, it has not been looked whether it is there */
        t->leave_again_ms = loop_now_ms(t->brain->loop) + AGAIN_MS;
        (void)snprintf(why, sizeof why, "it is out of reach (%.250s)", t->why);
        something_is_left(t, why);
    }
}

/* Once in a while. */
void site_leave_look(struct site *t)
{
    const struct brain *b = t->brain;
    uint64_t now = loop_now_ms(b->loop);
    bool kept = is_kept(t);

    if (!b->leads || b->in_doubt || t->gone || t->leave_proposing || t->leave_calling ||
        now < t->leave_again_ms || root_feature_level(b->root) < FEATURE_TELLS)
        return;
    if (!t->doc->meta->deletionTimestamp) {
        if (!kept && t->reachable && t->connector && t->connector->ops->leave)
            finalizer_write(t, true);
        return;
    }
    if (is_held(t)) {
        t->leave_since_ms = 0;
        return;
    }
    if (!kept)
        return;
    if (!t->leave_since_ms)
        t->leave_since_ms = now;
    leave(t);
}
