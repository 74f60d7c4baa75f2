/* Cuts: what each rank has sealed, at one point of the whole job. The cut file is what the log
 * knows a checkpoint by, so it is written once, whole, and never changed. */
#include "api/base/failpoint.h"
#include "connectors/checkpoint/files/sealfs.h"
#include "connectors/checkpoint/store/store.h"
#include "api/schema/schema.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

/* ---- the file ---- */
static void cut_print(const struct checkpoint_cut *c, struct buf *out)
{
    cJSON *j = cJSON_CreateObject(), *ranks;

    cJSON_AddStringToObject(j, "workload", c->workload);
    cJSON_AddNumberToObject(j, "epoch", (double)c->epoch);
    cJSON_AddNumberToObject(j, "step", (double)c->step);
    if (c->workers)
        cJSON_AddNumberToObject(j, "workers", (double)c->workers);
    ranks = cJSON_AddArrayToObject(j, "ranks");
    for (size_t i = 0; i < c->n_ranks; i++) {
        cJSON *r = cJSON_CreateObject();
        cJSON_AddNumberToObject(r, "rank", (double)c->ranks[i].rank);
        cJSON_AddNumberToObject(r, "step", (double)c->ranks[i].step);
        cJSON_AddStringToObject(r, "manifest", c->ranks[i].manifest);
        cJSON_AddNumberToObject(r, "bytes", (double)c->ranks[i].bytes);
        cJSON_AddItemToArray(ranks, r);
    }
    json_print_tree(j, out);
    buf_char(out, '\n');
    cJSON_Delete(j);
}

static bool number(const cJSON *j, const char *name, int64_t *ret)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, name);

    if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0) ||
        v->valuedouble > (double)CHECKPOINT_NUMBER_MAX)
        return false;
    *ret = (int64_t)v->valuedouble;
    return (double)*ret == v->valuedouble;
}

static bool rank_read(const cJSON *j, int64_t expected, struct checkpoint_rank *ret)
{
    const char *m = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(j, "manifest"));

    if (!number(j, "rank", &ret->rank) || ret->rank != expected || !number(j, "step", &ret->step) ||
        !number(j, "bytes", &ret->bytes) || !m || strlen(m) != 7 + 64 ||
        strncmp(m, "sha256:", 7) != 0 || strspn(m + 7, "0123456789abcdef") != 64)
        return false;
    str_copy(ret->manifest, sizeof ret->manifest, m);
    return true;
}

static bool cut_read(const cJSON *j, struct arena *a, struct checkpoint_cut *c)
{
    const cJSON *ranks = cJSON_GetObjectItemCaseSensitive(j, "ranks"), *r;
    const char *workload = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(j, "workload"));
    int n = cJSON_GetArraySize(ranks);
    int64_t least = CHECKPOINT_NUMBER_MAX;

    if (!workload || strlen(workload) > 64 || !number(j, "epoch", &c->epoch) ||
        !number(j, "step", &c->step) || !cJSON_IsArray(ranks) || n < 1 || n > CHECKPOINT_RANKS_MAX)
        return false;
    if (cJSON_GetObjectItemCaseSensitive(j, "workers") &&
        (!number(j, "workers", &c->workers) || c->workers < 1 ||
         c->workers > CHECKPOINT_RANKS_MAX || n != 1))
        return false;
    c->workload = arena_strdup(a, workload);
    c->ranks = arena_array(a, struct checkpoint_rank, n);
    cJSON_ArrayForEach(r, ranks)
    {
        struct checkpoint_rank *to = &c->ranks[c->n_ranks];
        if (!rank_read(r, (int64_t)c->n_ranks, to))
            return false;
        c->n_ranks++;
        c->bytes += to->bytes; /* 4096 × 2^53 fits */
        least = to->step < least ? to->step : least;
    }
    return least == c->step;
}

int checkpoint_cut_parse(const char *text, size_t n, struct arena *a, struct checkpoint_cut *ret,
                         struct err *err)
{
    struct checkpoint_cut c = {0};
    cJSON *j = NULL;
    struct err why;

    if (n > CHECKPOINT_CUT_MAX || json_parse(text, n, &j, &why) < 0)
        return err_set(err, E_CHECKPOINT, "%.300s",
                       n > CHECKPOINT_CUT_MAX ? "it is too large" : why.text);
    bool good = cJSON_IsObject(j) && cut_read(j, a, &c);
    cJSON_Delete(j);
    if (!good)
        return err_set(err, E_CHECKPOINT, "its fields are not those of a cut");
    *ret = c;
    return 0;
}

static int highest(const char *name, void *arg)
{
    int64_t n = sealfs_number(name, "cut-", ".json");

    if (n > *(int64_t *)arg)
        *(int64_t *)arg = n;
    return 0;
}

/* after: the cut that this one was chosen against. That is how several writers are one: a cut can
 * only follow the one that its writer had seen, the store makes a name once, and who was slower
 * looks again. Nobody holds a lock that he could die with, or that a store would have to offer. */
static int cut_put(struct store *store, const struct checkpoint_cut *c, const struct buf *text,
                   int64_t after, char ret_path[CHECKPOINT_PATH_MAX], int64_t *ret_number,
                   struct err *err)
{
    char folder[48], name[96];
    int64_t n = 0, now = 0;

    (void)snprintf(folder, sizeof folder, "sealed/e%lld", (long long)c->epoch);
    int rc = store_list(store, folder, highest, &n, err);
    if (rc == 0 && after != CHECKPOINT_AFTER_ANY && n != after)
        return err_set(err, E_EXISTS, "cut %lld is there already", (long long)n);
    (void)snprintf(name, sizeof name, "%s/cut-%lld.json", folder, (long long)n + 1);
    FAILPOINT("agent.cut.before");
    if (rc == 0)
        rc = store_create(store, name, text->p, text->n, err);
    FAILPOINT("agent.cut.after");
    if (rc < 0)
        return rc;
    /* Its name may have been free because that cut has come and gone since we looked (not before
     * KEEP_MIN newer ones were there): then ours is
     * of long ago, and what it names may be gone, too. */
    rc = after == CHECKPOINT_AFTER_ANY ? 0 : store_list(store, folder, highest, &now, err);
    if (rc == 0 && now > n + CHECKPOINT_KEEP_MIN) {
        rc = store_remove(store, name, err);
        return rc < 0 ? rc : err_set(err, E_EXISTS, "cut %lld is there already", (long long)now);
    }
    if (rc < 0)
        return rc;
    (void)snprintf(ret_path, CHECKPOINT_PATH_MAX, "%.*s/%.90s", CHECKPOINT_PATH_MAX - 96,
                   store_base(store), name);
    *ret_number = n + 1;
    return 0;
}

int checkpoint_cut_write(const struct checkpoint_store *at, const struct checkpoint_cut *c,
                         int64_t after, char ret_path[CHECKPOINT_PATH_MAX], int64_t *ret_number,
                         char ret_digest[CHECKPOINT_DIGEST_MAX], struct err *err)
{
    struct store *store = NULL;
    AUTO_BUF text;

    buf_init(&text, CHECKPOINT_CUT_MAX);
    cut_print(c, &text);
    if (text.failed)
        return err_set(err, E_TOOLARGE, "a cut of %zu ranks is too large", c->n_ranks);
    int rc = store_open(at, NULL, &store, err);
    if (rc < 0)
        return rc;
    rc = cut_put(store, c, &text, after, ret_path, ret_number, err);
    (void)store_close(store);
    return rc < 0 ? rc : sealfs_digest(text.p, text.n, ret_digest, err);
}

/* ---- which ---- */
bool checkpoint_seals_add(struct checkpoint_seals *s, const struct checkpoint_sealed *seal)
{
    if (!seal->present || (s->n && seal->step <= s->seal[s->n - 1].step))
        return false;
    if (s->n == CHECKPOINT_SEALS)
        memmove(s->seal, s->seal + 1, sizeof *s->seal * --s->n);
    s->seal[s->n++] = *seal;
    return true;
}

static const struct checkpoint_sealed *newest(const struct checkpoint_seals *s)
{
    return s->n ? &s->seal[s->n - 1] : NULL;
}

static const struct checkpoint_sealed *at_step(const struct checkpoint_seals *s, int64_t step)
{
    for (unsigned i = 0; i < s->n; i++)
        if (s->seal[i].step == step)
            return &s->seal[i];
    return NULL;
}

/* The newest step that all ranks have sealed, or -1. */
static int64_t common_step(const struct checkpoint_seals *seals, size_t n)
{
    for (unsigned k = seals[0].n; k > 0; k--) {
        int64_t step = seals[0].seal[k - 1].step;
        size_t i = 1;
        while (i < n && at_step(&seals[i], step))
            i++;
        if (i == n)
            return step;
    }
    return -1;
}

bool checkpoint_cut_choose(const struct checkpoint_seals *seals, size_t n, const int64_t *last,
                           bool all_saved, struct checkpoint_rank *ret,
                           struct checkpoint_times *ret_times)
{
    int64_t common, least_last = -1;
    bool all_newer = true, any_newer = false;

    for (size_t i = 0; i < n; i++) {
        const struct checkpoint_sealed *s = newest(&seals[i]);
        if (!s)
            return false;
        all_newer = all_newer && (!last || s->step > last[i]);
        any_newer = any_newer || !last || s->step > last[i];
        if (last && (i == 0 || last[i] < least_last))
            least_last = last[i];
    }
    common = common_step(seals, n);
    for (size_t i = 0; last && i < n; i++)
        if (common < last[i]) /* a rank would fall back */
            common = -1;
    bool together = common > least_last && !(all_saved && any_newer);
    if (!together && !(all_saved ? any_newer : all_newer))
        return false;
    *ret_times = (struct checkpoint_times){.writeTime = 1};
    for (size_t i = 0; i < n; i++) {
        const struct checkpoint_sealed *s =
            together ? at_step(&seals[i], common) : newest(&seals[i]);
        ret[i] = (struct checkpoint_rank){.rank = (int64_t)i, .step = s->step, .bytes = s->bytes};
        memcpy(ret[i].manifest, s->manifest, sizeof s->manifest);
        if (s->writeTime > ret_times->writeTime)
            ret_times->writeTime = s->writeTime;
        if (i == 0 || s->writtenAt < ret_times->writtenAt)
            ret_times->writtenAt = s->writtenAt;
    }
    return true;
}
