/* Asks DCGM's exporters what they know of their GPUs, one at a time, through the API server. What
 * fails says nothing: what was known stays, and the exporter is asked again in its turn. */
#include "connectors/kubernetes/nodes/records.h"

#include "api/base/log.h"

#include <string.h>

#define EVERY_MS 60000 /* the same one, */
#define AGAIN_MS 2000  /* but sooner where it did not answer, as one that has just begun may not */
#define BREATH_MS 50   /* between two */
#define ANSWER_MS 10000
#define REFUSED_MS 600000 /* rights are rarely given meanwhile */
#define TEXT_MAX ((size_t)4 << 20)

struct kube_asker {
    struct kube_records *t;
    struct loop *loop;
    struct kube_client *client; /* or NULL */
    struct kube_request *request;
    struct timer timer, answer;
    struct buf text;
    uint64_t hash, more; /* of the pod that is asked */
    bool refused;        /* it was said */
    void (*used)(void *arg, const struct kube_pod_use *u);
    void *arg;
};

struct told { /* while an answer is read */
    struct kube_asker *a;
    const char *node;
};

/* Whose turn it is: of those that are due the one that was asked longest ago, or else the one that
 * is due next. */
static struct kube_exporter *whose_turn(const struct kube_asker *a, uint64_t now)
{
    struct kube_exporter *best = NULL;

    list_for_each (it, &a->t->exporters) {
        struct kube_exporter *e = container_of(it, struct kube_exporter, link);
        if (e->again_ms <= now)
            return e;
        if (!best || e->again_ms < best->again_ms)
            best = e;
    }
    return best;
}

static struct kube_exporter *asked(const struct kube_asker *a)
{
    list_for_each (it, &a->t->exporters) {
        struct kube_exporter *e = container_of(it, struct kube_exporter, link);
        if (e->hash == a->hash && e->more == a->more)
            return e;
    }
    return NULL;
}

static bool on_data(void *arg, const void *p, size_t n)
{
    struct kube_asker *a = arg;

    buf_add(&a->text, p, n);
    return !a->text.failed;
}

static void next(struct kube_asker *a, uint64_t in_ms)
{
    timer_stop(&a->answer);
    a->request = NULL;
    buf_fini(&a->text);
    timer_start(&a->timer, in_ms);
}

static void on_used(void *arg, const struct kube_pod_use *u)
{
    const struct told *t = arg;
    struct kube_pod_use one = *u;

    one.node = t->node;
    t->a->used(t->a->arg, &one);
}

static void on_done(void *arg, const struct kube_answer *answer)
{
    struct kube_asker *a = arg;
    struct kube_exporter *e = asked(a);
    struct kube_dcgm d;

    if (answer->status == 403) {
        if (!a->refused)
            log_err(LOG_WARN, "kube.dcgm_refused", answer->err);
        a->refused = true;
        if (e) /* others may be asked: rights are of one namespace */
            e->again_ms = loop_now_ms(a->loop) + REFUSED_MS;
        next(a, BREATH_MS);
        return;
    }
    if (answer->out == OUT_DONE && !a->text.failed && e) {
        struct told told = {a, e->node->name};
        e->failures = 0;
        a->refused = false;
        kube_dcgm_read(a->text.n ? a->text.p : "", a->text.n, &d);
        if (a->used)
            kube_dcgm_use(a->text.n ? a->text.p : "", a->text.n, on_used, &told);
        kube_exporter_told(a->t, e, &d);
    } else if (e && e->failures < 5) { /* 2, 4, 8, 16 and 32 seconds */
        e->again_ms = loop_now_ms(a->loop) + ((uint64_t)AGAIN_MS << e->failures++);
    }
    next(a, BREATH_MS);
}

static void on_late(void *arg)
{
    struct kube_asker *a = arg;

    kube_cancel(a->request);
    next(a, BREATH_MS);
}

static void on_turn(void *arg)
{
    struct kube_asker *a = arg;
    uint64_t now = loop_now_ms(a->loop);
    struct kube_exporter *e = a->client && !a->request ? whose_turn(a, now) : NULL;

    if (!e)
        return;
    a->t->unasked = false; /* those that are due are asked before it waits again */
    if (e->again_ms > now) {
        uint64_t ms = e->again_ms - now;
        timer_start(&a->timer, ms < EVERY_MS ? ms : EVERY_MS); /* there may be new ones then */
        return;
    }
    list_remove(&e->link);
    list_push(&a->t->exporters, &e->link);
    e->again_ms = now + EVERY_MS;
    a->hash = e->hash;
    a->more = e->more;
    a->request = kube_stream(a->client, e->path, on_data, on_done, a);
    timer_start(&a->answer, ANSWER_MS);
}

void kube_asker_look(struct kube_asker *a)
{
    if (a->client && !a->request && !list_empty(&a->t->exporters) &&
        (a->t->unasked || !timer_active(&a->timer)))
        timer_start(&a->timer, BREATH_MS);
}

void kube_asker_client(struct kube_asker *a, struct kube_client *c)
{
    if (a->request)
        kube_cancel(a->request);
    a->request = NULL;
    timer_stop(&a->answer);
    timer_stop(&a->timer);
    buf_fini(&a->text);
    a->client = c;
    kube_asker_look(a);
}

struct kube_asker *kube_asker_create(struct loop *l, struct kube_records *t,
                                     void (*used)(void *arg, const struct kube_pod_use *u),
                                     void *arg)
{
    struct kube_asker *a = mem_new(struct kube_asker);

    a->loop = l;
    a->t = t;
    a->used = used;
    a->arg = arg;
    timer_init(&a->timer, l, on_turn, a);
    timer_init(&a->answer, l, on_late, a);
    buf_init(&a->text, TEXT_MAX);
    return a;
}

struct kube_asker *kube_asker_destroy(struct kube_asker *a)
{
    if (!a)
        return NULL;
    kube_asker_client(a, NULL);
    mem_free(a);
    return NULL;
}
