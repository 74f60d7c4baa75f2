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
        if (r->key.epoch == k->epoch && r->key.try_ == k->try_ && strcmp(r->key.uid, k->uid) == 0)
            return r;
    }
    return NULL;
}

struct run *run_newest_try(struct agent *a, const struct run_key *k)
{
    struct run *best = NULL;

    list_for_each (it, &a->runs) {
        struct run *r = container_of(it, struct run, link);
        if (r->key.epoch == k->epoch && strcmp(r->key.uid, k->uid) == 0 &&
            (!best || r->key.try_ > best->key.try_))
            best = r;
    }
    return best;
}

static enum run_state run_state(const struct run *r)
{
    unsigned ended = 0, up = 0, never = 0;

    for (unsigned i = 0; i < r->n_workers; i++) {
        ended += r->workers[i].state == WS_ENDED;
        never += r->workers[i].report.never_started;
        up += r->workers[i].report.step >= RUN_STEP_RUNNING;
    }
    /* What it resumes from does not hold, or it was stopped before: no process ever was. */
    if (ended == r->n_workers && never == r->n_workers)
        return RUN_ABSENT;
    if (ended == r->n_workers && checkpoints_settled(r))
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
    checkpoints_observe(r, &ret->checkpoint);
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
    cJSON_Delete(r->order);
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
    struct book_hub hub = book_hub_of(a, run_cluster(r), wire_u64(r->order, "stateRv"));
    rc = book_write(&a->book, &r->key, &o, hub, err);
    heard_keep(a);
    if (rc == 0)
        rc = file_remove(a->loop, r->dir, err);
    if (rc < 0)
        return rc;
    a->n_ended--;
    run_free(r);
    return 0;
}

static void runs_prune(struct agent *a)
{
    while (a->n_ended > AGENT_ENDED_KEPT) {
        struct run *oldest = NULL;
        struct err err;
        list_for_each (it, &a->runs) {
            struct run *r = container_of(it, struct run, link);
            if (r->ended_seq && (!oldest || r->ended_seq < oldest->ended_seq))
                oldest = r;
        }
        if (!oldest || run_forget(oldest, &err) < 0)
            return;
    }
}

int order_rewrite(struct run *r, struct err *err)
{
    char path[AGENT_PATH_MAX + 16], *text = cJSON_PrintUnformatted(r->order);

    (void)snprintf(path, sizeof path, "%s/order.json", r->dir);
    int rc = file_write(r->agent->loop, path, text, strlen(text), 0600, err);
    cJSON_free(text);
    return rc;
}

/* The environment may hold secrets, and is not needed any more. */
static void run_scrub(struct run *r)
{
    struct err err;

    if (!cJSON_HasObjectItem(r->order, "env"))
        return;
    cJSON_DeleteItemFromObjectCaseSensitive(r->order, "env");
    if (order_rewrite(r, &err) < 0)
        log_err(LOG_WARN, "agent.scrub", &err);
}

static void run_ended(struct run *r, const struct observation *o)
{
    struct agent *a = r->agent;
    char key[RUN_KEY_MAX];

    r->ended_seq = ++a->ended_seq;
    a->n_ended++;
    a->n_alive--;
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

    for (unsigned i = 0; i < r->n_workers && !r->failed; i++)
        r->failed = report_failed(&r->workers[i].report);
    if (r->failed && !r->stop_signo) /* a gang lives together: the others would wait for ever */
        run_stop(r, SIGTERM, wire_u64(r->order, "graceMs"));
    checkpoints_consider(r);
    run_observe(r, &o);
    bool grant = o.grant > r->told_grant;
    if (o.state == r->told && !grant)
        return;
    if (r->told == RUN_RUNNING && o.state == RUN_STARTING)
        return;
    r->told = o.state;
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
    if (r->agent->welcome)
        checkpoints_told(r);
    session_observed(r->agent, o);
}

void run_stop(struct run *r, int signo, uint64_t grace_ms)
{
    r->stop_signo = signo;
    r->stop_at_ms = loop_now_ms(r->agent->loop) + grace_ms;
    for (unsigned i = 0; i < r->n_workers; i++)
        worker_stop(&r->workers[i], signo, grace_ms);
}

bool run_has_processes(struct agent *a, const struct run_key *k)
{
    char key[RUN_KEY_MAX], marker[RUN_MARKER_MAX];
    struct runner_tree t = {.marker = marker};

    run_key_print(k, key);
    (void)snprintf(marker, sizeof marker, "%s/", key);
    return a->cfg.os->ops->tree_process_count(a->cfg.os, &t) != 0;
}

/* ---- what comes to the agent as subreaper ---- */
/* Shim and guard were killed, or it escaped from `exec`. */
bool run_pid_is_known(int64_t pid, void *arg)
{
    struct agent *a = arg;

    if (streams_own(a, pid))
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
    struct runner_os *os = a->cfg.os;

    if (!os->ops->orphans_reap(os, run_pid_is_known, a))
        timer_start(&a->orphans, ORPHANS_EVERY_MS);
}

static void child_ended(void *arg)
{
    struct agent *a = arg;

    if (!timer_active(&a->orphans)) /* the loop takes its own first, also those it forgot */
        timer_start(&a->orphans, ORPHANS_EVERY_MS);
}

int runs_adopt(struct agent *a, struct err *err)
{
    int rc = a->cfg.os->ops->adopt_orphans(a->cfg.os, err);

    timer_init(&a->orphans, a->loop, orphans_reap, a);
    return rc < 0 ? rc : loop_signal(a->loop, SIGCHLD, child_ended, a, err);
}

/* ---- accepting ---- */
static int order_check(struct agent *a, const cJSON *o, struct err *err)
{
    const cJSON *workers = cJSON_GetObjectItemCaseSensitive(o, "workers"), *w;
    const cJSON *argv = cJSON_GetObjectItemCaseSensitive(o, "argv"), *v;
    int64_t expected = 0;

    if (cJSON_GetArraySize(workers) < 1 || cJSON_GetArraySize(workers) > LIMIT_GANG_MAX)
        return err_set(err, E_INVALID, "the order has no workers, or more than %d", LIMIT_GANG_MAX);
    if (!*wire_str(o, "script") && cJSON_GetArraySize(argv) < 1)
        return err_field(err, E_INVALID, "spec.run.command",
                         "an agent needs a command or a script");
    if (strcmp(wire_str(o, "processes"), "proved") == 0 && a->held == RUN_SEARCHED)
        return err_field(err, E_INVALID, "spec.isolation.processes",
                         "proved: this machine permits neither control groups nor PID namespaces");
    if (strcmp(wire_str(o, "tenants"), "separate") == 0 && !a->cfg.users)
        return err_field(err, E_INVALID, "spec.isolation.tenants",
                         "separate: the agent of this machine runs all namespaces as one user "
                         "(hanse agent --users)");
    if (script_check(wire_str(o, "script"), err) < 0)
        return err ? err->code : E_INVALID;
    if (cJSON_GetArraySize(argv) > 2048)
        return err_field(err, E_TOOLARGE, "spec.run.args", "more than 2048 arguments");
    cJSON_ArrayForEach(v, argv) if (!cJSON_IsString(v)) return err_set(
        err, E_INVALID, "an argument of the command is no text");
    cJSON_ArrayForEach(w, workers)
    {
        if (wire_i64(w, "rank") != expected++)
            return err_set(err, E_INVALID, "the order's ranks are not 0, 1, 2, …");
        const char *base = wire_str(o, "checkpointBase");
        if (*base && *base != '/' && !checkpoint_store_is_remote(base))
            return err_field(err, E_INVALID, "spec.checkpoint.store",
                             "an agent's store is an absolute folder, or s3://BUCKET/PREFIX");
        if (!inventory_has(&a->inventory, wire_str(w, "node")))
            return err_set(err, E_INVALID, "node %.200s is not in the inventory of agent %s",
                           wire_str(w, "node"), a->cfg.target);
    }
    return 0;
}

/* May this key start? One epoch at a time: the older one must have been seen to end. */
static int key_check(struct agent *a, const struct run_key *k, const cJSON *order, struct err *err)
{
    const struct book_hub from = {wire_str(order, "cluster"), wire_u64(order, "stateRv")};

    if (book_refuses(&a->book, k))
        return err_set(err, E_STALE,
                       "this key, or a newer one of the workload, was given up on this target");
    if (book_admits(&a->book, from, err) < 0 ||
        book_room(&a->book, a->n_alive + a->n_ended, err) < 0)
        return err ? err->code : E_STALE;
    list_for_each (it, &a->runs) {
        const struct run *r = container_of(it, struct run, link);
        if (strcmp(r->key.uid, k->uid) != 0)
            continue;
        if (r->key.epoch > k->epoch || (r->key.epoch == k->epoch && r->key.try_ > k->try_))
            return err_set(err, E_STALE, "epoch %lld of this workload has been here already",
                           (long long)r->key.epoch);
        if (!run_is_over(r))
            return err_set(err, E_BUSY, "epoch %lld of this workload has not ended here",
                           (long long)r->key.epoch);
    }
    if (a->n_alive >= AGENT_RUNS_MAX)
        return err_set(err, E_LIMIT, "this agent runs %d already", AGENT_RUNS_MAX);
    return 0;
}

static struct run *run_make(struct agent *a, const struct run_key *k, cJSON *order)
{
    struct run *r = mem_new(struct run);
    char key[RUN_KEY_MAX];

    r->agent = a;
    r->key = *k;
    r->order = order;
    r->told = RUN_STARTING;
    list_init(&r->waiters);
    run_key_print(k, key);
    (void)snprintf(r->dir, sizeof r->dir, "%s/runs/%s", a->cfg.state_dir, key);
    r->n_workers = (unsigned)cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(order, "workers"));
    r->workers = mem_zalloc(sizeof *r->workers * r->n_workers);
    for (unsigned i = 0; i < r->n_workers; i++)
        worker_init(&r->workers[i], r, i);
    checkpoints_init(r);
    list_push(&a->runs, &r->link);
    return r;
}

static int order_write(struct agent *a, const struct run_key *k, cJSON *order, struct err *err)
{
    char key[RUN_KEY_MAX], dir[AGENT_PATH_MAX], path[AGENT_PATH_MAX + 16];
    const char *script = wire_str(order, "script");
    cJSON *document = cJSON_DetachItemFromObjectCaseSensitive(order, "document");
    char *text = cJSON_PrintUnformatted(order);
    size_t n = text ? strlen(text) : 0;
    int rc = 0;

    run_key_print(k, key);
    (void)snprintf(dir, sizeof dir, "%s/runs/%s", a->cfg.state_dir, key);
    if (!text || n > AGENT_ORDER_MAX)
        rc = err_set(err, E_TOOLARGE, "the order has %zu bytes of JSON; an agent takes %d", n,
                     LIMIT_ORDER_MAX_BYTES);
    if (rc == 0)
        rc = file_mkdir(a->loop, dir, 0700, err);
    if (rc == 0 && *script) {
        (void)snprintf(path, sizeof path, "%s/script", dir);
        rc = file_write(a->loop, path, script, strlen(script), 0700, err);
    }
    if (rc == 0)
        rc = document_write(a, k, document, err);
    cJSON_Delete(document);
    /* Last: with it the order counts as accepted. */
    (void)snprintf(path, sizeof path, "%s/order.json", dir);
    if (rc == 0)
        rc = file_write(a->loop, path, text, n, 0600, err);
    cJSON_free(text);
    return rc;
}

/* Whose its programs are is settled once: a later agent goes by that. */
static int order_user(struct agent *a, cJSON *order, struct err *err)
{
    uint32_t uid, gid;
    int rc = users_of(a, wire_str(order, "cluster"), wire_str(order, "namespace"), &uid, &gid, err);

    cJSON_DeleteItemFromObjectCaseSensitive(order, "runAs");
    if (rc < 0 || !uid)
        return rc;
    cJSON *as = cJSON_AddObjectToObject(order, "runAs");
    cJSON_AddNumberToObject(as, "uid", uid);
    cJSON_AddNumberToObject(as, "gid", gid);
    return 0;
}

int run_submit(struct agent *a, cJSON *order, struct run **ret, struct err *err)
{
    struct run_key k;
    char key[RUN_KEY_MAX], groups[RUN_GROUP_MAX];
    int rc = wire_key(order, &k, err);

    if (rc < 0)
        return rc;
    struct run *r = run_by_key(a, &k);
    if (r) { /* the same order again: adopted */
        cJSON_Delete(order);
        *ret = r;
        return 0;
    }
    rc = key_check(a, &k, order, err);
    if (rc == 0)
        rc = order_check(a, order, err);
    if (rc < 0)
        return rc;
    cJSON_DeleteItemFromObjectCaseSensitive(order, "bootId");
    cJSON_AddStringToObject(order, "bootId", a->boot_id);
    cJSON_DeleteItemFromObjectCaseSensitive(order, "acceptedAt");
    cJSON_AddNumberToObject(order, "acceptedAt", (double)loop_wall_ms(a->loop));
    cJSON_DeleteItemFromObjectCaseSensitive(order, "held");
    cJSON_AddStringToObject(order, "held", run_processes_text(a->held));
    a->cfg.os->ops->group_place(a->cfg.os, false, groups);
    cJSON_DeleteItemFromObjectCaseSensitive(order, "groups");
    cJSON_AddStringToObject(order, "groups", groups);
    rc = order_user(a, order, err);
    if (rc < 0)
        return rc;
    FAILPOINT("agent.submit.before");
    rc = order_write(a, &k, order, err);
    if (rc < 0)
        return rc;
    FAILPOINT("agent.submit.after"); /* accepted; nothing was started */
    cluster_heard(a, order);
    r = run_make(a, &k, order);
    a->n_alive++;
    run_key_print(&k, key);
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
    (void)name;
    *(bool *)arg = true;
}

/* Its folder is made just before a shim is started: without it none ever was, and it may start now,
 * if its lease still holds. */
static void worker_resume(struct worker *w)
{
    char dir[AGENT_PATH_MAX];
    bool any = false;
    const cJSON *o = w->run->order;
    struct agent *a = w->run->agent;
    uint64_t lease = wire_u64(o, "leaseMs");

    worker_dir(w, dir);
    if (file_list(a->loop, dir, look, &any, NULL) == 0 && !any &&
        strcmp(wire_str(o, "bootId"), a->boot_id) == 0 &&
        (!lease || loop_now_ms(a->loop) < wire_u64(o, "leaseFrom") + lease))
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
    AUTO_BUF b;

    buf_init(&b, AGENT_ORDER_MAX);
    (void)snprintf(path, sizeof path, "%s/runs/%s/order.json", a->cfg.state_dir, name);
    if (ld->rc < 0 || run_key_parse(name, &k, NULL) < 0)
        return;
    int rc = file_read(a->loop, path, AGENT_ORDER_MAX, &b, &why);
    if (rc == E_NOTFOUND) /* never accepted: the agent died before */
        return;
    cJSON *order = rc == 0 ? cJSON_ParseWithLength(b.p, b.n) : NULL;
    if (cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(order, "workers")) < 1) {
        cJSON_Delete(order);
        ld->rc = err_set(ld->err, E_CORRUPT,
                         "%s cannot be read: restore it; or end what runs under HANSE_RUN_KEY=%s/ "
                         "and remove the folder",
                         path, name);
        return;
    }
    cluster_heard(a, order);
    struct run *r = run_make(a, &k, order);
    a->n_alive++;
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
