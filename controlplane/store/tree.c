/* A persistent B+tree. Versions share all nodes that they have in common; a change copies the nodes
 * on one path, or changes them in place when no other version sees them. Inner nodes keep a
 * borrowed pointer to the first item of each child: it lives as long as the child does, so
 * separators cost no memory and no counting.
 *
 * This file must never recurse over the tree, and never free a whole tree at once: what falls free
 * is put on one list, from any thread, and tree_reap takes it apart in slices. */
#include "controlplane/store/store_internal.h"

#include <pthread.h>

#define FAN 24
#define FAN_MIN (FAN / 3)
#define DEPTH_MAX 16

struct item {
    _Atomic uint32_t refs;
    uint32_t n;
    const void *value;
    char key[];
};
struct tree_node {
    _Atomic uint32_t refs;
    uint16_t n;
    bool leaf;
    const struct tree_value_ops *ops;
    struct tree_node *next; /* on the list of what is to be freed */
    struct item
        *item[FAN + 1]; /* of a leaf: owned; of an inner node: first item of the child, borrowed */
    struct tree_node *child[FAN + 1]; /* not there in leaves (node_create) */
};
struct tree {
    uint32_t magic;
    _Atomic uint32_t refs;
    const struct tree_value_ops *ops;
    struct tree_node *top; /* NULL when empty */
    uint64_t count;
};
#define TREE_MAGIC 0x74726565u
struct step {
    struct tree_node *node;
    unsigned at;
};

/* ---- what fell free: the one piece of shared state ---- */
static pthread_mutex_t garbage_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tree_node *garbage_list;
static size_t garbage_n;

static void garbage_push(struct tree_node *n)
{
    (void)pthread_mutex_lock(&garbage_lock);
    n->next = garbage_list;
    garbage_list = n;
    garbage_n++;
    (void)pthread_mutex_unlock(&garbage_lock);
}

static struct tree_node *garbage_pop(void)
{
    (void)pthread_mutex_lock(&garbage_lock);
    struct tree_node *n = garbage_list;
    if (n) {
        garbage_list = n->next;
        garbage_n--;
    }
    (void)pthread_mutex_unlock(&garbage_lock);
    return n;
}

/* ---- counting ---- */
static void count_up(_Atomic uint32_t *refs)
{
    uint32_t before = atomic_fetch_add_explicit(refs, 1, memory_order_relaxed);
    INV(before > 0 && before < UINT32_MAX / 2);
}

static bool count_down(_Atomic uint32_t *refs) /* true: it was the last */
{
    uint32_t before = atomic_fetch_sub_explicit(refs, 1, memory_order_acq_rel);
    INV(before > 0);
    return before == 1;
}

static bool count_one(_Atomic uint32_t *refs)
{
    return atomic_load_explicit(refs, memory_order_acquire) == 1;
}

static struct item *item_create(const struct tree_value_ops *ops, struct slice key,
                                const void *value)
{
    struct item *it = mem_alloc(sizeof *it + key.n);

    atomic_init(&it->refs, 1);
    it->n = (uint32_t)key.n;
    it->value = value;
    if (key.n)
        memcpy(it->key, key.p, key.n);
    ops->ref(value);
    return it;
}

static void item_unref(const struct tree_value_ops *ops, struct item *it)
{
    if (!count_down(&it->refs))
        return;
    ops->unref(it->value);
    mem_free(it);
}

static struct tree_node *node_create(const struct tree_value_ops *ops, bool leaf)
{
    struct tree_node *n = mem_alloc(leaf ? offsetof(struct tree_node, child) : sizeof *n);

    atomic_init(&n->refs, 1);
    n->n = 0;
    n->leaf = leaf;
    n->ops = ops;
    n->next = NULL;
    return n;
}

static void node_unref(struct tree_node *n)
{
    if (count_down(&n->refs))
        garbage_push(n);
}

size_t tree_reap(size_t n)
{
    while (n > 0) {
        struct tree_node *x = garbage_pop();

        if (!x)
            break;
        for (unsigned i = 0; i < x->n; i++) {
            if (x->leaf)
                item_unref(x->ops, x->item[i]);
            else
                node_unref(x->child[i]);
        }
        size_t took = (size_t)x->n + 1;
        mem_free(x);
        n -= took < n ? took : n;
    }
    (void)pthread_mutex_lock(&garbage_lock);
    size_t left = garbage_n;
    (void)pthread_mutex_unlock(&garbage_lock);
    return left;
}

/* ---- trees ---- */
static const struct tree *tree_checked(const struct tree *t)
{
    INV(t && t->magic == TREE_MAGIC);
    return t;
}

static struct tree *tree_new(const struct tree_value_ops *ops, struct tree_node *top,
                             uint64_t count)
{
    struct tree *t = mem_new(struct tree);

    t->magic = TREE_MAGIC;
    atomic_init(&t->refs, 1);
    t->ops = ops;
    t->top = top;
    t->count = count;
    return t;
}

struct tree *tree_create(const struct tree_value_ops *ops)
{
    PRE(ops);
    return tree_new(ops, NULL, 0);
}

struct tree *tree_ref(const struct tree *t)
{
    struct tree *m = (struct tree *)(uintptr_t)tree_checked(t); /* only the count is written */

    count_up(&m->refs);
    return m;
}

struct tree *tree_unref(struct tree *t)
{
    if (!t)
        return NULL;
    (void)tree_checked(t);
    if (count_down(&t->refs)) {
        if (t->top)
            node_unref(t->top);
        t->magic = 0;
        mem_free(t);
    }
    return NULL;
}

uint64_t tree_count(const struct tree *t)
{
    return tree_checked(t)->count;
}

static int compare(const struct item *it, struct slice key)
{
    size_t n = it->n < key.n ? it->n : key.n;
    int c = n ? memcmp(it->key, key.p, n) : 0;

    return c ? c : (it->n > key.n) - (it->n < key.n);
}

/* First place in a node whose item is >= key; *found when it is equal. */
static unsigned place_of(const struct tree_node *n, struct slice key, bool *found)
{
    unsigned lo = 0, hi = n->n;

    *found = false;
    while (lo < hi) {
        unsigned mid = (lo + hi) / 2;
        int c = compare(n->item[mid], key);

        if (c == 0) {
            *found = true;
            return mid;
        }
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static unsigned child_of(const struct tree_node *n, struct slice key)
{
    bool found;
    unsigned at = place_of(n, key, &found);

    return found || at == 0 ? at : at - 1;
}

const void *tree_get(const struct tree *t, struct slice key)
{
    const struct tree_node *n = tree_checked(t)->top;
    bool found;

    if (!n)
        return NULL;
    while (!n->leaf)
        n = n->child[child_of(n, key)];
    unsigned at = place_of(n, key, &found);
    return found ? n->item[at]->value : NULL;
}

/* ---- changing ---- */
/* The node as one that only we see: itself, or a copy in its place (the reference to the old one is
 * given up). */
static struct tree_node *node_own(struct tree_node *n)
{
    if (count_one(&n->refs))
        return n;
    struct tree_node *c = node_create(n->ops, n->leaf);

    c->n = n->n;
    memcpy(c->item, n->item, n->n * sizeof n->item[0]);
    if (n->leaf) {
        for (unsigned i = 0; i < n->n; i++)
            count_up(&n->item[i]->refs);
    } else {
        memcpy(c->child, n->child, n->n * sizeof n->child[0]);
        for (unsigned i = 0; i < n->n; i++)
            count_up(&n->child[i]->refs);
    }
    node_unref(n);
    return c;
}

static void node_insert(struct tree_node *n, unsigned at, struct item *it, struct tree_node *child)
{
    INV(n->n <= FAN && at <= n->n);
    memmove(n->item + at + 1, n->item + at, (n->n - at) * sizeof n->item[0]);
    n->item[at] = it;
    if (!n->leaf) {
        memmove(n->child + at + 1, n->child + at, (n->n - at) * sizeof n->child[0]);
        n->child[at] = child;
    }
    n->n++;
}

static void node_take_out(struct tree_node *n, unsigned at)
{
    INV(at < n->n);
    n->n--;
    memmove(n->item + at, n->item + at + 1, (n->n - at) * sizeof n->item[0]);
    if (!n->leaf)
        memmove(n->child + at, n->child + at + 1, (n->n - at) * sizeof n->child[0]);
}

/* Moves the entries from `at` on to the end (back false) or the front (back true) of `to`. */
static void node_move(struct tree_node *from, unsigned at, unsigned n, struct tree_node *to,
                      bool front)
{
    unsigned dst = front ? 0 : to->n;

    INV(to->n + n <= FAN + 1 && at + n <= from->n && from->leaf == to->leaf);
    if (front) {
        memmove(to->item + n, to->item, to->n * sizeof to->item[0]);
        if (!to->leaf)
            memmove(to->child + n, to->child, to->n * sizeof to->child[0]);
    }
    memcpy(to->item + dst, from->item + at, n * sizeof to->item[0]);
    if (!to->leaf)
        memcpy(to->child + dst, from->child + at, n * sizeof to->child[0]);
    to->n = (uint16_t)(to->n + n);
    from->n = (uint16_t)(from->n - n);
    if (at < from->n) {
        memmove(from->item + at, from->item + at + n, (from->n - at) * sizeof from->item[0]);
        if (!from->leaf)
            memmove(from->child + at, from->child + at + n, (from->n - at) * sizeof from->child[0]);
    }
}

/* A tree that only the caller sees, in place of his reference. */
static struct tree *tree_own(struct tree *t)
{
    if (count_one(&t->refs))
        return t;
    if (t->top)
        count_up(&t->top->refs);
    struct tree *mine = tree_new(t->ops, t->top, t->count);
    (void)tree_unref(t);
    return mine;
}

/* Down to the leaf of a key; all nodes on the way are our own afterwards. Returns the number of
 * steps. */
static unsigned path_own(struct tree *t, struct slice key, struct step path[DEPTH_MAX])
{
    unsigned n = 0;

    t->top = node_own(t->top);
    path[0].node = t->top;
    for (;;) {
        struct step *s = &path[n++];

        INV(n < DEPTH_MAX);
        if (s->node->leaf)
            return n;
        s->at = child_of(s->node, key);
        path[n].node = s->node->child[s->at] = node_own(s->node->child[s->at]);
    }
}

static void path_firsts(struct step *path, unsigned n)
{
    while (n-- > 1)
        path[n - 1].node->item[path[n - 1].at] = path[n].node->item[0];
}

static void split_up(struct tree *t, struct step *path, unsigned n)
{
    while (n-- > 0 && path[n].node->n > FAN) {
        struct tree_node *left = path[n].node;
        struct tree_node *right = node_create(t->ops, left->leaf);
        unsigned half = left->n / 2u;

        /* Keys that come in order (rv, time) leave full nodes behind. */
        if (n == 0 || path[n - 1].at + 1u == path[n - 1].node->n)
            half = left->n - FAN_MIN;
        node_move(left, half, left->n - half, right, false);
        if (n > 0) {
            node_insert(path[n - 1].node, path[n - 1].at + 1, right->item[0], right);
        } else {
            struct tree_node *top = node_create(t->ops, false);

            node_insert(top, 0, left->item[0], left);
            node_insert(top, 1, right->item[0], right);
            t->top = top;
        }
    }
}

struct tree *tree_put_own(struct tree *t, struct slice key, const void *value)
{
    struct step path[DEPTH_MAX];
    bool found;

    PRE(tree_checked(t) && value && key.n < UINT32_MAX);
    t = tree_own(t);
    struct item *it = item_create(t->ops, key, value);
    if (!t->top)
        t->top = node_create(t->ops, true);
    unsigned depth = path_own(t, key, path);
    struct tree_node *leaf = path[depth - 1].node;
    unsigned at = place_of(leaf, key, &found);
    if (found) {
        item_unref(t->ops, leaf->item[at]);
        leaf->item[at] = it;
    } else {
        node_insert(leaf, at, it, NULL);
        t->count++;
    }
    if (at == 0)
        path_firsts(path, depth);
    if (leaf->n > FAN)
        split_up(t, path, depth);
    return t;
}

/* Too small a node takes from a neighbour, or is joined with it. */
static void join_up(struct tree *t, struct step *path, unsigned n)
{
    while (n-- > 1 && path[n].node->n < FAN_MIN) {
        struct tree_node *up = path[n - 1].node;
        unsigned l = path[n - 1].at > 0 ? path[n - 1].at - 1 : 0;

        if (up->n < 2)
            break;
        struct tree_node *left = up->child[l] = node_own(up->child[l]);
        struct tree_node *right = up->child[l + 1] = node_own(up->child[l + 1]);
        unsigned sum = left->n + right->n;
        if (sum <= FAN) {
            node_move(right, 0, right->n, left, false);
            node_take_out(up, l + 1);
            node_unref(right);
        } else if (left->n < right->n) {
            node_move(right, 0, right->n - sum / 2, left, false);
            up->item[l + 1] = right->item[0];
        } else {
            node_move(left, sum / 2, left->n - sum / 2, right, true);
            up->item[l + 1] = right->item[0];
        }
        up->item[l] = left->item[0];
    }
    while (t->top && !t->top->leaf && t->top->n == 1) {
        struct tree_node *top = t->top;

        t->top = top->child[0];
        top->n = 0;
        node_unref(top);
    }
}

struct tree *tree_del_own(struct tree *t, struct slice key)
{
    struct step path[DEPTH_MAX];
    bool found;

    if (!tree_get(t, key))
        return t;
    t = tree_own(t);
    unsigned depth = path_own(t, key, path);
    struct tree_node *leaf = path[depth - 1].node;
    unsigned at = place_of(leaf, key, &found);
    INV(found);
    struct item *gone = leaf->item[at];
    node_take_out(leaf, at);
    t->count--;
    if (t->count == 0) {
        node_unref(t->top);
        t->top = NULL;
    } else {
        INV(leaf->n > 0);
        if (at == 0)
            path_firsts(path, depth);
        join_up(t, path, depth);
    }
    item_unref(t->ops, gone);
    return t;
}

struct tree *tree_put(const struct tree *t, struct slice key, const void *value)
{
    return tree_put_own(tree_ref(t), key, value);
}

struct tree *tree_del(const struct tree *t, struct slice key)
{
    return tree_del_own(tree_ref(t), key);
}

void tree_scan(const struct tree *t, struct slice start,
               bool (*each)(struct slice, const void *, void *), void *arg)
{
    struct step path[DEPTH_MAX];
    unsigned n = 0;
    bool found;

    if (!tree_checked(t)->top)
        return;
    for (struct tree_node *x = t->top;; x = x->child[path[n - 1].at]) {
        INV(n < DEPTH_MAX);
        path[n].node = x;
        path[n].at = x->leaf ? place_of(x, start, &found) : child_of(x, start);
        n++;
        if (x->leaf)
            break;
    }
    while (n > 0) {
        struct step *s = &path[n - 1];

        if (s->at >= s->node->n) {
            n--;
            if (n > 0)
                path[n - 1].at++;
            continue;
        }
        if (s->node->leaf) {
            const struct item *it = s->node->item[s->at++];

            if (!each(slice_make(it->key, it->n), it->value, arg))
                return;
        } else {
            path[n] = (struct step){s->node->child[s->at], 0};
            n++;
        }
    }
}
