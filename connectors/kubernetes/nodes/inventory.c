/* Tells the hub of nodes, and of what others' pods hold of them: a listing in pages, one in each
 * turn of the loop, once nodes and pods are both whole; then deltas of what is another than was
 * told last. A node that has sent a sign of life and is the same otherwise is not told. */
#include "connectors/kubernetes/nodes/records.h"

#include "api/base/log.h"

#include <stdio.h>
#include <string.h>

#define GATHER_MS 500
#define PAGE_NODES 256
#define NODE_LABELS_MAX 32 /* as the schema has it */
#define NODE_BYTES_MAX (1u << 20)

struct kube_nodes {
    struct kube_records t;
    struct kube_asker *asker;
    struct loop *loop;
    const struct kube_nodes_events *ev;
    void *arg;
    cJSON *tolerations;
    char *labels[2 * NODE_LABELS_MAX + 1]; /* key, value, … of which its nodes have all; NULL */
    struct timer timer;                    /* the next page, or delta */
    struct timer notice_timer;             /* a notice's time comes near */
    struct list listing, dirty;            /* kube_rec.link: told by the listing; by a delta */
    bool nodes_whole, pods_whole;
    bool asked, first;    /* a listing is to begin; its first page is */
    bool telling, listed; /* a listing is under way; one has ended */
    bool notices_due;
    bool over;      /* nodes had no room */
    char *nameless; /* why a node that has no name cannot be read; or NULL */
    uint64_t revision;
    char since[32];
    char target[256];
};

static void schedule(struct kube_nodes *n, uint64_t in_ms)
{
    if (!n->nodes_whole || !n->pods_whole || !(n->asked || n->telling || n->listed))
        return;
    if (n->asked || n->telling)
        in_ms = 0;
    if (!timer_active(&n->timer) || in_ms == 0)
        timer_start(&n->timer, in_ms);
}

/* It is to be told, or told again. */
static void rec_due(void *arg, struct kube_rec *r)
{
    struct kube_nodes *n = arg;

    if (list_empty(&r->link))
        list_push(&n->dirty, &r->link);
    schedule(n, GATHER_MS);
}

/* ---- a node that came or went ---- */
static bool bytes_take(struct kube_nodes *n, struct kube_rec *r, const struct node *node,
                       const char *const *resources, const struct buf *b)
{
    uint32_t rows = node->spec->n_counted;
    bool same = !r->why && r->n_bytes == b->n && memcmp(r->bytes, b->p, b->n) == 0;

    mem_free(r->why);
    r->why = NULL;
    if (!same) {
        mem_free(r->bytes);
        r->bytes = mem_alloc(b->n);
        memcpy(r->bytes, b->p, b->n);
        r->n_bytes = (uint32_t)b->n;
    }
    mem_free(r->rows);
    r->rows = rows ? mem_alloc(rows * sizeof *r->rows) : NULL;
    r->n_rows = (uint16_t)rows;
    for (uint32_t i = 0; i < rows; i++) {
        int id = kube_resource_id(&n->t, resources[i], KUBE_RESOURCES_MAX);
        r->rows[i] = id < 0 ? UINT16_MAX : (uint16_t)id;
    }
    return !same;
}

/* Returns whether there is news of it. */
static bool rec_read(struct kube_nodes *n, struct kube_rec *r, const cJSON *doc)
{
    const char *resources[KUBE_ROWS_MAX];
    AUTO_ARENA a = arena_create(0);
    struct node node;
    struct err err;
    AUTO_BUF b;

    buf_init(&b, NODE_BYTES_MAX);
    if (kube_node_rows(doc, n->target, n->tolerations, a, &node, resources, &err) == 0 &&
        tlv_encode(&schema_node, &node, &b, &err) == 0)
        return bytes_take(n, r, &node, resources, &b);
    if (r->why && strcmp(r->why, err.text) == 0)
        return false;
    log_event(LOG_WARN, "kube.node_refused",
              LOG_FIELDS({"node", log_str(r->name)}, {"why", log_str(err.text)}));
    mem_free(r->why);
    r->why = mem_strdup(err.text);
    return true;
}

static void notice_read(struct kube_nodes *n, struct kube_rec *r, const cJSON *doc)
{
    struct kube_goes g = {0};
    bool goes = kube_goes_read(doc, &g);

    if (goes == r->goes && (!goes || (g.kind == r->going.kind && g.at_ms == r->going.at_ms &&
                                      g.within_ms == r->going.within_ms)))
        return;
    r->goes = goes;
    r->going = g;
    r->going_ms = loop_now_ms(n->loop);
    n->notices_due = true;
    schedule(n, 0);
}

static void rec_gone(struct kube_nodes *n, struct kube_rec *r)
{
    n->notices_due |= r->goes;
    schedule(n, GATHER_MS);
    list_remove(&r->link);
    if (!r->told) {
        kube_rec_forget(&n->t, r);
        return;
    }
    r->known = r->goes = false;
    rec_due(n, r); /* the delta tells it, and forgets it */
}

static void nameless(struct kube_nodes *n, const char *why)
{
    if (n->nameless)
        return;
    n->nameless = mem_strdup(why);
    log_event(LOG_WARN, "kube.node_refused",
              LOG_FIELDS({"node", log_str("")}, {"why", log_str(why)}));
}

/* Is it one of the target's? */
static bool ours(const struct kube_nodes *n, const cJSON *node)
{
    const cJSON *all = kube_at(node, "metadata.labels");

    for (size_t i = 0; n->labels[i]; i += 2) {
        const cJSON *l =
            cJSON_IsObject(all) ? cJSON_GetObjectItemCaseSensitive(all, n->labels[i]) : NULL;
        if (!l || !cJSON_IsString(l) || strcmp(l->valuestring, n->labels[i + 1]) != 0)
            return false;
    }
    return true;
}

void kube_nodes_node(struct kube_nodes *n, enum kube_change change, const cJSON *node)
{
    change = change == KUBE_IS && ours(n, node) ? KUBE_IS : KUBE_GONE;
    const char *name = kube_text(node, "metadata.name");
    struct kube_rec *r =
        change == KUBE_IS && *name ? kube_rec_get(&n->t, name) : kube_rec_find(&n->t, name);

    if (change == KUBE_GONE) {
        if (r && r->known)
            rec_gone(n, r);
        return;
    }
    if (!r) {
        n->over |= n->t.nodes.n >= KUBE_NODES_MAX;
        nameless(n, n->over  ? "it is one node more than are kept of one target"
                    : !*name ? "a node without a name"
                             : "a node whose name is longer than 253 characters");
        return;
    }
    bool news = rec_read(n, r, node) || !r->known;
    r->listing = n->t.node_listing;
    r->known = true;
    notice_read(n, r, node);
    if (news)
        rec_due(n, r);
}

void kube_nodes_begins(struct kube_nodes *n)
{
    n->t.node_listing++;
    mem_free(n->nameless);
    n->nameless = NULL;
    n->over = false;
}

static void rec_purge(void *arg, struct kube_rec *r)
{
    struct kube_nodes *n = arg;

    if (r->known && r->listing != n->t.node_listing)
        rec_gone(n, r);
}

void kube_nodes_listed(struct kube_nodes *n)
{
    kube_rec_each(&n->t, rec_purge, n);
    n->nodes_whole = true;
    schedule(n, GATHER_MS);
}

void kube_nodes_pods_begin(struct kube_nodes *n)
{
    n->t.pod_listing++;
}

void kube_nodes_pod(struct kube_nodes *n, enum kube_change change, const cJSON *pod)
{
    kube_records_pod(&n->t, change, pod);
    kube_asker_look(n->asker);
}

void kube_nodes_client(struct kube_nodes *n, struct kube_client *c)
{
    kube_asker_client(n->asker, c);
}

void kube_nodes_pods_listed(struct kube_nodes *n)
{
    kube_records_pods_listed(&n->t);
    n->pods_whole = true;
    schedule(n, GATHER_MS);
}

/* ---- pages ---- */
struct page {
    struct node *nodes;
    const char **removed;
    struct node_refused *refused;
    struct inventory_page told;
};

static void rec_refuse(const struct kube_nodes *n, struct kube_rec *r, struct arena *a,
                       struct page *p)
{
    const char *name = arena_printf(a, "%s.%s", n->target, r->name);

    r->told = true;
    r->told_hash = 0; /* once it can be read it is told, whatever it is then */
    p->refused[p->told.n_refused++] =
        (struct node_refused){strlen(name) <= 253 ? name : "", arena_strdup(a, r->why)};
    p->told.lacks = true;
}

static void rec_tell(struct kube_nodes *n, struct kube_rec *r, struct arena *a, struct page *p)
{
    struct kube_check_told check = {.going = false};

    if (n->ev->checked)
        n->ev->checked(n->arg, r->name, &check);
    if (r->why)
        rec_refuse(n, r, a, p);
    else if (kube_rec_tell(r, &check, a, &p->nodes[p->told.n]))
        p->told.n++;
}

/* Takes up to a page of what waits in the list. */
static void page_fill(struct kube_nodes *n, struct list *from, struct arena *a, struct page *p)
{
    *p = (struct page){.nodes = arena_array(a, struct node, PAGE_NODES),
                       .removed = arena_array(a, const char *, PAGE_NODES),
                       .refused = arena_array(a, struct node_refused, PAGE_NODES + 1)};
    for (unsigned i = 0; i < PAGE_NODES && !list_empty(from); i++) {
        struct kube_rec *r = container_of(list_pop(from), struct kube_rec, link);

        if (r->known) {
            rec_tell(n, r, a, p);
            continue;
        }
        p->removed[p->told.n_removed++] = arena_printf(a, "%s.%s", n->target, r->name);
        kube_rec_forget(&n->t, r);
    }
    p->told.nodes = p->nodes;
    p->told.removed = p->removed;
    p->told.refused = p->refused;
}

/* ---- notices ---- */
struct noticed {
    struct kube_nodes *n;
    struct notice *v;
    size_t many;
    int64_t wall_ms, later_ms; /* later: the nearest of those that are not told yet; 0: none */
};

static void notice_add(void *arg, struct kube_rec *r)
{
    struct noticed *x = arg;
    struct notice *v = &x->v[x->many];

    if (!r->known || !r->goes)
        return;
    if (!kube_goes_notice(&r->going, x->wall_ms, loop_now_ms(x->n->loop) - r->going_ms, v)) {
        int64_t later = r->going.at_ms - x->wall_ms - KUBE_NOTICE_AHEAD_MS;
        if (!x->later_ms || later < x->later_ms)
            x->later_ms = later;
        return;
    }
    if (snprintf(v->node, sizeof v->node, "%.253s.%.253s", x->n->target, r->name) > 253)
        return; /* it was refused by its name */
    x->many++;
}

static int64_t wall_ms(const struct kube_nodes *n)
{
    return n->ev->wall_ms ? n->ev->wall_ms(n->arg) : loop_wall_ms(n->loop);
}

#define LATER_MAX_MS 3600000 /* clocks are set: then it is looked again */
static void notices_tell(struct kube_nodes *n)
{
    struct noticed x = {
        .n = n, .v = mem_alloc((n->t.nodes.n + 1) * sizeof *x.v), .wall_ms = wall_ms(n)};

    n->notices_due = false;
    kube_rec_each(&n->t, notice_add, &x);
    timer_stop(&n->notice_timer);
    if (x.later_ms)
        timer_start(&n->notice_timer,
                    (uint64_t)(x.later_ms < LATER_MAX_MS ? x.later_ms : LATER_MAX_MS));
    n->ev->notices(n->arg, x.v, x.many);
    mem_free(x.v);
}

static void on_notice_time(void *arg)
{
    struct kube_nodes *n = arg;

    n->notices_due = true;
    schedule(n, 0);
}

/* ---- telling ---- */
static void rec_listed(void *arg, struct kube_rec *r)
{
    struct kube_nodes *n = arg;

    r->told_hash = 0;
    if (!r->known) /* gone: should the listing lack some node it removes none, a delta does */
        return;
    list_remove(&r->link);
    list_push(&n->listing, &r->link);
}

static void listing_begin(struct kube_nodes *n)
{
    n->asked = false;
    n->telling = n->first = true;
    n->revision++;
    kube_rec_each(&n->t, rec_listed, n);
}

static void next_revision(struct kube_nodes *n, char out[32])
{
    (void)snprintf(out, 32, "%llu", (unsigned long long)n->revision);
}

static void listing_page(struct kube_nodes *n)
{
    AUTO_ARENA a = arena_create(0);
    char revision[32];
    struct page p;

    page_fill(n, &n->listing, a, &p);
    next_revision(n, revision);
    p.told.revision = revision;
    p.told.since = "";
    p.told.first = n->first;
    p.told.last = list_empty(&n->listing);
    if (n->nameless && n->first)
        p.refused[p.told.n_refused++] = (struct node_refused){"", arena_strdup(a, n->nameless)};
    p.told.lacks |= n->nameless != NULL;
    n->first = false;
    if (p.told.last) {
        n->telling = false;
        n->listed = true;
        n->notices_due = true;
        str_copy(n->since, sizeof n->since, revision);
    }
    n->ev->nodes(n->arg, &p.told);
}

static void delta_page(struct kube_nodes *n)
{
    AUTO_ARENA a = arena_create(0);
    char revision[32];
    struct page p;

    page_fill(n, &n->dirty, a, &p);
    if (!p.told.n && !p.told.n_removed && !p.told.n_refused)
        return;
    n->revision++;
    next_revision(n, revision);
    p.told.revision = revision;
    p.told.since = arena_strdup(a, n->since);
    str_copy(n->since, sizeof n->since, revision);
    n->ev->nodes(n->arg, &p.told);
}

static void on_timer(void *arg)
{
    struct kube_nodes *n = arg;

    if (n->asked)
        listing_begin(n);
    if (n->telling) {
        listing_page(n);
        if (n->notices_due && !n->telling)
            notices_tell(n);
        schedule(n, list_empty(&n->dirty) ? GATHER_MS : 0);
        return;
    }
    if (n->notices_due)
        notices_tell(n);
    delta_page(n);
    if (!list_empty(&n->dirty))
        schedule(n, 0);
}

void kube_nodes_ask(struct kube_nodes *n)
{
    n->asked = true;
    schedule(n, 0);
}

void kube_nodes_lost(struct kube_nodes *n)
{
    n->nodes_whole = n->pods_whole = false;
    n->asked = n->telling = n->listed = false;
    timer_stop(&n->timer);
    timer_stop(&n->notice_timer);
}

/* ---- the rest ---- */
const char *kube_nodes_resource(const struct kube_nodes *n, const char *node, const char *mig,
                                int64_t shares)
{
    AUTO_ARENA a = arena_create(0);
    size_t prefix = strlen(n->target);
    const struct node *v = NULL;
    const struct kube_rec *r = strncmp(node, n->target, prefix) == 0 && node[prefix] == '.'
                                   ? kube_rec_read(&n->t, node + prefix + 1, a, &v)
                                   : NULL;

    for (uint32_t i = 0; r && i < v->spec->n_counted && i < r->n_rows; i++) {
        const struct counted_gpus *c = &v->spec->counted[i];
        if (strcmp(c->mig, mig) == 0 && c->shares == shares && r->rows[i] != UINT16_MAX)
            return n->t.resources[r->rows[i]];
    }
    return NULL;
}

void kube_nodes_holds(const struct kube_nodes *n, const cJSON *pod, struct arena *a,
                      struct foreign_item *ret)
{
    kube_rec_holds(&n->t, n->target, pod, a, ret);
}

/* ---- diagnostics ---- */
void kube_nodes_checked(struct kube_nodes *n, const char *node)
{
    struct kube_rec *r = kube_rec_find(&n->t, node);

    if (r && r->known)
        rec_due(n, r);
}

struct naming {
    void (*each)(void *arg, const char *node);
    void *arg;
};

static void rec_name(void *arg, struct kube_rec *r)
{
    const struct naming *x = arg;

    if (r->known)
        x->each(x->arg, r->name);
}

void kube_nodes_each(struct kube_nodes *n, void (*each)(void *arg, const char *node), void *arg)
{
    struct naming x = {each, arg};

    kube_rec_each(&n->t, rec_name, &x);
}

size_t kube_nodes_idle(const struct kube_nodes *n, const char *node,
                       struct kube_nodes_devices ret[KUBE_NODES_DEVICES_MAX])
{
    const struct kube_rec *r = kube_rec_find(&n->t, node);

    return n->nodes_whole && n->pods_whole && r && r->known && r->n_bytes && !r->why
               ? kube_rec_idle(&n->t, r, ret)
               : 0;
}

static bool tolerations_take(struct kube_nodes *n, const struct target_kubernetes *k)
{
    struct slice raw = k ? k->tolerations : slice_make(NULL, 0);
    cJSON *now = raw.n ? cJSON_ParseWithLength(raw.p, raw.n) : NULL;

    if ((!now && !n->tolerations) ||
        (now && n->tolerations && cJSON_Compare(now, n->tolerations, true))) {
        cJSON_Delete(now);
        return false;
    }
    cJSON_Delete(n->tolerations);
    n->tolerations = now;
    return true;
}

static void labels_drop(struct kube_nodes *n)
{
    for (size_t i = 0; n->labels[i]; i++) {
        mem_free(n->labels[i]);
        n->labels[i] = NULL;
    }
}

static bool labels_take(struct kube_nodes *n, const struct target_kubernetes *k)
{
    size_t many = k ? k->n_nodeLabels : 0, i = 0;

    many = many < NODE_LABELS_MAX ? many : NODE_LABELS_MAX;
    while (i < many && n->labels[2 * i] && strcmp(n->labels[2 * i], k->nodeLabels[i].key) == 0 &&
           strcmp(n->labels[2 * i + 1], k->nodeLabels[i].value) == 0)
        i++;
    if (i == many && !n->labels[2 * i])
        return false;
    labels_drop(n);
    for (i = 0; i < many; i++) {
        n->labels[2 * i] = mem_strdup(k->nodeLabels[i].key);
        n->labels[2 * i + 1] = mem_strdup(k->nodeLabels[i].value);
    }
    return true;
}

bool kube_nodes_update(struct kube_nodes *n, const struct target_spec *spec)
{
    bool tolerations = tolerations_take(n, spec->kubernetes);

    return labels_take(n, spec->kubernetes) || tolerations;
}

void kube_nodes_figures(const struct kube_nodes *n, struct kube_nodes_figures *ret)
{
    *ret = (struct kube_nodes_figures){
        .nodes = n->t.nodes.n, .pods = n->t.pods.n, .bytes = kube_records_bytes(&n->t)};
}

struct kube_nodes *kube_nodes_create(struct loop *l, const char *target,
                                     const struct kube_nodes_events *ev, void *arg)
{
    struct kube_nodes *n = mem_new(struct kube_nodes);

    n->loop = l;
    n->ev = ev;
    n->arg = arg;
    str_copy(n->target, sizeof n->target, target);
    kube_records_init(&n->t, rec_due, n);
    n->asker = kube_asker_create(l, &n->t, ev->used, arg);
    list_init(&n->listing);
    list_init(&n->dirty);
    timer_init(&n->timer, l, on_timer, n);
    timer_init(&n->notice_timer, l, on_notice_time, n);
    return n;
}

struct kube_nodes *kube_nodes_destroy(struct kube_nodes *n)
{
    if (!n)
        return NULL;
    timer_stop(&n->timer);
    timer_stop(&n->notice_timer);
    kube_asker_destroy(n->asker);
    kube_records_fini(&n->t);
    cJSON_Delete(n->tolerations);
    labels_drop(n);
    mem_free(n->nameless);
    mem_free(n);
    return NULL;
}
