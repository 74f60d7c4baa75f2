/* HTTP/1.1 server over streams: parsing by a library behind one file, limits and refusals as
 * http-layer demands, one request at a time per connection, bodies whole, answers whole or chunked
 * (watches, logs). Knows no Kubernetes.
 *
 * A handler gets a complete request and answers it now or later; the request lives until it was
 * answered. */
#ifndef HANSE_API_HTTP_HTTP_H
#define HANSE_API_HTTP_HTTP_H

#include "api/base/err.h"
#include "api/base/loop/loop.h"
#include "api/base/mem.h"

#include <stdbool.h>
#include <stdint.h>

struct http_server;
struct http_request;

struct http_header {
    const char *name; /* lower case */
    const char *value;
};
struct http_param {
    const char *name, *value; /* percent-decoded after splitting */
};
enum http_verb {
    HTTP_GET_,
    HTTP_HEAD_,
    HTTP_POST_,
    HTTP_PUT_,
    HTTP_PATCH_,
    HTTP_DELETE_,
    HTTP_OPTIONS_
};
struct http_message { /* read-only view of a request; all in the request's arena */
    enum http_verb method;
    const char *method_text;
    const char *path; /* decoded; segments split before decoding are in `segments` */
    const char *const *segments;
    unsigned n_segments; /* at most 16; an empty segment or "." or ".." was refused */
    const struct http_param *params;
    unsigned n_params;
    const struct http_header *headers;
    unsigned n_headers;
    struct slice body; /* decoded from chunks and gzip */
};
const struct http_message *http_message(const struct http_request *rq);
const char *http_header_get(const struct http_request *rq, const char *lower_name); /* NULL */
const char *http_param_get(const struct http_request *rq, const char *name);        /* NULL */
const struct peer_identity *http_peer(const struct http_request *rq);
struct arena *http_arena(struct http_request *rq); /* freed with the request */

bool http_gone(const struct http_request *rq); /* its client is: nobody reads the answer */

/* Whole answers; exactly one call of these ends a request (or http_chunk_end). Extra headers:
 * NULL-ended pairs. */
void http_reply(struct http_request *rq, int status, const char *content_type, struct slice body,
                const char *const *extra_headers);
/* Streaming. `on_close` is called once when the client goes away or after the end; then rq is
 * gone. */
void http_chunk_begin(struct http_request *rq, int status, const char *content_type,
                      const char *const *extra_headers, void (*on_close)(void *arg), void *arg);
/* one write, one chunk; no copy kept by the caller */
void http_chunk(struct http_request *rq, const void *p, size_t n);
/* An encoded chunk made once and sent to many: framing by http_chunk_frame, sent as it is. */
void http_chunk_frame(struct buf *out, const void *p, size_t n);
void http_chunk_raw(struct http_request *rq, const void *framed, size_t n);
size_t http_pending(const struct http_request *rq); /* bytes that wait for this client */
/* Do n bytes more find no room beside what waits for this client, and for all? */
bool http_crowded(const struct http_request *rq, size_t n);
void http_on_drained(struct http_request *rq, void (*cb)(void *arg), void *arg);
void http_chunk_end(struct http_request *rq);
void http_last(struct http_request *rq); /* the connection ends with this answer */
void http_abort(
    struct http_request *rq); /* cuts the connection: an answer that cannot be completed */
/* Upgrade (101) to a bidirectional byte stream, for exec: afterwards the stream belongs to the
 * caller. */
struct stream *http_upgrade(struct http_request *rq, const char *protocol,
                            struct slice *ret_early_bytes);

struct http_config {
    uint32_t header_timeout_ms, body_timeout_ms, idle_timeout_ms; /* 0 = 10 s, 60 s, 120 s */
    uint32_t min_body_rate; /* bytes a second after the first 5 s; 0 = 1024 */
};
typedef void (*http_handler)(struct http_request *rq, void *arg);
struct http_server *http_server_create(struct loop *l, const struct http_config *cfg,
                                       http_handler h, void *arg);
/* Takes over an open stream (accepted by the owner's listener with ALPN_HTTP or none). */
void http_server_accept(struct http_server *s, struct stream *st);
/* Ends: idle connections close, watches end with their last chunk, running requests get
 * grace_ms. */
void http_server_close(struct http_server *s, uint64_t grace_ms, void (*closed)(void *arg),
                       void *arg);
struct http_stats {
    uint64_t connections, requests, refused, bytes_in, bytes_out, open;
};
void http_server_stats(const struct http_server *s, struct http_stats *ret);

#endif
