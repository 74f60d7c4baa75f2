/* Price tables: which line of its Target's sheet prices a group of devices, and the price. */
#include "policy/pool/pool_internal.h"

#include <string.h>

/* An own device may cost 0, which the field's bit tells. */
#define PLACE_OF(type, c, ...) PLACE_##c,
enum { SCHEMA_gpu_price(PLACE_OF) };
#undef PLACE_OF
#define GIVEN(g, c) ((g)->c > 0 || ((g)->has >> PLACE_##c & 1))

static bool sheet_valid(const struct price_sheet_spec *s, int64_t now_ms)
{
    return (!s->validFrom || now_ms >= s->validFrom) && (!s->validUntil || now_ms < s->validUntil);
}

bool price_of(const struct group *g, int64_t now_ms, double *ret_price)
{
    const struct gpu_price *p = g->price;

    if (!p || !sheet_valid(g->sheet, now_ms))
        return false;
    switch (g->capacity) {
    case CAPACITY_OWNED:
        *ret_price = p->amortised;
        return GIVEN(p, amortised);
    case CAPACITY_RESERVED:
        *ret_price = p->reserved;
        return GIVEN(p, reserved);
    case CAPACITY_SPOT:
        *ret_price = p->spot;
        return GIVEN(p, spot);
    default:
        *ret_price = p->onDemand;
        return GIVEN(p, onDemand);
    }
}

/* Which line of its target's sheet prices a group: that of the region goes before that of all
 * regions. */
void table_prices(struct pool *p)
{
    struct table *t = &p->t;

    for (uint32_t i = 0; i < t->n_groups; i++) {
        struct group *g = &t->groups[i];
        const struct target_spec *s = t->targets[g->target].spec;
        const struct object *o = s ? docs_get(&p->docs[KIND_PRICE_SHEET], "", s->priceSheet) : NULL;

        g->price = NULL;
        g->sheet = o ? object_as(o, price_sheet)->spec : NULL;
        for (uint32_t k = 0; o && k < g->sheet->n_gpuHour; k++) {
            const struct gpu_price *line = &g->sheet->gpuHour[k];

            if (strcmp(line->class_, t->classes[g->class_].name) != 0)
                continue;
            if (line->region[0] ? strcmp(line->region, s->region) == 0 : !g->price)
                g->price = line;
        }
    }
    p->prices_dirty = false;
}

bool policy_gpu_hour(const struct pool *cp, const char *node, const char *class_, int64_t now_ms,
                     struct gpu_hour *ret)
{
    const struct table *t = &pool_settle(cp)->t;
    uint32_t at = strmap_get(&t->node_by_name, node);

    for (uint32_t m = at == NONE ? NONE : t->nodes[at].member; m != NONE; m = t->members[m].next) {
        const struct group *g = &t->groups[t->members[m].group];

        if (strcmp(t->classes[g->class_].name, class_) == 0 &&
            price_of(g, now_ms, &ret->price)) {
            ret->currency = g->sheet->currency;
            return true;
        }
    }
    return false;
}

/* ---- data: what must be moved, from where, for how much ---- */
