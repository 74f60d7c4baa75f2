/* Moves and checkpoints for people: a Migration with every step and its time, and what a Workload
 * can resume from. Pure: documents in, text out, so that the golden tests see what users see. It
 * must never guess what the documents do not say: an absent figure is left out. */
#include "api/cli/cli_internal.h"

#include <stdlib.h>

#define ARROW " \xe2\x86\x92 " /* → */
#define LAST_MOVES 5

bool move_over(const char *phase)
{
    return !strcmp(phase, "Succeeded") || !strcmp(phase, "Failed") || !strcmp(phase, "Cancelled");
}

/* Milliseconds of a time in the document; false when there is none. */
static bool time_at(const cJSON *o, const char *path, int64_t *ret)
{
    const char *text = json_text_at(o, path);

    return *text && !time_parse(text, ret, NULL);
}

static const char *seconds_text(int64_t ms, struct arena *mem)
{
    return ms < 100000 ? arena_printf(mem, "%.1fs", (double)ms / 1000)
                       : arena_printf(mem, "%lldm%02llds", (long long)(ms / 60000),
                                      (long long)(ms / 1000 % 60));
}

static const char *gpu_seconds(double n, struct arena *mem)
{
    return arena_printf(mem, n < 10 ? "%.1f GPU-seconds" : "%.0f GPU-seconds", n);
}

/* ---- what a phase means ---- */
static void moved_text(const cJSON *m, struct arena *mem, struct buf *out)
{
    const char *from = json_text_at(m, "status.from"), *to = json_text_at(m, "status.to"),
               *pause = json_text_at(m, "status.pause");

    if (!*to) {
        buf_printf(out, "%s epoch %.0f ended; it waits in its queue with its place",
                   *from ? from : "its", json_number_at(m, "status.fromEpoch"));
        return;
    }
    buf_printf(out, "%s epoch %.0f" ARROW "%s epoch %.0f", from,
               json_number_at(m, "status.fromEpoch"), to, json_number_at(m, "status.toEpoch"));
    if (*json_text_at(m, "status.checkpoint"))
        buf_printf(out, ", from step %.0f", json_number_at(m, "status.step"));
    if (*pause)
        buf_printf(out, ", paused %s", pause);
    if (json_number_at(m, "status.lostGpuSeconds") > 0)
        buf_printf(out, ", %s to do again",
                   gpu_seconds(json_number_at(m, "status.lostGpuSeconds"), mem));
}

/* One sentence on the phase that it is in. */
void move_line(const cJSON *m, struct arena *mem, struct buf *out)
{
    const char *phase = json_text_at(m, "status.phase"), *to = json_text_at(m, "status.to"),
               *reason = json_text_at(m, "status.reason"),
               *message = json_text_at(m, "status.message");
    bool waits = !strcmp(phase, "Reserving"), back = move_over(phase);

    if (!strcmp(phase, "Succeeded")) {
        moved_text(m, mem, out);
    } else if ((waits || back) && (*reason || *message)) {
        buf_printf(out, "%s%s%s", reason, *reason && *message ? ": " : "", message);
    } else if (waits) {
        buf_str(out, "waits for room");
    } else if (!strcmp(phase, "Quiescing")) {
        buf_printf(out, "%s%s", *to ? to : "no destination",
                   *to ? " is held for it" : ": it goes back to its queue");
    } else if (!strcmp(phase, "Verifying")) {
        buf_str(out, "told to save and stop; what it saves is verified");
    } else if (!strcmp(phase, "Staging")) {
        buf_printf(out, "%s reads step %.0f and checks its digests", *to ? to : "its queue",
                   json_number_at(m, "status.step"));
    } else if (!strcmp(phase, "Fencing")) {
        buf_printf(out, "until epoch %.0f is proved ended", json_number_at(m, "status.fromEpoch"));
    } else if (!strcmp(phase, "Starting")) {
        buf_printf(out, "epoch %.0f is proved ended; epoch %.0f starts on %s",
                   json_number_at(m, "status.fromEpoch"), json_number_at(m, "status.toEpoch"), to);
    } else {
        buf_str(out, "asked for");
    }
}

/* ---- one Migration ---- */
/* move.def's way back of the phase that it was in last. */
static const char *way_back(const cJSON *m)
{
    static const char *const ways[][2] = {
        {"Pending", "nothing was held, nothing was done"},
        {"Reserving", "nothing was held, nothing was done"},
        {"Quiescing", "the destination was let go; the workload runs on undisturbed"},
        {"Starting",
         "none: the workload held the destination by itself already, its own way goes on"}};
    const cJSON *p, *last = NULL;

    cJSON_ArrayForEach(p, json_at(m, "status.phases")) if (!move_over(json_text_of(p, "phase")))
        last = p;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (!strcmp(json_text_of(last, "phase"), ways[i][0]))
            return ways[i][1];
    return last ? "the destination was let go; the program had been told to stop: the workload is "
                  "placed anew once its end is proved, from its newest verified checkpoint"
                : "";
}

static void row(struct buf *out, const char *label, const char *text)
{
    if (*text)
        buf_printf(out, "%-16s%s\n", label, text);
}

static void steps_print(const cJSON *m, struct arena *mem, struct buf *out)
{
    const cJSON *p;
    int64_t first = 0, at;
    struct table t;

    table_init(&t, mem, 3);
    table_cell(&t, "STEP");
    table_cell(&t, "SINCE");
    table_cell(&t, "AFTER");
    cJSON_ArrayForEach(p, json_at(m, "status.phases"))
    {
        bool known = time_at(p, "at", &at);
        if (known && !first)
            first = at;
        table_cell(&t, json_text_of(p, "phase"));
        table_cell(&t, json_text_of(p, "at"));
        table_cell(&t, known ? seconds_text(at - first, mem) : "-");
    }
    if (t.n > 3) {
        buf_char(out, '\n');
        table_print(&t, out);
        buf_char(out, '\n');
    }
}

static const char *place_text(const cJSON *m, const char *target, const char *epoch,
                              struct arena *mem)
{
    const char *name = json_text_at(m, target);
    double n = json_number_at(m, epoch);

    return !*name ? "" : n > 0 ? arena_printf(mem, "%s, epoch %.0f", name, n) : name;
}

void move_render(const cJSON *m, struct arena *mem, struct buf *out)
{
    const char *phase = json_text_at(m, "status.phase");
    int64_t began, ended;
    bool timed = time_at(m, "status.startedAt", &began) && time_at(m, "status.endedAt", &ended);
    AUTO_BUF line = {0};

    buf_init(&line, 8192);
    move_line(m, mem, &line);
    row(out, "Workload:", json_text_at(m, "spec.workload"));
    row(out, "Cause:", json_text_at(m, "spec.cause"));
    if (!move_over(phase) || !strcmp(phase, "Succeeded"))
        row(out, "Why:", json_text_at(m, "status.message"));
    row(out, "Makes room for:", json_text_at(m, "status.for"));
    row(out, "Phase:",
        timed ? arena_printf(mem, "%s, after %s", phase, seconds_text(ended - began, mem)) : phase);
    row(out, "What:", line.n ? line.p : "");
    row(out, "From:", place_text(m, "status.from", "status.fromEpoch", mem));
    row(out, "To:", place_text(m, "status.to", "status.toEpoch", mem));
    if (*json_text_at(m, "status.checkpoint"))
        row(out, "Resumes from:",
            arena_printf(mem, "%s, step %.0f", json_text_at(m, "status.checkpoint"),
                         json_number_at(m, "status.step")));
    row(out, "Pause:", json_text_at(m, "status.pause"));
    if (json_at(m, "status.lostGpuSeconds"))
        row(out, "Lost work:", gpu_seconds(json_number_at(m, "status.lostGpuSeconds"), mem));
    if (json_number_at(m, "status.cost") > 0)
        row(out, "Cost:", arena_printf(mem, "$%.4f", json_number_at(m, "status.cost")));
    if (json_number_at(m, "status.saving") > 0)
        row(out, "Saving:", arena_printf(mem, "$%.4f", json_number_at(m, "status.saving")));
    if (!strcmp(phase, "Failed") || !strcmp(phase, "Cancelled"))
        row(out, "Way back:", way_back(m));
    steps_print(m, mem, out);
}

/* ---- what a Workload resumes from, and where it has been ---- */
static const char *age_text(const cJSON *o, const char *path, int64_t now_ms, struct arena *mem)
{
    char age[16];
    int64_t at;

    if (!time_at(o, path, &at))
        return "-";
    age_print(now_ms - at, age);
    return arena_strdup(mem, age);
}

/* Times of objects are whole seconds: what comes within one is told apart by epoch and step, or by
 * version. */
static bool is_older(const cJSON *a, const cJSON *b, const char *path)
{
    static const char *const numbers[] = {"spec.epoch", "spec.step"};
    int by_time = strcmp(json_text_at(a, path), json_text_at(b, path));

    for (size_t i = 0; !by_time && i < 2; i++)
        if (json_number_at(a, numbers[i]) != json_number_at(b, numbers[i]))
            return json_number_at(a, numbers[i]) < json_number_at(b, numbers[i]);
    return by_time ? by_time < 0
                   : strtoull(json_text_at(a, "metadata.resourceVersion"), NULL, 10) <
                         strtoull(json_text_at(b, "metadata.resourceVersion"), NULL, 10);
}

/* The items in order of `path`, the newest first; at most max. */
static size_t newest(const cJSON *items, const char *path, const cJSON **ret, size_t max)
{
    const cJSON *o;
    size_t n = 0;

    cJSON_ArrayForEach(o, items)
    {
        size_t at = n;
        while (at > 0 && is_older(ret[at - 1], o, path))
            at--;
        if (at == max)
            continue;
        n += n < max;
        memmove(ret + at + 1, ret + at, (n - at - 1) * sizeof *ret);
        ret[at] = o;
    }
    return n;
}

static void checkpoints_print(const cJSON *w, const cJSON *items, int64_t now_ms, struct arena *mem,
                              struct buf *out)
{
    static const char *const heads[] = {"CHECKPOINT", "EPOCH",    "STEP", "BYTES",
                                        "AGE",        "VERIFIED", ""};
    const cJSON *list[16];
    size_t n = newest(items, "metadata.creationTimestamp", list, 16);
    const char *current = json_text_at(w, "status.checkpoint.name");
    struct table t;

    if (!n)
        return;
    table_init(&t, mem, 7);
    for (int i = 0; i < 7; i++)
        table_cell(&t, heads[i]);
    for (size_t i = 0; i < n; i++) {
        const cJSON *o = list[i];
        const char *name = json_text_at(o, "metadata.name"),
                   *bad = json_text_at(o, "status.reason");
        table_cell(&t, name);
        table_cell(&t, arena_printf(mem, "%.0f", json_number_at(o, "spec.epoch")));
        table_cell(&t, arena_printf(mem, "%.0f", json_number_at(o, "spec.step")));
        table_cell(&t, json_text_at(o, "spec.bytes"));
        table_cell(&t, age_text(o, "metadata.creationTimestamp", now_ms, mem));
        table_cell(&t, *bad ? bad : *json_text_at(o, "status.verifiedAt") ? "yes" : "no");
        table_cell(&t, !strcmp(name, current) ? "resumes from here"
                                              : json_text_at(o, "status.message"));
    }
    buf_char(out, '\n');
    table_print(&t, out);
}

static void moves_print(const cJSON *items, int64_t now_ms, struct arena *mem, struct buf *out)
{
    const cJSON *list[LAST_MOVES];
    size_t n = newest(items, "metadata.creationTimestamp", list, LAST_MOVES);
    static const char *const heads[] = {"MOVE", "CAUSE", "PHASE", "AGE", "WHAT"};
    struct table t;

    if (!n)
        return;
    table_init(&t, mem, 5);
    for (int i = 0; i < 5; i++)
        table_cell(&t, heads[i]);
    for (size_t i = 0; i < n; i++) {
        AUTO_BUF line = {0};
        buf_init(&line, 8192);
        move_line(list[i], mem, &line);
        table_cell(&t, json_text_at(list[i], "metadata.name"));
        table_cell(&t, json_text_at(list[i], "spec.cause"));
        table_cell(&t, json_text_at(list[i], "status.phase"));
        table_cell(&t, age_text(list[i], "metadata.creationTimestamp", now_ms, mem));
        table_cell(&t, line.n ? line.p : "");
    }
    buf_char(out, '\n');
    table_print(&t, out);
}

void workload_moves_render(const cJSON *w, const cJSON *checkpoints, const cJSON *moves,
                           int64_t now_ms, struct arena *mem, struct buf *out)
{
    const char *room = json_text_at(w, "status.nominated.target"),
               *domain = json_text_at(w, "status.nominated.domain"),
               *asked = json_text_at(w, "spec.checkpoint.interval");

    if (*json_text_at(w, "status.resumedFrom"))
        row(out, "Resumed from:",
            arena_printf(mem, "%s, step %.0f%s", json_text_at(w, "status.resumedFrom"),
                         json_number_at(w, "status.resumedStep"),
                         cJSON_IsTrue(json_at(w, "status.resumedFound"))
                             ? "; found in the store: nobody had been told of it"
                             : ""));
    row(out, "Moving by:", json_text_at(w, "status.migration"));
    if (*room)
        row(out, "Room is made:",
            *domain ? arena_printf(mem, "on %s, %s", room, domain)
                    : arena_printf(mem, "on %s", room));
    if (json_at(w, "spec.checkpoint") && !cJSON_GetArraySize(checkpoints))
        row(out, "Checkpoints:", "none yet: a stop loses all that was done");
    if (*json_text_at(w, "status.checkpoint.interval"))
        row(out, "Save every:",
            arena_printf(mem, "%s%s", json_text_at(w, "status.checkpoint.interval"),
                         *asked && strcmp(asked, "auto") != 0
                             ? ""
                             : " (advice from its write time and the hazard)"));
    checkpoints_print(w, checkpoints, now_ms, mem, out);
    moves_print(moves, now_ms, mem, out);
    if (cJSON_GetArraySize(checkpoints) || cJSON_GetArraySize(moves))
        buf_char(out, '\n');
}

/* ---- between two logs ---- */
static const cJSON *end_of(const cJSON *w, int64_t epoch)
{
    const cJSON *e;

    cJSON_ArrayForEach(e, json_at(w, "status.ends"))
    {
        if ((int64_t)json_number_at(e, "epoch") == epoch)
            return e;
    }
    return NULL;
}

/* The Migration that began it. */
static const cJSON *move_to(const cJSON *moves, const cJSON *workload, int64_t epoch)
{
    const char *uid = json_text_at(workload, "metadata.uid");
    const cJSON *m;

    cJSON_ArrayForEach(m, json_at(moves, "items"))
    {
        if (!strcmp(json_text_at(m, "status.workloadUid"), uid) &&
            (int64_t)json_number_at(m, "status.toEpoch") == epoch)
            return m;
    }
    return NULL;
}

void epoch_line(const cJSON *workload, const cJSON *moves, int64_t before, int64_t epoch,
                struct buf *out)
{
    const cJSON *was = end_of(workload, before), *over = end_of(workload, epoch),
                *move = move_to(moves, workload, epoch);
    const char *target = over ? json_text_of(over, "target")
                              : json_text_at(workload, "status.placement.target"),
               *from = json_text_of(was, "target"), *reason = json_text_of(was, "reason"),
               *message = json_text_of(was, "message"),
               *at = over ? json_text_of(over, "at") : json_text_at(workload, "status.phaseSince");

    const size_t begin = out->n;
    buf_printf(out, "--- epoch %lld", (long long)epoch);
    if (*target)
        buf_printf(out, " on %s", target);
    if (*at)
        buf_printf(out, " %s %s", over ? "until" : "since", at);
    buf_str(out, move || (*from && strcmp(from, target) != 0) ? ": moved" : ": started again");
    if (move)
        buf_printf(out, ": %s (%s)", json_text_at(move, "spec.cause"),
                   json_text_at(move, "metadata.name"));
    else if (*reason || *message)
        buf_printf(out, ": %s%s%.400s", reason, *reason && *message ? ": " : "", message);
    for (size_t i = begin; i < out->n; i++) /* it stays one line */
        if (out->p[i] == '\n' || out->p[i] == '\r')
            out->p[i] = ' ';
    buf_char(out, '\n');
}
