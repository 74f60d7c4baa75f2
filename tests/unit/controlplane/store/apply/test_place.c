/* What PLACE checks again, beyond whole devices: MIG instances, quota, compliance; and how long
 * request ids are remembered. Whatever the scheduler saw, the state as it is now decides. */
#include "controlplane/store/store_internal.h"
#include "tests/support/store/store_kit.h"

#define PROFILE "3g.40gb"
#define HOUR_MS (3600 * 1000ll)

/* One node with GPU 0 cut into two instances and GPU 1 whole. */
static void pool_with_mig(struct kit *k)
{
    static const char *profiles[] = {PROFILE, PROFILE};
    union command c = {.head = {.type = CMD_FACTS}};
    struct node *n = arena_new(k->a, struct node);

    kit_pool(k, 1, 1);
    (void)snprintf(c.facts.target, sizeof c.facts.target, "fra");
    (void)snprintf(c.facts.session, sizeof c.facts.session, "s1");
    c.facts.reach_told = c.facts.reachable = c.facts.complete = true;
    c.facts.nodes = n;
    c.facts.n = 1;
    n->metadata = arena_new(k->a, struct meta);
    n->metadata->name = "fra.n0";
    n->spec = arena_new(k->a, struct node_spec);
    n->spec->target = "fra";
    n->spec->cpu = 64000;
    n->spec->memory = (int64_t)1 << 40;
    n->spec->gpus = arena_array(k->a, struct gpu, 2);
    n->spec->n_gpus = 2;
    n->spec->gpus[0] =
        (struct gpu){.index = 0, .class_ = "h100", .migProfiles = profiles, .n_migProfiles = 2};
    n->spec->gpus[1] = (struct gpu){.index = 1, .class_ = "h100"};
    assert_int_equal(kit_apply(k, &c).code, 0);
}

static void workload_of(struct kit *k, const char *name, const char *mig, const char *dataset)
{
    struct workload *w = arena_new(k->a, struct workload);

    w->spec = arena_new(k->a, struct workload_spec);
    w->spec->run = arena_new(k->a, struct run_spec);
    w->spec->run->script = "true";
    w->spec->resources = arena_new(k->a, struct resources);
    w->spec->resources->gpu = arena_new(k->a, struct gpu_request);
    w->spec->resources->gpu->mig = mig;
    w->spec->resources->gpu->count = *mig ? 0 : 1;
    if (*dataset) {
        w->spec->data = arena_new(k->a, struct data_ref);
        w->spec->data->dataset = dataset;
        w->spec->n_data = 1;
    }
    assert_string_equal(kit_create(k, KIND_WORKLOAD, "default", name, w).text, "");
}

/* One worker on device `gpu` of fra.n0, decided in `queue`. */
static struct result place(struct kit *k, const char *name, int64_t gpu, const char *mig,
                           const char *queue)
{
    union command c;
    struct placement *p = arena_new(k->a, struct placement);
    struct assignment *a = arena_new(k->a, struct assignment);

    kit_place_head(k, &c, name, "Placed", "Chosen");
    str_copy(c.place.queue, sizeof c.place.queue, queue);
    c.place.placement = p;
    *a = (struct assignment){.node = "fra.n0", .n_gpus = 1, .mig = mig};
    a->gpuMilli = *mig ? 0 : 1000;
    a->gpus = arena_array(k->a, int64_t, 1);
    a->gpus[0] = gpu;
    *p = (struct placement){.target = "fra",
                            .class_ = "h100",
                            .cpu = 1000,
                            .memory = 1,
                            .assignments = a,
                            .n_assignments = 1};
    return kit_apply(k, &c);
}

static void refused(struct kit *k, struct result r, const char *name, const char *says)
{
    if (r.code != E_PLACE || !strstr(r.text, says))
        fail_msg("%s: %d \"%s\", expected \"%s\"", name, r.code, r.text, says);
    assert_int_equal(kit_phase(k, "default", name), PHASE_QUEUED);
    assert_int_equal(object_as(kit_get(k, name), workload)->status->epoch, 0);
}

static void test_mig(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    pool_with_mig(&k);
    workload_of(&k, "a", PROFILE, "");
    workload_of(&k, "b", PROFILE, "");
    workload_of(&k, "c", PROFILE, "");
    workload_of(&k, "d", "1g.10gb", "");
    workload_of(&k, "e", "", "");
    refused(&k, place(&k, "a", 1, PROFILE, ""), "a", "GPU 1 has no free " PROFILE);
    refused(&k, place(&k, "a", 0, "", ""), "a", "GPU"); /* a whole one was not asked for */
    assert_int_equal(place(&k, "a", 0, PROFILE, "").code, 0);
    assert_int_equal(place(&k, "b", 0, PROFILE, "").code, 0);
    assert_int_equal(root_mig_held(k.root, "fra.n0", 0, PROFILE), 2);
    refused(&k, place(&k, "c", 0, PROFILE, ""), "c", "GPU 0 has no free " PROFILE);
    refused(&k, place(&k, "d", 0, "1g.10gb", ""), "d", "GPU 0 has no free 1g.10gb");
    refused(&k, place(&k, "e", 0, "", ""), "e", "GPU 0"); /* cut up: never whole */
    assert_int_equal(place(&k, "e", 1, "", "").code, 0);
    assert_int_equal(kit_run(&k, "a", 1, 1, STEP_DISPATCH).code, 0);
    refused(&k, place(&k, "c", 0, PROFILE, ""), "c", "no free");
    assert_int_equal(kit_run(&k, "a", 1, 1, STEP_ENDED).code, 0);
    assert_int_equal(place(&k, "c", 0, PROFILE, "").code, 0); /* free again */
    kit_end(&k);
}

static void test_quota(void **state)
{
    struct kit k;
    struct queue *q;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 1, 4);
    q = arena_new(k.a, struct queue);
    q->spec = arena_new(k.a, struct queue_spec);
    q->spec->namespaces = arena_array(k.a, const char *, 1);
    q->spec->namespaces[0] = "default";
    q->spec->n_namespaces = 1;
    q->spec->gpus = arena_new(k.a, struct queue_gpus);
    q->spec->n_gpus = 1;
    *q->spec->gpus = (struct queue_gpus){
        .class_ = "h100", .guaranteed = 1, .burst = 2, .has = 7}; /* no borrowLimit */
    assert_string_equal(kit_create(&k, KIND_QUEUE, "", "team", q).text, "");
    workload_of(&k, "a", "", "");
    workload_of(&k, "b", "", "");
    workload_of(&k, "c", "", "");
    refused(&k, place(&k, "a", 0, "", ""), "a",
            "in queue \"team\" now"); /* decided before it was */
    assert_int_equal(place(&k, "a", 0, "", "team").code, 0);
    assert_int_equal(place(&k, "b", 1, "", "team").code, 0);
    refused(&k, place(&k, "c", 2, "", "team"), "c", "quota: ");
    assert_int_equal(kit_run(&k, "a", 1, 0, STEP_REQUEUE).code, 0);
    assert_int_equal(place(&k, "c", 2, "", "team").code, 0);
    kit_end(&k);
}

static void compliance(struct kit *k, enum mode mode)
{
    static const char *classes[] = {"patient"}, *countries[] = {"DE"};
    struct compliance_policy *p = arena_new(k->a, struct compliance_policy);

    p->spec = arena_new(k->a, struct compliance_policy_spec);
    p->spec->selects = arena_new(k->a, struct compliance_select);
    p->spec->selects->dataClasses = classes;
    p->spec->selects->n_dataClasses = 1;
    p->spec->allow = arena_new(k->a, struct compliance_allow);
    p->spec->allow->jurisdictions = countries;
    p->spec->allow->n_jurisdictions = 1;
    p->spec->mode = mode;
    assert_string_equal(
        kit_create(k, KIND_COMPLIANCE_POLICY, "", mode == MODE_AUDIT ? "look" : "stay", p).text,
        "");
}

/* An edit of its spec between place and start is judged, too. */
static void test_compliance_of_checkpoints(void **state)
{
    static const char *kept[] = {"s3://here"};
    AUTO_ARENA a = arena_create(0);
    union command c = {.member = {.head = {.type = CMD_MEMBER},
                                  .member = {.id = 1, .feature_level = FEATURE_GRANTS},
                                  .cluster_uid = "cluster-1"}};
    struct workload *w;
    struct kit k;

    (void)state;
    kit_begin(&k);
    assert_int_equal(kit_apply(&k, &c).code, 0);
    kit_pool(&k, 1, 4);
    struct target *t = object_edit_as(root_get(k.root, KIND_TARGET, "", "fra"), target, a);
    t->spec->jurisdiction = "DE";
    t->spec->localStores = kept;
    t->spec->n_localStores = 1;
    assert_int_equal(kit_update(&k, KIND_TARGET, "", "fra", t, 0, false).code, 0);
    workload_of(&k, "a", "", "");
    compliance(&k, MODE_ENFORCE);
    for (int i = 0; i < 2; i++) {
        static const char *classes[] = {"patient"};
        w = object_edit_as(root_get(k.root, KIND_WORKLOAD, "default", "a"), workload, a);
        w->spec->dataClasses = classes;
        w->spec->n_dataClasses = 1;
        w->spec->checkpoint = arena_new(a, struct checkpoint_spec);
        w->spec->checkpoint->store = i ? "s3://here/a" : "s3://far/a";
        assert_string_equal(kit_update(&k, KIND_WORKLOAD, "default", "a", w, 0, false).text, "");
        struct result r = place(&k, "a", 0, "", "");
        assert_int_equal(r.code, i ? 0 : E_COMPLIANCE);
        if (!i)
            assert_non_null(strstr(r.text, "spec.localStores"));
    }
    assert_int_equal(kit_phase(&k, "default", "a"), PHASE_RESERVED);
    w = object_edit_as(root_get(k.root, KIND_WORKLOAD, "default", "a"), workload, a);
    w->spec->checkpoint->store = "s3://far/a";
    assert_string_equal(kit_update(&k, KIND_WORKLOAD, "default", "a", w, 0, false).text, "");
    assert_int_equal(kit_run(&k, "a", 1, 1, STEP_DISPATCH).code, E_COMPLIANCE);
    w = object_edit_as(root_get(k.root, KIND_WORKLOAD, "default", "a"), workload, a);
    w->spec->checkpoint->store = "s3://here/b";
    assert_string_equal(kit_update(&k, KIND_WORKLOAD, "default", "a", w, 0, false).text, "");
    assert_string_equal(kit_run(&k, "a", 1, 1, STEP_DISPATCH).text, "");
    kit_end(&k);
}

static void test_compliance(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 1, 4);
    struct dataset *d = arena_new(k.a, struct dataset);
    d->spec = arena_new(k.a, struct dataset_spec);
    d->spec->dataClass = "patient";
    assert_int_equal(kit_create(&k, KIND_DATASET, "default", "scans", d).code, 0);
    workload_of(&k, "a", "", "scans");
    workload_of(&k, "b", "", "scans");
    workload_of(&k, "free", "", "");
    compliance(&k, MODE_AUDIT);
    assert_int_equal(place(&k, "b", 3, "", "").code, 0); /* recorded only */
    compliance(&k, MODE_ENFORCE);
    assert_int_equal(place(&k, "free", 1, "", "").code, 0); /* reads no such data */
    struct result r = place(&k, "a", 0, "", "");
    assert_int_not_equal(r.code, 0);
    assert_non_null(strstr(r.text, "stay"));
    assert_int_equal(kit_phase(&k, "default", "a"), PHASE_QUEUED);
    AUTO_ARENA a = arena_create(0);
    struct target *t = object_edit_as(root_get(k.root, KIND_TARGET, "", "fra"), target, a);
    t->spec->jurisdiction = "FR";
    assert_int_equal(kit_update(&k, KIND_TARGET, "", "fra", t, 0, false).code, 0);
    assert_int_not_equal(place(&k, "a", 0, "", "").code, 0);
    t->spec->jurisdiction = "DE";
    assert_int_equal(kit_update(&k, KIND_TARGET, "", "fra", t, 0, false).code, 0);
    assert_string_equal(place(&k, "a", 0, "", "").text, "");
    kit_end(&k);
}

/* One of its nodes, in so many ms; kind 0: withdrawn. */
static struct result notice(struct kit *k, const char *node, enum notice_kind kind, int64_t in_ms)
{
    struct node_notice told = {.kind = kind, .deadline = in_ms};
    struct node_status status = {.reason = "", .notice = kind ? &told : NULL};
    struct meta meta = {.name = node};
    struct node n = {.metadata = &meta, .status = &status};
    union command c = {.facts = {.head = {.type = CMD_FACTS},
                                 .target = "fra",
                                 .session = "s1",
                                 .reach_told = true,
                                 .reachable = true,
                                 .noticed = true,
                                 .nodes = &n,
                                 .n = 1}};

    return kit_apply(k, &c);
}

/* Announced between the decision and its entry. */
static void test_a_node_that_goes_away(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    pool_with_mig(&k);
    workload_of(&k, "a", "", "");
    assert_int_equal(notice(&k, "fra.n0", NOTICE_SPOT, 120000).code, E_INVALID);
    kit_level_set(&k, FEATURE_GRANTS); /* before that nobody takes it in */
    assert_int_equal(notice(&k, "fra.n0", NOTICE_SPOT, 120000).code, 0);
    const struct node_notice *n =
        object_as(root_get(k.root, KIND_NODE, "", "fra.n0"), node)->status->notice;
    assert_int_equal(n->deadline, root_time(k.root) + 120000); /* by the entry's time */
    refused(&k, place(&k, "a", 1, "", ""), "a", "node fra.n0 was announced to go away");
    assert_int_equal(root_count(k.root, KIND_NODE), 1); /* it names no other node, and takes none */
    assert_int_equal(notice(&k, "fra.n9", NOTICE_SPOT, 120000).code, 0);
    assert_int_equal(root_count(k.root, KIND_NODE), 1);
    assert_int_equal(notice(&k, "par.n0", NOTICE_SPOT, 120000).code, E_INVALID);
    assert_int_equal(notice(&k, "fra.n0", NOTICE_SPOT, -1).code, E_INVALID);
    assert_int_equal(notice(&k, "fra.n0", (enum notice_kind)0, 0).code, 0);
    assert_int_equal(place(&k, "a", 1, "", "").code, 0);
    kit_end(&k);
}

static void status_told(struct kit *k, struct node_others *others, struct node_fault *fault)
{
    struct node_status status = {.health = HEALTH_READY,
                                 .reason = "",
                                 .others = others,
                                 .faults = fault,
                                 .n_faults = fault != NULL};
    struct node n = *object_as(root_get(k->root, KIND_NODE, "", "fra.n0"), node);
    union command c = {.facts = {.head = {.type = CMD_FACTS},
                                 .target = "fra",
                                 .session = "s1",
                                 .reach_told = true,
                                 .reachable = true,
                                 .nodes = &n,
                                 .n = 1}};

    n.status = &status;
    assert_int_equal(kit_apply(k, &c).code, 0);
}

static void others_told(struct kit *k, struct node_others *others)
{
    status_told(k, others, NULL);
}

/* Since it was told first, by the state's time, whatever a target says. */
static void test_a_fault_has_its_time(void **state)
{
    struct node_fault f = {
        .gpu = 1, .reason = "Xid79", .source = SOURCE_XID, .message = "", .since = 5};
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 1, 2);
    kit_level_set(&k, FEATURE_GRANTS);
    status_told(&k, NULL, &f);
    int64_t since = root_time(k.root);
    const struct object *o = root_get(k.root, KIND_NODE, "", "fra.n0");
    assert_int_equal(object_as(o, node)->status->faults[0].since, since);
    k.now += 60000;
    f.message = "again";
    status_told(&k, NULL, &f);
    o = root_get(k.root, KIND_NODE, "", "fra.n0");
    assert_int_equal(object_as(o, node)->status->faults[0].since, since);
    f.reason = "Xid31"; /* another one */
    status_told(&k, NULL, &f);
    o = root_get(k.root, KIND_NODE, "", "fra.n0");
    assert_true(object_as(o, node)->status->faults[0].since > since);
    status_told(&k, NULL, NULL);
    o = root_get(k.root, KIND_NODE, "", "fra.n0");
    assert_int_equal(object_as(o, node)->status->n_faults, 0);
    kit_end(&k);
}

/* What others took between the decision and its entry is not given away. */
static void test_what_others_hold(void **state)
{
    int64_t second[] = {1};
    struct others_class two = {.class_ = "h100", .count = 2}, one = {.class_ = "h100", .count = 1};
    struct node_others by_number = {.gpus = second, .n_gpus = 1},
                       both = {.classes = &two, .n_classes = 1},
                       any = {.classes = &one, .n_classes = 1}, cpu = {.cpu = 64000},
                       memory = {.memory = (int64_t)1 << 40};
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 1, 2);
    workload_of(&k, "a", "", "");
    workload_of(&k, "b", "", "");
    others_told(&k, &by_number); /* not before all members know of it */
    assert_null(object_as(root_get(k.root, KIND_NODE, "", "fra.n0"), node)->status->others);
    kit_level_set(&k, FEATURE_GRANTS);
    others_told(&k, &by_number);
    refused(&k, place(&k, "a", 1, "", ""), "a", "GPU 1 is held by others than Hanse");
    others_told(&k, &both);
    refused(&k, place(&k, "a", 0, "", ""), "a", "others than Hanse hold 2 of its h100");
    others_told(&k, &cpu);
    refused(&k, place(&k, "a", 0, "", ""), "a", "has not enough CPU free");
    others_told(&k, &memory);
    refused(&k, place(&k, "a", 0, "", ""), "a", "has not enough memory free");
    others_told(&k, &any);
    assert_int_equal(place(&k, "a", 1, "", "").code, 0); /* 0 is left to them */
    refused(&k, place(&k, "b", 0, "", ""), "b", "others than Hanse hold 1 of its h100");
    others_told(&k, NULL);
    assert_int_equal(place(&k, "b", 0, "", "").code, 0);
    kit_end(&k);
}

static struct result queue_as(struct kit *k, const char *name, const char *id)
{
    struct write_op op;

    kit_op_queue(k, &op, name, "");
    return kit_write(k, &op, 1, "", id);
}

static void test_request_ids_last_a_day(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    struct result first = queue_as(&k, "q1", "id-1");
    assert_int_equal(first.code, 0);
    k.now += 24 * HOUR_MS - 1;
    struct result again = queue_as(&k, "q1", "id-1");
    assert_int_equal(again.code, 0); /* the first answer */
    assert_int_equal(again.rv, first.rv);
    assert_int_equal(queue_as(&k, "q2", "id-2").code, 0);
    assert_int_equal(tree_count(k.root->requests), 2);
    k.now += 1;
    assert_int_equal(queue_as(&k, "q3", "id-3").code, 0);
    assert_int_equal(tree_count(k.root->requests), 2); /* id-1 went, id-2 and id-3 are kept */
    assert_int_equal(queue_as(&k, "q1", "id-1").code, E_EXISTS); /* a request like any other */
    assert_int_equal(queue_as(&k, "q2", "id-2").code, 0);
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mig),
        cmocka_unit_test(test_quota),
        cmocka_unit_test(test_compliance),
        cmocka_unit_test(test_compliance_of_checkpoints),
        cmocka_unit_test(test_what_others_hold),
        cmocka_unit_test(test_a_fault_has_its_time),
        cmocka_unit_test(test_a_node_that_goes_away),
        cmocka_unit_test(test_request_ids_last_a_day),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
