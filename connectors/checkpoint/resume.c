/* Verifying: before anybody resumes, every byte that the cut answers for is read and compared: the
 * cut against the digest that the log has, each rank's manifest against the cut, each file against
 * its manifest. Sizes and manifests are always compared; a file is not read again when a proof says
 * that this very agent has read it, and that nobody has touched it since. */
#include "connectors/checkpoint/checkpoint_internal.h"
#include "api/schema/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct verifying {
    const struct checkpoint_want *want;
    struct store *store; /* NULL: a folder by itself */
    const char *folder;  /* in the store */
    struct checkpoint_progress *progress;
    const char *path; /* of the folder, for sentences */
    int dir;          /* the same */
    bool alone;       /* others verify other ranks meanwhile */
};
enum { BY_STAGE, BY_SEALER, PROVERS };
struct verified {                       /* one file */
    struct file_proof earlier[PROVERS]; /* who read it before */
    struct file_proof now;
    bool fetch; /* it is not here, or spoilt: the store has it */
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

/* ---- what has been read before ---- */
static void earlier_take(const char *line, const struct checkpoint_manifest *m,
                         struct verified *files, int prover)
{
    for (size_t i = 0; line && i < m->n_files; i++)
        (void)proofs_next(&line, m->files[i].name, &files[i].earlier[prover]);
}

static void earlier_read(const struct verifying *v, const struct checkpoint_rank *r,
                         const struct checkpoint_manifest *m, struct verified *files)
{
    char folder[CHECKPOINT_PATH_MAX + 64], name[48];
    AUTO_BUF stage;
    AUTO_BUF sealer;

    buf_init(&stage, PROOFS_MAX + (128u << 10));
    buf_init(&sealer, PROOFS_MAX + (128u << 10));
    (void)snprintf(name, sizeof name, "%lld", (long long)r->rank);
    if (v->want->proofs_dir)
        earlier_take(proofs_read(v->want->proofs_dir, name, r->manifest, &stage), m, files,
                     BY_STAGE);
    if (!v->want->by_sealer || store_is_remote(v->store))
        return;
    const char *slash = strrchr(v->path, '/');
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(slash - v->path), v->path);
    checkpoint_proofs_name(r->step, name);
    earlier_take(proofs_read(folder, name, r->manifest, &sealer), m, files, BY_SEALER);
}

static int proofs_leave(const struct verifying *v, const struct checkpoint_rank *r,
                        const struct checkpoint_manifest *m, const struct verified *files,
                        struct err *err)
{
    char name[32];
    AUTO_BUF text;

    buf_init(&text, PROOFS_MAX);
    proofs_begin(r->manifest, &text);
    for (size_t i = 0; i < m->n_files; i++)
        proofs_add(&text, m->files[i].name, &files[i].now);
    (void)snprintf(name, sizeof name, "%lld", (long long)r->rank);
    return proofs_write(v->want->proofs_dir, name, &text, err);
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

/* What is on this machine, if it is right. x->now: what was read. */
static int check_file(const struct verifying *v, const struct checkpoint_file *f,
                      struct verified *x, struct err *err)
{
    struct file_proof *now = &x->now;
    int fd = -1;
    int rc = sealfs_open(v->dir, f->name, &fd, &now->facts, err);

    if (rc < 0)
        return refuse_open(err, rc, v->path, f->name, CHECKPOINT_TORN, "take an older checkpoint");
    if (now->facts.size < f->bytes)
        rc = err_field(err, E_CHECKPOINT, CHECKPOINT_TORN,
                       "%.250s/%.100s has %lld bytes, its manifest says %lld: take an older "
                       "checkpoint",
                       v->path, f->name, (long long)now->facts.size, (long long)f->bytes);
    now->read_ns = 0;
    for (int i = 0; i < PROVERS && !now->read_ns; i++)
        if (proof_holds(&x->earlier[i], f, &now->facts))
            now->read_ns = x->earlier[i].read_ns;
    if (rc == 0 && !now->read_ns) {
        now->read_ns = sealfs_now_ns();
        rc = hash_file(v, fd, f, err);
    }
    sealfs_close(fd);
    return rc;
}

/* From the store: read back and found right by the time that it is here. */
static int fetch_file(const struct verifying *v, const struct checkpoint_file *f,
                      struct verified *x, struct err *err)
{
    char name[CHECKPOINT_PATH_MAX + CHECKPOINT_NAME_MAX + 96];
    int fd = -1;

    (void)snprintf(name, sizeof name, "%s/%s", v->folder, f->name);
    int rc = store_fetch(v->store, name, v->dir, f, err);
    if (rc == 0)
        rc = sealfs_open(v->dir, f->name, &fd, &x->now.facts, err);
    if (rc < 0)
        return rc;
    x->now.read_ns = sealfs_now_ns();
    sealfs_close(fd);
    return 0;
}

struct verifying_files {
    const struct verifying *v;
    const struct checkpoint_manifest *m;
    struct verified *files;
};

static int verify_file(size_t i, void *arg, struct err *err)
{
    struct verifying_files *x = arg;
    const struct checkpoint_file *f = &x->m->files[i];
    struct verified *one = &x->files[i];
    int rc = check_file(x->v, f, one, err);

    one->now.bytes = f->bytes;
    memcpy(one->now.sha256, f->sha256, sizeof one->now.sha256);
    one->fetch = rc == E_CHECKPOINT && x->v->store && store_is_remote(x->v->store);
    return one->fetch ? 0 : rc;
}

/* r: NULL for a folder by itself. */
static int verify_files(const struct verifying *v, const struct checkpoint_manifest *m,
                        const struct checkpoint_rank *r, struct err *err)
{
    AUTO_ARENA a = arena_create(0);
    struct verified *files = arena_array(a, struct verified, m->n_files);
    struct verifying_files x = {.v = v, .m = m, .files = files};

    if (r)
        earlier_read(v, r, m, files);
    int rc = sealfs_crew(m->n_files, v->alone ? 0 : m->bytes, verify_file, &x, err);
    for (size_t i = 0; rc == 0 && i < m->n_files; i++) /* the store serves one at a time */
        if (files[i].fetch)
            rc = fetch_file(v, &m->files[i], &files[i], err);
    if (rc < 0 || !r || !v->want->write_proofs || !v->want->proofs_dir)
        return rc;
    return proofs_leave(v, r, m, files, err);
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
    struct verifying v = {.want = &nothing, .progress = p, .path = path, .dir = -1};
    struct checkpoint_manifest m;
    AUTO_ARENA a = arena_create(0);
    int rc = sealfs_dir_open(path, &v.dir, err);

    if (rc < 0)
        return refuse_open(err, rc, path, "", CHECKPOINT_MISSING, "is the store mounted here?");
    rc = checkpoint_manifest_verify(path, v.dir, digest, a, &m, err);
    if (rc == 0)
        rc = verify_files(&v, &m, NULL, err);
    sealfs_close(v.dir);
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

struct verifying_cut {
    struct store *store;
    const struct checkpoint_want *want;
    const struct place *at;
    struct checkpoint_progress *progress;
    const struct checkpoint_rank *ranks;
    bool alone; /* several ranks at once */
};

/* "sealed/eE/RANK/sSTEP", and where that is on this machine. */
static int rank_folder(const struct verifying_cut *x, const struct checkpoint_rank *r,
                       char ret_folder[CHECKPOINT_PATH_MAX + 48],
                       char ret_dir[CHECKPOINT_PATH_MAX + 64], struct err *err)
{
    (void)snprintf(ret_folder, CHECKPOINT_PATH_MAX + 48, "%s%s%lld/s%lld", x->at->folder,
                   *x->at->folder ? "/" : "", (long long)r->rank, (long long)r->step);
    if ((size_t)snprintf(ret_dir, CHECKPOINT_PATH_MAX + 64, "%s/%s", store_local(x->store),
                         ret_folder) >= CHECKPOINT_PATH_MAX + 64)
        return err_set(err, E_INVALID, "the path of %.300s is too long here", x->want->path);
    return 0;
}

static int verify_rank(size_t i, void *arg, struct err *err)
{
    const struct verifying_cut *x = arg;
    const struct checkpoint_rank *r = &x->ranks[i];
    char folder[CHECKPOINT_PATH_MAX + 48], path[CHECKPOINT_PATH_MAX + 64];
    struct verifying v = {.want = x->want,
                          .progress = x->progress,
                          .store = x->store,
                          .path = path,
                          .folder = folder,
                          .dir = -1,
                          .alone = x->alone};
    struct checkpoint_manifest m;
    AUTO_ARENA a = arena_create(0);
    int rc = rank_folder(x, r, folder, path, err);

    if (rc == 0 && store_is_remote(x->store))
        rc = bring_manifest(x->store, folder, path, err);
    if (rc < 0)
        return rc;
    rc = sealfs_dir_open(path, &v.dir, err);
    if (rc < 0)
        return refuse_open(err, rc, path, "", CHECKPOINT_MISSING, "take an older checkpoint");
    rc = checkpoint_manifest_verify(path, v.dir, r->manifest, a, &m, err);
    if (rc == 0 && (m.step != r->step || m.bytes != r->bytes))
        rc = err_field(err, E_CHECKPOINT, CHECKPOINT_ALTERED, "%.250s: cut and manifest disagree",
                       path);
    if (rc == 0)
        rc = verify_files(&v, &m, r, err);
    sealfs_close(v.dir);
    return rc;
}

/* Of a folder of this machine several ranks are verified at once; a store serves one at a time. */
static int verify_ranks(struct store *store, const struct checkpoint_want *w,
                        const struct place *at, struct checkpoint_progress *p,
                        const struct checkpoint_cut *c, char ret_dir[CHECKPOINT_PATH_MAX + 64],
                        struct err *err)
{
    struct verifying_cut x = {
        .store = store, .want = w, .at = at, .progress = p, .ranks = c->ranks};
    char folder[CHECKPOINT_PATH_MAX + 48];
    size_t n = w->rank >= 0 ? 1 : c->n_ranks;

    if (w->rank >= 0)
        x.ranks = &c->ranks[w->rank];
    x.alone = n > 1 && !store_is_remote(store);
    int rc = sealfs_crew(n, x.alone ? c->bytes : 0, verify_rank, &x, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = rank_folder(&x, &x.ranks[i], folder, ret_dir, err);
        if (rc == 0 && w->view)
            rc = checkpoint_views_add(w->view, x.ranks[i].rank, ret_dir, err);
    }
    return rc;
}

static int verify_cut(struct store *store, const struct checkpoint_want *w, const struct place *at,
                      struct checkpoint_progress *p, struct checkpoint_found *ret, struct err *err)
{
    struct checkpoint_found found = {0};
    struct checkpoint_cut c;
    AUTO_ARENA a = arena_create(0);
    char dir[CHECKPOINT_PATH_MAX + 64] = "";
    int rc = cut_read(store, w, at, a, &c, &found, err);

    if (rc == 0)
        rc = cut_is_ours(w, &c, err);
    if (rc == 0 && !w->cut_only && !*store_local(store))
        rc = err_set(err, E_INVALID, "%.200s needs a scratch folder on this machine", w->path);
    if (rc == 0 && w->view)
        rc = checkpoint_view_clear(w->view, err);
    if (rc == 0 && !w->cut_only)
        rc = verify_ranks(store, w, at, p, &c, dir, err);
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
