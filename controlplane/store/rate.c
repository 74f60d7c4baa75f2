/* How fast users may write into a namespace (ResourceQuota, hanse.dev/writes-per-second): a token
 * bucket in the state for each quota with that rate, filled by the time of the entries. So it is
 * exact over all members, and the same on each of them.
 *
 * A write costs one for each object that it names in the namespace. A write that names more objects
 * than the burst waits for a full bucket and leaves it in debt: it is never shut out, and the rate
 * holds. Writes of quotas are free, so that their owners are never locked out by a flood. A
 * repeated answer is free, and Hanse's own writes do not come here. */
#include "api/schema/quota.h"
#include "controlplane/store/store_internal.h"

#include <stdio.h>

#define UNIT 1000000 /* of a write: what a rate of 1/1000 a second gives in a ms */
#define LEVEL_MAX ((int64_t)1 << 50)
#define RATE_SEED 10

enum { R_KEY = 1, R_LEVEL, R_AT };

/* ---- buckets ---- */
/* None is kept: it is full. */
static int64_t level_at(const struct rate_box *b, const struct quota_rate *rate, int64_t now)
{
    int64_t full = rate->burst * UNIT, ms = b && now > b->at ? now - b->at : 0;

    if (!b || b->level >= full || ms > (full - b->level) / rate->milli)
        return full;
    return b->level + ms * rate->milli;
}

static uint64_t rate_hash(struct slice key, const struct rate_box *b)
{
    return hash_u64(hash_u64(hash_bytes(RATE_SEED, key.p, key.n), (uint64_t)b->level),
                    (uint64_t)b->at);
}

static void rate_put(struct root *w, struct slice key, int64_t level, int64_t at)
{
    const struct rate_box *old = tree_get(w->rates, key);
    struct rate_box *b = box_new(sizeof *b, NULL);

    if (old)
        w->digest -= rate_hash(key, old);
    b->level = level;
    b->at = at;
    w->digest += rate_hash(key, b);
    w->rates = tree_put_own(w->rates, key, b);
    box_unref(b);
}

static void rate_drop(struct root *w, struct slice key)
{
    const struct rate_box *old = tree_get(w->rates, key);

    if (!old)
        return;
    w->digest -= rate_hash(key, old);
    w->rates = tree_del_own(w->rates, key);
}

static bool rate_of(const struct object *quota, struct quota_rate *ret)
{
    return quota && quota_rate_of(object_as(quota, resource_quota)->spec, ret);
}

bool root_rate_used(const struct root *r, const struct object *quota, int64_t now_ms,
                    int64_t *ret_used, int64_t *ret_burst)
{
    struct quota_rate rate = {0};
    struct key k;

    if (!rate_of(quota, &rate))
        return false;
    key_object(&k, quota->meta->namespace_, quota->meta->name);
    int64_t level =
        level_at(tree_get(r->rates, key_slice(&k)), &rate, now_ms > r->time ? now_ms : r->time);
    *ret_used = (rate.burst * UNIT - level + UNIT - 1) / UNIT;
    *ret_burst = rate.burst;
    return true;
}

/* What was saved up until now was so at the old rate. */
void rates_follow(struct root *w, const struct object *before, const struct object *after)
{
    const struct meta *m = after ? after->meta : before->meta;
    struct quota_rate was = {0}, is = {0};
    struct key k;

    key_object(&k, m->namespace_, m->name);
    const struct rate_box *b = tree_get(w->rates, key_slice(&k));
    if (!b)
        return;
    if (!rate_of(before, &was) || !rate_of(after, &is)) {
        rate_drop(w, key_slice(&k));
        return;
    }
    if (was.milli == is.milli && was.burst == is.burst)
        return;
    int64_t level = level_at(b, &was, w->time);
    rate_put(w, key_slice(&k), level < is.burst * UNIT ? level : is.burst * UNIT, w->time);
}

/* ---- one write ---- */
/* Objects that it names, by namespace; the caller lets go of it. */
static struct tree *named(const struct root *r, const struct write_cmd *c)
{
    struct tree *by = tree_create(&box_ops);

    for (uint32_t i = 0; i < c->n; i++)
        if (*c->ops[i].ns && c->ops[i].kind != KIND_RESOURCE_QUOTA &&
            root_objects(r, c->ops[i].ns, KIND_RESOURCE_QUOTA))
            root_count_add(&by, key_str(c->ops[i].ns), 1);
    return by;
}

struct each_quota {
    const struct root *r;
    struct root *take; /* NULL: only asked */
    int64_t now, n;
    const char *ns;
    struct result *res;
    bool over;
};

static void tell_over(struct each_quota *q, const struct object *o, const struct quota_rate *rate,
                      int64_t missing)
{
    int64_t ms = (missing + rate->milli - 1) / rate->milli, s = (ms + 999) / 1000;
    char milli[32];

    quantity_print_milli(rate->milli, milli);
    q->over = true;
    q->res->code = E_LIMIT;
    q->res->retry_s = s < RETRY_MAX_S ? (uint32_t)s : RETRY_MAX_S;
    q->res->field[0] = 0;
    (void)snprintf(
        q->res->text, sizeof q->res->text,
        "exceeded quota: %.63s, namespace %.63s is written too fast: limited: " QUOTA_RATE
        "=%s, " QUOTA_BURST "=%lld: try again in %u s",
        o->meta->name, q->ns, milli, (long long)rate->burst, q->res->retry_s);
}

static bool quota_each(const struct object *o, void *arg)
{
    struct each_quota *q = arg;
    struct quota_rate rate = {0};
    struct key k;

    if (!rate_of(o, &rate))
        return true;
    key_object(&k, o->meta->namespace_, o->meta->name);
    int64_t level = level_at(tree_get(q->r->rates, key_slice(&k)), &rate, q->now);
    int64_t cost = q->n * UNIT, need = cost < rate.burst * UNIT ? cost : rate.burst * UNIT;
    if (q->take)
        rate_put(q->take, key_slice(&k), level - cost, q->now);
    else if (level < need)
        tell_over(q, o, &rate, need - level);
    return !q->over;
}

static bool namespace_each(struct slice key, const void *value, void *arg)
{
    struct each_quota *q = arg;
    char ns[64];

    INV(key.n < sizeof ns);
    memcpy(ns, key.p, key.n);
    ns[key.n] = 0;
    q->ns = ns;
    q->n = ((const struct count_box *)value)->n;
    root_scan(q->r, KIND_RESOURCE_QUOTA, ns, NULL, NULL, quota_each, q);
    return !q->over;
}

bool root_rate_over(const struct root *r, int64_t now_ms, const struct request_cmd *c,
                    struct result *ret)
{
    struct each_quota q = {.r = r, .now = now_ms > r->time ? now_ms : r->time, .res = ret};

    if (!c->write.n || !root_count(r, KIND_RESOURCE_QUOTA) || request_answered(r, c))
        return false;
    struct tree *by = named(r, &c->write);
    tree_scan(by, slice_make("", 0), namespace_each, &q);
    (void)tree_unref(by);
    return q.over;
}

bool rates_refuse(struct root *w, const struct request_cmd *c, struct result *res)
{
    struct each_quota q = {.now = w->time, .take = w, .res = res};

    if (root_rate_over(w, w->time, c, res))
        return true;
    if (!c->write.n || !root_count(w, KIND_RESOURCE_QUOTA))
        return false;
    struct tree *by = named(w, &c->write);
    struct root *as_it_was = root_fork(w); /* its tree is walked while w's changes */
    q.r = as_it_was;
    tree_scan(by, slice_make("", 0), namespace_each, &q);
    (void)root_unref(as_it_was);
    (void)tree_unref(by);
    return false;
}

/* ---- snapshots ---- */
struct writing {
    const struct fields_out *to;
    uint16_t tag;
};

static bool write_each(struct slice key, const void *value, void *arg)
{
    const struct writing *x = arg;
    const struct rate_box *b = value;
    size_t at = record_open(x->to->buf, x->tag);

    record_bytes(x->to->buf, R_KEY, key.p, key.n);
    record_i64(x->to->buf, R_LEVEL, b->level);
    record_i64(x->to->buf, R_AT, b->at);
    record_close(x->to->buf, at);
    field_whole(x->to);
    return true;
}

void rates_write(const struct root *r, uint16_t tag, const struct fields_out *out)
{
    struct writing x = {out, tag};

    tree_scan(r->rates, slice_make("", 0), write_each, &x);
}

/* The quota that a bucket is of. */
static const struct object *quota_at(const struct root *r, struct slice key)
{
    return tree_get(r->kinds[KIND_RESOURCE_QUOTA], key);
}

int rates_read(struct root *w, struct slice in, struct err *err)
{
    struct wire wire = {in.p, in.n};
    struct slice v, key = {NULL, 0};
    struct quota_rate rate;
    int64_t level = 0, at = 0;
    uint16_t tag;
    int r;

    while ((r = record_next(&wire, &tag, &v)) > 0) {
        if (tag == R_KEY)
            key = v;
        else if (tag == R_LEVEL)
            level = record_get_i64(v);
        else if (tag == R_AT)
            at = record_get_i64(v);
    }
    if (r < 0 || !key.p || at < 0 || level < -LEVEL_MAX || level > LEVEL_MAX ||
        !rate_of(quota_at(w, key), &rate) || tree_get(w->rates, key))
        return err_set(err, E_CORRUPT, "snapshot: what a quota has left cannot be read");
    rate_put(w, key, level, at);
    return 0;
}

/* ---- for tests ---- */
static bool check_each(struct slice key, const void *value, void *arg)
{
    const struct root *r = arg;
    const struct rate_box *b = value;
    struct quota_rate rate = {0};

    INV(rate_of(quota_at(r, key), &rate));
    INV(b->level <= rate.burst * UNIT && b->level > -LEVEL_MAX && b->at <= r->time);
    return true;
}

void rates_check(const struct root *r)
{
    tree_scan(r->rates, slice_make("", 0), check_each, (void *)(uintptr_t)r);
}
