/* What verbs share: the words for kinds, the login and its client, requests and paths. */
#include "api/cli/cli_internal.h"

#include <strings.h>
#include <unistd.h>

/* ---- words ---- */
static size_t edits(const char *a, const char *b)
{
    size_t row[65], n = strlen(b);

    if (n > 64 || strlen(a) > 64)
        return 99;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t above = row[j], best = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < best)
                best = above + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = above;
            row[j] = best;
        }
    }
    return row[n];
}

const char *nearest_word(const char *word, const char *const *names, size_t n)
{
    const char *best = NULL;
    size_t least = 3;

    for (size_t i = 0; i < n; i++) {
        size_t d = edits(word, names[i]);
        if (d < least && d < strlen(names[i])) {
            least = d;
            best = names[i];
        }
    }
    return best;
}

int cli_kind(const char *word, const struct kind **ret, struct err *err)
{
    const struct kind *kinds[KIND_LIMIT];
    const char *names[KIND_LIMIT * 2];
    size_t n = kind_all(kinds, KIND_LIMIT), m = 0;

    *ret = kind_by_plural(NULL, word);
    for (size_t i = 0; i < n && !*ret; i++) {
        if (!strcasecmp(word, kinds[i]->kind) || !strcasecmp(word, kinds[i]->plural))
            *ret = kinds[i];
        names[m++] = kinds[i]->plural;
        names[m++] = kinds[i]->singular;
    }
    if (*ret)
        return 0;
    const char *near = nearest_word(word, names, m);
    if (near)
        return err_set(err, E_USAGE, "unknown kind \"%s\"; did you mean %s?", word, near);
    return err_set(err, E_USAGE,
                   "unknown kind \"%s\"; for example workloads, targets, queues, nodes", word);
}

int cli_usage(const struct cli *c, struct err *err, const char *what)
{
    return err_set(err, E_USAGE, "%s; usage: hanse %s %s", what, c->verb->name, c->verb->usage);
}

/* ---- server ---- */
static int login_load(struct cli *c, struct err *err)
{
    const char *path = arg_text(&c->args, "kubeconfig", NULL), *home = getenv("HOME");
    bool must = path != NULL;

    if (!path)
        path = getenv("KUBECONFIG");
    if (!path || !*path)
        path = arena_printf(c->mem, "%s/.kube/config", home ? home : "");
    int rv = kubeconfig_load(c->loop, path, must, arg_text(&c->args, "context", NULL), c->mem,
                             &c->login, err);
    if (rv)
        return rv;
    for (unsigned i = 0, n = 0; i < c->args.n_given; i++)
        if (!strcmp(c->args.given[i].option->name, "server") && n < LOGIN_SERVERS_MAX) {
            c->login.servers[n++] = c->args.given[i].value;
            c->login.n_servers = n;
        }
    c->login.token = arg_text(&c->args, "token", c->login.token);
    const char *ca = arg_text(&c->args, "certificate-authority", NULL);
    if (ca) {
        c->login.ca_file = ca;
        c->login.ca_pem = NULL;
    }
    if (!c->login.n_servers)
        return err_set(err, E_USAGE,
                       "no login: set KUBECONFIG or --kubeconfig to a file (hanse dev writes one), "
                       "or name --server, "
                       "--certificate-authority and --token");
    return 0;
}

static int header_add(struct buf *b, const char *name, const char *value, struct err *err)
{
    for (const char *p = value; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            return err_set(err, E_USAGE, "--as and --as-group: a control character is in it");
    buf_printf(b, "%s: %s\r\n", name, value);
    return 0;
}

/* Whom the command acts as: options over the kubeconfig, as kubectl has it. */
static int as_headers(struct cli *c, const char **ret, struct err *err)
{
    struct login *in = &c->login;
    const char *as = arg_text(&c->args, "as", in->as);
    unsigned n = 0;
    AUTO_BUF b = {0};

    for (unsigned i = 0; i < c->args.n_given; i++)
        if (!strcmp(c->args.given[i].option->name, "as-group")) {
            if (n == LOGIN_GROUPS_MAX)
                return err_set(err, E_USAGE, "--as-group: at most %d", LOGIN_GROUPS_MAX);
            in->as_groups[n++] = c->args.given[i].value;
        }
    n = n ? n : in->n_as_groups;
    if (!as && n)
        return err_set(err, E_USAGE, "--as-group needs --as USER");
    buf_init(&b, 64u << 10);
    int rv = as ? header_add(&b, "Impersonate-User", as, err) : 0;
    for (unsigned i = 0; i < n && !rv; i++)
        rv = header_add(&b, "Impersonate-Group", in->as_groups[i], err);
    *ret = b.n ? arena_strdup(c->mem, b.p) : NULL;
    return rv;
}

int cli_connect(struct cli *c, struct err *err)
{
    const char *headers = NULL;
    struct tls_config *tls = NULL;
    int64_t timeout = 0;
    bool plain = true;

    if (c->client)
        return 0;
    int rv = login_load(c, err);
    if (!rv)
        rv = arg_duration(&c->args, "timeout", c->patience_ms, &timeout, err);
    if (!rv)
        rv = as_headers(c, &headers, err);
    if (rv)
        return rv;
    c->ns = arg_text(&c->args, "namespace", c->login.ns && *c->login.ns ? c->login.ns : "default");
    const struct login *in = &c->login;
    for (unsigned i = 0; i < in->n_servers; i++)
        plain = plain && !strncmp(in->servers[i], "unix:", 5);
    if (!plain) {
        struct tls_config_spec spec = {.cert_file = in->cert_file,
                                       .key_file = in->key_file,
                                       .ca_file = in->ca_pem ? NULL : in->ca_file,
                                       .cert_pem = in->cert_pem,
                                       .key_pem = in->key_pem,
                                       .ca_pem = in->ca_pem,
                                       .server_name = in->tls_server_name};
        if (!in->ca_file && !in->ca_pem)
            return err_set(err, E_USAGE,
                           "whom to trust is not told: name the cluster's CA with "
                           "--certificate-authority or in the kubeconfig");
        rv = tls_config_create(&spec, false, &tls, err);
        if (rv)
            return rv;
    }
    struct client_spec spec = {.loop = c->loop,
                               .servers = in->servers,
                               .n_servers = in->n_servers,
                               .tls = tls,
                               .token = in->token,
                               .headers = headers,
                               .timeout_ms = (uint64_t)timeout,
                               .answer_ms = (uint64_t)c->patience_ms};
    rv = client_create(&spec, &c->client, err);
    if (tls)
        (void)tls_config_unref(tls);
    if (!rv)
        c->lane = client_lane_create(c->client);
    return rv;
}

/* An object is often looked for in the wrong namespace: the error says where it was. */
static int not_found_where(const struct cli *c, const char *path, struct err *err)
{
    const char *at = strstr(path, "/namespaces/"), *slash = at ? strchr(at + 12, '/') : NULL;
    char text[ERR_TEXT_MAX];

    if (!slash || !err || strncmp(slash + 1, "operations", 10) == 0)
        return E_NOTFOUND;
    str_copy(text, sizeof text, err->text);
    return err_set(err, E_NOTFOUND, "%.150s in namespace %.*s%s", text, (int)(slash - at - 12),
                   at + 12,
                   arg_flag(&c->args, "namespace") ? "" : "; -n NAMESPACE looks in another");
}

int cli_request(struct cli *c, const char *method, const char *path, const char *accept,
                const char *type, struct slice body, struct client_answer *answer, struct err *err)
{
    struct client_request rq = {
        .method = method,
        .path = path,
        .accept = accept,
        .content_type = type,
        .body = body,
        .operation = !strncmp(path, HANSE_API "/operations/", sizeof HANSE_API "/operations/" - 1)};
    int rv = *path == '/' ? cli_connect(c, err)
                          : err_set(err, E_USAGE, "an empty name, or . or .., names no object");

    if (!rv)
        rv = client_perform(c->lane, &rq, answer, err);
    if (!rv)
        rv = client_status(answer, err);
    return rv == E_NOTFOUND && !strcmp(method, "GET") ? not_found_where(c, path, err) : rv;
}

int cli_json(struct cli *c, const char *method, const char *path, const cJSON *body, cJSON **ret,
             struct err *err)
{
    struct client_answer a;
    char *text = body ? cJSON_PrintUnformatted(body) : NULL;
    const char *type = !strcmp(method, "PATCH") ? "application/merge-patch+json" : NULL;

    client_answer_init(&a);
    int rv = cli_request(c, method, path, NULL, type, slice_make(text, text ? strlen(text) : 0), &a,
                         err);
    if (!rv && ret)
        rv = json_parse(a.body.n ? a.body.p : "{}", a.body.n ? a.body.n : 2, ret, err);
    client_answer_fini(&a);
    cJSON_free(text);
    return rv;
}

int cli_operate(struct cli *c, const char *op, const cJSON *body, cJSON **ret, struct err *err)
{
    const char *path = arena_printf(c->mem, HANSE_API "/operations/%s", op);
    return cli_json(c, body ? "POST" : "GET", path, body, ret, err);
}

struct pause {
    struct loop *loop;
    bool over;
};
static void pause_over(void *arg)
{
    struct pause *p = arg;

    p->over = true;
    loop_stop(p->loop);
}

void cli_pause(struct cli *c, uint64_t ms)
{
    struct pause p = {.loop = c->loop};
    struct timer t;

    timer_init(&t, c->loop, pause_over, &p);
    timer_start(&t, ms);
    client_run_until(c->loop, &p.over);
}

bool cli_name_ok(const char *name)
{
    return *name && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

const char *cli_path(struct cli *c, const struct kind *k, const char *ns, bool all,
                     const char *name)
{
    AUTO_BUF b = {0};

    if (name && !cli_name_ok(name))
        return "no-name";
    buf_init(&b, 8192);
    if (*k->group)
        buf_printf(&b, "/apis/%s/%s/", k->group, k->version);
    else
        buf_printf(&b, "/api/%s/", k->version);
    if (k->namespaced && !all) {
        buf_str(&b, "namespaces/");
        client_encode(&b, ns);
        buf_char(&b, '/');
    }
    buf_str(&b, k->plural);
    if (name) {
        buf_char(&b, '/');
        client_encode(&b, name);
    }
    return arena_strdup(c->mem, b.p);
}
