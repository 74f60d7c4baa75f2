/* Tokens of runners: what they name, signed by the cluster. They are no secret of the log's, and
 * nothing of them is kept: what they name lives or is over by the log. */
#include "connectors/report/report.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "hanse-run-1/"
#define NAME_PARTS 5
#define MAC_DIGITS ((size_t)2 * HOME_MAC_BYTES)

static void hex_print(const unsigned char mac[HOME_MAC_BYTES], char *out)
{
    for (unsigned i = 0; i < HOME_MAC_BYTES; i++)
        (void)snprintf(out + (size_t)2 * i, 3, "%02x", mac[i]);
}

bool home_token_again(const char *name, const struct home_keys *k, unsigned i,
                      char ret[HOME_TOKEN_MAX])
{
    unsigned char mac[HOME_MAC_BYTES];
    size_t n = strlen(name);

    PRE(n + 2 + MAC_DIGITS <= HOME_TOKEN_MAX);
    if (!k->again || !k->again(k->arg, i, name, mac))
        return false;
    (void)snprintf(ret, HOME_TOKEN_MAX, "%s/", name);
    hex_print(mac, ret + n + 1);
    OPENSSL_cleanse(mac, sizeof mac);
    return true;
}

void home_token_make(const struct home_token *t, const struct home_keys *k,
                     char ret[HOME_TOKEN_MAX])
{
    unsigned char mac[HOME_MAC_BYTES];
    char key[RUN_KEY_MAX];

    run_key_print(&t->key, key);
    int n = snprintf(ret, HOME_TOKEN_MAX, PREFIX "%s/%s/%lld/%lld/%lld", t->cluster, key,
                     (long long)t->rank, (long long)t->ranks, (long long)t->made_ms);
    INV(n > 0 && n + 2 + 2 * HOME_MAC_BYTES < HOME_TOKEN_MAX);
    k->sign(k->arg, ret, mac);
    ret[n] = '/';
    hex_print(mac, ret + n + 1);
}

static bool number(const char *s, int64_t most, int64_t *ret)
{
    char *end;

    if (*s < '0' || *s > '9' || (*s == '0' && s[1]))
        return false;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    *ret = v;
    return !*end && errno == 0 && v <= most;
}

static bool mac_read(const char *s, unsigned char ret[HOME_MAC_BYTES])
{
    if (strlen(s) != MAC_DIGITS || strspn(s, "0123456789abcdef") != strlen(s))
        return false;
    for (unsigned i = 0; i < HOME_MAC_BYTES; i++) {
        const char two[3] = {s[(size_t)2 * i], s[(size_t)2 * i + 1], '\0'};
        ret[i] = (unsigned char)strtoul(two, NULL, 16);
    }
    return true;
}

static bool plain(const char *s)
{
    return *s &&
           s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")] ==
               '\0';
}

int home_token_name_read(const char *name, struct home_token *ret, struct err *err)
{
    char copy[HOME_TOKEN_MAX], *part[NAME_PARTS];
    size_t n = strlen(name);
    struct home_token t = {.rank = 0};
    unsigned i = 0;

    if (n + 2 + MAC_DIGITS > sizeof copy || strncmp(name, PREFIX, strlen(PREFIX)) != 0)
        return err_set(err, E_SYNTAX, "it is no token of a runner");
    memcpy(copy, name, n + 1);
    char *p = copy + strlen(PREFIX);
    for (part[i++] = p; *p; p++)
        if (*p == '/') {
            *p = '\0';
            if (i == NAME_PARTS)
                return err_set(err, E_SYNTAX, "it is no token of a runner");
            part[i++] = p + 1;
        }
    if (i != NAME_PARTS || strlen(part[0]) >= sizeof t.cluster || (*part[0] && !plain(part[0])) ||
        run_key_parse(part[1], &t.key, err) < 0 || !number(part[2], LIMIT_GANG_MAX - 1, &t.rank) ||
        !number(part[3], LIMIT_GANG_MAX, &t.ranks) ||
        !number(part[4], RUN_KEY_NUMBER_MAX, &t.made_ms) || t.rank >= t.ranks)
        return err_set(err, E_SYNTAX, "it is no token of a runner");
    str_copy(t.cluster, sizeof t.cluster, part[0]);
    *ret = t;
    return 0;
}

/* name: without its MAC. */
static int parse(const char *text, struct home_token *ret, unsigned char mac[HOME_MAC_BYTES],
                 char name[HOME_TOKEN_MAX], struct err *err)
{
    const char *last = strrchr(text, '/');

    if (!last || last - text >= HOME_TOKEN_MAX || !mac_read(last + 1, mac))
        return err_set(err, E_SYNTAX, "it is no token of a runner");
    (void)snprintf(name, HOME_TOKEN_MAX, "%.*s", (int)(last - text), text);
    return home_token_name_read(name, ret, err);
}

int home_token_read(const char *text, struct home_token *ret, struct err *err)
{
    unsigned char mac[HOME_MAC_BYTES];
    char name[HOME_TOKEN_MAX];

    return parse(text, ret, mac, name, err);
}

int home_token_verify(const char *text, const struct home_keys *k, struct home_token *ret,
                      struct err *err)
{
    unsigned char mac[HOME_MAC_BYTES];
    char name[HOME_TOKEN_MAX];
    struct home_token t;

    if (parse(text, &t, mac, name, err) < 0)
        return err_set(err, E_UNAUTH, "what it shows is no token of a runner");
    if (!k->holds(k->arg, name, mac))
        return err_set(err, E_UNAUTH, "its token is none that this cluster has made");
    *ret = t;
    return 0;
}
