/* The tree part of runner_os on Linux; agent/machine_linux.c puts the table together. The guard,
 * which has no loop, calls it directly (os may be NULL). */
#ifndef HANSE_CONNECTORS_RUN_TREE_LINUX_H
#define HANSE_CONNECTORS_RUN_TREE_LINUX_H

#include "connectors/run/runner_os.h"

int tree_adopt_orphans(struct runner_os *os, struct err *err) MUST_CHECK;
void tree_group_create(struct runner_os *os, const char *name, char out[RUN_GROUP_MAX]);
void tree_group_remove(struct runner_os *os, const char *group);
int tree_process_count(struct runner_os *os, const struct runner_tree *t);
int tree_signal(struct runner_os *os, const struct runner_tree *t, int signo);
void tree_log_trim(struct runner_os *os, const char *path, uint64_t max_bytes);

uint64_t tree_process_start(int64_t pid); /* in ticks since boot; 0 = there is none */

#endif
