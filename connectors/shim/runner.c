/* The shim's state machine. It holds the lease itself: nobody has to tell it to stop.
 *
 *     PREPARING ─► WAITING ─► RUNNING ──lease over / asked──► ENDING ──grace over──► KILLING
 *         │           │          └── program exited, others left behind ─┘  │             │
 *         └───────────┴── cannot resume, lease over, asked ──► SEALING ◄─── nobody left ─┘
 *                                                                 └─► GONE (end.json) ─► done
 *
 * PREPARING, WAITING (for the other ranks) and SEALING are only there with checkpoints.
 *
 * Level-triggered: runner_tick looks at the program, the clock and the tree, and never trusts an
 * event. */
#include "api/base/failpoint.h"
#include "api/base/limits.h"
#include "api/base/log.h"
#include "connectors/pace.h"
#include "connectors/shim/runner_internal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define LEFTOVER_GRACE_MAX_MS 5000 /* for what a finished program left behind */
#define TREE_POLL_MS 20

static void runner_tick(void *arg);

static bool program_lives(const struct runner *r)
{
    return r->program && !r->exited;
}

struct runner_tree runner_tree(const struct runner *r)
{
    struct runner_os *os = r->cfg.os;

    return (struct runner_tree){.held = r->cfg.held,
                                .will = r->cfg.will,
                                .marker = r->cfg.marker,
                                .group = r->cfg.group,
                                .root = os->ops->self(os),
                                .spare = {os->ops->self(os), r->cfg.guard_pid},
                                .watched = r->program ? process_pid(r->program) : 0,
                                .own = r->cfg.own,
                                .own_arg = r->cfg.arg};
}

/* For who looks after us, guard and agent: they enforce it should we stand still. */
static void runner_tell_deadline(struct runner *r)
{
    uint64_t until = r->lease_until_ms;
    bool lost = until != 0;

    if (r->state >= RS_ENDING && (!until || r->kill_at_ms < until)) {
        until = r->kill_at_ms;
        lost = r->report.lease_lost;
    }
    if (r->state >= RS_SEALING)
        until = 0;
    r->cfg.os->ops->deadline_tell(r->cfg.os, r->cfg.will, until, lost);
}

/* A shorter lease counts from the newest renewal, too: whoever has its number told waits no longer
 * than that. */
void runner_renew(struct runner *r, const struct shim_renew *q)
{
    uint64_t now = loop_now_ms(r->loop), from = q->from_ms < now ? q->from_ms : now;
    bool taken = (r->lease_until_ms || r->cfg.borrows) && q->lease_ms && q->grant > r->report.grant;

    if (!r->lease_until_ms && !taken)
        return;
    if (taken) {
        r->report.grant = q->grant;
        r->report.lease_ms = r->cfg.lease_ms = q->lease_ms;
        r->cfg.grace_ms = q->grace_ms;
    }
    if (from > r->cfg.lease_from_ms)
        r->cfg.lease_from_ms = from;
    r->lease_until_ms = r->cfg.lease_from_ms + r->cfg.lease_ms;
    runner_tell_deadline(r); /* ahead of saying that it is held */
    if (taken)
        runner_tell(r, NULL);
    runner_tick(r);
}

void runner_look_again(struct runner *r)
{
    timer_start(&r->tick, 0);
}

/* ---- the end ---- */
void runner_free_when_quiet(struct runner *r)
{
    if (r->state != RS_GONE || !r->written || r->n_links)
        return;
    struct run_report report = r->report;
    struct runner_config cfg = r->cfg;
    timer_stop(&r->tick);
    timer_stop(&r->mark);
    r->output = output_writer_destroy(r->output);
    (void)!loop_signal(r->loop, SIGCHLD, NULL, NULL, NULL);
    r->keeper = keeper_destroy(r->keeper);
    mem_free(r);
    cfg.done(&report, cfg.arg);
}

/* Until now a guard, or an agent, would have found the exit status with the kernel. One of nobody's
 * (no folder, no end.json) finds it there for good. */
static void runner_reap(struct runner *r)
{
    if (!r->program)
        return;
    if (r->cfg.dir)
        r->cfg.os->ops->exit_reap(r->cfg.os, process_pid(r->program));
    process_unref(r->program);
    r->program = NULL;
}

/* Nobody is left: says so on disk first, then to the agent, then goes. */
static void runner_mark(void *arg)
{
    struct runner *r = arg;

    if (output_writer_mark(r->output, loop_wall_ms(r->loop)))
        timer_start(&r->mark, OUTPUT_MARK_EVERY_MS);
}

static void runner_finish(struct runner *r)
{
    char path[4096];
    struct err err;

    runner_mark(r); /* ahead of the end: who reads until then finds all of it */
    r->state = RS_GONE;
    r->report.step = RUN_STEP_ENDED;
    r->report.searched = r->cfg.held == RUN_SEARCHED && !r->report.never_started;
    runner_tell_deadline(r);
    if (r->cfg.dir && !r->written) {
        (void)snprintf(path, sizeof path, "%s/" RUN_END_FILE, r->cfg.dir);
        FAILPOINT("shim.end.before");
        int rc = run_report_write(r->loop, path, &r->report, &err);
        if (rc < 0 && rc != E_NOTFOUND) {
            runner_tell(r, NULL); /* a full disk: the agent may know already */
            timer_start(&r->tick, 1000);
            return;
        }
        if (rc < 0) /* the folder itself was removed: nobody is left who would read it */
            log_err(LOG_WARN, "run.end_record", &err);
    }
    r->written = true;
    FAILPOINT("shim.end.after");
    runner_reap(r);
    r->cfg.os->ops->group_remove(r->cfg.os, r->cfg.group);
    runner_tell(r, NULL);
    if (r->listener)
        listener_close(r->listener);
    r->listener = NULL;
    runner_hang_up(r);
    runner_free_when_quiet(r);
}

/* Nobody is left, or nobody ever was: what has been saved is sealed before "ended" is said. */
static void runner_seal(struct runner *r)
{
    if (!r->keeper) {
        runner_finish(r);
        return;
    }
    r->state = RS_SEALING;
    r->report.gone = true;
    runner_tell_deadline(r);
    runner_tell(r, NULL);
    keeper_settle(r->keeper, !r->report.never_started);
    timer_start(&r->tick, 0);
}

static void runner_say(struct runner *r, const char *reason, const char *message)
{
    (void)snprintf(r->report.reason, sizeof r->report.reason, "%.63s", reason);
    (void)snprintf(r->report.message, sizeof r->report.message, "%.250s", message);
}

/* Why has been said. */
static void runner_never_starts(struct runner *r)
{
    r->report.never_started = true;
    r->report.ready = false;
    r->report.exit_code = 126;
    runner_seal(r);
}

static void runner_begin_end(struct runner *r, int signo, uint64_t kill_at_ms)
{
    if (r->state == RS_PREPARING || r->state == RS_WAITING) {
        if (!r->report.message[0])
            runner_say(r, "", "it was stopped before it started");
        runner_never_starts(r);
        return;
    }
    if (r->state == RS_ENDING) {
        if (kill_at_ms < r->kill_at_ms)
            r->kill_at_ms = kill_at_ms;
        runner_tell_deadline(r);
        runner_ask_to_end(r, signo);
        return;
    }
    if (r->state != RS_RUNNING)
        return;
    r->state = RS_ENDING;
    if (r->keeper)
        keeper_pause(r->keeper);
    r->kill_at_ms = kill_at_ms;
    runner_tell_deadline(r);
    r->report.step = RUN_STEP_ENDING;
    runner_ask_to_end(r, signo);
    runner_tell(r, NULL);
}

void runner_stop(struct runner *r, int signo, uint64_t grace_ms)
{
    if (signo <= 0 || signo > 64)
        signo = SIGTERM;
    if (r->state <= RS_ENDING && !r->report.stopped) {
        r->report.stopped = true;
        r->stopped_wall_ms = loop_wall_ms(r->loop);
        r->step_when_stopped = r->report.checkpoint.present ? r->report.checkpoint.step : -1;
        r->cfg.os->ops->will_flag(r->cfg.os, r->cfg.will, WILL_STOPPED);
    }
    runner_begin_end(r, signo, loop_now_ms(r->loop) + grace_ms);
    timer_start(&r->tick, 0);
}

void runner_signal(struct runner *r, int signo)
{
    if (program_lives(r))
        process_signal(r->program, signo);
}

/* Has the program exited? Looked at without reaping it: from its exit to end.json there is no
 * moment in which only this process knows how it ended. */
static void runner_look(struct runner *r)
{
    int code, signo;

    if (!program_lives(r) ||
        !r->cfg.os->ops->exit_seen(r->cfg.os, process_pid(r->program), &code, &signo))
        return;
    r->exited = true;
    r->report.ended_ms = loop_wall_ms(r->loop);
    FAILPOINT("shim.exit.before");
    /* We have stood still, and our guard has ended it. */
    if (r->lease_until_ms && loop_now_ms(r->loop) >= r->lease_until_ms)
        run_report_lease_lost(&r->report);
    if (r->cfg.memory_bytes && (code || signo) && !r->report.stopped && !r->report.lease_lost &&
        r->cfg.os->ops->group_hit_memory(r->cfg.os, r->cfg.group)) {
        str_copy(r->report.reason, sizeof r->report.reason, end_text(END_OUT_OF_MEMORY));
        (void)snprintf(r->report.message, sizeof r->report.message,
                       "it needed more than its %lld MiB of memory (spec.resources.memory)",
                       (long long)(r->cfg.memory_bytes >> 20));
    }
    if (signo == SIGKILL && r->cfg.os->ops->keeper_died(r->cfg.os, r->cfg.will))
        run_report_keeper_died(&r->report);
    run_report_exit(&r->report, code, signo);
    if (r->cfg.dir)
        run_report_exited(r->loop, r->cfg.dir, &r->report);
    FAILPOINT("shim.exit.after");
    if (r->cfg.exited)
        r->cfg.exited(r->cfg.arg);
}

static void child_ended(void *arg)
{
    runner_look_again(arg);
}

static size_t tenant_argv(const struct runner *r, struct arena *m, const char **argv)
{
    const char *const more[] = {
        "--user",  arena_printf(m, "%u:%u", r->cfg.tenant.uid, r->cfg.tenant.gid),
        "--state", r->cfg.tenant.state,
        "--dir",   r->cfg.dir,
        "--save",  r->keeper ? keeper_dir(r->keeper) : "",
        "--view",  r->keeper ? keeper_resume(r->keeper) : ""};

    memcpy(argv, more, sizeof more);
    return sizeof more / sizeof *more;
}

static int runner_spawn(struct runner *r, struct err *err)
{
    struct runner_os *os = r->cfg.os;
    const char *argv[LIMIT_GANG_MAX];
    char parent[32];
    size_t n = 0;
    AUTO_ARENA m = arena_create(0);

    if (run_report_late(&r->report, loop_wall_ms(r->loop), r->cfg.start_from_ms,
                        r->cfg.start_by_ms))
        return err_set(err, E_STALE, "%s", r->report.message);
    if (!*os->ops->program(os))
        return err_set(err, E_IO, "/proc is not mounted here: a run needs it");
    (void)snprintf(parent, sizeof parent, "%lld", (long long)os->ops->self(os));
    const char *const head[] = {os->ops->program(os),
                                "run",
                                "--enter",
                                "--parent",
                                parent,
                                "--group",
                                r->cfg.group,
                                "--processes",
                                run_processes_text(r->cfg.held),
                                "--will",
                                r->cfg.will};
    for (; n < sizeof head / sizeof *head; n++)
        argv[n] = head[n];
    if (r->cfg.tenant.uid)
        n += tenant_argv(r, m, argv + n);
    argv[n++] = "--";
    for (const char *const *a = r->cfg.argv; *a; a++) {
        if (n + 1 == sizeof argv / sizeof *argv)
            return err_set(err, E_TOOLARGE, "the command has too many arguments");
        argv[n++] = *a;
    }
    argv[n] = NULL;
    const char *log = r->cfg.log_path;
    struct process_spec spec = {.argv = argv,
                                .env = runner_env(r, m),
                                .cwd = r->cfg.cwd,
                                .stdout_path = log ? log : PROCESS_OWN,
                                .stderr_path = log ? log : PROCESS_OWN,
                                .session = true,
                                .kept = true};
    int rc = process_spawn(r->loop, &spec, NULL, NULL, &r->program, err);
    if (rc == 0) {
        r->report.started_ms = loop_wall_ms(r->loop);
        r->report.pid = process_pid(r->program);
    }
    return rc;
}

/* ---- the tick ---- */
static uint64_t lease_soft_end(const struct runner *r)
{
    return r->lease_until_ms - pace_save_ms(r->cfg.lease_ms, r->cfg.grace_ms);
}

/* Has the lease run out? Else the tick comes again when it does. */
static bool runner_lease(struct runner *r, uint64_t now)
{
    if (!r->lease_until_ms)
        return false;
    if (now < lease_soft_end(r)) {
        timer_start(&r->tick, lease_soft_end(r) - now);
        return false;
    }
    if (!r->report.lease_lost)
        r->cfg.os->ops->will_flag(r->cfg.os, r->cfg.will, WILL_LEASE_LOST);
    run_report_lease_lost(&r->report);
    runner_begin_end(r, SIGTERM, r->lease_until_ms);
    timer_start(&r->tick, 0);
    return true;
}

static bool is_no_orphan(int64_t pid, void *arg)
{
    const struct runner *r = arg;
    bool helper = r->cfg.own && r->cfg.own(pid, r->cfg.arg);

    return helper || (r->program && process_pid(r->program) == pid);
}

static void tick_running(struct runner *r, uint64_t now)
{
    struct runner_tree t = runner_tree(r);

    if (!program_lives(r)) {
        uint64_t grace =
            r->cfg.grace_ms < LEFTOVER_GRACE_MAX_MS ? r->cfg.grace_ms : LEFTOVER_GRACE_MAX_MS;
        if (r->cfg.os->ops->tree_process_count(r->cfg.os, &t) != 0)
            (void)r->cfg.os->ops->tree_signal(r->cfg.os, &t, SIGTERM);
        runner_begin_end(r, 0, now + grace);
        timer_start(&r->tick, 0);
        return;
    }
    /* What it has started and left alone has come to us, and ends while it goes on. */
    (void)r->cfg.os->ops->orphans_reap(r->cfg.os, is_no_orphan, r);
    (void)runner_lease(r, now);
}

/* The working directory is named by the workload: only it can mend that, and nothing has begun. */
static void not_spawned(struct runner *r, const struct err *err)
{
    if (r->report.never_started) { /* it was too late */
        runner_never_starts(r);
        return;
    }
    if (!strcmp(err->field, "cwd")) {
        runner_say(r, end_text(END_RUN_DENIED), err->text);
        runner_never_starts(r);
        return;
    }
    r->report.exit_code = 126;
    runner_say(r, end_text(END_START_FAILED), err->text);
    runner_seal(r);
}

static void tick_preparing(struct runner *r, uint64_t now)
{
    const struct err *why = r->keeper ? keeper_why(r->keeper) : NULL;
    struct err err;

    if (!r->keeper) {
        runner_never_starts(r); /* it was too late when it came */
        return;
    }
    if (runner_lease(r, now))
        return;
    if (keeper_state(r->keeper) == KEEPER_FAILED) {
        runner_say(r, why->code == E_CHECKPOINT ? why->field : CHECKPOINT_UNREACHABLE, why->text);
        runner_never_starts(r);
    } else if (keeper_state(r->keeper) == KEEPER_READY && r->cfg.checkpoints.wait_go && !r->go) {
        if (r->state == RS_WAITING)
            return;
        r->state = RS_WAITING;
        r->report.ready = true;
        runner_tell(r, NULL);
    } else if (keeper_state(r->keeper) == KEEPER_READY) {
        if (runner_spawn(r, &err) < 0) {
            not_spawned(r, &err);
            return;
        }
        FAILPOINT("shim.start.after");
        r->state = RS_RUNNING;
        r->report.step = RUN_STEP_RUNNING;
        r->report.ready = false;
        runner_tell(r, NULL);
        timer_start(&r->tick, 0);
    }
}

static void tick_sealing(struct runner *r)
{
    const struct err *unsealed = keeper_unsealed(r->keeper);
    char was[sizeof r->report.message];

    if (keeper_state(r->keeper) != KEEPER_SETTLED)
        return;
    r->report.stuck = keeper_stuck(r->keeper);
    if (unsealed->code && !r->report.reason[0]) {
        memcpy(was, r->report.message, sizeof was);
        str_copy(r->report.reason, sizeof r->report.reason, end_text(END_NOT_SEALED));
        (void)snprintf(r->report.message, sizeof r->report.message,
                       "%.60s%sits last checkpoint was not taken: %.150s", was, *was ? "; " : "",
                       unsealed->text);
    }
    if (!unsealed->code)
        run_report_saved(&r->report, keeper_newest(r->keeper), r->step_when_stopped,
                         r->stopped_wall_ms);
    runner_finish(r);
}

static void runner_tick(void *arg)
{
    struct runner *r = arg;
    uint64_t now = loop_now_ms(r->loop);
    struct runner_tree t = runner_tree(r);
    bool look;
    int left;

    runner_look(r);
    runner_take_kept(r);
    switch (r->state) {
    case RS_PREPARING:
    case RS_WAITING:
        tick_preparing(r, now);
        return;
    case RS_RUNNING:
        tick_running(r, now);
        return;
    case RS_ENDING:
        left = program_lives(r) ? 1 : r->cfg.os->ops->tree_process_count(r->cfg.os, &t);
        look = !runner_asked_to_end(r) || !program_lives(r);
        if (left == 0) {
            runner_seal(r);
        } else if (now >= r->kill_at_ms) {
            r->state = RS_KILLING;
            timer_start(&r->tick, 0);
        } else { /* its exit wakes us; the rest of the tree has to be looked for */
            uint64_t wait = r->kill_at_ms - now;
            timer_start(&r->tick, look && wait > TREE_POLL_MS ? TREE_POLL_MS : wait);
        }
        return;
    case RS_KILLING:
        (void)r->cfg.os->ops->tree_signal(r->cfg.os, &t, SIGKILL);
        left = r->cfg.os->ops->tree_process_count(r->cfg.os, &t);
        if (left == 0 && !program_lives(r))
            runner_seal(r);
        else
            timer_start(&r->tick, TREE_POLL_MS);
        return;
    case RS_SEALING:
        tick_sealing(r);
        return;
    case RS_GONE:
        if (!r->written)
            runner_finish(r);
        return;
    }
}

/* ---- the start ---- */
/* Listens first and looks for end.json after: the agent writes end.json first and dials after.
 * Either it finds us, or we find that we were given up; never both go on. */
static int runner_open(struct runner *r, struct err *err)
{
    char path[4096], address[256];
    struct err why;
    AUTO_BUF b;
    int port, rc;

    buf_init(&b, WIRE_REPORT_MAX);
    if (!r->cfg.dir)
        return 0;
    (void)snprintf(path, sizeof path, "%s/lock", r->cfg.dir);
    rc = file_lock(r->loop, path, err);
    if (rc < 0)
        return err_prefix(err, "this worker has a runner already: ");
    rc = file_remove(r->loop, r->cfg.socket_path, err);
    if (rc < 0)
        return rc;
    (void)snprintf(address, sizeof address, "unix:%s", r->cfg.socket_path);
    rc = listener_create(r->loop, address, NULL, runner_accept, r, &r->listener, &port, err);
    if (rc < 0)
        return rc;
    (void)snprintf(path, sizeof path, "%s/" RUN_END_FILE, r->cfg.dir);
    if (file_read(r->loop, path, 8192, &b, &why) != E_NOTFOUND)
        return err_set(err, E_EXISTS, "this worker has been declared ended: %s", path);
    return r->cfg.os->ops->will_begin(r->cfg.os, r->cfg.will, err);
}

static void runner_kept(void *arg)
{
    runner_look_again(arg);
}

int runner_create(struct loop *l, const struct runner_config *cfg, struct runner **ret,
                  struct err *err)
{
    struct runner *r = mem_new(struct runner);
    uint64_t now = loop_now_ms(l);
    int rc;

    r->loop = l;
    r->cfg = *cfg;
    r->report.step = RUN_STEP_STARTING;
    r->report.grant = cfg->borrows; /* the first of all, of no length */
    list_init(&r->links);
    timer_init(&r->tick, l, runner_tick, r);
    timer_init(&r->mark, l, runner_mark, r);
    if (cfg->lease_ms) {
        uint64_t from = cfg->lease_from_ms && cfg->lease_from_ms < now ? cfg->lease_from_ms : now;
        r->cfg.lease_from_ms = from;
        r->lease_until_ms = from + cfg->lease_ms;
        r->report.grant = 1;
        r->report.lease_ms = cfg->lease_ms;
        if (now >= lease_soft_end(r)) {
            rc = err_set(err, E_STALE, "the lease was over before the program could start");
            goto fail;
        }
    }
    rc = cfg->os->ops->adopt_orphans(cfg->os, err);
    if (rc == 0)
        rc = runner_open(r, err);
    if (rc == 0)
        rc = loop_signal(l, SIGCHLD, child_ended, r, err);
    if (rc < 0)
        goto fail;
    runner_tell_deadline(r); /* ahead of the program */
    if (cfg->checkpoints.base && *cfg->checkpoints.base) {
        r->keeper = keeper_create(l, &cfg->checkpoints, runner_kept, r);
    } else {
        rc = runner_spawn(r, err);
        if (rc < 0 && !r->report.never_started)
            goto fail;
        r->state = rc < 0 ? RS_PREPARING : RS_RUNNING;
        r->report.step = rc < 0 ? RUN_STEP_STARTING : RUN_STEP_RUNNING;
    }
    runner_tell(r, NULL);
    timer_start(&r->tick, 0);
    r->output = output_writer_create(cfg->log_path, LIMIT_LOG_FILE_MAX_BYTES);
    runner_mark(r);
    *ret = r;
    return 0;
fail:
    (void)!loop_signal(l, SIGCHLD, NULL, NULL, NULL);
    if (r->listener)
        listener_close(r->listener);
    mem_free(r);
    return rc;
}
