/* Group commit: commands a second and their latency, by members and by how many clients wait at a
 * time. Real disk, real TLS between members, each member on a thread of its own as in a server; one
 * member is asked, the leader. A command creates a Namespace. Prints one JSON object. Never
 * measures without the disk: the folder is TMPDIR's, or --dir.
 *
 * One member alone may be slower than three. The rows "bare write" say why, without Hanse: on some
 * machines a durable write that is the only one under way is completed at the kernel's next tick
 * (4 ms at HZ=250), one that has others beside it at once. Three members on one machine write
 * beside each other. */
#include "api/base/loop/loop.h"
#include "api/base/net/tls.h"
#include "api/schema/kinds.h"
#include "controlplane/raft/core.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MEMBERS_MAX 7
#define DEADLINE_MS 30000

struct bench;
struct member {
    struct bench *bench;
    struct core_config cfg;
    struct core *core;
    struct loop *loop;
    struct tls_config *server, *client[MEMBERS_MAX + 1];
    char listen[64];
};
struct client {
    struct bench *bench;
    int64_t begun_ns;
    char id[64];
};
struct bench {
    struct loop *loop;
    char dir[256];
    struct core_peer peers[MEMBERS_MAX];
    struct member m[MEMBERS_MAX];
    unsigned n, leader, started, closed;
    struct timer poll;
    struct client *clients;
    unsigned n_clients, under_way;
    long asked, done, wanted, failed;
    int64_t *ns, begun_ns, ended_ns;
};

static void die(const char *what, const struct err *e) __attribute__((noreturn));
static void die(const char *what, const struct err *e)
{
    (void)fprintf(stderr, "commit: %s%s%s\n", what, e ? ": " : "", e ? e->text : "");
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (void *)&a, n) || getsockname(fd, (void *)&a, &n))
        die("no free port", NULL);
    (void)close(fd);
    return ntohs(a.sin_port);
}

/* ---- members ---- */
static void fatal(void *arg, const struct err *why)
{
    (void)arg;
    die("a member stopped", why);
}
static struct tls_config *client_tls(void *arg, uint64_t id)
{
    return tls_config_ref(((struct member *)arg)->client[id]);
}

static void tls_make(struct bench *b, struct member *m, unsigned id)
{
    static const char *const names[] = {"localhost", "127.0.0.1", NULL};
    static const char *const groups[] = {"hanse:members", NULL};
    static const char *const mutual[] = {ALPN_RAFT, ALPN_PEER, NULL};
    char ca[300], ca_key[300], crt[300], key[300], cn[32];
    struct err e;

    (void)snprintf(ca, sizeof ca, "%s/ca.crt", b->dir);
    (void)snprintf(ca_key, sizeof ca_key, "%s/ca.key", b->dir);
    (void)snprintf(crt, sizeof crt, "%s/%u.crt", b->dir, id);
    (void)snprintf(key, sizeof key, "%s/%u.key", b->dir, id);
    (void)snprintf(cn, sizeof cn, "member:%u", id);
    struct pki_request rq = {
        .common_name = cn, .organizations = groups, .dns_names = names, .server = true, .days = 2};
    struct tls_config_spec spec = {
        .ca_file = ca, .cert_file = crt, .key_file = key, .alpn_mutual = mutual};
    if ((id == 1 && pki_ca_create(ca, ca_key, "bench", 2, &e)) ||
        pki_issue(ca, ca_key, &rq, crt, key, &e) || tls_config_create(&spec, true, &m->server, &e))
        die("TLS", &e);
    spec.server_name = "localhost";
    for (unsigned i = 1; i <= b->n; i++)
        if (tls_config_create(&spec, false, &m->client[i], &e))
            die("TLS", &e);
    m->cfg.tls_server = m->server;
}

static void member_started(void *arg)
{
    ((struct member *)arg)->bench->started++;
}
static void member_thread(struct loop *l, void *arg)
{
    static const struct core_events ev = {.fatal = fatal};
    struct member *m = arg;
    struct err e;

    if (core_create(l, &m->cfg, &ev, m, &m->core, &e))
        die("a member cannot start", &e);
    loop_post(m->bench->loop, member_started, m);
}

static void members_start(struct bench *b)
{
    struct err e;

    for (unsigned i = 0; i < b->n; i++) {
        struct member *m = &b->m[i];
        m->bench = b;
        m->cfg = (struct core_config){.id = i + 1,
                                      .bootstrap = true,
                                      .listen = m->listen,
                                      .peers = b->peers,
                                      .n_peers = b->n,
                                      .tls_client = client_tls,
                                      .tls_arg = m};
        int port = free_port();
        (void)snprintf(m->listen, sizeof m->listen, "127.0.0.1:%d", port);
        (void)snprintf(m->cfg.name, sizeof m->cfg.name, "m%u", i + 1);
        (void)snprintf(m->cfg.address, sizeof m->cfg.address, "127.0.0.1:%d", port);
        (void)snprintf(m->cfg.data_dir, sizeof m->cfg.data_dir, "%s/d%u", b->dir, i + 1);
        b->peers[i].id = i + 1;
        (void)snprintf(b->peers[i].address, sizeof b->peers[i].address, "127.0.0.1:%d", port);
        tls_make(b, m, i + 1);
    }
    for (unsigned i = 0; i < b->n; i++)
        if (loop_thread_start(b->loop, "core", member_thread, &b->m[i], &b->m[i].loop, &e))
            die("a thread cannot start", &e);
}

static void closed_here(void *arg)
{
    struct bench *b = arg;

    if (++b->closed == b->n)
        loop_stop(b->loop);
}
static void core_closed(void *arg)
{
    struct member *m = arg;

    loop_stop(m->loop);
    loop_post(m->bench->loop, closed_here, m->bench);
}
static void core_end(void *arg)
{
    struct member *m = arg;

    core_close(m->core, core_closed, m);
}

/* ---- clients: each proposes again as soon as it is answered ---- */
static void propose(struct client *c);
static void answered(void *arg, const struct result *r, const struct err *err)
{
    struct client *c = arg;
    struct bench *b = c->bench;

    if (err || r->code)
        b->failed++;
    b->ns[b->done++] = now_ns() - c->begun_ns;
    b->under_way--;
    if (b->asked < b->wanted) {
        propose(c);
    } else if (b->under_way == 0) {
        b->ended_ns = now_ns();
        for (unsigned i = 0; i < b->n; i++)
            loop_post(b->m[i].loop, core_end, &b->m[i]);
    }
}

static void propose(struct client *c)
{
    struct bench *b = c->bench;
    struct namespace_ body = {0};
    struct meta meta = {0};
    char name[32], uid[40];
    struct write_op op = {.verb = WRITE_CREATE, .kind = KIND_NAMESPACE};
    union command cmd = {
        .write = {.head = {.type = CMD_WRITE, .user = "bench"}, .ops = &op, .n = 1}};
    AUTO_BUF bytes;

    (void)snprintf(name, sizeof name, "n%ld", b->asked);
    (void)snprintf(uid, sizeof uid, "00000000-0000-4000-8000-%012ld", b->asked);
    str_copy(op.name, sizeof op.name, name);
    (void)snprintf(cmd.head.request_id, sizeof cmd.head.request_id, "bench-%ld", b->asked);
    str_copy(c->id, sizeof c->id, cmd.head.request_id);
    meta.name = name;
    meta.uid = uid;
    body.metadata = &meta;
    op.object = object_make(kind_by_id(KIND_NAMESPACE), &body);
    buf_init(&bytes, 65536);
    command_encode(&cmd, &bytes);
    (void)object_unref(op.object);
    b->asked++;
    b->under_way++;
    c->begun_ns = now_ns();
    core_propose(b->m[b->leader].core, b->loop, c->id, slice_make(bytes.p, bytes.n), DEADLINE_MS,
                 answered, c);
}

static void leader_look(void *arg)
{
    struct bench *b = arg;
    struct core_status s;

    for (unsigned i = 0; b->started == b->n && i < b->n; i++) {
        core_status(b->m[i].core, &s);
        if (!s.leads || !s.ready)
            continue;
        b->leader = i;
        b->begun_ns = now_ns();
        for (unsigned k = 0; k < b->n_clients; k++)
            propose(&b->clients[k]);
        return;
    }
    timer_start(&b->poll, 5);
}

/* ---- one measurement ---- */
static int by_value(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;

    return a < b ? -1 : a > b;
}

static void row(const char *what, unsigned members, unsigned clients, double value,
                const char *unit, bool last)
{
    (void)printf("{\"name\": \"%s, %u member%s, %u at a time\", \"value\": %.3f, \"unit\": \"%s\", "
                 "\"peer\": null, \"peer_value\": null, \"ratio\": null}%s",
                 what, members, members > 1 ? "s" : "", clients, value, unit, last ? "" : ",\n  ");
}

static int64_t percentile(const struct bench *b, long percent)
{
    return b->ns[b->done * percent / 100];
}

static void measure(const char *parent, unsigned members, unsigned clients, long commands,
                    bool last)
{
    struct bench *b = mem_new(struct bench);
    struct err e;

    b->n = members;
    b->n_clients = clients;
    b->wanted = commands < clients ? clients : commands;
    b->ns = mem_zalloc(sizeof *b->ns * (size_t)b->wanted);
    b->clients = mem_zalloc(sizeof *b->clients * clients);
    for (unsigned i = 0; i < clients; i++)
        b->clients[i].bench = b;
    (void)snprintf(b->dir, sizeof b->dir, "%s/hanse-commit-XXXXXX", parent);
    if (!mkdtemp(b->dir))
        die("cannot make a folder in TMPDIR or --dir", NULL);
    b->loop = loop_uv_create(&e);
    if (!b->loop)
        die("loop", &e);
    members_start(b);
    timer_init(&b->poll, b->loop, leader_look, b);
    timer_start(&b->poll, 5);
    loop_uv_run(b->loop);
    timer_stop(&b->poll);
    if (b->failed)
        die("commands failed", NULL);
    qsort(b->ns, (size_t)b->done, sizeof *b->ns, by_value);
    double seconds = (double)(b->ended_ns - b->begun_ns) / 1e9;
    row("commands", members, clients, (double)b->done / seconds, "1/s", false);
    row("p50", members, clients, (double)percentile(b, 50) / 1e6, "ms", false);
    row("p99", members, clients, (double)percentile(b, 99) / 1e6, "ms", last);
    for (unsigned i = 0; i < members; i++) {
        loop_thread_join(b->m[i].loop);
        b->m[i].server = tls_config_unref(b->m[i].server);
        for (unsigned k = 1; k <= members; k++)
            b->m[i].client[k] = tls_config_unref(b->m[i].client[k]);
    }
    if (file_remove(b->loop, b->dir, &e))
        die("cleaning up", &e);
    b->loop = loop_uv_destroy(b->loop);
    mem_free(b->ns);
    mem_free(b->clients);
    mem_free(b);
}

/* ---- the disk alone: 4 KiB in place, durable, as an append of one command is ---- */
#define BLOCK 4096
#define BARE_WRITES 300

struct bare {
    char path[320];
    int64_t ns[BARE_WRITES];
    atomic_bool *stop; /* write until then, instead of BARE_WRITES times */
};

static void *bare_write(void *arg)
{
    struct bare *w = arg;
    int fd = open(w->path, O_RDWR | O_CREAT | O_DIRECT | O_DSYNC | O_CLOEXEC, 0600);
    void *block = NULL;

    if (fd < 0 || posix_memalign(&block, BLOCK, BLOCK) || posix_fallocate(fd, 0, 1 << 20))
        die("cannot write in TMPDIR or --dir", NULL);
    memset(block, 1, BLOCK);
    for (long i = 0; w->stop ? !atomic_load(w->stop) : i < BARE_WRITES; i++) {
        int64_t begun = now_ns();
        if (pwrite(fd, block, BLOCK, i / 16 % 256 * BLOCK) != BLOCK)
            die("cannot write in TMPDIR or --dir", NULL);
        w->ns[i % BARE_WRITES] = now_ns() - begun;
    }
    free(block);
    (void)close(fd);
    (void)unlink(w->path);
    return NULL;
}

static void bare_measure(const char *dir, unsigned others)
{
    struct bare w[3] = {0};
    pthread_t threads[3];
    atomic_bool stop = false;

    for (unsigned i = 0; i <= others; i++) {
        (void)snprintf(w[i].path, sizeof w[i].path, "%s/hanse-commit-bare-%d-%u", dir,
                       (int)getpid(), i);
        w[i].stop = i ? &stop : NULL;
        if (pthread_create(&threads[i], NULL, bare_write, &w[i]))
            die("a thread cannot start", NULL);
    }
    (void)pthread_join(threads[0], NULL);
    atomic_store(&stop, true);
    for (unsigned i = 1; i <= others; i++)
        (void)pthread_join(threads[i], NULL);
    qsort(w[0].ns, BARE_WRITES, sizeof *w[0].ns, by_value);
    int64_t p50 = w[0].ns[BARE_WRITES / 2];
    (void)printf("{\"name\": \"bare write, %u beside it, p50\", \"value\": %.3f, \"unit\": \"ms\", "
                 "\"peer\": null, \"peer_value\": null, \"ratio\": null},\n  ",
                 others, (double)p50 / 1e6);
}

int main(int argc, char **argv)
{
    unsigned members[] = {1, 3}, clients[] = {1, 16, 256}, n_members = 2, n_clients = 3;
    const char *dir = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    long each = 2000;

    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && !strcmp(argv[i], "--commands"))
            each = strtol(argv[i + 1], NULL, 10);
        else if (i + 1 < argc && !strcmp(argv[i], "--dir"))
            dir = argv[i + 1];
        else if (i + 1 < argc && !strcmp(argv[i], "--members"))
            members[0] = (unsigned)strtoul(argv[i + 1], NULL, 10), n_members = 1;
        else if (i + 1 < argc && !strcmp(argv[i], "--clients"))
            clients[0] = (unsigned)strtoul(argv[i + 1], NULL, 10), n_clients = 1;
        else
            die("usage: commit [--commands N] [--dir FOLDER] [--members N] [--clients N]", NULL);
    }
    if (each < 1 || each > 10000000)
        die("--commands: 1 to 10000000, for one client; more clients send more", NULL);
    if (members[0] < 1 || members[0] > MEMBERS_MAX || clients[0] < 1 || clients[0] > 65536)
        die("--members: 1 to 7; --clients: 1 to 65536", NULL);
    (void)printf(
        "{\"name\": \"commit\", \"parameters\": {\"commands_at_1\": %ld},\n \"results\": [", each);
    bare_measure(dir, 0);
    bare_measure(dir, 2);
    for (unsigned m = 0; m < n_members; m++)
        for (unsigned c = 0; c < n_clients; c++)
            measure(dir, members[m], clients[c], each * (1 + clients[c] / 16),
                    m == n_members - 1 && c == n_clients - 1);
    (void)printf("]}\n");
    return 0;
}
