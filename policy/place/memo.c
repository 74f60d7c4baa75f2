/* Refusals, remembered: workloads that ask for the same in the same queue, under the same policies,
 * get the same answer while the pool stays as it is, so it is computed once. The key is everything
 * in a workload that a decision reads, byte by byte. It is valid for one pool at one count of
 * changes, one moment and one seed. Only refusals are kept: a placement changes the pool.
 *
 * The memo must never make an answer differ: a workload that it cannot tell apart safely bypasses
 * it. */
#include "policy/place/place_internal.h"

#include "api/base/hash.h"

#include <string.h>

#define MEMO_MAX_BYTES ((size_t)64 << 20)
#define KEY_MAX ((size_t)64 << 10)

struct entry {
    struct entry *next; /* of the same slot */
    uint64_t hash;
    size_t n;
    /* The policy's order opens with waiting: only those get this answer that have waited as long,
     * or, when all of it is open, longer than that. */
    int64_t waits_ms, waited_ms;
    const struct decision_spec *decision;
    unsigned char key[];
};
#define SLOTS 16384u
struct memo {
    struct arena *a;
    struct entry **slots;
    const struct pool *p;
    uint64_t changes, seed, hits, kept;
    int64_t now_ms;
    struct buf key; /* of who was asked for last; not kept: .n == 0 */
    uint64_t hash;
};

struct memo *policy_memo_create(void)
{
    struct memo *m = mem_new(struct memo);

    m->a = arena_create(MEMO_MAX_BYTES + KEY_MAX + ((size_t)1 << 20));
    m->slots = mem_zalloc(SLOTS * sizeof(struct entry *));
    buf_init(&m->key, KEY_MAX);
    return m;
}

struct memo *policy_memo_destroy(struct memo *m)
{
    if (!m)
        return NULL;
    (void)arena_destroy(m->a);
    buf_fini(&m->key);
    mem_free(m->slots);
    mem_free(m);
    return NULL;
}

uint64_t policy_memo_hits(const struct memo *m)
{
    return m->hits;
}

static void memo_clear(struct memo *m)
{
    if (m->kept)
        memset(m->slots, 0, SLOTS * sizeof(struct entry *));
    m->kept = 0;
    arena_reset(m->a);
}

/* ---- the key ---- */
static void key_text(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s) + 1);
}

static void key_body(struct buf *b, const struct schema *s, const void *body)
{
    buf_char(b, body ? 1 : 0);
    if (body)
        tlv_add(s, body, b);
    buf_add(b, "\xff\xff\xff\xff", 4);
}

/* Of what runs only its kind is read, of checkpoints only where they lie and how often they come,
 * of partitions only whether a lease must end it;
 * what happens to it later and who it is reckoned to says nothing of where it fits. */
static void key_spec(struct buf *b, const struct workload_spec *from)
{
    struct workload_spec s = *from;
    struct checkpoint_spec c = {0};
    const struct run_spec *run = s.run;
    bool leased = s.partition && s.partition->mode > PARTITION_WAIT;

    s.run = NULL;
    s.partition = NULL;
    s.array = NULL;
    s.experiment = s.user = "";
    s.ttlSecondsAfterFinished = s.saveRequest = 0;
    if (s.checkpoint) {
        c = *s.checkpoint;
        c.signal = c.saveSignal = "";
        c.grace = c.keep = 0;
        c.required = false;
        s.checkpoint = &c;
    }
    buf_char(b, !run ? 'n' : run->n_command > 0 || run->script[0] ? 'p' : '-');
    buf_char(b, run && run->image[0] ? 'i' : '-');
    buf_char(b, run && run->manifest.n ? 'm' : '-');
    buf_char(b, leased ? 'l' : '-');
    key_body(b, &schema_workload_spec, &s);
}

/* Where it was denied, and until when. */
static void key_denials(struct buf *b, const struct object *o, int64_t now_ms)
{
    const struct workload_status *s = object_as(o, workload)->status;

    for (uint32_t i = 0; s && i < s->n_ends; i++)
        if (denial_holds(o, &s->ends[i], now_ms)) {
            key_text(b, s->ends[i].target);
            buf_add(b, &s->ends[i].deniedUntil, sizeof s->ends[i].deniedUntil);
            key_text(b, s->ends[i].message);
        }
}

static void key_make(struct buf *b, const struct object *o, int64_t now_ms)
{
    const struct workload *w = object_as(o, workload);

    buf_reset(b);
    buf_char(b, (char)(RECORD_NAME_BYTES(strlen(o->meta->name)) / 64));
    buf_char(b, (char)(RECORD_NAME_BYTES(strlen(o->meta->uid)) / 64));
    key_text(b, o->meta->namespace_);
    for (uint32_t i = 0; i < o->meta->n_labels; i++) {
        key_text(b, o->meta->labels[i].key);
        key_text(b, o->meta->labels[i].value);
    }
    buf_char(b, '\n');
    key_spec(b, w->spec);
    key_body(b, &schema_run_checkpoint, w->status ? w->status->checkpoint : NULL);
    key_body(b, &schema_spent, w->status ? w->status->spent : NULL);
    key_denials(b, o, now_ms);
}

static uint64_t bytes_hash(const char *p, size_t n)
{
    uint64_t h = hash_more(HASH_START, p, n);

    return h ^ h >> 29;
}

/* ---- asked and told ---- */
static int64_t waited_of(const struct place_request *rq)
{
    const struct workload_status *s = object_as(rq->workload, workload)->status;
    int64_t since = s && s->queuedAt ? s->queuedAt : rq->workload->meta->creationTimestamp;

    return since && rq->now_ms > since ? rq->now_ms - since : 0;
}

/* How long its policy's order has anybody wait, at most. */
static int64_t order_waits(const struct placement_policy_spec *s)
{
    int64_t most = 0;

    for (uint32_t i = 0; s && i < s->n_order; i++) {
        const struct order_step *o = &s->order[i];

        most = o->after > most ? o->after : most;
        if (o->when && o->when->queueWait > most)
            most = o->when->queueWait;
    }
    return most;
}

static bool may_share(const struct pool *p, const struct place_request *rq)
{
    const struct workload_status *s = object_as(rq->workload, workload)->status;

    return !rq->avoid_target && !rq->only_target && !rq->at_once && !rq->unsettled &&
           rq->workload->kind->id == KIND_WORKLOAD && !(s && (s->placement || s->nominated)) &&
           !pool_hold_of(p, rq->workload->meta->uid) && !pool_nominated(p, rq->workload->meta->uid);
}

static bool serves(const struct entry *e, const struct memo *m, int64_t waited_ms)
{
    return e->hash == m->hash && e->n == m->key.n && memcmp(e->key, m->key.p, e->n) == 0 &&
           (waited_ms == e->waited_ms || (waited_ms >= e->waits_ms && e->waited_ms >= e->waits_ms));
}

struct decision_spec *memo_find(struct memo *m, const struct pool *p,
                                const struct place_request *rq, struct arena *a)
{
    struct decision_spec *d;

    if (m->p != p || m->changes != p->changes || m->seed != rq->seed || m->now_ms != rq->now_ms) {
        memo_clear(m);
        m->p = p;
        m->changes = p->changes;
        m->seed = rq->seed;
        m->now_ms = rq->now_ms;
    }
    buf_reset(&m->key);
    if (!may_share(p, rq))
        return NULL;
    key_make(&m->key, rq->workload, rq->now_ms);
    if (m->key.failed) {
        buf_reset(&m->key);
        return NULL;
    }
    m->hash = bytes_hash(m->key.p, m->key.n);
    for (const struct entry *e = m->slots[m->hash % SLOTS]; e; e = e->next) {
        if (!serves(e, m, waited_of(rq)))
            continue;
        m->hits++;
        d = arena_memdup(a, e->decision, sizeof(*d));
        d->workload = arena_strdup(a, rq->workload->meta->name);
        d->workloadUid = arena_strdup(a, rq->workload->meta->uid);
        d->logIndex = rq->log_index;
        d->queuePosition = rq->queue_position;
        return d;
    }
    return NULL;
}

void memo_keep(struct memo *m, const struct place *pl, const struct decision_spec *d)
{
    struct err err;
    struct entry *e;
    AUTO_BUF b;
    void *copy;

    buf_init(&b, KEY_MAX);
    if (!m->key.n || m->changes != pl->p->changes || arena_used(m->a) > MEMO_MAX_BYTES)
        return;
    if (tlv_encode(&schema_decision_spec, d, &b, &err) < 0 ||
        tlv_decode(&schema_decision_spec, slice_make(b.p, b.n), m->a, &copy, &err) < 0)
        return;
    e = arena_alloc(m->a, sizeof(*e) + m->key.n);
    *e = (struct entry){.next = m->slots[m->hash % SLOTS],
                        .hash = m->hash,
                        .n = m->key.n,
                        .waits_ms = order_waits(pl->order),
                        .waited_ms = waited_of(pl->rq),
                        .decision = copy};
    memcpy(e->key, m->key.p, m->key.n);
    m->slots[m->hash % SLOTS] = e;
    m->kept++;
    buf_reset(&m->key);
}
