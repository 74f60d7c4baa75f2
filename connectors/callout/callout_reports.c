/* What runners leave behind with their server, which hands it on as it is. It may have been
 * written by their programs, so nothing is taken from it but what their tokens have signed; and a
 * report never ends a run: its server does, by a proof. */
#include "connectors/callout/callout_internal.h"

#include "api/base/log.h"
#include "connectors/report/report.h"

#include <string.h>

void callout_report_order(const struct callout *c, const struct run_order *o, struct arena *a,
                          struct callout_order *ret)
{
    const struct connector_env *e = &c->base.env;
    const uint32_t ranks = o->placement->n_assignments;
    const char **tokens = NULL;

    if (!c->reports || !e->keys || !e->keys->again)
        return;
    if (!ret->home && (!e->tokens || !e->tokens(e->arg, &o->key, ranks, a, &tokens)))
        return;
    ret->report = arena_new(a, struct callout_report);
    *ret->report = (struct callout_report){
        .version = REPORT_VERSION, .tokens = tokens, .n_tokens = tokens ? ranks : 0};
}

struct left { /* what the ranks of a run have signed */
    int64_t ranks; /* of the run; 0: none has left anything */
    int64_t ended, never, began; /* of them */
    bool searched, stopped, lease_lost;
    bool failed, why;           /* there is one that did; that says why nothing was started */
    struct run_report first;    /* that failed, or else that says why */
    struct run_checkpoint_report cut;
};

static bool is_failed(const struct run_report *r)
{
    return !r->never_started && (r->exit_code || r->term_signal || *r->reason);
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

static struct left left_read(const struct callout *c, const struct observation *o,
                             const struct callout_reported *left, struct run_workers *workers,
                             struct arena *a)
{
    struct left x = {.ranks = 0};
    uint32_t refused = 0, first = 0;
    struct err err, why = {0};
    char key[RUN_KEY_MAX];

    for (uint32_t i = 0; i < left->n_reports && i < LIMIT_GANG_MAX; i++) {
        struct report_line l;
        const char *text = left->reports[i];
        if (!*text)
            continue;
        if (report_line_read(text, strlen(text), &o->key, i, 0, c->base.env.keys, &l, &err) == 0) {
            rank_take(&x, &l);
            if (o->state == RUN_ENDED)
                worker_take(workers, i, &l.report, a);
        } else if (!refused++) {
            first = i;
            why = err;
        }
    }
    run_key_print(&o->key, key);
    if (refused)
        log_event(LOG_WARN, "callout.report_refused",
                  LOG_FIELDS({"key", log_str(key)}, {"ranks", log_u64(refused)},
                             {"first", log_u64(first)}, {"why", log_str(why.text)}));
    return x;
}

static void words_take(struct observation *o, const struct run_report *r)
{
    o->exit_code = r->exit_code;
    o->term_signal = r->term_signal;
    str_copy(o->reason, sizeof o->reason, home_reason_is_a_runners(r->reason) ? r->reason : "");
    str_copy(o->message, sizeof o->message, r->message);
}

/* Its server has proved that nothing of it is left. */
static void end_take(struct observation *o, const struct left *x)
{
    static const struct run_report well = {.step = RUN_STEP_ENDED};
    bool all = x->ended == x->ranks;

    if (all && x->never == x->ranks) {
        o->state = RUN_ABSENT;
        o->proof = PROOF_NEVER_STARTED;
        words_take(o, &x->first);
        o->exit_code = 0;
        return;
    }
    if (x->failed)
        words_take(o, &x->first);
    else if (all)
        words_take(o, x->why ? &x->first : &well);
    if (all && !x->searched && o->proof == PROOF_TREE_SEARCHED)
        o->proof = PROOF_TREE_GONE;
    o->stopped |= x->stopped;
    o->lease_lost |= x->lease_lost;
}

int callout_reports_take(const struct callout *c, struct observation *o,
                         const struct callout_reported *left, struct run_workers *workers,
                         struct arena *a, struct err *err)
{
    char key[RUN_KEY_MAX];

    if (!left || !left->n_reports || !c->base.env.keys)
        return 0;
    const struct left x = left_read(c, o, left, workers, a);
    if (!x.ranks)
        return 0;
    run_key_print(&o->key, key);
    if (o->state == RUN_ABSENT && x.began)
        return err_set(err, E_UNKNOWN,
                       "target %.100s calls %s absent, and a runner of it has signed that it began",
                       c->base.target, key);
    if (x.cut.present && callout_has_runners(c))
        o->checkpoint = x.cut;
    if (o->state == RUN_ENDED)
        end_take(o, &x);
    return 0;
}
