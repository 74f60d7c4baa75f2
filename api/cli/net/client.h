/* The CLI's HTTP client: requests over the seam's streams to whichever member of a cluster answers.
 *
 * A request is repeated over the servers, with jittered back-off, until its timeout: reads
 * always, writes because each carries an Idempotency-Key that stays the same. So a killed leader
 * is a pause, not an error. It must never repeat a request that has no key once bytes of it were
 * sent. */
#ifndef HANSE_API_CLI_CLIENT_H
#define HANSE_API_CLI_CLIENT_H

#include "api/base/loop/loop.h"
#include "api/base/net/tls.h"

#define CLIENT_SERVERS_MAX 16
#define CLIENT_ADDRESS_MAX 256

struct client;
struct client_spec {
    struct loop *loop;
    const char *const *servers; /* "https://host:port" or "unix:/path"; members of one cluster */
    unsigned n_servers;
    struct tls_config *tls; /* NULL with unix: only; the client takes a reference */
    const char *token;      /* or NULL */
    const char *headers;    /* of every request, each line with its CRLF; or NULL */
    uint64_t timeout_ms;    /* of a request with all its repetitions; 0 = 30 s */
    uint64_t answer_ms;     /* after so long without an answer the next server is asked; 0 = 10 s */
};
int client_create(const struct client_spec *spec, struct client **ret, struct err *err) MUST_CHECK;
struct client *client_destroy(struct client *c); /* lanes first */
unsigned client_servers(const struct client *c);

struct client_request {
    const char *method, *path; /* path with its query, encoded */
    const char *accept;        /* NULL = application/json */
    const char *content_type;  /* of the body; NULL = application/json */
    struct slice body;         /* borrowed until done */
    const char *key;           /* Idempotency-Key; NULL = one is made for writes */
    bool operation;      /* a POST that takes no key, and is the same however often it is done */
    const char *upgrade; /* protocol to switch to; such a request is never repeated */
    bool here;           /* this server only (client_lane_pin), no other */
    bool patient;        /* an answer may take as long as it likes (logs of a silent program) */
    uint64_t timeout_ms; /* 0 = the client's */
    /* A body that is read as it comes, when the status is 200. Not 0 ends the request. */
    int (*data)(const void *p, size_t n, void *arg);
    void *arg;
    uint64_t silent_ms; /* such a body is lost when nothing comes for so long; 0: never */
};
struct client_answer {
    int status;
    struct buf body;
    char location[2048];
    char content_type[128];
    unsigned tries;
};
void client_answer_init(struct client_answer *a);
void client_answer_fini(struct client_answer *a);

/* A lane carries one request at a time and keeps its connection for the next. */
struct client_lane;
struct client_lane *client_lane_create(struct client *c);
struct client_lane *client_lane_destroy(struct client_lane *l); /* no callback comes afterwards */
void client_lane_pin(struct client_lane *l, unsigned server);   /* begin with this server */
/* done() comes once. err NULL: an answer came, whatever its status. E_CONNECT, E_UNAVAIL: nothing
 * was done; E_UNKNOWN: it may have been. An answer with status 503, 504, 429 or 502 counts as one
 * only at the timeout. */
void client_start(struct client_lane *l, const struct client_request *rq,
                  struct client_answer *answer, void (*done)(void *arg, const struct err *err),
                  void *arg);
/* The same, running the loop until the answer is there. */
int client_perform(struct client_lane *l, const struct client_request *rq,
                   struct client_answer *answer, struct err *err) MUST_CHECK;
/* After 101: the stream belongs to the caller; `early` holds what came behind the answer. */
struct stream *client_take_stream(struct client_lane *l, struct buf *early);
/* Runs the loop until *flag; for callers with streams of their own. */
void client_run_until(struct loop *l, const bool *flag);
/* A Status answer (or any status from 400 on) as an error; 0 for a good answer. */
int client_status(const struct client_answer *a, struct err *err) MUST_CHECK;
/* Percent-encodes a query value or path segment. */
void client_encode(struct buf *out, const char *text);

#endif
