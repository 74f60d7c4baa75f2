/* The runs of this agent: accepted durably before anything starts, found again after a restart,
 * kept for a while after their end. Invariant: a key that was refused, or that has ended, never
 * starts (again). */
#include "api/base/failpoint.h"
#include "connectors/agent/node/agent_internal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define ORPHANS_EVERY_MS 250

struct run *run_by_key(struct agent *a, const struct run_key *k)
{
    list_for_each (it, &a->runs) {
        struct run *r = container_of(it, struct run, link);
        if (run_key_same(&r->key, k))
            return r;
    }
    return NULL;
}

struct run *run_newest_try(struct agent *a, const struct run_key *k)
{
    struct run *best = NULL;

    list_for_each (it, &a->runs) {
        struct run *r = container_of(it, struct run, link);
        if (r->key.epoch == k->epoch && run_key_same_workload(&r->key, k) &&
            (!best || r->key.try_ > best->key.try_))
            best = r;
    }
    return best;
}

static enum run_state run_state(const struct run *r)
{
    unsigned ended = 0, up = 0, never = 0;

    if (r->ended_seq) /* what comes late of a save or a cut changes nothing of it */
        return r->told;
    for (unsigned i = 0; i < r->n_workers; i++) {
        ended += r->workers[i].state == WS_ENDED;
        never += r->workers[i].report.never_started;
        up += r->workers[i].report.step >= RUN_STEP_RUNNING;
    }
    /* What it resumes from does not hold, or it was stopped before: no process ever was. */
    if (ended == r->n_workers && never == r->n_workers)
        return RUN_ABSENT;
    if (ended == r->n_workers && checkpoints_settled(r) && logs_settled(r))
        return RUN_ENDED;
    return up == r->n_workers ? RUN_RUNNING : RUN_STARTING;
}

static bool run_is_over(const struct run *r)
{
    enum run_state s = run_state(r);

    return s == RUN_ENDED || s == RUN_ABSENT;
}

/* Its program runs, or did: it may even have ended before an earlier agent had told all ranks. */
static bool worker_was_let_go(const struct worker *w)
{
    return w->report.step >= RUN_STEP_RUNNING && !w->report.never_started;
}

/* A gang that resumes starts only when all of it can. */
void run_go(struct run *r)
{
    for (unsigned i = 0; i < r->n_workers; i++)
        if (!r->workers[i].report.ready && !worker_was_let_go(&r->workers[i]))
            return;
    for (unsigned i = 0; i < r->n_workers && !r->stop_signo; i++)
        if (r->workers[i].report.ready)
            worker_go(&r->workers[i]);
}

static bool report_failed(const struct run_report *p)
{
    return p->step == RUN_STEP_ENDED &&
           (p->exit_code || p->term_signal || p->lease_lost || p->never_started);
}

/* The worker that tells why: the first that failed on its own, else the first that failed. */
static const struct run_report *run_cause(const struct run *r)
{
    const struct run_report *any = NULL;

    for (unsigned i = 0; i < r->n_workers; i++) {
        const struct run_report *p = &r->workers[i].report;
        if (!report_failed(p))
            continue;
        if (!p->stopped)
            return p;
        any = any ? any : p;
    }
    return any;
}

/* The lease that all runners of it hold; 0 as long as one has not told. */
static int64_t run_grant(const struct run *r)
{
    int64_t least = 0;

    for (unsigned i = 0; i < r->n_workers; i++) {
        const struct run_report *p = &r->workers[i].report;
        if (p->step == RUN_STEP_ENDED)
            continue;
        if (!p->grant)
            return 0;
        least = !least || p->grant < least ? p->grant : least;
    }
    return least;
}

void run_observe(const struct run *r, struct observation *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->key = r->key;
    ret->state = run_state(r);
    ret->seen_ms = loop_now_ms(r->agent->loop);
    ret->grant = run_grant(r);
    ret->lease_held = run_lease_held(r);
    checkpoints_observe(r, &ret->checkpoint);
    checkpoints_save(r, &ret->save);
    if (!run_is_over(r))
        return;
    const struct run_report *cause = run_cause(r);
    ret->proof = ret->state == RUN_ENDED ? PROOF_TREE_GONE : PROOF_NEVER_STARTED;
    for (unsigned i = 0; i < r->n_workers && ret->state == RUN_ENDED; i++)
        if (r->workers[i].report.searched) /* the weakest of them */
            ret->proof = PROOF_TREE_SEARCHED;
    for (unsigned i = 0; i < r->n_workers; i++) {
        ret->lease_lost = ret->lease_lost || r->workers[i].report.lease_lost;
        ret->stopped = ret->stopped || r->workers[i].report.stopped;
    }
    if (!cause)
        return;
    ret->exit_code = ret->state == RUN_ENDED ? cause->exit_code : 0;
    ret->term_signal = cause->term_signal;
    str_copy(ret->reason, sizeof ret->reason, cause->reason);
    str_copy(ret->message, sizeof ret->message, cause->message);
}

static void run_free(struct run *r)
{
    for (unsigned i = 0; i < r->n_workers; i++)
        worker_fini(&r->workers[i]);
    for (struct list *e; (e = list_pop(&r->waiters)) != NULL;)
        mem_free(container_of(e, struct waiter, link));
    list_remove(&r->link);
    checkpoints_fini(r);
    logs_fini(r);
    (void)arena_destroy(r->order_mem);
    mem_free(r->workers);
    mem_free(r);
}

void runs_free(struct agent *a)
{
    (void)!loop_signal(a->loop, SIGCHLD, NULL, NULL, NULL);
    timer_stop(&a->orphans);
    while (!list_empty(&a->runs))
        run_free(container_of(a->runs.next, struct run, link));
}

int run_forget(struct run *r, struct err *err)
{
    struct agent *a = r->agent;
    struct observation o;
    int rc;

    if (!run_is_over(r))
        return err_set(err, E_BUSY, "the run has not ended");
    run_observe(r, &o);
    struct book_hub hub = book_hub_of(a, run_cluster(r), r->order->state_rv);
    rc = book_write(&a->book, &r->key, &o, hub, err);
    heard_keep(a);
    if (rc == 0)
        rc = file_remove(a->loop, r->dir, err);
    if (rc < 0)
        return rc;
    run_free(r);
    return 0;
}

/* Counted, not kept by hand: a count that went wrong would stay so. */
unsigned runs_count(const struct agent *a, unsigned *ret_ended)
{
    unsigned n = 0, ended = 0;

    list_for_each (it, &a->runs) {
        n++;
        ended += container_of(it, struct run, link)->ended_seq != 0;
    }
    if (ret_ended)
        *ret_ended = ended;
    return n;
}

static void runs_prune(struct agent *a)
{
    unsigned ended;

    while (runs_count(a, &ended) && ended > AGENT_ENDED_KEPT) {
        struct run *oldest = NULL;
        struct err err;
        list_for_each (it, &a->runs) {
            struct run *r = container_of(it, struct run, link);
            bool sooner = oldest && r->final > oldest->final;
            bool as_soon = oldest && r->final == oldest->final;
            if (r->ended_seq &&
                (!oldest || sooner || (as_soon && r->ended_seq < oldest->ended_seq)))
                oldest = r;
        }
        if (!oldest || run_forget(oldest, &err) < 0)
            return;
    }
}

/* What is on disk, read anew: nothing else of an order is kept. */
static int order_read(struct slice text, struct arena **ret_mem, struct wire_order **ret,
                      struct err *err)
{
    struct arena *mem = arena_create(0);
    int rc = wire_read(wire_order, text, mem, ret, err);

    *ret_mem = rc < 0 ? arena_destroy(mem) : mem;
    return rc;
}

static int order_print(const struct wire_order *o, struct buf *out, struct err *err)
{
    buf_init(out, AGENT_ORDER_MAX);
    return body_print_json(&schema_wire_order, o, out, err);
}

int order_rewrite(struct run *r, struct err *err)
{
    char path[AGENT_PATH_MAX + 16];
    AUTO_BUF text = {0};
    int rc = order_print(r->order, &text, err);

    (void)snprintf(path, sizeof path, "%s/order.json", r->dir);
    return rc < 0 ? rc : file_write(r->agent->loop, path, text.p, text.n, 0600, err);
}

/* The environment may hold secrets, and is not needed any more. */
static void run_scrub(struct run *r)
{
    struct arena *mem = NULL;
    struct wire_order *bare = NULL;
    struct err err;
    AUTO_BUF text = {0};

    if (!logs_scrub(r->order) && !r->order->n_env)
        return;
    r->order->n_env = 0;
    if (order_rewrite(r, &err) < 0)
        log_err(LOG_WARN, "agent.scrub", &err);
    if (order_print(r->order, &text, &err) < 0 ||
        order_read(slice_make(text.p, text.n), &mem, &bare, &err) < 0) {
        log_err(LOG_WARN, "agent.scrub", &err);
        return;
    }
    (void)arena_destroy(r->order_mem);
    r->order_mem = mem;
    r->order = bare;
}

static void run_ended(struct run *r, const struct observation *o)
{
    struct agent *a = r->agent;
    char key[RUN_KEY_MAX];

    r->ended_seq = ++a->ended_seq;
    run_scrub(r);
    scratch_run_over(r);
    run_key_print(&r->key, key);
    if (!a->loading)
        log_event(LOG_INFO, "agent.run_ended",
                  LOG_FIELDS({"key", log_str(key)}, {"exit", log_i64(o->exit_code)},
                             {"signal", log_i64(o->term_signal)}, {"reason", log_str(o->reason)}));
    for (struct list *e; (e = list_pop(&r->waiters)) != NULL;) {
        struct waiter *w = container_of(e, struct waiter, link);
        session_answer(a, w->id, OUT_DONE, NULL, o);
        mem_free(w);
    }
    runs_prune(a); /* may free another run, never this one: it is the youngest */
}

void run_changed(struct run *r)
{
    struct observation o;

    if (r->ended_seq) /* a run ends once */
        return;
    for (unsigned i = 0; i < r->n_workers && !r->failed; i++)
        r->failed = report_failed(&r->workers[i].report);
    if (r->failed && !r->stop_signo) /* a gang lives together: the others would wait for ever */
        run_stop(r, SIGTERM, r->order->grace_ms);
    checkpoints_consider(r);
    logs_consider(r);
    workers_tell(r);
    run_observe(r, &o);
    bool grant = o.grant > r->told_grant;
    bool save = save_mark(&o.save) != r->told_save;
    if (o.state == r->told && !grant && !save)
        return;
    if (r->told == RUN_RUNNING && o.state == RUN_STARTING)
        return;
    r->told = o.state;
    r->told_save = save_mark(&o.save);
    if (grant)
        r->told_grant = o.grant;
    if (o.state == RUN_ENDED)
        FAILPOINT("agent.ended.before");
    run_tell(r, &o);
    if (o.state == RUN_ENDED || o.state == RUN_ABSENT)
        run_ended(r, &o);
}

void run_tell(struct run *r, const struct observation *o)
{
    workers_tell(r);
    if (r->agent->welcome)
        checkpoints_told(r);
    session_observed(r->agent, o);
}

void run_stop(struct run *r, int signo, uint64_t grace_ms)
{
    uint64_t now = loop_now_ms(r->agent->loop);

    if (r->stop_signo == signo && now < r->stop_at_ms && now + grace_ms >= r->stop_at_ms)
        return; /* the same again: who saves by now may take another signal for its end */
    r->stop_signo = signo;
    r->stop_at_ms = now + grace_ms;
    for (unsigned i = 0; i < r->n_workers; i++)
        worker_stop(&r->workers[i], signo, grace_ms);
}

int run_save(struct run *r, int64_t number, uint64_t grace_ms, struct err *err)
{
    if (!r->cuts || r->order->save_signo <= 0)
        return err_field(err, E_INVALID, "spec.checkpoint.saveSignal",
                         "its program was started without one, and may not wait for it: it takes "
                         "effect with the next start (hanse migrate)");
    if (r->stop_signo)
        return err_set(err, E_CONFLICT, "it was told to stop, and saves anyway");
    if (number > r->save_number && !r->ended_seq) {
        r->save_number = number;
        r->save_grace_ms = grace_ms;
    }
    for (unsigned i = 0; i < r->n_workers; i++)
        worker_save(&r->workers[i]);
    return 0;
}

/* ---- what comes to the agent as subreaper ---- */
/* Shim and guard were killed, or it escaped from `exec`. */
bool run_pid_is_known(int64_t pid, void *arg)
{
    struct agent *a = arg;

    if (streams_own(a->streams, pid))
        return true; /* the loop reaps it */
    list_for_each (it, &a->runs) {
        struct run *r = container_of(it, struct run, link);
        for (unsigned i = 0; i < r->n_workers; i++)
            if (worker_owns(&r->workers[i], pid))
                return true;
    }
    return false;
}

static void orphans_reap(void *arg)
{
    struct agent *a = arg;

    if (!a->cfg.os->ops->orphans_reap(a->cfg.os, run_pid_is_known, a))
        timer_start(&a->orphans, ORPHANS_EVERY_MS);
}

static void child_ended(void *arg)
{
    struct timer *t = &((struct agent *)arg)->orphans;

    if (!timer_active(t)) /* the loop takes its own first, also those it forgot */
        timer_start(t, ORPHANS_EVERY_MS);
}

int runs_adopt(struct agent *a, struct err *err)
{
    int rc = a->cfg.os->ops->adopt_orphans(a->cfg.os, err);

    timer_init(&a->orphans, a->loop, orphans_reap, a);
    return rc < 0 ? rc : loop_signal(a->loop, SIGCHLD, child_ended, a, err);
}

/* ---- accepting ---- */
/* May this key start? One epoch at a time: the older one must have been seen to end. */
static int key_check(struct agent *a, const struct wire_order *order, struct err *err)
{
    const struct run_key *k = &order->key;
    const struct book_hub from = {order->cluster, order->state_rv};
    unsigned ended, n = runs_count(a, &ended);

    if (book_refuses(&a->book, k))
        return err_set(err, E_STALE,
                       "this key, or a newer one of the workload, was given up on this target");
    if (book_admits(&a->book, from, err) < 0 || book_room(&a->book, n, err) < 0)
        return err ? err->code : E_STALE;
    list_for_each (it, &a->runs) {
        const struct run *r = container_of(it, struct run, link);
        if (!run_key_same_workload(&r->key, k))
            continue;
        if (r->key.epoch > k->epoch || (r->key.epoch == k->epoch && r->key.try_ > k->try_))
            return err_set(err, E_STALE, "epoch %lld of this workload has been here already",
                           (long long)r->key.epoch);
        if (!run_is_over(r))
            return err_set(err, E_BUSY, "epoch %lld of this workload has not ended here",
                           (long long)r->key.epoch);
    }
    if (n - ended >= AGENT_RUNS_MAX)
        return err_set(err, E_LIMIT, "this agent runs %d already", AGENT_RUNS_MAX);
    return 0;
}

static struct run *run_make(struct agent *a, const struct run_key *k, struct wire_order *order,
                            struct arena *mem)
{
    struct run *r = mem_new(struct run);
    char key[RUN_KEY_MAX];

    r->agent = a;
    r->key = *k;
    r->order = order;
    r->order_mem = mem;
    r->told = RUN_STARTING;
    list_init(&r->waiters);
    run_key_print(k, key);
    (void)snprintf(r->dir, sizeof r->dir, "%s/runs/%s", a->cfg.state_dir, key);
    r->n_workers = order->n_workers;
    r->workers = mem_zalloc(sizeof *r->workers * r->n_workers);
    for (unsigned i = 0; i < r->n_workers; i++)
        worker_init(&r->workers[i], r, order->workers[i].rank);
    checkpoints_init(r);
    logs_init(r);
    list_push(&a->runs, &r->link);
    return r;
}

/* Its text is what the run goes by from then on. */
static int order_write(struct agent *a, struct wire_order *o, struct buf *ret_text, struct err *err)
{
    char key[RUN_KEY_MAX], dir[AGENT_PATH_MAX], path[AGENT_PATH_MAX + 16];
    const char *document = o->document;

    run_key_print(&o->key, key);
    (void)snprintf(dir, sizeof dir, "%s/runs/%s", a->cfg.state_dir, key);
    o->document = "";
    int rc = order_print(o, ret_text, err);
    if (rc == 0)
        rc = file_mkdir(a->loop, dir, 0700, err);
    if (rc == 0 && *o->script) {
        (void)snprintf(path, sizeof path, "%s/script", dir);
        rc = file_write(a->loop, path, o->script, strlen(o->script), 0700, err);
    }
    if (rc == 0)
        rc = document_write(a, &o->key, document, err);
    /* Last: with it the order counts as accepted. */
    (void)snprintf(path, sizeof path, "%s/order.json", dir);
    return rc < 0 ? rc : file_write(a->loop, path, ret_text->p, ret_text->n, 0600, err);
}

int run_submit(struct agent *a, struct wire_order *order, struct run **ret, struct err *err)
{
    char key[RUN_KEY_MAX], groups[RUN_GROUP_MAX];
    struct wire_user user;
    struct arena *mem = NULL;
    AUTO_BUF text = {0};
    struct run *r = run_by_key(a, &order->key);

    if (r) { /* the same order again: adopted */
        *ret = r;
        return 0;
    }
    int rc = key_check(a, order, err);
    if (rc == 0)
        rc = order_check(a, order, err);
    if (rc == 0)
        rc = order_complete(a, order, &user, groups, err);
    if (rc < 0)
        return rc;
    FAILPOINT("agent.submit.before");
    rc = order_write(a, order, &text, err);
    if (rc == 0)
        rc = order_read(slice_make(text.p, text.n), &mem, &order, err);
    if (rc < 0)
        return rc;
    FAILPOINT("agent.submit.after"); /* accepted; nothing was started */
    cluster_heard(a, order->cluster, order->state_rv, order->state_time_ms);
    r = run_make(a, &order->key, order, mem);
    run_key_print(&r->key, key);
    log_event(LOG_INFO, "agent.run_accepted",
              LOG_FIELDS({"key", log_str(key)}, {"workers", log_u64(r->n_workers)}));
    for (unsigned i = 0; i < r->n_workers; i++)
        worker_start(&r->workers[i]);
    FAILPOINT("agent.start.after");
    *ret = r;
    return 0;
}

/* ---- after a restart ---- */
struct loading {
    struct agent *agent;
    struct err *err;
    int rc;
};

static void look(const char *name, void *arg)
{
    *(bool *)arg = name != NULL;
}

/* Its folder is made just before a shim is started: without it none ever was, and it may start now,
 * if its lease still holds. */
static void worker_resume(struct worker *w)
{
    char dir[AGENT_PATH_MAX];
    bool any = false;
    const struct wire_order *o = w->run->order;
    struct agent *a = w->run->agent;

    worker_dir(w, dir);
    if (file_list(a->loop, dir, look, &any, NULL) == 0 && !any &&
        strcmp(o->boot_id, a->boot_id) == 0 &&
        (!o->lease_ms || loop_now_ms(a->loop) < o->lease_from_ms + o->lease_ms))
        worker_start(w);
    else
        worker_recover(w);
}

static void run_load(const char *name, void *arg)
{
    struct loading *ld = arg;
    struct agent *a = ld->agent;
    char path[AGENT_PATH_MAX + 128];
    struct run_key k;
    struct err why;
    struct arena *mem = NULL;
    struct wire_order *order = NULL;
    AUTO_BUF b;

    buf_init(&b, AGENT_ORDER_MAX);
    (void)snprintf(path, sizeof path, "%s/runs/%s/order.json", a->cfg.state_dir, name);
    if (ld->rc < 0 || run_key_parse(name, &k, NULL) < 0)
        return;
    int rc = file_read(a->loop, path, AGENT_ORDER_MAX, &b, &why);
    if (rc == E_NOTFOUND) /* never accepted: the agent died before */
        return;
    if (rc == 0)
        rc = order_read(slice_make(b.p, b.n), &mem, &order, &why);
    if (rc < 0 || !order) {
        ld->rc = err_set(ld->err, E_CORRUPT,
                         "%s cannot be read: restore it; or end what runs under HANSE_RUN_KEY=%s/ "
                         "and remove the folder",
                         path, name);
        return;
    }
    cluster_heard(a, order->cluster, order->state_rv, order->state_time_ms);
    struct run *r = run_make(a, &k, order, mem);
    checkpoints_load(r);
    for (unsigned i = 0; i < r->n_workers; i++)
        worker_resume(&r->workers[i]);
    run_changed(r);
}

int runs_load(struct agent *a, struct err *err)
{
    struct loading ld = {.agent = a, .err = err};
    char dir[AGENT_PATH_MAX];
    int rc;

    (void)snprintf(dir, sizeof dir, "%s/runs", a->cfg.state_dir);
    rc = file_mkdir(a->loop, dir, 0700, err);
    if (rc == 0) {
        a->loading = true;
        rc = file_list(a->loop, dir, run_load, &ld, err);
        a->loading = false;
    }
    return rc < 0 ? rc : ld.rc;
}
