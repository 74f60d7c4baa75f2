/* The tree part of runner_os on Linux; machine_linux.c puts the table together. The guard,
 * which has no loop, calls it directly (os may be NULL). */
#ifndef HANSE_CONNECTORS_SHIM_TREE_LINUX_H
#define HANSE_CONNECTORS_SHIM_TREE_LINUX_H

#include "connectors/shim/runner_os.h"

int tree_adopt_orphans(struct runner_os *os, struct err *err) MUST_CHECK;
int tree_process_count(struct runner_os *os, const struct runner_tree *t);
int tree_signal(struct runner_os *os, const struct runner_tree *t, int signo);
int tree_ask(struct runner_os *os, const struct runner_tree *t, int signo);
int tree_commits(struct runner_os *os, const struct runner_tree *t, int signo);
#define PORT_SOCKETS_MAX 64
struct port_sockets { /* that listen on one port */
    uint64_t inodes[PORT_SOCKETS_MAX];
    size_t n;
    bool six; /* none of them has an address of IPv4 */
};
/* True when processes of the tree have each of them open. */
bool tree_holds_sockets(const struct runner_tree *t, const struct port_sockets *v);

/* ---- how a tree is held (held_linux.c) ---- */
enum run_processes held_probe(struct runner_os *os, enum run_processes most, char ret_why[256]);
bool held_is_empty(const struct runner_tree *t); /* true also for a tree that nothing holds */
/* Kills the whole tree through what holds it. False: nothing holds it, or the kill cannot be done
 * so: each process has to be found. */
bool held_kill(const struct runner_tree *t);

/* ---- control groups (groups_linux.c) ---- */
#define GROUP_TOP "/hanse/"
/* Returns the prefix of group names; "" where there are none. of_old: as older versions made them,
 * also root's. */
void tree_group_place(struct runner_os *os, bool of_old, char out[RUN_GROUP_MAX]);
/* Makes a group; out is "" when that is not permitted here. */
void tree_group_create(struct runner_os *os, const char *name, char out[RUN_GROUP_MAX]);
void tree_group_remove(struct runner_os *os, const char *group);
bool group_join(const char *group);  /* moves this process */
bool group_holds(const char *group); /* false for a group of version 1, which only limits */
/* true also when it is gone: only an empty one can be removed */
bool group_is_empty(const char *group);
bool group_write(const char *group, const char *file, const char *text);
int group_text(const char *path, char *out, size_t size); /* returns bytes, or minus an errno */
bool group_make(const char *path);                        /* with its parent folder */
void group_sweep(void); /* removes empty groups that dead runs have left */

/* ---- limits of a group (limits_linux.c) ---- */
enum limit_kind { LIMIT_MEMORY, LIMIT_PIDS, LIMIT_CPU, LIMIT_DEVICES, LIMITS_NR };
const char *limits_text(enum limit_kind k);
struct run_limits {
    int64_t memory_bytes, pids, cpu_milli; /* 0: none; CPU is a share of what is free */
    bool devices;     /* allow only the devices that every program needs, and gpus */
    const char *gpus; /* "0,3" */
};
/* Called before the first process. Returns bits of 1 << limit_kind: the limits that are set. */
unsigned limits_set(const char *group, const struct run_limits *l);
bool limits_join(const char *group); /* this process, in the hierarchies of version 1 */
void limits_remove(const char *group);
bool tree_group_hit_memory(struct runner_os *os, const char *group);
const char *tree_tenants_probe(struct runner_os *os, const char *state, char ret_lacks[128]);
bool limits_hit_memory(const char *group); /* a process in it was killed for want of memory */

/* ---- a PID namespace (namespace_linux.c) ---- */
/* Becomes the keeper of a new namespace: starts its init and in it argv, passes signals on, and
 * exits as that does. Called instead of exec; it writes s->will on the way. Returns an exit status
 * when it could not. */
struct enter_spec;
int namespace_run(const struct enter_spec *s, const char *const *argv);
/* Returns 0 when a namespace can be made here, or an errno. */
int namespace_try(void);
/* Makes this process's children start in the namespace of the program that the will names. Returns
 * 0 also when that has none. */
int namespace_join(const char *will);

uint64_t tree_process_start(int64_t pid); /* in ticks since boot; 0: no such process */

#endif
