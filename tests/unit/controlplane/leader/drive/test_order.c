/* What a connector is told: where checkpoints go, what it resumes from, how often saving pays,
 * secrets; and what of that the target tells later stays known. */
#include "controlplane/leader/context/context.h"
#include "controlplane/leader/drive/driver.h"
#include "controlplane/leader/drive/observed.h"
#include "controlplane/leader/drive/order.h"
#include "controlplane/leader/move/mover.h"
#include "controlplane/leader/move/moves.h"
#include "controlplane/leader/site/sites.h"
#include "tests/support/store/store_kit.h"

#define HOUR 3600000
#define WRITE_MS 2000

struct world {
    struct kit kit;
    struct brain brain;
    struct sites sites; /* none */
    struct site site;
    struct workload *w; /* edited before order_of */
    struct placement at;
    unsigned put; /* secrets given back */
};

static char large[1u << 20];

static const char *secret_get(void *arg, const char *ns, const char *name, const char *key)
{
    (void)arg;
    if (!strcmp(name, "large"))
        return large;
    if (!strcmp(ns, "hanse-system") && !strcmp(name, "keys"))
        return !strcmp(key, "AWS_ACCESS_KEY_ID") ? "hush" : NULL;
    return !strcmp(ns, "dev") && !strcmp(name, "s") && !strcmp(key, "token") ? "hush" : NULL;
}
static void secret_put(void *arg, const char *text)
{
    struct world *x = arg;

    assert_true(text == large || !strcmp(text, "hush"));
    x->put++;
}

static void world_init(struct world *x)
{
    struct arena *a = arena_create(0);
    struct target *t = arena_new(a, struct target);
    struct price_sheet *p = arena_new(a, struct price_sheet);

    *x = (struct world){.kit = {.a = a, .root = root_create(), .now = 10 * HOUR}};
    p->spec = arena_new(a, struct price_sheet_spec);
    p->spec->currency = "USD";
    p->spec->n_gpuHour = 2;
    p->spec->gpuHour = arena_array(a, struct gpu_price, 2);
    p->spec->gpuHour[0] =
        (struct gpu_price){.class_ = "h100", .region = "", .spot = 2, .interruptionsPerHour = 1};
    p->spec->gpuHour[1] = (struct gpu_price){
        .class_ = "h100", .region = "eu", .spot = 2, .interruptionsPerHour = 0.25};
    assert_int_equal(kit_create(&x->kit, KIND_PRICE_SHEET, "", "prices", p).code, 0);
    t->metadata = kit_meta(&x->kit, "", "fra");
    t->spec = arena_new(a, struct target_spec);
    t->spec->type = TARGET_AGENT;
    t->spec->region = "eu";
    t->spec->priceSheet = "prices";
    x->brain.root = x->kit.root;
    x->brain.cfg.secret_get = secret_get;
    x->brain.cfg.secret_put = secret_put;
    x->brain.cfg.arg = x;
    x->brain.sites = &x->sites;
    x->site.brain = &x->brain;
    x->site.doc = object_make(kind_by_id(KIND_TARGET), t);
    x->at = (struct placement){.target = "fra", .class_ = "h100", .capacity = CAPACITY_OWNED};
    x->w = arena_new(a, struct workload);
    x->w->metadata = arena_new(a, struct meta);
    x->w->metadata->name = "w";
    x->w->metadata->namespace_ = "dev";
    x->w->metadata->uid = "u1";
    x->w->spec = arena_new(a, struct workload_spec);
    x->w->spec->run = arena_new(a, struct run_spec);
    x->w->spec->checkpoint = arena_new(a, struct checkpoint_spec);
    x->w->spec->checkpoint->store = "/ck";
    x->w->spec->checkpoint->interval = "auto";
    x->w->status = arena_new(a, struct workload_status);
    x->w->status->epoch = 3;
}
static void world_fini(struct world *x)
{
    (void)object_unref(x->site.doc);
    (void)root_unref(x->kit.root);
    (void)arena_destroy(x->kit.a);
}
static struct object *workload_of(struct world *x)
{
    return object_make(kind_by_id(KIND_WORKLOAD), x->w);
}
static int64_t interval(struct world *x)
{
    struct object *o = workload_of(x);
    int64_t ms = order_interval_ms(&x->site, o, &x->at, WRITE_MS);

    (void)object_unref(o);
    return ms;
}

static void test_checkpoint_of_the_order(void **state)
{
    struct run_key key = {.uid = "u1", .epoch = 3, .try_ = 1};
    struct run_checkpoint ck = {
        .digest = "sha256:aa", .path = "/ck/cut-4.json", .epoch = 2, .step = 7};
    struct run_order o;
    struct world x;

    (void)state;
    world_init(&x);
    struct object *first = workload_of(&x);
    order_stage(&x.site, first, &x.at, &key, x.kit.a, &o);
    assert_string_equal(o.checkpoint_dir, "/ck/dev/w-u1"); /* the epoch is told by the key */
    assert_int_equal(o.checkpoint_keep, 2);                /* never fewer */
    assert_string_equal(o.resume_path, "");
    assert_false(o.shared);
    x.w->status->checkpoint = &ck;
    x.w->spec->checkpoint->keep = 5;
    x.w->spec->checkpoint->layout = LAYOUT_SHARED;
    struct object *second = workload_of(&x);
    order_stage(&x.site, second, &x.at, &key, x.kit.a, &o);
    assert_int_equal(o.checkpoint_keep, 5);
    assert_true(o.shared);
    assert_string_equal(o.resume_path, "/ck/cut-4.json");
    assert_string_equal(o.resume_digest, "sha256:aa");
    x.w->spec->checkpoint = NULL; /* no contract: nothing to write, nothing to resume */
    struct object *third = workload_of(&x);
    order_stage(&x.site, third, &x.at, &key, x.kit.a, &o);
    assert_string_equal(o.checkpoint_dir, "");
    assert_string_equal(o.resume_path, "");
    (void)object_unref(first);
    (void)object_unref(second);
    (void)object_unref(third);
    world_fini(&x);
}

static void test_interval(void **state)
{
    struct run_end ends[3] = {
        {.epoch = 1, .reason = "RunnerKilled", .proof = PROOF_TREE_GONE, .target = "fra"},
        {.epoch = 2, .reason = "SavedAndStopped", .exitCode = 75, .proof = PROOF_TREE_GONE},
        {.epoch = 3, .reason = "LeaseOver", .proof = PROOF_LEASE_EXPIRED}};
    struct world x;

    (void)state;
    world_init(&x);
    assert_int_equal(interval(&x), 0); /* no hazard is known */
    x.at.capacity = CAPACITY_SPOT;
    assert_int_equal(interval(&x), policy_checkpoint_interval(WRITE_MS, 4 * HOUR));
    assert_true(interval(&x) > 0);
    x.at.class_ = "a100"; /* the sheet has no figure */
    assert_int_equal(interval(&x), 0);
    x.at.capacity = CAPACITY_OWNED; /* two of three ends were the machine's, in eight hours */
    x.w->status->ends = ends;
    x.w->status->n_ends = 3;
    x.w->status->startedAt = 2 * HOUR;
    assert_int_equal(interval(&x), policy_checkpoint_interval(WRITE_MS, 4 * HOUR));
    ends[0].reason = "MachineRestarted";
    assert_int_equal(interval(&x), policy_checkpoint_interval(WRITE_MS, 4 * HOUR));
    ends[0].reason = "StartFailed";
    assert_int_equal(interval(&x), policy_checkpoint_interval(WRITE_MS, 4 * HOUR));
    ends[0].reason = "TargetRemoved"; /* as the ledger has always booked it */
    assert_int_equal(interval(&x), policy_checkpoint_interval(WRITE_MS, 4 * HOUR));
    ends[0].reason = "Failed"; /* that was its own */
    assert_int_equal(interval(&x), policy_checkpoint_interval(WRITE_MS, 8 * HOUR));
    x.w->spec->checkpoint->interval = "7m"; /* its owner knows better */
    assert_int_equal(interval(&x), 7 * 60000);
    world_fini(&x);
}

static void test_secrets(void **state)
{
    struct run_key key = {.uid = "u1", .epoch = 3, .try_ = 1};
    struct secret_key_ref ref = {.secret = "s", .key = "token"};
    struct env_var env[2] = {{.name = "A", .value = "1"},
                             {.name = "B", .value = "", .valueFrom = &ref}};
    struct run_order o;
    struct err err;
    struct world x;

    (void)state;
    world_init(&x);
    x.w->spec->run->env = env;
    x.w->spec->run->n_env = 2;
    struct object *w = workload_of(&x);
    assert_int_equal(order_make(&x.site, w, &x.at, &key, x.kit.a, &o, &err), 0);
    assert_string_equal(o.env[0], "A=1");
    assert_string_equal(o.env[1], "B=hush");
    assert_null(o.env[2]);
    assert_int_equal(x.put, 1);
    (void)object_unref(w);
    ref.key = "other";
    w = workload_of(&x);
    assert_int_equal(order_make(&x.site, w, &x.at, &key, x.kit.a, &o, &err), E_NOTFOUND);
    assert_non_null(strstr(err.text, "Secret s has no key other in namespace dev"));
    (void)object_unref(w);
    world_fini(&x);
}

/* 512 Secrets of a megabyte each are no order; the leader says so before it has gathered them. */
/* Where its logs go is in its intent, by which keys, too; whatever the Target says since. */
static void test_logs(void **state)
{
    struct run_key key = {.uid = "u1", .epoch = 3, .try_ = 2};
    struct secret_ref keys = {.secret = "keys"};
    struct target_logs logs = {.store = "s3://b/p/", .credentialsFrom = &keys, .maxBytes = 7};
    struct intent in = {.op = INTENT_SUBMIT, .logs = &logs};
    struct run_order o, before;
    struct order_sent sent = {.n = 0};
    struct err err;
    struct world x;

    (void)state;
    world_init(&x);
    struct object *none = workload_of(&x);
    assert_int_equal(order_make(&x.site, none, &x.at, &key, x.kit.a, &before, &err), 0);
    assert_string_equal(before.log_base, "");
    assert_null(before.log_env);
    x.w->status->intent = &in;
    struct object *w = workload_of(&x);
    assert_int_equal(order_make(&x.site, w, &x.at, &key, x.kit.a, &o, &err), 0);
    assert_int_equal(o.log_max_bytes, 7);
    assert_string_equal(o.log_base, "s3://b/p/_logs/_/dev/w-u1/e3.2");
    assert_string_equal(o.log_env[0], "AWS_ACCESS_KEY_ID=hush");
    assert_null(o.log_env[1]);
    assert_int_equal(x.put, 1);
    assert_false(order_same(&sent, &o));
    (void)object_unref(w);
    keys.secret = "gone"; /* nothing starts whose logs could not be kept */
    w = workload_of(&x);
    assert_int_equal(order_make(&x.site, w, &x.at, &key, x.kit.a, &o, &err), E_NOTFOUND);
    assert_non_null(strstr(err.text, "has no AWS_ACCESS_KEY_ID"));
    assert_null(strstr(err.text, "gone")); /* which Secret that is, tenants do not hear */
    (void)object_unref(w);
    (void)object_unref(none);
    world_fini(&x);
}

static void test_secrets_that_make_it_too_large(void **state)
{
    struct run_key key = {.uid = "u1", .epoch = 3, .try_ = 1};
    struct secret_key_ref ref = {.secret = "large", .key = "token"};
    struct env_var env[100];
    struct run_order o;
    struct err err = {0};
    struct world x;

    (void)state;
    world_init(&x);
    memset(large, 'x', sizeof large - 1);
    for (size_t i = 0; i < 100; i++)
        env[i] = (struct env_var){.name = "T", .value = "", .valueFrom = &ref};
    x.w->spec->run->env = env;
    x.w->spec->run->n_env = 100;
    struct object *w = workload_of(&x);
    assert_int_equal(order_make(&x.site, w, &x.at, &key, x.kit.a, &o, &err), E_TOOLARGE);
    assert_string_equal(err.field, "spec.run.env");
    assert_in_range(x.put, 1, 5);
    (void)object_unref(w);
    world_fini(&x);
}

#define SHA "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static struct run_checkpoint_report told(int64_t step, const char *path)
{
    struct run_checkpoint_report r = {.present = true, .step = step, .ranks = 1};

    str_copy(r.path, sizeof r.path, path);
    str_copy(r.digest, sizeof r.digest, SHA);
    return r;
}

/* Not every answer of a target repeats its newest checkpoint: it is not forgotten for that. */
static void test_a_checkpoint_stays_told(void **state)
{
    struct observation o = {.key = {.uid = "u1", .epoch = 1, .try_ = 1}, .state = RUN_RUNNING};
    struct world x;

    (void)state;
    world_init(&x);
    struct object *w = workload_of(&x);
    struct driver d = {.brain = &x.brain, .o = w};
    o.checkpoint = told(40, "/ck/dev/w-u1/sealed/e1/cut-4.json");
    driver_take_seen(&d, &o);
    o.checkpoint = (struct run_checkpoint_report){0};
    o.state = RUN_ENDED;
    driver_take_seen(&d, &o);
    assert_int_equal(d.seen.state, RUN_ENDED);
    assert_int_equal(d.seen.checkpoint.step, 40);
    o.checkpoint = told(30, "/ck/dev/w-u1/sealed/e1/cut-3.json"); /* it came late */
    driver_take_seen(&d, &o);
    assert_int_equal(d.seen.checkpoint.step, 40);
    o.key.epoch = 2; /* another epoch has its own */
    o.checkpoint = (struct run_checkpoint_report){0};
    driver_take_seen(&d, &o);
    assert_false(d.seen.checkpoint.present);
    (void)object_unref(w);
    world_fini(&x);
}

/* An agent may be hostile: what it tells is a cut of this workload, in this store and epoch. */
static void test_a_checkpoint_is_its_own(void **state)
{
    static const char *const foreign[] = {
        "/ck/dev/w-u2/sealed/e2/cut-1.json",     "/ck/dev/w-u1/../w-u2/sealed/e2/cut-1.json",
        "/ck/dev/w-u1/sealed/e1/cut-1.json",     "/ck/dev/w-u1/sealed/e2/../e2/cut-1.json",
        "/ck/dev/w-u1/sealed/e2/cut-1.json/x",   "/ck/dev/w-u1/sealed/e2/cut-.json",
        "/ck/dev/w-u1/e2/0/manifest.json",       "s3://ck/dev/w-u1/sealed/e2/cut-1.json",
        "/ck/dev/w-u1evil/sealed/e2/cut-1.json", "/old/dev/w-u1/sealed/e2/cut-1.json"};
    struct run_checkpoint had = {.path = "/old/dev/w-u1/sealed/e1/cut-9.json", .epoch = 1};
    struct err err;
    struct world x;

    (void)state;
    world_init(&x);
    struct object *w = workload_of(&x);
    struct run_checkpoint_report r = told(1, "/ck/dev/w-u1/sealed/e2/cut-1.json");
    assert_int_equal(order_checkpoint_told(w, 2, &r, &err), 0);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        r = told(1, foreign[i]);
        assert_int_equal(order_checkpoint_told(w, 2, &r, &err), E_FORBIDDEN);
    }
    x.w->status->checkpoint = &had; /* its store was edited: the log knows the old one */
    struct object *moved = workload_of(&x);
    assert_int_equal(order_checkpoint_told(moved, 2, &r, &err), 0);
    r = told(-1, "/ck/dev/w-u1/sealed/e2/cut-1.json");
    assert_int_equal(order_checkpoint_told(w, 2, &r, &err), E_INVALID);
    r = told(1, "/ck/dev/w-u1/sealed/e2/cut-1.json");
    r.ranks = 5000;
    assert_int_equal(order_checkpoint_told(w, 2, &r, &err), E_INVALID);
    r.ranks = 1;
    r.digest[10] = 'X';
    assert_int_equal(order_checkpoint_told(w, 2, &r, &err), E_INVALID);
    (void)object_unref(w);
    (void)object_unref(moved);
    world_fini(&x);
}

static void count(struct brain *b, enum move_cause cause, enum move_phase from, enum move_phase to,
                  int64_t pause_ms)
{
    AUTO_ARENA a = arena_create(0);
    struct migration *m = arena_new(a, struct migration);

    m->metadata = arena_new(a, struct meta);
    m->metadata->name = "m";
    m->metadata->namespace_ = "dev";
    m->spec = arena_new(a, struct migration_spec);
    m->spec->workload = "w";
    m->spec->cause = cause;
    m->status = arena_new(a, struct migration_status);
    m->status->phase = from;
    struct object *before = object_make(kind_by_id(KIND_MIGRATION), m);
    m->status->phase = to;
    m->status->pause = pause_ms;
    struct object *after = object_make(kind_by_id(KIND_MIGRATION), m);
    moves_count(b, before, after);
    (void)object_unref(before);
    (void)object_unref(after);
}
static bool printed(const struct brain *b, const char *line)
{
    AUTO_BUF out;

    buf_init(&out, 65536);
    moves_metrics(b, &out);
    buf_add(&out, "", 1);
    return strstr((const char *)out.p, line) != NULL;
}
static void test_figures(void **state)
{
    struct moves moves = {0};
    struct movers none = {0};
    struct brain b = {.moves = &moves, .movers = &none};

    (void)state;
    count(&b, MOVE_DRAIN, MP_STARTING, MP_SUCCEEDED, 300);
    count(&b, MOVE_DRAIN, MP_FENCING, MP_STARTING, 300); /* has not ended */
    count(&b, MOVE_ASKED, MP_STAGING, MP_FAILED, 9000);
    count(&b, MOVE_ASKED, MP_FAILED, MP_FAILED, 9000); /* had ended before */
    assert_true(printed(&b, "hanse_migrations_total{cause=\"drain\",outcome=\"Succeeded\"} 1\n"));
    assert_true(printed(&b, "hanse_migrations_total{cause=\"asked\",outcome=\"Failed\"} 1\n"));
    assert_true(printed(&b, "hanse_migration_pause_seconds_bucket{le=\"0.25\"} 0\n"));
    assert_true(printed(&b, "hanse_migration_pause_seconds_bucket{le=\"0.5\"} 1\n"));
    assert_true(printed(&b, "hanse_migration_pause_seconds_bucket{le=\"+Inf\"} 1\n"));
    assert_true(printed(&b, "hanse_migration_pause_seconds_sum 0.3\n"));
}

/* What is changed in a running one's spec, and holds from its next epoch on, is said. */
static bool spec_waits(enum phase phase, struct workload_spec was, struct workload_spec is,
                       int64_t generation)
{
    struct meta metas[2] = {{.name = "w", .uid = "u", .generation = 1},
                            {.name = "w", .uid = "u", .generation = generation}};
    struct workload_spec specs[2] = {was, is};
    struct workload_status status = {.phase = phase, .epoch = 1};
    struct object *o[2];

    for (int i = 0; i < 2; i++) {
        struct workload w = {.metadata = &metas[i], .spec = &specs[i], .status = &status};
        o[i] = object_make(kind_by_id(KIND_WORKLOAD), &w);
    }
    bool waits = driver_spec_waits(o[0], o[1]);
    (void)object_unref(o[0]);
    (void)object_unref(o[1]);
    return waits;
}

static bool waits(enum phase phase, int64_t cpu, const char *class_, bool suspend,
                  int64_t generation)
{
    struct resources res[2] = {{.cpu = 1000}, {.cpu = cpu}};

    return spec_waits(
        phase, (struct workload_spec){.priorityClassName = "low", .resources = &res[0]},
        (struct workload_spec){
            .priorityClassName = class_, .resources = &res[1], .suspend = suspend},
        generation);
}

/* Of a run: what is counted at its end holds at once, and its script does not. */
static bool run_waits(int64_t retries, const char *script, enum partition_mode mode)
{
    struct run_spec run[2] = {{.script = "a", .retries = 1},
                              {.script = script, .retries = retries}};
    struct partition_spec p = {.mode = mode};

    return spec_waits(PHASE_RUNNING, (struct workload_spec){.run = &run[0]},
                      (struct workload_spec){.run = &run[1], .partition = mode ? &p : NULL}, 2);
}

static void test_a_spec_that_waits(void **state)
{
    (void)state;
    assert_true(waits(PHASE_RUNNING, 2000, "low", false, 2));
    assert_true(waits(PHASE_UNKNOWN, 2000, "high", true, 2));
    assert_false(waits(PHASE_RUNNING, 1000, "high", false, 2)); /* which holds at once */
    assert_false(waits(PHASE_RUNNING, 1000, "low", true, 2));
    assert_false(waits(PHASE_RUNNING, 2000, "low", false, 1)); /* as apply fills it in */
    assert_false(waits(PHASE_RESERVED, 2000, "low", false, 2)); /* it is sent with that */
    assert_false(waits(PHASE_QUEUED, 2000, "low", false, 2));
    assert_false(run_waits(3, "a", PARTITION_REPLACE));
    assert_true(run_waits(1, "b", (enum partition_mode)0));
    assert_true(run_waits(3, "b", PARTITION_STOP));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_spec_that_waits),
        cmocka_unit_test(test_checkpoint_of_the_order),
                                       cmocka_unit_test(test_interval),
                                       cmocka_unit_test(test_secrets),
                                       cmocka_unit_test(test_logs),
                                       cmocka_unit_test(test_secrets_that_make_it_too_large),
                                       cmocka_unit_test(test_a_checkpoint_stays_told),
                                       cmocka_unit_test(test_a_checkpoint_is_its_own),
                                       cmocka_unit_test(test_figures)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
