/* Names of the reasons, from reasons.def. */
#include "policy/policy.h"

static const struct {
    const char *text, *sentence;
} reasons[REASON_NR] = {
    [REASON_NONE] = {"", ""},
#define R(c, t, s) [REASON_##c] = {t, s},
#include "policy/reasons.def"
#undef R
};

const char *reason_text(enum reason r)
{
    return (unsigned)r < REASON_NR ? reasons[r].text : "";
}

const char *reason_sentence(enum reason r)
{
    return (unsigned)r < REASON_NR ? reasons[r].sentence : "";
}

bool reason_is_room(enum reason r)
{
    return r == REASON_GPU_BUSY || r == REASON_GANG || r == REASON_CHECKPOINT_RANKS ||
           r == REASON_TOPOLOGY || r == REASON_CPU || r == REASON_MEMORY || r == REASON_MIG ||
           r == REASON_FRACTION;
}
