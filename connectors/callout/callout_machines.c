/* Machines and prices of a callout server: orders under keys, lists, renewals, releases. What an
 * answer says of a machine is told on ahead of the end of its call; an answer about another machine
 * than was asked for leaves the outcome unknown. */
#include "connectors/callout/callout_internal.h"

#include <stdio.h>
#include <string.h>

#define KEY_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"

/* ---- answers ---- */
static void machine_tell(const struct callout *c, const struct machine_seen *m)
{
    const struct connector_env *e = &c->base.env;

    if (e->events->machine)
        e->events->machine(e->arg, m);
}

static int machines_tell(const struct callout_call *k, const struct callout_machines *page,
                         struct err *err)
{
    for (uint32_t i = 0; i < page->n_machines; i++)
        if (strspn(page->machines[i].key, KEY_LETTERS) != strlen(page->machines[i].key))
            return err_set(err, E_UNKNOWN,
                           "target %.100s: the key of a machine is of letters, digits and -",
                           k->c->base.target);
    for (uint32_t i = 0; i < page->n_machines; i++)
        machine_tell(k->c, &page->machines[i]);
    return 0;
}

static int one_came(const struct callout_call *k, const struct web_answer *a, struct arena *mem,
                    struct err *err)
{
    struct machine_seen *m = NULL;
    int rc = callout_read(&schema_machine_seen, a, mem, (void **)&m, err);

    if (rc == 0 && strcmp(m->key, k->machine) != 0)
        rc = err_set(err, E_UNKNOWN,
                     "target %.100s answers for another machine than it was asked about",
                     k->c->base.target);
    if (rc == 0)
        machine_tell(k->c, m);
    return rc;
}

static int some_came(struct callout_call *k, const struct web_answer *a, struct arena *mem,
                     struct err *err)
{
    struct callout_machines *page = NULL;
    int rc = callout_read(&schema_callout_machines, a, mem, (void **)&page, err);

    if (rc == 0)
        rc = machines_tell(k, page, err);
    if (rc == 0 && k->op == CALLOUT_MACHINES)
        rc = callout_page_next(k, page->next, err);
    return rc;
}

static int prices_came(const struct callout_call *k, const struct web_answer *a, struct arena *mem,
                       struct err *err)
{
    struct callout_prices *p = NULL;
    const struct connector_env *e = &k->c->base.env;
    int rc = callout_read(&schema_callout_prices, a, mem, (void **)&p, err);

    if (rc == 0 && *p->currency && strlen(p->currency) != 3)
        rc = err_set(err, E_UNKNOWN, "target %.100s tells prices in a currency that is none",
                     k->c->base.target);
    if (rc == 0 && e->events->prices)
        e->events->prices(e->arg, p->prices, p->n_prices, p->currency);
    return rc;
}

void callout_machine_came(struct callout_call *k, const struct web_answer *a)
{
    struct err err;
    AUTO_ARENA mem = arena_create(CALLOUT_ANSWER_MAX * 16);
    int rc = k->op == CALLOUT_MACHINE  ? one_came(k, a, mem, &err)
             : k->op == CALLOUT_PRICES ? prices_came(k, a, mem, &err)
                                       : some_came(k, a, mem, &err);

    if (rc <= 0) /* otherwise the next page was asked for */
        callout_call_end(k, rc < 0 ? OUT_UNKNOWN : OUT_DONE, NULL, rc < 0 ? &err : NULL);
}

/* ---- asking ---- */
static void machine_ask(struct connector *base, const char *method, const struct machine_order *o,
                        struct call *call)
{
    struct callout_call *k = callout_call_make(callout_of(base), call, CALLOUT_MACHINE, NULL);
    char path[MACHINE_KEY_MAX + 16];
    struct err err;

    if (!*o->key || strlen(o->key) >= MACHINE_KEY_MAX ||
        strspn(o->key, KEY_LETTERS) != strlen(o->key)) {
        (void)err_set(&err, E_INVALID, "\"%.80s\" is no key of a machine", o->key);
        callout_call_reject(k, &err);
        return;
    }
    str_copy(k->machine, sizeof k->machine, o->key);
    (void)snprintf(path, sizeof path, "/machines/%s", o->key);
    callout_call_send(k, method, path, &schema_machine_order, o);
}

static void order(struct connector *base, const struct machine_order *o, struct call *call)
{
    machine_ask(base, "PUT", o, call);
}

static void release(struct connector *base, const struct machine_order *o, struct call *call)
{
    machine_ask(base, "DELETE", o, call);
}

static void list(struct connector *base, struct call *call)
{
    callout_call_send(callout_call_make(callout_of(base), call, CALLOUT_MACHINES, NULL), "GET",
                      "/machines?after=", NULL, NULL);
}

static void renew(struct connector *base, const char *const *keys, size_t n, uint64_t ttl_ms,
                  struct call *call)
{
    const struct connector_env *e = &base->env;
    int64_t time_ms = 0;
    const char *copy[MACHINES_RENEWED_MAX];

    PRE(n > 0 && n <= MACHINES_RENEWED_MAX);
    memcpy(copy, keys, n * sizeof *copy);
    const struct callout_renewal q = {.keys = copy,
                                      .n_keys = (uint32_t)n,
                                      .ttl_ms = ttl_ms,
                                      .cluster = e->cluster_uid ? e->cluster_uid(e->arg) : "",
                                      .state_rv = e->state_rv ? e->state_rv(e->arg, &time_ms) : 0};
    callout_call_send(callout_call_make(callout_of(base), call, CALLOUT_RENEWAL, NULL), "POST",
                      "/machines", &schema_callout_renewal, &q);
}

static void prices(struct connector *base, struct call *call)
{
    callout_call_send(callout_call_make(callout_of(base), call, CALLOUT_PRICES, NULL), "GET",
                      "/prices", NULL, NULL);
}

/* A server lists what it has accepted from its answer on (README.md). */
const struct machine_ops callout_machine_ops = {.lag_ms = 0,
                                                .order = order,
                                                .list = list,
                                                .renew = renew,
                                                .release = release,
                                                .prices = prices};
