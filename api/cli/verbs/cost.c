/* cost: the ledger's report. Without -n it is the cluster's, where that is permitted, and else the
 * own namespace's: this is said, so that nobody takes one for the other. */
#include "api/cli/cli_internal.h"

static void param(struct buf *path, const char *name, const char *value)
{
    buf_printf(path, "%c", memchr(path->p, '?', path->n) ? '&' : '?');
    client_encode(path, name);
    buf_char(path, '=');
    client_encode(path, value);
}

static int params(struct cli *c, struct buf *path, struct err *err)
{
    static const char *const plain[] = {"by", "since", "from", "to", "limit"};

    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (arg_text(&c->args, plain[i], NULL))
            param(path, plain[i], arg_text(&c->args, plain[i], NULL));
    for (unsigned i = 0; i < c->args.n_given; i++) {
        const struct given *g = &c->args.given[i];
        const char *eq = strchr(g->value, '=');

        if (strcmp(g->option->name, "where") != 0)
            continue;
        if (!eq || eq == g->value)
            return err_set(err, E_USAGE, "--where %s: expected such as queue=vision", g->value);
        param(path, arena_strndup(c->mem, g->value, (size_t)(eq - g->value)), eq + 1);
    }
    return path->failed ? err_set(err, E_USAGE, "the options are too long") : 0;
}

static int ask(struct cli *c, const char *ns, struct client_answer *answer, struct err *err)
{
    AUTO_BUF path = {0};

    buf_init(&path, 8192);
    buf_str(&path, HANSE_API);
    if (ns) {
        buf_str(&path, "/namespaces/");
        client_encode(&path, ns);
    }
    buf_str(&path, "/operations/cost");
    int rv = params(c, &path, err);
    return rv ? rv : cli_request(c, "GET", path.p, NULL, NULL, slice_make(NULL, 0), answer, err);
}

static int ask_either(struct cli *c, struct client_answer *answer, struct err *err)
{
    const char *ns = arg_text(&c->args, "namespace", NULL);
    int rv = ask(c, ns, answer, err);

    if (ns || rv != E_FORBIDDEN)
        return rv;
    struct err whole = *err;
    client_answer_fini(answer);
    client_answer_init(answer);
    rv = ask(c, c->ns, answer, err);
    if (rv == E_FORBIDDEN)
        *err = whole;
    else
        (void)fprintf(c->err, "The cluster's cost may not be read: this is namespace %s\n", c->ns);
    return rv;
}

int verb_cost(struct cli *c, struct err *err)
{
    const char *format = arg_text(&c->args, "output", "table");
    struct client_answer answer;
    cJSON *report = NULL;
    AUTO_BUF b = {0};

    if (strcmp(format, "table") != 0 && strcmp(format, "json") != 0 &&
        strcmp(format, "yaml") != 0 && strcmp(format, "csv") != 0)
        return err_set(err, E_USAGE, "-o %s: expected table, json, yaml or csv", format);
    if (c->args.n_pos)
        return cli_usage(c, err, "it takes options only");
    if (arg_text(&c->args, "since", NULL) && arg_text(&c->args, "from", NULL))
        return err_set(err, E_USAGE, "--since and --from say the same: one of them");
    buf_init(&b, OUT_MAX_BYTES);
    client_answer_init(&answer);
    int rv = ask_either(c, &answer, err);
    if (!rv)
        rv = json_parse(answer.body.n ? answer.body.p : "{}", answer.body.n ? answer.body.n : 2,
                        &report, err);
    if (!rv && !strcmp(format, "json"))
        json_indent(answer.body.p, answer.body.n, &b);
    else if (!rv && !strcmp(format, "yaml"))
        yaml_print(report, &b);
    else if (!rv && !strcmp(format, "csv"))
        cost_csv(report, &b);
    else if (!rv)
        cost_render(report, c->mem, &b);
    out_flush(c, &b);
    client_answer_fini(&answer);
    cJSON_Delete(report);
    return rv;
}
