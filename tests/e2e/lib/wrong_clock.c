/* A wall clock that is WRONG_CLOCK_S seconds fast (or slow), for whatever is started with this in
 * LD_PRELOAD: the C library's own functions, so OpenSSL's view of the time, too. Clocks that only
 * count are left alone, as on a machine whose date was set wrong. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long wrong(void)
{
    const char *text = getenv("WRONG_CLOCK_S");

    return text ? strtol(text, NULL, 10) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
    int rc = (int)syscall(SYS_clock_gettime, clock, ret);

    if (rc == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        ret->tv_sec += wrong();
    return rc;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
    struct timespec t;
    int rc = clock_gettime(CLOCK_REALTIME, &t);

    (void)zone;
    ret->tv_sec = t.tv_sec;
    ret->tv_usec = t.tv_nsec / 1000;
    return rc;
}

time_t time(time_t *ret)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_REALTIME, &t);
    if (ret)
        *ret = t.tv_sec;
    return t.tv_sec;
}
