/* The environment that deploy/examples/README.md promises to programs. Values may be secrets:
 * nothing in here is ever logged. */
#include "api/base/hash.h"
#include "connectors/agent/node/agent_internal.h"
#include "connectors/ranks/ranks.h"
#include "connectors/signals.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ENV_MAX 1200
#define RENDEZVOUS_HOST "127.0.0.1"
#define PORT_FIRST 15000 /* below the ports that the system gives to clients */
#define PORTS 5000
#define PORT_TRIES 256

struct env {
    struct arena *mem;
    const char **v;
    size_t n;
};

/* The last one of a name counts. */
static void env_set(struct env *e, const char *text)
{
    size_t len = strcspn(text, "=") + 1;

    for (size_t i = 0; i < e->n; i++)
        if (strncmp(e->v[i], text, len) == 0) {
            e->v[i] = text;
            return;
        }
    if (e->n + 1 < ENV_MAX)
        e->v[e->n++] = text;
}

static void env_str(struct env *e, const char *name, const char *value)
{
    env_set(e, arena_printf(e->mem, "%s=%s", name, value));
}

/* The workload's own value of that name, if it has one, stays. */
static void env_default(struct env *e, const char *name, const char *value)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < e->n; i++)
        if (strncmp(e->v[i], name, len) == 0 && e->v[i][len] == '=')
            return;
    env_str(e, name, value);
}

static void env_i64(struct env *e, const char *name, int64_t value)
{
    env_set(e, arena_printf(e->mem, "%s=%" PRId64, name, value));
}

static const struct wire_worker *worker_assignment(const struct worker *w)
{
    return &w->run->order->workers[worker_at(w)];
}

static const char *gpu_list(const struct wire_worker *at, struct arena *m)
{
    const char *out = "";

    for (uint32_t i = 0; i < at->n_gpus; i++)
        out = arena_printf(m, "%s%s%" PRId64, out, *out ? "," : "", at->gpus[i]);
    return out;
}

/* Without the name of the Target, but with that of the agent where it is one of several: the
 * certificate names both (TARGET.AGENT), and node names of agents may be the same. */
static const char *node_name(const struct agent *a, const char *node)
{
    const char *dot = strrchr(a->cfg.target, '.');
    size_t n = dot ? (size_t)(dot - a->cfg.target) : strlen(a->cfg.target);

    return strncmp(node, a->cfg.target, n) == 0 && node[n] == '.' ? node + n + 1 : node;
}

const char *worker_cwd(const struct worker *w, struct arena *m)
{
    const char *cwd = w->run->order->cwd;

    return *cwd ? cwd : arena_printf(m, "%s/%" PRId64 "/work", w->run->dir, w->rank);
}

/* Tests kill shims, too, at points of theirs; the shim keeps this from its
 * program. */
static void env_failpoints(struct env *e, const struct agent *a)
{
#ifdef HANSE_FAILPOINTS
    static const char *const handed[] = {"HANSE_FAILPOINT_FILE", "HANSE_FAILPOINT_LIST"};
    const char *role = a->cfg.os->ops->getenv(a->cfg.os, "HANSE_FAILPOINT_ROLE");
    bool any = false;

    for (size_t i = 0; i < sizeof handed / sizeof *handed; i++) {
        const char *value = a->cfg.os->ops->getenv(a->cfg.os, handed[i]);
        if (value)
            env_str(e, handed[i], value);
        any = any || value;
    }
    if (any)
        env_set(e, arena_printf(e->mem, "HANSE_FAILPOINT_ROLE=%s%sshim", role ? role : "",
                                role ? "-" : ""));
#else
    (void)e;
    (void)a;
#endif
}

const char *worker_gpus(const struct worker *w, struct arena *m)
{
    return gpu_list(worker_assignment(w), m);
}

/* ---- where the ranks of a gang meet ---- */
uint32_t order_world(const struct wire_order *o)
{
    return o->world ? (uint32_t)o->world : o->n_workers;
}

bool order_spans(const struct wire_order *o)
{
    return order_world(o) > o->n_workers;
}

static bool port_given(const struct agent *a, int64_t port)
{
    list_for_each (it, &a->runs) {
        const struct run *r = container_of(it, struct run, link);
        bool live = false;
        for (unsigned i = 0; i < r->n_workers; i++)
            live = live || r->workers[i].state != WS_ENDED;
        if (live && r->order->rendezvous_port == port)
            return true;
    }
    return false;
}

int64_t rendezvous_pick(struct agent *a, const struct wire_order *o, struct err *err)
{
    char key[RUN_KEY_MAX];

    if (order_world(o) < 2)
        return 0;
    if (o->workers[0].rank != 0)
        return o->rendezvous_port;
    run_key_print(&o->key, key);
    size_t first = hash_slot(key, PORTS);
    for (size_t i = 0; i < PORT_TRIES; i++) {
        int64_t port = PORT_FIRST + (int64_t)((first + i) % PORTS);
        if (!port_given(a, port) && a->cfg.os->ops->port_free(a->cfg.os, (uint16_t)port))
            return port;
    }
    return err_set(err, E_LIMIT, "no port between %d and %d is free for its ranks to meet at",
                   PORT_FIRST, PORT_FIRST + PORTS - 1);
}

/* An agent speaks for one machine: where it has all ranks, the first is on this one. */
static void env_gang(struct env *e, const struct worker *w)
{
    const struct wire_order *o = w->run->order;
    const struct ranks_place at = {.host = order_spans(o) ? o->rendezvous : RENDEZVOUS_HOST,
                                   .port = arena_printf(e->mem, "%" PRId64, o->rendezvous_port),
                                   .rank = w->rank,
                                   .world = order_world(o)};
    const struct ranks_name *v;

    if (!o->rendezvous_port) /* one rank, or accepted by an agent that chose none */
        return;
    size_t n = ranks_names(&at, e->mem, &v);
    for (size_t i = 0; i < n; i++)
        env_default(e, v[i].name, v[i].value);
}

const char *const *worker_env(const struct worker *w, struct arena *m)
{
    static const char *const inherited[] = {"PATH", "HOME", "LANG", "TZ"};
    struct agent *a = w->run->agent;
    const struct wire_order *o = w->run->order;
    const struct wire_worker *at = worker_assignment(w);
    struct env e = {.mem = m, .v = arena_array(m, const char *, ENV_MAX)};
    char marker[RUN_MARKER_MAX], scratch[AGENT_PATH_MAX];
    uint32_t uid, gid;

    worker_user(w, &uid, &gid);
    for (size_t i = 0; i < sizeof inherited / sizeof *inherited; i++) {
        const char *value = a->cfg.os->ops->getenv(a->cfg.os, inherited[i]);
        if (value)
            env_str(&e, inherited[i], value);
    }
    if (uid)
        env_str(&e, "HOME", worker_cwd(w, m));
    for (uint32_t i = 0; i < o->n_env; i++)
        if (strchr(o->env[i], '='))
            env_set(&e, o->env[i]);
    env_str(&e, "HANSE_WORKLOAD_UID", w->run->key.uid);
    env_str(&e, "HANSE_WORKLOAD_NAME", o->workload);
    env_str(&e, "HANSE_NAMESPACE", o->namespace_);
    if (*run_cluster(w->run))
        env_str(&e, "HANSE_CLUSTER_UID", run_cluster(w->run));
    env_i64(&e, "HANSE_EPOCH", w->run->key.epoch);
    env_i64(&e, "HANSE_RANK", w->rank);
    env_i64(&e, "HANSE_WORLD_SIZE", (int64_t)order_world(o));
    env_gang(&e, w);
    env_str(&e, "HANSE_TARGET", a->cfg.target);
    env_str(&e, "HANSE_NODE", node_name(a, at->node));
    env_str(&e, "HANSE_GPUS", gpu_list(at, m));
    if (a->inventory.nvml)
        env_str(&e, "CUDA_VISIBLE_DEVICES", gpu_list(at, m));
    if (*o->checkpoint_base) { /* what it resumes from the shim knows, once verified */
        const char *base = o->checkpoint_base;
        scratch_of_rank(w->run, w->rank, scratch);
        if (uid)
            env_set(&e, arena_printf(m, "HANSE_CHECKPOINT_DIR=%s/%" PRId64 "/" TENANT_SAVE,
                                     w->run->dir, w->rank));
        else
            env_set(&e, arena_printf(m, "HANSE_CHECKPOINT_DIR=%s/e%" PRId64 "/%" PRId64,
                                     checkpoint_store_is_remote(base) ? scratch : base,
                                     w->run->key.epoch, o->shared ? 0 : w->rank));
    }
    if (*o->checkpoint_base && o->save_signo > 0)
        env_str(&e, "HANSE_SAVE_SIGNAL", signal_name(o->save_signo));
    if (*o->checkpoint_base && o->checkpoint_interval_ms)
        env_i64(&e, "HANSE_CHECKPOINT_INTERVAL", (o->checkpoint_interval_ms + 999) / 1000);
    worker_marker(w, marker);
    env_str(&e, RUN_MARKER_ENV, marker);
    env_failpoints(&e, a);
    for (size_t i = 0; i < e.n; i++) /* names that begin so are ours */
        if (strncmp(e.v[i], "HANSE_", 6) != 0)
            e.v[i] = arena_printf(m, RUN_PROGRAM_ENV "%s", e.v[i]);
    e.v[e.n] = NULL;
    return e.v;
}
