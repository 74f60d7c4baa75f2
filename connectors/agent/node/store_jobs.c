/* Work on checkpoint stores, on the thread pool. A store is somebody else's file system: it may
 * take minutes, or hang. The pool has few threads and resolves the servers' names, too, so only
 * some of them may ever be lent to stores. */
#include "connectors/agent/node/agent_internal.h"
#include "connectors/kept/kept.h"

#include <string.h>

#include <stdio.h>
#include <string.h>

static const unsigned at_once[STORE_JOB_NR] = {
    [STORE_JOB_CUT] = 2, [STORE_JOB_STAGE] = 2, [STORE_JOB_RETAIN] = 1, [STORE_JOB_LOGS] = 1};

static void jobs_next(struct agent *a, enum store_job_kind kind);

static void job_work(void *arg)
{
    struct store_job *j = arg;

    j->work(j);
}

static void job_done(void *arg)
{
    struct store_job *j = arg;
    struct agent *a = j->agent;
    enum store_job_kind kind = j->kind;

    if (a) {
        list_remove(&j->all);
        a->jobs.running[kind]--;
    }
    j->done(j);
    if (a)
        jobs_next(a, kind);
}

static void jobs_next(struct agent *a, enum store_job_kind kind)
{
    while (a->jobs.running[kind] < at_once[kind] && !list_empty(&a->jobs.waiting[kind])) {
        struct store_job *j =
            container_of(list_pop(&a->jobs.waiting[kind]), struct store_job, link);
        j->begun = true;
        a->jobs.running[kind]++;
        loop_work(a->loop, job_work, job_done, j);
    }
}

/* ---- which folders may be stores ---- */
#define STORES_SHARED "/srv/hanse" /* where nobody names others; machines may share it */
#define STORES_OWN "stores"        /* and in the state folder */

int store_roots_open(struct agent *a, struct err *err)
{
    const char *named = a->cfg.store_roots;
    struct err why;

    if (!named)
        (void)snprintf(a->store_roots, sizeof a->store_roots, "%s/" STORES_OWN ":" STORES_SHARED,
                       a->cfg.state_dir);
    else if (strlen(named) < sizeof a->store_roots)
        str_copy(a->store_roots, sizeof a->store_roots, named);
    if (checkpoint_roots_check(named ? named : a->store_roots, &why) < 0)
        return err_set(err, E_USAGE, "--store-root: %s", why.text);
    return 0;
}

int store_allowed(const struct agent *a, const char *path, struct err *err)
{
    char root[CHECKPOINT_PATH_MAX], own[AGENT_PATH_MAX];

    if (checkpoint_store_is_remote(path))
        return 0;
    int rc = checkpoint_roots_allow(a->store_roots, path, root, err);
    if (rc < 0)
        return rc;
    (void)snprintf(own, sizeof own, "%s/" STORES_OWN, a->cfg.state_dir);
    if (checkpoint_path_within(a->cfg.state_dir, path) && !checkpoint_path_within(own, path))
        return err_field(err, E_FORBIDDEN, "spec.checkpoint.store",
                         "%.200s may not hold checkpoints: it is in the agent's own memory", path);
    return 0;
}

const char *store_roots_of(const struct agent *a, const char *base)
{
    return store_allowed(a, base, NULL) == 0 ? a->store_roots : NULL;
}

void store_jobs_init(struct agent *a)
{
    for (unsigned i = 0; i < STORE_JOB_NR; i++)
        list_init(&a->jobs.waiting[i]);
    list_init(&a->jobs.all);
    list_init(&a->stages);
}

void store_job_begin(struct agent *a, struct store_job *j)
{
    j->agent = a;
    j->begun = false;
    list_push(&a->jobs.all, &j->all);
    list_push(&a->jobs.waiting[j->kind], &j->link);
    jobs_next(a, j->kind);
}

/* Those on the pool end later, and find nobody. */
void store_jobs_fini(struct agent *a)
{
    while (!list_empty(&a->jobs.all)) {
        struct store_job *j = container_of(list_pop(&a->jobs.all), struct store_job, all);
        atomic_store(&j->progress.cancel, true);
        j->agent = NULL;
        if (!j->begun)
            j->done(j);
    }
    for (unsigned i = 0; i < STORE_JOB_NR; i++)
        list_init(&a->jobs.waiting[i]);
}

/* ---- what killed runners left ---- */
/* Sealed here, or a shim's death would cost all since its last seal. */
struct rescue_job { /* owned by itself */
    struct store_job job;
    struct run_key key;
    char base[CHECKPOINT_PATH_MAX];
    struct arena *arena;
    const char *const *env;
    const char *roots;
    struct rescued {
        int64_t rank;
        const char *scratch;
        bool killed;
    } *v;
    struct checkpoint_sealed *sealed;
    unsigned n;
};

static void rescue_work(struct store_job *job)
{
    struct rescue_job *j = container_of(job, struct rescue_job, job);
    struct checkpoint_store at = {.base = j->base, .env = j->env, .roots = j->roots};
    struct err err;

    for (unsigned i = 0; i < j->n; i++) {
        struct checkpoint_sealer *s = NULL;
        at.scratch = j->v[i].scratch;
        if (!j->v[i].killed || checkpoint_sealer_create(&at, j->key.epoch, j->v[i].rank,
                                                        &job->progress, &s, &err) < 0)
            continue;
        (void)!checkpoint_sealer_look(s, true, &job->progress, &err); /* torn: it stays unsealed */
        j->sealed[i] = *checkpoint_sealer_newest(s);
        (void)checkpoint_sealer_destroy(s);
    }
}

static void rescue_done(struct store_job *job)
{
    struct rescue_job *j = container_of(job, struct rescue_job, job);
    struct run *r = job->agent ? run_by_key(job->agent, &j->key) : NULL;

    if (r)
        checkpoints_rescued(r, j->sealed);
    store_env_wipe(j->env);
    (void)arena_destroy(j->arena);
    mem_free(j);
}

void rescue_begin(struct run *r, const bool *killed, unsigned n)
{
    struct rescue_job *j = mem_new(struct rescue_job);
    struct agent *a = r->agent;

    INV(a != NULL);
    const char *roots = store_roots_of(a, r->order->checkpoint_base);
    j->arena = arena_create(0);
    j->n = n;
    j->key = r->key;
    j->v = arena_array(j->arena, struct rescued, n);
    j->sealed = arena_array(j->arena, struct checkpoint_sealed, n);
    str_copy(j->base, sizeof j->base, r->order->checkpoint_base);
    j->env = store_env(a, j->base, r->order->env, r->order->n_env, j->arena);
    j->roots = roots ? arena_strdup(j->arena, roots) : NULL;
    for (unsigned i = 0; i < n; i++) {
        char path[AGENT_PATH_MAX];
        scratch_of_rank(r, r->workers[i].rank, path);
        j->v[i] = (struct rescued){.rank = r->workers[i].rank,
                                   .scratch = arena_strdup(j->arena, path),
                                   .killed = killed[i]};
    }
    j->job.kind = STORE_JOB_CUT;
    j->job.work = rescue_work;
    j->job.done = rescue_done;
    store_job_begin(a, &j->job);
}

/* ---- what programs print ---- */
struct logs_job { /* owned by itself */
    struct store_job job;
    struct kept_job *kept;
};

static void logs_work(struct store_job *job)
{
    kept_job_work(container_of(job, struct logs_job, job)->kept);
}

static void logs_done(struct store_job *job)
{
    struct logs_job *j = container_of(job, struct logs_job, job);

    kept_job_done(j->kept);
    mem_free(j);
}

static void logs_begin(struct kept_job *kept, void *arg)
{
    const struct run *r = arg;
    struct logs_job *j = mem_new(struct logs_job);

    j->kept = kept;
    j->job.kind = STORE_JOB_LOGS;
    j->job.work = logs_work;
    j->job.done = logs_done;
    kept_job_progress(kept, &j->job.progress);
    store_job_begin(r->agent, &j->job);
}

static void logs_come(void *arg)
{
    run_changed(arg);
}

void logs_init(struct run *r)
{
    const struct wire_order *o = r->order;
    char path[AGENT_PATH_MAX];
    AUTO_ARENA m = arena_create(0);
    const char **env = NULL;

    if (!*o->log_base)
        return;
    if (o->n_log_env) {
        env = arena_array(m, const char *, o->n_log_env + 1);
        memcpy(env, o->log_env, o->n_log_env * sizeof *env);
    }
    for (unsigned i = 0; i < r->n_workers; i++) {
        const struct kept_config cfg = {.loop = r->agent->loop,
                                        .path = path,
                                        .base = o->log_base,
                                        .env = env,
                                        .roots = store_roots_of(r->agent, o->log_base),
                                        .rank = r->workers[i].rank,
                                        .max_bytes = (o->log_max ? o->log_max : KEPT_MAX_DEFAULT) /
                                                     order_world(o),
                                        .begin = logs_begin,
                                        .settled = logs_come,
                                        .arg = r};
        worker_log_path(r, r->workers[i].rank, path);
        r->workers[i].kept = kept_writer_create(&cfg);
    }
}

void logs_fini(struct run *r)
{
    for (unsigned i = 0; i < r->n_workers; i++)
        r->workers[i].kept = kept_writer_destroy(r->workers[i].kept);
}

void logs_consider(struct run *r)
{
    for (unsigned i = 0; i < r->n_workers; i++)
        if (r->workers[i].state == WS_ENDED)
            kept_writer_over(r->workers[i].kept);
}

bool logs_settled(const struct run *r)
{
    for (unsigned i = 0; i < r->n_workers; i++)
        if (!kept_writer_settled(r->workers[i].kept))
            return false;
    return true;
}

bool logs_scrub(struct wire_order *o)
{
    bool any = *o->log_base || o->n_log_env;

    o->log_base = "";
    o->n_log_env = 0;
    return any;
}
