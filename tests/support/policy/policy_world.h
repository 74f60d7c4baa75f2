/* For tests of policy/: documents written as YAML, a pool made of them, and one decision on it. */
#ifndef HANSE_TESTS_SUPPORT_POLICY_POLICY_WORLD_H
#define HANSE_TESTS_SUPPORT_POLICY_POLICY_WORLD_H

#include "api/base/limits.h"
#include "tests/support/unit.h"
#include "policy/policy.h"

#include <cJSON.h>
#include <stdio.h>
#include <string.h>

#define NOW 1764547200000 /* 2025-12-01T00:00:00Z, a Monday */
#define WORLD_MAX 8192

struct world {
    struct pool *p;
    struct arena *a;
    struct object *made[WORLD_MAX];
    size_t n_made;
    struct decision_spec *d;
    struct placement *pl;
};

/* Decodes all documents of a text; status fields are taken. Returns the last. */
const struct object *world_docs(struct world *w, const char *text, bool put);
/* The same, larger than any object of the state: a changed copy of it cannot be made. */
const struct object *world_large(struct world *w, const struct object *o);
void world_put(struct world *w, const char *text);
void world_init(struct world *w);
void world_fini(struct world *w);
/* For cmocka: *state is a world of its own for each test. */
int world_setup(void **state);
int world_teardown(void **state);
/* n nodes NAME1… of 8 (or gpus) devices on a target, two to a rack. */
void world_nodes(struct world *w, const char *target, int n, int gpus, const char *class_,
                 const char *more);
void world_target(struct world *w, const char *name, const char *more);
const struct object *world_workload(struct world *w, const char *name, const char *spec);
void world_decide_at(struct world *w, const struct object *o, int64_t now);
/* Decides on a workload and, when it is placed, holds it. */
void world_run(struct world *w, const char *name, const char *spec);
/* What the decision says of a target. */
const struct candidate *world_row(const struct world *w, const char *target);

#define assert_placed(w, t)                                                                        \
    do {                                                                                           \
        if (!(w)->pl)                                                                              \
            fail_msg("pending: %s: %s", (w)->d->reason, (w)->d->message);                          \
        assert_string_equal((w)->pl->target, (t));                                                 \
    } while (0)
#define assert_pending(w, code)                                                                    \
    do {                                                                                           \
        if ((w)->pl)                                                                               \
            fail_msg("placed on %s", (w)->pl->target);                                             \
        assert_string_equal((w)->d->reason, (code));                                               \
    } while (0)

#endif
