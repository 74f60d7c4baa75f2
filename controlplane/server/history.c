/* Operation "history": what left the state of one workload, out of the archive of the member that
 * is asked (api/server/README.md has the body). Files are read on the thread pool, against one
 * root.
 *
 * This file must never answer less than there is without saying so, and never show another
 * namespace than the one that the route put there. */
#include "controlplane/archive/archive_files.h"
#include "controlplane/server/backend.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#define HISTORY_DEADLINE_MS 15000
#define RECORDS_MAX 500
#define SEGMENTS_MAX 5000 /* a request; then it says where to go on */
#define ANSWER_BYTES_MAX (24u << 20)

struct history {
    struct control *c;
    void (*cb)(void *arg, const char *json, const struct err *err);
    void *arg;
    char ns[64], workload[256], uid[64];
    enum kind_id kind;
    uint64_t before;
    struct root *root;
    struct archive_found found;
    cJSON *items;
    size_t bytes;
    uint64_t cut; /* the segment that did not fit any more */
    char *answer;
    int code;
    struct err err;
};

static void history_end(struct history *x, const struct err *err)
{
    if (x->found.bad)
        core_archive_suspect(x->c->core, x->found.bad);
    x->cb(x->arg, x->answer, err);
    (void)root_unref(x->root);
    cJSON_Delete(x->items);
    mem_free(x->answer);
    mem_free(x);
}

static int read_text(const cJSON *in, const char *name, char *ret, size_t n, struct err *err)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(in, name);

    if (!v)
        return 0;
    if (!cJSON_IsString(v) || strlen(v->valuestring) >= n)
        return err_field(err, E_INVALID, name, "%s: expected a text of less than %zu bytes", name,
                         n);
    (void)snprintf(ret, n, "%s", v->valuestring);
    return 0;
}

static int read_before(struct history *x, const cJSON *in, struct err *err)
{
    char text[32] = "";
    int r = read_text(in, "before", text, sizeof text, err);

    if (r < 0 || !*text)
        return r;
    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '9' || x->before > UINT64_MAX / 100)
            return err_field(err, E_INVALID, "before",
                             "before: expected the number of a segment, as \"next\" told it");
        x->before = 10 * x->before + (uint64_t)(*p - '0');
    }
    return 0;
}

static int read_all(struct history *x, const cJSON *in, struct err *err)
{
    char kind[64] = "";
    int r;

    if ((r = read_text(in, "namespace", x->ns, sizeof x->ns, err)) < 0 ||
        (r = read_text(in, "workload", x->workload, sizeof x->workload, err)) < 0 ||
        (r = read_text(in, "uid", x->uid, sizeof x->uid, err)) < 0 ||
        (r = read_text(in, "kind", kind, sizeof kind, err)) < 0 ||
        (r = read_before(x, in, err)) < 0)
        return r;
    if (!*x->ns || !*x->workload)
        return err_field(err, E_INVALID, "workload", "workload: whose history?");
    if (!*kind)
        return 0;
    for (int i = 0; i < ARCHIVE_KINDS; i++)
        if (!strcmp(kind_by_id(archive_kinds[i])->kind, kind))
            x->kind = archive_kinds[i];
    return x->kind ? 0
                   : err_field(err, E_INVALID, "kind",
                               "kind: expected Workload, Decision, Migration, Checkpoint or Event");
}

/* ---- the answer ---- */
static bool item_each(const struct archive_record *rec, uint64_t segment, void *arg)
{
    struct history *x = arg;
    struct object *o = NULL;
    char at[32];

    if (x->bytes > ANSWER_BYTES_MAX) {
        x->cut = segment;
        return false;
    }
    x->bytes += 4 * rec->object.n + 256;
    if ((x->code = object_decode(kind_by_id(rec->kind), rec->object, &o, &x->err)) < 0)
        return false;
    cJSON *shown = NULL, *j;
    if ((x->code = object_to_json(o, &shown, &x->err)) < 0) {
        (void)object_unref(o);
        return false;
    }
    j = cJSON_CreateObject();
    time_print(rec->at, at);
    (void)cJSON_AddNumberToObject(j, "segment", (double)segment);
    (void)cJSON_AddNumberToObject(j, "entry", (double)rec->entry);
    (void)cJSON_AddStringToObject(j, "archivedAt", at);
    (void)cJSON_AddStringToObject(j, "archivedBy", rec->by);
    (void)cJSON_AddStringToObject(j, "workloadUid", rec->uid);
    (void)cJSON_AddItemToObject(j, "object", shown);
    (void)cJSON_AddItemToArray(x->items, j);
    (void)object_unref(o);
    return true;
}

static void put_absent(const struct history *x, cJSON *j)
{
    const struct archive_found *f = &x->found;
    char text[512];

    if (!f->absent)
        return;
    (void)cJSON_AddNumberToObject(j, "absentSegments", (double)f->absent);
    (void)cJSON_AddNumberToObject(j, "oldestAbsent", (double)f->oldest_absent);
    (void)cJSON_AddNumberToObject(j, "newestAbsent", (double)f->newest_absent);
    (void)snprintf(text, sizeof text,
                   "this member lacks %llu segments of the archive (of %llu to %llu) and fetches "
                   "them from its peers: ask again, or ask another member%s%.200s",
                   (unsigned long long)f->absent, (unsigned long long)f->oldest_absent,
                   (unsigned long long)f->newest_absent, *f->why ? "; " : "", f->why);
    (void)cJSON_AddStringToObject(j, "message", text);
}

static void history_make(void *arg) /* thread pool */
{
    struct history *x = arg;
    struct archive_search q = {.ns = x->ns,
                               .workload = x->workload,
                               .uid = x->uid,
                               .kind = x->kind,
                               .before = x->before,
                               .records_max = RECORDS_MAX,
                               .segments_max = SEGMENTS_MAX};
    struct archive_totals t = root_archive(x->root);
    uint64_t next;

    x->items = cJSON_CreateArray();
    int r = archive_find(x->c->loop, core_archive_dir(x->c->core), x->root, &q, item_each, x,
                         &x->found, &x->err);
    if (r < 0 || x->code < 0) {
        x->code = r < 0 ? r : x->code;
        return;
    }
    cJSON *j = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(j, "kind", "ArchiveList");
    (void)cJSON_AddStringToObject(j, "apiVersion", "hanse.dev/v1alpha1");
    (void)cJSON_AddItemToObject(j, "items", x->items);
    x->items = NULL;
    (void)cJSON_AddNumberToObject(j, "segments", (double)t.segments);
    (void)cJSON_AddNumberToObject(j, "searchedSegments", (double)x->found.searched);
    next = x->cut ? x->cut + 1 : x->found.next;
    if (next)
        (void)cJSON_AddNumberToObject(j, "next", (double)next);
    put_absent(x, j);
    char *text = cJSON_PrintUnformatted(j);
    x->answer = mem_strdup(text ? text : "{}");
    cJSON_free(text);
    cJSON_Delete(j);
}

static void history_made(void *arg)
{
    struct history *x = arg;

    history_end(x, x->code < 0 ? &x->err : NULL);
}

static void history_read(void *arg, const struct err *err)
{
    struct history *x = arg;

    if (err && err->code) {
        history_end(x, err);
        return;
    }
    x->root = core_root(x->c->core);
    loop_work(x->c->loop, history_make, history_made, x);
}

void history_operate(struct control *c, const cJSON *in,
                     void (*cb)(void *arg, const char *json, const struct err *err), void *arg)
{
    struct history *x = mem_new(struct history);
    struct err e = {0};

    *x = (struct history){.c = c, .cb = cb, .arg = arg};
    if (read_all(x, in, &e) < 0)
        history_end(x, &e);
    else
        c->backend.ops->fresh(&c->backend, 0, HISTORY_DEADLINE_MS, history_read, x);
}
