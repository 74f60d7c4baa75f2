/* The few elements of S3's answers that matter, out of bounded text. No parser of XML: no entities
 * but the five and numbers, no DTD, no nesting of an element in one of its own name (S3 has none).
 * This file must never take something for an answer that is none: an HTML page has no elements of
 * ours, and what was cut off has no end. */
#include "connectors/checkpoint/store/s3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tag {                 /* <name …>, </name>, <name/> */
    const char *begin, *end; /* from '<' to behind '>' */
    const char *name;        /* without a prefix */
    size_t n;
    bool closes, empty;
};

static const char *find(const char *at, const char *end, const char *what)
{
    size_t n = strlen(what);

    for (; end - at >= (ptrdiff_t)n; at++)
        if (memcmp(at, what, n) == 0)
            return at;
    return NULL;
}

/* Comments, declarations and processing instructions are passed over. */
static const char *skip_special(const char *at, const char *end)
{
    const char *stop = NULL;
    const char *what = ">";

    if (end - at >= 4 && memcmp(at, "<!--", 4) == 0)
        what = "-->";
    else if (end - at >= 9 && memcmp(at, "<![CDATA[", 9) == 0)
        what = "]]>";
    else if (end - at >= 2 && memcmp(at, "<?", 2) == 0)
        what = "?>";
    stop = find(at, end, what);
    return stop ? stop + strlen(what) : end;
}

static bool tag_next(const char *at, const char *end, struct tag *ret)
{
    while ((at = at < end ? memchr(at, '<', (size_t)(end - at)) : NULL) != NULL) {
        if (end - at >= 2 && (at[1] == '!' || at[1] == '?')) {
            at = skip_special(at, end);
            continue;
        }
        const char *stop = memchr(at, '>', (size_t)(end - at));
        if (!stop)
            return false;
        const char *name = at + 1;
        *ret = (struct tag){.begin = at, .end = stop + 1, .closes = *name == '/'};
        ret->empty = stop[-1] == '/' && !ret->closes;
        name += ret->closes;
        const char *p = name;
        while (p < stop && !strchr(" \t\r\n/", *p)) {
            if (*p == ':')
                name = p + 1;
            p++;
        }
        ret->name = name;
        ret->n = (size_t)(p - name);
        return true;
    }
    return false;
}

static bool tag_is(const struct tag *t, const char *name)
{
    return t->n == strlen(name) && memcmp(t->name, name, t->n) == 0;
}

bool s3_xml_next(struct slice *at, const char *name, struct slice *ret_inside)
{
    const char *p = at->p, *end = p + at->n;
    struct tag open, t;

    while (at->n && tag_next(p, end, &open)) {
        p = open.end;
        if (open.closes || !tag_is(&open, name))
            continue;
        if (open.empty) {
            *ret_inside = slice_make(open.end, 0);
            *at = slice_make(open.end, (size_t)(end - open.end));
            return true;
        }
        while (tag_next(p, end, &t)) {
            p = t.end;
            if (!t.closes || !tag_is(&t, name))
                continue;
            *ret_inside = slice_make(open.end, (size_t)(t.begin - open.end));
            *at = slice_make(t.end, (size_t)(end - t.end));
            return true;
        }
        return false;
    }
    return false;
}

bool s3_xml_root(struct slice text, const char *name, struct slice *ret)
{
    struct tag first;

    return text.n && tag_next(text.p, (const char *)text.p + text.n, &first) && !first.closes &&
           tag_is(&first, name) && s3_xml_next(&text, name, ret);
}

/* At most 4 bytes of UTF-8; 0 = no character. */
static size_t utf8(unsigned long c, char out[4])
{
    if (c == 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf00 >> n) | c);
    return n;
}

/* "&…;" at p; the length of what it stands for, and *ret_used of it. 0 = none that is known. */
static size_t entity(const char *p, const char *end, char out[4], size_t *ret_used)
{
    static const struct {
        const char *text;
        char c;
    } known[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    char number[12];
    const char *stop;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t n = strlen(known[i].text);
        if ((size_t)(end - p) >= n && memcmp(p, known[i].text, n) == 0) {
            out[0] = known[i].c;
            *ret_used = n;
            return 1;
        }
    }
    stop = memchr(p, ';', (size_t)(end - p));
    if (!stop || p[1] != '#' || stop - p < 3 || stop - p > 10)
        return 0;
    *ret_used = (size_t)(stop - p) + 1;
    (void)snprintf(number, sizeof number, "%.*s", (int)(stop - p - 2), p + 2);
    bool is_hex = number[0] == 'x';
    const char *digits = number + is_hex;
    if (strspn(digits, is_hex ? "0123456789abcdefABCDEF" : "0123456789") != strlen(digits) ||
        !*digits)
        return 0;
    return utf8(strtoul(digits, NULL, is_hex ? 16 : 10), out);
}

bool s3_xml_text(struct slice in, const char *name, char *out, size_t max)
{
    struct slice text;
    size_t n = 0;

    if (!s3_xml_next(&in, name, &text))
        return false;
    for (const char *p = text.p, *end = p + text.n; p < end;) {
        char c[4] = {*p};
        size_t used = 1, k = 1;
        if (*p == '<' || *p == '\0')
            return false;
        if (*p == '&')
            k = entity(p, end, c, &used);
        if (k == 0 || n + k >= max)
            return false;
        memcpy(out + n, c, k);
        n += k;
        p += used;
    }
    out[n] = '\0';
    return true;
}
