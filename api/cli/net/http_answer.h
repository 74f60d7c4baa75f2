/* Reads HTTP/1.1 answers: status line, headers, bodies by Content-Length, chunks or until the end.
 * Limits on everything; must never read past the end of an answer, because the connection is used
 * again. */
#ifndef HANSE_API_CLI_HTTP_ANSWER_H
#define HANSE_API_CLI_HTTP_ANSWER_H

#include "api/base/mem.h"

enum http_answer_state {
    ANSWER_HEAD,
    ANSWER_LENGTH,
    ANSWER_CHUNK_SIZE,
    ANSWER_CHUNK,
    ANSWER_CHUNK_END,
    ANSWER_TRAILER,
    ANSWER_UNTIL_CLOSE,
    ANSWER_DONE
};
struct http_answer {
    enum http_answer_state state;
    struct buf in; /* what has come and is not yet read */
    uint64_t left; /* of the body or chunk */
    int status;
    bool keep_alive, begun;
    long retry_after_s; /* -1 = not told */
    char location[2048], content_type[128];
    bool chunked, has_length;
};
void http_answer_init(struct http_answer *a);
void http_answer_fini(struct http_answer *a);
void http_answer_next(struct http_answer *a); /* for the next answer; keeps what has come */
/* body() for each piece; not 0 stops with that value. head: the method was HEAD. */
int http_answer_feed(struct http_answer *a, const void *p, size_t n,
                     int (*body)(const void *p, size_t n, void *arg), void *arg,
                     struct err *err) MUST_CHECK;
/* The peer closed: 0 when that ends the answer rightly. */
int http_answer_end(struct http_answer *a, struct err *err) MUST_CHECK;

#endif
