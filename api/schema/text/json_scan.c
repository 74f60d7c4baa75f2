/* JSON text → tree, checked in the same pass. cJSON's own parser is not used: it turns every number
 * into a double, lets duplicate keys and \u0000 pass, and reads 1000 levels deep. Here each number
 * node keeps the text that it was written as in `valuestring`, so that foreign manifests come out
 * as they went in. This file must never read past text + n, nor recurse deeper than
 * LIMIT_JSON_MAX_DEPTH. */
#include "api/base/limits.h"
#include "api/schema/schema_internal.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_EXACT 9007199254740992ull /* 2^53 */

/* ---- keys seen ---- */
static bool keyset_put(struct keyset *k, uint64_t h)
{
    for (size_t i = h & (k->cap - 1);; i = (i + 1) & (k->cap - 1)) {
        if (k->slots[i] == h)
            return false;
        if (k->slots[i] == 0) {
            k->slots[i] = h;
            k->n++;
            return true;
        }
    }
}

/* 64-bit digests stand for the keys: a chance of 2^-64 to refuse a good document, none to pass a
 * bad one. */
bool keyset_add(struct keyset *k, uint64_t owner, const char *key, size_t n)
{
    uint64_t h = bytes_digest(key, n) + owner * 0x9e3779b97f4a7c15u;

    h = bytes_digest(&h, sizeof h) | 1;
    if (k->n * 2 >= k->cap) {
        struct keyset grown = {mem_zalloc((k->cap ? k->cap * 2 : 64) * sizeof(uint64_t)),
                               k->cap ? k->cap * 2 : 64, 0};
        for (size_t i = 0; i < k->cap; i++)
            if (k->slots[i])
                (void)keyset_put(&grown, k->slots[i]);
        mem_free(k->slots);
        *k = grown;
    }
    return keyset_put(k, h);
}

void keyset_fini(struct keyset *k)
{
    mem_free(k->slots);
    *k = (struct keyset){0};
}

/* ---- characters ---- */
size_t utf8_length(const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    unsigned c = p[0];
    size_t w = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;

    if (w == 0 || w > n)
        return 0;
    for (size_t i = 1; i < w; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((c == 0xe0 && p[1] < 0xa0) || (c == 0xed && p[1] > 0x9f) || (c == 0xf0 && p[1] < 0x90) ||
        (c == 0xf4 && p[1] > 0x8f))
        return 0;
    return w;
}

bool utf8_valid(const char *p, size_t n)
{
    while (n > 0) {
        size_t w = utf8_length(p, n);
        if (w == 0)
            return false;
        p += w;
        n -= w;
    }
    return true;
}

struct scan {
    const char *text, *p, *end;
    struct err *err;
    struct keyset keys;
    uint64_t objects; /* counts objects: the owner of keys */
    unsigned depth;
    bool build;        /* make nodes, or only check */
    bool own;          /* our own output: no limit of 2^53, and of equal keys the first counts */
    bool bytes;        /* strings need be no UTF-8 */
    struct buf string; /* the last string, unescaped */
};

static int bad(struct scan *s, const char *at, const char *what)
{
    unsigned line = 1;
    const char *start = s->text;

    for (const char *p = s->text; p < at; p++)
        if (*p == '\n') {
            line++;
            start = p + 1;
        }
    return err_set(s->err, E_SYNTAX, "line %u, column %u: %s", line, (unsigned)(at - start) + 1,
                   what);
}

static void skip_space(struct scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
        s->p++;
}

static bool hex4(const char *p, const char *end, unsigned *ret)
{
    unsigned v = 0;

    if (end - p < 4)
        return false;
    for (unsigned i = 0; i < 4; i++) {
        unsigned c = (unsigned char)p[i];
        unsigned d = c >= '0' && c <= '9'                     ? c - '0'
                     : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                              : 16;
        if (d == 16)
            return false;
        v = v << 4 | d;
    }
    *ret = v;
    return true;
}

static void put_utf8(struct buf *b, unsigned c)
{
    char u[4];
    size_t n = 0;

    if (c < 0x80) {
        u[n++] = (char)c;
    } else if (c < 0x800) {
        u[n++] = (char)(0xc0 | c >> 6);
        u[n++] = (char)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        u[n++] = (char)(0xe0 | c >> 12);
        u[n++] = (char)(0x80 | (c >> 6 & 0x3f));
        u[n++] = (char)(0x80 | (c & 0x3f));
    } else {
        u[n++] = (char)(0xf0 | c >> 18);
        u[n++] = (char)(0x80 | (c >> 12 & 0x3f));
        u[n++] = (char)(0x80 | (c >> 6 & 0x3f));
        u[n++] = (char)(0x80 | (c & 0x3f));
    }
    buf_add(b, u, n);
}

/* After the backslash and 'u'. */
static int scan_unicode(struct scan *s, const char *at)
{
    unsigned c, low;

    if (!hex4(s->p, s->end, &c))
        return bad(s, at, "\\u needs four hexadecimal digits");
    s->p += 4;
    if (c == 0 && !s->bytes)
        return bad(s, at, "\\u0000 is not accepted in texts");
    /* What came over a wire is not spoiled by one text that holds it, or half of a pair. */
    if (c == 0)
        c = 0xfffd;
    if (c >= 0xd800 && c <= 0xdfff) {
        bool pair = c < 0xdc00 && s->end - s->p >= 6 && s->p[0] == '\\' && s->p[1] == 'u' &&
                    hex4(s->p + 2, s->end, &low) && low >= 0xdc00 && low <= 0xdfff;
        if (!pair && !s->bytes)
            return bad(s, at, "half of a surrogate pair");
        s->p += pair ? 6 : 0;
        c = pair ? 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00) : 0xfffd;
    }
    put_utf8(&s->string, c);
    return 0;
}

static int scan_escape(struct scan *s)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *at = s->p - 1;

    if (s->p >= s->end)
        return bad(s, at, "the text ends within a string");
    char c = *s->p++;
    if (c == 'u')
        return scan_unicode(s, at);
    const char *known = memchr(from, c, sizeof from - 1);
    if (!known)
        return bad(s, at, "unknown escape in a string");
    buf_char(&s->string, to[known - from]);
    return 0;
}

/* At the opening quote; leaves the unescaped text in s->string. */
static int scan_string(struct scan *s)
{
    const char *open = s->p++;

    buf_reset(&s->string);
    for (;;) {
        const char *run = s->p;
        while (s->p < s->end && *s->p != '"' && *s->p != '\\' && (unsigned char)*s->p >= 0x20)
            s->p++;
        if (!s->bytes && !utf8_valid(run, (size_t)(s->p - run)))
            return bad(s, run, "the string is not valid UTF-8");
        buf_add(&s->string, run, (size_t)(s->p - run));
        if (s->p >= s->end)
            return bad(s, open, "the string is not closed");
        char c = *s->p++;
        if (c == '"')
            break;
        if (c != '\\')
            return bad(s, s->p - 1, "control character in a string; write it as an escape");
        int r = scan_escape(s);
        if (r < 0)
            return r;
    }
    buf_char(&s->string, 0);
    if (s->string.failed)
        return bad(s, open, "the string is too long");
    s->string.n--;
    return 0;
}

/* ---- values ---- */
/* Length of the number at p, 0 when there is none; *ret_integer: no fraction and no exponent. */
static size_t number_length(const char *p, const char *end, bool *ret_integer)
{
    const char *start = p, *digits;

    *ret_integer = true;
    if (p < end && *p == '-')
        p++;
    digits = p;
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    if (p == digits || (*digits == '0' && p - digits > 1))
        return 0;
    if (p < end && *p == '.') {
        *ret_integer = false;
        digits = ++p;
        while (p < end && *p >= '0' && *p <= '9')
            p++;
        if (p == digits)
            return 0;
    }
    if (p < end && (*p | 0x20) == 'e') {
        *ret_integer = false;
        p++;
        if (p < end && (*p == '+' || *p == '-'))
            p++;
        digits = p;
        while (p < end && *p >= '0' && *p <= '9')
            p++;
        if (p == digits)
            return 0;
    }
    return (size_t)(p - start);
}

bool json_number_ok(const char *p, size_t n)
{
    bool integer;

    return n > 0 && number_length(p, p + n, &integer) == n;
}

static bool within_2_53(const char *p, size_t n)
{
    uint64_t v = 0;

    for (size_t i = *p == '-'; i < n; i++) {
        v = v * 10 + (uint64_t)(p[i] - '0');
        if (v > MAX_EXACT)
            return false;
    }
    return true;
}

static int scan_number(struct scan *s, cJSON **ret)
{
    char text[64];
    bool integer;
    size_t n = number_length(s->p, s->end, &integer);

    if (n == 0)
        return bad(s, s->p, "expected a value");
    if (n >= sizeof text)
        return bad(s, s->p, "the number has too many digits");
    if (integer && !s->own && !within_2_53(s->p, n))
        return bad(s, s->p,
                   "the integer is beyond 2^53, where JSON readers differ; write it as a string");
    memcpy(text, s->p, n);
    text[n] = 0;
    double v = strtod(text, NULL);
    if (!isfinite(v))
        return bad(s, s->p, "the number is too large");
    s->p += n;
    if (s->build) {
        *ret = cJSON_CreateNumber(v);
        INV(*ret);
        cJSON *held = cJSON_CreateString(text); /* allocated as cJSON_Delete frees it */
        INV(held);
        (*ret)->valuestring = held->valuestring;
        held->valuestring = NULL;
        cJSON_Delete(held);
    }
    return 0;
}

static int scan_value(struct scan *s, cJSON **ret);

static int scan_member(struct scan *s, cJSON *object, uint64_t owner)
{
    cJSON *value = NULL;
    const char *at = s->p;
    bool seen;

    if (s->p >= s->end || *s->p != '"')
        return bad(s, s->p, "expected a key in quotes");
    int r = scan_string(s);
    if (r < 0)
        return r;
    seen = !keyset_add(&s->keys, owner, s->string.p, s->string.n);
    if (seen && !s->own) {
        char what[160];
        (void)snprintf(what, sizeof what, "the key \"%.100s\" stands here twice", s->string.p);
        return bad(s, at, what);
    }
    char *key = s->build ? mem_strdup(s->string.p) : NULL;
    skip_space(s);
    r = s->p < s->end && *s->p == ':' ? 0 : bad(s, s->p, "expected ':' after the key");
    if (r == 0) {
        s->p++;
        r = scan_value(s, &value);
    }
    if (r == 0 && seen && cJSON_GetObjectItemCaseSensitive(object, key)) {
        cJSON_Delete(value);
    } else if (r == 0 && s->build) {
        bool added = cJSON_AddItemToObject(object, key, value);
        INV(added);
    }
    mem_free(key);
    return r;
}

/* Objects and arrays: the same but for the key. */
static int scan_items(struct scan *s, cJSON *parent, char close)
{
    uint64_t owner = ++s->objects;

    s->p++;
    skip_space(s);
    if (s->p < s->end && *s->p == close) {
        s->p++;
        return 0;
    }
    for (;;) {
        cJSON *value = NULL;
        int r;
        skip_space(s);
        if (close == '}') {
            r = scan_member(s, parent, owner);
        } else {
            r = scan_value(s, &value);
            if (r == 0 && s->build)
                (void)cJSON_AddItemToArray(parent, value);
        }
        if (r < 0)
            return r;
        skip_space(s);
        if (s->p < s->end && *s->p == ',') {
            s->p++;
            continue;
        }
        if (s->p < s->end && *s->p == close) {
            s->p++;
            return 0;
        }
        return bad(s, s->p, close == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
    }
}

static bool scan_word(struct scan *s, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n))
        return false;
    s->p += n;
    return true;
}

static int scan_nested(struct scan *s, cJSON **ret, char close)
{
    cJSON *node = s->build ? (close == '}' ? cJSON_CreateObject() : cJSON_CreateArray()) : NULL;

    INV(!s->build || node);
    if (s->depth >= LIMIT_JSON_MAX_DEPTH) {
        cJSON_Delete(node);
        return bad(s, s->p, "the document is nested too deeply");
    }
    s->depth++;
    int r = scan_items(s, node, close);
    s->depth--;
    if (r < 0) {
        cJSON_Delete(node);
        return r;
    }
    *ret = node;
    return 0;
}

static int scan_value(struct scan *s, cJSON **ret)
{
    skip_space(s);
    if (s->p >= s->end)
        return bad(s, s->p, "the text ends where a value is expected");
    if (*s->p == '{')
        return scan_nested(s, ret, '}');
    if (*s->p == '[')
        return scan_nested(s, ret, ']');
    if (*s->p == '"') {
        int r = scan_string(s);
        if (r == 0 && s->build)
            *ret = cJSON_CreateString(s->string.p);
        return r;
    }
    if (scan_word(s, "true")) {
        *ret = s->build ? cJSON_CreateTrue() : NULL;
        return 0;
    }
    if (scan_word(s, "false")) {
        *ret = s->build ? cJSON_CreateFalse() : NULL;
        return 0;
    }
    if (scan_word(s, "null")) {
        *ret = s->build ? cJSON_CreateNull() : NULL;
        return 0;
    }
    return scan_number(s, ret);
}

static int scan_all(struct scan *s, const char *text, size_t n, cJSON **ret, struct err *err)
{
    cJSON *root = NULL;

    s->text = s->p = text;
    s->end = text + n;
    s->err = err;
    buf_init(&s->string, n + 8);
    int r = scan_value(s, &root);
    if (r == 0) {
        skip_space(s);
        if (s->p < s->end)
            r = bad(s, s->p, "more text after the document");
    }
    buf_fini(&s->string);
    keyset_fini(&s->keys);
    if (r < 0)
        cJSON_Delete(root);
    else if (ret)
        *ret = root;
    return r;
}

int json_scan(const char *text, size_t n, struct err *err)
{
    return scan_all(&(struct scan){0}, text, n, NULL, err);
}

int json_parse(const char *text, size_t n, struct cJSON **ret, struct err *err)
{
    return scan_all(&(struct scan){.build = true}, text, n, ret, err);
}

struct cJSON *json_parse_own(const char *text, size_t n)
{
    cJSON *root = NULL;

    return scan_all(&(struct scan){.build = true, .own = true}, text, n, &root, NULL) == 0 ? root
                                                                                           : NULL;
}

struct cJSON *json_parse_bytes(const char *text, size_t n)
{
    struct scan s = {.build = true, .own = true, .bytes = true};
    cJSON *root = NULL;

    return scan_all(&s, text, n, &root, NULL) == 0 ? root : NULL;
}
