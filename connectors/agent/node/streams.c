/* Logs, exec and forwarded ports of an agent's runs: where their output and their programs are.
 * How the bytes go is in connectors/streams. */
#include "connectors/agent/node/agent_internal.h"

#include <stdio.h>

#define PENDING_MAX (1u << 20) /* on the session, before output waits */

/* The run and worker that are meant; their key becomes that of the try. */
static int worker_find(struct agent *a, struct run_key *k, int64_t rank, struct run **ret,
                       struct err *err)
{
    struct run *r = k->try_ ? run_by_key(a, k) : run_newest_try(a, k);

    if (!r)
        return err_set(err, E_NOTFOUND, "this run is not on the target any more");
    if (!run_worker(r, rank))
        return err_set(err, E_NOTFOUND, "there is no rank %lld: the run has %u workers here",
                       (long long)rank, r->n_workers);
    *k = r->key;
    *ret = r;
    return 0;
}

static int logs(void *arg, struct wire_open *q, char path[4096], struct err *err)
{
    char at[AGENT_PATH_MAX];
    struct run *r = NULL;
    int rc = worker_find(arg, &q->key, q->rank, &r, err);

    if (rc < 0)
        return rc;
    worker_log_path(r, q->rank, at);
    str_copy(path, 4096, at);
    return 0;
}

static enum log_state log_state(void *arg, const struct run_key *k)
{
    const struct run *r = run_by_key(arg, k);

    return !r ? LOG_GONE : r->told == RUN_ENDED ? LOG_WHOLE : LOG_GROWS;
}

static int place(void *arg, const struct wire_open *q, struct arena *m, struct stream_place *ret,
                 struct err *err)
{
    struct run_key key = q->key;
    struct run *r = NULL;
    char *group = arena_alloc(m, RUN_GROUP_MAX), *marker = arena_alloc(m, RUN_MARKER_MAX);
    char will[AGENT_PATH_MAX + 16] = "";
    int rc = worker_find(arg, &key, q->rank, &r, err);

    if (rc < 0)
        return rc;
    const struct worker *w = run_worker(r, q->rank);
    if (w->state != WS_LINKED || w->report.step != RUN_STEP_RUNNING)
        return err_set(err, E_CONFLICT, "worker %lld does not run at the moment",
                       (long long)q->rank);
    worker_group(w, group);
    worker_marker(w, marker);
    if (worker_held(w) == RUN_NAMESPACE)
        worker_will(w, will);
    *ret = (struct stream_place){.group = group,
                                 .will = arena_strdup(m, will),
                                 .marker = marker,
                                 .held = worker_held(w),
                                 .env = worker_env(w, m),
                                 .cwd = worker_cwd(w, m)};
    worker_user(w, &ret->uid, &ret->gid);
    return 0;
}

int agent_streams_open(struct agent *a, struct err *err)
{
    static const struct streams_ops ops = {
        .logs = logs, .log_state = log_state, .place = place};
    const struct streams_config cfg = {.loop = a->loop,
                                       .os = a->cfg.os,
                                       .at = "on one agent",
                                       .pending_max = PENDING_MAX,
                                       .ops = &ops,
                                       .arg = a};
    char path[AGENT_PATH_MAX];

    a->streams = streams_create(&cfg);
    (void)snprintf(path, sizeof path, "%s/s/attach", a->cfg.state_dir);
    return streams_listen(a->streams, path, err);
}
