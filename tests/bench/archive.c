/* A year of a busy cluster in virtual time: a million workloads are made, placed, run, end, and
 * move into the archive by retention. Prints one JSON object: how large state and snapshot are
 * along the way, what retention costs, how long random explanations out of the archive take. Exit 1
 * when the state grows with the number of workloads, when the chain does not verify, or when an
 * explanation is not the one that was decided. ARCHIVE_WORKLOADS, ARCHIVE_SEED. */
#include "api/base/limits.h"
#include "api/base/loop/loop.h"
#include "controlplane/archive/archive_files.h"
#include "controlplane/store/archive/segment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WORKLOADS 1000000
#define BATCH 32
#define NODES 4
#define GPUS 8
#define YEAR_MS (365ll * 86400000)
#define EXPLAINS 1000
#define SAMPLES 20

struct world {
    struct loop *loop;
    struct root *root;
    uint64_t number, seed, workloads, made, followed, file_bytes;
    int64_t now, step_ms;
    char dir[256];
    struct buf entry, command;
    struct archive_cursor cursor;
    double apply_s, archive_s, archive_max_s, build_s;
    uint64_t archives, snapshot_max, snapshot_half, objects_max, wrong;
};

static double seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t rnd(struct world *w)
{
    w->seed ^= w->seed << 13;
    w->seed ^= w->seed >> 7;
    return w->seed ^= w->seed << 17;
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *v = getenv(name);

    return v && *v ? strtoull(v, NULL, 10) : otherwise;
}

/* ---- the log ---- */
static void add(struct world *w, const union command *c)
{
    if (w->entry.n == 0)
        entry_begin(&w->entry, &(struct entry_head){++w->number, 1, w->now});
    buf_reset(&w->command);
    command_encode(c, &w->command);
    entry_add(&w->entry, slice_make(w->command.p, w->command.n));
}

static void result(const struct result *r, void *arg)
{
    struct world *w = arg;

    if (r->code == 0)
        return;
    w->wrong++;
    if (w->wrong < 10)
        (void)fprintf(stderr, "archive: refused: %s %s\n", r->field, r->text);
}

static void follow(struct world *w);

static double apply(struct world *w)
{
    struct err e = {0};
    double begun = seconds();

    if (w->entry.n == 0)
        return 0;
    entry_end(&w->entry);
    if (store_apply(&w->root, w->number, 1, slice_make(w->entry.p, w->entry.n), result, w, &e)) {
        (void)fprintf(stderr, "archive: %s\n", e.text);
        exit(1);
    }
    (void)tree_reap(4096);
    buf_reset(&w->entry);
    begun = seconds() - begun;
    follow(w);
    return begun;
}

/* Files as a member writes them. */
static void follow(struct world *w)
{
    struct err e = {0};
    char path[ARCHIVE_PATH_MAX];
    double begun = seconds();

    for (; w->followed < root_archive_newest(w->root); w->followed++) {
        const struct segment_box *s = segment_hold(w->root, w->followed + 1);
        AUTO_BUF b;

        buf_init(&b, SEGMENT_FILE_MAX_BYTES);
        archive_path(w->dir, w->followed + 1, path);
        if (!s || segment_build(s, &b, &e) || file_write(w->loop, path, b.p, b.n, 0600, &e)) {
            (void)fprintf(stderr, "archive: segment %llu: %s\n",
                          (unsigned long long)w->followed + 1, e.text);
            exit(1);
        }
        segment_release(s);
        w->file_bytes += b.n;
    }
    w->build_s += seconds() - begun;
}

static void create(struct world *w, struct arena *a, enum kind_id kind, const char *ns,
                   const char *name, const char *uid, void *body, struct meta *m)
{
    struct write_op op = {.verb = WRITE_CREATE, .kind = kind};
    union command c = {.write = {.head = {.type = CMD_WRITE, .user = "bench"}, .ops = &op, .n = 1}};

    m->name = arena_strdup(a, name);
    m->namespace_ = ns;
    m->uid = arena_strdup(a, uid);
    str_copy(op.ns, sizeof op.ns, ns);
    str_copy(op.name, sizeof op.name, name);
    op.object = object_make(kind_by_id(kind), body);
    add(w, &c);
    (void)object_unref(op.object);
}

/* ---- the cluster ---- */
static void pool(struct world *w, struct arena *a)
{
    union command m = {.member = {.head = {.type = CMD_MEMBER}, .member = {.id = 1}}};
    union command f = {.facts = {.head = {.type = CMD_FACTS}}};
    struct namespace_ *ns = arena_new(a, struct namespace_);
    struct target *t = arena_new(a, struct target);

    (void)snprintf(m.member.cluster_uid, sizeof m.member.cluster_uid, "bench");
    m.member.member.feature_level = FEATURE_LEVEL;
    add(w, &m);
    ns->metadata = arena_new(a, struct meta);
    create(w, a, KIND_NAMESPACE, "", "default", "ns", ns, ns->metadata);
    t->metadata = arena_new(a, struct meta);
    t->spec = arena_new(a, struct target_spec);
    t->spec->type = TARGET_AGENT;
    t->spec->tier = TIER_HUB;
    create(w, a, KIND_TARGET, "", "fra", "fra", t, t->metadata);
    (void)snprintf(f.facts.target, sizeof f.facts.target, "fra");
    (void)snprintf(f.facts.session, sizeof f.facts.session, "s1");
    f.facts.reach_told = f.facts.reachable = f.facts.complete = true;
    f.facts.nodes = arena_array(a, struct node, NODES);
    f.facts.n = NODES;
    for (int i = 0; i < NODES; i++) {
        struct node *n = &f.facts.nodes[i];

        n->metadata = arena_new(a, struct meta);
        n->metadata->name = arena_printf(a, "fra.n%d", i);
        n->spec = arena_new(a, struct node_spec);
        n->spec->target = "fra";
        n->spec->cpu = 64000;
        n->spec->memory = (int64_t)1 << 40;
        n->spec->gpus = arena_array(a, struct gpu, GPUS);
        n->spec->n_gpus = GPUS;
        for (int g = 0; g < GPUS; g++)
            n->spec->gpus[g] = (struct gpu){.index = g, .class_ = "h100"};
    }
    add(w, &f);
    (void)apply(w);
}

static void names(uint64_t i, char name[64], char uid[64])
{
    (void)snprintf(name, 64, "job-%llu", (unsigned long long)i);
    (void)snprintf(uid, 64, "uid-%llu", (unsigned long long)i);
}

static void submit(struct world *w, struct arena *a, uint64_t i)
{
    struct workload *o = arena_new(a, struct workload);
    struct event *v = arena_new(a, struct event);
    char name[64], uid[64], event[80];

    names(i, name, uid);
    o->metadata = arena_new(a, struct meta);
    o->spec = arena_new(a, struct workload_spec);
    o->spec->type = WORKLOAD_TRAINING;
    o->spec->run = arena_new(a, struct run_spec);
    o->spec->run->script = arena_printf(
        a, "#!/bin/sh\npython3 train.py --epochs 40 --lr 0.00%llu --data /data/set-%llu\n",
        (unsigned long long)rnd(w) % 1000, (unsigned long long)rnd(w) % 100000);
    o->spec->gang = arena_new(a, struct gang);
    o->spec->gang->workers = 1;
    o->spec->resources = arena_new(a, struct resources);
    o->spec->resources->cpu = 1000;
    o->spec->resources->gpu = arena_new(a, struct gpu_request);
    o->spec->resources->gpu->count = 1;
    create(w, a, KIND_WORKLOAD, "default", name, uid, o, o->metadata);
    (void)snprintf(event, sizeof event, "%s.placed", name);
    v->metadata = arena_new(a, struct meta);
    v->metadata->ownerReferences = arena_new(a, struct owner_ref);
    v->metadata->n_ownerReferences = 1;
    *v->metadata->ownerReferences = (struct owner_ref){
        .apiVersion = "hanse.dev/v1alpha1", .kind = "Workload", .name = name, .uid = uid};
    v->involvedObject = arena_new(a, struct object_ref);
    *v->involvedObject = (struct object_ref){.kind = "Workload", .name = name, .uid = uid};
    v->reason = "Placed";
    v->message = "on fra in epoch 1: lowest cost of 3 candidates";
    v->lastTimestamp = w->now;
    create(w, a, KIND_EVENT, "default", event, event, v, v->metadata);
}

static void place(struct world *w, struct arena *a, uint64_t i, int slot)
{
    union command c = {.place = {.head = {.type = CMD_PLACE}}};
    struct placement *p = arena_new(a, struct placement);
    struct decision_spec *d = arena_new(a, struct decision_spec);

    (void)snprintf(c.place.ns, sizeof c.place.ns, "default");
    names(i, c.place.name, c.place.uid);
    d->outcome = "Placed";
    d->reason = "LowestCost";
    d->message = arena_printf(a, "lowest cost of 3 candidates, for %llu", (unsigned long long)i);
    d->candidates = arena_array(a, struct candidate, 3);
    d->n_candidates = 3;
    for (int n = 0; n < 3; n++) {
        d->candidates[n].target = n ? arena_printf(a, "spoke-%d", n) : "fra";
        d->candidates[n].message = n ? "24 nodes are full until something ends" : "chosen";
        d->candidates[n].score = 90 - 10 * n;
    }
    d->seed = (int64_t)i;
    c.place.decision = d;
    p->target = "fra";
    p->class_ = "h100";
    p->gpuHourPrice = 2;
    p->cpu = 1000;
    p->assignments = arena_new(a, struct assignment);
    p->n_assignments = 1;
    p->assignments->node = arena_printf(a, "fra.n%d", slot / GPUS);
    p->assignments->gpuMilli = 1000;
    p->assignments->gpus = arena_new(a, int64_t);
    p->assignments->gpus[0] = slot % GPUS;
    p->assignments->n_gpus = 1;
    c.place.placement = p;
    add(w, &c);
}

static void run(struct world *w, uint64_t i, enum run_step step)
{
    union command c = {.run = {.head = {.type = CMD_RUN}, .epoch = 1, .try_ = 1, .step = step}};

    (void)snprintf(c.run.ns, sizeof c.run.ns, "default");
    names(i, c.run.name, c.run.uid);
    c.run.proof = PROOF_TREE_GONE;
    add(w, &c);
}

static void batch(struct world *w)
{
    static const enum run_step steps[] = {STEP_DISPATCH, STEP_RUNNING, STEP_ENDED};
    struct arena *a = arena_create(0);

    for (uint64_t i = 0; i < BATCH; i++)
        submit(w, a, w->made + i);
    w->apply_s += apply(w);
    for (uint64_t i = 0; i < BATCH; i++)
        place(w, a, w->made + i, (int)i);
    w->apply_s += apply(w);
    for (unsigned s = 0; s < 3; s++) {
        w->now += w->step_ms / 4;
        for (uint64_t i = 0; i < BATCH; i++)
            run(w, w->made + i, steps[s]);
        w->apply_s += apply(w);
    }
    w->now += w->step_ms / 4;
    w->made += BATCH;
    (void)arena_destroy(a);
}

/* As controlplane/leader/keep/retention.c does. */
static void retain(struct world *w)
{
    struct write_op ops[64];
    union command c = {.archive = {.head = {.type = CMD_ARCHIVE, .user = "hanse:retention"},
                                   .close_bytes = 4 << 20,
                                   .close_after_ms = 86400000,
                                   .ops = ops}};
    size_t n;
    bool end;

    do {
        end = root_archive_due(w->root, w->now, &w->cursor, 10000, ops, 64, &n);
        c.archive.n = (uint32_t)n;
        if (!n && root_archive(w->root).begun)
            continue;
        add(w, &c);
        double s = apply(w);
        w->archive_s += s;
        w->archive_max_s = s > w->archive_max_s ? s : w->archive_max_s;
        w->archives++;
    } while (!end);
}

static void sample(struct world *w, bool half)
{
    uint64_t objects = 0;
    struct root *again = NULL;
    struct err e;
    AUTO_BUF b;

    buf_init(&b, (size_t)1 << 30);
    if (snapshot_encode(w->root, &b, &e) || snapshot_decode(slice_make(b.p, b.n), &again, &e)) {
        (void)fprintf(stderr, "archive: %s\n", e.text);
        exit(1);
    }
    w->wrong += root_digest(again) != root_digest(w->root);
    (void)root_unref(again);
    for (int k = 1; k < KIND_LIMIT; k++)
        objects += root_count(w->root, (enum kind_id)k);
    w->snapshot_max = b.n > w->snapshot_max ? b.n : w->snapshot_max;
    w->objects_max = objects > w->objects_max ? objects : w->objects_max;
    if (half)
        w->snapshot_half = w->snapshot_max;
    (void)fprintf(stderr,
                  "archive: %llu workloads, %llu objects, snapshot %zu bytes, %llu segments\n",
                  (unsigned long long)w->made, (unsigned long long)objects, b.n,
                  (unsigned long long)root_archive_newest(w->root));
}

/* ---- explanations ---- */
struct seen {
    uint64_t i;
    unsigned workloads, decisions, events, wrong;
};

static bool seen_each(const struct archive_record *r, uint64_t segment, void *arg)
{
    struct seen *s = arg;
    struct object *o = NULL;

    (void)segment;
    if (object_decode(kind_by_id(r->kind), r->object, &o, NULL)) {
        s->wrong++;
        return true;
    }
    s->workloads += r->kind == KIND_WORKLOAD;
    s->events += r->kind == KIND_EVENT;
    if (r->kind == KIND_DECISION) {
        s->decisions++;
        s->wrong += object_as(o, decision)->spec->seed != (int64_t)s->i;
    }
    (void)object_unref(o);
    return true;
}

static int double_order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void explain(struct world *w, double *ret)
{
    for (int n = 0; n < EXPLAINS; n++) {
        struct seen s = {.i = rnd(w) % w->made};
        struct archive_found f;
        char name[64], uid[64];
        struct err e = {0};
        double begun = seconds();

        names(s.i, name, uid);
        struct archive_search q = {.ns = "default",
                                   .workload = name,
                                   .uid = uid,
                                   .records_max = 500,
                                   .segments_max = UINT64_MAX};
        if (archive_find(w->loop, w->dir, w->root, &q, seen_each, &s, &f, &e))
            s.wrong++;
        ret[n] = seconds() - begun;
        bool there = root_get(w->root, KIND_WORKLOAD, "default", name) != NULL;
        if (s.wrong || f.absent || f.bad || s.workloads != !there || s.decisions != !there ||
            s.events != !there) {
            w->wrong++;
            (void)fprintf(stderr, "archive: %s: %u workloads, %u decisions, %u events, %u wrong\n",
                          name, s.workloads, s.decisions, s.events, s.wrong);
        }
    }
    qsort(ret, EXPLAINS, sizeof *ret, double_order);
}

static double verify(struct world *w)
{
    unsigned char prev[ARCHIVE_DIGEST];
    double begun = seconds();

    archive_chain_first("bench", prev);
    for (uint64_t n = 1; n <= root_archive_newest(w->root); n++) {
        struct archive_info want = {0}, have;
        char path[ARCHIVE_PATH_MAX];
        struct err e = {0};
        AUTO_BUF b;

        buf_init(&b, SEGMENT_FILE_MAX_BYTES);
        archive_path(w->dir, n, path);
        if (!root_archive_info(w->root, n, &want) ||
            file_read(w->loop, path, SEGMENT_FILE_MAX_BYTES, &b, &e) ||
            segment_verify(slice_make(b.p, b.n), want.digest, &have, &e) ||
            memcmp(have.prev, prev, sizeof prev) != 0) {
            (void)fprintf(stderr, "archive: segment %llu: %s\n", (unsigned long long)n, e.text);
            w->wrong++;
            break;
        }
        memcpy(prev, have.digest, sizeof prev);
    }
    return seconds() - begun;
}

static void report(struct world *w, const double *explained, double verified)
{
    struct archive_totals t = root_archive(w->root);
    /* With few workloads the ledger has not come to its limits yet. */
    bool grows = w->made >= 400000 && w->snapshot_max > w->snapshot_half + w->snapshot_half / 4;

    (void)printf("{\"bench\":\"archive\",\"workloads\":%llu,\"objects_max\":%llu,"
                 "\"snapshot_half_bytes\":%llu,\"snapshot_max_bytes\":%llu,\"state_grows\":%s,"
                 "\"segments\":%llu,\"records\":%llu,\"archived_bytes\":%llu,\"file_bytes\":%llu,"
                 "\"apply_us_per_workload\":%.1f,\"archive_us_per_workload\":%.1f,"
                 "\"archive_entry_max_ms\":%.2f,\"write_s\":%.1f,\"verify_s\":%.1f,"
                 "\"explain_p50_ms\":%.2f,\"explain_p99_ms\":%.2f,\"wrong\":%llu}\n",
                 (unsigned long long)w->made, (unsigned long long)w->objects_max,
                 (unsigned long long)w->snapshot_half, (unsigned long long)w->snapshot_max,
                 grows ? "true" : "false", (unsigned long long)t.segments,
                 (unsigned long long)t.records, (unsigned long long)t.bytes,
                 (unsigned long long)w->file_bytes, w->apply_s / (double)w->made * 1e6,
                 w->archive_s / (double)w->made * 1e6, w->archive_max_s * 1e3, w->build_s, verified,
                 explained[EXPLAINS / 2] * 1e3, explained[EXPLAINS * 99 / 100] * 1e3,
                 (unsigned long long)w->wrong);
    w->wrong += grows;
}

int main(void)
{
    struct world w = {.seed = number_of("ARCHIVE_SEED", 1) * 0x9e3779b97f4a7c15u + 1,
                      .now = 1800000000000,
                      .workloads = number_of("ARCHIVE_WORKLOADS", WORKLOADS)};
    static double explained[EXPLAINS];
    struct arena *a = arena_create(0);
    struct err e;

    w.loop = loop_uv_create(&e);
    w.root = root_create();
    w.step_ms = YEAR_MS / (int64_t)(w.workloads / BATCH + 1);
    buf_init(&w.entry, LIMIT_ENTRY_MAX_BYTES);
    buf_init(&w.command, LIMIT_COMMAND_MAX_BYTES);
    (void)snprintf(w.dir, sizeof w.dir, "%s/hanse-soak-XXXXXX",
                   getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!w.loop || !mkdtemp(w.dir))
        return 1;
    pool(&w, a);
    for (uint64_t next = w.workloads / SAMPLES; w.made < w.workloads;) {
        batch(&w);
        if (w.made % 512 == 0)
            retain(&w);
        if (w.made >= next) {
            next += w.workloads / SAMPLES;
            sample(&w, w.made < w.workloads / 2);
        }
    }
    explain(&w, explained);
    double verified = verify(&w);
    report(&w, explained, verified);
    (void)!file_remove(w.loop, w.dir, &e);
    (void)root_unref(w.root);
    (void)tree_reap(SIZE_MAX);
    buf_fini(&w.entry);
    buf_fini(&w.command);
    (void)arena_destroy(a);
    w.loop = loop_uv_destroy(w.loop);
    return w.wrong ? 1 : 0;
}
