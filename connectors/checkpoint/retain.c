/* Retention: which cuts and sealed steps may go. This file must never remove what somebody may
 * still be told to resume from: the newest cuts, all that the hub may have for its newest (it may
 * have been out of reach for long, and know none that came since), and until it surely has one of
 * this run, the one that this run came from. A cut goes before its files, so that no cut ever names
 * what is not there. */
#include "connectors/checkpoint/checkpoint_internal.h"

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
    struct store *store;
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

/* Two copies may have been accepted (spec.partition): an older one that goes on writing keeps what
 * it has. */
static bool epoch_lives(const struct retaining *r, int64_t epoch)
{
    int64_t sealed_ns = 0, wrote_ns = 0;
    char folder[48];

    if (epoch == r->want->epoch)
        return true;
    (void)snprintf(folder, sizeof folder, "sealed/e%lld", (long long)epoch);
    bool told = store_written(r->store, folder, STORE_ENTRIES, &sealed_ns, NULL) == 0;
    (void)snprintf(folder, sizeof folder, "e%lld", (long long)epoch);
    told = told && store_written(r->store, folder, STORE_ENTRIES, &wrote_ns, NULL) == 0;
    return !told || sealed_ns > r->begun_ns || wrote_ns > r->begun_ns;
}

static bool cut_is(const struct retaining *r, const struct cut_id *c, const char *path)
{
    char own[CHECKPOINT_PATH_MAX + 96];

    (void)snprintf(own, sizeof own, "%s/sealed/e%lld/cut-%lld.json", store_base(r->store),
                   (long long)c->epoch, (long long)c->number);
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
    char name[96];
    struct checkpoint_cut c = {0};
    AUTO_ARENA a = arena_create(0);
    AUTO_BUF text;

    buf_init(&text, CHECKPOINT_CUT_MAX + (128u << 10));
    (void)snprintf(name, sizeof name, "sealed/e%lld/cut-%lld.json", (long long)id->epoch,
                   (long long)id->number);
    int rc = store_get(r->store, name, CHECKPOINT_CUT_MAX, &text, NULL, err);
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
    int rc;
    struct err *err;
};

static int sweep_step(const char *name, void *arg)
{
    struct sweeping *s = arg;
    const struct checkpoint_retain *w = s->r->want;
    struct used key = {s->rank, sealfs_number(name, "s", "")};
    const char *suffix = "";
    char step[128];

    if (key.step < 0) { /* beside it */
        suffix = CHECKPOINT_PROOFS_SUFFIX;
        key.step = sealfs_number(name, "s", suffix);
    }
    if (key.step < 0)
        return 0;
    if (s->r->epoch == w->epoch && ((size_t)s->rank >= w->n_ranks || key.step >= w->floor[s->rank]))
        return 0;
    if (s->r->n_used && bsearch(&key, s->r->used, s->r->n_used, sizeof key, used_compare))
        return 0;
    (void)snprintf(step, sizeof step, "sealed/e%lld/%lld/s%lld%s", (long long)s->r->epoch,
                   (long long)s->rank, (long long)key.step, suffix);
    s->rc = store_remove(s->r->store, step, s->err);
    return s->rc < 0;
}

static int sweep_rank(const char *name, void *arg)
{
    struct sweeping *e = arg;
    struct sweeping s = {.r = e->r, .rank = sealfs_number(name, "", ""), .err = e->err};
    char folder[96];

    if (s.rank < 0)
        return 0;
    (void)snprintf(folder, sizeof folder, "sealed/e%lld/%lld", (long long)s.r->epoch,
                   (long long)s.rank);
    e->rc = store_list(s.r->store, folder, sweep_step, &s, e->err);
    if (e->rc == 0)
        e->rc = s.rc;
    return e->rc < 0;
}

static int sweep_epoch(struct retaining *r, int64_t epoch, struct err *err)
{
    struct sweeping s = {.r = r, .rank = -1, .err = err};
    char folder[48], name[96];
    int rc = 0;

    r->epoch = epoch;
    r->n_used = 0;
    (void)snprintf(folder, sizeof folder, "sealed/e%lld", (long long)epoch);
    for (size_t i = 0; rc == 0 && i < r->n_cuts; i++) {
        if (r->cuts[i].epoch != epoch)
            continue;
        (void)snprintf(name, sizeof name, "%s/cut-%lld.json", folder, (long long)r->cuts[i].number);
        rc = r->cuts[i].kept ? use_cut(r, &r->cuts[i], err) : store_remove(r->store, name, err);
    }
    if (rc < 0)
        return rc;
    if (epoch != r->want->epoch && r->n_used == 0) { /* nothing of it is left to resume from */
        rc = store_remove(r->store, folder, err);
        return rc < 0 ? rc : store_remove(r->store, folder + strlen("sealed/"), err);
    }
    if (r->n_used)
        qsort(r->used, r->n_used, sizeof *r->used, used_compare);
    rc = store_list(r->store, folder, sweep_rank, &s, err);
    return rc < 0 ? rc : s.rc;
}

static int retain(struct retaining *r, struct err *err)
{
    const struct checkpoint_retain *w = r->want;
    char folder[48];
    int rc = store_list(r->store, "sealed", epoch_listed, r, err);

    for (size_t i = 0; i < r->n_epochs; i++)
        if (r->epochs[i] > w->epoch) /* a newer one is in charge */
            return 0;
    (void)snprintf(folder, sizeof folder, "e%lld", (long long)w->epoch);
    if (rc == 0)
        rc = store_written(r->store, folder, STORE_FOLDER, &r->begun_ns, err);
    for (size_t i = 0; rc == 0 && i < r->n_epochs; i++) {
        r->epoch = r->epochs[i];
        (void)snprintf(folder, sizeof folder, "sealed/e%lld", (long long)r->epoch);
        rc = store_list(r->store, folder, cut_listed, r, err);
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
    int rc = store_open(&want->at, NULL, &r->store, err);
    if (rc == 0)
        rc = retain(r, err);
    (void)store_close(r->store);
    mem_free(r->cuts);
    mem_free(r->used);
    mem_free(r);
    return rc;
}
