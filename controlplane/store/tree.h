/* A persistent B+tree: bytes → reference-counted value. All functions are O(log n); old versions
 * stay valid. */
#ifndef HANSE_CONTROLPLANE_STORE_TREE_H
#define HANSE_CONTROLPLANE_STORE_TREE_H

#include "api/base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tree;
struct tree_value_ops { /* functions that count the references of values */
    void (*ref)(const void *v);
    void (*unref)(const void *v);
};
struct tree *tree_create(const struct tree_value_ops *ops); /* empty */
struct tree *tree_ref(const struct tree *t);
struct tree *tree_unref(struct tree *t); /* NULL ok; frees in bounded slices through tree_reap */
const void *tree_get(const struct tree *t, struct slice key);
/* returns a new version, which takes its own reference to value */
struct tree *tree_put(const struct tree *t, struct slice key, const void *value);
/* returns a new version, even if the key is absent */
struct tree *tree_del(const struct tree *t, struct slice key);
/* These consume the caller's reference to t, so that nodes that no other version shares are changed
 * in place. */
struct tree *tree_put_own(struct tree *t, struct slice key, const void *value) MUST_CHECK;
struct tree *tree_del_own(struct tree *t, struct slice key) MUST_CHECK;
uint64_t tree_count(const struct tree *t);
/* Calls each() in key order from the first key >= start, until it returns false. */
void tree_scan(const struct tree *t, struct slice start,
               bool (*each)(struct slice key, const void *value, void *arg), void *arg);
/* Frees about n items of released trees, at most one node more; each item may free an object.
 * Returns the number of nodes left. The core loop calls it between entries. */
size_t tree_reap(size_t n);

#endif
