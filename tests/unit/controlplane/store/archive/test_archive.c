/* The archive in the state: what leaves the state is in it, in order, under one chain of digests;
 * what must not be in it is not; snapshots carry what no file can have yet. */
#include "tests/support/store/move_kit.h"

#define DAY_MS 86400000ll
#define CANARY "canary-7f31-value"

static void begin(struct kit *k)
{
    union command c = {.member = {.head = {.type = CMD_MEMBER}, .member = {.id = 1}}};

    kit_begin(k);
    (void)snprintf(c.member.cluster_uid, sizeof c.member.cluster_uid, "cluster-1");
    assert_int_equal(kit_apply(k, &c).code, 0);
    kit_target(k, "fra", TIER_HUB, 1, 4);
}

static struct result archive(struct kit *k, struct write_op *ops, size_t n, uint64_t bytes,
                             int64_t after_ms)
{
    union command c = {.archive = {.head = {.type = CMD_ARCHIVE, .user = "hanse:retention"},
                                   .close_bytes = bytes,
                                   .close_after_ms = after_ms,
                                   .ops = ops,
                                   .n = (uint32_t)n}};
    struct result r = kit_apply(k, &c);

    root_check(k->root);
    return r;
}

/* One look and its ARCHIVE; returns how many were listed. */
static size_t retain(struct kit *k, uint64_t bytes, int64_t after_ms)
{
    struct archive_cursor c = {0};
    struct write_op ops[64];
    size_t n;

    assert_true(root_archive_due(k->root, k->now, &c, SIZE_MAX, ops, 64, &n));
    assert_int_equal(archive(k, ops, n, bytes, after_ms).code, 0);
    return n;
}

static void ran(struct kit *k, const char *name)
{
    kit_running(k, name, "", "fra.n0", 0, 1);
    assert_int_equal(kit_run(k, name, 1, 1, STEP_ENDED).code, 0);
}

struct seen {
    const char *workload;
    unsigned n, kinds[KIND_LIMIT];
    char by[256];
};
static bool seen_each(struct slice record, void *arg)
{
    struct seen *s = arg;
    struct archive_record r;
    struct object *o = NULL;

    assert_null(memmem(record.p, record.n, CANARY, strlen(CANARY)));
    assert_int_equal(archive_record_read(record, &r, NULL), 0);
    if (strcmp(r.workload, s->workload) != 0)
        return true;
    assert_int_equal(object_decode(kind_by_id(r.kind), r.object, &o, NULL), 0);
    assert_string_equal(o->meta->name, r.name);
    (void)object_unref(o);
    s->n++;
    s->kinds[r.kind]++;
    str_copy(s->by, sizeof s->by, r.by);
    return true;
}
/* In all segments that the state still has. */
static struct seen look_for(struct kit *k, const char *workload)
{
    struct seen s = {.workload = workload};
    struct archive_totals t = root_archive(k->root);

    for (uint64_t n = t.kept_from; n <= t.segments + 1; n++)
        assert_true(root_archive_records(k->root, n, seen_each, &s));
    return s;
}

static void test_nothing_before_the_first(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    ran(&k, "w");
    uint64_t before = root_archive(k.root).records;
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, "default", "w").code, 0);
    assert_false(root_archive(k.root).begun);
    assert_int_equal(root_archive(k.root).records, before);
    assert_int_equal(archive(&k, NULL, 0, 1, 0).code, E_INVALID);
    assert_false(root_archive(k.root).begun);
    assert_int_equal(command_feature_level(CMD_ARCHIVE, 0), FEATURE_ARCHIVE);
    kit_end(&k);
}

static void test_what_has_ended_moves_with_all_that_it_owns(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    kit_running(&k, "w", "", "fra.n0", 0, 1);
    assert_int_equal(kit_checkpoint(&k, "w", 1, 1, "sha256:1").code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ENDED).code, 0);
    k.now += 7 * DAY_MS - 1;
    assert_int_equal(retain(&k, 1 << 20, DAY_MS), 0);
    k.now += 1;
    assert_int_equal(retain(&k, 1 << 20, DAY_MS), 1);
    assert_null(kit_get(&k, "w"));
    assert_int_equal(root_count(k.root, KIND_DECISION), 0);
    struct seen s = look_for(&k, "w");
    assert_int_equal(s.kinds[KIND_WORKLOAD], 1);
    assert_int_equal(s.kinds[KIND_DECISION], 1);
    assert_int_equal(s.kinds[KIND_CHECKPOINT], 1);
    assert_string_equal(s.by, "hanse:retention");
    assert_int_equal(root_archive(k.root).records, 3);
    assert_int_equal(root_archive(k.root).counts[0], 1);
    kit_end(&k);
}

static void ttl(struct kit *k, const char *name, int64_t seconds)
{
    struct workload *w = object_edit_as(kit_get(k, name), workload, k->a);
    const struct schema *s = &schema_workload_spec;

    for (unsigned i = 0; i < s->n; i++)
        if (strcmp(s->fields[i].json, "ttlSecondsAfterFinished") == 0)
            w->spec->has |= (uint64_t)1 << s->fields[i].bit;
    w->spec->ttlSecondsAfterFinished = seconds;
    assert_string_equal(kit_update(k, KIND_WORKLOAD, "default", name, w, 0, false).text, "");
}

static void test_a_workload_says_how_long_it_stays(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    kit_running(&k, "short", "", "fra.n0", 0, 1);
    kit_running(&k, "none", "", "fra.n0", 1, 1);
    ttl(&k, "short", 60);
    ttl(&k, "none", 0);
    assert_int_equal(kit_run(&k, "short", 1, 1, STEP_ENDED).code, 0);
    assert_int_equal(kit_run(&k, "none", 1, 1, STEP_ENDED).code, 0);
    assert_int_equal(retain(&k, 1 << 20, DAY_MS), 1);
    assert_null(kit_get(&k, "none"));
    k.now += 59999;
    assert_int_equal(retain(&k, 1 << 20, DAY_MS), 0);
    k.now += 1;
    assert_int_equal(retain(&k, 1 << 20, DAY_MS), 1);
    assert_null(kit_get(&k, "short"));
    kit_end(&k);
}

static void test_what_a_user_deletes_can_be_explained(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    assert_int_equal(archive(&k, NULL, 0, 1 << 20, DAY_MS).code, 0);
    ran(&k, "w");
    struct secret *s = arena_new(k.a, struct secret);
    s->sealed = slice_make(CANARY, strlen(CANARY));
    assert_string_equal(kit_create(&k, KIND_SECRET, "default", "s", s).text, "");
    assert_int_equal(kit_delete(&k, KIND_SECRET, "default", "s").code, 0);
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, "default", "w").code, 0);
    assert_int_equal(root_archive(k.root).records, 2);
    struct seen seen = look_for(&k, "w");
    assert_int_equal(seen.kinds[KIND_DECISION], 1);
    assert_string_equal(seen.by, "alice");
    kit_end(&k);
}

static void test_of_what_goes_on_the_newest_decisions_stay(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    assert_int_equal(kit_workload(&k, "default", "w", 1, 1).code, 0);
    for (int64_t e = 1; e <= ARCHIVE_DECISIONS_KEPT + 3; e++) {
        assert_string_equal(kit_place(&k, "w", "fra.n0", 0, 1, 1).text, "");
        assert_int_equal(kit_run(&k, "w", e, 1, STEP_DISPATCH).code, 0);
        if (e == ARCHIVE_DECISIONS_KEPT + 3)
            break;
        k.requeue = true;
        assert_int_equal(kit_run(&k, "w", e, 1, STEP_ENDED).code, 0);
        k.requeue = false;
    }
    assert_int_equal(retain(&k, 1 << 20, DAY_MS), 3);
    assert_int_equal(root_count(k.root, KIND_DECISION), ARCHIVE_DECISIONS_KEPT);
    assert_null(root_get(k.root, KIND_DECISION, "default", "w-e3"));
    assert_non_null(root_get(k.root, KIND_DECISION, "default", "w-e4"));
    assert_int_equal(look_for(&k, "w").kinds[KIND_DECISION], 3);
    kit_end(&k);
}

/* Looking in slices, however small, lists what one look lists, each once. */
static void test_slices_list_the_same(void **state)
{
    struct archive_cursor c = {0};
    struct write_op all[64], part[5];
    size_t n, m, at = 0;
    struct kit k;

    (void)state;
    begin(&k);
    for (int i = 0; i < 9; i++)
        ran(&k, arena_printf(k.a, "w%d", i));
    assert_string_equal(kit_delete(&k, KIND_WORKLOAD, "default", "w4").text, "");
    kit_running(&k, "on", "", "fra.n0", 1, 1);
    k.now += 8 * DAY_MS;
    assert_true(root_archive_due(k.root, k.now, &c, SIZE_MAX, all, 64, &n));
    assert_int_equal(n, 8);
    for (size_t look = 1; look < 7; look++) {
        for (size_t max = 1; max < 5; max++) {
            bool end = false;

            for (at = 0; !end; at += m) {
                end = root_archive_due(k.root, k.now, &c, look, part, max, &m);
                for (size_t i = 0; i < m; i++)
                    assert_string_equal(part[i].name, all[at + i].name);
                assert_true(m <= max);
            }
            assert_int_equal(at, n);
        }
    }
    kit_end(&k);
}

/* A member that only reads what closed, as its files would: the chain over all of it. */
struct follower {
    unsigned char prev[ARCHIVE_DIGEST];
    uint64_t next;
    struct archive_info sum;
    struct root *from;
};
static bool chain_each(struct slice record, void *arg)
{
    struct follower *f = arg;

    archive_chain_add(&f->sum, record);
    f->sum.records++;
    return true;
}
static void follow(struct follower *f, const struct root *r)
{
    struct archive_info i;

    for (; f->next <= root_archive(r).segments; f->next++) {
        assert_true(f->next >= root_archive(r).kept_from); /* nothing was dropped unseen */
        assert_true(root_archive_info(r, f->next, &i));
        assert_memory_equal(i.prev, f->prev, ARCHIVE_DIGEST);
        f->sum = (struct archive_info){.number = f->next};
        memcpy(f->sum.prev, f->prev, ARCHIVE_DIGEST);
        archive_chain_begin(&f->sum);
        assert_true(root_archive_records(r, f->next, chain_each, f));
        assert_int_equal(f->sum.records, i.records);
        struct archive_info whole = i;
        memcpy(whole.digest, f->sum.digest, ARCHIVE_DIGEST);
        archive_chain_end(&whole);
        assert_memory_equal(whole.digest, i.digest, ARCHIVE_DIGEST);
        memcpy(f->prev, i.digest, ARCHIVE_DIGEST);
    }
}

static void test_segments_close_by_size_and_age_and_form_a_chain(void **state)
{
    struct follower f = {.next = 1};
    struct archive_info i;
    struct kit k;

    (void)state;
    begin(&k);
    archive_chain_first("cluster-1", f.prev);
    for (int n = 0; n < 400; n++) {
        k.now += 1000;
        const char *name = arena_printf(k.a, "w%d", n);
        ran(&k, name);
        k.now += 8 * DAY_MS;
        (void)retain(&k, ARCHIVE_CLOSE_MIN_BYTES, 10000 * DAY_MS);
        follow(&f, k.root);
        assert_null(kit_get(&k, name));
    }
    struct archive_totals t = root_archive(k.root);
    assert_true(t.segments > 2 && t.records == 800);
    assert_int_equal(t.kept_from, t.segments); /* the others are in files only */
    assert_true(root_archive_info(k.root, 1, &i));
    assert_true(i.bytes >= ARCHIVE_CLOSE_MIN_BYTES && i.records > 10);
    assert_false(root_archive_records(k.root, 1, chain_each, &f));
    assert_false(root_archive_info(k.root, t.segments + 2, &i));
    k.now += 200 * DAY_MS;
    assert_int_equal(retain(&k, ARCHIVE_CLOSE_MIN_BYTES, 100 * DAY_MS), 0); /* age */
    assert_int_equal(root_archive(k.root).segments, t.segments + 1);
    follow(&f, k.root);
    assert_true(archive(&k, NULL, 0, ARCHIVE_CLOSE_MIN_BYTES, 0).unchanged); /* empty: none */
    kit_end(&k);
}

/* A snapshot whose archive was changed, one byte anywhere: refused, or (outside of it) as
 * before. */
static void test_a_snapshot_that_lies_is_refused(void **state)
{
    struct kit k;
    struct err e;
    AUTO_BUF b;
    unsigned refused = 0;

    (void)state;
    begin(&k);
    assert_int_equal(archive(&k, NULL, 0, ARCHIVE_CLOSE_MIN_BYTES, DAY_MS).code, 0);
    for (int n = 0; n < 3; n++) {
        const char *name = arena_printf(k.a, "w%d", n);
        ran(&k, name);
        k.now += 8 * DAY_MS;
        (void)retain(&k, ARCHIVE_CLOSE_MIN_BYTES, n == 1 ? 0 : 100 * DAY_MS);
    }
    buf_init(&b, 64 << 20);
    assert_int_equal(snapshot_encode(k.root, &b, &e), 0);
    struct buf part;
    buf_init(&part, 64 << 20);
    archive_write(k.root, 26, &(struct fields_out){&part, NULL, NULL});
    unsigned char *at = memmem(b.p, b.n, part.p, part.n);
    assert_non_null(at);
    for (size_t n = 0; n < part.n; n += 7) {
        struct root *r = root_create();
        (void)snprintf(r->cluster_uid, sizeof r->cluster_uid, "cluster-1");
        struct wire w = {(unsigned char *)part.p, part.n};
        struct slice v;
        uint16_t tag;
        int code = 0;

        part.p[n] ^= 0x10;
        while (code == 0 && (code = record_next(&w, &tag, &v)) > 0)
            code = tag == 26 ? archive_read(r, v, &e) : 0;
        if (code == 0)
            code = archive_loaded(r, &e);
        if (code < 0 || archive_hash(&r->archive, 1) != archive_hash(&k.root->archive, 1))
            refused++;
        else
            fail_msg("byte %zu of the archive does not matter", n);
        part.p[n] ^= 0x10;
        (void)root_unref(r);
    }
    assert_true(refused > 100);
    buf_fini(&part);
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_before_the_first),
        cmocka_unit_test(test_what_has_ended_moves_with_all_that_it_owns),
        cmocka_unit_test(test_a_workload_says_how_long_it_stays),
        cmocka_unit_test(test_what_a_user_deletes_can_be_explained),
        cmocka_unit_test(test_of_what_goes_on_the_newest_decisions_stay),
        cmocka_unit_test(test_slices_list_the_same),
        cmocka_unit_test(test_segments_close_by_size_and_age_and_form_a_chain),
        cmocka_unit_test(test_a_snapshot_that_lies_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
