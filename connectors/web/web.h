/* One asynchronous HTTP client for drivers: a client per target, on the driver's loop.
 *
 *   - A request ends once, by its deadline: DONE with a whole answer, whatever its status is;
 *     REJECTED when provably nothing of it left; UNKNOWN otherwise.
 *   - Only a request whose caller says that it is idempotent is sent twice.
 *   - Redirects are answers like any other, and never followed. TLS is always verified; http is
 *     taken for this machine alone.
 *   - Secrets stay in memory, are wiped, and are cut out of every error.
 *   - What carries the bytes is a struct web_transport: libcurl, or a test's script. */
#ifndef HANSE_CONNECTORS_WEB_H
#define HANSE_CONNECTORS_WEB_H

#include "api/base/loop/loop.h"

struct web_client;
struct web_request;
struct web_transport_ops;

struct web_header {
    const char *name, *value;
};

/* What a signer puts on one attempt; `mark` comes back with its answer. */
#define WEB_STAMP_HEADERS 4
struct web_stamp {
    struct {
        char name[32], value[160];
    } headers[WEB_STAMP_HEADERS];
    unsigned n;
    char mark[160];
};
/* path: as it is sent, with the path of the URL before it, and the query. */
typedef void (*web_sign)(void *arg, const char *method, const char *path, struct slice body,
                         struct web_stamp *ret);

struct web_config {
    const char *target; /* for errors and the log */
    const char *url;    /* "https://host[:port][/path]" */
    /* PEM texts, whom to trust and what to show, and a bearer token; "" or NULL: the machine's CAs,
     * none, none */
    const char *ca_pem, *cert_pem, *key_pem, *token;
    const char *secret; /* a further text that no error may show; NULL: none */
    unsigned in_flight; /* requests under way at once; 0: 8 */
    unsigned queue_max; /* requests that wait for that; 0: 1024 */
    web_sign sign;      /* called for each attempt; NULL: none */
    void *sign_arg;
    const struct web_transport_ops *transport; /* NULL: libcurl, on the production loop */
};
/* Copies the config. E_INVALID: the URL, or what it would send in clear. */
int web_client_create(struct loop *l, const struct web_config *config, struct web_client **ret,
                      struct err *err) MUST_CHECK;
/* Ends what is under way without a word; accepts NULL; returns NULL. Allowed in done(). */
struct web_client *web_client_destroy(struct web_client *c);

struct web_answer { /* borrowed for the call of done() */
    int status;
    const struct web_header *headers;
    size_t n_headers;
    struct slice body; /* empty where `data` took it */
    uint64_t retry_after_ms;
    unsigned attempts;
    /* An earlier attempt left and was not answered: this answer to a later one does not prove that
     * nothing was done. */
    bool doubt;
    const char *mark; /* of the attempt that was answered */
};
/* Returns the first header of that name, in any case of letters, or "". */
const char *web_header_get(const struct web_answer *a, const char *name);
/* When the answer was made, by its server's clock: UTC ms of Date (RFC 9110, 6.6.1), which counts
 * whole seconds; 0: it does not say. */
int64_t web_answer_date_ms(const struct web_answer *a);

struct web_ask { /* all of it is copied */
    const char *method;
    const char *path; /* after that of the URL: "/v1/runs?limit=100" */
    const struct web_header *headers;
    size_t n_headers;
    struct slice body;
    bool idempotent;
    bool ahead;          /* it waits ahead of those that wait already; there is room for it */
    bool answers_final;  /* sent again only when there is no answer: 429 and 5xx are answers, too */
    size_t answer_max;   /* bytes of the answer's body; more end it as unknown */
    uint64_t attempt_ms; /* an attempt may take this long; 0: until the deadline */
    uint64_t deadline_ms;
    /* Takes the body of a 2xx answer as it comes; false: no more of it, the request is unknown. It
     * must not cancel. NULL: the body is kept for done(). A request with it is sent once. */
    bool (*data)(void *arg, const void *p, size_t n);
    /* err is set unless out is DONE; a is set with DONE. Never called from inside web_ask. */
    void (*done)(void *arg, enum outcome out, const struct web_answer *a, const struct err *err);
    void *arg;
};
struct web_request *web_ask(struct web_client *c, const struct web_ask *ask);
/* Forgets the request: done() does not come. */
void web_cancel(struct web_request *r);
/* Backpressure: no more of the answer is read. */
void web_pause(struct web_request *r, bool paused);

/* What it is at, for people and tests. */
struct web_stats {
    unsigned in_flight, queued, waiting; /* waiting: for their next attempt */
    unsigned failed;                     /* attempts in a row that got no answer, or 5xx */
    bool open;                           /* the breaker keeps requests back */
};
struct web_stats web_client_stats(const struct web_client *c);

/* ---- the seam ---- */
/* One attempt. The client owns it, and keeps it and what it points to until over() or abort. */
struct web_exchange {
    const char *method, *url;
    const struct web_header *headers;
    size_t n_headers;
    struct slice body;
    const struct web_exchange_events *ev;
    void *impl; /* the transport's */
};
struct web_exchange_events { /* none of them comes from inside begin, abort or pause */
    /* From now on something may leave. false: it must not; over() follows. */
    bool (*sending)(struct web_exchange *x);
    void (*status)(struct web_exchange *x, int status); /* starts the headers anew */
    bool (*header)(struct web_exchange *x, const char *name, const char *value);
    bool (*data)(struct web_exchange *x, const void *p, size_t n);
    /* Last call. code 0: the answer is whole. */
    void (*over)(struct web_exchange *x, int code, const char *why);
};
struct web_transport {
    const struct web_transport_ops *ops;
};
struct web_transport_ops {
    /* Takes what concerns TLS and connections from the config, whose texts live as long as it. */
    int (*create)(struct loop *l, const struct web_config *config, struct web_transport **ret,
                  struct err *err);
    void (*destroy)(struct web_transport *t); /* nothing is under way */
    void (*begin)(struct web_transport *t, struct web_exchange *x);
    void (*abort)(struct web_transport *t, struct web_exchange *x); /* no event comes after it */
    void (*pause)(struct web_transport *t, struct web_exchange *x, bool paused);
};
extern const struct web_transport_ops web_curl;

#endif
