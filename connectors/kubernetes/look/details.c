/* What there is of a run, for people: its pods as the watch has them, and what the cluster's Events
 * say of those in trouble, which are read when somebody asks and at no other time. Nothing follows
 * from any of it: Events are written by whoever may, and go after an hour. */
#include "connectors/kubernetes/look/look_internal.h"

#include <stdlib.h>
#include <string.h>

#define PARTS_MAX 32        /* pods that are told */
#define ASKING_MAX 4        /* looks whose Events are asked for at once */
#define ASKED_MAX 8         /* of which Events are asked for */
#define EVENTS_OF 100       /* of one object: more are not read */
#define EVENTS_MAX 24       /* that are told */
#define EVENTS_BYTES 524288 /* of one answer */
#define TEXT_MAX 400

struct kube_details {
    struct list link; /* kube_look.details */
    struct arena *a;
    details_cb cb;
    void *arg;
    struct timer told; /* the end comes from a fresh callback */
    struct err why;
    struct about_ask {
        struct kube_details *of;
        struct kube_request *rq;
        const char *about; /* "Pod/NAME" */
    } asks[ASKED_MAX + 1];
    unsigned n_asks, pending, failed, cut;
    char failure[200];
    struct run_part parts[PARTS_MAX];
    struct run_event events[EVENTS_MAX];
    struct run_details d;
};

/* ---- its end ---- */
static void lacks_say(struct kube_details *x)
{
    AUTO_BUF b;

    buf_init(&b, 1024);
    if (x->d.all_parts > x->d.n_parts)
        buf_printf(&b, "%zu pods are not shown here", x->d.all_parts - x->d.n_parts);
    if (x->d.all_parts > ASKED_MAX)
        buf_printf(&b, "%sonly the Events of %d pods were read", b.n ? "; " : "", ASKED_MAX);
    if (x->failed)
        buf_printf(&b, "%sEvents could not be read: %s", b.n ? "; " : "", x->failure);
    if (x->cut)
        buf_printf(&b, "%sof an object with more than %d Events not all were read", b.n ? "; " : "",
                   EVENTS_OF);
    x->d.lacks = b.n ? arena_strdup(x->a, b.p) : "";
}

static void details_end(struct kube_details *x, const struct err *why)
{
    details_cb cb = x->cb;
    void *arg = x->arg;
    struct arena *a = x->a;

    timer_stop(&x->told);
    list_remove(&x->link);
    for (unsigned i = 0; i < x->n_asks; i++)
        if (x->asks[i].rq)
            kube_cancel(x->asks[i].rq);
    x->d.parts = x->parts;
    x->d.events = x->events;
    lacks_say(x);
    cb(arg, why ? NULL : &x->d, why);
    mem_free(x);
    (void)arena_destroy(a);
}

void kube_details_end(struct kube_look *l, const struct err *why)
{
    while (!list_empty(&l->details))
        details_end(container_of(l->details.next, struct kube_details, link), why);
}

static void on_told(void *arg)
{
    struct kube_details *x = arg;
    struct err why = x->why;

    details_end(x, why.code ? &why : NULL);
}

/* ---- Events ---- */
static const char *plain(struct kube_details *x, const char *text)
{
    char cut[TEXT_MAX];

    str_cut(cut, sizeof cut, text);
    for (char *s = cut; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 127)
            *s = ' ';
    return arena_strdup(x->a, cut);
}

static int64_t time_of(const cJSON *event)
{
    static const char *const at[] = {"series.lastObservedTime", "lastTimestamp", "eventTime",
                                     "metadata.creationTimestamp"};
    int64_t newest = 0;

    for (unsigned i = 0; i < sizeof at / sizeof *at && !newest; i++)
        newest = kube_time_ms(kube_text(event, at[i]));
    return newest;
}

static int64_t count_of(const cJSON *event)
{
    const cJSON *of_series = kube_at(event, "series.count"), *n = kube_at(event, "count");

    n = cJSON_IsNumber(of_series) ? of_series : n;
    return cJSON_IsNumber(n) && n->valuedouble >= 1 && n->valuedouble < 1e9
               ? (int64_t)n->valuedouble
               : 1;
}

/* Newest first; what is older than all that fit is passed over. */
static void event_take(struct kube_details *x, const char *about, const cJSON *event)
{
    const int64_t at_ms = time_of(event);
    size_t i = x->d.n_events;

    while (i > 0 && x->events[i - 1].at_ms < at_ms)
        i--;
    if (i == EVENTS_MAX)
        return;
    if (x->d.n_events < EVENTS_MAX)
        x->d.n_events++;
    memmove(x->events + i + 1, x->events + i, (x->d.n_events - i - 1) * sizeof *x->events);
    x->events[i] = (struct run_event){.at_ms = at_ms,
                                      .count = count_of(event),
                                      .type = plain(x, kube_text(event, "type")),
                                      .reason = plain(x, kube_text(event, "reason")),
                                      .message = plain(x, kube_text(event, "message")),
                                      .about = about};
}

static void events_came(void *arg, const struct kube_answer *a)
{
    struct about_ask *q = arg;
    struct kube_details *x = q->of;
    const cJSON *e;

    q->rq = NULL;
    x->pending--;
    if (a->out == OUT_DONE) {
        cJSON_ArrayForEach(e, kube_at(a->body, "items"))
        {
            event_take(x, q->about, e);
        }
        x->cut += *kube_text(a->body, "metadata.continue") != '\0';
    } else {
        x->failed++;
        str_cut(x->failure, sizeof x->failure, a->err->text);
    }
    if (!x->pending)
        details_end(x, NULL);
}

static void events_ask(struct kube_details *x, struct kube_client *c, const char *place,
                       const char *kind, const char *name, const char *uid, uint64_t deadline_ms)
{
    struct about_ask *q = &x->asks[x->n_asks++];

    q->of = x;
    q->about = arena_printf(x->a, "%s/%s", kind, name);
    const struct kube_ask ask = {
        .method = "GET",
        .path = arena_printf(x->a,
                             "/api/v1/namespaces/%s/events?fieldSelector=involvedObject.uid%%3D%s"
                             "&limit=%d",
                             place, uid, EVENTS_OF),
        .answer_max = EVENTS_BYTES,
        .deadline_ms = deadline_ms,
        .done = events_came,
        .arg = q};
    x->pending++;
    q->rq = kube_send(c, &ask);
}

/* ---- pods ---- */
static int by_trouble(const void *a, const void *b)
{
    const struct kube_pod_shown *p = a, *q = b;

    if (p->trouble != q->trouble)
        return p->trouble - q->trouble;
    return (p->rank > q->rank) - (p->rank < q->rank);
}

/* Looking may not crowd out deciding: both ask through one client. */
static unsigned asked_by_others(const struct kube_look *l)
{
    unsigned n = 0;

    list_for_each (it, &l->details)
        n += container_of(it, struct kube_details, link)->pending > 0;
    return n;
}

/* c NULL: its pods alone, as the watch has told of them. */
static void run_tell(struct kube_details *x, const struct kube_run_shown *run,
                     struct kube_client *c, uint64_t deadline_ms)
{
    struct kube_pod_shown *v = arena_array(x->a, struct kube_pod_shown, run->n + 1);

    memcpy(v, run->pods, run->n * sizeof *v);
    qsort(v, run->n, sizeof *v, by_trouble);
    x->d.all_parts = run->n;
    for (size_t i = 0; i < run->n && i < PARTS_MAX; i++)
        x->parts[x->d.n_parts++] =
            (struct run_part){.name = arena_printf(x->a, "%s/%s", run->place, v[i].name),
                              .node = v[i].node,
                              .rank = v[i].rank,
                              .phase = plain(x, v[i].phase),
                              .reason = plain(x, v[i].word),
                              .message = plain(x, v[i].message)};
    if (!c) {
        x->failed = 1;
        str_copy(x->failure, sizeof x->failure, "those of others are being asked for; ask again");
        return;
    }
    if (*run->uid)
        events_ask(x, c, run->place, "Job", run->job, run->uid, deadline_ms);
    for (size_t i = 0; i < run->n && i < ASKED_MAX; i++)
        events_ask(x, c, run->place, "Pod", v[i].name, v[i].uid, deadline_ms);
}

void kube_look_details(struct kube_look *l, const struct run_key *k, uint64_t deadline_ms,
                       details_cb cb, void *arg)
{
    struct kube_details *x = mem_new(struct kube_details);
    struct kube_client *c = l->env.client(l->env.base);
    struct kube_run_shown run;

    x->a = arena_create(0);
    x->cb = cb;
    x->arg = arg;
    timer_init(&x->told, l->env.base->env.loop, on_told, x);
    list_push(&l->details, &x->link);
    if (!c || !kube_runs_ready(l->env.runs))
        (void)err_set(&x->why, E_UNAVAIL, "target %.100s: %.200s", l->env.base->target,
                      c ? "its pods are being listed" : l->env.why(l->env.base));
    else if (kube_runs_show(l->env.runs, k, x->a, &run))
        run_tell(x, &run, asked_by_others(l) < ASKING_MAX ? c : NULL, deadline_ms);
    if (!x->pending)
        timer_start(&x->told, 0);
}
