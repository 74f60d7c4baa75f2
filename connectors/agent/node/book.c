/* The book: keys that this target promised never to start (again). One small file a uid, because a
 * promise must be on disk before it is given, and one promise should cost one write. It must never
 * forget while it is not full; when it is full it says so, and find() answers "unknown" instead of
 * "absent". */
#include "connectors/agent/node/agent_internal.h"

#include <stdio.h>
#include <string.h>

static unsigned bucket_of(const char *uid)
{
    uint32_t h = 2166136261u;

    for (; *uid; uid++)
        h = (h ^ (unsigned char)*uid) * 16777619u;
    return h % AGENT_BOOK_BUCKETS;
}

static struct book_entry *entry_find(const struct book *b, const char *uid)
{
    struct book_entry *e = b->buckets[bucket_of(uid)];

    while (e && strcmp(e->uid, uid) != 0)
        e = e->next;
    return e;
}

static struct book_entry *entry_make(struct book *b, const char *uid)
{
    struct book_entry *e = mem_new(struct book_entry);
    unsigned i = bucket_of(uid);

    (void)snprintf(e->uid, sizeof e->uid, "%s", uid);
    e->next = b->buckets[i];
    b->buckets[i] = e;
    b->n++;
    return e;
}

static int key_compare(int64_t e1, int64_t t1, int64_t e2, int64_t t2)
{
    if (e1 != e2)
        return e1 < e2 ? -1 : 1;
    return t1 < t2 ? -1 : t1 > t2;
}

static void page_path(const struct book *b, const char *uid, char out[AGENT_PATH_MAX])
{
    (void)snprintf(out, AGENT_PATH_MAX, "%s/%s", b->dir, uid);
}

static cJSON *page_read(struct book *b, const char *uid)
{
    char path[AGENT_PATH_MAX];
    cJSON *j = NULL;
    AUTO_BUF text;

    buf_init(&text, 65536);
    page_path(b, uid, path);
    if (file_read(b->loop, path, 65536, &text, NULL) == 0)
        j = cJSON_ParseWithLength(text.p, text.n);
    return j;
}

struct opening {
    struct book *book;
    struct err *err;
    int rc;
};

static void page_open(const char *name, void *arg)
{
    struct opening *o = arg;

    if (o->rc < 0 || strchr(name, '.') || strlen(name) >= sizeof((struct run_key *)0)->uid)
        return;
    cJSON *j = page_read(o->book, name);
    if (!j) {
        o->rc =
            err_set(o->err, E_CORRUPT,
                    "%s/%s cannot be read: restore it, or move it away if no such workload runs",
                    o->book->dir, name);
        return;
    }
    struct book_entry *e = entry_make(o->book, name);
    e->epoch = wire_i64(j, "epoch");
    e->try_ = wire_i64(j, "try");
    cJSON_Delete(j);
}

int book_open(struct book *b, struct loop *l, const char *dir, struct err *err)
{
    struct opening o = {.book = b, .err = err};
    int rc;

    b->loop = l;
    (void)snprintf(b->dir, sizeof b->dir, "%s", dir);
    rc = file_mkdir(l, dir, 0700, err);
    if (rc == 0)
        rc = file_list(l, dir, page_open, &o, err);
    return rc < 0 ? rc : o.rc;
}

void book_close(struct book *b)
{
    for (unsigned i = 0; i < AGENT_BOOK_BUCKETS; i++)
        while (b->buckets[i]) {
            struct book_entry *e = b->buckets[i];
            b->buckets[i] = e->next;
            mem_free(e);
        }
    b->n = 0;
}

bool book_refuses(const struct book *b, const struct run_key *k)
{
    const struct book_entry *e = entry_find(b, k->uid);

    return e && key_compare(k->epoch, k->try_, e->epoch, e->try_) <= 0;
}

int book_write(struct book *b, const struct run_key *k, const struct observation *ended,
               struct err *err)
{
    struct book_entry *e = entry_find(b, k->uid);
    char path[AGENT_PATH_MAX];
    cJSON *j, *ends;
    int rc;

    if (!e && b->n >= AGENT_BOOK_MAX)
        return err_set(err, E_LIMIT, "the agent's book of refused keys is full (%d)",
                       AGENT_BOOK_MAX);
    int64_t epoch = k->epoch, try_ = k->try_;
    if (e && key_compare(epoch, try_, e->epoch, e->try_) < 0) {
        epoch = e->epoch;
        try_ = e->try_;
    }
    j = page_read(b, k->uid);
    if (!j)
        j = cJSON_CreateObject();
    cJSON_DeleteItemFromObjectCaseSensitive(j, "epoch");
    cJSON_DeleteItemFromObjectCaseSensitive(j, "try");
    cJSON_AddNumberToObject(j, "epoch", (double)epoch);
    cJSON_AddNumberToObject(j, "try", (double)try_);
    ends = cJSON_GetObjectItemCaseSensitive(j, "ends");
    if (!ends)
        ends = cJSON_AddArrayToObject(j, "ends");
    if (ended)
        cJSON_AddItemToArray(ends, wire_observation(ended));
    while (cJSON_GetArraySize(ends) > AGENT_BOOK_ENDS)
        cJSON_DeleteItemFromArray(ends, 0);
    char *text = cJSON_PrintUnformatted(j);
    page_path(b, k->uid, path);
    rc = file_write(b->loop, path, text, strlen(text), 0600, err);
    cJSON_free(text);
    cJSON_Delete(j);
    if (rc < 0)
        return rc;
    if (!e)
        e = entry_make(b, k->uid);
    e->epoch = epoch;
    e->try_ = try_;
    return 0;
}

bool book_find(struct book *b, const struct run_key *k, struct observation *ret)
{
    cJSON *j = entry_find(b, k->uid) ? page_read(b, k->uid) : NULL;
    const cJSON *e;
    bool found = false;

    cJSON_ArrayForEach(e, cJSON_GetObjectItemCaseSensitive(j, "ends"))
    {
        struct observation o;
        if (wire_observation_parse(e, &o, NULL) == 0 && o.key.epoch == k->epoch &&
            o.key.try_ == k->try_) {
            *ret = o;
            found = true;
        }
    }
    cJSON_Delete(j);
    return found;
}
