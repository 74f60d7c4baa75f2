/* Cluster uids as text. This file must never fail on what it does not know: a peer's uid comes from
 * outside. */
#include "api/base/cluster.h"

#include "api/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t cluster_line(const char *uid)
{
    return strcspn(uid, ".");
}

uint64_t cluster_generation(const char *uid)
{
    size_t n = cluster_line(uid);

    if (!n)
        return 0;
    return uid[n] == '.' && uid[n + 1] >= '0' && uid[n + 1] <= '9' ? strtoull(uid + n + 1, NULL, 10)
                                                                   : 1;
}

bool cluster_same_line(const char *a, const char *b)
{
    size_t n = cluster_line(a);

    return n > 0 && n == cluster_line(b) && memcmp(a, b, n) == 0;
}

bool cluster_left_behind(const char *a, const char *b)
{
    return cluster_same_line(a, b) && cluster_generation(a) < cluster_generation(b);
}

/* ".LOG", or "". */
static const char *log_of(const char *uid)
{
    const char *p = strchr(uid, '.');

    p = p ? strchr(p + 1, '.') : NULL;
    return p && strlen(p) < 20 ? p : "";
}

static void print(const char *uid, uint64_t n, const char *log, char out[CLUSTER_UID_MAX])
{
    char line[CLUSTER_UID_MAX], text[CLUSTER_UID_MAX + 64];

    (void)snprintf(line, sizeof line, "%.*s",
                   (int)(cluster_line(uid) < 32 ? cluster_line(uid) : 32), uid);
    (void)snprintf(text, sizeof text, "%s.%" PRIu64 "%s", line, n, log);
    (void)snprintf(out, CLUSTER_UID_MAX, "%.*s", CLUSTER_UID_MAX - 1, text);
}

void cluster_next_from(const char *uid, uint64_t n, char out[CLUSTER_UID_MAX])
{
    uint64_t next = cluster_generation(uid) + 1;
    char log[20];

    str_copy(log, sizeof log, log_of(uid));
    print(uid, next > n ? next : n, log, out);
}

void cluster_next(const char *uid, char out[CLUSTER_UID_MAX])
{
    cluster_next_from(uid, 0, out);
}

void cluster_begin_anew(const char *uid, int64_t wall_ms, uint64_t random,
                        char out[CLUSTER_UID_MAX])
{
    uint64_t n = cluster_generation(uid) + 1, now = wall_ms > 0 ? (uint64_t)wall_ms / 1000 : 0;
    char log[20];

    (void)snprintf(log, sizeof log, ".%08" PRIx32, (uint32_t)random);
    print(uid, now > n ? now : n, log, out);
}

bool cluster_same_log(const char *a, const char *b)
{
    if (!*a || !*b)
        return true;
    return cluster_same_line(a, b) && strcmp(log_of(a), log_of(b)) == 0;
}
