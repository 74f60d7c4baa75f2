/* The scripted driver: calls, their deadlines, what is told unasked, and its table. */
#include "policy/policy.h"
#include "tests/support/scripted/driver_internal.h"

#include <stdio.h>
#include <string.h>

#define ANSWER_MS 1500
#define BACKOFF_MS 200
#define POLL_MS 400
#define SILENCE_MS 6000

enum scripted_plant planted;
static const struct scripted_link_ops *links;
static void (*fill_load)(const struct connector *c, const struct run_order *o,
                         unsigned char load[SCRIPTED_LOAD]);
static const char *const plants[] = {
#define P(name, text) text,
    SCRIPTED_PLANTS(P)
#undef P
};
const char *scripted_plant_text(enum scripted_plant p)
{
    return plants[p];
}
void scripted_plant(enum scripted_plant p)
{
    planted = p;
}
void scripted_use(const struct scripted_link_ops *link,
                  void (*fill)(const struct connector *c, const struct run_order *o,
                               unsigned char load[SCRIPTED_LOAD]))
{
    links = link;
    fill_load = fill;
}
enum scripted_kind scripted_kind_of(const char *target)
{
    return !strncmp(target, "slurm", 5)   ? LIKE_SLURM
           : !strncmp(target, "cloud", 5) ? LIKE_CLOUD
                                          : LIKE_KUBERNETES;
}

/* ---- one call ---- */
static void work_free(struct work *w)
{
    timer_stop(&w->deadline);
    timer_stop(&w->step);
    list_remove(&w->link);
    mem_free(w->v);
    mem_free(w);
}
void work_end(struct work *w, enum outcome out, const struct observation *o, int code)
{
    struct scripted_driver *d = w->d;
    struct call *call = w->call;
    enum work_kind kind = w->kind;
    bool seen = kind == WORK_SUBMIT || kind == WORK_FIND || kind == WORK_STOP;
    struct observation copy = o ? *o : (struct observation){0};
    struct err err;

    work_free(w);
    if (kind == WORK_CHECK)
        d->checking = false;
    if (kind == WORK_POLL) {
        d->polling = false;
        if (!d->gone)
            timer_start(&d->poll, POLL_MS);
    }
    if (!call || (d->gone && planted == SCRIPTED_LOSES_CALLS))
        return;
    (void)err_set(&err, code ? code : E_INTERNAL, "the target refused, or did not answer in time");
    call->done(call, out, out == OUT_DONE && seen ? &copy : NULL, out == OUT_DONE ? NULL : &err);
}
void work_refused(struct work *w)
{
    struct refusal r = {.class_ = w->end.class_, .scope = w->end.scope,
                        .retry_ms = w->end.retry_ms};

    if (w->end.scope == BLAMES_ZONE)
        str_copy(r.name, sizeof r.name, "a");
    if (w->end.scope == BLAMES_CLASS)
        str_copy(r.name, sizeof r.name, "h100");
    if (planted == SCRIPTED_NO_BLAME)
        r = (struct refusal){0};
    if (w->call)
        w->call->refused = r;
    /* Refused now; an attempt that nobody answered may have been taken. */
    work_end(w, w->uncertain ? OUT_UNKNOWN : OUT_REJECTED, NULL, w->end.error);
}
static void step_in(struct work *w, void (*fn)(void *arg), uint64_t ms)
{
    timer_stop(&w->step);
    timer_init(&w->step, w->d->loop, fn, w);
    timer_start(&w->step, ms);
}
static void begin_again(void *arg)
{
    work_first(arg);
}
void work_again(struct work *w, uint64_t ms)
{
    w->waits_for = 0;
    step_in(w, begin_again, ms);
}
static void unanswered(void *arg)
{
    struct work *w = arg;
    struct observation o = {.key = w->key, .state = RUN_STARTING};

    w->waits_for = 0;
    w->uncertain |= w->making;
    if (w->kind == WORK_SUBMIT && planted == SCRIPTED_LOST_IS_REJECTED) {
        work_end(w, OUT_REJECTED, NULL, E_UNAVAIL);
    } else if (w->kind == WORK_SUBMIT && planted == SCRIPTED_LOST_IS_DONE) {
        work_end(w, OUT_DONE, &o, 0);
    } else if (w->kind == WORK_POLL) {
        struct scripted_driver *d = w->d;
        work_end(w, OUT_UNKNOWN, NULL, E_UNAVAIL);
        if (d->reached && loop_now_ms(d->loop) - d->heard_ms >= SILENCE_MS) {
            d->reached = false;
            d->base.env.events->reach(d->base.env.arg, false, d->session, "it does not answer");
        }
    } else if (w->kind == WORK_SUBMIT && w->making && w->d->in_time) {
        work_end(w, OUT_UNKNOWN, NULL, E_UNAVAIL); /* asked again, it would be another job */
    } else {
        work_again(w, BACKOFF_MS);
    }
}
void work_send(struct work *w, struct scripted_ask *q, void (*next)(struct work *w))
{
    q->id = ++w->d->next_id;
    if (next) {
        w->waits_for = q->id;
        w->next = next;
        w->first = w->n;
        w->end = (struct scripted_tell){0};
        step_in(w, unanswered, ANSWER_MS);
    }
    links->send(w->d->link, q);
}
static void deadline(void *arg)
{
    work_end(arg, OUT_UNKNOWN, NULL, E_UNKNOWN);
}
struct work *work_begin(struct scripted_driver *d, enum work_kind kind, const struct run_key *k,
                        struct call *call)
{
    struct work *w = mem_new(struct work);
    uint64_t now = loop_now_ms(d->loop),
             until = call ? call->deadline_ms : now + (kind == WORK_CHECK ? 10000 : 60000);

    w->d = d;
    w->kind = kind;
    w->call = call;
    if (k)
        w->key = *k;
    list_push(&d->works, &w->link);
    timer_init(&w->deadline, d->loop, deadline, w);
    if (planted != SCRIPTED_NO_DEADLINE)
        timer_start(&w->deadline, until > now ? until - now : 0);
    work_again(w, 0);
    return w;
}

/* ---- what the target says ---- */
static void heard_at_all(struct scripted_driver *d)
{
    d->heard_ms = loop_now_ms(d->loop);
    if (d->reached)
        return;
    d->reached = true;
    d->revision = 0; /* what it tells from now on, it tells whole */
    (void)snprintf(d->session, sizeof d->session, "%.60s-%llu", d->base.target,
                   (unsigned long long)loop_random_u64(d->loop) % 1000000);
    d->base.env.events->reach(d->base.env.arg, true, d->session, "it answers");
}
static bool about_another(const struct work *w, const struct scripted_tell *m)
{
    return *w->key.uid && w->kind != WORK_POLL && w->kind != WORK_SWEEP &&
           strcmp(m->thing.key.uid, w->key.uid) != 0;
}
static void heard_thing(struct work *w, const struct scripted_tell *m)
{
    if (w->n == w->cap) {
        w->cap = w->cap ? w->cap * 2 : 8;
        w->v = mem_realloc(w->v, w->cap * sizeof *w->v);
    }
    w->v[w->n++] = m->thing;
    if (about_another(w, m)) {
        if (planted == SCRIPTED_WRONG_IS_RIGHT)
            w->v[w->n - 1].key = w->key;
        else
            w->end.garbled = true;
    }
}
static void heard_end(struct work *w, const struct scripted_tell *m)
{
    bool garbled = w->end.garbled || m->garbled || (!m->whole && planted != SCRIPTED_HALF_IS_WHOLE);

    timer_stop(&w->step);
    w->waits_for = 0;
    w->uncertain |= garbled && w->making;
    w->end = *m;
    if (garbled && w->kind == WORK_POLL)
        work_end(w, OUT_UNKNOWN, NULL, E_UNAVAIL);
    else if (garbled && w->kind == WORK_SUBMIT && w->making && w->d->in_time)
        work_end(w, OUT_UNKNOWN, NULL, E_UNAVAIL);
    else if (garbled)
        work_again(w, BACKOFF_MS);
    else
        w->next(w);
}
static void heard(void *arg, const struct scripted_tell *m)
{
    struct scripted_driver *d = arg;

    heard_at_all(d);
    list_for_each (it, &d->works) {
        struct work *w = container_of(it, struct work, link);
        if (w->waits_for != m->id)
            continue;
        if (m->what == TELL_THING)
            heard_thing(w, m);
        else if (m->what == TELL_NODE && w->n_nodes < PEER_NODES)
            w->nodes[w->n_nodes++] = *m;
        else if (m->what == TELL_END)
            heard_end(w, m);
        return;
    }
}

/* ---- telling ---- */
struct told *scripted_told(struct scripted_driver *d, const struct run_key *k)
{
    struct told *x;

    list_for_each (it, &d->told)
        if (key_same(&container_of(it, struct told, link)->key, k))
            return container_of(it, struct told, link);
    x = mem_new(struct told);
    x->key = *k;
    list_push(&d->told, &x->link);
    return x;
}
static void tell_seat(struct scripted_driver *d, const struct scripted_view *v)
{
    AUTO_ARENA a = arena_create(0);
    struct placement p = {.target = d->base.target, .class_ = "h100", .domain = "", .decision = ""};
    uint32_t left = v->devices;
    unsigned bit = 0;

    p.n_assignments = (uint32_t)v->ranks;
    p.assignments = arena_array(a, struct assignment, (size_t)v->ranks);
    for (uint32_t rank = 0; rank < p.n_assignments; rank++) {
        struct assignment *s = &p.assignments[rank];
        unsigned node = v->node;
        s->rank = rank;
        s->mig = "";
        s->gpuMilli = v->gpus ? 1000 : 0;
        s->gpus = arena_array(a, int64_t, (size_t)v->gpus + 1);
        for (; s->n_gpus < (uint32_t)v->gpus && bit < PEER_NODES * PEER_GPUS; bit++)
            if (left >> bit & 1) {
                node = bit / PEER_GPUS;
                s->gpus[s->n_gpus++] = bit % PEER_GPUS;
            }
        if (d->kind == LIKE_SLURM) /* a gres count is all that it says of them */
            s->n_gpus = 0;
        s->node = arena_printf(a, "%s.n%u", d->base.target, node);
    }
    d->base.env.events->seated(d->base.env.arg, &v->key, &p);
}
static void tell_worker(struct scripted_driver *d, const struct scripted_view *v,
                        const struct observation *o)
{
    static const char *const kinds[] = {"pod", "job", "instance"};
    char node[300], id[40];
    struct run_worker x = {.node = node, .id = id, .reason = ""};
    struct run_workers w = {.key = v->key, .workers = &x, .n_workers = 1};

    (void)snprintf(node, sizeof node, "%s.n%u", d->base.target, v->node);
    (void)snprintf(id, sizeof id, "%s-%llu", kinds[d->kind], (unsigned long long)v->id);
    x.exit_code = o->exit_code;
    x.term_signal = o->term_signal;
    x.started_ms = v->started_ms;
    x.ended_ms = v->ended_ms;
    w.clock_ms = loop_wall_ms(d->loop);
    if (planted != SCRIPTED_NO_WORKERS)
        d->base.env.events->workers(d->base.env.arg, &w);
}
void scripted_run_tell(struct scripted_driver *d, const struct scripted_view *v,
                 const struct observation *o, bool observed)
{
    struct told *x = scripted_told(d, &v->key);
    bool given = o->state == RUN_STARTING || o->state == RUN_RUNNING || o->state == RUN_ENDED;
    /* A second job of that name, which will never start; and an end is an end. */
    if (x->state == RUN_ENDED || (x->id && x->id != v->id && !v->started))
        return;
    bool news = x->state != o->state || x->position != o->position ||
                x->step != o->checkpoint.step;

    if (given && v->waited && !x->seated && planted != SCRIPTED_NO_SEAT) {
        x->seated = true;
        tell_seat(d, v);
    }
    if (given && news)
        tell_worker(d, v, o);
    if (!observed)
        return; /* the answer says it, and what is told unasked says it, too */
    x->state = o->state;
    x->id = v->id;
    x->position = o->position;
    x->step = o->checkpoint.step;
    x->missing = x->missing && o->state != RUN_ENDED;
    if (news)
        d->base.env.events->observed(d->base.env.arg, o);
}
void scripted_end_tell(struct scripted_driver *d, const struct observation *o)
{
    struct told *x = scripted_told(d, &o->key);

    x->missing = false;
    if (x->state != RUN_ENDED && x->state != RUN_ABSENT)
        d->base.env.events->observed(d->base.env.arg, o);
    x->state = o->state;
}
/* The kubelet and slurmd pick devices themselves: their nodes say how many there are. */
static void devices_tell(const struct scripted_driver *d, struct node_spec *s, unsigned gpus,
                         struct arena *a)
{
    if (d->kind != LIKE_CLOUD) {
        s->counted = arena_new(a, struct counted_gpus);
        *s->counted = (struct counted_gpus){.class_ = "h100", .model = "", .count = gpus};
        s->n_counted = gpus > 0;
        return;
    }
    s->gpus = arena_array(a, struct gpu, gpus + 1);
    s->n_gpus = gpus;
    for (unsigned g = 0; g < gpus; g++) {
        s->gpus[g].index = g;
        s->gpus[g].class_ = "h100";
    }
}
void scripted_nodes_tell(struct scripted_driver *d, const struct work *w)
{
    AUTO_ARENA a = arena_create(0);
    struct node *n = arena_array(a, struct node, PEER_NODES + 1);
    struct notice notices[PEER_NODES];
    size_t n_notices = 0;

    for (unsigned i = 0; i < w->n_nodes; i++) {
        const struct scripted_tell *m = &w->nodes[i];
        n[i].metadata = arena_new(a, struct meta);
        n[i].metadata->name = arena_printf(a, "%s.n%u", d->base.target, m->node);
        n[i].spec = arena_new(a, struct node_spec);
        n[i].spec->target = d->base.target;
        n[i].spec->cpu = 64000;
        n[i].spec->memory = (int64_t)1 << 40;
        devices_tell(d, n[i].spec, m->gpus, a);
        n[i].status = arena_new(a, struct node_status);
        n[i].status->health = m->linked ? HEALTH_READY : HEALTH_SICK;
        if (m->notice_ms) {
            struct notice *x = &notices[n_notices++];
            *x = (struct notice){.kind = NOTICE_SPOT, .ends = true, .in_ms = m->notice_ms};
            str_copy(x->node, sizeof x->node, n[i].metadata->name);
        }
    }
    d->base.env.events->nodes(d->base.env.arg, INVENTORY_ALL(n, w->n_nodes));
    d->base.env.events->notices(d->base.env.arg, notices, n_notices);
}
static void poll(void *arg)
{
    struct scripted_driver *d = arg;

    d->polling = true;
    (void)work_begin(d, WORK_POLL, NULL, NULL);
    if (++d->serial % 5 == 0)
        (void)work_begin(d, WORK_INVENTORY, NULL, NULL);
}

/* ---- the table ---- */
#define D(c) container_of((c), struct scripted_driver, base)

static bool target_starts_in_time(const struct object *o)
{
    const struct target_limits *l = object_as(o, target)->spec->limits;

    return l && l->startWithin > 0;
}
static int op_create(const struct connector_env *env, const struct object *target,
                     struct connector **ret, struct err *err)
{
    struct scripted_driver *d = mem_new(struct scripted_driver);

    (void)err;
    d->base.ops = &scripted_ops;
    d->base.env = *env;
    d->loop = env->loop;
    str_copy(d->base.target, sizeof d->base.target, target->meta->name);
    d->kind = scripted_kind_of(d->base.target);
    d->in_time = target_starts_in_time(target);
    list_init(&d->works);
    list_init(&d->told);
    list_init(&d->mine);
    d->link = links->open(d->loop, d->base.target, heard, d);
    timer_init(&d->poll, d->loop, poll, d);
    timer_start(&d->poll, 0);
    *ret = &d->base;
    return 0;
}
/* Planted: what was started ends with its connector. */
static void end_all(struct scripted_driver *d)
{
    list_for_each (it, &d->told) {
        struct scripted_ask q = {.verb = ASK_DELETE};
        for (q.thing = 1; q.thing < 500; q.thing++)
            links->send(d->link, &q);
        return;
    }
}
static void op_destroy(struct connector *c)
{
    struct scripted_driver *d = D(c);

    d->gone = true;
    timer_stop(&d->poll);
    if (planted == SCRIPTED_ENDS_WITH_ME)
        end_all(d);
    while (!list_empty(&d->works))
        work_end(container_of(d->works.next, struct work, link), OUT_UNKNOWN, NULL, E_UNKNOWN);
    links->close(d->link);
    for (struct list *e; (e = list_pop(&d->told)) != NULL;)
        mem_free(container_of(e, struct told, link));
    for (struct list *e; (e = list_pop(&d->mine)) != NULL;)
        mem_free(container_of(e, struct told, link));
    mem_free(d);
}
static void op_update(struct connector *c, const struct object *target)
{
    (void)c;
    (void)target;
}
static void op_probe(struct connector *c, struct call *call)
{
    (void)work_begin(D(c), WORK_PROBE, NULL, call);
}
static void op_inventory(struct connector *c, struct call *call)
{
    (void)work_begin(D(c), WORK_INVENTORY, NULL, call);
}
static void op_submit(struct connector *c, const struct run_order *o, struct call *call)
{
    struct work *w = work_begin(D(c), WORK_SUBMIT, &o->key, call);
    const struct placement *p = o->placement;
    struct scripted_ask *q = &w->order;

    q->verb = ASK_MAKE;
    q->key = o->key;
    q->lease_ms = o->lease_ms;
    q->ranks = p && p->n_assignments ? p->n_assignments : 1;
    q->gpus = p && p->n_assignments ? assignment_devices(&p->assignments[0]) : 0;
    q->start_from_ms = o->start_from_ms;
    q->start_by_ms = o->start_by_ms;
    q->holds = planted != SCRIPTED_NO_HOLD;
    q->blind = planted == SCRIPTED_BLIND_SUBMIT;
    if (c->env.cluster_uid)
        str_copy(q->cluster, sizeof q->cluster, c->env.cluster_uid(c->env.arg));
    fill_load(c, o, q->load);
    if (planted == SCRIPTED_INSIDE)
        work_end(w, OUT_UNKNOWN, NULL, E_UNKNOWN);
}
static void op_find(struct connector *c, const struct run_key *k, struct call *call)
{
    (void)work_begin(D(c), WORK_FIND, k, call);
}
static void op_quiesce(struct connector *c, const struct run_key *k, int signo, uint64_t grace_ms,
                       struct call *call)
{
    struct work *w = work_begin(D(c), WORK_QUIESCE, k, call);

    w->signo = signo;
    w->grace_ms = grace_ms;
}
static void op_stop(struct connector *c, const struct run_key *k, uint64_t grace_ms,
                    struct call *call)
{
    work_begin(D(c), WORK_STOP, k, call)->grace_ms = grace_ms;
}
static void op_finalize(struct connector *c, const struct run_key *k, struct call *call)
{
    (void)work_begin(D(c), WORK_FINALIZE, k, call);
}
static void op_renew(struct connector *c, const struct run_offer *offers, size_t n)
{
    struct scripted_ask q = {.verb = ASK_RENEW};

    (void)offers;
    (void)n;
    links->send(D(c)->link, &q);
}
static bool op_reaches(const struct connector *c, const struct run_key *k)
{
    (void)c;
    (void)k;
    return false; /* its runners do not call home */
}
/* A name and a token make an order the same order; Slurm makes another job of it. */
static const char *op_repeats(const struct connector *c)
{
    const struct scripted_driver *d = (const struct scripted_driver *)c;

    return d->kind == LIKE_KUBERNETES ? "names" : d->kind == LIKE_CLOUD ? "tokens" : "";
}
static void op_sweep(struct connector *c, run_judge judge, void *arg, struct call *call)
{
    struct work *w = work_begin(D(c), WORK_SWEEP, NULL, call);

    w->judge = judge;
    w->judge_arg = arg;
}
static int op_logs(struct connector *c, const struct run_key *k, const struct log_request *rq,
                   const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    (void)c, (void)k, (void)rq, (void)sink, (void)ret;
    return err_set(err, E_UNAVAIL, "it keeps no logs");
}
const struct connector_ops scripted_ops = {.type = "scripted",
                                           .create = op_create,
                                           .destroy = op_destroy,
                                           .update = op_update,
                                           .probe = op_probe,
                                           .inventory = op_inventory,
                                           .submit = op_submit,
                                           .find = op_find,
                                           .quiesce = op_quiesce,
                                           .stop = op_stop,
                                           .finalize = op_finalize,
                                           .renew = op_renew,
                                           .reaches = op_reaches,
                                           .repeats = op_repeats,
                                           .logs = op_logs,
                                           .sweep = op_sweep};
