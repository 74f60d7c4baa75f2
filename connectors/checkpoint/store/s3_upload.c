/* Files on their way into S3. The store is told the SHA-256 of all that it gets, twice: as the
 * signed hash of the payload and as the checksum that it keeps; then it is asked what it has. Files
 * above 64 MiB go in parts, of which no more than one is on its way, and none is held in memory.
 *
 * This file must never leave parts behind when it gives up, as far as the store can still be asked:
 * they cost money and nobody sees them. */
#include "connectors/checkpoint/files/sealfs.h"
#include "connectors/checkpoint/store/s3.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PART_BYTES ((int64_t)64 << 20)
#define PARTS_MAX 10000
#define OBJECT_MAX ((int64_t)5 << 40)
#define COPY_MAX ((int64_t)5 << 30) /* what S3 copies in one request */
#define PUT_TRIES 3
#define ABORT_PATIENCE_MS 5000
#define CHUNK ((size_t)256 << 10)

struct upload {
    struct s3 *s3;
    const char *key;
    const struct checkpoint_file *file;
    int fd;
    char checksum[96]; /* what the store must have in the end: base64, of parts with -N */
    bool must_tell; /* the store has read it from elsewhere: only its checksum says what it has */
    char id[1024];  /* of a multipart upload; "" = none */
};
struct part {
    char etag[S3_TEXT_MAX], checksum[64];
};

static int altered(const struct upload *u, struct err *err)
{
    return err_field(err, E_CHECKPOINT, CHECKPOINT_ALTERED,
                     "%.200s was written to after it was sealed, and before the store had it",
                     u->file->name);
}

static bool is_mismatch(const struct s3_call *c)
{
    return c->status == 400 &&
           (!strcmp(c->code, "XAmzContentSHA256Mismatch") || !strcmp(c->code, "BadDigest") ||
            !strcmp(c->code, "InvalidDigest") || !strcmp(c->code, "XAmzContentChecksumMismatch"));
}

/* One body, as often as it does not come through: an object, or a part. 0: the store has taken
 * it. */
static int send(struct upload *u, struct s3_call *c, struct err *err)
{
    for (int i = 0;; i++) {
        int rc = s3_perform(u->s3, c, err);
        if (rc < 0)
            return rc;
        if (c->sent_other)
            return altered(u, err);
        if (c->status == 200)
            return 0;
        if (!is_mismatch(c) || i + 1 == PUT_TRIES)
            return s3_refused(u->s3, c, "writing", u->key, err);
    }
}

/* What the store says that it keeps; nothing is as good. Some leave out how many parts there
 * were. */
static bool checksum_agrees(const char *told, const char *own)
{
    size_t n = strlen(told);

    return n == 0 || strcmp(told, own) == 0 || (strncmp(told, own, n) == 0 && own[n] == '-');
}

/* What has it? False: not this. */
static int stored(const struct upload *u, bool *ret, struct err *err)
{
    struct s3_call c;

    s3_call_init(&c, "HEAD", u->key);
    s3_call_header(&c, "x-amz-checksum-mode", "ENABLED");
    s3_begin(u->s3, 0);
    int rc = s3_perform(u->s3, &c, err);
    if (rc < 0)
        return rc;
    if (c.status != 200 && c.status != 404)
        return s3_refused(u->s3, &c, "looking at", u->key, err);
    bool same = u->must_tell ? strcmp(c.checksum, u->checksum) == 0
                             : checksum_agrees(c.checksum, u->checksum);
    *ret = c.status == 200 && c.length == u->file->bytes && same;
    return 0;
}

static bool checksum_of(const char hex[65], char out[64])
{
    unsigned char raw[32];

    if (!s3_unhex(hex, raw))
        return false;
    s3_base64(raw, sizeof raw, out);
    return true;
}

/* ---- in one piece ---- */
static int put_whole(struct upload *u, struct err *err)
{
    struct s3_call c;
    char checksum[64];

    s3_call_init(&c, "PUT", u->key);
    memcpy(c.payload, u->file->sha256, sizeof c.payload);
    if (!checksum_of(c.payload, checksum))
        return err_set(err, E_INTERNAL, "a digest is none");
    str_copy(u->checksum, sizeof u->checksum, checksum);
    s3_call_header(&c, "x-amz-checksum-sha256", checksum);
    s3_call_header(&c, "x-amz-sdk-checksum-algorithm", "SHA256"); /* some keep it only so */
    c.fd = u->fd;
    c.body = "";
    c.bytes = u->file->bytes;
    s3_begin(u->s3, c.bytes);
    return send(u, &c, err);
}

/* ---- in parts ---- */
static int parts_begin(struct upload *u, struct err *err)
{
    struct s3_call c;
    struct slice in;
    AUTO_BUF answer;

    buf_init(&answer, 64u << 10);
    s3_call_init(&c, "POST", u->key);
    s3_call_query(&c, "uploads", "");
    s3_call_header(&c, "x-amz-checksum-algorithm", "SHA256");
    c.body = "";
    c.answer = &answer;
    s3_begin(u->s3, 0);
    int rc = s3_perform(u->s3, &c, err);
    if (rc < 0)
        return rc;
    if (c.status != 200 ||
        !s3_xml_root(slice_make(answer.p, answer.n), "InitiateMultipartUploadResult", &in) ||
        !s3_xml_text(in, "UploadId", u->id, sizeof u->id))
        return s3_refused(u->s3, &c, "beginning", u->key, err);
    return 0;
}

/* The part's own digest, and on with that of the whole. */
static int part_hash(struct upload *u, int64_t from, int64_t bytes, EVP_MD_CTX *whole,
                     unsigned char ret[32], struct err *err)
{
    EVP_MD_CTX *part = EVP_MD_CTX_new();
    char *chunk = mem_alloc(CHUNK);
    int rc = part && EVP_DigestInit_ex(part, EVP_sha256(), NULL) == 1
                 ? 0
                 : err_set(err, E_NOMEM, "SHA-256 is not to be had from OpenSSL");

    for (int64_t at = 0; rc == 0 && at < bytes;) {
        size_t want = (uint64_t)(bytes - at) < CHUNK ? (size_t)(bytes - at) : CHUNK;
        ssize_t n = pread(u->fd, chunk, want, (off_t)(from + at));
        if (n <= 0)
            rc = altered(u, err);
        else if (EVP_DigestUpdate(part, chunk, (size_t)n) != 1 ||
                 EVP_DigestUpdate(whole, chunk, (size_t)n) != 1)
            rc = err_set(err, E_INTERNAL, "SHA-256 failed");
        at += n > 0 ? n : 0;
    }
    if (rc == 0 && EVP_DigestFinal_ex(part, ret, NULL) != 1)
        rc = err_set(err, E_INTERNAL, "SHA-256 failed");
    EVP_MD_CTX_free(part);
    mem_free(chunk);
    return rc;
}

static int part_put(struct upload *u, int number, int64_t from, int64_t bytes,
                    const unsigned char digest[32], struct part *ret, struct err *err)
{
    struct s3_call c;
    char text[16];

    s3_call_init(&c, "PUT", u->key);
    (void)snprintf(text, sizeof text, "%d", number);
    s3_call_query(&c, "partNumber", text);
    s3_call_query(&c, "uploadId", u->id);
    sealfs_hex(digest, c.payload);
    s3_base64(digest, 32, ret->checksum);
    s3_call_header(&c, "x-amz-checksum-sha256", ret->checksum);
    c.fd = u->fd;
    c.offset = from;
    c.bytes = bytes;
    s3_begin(u->s3, bytes);
    int rc = send(u, &c, err);
    if (rc < 0)
        return rc;
    if (!c.etag[0] || strpbrk(c.etag, "<&"))
        return s3_refused(u->s3, &c, "writing a part of", u->key, err);
    str_copy(ret->etag, sizeof ret->etag, c.etag);
    return 0;
}

/* An answer of 200 may still bring an error; and one that was lost, "no such upload" the next time:
 * what counts is what is stored then. */
static int parts_complete(struct upload *u, const struct part *parts, int n, struct err *err)
{
    char digest[CHECKPOINT_DIGEST_MAX];
    struct s3_call c;
    struct slice in;
    bool there = false;
    AUTO_BUF body;
    AUTO_BUF answer;

    buf_init(&body, 8u << 20);
    buf_init(&answer, 64u << 10);
    buf_str(&body, "<CompleteMultipartUpload "
                   "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for (int i = 0; i < n; i++)
        buf_printf(&body,
                   "<Part><ChecksumSHA256>%s</ChecksumSHA256><ETag>%s</ETag>"
                   "<PartNumber>%d</PartNumber></Part>",
                   parts[i].checksum, parts[i].etag, i + 1);
    buf_str(&body, "</CompleteMultipartUpload>");
    int rc = body.failed ? err_set(err, E_TOOLARGE, "there are too many parts")
                         : sealfs_digest(body.p, body.n, digest, err);
    if (rc < 0)
        return rc;
    s3_call_init(&c, "POST", u->key);
    s3_call_query(&c, "uploadId", u->id);
    s3_call_header(&c, "content-type", "application/xml");
    memcpy(c.payload, digest + strlen("sha256:"), sizeof c.payload);
    c.body = body.p;
    c.bytes = (int64_t)body.n;
    c.answer = &answer;
    s3_begin(u->s3, c.bytes);
    rc = s3_perform(u->s3, &c, err);
    if (rc < 0)
        return rc;
    bool taken = c.status == 200 &&
                 s3_xml_root(slice_make(answer.p, answer.n), "CompleteMultipartUploadResult", &in);
    if (taken)
        return 0;
    rc = stored(u, &there, err);
    if (rc < 0 || there)
        return rc;
    return s3_refused(u->s3, &c, "completing", u->key, err);
}

static void parts_abort(struct upload *u)
{
    struct checkpoint_progress *p = u->s3->store.progress;
    uint64_t patience = u->s3->patience_ms;
    struct s3_call c;
    struct err why;

    s3_call_init(&c, "DELETE", u->key);
    s3_call_query(&c, "uploadId", u->id);
    u->s3->store.progress = NULL; /* also when we are not to go on */
    u->s3->patience_ms = patience < ABORT_PATIENCE_MS ? patience : ABORT_PATIENCE_MS;
    s3_begin(u->s3, 0);
    (void)!s3_perform(u->s3, &c, &why);
    u->s3->store.progress = p;
    u->s3->patience_ms = patience;
}

/* The checksum of an object in parts: that of the parts' checksums, and how many they were. */
static bool parts_checksum(struct upload *u, const unsigned char *digests, int n)
{
    unsigned char all[32];
    char text[64];

    if (EVP_Digest(digests, (size_t)n * 32, all, NULL, EVP_sha256(), NULL) != 1)
        return false;
    s3_base64(all, sizeof all, text);
    (void)snprintf(u->checksum, sizeof u->checksum, "%s-%d", text, n);
    return true;
}

static int parts_send(struct upload *u, int64_t size, int n, struct part *parts,
                      unsigned char *digests, struct err *err)
{
    EVP_MD_CTX *whole = EVP_MD_CTX_new();
    unsigned char digest[32];
    char hex[65] = "";
    int rc = whole && EVP_DigestInit_ex(whole, EVP_sha256(), NULL) == 1
                 ? 0
                 : err_set(err, E_NOMEM, "SHA-256 is not to be had from OpenSSL");

    for (int i = 0; rc == 0 && i < n; i++) {
        int64_t from = i * size, bytes = u->file->bytes - from;
        bytes = bytes < size ? bytes : size;
        rc = part_hash(u, from, bytes, whole, digests + (size_t)i * 32, err);
        if (rc == 0)
            rc = part_put(u, i + 1, from, bytes, digests + (size_t)i * 32, &parts[i], err);
    }
    if (rc == 0 && EVP_DigestFinal_ex(whole, digest, NULL) != 1)
        rc = err_set(err, E_INTERNAL, "SHA-256 failed");
    EVP_MD_CTX_free(whole);
    if (rc < 0)
        return rc;
    sealfs_hex(digest, hex);
    return strcmp(hex, u->file->sha256) == 0 ? 0 : altered(u, err);
}

static int put_parts(struct upload *u, struct err *err)
{
    int64_t size = PART_BYTES, bytes = u->file->bytes;
    AUTO_ARENA a = arena_create(0);

    while ((bytes + size - 1) / size > PARTS_MAX)
        size *= 2;
    int n = (int)((bytes + size - 1) / size);
    struct part *parts = arena_array(a, struct part, n);
    unsigned char *digests = arena_array(a, unsigned char, (size_t)n * 32);
    int rc = parts_begin(u, err);
    if (rc < 0)
        return rc;
    rc = parts_send(u, size, n, parts, digests, err);
    if (rc == 0 && !parts_checksum(u, digests, n))
        rc = err_set(err, E_INTERNAL, "SHA-256 failed");
    if (rc == 0)
        rc = parts_complete(u, parts, n, err);
    if (rc < 0)
        parts_abort(u);
    return rc;
}

int s3_put(struct store *store, const char *name, int fd, const struct checkpoint_file *f,
           struct err *err)
{
    struct upload u = {.s3 = (struct s3 *)store, .file = f, .fd = fd};
    char key[S3_KEY_MAX + 1];
    int rc = s3_key(u.s3, name, key, err);

    u.key = key;
    if (rc == 0 && f->bytes > OBJECT_MAX)
        rc = err_set(err, E_TOOLARGE, "%.200s is larger than an object of S3 may be", f->name);
    for (int i = 0; rc == 0 && i < PUT_TRIES; i++) {
        bool there = false;
        rc = f->bytes > PART_BYTES ? put_parts(&u, err) : put_whole(&u, err);
        if (rc == 0)
            rc = stored(&u, &there, err);
        if (rc < 0 || there)
            return rc;
    }
    return rc < 0 ? rc
                  : err_field(err, E_UNAVAIL, CHECKPOINT_UNREACHABLE,
                              "s3://%.63s/%.200s: the store says that it took the file, and has "
                              "another",
                              u.s3->config.bucket, key);
}

/* ---- what the store has already ---- */
/* "/BUCKET/KEY", encoded. */
static int source_print(const struct s3 *s, const char *from, struct buf *out, struct err *err)
{
    char key[S3_KEY_MAX + 1];
    int rc = s3_key(s, from, key, err);

    if (rc < 0)
        return rc;
    buf_printf(out, "/%s/", s->config.bucket);
    s3_encode(key, true, out);
    return out->failed ? err_set(err, E_TOOLARGE, "the key of %.200s is too long", from) : 0;
}

/* An answer of 200 may bring an error, as with parts. Whatever it says, what is stored is asked. */
static int copy_ask(const struct upload *u, const char *source, struct err *err)
{
    struct s3_call c;
    AUTO_BUF answer;

    buf_init(&answer, 64u << 10);
    s3_call_init(&c, "PUT", u->key);
    s3_call_header(&c, "x-amz-copy-source", source);
    s3_call_header(&c, "x-amz-checksum-algorithm", "SHA256");
    c.body = "";
    c.answer = &answer;
    s3_begin(u->s3, u->file->bytes);
    return s3_perform(u->s3, &c, err);
}

int s3_copy(struct store *store, const char *from, const char *name,
            const struct checkpoint_file *f, bool *ret_copied, struct err *err)
{
    struct upload u = {.s3 = (struct s3 *)store, .file = f, .fd = -1, .must_tell = true};
    char key[S3_KEY_MAX + 1], checksum[64];
    AUTO_BUF source;

    buf_init(&source, 4096);
    *ret_copied = false;
    if (f->bytes == 0 || f->bytes > COPY_MAX || !checksum_of(f->sha256, checksum))
        return 0;
    str_copy(u.checksum, sizeof u.checksum, checksum);
    int rc = s3_key(u.s3, name, key, err);
    u.key = key;
    if (rc == 0)
        rc = source_print(u.s3, from, &source, err);
    if (rc == 0)
        rc = copy_ask(&u, source.p, err);
    return rc < 0 ? rc : stored(&u, ret_copied, err);
}
