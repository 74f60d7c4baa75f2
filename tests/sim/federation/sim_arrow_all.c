/* All arrows of one cause: undisturbed first, which tells the phases and failpoints that are
 * passed; then a crash of each party at each of them. */
#include "tests/sim/federation/sim_federation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fed_outcome life(uint64_t seed, const struct fed_arrow *a)
{
    return fed_run_apart(seed, &(struct fed_script){.steps = true, .moves = true, .arrow = a});
}
static uint64_t seeds_wanted(uint64_t otherwise)
{
    const char *s = getenv("HANSE_SIM_SEEDS");

    return s ? strtoull(s, NULL, 10) : otherwise;
}
static void name_of(const struct fed_arrow *a, char out[128])
{
    (void)snprintf(out, 128, "%s %s %s", move_cause_text(a->cause),
                   *a->point  ? a->point
                   : a->phase ? move_phase_text(a->phase)
                              : "-",
                   fed_party_text(a->party));
}

struct table {
    uint64_t seeds;
    unsigned run, failed, missed;
    int64_t lost, most;
};
static void one(struct table *t, const struct fed_arrow *a, struct fed_outcome *ret)
{
    const char *only = getenv("HANSE_SIM_ARROW");
    char name[128];

    name_of(a, name);
    if (only && strcmp(only, name) && a->party)
        return;
    for (uint64_t seed = 1; seed <= t->seeds; seed++) {
        struct fed_outcome o = life(seed, a);
        if (*o.failed) {
            (void)fprintf(stderr, "%s, seed %llu: %s\n", name, (unsigned long long)seed, o.failed);
            t->failed++;
        }
        if (a->party && !o.died)
            t->missed++;
        t->run++;
        t->lost += o.lost_steps;
        t->most = t->most > o.lost_steps ? t->most : o.lost_steps;
        if (ret && seed == 1)
            *ret = o;
    }
}
unsigned fed_arrow_all(enum move_cause cause, uint64_t seeds)
{
    struct fed_outcome quiet = {0};
    struct table t = {.seeds = seeds_wanted(seeds)};

    one(&t, &(struct fed_arrow){.cause = cause}, &quiet);
    if ((!quiet.moves[MP_SUCCEEDED] || !quiet.causes[cause]) && !t.failed) {
        (void)fprintf(stderr, "%s: undisturbed, nothing moved for it\n", move_cause_text(cause));
        t.failed++;
    }
    for (int p = MP_PENDING; p <= MP_SUCCEEDED; p++)
        for (int who = PARTY_LEADER; quiet.arrow_phases & 1u << p && who < PARTY_NR; who++)
            one(&t,
                &(struct fed_arrow){
                    .cause = cause, .phase = (enum move_phase)p, .party = (enum fed_party)who},
                NULL);
    for (unsigned i = 0; i < quiet.n_points; i++) {
        struct fed_arrow a = {.cause = cause, .party = PARTY_LEADER};
        str_copy(a.point, sizeof a.point, quiet.points[i]);
        one(&t, &a, NULL);
    }
    (void)printf("%-12s %u failpoints, %u lives, %u without their crash, steps lost: %lld in all, "
                 "at most %lld\n",
                 move_cause_text(cause), quiet.n_points, t.run, t.missed, (long long)t.lost,
                 (long long)t.most);
    (void)fflush(stdout);
    return t.failed;
}
