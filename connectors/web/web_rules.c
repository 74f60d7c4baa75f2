/* See web_rules.h. */
#include "connectors/web/web_rules.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BACKOFF_MS 200
#define BACKOFF_MAX_MS 10000
#define RETRY_AFTER_MAX_MS 3600000
#define SECRET_LEAST 4 /* a shorter one is a word of any text */

bool web_status_passes(int status)
{
    return status == 408 || status == 429 || status == 500 || (status >= 502 && status <= 504);
}

uint64_t web_backoff_ms(unsigned attempts, uint64_t random)
{
    uint64_t most = BACKOFF_MS;

    for (unsigned i = 1; i < attempts && most < BACKOFF_MAX_MS; i++)
        most *= 2;
    most = most < BACKOFF_MAX_MS ? most : BACKOFF_MAX_MS;
    return most / 2 + random % (most / 2 + 1);
}

int64_t web_date_ms(const char *date)
{
    struct tm t = {0};
    const char *end = strptime(date, "%a, %d %b %Y %H:%M:%S GMT", &t);

    return end && !*end && t.tm_year >= 70 ? (int64_t)timegm(&t) * 1000 : 0;
}

uint64_t web_retry_after_ms(const char *said, const char *date, uint64_t wall_ms)
{
    char *end;
    unsigned long s = strtoul(said, &end, 10);
    int64_t then = web_date_ms(said), now = web_date_ms(date);

    if (!*said)
        return 0;
    if (*said >= '0' && *said <= '9' && !*end)
        return s < RETRY_AFTER_MAX_MS / 1000 ? s * 1000 : RETRY_AFTER_MAX_MS;
    int64_t wait = then - (now ? now : (int64_t)(wall_ms / 1000 * 1000));
    if (!then || wait <= 0)
        return 0;
    return wait < RETRY_AFTER_MAX_MS ? (uint64_t)wait : RETRY_AFTER_MAX_MS;
}

void web_redact_texts(const char *const *secrets, size_t n_secrets, char *text)
{
    for (size_t i = 0; i < n_secrets; i++) {
        const char *s = secrets[i];
        size_t n = s ? strlen(s) : 0;
        if (n < SECRET_LEAST)
            continue;
        for (char *at = text; (at = strstr(at, s)) != NULL; at += 3) {
            memmove(at + 3, at + n, strlen(at + n) + 1);
            at[0] = at[1] = at[2] = '*';
        }
    }
}
