/* See core_rig.h. */
#include "tests/support/raft/core_rig.h"

const char *rig_path(struct rig *r, const char *fmt, unsigned id, char *buf, size_t n)
{
    char name[64];

    (void)snprintf(name, sizeof name, fmt, id);
    (void)snprintf(buf, n, "%s/%s", r->dir, name);
    return buf;
}

int rig_free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (void *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (void *)&a, &n), 0);
    close(fd);
    return ntohs(a.sin_port);
}

static void rig_poll(void *arg)
{
    struct rig_wait *w = arg;

    w->held = w->cond(w->arg);
    if (w->held || loop_now_ms(w->rig->loop) >= w->until_ms)
        loop_stop(w->rig->loop);
    else
        timer_start(&w->poll, 2);
}

bool rig_until(struct rig *r, uint64_t ms, bool (*cond)(void *), void *arg)
{
    struct rig_wait w = {.rig = r, .cond = cond, .arg = arg, .until_ms = loop_now_ms(r->loop) + ms};

    timer_init(&w.poll, r->loop, rig_poll, &w);
    timer_start(&w.poll, 0);
    loop_uv_run(r->loop);
    timer_stop(&w.poll);
    return w.held;
}

/* ---- members ---- */
static void rig_fatal(void *arg, const struct err *why)
{
    struct rig_member *m = arg;

    (void)fprintf(stderr, "member %u: %s\n", (unsigned)m->cfg.id, why->text);
    m->fatal = true;
}

void rig_tls(struct rig *r, unsigned id)
{
    static const char *const mutual[] = {ALPN_RAFT, ALPN_PEER, NULL};
    struct rig_member *m = &r->m[id];
    char ca[256], crt[256], key[256];
    struct tls_config_spec spec = {
        .ca_file = rig_path(r, "ca.crt", 0, ca, sizeof ca),
        .cert_file = rig_path(r, "m%u.crt", m->certificate, crt, sizeof crt),
        .key_file = rig_path(r, "m%u.key", m->certificate, key, sizeof key),
        .alpn_mutual = mutual};
    struct err e = {0};

    if (m->server)
        return;
    if (tls_config_create(&spec, true, &m->server, &e))
        fail_msg("%s", e.text);
    spec.server_name = "localhost";
    for (unsigned i = 0; i <= RIG_MAX; i++)
        if (tls_config_create(&spec, false, &m->client[i], &e))
            fail_msg("%s", e.text);
}

/* What is never let go again is a leak at the end of the test. */
static struct tls_config *rig_client(void *arg, uint64_t id)
{
    struct rig_member *m = arg;
    struct tls_config *c = m->client[id % (RIG_MAX + 1)];

    return c ? tls_config_ref(c) : NULL;
}

void rig_create(struct rig *r, unsigned n)
{
    struct err e = {0};
    char crt[256], key[256], ca[256], ca_key[256];

    memset(r, 0, sizeof *r);
    (void)snprintf(r->dir, sizeof r->dir, "%s/hanse-core-XXXXXX",
                   getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(r->dir));
    r->loop = loop_uv_create(&e);
    assert_non_null(r->loop);
    r->n = n;
    assert_int_equal(pki_ca_create(rig_path(r, "ca.crt", 0, ca, sizeof ca),
                                   rig_path(r, "ca.key", 0, ca_key, sizeof ca_key), "test", 2, &e),
                     0);
    for (unsigned id = 1; id <= RIG_MAX; id++) {
        static const char *const names[] = {"localhost", "127.0.0.1", NULL};
        static const char *const orgs[] = {"hanse:members", NULL};
        char cn[64];
        struct pki_request rq = {.common_name = cn,
                                 .organizations = orgs,
                                 .dns_names = names,
                                 .server = true,
                                 .days = 2};
        struct rig_member *m = &r->m[id];

        (void)snprintf(cn, sizeof cn, "member:%u", id);
        assert_int_equal(pki_issue(ca, ca_key, &rq, rig_path(r, "m%u.crt", id, crt, sizeof crt),
                                   rig_path(r, "m%u.key", id, key, sizeof key), &e),
                         0);
        m->rig = r;
        m->certificate = id;
        m->cfg.id = id;
        (void)snprintf(m->cfg.name, sizeof m->cfg.name, "m%u", id);
        (void)snprintf(m->listen, sizeof m->listen, "127.0.0.1:%d", rig_free_port());
        str_copy(m->cfg.address, sizeof m->cfg.address, m->listen);
        (void)snprintf(m->cfg.api_address, sizeof m->cfg.api_address, "https://m%u", id);
        m->cfg.listen = m->listen;
        rig_path(r, "d%u", id, m->cfg.data_dir, sizeof m->cfg.data_dir);
        m->cfg.tls_client = rig_client;
        m->cfg.tls_arg = m;
        m->cfg.bootstrap = id <= n;
        r->peers[id - 1].id = id;
        str_copy(r->peers[id - 1].address, sizeof r->peers[id - 1].address, m->cfg.address);
        if (id <= n) {
            m->cfg.peers = r->peers;
            m->cfg.n_peers = n;
        }
    }
}

int rig_try_start(struct rig *r, unsigned id, struct err *err)
{
    static const struct core_events ev = {.fatal = rig_fatal};
    struct rig_member *m = &r->m[id];

    rig_tls(r, id);
    m->cfg.tls_server = m->server;
    m->closed = false;
    return core_create(r->loop, &m->cfg, &ev, m, &m->core, err);
}

void rig_start(struct rig *r, unsigned id)
{
    struct err e = {0};

    if (rig_try_start(r, id, &e))
        fail_msg("member %u: %s", id, e.text);
}

void rig_closed(void *arg)
{
    struct rig_member *m = arg;

    m->closed = true;
    m->core = NULL;
}

bool rig_is_closed(void *arg)
{
    return ((struct rig_member *)arg)->closed;
}

void rig_stop(struct rig *r, unsigned id)
{
    char lock[300];

    if (!r->m[id].core)
        return;
    core_close(r->m[id].core, rig_closed, &r->m[id]);
    rig_wait_for(r, rig_is_closed, &r->m[id]);
    /* The lock lasts as long as the process; a new file lets the same process play the member's
     * next one. */
    (void)unlink(rig_path(r, "d%u/lock", id, lock, sizeof lock));
}

void rig_destroy(struct rig *r)
{
    struct err e = {0};

    for (unsigned id = 1; id <= RIG_MAX; id++) {
        rig_stop(r, id);
        r->m[id].server = tls_config_unref(r->m[id].server);
        for (unsigned i = 0; i <= RIG_MAX; i++)
            r->m[id].client[i] = tls_config_unref(r->m[id].client[i]);
    }
    while (tree_reap(100000))
        ;
    assert_int_equal(file_remove(r->loop, r->dir, &e), 0);
    loop_uv_destroy(r->loop);
}

unsigned rig_leader(struct rig *r)
{
    struct core_status s;

    for (unsigned id = 1; id <= RIG_MAX; id++) {
        if (!r->m[id].core)
            continue;
        core_status(r->m[id].core, &s);
        if (s.leads)
            return id;
    }
    return 0;
}

bool rig_has_leader(void *arg)
{
    return rig_leader(arg) != 0;
}

void rig_command(const char *name, const char *request_id, struct buf *out)
{
    struct meta meta = {.name = (char *)(uintptr_t)name, .uid = (char *)(uintptr_t)name};
    struct namespace_ body = {.metadata = &meta};
    struct write_op op = {.verb = WRITE_CREATE, .kind = KIND_NAMESPACE};
    union command c = {.head = {.type = CMD_WRITE, .user = "test"}};

    op.object = object_make(kind_by_id(KIND_NAMESPACE), &body);
    str_copy(op.name, sizeof op.name, name);
    str_copy(c.head.request_id, sizeof c.head.request_id, request_id);
    c.write.ops = &op;
    c.write.n = 1;
    buf_init(out, LIMIT_COMMAND_MAX_BYTES);
    command_encode(&c, out);
    object_unref(op.object);
}

void rig_proposed(void *arg, const struct result *res, const struct err *err)
{
    struct rig_call *call = arg;

    call->done = true;
    call->applied = res != NULL;
    if (err)
        call->code = err->code;
    else if (res)
        call->code = res->code;
    else
        fail_msg("neither a result nor an error");
    if (res && res->code)
        (void)fprintf(stderr, "result %d: %s %s\n", res->code, res->field, res->text);
}

void rig_read(void *arg, const struct err *err)
{
    struct rig_call *call = arg;

    call->done = true;
    call->code = err ? err->code : 0;
    if (err)
        (void)fprintf(stderr, "%s\n", err->text);
}

bool rig_done(void *arg)
{
    return ((struct rig_call *)arg)->done;
}

void rig_propose(struct rig *r, unsigned id, const char *name, uint64_t deadline_ms,
                 struct rig_call *call)
{
    struct buf b;

    memset(call, 0, sizeof *call);
    rig_command(name, name, &b);
    core_propose(r->m[id].core, r->loop, name, slice_make(b.p, b.n), deadline_ms, rig_proposed,
                 call);
    buf_fini(&b);
}

int rig_write(struct rig *r, unsigned id, const char *name)
{
    struct rig_call call;

    rig_propose(r, id, name, 10000, &call);
    rig_wait_for(r, rig_done, &call);
    return call.code;
}

bool rig_has(struct rig *r, unsigned id, const char *name)
{
    struct root *root = core_root(r->m[id].core);
    bool has = root_get(root, KIND_NAMESPACE, "", name) != NULL;

    root_unref(root);
    return has;
}

int rig_read_at(struct rig *r, unsigned id)
{
    struct rig_call call = {0};

    core_read(r->m[id].core, r->loop, 5000, rig_read, &call);
    rig_wait_for(r, rig_done, &call);
    return call.code;
}

int rig_member_op(struct rig *r, unsigned via, enum member_op op, unsigned id)
{
    struct rig_call call = {0};

    core_member(r->m[via].core, r->loop, op, id ? &r->peers[id - 1] : NULL, 20000, rig_read, &call);
    rig_wait_for(r, rig_done, &call);
    return call.code;
}
