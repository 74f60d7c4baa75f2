/* See report_kit.h. */
#include "tests/support/report/report_kit.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>

static const char *const ring[] = {"the newest key", "the key before"};
static const char *const others[] = {"the key of another cluster", "and its older one"};

static void mac_by(const char *key, const char *text, unsigned char ret[HOME_MAC_BYTES])
{
    unsigned n = 0;

    INV(HMAC(EVP_sha256(), key, (int)strlen(key), (const unsigned char *)text, strlen(text), ret,
             &n));
}

static bool again(void *arg, unsigned i, const char *text, unsigned char ret[HOME_MAC_BYTES])
{
    const char *const *keys = arg;

    if (i > 1)
        return false;
    mac_by(keys[i], text, ret);
    return true;
}

static void sign(void *arg, const char *text, unsigned char ret[HOME_MAC_BYTES])
{
    (void)again(arg, 0, text, ret);
}

static bool holds(void *arg, const char *text, const unsigned char mac[HOME_MAC_BYTES])
{
    unsigned char own[HOME_MAC_BYTES];

    for (unsigned i = 0; again(arg, i, text, own); i++)
        if (memcmp(own, mac, sizeof own) == 0)
            return true;
    return false;
}

const struct home_keys report_kit_keys = {sign, holds, again, (void *)(uintptr_t)ring};
const struct home_keys report_kit_others = {sign, holds, again, (void *)(uintptr_t)others};

struct home_token report_kit_token(void)
{
    return (struct home_token){.key = {.uid = "uid-1", .epoch = 3, .try_ = 2},
                               .rank = 1,
                               .ranks = 4,
                               .made_ms = 1900000000000,
                               .cluster = "0123456789abcdef0123456789abcdef.2.01234567"};
}

void report_kit_token_text(const struct home_token *t, unsigned by, char ret[HOME_TOKEN_MAX])
{
    char name[HOME_TOKEN_MAX];

    home_token_make(t, &report_kit_keys, name);
    *strrchr(name, '/') = '\0';
    INV(home_token_again(name, &report_kit_keys, by, ret));
}

int report_kit_read(const char *text, size_t n, struct report_line *ret)
{
    const struct home_token t = report_kit_token();
    struct err err;

    return report_line_read(text, n, &t.key, t.rank, t.ranks, &report_kit_keys, ret, &err);
}
