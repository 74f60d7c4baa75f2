/* The opening handshake (RFC 6455, section 4): an answer opens the connection only if it is the
 * answer to this very request, and agrees on nothing that was not offered. */
#include "connectors/websocket/websocket_internal.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define GUID "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

void websocket_key_make(const unsigned char random[16], char ret[WEBSOCKET_KEY_MAX])
{
    _Static_assert(WEBSOCKET_KEY_MAX > 24, "16 bytes are 24 letters");
    (void)EVP_EncodeBlock((unsigned char *)ret, random, 16);
}

static void accept_of(const char *key, char ret[WEBSOCKET_KEY_MAX])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    char text[WEBSOCKET_KEY_MAX + sizeof GUID];
    unsigned n = 0;
    const int text_n = snprintf(text, sizeof text, "%s" GUID, key);

    INV(text_n > 0 && EVP_Digest(text, (size_t)text_n, digest, &n, EVP_sha1(), NULL) == 1);
    INV(n == 20);
    (void)EVP_EncodeBlock((unsigned char *)ret, digest, 20);
}

/* ---- headers ---- */
struct head {
    const char *p, *end; /* the lines after the first */
};

/* Sets *ret to the value of that header, without blanks around it, of the last one of that name;
 * returns how many there are. */
static unsigned headers(const struct head *h, const char *name, struct slice *ret)
{
    size_t n = strlen(name);
    unsigned found = 0;

    for (const char *line = h->p; line < h->end;) {
        const char *end = strstr(line, "\r\n");
        if (!end || end > h->end)
            break;
        if ((size_t)(end - line) > n && line[n] == ':' && strncasecmp(line, name, n) == 0) {
            const char *value = line + n + 1;
            while (value < end && (*value == ' ' || *value == '\t'))
                value++;
            const char *last = end;
            while (last > value && (last[-1] == ' ' || last[-1] == '\t'))
                last--;
            *ret = slice_make(value, (size_t)(last - value));
            found++;
        }
        line = end + 2;
    }
    return found;
}

static bool header(const struct head *h, const char *name, struct slice *ret)
{
    return headers(h, name, ret) == 1;
}

static bool is(const struct slice *v, const char *text)
{
    return v->n == strlen(text) && strncasecmp(v->p, text, v->n) == 0;
}

/* Of a list with commas: one of it, in any case of letters or just so. */
static bool has(const char *list, size_t n, const char *word, size_t word_n, bool exact)
{
    for (size_t at = 0; at < n;) {
        size_t end = at, last;
        while (end < n && list[end] != ',')
            end++;
        for (last = end; last > at && list[last - 1] == ' ';)
            last--;
        while (at < last && list[at] == ' ')
            at++;
        if (last - at == word_n &&
            (exact ? strncmp(list + at, word, word_n) : strncasecmp(list + at, word, word_n)) == 0)
            return true;
        at = end + 1;
    }
    return false;
}

static int opened_check(const struct websocket_asked *q, const struct head *h,
                        struct websocket_answered *ret, struct err *err)
{
    char accept[WEBSOCKET_KEY_MAX];
    struct slice v;

    accept_of(q->key, accept);
    if (!header(h, "upgrade", &v) || !is(&v, "websocket") || !header(h, "connection", &v) ||
        !has(v.p, v.n, "upgrade", 7, false))
        return err_set(err, E_CONNECT, "its answer opens no WebSocket");
    if (!header(h, "sec-websocket-accept", &v) || v.n != strlen(accept) ||
        memcmp(v.p, accept, v.n) != 0)
        return err_set(err, E_CONNECT, "its answer is not one to this request");
    if (headers(h, "sec-websocket-extensions", &v) > 0)
        return err_set(err, E_CONNECT, "it wants an extension that was not offered");
    if (!header(h, "sec-websocket-protocol", &v) || !v.n || v.n >= sizeof ret->protocol ||
        !has(q->protocols, strlen(q->protocols), v.p, v.n, true))
        return err_set(err, E_CONNECT, "it speaks none of the protocols %.100s", q->protocols);
    memcpy(ret->protocol, v.p, v.n);
    ret->protocol[v.n] = '\0';
    return 0;
}

static int64_t length_of(const struct head *h)
{
    struct slice v;
    int64_t n = 0;

    if (!header(h, "content-length", &v) || !v.n || v.n > 12)
        return -1;
    for (const char *s = v.p; s < (const char *)v.p + v.n; s++) {
        if (*s < '0' || *s > '9')
            return -1;
        n = 10 * n + (*s - '0');
    }
    return n;
}

int websocket_answer(const struct websocket_asked *q, const char *text, size_t n,
                     struct websocket_answered *ret, struct err *err)
{
    static const char version[] = "HTTP/1.1 ";
    const size_t skip = sizeof version - 1;
    const char *end = strstr(text, "\r\n\r\n");
    struct slice v;

    *ret = (struct websocket_answered){.length = -1};
    if (strncmp(text, version, n < skip ? n : skip) != 0 || (!end && n >= WEBSOCKET_ANSWER_MAX) ||
        (end && memchr(text, '\0', (size_t)(end - text))))
        return err_set(err, E_CONNECT, "what answers there does not speak HTTP/1.1");
    if (!end)
        return strlen(text) == n ? 0 : err_set(err, E_CONNECT, "its answer has a zero byte");
    ret->n = (size_t)(end - text) + 4;
    if (ret->n < skip + 5 || strspn(text + skip, "0123456789") != 3)
        return err_set(err, E_CONNECT, "its answer has no status");
    ret->status = (int)strtol(text + skip, NULL, 10);
    const char *first = strstr(text, "\r\n") + 2;
    const struct head h = {first, end + 2};
    if (ret->status == 101) {
        int rc = opened_check(q, &h, ret, err);
        return rc < 0 ? rc : 1;
    }
    ret->length = length_of(&h);
    ret->chunked = header(&h, "transfer-encoding", &v) && is(&v, "chunked");
    return 1;
}
