/* The key ring: AES-256-GCM keys that seal Secret values before an entry exists, so that log,
 * snapshot, backup and digest hold ciphertext only. The file lies outside of the data directory,
 * mode 0600:
 *
 *     # hanse key ring; the last key seals, all of them open
 *     2026-11-21 0f3c…(64 hex digits)
 *
 * Sealed form: u8 version 1, u8 length of key id, key id, 12 bytes nonce, ciphertext, 16 bytes tag.
 * The additional data is "UID/FIELD", so that a sealed value cannot be moved to another object. */
#ifndef HANSE_CONTROLPLANE_KEYRING_KEYRING_H
#define HANSE_CONTROLPLANE_KEYRING_KEYRING_H

#include "api/base/loop/loop.h"

struct keyring;
/* Reads the file; makes one with a fresh key when it is absent and `create` is true. Refuses a file
 * that others can read. */
int keyring_open(struct loop *l, const char *path, bool create, struct keyring **ret,
                 struct err *err) MUST_CHECK;
struct keyring *keyring_close(struct keyring *k); /* wipes the keys */
void keyring_seal(const struct keyring *k, struct loop *l, const char *uid, const char *field,
                  struct slice plain, struct buf *out);
/* Returns E_CORRUPT when the value was altered or moved; E_NOTFOUND with the name of the missing
 * key. The caller wipes the plain text. */
int keyring_unseal(const struct keyring *k, const char *uid, const char *field, struct slice sealed,
                   struct buf *out, struct err *err) MUST_CHECK;

/* HMAC-SHA256 of a text, by a key that is derived from one of the ring for this purpose alone;
 * `purpose` is a constant. The last key signs, all of them verify, in constant time. */
#define KEYRING_MAC_BYTES 32
void keyring_mac(const struct keyring *k, const char *purpose, const char *text,
                 unsigned char ret[KEYRING_MAC_BYTES]);
/* By the i-th key, of which 0 is the one that signs; false: there are no more. */
bool keyring_mac_again(const struct keyring *k, unsigned i, const char *purpose, const char *text,
                       unsigned char ret[KEYRING_MAC_BYTES]) MUST_CHECK;
bool keyring_mac_holds(const struct keyring *k, const char *purpose, const char *text,
                       const unsigned char mac[KEYRING_MAC_BYTES]);

#endif
