/* Logs, exec and forwarded ports: from the API's backend table to the connector of the run. Only
 * the leader has connectors. */
#include "controlplane/leader/site/sites.h"

#include <stdio.h>

#define OPEN_MS 20000 /* for a target to open a stream */

struct brain_session {
    struct connector *connector;
    struct exec_session *session;
    struct api_stream_sink sink;
    bool ended, closed;
    struct loop *loop;
};

static void session_free(void *arg)
{
    mem_free(arg);
}
static void on_opened(void *arg)
{
    struct brain_session *s = arg;

    if (!s->closed && s->sink.opened)
        s->sink.opened(s->sink.arg);
}
static void on_data(int fd, const void *p, size_t n, void *arg)
{
    struct brain_session *s = arg;

    if (!s->closed)
        s->sink.data(fd, p, n, s->sink.arg);
}
static void on_end(int exit_code, const struct err *err, void *arg)
{
    struct brain_session *s = arg;

    s->ended = true;
    s->sink.end(exit_code, err, s->sink.arg);
}
static void on_eof(void *arg)
{
    struct brain_session *s = arg;

    if (!s->closed && s->sink.eof)
        s->sink.eof(s->sink.arg);
}
static bool on_full(void *arg)
{
    struct brain_session *s = arg;

    return !s->closed && s->sink.full && s->sink.full(s->sink.arg);
}

static int run_find(struct brain *b, const struct api_exec *e, struct run_key *key,
                    struct site **ret_site, struct err *err)
{
    if (!b->leads)
        return err_set(err, E_UNAVAIL, "this member does not lead; ask the leader");
    const struct object *o = root_get(b->root, KIND_WORKLOAD, e->ns, e->workload);
    if (!o)
        return err_set(err, E_NOTFOUND, "workload %s/%s does not exist", e->ns, e->workload);
    const struct workload_status *s = object_as(o, workload)->status;
    if (workload_array(object_as(o, workload)))
        return err_set(err, E_CONFLICT,
                       "workload %s/%s is an array: ask one of its indexes, such as %s-0", e->ns,
                       e->workload, e->workload);
    const char *target = s && s->placement ? s->placement->target
                         : s && s->n_ends  ? s->ends[s->n_ends - 1].target
                                           : "";
    if (!*target)
        return err_set(err, E_CONFLICT, "workload %s/%s has not run yet (%s: %s)", e->ns,
                       e->workload, s ? phase_text(s->phase) : "new", s ? s->message : "");
    struct site *t = site_find(b, target);
    if (!t || !t->connector || !t->reachable)
        return err_set(err, E_UNAVAIL, "target %s is out of reach: %s", target,
                       t ? t->why : "it was removed");
    str_copy(key->uid, sizeof key->uid, o->meta->uid);
    key->epoch = s->epoch;
    key->try_ = s->intent ? s->intent->try_ : 0; /* 0 = whichever try ran last in this epoch */
    const struct connector_ops *ops = t->connector->ops;
    if (e->port ? !ops->forward : e->argv ? !ops->exec : !ops->logs)
        return err_set(err, E_NOTIMPL,
                       "target %s is of type %s, which has no %s: where its programs run, they can "
                       "be looked at",
                       target, ops->type,
                       e->port   ? "forwarded ports"
                       : e->argv ? "exec"
                                 : "logs");
    *ret_site = t;
    return 0;
}

int brain_exec(struct brain *b, const struct api_exec *e, const struct api_stream_sink *sink,
               struct brain_session **ret, struct err *err)
{
    struct run_key key;
    struct site *t = NULL;
    int rv = run_find(b, e, &key, &t, err);

    if (rv)
        return rv;
    INV(t);
    struct brain_session *s = mem_new(struct brain_session);
    *s = (struct brain_session){.connector = t->connector, .sink = *sink, .loop = b->loop};
    const struct log_sink ls = {.opened = on_opened,
                                .data = on_data,
                                .end = on_end,
                                .full = on_full,
                                .eof = on_eof,
                                .arg = s};
    const uint64_t by_ms = loop_now_ms(b->loop) + OPEN_MS;
    if (e->port) {
        struct forward_request rq = {.rank = e->rank, .port = e->port, .deadline_ms = by_ms};
        rv = t->connector->ops->forward(t->connector, &key, &rq, &ls, &s->session, err);
    } else if (e->argv) {
        struct exec_request rq = {.rank = e->rank,
                                  .argv = e->argv,
                                  .tty = e->tty,
                                  .with_stdin = e->with_stdin,
                                  .size = {.rows = e->rows, .columns = e->columns},
                                  .deadline_ms = by_ms};
        rv = t->connector->ops->exec(t->connector, &key, &rq, &ls, &s->session, err);
    } else {
        struct log_request rq = {.rank = e->rank,
                                 .follow = e->follow,
                                 .tail_lines = e->tail_lines,
                                 .timestamps = e->timestamps,
                                 .since_span_ms = e->since_span_ms,
                                 .since_ms = e->since_ms,
                                 .deadline_ms = by_ms};
        rv = t->connector->ops->logs(t->connector, &key, &rq, &ls, &s->session, err);
    }
    if (rv) {
        mem_free(s);
        return rv;
    }
    *ret = s;
    return 0;
}

void brain_exec_resize(struct brain_session *s, int64_t rows, int64_t columns)
{
    const struct exec_size size = {.rows = rows, .columns = columns};

    if (!s->ended && s->connector->ops->exec_resize)
        s->connector->ops->exec_resize(s->session, &size);
}

void brain_exec_input(struct brain_session *s, const void *p, size_t n, bool eof)
{
    if (!s->ended && s->connector->ops->exec_input) /* a driver may have logs alone */
        s->connector->ops->exec_input(s->session, p, n, eof);
}

size_t brain_exec_pending(const struct brain_session *s)
{
    const struct connector_ops *ops = s->connector->ops;

    return s->ended || !ops->exec_pending ? 0 : ops->exec_pending(s->session);
}

void brain_exec_close(struct brain_session *s)
{
    if (s->closed)
        return;
    s->closed = true;
    if (!s->ended)
        s->connector->ops->exec_close(s->session); /* no end comes after this */
    loop_post(s->loop, session_free, s);
}
