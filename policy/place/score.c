/* Scores: terms of 0 to 100 with the weights of the policy's preferences. Only candidates of the
 * first open step compete; equal scores go to the cheaper, then to the smaller device, then by the
 * seed. */
#include "policy/place/place_internal.h"

#include <string.h>

#define WATTS_REFERENCE 1000.0

void score_begin(struct place *pl)
{
    pl->pack = pl->need.prefer ? pl->need.prefer : LEVEL_RACK;
    pl->watts_reference = WATTS_REFERENCE;
    if (!pl->order || !pl->order->n_prefer) {
        pl->weight[TERM_COST] = 50;
        pl->weight[TERM_LOCALITY] = 30;
        pl->weight[TERM_TOPOLOGY] = 20;
        pl->locality_data = pl->locality_checkpoint = true;
        return;
    }
    for (uint32_t i = 0; i < pl->order->n_prefer; i++) {
        const struct preference *f = &pl->order->prefer[i];
        double w = (double)f->weight;
        bool both;

        if (f->cost) {
            pl->weight[TERM_COST] += w;
            pl->cost_reference = f->cost->reference;
        }
        if (f->locality) {
            pl->weight[TERM_LOCALITY] += w;
            both = !f->locality->data && !f->locality->checkpoint; /* neither named */
            pl->locality_data |= both || f->locality->data;
            pl->locality_checkpoint |= both || f->locality->checkpoint;
        }
        if (f->topology) {
            pl->weight[TERM_TOPOLOGY] += w;
            if (f->topology->pack)
                pl->pack = f->topology->pack;
        }
        if (f->energy) {
            pl->weight[TERM_ENERGY] += w;
            if (f->energy->referenceWatts > 0)
                pl->watts_reference = f->energy->referenceWatts;
        }
        if (f->targets && pl->n_near < 16) {
            pl->weight[TERM_TARGETS] += w;
            pl->near[pl->n_near] = f->targets;
            pl->near_weight[pl->n_near++] = w;
        }
    }
}

static double clamp(double v)
{
    return v < 0 ? 0 : v > 100 ? 100 : v;
}

static double cost_term(const struct place *pl, const struct row *r, double least)
{
    if (!r->priced)
        return 0;
    if (pl->cost_reference > 0)
        return clamp(100 * (1 - r->useful / pl->cost_reference));
    return r->useful > 0 ? clamp(100 * least / r->useful) : 100;
}

/* Share of the bytes that are there already, of those that the policy wants near. */
static double locality_term(const struct place *pl, const struct row *r)
{
    int64_t all = 0, move = 0;

    for (uint32_t i = 0; pl->locality_data && i < pl->spec->n_data; i++)
        all += object_as(pl->datasets[i], dataset)->spec->bytes;
    if (pl->locality_data)
        move += r->move_bytes - r->move_state;
    if (pl->locality_checkpoint && pl->status && pl->status->checkpoint) {
        all += pl->status->checkpoint->bytes;
        move += r->move_state;
    }
    return all > 0 ? clamp(100 * (1 - (double)move / (double)all)) : 100;
}

static double energy_term(const struct place *pl, const struct row *r)
{
    uint32_t class_ = pl->p->t.groups[r->group].class_;
    const struct gpu_class_spec *c = pl->p->t.classes[class_].spec;

    if (!c || c->watts <= 0)
        return pl->need.mode == NEED_CPU ? 100 : 0;
    return clamp(100 *
                 (1 - (double)c->watts / class_speed(&pl->p->t, class_) / pl->watts_reference));
}

static double targets_term(const struct place *pl, const struct row *r)
{
    double have = 0;

    for (uint32_t i = 0; i < pl->n_near; i++) {
        if (target_matches(pl->near[i], pl->p->t.targets[r->target].obj))
            have += pl->near_weight[i];
    }
    return pl->weight[TERM_TARGETS] > 0 ? 100 * have / pl->weight[TERM_TARGETS] : 0;
}

bool row_better(const struct place *pl, const struct row *a, const struct row *b)
{
    const struct table *t = &pl->p->t;
    const struct group *x = &t->groups[a->group], *y = &t->groups[b->group];

    if (a->rank != b->rank)
        return a->rank < b->rank;
    if (a->gang.workers != b->gang.workers)
        return a->gang.workers > b->gang.workers;
    if (a->score != b->score)
        return a->score > b->score;
    if (a->priced != b->priced)
        return a->priced;
    if (a->useful != b->useful)
        return a->useful < b->useful;
    if (pl->need.mode == NEED_CPU && x->max_dev != y->max_dev)
        return x->max_dev < y->max_dev; /* nodes without GPUs first */
    if (x->memory != y->memory)
        return x->memory < y->memory; /* large devices are kept for what needs them */
    if (a->tie != b->tie)
        return a->tie < b->tie;
    return a->group < b->group;
}

void score_rows(struct place *pl)
{
    double least = -1, weights = 0;

    for (uint32_t i = 0; i < pl->n_rows; i++) {
        const struct row *r = &pl->rows[i];

        if (r->fits && r->priced && (least < 0 || r->useful < least))
            least = r->useful;
    }
    for (int k = 0; k < TERM_NR; k++)
        weights += pl->weight[k];
    for (uint32_t i = 0; i < pl->n_rows; i++) {
        struct row *r = &pl->rows[i];
        double sum = 0;

        if (!r->fits)
            continue;
        r->term[TERM_COST] = cost_term(pl, r, least);
        r->term[TERM_LOCALITY] = locality_term(pl, r);
        r->term[TERM_TOPOLOGY] = r->packs > 0 ? 100.0 / r->packs : 100;
        r->term[TERM_ENERGY] = pl->weight[TERM_ENERGY] > 0 ? energy_term(pl, r) : 0;
        r->term[TERM_TARGETS] = pl->n_near ? targets_term(pl, r) : 0;
        for (int k = 0; k < TERM_NR; k++)
            sum += pl->weight[k] * r->term[k];
        r->score = weights > 0 ? sum / weights : 0;
        r->tie = pl->rq->seed ? (strmap_hash(pl->p->t.targets[r->target].name) ^ pl->rq->seed) *
                                    0x9e3779b97f4a7c15u
                              : 0;
        if (!pl->chosen || row_better(pl, r, pl->chosen))
            pl->chosen = r;
    }
}
