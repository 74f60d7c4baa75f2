/* Cuts without an agent: shims that share nothing but the store (pods, tasks of a batch job) look
 * for themselves whether all ranks have sealed. Any of them may come to the same cut; the first
 * that writes it wins. Also: which cut is the newest. */
#include "connectors/checkpoint/sealfs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUICKER_MAX 16
#define FOLDER_MAX (CHECKPOINT_PATH_MAX + 64)

/* ---- listing ---- */
struct newest {
    const char *prefix, *suffix;
    int64_t below; /* only what is lower than this */
    int64_t found[CHECKPOINT_SEALS];
    unsigned n;
};

static int newest_entry(const char *name, void *arg)
{
    struct newest *x = arg;
    int64_t v = sealfs_number(name, x->prefix, x->suffix);
    unsigned at = 0;

    if (v < 0 || v >= x->below)
        return 0;
    while (at < x->n && x->found[at] > v)
        at++;
    if (at == CHECKPOINT_SEALS)
        return 0;
    unsigned last = x->n < CHECKPOINT_SEALS ? x->n++ : CHECKPOINT_SEALS - 1;
    memmove(x->found + at + 1, x->found + at, sizeof *x->found * (last - at));
    x->found[at] = v;
    return 0;
}

/* The highest numbers of a folder, highest first; an absent folder has none. */
static int newest_of(const char *folder, struct newest *x, struct err *err)
{
    return sealfs_list_path(folder, newest_entry, x, err);
}

int checkpoint_cut_before(const char *base, int64_t *epoch, int64_t *number,
                          char ret[CHECKPOINT_PATH_MAX], struct err *err)
{
    char folder[FOLDER_MAX];
    struct newest cuts = {.prefix = "cut-", .suffix = ".json", .below = *number};

    (void)snprintf(folder, sizeof folder, "%.900s/sealed", base);
    for (;;) {
        struct newest epochs = {.prefix = "e", .suffix = "", .below = *epoch + 1};
        char one[FOLDER_MAX];
        int rc = newest_of(folder, &epochs, err);
        if (rc < 0)
            return rc;
        if (epochs.n == 0)
            return E_NOTFOUND;
        if (epochs.found[0] != *epoch)
            cuts.below = INT64_MAX;
        *epoch = epochs.found[0];
        (void)snprintf(one, sizeof one, "%.950s/e%lld", folder, (long long)*epoch);
        rc = newest_of(one, &cuts, err);
        if (rc < 0)
            return rc;
        if (cuts.n > 0) {
            *number = cuts.found[0];
            (void)snprintf(ret, CHECKPOINT_PATH_MAX, "%.960s/cut-%lld.json", one,
                           (long long)*number);
            return 0;
        }
        if (*epoch == 0)
            return E_NOTFOUND;
        *epoch -= 1;
        cuts.below = INT64_MAX;
    }
}

int checkpoint_epoch_newest(const char *base, int64_t *ret, struct err *err)
{
    struct newest epochs = {.prefix = "e", .suffix = "", .below = INT64_MAX};
    int rc = newest_of(base, &epochs, err);

    if (rc == 0)
        *ret = epochs.n ? epochs.found[0] : 0;
    return rc;
}

/* ---- gathering ---- */
static int seal_read(const char *folder, int64_t step, struct checkpoint_sealed *ret,
                     struct err *err)
{
    char path[FOLDER_MAX + 32];
    struct checkpoint_manifest m;
    struct file_facts facts;
    AUTO_ARENA a = arena_create(0);
    AUTO_BUF text;
    int dir, fd;

    buf_init(&text, CHECKPOINT_MANIFEST_MAX + (128u << 10));
    (void)snprintf(path, sizeof path, "%s/s%lld", folder, (long long)step);
    int rc = sealfs_dir_open(path, &dir, err);
    if (rc < 0)
        return rc;
    rc = sealfs_open(dir, CHECKPOINT_MANIFEST_FILE, &fd, &facts, err);
    sealfs_close(dir);
    if (rc < 0)
        return rc;
    rc = sealfs_read(fd, CHECKPOINT_MANIFEST_MAX, &text, err);
    sealfs_close(fd);
    if (rc == 0)
        rc = checkpoint_manifest_parse(text.p, text.n, a, &m, err);
    if (rc < 0)
        return rc;
    *ret = (struct checkpoint_sealed){.present = true,
                                      .step = m.step,
                                      .bytes = m.bytes,
                                      .write_ms = 1,
                                      .written_ms = facts.mtime_ns / 1000000};
    memcpy(ret->manifest, m.digest, sizeof m.digest);
    return 0;
}

static int seals_read(const char *base, int64_t epoch, int64_t rank, struct checkpoint_seals *ret,
                      struct err *err)
{
    char folder[FOLDER_MAX];
    struct newest steps = {.prefix = "s", .suffix = "", .below = INT64_MAX};

    (void)snprintf(folder, sizeof folder, "%.900s/sealed/e%lld/%lld", base, (long long)epoch,
                   (long long)rank);
    int rc = newest_of(folder, &steps, err);
    for (unsigned i = steps.n; rc == 0 && i > 0; i--) { /* oldest first */
        struct checkpoint_sealed one;
        struct err why;
        if (seal_read(folder, steps.found[i - 1], &one, &why) == 0) /* else it just went */
            (void)checkpoint_seals_add(ret, &one);
    }
    return rc;
}

/* The steps of the newest cut of this epoch, by rank; false: there is none. */
static bool last_steps(const char *base, int64_t epoch, size_t world, struct arena *a,
                       int64_t **ret)
{
    char path[CHECKPOINT_PATH_MAX], *slash;
    int64_t e = epoch, number = INT64_MAX;
    struct checkpoint_cut c;
    AUTO_BUF text;
    int dir, fd;

    buf_init(&text, CHECKPOINT_CUT_MAX + (128u << 10));
    if (checkpoint_cut_before(base, &e, &number, path, NULL) < 0 || e != epoch)
        return false;
    slash = strrchr(path, '/');
    *slash = '\0';
    if (sealfs_dir_open(path, &dir, NULL) < 0)
        return false;
    int rc = sealfs_open(dir, slash + 1, &fd, NULL, NULL);
    sealfs_close(dir);
    if (rc < 0)
        return false;
    rc = sealfs_read(fd, CHECKPOINT_CUT_MAX, &text, NULL);
    sealfs_close(fd);
    if (rc < 0 || checkpoint_cut_parse(text.p, text.n, a, &c, NULL) < 0 || c.n_ranks != world)
        return false;
    *ret = arena_array(a, int64_t, world);
    for (size_t i = 0; i < world; i++)
        (*ret)[i] = c.ranks[i].step;
    return true;
}

static int gather(const struct checkpoint_gather *g, bool all_saved, struct err *err)
{
    AUTO_ARENA a = arena_create(0);
    size_t n = (size_t)g->world;
    struct checkpoint_seals *seals = arena_array(a, struct checkpoint_seals, n);
    struct checkpoint_cut cut = {.workload = g->workload,
                                 .epoch = g->epoch,
                                 .step = INT64_MAX,
                                 .ranks = arena_array(a, struct checkpoint_rank, n),
                                 .n_ranks = n};
    struct checkpoint_retain keep = {.base = g->base,
                                     .epoch = g->epoch,
                                     .keep = g->keep,
                                     .resume_path = g->resume_path,
                                     .n_ranks = n};
    int64_t *last = NULL, *floor = arena_array(a, int64_t, n);
    struct checkpoint_times times;
    char path[CHECKPOINT_PATH_MAX], digest[CHECKPOINT_DIGEST_MAX];
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++)
        rc = seals_read(g->base, g->epoch, (int64_t)i, &seals[i], err);
    if (rc < 0)
        return rc;
    (void)last_steps(g->base, g->epoch, n, a, &last);
    if (!checkpoint_cut_choose(seals, n, last, all_saved, cut.ranks, &times))
        return 0;
    for (size_t i = 0; i < n; i++) {
        floor[i] = cut.ranks[i].step;
        cut.step = floor[i] < cut.step ? floor[i] : cut.step;
    }
    rc = checkpoint_cut_write(g->base, &cut, path, &keep.known, digest, err);
    if (rc < 0)
        return rc;
    keep.told = keep.known; /* who resumes looks into the store itself */
    keep.floor = floor;
    return checkpoint_retain(&keep, err);
}

int checkpoint_cut_gather(const struct checkpoint_gather *g, bool all_saved, struct err *err)
{
    int rc = E_EXISTS;

    for (int i = 0; rc == E_EXISTS && i < QUICKER_MAX; i++)
        rc = gather(g, all_saved, err); /* there may be something newer than what the other saw */
    return rc == E_EXISTS ? 0 : rc;
}
