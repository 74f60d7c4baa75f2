/* Several files at once. Who calls is on a thread that may block and has no loop, so the crew is
 * made of threads that live for the call. It must never need them: where none can be made, who
 * calls does all of it. */
#include "connectors/checkpoint/files/sealfs.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

#define ALONE_BYTES ((int64_t)2 << 20) /* to make a thread takes as long as to read some of this */

struct crew {
    size_t n;
    int (*each)(size_t i, void *arg, struct err *err);
    void *arg;
    _Atomic size_t next;
    _Atomic bool stop;
    pthread_mutex_t lock; /* of what follows */
    size_t failed;        /* the lowest; n: none */
    int rc;
    struct err err;
};

/* They are handed out in order, so all below one that failed are tried, too. */
static void *crew_member(void *arg)
{
    struct crew *c = arg;
    size_t i;

    while (!atomic_load(&c->stop) && (i = atomic_fetch_add(&c->next, 1)) < c->n) {
        struct err err = {0};
        int rc = c->each(i, c->arg, &err);
        if (rc == 0)
            continue;
        atomic_store(&c->stop, true);
        (void)pthread_mutex_lock(&c->lock);
        if (i < c->failed) {
            c->failed = i;
            c->rc = rc;
            c->err = err;
        }
        (void)pthread_mutex_unlock(&c->lock);
    }
    return NULL;
}

static unsigned crew_size(size_t n, int64_t bytes)
{
    cpu_set_t set;
    size_t cores = sched_getaffinity(0, sizeof set, &set) == 0 ? (size_t)CPU_COUNT(&set) : 1;
    size_t most = cores < SEALFS_CREW_MAX ? cores : SEALFS_CREW_MAX;

    return bytes < ALONE_BYTES ? 1 : (unsigned)(n < most ? n : most);
}

/* What is signalled to this program is not theirs. */
static unsigned crew_hire(struct crew *c, unsigned others, pthread_t *threads)
{
    sigset_t all, before;
    unsigned made = 0;

    (void)sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0)
        return 0;
    while (made < others && pthread_create(&threads[made], NULL, crew_member, c) == 0)
        made++;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return made;
}

int sealfs_crew(size_t n, int64_t bytes, int (*each)(size_t i, void *arg, struct err *err),
                void *arg, struct err *err)
{
    struct crew c = {.n = n, .each = each, .arg = arg, .failed = n};
    pthread_t threads[SEALFS_CREW_MAX];
    unsigned size = crew_size(n, bytes);

    if (pthread_mutex_init(&c.lock, NULL) != 0)
        return err_set(err, E_NOMEM, "no lock can be made");
    unsigned made = size > 1 ? crew_hire(&c, size - 1, threads) : 0;
    (void)crew_member(&c);
    for (unsigned i = 0; i < made; i++)
        (void)pthread_join(threads[i], NULL);
    (void)pthread_mutex_destroy(&c.lock);
    if (c.rc < 0 && err)
        *err = c.err;
    return c.rc;
}
