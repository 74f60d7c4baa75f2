/* judge FILE...: is the history in these files (JSON lines, tests/support/history/README.md; all of
 * them together are one history) linearizable, and resourceVersion its order? Prints one JSON
 * object. Exit 0: it is. 1: it is not. 2: undecided within the bounds. 64: no history. */
#include "tests/support/history/history.h"

#include "api/base/err.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

#define FILE_MAX ((size_t)1 << 30)

static int take_file(struct history *h, const char *path, struct err *err)
{
    FILE *f = fopen(path, "rb");
    char part[1 << 16];
    struct buf b;
    size_t n;
    int rv = 0;

    if (!f)
        return err_set(err, E_NOTFOUND, "%s cannot be opened", path);
    buf_init(&b, FILE_MAX);
    while ((n = fread(part, 1, sizeof part, f)) > 0)
        buf_add(&b, part, n);
    if (b.failed || ferror(f))
        rv = err_set(err, E_IO, "%s cannot be read, or is too large", path);
    (void)fclose(f);
    if (!rv && b.n)
        rv = history_read(h, b.p, b.n, err);
    if (rv)
        (void)err_prefix(err, "%s", path);
    buf_fini(&b);
    return rv;
}
static void tell(const struct history_report *r)
{
    cJSON *j = cJSON_CreateObject();

    (void)cJSON_AddStringToObject(j, "verdict", history_verdict_text(r->verdict));
    (void)cJSON_AddStringToObject(j, "check", r->check);
    (void)cJSON_AddStringToObject(j, "why", r->why);
    (void)cJSON_AddNumberToObject(j, "operations", (double)r->ops);
    (void)cJSON_AddNumberToObject(j, "unknown", (double)r->unknown);
    (void)cJSON_AddNumberToObject(j, "lists", (double)r->lists);
    (void)cJSON_AddNumberToObject(j, "events", (double)r->events);
    (void)cJSON_AddNumberToObject(j, "objects", (double)r->keys);
    (void)cJSON_AddNumberToObject(j, "configurations", (double)r->configurations);
    char *text = cJSON_PrintUnformatted(j);
    (void)printf("%s\n", text);
    cJSON_free(text);
    cJSON_Delete(j);
}

int main(int argc, char **argv)
{
    struct history *h = history_create();
    struct history_report r = {0};
    struct err err = {0};
    int rv = argc < 2 ? err_set(&err, E_INVALID, "usage: judge FILE...") : 0;

    for (int i = 1; i < argc && !rv; i++)
        rv = take_file(h, argv[i], &err);
    if (!rv && !history_ops(h))
        rv = err_set(&err, E_INVALID, "there is nothing in it: an empty history proves nothing");
    if (rv) {
        (void)fprintf(stderr, "judge: %s\n", err.text);
        (void)history_destroy(h);
        return 64;
    }
    history_check(h, NULL, &r);
    tell(&r);
    (void)history_destroy(h);
    return (int)r.verdict;
}
