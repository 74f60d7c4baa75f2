/* One log, as its target and its store have it (logs_print). A member or a leader that is lost in
 * between is no end: the log goes on at another one, from the byte behind what was told. So nothing
 * is told whose place is not known yet, where places are told at all; a log without them goes on
 * by time, and says so. It must never take a cut for an end. */
#include "api/cli/cli_internal.h"
#include "api/cli/streams/frames.h"

#include <string.h>

#define HELD_MAX ((size_t)16 << 20)
#define AGAIN_MS 300
#define SILENT_MS 35000 /* a member says every 10 s that it lives */
#define TRIES_MAX 2  /* that bring nothing, once its epoch is over, or it is not the way there */
#define AROUND_S 2   /* of time around a cut that is told again */

struct telling {
    struct cli *c;
    const char *ns, *name;
    struct logs_wish w;
    struct logs_told *told;
    struct buf in, held; /* frames; text whose place is not told yet */
    bool plain;          /* the server is of a version that has no places */
    bool placed;         /* they come */
    bool known;          /* this is one: */
    int64_t epoch, try_;
    uint64_t byte;
    bool mid;
    bool by_byte;      /* it was asked for from that place on, */
    bool older;        /* of who does not know what that means */
    bool deaf;         /* whoever reads is gone */
    bool status, over; /* its end was told; that is an end, and no cut */
    struct err why;
    uint64_t began_ms, heard_ms; /* loop time: the first request; of the last text */
    bool waits;                  /* it was said that it waits */
    unsigned tries;              /* since the last text */
};

static void text_print(struct telling *t, const char *p, size_t n)
{
    if (n == 0 || t->deaf)
        return;
    t->told->any = true;
    t->tries = 0;
    t->told->mid = p[n - 1] != '\n';
    t->deaf = fwrite(p, 1, n, t->c->out) != n || out_now(t->c) != 0;
}

static void held_print(struct telling *t)
{
    text_print(t, t->held.p, t->held.n);
    buf_reset(&t->held);
}

static void text_came(struct telling *t, const char *p, size_t n)
{
    if (t->by_byte && !t->placed) { /* it is told from its beginning once more */
        (void)err_set(&t->why, E_NOTIMPL, "a member of an older version leads");
        t->known = false;
        t->older = true;
        return;
    }
    t->heard_ms = loop_now_ms(t->c->loop);
    if (t->placed && t->held.n + n <= HELD_MAX) {
        buf_add(&t->held, p, n);
        return;
    }
    t->known = t->known && !t->placed; /* where this ends nobody has told */
    held_print(t);
    text_print(t, p, n);
}

static void place_came(struct telling *t, const char *p, size_t n)
{
    cJSON *j = cJSON_ParseWithLength(p, n);
    double byte = json_number_at(j, "byte");

    if (j && cJSON_HasObjectItem(j, "byte") && byte >= 0 && byte <= 1e15) {
        held_print(t);
        t->known = true;
        t->told->epoch = t->epoch = (int64_t)json_number_at(j, "epoch");
        t->try_ = (int64_t)json_number_at(j, "try");
        t->byte = (uint64_t)byte;
        t->mid = cJSON_IsTrue(json_at(j, "midLine"));
    }
    t->placed = true;
    cJSON_Delete(j);
}

static void frame_came(void *arg, enum frame_type type, const char *p, size_t n)
{
    struct telling *t = arg;
    struct frames_end end = {0};

    if (type == FRAME_OUT && n > 0) { /* else it lives, and says nothing */
        text_came(t, p, n);
    } else if (type == FRAME_PLACE) {
        place_came(t, p, n);
    } else if (type == FRAME_STATUS) {
        frames_end_read(p, n, &end, &t->why);
        t->status = true;
        t->over = end.told && !t->why.code;
    }
}

static int body_came(const void *p, size_t n, void *arg)
{
    struct telling *t = arg;

    if (t->plain)
        text_came(t, p, n);
    else if (!frames_take(&t->in, p, n, frame_came, t))
        return err_set(&t->why, E_INTERNAL, "the server sent a frame that is too large");
    return t->deaf || t->older ? 1 : 0;
}

/* ---- one request ---- */
static void path_make(struct telling *t, bool again, struct buf *path)
{
    const struct logs_wish *w = &t->w;
    uint64_t now = loop_now_ms(t->c->loop);
    t->by_byte = t->known && (t->told->any || (!w->since_ms && !w->since_time));
    bool by_time = again && !t->by_byte && t->told->any;
    long epoch = t->epoch > 0 ? (long)t->epoch : w->epoch;

    buf_printf(path, "%s/log?rank=%ld",
               cli_path(t->c, kind_by_id(KIND_WORKLOAD), t->ns, false, t->name), w->rank);
    if (t->by_byte) {
        buf_printf(path, "&try=%lld&byte=%llu%s", (long long)t->try_, (unsigned long long)t->byte,
                   t->mid ? "&midLine=true" : "");
    } else if (by_time) {
        buf_printf(path, "&sinceSeconds=%llu",
                   (unsigned long long)(now - t->heard_ms) / 1000 + AROUND_S);
    } else {
        if (w->tail >= 0)
            buf_printf(path, "&tailLines=%ld", w->tail);
        if (w->since_ms)
            buf_printf(path, "&sinceSeconds=%llu",
                       ((unsigned long long)w->since_ms + (now - t->began_ms) + 999) / 1000);
        if (w->since_time) {
            buf_str(path, "&sinceTime=");
            client_encode(path, w->since_time);
        }
    }
    if (epoch)
        buf_printf(path, "&epoch=%ld", epoch);
    buf_str(path, w->previous && !epoch ? "&previous=true" : "");
    buf_printf(path, "%s%s%s", t->plain ? "" : "&places=true",
               w->timestamps ? "&timestamps=true" : "", w->follow ? "&follow=true" : "");
}

/* 0: all of it was told. *ret_cut: more was to come. */
static int ask(struct telling *t, bool again, bool *ret_cut, struct err *err)
{
    struct client_request rq = {.method = "GET",
                                .accept = "text/plain, application/json",
                                .data = body_came,
                                .arg = t,
                                .patient = t->w.follow,
                                .silent_ms = t->plain ? 0 : SILENT_MS};
    struct client_answer a;
    AUTO_BUF path = {0};

    buf_init(&path, 8192);
    path_make(t, again, &path);
    rq.path = path.p;
    t->placed = t->status = t->over = t->older = false;
    t->why = (struct err){0};
    buf_reset(&t->in);
    buf_reset(&t->held);
    client_answer_init(&a);
    int rv = client_perform(t->c->lane, &rq, &a, err);
    if (!rv)
        rv = client_status(&a, err);
    bool begun = a.status == 200, old = a.status == 400 && !t->plain;
    client_answer_fini(&a);
    if (old && err && strstr(err->text, "places")) {
        t->plain = true;
        return ask(t, again, ret_cut, err);
    }
    *ret_cut = begun && !t->deaf && (t->plain ? rv != 0 : !t->over);
    if (!*ret_cut && begun) {
        held_print(t);
        return t->plain || t->over ? 0 : rv;
    }
    if (*ret_cut && t->why.code)
        rv = err_set(err, t->why.code, "%s", t->why.text);
    else if (*ret_cut && !rv)
        rv = err_set(err, E_CONNECT, "the member was lost while it told");
    return rv;
}

/* ---- and the next one ---- */
/* Its epoch is over, or the work is gone: what is not told soon never will be. */
static bool epoch_over(const struct telling *t, int *ret_rv, struct err *err)
{
    cJSON *o = NULL;
    int64_t epoch = t->epoch > 0 ? t->epoch : t->w.epoch;

    *ret_rv = cli_json(t->c, "GET",
                       cli_path(t->c, kind_by_id(KIND_WORKLOAD), t->ns, false, t->name), NULL, &o,
                       err);
    if (*ret_rv == E_FORBIDDEN) /* he may read logs alone */
        *ret_rv = 0;
    bool over = o && (move_over(json_text_at(o, "status.phase")) ||
                      (epoch > 0 && (int64_t)json_number_at(o, "status.epoch") > epoch));
    cJSON_Delete(o);
    return over;
}

static bool may_pass(int code)
{
    return code == E_CONNECT || code == E_UNAVAIL || code == E_TIMEOUT || code == E_LIMIT;
}

/* What is said of a cut that the reader would else not see. */
static void cut_say(struct telling *t, const struct err *why)
{
    unsigned long long s = (loop_now_ms(t->c->loop) - t->heard_ms) / 1000 + AROUND_S;

    if (t->told->any && !t->known) {
        if (t->told->mid)
            text_print(t, "\n", 1);
        (void)fprintf(t->c->err,
                      "the log was cut off (%s), and it does not tell where in it a byte is: it "
                      "goes on with what came in the last %llu s; lines may come twice here, or "
                      "be missing\n",
                      why->text, s);
    }
}

static int tell(struct telling *t, struct err *err)
{
    bool cut = false, begun = false;
    int rv, state;

    for (;;) {
        rv = ask(t, begun, &cut, err);
        begun = begun || cut;
        if (!rv || t->deaf || (!begun && !t->w.patient) || (!cut && !may_pass(rv)))
            return rv;
        if (cut) {
            t->waits = false;
        } else if (!t->waits) {
            (void)fprintf(t->c->err, "the log waits: %s\n", err->text);
            t->waits = true;
        }
        cli_pause(t->c, AGAIN_MS);
        struct err e = {0};
        bool over = epoch_over(t, &state, &e);
        if (state) {
            *err = e;
            return state;
        }
        if ((over || !may_pass(rv)) && ++t->tries > TRIES_MAX)
            return rv;
        if (cut)
            cut_say(t, err);
        *err = (struct err){0};
    }
}

int logs_print(struct cli *c, const char *ns, const char *name, const struct logs_wish *w,
               struct logs_told *ret_told, struct err *err)
{
    struct logs_told told = {0};
    struct telling t = {.c = c,
                        .ns = ns,
                        .name = name,
                        .w = *w,
                        .told = ret_told ? ret_told : &told,
                        .began_ms = loop_now_ms(c->loop)};

    *t.told = (struct logs_told){0};
    buf_init(&t.in, (size_t)4 * FRAME_MAX_BYTES);
    buf_init(&t.held, HELD_MAX + 1);
    int rv = tell(&t, err);
    buf_fini(&t.in);
    buf_fini(&t.held);
    return rv;
}

int verb_logs(struct cli *c, struct err *err)
{
    const struct args *a = &c->args;
    struct logs_wish w = {.follow = arg_flag(a, "follow"),
                          .timestamps = arg_flag(a, "timestamps"),
                          .since_time = arg_text(a, "since-time", NULL),
                          .previous = arg_flag(a, "previous")};
    char phase[32] = "";
    int64_t at;

    if (a->n_pos != 1)
        return cli_usage(c, err, "which workload?");
    if (w.since_time && arg_flag(a, "since"))
        return err_set(err, E_USAGE, "--since and --since-time say the same: leave one out");
    if (w.previous && arg_flag(a, "epoch"))
        return err_set(err, E_USAGE, "--epoch and --previous say the same: leave one out");
    int rv = arg_number(a, "rank", 0, 4095, 0, &w.rank, err);
    if (!rv)
        rv = arg_number(a, "epoch", 1, 1000000000, 0, &w.epoch, err);
    if (!rv)
        rv = arg_number(a, "tail", 0, 1000000000, -1, &w.tail, err);
    if (!rv)
        rv = arg_duration(a, "since", 0, &w.since_ms, err);
    if (!rv && w.since_time && time_parse(w.since_time, &at, err))
        return err_set(err, E_USAGE, "--since-time \"%.60s\": write it as 2026-11-21T03:33:22Z",
                       w.since_time);
    if (!rv)
        rv = cli_connect(c, err);
    if (rv)
        return rv;
    if (!w.follow || w.previous || w.epoch)
        return logs_print(c, c->ns, a->pos[0], &w, NULL, err);
    rv = work_logs(c, c->ns, a->pos[0], &w, phase, err);
    if (!rv && *phase && strcmp(phase, "Succeeded") != 0)
        c->exit = 1;
    return rv;
}
