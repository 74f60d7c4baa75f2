/* `hanse run`: the command line of the shim and of its two internal forms. */
#include "api/base/log.h"
#include "connectors/connector.h"
#include "connectors/shim/shim.h"
#include "connectors/shim/tenant_linux.h"
#include "connectors/shim/tree_linux.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GRACE_MAX_MS (366ull * 24 * 3600 * 1000)

struct args {
    const char *dir, *socket, *log, *cwd, *group, *attach, *will, *tty;
    const char *processes;                         /* NULL: the group if there is one */
    const char *bad_env;                           /* is set, and no number */
    const char *user, *state, *save, *view, *gpus; /* of a tenant */
    uint64_t memory, pids, cpu;                    /* its limits; 0 = none */
    struct tenant_spec tenant;
    const char *ck, *workload, *resume, *digest, *proofs, *scratch, *resume_scratch, *roots;
    uint64_t lease_ms, from_ms, grace_ms, parent, id, port, epoch, rank, world, keep;
    uint64_t start_from, start_by;
    bool enter, help, wait_go, reshard, shared, proved;
    enum run_processes held;
    const char *const *cmd;
    const char *const *store_env; /* NULL: the agent has given none */
};
struct shim {
    struct loop *loop;
    struct runner *runner;
    struct run_report report;
    uint64_t grace_ms;
    const struct run_host *host; /* NULL: the runner is ours */
};

static const char usage[] =
    "usage: hanse run [OPTION...] -- COMMAND [ARGUMENT...]\n"
    "\n"
    "Runs COMMAND and takes its whole process tree down with it: what it started in the\n"
    "background ends when it ends. SIGTERM and SIGINT are handed on; after the grace\n"
    "everything is killed. SIGUSR1, SIGUSR2, SIGQUIT, SIGALRM and SIGWINCH are handed on, and\n"
    "end nothing by themselves. The exit status is COMMAND's, 128 + signal when a signal ended "
    "it,\n"
    "127 when there is no such program.\n"
    "\n"
    "  --grace MS       from SIGTERM to SIGKILL (default 30000)\n"
    "  --lease MS       stop by itself MS after the start unless renewed (default 0: never)\n"
    "  --start-by MS    does not start COMMAND later than this (UTC, milliseconds since 1970):\n"
    "                   it ends as StartedTooLate, with exit status 126\n"
    "  --start-from MS  nor while the clock of this machine says that it is earlier than this:\n"
    "                   a clock that is so wrong (ClockWrong) cannot keep --start-by either\n"
    "  --cwd FOLDER     run COMMAND there\n"
    "  --log FILE       append its output to FILE instead of passing it through\n"
    "  --processes HOW  what holds COMMAND's processes together: pidNamespace (COMMAND gets a "
    "/proc\n"
    "                   of its own), cgroup (version 2), or searched (found by descent, session\n"
    "                   and a marker in the environment: finds what it can, and is no proof);\n"
    "                   default: cgroup where one can be made, else searched\n"
    "  --proved         does not start COMMAND where only searched is possible\n"
    "  --help           this text\n"
    "\n"
    "Checkpoints (COMMAND keeps the program contract; what it saves is verified and sealed\n"
    "while it runs and once more after its end):\n"
    "  --checkpoint-dir BASE  absolute folder of this job in a store, COMMAND gets\n"
    "                         HANSE_CHECKPOINT_DIR=BASE/eEPOCH/RANK; or s3://BUCKET/PREFIX:\n"
    "                         what is sealed is uploaded (AWS_ACCESS_KEY_ID, AWS_REGION,\n"
    "                         AWS_ENDPOINT_URL_S3, ... as for other tools)\n"
    "  --checkpoint-scratch FOLDER  of this machine and this job alone, stands in for s3://;\n"
    "                         default hanse-UID/... in $TMPDIR or /var/tmp\n"
    "  --epoch N              counts the starts of this job; default HANSE_EPOCH, or one more\n"
    "                         than BASE has seen. Ranks of one start need the same: give it\n"
    "  --rank N, --world N    default HANSE_RANK and HANSE_WORLD_SIZE, or 0 and 1\n"
    "  --workload UID         default HANSE_WORKLOAD_UID, or local\n"
    "  --checkpoint-keep N    newest cuts that stay; default 3\n"
    "  --resume CUT           a cut-N.json: verified first, and COMMAND gets HANSE_RESUME_DIR. "
    "When\n"
    "                         it does not hold, COMMAND is not started: exit status 126\n"
    "  --resume-digest D      sha256:... that the cut must have\n"
    "  --reshard              COMMAND can resume from what another number of ranks saved: its\n"
    "                         HANSE_RESUME_DIR has a folder for each of them, 0, 1, ...\n"
    "  --shared               all ranks save in one folder, and one of them commits: they get the\n"
    "                         same HANSE_CHECKPOINT_DIR, BASE/eEPOCH/0, and HANSE_RESUME_DIR\n"
    "\n"
    "Without an agent (a pod, a script of another scheduler, a rented machine):\n"
    "  --home HOST:PORT,...   COMMAND starts once a member of the hub has taken this runner; it\n"
    "                         gets its lease from there, and is stopped and reported there;\n"
    "                         hanse logs, exec and port-forward go through it\n"
    "  --home-ca FILE         PEM, the only CA that is trusted; needs no clock that is right\n"
    "  --token-file FILE      what the hub's order brought; removed once it is read\n"
    "  --home-proxy URL       its members are reached through that HTTP proxy (CONNECT):\n"
    "                         http://[USER:PASSWORD@]HOST[:PORT]; or `environment`: as\n"
    "                         HTTPS_PROXY and NO_PROXY say. TLS is with the member itself\n"
    "  --home-proxy-auth FILE USER:PASSWORD for it; COMMAND must not be able to read it\n"
    "  --home-wait MS         for a hub, before COMMAND is given up (default 600000)\n"
    "  --save-signal NAME     by which the hub has COMMAND save and go on, such as SIGUSR1\n"
    "  --report WHERE         where the end is told: FILE, as JSON; or as a line that the token\n"
    "                         signs: termination-message[:FILE] (/dev/termination-log),\n"
    "                         file:FILE, or slurm-comment (by scontrol)\n"
    "  --node NAME            where COMMAND is (HANSE_NODE), and --devices 0,1 (HANSE_GPUS), in\n"
    "                         place of what the hub says\n"
    "  --installed FOLDER     of hanse-run install: brings --token-file, --home-ca and\n"
    "                         --home-proxy-auth, and room for the runner's own files\n"
    "HANSE_HOME, HANSE_HOME_CA, HANSE_TOKEN_FILE, HANSE_HOME_WAIT, HANSE_HOME_PROXY,\n"
    "HANSE_HOME_PROXY_AUTH and HANSE_REPORT_FILE say the same; COMMAND does not see them.\n"
    "\n"
    "Used by hanse agent:\n"
    "  --dir FOLDER     where end.json is written once every process is gone\n"
    "  --socket PATH    where it takes renewals and stops; needs --dir\n"
    "  --lease-from MS  boot-time clock from which the lease counts\n"
    "  --resume-proofs FOLDER  what the agent has verified already\n"
    "  --resume-scratch FOLDER  where the agent has fetched it to\n"
    "  --store-root A:B         folders below which BASE must truly lie; default: anywhere\n"
    "  --wait-go        starts COMMAND when the agent says that all ranks can\n";

static bool number(const char *s, uint64_t *ret)
{
    char *end;

    if (!s || *s < '0' || *s > '9')
        return false;
    errno = 0;
    *ret = strtoull(s, &end, 10);
    return *end == '\0' && errno == 0;
}

static const char *env_text(const char *name, const char *otherwise)
{
    const char *v = getenv(name);

    return v && *v ? v : otherwise;
}

/* What is set and no number is an error, told once the arguments are read: another rank or epoch
 * than the one that was meant would be worse than none. */
static uint64_t env_number(const char *name, uint64_t otherwise, const char **ret_bad)
{
    const char *text = getenv(name);
    uint64_t v = otherwise;

    if (text && *text && !number(text, &v))
        *ret_bad = name;
    return v;
}

static int user_parse(struct args *a)
{
    char *end = NULL;

    if (!a->user)
        return 0;
    unsigned long uid = strtoul(a->user, &end, 10);
    unsigned long gid = *end == ':' ? strtoul(end + 1, &end, 10) : 0;
    if (*end || !uid || !gid || uid > INT32_MAX || gid > INT32_MAX)
        return E_USAGE;
    if (!a->attach && (!a->dir || *a->state != '/'))
        return E_USAGE;
    a->tenant = (struct tenant_spec){.uid = (uint32_t)uid,
                                     .gid = (uint32_t)gid,
                                     .state = a->state,
                                     .dir = a->dir,
                                     .save = a->save,
                                     .resume = a->view};
    return 0;
}

static int args_check(struct args *a, struct err *err)
{
    if (a->bad_env && !a->enter && !a->attach)
        return err_set(err, E_USAGE, "%s=%.64s in the environment: expected a whole number",
                       a->bad_env, getenv(a->bad_env));
    if (a->grace_ms > GRACE_MAX_MS || a->lease_ms > GRACE_MAX_MS)
        return err_set(err, E_USAGE, "--grace and --lease are milliseconds, at most %llu (a year)",
                       (unsigned long long)GRACE_MAX_MS);
    if (a->start_by > WIRE_NUMBER_MAX || a->start_from > WIRE_NUMBER_MAX)
        return err_set(err, E_USAGE, "--start-by and --start-from are UTC, in ms since 1970");
    if (a->port > UINT16_MAX || (a->port && !a->attach))
        return err_set(err, E_USAGE, "--port: used by runners, with --attach");
    if ((!a->cmd || !a->cmd[0]) && !a->port)
        return err_set(err, E_USAGE, "no command: hanse run [OPTION...] -- COMMAND");
    if (a->processes && !run_processes_parse(a->processes, &a->held))
        return err_set(err, E_USAGE, "--processes %s: expected cgroup, pidNamespace or searched",
                       a->processes);
    if (user_parse(a) < 0)
        return err_set(err, E_USAGE, "--user %s: expected UID:GID, with --state and --dir",
                       a->user);
    if (!a->dir != !a->socket && !a->enter)
        return err_set(err, E_USAGE, "--dir and --socket belong together");
    if (*a->resume && !*a->ck)
        return err_set(err, E_USAGE, "--resume needs --checkpoint-dir");
    if (*a->ck && *a->ck != '/' && !checkpoint_store_is_remote(a->ck))
        return err_set(err, E_USAGE,
                       "--checkpoint-dir %s: give an absolute path, or s3://BUCKET/PREFIX", a->ck);
    if ((*a->scratch && *a->scratch != '/') || (*a->resume_scratch && *a->resume_scratch != '/'))
        return err_set(err, E_USAGE, "--checkpoint-scratch: give an absolute path");
    if (a->shared && !a->dir && a->world > 1 && checkpoint_store_is_remote(a->ck))
        return err_set(err, E_USAGE,
                       "--shared %s: ranks on several machines share no folder there; give a "
                       "folder that all of them have, as --checkpoint-dir",
                       a->ck);
    if (*a->ck && a->world > 1 && a->epoch == 0)
        return err_set(err, E_USAGE, "--world %llu: give all ranks the same --epoch",
                       (unsigned long long)a->world);
    if (a->world < 1 || a->world > CHECKPOINT_RANKS_MAX || a->rank >= a->world ||
        a->epoch > (uint64_t)RUN_KEY_NUMBER_MAX || a->keep > 1000)
        return err_set(err, E_USAGE,
                       "--rank must be below --world (at most %d), --epoch at most 2^53, "
                       "--checkpoint-keep at most 1000",
                       CHECKPOINT_RANKS_MAX);
    return 0;
}

struct run_option {
    const char *name;
    const char **text;
    uint64_t *value;
    bool *flag;
};

static int option_value(const struct args *a, const struct run_option *o, const char *value,
                        struct err *err)
{
    if (o->text)
        *o->text = value;
    else if (!number(value, o->value))
        return err_set(err, E_USAGE, "%s %s: expected a whole number", o->name, value);
    else if (o->value == &a->epoch && !a->epoch)
        return err_set(err, E_USAGE,
                       "--epoch 0: epochs count from 1; leave it out for the next one");
    return 0;
}

static int args_parse(int argc, char **argv, struct args *a, struct err *err)
{
    const struct run_option options[] = {{"--dir", &a->dir, NULL, NULL},
                                         {"--socket", &a->socket, NULL, NULL},
                                         {"--log", &a->log, NULL, NULL},
                                         {"--cwd", &a->cwd, NULL, NULL},
                                         {"--group", &a->group, NULL, NULL},
                                         {"--attach", &a->attach, NULL, NULL},
                                         {"--tty", &a->tty, NULL, NULL},
                                         {"--port", NULL, &a->port, NULL},
                                         {"--will", &a->will, NULL, NULL},
                                         {"--user", &a->user, NULL, NULL},
                                         {"--state", &a->state, NULL, NULL},
                                         {"--save", &a->save, NULL, NULL},
                                         {"--view", &a->view, NULL, NULL},
                                         {"--gpus", &a->gpus, NULL, NULL},
                                         {"--memory", NULL, &a->memory, NULL},
                                         {"--pids", NULL, &a->pids, NULL},
                                         {"--cpu", NULL, &a->cpu, NULL},
                                         {"--processes", &a->processes, NULL, NULL},
                                         {"--proved", NULL, NULL, &a->proved},
                                         {"--lease", NULL, &a->lease_ms, NULL},
                                         {"--lease-from", NULL, &a->from_ms, NULL},
                                         {"--grace", NULL, &a->grace_ms, NULL},
                                         {"--start-by", NULL, &a->start_by, NULL},
                                         {"--start-from", NULL, &a->start_from, NULL},
                                         {"--parent", NULL, &a->parent, NULL},
                                         {"--id", NULL, &a->id, NULL},
                                         {"--enter", NULL, NULL, &a->enter},
                                         {"--checkpoint-dir", &a->ck, NULL, NULL},
                                         {"--checkpoint-scratch", &a->scratch, NULL, NULL},
                                         {"--store-root", &a->roots, NULL, NULL},
                                         {"--resume-scratch", &a->resume_scratch, NULL, NULL},
                                         {"--workload", &a->workload, NULL, NULL},
                                         {"--epoch", NULL, &a->epoch, NULL},
                                         {"--rank", NULL, &a->rank, NULL},
                                         {"--world", NULL, &a->world, NULL},
                                         {"--checkpoint-keep", NULL, &a->keep, NULL},
                                         {"--resume", &a->resume, NULL, NULL},
                                         {"--resume-digest", &a->digest, NULL, NULL},
                                         {"--resume-proofs", &a->proofs, NULL, NULL},
                                         {"--wait-go", NULL, NULL, &a->wait_go},
                                         {"--reshard", NULL, NULL, &a->reshard},
                                         {"--shared", NULL, NULL, &a->shared},
                                         {"--help", NULL, NULL, &a->help},
                                         {"-h", NULL, NULL, &a->help}};
    const size_t n_options = sizeof options / sizeof *options;

    for (int i = 1; i < argc; i++) {
        size_t k = 0;
        if (strcmp(argv[i], "--") == 0) {
            a->cmd = (const char *const *)(argv + i + 1);
            break;
        }
        while (k < n_options && strcmp(argv[i], options[k].name) != 0)
            k++;
        if (k == n_options)
            return err_set(err, E_USAGE, "unknown option \"%s\"; the command comes after --",
                           argv[i]);
        if (options[k].flag) {
            *options[k].flag = true;
            continue;
        }
        if (++i == argc)
            return err_set(err, E_USAGE, "%s needs a value", argv[i - 1]);
        int rc = option_value(a, &options[k], argv[i], err);
        if (rc < 0)
            return rc;
    }
    return a->help ? 0 : args_check(a, err);
}

static void shim_done(const struct run_report *r, void *arg)
{
    struct shim *s = arg;

    s->report = *r;
    loop_stop(s->loop);
}

static void shim_stop(const struct shim *s, int signo)
{
    if (s->host)
        s->host->stop(s->host->arg, signo, s->grace_ms);
    else
        runner_stop(s->runner, signo, s->grace_ms);
}

static void shim_term(void *arg)
{
    shim_stop(arg, SIGTERM);
}

static void shim_int(void *arg)
{
    shim_stop(arg, SIGINT);
}

struct passing { /* one of them */
    struct shim *shim;
    int signo;
};

static void shim_pass(void *arg)
{
    const struct passing *p = arg;

    if (p->shim->host)
        p->shim->host->signal(p->shim->host->arg, p->signo);
    else
        runner_signal(p->shim->runner, p->signo);
}

/* They are called by the running loop only: the runner is there by then. */
static int shim_signals(struct shim *s, struct passing passing[RUN_SIGNALS], struct err *err)
{
    int rc = loop_signal(s->loop, SIGTERM, shim_term, s, err);

    if (rc == 0)
        rc = loop_signal(s->loop, SIGHUP, shim_term, s, err);
    if (rc == 0)
        rc = loop_signal(s->loop, SIGINT, shim_int, s, err);
    for (size_t i = 0; rc == 0 && i < RUN_SIGNALS; i++) {
        passing[i] = (struct passing){s, run_signals[i]};
        rc = loop_signal(s->loop, run_signals[i], shim_pass, &passing[i], err);
    }
    return rc;
}

/* A run that never came to be has ended, too: the agent reads that like any other end. */
static int shim_failed(struct loop *l, const struct args *a, const struct err *why)
{
    struct run_report r = {.step = RUN_STEP_ENDED, .exit_code = 126};
    char path[4096];
    struct err err;

    (void)fprintf(stderr, "hanse run: %s\n", why->text);
    if (!a->dir || why->code == E_BUSY || why->code == E_EXISTS) /* not ours to tell */
        return err_info(why->code)->exit;
    r.lease_lost = why->code == E_STALE;
    str_copy(r.reason, sizeof r.reason, end_text(r.lease_lost ? END_LEASE_LOST : END_START_FAILED));
    (void)snprintf(r.message, sizeof r.message, "%.250s", why->text);
    (void)snprintf(path, sizeof path, "%s/" RUN_END_FILE, a->dir);
    if (run_report_write(l, path, &r, &err) < 0)
        (void)fprintf(stderr, "hanse run: %s\n", err.text);
    return 126;
}

/* What a tenant's neighbours rely on is had, or it is not started; else it is a courtesy. */
static int hold_limits(struct args *a, const char *group, struct err *err)
{
    const struct run_limits l = {.memory_bytes = (int64_t)a->memory,
                                 .pids = (int64_t)a->pids,
                                 .cpu_milli = (int64_t)a->cpu,
                                 .devices = a->tenant.uid != 0,
                                 .gpus = a->gpus};
    unsigned held = limits_set(group, &l);
    bool no_memory = a->memory && !(held & 1u << LIMIT_MEMORY);

    if (a->tenant.uid && (no_memory || (a->pids && !(held & 1u << LIMIT_PIDS))))
        return err_set(err, E_LIMIT, "the limits of memory and processes cannot be set any more");
    if (a->tenant.uid && a->held != RUN_NAMESPACE)
        return err_set(err, E_LIMIT, "no PID namespace keeps it from its neighbours");
    if (no_memory)
        a->memory = 0;
    return 0;
}

/* What was asked for and cannot be had is searched for instead, or refused. */
static int hold(struct args *a, const char *name, char group[RUN_GROUP_MAX], struct err *err)
{
    group[0] = '\0';
    if (!a->processes || a->held != RUN_SEARCHED)
        tree_group_create(NULL, name, group);
    if (!a->processes || a->held == RUN_CGROUP)
        a->held = *group && group_holds(group) ? RUN_CGROUP : RUN_SEARCHED;
    if (a->dir && a->processes && strcmp(a->processes, run_processes_text(a->held)) != 0)
        return err_set(err, E_LIMIT, "no control group can be made any more"); /* agent's could */
    if (a->proved && a->held == RUN_SEARCHED)
        return err_set(err, E_INVALID,
                       "--proved: no control group can be made here; with rights to make one, or "
                       "with --processes pidNamespace, it can start");
    return hold_limits(a, group, err);
}

static int shim_run(const struct args *a, const char *marker, const char *group, const char *will,
                    const struct run_host *host)
{
    struct err err;
    struct shim s = {.grace_ms = a->grace_ms, .host = host};
    struct passing passing[RUN_SIGNALS];
    struct runner_os *os = runner_os_linux();
    int status;

    s.loop = loop_uv_create(&err);
    if (!s.loop) {
        (void)fprintf(stderr, "hanse run: %s\n", err.text);
        return 1;
    }
    struct runner_config cfg = {.os = os,
                                .dir = a->dir,
                                .socket_path = a->socket,
                                .marker = marker,
                                .held = a->held,
                                .group = group,
                                .argv = a->cmd,
                                .env = (const char *const *)environ,
                                .cwd = a->cwd,
                                .log_path = a->log,
                                .lease_ms = a->lease_ms,
                                .lease_from_ms = a->from_ms,
                                .start_from_ms = (int64_t)a->start_from,
                                .start_by_ms = (int64_t)a->start_by,
                                .grace_ms = a->grace_ms,
                                .guard_pid = getppid(),
                                .will = will,
                                .tenant = a->tenant,
                                .memory_bytes = (int64_t)a->memory,
                                .checkpoints = {.base = a->ck,
                                                .scratch = a->scratch,
                                                .resume_scratch = a->resume_scratch,
                                                .store_env = a->store_env,
                                                .roots = a->roots,
                                                .workload = a->workload,
                                                .epoch = (int64_t)a->epoch,
                                                .rank = (int64_t)a->rank,
                                                .world = (int64_t)a->world,
                                                .keep = (int64_t)a->keep,
                                                .resume_path = a->resume,
                                                .resume_digest = a->digest,
                                                .proofs_dir = a->proofs,
                                                .own_cuts = !a->dir,
                                                .wait_go = a->wait_go,
                                                .reshard = a->reshard,
                                                .shared = a->shared},
                                .done = shim_done,
                                .arg = &s};
    if (shim_signals(&s, passing, &err) < 0)
        log_err(LOG_WARN, "run.signals", &err);
    if ((host ? host->create(host->arg, s.loop, &cfg, &err)
              : runner_create(s.loop, &cfg, &s.runner, &err)) < 0) {
        status = shim_failed(s.loop, a, &err);
        tree_group_remove(os, group);
    } else {
        loop_uv_run(s.loop);
        status = s.report.term_signal ? 128 + s.report.term_signal : s.report.exit_code;
        if (end_says_saved(status, 0, s.report.reason)) /* a script knows this one */
            status = RUN_EXIT_SAVED;
        if (*s.report.reason && !a->dir)
            (void)fprintf(stderr, "hanse run: %s: %s\n", s.report.reason, s.report.message);
        if (s.report.stuck) /* a thread waits for a store that hangs: nobody waits for it */
            _exit(status);
        /* With the loop as it is: its end would give the signals their default again, and one that
         * comes now must not change the exit status. */
        exit(status);
    }
    loop_uv_destroy(s.loop);
    return status;
}

/* Until the shim tells its guard itself; nothing runs by then. */
static uint64_t lease_until(const struct args *a)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_BOOTTIME, &t);
    uint64_t now = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
    return a->lease_ms ? (a->from_ms && a->from_ms < now ? a->from_ms : now) + a->lease_ms : 0;
}

/* A control group says for certain whose it is; a marker is what is left where there is none. */
static int attach(const struct args *a)
{
    const struct enter_spec s = {.group = a->group, .will = a->will, .tenant = a->tenant};
    bool held = a->held != RUN_SEARCHED && *a->group;
    const struct runner_tree t = {.group = held ? a->group : "",
                                  .marker = held ? "" : env_text(RUN_MARKER_ENV, "")};

    return a->port ? attach_port(a->attach, a->id, &t, (unsigned)a->port)
                   : attach_exec(a->attach, a->id, &s, a->tty, a->cmd);
}

int shim_main(int argc, char **argv, const struct run_host *host)
{
    struct args a = {.grace_ms = 30000,
                     .group = "",
                     .will = "",
                     .ck = "",
                     .workload = env_text("HANSE_WORKLOAD_UID", "local"),
                     .resume = "",
                     .digest = "",
                     .proofs = "",
                     .scratch = "",
                     .resume_scratch = "",
                     .state = "",
                     .save = "",
                     .view = "",
                     .gpus = "",
                     .keep = 3};
    char group[RUN_GROUP_MAX], name[RUN_MARKER_MAX], will[RUN_WILL_MAX];
    struct err err;

    a.epoch = env_number("HANSE_EPOCH", 0, &a.bad_env);
    a.rank = env_number("HANSE_RANK", 0, &a.bad_env);
    a.world = env_number("HANSE_WORLD_SIZE", 1, &a.bad_env);
    if (args_parse(argc, argv, &a, &err) < 0) {
        (void)fprintf(stderr, "hanse run: %s\nSee hanse run --help.\n", err.text);
        return 2;
    }
    if (a.help)
        return fputs(usage, stdout) < 0;
    if (a.enter)
        return enter_exec(&(struct enter_spec){.group = a.group,
                                               .will = a.will,
                                               .parent = (int64_t)a.parent,
                                               .own_namespace = a.held == RUN_NAMESPACE,
                                               .tenant = a.tenant},
                          a.cmd);
    if (a.attach)
        return attach(&a);
    AUTO_ARENA kept = arena_create(0); /* as long as the process */
    a.store_env = run_store_env(kept);
    if (checkpoint_store_is_remote(a.ck) && !*a.scratch &&
        run_scratch_default(a.ck, kept, &a.scratch, &err) < 0) {
        (void)fprintf(stderr, "hanse run: %s\n", err.text);
        return 1;
    }
    const char *marker = getenv(RUN_MARKER_ENV);
    if (!marker || !a.dir) { /* not the agent's: a marker of its own, or it would end what an outer
                                run started */
        (void)snprintf(name, sizeof name, "local.%lld.%lld/0", (long long)getpid(),
                       (long long)getppid());
        if (setenv(RUN_MARKER_ENV, name, 1) != 0)
            return 1;
        marker = getenv(RUN_MARKER_ENV);
    }
    str_copy(name, sizeof name, marker);
    for (char *p = name; *p; p++)
        *p = *p == '/' ? '.' : *p;
    if (hold(&a, name, group, &err) < 0) {
        struct loop *l = loop_uv_create(&err); /* to write why */
        int status = l ? shim_failed(l, &a, &err) : 126;
        if (l)
            loop_uv_destroy(l);
        return status;
    }
    const struct guard_spec guarded = {.dir = a.dir,
                                       .marker = marker,
                                       .group = group,
                                       .held = a.held,
                                       .lease_until_ms = lease_until(&a)};
    if (guard_split(&guarded, will, &err) < 0) {
        (void)fprintf(stderr, "hanse run: %s\n", err.text);
        return 1;
    }
    return shim_run(&a, marker, group, will, host);
}
