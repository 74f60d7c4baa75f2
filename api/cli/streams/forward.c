/* port-forward: ports of this machine that lead to those of a workload's program. Each connection
 * here is one stream to the server, so that none holds up another. Must never listen on another
 * address than 127.0.0.1: who reaches the port has the user's rights on it. */
#include "api/cli/cli_internal.h"
#include "api/cli/streams/frames.h"

#include <signal.h>

#define FORWARD_PORTS_MAX 64
#define CONNECTIONS_MAX 256
#define PENDING_MAX_BYTES (1u << 20) /* on its way to either side, before the other one waits */

struct forward {
    struct cli *c;
    const char *name; /* of the workload */
    long rank;
    struct port {
        struct forward *f;
        struct listener *listener;
        int local;
        long remote;
    } ports[FORWARD_PORTS_MAX];
    unsigned n_ports, n_connections;
    struct list connections;
    bool over;
};
struct connection {
    struct list link;
    struct port *port;
    struct client_lane *lane;
    struct client_answer answer;
    struct stream *here, *there; /* NULL: it is gone, or not there yet */
    struct buf in;
    bool asking; /* on_answer will come */
    bool ended;  /* the program was told that nothing more comes */
    bool told;   /* how it ended was said: by the server, or by us */
    bool freed;
};

/* ---- a connection ---- */
static void connection_free(void *arg)
{
    struct connection *x = arg;
    struct forward *f = x->port->f;

    list_remove(&x->link);
    f->n_connections--;
    if (f->over)
        loop_stop(f->c->loop);
    x->lane = client_lane_destroy(x->lane);
    client_answer_fini(&x->answer);
    buf_fini(&x->in);
    mem_free(x);
}

/* Freed once nothing can call it any more, and not from inside of what calls it. */
static void connection_check(struct connection *x)
{
    if (x->here || x->there || x->asking || x->freed)
        return;
    x->freed = true;
    loop_post(x->port->f->c->loop, connection_free, x);
}

static void tell(struct connection *x, const char *why)
{
    if (!x->told)
        (void)fprintf(x->port->f->c->err, "error: port %d -> %ld: %s\n", x->port->local,
                      x->port->remote, why);
    x->told = true;
}

/* One side has no room: the other one waits. */
static void pace(struct stream *from, const struct stream *to)
{
    if (from && to)
        stream_pause(from, stream_pending(to) > PENDING_MAX_BYTES);
}

static void here_data(struct stream *st, const void *p, size_t n, void *arg)
{
    struct connection *x = arg;

    if (!x->there)
        return;
    frames_send(x->there, FRAME_IN, p, n);
    pace(st, x->there);
}

static void here_eof(struct stream *st, void *arg)
{
    struct connection *x = arg;

    (void)st;
    if (x->there && !x->ended)
        frames_send(x->there, FRAME_IN, NULL, 0);
    x->ended = true;
}

static void here_drained(struct stream *st, void *arg)
{
    struct connection *x = arg;

    pace(x->there, st);
}

static void here_closed(struct stream *st, const struct err *why, void *arg)
{
    struct connection *x = arg;

    (void)st;
    x->here = NULL;
    if (x->there && why->code) { /* it broke off: so does the program's side */
        x->told = true;
        stream_abort(x->there, "the client broke off");
    } else {
        here_eof(st, x); /* both sides have ended theirs, the program first */
    }
    connection_check(x);
}

static const struct stream_events here_events = {
    .data = here_data, .drained = here_drained, .closed = here_closed, .eof = here_eof};

static void there_frame(void *arg, enum frame_type type, const char *p, size_t n)
{
    struct connection *x = arg;
    struct frames_end end = {0};
    struct err why = {0};

    if (type == FRAME_OUT && n && x->here) {
        stream_write(x->here, p, n);
    } else if (type == FRAME_OUT && x->here) {
        stream_finish(x->here);
    } else if (type == FRAME_STATUS) {
        frames_end_read(p, n, &end, &why);
        if (why.code)
            tell(x, why.text);
        x->told = true;
        if (x->here && why.code)
            stream_abort(x->here, why.text);
        else if (x->here)
            stream_close(x->here);
    }
}

static void there_data(struct stream *st, const void *p, size_t n, void *arg)
{
    struct connection *x = arg;

    if (!frames_take(&x->in, p, n, there_frame, x))
        stream_abort(st, "the server sent a frame that is too large");
    else
        pace(st, x->here);
}

static void there_drained(struct stream *st, void *arg)
{
    struct connection *x = arg;

    pace(x->here, st);
}

static void there_closed(struct stream *st, const struct err *why, void *arg)
{
    struct connection *x = arg;

    (void)st;
    x->there = NULL;
    if (!x->told) {
        tell(x, why->code ? why->text : "the server ended the connection");
        if (x->here)
            stream_abort(x->here, "the connection to the server was lost");
    }
    connection_check(x);
}

static const struct stream_events there_events = {
    .data = there_data, .drained = there_drained, .closed = there_closed};

static void on_answer(void *arg, const struct err *err)
{
    struct connection *x = arg;
    struct err e = {0};
    AUTO_BUF early = {0};

    x->asking = false;
    if (err)
        e = *err;
    else if (x->answer.status != 101 && !client_status(&x->answer, &e))
        (void)err_set(&e, E_INTERNAL, "the server does not switch to hanse-forward/1");
    if (e.code)
        tell(x, e.text);
    if (e.code && x->here)
        stream_abort(x->here, e.text);
    if (e.code || !x->here) { /* who came has gone meanwhile; the lane ends what it got */
        connection_check(x);
        return;
    }
    buf_init(&early, 4u << 20);
    x->there = client_take_stream(x->lane, &early);
    stream_set(x->there, &there_events, x);
    if (early.n)
        there_data(x->there, early.p, early.n, x);
    stream_pause(x->here, false);
}

/* ---- a port ---- */
static void on_connection(struct listener *li, struct stream *st, void *arg)
{
    static const struct stream_events nobody = {0};
    struct port *port = arg;
    struct forward *f = port->f;
    AUTO_BUF path = {0};

    (void)li;
    if (f->n_connections >= CONNECTIONS_MAX) {
        (void)fprintf(f->c->err, "error: port %d: more than %d connections at a time\n",
                      port->local, CONNECTIONS_MAX);
        stream_set(st, &nobody, NULL);
        stream_abort(st, "too many");
        return;
    }
    struct connection *x = mem_new(struct connection);
    x->port = port;
    x->here = st;
    x->lane = client_lane_create(f->c->client);
    client_answer_init(&x->answer);
    buf_init(&x->in, (size_t)4 * FRAME_MAX_BYTES);
    list_push(&f->connections, &x->link);
    f->n_connections++;
    stream_set(st, &here_events, x);
    stream_pause(st, true);
    (void)fprintf(f->c->out, "Handling connection for %d\n", port->local);
    (void)out_now(f->c);
    buf_init(&path, 8192);
    buf_printf(&path, "%s/portforward?port=%ld&rank=%ld",
               cli_path(f->c, kind_by_id(KIND_WORKLOAD), f->c->ns, false, f->name), port->remote,
               f->rank);
    const struct client_request rq = {
        .method = "POST", .path = path.p, .upgrade = "hanse-forward/1"};
    x->asking = true; /* nothing is read of who came, and so he does not end, before the answer */
    client_start(x->lane, &rq, &x->answer, on_answer, x);
}

static int port_listen(struct forward *f, struct port *p, struct err *err)
{
    char address[32];

    p->f = f;
    (void)snprintf(address, sizeof address, "127.0.0.1:%d", p->local);
    int rv = listener_create(f->c->loop, address, NULL, on_connection, p, &p->listener, &p->local,
                             err);
    if (rv)
        return rv;
    (void)fprintf(f->c->out, "Forwarding from 127.0.0.1:%d -> %ld\n", p->local, p->remote);
    return out_now(f->c);
}

/* ---- the words ---- */
static bool number_read(const char *text, size_t n, long *ret)
{
    long v = 0;

    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9' || v > 100000)
            return false;
        v = v * 10 + (text[i] - '0');
    }
    *ret = v;
    return n > 0;
}

/* "80", "8080:80", ":80" or "0:80": any port here. */
static int port_read(const char *word, struct port *ret, struct err *err)
{
    const char *colon = strchr(word, ':'), *remote = colon ? colon + 1 : word;
    long local = 0;
    bool good = number_read(remote, strlen(remote), &ret->remote) && ret->remote > 0 &&
                ret->remote <= UINT16_MAX;

    if (good && colon && colon > word)
        good = number_read(word, (size_t)(colon - word), &local) && local <= UINT16_MAX;
    if (!good)
        return err_set(err, E_USAGE,
                       "\"%s\": expected [LOCAL:]REMOTE, both of them ports from 1 to 65535", word);
    ret->local = colon ? (int)local : (int)ret->remote;
    return 0;
}

static int words_read(struct forward *f, struct err *err)
{
    const struct args *a = &f->c->args;
    int rv = arg_number(a, "rank", 0, 4095, 0, &f->rank, err);

    if (rv)
        return rv;
    if (a->n_pos < 2 || a->n_rest)
        return cli_usage(f->c, err, "which workload, and which ports?");
    if (a->n_pos - 1 > FORWARD_PORTS_MAX)
        return err_set(err, E_USAGE, "more than %d ports", FORWARD_PORTS_MAX);
    const char *slash = strchr(a->pos[0], '/');
    f->name = slash ? arena_strndup(f->c->mem, a->pos[0], (size_t)(slash - a->pos[0])) : a->pos[0];
    if (slash && (!number_read(slash + 1, strlen(slash + 1), &f->rank) || f->rank > 4095))
        return err_set(err, E_USAGE, "\"%s\": expected WORKLOAD/RANK, a rank from 0 to 4095",
                       a->pos[0]);
    for (unsigned i = 1; i < a->n_pos; i++) {
        rv = port_read(a->pos[i], &f->ports[f->n_ports++], err);
        if (rv)
            return rv;
    }
    return 0;
}

/* Who forwards to nothing should hear it now, and not at the first connection. */
static int runs(struct forward *f, struct err *err)
{
    cJSON *j = NULL;
    int rv = cli_json(f->c, "GET",
                      cli_path(f->c, kind_by_id(KIND_WORKLOAD), f->c->ns, false, f->name), NULL, &j,
                      err);

    if (rv)
        return rv;
    const char *phase = json_text_at(j, "status.phase");
    const cJSON *n = json_at(j, "status.placement.assignments");
    int ranks = cJSON_GetArraySize(n);
    if (strcmp(phase, "Running") != 0)
        rv = err_set(err, E_CONFLICT, "workload %s does not run: it is %s", f->name,
                     *phase ? phase : "new");
    else if (ranks && f->rank >= ranks)
        rv = err_set(err, E_NOTFOUND, "there is no rank %ld: workload %s has %d worker%s", f->rank,
                     f->name, ranks, ranks == 1 ? "" : "s");
    cJSON_Delete(j);
    return rv;
}

static void on_end(void *arg)
{
    struct forward *f = arg;

    f->over = true;
    loop_stop(f->c->loop);
}

static void forward_fini(struct forward *f)
{
    static const struct stream_events nobody = {0};

    for (unsigned i = 0; i < f->n_ports; i++)
        if (f->ports[i].listener)
            listener_close(f->ports[i].listener);
    list_for_each_safe (it, tmp, &f->connections) {
        struct connection *x = container_of(it, struct connection, link);
        struct stream *both[] = {x->here, x->there};

        for (int i = 0; i < 2; i++) {
            if (!both[i])
                continue;
            stream_set(both[i], &nobody, NULL);
            stream_abort(both[i], "it is over");
        }
        if (!x->freed)
            connection_free(x);
    }
    while (f->n_connections) /* those that were posted to be freed */
        loop_uv_run(f->c->loop);
}

int verb_port_forward(struct cli *c, struct err *err)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    struct forward *f = arena_new(c->mem, struct forward);

    *f = (struct forward){.c = c};
    list_init(&f->connections);
    int rv = words_read(f, err);
    if (!rv)
        rv = cli_connect(c, err);
    if (!rv)
        rv = runs(f, err);
    for (size_t i = 0; !rv && i < sizeof ends / sizeof *ends; i++)
        rv = loop_signal(c->loop, ends[i], on_end, f, err);
    for (unsigned i = 0; !rv && i < f->n_ports; i++)
        rv = port_listen(f, &f->ports[i], err);
    if (!rv)
        client_run_until(c->loop, &f->over);
    forward_fini(f);
    return rv;
}
