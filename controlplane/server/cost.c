/* Operation "cost": the ledger as a report in JSON (api/server/README.md has the body). The state
 * is read afresh, the report is made on the thread pool against one root.
 *
 * This file must never show a project more than itself: "namespace" is put there by the route, and
 * then nothing of the cluster's capacity is told. */
#include "controlplane/server/backend.h"
#include "controlplane/store/ledger/ledger.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#define COST_DEADLINE_MS 15000
#define COST_ROWS 1000
#define COST_ROWS_MAX 10000

struct cost {
    struct control *c;
    void (*cb)(void *arg, const char *json, const struct err *err);
    void *arg;
    struct arena *mem;
    struct ledger_query q;
    const char *ns; /* of a project's own report, or NULL */
    bool from_told;
    int64_t now;
    struct root *root;
    char *answer;
};

static void cost_end(struct cost *x, const struct err *err)
{
    x->cb(x->arg, x->answer, err);
    (void)root_unref(x->root);
    mem_free(x->answer);
    (void)arena_destroy(x->mem);
    mem_free(x);
}

/* ---- what is asked for ---- */
static int read_by(struct cost *x, const char *text, struct err *err)
{
    bool seen[LEDGER_BY_NR] = {false};

    x->q.n_by = 0;
    while (*text) {
        size_t n = strcspn(text, ",");
        enum ledger_by by;

        if (!ledger_by_named(text, n, &by) || seen[by])
            return err_field(err, E_INVALID, "by",
                             "by: \"%.*s\": expected queue, project, workload, cause, class, "
                             "target, user, experiment, capacity or day, each once",
                             (int)(n < 64 ? n : 64), text);
        seen[by] = true;
        x->q.by[x->q.n_by++] = by;
        text += n + (text[n] == ',');
    }
    return 0;
}

/* A day, or a time in one: the day's begin; up: the end of the day that a time is in. */
static int read_day(const char *name, const char *text, bool up, int64_t *ret, struct err *err)
{
    char full[64];
    int64_t ms;

    (void)snprintf(full, sizeof full, "%s%s", text, strlen(text) == 10 ? "T00:00:00Z" : "");
    if (strlen(text) > 40 || time_parse(full, &ms, NULL) || ms < 0)
        return err_field(err, E_INVALID, name,
                         "%s: \"%.40s\": expected 2026-11-20 or a time in RFC 3339", name, text);
    *ret = ms / LEDGER_DAY_MS + (up && ms % LEDGER_DAY_MS ? 1 : 0);
    return 0;
}

static int read_since(struct cost *x, const char *text, struct err *err)
{
    int64_t ms;

    if (duration_parse(text, &ms, NULL) || ms < 0)
        return err_field(err, E_INVALID, "since",
                         "since: \"%.40s\": expected a duration such as 7d", text);
    x->q.from_day = x->now > ms ? (x->now - ms) / LEDGER_DAY_MS : 0;
    x->from_told = true;
    return 0;
}

static int read_limit(struct cost *x, const cJSON *v, struct err *err)
{
    double n = cJSON_IsNumber(v) ? v->valuedouble : 0;

    for (const char *p = cJSON_IsString(v) ? v->valuestring : ""; *p; p++)
        n = *p >= '0' && *p <= '9' && n < 1e6 ? n * 10 + (*p - '0') : 1e9;
    if (!(n >= 1 && n <= COST_ROWS_MAX))
        return err_field(err, E_INVALID, "limit", "limit: expected 1 to %d rows", COST_ROWS_MAX);
    x->q.rows_max = (size_t)n;
    return 0;
}

static int read_one(struct cost *x, const cJSON *v, struct err *err)
{
    const char *text = cJSON_IsString(v) ? v->valuestring : NULL;
    enum ledger_by by;

    if (!strcmp(v->string, "limit"))
        return read_limit(x, v, err);
    if (!text)
        return err_field(err, E_INVALID, v->string, "%.64s: expected a text", v->string);
    if (!strcmp(v->string, "by"))
        return read_by(x, text, err);
    if (!strcmp(v->string, "since"))
        return read_since(x, text, err);
    if (!strcmp(v->string, "from")) {
        x->from_told = true;
        return read_day("from", text, false, &x->q.from_day, err);
    }
    if (!strcmp(v->string, "to"))
        return read_day("to", text, true, &x->q.to_day, err);
    if (!strcmp(v->string, "namespace")) {
        x->ns = arena_strdup(x->mem, text);
        return 0;
    }
    if (!ledger_by_named(v->string, strlen(v->string), &by) || by == LEDGER_BY_DAY)
        return err_field(
            err, E_INVALID, v->string,
            "no parameter \"%.64s\"; there are by, from, to, since, limit, and queue, "
            "project, workload, cause, class, target, user, experiment and capacity to "
            "filter by",
            v->string);
    x->q.filter[by] = arena_strdup(x->mem, text);
    return 0;
}

static int read_all(struct cost *x, const cJSON *in, struct err *err)
{
    static const enum ledger_by usual[] = {LEDGER_BY_QUEUE, LEDGER_BY_PROJECT};
    const cJSON *v;
    int r = 0;

    x->q = (struct ledger_query){.n_by = 2, .to_day = INT64_MAX, .rows_max = COST_ROWS};
    memcpy(x->q.by, usual, sizeof usual);
    cJSON_ArrayForEach(v, in)
    {
        if (v->string && (r = read_one(x, v, err)) < 0)
            return r;
    }
    if (x->q.from_day >= x->q.to_day)
        return err_field(err, E_INVALID, "to", "to: nothing is between from and to");
    if (!x->ns)
        return 0;
    const char *project = x->q.filter[LEDGER_BY_PROJECT];
    if (project && strcmp(project, x->ns) != 0)
        return err_field(err, E_FORBIDDEN, "project",
                         "namespace %.64s sees the cost of project %.64s only", x->ns, x->ns);
    x->q.filter[LEDGER_BY_PROJECT] = x->ns;
    return 0;
}

/* ---- the answer ---- */
static void put_hours(cJSON *j, const char *name, ledger_amount v)
{
    (void)cJSON_AddNumberToObject(j, name, (double)v / LEDGER_GPU_HOUR);
}

static void put_amount(cJSON *j, const char *name, ledger_amount v)
{
    char text[48];

    ledger_amount_print(v, text); /* beyond what a double holds: as text */
    (void)cJSON_AddStringToObject(j, name, text);
}

static void put_sum(cJSON *j, const struct ledger_sum *s)
{
    put_hours(j, "gpuHours", s->amount);
    put_hours(j, "cpuHours", s->cpu);
    (void)cJSON_AddNumberToObject(j, "cost", s->money);
    put_hours(j, "wasted", s->lost);
    (void)cJSON_AddNumberToObject(j, "wastedCost", s->money_lost);
    put_hours(j, "unpriced", s->unpriced);
    put_hours(j, "measured", s->measured);
    put_hours(j, "heldIdle", s->idle);
    (void)cJSON_AddNumberToObject(j, "heldIdleCost", s->money_idle);
    put_amount(j, "milliGpuMs", s->amount);
}

static void put_time(cJSON *j, const char *name, int64_t ms)
{
    char text[32];

    time_print(ms, text);
    (void)cJSON_AddStringToObject(j, name, text);
}

static bool currency_each(const struct object *o, void *arg)
{
    const char **found = arg, *mine = object_as(o, price_sheet)->spec->currency;

    *found = !**found || !strcmp(*found, mine) ? mine : "mixed";
    return strcmp(*found, "mixed") != 0;
}

static void put_question(const struct cost *x, cJSON *j)
{
    cJSON *by, *filter;
    const char *currency = "";

    root_scan(x->root, KIND_PRICE_SHEET, NULL, NULL, NULL, currency_each, &currency);
    (void)cJSON_AddStringToObject(j, "kind", "CostReport");
    (void)cJSON_AddStringToObject(j, "apiVersion", "hanse.dev/v1alpha1");
    if (x->from_told)
        put_time(j, "from", x->q.from_day * LEDGER_DAY_MS);
    put_time(j, "to", x->q.to_day > x->now / LEDGER_DAY_MS ? x->now : x->q.to_day * LEDGER_DAY_MS);
    (void)cJSON_AddStringToObject(j, "currency", currency);
    by = cJSON_AddArrayToObject(j, "by");
    for (unsigned i = 0; i < x->q.n_by; i++)
        (void)cJSON_AddItemToArray(by, cJSON_CreateString(ledger_by_text(x->q.by[i])));
    filter = cJSON_AddObjectToObject(j, "filter");
    for (unsigned b = 0; b < LEDGER_BY_NR; b++)
        if (x->q.filter[b])
            (void)cJSON_AddStringToObject(filter, ledger_by_text((enum ledger_by)b),
                                          x->q.filter[b]);
}

static void put_folded(const struct cost *x, cJSON *j, const struct ledger_report *r)
{
    static const char *const names[] = {"workload", "user,experiment", "day,price"};
    cJSON *list = cJSON_AddArrayToObject(j, "folded");

    for (int i = 0; i < 3; i++) {
        if (r->folded[i] < x->q.from_day)
            continue;
        cJSON *one = cJSON_CreateObject();
        (void)cJSON_AddStringToObject(one, "by", names[i]);
        put_time(one, "upTo", (r->folded[i] + 1) * LEDGER_DAY_MS);
        (void)cJSON_AddItemToArray(list, one);
    }
}

static void put_balance(cJSON *j, const struct ledger_report *r)
{
    cJSON *b = cJSON_AddObjectToObject(j, "balance");

    put_amount(b, "intervals", r->intervals);
    put_amount(b, "capacityTime", r->capacity);
    put_amount(b, "overhangTime", r->overhang);
    put_amount(b, "difference", r->intervals - r->capacity - r->overhang);
    put_amount(b, "cpuDifference", r->cpu_intervals - r->cpu_capacity - r->cpu_overhang);
    (void)cJSON_AddBoolToObject(b, "exact",
                                r->intervals == r->capacity + r->overhang &&
                                    r->cpu_intervals == r->cpu_capacity + r->cpu_overhang);
}

static void cost_make(void *arg) /* on the thread pool */
{
    struct cost *x = arg;
    struct ledger_report r;
    cJSON *j = cJSON_CreateObject(), *rows, *total;

    ledger_report_make(x->root, x->now, &x->q, x->mem, &r);
    put_question(x, j);
    rows = cJSON_AddArrayToObject(j, "rows");
    for (size_t i = 0; i < r.n; i++) {
        cJSON *row = cJSON_CreateObject();

        for (unsigned k = 0; k < x->q.n_by; k++)
            (void)cJSON_AddStringToObject(row, ledger_by_text(x->q.by[k]), r.rows[i].key[k]);
        put_sum(row, &r.rows[i].sum);
        (void)cJSON_AddItemToArray(rows, row);
    }
    (void)cJSON_AddNumberToObject(j, "omitted", (double)r.omitted);
    total = cJSON_AddObjectToObject(j, "totals");
    put_sum(total, &r.total);
    if (!x->ns) {
        put_hours(total, "capacityGpuHours", r.capacity);
        put_hours(total, "overhangGpuHours", r.overhang);
        put_hours(total, "capacityCpuHours", r.cpu_capacity);
        put_balance(j, &r);
    }
    put_folded(x, j, &r);
    char *text = cJSON_PrintUnformatted(j);
    x->answer = mem_strdup(text ? text : "{}");
    cJSON_free(text);
    cJSON_Delete(j);
}

static void cost_made(void *arg)
{
    cost_end(arg, NULL);
}

static void cost_read(void *arg, const struct err *err)
{
    struct cost *x = arg;

    if (err && err->code) {
        cost_end(x, err);
        return;
    }
    x->root = core_root(x->c->core);
    loop_work(x->c->loop, cost_make, cost_made, x);
}

void cost_operate(struct control *c, const cJSON *in,
                  void (*cb)(void *arg, const char *json, const struct err *err), void *arg)
{
    struct cost *x = mem_new(struct cost);
    struct err e = {0};

    *x = (struct cost){.c = c, .cb = cb, .arg = arg, .mem = arena_create(0)};
    x->now = core_time_ms(c->core);
    if (read_all(x, in, &e) < 0)
        cost_end(x, &e);
    else
        c->backend.ops->fresh(&c->backend, 0, COST_DEADLINE_MS, cost_read, x);
}
