/* hanse backup: takes a backup from a running cluster, checked as it comes. This file must never
 * leave a file that is not whole. */
#include "api/cli/cli_internal.h"

#include "api/base/parcel.h"

#include <unistd.h>

#define SAY_EVERY_MS 2000

struct taking {
    struct cli *c;
    struct parcel_in *in;
    struct file_out *out; /* NULL: standard output */
    cJSON *about;
    uint64_t bytes, said_ms;
    bool says;
    int code;
    struct err err;
};

static int part(void *arg, uint32_t type, struct slice bytes, struct err *err)
{
    struct taking *x = arg;

    return type == PARCEL_ABOUT && !x->about ? json_parse(bytes.p, bytes.n, &x->about, err) : 0;
}

static void say(struct taking *x, bool end)
{
    uint64_t now = loop_now_ms(x->c->loop);

    if (!x->says || (!end && now - x->said_ms < SAY_EVERY_MS))
        return;
    x->said_ms = now;
    (void)fprintf(x->c->err, "\r%llu MiB%s", (unsigned long long)(x->bytes >> 20), end ? "\n" : "");
    (void)fflush(x->c->err);
}

static int came(const void *p, size_t n, void *arg)
{
    struct taking *x = arg;

    x->bytes += n;
    x->code = parcel_feed(x->in, p, n, &x->err);
    if (!x->code && x->out)
        x->code = file_out_add(x->out, p, n, &x->err);
    else if (!x->code && fwrite(p, 1, n, x->c->out) != n)
        x->code = err_set(&x->err, E_IO, "writing to standard output failed");
    say(x, false);
    return x->code;
}

static int take(struct taking *x, struct err *err)
{
    struct client_request rq = {.method = "GET",
                                .path = HANSE_API "/operations/backup/stream",
                                .accept = "application/octet-stream, application/json",
                                .data = came,
                                .arg = x};
    struct client_answer a;
    int rv;

    client_answer_init(&a);
    rv = client_perform(x->c->lane, &rq, &a, err);
    if (!rv)
        rv = client_status(&a, err);
    client_answer_fini(&a);
    say(x, true);
    if (!x->code && x->bytes && (rv || parcel_whole(x->in, err)))
        return err_set(err, E_UNAVAIL,
                       "the backup was broken off after %llu bytes, and is thrown away: "
                       "its member may have stopped; try again",
                       (unsigned long long)x->bytes);
    return x->code ? err_set(err, x->code, "%s", x->err.text) : rv;
}

static void made(struct taking *x, const char *path)
{
    FILE *to = x->out ? x->c->out : x->c->err;

    (void)fprintf(to, "%s: %llu bytes, cluster %s, resourceVersion %s\n", path,
                  (unsigned long long)x->bytes, json_text_of(x->about, "cluster"),
                  json_text_of(x->about, "resourceVersion"));
    if (strcmp(json_text_of(x->about, "archiveAbsent"), "0") != 0)
        (void)fprintf(
            x->c->err,
            "%s segments of the archive are not on this member, and not in it: see hanse status\n",
            json_text_of(x->about, "archiveAbsent"));
}

int verb_backup(struct cli *c, struct err *err)
{
    const char *path = arg_text(&c->args, "output", "");
    struct taking x = {.c = c, .says = isatty(STDERR_FILENO) != 0};
    bool out = !strcmp(path, "-");
    int rv;

    if (!*path || c->args.n_pos)
        return cli_usage(c, err, "where to? -o FILE");
    if (*arg_text(&c->args, "data", ""))
        return cli_usage(c, err, "--data comes without options of a login");
    if (out && isatty(STDOUT_FILENO))
        return err_set(err, E_USAGE, "-o -: a backup is not for a terminal");
    if ((rv = cli_connect(c, err)) || (!out && (rv = file_out_open(path, 0600, &x.out, err))))
        return rv;
    x.in = parcel_in_create(part, &x);
    rv = take(&x, err);
    if (rv)
        file_out_abort(x.out);
    else if (x.out)
        rv = file_out_commit(x.out, err);
    if (!rv && arg_flag(&c->args, "json") && !out)
        json_out(c, x.about, "json");
    else if (!rv)
        made(&x, path);
    (void)parcel_in_destroy(x.in);
    cJSON_Delete(x.about);
    return rv;
}
