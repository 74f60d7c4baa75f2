/* A Decision for people (deploy/examples holds models). Pure: documents in, text out, so that the
 * golden tests see what users see. */
#include "api/cli/cli_internal.h"

#define NONE "\xe2\x80\x93" /* – */
#define DOT " \xc2\xb7 "    /* · */
#define BULLET "  \xc2\xb7 "
#define TIMES " \xc3\x97 " /* × */

static void table_of(const cJSON *decision, struct arena *mem, struct buf *out)
{
    static const char *const heads[] = {"TARGET",         "TIER", "FITS",     "WHY",
                                        "$/USEFUL-GPU-H", "DATA", "TOPOLOGY", "SCORE"};
    const cJSON *c;
    struct table t;

    table_init(&t, mem, 8);
    t.right = 1u << 4 | 1u << 7;
    for (int i = 0; i < 8; i++)
        table_cell(&t, heads[i]);
    cJSON_ArrayForEach(c, json_at(decision, "spec.candidates"))
    {
        bool fits = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(c, "fits"));
        bool chosen = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(c, "chosen"));
        const char *reason = json_text_of(c, "reason"), *message = json_text_of(c, "message");
        const char *data = json_text_of(c, "data"), *topology = json_text_of(c, "topology");
        table_cell(&t, json_text_of(c, "target"));
        table_cell(&t, json_text_of(c, "tier"));
        table_cell(&t, fits ? "yes" : "no");
        if (chosen)
            table_cell(&t, "chosen");
        else if (fits || !*message || !strncmp(message, reason, strlen(reason)))
            table_cell(&t, *message ? message : reason);
        else
            table_cell(&t, arena_printf(mem, "%s: %s", reason, message));
        table_cell(&t, fits ? arena_printf(mem, "%.2f", json_number_at(c, "usefulGpuHour")) : NONE);
        table_cell(&t, fits && *data ? data : NONE);
        table_cell(&t, fits && *topology ? topology : NONE);
        table_cell(&t, fits ? arena_printf(mem, "%.1f", json_number_at(c, "score")) : NONE);
    }
    if (t.n > 8)
        table_print(&t, out);
    if (json_number_at(decision, "spec.omitted") > 0)
        buf_printf(out, "%.0f further rows were left out for size\n",
                   json_number_at(decision, "spec.omitted"));
}

/* "rack r07" of region/zone/block/rack, the whole path where levels are left out. */
static const char *where_text(const char *domain, struct arena *mem)
{
    unsigned parts = *domain ? 1 : 0;

    for (const char *p = domain; *p; p++)
        parts += *p == '/';
    const char *last = strrchr(domain, '/');
    return parts == 4 ? arena_printf(mem, ", rack %s", last + 1)
           : *domain  ? arena_printf(mem, ", %s", domain)
                      : "";
}

static void gpus_text(double milli, struct buf *out)
{
    if (milli > 0 && (long long)milli % 1000)
        buf_printf(out, "%.3g", milli / 1000);
    else
        buf_printf(out, "%.0f", milli / 1000);
}

/* One commit, or that of each set of them. */
static void policies_at(const cJSON *spec, struct buf *out)
{
    const cJSON *sources = cJSON_GetObjectItemCaseSensitive(spec, "sources"), *s;
    const char *revision = json_text_of(spec, "revision"), *before = DOT "policies at git ";

    if (*revision) {
        buf_printf(out, "%s%.7s", before, revision);
        return;
    }
    if (cJSON_GetArraySize(sources) < 2)
        return;
    cJSON_ArrayForEach(s, sources)
    {
        revision = json_text_of(s, "revision");
        buf_printf(out, "%s%.7s", before, *revision ? revision : "none");
        if (*json_text_of(s, "set"))
            buf_printf(out, " (%s)", json_text_of(s, "set"));
        before = ", ";
    }
}

/* Where it waits, though it is placed. */
static void pending_line(const cJSON *p, struct buf *out)
{
    buf_printf(out, "  waits in the target's own queue: %s", json_text_of(p, "reason"));
    if (*json_text_of(p, "message"))
        buf_printf(out, ": %s", json_text_of(p, "message"));
    if (json_number_at(p, "position") > 0)
        buf_printf(out, DOT "position %.0f", json_number_at(p, "position"));
    if (*json_text_of(p, "estimatedStart"))
        buf_printf(out, DOT "may start at %s", json_text_of(p, "estimatedStart"));
    buf_char(out, '\n');
}

static void heading_placed(const cJSON *w, const cJSON *d, struct arena *mem, struct buf *out)
{
    const cJSON *spec = cJSON_GetObjectItemCaseSensitive(d, "spec"),
                *p = json_at(w, "status.placement");
    bool current = p && json_number_at(w, "status.epoch") == json_number_at(spec, "epoch");

    buf_printf(out, "Decision %.0f" DOT "epoch %.0f", json_number_at(spec, "logIndex"),
               json_number_at(spec, "epoch"));
    policies_at(spec, out);
    if (current) {
        buf_printf(out, DOT "placed on %s%s", json_text_of(p, "target"),
                   where_text(json_text_of(p, "domain"), mem));
        if (json_number_at(p, "gpus") > 0) {
            buf_str(out, ", ");
            gpus_text(json_number_at(p, "gpus"), out);
            buf_printf(out, TIMES "%s at $%.2f", json_text_of(p, "class"),
                       json_number_at(p, "gpuHourPrice"));
        }
    } else {
        buf_printf(out, DOT "placed on %s", json_text_of(spec, "message"));
    }
    buf_char(out, '\n');
    if (current && json_at(w, "status.pending"))
        pending_line(json_at(w, "status.pending"), out);
}

/* A queue's quota is no target's: the target in front of such a sentence says nothing. */
static const char *quota_message(const cJSON *d, const char *reason, const char *message)
{
    const cJSON *k;

    if (!strncmp(reason, "Quota", 5))
        cJSON_ArrayForEach(k, json_at(d, "spec.candidates"))
        {
            const char *target = json_text_of(k, "target");
            size_t n = strlen(target);
            if (n && !strncmp(message, target, n) && !strncmp(message + n, ": ", 2))
                return message + n + 2;
        }
    return message;
}

static void heading_pending(const cJSON *w, const cJSON *d, int64_t now_ms, struct buf *out)
{
    const cJSON *from = d ? cJSON_GetObjectItemCaseSensitive(d, "spec")
                          : cJSON_GetObjectItemCaseSensitive(w, "status");
    const char *since = json_text_at(w, "status.queuedAt"), *reason = json_text_of(from, "reason");
    const char *queue = json_text_of(from, "queue");
    double position = json_number_at(w, "status.queuePosition");
    int64_t at = 0;
    char age[16];

    buf_str(out, "Pending");
    if (*since && !time_parse(since, &at, NULL)) {
        age_print(now_ms - at, age);
        buf_printf(out, " %s", age);
    }
    if (position < 1)
        position = json_number_at(from, "queuePosition");
    if (position >= 1)
        buf_printf(out, DOT "position %.0f%s%s", position, *queue ? " of queue " : "", queue);
    else if (*queue)
        buf_printf(out, DOT "queue %s", queue);
    if (d)
        policies_at(from, out);
    if (*reason)
        buf_printf(out, DOT "%s: %s", reason,
                   quota_message(d, reason, json_text_of(from, "message")));
    else
        buf_str(out, DOT "not yet looked at");
    buf_char(out, '\n');
}

static void names_line(const cJSON *list, const char *label, struct buf *out)
{
    const cJSON *s;
    bool any = false;

    cJSON_ArrayForEach(s, list) if (cJSON_IsString(s))
    {
        buf_printf(out, "%s%s", any ? ", " : label, s->valuestring);
        any = true;
    }
    if (any)
        buf_char(out, '\n');
}

/* "Start estimate 02:40 (when resnet-a ends as expected)"; another day than today is named. */
static void estimate_line(const cJSON *d, int64_t now_ms, struct buf *out)
{
    const char *at = json_text_at(d, "spec.startEstimate"),
               *who = json_text_at(d, "spec.startAfter"), *kept = json_text_at(d, "spec.keptOn");
    char today[32];
    int64_t ms;

    if (!*at || time_parse(at, &ms, NULL) || ms <= now_ms)
        return;
    time_print(now_ms, today);
    buf_str(out, "Start estimate ");
    if (strncmp(today, at, 10) != 0)
        buf_printf(out, "%.10s ", at);
    if (*who)
        buf_printf(out, "%.5s UTC (when %s ends as expected)\n", at + 11, who);
    else
        buf_printf(out,
                   "%.5s UTC, if what tells no expected.duration ends within a day of its start, "
                   "and what is overdue within as long again\n",
                   at + 11);
    if (*kept)
        buf_printf(out,
                   "Room is kept for it on %s: who comes after it uses that only when he ends by "
                   "then\n",
                   kept);
}

/* It is never decided about: its indexes are. */
static void heading_array(const cJSON *w, struct buf *out)
{
    const cJSON *s = cJSON_GetObjectItemCaseSensitive(w, "status");
    const char *failed = json_text_of(s, "failedIndexes"), *reason = json_text_of(s, "reason");
    const char *name = json_text_at(w, "metadata.name");
    double count = json_number_at(w, "spec.array.count"), n[3];
    static const char *const keys[] = {"active", "succeeded", "failed"};

    for (int i = 0; i < 3; i++)
        n[i] = json_number_at(s, keys[i]) > 0 ? json_number_at(s, keys[i]) : 0;
    buf_printf(out, "Array of %.0f" DOT "%.0f under way" DOT "%.0f succeeded" DOT "%.0f failed",
               count, n[0], n[1], n[2]);
    if (*failed)
        buf_printf(out, " (%.200s%s)", failed, strlen(failed) > 200 ? "…" : "");
    buf_printf(out, DOT "%.0f to begin", count - n[0] - n[1] - n[2]);
    if (*reason)
        buf_printf(out, DOT "%s: %s", reason, json_text_of(s, "message"));
    buf_printf(out, "\nEach index is decided about by itself: hanse explain %s-0\n", name);
}

void explain_render(const cJSON *w, const cJSON *d, int64_t now_ms, struct arena *mem,
                    struct buf *out)
{
    bool placed = d && !strcmp(json_text_at(d, "spec.outcome"), "Placed");
    const cJSON *hints = json_at(d, "spec.hints"), *h;

    if (!d && json_at(w, "spec.array")) {
        heading_array(w, out);
        return;
    }
    if (placed)
        heading_placed(w, d, mem, out);
    else
        heading_pending(w, d, now_ms, out);
    if (*json_text_at(d, "spec.policy") && json_at(d, "spec.losers")) {
        buf_printf(out, "Placement policy %s", json_text_at(d, "spec.policy"));
        names_line(json_at(d, "spec.losers"), "; it wins over ", out);
        if (!cJSON_GetArraySize(json_at(d, "spec.losers")))
            buf_char(out, '\n');
    }
    names_line(json_at(d, "spec.compliance"), "Compliance: ", out);
    if (!placed && cJSON_GetArraySize(hints)) {
        buf_str(out, "Would run now with any one of:\n");
        cJSON_ArrayForEach(h, hints) if (cJSON_IsString(h))
            buf_printf(out, BULLET "%s\n", h->valuestring);
    }
    if (!placed)
        estimate_line(d, now_ms, out);
    if (cJSON_GetArraySize(json_at(d, "spec.candidates"))) {
        buf_char(out, '\n');
        table_of(d, mem, out);
    }
}
