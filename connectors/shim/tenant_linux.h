/* A program among other tenants: it runs as a user of its namespace, with a view of the machine
 * that hides the agent's state and other tenants' temporary files, without a way to more rights,
 * and without system calls that such a program does not need. This happens between fork and exec,
 * inside the PID namespace (namespace_linux.c). A program must never start when one of these could
 * not be had. */
#ifndef HANSE_CONNECTORS_SHIM_TENANT_LINUX_H
#define HANSE_CONNECTORS_SHIM_TENANT_LINUX_H

#include "connectors/shim/shim.h"

/* Both return 0, or write a sentence to standard error and return an exit status. */
int tenant_view(const struct tenant_spec *t);   /* once for the namespace, as root */
int tenant_become(const struct tenant_spec *t); /* this process, for good */

/* Returns NULL when all of it can be done here, or what cannot. Blocks for some ms. */
const char *tenant_try(const char *state);

/* Filters the system calls of this process and all its children. Returns 0 or an errno. */
int syscalls_limit(void);

#endif
