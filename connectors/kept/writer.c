/* Keeps what one worker prints (kept.h). The loop reads the log and makes a piece; a thread sends
 * it. One piece is under way at a time, and is sent again, the very same, until the store has it;
 * meanwhile the log itself holds what comes, as far as its bound goes.
 *
 *   FIND ──► READY ──► SEND ──► READY …, after the last piece DONE
 *
 * Where the log is elsewhere READY ──► ASKED ──► SEND, and a piece that the store did not take is
 * let go, and asked for again: whoever has the log has it, too, and here many wait for one store.
 *
 * Between two of them SHED: what is more than may be kept goes, but for the first piece.
 *
 * Whatever fails is done again after a pause. A piece that is there already was sent by an earlier
 * process: FIND looks how far that one came. */
#include "connectors/kept/kept.h"

#include "api/base/log.h"
#include "connectors/checkpoint/store/store.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS 1000
#define AGAIN_MS 20
#define AGAIN_MAX 50 /* looks in a row while the log is being rewritten */
#define PAUSE_MS 1000
#define PAUSE_MAX_MS 30000
#define PATIENCE_MS 20000
#define SHED_MAX 64 /* pieces that go in one turn */
#define BETWEEN_MS 2000 /* asked for; whoever has the log waits as well */
#define LEAST_BYTES ((uint64_t)2 * KEPT_PIECE_MAX)

enum state { FIND, READY, ASKED, SEND, DONE, SHED }; /* SHED: of jobs alone */
struct held { /* a piece that the store has */
    uint64_t from;
    uint32_t bytes; /* at most: of what an earlier process sent it is not known exactly */
};
struct kept_job {
    struct kept_writer *of; /* NULL: nobody waits any more */
    enum state what;
    char *base, *roots;
    char **env;
    int64_t rank;
    struct checkpoint_progress own, *progress;
    /* SEND: borrowed from the writer, or owned once that is gone */
    struct buf packed;
    uint64_t from, shed[SHED_MAX];
    size_t n_shed;
    /* what came of it */
    struct held *held; /* FIND */
    size_t n_held, room;
    struct kept_piece *newest;
    bool unread; /* there is a newest one, which cannot be read */
    int rc;
    struct err err;
};
struct kept_writer {
    struct kept_config cfg;
    char *path, *base, *roots; /* path, roots: NULL, if there are none */
    char **env;
    enum state state;
    struct kept_job *job; /* under way; NULL: none */
    struct timer tick, bound;
    struct held *held;
    size_t n_held, room;
    uint64_t kept;        /* bytes of all held */
    uint64_t from;        /* of what is kept next */
    uint64_t unsent_ms;   /* since when there is something to keep, loop time; 0: there is none */
    uint64_t ready_at_ms; /* no new piece before: the rate */
    uint64_t pause_ms, over_ms;
    unsigned moving;
    struct buf packed; /* SEND */
    uint32_t bytes;
    bool last, over, told;
    char fault[256];
};

/* ---- texts ---- */
static char **env_copy(const char *const *env)
{
    size_t n = 0;

    while (env && env[n])
        n++;
    if (!env)
        return NULL;
    char **own = mem_zalloc((n + 1) * sizeof *own);
    for (size_t i = 0; i < n; i++)
        own[i] = mem_strdup(env[i]);
    return own;
}

static void env_free(char **env)
{
    for (char **e = env; e && *e; e++) {
        OPENSSL_cleanse(*e, strlen(*e));
        mem_free(*e);
    }
    mem_free(env);
}

static void held_add(struct held **v, size_t *n, size_t *room, struct held h)
{
    if (*n == *room) {
        *room = *room ? 2 * *room : 64;
        struct held *more = mem_alloc(*room * sizeof *more);
        if (*n)
            memcpy(more, *v, *n * sizeof *more);
        mem_free(*v);
        *v = more;
    }
    (*v)[(*n)++] = h;
}

/* ---- on a thread ---- */
static void rank_name(const struct kept_job *j, const char *last, char out[80])
{
    (void)snprintf(out, 80, "%lld%s%s", (long long)j->rank, *last ? "/" : "", last);
}

static int found(const char *name, void *arg)
{
    struct kept_job *j = arg;
    uint64_t from;

    if (kept_piece_parse(name, &from) && j->n_held < 2 * (size_t)KEPT_PIECES_MAX)
        held_add(&j->held, &j->n_held, &j->room, (struct held){from, 0});
    return 0;
}

static int by_from(const void *a, const void *b)
{
    const struct held *x = a, *y = b;

    return (x->from > y->from) - (x->from < y->from);
}

/* What an earlier process kept. Its newest piece says where to go on. */
static int find(struct kept_job *j, struct store *s)
{
    char name[80], piece[40];
    AUTO_BUF file, text;

    buf_init(&file, KEPT_PACKED_MAX + 1);
    buf_init(&text, KEPT_PIECE_MAX + 1);
    rank_name(j, "", name);
    int rc = store_is_remote(s) ? 0 : store_make(s, name, &j->err);
    if (rc == 0)
        rc = store_list(s, name, found, j, &j->err);
    if (rc < 0 || j->n_held == 0)
        return rc;
    qsort(j->held, j->n_held, sizeof *j->held, by_from);
    for (size_t i = 0; i + 1 < j->n_held; i++) {
        uint64_t bytes = j->held[i + 1].from - j->held[i].from;
        j->held[i].bytes = (uint32_t)(bytes < KEPT_PIECE_MAX ? bytes : KEPT_PIECE_MAX);
    }
    struct held *last = &j->held[j->n_held - 1];
    kept_piece_name(last->from, piece);
    rank_name(j, piece, name);
    rc = store_get(s, name, KEPT_PACKED_MAX, &file, NULL, &j->err);
    if (rc < 0 && rc != E_TOOLARGE)
        return rc;
    j->newest = mem_new(struct kept_piece);
    j->unread = rc < 0 || kept_unpack(slice_make(file.p, file.n), last->from, j->newest, &text,
                                      NULL) < 0;
    last->bytes = j->newest->bytes;
    return 0;
}

static int shed(struct kept_job *j, struct store *s)
{
    char name[80], piece[40];
    int rc = 0;

    for (size_t i = 0; i < j->n_shed && rc == 0; i++) {
        kept_piece_name(j->shed[i], piece);
        rank_name(j, piece, name);
        rc = store_remove(s, name, &j->err);
    }
    return rc;
}

void kept_job_work(struct kept_job *j)
{
    const struct checkpoint_store at = {.base = j->base,
                                        .env = (const char *const *)j->env,
                                        .roots = j->roots,
                                        .patience_ms = PATIENCE_MS};
    char name[80], piece[40];
    struct store *s = NULL;

    if (j->progress && atomic_load(&j->progress->cancel))
        return; /* nobody waits for it, and its Workload may be gone */
    j->rc = store_open(&at, j->progress, &s, &j->err);
    if (j->rc == 0 && j->what == FIND)
        j->rc = find(j, s);
    else if (j->rc == 0 && j->what == SHED)
        j->rc = shed(j, s);
    else if (j->rc == 0) {
        kept_piece_name(j->from, piece);
        rank_name(j, piece, name);
        j->rc = store_create(s, name, j->packed.p, j->packed.n, &j->err);
    }
    (void)store_close(s);
}

/* ---- jobs, on the loop ---- */
void kept_job_progress(struct kept_job *j, struct checkpoint_progress *p)
{
    j->progress = p;
}

/* With so many bytes, and without so many of the pieces, is there more than may be kept? The first
 * piece says how it began, and stays. */
static bool is_more(const struct kept_writer *w, uint64_t kept, size_t without)
{
    size_t n = w->n_held - without;

    return n > 2 && (kept > w->cfg.max_bytes || n > KEPT_PIECES_MAX);
}

static void job_begin(struct kept_writer *w, enum state what)
{
    struct kept_job *j = mem_new(struct kept_job);

    j->of = w;
    j->what = what;
    j->rc = E_CANCELLED; /* unless it is done */
    j->base = mem_strdup(w->base);
    j->roots = w->roots ? mem_strdup(w->roots) : NULL;
    j->env = env_copy((const char *const *)w->env);
    j->rank = w->cfg.rank;
    j->progress = &j->own;
    j->from = w->from;
    if (what == SEND) /* back with the job */
        j->packed = w->packed;
    uint64_t kept = w->kept;
    for (size_t i = 1; what == SHED && is_more(w, kept, j->n_shed) && j->n_shed < SHED_MAX; i++) {
        kept -= w->held[i].bytes;
        j->shed[j->n_shed++] = w->held[i].from;
    }
    w->job = j;
    w->cfg.begin(j, w->cfg.arg);
}

static void taken_find(struct kept_writer *w, struct kept_job *j)
{
    mem_free(w->held);
    w->held = j->held;
    w->n_held = j->n_held;
    w->room = j->room;
    j->held = NULL;
    w->kept = 0;
    for (size_t i = 0; i < w->n_held; i++)
        w->kept += w->held[i].bytes;
    w->state = READY;
    if (w->n_held == 0)
        return;
    const struct held *last = &w->held[w->n_held - 1];
    /* One that cannot be read stays; what follows is told as missing, but for its first byte. */
    w->from = last->from + (j->unread ? 1 : last->bytes);
    if (j->newest->last && !j->unread)
        w->state = DONE;
}

static uint64_t every_ms(const struct kept_writer *w)
{
    uint64_t ms = KEPT_EVERY_MS * (1 + (uint64_t)w->n_held / 256);

    return ms < KEPT_EVERY_MAX_MS ? ms : KEPT_EVERY_MAX_MS;
}

/* Whoever has the log waits KEPT_EVERY_MS, too, or does not keep to that. */
static uint64_t between_ms(const struct kept_writer *w)
{
    return BETWEEN_MS + every_ms(w) - KEPT_EVERY_MS;
}

static void taken_send(struct kept_writer *w)
{
    uint64_t now = loop_now_ms(w->cfg.loop);

    held_add(&w->held, &w->n_held, &w->room, (struct held){w->from, w->bytes});
    w->kept += w->bytes;
    w->from += w->bytes;
    w->ready_at_ms = now + (uint64_t)w->bytes * 1000 / KEPT_RATE;
    if (w->cfg.ask && w->bytes < KEPT_PIECE_MAX)
        w->ready_at_ms = now + between_ms(w);
    w->unsent_ms = 0;
    buf_reset(&w->packed);
    w->state = w->last ? DONE : READY;
}

static void taken_shed(struct kept_writer *w, const struct kept_job *j)
{
    size_t n = j->n_shed;

    for (size_t i = 1; i <= n; i++)
        w->kept -= w->held[i].bytes;
    memmove(w->held + 1, w->held + 1 + n, (w->n_held - 1 - n) * sizeof *w->held);
    w->n_held -= n;
}

static void fault_tell(const struct kept_writer *w)
{
    log_event(LOG_WARN, "logs.not_kept",
              LOG_FIELDS({"store", log_str(w->base)}, {"rank", log_i64(w->cfg.rank)},
                         {"why", log_str(w->fault)}));
}

static void failed(struct kept_writer *w, const struct kept_job *j)
{
    bool first = !*w->fault;

    str_copy(w->fault, sizeof w->fault,
             *j->err.text ? j->err.text : "the store did not answer in time");
    if (first)
        fault_tell(w);
    w->pause_ms = w->pause_ms ? 2 * w->pause_ms : PAUSE_MS;
    if (w->pause_ms > PAUSE_MAX_MS)
        w->pause_ms = PAUSE_MAX_MS;
}

void kept_job_done(struct kept_job *j)
{
    struct kept_writer *w = j->of;

    if (w && j->what == SEND)
        w->packed = j->packed;
    else if (j->what == SEND)
        buf_fini(&j->packed);
    if (w) {
        w->job = NULL;
        if (j->rc == E_EXISTS && j->what == SEND) { /* an answer was lost, or it was another's */
            buf_reset(&w->packed);
            w->pause_ms = PAUSE_MS;
            w->state = FIND;
        } else if (j->rc < 0) {
            failed(w, j);
        } else {
            w->pause_ms = 0;
            w->fault[0] = '\0';
            if (j->what == FIND)
                taken_find(w, j);
            else if (j->what == SEND)
                taken_send(w);
            else
                taken_shed(w, j);
        }
        if (w->cfg.ask && j->what == SEND) { /* what was not taken is asked for again */
            if (j->rc < 0)
                w->state = FIND;
            buf_fini(&w->packed);
            buf_init(&w->packed, KEPT_PACKED_MAX + 1);
        }
        timer_start(&w->tick, w->pause_ms);
        if (w->cfg.ask && j->what == SEND)
            w->cfg.empty(w->cfg.arg);
    }
    mem_free(j->base);
    mem_free(j->roots);
    env_free(j->env);
    mem_free(j->held);
    mem_free(j->newest);
    mem_free(j);
}

/* ---- its life ---- */
/* Makes a piece where it is time for one: *ret_wait ms until the next look otherwise. */
static bool piece_make(struct kept_writer *w, uint64_t *ret_wait)
{
    struct kept_piece *p = mem_new(struct kept_piece);
    uint64_t now = loop_now_ms(w->cfg.loop);
    bool again = false;
    struct err err;
    AUTO_BUF text;

    buf_init(&text, KEPT_PIECE_MAX + 1);
    *ret_wait = LOOK_MS;
    int rc = output_cut(w->cfg.loop, w->path, w->from, KEPT_PIECE_MAX, loop_wall_ms(w->cfg.loop),
                        &text, &p->at, &again, &err);
    if (rc < 0)
        str_copy(w->fault, sizeof w->fault, err.text);
    if (rc == 0 && again)
        *ret_wait = w->moving++ < AGAIN_MAX ? AGAIN_MS : LOOK_MS;
    if (rc < 0 || again) {
        mem_free(p);
        return false;
    }
    w->moving = 0;
    p->bytes = (uint32_t)text.n;
    p->last = w->over && text.n < KEPT_PIECE_MAX && p->at.n_marks < OUTPUT_CUT_MARKS;
    if (text.n > 0 && !w->unsent_ms)
        w->unsent_ms = now;
    bool due = p->last || text.n == KEPT_PIECE_MAX || p->at.n_marks == OUTPUT_CUT_MARKS ||
               (w->over && text.n > 0) || (w->unsent_ms && now - w->unsent_ms >= every_ms(w));
    if (due && !w->over && now < w->ready_at_ms) {
        *ret_wait = w->ready_at_ms - now;
        due = false;
    }
    if (due) {
        w->from = p->at.from;
        w->bytes = p->bytes;
        w->last = p->last;
        buf_reset(&w->packed);
        if (kept_pack(p, text.n ? text.p : "", &w->packed, &err) < 0) {
            str_copy(w->fault, sizeof w->fault, err.text);
            due = false;
        }
    }
    mem_free(p);
    return due;
}

static void writer_bound(void *arg)
{
    struct kept_writer *w = arg;

    if (w->told || !kept_writer_settled(w))
        return;
    if (w->state != DONE && !*w->fault) { /* it has not even failed */
        str_copy(w->fault, sizeof w->fault, "the store did not answer in time");
        fault_tell(w);
    }
    w->told = true;
    w->cfg.settled(w->cfg.arg);
}

static void writer_ask(struct kept_writer *w)
{
    uint64_t now = loop_now_ms(w->cfg.loop);

    if (w->state == READY && now < w->ready_at_ms) {
        timer_start(&w->tick, w->ready_at_ms - now);
        return;
    }
    if (w->state == READY)
        w->state = ASKED;
    w->cfg.ask(w->from, w->state == DONE, w->cfg.arg);
}

static void writer_tick(void *arg)
{
    struct kept_writer *w = arg;
    uint64_t wait = 0;

    if (w->job)
        return; /* kept_job_done goes on */
    if (is_more(w, w->kept, 0))
        job_begin(w, SHED);
    else if (w->state == FIND || w->state == SEND)
        job_begin(w, w->state);
    else if (w->cfg.ask)
        writer_ask(w);
    else if (w->state == READY && piece_make(w, &wait)) {
        w->state = SEND;
        job_begin(w, SEND);
    } else if (w->state == READY) {
        timer_start(&w->tick, wait);
    }
    if (w->state == DONE && w->cfg.settled)
        writer_bound(w);
}

struct kept_writer *kept_writer_create(const struct kept_config *cfg)
{
    struct kept_writer *w = mem_new(struct kept_writer);

    w->cfg = *cfg;
    PRE(!cfg->path == !!cfg->ask);
    w->path = cfg->path ? mem_strdup(cfg->path) : NULL;
    w->base = mem_strdup(cfg->base);
    w->roots = cfg->roots ? mem_strdup(cfg->roots) : NULL;
    w->env = env_copy(cfg->env);
    if (!w->cfg.max_bytes)
        w->cfg.max_bytes = KEPT_MAX_DEFAULT;
    if (w->cfg.max_bytes < LEAST_BYTES)
        w->cfg.max_bytes = LEAST_BYTES;
    buf_init(&w->packed, KEPT_PACKED_MAX + 1);
    timer_init(&w->tick, cfg->loop, writer_tick, w);
    timer_init(&w->bound, cfg->loop, writer_bound, w);
    timer_start(&w->tick, 0);
    return w;
}

int kept_writer_piece(struct kept_writer *w, struct slice file, struct err *err)
{
    struct kept_piece *p = mem_new(struct kept_piece);
    int rc = w->state == ASKED ? 0 : err_set(err, E_CONFLICT, "no piece was asked for");
    AUTO_BUF text;

    buf_init(&text, KEPT_PIECE_MAX + 1);
    if (rc == 0)
        rc = kept_unpack(file, KEPT_ANYWHERE, p, &text, err);
    if (rc == 0 && (p->at.from < w->from || (p->bytes == 0 && !p->last)))
        rc = err_set(err, E_CORRUPT, "it is not the piece that was asked for");
    if (rc == 0) {
        w->from = p->at.from;
        w->bytes = p->bytes;
        w->last = p->last;
        buf_reset(&w->packed);
        buf_add(&w->packed, file.p, file.n);
        w->state = SEND;
        timer_start(&w->tick, 0);
    }
    mem_free(p);
    return rc;
}

void kept_writer_again(struct kept_writer *w)
{
    if (w->state != ASKED && w->state != DONE)
        return; /* it will ask by itself */
    if (w->state == ASKED)
        w->state = READY;
    if (!w->job)
        timer_start(&w->tick, PAUSE_MS);
}

bool kept_writer_holds(const struct kept_writer *w)
{
    return w->state == SEND;
}

void kept_writer_over(struct kept_writer *w)
{
    if (!w || w->over)
        return;
    w->over = true;
    w->over_ms = loop_now_ms(w->cfg.loop);
    timer_start(&w->bound, KEPT_END_MS);
    if (!w->job)
        timer_start(&w->tick, 0);
}

bool kept_writer_settled(const struct kept_writer *w)
{
    return !w || (w->over && (w->state == DONE ||
                              loop_now_ms(w->cfg.loop) - w->over_ms >= KEPT_END_MS));
}

const char *kept_writer_fault(const struct kept_writer *w)
{
    return w ? w->fault : "";
}

struct kept_writer *kept_writer_destroy(struct kept_writer *w)
{
    if (!w)
        return NULL;
    timer_stop(&w->tick);
    timer_stop(&w->bound);
    if (w->job) {
        atomic_store(&w->job->progress->cancel, true);
        w->job->of = NULL;
        if (w->job->what == SEND) /* it frees the piece */
            buf_init(&w->packed, 1);
    }
    buf_fini(&w->packed);
    mem_free(w->held);
    mem_free(w->path);
    mem_free(w->base);
    mem_free(w->roots);
    env_free(w->env);
    mem_free(w);
    return NULL;
}
