/* The order as the agent gets it. */
#include "connectors/agent/hub/hub_internal.h"
#include "connectors/signals.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Beside the order itself, in one frame. */
#define DOCUMENT_ROOM (FRAME_BODY_MAX - LIMIT_ORDER_MAX_BYTES - 65536)

/* Agents do not stop a program by SIGCONT, which it may get from anybody. */
static int stop_signal(const char *name, struct err *err)
{
    int signo = *name ? signal_number(name) : SIGTERM;

    if (signo && signo != SIGCONT && signo != SIGWINCH)
        return signo;
    return err_field(err, E_INVALID, "spec.checkpoint.signal",
                     "\"%.16s\": agents send SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2 or SIGQUIT",
                     name);
}

static void order_workers(struct wire_order *w, const struct placement *p, struct arena *a)
{
    w->n_workers = p->n_assignments;
    w->workers = arena_array(a, struct wire_worker, p->n_assignments + 1);
    for (uint32_t i = 0; i < p->n_assignments; i++) {
        const struct assignment *from = &p->assignments[i];
        w->workers[i] = (struct wire_worker){
            .rank = from->rank, .node = from->node, .gpus = from->gpus, .n_gpus = from->n_gpus};
    }
}

/* Those that begin so; "": all. */
static uint32_t texts_with(const char *const *v, const char *prefix, struct arena *a,
                           const char ***ret)
{
    uint32_t n = 0, all = 0;

    while (v && v[all])
        all++;
    *ret = arena_array(a, const char *, all + 1);
    for (uint32_t i = 0; i < all; i++)
        if (strncmp(v[i], prefix, strlen(prefix)) == 0)
            (*ret)[n++] = v[i];
    return n;
}

int hub_meeting_check(const struct hub *h, struct err *err)
{
    if (!h->session || h->session->gathers)
        return 0;
    return err_field(err, E_NOTIMPL, "spec.checkpoint",
                     "the agent of target %s is of an older version, which makes no checkpoints of "
                     "gangs that span agents: upgrade it",
                     h->base.target);
}

/* An agent of an older version would give each worker what the worker of its own number saved, and
 * call a checkpoint of another number of workers foreign; and each worker a folder of its own. */
static int version_check(const struct hub *h, const struct run_order *o, struct err *err)
{
    if (!h->session)
        return 0; /* it is away, and the call says so */
    bool resumes = o->resume_path && *o->resume_path, shared = o->shared && !h->session->shares;

    if (o->log_base && *o->log_base && !h->session->keeps)
        return err_field(err, E_NOTIMPL, "spec.logs",
                         "the agent of target %s is of an older version, which keeps no logs in a "
                         "store: upgrade it, or leave spec.logs of the Target out",
                         h->base.target);
    if (o->span && !h->session->spans)
        return err_field(err, E_NOTIMPL, "spec.gang",
                         "the agent of target %s is of an older version, which knows no gangs that "
                         "span agents: upgrade it",
                         h->base.target);
    if (o->span && o->checkpoint_dir && *o->checkpoint_dir && hub_meeting_check(h, err) < 0)
        return E_NOTIMPL;
    if (!shared && (!o->reshard || !resumes || h->session->reshards))
        return 0;
    return err_field(err, E_NOTIMPL, shared ? "spec.checkpoint.layout" : "spec.checkpoint.reshard",
                     "the agent of target %s is of an older version, which knows no %s: upgrade it",
                     h->base.target, shared ? "shared layout" : "reshard");
}

/* Where it has no room, it does not go along. */
static const char *order_document(const struct run_order *o)
{
    return json_text_bytes(o->document) <= DOCUMENT_ROOM ? o->document : "";
}

/* The others of it were asked before: what its lease counts from is no later than for them. */
static void order_span(const struct hub *h, const struct run_span *s, struct wire_order *ret)
{
    uint64_t late = s ? loop_now_ms(h->base.env.loop) - s->asked_ms : 0;

    if (!s)
        return;
    ret->lease_from_ms = ret->lease_from_ms > late ? ret->lease_from_ms - late : 0;
    ret->world = s->world;
    ret->rendezvous = s->address;
    ret->rendezvous_port = s->port;
    ret->peers = (const char **)(uintptr_t)s->peers; /* read only */
    ret->n_peers = s->n_peers;
}

int hub_order(const struct hub *h, const struct run_order *o, struct arena *a,
              struct wire_order *ret, struct err *err)
{
    const struct wire_hub us = hub_state(h);
    int signo = stop_signal(o->signal, err);

    if (signo < 0)
        return signo;
    int rc = version_check(h, o, err);
    if (rc < 0)
        return rc;
    if (o->principal && *o->principal)
        return err_field(err, E_NOTIMPL, "spec.principals",
                         "an agent gives each namespace a user of its machine itself (hanse agent "
                         "--users), and runs nothing in the name of %.100s",
                         o->principal);
    if (!o->argv[0] && !*o->script)
        return err_field(err, E_INVALID, "spec.run.command",
                         "agent targets run a command or a script; there is none");
    *ret = (struct wire_order){.key = o->key,
                               .workload = o->name,
                               .namespace_ = o->ns,
                               .cluster = us.cluster,
                               .state_rv = us.state_rv,
                               .state_time_ms = us.state_time_ms,
                               .document = order_document(o),
                               .lease_ms = o->lease_ms,
                               .lease_from_ms = hub_lease_from(h),
                               .signo = signo,
                               .save_signo = signal_number(o->save_signal),
                               .grace_ms = o->grace_ms,
                               .script = o->script,
                               .cwd = o->cwd,
                               .memory_bytes = o->memory_bytes,
                               .cpu_milli = o->cpu_milli,
                               .checkpoint_base = o->checkpoint_dir,
                               .checkpoint_keep = o->checkpoint_keep,
                               .checkpoint_interval_ms = o->checkpoint_interval_ms,
                               .processes = o->processes,
                               .tenants = o->tenants,
                               .resume_path = o->resume_path,
                               .resume_digest = o->resume_digest,
                               .reshard = o->reshard,
                               .shared = o->shared,
                               .log_base = o->log_base,
                               .log_max = (uint64_t)o->log_max_bytes};
    order_workers(ret, o->placement, a);
    order_span(h, o->span, ret);
    ret->n_argv = texts_with(o->argv, "", a, &ret->argv);
    ret->n_env = texts_with(o->env, "", a, &ret->env);
    ret->n_log_env = texts_with(o->log_env, "", a, &ret->log_env);
    return 0;
}

void hub_stage_order(const struct run_order *o, struct arena *a, struct wire_stage *ret)
{
    *ret = (struct wire_stage){.key = o->key,
                               .resume_path = o->resume_path,
                               .resume_digest = o->resume_digest,
                               .reshard = o->reshard,
                               .shared = o->shared,
                               .world = o->placement ? o->placement->n_assignments : 0};
    ret->n_env = texts_with(o->env, "AWS_", a, &ret->env); /* how its store is reached */
    if (o->meeting) {
        ret->checkpoint_base = o->checkpoint_dir;
        ret->meeting = o->meeting;
        ret->leaves = o->leaves;
        return;
    }
    if (o->reshard || o->look_epoch)
        ret->world = 0;
    if (!o->look_epoch)
        return;
    ret->checkpoint_base = o->checkpoint_dir;
    ret->look_epoch = o->look_epoch;
    ret->look_workers = o->look_workers;
    ret->resume_epoch = o->resume_epoch;
    ret->resume_step = o->resume_step;
}
