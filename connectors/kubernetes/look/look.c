/* The life of what looks at runs: whatever is under way ends with the session in which it began;
 * and what logs, execs and forwarded ports share. A sink hears `opened` once, ahead of all data,
 * and one end, or nothing after it was closed. */
#include "connectors/kubernetes/look/look_internal.h"

#include <string.h>

struct kube_look *kube_look_create(const struct kube_look_env *env)
{
    struct kube_look *l = mem_new(struct kube_look);

    l->env = *env;
    list_init(&l->details);
    list_init(&l->foreign);
    list_init(&l->streams);
    return l;
}

static struct kube_seen_stream *stream_open(const struct kube_look *l)
{
    list_for_each (it, &l->streams) {
        struct kube_seen_stream *s = container_of(it, struct kube_seen_stream, link);
        if (!s->closed)
            return s;
    }
    return NULL;
}

void kube_look_lost(struct kube_look *l, const char *why)
{
    struct err err;

    (void)err_set(&err, E_UNAVAIL, "target %.100s: %.200s", l->env.base->target, why);
    kube_details_end(l, &err);
    kube_foreign_end(l, &err);
    for (struct kube_seen_stream *s; (s = stream_open(l)) != NULL;)
        kube_stream_end(s, 1, &err);
    list_for_each_safe (it, tmp, &l->streams) {
        struct kube_seen_stream *s = container_of(it, struct kube_seen_stream, link);
        if (!s->inside)
            s->free(s);
    }
}

struct kube_look *kube_look_destroy(struct kube_look *l)
{
    if (!l)
        return NULL;
    kube_look_lost(l, "its connector has ended");
    mem_free(l);
    return NULL;
}

/* ---- whose pod ---- */
int kube_look_ready(const struct kube_look *l, struct err *err)
{
    const char *target = l->env.base->target;

    if (!l->env.client(l->env.base))
        return err_set(err, E_UNAVAIL, "target %.100s: %.200s", target, l->env.why(l->env.base));
    if (!kube_runs_ready(l->env.runs))
        return err_set(err, E_UNAVAIL, "target %.100s: its pods are being listed", target);
    if (l->n_streams >= KUBE_STREAMS_MAX)
        return err_set(err, E_LIMIT,
                       "more than %d logs, execs and forwarded ports at a time through the API "
                       "server of target %.100s",
                       KUBE_STREAMS_MAX, target);
    return 0;
}

static const struct kube_pod_shown *pod_find(const struct kube_look *l, const struct run_key *k,
                                             int64_t rank, struct arena *a,
                                             struct kube_run_shown *ret)
{
    const struct kube_pod_shown *found = NULL;

    if (!kube_runs_show(l->env.runs, k, a, ret))
        return NULL;
    for (size_t i = 0; i < ret->n; i++)
        if (ret->pods[i].rank == rank)
            found = &ret->pods[i];
    return found;
}

int kube_look_pod(const struct kube_look *l, const struct run_key *k, int64_t rank, bool runs,
                  struct arena *a, struct kube_looked *ret, struct err *err)
{
    const char *target = l->env.base->target;
    struct kube_run_shown run;
    const struct kube_pod_shown *p = pod_find(l, k, rank, a, &run);

    if (!p)
        return err_set(
            err, E_NOTFOUND,
            "target %.100s has no pod of rank %lld of it: pods go, with their logs, once "
            "the end of a run is known",
            target, (long long)rank);
    if (p->life == POD_IS_TO_COME)
        return err_set(err, E_CONFLICT, "its pod %.100s has not begun: %.60s%s%.150s", p->name,
                       p->word, *p->message ? ": " : "", p->message);
    if (runs && p->life == POD_IS_OVER)
        return err_set(err, E_CONFLICT, "its program in pod %.100s does not run any more: %.60s",
                       p->name, p->word);
    ret->path = arena_printf(a, "/api/v1/namespaces/%s/pods/%s", run.place, p->name);
    ret->program = p->program;
    return 0;
}

bool kube_look_over(const struct kube_look *l, const struct run_key *k, int64_t rank)
{
    struct kube_run_shown run;
    AUTO_ARENA a = arena_create(0);
    const struct kube_pod_shown *p = pod_find(l, k, rank, a, &run);

    return !p || p->life == POD_IS_OVER;
}

void kube_right_name(struct err *err)
{
    static const char where[] = "deploy/kubernetes/streams.yaml has this right: ";
    char said[sizeof err->text - sizeof where];

    str_cut(said, sizeof said, err->text);
    (void)err_set(err, E_FORBIDDEN, "%s%s", where, said);
}

/* ---- streams ---- */
void kube_stream_begin(struct kube_seen_stream *s, struct kube_look *l, const struct log_sink *sink)
{
    s->look = l;
    s->sink = *sink;
    list_push(&l->streams, &s->link);
    l->n_streams++;
}

void kube_stream_forget(struct kube_seen_stream *s)
{
    list_remove(&s->link);
    s->look->n_streams--;
}

void kube_stream_opened(struct kube_seen_stream *s)
{
    if (s->opened || s->closed)
        return;
    s->opened = true;
    if (s->sink.opened)
        s->sink.opened(s->sink.arg);
}

void kube_stream_enter(struct kube_seen_stream *s)
{
    PRE(!s->inside);
    s->inside = true;
}

void kube_stream_leave(struct kube_seen_stream *s)
{
    s->inside = false;
    if (s->closed)
        s->free(s);
}

void kube_stream_close(struct kube_seen_stream *s)
{
    s->closed = true;
    if (!s->inside)
        s->free(s);
}

void kube_stream_end(struct kube_seen_stream *s, int exit_code, const struct err *err)
{
    const struct log_sink sink = s->sink;
    struct err why = err ? *err : (struct err){0};
    const bool inside = s->inside;

    if (s->closed)
        return;
    s->closed = true;
    if (!inside)
        s->free(s);
    sink.end(exit_code, why.code ? &why : NULL, sink.arg);
}
