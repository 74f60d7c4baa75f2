/* Zone offsets through the C library, which reads zoneinfo. It opens files, so it must stay off the
 * core loop. */
#include "controlplane/server/zones.h"

#include "api/base/mem.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define ZONE_PATH_MAX 256
static bool zone_path(const char *zone, char path[ZONE_PATH_MAX])
{
    struct stat st;

    if (!*zone || *zone == '/' || strstr(zone, "..") || strlen(zone) > 64)
        return false;
    (void)snprintf(path, ZONE_PATH_MAX, "/usr/share/zoneinfo/%s", zone);
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool zone_known(const char *zone)
{
    char path[ZONE_PATH_MAX], magic[4] = "";

    if (!strcmp(zone, "UTC") || !strcmp(zone, "Etc/UTC"))
        return true;
    FILE *f = zone_path(zone, path) ? fopen(path, "re") : NULL;
    bool known = f && fread(magic, 1, sizeof magic, f) == sizeof magic &&
                 memcmp(magic, "TZif", sizeof magic) == 0;
    if (f)
        (void)fclose(f);
    return known;
}

bool zone_offset(const char *zone, int64_t utc_ms, int *ret_seconds)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER; /* TZ is the process's */
    char old[128] = "", name[80], path[ZONE_PATH_MAX];
    struct tm tm;
    time_t t = (time_t)(utc_ms / 1000);

    if (strcmp(zone, "UTC") != 0 && !zone_path(zone, path))
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
