/* Verifying: before anybody resumes, every byte that the cut answers for is read and compared: the
 * cut against the digest that the log has, each rank's manifest against the cut, each file against
 * its manifest. Sizes and manifests are always compared; a file is not read again when a proof says
 * that this very agent has read it, and that nobody has touched it since. */
#include "connectors/checkpoint/checkpoint_internal.h"
#include "api/schema/schema.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROOFS_MAX (16u << 20)

struct rank_proof { /* one line of a proofs file: what was read, and the name */
    struct file_facts facts;
    int64_t bytes, read_ns;
    char sha256[65];
};
struct verifying {
    const struct checkpoint_want *want;
    struct store *store; /* NULL: a folder by itself */
    const char *folder;  /* in the store */
    struct checkpoint_progress *progress;
    struct buf proofs; /* as read */
    const char *line;  /* the next of them */
    const char *path;  /* of the folder, for sentences */
};

static int refuse_open(struct err *err, int rc, const char *path, const char *name,
                       const char *reason, const char *remedy)
{
    if (rc == E_NOTFOUND)
        return err_field(err, E_CHECKPOINT, reason, "%.250s%s%.100s is not there: %s", path,
                         *name ? "/" : "", name, remedy);
    if (rc == E_FORBIDDEN)
        return err_field(
            err, E_CHECKPOINT, CHECKPOINT_ALTERED,
            "%.250s%s%.100s cannot be read, is no regular file or leads through a link", path,
            *name ? "/" : "", name);
    return rc;
}

/* ---- proofs: "dev ino size mtime ctime read bytes sha256 name" ---- */
static void proof_add(struct buf *b, const char *name, const struct rank_proof *p)
{
    buf_printf(b,
               "%" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64
               " %s %s\n",
               p->facts.device, p->facts.inode, p->facts.size, p->facts.mtime_ns, p->facts.ctime_ns,
               p->read_ns, p->bytes, p->sha256, name);
}

/* A decimal number and the one space behind it. */
static bool proof_number(const char **at, int64_t *ret)
{
    char *end;

    errno = 0;
    *ret = strtoll(*at, &end, 10);
    if (end == *at || errno || *end != ' ')
        return false;
    *at = end + 1;
    return true;
}
static bool proof_id(const char **at, uint64_t *ret)
{
    char *end;

    errno = 0;
    *ret = strtoull(*at, &end, 10);
    if (end == *at || errno || *end != ' ')
        return false;
    *at = end + 1;
    return true;
}

/* The next line, if it is about this file: they are in the manifest's order. */
static bool proof_next(struct verifying *v, const char *name, struct rank_proof *ret)
{
    const char *at = v->line, *end = at ? strchr(at, '\n') : NULL;

    if (!end)
        return false;
    v->line = end + 1;
    if (!proof_id(&at, &ret->facts.device) || !proof_id(&at, &ret->facts.inode) ||
        !proof_number(&at, &ret->facts.size) || !proof_number(&at, &ret->facts.mtime_ns) ||
        !proof_number(&at, &ret->facts.ctime_ns) || !proof_number(&at, &ret->read_ns) ||
        !proof_number(&at, &ret->bytes) || end - at < 65 || at[64] != ' ')
        return false;
    memcpy(ret->sha256, at, 64);
    ret->sha256[64] = '\0';
    at += 65;
    return (size_t)(end - at) == strlen(name) && strncmp(at, name, strlen(name)) == 0;
}

static bool proof_holds(const struct rank_proof *p, const struct checkpoint_file *f,
                        const struct file_facts *now)
{
    return p->bytes == f->bytes && strcmp(p->sha256, f->sha256) == 0 &&
           file_facts_equal(&p->facts, now) && p->facts.ctime_ns == now->ctime_ns &&
           file_facts_settled(&p->facts, p->read_ns);
}

static void proofs_read(struct verifying *v, int64_t rank)
{
    char name[32];
    int dir = -1, fd = -1;

    if (!v->want->proofs_dir || sealfs_dir_open(v->want->proofs_dir, &dir, NULL) < 0)
        return;
    (void)snprintf(name, sizeof name, "%lld", (long long)rank);
    if (sealfs_open(dir, name, &fd, NULL, NULL) == 0) {
        if (sealfs_read(fd, PROOFS_MAX, &v->proofs, NULL) < 0)
            buf_reset(&v->proofs);
        v->line = v->proofs.n ? v->proofs.p : NULL;
        sealfs_close(fd);
    }
    sealfs_close(dir);
}

static int proofs_write(const struct verifying *v, int64_t rank, const struct buf *b,
                        struct err *err)
{
    char name[32];
    int dir = -1;
    int rc = sealfs_dir_make(v->want->proofs_dir, err);

    if (rc == 0)
        rc = sealfs_dir_open(v->want->proofs_dir, &dir, err);
    if (rc < 0 || b->failed)
        return rc;
    (void)snprintf(name, sizeof name, "%lld", (long long)rank);
    rc = sealfs_write(dir, name, b->p, b->n, false, err);
    sealfs_close(dir);
    return rc;
}

/* ---- one folder ---- */
static int hash_file(const struct verifying *v, int fd, const struct checkpoint_file *f,
                     struct err *err)
{
    char hex[65];
    int rc = sealfs_hash(fd, f->bytes, 0, v->progress, hex, NULL, err);

    if (rc == 0 && strcmp(hex, f->sha256) != 0)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_ALTERED,
                         "%.250s/%.100s has not the SHA-256 of its manifest: somebody wrote to "
                         "it; take an older checkpoint",
                         v->path, f->name);
    if (rc == E_CORRUPT)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN,
                         "%.250s/%.100s became shorter while it was read", v->path, f->name);
    return rc;
}

/* What is on this machine, if it is right. *ret: what was read. */
static int check_file(struct verifying *v, int dir, const struct checkpoint_file *f,
                      const struct rank_proof *old, struct rank_proof *ret, struct err *err)
{
    int fd = -1;
    int rc = sealfs_open(dir, f->name, &fd, &ret->facts, err);

    if (rc < 0)
        return refuse_open(err, rc, v->path, f->name, CHECKPOINT_TORN, "take an older checkpoint");
    if (ret->facts.size < f->bytes)
        rc = err_field(err, E_CHECKPOINT, CHECKPOINT_TORN,
                       "%.250s/%.100s has %lld bytes, its manifest says %lld: take an older "
                       "checkpoint",
                       v->path, f->name, (long long)ret->facts.size, (long long)f->bytes);
    ret->read_ns = sealfs_now_ns();
    if (rc == 0 && old && proof_holds(old, f, &ret->facts))
        ret->read_ns = old->read_ns;
    else if (rc == 0)
        rc = hash_file(v, fd, f, err);
    sealfs_close(fd);
    return rc;
}

/* From the store: read back and found right by the time that it is here. */
static int fetch_file(struct verifying *v, int dir, const struct checkpoint_file *f,
                      struct rank_proof *ret, struct err *err)
{
    char name[CHECKPOINT_PATH_MAX + CHECKPOINT_NAME_MAX + 96];
    int fd = -1;

    (void)snprintf(name, sizeof name, "%s/%s", v->folder, f->name);
    int rc = store_fetch(v->store, name, dir, f, err);
    if (rc == 0)
        rc = sealfs_open(dir, f->name, &fd, &ret->facts, err);
    if (rc < 0)
        return rc;
    ret->read_ns = sealfs_now_ns();
    sealfs_close(fd);
    return 0;
}

static int verify_file(struct verifying *v, int dir, const struct checkpoint_file *f,
                       struct buf *told, struct err *err)
{
    struct rank_proof p = {.bytes = f->bytes}, old = {.bytes = -1};
    bool has_old = proof_next(v, f->name, &old);
    struct err why;
    int rc = check_file(v, dir, f, has_old ? &old : NULL, &p, &why);

    if (rc == E_CHECKPOINT && v->store && store_is_remote(v->store)) /* not here yet, or spoilt */
        rc = fetch_file(v, dir, f, &p, &why);
    if (rc < 0 && err)
        *err = why;
    memcpy(p.sha256, f->sha256, sizeof p.sha256);
    if (rc == 0 && told)
        proof_add(told, f->name, &p);
    return rc;
}

static int verify_files(struct verifying *v, int dir, const struct checkpoint_manifest *m,
                        int64_t rank, struct err *err)
{
    AUTO_BUF told;
    bool write = v->want && v->want->write_proofs && v->want->proofs_dir;

    buf_init(&told, PROOFS_MAX);
    for (size_t i = 0; i < m->n_files; i++) {
        int rc = verify_file(v, dir, &m->files[i], write ? &told : NULL, err);
        if (rc < 0)
            return rc;
    }
    return write ? proofs_write(v, rank, &told, err) : 0;
}

/* Reads and parses a folder's manifest; digest "" is not compared. */
int checkpoint_manifest_verify(const char *path, int dir, const char *digest, struct arena *a,
                               struct checkpoint_manifest *ret, struct err *err)
{
    AUTO_BUF text;
    struct err why;
    int fd = -1;
    int rc = sealfs_open(dir, CHECKPOINT_MANIFEST_FILE, &fd, NULL, err);

    buf_init(&text, CHECKPOINT_MANIFEST_MAX + (128u << 10));
    if (rc < 0)
        return refuse_open(err, rc, path, CHECKPOINT_MANIFEST_FILE, CHECKPOINT_TORN,
                           "the checkpoint was never finished; take an older one");
    rc = sealfs_read(fd, CHECKPOINT_MANIFEST_MAX, &text, &why);
    sealfs_close(fd);
    if (rc < 0 && rc != E_TOOLARGE)
        return err_set(err, rc, "%.250s: %.200s", path, why.text);
    rc = rc < 0 ? E_CHECKPOINT : checkpoint_manifest_parse(text.p, text.n, a, ret, &why);
    if (rc == E_CHECKPOINT)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN, "%.250s: %.200s", path, why.text);
    if (rc == 0 && *digest && strcmp(digest, ret->digest) != 0)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_ALTERED,
                         "%.250s/%s is not the one that was sealed (%.20s…, now %.20s…)", path,
                         CHECKPOINT_MANIFEST_FILE, digest, ret->digest);
    return rc < 0 ? err_set(err, rc, "%.250s: %.200s", path, why.text) : 0;
}

int checkpoint_verify_dir(const char *path, const char *digest, struct checkpoint_progress *p,
                          struct checkpoint_found *ret, struct err *err)
{
    static const struct checkpoint_want nothing = {.rank = -1};
    struct verifying v = {.want = &nothing, .progress = p, .path = path};
    struct checkpoint_manifest m;
    AUTO_ARENA a = arena_create(0);
    int dir = -1;
    int rc = sealfs_dir_open(path, &dir, err);

    if (rc < 0)
        return refuse_open(err, rc, path, "", CHECKPOINT_MISSING, "is the store mounted here?");
    rc = checkpoint_manifest_verify(path, dir, digest, a, &m, err);
    if (rc == 0)
        rc = verify_files(&v, dir, &m, 0, err);
    sealfs_close(dir);
    if (rc < 0)
        return rc;
    *ret = (struct checkpoint_found){.step = m.step, .bytes = m.bytes, .ranks = 1};
    str_copy(ret->dir, sizeof ret->dir, path);
    return 0;
}

/* ---- the cut ---- */
struct place {                        /* BASE/sealed/eN/cut-N.json */
    char base[CHECKPOINT_PATH_MAX];   /* BASE */
    char folder[CHECKPOINT_PATH_MAX]; /* sealed/eN */
    const char *name;                 /* sealed/eN/cut-N.json */
};

static int place_of(const struct checkpoint_want *w, struct place *ret, struct err *err)
{
    size_t n = strlen(w->path), head = 1; /* of what the base keeps in any case: / or s3://BUCKET */

    if (n >= sizeof ret->base || (w->path[0] != '/' && !checkpoint_store_is_remote(w->path)))
        return err_set(err, E_INVALID, "the checkpoint %.200s is no absolute path of a file",
                       w->path);
    if (checkpoint_store_is_remote(w->path))
        head = strlen("s3://") + strcspn(w->path + strlen("s3://"), "/") + 1;
    for (int up = 0; up < 3; up++)
        for (size_t at = n; at > head; at--)
            if (w->path[at - 1] == '/') {
                n = at - 1;
                break;
            }
    if (w->path[n] != '/' || n == 0)
        return err_set(err, E_INVALID, "the checkpoint %.200s is no cut of a store", w->path);
    (void)snprintf(ret->base, sizeof ret->base, "%.*s", (int)n, w->path);
    ret->name = w->path + n + 1;
    const char *slash = strrchr(ret->name, '/');
    (void)snprintf(ret->folder, sizeof ret->folder, "%.*s", slash ? (int)(slash - ret->name) : 0,
                   ret->name);
    return 0;
}

static int cut_get(struct store *store, const struct checkpoint_want *w, const struct place *at,
                   struct buf *text, int64_t *ret_written_ns, struct err *err)
{
    struct err why = {0};
    int rc = store_get(store, at->name, CHECKPOINT_CUT_MAX, text, ret_written_ns, &why);

    /* Not the checkpoint is missing, but the whole store: here, perhaps, and not elsewhere. */
    if (rc == E_NOTFOUND && !store_is_here(store))
        return err_field(
            err, E_NOTFOUND, CHECKPOINT_UNREACHABLE,
            "the checkpoint store of %.250s is not there on this machine: mount it here, "
            "or keep the workload to targets that have it",
            w->path);
    if (rc == E_NOTFOUND || rc == E_FORBIDDEN)
        return refuse_open(err, rc, w->path, "", CHECKPOINT_MISSING, "take an older checkpoint");
    if (rc == E_TOOLARGE)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN,
                         "%.250s cannot be read as a checkpoint: %.150s", w->path, why.text);
    if (rc < 0)
        return err_field(err, rc, why.field, "%.250s: %.200s", w->path, why.text);
    return 0;
}

static int cut_read(struct store *store, const struct checkpoint_want *w, const struct place *at,
                    struct arena *a, struct checkpoint_cut *ret, struct checkpoint_found *found,
                    struct err *err)
{
    char digest[CHECKPOINT_DIGEST_MAX];
    int64_t written_ns = 0;
    struct err why = {0};
    AUTO_BUF text;

    buf_init(&text, CHECKPOINT_CUT_MAX + (128u << 10));
    int rc = cut_get(store, w, at, &text, &written_ns, err);
    if (rc == 0)
        rc = sealfs_digest(text.p, text.n, digest, err);
    if (rc < 0)
        return rc;
    bool same = !*w->digest || strcmp(digest, w->digest) == 0;
    rc = checkpoint_cut_parse(text.p, text.n, a, ret, &why);
    if (rc < 0) /* with the right digest it is whole, and not of our making */
        return err_field(err, E_CHECKPOINT,
                         same && *w->digest ? CHECKPOINT_FOREIGN : CHECKPOINT_TORN,
                         "%.250s cannot be read as a checkpoint: %.150s", w->path, why.text);
    if (!same)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_ALTERED,
                         "%.250s is not the one that was recorded (%.20s…, now %.20s…)", w->path,
                         w->digest, digest);
    found->writtenAt = written_ns / 1000000;
    str_copy(found->path, sizeof found->path, w->path);
    memcpy(found->digest, digest, sizeof digest);
    return 0;
}

static int64_t saved_by(const struct checkpoint_cut *c)
{
    return c->workers ? c->workers : (int64_t)c->n_ranks;
}

static int cut_is_ours(const struct checkpoint_want *w, const struct checkpoint_cut *c,
                       struct err *err)
{
    if (*w->workload && strcmp(w->workload, c->workload) != 0)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_FOREIGN,
                         "%.250s belongs to workload %.64s, not to %.64s", w->path, c->workload,
                         w->workload);
    if (w->layout && (w->layout == LAYOUT_SHARED) != (c->workers != 0))
        return err_field(err, E_CHECKPOINT, CHECKPOINT_OTHER_RANKS,
                         "%.250s was saved %s: resume it so (spec.checkpoint.layout, hanse run "
                         "--shared)",
                         w->path,
                         c->workers ? "into one folder of all ranks" : "by each rank in its own");
    if (w->world && w->world != saved_by(c))
        return err_field(
            err, E_CHECKPOINT, CHECKPOINT_OTHER_RANKS,
            "%.250s was saved by %lld ranks, there are %lld now: start as many, or say "
            "that the program can resume with another number "
            "(spec.checkpoint.reshard, hanse run --reshard)",
            w->path, (long long)saved_by(c), (long long)w->world);
    if (w->rank >= (int64_t)c->n_ranks)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_FOREIGN, "%.250s holds no rank %lld",
                         w->path, (long long)w->rank);
    return 0;
}

static int any_entry(const char *name, void *arg)
{
    (void)name;
    *(bool *)arg = true;
    return 1;
}

/* The manifest, out of a store that is elsewhere, is put where the files will be. */
static int bring_manifest(struct store *store, const char *folder, const char *path,
                          struct err *err)
{
    char name[CHECKPOINT_PATH_MAX + 96];
    bool any = false;
    AUTO_BUF text;
    int dir = -1;

    buf_init(&text, CHECKPOINT_MANIFEST_MAX + (128u << 10));
    (void)snprintf(name, sizeof name, "%s/" CHECKPOINT_MANIFEST_FILE, folder);
    int rc = store_get(store, name, CHECKPOINT_MANIFEST_MAX, &text, NULL, err);
    if (rc == E_TOOLARGE)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN, "%.250s/%.100s is too large",
                         store_base(store), name);
    if (rc == E_NOTFOUND) {
        rc = store_list(store, folder, any_entry, &any, err);
        return rc < 0 ? rc
                      : refuse_open(err, E_NOTFOUND, store_base(store), name,
                                    any ? CHECKPOINT_TORN : CHECKPOINT_MISSING,
                                    "take an older checkpoint");
    }
    if (rc == 0)
        rc = sealfs_dir_make(path, err);
    if (rc == 0)
        rc = sealfs_dir_open(path, &dir, err);
    if (rc < 0)
        return rc;
    rc = sealfs_write(dir, CHECKPOINT_MANIFEST_FILE, text.p, text.n, false, err);
    sealfs_close(dir);
    return rc;
}

static int verify_rank(struct store *store, const struct checkpoint_want *w, const struct place *at,
                       struct checkpoint_progress *p, const struct checkpoint_rank *r,
                       char ret_dir[CHECKPOINT_PATH_MAX + 64], struct err *err)
{
    struct verifying v = {.want = w, .progress = p, .store = store, .path = ret_dir};
    char folder[CHECKPOINT_PATH_MAX + 48];
    struct checkpoint_manifest m;
    AUTO_ARENA a = arena_create(0);
    int dir = -1, rc = 0;

    (void)snprintf(folder, sizeof folder, "%s%s%lld/s%lld", at->folder, *at->folder ? "/" : "",
                   (long long)r->rank, (long long)r->step);
    v.folder = folder;
    if ((size_t)snprintf(ret_dir, CHECKPOINT_PATH_MAX + 64, "%s/%s", store_local(store), folder) >=
        CHECKPOINT_PATH_MAX + 64)
        return err_set(err, E_INVALID, "the path of %.300s is too long here", w->path);
    if (store_is_remote(store))
        rc = bring_manifest(store, folder, ret_dir, err);
    if (rc < 0)
        return rc;
    rc = sealfs_dir_open(ret_dir, &dir, err);
    if (rc < 0)
        return refuse_open(err, rc, ret_dir, "", CHECKPOINT_MISSING, "take an older checkpoint");
    buf_init(&v.proofs, PROOFS_MAX + (128u << 10));
    proofs_read(&v, r->rank);
    rc = checkpoint_manifest_verify(ret_dir, dir, r->manifest, a, &m, err);
    if (rc == 0 && (m.step != r->step || m.bytes != r->bytes))
        rc = err_field(err, E_CHECKPOINT, CHECKPOINT_ALTERED, "%.250s: cut and manifest disagree",
                       ret_dir);
    if (rc == 0)
        rc = verify_files(&v, dir, &m, r->rank, err);
    buf_fini(&v.proofs);
    sealfs_close(dir);
    return rc;
}

static int verify_cut(struct store *store, const struct checkpoint_want *w, const struct place *at,
                      struct checkpoint_progress *p, struct checkpoint_found *ret, struct err *err)
{
    struct checkpoint_found found = {0};
    struct checkpoint_cut c;
    AUTO_ARENA a = arena_create(0);
    char dir[CHECKPOINT_PATH_MAX + 64];
    int rc = cut_read(store, w, at, a, &c, &found, err);

    if (rc == 0)
        rc = cut_is_ours(w, &c, err);
    if (rc == 0 && !w->cut_only && !*store_local(store))
        rc = err_set(err, E_INVALID, "%.200s needs a scratch folder on this machine", w->path);
    if (rc == 0 && w->view)
        rc = checkpoint_view_clear(w->view, err);
    for (size_t i = 0; rc == 0 && i < c.n_ranks && !w->cut_only; i++) {
        if (w->rank >= 0 && w->rank != c.ranks[i].rank)
            continue;
        rc = verify_rank(store, w, at, p, &c.ranks[i], dir, err);
        if (rc == 0 && w->view)
            rc = checkpoint_views_add(w->view, c.ranks[i].rank, dir, err);
    }
    if (rc < 0)
        return rc;
    found.epoch = c.epoch;
    found.step = c.step;
    found.bytes = c.bytes;
    found.ranks = saved_by(&c);
    if (w->rank >= 0 && !w->cut_only)
        memcpy(found.dir, dir, sizeof dir);
    else if (w->view)
        str_copy(found.dir, sizeof found.dir, w->view);
    *ret = found;
    return 0;
}

int checkpoint_verify(const struct checkpoint_want *w, struct checkpoint_progress *p,
                      struct checkpoint_found *ret, struct err *err)
{
    struct checkpoint_store which = w->at;
    struct store *store = NULL;
    struct place at;
    int rc = place_of(w, &at, err);

    which.base = at.base;
    if (rc == 0)
        rc = store_open(&which, p, &store, err);
    if (rc < 0)
        return rc;
    rc = verify_cut(store, w, &at, p, ret, err);
    (void)store_close(store);
    return rc;
}
