/* apply: what the core's thread computes for the largest commands there are, and what the state
 * weighs. The store itself, without log and network; the thread's own time, so that other work on
 * the machine does not count. Each scenario is a process of its own, so that peaks are its own:
 *
 *   write      5,000 Workloads in one command, beside --queues queues
 *   owner      an owner with 1,150 children of 250 kB is deleted
 *   namespace  a namespace of 12,000 objects is deleted
 *   class      a GpuClass is written beside 20,000 nodes
 *   state      --objects Workloads: at rest, while a snapshot is made as a member makes it, read
 *              again
 *
 * What follows from a command is done by slices, as the leader proposes them (leader/keep). */
#include "controlplane/store/store.h"

#include "api/base/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOW 1764547200000
#define SLICE_OBJECTS 256 /* controlplane/leader/keep/collect.c */
#define SLICE_BYTES (1u << 20)
#define REAP 8192               /* controlplane/raft/core.c */
#define CHUNK ((size_t)4 << 20) /* controlplane/raft/core_snapshot.c */

struct world {
    struct root *root;
    uint64_t number;
    struct arena *a;
    int64_t most_ns, sum_ns, reap_ns;
    long commands;
    int code;
};
static bool printed;

static int64_t cpu_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static double mib(const char *what)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    double r = 0;

    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, what, strlen(what)))
            r = (double)strtol(line + strlen(what) + 1, NULL, 10) / 1024;
    if (f)
        (void)fclose(f);
    return r;
}

static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "apply: %s: %s\n", what, why);
    exit(2);
}

static void told(const struct result *r, void *arg)
{
    struct world *x = arg;

    x->code = r->code;
    if (r->code)
        die("a command was refused", r->text);
}

/* As a leader makes it; what is measured is what each member does with it. */
static void apply(struct world *x, const union command *c)
{
    AUTO_BUF b;
    AUTO_BUF entry;
    struct err e;

    buf_init(&b, LIMIT_COMMAND_MAX_BYTES);
    buf_init(&entry, LIMIT_ENTRY_MAX_BYTES);
    command_encode(c, &b);
    entry_begin(&entry, &(struct entry_head){++x->number, 1, NOW + (int64_t)x->number});
    entry_add(&entry, slice_make(b.p, b.n));
    entry_end(&entry);
    if (b.failed || entry.failed)
        die("a command", "is larger than one may be");
    int64_t from = cpu_ns();
    struct root *old = root_ref(x->root);
    if (store_apply(&x->root, x->number, 1, slice_make(entry.p, entry.n), told, x, &e))
        die("apply", e.text);
    (void)root_unref(old);
    int64_t took = cpu_ns() - from;
    x->most_ns = took > x->most_ns ? took : x->most_ns;
    x->sum_ns += took;
    x->commands++;
    from = cpu_ns();
    while (tree_reap(REAP)) {
        took = cpu_ns() - from;
        x->reap_ns = took > x->reap_ns ? took : x->reap_ns;
        from = cpu_ns();
    }
    took = cpu_ns() - from;
    x->reap_ns = took > x->reap_ns ? took : x->reap_ns;
}

static void measured_anew(struct world *x)
{
    x->most_ns = x->sum_ns = x->reap_ns = 0;
    x->commands = 0;
}

static void collect(struct world *x)
{
    union command c = {
        .collect = {.head = {.type = CMD_COLLECT}, .objects = SLICE_OBJECTS, .bytes = SLICE_BYTES}};

    while (root_collect_due(x->root))
        apply(x, &c);
}

static void row(const char *name, double value, const char *unit)
{
    (void)printf("%s  {\"name\": \"%s\", \"value\": %.2f, \"unit\": \"%s\"}", printed ? ",\n" : "",
                 name, value, unit);
    (void)fflush(stdout);
    printed = true;
}

static void rows(const struct world *x, const char *what)
{
    char name[128];

    (void)snprintf(name, sizeof name, "%s: longest command", what);
    row(name, (double)x->most_ns / 1e6, "ms");
    (void)snprintf(name, sizeof name, "%s: longest freeing of what was let go", what);
    row(name, (double)x->reap_ns / 1e6, "ms");
    (void)snprintf(name, sizeof name, "%s: all commands", what);
    row(name, (double)x->sum_ns / 1e6, "ms");
    (void)snprintf(name, sizeof name, "%s: commands", what);
    row(name, (double)x->commands, "");
    (void)snprintf(name, sizeof name, "%s: peak memory", what);
    row(name, mib("VmHWM:"), "MiB");
}

/* ---- documents ---- */
static struct meta *meta(struct arena *a, const char *ns, const char *name)
{
    static uint64_t s = 1;
    struct meta *m = arena_new(a, struct meta);
    unsigned long long v[2];

    for (int i = 0; i < 2; i++)
        v[i] = s = (s ^ s >> 29) * 6364136223846793005u + 1442695040888963407u;
    m->name = name;
    m->namespace_ = ns;
    m->uid = arena_printf(a, "%016llx-%016llx", v[0], v[1]); /* as hard to compress as real ones */
    return m;
}

static void op_add(struct write_cmd *w, enum kind_id kind, const struct meta *m, const void *body)
{
    struct write_op *op = &w->ops[w->n++];

    *op = (struct write_op){
        .verb = WRITE_CREATE, .kind = kind, .object = object_make(kind_by_id(kind), body)};
    str_copy(op->ns, sizeof op->ns, m->namespace_);
    str_copy(op->name, sizeof op->name, m->name);
}

static void op_delete(struct world *x, enum kind_id kind, const char *ns, const char *name)
{
    struct write_op op = {.verb = WRITE_DELETE, .kind = kind};
    union command c = {.write = {.head = {.type = CMD_WRITE}, .ops = &op, .n = 1}};

    str_copy(op.ns, sizeof op.ns, ns);
    str_copy(op.name, sizeof op.name, name);
    apply(x, &c);
}

static void write_all(struct world *x, union command *c)
{
    apply(x, c);
    for (uint32_t i = 0; i < c->write.n; i++)
        (void)object_unref(c->write.ops[i].object);
    c->write.n = 0;
    arena_reset(x->a);
}

/* n of a kind, made by `one`, in commands of `each`. */
static void fill(struct world *x, long n, long each,
                 void (*one)(struct world *x, struct write_cmd *w, long i))
{
    struct write_op *ops = mem_zalloc((size_t)each * sizeof *ops);
    union command c = {.write = {.head = {.type = CMD_WRITE}, .ops = ops}};

    for (long i = 0; i < n; i++) {
        one(x, &c.write, i);
        if (c.write.n == (uint32_t)each || i + 1 == n)
            write_all(x, &c);
    }
    mem_free(ops);
}

static long n_queues = 1;
static const char *space = "default", *owner_uid;
static size_t large;

static void a_queue(struct world *x, struct write_cmd *w, long i)
{
    struct queue_gpus g = {.class_ = "h100", .guaranteed = 1};
    struct queue_spec spec = {.weight = 1, .lend = true, .gpus = &g, .n_gpus = 1};
    struct queue q = {.metadata = meta(x->a, "", arena_printf(x->a, "q%05ld", i)), .spec = &spec};

    op_add(w, KIND_QUEUE, q.metadata, &q);
}

static void a_namespace(struct world *x, struct write_cmd *w, long i)
{
    struct namespace_ n = {.metadata = meta(x->a, "", i ? "tenant" : "default")};

    op_add(w, KIND_NAMESPACE, n.metadata, &n);
}

static void a_workload(struct world *x, struct write_cmd *w, long i)
{
    const char *command[] = {"train", "--seed", "17"};
    char queue[32];
    struct gpu_request gpu = {.count = 1};
    struct resources res = {.gpu = &gpu, .cpu = 1000, .memory = 4ll << 30};
    struct run_spec run = {.command = command, .n_command = 3};
    struct workload_spec spec = {.run = &run, .resources = &res, .queue = queue};
    struct workload o = {.metadata = meta(x->a, space, arena_printf(x->a, "w%07ld", i)),
                         .spec = &spec};

    (void)snprintf(queue, sizeof queue, "q%05ld", i % n_queues);
    op_add(w, KIND_WORKLOAD, o.metadata, &o);
}

static void a_child(struct world *x, struct write_cmd *w, long i)
{
    struct owner_ref owner = {.apiVersion = kind_api_version(kind_by_id(KIND_DATASET)),
                              .kind = "Dataset",
                              .name = "owner",
                              .uid = owner_uid};
    struct kv note = {"bench/large", NULL};
    struct dataset_spec spec = {.source = "-"};
    struct dataset d = {.metadata = meta(x->a, space, arena_printf(x->a, "d%07ld", i)),
                        .spec = &spec};
    char *text = arena_alloc(x->a, large + 1);

    memset(text, 'x', large);
    note.value = text;
    d.metadata->annotations = &note;
    d.metadata->n_annotations = 1;
    if (owner_uid) {
        d.metadata->ownerReferences = &owner;
        d.metadata->n_ownerReferences = 1;
    }
    op_add(w, KIND_DATASET, d.metadata, &d);
}

static void a_target(struct world *x, struct write_cmd *w, long i)
{
    struct target_spec spec = {.type = TARGET_AGENT, .tier = TIER_HUB};
    struct target t = {.metadata = meta(x->a, "", arena_printf(x->a, "t%05ld", i)), .spec = &spec};

    op_add(w, KIND_TARGET, t.metadata, &t);
}

static void nodes_told(struct world *x, const char *target, uint32_t n)
{
    union command c = {.facts = {.head = {.type = CMD_FACTS}}};
    struct node *nodes = arena_array(x->a, struct node, n);

    str_copy(c.facts.target, sizeof c.facts.target, target);
    (void)snprintf(c.facts.session, sizeof c.facts.session, "s1");
    c.facts.reach_told = c.facts.reachable = c.facts.complete = true;
    c.facts.nodes = nodes;
    c.facts.n = n;
    for (uint32_t i = 0; i < n; i++) {
        struct node_spec *spec = arena_new(x->a, struct node_spec);

        nodes[i].metadata = meta(x->a, "", arena_printf(x->a, "%s.n%05u", target, i));
        nodes[i].spec = spec;
        spec->target = target;
        spec->cpu = 128000;
        spec->memory = 1ll << 40;
        spec->gpus = arena_array(x->a, struct gpu, 8);
        spec->n_gpus = 8;
        for (int k = 0; k < 8; k++)
            spec->gpus[k] = (struct gpu){.index = k, .class_ = "NVIDIA H100 80GB HBM3"};
    }
    apply(x, &c);
    arena_reset(x->a);
}

static struct world begin(void)
{
    struct world x = {.root = root_create(), .a = arena_create((size_t)1 << 30)};
    union command c = {.member = {.head = {.type = CMD_MEMBER},
                                  .member = {.id = 1, .feature_level = FEATURE_LEVEL},
                                  .cluster_uid = "bench"}};

    apply(&x, &c);
    fill(&x, 2, 2, a_namespace);
    return x;
}

static void end(struct world *x)
{
    (void)root_unref(x->root);
    x->a = arena_destroy(x->a);
}

/* ---- scenarios ---- */
static void write_scenario(long n)
{
    struct world x = begin();

    (void)n;
    fill(&x, 1000, 1000, a_target);
    rows(&x, "1,000 Targets in one write");
    measured_anew(&x);
    fill(&x, n_queues, 1000, a_queue);
    rows(&x, "Queues, 1,000 in one write");
    measured_anew(&x);
    fill(&x, 5000, 5000, a_workload);
    rows(&x, "5,000 Workloads in one write");
    end(&x);
}

static void owner_scenario(long n)
{
    struct world x = begin();
    struct dataset_spec spec = {.source = "-"};
    struct write_op ops[1];
    union command c = {.write = {.head = {.type = CMD_WRITE}, .ops = ops}};
    struct dataset d = {.metadata = meta(x.a, space, "owner"), .spec = &spec};

    (void)n;
    op_add(&c.write, KIND_DATASET, d.metadata, &d);
    write_all(&x, &c);
    owner_uid = root_get(x.root, KIND_DATASET, space, "owner")->meta->uid;
    large = 250000;
    fill(&x, 1150, 1, a_child);
    row("owner of 1,150 children of 250 kB: at rest", mib("VmRSS:"), "MiB");
    measured_anew(&x);
    op_delete(&x, KIND_DATASET, space, "owner");
    collect(&x);
    rows(&x, "owner of 1,150 children of 250 kB deleted");
    end(&x);
}

static void namespace_scenario(long n)
{
    struct world x = begin();

    (void)n;
    space = "tenant";
    fill(&x, 12000, 2000, a_workload);
    measured_anew(&x);
    op_delete(&x, KIND_NAMESPACE, "", "tenant");
    collect(&x);
    rows(&x, "namespace of 12,000 objects deleted");
    end(&x);
}

static void class_scenario(long n)
{
    struct world x = begin();
    struct write_op ops[1];
    union command c = {.write = {.head = {.type = CMD_WRITE}, .ops = ops}};
    struct gpu_class_spec spec = {.memory = 80ll << 30};

    (void)n;
    fill(&x, 20, 20, a_target);
    for (int i = 0; i < 20; i++) {
        char target[32];

        (void)snprintf(target, sizeof target, "t%05d", i);
        nodes_told(&x, target, 1000);
    }
    collect(&x);
    measured_anew(&x);
    const char *names[] = {"NVIDIA H100 80GB HBM3"};
    spec.aliases = names;
    spec.n_aliases = 1;
    struct gpu_class g = {.metadata = meta(x.a, "", "h100"), .spec = &spec};
    op_add(&c.write, KIND_GPU_CLASS, g.metadata, &g);
    write_all(&x, &c);
    collect(&x);
    rows(&x, "GpuClass written beside 20,000 nodes");
    end(&x);
}

struct chunks {
    char *v[511];
    size_t n, used, bytes;
};
static bool chunk_add(void *arg, const void *p, size_t n)
{
    struct chunks *c = arg;
    const char *at = p;

    c->bytes += n;
    while (n) {
        if (!c->n || c->used == CHUNK) {
            if (c->n == 511)
                return false;
            c->v[c->n++] = mem_alloc(CHUNK);
            c->used = 0;
        }
        size_t take = n < CHUNK - c->used ? n : CHUNK - c->used;
        memcpy(c->v[c->n - 1] + c->used, at, take);
        c->used += take;
        at += take;
        n -= take;
    }
    return true;
}

static void state_scenario(long n)
{
    struct world x = begin();
    struct chunks c = {0};
    struct root *again = NULL;
    struct err e;

    fill(&x, n, 2000, a_workload);
    double rest = mib("VmRSS:");
    row("objects", (double)n, "");
    row("longest command of 2,000 Workloads", (double)x.most_ns / 1e6, "ms");
    row("at rest", rest, "MiB");
    row("bytes at rest of one object", rest * 1048576 / (double)n, "B");
    int64_t from = cpu_ns();
    if (snapshot_write(x.root, chunk_add, &c, &e))
        die("snapshot", e.text);
    row("snapshot made in", (double)(cpu_ns() - from) / 1e6, "ms");
    row("snapshot", (double)c.bytes / 1048576, "MiB");
    row("memory at most while it was made", mib("VmHWM:"), "MiB");
    row("of that at rest", mib("VmHWM:") / rest, "");
    /* Read as at a start: nothing else is in memory but its bytes. */
    uint64_t digest = root_digest(x.root);
    char *whole = mem_alloc(c.bytes);
    for (size_t i = 0, at = 0; i < c.n; i++, at += CHUNK) {
        memcpy(whole + at, c.v[i], i + 1 < c.n ? CHUNK : c.used);
        mem_free(c.v[i]);
    }
    end(&x);
    while (tree_reap(REAP)) {
    }
    from = cpu_ns();
    if (snapshot_decode(slice_make(whole, c.bytes), &again, &e))
        die("snapshot", e.text);
    row("snapshot read in", (double)(cpu_ns() - from) / 1e6, "ms");
    if (root_digest(again) != digest)
        die("snapshot", "what was read is not what was written");
    (void)root_unref(again);
    mem_free(whole);
}

static const struct scenario {
    const char *name;
    void (*run)(long objects);
} scenarios[] = {{"write", write_scenario},
                 {"owner", owner_scenario},
                 {"namespace", namespace_scenario},
                 {"class", class_scenario},
                 {"state", state_scenario}};

static const char *argument(int argc, char **argv, const char *name, const char *otherwise)
{
    for (int i = 1; i + 1 < argc; i += 2)
        if (!strcmp(argv[i], name))
            return argv[i + 1];
    return otherwise;
}

int main(int argc, char **argv)
{
    const char *only = argument(argc, argv, "--only", "");
    long objects = strtol(argument(argc, argv, "--objects", "1000000"), NULL, 10);
    int bad = 0;

    n_queues = strtol(argument(argc, argv, "--queues", "1000"), NULL, 10);
    (void)printf("{\"bench\": \"apply\", \"queues\": %ld, \"rows\": [\n", n_queues);
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        int status = 0, any = 0;

        if (*only && strcmp(only, scenarios[i].name) != 0)
            continue;
        (void)fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            scenarios[i].run(objects);
            (void)fflush(stdout);
            _exit(0);
        }
        any = pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
        bad |= !any;
        printed = true;
    }
    (void)printf("\n]}\n");
    return bad;
}
