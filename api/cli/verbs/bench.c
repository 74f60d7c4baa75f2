/* bench: an open-loop writer, and the proof that nothing acknowledged is missing. Open loop: a
 * write is due at its time whether or not the one before was answered, so that a pause of the
 * cluster shows in the figures. */
#include "api/cli/cli_internal.h"

#define LANES_MAX 256
#define PENDING_MAX 200000

struct write_lane {
    struct bench *b;
    struct client_lane *lane;
    struct client_answer answer;
    char name[80];
    char *body;
    uint64_t due_ms;
    bool busy;
};
struct bench {
    struct cli *c;
    struct loop *loop;
    const char *path, *run;
    FILE *acks;
    struct write_lane lanes[LANES_MAX];
    unsigned n_lanes;
    long rate;
    uint64_t begun_ms, until_ms, last_ack_ms, longest_gap_ms;
    uint64_t sent, acked, refused, unknown;
    uint32_t *latency; /* in ms, of each ack */
    size_t n_latency, cap_latency;
    struct timer tick;
    struct err first;
    bool over;
};

static uint64_t due_at(const struct bench *b, uint64_t i)
{
    return b->begun_ms + i * 1000 / (uint64_t)b->rate;
}

static void next_writes(struct bench *b);

static void note_ack(struct bench *b, struct write_lane *w, uint64_t now)
{
    b->acked++;
    if (now - b->last_ack_ms > b->longest_gap_ms)
        b->longest_gap_ms = now - b->last_ack_ms;
    b->last_ack_ms = now;
    if (b->n_latency < b->cap_latency)
        b->latency[b->n_latency++] = (uint32_t)(now - w->due_ms);
    if (b->acks)
        (void)fprintf(b->acks, "%s\n", w->name);
}

static void write_done(void *arg, const struct err *err)
{
    struct write_lane *w = arg;
    struct bench *b = w->b;
    struct err e = {0};

    w->busy = false;
    if (err)
        e = *err;
    else if (w->answer.status != 409 || w->answer.tries == 1)
        (void)!client_status(&w->answer,
                             &e); /* 409 after a repetition: the first try had been done */
    if (!e.code)
        note_ack(b, w, loop_now_ms(b->loop));
    else if (e.code == E_UNKNOWN)
        b->unknown++;
    else
        b->refused++;
    if (e.code && !b->first.code)
        b->first = e;
    next_writes(b);
}

static void write_start(struct bench *b, struct write_lane *w)
{
    (void)snprintf(w->name, sizeof w->name, "bench-%s-%llu", b->run, (unsigned long long)b->sent);
    w->due_ms = due_at(b, b->sent++);
    w->busy = true;
    mem_free(w->body);
    AUTO_BUF body = {0};
    buf_init(&body, 1024);
    buf_printf(&body,
               "{\"apiVersion\":\"hanse.dev/"
               "v1alpha1\",\"kind\":\"Dataset\",\"metadata\":{\"name\":\"%s\"},"
               "\"spec\":{\"bytes\":\"1Ki\"}}",
               w->name);
    size_t n;
    w->body = buf_steal(&body, &n);
    struct client_request rq = {
        .method = "POST", .path = b->path, .body = slice_make(w->body, n), .key = w->name};
    client_start(w->lane, &rq, &w->answer, write_done, w);
}

static void next_writes(struct bench *b)
{
    uint64_t now = loop_now_ms(b->loop);
    unsigned busy = 0;

    for (unsigned i = 0; i < b->n_lanes; i++) {
        struct write_lane *w = &b->lanes[i];
        if (!w->busy && due_at(b, b->sent) <= now && due_at(b, b->sent) < b->until_ms)
            write_start(b, w);
        busy += w->busy;
    }
    bool more = due_at(b, b->sent) < b->until_ms;
    if (!more && !busy) {
        b->over = true;
        loop_stop(b->loop);
    } else if (more && busy < b->n_lanes) {
        uint64_t due = due_at(b, b->sent);
        timer_start(&b->tick, due > now ? due - now : 0);
    }
}

static void on_tick(void *arg)
{
    next_writes(arg);
}

static int compare_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double percentile(const struct bench *b, double p)
{
    return b->n_latency ? b->latency[(size_t)((double)(b->n_latency - 1) * p)] : 0;
}

static void result(cJSON *list, const char *name, double value, const char *unit)
{
    cJSON *r = cJSON_CreateObject();

    (void)cJSON_AddStringToObject(r, "name", name);
    (void)cJSON_AddNumberToObject(r, "value", value);
    (void)cJSON_AddStringToObject(r, "unit", unit);
    (void)cJSON_AddItemToArray(list, r);
}

static void report(struct bench *b, double seconds)
{
    cJSON *j = cJSON_CreateObject(), *p, *list;

    if (b->n_latency)
        qsort(b->latency, b->n_latency, sizeof *b->latency, compare_u32);
    (void)cJSON_AddStringToObject(j, "name", "write");
    p = cJSON_AddObjectToObject(j, "parameters");
    (void)cJSON_AddNumberToObject(p, "rate", (double)b->rate);
    (void)cJSON_AddNumberToObject(p, "durationSeconds", (double)(b->until_ms - b->begun_ms) / 1000);
    (void)cJSON_AddNumberToObject(p, "connections", b->n_lanes);
    list = cJSON_AddArrayToObject(j, "results");
    result(list, "acknowledged", (double)b->acked, "writes");
    result(list, "refused", (double)b->refused, "writes");
    result(list, "unknown", (double)b->unknown, "writes");
    result(list, "rate", seconds > 0 ? (double)b->acked / seconds : 0, "writes/s");
    result(list, "p50", percentile(b, 0.50), "ms");
    result(list, "p99", percentile(b, 0.99), "ms");
    result(list, "longestGap", (double)b->longest_gap_ms, "ms");
    char *text = cJSON_PrintUnformatted(j);
    (void)fprintf(b->c->out, "%s\n", text);
    cJSON_free(text);
    cJSON_Delete(j);
}

static int bench_write(struct cli *c, struct err *err)
{
    const char *file = arg_text(&c->args, "acks", NULL);
    int64_t duration;
    long lanes, rate;
    int rv = arg_number(&c->args, "rate", 1, 100000, 500, &rate, err);

    if (!rv)
        rv = arg_number(&c->args, "connections", 1, LANES_MAX, 16, &lanes, err);
    if (!rv)
        rv = arg_duration(&c->args, "duration", 10000, &duration, err);
    if (!rv)
        rv = cli_connect(c, err);
    if (rv)
        return rv;
    struct bench *b = arena_new(c->mem, struct bench);
    *b = (struct bench){.c = c, .loop = c->loop, .rate = rate, .n_lanes = (unsigned)lanes};
    b->path = cli_path(c, kind_by_id(KIND_DATASET), c->ns, false, NULL);
    b->run =
        arena_printf(c->mem, "%08llx", (unsigned long long)(loop_random_u64(c->loop) & 0xffffffff));
    b->acks = file ? fopen(file, "a") : NULL;
    if (file && !b->acks)
        return err_set(err, E_IO, "%s cannot be opened for writing", file);
    b->cap_latency = (size_t)((uint64_t)duration * (uint64_t)rate / 1000 + 16);
    if (b->cap_latency > 20000000)
        b->cap_latency = 20000000;
    b->latency = mem_alloc(b->cap_latency * sizeof *b->latency);
    b->begun_ms = b->last_ack_ms = loop_now_ms(c->loop);
    b->until_ms = b->begun_ms + (uint64_t)duration;
    for (unsigned i = 0; i < b->n_lanes; i++) {
        b->lanes[i] = (struct write_lane){.b = b, .lane = client_lane_create(c->client)};
        client_answer_init(&b->lanes[i].answer);
        client_lane_pin(b->lanes[i].lane, i);
    }
    timer_init(&b->tick, c->loop, on_tick, b);
    timer_start(&b->tick, 0);
    client_run_until(c->loop, &b->over);
    report(b, (double)(loop_now_ms(c->loop) - b->begun_ms) / 1000);
    for (unsigned i = 0; i < b->n_lanes; i++) {
        b->lanes[i].lane = client_lane_destroy(b->lanes[i].lane);
        client_answer_fini(&b->lanes[i].answer);
        mem_free(b->lanes[i].body);
    }
    mem_free(b->latency);
    if (b->acks && fclose(b->acks))
        return err_set(err, E_IO, "%s cannot be written", file);
    if (b->refused || b->unknown) {
        (void)fprintf(c->err, "%llu writes were refused, %llu are unknown; the first: %s\n",
                      (unsigned long long)b->refused, (unsigned long long)b->unknown,
                      b->first.text);
        c->exit = 1;
    }
    return 0;
}

/* ---- verify ---- */
struct names {
    char **v;
    size_t n, cap;
};
static void names_add(struct names *l, const char *name)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 4096;
        l->v = mem_realloc(l->v, l->cap * sizeof *l->v);
    }
    l->v[l->n++] = mem_strdup(name);
}

static void names_free(struct names *l)
{
    for (size_t i = 0; i < l->n; i++)
        mem_free(l->v[i]);
    mem_free(l->v);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int stored_read(struct cli *c, struct names *l, struct err *err)
{
    char more[2048] = "";
    int rv = 0;

    do {
        cJSON *page = NULL;
        const cJSON *o;
        AUTO_BUF path = {0};
        buf_init(&path, 8192);
        buf_printf(&path, "%s?limit=1000",
                   cli_path(c, kind_by_id(KIND_DATASET), c->ns, false, NULL));
        if (*more) {
            buf_str(&path, "&continue=");
            client_encode(&path, more);
        }
        rv = cli_json(c, "GET", path.p, NULL, &page, err);
        cJSON_ArrayForEach(o, cJSON_GetObjectItemCaseSensitive(page, "items"))
            names_add(l, json_text_at(o, "metadata.name"));
        str_copy(more, sizeof more, json_text_at(page, "metadata.continue"));
        cJSON_Delete(page);
    } while (!rv && *more);
    if (l->n)
        qsort(l->v, l->n, sizeof *l->v, compare_names);
    return rv;
}

static int bench_verify(struct cli *c, struct err *err)
{
    const char *file = arg_text(&c->args, "acks", NULL);
    struct names stored = {0};
    char line[256];
    unsigned long long total = 0, missing = 0;

    if (!file)
        return cli_usage(c, err, "--acks FILE is missing");
    int rv = cli_connect(c, err);
    if (rv)
        return rv;
    FILE *f = fopen(file, "r");
    if (!f)
        return err_set(err, E_NOTFOUND, "%s cannot be read", file);
    rv = stored_read(c, &stored, err);
    while (!rv && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        const char *key = line;
        total++;
        if (!stored.n || !bsearch(&key, stored.v, stored.n, sizeof *stored.v, compare_names)) {
            if (++missing <= 20)
                (void)fprintf(c->err, "missing: %s\n", line);
        }
    }
    (void)fclose(f);
    names_free(&stored);
    if (rv)
        return rv;
    (void)fprintf(
        c->out,
        "{\"name\":\"verify\",\"parameters\":{},\"results\":[{\"name\":\"acknowledged\",\"value\":%"
        "llu,"
        "\"unit\":\"writes\"},{\"name\":\"missing\",\"value\":%llu,\"unit\":\"writes\"}]}\n",
        total, missing);
    c->exit = missing ? 1 : 0;
    return 0;
}

int verb_bench(struct cli *c, struct err *err)
{
    const char *what = c->args.n_pos == 1 ? c->args.pos[0] : "";

    if (!strcmp(what, "write"))
        return bench_write(c, err);
    if (!strcmp(what, "verify"))
        return bench_verify(c, err);
    return cli_usage(c, err, "expected write or verify");
}
