/* token: bearer tokens are made, listed and revoked. The clear token is printed once, by create. */
#include "api/cli/cli_internal.h"

#include <stdio.h>
#include <string.h>

#define SYSTEM_NS "hanse-system"

static void each_given(struct cli *c, const char *option, void (*take)(const char *v, void *arg),
                       void *arg)
{
    for (unsigned i = 0; i < c->args.n_given; i++)
        if (!strcmp(c->args.given[i].option->name, option))
            take(c->args.given[i].value, arg);
}

static void take_group(const char *v, void *arg)
{
    struct buf *b = arg;

    buf_printf(b, "%s%s", b->n ? "," : "", v);
}

static void take_audience(const char *v, void *arg)
{
    (void)cJSON_AddItemToArray(arg, cJSON_CreateString(v));
}

static cJSON *create_body(struct cli *c, const char *user, const char *account, int64_t ttl_ms)
{
    cJSON *body = cJSON_CreateObject(), *audiences;
    AUTO_BUF groups = {0};

    buf_init(&groups, 4096);
    each_given(c, "group", take_group, &groups);
    if (user) {
        (void)cJSON_AddStringToObject(body, "user", user);
        (void)cJSON_AddStringToObject(body, "groups", groups.n ? groups.p : "");
    } else {
        (void)cJSON_AddStringToObject(body, "namespace", c->ns);
        (void)cJSON_AddStringToObject(body, "serviceAccount", account);
    }
    int64_t seconds = ttl_ms / 1000; /* whole ones */
    (void)cJSON_AddNumberToObject(body, "ttlSeconds", (double)seconds);
    audiences = cJSON_AddArrayToObject(body, "audiences");
    each_given(c, "audience", take_audience, audiences);
    return body;
}

static int create(struct cli *c, struct err *err)
{
    const char *user = arg_text(&c->args, "user", NULL);
    const char *account = arg_text(&c->args, "service-account", NULL);
    int64_t ttl;
    cJSON *answer = NULL;

    if (c->args.n_pos != 1 || !user == !account)
        return cli_usage(c, err, "for whom? --user NAME or --service-account NAME");
    if (account && arg_flag(&c->args, "group"))
        return cli_usage(c, err, "the groups of a service account are its namespace's");
    int rv = arg_duration(&c->args, "ttl", 3600L * 1000, &ttl, err);
    if (!rv)
        rv = cli_connect(c, err);
    if (rv)
        return rv;
    cJSON *body = create_body(c, user, account, ttl);
    rv = cli_operate(c, "token.create", body, &answer, err);
    cJSON_Delete(body);
    if (!rv && !strcmp(arg_text(&c->args, "output", ""), "json"))
        json_out(c, answer, "json");
    else if (!rv)
        (void)fprintf(c->out, "%s\n", json_text_of(answer, "token"));
    cJSON_Delete(answer);
    return rv;
}

static int list(struct cli *c, struct err *err)
{
    static const struct option all = {"all-namespaces", 'A', NULL, ""};

    if (c->args.n_pos != 1)
        return cli_usage(c, err, "list takes no name; hanse get token NAME shows one");
    c->args.pos[0] = "tokens";
    if (!arg_text(&c->args, "namespace", NULL) &&
        c->args.n_given < sizeof c->args.given / sizeof *c->args.given)
        c->args.given[c->args.n_given++] = (struct given){&all, ""};
    return verb_get(c, err);
}

/* A token's name, or the token itself: hanse-NAMESPACE.ID.SECRET. */
static int revoke(struct cli *c, struct err *err)
{
    const char *ns = arg_text(&c->args, "namespace", SYSTEM_NS), *name, *dot, *end;
    cJSON *answer = NULL;

    if (c->args.n_pos != 2)
        return cli_usage(c, err, "which one? hanse token list shows their names");
    name = c->args.pos[1];
    if (!strncmp(name, "hanse-", 6) && (dot = strchr(name, '.')) && (end = strchr(dot + 1, '.'))) {
        ns = arena_strndup(c->mem, name + 6, (size_t)(dot - name - 6));
        name = arena_printf(c->mem, "token-%.*s", (int)(end - dot - 1), dot + 1);
    }
    int rv = cli_connect(c, err);
    if (!rv)
        rv = cli_json(c, "DELETE", cli_path(c, kind_by_id(KIND_TOKEN), ns, false, name), NULL,
                      &answer, err);
    cJSON_Delete(answer);
    if (!rv)
        (void)fprintf(c->out, "token %s/%s: revoked\n", ns, name);
    return rv;
}

int verb_token(struct cli *c, struct err *err)
{
    const char *op = c->args.n_pos ? c->args.pos[0] : "";

    if (!strcmp(op, "create"))
        return create(c, err);
    if (!strcmp(op, "list"))
        return list(c, err);
    if (!strcmp(op, "revoke"))
        return revoke(c, err);
    return cli_usage(c, err, "expected create, list or revoke");
}
