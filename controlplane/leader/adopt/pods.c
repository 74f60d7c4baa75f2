/* Pods: what each Job holds, and where; and those of others, by what makes them. */
#include "controlplane/leader/adopt/shadow_internal.h"

#include "api/base/hash.h"

#include <stdio.h>
#include <string.h>

/* ---- tables ---- */
_Static_assert(SHADOW_TABLE > 2 * (SHADOW_JOBS_MAX + SHADOW_PLAIN_MAX), "a slot is always free");
_Static_assert(SHADOW_TABLE > 2 * SHADOW_GROUPS_MAX, "likewise");

static size_t slot_of(const struct shadow_slot *t, const char *key)
{
    size_t i = hash_slot(key, SHADOW_TABLE);

    while (t[i].key && strcmp(t[i].key, key) != 0)
        i = (i + 1) % SHADOW_TABLE;
    return i;
}

void *shadow_find(const struct shadow_slot *t, const char *key)
{
    return t[slot_of(t, key)].what;
}

void shadow_put(struct shadow_slot *t, const char *key, void *what)
{
    t[slot_of(t, key)] = (struct shadow_slot){key, what};
}

/* ---- devices ---- */
static bool same_kind(const struct counted_gpus *c, const char *model, const char *mig,
                      int64_t shares)
{
    return strcmp(c->model, model) == 0 && strcmp(c->mig, mig) == 0 && c->shares == shares;
}

static bool row_of(const struct shadow_docs *docs, const char *node, const char *model,
                   const char *mig, int64_t shares, struct counted_gpus *ret)
{
    const struct object *o = docs->get(docs->arg, KIND_NODE, "", node);
    const struct node_spec *n = o ? object_as(o, node)->spec : NULL;

    for (uint32_t i = 0; n && i < n->n_counted; i++) {
        if (same_kind(&n->counted[i], model, mig, shares)) {
            *ret = n->counted[i];
            return true;
        }
    }
    return false;
}

bool shadow_row(const struct shadow_docs *docs, const struct shadow_hold *h,
                struct counted_gpus *ret)
{
    return row_of(docs, h->node, h->model, h->mig, h->shares, ret);
}

/* ---- what a Job holds ---- */
static struct shadow_hold **hold_slot(const struct shadow *s, const struct shadow_job *j,
                                      const char *node, const struct foreign_device *d)
{
    uint64_t h = hash_more(hash_text(node), &j, sizeof j);
    size_t i = (size_t)((h ^ h >> 32) % (2 * SHADOW_HOLDS_MAX));
    const struct shadow_hold *x;

    while ((x = s->by_hold[i]) != NULL &&
           (x->job != j || strcmp(x->node, node) != 0 || strcmp(x->model, d->model) != 0 ||
            strcmp(x->mig, d->mig) != 0 || x->shares != d->shares))
        i = (i + 1) % (2 * SHADOW_HOLDS_MAX);
    return &s->by_hold[i];
}

static struct shadow_hold *hold_get(struct shadow *s, struct shadow_job *j, const char *node,
                                    const struct foreign_device *d)
{
    struct shadow_hold **slot = hold_slot(s, j, node, d), *h = *slot;

    if (h)
        return h;
    if (s->n_holds == SHADOW_HOLDS_MAX) {
        s->holds_omitted++;
        return NULL;
    }
    s->n_holds++;
    h = arena_new(s->a, struct shadow_hold);
    *h = (struct shadow_hold){.next = j->holds,
                              .job = j,
                              .node = arena_strdup(s->a, node),
                              .class_ = "",
                              .model = arena_strdup(s->a, d->model),
                              .mig = arena_strdup(s->a, d->mig),
                              .shares = d->shares};
    j->holds = h;
    *slot = h;
    return h;
}

/* So many GPUs in 1/1000: of a kind that its node does not tell, whole ones. */
static int64_t milli_of(const struct shadow_docs *docs, const char *node,
                        const struct foreign_device *d, const char **ret_class)
{
    struct counted_gpus c;

    *ret_class = "";
    if (!row_of(docs, node, d->model, d->mig, d->shares, &c))
        return d->count < LIMIT_NODE_COUNTED ? d->count * 1000 : (int64_t)LIMIT_NODE_COUNTED * 1000;
    *ret_class = *c.class_ ? c.class_ : c.model;
    return counted_milli(&c, d->count < LIMIT_NODE_COUNTED ? d->count : LIMIT_NODE_COUNTED);
}

static void job_holds(struct shadow *s, const struct shadow_docs *docs, struct shadow_job *j,
                      const struct foreign_item *p)
{
    static const struct foreign_device none = {.resource = "", .model = "", .mig = ""};
    struct shadow_hold *h = hold_get(s, j, p->node, p->n_devices ? &p->devices[0] : &none);

    if (h) {
        h->cpu_milli += p->cpu_milli;
        h->memory_bytes += p->memory_bytes;
    }
    for (unsigned i = 0; i < p->n_devices; i++) {
        const struct foreign_device *d = &p->devices[i];
        const char *class_;
        int64_t milli = milli_of(docs, p->node, d, &class_);

        j->milli += milli;
        h = hold_get(s, j, p->node, d);
        if (!h)
            continue;
        h->count += d->count;
        h->milli += milli;
        if (!*h->class_)
            h->class_ = arena_strdup(s->a, class_);
    }
}

/* ---- who else holds something ---- */
static const char *why_of(struct shadow *s, const struct foreign_item *p, const char **ret_code)
{
    bool bare = !*p->owner_kind;

    *ret_code = bare ? "Bare" : strcmp(p->owner_kind, "Job") == 0 ? "JobGone" : "Controller";
    if (bare)
        return "made by hand, as a pod: nothing could begin it again; submit what it runs as a Job";
    if (strcmp(p->owner_kind, "Job") == 0)
        return "its Job has ended, or is being deleted: there is nothing left to hand over";
    return arena_printf(s->a,
                        "%.60s %.200s makes it, and makes it again: of what makes pods only Jobs "
                        "(batch/v1) are handed over",
                        p->owner_kind, p->owner_name);
}

static struct shadow_group *group_get(struct shadow *s, const struct foreign_item *p)
{
    bool bare = !*p->owner_kind;
    const char *kind = bare ? "Pod" : p->owner_kind, *name = bare ? p->name : p->owner_name;
    char key[400];
    struct shadow_group *g;

    (void)snprintf(key, sizeof key, "%.63s/%.60s/%.253s", p->ns, kind, name);
    g = shadow_find(s->by_owner, key);
    if (g || s->n_groups == SHADOW_GROUPS_MAX)
        return g;
    g = &s->groups[s->n_groups++];
    *g = (struct shadow_group){.ns = arena_strdup(s->a, p->ns),
                               .kind = arena_strdup(s->a, kind),
                               .name = arena_strdup(s->a, name)};
    g->why = why_of(s, p, &g->code);
    shadow_put(s->by_owner, arena_strdup(s->a, key), g);
    return g;
}

static void others_hold(struct shadow *s, const struct shadow_docs *docs,
                        const struct foreign_item *p)
{
    int64_t milli = 0;
    const char *class_;

    for (unsigned i = 0; i < p->n_devices; i++)
        milli += milli_of(docs, p->node, &p->devices[i], &class_);
    if (!milli) {
        s->plain_pods++;
        return;
    }
    /* Of a Job that was passed over nobody knows whether it has ended. */
    bool passed = s->jobs_omitted && strcmp(p->owner_kind, "Job") == 0;
    struct shadow_group *g = passed ? NULL : group_get(s, p);
    if (!g) {
        s->omitted_pods++;
        s->omitted_milli += milli;
        return;
    }
    g->pods++;
    g->milli += milli;
    if (!g->since_ms || (p->since_ms && p->since_ms < g->since_ms))
        g->since_ms = p->since_ms;
}

void shadow_pod(struct shadow *s, const struct shadow_docs *docs, const struct foreign_item *p)
{
    struct shadow_job *j =
        strcmp(p->owner_kind, "Job") == 0 ? shadow_find(s->by_uid, p->owner_uid) : NULL;

    if (p->more)
        s->unread_pods++;
    if (!*p->node) /* it holds nothing, and waits */
        return;
    if (!j) {
        others_hold(s, docs, p);
        return;
    }
    j->pods++;
    j->runs |= p->runs;
    if (p->since_ms && (!j->since_ms || p->since_ms < j->since_ms))
        j->since_ms = p->since_ms;
    job_holds(s, docs, j, p);
}
