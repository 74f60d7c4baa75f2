/* A transport under the HTTP client that behaves as a test's script says: as a good server, or as a
 * bad one. Each attempt is shown to `serve`, which says what becomes of it. */
#ifndef HANSE_TESTS_SUPPORT_WEB_SCRIPT_WEB_H
#define HANSE_TESTS_SUPPORT_WEB_SCRIPT_WEB_H

#include "connectors/web/web.h"

enum script_how {
    SCRIPT_ANSWERS,     /* status, headers, body */
    SCRIPT_REFUSES,     /* no connection: nothing leaves */
    SCRIPT_BAD_TLS,     /* the certificate does not hold: nothing leaves */
    SCRIPT_RESETS,      /* takes the request, then cuts the connection */
    SCRIPT_IS_SILENT,   /* takes the request, and nothing comes */
    SCRIPT_HALVES,      /* half of the body, then the connection is cut */
    SCRIPT_LASTS,       /* status, headers, body, and no end of it */
    SCRIPT_TRICKLES,    /* a byte of the body each second, for ever */
    SCRIPT_FLOODS,      /* a body without end */
    SCRIPT_BEGINS_TWICE /* a kept connection was dead: sent again on another, then answers */
};
struct script_try { /* what the server sees; borrowed */
    const char *method, *url;
    const struct web_header *headers;
    size_t n_headers;
    struct slice body;
};
const char *script_header(const struct script_try *t, const char *name); /* "" when absent */
struct script_reply {
    enum script_how how;
    int status; /* 0: 200 */
    struct web_header headers[8];
    size_t n_headers;
    const char *body; /* NULL: "" */
    uint64_t after_ms;
    char room[65536]; /* for body and values that serve makes */
};
struct script {
    void (*serve)(void *arg, const struct script_try *t, struct script_reply *ret);
    void *arg;
    unsigned tries, under_way, most_under_way, aborted;
    uint64_t sent_bytes; /* of bodies that the server could give away */
};
/* There is one script at a time: transports made from here on follow it. */
extern struct script script_web;
extern const struct web_transport_ops script_web_ops;

#endif
