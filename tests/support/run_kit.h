/* `hanse run` with real processes, and what tests need to know of processes. The test program
 * itself is the shim, and the program that wants to get away: its main() begins with
 * run_kit_main(). Must hold no opinion of what is right; it starts, waits and looks. */
#ifndef HANSE_TESTS_SUPPORT_RUN_KIT_H
#define HANSE_TESTS_SUPPORT_RUN_KIT_H

#include "connectors/shim/shim.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* `run …`; `escape FILE`: leaves its session and its parent, ignores what it can, writes its pid;
 * `ghost FILE`: the same, and then its first thread ends; `chain FILE`: forks and exits for ever,
 * and counts that in FILE (a long) as long as that is there. -1 = this is the test itself. */
int run_kit_main(int argc, char **argv);

/* ---- processes ---- */
char pid_state(long pid); /* as ps says: R S D T Z …; X = there is none */
bool pid_alive(long pid); /* neither gone nor a zombie */
long pid_parent(long pid);
int pid_threads(long pid);       /* 1 of a zombie; 0 = gone */
long pid_child(long pid);        /* its first; 0 = none */
long pid_in_file(const char *p); /* the pid that a program wrote there; 0 = none yet */
/* Until the process is in one of these states. */
bool pid_await(long pid, const char *states, uint64_t ms);

/* ---- `hanse run`, in a folder of the test's own ---- */
extern char run_dir[64];
int run_kit_setup(void **state);
int run_kit_teardown(void **state);
const char *run_file(const char *name); /* below the folder; good until the next call but seven */
uint64_t run_now_ms(void);
long run_pid(const char *name); /* waits until a program wrote its pid there */
/* argv as `hanse` gets it. Its environment is ours and, with a key, HANSE_RUN_KEY. */
pid_t run_start(const char *key, const char *const *argv);
int run_finish(pid_t pid); /* exit status; 1000 + signal */
int run_all(const char *const *argv);
/* What end.json says; it is removed. */
void run_ended(struct run_report *ret);

#endif
