/* A snapshot of version 3 as it was written once (tests/golden/snapshot-3.hex): every later program
 * must read it, to the same digest. Also what a snapshot holds on to while it is written.
 *
 *   HANSE_GOLDEN_WRITE=1   writes the file anew: only for a version that no release has written */
#include "tests/support/store/move_kit.h"
#include "tests/support/golden/golden.h"

#include <stdlib.h>

#define GOLDEN "tests/golden/snapshot-3.hex"
#define DAY_MS 86400000ll
#define LINE 64 /* bytes */

/* ---- what is in it ---- */
static void member(struct kit *k)
{
    union command c = {.member = {.head = {.type = CMD_MEMBER},
                                  .member = {.id = 1, .feature_level = FEATURE_LEVEL}}};

    (void)snprintf(c.member.member.name, sizeof c.member.member.name, "m1");
    (void)snprintf(c.member.member.address, sizeof c.member.member.address, "m1:7001");
    (void)snprintf(c.member.cluster_uid, sizeof c.member.cluster_uid, "cluster-1");
    assert_int_equal(kit_apply(k, &c).code, 0);
}

static void archive(struct kit *k, int64_t close_after_ms, uint64_t close_bytes)
{
    union command c = {.archive = {.head = {.type = CMD_ARCHIVE, .user = "hanse:retention"},
                                   .close_bytes = close_bytes,
                                   .close_after_ms = close_after_ms}};
    struct archive_cursor at = {0};
    struct write_op ops[64];
    size_t n = 0;

    assert_true(root_archive_due(k->root, k->now, &at, SIZE_MAX, ops, 64, &n));
    c.archive.ops = ops;
    c.archive.n = (uint32_t)n;
    assert_int_equal(kit_apply(k, &c).code, 0);
}

static void asked(struct kit *k, const char *key, int refusal)
{
    union command c = {.head = {.type = CMD_REQUEST, .user = "alice"}};
    struct write_op op;

    kit_op_queue(k, &op, key, "");
    (void)snprintf(c.head.request_id, sizeof c.head.request_id, "r-%s", key);
    str_copy(c.request.key, sizeof c.request.key, key);
    (void)snprintf(c.request.fingerprint, sizeof c.request.fingerprint, "p");
    str_copy(c.request.text, sizeof c.request.text, refusal ? "no" : "");
    c.request.refusal = (uint32_t)-refusal;
    c.request.member = 2;
    c.request.session = 3;
    c.request.number = k->number;
    c.request.write.ops = &op;
    c.request.write.n = refusal ? 0 : 1;
    assert_int_equal(kit_apply(k, &c).code, refusal);
    op.object = object_unref(op.object);
}

static void owner_with_children(struct kit *k)
{
    for (int i = 0; i < 4; i++) {
        struct dataset *d = arena_new(k->a, struct dataset);

        d->spec = arena_new(k->a, struct dataset_spec);
        d->metadata = kit_meta(k, "default", i ? arena_printf(k->a, "child-%d", i) : "owner");
        if (i) {
            d->metadata->ownerReferences = arena_new(k->a, struct owner_ref);
            d->metadata->n_ownerReferences = 1;
            *d->metadata->ownerReferences = (struct owner_ref){
                .apiVersion = "hanse.dev/v1alpha1",
                .kind = "Dataset",
                .name = "owner",
                .uid = root_get(k->root, KIND_DATASET, "default", "owner")->meta->uid};
        }
        assert_int_equal(kit_create(k, KIND_DATASET, "default", d->metadata->name, d).code, 0);
    }
    assert_int_equal(kit_delete(k, KIND_DATASET, "default", "owner").code, 0);
    assert_true(root_collect_due(k->root));
}

static void make(struct kit *k)
{
    union command begin = {.recover = {.head = {.type = CMD_RECOVER}, .step = RECOVER_BEGIN}};

    kit_begin(k);
    member(k);
    kit_target(k, "fra", TIER_HUB, 2, 4);
    kit_target(k, "ams", TIER_SPOKE, 1, 4);
    for (int i = 0; i < 2; i++) {
        const char *name = arena_printf(k->a, "ended-%d", i);
        kit_running(k, name, "", "fra.n0", 0, 1);
        assert_int_equal(kit_checkpoint(k, name, 1, 1, "sha256:1").code, 0);
        assert_int_equal(kit_run(k, name, 1, 1, STEP_ENDED).code, 0);
        k->now += 8 * DAY_MS;
        archive(k, i ? 365 * DAY_MS : 0, ARCHIVE_CLOSE_MIN_BYTES);
    }
    kit_running(k, "runs", "", "fra.n0", 0, 2);
    k->now += 3600000;
    assert_int_equal(kit_checkpoint(k, "runs", 1, 7, "sha256:7").code, 0);
    assert_int_equal(kit_workload(k, "default", "waits", 1, 4).code, 0);
    assert_int_equal(kit_pending(k, "waits", "CapacityMissing", 1).code, 0);
    assert_int_equal(kit_ask(k, "moves", "runs", "ams").code, 0);
    asked(k, "taken", 0);
    asked(k, "refused", E_NOTFOUND);
    owner_with_children(k);
    assert_int_equal(kit_namespace(k, "going").code, 0);
    assert_int_equal(kit_delete(k, KIND_NAMESPACE, "", "going").code, 0);
    assert_int_equal(kit_apply(k, &begin).code, 0);
    root_check(k->root);
}

/* ---- the file ---- */
static void golden_write(const struct buf *b)
{
    FILE *f = fopen(GOLDEN, "w");

    assert_non_null(f);
    for (size_t i = 0; i < b->n; i++)
        (void)fprintf(f, "%02x%s", (unsigned char)b->p[i],
                      i % LINE == LINE - 1 || i == b->n - 1 ? "\n" : "");
    assert_int_equal(fclose(f), 0);
}

static void golden_read(struct buf *b)
{
    FILE *f = fopen(GOLDEN, "r");
    unsigned byte;

    assert_non_null(f);
    while (fscanf(f, "%2x", &byte) == 1)
        buf_char(b, (char)byte);
    assert_int_equal(fclose(f), 0);
}

static bool change_each(const struct change *c, void *arg)
{
    (void)c;
    ++*(unsigned *)arg;
    return true;
}

static void test_it_is_read(void **state)
{
    struct root *r = NULL, *again = NULL;
    struct err e = {0};
    unsigned changes = 0;
    AUTO_BUF b;
    AUTO_BUF out;

    (void)state;
    buf_init(&b, 16u << 20);
    buf_init(&out, 16u << 20);
    golden_read(&b);
    assert_int_equal(le_get_u32((const unsigned char *)b.p + 8), 3);
    if (snapshot_decode(slice_make(b.p, b.n), &r, &e))
        fail_msg("%s", e.text);
    root_check(r);
    assert_string_equal(root_cluster_uid(r), "cluster-1");
    assert_int_equal(root_feature_level(r), 5);
    assert_true(root_recovering(r) && root_collect_due(r));
    assert_int_equal(root_archive(r).segments, 1);
    assert_true(root_archive(r).records > root_archive(r).open.records &&
                root_archive(r).open.records > 0);
    const struct object *o = root_get(r, KIND_WORKLOAD, "default", "runs");
    assert_int_equal(object_as(o, workload)->status->phase, PHASE_RUNNING);
    assert_int_equal(object_as(o, workload)->status->checkpoint->step, 7);
    assert_non_null(root_get(r, KIND_MIGRATION, "default", "moves"));
    assert_non_null(root_get(r, KIND_DATASET, "default", "child-3"));
    assert_null(root_get(r, KIND_DATASET, "default", "owner"));
    assert_int_equal(root_count(r, KIND_NODE), 3);
    assert_int_equal(tree_count(r->keys), 2);
    assert_int_equal(root_changes(r, root_rv(r) - 3, change_each, &changes, &e), 0);
    assert_int_equal(changes, 3);
    assert_int_equal(snapshot_encode(r, &out, &e), 0);
    assert_int_equal(snapshot_decode(slice_make(out.p, out.n), &again, &e), 0);
    assert_true(root_digest(again) == root_digest(r));
    (void)root_unref(again);
    (void)root_unref(r);
    (void)tree_reap(SIZE_MAX);
}

static void test_what_is_in_it_can_be_made(void **state)
{
    struct kit k;
    struct err e = {0};
    AUTO_BUF b;

    (void)state;
    make(&k);
    buf_init(&b, 16u << 20);
    assert_int_equal(snapshot_encode(k.root, &b, &e), 0);
    if (golden_writes())
        golden_write(&b);
    kit_end(&k);
}

/* ---- one piece at a time ---- */
/* More records of the archive than a piece and a field may have together: whoever gathers them
 * finds no room. */
static void test_nothing_is_gathered(void **state)
{
    struct kit k;
    struct err e = {0};
    AUTO_BUF b;

    (void)state;
    kit_begin(&k);
    member(&k);
    kit_target(&k, "fra", TIER_HUB, 1, 4);
    for (int i = 0; i < 14; i++) {
        const char *name = arena_printf(k.a, "w-%d", i);
        struct kv *kv = arena_new(k.a, struct kv);
        char *text = arena_alloc(k.a, 1000001);

        memset(text, 'a' + i, 1000000);
        *kv = (struct kv){"large", text};
        kit_running(&k, name, "", "fra.n0", 0, 1);
        assert_int_equal(kit_run(&k, name, 1, 1, STEP_ENDED).code, 0);
        struct workload *w = object_edit_as(kit_get(&k, name), workload, k.a);
        w->metadata->annotations = kv;
        w->metadata->n_annotations = 1;
        assert_int_equal(kit_update(&k, KIND_WORKLOAD, "default", name, w, 0, false).code, 0);
        k.now += 8 * DAY_MS;
        archive(&k, 3650 * DAY_MS, ARCHIVE_CLOSE_MAX_BYTES);
        assert_null(kit_get(&k, name));
    }
    assert_true(root_archive(k.root).open.bytes > 12u << 20);
    buf_init(&b, 64u << 20);
    if (snapshot_encode(k.root, &b, &e))
        fail_msg("%s", e.text);
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_in_it_can_be_made),
        cmocka_unit_test(test_it_is_read),
        cmocka_unit_test(test_nothing_is_gathered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
