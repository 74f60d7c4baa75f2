/* The book: keys that this target promised never to start (again). One small file a uid, because a
 * promise must be on disk before it is given, and one promise should cost one write.
 *
 * It must never forget by itself. Full, it says so: find() answers "unknown" instead of "absent",
 * and no run is taken. A hub has it forget what its own log let go; what makes a late order for one
 * of these impossible then is the floor: orders of a state that is older than the one which let
 * them go are refused, whoever brings them (README). */
#include "connectors/agent/node/agent_internal.h"

#include "api/base/hash.h"

#include <stdio.h>
#include <string.h>

static unsigned bucket_of(const char *uid)
{
    return (unsigned)hash_slot(uid, AGENT_BOOK_BUCKETS);
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

    str_copy(e->uid, sizeof e->uid, uid);
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

/* NULL: it cannot be read. */
static struct book_page *page_read(struct book *b, const char *uid, struct arena *a,
                                   size_t *ret_bytes)
{
    char path[AGENT_PATH_MAX];
    struct book_page *page = NULL;
    AUTO_BUF text;

    buf_init(&text, AGENT_BOOK_PAGE_MAX);
    page_path(b, uid, path);
    if (file_read(b->loop, path, AGENT_BOOK_PAGE_MAX, &text, NULL) < 0 ||
        wire_read(book_page, slice_make(text.p, text.n), a, &page, NULL) < 0)
        page = NULL;
    *ret_bytes = text.n;
    return page;
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
    size_t bytes;
    AUTO_ARENA a = arena_create(0);
    const struct book_page *page = page_read(o->book, name, a, &bytes);
    if (!page) {
        o->rc =
            err_set(o->err, E_CORRUPT,
                    "%s/%s cannot be read: restore it, or move it away if no such workload runs",
                    o->book->dir, name);
        return;
    }
    struct book_entry *e = entry_make(o->book, name);
    e->epoch = page->epoch;
    e->try_ = page->try_;
    str_copy(e->cluster, sizeof e->cluster, page->cluster);
    e->rv = page->rv;
    e->at_ms = page->at_ms;
    e->bytes = bytes;
    o->book->bytes += bytes;
}

/* ---- floors ---- */
/* With a dot: no uid has one, and agents of older versions pass over it. */
static void floors_path(const struct book *b, char out[AGENT_PATH_MAX + 16])
{
    (void)snprintf(out, AGENT_PATH_MAX + 16, "%s/floors.json", b->dir);
}

static int floors_open(struct book *b, struct err *err)
{
    char path[AGENT_PATH_MAX + 16];
    struct err why;
    struct book_floors *f = NULL;
    AUTO_ARENA a = arena_create(0);
    AUTO_BUF text;

    buf_init(&text, 8192);
    floors_path(b, path);
    int rc = file_read(b->loop, path, 8192, &text, &why);
    if (rc == E_NOTFOUND)
        return 0;
    if (rc == 0)
        rc = wire_read(book_floors, slice_make(text.p, text.n), a, &f, &why);
    if (rc < 0 || !f)
        return err_set(err, E_CORRUPT, "%s cannot be read: restore it", path);
    while (b->n_floors < AGENT_BOOK_FLOORS && b->n_floors < f->n_floors) {
        b->floors[b->n_floors] = f->floors[b->n_floors];
        b->n_floors++;
    }
    return 0;
}

static int floors_write(struct book *b, struct book_floor *v, unsigned n, struct err *err)
{
    const struct book_floors f = {.floors = v, .n_floors = n};
    char path[AGENT_PATH_MAX + 16];
    AUTO_BUF text;

    buf_init(&text, 8192);
    floors_path(b, path);
    int rc = body_print_json(&schema_book_floors, &f, &text, err);
    return rc < 0 ? rc : file_write(b->loop, path, text.p, text.n, 0600, err);
}

int book_floor_raise(struct book *b, struct book_hub by, struct err *err)
{
    struct book_floor v[AGENT_BOOK_FLOORS];
    unsigned i = 0, n = b->n_floors;

    if (!*by.cluster || strlen(by.cluster) >= CLUSTER_UID_MAX || by.rv == 0)
        return err_set(err, E_INVALID, "who lets go names its cluster and its resourceVersion");
    memcpy(v, b->floors, sizeof v);
    while (i < n && !cluster_same_line(v[i].cluster, by.cluster))
        i++;
    if (i == AGENT_BOOK_FLOORS)
        return err_set(err, E_LIMIT, "this agent has served %d clusters: %s/floors.json",
                       AGENT_BOOK_FLOORS, b->dir);
    if (i < n && strcmp(v[i].cluster, by.cluster) == 0 && v[i].rv >= by.rv)
        return 0;
    /* Of a new log the numbers begin anew, and the old one is not followed any more. */
    if (i == n || !cluster_same_log(v[i].cluster, by.cluster) || v[i].rv < by.rv)
        v[i].rv = by.rv;
    str_copy(v[i].cluster, sizeof v[i].cluster, by.cluster);
    n += i == n;
    int rc = floors_write(b, v, n, err);
    if (rc < 0)
        return rc;
    memcpy(b->floors, v, sizeof v);
    b->n_floors = n;
    return 0;
}

int book_admits(const struct book *b, struct book_hub from, struct err *err)
{
    for (unsigned i = 0; i < b->n_floors; i++) {
        const struct book_floor *f = &b->floors[i];
        bool same = cluster_same_line(from.cluster, f->cluster);
        if (*from.cluster && !same)
            continue;
        if (!same || cluster_left_behind(from.cluster, f->cluster) ||
            (cluster_same_log(from.cluster, f->cluster) && from.rv < f->rv))
            return err_set(
                err, E_STALE,
                "this order is of an older state (%.40s, resourceVersion %llu) than "
                "the one that this agent has forgotten uids for (%.40s, %llu): where an older "
                "copy of its data was put back, hanse recover --from-targets",
                from.cluster, (unsigned long long)from.rv, f->cluster, (unsigned long long)f->rv);
    }
    return 0;
}

/* ---- the book as a whole ---- */
int book_open(struct book *b, struct loop *l, const char *dir, struct err *err)
{
    struct opening o = {.book = b, .err = err};
    int rc;

    b->loop = l;
    str_copy(b->dir, sizeof b->dir, dir);
    rc = file_mkdir(l, dir, 0700, err);
    if (rc == 0)
        rc = floors_open(b, err);
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
    b->n = b->n_floors = 0;
    b->bytes = 0;
}

int book_room(const struct book *b, unsigned runs, struct err *err)
{
    size_t ends = (size_t)runs + 1 + AGENT_BOOK_RESERVE;

    if (b->n + ends <= AGENT_BOOK_MAX &&
        b->bytes + ends * WIRE_OBSERVATION_MAX <= AGENT_BOOK_MAX_BYTES)
        return 0;
    return err_set(err, E_LIMIT,
                   "the agent's book of refused keys is full (%u of %d uids, %zu of %zu bytes): it "
                   "takes no runs until its hub lets some go, an hour after they have ended",
                   b->n, AGENT_BOOK_MAX, b->bytes, AGENT_BOOK_MAX_BYTES);
}

bool book_refuses(const struct book *b, const struct run_key *k)
{
    const struct book_entry *e = entry_find(b, k->uid);

    return e && key_compare(k->epoch, k->try_, e->epoch, e->try_) <= 0;
}

/* What its page says from now on; the ends that are there already stay, up to the newest. */
static int page_text(struct book *b, const struct book_entry *e, const struct observation *ended,
                     struct buf *out, struct err *err)
{
    size_t bytes;
    AUTO_ARENA a = arena_create(0);
    const struct book_page *was = e->bytes ? page_read(b, e->uid, a, &bytes) : NULL;
    uint32_t n = was ? was->n_ends : 0;
    struct observation *ends = mem_zalloc((n + 1) * sizeof *ends);

    if (n)
        memcpy(ends, was->ends, n * sizeof *ends);
    if (ended)
        ends[n++] = *ended;
    uint32_t skip = n > AGENT_BOOK_ENDS ? n - AGENT_BOOK_ENDS : 0;
    const struct book_page page = {.epoch = e->epoch,
                                   .try_ = e->try_,
                                   .rv = e->rv,
                                   .at_ms = e->at_ms,
                                   .cluster = e->cluster,
                                   .ends = ends + skip,
                                   .n_ends = n - skip};
    int rc = body_print_json(&schema_book_page, &page, out, err);
    mem_free(ends);
    return rc;
}

int book_write(struct book *b, const struct run_key *k, const struct observation *ended,
               struct book_hub to, struct err *err)
{
    struct book_entry *e = entry_find(b, k->uid), now = {.epoch = k->epoch, .try_ = k->try_};
    char path[AGENT_PATH_MAX];

    if (e)
        now = *e;
    else
        str_copy(now.uid, sizeof now.uid, k->uid);
    if (key_compare(k->epoch, k->try_, now.epoch, now.try_) > 0) {
        now.epoch = k->epoch;
        now.try_ = k->try_;
    }
    str_copy(now.cluster, sizeof now.cluster, to.rv ? to.cluster : "");
    now.rv = to.rv > now.rv ? to.rv : now.rv;
    now.at_ms = loop_wall_ms(b->loop);
    AUTO_BUF text;
    buf_init(&text, AGENT_BOOK_PAGE_MAX);
    int rc = page_text(b, &now, ended, &text, err);
    now.bytes = text.n;
    size_t was = e ? e->bytes : 0;
    if (rc == 0 && ((!e && b->n >= AGENT_BOOK_MAX) ||
                    (now.bytes > was && b->bytes + now.bytes - was > AGENT_BOOK_MAX_BYTES)))
        rc = err_set(err, E_LIMIT, "the agent's book of refused keys is full (%u uids, %zu bytes)",
                     b->n, b->bytes);
    page_path(b, k->uid, path);
    if (rc == 0)
        rc = file_write(b->loop, path, text.p, text.n, 0600, err);
    if (rc < 0)
        return rc;
    if (!e)
        e = entry_make(b, k->uid);
    now.next = e->next;
    *e = now;
    b->bytes += now.bytes - was;
    return 0;
}

/* ---- forgetting ---- */
void book_list(const struct book *b, unsigned from, int64_t now_ms, int64_t older_ms,
               struct arena *a, struct wire_result *ret)
{
    unsigned i = from, n = 0;

    /* Counted, then told: a page ends with a bucket. */
    for (; i < AGENT_BOOK_BUCKETS && n < WIRE_BOOK_PAGE; i++)
        for (const struct book_entry *e = b->buckets[i]; e; e = e->next)
            n += *e->cluster && now_ms - e->at_ms >= older_ms;
    ret->promises = arena_array(a, struct run_promise, n + 1);
    for (unsigned k = from; k < i; k++)
        for (const struct book_entry *e = b->buckets[k]; e; e = e->next)
            if (*e->cluster && now_ms - e->at_ms >= older_ms)
                ret->promises[ret->n_promises++] = (struct run_promise){
                    .uid = e->uid, .cluster = e->cluster, .epoch = e->epoch, .rv = e->rv};
    ret->next = i < AGENT_BOOK_BUCKETS ? (int)i : 0;
}

int book_forget(struct book *b, const char *uid, struct book_hub by, struct err *err)
{
    struct book_entry **at = &b->buckets[bucket_of(uid)], *e;
    char path[AGENT_PATH_MAX];

    while (*at && strcmp((*at)->uid, uid) != 0)
        at = &(*at)->next;
    e = *at;
    if (!e)
        return 0;
    if (strcmp(e->cluster, by.cluster) != 0 || e->rv > by.rv || book_admits(b, by, err) < 0)
        return err_set(err, E_STALE, "%.64s was promised to another state, or to a newer one", uid);
    page_path(b, uid, path);
    int rc = file_remove(b->loop, path, err);
    if (rc < 0)
        return rc;
    b->n--;
    b->bytes -= e->bytes;
    *at = e->next;
    mem_free(e);
    return 0;
}

bool book_find(struct book *b, const struct run_key *k, struct observation *ret)
{
    size_t bytes;
    AUTO_ARENA a = arena_create(0);
    const struct book_page *page = entry_find(b, k->uid) ? page_read(b, k->uid, a, &bytes) : NULL;
    bool found = false;

    for (uint32_t i = 0; page && i < page->n_ends; i++)
        if (page->ends[i].key.epoch == k->epoch && page->ends[i].key.try_ == k->try_) {
            *ret = page->ends[i];
            observation_settle(ret);
            found = true;
        }
    return found;
}
