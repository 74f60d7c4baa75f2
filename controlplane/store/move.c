/* The table of Migrations (move.def). It holds no state. */
#include "controlplane/store/store_internal.h"

struct transition {
    enum move_phase from;
    enum move_step step;
    enum move_phase to;
};
static const struct transition transitions[] = {
#define T(from, step, to) {MP_##from, MOVE_##step, MP_##to},
#include "controlplane/store/move.def"
#undef T
};

enum move_phase move_next(enum move_phase from, enum move_step step)
{
    for (size_t i = 0; i < sizeof transitions / sizeof transitions[0]; i++)
        if (transitions[i].from == from && transitions[i].step == step)
            return transitions[i].to;
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
