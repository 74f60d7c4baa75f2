/* For tests of preemption: a pool made of few figures, running workloads on it, and the least harm
 * by trying every set of victims. */
#ifndef HANSE_TESTS_SUPPORT_POLICY_PREEMPT_LAB_H
#define HANSE_TESTS_SUPPORT_POLICY_PREEMPT_LAB_H

#include "api/base/limits.h"
#include "tests/support/unit.h"
#include "policy/policy.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NOW 1764547200000
#define LAB_MAX 4096

struct lab {
    struct pool *p;
    struct arena *a;
    struct object *made[LAB_MAX];
    uint32_t n_made;
    const struct object *classes[16], *queues[16];
    uint32_t n_classes, n_queues;
    uint64_t s;     /* of the random numbers */
    int64_t now_ms; /* of decisions; jobs are told by their age at NOW */
};

uint32_t lab_random(struct lab *k, uint32_t below);
void lab_init(struct lab *k, uint64_t seed);
void lab_fini(struct lab *k);
const struct object *lab_make(struct lab *k, enum kind_id kind, const void *body);
void lab_target(struct lab *k, const char *name);

struct lab_node {
    const char *name, *target, *rack;
    uint32_t gpus;
    int64_t cpu, memory;
    bool shared;
    uint32_t mig;  /* instances of 1g.10gb on each device, and half as many of 3g.40gb */
    uint32_t link; /* devices in one NVLink domain; 0 = not told */
    bool counted;  /* its GPUs have no numbers */
};
void lab_node(struct lab *k, struct lab_node n);
void lab_class(struct lab *k, const char *name, int64_t value, bool never, int64_t minimum_ms);
void lab_queue(struct lab *k, const char *name, int64_t guaranteed, int64_t burst);

struct lab_job {
    const char *name, *class_, *queue;
    uint32_t workers, gpus; /* of a worker */
    double fraction;
    const char *mig, *interconnect;
    enum domain_level within;
    int64_t cpu, memory;
    int64_t saved_s, placed_s; /* ago; saved 0 = no checkpoint */
    int64_t saved_bytes;
    enum phase phase;
    const char *migration;
    int64_t old_epoch; /* the checkpoint is of this epoch, not of the running one */
};

/* The document; with a placement also its status. */
const struct object *lab_job(struct lab *k, struct lab_job j, const struct placement *placement);
struct placement *lab_place(struct lab *k, const struct object *w);
/* Runs it where there is room; NULL when there is none. */
const struct object *lab_run(struct lab *k, struct lab_job j);
struct preempt_plan *lab_plan(struct lab *k, const struct object *w);
bool lab_victim(const struct preempt_plan *plan, const char *name);
/* Can w be placed once these have left? */
bool lab_fits_without(struct lab *k, const struct object *w, const struct object *const *gone,
                      size_t n);
int64_t lab_held(const char *queue, const char *class_, void *arg);

#endif
