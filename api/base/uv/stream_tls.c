/* TLS between a stream and its socket. OpenSSL sees a BIO that takes the bytes just read and hands
 * what it encrypts to the kernel, so that an idle connection holds no buffers of ours. This file
 * must never call the user while OpenSSL is on the stack. */
#include "api/base/uv/uv_internal.h"
#include "api/base/net/tls.h"
#include "api/base/hash.h"
#include "api/base/net/tls_internal.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <string.h>

#define RECORD_MAX 16384
#define OUT_CAP 131072

/* ---- the BIO ---- */

static void flush(struct uv_stream_impl *s)
{
    size_t n = s->im->out_n;

    s->im->out_n = 0;
    ustream_send(s, s->im->out, n);
}

static int bio_read(BIO *b, char *p, int n)
{
    struct uv_stream_impl *s = BIO_get_data(b);
    size_t take = n > 0 && (size_t)n < s->in_n ? (size_t)n : s->in_n;

    BIO_clear_retry_flags(b);
    if (n <= 0)
        return 0;
    if (!take) {
        BIO_set_retry_read(b);
        return -1;
    }
    memcpy(p, s->in, take);
    s->in += take;
    s->in_n -= take;
    return (int)take;
}

static int bio_write(BIO *b, const char *p, int n)
{
    struct uv_stream_impl *s = BIO_get_data(b);
    struct uv_impl *im = s->im;

    BIO_clear_retry_flags(b);
    for (size_t left = n > 0 ? (size_t)n : 0; left;) {
        if (im->out_n == OUT_CAP)
            flush(s);
        size_t take = left < OUT_CAP - im->out_n ? left : OUT_CAP - im->out_n;

        memcpy(im->out + im->out_n, p, take);
        im->out_n += take;
        p += take;
        left -= take;
    }
    return n;
}

static long bio_ctrl(BIO *b, int cmd, long num, void *ptr)
{
    (void)b;
    (void)num;
    (void)ptr;
    return cmd == BIO_CTRL_FLUSH ? 1 : 0;
}

static BIO_METHOD *bio_method(struct uv_impl *im)
{
    if (!im->bio_method) {
        im->bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "hanse stream");
        INV(im->bio_method && BIO_meth_set_read(im->bio_method, bio_read) &&
            BIO_meth_set_write(im->bio_method, bio_write) &&
            BIO_meth_set_ctrl(im->bio_method, bio_ctrl));
        im->out = mem_alloc(OUT_CAP);
    }
    return im->bio_method;
}

int ustream_tls_begin(struct uv_stream_impl *s, const char *host, const char *alpn, struct err *err)
{
    int rc = tls_ssl_create(s->tls, host, alpn, &s->ssl, err);

    if (rc)
        return rc;
    BIO *bio = BIO_new(bio_method(s->im));
    INV(bio);
    BIO_set_data(bio, s);
    BIO_set_init(bio, 1);
    SSL_set_bio(s->ssl, bio, bio);
    return 0;
}

void ustream_tls_fini(struct uv_stream_impl *s)
{
    if (s->ssl)
        SSL_free(s->ssl);
    s->ssl = NULL;
    ERR_clear_error();
    mem_free(s->held);
    s->held = NULL;
    union {
        const struct tls_config *c;
        struct tls_config *m;
    } u = {s->tls};
    (void)tls_config_unref(u.m);
    s->tls = NULL;
}

/* ---- input ---- */

/* Keeps what OpenSSL has not taken. s->in may point into s->held. */
static void keep_rest(struct uv_stream_impl *s)
{
    char *old = s->held;

    s->held = s->in_n ? memcpy(mem_alloc(s->in_n), s->in, s->in_n) : NULL;
    s->held_n = s->in_n;
    s->in = NULL;
    s->in_n = 0;
    mem_free(old);
}

/* By its peer's address, whatever the port. */
static unsigned source_of(const struct uv_stream_impl *s)
{
    const char *address = s->base.peer.address, *port = strrchr(address, ':');
    size_t n = port ? (size_t)(port - address) : strlen(address);
    uint64_t h = hash_more(HASH_START, address, n);

    return (unsigned)((h ^ h >> 32) % SHAKE_SOURCES);
}

/* Queued, so that the turn's bound on handshakes holds; reading stops meanwhile. */
void ustream_shake_later(struct uv_stream_impl *s)
{
    if (list_empty(&s->shake_link)) {
        list_push(&s->im->shakes[source_of(s)], &s->shake_link);
        s->im->n_shakes++;
    }
    ustream_todo(s); /* starts idle rounds */
}

void ustream_shake_forget(struct uv_stream_impl *s)
{
    s->im->n_shakes -= !list_empty(&s->shake_link);
    list_remove(&s->shake_link);
}

static void fail(struct uv_stream_impl *s, const char *doing)
{
    struct err why = {0};

    (void)tls_failed(&why, s->ssl, doing);
    (void)err_prefix(&why, "%s", s->base.peer.address);
    ustream_end(s, &why);
}

/* Decrypts as much as fits, then calls `data` once; again until OpenSSL wants more. */
static void pump(struct uv_stream_impl *s)
{
    while (s->state == ST_OPEN && !s->paused) {
        size_t n = 0;
        int got = 1, problem = SSL_ERROR_NONE;

        ERR_clear_error();
        while (n + RECORD_MAX <= UV_READ_MAX) {
            got = SSL_read(s->ssl, s->im->plain + n, (int)(UV_READ_MAX - n));
            if (got <= 0)
                break;
            n += (size_t)got;
        }
        if (got <= 0)
            problem = SSL_get_error(s->ssl, got);
        flush(s);
        if (n && s->state == ST_OPEN && s->base.ev && s->base.ev->data)
            s->base.ev->data(&s->base, s->im->plain, n, s->base.arg);
        if (s->state != ST_OPEN || s->paused) /* its end, too, is told once it goes on again */
            return;
        if (problem == SSL_ERROR_NONE)
            continue;
        if (problem == SSL_ERROR_WANT_READ)
            return;
        if (problem == SSL_ERROR_ZERO_RETURN)
            ustream_peer_ended(s, true);
        else
            fail(s, "reading");
        return;
    }
}

void ustream_tls_input(struct uv_stream_impl *s, const char *p, size_t n)
{
    s->in = p;
    s->in_n = n;
    if (s->state == ST_HANDSHAKE) {
        keep_rest(s);
        ustream_read(s, false);
        ustream_shake_later(s);
        return;
    }
    pump(s);
    keep_rest(s);
}

void ustream_tls_resume(struct uv_stream_impl *s)
{
    s->in = s->held;
    s->in_n = s->held_n;
    pump(s);
    keep_rest(s);
    if (s->state == ST_OPEN && !s->paused)
        ustream_read(s, true);
}

static void shake(struct uv_stream_impl *s)
{
    struct err why = {0};

    if (s->state != ST_HANDSHAKE)
        return;
    s->in = s->held;
    s->in_n = s->held_n;
    ERR_clear_error();
    int rc = SSL_do_handshake(s->ssl);
    int problem = SSL_get_error(s->ssl, rc);
    flush(s);
    keep_rest(s);
    if (s->state != ST_HANDSHAKE)
        return;
    if (rc == 1) {
        if (tls_identify(s->tls, s->ssl, &s->base.peer, &why)) {
            (void)err_prefix(&why, "%s", s->base.peer.address);
            (void)SSL_shutdown(s->ssl);
            flush(s);
            ustream_end(s, &why);
            return;
        }
        ustream_opened(s);
        if (s->state == ST_OPEN)
            ustream_tls_resume(s);
    } else if (problem == SSL_ERROR_WANT_READ) {
        ustream_read(s, true);
    } else {
        fail(s, "the TLS handshake");
    }
}

/* One of each source in turn: a storm from one address lets another's client in. */
void ustream_tls_shakes(struct uv_impl *im)
{
    uint64_t begin = uv_hrtime();

    for (int i = 0; i < HANDSHAKES_A_TURN && im->n_shakes; i++) {
        while (list_empty(&im->shakes[im->shake_source % SHAKE_SOURCES]))
            im->shake_source++;
        struct list *first = im->shakes[im->shake_source++ % SHAKE_SOURCES].next;
        struct uv_stream_impl *s = container_of(first, struct uv_stream_impl, shake_link);
        ustream_shake_forget(s);
        shake(s);
        if (uv_hrtime() - begin > HANDSHAKES_NS_A_TURN)
            break;
    }
}

/* ---- output ---- */

void ustream_tls_write(struct uv_stream_impl *s, const char *p, size_t n)
{
    while (n && s->state == ST_OPEN) {
        int part = n < (1u << 30) ? (int)n : 1 << 30;

        ERR_clear_error();
        int done = SSL_write(s->ssl, p, part);
        flush(s);
        if (s->state != ST_OPEN)
            return;
        if (done <= 0) {
            fail(s, "sending");
            return;
        }
        p += done;
        n -= (size_t)done;
    }
}

void ustream_tls_bye(struct uv_stream_impl *s)
{
    ERR_clear_error();
    if (SSL_is_init_finished(s->ssl))
        (void)SSL_shutdown(s->ssl);
    flush(s);
}
