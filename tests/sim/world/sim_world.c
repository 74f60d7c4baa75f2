/* The world: clock, event heap, randomness, hosts and their faults. Must never let an order depend
 * on addresses or on the real clock: events are ordered by (time, order of scheduling) and nothing
 * else. */
#include "tests/sim/world/sim_internal.h"

#include "api/base/hash.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WALL_BEGIN_MS 1790000000000 /* 2026-09-21 */

#define EVENTS_AT_ONCE_MAX 5000000 /* without a step of the clock: something runs in circles */

/* ---- randomness: xoshiro256**, seeded by splitmix64 ---- */

static uint64_t splitmix(uint64_t *x)
{
    uint64_t z = (*x += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static uint64_t rotl(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

uint64_t sim_random(struct sim_world *w)
{
    uint64_t *s = w->rng, result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

uint64_t sim_random_below(struct sim_world *w, uint64_t n)
{
    return n ? sim_random(w) % n : 0;
}

/* ---- events ---- */

static bool sooner(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->seq < b->seq;
}

static void place(struct sim_world *w, size_t i, struct sim_event *e)
{
    w->heap[i] = e;
    e->heap = i + 1;
}

static void sift(struct sim_world *w, size_t i, struct sim_event *e)
{
    for (; i && sooner(e, w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        place(w, i, w->heap[(i - 1) / 2]);
    for (;;) {
        size_t c = 2 * i + 1;

        if (c + 1 < w->heap_n && sooner(w->heap[c + 1], w->heap[c]))
            c++;
        if (c >= w->heap_n || !sooner(w->heap[c], e))
            break;
        place(w, i, w->heap[c]);
        i = c;
    }
    place(w, i, e);
}

static void heap_push(struct sim_world *w, struct sim_event *e)
{
    if (w->heap_n == w->heap_cap) {
        w->heap_cap = w->heap_cap ? w->heap_cap * 2 : 256;
        w->heap = mem_realloc(w->heap, w->heap_cap * sizeof(struct sim_event *));
    }
    w->heap_n++;
    sift(w, w->heap_n - 1, e);
}

static void heap_remove(struct sim_world *w, struct sim_event *e)
{
    size_t i = e->heap - 1;
    struct sim_event *last = w->heap[--w->heap_n];

    INV(w->heap[i] == e);
    e->heap = 0;
    if (last != e)
        sift(w, i, last);
}

void sim_schedule(struct sim_world *w, struct sim_event *e, enum sim_kind kind, struct sim_loop *l,
                  uint64_t delay_us, void (*fire)(struct sim_event *),
                  void (*drop)(struct sim_event *))
{
    uint64_t about = e->about;

    PRE(!e->heap && !e->held);
    *e = (struct sim_event){.at_us = w->now_us + (delay_us ? delay_us : 1),
                            .seq = w->seq++,
                            .kind = kind,
                            .about = about,
                            .loop = l,
                            .fire = fire,
                            .drop = drop};
    list_init(&e->link);
    if (l)
        list_push(&l->events, &e->link);
    heap_push(w, e);
}

/* Without fire or drop. Harmless when not scheduled. */
void sim_cancel(struct sim_world *w, struct sim_event *e)
{
    if (e->heap)
        heap_remove(w, e);
    if (e->fire)
        list_remove(&e->link);
    e->held = false;
    e->fire = NULL;
}

void sim_hash(struct sim_world *w, const void *p, size_t n)
{
    w->hash = hash_more(w->hash, p, n);
}

static void sim_fire(struct sim_world *w, struct sim_event *e)
{
    struct sim_host *h = e->loop ? e->loop->proc->host : NULL;
    uint64_t facts[5] = {w->now_us, e->kind, e->about, h ? h->id : 0,
                         e->loop ? (uint64_t)e->loop->proc->pid : 0};
    unsigned char bytes[sizeof facts];
    void (*fire)(struct sim_event *) = e->fire;

    memcpy(bytes, facts, sizeof facts);
    sim_hash(w, bytes, sizeof bytes);
    w->fired++;
    list_remove(&e->link);
    e->fire = NULL;
    fire(e); /* may free e */
}

/* Ahead of its time, for a join that must not wait. */
void sim_fire_early(struct sim_world *w, struct sim_event *e)
{
    if (e->heap)
        heap_remove(w, e);
    sim_fire(w, e);
}

/* The event's process may die in the midst of it (sim_crash_here). */
static void fire_or_die(struct sim_world *w, struct sim_event *e)
{
    w->firing = e->loop ? e->loop->proc->host : NULL;
    if (setjmp(w->here) == 0)
        sim_fire(w, e);
    else
        sim_crash(w->firing);
    w->firing = NULL;
}
struct sim_host *sim_firing(const struct sim_world *w)
{
    return w->firing;
}
void sim_crash_here(struct sim_world *w)
{
    PRE(w->firing);
    longjmp(w->here, 1);
}

bool sim_run_until(struct sim_world *w, uint64_t until_ms, bool (*done)(void *arg), void *arg)
{
    uint64_t until_us = until_ms * 1000, at_once = 0;

    PRE(w->depth == 0);
    w->depth = 1;
    while (w->heap_n && w->heap[0]->at_us <= until_us) {
        struct sim_event *e = w->heap[0];

        heap_remove(w, e);
        at_once = e->at_us > w->now_us ? 0 : at_once + 1;
        INV(at_once < EVENTS_AT_ONCE_MAX);
        if (e->at_us > w->now_us)
            w->now_us = e->at_us;
        if (e->loop && e->loop->proc->host->paused) {
            e->held = true;
            list_remove(&e->link);
            list_push(&e->loop->proc->host->held, &e->link);
            continue;
        }
        fire_or_die(w, e);
        if (done && done(arg)) {
            w->depth = 0;
            return true;
        }
    }
    if (w->now_us < until_us)
        w->now_us = until_us;
    w->depth = 0;
    return done && done(arg);
}

struct script {
    struct sim_event e;
    void (*fn)(void *arg);
    void *arg;
};

static void script_fire(struct sim_event *e)
{
    struct script *s = container_of(e, struct script, e);
    void (*fn)(void *) = s->fn;
    void *arg = s->arg;

    mem_free(s);
    fn(arg);
}

static void script_drop(struct sim_event *e)
{
    mem_free(container_of(e, struct script, e));
}

void sim_at(struct sim_world *w, uint64_t at_ms, void (*fn)(void *arg), void *arg)
{
    struct script *s = mem_new(struct script);
    uint64_t at_us = at_ms * 1000;

    s->fn = fn;
    s->arg = arg;
    sim_schedule(w, &s->e, SIM_SCRIPT, NULL, at_us > w->now_us ? at_us - w->now_us : 0, script_fire,
                 script_drop);
}

/* ---- the world ---- */

struct sim_world *sim_world_create(uint64_t seed)
{
    struct sim_world *w = mem_new(struct sim_world);

    for (int i = 0; i < 4; i++)
        w->rng[i] = splitmix(&seed);
    w->hash = HASH_START;
    w->latency_us = 300;
    w->jitter_us = 400;
    w->trace = getenv("HANSE_SIM_TRACE") != NULL;
    w->blocked = mem_zalloc(SIM_HOSTS_MAX * SIM_HOSTS_MAX * sizeof(bool));
    list_init(&w->hosts);
    list_init(&w->conns);
    list_init(&w->dead);
    list_init(&w->programs);
    return w;
}

struct sim_world *sim_world_destroy(struct sim_world *w)
{
    struct list *it;

    if (!w)
        return NULL;
    list_for_each (h, &w->hosts)
        sim_crash(container_of(h, struct sim_host, link));
    while ((it = list_pop(&w->dead)))
        sim_proc_free(container_of(it, struct sim_proc, link));
    sim_conns_free(w);
    while (w->heap_n) { /* what is left belongs to the world: scripts, datagrams */
        struct sim_event *e = w->heap[0];

        heap_remove(w, e);
        if (e->drop)
            e->drop(e);
    }
    while ((it = list_pop(&w->hosts))) {
        struct sim_host *h = container_of(it, struct sim_host, link);
        struct list *s;

        sim_files_free(h);
        while ((s = list_pop(&h->slots))) {
            struct sim_slot *slot = container_of(s, struct sim_slot, link);

            if (slot->p && slot->destroy)
                slot->destroy(slot->p);
            mem_free(slot->name);
            mem_free(slot);
        }
        mem_free(h);
    }
    sim_programs_free(w);
    mem_free(w->heap);
    mem_free(w->blocked);
    mem_free(w);
    return NULL;
}

uint64_t sim_now_ms(const struct sim_world *w)
{
    return w->now_us / 1000;
}

uint64_t sim_event_hash(const struct sim_world *w)
{
    return w->hash;
}

uint64_t sim_events(const struct sim_world *w)
{
    return w->fired;
}

void sim_log(struct sim_world *w, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    sim_hash(w, text, strlen(text));
    if (w->trace)
        (void)fprintf(stderr, "%10.3f %s\n", (double)w->now_us / 1000, text);
}

/* ---- hosts ---- */

struct sim_host *sim_host_create(struct sim_world *w, const char *name)
{
    struct sim_host *h = mem_new(struct sim_host);

    PRE(w->next_host < SIM_HOSTS_MAX && !sim_host_find(w, name));
    h->w = w;
    h->id = w->next_host++;
    str_copy(h->name, sizeof h->name, name);
    h->up = true;
    h->boot_offset_ms =
        1000000 + sim_random_below(w, 1000000000); /* no host may rely on another's clock */
    h->next_pid = 100;
    list_init(&h->procs);
    list_init(&h->files);
    list_init(&h->slots);
    list_init(&h->held);
    list_push(&w->hosts, &h->link);
    return h;
}

struct sim_host *sim_host_find(struct sim_world *w, const char *name)
{
    list_for_each (it, &w->hosts)
        if (strcmp(container_of(it, struct sim_host, link)->name, name) == 0)
            return container_of(it, struct sim_host, link);
    return NULL;
}

const char *sim_host_name(const struct sim_host *h)
{
    return h->name;
}

struct sim_host *sim_host_of(const struct loop *l)
{
    return sim_loop_of(l)->proc->host;
}

struct sim_world *sim_world_of(const struct loop *l)
{
    return world_of(sim_loop_of(l));
}

int64_t sim_pid_of(const struct loop *l)
{
    return sim_loop_of(l)->proc->pid;
}

bool sim_up(const struct sim_host *h)
{
    return h->up;
}

void sim_crash(struct sim_host *h)
{
    if (!h->up)
        return;
    sim_log(h->w, "%s: crash", h->name);
    h->up = false;
    h->paused = false;
    while (!list_empty(&h->procs))
        sim_proc_end(container_of(h->procs.next, struct sim_proc, link), 0, 0, true);
    INV(list_empty(&h->held));
}

void sim_boot(struct sim_host *h)
{
    sim_log(h->w, "%s: boot", h->name);
    h->up = true;
}

void sim_pause(struct sim_host *h, bool paused)
{
    struct list *it;

    if (h->paused == paused || !h->up)
        return;
    sim_log(h->w, "%s: %s", h->name, paused ? "paused" : "goes on");
    h->paused = paused;
    while (!paused && (it = list_pop(&h->held))) { /* all that was due meanwhile, in its order */
        struct sim_event *e = container_of(it, struct sim_event, link);

        e->held = false;
        e->at_us = h->w->now_us + 1;
        e->seq = h->w->seq++;
        list_push(&e->loop->events, &e->link);
        heap_push(h->w, e);
    }
}

void sim_partition_one_way(struct sim_host *from, struct sim_host *to, bool on)
{
    sim_log(from->w, "%s -> %s: %s", from->name, to->name, on ? "cut" : "healed");
    from->w->blocked[from->id * SIM_HOSTS_MAX + to->id] = on;
}

void sim_partition(struct sim_host *a, struct sim_host *b, bool on)
{
    sim_partition_one_way(a, b, on);
    sim_partition_one_way(b, a, on);
}

void sim_heal(struct sim_world *w)
{
    sim_log(w, "all partitions healed");
    memset(w->blocked, 0, SIM_HOSTS_MAX * SIM_HOSTS_MAX * sizeof(bool));
}

void sim_latency(struct sim_world *w, uint64_t base_us, uint64_t jitter_us)
{
    w->latency_us = base_us;
    w->jitter_us = jitter_us;
}

void sim_loss(struct sim_world *w, unsigned reset_ppm, unsigned datagram_ppm)
{
    w->reset_ppm = reset_ppm;
    w->datagram_ppm = datagram_ppm;
}

int64_t sim_utc_ms(const struct sim_world *w)
{
    return WALL_BEGIN_MS + (int64_t)(w->now_us / 1000);
}

void sim_wall_right(struct sim_host *h)
{
    h->wall_offset_ms = 0;
}

void sim_wall_jump(struct sim_host *h, int64_t by_ms)
{
    h->wall_offset_ms += by_ms;
}

void sim_disk_full(struct sim_host *h, bool full)
{
    h->disk_full = full;
}

void **sim_disk(struct sim_host *h, const char *name, void (*destroy)(void *))
{
    list_for_each (it, &h->slots)
        if (strcmp(container_of(it, struct sim_slot, link)->name, name) == 0)
            return &container_of(it, struct sim_slot, link)->p;
    struct sim_slot *s = mem_new(struct sim_slot);
    s->name = mem_strdup(name);
    s->destroy = destroy;
    list_push(&h->slots, &s->link);
    return &s->p;
}
