/* Checkpoints of a run, as the agent sees them: the shim of every rank seals its own; here the
 * seals of all ranks become cuts, the newest cut is reported, and old ones are removed. A run has
 * not ended before its last seals have been looked at. This file must never wait for a store on the
 * loop. */
#include "connectors/agent/node/agent_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SETTLE_MAX_MS 60000 /* a store that hangs must not hide that the run has ended */
#define KNOWN_AFTER_MS 500  /* told, received, and proposed to the log */
#define CUT_FILE "cut.json"
#define CUT_FILE_MAX (1u << 20)
#define LOOK_EVERY_MS 500ul
#define GATHER_MAX 4 /* cuts that one look makes */

struct run_cuts {
    struct checkpoint_seals *seals; /* by rank */
    int64_t *last;                  /* steps by rank of the newest cut; NULL = none */
    struct run_checkpoint_report newest;
    int64_t number, known; /* of the newest cut; of the newest that the server is known to have */
    int64_t told;          /* number that was told last, and when */
    uint64_t told_ms;
    int64_t hello;             /* number in this session's HELLO */
    bool working, looked_last; /* looked_last: all have ended, and there is no further cut */
    bool rescued;              /* what killed runners left unsealed has been looked at */
    struct timer patience;
    struct timer save_late; /* all ranks have saved for a request, and no cut has all of that */
    int64_t late_number;    /* that request is given up; 0: none */
    bool due, failed;    /* of a gang of several agents: the store is to be looked at; not yet */
    struct timer looks;  /* then again */
};
struct cut_job { /* owned by itself; the run is found again by its key */
    struct store_job job;
    struct run_key key;
    char base[CHECKPOINT_PATH_MAX], resume[CHECKPOINT_PATH_MAX];
    struct arena *arena;
    const char *const *env;
    const char *roots;
    struct checkpoint_cut cut;
    struct checkpoint_retain retain;
    int64_t *floor, number; /* floor: the steps of the cut, by part; number 0: there is none */
    struct run_checkpoint_report report;
    struct checkpoint_gather gather; /* world 0: it is none of these */
    bool over, wrote; /* over: of these ranks nothing more will come; wrote: it is a new one */
    int rc;
    struct err err;
};

/* Of this agent's workers, the first so many seal. Of ranks that share a folder the first does for
 * all, who may be elsewhere. */
static unsigned n_sealing(const struct run *r)
{
    return !r->order->shared ? r->n_workers : r->workers[0].rank == 0;
}

/* Parts that a cut has. */
static unsigned n_parts(const struct run *r)
{
    return r->order->shared ? 1 : order_world(r->order);
}

static bool all_ended(const struct run *r)
{
    for (unsigned i = 0; i < r->n_workers; i++)
        if (r->workers[i].state != WS_ENDED)
            return false;
    return true;
}

/* Each rank says: what I have written is what I start again from. */
static bool all_saved(const struct run *r)
{
    for (unsigned i = 0; i < r->n_workers; i++) {
        const struct run_report *p = &r->workers[i].report;
        bool done = p->exit_code == 0 && !p->term_signal;
        if (p->step != RUN_STEP_ENDED || p->never_started ||
            (!done && !end_says_saved(p->exit_code, p->term_signal, p->reason)))
            return false;
    }
    return true;
}

/* ---- one cut: on the thread pool ---- */
static void cut_work(struct store_job *job)
{
    struct cut_job *j = container_of(job, struct cut_job, job);
    struct checkpoint_store at = {.base = j->base, .env = j->env, .roots = j->roots};

    j->wrote = true;
    j->rc = checkpoint_cut_write(&at, &j->cut, CHECKPOINT_AFTER_ANY, j->report.path, &j->number,
                                 j->report.digest, &j->err);
}

/* Apart, and after the cut is told: removing large files takes its time. */
static void retain_work(struct store_job *job)
{
    struct cut_job *j = container_of(job, struct cut_job, job);

    j->rc = checkpoint_retain(&j->retain, &j->err);
}

static void cut_free(struct cut_job *j)
{
    store_env_wipe(j->env);
    (void)arena_destroy(j->arena);
    mem_free(j);
}

static void retain_done(struct store_job *job)
{
    struct cut_job *j = container_of(job, struct cut_job, job);

    if (j->rc < 0)
        log_err(LOG_WARN, "agent.checkpoint_retention", &j->err);
    cut_free(j);
}

static void cut_record(struct run *r)
{
    const struct run_cuts *c = r->cuts;
    char path[AGENT_PATH_MAX + 16];
    struct err err;
    const struct cut_record record = {.newest = c->newest,
                                      .number = c->number,
                                      .known = c->known,
                                      .steps = c->last,
                                      .n_steps = n_sealing(r)};
    AUTO_BUF text;

    buf_init(&text, CUT_FILE_MAX);
    (void)snprintf(path, sizeof path, "%s/" CUT_FILE, r->dir);
    if (body_print_json(&schema_cut_record, &record, &text, &err) < 0 ||
        file_write(r->agent->loop, path, text.p, text.n, 0600, &err) < 0)
        log_err(LOG_WARN, "agent.cut_record", &err);
}

static void cut_taken(struct run *r, struct cut_job *j)
{
    struct run_cuts *c = r->cuts;
    struct observation o;
    char key[RUN_KEY_MAX];

    if (!c->last)
        c->last = mem_alloc(sizeof *c->last * n_sealing(r));
    for (unsigned i = 0; i < n_sealing(r); i++)
        c->last[i] = j->floor[r->workers[i].rank];
    c->newest = j->report;
    c->number = j->number;
    run_key_print(&r->key, key);
    log_event(LOG_INFO, "agent.checkpoint",
              LOG_FIELDS({"key", log_str(key)}, {"step", log_i64(c->newest.step)},
                         {"bytes", log_i64(c->newest.bytes)}));
    if (all_ended(r)) /* the end is told with it */
        return;
    run_observe(r, &o);
    run_tell(r, &o);
}

/* How long writing took, the store does not say: of these ranks their shims do. */
static void gather_timed(const struct run *r, struct cut_job *j)
{
    for (unsigned i = 0; i < n_sealing(r); i++) {
        const struct checkpoint_seals *s = &r->cuts->seals[i];
        for (unsigned k = 0; k < s->n; k++)
            if (s->seal[k].step == j->floor[r->workers[i].rank] &&
                s->seal[k].writeTime > j->report.writeTime)
                j->report.writeTime = s->seal[k].writeTime;
    }
}

static void cut_done(struct store_job *job)
{
    struct cut_job *j = container_of(job, struct cut_job, job);
    struct agent *a = job->agent;
    struct run *r = a ? run_by_key(a, &j->key) : NULL;
    bool recorded = false;

    if (r && r->cuts) {
        r->cuts->working = false;
        if (j->rc < 0) {
            log_err(LOG_WARN, "agent.checkpoint_failed", &j->err);
            r->cuts->looked_last = !order_spans(r->order) && all_ended(r); /* it would fail again */
            if ((r->cuts->failed = order_spans(r->order))) /* who else could may have ended */
                timer_start(&r->cuts->looks, LOOK_EVERY_MS * 4);
        } else if (!r->cuts->looked_last && j->number > r->cuts->number) {
            gather_timed(r, j);
            cut_taken(r, j);
            recorded = true;
        } /* else it came too late: the end is told */
        r->cuts->looked_last |= order_spans(r->order) && j->over && j->rc >= 0;
        run_changed(r);
        if (recorded)
            cut_record(r); /* after it was told: a restarted agent would only make it anew */
    }
    if (!a || j->rc < 0 || !j->wrote) {
        cut_free(j);
        return;
    }
    if (j->gather.world) /* another agent may have told it */
        j->retain.told = j->number;
    j->job.kind = STORE_JOB_RETAIN;
    j->job.work = retain_work;
    j->job.done = retain_done;
    store_job_begin(a, &j->job);
}

/* A job on the thread pool may outlive the agent. */
static const char *roots_of(const struct run *r, struct arena *m)
{
    const char *roots = store_roots_of(r->agent, r->order->checkpoint_base);

    return roots ? arena_strdup(m, roots) : NULL;
}

/* What is the same of both kinds of jobs, but for their work. */
static void job_begin(struct run *r, struct cut_job *j, void (*work)(struct store_job *job))
{
    const struct wire_order *o = r->order;

    j->job.kind = STORE_JOB_CUT;
    j->job.work = work;
    j->job.done = cut_done;
    j->key = r->key;
    j->over = all_ended(r);
    str_copy(j->base, sizeof j->base, o->checkpoint_base);
    str_copy(j->resume, sizeof j->resume, o->resume_path);
    j->env = store_env(r->agent, j->base, o->env, o->n_env, j->arena);
    j->roots = roots_of(r, j->arena);
    j->retain = (struct checkpoint_retain){
        .at = {.base = j->base, .env = j->env, .roots = j->roots},
        .epoch = r->key.epoch,
        .keep = o->checkpoint_keep,
        .known = r->cuts->known,
        .told = r->cuts->told,
        .resume_path = j->resume,
        .floor = j->floor,
        .n_ranks = n_parts(r)};
    r->cuts->working = true;
    store_job_begin(r->agent, &j->job);
}

static void cut_begin(struct run *r, struct cut_job *j, const struct checkpoint_times *times)
{
    j->cut.workload = j->key.uid;
    j->cut.epoch = r->key.epoch;
    j->cut.n_ranks = n_sealing(r);
    j->cut.workers = r->order->shared ? r->n_workers : 0;
    j->cut.step = INT64_MAX;
    j->floor = arena_array(j->arena, int64_t, j->cut.n_ranks);
    for (size_t i = 0; i < j->cut.n_ranks; i++) {
        j->floor[i] = j->cut.ranks[i].step;
        j->cut.bytes += j->cut.ranks[i].bytes;
        if (j->cut.ranks[i].step < j->cut.step)
            j->cut.step = j->cut.ranks[i].step;
    }
    j->report = (struct run_checkpoint_report){.present = true,
                                               .step = j->cut.step,
                                               .bytes = j->cut.bytes,
                                               .writeTime = times->writeTime,
                                               .writtenAt = times->writtenAt,
                                               .ranks = r->n_workers};
    job_begin(r, j, cut_work);
}

/* ---- a gang whose other ranks are with other agents ---- */
/* All that is better, one cut after the other, and the last of them is told. */
static void gather_work(struct store_job *job)
{
    struct cut_job *j = container_of(job, struct cut_job, job);
    struct checkpoint_gathered got = {.wrote = true};

    j->gather.at.env = j->env;
    j->gather.at.roots = j->roots;
    for (int i = 0; got.wrote && i < (j->over ? GATHER_MAX : 1) && j->rc == 0; i++) {
        j->rc = checkpoint_cut_gather(&j->gather, false, &got, &j->err);
        j->wrote |= got.wrote;
        if (got.cut.present && got.number > j->number) {
            j->number = got.number;
            j->report = got.cut;
        }
    }
}

static void gather_begin(struct run *r)
{
    struct cut_job *j = mem_new(struct cut_job);

    j->arena = arena_create(0);
    j->floor = arena_array(j->arena, int64_t, n_parts(r));
    j->gather = (struct checkpoint_gather){.at = {.base = j->base},
                                           .workload = j->key.uid,
                                           .resume_path = j->resume,
                                           .epoch = r->key.epoch,
                                           .world = order_world(r->order),
                                           .rank = r->workers[0].rank,
                                           .shared = r->order->shared,
                                           .told = true,
                                           .known = r->cuts->known,
                                           .apart = true,
                                           .steps = j->floor};
    r->cuts->due = false;
    job_begin(r, j, gather_work);
}

static void looks_again(void *arg)
{
    ((struct run *)arg)->cuts->due = true;
    ((struct run *)arg)->cuts->failed = false;
    run_changed(arg);
}

/* What one of these ranks has sealed may be the last that a cut lacked; what it still lacks, who
 * has that finds. At their end all is looked at once more. */
static void gather_consider(struct run *r, bool over)
{
    struct run_cuts *c = r->cuts;

    if (!n_sealing(r)) {
        c->looked_last = over;
        return;
    }
    if (over && !timer_active(&c->patience))
        timer_start(&c->patience, SETTLE_MAX_MS);
    if ((c->due || over) && !c->failed)
        gather_begin(r);
}

/* ---- what a killed runner left ---- */
static bool was_killed(const struct worker *w)
{
    return w->report.unsealed || end_row(w->report.reason)->checkpoint == CHECKPOINT_UNSEALED;
}

/* Once, when all have ended. True: it is under way. */
static bool rescue(struct run *r)
{
    AUTO_ARENA m = arena_create(0);
    bool *killed = arena_array(m, bool, r->n_workers), any = false;

    for (unsigned i = 0; i < n_sealing(r); i++)
        any |= killed[i] = was_killed(&r->workers[i]);
    if (r->cuts->rescued || !any)
        return false;
    r->cuts->rescued = r->cuts->working = true;
    rescue_begin(r, killed, n_sealing(r));
    return true;
}

void checkpoints_rescued(struct run *r, const struct checkpoint_sealed *sealed)
{
    if (!r->cuts)
        return;
    r->cuts->working = false;
    for (unsigned i = 0; i < n_sealing(r) && !r->cuts->looked_last; i++)
        if (sealed[i].present)
            (void)checkpoint_seals_add(&r->cuts->seals[i], &sealed[i]);
    run_changed(r);
}

/* ---- a request to save and go on ---- */
#define SAVE_CUT_MS 10000 /* beside the grace, which ranks that save one after the other may need */

int64_t save_mark(const struct run_save *s)
{
    return s->number * 4 + (int64_t)s->state;
}

static int64_t save_number(const struct run *r)
{
    int64_t number = r->save_number; /* a restarted agent hears it from the shims */

    for (unsigned i = 0; i < r->n_workers; i++)
        if (r->workers[i].report.save.number > number)
            number = r->workers[i].report.save.number;
    return number;
}

/* Number of ranks that have saved for this request, of those that seal; ret_failed: the first of
 * them that could not. */
static unsigned save_count(const struct run *r, int64_t number, const struct worker **ret_failed)
{
    unsigned done = 0;

    *ret_failed = NULL;
    for (unsigned i = 0; i < n_sealing(r); i++) {
        const struct run_save *s = &r->workers[i].report.save;
        done += s->number == number && s->state == SAVE_DONE;
        if (s->number == number && s->state == SAVE_FAILED && !*ret_failed)
            *ret_failed = &r->workers[i];
    }
    return done;
}

static bool save_is_cut(const struct run *r)
{
    for (unsigned i = 0; i < n_sealing(r); i++)
        if (!r->cuts->last || r->cuts->last[i] < r->workers[i].report.save.from)
            return false;
    return true;
}

void checkpoints_save(const struct run *r, struct run_save *ret)
{
    const struct worker *failed;
    int64_t number = r->cuts ? save_number(r) : 0;

    if (!number)
        return;
    unsigned done = save_count(r, number, &failed);
    *ret = (struct run_save){.present = true, .state = SAVE_ASKED, .number = number};
    if (failed) {
        ret->state = SAVE_FAILED;
        str_copy(ret->reason, sizeof ret->reason, failed->report.save.reason);
        (void)snprintf(ret->message, sizeof ret->message, "rank %" PRId64 ": %.180s", failed->rank,
                       failed->report.save.message);
    } else if (done == n_sealing(r) && save_is_cut(r)) {
        ret->state = SAVE_DONE;
    } else if (r->cuts->late_number == number) {
        ret->state = SAVE_FAILED;
        str_copy(ret->reason, sizeof ret->reason, "RanksDiffer");
        str_copy(ret->message, sizeof ret->message,
                 "each rank has saved, but not all of them at one step");
    }
}

static void save_late(void *arg)
{
    struct run *r = arg;

    r->cuts->late_number = save_number(r);
    run_changed(r);
}

static void save_watch(struct run *r)
{
    const struct worker *failed;
    int64_t number = save_number(r);
    bool waits = number && number != r->cuts->late_number && !save_is_cut(r) &&
                 save_count(r, number, &failed) == n_sealing(r);

    if (!waits)
        timer_stop(&r->cuts->save_late);
    else if (!timer_active(&r->cuts->save_late))
        timer_start(&r->cuts->save_late, r->save_grace_ms + SAVE_CUT_MS);
    if (waits && order_spans(r->order) && !timer_active(&r->cuts->looks))
        timer_start(&r->cuts->looks, LOOK_EVERY_MS); /* the others' agents may be the last */
}

/* ---- the run ---- */
static void settle_late(void *arg)
{
    struct run *r = arg;

    if (!r->ended_seq)
        log_event(LOG_WARN, "agent.checkpoint_late",
                  LOG_FIELDS({"store", log_str(r->order->checkpoint_base)}));
    r->cuts->looked_last = true;
    run_changed(r);
}

void checkpoints_init(struct run *r)
{
    if (!*r->order->checkpoint_base)
        return;
    r->cuts = mem_new(struct run_cuts);
    r->cuts->seals = mem_zalloc(sizeof *r->cuts->seals * r->n_workers);
    timer_init(&r->cuts->patience, r->agent->loop, settle_late, r);
    timer_init(&r->cuts->save_late, r->agent->loop, save_late, r);
    timer_init(&r->cuts->looks, r->agent->loop, looks_again, r);
}

void checkpoints_fini(struct run *r)
{
    if (!r->cuts)
        return;
    timer_stop(&r->cuts->patience);
    timer_stop(&r->cuts->save_late);
    timer_stop(&r->cuts->looks);
    mem_free(r->cuts->seals);
    mem_free(r->cuts->last);
    mem_free(r->cuts);
    r->cuts = NULL;
}

void checkpoints_load(struct run *r)
{
    char path[AGENT_PATH_MAX + 16];
    struct run_cuts *c = r->cuts;
    struct cut_record *j = NULL;
    AUTO_ARENA m = arena_create(0);
    AUTO_BUF b;

    buf_init(&b, CUT_FILE_MAX);
    (void)snprintf(path, sizeof path, "%s/" CUT_FILE, r->dir);
    if (!c || file_read(r->agent->loop, path, CUT_FILE_MAX, &b, NULL) < 0 ||
        wire_read(cut_record, slice_make(b.p, b.n), m, &j, NULL) < 0)
        return;
    checkpoint_settle(&j->newest);
    if (!j->newest.present || j->n_steps != n_sealing(r))
        return;
    c->newest = j->newest;
    c->last = mem_alloc(sizeof *c->last * j->n_steps);
    memcpy(c->last, j->steps, sizeof *c->last * j->n_steps);
    c->number = j->number;
    c->known = j->known;
    c->told = c->number; /* it may have been */
}

void checkpoints_reported(struct worker *w)
{
    struct run_cuts *c = w->run->cuts;

    if (c && worker_at(w) < n_sealing(w->run) &&
        checkpoint_seals_add(&c->seals[worker_at(w)], &w->report.checkpoint))
        c->due = true;
}

void checkpoints_consider(struct run *r)
{
    struct run_cuts *c = r->cuts;
    struct checkpoint_times times;

    if (c)
        save_watch(r);
    if (!c || c->working || c->looked_last)
        return;
    bool over = all_ended(r);
    if (over && rescue(r)) {
        if (!timer_active(&c->patience))
            timer_start(&c->patience, SETTLE_MAX_MS);
        return;
    }
    if (order_spans(r->order)) {
        gather_consider(r, over);
        return;
    }
    struct cut_job *j = mem_new(struct cut_job);
    j->arena = arena_create(0);
    j->cut.ranks = arena_array(j->arena, struct checkpoint_rank, n_sealing(r));
    if (checkpoint_cut_choose(c->seals, n_sealing(r), c->last, over && all_saved(r), j->cut.ranks,
                              &times)) {
        cut_begin(r, j, &times);
        if (over && !timer_active(&c->patience))
            timer_start(&c->patience, SETTLE_MAX_MS);
        return;
    }
    cut_free(j);
    c->looked_last = over;
}

bool checkpoints_settled(const struct run *r)
{
    return !r->cuts || r->cuts->looked_last;
}

void checkpoints_observe(const struct run *r, struct run_checkpoint_report *ret)
{
    if (r->cuts)
        *ret = r->cuts->newest;
}

void checkpoints_told(struct run *r)
{
    struct run_cuts *c = r->cuts;

    if (!c || !c->number || (c->told == c->number && c->told_ms))
        return;
    c->told = c->number;
    c->told_ms = loop_now_ms(r->agent->loop);
}

void checkpoints_hello(struct run *r)
{
    if (r->cuts)
        r->cuts->hello = r->cuts->number;
}

bool checkpoints_welcome(struct run *r)
{
    struct run_cuts *c = r->cuts;

    if (!c || !c->hello)
        return c && c->number;
    c->told = c->hello;
    c->told_ms = loop_now_ms(r->agent->loop);
    return c->number != c->hello;
}

/* A renewal counts from a beat of ours that had come before it was granted: what we said earlier
 * had come as well. */
void checkpoints_renewed(struct run *r)
{
    struct run_cuts *c = r->cuts;

    if (c && c->told > c->known && c->told_ms &&
        r->agent->renew_from_ms > c->told_ms + KNOWN_AFTER_MS)
        c->known = c->told;
}
