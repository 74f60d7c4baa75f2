/* What a target was told in confidence is taken out of what it says: values that the caller knows,
 * and tokens of runners, which nobody keeps, by their form (token.c). The name of a token, which
 * reports have, is no secret and stays. */
#include "connectors/report/hide.h"

#include "api/base/mem.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

#define PREFIX "hanse-run-1"
#define PREFIX_BASE64 "aGFuc2UtcnVuLTEv" /* of "hanse-run-1/", which has whole groups */
#define BASE64 "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/="
#define PARTS 6 /* CLUSTER KEY RANK RANKS MADE MAC, behind it */
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

/* How much of the value the text ends with, where it was cut in the midst of it; 0: nothing. */
static size_t cut_value(const char *text, size_t n, const char *value, size_t n_value)
{
    size_t k = n_value - 1 < n ? n_value - 1 : n;

    while (k >= HIDE_LEAST && memcmp(text + n - k, value, k) != 0)
        k--;
    return k >= HIDE_LEAST ? k : 0;
}

static bool value_mark(const char *text, size_t n, const char *value, bool may_be_cut, bool *hit)
{
    size_t n_value = strlen(value), cut = 0;
    bool any = false;

    if (n_value < HIDE_LEAST)
        return false;
    for (const char *p = text; (p = strstr(p, value)) != NULL; p++, any = true)
        memset(hit + (p - text), true, n_value);
    if (may_be_cut)
        cut = cut_value(text, n, value, n_value);
    memset(hit + n - cut, true, cut);
    return any || cut;
}

/* As Kubernetes has the values of its Secrets, and as those quote them who refuse one; with or
 * without what fills its last group. */
static bool base64_mark(const char *text, size_t n, const char *value, bool may_be_cut, bool *hit)
{
    size_t n_value = strlen(value), most = 3 * (n / 4 + 2);
    bool any = false;

    if (n_value < HIDE_LEAST)
        return false;
    n_value = n_value < most ? n_value : most; /* whole groups, and more than the text has */
    size_t size = 4 * ((n_value + 2) / 3) + 1;
    char *coded = mem_alloc(size);
    EVP_EncodeBlock((unsigned char *)coded, (const unsigned char *)value, (int)n_value);
    coded[strcspn(coded, "=")] = '\0';
    any = value_mark(text, n, coded, may_be_cut, hit);
    OPENSSL_cleanse(coded, size);
    mem_free(coded);
    return any;
}

/* A slash as it is, or as JSON and URLs may write it. */
static size_t slash_length(const char *p)
{
    if (*p == '/')
        return 1;
    if (p[0] == '\\' && p[1] == '/')
        return 2;
    return p[0] == '%' && p[1] == '2' && (p[2] | 0x20) == 'f' ? 3 : 0;
}

static bool tokens_mark(const char *text, bool *hit)
{
    bool any = false;

    for (const char *at = text; (at = strstr(at, PREFIX)) != NULL;) {
        const char *p = at += strlen(PREFIX);
        size_t slash, n = 0;
        unsigned part = 0;

        for (; part < PARTS && (slash = slash_length(p)) > 0; part++) {
            n = strspn(p + slash, LETTERS);
            p += slash + n;
        }
        if (part < PARTS || !n)
            continue;
        memset(hit + (p - n - text), true, n);
        any = true;
    }
    for (const char *at = text; (at = strstr(at, PREFIX_BASE64)) != NULL;) {
        size_t n = strspn(at += strlen(PREFIX_BASE64), BASE64);
        memset(hit + (at - text), true, n);
        any |= n > 0;
    }
    return any;
}

/* Never more than there was: a MAC may be cut to less than three letters. */
static void marked_drop(char *text, size_t n, const bool *hit)
{
    size_t to = 0;

    for (size_t i = 0; i < n; i++) {
        if (!hit[i]) {
            text[to++] = text[i];
        } else if (!i || !hit[i - 1]) {
            size_t run = 1;
            while (i + run < n && hit[i + run])
                run++;
            size_t stars = run < 3 ? run : 3;
            memcpy(text + to, "***", stars);
            to += stars;
        }
    }
    text[to] = '\0';
}

static void hide(char *text, const char *const *values, size_t n_values, bool may_be_cut)
{
    size_t n = strlen(text);
    bool any = false, *hit;

    if (n < HIDE_LEAST)
        return;
    hit = mem_zalloc(n + 1);
    for (size_t i = 0; i < n_values; i++)
        if (values[i]) {
            any |= value_mark(text, n, values[i], may_be_cut, hit);
            any |= base64_mark(text, n, values[i], may_be_cut, hit);
        }
    any |= tokens_mark(text, hit);
    if (any)
        marked_drop(text, n, hit);
    mem_free(hit);
}

void hide_values(char *text, const char *const *values, size_t n_values)
{
    hide(text, values, n_values, false);
}

void hide_values_cut(char *text, const char *const *values, size_t n_values)
{
    hide(text, values, n_values, true);
}
