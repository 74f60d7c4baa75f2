/* A program among strangers: a user of its namespace's own, a view of the machine in which neither
 * the agent's state nor other tenants' temporary files are, no way to more rights, and no system
 * calls that a program of this kind has no use for. Between fork and exec, inside the PID namespace
 * (namespace_linux.c). Never starts a program when one of these could not be had. */
#ifndef HANSE_CONNECTORS_SHIM_TENANT_LINUX_H
#define HANSE_CONNECTORS_SHIM_TENANT_LINUX_H

#include "connectors/shim/shim.h"

/* Both leave a sentence on standard error, and return an exit status, or 0. */
int tenant_view(const struct tenant_spec *t);   /* once for the namespace, as root */
int tenant_become(const struct tenant_spec *t); /* this process, for good */

/* Can all of it be done here? NULL, or what cannot. Blocks for some ms. */
const char *tenant_try(const char *state);

/* A filter on the system calls of this process and all that it starts. 0, or an errno. */
int syscalls_limit(void);

#endif
