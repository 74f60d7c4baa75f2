/* The key ring. It must never log, print or return a key, and wipes plain text that it made
 * itself. */
#include "controlplane/keyring/keyring.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define KEYS_MAX 64
#define KEY_BYTES 32
#define NONCE_BYTES 12
#define TAG_BYTES 16
#define RING_FILE_MAX (64u << 10)

struct key {
    char id[64];
    unsigned char bytes[KEY_BYTES];
};
struct keyring {
    struct key keys[KEYS_MAX];
    unsigned n;
};

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

static int parse_line(struct keyring *k, const char *path, int number, char *line, struct err *err)
{
    char *space = strchr(line, ' ');

    if (k->n == KEYS_MAX)
        return err_set(err, E_LIMIT, "%s: more than %d keys; remove the oldest", path, KEYS_MAX);
    if (!space || space - line >= (int)sizeof k->keys[0].id ||
        strlen(space + 1) != (size_t)2 * KEY_BYTES)
        return err_set(err, E_SYNTAX, "%s:%d: expected KEY-ID and 64 hex digits", path, number);
    struct key *key = &k->keys[k->n];
    memcpy(key->id, line, (size_t)(space - line));
    for (unsigned i = 0; i < KEY_BYTES; i++) {
        int hi = hex_value(space[1 + 2 * i]), lo = hex_value(space[2 + 2 * i]);
        if (hi < 0 || lo < 0)
            return err_set(err, E_SYNTAX, "%s:%d: not a hex digit in the key", path, number);
        key->bytes[i] = (unsigned char)(hi << 4 | lo);
    }
    k->n++;
    return 0;
}

static int create_file(struct loop *l, const char *path, struct err *err)
{
    unsigned char bytes[KEY_BYTES];
    char id[32], text[256];
    int64_t day = loop_wall_ms(l) / 86400000;

    loop_random(l, bytes, sizeof bytes);
    (void)snprintf(id, sizeof id, "k%lld", (long long)day);
    int n = snprintf(text, sizeof text,
                     "# hanse key ring; the last key seals, all of them open\n%s ", id);
    for (unsigned i = 0; i < KEY_BYTES; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%02x", bytes[i]);
    n += snprintf(text + n, sizeof text - (size_t)n, "\n");
    int rv = file_write(l, path, text, (size_t)n, 0600, err);
    OPENSSL_cleanse(text, sizeof text);
    OPENSSL_cleanse(bytes, sizeof bytes);
    return rv;
}

int keyring_open(struct loop *l, const char *path, bool create, struct keyring **ret,
                 struct err *err)
{
    AUTO_BUF text;
    struct stat st;

    buf_init(&text, RING_FILE_MAX);
    if (stat(path, &st) == 0 && (st.st_mode & 077))
        return err_set(err, E_FORBIDDEN, "key ring %s can be read by others; run: chmod 600 %s",
                       path, path);
    int rv = file_read(l, path, RING_FILE_MAX, &text, err);
    if (rv == E_NOTFOUND && create) {
        rv = create_file(l, path, err);
        if (!rv)
            rv = file_read(l, path, RING_FILE_MAX, &text, err);
    }
    if (rv == E_NOTFOUND)
        return err_set(
            err, rv, "key ring %s does not exist; copy it from another member (--key-ring)", path);
    if (rv)
        return rv;
    struct keyring *k = mem_new(struct keyring);
    int number = 0;
    char *save = NULL;
    for (char *line = text.n ? strtok_r(text.p, "\n", &save) : NULL; line && !rv;
         line = strtok_r(NULL, "\n", &save)) {
        number++;
        if (*line != '#')
            rv = parse_line(k, path, number, line, err);
    }
    if (!rv && k->n == 0)
        rv = err_set(err, E_SYNTAX, "key ring %s holds no key", path);
    if (text.p)
        OPENSSL_cleanse(text.p, text.cap);
    if (rv) {
        (void)keyring_close(k);
        return rv;
    }
    *ret = k;
    return 0;
}

struct keyring *keyring_close(struct keyring *k)
{
    if (k) {
        OPENSSL_cleanse(k, sizeof *k);
        mem_free(k);
    }
    return NULL;
}

static int bind(char *out, size_t max, const char *uid, const char *field)
{
    return snprintf(out, max, "%s/%s", uid, field);
}

void keyring_seal(const struct keyring *k, struct loop *l, const char *uid, const char *field,
                  struct slice plain, struct buf *out)
{
    const struct key *key = &k->keys[k->n - 1];
    unsigned char nonce[NONCE_BYTES], tag[TAG_BYTES];
    char aad[256];
    int aad_n = bind(aad, sizeof aad, uid, field), got = 0;
    size_t id_n = strlen(key->id);
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();

    INV(c && plain.n < INT32_MAX);
    loop_random(l, nonce, sizeof nonce);
    buf_char(out, 1);
    buf_char(out, (char)id_n);
    buf_add(out, key->id, id_n);
    buf_add(out, nonce, sizeof nonce);
    unsigned char *room = (unsigned char *)buf_reserve(out, plain.n + TAG_BYTES);
    INV(EVP_EncryptInit_ex(c, EVP_aes_256_gcm(), NULL, key->bytes, nonce) == 1);
    INV(EVP_EncryptUpdate(c, NULL, &got, (const unsigned char *)aad, aad_n) == 1);
    if (room) {
        INV(EVP_EncryptUpdate(c, room, &got, plain.p, (int)plain.n) == 1);
        out->n += plain.n;
        INV(EVP_EncryptFinal_ex(c, room + got, &got) == 1);
        INV(EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, TAG_BYTES, tag) == 1);
        buf_add(out, tag, sizeof tag);
    }
    EVP_CIPHER_CTX_free(c);
}

static const struct key *key_by_id(const struct keyring *k, const char *id, size_t n)
{
    for (unsigned i = 0; i < k->n; i++)
        if (strlen(k->keys[i].id) == n && !memcmp(k->keys[i].id, id, n))
            return &k->keys[i];
    return NULL;
}

int keyring_unseal(const struct keyring *k, const char *uid, const char *field, struct slice sealed,
                   struct buf *out, struct err *err)
{
    const unsigned char *p = sealed.p;
    char aad[256];
    int aad_n = bind(aad, sizeof aad, uid, field), got = 0;

    if (sealed.n < 2 || p[0] != 1 || sealed.n < (size_t)2 + p[1] + NONCE_BYTES + TAG_BYTES)
        return err_set(err, E_CORRUPT, "a sealed value is malformed");
    const struct key *key = key_by_id(k, (const char *)p + 2, p[1]);
    if (!key)
        return err_set(err, E_NOTFOUND, "the key ring lacks key %.*s; copy it from another member",
                       (int)p[1], (const char *)p + 2);
    const unsigned char *nonce = p + 2 + p[1], *cipher = nonce + NONCE_BYTES;
    size_t n = sealed.n - (size_t)(cipher - p) - TAG_BYTES;
    unsigned char tag[TAG_BYTES];
    memcpy(tag, cipher + n, TAG_BYTES);
    unsigned char *room = (unsigned char *)buf_reserve(out, n + 1);
    if (!room)
        return err_set(err, E_TOOLARGE, "a sealed value is too large");
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    INV(c);
    bool ok = EVP_DecryptInit_ex(c, EVP_aes_256_gcm(), NULL, key->bytes, nonce) == 1 &&
              EVP_DecryptUpdate(c, NULL, &got, (const unsigned char *)aad, aad_n) == 1 &&
              EVP_DecryptUpdate(c, room, &got, cipher, (int)n) == 1 &&
              EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, TAG_BYTES, tag) == 1 &&
              EVP_DecryptFinal_ex(c, room + got, &got) == 1;
    EVP_CIPHER_CTX_free(c);
    if (!ok) {
        OPENSSL_cleanse(room, n);
        return err_set(err, E_CORRUPT, "a sealed value was altered, or belongs to another object");
    }
    out->n += n;
    room[n] = 0;
    return 0;
}

/* ---- texts that this cluster has signed ---- */
static void mac_by(const struct key *key, const char *purpose, const char *text,
                   unsigned char ret[KEYRING_MAC_BYTES])
{
    unsigned char own[KEYRING_MAC_BYTES];
    unsigned n = 0;

    INV(HMAC(EVP_sha256(), key->bytes, KEY_BYTES, (const unsigned char *)purpose, strlen(purpose),
             own, &n) &&
        n == sizeof own);
    INV(HMAC(EVP_sha256(), own, sizeof own, (const unsigned char *)text, strlen(text), ret, &n));
    OPENSSL_cleanse(own, sizeof own);
}

void keyring_mac(const struct keyring *k, const char *purpose, const char *text,
                 unsigned char ret[KEYRING_MAC_BYTES])
{
    mac_by(&k->keys[k->n - 1], purpose, text, ret);
}

bool keyring_mac_again(const struct keyring *k, unsigned i, const char *purpose, const char *text,
                       unsigned char ret[KEYRING_MAC_BYTES])
{
    if (i >= k->n)
        return false;
    mac_by(&k->keys[k->n - 1 - i], purpose, text, ret);
    return true;
}

bool keyring_mac_holds(const struct keyring *k, const char *purpose, const char *text,
                       const unsigned char mac[KEYRING_MAC_BYTES])
{
    unsigned char wanted[KEYRING_MAC_BYTES];
    bool holds = false;

    for (unsigned i = 0; i < k->n; i++) {
        mac_by(&k->keys[i], purpose, text, wanted);
        holds |= CRYPTO_memcmp(wanted, mac, sizeof wanted) == 0;
    }
    OPENSSL_cleanse(wanted, sizeof wanted);
    return holds;
}
