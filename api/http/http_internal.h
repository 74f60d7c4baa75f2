/* Private to api/http: a connection, the request that it is at, and the parser between them. */
#ifndef HANSE_API_HTTP_HTTP_INTERNAL_H
#define HANSE_API_HTTP_HTTP_INTERNAL_H

#include "api/base/limits.h"
#include "api/base/list.h"
#include "api/http/http.h"

#define SEGMENTS_MAX 16

enum conn_state {
    CONN_HEAD,     /* waits for, or collects, a request's head */
    CONN_BODY,     /* collects its body */
    CONN_HANDLING, /* the handler has it */
    CONN_CLOSING   /* last bytes are on their way */
};

struct http_request {
    struct http_conn *conn; /* NULL once the client has gone */
    struct arena *arena;
    struct http_message msg;
    struct buf body;
    struct http_share *share; /* a reference */
    unsigned slot;
    size_t held; /* of the body */
    bool keep_alive, http10, head_only, accepts_gzip, gzip_body, expect_continue;
    bool answered, streaming, unframed; /* unframed: HTTP/1.0 stream, ended by closing */
    bool late, ended;                   /* streaming began after the client had gone */
    struct loop *loop;
    void (*on_close)(void *arg);
    void *on_close_arg;
    void (*on_drained)(void *arg);
    void *on_drained_arg;
};

/* ---- http_share.c ---- */
enum http_side { HTTP_IN, HTTP_OUT, HTTP_SIDES };
struct http_share;
struct http_share *http_share_create(void);
struct http_share *http_share_ref(struct http_share *s);
struct http_share *http_share_unref(struct http_share *s);
unsigned http_share_slot(const struct peer_identity *who, const char *authorization);
/* Would n bytes more be too many? */
bool http_share_over(const struct http_share *s, enum http_side side, unsigned slot, size_t n);
/* *held bytes become n. */
void http_share_set(struct http_share *s, enum http_side side, unsigned slot, size_t *held,
                    size_t n);

struct http_parse; /* the parser library's state, in http_parse.c */

struct http_conn {
    struct list link;
    struct http_server *server;
    struct stream *stream;
    struct buf in; /* bytes not yet taken: a head that is not whole, or pipelined requests */
    struct http_parse *parse;
    enum conn_state state;
    struct http_request *rq;
    unsigned slot; /* of the client that asked last */
    size_t held;   /* of answers that wait, as of the last look */
    struct timer deadline;
    uint64_t state_since_ms;
    bool paused, working;
};

struct http_server {
    struct loop *loop;
    struct http_config cfg;
    http_handler handler;
    void *arg;
    struct list conns;
    struct http_share *share;
    struct http_stats stats;
    bool closing;
    void (*closed)(void *arg);
    void *closed_arg;
    struct timer grace;
};

/* ---- http_parse.c ---- */
struct http_parse *http_parse_create(void);
struct http_parse *http_parse_destroy(struct http_parse *p);
/* Checks a whole head (up to and including the empty line) for what a parser may let pass, then
 * parses it into *rq. Returns 0, or the HTTP status to refuse with; *why is a constant sentence. */
int http_parse_head(struct http_parse *p, const char *head, size_t n, struct http_request *rq,
                    const char **why);
/* Feeds body bytes. *ret_used: bytes taken; *ret_done: the message is whole. 0 or an HTTP
 * status. */
int http_parse_body(struct http_parse *p, const char *bytes, size_t n, struct http_request *rq,
                    size_t *ret_used, bool *ret_done, const char **why);
bool http_parse_bodyless(const struct http_parse *p);
/* Inflates a gzip body in place, within LIMIT_BODY_MAX_BYTES. */
int http_body_inflate(struct http_request *rq, const char **why);
/* gzip; false when it did not get smaller. */
bool http_body_deflate(struct slice in, struct buf *out);

/* ---- http_target.c: request target to segments and parameters. 0 or an HTTP status. ---- */
int http_target_parse(struct http_request *rq, const char *target, size_t n, const char **why);

/* ---- http_conn.c ---- */
void http_request_free(struct http_request *rq);
void conn_pending(struct http_conn *c); /* counts what waits for its client now */
void conn_request_done(struct http_conn *c, bool keep_alive); /* the answer is written */
const char *http_status_text(int status);

#endif
