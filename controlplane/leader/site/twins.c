/* Targets at one server: each would count what it has as its own, and give it out. The older Target
 * has it, also where the younger one was heard first; the other one stays out of reach, with the
 * reason, until the older one is gone or is at another server. */
#include "controlplane/leader/site/sites.h"

#include <stdio.h>
#include <string.h>

/* Who speaks for it, as heard, or as the state was told by an earlier leader. */
static const char *speaker(const struct site *t)
{
    const struct object *o = root_get(t->brain->root, KIND_TARGET, "", t->name);
    const struct target_status *s = o ? object_as(o, target)->status : NULL;

    if (*t->agent)
        return t->agent;
    return s && s->agent ? s->agent : "";
}

static bool is_callout(const struct site *t)
{
    return object_as(t->doc, target)->spec->type == TARGET_CALLOUT;
}

static bool older(const struct site *a, const struct site *b)
{
    int64_t at = a->doc->meta->creationTimestamp, bt = b->doc->meta->creationTimestamp;

    return at != bt ? at < bt : strcmp(a->name, b->name) < 0;
}

static const struct site *twin_of(const struct site *t)
{
    if (!*t->agent || !is_callout(t))
        return NULL;
    list_for_each (it, &t->brain->sites->all) {
        const struct site *x = container_of(it, struct site, link);
        if (x != t && is_callout(x) && older(x, t) && strcmp(speaker(x), t->agent) == 0)
            return x;
    }
    return NULL;
}

bool site_twin(struct site *t, char why[256])
{
    const struct site *x = twin_of(t);

    if (x)
        (void)snprintf(why, 256,
                       "Target %.80s is at the same server (%.64s), and what it has would count "
                       "twice: remove one of the two",
                       x->name, t->agent);
    return x != NULL;
}

void twins_look(struct brain *b)
{
    if (!b->leads || b->closing)
        return;
    list_for_each (it, &b->sites->all) {
        struct site *t = container_of(it, struct site, link);
        if (t->answers && t->reachable == (twin_of(t) != NULL))
            site_reached(t, true, t->answers_id, "");
    }
}
