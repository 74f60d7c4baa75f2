/* Records of nodes and of others' pods. */
#include "connectors/kubernetes/nodes/records.h"

#include "api/base/hash.h"
#include "api/base/log.h"

#include <stdio.h>
#include <string.h>

#define BUCKETS_MIN 64

/* ---- tables ---- */
static void table_grow(struct kube_table *t)
{
    size_t cap = t->cap ? t->cap * 2 : BUCKETS_MIN;
    struct kube_entry **v = mem_zalloc(cap * sizeof *v);

    for (size_t i = 0; i < t->cap; i++) {
        for (struct kube_entry *e = t->v[i], *next; e; e = next) {
            next = e->next;
            e->next = v[e->hash % cap];
            v[e->hash % cap] = e;
        }
    }
    mem_free(t->v);
    t->v = v;
    t->cap = cap;
}

static void table_add(struct kube_table *t, struct kube_entry *e, uint64_t hash)
{
    if (t->n >= t->cap)
        table_grow(t);
    e->hash = hash;
    e->next = t->v[hash % t->cap];
    t->v[hash % t->cap] = e;
    t->n++;
}

static void table_remove(struct kube_table *t, struct kube_entry *e)
{
    struct kube_entry **at = &t->v[e->hash % t->cap];

    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    t->n--;
}

static struct kube_entry *table_first(const struct kube_table *t, uint64_t hash)
{
    return t->cap ? t->v[hash % t->cap] : NULL;
}

/* each() may remove what it is called with. */
static void table_each(struct kube_table *t, void (*each)(void *arg, struct kube_entry *e),
                       void *arg)
{
    for (size_t i = 0; i < t->cap; i++) {
        for (struct kube_entry *e = t->v[i], *next; e; e = next) {
            next = e->next;
            each(arg, e);
        }
    }
}

/* ---- nodes ---- */
static struct kube_rec *rec_of(struct kube_entry *e)
{
    return container_of(e, struct kube_rec, entry);
}

/* The low bits of FNV-1a are its weakest. */
static uint64_t mixed(uint64_t h)
{
    return h ^ h >> 32;
}

struct kube_rec *kube_rec_find(const struct kube_records *t, const char *name)
{
    uint64_t hash = mixed(hash_text(name));

    for (struct kube_entry *e = table_first(&t->nodes, hash); e; e = e->next)
        if (e->hash == hash && strcmp(rec_of(e)->name, name) == 0)
            return rec_of(e);
    return NULL;
}

struct kube_rec *kube_rec_get(struct kube_records *t, const char *name)
{
    struct kube_rec *r = kube_rec_find(t, name);
    size_t n = strlen(name) + 1;

    if (r || t->nodes.n >= KUBE_NODES_MAX || n > 254)
        return r;
    r = mem_zalloc(sizeof *r + n);
    memcpy(r->name, name, n);
    list_init(&r->link);
    table_add(&t->nodes, &r->entry, mixed(hash_text(name)));
    return r;
}

static void rec_clear(struct kube_rec *r)
{
    mem_free(r->bytes);
    mem_free(r->rows);
    mem_free(r->why);
    r->bytes = NULL;
    r->rows = NULL;
    r->why = NULL;
    r->n_bytes = r->n_rows = 0;
    r->told_hash = 0;
    r->known = r->told = r->goes = false;
}

static void exporter_free(struct kube_rec *r)
{
    struct kube_exporter *e = r->exporter;

    r->exporter = NULL;
    if (!e)
        return;
    list_remove(&e->link);
    mem_free(e->reason);
    mem_free(e->message);
    mem_free(e);
}

static void rec_free(void *arg, struct kube_entry *e)
{
    struct kube_rec *r = rec_of(e);

    (void)arg;
    list_remove(&r->link);
    exporter_free(r);
    rec_clear(r);
    mem_free(r->held);
    mem_free(r);
}

void kube_rec_forget(struct kube_records *t, struct kube_rec *r)
{
    PRE(list_empty(&r->link));
    rec_clear(r);
    if (r->pods)
        return;
    table_remove(&t->nodes, &r->entry);
    rec_free(NULL, &r->entry);
}

struct each_rec {
    void (*each)(void *arg, struct kube_rec *r);
    void *arg;
};

static void each_rec(void *arg, struct kube_entry *e)
{
    const struct each_rec *x = arg;

    x->each(x->arg, rec_of(e));
}

void kube_rec_each(struct kube_records *t, void (*each)(void *arg, struct kube_rec *r), void *arg)
{
    struct each_rec x = {each, arg};

    table_each(&t->nodes, each_rec, &x);
}

int kube_resource_id(struct kube_records *t, const char *resource, unsigned most)
{
    unsigned free = most;

    for (unsigned i = 0; i < KUBE_RESOURCES_MAX; i++) {
        if (t->resources[i] && strcmp(t->resources[i], resource) == 0)
            return (int)i;
        if (!t->resources[i] && i < free)
            free = i;
    }
    if (free == most)
        return -1;
    t->resources[free] = mem_strdup(resource);
    return (int)free;
}

/* What pods hold is in their nodes' sums. */
static void resources_mark(void *arg, struct kube_entry *e)
{
    const struct kube_rec *r = rec_of(e);
    bool *used = arg;

    for (unsigned i = 0; i < r->n_held; i++)
        used[r->held[i].resource] = true;
    for (unsigned i = 0; i < r->n_rows; i++)
        if (r->rows[i] < KUBE_RESOURCES_MAX)
            used[r->rows[i]] = true;
}

static void resources_sweep(struct kube_records *t)
{
    bool used[KUBE_RESOURCES_MAX] = {false};

    table_each(&t->nodes, resources_mark, used);
    t->full = t->freed = false;
    for (unsigned i = 0; i < KUBE_RESOURCES_MAX; i++) {
        if (used[i])
            continue;
        mem_free(t->resources[i]);
        t->resources[i] = NULL;
    }
}

/* ---- what pods hold ---- */
static struct kube_pod *pod_of(struct kube_entry *e)
{
    return container_of(e, struct kube_pod, entry);
}

static void held_add(struct kube_rec *r, uint16_t resource, int64_t count)
{
    unsigned i = 0;

    while (i < r->n_held && r->held[i].resource != resource)
        i++;
    if (i == r->n_held) {
        r->held = mem_realloc(r->held, (i + 1u) * sizeof *r->held);
        r->held[i] = (struct kube_held){.resource = resource};
        r->n_held++;
    }
    r->held[i].count += count;
    INV(r->held[i].count >= 0);
    if (r->held[i].count == 0)
        r->held[i] = r->held[--r->n_held];
}

/* One pod more than are kept is counted while it takes the place of what it was. */
_Static_assert(KUBE_CPU_MAX <= INT64_MAX / (KUBE_PODS_MAX + 1), "a node's sum has room");
_Static_assert(KUBE_MEMORY_MAX / 1024 <= INT64_MAX / (KUBE_PODS_MAX + 1), "likewise");

static void pod_counts(struct kube_records *t, const struct kube_pod *p, int sign)
{
    struct kube_rec *r = p->node;

    r->cpu += sign * p->cpu;
    r->memory_kib += sign * p->memory_kib;
    r->pods += (uint32_t)sign;
    r->partial += (uint32_t)(p->partial ? sign : 0);
    INV(r->cpu >= 0 && r->memory_kib >= 0);
    for (uint32_t i = 0; i < p->n_held; i++)
        held_add(r, p->held[i].resource, sign * p->held[i].count);
    if (r->known)
        t->changed(t->arg, r);
    else if (!r->pods && list_empty(&r->link))
        kube_rec_forget(t, r);
}

/* ---- exporters of DCGM ---- */
static bool exporter_is(const cJSON *pod, char path[600])
{
    static const struct {
        const char *ns, *label, *value;
        int port;
    } rows[] = {
#define EXPORTER(namespace, label, value, port, source) {namespace, label, value, port},
#include "connectors/kubernetes/nodes/dialects.def"
    };
    const char *ns = kube_text(pod, "metadata.namespace"), *name = kube_text(pod, "metadata.name");

    if (strcmp(kube_text(pod, "status.phase"), "Running") != 0 || !object_name_valid(name))
        return false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(ns, rows[i].ns) != 0 ||
            strcmp(kube_label(pod, rows[i].label), rows[i].value) != 0)
            continue;
        (void)snprintf(path, 600, "/api/v1/namespaces/%s/pods/%s:%d/proxy/metrics", ns, name,
                       rows[i].port);
        return true;
    }
    return false;
}

static void exporter_take(struct kube_records *t, const struct kube_pod *p, const cJSON *pod)
{
    struct kube_rec *r = p->node;
    bool sick = r->exporter && r->exporter->sick;
    struct kube_exporter *e;
    char path[600];

    if (!exporter_is(pod, path) ||
        (r->exporter && r->exporter->hash == p->entry.hash && r->exporter->more == p->more))
        return;
    exporter_free(r);
    e = mem_zalloc(sizeof *e + strlen(path) + 1);
    memcpy(e->path, path, strlen(path) + 1);
    e->hash = p->entry.hash;
    e->more = p->more;
    e->node = r;
    list_push(&t->exporters, &e->link);
    t->unasked = true;
    r->exporter = e;
    if (sick && r->known) /* by the one of before: this one has told nothing yet */
        t->changed(t->arg, r);
}

static void exporter_gone(struct kube_records *t, const struct kube_pod *p)
{
    struct kube_rec *r = p->node;
    const struct kube_exporter *e = r->exporter;

    if (!e || e->hash != p->entry.hash || e->more != p->more)
        return;
    exporter_free(r);
    if (r->known)
        t->changed(t->arg, r);
}

void kube_exporter_told(struct kube_records *t, struct kube_exporter *e, const struct kube_dcgm *d)
{
    bool same =
        e->sick == d->sick &&
        (!d->sick || (strcmp(e->reason, d->reason) == 0 && strcmp(e->message, d->message) == 0));

    if (same)
        return;
    mem_free(e->reason);
    mem_free(e->message);
    e->reason = d->sick ? mem_strdup(d->reason) : NULL;
    e->message = d->sick ? mem_strdup(d->message) : NULL;
    e->sick = d->sick;
    if (e->node->known)
        t->changed(t->arg, e->node);
}

/* ---- pods ---- */
static void pod_drop(struct kube_records *t, struct kube_pod *p)
{
    exporter_gone(t, p);
    table_remove(&t->pods, &p->entry);
    t->freed |= p->n_held > 0;
    pod_counts(t, p, -1);
    mem_free(p);
}

static bool pod_same(const struct kube_pod *a, const struct kube_pod *b)
{
    if (a->node != b->node || a->cpu != b->cpu || a->memory_kib != b->memory_kib ||
        a->partial != b->partial || a->n_held != b->n_held)
        return false;
    for (uint32_t i = 0; i < a->n_held; i++)
        if (a->held[i].resource != b->held[i].resource || a->held[i].count != b->held[i].count)
            return false;
    return true;
}

static struct kube_pod *pod_make(struct kube_records *t, struct kube_rec *node,
                                 const struct kube_asks *asks)
{
    struct kube_pod *p = mem_zalloc(sizeof *p + asks->n * sizeof p->held[0]);

    p->node = node;
    p->listing = t->pod_listing;
    p->cpu = asks->cpu_milli;
    p->memory_kib = (asks->memory_bytes + 1023) / 1024;
    p->partial = asks->more;
    if (t->full && t->freed)
        resources_sweep(t);
    for (unsigned i = 0; i < asks->n; i++) {
        int id = kube_resource_id(t, asks->devices[i].resource, KUBE_PODS_RESOURCES);
        t->full |= id < 0;
        p->partial |= id < 0;
        if (id >= 0)
            p->held[p->n_held++] = (struct kube_held){(uint16_t)id, asks->devices[i].count};
    }
    return p;
}

/* By its uid; one without, which no API server sends, by its names. */
static uint64_t pod_hash(const cJSON *pod, uint64_t *ret_more)
{
    const char *uid = kube_text(pod, "metadata.uid"), *ns = kube_text(pod, "metadata.namespace");
    const char *name = kube_text(pod, "metadata.name");
    uint64_t h = HASH_START, more = HASH_START ^ 0x5bd1e995;

    if (*uid) {
        h = hash_more(h, uid, strlen(uid));
        more = hash_more(more, uid, strlen(uid));
    } else {
        h = hash_more(hash_more(h, ns, strlen(ns) + 1), name, strlen(name));
        more = hash_more(hash_more(more, ns, strlen(ns) + 1), name, strlen(name));
    }
    *ret_more = more;
    return mixed(h);
}

static struct kube_pod *pod_find(const struct kube_records *t, uint64_t hash, uint64_t more)
{
    for (struct kube_entry *e = table_first(&t->pods, hash); e; e = e->next)
        if (e->hash == hash && pod_of(e)->more == more)
            return pod_of(e);
    return NULL;
}

void kube_records_pod(struct kube_records *t, enum kube_change change, const cJSON *pod)
{
    uint64_t more, hash = pod_hash(pod, &more);
    struct kube_pod *old = pod_find(t, hash, more), *now;
    struct kube_rec *node = NULL;
    struct kube_asks asks;

    if (change == KUBE_IS && kube_pod_asks(pod, &asks))
        node = kube_rec_get(t, kube_text(pod, "spec.nodeName"));
    if (node && !old && t->pods.n >= KUBE_PODS_MAX) {
        if (node->uncounted != t->pod_listing)
            log_event(LOG_WARN, "kube.pods_uncounted", LOG_FIELDS({"node", log_str(node->name)}));
        node->uncounted = t->pod_listing;
        if (node->known)
            t->changed(t->arg, node);
        else if (!node->pods && list_empty(&node->link))
            kube_rec_forget(t, node);
        return;
    }
    now = node ? pod_make(t, node, &asks) : NULL;
    if (now && now->partial && !node->partial)
        log_event(LOG_WARN, "kube.devices_uncounted", LOG_FIELDS({"node", log_str(node->name)}));
    if (now && old && pod_same(old, now)) {
        old->listing = t->pod_listing;
        exporter_take(t, old, pod);
        mem_free(now);
        return;
    }
    if (now) { /* ahead of the old one's end, so that its node stays */
        now->more = more;
        table_add(&t->pods, &now->entry, hash);
        pod_counts(t, now, 1);
    }
    if (old)
        pod_drop(t, old);
    if (now)
        exporter_take(t, now, pod);
}

static void pod_purge(void *arg, struct kube_entry *e)
{
    struct kube_records *t = arg;

    if (pod_of(e)->listing != t->pod_listing)
        pod_drop(t, pod_of(e));
}

/* Those of its pods that had no room were counted in this listing, or are gone. */
static void uncounted_heal(void *arg, struct kube_entry *e)
{
    struct kube_records *t = arg;
    struct kube_rec *r = rec_of(e);

    if (!r->uncounted || r->uncounted == t->pod_listing)
        return;
    r->uncounted = 0;
    if (r->known)
        t->changed(t->arg, r);
}

void kube_records_pods_listed(struct kube_records *t)
{
    table_each(&t->pods, pod_purge, t);
    table_each(&t->nodes, uncounted_heal, t);
    resources_sweep(t);
}

/* ---- all of it ---- */
void kube_records_init(struct kube_records *t, void (*changed)(void *arg, struct kube_rec *r),
                       void *arg)
{
    *t = (struct kube_records){.changed = changed, .arg = arg};
    list_init(&t->exporters);
}

static void pod_free(void *arg, struct kube_entry *e)
{
    (void)arg;
    mem_free(pod_of(e));
}

void kube_records_fini(struct kube_records *t)
{
    table_each(&t->pods, pod_free, NULL);
    table_each(&t->nodes, rec_free, NULL);
    mem_free(t->pods.v);
    mem_free(t->nodes.v);
    for (unsigned i = 0; i < KUBE_RESOURCES_MAX; i++)
        mem_free(t->resources[i]);
}

static void rec_bytes(void *arg, struct kube_entry *e)
{
    const struct kube_rec *r = rec_of(e);

    *(size_t *)arg += sizeof *r + strlen(r->name) + 1 + r->n_bytes + r->n_held * sizeof *r->held +
                      r->n_rows * sizeof *r->rows + (r->why ? strlen(r->why) + 1 : 0) +
                      (r->exporter ? sizeof *r->exporter + strlen(r->exporter->path) + 1 : 0);
}

static void pod_bytes(void *arg, struct kube_entry *e)
{
    *(size_t *)arg += sizeof(struct kube_pod) + pod_of(e)->n_held * sizeof(struct kube_held);
}

size_t kube_records_bytes(const struct kube_records *t)
{
    struct kube_table nodes = t->nodes, pods = t->pods;
    size_t n = (nodes.cap + pods.cap) * sizeof(struct kube_entry *);

    table_each(&nodes, rec_bytes, &n);
    table_each(&pods, pod_bytes, &n);
    return n;
}
