/* Machines and prices of a callout server: orders under keys, lists, renewals, releases. What an
 * answer says of a machine is told on ahead of the end of its call; what cannot be read of it, or
 * is of another machine than was asked for, is told as that, and leaves the outcome unknown. */
#include "connectors/callout/callout_internal.h"

#include <cjson/cJSON.h>
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

/* What cannot be read is told by its key, as far as that can be. */
static void unread_tell(const struct callout *c, const char *key, const char *why)
{
    const struct connector_env *e = &c->base.env;
    bool known = *key && strlen(key) < MACHINE_KEY_MAX && strspn(key, KEY_LETTERS) == strlen(key);

    if (e->events->machine_unread)
        e->events->machine_unread(e->arg, known ? key : "", why);
}

static int row_read(const struct callout_call *k, const cJSON *row, struct arena *mem,
                    struct machine_seen **ret, struct err *err)
{
    int rc = cJSON_IsObject(row)
                 ? body_from_json(&schema_machine_seen, row, 0, mem, (void **)ret, err)
                 : err_set(err, E_UNKNOWN, "it is no JSON object");

    if (rc == 0 && strspn((*ret)->key, KEY_LETTERS) != strlen((*ret)->key))
        rc = err_set(err, E_UNKNOWN, "the key of a machine is of letters, digits and -");
    if (rc == 0 && (*ret)->price > 0 && *(*ret)->currency && strlen((*ret)->currency) != 3)
        rc = err_set(err, E_UNKNOWN, "its currency is none");
    if (rc == 0 && k->op == CALLOUT_MACHINE && strcmp((*ret)->key, k->machine) != 0)
        rc = err_set(err, E_UNKNOWN, "it is of another machine than was asked about");
    return rc;
}

/* A row that cannot be read spoils nothing but itself, and the end of its list: what is missing in
 * that may be what it tells of. */
static bool row_tell(const struct callout_call *k, const cJSON *row)
{
    const cJSON *key = cJSON_GetObjectItemCaseSensitive(row, "key");
    AUTO_ARENA mem = arena_create(CALLOUT_ANSWER_MAX * 16);
    struct machine_seen *m = NULL;
    struct err err;
    char why[400];

    arena_set_soft(mem, true);
    if (row_read(k, row, mem, &m, &err) == 0) {
        machine_tell(k->c, m);
        return true;
    }
    (void)snprintf(why, sizeof why, "%.60s%s%.300s", err.field, *err.field ? ": " : "", err.text);
    unread_tell(k->c,
                k->op == CALLOUT_MACHINE                     ? k->machine
                : cJSON_IsString(key) && key->valuestring[0] ? key->valuestring
                                                             : "",
                why);
    return false;
}

static int unread(const struct callout_call *k, struct err *err)
{
    return err_set(err, E_UNKNOWN, "target %.100s tells of a machine what cannot be read",
                   k->c->base.target);
}

static int one_came(const struct callout_call *k, const struct web_answer *a, struct err *err)
{
    cJSON *row = callout_body(k->c, a);
    bool read = row_tell(k, row);

    cJSON_Delete(row);
    return read ? 0 : unread(k, err);
}

/* The body with the rows taken out is read as it is described (callout.def). */
static int some_came(struct callout_call *k, const struct web_answer *a, struct arena *mem,
                     struct err *err)
{
    cJSON *rows = NULL, *row;
    struct callout_machines *page = NULL;
    int rc = callout_read_rows(k->c, &schema_callout_machines, "machines", a, mem, (void **)&page,
                               &rows, err);

    cJSON_ArrayForEach(row, rows)
    {
        if (!row_tell(k, row))
            k->n_unread++;
    }
    cJSON_Delete(rows);
    if (rc < 0)
        unread_tell(k->c, "", err->text);
    if (rc == 0 && k->op == CALLOUT_MACHINES)
        rc = callout_page_next(k, page->next, err);
    return rc == 0 && k->n_unread ? unread(k, err) : rc;
}

static int prices_came(const struct callout_call *k, const struct web_answer *a, struct arena *mem,
                       struct err *err)
{
    struct callout_prices *p = NULL;
    const struct connector_env *e = &k->c->base.env;
    int rc = callout_read(k->c, &schema_callout_prices, a, mem, (void **)&p, err);

    if (rc == 0 && *p->currency && strlen(p->currency) != 3)
        rc = err_set(err, E_UNKNOWN, "target %.100s tells prices in a currency that is none",
                     k->c->base.target);
    if (rc < 0)
        unread_tell(k->c, "", err->text);
    if (rc == 0 && e->events->prices)
        e->events->prices(e->arg, p->prices, p->n_prices, p->currency);
    return rc;
}

void callout_machine_came(struct callout_call *k, const struct web_answer *a)
{
    struct err err;
    AUTO_ARENA mem = arena_create(CALLOUT_ANSWER_MAX * 16);
    int rc = k->op == CALLOUT_MACHINE  ? one_came(k, a, &err)
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
