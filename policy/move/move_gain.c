/* Moves for gain: back to an earlier step of the order, to where the data is, to a cheaper place.
 * What a run would lose is part of every answer. None of them leads to a later step of the policy's
 * order than the run is on, and none makes worse what a cause that the policy names earlier looks
 * at, so that no cause undoes another's move. */
#include "policy/move/move_internal.h"

#include "api/base/failpoint.h"

#include <stdio.h>
#include <string.h>

uint32_t order_step_of(const struct placement_policy_spec *order, const struct object *target,
                       enum capacity capacity)
{
    for (uint32_t i = 0; order && i < order->n_order; i++) {
        const struct order_step *s = &order->order[i];
        bool kind = s->n_capacity == 0;

        for (uint32_t k = 0; k < s->n_capacity; k++)
            kind |= s->capacity[k] == capacity;
        if (kind && target_matches(s->targets, target))
            return i;
    }
    return NONE;
}

void move_figures(const struct moving *m, const struct row *r, struct move_choice *ret)
{
    struct need need = m->pl->need;

    need_at(m->pl, &need, &m->pl->p->t.groups[r->group]);
    double there = (double)need_milli(&need, r->gang.workers) / 1000;
    double again = m->lost_h * m->speed; /* work that is done twice, at speed 1 */

    ret->lost_gpu_s = m->gpus * m->lost_h * 3600;
    ret->cost = r->move_cost + r->price * there * RESTART_HOURS;
    ret->saving = 0;
    if (r->priced && m->here.group != NONE && m->here.priced && m->gpus > 0)
        ret->saving =
            m->gpus * (m->here.rate * m->left_h - r->rate * (m->left_h + again)) - ret->cost;
}

static bool elsewhere(const struct moving *m, const struct row *r)
{
    return r->fits && (r->target != m->here.target || r->group != m->here.group);
}

static uint32_t step_of(const struct moving *m, const struct row *r)
{
    return m->pl->order && m->pl->order->n_order ? r->rank / 8 : NONE;
}

static bool not_later(const struct moving *m, const struct row *r)
{
    return m->step == NONE || step_of(m, r) <= m->step;
}

/* Is what is left longer than what the move wastes? Where nobody knows, as long as it has run so
 * far. */
static bool outlives_move(const struct moving *m)
{
    return m->left_h > m->lost_h * m->speed + RESTART_HOURS;
}

static const char *target_name(const struct moving *m, const struct row *r)
{
    return m->pl->p->t.targets[r->target].name;
}

static struct row *repatriate(const struct moving *m, struct move_choice *ret)
{
    struct place *pl = m->pl;
    struct row *best = NULL;

    if (m->step == NONE || m->step == 0 || !outlives_move(m))
        return NULL;
    for (uint32_t i = 0; i < pl->n_rows; i++) {
        struct row *r = &pl->rows[i];

        if (elsewhere(m, r) && step_of(m, r) < m->step && (!best || row_better(pl, r, best)))
            best = r;
    }
    if (!best)
        return NULL;
    move_figures(m, best, ret);
    (void)snprintf(ret->why, sizeof(ret->why),
                   "%s, step %u of policy %s, has room again; it runs on %s, step %u",
                   target_name(m, best), step_of(m, best) + 1, pl->policy->meta->name,
                   m->at->target, m->step + 1);
    pl->chosen_because = "an earlier step of the policy's order has room again";
    return best;
}

/* Of the causes that a policy names the earlier ones come first: a move for a later one must not
 * make worse what an earlier one would then mend by a move back. */
static int64_t from_afar(const struct row *r)
{
    return r->move_bytes - r->move_state;
}
static bool respects_earlier(const struct moving *m, const struct row *r, enum move_cause cause)
{
    const struct migrate_policy *s = m->pl->order->migrate;

    for (uint32_t i = 0; i < s->n_when && s->when[i] != cause; i++) {
        if (s->when[i] == MOVE_CHEAPER && m->here.priced &&
            (!r->priced || money_above(r->rate, m->here.rate)))
            return false;
        if (s->when[i] == MOVE_DATA && m->here.group != NONE && from_afar(r) > from_afar(&m->here))
            return false;
    }
    return true;
}

static struct row *to_the_data(const struct moving *m, struct move_choice *ret)
{
    struct place *pl = m->pl;
    int64_t away = m->here.move_bytes - m->here.move_state;
    struct row *best = NULL;
    char bytes[32];

    if (!pl->spec->n_data || m->here.group == NONE || away <= 0 || !outlives_move(m))
        return NULL;
    for (uint32_t i = 0; i < pl->n_rows; i++) {
        struct row *r = &pl->rows[i];

        if (elsewhere(m, r) && not_later(m, r) && r->move_bytes == r->move_state &&
            respects_earlier(m, r, MOVE_DATA) && (!best || row_better(pl, r, best)))
            best = r;
    }
    if (!best)
        return NULL;
    move_figures(m, best, ret);
    quantity_print_bytes(away, bytes);
    (void)snprintf(ret->why, sizeof(ret->why), "all its data is on %s; %s reads %s from afar",
                   target_name(m, best), m->at->target, bytes);
    pl->chosen_because = "all its data is local";
    return best;
}

/* Hysteresis is the saving itself: the way back would have to bring as much again, and both moves'
 * cost. */
static struct row *to_cheaper(const struct moving *m, struct move_choice *ret)
{
    struct place *pl = m->pl;
    const struct migrate_policy *s = pl->order->migrate;
    double stay, least;
    struct row *best = NULL;
    struct move_choice c = {0};

    if (m->here.group == NONE || !m->here.priced || m->gpus <= 0 || m->left_h <= 0)
        return NULL;
    stay = m->gpus * m->here.rate * m->left_h;
    least = move_min_saving(s) * stay;
    for (uint32_t i = 0; i < pl->n_rows; i++) {
        struct row *r = &pl->rows[i];

        if (!elsewhere(m, r) || !not_later(m, r) || !r->priced ||
            !respects_earlier(m, r, MOVE_CHEAPER))
            continue;
        move_figures(m, r, &c);
        if ((c.saving <= least && !PLANTED("policy.any-saving")) ||
            (best &&
             (c.saving < ret->saving || (c.saving == ret->saving && !row_better(pl, r, best)))))
            continue;
        best = r;
        ret->lost_gpu_s = c.lost_gpu_s;
        ret->cost = c.cost;
        ret->saving = c.saving;
    }
    if (!best)
        return NULL;
    (void)snprintf(ret->why, sizeof(ret->why),
                   "%s costs %.2f per useful GPU-hour, %s %.2f: %.2f of the %.2f that are left to "
                   "pay%s are saved, after %.2f for the move",
                   target_name(m, best), best->rate, m->at->target, m->here.rate, ret->saving, stay,
                   m->left_guessed ? " (should it run as long again)" : "", ret->cost);
    pl->chosen_because = "cheaper than where it runs, by more than the move costs";
    return best;
}

struct row *move_gain(const struct moving *m, enum move_cause cause, struct move_choice *ret)
{
    switch (cause) {
    case MOVE_REPATRIATE:
        return repatriate(m, ret);
    case MOVE_DATA:
        return to_the_data(m, ret);
    case MOVE_CHEAPER:
        return to_cheaper(m, ret);
    default:
        return NULL;
    }
}
