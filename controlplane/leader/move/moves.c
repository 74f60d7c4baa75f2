/* Figures about Migrations that ended while this brain led: counts by cause and outcome, and how
 * long their programs made no progress. */
#include "controlplane/leader/move/moves.h"

#include "controlplane/leader/move/mover.h"

static const uint64_t pause_le_ms[PAUSE_BUCKETS] = {50,   100,  250,   500,   1000,
                                                    2500, 5000, 15000, 60000, 300000};

void moves_count(struct brain *b, const struct object *before, const struct object *after)
{
    const struct migration *g = after ? object_as(after, migration) : NULL;
    const struct migration_status *was = before ? object_as(before, migration)->status : NULL;
    unsigned cause, outcome;

    if (!g || !g->status || move_open(g->status->phase) || (was && !move_open(was->phase)))
        return;
    cause = (unsigned)g->spec->cause;
    outcome = (unsigned)g->status->phase - MP_SUCCEEDED;
    if (cause >= MOVE_CAUSES || outcome > 2)
        return;
    b->moves->ended[cause][outcome]++;
    if (g->status->phase != MP_SUCCEEDED || g->status->pause <= 0)
        return;
    unsigned i = 0;
    while (i < PAUSE_BUCKETS && (uint64_t)g->status->pause > pause_le_ms[i])
        i++;
    b->moves->pause[i]++;
    b->moves->pauses++;
    b->moves->pause_sum_ms += (uint64_t)g->status->pause;
}

void moves_metrics(const struct brain *b, struct buf *out)
{
    uint64_t sum = 0;

    buf_printf(
        out,
        "# HELP hanse_movers Migrations under way\n# TYPE hanse_movers gauge\nhanse_movers %u\n"
        "# HELP hanse_migrations_total Migrations that ended, by cause and outcome\n"
        "# TYPE hanse_migrations_total counter\n",
        movers_count(b));
    for (unsigned c = 1; c < MOVE_CAUSES; c++)
        for (unsigned o = 0; o < 3; o++)
            if (b->moves->ended[c][o])
                buf_printf(out, "hanse_migrations_total{cause=\"%s\",outcome=\"%s\"} %llu\n",
                           move_cause_text((enum move_cause)c),
                           move_phase_text((enum move_phase)(MP_SUCCEEDED + o)),
                           (unsigned long long)b->moves->ended[c][o]);
    buf_str(out, "# HELP hanse_migration_pause_seconds from the signal to running again\n"
                 "# TYPE hanse_migration_pause_seconds histogram\n");
    for (unsigned i = 0; i < PAUSE_BUCKETS; i++) {
        sum += b->moves->pause[i];
        buf_printf(out, "hanse_migration_pause_seconds_bucket{le=\"%g\"} %llu\n",
                   (double)pause_le_ms[i] / 1000, (unsigned long long)sum);
    }
    buf_printf(out,
               "hanse_migration_pause_seconds_bucket{le=\"+Inf\"} %llu\n"
               "hanse_migration_pause_seconds_sum %g\nhanse_migration_pause_seconds_count %llu\n",
               (unsigned long long)b->moves->pauses, (double)b->moves->pause_sum_ms / 1000,
               (unsigned long long)b->moves->pauses);
}
