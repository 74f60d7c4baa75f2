/* Request targets: split first, decode then, so that %2F never makes a segment. Refuses what could
 * mean two things. */
#include "api/http/http_internal.h"

#include <string.h>

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* NULL on a bad escape or an encoded NUL. */
static const char *decode(struct arena *a, const char *s, size_t n, bool plus)
{
    char *out = arena_alloc(a, n + 1);
    size_t o = 0;

    for (size_t i = 0; i < n; i++) {
        if (s[i] == '%') {
            int hi = i + 2 < n ? hex(s[i + 1]) : -1, lo = i + 2 < n ? hex(s[i + 2]) : -1;
            if (hi < 0 || lo < 0 || (hi == 0 && lo == 0))
                return NULL;
            out[o++] = (char)(hi << 4 | lo);
            i += 2;
        } else {
            out[o++] = plus && s[i] == '+' ? ' ' : s[i];
        }
    }
    out[o] = 0;
    return out;
}

static int path_parse(struct http_request *rq, const char *p, size_t n, const char **why)
{
    const char **seg = arena_array(rq->arena, const char *, SEGMENTS_MAX);
    size_t start = 1;

    for (size_t i = 1; i <= n; i++) {
        if (i < n && p[i] != '/')
            continue;
        if (i == start) {
            if (i == n)
                break; /* a trailing slash */
            *why = "an empty path segment";
            return 400;
        }
        if (rq->msg.n_segments == SEGMENTS_MAX) {
            *why = "too many path segments";
            return 414;
        }
        const char *s = decode(rq->arena, p + start, i - start, false);
        if (!s || !strcmp(s, ".") || !strcmp(s, "..")) {
            *why = "a malformed path segment";
            return 400;
        }
        seg[rq->msg.n_segments++] = s;
        start = i + 1;
    }
    rq->msg.segments = seg;
    rq->msg.path = arena_strndup(rq->arena, p, n);
    return 0;
}

static int query_parse(struct http_request *rq, const char *q, size_t n, const char **why)
{
    size_t most = 1;

    for (size_t i = 0; i < n; i++)
        most += q[i] == '&';
    most = most < LIMIT_URL_PARAMS_MAX ? most : LIMIT_URL_PARAMS_MAX;
    struct http_param *params = arena_array(rq->arena, struct http_param, most);

    for (size_t i = 0; i < n;) {
        const char *amp = memchr(q + i, '&', n - i);
        size_t end = amp ? (size_t)(amp - q) : n;
        const char *eq = memchr(q + i, '=', end - i);
        size_t name_end = eq ? (size_t)(eq - q) : end;
        if (end > i) {
            if (rq->msg.n_params == LIMIT_URL_PARAMS_MAX) {
                *why = "too many query parameters";
                return 414;
            }
            struct http_param *pm = &params[rq->msg.n_params++];
            pm->name = decode(rq->arena, q + i, name_end - i, true);
            pm->value = eq ? decode(rq->arena, eq + 1, end - name_end - 1, true) : "";
            if (!pm->name || !pm->value) {
                *why = "a malformed query parameter";
                return 400;
            }
        }
        i = end + 1;
    }
    rq->msg.params = params;
    return 0;
}

int http_target_parse(struct http_request *rq, const char *t, size_t n, const char **why)
{
    static const char *const schemes[] = {"http://", "https://"};

    if (n > LIMIT_URL_MAX_BYTES) {
        *why = "the request target is too long";
        return 414;
    }
    for (unsigned i = 0; i < 2; i++) { /* absolute form: the authority is left to Host */
        size_t s = strlen(schemes[i]);
        if (n > s && !strncmp(t, schemes[i], s)) {
            const char *slash = memchr(t + s, '/', n - s);
            n = slash ? n - (size_t)(slash - t) : 1;
            t = slash ? slash : "/";
        }
    }
    if (n == 1 && *t == '*' && rq->msg.method == HTTP_OPTIONS_) {
        t = "/";
    } else if (n == 0 || *t != '/') {
        *why = "the request target must begin with a slash";
        return 400;
    }
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)t[i] <= ' ' || t[i] == 0x7f || t[i] == '#') {
            *why = "a character in the request target that must be percent-encoded";
            return 400;
        }
    }
    const char *q = memchr(t, '?', n);
    int rv = path_parse(rq, t, q ? (size_t)(q - t) : n, why);
    if (!rv && q)
        rv = query_parse(rq, q + 1, n - (size_t)(q - t) - 1, why);
    return rv;
}
