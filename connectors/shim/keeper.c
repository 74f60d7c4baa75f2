/* See keeper.h. There is one job at a time; the thread pool owns what the job works on until it
 * ends. */
#include "api/base/failpoint.h"
#include "connectors/shim/keeper.h"

#include "api/base/log.h"
#include "api/schema/schema.h"

#include <stdio.h>
#include <string.h>

#define LOOK_EVERY_MS 200
#define KEEPER_PATIENCE_MS 60000 /* for a store that does not move at all */
#define SAVE_CUT_MS 10000        /* beside the grace: for ranks that save one after the other */

struct keeper {
    struct loop *loop;
    struct run_checkpoints cfg;
    void (*changed)(void *arg);
    void *arg;
    enum keeper_state state;
    struct timer tick;
    bool working, paused, settling, look_last, stuck;
    uint64_t moved_bytes, moved_ms; /* the progress that was seen last, and when */
    struct err why, unsealed;
    struct checkpoint_sealed newest;
    struct checkpoint_gathered cut;
    struct checkpoint_found resume;
    char dir[CHECKPOINT_PATH_MAX + 64];
    /* the job's while working */
    bool preparing, job_over;
    struct checkpoint_sealer *sealer;
    struct checkpoint_progress progress;
    struct checkpoint_found job_found;
    struct err job_err;
    int job_rc;
    int64_t epoch;
    char resumed[CHECKPOINT_PATH_MAX]; /* the cut */
    bool gathered, regather;           /* regather: another rank may have sealed what was missing */
    struct checkpoint_gathered job_cut;
    int64_t job_known, known; /* number of the newest cut that a hub surely has */

    /* a request to save and go on */
    struct run_save save;
    struct timer save_tick;
    uint64_t save_until_ms, save_grace_ms;
    uint64_t look_ms;     /* when the last look began */
    bool asked;           /* the program has taken the signal */
    bool peeking, peeked; /* the manifest's step is being looked up; is known */
    int64_t peek_number;  /* of the request that it is looked up for */
    int64_t peek_step;    /* the job's while peeking */
    bool abandoned;       /* freed once the job is over */
};

static void keeper_tick(void *arg);

/* ---- on the thread pool ---- */
static struct checkpoint_store store_of(const struct keeper *k)
{
    return (struct checkpoint_store){
        .base = k->cfg.base,
        .scratch = k->cfg.scratch,
        .env = k->cfg.store_env,
        .roots = k->cfg.roots};
}

static int resume_from(struct keeper *k, const char *path, const char *digest, struct err *err)
{
    const struct run_checkpoints *c = &k->cfg;
    struct checkpoint_want want = {.path = path,
                                   .at = store_of(k),
                                   .digest = digest,
                                   .workload = c->workload,
                                   .world = c->reshard ? 0 : c->world,
                                   .rank = c->shared ? 0 : c->rank,
                                   .layout = c->shared ? LAYOUT_SHARED : LAYOUT_RANKS,
                                   .proofs_dir = *c->proofs_dir ? c->proofs_dir : NULL,
                                   .by_sealer = true};
    char view[CHECKPOINT_PATH_MAX + 64], seen[CHECKPOINT_PATH_MAX + 64];
    const char *here = checkpoint_store_is_remote(c->base) ? c->scratch : c->base;

    (void)snprintf(view, sizeof view, "%.1000s/e%lld/%lld.resume", here, (long long)k->epoch,
                   (long long)c->rank);
    if (c->resume_scratch && *c->resume_scratch)
        want.at.scratch = c->resume_scratch;
    if (c->reshard && !c->shared) { /* whatever their number: all of them */
        want.rank = -1;
        want.view = view;
    }
    int rc = checkpoint_verify(&want, &k->progress, &k->job_found, err);

    if (rc < 0)
        return rc;
    if (!want.view && (rc = checkpoint_exact(k->job_found.dir, view, seen, err)) == 0)
        memcpy(k->job_found.dir, seen, sizeof seen);
    str_copy(k->resumed, sizeof k->resumed, path);
    return rc;
}

/* Newest first; what does not hold is said, and the one before is tried. One that holds, but for
 * another number of ranks, is not passed over: that would lose what it has. */
static int resume_from_latest(struct keeper *k, struct err *err)
{
    int64_t epoch = INT64_MAX - 1, number = INT64_MAX;
    char path[CHECKPOINT_PATH_MAX];

    struct checkpoint_store at = store_of(k);

    for (;;) {
        struct err why;
        int rc = checkpoint_cut_before(&at, &epoch, &number, path, err);
        if (rc == E_NOTFOUND)
            return 0; /* nothing to resume: it starts anew */
        if (rc < 0)
            return rc;
        rc = resume_from(k, path, "", &why);
        if (rc != E_CHECKPOINT || end_row(why.field)->checkpoint == CHECKPOINT_MISFIT)
            return rc < 0 ? err_field(err, rc, why.field, "%s", why.text) : 0;
        log_err(LOG_WARN, "run.checkpoint_refused", &why);
    }
}

static int work_prepare(struct keeper *k, struct err *err)
{
    const struct run_checkpoints *c = &k->cfg;
    struct checkpoint_store at = store_of(k);
    int rc = checkpoint_store_allowed(&at, err); /* before anything is made there */

    k->epoch = c->epoch;
    if (rc == 0 && k->epoch == 0) {
        rc = checkpoint_epoch_newest(&at, &k->epoch, err);
        k->epoch++;
    }
    if (rc == 0 && strcmp(c->resume_path, RUN_RESUME_LATEST) == 0)
        rc = resume_from_latest(k, err);
    else if (rc == 0 && *c->resume_path)
        rc = resume_from(k, c->resume_path, c->resume_digest, err);
    if (rc == 0 && c->shared && c->rank > 0) /* what they save together the first one seals */
        return checkpoint_shared_dir(&at, k->epoch, k->dir, err);
    return rc < 0 ? rc
                  : checkpoint_sealer_create(&at, k->epoch, c->rank, &k->progress, &k->sealer, err);
}

/* Whether the program said that what it saved is to be resumed from is not known of the other
 * ranks. */
static int work_cut(struct keeper *k, struct err *err)
{
    const struct run_checkpoints *c = &k->cfg;
    struct checkpoint_gather g = {.at = store_of(k),
                                  .workload = c->workload,
                                  .resume_path = k->resumed,
                                  .epoch = k->epoch,
                                  .rank = c->rank,
                                  .world = c->world,
                                  .shared = c->shared,
                                  .keep = c->keep,
                                  .told = c->told,
                                  .known = k->job_known};
    struct checkpoint_gathered got;
    int rc = checkpoint_cut_gather(&g, false, &got, err);

    if (got.cut.present) {
        const struct checkpoint_sealed *own = checkpoint_sealer_newest(k->sealer);
        if (got.own_step == own->step && own->writeTime > got.cut.writeTime)
            got.cut.writeTime = own->writeTime;
        k->job_cut = got;
    }
    return rc;
}

static void work(void *arg)
{
    struct keeper *k = arg;

    if (k->preparing) {
        k->job_rc = work_prepare(k, &k->job_err);
        FAILPOINT("shim.verify.after");
        return;
    }
    int64_t before = checkpoint_sealer_newest(k->sealer)->step;
    k->job_rc = checkpoint_sealer_look(k->sealer, k->job_over, &k->progress, &k->job_err);
    const struct checkpoint_sealed *s = checkpoint_sealer_newest(k->sealer);
    bool is_new = s->present && (!k->gathered || s->step != before);
    if (k->cfg.own_cuts && (is_new || k->regather || (k->job_over && s->present))) {
        struct err why;
        k->gathered = true;
        if (work_cut(k, &why) < 0 && k->job_rc == 0) {
            k->job_rc = why.code;
            k->job_err = why;
        }
    }
}

/* ---- a request to save and go on ---- */
static bool save_open(const struct keeper *k)
{
    return k->save.state == SAVE_ASKED;
}

/* Of ranks that share a folder only the first seals. */
static bool others_seal(const struct keeper *k)
{
    return k->cfg.shared && k->cfg.rank > 0;
}

/* What was asked for is sealed here. */
static bool save_sealed(const struct keeper *k)
{
    return k->peeked && k->newest.present && k->newest.step >= k->save.from;
}

static bool save_cut(const struct keeper *k)
{
    return !k->cfg.own_cuts || (k->cut.cut.present && k->cut.own_step >= k->save.from);
}

static void save_end(struct keeper *k, enum save_state state, const char *reason,
                     const char *message)
{
    k->save.state = state;
    str_copy(k->save.reason, sizeof k->save.reason, reason);
    str_copy(k->save.message, sizeof k->save.message, message);
    timer_stop(&k->save_tick);
}

static void save_failed(struct keeper *k)
{
    char text[sizeof k->save.message];
    double s = (double)k->save_grace_ms / 1000;

    if (others_seal(k)) {
        save_end(k, SAVE_DONE, "", "");
        return;
    }
    if (save_sealed(k)) {
        save_end(k, SAVE_FAILED, "RanksDiffer",
                 "it has saved, but not all of the ranks have at one step");
        return;
    }
    if (k->asked && k->unsealed.code) {
        save_end(k, SAVE_FAILED, *k->unsealed.field ? k->unsealed.field : CHECKPOINT_UNREACHABLE,
                 k->unsealed.text);
        return;
    }
    if (!k->peeked || (k->asked && k->working)) {
        save_end(k, SAVE_FAILED, CHECKPOINT_UNREACHABLE, "its checkpoint store does not answer");
        return;
    }
    if (k->asked)
        (void)snprintf(text, sizeof text,
                       "it took the signal, and has committed no checkpoint within %gs "
                       "(spec.checkpoint.grace)",
                       s);
    else
        (void)snprintf(text, sizeof text,
                       "no process of it took the signal of spec.checkpoint.saveSignal within %gs: "
                       "it was not sent, since it ends who does not wait for it",
                       s);
    save_end(k, SAVE_FAILED, k->asked ? "NotSaved" : "SignalNotTaken", text);
}

static void save_look(struct keeper *k)
{
    uint64_t until_ms = k->save_until_ms + (save_sealed(k) ? SAVE_CUT_MS : 0);

    if (save_open(k) && save_sealed(k) && save_cut(k))
        save_end(k, SAVE_DONE, "", "");
    else if (save_open(k) && k->asked && !k->paused && k->look_ms >= until_ms)
        save_failed(k);
}

/* What was committed in time is seen by a look that begins after that: it decides (worked). A store
 * that hangs has no such look. */
static void save_tick(void *arg)
{
    struct keeper *k = arg;
    uint64_t now = loop_now_ms(k->loop);
    bool hangs = k->working && now - k->moved_ms >= KEEPER_PATIENCE_MS;

    if (!save_open(k) || k->paused) /* told to stop: what it saves now is looked at in the end */
        return;
    timer_start(&k->save_tick, LOOK_EVERY_MS);
    if (now >= k->save_until_ms && (!k->asked || hangs))
        save_failed(k);
    k->changed(k->arg);
}

static void peek(void *arg)
{
    struct keeper *k = arg;

    k->peek_step = checkpoint_manifest_step(k->dir);
}

static void peek_begin(struct keeper *k);

static void peeked(void *arg)
{
    struct keeper *k = arg;

    k->peeking = false;
    if (k->abandoned) {
        (void)keeper_destroy(k);
        return;
    }
    if (k->save.number != k->peek_number) { /* of an older request */
        peek_begin(k);
        return;
    }
    k->peeked = true;
    k->save.from = k->peek_step + 1;
    if (k->newest.present && k->newest.step >= k->save.from)
        k->save.from = k->newest.step + 1;
    if (save_open(k))
        timer_start(&k->save_tick, 0);
}

/* Its folder is known. */
static void peek_begin(struct keeper *k)
{
    if (!save_open(k) || k->peeking || k->peeked || k->state != KEEPER_READY)
        return;
    k->peeking = true;
    k->peek_number = k->save.number;
    loop_work(k->loop, peek, peeked, k);
}

void keeper_save(struct keeper *k, int64_t number, uint64_t grace_ms)
{
    if (number <= k->save.number)
        return;
    k->save = (struct run_save){.present = true, .state = SAVE_ASKED, .number = number};
    k->save_grace_ms = grace_ms;
    k->save_until_ms = loop_now_ms(k->loop) + grace_ms;
    k->asked = k->peeked = false;
    if (k->state == KEEPER_FAILED || k->state == KEEPER_SETTLED)
        save_end(k, SAVE_FAILED, "RunEnded", "its program has ended");
    else
        timer_start(&k->save_tick, LOOK_EVERY_MS);
    peek_begin(k);
}

bool keeper_save_due(const struct keeper *k)
{
    return save_open(k) && k->peeked && !k->asked && !k->paused && !k->settling;
}

void keeper_save_asked(struct keeper *k)
{
    k->asked = true;
    k->save_until_ms = loop_now_ms(k->loop) + k->save_grace_ms;
    if (others_seal(k))
        save_end(k, SAVE_DONE, "", "");
}

const struct run_save *keeper_saved(const struct keeper *k)
{
    return &k->save;
}

/* ---- on the loop ---- */
static void worked(void *arg)
{
    struct keeper *k = arg;

    k->working = false;
    k->moved_ms = loop_now_ms(k->loop);
    if (k->preparing) {
        k->preparing = false;
        k->state = k->job_rc < 0 ? KEEPER_FAILED : KEEPER_READY;
        k->why = k->job_err;
        k->resume = k->job_found;
        if (k->sealer) {
            k->newest = *checkpoint_sealer_newest(k->sealer);
            str_copy(k->dir, sizeof k->dir, checkpoint_sealer_dir(k->sealer));
        }
        peek_begin(k);
        k->changed(k->arg);
    } else {
        bool said = k->unsealed.code != 0;
        struct checkpoint_sealed now = *checkpoint_sealer_newest(k->sealer);
        bool is_new = now.present && (!k->newest.present || now.step != k->newest.step);
        k->newest = now;
        k->unsealed = k->job_rc < 0 ? k->job_err : (struct err){0};
        if (k->job_rc < 0 && !said)
            log_err(LOG_WARN, "run.checkpoint_refused", &k->job_err);
        bool open = save_open(k);
        bool cut_new = k->job_cut.cut.present && k->job_cut.number != k->cut.number;
        k->cut = k->job_cut;
        save_look(k);
        if (is_new || cut_new || open != save_open(k))
            k->changed(k->arg);
    }
    timer_start(&k->tick, k->settling ? 0 : LOOK_EVERY_MS);
}

static void begin_work(struct keeper *k)
{
    k->working = true;
    k->moved_ms = k->look_ms = loop_now_ms(k->loop);
    k->job_err = (struct err){0};
    /* Is nobody left who could write? Of the other ranks that is not known here. */
    k->job_over = k->settling && !(k->cfg.shared && k->cfg.world > 1);
    k->job_known = k->known;
    k->regather = save_open(k) && save_sealed(k) && !save_cut(k);
    loop_work(k->loop, work, worked, k);
}

/* The only thing that a hanging store can be told by. */
static void watch_work(struct keeper *k)
{
    uint64_t bytes = atomic_load(&k->progress.bytes), now = loop_now_ms(k->loop);

    if (bytes != k->moved_bytes) {
        k->moved_bytes = bytes;
        k->moved_ms = now;
    }
    if ((k->settling || k->preparing) && now - k->moved_ms > KEEPER_PATIENCE_MS) {
        (void)err_set(&k->why, E_TIMEOUT, "the checkpoint store %.300s has not answered for %d s",
                      k->cfg.base, KEEPER_PATIENCE_MS / 1000);
        k->unsealed = k->why;
        k->stuck = true;
        k->state = k->preparing && !k->settling ? KEEPER_FAILED : KEEPER_SETTLED;
        k->changed(k->arg);
        return;
    }
    timer_start(&k->tick, 1000);
}

static void keeper_tick(void *arg)
{
    struct keeper *k = arg;

    if (k->stuck || k->state == KEEPER_SETTLED)
        return;
    if (k->working) {
        watch_work(k);
    } else if (k->settling && k->look_last && k->sealer && k->state == KEEPER_READY) {
        k->look_last = false;
        begin_work(k);
        watch_work(k);
    } else if (k->settling) {
        k->state = KEEPER_SETTLED;
        k->changed(k->arg);
    } else if (k->state == KEEPER_READY && k->sealer && !k->paused) {
        begin_work(k);
        watch_work(k);
    }
}

struct keeper *keeper_create(struct loop *l, const struct run_checkpoints *cfg,
                             void (*changed)(void *arg), void *arg)
{
    struct keeper *k = mem_new(struct keeper);

    k->loop = l;
    k->cfg = *cfg;
    k->changed = changed;
    k->arg = arg;
    timer_init(&k->tick, l, keeper_tick, k);
    timer_init(&k->save_tick, l, save_tick, k);
    k->preparing = true;
    begin_work(k);
    timer_start(&k->tick, 1000);
    return k;
}

void keeper_pause(struct keeper *k)
{
    k->paused = true;
}

void keeper_settle(struct keeper *k, bool look)
{
    if (k->settling)
        return;
    k->settling = true;
    k->look_last = look;
    if (!look)
        atomic_store(&k->progress.cancel, true);
    timer_start(&k->tick, 0);
}

struct keeper *keeper_destroy(struct keeper *k)
{
    if (!k)
        return NULL;
    timer_stop(&k->tick);
    timer_stop(&k->save_tick);
    k->abandoned = true;
    if (k->working || k->peeking) /* stuck: its thread still has it */
        return NULL;
    (void)checkpoint_sealer_destroy(k->sealer);
    mem_free(k);
    return NULL;
}

enum keeper_state keeper_state(const struct keeper *k)
{
    return k->state;
}
bool keeper_stuck(const struct keeper *k)
{
    return k->stuck;
}
const struct err *keeper_why(const struct keeper *k)
{
    return &k->why;
}
const struct err *keeper_unsealed(const struct keeper *k)
{
    return &k->unsealed;
}
const struct checkpoint_sealed *keeper_newest(const struct keeper *k)
{
    return &k->newest;
}
const struct checkpoint_gathered *keeper_cut(const struct keeper *k)
{
    return &k->cut;
}
void keeper_cut_known(struct keeper *k, int64_t number)
{
    if (number > k->known)
        k->known = number;
}
const char *keeper_dir(const struct keeper *k)
{
    return k->dir;
}
const char *keeper_resume(const struct keeper *k)
{
    return k->resume.dir;
}

/* Names that the shim tells itself, and those that are none of the program's business. */
static bool env_is_ours(const char *text)
{
    static const char *const names[] = {
        "HANSE_CHECKPOINT_DIR=", "HANSE_RESUME_DIR=", "HANSE_RESUME_RANKS=", RUN_STORE_ENV,
        "HANSE_FAILPOINT"}; /* of tests */

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(text, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

const char *const *keeper_env(const struct keeper *k, const struct runner_config *cfg,
                              struct arena *m)
{
    bool apart = cfg->tenant.uid != 0;
    size_t n = 0, out = 0;

    while (cfg->env[n])
        n++;
    const char **env = arena_array(m, const char *, n + 5);
    for (size_t i = 0; i < n; i++)
        if (!env_is_ours(cfg->env[i]))
            env[out++] = cfg->env[i];
    env[out++] = apart ? arena_printf(m, "HANSE_CHECKPOINT_DIR=%s/" TENANT_SAVE, cfg->dir)
                       : arena_printf(m, "HANSE_CHECKPOINT_DIR=%s", k->dir);
    if (k->cfg.shared)
        env[out++] = "HANSE_CHECKPOINT_LAYOUT=shared";
    if (*k->resume.dir) {
        env[out++] = apart ? arena_printf(m, "HANSE_RESUME_DIR=%s/" TENANT_RESUME, cfg->dir)
                           : arena_printf(m, "HANSE_RESUME_DIR=%s", k->resume.dir);
        env[out++] = arena_printf(m, "HANSE_RESUME_RANKS=%lld", (long long)k->resume.ranks);
    }
    return env;
}
