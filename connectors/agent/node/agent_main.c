/* `hanse agent`: the command line. */
#include "api/base/log.h"
#include "api/base/net/proxy.h"
#include "api/base/net/tls.h"
#include "connectors/agent/agent.h"
#include "connectors/agent/notice/notice.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char usage[] =
    "usage: hanse agent --server HOST:PORT[,HOST:PORT...] --target NAME --state FOLDER\n"
    "                   --cert FILE --key FILE --ca FILE [--inventory FILE]\n"
    "       hanse agent notice --state FOLDER (--kind KIND [--in SPAN] | --clear) [--node NAME]\n"
    "\n"
    "Runs Hanse's work on this machine. It dials out to the servers with mutual TLS; nothing\n"
    "dials in. It may be restarted or killed at any moment: programs go on as long as their\n"
    "leases hold, and the next agent on the same --state finds them.\n"
    "\n"
    "  --server LIST     members of the Hanse cluster; tried in turn\n"
    "  --target NAME     the Target that this agent stands for\n"
    "  --state FOLDER    its memory: absolute path, at most 80 characters, one agent each\n"
    "  --cert, --key     its certificate (CN agent:NAME) and key, PEM\n"
    "  --ca FILE         the CA of the servers, PEM\n"
    "  --inventory FILE  nodes and GPUs (deploy/examples/README.md); default: this machine.\n"
    "                    Read again on SIGHUP\n"
    "  --processes HOW   what holds the processes of a run together, at most: pidNamespace\n"
    "                    (default; with a control group beside it, for limits), cgroup or\n"
    "                    searched. What the machine permits is found by trying, and told as\n"
    "                    status.isolation.processes of its nodes\n"
    "  --users LIST      keeps namespaces apart, as root: the programs of each run as a user of\n"
    "                    its own, see neither each other nor --state, have a /tmp of their own,\n"
    "                    no way to more rights, and only the GPUs that they were given. LIST:\n"
    "                    FIRST-LAST, numbers that nobody else on this machine uses, and\n"
    "                    NAMESPACE=UID[:GID] for those that need a certain one (stores that\n"
    "                    machines share), with commas. Default: all run as the agent\n"
    "  --store-root LIST folders, with ':' between them, below which workloads may keep\n"
    "                    checkpoints (spec.checkpoint.store); what is named elsewhere is\n"
    "                    refused. Default: STATE/stores:/srv/hanse\n"
    "  --pids N          processes and threads of a worker, at most (default 16384)\n"
    "  --proxy URL       the servers are reached through that HTTP proxy (CONNECT):\n"
    "                    http://[USER:PASSWORD@]HOST[:PORT]; or `environment`: as HTTPS_PROXY and\n"
    "                    NO_PROXY say. Its programs and stores go by their own settings\n"
    "  --proxy-auth FILE USER:PASSWORD for it\n"
    "  --help            this text\n";

struct agent_args {
    const char *server, *target, *state, *cert, *key, *ca, *inventory, *processes, *users;
    const char *pids, *roots, *proxy, *proxy_auth;
    bool help;
};
struct agent_program {
    struct loop *loop;
    struct agent *agent;
};

static char *servers_join(const char *a, const char *b) /* lives as long as the process */
{
    size_t n = strlen(a) + strlen(b) + 2;
    char *both = mem_alloc(n);

    (void)snprintf(both, n, "%s,%s", a, b);
    return both;
}

static int args_parse(int argc, char **argv, struct agent_args *a, struct err *err)
{
    const struct {
        const char *name;
        const char **value;
        bool required;
    } options[] = {{"--server", &a->server, true},
                   {"--target", &a->target, true},
                   {"--state", &a->state, true},
                   {"--cert", &a->cert, true},
                   {"--key", &a->key, true},
                   {"--ca", &a->ca, true},
                   {"--inventory", &a->inventory, false},
                   {"--processes", &a->processes, false},
                   {"--users", &a->users, false},
                   {"--store-root", &a->roots, false},
                   {"--pids", &a->pids, false},
                   {"--proxy", &a->proxy, false},
                   {"--proxy-auth", &a->proxy_auth, false}};
    const size_t n = sizeof options / sizeof *options;

    for (int i = 1; i < argc; i++) {
        size_t k = 0;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            a->help = true;
            return 0;
        }
        while (k < n && strcmp(argv[i], options[k].name) != 0)
            k++;
        if (k == n)
            return err_set(err, E_USAGE, "unknown option \"%s\"", argv[i]);
        if (++i == argc)
            return err_set(err, E_USAGE, "%s needs a value", argv[i - 1]);
        if (*options[k].value && strcmp(options[k].name, "--server") == 0)
            argv[i] = servers_join(*options[k].value, argv[i]); /* given again: one more */
        *options[k].value = argv[i];
    }
    for (size_t k = 0; k < n; k++)
        if (options[k].required && !*options[k].value)
            return err_set(err, E_USAGE, "%s is missing", options[k].name);
    return 0;
}

static int servers_split(char *list, struct agent_config *cfg, struct err *err)
{
    char *save = NULL;

    for (char *s = strtok_r(list, ",", &save); s; s = strtok_r(NULL, ",", &save)) {
        if (cfg->n_servers == AGENT_SERVERS_MAX)
            return err_set(err, E_USAGE, "--server: more than %d addresses", AGENT_SERVERS_MAX);
        if (strncmp(s, "https://", 8) == 0) /* as a kubeconfig spells it */
            s += 8;
        s[strcspn(s, "/")] = 0;
        if (!strchr(s, ':'))
            return err_set(err, E_USAGE, "--server %s: expected HOST:PORT", s);
        cfg->servers[cfg->n_servers++] = s;
    }
    return cfg->n_servers ? 0 : err_set(err, E_USAGE, "--server is empty");
}

static void on_hangup(void *arg)
{
    struct agent_program *p = arg;
    struct err err;

    if (agent_reload(p->agent, &err) < 0)
        log_err(LOG_ERROR, "agent.inventory_refused", &err);
    else
        log_event(LOG_INFO, "agent.inventory_read", LOG_FIELDS({"by", log_str("SIGHUP")}));
}

static void on_stop(void *arg)
{
    struct agent_program *p = arg;

    loop_stop(p->loop);
}

/* Who can read it can be this agent. */
static int key_check(const char *file, struct err *err)
{
    struct stat st;

    if (stat(file, &st) == 0 && !(st.st_mode & 077) && st.st_uid == geteuid())
        return 0;
    return err_set(err, E_USAGE, "--key %.300s: with --users it has to be root's alone: chmod 600",
                   file);
}

static int pids_parse(const char *text, int64_t *ret, struct err *err)
{
    char *end;
    long long v = strtoll(text, &end, 10);

    if (*end || end == text || v < 16 || v > 4194304)
        return err_set(err, E_USAGE, "--pids %s: expected a number from 16 to 4194304", text);
    *ret = v;
    return 0;
}

/* 1: there is one. */
static int proxy_take(struct loop *l, const struct agent_args *a, struct proxy *ret,
                      struct err *err)
{
    union { /* the command line is this process's own */
        const char *c;
        char *m;
    } text = {a->proxy};

    if (!a->proxy)
        return a->proxy_auth ? err_set(err, E_USAGE, "--proxy-auth belongs to --proxy") : 0;
    int rc = proxy_option(text.m, ret, err);
    if (rc > 0 && a->proxy_auth && proxy_login_file(l, a->proxy_auth, ret, err) < 0)
        rc = err->code;
    return rc;
}

static int agent_run(struct agent_args *args, struct err *err)
{
    struct agent_program p = {0};
    struct proxy proxy;
    struct agent_config cfg = {.os = runner_os_linux(),
                               .target = args->target,
                               .inventory_file = args->inventory,
                               .state_dir = args->state};
    struct tls_config_spec tls = {
        .cert_file = args->cert, .key_file = args->key, .ca_file = args->ca};
    char *list = mem_strdup(args->server);
    int rc = servers_split(list, &cfg, err);

    runner_os_keep_files();
    cfg.most = RUN_NAMESPACE;
    if (rc == 0 && args->processes && !run_processes_parse(args->processes, &cfg.most))
        rc = err_set(err, E_USAGE, "--processes %s: expected pidNamespace, cgroup or searched",
                     args->processes);

    cfg.users = args->users;
    cfg.store_roots = args->roots;
    if (rc == 0 && args->users)
        rc = key_check(args->key, err);
    if (rc == 0 && args->pids)
        rc = pids_parse(args->pids, &cfg.pids, err);

    /* Checkpoint stores may hang; store_jobs.c lends them five of these. */
    if (setenv("UV_THREADPOOL_SIZE", "8", 0) != 0)
        rc = err_set(err, E_INTERNAL, "the environment is full");
    if (rc == 0 && !(p.loop = loop_uv_create(err)))
        rc = err->code;
    if (rc == 0)
        rc = proxy_take(p.loop, args, &proxy, err);
    if (rc > 0) {
        cfg.proxy = &proxy;
        rc = 0;
    }
    if (rc == 0)
        rc = tls_config_create(&tls, false, &cfg.tls, err);
    if (rc == 0)
        rc = agent_create(p.loop, &cfg, &p.agent, err);
    if (rc == 0)
        rc = loop_signal(p.loop, SIGHUP, on_hangup, &p, err);
    if (rc == 0)
        rc = loop_signal(p.loop, SIGTERM, on_stop, &p, err);
    if (rc == 0)
        rc = loop_signal(p.loop, SIGINT, on_stop, &p, err);
    if (rc == 0)
        loop_uv_run(p.loop);
    (void)agent_destroy(p.agent);
    (void)tls_config_unref(cfg.tls);
    if (p.loop)
        loop_uv_destroy(p.loop);
    mem_free(list);
    return rc;
}

int agent_main(int argc, char **argv)
{
    struct agent_args args = {0};
    struct err err;

    if (argc > 1 && strcmp(argv[1], "notice") == 0)
        return notice_main(argc - 1, argv + 1);
    if (args_parse(argc, argv, &args, &err) < 0) {
        (void)fprintf(stderr, "hanse agent: %s\nSee hanse agent --help.\n", err.text);
        return 2;
    }
    if (args.help)
        return fputs(usage, stdout) < 0;
    if (agent_run(&args, &err) < 0) {
        (void)fprintf(stderr, "hanse agent: %s\n", err.text);
        return err_info(err.code)->exit;
    }
    return 0;
}
