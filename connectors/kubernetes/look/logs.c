/* Logs of pods through the API server, as their kubelets keep them. A kubelet that is asked to
 * follow a silent program answers nothing at all, so it is asked for one byte first: that tells
 * whether it can be had, and opens it. Where a followed log ends and its program does not, that is
 * said. */
#include "connectors/kubernetes/look/look_internal.h"

#include <stdio.h>
#include <string.h>

#define END_LOOK_MS 250
#define END_LOOKS 20 /* so often, before a log has ended ahead of its program */

struct kube_log {
    struct kube_seen_stream stream; /* first */
    struct run_key key;
    int64_t rank;
    bool follows, paused;
    struct arena *a;
    const char *path; /* of what is wanted */
    struct kube_request *rq;
    unsigned looks;
    struct timer open, room, ends;
};

static struct kube_log *log_of(struct kube_seen_stream *s)
{
    return container_of(s, struct kube_log, stream);
}

static void log_free(struct kube_seen_stream *s)
{
    struct kube_log *x = log_of(s);

    kube_stream_forget(s);
    timer_stop(&x->open);
    timer_stop(&x->room);
    timer_stop(&x->ends);
    if (x->rq)
        kube_cancel(x->rq);
    (void)arena_destroy(x->a);
    mem_free(x);
}

static void failed(struct kube_log *x, const struct kube_answer *a)
{
    struct err err = *a->err;

    if (a->status == 403)
        kube_right_name(&err);
    kube_stream_end(&x->stream, 1, &err);
}

/* ---- what is wanted ---- */
static void on_room(void *arg)
{
    struct kube_log *x = arg;

    if (x->stream.sink.full(x->stream.sink.arg)) {
        timer_start(&x->room, KUBE_ROOM_MS);
        return;
    }
    x->paused = false;
    if (x->rq)
        kube_pause(x->rq, false);
}

static bool on_data(void *arg, const void *p, size_t n)
{
    struct kube_log *x = arg;
    const struct log_sink *sink = &x->stream.sink;

    if (x->stream.closed)
        return false;
    x->stream.inside = true; /* it goes once its request has ended */
    sink->data(1, p, n, sink->arg);
    x->stream.inside = false;
    if (x->stream.closed)
        return false;
    if (!x->paused && sink->full && sink->full(sink->arg)) {
        x->paused = true;
        kube_pause(x->rq, true);
        timer_start(&x->room, KUBE_ROOM_MS);
    }
    return true;
}

/* A kubelet that turns its log over, or begins anew, ends a followed log like one that is whole. */
static void on_ends(void *arg)
{
    struct kube_log *x = arg;
    struct kube_look *l = x->stream.look;
    struct err err;

    if (kube_look_over(l, &x->key, x->rank)) {
        kube_stream_end(&x->stream, 0, NULL);
    } else if (++x->looks < END_LOOKS) {
        timer_start(&x->ends, END_LOOK_MS);
    } else {
        (void)err_set(&err, E_CONNECT,
                      "target %.100s has ended the log, and its program goes on: what it says from "
                      "here on is missing",
                      l->env.base->target);
        kube_stream_end(&x->stream, 1, &err);
    }
}

static void on_done(void *arg, const struct kube_answer *a)
{
    struct kube_log *x = arg;

    x->rq = NULL;
    timer_stop(&x->room);
    if (x->stream.closed)
        log_free(&x->stream);
    else if (a->out != OUT_DONE)
        failed(x, a);
    else if (x->follows)
        on_ends(x);
    else
        kube_stream_end(&x->stream, 0, NULL);
}

/* ---- whether it can be had ---- */
static bool on_probe_data(void *arg, const void *p, size_t n)
{
    (void)arg;
    (void)p;
    (void)n;
    return true;
}

static void on_probed(void *arg, const struct kube_answer *a)
{
    struct kube_log *x = arg;
    struct kube_look *l = x->stream.look;
    struct kube_client *c = l->env.client(l->env.base);

    x->rq = NULL;
    if (a->out != OUT_DONE || !c) {
        struct err err;
        (void)err_set(&err, E_UNAVAIL, "target %.100s: %.200s", l->env.base->target,
                      l->env.why(l->env.base));
        if (a->out != OUT_DONE)
            failed(x, a);
        else
            kube_stream_end(&x->stream, 1, &err);
        return;
    }
    timer_stop(&x->open);
    kube_stream_enter(&x->stream);
    kube_stream_opened(&x->stream);
    if (!x->stream.closed)
        x->rq = kube_stream(c, x->path, on_data, on_done, x);
    kube_stream_leave(&x->stream);
}

static void on_open(void *arg)
{
    struct kube_log *x = arg;
    struct err err;

    (void)err_set(&err, E_TIMEOUT, "target %.100s did not open it in time",
                  x->stream.look->env.base->target);
    kube_stream_end(&x->stream, 1, &err);
}

/* ---- asking ---- */
static const char *path_make(const struct log_request *rq, const struct kube_looked *pod,
                             struct arena *a)
{
    char since[32] = "", tail[32] = "", at[32];

    if (rq->since_span_ms > 0)
        (void)snprintf(since, sizeof since, "&sinceSeconds=%lld",
                       (long long)(rq->since_span_ms + 999) / 1000);
    if (rq->tail_lines >= 0)
        (void)snprintf(tail, sizeof tail, "&tailLines=%lld", (long long)rq->tail_lines);
    if (rq->since_ms > 0)
        time_print(rq->since_ms, at);
    return arena_printf(a, "%s/log?container=%s%s%s%s%s%s%s", pod->path, pod->program, since,
                        rq->since_ms > 0 ? "&sinceTime=" : "", rq->since_ms > 0 ? at : "", tail,
                        rq->timestamps ? "&timestamps=true" : "", rq->follow ? "&follow=true" : "");
}

static void log_close(struct exec_session *s)
{
    struct kube_log *x = log_of(container_of(s, struct kube_seen_stream, base));

    kube_stream_close(&x->stream);
}

static void no_input(struct exec_session *s, const void *p, size_t n, bool eof)
{
    (void)s;
    (void)p;
    (void)n;
    (void)eof;
}

static size_t none_pending(const struct exec_session *s)
{
    (void)s;
    return 0;
}

static void no_size(struct exec_session *s, const struct exec_size *size)
{
    (void)s;
    (void)size;
}

int kube_look_logs(struct kube_look *l, const struct run_key *k, const struct log_request *rq,
                   const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    static const struct exec_session_ops ops = {
        .input = no_input, .pending = none_pending, .resize = no_size, .close = log_close};
    struct loop *loop = l->env.base->env.loop;
    struct arena *a = arena_create(0);
    struct kube_looked pod = {.path = ""};
    uint64_t now = loop_now_ms(loop);
    int rc = kube_look_ready(l, err);

    if (rc == 0 && rq->resumes)
        rc = err_set(err, E_NOTIMPL,
                     "target %.100s: the log of a pod does not tell where in it a byte is",
                     l->env.base->target);
    if (rc == 0)
        rc = kube_look_pod(l, k, rq->rank, false, a, &pod, err);
    if (rc < 0) {
        (void)arena_destroy(a);
        return rc;
    }
    struct kube_log *x = mem_new(struct kube_log);
    x->stream.base.ops = &ops;
    x->stream.free = log_free;
    x->a = a;
    x->key = *k;
    x->rank = rq->rank;
    x->follows = rq->follow;
    x->path = path_make(rq, &pod, a);
    timer_init(&x->open, loop, on_open, x);
    timer_init(&x->room, loop, on_room, x);
    timer_init(&x->ends, loop, on_ends, x);
    kube_stream_begin(&x->stream, l, sink);
    uint64_t until = rq->deadline_ms ? rq->deadline_ms : now + KUBE_OPEN_MS;
    timer_start(&x->open, until > now ? until - now : 0);
    x->rq = kube_stream(l->env.client(l->env.base),
                        arena_printf(a, "%s/log?container=%s&limitBytes=1", pod.path, pod.program),
                        on_probe_data, on_probed, x);
    *ret = &x->stream.base;
    return 0;
}
