/* What all ranks of a run have signed, taken into what their target says of that run. The texts
 * may have been written by their programs, so nothing is taken from them but what the run's tokens
 * have signed; and a report never ends a run: its target does, by a proof. */
#include "connectors/report/report.h"

#include "api/base/log.h"
#include "connectors/ends.h"

#include <stdio.h>
#include <string.h>

struct left {                    /* what the ranks of a run have signed */
    int64_t ranks;               /* of the run; 0: none has left anything */
    int64_t ended, never, began; /* of them */
    int64_t silent;              /* one that left nothing and of which nothing is told; -1: none */
    bool searched, stopped, lease_lost;
    bool failed, why;        /* there is one that did; that says why nothing was started */
    struct run_report first; /* that failed, or else that says why */
    struct run_report late;  /* of which its target began nothing in time: its reason, or "" */
    struct run_checkpoint_report cut;
};

static bool is_failed(const struct run_report *r)
{
    return !r->never_started && (r->exit_code || r->term_signal || *r->reason);
}

/* For the target's fault, and not for what it was to resume from. */
static bool is_late(const struct run_report *r)
{
    const struct end_row *row = end_row(r->reason);

    return r->never_started && end_is_a_runners(r->reason) && row->began == END_NEVER &&
           row->fault == FAULT_TARGET && row->checkpoint == CHECKPOINT_KEPT;
}

static void rank_take(struct left *x, const struct report_line *l)
{
    const struct run_report *r = &l->report;

    x->ranks = l->of.ranks;
    x->began += !r->never_started && (r->step > RUN_STEP_STARTING || r->started_ms);
    if (r->cut.present && (!x->cut.present || r->cut.step > x->cut.step))
        x->cut = r->cut;
    if (r->step != RUN_STEP_ENDED)
        return;
    x->ended++;
    x->never += r->never_started;
    x->searched |= r->searched;
    x->stopped |= r->stopped;
    x->lease_lost |= r->lease_lost;
    if (is_late(r) && !*x->late.reason)
        x->late = *r;
    if (is_failed(r) && !x->failed) {
        x->failed = true;
        x->first = *r;
    } else if (r->never_started && !x->failed && !x->why && (*r->reason || *r->message)) {
        x->why = true;
        x->first = *r;
    }
}

/* What its server tells of a worker it may not know well: it was away when that ended. */
static void worker_take(struct run_workers *workers, int64_t rank, const struct run_report *r,
                        struct arena *a)
{
    if (r->step != RUN_STEP_ENDED || r->never_started)
        return;
    for (uint32_t i = 0; i < workers->n_workers; i++) {
        struct run_worker *w = &workers->workers[i];
        if (w->rank != rank)
            continue;
        w->exit_code = r->exit_code;
        w->term_signal = r->term_signal;
        w->reason = arena_strdup(a, r->reason);
    }
}

/* Nothing says that this rank ever began: its server says that there is no report of it, and tells
 * of it as a worker without a start. A worker that this answer says nothing of may have been told
 * earlier. */
static bool is_silent(const char *const *texts, uint32_t n, const struct run_workers *workers,
                      int64_t rank)
{
    if (rank < n && (!texts[rank] || *texts[rank]))
        return false;
    for (uint32_t i = 0; i < workers->n_workers; i++)
        if (workers->workers[i].rank == rank)
            return !workers->workers[i].started_ms && !workers->workers[i].ended_ms;
    return false;
}

static struct left left_read(const struct report_reader *from, const char *const *texts, uint32_t n,
                             const struct observation *o, struct run_workers *workers,
                             struct arena *a)
{
    struct left x = {.silent = -1};
    uint32_t refused = 0, first = 0;
    struct err err, why = {0};
    char key[RUN_KEY_MAX];

    for (uint32_t i = 0; i < n && i < LIMIT_GANG_MAX; i++) {
        struct report_line l;
        const char *text = texts[i];
        if (!text || !*text)
            continue;
        if (report_line_read(text, strlen(text), &o->key, i, 0, from->keys, &l, &err) == 0) {
            rank_take(&x, &l);
            if (o->state == RUN_ENDED)
                worker_take(workers, i, &l.report, a);
        } else if (!refused++) {
            first = i;
            why = err;
        }
    }
    for (int64_t i = 0; i < x.ranks && x.silent < 0; i++)
        if (is_silent(texts, n, workers, i))
            x.silent = i;
    run_key_print(&o->key, key);
    if (refused)
        log_event(LOG_WARN, "report.refused",
                  LOG_FIELDS({"target", log_str(from->target)}, {"key", log_str(key)},
                             {"ranks", log_u64(refused)}, {"first", log_u64(first)},
                             {"why", log_str(why.text)}));
    return x;
}

static void words_take(struct observation *o, const struct run_report *r)
{
    o->exit_code = r->exit_code;
    o->term_signal = r->term_signal;
    str_copy(o->reason, sizeof o->reason, end_is_a_runners(r->reason) ? r->reason : "");
    str_copy(o->message, sizeof o->message, r->message);
}

/* Its server has proved that nothing of it is left. */
static void end_take(struct observation *o, const struct left *x)
{
    static const struct run_report well = {.step = RUN_STEP_ENDED};
    bool all = x->ended == x->ranks;

    if (all && x->never == x->ranks) {
        o->state = RUN_ABSENT;
        o->left_proof = o->proof;
        o->proof = PROOF_NEVER_STARTED;
        words_take(o, &x->first);
        o->exit_code = 0;
        return;
    }
    if (*x->late.reason) { /* the others could not do without it, whatever became of them */
        words_take(o, &x->late);
        str_copy(o->reason, sizeof o->reason, end_text(END_START_FAILED));
        (void)snprintf(o->message, sizeof o->message,
                       "a rank of it was never started (%.64s): %.400s", x->late.reason,
                       x->late.message);
    } else if (x->failed) {
        words_take(o, &x->first);
    } else if (all) {
        words_take(o, x->why ? &x->first : &well);
    } else if (x->ended && x->silent >= 0 && !o->exit_code && !o->term_signal && !*o->reason) {
        str_copy(o->reason, sizeof o->reason, end_text(END_START_FAILED));
        (void)snprintf(o->message, sizeof o->message,
                       "rank %lld of %lld left no report, and nothing else tells that it ever "
                       "began: its gang has not done its work",
                       (long long)x->silent, (long long)x->ranks);
    }
    if (all && !x->searched && o->proof == PROOF_TREE_SEARCHED)
        o->proof = PROOF_TREE_GONE;
    o->stopped |= x->stopped;
    o->lease_lost |= x->lease_lost;
}

int report_left_take(const struct report_reader *from, const char *const *texts, uint32_t n,
                     struct observation *o, struct run_workers *workers, struct arena *a,
                     struct err *err)
{
    char key[RUN_KEY_MAX];

    if (!n || !from->keys)
        return 0;
    const struct left x = left_read(from, texts, n, o, workers, a);
    if (!x.ranks)
        return 0;
    run_key_print(&o->key, key);
    if (o->state == RUN_ABSENT && x.began)
        return err_set(err, E_UNKNOWN,
                       "target %.100s calls %s absent, and a runner of it has signed that it began",
                       from->target, key);
    if (x.cut.present && from->checkpoints)
        o->checkpoint = x.cut;
    if (o->state == RUN_ENDED)
        end_take(o, &x);
    return 0;
}
