/* `hanse dev`: a whole federation on this machine from one command. It is a supervisor and no more:
 * members and the agent are the same programs as in production, started with certificates of a CA
 * that it makes on first use. Everything lies in one folder; nothing outside of it is touched. */
#include "controlplane/keyring/keyring.h"
#include "controlplane/server/server.h"

#include "api/base/hash.h"
#include "api/base/net/tls.h"

#include <getopt.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MEMBERS_MAX 7
#define AGENTS_MAX 64
#define RESTART_MS 300
#define KILL_AFTER_MS 5000
#define CERT_DAYS 825

static const char help[] =
    "usage: hanse dev [--dir DIR] [--members N] [--port P] [--agent NAME]... [--no-agent]\n"
    "\n"
    "Runs Hanse on this machine, with a data directory, a CA and a kubeconfig of its own in DIR.\n"
    "\n"
    "  --dir DIR      where everything lies (default ~/.hanse/dev); run again, it goes on where it "
    "was\n"
    "  --members N    members of the cluster: 1, 3, 5 or 7 (default 1)\n"
    "  --port P       API port of the first member, the next ones follow (default: free ports, "
    "kept in DIR)\n"
    "  --agent NAME   starts no agent, but makes the certificate for one of target NAME, that you "
    "start:\n"
    "                 DIR/pki/agent-NAME.crt and .key. Without this flag the cluster has a target "
    "\"local\"\n"
    "                 with an agent for this machine\n"
    "  --no-agent     neither\n"
    "\n"
    "example\n"
    "  hanse dev &\n"
    "  export KUBECONFIG=~/.hanse/dev/kubeconfig\n"
    "  hanse submit --name hello -- /bin/echo hello\n";

struct child {
    struct dev *dev;
    char name[64], pid_file[PATH_MAX], log[PATH_MAX];
    char *argv[64];
    unsigned n;
    struct process *process;
    struct timer restart;
};
struct dev {
    struct loop *loop;
    struct arena *mem; /* what the children are started with */
    char dir[PATH_MAX / 2], exe[PATH_MAX];
    const char *agents[AGENTS_MAX];
    unsigned n_agents, members;
    uint64_t port;
    int ports[MEMBERS_MAX], peer_ports[MEMBERS_MAX];
    bool no_agent, stopping, bootstrap, first_apply;
    struct child children[MEMBERS_MAX + 2];
    unsigned n_children, alive;
    struct timer kill, ready;
    struct process *apply; /* registers the target "local" */
    uint64_t began_ms;
    int status;
};

static char *text(const char *fmt, ...) PRINTF_LIKE(1, 2);
static char *text(const char *fmt, ...) /* lives as long as the process */
{
    char b[PATH_MAX * 2];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(b, sizeof b, fmt, ap);
    va_end(ap);
    return mem_strdup(b);
}

/* ---- certificates ---- */
static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static int issue(struct dev *d, const char *file, const char *cn, const char *group, bool server,
                 struct err *err)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "::1", NULL};
    const char *groups[] = {group, NULL};
    struct pki_request rq = {.common_name = cn,
                             .organizations = groups,
                             .dns_names = server ? names : NULL,
                             .server = server,
                             .days = CERT_DAYS};
    char *crt = text("%s/pki/%s.crt", d->dir, file), *key = text("%s/pki/%s.key", d->dir, file);
    char *ca = text("%s/pki/ca.crt", d->dir), *ca_key = text("%s/pki/ca.key", d->dir);
    int rv = exists(crt) && exists(key) ? 0 : pki_issue(ca, ca_key, &rq, crt, key, err);

    mem_free(crt);
    mem_free(key);
    mem_free(ca);
    mem_free(ca_key);
    return rv;
}

static int pki_make(struct dev *d, struct err *err)
{
    char *ca = text("%s/pki/ca.crt", d->dir), *key = text("%s/pki/ca.key", d->dir);
    char *pki = text("%s/pki", d->dir), *ring = text("%s/pki/key-ring", d->dir);
    char file[300], cn[300];
    struct keyring *keys = NULL;
    int rv = file_mkdir(d->loop, pki, 0700, err);

    if (!rv && !(exists(ca) && exists(key)))
        rv = pki_ca_create(ca, key, "hanse dev", CERT_DAYS, err);
    for (unsigned i = 1; !rv && i <= d->members; i++) {
        (void)snprintf(file, sizeof file, "member-%u", i);
        (void)snprintf(cn, sizeof cn, "member:%u", i);
        rv = issue(d, file, cn, "hanse:members", true, err);
    }
    if (!rv)
        rv = issue(d, "admin", "admin", "system:masters", false, err);
    for (unsigned i = 0; !rv && i < d->n_agents; i++) {
        (void)snprintf(file, sizeof file, "agent-%s", d->agents[i]);
        (void)snprintf(cn, sizeof cn, "agent:%s", d->agents[i]);
        rv = issue(d, file, cn, "hanse:agents", false, err);
    }
    if (!rv && d->bootstrap) /* members that begin at once would each make one of their own */
        rv = keyring_open(d->loop, ring, true, &keys, err);
    (void)keyring_close(keys);
    mem_free(ca);
    mem_free(key);
    mem_free(pki);
    mem_free(ring);
    return rv;
}

/* ---- ports: chosen once, kept in DIR/ports ---- */
/* Below those that the kernel gives to clients (32768 on), so that none of them takes the port of a
 * member that is down for a while; where the search begins follows from the folder, so that two
 * folders do not choose alike at once. */
#define PORT_FIRST 20000
#define PORTS 12000

static bool port_is_free(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a);

    if (fd >= 0)
        (void)close(fd);
    return ok;
}

static bool port_is_ours(const struct dev *d, int port)
{
    for (size_t i = 0; i < MEMBERS_MAX; i++)
        if (d->ports[i] == port || d->peer_ports[i] == port)
            return true;
    return false;
}

static int port_choose(const struct dev *d, int *ret, struct err *err)
{
    size_t first = hash_slot(d->dir, PORTS);

    for (size_t i = 0; i < PORTS; i++) {
        int port = PORT_FIRST + (int)((first + i) % PORTS);

        if (!port_is_ours(d, port) && port_is_free(port)) {
            *ret = port;
            return 0;
        }
    }
    return err_set(err, E_IO, "no free port can be found on 127.0.0.1; give one with --port");
}
static int ports_choose(struct dev *d, struct err *err)
{
    char *path = text("%s/ports", d->dir), out[512] = "";
    AUTO_BUF b;
    int rv = 0, n = 0, got = 0;

    buf_init(&b, 4096);
    if (!d->port && !file_read(d->loop, path, 4096, &b, NULL)) {
        char *save = NULL;
        for (char *t = strtok_r(b.p, " \n", &save); t && got < 2 * MEMBERS_MAX;
             t = strtok_r(NULL, " \n", &save))
            *(got % 2 ? &d->peer_ports[got / 2] : &d->ports[got / 2]) = (int)strtol(t, NULL, 10),
                                                                  got++;
    }
    for (int i = 0; !rv && i < (int)d->members; i++) {
        if (d->port) {
            d->ports[i] = (int)d->port + i;
            d->peer_ports[i] = (int)d->port + (int)d->members + i;
        } else if (i >= got / 2) {
            rv = port_choose(d, &d->ports[i], err);
            if (!rv)
                rv = port_choose(d, &d->peer_ports[i], err);
        }
        n += snprintf(out + n, sizeof out - (size_t)n, "%d %d\n", d->ports[i], d->peer_ports[i]);
    }
    if (!rv)
        rv = file_write(d->loop, path, out, (size_t)n, 0644, err);
    mem_free(path);
    return rv;
}

static int kubeconfig_write(struct dev *d, struct err *err)
{
    AUTO_BUF b;
    char *path = text("%s/kubeconfig", d->dir);

    buf_init(&b, 65536);
    buf_str(&b, "apiVersion: v1\nkind: Config\ncurrent-context: dev\nclusters:\n");
    for (unsigned i = 0; i < d->members; i++) {
        buf_printf(&b,
                   "- name: dev%s%.0u\n  cluster:\n    certificate-authority: %s/pki/ca.crt\n    "
                   "server: https://127.0.0.1:%d\n",
                   i ? "-m" : "", i ? i + 1 : 0, d->dir, d->ports[i]);
        if (i == 0) {
            buf_str(&b, "    extensions:\n    - name: hanse.dev/servers\n      extension:\n        "
                        "servers:\n");
            for (unsigned j = 0; j < d->members; j++)
                buf_printf(&b, "        - https://127.0.0.1:%d\n", d->ports[j]);
        }
    }
    buf_str(&b, "contexts:\n");
    for (unsigned i = 0; i < d->members; i++)
        buf_printf(
            &b,
            "- name: dev%s%.0u\n  context: {cluster: dev%s%.0u, user: admin, namespace: default}\n",
            i ? "-m" : "", i ? i + 1 : 0, i ? "-m" : "", i ? i + 1 : 0);
    buf_printf(&b,
               "users:\n- name: admin\n  user:\n    client-certificate: %s/pki/admin.crt\n    "
               "client-key: %s/pki/admin.key\n",
               d->dir, d->dir);
    int rv = file_write(d->loop, path, b.p, b.n, 0600, err);
    mem_free(path);
    return rv;
}

/* ---- children ---- */
static void child_start(void *arg);

static void arg_add(struct child *c, char *a)
{
    INV(c->n < sizeof c->argv / sizeof *c->argv - 1);
    c->argv[c->n++] = a;
}

static void all_ended(struct dev *d)
{
    timer_stop(&d->kill);
    timer_stop(&d->ready);
    loop_stop(d->loop);
}

static void child_ended(struct process *p, int code, int sig, void *arg)
{
    struct child *c = arg;
    struct dev *d = c->dev;

    process_unref(p);
    c->process = NULL;
    d->alive--;
    if (d->stopping) {
        if (d->alive == 0)
            all_ended(d);
        return;
    }
    (void)fprintf(stderr, "hanse dev: %s ended (%s %d); starting it again, its log is %s\n",
                  c->name, sig ? "signal" : "exit status", sig ? sig : code, c->log);
    timer_start(&c->restart, RESTART_MS);
}

static void child_start(void *arg)
{
    struct child *c = arg;
    struct dev *d = c->dev;
    struct process_spec spec = {.argv = (const char *const *)c->argv,
                                .env = (const char *const *)environ,
                                .stdout_path = c->log,
                                .stderr_path = c->log,
                                .session = true};
    struct err e;
    char pid[32];

    if (process_spawn(d->loop, &spec, child_ended, c, &c->process, &e)) {
        (void)fprintf(stderr, "hanse dev: %s: %s\n", c->name, e.text);
        timer_start(&c->restart, RESTART_MS);
        return;
    }
    d->alive++;
    int n = snprintf(pid, sizeof pid, "%lld\n", (long long)process_pid(c->process));
    if (file_write(d->loop, c->pid_file, pid, (size_t)n, 0644, &e))
        (void)fprintf(stderr, "hanse dev: %s\n", e.text);
}

static struct child *child_add(struct dev *d, const char *name)
{
    struct child *c = &d->children[d->n_children++];

    c->dev = d;
    str_copy(c->name, sizeof c->name, name);
    (void)snprintf(c->pid_file, sizeof c->pid_file, "%s/%s.pid", d->dir, name);
    (void)snprintf(c->log, sizeof c->log, "%s/%s.log", d->dir, name);
    timer_init(&c->restart, d->loop, child_start, c);
    arg_add(c, d->exe);
    return c;
}

static void member_add(struct dev *d, unsigned id)
{
    char name[16];

    (void)snprintf(name, sizeof name, "m%u", id);
    struct child *c = child_add(d, name);
    char *const ready = arena_printf(d->mem, "%s/m%u.ready", d->dir, id);
    char *const args[] = {
        "server",        "--die-with-parent",
        "--id",          arena_printf(d->mem, "%u", id),
        "--data",        arena_printf(d->mem, "%s/m%u", d->dir, id),
        "--cert",        arena_printf(d->mem, "%s/pki/member-%u.crt", d->dir, id),
        "--key",         arena_printf(d->mem, "%s/pki/member-%u.key", d->dir, id),
        "--ca",          arena_printf(d->mem, "%s/pki/ca.crt", d->dir),
        "--key-ring",    arena_printf(d->mem, "%s/pki/key-ring", d->dir),
        "--listen",      arena_printf(d->mem, "127.0.0.1:%d", d->ports[id - 1]),
        "--peer-listen", arena_printf(d->mem, "127.0.0.1:%d", d->peer_ports[id - 1]),
        "--ready-file",  ready};
    for (size_t i = 0; i < sizeof args / sizeof *args; i++)
        arg_add(c, args[i]);
    for (unsigned i = 0; i < d->members; i++) {
        arg_add(c, "--peer");
        arg_add(c, arena_printf(d->mem, "%u=127.0.0.1:%d", i + 1, d->peer_ports[i]));
    }
    if (d->bootstrap)
        arg_add(c, "--bootstrap");
    (void)unlink(ready);
}

static void local_agent_add(struct dev *d)
{
    struct child *c = child_add(d, "agent-local");

    char *const args[] = {"agent", "--target", "local", "--state",
                          arena_printf(d->mem, "%s/agent-local", d->dir),
                          "--ca",
                          arena_printf(d->mem, "%s/pki/ca.crt", d->dir),
                          "--cert",
                          arena_printf(d->mem, "%s/pki/agent-local.crt", d->dir),
                          "--key",
                          arena_printf(d->mem, "%s/pki/agent-local.key", d->dir),
                          "--store-root",
                          arena_printf(d->mem, "%s/checkpoints:/srv/hanse", d->dir)};
    for (size_t i = 0; i < sizeof args / sizeof *args; i++)
        arg_add(c, args[i]);
    for (unsigned i = 0; i < d->members; i++) {
        arg_add(c, "--server");
        arg_add(c, arena_printf(d->mem, "127.0.0.1:%d", d->ports[i]));
    }
}

/* The embedded target, by the ordinary CLI; run again, it changes nothing. */
static void applied(struct process *p, int code, int sig, void *arg)
{
    struct dev *d = arg;

    process_unref(p);
    d->apply = NULL;
    d->alive--;
    if (d->stopping && d->alive == 0)
        all_ended(d);
    else if (!d->stopping && (code || sig))
        (void)fprintf(stderr,
                      "hanse dev: the target \"local\" could not be registered; see %s/apply.log\n",
                      d->dir);
}
static void local_target_apply(struct dev *d)
{
    static const char doc[] =
        "apiVersion: hanse.dev/v1alpha1\nkind: Target\nmetadata: {name: local}\n"
        "spec: {type: agent, tier: hub, capacity: owned}\n";
    char *path = text("%s/local.yaml", d->dir), *config = text("%s/kubeconfig", d->dir),
         *log = text("%s/apply.log", d->dir);
    const char *argv[] = {d->exe, "apply", "--kubeconfig", config, "--set",
                          "dev",  "-f",    path,           NULL};
    struct process_spec spec = {
        .argv = argv, .env = (const char *const *)environ, .stdout_path = log, .stderr_path = log};
    struct err e;

    if (file_write(d->loop, path, doc, sizeof doc - 1, 0644, &e) ||
        process_spawn(d->loop, &spec, applied, d, &d->apply, &e))
        (void)fprintf(stderr, "hanse dev: %s\n", e.text);
    else
        d->alive++;
    mem_free(path);
    mem_free(config);
    mem_free(log);
}

static void ready_look(void *arg)
{
    struct dev *d = arg;

    for (unsigned i = 1; i <= d->members; i++) {
        char path[PATH_MAX];
        (void)snprintf(path, sizeof path, "%s/m%u.ready", d->dir, i);
        if (!exists(path)) {
            timer_start(&d->ready, 10);
            return;
        }
    }
    (void)printf("hanse dev: %u member%s up after %llu ms on https://127.0.0.1:%d\n"
                 "  export KUBECONFIG=%s/kubeconfig    # for hanse and kubectl\n"
                 "  hanse status\n",
                 d->members, d->members > 1 ? "s" : "",
                 (unsigned long long)loop_now_ms(d->loop) - d->began_ms, d->ports[0], d->dir);
    (void)fflush(stdout);
    if (d->first_apply)
        local_target_apply(d);
}

static void kill_all(void *arg)
{
    struct dev *d = arg;

    for (unsigned i = 0; i < d->n_children; i++)
        if (d->children[i].process)
            process_signal(d->children[i].process, SIGKILL);
}
static void stop_asked(void *arg)
{
    struct dev *d = arg;

    if (d->stopping)
        return;
    d->stopping = true;
    timer_stop(&d->ready);
    if (d->apply) /* its server ends: it would ask again until its deadline */
        process_signal(d->apply, SIGKILL);
    for (unsigned i = 0; i < d->n_children; i++) {
        timer_stop(&d->children[i].restart);
        if (d->children[i].process)
            process_signal(d->children[i].process, SIGTERM);
    }
    timer_start(&d->kill, KILL_AFTER_MS);
    if (d->alive == 0)
        all_ended(d);
}

/* ---- start ---- */
static int options_read(struct dev *d, int argc, char **argv, struct err *err)
{
    static const struct option options[] = {{"dir", 1, NULL, 'd'},
                                            {"members", 1, NULL, 'm'},
                                            {"port", 1, NULL, 'p'},
                                            {"agent", 1, NULL, 'a'},
                                            {"no-agent", 0, NULL, 'n'},
                                            {"help", 0, NULL, 'h'},
                                            {0}};
    const char *dir = NULL;
    int opt;

    d->members = 1;
    optind = 1;
    opterr = 0;
    while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (opt == 'h')
            return 1;
        else if (opt == 'd')
            dir = optarg;
        else if (opt == 'm')
            d->members = (unsigned)strtoul(optarg, NULL, 10);
        else if (opt == 'p')
            d->port = strtoul(optarg, NULL, 10);
        else if (opt == 'n')
            d->no_agent = true;
        else if (opt == 'a' && d->n_agents < AGENTS_MAX && !strchr(optarg, '/'))
            d->agents[d->n_agents++] = optarg;
        else
            return err_set(err, E_USAGE, "%s: unknown option or wrong value; see hanse dev --help",
                           argv[optind - 1]);
    }
    if (optind < argc)
        return err_set(err, E_USAGE, "unexpected argument %s; see hanse dev --help", argv[optind]);
    if (d->members < 1 || d->members > MEMBERS_MAX || d->members % 2 == 0)
        return err_set(err, E_USAGE, "--members: expected 1, 3, 5 or 7");
    if (d->port > 65000)
        return err_set(err, E_USAGE, "--port: expected a number up to 65000");
    const char *home = getenv("HOME");
    char want[PATH_MAX / 2];
    (void)snprintf(want, sizeof want, "%s%s",
                   dir    ? dir
                   : home ? home
                          : ".",
                   dir ? "" : "/.hanse/dev");
    int rv = file_mkdir(d->loop, want, 0700, err);
    char full[PATH_MAX];
    if (!rv && (!realpath(want, full) || strlen(full) >= sizeof d->dir))
        rv = err_set(err, E_IO, "%s: cannot be used as a folder", want);
    if (!rv)
        str_copy(d->dir, sizeof d->dir, full);
    return rv;
}

static int prepare(struct dev *d, struct err *err)
{
    char *lock = text("%s/lock", d->dir), *first = text("%s/m1", d->dir),
         *cluster = text("%s/members", d->dir);
    ssize_t n = readlink("/proc/self/exe", d->exe, sizeof d->exe - 1);
    AUTO_BUF was;

    buf_init(&was, 64);
    if (n <= 0)
        return err_set(err, E_IO, "the path of this program cannot be read from /proc/self/exe");
    int rv = file_lock(d->loop, lock, err);
    if (rv)
        return err_prefix(err, "another hanse dev uses %s; stop it or give --dir", d->dir);
    d->bootstrap = !exists(first);
    if (!d->bootstrap && !file_read(d->loop, cluster, 64, &was, NULL) &&
        strtoul(was.p, NULL, 10) != d->members)
        return err_set(
            err, E_USAGE,
            "%s holds a cluster of %s members; start it with --members %s, or give another --dir",
            d->dir, was.p, was.p);
    char count[8];
    (void)snprintf(count, sizeof count, "%u", d->members);
    rv = file_write(d->loop, cluster, count, strlen(count), 0644, err);
    if (d->n_agents == 0 && !d->no_agent) {
        d->agents[d->n_agents++] = "local";
        d->first_apply = true;
    }
    if (!rv)
        rv = pki_make(d, err);
    if (!rv)
        rv = ports_choose(d, err);
    if (!rv)
        rv = kubeconfig_write(d, err);
    mem_free(lock);
    mem_free(first);
    mem_free(cluster);
    return rv;
}

static void dev_free(struct dev *d)
{
    d->loop = loop_uv_destroy(d->loop);
    d->mem = arena_destroy(d->mem);
    mem_free(d);
}

int dev_main(int argc, char **argv)
{
    struct err err = {0};
    struct dev *d = mem_new(struct dev);

    d->loop = loop_uv_create(&err);
    INV(d->loop);
    d->mem = arena_create(0);
    d->began_ms = loop_now_ms(d->loop);
    int rv = options_read(d, argc, argv, &err);
    if (rv == 1) {
        (void)fputs(help, stdout);
        dev_free(d);
        return 0;
    }
    if (!rv)
        rv = prepare(d, &err);
    if (!rv)
        rv = loop_signal(d->loop, SIGTERM, stop_asked, d, &err);
    if (!rv)
        rv = loop_signal(d->loop, SIGINT, stop_asked, d, &err);
    if (rv) {
        (void)fprintf(stderr, "hanse dev: %s\n", err.text);
        dev_free(d);
        return err_info(rv)->exit;
    }
    timer_init(&d->kill, d->loop, kill_all, d);
    timer_init(&d->ready, d->loop, ready_look, d);
    for (unsigned i = 1; i <= d->members; i++)
        member_add(d, i);
    if (d->first_apply)
        local_agent_add(d);
    for (unsigned i = 0; i < d->n_children; i++)
        child_start(&d->children[i]);
    timer_start(&d->ready, 10);
    loop_uv_run(d->loop);
    dev_free(d);
    return 0;
}
