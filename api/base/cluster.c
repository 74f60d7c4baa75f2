/* Cluster uids as text. Must never fail on what it does not know: a peer's uid comes from outside. */
#include "api/base/cluster.h"

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

void cluster_next(const char *uid, char out[CLUSTER_UID_MAX])
{
    char line[CLUSTER_UID_MAX];

    (void)snprintf(line, sizeof line, "%.*s", (int)(cluster_line(uid) < 40 ? cluster_line(uid) : 40),
                   uid);
    (void)snprintf(out, CLUSTER_UID_MAX, "%s.%" PRIu64, line, cluster_generation(uid) + 1);
}
