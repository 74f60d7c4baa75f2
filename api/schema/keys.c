/* Lists whose items have a KEY: server-side apply and managedFields know an item by it, and whoever
 * acts upon the list takes one of two with the same. So no two may have it. Rows of a PriceSheet
 * are told apart by class and region, which are no KEY: a row may have no region.
 *
 * This file must never refuse to leave as it is what an older version let in. */
#include "api/base/mem.h"
#include "api/schema/schema_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

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

/* A name, an IPv4 or an IPv6 address; programs put a port behind it. */
static bool address_ok(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:");
    unsigned colons = 0;

    for (const char *p = s; *p; p++)
        colons += *p == ':';
    return s[n] == '\0' && s[0] != '-' && s[0] != '.' && colons != 1;
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
    for (uint32_t i = 0; i < s->n_agents; i++)
        if (!address_ok(s->agents[i].address))
            return err_field(err, E_INVALID, "spec.agents[].address",
                             "\"%.64s\": an IP address or a host name, without a port",
                             s->agents[i].address);
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

/* ---- whose name runs of a Target go by (spec.principals) ---- */
static bool among(const char *const *v, uint32_t n, const char *s)
{
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(v[i], s))
            return true;
    return false;
}

const struct target_principal *target_principal_of(const struct target_spec *s, const char *ns,
                                                   const char *queue)
{
    const struct target_principal *whole = NULL, *rest = NULL;

    for (uint32_t i = 0; i < s->n_principals; i++) {
        const struct target_principal *p = &s->principals[i];
        bool mine = among(p->namespaces, p->n_namespaces, ns);
        if (mine && among(p->queues, p->n_queues, queue))
            return p;
        if (mine && !p->n_queues && !whole)
            whole = p;
        if (!p->n_namespaces && !rest)
            rest = p;
    }
    return whole ? whole : rest;
}

static bool plain(const char *name)
{
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 127)
            return false;
    return true;
}

static int row_check(const struct target_principal *p, uint32_t i, struct err *err)
{
    char at[64];

    (void)snprintf(at, sizeof at, "spec.principals[%" PRIu32 "].name", i);
    if (!plain(p->name))
        return err_field(err, E_INVALID, at,
                         "has a space or a control character: write it as the target does");
    for (uint32_t k = 0; k < p->n_namespaces; k++) {
        (void)snprintf(at, sizeof at, "spec.principals[%" PRIu32 "].namespaces[%" PRIu32 "]", i, k);
        if (!object_name_valid(p->namespaces[k]) || strchr(p->namespaces[k], '.'))
            return err_field(err, E_INVALID, at,
                             "\"%.80s\" is no name of a namespace; a row without namespaces stands "
                             "for those that no other row names",
                             p->namespaces[k]);
    }
    for (uint32_t k = 0; k < p->n_queues; k++) {
        (void)snprintf(at, sizeof at, "spec.principals[%" PRIu32 "].queues[%" PRIu32 "]", i, k);
        if (!object_name_valid(p->queues[k]))
            return err_field(err, E_INVALID, at, "\"%.80s\" is no name of a Queue", p->queues[k]);
    }
    return 0;
}

/* No two rows may stand for the same namespace and Queue: one of them would be passed over. */
#define CLAIMS_MAX (1u << 16) /* rows by namespaces by Queues, of all rows */

struct claim {
    const char *ns, *queue; /* "": all that no other row names */
    uint32_t row;
};

static int by_claim(const void *a, const void *b)
{
    const struct claim *x = a, *y = b;
    int c = strcmp(x->ns, y->ns);

    if (c == 0)
        c = strcmp(x->queue, y->queue);
    return c ? c : (x->row > y->row) - (x->row < y->row);
}

static size_t claims_count(const struct target_spec *s)
{
    size_t n = 0;

    for (uint32_t i = 0; i < s->n_principals; i++) {
        const struct target_principal *p = &s->principals[i];
        n += (size_t)(p->n_namespaces ? p->n_namespaces : 1) * (p->n_queues ? p->n_queues : 1);
    }
    return n;
}

static size_t claims_fill(const struct target_spec *s, struct claim *v)
{
    size_t n = 0;

    for (uint32_t i = 0; i < s->n_principals; i++) {
        const struct target_principal *p = &s->principals[i];
        for (uint32_t k = 0; k < p->n_namespaces || (k == 0 && !p->n_namespaces); k++)
            for (uint32_t q = 0; q < p->n_queues || (q == 0 && !p->n_queues); q++)
                v[n++] = (struct claim){p->n_namespaces ? p->namespaces[k] : "",
                                        p->n_queues ? p->queues[q] : "", i};
    }
    return n;
}

static int claimed_twice(const struct claim *a, const struct claim *b, struct err *err)
{
    char at[64];

    (void)snprintf(at, sizeof at, "spec.principals[%" PRIu32 "]", b->row);
    if (a->row == b->row)
        return err_field(err, E_INVALID, at, "names \"%.80s\" twice: leave one of them out",
                         *b->queue ? b->queue : b->ns);
    if (!*b->ns)
        return err_field(err, E_INVALID, at,
                         "has no namespaces, as spec.principals[%" PRIu32
                         "] has none: only one row may stand for all that no other one names",
                         a->row);
    return err_field(err, E_INVALID, at,
                     "stands for namespace \"%.63s\"%s%.80s%s, which spec.principals[%" PRIu32
                     "] does, too: leave one of them out",
                     b->ns, *b->queue ? " and Queue \"" : "", b->queue, *b->queue ? "\"" : "",
                     a->row);
}

static int principals_check(const struct target_spec *s, struct err *err)
{
    size_t n = claims_count(s);
    int r = 0;

    for (uint32_t i = 0; i < s->n_principals; i++)
        if ((r = row_check(&s->principals[i], i, err)) < 0)
            return r;
    if (n > CLAIMS_MAX)
        return err_field(err, E_INVALID, "spec.principals",
                         "names %zu pairs of a namespace and a Queue, %u is the limit", n,
                         CLAIMS_MAX);
    AUTO_ARENA a = arena_create(0);
    struct claim *v = arena_array(a, struct claim, n + 1);
    n = claims_fill(s, v);
    qsort(v, n, sizeof *v, by_claim);
    for (size_t i = 1; i < n; i++)
        if (strcmp(v[i - 1].ns, v[i].ns) == 0 && strcmp(v[i - 1].queue, v[i].queue) == 0)
            return claimed_twice(&v[i - 1], &v[i], err);
    return 0;
}

int principals_admit(const struct object *old, const struct object *now, struct err *err)
{
    struct err unused;

    if (old && principals_check(object_as(old, target)->spec, &unused) < 0)
        return 0;
    return principals_check(object_as(now, target)->spec, err);
}
