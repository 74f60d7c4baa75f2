/* Following one object, or all of a kind, until the caller has seen enough: a watch that is begun
 * anew from the present state whenever its connection ends. It must never take a lost connection
 * for an end. */
#include "api/cli/cli_internal.h"

struct following {
    struct cli *c;
    int (*each)(void *arg, const cJSON *object, bool deleted);
    void *arg;
    struct buf line;
    struct err err; /* what the server said on the stream */
    bool done;
};

static int follow_line(struct following *f, const char *text, size_t n)
{
    cJSON *j = cJSON_ParseWithLength(text, n);
    const char *type = json_text_of(j, "type");
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(j, "object");
    bool deleted = !strcmp(type, "DELETED"), expired = !strcmp(type, "ERROR");

    if (deleted || !strcmp(type, "ADDED") || !strcmp(type, "MODIFIED"))
        f->done = f->each(f->arg, o, deleted) != 0;
    cJSON_Delete(j);
    return f->done || expired;
}

static int follow_data(const void *p, size_t n, void *arg)
{
    struct following *f = arg;
    char *end;

    buf_add(&f->line, p, n);
    while (f->line.n && (end = memchr(f->line.p, '\n', f->line.n))) {
        size_t len = (size_t)(end - f->line.p);
        int over = follow_line(f, f->line.p, len);
        buf_consume(&f->line, len + 1);
        if (over)
            return 1;
    }
    return f->line.failed ? 1 : 0;
}

/* The rest of the time as the server's own limit of a watch, so that silence ends too. */
static const char *follow_path(struct cli *c, const char *path, uint64_t left_ms)
{
    return left_ms == UINT64_MAX ? path
                                 : arena_printf(c->mem, "%s&timeoutSeconds=%llu", path,
                                                (unsigned long long)left_ms / 1000 + 1);
}

int cli_follow(struct cli *c, const char *path, uint64_t within_ms,
               int (*each)(void *arg, const cJSON *object, bool deleted), void *arg,
               struct err *err)
{
    struct following f = {.c = c, .each = each, .arg = arg};
    uint64_t began_ms = loop_now_ms(c->loop);
    struct client_answer a;
    int rv = 0;

    buf_init(&f.line, 16u << 20);
    client_answer_init(&a);
    while (!rv && !f.done) {
        uint64_t now_ms = loop_now_ms(c->loop), left_ms = UINT64_MAX;
        if (within_ms) {
            if (now_ms - began_ms >= within_ms) {
                rv = err_set(err, E_TIMEOUT, "the time is over");
                break;
            }
            left_ms = within_ms - (now_ms - began_ms);
        }
        struct client_request rq = {
            .method = "GET", .path = follow_path(c, path, left_ms), .data = follow_data, .arg = &f};
        buf_reset(&f.line);
        rv = client_perform(c->lane, &rq, &a, err);
        if (!rv)
            rv = client_status(&a, err);
        if (a.status == 200 && (rv == E_CONNECT || rv == E_UNAVAIL))
            rv = 0; /* a member died under it: the next one tells the state again */
        if (!rv && !f.done && loop_now_ms(c->loop) - now_ms < 1000)
            cli_pause(c, 200);
    }
    buf_fini(&f.line);
    client_answer_fini(&a);
    return rv;
}

const char *cli_watch_path(struct cli *c, const struct kind *k, const char *ns, const char *name)
{
    AUTO_BUF b = {0};

    buf_init(&b, 8192);
    buf_printf(&b, "%s?watch=1&fieldSelector=metadata.name%%3D", cli_path(c, k, ns, false, NULL));
    client_encode(&b, name);
    return arena_strdup(c->mem, b.p);
}
