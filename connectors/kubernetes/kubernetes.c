/* The connector driver of Kubernetes targets: it holds a session with the API server, and hands
 * what that tells to its parts. It holds nothing that it could not ask for again. */
#include "connectors/kubernetes/kubernetes_internal.h"

#include "connectors/streams/streams.h"

#include <string.h>

struct kubernetes *kubernetes_of(struct connector *c)
{
    PRE(c->ops == &connector_kubernetes_ops);
    return container_of(c, struct kubernetes, base);
}

bool kubernetes_has_runners(const struct kubernetes *k)
{
    const struct target_connection *g = object_as(k->doc, target)->spec->connection;

    return g && g->runners;
}

/* ---- calls ---- */
static void call_end(struct kubernetes_call *x)
{
    struct call *call = x->call;
    enum outcome out = x->out;
    struct err err = x->err;

    timer_stop(&x->told);
    list_remove(&x->link);
    mem_free(x);
    call->done(call, out, NULL, out == OUT_DONE ? NULL : &err);
}

static void call_told(void *arg)
{
    call_end(arg);
}

static struct kubernetes_call *call_make(struct kubernetes *k, struct call *call)
{
    struct kubernetes_call *x = mem_new(struct kubernetes_call);

    x->k = k;
    x->call = call;
    timer_init(&x->told, k->base.env.loop, call_told, x);
    list_push(&k->calls, &x->link);
    return x;
}

/* From a fresh callback: never from inside the call that asked. */
static void call_later(struct kubernetes *k, struct call *call, enum outcome out,
                       const struct err *err)
{
    struct kubernetes_call *x = call_make(k, call);

    x->out = out;
    if (err)
        x->err = *err;
    if (out == OUT_REJECTED)
        call->refused = refusal_of_code(x->err.code);
    timer_start(&x->told, 0);
}

void kubernetes_calls_lost(struct kubernetes *k, const char *why)
{
    while (!list_empty(&k->calls)) {
        struct kubernetes_call *x = container_of(k->calls.next, struct kubernetes_call, link);
        if (x->rq) {
            kube_cancel(x->rq);
            x->out = OUT_UNKNOWN;
            (void)err_set(&x->err, E_UNKNOWN, "target %.100s: %.200s", k->base.target, why);
        }
        call_end(x);
    }
}

/* ---- what its parts ask ---- */
static struct kube_client *part_client(struct connector *base)
{
    struct kubernetes *k = kubernetes_of(base);

    if (k->reachable)
        kubernetes_login_look(k);
    return k->reachable ? k->client : NULL;
}

static const struct kube_login *part_login(struct connector *base)
{
    return &kubernetes_of(base)->login;
}

static const char *part_why(struct connector *base)
{
    return kubernetes_of(base)->why;
}

static const char *part_cluster(struct connector *base)
{
    return kubernetes_of(base)->cluster;
}

static const char *part_resource(struct connector *base, const char *node, const char *mig,
                                 int64_t shares)
{
    return kube_nodes_resource(kubernetes_of(base)->nodes, node, mig, shares);
}

static void nodes_told(void *arg, const struct inventory_page *p)
{
    const struct connector_env *e = &((struct kubernetes *)arg)->base.env;

    e->events->nodes(e->arg, p);
}

static void notices_told(void *arg, const struct notice *v, size_t n)
{
    const struct connector_env *e = &((struct kubernetes *)arg)->base.env;

    if (e->events->notices)
        e->events->notices(e->arg, v, n);
}

static void node_checked(void *arg, const char *node, struct kube_check_told *ret)
{
    kube_checks_told(((struct kubernetes *)arg)->checks, node, ret);
}

static void pod_used(void *arg, const struct kube_pod_use *u)
{
    kube_uses_take(((struct kubernetes *)arg)->uses, u);
}

static void runner_told(void *arg, const struct run_key *k)
{
    kube_runs_told(((struct kubernetes *)arg)->runs, k);
}

static int64_t nodes_wall_ms(void *arg)
{
    const struct kubernetes *k = arg;
    int64_t told = k->client ? kube_client_wall_ms(k->client) : 0;

    return told ? told : loop_wall_ms(k->base.env.loop);
}

/* ---- the driver ---- */
static int create(const struct connector_env *env, const struct object *target,
                  struct connector **ret, struct err *err)
{
    static const struct kube_nodes_events nodes = {.nodes = nodes_told,
                                                   .notices = notices_told,
                                                   .checked = node_checked,
                                                   .wall_ms = nodes_wall_ms,
                                                   .used = pod_used};
    static const struct home_runs_events home = {.told = runner_told};
    struct kubernetes *k = mem_new(struct kubernetes);

    (void)err; /* what is wrong with the connection is told by reach(), and looked at again */
    k->base.ops = &connector_kubernetes_ops;
    k->base.env = *env;
    str_copy(k->base.target, sizeof k->base.target, target->meta->name);
    str_copy(k->why, sizeof k->why, "it was not asked yet");
    k->doc = object_ref(target);
    list_init(&k->calls);
    k->home = home_runs_create(&k->base.env, &home, k);
    k->nodes = kube_nodes_create(env->loop, k->base.target, &nodes, k);
    (void)kube_nodes_update(k->nodes, object_as(target, target)->spec);
    const struct kube_runs_env runs = {.base = &k->base,
                                       .doc = k->doc,
                                       .home = k->home,
                                       .client = part_client,
                                       .why = part_why,
                                       .cluster = part_cluster,
                                       .resource = part_resource};
    k->runs = kube_runs_create(&runs);
    const struct kube_checks_env checks = {
        .base = &k->base, .doc = k->doc, .nodes = k->nodes, .runs = k->runs, .client = part_client};
    k->checks = kube_checks_create(&checks);
    const struct kube_spaces_env spaces = {.base = &k->base, .doc = k->doc, .client = part_client};
    k->spaces = kube_spaces_create(&spaces);
    k->uses = kube_uses_create(&k->base, k->runs);
    const struct kube_look_env look = {.base = &k->base,
                                       .runs = k->runs,
                                       .nodes = k->nodes,
                                       .checks = k->checks,
                                       .client = part_client,
                                       .why = part_why,
                                       .login = part_login};
    k->look = kube_look_create(&look);
    kubernetes_session_begin(k);
    *ret = &k->base;
    return 0;
}

static void reach_nobody(void *arg, bool reachable, const char *session, const char *why)
{
    (void)arg;
    (void)reachable;
    (void)session;
    (void)why;
}

static void nodes_nobody(void *arg, const struct inventory_page *p)
{
    (void)arg;
    (void)p;
}

static void observed_nobody(void *arg, const struct observation *o)
{
    (void)arg;
    (void)o;
}

static void destroy(struct connector *base)
{
    static const struct connector_events silent = {
        .reach = reach_nobody, .nodes = nodes_nobody, .observed = observed_nobody};
    struct kubernetes *k = kubernetes_of(base);

    k->base.env.events = &silent;
    kubernetes_session_end(k, "the target was removed, or this member does not lead any more");
    k->look = kube_look_destroy(k->look);
    k->spaces = kube_spaces_destroy(k->spaces);
    k->checks = kube_checks_destroy(k->checks);
    k->uses = kube_uses_destroy(k->uses);
    k->runs = kube_runs_destroy(k->runs);
    k->nodes = kube_nodes_destroy(k->nodes);
    k->home = home_runs_destroy(k->home, "this member does not lead any more");
    (void)object_unref(k->doc);
    mem_free(k);
}

/* The session goes on where the document leads to the same server. */
static void update(struct connector *base, const struct object *target)
{
    struct kubernetes *k = kubernetes_of(base);
    const struct object *before = k->doc;
    const struct target_limits *was = object_as(before, target)->spec->limits;
    const struct target_limits *is = object_as(target, target)->spec->limits;
    bool other = (was ? was->inFlight : 0) != (is ? is->inFlight : 0);

    k->doc = object_ref(target);
    kube_runs_update(k->runs, k->doc);
    kube_checks_update(k->checks, k->doc);
    kube_spaces_update(k->spaces, k->doc);
    (void)object_unref((struct object *)(uintptr_t)before);
    if (kube_nodes_update(k->nodes, object_as(target, target)->spec))
        kubernetes_relist_nodes(k);
    k->login_ms = 0;
    if (k->step == KUBERNETES_RESTS || k->step == KUBERNETES_ASKS || other) {
        kubernetes_session_end(k, "its Target has changed");
        kubernetes_session_begin(k);
    } else {
        kubernetes_login_look(k);
    }
}

static void probed(void *arg, const struct kube_answer *a)
{
    struct kubernetes_call *x = arg;

    x->rq = NULL;
    x->out = a->out;
    if (a->err)
        x->err = *a->err;
    x->call->refused = a->refused;
    call_end(x);
}

static int reach_check(const struct kubernetes *k, struct err *err)
{
    return k->reachable ? 0
                        : err_set(err, E_UNAVAIL, "target %.100s: %.200s", k->base.target, k->why);
}

static void probe(struct connector *base, struct call *call)
{
    struct kubernetes *k = kubernetes_of(base);
    struct err err;

    if (reach_check(k, &err) < 0) {
        call_later(k, call, OUT_REJECTED, &err);
        return;
    }
    struct kubernetes_call *x = call_make(k, call);
    const struct kube_ask ask = {.method = "GET",
                                 .path = "/api/v1/namespaces/kube-system",
                                 .deadline_ms = call->deadline_ms,
                                 .done = probed,
                                 .arg = x};
    x->rq = kube_send(k->client, &ask);
}

static void inventory(struct connector *base, struct call *call)
{
    struct kubernetes *k = kubernetes_of(base);
    struct err err;

    if (reach_check(k, &err) < 0) {
        call_later(k, call, OUT_REJECTED, &err);
        return;
    }
    kube_nodes_ask(k->nodes);
    call_later(k, call, OUT_DONE, NULL);
}

/* ---- runs ---- */
static void submit(struct connector *base, const struct run_order *o, struct call *call)
{
    kube_checks_yield(kubernetes_of(base)->checks, o);
    kube_runs_submit(kubernetes_of(base)->runs, o, call);
}
static const char *repeats(const struct connector *base)
{
    return kube_runs_repeats(container_of(base, struct kubernetes, base)->runs);
}
static void find(struct connector *base, const struct run_key *key, struct call *call)
{
    kube_runs_find(kubernetes_of(base)->runs, key, call);
}
static void quiesce(struct connector *base, const struct run_key *key, int signo, uint64_t grace_ms,
                    struct call *call)
{
    kube_runs_quiesce(kubernetes_of(base)->runs, key, signo, grace_ms, call);
}
static void stop(struct connector *base, const struct run_key *key, uint64_t grace_ms,
                 struct call *call)
{
    kube_runs_stop(kubernetes_of(base)->runs, key, grace_ms, call);
}
static void finalize(struct connector *base, const struct run_key *key, struct call *call)
{
    kube_runs_finalize(kubernetes_of(base)->runs, key, call);
}
static void sweep(struct connector *base, run_judge judge, void *arg, struct call *call)
{
    kube_runs_sweep(kubernetes_of(base)->runs, judge, arg, call);
}
static void promises(struct connector *base, uint64_t rv, uint64_t older_ms, promise_judge judge,
                     void *arg, struct call *call)
{
    kube_runs_promises(kubernetes_of(base)->runs, rv, older_ms, judge, arg, call);
}

static void leave(struct connector *base, struct call *call)
{
    struct kubernetes *k = kubernetes_of(base);
    struct kube_left runs;
    char why[256];
    struct err err;

    if (reach_check(k, &err) < 0) {
        call_later(k, call, OUT_REJECTED, &err);
        return;
    }
    kube_runs_leave(k->runs, &runs);
    size_t checks = kube_checks_leave(k->checks), spaces = kube_spaces_leave(k->spaces, why);
    if (!checks && !runs.n && !spaces) {
        call_later(k, call, OUT_DONE, NULL);
        return;
    }
    if (runs.live)
        (void)err_set(&err, E_CONFLICT,
                      "%zu runs that this hub does not answer for may live there, such as that of "
                      "%s %s/%.80s: hanse get orphans lists them, and hanse orphans end ends them",
                      runs.live, runs.kind, runs.place, runs.name);
    else if (runs.n)
        (void)err_set(
            &err, E_CONFLICT,
            "%zu Jobs of runs that have ended hold their names for half a minute; by hand: "
            "kubectl -n %s patch job %s --type merge -p '{\"metadata\":{\"finalizers\":null}}'",
            runs.n, runs.place, runs.name);
    else if (checks)
        (void)err_set(&err, E_CONFLICT, "%zu Jobs of diagnostics are being deleted", checks);
    else
        (void)err_set(&err, E_CONFLICT, "namespaces lose its labels and policies%s%.250s",
                      *why ? ": " : "", why);
    call_later(k, call, OUT_REJECTED, &err);
}

static void details(struct connector *base, const struct run_key *key, uint64_t deadline_ms,
                    details_cb cb, void *arg)
{
    kube_look_details(kubernetes_of(base)->look, key, deadline_ms, cb, arg);
}

static void foreign(struct connector *base, const struct foreign_ask *ask, foreign_cb cb, void *arg)
{
    kube_look_foreign(kubernetes_of(base)->look, ask, cb, arg);
}

/* ---- runners that call home ---- */
static int runner(struct connector *base, const struct home_arrival *a, struct err *err)
{
    struct kubernetes *k = kubernetes_of(base);

    if (!kubernetes_has_runners(k)) {
        home_refuse(a->stream, false, "runners of its target do not call home");
        return err_set(err, E_CONFLICT, "spec.connection.runners of target %.100s is not set",
                       base->target);
    }
    return home_runs_take(k->home, a, err);
}

static void renew(struct connector *base, const struct run_offer *offers, size_t n)
{
    home_runs_renew(kubernetes_of(base)->home, offers, n);
}

static void members(struct connector *base, const char *const *addresses, size_t n)
{
    home_runs_members(kubernetes_of(base)->home, addresses, n);
}

static bool reaches(const struct connector *base, const struct run_key *key)
{
    return home_runs_reach(container_of(base, struct kubernetes, base)->home, key);
}

static void checkpoint(struct connector *base, const struct run_key *key, int64_t number,
                       uint64_t grace_ms, struct call *call)
{
    struct kubernetes *k = kubernetes_of(base);
    struct err err;

    if (!kubernetes_has_runners(k)) {
        (void)err_set(&err, E_NOTIMPL,
                      "target %.100s has no runners that call home (spec.connection.runners): "
                      "nobody can ask its program",
                      base->target);
        call_later(k, call, OUT_REJECTED, &err);
    } else if (!home_runs_reach(k->home, key)) {
        (void)err_set(&err, E_UNKNOWN, "not all runners of it have called home at the moment");
        call_later(k, call, OUT_UNKNOWN, &err);
    } else {
        (void)home_runs_save(k->home, key, number, grace_ms);
        call_later(k, call, OUT_DONE, NULL);
    }
}

static bool stages(const struct connector *base)
{
    (void)base;
    return false;
}

static void stage(struct connector *base, const struct run_order *o, struct call *call)
{
    struct err err;

    (void)o;
    (void)err_set(&err, E_NOTIMPL,
                  "target %.100s cannot be asked to look at a checkpoint ahead of a start: its "
                  "runners verify what they resume from",
                  base->target);
    call_later(kubernetes_of(base), call, OUT_REJECTED, &err);
}

/* Runners that call home have them, and know the run's own processes; else the API server does.
 * Programs of manifests have no runner, wherever they run. */
static bool has_runner(const struct kubernetes *k, const struct run_key *key)
{
    return kubernetes_has_runners(k) && !kube_runs_foreign(k->runs, key);
}

static int logs(struct connector *base, const struct run_key *key, const struct log_request *rq,
                const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    const struct kubernetes *k = kubernetes_of(base);

    return has_runner(k, key) ? home_runs_logs(k->home, key, rq, sink, ret, err)
                              : kube_look_logs(k->look, key, rq, sink, ret, err);
}

static int exec(struct connector *base, const struct run_key *key, const struct exec_request *rq,
                const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    const struct kubernetes *k = kubernetes_of(base);

    return has_runner(k, key) ? home_runs_exec(k->home, key, rq, sink, ret, err)
                              : kube_look_exec(k->look, key, rq, sink, ret, err);
}

static int forward(struct connector *base, const struct run_key *key,
                   const struct forward_request *rq, const struct log_sink *sink,
                   struct exec_session **ret, struct err *err)
{
    const struct kubernetes *k = kubernetes_of(base);

    return has_runner(k, key) ? home_runs_forward(k->home, key, rq, sink, ret, err)
                              : kube_look_forward(k->look, key, rq, sink, ret, err);
}

static void exec_input(struct exec_session *s, const void *p, size_t n, bool eof)
{
    s->ops->input(s, p, n, eof);
}
static size_t exec_pending(const struct exec_session *s)
{
    return s->ops->pending(s);
}
static void exec_resize(struct exec_session *s, const struct exec_size *size)
{
    s->ops->resize(s, size);
}
static void exec_close(struct exec_session *s)
{
    s->ops->close(s);
}

const struct connector_ops connector_kubernetes_ops = {.type = "kubernetes",
                                                       .acts_for = true,
                                                       .create = create,
                                                       .destroy = destroy,
                                                       .update = update,
                                                       .probe = probe,
                                                       .inventory = inventory,
                                                       .submit = submit,
                                                       .repeats = repeats,
                                                       .find = find,
                                                       .stage = stage,
                                                       .stages = stages,
                                                       .quiesce = quiesce,
                                                       .checkpoint = checkpoint,
                                                       .stop = stop,
                                                       .finalize = finalize,
                                                       .renew = renew,
                                                       .reaches = reaches,
                                                       .runner = runner,
                                                       .members = members,
                                                       .logs = logs,
                                                       .exec = exec,
                                                       .forward = forward,
                                                       .exec_input = exec_input,
                                                       .exec_pending = exec_pending,
                                                       .exec_resize = exec_resize,
                                                       .exec_close = exec_close,
                                                       .sweep = sweep,
                                                       .promises = promises,
                                                       .leave = leave,
                                                       .details = details,
                                                       .foreign = foreign};
