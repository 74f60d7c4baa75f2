/* How a worker's shim is started: its command line, its folder, its environment. This file must
 * never start anything that the order does not say. */
#include "connectors/agent/node/agent_internal.h"
#include "connectors/program/script.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SHIM_ARGS 64
#define CHECKPOINT_ARGS 24

/* ---- ranks: an agent may have some of a gang ---- */
unsigned worker_at(const struct worker *w)
{
    return (unsigned)(w - w->run->workers);
}

struct worker *run_worker(const struct run *r, int64_t rank)
{
    for (unsigned i = 0; i < r->n_workers; i++)
        if (r->workers[i].rank == rank)
            return &r->workers[i];
    return NULL;
}

/* ---- what an order may say ---- */
/* All of a gang, or those that this agent has of one. */
static int ranks_check(const struct wire_order *o, struct err *err)
{
    for (uint32_t i = 0; i < o->n_workers; i++) {
        int64_t rank = o->workers[i].rank;
        bool mine = rank < order_world(o) && (!i || rank > o->workers[i - 1].rank);
        if (order_spans(o) ? !mine : rank != i)
            return err_set(err, E_INVALID, "the order's ranks are not 0, 1, 2, …");
    }
    if (order_world(o) < o->n_workers)
        return err_set(err, E_INVALID, "the order has more workers than its gang");
    bool first = o->workers[0].rank == 0;
    if (order_spans(o) && (!*o->rendezvous || o->n_peers < 2 || (!first && !o->rendezvous_port)))
        return err_set(err, E_INVALID, "the order does not say where its gang meets, or of whom");
    return 0;
}

int order_check(struct agent *a, const struct wire_order *o, struct err *err)
{
    const char *base = o->checkpoint_base;

    if (!*o->script && o->n_argv < 1)
        return err_field(err, E_INVALID, "spec.run.command",
                         "an agent needs a command or a script");
    if (o->processes == PROCESSES_PROVED && a->held == RUN_SEARCHED)
        return err_field(err, E_INVALID, "spec.isolation.processes",
                         "proved: this machine permits neither control groups nor PID namespaces");
    if (o->tenants == TENANTS_NEED_SEPARATE && !a->cfg.users)
        return err_field(err, E_INVALID, "spec.isolation.tenants",
                         "separate: the agent of this machine runs all namespaces as one user "
                         "(hanse agent --users)");
    if (script_check(o->script, err) < 0)
        return err ? err->code : E_INVALID;
    if (o->n_argv > 2048)
        return err_field(err, E_TOOLARGE, "spec.run.args", "more than 2048 arguments");
    if (*base && *base != '/' && !checkpoint_store_is_remote(base))
        return err_field(err, E_INVALID, "spec.checkpoint.store",
                         "an agent's store is an absolute folder, or s3://BUCKET/PREFIX");
    if ((*base && store_allowed(a, base, err) < 0) ||
        (*o->resume_path && store_allowed(a, o->resume_path, err) < 0))
        return E_FORBIDDEN;
    struct err why;
    if (*o->log_base && store_allowed(a, o->log_base, &why) < 0)
        return err_field(err, E_UNAUTH, "spec.logs.store", /* which blames the target */
                         "agent %.63s may not keep logs there (spec.logs.store of its Target): "
                         "name a folder below its --store-root, or allow this one",
                         a->cfg.target);
    int rc = ranks_check(o, err);
    for (uint32_t i = 0; rc == 0 && i < o->n_workers; i++) {
        if (!inventory_find(&a->inventory, o->workers[i].node))
            return err_set(err, E_INVALID, "node %.200s is not in the inventory of agent %s",
                           o->workers[i].node, a->cfg.target);
    }
    return rc;
}

/* ---- the shim's command line ---- */
static size_t checkpoint_argv(const struct worker *w, struct arena *m, const char **argv)
{
    const struct wire_order *o = w->run->order;
    char proofs[AGENT_PATH_MAX], scratch[AGENT_PATH_MAX];
    size_t n = 0;

    if (!*o->checkpoint_base)
        return 0;
    const char *const base[] = {"--checkpoint-dir", o->checkpoint_base,
                                "--workload",       w->run->key.uid,
                                "--epoch",          arena_printf(m, "%" PRId64, w->run->key.epoch),
                                "--rank",           arena_printf(m, "%" PRId64, w->rank),
                                "--world",          arena_printf(m, "%u", order_world(o))};
    for (; n < sizeof base / sizeof *base; n++)
        argv[n] = base[n];
    if (checkpoint_store_is_remote(o->checkpoint_base)) {
        scratch_of_rank(w->run, w->rank, scratch);
        argv[n++] = "--checkpoint-scratch";
        argv[n++] = arena_strdup(m, scratch);
    } else if (store_roots_of(w->run->agent, o->checkpoint_base)) {
        argv[n++] = "--store-root";
        argv[n++] = w->run->agent->store_roots;
    }
    if (o->shared)
        argv[n++] = "--shared";
    if (!*o->resume_path)
        return n;
    if (checkpoint_store_is_remote(o->resume_path)) {
        scratch_of_cut(w->run->agent, o->resume_digest, scratch);
        argv[n++] = "--resume-scratch";
        argv[n++] = arena_strdup(m, scratch);
    }
    checkpoints_proofs_dir(w->run->agent, o->resume_digest, proofs);
    const char *const resume[] = {"--resume",       o->resume_path,    "--resume-digest",
                                  o->resume_digest, "--resume-proofs", arena_strdup(m, proofs)};
    for (size_t i = 0; i < sizeof resume / sizeof *resume; i++)
        argv[n++] = resume[i];
    if (o->reshard)
        argv[n++] = "--reshard";
    if (w->run->n_workers > 1)
        argv[n++] = "--wait-go";
    return n;
}

static size_t limits_argv(const struct worker *w, struct arena *m, const char **argv)
{
    const struct wire_order *o = w->run->order;
    const struct agent *a = w->run->agent;
    int64_t pids = a->cfg.pids ? a->cfg.pids : AGENT_PIDS;
    uint32_t uid, gid;
    size_t n = 0;

    worker_user(w, &uid, &gid);
    const char *const limits[] = {"--memory", arena_printf(m, "%" PRId64, o->memory_bytes),
                                  "--cpu",    arena_printf(m, "%" PRId64, o->cpu_milli),
                                  "--pids",   arena_printf(m, "%" PRId64, pids),
                                  "--gpus",   worker_gpus(w, m)};
    for (; n < sizeof limits / sizeof *limits; n++)
        argv[n] = limits[n];
    if (!uid)
        return n;
    argv[n++] = "--user";
    argv[n++] = arena_printf(m, "%" PRIu32 ":%" PRIu32, uid, gid);
    argv[n++] = "--state";
    argv[n++] = a->cfg.state_dir;
    return n;
}

static size_t shim_argv(const struct worker *w, struct arena *m, const char **argv, size_t max)
{
    const struct wire_order *o = w->run->order;
    struct agent *a = w->run->agent;
    char dir[AGENT_PATH_MAX], sock[AGENT_PATH_MAX], log[AGENT_PATH_MAX];
    size_t n = 0;

    worker_dir(w, dir);
    worker_socket(w, sock);
    worker_log_path(w->run, w->rank, log);
    const char *const head[] = {a->cfg.os->ops->program(a->cfg.os),
                                "run",
                                "--dir",
                                arena_strdup(m, dir),
                                "--socket",
                                arena_strdup(m, sock),
                                "--log",
                                arena_strdup(m, log),
                                "--cwd",
                                worker_cwd(w, m),
                                "--lease",
                                arena_printf(m, "%" PRIu64, o->lease_ms),
                                "--lease-from",
                                arena_printf(m, "%" PRIu64, o->lease_from_ms),
                                "--grace",
                                arena_printf(m, "%" PRIu64, o->grace_ms)};
    _Static_assert(sizeof head / sizeof *head + CHECKPOINT_ARGS < SHIM_ARGS, "room for the head");
    for (; n < sizeof head / sizeof *head; n++)
        argv[n] = head[n];
    argv[n++] = "--processes";
    argv[n++] = run_processes_text(worker_held(w));
    if (o->processes == PROCESSES_PROVED)
        argv[n++] = "--proved";
    n += limits_argv(w, m, argv + n);
    n += checkpoint_argv(w, m, argv + n);
    argv[n++] = "--";
    if (*o->script)
        n += script_argv(o->script, arena_printf(m, "%s/script", w->run->dir), m, argv + n);
    for (uint32_t i = 0; i < o->n_argv && n + 1 < max; i++)
        argv[n++] = o->argv[i];
    argv[n] = NULL;
    return n;
}

int worker_launch(struct worker *w, process_exit_cb exited, struct err *err)
{
    struct loop *l = w->run->agent->loop;
    const char *argv[2048 + SHIM_ARGS];
    char dir[AGENT_PATH_MAX], out[AGENT_PATH_MAX + 16];
    AUTO_ARENA m = arena_create(0);
    struct err why;
    int rc;

    worker_dir(w, dir);
    rc = file_mkdir(l, dir, 0700, err);
    if (rc == 0 && !*w->run->order->cwd)
        rc = file_mkdir(l, worker_cwd(w, m), 0700, err);
    if (rc < 0)
        return rc;
    (void)snprintf(out, sizeof out, "%s/shim.log", dir);
    (void)shim_argv(w, m, argv, sizeof argv / sizeof *argv);
    struct process_spec spec = {.argv = argv,
                                .env = store_shim_env(w, worker_env(w, m), m),
                                .stdout_path = out,
                                .stderr_path = out,
                                .session = true};
    rc = process_spawn(l, &spec, exited, w, &w->shim, &why);
    return rc < 0 ? err_set(err, rc, "%s", why.text) : 0;
}

int order_complete(struct agent *a, struct wire_order *o, struct wire_user *user,
                   char groups[RUN_GROUP_MAX], struct err *err)
{
    uint32_t uid, gid;
    int rc = users_of(a, o->cluster, o->namespace_, &uid, &gid, err);

    if (rc < 0)
        return rc;
    *user = (struct wire_user){.uid = uid, .gid = gid};
    o->run_as = uid ? user : NULL;
    o->boot_id = a->boot_id;
    o->accepted_ms = loop_wall_ms(a->loop);
    o->held = run_processes_text(a->held);
    a->cfg.os->ops->group_place(a->cfg.os, false, groups);
    o->groups = groups;
    o->rendezvous_port = rendezvous_pick(a, o, err);
    return o->rendezvous_port < 0 ? (int)o->rendezvous_port : 0;
}
