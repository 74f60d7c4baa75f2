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

uint64_t web_retry_after_ms(const char *said, const char *date, uint64_t wall_ms)
{
    char *end;
    unsigned long s = strtoul(said, &end, 10);
    struct tm then = {0}, now = {0};

    if (!*said)
        return 0;
    if (*said >= '0' && *said <= '9' && !*end)
        return s < RETRY_AFTER_MAX_MS / 1000 ? s * 1000 : RETRY_AFTER_MAX_MS;
    if (!strptime(said, "%a, %d %b %Y %H:%M:%S GMT", &then))
        return 0;
    time_t from =
        strptime(date, "%a, %d %b %Y %H:%M:%S GMT", &now) ? timegm(&now) : (time_t)(wall_ms / 1000);
    time_t wait = timegm(&then) - from;
    if (wait <= 0)
        return 0;
    return wait < RETRY_AFTER_MAX_MS / 1000 ? (uint64_t)wait * 1000 : RETRY_AFTER_MAX_MS;
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
