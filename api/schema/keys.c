/* Lists whose items have a KEY: server-side apply and managedFields know an item by it, and whoever
 * acts upon the list takes one of two with the same. So no two may have it. Rows of a PriceSheet
 * are told apart by class and region, which are no KEY: a row may have no region.
 *
 * This file must never refuse to leave as it is what an older version let in. */
#include "api/schema/schema_internal.h"

#include <inttypes.h>
#include <stdio.h>

static const struct field *key_of(const struct schema *s)
{
    schema_for_each (f, s) {
        if (f->flags & FIELD_KEY)
            return f;
    }
    return NULL;
}

static bool same_key(const struct field *key, const void *a, const void *b)
{
    if (key->type == T_STR)
        return !strcmp(member_str(key, a), member_str(key, b));
    return member_int(key, a) == member_int(key, b);
}

static const void *item(const struct field *list, const void *body, uint32_t i)
{
    return *(const char *const *)member(list, body) + (size_t)i * list->sub->size;
}

static int item_twice(const struct path *at, const struct field *list, const void *body, uint32_t i,
                      struct err *err)
{
    const struct field *key = key_of(list->sub);
    const void *it = item(list, body, i);
    struct path index = {at, NULL, i}, field = {&index, key ? key->json : "", 0};
    char number[24];

    for (uint32_t k = 0; key && k < i; k++) {
        if (!same_key(key, item(list, body, k), it))
            continue;
        (void)snprintf(number, sizeof number, "%" PRId64,
                       key->type == T_STR ? 0 : member_int(key, it));
        return path_error(err, &field, "\"%.80s\" is that of item %u, too: leave one of them out",
                          key->type == T_STR ? member_str(key, it) : number, k);
    }
    return 0;
}

static int keys_twice(const struct path *up, const struct schema *s, const void *body,
                      struct err *err)
{
    int r = 0;

    schema_for_each (f, s) {
        struct path at = {up, f->json, 0};

        if (f->flags & FIELD_STATUS || (f->type != T_OBJ && f->type != T_LIST) ||
            !member_present(f, body))
            continue;
        if (f->type == T_OBJ)
            r = keys_twice(&at, f->sub, *(const void *const *)member(f, body), err);
        for (uint32_t i = 0; r == 0 && f->type == T_LIST && i < member_count(f, body); i++) {
            struct path index = {&at, NULL, i};
            r = item_twice(&at, f, body, i, err);
            if (r == 0)
                r = keys_twice(&index, f->sub, item(f, body, i), err);
        }
        if (r < 0)
            return r;
    }
    return 0;
}

/* Two rows of one class and region: only one of them would price. */
static int rows_twice(const struct price_sheet_spec *s, struct err *err)
{
    char at[64];

    for (uint32_t i = 0; i < s->n_gpuHour; i++)
        for (uint32_t k = 0; k < i; k++) {
            const struct gpu_price *p = &s->gpuHour[i], *q = &s->gpuHour[k];

            if (strcmp(p->class_, q->class_) != 0 || strcmp(p->region, q->region) != 0)
                continue;
            (void)snprintf(at, sizeof at, "spec.gpuHour[%" PRIu32 "]", i);
            return err_field(err, E_INVALID, at,
                             "prices \"%s\" %s%s%s, which spec.gpuHour[%" PRIu32
                             "] does, too: leave one of them out",
                             p->class_, *p->region ? "in region \"" : "in every region", p->region,
                             *p->region ? "\"" : "", k);
        }
    return 0;
}

int rows_admit(const struct object *old, const struct object *now, struct err *err)
{
    struct err unused;

    if (old && rows_twice(object_as(old, price_sheet)->spec, &unused) < 0)
        return 0;
    return rows_twice(object_as(now, price_sheet)->spec, err);
}

int keys_admit(const struct object *old, const struct object *now, struct err *err)
{
    struct err unused;

    if (old && keys_twice(NULL, old->kind->schema, old->body, &unused) < 0)
        return 0;
    return keys_twice(NULL, now->kind->schema, now->body, err);
}

/* ---- the agents of a Target that has several ---- */
/* The log has the list, so that everybody knows whose silence counts; a part that went out of it
 * with work would be silent for ever, and nobody would know. */
static bool label_ok(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-");

    return n > 0 && n <= 63 && s[n] == '\0' && s[0] != '-' && s[n - 1] != '-';
}

const struct target_agent *target_agent_find(const struct target_spec *s, const char *name)
{
    for (uint32_t i = 0; i < s->n_agents; i++)
        if (strcmp(s->agents[i].name, name) == 0)
            return &s->agents[i];
    return NULL;
}

int agents_admit(const struct object *old, const struct object *now, struct err *err)
{
    const struct target_spec *s = object_as(now, target)->spec;
    const struct target_spec *was = old ? object_as(old, target)->spec : NULL;

    if (s->n_agents && !target_can(s->type, CAN_DIAL_IN))
        return err_field(err, E_INVALID, "spec.agents", "is for targets of type agent alone");
    for (uint32_t i = 0; i < s->n_agents; i++)
        if (!label_ok(s->agents[i].name))
            return err_field(err, E_INVALID, "spec.agents[].name",
                             "\"%.64s\": lower-case letters, digits and -, which neither begins "
                             "nor ends it",
                             s->agents[i].name);
    if (!was)
        return 0;
    if (!was->n_agents != !s->n_agents)
        return err_field(err, E_INVALID, "spec.agents",
                         "a target has agents from its creation on, or never: what runs there "
                         "would be looked for where it never was; drain it, delete it and make it "
                         "anew");
    for (uint32_t i = 0; i < was->n_agents; i++)
        if (!target_agent_find(s, was->agents[i].name))
            return err_field(err, E_INVALID, "spec.agents",
                             "\"%.64s\" was taken away: nobody would know any more what became of "
                             "what it runs; leave it in the list",
                             was->agents[i].name);
    return 0;
}
