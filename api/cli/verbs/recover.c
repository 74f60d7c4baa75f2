/* What the state cannot answer for: orphans, and what is done about them; and what others run on a
 * target, before it is handed over. */
#include "api/cli/cli_internal.h"

static const char *holds_text(struct cli *c, const cJSON *orphan)
{
    const cJSON *h, *g;
    AUTO_BUF b = {0};

    buf_init(&b, 65536);
    cJSON_ArrayForEach(h, cJSON_GetObjectItemCaseSensitive(orphan, "holds"))
    {
        const char *sep = ":";
        buf_printf(&b, "%s%s", b.n ? " " : "", json_text_of(h, "node"));
        cJSON_ArrayForEach(g, cJSON_GetObjectItemCaseSensitive(h, "gpus"))
        {
            buf_printf(&b, "%s%d", sep, g->valueint);
            sep = ",";
        }
    }
    return b.n ? arena_strndup(c->mem, b.p, b.n) : "-";
}

static const char *age_text(struct cli *c, const char *since)
{
    int64_t at;
    char age[16];

    if (!*since || time_parse(since, &at, NULL))
        return "-";
    age_print(loop_wall_ms(c->loop) - at, age);
    return arena_strdup(c->mem, age);
}

static void orphans_table(struct cli *c, const cJSON *items, bool wide, struct buf *out)
{
    static const char *const heads[] = {"TARGET", "KEY", "NAMESPACE", "WORKLOAD", "STATE",
                                        "WHY",    "AGE", "HOLDS",     "CLUSTER"};
    unsigned columns = wide ? 9 : 7;
    const cJSON *o;
    struct table t;

    table_init(&t, c->mem, columns);
    for (unsigned i = 0; i < columns && !arg_flag(&c->args, "no-headers"); i++)
        table_cell(&t, heads[i]);
    cJSON_ArrayForEach(o, items)
    {
        const char *cells[] = {json_text_of(o, "target"),
                               json_text_of(o, "key"),
                               json_text_of(o, "namespace"),
                               json_text_of(o, "workload"),
                               json_text_of(o, "state"),
                               json_text_of(o, "why"),
                               age_text(c, json_text_of(o, "since")),
                               holds_text(c, o),
                               json_text_of(o, "cluster")};
        for (unsigned i = 0; i < columns; i++)
            table_cell(&t, *cells[i] ? cells[i] : "-");
    }
    table_print(&t, out);
}

int orphans_get(struct cli *c, struct err *err)
{
    const char *format = arg_text(&c->args, "output", "table");
    bool table = !strcmp(format, "table") || !strcmp(format, "wide");
    cJSON *j = NULL, *t;
    AUTO_BUF b = {0};

    if (!table && strcmp(format, "json") != 0 && strcmp(format, "yaml") != 0)
        return err_set(err, E_USAGE, "-o %s: expected table, wide, json or yaml", format);
    int rv = cli_operate(c, "orphans.list", NULL, &j, err);
    if (rv)
        return rv;
    buf_init(&b, OUT_MAX_BYTES);
    const cJSON *items = cJSON_GetObjectItemCaseSensitive(j, "items");
    if (!table)
        json_out(c, j, format);
    else if (cJSON_GetArraySize(items))
        orphans_table(c, items, !strcmp(format, "wide"), &b);
    else
        (void)fputs("No orphans found.\n", c->err);
    out_flush(c, &b);
    if (table && json_number_at(j, "more") > 0)
        (void)fprintf(c->err, "%.0f more are not shown.\n", json_number_at(j, "more"));
    cJSON_ArrayForEach(t, cJSON_GetObjectItemCaseSensitive(j, "notListed")) if (table)(void)
        fprintf(c->err, "Target %s has not told what runs there.\n",
                cJSON_GetStringValue(t) ? cJSON_GetStringValue(t) : "");
    cJSON_Delete(j);
    return 0;
}

static void recovered_print(struct cli *c, const cJSON *answer)
{
    const cJSON *o;

    cJSON_ArrayForEach(o, cJSON_GetObjectItemCaseSensitive(answer, "adopted"))(void)
        fprintf(c->out, "%s/%s: %s on %s, adopted (%s)\n", json_text_of(o, "namespace"),
                json_text_of(o, "workload"), json_text_of(o, "state"), json_text_of(o, "target"),
                json_text_of(o, "key"));
    cJSON_ArrayForEach(o, cJSON_GetObjectItemCaseSensitive(answer, "refused"))
    {
        bool deleted = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, "deleted"));

        (void)fprintf(deleted ? c->out : c->err, "%s on %s: %s: %s\n", json_text_of(o, "key"),
                      json_text_of(o, "target"), deleted ? "passed over" : "left as it is",
                      json_text_of(o, "why"));
    }
}

int verb_orphans(struct cli *c, struct err *err)
{
    const char *op = c->args.n_pos ? c->args.pos[0] : "list";

    if (!strcmp(op, "list") && c->args.n_pos <= 1)
        return orphans_get(c, err);
    bool adopts = !strcmp(op, "adopt");
    if (!adopts && strcmp(op, "end") != 0)
        return cli_usage(c, err, "expected list, end or adopt");
    if (c->args.n_pos != 3)
        return cli_usage(c, err, "which run, and on which target? hanse get orphans lists both");
    if (!arg_flag(&c->args, "yes") && adopts)
        return err_set(err, E_USAGE,
                       "adopting %s from %s makes this cluster answer for it: its Workload is made "
                       "again as it was sent there, and whoever else counts on it may not go on "
                       "with it. Say --yes when that is meant",
                       c->args.pos[2], c->args.pos[1]);
    if (!arg_flag(&c->args, "yes"))
        return err_set(err, E_USAGE,
                       "ending %s on %s stops a program that this cluster cannot answer for; what "
                       "it has not saved is lost. Say --yes when that is meant",
                       c->args.pos[2], c->args.pos[1]);
    cJSON *body = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(body, "target", c->args.pos[1]);
    (void)cJSON_AddStringToObject(body, "key", c->args.pos[2]);
    cJSON *answer = NULL;
    int rv = cli_operate(c, arena_printf(c->mem, "orphans.%s", op), body, &answer, err);
    cJSON_Delete(body);
    if (!rv && adopts)
        recovered_print(c, answer);
    cJSON_Delete(answer);
    if (!rv && !adopts)
        (void)fprintf(c->out, "orphan %s on %s: recorded, and told to end\n", c->args.pos[2],
                      c->args.pos[1]);
    return rv;
}

/* ---- recover ---- */
/* Agents are on their way to a hub that has just come back. True: ask again. */
static bool recover_waits(struct cli *c, const cJSON *answer)
{
    double ms = json_number_at(answer, "waitMs");

    if (ms <= 0)
        return false;
    (void)fprintf(c->err, "waiting for agents that may be on their way: %.0f s more\n",
                  (ms + 999) / 1000);
    cli_pause(c, ms < 5000 ? (uint64_t)ms + 1 : 5000);
    return true;
}

int verb_recover(struct cli *c, struct err *err)
{
    const char *format = arg_text(&c->args, "output", "");
    cJSON *body, *dead, *answer = NULL, *all = cJSON_CreateObject();
    cJSON *adopted = cJSON_AddArrayToObject(all, "adopted"),
          *refused = cJSON_AddArrayToObject(all, "refused"), *o;
    const char *after = "";
    bool waits = false;
    int rv;

    if (!arg_flag(&c->args, "from-targets") || c->args.n_pos) {
        cJSON_Delete(all);
        return cli_usage(c, err, "recover from what? --from-targets");
    }
    do {
        body = cJSON_CreateObject();
        dead = cJSON_AddArrayToObject(body, "dead");
        for (unsigned i = 0; i < c->args.n_given; i++)
            if (!strcmp(c->args.given[i].option->name, "dead"))
                (void)cJSON_AddItemToArray(dead, cJSON_CreateString(c->args.given[i].value));
        (void)cJSON_AddStringToObject(body, "after", after);
        cJSON_Delete(answer);
        answer = NULL;
        rv = cli_operate(c, "recover.targets", body, &answer, err);
        cJSON_Delete(body);
        if (rv)
            break;
        if (!*format)
            recovered_print(c, answer);
        while ((o = cJSON_DetachItemFromArray(cJSON_GetObjectItemCaseSensitive(answer, "adopted"),
                                              0)) != NULL)
            (void)cJSON_AddItemToArray(adopted, o);
        while ((o = cJSON_DetachItemFromArray(cJSON_GetObjectItemCaseSensitive(answer, "refused"),
                                              0)) != NULL)
            (void)cJSON_AddItemToArray(refused, o);
        waits = recover_waits(c, answer);
        if (!waits)
            after = arena_strdup(c->mem, json_text_of(answer, "next"));
    } while (waits || *after);
    bool settled = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(answer, "settled"));
    if (!rv && *format) {
        (void)cJSON_AddBoolToObject(all, "settled", settled);
        (void)cJSON_AddStringToObject(all, "why", json_text_of(answer, "why"));
        json_out(c, all, format);
    } else if (!rv && settled) {
        (void)fprintf(c->out, "recovery is settled: %d adopted, %d left\n",
                      cJSON_GetArraySize(adopted), cJSON_GetArraySize(refused));
    }
    if (!rv && !settled)
        rv = err_set(err, E_CONFLICT,
                     "recovery is not settled: %s. What may run there is not placed before",
                     json_text_of(answer, "why"));
    cJSON_Delete(answer);
    cJSON_Delete(all);
    return rv;
}

/* ---- adopt ---- */
#define ADOPT_MS 150000 /* a large cluster takes its time to list all that it runs */

static int adopt_ask(struct cli *c, cJSON **ret, struct err *err)
{
    const char *ns = arg_text(&c->args, "namespace", NULL);
    cJSON *body;
    long limit;
    int rv = arg_number(&c->args, "limit", 1, 2000, 0, &limit, err);

    if (rv)
        return rv;
    c->patience_ms = ADOPT_MS;
    body = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(body, "target", c->args.pos[0]);
    if (ns)
        (void)cJSON_AddStringToObject(body, "namespace", ns);
    if (limit)
        (void)cJSON_AddNumberToObject(body, "limit", (double)limit);
    rv = cli_operate(c, "adopt.shadow", body, ret, err);
    cJSON_Delete(body);
    return rv;
}

int verb_adopt(struct cli *c, struct err *err)
{
    const char *format = arg_text(&c->args, "output", "table");
    bool wide = !strcmp(format, "wide"), table = wide || !strcmp(format, "table");
    cJSON *report = NULL;
    AUTO_BUF b = {0};

    if (!table && strcmp(format, "json") != 0 && strcmp(format, "yaml") != 0)
        return err_set(err, E_USAGE, "-o %s: expected table, wide, json or yaml", format);
    if (c->args.n_pos != 1)
        return cli_usage(c, err, "which target?");
    if (!arg_flag(&c->args, "shadow"))
        return cli_usage(c, err,
                         "nothing is taken over by this command yet: --shadow shows what Hanse "
                         "would have done, and hanse submit -f takes a Job as it is");
    int rv = adopt_ask(c, &report, err);
    if (rv)
        return rv;
    buf_init(&b, OUT_MAX_BYTES);
    if (table)
        adopt_render(report, wide, loop_wall_ms(c->loop), c->mem, &b);
    else
        json_out(c, report, format);
    out_flush(c, &b);
    cJSON_Delete(report);
    return 0;
}
