/* Sealing: takes over, once, what a rank's manifest says. A sealed step is a folder of its own with
 * the manifest's very bytes and the files that it names, linked (so that a program which removes
 * its old files loses nothing), verified and on disk. It appears under its name whole or not at
 * all.
 *
 *   BASE/e2/0/manifest.json, shard-0 …  ──►  BASE/sealed/e2/0/.s400.part/ ──►
 * BASE/sealed/e2/0/s400/
 *
 * This file must never seal what it has not read to the last byte named, unless it is the same
 * file, unwritten since, that it has read for the step before. */
#include "api/base/failpoint.h"
#include "connectors/checkpoint/checkpoint_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READ_AGAIN 8 /* a program may save faster than we read */

struct known { /* a file of the last sealed manifest, as it was read */
    const char *name;
    struct file_facts facts;
    int64_t bytes, read_ns, begun_ns; /* begun_ns: file_begun, of one that was read */
    char sha256[65];
    bool overwritten;        /* its program writes over it in place */
    struct file_proof proof; /* of what lies sealed */
};
struct checkpoint_sealer {
    struct store *store;
    char dir[CHECKPOINT_PATH_MAX + 64], sealed_dir[CHECKPOINT_PATH_MAX + 64];
    char folder[64];                 /* of the sealed steps, in the store */
    struct checkpoint_sealed sealed; /* the newest on this machine */
    struct checkpoint_sealed newest; /* the newest in the store */
    char before[128];                /* its folder there, or of what an epoch before left; "" */
    struct file_facts manifest;      /* the last one looked at */
    struct err refused;              /* what was wrong with it; code 0 = nothing */
    int64_t last_manifest_ns;        /* mtime of the one that was sealed last */
    struct arena *arena;             /* of known */
    struct known *known;             /* sorted by name */
    size_t n_known;
};

/* ---- what is there ---- */
struct listing {
    int dir;
    int64_t newest;
    int rc;
    struct err *err;
};

static int list_one(const char *name, void *arg)
{
    struct listing *l = arg;
    int64_t step = sealfs_number(name, "s", "");

    if (name[0] == '.') /* half done when its sealer died */
        l->rc = sealfs_remove(l->dir, name, l->err);
    else if (step > l->newest)
        l->newest = step;
    return l->rc < 0;
}

static int sealed_before(struct checkpoint_sealer *s, struct err *err)
{
    struct checkpoint_manifest m;
    struct file_facts facts;
    char path[sizeof s->sealed_dir + 32];
    AUTO_ARENA a = arena_create(0);
    AUTO_BUF text;
    struct listing l = {.newest = -1, .err = err};
    int rc = sealfs_dir_open(s->sealed_dir, &l.dir, err);

    buf_init(&text, CHECKPOINT_MANIFEST_MAX + (128u << 10));
    if (rc < 0)
        return rc;
    rc = sealfs_list(l.dir, list_one, &l, err);
    sealfs_close(l.dir);
    if (rc < 0 || l.rc < 0 || l.newest < 0)
        return rc < 0 ? rc : l.rc;
    (void)snprintf(path, sizeof path, "%s/s%lld", s->sealed_dir, (long long)l.newest);
    rc = sealfs_dir_open(path, &l.dir, err);
    if (rc < 0)
        return rc;
    rc = manifest_load(l.dir, a, &facts, &text, &m, err);
    sealfs_close(l.dir);
    if (rc < 0)
        return err_prefix(err, "%.300s", path);
    s->sealed = (struct checkpoint_sealed){.present = true,
                                           .step = m.step,
                                           .bytes = m.bytes,
                                           .writeTime = 1,
                                           .writtenAt = facts.mtime_ns / 1000000};
    memcpy(s->sealed.manifest, m.digest, sizeof m.digest);
    if (!store_is_remote(s->store)) /* else: once it is known to be there */
        s->newest = s->sealed;
    return 0;
}

/* The folders, here and in the store: before anything is written for it, it is known that it can be
 * kept. */
static int sealer_folders(struct checkpoint_sealer *s, int64_t epoch, int64_t rank, struct err *err)
{
    char folder[64];
    int rc;

    if (!*store_local(s->store))
        return err_set(err, E_INVALID, "%.200s needs a scratch folder on this machine",
                       store_base(s->store));
    (void)snprintf(folder, sizeof folder, "e%lld/%lld", (long long)epoch, (long long)rank);
    (void)snprintf(s->folder, sizeof s->folder, "sealed/%.50s", folder);
    (void)snprintf(s->dir, sizeof s->dir, "%s/%s", store_local(s->store), folder);
    (void)snprintf(s->sealed_dir, sizeof s->sealed_dir, "%.*s/%s", CHECKPOINT_PATH_MAX,
                   store_local(s->store), s->folder);
    rc = sealfs_dir_make(s->dir, err);
    if (rc == 0)
        rc = sealfs_dir_make(s->sealed_dir, err);
    return rc < 0 ? rc : store_make(s->store, folder, err);
}

int checkpoint_sealer_create(const struct checkpoint_store *at, int64_t epoch, int64_t rank,
                             struct checkpoint_progress *p, struct checkpoint_sealer **ret,
                             struct err *err)
{
    struct checkpoint_sealer *s;
    int rc;

    if (epoch < 0 || rank < 0 || rank >= CHECKPOINT_RANKS_MAX)
        return err_set(err, E_INVALID, "epoch or rank is out of range");
    s = mem_new(struct checkpoint_sealer);
    s->arena = arena_create(0);
    rc = store_open(at, p, &s->store, err);
    if (rc == 0)
        rc = sealer_folders(s, epoch, rank, err);
    if (rc == 0)
        rc = sealed_before(s, err);
    if (rc < 0) {
        (void)checkpoint_sealer_destroy(s);
        return rc;
    }
    if (store_is_remote(s->store) && /* it spares work, no more */
        checkpoint_published_before(at, epoch, rank, s->before, sizeof s->before, NULL) < 0)
        s->before[0] = '\0';
    store_progress(s->store, NULL);
    *ret = s;
    return 0;
}

struct checkpoint_sealer *checkpoint_sealer_destroy(struct checkpoint_sealer *s)
{
    if (!s)
        return NULL;
    (void)store_close(s->store);
    (void)arena_destroy(s->arena);
    mem_free(s);
    return NULL;
}

const char *checkpoint_sealer_dir(const struct checkpoint_sealer *s)
{
    return s->dir;
}

const struct checkpoint_sealed *checkpoint_sealer_newest(const struct checkpoint_sealer *s)
{
    return &s->newest;
}

/* ---- one seal ---- */
struct seal {
    struct checkpoint_sealer *sealer;
    struct checkpoint_progress *progress;
    int from, part; /* the program's folder, and the one that becomes the sealed step */
    struct known *files;
    bool over;        /* the program is gone */
    int64_t begun_ns; /* when the first file of this checkpoint was begun */
};

static int known_compare(const void *key, const void *known)
{
    return strcmp(key, ((const struct known *)known)->name);
}

/* What this name was in the step before; NULL = nothing, or nothing is known of that step. */
static const struct known *known_find(const struct checkpoint_sealer *s, const char *name)
{
    return s->n_known ? bsearch(name, s->known, s->n_known, sizeof *s->known, known_compare) : NULL;
}

static bool read_before(const struct known *k, const struct checkpoint_file *f,
                        const struct file_facts *facts)
{
    return k && k->bytes == f->bytes && strcmp(k->sha256, f->sha256) == 0 &&
           file_facts_equal(&k->facts, facts) && file_facts_settled(&k->facts, k->read_ns);
}

/* When the writing of this file for this checkpoint began, as far as the file system tells: its
 * birth, or for one that was there before (a log that grows) its last write. */
static int64_t file_begun(const struct checkpoint_sealer *s, const struct file_facts *f)
{
    return f->birth_ns > s->last_manifest_ns && f->birth_ns < f->mtime_ns ? f->birth_ns
                                                                          : f->mtime_ns;
}

/* head: of what was sealed of it in the step before; NULL = nothing. */
static int hash_matches(int fd, const struct checkpoint_file *f, const struct known *before,
                        bool *ret_head_same, struct checkpoint_progress *p, struct err *err)
{
    char hex[65], head[65];
    bool look = before && before->bytes > 0 && before->bytes <= f->bytes;
    int rc = sealfs_hash(fd, f->bytes, look ? before->bytes : 0, p, hex, look ? head : NULL, err);

    if (rc == E_CORRUPT)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN,
                         "%.200s is shorter than the %lld bytes that the manifest says", f->name,
                         (long long)f->bytes);
    if (rc == 0 && strcmp(hex, f->sha256) != 0)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_ALTERED,
                         "%.200s has not the SHA-256 that the manifest says", f->name);
    if (rc == 0 && ret_head_same)
        *ret_head_same = look && strcmp(head, before->sha256) == 0;
    return rc;
}

static bool is_same_file(const struct known *before, const struct known *k)
{
    return before && before->facts.device == k->facts.device &&
           before->facts.inode == k->facts.inode;
}

/* Verifies it where it lies, unless a copy has to be read anyway. *ret_copy: a link would not be
 * safe. *ret_read: it was read. */
static int seal_read(struct seal *x, const struct checkpoint_file *f, struct known *k, int fd,
                     bool *ret_copy, bool *ret_read, struct err *err)
{
    const struct known *before = known_find(x->sealer, f->name);
    bool same_file = is_same_file(before, k), head_same = false;

    *ret_copy = *ret_read = false;
    if (read_before(before, f, &k->facts)) {
        k->read_ns = before->read_ns;
        k->overwritten = before->overwritten;
        return 0;
    }
    k->begun_ns = file_begun(x->sealer, &k->facts);
    k->read_ns = sealfs_now_ns();
    *ret_copy = !x->over && (x->sealer->n_known == 0 || (same_file && before->overwritten));
    if (*ret_copy)
        return 0;
    *ret_read = true;
    int rc = hash_matches(fd, f, same_file ? before : NULL, &head_same, x->progress, err);
    k->overwritten = same_file && !head_same;
    *ret_copy = !x->over && k->overwritten;
    return rc;
}

/* What lies sealed was read: the copy, or the program's own file. That of a program which still
 * runs is not proved: what it has mapped it may change, and no time of the file tells. */
static void seal_prove(struct seal *x, struct known *k, int fd, bool linked)
{
    struct file_proof p = {.bytes = k->bytes, .read_ns = linked ? k->read_ns : sealfs_now_ns()};

    memcpy(p.sha256, k->sha256, sizeof p.sha256);
    if ((linked && !x->over) || sealfs_facts(fd, &p.facts, NULL) < 0 ||
        (linked && !file_facts_equal(&p.facts, &k->facts)))
        return;
    k->proof = p;
}

/* It may have changed until it was copied; then that is what the copy has. */
static int seal_copy_read(struct seal *x, const struct checkpoint_file *f, struct known *k, int fd,
                          struct err *err)
{
    const struct known *before = known_find(x->sealer, f->name);
    bool same_file = is_same_file(before, k), head_same = false;

    seal_prove(x, k, fd, false);
    int rc = hash_matches(fd, f, same_file ? before : NULL, &head_same, x->progress, err);
    k->overwritten = same_file && !head_same;
    return rc;
}

static int seal_take(struct seal *x, const struct checkpoint_file *f, struct known *k, int fd,
                     struct err *err)
{
    bool want_copy, was_read;
    int copy = -1;
    int rc = seal_read(x, f, k, fd, &want_copy, &was_read, err);

    if (rc == 0 && !want_copy)
        rc = sealfs_sync(fd, err);
    if (rc < 0)
        return rc;
    rc = sealfs_take(fd, f->bytes, want_copy, x->part, f->name, &copy, err);
    if (rc == E_CORRUPT)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN,
                         "%.200s is shorter than the %lld bytes that the manifest says", f->name,
                         (long long)f->bytes);
    if (rc == 0 && copy >= 0)
        rc = seal_copy_read(x, f, k, copy, err);
    else if (rc == 0 && was_read)
        seal_prove(x, k, fd, true);
    sealfs_close(copy);
    return rc;
}

static int seal_file(struct seal *x, const struct checkpoint_file *f, struct known *k,
                     struct err *err)
{
    int fd = -1;
    int rc = sealfs_open(x->from, f->name, &fd, &k->facts, err);

    if (rc == E_FORBIDDEN)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_ALTERED,
                         "%.200s is no regular file, or leads through a link", f->name);
    if (rc < 0)
        return rc;
    k->name = f->name;
    k->bytes = f->bytes;
    memcpy(k->sha256, f->sha256, sizeof k->sha256);
    memcpy(k->proof.sha256, f->sha256, sizeof k->proof.sha256);
    sealfs_sync_begin(fd);
    if (k->facts.size < f->bytes)
        rc = err_field(err, E_CHECKPOINT, CHECKPOINT_TORN,
                       "%.200s has %lld bytes, the manifest says %lld", f->name,
                       (long long)k->facts.size, (long long)f->bytes);
    if (rc == 0)
        rc = seal_take(x, f, k, fd, err);
    sealfs_close(fd);
    return rc;
}

struct sealing {
    struct seal *seal;
    const struct checkpoint_manifest *m;
};

static int seal_one(size_t i, void *arg, struct err *err)
{
    struct sealing *s = arg;

    return seal_file(s->seal, &s->m->files[i], &s->seal->files[i], err);
}

static int seal_into(struct seal *x, const struct checkpoint_manifest *m, const struct buf *text,
                     struct err *err)
{
    struct sealing s = {.seal = x, .m = m};
    int rc = sealfs_crew(m->n_files, m->bytes, seal_one, &s, err);

    for (size_t i = 0; rc == 0 && i < m->n_files; i++) {
        int64_t begun = x->files[i].begun_ns;
        if (begun && (!x->begun_ns || begun < x->begun_ns))
            x->begun_ns = begun;
    }
    if (rc == 0)
        rc = sealfs_write(x->part, CHECKPOINT_MANIFEST_FILE, text->p, text->n, true, err);
    return rc < 0 ? rc : sealfs_tree_sync(x->part, err);
}

static int seal_step(struct seal *x, const struct checkpoint_manifest *m, const struct buf *text,
                     struct err *err)
{
    char part[48], name[48], path[sizeof x->sealer->sealed_dir + 64];
    int dir = -1;
    int rc = sealfs_dir_open(x->sealer->sealed_dir, &dir, err);

    if (rc < 0)
        return rc;
    (void)snprintf(name, sizeof name, "s%lld", (long long)m->step);
    (void)snprintf(part, sizeof part, ".s%lld.part", (long long)m->step);
    (void)snprintf(path, sizeof path, "%s/%s", x->sealer->sealed_dir, part);
    rc = sealfs_remove(dir, part, err);
    if (rc == 0)
        rc = sealfs_dir_make(path, err);
    if (rc == 0)
        rc = sealfs_dir_open(path, &x->part, err);
    if (rc == 0) {
        rc = seal_into(x, m, text, err);
        sealfs_close(x->part);
    }
    FAILPOINT("shim.seal.before");
    if (rc == 0)
        rc = sealfs_rename(dir, part, name, err);
    FAILPOINT("shim.seal.after");
    if (rc < 0) {
        struct err again;
        if (sealfs_remove(dir, part, &again) < 0)
            (void)err_prefix(err, "its rest could not be removed");
    }
    sealfs_close(dir);
    return rc;
}

void checkpoint_proofs_name(int64_t step, char ret[48])
{
    (void)snprintf(ret, 48, "s%lld" CHECKPOINT_PROOFS_SUFFIX, (long long)step);
}

/* For whoever resumes from it on this machine; beside the step, which is only the program's. It
 * spares work and no more: that it could not be written is nobody's concern. */
static void seal_proofs(const struct seal *x, const struct checkpoint_manifest *m)
{
    char name[48];
    struct err why;
    AUTO_BUF text;

    buf_init(&text, PROOFS_MAX);
    proofs_begin(m->digest, &text);
    for (size_t i = 0; i < m->n_files; i++)
        proofs_add(&text, m->files[i].name, &x->files[i].proof);
    checkpoint_proofs_name(m->step, name);
    (void)!proofs_write(x->sealer->sealed_dir, name, &text, &why);
}

/* The oldest file that this checkpoint wrote until its manifest was there. */
static int64_t write_ms(const struct seal *x, const struct file_facts *manifest)
{
    int64_t ms = x->begun_ns ? (manifest->mtime_ns - x->begun_ns) / 1000000 : 0;

    return ms < 1 ? 1 : ms;
}

static int seal_manifest(struct checkpoint_sealer *s, int from, bool over,
                         struct checkpoint_progress *p, struct arena *a, struct err *err)
{
    struct checkpoint_manifest m;
    struct file_facts facts;
    struct seal x = {.sealer = s, .progress = p, .from = from, .over = over};
    AUTO_BUF text;

    buf_init(&text, CHECKPOINT_MANIFEST_MAX + (128u << 10));
    int rc = manifest_load(from, a, &facts, &text, &m, err);
    if (rc < 0)
        return rc;
    if (s->sealed.present && strcmp(m.digest, s->sealed.manifest) == 0)
        return 0;
    if (s->sealed.present && m.step <= s->sealed.step)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN,
                         "step %lld after step %lld: the step of a manifest must grow",
                         (long long)m.step, (long long)s->sealed.step);
    x.files = arena_array(a, struct known, m.n_files);
    rc = seal_step(&x, &m, &text, err);
    if (rc < 0)
        return rc;
    if (!store_is_remote(s->store))
        seal_proofs(&x, &m);
    s->sealed = (struct checkpoint_sealed){.present = true,
                                           .step = m.step,
                                           .bytes = m.bytes,
                                           .writeTime = write_ms(&x, &facts),
                                           .writtenAt = facts.mtime_ns / 1000000};
    memcpy(s->sealed.manifest, m.digest, sizeof m.digest);
    s->last_manifest_ns = facts.mtime_ns;
    s->known = x.files;
    s->n_known = m.n_files;
    return 1;
}

/* What the manifest is now; an absent one is all zero. */
static int manifest_facts(int dir, struct file_facts *ret, struct err *err)
{
    int fd = -1;
    int rc = sealfs_open(dir, CHECKPOINT_MANIFEST_FILE, &fd, ret, err);

    if (rc == E_NOTFOUND) {
        *ret = (struct file_facts){0};
        return 0;
    }
    if (rc < 0)
        return rc;
    sealfs_close(fd);
    return 0;
}

/* A named file may be gone because the program has saved again: then the manifest is another. */
static int look_again(struct checkpoint_sealer *s, int dir, bool over,
                      struct checkpoint_progress *p, struct err *err)
{
    int rc = E_NOTFOUND;

    for (int i = 0; i < READ_AGAIN; i++) {
        struct arena *a = arena_create(0);
        struct file_facts before = s->manifest;
        rc = seal_manifest(s, dir, over, p, a, err);
        if (rc == 1) { /* the arena holds what is known now */
            (void)arena_destroy(s->arena);
            s->arena = a;
            return 0;
        }
        (void)arena_destroy(a);
        struct err why;
        if (rc == 0 || rc == E_CANCELLED || manifest_facts(dir, &s->manifest, &why) < 0 ||
            file_facts_equal(&before, &s->manifest))
            break;
    }
    if (rc == E_NOTFOUND)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN,
                         "a file that the manifest names is not there: write manifest.json last");
    return rc;
}

static int look(struct checkpoint_sealer *s, bool over, struct checkpoint_progress *p,
                struct err *err)
{
    struct file_facts now;
    int dir = -1;
    int rc = sealfs_dir_open(s->dir, &dir, err);

    if (rc < 0)
        return rc;
    rc = manifest_facts(dir, &now, err);
    if (rc == 0 && now.inode && !(file_facts_equal(&now, &s->manifest) && !s->refused.code)) {
        if (file_facts_equal(&now, &s->manifest)) {
            if (err)
                *err = s->refused;
            rc = s->refused.code;
        } else {
            s->manifest = now;
            s->refused.code = 0;
            rc = look_again(s, dir, over, p, err);
            if (rc == E_CHECKPOINT && err)
                s->refused = *err;
            else if (rc < 0)
                s->manifest = (struct file_facts){0}; /* no verdict: once more */
        }
    }
    sealfs_close(dir);
    return rc;
}

/* ---- into the store ---- */
struct clearing {
    int dir;
    int64_t keep;
};

static int clear_one(const char *name, void *arg)
{
    const struct clearing *c = arg;
    struct err why;
    int64_t step = sealfs_number(name, "s", "");

    /* Room on this machine, no more than that: what cannot be removed now is tried again. */
    if (step >= 0 && step != c->keep)
        (void)!sealfs_remove(c->dir, name, &why);
    return 0;
}

/* What was sealed here is told only once the store has it whole. A step that could not be brought
 * there is given up when a newer one is. */
static int publish(struct checkpoint_sealer *s, struct err *err)
{
    struct clearing c = {.dir = -1, .keep = s->sealed.step};
    char folder[sizeof s->folder + 32];
    struct err why;

    if (!s->sealed.present || (s->newest.present && s->newest.step == s->sealed.step))
        return 0;
    (void)snprintf(folder, sizeof folder, "%s/s%lld", s->folder, (long long)s->sealed.step);
    int rc = checkpoint_publish(s->store, folder, s->before, err);
    if (rc == E_CHECKPOINT) { /* somebody wrote to it since it was sealed: it would fail for ever */
        s->refused = err ? *err : (struct err){.code = rc};
        s->sealed = s->newest;
        c.keep = s->newest.present ? s->newest.step : -1;
    } else if (rc < 0) {
        return rc;
    }
    s->newest = s->sealed;
    if (rc == 0)
        str_copy(s->before, sizeof s->before, folder);
    if (store_is_remote(s->store) && sealfs_dir_open(s->sealed_dir, &c.dir, &why) == 0) {
        (void)!sealfs_list(c.dir, clear_one, &c, &why);
        sealfs_close(c.dir);
    }
    return rc;
}

int checkpoint_sealer_look(struct checkpoint_sealer *s, bool over, struct checkpoint_progress *p,
                           struct err *err)
{
    struct err why;
    int rc, published;

    store_progress(s->store, p);
    rc = look(s, over, p, err);
    published = publish(s, &why);
    store_progress(s->store, NULL);
    if (rc == 0 && published < 0) {
        if (err)
            *err = why;
        rc = published;
    }
    return rc;
}
