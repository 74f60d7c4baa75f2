/* Reads what was kept of one worker (kept.h): the last lines, since a time, with times; one piece
 * in memory at a time. Where pieces are missing, or cannot be read, a line says so. */
#include "api/schema/schema.h"
#include "connectors/checkpoint/store/store.h"
#include "connectors/kept/kept.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_MS 15000 /* whoever reads waits for each call */
#define LIST_MAX ((size_t)4 * KEPT_PIECES_MAX)

struct kept_reader {
    struct kept_request q;
    struct store *store;
    char folder[128];
    uint64_t *at; /* of pieces, ascending */
    size_t n, room, next;
    bool full; /* more pieces than any writer leaves */
    uint64_t expected, skip_to; /* the next byte; what stands before it is not wanted */
    uint64_t newest;            /* piece that was read */
    bool begun, begins, skips;  /* at the beginning of a line; up to the next one none is wanted */
    bool last;
    int64_t ended_ms; /* when the newest text had come; 0: there is none */
    struct kept_piece *piece;
    struct buf text;
};

/* ---- which ---- */
struct newest {
    int64_t epoch, try_;
};

static int try_look(const char *name, void *arg)
{
    struct newest *w = arg;
    int64_t epoch, try_;

    if (kept_try_parse(name, &epoch, &try_) && epoch == w->epoch && try_ > w->try_)
        w->try_ = try_;
    return 0;
}

static int piece_look(const char *name, void *arg)
{
    struct kept_reader *r = arg;
    uint64_t from;

    if (!kept_piece_parse(name, &from))
        return 0;
    r->full = r->n == LIST_MAX;
    if (r->full)
        return 1;
    if (r->n == r->room) {
        r->room = r->room ? 2 * r->room : 256;
        uint64_t *more = mem_alloc(r->room * sizeof *more);
        if (r->n)
            memcpy(more, r->at, r->n * sizeof *more);
        mem_free(r->at);
        r->at = more;
    }
    r->at[r->n++] = from;
    return 0;
}

static int by_from(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static int pieces_list(struct kept_reader *r, struct err *err)
{
    r->n = 0;
    r->full = false;
    int rc = store_list(r->store, r->folder, piece_look, r, err);
    if (r->full)
        return err_set(err, E_LIMIT, "the store holds more than %zu pieces of it", LIST_MAX);
    if (rc < 0)
        return rc;
    if (r->n)
        qsort(r->at, r->n, sizeof *r->at, by_from);
    return 0;
}

/* Into r->piece and r->text. E_NOTFOUND: it went since it was listed; E_CORRUPT. */
static int piece_get(struct kept_reader *r, size_t i, struct err *err)
{
    char name[256], last[40];
    AUTO_BUF file;

    buf_init(&file, KEPT_PACKED_MAX + 1);
    buf_reset(&r->text);
    kept_piece_name(r->at[i], last);
    (void)snprintf(name, sizeof name, "%s/%s", r->folder, last);
    int rc = store_get(r->store, name, KEPT_PACKED_MAX, &file, NULL, err);
    if (rc == E_TOOLARGE || rc == E_FORBIDDEN)
        return err_set(err, E_CORRUPT, "%s is no piece of a log", name);
    return rc < 0 ? rc
                  : kept_unpack(slice_make(file.p, file.n), r->at[i], r->piece, &r->text, err);
}

static bool is_lost(int rc)
{
    return rc == E_NOTFOUND || rc == E_CORRUPT;
}

static int64_t last_ms(const struct kept_piece *p)
{
    return p->at.n_marks ? p->at.marks[p->at.n_marks - 1].ms : 0;
}

/* ---- where to begin ---- */
/* Goes back from the end, until enough lines are behind. */
static int tail_find(struct kept_reader *r, struct err *err)
{
    const uint64_t before = r->q.before;
    int64_t lines = before ? -1 : 0; /* the one that it is amid of is none of them */
    bool behind = before > 0;        /* of what was looked at a byte stands behind */

    for (size_t i = r->n; i-- > 0;) {
        int rc = piece_get(r, i, err);
        if (is_lost(rc))
            continue;
        if (rc < 0)
            return rc;
        size_t n = r->text.n;
        if (before && r->at[i] + n > before)
            n = before > r->at[i] ? (size_t)(before - r->at[i]) : 0;
        for (size_t k = n; k-- > 0;) {
            if (r->text.p[k] == '\n' && behind && ++lines >= r->q.tail_lines) {
                r->skip_to = r->at[i] + k + 1;
                r->next = i;
                return 0;
            }
            behind = true;
        }
    }
    return 0;
}

/* The first piece of which anything has come since then. */
static int since_find(struct kept_reader *r, struct err *err)
{
    size_t lo = 0, hi = r->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int rc = piece_get(r, mid, err);
        if (rc < 0 && !is_lost(rc))
            return rc;
        if (rc == 0 && r->piece->at.n_marks && last_ms(r->piece) < r->q.since_ms)
            lo = mid + 1;
        else
            hi = mid;
    }
    int rc = lo < r->n ? piece_get(r, lo, err) : E_NOTFOUND;
    if (rc < 0 && !is_lost(rc))
        return rc;
    uint64_t at = lo < r->n ? r->at[lo] : 0;
    for (size_t i = 0; rc == 0 && i < r->piece->at.n_marks; i++)
        if (r->piece->at.marks[i].ms < r->q.since_ms)
            at = r->piece->at.marks[i].end;
    if (lo < r->next || (lo == r->next && at <= r->skip_to))
        return 0;
    r->next = lo;
    r->skip_to = at;
    if (rc == 0) /* in the middle of a line that had begun before? */
        r->skips = at > r->at[lo] ? r->text.p[at - r->at[lo] - 1] != '\n' : !r->piece->at.begins;
    return 0;
}

/* To the newest piece that may have the next byte. */
static void reader_seek(struct kept_reader *r)
{
    r->next = 0;
    while (r->next + 1 < r->n && r->at[r->next + 1] <= r->expected)
        r->next++;
}

/* What stands before that byte was told by somebody else. */
static void resume(struct kept_reader *r)
{
    r->begun = true;
    r->begins = !r->q.mid;
    r->expected = r->skip_to = r->q.from;
    reader_seek(r);
}

/* Nothing is missing ahead of what is wanted. */
static int reader_begin(struct kept_reader *r, struct err *err)
{
    int rc = 0;

    if (r->q.resumes) {
        resume(r);
        return 0;
    }
    if (r->q.tail_lines == 0 && !r->q.before)
        r->next = r->n;
    else if (r->q.tail_lines >= 0)
        rc = tail_find(r, err);
    if (rc == 0 && r->q.since_ms > 0)
        rc = since_find(r, err);
    if (rc < 0 || r->next == 0)
        return rc;
    r->begun = true;
    if (r->next < r->n) {
        r->expected = r->at[r->next];
        return 0;
    }
    rc = piece_get(r, r->n - 1, err);
    r->expected = r->at[r->n - 1] + (rc == 0 ? r->piece->bytes : 1);
    r->last = rc == 0 && r->piece->last;
    r->ended_ms = rc == 0 ? last_ms(r->piece) : 0;
    return rc < 0 && !is_lost(rc) ? rc : 0;
}

int kept_open(const struct kept_request *q, struct kept_reader **ret, struct err *err)
{
    struct kept_reader *r = mem_new(struct kept_reader);
    const struct checkpoint_store at = {
        .base = q->base, .env = q->env, .patience_ms = PATIENCE_MS};
    struct newest w = {.epoch = q->epoch, .try_ = q->try_};
    char name[64];

    r->q = *q;
    r->begins = true;
    r->piece = mem_new(struct kept_piece);
    buf_init(&r->text, KEPT_PIECE_MAX + 1);
    int rc = store_open(&at, q->progress, &r->store, err);
    if (rc == 0 && !q->try_)
        rc = store_list(r->store, "", try_look, &w, err);
    r->q.try_ = w.try_;
    kept_try_name(w.epoch, w.try_, name);
    (void)snprintf(r->folder, sizeof r->folder, "%s/%" PRId64, name, q->rank);
    if (rc == 0)
        rc = pieces_list(r, err);
    if (rc == 0 && r->n == 0)
        rc = err_set(err, E_NOTFOUND, "nothing is kept of it in %.200s", q->base);
    if (rc == 0)
        rc = reader_begin(r, err);
    if (rc < 0)
        (void)kept_close(r);
    else
        *ret = r;
    return rc;
}

/* ---- piece by piece ---- */
/* A line of ours, in the text but not of it. */
static void note(struct kept_reader *r, struct buf *out, const char *text)
{
    buf_printf(out, "%s[hanse: %s]\n", r->begins ? "" : "\n", text);
    r->begins = true;
}

static void gap(struct kept_reader *r, uint64_t bytes, struct buf *out)
{
    char text[96];

    (void)snprintf(text, sizeof text, "%" PRIu64 " bytes are missing here: they were not kept",
                   bytes);
    note(r, out, text);
}

/* Takes what is wanted of the piece. */
static void take(struct kept_reader *r, struct buf *out)
{
    const struct kept_piece *p = r->piece;
    const char *at = r->text.p, *const end = at + r->text.n;
    size_t mark = 0;

    if (r->text.n == 0)
        return;
    if (r->skip_to > p->at.from)
        at = r->skip_to - p->at.from < r->text.n ? at + (r->skip_to - p->at.from) : end;
    while (at < end) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        const char *next = line ? line + 1 : end;
        uint64_t place = p->at.from + (uint64_t)(at - r->text.p);
        while (mark + 1 < p->at.n_marks && p->at.marks[mark].end <= place)
            mark++;
        if (!r->skips) {
            if (r->begins && r->q.timestamps && p->at.n_marks)
                output_stamp(out, p->at.marks[mark].ms);
            buf_add(out, at, (size_t)(next - at));
            r->begins = line != NULL;
        }
        r->skips = r->skips && !line;
        at = next;
    }
}

/* Somebody else has some of what is missing here. */
static bool stops(const struct kept_reader *r)
{
    uint64_t at = r->at[r->next];

    return r->q.stop && (r->begun || r->expected == 0) && at > r->expected && at > r->q.stop;
}

bool kept_go_on(struct kept_reader *r)
{
    bool stopped = r->next < r->n && stops(r);

    r->q.stop = 0;
    return stopped;
}

int kept_next(struct kept_reader *r, struct buf *out, bool *ret_more, struct err *err)
{
    *ret_more = false;
    if (r->next >= r->n || stops(r))
        return 0;
    int rc = piece_get(r, r->next, err);
    if (rc < 0 && !is_lost(rc))
        return rc;
    if (rc == 0) {
        if (r->at[r->next] > r->expected && (r->begun || r->expected == 0))
            gap(r, r->at[r->next] - r->expected, out);
        /* Of two who kept it at a time, before and after the front of the log went, pieces may
         * overlap: what is in both is told once. */
        if (r->begun && r->skip_to < r->expected)
            r->skip_to = r->expected;
        take(r, out);
        if (r->expected < r->at[r->next] + r->piece->bytes || !r->begun)
            r->expected = r->at[r->next] + r->piece->bytes;
        r->last = r->piece->last;
        if (r->piece->at.n_marks)
            r->ended_ms = last_ms(r->piece);
    }
    r->begun = true;
    r->newest = r->at[r->next++];
    *ret_more = r->next < r->n;
    return out->failed ? err_set(err, E_INTERNAL, "a piece of a log is longer than it may be") : 0;
}

int kept_again(struct kept_reader *r, struct err *err)
{
    int rc = pieces_list(r, err);

    if (rc < 0)
        return rc;
    reader_seek(r);
    if (r->next < r->n && r->at[r->next] < r->expected && r->at[r->next] == r->newest)
        r->next++; /* it was read */
    return 0;
}

uint64_t kept_at(const struct kept_reader *r, bool *ret_mid)
{
    *ret_mid = !r->begins;
    return r->expected;
}

int64_t kept_try(const struct kept_reader *r)
{
    return r->q.try_;
}

bool kept_complete(const struct kept_reader *r)
{
    return r->last;
}

void kept_missing(const struct kept_reader *r, const char *why, struct buf *out)
{
    char when[32] = "";

    if (r->ended_ms)
        time_print(r->ended_ms - r->ended_ms % 1000, when);
    buf_printf(out, "%s[hanse: %s%s is not here: %s]\n", r->begins ? "" : "\n",
               *when ? "what was printed after " : "what was printed", when, why);
}

struct kept_reader *kept_close(struct kept_reader *r)
{
    if (!r)
        return NULL;
    (void)store_close(r->store);
    mem_free(r->at);
    mem_free(r->piece);
    buf_fini(&r->text);
    mem_free(r);
    return NULL;
}

int kept_remove(const char *store, const char *base, const char *const *env,
                struct checkpoint_progress *p, struct err *err)
{
    const struct checkpoint_store at = {.base = store,
                                        .env = env,
                                        .roots = store[0] == '/' ? store : NULL,
                                        .patience_ms = PATIENCE_MS};
    size_t n = strlen(store);
    struct store *s = NULL;

    INV(strncmp(base, store, n) == 0 && base[n] == '/');
    int rc = store_open(&at, p, &s, err);
    /* A folder that is gone is a store that is away. That nothing is mounted on one that is there
     * cannot be told: it looks empty, and what it had comes back with it. */
    if (rc == 0 && !store_is_remote(s) && !store_is_here(s))
        rc = err_set(err, E_UNAVAIL, "the store of logs %.200s is not there", store);
    if (rc == 0)
        rc = store_remove(s, base + n + 1, err);
    (void)store_close(s);
    return rc;
}
