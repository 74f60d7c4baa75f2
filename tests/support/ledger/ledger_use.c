/* How busy GPUs are: what a target may tell of it in the random federation, also more than there
 * are, and times that never were; and what the plain replay makes of it. */
#include "tests/support/ledger/ledger_model_internal.h"
#include "tests/support/ledger/ledger_world.h"

struct gpu_use *ledger_use_rnd(uint64_t seed, int64_t gpus, int64_t now, struct arena *a)
{
    struct gpu_use *u = arena_new(a, struct gpu_use);

    u->measured = (int64_t)(seed % ((uint64_t)gpus + 1500));
    u->idle = seed / 7 % 2 ? (int64_t)(seed / 14 % ((uint64_t)gpus + 500)) : 0;
    u->idleSince = now - (int64_t)(seed / 3 % 90000) + (int64_t)(seed / 5 % 3000);
    u->percent = (int64_t)(seed % 120);
    if (seed / 13 % 3 == 0) {
        u->measuredFor = (int64_t)(seed / 17 % 90000);
        u->idleSum = (int64_t)(seed / 19 % 90000) * (int64_t)(seed / 23 % ((uint64_t)gpus + 300));
    }
    return seed / 11 % 8 ? u : NULL;
}

void model_use_book(struct ledger_model *m, const struct alloc *a, int64_t measured, int64_t idle,
                    int64_t from, int64_t to)
{
    struct line_key k = a->line;

    if (measured + idle == 0)
        return;
    alloc_owner(m, &k, a->owner);
    k.cause = LEDGER_MEASURED;
    book_days(&m->book, k, measured, from, to);
    k.cause = LEDGER_HELD_IDLE;
    book_days(&m->book, k, idle, from, to);
}

/* What was booked since the entry before is taken back: what was told of that time counts. */
static void sums_book(struct ledger_model *m, const struct alloc *a, const struct gpu_use *u)
{
    int64_t from = a->measured_at, ms = u->measuredFor, most;

    model_use_book(m, a, -a->measured, -a->idle, from, m->now);
    ms = ms < m->now - from ? ms : m->now - from;
    if (ms <= 0)
        return;
    model_use_book(m, a, a->measured, 0, from, from + ms);
    most = a->measured * ms;
    most = u->idleSum < most ? u->idleSum : most;
    model_use_book(m, a, 0, most / ms, from, from + ms);
    model_use_book(m, a, 0, 1, from, from + most % ms);
}

/* Those that are found idle have been since then, as far as they were measured. */
void model_use_change(struct ledger_model *m, struct alloc *a, const struct workload_status *s)
{
    const struct gpu_use *u = s->phase == PHASE_RUNNING ? s->gpuUse : NULL;
    int64_t more = u ? u->idle - a->idle : 0;

    if (u && u->at == a->measured_at && u->measured == a->measured && u->idle == a->idle)
        return;
    if (u && u->measuredFor) {
        sums_book(m, a, u);
        more = 0;
    }
    if (more > a->measured - a->idle)
        more = a->measured - a->idle;
    if (more > 0)
        model_use_book(m, a, 0, more,
                       u->idleSince > a->measured_at ? u->idleSince : a->measured_at, m->now);
    a->measured = u ? u->measured : 0;
    a->idle = u ? u->idle : 0;
    a->measured_at = u ? u->at : 0;
}
