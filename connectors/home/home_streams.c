/* The hub's side of what streams through the sessions of runners that call home
 * (connectors/streams): whose it is, and why it cannot be had. A stream belongs to the session in
 * which it was opened: what a runner says of others is not heard. */
#include "connectors/home/home_internal.h"

#include <stdio.h>

#define INPUT_MAX 65536 /* on the session, before who types waits: renewals go by it */
#define TARGET_MAX 1024 /* streams of one target */

void home_streams_init(struct home_session *x)
{
    char who[sizeof x->streams.who];

    (void)snprintf(who, sizeof who, "the runner of rank %lld", (long long)x->rank);
    asked_init(&x->streams, x->run->home->loop, who, INPUT_MAX);
}

int home_stream_frame(struct home_session *x, const struct frame *f, struct err *err)
{
    if (f->id == 0 || f->id > x->run->home->next_stream)
        return err_set(err, E_INVALID, "nobody ever opened stream %llu",
                       (unsigned long long)f->id);
    asked_frame(&x->streams, f);
    return 0;
}

/* ---- asking ---- */
static unsigned streams_count(const struct home_runs *h)
{
    unsigned n = 0;

    list_for_each (it, &h->all)
        list_for_each (jt, &container_of(it, struct home_run, link)->sessions)
            n += container_of(jt, struct home_session, link)->streams.n;
    return n;
}

/* The session with the runner of that rank, which is here. */
static int session_here(const struct home_runs *h, const struct run_key *k, int64_t rank,
                        bool of_logs, struct home_session **ret, struct err *err)
{
    const struct home_run *r = home_run_newest(h, k);
    struct home_session *x = r ? home_session_find(r, rank) : NULL;
    const char *log = of_logs ? ", and its log went with it: there is what its target keeps of its "
                                "output"
                              : "";

    if (r && (rank < 0 || rank >= r->ranks))
        return err_set(err, E_NOTFOUND, "there is no rank %lld: the run has %lld workers",
                       (long long)rank, (long long)r->ranks);
    if (x && !x->stream && x->report.step == RUN_STEP_ENDED)
        return err_set(err, of_logs ? E_NOTFOUND : E_CONFLICT,
                       "the runner of rank %lld has ended%s", (long long)rank, log);
    if (!x || !x->stream)
        return err_set(err, E_UNAVAIL,
                       "the runner of rank %lld is not here: it has ended, or does not reach this "
                       "hub%s",
                       (long long)rank, of_logs ? "; its target may keep what it prints" : "");
    if (streams_count(h) >= TARGET_MAX)
        return err_set(err, E_LIMIT,
                       "more than %d logs, execs and forwarded ports at a time of one target",
                       TARGET_MAX);
    *ret = x;
    return 0;
}

int home_runs_logs(struct home_runs *h, const struct run_key *k, const struct log_request *rq,
                   const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    struct home_session *x = NULL;
    int rc = session_here(h, k, rq->rank, true, &x, err);

    if (rc < 0)
        return rc;
    if (!x->logs)
        return err_set(err, E_NOTIMPL,
                       "the runner of rank %lld keeps no log: it is of an older version, or had no "
                       "folder for one",
                       (long long)rq->rank);
    return asked_logs(&x->streams, ++h->next_stream, &x->run->key, rq, sink, ret, err);
}

/* Of a program that runs: also its runner asks that again. */
static int session_beside(const struct home_runs *h, const struct run_key *k, int64_t rank,
                          struct home_session **ret, struct err *err)
{
    int rc = session_here(h, k, rank, false, ret, err);

    if (rc < 0)
        return rc;
    if (!(*ret)->execs)
        return err_set(err, E_NOTIMPL,
                       "the runner of rank %lld puts no command beside its program and forwards no "
                       "port: it is of an older version, or had no folder for the socket that this "
                       "needs",
                       (long long)rank);
    if ((*ret)->report.step != RUN_STEP_RUNNING)
        return err_set(err, E_CONFLICT, "worker %lld does not run at the moment", (long long)rank);
    return 0;
}

int home_runs_exec(struct home_runs *h, const struct run_key *k, const struct exec_request *rq,
                   const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    struct home_session *x = NULL;
    int rc = session_beside(h, k, rq->rank, &x, err);

    return rc < 0 ? rc
                  : asked_exec(&x->streams, ++h->next_stream, &x->run->key, rq, sink, ret, err);
}

int home_runs_forward(struct home_runs *h, const struct run_key *k,
                      const struct forward_request *rq, const struct log_sink *sink,
                      struct exec_session **ret, struct err *err)
{
    struct home_session *x = NULL;
    int rc = session_beside(h, k, rq->rank, &x, err);

    return rc < 0 ? rc
                  : asked_forward(&x->streams, ++h->next_stream, &x->run->key, rq, sink, ret, err);
}
