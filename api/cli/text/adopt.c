/* A ShadowReport for people: what runs on a target, what Hanse would have done with it, and what
 * cannot be handed over. Pure: a tree in, text out. Sums are the server's, which hold what its rows
 * left out. */
#include "api/cli/cli_internal.h"

#define DASH "–"

static const char *count_text(struct arena *mem, double v)
{
    return v > 0 ? arena_printf(mem, "%.10g", v) : DASH;
}

static const char *text_or(const char *s)
{
    return *s ? s : DASH;
}

static const char *age_of(const cJSON *row, int64_t now_ms, struct arena *mem)
{
    const char *since = json_text_of(row, *json_text_of(row, "since") ? "since" : "created");
    char age[16];
    int64_t at;

    if (!*since || time_parse(since, &at, NULL))
        return DASH;
    age_print(now_ms - at, age);
    return arena_strdup(mem, age);
}

static const char *cost_of(const cJSON *of, struct arena *mem)
{
    const cJSON *cost = json_at(of, "costPerHour");

    return cJSON_IsNumber(cost) ? arena_printf(mem, "%.2f", cost->valuedouble) : DASH;
}

/* "n0, n1 (8 each)" is shorter, and yet another form: one for all. */
static const char *nodes_of(const cJSON *of, struct arena *mem)
{
    const cJSON *n;
    AUTO_BUF b = {0};

    buf_init(&b, 8192);
    cJSON_ArrayForEach(n, json_at(of, "nodes"))
    {
        double gpus = json_number_at(n, "gpus");
        buf_printf(&b, "%s%s", b.n ? "," : "", json_text_of(n, "name"));
        if (gpus > 0)
            buf_printf(&b, ":%.10g", gpus);
    }
    if (json_number_at(of, "moreNodes") > 0)
        buf_printf(&b, " and %.0f more", json_number_at(of, "moreNodes"));
    return b.n ? arena_strndup(mem, b.p, b.n) : DASH;
}

/* ---- Jobs that could be handed over ---- */
static const char *would_of(const cJSON *row, const char *key)
{
    return text_or(json_text_of(json_at(row, "hanse"), key));
}

/* Of one that holds none yet what it asks for: "(8)". */
static const char *gpus_of(const cJSON *row, struct arena *mem)
{
    double held = json_number_at(row, "gpus"), asked = json_number_at(row, "gpusAsked");

    return held > 0 || asked <= 0 ? count_text(mem, held) : arena_printf(mem, "(%.10g)", asked);
}

static void job_cells(const cJSON *row, bool wide, int64_t now_ms, struct arena *mem,
                      struct table *t)
{
    const cJSON *hanse = json_at(row, "hanse");
    const char *queue = json_text_of(hanse, "queue"), *target = json_text_of(hanse, "target");

    table_cell(t, json_text_of(row, "namespace"));
    table_cell(t, json_text_of(row, "name"));
    table_cell(t, json_text_of(row, "state"));
    table_cell(t, age_of(row, now_ms, mem));
    table_cell(t, gpus_of(row, mem));
    table_cell(t, text_or(json_text_of(row, "class")));
    table_cell(t, cost_of(row, mem));
    table_cell(t, *target ? target : arena_printf(mem, "waits: %s", would_of(row, "reason")));
    table_cell(t, would_of(row, "class"));
    table_cell(t, cost_of(hanse, mem));
    table_cell(t, *queue ? queue : "none");
    table_cell(t, count_text(mem, cJSON_GetArraySize(json_at(row, "warnings"))));
    if (wide) {
        table_cell(t, nodes_of(row, mem));
        table_cell(t, nodes_of(hanse, mem));
        table_cell(t, text_or(json_text_of(hanse, "policy")));
    }
}

static bool jobs_table(const cJSON *report, bool wide, int64_t now_ms, struct arena *mem,
                       struct buf *out)
{
    static const char *const heads[] = {"NAMESPACE", "JOB",    "STATE", "AGE",       "GPUS",
                                        "CLASS",     "COST/H", "HANSE", "ITS-CLASS", "ITS-COST/H",
                                        "ITS-QUEUE", "NOTES",  "NODES", "ITS-NODES", "ITS-POLICY"};
    unsigned columns = wide ? 15 : 12;
    const cJSON *row;
    struct table t;
    bool any = false;

    table_init(&t, mem, columns);
    t.right = 1u << 4 | 1u << 6 | 1u << 9 | 1u << 11;
    for (unsigned i = 0; i < columns; i++)
        table_cell(&t, heads[i]);
    cJSON_ArrayForEach(row, json_at(report, "jobs"))
    {
        if (!cJSON_IsTrue(json_at(row, "adoptable")))
            continue;
        any = true;
        job_cells(row, wide, now_ms, mem, &t);
    }
    if (any)
        table_print(&t, out);
    return any;
}

/* ---- what would not be kept ---- */
/* The same words of several Jobs stand once, with how many of them and the first. */
struct note {
    const cJSON *row, *note;
    unsigned jobs;
};
#define NOTES_MAX 64

static void notes_print(const cJSON *report, struct buf *out)
{
    struct note v[NOTES_MAX];
    const cJSON *row, *n;
    unsigned many = 0, more = 0;

    cJSON_ArrayForEach(row, json_at(report, "jobs"))
    {
        cJSON_ArrayForEach(n, json_at(row, "warnings"))
        {
            unsigned i = 0;
            while (i < many &&
                   (strcmp(json_text_of(v[i].note, "field"), json_text_of(n, "field")) != 0 ||
                    strcmp(json_text_of(v[i].note, "message"), json_text_of(n, "message")) != 0))
                i++;
            if (i == NOTES_MAX) {
                more++;
                continue;
            }
            if (i == many)
                v[many++] = (struct note){row, n, 0};
            v[i].jobs++;
        }
    }
    if (many)
        buf_str(out, "\nNot kept as it is:\n");
    for (unsigned i = 0; i < many; i++) {
        buf_printf(out, "  %s/%s", json_text_of(v[i].row, "namespace"),
                   json_text_of(v[i].row, "name"));
        if (v[i].jobs > 1)
            buf_printf(out, " and %u more", v[i].jobs - 1);
        buf_printf(out, ": %s: %s\n", json_text_of(v[i].note, "field"),
                   json_text_of(v[i].note, "message"));
    }
    if (more)
        buf_printf(out, "  and %u notes more (-o json)\n", more);
}

/* ---- what cannot be handed over ---- */
static void stays_cells(const cJSON *row, int64_t now_ms, struct arena *mem, struct table *t)
{
    table_cell(t, json_text_of(row, "namespace"));
    table_cell(t, arena_printf(mem, "%s/%s", json_text_of(row, "kind"), json_text_of(row, "name")));
    table_cell(t, count_text(mem, json_number_at(row, "pods")));
    table_cell(t, count_text(mem, json_number_at(row, "gpus")));
    table_cell(t, age_of(row, now_ms, mem));
    table_cell(t, json_text_of(row, "why"));
}

static void stays_table(const cJSON *report, int64_t now_ms, struct arena *mem, struct buf *out)
{
    static const char *const heads[] = {"NAMESPACE", "WHAT", "PODS", "GPUS", "AGE", "WHY"};
    const cJSON *row;
    struct table t;
    bool any = false;

    table_init(&t, mem, 6);
    t.right = 1u << 2 | 1u << 3;
    for (unsigned i = 0; i < 6; i++)
        table_cell(&t, heads[i]);
    cJSON_ArrayForEach(row, json_at(report, "jobs"))
    {
        if (cJSON_IsTrue(json_at(row, "adoptable")))
            continue;
        any = true;
        stays_cells(row, now_ms, mem, &t);
    }
    cJSON_ArrayForEach(row, json_at(report, "others"))
    {
        any = true;
        stays_cells(row, now_ms, mem, &t);
    }
    if (!any)
        return;
    buf_str(out, "\nCannot be handed over:\n");
    table_print(&t, out);
}

/* ---- sums ---- */
static const char *jobs_gpus(const cJSON *totals, const char *key, struct arena *mem)
{
    const cJSON *x = json_at(totals, key);
    double jobs = json_number_at(x, "jobs"), gpus = json_number_at(x, "gpus");

    return arena_printf(mem, "%.0f Job%s with %.10g GPU%s", jobs, jobs == 1 ? "" : "s", gpus,
                        gpus == 1 ? "" : "s");
}

static void cost_print(const cJSON *totals, struct buf *out)
{
    const cJSON *cost = json_at(totals, "cost");
    double jobs = json_number_at(cost, "jobs"), not = json_number_at(cost, "notCompared");

    if (jobs > 0)
        buf_printf(out,
                   "Cost: %.2f %s an hour where they are, %.2f where Hanse would have put them "
                   "(%.0f Job%s of which both prices are known)\n",
                   json_number_at(cost, "now"), json_text_of(cost, "currency"),
                   json_number_at(cost, "hanse"), jobs, jobs == 1 ? "" : "s");
    if (not > 0)
        buf_printf(out, "Not compared: %.0f Job%s, a price is not known, or in another currency\n",
                   not, not == 1 ? "" : "s");
}

static void others_print(const cJSON *totals, struct buf *out)
{
    static const char *const says[][2] = {{"Bare", "made by hand"},
                                          {"Controller", "of controllers"},
                                          {"JobGone", "of Jobs that are over"}};
    const cJSON *o;

    cJSON_ArrayForEach(o, json_at(totals, "others"))
    {
        const char *what = json_text_of(o, "reason");
        for (size_t i = 0; i < sizeof says / sizeof *says; i++)
            if (strcmp(says[i][0], what) == 0)
                what = says[i][1];
        buf_printf(out, "Pods %s: %.0f with %.10g GPUs\n", what, json_number_at(o, "pods"),
                   json_number_at(o, "gpus"));
    }
    if (json_number_at(totals, "podsWithoutGpus") > 0)
        buf_printf(out, "Pods without GPUs that no such Job has made: %.0f, not listed\n",
                   json_number_at(totals, "podsWithoutGpus"));
}

static void sums_print(const cJSON *report, struct arena *mem, struct buf *out)
{
    const cJSON *totals = json_at(report, "totals");
    double cut = json_number_at(report, "omittedJobs") + json_number_at(report, "omittedOthers");

    buf_str(out, "\n");
    if (json_number_at(totals, "adoptable.jobs") > 0)
        buf_printf(out,
                   "Could be handed over: %s; Hanse would run %s on %s and %s elsewhere, and %s "
                   "would wait\n",
                   jobs_gpus(totals, "adoptable", mem), jobs_gpus(totals, "here", mem),
                   json_text_of(report, "target"), jobs_gpus(totals, "elsewhere", mem),
                   jobs_gpus(totals, "waiting", mem));
    cost_print(totals, out);
    if (json_number_at(totals, "notAdoptable.jobs") > 0)
        buf_printf(out, "Could not: %s\n", jobs_gpus(totals, "notAdoptable", mem));
    others_print(totals, out);
    if (cut > 0)
        buf_printf(out, "Not shown: %.0f further rows (--limit), they are in the sums\n", cut);
    if (*json_text_of(report, "lacks"))
        buf_printf(out, "Missing: %s\n", json_text_of(report, "lacks"));
    if (cJSON_IsTrue(json_at(report, "observeOnly")))
        buf_printf(out,
                   "Target %s is observeOnly: nothing is placed there; this is how it would "
                   "be without that\n",
                   json_text_of(report, "target"));
    buf_str(out, "Nothing was changed: neither there nor here.\n");
}

void adopt_render(const cJSON *report, bool wide, int64_t now_ms, struct arena *mem,
                  struct buf *out)
{
    if (!jobs_table(report, wide, now_ms, mem, out))
        buf_printf(out, "No Jobs of others on target %s%s%s could be handed over.\n",
                   json_text_of(report, "target"),
                   *json_text_of(report, "namespace") ? " in namespace " : "",
                   json_text_of(report, "namespace"));
    notes_print(report, out);
    stays_table(report, now_ms, mem, out);
    sums_print(report, mem, out);
}
