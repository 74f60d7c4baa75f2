/* FACTS: the nodes and the reach of a target, as its connector saw them. Only differences are
 * written, so that a report without news moves no resourceVersion.
 *
 * It must never write derived figures (root_usage computes the usage of a node), and never drop
 * what is held on a node that vanished: a node that is gone proves no end (remove.c). */
#include "controlplane/store/store_internal.h"
#include "policy/policy.h"

#include <stdlib.h>

#define LACKS_TOLD 16

struct facts {
    const struct facts_cmd *c;
    const struct root *w;
    const struct object *const *classes;
    size_t n_classes;
    uint32_t changed;
    bool pairs; /* a node is new, or is listed no more */
};

static const char *class_named(const struct facts *f, const char *name)
{
    const struct object *o = root_get(f->w, KIND_GPU_CLASS, "", name);

    return o ? o->meta->name : NULL;
}

/* The class that a device says it has, when there is one of that name; else the one that knows its
 * model. Devices of a node are mostly alike: each is looked up only where it differs from the one
 * before it. */
static bool classes_resolve(struct txn *t, const struct facts *f, struct node_spec *s)
{
    const char *model = NULL, *class_ = NULL, *found = NULL;
    bool changed = false;
    int64_t memory = 0;

    for (uint32_t i = 0; i < s->n_gpus; i++) {
        struct gpu *g = &s->gpus[i];

        if (!model || g->memory != memory || strcmp(g->model, model) != 0 ||
            strcmp(g->class_, class_) != 0) {
            model = g->model;
            memory = g->memory;
            class_ = g->class_;
            found = *g->class_ ? class_named(f, g->class_) : NULL;
            if (!found && *g->model)
                found = policy_class_of(g->model, g->memory, f->classes, f->n_classes);
        }
        if (found && strcmp(found, g->class_) != 0) {
            g->class_ = arena_strdup(t->a, found);
            changed = true;
        }
    }
    for (uint32_t i = 0; i < s->n_counted; i++) {
        struct counted_gpus *c = &s->counted[i];

        found = *c->class_ ? class_named(f, c->class_) : NULL;
        if (!found && *c->model)
            found = policy_class_of(c->model, c->memory, f->classes, f->n_classes);
        if (found && strcmp(found, c->class_) != 0) {
            c->class_ = arena_strdup(t->a, found);
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

static void node_drop(struct txn *t, struct facts *f, const struct object *o)
{
    bool changed = node_unlist(t, o);

    f->changed += changed;
    f->pairs |= changed;
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
    node_drop(t, f, o);
    return 0;
}

static bool fault_same(const struct node_fault *a, const struct node_fault *b)
{
    return fault_device(a) == fault_device(b) && a->source == b->source &&
           strcmp(a->reason, b->reason) == 0;
}

/* Each since it was told first, by the state's time. */
static void faults_take(struct txn *t, struct node_status *to, const struct node_status *told,
                        const struct node_status *was)
{
    to->n_faults = told->n_faults;
    to->faults = arena_array(t->a, struct node_fault, told->n_faults + 1);
    for (uint32_t i = 0; i < told->n_faults; i++) {
        to->faults[i] = told->faults[i];
        to->faults[i].since = t->now;
        for (uint32_t k = 0; was && k < was->n_faults; k++)
            if (fault_same(&was->faults[k], &told->faults[i]))
                to->faults[i].since = was->faults[k].since;
    }
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
    if (b->spec->n_counted)
        b->spec->counted =
            arena_memdup(t->a, b->spec->counted, b->spec->n_counted * sizeof *b->spec->counted);
    (void)classes_resolve(t, f, b->spec);
    status->health = n->status && n->status->health ? n->status->health : HEALTH_READY;
    status->reason = n->status ? n->status->reason : "";
    if (n->status && root_feature_level(t->w) >= FEATURE_GRANTS) {
        status->isolation = n->status->isolation;
        status->others = n->status->others;
        faults_take(t, status, n->status, old ? object_as(old, node)->status : NULL);
    }
    b->status = status;
    if (!old) {
        b->metadata = txn_meta(t, "", n->metadata->name);
        b->metadata->labels = n->metadata->labels;
        b->metadata->n_labels = n->metadata->n_labels;
        (void)txn_put(t, k, NULL, b);
        f->pairs = true;
        f->changed++;
        return 0;
    }
    node_relist(t, old);
    struct node *was = object_edit_as(old, node, t->a);
    b->metadata = was->metadata;
    status->formerly = was->status ? was->status->formerly : NULL;
    status->notice = was->status ? was->status->notice : NULL;
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

/* ---- notices ---- */
#define NOTICE_SLACK_MS 5000 /* between machine and state, on the way and by their clocks */

bool notice_repeats(const struct node_notice *had, const struct node_notice *told, int64_t now_ms)
{
    if (!had || !told)
        return !had && !told;
    if (had->kind != told->kind || !had->deadline != !told->deadline)
        return false;
    if (had->deadline <= now_ms && told->deadline <= now_ms + NOTICE_SLACK_MS)
        return true; /* it is over; or none is told */
    return told->deadline <= had->deadline + NOTICE_SLACK_MS &&
           told->deadline >= had->deadline - NOTICE_SLACK_MS;
}

/* A node that the state does not have yet is told again once it has. */
static int node_noticed(struct txn *t, const struct facts *f, const struct node *n)
{
    const struct node_notice *told = n->status ? n->status->notice : NULL;
    const struct object *o;
    struct node_notice *now = NULL;
    const struct node_notice *had;

    if (!names_its_own(f, n) || (told && (!*notice_kind_text(told->kind) || told->deadline < 0)))
        return err_set(t->err, E_INVALID, "a notice of target %s names a node %s.NODE, and a kind",
                       f->c->target, f->c->target);
    o = root_get(t->w, KIND_NODE, "", n->metadata->name);
    if (!o || strcmp(object_as(o, node)->spec->target, f->c->target) != 0)
        return 0;
    struct node *b = object_edit_as(o, node, t->a);
    if (!b->status)
        b->status = arena_new(t->a, struct node_status);
    had = b->status->notice;
    if (told) {
        now = arena_new(t->a, struct node_notice);
        now->kind = told->kind;
        now->deadline = told->deadline ? t->now + told->deadline : 0;
        now->since = had && had->kind == told->kind ? had->since : t->now;
    }
    if (notice_repeats(had, now, t->now))
        return 0;
    b->status->notice = now;
    (void)txn_put(t, o->kind, o, b);
    return 0;
}

/* ---- nodes of one target ---- */
/* The node after `at` of a target, whose nodes' names begin with it; at moves on. */
const struct object *node_next(struct txn *t, const char *target, struct key *at)
{
    struct key prefix, found;
    const struct object *o;

    key_object(&prefix, "", target);
    prefix.p[prefix.n++] = '.';
    while ((o = txn_next(t->w->kinds[KIND_NODE], key_slice(&prefix), key_slice(at), &found))) {
        *at = found;
        if (strcmp(object_as(o, node)->spec->target, target) == 0)
            return o;
    }
    return NULL;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void drop_unlisted(struct txn *t, struct facts *f)
{
    AUTO_ARENA a = arena_create(0);
    const char **names = arena_array(a, const char *, f->c->n + 1);
    struct key at = {.n = 0};
    const struct object *o;

    for (uint32_t i = 0; i < f->c->n; i++)
        names[i] = f->c->nodes[i].metadata->name;
    qsort(names, f->c->n, sizeof *names, by_name);
    while ((o = node_next(t, f->c->target, &at))) {
        if (bsearch(&o->meta->name, names, f->c->n, sizeof *names, by_name))
            continue;
        node_drop(t, f, o);
        arena_reset(t->a);
    }
}

/* ---- the target's status ---- */
/* What any of its nodes lacks. */
static void lacks_add(struct txn *t, struct node_isolation *to, const struct node_isolation *from)
{
    if (!to->lacks)
        to->lacks = arena_array(t->a, const char *, LACKS_TOLD);
    for (uint32_t i = 0; i < from->n_lacks && to->n_lacks < LACKS_TOLD; i++) {
        uint32_t k = 0;
        while (k < to->n_lacks && strcmp(to->lacks[k], from->lacks[i]) != 0)
            k++;
        if (k == to->n_lacks)
            to->lacks[to->n_lacks++] = from->lacks[i];
    }
}

/* The weakest of its nodes; not known where one does not tell. */
static struct node_isolation *target_isolation(struct txn *t, const char *target)
{
    struct node_isolation *least = NULL;
    struct key at = {.n = 0};
    const struct object *o;

    if (root_feature_level(t->w) < FEATURE_GRANTS)
        return NULL;
    while ((o = node_next(t, target, &at))) {
        const struct node_status *s = object_as(o, node)->status;

        if (!s || !s->isolation || !s->isolation->processes)
            return NULL;
        if (!least) {
            least = arena_new(t->a, struct node_isolation);
            least->processes = s->isolation->processes;
            least->tenants = s->isolation->tenants;
        } else {
            if (s->isolation->processes < least->processes)
                least->processes = s->isolation->processes;
            if (s->isolation->tenants < least->tenants) /* also: does not tell */
                least->tenants = s->isolation->tenants;
        }
        lacks_add(t, least, s->isolation);
    }
    return least;
}

static void target_count(struct txn *t, const char *target, struct target_status *s)
{
    root_target_count(t->w, target, t->a, s);
    s->isolation = target_isolation(t, target);
}

static const struct target_agent_status *part_find(const struct target_status *s,
                                                   const char *name)
{
    for (uint32_t i = 0; i < s->n_agents; i++)
        if (strcmp(s->agents[i].name, name) == 0)
            return &s->agents[i];
    return NULL;
}

/* One of several agents. Rows stand in the order of spec.agents. */
static void part_tell(struct txn *t, const struct facts_cmd *c, const struct target_spec *spec,
                      struct target_status *s)
{
    struct target_agent_status *rows =
        arena_array(t->a, struct target_agent_status, spec->n_agents);
    uint32_t n = 0;

    for (uint32_t i = 0; i < spec->n_agents; i++) {
        const struct target_agent_status *had = part_find(s, spec->agents[i].name);
        bool told = strcmp(spec->agents[i].name, c->part) == 0;
        if (!had && !told)
            continue;
        struct target_agent_status *row = &rows[n++];
        *row = had ? *had : (struct target_agent_status){.name = c->part, .agent = ""};
        if (!told)
            continue;
        if (!had || had->connected != c->part_reached)
            row->lastContact = t->now;
        row->connected = c->part_reached;
        row->message = c->part_why;
        if (*c->agent)
            row->agent = c->agent;
    }
    s->agents = rows;
    s->n_agents = n;
}

/* One agent speaks for it, or for a part of it, and no other one tried to since it was last
 * said. */
static void agent_tell(struct txn *t, const struct facts_cmd *c, const struct target_spec *spec,
                       struct target_status *s)
{
    if (spec->n_agents && *c->part)
        part_tell(t, c, spec, s);
    else if (*c->agent)
        s->agent = c->agent;
    if (*c->rival)
        txn_condition(t, &s->conditions, &s->n_conditions, "OneAgent", COND_FALSE, "TwoAgents",
                      c->rival);
    else if ((s->agent && *s->agent) || s->n_agents)
        txn_condition(t, &s->conditions, &s->n_conditions, "OneAgent", COND_TRUE, "OneAgent", "");
}

static bool condition_is(const struct target_status *s, const char *type)
{
    for (uint32_t i = 0; i < s->n_conditions; i++)
        if (strcmp(s->conditions[i].type, type) == 0)
            return true;
    return false;
}

/* It lists a run as alive that it had called ended, or had of late: a target of which nobody ever
 * heard that has no such condition. */
static void denial_tell(struct txn *t, const struct facts_cmd *c, struct target_status *s)
{
    if (*c->denies)
        txn_condition(t, &s->conditions, &s->n_conditions, "Consistent", COND_FALSE, "EndDenied",
                      c->denies);
    else if (condition_is(s, "Consistent"))
        txn_condition(t, &s->conditions, &s->n_conditions, "Consistent", COND_TRUE, "Consistent",
                      "");
}

/* Some of what it tells cannot be read. The condition goes when all can be, or once again. */
static void refused_tell(struct txn *t, struct target_status *s, const char *type, const char *why)
{
    uint32_t n = 0;

    if (*why) {
        txn_condition(t, &s->conditions, &s->n_conditions, type, COND_TRUE, "Unreadable", why);
        return;
    }
    for (uint32_t i = 0; i < s->n_conditions; i++)
        if (strcmp(s->conditions[i].type, type) != 0)
            s->conditions[n++] = s->conditions[i];
    s->n_conditions = n;
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
            agent_tell(t, c, b->spec, s);
        if (root_feature_level(t->w) >= FEATURE_GRANTS)
            denial_tell(t, c, s);
        if (c->refused_told && root_feature_level(t->w) >= FEATURE_COUNTS)
            refused_tell(t, s, "NodesRefused", c->refused);
        if (c->unread_told && root_feature_level(t->w) >= FEATURE_PODS)
            refused_tell(t, s, "RunsRefused", c->unread);
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
    struct facts f = {.c = c, .w = t->w};
    const struct object *o = root_get(t->w, KIND_TARGET, "", c->target);
    bool grants = root_feature_level(t->w) >= FEATURE_GRANTS;
    bool gone = c->gone && grants, noticed = c->noticed && grants;
    AUTO_ARENA a = arena_create(0);
    int r;

    if (!o)
        return err_set(t->err, E_NOTFOUND, "targets.hanse.dev \"%s\" not found", c->target);
    f.classes = root_all(t->w, KIND_GPU_CLASS, a, &f.n_classes);
    for (uint32_t i = 0; i < c->n; i++) {
        const struct node *n = &c->nodes[i];
        r = gone ? node_gone(t, &f, n) : noticed ? node_noticed(t, &f, n) : node_upsert(t, &f, n);
        if (r < 0)
            return r;
        arena_reset(t->a);
    }
    if (c->complete && !gone && !noticed)
        drop_unlisted(t, &f);
    if (f.pairs && grants)
        nodes_pair(t, c->target);
    target_tell(t, &f, root_get(t->w, KIND_TARGET, "", c->target));
    return 0;
}

/* ---- GpuClasses changed ---- */
/* In between a node has the classes that it was matched with last; what is placed there by them is
 * checked against them, and what FACTS tells meanwhile is matched with the new ones. */
enum { CLASSES_NODES, CLASSES_NODES_CHANGED, CLASSES_TARGETS }; /* stages */

static bool node_reclass(struct txn *t, const struct facts *f, const struct object *o)
{
    struct node *b = object_edit_as(o, node, t->a);

    if (!classes_resolve(t, f, b->spec))
        return false;
    b->metadata->generation++;
    (void)txn_put(t, o->kind, o, b);
    return true;
}

static void target_reclass(struct txn *t, const struct object *o)
{
    struct target *b = object_edit_as(o, target, t->a);

    if (!b->status)
        b->status = arena_new(t->a, struct target_status);
    target_count(t, o->meta->name, b->status);
    b->status->inventoryRevision++;
    if (b->status->nodes > 0)
        (void)txn_put(t, o->kind, o, b);
}

void collect_classes(struct txn *t, struct slice key, const struct dead_box *d)
{
    struct facts f = {.w = t->w};
    AUTO_ARENA a = arena_create(0);
    uint32_t stage = d->stage;
    struct key at = {.n = d->n}, found;
    const struct object *o;

    if (d->n)
        memcpy(at.p, d->cursor, d->n);
    f.classes = root_all(t->w, KIND_GPU_CLASS, a, &f.n_classes);
    for (;;) {
        enum kind_id kind = stage == CLASSES_TARGETS ? KIND_TARGET : KIND_NODE;

        o = txn_next(t->w->kinds[kind], slice_make("", 0), key_slice(&at), &found);
        if (!o && stage != CLASSES_NODES_CHANGED)
            break;
        if (!o) {
            stage = CLASSES_TARGETS;
            at.n = 0;
            continue;
        }
        if (!txn_charge(t, o->bytes)) {
            dead_set(t, key, stage, false, key_slice(&at));
            return;
        }
        at = found;
        struct object *kept = object_ref(o);
        if (kind == KIND_TARGET)
            target_reclass(t, kept);
        else if (node_reclass(t, &f, kept))
            stage = CLASSES_NODES_CHANGED;
        (void)object_unref(kept);
        arena_reset(t->a);
    }
    root_put_dead(t->w, key, NULL);
}

/* Anew from the first node on. Members before FEATURE_GRANTS did it at once. */
void facts_reclass(struct txn *t)
{
    const char what = DEAD_CLASSES, name[] = DEAD_CLASSES_NAME;
    char key[sizeof what + sizeof name - 1];
    struct dead_box all = {.stage = CLASSES_NODES};
    uint32_t objects = t->objects;

    key[0] = what;
    memcpy(key + 1, name, sizeof name - 1);
    const struct slice k = slice_make(key, sizeof key);
    if (t->sliced) {
        const struct dead_box *under_way = tree_get(t->w->dead, k);
        bool changed = under_way && under_way->stage != CLASSES_NODES;

        dead_set(t, k, changed ? CLASSES_NODES_CHANGED : CLASSES_NODES, false, slice_make("", 0));
        return;
    }
    t->objects = UINT32_MAX;
    collect_classes(t, k, &all);
    t->objects = objects;
}
