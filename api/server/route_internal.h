/* The router's own header: api.c asks it, nobody else. */
#ifndef HANSE_API_SERVER_ROUTE_INTERNAL_H
#define HANSE_API_SERVER_ROUTE_INTERNAL_H

#include "api/server/server_internal.h"

/* Sets route, verb, names and kind of c. E_METHOD: `allow` lists the methods that the path has.
 * E_NOTFOUND. */
int route_find(struct call *c, char *allow, size_t n_allow, struct err *err) MUST_CHECK;

#endif
