/* What is left when a shim dies: which process its program was, and how that ended. The shim never
 * reaps its program before it has written end.json, so whoever inherits its children (its guard,
 * then the agent) finds the exit status with the kernel; this says of which child, and reads it.
 * Part of runner_os on Linux (runner_os.h has the comments); guard and enter call it directly. */
#ifndef HANSE_CONNECTORS_SHIM_WILL_LINUX_H
#define HANSE_CONNECTORS_SHIM_WILL_LINUX_H

#include "connectors/shim/shim.h"

#define WILL_FILE RUN_WILL_FILE /* in RANKDIR; without a folder it is in the guard's memory */

struct will {
    int64_t pid; /* 0: no program ever was */
    uint64_t start;
    int64_t init; /* first process of its PID namespace; 0: it has none of its own */
    uint64_t init_start;
    bool stopped, lease_lost;
    uint64_t until_ms; /* 0 = none, or not known */
};
int will_begin(struct runner_os *os, const char *path, struct err *err) MUST_CHECK;
/* By the process that becomes the program, or that waits for it outside of its namespace: its pid
 * and when it was started, and those of the namespace's init; 0 = none. */
bool will_program(const char *path, int64_t init);
void will_flag(struct runner_os *os, const char *path, char flag);
/* The guard hears of it first (guard_linux.c). */
void will_deadline_tell(struct runner_os *os, const char *path, uint64_t until_ms, bool lost);
uint64_t will_deadline_read(struct runner_os *os, const char *dir);
/* False: there is none. */
bool will_read(const char *path, struct will *ret);
int64_t will_pid(struct runner_os *os, const char *dir);

bool will_exit_seen(struct runner_os *os, int64_t pid, int *ret_code, int *ret_signal);
void will_exit_reap(struct runner_os *os, int64_t pid);
/* dir NULL: no folder, then the will alone tells. */
bool will_tell(const char *dir, const char *path, bool boot, struct run_report *ret);
bool will_last_words(struct runner_os *os, const char *dir, bool boot, struct run_report *ret);
bool will_orphans_reap(struct runner_os *os, bool (*spared)(int64_t pid, void *arg), void *arg);

#endif
