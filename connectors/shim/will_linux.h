/* The will: which process a shim's program was, and how it ended, for when the shim dies. The shim
 * never reaps its program before it has written end.json, so the process that inherits its children
 * (its guard, then the agent) finds the exit status with the kernel; the will says of which child.
 * Part of runner_os on Linux (runner_os.h has the comments); guard and enter call it directly. */
#ifndef HANSE_CONNECTORS_SHIM_WILL_LINUX_H
#define HANSE_CONNECTORS_SHIM_WILL_LINUX_H

#include "connectors/shim/shim.h"

#define WILL_FILE RUN_WILL_FILE /* in RANKDIR; without a folder it is in memory of the guard */

struct will {
    int64_t pid; /* 0: no program was started */
    uint64_t start;
    int64_t init; /* first process of its PID namespace; 0: it has none */
    uint64_t init_start;
    bool stopped, lease_lost, exited;
    uint64_t until_ms; /* deadline, CLOCK_BOOTTIME; 0: none, or not known */
};
int will_begin(struct runner_os *os, const char *path, struct err *err) MUST_CHECK;
/* Called by the process that becomes the program, or waits for it outside its namespace: writes its
 * pid and start time, and those of the namespace's init (0: none). */
bool will_program(const char *path, int64_t init);
void will_flag(struct runner_os *os, const char *path, char flag);
/* The same in two steps, for who has another /proc in between, by which the path is another file.
 * -1: there is no will; that may be flagged, too. */
int will_open(const char *path);
void will_flag_to(int fd, char flag);
bool will_keeper_died(struct runner_os *os, const char *path);
/* Tells the guard first (guard_linux.c). */
void will_deadline_tell(struct runner_os *os, const char *path, uint64_t until_ms, bool lost);
uint64_t will_deadline_read(struct runner_os *os, const char *dir);
/* False: there is no will. */
bool will_read(const char *path, struct will *ret);
int64_t will_pid(struct runner_os *os, const char *dir);

bool will_exit_seen(struct runner_os *os, int64_t pid, int *ret_code, int *ret_signal);
void will_exit_reap(struct runner_os *os, int64_t pid);
/* dir NULL: no folder; only the will is read. */
bool will_tell(const char *dir, const char *path, bool boot, struct run_report *ret);
bool will_last_words(struct runner_os *os, const char *dir, bool boot, struct run_report *ret);
bool will_orphans_reap(struct runner_os *os, bool (*spared)(int64_t pid, void *arg), void *arg);

#endif
