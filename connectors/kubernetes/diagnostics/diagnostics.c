/* When diagnostics begin, make room, and are let go. All that must last is in the Jobs themselves:
 * the newest of each node that came to an end is kept, since it says whether work is kept off the
 * node. One request at a time is under way. Must never have two begin on one node, nor leave one
 * there that an order waits for. */
#include "connectors/kubernetes/diagnostics/diagnostics_internal.h"

#include "api/base/log.h"

#include <stdio.h>
#include <string.h>

#define TICK_MS 5000
#define SOON_MS 50
#define CLAIM_MS 3000   /* the node is told as taken for so long before its Job is made */
#define PAUSE_MS 300000 /* after one that says nothing; twice as long after each further one */
#define REFUSED_MS 60000
#define UNKNOWN_MS 5000
#define ANSWER_MS 10000

static uint64_t now_ms(const struct kube_checks *c)
{
    return loop_now_ms(c->env.base->env.loop);
}

/* By the server's clock, whose times say when one ended. */
static int64_t wall_ms(const struct kube_checks *c)
{
    const struct kube_client *client = c->env.client(c->env.base);
    int64_t told = client ? kube_client_wall_ms(client) : 0;

    return told ? told : loop_wall_ms(c->env.base->env.loop);
}

void kube_checks_soon(struct kube_checks *c)
{
    if (c->listed && !c->rq)
        timer_start(&c->tick, SOON_MS);
}

/* ---- what the target asks for ---- */
static const struct target_kubernetes *spec_of(const struct kube_checks *c)
{
    return object_as(c->doc, target)->spec->kubernetes;
}

static const struct kubernetes_diagnostics *wanted(const struct kube_checks *c)
{
    const struct target_spec *s = object_as(c->doc, target)->spec;

    return s->kubernetes && !s->observeOnly && !c->leaving ? s->kubernetes->diagnostics : NULL;
}

static const char *place_of(const struct kube_checks *c)
{
    const struct kubernetes_diagnostics *d = wanted(c);
    const struct target_connection *g = object_as(c->doc, target)->spec->connection;

    return d && *d->namespace_ ? d->namespace_ : g ? g->namespace_ : "";
}

/* ---- requests ---- */
static void not_diagnosed(const struct kube_checks *c, const char *node, const char *why)
{
    log_event(LOG_WARN, "kubernetes.diagnostics",
              LOG_FIELDS({"target", log_str(c->env.base->target)}, {"node", log_str(node)},
                         {"why", log_str(why)}));
    const struct connector_env *e = &c->env.base->env;
    if (e->events->not_given) {
        char text[400];
        (void)snprintf(text, sizeof text, "node %.100s is not diagnosed: %.250s", node, why);
        e->events->not_given(e->arg, "NotDiagnosed", text);
    }
}

static void complain(struct kube_checks *c, const char *node, const char *why)
{
    if (strcmp(c->complained, why) == 0)
        return;
    str_cut_words(c->complained, sizeof c->complained, why);
    not_diagnosed(c, node, why);
}

static void send(struct kube_checks *c, struct kube_client *client, const struct kube_ask *ask,
                 const char *about)
{
    struct kube_ask q = *ask;

    str_copy(c->asked, sizeof c->asked, about);
    q.deadline_ms = now_ms(c) + ANSWER_MS;
    q.idempotent = true;
    q.arg = c;
    c->rq = kube_send(client, &q);
}

static void deleted(void *arg, const struct kube_answer *a)
{
    struct kube_checks *c = arg;
    struct kube_check *x = kube_check_find(c, c->asked);

    c->rq = NULL;
    if (x)
        x->again_ms = now_ms(c) + (a->out == OUT_REJECTED ? REFUSED_MS : UNKNOWN_MS);
    if (x)
        x->let_go = a->out != OUT_REJECTED;
    if (x && a->out == OUT_REJECTED && strcmp(a->reason, "NotFound") == 0)
        kube_check_drop(c, x);
    else if (x && a->out == OUT_REJECTED)
        complain(c, x->node->name, a->err->text);
    kube_checks_soon(c);
}

static void check_delete(struct kube_checks *c, struct kube_client *client, struct kube_check *x)
{
    cJSON *body = cJSON_CreateObject();
    char path[256];

    (void)snprintf(path, sizeof path, "/apis/batch/v1/namespaces/%s/jobs/%s", x->place, x->name);
    cJSON_AddStringToObject(body, "apiVersion", "v1");
    cJSON_AddStringToObject(body, "kind", "DeleteOptions");
    cJSON_AddStringToObject(body, "propagationPolicy", "Background");
    cJSON_AddStringToObject(cJSON_AddObjectToObject(body, "preconditions"), "uid", x->uid);
    send(c, client,
         &(const struct kube_ask){.method = "DELETE", .path = path, .body = body, .done = deleted},
         x->uid);
    x->let_go = true;
    cJSON_Delete(body);
}

/* The watch tells it, too; what is refused is refused of each node, whoever is asked. */
static void made(void *arg, const struct kube_answer *a)
{
    struct kube_checks *c = arg;
    struct kube_checked *x = kube_checked_find(c, c->asked);

    c->rq = NULL;
    if (a->out == OUT_DONE)
        (void)kube_checks_job(c, KUBE_IS, a->body);
    else if (a->out == OUT_UNKNOWN)
        c->refused_ms = now_ms(c) + UNKNOWN_MS;
    else if (strcmp(a->reason, "AlreadyExists") != 0)
        c->refused_ms = now_ms(c) + REFUSED_MS;
    if (a->out == OUT_REJECTED && a->status != 429 && strcmp(a->reason, "AlreadyExists") != 0)
        complain(c, c->asked, a->err->text);
    if (x) {
        x->making = false;
        if (a->out == OUT_REJECTED)
            x->again_ms = now_ms(c) + REFUSED_MS;
        kube_nodes_checked(c->env.nodes, x->name);
    }
    kube_checks_soon(c);
}

/* What ended last says nothing. */
static bool nothing_last(const struct kube_newest *n)
{
    return n->nothing && !(n->verdict && kube_check_later(n->verdict, n->nothing));
}

/* So many in a row have said nothing of that node by now. */
static unsigned in_vain(const struct kube_checked *x)
{
    const struct kube_newest n = kube_newest_of(x);
    unsigned told = nothing_last(&n) ? kube_check_in_vain(n.nothing->name) + 1 : 0;

    return told > x->taken ? told : x->taken;
}

static void check_make(struct kube_checks *c, struct kube_client *client, struct kube_checked *x,
                       const struct kube_nodes_devices *devices, size_t n)
{
    const struct kubernetes_diagnostics *d = wanted(c);
    const struct connector_env *e = &c->env.base->env;
    char path[256], name[KUBE_CHECK_NAME_MAX] = "";
    const struct kube_check_ask ask = {.d = d,
                                       .k = spec_of(c),
                                       .place = place_of(c),
                                       .name = name,
                                       .node = x->name,
                                       .devices = devices,
                                       .n_devices = n};
    struct err err;
    cJSON *job = NULL;

    if (kube_check_name(e, ask.place, x->name, wall_ms(c) / d->every, in_vain(x), name))
        job = kube_check_job(e, &ask, &err);
    else
        (void)err_set(&err, E_UNAVAIL, "this hub has no keys by which it could mark what it makes");
    if (!job) {
        complain(c, x->name, err.text);
        c->refused_ms = now_ms(c) + REFUSED_MS;
        return;
    }
    (void)snprintf(path, sizeof path, "/apis/batch/v1/namespaces/%s/jobs", ask.place);
    x->making = true;
    send(c, client,
         &(const struct kube_ask){.method = "POST", .path = path, .body = job, .done = made},
         x->name);
    cJSON_Delete(job);
}

/* ---- what says nothing ---- */
static int64_t pause_ms(const struct kube_checks *c, unsigned in_vain_before)
{
    const struct kubernetes_diagnostics *d = wanted(c);
    int64_t most = d ? d->every : 0, ms = PAUSE_MS;

    for (unsigned i = 0; i < in_vain_before && ms < most; i++)
        ms *= 2;
    return ms < most ? ms : most;
}

void kube_checks_taken(struct kube_checks *c, const struct kube_check *x)
{
    unsigned before = kube_check_in_vain(x->name);

    x->node->taken = before + 1;
    x->node->again_ms = now_ms(c) + (uint64_t)pause_ms(c, before);
}

/* Each node once, until one says something of it. */
static void voids_tell(const struct kube_checks *c)
{
    list_for_each (it, &c->nodes) {
        struct kube_checked *x = container_of(it, struct kube_checked, link);
        const struct kube_newest n = kube_newest_of(x);
        bool is_void = nothing_last(&n) || (n.going && n.going->taken);
        if (!is_void || x->told || x->seen != c->turn)
            continue;
        x->told = true;
        not_diagnosed(c, x->name,
                      "its diagnostics have ended without having begun, or were taken away: they "
                      "say nothing of it, and are tried again");
    }
}

/* ---- what is let go ---- */
static bool is_over(const struct kube_checks *c, const struct kube_checked *x,
                    const struct kube_check *k)
{
    const struct kube_newest n = kube_newest_of(x);

    if (!wanted(c) || x->seen != c->turn)
        return true;
    if (k->v.is == CHECK_GOING)
        return k != n.going || k->taken || x->yields || x->held == c->turn;
    return k != n.verdict && (k != n.nothing || !nothing_last(&n));
}

static struct kube_check *one_over(const struct kube_checks *c)
{
    list_for_each (it, &c->nodes) {
        const struct kube_checked *x = container_of(it, struct kube_checked, link);
        list_for_each (jt, &x->checks) {
            struct kube_check *k = container_of(jt, struct kube_check, link);
            if (!k->deleting && k->again_ms <= now_ms(c) && is_over(c, x, k))
                return k;
        }
    }
    return NULL;
}

/* ---- what begins ---- */
static int64_t due_ms(const struct kube_checks *c, const struct kube_checked *x)
{
    const struct kubernetes_diagnostics *d = wanted(c);
    const struct kube_newest n = kube_newest_of(x);
    int64_t at = n.verdict ? n.verdict->v.over_ms + d->every : 0, again;

    if (!nothing_last(&n))
        return at;
    again = n.nothing->v.over_ms + pause_ms(c, kube_check_in_vain(n.nothing->name));
    return again > at ? again : at;
}

static bool busy(const struct kube_checked *x)
{
    return x->making || kube_newest_of(x).going;
}

/* Of those that are due, and idle, the one that waits longest. */
static struct kube_checked *next_of(const struct kube_checks *c)
{
    int64_t wall = wall_ms(c), best_ms = 0;
    struct kube_nodes_devices devices[KUBE_NODES_DEVICES_MAX];
    struct kube_checked *best = NULL;

    list_for_each (it, &c->nodes) {
        struct kube_checked *x = container_of(it, struct kube_checked, link);
        int64_t at = due_ms(c, x);
        if (busy(x) || x->claimed_ms || x->seen != c->turn || x->held == c->turn || x->yields ||
            x->again_ms > now_ms(c) || at > wall || (best && at >= best_ms) ||
            !kube_nodes_idle(c->env.nodes, x->name, devices))
            continue;
        best = x;
        best_ms = at;
    }
    return best;
}

static void claim(struct kube_checks *c, struct kube_checked *x, bool on)
{
    x->claimed_ms = on ? now_ms(c) : 0;
    kube_nodes_checked(c->env.nodes, x->name);
}

/* A node that was told as taken for a while, and is as idle as it was. */
static void claims_look(struct kube_checks *c, struct kube_client *client)
{
    struct kube_nodes_devices devices[KUBE_NODES_DEVICES_MAX];

    list_for_each (it, &c->nodes) {
        struct kube_checked *x = container_of(it, struct kube_checked, link);
        if (!x->claimed_ms)
            continue;
        size_t n = x->seen == c->turn && x->held != c->turn && !x->yields && !busy(x) && wanted(c)
                       ? kube_nodes_idle(c->env.nodes, x->name, devices)
                       : 0;
        if (!n) {
            claim(c, x, false);
        } else if (!c->rq && now_ms(c) - x->claimed_ms >= CLAIM_MS && c->refused_ms <= now_ms(c)) {
            check_make(c, client, x, devices, n);
            claim(c, x, false);
        }
    }
}

static size_t under_way(const struct kube_checks *c)
{
    size_t n = 0;

    list_for_each (it, &c->nodes) {
        const struct kube_checked *x = container_of(it, struct kube_checked, link);
        n += busy(x) || x->claimed_ms;
    }
    return n;
}

/* ---- turns ---- */
static void node_seen(void *arg, const char *node)
{
    struct kube_checks *c = arg;

    kube_checked_get(c, node)->seen = c->turn;
}

static void node_held(void *arg, const char *node)
{
    struct kube_checks *c = arg;
    struct kube_checked *x = kube_checked_find(c, node);

    if (x)
        x->held = c->turn;
}

/* An order for a node has come and gone, once nothing of ours is there any more. */
static void nodes_tidy(struct kube_checks *c)
{
    for (struct list *it = c->nodes.next, *next; it != &c->nodes; it = next) {
        struct kube_checked *x = container_of(it, struct kube_checked, link);
        next = it->next;
        if (list_empty(&x->checks) && !x->making && !x->claimed_ms && x->held != c->turn)
            x->yields = false;
        if (x->seen != c->turn && list_empty(&x->checks) && !x->making)
            kube_checked_drop(c, x);
    }
}

static void on_tick(void *arg)
{
    struct kube_checks *c = arg;
    struct kube_client *client = c->listed ? c->env.client(c->env.base) : NULL;
    const struct kubernetes_diagnostics *d = wanted(c);

    if (!client || c->rq || !kube_runs_ready(c->env.runs)) {
        if (c->listed && !c->rq)
            timer_start(&c->tick, TICK_MS);
        return;
    }
    c->turn++;
    kube_nodes_each(c->env.nodes, node_seen, c);
    kube_runs_each_node(c->env.runs, node_held, c);
    nodes_tidy(c);
    if (d)
        voids_tell(c);
    struct kube_check *over = one_over(c);
    if (over)
        check_delete(c, client, over);
    claims_look(c, client);
    if (d && c->refused_ms <= now_ms(c) && under_way(c) < (size_t)(d->atOnce > 0 ? d->atOnce : 1)) {
        struct kube_checked *x = next_of(c);
        if (x)
            claim(c, x, true);
    }
    if (!c->rq && (d || c->n))
        timer_start(&c->tick, TICK_MS);
}

void kube_checks_yield(struct kube_checks *c, const struct run_order *o)
{
    const char *target = c->env.base->target;
    size_t n = strlen(target);

    for (uint32_t i = 0; i < o->placement->n_assignments; i++) {
        const struct assignment *at = &o->placement->assignments[i];
        struct kube_checked *x =
            at->count && strncmp(at->node, target, n) == 0 && at->node[n] == '.'
                ? kube_checked_find(c, at->node + n + 1)
                : NULL;
        if (!x || !(busy(x) || x->claimed_ms))
            continue;
        x->yields = true;
        kube_checks_soon(c);
    }
}

size_t kube_checks_leave(struct kube_checks *c)
{
    size_t n = c->n;

    c->leaving = true;
    kube_checks_soon(c);
    list_for_each (it, &c->nodes)
        n += container_of(it, struct kube_checked, link)->making;
    return n;
}

/* ---- its life ---- */
void kube_checks_update(struct kube_checks *c, const struct object *doc)
{
    c->doc = doc;
    c->refused_ms = 0;
    kube_checks_soon(c);
}

void kube_checks_lost(struct kube_checks *c)
{
    if (c->rq)
        kube_cancel(c->rq);
    c->rq = NULL;
    c->listed = false;
    timer_stop(&c->tick);
    list_for_each (it, &c->nodes) {
        struct kube_checked *x = container_of(it, struct kube_checked, link);
        x->making = false;
        x->claimed_ms = 0;
    }
}

struct kube_checks *kube_checks_create(const struct kube_checks_env *env)
{
    struct kube_checks *c = mem_new(struct kube_checks);

    c->env = *env;
    c->doc = env->doc;
    list_init(&c->nodes);
    timer_init(&c->tick, env->base->env.loop, on_tick, c);
    return c;
}

struct kube_checks *kube_checks_destroy(struct kube_checks *c)
{
    if (!c)
        return NULL;
    kube_checks_lost(c);
    while (!list_empty(&c->nodes))
        kube_checked_drop(c, container_of(c->nodes.next, struct kube_checked, link));
    mem_free(c);
    return NULL;
}
