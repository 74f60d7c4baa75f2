/* Zone offsets through the C library, which reads zoneinfo. Must stay off the core loop: it opens
 * files. */
#include "controlplane/server/zones.h"

#include "api/base/mem.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static bool zone_known(const char *zone)
{
    char path[256];
    struct stat st;

    if (!*zone || *zone == '/' || strstr(zone, "..") || strlen(zone) > 64)
        return false;
    (void)snprintf(path, sizeof path, "/usr/share/zoneinfo/%s", zone);
    return !strcmp(zone, "UTC") || (stat(path, &st) == 0 && S_ISREG(st.st_mode));
}

bool zone_offset(const char *zone, int64_t utc_ms, int *ret_seconds)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER; /* TZ is the process's */
    char old[128] = "", name[80];
    struct tm tm;
    time_t t = (time_t)(utc_ms / 1000);

    if (!zone_known(zone))
        return false;
    (void)snprintf(name, sizeof name, ":%s", zone);
    pthread_mutex_lock(&one);
    const char *had = getenv("TZ");
    if (had)
        str_copy(old, sizeof old, had);
    (void)setenv("TZ", name, 1);
    tzset();
    bool ok = localtime_r(&t, &tm) != NULL;
    *ret_seconds = ok ? (int)tm.tm_gmtoff : 0;
    if (had)
        (void)setenv("TZ", old, 1);
    else
        (void)unsetenv("TZ");
    tzset();
    pthread_mutex_unlock(&one);
    return ok;
}
