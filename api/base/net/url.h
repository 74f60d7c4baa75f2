/* Addresses of web servers that others give us: "https://host[:port][/path]". */
#ifndef HANSE_API_BASE_NET_URL_H
#define HANSE_API_BASE_NET_URL_H

#include "api/base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct url {
    bool tls;      /* https; otherwise http */
    bool loopback; /* the host is written as this machine's own: 127.…, ::1, localhost */
    int origin_n;  /* length of "scheme://host:port" */
    int path_n;    /* length of the path after that, without the slashes at its end */
};
/* Takes http and https, and nothing that a client could read in two ways: no user, query or
 * fragment, no blanks. E_INVALID. */
int url_parse(const char *s, struct url *ret, struct err *err) MUST_CHECK;

#endif
