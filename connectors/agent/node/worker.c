/* One worker of a run: the agent's view of one shim. The shim decides; this only starts it (once),
 * talks to it, and finds out what became of it. It must never start a second shim, and never say
 * "ended" while anything is left.
 *
 *   NEW ──► DIALING ──► LINKED ──► ENDED (end.json)
 *              └────────────┴────► SWEEP ──► ENDED (we wrote end.json: nothing is left)
 *
 * Level-triggered: worker_tick looks again; a lost event costs a moment. */
#include "api/base/failpoint.h"

#include "api/base/hash.h"
#include "connectors/agent/node/agent_internal.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define DIAL_TIMEOUT_MS 2000
#define ADOPT_PATIENCE_MS 3000  /* for a shim that was just being started when the agent died */
#define GUARD_PATIENCE_MS 10000 /* for the guard of an adopted shim that died: it ends the tree */
#define SWEEP_EVERY_MS 20
#define STOP_MARGIN_MS 10000 /* for the shim and its guard to do what they were asked */

static void worker_tick(void *arg);
static void worker_deadline(void *arg);

void worker_dir(const struct worker *w, char out[AGENT_PATH_MAX])
{
    (void)snprintf(out, AGENT_PATH_MAX, "%s/%" PRId64, w->run->dir, w->rank);
}

void worker_log_path(const struct run *r, int64_t rank, char out[AGENT_PATH_MAX])
{
    (void)snprintf(out, AGENT_PATH_MAX, "%s/log.%" PRId64, r->dir, rank);
}

void worker_marker(const struct worker *w, char out[RUN_MARKER_MAX])
{
    char key[RUN_KEY_MAX];

    run_key_print(&w->run->key, key);
    (void)snprintf(out, RUN_MARKER_MAX, "%s/%" PRId64, key, w->rank);
}

enum run_processes worker_held(const struct worker *w)
{
    enum run_processes held = RUN_SEARCHED;

    (void)run_processes_parse(w->run->order->held, &held);
    return held;
}

void worker_will(const struct worker *w, char out[AGENT_PATH_MAX + 16])
{
    char dir[AGENT_PATH_MAX];

    worker_dir(w, dir);
    (void)snprintf(out, AGENT_PATH_MAX + 16, "%s/" RUN_WILL_FILE, dir);
}

/* Where its shim has put it: the order says after what. */
void worker_group(const struct worker *w, char out[RUN_GROUP_MAX])
{
    const char *at = w->run->order->groups;
    char name[RUN_MARKER_MAX];

    out[0] = '\0';
    if (worker_held(w) == RUN_SEARCHED)
        return;
    worker_marker(w, name);
    for (char *p = name; *p; p++)
        *p = *p == '/' ? '.' : *p;
    if (*at && strlen(at) + strlen(name) < RUN_GROUP_MAX)
        (void)snprintf(out, RUN_GROUP_MAX, "%s%s", at, name);
}

void worker_user(const struct worker *w, uint32_t *ret_uid, uint32_t *ret_gid)
{
    const struct wire_user *as = w->run->order->run_as;

    *ret_uid = as ? (uint32_t)as->uid : 0;
    *ret_gid = as ? (uint32_t)as->gid : 0;
}

static void worker_remove_group(const struct worker *w)
{
    struct runner_os *os = w->run->agent->cfg.os;
    char group[RUN_GROUP_MAX];

    worker_group(w, group);
    os->ops->group_remove(os, group);
}

/* Short, because a unix socket's path may have 108 bytes: a hash of the marker. */
void worker_socket(const struct worker *w, char out[AGENT_PATH_MAX])
{
    char marker[RUN_MARKER_MAX];

    worker_marker(w, marker);
    (void)snprintf(out, AGENT_PATH_MAX, "%s/s/%016" PRIx64, w->run->agent->cfg.state_dir,
                   hash_text(marker));
}

void worker_init(struct worker *w, struct run *r, int64_t rank)
{
    w->run = r;
    w->rank = rank;
    timer_init(&w->tick, r->agent->loop, worker_tick, w);
    timer_init(&w->deadline, r->agent->loop, worker_deadline, w);
}

static void worker_unlink(struct worker *w)
{
    static const struct stream_events nobody = {0};

    if (!w->stream)
        return;
    stream_set(w->stream, &nobody, NULL);
    stream_abort(w->stream, "not wanted any more");
    w->stream = NULL;
    frame_reader_fini(&w->reader);
}

void worker_fini(struct worker *w)
{
    timer_stop(&w->tick);
    timer_stop(&w->deadline);
    if (w->shim)
        process_unref(w->shim);
    w->shim = NULL;
    worker_unlink(w);
}

/* ---- the end ---- */
/* Who found the end need not know of the start, which its shim told: what is not known of the end
 * is when this agent saw it. */
static void worker_times(const struct worker *w, struct run_report *r)
{
    if (r->started_ms || !w->report.started_ms)
        return;
    r->started_ms = w->report.started_ms;
    r->pid = w->report.pid;
    r->ended_ms = loop_wall_ms(w->run->agent->loop);
}

static bool worker_read_end(struct worker *w)
{
    char dir[AGENT_PATH_MAX], path[AGENT_PATH_MAX + 16];
    struct loop *l = w->run->agent->loop;
    struct run_report r;
    AUTO_BUF b;

    buf_init(&b, WIRE_REPORT_MAX);
    worker_dir(w, dir);
    (void)snprintf(path, sizeof path, "%s/" RUN_END_FILE, dir);
    if (file_read(l, path, WIRE_REPORT_MAX, &b, NULL) < 0 ||
        run_report_parse(b.p, b.n, &r, NULL) < 0 || r.step != RUN_STEP_ENDED)
        return false;
    worker_times(w, &r);
    w->report = r;
    checkpoints_reported(w);
    return true;
}

static void remove_file(const struct worker *w, const char *path)
{
    struct err err;

    if (file_remove(w->run->agent->loop, path, &err) < 0)
        log_err(LOG_WARN, "agent.remove", &err);
}

static void worker_ended(struct worker *w)
{
    char path[AGENT_PATH_MAX];

    w->state = WS_ENDED;
    w->report.step = RUN_STEP_ENDED;
    timer_stop(&w->tick);
    timer_stop(&w->deadline);
    worker_unlink(w);
    worker_socket(w, path);
    remove_file(w, path);
    worker_remove_group(w);
    run_changed(w->run);
}

static bool worker_boot_is_this(const struct worker *w)
{
    return strcmp(w->run->order->boot_id, w->run->agent->boot_id) == 0;
}

/* Declares the end of a worker whose shim said nothing. Called only when nothing of it is left. How
 * its program ended may be known all the same; else it is as if it had been killed. */
static bool worker_write_end(struct worker *w, const char *reason, const char *message)
{
    char dir[AGENT_PATH_MAX], path[AGENT_PATH_MAX + 16];
    struct runner_os *os = w->run->agent->cfg.os;
    struct run_report r = {.step = RUN_STEP_ENDED, .term_signal = SIGKILL};
    struct err err;

    worker_dir(w, dir);
    if (!os->ops->last_words(os, dir, worker_boot_is_this(w), &r)) {
        str_copy(r.reason, sizeof r.reason, reason);
        str_copy(r.message, sizeof r.message, message);
        r.lease_lost = w->report.lease_lost;
    }
    worker_times(w, &r);
    /* What ran before the machine restarted is gone for certain. */
    r.searched = worker_boot_is_this(w) && worker_held(w) == RUN_SEARCHED;
    (void)snprintf(path, sizeof path, "%s/" RUN_END_FILE, dir);
    if (file_mkdir(w->run->agent->loop, dir, 0700, &err) < 0 ||
        run_report_write(w->run->agent->loop, path, &r, &err) < 0) {
        log_err(LOG_WARN, "agent.end_record", &err);
        return false;
    }
    w->report = r;
    return true;
}

/* ---- the deadline: its shim keeps it, and its guard; this is for when both stand still ---- */
static uint64_t worker_kill_at(const struct worker *w, bool *ret_lost)
{
    const struct run *r = w->run;
    uint64_t at = w->until_ms ? w->until_ms + AGENT_MARGIN_MS : 0;

    *ret_lost = at != 0;
    if (r->stop_signo && (!at || r->stop_at_ms + STOP_MARGIN_MS < at)) {
        at = r->stop_at_ms + STOP_MARGIN_MS;
        *ret_lost = false;
    }
    return at;
}

static void worker_deadline(void *arg)
{
    struct worker *w = arg;
    uint64_t now = loop_now_ms(w->run->agent->loop);
    struct runner_os *os = w->run->agent->cfg.os;
    char will[AGENT_PATH_MAX + 16];
    bool lost;
    uint64_t at = worker_kill_at(w, &lost);

    /* Once nothing is left it may take its time to seal. */
    if (w->state == WS_ENDED || w->state == WS_SWEEP || w->report.gone || !at)
        return;
    if (now < at) {
        timer_start(&w->deadline, at - now);
        return;
    }
    worker_will(w, will);
    if (lost) {
        os->ops->will_flag(os, will, WILL_LEASE_LOST);
        run_report_lease_lost(&w->report);
    }
    log_event(LOG_WARN, "agent.deadline_enforced",
              LOG_FIELDS({"uid", log_str(w->run->key.uid)}, {"rank", log_i64(w->rank)},
                         {"why", log_str(lost ? "LeaseLost" : "Stopped")}));
    worker_unlink(w);
    w->state = WS_SWEEP; /* with its shim and guard */
    timer_start(&w->tick, 0);
}

/* The lease, or the grace of a stop, has changed. */
static void worker_watch(struct worker *w)
{
    if (w->state != WS_ENDED)
        timer_start(&w->deadline, 0);
}

/* Each run has the length that its order gave it, or the one that its shim has taken since; until
 * it tells so it may hold either. */
static uint64_t worker_lease(const struct worker *w)
{
    const struct run_offer *o = &w->run->offer;
    uint64_t own = w->run->order->lease_ms;
    uint64_t held = w->report.grant ? w->report.lease_ms
                    : own           ? own
                                    : w->run->agent->renew_lease_ms;

    return w->report.grant && o->number > w->report.grant && o->lease_ms > held ? o->lease_ms
                                                                                : held;
}

static void worker_granted(struct worker *w, uint64_t from_ms, uint64_t lease_ms)
{
    uint64_t now = loop_now_ms(w->run->agent->loop);
    uint64_t from = from_ms && from_ms < now ? from_ms : now;

    if (from > w->from_ms)
        w->from_ms = from;
    w->until_ms = w->from_ms + lease_ms;
    worker_watch(w);
}

/* ---- talking to the shim ---- */
static int shim_frame(const struct frame *f, void *arg)
{
    struct worker *w = arg;
    struct run_report r;

    if (f->type != RUN_FRAME_STATE || run_report_parse(f->body.p, f->body.n, &r, NULL) < 0)
        return 0;
    bool taken = w->from_ms && r.grant > w->report.grant;
    w->report = r;
    if (taken)
        worker_granted(w, w->from_ms, worker_lease(w));
    checkpoints_reported(w);
    if (w->state == WS_DIALING) {
        char dir[AGENT_PATH_MAX], path[AGENT_PATH_MAX + 16];
        w->state = WS_LINKED;
        worker_dir(w, dir);
        (void)snprintf(path, sizeof path, "%s/" RUN_END_FILE, dir);
        if (w->given_up && r.step != RUN_STEP_ENDED) /* it was there after all */
            remove_file(w, path);
        w->given_up = false;
        worker_renew(w);
        worker_save(w);
        if (w->run->stop_signo) {
            uint64_t now = loop_now_ms(w->run->agent->loop), at = w->run->stop_at_ms;
            worker_stop(w, w->run->stop_signo, at > now ? at - now : 0);
        }
    }
    if (r.step == RUN_STEP_ENDED) {
        timer_start(&w->tick, 0); /* not from in here: the stream goes */
        return 0;
    }
    run_go(w->run);
    run_changed(w->run);
    return 0;
}

static void shim_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct worker *w = arg;
    struct err err;

    if (frame_feed(&w->reader, p, n, shim_frame, w, &err) < 0)
        stream_abort(s, err.text);
}

static void shim_closed(struct stream *s, const struct err *why, void *arg)
{
    struct worker *w = arg;

    (void)s;
    (void)why;
    w->stream = NULL;
    frame_reader_fini(&w->reader);
    if (w->state == WS_LINKED) {
        w->state = WS_DIALING;
        w->give_up_ms = loop_now_ms(w->run->agent->loop) + GUARD_PATIENCE_MS;
    }
    if (w->state == WS_DIALING)
        timer_start(&w->tick, w->dials < 40 ? 5 : 50);
}

static const struct stream_events shim_events = {.data = shim_data, .closed = shim_closed};

static void worker_dial(struct worker *w)
{
    char path[AGENT_PATH_MAX], address[AGENT_PATH_MAX + 8];
    struct err err;

    worker_socket(w, path);
    (void)snprintf(address, sizeof address, "unix:%s", path);
    w->dials++;
    frame_reader_init(&w->reader);
    if (stream_connect(w->run->agent->loop, address, NULL, NULL, DIAL_TIMEOUT_MS, &shim_events, w,
                       &w->stream, &err) < 0) {
        w->stream = NULL;
        frame_reader_fini(&w->reader);
        timer_start(&w->tick, 100);
    }
}

void worker_renew(struct worker *w)
{
    const struct run_offer *o = &w->run->offer;
    uint64_t from = w->run->renew_from_ms;
    struct shim_renew renew = {.from_ms = from, .lease_ms = worker_lease(w)};

    if (w->state != WS_LINKED || !w->stream || !from)
        return;
    if (o->number && w->report.grant) { /* one that has no lease takes none */
        renew.grant = o->number;
        renew.lease_ms = o->lease_ms;
        renew.grace_ms = o->grace_ms;
    }
    wire_tell(w->stream, RUN_FRAME_RENEW, 0, shim_renew, &renew);
    if (w->until_ms) /* one without a lease gets none */
        worker_granted(w, from, worker_lease(w));
}

void worker_go(struct worker *w)
{
    if (w->state == WS_LINKED && w->stream)
        frame_send(w->stream, RUN_FRAME_GO, 0, 0, NULL, 0);
    FAILPOINT("agent.go.after"); /* other ranks still wait */
}

void worker_stop(struct worker *w, int signo, uint64_t grace_ms)
{
    const struct shim_stop stop = {.signo = signo, .grace_ms = grace_ms};

    worker_watch(w);
    if (w->state == WS_LINKED && w->stream) /* else it is asked once it is linked */
        wire_tell(w->stream, RUN_FRAME_STOP, 0, shim_stop, &stop);
}

void worker_save(struct worker *w)
{
    const struct run *r = w->run;
    const struct shim_save save = {
        .signo = r->order->save_signo, .grace_ms = r->save_grace_ms, .number = r->save_number};

    if (r->save_number > w->report.save.number && w->state == WS_LINKED && w->stream)
        wire_tell(w->stream, RUN_FRAME_SAVE, 0, shim_save, &save);
}

/* ---- starting it ---- */
static void shim_exited(struct process *p, int exit_code, int term_signal, void *arg)
{
    struct worker *w = arg;

    (void)p;
    (void)exit_code;
    (void)term_signal;
    w->shim = NULL;
    timer_start(&w->tick, 0);
}

void worker_start(struct worker *w)
{
    struct err err;

    w->spawned_here = true;
    w->state = WS_DIALING;
    if (w->run->order->lease_ms)
        worker_granted(w, w->run->order->lease_from_ms, w->run->order->lease_ms);
    if (worker_launch(w, shim_exited, &err) < 0) {
        w->state = WS_SWEEP; /* nothing was started; the sweep sees that and says so */
        str_copy(w->report.reason, sizeof w->report.reason, end_text(END_START_FAILED));
        (void)snprintf(w->report.message, sizeof w->report.message, "%.250s", err.text);
    }
    timer_start(&w->tick, w->state == WS_DIALING ? 4 : 0);
}

/* What an earlier agent has granted it, its shim has told. */
static uint64_t worker_told_until(const struct worker *w)
{
    struct runner_os *os = w->run->agent->cfg.os;
    const struct wire_order *o = w->run->order;
    uint64_t first = o->lease_ms ? o->lease_from_ms + o->lease_ms : 0, told;
    char dir[AGENT_PATH_MAX];

    worker_dir(w, dir);
    told = os->ops->deadline_read(os, dir);
    return told > first ? told : first;
}

void worker_recover(struct worker *w)
{
    struct agent *a = w->run->agent;

    if (worker_read_end(w)) {
        w->state = WS_ENDED;
        worker_remove_group(w); /* its shim may have been killed ahead of that */
        return;
    }
    if (!worker_boot_is_this(w)) { /* the machine restarted meanwhile */
        w->state = WS_SWEEP;
        str_copy(w->report.reason, sizeof w->report.reason, end_text(END_MACHINE_RESTARTED));
        (void)snprintf(w->report.message, sizeof w->report.message,
                       "the machine restarted while it ran");
        timer_start(&w->tick, 0);
        return;
    }
    w->state = WS_DIALING;
    w->until_ms = worker_told_until(w);
    worker_watch(w);
    w->give_up_ms = loop_now_ms(a->loop) + ADOPT_PATIENCE_MS;
    timer_start(&w->tick, 0);
}

/* Its guard, or its program, whose exit status is wanted until the end is written. */
bool worker_owns(const struct worker *w, int64_t pid)
{
    struct runner_os *os = w->run->agent->cfg.os;
    char dir[AGENT_PATH_MAX];

    if (w->shim && process_pid(w->shim) == pid)
        return true;
    if (w->state == WS_ENDED)
        return false;
    worker_dir(w, dir);
    return os->ops->will_pid(os, dir) == pid;
}

/* ---- the tick ---- */
static struct runner_tree worker_tree(const struct worker *w, char marker[RUN_MARKER_MAX])
{
    worker_marker(w, marker);
    return (struct runner_tree){.marker = marker};
}

static void tick_dialing(struct worker *w)
{
    struct agent *a = w->run->agent;
    char marker[RUN_MARKER_MAX];
    struct runner_tree t = worker_tree(w, marker);

    if (worker_read_end(w)) {
        if (!w->given_up || w->dials > 0) {
            worker_ended(w);
            return;
        }
    } else if (w->spawned_here
                   ? !w->shim /* it exited without a word, and so did its guard */
                   : (w->dials > 0 && (loop_now_ms(a->loop) > w->give_up_ms ||
                                       a->cfg.os->ops->tree_process_count(a->cfg.os, &t) == 0))) {
        w->state = WS_SWEEP;
        timer_start(&w->tick, 0);
        return;
    }
    worker_dial(w);
}

static void tick_sweep(struct worker *w)
{
    struct agent *a = w->run->agent;
    char marker[RUN_MARKER_MAX], group[RUN_GROUP_MAX], will[AGENT_PATH_MAX + 16];
    struct runner_tree t = worker_tree(w, marker);
    const char *reason = w->report.reason[0] ? w->report.reason : end_text(END_RUNNER_KILLED);
    const char *message = w->report.message[0]
                              ? w->report.message
                              : "the runner was killed; the agent ended what it left";
    char r[64], m[256];

    worker_group(w, group);
    worker_will(w, will);
    if (worker_boot_is_this(w)) {
        t.group = group;
        t.will = will;
        t.held = *group || worker_held(w) != RUN_CGROUP ? worker_held(w) : RUN_SEARCHED;
        /* Shim and guard are dead: what has escaped from them has come to us. */
        t.spared = run_pid_is_known;
        t.arg = a;
    }
    if (a->cfg.os->ops->tree_process_count(a->cfg.os, &t) != 0) {
        (void)a->cfg.os->ops->tree_signal(a->cfg.os, &t, SIGKILL);
        timer_start(&w->tick, SWEEP_EVERY_MS);
        return;
    }
    a->cfg.os->ops->group_remove(a->cfg.os, group);
    if (worker_read_end(w)) { /* the guard was quicker */
        worker_ended(w);
        return;
    }
    str_copy(r, sizeof r, reason);
    str_copy(m, sizeof m, message);
    if (!worker_write_end(w, r, m)) {
        timer_start(&w->tick, 1000);
        return;
    }
    if (w->spawned_here) {
        worker_ended(w);
        return;
    }
    w->given_up = true; /* one more look: see runner.c, runner_open */
    w->state = WS_DIALING;
    w->dials = 0;
    timer_start(&w->tick, 0);
}

static void worker_tick(void *arg)
{
    struct worker *w = arg;

    switch (w->state) {
    case WS_NEW:
    case WS_ENDED:
        return;
    case WS_LINKED:
        if (w->report.step == RUN_STEP_ENDED && worker_read_end(w))
            worker_ended(w);
        return;
    case WS_DIALING:
        if (!w->stream)
            tick_dialing(w);
        return;
    case WS_SWEEP:
        tick_sweep(w);
        return;
    }
}
