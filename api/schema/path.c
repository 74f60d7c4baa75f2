/* Where a value stands in a document, as error texts name it: "spec.workers[2].cpu". */
#include "api/base/limits.h"
#include "api/schema/schema_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void path_text(const struct path *p, char *out, size_t n)
{
    if (!p) {
        if (n)
            *out = 0;
        return;
    }
    path_text(p->up, out, n);
    size_t at = strlen(out);
    if (p->name)
        (void)snprintf(out + at, n - at, "%s%s", at ? "." : "", p->name);
    else
        (void)snprintf(out + at, n - at, "[%u]", p->index);
}

/* Put before what stands there already: an encoder that has run out of room finds out on its way
 * back where that was. */
void path_prepend(char path[ERR_FIELD_MAX], const char *name, unsigned index)
{
    char rest[ERR_FIELD_MAX];

    str_copy(rest, sizeof rest, path);
    if (name)
        (void)snprintf(path, ERR_FIELD_MAX, "%.60s%s%.60s", name, *rest && *rest != '[' ? "." : "",
                       rest);
    else
        (void)snprintf(path, ERR_FIELD_MAX, "[%u]%s%.100s", index, *rest && *rest != '[' ? "." : "",
                       rest);
}

int path_too_large(struct err *err, const char *what, const char *path, size_t max)
{
    return err_field(err, E_TOOLARGE, path,
                     "a %s would be larger than %zu bytes%s%s: make it smaller", what, max,
                     *path ? ", at " : "", path);
}

int path_error(struct err *err, const struct path *p, const char *fmt, ...)
{
    char path[ERR_FIELD_MAX], text[ERR_TEXT_MAX];
    va_list ap;

    path_text(p, path, sizeof path);
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_field(err, E_INVALID, path, "%s%s%s", path, *path ? ": " : "", text);
}
