/* Scalars as people write them: durations, quantities, times, percentages, base64. Exact: integers
 * never pass through double. This file must never accept a bare number where a unit decides what it
 * means. */
#include "api/schema/schema_internal.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- durations ---- */
static const struct {
    const char *unit;
    int64_t ms;
} duration_units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};

static int duration_error(const char *s, struct err *err)
{
    bool digits = *s != 0;

    for (const char *p = s; *p; p++)
        digits = digits && isdigit((unsigned char)*p);
    if (digits)
        return err_set(err, E_INVALID, "\"%.64s\" has no unit; write %.64ss, or with ms, m, h or d",
                       s, s);
    return err_set(err, E_INVALID, "\"%.64s\" is not a duration; write it as 90s, 15m or 1h30m", s);
}

int duration_parse(const char *s, int64_t *ret_ms, struct err *err)
{
    int64_t total = 0;

    if (!strcmp(s, "0")) {
        *ret_ms = 0;
        return 0;
    }
    for (const char *p = s; p == s || *p;) {
        int64_t n = 0, unit = 0;
        const char *digits = p;
        for (; isdigit((unsigned char)*p); p++) {
            if (n > INT64_MAX / 1000)
                return duration_error(s, err);
            n = n * 10 + (*p - '0');
        }
        size_t w = strcspn(p, "0123456789");
        for (size_t i = 0; i < sizeof duration_units / sizeof duration_units[0]; i++)
            if (strlen(duration_units[i].unit) == w && !strncmp(p, duration_units[i].unit, w))
                unit = duration_units[i].ms;
        if (p == digits || unit == 0)
            return duration_error(s, err);
        if (__builtin_mul_overflow(n, unit, &n) || __builtin_add_overflow(total, n, &total))
            return err_set(err, E_INVALID, "\"%.64s\" is too long a time", s);
        p += w;
    }
    *ret_ms = total;
    return 0;
}

void duration_print(int64_t ms, char out[32])
{
    static const int order[] = {
        3, 2, 1, 0}; /* hours are the largest that all readers of Go durations know */
    char *p = out;

    if (ms <= 0) {
        (void)snprintf(out, 32, "0s");
        return;
    }
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        int64_t unit = duration_units[order[i]].ms, n = ms / unit;
        if (n > 0)
            p += snprintf(p, (size_t)(out + 32 - p), "%lld%s", (long long)n,
                          duration_units[order[i]].unit);
        ms -= n * unit;
    }
}

/* ---- quantities ---- */
static const struct {
    const char *suffix;
    int two, ten; /* powers */
} quantity_units[] = {{"", 0, 0},    {"n", 0, -9},  {"u", 0, -6},  {"m", 0, -3},
                      {"k", 0, 3},   {"M", 0, 6},   {"G", 0, 9},   {"T", 0, 12},
                      {"P", 0, 15},  {"E", 0, 18},  {"Ki", 10, 0}, {"Mi", 20, 0},
                      {"Gi", 30, 0}, {"Ti", 40, 0}, {"Pi", 50, 0}, {"Ei", 60, 0}};

static int quantity_error(const char *s, struct err *err)
{
    return err_set(err, E_INVALID,
                   "\"%.64s\" is not a quantity; write it as 40Gi, 1.5G, 500m or 16", s);
}

/* v * 10^ten * 2^two, rounded up as Kubernetes does; false on overflow. */
static bool quantity_scale(unsigned __int128 v, int ten, int two, int64_t *ret)
{
    bool rest = false;

    for (; two > 0; two--) {
        if (v >> 126)
            return false;
        v <<= 1;
    }
    for (; ten > 0; ten--) {
        if (v > (unsigned __int128)INT64_MAX)
            return false;
        v *= 10;
    }
    for (; ten < 0; ten++) {
        rest = rest || v % 10 != 0;
        v /= 10;
    }
    v += rest ? 1 : 0;
    if (v > (unsigned __int128)INT64_MAX)
        return false;
    *ret = (int64_t)v;
    return true;
}

int quantity_parse(const char *s, int64_t scale, int64_t *ret, struct err *err)
{
    unsigned __int128 v = 0;
    int ten = scale == 1000 ? 3 : 0, two = 0, digits = 0;
    bool point = false, found = false;
    const char *p = s;

    PRE(scale == 1 || scale == 1000);
    if (*p == '-')
        return err_set(err, E_INVALID, "\"%.64s\" must not be negative", s);
    for (; isdigit((unsigned char)*p) || (*p == '.' && !point); p++) {
        if (*p == '.') {
            point = true;
            continue;
        }
        if (v > (unsigned __int128)INT64_MAX)
            return err_set(err, E_INVALID, "\"%.64s\" has too many digits", s);
        v = v * 10 + (unsigned)(*p - '0');
        ten -= point;
        digits++;
    }
    if (digits == 0)
        return quantity_error(s, err);
    if ((*p == 'e' || *p == 'E') &&
        (isdigit((unsigned char)p[1]) || (p[1] == '-' && isdigit((unsigned char)p[2])))) {
        char *end;
        long e = strtol(p + 1, &end, 10);
        if (*end || e > 30 || e < -30)
            return quantity_error(s, err);
        ten += (int)e;
        found = true;
    }
    for (size_t i = 0; !found && i < sizeof quantity_units / sizeof quantity_units[0]; i++) {
        if (strcmp(p, quantity_units[i].suffix))
            continue;
        ten += quantity_units[i].ten;
        two = quantity_units[i].two;
        found = true;
    }
    if (!found)
        return quantity_error(s, err);
    if (v != 0 && !quantity_scale(v, ten, two, ret))
        return err_set(err, E_INVALID, "\"%.64s\" is too large", s);
    if (v == 0)
        *ret = 0;
    return 0;
}

void quantity_print_bytes(int64_t bytes, char out[32])
{
    static const char *const suffix[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
    unsigned i = 0;

    while (bytes != 0 && bytes % 1024 == 0 && i < 6) {
        bytes /= 1024;
        i++;
    }
    (void)snprintf(out, 32, "%lld%s", (long long)bytes, suffix[i]);
}

void quantity_print_milli(int64_t milli, char out[32])
{
    if (milli % 1000 == 0)
        (void)snprintf(out, 32, "%lld", (long long)(milli / 1000));
    else
        (void)snprintf(out, 32, "%lldm", (long long)milli);
}

/* ---- times: the proleptic Gregorian calendar, without the C library's zones and locales ---- */
static int64_t days_from_civil(int64_t y, int64_t m, int64_t d)
{
    y -= m <= 2;
    int64_t era = y / 400, yoe = y - era * 400;
    int64_t doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;

    return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

static bool digits_at(const char *s, unsigned n, int64_t *ret)
{
    int64_t v = 0;

    for (unsigned i = 0; i < n; i++) {
        if (!isdigit((unsigned char)s[i]))
            return false;
        v = v * 10 + (s[i] - '0');
    }
    *ret = v;
    return true;
}

static bool month_day_ok(int64_t y, int64_t m, int64_t d)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;

    return m >= 1 && m <= 12 && d >= 1 && d <= days[m - 1] + (m == 2 && leap);
}

/* "Z" or "+01:00" at p; the offset in minutes. */
static bool zone_at(const char *p, int64_t *ret)
{
    int64_t h, m;

    *ret = 0;
    if ((*p == 'Z' || *p == 'z') && !p[1])
        return true;
    if (*p != '+' && *p != '-')
        return false;
    if (!digits_at(p + 1, 2, &h) || p[3] != ':' || !digits_at(p + 4, 2, &m) || p[6] || h > 23 ||
        m > 59)
        return false;
    *ret = (*p == '-' ? -1 : 1) * (h * 60 + m);
    return true;
}

int time_parse(const char *s, int64_t *ret_ms, struct err *err)
{
    int64_t y, mo, d, h, mi, sec, zone, ms = 0;
    const char *p = s + 19;

    if (strnlen(s, 20) < 20 || !digits_at(s, 4, &y) || s[4] != '-' || !digits_at(s + 5, 2, &mo) ||
        s[7] != '-' || !digits_at(s + 8, 2, &d) || (s[10] != 'T' && s[10] != 't') ||
        !digits_at(s + 11, 2, &h) || s[13] != ':' || !digits_at(s + 14, 2, &mi) || s[16] != ':' ||
        !digits_at(s + 17, 2, &sec))
        goto bad;
    if (*p == '.') {
        int64_t unit = 100;
        if (!isdigit((unsigned char)*++p))
            goto bad;
        for (; isdigit((unsigned char)*p); p++, unit /= 10)
            ms += (*p - '0') * unit;
    }
    if (!zone_at(p, &zone) || y < 1 || !month_day_ok(y, mo, d) || h > 23 || mi > 59 || sec > 60)
        goto bad;
    *ret_ms = ((days_from_civil(y, mo, d) * 24 + h) * 60 + mi - zone) * 60000 + sec * 1000 + ms;
    return 0;
bad:
    return err_set(err, E_INVALID, "\"%.64s\" is not a time; write it as 2026-11-21T03:33:22Z", s);
}

void time_print_as(int64_t ms, unsigned flags, char out[32])
{
    int64_t days = ms / 86400000, rest = ms % 86400000;

    if (rest < 0) {
        rest += 86400000;
        days--;
    }
    int64_t z = days + 719468, era = (z >= 0 ? z : z - 146096) / 146097, doe = z - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    int64_t d = doy - (153 * mp + 2) / 5 + 1, m = mp + (mp < 10 ? 3 : -9);
    int64_t y = yoe + era * 400 + (m <= 2), frac = rest % 1000;
    int n = snprintf(out, 32, "%04d-%02d-%02dT%02d:%02d:%02d", (int)y, (int)m, (int)d,
                     (int)(rest / 3600000), (int)(rest / 60000 % 60), (int)(rest / 1000 % 60));
    if (flags & FIELD_TIME_MICRO)
        (void)snprintf(out + n, 32 - (size_t)n, ".%03d000Z", (int)frac);
    else if (frac && !(flags & FIELD_TIME_SECONDS))
        (void)snprintf(out + n, 32 - (size_t)n, ".%03dZ", (int)frac);
    else
        (void)snprintf(out + n, 32 - (size_t)n, "Z");
}

void time_print(int64_t ms, char out[32])
{
    time_print_as(ms, 0, out);
}

/* ---- floating point ---- */
void f64_text(double v, char out[32])
{
    if (v == floor(v) && fabs(v) < 1e15) {
        (void)snprintf(out, 32, "%lld", (long long)v);
        return;
    }
    for (int digits = 15; digits <= 17; digits++) { /* the shortest that reads back as the same */
        (void)snprintf(out, 32, "%.*g", digits, v);
        if (strtod(out, NULL) == v)
            return;
    }
}

void pct_text(double v, char out[32])
{
    for (int digits = 6; digits <= 17; digits++) {
        char number[28];
        (void)snprintf(number, sizeof number, "%.*g", digits, v * 100);
        if (strtod(number, NULL) / 100 == v) {
            (void)snprintf(out, 32, "%s%%", number);
            return;
        }
    }
    f64_text(v, out);
}

/* ---- base64 ---- */
static const char base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_print(struct buf *out, const void *p, size_t n)
{
    const unsigned char *c = p;

    for (; n > 0; c += 3) {
        size_t m = n < 3 ? n : 3;
        unsigned v = (unsigned)c[0] << 16 | (m > 1 ? (unsigned)c[1] << 8 : 0) | (m > 2 ? c[2] : 0);
        char q[4] = {base64_digits[v >> 18], base64_digits[v >> 12 & 63],
                     m > 1 ? base64_digits[v >> 6 & 63] : '=', m > 2 ? base64_digits[v & 63] : '='};
        buf_add(out, q, 4);
        n -= m;
    }
}

int base64_parse(const char *s, struct arena *a, struct slice *ret, struct err *err)
{
    size_t n = strlen(s), used = 0;

    while (n > 0 && s[n - 1] == '=')
        n--;
    unsigned char *to = arena_alloc(a, n / 4 * 3 + 3);
    unsigned v = 0, bits = 0;
    for (size_t i = 0; to && i < n; i++) {
        const char *at = strchr(base64_digits, s[i]); /* never the NUL: i < strlen(s) */
        if (!at)
            return err_set(err, E_INVALID, "expected base64; '%c' at position %zu is not",
                           isprint((unsigned char)s[i]) ? s[i] : '?', i + 1);
        v = v << 6 | (unsigned)(at - base64_digits);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            to[used++] = (unsigned char)(v >> bits);
        }
    }
    if (!to || n % 4 == 1)
        return err_set(err, E_INVALID, "expected base64; its length is wrong");
    *ret = slice_make(to, used);
    return 0;
}
