/* Staging: reads a whole checkpoint here, on the side that is to resume from it, before the run
 * that it comes from is given up. It is idempotent: a repeated request reads nothing twice while it
 * is under way, and later only files that have changed. It leaves proofs for the shims, so that a
 * move does not read everything twice on this side. With a search it finds the newest checkpoint
 * itself: the run was cut off and could report none.
 *
 * Answers go to the present session; work that an older session asked for is finished, and kept. */
#include "api/base/failpoint.h"
#include "connectors/agent/node/agent_internal.h"

#include <stdio.h>
#include <string.h>

#define STAGES_MAX 256

struct asker {
    struct list link;
    uint64_t id;
    struct run_key key;
};
struct stage {
    struct store_job job;
    struct list link;
    struct list askers;
    char path[CHECKPOINT_PATH_MAX], digest[CHECKPOINT_DIGEST_MAX], workload[64];
    char proofs[AGENT_PATH_MAX], scratch[AGENT_PATH_MAX];
    struct arena *arena; /* of env */
    const char *const *env;
    const char *roots;
    int64_t world_asked, world, workers;           /* workers: of look_epoch; 0 = not known */
    int64_t look_epoch, resume_epoch, resume_step; /* look_epoch: `path` is the folder to look in */
    bool shared;                                   /* its workers save in one folder */
    char meeting[97]; /* nothing is read: that file is left there, or looked for; "": not so */
    bool leaves;
    int64_t epoch; /* of the key that asks for it */
    struct checkpoint_found found;                 /* path "" after a look: nothing newer */
    struct buf passed;
    int rc;
    struct err err;
};

void checkpoints_proofs_dir(const struct agent *a, const char *digest, char out[AGENT_PATH_MAX])
{
    const char *hex = strncmp(digest, "sha256:", 7) == 0 ? digest + 7 : digest;

    (void)snprintf(out, AGENT_PATH_MAX, "%s/proofs/%.64s", a->cfg.state_dir, hex);
}

int stage_open(struct agent *a, struct err *err)
{
    char path[AGENT_PATH_MAX];

    (void)snprintf(path, sizeof path, "%s/proofs", a->cfg.state_dir);
    return file_remove(a->loop, path, err);
}

static int look_work(struct stage *s)
{
    const struct checkpoint_search q = {
        .at = {.base = s->path, .scratch = s->scratch, .env = s->env, .roots = s->roots},
        .workload = s->workload,
        .epoch = s->look_epoch,
        .known_epoch = s->resume_epoch,
        .known_step = s->resume_step,
        .world = s->world,
        .workers = s->workers,
        .shared = s->shared,
        .proofs = s->proofs};
    int rc = checkpoint_newest(&q, &s->job.progress, &s->found, &s->passed, &s->err);

    if (rc == 0) /* its proofs are kept by this name */
        str_copy(s->digest, sizeof s->digest, s->found.digest);
    return rc;
}

#define UNSEEN                                                                                     \
    "%.200s is not one store to all machines of its gang: what agent %.100s looked for there, "    \
    "and another one had left, it does not see. Mount one there, or ask for workers that one "     \
    "machine has room for"

static int meeting_work(struct stage *s)
{
    const struct checkpoint_store at = {.base = s->path, .env = s->env, .roots = s->roots};

    if (s->leaves)
        return checkpoint_meeting_leave(&at, s->epoch, s->meeting, &s->err);
    return checkpoint_meeting_see(&at, s->epoch, s->meeting, &s->err);
}

/* No verdict of a store that could not be asked. */
static void meeting_answer(struct agent *a, const struct stage *s, uint64_t id,
                           const struct observation *o)
{
    bool said = s->rc == E_NOTFOUND || s->rc == E_INVALID || s->rc == E_FORBIDDEN;
    struct err err = s->err;

    if (s->rc == E_NOTFOUND)
        (void)err_field(&err, E_INVALID, "spec.checkpoint.store", UNSEEN, s->path, a->cfg.target);
    session_answer(a, id, s->rc == 0 ? OUT_DONE : said ? OUT_REJECTED : OUT_UNKNOWN,
                   s->rc < 0 ? &err : NULL, s->rc == 0 ? o : NULL);
}

static void stage_work(struct store_job *job)
{
    struct stage *s = container_of(job, struct stage, job);
    struct checkpoint_want want = {.path = s->path,
                                   .at = {.scratch = s->scratch, .env = s->env, .roots = s->roots},
                                   .digest = s->digest,
                                   .workload = s->workload,
                                   .world = s->world,
                                   .rank = -1,
                                   .proofs_dir = s->proofs,
                                   .write_proofs = true,
                                   .by_sealer = true};

    FAILPOINT("agent.stage.before");
    s->rc = *s->meeting     ? meeting_work(s)
            : s->look_epoch ? look_work(s)
                            : checkpoint_verify(&want, &s->job.progress, &s->found, &s->err);
}

static void stage_answer(struct agent *a, const struct stage *s, const struct asker *k)
{
    struct observation o = {.key = k->key, .state = RUN_UNKNOWN};

    if (*s->meeting) {
        meeting_answer(a, s, k->id, &o);
    } else if (s->rc == 0) {
        o.checkpoint = (struct run_checkpoint_report){.present = *s->found.path != '\0',
                                                      .epoch = s->found.epoch,
                                                      .step = s->found.step,
                                                      .bytes = s->found.bytes,
                                                      .writtenAt = s->found.writtenAt,
                                                      .ranks = s->found.ranks};
        str_copy(o.checkpoint.digest, sizeof o.checkpoint.digest, s->found.digest);
        str_copy(o.checkpoint.path, sizeof o.checkpoint.path, s->found.path);
        (void)snprintf(o.message, sizeof o.message, "%.500s", s->passed.n ? s->passed.p : "");
        session_answer(a, k->id, OUT_DONE, NULL, &o);
    } else if (s->rc == E_CHECKPOINT || end_row(s->err.field)->checkpoint == CHECKPOINT_UNREACHED) {
        (void)snprintf(o.reason, sizeof o.reason, "%.63s", s->err.field);
        (void)snprintf(o.message, sizeof o.message, "%.511s", s->err.text);
        session_answer(a, k->id, OUT_REJECTED, &s->err, &o);
    } else { /* the store could not be asked: no verdict */
        session_answer(a, k->id, OUT_UNKNOWN, &s->err, NULL);
    }
}

/* Proofs of the 32 newest stay. */
static void stage_remember(struct agent *a, const struct stage *s)
{
    char path[AGENT_PATH_MAX];
    struct err err;

    for (unsigned i = 0; i < AGENT_STAGED_MAX; i++)
        if (strcmp(a->staged[i], s->digest) == 0)
            return;
    char *slot = a->staged[a->next_staged++ % AGENT_STAGED_MAX];
    if (*slot) {
        checkpoints_proofs_dir(a, slot, path);
        if (file_remove(a->loop, path, &err) < 0)
            log_err(LOG_WARN, "agent.proofs", &err);
    }
    (void)snprintf(slot, CHECKPOINT_DIGEST_MAX, "%s", s->digest);
}

static void stage_done(struct store_job *job)
{
    struct stage *s = container_of(job, struct stage, job);
    struct agent *a = job->agent;

    FAILPOINT("agent.stage.after");
    if (a) {
        list_remove(&s->link);
        if (s->rc == 0 && *s->digest)
            stage_remember(a, s);
        else if (s->rc < 0)
            log_err(LOG_WARN, "agent.stage_refused", &s->err);
    }
    for (struct list *e; (e = list_pop(&s->askers)) != NULL;) {
        struct asker *k = container_of(e, struct asker, link);
        if (a)
            stage_answer(a, s, k);
        mem_free(k);
    }
    buf_fini(&s->passed);
    store_env_wipe(s->env);
    (void)arena_destroy(s->arena);
    bool remote = checkpoint_store_is_remote(s->path);
    mem_free(s);
    if (a && remote)
        scratch_sweep(a);
}

static const char *stage_path(const struct wire_stage *q)
{
    return q->look_epoch || *q->meeting ? q->checkpoint_base : q->resume_path;
}

static struct stage *stage_make(struct agent *a, const struct wire_stage *q)
{
    struct stage *s = mem_new(struct stage);

    list_init(&s->askers);
    str_copy(s->path, sizeof s->path, stage_path(q));
    str_copy(s->meeting, sizeof s->meeting, q->meeting);
    s->leaves = q->leaves;
    s->epoch = q->key.epoch;
    str_copy(s->workload, sizeof s->workload, q->key.uid);
    s->arena = arena_create(0);
    s->world_asked = s->world = q->world;
    s->look_epoch = q->look_epoch;
    buf_init(&s->passed, 4096);
    if (s->look_epoch) {
        s->workers = q->look_workers;
        s->shared = q->shared;
        s->world = 0;
        s->resume_epoch = q->resume_epoch;
        s->resume_step = q->resume_step;
        (void)snprintf(s->proofs, sizeof s->proofs, "%s/proofs", a->cfg.state_dir);
        (void)snprintf(s->scratch, sizeof s->scratch, "%s/staged", a->cfg.state_dir);
    } else if (!*q->meeting) {
        str_copy(s->digest, sizeof s->digest, q->resume_digest);
        checkpoints_proofs_dir(a, s->digest, s->proofs);
        scratch_of_cut(a, s->digest, s->scratch);
    }
    s->env = store_env(a, s->path, q->env, q->n_env, s->arena);
    s->roots = arena_strdup(s->arena, a->store_roots);
    s->job.kind = STORE_JOB_STAGE;
    s->job.work = stage_work;
    s->job.done = stage_done;
    return s;
}

static bool digest_is(const char *s)
{
    return strlen(s) == 7 + 64 && strncmp(s, "sha256:", 7) == 0 &&
           strspn(s + 7, "0123456789abcdef") == 64;
}

/* The same question, so that one reading answers both. */
static bool stage_is(const struct stage *t, const struct wire_stage *q)
{
    const char *path = stage_path(q);

    return t->look_epoch == q->look_epoch && strcmp(t->meeting, q->meeting) == 0 &&
           t->leaves == q->leaves && strcmp(t->path, path) == 0 &&
           strcmp(t->workload, q->key.uid) == 0 && t->world_asked == q->world &&
           (q->look_epoch ? t->resume_epoch == q->resume_epoch && t->resume_step == q->resume_step
                          : strcmp(t->digest, q->resume_digest) == 0);
}

/* Of a file, and of no other folder. */
static bool name_is(const char *s)
{
    return *s != '.' && !s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                     "0123456789-.")];
}

static int stage_check(const struct agent *a, const struct wire_stage *q, struct err *err)
{
    const char *path = stage_path(q);
    bool bad = *q->meeting ? q->key.epoch < 1 || !name_is(q->meeting)
                           : !q->look_epoch && !digest_is(q->resume_digest);

    if (bad || (path[0] != '/' && !checkpoint_store_is_remote(path)) ||
        strlen(path) >= CHECKPOINT_PATH_MAX)
        return err_set(err, E_INVALID,
                       *q->meeting || q->look_epoch
                           ? "to look, stage needs the base of a store and an epoch"
                           : "stage needs the absolute path of a cut and its sha256");
    return store_allowed(a, path, err);
}

void stage_request(struct agent *a, uint64_t id, const struct wire_stage *q)
{
    struct stage *s = NULL;
    struct asker *k;
    struct err err;
    unsigned n = 0;

    if (stage_check(a, q, &err) < 0) {
        session_answer(a, id, OUT_REJECTED, &err, NULL);
        return;
    }
    list_for_each (it, &a->stages) {
        struct stage *t = container_of(it, struct stage, link);
        n++;
        if (stage_is(t, q))
            s = t;
    }
    if (!s && n >= STAGES_MAX) {
        (void)err_set(&err, E_LIMIT, "this agent reads %d checkpoints already", STAGES_MAX);
        session_answer(a, id, OUT_UNKNOWN, &err, NULL);
        return;
    }
    bool is_new = !s;
    if (is_new) {
        s = stage_make(a, q);
        list_push(&a->stages, &s->link);
    }
    k = mem_new(struct asker);
    k->id = id;
    k->key = q->key;
    list_push(&s->askers, &k->link);
    if (is_new)
        store_job_begin(a, &s->job);
}

bool stage_is_read(const struct agent *a, const char *hex)
{
    list_for_each (it, &a->stages) {
        const struct stage *s = container_of(it, struct stage, link);
        /* What one that looks will find is not known before it has. */
        if (s->look_epoch || strcmp(s->digest + strlen("sha256:"), hex) == 0)
            return true;
    }
    return false;
}

void stage_forget_askers(struct agent *a)
{
    list_for_each (it, &a->stages) {
        struct stage *s = container_of(it, struct stage, link);
        for (struct list *e; (e = list_pop(&s->askers)) != NULL;)
            mem_free(container_of(e, struct asker, link));
    }
}
