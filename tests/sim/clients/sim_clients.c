/* One operation after the other for each client, over few objects so that they meet. Must record
 * what a client can know and nothing else: an answer that came after it had given up is no
 * answer. */
#include "tests/sim/clients/sim_clients.h"

#include "controlplane/server/backend.h"

#include <stdio.h>
#include <string.h>

#define PATIENCE_MS 1500
#define ATTEMPTS 4

struct client {
    struct sim_clients *x;
    unsigned id;
    uint64_t number; /* of its operation */
    bool busy, list, fresh_list;
    unsigned attempts, key;
    char request[64];
    struct history_op op;
    uint64_t known[CLIENT_KEYS]; /* resourceVersion as it was last told; 0: none */
};
struct sim_clients {
    struct fed *f;
    struct history *h;
    uint64_t moment, value;
    uint32_t keys[CLIENT_KEYS];
    struct client c[CLIENTS];
    struct sim_watcher w[WATCHERS];
    struct control *controls[SIM_MEMBERS];
    struct sim_member *of[SIM_MEMBERS];
    bool stopped, last, last_done;
};
struct attempt {
    struct client *c;
    uint64_t number;
    unsigned attempt;
    struct backend *b;
    char request[64]; /* of a write: what it was sent as, whatever the client does since */
    struct history_op op;
};

uint64_t sim_clients_moment(struct sim_clients *x)
{
    return ++x->moment;
}
struct history *sim_clients_history(struct sim_clients *x)
{
    return x->h;
}
bool sim_clients_stopped(const struct sim_clients *x)
{
    return x->stopped;
}
uint32_t sim_clients_key(struct sim_clients *x, const char *name)
{
    return history_key(x->h, name);
}
struct sim_member *sim_clients_member(struct sim_clients *x)
{
    unsigned first = (unsigned)fed_below(x->f, SIM_MEMBERS);

    for (unsigned i = 0; i < SIM_MEMBERS; i++) {
        struct sim_member *m = x->f->members[(first + i) % SIM_MEMBERS];
        if (m && m->core && !m->closing && !m->error.code)
            return m;
    }
    return NULL;
}
struct backend *sim_clients_backend(struct sim_clients *x, struct sim_member *m)
{
    unsigned i = (unsigned)m->id - 1;

    if (x->of[i] != m) { /* what a crash leaves is not freed */
        x->of[i] = m;
        x->controls[i] = mem_new(struct control);
        *x->controls[i] = (struct control){.loop = m->loop, .core = m->core, .brain = m->brain};
        backend_init(x->controls[i]);
    }
    return &x->controls[i]->backend;
}

/* ---- answers ---- */
static void next_op(void *arg);
static void again(struct client *c);

static struct client *still(struct attempt *a)
{
    return a->c->busy && a->c->number == a->number ? a->c : NULL;
}
static void op_over(struct client *c)
{
    uint64_t now = sim_now_ms(c->x->f->w);

    c->busy = false;
    if (!c->x->stopped)
        sim_at(c->x->f->w, now + 5 + fed_below(c->x->f, fed_below(c->x->f, 8) ? 120 : 900), next_op,
               c);
}
static void op_answered(struct client *c, enum history_outcome out)
{
    c->op.outcome = out;
    c->op.returned = sim_clients_moment(c->x);
    if (c->op.kind != HISTORY_GET || out != HISTORY_UNKNOWN)
        history_add(c->x->h, &c->op);
    if (c->key < CLIENT_KEYS)
        c->known[c->key] = out == HISTORY_OK && c->op.kind != HISTORY_DELETE ? c->op.rv : 0;
    op_over(c);
}
static enum history_outcome outcome_of(const struct err *err)
{
    if (!err)
        return HISTORY_OK;
    return err->code == E_EXISTS     ? HISTORY_EXISTS
           : err->code == E_NOTFOUND ? HISTORY_ABSENT
           : err->code == E_CONFLICT ? HISTORY_CONFLICT
                                     : HISTORY_UNKNOWN;
}
static void written(void *arg, const struct api_result *r, const struct err *err)
{
    struct attempt *a = arg;
    struct client *c = still(a);
    enum history_outcome out = outcome_of(err);

    history_add_answer(a->c->x->h, &(struct history_answer){.client = a->c->id,
                                                            .request = a->number,
                                                            .outcome = out,
                                                            .rv = err ? 0 : r->rv});
    mem_free(a);
    if (!c)
        return;
    if (out == HISTORY_UNKNOWN) {
        again(c);
        return;
    }
    c->op.rv = out == HISTORY_OK ? r->rv : 0;
    op_answered(c, out);
}
static void read_one(struct client *c, struct backend *b, struct view *v)
{
    const struct object *o =
        b->ops->get(v, kind_by_id(KIND_DATASET), "dev", history_key_name(c->x->h, c->op.key));

    c->op.value = o ? (uint64_t)object_as(o, dataset)->spec->bytes : 0;
    c->op.rv = o ? (uint64_t)o->meta->resourceVersion : 0;
    op_answered(c, o ? HISTORY_OK : HISTORY_ABSENT);
}
struct listing {
    struct sim_clients *x;
    struct history_list l;
    struct history_item items[CLIENT_KEYS + 1];
};
static bool list_each(const struct object *o, void *arg)
{
    struct listing *s = arg;

    INV(s->l.n < CLIENT_KEYS + 1);
    s->items[s->l.n++] = (struct history_item){sim_clients_key(s->x, o->meta->name),
                                               (uint64_t)object_as(o, dataset)->spec->bytes,
                                               (uint64_t)o->meta->resourceVersion};
    return true;
}
static void read_all(struct client *c, struct backend *b, struct view *v)
{
    struct listing s = {.x = c->x,
                        .l = {.called = c->op.called,
                              .returned = sim_clients_moment(c->x),
                              .client = c->id,
                              .stale = !c->fresh_list,
                              .rv = b->ops->view_rv(v)}};

    b->ops->scan(v, kind_by_id(KIND_DATASET), "dev", NULL, NULL, list_each, &s);
    s.l.items = s.items;
    if (s.l.rv)
        history_add_list(c->x->h, &s.l);
    op_over(c);
}
static void look(struct client *c, struct backend *b)
{
    struct view *v = b->ops->view(b);

    if (c->list)
        read_all(c, b, v);
    else
        read_one(c, b, v);
    b->ops->view_release(v);
}
static void is_fresh(void *arg, const struct err *err)
{
    struct attempt *a = arg;
    struct client *c = still(a);
    struct backend *b = a->b;

    mem_free(a);
    if (c && err)
        again(c);
    else if (c)
        look(c, b);
}

/* ---- asking ---- */
/* As the API: a request that a socket held is taken when the process runs (again), a fresh state is
 * looked at, and what it speaks against is refused; else the write is sent. */
static void send_write(struct attempt *a, const struct err *refusal)
{
    AUTO_ARENA arena = arena_create(0);
    struct dataset *d = arena_new(arena, struct dataset);
    const char *name = history_key_name(a->c->x->h, a->op.key);
    struct api_write_op op = {.verb = a->op.kind == HISTORY_CREATE   ? API_CREATE
                                      : a->op.kind == HISTORY_UPDATE ? API_UPDATE
                                                                     : API_DELETE,
                              .kind = kind_by_id(KIND_DATASET),
                              .ns = "dev",
                              .name = name,
                              .rv = a->op.expect};
    struct api_write w = {.key = a->request,
                          .user = "alice",
                          .ops = &op,
                          .n = refusal ? 0 : 1,
                          .refusal = refusal,
                          .deadline_ms = 4000};
    struct object *o = NULL;

    if (a->op.kind != HISTORY_DELETE && !refusal) {
        d->metadata = fed_meta(arena, "dev", name, "");
        d->spec = arena_new(arena, struct dataset_spec);
        d->spec->bytes = (int64_t)a->op.value;
        op.object = o = object_make(kind_by_id(KIND_DATASET), d);
    }
    a->b->ops->write(a->b, &w, written, a);
    (void)object_unref(o);
}
static int spoken_against(struct attempt *a, struct err *err)
{
    struct view *v = a->b->ops->view(a->b);
    const char *name = history_key_name(a->c->x->h, a->op.key);
    const struct object *o = a->b->ops->get(v, kind_by_id(KIND_DATASET), "dev", name);
    int r = 0;

    if (!o && a->op.kind != HISTORY_CREATE)
        r = err_set(err, E_NOTFOUND, "%s not found", name);
    else if (o && a->op.kind == HISTORY_CREATE)
        r = err_set(err, E_EXISTS, "%s already exists", name);
    else if (o && a->op.expect && a->op.expect != (uint64_t)o->meta->resourceVersion)
        r = err_set(err, E_CONFLICT, "%s has changed", name);
    a->b->ops->view_release(v);
    return r;
}
static void write_looked(void *arg, const struct err *err)
{
    struct attempt *a = arg;
    struct err no = {0};

    if (err)
        written(a, NULL, err);
    else
        send_write(a, spoken_against(a, &no) ? &no : NULL);
}
static void write_taken(void *arg)
{
    struct attempt *a = arg;

    a->b->ops->fresh(a->b, 0, 4000, write_looked, a);
}
static void out_of_patience(void *arg)
{
    struct attempt *a = arg;
    struct client *c = still(a);

    if (c && c->attempts == a->attempt)
        again(c);
    mem_free(a);
}
static struct attempt *attempt_make(struct client *c, struct backend *b)
{
    struct attempt *a = mem_new(struct attempt);

    *a = (struct attempt){.c = c, .number = c->number, .attempt = c->attempts, .b = b, .op = c->op};
    str_copy(a->request, sizeof a->request, c->request);
    return a;
}
static void ask(struct client *c)
{
    struct sim_clients *x = c->x;
    struct sim_member *m = sim_clients_member(x);

    c->attempts++;
    sim_at(x->f->w, sim_now_ms(x->f->w) + PATIENCE_MS, out_of_patience, attempt_make(c, NULL));
    if (!m)
        return;
    struct backend *b = sim_clients_backend(x, m);
    if (c->list && !c->fresh_list && !x->f->paused[m->id - 1])
        look(c, b);
    else if (c->list || c->op.kind == HISTORY_GET)
        b->ops->fresh(b, 0, 4000, is_fresh, attempt_make(c, b));
    else
        loop_post(m->loop, write_taken, attempt_make(c, b));
}
static void ask_again(void *arg)
{
    struct attempt *a = arg;
    struct client *c = still(a);

    if (c && c->attempts == a->attempt)
        ask(c);
    mem_free(a);
}
/* A write: the same request id, at any member. A read that was not answered is nothing. */
static void again(struct client *c)
{
    struct sim_clients *x = c->x;
    bool reads = c->list || c->op.kind == HISTORY_GET;

    if (reads && c->list)
        op_over(c);
    else if (reads || c->attempts >= ATTEMPTS || fed_below(x->f, 6) == 0)
        op_answered(c, HISTORY_UNKNOWN);
    else
        sim_at(x->f->w, sim_now_ms(x->f->w) + 20 + fed_below(x->f, 300), ask_again,
               attempt_make(c, NULL));
}
static void next_op(void *arg)
{
    struct client *c = arg;
    struct sim_clients *x = c->x;
    uint64_t dice = fed_below(x->f, 100);

    if (x->stopped)
        return;
    c->busy = true;
    c->number++;
    c->attempts = 0;
    c->list = dice >= 88;
    c->fresh_list = dice < 96;
    c->key = (unsigned)fed_below(x->f, CLIENT_KEYS);
    c->op = (struct history_op){.key = x->keys[c->key], .client = c->id};
    c->op.kind = dice < 15   ? HISTORY_CREATE
                 : dice < 45 ? HISTORY_GET
                 : dice < 78 ? HISTORY_UPDATE
                             : HISTORY_DELETE;
    if (c->op.kind == HISTORY_CREATE || c->op.kind == HISTORY_UPDATE)
        c->op.value = ++x->value;
    if (c->op.kind >= HISTORY_UPDATE && c->known[c->key] && fed_below(x->f, 3))
        c->op.expect = c->known[c->key];
    (void)snprintf(c->request, sizeof c->request, "c%u-%llu", c->id, (unsigned long long)c->number);
    c->op.called = sim_clients_moment(x);
    ask(c);
}

/* ---- all of them ---- */
struct sim_clients *sim_clients_start(struct fed *f)
{
    struct sim_clients *x = mem_new(struct sim_clients);

    x->f = f;
    x->h = history_create();
    for (unsigned i = 0; i < CLIENT_KEYS; i++)
        x->keys[i] = history_key(x->h, (const char *[]){"one", "two", "three", "four"}[i]);
    for (unsigned i = 0; i < CLIENTS; i++) {
        x->c[i].x = x;
        x->c[i].id = i;
        sim_at(f->w, CLIENTS_FROM_MS + fed_below(x->f, 1000), next_op, &x->c[i]);
    }
    for (unsigned i = 0; i < WATCHERS; i++) {
        x->w[i] = (struct sim_watcher){.x = x, .f = f, .id = i};
        sim_watcher_start(&x->w[i]);
    }
    return x;
}
void sim_clients_stop(struct sim_clients *x)
{
    x->stopped = true;
}
/* Until it is acknowledged, by whatever member. */
static void last_again(void *arg)
{
    struct sim_clients *x = arg;
    struct client *c = &x->c[0];

    if (x->last_done)
        return;
    if (c->number && !c->busy && x->last) { /* the one before has ended */
        x->last_done = c->key == CLIENT_KEYS && c->op.outcome == HISTORY_OK;
        if (!x->last_done) {
            c->busy = true;
            c->number++;
            c->attempts = 0;
            c->list = false;
            c->key = CLIENT_KEYS;
            c->op = (struct history_op){.key = history_key(x->h, "last"),
                                        .kind = HISTORY_CREATE,
                                        .value = ++x->value,
                                        .called = sim_clients_moment(x)};
            (void)snprintf(c->request, sizeof c->request, "last");
            ask(c);
        }
    }
    sim_at(x->f->w, sim_now_ms(x->f->w) + 100, last_again, x);
}
void sim_clients_last(struct sim_clients *x)
{
    x->last = true;
    last_again(x);
}
bool sim_clients_done(struct sim_clients *x)
{
    bool all = x->last_done;

    for (unsigned i = 0; i < WATCHERS; i++)
        all = all && x->w[i].seen_last;
    return all;
}
