/* Figures of status that are made when an object is shown: they follow every change of what is
 * held, are the same on whoever has applied the same, and cost no change of the objects that show
 * them. */
#include "controlplane/server/figures.h"
#include "tests/support/store/store_kit.h"

static struct figures *F;

static const struct queue_status *queue(struct kit *k, const char *name)
{
    static struct object *shown;

    shown = object_unref(shown);
    if (!name)
        return NULL;
    shown = figures_shown(&F, k->root, k->now, root_get(k->root, KIND_QUEUE, "", name));
    assert_non_null(shown);
    return object_as(shown, queue)->status;
}

static void load(struct kit *k, const char *name, int64_t waits, int64_t holds, int64_t gpus)
{
    const struct queue_status *s = queue(k, name);
    int64_t sum = 0;

    for (uint32_t i = 0; i < s->n_gpus; i++)
        sum += s->gpus[i].allocated;
    if (s->pending != waits || s->running != holds || sum != gpus)
        fail_msg("%s: %lld wait, %lld hold %lld GPUs", name, (long long)s->pending,
                 (long long)s->running, (long long)sum);
    root_check(k->root); /* the indexes below are what the objects say */
}

static void text_of(struct kit *k, enum kind_id kind, const char *name, char *out, size_t n)
{
    struct object *o = figures_shown(&F, k->root, k->now, root_get(k->root, kind, "", name));
    AUTO_BUF b;

    assert_non_null(o);
    buf_init(&b, 1 << 20);
    object_print_json(o, &b);
    (void)snprintf(out, n, "%s", b.p);
    (void)object_unref(o);
}

static void placed(struct kit *k, const char *name, const char *node, int64_t first,
                   int64_t workers, int64_t gpus)
{
    union command c;

    kit_place_head(k, &c, name, "Placed", "Chosen");
    c.place.placement = kit_workers(k, node, first, workers, gpus);
    (void)snprintf(c.place.queue, sizeof c.place.queue, "team");
    struct result r = kit_apply(k, &c);
    if (r.code)
        fail_msg("%s: %s", name, r.text);
}

static void says(struct kit *k, enum kind_id kind, const char *name, const char *what)
{
    char text[4096];

    text_of(k, kind, name, text, sizeof text);
    if (!strstr(text, what))
        fail_msg("no %s in %s", what, text);
}

static void begin(struct kit *k)
{
    struct write_op ops[3];

    kit_begin(k);
    kit_pool(k, 2, 4);
    kit_op_queue(k, &ops[0], "all", "");
    kit_op_queue(k, &ops[1], "team", "all");
    kit_op_queue(k, &ops[2], "other", "all");
    assert_int_equal(kit_write(k, ops, 3, "", "").code, 0);
    struct queue *q = object_edit_as(root_get(k->root, KIND_QUEUE, "", "team"), queue, k->a);
    q->spec->namespaces = arena_array(k->a, const char *, 1);
    q->spec->namespaces[0] = "default";
    q->spec->n_namespaces = 1;
    assert_int_equal(kit_update(k, KIND_QUEUE, "", "team", q, 0, false).code, 0);
}

static void test_queues_and_targets(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    load(&k, "team", 0, 0, 0);
    says(&k, KIND_QUEUE, "team", "\"pending\":0,\"running\":0"); /* a 0 is told */
    assert_int_equal(kit_workload(&k, "default", "a", 1, 2).code, 0);
    assert_int_equal(kit_workload(&k, "default", "b", 2, 1).code, 0);
    load(&k, "team", 2, 0, 0);
    load(&k, "all", 2, 0, 0); /* a queue counts those below it */
    load(&k, "other", 0, 0, 0);
    says(&k, KIND_TARGET, "fra", "\"gpus\":[{\"class\":\"h100\",\"total\":8,\"allocated\":0}]");

    int64_t rv = root_get(k.root, KIND_QUEUE, "", "team")->meta->resourceVersion;
    placed(&k, "a", "fra.n0", 0, 1, 2);
    load(&k, "team", 1, 1, 2);
    load(&k, "all", 1, 1, 2);
    says(&k, KIND_TARGET, "fra", "\"total\":8,\"allocated\":2");
    says(&k, KIND_NODE, "fra.n0", "\"gpuMilliAllocated\":2000,\"cpuAllocated\":\"1\"");
    says(&k, KIND_NODE, "fra.n1", "\"gpuMilliAllocated\":0");
    placed(&k, "b", "fra.n0", 2, 2, 1);
    load(&k, "all", 0, 2, 4);
    assert_int_equal(root_get(k.root, KIND_QUEUE, "", "team")->meta->resourceVersion, rv);

    assert_int_equal(kit_run(&k, "a", 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(kit_run(&k, "a", 1, 1, STEP_RUNNING).code, 0);
    load(&k, "team", 0, 2, 4);
    k.now +=
        10 * 3600000; /* 4 GPUs, 10 hours, less than a day ago; nothing was written meanwhile */
    assert_true(queue(&k, "team")->decayedGpuHours > 38 && queue(&k, "team")->decayedGpuHours < 42);
    assert_true(queue(&k, "all")->decayedGpuHours > 38); /* with those below */
    says(&k, KIND_QUEUE, "other", "\"decayedGpuHours\":0");
    assert_int_equal(kit_run(&k, "a", 1, 1, STEP_ENDED).code, 0);
    load(&k, "team", 0, 1, 2);
    says(&k, KIND_TARGET, "fra", "\"total\":8,\"allocated\":2");
    (void)queue(&k, NULL);
    F = figures_destroy(F);
    kit_end(&k);
}

/* Whoever reads a snapshot of the same state says the same, to the byte. */
static void test_members_agree(void **state)
{
    struct kit k;
    struct root *other = NULL, *mine;
    struct err e;
    char a[4096], b[4096];
    AUTO_BUF bytes;

    (void)state;
    begin(&k);
    for (int i = 0; i < 6; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "w%d", i);
        assert_int_equal(kit_workload(&k, "default", name, 1, 1).code, 0);
        if (i < 4)
            placed(&k, name, "fra.n1", i, 1, 1);
    }
    buf_init(&bytes, 64u << 20);
    assert_int_equal(snapshot_encode(k.root, &bytes, &e), 0);
    assert_int_equal(snapshot_decode(slice_make(bytes.p, bytes.n), &other, &e), 0);
    mine = k.root;
    for (int i = 0; i < 3; i++) {
        static const struct {
            enum kind_id kind;
            const char *name;
        } of[] = {{KIND_QUEUE, "all"}, {KIND_TARGET, "fra"}, {KIND_NODE, "fra.n1"}};
        text_of(&k, of[i].kind, of[i].name, a, sizeof a);
        F = figures_destroy(F);
        k.root = other;
        text_of(&k, of[i].kind, of[i].name, b, sizeof b);
        k.root = mine;
        assert_string_equal(a, b);
    }
    load(&k, "all", 2, 4, 4);
    (void)queue(&k, NULL);
    (void)root_unref(other);
    F = figures_destroy(F);
    kit_end(&k);
}

/* A dry run's state has the same entry number: what was made of one must not be shown of the
 * other. */
static void test_each_state_has_its_own(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    assert_int_equal(kit_workload(&k, "default", "a", 1, 1).code, 0);
    load(&k, "team", 1, 0, 0);
    struct root *was = root_ref(k.root);
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, "default", "a").code, 0);
    load(&k, "team", 0, 0, 0);
    struct root *now = k.root;
    k.root = was;
    load(&k, "team", 1, 0, 0);
    k.root = now;
    (void)root_unref(was);
    (void)queue(&k, NULL);
    F = figures_destroy(F);
    kit_end(&k);
}

/* What is stored and not acted upon says so, also where it is of before it was refused; what is
 * acted upon has nothing to say. */
static void test_what_is_not_enforced(void **state)
{
    struct gpu_hours hours = {.limit = 20, .period = PERIOD_MONTH};
    struct kit k;

    (void)state;
    begin(&k);
    struct queue *q = object_edit_as(root_get(k.root, KIND_QUEUE, "", "team"), queue, k.a);
    q->spec->gpuHours = &hours;
    assert_int_equal(kit_update(&k, KIND_QUEUE, "", "team", q, 0, false).code, 0);
    says(&k, KIND_QUEUE, "team",
         "\"type\":\"Enforced\",\"status\":\"False\",\"reason\":\"NotEnforced\"");
    says(&k, KIND_QUEUE, "team", "spec.gpuHours: GPU-hours over time are not limited yet");
    struct budget *b = arena_new(k.a, struct budget);
    b->spec = arena_new(k.a, struct budget_spec);
    b->spec->period = PERIOD_DAY;
    assert_int_equal(kit_create(&k, KIND_BUDGET, "", "old", b).code, 0);
    says(&k, KIND_BUDGET, "old", "Enforced");
    char text[4096];
    text_of(&k, KIND_QUEUE, "all", text, sizeof text);
    assert_null(strstr(text, "Enforced"));
    text_of(&k, KIND_TARGET, "fra", text, sizeof text);
    assert_null(strstr(text, "Enforced"));
    F = figures_destroy(F);
    kit_end(&k);
}

static void use_shown(struct kit *k, enum phase phase, struct gpu_use *u, const char *want)
{
    struct workload *w = object_edit_as(kit_get(k, "busy"), workload, k->a);
    struct placement p = {.target = "fra", .gpus = 8000};

    w->status->phase = phase;
    w->status->placement = &p;
    w->status->gpuUse = u;
    struct object *o = object_make(kind_by_id(KIND_WORKLOAD), w);
    struct object *shown = figures_shown(&F, k->root, k->now, o);
    assert_string_equal(shown ? object_as(shown, workload)->status->gpuUtilisation : "", want);
    (void)object_unref(shown);
    (void)object_unref(o);
}

/* Of what runs on GPUs: how busy they are, or that nobody knows. */
static void test_how_busy_gpus_are(void **state)
{
    struct kit k;
    struct gpu_use u = {.measured = 8000, .percent = 81};

    (void)state;
    begin(&k);
    assert_int_equal(kit_workload(&k, "default", "busy", 1, 8).code, 0);
    use_shown(&k, PHASE_RESERVED, NULL, "");
    use_shown(&k, PHASE_RUNNING, NULL, "not measured");
    use_shown(&k, PHASE_RUNNING, &u, "81%");
    u.idle = 2000;
    u.idleSince = k.now - 3 * 3600000;
    use_shown(&k, PHASE_RUNNING, &u, "81%, 2 of 8 idle");
    u.idle = 8000;
    use_shown(&k, PHASE_RUNNING, &u, "0% for 3h");
    u.idle = u.measured = 7000;
    use_shown(&k, PHASE_RUNNING, &u, "0% for 3h, 1 not measured");
    F = figures_destroy(F);
    kit_end(&k);
}

/* Too large with its figures: it is shown as it is stored. */
static void test_what_is_too_large(void **state)
{
    struct kit k;
    struct object *large = NULL;
    char *text = calloc(1, OBJECT_MADE_MAX_BYTES + 1);

    (void)state;
    assert_non_null(text);
    memset(text, 'x', OBJECT_MADE_MAX_BYTES);
    begin(&k);
    struct node *n = object_edit_as(root_get(k.root, KIND_NODE, "", "fra.n0"), node, k.a);
    n->spec->hostname = text;
    assert_int_equal(
        object_make_within(kind_by_id(KIND_NODE), n, 2 * OBJECT_MADE_MAX_BYTES, &large, NULL), 0);
    assert_null(figures_shown(&F, k.root, k.now, large));
    (void)object_unref(large);
    free(text);
    kit_end(&k);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queues_and_targets), cmocka_unit_test(test_members_agree),
        cmocka_unit_test(test_what_is_too_large), cmocka_unit_test(test_what_is_not_enforced),
        cmocka_unit_test(test_each_state_has_its_own), cmocka_unit_test(test_how_busy_gpus_are)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
