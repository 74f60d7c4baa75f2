/* `hanse server`: flags, signals, exit status. */
#include "controlplane/server/server.h"

#include "api/base/log.h"
#include "controlplane/backup/backup.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#define PEERS_MAX 16

static const char help[] =
    "usage: hanse server --id N --data DIR --cert FILE --key FILE --ca FILE --key-ring FILE "
    "[option...]\n"
    "\n"
    "Runs one member of a Hanse cluster. See also: hanse server skip-entry --help,\n"
    "hanse server recover-quorum --help, hanse restore --help\n"
    "\n"
    "identity\n"
    "  --id N                 number of this member, 1 or higher, unique in the cluster\n"
    "  --name NAME            name for people (default mN)\n"
    "  --data DIR             its log and snapshots; one process at a time\n"
    "  --cert, --key, --ca    PEM files; the certificate's common name is member:N\n"
    "  --key-ring FILE        keys that seal Secrets; outside of DIR, the same on all members\n"
    "addresses\n"
    "  --listen HOST:PORT         for users and agents (default 127.0.0.1:7443)\n"
    "  --peer-listen HOST:PORT    for other members (default 127.0.0.1:7453)\n"
    "  --advertise HOST:PORT      what users and agents are told (default: --listen)\n"
    "  --peer-advertise HOST:PORT what members are told (default: --peer-listen)\n"
    "cluster\n"
    "  --peer N=HOST:PORT     a member of the cluster (once for each, this one included)\n"
    "  --bootstrap            DIR is empty and starts a new cluster of the --peer members.\n"
    "                         Without it an empty DIR waits to be added: hanse members add\n"
    "  --election-ms, --heartbeat-ms   timing of Raft (default 300 and 50)\n"
    "  --clock-bound-ms       how far members' clocks may be apart (default 5000); whose is\n"
    "                         further ahead of the majority's does not lead\n"
    "other\n"
    "  --ready-file FILE      written with the API's port once it listens\n"
    "  --die-with-parent      ends when the process that started it ends\n"
    "  --log-json             log lines as JSON\n"
    "  --verbose              log more\n"
    "\n"
    "example\n"
    "  hanse server --id 1 --data /var/lib/hanse --cert m1.crt --key m1.key --ca ca.crt \\\n"
    "      --key-ring /etc/hanse/keys --bootstrap --peer 1=10.0.0.1:7453\n";

struct run {
    struct loop *loop;
    struct server *server;
    struct server_config cfg;
    struct core_peer peers[PEERS_MAX];
    const char *advertise, *peer_advertise;
    bool die_with_parent, log_json, verbose, stopping;
    int status;
};

enum {
    OPT_ID = 256,
    OPT_NAME,
    OPT_DATA,
    OPT_CERT,
    OPT_KEY,
    OPT_CA,
    OPT_RING,
    OPT_LISTEN,
    OPT_PEER_LISTEN,
    OPT_ADVERTISE,
    OPT_PEER_ADVERTISE,
    OPT_PEER,
    OPT_BOOTSTRAP,
    OPT_ELECTION,
    OPT_HEARTBEAT,
    OPT_CLOCK_BOUND,
    OPT_READY,
    OPT_DIE,
    OPT_JSON,
    OPT_VERBOSE
};
static const struct option options[] = {{"id", 1, NULL, OPT_ID},
                                        {"name", 1, NULL, OPT_NAME},
                                        {"data", 1, NULL, OPT_DATA},
                                        {"cert", 1, NULL, OPT_CERT},
                                        {"key", 1, NULL, OPT_KEY},
                                        {"ca", 1, NULL, OPT_CA},
                                        {"key-ring", 1, NULL, OPT_RING},
                                        {"listen", 1, NULL, OPT_LISTEN},
                                        {"peer-listen", 1, NULL, OPT_PEER_LISTEN},
                                        {"advertise", 1, NULL, OPT_ADVERTISE},
                                        {"peer-advertise", 1, NULL, OPT_PEER_ADVERTISE},
                                        {"peer", 1, NULL, OPT_PEER},
                                        {"bootstrap", 0, NULL, OPT_BOOTSTRAP},
                                        {"election-ms", 1, NULL, OPT_ELECTION},
                                        {"heartbeat-ms", 1, NULL, OPT_HEARTBEAT},
                                        {"clock-bound-ms", 1, NULL, OPT_CLOCK_BOUND},
                                        {"ready-file", 1, NULL, OPT_READY},
                                        {"die-with-parent", 0, NULL, OPT_DIE},
                                        {"log-json", 0, NULL, OPT_JSON},
                                        {"verbose", 0, NULL, OPT_VERBOSE},
                                        {"help", 0, NULL, 'h'},
                                        {0}};

static int number(const char *flag, const char *s, uint64_t lo, uint64_t hi, uint64_t *ret,
                  struct err *err)
{
    char *end;
    unsigned long long v = strtoull(s, &end, 10);

    if (!*s || *end || *s == '-' || v < lo || v > hi)
        return err_set(err, E_USAGE, "--%s %s: expected a number from %llu to %llu", flag, s,
                       (unsigned long long)lo, (unsigned long long)hi);
    *ret = v;
    return 0;
}

static int peer_add(struct run *r, char *s, struct err *err)
{
    char *eq = strchr(s, '=');
    uint64_t id = 0;

    if (!eq || !strrchr(eq, ':'))
        return err_set(err, E_USAGE,
                       "--peer %s: expected N=HOST:PORT, as in --peer 1=10.0.0.1:7453", s);
    if (r->cfg.core.n_peers == PEERS_MAX)
        return err_set(err, E_USAGE, "--peer: at most %d members", PEERS_MAX);
    *eq = 0;
    int rv = number("peer", s, 1, 1000000, &id, err);
    *eq = '='; /* s is the command line itself, which ps shows */
    if (rv)
        return rv;
    struct core_peer *p = &r->peers[r->cfg.core.n_peers++];
    p->id = id;
    str_copy(p->address, sizeof p->address, eq + 1);
    return 0;
}

static int option_take(struct run *r, int opt, char *arg, struct err *err)
{
    struct core_config *c = &r->cfg.core;
    uint64_t v = 0;
    int rv = 0;

    switch (opt) {
    case OPT_ID:
        rv = number("id", arg, 1, 1000000, &v, err);
        c->id = v;
        break;
    case OPT_NAME:
        str_copy(c->name, sizeof c->name, arg);
        break;
    case OPT_DATA:
        str_copy(c->data_dir, sizeof c->data_dir, arg);
        break;
    case OPT_CERT:
        r->cfg.cert_file = arg;
        break;
    case OPT_KEY:
        r->cfg.key_file = arg;
        break;
    case OPT_CA:
        r->cfg.ca_file = arg;
        break;
    case OPT_RING:
        r->cfg.key_ring = arg;
        break;
    case OPT_LISTEN:
        r->cfg.listen = arg;
        break;
    case OPT_PEER_LISTEN:
        c->listen = arg;
        break;
    case OPT_ADVERTISE:
        r->advertise = arg;
        break;
    case OPT_PEER_ADVERTISE:
        r->peer_advertise = arg;
        break;
    case OPT_PEER:
        rv = peer_add(r, arg, err);
        break;
    case OPT_BOOTSTRAP:
        c->bootstrap = true;
        break;
    case OPT_ELECTION:
        rv = number("election-ms", arg, 50, 60000, &v, err);
        c->election_ms = (uint32_t)v;
        break;
    case OPT_HEARTBEAT:
        rv = number("heartbeat-ms", arg, 5, 10000, &v, err);
        c->heartbeat_ms = (uint32_t)v;
        break;
    case OPT_CLOCK_BOUND:
        rv = number("clock-bound-ms", arg, 100, 600000, &v, err);
        c->clock_bound_ms = (uint32_t)v;
        break;
    case OPT_READY:
        r->cfg.ready_file = arg;
        break;
    case OPT_DIE:
        r->die_with_parent = true;
        break;
    case OPT_JSON:
        r->log_json = true;
        break;
    case OPT_VERBOSE:
        r->verbose = true;
        break;
    default:
        rv = err_set(err, E_USAGE, "unknown option; see hanse server --help");
    }
    return rv;
}

static int options_check(struct run *r, struct err *err)
{
    struct core_config *c = &r->cfg.core;
    bool in_peers = c->n_peers == 0;

    if (!c->id || !*c->data_dir || !r->cfg.cert_file || !r->cfg.key_file || !r->cfg.ca_file ||
        !r->cfg.key_ring)
        return err_set(
            err, E_USAGE,
            "--id, --data, --cert, --key, --ca and --key-ring are needed; see hanse server --help");
    if (!r->cfg.listen)
        r->cfg.listen = "127.0.0.1:7443";
    if (!c->listen)
        c->listen = "127.0.0.1:7453";
    if (!*c->name)
        (void)snprintf(c->name, sizeof c->name, "m%llu", (unsigned long long)c->id);
    str_copy(c->address, sizeof c->address, r->peer_advertise ? r->peer_advertise : c->listen);
    str_copy(c->api_address, sizeof c->api_address, r->advertise ? r->advertise : r->cfg.listen);
    c->peers = r->peers;
    for (unsigned i = 0; i < c->n_peers; i++)
        in_peers |= r->peers[i].id == c->id;
    if (!in_peers)
        return err_set(err, E_USAGE, "--peer does not name this member; add --peer %llu=%s",
                       (unsigned long long)c->id, c->address);
    if (c->bootstrap && c->n_peers == 0) {
        r->peers[0].id = c->id;
        str_copy(r->peers[0].address, sizeof r->peers[0].address, c->address);
        c->n_peers = 1;
    }
    return 0;
}

static void closed(void *arg)
{
    struct run *r = arg;

    loop_stop(r->loop);
}
static void stop_asked(void *arg)
{
    struct run *r = arg;

    if (!r->stopping && r->server) {
        r->stopping = true;
        log_event(LOG_INFO, "member.stops", LOG_FIELDS({"member", log_u64(r->cfg.core.id)}));
        server_close(r->server, closed, r);
    }
}
static void listening(void *arg, int port)
{
    struct run *r = arg;

    log_event(LOG_INFO, "member.listens",
              LOG_FIELDS({"member", log_u64(r->cfg.core.id)},
                         {"address", log_str(r->cfg.core.api_address)}, {"port", log_i64(port)}));
}
static void fatal(void *arg, const struct err *why)
{
    (void)arg;
    (void)fprintf(stderr, "hanse server: %s\n", why->text);
    /* At once: a member that must not go on must not answer anything any more, nor wait for its
     * threads. */
    _Exit(err_info(why->code)->exit);
}

static int run(struct run *r, struct err *err)
{
    /* Stores of logs may hang: four of these are lent to them, and the log's disk needs one. */
    if (setenv("UV_THREADPOOL_SIZE", "8", 0) != 0)
        return err_set(err, E_INTERNAL, "the environment is full");
    r->loop = loop_uv_create(err);
    if (!r->loop)
        return E_INTERNAL;
    r->cfg.listening = listening;
    r->cfg.fatal = fatal;
    r->cfg.arg = r;
    int rv = server_create(r->loop, &r->cfg, &r->server, err);
    if (!rv)
        rv = loop_signal(r->loop, SIGTERM, stop_asked, r, err);
    if (!rv)
        rv = loop_signal(r->loop, SIGINT, stop_asked, r, err);
    if (!rv)
        loop_uv_run(r->loop);
    return rv;
}

int server_main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "skip-entry"))
        return skip_entry_main(argc - 1, argv + 1);
    if (argc > 1 && !strcmp(argv[1], "recover-quorum"))
        return quorum_main(argc - 1, argv + 1);
    struct run *r = mem_new(struct run);
    struct err err = {0};
    int rv = 0, opt;

    optind = 1;
    opterr = 0;
    while (!rv && (opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (opt == 'h') {
            (void)fputs(help, stdout);
            mem_free(r);
            return 0;
        }
        rv = opt == '?' ? err_set(&err, E_USAGE,
                                  "%s: unknown option or missing value; see hanse server --help",
                                  argv[optind - 1])
                        : option_take(r, opt, optarg, &err);
    }
    if (!rv && optind < argc)
        rv =
            err_set(&err, E_USAGE, "unexpected argument %s; see hanse server --help", argv[optind]);
    if (!rv)
        rv = options_check(r, &err);
    if (!rv) {
        log_set(r->verbose ? LOG_DEBUG : LOG_INFO, r->log_json);
        if (r->die_with_parent)
            (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        rv = run(r, &err);
    }
    if (rv)
        (void)fprintf(stderr, "hanse server: %s\n", err.text);
    (void)fflush(stderr);
    int status = rv ? err_info(rv)->exit : 0;
    if (r->loop && !rv)
        r->loop = loop_uv_destroy(r->loop);
    if (!r->loop)
        mem_free(r);
    return status;
}
