/* The report of one worker, which the shim sends on its socket and leaves behind in end.json. */
#include "api/base/failpoint.h"
#include "api/base/log.h"
#include "connectors/shim/shim.h"

#include <stdio.h>

int run_report_print(const struct run_report *r, struct buf *out, struct err *err)
{
    return body_print_json(&schema_run_report, r, out, err);
}

int run_report_write(struct loop *l, const char *path, const struct run_report *r, struct err *err)
{
    AUTO_BUF b;

    buf_init(&b, WIRE_REPORT_MAX);
    int rc = run_report_print(r, &b, err);
    return rc < 0 ? rc : file_write(l, path, b.p, b.n, 0600, err);
}

int run_report_parse(const void *p, size_t n, struct run_report *ret, struct err *err)
{
    AUTO_ARENA a = arena_create(0);
    struct run_report *r = NULL;
    int rc = wire_read(run_report, slice_make(p, n), a, &r, err);

    if (rc < 0)
        return err_set(err, E_CORRUPT, "a runner's report cannot be read");
    *ret = *r;
    return 0;
}

void run_report_exit(struct run_report *r, int exit_code, int term_signal)
{
    r->exit_code = exit_code;
    r->term_signal = term_signal;
    if (!r->reason[0] && term_signal)
        (void)snprintf(r->message, sizeof r->message, "killed by signal %d", term_signal);
    else if (!r->reason[0] && exit_code)
        (void)snprintf(r->message, sizeof r->message, "exit status %d", exit_code);
}

void run_report_keeper_died(struct run_report *r)
{
    if (r->stopped || r->lease_lost || r->reason[0])
        return;
    str_copy(r->reason, sizeof r->reason, end_text(END_RUNNER_KILLED));
    (void)snprintf(r->message, sizeof r->message,
                   "its keeper or the first process of its namespace was killed, and the program "
                   "with it");
}

/* Also when guard and agent die with us, or the machine does: the next agent finds it. */
void run_report_exited(struct loop *l, const char *dir, const struct run_report *r)
{
    struct run_report note = *r;
    char path[4096];
    struct err err;

    note.step = RUN_STEP_ENDED;
    (void)snprintf(path, sizeof path, "%s/" RUN_EXIT_FILE, dir);
    if (run_report_write(l, path, &note, &err) < 0)
        log_err(LOG_WARN, "run.exit_record", &err); /* the kernel has it still */
}

#define FILE_TIME_MS 50 /* how far the time of a file may be behind the clock */

void run_report_saved(struct run_report *r, const struct checkpoint_sealed *newest, int64_t step,
                      int64_t asked_wall_ms)
{
    if (!r->stopped || r->reason[0] || r->term_signal || r->exit_code != 1 || !newest->present ||
        newest->step <= step || newest->writtenAt + FILE_TIME_MS < asked_wall_ms)
        return;
    str_copy(r->reason, sizeof r->reason, end_text(END_SAVED));
    (void)snprintf(r->message, sizeof r->message,
                   "exit status 1, after it was asked to stop and had saved step %lld",
                   (long long)newest->step);
}

void run_report_lease_lost(struct run_report *r)
{
    r->lease_lost = true;
    str_copy(r->reason, sizeof r->reason, end_text(END_LEASE_LOST));
    (void)snprintf(r->message, sizeof r->message,
                   "the lease was not renewed in time: stopped by its own runner");
}

bool run_report_late(struct run_report *r, int64_t wall_ms, int64_t from_ms, int64_t by_ms)
{
    bool late = by_ms && wall_ms > by_ms && !PLANTED("run.starts-late");
    bool wrong = from_ms && wall_ms < from_ms;

    if (!late && !wrong)
        return false;
    r->never_started = true;
    r->exit_code = 126;
    str_copy(r->reason, sizeof r->reason, end_text(late ? END_STARTED_TOO_LATE : END_CLOCK_WRONG));
    if (late)
        (void)snprintf(r->message, sizeof r->message,
                       "it was to be started %lld s ago at the latest, and may have been given up: "
                       "it is not started",
                       (long long)((wall_ms - by_ms + 999) / 1000));
    else
        (void)snprintf(r->message, sizeof r->message,
                       "by the clock of this machine it was ordered in %lld s from now: that clock "
                       "is wrong, and by when it may start cannot be told",
                       (long long)((from_ms - wall_ms + 999) / 1000));
    return true;
}
