/* Cuts of ranks that share nothing but the store: shims without an agent (pods, tasks of a batch
 * job), and the agents of a gang that has ranks with several. Each looks for itself whether all
 * ranks have sealed. Any of them may come to the same cut; the first that writes it wins. Also:
 * which cut is the newest, and whether it is one store. */
#include "api/base/failpoint.h"
#include "connectors/checkpoint/files/sealfs.h"
#include "connectors/checkpoint/store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUICKER_MAX 16

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

static int cut_before(struct store *store, int64_t *epoch, int64_t *number, char ret_name[96],
                      struct err *err)
{
    struct newest cuts = {.prefix = "cut-", .suffix = ".json", .below = *number};

    for (;;) {
        struct newest epochs = {.prefix = "e", .suffix = "", .below = *epoch + 1};
        char one[48];
        int rc = store_list(store, "sealed", newest_entry, &epochs, err);
        if (rc < 0)
            return rc;
        if (epochs.n == 0)
            return E_NOTFOUND;
        if (epochs.found[0] != *epoch)
            cuts.below = INT64_MAX;
        *epoch = epochs.found[0];
        (void)snprintf(one, sizeof one, "sealed/e%lld", (long long)*epoch);
        rc = store_list(store, one, newest_entry, &cuts, err);
        if (rc < 0)
            return rc;
        if (cuts.n > 0) {
            *number = cuts.found[0];
            (void)snprintf(ret_name, 96, "%s/cut-%lld.json", one, (long long)*number);
            return 0;
        }
        if (*epoch == 0)
            return E_NOTFOUND;
        *epoch -= 1;
        cuts.below = INT64_MAX;
    }
}

int checkpoint_cut_before(const struct checkpoint_store *at, int64_t *epoch, int64_t *number,
                          char ret[CHECKPOINT_PATH_MAX], struct err *err)
{
    struct store *store = NULL;
    char name[96];
    int rc = store_open(at, NULL, &store, err);

    if (rc < 0)
        return rc;
    rc = cut_before(store, epoch, number, name, err);
    if (rc == 0)
        (void)snprintf(ret, CHECKPOINT_PATH_MAX, "%.*s/%.90s", CHECKPOINT_PATH_MAX - 96,
                       store_base(store), name);
    (void)store_close(store);
    return rc;
}

int checkpoint_epoch_newest(const struct checkpoint_store *at, int64_t *ret, struct err *err)
{
    struct newest epochs = {.prefix = "e", .suffix = "", .below = INT64_MAX};
    struct store *store = NULL;
    int rc = store_open(at, NULL, &store, err);

    if (rc < 0)
        return rc;
    rc = store_list(store, "", newest_entry, &epochs, err);
    (void)store_close(store);
    if (rc == 0)
        *ret = epochs.n ? epochs.found[0] : 0;
    return rc;
}

/* ---- gathering ---- */
static int seal_read(struct store *store, const char *folder, int64_t step,
                     struct checkpoint_sealed *ret, struct err *err)
{
    char name[160];
    struct checkpoint_manifest m;
    int64_t written_ns = 0;
    AUTO_ARENA a = arena_create(0);
    AUTO_BUF text;

    buf_init(&text, CHECKPOINT_MANIFEST_MAX + (128u << 10));
    (void)snprintf(name, sizeof name, "%s/s%lld/" CHECKPOINT_MANIFEST_FILE, folder,
                   (long long)step);
    int rc = store_get(store, name, CHECKPOINT_MANIFEST_MAX, &text, &written_ns, err);
    if (rc == 0)
        rc = checkpoint_manifest_parse(text.p, text.n, a, &m, err);
    if (rc < 0)
        return rc;
    *ret = (struct checkpoint_sealed){.present = true,
                                      .step = m.step,
                                      .bytes = m.bytes,
                                      .writeTime = 1,
                                      .writtenAt = written_ns / 1000000};
    memcpy(ret->manifest, m.digest, sizeof m.digest);
    return 0;
}

static int seals_read(struct store *store, int64_t epoch, int64_t rank,
                      struct checkpoint_seals *ret, struct err *err)
{
    char folder[96];
    struct newest steps = {.prefix = "s", .suffix = "", .below = INT64_MAX};

    (void)snprintf(folder, sizeof folder, "sealed/e%lld/%lld", (long long)epoch, (long long)rank);
    int rc = store_list(store, folder, newest_entry, &steps, err);
    for (unsigned i = steps.n; rc == 0 && i > 0; i--) { /* oldest first */
        struct checkpoint_sealed one;
        struct err why;
        if (seal_read(store, folder, steps.found[i - 1], &one, &why) == 0) /* else it just went */
            (void)checkpoint_seals_add(ret, &one);
    }
    return rc;
}

struct last {       /* the newest cut of the epoch */
    int64_t number; /* 0: there is none */
    int64_t *steps; /* by rank; NULL: it cannot be read, and anything is better */
    struct run_checkpoint_report cut;
};

static int64_t part_of(const struct checkpoint_gather *g)
{
    return g->shared ? 0 : g->rank;
}

static void last_read(struct store *store, const struct checkpoint_gather *g, const char *name,
                      size_t n, struct arena *a, struct last *ret)
{
    struct checkpoint_cut c;
    int64_t written_ns = 0;
    struct err why;
    AUTO_BUF text;

    buf_init(&text, CHECKPOINT_CUT_MAX + (128u << 10));
    if (store_get(store, name, CHECKPOINT_CUT_MAX, &text, &written_ns, NULL) < 0 ||
        checkpoint_cut_parse(text.p, text.n, a, &c, NULL) < 0 || c.n_ranks != n ||
        sealfs_digest(text.p, text.n, ret->cut.digest, &why) < 0)
        return;
    ret->steps = arena_array(a, int64_t, n);
    for (size_t i = 0; i < n; i++) {
        ret->steps[i] = c.ranks[i].step;
        ret->cut.bytes += c.ranks[i].bytes;
    }
    ret->cut.present = true;
    ret->cut.step = c.step;
    ret->cut.writeTime = 1;
    ret->cut.writtenAt = written_ns / 1000000;
    ret->cut.ranks = g->world;
    (void)snprintf(ret->cut.path, sizeof ret->cut.path, "%.*s/%.90s", CHECKPOINT_PATH_MAX - 96,
                   store_base(store), name);
}

static int last_cut(struct store *store, const struct checkpoint_gather *g, size_t n,
                    struct arena *a, struct last *ret, struct err *err)
{
    char name[96];
    int64_t e = g->epoch, number = INT64_MAX;

    *ret = (struct last){0};
    int rc = cut_before(store, &e, &number, name, err);
    if (rc < 0 && rc != E_NOTFOUND)
        return rc;
    ret->number = rc == 0 && e == g->epoch ? number : 0;
    if (ret->number)
        last_read(store, g, name, n, a, ret);
    return 0;
}

static size_t n_sealing(const struct checkpoint_gather *g)
{
    return g->shared ? 1 : (size_t)g->world;
}

/* What all ranks have sealed, and the last cut. */
static int look(const struct checkpoint_gather *g, struct arena *a, struct checkpoint_seals *seals,
                struct last *ret, struct err *err)
{
    struct store *store = NULL;
    int rc = store_open(&g->at, NULL, &store, err);

    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n_sealing(g) && rc == 0; i++)
        rc = seals_read(store, g->epoch, (int64_t)i, &seals[i], err);
    if (rc == 0)
        rc = last_cut(store, g, n_sealing(g), a, ret, err);
    (void)store_close(store);
    return rc;
}

static int gather(const struct checkpoint_gather *g, bool all_saved,
                  struct checkpoint_gathered *ret, struct err *err)
{
    AUTO_ARENA a = arena_create(0);
    size_t n = n_sealing(g);
    struct checkpoint_seals *seals = arena_array(a, struct checkpoint_seals, n);
    struct checkpoint_cut cut = {.workload = g->workload,
                                 .epoch = g->epoch,
                                 .step = INT64_MAX,
                                 .ranks = arena_array(a, struct checkpoint_rank, n),
                                 .n_ranks = n,
                                 .workers = g->shared ? g->world : 0};
    struct checkpoint_retain keep = {.at = g->at,
                                     .epoch = g->epoch,
                                     .keep = g->keep,
                                     .resume_path = g->resume_path,
                                     .n_ranks = n};
    struct last last = {0};
    int64_t *floor = arena_array(a, int64_t, n);
    struct checkpoint_times times;
    int rc = look(g, a, seals, &last, err);

    if (rc < 0)
        return rc;
    *ret = (struct checkpoint_gathered){
        .cut = last.cut,
        .number = last.number,
        .own_step = last.steps ? last.steps[part_of(g)] : -1};
    if (g->steps && last.steps)
        memcpy(g->steps, last.steps, n * sizeof *g->steps);
    if (!checkpoint_cut_choose(seals, n, last.steps, all_saved, cut.ranks, &times))
        return 0;
    for (size_t i = 0; i < n; i++) {
        floor[i] = cut.ranks[i].step;
        cut.bytes += cut.ranks[i].bytes;
        cut.step = floor[i] < cut.step ? floor[i] : cut.step;
    }
    FAILPOINT("shim.gather.looked");
    struct run_checkpoint_report r = {.present = true,
                                      .step = cut.step,
                                      .bytes = cut.bytes,
                                      .writeTime = times.writeTime,
                                      .writtenAt = times.writtenAt,
                                      .ranks = g->world};
    rc = checkpoint_cut_write(&g->at, &cut, last.number, r.path, &keep.told, r.digest, err);
    if (rc < 0)
        return rc;
    *ret = (struct checkpoint_gathered){
        .cut = r, .number = keep.told, .own_step = floor[part_of(g)], .wrote = true};
    if (g->steps)
        memcpy(g->steps, floor, n * sizeof *g->steps);
    if (g->apart)
        return 0;
    keep.known = g->told ? g->known : keep.told; /* else who resumes looks into the store itself */
    keep.floor = floor;
    return checkpoint_retain(&keep, err);
}

int checkpoint_cut_gather(const struct checkpoint_gather *g, bool all_saved,
                          struct checkpoint_gathered *ret, struct err *err)
{
    struct checkpoint_gathered got = {.own_step = -1};
    int rc = E_EXISTS;

    for (int i = 0; rc == E_EXISTS && i < QUICKER_MAX; i++)
        rc = gather(g, all_saved, &got, err); /* there may be something newer than the other saw */
    if (ret)
        *ret = got;
    return rc == E_EXISTS ? 0 : rc;
}

/* ---- is it one store? ---- */
/* Below the sealed steps of its epoch: what removes these removes it. */
static void meeting_name(int64_t epoch, const char *name, char ret[160])
{
    (void)snprintf(ret, 160, "sealed/e%lld/met/%.96s", (long long)epoch, name);
}

int checkpoint_meeting_leave(const struct checkpoint_store *at, int64_t epoch, const char *name,
                             struct err *err)
{
    struct store *store = NULL;
    char path[160], folder[64];
    int rc = store_open(at, NULL, &store, err);

    meeting_name(epoch, name, path);
    if (rc == 0) {
        (void)snprintf(folder, sizeof folder, "sealed/e%lld/met", (long long)epoch);
        rc = store_make(store, folder, err);
    }
    if (rc == 0)
        rc = store_create(store, path, name, strlen(name), err);
    (void)store_close(store);
    return rc == E_EXISTS ? 0 : rc; /* asked twice */
}

int checkpoint_meeting_see(const struct checkpoint_store *at, int64_t epoch, const char *name,
                           struct err *err)
{
    struct store *store = NULL;
    char path[160];
    AUTO_BUF text;
    int rc = store_open(at, NULL, &store, err);

    buf_init(&text, 256u << 10);
    meeting_name(epoch, name, path);
    if (rc == 0)
        rc = store_get(store, path, 1024, &text, NULL, err);
    (void)store_close(store);
    return rc;
}
