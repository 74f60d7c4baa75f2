/* Parcels. A reader must never hold more than one frame, nor believe a length. */
#include "api/base/parcel.h"

#include <openssl/evp.h>
#include <string.h>

#define HEAD_BYTES 16
#define FRAME_HEAD 8
#define DIGEST_BYTES 32

static const char magic[8] = {'H', 'A', 'N', 'S', 'E', 'P', 'C', 'L'};

static void put32(unsigned char *p, uint32_t v)
{
    for (unsigned i = 0; i < 4; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}
static uint32_t get32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* ---- writing ---- */
struct parcel_out {
    EVP_MD_CTX *sha;
};

static EVP_MD_CTX *sha_begin(void)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();

    INV(c && EVP_DigestInit_ex(c, EVP_sha256(), NULL) == 1);
    return c;
}

static void add(struct parcel_out *p, struct buf *out, const void *bytes, size_t n)
{
    if (n)
        INV(EVP_DigestUpdate(p->sha, bytes, n) == 1);
    buf_add(out, bytes, n);
}

struct parcel_out *parcel_out_create(struct buf *out)
{
    struct parcel_out *p = mem_new(struct parcel_out);
    unsigned char head[HEAD_BYTES] = {0};

    p->sha = sha_begin();
    memcpy(head, magic, sizeof magic);
    put32(head + 8, PARCEL_VERSION);
    add(p, out, head, sizeof head);
    return p;
}

struct parcel_out *parcel_out_destroy(struct parcel_out *p)
{
    if (p) {
        EVP_MD_CTX_free(p->sha);
        mem_free(p);
    }
    return NULL;
}

void parcel_frame(struct parcel_out *p, struct buf *out, uint32_t type, const void *bytes, size_t n)
{
    unsigned char head[FRAME_HEAD];

    PRE(type > 0 && n <= PARCEL_FRAME_MAX);
    put32(head, type);
    put32(head + 4, (uint32_t)n);
    add(p, out, head, sizeof head);
    add(p, out, bytes, n);
}

void parcel_end(struct parcel_out *p, struct buf *out)
{
    unsigned char head[FRAME_HEAD], digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    INV(EVP_DigestFinal_ex(p->sha, digest, &n) == 1 && n == DIGEST_BYTES);
    put32(head, 0);
    put32(head + 4, n);
    buf_add(out, head, sizeof head);
    buf_add(out, digest, n);
}

/* ---- reading ---- */
struct parcel_in {
    parcel_cb each;
    void *arg;
    EVP_MD_CTX *sha;
    struct buf part; /* what has come of the present part */
    size_t need;     /* bytes that it has when it is whole */
    enum { AT_HEAD, AT_FRAME, AT_BYTES, AT_END } at;
    uint32_t type;
    bool first;
};

struct parcel_in *parcel_in_create(parcel_cb each, void *arg)
{
    struct parcel_in *p = mem_new(struct parcel_in);

    *p = (struct parcel_in){
        .each = each, .arg = arg, .sha = sha_begin(), .need = HEAD_BYTES, .first = true};
    buf_init(&p->part, PARCEL_FRAME_MAX + 64);
    return p;
}

struct parcel_in *parcel_in_destroy(struct parcel_in *p)
{
    if (p) {
        EVP_MD_CTX_free(p->sha);
        buf_fini(&p->part);
        mem_free(p);
    }
    return NULL;
}

static int bad(struct err *err, const char *what)
{
    return err_set(err, E_CORRUPT, "%s", what);
}

static int head_take(struct parcel_in *p, const unsigned char *b, struct err *err)
{
    if (memcmp(b, magic, sizeof magic) != 0)
        return bad(err, "it is something else: it does not begin as a file of Hanse does");
    if (get32(b + 8) != PARCEL_VERSION)
        return err_set(err, E_NOTIMPL,
                       "a newer version of hanse is needed: it is of format %u, this one knows %d",
                       get32(b + 8), PARCEL_VERSION);
    p->at = AT_FRAME;
    p->need = FRAME_HEAD;
    return 0;
}

static int frame_take(struct parcel_in *p, const unsigned char *b, struct err *err)
{
    size_t n = get32(b + 4);

    p->type = get32(b);
    if (n > PARCEL_FRAME_MAX || (!p->type && n != DIGEST_BYTES) ||
        (p->first && p->type != PARCEL_ABOUT))
        return bad(err, "it was changed or damaged: a part of it cannot be");
    p->first = false;
    p->at = AT_BYTES;
    p->need = n;
    return 0;
}

static int end_take(struct parcel_in *p, const unsigned char *b, struct err *err)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    INV(EVP_DigestFinal_ex(p->sha, digest, &n) == 1 && n == DIGEST_BYTES);
    if (memcmp(digest, b, DIGEST_BYTES) != 0)
        return bad(err, "it was changed or damaged: its digest does not match");
    p->at = AT_END;
    return 0;
}

static int part_take(struct parcel_in *p, struct err *err)
{
    const unsigned char *b = (const unsigned char *)p->part.p;
    bool last = p->at == AT_BYTES && !p->type;
    int r = 0;

    /* Its head belongs to the last frame, which the digest is not over: so it is added with what
     * follows it. */
    if (p->at == AT_HEAD || (p->at == AT_BYTES && !last)) {
        if (p->at == AT_BYTES) {
            unsigned char head[FRAME_HEAD];
            put32(head, p->type);
            put32(head + 4, (uint32_t)p->need);
            INV(EVP_DigestUpdate(p->sha, head, sizeof head) == 1);
        }
        if (p->need)
            INV(EVP_DigestUpdate(p->sha, b, p->need) == 1);
    }
    switch (p->at) {
    case AT_HEAD:
        r = head_take(p, b, err);
        break;
    case AT_FRAME:
        r = frame_take(p, b, err);
        break;
    case AT_BYTES:
        if (last)
            return end_take(p, b, err);
        r = p->each(p->arg, p->type, slice_make(b, p->need), err);
        p->at = AT_FRAME;
        p->need = FRAME_HEAD;
        break;
    case AT_END:
        break;
    }
    buf_reset(&p->part);
    return r;
}

int parcel_feed(struct parcel_in *p, const void *bytes, size_t n, struct err *err)
{
    const char *at = bytes;
    int r = 0;

    while (!r && (n || (p->at == AT_BYTES && !p->need))) {
        size_t left = p->need - p->part.n, take = n < left ? n : left;

        if (p->at == AT_END)
            return bad(err, "it was changed: something follows its end");
        buf_add(&p->part, at, take);
        INV(!p->part.failed);
        at += take;
        n -= take;
        if (p->part.n == p->need)
            r = part_take(p, err);
    }
    return r;
}

int parcel_whole(const struct parcel_in *p, struct err *err)
{
    return p->at == AT_END ? 0 : bad(err, "it is not whole: its end is missing");
}
