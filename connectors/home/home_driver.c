/* What a driver has to do with runners that call home, whatever kind of target starts them: what an
 * order brings them, and what they tell, put into what their target's server says of the run. That
 * a run has ended is that server's word; that nobody can tell any more may be ours. */
#include "connectors/home/home_internal.h"

#include "api/base/failpoint.h"
#include "connectors/ends.h"

#include <stdio.h>
#include <string.h>

/* ---- orders ---- */
static int order_check(const char *target, bool calls, const struct run_order *o, struct err *err)
{
    if (!calls && (o->saves || *o->resume_path))
        return err_field(err, E_NOTIMPL, "spec.checkpoint",
                         "target %.100s has no runners that call home "
                         "(spec.connection.runners), and keeps no checkpoints",
                         target);
    if (!calls && o->claims && !PLANTED("run.claims-dropped"))
        return err_field(err, E_UNAVAIL, "spec.connection.runners",
                         "it was decided to start it by runners that call home, and target %.100s "
                         "has none any more",
                         target);
    return 0;
}

static void option(struct home_brought *x, const char *name, const char *value)
{
    INV(x->n_options + 2 <= HOME_OPTIONS_MAX);
    x->options[x->n_options++] = name;
    if (value)
        x->options[x->n_options++] = value;
}

static void options_make(const struct run_order *o, struct arena *a, struct home_brought *ret)
{
    ret->options = arena_array(a, const char *, HOME_OPTIONS_MAX);
    ret->n_options = 0;
    if (!o->saves || !*o->checkpoint_dir)
        return;
    option(ret, "--checkpoint-dir", o->checkpoint_dir);
    option(ret, "--checkpoint-keep", arena_printf(a, "%lld", (long long)o->checkpoint_keep));
    if (*o->resume_path) {
        option(ret, "--resume", o->resume_path);
        option(ret, "--resume-digest", o->resume_digest);
    }
    if (o->reshard)
        option(ret, "--reshard", NULL);
    if (o->shared)
        option(ret, "--shared", NULL);
    if (*o->save_signal)
        option(ret, "--save-signal", o->save_signal);
}

int home_order_make(const struct connector_env *e, const char *target, bool calls,
                    const struct run_order *o, struct arena *a, struct home_brought *ret,
                    struct err *err)
{
    int rc = order_check(target, calls, o, err);

    if (rc < 0 || !calls)
        return rc;
    if (!e->home || !e->home(e->arg, &o->key, o->placement->n_assignments, a, &ret->way))
        return err_field(err, E_UNAVAIL, "spec.connection.runners",
                         "runners of target %.100s cannot call home: this hub has no CA to tell "
                         "them, or no address",
                         target);
    options_make(o, a, ret);
    return 1;
}

/* ---- which members there are ---- */
/* An order knows those of its own time; a run may outlive them all, or begin before all came. */
void home_session_welcome(const struct home_session *x, struct home_welcome w)
{
    const struct home_runs *h = x->run->home;
    const char *members[HOME_ADDRESSES_MAX];

    for (unsigned i = 0; i < h->n_members; i++)
        members[i] = h->members[i];
    w.members = members;
    w.n_members = h->n_members;
    wire_tell(x->stream, HOME_WELCOME, 0, home_welcome, &w);
}

static bool same(const struct home_runs *h, const char *const *addresses, size_t n)
{
    if (n != h->n_members)
        return false;
    for (size_t i = 0; i < n; i++)
        if (strcmp(addresses[i], h->members[i]) != 0)
            return false;
    return true;
}

void home_runs_members(struct home_runs *h, const char *const *addresses, size_t n)
{
    n = n < HOME_ADDRESSES_MAX ? n : HOME_ADDRESSES_MAX;
    if (!n || same(h, addresses, n))
        return;
    h->n_members = (unsigned)n;
    for (size_t i = 0; i < n; i++)
        str_copy(h->members[i], sizeof h->members[i], addresses[i]);
    list_for_each (it, &h->all) {
        const struct home_run *r = container_of(it, struct home_run, link);
        list_for_each (jt, &r->sessions) {
            const struct home_session *x = container_of(jt, struct home_session, link);
            if (x->stream) /* an older runner passes a second WELCOME over */
                home_session_welcome(x, (struct home_welcome){.node = ""});
        }
    }
}

/* ---- what they tell ---- */
uint64_t home_lapses_ms(const struct home_session *x)
{
    const struct run_report *p = &x->report;
    bool runs = p->step > RUN_STEP_STARTING && p->step != RUN_STEP_ENDED;

    runs = runs && !home_rank_over(x->run, x->rank);
    return !x->stream && runs && p->lease_ms > 0 ? x->heard_ms + (uint64_t)p->lease_ms : 0;
}

static bool failed(const struct run_report *p)
{
    return p->step == RUN_STEP_ENDED && (p->exit_code || p->term_signal || *p->reason);
}

static void fill_end(struct observation *o, const struct run_report *p)
{

    o->exit_code = p->exit_code;
    o->term_signal = p->term_signal;
    if (end_is_a_runners(p->reason))
        str_copy(o->reason, sizeof o->reason, p->reason);
    str_copy(o->message, sizeof o->message, p->message);
}

/* Whichever rank wrote the newest cut, or found it: each next one has gone on in all ranks. */
static void fill_checkpoint(const struct home_run *r, struct observation *o)
{
    list_for_each (it, &r->sessions) {
        const struct run_report *p = &container_of(it, struct home_session, link)->report;
        if (p->cut.present && (!o->checkpoint.present || p->cut.step > o->checkpoint.step))
            o->checkpoint = p->cut;
    }
}

/* Of the newest request: saved once all ranks say so, failed with the first that has. */
static void fill_save(const struct home_run *r, struct observation *o)
{
    const struct home_session *failed = NULL;
    int64_t number = r->save_number, done = 0;

    list_for_each (it, &r->sessions) {
        const struct run_save *s = &container_of(it, struct home_session, link)->report.save;
        number = s->number > number ? s->number : number; /* of before this member led */
    }
    o->save = (struct run_save){0};
    if (!number)
        return;
    list_for_each (it, &r->sessions) {
        const struct home_session *x = container_of(it, struct home_session, link);
        const struct run_save *s = &x->report.save;
        done += s->number == number && s->state == SAVE_DONE;
        if (s->number == number && s->state == SAVE_FAILED && (!failed || x->rank < failed->rank))
            failed = x;
    }
    o->save = (struct run_save){.present = true, .state = SAVE_ASKED, .number = number};
    if (failed) {
        o->save = failed->report.save;
        o->save.from = 0;
    } else if (done >= r->ranks) {
        o->save.state = SAVE_DONE;
    }
}

/* Its server still calls it running: a node that has lost its power is given up after a minute. By
 * then its runner has ended its program, or is no more: nobody can tell. */
static void fill_lapsed(const struct home_run *r, struct observation *o)
{
    uint64_t now = loop_now_ms(r->home->loop);

    if (o->state != RUN_RUNNING || PLANTED("home.silent-runs-on"))
        return;
    list_for_each (it, &r->sessions) {
        const struct home_session *x = container_of(it, struct home_session, link);
        uint64_t lapses = home_lapses_ms(x);
        if (!lapses || now < lapses)
            continue;
        o->state = RUN_UNKNOWN;
        (void)snprintf(o->message, sizeof o->message,
                       "the runner of its rank %lld is silent for longer than the lease that it "
                       "held: its node is lost, or its way to the hub",
                       (long long)x->rank);
        return;
    }
}

/* ---- who has not called ---- */
struct logged {
    int64_t ranks;
    uint64_t lease_ms; /* the longest that all its runners may hold; 0: none is known */
};

/* Returns whether the log has it alive; else ret is all zero. */
static bool log_look(const struct home_runs *h, const struct run_key *k, struct logged *ret)
{
    struct run_where at = {.lives = false};
    AUTO_ARENA a = arena_create(0);

    *ret = (struct logged){0};
    if (!h->env->where || !h->env->where(h->env->arg, k, a, &at) || !at.lives)
        return false;
    *ret = (struct logged){at.n, at.lease_ms};
    return true;
}

bool home_run_lives(const struct home_run *r)
{
    struct logged at;

    return log_look(r->home, &r->key, &at);
}

struct home_run *home_run_await(struct home_runs *h, const struct run_key *k)
{
    struct home_run *r = home_run_find(h, k);
    struct logged at;

    if (r || !log_look(h, k, &at) || !at.lease_ms)
        return r;
    return home_run_make(h, k, at.ranks);
}

/* Nobody has heard anything of a rank, neither from it nor that it is over. */
static bool one_unheard(const struct home_run *r)
{
    int64_t n = r->n_over;

    list_for_each (it, &r->sessions)
        n += !home_rank_over(r, container_of(it, struct home_session, link)->rank);
    return n < r->ranks;
}

/* Silent since before this member led: what a runner held then the log knows. A renewal, and before
 * it a call, would have come here: by now whoever held it has ended its program, or is no more. */
static void fill_unheard(struct home_run *r, bool runs, struct observation *o)
{
    uint64_t now = loop_now_ms(r->home->loop), lapses;
    struct logged at;

    timer_stop(&r->look);
    if (!runs || o->state == RUN_UNKNOWN || !one_unheard(r) || PLANTED("home.silent-runs-on"))
        return;
    if (!log_look(r->home, &r->key, &at) || !at.lease_ms)
        return;
    lapses = r->since_ms + at.lease_ms + at.lease_ms / 100;
    if (now < lapses) {
        timer_start(&r->look, lapses - now);
        return;
    }
    o->state = RUN_UNKNOWN;
    str_copy(o->message, sizeof o->message,
             "not all of its runners have called since this member of the hub leads, for longer "
             "than the lease that they held: a node of it is lost, or its way to the hub");
}

/* ---- all of it ---- */
/* Of how many ranks the programs have begun. Those that are over have, but for a runner that told
 * otherwise. */
static int64_t begun(const struct home_run *r)
{
    int64_t n = r->n_over;

    list_for_each (it, &r->sessions) {
        const struct home_session *x = container_of(it, struct home_session, link);
        const struct run_report *p = &x->report;
        if (home_rank_over(r, x->rank))
            n -= p->never_started;
        else
            n += p->step > RUN_STEP_STARTING && !p->never_started;
    }
    return n;
}

/* What the target says of single ranks adds nothing to the lease: that all of them hold it is
 * theirs alone to say, for a run is taken to be over by it. */
static void fill(struct home_run *r, struct observation *o)
{
    const struct home_session *first = NULL; /* that failed */
    bool runs = o->state == RUN_RUNNING;     /* by its server's word */
    int64_t grant = -1, told = 0, held = 0;

    o->grant = 0;
    o->lease_held = false;
    fill_checkpoint(r, o);
    fill_save(r, o);
    list_for_each (it, &r->sessions) {
        const struct home_session *x = container_of(it, struct home_session, link);
        const struct run_report *p = &x->report;
        told++;
        held += p->lease_ms > 0;
        if (grant < 0 || p->grant < grant)
            grant = p->grant;
        if (o->state != RUN_ENDED)
            continue;
        o->lease_lost |= p->lease_lost;
        o->stopped |= p->stopped;
        if (failed(p) && (!first || x->rank < first->rank))
            first = x;
    }
    if (o->state == RUN_RUNNING && begun(r) < r->ranks)
        o->state = RUN_STARTING; /* its server sees the runners, who verify what it resumes from */
    if (told == r->ranks && grant > 0)
        o->grant = grant;
    o->lease_held = held == r->ranks;
    fill_lapsed(r, o);
    fill_unheard(r, runs, o);
    if (first)
        fill_end(o, &first->report);
}

void home_runs_fill(struct home_runs *h, struct observation *o)
{
    struct home_run *r =
        o->state == RUN_RUNNING ? home_run_await(h, &o->key) : home_run_find(h, &o->key);

    if (!r && o->state == RUN_RUNNING)
        o->state = RUN_STARTING; /* until a hub has taken them, runners start nothing */
    if (!r)
        return;
    if (!r->has_seen || r->seen.state != RUN_ENDED || o->state == RUN_ENDED)
        r->seen = *o; /* an answer to an older question does not undo an end */
    r->has_seen = true;
    fill(r, o);
}

bool home_runs_seen(struct home_runs *h, const struct run_key *k, struct observation *ret)
{
    struct home_run *r = home_run_find(h, k);

    if (!r || !r->has_seen)
        return false;
    *ret = r->seen;
    ret->seen_ms = loop_now_ms(h->loop);
    fill(r, ret);
    return true;
}

void home_runs_unsee(struct home_runs *h)
{
    list_for_each (it, &h->all)
        container_of(it, struct home_run, link)->has_seen = false;
}
