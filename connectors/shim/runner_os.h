/* What the agent and the shim need from the machine beyond the seam (api/base/loop/loop.h): finding
 * and killing whole process trees, cgroups, the machine's own description. It is a small table, so
 * that the simulator can put its own machine beneath the unchanged agent and shim. Linux:
 * tree_linux.c, machine_linux.c.
 *
 * A tree is held together by a control group or by a PID namespace where the machine permits one:
 * then the kernel itself proves that nothing is left. Where it permits neither, the tree is
 * searched for: by descent from the shim, which is subreaper, so that setsid and double fork do not
 * help; by a marker in the environment; by the program's session. A search finds what it can; it is
 * no proof, and its end is reported as searched. */
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
#define WILL_STOPPED 'S'    /* the run had been asked to stop */
#define WILL_LEASE_LOST 'L' /* its lease was over */
#define WILL_EXITED 'E'     /* its keeper saw the program end, and its namespace lived */

/* Ways to hold a tree together, weakest first; named as in Node.status.isolation.processes. */
enum run_processes { RUN_SEARCHED, RUN_CGROUP, RUN_NAMESPACE, RUN_PROCESSES_NR };
const char *run_processes_text(enum run_processes p);
bool run_processes_parse(const char *s, enum run_processes *ret);

struct runner_tree {
    /* CGROUP: by group; NAMESPACE: by the namespace in the will, and by group */
    enum run_processes held;
    /* path of the will, which names the program and its namespace; "" or NULL: not known */
    const char *will;
    /* value of HANSE_RUN_KEY to search for; with '/' at the end: all ranks; "": no such search */
    const char *marker;
    const char *group; /* control group; "": none */
    int64_t root;      /* search descendants of this process, itself excluded; 0: no such search */
    int64_t spare[2];  /* never counted or signalled: the shim and its guard */
    int64_t watched;   /* pid of a child of root that the loop reaps itself */
    /* More such children: those for which own() is true. NULL: there are none. */
    bool (*own)(int64_t pid, void *arg);
    void *own_arg;
    /* Search orphans that came to this process, a subreaper above many trees: its children for
     * which spared() is false. NULL: no such search. */
    bool (*spared)(int64_t pid, void *arg);
    void *arg;
};

#define RUN_GPUS_MAX LIMIT_NODE_GPUS
struct runner_gpu { /* as the GPU's driver reports it */
    char model[96], uuid[96];
    int64_t memory_bytes;
};
struct runner_os;
struct run_report;
struct runner_os_ops {
    /* Makes orphans below this process come to it instead of init. */
    int (*adopt_orphans)(struct runner_os *os, struct err *err);
    /* Finds by trying the strongest way that this machine permits, at most `most`. ret_why: why not
     * a stronger one, "" when there is none. Blocks for some ms; for the start of a program. */
    enum run_processes (*processes_probe)(struct runner_os *os, enum run_processes most,
                                          char ret_why[256]);
    /* Returns the prefix of the control groups that shims make; "" where they can make none.
     * of_old: the prefix that shims of older versions used. */
    void (*group_place)(struct runner_os *os, bool of_old, char out[RUN_GROUP_MAX]);
    void (*group_remove)(struct runner_os *os, const char *group);
    /* true when its memory limit was hit */
    bool (*group_hit_memory)(struct runner_os *os, const char *group);
    /* Checks whether programs can be kept apart here, with the state folder there; NULL: yes, else
     * what is in the way. ret_lacks: names of limits that cannot be set, separated by ','. Blocks
     * for some ms. */
    const char *(*tenants_probe)(struct runner_os *os, const char *state, char ret_lacks[128]);
    /* Counts the live processes of the tree; reaps orphans of this process first. 0 only when what
     * holds the tree says so too, or when several complete passes have found none. Negative: it
     * cannot be told. */
    int (*tree_process_count)(struct runner_os *os, const struct runner_tree *t);
    /* Sends signo to each of them (SIGKILL also through the control group). Returns how many there
     * were, or negative. */
    int (*tree_signal)(struct runner_os *os, const struct runner_tree *t, int signo);
    /* Sends signo to those of its processes that catch it, and to nobody whom it would end.
     * Returns how many, or negative. */
    int (*tree_ask)(struct runner_os *os, const struct runner_tree *t, int signo);
    /* Counts its processes that are a `hanse checkpoint commit` which does not ignore signo yet. */
    int (*tree_commits)(struct runner_os *os, const struct runner_tree *t, int signo);
    /* True when a child that was spawned `kept` has exited; its status stays with the kernel. */
    bool (*exit_seen)(struct runner_os *os, int64_t pid, int *ret_code, int *ret_signal);
    void (*exit_reap)(struct runner_os *os, int64_t pid);
    /* The shim's will (will_linux.h): will_begin begins it anew, will_flag sets a flag. */
    int (*will_begin)(struct runner_os *os, const char *path, struct err *err);
    void (*will_flag)(struct runner_os *os, const char *path, char flag);
    /* True when a program in a namespace has ended and its keeper has not said so: the keeper was
     * killed, or the namespace's first process, and the program with it. */
    bool (*keeper_died)(struct runner_os *os, const char *path);
    /* Tells the guard, and by the will the agent, the deadline of the program (CLOCK_BOOTTIME):
     * they enforce it when this process does not. until_ms 0: for ever, or nothing is left; lost:
     * the lease ends then. */
    void (*deadline_tell)(struct runner_os *os, const char *will, uint64_t until_ms, bool lost);
    uint64_t (*deadline_read)(struct runner_os *os, const char *dir); /* 0: none or not known */
    /* Reports the end of a worker whose shim died and of which nothing is left; false when nothing
     * is known. boot: this is the boot in which it was started. */
    bool (*last_words)(struct runner_os *os, const char *dir, bool boot, struct run_report *ret);
    /* Reaps orphans of this process, except the loop's children and those with last words. False:
     * something is left to look at again. */
    bool (*orphans_reap)(struct runner_os *os, bool (*spared)(int64_t pid, void *arg), void *arg);
    /* pid of its program; 0: not known */
    int64_t (*will_pid)(struct runner_os *os, const char *dir);
    void (*boot_id)(struct runner_os *os, char out[64]);
    int64_t (*self)(struct runner_os *os);
    /* Returns the argv[0] that starts this very program again. */
    const char *(*program)(struct runner_os *os);
    /* reads the agent's environment; NULL when unset */
    const char *(*getenv)(struct runner_os *os, const char *name);
    void (*machine)(struct runner_os *os, int64_t *ret_cpu_milli, int64_t *ret_memory_bytes,
                    char hostname[256]);
    /* True when the TCP port is free on all addresses of this machine. */
    bool (*port_free)(struct runner_os *os, uint16_t port);
    /* Lists the machine's GPUs; returns how many, or an error that says what is missing. */
    int (*gpus)(struct runner_os *os, struct runner_gpu ret[RUN_GPUS_MAX], struct err *err);
};
struct runner_os {
    const struct runner_os_ops *ops;
    void *impl;
};
struct runner_os *runner_os_linux(void); /* one for the process; never freed */
/* What files this process inherited, but for the standard three, no program that it starts gets. */
void runner_os_keep_files(void);

#endif
