/* Work on a target that Hanse did not start: a third interface, of drivers that can list it. It is
 * read when somebody asks what Hanse would have done with it, and then alone. Nothing is changed by
 * it, and nothing that decides rests on it: what others hold of nodes the inventory tells. */
#ifndef HANSE_CONNECTORS_FOREIGN_H
#define HANSE_CONNECTORS_FOREIGN_H

#include "api/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum foreign_list {
    FOREIGN_JOBS, /* what may be handed over, whether it runs or not; none that has ended */
    FOREIGN_PODS  /* what holds devices, or will; none that has ended */
};
#define FOREIGN_DEVICES_MAX 8
struct foreign_device { /* of one row of its node's `counted` */
    const char *resource; /* as the target calls them */
    const char *model;    /* that row's; "": the node has none of them by now */
    const char *mig;
    int64_t shares, count;
};
/* One of them. Texts are never NULL; everything is borrowed for the call. */
struct foreign_item {
    const char *kind, *ns, *name, *uid; /* "Job", "Pod" */
    /* What made it and answers for it; "": nothing, it was made by hand. */
    const char *owner_kind, *owner_name, *owner_uid;
    int64_t since_ms; /* UTC: a pod was begun, a Job was made; 0: not known */

    /* of FOREIGN_JOBS */
    const char *manifest; /* JSON, without what only its cluster writes */
    const char *hanse_ns; /* namespace of Hanse in which its Workload would be, */
    const char *place;    /* and of the target, in which that would run */
    bool suspended;

    /* of FOREIGN_PODS */
    const char *node; /* "TARGET.NODE"; "": on none yet */
    bool runs;        /* its program does */
    int64_t cpu_milli, memory_bytes;
    struct foreign_device devices[FOREIGN_DEVICES_MAX];
    unsigned n_devices;
    bool more; /* kinds of devices than these */
};
struct foreign_page {
    const struct foreign_item *v;
    size_t n;
    const char *next; /* what to ask for with `after`; "": this was the last page */
};
/* p is NULL with an error: E_GONE, the pages before do not go on any more: begin anew. */
typedef void (*foreign_cb)(void *arg, const struct foreign_page *p, const struct err *err);
struct foreign_ask { /* everything is copied */
    enum foreign_list what;
    const char *ns;    /* of the target; "": all */
    const char *after; /* "": from the start */
    uint64_t deadline_ms;
};

#endif
