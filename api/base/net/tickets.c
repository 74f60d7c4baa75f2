/* Session tickets with keys that change: a ticket is good for two periods at most, so a key that
 * leaks opens hours and not the life of a process, and a certificate that was taken back cannot
 * come in by resuming for longer. This file must never write a key anywhere. One configuration
 * serves several loops: everything is behind a lock. */
#include "api/base/mem.h"
#include "api/base/net/tls_internal.h"

#include <openssl/core_names.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define PERIOD_MS (3600ull * 1000)

struct ticket_key {
    unsigned char name[16], aes[32], mac[32];
    uint64_t born_ms; /* 0: none */
};
struct tickets {
    pthread_mutex_t lock;
    struct ticket_key now, before;
    uint64_t ahead_ms; /* tests */
};

static uint64_t clock_ms(const struct tickets *t)
{
    struct timespec ts;

    INV(clock_gettime(CLOCK_BOOTTIME, &ts) == 0);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000 + 1 + t->ahead_ms;
}

static bool key_make(struct ticket_key *k, uint64_t now_ms)
{
    k->born_ms = now_ms;
    return RAND_bytes(k->name, sizeof k->name) == 1 &&
           RAND_priv_bytes(k->aes, sizeof k->aes) == 1 &&
           RAND_priv_bytes(k->mac, sizeof k->mac) == 1;
}

/* The lock is held. False: no random bytes; then no ticket is given. */
static bool keys_turn(struct tickets *t)
{
    uint64_t now = clock_ms(t);

    if (t->now.born_ms && now - t->now.born_ms < PERIOD_MS)
        return true;
    if (t->now.born_ms && now - t->now.born_ms < 2 * PERIOD_MS)
        t->before = t->now;
    else
        OPENSSL_cleanse(&t->before, sizeof t->before);
    if (key_make(&t->now, now))
        return true;
    OPENSSL_cleanse(&t->now, sizeof t->now);
    return false;
}

static bool ciphers_set(const struct ticket_key *k, const unsigned char *iv, EVP_CIPHER_CTX *cipher,
                        EVP_MAC_CTX *mac, bool encrypt)
{
    static char sha256[] = "SHA256";
    unsigned char key[sizeof k->mac];
    bool ok;

    memcpy(key, k->mac, sizeof key);
    OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, key, sizeof key),
                           OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, sha256, 0),
                           OSSL_PARAM_construct_end()};
    ok = EVP_MAC_CTX_set_params(mac, params) == 1 &&
         EVP_CipherInit_ex(cipher, EVP_aes_256_cbc(), NULL, k->aes, iv, encrypt) == 1;
    OPENSSL_cleanse(key, sizeof key);
    return ok;
}

/* As SSL_CTX_set_tlsext_ticket_key_evp_cb wants it: -1 error, 0 not ours (a full handshake
 * follows), 1 good, 2 good and to be renewed. */
static int on_ticket(SSL *ssl, unsigned char name[16], unsigned char iv[EVP_MAX_IV_LENGTH],
                     EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac, int encrypt)
{
    struct tickets *t = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    const struct ticket_key *k = NULL;
    int rv = 0;

    pthread_mutex_lock(&t->lock);
    if (!keys_turn(t)) {
        rv = encrypt ? 0 : -1;
    } else if (encrypt) {
        k = &t->now;
        memcpy(name, k->name, sizeof k->name);
        rv = RAND_bytes(iv, EVP_CIPHER_get_iv_length(EVP_aes_256_cbc())) == 1 ? 1 : -1;
    } else {
        bool now = !memcmp(name, t->now.name, sizeof t->now.name);
        bool before = t->before.born_ms && !memcmp(name, t->before.name, sizeof t->before.name) &&
                      clock_ms(t) - t->before.born_ms < 2 * PERIOD_MS;
        k = now ? &t->now : before ? &t->before : NULL;
        rv = now ? 1 : before ? 2 : 0;
    }
    if (k && rv > 0 && !ciphers_set(k, iv, cipher, mac, encrypt != 0))
        rv = -1;
    pthread_mutex_unlock(&t->lock);
    return rv;
}

struct tickets *tickets_create(SSL_CTX *ctx)
{
    struct tickets *t = mem_new(struct tickets);

    INV(pthread_mutex_init(&t->lock, NULL) == 0);
    INV(SSL_CTX_set_app_data(ctx, t) == 1);
    INV(SSL_CTX_set_tlsext_ticket_key_evp_cb(ctx, on_ticket) == 1);
    return t;
}

struct tickets *tickets_destroy(struct tickets *t)
{
    if (!t)
        return NULL;
    (void)pthread_mutex_destroy(&t->lock);
    OPENSSL_cleanse(&t->now, sizeof t->now);
    OPENSSL_cleanse(&t->before, sizeof t->before);
    mem_free(t);
    return NULL;
}

void tickets_age(struct tickets *t, uint64_t ms)
{
    pthread_mutex_lock(&t->lock);
    t->ahead_ms += ms;
    pthread_mutex_unlock(&t->lock);
}
