/* io_destroy away from the loop. libraft ends the AIO context of each segment, at 16 MiB and at
 * each snapshot, on the loop that commits, and the kernel takes 20 to 50 ms for it (a grace period
 * of RCU), in which no write would be answered. libraft has no option for that, so this file stands
 * before the C library's syscall(2), which is what libraft calls: io_destroy goes to a thread, all
 * else is passed on as it is.
 *
 * libraft ends a segment only when nothing of it is being written, so that nobody waits for what
 * io_destroy does. At the end of a member it may cancel writes: aio_settle waits for the kernel. */
#include "controlplane/raft/aio/aio.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AWAY_MAX 16 /* at once; the next is destroyed where it is */

static struct {
    pthread_mutex_t mu;
    pthread_cond_t settled;
    unsigned away;
    uint64_t total;
    long (*next)(long number, ...); /* the C library's */
} aio = {.mu = PTHREAD_MUTEX_INITIALIZER, .settled = PTHREAD_COND_INITIALIZER};

/* Before main: what is forked later, and what a seccomp filter binds, resolves nothing. */
__attribute__((constructor)) static void find_next(void)
{
    void *p = dlsym(RTLD_NEXT, "syscall");

    memcpy(&aio.next, &p, sizeof p); /* a cast of an object pointer to a function's is no ISO C */
}

static void *destroy(void *context)
{
    (void)aio.next(SYS_io_destroy, context);
    (void)pthread_mutex_lock(&aio.mu);
    if (--aio.away == 0)
        (void)pthread_cond_broadcast(&aio.settled);
    (void)pthread_mutex_unlock(&aio.mu);
    return NULL;
}

static bool destroy_away(void *context)
{
    pthread_t thread;
    bool away;

    (void)pthread_mutex_lock(&aio.mu);
    away = aio.away < AWAY_MAX && pthread_create(&thread, NULL, destroy, context) == 0;
    if (away) {
        (void)pthread_detach(thread);
        aio.away++;
        aio.total++;
    }
    (void)pthread_mutex_unlock(&aio.mu);
    return away;
}

void aio_settle(void)
{
    (void)pthread_mutex_lock(&aio.mu);
    while (aio.away)
        (void)pthread_cond_wait(&aio.settled, &aio.mu);
    (void)pthread_mutex_unlock(&aio.mu);
}

uint64_t aio_away(void)
{
    (void)pthread_mutex_lock(&aio.mu);
    uint64_t n = aio.total;
    (void)pthread_mutex_unlock(&aio.mu);
    return n;
}

/* See syscall(2). Each takes at most six arguments of a register's size, and reads no more of them
 * than it has. */
long syscall(long number, ...)
{
    va_list ap;
    long a[6];

    va_start(ap, number);
    for (unsigned i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if (number == SYS_io_destroy && destroy_away((void *)a[0])) /* NOLINT(*-int-to-ptr) */
        return 0;
    return aio.next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
