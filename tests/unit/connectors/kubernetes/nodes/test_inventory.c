/* Inventory: what the hub hears of nodes and of others' pods, against a world of nodes and pods
 * that come and go in any order, are listed anew and watched, and a hub that takes pages as the
 * leader does. In the end it knows what a count from scratch gives. */
#include "connectors/kubernetes/nodes/nodes_internal.h"
#include "tests/support/unit.h"
#include "tests/support/web/still_loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES 14
#define PODS 60
#define EVENTS 64

/* ---- the world ---- */
struct world_node {
    bool there, broken;
    int cpu, gpus, away;
    int beats; /* signs of life */
};
struct world_pod {
    bool there, done;
    int life, node, cpu, gpus;
};
struct world_event {
    enum kube_change change;
    char *text;
};
struct world_stream { /* of one kind: a listing under way, or a watch, behind by some events */
    bool listing;
    struct world_event snapshot[PODS], events[EVENTS];
    unsigned n_snapshot, at, n_events;
};
struct heard {
    bool there;
    int64_t cpu, gpus, away, others_cpu, others_memory, others_gpus;
};
static struct world {
    struct loop *loop;
    struct kube_nodes *n;
    struct world_node nodes[NODES];
    struct world_pod pods[PODS];
    struct world_stream of_nodes, of_pods;
    struct heard heard[NODES];
    bool named[NODES], lacks, in_listing, listed;
    char revision[32];
    unsigned told, notices, listings;
    unsigned long long seed;
} W;

static unsigned dice(unsigned n)
{
    W.seed = W.seed * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(W.seed >> 33) % n;
}

static char *node_text(int i)
{
    const struct world_node *w = &W.nodes[i];
    char text[1024];

    (void)snprintf(text, sizeof text,
                   "{\"metadata\":{\"name\":\"n.%d\"},\"status\":{\"capacity\":{\"cpu\":\"%d%s\","
                   "\"memory\":\"8Gi\",\"nvidia.com/gpu\":\"%d\"},\"allocatable\":{"
                   "\"cpu\":\"%d\",\"memory\":\"8Gi\",\"nvidia.com/gpu\":\"%d\"%s},"
                   "\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\","
                   "\"lastHeartbeatTime\":\"%d\"}]}}",
                   i, w->cpu, w->broken ? "x" : "", w->gpus, w->cpu, w->gpus - w->away,
                   w->broken ? ",\"amd.com/gpu\":\"x\"" : "", w->beats);
    return strdup(text);
}

static char *pod_text(int i)
{
    const struct world_pod *p = &W.pods[i];
    char text[1024], host[32] = "";

    if (p->node >= 0)
        (void)snprintf(host, sizeof host, "n.%d", p->node);
    (void)snprintf(text, sizeof text,
                   "{\"metadata\":{\"uid\":\"%d-%d\"},\"spec\":{\"nodeName\":\"%s\","
                   "\"containers\":[{\"resources\":{\"requests\":{\"cpu\":\"%dm\","
                   "\"memory\":\"%dMi\",\"nvidia.com/gpu\":\"%d\"}}}]},"
                   "\"status\":{\"phase\":\"%s\"}}",
                   i, p->life, host, p->cpu, p->cpu, p->gpus, p->done ? "Failed" : "Running");
    return strdup(text);
}

static void feed(bool pods, enum kube_change change, char *text)
{
    cJSON *o = cJSON_Parse(text);

    assert_non_null(o);
    if (pods)
        kube_nodes_pod(W.n, change, o);
    else
        kube_nodes_node(W.n, change, o);
    cJSON_Delete(o);
    free(text);
}

static void stream_step(bool pods);

static void stream_list(bool pods)
{
    struct world_stream *s = pods ? &W.of_pods : &W.of_nodes;

    while (s->n_events)
        free(s->events[--s->n_events].text);
    while (s->at < s->n_snapshot)
        free(s->snapshot[s->at++].text);
    s->at = s->n_snapshot = 0;
    for (int i = 0; i < (pods ? PODS : NODES); i++)
        if (pods ? W.pods[i].there : W.nodes[i].there)
            s->snapshot[s->n_snapshot++].text = pods ? pod_text(i) : node_text(i);
    s->listing = true;
    if (pods)
        kube_nodes_pods_begin(W.n);
    else
        kube_nodes_begins(W.n);
}

static void stream_step(bool pods)
{
    struct world_stream *s = pods ? &W.of_pods : &W.of_nodes;

    if (s->listing && s->at < s->n_snapshot) {
        feed(pods, KUBE_IS, s->snapshot[s->at++].text);
    } else if (s->listing) {
        s->listing = false;
        if (pods)
            kube_nodes_pods_listed(W.n);
        else
            kube_nodes_listed(W.n);
    } else if (s->n_events) {
        feed(pods, s->events[0].change, s->events[0].text);
        memmove(s->events, s->events + 1, --s->n_events * sizeof *s->events);
    }
}

static void stream_event(bool pods, enum kube_change change, char *text)
{
    struct world_stream *s = pods ? &W.of_pods : &W.of_nodes;

    if (s->n_events == EVENTS) { /* too far behind: the watch is cut, and what it had is lost */
        free(text);
        stream_list(pods);
        return;
    }
    s->events[s->n_events++] = (struct world_event){change, text};
}

/* ---- the hub ---- */
static int index_of(const char *name)
{
    assert_int_equal(strncmp(name, "k1.n.", 5), 0);
    return (int)strtol(name + 5, NULL, 10);
}

static void hub_takes(const struct node *v)
{
    int i = index_of(v->metadata->name);
    struct heard *h = &W.heard[i];

    W.named[i] = true;
    W.told++;
    *h = (struct heard){.there = true, .cpu = v->spec->cpu / 1000};
    if (v->spec->n_counted) {
        h->gpus = v->spec->counted[0].count;
        h->away = v->spec->counted[0].unhealthy;
    }
    if (!v->status->others)
        return;
    h->others_cpu = v->status->others->cpu;
    h->others_memory = v->status->others->memory;
    if (v->status->others->n_classes) {
        assert_string_equal(v->status->others->classes[0].class_, v->spec->counted[0].model);
        h->others_gpus = v->status->others->classes[0].count;
    }
}

static void on_nodes(void *arg, const struct inventory_page *p)
{
    (void)arg;
    if (*p->since) {
        assert_false(p->first || p->last || W.in_listing);
        assert_string_equal(p->since, W.revision);
        assert_true(p->n + p->n_removed + p->n_refused > 0);
    } else {
        assert_true(p->first || W.in_listing);
        if (p->first)
            memset(W.named, 0, sizeof W.named);
        W.lacks = p->lacks || (!p->first && W.lacks);
        W.in_listing = !p->last;
    }
    for (size_t i = 0; i < p->n_removed; i++)
        W.heard[index_of(p->removed[i])].there = false;
    for (size_t i = 0; i < p->n_refused; i++)
        assert_true(W.in_listing || *p->since || p->lacks);
    for (size_t i = 0; i < p->n; i++)
        hub_takes(&p->nodes[i]);
    for (int i = 0; p->last && !W.lacks && i < NODES; i++)
        W.heard[i].there &= W.named[i];
    W.listed |= p->last;
    W.listings += p->last;
    str_copy(W.revision, sizeof W.revision, p->revision);
}

static void on_notices(void *arg, const struct notice *v, size_t n)
{
    (void)arg;
    (void)v;
    W.notices = (unsigned)n;
}
static const struct kube_nodes_events events = {.nodes = on_nodes, .notices = on_notices};

static void world_begin(unsigned long long seed)
{
    memset(&W, 0, sizeof W);
    W.seed = seed;
    W.loop = still_loop_create(seed);
    W.n = kube_nodes_create(W.loop, "k1", &events, NULL);
}

static void world_end(void)
{
    for (int pods = 0; pods < 2; pods++) {
        struct world_stream *s = pods ? &W.of_pods : &W.of_nodes;
        while (s->listing || s->n_events)
            stream_step(pods);
    }
    W.n = kube_nodes_destroy(W.n);
    still_loop_run(W.loop, 1000);
    still_loop_destroy(W.loop);
}

/* ---- what happens in it ---- */
static void node_happens(void)
{
    int i = (int)dice(NODES);
    struct world_node *w = &W.nodes[i];

    if (w->there && dice(4) == 0) {
        stream_event(false, KUBE_GONE, node_text(i));
        w->there = false;
        return;
    }
    if (!w->there || dice(3) == 0) {
        w->cpu = 1 + (int)dice(4);
        w->gpus = (int)dice(3);
        w->away = w->gpus ? (int)dice((unsigned)w->gpus + 1) : 0;
        w->broken = dice(12) == 0;
    }
    w->there = true;
    w->beats++;
    stream_event(false, KUBE_IS, node_text(i));
}

static void pod_happens(void)
{
    int i = (int)dice(PODS);
    struct world_pod *p = &W.pods[i];

    if (p->there && dice(3) == 0) {
        stream_event(true, KUBE_GONE, pod_text(i));
        p->there = false;
        return;
    }
    if (!p->there)
        *p = (struct world_pod){.there = true,
                                .life = p->life + 1,
                                .node = (int)dice(NODES + 1) - 1,
                                .cpu = 30 + (int)dice(400),
                                .gpus = dice(3) ? 0 : 1};
    else if (p->node < 0)
        p->node = (int)dice(NODES);
    else if (dice(2))
        p->done = true;
    else
        p->cpu = 30 + (int)dice(400);
    stream_event(true, KUBE_IS, pod_text(i));
}

static void agrees(void)
{
    for (int i = 0; i < NODES; i++) {
        const struct world_node *w = &W.nodes[i];
        const struct heard *h = &W.heard[i];
        int64_t cpu = 0, memory = 0, gpus = 0;

        if (w->there && w->broken)
            continue; /* what the hub had of it stays */
        assert_int_equal(h->there, w->there);
        for (int k = 0; k < PODS; k++) {
            const struct world_pod *p = &W.pods[k];
            if (!p->there || p->done || p->node != i)
                continue;
            cpu += p->cpu;
            memory += (int64_t)p->cpu << 20;
            gpus += p->gpus;
        }
        if (!w->there)
            continue;
        assert_int_equal(h->cpu, w->cpu);
        assert_int_equal(h->gpus, w->gpus);
        assert_int_equal(h->away, w->away);
        assert_int_equal(h->others_cpu, (cpu + 99) / 100 * 100);
        assert_int_equal(h->others_memory, (memory + (64 << 20) - 1) / (64 << 20) * (64 << 20));
        assert_int_equal(h->others_gpus, w->gpus ? gpus : 0);
    }
}

static void settle(void)
{
    for (int pods = 0; pods < 2; pods++) {
        struct world_stream *s = pods ? &W.of_pods : &W.of_nodes;
        while (s->listing || s->n_events)
            stream_step(pods);
    }
    still_loop_run(W.loop, 2000);
}

static void session_anew(void)
{
    kube_nodes_lost(W.n);
    W.listed = W.in_listing = false;
    W.revision[0] = '\0';
    stream_list(false);
    stream_list(true);
}

static void world_run(unsigned long long seed)
{
    world_begin(seed);
    stream_list(false);
    stream_list(true);
    for (unsigned step = 0; step < 600; step++) {
        unsigned what = dice(100);

        if (what < 15)
            node_happens();
        else if (what < 45)
            pod_happens();
        else if (what < 90)
            stream_step(what % 2);
        else if (what < 92)
            stream_list(what % 2);
        else if (what < 94 || step == 20)
            kube_nodes_ask(W.n);
        else if (what < 95 && dice(4) == 0)
            session_anew();
        else
            still_loop_run(W.loop, dice(700));
        if (step % 150 == 149) {
            if (!W.listed)
                kube_nodes_ask(W.n);
            settle();
            assert_true(W.listed);
            agrees();
        }
    }
    world_end();
}

static void random_worlds(void **state)
{
    const char *many = getenv("HANSE_FUZZ_SEEDS");
    unsigned long long n = many ? strtoull(many, NULL, 10) : 60;

    (void)state;
    for (unsigned long long seed = 1; seed <= n; seed++)
        world_run(seed);
}

/* ---- single cases ---- */
static void is(const char *text, bool pod)
{
    feed(pod, KUBE_IS, strdup(text));
}

#define PLAIN(name, beat)                                                                          \
    "{\"metadata\":{\"name\":\"" name "\"},\"status\":{\"allocatable\":{\"cpu\":\"4\"},"           \
    "\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\","                                     \
    "\"lastHeartbeatTime\":\"" beat "\"}]}}"

static void whole(void)
{
    kube_nodes_begins(W.n);
    is(PLAIN("n.1", "1"), false);
    kube_nodes_listed(W.n);
    kube_nodes_pods_begin(W.n);
    kube_nodes_pods_listed(W.n);
}

static void a_sign_of_life_is_no_news(void **state)
{
    (void)state;
    world_begin(1);
    whole();
    still_loop_run(W.loop, 5000);
    assert_int_equal(W.told, 0); /* nobody has asked */
    kube_nodes_ask(W.n);
    assert_int_equal(W.told, 0); /* not from inside the call */
    still_loop_run(W.loop, 10);
    assert_int_equal(W.told, 1);
    is(PLAIN("n.1", "2"), false);
    still_loop_run(W.loop, 5000);
    assert_int_equal(W.told, 1);
    /* Others who come and go by less than a step, neither. */
    is("{\"metadata\":{\"uid\":\"p\"},\"spec\":{\"nodeName\":\"n.1\",\"containers\":[{"
       "\"resources\":{\"requests\":{\"cpu\":\"10m\"}}}]}}",
       true);
    still_loop_run(W.loop, 5000);
    assert_int_equal(W.told, 2);
    is("{\"metadata\":{\"uid\":\"q\"},\"spec\":{\"nodeName\":\"n.1\",\"containers\":[{"
       "\"resources\":{\"requests\":{\"cpu\":\"20m\"}}}]}}",
       true);
    still_loop_run(W.loop, 5000);
    assert_int_equal(W.told, 2);
    world_end();
}

static void nothing_is_told_of_half_a_cluster(void **state)
{
    (void)state;
    world_begin(1);
    kube_nodes_ask(W.n);
    kube_nodes_begins(W.n);
    is(PLAIN("n.1", "1"), false);
    kube_nodes_listed(W.n);
    kube_nodes_pods_begin(W.n);
    still_loop_run(W.loop, 5000);
    assert_false(W.listed);
    kube_nodes_pods_listed(W.n);
    still_loop_run(W.loop, 1000);
    assert_true(W.listed);
    assert_int_equal(W.told, 1);
    world_end();
}

static void an_empty_cluster_is_a_listing(void **state)
{
    (void)state;
    world_begin(1);
    kube_nodes_begins(W.n);
    kube_nodes_listed(W.n);
    kube_nodes_pods_begin(W.n);
    kube_nodes_pods_listed(W.n);
    kube_nodes_ask(W.n);
    still_loop_run(W.loop, 100);
    assert_true(W.listed);
    assert_int_equal(W.told, 0);
    world_end();
}

static void a_session_ends(void **state)
{
    (void)state;
    world_begin(1);
    whole();
    is(PLAIN("n.2", "1"), false);
    kube_nodes_ask(W.n);
    still_loop_run(W.loop, 1000);
    assert_int_equal(W.told, 2);
    is(PLAIN("n.3", "1"), false);
    kube_nodes_lost(W.n);
    still_loop_run(W.loop, 5000);
    kube_nodes_begins(W.n);
    is(PLAIN("n.1", "2"), false);
    is("{\"metadata\":{\"name\":\"n.4\"},\"status\":{\"capacity\":{\"cpu\":\"x\"}}}", false);
    kube_nodes_listed(W.n);
    kube_nodes_ask(W.n);
    still_loop_run(W.loop, 5000);
    assert_int_equal(W.told, 2); /* pods are not whole */
    W.listed = false;
    kube_nodes_pods_begin(W.n);
    kube_nodes_pods_listed(W.n);
    still_loop_run(W.loop, 5000);
    assert_true(W.listed && W.lacks);
    assert_int_equal(W.told, 3);
    assert_true(W.heard[1].there && !W.heard[2].there && !W.heard[3].there);
    world_end();
}

static struct notice last;
static void keep_notice(void *arg, const struct notice *v, size_t n)
{
    on_notices(arg, v, n);
    if (n)
        last = v[0];
}

static void notices_count_down(void **state)
{
    static const struct kube_nodes_events ev = {.nodes = on_nodes, .notices = keep_notice};
    static const char tainted[] =
        "{\"metadata\":{\"name\":\"n.1\"},\"spec\":{\"taints\":[{\"key\":"
        "\"aws-node-termination-handler/spot-itn\",\"effect\":\"NoSchedule\"}]}}";
    char text[512];

    (void)state;
    world_begin(1);
    kube_nodes_destroy(W.n);
    W.n = kube_nodes_create(W.loop, "k1", &ev, NULL);
    whole();
    kube_nodes_ask(W.n);
    still_loop_run(W.loop, 100);
    assert_int_equal(W.notices, 0);
    is(tainted, false);
    still_loop_run(W.loop, 100);
    assert_int_equal(W.notices, 1);
    assert_string_equal(last.node, "k1.n.1");
    assert_true(last.ends && last.in_ms == 120000);
    still_loop_run(W.loop, 50000);
    is(tainted, false); /* the same taint again gives no more time */
    kube_nodes_ask(W.n);
    still_loop_run(W.loop, 1000);
    assert_true(last.in_ms <= 70000 && last.in_ms > 60000);
    is(PLAIN("n.1", "1"), false);
    still_loop_run(W.loop, 1000);
    assert_int_equal(W.notices, 0);
    /* What is told for a time is told an hour ahead of it. */
    (void)snprintf(text, sizeof text,
                   "{\"metadata\":{\"name\":\"n.1\",\"labels\":{"
                   "\"cloud.google.com/scheduled-maintenance-time\":\"%lld\"}}}",
                   (long long)(loop_wall_ms(W.loop) / 1000 + 7200));
    is(text, false);
    still_loop_run(W.loop, 1000);
    assert_int_equal(W.notices, 0);
    still_loop_run(W.loop, 3610000);
    assert_int_equal(W.notices, 1);
    assert_true(last.in_ms <= KUBE_NOTICE_AHEAD_MS && last.in_ms > KUBE_NOTICE_AHEAD_MS - 60000);
    kube_nodes_begins(W.n);
    kube_nodes_listed(W.n);
    still_loop_run(W.loop, 1000);
    assert_int_equal(W.notices, 0);
    assert_false(W.heard[1].there);
    world_end();
}

static void names_beyond_measure(void **state)
{
    char text[1024], name[301];

    (void)state;
    world_begin(1);
    memset(name, 'n', 300);
    name[300] = '\0';
    kube_nodes_begins(W.n);
    is(PLAIN("n.1", "1"), false);
    (void)snprintf(text, sizeof text, "{\"metadata\":{\"name\":\"%s\"}}", name);
    is(text, false);
    name[252] = '\0';
    (void)snprintf(text, sizeof text, "{\"metadata\":{\"name\":\"%s\"}}", name);
    is(text, false);
    is("{}", false);
    feed(false, KUBE_GONE, strdup("{\"metadata\":{\"name\":[]}}"));
    kube_nodes_listed(W.n);
    kube_nodes_pods_begin(W.n);
    (void)snprintf(text, sizeof text, "{\"spec\":{\"nodeName\":\"%s%s\"}}", name, name);
    is(text, true);
    is("{\"spec\":{\"nodeName\":\"n.1\",\"containers\":[{\"resources\":{\"requests\":{"
       "\"memory\":\"99Ei\"}}}]}}",
       true);
    kube_nodes_pods_listed(W.n);
    kube_nodes_ask(W.n);
    still_loop_run(W.loop, 1000);
    assert_true(W.listed && W.lacks);
    assert_int_equal(W.told, 1);
    assert_int_equal(W.heard[1].others_memory, KUBE_MEMORY_MAX);
    world_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sign_of_life_is_no_news),
        cmocka_unit_test(nothing_is_told_of_half_a_cluster),
        cmocka_unit_test(an_empty_cluster_is_a_listing),
        cmocka_unit_test(a_session_ends),
        cmocka_unit_test(notices_count_down),
        cmocka_unit_test(names_beyond_measure),
        cmocka_unit_test(random_worlds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
