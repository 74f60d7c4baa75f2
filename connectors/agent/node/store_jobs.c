/* Work on checkpoint stores, on the thread pool. A store is somebody else's file system: it may
 * take minutes, or hang. The pool has few threads and resolves the servers' names, too, so only
 * some of them may ever be lent to stores. */
#include "connectors/agent/node/agent_internal.h"

static const unsigned at_once[STORE_JOB_NR] = {
    [STORE_JOB_CUT] = 2, [STORE_JOB_STAGE] = 2, [STORE_JOB_RETAIN] = 1};

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
