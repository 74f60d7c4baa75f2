/* Requests from bytes, by a parser library; the one file that includes it. What the library accepts
 * and a proxy before us may read otherwise (http-layer notes: obs-fold, bare LF, blanks before a
 * colon, a missing Host) is refused first. */
#include "api/http/http_internal.h"

#include <ctype.h>
#include <http_parser.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

struct http_parse {
    http_parser lib;
    struct http_request *rq;
    struct buf url;
    struct http_header headers[LIMIT_HEADERS_MAX];
    unsigned n_headers;
    struct buf name, value;
    bool in_value, head_done, done, too_many, too_large;
};

/* ---- the library's callbacks ---- */
static struct http_parse *of(http_parser *lib)
{
    return lib->data;
}
static int on_url(http_parser *lib, const char *p, size_t n)
{
    buf_add(&of(lib)->url, p, n);
    return 0;
}
static void header_flush(struct http_parse *p)
{
    if (!p->in_value)
        return;
    if (p->n_headers == LIMIT_HEADERS_MAX) {
        p->too_many = true;
    } else {
        struct http_header *h = &p->headers[p->n_headers++];
        char *name = arena_strndup(p->rq->arena, p->name.n ? p->name.p : "", p->name.n);
        for (char *c = name; *c; c++)
            *c = (char)tolower((unsigned char)*c);
        size_t n = p->value.n;
        while (n && (p->value.p[n - 1] == ' ' || p->value.p[n - 1] == '\t'))
            n--;
        h->name = name;
        h->value = arena_strndup(p->rq->arena, n ? p->value.p : "", n);
    }
    buf_reset(&p->name);
    buf_reset(&p->value);
    p->in_value = false;
}
static int on_field(http_parser *lib, const char *b, size_t n)
{
    if (of(lib)->in_value)
        header_flush(of(lib));
    buf_add(&of(lib)->name, b, n);
    return 0;
}
static int on_value(http_parser *lib, const char *b, size_t n)
{
    of(lib)->in_value = true;
    buf_add(&of(lib)->value, b, n);
    return 0;
}
static int on_headers(http_parser *lib)
{
    if (of(lib)->name.n && !of(lib)->in_value)
        of(lib)->in_value = true; /* an empty value */
    header_flush(of(lib));
    of(lib)->head_done = true;
    return 0;
}
static int on_body(http_parser *lib, const char *b, size_t n)
{
    struct http_parse *p = of(lib);

    if (p->rq->body.n + n > LIMIT_BODY_MAX_BYTES)
        p->too_large = true;
    else
        buf_add(&p->rq->body, b, n);
    return p->too_large;
}
static int on_complete(http_parser *lib)
{
    of(lib)->done = true;
    http_parser_pause(lib, 1);
    return 0;
}
static const http_parser_settings settings = {.on_url = on_url,
                                              .on_header_field = on_field,
                                              .on_header_value = on_value,
                                              .on_headers_complete = on_headers,
                                              .on_body = on_body,
                                              .on_message_complete = on_complete};

struct http_parse *http_parse_create(void)
{
    struct http_parse *p = mem_new(struct http_parse);

    buf_init(&p->url, LIMIT_URL_MAX_BYTES + 1);
    buf_init(&p->name, LIMIT_HEADERS_MAX_BYTES);
    buf_init(&p->value, LIMIT_HEADERS_MAX_BYTES);
    return p;
}
struct http_parse *http_parse_destroy(struct http_parse *p)
{
    if (p) {
        buf_fini(&p->url);
        buf_fini(&p->name);
        buf_fini(&p->value);
        mem_free(p);
    }
    return NULL;
}

/* ---- strictness ---- */
static bool token_char(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* One line of the head, without its CRLF. `first`: the request line. */
static const char *line_fault(const char *s, size_t n, bool first)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] == 0 || s[i] == '\r' || s[i] == '\n' ||
            (s[i] < ' ' && s[i] >= 0 && s[i] != '\t') || s[i] == 0x7f)
            return "a control character in the head";
    }
    if (first)
        return NULL;
    if (n && (*s == ' ' || *s == '\t'))
        return "a folded header line";
    size_t colon = 0;
    while (colon < n && s[colon] != ':') {
        if (!token_char(s[colon]))
            return "a character that header names must not have";
        colon++;
    }
    return colon == 0 || colon == n ? "a header line without a name or colon" : NULL;
}

static const char *head_fault(const char *head, size_t n)
{
    size_t start = 0;
    bool first = true;

    for (size_t i = 0; i + 1 < n; i++) {
        if (head[i] == '\n')
            return "a bare line feed";
        if (head[i] != '\r')
            continue;
        if (head[i + 1] != '\n')
            return "a bare carriage return";
        if (i == start)
            return first ? "an empty request line" : NULL; /* the empty line: the end */
        const char *fault = line_fault(head + start, i - start, first);
        if (fault)
            return fault;
        first = false;
        start = i + 2;
        i++;
    }
    return "an incomplete head";
}

static int headers_check(struct http_parse *p, const char **why)
{
    unsigned hosts = 0, lengths = 0, encodings = 0;

    for (unsigned i = 0; i < p->n_headers; i++) {
        const struct http_header *h = &p->headers[i];
        hosts += !strcmp(h->name, "host");
        if (!strcmp(h->name, "content-length")) {
            lengths++;
            if (!*h->value || h->value[strspn(h->value, "0123456789")]) {
                *why = "a malformed Content-Length";
                return 400;
            }
        }
        if (!strcmp(h->name, "transfer-encoding")) {
            encodings++;
            if (strcasecmp(h->value, "chunked")) {
                *why = "a transfer coding other than chunked";
                return 501;
            }
        }
    }
    if (lengths > 1 || encodings > 1 || (lengths && encodings)) {
        *why = "contradicting body lengths";
        return 400;
    }
    if (hosts != 1 && !(p->rq->http10 && hosts == 0)) {
        *why = hosts ? "more than one Host header" : "no Host header";
        return 400;
    }
    return 0;
}

static int method_of(const http_parser *lib, struct http_message *m)
{
    static const struct {
        unsigned lib;
        enum http_verb m;
    } map[] = {{HTTP_GET, HTTP_GET_},        {HTTP_HEAD, HTTP_HEAD_},   {HTTP_POST, HTTP_POST_},
               {HTTP_PUT, HTTP_PUT_},        {HTTP_PATCH, HTTP_PATCH_}, {HTTP_DELETE, HTTP_DELETE_},
               {HTTP_OPTIONS, HTTP_OPTIONS_}};

    for (unsigned i = 0; i < sizeof map / sizeof *map; i++) {
        if (map[i].lib == lib->method) {
            m->method = map[i].m;
            m->method_text = http_method_str((enum http_method)lib->method);
            return 0;
        }
    }
    return 501;
}

static void headers_take(struct http_parse *p, struct http_request *rq)
{
    struct http_header *v = arena_array(rq->arena, struct http_header, p->n_headers + 1);

    memcpy(v, p->headers, p->n_headers * sizeof *v);
    rq->msg.headers = v;
    rq->msg.n_headers = p->n_headers;
    const char *enc = http_header_get(rq, "accept-encoding");
    rq->accepts_gzip = enc && strstr(enc, "gzip");
    const char *content = http_header_get(rq, "content-encoding");
    rq->gzip_body = content && !strcasecmp(content, "gzip");
    const char *expect = http_header_get(rq, "expect");
    rq->expect_continue = expect && !strcasecmp(expect, "100-continue");
}

int http_parse_head(struct http_parse *p, const char *head, size_t n, struct http_request *rq,
                    const char **why)
{
    if ((*why = head_fault(head, n)))
        return 400;
    const char *lines = memchr(head, '\n', n);
    if (lines && n - (size_t)(lines + 1 - head) > LIMIT_HEADERS_MAX_BYTES) {
        *why = "the header lines together are larger than the limit";
        return 431;
    }
    http_parser_init(&p->lib, HTTP_REQUEST);
    p->lib.data = p;
    p->rq = rq;
    p->n_headers = 0;
    p->head_done = p->done = p->too_many = p->too_large = p->in_value = false;
    buf_reset(&p->url);
    buf_reset(&p->name);
    buf_reset(&p->value);
    size_t used = http_parser_execute(&p->lib, &settings, head, n);
    enum http_errno e = HTTP_PARSER_ERRNO(&p->lib);
    if (p->too_many) {
        *why = "too many header lines";
        return 431;
    }
    if (p->url.failed) {
        *why = "the request target is longer than the limit";
        return 414;
    }
    if ((e != HPE_OK && e != HPE_PAUSED) || (!p->lib.upgrade && used != n && !p->done) ||
        !p->head_done) {
        *why = "a malformed request";
        return 400;
    }
    if (p->lib.http_major != 1 || p->lib.http_minor > 1) {
        *why = "an HTTP version other than 1.0 and 1.1";
        return 505;
    }
    rq->http10 = p->lib.http_minor == 0;
    rq->keep_alive = http_should_keep_alive(&p->lib) != 0;
    if (method_of(&p->lib, &rq->msg)) {
        *why = "a method that is not served";
        return 501;
    }
    rq->head_only = rq->msg.method == HTTP_HEAD_;
    int rv = headers_check(p, why);
    if (rv)
        return rv;
    headers_take(p, rq);
    if (p->lib.content_length != UINT64_MAX && p->lib.content_length > LIMIT_BODY_MAX_BYTES) {
        *why = "the body is larger than the limit";
        return 413;
    }
    return http_target_parse(rq, p->url.n ? p->url.p : "", p->url.n, why);
}

bool http_parse_bodyless(const struct http_parse *p)
{
    return p->done || p->lib.upgrade;
}

int http_parse_body(struct http_parse *p, const char *bytes, size_t n, struct http_request *rq,
                    size_t *ret_used, bool *ret_done, const char **why)
{
    p->rq = rq;
    *ret_used = http_parser_execute(&p->lib, &settings, bytes, n);
    *ret_done = p->done;
    enum http_errno e = HTTP_PARSER_ERRNO(&p->lib);
    if (p->too_large) {
        *why = "the body is larger than the limit";
        return 413;
    }
    if (e != HPE_OK && e != HPE_PAUSED) {
        *why = "a malformed body";
        return 400;
    }
    return 0;
}

/* ---- gzip ---- */
int http_body_inflate(struct http_request *rq, const char **why)
{
    struct buf out;
    z_stream z = {0};
    int rc = Z_OK;

    buf_init(&out, LIMIT_BODY_MAX_BYTES);
    if (inflateInit2(&z, 15 + 16) != Z_OK)
        return 500;
    z.next_in = (Bytef *)rq->body.p;
    z.avail_in = (uInt)rq->body.n;
    while (rc == Z_OK) {
        char *room = buf_reserve(&out, 65536);
        if (!room)
            break;
        z.next_out = (Bytef *)room;
        z.avail_out = 65536;
        rc = inflate(&z, Z_NO_FLUSH);
        out.n += 65536 - z.avail_out;
    }
    (void)inflateEnd(&z);
    if (rc != Z_STREAM_END) {
        buf_fini(&out);
        *why = rc == Z_OK ? "the inflated body is larger than the limit" : "a malformed gzip body";
        return rc == Z_OK ? 413 : 400;
    }
    buf_fini(&rq->body);
    rq->body = out;
    return 0;
}

bool http_body_deflate(struct slice in, struct buf *out)
{
    z_stream z = {0};

    if (deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return false;
    size_t bound = deflateBound(&z, in.n);
    char *room = buf_reserve(out, bound);
    bool ok = false;
    if (room) {
        z.next_in = (Bytef *)(uintptr_t)in.p;
        z.avail_in = (uInt)in.n;
        z.next_out = (Bytef *)room;
        z.avail_out = (uInt)bound;
        ok = deflate(&z, Z_FINISH) == Z_STREAM_END && z.total_out < in.n;
        out->n += z.total_out;
    }
    (void)deflateEnd(&z);
    return ok;
}
