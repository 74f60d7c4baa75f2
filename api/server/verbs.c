/* What is no reading or writing of objects: operations of the backend, logs and exec of
 * workloads. */
#include "api/server/server_internal.h"

void call_operate(struct call *c, const char *op, const cJSON *body,
                  void (*cb)(void *arg, const char *json, const struct err *err))
{
    char *text = cJSON_PrintUnformatted(body);
    const char *json = arena_strdup(c->mem, text ? text : "{}");

    cJSON_free(text);
    c->api->ops->operate(c->api->b, &c->who, op, json, cb, c);
}

/* ---- operations ---- */
void call_operated(void *arg, const char *json, const struct err *err)
{
    struct call *c = arg;
    AUTO_BUF b = {0};

    if (err && err->code) {
        call_fail(c, err);
        return;
    }
    buf_init(&b, ANSWER_MAX);
    buf_str(&b, json ? json : "{}");
    buf_char(&b, '\n');
    call_reply_buf(c, 200, &b);
}

/* GET passes its parameters as an object of texts, POST its body. */
static cJSON *operation_body(struct call *c, struct err *err)
{
    if (c->m->method != HTTP_GET_ && c->m->method != HTTP_HEAD_ && c->m->body.n)
        return call_body(c, err);
    cJSON *j = call_own(c, cJSON_CreateObject());
    for (unsigned i = 0; i < c->m->n_params; i++)
        cJSON_AddStringToObject(j, c->m->params[i].name, c->m->params[i].value);
    return j;
}

/* What the leader alone knows or does. */
static bool operation_leads(const char *op)
{
    return !strncmp(op, "orphans.", 8) || !strncmp(op, "recover.", 8);
}

static bool sent_on(struct call *c);

static void operate_with(struct call *c, const char *op, const cJSON *body)
{
    call_operate(c, op, body, call_operated);
}

/* Read by GET; all others change something, or tell what is not for every reader, and take POST,
 * which is a right of its own. */
static bool operation_reads(const char *op)
{
    static const char *const reads[] = {"status",  "members.list", "cost",
                                        "history", "orphans.list", "plan"};

    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++)
        if (!strcmp(reads[i], op))
            return true;
    return false;
}

void operate(struct call *c)
{
    struct err e = {0};
    bool get = c->m->method == HTTP_GET_ || c->m->method == HTTP_HEAD_;

    if (get && !operation_reads(c->op)) {
        call_fail_code(c, E_METHOD, "this operation takes POST");
        return;
    }
    if (operation_leads(c->op) && sent_on(c))
        return;
    cJSON *body = operation_body(c, &e);

    if (!body)
        call_fail(c, &e);
    else if (!strcmp(c->op, "token.create"))
        token_asked(c, body);
    else
        operate_with(c, c->op, body);
}

/* The same for one namespace: the operation is told which, whatever the caller says. */
void operate_in(struct call *c)
{
    static const char *const known[] = {"cost", "history"};
    struct err e = {0};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i], c->op) != 0)
            continue;
        cJSON *body = operation_body(c, &e);
        if (!body) {
            call_fail(c, &e);
            return;
        }
        while (cJSON_HasObjectItem(body, "namespace")) /* in any case of letters */
            cJSON_DeleteItemFromObject(body, "namespace");
        cJSON_AddStringToObject(body, "namespace", c->ns);
        operate_with(c, c->op, body);
        return;
    }
    call_fail_code(c, E_NOTFOUND,
                   "no operation of a namespace has this name: there are cost and history");
}

/* To the member that leads: others answer 307. True when the request is answered. */
static bool sent_on(struct call *c)
{
    const char *leader = c->api->ops->leader ? c->api->ops->leader(c->api->b) : NULL;
    struct http_request *rq = c->rq;
    AUTO_BUF url = {0};

    if (!leader)
        return false;
    if (!*leader) {
        call_fail_code(c, E_UNAVAIL,
                       "no leader is known at the moment: only it can reach the targets");
        return true;
    }
    buf_init(&url, (size_t)2 * LIMIT_URL_MAX_BYTES);
    buf_printf(&url, "https://%s%s", leader, c->m->path);
    for (unsigned i = 0; i < c->m->n_params; i++) {
        buf_printf(&url, "%c%s=", i ? '&' : '?', c->m->params[i].name);
        for (const char *p = c->m->params[i].value; *p; p++)
            if (strchr("-_.~", *p) || (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') ||
                (*p >= 'A' && *p <= 'Z'))
                buf_char(&url, *p);
            else
                buf_printf(&url, "%%%02X", (unsigned char)*p);
    }
    const char *headers[] = {"Location", arena_strdup(c->mem, url.p), NULL};
    const char **copy = arena_memdup(c->mem, headers, sizeof headers);
    call_release(c);
    http_reply(rq, 307, "text/plain", slice_make("", 0), copy);
    return true;
}

/* ---- logs and exec ---- */
#define FULL ((size_t)1 << 20) /* bytes that wait for who reads them: no more is taken in */
#define ROOM_POLL_MS 20

static int64_t number(struct call *c, const char *name, int64_t otherwise)
{
    uint64_t v;

    return call_u64(call_param(c, name), &v) || v > INT64_MAX ? otherwise : (int64_t)v;
}

/* What a stream of a workload takes; a name ends with '#' for a number, '@' for a time, '*' for
 * texts, of which there may be several, and with nothing for yes or no. */
static bool param_known(const char *known, const char *name, char *ret_kind)
{
    size_t n = strlen(name);

    for (const char *p = known; *p; p += strcspn(p, " "), p += strspn(p, " ")) {
        if (n && !strncmp(p, name, n) && strchr(" #@*", p[n])) {
            *ret_kind = p[n];
            return true;
        }
    }
    return false;
}

static int param_value(char kind, const char *name, const char *value, struct err *err)
{
    static const char *const flags[] = {"", "0", "1", "true", "false", "True", "False"};
    uint64_t v;
    int64_t ms;

    if (kind == '@')
        return time_parse(value, &ms, err) ? err_field(err, E_SYNTAX, name, "%s", err->text) : 0;
    if (kind == '*' || (kind == '#' && !call_u64(value, &v) && v <= INT32_MAX))
        return 0;
    for (size_t i = 0; kind != '#' && i < sizeof flags / sizeof *flags; i++) {
        if (!strcmp(value, flags[i]))
            return 0;
    }
    return err_field(err, E_SYNTAX, name, "\"%.60s\" is not %s", value,
                     kind == '#' ? "a whole number from 0 to 2147483647" : "true or false");
}

/* What is asked for is done, or refused: a rank that cannot be read is not rank 0. */
static bool params_fit(struct call *c, const char *known)
{
    struct err e = {0};
    int r = 0;

    for (unsigned i = 0; r == 0 && i < c->m->n_params; i++) {
        const char *name = c->m->params[i].name, *value = c->m->params[i].value;
        char kind = ' ';

        if (!param_known(known, name, &kind))
            r = err_field(&e, E_SYNTAX, "parameters",
                          "\"%.60s\" is not known here; there are %s", name, known);
        else
            r = param_value(kind, name, value, &e);
        for (unsigned k = 0; r == 0 && kind != '*' && k < i; k++) {
            if (!strcmp(c->m->params[k].name, name))
                r = err_field(&e, E_SYNTAX, name, "is given twice: leave one out");
        }
    }
    if (r)
        call_fail(c, &e);
    return r == 0;
}

static bool workload_there(struct call *c)
{
    struct err e = {0};

    if (call_get(c, c->kind ? c->kind : kind_by_id(KIND_WORKLOAD), c->ns, c->name))
        return true;
    (void)call_not_found(kind_by_id(KIND_WORKLOAD), c->name, &e);
    call_fail_at(c, &e, kind_by_id(KIND_WORKLOAD), c->name);
    return false;
}

struct log_stream {
    struct api *a;
    struct flow *flow;
    struct http_request *rq;
    struct api_exec_session *session;
    bool begun, ended;
    char name[256];
};

static void log_closed(void *arg)
{
    struct log_stream *s = arg;

    if (s->session)
        s->a->ops->exec_close(s->session);
    fair_lasted(s->a->fair, &s->flow);
    mem_free(s);
}

static void log_begin(struct log_stream *s)
{
    if (!s->begun) {
        s->begun = true;
        http_chunk_begin(s->rq, 200, "text/plain; charset=utf-8", NULL, log_closed, s);
    }
}

static void log_opened(void *arg)
{
    log_begin(arg); /* from now on its client's leaving is noticed */
}

static void log_data(int fd, const void *p, size_t n, void *arg)
{
    struct log_stream *s = arg;

    (void)fd;
    log_begin(s);
    http_chunk(s->rq, p, n);
}

static void log_end(int exit_code, const struct err *err, void *arg)
{
    struct log_stream *s = arg;

    (void)exit_code;
    if (s->ended)
        return;
    s->ended = true;
    if (!s->begun && err && err->code) {
        AUTO_BUF b = {0};
        struct http_request *rq = s->rq;
        buf_init(&b, 1 << 16);
        status_json(&b, err, NULL, kind_by_id(KIND_WORKLOAD), NULL, NULL, s->name,
                    err_info(err->code)->http, 0);
        int http = err_info(err->code)->http;
        log_closed(s);
        http_reply(rq, http, "application/json", slice_make(b.p, b.n), NULL);
        return;
    }
    log_begin(s);
    if (err && err->code) /* cut off: who reads it must not take it for the whole */
        http_abort(s->rq);
    else
        http_chunk_end(s->rq);
}

static bool log_full(void *arg)
{
    const struct log_stream *s = arg;
    return s->begun && http_pending(s->rq) > FULL;
}

/* As kubectl: one of them, and what would mean nothing is refused. */
static bool since_fits(struct call *c, struct api_exec *x)
{
    const char *at = call_param(c, "sinceTime"), *span = call_param(c, "sinceSeconds");
    bool good = !*at || (!*span && !time_parse(at, &x->since_ms, NULL) && x->since_ms > 0);

    x->since_span_ms = number(c, "sinceSeconds", 0) * 1000;
    good = good && (!*span || x->since_span_ms > 0);
    if (!good)
        call_fail_code(c, E_SYNTAX, "sinceSeconds, 1 or more, or sinceTime, after 1970: not both");
    return good;
}

void workload_log(struct call *c)
{
    struct err e = {0};
    if (!workload_there(c) ||
        !params_fit(c, "follow tailLines# rank# timestamps sinceSeconds# sinceTime@"))
        return;
    struct api_exec x = {.who = &c->who,
                         .ns = c->ns,
                         .workload = c->name,
                         .rank = number(c, "rank", 0),
                         .follow = call_flag(c, "follow"),
                         .tail_lines = number(c, "tailLines", -1),
                         .timestamps = call_flag(c, "timestamps")};
    if (!since_fits(c, &x))
        return;
    struct flow *flow = call_lasts(c);
    if (!flow)
        return;
    struct log_stream *s = mem_new(struct log_stream);
    struct api_stream_sink sink = {
        .opened = log_opened, .data = log_data, .end = log_end, .full = log_full, .arg = s};
    s->a = c->api;
    s->flow = flow;
    s->rq = c->rq;
    str_copy(s->name, sizeof s->name, c->name);
    if (c->api->ops->exec(c->api->b, &x, &sink, &s->session, &e)) {
        log_closed(s);
        call_fail(c, &e);
        return;
    }
    call_release(c);
}

/* exec: after 101 both sides speak frames: u8 type (0 stdin, 1 stdout, 2 stderr, 3 status as JSON,
 * 4 size of the terminal: u16 rows, u16 columns), u32 big-endian length, bytes. An empty frame of
 * type 0 is the end of stdin. A port is forwarded likewise, one connection a stream: type 0 to it,
 * 1 from it, and an empty frame of type 1 says that nothing more comes. */
#define EXEC_FRAME_MAX (1u << 20)
/* The end of a client that is killed waits in its kernel behind input that nobody takes. A frame
 * that says nothing, after so many looks for room, is answered with a reset then. */
#define ASK_EVERY 50

struct exec_stream {
    struct api *a;
    struct flow *flow;
    struct stream *st;
    struct api_exec_session *session;
    struct buf in;
    struct timer room;
    unsigned looks; /* for room */
    bool ended, closed, tty;
};

static void exec_free(struct exec_stream *s)
{
    timer_stop(&s->room);
    if (s->session)
        s->a->ops->exec_close(s->session);
    fair_lasted(s->a->fair, &s->flow);
    buf_fini(&s->in);
    mem_free(s);
}

static void frame_send(struct exec_stream *s, int type, const void *p, size_t n)
{
    unsigned char head[5] = {(unsigned char)type, (unsigned char)(n >> 24),
                             (unsigned char)(n >> 16), (unsigned char)(n >> 8), (unsigned char)n};

    stream_write(s->st, head, sizeof head);
    stream_write(s->st, p, n);
}

static void exec_data(int fd, const void *p, size_t n, void *arg)
{
    struct exec_stream *s = arg;

    if (s->st && !s->closed)
        frame_send(s, fd == 2 ? 2 : 1, p, n);
}

static void exec_eof(void *arg)
{
    struct exec_stream *s = arg;

    if (s->st && !s->closed && !s->ended)
        frame_send(s, 1, NULL, 0);
}

static void exec_end(int exit_code, const struct err *err, void *arg)
{
    struct exec_stream *s = arg;
    AUTO_BUF b = {0};

    if (s->ended || s->closed || !s->st)
        return;
    s->ended = true;
    buf_init(&b, 1 << 16);
    buf_printf(&b, "{\"exitCode\":%d", exit_code);
    if (err && err->code) {
        buf_char(&b, ',');
        json_pair(&b, "reason", err_info(err->code)->reason, true);
        json_pair(&b, "message", err->text, false);
    }
    buf_char(&b, '}');
    frame_send(s, 3, b.p, b.n);
    stream_close(s->st);
}

static bool exec_full(void *arg)
{
    const struct exec_stream *s = arg;
    return s->st && !s->closed && stream_pending(s->st) > FULL;
}

/* What a program on a terminal is told is cut, not refused: no screen is larger. */
static int64_t terminal_size(int64_t told)
{
    return told > API_TERMINAL_MAX ? API_TERMINAL_MAX : told;
}

static bool exec_resized(struct exec_stream *s, const unsigned char *p, size_t n)
{
    if (!s->tty || n != 4)
        return false;
    int64_t rows = terminal_size(p[0] << 8 | p[1]), columns = terminal_size(p[2] << 8 | p[3]);
    if (!s->ended && s->a->ops->exec_resize)
        s->a->ops->exec_resize(s->session, rows, columns);
    return true;
}

static void exec_frames(struct exec_stream *s)
{
    while (s->in.n >= 5) {
        const unsigned char *h = (const unsigned char *)s->in.p;
        size_t n = (size_t)h[1] << 24 | (size_t)h[2] << 16 | (size_t)h[3] << 8 | h[4];
        if (n > EXEC_FRAME_MAX || (h[0] != 0 && h[0] != 4)) {
            stream_abort(s->st, "a frame that is not allowed");
            return;
        }
        if (s->in.n < 5 + n)
            return;
        if (h[0] == 4 && !exec_resized(s, h + 5, n)) {
            stream_abort(s->st, "a size that no terminal has");
            return;
        }
        if (h[0] == 0 && !s->ended)
            s->a->ops->exec_input(s->session, s->in.p + 5, n, n == 0);
        buf_consume(&s->in, 5 + n);
    }
}

static bool exec_crowded(const struct exec_stream *s)
{
    return !s->ended && s->a->ops->exec_pending && s->a->ops->exec_pending(s->session) > FULL;
}

static void exec_room(void *arg)
{
    struct exec_stream *s = arg;

    if (s->closed)
        return;
    if (!exec_crowded(s)) {
        stream_pause(s->st, false);
    } else if (stream_hung_up(s->st)) { /* else what he began would outlive him */
        stream_abort(s->st, "who asked is gone");
    } else {
        if (++s->looks % ASK_EVERY == 0)
            frame_send(s, 2, NULL, 0);
        timer_start(&s->room, ROOM_POLL_MS);
    }
}

static void exec_read(struct stream *st, const void *p, size_t n, void *arg)
{
    struct exec_stream *s = arg;

    buf_add(&s->in, p, n);
    if (s->in.failed) {
        stream_abort(st, "too much input at once");
        return;
    }
    exec_frames(s);
    if (exec_crowded(s)) {
        stream_pause(st, true);
        timer_start(&s->room, ROOM_POLL_MS);
    }
}

static void exec_gone(struct stream *st, const struct err *why, void *arg)
{
    struct exec_stream *s = arg;

    (void)st;
    (void)why;
    s->closed = true;
    exec_free(s);
}

static const struct stream_events exec_events = {.data = exec_read, .closed = exec_gone};

static const char *const *exec_argv(struct call *c, unsigned *ret_n)
{
    const char **argv = arena_array(c->mem, const char *, c->m->n_params + 1);
    unsigned n = 0;

    for (unsigned i = 0; i < c->m->n_params; i++)
        if (!strcmp(c->m->params[i].name, "command"))
            argv[n++] = c->m->params[i].value;
    *ret_n = n;
    return argv;
}

static void exec_begin(struct call *c, const char *protocol, const struct api_exec *x)
{
    struct err e = {0};
    struct slice early = {0};
    struct flow *flow = call_lasts(c);

    if (!flow)
        return;
    struct exec_stream *s = mem_new(struct exec_stream);
    struct api_stream_sink sink = {
        .data = exec_data, .end = exec_end, .full = exec_full, .eof = exec_eof, .arg = s};
    s->a = c->api;
    s->flow = flow;
    s->tty = x->tty;
    buf_init(&s->in, (size_t)2 * EXEC_FRAME_MAX);
    timer_init(&s->room, c->api->cfg.loop, exec_room, s);
    if (c->api->ops->exec(c->api->b, x, &sink, &s->session, &e)) {
        exec_free(s);
        call_fail(c, &e);
        return;
    }
    struct http_request *rq = c->rq;
    call_release(c);
    s->st = http_upgrade(rq, protocol, &early);
    stream_set(s->st, &exec_events, s);
    if (early.n)
        exec_read(s->st, early.p, early.n, s);
}

void workload_exec(struct call *c)
{
    unsigned argc;

    if (!workload_there(c) || !params_fit(c, "command* stdin tty rank# rows# columns#"))
        return;
    const char *const *argv = exec_argv(c, &argc);
    struct api_exec x = {.who = &c->who,
                         .ns = c->ns,
                         .workload = c->name,
                         .rank = number(c, "rank", 0),
                         .argv = argv,
                         .tail_lines = -1,
                         .with_stdin = call_flag(c, "stdin"),
                         .tty = call_flag(c, "tty"),
                         .rows = terminal_size(number(c, "rows", 0)),
                         .columns = terminal_size(number(c, "columns", 0))};

    if (!call_upgrades(c, "hanse-exec/1", "exec"))
        return;
    if (!argc)
        call_fail_code(c, E_SYNTAX,
                       "command is missing: give it as command=PROGRAM&command=ARGUMENT");
    else if ((x.rows || x.columns) && !x.tty)
        call_fail_code(c, E_SYNTAX, "rows and columns are those of a tty");
    else
        exec_begin(c, "hanse-exec/1", &x);
}

void workload_port_forward(struct call *c)
{
    if (!workload_there(c) || !params_fit(c, "port# rank#"))
        return;
    struct api_exec x = {.who = &c->who,
                         .ns = c->ns,
                         .workload = c->name,
                         .rank = number(c, "rank", 0),
                         .tail_lines = -1,
                         .port = number(c, "port", 0)};
    if (!call_upgrades(c, "hanse-forward/1", "port-forward"))
        return;
    if (x.port < 1 || x.port > UINT16_MAX)
        call_fail_code(c, E_SYNTAX, "port is missing, or no number from 1 to 65535");
    else
        exec_begin(c, "hanse-forward/1", &x);
}
