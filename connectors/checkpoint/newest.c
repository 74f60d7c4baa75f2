/* The newest whole checkpoint in the store. A run that was cut off goes on saving until its lease
 * is over, and one that was killed may have saved without reporting it. So the target that starts
 * the workload again searches the store itself.
 *
 * The search must never run while a run of that epoch may be alive: it would miss what the run
 * writes meanwhile, and find missing what the run removes. It decides nothing about what is
 * current: the log does. */
#include "connectors/checkpoint/store/store.h"

#include <stdio.h>
#include <string.h>

#define PASSED_MAX 16 /* cuts that do not hold, before none is taken to be there */
#define SAYS_MAX 400  /* of why */

static void passed_over(struct buf *passed, const struct err *why)
{
    if (passed->n < SAYS_MAX)
        buf_printf(passed, "%s%s: %.200s", passed->n ? "; " : "", why->field, why->text);
}

/* Seals of all ranks that no agent was there to gather. Nothing is removed: what the log knows must
 * stay until it knows better. Where it cannot be done, what cuts there are will do. */
static void gather_left(const struct checkpoint_search *q)
{
    const struct checkpoint_gather g = {.at = q->at,
                                        .workload = q->workload,
                                        .resume_path = "",
                                        .epoch = q->epoch,
                                        .world = q->workers,
                                        .shared = q->shared,
                                        .keep = CHECKPOINT_NUMBER_MAX};
    struct err err;

    if (q->workers > 0 && q->workers <= CHECKPOINT_RANKS_MAX)
        (void)!checkpoint_cut_gather(&g, false, NULL, &err);
}

/* 1: newer than what is known, and whole; 0: no newer one; E_CHECKPOINT: look at the next one. */
static int look_at(const struct checkpoint_search *q, int64_t epoch, const char *path,
                   struct checkpoint_progress *p, struct checkpoint_found *ret, struct err *err)
{
    struct checkpoint_want want = {.path = path,
                                   .at = q->at,
                                   .digest = "",
                                   .workload = q->workload,
                                   .rank = -1,
                                   .cut_only = true};
    char proofs[CHECKPOINT_PATH_MAX], scratch[CHECKPOINT_PATH_MAX];
    int rc;

    want.world = q->world;
    if ((rc = checkpoint_verify(&want, p, ret, err)) < 0)
        return rc;
    if (ret->epoch != epoch)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_FOREIGN,
                         "%.250s says that it is of epoch %lld", path, (long long)ret->epoch);
    if (epoch == q->known_epoch && ret->step <= q->known_step)
        return 0;
    char digest[CHECKPOINT_DIGEST_MAX];
    memcpy(digest, ret->digest, sizeof digest);
    want.digest = digest;
    want.cut_only = false;
    if (q->proofs) {
        (void)snprintf(proofs, sizeof proofs, "%.900s/%.64s", q->proofs, digest + 7);
        want.proofs_dir = proofs;
        want.write_proofs = true;
        want.by_sealer = true;
    }
    if (q->at.scratch) {
        (void)snprintf(scratch, sizeof scratch, "%.900s/%.64s", q->at.scratch, digest + 7);
        want.at.scratch = scratch;
    }
    rc = checkpoint_verify(&want, p, ret, err);
    return rc < 0 ? rc : 1;
}

/* Nothing newer; or the store is not there at all, which looks the same. */
static int none(const struct checkpoint_search *q, struct checkpoint_progress *p,
                struct checkpoint_found *ret, struct err *err)
{
    struct store *store = NULL;
    int rc = store_open(&q->at, p, &store, err);

    *ret = (struct checkpoint_found){0};
    if (rc < 0)
        return rc;
    bool here = store_is_here(store);
    (void)store_close(store);
    if (here)
        return 0;
    return err_field(err, E_NOTFOUND, CHECKPOINT_UNREACHABLE,
                     "there is no %.250s on this machine: mount its checkpoint store here, or keep "
                     "the workload to targets that have it",
                     q->at.base);
}

int checkpoint_newest(const struct checkpoint_search *q, struct checkpoint_progress *p,
                      struct checkpoint_found *ret, struct buf *passed, struct err *err)
{
    int64_t epoch = q->epoch, number = INT64_MAX;
    char path[CHECKPOINT_PATH_MAX];
    struct err why = {0};

    gather_left(q);
    for (unsigned bad = 0; bad < PASSED_MAX; bad++) {
        int rc = checkpoint_cut_before(&q->at, &epoch, &number, path, err);
        if (rc == E_NOTFOUND || (rc == 0 && epoch < q->known_epoch))
            return none(q, p, ret, err);
        if (rc < 0)
            return rc;
        rc = look_at(q, epoch, path, p, ret, &why);
        if (rc == 1)
            return 0;
        if (rc == 0)
            return none(q, p, ret, err);
        if (rc != E_CHECKPOINT) {
            *err = why;
            return rc;
        }
        passed_over(passed, &why);
    }
    return none(q, p, ret, err);
}
