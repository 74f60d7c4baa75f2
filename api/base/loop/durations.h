/* How long something took, each time: counted by one thread, told by any as a Prometheus histogram,
 * with the longest beside it. */
#ifndef HANSE_API_BASE_DURATIONS_H
#define HANSE_API_BASE_DURATIONS_H

#include "api/base/mem.h"

#include <stdatomic.h>

#define DURATION_BUCKETS 11
struct durations { /* zeroed: none yet */
    _Atomic uint64_t of[DURATION_BUCKETS + 1], sum_ns, max_ns;
};
void durations_add(struct durations *d, uint64_t ns);
uint64_t durations_max_ns(const struct durations *d);
/* NAME_seconds as a histogram, NAME_max_seconds as a gauge, with HELP and TYPE. Of each of the n
 * sets, labels[i] ("loop=\"core\"") tells it from the others; "" where there is one. */
void durations_tell(const struct durations *const *sets, const char *const *labels, size_t n,
                    const char *name, const char *help, struct buf *out);

#endif
