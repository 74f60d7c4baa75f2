/* What a runner that calls home asks of its kernel. Private to connectors/home. */
#ifndef HANSE_CONNECTORS_HOME_HOME_LINUX_H
#define HANSE_CONNECTORS_HOME_HOME_LINUX_H

#include <stddef.h>

/* From now on other processes of this user (its own program, above all) cannot read this process's
 * memory, nor what /proc tells of it alone (PR_SET_DUMPABLE of prctl(2)); it leaves no core. */
void home_memory_keep(void);
#define HOME_FOLDER_MAX 1024
/* A folder that is this user's alone, below TMPDIR or /tmp. Returns 0 or errno. */
int home_folder_make(char ret[HOME_FOLDER_MAX]);
/* All of it to standard output, however long that takes; what cannot be written is lost. */
void home_output_write(const char *p, size_t n);

#endif
