/* The epoch machine's table (epoch.def; controlplane/DESIGN.md, One run, never two). It holds no
 * state. */
#include "controlplane/store/store_internal.h"

struct transition {
    enum phase from;
    enum run_step step;
    enum phase to;
};
static const struct transition transitions[] = {
#define T(from, step, to) {PHASE_##from, STEP_##step, PHASE_##to},
#include "controlplane/store/epoch.def"
#undef T
};

enum phase epoch_next(enum phase from, enum run_step step)
{
    for (size_t i = 0; i < sizeof transitions / sizeof transitions[0]; i++)
        if (transitions[i].from == from && transitions[i].step == step)
            return transitions[i].to;
    return (enum phase)0;
}

const char *run_step_text(enum run_step s)
{
    static const char *const names[] = {"?",       "Dispatch",   "Accepted",      "Running",
                                        "Ended",   "Absent",     "Unknown",       "Seen",
                                        "Quiesce", "Stop",       "Requeue",       "LeaseOver",
                                        "Fenced",  "Checkpoint", "CheckpointBad", "CheckpointFound",
                                        "Offer",   "Grant",      "Pending",       "Seated",
                                        "Save",    "Claim"};

    _Static_assert(sizeof names / sizeof names[0] == STEP_LAST + 1, "a name for each step");
    return (int)s > 0 && s <= STEP_LAST ? names[s] : names[0];
}

bool phase_live(enum phase p)
{
    return p == PHASE_DISPATCHING || p == PHASE_STARTING || p == PHASE_RUNNING ||
           p == PHASE_QUIESCING || p == PHASE_UNKNOWN;
}

bool phase_holds(enum phase p)
{
    return p == PHASE_RESERVED || phase_live(p);
}

bool phase_final(enum phase p)
{
    return p == PHASE_SUCCEEDED || p == PHASE_FAILED || p == PHASE_CANCELLED;
}

int64_t epoch_ended(const struct workload_status *s)
{
    for (uint32_t i = s->n_ends; i > 0; i--)
        if (s->ends[i - 1].proof != PROOF_NEVER_STARTED)
            return s->ends[i - 1].epoch;
    return 0;
}

int64_t epoch_following(const struct workload_status *s)
{
    return (s->epochFloor > s->epoch ? s->epochFloor : s->epoch) + 1;
}
