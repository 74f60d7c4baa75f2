/* status, members, fence, version: the cluster itself. */
#include "api/cli/cli_internal.h"

#include <unistd.h>

void json_out(struct cli *c, const cJSON *j, const char *format)
{
    AUTO_BUF b = {0};

    buf_init(&b, OUT_MAX_BYTES);
    if (!strcmp(format, "yaml")) {
        yaml_print(j, &b);
    } else {
        tree_print_json(j, &b);
    }
    out_flush(c, &b);
}

static int format_check(struct cli *c, const char **ret, struct err *err)
{
    *ret = arg_text(&c->args, "output", "");
    if (**ret && strcmp(*ret, "json") != 0 && strcmp(*ret, "yaml") != 0 &&
        strcmp(*ret, "table") != 0 && strcmp(*ret, "wide") != 0)
        return err_set(err, E_USAGE, "-o %s: expected json or yaml", *ret);
    if (!strcmp(*ret, "table") || !strcmp(*ret, "wide"))
        *ret = "";
    return 0;
}

/* ---- members ---- */
/* Each server of the login is asked for itself: a member's pid and readiness are known to nobody
 * else. */
static cJSON *servers_ask(struct cli *c)
{
    cJSON *all = cJSON_CreateArray();

    for (unsigned i = 0; i < client_servers(c->client); i++) {
        struct client_lane *lane = client_lane_create(c->client);
        struct client_request rq = {.method = "GET",
                                    .path = HANSE_API "/operations/status",
                                    .here = true,
                                    .timeout_ms = 1500};
        struct client_answer a;
        struct err e = {0};
        client_answer_init(&a);
        client_lane_pin(lane, i);
        cJSON *j = !client_perform(lane, &rq, &a, &e) && a.status == 200 && a.body.n
                       ? cJSON_ParseWithLength(a.body.p, a.body.n)
                       : NULL;
        if (j) {
            (void)cJSON_AddStringToObject(j, "askedAt", c->login.servers[i]);
            (void)cJSON_AddItemToArray(all, j);
        }
        client_answer_fini(&a);
        (void)client_lane_destroy(lane);
    }
    return all;
}

static const cJSON *own_status(const cJSON *all, double id)
{
    const cJSON *s;

    cJSON_ArrayForEach(s, all) if (json_number_at(s, "member.id") == id) return s;
    return NULL;
}

static cJSON *members_list(struct cli *c, const cJSON *status)
{
    cJSON *all = servers_ask(c), *list = cJSON_CreateArray();
    const cJSON *m;

    cJSON_ArrayForEach(m, cJSON_GetObjectItemCaseSensitive(status, "members"))
    {
        double id = json_number_at(m, "id");
        const cJSON *own = own_status(all, id), *pid = json_at(own, "member.pid"),
                    *voter = json_at(m, "voter");
        const char *api = json_text_of(m, "api"), *role = json_text_of(m, "role");
        cJSON *j = cJSON_CreateObject();
        bool leads = own ? cJSON_IsTrue(json_at(own, "member.leads"))
                         : cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(m, "leader"));
        (void)cJSON_AddNumberToObject(j, "id", id);
        (void)cJSON_AddStringToObject(j, "name", json_text_of(m, "name"));
        (void)cJSON_AddStringToObject(j, "role",
                                      leads                  ? "leader"
                                      : *role                ? role
                                      : cJSON_IsFalse(voter) ? "standby"
                                                             : "voter");
        (void)cJSON_AddBoolToObject(j, "reachable", own != NULL);
        if (*api)
            (void)cJSON_AddStringToObject(j, "url",
                                          !strncmp(api, "https://", 8) || !strncmp(api, "unix:", 5)
                                              ? api
                                              : arena_printf(c->mem, "https://%s", api));
        else
            (void)cJSON_AddStringToObject(j, "url", json_text_of(own, "askedAt"));
        if (cJSON_IsNumber(pid))
            (void)cJSON_AddNumberToObject(j, "pid", pid->valuedouble);
        else
            (void)cJSON_AddNullToObject(j, "pid");
        (void)cJSON_AddItemToArray(list, j);
    }
    cJSON_Delete(all);
    return list;
}

static void members_table(struct cli *c, const cJSON *list, struct buf *out)
{
    static const char *const heads[] = {"ID", "NAME", "ROLE", "REACHABLE", "URL", "PID"};
    const cJSON *m;
    struct table t;

    table_init(&t, c->mem, 6);
    for (int i = 0; i < 6; i++)
        table_cell(&t, heads[i]);
    cJSON_ArrayForEach(m, list)
    {
        table_cell(&t, arena_printf(c->mem, "%.0f", json_number_at(m, "id")));
        table_cell(&t, *json_text_of(m, "name") ? json_text_of(m, "name") : "-");
        table_cell(&t, json_text_of(m, "role"));
        table_cell(&t,
                   cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(m, "reachable")) ? "yes" : "no");
        table_cell(&t, json_text_of(m, "url"));
        table_cell(&t, json_number_at(m, "pid") > 0
                           ? arena_printf(c->mem, "%.0f", json_number_at(m, "pid"))
                           : "-");
    }
    table_print(&t, out);
}

static int members_change(struct cli *c, const char *op, struct err *err)
{
    bool add = !strcmp(op, "add");
    char *end;

    if (c->args.n_pos != (add ? 3u : 2u))
        return cli_usage(c, err,
                         add ? "members add ID HOST:PORT (of its peer listener)" : "which member?");
    double id = (double)strtol(c->args.pos[1], &end, 10);
    if (*end || id < 1)
        return err_set(err, E_USAGE,
                       "member \"%s\": expected its number (hanse members lists them)",
                       c->args.pos[1]);
    if (!strcmp(op, "remove") && !arg_flag(&c->args, "yes"))
        return err_set(
            err, E_USAGE,
            "removing a member lowers what the cluster survives: say --yes when that is meant");
    cJSON *body = cJSON_CreateObject();
    (void)cJSON_AddNumberToObject(body, "id", id);
    if (add)
        (void)cJSON_AddStringToObject(body, "address", c->args.pos[2]);
    int rv = cli_operate(c, arena_printf(c->mem, "members.%s", op), body, NULL, err);
    cJSON_Delete(body);
    if (!rv)
        (void)fprintf(c->out, "member %.0f: %s done\n", id, op);
    return rv;
}

int verb_members(struct cli *c, struct err *err)
{
    static const char *const ops[] = {"add", "promote", "remove", "transfer"};
    const char *format, *op = c->args.n_pos ? c->args.pos[0] : "list";
    cJSON *status = NULL;
    int rv = format_check(c, &format, err);

    for (size_t i = 0; i < 4 && !rv; i++)
        if (!strcmp(op, ops[i]))
            return members_change(c, op, err);
    if (!rv && strcmp(op, "list") != 0)
        rv = cli_usage(c, err, "expected list, add, promote, remove or transfer");
    if (!rv)
        rv = cli_operate(c, "status", NULL, &status, err);
    if (rv)
        return rv;
    cJSON *list = members_list(c, status);
    if (*format) {
        json_out(c, list, format);
    } else {
        AUTO_BUF b = {0};
        buf_init(&b, 1u << 20);
        members_table(c, list, &b);
        out_flush(c, &b);
    }
    cJSON_Delete(list);
    cJSON_Delete(status);
    return 0;
}

/* ---- status ---- */
static const char *condition_of(const cJSON *o, const char *type)
{
    const cJSON *x;

    cJSON_ArrayForEach(
        x, json_at(o, "status.conditions")) if (!strcmp(json_text_of(x, "type"),
                                                        type)) return json_text_of(x, "status");
    return "Unknown";
}

/* "12.5 of 16 used"; pool: what is held, from the operation `status`. */
static const char *used_text(struct cli *c, const cJSON *of)
{
    double gpus = json_number_at(of, "gpus") / 1000, held = json_number_at(of, "held") / 1000;

    return arena_printf(c->mem, "%.4g of %.0f used", held, gpus);
}

/* Whether new work may come there. */
static const char *state_text(const struct cli *c, const cJSON *t)
{
    const cJSON *pause;

    if (cJSON_IsTrue(json_at(t, "spec.drain")))
        return "draining";
    if (cJSON_IsTrue(json_at(t, "spec.unschedulable")))
        return "cordoned";
    if (strcmp(condition_of(t, "Connected"), "False") == 0)
        return "unreachable";
    cJSON_ArrayForEach(pause, json_at(t, "status.pauses"))
    {
        int64_t until;
        if (strcmp(json_text_of(pause, "scope"), "target") == 0 &&
            time_parse(json_text_of(pause, "until"), &until, NULL) == 0 &&
            until > (int64_t)loop_wall_ms(c->loop))
            return "paused";
    }
    return "open";
}

static void targets_table(struct cli *c, const cJSON *targets, const cJSON *pool, struct buf *out)
{
    static const char *const heads[] = {"TARGET", "TIER", "TYPE", "CONNECTED",
                                        "NODES",  "GPUS", "STATE"};
    const cJSON *t;
    struct table table;

    table_init(&table, c->mem, 7);
    for (int i = 0; i < 7; i++)
        table_cell(&table, heads[i]);
    cJSON_ArrayForEach(t, cJSON_GetObjectItemCaseSensitive(targets, "items"))
    {
        const char *name = json_text_at(t, "metadata.name");
        table_cell(&table, name);
        table_cell(&table, json_text_at(t, "spec.tier"));
        table_cell(&table, json_text_at(t, "spec.type"));
        table_cell(&table, condition_of(t, "Connected"));
        table_cell(&table, arena_printf(c->mem, "%.0f", json_number_at(t, "status.nodes")));
        table_cell(&table,
                   used_text(c, cJSON_GetObjectItemCaseSensitive(
                                    cJSON_GetObjectItemCaseSensitive(pool, "targets"), name)));
        table_cell(&table, state_text(c, t));
    }
    if (table.n > 7)
        table_print(&table, out);
    else
        buf_str(out, "No targets yet: hanse apply -f a Target, then start its agent.\n");
}

#define QUEUE_DEPTH 16

/* GPUs that its own workloads hold, and those of the queues below it. */
static double queue_held(const cJSON *queues, const cJSON *pool, const char *name, int depth)
{
    double held = json_number_at(
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(pool, "queues"), name),
        "held");
    const cJSON *q;

    cJSON_ArrayForEach(q, cJSON_GetObjectItemCaseSensitive(
                              queues, "items")) if (depth > 0 &&
                                                    !strcmp(json_text_at(q, "spec.parent"), name))
        held += queue_held(queues, pool, json_text_at(q, "metadata.name"), depth - 1);
    return held;
}

/* A quota over all its classes; "-" where a class has none. */
static const char *quota_text(struct cli *c, const cJSON *q, const char *which)
{
    const cJSON *line, *list = json_at(q, "spec.gpus");
    double sum = 0;

    cJSON_ArrayForEach(line, list)
    {
        if (!cJSON_GetObjectItemCaseSensitive(line, which))
            return "-";
        sum += json_number_at(line, which);
    }
    return cJSON_GetArraySize(list) ? arena_printf(c->mem, "%.0f", sum) : "-";
}

static void queues_table(struct cli *c, const cJSON *queues, const cJSON *pool, struct buf *out)
{
    static const char *const heads[] = {"QUEUE",   "PARENT", "WEIGHT",     "PENDING",
                                        "RUNNING", "GPUS",   "GUARANTEED", "BURST"};
    const cJSON *q;
    struct table table;

    table_init(&table, c->mem, 8);
    for (int i = 0; i < 8; i++)
        table_cell(&table, heads[i]);
    cJSON_ArrayForEach(q, cJSON_GetObjectItemCaseSensitive(queues, "items"))
    {
        const char *parent = json_text_at(q, "spec.parent");
        table_cell(&table, json_text_at(q, "metadata.name"));
        table_cell(&table, *parent ? parent : "-");
        double held = queue_held(queues, pool, json_text_at(q, "metadata.name"), QUEUE_DEPTH);
        table_cell(&table, arena_printf(c->mem, "%.4g", json_number_at(q, "spec.weight")));
        table_cell(&table, arena_printf(c->mem, "%.0f", json_number_at(q, "status.pending")));
        table_cell(&table, arena_printf(c->mem, "%.0f", json_number_at(q, "status.running")));
        table_cell(&table, arena_printf(c->mem, "%.4g", held / 1000));
        table_cell(&table, quota_text(c, q, "guaranteed"));
        table_cell(&table, quota_text(c, q, "burst"));
    }
    if (table.n > 8) {
        buf_char(out, '\n');
        table_print(&table, out);
    }
}

static void moves_table(struct cli *c, const cJSON *moves, struct buf *out)
{
    static const char *const heads[] = {"MOVING", "CAUSE", "FROM", "TO", "PHASE", "WHAT"};
    const cJSON *m;
    struct table t;

    table_init(&t, c->mem, 6);
    for (int i = 0; i < 6; i++)
        table_cell(&t, heads[i]);
    cJSON_ArrayForEach(m, moves)
    {
        const char *from = json_text_at(m, "status.from"), *to = json_text_at(m, "status.to"),
                   *phase = json_text_at(m, "status.phase");
        AUTO_BUF line = {0};
        buf_init(&line, 8192);
        move_line(m, c->mem, &line);
        table_cell(&t, arena_printf(c->mem, "%s/%s", json_text_at(m, "metadata.namespace"),
                                    json_text_at(m, "spec.workload")));
        table_cell(&t, json_text_at(m, "spec.cause"));
        table_cell(&t, *from ? from : "-");
        table_cell(&t, *to ? to : "-");
        table_cell(&t, *phase ? phase : "Pending");
        table_cell(&t, line.n ? line.p : "");
    }
    if (t.n > 6) {
        buf_char(out, '\n');
        table_print(&t, out);
    }
}

/* The Migrations that are not over, in an array of their own. */
static cJSON *moves_open(cJSON *list)
{
    cJSON *items = cJSON_DetachItemFromObjectCaseSensitive(list, "items"), *m, *next;

    for (m = items ? items->child : NULL; m; m = next) {
        next = m->next;
        if (move_over(json_text_at(m, "status.phase")))
            cJSON_Delete(cJSON_DetachItemViaPointer(items, m));
    }
    return items ? items : cJSON_CreateArray();
}

/* What the brain knows is known to the member that leads, and any may have answered. Of a leader
 * that does not answer nothing is said, rather than that all is well. */
static void leader_brain(cJSON *status, const cJSON *all)
{
    cJSON *brain;

    if (cJSON_IsTrue(json_at(status, "member.leads")))
        return;
    brain =
        cJSON_Duplicate(json_at(own_status(all, json_number_at(status, "leader")), "brain"), true);
    cJSON_DeleteItemFromObjectCaseSensitive(status, "brain");
    if (brain)
        (void)cJSON_AddItemToObject(status, "brain", brain);
}

/* The alarms of every member that answers, with its number: those that answered first have told
 * only their own. */
static void all_alarms(cJSON *status, const cJSON *all)
{
    cJSON *list = cJSON_DetachItemFromObjectCaseSensitive(status, "alarms"), *a;
    double self = json_number_at(status, "member.id");
    const cJSON *s;

    if (!list)
        list = cJSON_CreateArray();
    cJSON_ArrayForEach(a, list)(void) cJSON_AddNumberToObject(a, "member", self);
    cJSON_ArrayForEach(s, all)
    {
        double id = json_number_at(s, "member.id");
        const cJSON *theirs;
        cJSON_ArrayForEach(theirs, cJSON_GetObjectItemCaseSensitive(s, "alarms"))
        {
            if (id == self)
                continue;
            cJSON *copy = cJSON_Duplicate(theirs, true);
            (void)cJSON_AddNumberToObject(copy, "member", id);
            (void)cJSON_AddItemToArray(list, copy);
        }
    }
    (void)cJSON_AddItemToObject(status, "alarms", list);
}

/* What came back from an older state waits for an operator. */
static void recovering_text(const cJSON *status, struct buf *out)
{
    const cJSON *strangers = json_at(status, "brain.strangers"), *s;

    if (!cJSON_IsTrue(json_at(status, "brain.recovering")))
        return;
    buf_str(out, "RECOVERING: what may run where this state does not know is not started anew, nor "
                 "taken for ended, before hanse recover --from-targets has settled it.\n");
    cJSON_ArrayForEach(s, strangers) if (cJSON_IsString(s))
        buf_printf(out,
                   "Target %s is not in this state and may carry work of it: apply Target %s, "
                   "or say that it is dead (hanse recover --from-targets --dead %s).\n",
                   s->valuestring, s->valuestring, s->valuestring);
}

static void alarms_text(const cJSON *status, struct buf *out)
{
    const cJSON *a;

    cJSON_ArrayForEach(a, cJSON_GetObjectItemCaseSensitive(status, "alarms"))
        buf_printf(out, "ALARM %s of member %.0f, for %.0f s: %s; %s\n", json_text_of(a, "alarm"),
                   json_number_at(a, "member"), json_number_at(a, "seconds"),
                   json_text_of(a, "message"), json_text_of(a, "remedy"));
}

/* No member that answers is ready, and they say why: what is read through them would only be waited
 * for. */
static bool none_serves(const cJSON *status, const cJSON *all)
{
    bool ready = cJSON_IsTrue(json_at(status, "member.ready"));
    const cJSON *s;

    cJSON_ArrayForEach(s, all) ready = ready || cJSON_IsTrue(json_at(s, "member.ready"));
    return !ready && cJSON_GetArraySize(json_at(status, "alarms")) > 0;
}

int verb_status(struct cli *c, struct err *err)
{
    bool silent = false;
    const char *format;
    cJSON *status = NULL, *targets = NULL, *queues = NULL, *moves = NULL;
    AUTO_BUF b = {0};
    int rv = format_check(c, &format, err);

    buf_init(&b, 16u << 20);
    if (!rv)
        rv = cli_operate(c, "status", NULL, &status, err);
    if (!rv) {
        cJSON *all = servers_ask(c);
        leader_brain(status, all);
        all_alarms(status, all);
        silent = none_serves(status, all);
        cJSON_Delete(all);
    }
    if (!rv && !silent)
        rv = cli_json(c, "GET", HANSE_API "/targets", NULL, &targets, err);
    if (!rv && !silent)
        rv = cli_json(c, "GET", HANSE_API "/queues", NULL, &queues, err);
    if (!rv && !silent)
        rv = cli_json(c, "GET", HANSE_API "/migrations", NULL, &moves, err);
    cJSON *open = moves_open(moves);
    if (!rv && *format && silent) {
        json_out(c, status, format);
    } else if (!rv && *format) {
        (void)cJSON_AddItemToObject(status, "targets",
                                    cJSON_DetachItemFromObjectCaseSensitive(targets, "items"));
        (void)cJSON_AddItemToObject(status, "queues",
                                    cJSON_DetachItemFromObjectCaseSensitive(queues, "items"));
        (void)cJSON_AddItemToObject(status, "migrations", cJSON_Duplicate(open, true));
        json_out(c, status, format);
    } else if (!rv) {
        const char *revision = json_text_of(status, "revision");
        buf_printf(&b, "Member %.0f%s, %s; leader %.0f, term %.0f, %.0f voters; applied %.0f\n",
                   json_number_at(status, "member.id"),
                   cJSON_IsTrue(json_at(status, "member.leads")) ? " (leads)" : "",
                   cJSON_IsTrue(json_at(status, "member.ready")) ? "ready" : "not ready",
                   json_number_at(status, "leader"), json_number_at(status, "term"),
                   json_number_at(status, "voters"), json_number_at(status, "appliedIndex"));
        if (*revision)
            buf_printf(&b, "Policies at git %.12s\n", revision);
        alarms_text(status, &b);
        recovering_text(status, &b);
        if (cJSON_IsTrue(json_at(status, "brain.brake")))
            buf_str(&b,
                    "BRAKE: more than half of the targets fell silent within a minute; it may be "
                    "this cluster that is cut off.\nUntil they are back nothing is replaced, and "
                    "nothing is moved that nobody asked for.\n");
        buf_char(&b, '\n');
        if (!silent)
            targets_table(c, targets, json_at(status, "pool"), &b);
        if (!silent)
            queues_table(c, queues, json_at(status, "pool"), &b);
        moves_table(c, open, &b);
        out_flush(c, &b);
    }
    if (!rv && silent)
        rv = err_set(err, E_UNAVAIL,
                     "no member is ready, see the alarms: targets, queues and migrations cannot be "
                     "read");
    cJSON_Delete(open);
    cJSON_Delete(moves);
    cJSON_Delete(status);
    cJSON_Delete(targets);
    cJSON_Delete(queues);
    return rv;
}

/* ---- fence, version ---- */
int verb_fence(struct cli *c, struct err *err)
{
    if (c->args.n_pos != 1)
        return cli_usage(c, err, "which workload?");
    if (!arg_flag(&c->args, "yes"))
        return err_set(err, E_USAGE,
                       "fencing records that you know workload %s to have stopped everywhere; "
                       "Hanse may then start it "
                       "again. If it still runs, it runs twice. Look first, then say --yes",
                       c->args.pos[0]);
    int rv = cli_connect(c, err);
    if (rv)
        return rv;
    cJSON *body = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(body, "namespace", c->ns);
    (void)cJSON_AddStringToObject(body, "workload", c->args.pos[0]);
    rv = cli_operate(c, "workload.fence", body, NULL, err);
    cJSON_Delete(body);
    if (!rv)
        (void)fprintf(c->out, "workload/%s fenced\n", c->args.pos[0]);
    return rv;
}

int verb_version(struct cli *c, struct err *err)
{
    cJSON *server = NULL;
    struct err why = {0};
    bool json = !strcmp(arg_text(&c->args, "output", ""), "json"),
         client = arg_flag(&c->args, "client");

    (void)err;
    if (!client && (!cli_connect(c, &why)))
        (void)!cli_json(c, "GET", "/version", NULL, &server, &why);
    if (json) {
        cJSON *j = cJSON_CreateObject();
        (void)cJSON_AddStringToObject(cJSON_AddObjectToObject(j, "clientVersion"), "gitVersion",
                                      "v" HANSE_VERSION);
        if (server)
            (void)cJSON_AddItemToObject(j, "serverVersion", cJSON_Duplicate(server, true));
        json_out(c, j, "json");
        cJSON_Delete(j);
    } else {
        (void)fprintf(c->out, "hanse %s\n", HANSE_VERSION);
        if (server)
            (void)fprintf(c->out, "server %s\n", json_text_of(server, "gitVersion"));
        else if (!client && c->client)
            (void)fprintf(c->err, "server: %s\n", why.text);
    }
    cJSON_Delete(server);
    return 0;
}
