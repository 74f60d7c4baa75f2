/* Functions by which other folders read a root. They must never change anything, nor keep what they
 * return alive: the caller's reference to the root does that. */
#include "controlplane/store/store_internal.h"

#include <stdio.h>

uint64_t root_index(const struct root *r)
{
    return r->index;
}
uint64_t root_number(const struct root *r)
{
    return r->number;
}
uint64_t root_term(const struct root *r)
{
    return r->term;
}
uint64_t root_rv(const struct root *r)
{
    return r->rv;
}
int64_t root_time(const struct root *r)
{
    return r->time;
}
const char *root_cluster_uid(const struct root *r)
{
    return r->cluster_uid;
}
uint64_t root_recovering(const struct root *r)
{
    return r->recovering;
}
bool root_went_back(const struct root *r)
{
    return r->recovering > 1;
}

struct names {
    char (*v)[256];
    size_t n, max;
};

static bool name_each(struct slice key, const void *value, void *arg)
{
    struct names *x = arg;

    (void)value;
    if (x->n < x->max)
        (void)snprintf(x->v[x->n], sizeof x->v[0], "%.*s", (int)key.n, (const char *)key.p);
    return ++x->n < x->max;
}

size_t root_strangers(const struct root *r, char (*ret)[256], size_t max)
{
    struct names x = {ret, 0, max};

    if (max)
        tree_scan(r->strangers, slice_make("", 0), name_each, &x);
    return tree_count(r->strangers);
}

bool root_stranger(const struct root *r, const char *target)
{
    return tree_get(r->strangers, slice_make(target, strlen(target))) != NULL;
}

const struct object *root_agent_target(const struct root *r, const char *agent,
                                       const char **ret_part)
{
    const struct object *o = root_get(r, KIND_TARGET, "", agent);
    const char *dot = strrchr(agent, '.');
    char target[256];

    if (ret_part)
        *ret_part = "";
    if (o || !dot || (size_t)(dot - agent) >= sizeof target)
        return o;
    memcpy(target, agent, (size_t)(dot - agent));
    target[dot - agent] = '\0';
    o = root_get(r, KIND_TARGET, "", target);
    if (!o || !target_agent_find(object_as(o, target)->spec, dot + 1))
        return NULL;
    if (ret_part)
        *ret_part = dot + 1;
    return o;
}

int root_agents_clash(const struct root *r, const struct object *target, struct err *err)
{
    const struct target_spec *s = object_as(target, target)->spec;
    const char *name = target->meta->name, *dot = strrchr(name, '.'), *part = "";
    char agent[256 + 64];

    for (uint32_t i = 0; i < s->n_agents; i++) {
        (void)snprintf(agent, sizeof agent, "%s.%s", name, s->agents[i].name);
        if (root_get(r, KIND_TARGET, "", agent))
            return err_field(err, E_CONFLICT, "spec.agents[].name",
                             "there is a Target %.253s, whose agent would have the same name",
                             agent);
    }
    if (!dot || root_get(r, KIND_TARGET, "", name))
        return 0;
    const struct object *o = root_agent_target(r, name, &part);
    return !o ? 0
              : err_field(err, E_CONFLICT, "metadata.name",
                          "that is agent %.63s of Target %.253s: choose another name", part,
                          o->meta->name);
}

const char *root_revision(const struct root *r)
{
    return r->revision;
}

bool root_had(const struct root *r, const char *cluster, uint64_t rv)
{
    if (!rv || !*cluster)
        return false;
    if (strcmp(cluster, r->cluster_uid) == 0)
        return rv <= r->rv;
    return rv <= (uint64_t)root_count_of(r->ancestors, key_str(cluster));
}

static bool hash_ancestor(struct slice key, const void *value, void *arg)
{
    uint64_t *h = arg;

    *h = hash_bytes(*h, key.p, key.n);
    *h = hash_u64(*h, (uint64_t)((const struct count_box *)value)->n);
    return true;
}

/* Not the Raft index: the same entries give the same digest wherever they stand in a log. */
uint64_t root_digest(const struct root *r)
{
    uint64_t h = hash_u64(r->digest, r->rv);

    h = hash_u64(h, r->number);
    h = hash_u64(h, r->term);
    h = hash_u64(h, (uint64_t)r->time);
    h = hash_u64(h, r->request_seq);
    h = archive_hash(&r->archive, h);
    if (r->recovering)
        h = hash_u64(h, r->recovering);
    if (r->ledger.cpus)
        h = hash_u64(hash_u64(h, 0x637075), (uint64_t)r->ledger.cpus_since);
    if (tree_count(r->ancestors))
        tree_scan(r->ancestors, slice_make("", 0), hash_ancestor, &h);
    h = hash_bytes(h, r->cluster_uid, strlen(r->cluster_uid));
    return hash_bytes(h, r->revision, strlen(r->revision));
}

static const struct tree *kind_tree(const struct root *r, enum kind_id kind)
{
    INV(r->magic == ROOT_MAGIC);
    return kind > KIND_NONE && kind < KIND_LIMIT ? r->kinds[kind] : NULL;
}

const struct object *root_get(const struct root *r, enum kind_id kind, const char *ns,
                              const char *name)
{
    const struct tree *t = kind_tree(r, kind);
    struct key k;

    if (!t || strlen(ns) + strlen(name) + 2 > sizeof k.p)
        return NULL;
    key_object(&k, ns, name);
    return tree_get(t, key_slice(&k));
}

struct scan {
    const char *ns; /* or NULL */
    struct slice after;
    bool (*each)(const struct object *o, void *arg);
    void *arg;
};

static bool scan_each(struct slice key, const void *value, void *arg)
{
    struct scan *s = arg;
    const struct object *o = value;

    if (s->after.p && key.n == s->after.n && memcmp(key.p, s->after.p, key.n) == 0)
        return true;
    if (s->ns && strcmp(o->meta->namespace_, s->ns) != 0)
        return false;
    return s->each(o, s->arg);
}

void root_scan(const struct root *r, enum kind_id kind, const char *ns, const char *after_ns,
               const char *after_name, bool (*each)(const struct object *o, void *arg), void *arg)
{
    const struct tree *t = kind_tree(r, kind);
    struct scan s = {ns, {NULL, 0}, each, arg};
    struct key start = {.n = 0}, after;

    if (!t || (ns && strlen(ns) + 2 > sizeof start.p))
        return;
    if (ns)
        key_object(&start, ns, "");
    if (after_name) {
        const char *from = after_ns ? after_ns : ns ? ns : "";

        if (strlen(from) + strlen(after_name) + 2 > sizeof after.p)
            return;
        key_object(&after, from, after_name);
        s.after = key_slice(&after);
        start = after;
    }
    tree_scan(t, key_slice(&start), scan_each, &s);
}

bool root_collect_due(const struct root *r)
{
    return r->dead_due > 0;
}

struct array_next {
    struct slice after;
    const struct object *found;
};

static bool array_each(struct slice key, const void *value, void *arg)
{
    struct array_next *x = arg;

    if (key.n == x->after.n && memcmp(key.p, x->after.p, key.n) == 0)
        return true;
    x->found = value;
    return false;
}

const struct object *root_array_due(const struct root *r, const char *ns, const char *name)
{
    struct array_next x = {{NULL, 0}, NULL};
    struct key k;

    key_object(&k, ns, name);
    x.after = key_slice(&k);
    tree_scan(r->arrays, x.after, array_each, &x);
    return x.found;
}

uint64_t root_count(const struct root *r, enum kind_id kind)
{
    const struct tree *t = kind_tree(r, kind);

    return t ? tree_count(t) : 0;
}

const struct object *root_workload_by_uid(const struct root *r, const char *uid)
{
    return tree_get(r->uids, key_str(uid));
}

struct owned_scan {
    struct key prefix; /* uid \0 kind: as the keys of r->owners begin */
    bool (*each)(const struct object *o, void *arg);
    void *arg;
};

static bool owned_each(struct slice key, const void *value, void *arg)
{
    const struct owned_scan *s = arg;

    if (key.n < s->prefix.n || memcmp(key.p, s->prefix.p, s->prefix.n) != 0)
        return false;
    return s->each(value, s->arg);
}

void root_owned(const struct root *r, const char *uid, enum kind_id kind,
                bool (*each)(const struct object *o, void *arg), void *arg)
{
    struct owned_scan s = {.each = each, .arg = arg};

    key_pair(&s.prefix, uid, "");
    s.prefix.p[s.prefix.n++] = (char)kind;
    tree_scan(r->owners, key_slice(&s.prefix), owned_each, &s);
}

struct object_scan {
    bool (*each)(const struct object *o, void *arg);
    void *arg;
};

static bool object_each(struct slice key, const void *value, void *arg)
{
    const struct object_scan *s = arg;

    (void)key;
    return s->each(value, s->arg);
}

void root_scan_moves(const struct root *r, bool (*each)(const struct object *o, void *arg),
                     void *arg)
{
    struct object_scan s = {each, arg};

    tree_scan(r->moves, slice_make("", 0), object_each, &s);
}

struct changes_scan {
    bool (*each)(const struct change *c, void *arg);
    void *arg;
    uint64_t first;
};

static bool changes_each(struct slice key, const void *value, void *arg)
{
    struct changes_scan *s = arg;

    (void)key;
    return s->each(&((const struct change_box *)value)->change, s->arg);
}

static bool changes_first(struct slice key, const void *value, void *arg)
{
    (void)key;
    ((struct changes_scan *)arg)->first = ((const struct change_box *)value)->change.rv;
    return false;
}

uint64_t root_oldest_change(const struct root *r)
{
    struct changes_scan s = {NULL, NULL, r->rv + 1};

    tree_scan(r->changes, slice_make("", 0), changes_first, &s);
    return s.first;
}

int root_changes(const struct root *r, uint64_t since,
                 bool (*each)(const struct change *c, void *arg), void *arg, struct err *err)
{
    struct changes_scan s = {each, arg, 0};
    uint64_t oldest = root_oldest_change(r);
    struct key k;

    if (since + 1 < oldest)
        return err_set(err, E_GONE, "too old resource version: %llu (%llu)",
                       (unsigned long long)since, (unsigned long long)oldest - 1);
    key_u64(&k, since + 1);
    tree_scan(r->changes, key_slice(&k), changes_each, &s);
    return 0;
}

bool root_usage(const struct root *r, const char *node, struct node_usage *ret)
{
    const struct usage_box *b = tree_get(r->usage, key_str(node));

    if (b)
        *ret = b->usage;
    return b != NULL;
}

struct held_scan {
    struct key prefix;
    void (*each)(const char *class_, int64_t milli, void *arg);
    void *arg;
};

static bool held_each(struct slice key, const void *value, void *arg)
{
    struct held_scan *s = arg;
    char class_[STORE_KEY_MAX];

    if (key.n < s->prefix.n || memcmp(key.p, s->prefix.p, s->prefix.n) != 0)
        return false;
    INV(key.n - s->prefix.n < sizeof class_);
    memcpy(class_, key.p + s->prefix.n, key.n - s->prefix.n);
    class_[key.n - s->prefix.n] = 0;
    s->each(class_, ((const struct count_box *)value)->n, s->arg);
    return true;
}

void root_scan_queue_held(const struct root *r, const char *queue,
                          void (*each)(const char *class_, int64_t milli, void *arg), void *arg)
{
    struct held_scan s = {.each = each, .arg = arg};

    if (strlen(queue) + 2 > sizeof s.prefix.p)
        return;
    key_pair(&s.prefix, queue, "");
    tree_scan(r->held, key_slice(&s.prefix), held_each, &s);
}

static void held_sum(const char *class_, int64_t milli, void *arg)
{
    (void)class_;
    *(int64_t *)arg += milli;
}

/* class "" or NULL: of all classes. */
int64_t root_queue_held(const struct root *r, const char *queue, const char *class_)
{
    int64_t sum = 0;
    struct key k;

    if (!class_ || !*class_) {
        root_scan_queue_held(r, queue, held_sum, &sum);
        return sum;
    }
    if (strlen(queue) + strlen(class_) + 2 > sizeof k.p)
        return 0;
    key_pair(&k, queue, class_);
    return root_count_of(r->held, key_slice(&k));
}

int64_t root_target_held(const struct root *r, const char *target, const char *class_)
{
    struct key k;

    if (strlen(target) + strlen(class_) + 2 > sizeof k.p)
        return 0;
    key_pair(&k, target, class_);
    return root_count_of(r->target_class, key_slice(&k));
}

struct queue_load root_queue_load(const struct root *r, const char *queue)
{
    struct queue_load load = {0, 0};
    struct key k;

    if (strlen(queue) + sizeof "holds" + 1 > sizeof k.p)
        return load;
    key_pair(&k, queue, "waits");
    load.waits = root_count_of(r->load, key_slice(&k));
    key_pair(&k, queue, "holds");
    load.holds = root_count_of(r->load, key_slice(&k));
    return load;
}

struct members_scan {
    struct member_info *ret;
    size_t n, max;
};

static bool members_each(struct slice key, const void *value, void *arg)
{
    struct members_scan *s = arg;

    (void)key;
    if (s->n == s->max)
        return false;
    s->ret[s->n++] = ((const struct member_box *)value)->info;
    return true;
}

size_t root_members(const struct root *r, struct member_info *ret, size_t max)
{
    struct members_scan s = {ret, 0, max};

    tree_scan(r->members, slice_make("", 0), members_each, &s);
    return s.n;
}

struct level_scan {
    uint32_t level;
    bool any;
};

static bool level_each(struct slice key, const void *value, void *arg)
{
    uint32_t level = ((const struct member_box *)value)->info.feature_level;
    struct level_scan *s = arg;

    (void)key;
    level = level ? level : FEATURE_FIRST;
    s->level = s->any && s->level < level ? s->level : level;
    s->any = true;
    return true;
}

uint32_t kind_feature_level(enum kind_id kind)
{
    static const uint32_t levels[KIND_LIMIT] = {
#define KIND(name, level) [KIND_##name] = FEATURE_##level,
#include "controlplane/store/features.def"
    };

    return levels[kind] ? levels[kind] : FEATURE_FIRST;
}

uint32_t root_feature_level(const struct root *r)
{
    struct level_scan s = {0, false};

    tree_scan(r->members, slice_make("", 0), level_each, &s);
    return s.level;
}
