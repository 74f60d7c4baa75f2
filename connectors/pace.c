/* See pace.h. */
#include "connectors/pace.h"

/* An election (under a second), its loss noticed by who holds a lease, a new session, a round. */
#define LEASE_FIRM_MS 6000
#define SILENCE_MIN_MS 2500
#define BEAT_MIN_MS 250
#define REDIAL_MS 5000
#define REDIAL_MAX_MS 120000
#define REFUSALS_PROMPT 12

uint64_t pace_save_ms(uint64_t lease_ms, uint64_t grace_ms)
{
    uint64_t most = lease_ms / 2;

    if (lease_ms - most < LEASE_FIRM_MS)
        most = lease_ms > LEASE_FIRM_MS + lease_ms / 4 ? lease_ms - LEASE_FIRM_MS : lease_ms / 4;
    return grace_ms < most ? grace_ms : most;
}

uint64_t pace_silence_ms(uint64_t lease_ms, uint64_t otherwise_ms)
{
    uint64_t ms = lease_ms / 16 * 3;

    if (!lease_ms)
        return otherwise_ms;
    ms = ms > SILENCE_MIN_MS ? ms : SILENCE_MIN_MS;
    return ms < otherwise_ms ? ms : otherwise_ms;
}

uint64_t pace_redial_ms(uint64_t lease_ms, unsigned refusals)
{
    unsigned doubled = refusals > REFUSALS_PROMPT ? refusals - REFUSALS_PROMPT : 0;
    uint64_t ms = (uint64_t)REDIAL_MS << (doubled < 8 ? doubled : 8);

    if (lease_ms)
        return REDIAL_MS;
    return ms < REDIAL_MAX_MS ? ms : REDIAL_MAX_MS;
}

uint64_t pace_beat_ms(uint64_t lease_ms)
{
    uint64_t ms = lease_ms ? lease_ms / 16 : BEAT_MS;

    ms = ms > BEAT_MIN_MS ? ms : BEAT_MIN_MS;
    return ms < BEAT_MS ? ms : BEAT_MS;
}

uint64_t pace_lease_from(uint64_t beat_ms, uint64_t age_ms)
{
    uint64_t before = age_ms < ROUND_MS ? ROUND_MS - age_ms : 0;

    return beat_ms > before ? beat_ms - before : 0;
}
