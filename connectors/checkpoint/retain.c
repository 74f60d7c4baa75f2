/* Retention: which cuts and sealed steps may go. Must never remove what somebody may still be told
 * to resume from: the newest cuts, all that the hub may have for its newest (it may have been out
 * of reach for long, and know none that came since), and until it surely has one of this run, the
 * one that this run came from. A cut goes before its files, so that no cut ever names what is not
 * there. */
#include "connectors/checkpoint/sealfs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EPOCHS_MAX 1024 /* looked at in one go; the rest comes next time */
#define CUTS_MAX 65536

struct cut_id {
    int64_t epoch, number;
    bool kept;
};
struct used { /* a sealed step that a kept cut names */
    int64_t rank, step;
};
struct retaining {
    const struct checkpoint_retain *want;
    char sealed[CHECKPOINT_PATH_MAX];
    int64_t epochs[EPOCHS_MAX];
    size_t n_epochs;
    struct cut_id *cuts;
    size_t n_cuts, max_cuts;
    int64_t epoch; /* being listed */
    struct used *used;
    size_t n_used, max_used;
    int64_t begun_ns; /* when this epoch began to write */
};

static int epoch_listed(const char *name, void *arg)
{
    struct retaining *r = arg;
    int64_t e = sealfs_number(name, "e", "");

    if (e >= 0 && r->n_epochs < EPOCHS_MAX)
        r->epochs[r->n_epochs++] = e;
    return 0;
}

static int cut_listed(const char *name, void *arg)
{
    struct retaining *r = arg;
    int64_t n = sealfs_number(name, "cut-", ".json");

    if (n < 0 || r->n_cuts == CUTS_MAX)
        return 0;
    if (r->n_cuts == r->max_cuts) {
        r->max_cuts = r->max_cuts ? 2 * r->max_cuts : 64;
        r->cuts = mem_realloc(r->cuts, sizeof *r->cuts * r->max_cuts);
    }
    r->cuts[r->n_cuts++] = (struct cut_id){.epoch = r->epoch, .number = n};
    return 0;
}

static int newest_first(const void *a, const void *b)
{
    const struct cut_id *x = a, *y = b;

    if (x->epoch != y->epoch)
        return x->epoch < y->epoch ? 1 : -1;
    return (x->number < y->number) - (x->number > y->number);
}

struct newest {
    const char *folder;
    int64_t mtime_ns;
};

static int newest_of(const char *name, void *arg)
{
    struct newest *n = arg;
    char path[CHECKPOINT_PATH_MAX + 128];

    (void)snprintf(path, sizeof path, "%s/%.100s", n->folder, name);
    int64_t at = sealfs_mtime_ns(path);
    if (at > n->mtime_ns)
        n->mtime_ns = at;
    return 0;
}

/* Two copies may have been accepted (spec.partition): an older one that goes on writing keeps what
 * it has. */
static bool epoch_lives(const struct retaining *r, int64_t epoch)
{
    char path[CHECKPOINT_PATH_MAX];
    struct newest n = {.folder = path};

    if (epoch == r->want->epoch)
        return true;
    (void)snprintf(path, sizeof path, "%.900s/e%lld", r->sealed, (long long)epoch);
    bool told = sealfs_list_path(path, newest_of, &n, NULL) == 0;
    (void)snprintf(path, sizeof path, "%.900s/e%lld", r->want->base, (long long)epoch);
    told = told && sealfs_list_path(path, newest_of, &n, NULL) == 0;
    return !told || n.mtime_ns > r->begun_ns;
}

static bool cut_is(const struct retaining *r, const struct cut_id *c, const char *path)
{
    char own[CHECKPOINT_PATH_MAX + 64];

    (void)snprintf(own, sizeof own, "%s/e%lld/cut-%lld.json", r->sealed, (long long)c->epoch,
                   (long long)c->number);
    return strcmp(own, path) == 0;
}

static void choose(struct retaining *r)
{
    const struct checkpoint_retain *w = r->want;
    size_t keep = w->keep < CHECKPOINT_KEEP_MIN ? CHECKPOINT_KEEP_MIN : (size_t)w->keep;

    qsort(r->cuts, r->n_cuts, sizeof *r->cuts, newest_first);
    for (size_t i = 0; i < r->n_cuts; i++) {
        struct cut_id *c = &r->cuts[i];
        c->kept = i < keep ||
                  (c->epoch == w->epoch && c->number >= w->known && c->number <= w->told) ||
                  (w->known == 0 && *w->resume_path && cut_is(r, c, w->resume_path));
    }
}

/* ---- one epoch ---- */
static int use_cut(struct retaining *r, const struct cut_id *id, struct err *err)
{
    char path[CHECKPOINT_PATH_MAX], name[48];
    struct checkpoint_cut c = {0};
    AUTO_ARENA a = arena_create(0);
    AUTO_BUF text;
    int dir, fd;

    buf_init(&text, CHECKPOINT_CUT_MAX + (128u << 10));
    (void)snprintf(path, sizeof path, "%.900s/e%lld", r->sealed, (long long)id->epoch);
    (void)snprintf(name, sizeof name, "cut-%lld.json", (long long)id->number);
    int rc = sealfs_dir_open(path, &dir, err);
    if (rc < 0)
        return rc;
    rc = sealfs_open(dir, name, &fd, NULL, err);
    sealfs_close(dir);
    if (rc < 0)
        return rc;
    rc = sealfs_read(fd, CHECKPOINT_CUT_MAX, &text, err);
    sealfs_close(fd);
    if (rc == 0)
        rc = checkpoint_cut_parse(text.p, text.n, a, &c, err);
    if (rc < 0)
        return rc;
    if (r->n_used + c.n_ranks > r->max_used) {
        r->max_used = 2 * (r->n_used + c.n_ranks);
        r->used = mem_realloc(r->used, sizeof *r->used * r->max_used);
    }
    for (size_t i = 0; i < c.n_ranks; i++)
        r->used[r->n_used++] = (struct used){c.ranks[i].rank, c.ranks[i].step};
    return 0;
}

static int used_compare(const void *a, const void *b)
{
    const struct used *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->step > y->step) - (x->step < y->step);
}

struct sweeping {
    struct retaining *r;
    int64_t rank; /* whose folder; -1 = the epoch's */
    char path[CHECKPOINT_PATH_MAX + 128];
    int dir, rc;
    struct err *err;
};

static int sweep_step(const char *name, void *arg)
{
    struct sweeping *s = arg;
    const struct checkpoint_retain *w = s->r->want;
    struct used key = {s->rank, sealfs_number(name, "s", "")};

    if (key.step < 0)
        return 0;
    if (s->r->epoch == w->epoch && ((size_t)s->rank >= w->n_ranks || key.step >= w->floor[s->rank]))
        return 0;
    if (s->r->n_used && bsearch(&key, s->r->used, s->r->n_used, sizeof key, used_compare))
        return 0;
    s->rc = sealfs_remove(s->dir, name, s->err);
    return s->rc < 0;
}

static int sweep_rank(const char *name, void *arg)
{
    struct sweeping *e = arg;
    struct sweeping s = {.r = e->r, .rank = sealfs_number(name, "", ""), .err = e->err};

    if (s.rank < 0)
        return 0;
    (void)snprintf(s.path, sizeof s.path, "%.1000s/%lld", e->path, (long long)s.rank);
    e->rc = sealfs_dir_open(s.path, &s.dir, e->err);
    if (e->rc < 0)
        return 1;
    e->rc = sealfs_list(s.dir, sweep_step, &s, e->err);
    sealfs_close(s.dir);
    if (e->rc == 0)
        e->rc = s.rc;
    return e->rc < 0;
}

static int remove_below(const char *folder, const char *name, struct err *err)
{
    int dir;
    int rc = sealfs_dir_open(folder, &dir, err);

    if (rc == E_NOTFOUND)
        return 0;
    if (rc < 0)
        return rc;
    rc = sealfs_remove(dir, name, err);
    sealfs_close(dir);
    return rc;
}

static int sweep_epoch(struct retaining *r, int64_t epoch, struct err *err)
{
    struct sweeping s = {.r = r, .rank = -1, .err = err};
    char name[48];
    int rc = 0;

    r->epoch = epoch;
    r->n_used = 0;
    (void)snprintf(s.path, sizeof s.path, "%.900s/e%lld", r->sealed, (long long)epoch);
    for (size_t i = 0; rc == 0 && i < r->n_cuts; i++) {
        if (r->cuts[i].epoch != epoch)
            continue;
        (void)snprintf(name, sizeof name, "cut-%lld.json", (long long)r->cuts[i].number);
        rc = r->cuts[i].kept ? use_cut(r, &r->cuts[i], err) : remove_below(s.path, name, err);
    }
    if (rc < 0)
        return rc;
    if (epoch != r->want->epoch && r->n_used == 0) { /* nothing of it is left to resume from */
        (void)snprintf(name, sizeof name, "e%lld", (long long)epoch);
        rc = remove_below(r->sealed, name, err);
        return rc < 0 ? rc : remove_below(r->want->base, name, err);
    }
    if (r->n_used)
        qsort(r->used, r->n_used, sizeof *r->used, used_compare);
    rc = sealfs_list_path(s.path, sweep_rank, &s, err);
    return rc < 0 ? rc : s.rc;
}

static int retain(struct retaining *r, struct err *err)
{
    const struct checkpoint_retain *w = r->want;
    char path[CHECKPOINT_PATH_MAX];
    int rc = sealfs_list_path(r->sealed, epoch_listed, r, err);

    for (size_t i = 0; i < r->n_epochs; i++)
        if (r->epochs[i] > w->epoch) /* a newer one is in charge */
            return 0;
    (void)snprintf(path, sizeof path, "%.900s/e%lld", w->base, (long long)w->epoch);
    r->begun_ns = sealfs_mtime_ns(path);
    for (size_t i = 0; rc == 0 && i < r->n_epochs; i++) {
        r->epoch = r->epochs[i];
        (void)snprintf(path, sizeof path, "%.900s/e%lld", r->sealed, (long long)r->epoch);
        rc = sealfs_list_path(path, cut_listed, r, err);
    }
    if (rc < 0)
        return rc;
    choose(r);
    for (size_t i = 0; rc == 0 && i < r->n_epochs; i++) {
        bool own = r->epochs[i] == w->epoch;
        if (own || !epoch_lives(r, r->epochs[i]))
            rc = sweep_epoch(r, r->epochs[i], err);
    }
    return rc;
}

int checkpoint_retain(const struct checkpoint_retain *want, struct err *err)
{
    struct retaining *r = mem_new(struct retaining);

    r->want = want;
    (void)snprintf(r->sealed, sizeof r->sealed, "%.900s/sealed", want->base);
    int rc = retain(r, err);
    mem_free(r->cuts);
    mem_free(r->used);
    mem_free(r);
    return rc;
}
