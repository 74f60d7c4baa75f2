/* An entry that this member cannot apply: damaged, of a newer version, or refused by apply. The
 * member stops there and stays up: it serves no writes and no linearizable reads, takes no part in
 * elections, says what it met, and keeps all its data. With a newer binary it goes on by itself.
 *
 * An operator may step over the entry, by an act that is the same on all members (index, checksum,
 * who, why, when): `hanse server skip-entry` writes it into the data directory, the member takes it
 * when it comes to that very entry again. The act is in the state, and in its digest: members that
 * did something else are found out. This file must never step over an entry of another checksum.
 *
 *   stopped.json  {"index":7,"checksum":"…","why":"…"}         where the member stopped
 *   skips.json    [{"index":7,"checksum":"…","by":"…","reason":"…","at":"…"}]   */
#include "controlplane/raft/core_internal.h"

#include <cjson/cJSON.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#define FILE_MAX_BYTES (1u << 20)
#define SKIPS_MAX 1000

static void checksum_of(struct slice entry, char ret[ENTRY_CHECKSUM_MAX])
{
    unsigned char d[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    INV(EVP_Digest(entry.p, entry.n, d, &n, EVP_sha256(), NULL) == 1 && n == 32);
    for (unsigned i = 0; i < n; i++)
        (void)snprintf(ret + 2 * (size_t)i, 3, "%02x", d[i]);
}

/* ---- the files ---- */
static cJSON *json_read(struct loop *l, const char *path, struct err *err)
{
    AUTO_BUF text;

    buf_init(&text, FILE_MAX_BYTES);
    if (file_read(l, path, FILE_MAX_BYTES, &text, err))
        return NULL;
    cJSON *j = text.n ? cJSON_ParseWithLength(text.p, text.n) : NULL;
    if (!j)
        (void)err_set(err, E_CORRUPT, "%.200s cannot be read: it is not JSON", path);
    return j;
}

static int json_write(struct loop *l, const char *path, const cJSON *j, struct err *err)
{
    char *text = cJSON_PrintUnformatted(j);
    int r = file_write(l, path, text, strlen(text), 0600, err);

    cJSON_free(text);
    return r;
}

static bool text_take(const cJSON *j, const char *key, char *ret, size_t n)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, key);

    return cJSON_IsString(v) && snprintf(ret, n, "%s", v->valuestring) < (int)n;
}

static bool index_take(const cJSON *j, uint64_t *ret)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, "index");

    if (!cJSON_IsNumber(v) || v->valuedouble < 1 || v->valuedouble > 9e15)
        return false;
    *ret = (uint64_t)v->valuedouble;
    return true;
}

static bool act_take(const cJSON *j, struct entry_skip *ret)
{
    *ret = (struct entry_skip){0};
    return index_take(j, &ret->index) &&
           text_take(j, "checksum", ret->checksum, sizeof ret->checksum) &&
           text_take(j, "by", ret->by, sizeof ret->by) &&
           text_take(j, "reason", ret->reason, sizeof ret->reason) &&
           text_take(j, "at", ret->at, sizeof ret->at);
}

static cJSON *act_json(const struct entry_skip *a)
{
    cJSON *j = cJSON_CreateObject();

    (void)cJSON_AddNumberToObject(j, "index", (double)a->index);
    (void)cJSON_AddStringToObject(j, "checksum", a->checksum);
    (void)cJSON_AddStringToObject(j, "by", a->by);
    (void)cJSON_AddStringToObject(j, "reason", a->reason);
    (void)cJSON_AddStringToObject(j, "at", a->at);
    return j;
}

int skips_open(struct core *c, struct err *err)
{
    char path[1100];
    struct err e = {0};
    const cJSON *it;

    (void)snprintf(path, sizeof path, "%s/skips.json", c->cfg.data_dir);
    cJSON *j = json_read(c->loop, path, &e);
    if (!j && e.code == E_NOTFOUND)
        return 0;
    if (!j || !cJSON_IsArray(j) || cJSON_GetArraySize(j) > SKIPS_MAX) {
        cJSON_Delete(j);
        return err_set(err, E_CORRUPT,
                       "%.200s cannot be read: write it anew with hanse server skip-entry", path);
    }
    c->skips = mem_zalloc(sizeof *c->skips * (size_t)(cJSON_GetArraySize(j) + 1));
    cJSON_ArrayForEach(it, j)
    {
        c->n_skips += act_take(it, &c->skips[c->n_skips]);
    }
    cJSON_Delete(j);
    return 0;
}

/* ---- offline: the operator's act ---- */
int core_skip_entry(struct loop *l, const char *dir, const struct entry_skip *a, struct err *err)
{
    char path[1100], checksum[ENTRY_CHECKSUM_MAX] = "";
    uint64_t index = 0;
    struct err e = {0};

    (void)snprintf(path, sizeof path, "%s/stopped.json", dir);
    cJSON *j = json_read(l, path, &e);
    bool known = j && index_take(j, &index) && text_take(j, "checksum", checksum, sizeof checksum);
    cJSON_Delete(j);
    if (!known)
        return err_set(err, E_CONFLICT,
                       "the member of %.200s has not stopped at an entry that it could not apply: "
                       "start it, and look at hanse status",
                       dir);
    if (index != a->index || strcmp(checksum, a->checksum) != 0)
        return err_set(err, E_CONFLICT,
                       "this member stopped at entry %llu with checksum %s: give these",
                       (unsigned long long)index, checksum);
    (void)snprintf(path, sizeof path, "%s/skips.json", dir);
    j = json_read(l, path, &e);
    if (!j && e.code != E_NOTFOUND)
        return err ? (void)(*err = e), e.code : e.code;
    if (!j)
        j = cJSON_CreateArray();
    for (int i = cJSON_GetArraySize(j) - 1; i >= 0; i--) { /* the newest act of an entry counts */
        struct entry_skip old;

        if (act_take(cJSON_GetArrayItem(j, i), &old) && old.index == a->index)
            cJSON_DeleteItemFromArray(j, i);
    }
    (void)cJSON_AddItemToArray(j, act_json(a));
    int r = json_write(l, path, j, err);
    cJSON_Delete(j);
    return r;
}

/* ---- at the entry ---- */
bool skip_taken(struct core *c, uint64_t index, struct slice entry)
{
    char checksum[ENTRY_CHECKSUM_MAX], path[1100];
    const struct entry_skip *a = NULL;

    for (size_t i = 0; i < c->n_skips; i++)
        if (c->skips[i].index == index)
            a = &c->skips[i];
    if (!a)
        return false;
    checksum_of(entry, checksum);
    if (strcmp(checksum, a->checksum) != 0) {
        log_event(LOG_ERROR, "raft.skip_refused",
                  LOG_FIELDS({"index", log_u64(index)}, {"checksum", log_str(checksum)},
                             {"recorded", log_str(a->checksum)}));
        return false;
    }
    struct root *next = root_ref(c->root);
    store_skip(&next, a);
    log_event(LOG_WARN, "raft.skipped",
              LOG_FIELDS({"index", log_u64(index)}, {"checksum", log_str(checksum)},
                         {"by", log_str(a->by)}, {"reason", log_str(a->reason)}));
    (void)snprintf(path, sizeof path, "%s/stopped.json", c->cfg.data_dir);
    (void)!file_remove(c->loop, path, NULL); /* of the last time; it says nothing any more */
    core_publish_root(c, next);
    return true;
}

void skip_stop(struct core *c, uint64_t index, struct slice entry, const struct err *why)
{
    char checksum[ENTRY_CHECKSUM_MAX], path[1100];
    struct entry_head h = {0};
    struct err e = {0};

    if (c->dead)
        return;
    checksum_of(entry, checksum);
    entry_peek(entry, &h);
    (void)err_set(&c->why_dead, why->code == E_NOTIMPL ? E_NOTIMPL : E_CORRUPT,
                  "this member has stopped at an entry of the log: see /readyz or hanse status");
    c->dead = c->stopped = true;
    core_alarm_raise(c, ALARM_APPLY,
                     "stopped at entry %llu (number %llu, term %llu, checksum %s): %.200s",
                     (unsigned long long)index, (unsigned long long)h.number,
                     (unsigned long long)h.term, checksum, why->text);
    cJSON *j = cJSON_CreateObject();
    (void)cJSON_AddNumberToObject(j, "index", (double)index);
    (void)cJSON_AddStringToObject(j, "checksum", checksum);
    (void)cJSON_AddStringToObject(j, "why", why->text);
    (void)snprintf(path, sizeof path, "%s/stopped.json", c->cfg.data_dir);
    if (json_write(c->loop, path, j, &e))
        log_err(LOG_WARN, "raft.stopped", &e);
    cJSON_Delete(j);
    core_kick(c);
}
