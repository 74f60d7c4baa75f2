/* FACTS: what a connector saw of its target: nodes and reach. Only what differs is written, so that
 * a report that says nothing new moves no resourceVersion.
 *
 * Must never write what is derived (what is in use on a node: root_usage tells), and never drop
 * what is held on a node that vanished: a node that is gone proves no end. */
#include "controlplane/store/store_internal.h"
#include "policy/policy.h"

#include <stdlib.h>

struct facts {
    const struct facts_cmd *c;
    const struct object *const *classes;
    size_t n_classes;
    uint32_t changed;
};

static const char *class_named(const struct facts *f, const char *name)
{
    for (size_t i = 0; i < f->n_classes; i++)
        if (strcmp(f->classes[i]->meta->name, name) == 0)
            return f->classes[i]->meta->name;
    return NULL;
}

/* The class that a device says it has, when there is one of that name; else the one that knows its
 * model. */
static bool classes_resolve(struct txn *t, const struct facts *f, struct node_spec *s)
{
    bool changed = false;

    for (uint32_t i = 0; i < s->n_gpus; i++) {
        struct gpu *g = &s->gpus[i];
        const char *found = *g->class_ ? class_named(f, g->class_) : NULL;

        if (!found && *g->model)
            found = policy_class_of(g->model, g->memory, f->classes, f->n_classes);
        if (found && strcmp(found, g->class_) != 0) {
            g->class_ = arena_strdup(t->a, found);
            changed = true;
        }
    }
    return changed;
}

static bool names_its_own(const struct facts *f, const struct node *n)
{
    size_t prefix = strlen(f->c->target);

    return n->metadata && strlen(n->metadata->name) <= 253 &&
           strlen(n->metadata->name) > prefix + 1 &&
           strncmp(n->metadata->name, f->c->target, prefix) == 0 &&
           n->metadata->name[prefix] == '.';
}

static int node_gone(struct txn *t, struct facts *f, const struct node *n)
{
    const struct object *o;

    if (!names_its_own(f, n))
        return err_set(t->err, E_INVALID, "a node of target %s is named %s.NODE", f->c->target,
                       f->c->target);
    o = root_get(t->w, KIND_NODE, "", n->metadata->name);
    if (!o || strcmp(object_as(o, node)->spec->target, f->c->target) != 0)
        return 0;
    txn_remove(t, o);
    f->changed++;
    return 0;
}

static int node_upsert(struct txn *t, struct facts *f, const struct node *n)
{
    const struct kind *k = kind_by_id(KIND_NODE);
    struct node *b = arena_new(t->a, struct node);
    struct node_status *status = arena_new(t->a, struct node_status);

    if (!n->spec || !names_its_own(f, n) || strcmp(n->spec->target, f->c->target) != 0)
        return err_set(t->err, E_INVALID,
                       "a node of target %s is named %s.NODE and says so in spec.target",
                       f->c->target, f->c->target);
    const struct object *old = root_get(t->w, KIND_NODE, "", n->metadata->name);
    b->spec = arena_memdup(t->a, n->spec, sizeof *b->spec);
    if (b->spec->n_gpus)
        b->spec->gpus = arena_memdup(t->a, b->spec->gpus, b->spec->n_gpus * sizeof *b->spec->gpus);
    (void)classes_resolve(t, f, b->spec);
    status->health = n->status && n->status->health ? n->status->health : HEALTH_READY;
    status->reason = n->status ? n->status->reason : "";
    b->status = status;
    if (!old) {
        b->metadata = txn_meta(t, "", n->metadata->name);
        b->metadata->labels = n->metadata->labels;
        b->metadata->n_labels = n->metadata->n_labels;
        (void)txn_put(t, k, NULL, b);
        f->changed++;
        return 0;
    }
    struct node *was = object_edit_as(old, node, t->a);
    b->metadata = was->metadata;
    status->conditions = was->status ? was->status->conditions : NULL;
    status->n_conditions = was->status ? was->status->n_conditions : 0;
    if (body_equal(&schema_node, b, old->body))
        return 0;
    if (!body_equal(&schema_node_spec, b->spec, was->spec))
        b->metadata->generation++;
    (void)txn_put(t, k, old, b);
    f->changed++;
    return 0;
}

/* ---- nodes of one target
 * --------------------------------------------------------------------------------------- */
struct nodes_of {
    const char *target, *prefix; /* "fra", "fra." */
    const struct object **v;
    size_t n;
};

static bool nodes_each(const struct object *o, void *arg)
{
    struct nodes_of *s = arg;

    if (strncmp(o->meta->name, s->prefix, strlen(s->prefix)) != 0)
        return false;
    if (strcmp(object_as(o, node)->spec->target, s->target) == 0)
        s->v[s->n++] = o;
    return true;
}

static struct nodes_of nodes_of_target(struct txn *t, const char *target)
{
    struct nodes_of s = {target, arena_printf(t->a, "%s.", target), NULL, 0};

    s.v = arena_array(t->a, const struct object *, root_count(t->w, KIND_NODE) + 1);
    root_scan(t->w, KIND_NODE, NULL, "", s.prefix, nodes_each, &s);
    return s;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void drop_unlisted(struct txn *t, struct facts *f)
{
    const char **names = arena_array(t->a, const char *, f->c->n + 1);
    struct nodes_of all = nodes_of_target(t, f->c->target);

    for (uint32_t i = 0; i < f->c->n; i++)
        names[i] = f->c->nodes[i].metadata->name;
    qsort(names, f->c->n, sizeof *names, by_name);
    for (size_t i = 0; i < all.n; i++) {
        const char *name = all.v[i]->meta->name;

        if (bsearch(&name, names, f->c->n, sizeof *names, by_name))
            continue;
        txn_remove(t, all.v[i]);
        f->changed++;
    }
}

/* ---- the target's status
 * ------------------------------------------------------------------------------------------ */
static void count_class(struct class_count *list, uint32_t *n, const char *class_)
{
    for (uint32_t i = 0; i < *n; i++)
        if (strcmp(list[i].class_, class_) == 0) {
            list[i].total++;
            return;
        }
    if (*n < 64)
        list[(*n)++] = (struct class_count){.class_ = class_, .total = 1};
}

static int by_class(const void *a, const void *b)
{
    return strcmp(((const struct class_count *)a)->class_, ((const struct class_count *)b)->class_);
}

static void target_count(struct txn *t, const char *target, struct target_status *s)
{
    struct nodes_of all = nodes_of_target(t, target);

    s->nodes = (int64_t)all.n;
    s->gpus = arena_array(t->a, struct class_count, 64);
    s->n_gpus = 0;
    for (size_t i = 0; i < all.n; i++) {
        const struct node *n = object_as(all.v[i], node);

        if (n->status && n->status->health && n->status->health != HEALTH_READY)
            continue;
        for (uint32_t j = 0; j < n->spec->n_gpus; j++) {
            const struct gpu *g = &n->spec->gpus[j];

            if (*g->class_ && (!g->health || g->health == HEALTH_READY))
                count_class(s->gpus, &s->n_gpus, g->class_);
        }
    }
    qsort(s->gpus, s->n_gpus, sizeof *s->gpus, by_class);
}

/* One agent speaks for it, and no other one tried to since it was last said. */
static void agent_tell(struct txn *t, const struct facts_cmd *c, struct target_status *s)
{
    if (*c->agent)
        s->agent = c->agent;
    if (*c->rival)
        txn_condition(t, &s->conditions, &s->n_conditions, "OneAgent", COND_FALSE, "TwoAgents",
                      c->rival);
    else if (s->agent && *s->agent)
        txn_condition(t, &s->conditions, &s->n_conditions, "OneAgent", COND_TRUE, "OneAgent", "");
}

static void target_tell(struct txn *t, const struct facts *f, const struct object *o)
{
    const struct facts_cmd *c = f->c;
    struct target *b = object_edit_as(o, target, t->a);
    enum cond_status was = (enum cond_status)0, now = c->reachable ? COND_TRUE : COND_FALSE;

    if (!b->status)
        b->status = arena_new(t->a, struct target_status);
    struct target_status *s = b->status;
    for (uint32_t i = 0; i < s->n_conditions; i++)
        if (strcmp(s->conditions[i].type, "Connected") == 0)
            was = s->conditions[i].status;
    if (c->reach_told) {
        txn_condition(t, &s->conditions, &s->n_conditions, "Connected", now,
                      c->reachable ? "Connected" : "OutOfReach", c->why);
        if (was != now)
            s->lastContact = t->now;
        if (*c->session)
            s->session = c->session;
        if (root_feature_level(t->w) >= FEATURE_GRANTS)
            agent_tell(t, c, s);
    }
    if (f->changed > 0 || (c->complete && s->inventoryRevision == 0)) {
        target_count(t, c->target, s);
        s->inventoryRevision++;
    }
    if (body_equal(&schema_target, b, o->body)) {
        t->res->unchanged = true;
        return;
    }
    (void)txn_put(t, o->kind, o, b);
}

int apply_facts(struct txn *t, const struct facts_cmd *c)
{
    struct facts f = {.c = c};
    const struct object *o = root_get(t->w, KIND_TARGET, "", c->target);
    bool gone = c->gone && root_feature_level(t->w) >= FEATURE_GRANTS;
    int r;

    if (!o)
        return err_set(t->err, E_NOTFOUND, "targets.hanse.dev \"%s\" not found", c->target);
    f.classes = txn_all(t, KIND_GPU_CLASS, &f.n_classes);
    for (uint32_t i = 0; i < c->n; i++)
        if ((r = gone ? node_gone(t, &f, &c->nodes[i]) : node_upsert(t, &f, &c->nodes[i])) < 0)
            return r;
    if (c->complete && !gone)
        drop_unlisted(t, &f);
    target_tell(t, &f, root_get(t->w, KIND_TARGET, "", c->target));
    return 0;
}

/* ---- GpuClasses changed
 * ------------------------------------------------------------------------------------------------
 */
void facts_reclass(struct txn *t)
{
    struct facts_cmd none = {.n = 0};
    struct facts f = {.c = &none};
    size_t n_nodes, n_targets;

    f.classes = txn_all(t, KIND_GPU_CLASS, &f.n_classes);
    const struct object *const *nodes = txn_all(t, KIND_NODE, &n_nodes);
    for (size_t i = 0; i < n_nodes; i++) {
        struct node *b = object_edit_as(nodes[i], node, t->a);

        if (!classes_resolve(t, &f, b->spec))
            continue;
        b->metadata->generation++;
        (void)txn_put(t, nodes[i]->kind, nodes[i], b);
        f.changed++;
    }
    const struct object *const *targets = f.changed ? txn_all(t, KIND_TARGET, &n_targets) : NULL;
    for (size_t i = 0; targets && i < n_targets; i++) {
        struct target *b = object_edit_as(targets[i], target, t->a);

        if (!b->status)
            b->status = arena_new(t->a, struct target_status);
        target_count(t, targets[i]->meta->name, b->status);
        b->status->inventoryRevision++;
        if (b->status->nodes > 0)
            (void)txn_put(t, targets[i]->kind, targets[i], b);
    }
}
