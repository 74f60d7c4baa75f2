/* SHA-256 of files and texts, by OpenSSL, which uses the processor's own instructions for it. A
 * file is read once, from the first byte on, whatever is asked of it. */
#include "connectors/checkpoint/files/sealfs.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHUNK ((size_t)256 << 10)

void sealfs_hex(const unsigned char digest[32], char out[65])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < 32; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
    out[64] = '\0';
}

int sealfs_digest(const void *p, size_t n, char out[CHECKPOINT_DIGEST_MAX], struct err *err)
{
    unsigned char digest[32];
    char hex[65];

    if (EVP_Digest(p, n, digest, NULL, EVP_sha256(), NULL) != 1)
        return err_set(err, E_INTERNAL, "SHA-256 is not to be had from OpenSSL");
    sealfs_hex(digest, hex);
    (void)snprintf(out, CHECKPOINT_DIGEST_MAX, "sha256:%s", hex);
    return 0;
}

struct hashing {
    EVP_MD_CTX *all, *head; /* head: what the first `mark` bytes made */
    int64_t mark;
    char *chunk;
};

static int hash_all(struct hashing *h, int fd, int64_t bytes, struct checkpoint_progress *p,
                    struct err *err)
{
    for (int64_t at = 0; at < bytes;) {
        int64_t end = at < h->mark && h->mark < bytes ? h->mark : bytes;
        size_t want = (uint64_t)(end - at) < CHUNK ? (size_t)(end - at) : CHUNK;
        ssize_t n = pread(fd, h->chunk, want, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(err, E_IO, "reading a file of the checkpoint: %s", strerror(errno));
        if (n == 0)
            return err_set(err, E_CORRUPT, "it ends after %lld of %lld bytes", (long long)at,
                           (long long)bytes);
        at += n;
        if (EVP_DigestUpdate(h->all, h->chunk, (size_t)n) != 1 ||
            (at == h->mark && EVP_MD_CTX_copy_ex(h->head, h->all) != 1))
            return err_set(err, E_INTERNAL, "SHA-256 failed");
        if (p) {
            atomic_fetch_add(&p->bytes, (uint64_t)n);
            if (atomic_load(&p->cancel))
                return err_set(err, E_CANCELLED, "nobody waits for it any more");
        }
    }
    return 0;
}

static int hash_final(EVP_MD_CTX *c, char ret_hex[65], struct err *err)
{
    unsigned char digest[32];

    if (EVP_DigestFinal_ex(c, digest, NULL) != 1)
        return err_set(err, E_INTERNAL, "SHA-256 failed");
    sealfs_hex(digest, ret_hex);
    return 0;
}

int sealfs_hash(int fd, int64_t bytes, int64_t head, struct checkpoint_progress *p,
                char ret_hex[65], char ret_head[65], struct err *err)
{
    struct hashing h = {.all = EVP_MD_CTX_new(),
                        .head = EVP_MD_CTX_new(),
                        .mark = ret_head ? head : -1,
                        .chunk = mem_alloc(CHUNK)};
    int rc = 0;

    (void)posix_fadvise(fd, 0, bytes, POSIX_FADV_SEQUENTIAL);
    if (!h.all || !h.head || EVP_DigestInit_ex(h.all, EVP_sha256(), NULL) != 1 ||
        EVP_DigestInit_ex(h.head, EVP_sha256(), NULL) != 1)
        rc = err_set(err, E_INTERNAL, "SHA-256 is not to be had from OpenSSL");
    if (rc == 0)
        rc = hash_all(&h, fd, bytes, p, err);
    if (rc == 0)
        rc = hash_final(h.all, ret_hex, err);
    if (rc == 0 && ret_head)
        rc = hash_final(h.head, ret_head, err);
    EVP_MD_CTX_free(h.all);
    EVP_MD_CTX_free(h.head);
    mem_free(h.chunk);
    return rc;
}
