/* A backend of the API in memory, for tests: one loop, sorted arrays, a bounded list of changes. It
 * does what the replicated store does for single writes (versions, stamps, finalizers,
 * idempotency), and nothing else. Bearer tokens are "t|USER|GROUP,GROUP" or
 * "t|USER|GROUP,GROUP|AUDIENCE"; those that begin with "expired|" have expired. */
#ifndef HANSE_TESTS_SUPPORT_MEMORY_BACKEND_H
#define HANSE_TESTS_SUPPORT_MEMORY_BACKEND_H

#include "api/server/backend.h"

struct memory_backend;
struct memory_backend *memory_backend_create(struct loop *l);
struct memory_backend *memory_backend_destroy(struct memory_backend *m);
struct backend *memory_backend_table(struct memory_backend *m);
/* creates at once; for bootstrap documents */
void memory_backend_put(struct memory_backend *m, struct object *o);
void memory_backend_keep_changes(struct memory_backend *m, size_t n); /* older ones are let go */

#endif
