/* Logs, exec and forwarded ports: from the API's backend table to the connector of the run. Only
 * the leader has connectors. Logs that the target does not have (any more), or does not open, are
 * read from the store that they went to (logs/). */
#include "controlplane/leader/logs/logs.h"
#include "controlplane/leader/site/sites.h"

#include <stdio.h>

#define OPEN_MS 20000 /* for a target to open a stream */

struct brain_session {
    struct connector *connector; /* NULL: `view` has it */
    struct exec_session *session;
    struct kept_view *view;
    struct api_stream_sink sink;
    bool opened, ended, closed;
    struct loop *loop;
    struct brain *brain;
    bool kept;        /* it asks for logs that go to a store, */
    struct api_exec asked; /* in these words; texts are below */
    char ns[64], workload[256];
};

static void on_end(int exit_code, const struct err *err, void *arg);

static void session_free(void *arg)
{
    mem_free(arg);
}
static void on_opened(void *arg)
{
    struct brain_session *s = arg;

    s->opened = true;
    if (!s->closed && s->sink.opened)
        s->sink.opened(s->sink.arg);
}
static void on_data(int fd, const void *p, size_t n, void *arg)
{
    struct brain_session *s = arg;

    if (!s->closed)
        s->sink.data(fd, p, n, s->sink.arg);
}
static void on_eof(void *arg)
{
    struct brain_session *s = arg;

    if (!s->closed && s->sink.eof)
        s->sink.eof(s->sink.arg);
}
static bool on_full(void *arg)
{
    const struct brain_session *s = arg;

    return !s->closed && s->sink.full && s->sink.full(s->sink.arg);
}
static struct log_sink sink_of(struct brain_session *s)
{
    return (struct log_sink){.opened = on_opened,
                             .data = on_data,
                             .end = on_end,
                             .full = on_full,
                             .eof = on_eof,
                             .arg = s};
}

/* The target has nothing to show, or cannot be asked: its store may have it. */
static bool kept_instead(struct brain_session *s, int code)
{
    const struct log_sink ls = sink_of(s);
    const struct object *o = NULL;

    if (!s->kept || (code != E_NOTFOUND && code != E_UNAVAIL && code != E_CONNECT &&
                     code != E_TIMEOUT && code != E_NOTIMPL))
        return false;
    s->kept = false;
    if (s->brain->leads)
        o = root_get(s->brain->root, KIND_WORKLOAD, s->ns, s->workload);
    if (!o || !kept_view_possible(o) ||
        kept_view_open(s->brain, o, &s->asked, &ls, &s->view, NULL) < 0)
        return false;
    s->connector = NULL;
    return true;
}

static void on_end(int exit_code, const struct err *err, void *arg)
{
    struct brain_session *s = arg;

    if (!s->opened && !s->closed && err && kept_instead(s, err->code))
        return;
    s->ended = true;
    s->sink.end(exit_code, err, s->sink.arg);
}
/* What ran last, and where. */
static int run_find(struct brain *b, const struct api_exec *e, const struct object **ret,
                    struct run_key *key, const char **ret_target, struct err *err)
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
    str_copy(key->uid, sizeof key->uid, o->meta->uid);
    key->epoch = s->epoch;
    key->try_ = s->intent ? s->intent->try_ : 0; /* 0 = whichever try ran last in this epoch */
    *ret = o;
    *ret_target = target;
    return 0;
}

static int site_asked(struct brain *b, const char *target, const struct api_exec *e,
                      struct connector **ret, struct err *err)
{
    struct site *t = site_find(b, target);

    if (!t || !t->connector || !t->reachable)
        return err_set(err, E_UNAVAIL, "target %s is out of reach: %s", target,
                       t ? t->why : "it was removed");
    const struct connector_ops *ops = t->connector->ops;
    if (e->port ? !ops->forward : e->argv ? !ops->exec : !ops->logs)
        return err_set(err, E_NOTIMPL,
                       "target %s is of type %s, which has no %s: where its programs run, they can "
                       "be looked at",
                       target, ops->type,
                       e->port   ? "forwarded ports"
                       : e->argv ? "exec"
                                 : "logs");
    *ret = t->connector;
    return 0;
}

static int stream_open(struct brain_session *s, const struct run_key *key,
                       const struct api_exec *e, struct err *err)
{
    const struct log_sink ls = sink_of(s);
    const uint64_t by_ms = loop_now_ms(s->loop) + OPEN_MS;
    struct connector *c = s->connector;

    if (e->port) {
        struct forward_request rq = {.rank = e->rank, .port = e->port, .deadline_ms = by_ms};
        return c->ops->forward(c, key, &rq, &ls, &s->session, err);
    }
    if (e->argv) {
        struct exec_request rq = {.rank = e->rank,
                                  .argv = e->argv,
                                  .tty = e->tty,
                                  .with_stdin = e->with_stdin,
                                  .size = {.rows = e->rows, .columns = e->columns},
                                  .deadline_ms = by_ms};
        return c->ops->exec(c, key, &rq, &ls, &s->session, err);
    }
    struct log_request rq = {.rank = e->rank,
                             .follow = e->follow,
                             .tail_lines = e->tail_lines,
                             .timestamps = e->timestamps,
                             .since_span_ms = e->since_span_ms,
                             .since_ms = e->since_ms,
                             .deadline_ms = by_ms};
    return c->ops->logs(c, key, &rq, &ls, &s->session, err);
}

int brain_exec(struct brain *b, const struct api_exec *e, const struct api_stream_sink *sink,
               struct brain_session **ret, struct err *err)
{
    struct run_key key = {0};
    const struct object *o = NULL;
    const char *target = "";
    int rv = run_find(b, e, &o, &key, &target, err);

    if (rv)
        return rv;
    struct brain_session *s = mem_new(struct brain_session);
    *s = (struct brain_session){.sink = *sink, .loop = b->loop, .brain = b, .asked = *e};
    str_copy(s->ns, sizeof s->ns, e->ns);
    str_copy(s->workload, sizeof s->workload, e->workload);
    s->asked.ns = s->ns;
    s->asked.workload = s->workload;
    s->asked.who = NULL;
    s->asked.argv = NULL;
    s->kept = !e->port && !e->argv && kept_view_possible(o);
    rv = site_asked(b, target, e, &s->connector, err);
    if (rv == 0)
        rv = stream_open(s, &key, e, err);
    if (rv && !kept_instead(s, rv)) {
        mem_free(s);
        return rv;
    }
    *ret = s;
    return 0;
}

void brain_exec_resize(struct brain_session *s, int64_t rows, int64_t columns)
{
    const struct exec_size size = {.rows = rows, .columns = columns};

    if (!s->ended && s->connector && s->connector->ops->exec_resize)
        s->connector->ops->exec_resize(s->session, &size);
}

void brain_exec_input(struct brain_session *s, const void *p, size_t n, bool eof)
{
    const struct connector_ops *ops = s->connector ? s->connector->ops : NULL;

    if (!s->ended && ops && ops->exec_input) /* a driver may have logs alone */
        ops->exec_input(s->session, p, n, eof);
}

size_t brain_exec_pending(const struct brain_session *s)
{
    const struct connector_ops *ops = s->connector ? s->connector->ops : NULL;

    return s->ended || !ops || !ops->exec_pending ? 0 : ops->exec_pending(s->session);
}

void brain_exec_close(struct brain_session *s)
{
    if (s->closed)
        return;
    s->closed = true;
    if (!s->ended && s->view)
        kept_view_close(s->view);
    else if (!s->ended)
        s->connector->ops->exec_close(s->session); /* no end comes after this */
    loop_post(s->loop, session_free, s);
}
