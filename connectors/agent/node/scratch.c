/* Remote checkpoint stores: the folders that stand in for them on this machine, and the keys by
 * which they are reached.
 *
 *   STATE/runs/KEY/RANK/checkpoint/  what a rank writes and seals, until its run has ended (ranks
 *                                    that share a folder have that of the first)
 *   STATE/staged/DIGEST/             what runs resume from, as stage or their shims fetched it
 *
 * Keys of the workload must never mix with keys of the agent, whose keys must never reach an
 * endpoint that a workload names; and what a live run resumes from must never be removed. */
#include "connectors/agent/node/agent_internal.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#define STAGED_SPARE 2  /* staged last, by moves that may still come */
#define STAGED_MAX 4096 /* looked at in one go */
#define SETTINGS_MAX 16
#define GONE ".gone-"

/* ---- keys ---- */
enum group { ENDPOINT, REGION, CA, KEYS, GROUP_NR };
static const struct {
    const char *name;
    enum group group;
} settings[] = {
    {"AWS_ENDPOINT_URL_S3", ENDPOINT}, {"AWS_ENDPOINT_URL", ENDPOINT}, {"AWS_REGION", REGION},
    {"AWS_DEFAULT_REGION", REGION},    {"AWS_CA_BUNDLE", CA},          {"AWS_ACCESS_KEY_ID", KEYS},
    {"AWS_SECRET_ACCESS_KEY", KEYS},   {"AWS_SESSION_TOKEN", KEYS}};
#define N_SETTINGS (sizeof settings / sizeof *settings)
_Static_assert(N_SETTINGS < SETTINGS_MAX, "room for all, and NULL");

static const char *env_value(const char *const *env, uint32_t n_env, const char *name)
{
    const char *found = NULL;
    size_t n = strlen(name);

    for (uint32_t i = 0; i < n_env; i++)
        if (strncmp(env[i], name, n) == 0 && env[i][n] == '=')
            found = env[i] + n + 1;
    return found && *found ? found : NULL;
}

const char *const *store_env(const struct agent *a, const char *base, const char *const *env,
                             uint32_t n_env, struct arena *m)
{
    const char **out = arena_array(m, const char *, SETTINGS_MAX);
    bool theirs[GROUP_NR] = {false};
    size_t n = 0;

    if (!checkpoint_store_is_remote(base))
        return NULL;
    for (size_t i = 0; i < N_SETTINGS; i++)
        theirs[settings[i].group] =
            theirs[settings[i].group] || env_value(env, n_env, settings[i].name) != NULL;
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const char *name = settings[i].name, *value;
        if (settings[i].group == KEYS && !theirs[KEYS] && theirs[ENDPOINT])
            continue;
        value = theirs[settings[i].group] ? env_value(env, n_env, name)
                                          : a->cfg.os->ops->getenv(a->cfg.os, name);
        if (value && *value)
            out[n++] = arena_printf(m, "%s=%s", name, value);
    }
    return out;
}

void store_env_wipe(const char *const *env)
{
    for (; env && *env; env++)
        OPENSSL_cleanse((char *)(uintptr_t)*env, strlen(*env));
}

const char *const *store_shim_env(const struct worker *w, const char *const *env, struct arena *m)
{
    const struct wire_order *o = w->run->order;
    const char *const *own = store_env(w->run->agent, o->checkpoint_base, o->env, o->n_env, m);
    size_t n = 0, k = 0;

    if (!own)
        return env;
    while (env[n])
        n++;
    const char **all = arena_array(m, const char *, n + SETTINGS_MAX + 1);
    for (size_t i = 0; i < n; i++)
        if (strncmp(env[i], RUN_STORE_ENV, strlen(RUN_STORE_ENV)) != 0)
            all[k++] = env[i];
    for (; *own; own++)
        all[k++] = arena_printf(m, RUN_STORE_ENV "%s", *own);
    all[k] = NULL;
    return all;
}

/* ---- folders ---- */
void scratch_of_rank(const struct run *r, int64_t rank, char out[AGENT_PATH_MAX])
{
    (void)snprintf(out, AGENT_PATH_MAX, "%.400s/%" PRId64 "/checkpoint", r->dir,
                   r->order->shared ? 0 : rank);
}

static const char *hex_of(const char *digest)
{
    return strncmp(digest, "sha256:", 7) == 0 ? digest + 7 : digest;
}

void scratch_of_cut(const struct agent *a, const char *digest, char out[AGENT_PATH_MAX])
{
    (void)snprintf(out, AGENT_PATH_MAX, "%s/staged/%.64s", a->cfg.state_dir, hex_of(digest));
}

/* ---- removal: renamed at once, removed on the thread pool ---- */
struct scratch_job { /* owned by itself */
    struct store_job job;
    struct arena *arena;
    const char **paths;
    size_t n;
};

static void scratch_work(struct store_job *job)
{
    struct scratch_job *j = container_of(job, struct scratch_job, job);
    struct err err;

    for (size_t i = 0; i < j->n; i++)
        if (checkpoint_scratch_remove(j->paths[i], &err) < 0)
            log_err(LOG_WARN, "agent.scratch", &err);
}

static void scratch_done(struct store_job *job)
{
    struct scratch_job *j = container_of(job, struct scratch_job, job);

    (void)arena_destroy(j->arena);
    mem_free(j);
}

static struct scratch_job *job_make(size_t max)
{
    struct scratch_job *j = mem_new(struct scratch_job);

    j->arena = arena_create(0);
    j->paths = arena_array(j->arena, const char *, max + 1);
    j->job.kind = STORE_JOB_RETAIN;
    j->job.work = scratch_work;
    j->job.done = scratch_done;
    return j;
}

static void job_begin(struct agent *a, struct scratch_job *j)
{
    if (j->n)
        store_job_begin(a, &j->job);
    else
        scratch_done(&j->job);
}

/* ---- staged ---- */
static bool is_needed(const struct agent *a, const char *hex)
{
    list_for_each (it, &a->runs) {
        const struct run *r = container_of(it, struct run, link);
        if (!r->ended_seq && strcmp(hex_of(r->order->resume_digest), hex) == 0)
            return true;
    }
    for (unsigned i = 1; i <= STAGED_SPARE && i <= a->next_staged; i++)
        if (strcmp(hex_of(a->staged[(a->next_staged - i) % AGENT_STAGED_MAX]), hex) == 0)
            return true;
    return stage_is_read(a, hex);
}

struct sweeping {
    struct agent *agent;
    struct scratch_job *job;
    size_t max;
};

static void sweep_one(const char *name, void *arg)
{
    struct sweeping *s = arg;
    struct scratch_job *j = s->job;
    char path[AGENT_PATH_MAX], proofs[AGENT_PATH_MAX], gone[AGENT_PATH_MAX + 32];
    struct err err;

    if (j->n + 2 > s->max || is_needed(s->agent, name))
        return;
    (void)snprintf(path, sizeof path, "%s/staged/%.100s", s->agent->cfg.state_dir, name);
    if (strncmp(name, GONE, strlen(GONE)) == 0) { /* an agent died over it */
        j->paths[j->n++] = arena_strdup(j->arena, path);
        return;
    }
    (void)snprintf(gone, sizeof gone, "%s/staged/" GONE "%.70s", s->agent->cfg.state_dir, name);
    if (checkpoint_scratch_rename(path, gone, &err) < 0) {
        log_err(LOG_WARN, "agent.scratch", &err);
        return;
    }
    j->paths[j->n++] = arena_strdup(j->arena, gone);
    checkpoints_proofs_dir(s->agent, name, proofs); /* they are of files that are gone */
    j->paths[j->n++] = arena_strdup(j->arena, proofs);
}

void scratch_sweep(struct agent *a)
{
    struct sweeping s = {.agent = a, .job = job_make(STAGED_MAX), .max = STAGED_MAX};
    char dir[AGENT_PATH_MAX];
    struct err err;

    (void)snprintf(dir, sizeof dir, "%s/staged", a->cfg.state_dir);
    if (file_list(a->loop, dir, sweep_one, &s, &err) < 0)
        log_err(LOG_WARN, "agent.scratch", &err);
    job_begin(a, s.job);
}

void scratch_run_over(struct run *r)
{
    struct scratch_job *j;
    char path[AGENT_PATH_MAX];
    bool remote = checkpoint_store_is_remote(r->order->checkpoint_base);
    bool tenant = r->order->run_as != NULL;
    if (!remote && !tenant)
        return;
    j = job_make(2 * (size_t)r->n_workers);
    for (unsigned i = 0; i < r->n_workers; i++) {
        if (tenant) { /* its /tmp */
            worker_dir(&r->workers[i], path);
            j->paths[j->n++] = arena_printf(j->arena, "%s/" TENANT_TMP, path);
        }
        if (!remote || (r->workers[i].rank && r->order->shared) ||
            end_row(r->workers[i].report.reason)->checkpoint == CHECKPOINT_UNSTORED)
            continue; /* the only copy: it stays as long as the run's log does */
        scratch_of_rank(r, r->workers[i].rank, path);
        j->paths[j->n++] = arena_strdup(j->arena, path);
    }
    job_begin(r->agent, j);
    if (remote && !r->agent->loading) /* else once all runs are known */
        scratch_sweep(r->agent);
}
