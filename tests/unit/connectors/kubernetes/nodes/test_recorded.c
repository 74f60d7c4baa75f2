/* Nodes of many clusters, with the labels that documents record (tests/golden/kube_nodes, each with
 * its source): what is read of them stands in tests/golden/kube_nodes.txt. */
#include "connectors/kubernetes/nodes/nodes_internal.h"
#include "tests/support/golden/golden.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

#define NOW_MS 1795840000000 /* half an hour ahead of the maintenance of gke-partition */

static const char *const names[] = {
    "gke-h100",       "gke-spot-shared", "gke-partition", "eks-h100",      "eks-ultraserver",
    "karpenter-spot", "eks-spot-itn",    "hyperpod",      "aks-spot",      "coreweave-h100",
    "oci-gb200",      "topograph-old",   "mig-single",    "mig-mixed",     "mps",
    "renamed-shared", "amd-mi300x",      "intel-max",     "plugin-only",   "control-plane",
    "silent",         "scaled-down"};

static cJSON *document(const char *name)
{
    static char text[32768];
    char path[128];
    size_t n;

    (void)snprintf(path, sizeof path, "tests/golden/kube_nodes/%s.json", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    n = fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    text[n] = '\0';
    cJSON *o = cJSON_Parse(text);
    assert_non_null(o);
    assert_true(*kube_annotation(o, "source"));
    return o;
}

static void say(struct golden *g, const char *name, const char *line)
{
    char text[GOLDEN_LINE_MAX];

    (void)snprintf(text, sizeof text, "%s: %s\n", name, line);
    golden_next(g, text);
}

static void say_rows(struct golden *g, const char *name, const struct node_spec *s,
                     const char *const *resources)
{
    char line[200];

    for (uint32_t i = 0; i < s->n_counted; i++) {
        const struct counted_gpus *c = &s->counted[i];

        (void)snprintf(line, sizeof line, "%s %lld, %lld away: %s%s%s, %lld MiB, shares %lld",
                       resources[i], (long long)c->count, (long long)c->unhealthy, c->model,
                       *c->mig ? " mig " : "", c->mig, (long long)c->memory >> 20,
                       (long long)c->shares);
        say(g, name, line);
    }
}

static void say_topology(struct golden *g, const char *name, const struct topology *t)
{
    char line[200];

    if (!t)
        return;
    (void)snprintf(line, sizeof line, "%s/%s block %s rack %s leaf %s nvlink %s", t->region,
                   t->zone, t->block, t->rack, t->leaf, t->nvlinkDomain);
    say(g, name, line);
}

static void say_health(struct golden *g, const char *name, const struct node *n)
{
    char line[200];

    (void)snprintf(line, sizeof line, "%s%s%s%s", health_text(n->status->health),
                   *n->status->reason ? ", " : "", n->status->reason,
                   n->spec->unschedulable ? ", unschedulable" : "");
    say(g, name, line);
    for (uint32_t i = 0; i < n->status->n_faults; i++) {
        const struct node_fault *f = &n->status->faults[i];
        (void)snprintf(line, sizeof line, "fault %s by %s: %s, %.80s", health_text(f->health),
                       health_source_text(f->source), f->reason, f->message);
        say(g, name, line);
    }
}

static void as_recorded(void **state)
{
    struct golden g;
    struct err err;
    char line[200];

    (void)state;
    golden_open(&g, "kube_nodes.txt");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *resources[KUBE_ROWS_MAX];
        AUTO_ARENA a = arena_create(0);
        cJSON *doc = document(names[i]);
        struct kube_goes goes;
        struct notice notice;
        struct node n;

        assert_int_equal(kube_node_rows(doc, "k1", NULL, a, &n, resources, &err), 0);
        (void)snprintf(line, sizeof line, "%s cpu %lld m, %lld MiB, %s, %s", n.metadata->name,
                       (long long)n.spec->cpu, (long long)n.spec->memory >> 20,
                       n.spec->capacity ? capacity_text(n.spec->capacity) : "-",
                       *n.spec->interconnect ? n.spec->interconnect : "-");
        say(&g, names[i], line);
        say_topology(&g, names[i], n.spec->topology);
        say_rows(&g, names[i], n.spec, resources);
        say_health(&g, names[i], &n);
        if (kube_goes_read(doc, &goes) && kube_goes_notice(&goes, NOW_MS, 0, &notice)) {
            (void)snprintf(line, sizeof line, "notice %s%s%llu ms", notice_kind_text(notice.kind),
                           notice.ends ? " in " : ", no time, ",
                           (unsigned long long)notice.in_ms);
            say(&g, names[i], line);
        }
        cJSON_Delete(doc);
    }
    golden_close(&g, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_recorded)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
