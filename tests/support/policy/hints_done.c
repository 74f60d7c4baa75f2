/* See hints_done.h. */
#include "tests/support/policy/hints_done.h"

static bool read_place(const char *t, struct change *c)
{
    char date[16], hour[8];

    *c = (struct change){.kind = H_CLASS};
    if (sscanf(t, "class %63s allowed too (", c->s) == 1)
        return true;
    c->kind = H_TIER;
    if (sscanf(t, "tier %63s allowed too (", c->s) == 1)
        return true;
    c->kind = H_REGION;
    if (sscanf(t, "region %63s allowed too (", c->s) == 1)
        return true;
    c->kind = H_TARGET;
    if (sscanf(t, "target %63s allowed too (", c->s) == 1)
        return true;
    c->kind = H_LABELS;
    if (strncmp(t, "without targets.matchLabels (", 29) == 0)
        return true;
    c->kind = H_TARGETS;
    if (strncmp(t, "without targets (", 17) == 0)
        return true;
    c->kind = H_INTERCONNECT;
    if (sscanf(t, "without interconnect %63s (", c->s) == 1)
        return true;
    c->kind = H_ISOLATION;
    if (strncmp(t, "isolation soft (", 16) == 0)
        return true;
    c->kind = H_MIN_MEMORY;
    if (sscanf(t, "minMemory lowered to %63s (", c->s) == 1)
        return quantity_parse(c->s, 1, &c->n, NULL) == 0;
    c->kind = H_MIN_SPEED;
    if (sscanf(t, "minSpeed lowered to %lf (", &c->x) == 1)
        return true;
    c->kind = H_WITHIN;
    c->n = LEVEL_TARGET;
    if (strncmp(t, "without topology.within (", 25) == 0)
        return true;
    if (sscanf(t, "within one %63s instead of one", c->s) == 1) {
        for (c->n = 1; strcmp(domain_level_text((enum domain_level)c->n), c->s) != 0; c->n++)
            assert_true(c->n < LEVEL_TARGET);
        return true;
    }
    c->kind = H_WAIT;
    if (sscanf(t, "wait until %15s %7s UTC:", date, hour) != 2)
        return false;
    (void)snprintf(c->s, sizeof(c->s), "%sT%s:00Z", date, hour);
    return time_parse(c->s, &c->n, NULL) == 0;
}

static bool read_limit(const char *t, struct change *c)
{
    static const struct {
        const char *word;
        enum hint_kind kind;
    } words[] = {{"burst", H_BURST},
                 {"borrowLimit", H_BORROW},
                 {"guaranteed", H_GUARANTEED},
                 {"lendLimit", H_LEND_LIMIT}};
    char word[64];
    long long n;

    *c = (struct change){.kind = H_LEND};
    if (sscanf(t, "queue %63s lends what it is guaranteed", c->s) == 1)
        return true;
    c->kind = H_MAX_GPUS;
    if (sscanf(t, "maxGPUs raised by %lld in policy %63s", &n, c->s) == 2) {
        c->n = n;
        return true;
    }
    c->kind = H_WINDOW;
    if (sscanf(t, "maxGPUs raised by %lld in the window %63s of policy %63s", &n, c->class_,
               c->s) == 3) {
        c->n = n;
        return true;
    }
    if (sscanf(t, "%63s of any class raised by %lld in queue %63s", word, &n, c->s) == 3) {
        c->class_[0] = '\0';
    } else if (sscanf(t, "%63s of %63s raised by %lld in queue %63s", word, c->class_, &n, c->s) !=
               4) {
        (void)snprintf(c->class_, sizeof(c->class_), "?");
        if (sscanf(t, "%63s raised by %lld in queue %63s", word, &n, c->s) != 3)
            return false;
    }
    c->n = n;
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        if (strcmp(word, words[i].word) == 0) {
            c->kind = words[i].kind;
            return true;
        }
    }
    return false;
}

static bool read_less(const char *t, struct change *c)
{
    long long n;
    char gpus[8];

    *c = (struct change){.kind = H_PRICE};
    if (sscanf(t, "maxGpuHourPrice raised to %lf", &c->x) == 1 ||
        strncmp(t, "without maxGpuHourPrice", 23) == 0)
        return true;
    c->kind = H_COST;
    if (sscanf(t, "maxCost raised to %lf", &c->x) == 1 || strncmp(t, "without maxCost", 15) == 0)
        return true;
    c->kind = H_DEADLINE;
    if (sscanf(t, "deadline moved to %63s", c->s) == 1)
        return time_parse(c->s, &c->n, NULL) == 0;
    c->kind = H_RESHARD;
    if (strncmp(t, "checkpoint.reshard", 18) == 0)
        return true;
    c->kind = H_MIN_WORKERS;
    if (sscanf(t, "minWorkers %lld instead of", &n) == 1) {
        c->n = n;
        return true;
    }
    c->kind = H_FRACTION;
    if (sscanf(t, "fraction %lf instead of", &c->x) == 1)
        return true;
    c->kind = H_CPU;
    if (sscanf(t, "cpu %63s per worker instead", c->s) == 1)
        return quantity_parse(c->s, 1000, &c->n, NULL) == 0;
    c->kind = H_MEMORY;
    if (sscanf(t, "memory %63s per worker instead", c->s) == 1)
        return quantity_parse(c->s, 1, &c->n, NULL) == 0;
    c->kind = H_MIG;
    if (sscanf(t, "mig %63s instead of", c->s) == 1)
        return true;
    c->kind = H_PRIORITY;
    if (sscanf(t, "priority class %63[^:]: it would preempt %lld,", c->s, &n) == 2) {
        c->n = n;
        return true;
    }
    if (sscanf(t, "%lld %7s", &n, gpus) != 2)
        return false;
    c->kind = strncmp(gpus, "GPU", 3) == 0 || strncmp(gpus, "instanc", 7) == 0 ? H_GPUS : H_WORKERS;
    c->n = n;
    return c->kind == H_GPUS || strncmp(gpus, "worker", 6) == 0;
}

static void change_targets(const struct change *c, struct target_selector *s, struct arena *a)
{
    if (c->kind == H_TIER) {
        enum tier *v = arena_array(a, enum tier, s->n_tier + 1);

        memcpy(v, s->tier, s->n_tier * sizeof(*v));
        for (int t = TIER_HUB; t <= TIER_BURST; t++) {
            if (strcmp(tier_text((enum tier)t), c->s) == 0)
                v[s->n_tier] = (enum tier)t;
        }
        s->n_tier++;
        s->tier = v;
    } else if (c->kind == H_LABELS) {
        s->n_matchLabels = 0;
    } else {
        const char ***list =
            c->kind == H_REGION ? (const char ***)&s->region : (const char ***)&s->names;
        uint32_t *n = c->kind == H_REGION ? &s->n_region : &s->n_names;
        const char **v = arena_array(a, const char *, *n + 1);

        memcpy(v, *list, *n * sizeof(*v));
        v[(*n)++] = c->s;
        *list = v;
    }
}

static struct resources *resources_of(struct workload_spec *s)
{
    if (!s->resources)
        fail_msg("a hint about what a worker needs, which is nothing");
    return s->resources;
}

static struct gpu_request *gpu_of(struct workload_spec *s)
{
    struct gpu_request *g = resources_of(s)->gpu;

    if (!g)
        fail_msg("a hint about the GPUs of a workload that asks for none");
    return g;
}

static void change_spec(const struct change *c, struct workload_spec *s, struct arena *a)
{
    switch (c->kind) {
    case H_CLASS: {
        struct gpu_request *g = gpu_of(s);
        const char **v = arena_array(a, const char *, g->n_classes + 1);

        memcpy(v, g->classes, g->n_classes * sizeof(*v));
        v[g->n_classes++] = c->s;
        g->classes = v;
        return;
    }
    case H_INTERCONNECT:
        gpu_of(s)->interconnect = "";
        return;
    case H_RESHARD:
        s->checkpoint->reshard = true;
        return;
    case H_ISOLATION:
        gpu_of(s)->isolation = ISOLATION_SOFT;
        return;
    case H_MIN_MEMORY:
        gpu_of(s)->minMemory = c->n;
        return;
    case H_MIN_SPEED:
        gpu_of(s)->minSpeed = c->x;
        return;
    case H_WITHIN:
        s->topology->within = (enum domain_level)c->n;
        return;
    case H_PRICE:
        s->maxGpuHourPrice = c->x;
        return;
    case H_COST:
        s->maxCost = c->x;
        return;
    case H_DEADLINE:
        s->deadline = c->n;
        return;
    case H_WORKERS:
        s->gang->workers = c->n;
        return;
    case H_MIN_WORKERS:
        s->gang->minWorkers = c->n;
        return;
    case H_GPUS:
        gpu_of(s)->count = c->n;
        return;
    case H_FRACTION:
        gpu_of(s)->fraction = c->x;
        return;
    case H_MIG:
        gpu_of(s)->mig = c->s;
        return;
    case H_CPU:
        resources_of(s)->cpu = c->n;
        return;
    case H_MEMORY:
        resources_of(s)->memory = c->n;
        return;
    case H_PRIORITY:
        s->priorityClassName = c->s;
        return;
    case H_TARGETS:
        s->targets = NULL;
        return;
    default:
        change_targets(c, s->targets, a);
    }
}

static const struct object *made_of(const struct world *w, enum kind_id kind, const char *name)
{
    for (size_t i = w->n_made; i-- > 0;) {
        if (w->made[i]->kind->id == kind && strcmp(w->made[i]->meta->name, name) == 0)
            return w->made[i];
    }
    fail_msg("no %s", name);
    return NULL;
}

/* Of the policy or queue as it is in `was`, or NULL: as the world has it. */
static struct object *changed_limit(const struct world *w, const struct object *was,
                                    const struct change *c, struct arena *a)
{
    if (c->kind == H_MAX_GPUS || c->kind == H_WINDOW) {
        const struct object *o = was ? was : made_of(w, KIND_PLACEMENT_POLICY, c->s);
        struct placement_policy *p = object_edit_as(o, placement_policy, a);
        char hours[16];

        p->spec->maxGPUs += c->kind == H_MAX_GPUS ? c->n : 0;
        for (uint32_t i = 0; i < p->spec->n_windows; i++) {
            (void)snprintf(hours, sizeof(hours), "%s-%s", p->spec->windows[i].from,
                           p->spec->windows[i].to);
            if (c->kind == H_WINDOW && strcmp(hours, c->class_) == 0)
                p->spec->windows[i].maxGPUs += c->n;
        }
        return object_make(o->kind, p);
    }
    const struct object *o = was ? was : made_of(w, KIND_QUEUE, c->s);
    struct queue *q = object_edit_as(o, queue, a);
    struct queue_gpus *g = NULL;

    q->spec->lend |= c->kind == H_LEND;
    for (uint32_t i = 0; i < q->spec->n_gpus; i++) {
        if (c->class_[0] == '?' || strcmp(q->spec->gpus[i].class_, c->class_) == 0)
            g = &q->spec->gpus[i];
    }
    if (c->kind == H_LEND)
        return object_make(o->kind, q);
    if (!g) {
        fail_msg("queue %s has no line for class %s", c->s, c->class_);
        return NULL;
    }
    if (c->kind == H_BURST)
        g->burst += c->n;
    else if (c->kind == H_BORROW)
        g->borrowLimit += c->n;
    else if (c->kind == H_GUARANTEED)
        g->guaranteed += c->n;
    else if (c->kind == H_LEND_LIMIT)
        g->lendLimit += c->n;
    return object_make(o->kind, q);
}

static bool is_limit(const struct change *c)
{
    return c->kind >= H_BURST && c->kind <= H_WINDOW;
}

/* Does it start, once the changes are done to a copy of the world? */
static bool admits_with(const struct world *w, const struct object *o, int64_t now,
                        const struct change *c, int n)
{
    AUTO_ARENA a = arena_create(0);
    struct place_request rq = {.workload = o, .now_ms = now};
    struct object *changed[2] = {NULL};
    struct pool *p = w->p;
    struct decision_spec *d;
    struct placement *pl = NULL;
    struct preempt_plan *plan = NULL;
    struct err err;
    bool r, priority = false;

    assert_true(n <= 2);
    for (int i = 0; i < n; i++) {
        bool same = i && is_limit(&c[0]) && is_limit(&c[1]) && strcmp(c[0].s, c[1].s) == 0;

        if (c[i].kind == H_WAIT) {
            rq.now_ms = c[i].n;
        } else if (is_limit(&c[i])) {
            p = p == w->p ? pool_fork(p) : p;
            changed[i] = changed_limit(w, same ? changed[0] : NULL, &c[i], a);
            pool_put(p, changed[i]);
        } else {
            struct workload *b = object_edit_as(rq.workload, workload, a);

            change_spec(&c[i], b->spec, a);
            rq.workload = changed[i] = object_make(o->kind, b);
        }
        priority |= c[i].kind == H_PRIORITY;
    }
    assert_int_equal(policy_place(p, &rq, a, &d, &pl, &err), 0);
    if (priority)
        assert_int_equal(policy_preempt(p, &rq, a, &plan, &err), 0);
    r = priority ? plan && (int64_t)plan->n == c->n : pl != NULL;
    if (p != w->p)
        (void)pool_destroy(p);
    for (int i = 0; i < n; i++)
        (void)object_unref(changed[i]);
    return r;
}

bool hints_admit(const struct world *w, const struct object *o, int64_t now, const struct change *c)
{
    return admits_with(w, o, now, c, 1);
}

/* A change one step smaller; false: there is none. */
static bool one_less(const struct object *o, struct change *c)
{
    const struct workload_spec *s = object_as(o, workload)->spec;
    const struct gpu_request *g = s->resources->gpu;

    switch (c->kind) {
    case H_BURST:
    case H_BORROW:
    case H_GUARANTEED:
    case H_LEND_LIMIT:
    case H_MAX_GPUS:
    case H_WINDOW:
        return --c->n > 0;
    case H_PRICE:
    case H_COST:
        c->x -= 0.01;
        return c->x > 0;
    case H_DEADLINE:
    case H_WAIT:
        c->n -= MINUTE;
        return true;
    case H_WORKERS:
        return ++c->n < s->gang->workers;
    case H_MIN_WORKERS:
        return ++c->n < s->gang->minWorkers;
    case H_GPUS:
        return ++c->n < g->count;
    case H_FRACTION:
        c->x += 0.01;
        return c->x < g->fraction;
    case H_CPU:
        c->n += s->resources->cpu >= 2000 ? 1000 : 100;
        return c->n < s->resources->cpu;
    case H_MEMORY:
        c->n += s->resources->memory >= 2ll << 30 ? 1ll << 30 : 1ll << 20;
        return c->n < s->resources->memory;
    case H_WITHIN:
        return --c->n > (int64_t)s->topology->within;
    default:
        return false;
    }
}

struct told hints_at(struct world *w, const struct object *o, int64_t now)
{
    struct place_request rq = {.workload = o, .now_ms = now};
    const struct decision_spec *before;
    struct told t;
    struct err err = {0};
    AUTO_BUF b;

    world_decide_at(w, o, now);
    assert_int_equal(policy_hints(w->p, &rq, w->d, 16, w->a, &t.v, &t.n, &err), 0);
    if (w->pl)
        assert_int_equal(t.n, 0);
    before = w->d;
    world_decide_at(w, o, now); /* the tries left nothing behind */
    assert_true(body_equal(&schema_decision_spec, before, w->d));
    policy_decision_hint(w->d, t.v, t.n);
    buf_init(&b, 1 << 20);
    tlv_add(&schema_decision_spec, w->d, &b);
    assert_true(b.n <= LIMIT_DECISION_MAX_BYTES);
    assert_int_equal(w->d->n_hints, t.n);
    return t;
}

static struct change read_change(const char *text)
{
    struct change c;

    if (!read_place(text, &c) && !read_limit(text, &c) && !read_less(text, &c))
        fail_msg("what does this say: %s", text);
    return c;
}

static const char two_changes[] = "two changes: ";

bool hints_is_pair(const char *text)
{
    return strncmp(text, two_changes, sizeof(two_changes) - 1) == 0;
}

/* Both together admit it, neither does alone, and no number can be smaller. */
static void pair_true(const struct world *w, const struct object *o, int64_t now, const char *text)
{
    const char *begin = text + sizeof(two_changes) - 1, *and = strstr(begin, ", and ");
    struct change c[2], less[2];
    char first[256];

    if (!and)
        fail_msg("what does this say: %s", text);
    (void)snprintf(first, sizeof(first), "%.*s (", (int)(and-begin), begin);
    c[0] = read_change(first);
    c[1] = read_change(and+6);
    if (!admits_with(w, o, now, c, 2))
        fail_msg("not true: %s (%s: %s)", text, w->d->reason, w->d->message);
    for (int i = 0; i < 2; i++) {
        if (hints_admit(w, o, now, &c[i]))
            fail_msg("%s change is enough: %s", i ? "the second" : "the first", text);
        memcpy(less, c, sizeof(less));
        if (one_less(o, &less[i]) && admits_with(w, o, now, less, 2))
            fail_msg("more than is needed: %s", text);
    }
}

void hints_all_true(struct world *w, const struct object *o, int64_t now, struct told t,
                    long count[H_NR])
{
    for (uint32_t i = 0; i < t.n; i++) {
        struct change c;

        if (hints_is_pair(t.v[i]) != hints_is_pair(t.v[0]))
            fail_msg("two changes where one does: %s, %s", t.v[0], t.v[i]);
        if (hints_is_pair(t.v[i])) {
            pair_true(w, o, now, t.v[i]);
            continue;
        }
        c = read_change(t.v[i]);
        if (!hints_admit(w, o, now, &c))
            fail_msg("not true: %s (%s: %s)", t.v[i], w->d->reason, w->d->message);
        if (one_less(o, &c) && hints_admit(w, o, now, &c))
            fail_msg("more than is needed: %s", t.v[i]);
        count[c.kind]++;
    }
}

void hints_run(struct world *w, const struct object *o)
{
    struct workload *b = object_edit_as(o, workload, w->a);
    struct object *running;

    b->status = arena_new(w->a, struct workload_status);
    b->status->phase = PHASE_RUNNING;
    b->status->epoch = 1;
    b->status->phaseSince = w->pl->since = NOW - 60 * MINUTE;
    b->status->placement = w->pl;
    running = object_make(o->kind, b);
    pool_hold(w->p, running);
    (void)object_unref(running);
}
