/* HTTP proxies that let TCP streams through (CONNECT, RFC 9110 section 9.3.6): where one is, for
 * which addresses, and how its answer is read. What goes through one is TLS with the peer itself,
 * so a proxy is trusted with nothing but the way. Streams use it in api/base/uv. */
#ifndef HANSE_API_BASE_NET_PROXY_H
#define HANSE_API_BASE_NET_PROXY_H

#include "api/base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define PROXY_URL_MAX 1024
#define PROXY_LOGIN_MAX 512 /* USER:PASSWORD */
struct proxy {
    char address[256];       /* HOST:PORT, whose name this machine resolves */
    char authorization[700]; /* value of Proxy-Authorization, or ""; a secret */
    char bypass[4096];       /* as NO_PROXY: who is connected to straight; "": nobody */
};
/* Takes "http://[USER[:PASSWORD]@]HOST[:PORT]", where a user may have %XX, and the port is 80.
 * Errors never repeat what may be a password. E_INVALID. */
int proxy_parse(const char *text, struct proxy *ret, struct err *err) MUST_CHECK;
/* Basic authorisation by "USER:PASSWORD", up to its first line's end. E_INVALID. */
int proxy_login(struct proxy *p, const char *login, struct err *err) MUST_CHECK;
/* As HTTPS_PROXY (or https_proxy) and NO_PROXY (or no_proxy) say. 1: there is one; 0: none. */
int proxy_environment(struct proxy *ret, struct err *err) MUST_CHECK;
/* What an option says: a URL, or "environment" for the above. Text with a password in it is
 * overwritten, so that no list of processes shows it. 1: there is one; 0: the environment has
 * none. */
int proxy_option(char *text, struct proxy *ret, struct err *err) MUST_CHECK;
struct loop;
int proxy_login_file(struct loop *l, const char *path, struct proxy *p,
                     struct err *err) MUST_CHECK;
/* Does what goes to that "HOST:PORT" go through it? bypass: hosts, whose subdomains count, too,
 * with or without a port; addresses; networks as 10.0.0.0/8; "*" for all; by commas or blanks. */
bool proxy_is_for(const struct proxy *p, const char *address);
void proxy_wipe(struct proxy *p);

/* ---- its answer ---- */
#define PROXY_ANSWER_MAX 16384 /* bytes ahead of the tunnel, with what 1xx answers take */
struct proxy_answer {
    unsigned n, line_n; /* bytes of all, and of this line */
    int status;         /* 0: its line has not ended yet */
    bool cr;            /* the last byte was one */
    char line[16];      /* the begin of the first line */
};
/* Returns 1 once the answer is whole, with its status in `status`, and how many of these bytes
 * belong to it; 0: there is more to come; E_CONNECT: it is no answer of an HTTP proxy. */
int proxy_answer_take(struct proxy_answer *a, const char *p, size_t n, size_t *ret_taken,
                      struct err *err) MUST_CHECK;
/* What a status means to who wanted to get to `address`; 0: the way is open. */
int proxy_answer_judge(int status, const char *address, struct err *err) MUST_CHECK;

#endif
