/* Pages of a Target's inventory, on their way into the log. It must never take a node away that a
 * complete listing or a delta did not: what is cut off, left out or lost removes none. */
#include "controlplane/leader/site/listing.h"

#include "api/base/hash.h"
#include "controlplane/leader/context/hide.h"
#include "policy/policy.h"

#include <stdio.h>
#include <string.h>

/* ---- one node ---- */
static struct node_told *told_find(const struct listing *l, const char *name)
{
    struct indexed *e = index_find(&l->by_name, name);

    return e ? container_of(e, struct node_told, by_name) : NULL;
}

static struct node_told *told_add(struct listing *l, const char *name)
{
    size_t n = strlen(name) + 1;
    struct node_told *d = mem_zalloc(sizeof *d + n);

    memcpy(d->name, name, n);
    d->by_name.key = d->name;
    index_add(&l->by_name, &d->by_name);
    list_push(&l->told, &d->link);
    l->n_told++;
    return d;
}

/* It waits for nothing any more. */
static void told_settle(struct listing *l, struct node_told *d)
{
    if (d->word == NODE_TOLD)
        return;
    list_remove(&d->waits);
    if (d->word == NODE_DUE) {
        l->n_due--;
        l->due_bytes -= d->n;
    } else {
        l->n_leaves--;
    }
    mem_free(d->bytes);
    d->bytes = NULL;
    d->n = 0;
    d->word = NODE_TOLD;
}

static void told_free(struct listing *l, struct node_told *d)
{
    told_settle(l, d);
    l->n_named -= d->listing == l->number;
    list_remove(&d->link);
    index_remove(&l->by_name, &d->by_name);
    l->n_told--;
    mem_free(d);
}

static void told_name(struct listing *l, struct node_told *d, bool named)
{
    l->n_named += (size_t)(named && d->listing != l->number);
    l->n_named -= (size_t)(!named && d->listing == l->number);
    d->listing = named ? l->number : 0;
}

static void told_due(struct listing *l, struct node_told *d, uint64_t hash, struct slice bytes)
{
    told_settle(l, d);
    d->hash = hash;
    d->word = NODE_DUE;
    d->n = bytes.n;
    d->bytes = mem_zalloc(bytes.n + 1);
    memcpy(d->bytes, bytes.p, bytes.n);
    list_push(&l->due, &d->waits);
    l->n_due++;
    l->due_bytes += d->n;
    l->empty = false;
}

static void told_leaves(struct listing *l, struct node_told *d)
{
    told_settle(l, d);
    told_name(l, d, false);
    d->hash = 0;
    d->word = NODE_LEAVES;
    list_push(&l->leaves, &d->waits);
    l->n_leaves++;
}

/* Lets go of what the newest listing has not named; due: also of what waits. */
static void told_purge(struct listing *l, bool due)
{
    list_for_each_safe (it, tmp, &l->told) {
        struct node_told *d = container_of(it, struct node_told, link);
        if (d->listing != l->number && (due || d->word == NODE_TOLD))
            told_free(l, d);
    }
}

/* ---- nodes that cannot be read ---- */
static void refusal_drop(struct listing *l, struct unreadable *r)
{
    list_remove(&r->link);
    index_remove(&l->refused_by_name, &r->by_name);
    l->n_refused--;
    mem_free(r->why);
    mem_free(r);
}

static struct unreadable *refusal_find(const struct listing *l, const char *name)
{
    struct indexed *e = index_find(&l->refused_by_name, name);

    return e ? container_of(e, struct unreadable, by_name) : NULL;
}

/* Beyond LIMIT_TARGET_NODES they are not counted. */
static void refusal_add(struct listing *l, const struct node_refused *n)
{
    size_t size = strnlen(n->name, 253) + 1;
    struct unreadable *r;

    if (size > 253)
        return;
    if (!(r = refusal_find(l, n->name))) {
        if (l->n_refused >= LIMIT_TARGET_NODES)
            return;
        r = mem_zalloc(sizeof *r + size);
        memcpy(r->name, n->name, size);
        r->by_name.key = r->name;
        index_add(&l->refused_by_name, &r->by_name);
        list_push(&l->refused, &r->link);
        l->n_refused++;
    }
    mem_free(r->why);
    r->why = mem_strdup(n->why);
    hide_controls(r->why);
    r->listing = l->number;
}

/* It was told as one that can be read, or is gone. */
static void refusal_over(struct listing *l, const char *name)
{
    struct unreadable *r = l->n_refused ? refusal_find(l, name) : NULL;

    if (r)
        refusal_drop(l, r);
}

/* Those that the newest listing did not refuse. */
static void refusals_purge(struct listing *l, bool all)
{
    list_for_each_safe (it, tmp, &l->refused) {
        struct unreadable *r = container_of(it, struct unreadable, link);
        if (all || r->listing != l->number)
            refusal_drop(l, r);
    }
}

bool listing_refused(const struct listing *l, char *out, size_t size)
{
    const struct unreadable *all = refusal_find(l, NODES_ALL);
    const struct unreadable *first =
        l->n_refused ? container_of(l->refused.next, struct unreadable, link) : NULL;

    *out = '\0';
    if (all)
        (void)snprintf(out, size, "not all of its nodes can be taken: %.400s", all->why);
    else if (first)
        (void)snprintf(out, size, "%zu node%s cannot be read and %s left out: %.100s%s%.300s",
                       l->n_refused, l->n_refused == 1 ? "" : "s", l->n_refused == 1 ? "is" : "are",
                       first->name, *first->name ? ": " : "", first->why);
    return first || l->listed;
}

/* ---- what is told of it ---- */
/* GPUs of other numbers than places can have (store, struct node_usage), or NULL. */
static const struct gpu *gpu_beyond(const struct node_spec *s)
{
    for (uint32_t i = 0; s && i < s->n_gpus; i++)
        if (s->gpus[i].index < 0 || s->gpus[i].index >= LIMIT_NODE_GPUS)
            return &s->gpus[i];
    return NULL;
}

/* One that is told a second time, of those whose numbers are in range; or NULL. */
static const struct gpu *gpu_twice(const struct node_spec *s)
{
    uint64_t seen = 0;

    for (uint32_t i = 0; s && i < s->n_gpus; i++) {
        if (seen >> s->gpus[i].index & 1)
            return &s->gpus[i];
        seen |= 1ull << s->gpus[i].index;
    }
    return NULL;
}

static enum health worse(enum health a, enum health b)
{
    if (a == HEALTH_SICK || b == HEALTH_SICK)
        return HEALTH_SICK;
    return a && a != HEALTH_READY ? a : b;
}

/* What is wrong with a node or a device of it is its health, by which everybody acts. */
static void faults_act(struct node_spec *s, struct gpu gpus[LIMIT_NODE_GPUS],
                       struct node_status *status)
{
    for (uint32_t i = 0; i < s->n_gpus; i++)
        gpus[i] = s->gpus[i];
    s->gpus = gpus;
    for (uint32_t f = 0; f < status->n_faults; f++) {
        int64_t device = fault_device(&status->faults[f]);
        enum health is = fault_health(&status->faults[f]);

        for (uint32_t i = 0; i < s->n_gpus; i++)
            if (gpus[i].index == device)
                gpus[i].health = worse(gpus[i].health, is);
        if (device >= 0)
            continue;
        status->health = worse(status->health, is);
        if (!status->reason || !*status->reason)
            status->reason = status->faults[f].reason;
    }
}

/* Decisions would place work on what no command can hold, or on what others hold, again and again:
 * such a node is told as one that is not ready, with the reason. */
static int node_encode(struct listing *l, const struct node *n, struct buf *out, struct err *err)
{
    const struct gpu *g = gpu_beyond(n->spec), *again = g ? NULL : gpu_twice(n->spec);
    bool early = n->spec && n->spec->n_counted && !l->counts;
    struct node_status status = {0};
    struct node_spec spec;
    struct gpu gpus[LIMIT_NODE_GPUS];
    struct node told = *n;
    char reason[128];
    struct err why;

    l->uncounted |= early;
    if (n->spec && (g || again || early || node_counted_check(n, &why) < 0 ||
                    node_others_check(n, &why) < 0 || node_faults_check(n, &why) < 0)) {
        if (early)
            str_copy(reason, sizeof reason,
                     "it counts its GPUs, and not all members of the cluster know that yet; none "
                     "of it is used");
        else if (g)
            (void)snprintf(reason, sizeof reason,
                           "it has GPU %lld: GPUs are numbered from 0 to %d; none of it is used",
                           (long long)g->index, LIMIT_NODE_GPUS - 1);
        else if (again)
            (void)snprintf(reason, sizeof reason, "it tells GPU %lld twice; none of it is used",
                           (long long)again->index);
        else
            (void)snprintf(reason, sizeof reason, "%.100s; none of it is used", why.text);
        if (n->status)
            status = *n->status;
        status.health = HEALTH_NOT_READY;
        status.reason = reason;
        spec = *n->spec;
        spec.n_gpus = spec.n_counted = 0;
        told.spec = &spec;
        told.status = &status;
    } else if (n->spec && n->status && n->status->n_faults) {
        status = *n->status;
        spec = *n->spec;
        faults_act(&spec, gpus, &status);
        told.spec = &spec;
        told.status = &status;
    }
    return tlv_encode(&schema_node, &told, out, err);
}

static int node_take(struct listing *l, const struct node *n, bool again, struct buf *b,
                     struct err *err)
{
    const char *name = n->metadata ? n->metadata->name : "";
    struct node_told *d = told_find(l, name);

    buf_reset(b);
    if (!*name || strlen(name) > 253 || node_encode(l, n, b, NULL) < 0 ||
        l->due_bytes + b->n > LISTING_DUE_MAX_BYTES)
        return err_set(err, E_TOOLARGE,
                       "of its inventory some nodes are larger than an object may be, or all of "
                       "them than 64 MiB: these are left out, and none is taken away");
    if (!d && l->n_told >= (size_t)2 * LIMIT_TARGET_NODES)
        told_purge(l, false);
    if (l->n_named >= LIMIT_TARGET_NODES && (!d || d->listing != l->number))
        return err_set(err, E_TOOLARGE,
                       "an inventory of more than %d nodes: make several targets; others are left "
                       "out, and none is taken away",
                       LIMIT_TARGET_NODES);
    if (!d)
        d = told_add(l, name);
    told_name(l, d, true);
    uint64_t hash = hash_more(HASH_START, b->p, b->n);
    hash += !hash;
    if (again || d->word == NODE_LEAVES || d->hash != hash)
        told_due(l, d, hash, slice_make(b->p, b->n));
    return 0;
}

/* ---- pages ---- */
static void listing_begin(struct listing *l)
{
    l->number++;
    l->n_named = 0;
    l->lacks = false;
    l->stage = LISTING_OPEN;
    l->revision[0] = '\0';
}

/* What it did not name is not told any more, and deltas may follow. */
static void listing_end(struct listing *l, const char *revision)
{
    str_copy(l->revision, sizeof l->revision, revision);
    refusals_purge(l, false);
    l->listed = true;
    if (l->lacks) {
        l->stage = LISTING_NONE;
        return;
    }
    l->stage = LISTING_ENDED;
    told_purge(l, true);
}

int listing_take(struct listing *l, const struct inventory_page *p, bool told_again,
                 struct err *err)
{
    bool delta = *p->since != '\0';
    struct err why;
    int rc = 0;
    AUTO_BUF b;

    PRE(!delta || (!p->first && !p->last));
    buf_init(&b, LIMIT_OBJECT_MAX_BYTES);
    if (delta ? l->stage == LISTING_OPEN || strcmp(p->since, l->revision) != 0
              : !p->first && l->stage != LISTING_OPEN) {
        l->revision[0] = '\0';
        return err_set(err, E_CONFLICT, "a %s that does not follow what came last",
                       delta ? "delta" : "page");
    }
    if (p->first)
        listing_begin(l);
    for (size_t i = 0; i < p->n_removed; i++) {
        struct node_told *d = told_find(l, p->removed[i]);
        if (d)
            told_leaves(l, d);
        refusal_over(l, p->removed[i]);
    }
    for (size_t i = 0; i < p->n_refused; i++)
        refusal_add(l, &p->refused[i]);
    for (size_t i = 0; i < p->n; i++) {
        if (p->nodes[i].metadata)
            refusal_over(l, p->nodes[i].metadata->name);
        int r = node_take(l, &p->nodes[i], told_again, &b, &why);
        if (r < 0 && rc == 0) {
            rc = r;
            *err = why;
        }
    }
    if (rc < 0)
        refusal_add(l, &(struct node_refused){NODES_ALL, err->text});
    if (delta)
        str_copy(l->revision, sizeof l->revision, p->revision);
    else
        l->lacks |= p->lacks || rc < 0;
    if (p->last)
        listing_end(l, p->revision);
    return rc;
}

void listing_cut(struct listing *l)
{
    if (l->stage == LISTING_OPEN)
        l->stage = LISTING_NONE;
    l->revision[0] = '\0';
}

void listing_forget(struct listing *l)
{
    l->stage = LISTING_NONE;
    l->empty = false;
    l->revision[0] = '\0';
    list_for_each (it, &l->told)
        container_of(it, struct node_told, link)->hash = 0;
}

void listing_done(struct listing *l)
{
    l->stage = LISTING_NONE;
}

/* ---- what goes out ---- */
const struct node_told *listing_due(const struct listing *l)
{
    return l->n_due ? container_of(l->due.next, struct node_told, waits) : NULL;
}

const struct node_told *listing_leaves(const struct listing *l)
{
    return l->n_leaves ? container_of(l->leaves.next, struct node_told, waits) : NULL;
}

void listing_pop(struct listing *l, const struct node_told *told)
{
    struct node_told *d = told_find(l, told->name);

    PRE(d == told && d->word != NODE_TOLD);
    if (d->word == NODE_LEAVES)
        told_free(l, d);
    else
        told_settle(l, d);
}

bool listing_names(const struct listing *l, const char *name)
{
    const struct node_told *d = told_find(l, name);

    return d && d->listing == l->number;
}

void listing_init(struct listing *l)
{
    *l = (struct listing){.number = 1};
    list_init(&l->told);
    list_init(&l->due);
    list_init(&l->leaves);
    list_init(&l->refused);
}

void listing_fini(struct listing *l)
{
    list_for_each_safe (it, tmp, &l->told)
        told_free(l, container_of(it, struct node_told, link));
    refusals_purge(l, true);
}
