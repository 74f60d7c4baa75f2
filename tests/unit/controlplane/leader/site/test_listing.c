/* A node on its way into the log: what is wrong with it becomes its health, and what cannot be
 * makes it one that is not used. */
#include "controlplane/leader/site/listing.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

/* As the log would hear of a node of two GPUs. */
static const struct node *listed(struct arena *a, struct node_fault *faults, uint32_t n_faults,
                                 struct node_others *others)
{
    struct gpu gpus[2] = {{.index = 0, .class_ = "h100", .model = "", .uuid = ""},
                          {.index = 1, .class_ = "h100", .model = "", .uuid = ""}};
    struct node_spec spec = {.target = "fra", .gpus = gpus, .n_gpus = 2};
    struct node_status status = {.health = HEALTH_READY,
                                 .reason = "",
                                 .faults = faults,
                                 .n_faults = n_faults,
                                 .others = others};
    struct meta meta = {.name = "fra.n0"};
    struct node n = {.metadata = &meta, .spec = &spec, .status = &status};
    struct listing l;
    struct err err;
    void *body;

    listing_init(&l);
    assert_int_equal(listing_take(&l, INVENTORY_ALL(&n, 1), false, &err), 0);
    const struct node_told *t = listing_due(&l);
    assert_non_null(t);
    assert_int_equal(tlv_decode(&schema_node, slice_make(t->bytes, t->n), a, &body, &err), 0);
    listing_fini(&l);
    return body;
}

static void what_is_wrong_is_its_health(void **state)
{
    struct node_fault v[] = {
        {.gpu = 1, .reason = "Xid79", .source = SOURCE_XID, .message = ""},
        {.health = HEALTH_NOT_READY, .reason = "Disk", .source = SOURCE_CONDITION, .message = ""},
        {.reason = "Fire", .source = SOURCE_PROBE, .message = ""},
        {.gpu = 7, .reason = "Xid79", .source = SOURCE_XID, .message = ""},
        {.health = HEALTH_READY, .reason = "Fine", .source = SOURCE_XID, .message = ""}};
    AUTO_ARENA a = arena_create(0);

    (void)state;
    const struct node *n = listed(a, v, 1, NULL);
    assert_int_equal(n->status->health, HEALTH_READY);
    assert_int_equal(n->spec->gpus[0].health, 0);
    assert_int_equal(n->spec->gpus[1].health, HEALTH_SICK);
    n = listed(a, v, 2, NULL);
    assert_int_equal(n->status->health, HEALTH_NOT_READY);
    assert_string_equal(n->status->reason, "Disk");
    n = listed(a, v, 3, NULL); /* the worst of them */
    assert_int_equal(n->status->health, HEALTH_SICK);
    assert_int_equal(n->status->n_faults, 3);
    n = listed(a, &v[3], 1, NULL);
    assert_int_equal(n->status->health, HEALTH_NOT_READY);
    assert_int_equal(n->spec->n_gpus, 0);
    assert_non_null(strstr(n->status->reason, "a fault of GPU 7 of it, which it does not tell"));
    n = listed(a, &v[4], 1, NULL);
    assert_non_null(strstr(n->status->reason, "by which it would be healthy"));
}

static void others_hold_what_is_there(void **state)
{
    struct others_class a100 = {.class_ = "a100", .count = 1};
    int64_t gpus[] = {1, 2};
    struct node_others one = {.gpus = gpus, .n_gpus = 1}, two = {.gpus = gpus, .n_gpus = 2},
                       other = {.classes = &a100, .n_classes = 1};
    AUTO_ARENA a = arena_create(0);

    (void)state;
    assert_int_equal(listed(a, NULL, 0, &one)->status->health, HEALTH_READY);
    const struct node *n = listed(a, NULL, 0, &two);
    assert_int_equal(n->status->health, HEALTH_NOT_READY);
    assert_non_null(strstr(n->status->reason, "others hold GPU 2"));
    n = listed(a, NULL, 0, &other);
    assert_int_equal(n->status->health, HEALTH_NOT_READY);
    assert_non_null(strstr(n->status->reason, "others hold GPUs of class a100"));
}

/* Not before all members know what that is, and never what cannot be. */
static const struct node *counting(struct arena *a, bool known, int64_t count, int64_t unhealthy,
                                   bool *ret_early)
{
    struct counted_gpus c = {
        .class_ = "h100", .model = "", .count = count, .unhealthy = unhealthy};
    struct node_spec spec = {.target = "fra", .counted = &c, .n_counted = 1};
    struct node_status status = {.health = HEALTH_READY, .reason = ""};
    struct meta meta = {.name = "fra.n0"};
    struct node n = {.metadata = &meta, .spec = &spec, .status = &status};
    struct listing l;
    struct err err;
    void *body;

    listing_init(&l);
    l.counts = known;
    assert_int_equal(listing_take(&l, INVENTORY_ALL(&n, 1), false, &err), 0);
    const struct node_told *t = listing_due(&l);
    assert_int_equal(tlv_decode(&schema_node, slice_make(t->bytes, t->n), a, &body, &err), 0);
    *ret_early = l.uncounted;
    listing_fini(&l);
    return body;
}

static void counts_are_told_when_all_know_them(void **state)
{
    AUTO_ARENA a = arena_create(0);
    bool early;

    (void)state;
    const struct node *n = counting(a, true, 8, 1, &early);
    assert_int_equal(n->status->health, HEALTH_READY);
    assert_int_equal(n->spec->counted[0].count, 8);
    assert_false(early);
    n = counting(a, false, 8, 1, &early);
    assert_int_equal(n->status->health, HEALTH_NOT_READY);
    assert_int_equal(n->spec->n_counted, 0);
    assert_non_null(strstr(n->status->reason, "not all members of the cluster know that yet"));
    assert_true(early); /* it is asked for again once they do */
    n = counting(a, true, 8, 9, &early);
    assert_int_equal(n->status->health, HEALTH_NOT_READY);
    assert_int_equal(n->spec->n_counted, 0);
    assert_non_null(strstr(n->status->reason, "it counts 8, 9 of them unhealthy"));
}

/* ---- nodes that cannot be read ---- */
static void told(struct listing *l, const char *since, const char *revision,
                 const struct node_refused *v, size_t n, const char *node, const char *removed)
{
    struct meta meta = {.name = node};
    struct node_spec spec = {.target = "fra"};
    const struct node one = {.metadata = &meta, .spec = &spec};
    const struct inventory_page p = {.nodes = &one,
                                     .n = node != NULL,
                                     .revision = revision,
                                     .since = since,
                                     .removed = &removed,
                                     .n_removed = removed != NULL,
                                     .first = !*since,
                                     .last = !*since,
                                     .lacks = n > 0,
                                     .refused = v,
                                     .n_refused = n};
    struct err err;

    assert_int_equal(listing_take(l, &p, false, &err), 0);
}

/* How many there are, and why the first: until each is told otherwise, is gone, or a listing has no
 * more of it. */
static void nodes_that_cannot_be_read(void **state)
{
    static const struct node_refused two[] = {{"fra.n1", "it is upside down"},
                                              {"", "a node that is no object"}};
    struct listing l;
    char now[512];

    (void)state;
    listing_init(&l);
    assert_false(listing_refused(&l, now, sizeof now)); /* nobody knows yet */
    told(&l, "", "a", NULL, 0, "fra.n1", NULL);
    assert_true(listing_refused(&l, now, sizeof now));
    assert_string_equal(now, "");
    told(&l, "a", "b", two, 2, NULL, NULL);
    assert_true(listing_refused(&l, now, sizeof now));
    assert_string_equal(now, "2 nodes cannot be read and are left out: fra.n1: it is upside down");
    assert_true(listing_names(&l, "fra.n1")); /* what was known of it stays */
    told(&l, "b", "c", NULL, 0, "fra.n1", NULL);
    assert_true(listing_refused(&l, now, sizeof now));
    assert_string_equal(now, "1 node cannot be read and is left out: a node that is no object");
    told(&l, "", "d", two, 1, NULL, NULL);
    assert_true(listing_refused(&l, now, sizeof now));
    assert_string_equal(now, "1 node cannot be read and is left out: fra.n1: it is upside down");
    told(&l, "d", "e", NULL, 0, NULL, "fra.n1");
    assert_true(listing_refused(&l, now, sizeof now));
    assert_string_equal(now, "");
    told(&l, "e", "f", two, 2, NULL, NULL);
    listing_fini(&l);
}

/* A device that is told twice would be given away twice. */
static void one_number_is_one_gpu(void **state)
{
    struct gpu gpus[2] = {{.index = 63, .class_ = "h100", .model = "", .uuid = ""},
                          {.index = 63, .class_ = "h100", .model = "", .uuid = ""}};
    struct node_spec spec = {.target = "fra", .gpus = gpus, .n_gpus = 2};
    struct meta meta = {.name = "fra.n0"};
    struct node n = {.metadata = &meta, .spec = &spec};
    struct listing l;
    struct err err;
    void *body;
    AUTO_ARENA a = arena_create(0);

    (void)state;
    listing_init(&l);
    assert_int_equal(listing_take(&l, INVENTORY_ALL(&n, 1), false, &err), 0);
    const struct node_told *t = listing_due(&l);
    assert_int_equal(tlv_decode(&schema_node, slice_make(t->bytes, t->n), a, &body, &err), 0);
    const struct node *had = body;
    assert_int_equal(had->status->health, HEALTH_NOT_READY);
    assert_string_equal(had->status->reason, "it tells GPU 63 twice; none of it is used");
    assert_int_equal(had->spec->n_gpus, 0);
    listing_fini(&l);
}

/* What a target may not have more of is a condition, too, until a listing is within it. */
static void a_listing_of_too_many(void **state)
{
    enum { MORE = LIMIT_TARGET_NODES + 1 };
    static struct node v[MORE];
    static struct meta metas[MORE];
    static char names[MORE][16];
    struct node_spec spec = {.target = "fra"};
    struct listing l;
    struct err err;
    char now[512];

    (void)state;
    for (unsigned i = 0; i < MORE; i++) {
        (void)snprintf(names[i], sizeof names[i], "fra.n%u", i);
        metas[i].name = names[i];
        v[i] = (struct node){.metadata = &metas[i], .spec = &spec};
    }
    listing_init(&l);
    assert_int_equal(listing_take(&l, INVENTORY_ALL(v, MORE), false, &err), E_TOOLARGE);
    assert_true(listing_refused(&l, now, sizeof now));
    assert_non_null(strstr(now, "not all of its nodes can be taken: an inventory of more than"));
    assert_int_equal(listing_take(&l, INVENTORY_ALL(v, MORE - 1), false, &err), 0);
    assert_true(listing_refused(&l, now, sizeof now));
    assert_string_equal(now, "");
    listing_fini(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nodes_that_cannot_be_read),
                                       cmocka_unit_test(one_number_is_one_gpu),
                                       cmocka_unit_test(a_listing_of_too_many),
                                       cmocka_unit_test(what_is_wrong_is_its_health),
                                       cmocka_unit_test(others_hold_what_is_there),
                                       cmocka_unit_test(counts_are_told_when_all_know_them)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
