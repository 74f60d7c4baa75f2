/* Wiring of one simulated member. As server.c: the core on a loop of its own, everything else on
 * the outer loop, and what the core tells is posted there. Must hold no logic that server.c has
 * not. */
#include "tests/sim/federation/sim_member.h"

#include "tests/sim/world/sim_raft_io.h"
#include "tests/sim/federation/sim_target.h"

#include <stdio.h>

static void root_arrived(void *arg)
{
    struct sim_member *m = arg;

    m->root_posted = false;
    if (!m->closing && m->brain)
        brain_root(m->brain);
}
static void core_root_event(void *arg)
{
    struct sim_member *m = arg;

    if (m->core && m->ev.root) {
        struct root *r = core_root(m->core);
        m->ev.root(m->ev.arg, m, r);
        (void)root_unref(r);
    }
    if (!m->root_posted) {
        m->root_posted = true;
        loop_post(m->loop, root_arrived, m);
    }
}

struct leading {
    struct sim_member *m;
    bool leads;
    uint64_t term;
};
static void leading_arrived(void *arg)
{
    struct leading *n = arg;

    if (!n->m->closing && n->m->brain) {
        sim_log(sim_world_of(n->m->loop), "m%llu %s in term %llu", (unsigned long long)n->m->id,
                n->leads ? "leads" : "follows", (unsigned long long)n->term);
        brain_leading(n->m->brain, n->leads, n->term);
    }
    mem_free(n);
}
static void core_leading_event(void *arg, bool leads, uint64_t term)
{
    struct sim_member *m = arg;
    struct leading *n = mem_new(struct leading);

    *n = (struct leading){m, leads, term};
    loop_post(m->loop, leading_arrived, n);
}
static void core_fatal_event(void *arg, const struct err *why)
{
    struct sim_member *m = arg;

    m->error = *why;
    sim_log(sim_world_of(m->loop), "m%llu ends: %s", (unsigned long long)m->id, why->text);
}

static void core_started(void *arg)
{
    struct sim_member *m = arg;
    struct brain_config bc = {
        .loop = m->loop, .core = m->core, .driver = sim_target_driver, .redial_ms = SIM_REDIAL_MS};

    if (m->core)
        m->brain = brain_create(&bc);
}
static void core_thread(struct loop *l, void *arg)
{
    struct sim_member *m = arg;
    struct core_peer peers[SIM_MEMBERS];
    struct core_config cfg = {.id = m->id,
                              .listen = "0.0.0.0:7001",
                              .bootstrap = m->bootstrap,
                              .n_peers = m->bootstrap ? SIM_MEMBERS : 0,
                              .peers = peers,
                              .snapshot_threshold = 256,
                              .snapshot_trailing = 64,
                              .raft_io_create = sim_raft_io_create,
                              .raft_io_destroy = sim_raft_io_destroy,
                              .raft_io_arg = m->host};
    static const struct core_events ev = {
        .leading = core_leading_event, .root = core_root_event, .fatal = core_fatal_event};
    struct core *c = NULL;

    for (unsigned i = 0; i < SIM_MEMBERS; i++) {
        peers[i].id = i + 1;
        (void)snprintf(peers[i].address, sizeof peers[i].address, "m%u:7001", i + 1);
    }
    (void)snprintf(cfg.name, sizeof cfg.name, "m%llu", (unsigned long long)m->id);
    (void)snprintf(cfg.address, sizeof cfg.address, "m%llu:7001", (unsigned long long)m->id);
    (void)snprintf(cfg.api_address, sizeof cfg.api_address, "m%llu:7443",
                   (unsigned long long)m->id);
    (void)snprintf(cfg.data_dir, sizeof cfg.data_dir, "/data");
    if (core_create(l, &cfg, &ev, m, &c, &m->error))
        sim_log(sim_world_of(l), "m%llu does not start: %s", (unsigned long long)m->id,
                m->error.text);
    else
        m->core = c;
    loop_post(m->loop, core_started, m);
}

static void member_main(struct loop *l, const char *const *argv, const char *const *env, void *arg)
{
    struct sim_member *m = arg;
    struct err err;

    (void)argv;
    (void)env;
    m->loop = l;
    INV(loop_thread_start(l, "core", core_thread, m, &m->core_loop, &err) == 0);
}

struct sim_member *sim_member_start(struct sim_host *h, uint64_t id, bool bootstrap,
                                    const struct sim_member_events *ev)
{
    struct sim_member *m = mem_new(struct sim_member);

    m->host = h;
    m->id = id;
    m->bootstrap = bootstrap;
    m->ev = *ev;
    if (!sim_up(h))
        sim_boot(h);
    (void)sim_start(h, "server", &(struct sim_program){.main = member_main, .arg = m});
    return m;
}

/* ---- the orderly end: brain, core, process ---- */
static void exit_now(void *arg)
{
    struct sim_member *m = arg;

    sim_exit(m->loop, 0);
}
static void core_closed(void *arg)
{
    struct sim_member *m = arg;

    m->core = NULL;
    loop_post(m->loop, exit_now, m);
}
static void core_close_on_its_loop(void *arg)
{
    struct sim_member *m = arg;

    core_close(m->core, core_closed, m);
}
static void brain_closed(void *arg)
{
    struct sim_member *m = arg;

    m->brain = NULL;
    loop_post(m->core_loop, core_close_on_its_loop, m);
}
static void close_begin(void *arg)
{
    struct sim_member *m = arg;

    if (m->closing)
        return;
    m->closing = true;
    if (m->brain)
        brain_close(m->brain, brain_closed, m);
    else
        exit_now(m);
}
void sim_member_close(struct sim_member *m)
{
    loop_post(m->loop, close_begin, m);
}
