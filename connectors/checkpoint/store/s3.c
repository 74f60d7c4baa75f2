/* The S3 driver. A name is the key PREFIX/name; a folder is what keys begin with, and once it is
 * made also an empty object PREFIX/folder/, as other tools make them.
 *
 * This file must never take "not there" from anything but S3's own NoSuchKey, or from a whole
 * listing. */
#include "connectors/checkpoint/store/s3.h"

#include "connectors/checkpoint/files/sealfs.h"

#include <curl/curl.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PAGE_MAX (8u << 20) /* 1000 keys of 1024 bytes, each of them escaped */
#define PAGES_MAX 100000
#define FETCH_TRIES 2

static struct s3 *s3_of(struct store *s)
{
    return (struct s3 *)s;
}

int s3_key(const struct s3 *s, const char *name, char out[S3_KEY_MAX + 1], struct err *err)
{
    const char *prefix = s->config.prefix;
    int n = snprintf(out, S3_KEY_MAX + 1, "%s%s%s", prefix, *prefix && *name ? "/" : "", name);

    return n > S3_KEY_MAX ? err_set(err, E_TOOLARGE, "the key of %.200s is longer than %d bytes",
                                    name, S3_KEY_MAX)
                          : 0;
}

/* ---- small objects ---- */
static int get(struct s3 *s, const char *name, size_t max, struct buf *ret, int64_t *ret_written_ns,
               struct err *err)
{
    char key[S3_KEY_MAX + 1];
    struct s3_call c;
    int rc = s3_key(s, name, key, err);

    if (rc < 0)
        return rc;
    s3_call_init(&c, "GET", key);
    c.answer = ret;
    s3_begin(s, (int64_t)max);
    rc = s3_perform(s, &c, err);
    if (rc == 0 && s3_no_such_key(&c))
        return err_set(err, E_NOTFOUND, "s3://%.63s/%.200s is not there", s->config.bucket, key);
    if (rc == 0 && (c.status != 200 || !c.etag[0])) /* without one it is no object */
        return s3_refused(s, &c, "reading", key, err);
    if (rc == 0 && ret->n > max)
        return err_set(err, E_TOOLARGE, "it is larger than %zu bytes", max);
    if (rc < 0)
        return rc;
    buf_add(ret, "", 1); /* NUL-terminated, also when empty */
    if (ret->failed)
        return err_set(err, E_TOOLARGE, "it is larger than %zu bytes", max);
    ret->n--;
    if (ret_written_ns)
        *ret_written_ns = c.modified * 1000000000;
    return 0;
}

static int ops_get(struct store *store, const char *name, size_t max, struct buf *ret,
                   int64_t *ret_written_ns, struct err *err)
{
    return get(s3_of(store), name, max, ret, ret_written_ns, err);
}

/* Puts it, on no condition or if nothing is there. *ret_code: "" = it was put. */
static int put_small(struct s3 *s, const char *key, const void *p, size_t n, bool only_new,
                     struct s3_call *c, struct err *err)
{
    char digest[CHECKPOINT_DIGEST_MAX], checksum[64];
    unsigned char raw[32];
    int rc = sealfs_digest(p, n, digest, err);

    if (rc < 0)
        return rc;
    s3_call_init(c, "PUT", key);
    memcpy(c->payload, digest + strlen("sha256:"), sizeof c->payload);
    if (!s3_unhex(c->payload, raw))
        return err_set(err, E_INTERNAL, "a digest is none");
    s3_base64(raw, sizeof raw, checksum);
    s3_call_header(c, "x-amz-checksum-sha256", checksum);
    if (only_new)
        s3_call_header(c, "if-none-match", "*");
    c->body = p;
    c->bytes = (int64_t)n;
    s3_begin(s, c->bytes);
    rc = s3_perform(s, c, err);
    c->n_headers = 0; /* they pointed to what was ours */
    return rc;
}

static int ops_make(struct store *store, const char *folder, struct err *err)
{
    struct s3 *s = s3_of(store);
    char key[S3_KEY_MAX + 2];
    struct s3_call c;
    int rc = s3_key(s, folder, key, err);

    if (rc < 0)
        return rc;
    (void)snprintf(key + strlen(key), 2, "/");
    rc = put_small(s, key, "", 0, false, &c, err);
    if (rc == 0 && c.status != 200)
        return s3_refused(s, &c, "making the folder", key, err);
    return rc;
}

/* What is there now: ours, or somebody else's? */
static int read_back(struct s3 *s, const char *name, const void *p, size_t n, struct err *err)
{
    AUTO_BUF found;

    buf_init(&found, n + 4096);
    int rc = get(s, name, n, &found, NULL, err);
    if (rc == E_TOOLARGE || (rc == 0 && (found.n != n || memcmp(found.p, p, n) != 0)))
        return err_set(err, E_EXISTS, "s3://%.63s: %.200s is there already", s->config.bucket,
                       name);
    return rc;
}

/* The same bytes under the same name are the same thing, whoever wrote them: an answer that was
 * lost looks no different. */
static int ops_create(struct store *store, const char *name, const void *p, size_t n,
                      struct err *err)
{
    struct s3 *s = s3_of(store);
    char key[S3_KEY_MAX + 1];
    struct s3_call c;
    int rc = s3_key(s, name, key, err);

    if (rc == 0)
        rc = put_small(s, key, p, n, true, &c, err);
    if (rc < 0)
        return rc;
    if (c.status == 501 || (c.status == 400 && !strcmp(c.code, "NotImplemented"))) {
        /* It knows no such condition. One who writes at a time is then our caller's care. */
        rc = read_back(s, name, p, n, err);
        if (rc != E_NOTFOUND)
            return rc;
        rc = put_small(s, key, p, n, false, &c, err);
        if (rc < 0)
            return rc;
    }
    if (c.status != 200 && c.status != 412)
        return s3_refused(s, &c, "writing", key, err);
    return read_back(s, name, p, n, err);
}

/* ---- lists ---- */
struct page {
    const char *prefix;
    bool one_level;
    char token[2048], next[2048]; /* continuation: of this page, and of the one after it */
    struct buf text;
    struct slice inside;
};

static int page_read(struct s3 *s, struct page *p, struct err *err)
{
    char truncated[8] = "";
    struct s3_call c;

    s3_call_init(&c, "GET", NULL);
    s3_call_query(&c, "list-type", "2");
    s3_call_query(&c, "prefix", p->prefix);
    if (p->one_level)
        s3_call_query(&c, "delimiter", "/");
    if (p->token[0])
        s3_call_query(&c, "continuation-token", p->token);
    buf_reset(&p->text);
    c.answer = &p->text;
    s3_begin(s, PAGE_MAX);
    int rc = s3_perform(s, &c, err);
    if (rc < 0)
        return rc == E_TOOLARGE ? err_field(err, E_UNAVAIL, CHECKPOINT_UNREACHABLE,
                                            "s3://%.63s: a listing is too large", s->config.bucket)
                                : rc;
    if (c.status != 200)
        return s3_refused(s, &c, "listing", p->prefix, err);
    bool good = s3_xml_root(slice_make(p->text.p, p->text.n), "ListBucketResult", &p->inside) &&
                s3_xml_text(p->inside, "IsTruncated", truncated, sizeof truncated);
    p->next[0] = '\0';
    if (good && strcmp(truncated, "true") == 0)
        good = s3_xml_text(p->inside, "NextContinuationToken", p->next, sizeof p->next) &&
               strcmp(p->next, p->token) != 0;
    return good ? 0
                : err_field(err, E_UNAVAIL, CHECKPOINT_UNREACHABLE,
                            "s3://%.63s: listing %.150s: what came is no listing", s->config.bucket,
                            p->prefix);
}

/* "2026-11-21T10:00:00.000Z"; 0 = no such time. */
static int64_t time_ns(const char *text)
{
    int v[6] = {0};
    static const char form[] = "dddd-dd-ddTdd:dd:dd";
    size_t k = 0;

    for (size_t i = 0; form[i]; i++) {
        if (form[i] == 'd' && text[i] >= '0' && text[i] <= '9')
            v[k] = v[k] * 10 + (text[i] - '0');
        else if (form[i] == 'd' || text[i] != form[i])
            return 0;
        else
            k++;
    }
    struct tm tm = {.tm_year = v[0] - 1900,
                    .tm_mon = v[1] - 1,
                    .tm_mday = v[2],
                    .tm_hour = v[3],
                    .tm_min = v[4],
                    .tm_sec = v[5]};
    return (int64_t)timegm(&tm) * 1000000000;
}

/* Each key, or folder of keys (with '/' at its end), of a page that begins with the prefix. */
static int page_each(const struct page *p, const char *element, const char *field,
                     int (*each)(const char *key, int64_t written_ns, void *arg), void *arg)
{
    struct slice at = p->inside, one;
    char key[S3_KEY_MAX + 2], modified[40];

    while (s3_xml_next(&at, element, &one)) {
        if (!s3_xml_text(one, field, key, sizeof key) ||
            strncmp(key, p->prefix, strlen(p->prefix)) != 0)
            continue;
        bool dated = s3_xml_text(one, "LastModified", modified, sizeof modified);
        int rc = each(key, dated ? time_ns(modified) : 0, arg);
        if (rc)
            return rc;
    }
    return 0;
}

static int walk(struct s3 *s, const char *prefix, bool one_level,
                int (*each)(const char *key, int64_t written_ns, void *arg), void *arg,
                struct err *err)
{
    struct page *p = mem_new(struct page);
    int rc = 0;

    p->prefix = prefix;
    p->one_level = one_level;
    buf_init(&p->text, PAGE_MAX);
    for (unsigned i = 0; i < PAGES_MAX; i++) {
        rc = page_read(s, p, err);
        if (rc < 0 || page_each(p, "Contents", "Key", each, arg) ||
            page_each(p, "CommonPrefixes", "Prefix", each, arg) || !p->next[0])
            break;
        str_copy(p->token, sizeof p->token, p->next);
    }
    buf_fini(&p->text);
    mem_free(p);
    return rc;
}

static int folder_prefix(const struct s3 *s, const char *folder, char out[S3_KEY_MAX + 2],
                         struct err *err)
{
    int rc = s3_key(s, folder, out, err);

    if (rc == 0 && *out)
        (void)snprintf(out + strlen(out), 2, "/");
    return rc;
}

struct listing {
    size_t skip;
    int (*each)(const char *name, void *arg);
    void *arg;
};

static int list_one(const char *key, int64_t written_ns, void *arg)
{
    const struct listing *l = arg;
    char name[S3_KEY_MAX + 2];
    size_t n = strlen(key + l->skip);

    (void)written_ns;
    if (n == 0) /* the folder's own mark */
        return 0;
    memcpy(name, key + l->skip, n + 1);
    if (name[n - 1] == '/')
        name[n - 1] = '\0';
    return l->each(name, l->arg);
}

static int ops_list(struct store *store, const char *folder,
                    int (*each)(const char *name, void *arg), void *arg, struct err *err)
{
    char prefix[S3_KEY_MAX + 2];
    int rc = folder_prefix(s3_of(store), folder, prefix, err);
    struct listing l = {.skip = rc == 0 ? strlen(prefix) : 0, .each = each, .arg = arg};

    return rc < 0 ? rc : walk(s3_of(store), prefix, true, list_one, &l, err);
}

static int newest_of(const char *key, int64_t written_ns, void *arg)
{
    int64_t *newest = arg;

    (void)key;
    if (written_ns > *newest)
        *newest = written_ns;
    return 0;
}

/* Folders have no time of their own: both are when anything below was written last. */
static int ops_written(struct store *store, const char *folder, enum store_written what,
                       int64_t *ret_ns, struct err *err)
{
    char prefix[S3_KEY_MAX + 2];
    int64_t newest = 0;
    int rc = folder_prefix(s3_of(store), folder, prefix, err);

    (void)what;
    if (rc == 0)
        rc = walk(s3_of(store), prefix, false, newest_of, &newest, err);
    if (rc == 0)
        *ret_ns = newest;
    return rc;
}

/* ---- removal ---- */
static int delete_key(struct s3 *s, const char *key, struct err *err)
{
    struct s3_call c;

    s3_call_init(&c, "DELETE", key);
    s3_begin(s, 0);
    int rc = s3_perform(s, &c, err);
    if (rc < 0 || c.status == 200 || c.status == 204 || s3_no_such_key(&c))
        return rc;
    return s3_refused(s, &c, "removing", key, err);
}

struct removing {
    struct s3 *s3;
    int rc;
    struct err *err;
    uint64_t n;
};

static int remove_one(const char *key, int64_t written_ns, void *arg)
{
    struct removing *r = arg;

    (void)written_ns;
    r->rc = delete_key(r->s3, key, r->err);
    r->n++;
    return r->rc < 0;
}

static int ops_remove(struct store *store, const char *name, struct err *err)
{
    struct removing r = {.s3 = s3_of(store), .err = err};
    char key[S3_KEY_MAX + 2];
    int rc = s3_key(r.s3, name, key, err);

    if (rc == 0)
        rc = delete_key(r.s3, key, err);
    if (rc == 0)
        rc = folder_prefix(r.s3, name, key, err);
    if (rc == 0 && *key)
        rc = walk(r.s3, key, false, remove_one, &r, err);
    return rc < 0 ? rc : r.rc;
}

/* ---- fetching ---- */
struct fetching {
    int fd;
    int64_t got, want;
    EVP_MD_CTX *hash;
    char etag[S3_TEXT_MAX], range[64];
    struct err err;
};

static void range_print(struct fetching *f)
{
    (void)snprintf(f->range, sizeof f->range, "bytes=%lld-%lld", (long long)f->got,
                   (long long)f->want - 1);
}

static bool fetch_anew(struct fetching *f)
{
    f->got = 0;
    range_print(f);
    return ftruncate(f->fd, 0) == 0 && EVP_DigestInit_ex(f->hash, EVP_sha256(), NULL) == 1;
}

/* What was broken off goes on where it stopped, if it is still the same object. */
static bool fetch_begin(struct s3_call *c, void *arg)
{
    struct fetching *f = arg;
    bool same = f->got > 0 && c->status == 206 && c->etag[0] && strcmp(c->etag, f->etag) == 0;

    if (!same && f->got > 0 && c->status == 206) { /* the rest of another one is of no use */
        (void)fetch_anew(f);
        return false;
    }
    str_copy(f->etag, sizeof f->etag, c->etag);
    return same || fetch_anew(f);
}

static int fetch_data(const void *p, size_t n, void *arg)
{
    struct fetching *f = arg;
    const char *from = p;
    size_t left = (uint64_t)(f->want - f->got) < n ? (size_t)(f->want - f->got) : n;

    if (EVP_DigestUpdate(f->hash, p, left) != 1)
        return err_set(&f->err, E_INTERNAL, "SHA-256 failed");
    while (left) {
        ssize_t done = pwrite(f->fd, from, left, (off_t)f->got);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return err_set(&f->err, errno == ENOSPC ? E_NOSPACE : E_IO,
                           "what came from the checkpoint store could not be kept here: %s",
                           strerror(errno));
        from += done;
        left -= (size_t)done;
        f->got += done;
    }
    range_print(f);
    return 0;
}

/* 0: it is right. E_CHECKPOINT: it is not, this time. */
static int fetch_once(struct s3 *s, const char *key, struct fetching *f,
                      const struct checkpoint_file *file, int64_t *ret_modified, struct err *err)
{
    unsigned char digest[32];
    struct s3_call c;
    char hex[65];

    if (!fetch_anew(f))
        return err_set(err, E_IO, "a file for what comes from the store cannot be written");
    s3_call_init(&c, "GET", key);
    if (f->want > 0)
        s3_call_header(&c, "range", f->range);
    c.begin = fetch_begin;
    c.data = fetch_data;
    c.arg = f;
    s3_begin(s, f->want);
    int rc = s3_perform(s, &c, err);
    if (rc < 0 && f->err.code && err)
        *err = f->err;
    if (rc < 0)
        return f->err.code ? f->err.code : rc;
    if (s3_no_such_key(&c))
        return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN,
                         "s3://%.63s/%.200s is not there: take an older checkpoint",
                         s->config.bucket, key);
    if (c.status != 416 && ((c.status != 200 && c.status != 206) || !c.etag[0]))
        return s3_refused(s, &c, "reading", key, err);
    if (f->got < f->want || c.status == 416)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN,
                         "s3://%.63s/%.200s has %lld bytes, its manifest says %lld: take an older "
                         "checkpoint",
                         s->config.bucket, key, (long long)f->got, (long long)f->want);
    if (EVP_DigestFinal_ex(f->hash, digest, NULL) != 1)
        return err_set(err, E_INTERNAL, "SHA-256 failed");
    sealfs_hex(digest, hex);
    if (strcmp(hex, file->sha256) != 0)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_ALTERED,
                         "s3://%.63s/%.200s has not the SHA-256 of its manifest: somebody wrote to "
                         "it; take an older checkpoint",
                         s->config.bucket, key);
    *ret_modified = c.modified;
    return 0;
}

static int ops_fetch(struct store *store, const char *name, int to, const struct checkpoint_file *f,
                     struct err *err)
{
    struct s3 *s = s3_of(store);
    struct fetching x = {.fd = -1, .want = f->bytes, .hash = EVP_MD_CTX_new()};
    char key[S3_KEY_MAX + 1], part[CHECKPOINT_NAME_MAX + 64];
    int64_t modified = 0;
    int rc = x.hash ? s3_key(s, name, key, err) : err_set(err, E_NOMEM, "no memory for SHA-256");

    if (rc == 0)
        rc = sealfs_new(to, f->name, part, sizeof part, &x.fd, err);
    for (int i = 0; rc == 0 && i < FETCH_TRIES; i++) {
        rc = fetch_once(s, key, &x, f, &modified, err);
        if (rc == E_CHECKPOINT && i + 1 < FETCH_TRIES)
            rc = 0; /* the way, perhaps, and not the store */
        else
            break;
    }
    if (x.fd >= 0) {
        struct err why;
        if (rc == 0)
            rc = sealfs_new_done(to, part, f->name, x.fd, modified, err);
        if (rc < 0)
            (void)!sealfs_remove(to, part, &why);
        sealfs_close(x.fd);
    }
    EVP_MD_CTX_free(x.hash);
    return rc;
}

/* ---- the driver ---- */
static bool ops_is_here(struct store *store)
{
    (void)store;
    return true; /* it said itself that the key is not there */
}

static void ops_close(struct store *store)
{
    struct s3 *s = s3_of(store);

    curl_easy_cleanup(s->curl);
    OPENSSL_cleanse(&s->config, sizeof s->config);
    mem_free(s);
}

static const struct store_ops ops = {.close = ops_close,
                                     .is_here = ops_is_here,
                                     .make = ops_make,
                                     .get = ops_get,
                                     .create = ops_create,
                                     .list = ops_list,
                                     .written = ops_written,
                                     .remove = ops_remove,
                                     .copy = s3_copy,
                                     .put = s3_put,
                                     .fetch = ops_fetch};

int store_s3_open(const struct checkpoint_store *at, struct store **ret, struct err *err)
{
    struct s3 *s = mem_new(struct s3);
    int rc = s3_config_read(at, &s->config, err);

    s->store.ops = &ops;
    s->patience_ms = at->patience_ms ? at->patience_ms : STORE_PATIENCE_MS;
    if (rc == 0 && !(s->curl = curl_easy_init()))
        rc = err_set(err, E_NOMEM, "libcurl cannot be begun");
    if (rc < 0) {
        ops_close(&s->store);
        return rc;
    }
    *ret = &s->store;
    return 0;
}
