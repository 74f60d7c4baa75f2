/* See farm_world.h. */
#include "tests/support/machines/farm_world.h"

#include "tests/support/web/still_loop.h"

#define STEP_MS 20
#define BOOT_MS 3000
#define LOST_MS 4000 /* after which the caller of what was lost hears that */

struct farm_world *farm_world;

static struct farm_leader *leader_of(struct connector *c)
{
    return container_of(c, struct farm_leader, connector);
}

static uint64_t now_of(const struct farm_world *w)
{
    return loop_now_ms(w->loop);
}

static bool happens(struct farm_world *w, unsigned odds)
{
    w->chance = w->chance * 6364136223846793005u + 1442695040888963407u;
    return (w->chance >> 33) % 1000 < odds;
}

static uint64_t some_ms(struct farm_world *w, uint64_t least, uint64_t most)
{
    (void)happens(w, 0);
    return least + (w->chance >> 33) % (most - least + 1);
}

/* ---- the target ---- */
struct rented *farm_rented(struct farm_world *w, const char *key)
{
    for (size_t i = 0; i < w->n_rented; i++)
        if (!strcmp(w->rented[i].key, key))
            return &w->rented[i];
    return NULL;
}

static struct rented *rented_make(struct farm_world *w, const char *key)
{
    assert_true(w->n_rented < FARM_MACHINES);
    struct rented *m = &w->rented[w->n_rented++];
    *m = (struct rented){.made_ms = now_of(w)};
    str_copy(m->key, sizeof m->key, key);
    return m;
}

static bool alive(const struct rented *m)
{
    return m->state >= MACHINE_ASKED && m->state < MACHINE_ENDED;
}

size_t farm_alive(const struct farm_world *w)
{
    size_t n = 0;

    for (size_t i = 0; i < w->n_rented; i++)
        n += alive(&w->rented[i]);
    return n;
}

static void end(struct farm_world *w, struct rented *m)
{
    m->state = MACHINE_ENDED;
    m->ended_ms = now_of(w);
}

static bool tell(struct farm_leader *l, const struct rented *m)
{
    struct farm_world *w = farm_world; /* false: it cannot be read */
    struct machine_seen s = {.key = m->key,
                             .state = m->state,
                             .class_ = w->gives_class,
                             .gpus = w->gives_gpus,
                             .zone = m->zone,
                             .cluster = "",
                             .id = m->key,
                             .billed_from_ms = (int64_t)m->made_ms,
                             .billed_to_ms = (int64_t)m->ended_ms,
                             .until_ms = (int64_t)m->until_ms,
                             .price = w->price + w->dearer,
                             .currency = w->currency,
                             .reason = m->ended_ms ? "Over" : "",
                             .message = ""};

    if (!l->brain.leads || !m->state)
        return true;
    if (m->unread || (w->faults.unread && happens(w, w->faults.unread))) {
        brain_machine_unread(&l->brain, FARM_TARGET, m->key, "price: it is none");
        return false;
    }
    brain_machine(&l->brain, FARM_TARGET, &s);
    return true;
}
static void refuse(struct farm_request *r, enum refusal_class why, enum refusal_scope scope,
                   const char *name)
{
    r->out = OUT_REJECTED;
    r->refused = (struct refusal){.class_ = why, .scope = scope};
    str_copy(r->refused.name, sizeof r->refused.name, name);
}

/* Nothing is ordered that was not in the log before. */
static void order_check(struct farm_world *w, const struct farm_request *r)
{
    const struct object *o = root_get(w->kit.root, KIND_MACHINE, "", r->key);

    assert_true(o || farm_rented(w, r->key));
}

static void takes_order(struct farm_world *w, struct farm_request *r)
{
    struct rented *m = farm_rented(w, r->key);

    order_check(w, r);
    if (w->conflicts_at) {
        w->conflicts_at--;
        refuse(r, REFUSED_CONFLICT, BLAMES_WORKLOAD, "");
    } else if (m && (m->refused || strcmp(m->order, r->order) != 0)) {
        refuse(r, REFUSED_CONFLICT, BLAMES_WORKLOAD, "");
        assert_true(m->refused); /* one key, one order */
    } else if (!m && ((w->most && farm_alive(w) >= w->most) || happens(w, w->faults.refuse))) {
        refuse(r, REFUSED_CAPACITY, BLAMES_ZONE, r->zone);
    } else if (!m) {
        m = rented_make(w, r->key);
        str_copy(m->order, sizeof m->order, r->order);
        str_copy(m->zone, sizeof m->zone, r->zone);
        m->state = MACHINE_ASKED;
        m->until_ms = now_of(w) + r->ttl_ms;
        m->boots_ms = now_of(w) + BOOT_MS;
        m->given++;
        if (w->lives_ms == 1)
            end(w, m);
    }
}

static void takes_release(struct farm_world *w, struct farm_request *r)
{
    struct rented *m = farm_rented(w, r->key);

    if (!m) {
        m = rented_make(w, r->key);
        m->refused = true;
    } else if (alive(m)) {
        end(w, m);
    }
}

static void takes_renewal(struct farm_world *w, struct farm_request *r)
{
    for (size_t i = 0; i < r->n_keys; i++) {
        struct rented *m = farm_rented(w, r->keys[i]);
        if (m && alive(m) && m->until_ms < now_of(w) + r->ttl_ms)
            m->until_ms = now_of(w) + r->ttl_ms;
    }
}

static void arrive(struct farm_world *w, struct farm_request *r)
{
    r->arrived = true;
    r->out = OUT_DONE;
    r->answers_ms = now_of(w) + (happens(w, w->faults.reply_lost) ? LOST_MS : some_ms(w, 5, 60));
    if (r->what == ASKS_ORDER)
        takes_order(w, r);
    else if (r->what == ASKS_RELEASE)
        takes_release(w, r);
    else if (r->what == ASKS_RENEW)
        takes_renewal(w, r);
    if (r->answers_ms >= now_of(w) + LOST_MS ||
        (r->what == ASKS_LIST && happens(w, w->faults.list_cut)))
        r->out = OUT_UNKNOWN;
}

/* ---- answers ---- */
static void list_tell(struct farm_world *w, struct farm_request *r)
{
    bool cut = false;

    for (size_t i = 0; i < w->n_rented; i++) {
        struct rented *m = &w->rented[i];
        bool young = m->made_ms + w->faults.lag_ms > r->arrives_ms;
        if (!m->hidden && !(young && happens(w, 500)) && !(r->out == OUT_UNKNOWN && i % 2))
            cut |= !tell(r->leader, m);
    }
    if (cut)
        r->out = OUT_UNKNOWN;
}
static void answer(struct farm_world *w, struct farm_request *r)
{
    struct call *call = r->call;
    struct rented *m = *r->key ? farm_rented(w, r->key) : NULL;
    const struct machine_price price = {
        .class_ = "h100", .zone = "a", .price = w->price, .market = CAPACITY_SPOT};

    r->used = false;
    if (!call)
        return;
    if (r->what == ASKS_LIST)
        list_tell(w, r);
    else if (r->out == OUT_DONE && m && !m->hidden && !tell(r->leader, m))
        r->out = OUT_UNKNOWN;
    for (size_t i = 0; r->out == OUT_DONE && i < r->n_keys; i++)
        if (farm_rented(w, r->keys[i]) && !farm_rented(w, r->keys[i])->hidden &&
            !tell(r->leader, farm_rented(w, r->keys[i])))
            r->out = OUT_UNKNOWN;
    if (r->what == ASKS_PRICES && r->out == OUT_DONE && r->leader->brain.leads)
        brain_prices(&r->leader->brain, FARM_TARGET, &price, 1, w->currency);
    call->refused = r->refused;
    call->done(call, r->out, NULL, NULL);
}

/* ---- the connector ---- */
static struct farm_request *ask(struct connector *c, struct call *call)
{
    struct farm_world *w = farm_world;
    struct farm_request *r = NULL;

    for (size_t i = 0; i < FARM_REQUESTS && !r; i++)
        if (!w->requests[i].used)
            r = &w->requests[i];
    assert_non_null(r);
    *r = (struct farm_request){.used = true, .leader = leader_of(c), .call = call};
    r->arrives_ms = now_of(w) + some_ms(w, 5, happens(w, w->faults.late) ? 15000 : 50);
    return r;
}

/* Also to arrive once more, later, when nobody waits for it. */
static void sent(struct farm_world *w, struct farm_request *r)
{
    struct farm_request copy = *r;

    if (happens(w, w->faults.lost)) {
        r->arrived = true;
        r->out = OUT_UNKNOWN;
        r->answers_ms = now_of(w) + LOST_MS;
    }
    if (!happens(w, w->faults.twice))
        return;
    for (size_t i = 0; i < FARM_REQUESTS; i++)
        if (!w->requests[i].used) {
            copy.call = NULL;
            copy.arrives_ms += some_ms(w, 100, 20000);
            w->requests[i] = copy;
            return;
        }
}

static void rent(struct connector *c, const struct machine_order *o, struct call *call)
{
    struct farm_request *r = ask(c, call);

    r->what = ASKS_ORDER;
    r->ttl_ms = o->ttl_ms;
    str_copy(r->key, sizeof r->key, o->key);
    str_copy(r->zone, sizeof r->zone, o->zone);
    (void)snprintf(r->order, sizeof r->order, "%s %lld %s %d %llu %s %f %s %u %s %s", o->class_,
                   (long long)o->gpus, o->zone, (int)o->market, (unsigned long long)o->ttl_ms,
                   o->image, o->max_price, o->currency, o->n_tags, o->cluster, o->pool);
    farm_world->orders++;
    sent(farm_world, r);
}

static void let(struct connector *c, const struct machine_order *o, struct call *call)
{
    const struct object *m = root_get(farm_world->kit.root, KIND_MACHINE, "", o->key);
    struct farm_request *r = ask(c, call);

    assert_true(m && *object_as(m, machine)->status->release); /* its intent is in the log */
    r->what = ASKS_RELEASE;
    str_copy(r->key, sizeof r->key, o->key);
    farm_world->releases++;
    sent(farm_world, r);
}

static void prolong(struct connector *c, const char *const *keys, size_t n, uint64_t ttl_ms,
                    struct call *call)
{
    struct farm_request *r = ask(c, call);

    r->what = ASKS_RENEW;
    r->ttl_ms = ttl_ms;
    for (r->n_keys = 0; r->n_keys < n && r->n_keys < 8; r->n_keys++) {
        const struct object *m = root_get(farm_world->kit.root, KIND_MACHINE, "", keys[r->n_keys]);
        assert_true(m && !machine_closing(m));
        str_copy(r->keys[r->n_keys], MACHINE_NAME_MAX, keys[r->n_keys]);
    }
    assert_true(n <= 8); /* the worlds are small */
    farm_world->renewals++;
    sent(farm_world, r);
}

static void enumerate(struct connector *c, struct call *call)
{
    struct farm_request *r = ask(c, call);

    r->what = ASKS_LIST;
    farm_world->lists++;
    sent(farm_world, r);
}

static void price(struct connector *c, struct call *call)
{
    struct farm_request *r = ask(c, call);

    r->what = ASKS_PRICES;
    farm_world->prices++;
    sent(farm_world, r);
}

static struct machine_ops machine_ops = {
    .order = rent, .list = enumerate, .renew = prolong, .release = let, .prices = price};
static const struct connector_ops ops = {.machines = &machine_ops};

/* ---- the way into the log ---- */
void farm_propose(struct brain *b, const union command *c, propose_cb cb, void *arg)
{
    struct farm_world *w = farm_world;
    size_t i = 0;

    while (i < FARM_REQUESTS && w->answers[i].used)
        i++;
    assert_true(i < FARM_REQUESTS);
    w->answers[i].used = true;
    w->answers[i].leader = container_of(b, struct farm_leader, brain);
    w->answers[i].cb = cb;
    w->answers[i].arg = arg;
    w->answers[i].at_ms = now_of(w) + some_ms(w, 2, 40);
    w->answers[i].applied = false;
    brain_under_way(b, 1);
    if (!b->leads || happens(w, w->faults.propose_lost))
        return;
    w->answers[i].result = kit_apply(&w->kit, c);
    w->answers[i].applied = !happens(w, w->faults.propose_unheard);
}

static void follow(struct brain *b)
{
    struct farm_world *w = farm_world;

    if (!b->leads)
        return;
    (void)root_unref(b->root);
    b->root = root_ref(w->kit.root);
    machines_look_soon(b);
}

/* ---- time ---- */
static void machines_age(struct farm_world *w)
{
    for (size_t i = 0; i < w->n_rented; i++) {
        struct rented *m = &w->rented[i];
        if (!alive(m))
            continue;
        if (now_of(w) >= m->until_ms || (w->lives_ms && now_of(w) >= m->made_ms + w->lives_ms))
            end(w, m);
        else if (m->state < MACHINE_JOINED)
            m->state = now_of(w) >= m->boots_ms ? MACHINE_JOINED : MACHINE_BOOTING;
    }
}

static void step(void *arg)
{
    struct farm_world *w = arg;
    struct err lost = {.code = E_UNKNOWN};

    w->kit.now = 1800000000000 + (int64_t)now_of(w);
    timer_start(&w->step, STEP_MS);
    machines_age(w);
    if (farm_leads(w)->brain.root != w->kit.root)
        follow(&farm_leads(w)->brain);
    for (size_t i = 0; i < FARM_REQUESTS; i++) {
        struct farm_request *r = &w->requests[i];
        if (r->used && !r->arrived && now_of(w) >= r->arrives_ms)
            arrive(w, r);
        if (r->used && r->arrived && now_of(w) >= r->answers_ms)
            answer(w, r);
    }
    for (size_t i = 0; i < FARM_REQUESTS; i++) {
        if (!w->answers[i].used || now_of(w) < w->answers[i].at_ms)
            continue;
        struct brain *b = &w->answers[i].leader->brain;
        w->answers[i].used = false;
        brain_under_way(b, -1);
        follow(b);
        w->answers[i].cb(w->answers[i].arg, w->answers[i].applied ? &w->answers[i].result : NULL,
                         w->answers[i].applied ? NULL : &lost);
    }
    farm_check(w);
}

void farm_report(const struct object *about, const char *reason)
{
    assert_non_null(about);
    farm_world->ended_early += !strcmp(reason, "MachinesEndEarly");
    farm_world->unreadable += !strcmp(reason, "MachineUnreadable");
    farm_world->reports++;
    str_copy(farm_world->reported, sizeof farm_world->reported, reason);
}

/* ---- leaders ---- */
struct farm_leader *farm_leads(struct farm_world *w)
{
    return w->leaders[w->n_leaders - 1];
}

static const struct part parts[] = {{.name = "machines",
                                     .machine = machines_machine,
                                     .machine_unread = machines_unread,
                                     .prices = machines_prices},
                                    {.name = NULL}};

static void retire(struct farm_world *w, struct farm_leader *l)
{
    l->brain.leads = false;
    machines_drop(&l->brain);
    for (size_t i = 0; i < FARM_REQUESTS; i++) {
        struct farm_request *r = &w->requests[i];
        struct call *call = r->used && r->leader == l ? r->call : NULL;
        if (r->used && r->leader == l)
            r->call = NULL; /* it is on its way, and arrives */
        if (call)
            call->done(call, OUT_UNKNOWN, NULL, NULL);
    }
}

void farm_lead(struct farm_world *w)
{
    struct farm_leader *l = mem_new(struct farm_leader);

    if (w->n_leaders)
        retire(w, farm_leads(w));
    assert_true(w->n_leaders < FARM_LEADERS);
    w->leaders[w->n_leaders++] = l;
    l->connector.ops = &ops;
    l->brain = (struct brain){.parts = parts,
                              .follow = follow,
                              .loop = w->loop,
                              .leads = true,
                              .term = w->n_leaders,
                              .root = root_ref(w->kit.root),
                              .machines = &l->machines};
    l->site.brain = &l->brain;
    l->site.connector = &l->connector;
    l->site.reachable = true;
    str_copy(l->site.name, sizeof l->site.name, FARM_TARGET);
    machines_init(&l->brain);
    machines_reset(&l->brain);
}

/* ---- the world ---- */
void farm_world_init(struct farm_world *w, uint64_t seed)
{
    struct target *t;

    *w = (struct farm_world){
        .chance = seed, .price = 2, .currency = "EUR", .gives_class = "h100"};
    farm_world = w;
    kit_begin(&w->kit);
    kit_level_set(&w->kit, FEATURE_LEVEL);
    t = arena_new(w->kit.a, struct target);
    t->spec = arena_new(w->kit.a, struct target_spec);
    t->spec->type = TARGET_CALLOUT;
    t->spec->tier = TIER_BURST;
    assert_int_equal(kit_create(&w->kit, KIND_TARGET, "", FARM_TARGET, t).code, 0);
    w->loop = still_loop_create(seed | 1);
    timer_init(&w->step, w->loop, step, w);
    timer_start(&w->step, 0);
    farm_lead(w);
}

void farm_world_fini(struct farm_world *w)
{
    retire(w, farm_leads(w));
    farm_world_run(w, 60000);
    timer_stop(&w->step);
    for (size_t i = 0; i < w->n_leaders; i++) {
        assert_int_equal(w->leaders[i]->brain.under_way, 0);
        (void)root_unref(w->leaders[i]->brain.root);
        mem_free(w->leaders[i]);
    }
    w->loop = still_loop_destroy(w->loop);
    kit_end(&w->kit);
}

void farm_world_run(struct farm_world *w, uint64_t ms)
{
    machine_ops.lag_ms = w->faults.lag_ms;
    still_loop_run(w->loop, ms);
}

/* ---- what the test sets and asks ---- */
static const struct object *target(struct farm_world *w)
{
    return root_get(w->kit.root, KIND_TARGET, "", FARM_TARGET);
}

void farm_pools_set(struct farm_world *w, const struct machine_pool *pools, uint32_t n)
{
    const struct object *before = object_ref(target(w));
    struct target *t = object_edit_as(before, target, w->kit.a);
    struct change c = {.kind = KIND_TARGET, .before = before};

    t->spec->machines = arena_memdup(w->kit.a, pools, n * sizeof *pools);
    t->spec->n_machines = n;
    assert_int_equal(kit_update(&w->kit, KIND_TARGET, "", FARM_TARGET, t, 0, false).code, 0);
    c.after = target(w);
    follow(&farm_leads(w)->brain);
    machines_change(&farm_leads(w)->brain, &c);
    (void)object_unref((struct object *)(uintptr_t)before);
}

struct machine_pool *farm_pool(struct farm_world *w, const char *name, int64_t count)
{
    struct machine_pool *p = arena_new(w->kit.a, struct machine_pool);

    *p = (struct machine_pool){.name = name,
                               .count = count,
                               .class_ = "h100",
                               .zone = "a",
                               .market = CAPACITY_SPOT,
                               .timeToLive = 60000,
                               .image = "",
                               .currency = ""};
    return p;
}

struct found {
    int phase;
    size_t n;
    const struct object *first;
};

static bool found_each(const struct object *o, void *arg)
{
    struct found *f = arg;
    int phase = (int)object_as(o, machine)->status->phase;

    if (f->phase < 0 ? phase != MACHINE_IS_ENDED : phase == f->phase) {
        f->first = f->first ? f->first : o;
        f->n++;
    }
    return true;
}

size_t farm_in_phase(struct farm_world *w, int phase)
{
    struct found f = {.phase = phase};

    root_scan(w->kit.root, KIND_MACHINE, NULL, NULL, NULL, found_each, &f);
    return f.n;
}

const struct object *farm_first(struct farm_world *w)
{
    struct found f = {.phase = -1};

    root_scan(w->kit.root, KIND_MACHINE, NULL, NULL, NULL, found_each, &f);
    return f.first;
}

void farm_node(struct farm_world *w, const char *node, const char *key)
{
    union command c = {.facts = {.head = {.type = CMD_FACTS}, .n = 1}};
    struct node *n = arena_new(w->kit.a, struct node);

    str_copy(c.facts.target, sizeof c.facts.target, FARM_TARGET);
    n->metadata = arena_new(w->kit.a, struct meta);
    n->metadata->name = node;
    n->spec = arena_new(w->kit.a, struct node_spec);
    n->spec->target = FARM_TARGET;
    n->spec->machine = key;
    n->spec->cpu = 64000;
    n->spec->memory = (int64_t)1 << 40;
    n->spec->gpus = arena_array(w->kit.a, struct gpu, 1);
    n->spec->gpus[0].class_ = "h100";
    n->spec->n_gpus = 1;
    c.facts.nodes = n;
    assert_int_equal(kit_apply(&w->kit, &c).code, 0);
}

/* ---- what must hold at every moment ---- */
static bool ended_each(const struct object *o, void *arg)
{
    struct farm_world *w = arg;
    const struct rented *m = farm_rented(w, o->meta->name);

    assert_true(machine_open(o) || !m || !alive(m) || w->left);
    return true;
}

void farm_check(struct farm_world *w)
{
    root_scan(w->kit.root, KIND_MACHINE, NULL, NULL, NULL, ended_each, w);
    for (size_t i = 0; i < w->n_rented; i++)
        assert_true(w->rented[i].given <= 1);
}
