/* The tables of the epoch machine (epoch.def; controlplane/DESIGN.md, One run, never two) and of
 * Migrations (move.def), and the names of all steps. It holds no state. */
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
                                        "Save",    "Claim",      "Close",         "Use"};

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

/* ---- Migrations ---- */
struct move_row {
    enum move_phase from;
    enum move_step step;
    enum move_phase to;
};
static const struct move_row move_rows[] = {
#define T(from, step, to) {MP_##from, MOVE_##step, MP_##to},
#include "controlplane/store/move.def"
#undef T
};

enum move_phase move_next(enum move_phase from, enum move_step step)
{
    for (size_t i = 0; i < sizeof move_rows / sizeof move_rows[0]; i++)
        if (move_rows[i].from == from && move_rows[i].step == step)
            return move_rows[i].to;
    return (enum move_phase)0;
}

const char *move_step_text(enum move_step s)
{
    static const char *const names[] = {"?",      "Begin", "Reserve", "Wait",   "Quiesce",
                                        "Verify", "Stage", "Start",   "Commit", "Abort"};

    _Static_assert(sizeof names / sizeof names[0] == MOVE_ABORT + 1, "a name for each step");
    return (int)s > 0 && s <= MOVE_ABORT ? names[s] : names[0];
}

bool move_open(enum move_phase p)
{
    return p >= MP_PENDING && p <= MP_STARTING;
}

bool move_holds(enum move_phase p)
{
    return p >= MP_QUIESCING && p <= MP_FENCING;
}

/* ---- machines, whose target tells in which state they are ---- */
const char *machine_step_text(enum machine_step s)
{
    static const char *const names[] = {"?",     "Order",   "Seen", "Refused",
                                        "Renew", "Release", "Ended"};

    _Static_assert(sizeof names / sizeof names[0] == MACHINE_STEP_LAST + 1, "a name for each step");
    return (int)s > 0 && s <= MACHINE_STEP_LAST ? names[s] : names[0];
}
