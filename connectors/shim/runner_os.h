/* What the agent and the shim need from the machine and the seam (api/base/loop/loop.h) does not
 * have: finding and killing whole process trees, cgroups, the machine's own description. A small
 * table, so that the simulator can put its own machine beneath the unchanged agent and shim. Linux:
 * tree_linux.c, machine_linux.c.
 *
 * A tree is held together by a control group or by a PID namespace where the machine permits one:
 * then the kernel itself proves that nothing is left. Where it permits neither, the tree is
 * searched for: by descent from the shim, which is subreaper, so that setsid and double fork do not
 * help; by a marker in the environment; by the program's session. A search finds what it can; it is
 * no proof, and its end is told as searched. */
#ifndef HANSE_CONNECTORS_SHIM_RUNNER_OS_H
#define HANSE_CONNECTORS_SHIM_RUNNER_OS_H

#include "api/base/err.h"
#include "api/base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RUN_MARKER_ENV "HANSE_RUN_KEY" /* "UID.EPOCH.TRY/RANK" */
#define RUN_MARKER_MAX 128
#define RUN_GROUP_MAX 512

/* Flags of a will. */
#define WILL_STOPPED 'S'    /* it had been asked to stop */
#define WILL_LEASE_LOST 'L' /* its lease was over */

/* What holds a tree together, from the weakest on; names as Node.status.isolation.processes has
 * them. */
enum run_processes { RUN_SEARCHED, RUN_CGROUP, RUN_NAMESPACE, RUN_PROCESSES_NR };
const char *run_processes_text(enum run_processes p);
bool run_processes_parse(const char *s, enum run_processes *ret);

struct runner_tree {
    enum run_processes held; /* CGROUP: by group; NAMESPACE: by that of the will, and by group */
    const char *will;        /* names the program and its namespace; "" or NULL = not known */
    const char *marker; /* value of HANSE_RUN_KEY; a value ending in '/' stands for all ranks; "" =
                           no such net */
    const char *group;  /* control group; "" = none */
    int64_t root;       /* descendants of this process, itself excluded; 0 = no such net */
    int64_t spare[2];   /* never counted or signalled: the shim and its guard */
    int64_t watched;    /* child of root that the loop reaps itself */
    /* Orphans that came to this process, a subreaper above many trees: its children that are
     * nobody's. NULL = no such net. */
    bool (*spared)(int64_t pid, void *arg);
    void *arg;
};

#define RUN_GPUS_MAX LIMIT_NODE_GPUS
struct runner_gpu { /* as the driver tells it */
    char model[96], uuid[96];
    int64_t memory_bytes;
};
struct runner_os;
struct run_report;
struct runner_os_ops {
    /* Orphans below this process come to it instead of to init. */
    int (*adopt_orphans)(struct runner_os *os, struct err *err);
    /* What this machine permits, found by trying: the strongest that is at most `most`. ret_why:
     * why not a stronger one, "" when there is none. Blocks for some ms; for the start of a
     * program. */
    enum run_processes (*processes_probe)(struct runner_os *os, enum run_processes most,
                                          char ret_why[256]);
    /* What the names of control groups that shims make come after; "" where they can make none.
     * of_old: as shims of older versions made them. */
    void (*group_place)(struct runner_os *os, bool of_old, char out[RUN_GROUP_MAX]);
    void (*group_remove)(struct runner_os *os, const char *group);
    bool (*group_hit_memory)(struct runner_os *os, const char *group); /* its limit was met */
    /* Can programs be kept apart here, with the state folder there? ret_lacks: names of the
     * limits that cannot be had, with ',' between. NULL: yes, or what is in the way. Blocks for
     * some ms. */
    const char *(*tenants_probe)(struct runner_os *os, const char *state, char ret_lacks[128]);
    /* Processes of the tree that live; reaps orphans of this process first. 0 is said when what
     * holds the tree says so too, or when several passes, each complete, have found none. Negative:
     * could not be told. */
    int (*tree_process_count)(struct runner_os *os, const struct runner_tree *t);
    /* Sends signo to each of them (SIGKILL also through the control group). How many there were, or
     * negative. */
    int (*tree_signal)(struct runner_os *os, const struct runner_tree *t, int signo);
    /* A child that was spawned `kept`: has it exited? Its status stays where it is. */
    bool (*exit_seen)(struct runner_os *os, int64_t pid, int *ret_code, int *ret_signal);
    void (*exit_reap)(struct runner_os *os, int64_t pid);
    /* The shim's will (will_linux.h): begins it anew; sets one of its flags. */
    int (*will_begin)(struct runner_os *os, const char *path, struct err *err);
    void (*will_flag)(struct runner_os *os, const char *path, char flag);
    /* For the guard, and by the will for the agent, which enforce it when this process does not:
     * the program may live until then (CLOCK_BOOTTIME). until 0: for ever, or nothing is left;
     * lost: it is the lease that is over then. */
    void (*deadline_tell)(struct runner_os *os, const char *will, uint64_t until_ms, bool lost);
    uint64_t (*deadline_read)(struct runner_os *os, const char *dir); /* 0: none, or not known */
    /* What is known of the end of a worker whose shim died and of which nothing is left. False:
     * nothing. boot: this is the boot that it was started in. */
    bool (*last_words)(struct runner_os *os, const char *dir, bool boot, struct run_report *ret);
    /* Reaps what came to this process as subreaper; not what is the loop's, nor what has last
     * words. False: something is left to be looked at again. */
    bool (*orphans_reap)(struct runner_os *os, bool (*spared)(int64_t pid, void *arg), void *arg);
    int64_t (*will_pid)(struct runner_os *os, const char *dir); /* its program; 0 = not known */
    /* Drops the older half of a log that is larger than max; a writer goes on undisturbed. */
    void (*log_trim)(struct runner_os *os, const char *path, uint64_t max_bytes);
    void (*boot_id)(struct runner_os *os, char out[64]);
    int64_t (*self)(struct runner_os *os);
    /* argv[0] that starts this very program again. */
    const char *(*program)(struct runner_os *os);
    /* of the agent; NULL when unset */
    const char *(*getenv)(struct runner_os *os, const char *name);
    void (*machine)(struct runner_os *os, int64_t *ret_cpu_milli, int64_t *ret_memory_bytes,
                    char hostname[256]);
    /* Is the TCP port free on all of this machine's addresses? */
    bool (*port_free)(struct runner_os *os, uint16_t port);
    /* The machine's GPUs: how many, or an error that says what is missing. */
    int (*gpus)(struct runner_os *os, struct runner_gpu ret[RUN_GPUS_MAX], struct err *err);
};
struct runner_os {
    const struct runner_os_ops *ops;
    void *impl;
};
struct runner_os *runner_os_linux(void); /* one for the process; nothing to free */

#endif
