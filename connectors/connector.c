/* Run keys. */
#include "connectors/connector.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void run_key_print(const struct run_key *k, char out[RUN_KEY_MAX])
{
    (void)snprintf(out, RUN_KEY_MAX, "%s.%lld.%lld", k->uid, (long long)k->epoch,
                   (long long)k->try_);
}

static bool key_number(const char *s, const char *end, int64_t *ret)
{
    char *stop;

    if (s == end || *s < '0' || *s > '9' || (*s == '0' && s + 1 != end)) /* one spelling each */
        return false;
    errno = 0;
    *ret = strtoll(s, &stop, 10);
    return stop == end && errno == 0 && *ret <= RUN_KEY_NUMBER_MAX;
}

int run_key_parse(const char *s, struct run_key *ret, struct err *err)
{
    struct run_key k;
    const char *last = strrchr(s, '.');
    const char *mid = last ? memrchr(s, '.', (size_t)(last - s)) : NULL;

    memset(&k, 0, sizeof k);
    if (!mid || mid == s || (size_t)(mid - s) >= sizeof k.uid ||
        !key_number(mid + 1, last, &k.epoch) || !key_number(last + 1, s + strlen(s), &k.try_))
        return err_set(err, E_SYNTAX, "\"%.100s\" is no run key; expected UID.EPOCH.TRY", s);
    memcpy(k.uid, s, (size_t)(mid - s));
    /* It becomes a folder's name on the other side. */
    if (strspn(k.uid, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") !=
        strlen(k.uid))
        return err_set(err, E_SYNTAX,
                       "\"%.100s\" is no run key: letters, digits, - and _ make a uid", s);
    *ret = k;
    return 0;
}
