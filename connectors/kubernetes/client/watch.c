/* Lists one kind of object in pages, and watches it from there. What is told must be enough to take
 * things away by: so a listing that was broken off, or that is older than what was seen before, is
 * never told as whole, and nothing is lost between a listing and its watch, or between a watch that
 * was cut and the next one.
 *
 *     LIST → page → page → whole → WATCH → cut → LOOK → WATCH …
 *       ↑                            │ 410
 *       └────────────────────────────┘
 *
 * Whatever fails rests a while, longer each time, and goes on at LOOK, or at LIST where it has
 * never been whole or has expired. */
#include "connectors/kubernetes/client/client.h"

#include <stdio.h>
#include <string.h>

#define PAGE_MAX_BYTES (8u << 20)   /* more of a listing in one answer: smaller pages */
#define OBJECT_MAX_BYTES (8u << 20) /* one object of a watch; servers keep 1.5 MiB of each */
#define WAITING_MAX_BYTES (1u << 20)
#define DRAIN_OBJECTS 64 /* that are read in one turn of the loop */
#define LIST_MS 60000
#define LOOK_MS 20000
#define WATCH_S 300       /* and by chance up to as much again */
#define SETTLED_MS 2000   /* a watch that has lasted so long goes well */
#define SILENCE_MS 150000 /* bookmarks come each minute: nothing that long is a dead connection */
#define REST_MIN_MS 500
#define REST_MAX_MS 15000
#define OLD_REST_MS 2000
#define EXPIRED_TRIES 3 /* in a row: it is trouble */
#define OLD_TRIES 5     /* in a row: nobody waits for it any longer */
#define RV_MAX 64
#define NEXT_MAX 16384
#define URL_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~="

enum step { STEP_REST, STEP_LOOK, STEP_LIST, STEP_WATCH, STEP_OVER };
struct kube_watch {
    struct loop *loop;
    struct kube_client *client;
    char *path, *selectors;
    unsigned page, limit; /* as asked for; as it may be after answers that were too large */
    const struct kube_watch_events *ev;
    void *arg;
    bool *gone; /* where who tells something looks whether it was destroyed meanwhile; or NULL */

    enum step step;
    struct kube_request *rq;
    struct timer timer; /* the rest that is left; of a watch: its silence */
    bool whole;         /* it was listed, and a watch may go on from rv */
    bool relist, troubled, settled;
    unsigned failures;    /* in a row */
    unsigned olds;        /* answers that were older than rv */
    char rv[RV_MAX];      /* the newest that was seen */
    char list_rv[RV_MAX]; /* of the listing under way */
    struct buf next;      /* its next page; empty: it begins */

    /* of the watch under way: what came and was not told yet */
    struct buf came;
    struct timer drain;
    size_t scanned; /* of `came`: no line ends before that */
    bool paused, heard;
    bool ended; /* no more comes; end_why: a failure, where it has a code */
    struct err end_why;
    uint64_t began_ms;
};

/* ---- resourceVersions ---- */
/* Those of one kind in one cluster are numbers that grow; what is no number proves nothing. */
static bool older(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);

    if (!n || !m || strspn(a, "0123456789") != n || strspn(b, "0123456789") != m)
        return false;
    while (*a == '0')
        a++, n--;
    while (*b == '0')
        b++, m--;
    return n != m ? n < m : strcmp(a, b) < 0;
}

static bool rv_read(const cJSON *o, char ret[RV_MAX])
{
    const char *rv = kube_text(o, "metadata.resourceVersion");

    if (!*rv || strlen(rv) >= RV_MAX || strspn(rv, URL_LETTERS) != strlen(rv))
        return false;
    str_copy(ret, RV_MAX, rv);
    return true;
}

/* ---- telling ---- */
/* false: it was destroyed meanwhile. */
#define TELL(w, call)                                                                              \
    (__extension__({                                                                               \
        bool gone_ = false, *outer_ = (w)->gone;                                                   \
        (w)->gone = &gone_;                                                                        \
        call;                                                                                      \
        if (gone_ && outer_)                                                                       \
            *outer_ = true;                                                                        \
        else if (!gone_)                                                                           \
            (w)->gone = outer_;                                                                    \
        !gone_;                                                                                    \
    }))

static void rest(struct kube_watch *w, uint64_t ms)
{
    w->step = STEP_REST;
    timer_start(&w->timer, ms);
}

static uint64_t by_chance(struct kube_watch *w, uint64_t ms)
{
    return ms / 2 + loop_random_u64(w->loop) % (ms / 2 + 1);
}

static void fail(struct kube_watch *w, const struct err *why, uint64_t at_least_ms)
{
    uint64_t ms = (uint64_t)REST_MIN_MS << (w->failures < 5 ? w->failures : 5);
    bool first = !w->troubled;

    w->failures++;
    ms = by_chance(w, ms < REST_MAX_MS ? ms : REST_MAX_MS);
    rest(w, ms > at_least_ms ? ms : at_least_ms);
    w->troubled = true;
    if (first)
        w->ev->trouble(w->arg, why);
}

static void well(struct kube_watch *w)
{
    w->failures = 0;
    if (!w->troubled)
        return;
    w->troubled = false;
    w->ev->trouble(w->arg, NULL);
}

/* What the server has expired is listed anew: at once, and slower where it expires each time. */
static void expired(struct kube_watch *w)
{
    uint64_t ms = (uint64_t)REST_MIN_MS << (w->failures < 5 ? w->failures : 5);
    struct err why;

    w->whole = false;
    buf_reset(&w->next);
    w->failures++;
    rest(w, by_chance(w, ms));
    if (w->failures < EXPIRED_TRIES || w->troubled)
        return;
    (void)err_set(&why, E_UNAVAIL,
                  "%s: each listing has expired before it was whole, or before it could be watched",
                  w->path);
    w->troubled = true;
    w->ev->trouble(w->arg, &why);
}

/* ---- a state that has gone back ---- */
/* True when rv is older than what was seen: nothing of it may be taken. Once it has been so, what
 * comes later may be another history, which has come as far meanwhile. */
static bool went_back(struct kube_watch *w, const char *rv)
{
    bool is = older(rv, w->rv);
    struct err why;

    if (!is && !w->olds)
        return false;
    (void)err_set(&why, E_STALE,
                  is ? "%s: the server's state (resourceVersion %s) is older than what it had told "
                       "before (%s): it is behind the others, or was restored from a backup"
                     : "%s: the server's state, now at resourceVersion %s, had been older than %s, "
                       "which it had told before: it was behind the others, or was restored from a "
                       "backup",
                  w->path, rv, w->rv);
    buf_reset(&w->next);
    if (!is || ++w->olds >= OLD_TRIES) {
        w->step = STEP_OVER;
        w->ev->back(w->arg, &why);
    } else {
        fail(w, &why, OLD_REST_MS);
    }
    return true;
}

/* ---- listing ---- */
static void watch_begin(struct kube_watch *w);

static bool items_tell(struct kube_watch *w, const cJSON *list)
{
    const cJSON *o;

    cJSON_ArrayForEach(o, kube_at(list, "items"))
    {
        if (cJSON_IsObject(o) && !TELL(w, w->ev->item(w->arg, KUBE_IS, o)))
            return false;
    }
    return true;
}

static void page_take(struct kube_watch *w, const cJSON *list)
{
    const char *next = kube_text(list, "metadata.continue");
    bool first = w->next.n == 0;
    char rv[RV_MAX];
    struct err why;

    if (!rv_read(list, rv) || !cJSON_IsArray(kube_at(list, "items")) ||
        strspn(next, URL_LETTERS) != strlen(next) || strlen(next) > NEXT_MAX) {
        (void)err_set(&why, E_UNKNOWN, "%s: what the server answers is no list", w->path);
        buf_reset(&w->next);
        fail(w, &why, 0);
        return;
    }
    if (first && went_back(w, rv))
        return;
    if (first) {
        str_copy(w->list_rv, sizeof w->list_rv, rv);
        w->relist = false;
        if (!TELL(w, w->ev->begins(w->arg)))
            return;
    }
    buf_reset(&w->next);
    buf_str(&w->next, next);
    if (!items_tell(w, list))
        return;
    if (w->relist || w->next.n) {
        if (w->relist)
            buf_reset(&w->next);
        rest(w, 0);
        return;
    }
    w->whole = true;
    w->limit = w->page;
    str_copy(w->rv, sizeof w->rv, w->list_rv);
    if (!TELL(w, w->ev->listed(w->arg, w->list_rv)))
        return;
    if (w->relist)
        rest(w, 0);
    else
        watch_begin(w);
}

static void page_came(void *arg, const struct kube_answer *a)
{
    struct kube_watch *w = arg;

    w->rq = NULL;
    if (a->out == OUT_DONE) {
        page_take(w, a->body);
    } else if (a->status == 410) { /* amid the pages */
        expired(w);
    } else if (a->err->code == E_TOOLARGE && w->limit > 1) {
        w->limit /= 2;
        rest(w, 0);
    } else {
        buf_reset(&w->next);
        fail(w, a->err, a->retry_after_ms);
    }
}

static void get(struct kube_watch *w, const char *path, uint64_t ms,
                void (*done)(void *arg, const struct kube_answer *a))
{
    const struct kube_ask ask = {.method = "GET",
                                 .path = path,
                                 .ahead = true,
                                 .answer_max = PAGE_MAX_BYTES,
                                 .deadline_ms = loop_now_ms(w->loop) + ms,
                                 .done = done,
                                 .arg = w};

    w->rq = kube_send(w->client, &ask);
}

/* Without a resourceVersion: what a majority of the cluster's store has now. */
static void page_ask(struct kube_watch *w)
{
    AUTO_BUF path;

    w->step = STEP_LIST;
    buf_init(&path, NEXT_MAX + 2048);
    buf_printf(&path, "%s?limit=%u%s%s", w->path, w->limit, *w->selectors ? "&" : "", w->selectors);
    if (w->next.n)
        buf_printf(&path, "&continue=%s", w->next.p);
    INV(!path.failed);
    get(w, path.p, LIST_MS, page_came);
}

/* ---- looking how far the state is, ahead of a watch that goes on ---- */
static void look_came(void *arg, const struct kube_answer *a)
{
    struct kube_watch *w = arg;
    char rv[RV_MAX];
    struct err why;

    w->rq = NULL;
    if (a->out != OUT_DONE) {
        w->whole = w->whole && a->status && a->status < 500; /* it may come back as it once was */
        fail(w, a->err, a->retry_after_ms);
    } else if (!rv_read(a->body, rv)) {
        (void)err_set(&why, E_UNKNOWN, "%s: what the server answers is no list", w->path);
        fail(w, &why, 0);
    } else if (!went_back(w, rv)) {
        watch_begin(w);
    }
}

static void look_ask(struct kube_watch *w)
{
    char path[512];

    w->step = STEP_LOOK;
    (void)snprintf(path, sizeof path, "%s?limit=1", w->path);
    get(w, path, LOOK_MS, look_came);
}

/* ---- watching ---- */
/* What it says of an error: expired, or a failure. */
static void error_take(struct kube_watch *w, const cJSON *status)
{
    const cJSON *code = kube_at(status, "code");
    const char *reason = kube_text(status, "reason");
    bool gone = cJSON_IsNumber(code) && code->valueint == 410;

    w->ended = true;
    if (gone || !strcmp(reason, "Expired") || !strcmp(reason, "Gone"))
        (void)err_set(&w->end_why, E_GONE, "%s: it has expired", w->path);
    else
        (void)err_set(&w->end_why, E_UNAVAIL, "%s: the server ends the watch: %.200s", w->path,
                      kube_text(status, "message"));
}

/* false: it was destroyed meanwhile. */
static bool event_take(struct kube_watch *w, const cJSON *event)
{
    const char *type = kube_text(event, "type");
    const cJSON *o = kube_at(event, "object");
    bool is = !strcmp(type, "ADDED") || !strcmp(type, "MODIFIED"), gone = !strcmp(type, "DELETED");
    char rv[RV_MAX];

    if (!strcmp(type, "ERROR")) {
        error_take(w, o);
        return true;
    }
    if (!rv_read(o, rv) || older(rv, w->rv)) {
        w->ended = true;
        (void)err_set(&w->end_why, E_UNAVAIL,
                      "%s: the server tells of a change that has no resourceVersion, or an older "
                      "one than before",
                      w->path);
        return true;
    }
    if (is || gone) /* and bookmarks, and what later servers may tell */
        if (!TELL(w, w->ev->item(w->arg, is ? KUBE_IS : KUBE_GONE, o)))
            return false;
    str_copy(w->rv, sizeof w->rv, rv);
    return true;
}

/* false: it was destroyed meanwhile. */
static bool line_take(struct kube_watch *w, const char *line, size_t n)
{
    cJSON *event = json_parse_bytes(line, n);
    bool here = true;

    if (event) {
        here = event_take(w, event);
    } else {
        w->ended = true;
        (void)err_set(&w->end_why, E_UNAVAIL, "%s: the server's watch has a line that is no JSON",
                      w->path);
    }
    cJSON_Delete(event);
    return here;
}

static void settled(struct kube_watch *w)
{
    w->settled = true;
    timer_start(&w->timer, SILENCE_MS);
    well(w);
}

static void watch_over(struct kube_watch *w)
{
    struct err why = w->end_why;

    if (w->rq)
        kube_cancel(w->rq);
    w->rq = NULL;
    timer_stop(&w->timer);
    timer_stop(&w->drain);
    buf_reset(&w->came);
    if (why.code == E_GONE)
        expired(w);
    else if (why.code)
        fail(w, &why, 0);
    else /* it was cut: it goes on from where it was */
        rest(w, loop_random_u64(w->loop) % REST_MIN_MS);
}

/* Tells what has come, a part in each turn of the loop: never from inside the call that brings it,
 * in which nobody may end the request. */
static void on_drain(void *arg)
{
    struct kube_watch *w = arg;
    size_t at = 0;
    bool failed = w->came.failed;
    unsigned n = 0;

    while (n < DRAIN_OBJECTS && !w->end_why.code && w->step == STEP_WATCH) {
        const char *from = w->came.p + at;
        const char *end = w->came.n > at + w->scanned
                              ? memchr(from + w->scanned, '\n', w->came.n - at - w->scanned)
                              : NULL;
        if (!end) {
            w->scanned = w->came.n - at;
            break;
        }
        at += (size_t)(end - from) + 1;
        w->scanned = 0;
        n++;
        if (end > from && !line_take(w, from, (size_t)(end - from)))
            return;
    }
    if (w->step != STEP_WATCH) /* it lists anew */
        return;
    buf_consume(&w->came, at);
    w->came.failed = false;
    if (n == DRAIN_OBJECTS && !w->end_why.code) {
        timer_start(&w->drain, 0);
        return;
    }
    if (failed && !w->end_why.code)
        (void)err_set(&w->end_why, E_TOOLARGE, "%s: an object is larger than %u bytes", w->path,
                      OBJECT_MAX_BYTES);
    if (w->ended || w->end_why.code) {
        watch_over(w);
        return;
    }
    if (w->paused && w->rq)
        kube_pause(w->rq, false);
    w->paused = false;
    if (n && !w->settled)
        settled(w);
}

static bool on_data(void *arg, const void *p, size_t n)
{
    struct kube_watch *w = arg;
    bool line = memchr(p, '\n', n) != NULL;

    w->heard = true;
    if (w->settled)
        timer_start(&w->timer, SILENCE_MS);
    buf_add(&w->came, p, n);
    if ((line || w->came.failed) && !timer_active(&w->drain))
        timer_start(&w->drain, 0);
    if (line && w->came.n > WAITING_MAX_BYTES && !w->paused) {
        w->paused = true;
        kube_pause(w->rq, true);
    }
    return !w->came.failed;
}

static void on_over(void *arg, const struct kube_answer *a)
{
    struct kube_watch *w = arg;
    bool lasted = w->heard || loop_now_ms(w->loop) - w->began_ms >= SETTLED_MS;

    w->rq = NULL;
    w->ended = true;
    if (a->status == 410) /* also without a Status */
        (void)err_set(&w->end_why, E_GONE, "%s", a->err->text);
    else if (a->out != OUT_DONE && !(lasted && !a->status) && !w->end_why.code)
        w->end_why = *a->err;
    else if (a->out == OUT_DONE && !lasted)
        (void)err_set(&w->end_why, E_UNAVAIL, "%s: the server ends the watch at once", w->path);
    timer_start(&w->drain, 0);
}

static void watch_begin(struct kube_watch *w)
{
    unsigned s = WATCH_S + (unsigned)(loop_random_u64(w->loop) % WATCH_S);
    char path[1024];

    w->step = STEP_WATCH;
    w->ended = w->heard = w->paused = w->settled = false;
    w->end_why = (struct err){0};
    w->scanned = 0;
    buf_reset(&w->came);
    w->came.failed = false;
    w->began_ms = loop_now_ms(w->loop);
    (void)snprintf(path, sizeof path,
                   "%s?watch=1&allowWatchBookmarks=true&resourceVersion=%s&timeoutSeconds=%u%s%s",
                   w->path, w->rv, s, *w->selectors ? "&" : "", w->selectors);
    w->rq = kube_stream(w->client, path, on_data, on_over, w);
    timer_start(&w->timer, SETTLED_MS);
}

/* ---- steps ---- */
static void on_timer(void *arg)
{
    struct kube_watch *w = arg;

    if (w->step == STEP_WATCH && !w->settled) {
        settled(w);
    } else if (w->step == STEP_WATCH) {
        if (!w->heard) { /* it may be ahead of what the server has: then it stays silent */
            w->whole = false;
            (void)err_set(&w->end_why, E_UNAVAIL,
                          "%s: the server's watch has told nothing, not even how far it is",
                          w->path);
        }
        w->ended = true;
        if (w->rq)
            kube_cancel(w->rq);
        w->rq = NULL;
        timer_start(&w->drain, 0);
    } else if (w->step == STEP_REST && (w->relist || !w->whole || w->next.n)) {
        page_ask(w);
    } else if (w->step == STEP_REST) {
        look_ask(w);
    }
}

struct kube_watch *kube_watch_create(struct loop *l, struct kube_client *c, const char *path,
                                     const char *selectors, unsigned page,
                                     const struct kube_watch_events *ev, void *arg)
{
    struct kube_watch *w = mem_new(struct kube_watch);

    PRE(strlen(path) < 400 && strlen(selectors) < 400 && page);
    w->loop = l;
    w->client = c;
    w->path = mem_strdup(path);
    w->selectors = mem_strdup(selectors);
    w->page = w->limit = page;
    w->ev = ev;
    w->arg = arg;
    buf_init(&w->next, NEXT_MAX + 1);
    buf_init(&w->came, OBJECT_MAX_BYTES);
    timer_init(&w->timer, l, on_timer, w);
    timer_init(&w->drain, l, on_drain, w);
    rest(w, 0);
    return w;
}

void kube_watch_relist(struct kube_watch *w)
{
    w->relist = true;
    if (w->step == STEP_REST || w->step == STEP_OVER)
        return;
    buf_reset(&w->next);
    if (w->rq)
        kube_cancel(w->rq);
    w->rq = NULL;
    timer_stop(&w->drain);
    rest(w, 0);
}

struct kube_watch *kube_watch_destroy(struct kube_watch *w)
{
    if (!w)
        return NULL;
    if (w->gone)
        *w->gone = true;
    if (w->rq)
        kube_cancel(w->rq);
    timer_stop(&w->timer);
    timer_stop(&w->drain);
    buf_fini(&w->next);
    buf_fini(&w->came);
    mem_free(w->path);
    mem_free(w->selectors);
    mem_free(w);
    return NULL;
}
