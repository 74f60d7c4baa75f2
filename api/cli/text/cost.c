/* A CostReport for people and for spreadsheets. Pure: a tree in, text out. It must never add up
 * figures of its own: the server's totals hold what its rows left out. */
#include "api/cli/cli_internal.h"

#define DASH "–"

/* ---- figures ---- */
/* Enough places for the smallest reports, few for the large ones: the same in one column. */
static int places_of(double largest)
{
    return largest >= 100 ? 1 : largest >= 1 ? 2 : 4;
}

static const char *figure(struct arena *mem, double v, int places)
{
    return v > 0 ? arena_printf(mem, "%.*f", places, v) : DASH;
}

/* Held and doing nothing. Where nothing was measured there is no figure, least of all 0. */
static const char *idle_figure(struct arena *mem, const cJSON *sum, int places)
{
    return json_number_at(sum, "measured") > 0
               ? arena_printf(mem, "%.*f", places, json_number_at(sum, "heldIdle"))
               : DASH;
}

static const char *share(struct arena *mem, double part, double whole)
{
    double percent = whole > 0 ? part / whole * 100 : 0;

    if (!(part > 0))
        return DASH;
    return percent < 0.1 ? "<0.1%" : arena_printf(mem, percent < 10 ? "%.1f%%" : "%.0f%%", percent);
}

static const char *upper(struct arena *mem, const char *s)
{
    char *copy = arena_strdup(mem, s);

    for (char *p = copy; *p; p++)
        *p = (char)(*p >= 'a' && *p <= 'z' ? *p - 32 : *p);
    return copy;
}

/* ---- the table ---- */
static void rows_print(const cJSON *report, struct arena *mem, struct buf *out)
{
    const cJSON *by = cJSON_GetObjectItemCaseSensitive(report, "by"), *row, *key,
                *totals = cJSON_GetObjectItemCaseSensitive(report, "totals");
    double all = json_number_at(totals, "gpuHours"), cost = json_number_at(totals, "cost");
    double cpus = json_number_at(totals, "cpuHours");
    int hour_places = places_of(all), cost_places = cost >= 10 ? 2 : 4,
        cpu_places = places_of(cpus);
    unsigned n = (unsigned)cJSON_GetArraySize(by);
    struct table t;

    table_init(&t, mem, n + 6);
    t.right = 0x3full << n;
    cJSON_ArrayForEach(key, by) table_cell(&t, upper(mem, key->valuestring));
    table_cell(&t, "GPU-HOURS");
    table_cell(&t, "COST");
    table_cell(&t, "WASTED");
    table_cell(&t, "HELD-IDLE");
    table_cell(&t, "SHARE");
    table_cell(&t, "CPU-HOURS");
    cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(report, "rows"))
    {
        double hours = json_number_at(row, "gpuHours");

        cJSON_ArrayForEach(key, by)
        {
            const char *v = json_text_of(row, key->valuestring);
            table_cell(&t, *v ? v : DASH);
        }
        table_cell(&t, figure(mem, hours, hour_places));
        table_cell(&t, figure(mem, json_number_at(row, "cost"), cost_places));
        table_cell(&t, figure(mem, json_number_at(row, "wasted"), hour_places));
        table_cell(&t, idle_figure(mem, row, hour_places));
        table_cell(&t, share(mem, hours, all));
        table_cell(&t, figure(mem, json_number_at(row, "cpuHours"), cpu_places));
    }
    for (unsigned i = 0; i < n; i++)
        table_cell(&t, i ? "" : "total");
    table_cell(&t, figure(mem, all, hour_places));
    table_cell(&t, figure(mem, cost, cost_places));
    table_cell(&t, figure(mem, json_number_at(totals, "wasted"), hour_places));
    table_cell(&t, idle_figure(mem, totals, hour_places));
    table_cell(&t, share(mem, all, all));
    table_cell(&t, figure(mem, cpus, cpu_places));
    table_print(&t, out);
}

static const char *day_of(struct arena *mem, const char *time, bool clock)
{
    return strlen(time) < 16 ? time
           : clock           ? arena_printf(mem, "%.10s %.5s UTC", time, time + 11)
                             : arena_printf(mem, "%.10s", time);
}

static void heading_print(const cJSON *report, struct arena *mem, struct buf *out)
{
    const char *from = json_text_of(report, "from"), *to = json_text_of(report, "to"),
               *currency = json_text_of(report, "currency");
    const cJSON *filter;

    buf_str(out, "Cost");
    cJSON_ArrayForEach(filter, cJSON_GetObjectItemCaseSensitive(report, "filter"))
        buf_printf(out, " of %s %s", filter->string, filter->valuestring);
    if (*from)
        buf_printf(out, " from %s", day_of(mem, from, false));
    buf_printf(out, " to %s",
               day_of(mem, to, strcmp(to + (strlen(to) > 11 ? 11 : 0), "00:00:00Z")));
    if (!strcmp(currency, "mixed"))
        buf_str(out, ", in several currencies: their sums mean nothing");
    else if (*currency)
        buf_printf(out, ", in %s", currency);
    buf_str(out, "\n\n");
}

static void notes_print(const cJSON *report, struct arena *mem, struct buf *out)
{
    const cJSON *totals = cJSON_GetObjectItemCaseSensitive(report, "totals"),
                *balance = cJSON_GetObjectItemCaseSensitive(report, "balance"), *f;
    double wasted = json_number_at(totals, "wasted"), unpriced = json_number_at(totals, "unpriced"),
           omitted = json_number_at(report, "omitted"),
           measured = json_number_at(totals, "measured"),
           overhang = json_number_at(totals, "overhangGpuHours");

    int places = places_of(json_number_at(totals, "gpuHours"));

    buf_char(out, '\n');
    if (wasted > 0)
        buf_printf(out, "Wasted: %.*f GPU-hours were lost to stops, worth %.*f\n", places, wasted,
                   json_number_at(totals, "cost") >= 10 ? 2 : 4,
                   json_number_at(totals, "wastedCost"));
    if (measured > 0)
        buf_printf(out,
                   "Held idle: of %.*f GPU-hours whose use was measured, %.*f did nothing, "
                   "worth %.*f\n",
                   places, measured, places, json_number_at(totals, "heldIdle"),
                   json_number_at(totals, "cost") >= 10 ? 2 : 4,
                   json_number_at(totals, "heldIdleCost"));
    if (unpriced > 0)
        buf_printf(out, "Unpriced: %s GPU-hours, their price is not known\n",
                   figure(mem, unpriced, places));
    if (omitted > 0)
        buf_printf(out, "Not shown: %.0f further rows (--limit), they are in the total\n", omitted);
    cJSON_ArrayForEach(f, cJSON_GetObjectItemCaseSensitive(report, "folded"))
        buf_printf(out, "Folded: before %.10s no longer told apart by %s\n",
                   json_text_of(f, "upTo"), json_text_of(f, "by"));
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(balance, "exact")))
        buf_printf(out, "Capacity: %.*f GPU-hours%sand %.*f CPU-hours, all of them accounted for\n",
                   places, json_number_at(totals, "capacityGpuHours"),
                   overhang > 0 ? ", what was held beyond it, " : " ",
                   places_of(json_number_at(totals, "capacityCpuHours")),
                   json_number_at(totals, "capacityCpuHours"));
    else if (balance)
        buf_printf(out,
                   "The ledger does not add up: %s milli-GPU-ms and %s milli-CPU-ms are missing\n",
                   json_text_of(balance, "difference"), json_text_of(balance, "cpuDifference"));
}

void cost_render(const cJSON *report, struct arena *mem, struct buf *out)
{
    heading_print(report, mem, out);
    if (cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(report, "rows")) == 0)
        buf_str(out, "Nothing yet.\n");
    else
        rows_print(report, mem, out);
    notes_print(report, mem, out);
}

/* ---- CSV (RFC 4180) ---- */
/* A text that a spreadsheet would take for a formula gets an apostrophe in front: experiments are
 * named by users. */
static void csv_text(const char *s, struct buf *out)
{
    bool quote = strpbrk(s, ",\"\r\n") || *s == ' ' || strchr("=+-@\t\r", *s);

    if (!*s)
        return;
    if (!quote) {
        buf_str(out, s);
        return;
    }
    buf_char(out, '"');
    if (strchr("=+-@\t\r", *s))
        buf_char(out, '\'');
    for (; *s; s++) {
        if (*s == '"')
            buf_char(out, '"');
        buf_char(out, *s);
    }
    buf_char(out, '"');
}

void cost_csv(const cJSON *report, struct buf *out)
{
    static const char *const figures[] = {"gpuHours", "cost", "wasted", "wastedCost", "unpriced"},
                      *const measured[] = {"measured", "heldIdle", "heldIdleCost"};
    const cJSON *by = cJSON_GetObjectItemCaseSensitive(report, "by"), *row, *key;

    cJSON_ArrayForEach(key, by) buf_printf(out, "%s,", key->valuestring);
    buf_str(out, "gpuHours,cost,wasted,wastedCost,unpriced,milliGpuMs,cpuHours,measured,heldIdle,"
                 "heldIdleCost\r\n");
    cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(report, "rows"))
    {
        cJSON_ArrayForEach(key, by)
        {
            csv_text(json_text_of(row, key->valuestring), out);
            buf_char(out, ',');
        }
        for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
            buf_printf(out, "%.9g,", json_number_at(row, figures[i]));
        buf_printf(out, "%s,%.9g", json_text_of(row, "milliGpuMs"),
                   json_number_at(row, "cpuHours"));
        for (size_t i = 0; i < sizeof measured / sizeof *measured; i++)
            buf_printf(out, ",%.9g", json_number_at(row, measured[i]));
        buf_str(out, "\r\n");
    }
}
