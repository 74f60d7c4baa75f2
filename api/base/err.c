/* Error table and texts. This file must never allocate: errors are made when memory is short,
 * too. */
#include "api/base/err.h"

#include "api/base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct err_info rows[E_ROW_NR] = {
#define E(code, http, reason, exit, retry, sentence)                                               \
    [code##_ROW] = {#code, http, reason, exit, RETRY_##retry, sentence},
#include "api/base/err.def"
#undef E
};

const struct err_info *err_info(int code)
{
    int row = -code - 1;

    if (row < 0 || row >= E_ROW_NR)
        row = E_INTERNAL_ROW;
    return &rows[row];
}

static void fill(struct err *e, int code, const char *path, const char *file, int line,
                 const char *fmt, va_list ap) PRINTF_LIKE(6, 0);
static void fill(struct err *e, int code, const char *path, const char *file, int line,
                 const char *fmt, va_list ap)
{
    char text[ERR_TEXT_MAX]; /* apart, since the arguments may point into *e */

    int n = vsnprintf(text, sizeof text, fmt, ap);
    if (n >= (int)sizeof text)
        str_mark_cut(text, sizeof text);
    str_copy(e->field, sizeof e->field, path);
    memcpy(e->text, text, sizeof text);
    e->code = code;
    e->file = file;
    e->line = line;
}

int err_set_at(struct err *e, int code, const char *file, int line, const char *fmt, ...)
{
    if (e) {
        va_list ap;
        va_start(ap, fmt);
        fill(e, code, "", file, line, fmt, ap);
        va_end(ap);
    }
    return code;
}

int err_field_at(struct err *e, int code, const char *path, const char *file, int line,
                 const char *fmt, ...)
{
    if (e) {
        va_list ap;
        va_start(ap, fmt);
        fill(e, code, path, file, line, fmt, ap);
        va_end(ap);
    }
    return code;
}

int err_prefix(struct err *e, const char *fmt, ...)
{
    char old[ERR_TEXT_MAX], head[ERR_TEXT_MAX];
    va_list ap;

    if (!e)
        return E_INTERNAL;
    va_start(ap, fmt);
    (void)vsnprintf(head, sizeof head, fmt, ap);
    va_end(ap);
    memcpy(old, e->text, sizeof old);
    int n = snprintf(e->text, sizeof e->text, "%s: ", head);
    if (n > 0 && (size_t)n < sizeof e->text)
        (void)snprintf(e->text + n, sizeof e->text - (size_t)n, "%s", old);
    return e->code;
}

void assert_failed(const char *expr, const char *file, int line)
{
    (void)fprintf(stderr, "hanse: broken invariant: %s (%s:%d)\n", expr, file, line);
    abort();
}
