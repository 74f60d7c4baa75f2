/* What others run in a cluster, as it is listed for whoever asks: no run of Hanse's is in it, a
 * Job is as it could be submitted, pods tell what they hold, pages end, and each question gets one
 * answer. */
#include "api/manifests/manifests.h"
#include "connectors/kubernetes/client/client.h"
#include "tests/support/contract/connector_contract_internal.h"
#include "tests/support/kube/kube_rig.h"

#include <stdio.h>
#include <string.h>

#define ITEMS 512

struct heard {
    unsigned done, pages;
    int code;
    char why[256], next[128];
    size_t n;
    struct {
        char ns[64], name[64], owner[32], node[32], model[32], hanse_ns[64], place[64];
        char manifest[2048];
        bool suspended, runs;
        int64_t count, cpu, since_ms;
        unsigned n_devices;
    } v[ITEMS];
};
static struct heard heard;

static void on_page(void *arg, const struct foreign_page *p, const struct err *err)
{
    struct heard *h = arg;

    h->done++;
    h->code = err ? err->code : 0;
    str_copy(h->why, sizeof h->why, err ? err->text : "");
    if (!p)
        return;
    str_copy(h->next, sizeof h->next, p->next);
    for (size_t i = 0; i < p->n; i++) {
        const struct foreign_item *f = &p->v[i];
        assert_true(h->n < ITEMS);
        str_copy(h->v[h->n].ns, 64, f->ns);
        str_copy(h->v[h->n].name, 64, f->name);
        str_copy(h->v[h->n].owner, 32, f->owner_kind);
        str_copy(h->v[h->n].node, 32, f->node);
        str_copy(h->v[h->n].model, 32, f->n_devices ? f->devices[0].model : "");
        str_copy(h->v[h->n].hanse_ns, 64, f->hanse_ns);
        str_copy(h->v[h->n].place, 64, f->place);
        assert_true(strlen(f->manifest) < sizeof h->v[h->n].manifest);
        str_copy(h->v[h->n].manifest, sizeof h->v[h->n].manifest, f->manifest);
        h->v[h->n].suspended = f->suspended;
        h->v[h->n].runs = f->runs;
        h->v[h->n].count = f->n_devices ? f->devices[0].count : 0;
        h->v[h->n].n_devices = f->n_devices;
        h->v[h->n].cpu = f->cpu_milli;
        h->v[h->n].since_ms = f->since_ms;
        h->n++;
    }
}

static bool was_told(void *arg)
{
    return ((const struct heard *)arg)->done > 0;
}

/* All pages. */
static void asked(struct connector_rig *r, enum foreign_list what, const char *ns)
{
    char after[128] = "";

    heard = (struct heard){0};
    do {
        const struct foreign_ask ask = {
            .what = what, .ns = ns, .after = after, .deadline_ms = loop_now_ms(r->loop) + 5000};
        heard.done = 0;
        heard.pages++;
        r->ops->foreign(r->connector, &ask, on_page, &heard);
        str_copy(after, sizeof after, "gone"); /* it was copied */
        assert_int_equal(heard.done, 0);       /* never from inside the call */
        assert_true(connector_until(r, was_told, &heard, 20000));
        assert_int_equal(heard.done, 1);
        str_copy(after, sizeof after, heard.next);
    } while (*after && !heard.code);
}

static size_t of_name(const char *name)
{
    for (size_t i = 0; i < heard.n; i++)
        if (strcmp(heard.v[i].name, name) == 0)
            return i;
    fail_msg("%s is not told", name);
    return 0;
}

static struct kube_object *put(const char *kind, const char *format, ...) PRINTF_LIKE(2, 3);
static struct kube_object *put(const char *kind, const char *format, ...)
{
    char text[4096];
    va_list ap;
    cJSON *doc;

    va_start(ap, format);
    (void)vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    doc = cJSON_Parse(text);
    assert_non_null(doc);
    return kube_world_put(kind, doc);
}

#define THEIRS                                                                                     \
    "{\"metadata\":{\"name\":\"%s\",\"namespace\":\"%s\",\"generation\":2,\"labels\":{\"a\":"      \
    "\"b\","                                                                                       \
    "\"job-name\":\"x\"},\"managedFields\":[{}]},\"spec\":{\"suspend\":%s,\"parallelism\":2,"      \
    "\"completions\":2,\"selector\":{\"matchLabels\":{\"controller-uid\":\"u\"}},\"template\":{"   \
    "\"metadata\":{\"labels\":{\"batch.kubernetes.io/controller-uid\":\"u\",\"c\":\"d\"}},"        \
    "\"spec\":{\"restartPolicy\":\"Never\",\"containers\":[{\"name\":\"m\",\"image\":\"i\","       \
    "\"resources\":{\"limits\":{\"nvidia.com/gpu\":\"2\"}}}]}}},\"status\":{%s}}"

static void jobs_as_they_could_be_submitted(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key ours = contract_running(r, &a);
    struct manifest m;
    cJSON *doc;

    (void)put("jobs", THEIRS, "waits", "vision", "true", "\"active\":0");
    (void)put("jobs", THEIRS, "runs", "vision", "false", "");
    (void)put("jobs", THEIRS, "over", "vision", "false",
              "\"conditions\":[{\"type\":\"Complete\",\"status\":\"True\"}]");
    (void)put("jobs", THEIRS, "failed", "vision", "false",
              "\"conditions\":[{\"type\":\"Failed\",\"status\":\"True\"}]");
    (void)put("jobs", THEIRS, "there", "speech", "false", "");
    asked(r, FOREIGN_JOBS, "");
    assert_int_equal(heard.code, 0);
    assert_int_equal(heard.n, 3); /* neither those that are over, nor ours */
    assert_non_null(kube_world_job(&ours));
    size_t i = of_name("waits");
    assert_true(heard.v[i].suspended);
    assert_false(heard.v[of_name("runs")].suspended);
    assert_string_equal(heard.v[i].hanse_ns, "vision");
    assert_string_equal(heard.v[i].place, "vision");
    assert_true(heard.v[i].since_ms > 0);
    doc = cJSON_Parse(heard.v[i].manifest);
    assert_int_equal(manifest_read(doc, NULL, NULL, &m, NULL), 0);
    assert_int_equal(m.workers, 2);
    assert_int_equal(m.asks.devices, 2);
    assert_null(strstr(heard.v[i].manifest, "controller-uid"));
    assert_null(strstr(heard.v[i].manifest, "job-name"));
    assert_null(strstr(heard.v[i].manifest, "managedFields"));
    assert_null(strstr(heard.v[i].manifest, "status"));
    assert_non_null(strstr(heard.v[i].manifest, "\"c\":\"d\""));
    cJSON_Delete(doc);
    asked(r, FOREIGN_JOBS, "speech");
    assert_int_equal(heard.n, 1);
    assert_string_equal(heard.v[0].name, "there");
}

/* A Target may have other names for namespaces, and one for all others. */
static void by_the_names_of_its_target(void **state)
{
    struct connector_rig *r = *state;
    AUTO_ARENA a = arena_create(0);
    struct target *t = object_edit_as(kube_rig.target, target, a);
    struct kubernetes_namespace as = {.namespace_ = "v-dev", .as = "vision"};
    struct object *named;

    t->spec->kubernetes = arena_new(a, struct target_kubernetes);
    t->spec->kubernetes->namespaces = &as;
    t->spec->kubernetes->n_namespaces = 1;
    t->spec->connection->namespace_ = "all";
    named = object_make(kube_rig.target->kind, t);
    r->ops->update(r->connector, named);
    (void)put("jobs", THEIRS, "mapped", "vision", "false", "");
    (void)put("jobs", THEIRS, "other", "speech", "false", "");
    asked(r, FOREIGN_JOBS, "");
    assert_string_equal(heard.v[of_name("mapped")].hanse_ns, "v-dev");
    assert_string_equal(heard.v[of_name("mapped")].place, "vision");
    assert_string_equal(heard.v[of_name("other")].hanse_ns, "speech");
    assert_string_equal(heard.v[of_name("other")].place, "all");
    r->ops->update(r->connector, kube_rig.target);
    (void)object_unref(named);
}

/* Its labels are anybody's: only by its mark it is ours. */
static void whoever_has_our_labels_alone_is_told(void **state)
{
    struct connector_rig *r = *state;
    struct kube_object *o = put("jobs", THEIRS, "sly", "vision", "false", "");

    cJSON_AddStringToObject(cJSON_GetObjectItem(cJSON_GetObjectItem(o->doc, "metadata"), "labels"),
                            "hanse.dev/key", "0b6ff7a6-1d9c-4a57-a3a4-0f8a4ad0c7a1.1.1");
    asked(r, FOREIGN_JOBS, "");
    assert_int_equal(heard.n, 1);
}

static void pods_with_what_they_hold(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;

    (void)contract_running(r, &a);
    (void)put("pods",
              "{\"metadata\":{\"name\":\"p-0\",\"namespace\":\"vision\",\"ownerReferences\":["
              "{\"kind\":\"Group\",\"name\":\"g\"},{\"kind\":\"Job\",\"name\":\"runs\",\"uid\":"
              "\"77\",\"controller\":true}]},\"spec\":{\"nodeName\":\"n1\",\"containers\":[{"
              "\"name\":\"m\",\"resources\":{\"requests\":{\"cpu\":\"1500m\",\"nvidia.com/gpu\":"
              "\"1\"}}}]},\"status\":{\"phase\":\"Running\",\"startTime\":"
              "\"2026-11-21T03:33:22Z\"}}");
    (void)put("pods",
              "{\"metadata\":{\"name\":\"bare\",\"namespace\":\"vision\"},\"spec\":{"
              "\"nodeName\":\"n9\",\"containers\":[{\"name\":\"m\",\"resources\":{"
              "\"requests\":{\"nvidia.com/gpu\":4}}}]},\"status\":{\"phase\":\"Pending\"}}");
    (void)put("pods",
              "{\"metadata\":{\"name\":\"waits\",\"namespace\":\"vision\"},\"spec\":{"
              "\"containers\":[{\"name\":\"m\",\"resources\":{"
              "\"requests\":{\"nvidia.com/gpu\":4}}}]},\"status\":{\"phase\":\"Pending\"}}");
    (void)put("pods", "{\"metadata\":{\"name\":\"over\",\"namespace\":\"vision\"},\"spec\":{"
                      "\"nodeName\":\"n1\",\"containers\":[]},\"status\":{\"phase\":"
                      "\"Succeeded\"}}");
    asked(r, FOREIGN_PODS, "");
    assert_int_equal(heard.code, 0);
    assert_int_equal(heard.n, 3); /* ours is not among them */
    size_t i = of_name("p-0");
    assert_string_equal(heard.v[i].owner, "Job");
    assert_string_equal(heard.v[i].node, "kube.n1");
    assert_string_equal(heard.v[i].model, "NVIDIA-H100-80GB-HBM3");
    assert_int_equal(heard.v[i].count, 1);
    assert_int_equal(heard.v[i].cpu, 1500);
    assert_true(heard.v[i].runs);
    assert_int_equal(heard.v[i].since_ms, 1795232002000);
    i = of_name("bare");
    assert_string_equal(heard.v[i].owner, "");
    assert_string_equal(heard.v[i].node, "kube.n9");
    assert_string_equal(heard.v[i].model, ""); /* a node that nobody knows */
    assert_int_equal(heard.v[i].count, 4);
    assert_false(heard.v[i].runs);
    i = of_name("waits");
    assert_string_equal(heard.v[i].node, "");
    assert_int_equal(heard.v[i].n_devices, 0);
}

static void page_by_page(void **state)
{
    struct connector_rig *r = *state;
    char name[32];

    for (unsigned i = 0; i < 120; i++) {
        (void)snprintf(name, sizeof name, "j%u", i);
        (void)put("jobs", THEIRS, name, "vision", "false", "");
    }
    asked(r, FOREIGN_JOBS, "vision");
    assert_int_equal(heard.n, 120);
    assert_int_equal(heard.pages, 3);
}

static void one_answer_whatever_happens(void **state)
{
    struct connector_rig *r = *state;
    const struct foreign_ask ask = {
        .what = FOREIGN_PODS, .ns = "", .after = "", .deadline_ms = loop_now_ms(r->loop) + 5000};

    kube_world.silent = true;
    asked(r, FOREIGN_PODS, "");
    assert_int_not_equal(heard.code, 0);
    asked(r, FOREIGN_PODS, "a/b?c"); /* it would be another path */
    assert_int_equal(heard.code, E_INVALID);
    heard = (struct heard){0};
    r->ops->foreign(r->connector, &ask, on_page, &heard);
    connector_rig_end(r);
    assert_int_equal(heard.done, 1);
    assert_int_not_equal(heard.code, 0);
    kube_world.silent = false;
    connector_rig_begin(r);
}

#define T(name) cmocka_unit_test_setup_teardown(name, kube_rig_setup, kube_rig_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(jobs_as_they_could_be_submitted),
        T(by_the_names_of_its_target),
        T(whoever_has_our_labels_alone_is_told),
        T(pods_with_what_they_hold),
        T(page_by_page),
        T(one_answer_whatever_happens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
