/* Reads HTTP/1.1 answers. A pure function of the bytes, so that tests can feed them one by one. */
#include "api/cli/net/http_answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HEAD_MAX_BYTES (64u << 10)
#define IN_MAX_BYTES (4u << 20)

void http_answer_init(struct http_answer *a)
{
    *a = (struct http_answer){0};
    buf_init(&a->in, IN_MAX_BYTES);
    http_answer_next(a);
}

void http_answer_fini(struct http_answer *a)
{
    buf_fini(&a->in);
}

void http_answer_next(struct http_answer *a)
{
    struct buf in = a->in;

    *a = (struct http_answer){.in = in, .keep_alive = true, .retry_after_s = -1};
    a->begun = in.n > 0;
}

static int malformed(struct err *err, const char *what)
{
    return err_set(err, E_CONNECT, "the server's answer is no HTTP/1.1 (%s); is the port right?",
                   what);
}

static int header_line(struct http_answer *a, const char *line, struct err *err)
{
    const char *colon = strchr(line, ':');

    if (!colon || colon == line)
        return malformed(err, "a header line without a name");
    size_t n = (size_t)(colon - line);
    const char *v = colon + 1 + strspn(colon + 1, " \t");
    if (n == 14 && !strncasecmp(line, "content-length", n)) {
        char *end;
        a->left = strtoull(v, &end, 10);
        if (*v < '0' || *v > '9' || *end || a->left > (1ull << 40))
            return malformed(err, "a wrong Content-Length");
        a->has_length = true;
    } else if (n == 17 && !strncasecmp(line, "transfer-encoding", n)) {
        if (strcasecmp(v, "chunked") != 0)
            return malformed(err, "an unknown Transfer-Encoding");
        a->chunked = true;
    } else if (n == 10 && !strncasecmp(line, "connection", n)) {
        a->keep_alive = strcasecmp(v, "close") != 0;
    } else if (n == 8 && !strncasecmp(line, "location", n)) {
        str_copy(a->location, sizeof a->location, v);
    } else if (n == 12 && !strncasecmp(line, "content-type", n)) {
        str_copy(a->content_type, sizeof a->content_type, v);
    } else if (n == 11 && !strncasecmp(line, "retry-after", n)) {
        a->retry_after_s = *v >= '0' && *v <= '9' ? strtol(v, NULL, 10) : -1;
    }
    return 0;
}

static int status_line(struct http_answer *a, const char *line, struct err *err)
{
    if (strncmp(line, "HTTP/1.", 7) != 0 || strlen(line) < 12 || line[8] != ' ')
        return malformed(err, "no status line");
    a->status = (int)strtol(line + 9, NULL, 10);
    if (a->status < 100 || a->status > 599)
        return malformed(err, "a wrong status");
    if (line[7] == '0')
        a->keep_alive = false;
    return 0;
}

static void body_begin(struct http_answer *a)
{
    if (a->status == 204 || a->status == 304 || a->status == 101)
        a->state = ANSWER_DONE;
    else if (a->chunked)
        a->state = ANSWER_CHUNK_SIZE;
    else if (a->has_length)
        a->state = a->left ? ANSWER_LENGTH : ANSWER_DONE;
    else {
        a->state = ANSWER_UNTIL_CLOSE;
        a->keep_alive = false;
    }
}

/* 1: the head is whole and read; 0: more is needed. */
static int head_read(struct http_answer *a, struct err *err)
{
    char *end = a->in.n ? memmem(a->in.p, a->in.n, "\r\n\r\n", 4) : NULL;

    if (!end)
        return a->in.n > HEAD_MAX_BYTES ? malformed(err, "headers without an end") : 0;
    size_t n = (size_t)(end - a->in.p) + 4;
    if (memchr(a->in.p, '\0', n))
        return malformed(err, "a zero byte");
    bool first = true;
    for (char *line = a->in.p; line < a->in.p + n - 2;) {
        char *stop = strstr(line, "\r\n");
        *stop = '\0';
        int rv = first ? status_line(a, line, err) : header_line(a, line, err);
        if (rv)
            return rv;
        first = false;
        line = stop + 2;
    }
    buf_consume(&a->in, n);
    if (a->status >= 100 && a->status < 200 && a->status != 101) {
        http_answer_next(a); /* an interim answer: the real one follows */
        return 1;
    }
    body_begin(a);
    return 1;
}

/* A line that ends in CR LF, its length in *ret; false when it has not come whole. */
static bool line_whole(const struct http_answer *a, size_t *ret)
{
    const char *end = a->in.n ? memmem(a->in.p, a->in.n, "\r\n", 2) : NULL;

    if (end)
        *ret = (size_t)(end - a->in.p);
    return end != NULL;
}

static int chunk_size(struct http_answer *a, struct err *err)
{
    size_t n;
    char *end;

    if (!line_whole(a, &n))
        return a->in.n > 1024 ? malformed(err, "a chunk without a size") : 0;
    a->left = strtoull(a->in.p, &end, 16);
    if (end == a->in.p || a->left > (1ull << 40) || (*end != '\r' && *end != ';' && *end != ' '))
        return malformed(err, "a wrong chunk size");
    buf_consume(&a->in, n + 2);
    a->state = a->left ? ANSWER_CHUNK : ANSWER_TRAILER;
    return 1;
}

static int trailer(struct http_answer *a, struct err *err)
{
    size_t n;

    if (!line_whole(a, &n))
        return a->in.n > HEAD_MAX_BYTES ? malformed(err, "trailers without an end") : 0;
    buf_consume(&a->in, n + 2);
    if (!n)
        a->state = ANSWER_DONE;
    return 1;
}

static int body_piece(struct http_answer *a, int (*body)(const void *, size_t, void *), void *arg)
{
    size_t n = a->in.n;

    if (a->state != ANSWER_UNTIL_CLOSE && n > a->left)
        n = (size_t)a->left;
    int rv = body && n ? body(a->in.p, n, arg) : 0;
    buf_consume(&a->in, n);
    if (a->state != ANSWER_UNTIL_CLOSE) {
        a->left -= n;
        if (!a->left)
            a->state = a->state == ANSWER_CHUNK ? ANSWER_CHUNK_END : ANSWER_DONE;
    }
    return rv;
}

static int chunk_end(struct http_answer *a, struct err *err)
{
    if (a->in.n < 2)
        return 0;
    if (memcmp(a->in.p, "\r\n", 2) != 0)
        return malformed(err, "a chunk without an end");
    buf_consume(&a->in, 2);
    a->state = ANSWER_CHUNK_SIZE;
    return 1;
}

int http_answer_feed(struct http_answer *a, const void *p, size_t n,
                     int (*body)(const void *p, size_t n, void *arg), void *arg, struct err *err)
{
    int rv;

    a->begun = a->begun || n > 0;
    buf_add(&a->in, p, n);
    if (a->in.failed)
        return malformed(err, "too much at once");
    for (;;) {
        switch (a->state) {
        case ANSWER_HEAD:
            rv = head_read(a, err);
            break;
        case ANSWER_CHUNK_SIZE:
            rv = chunk_size(a, err);
            break;
        case ANSWER_CHUNK_END:
            rv = chunk_end(a, err);
            break;
        case ANSWER_TRAILER:
            rv = trailer(a, err);
            break;
        case ANSWER_DONE:
            return 0;
        default:
            if (!a->in.n)
                return 0;
            rv = body_piece(a, body, arg);
            if (rv)
                return rv;
            continue;
        }
        if (rv <= 0)
            return rv;
    }
}

int http_answer_end(struct http_answer *a, struct err *err)
{
    if (a->state == ANSWER_UNTIL_CLOSE || a->state == ANSWER_DONE) {
        a->state = ANSWER_DONE;
        return 0;
    }
    return err_set(err, E_CONNECT, "the connection ended in the middle of an answer");
}
