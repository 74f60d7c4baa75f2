/* The table of reasons.def. */
#include "policy/policy.h"

#include <string.h>

enum whole { WHOLE_NEVER, WHOLE_HINTS, WHOLE_SHUT };

static const struct {
    const char *text, *sentence;
    int stage;
    enum reason_cure cure;
    enum whole whole;
} reasons[REASON_NR] = {
    [REASON_NONE] = {"", "", 0, CURE_NONE, WHOLE_HINTS},
#define R(c, t, g, u, w, s) [REASON_##c] = {t, s, g, CURE_##u, WHOLE_##w},
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

int reason_stage(enum reason r)
{
    return (unsigned)r < REASON_NR ? reasons[r].stage : 0;
}

enum reason_cure reason_cure(enum reason r)
{
    return (unsigned)r < REASON_NR ? reasons[r].cure : CURE_NONE;
}

bool reason_is_hopeless(enum reason r)
{
    return (unsigned)r < REASON_NR && reasons[r].whole != WHOLE_HINTS;
}

static bool is_cured(const char *text, unsigned cures)
{
    for (int r = REASON_NONE + 1; r < REASON_NR; r++)
        if (((unsigned)reasons[r].cure & cures) && strcmp(text, reasons[r].text) == 0)
            return true;
    return false;
}

bool policy_waits_for(const struct decision_spec *d, unsigned cures, bool candidates)
{
    bool any = is_cured(d->reason, cures);

    for (uint32_t i = 0; candidates && !any && i < d->n_candidates; i++)
        any = is_cured(d->candidates[i].reason, cures);
    return any;
}
