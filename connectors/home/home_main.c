/* `hanse run` of a runner without an agent: its options of home and of reports, and its life
 * between the hub and the shim. The program starts once a hub has taken the runner, and never when
 * none does. This file must never let the token reach the program: it is in no environment and on
 * no command line, and its file is removed once it is read. */
#include "connectors/home/home.h"

#include "api/base/log.h"
#include "api/base/net/proxy.h"
#include "api/base/net/tls.h"
#include "connectors/home/home_runner.h"
#include "connectors/shim/shim.h"
#include "connectors/signals.h"
#include "connectors/streams/streams.h"

#include <openssl/crypto.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINGER_MS 15000   /* for a hub that takes in the end, after it; for who takes the log */
#define LOGS_POLL_MS 20
#define PENDING_MAX 65536 /* on the session, before output waits: reports and beats go by it */
#define CA_MAX_BYTES (256u << 10)
#define DEVICES_MAX 65536 /* letters of HANSE_GPUS */
#define KNOWN_AFTER_MS 500 /* taken in, and proposed to the log */

struct life {
    struct home_args args;
    struct loop *loop;
    const struct runner_config *asked; /* done() of it is the last call */
    struct runner_config cfg;          /* ours, of the runner */
    struct runner *runner;
    struct home_caller *caller; /* NULL: there is no way home */
    struct home_output *output; /* NULL: the program has our own, or --log names one */
    struct streams *streams;    /* what the hub asks for beside the program */
    char dir[HOME_FOLDER_MAX];  /* of its log and its socket; "": none could be made */
    struct run_key key;         /* by its token, and so is its rank */
    int64_t rank;
    enum runner_step step; /* of the runner, as it told last */
    uint64_t end_by_ms, kept_by_ms; /* loop times: how long readers, and a store, are waited for */
    bool kept;                  /* all of its log is in the hub's store */
    struct tls_config *tls;
    char token[HOME_TOKEN_MAX], uid[64];
    char *addresses; /* with NULs between them */
    const char *address[HOME_ADDRESSES_MAX];
    struct timer waiting, linger;
    struct report_writer *writer; /* NULL: no report is asked for */
    bool over;
    /* Numbers of cuts: told last, taken in by a hub, and when that was. */
    int64_t cut_told, cut_heard;
    uint64_t cut_heard_ms;
    struct run_report report; /* the last */
};

/* ---- the end ---- */
static void finish(void *arg)
{
    struct life *f = arg;
    uint64_t now = loop_now_ms(f->loop);

    timer_stop(&f->waiting);
    timer_stop(&f->linger);
    bool written = report_writer_quiet(f->writer);
    bool keeps = f->caller && home_caller_keeps(f->caller) && !f->kept;
    bool quiet = home_output_quiet(f->output) && streams_quiet(f->streams) && written;
    if ((!quiet && now < f->end_by_ms) || (keeps && now < f->kept_by_ms)) {
        timer_start(&f->linger, LOGS_POLL_MS);
        return;
    }
    if (keeps)
        log_event(LOG_WARN, "logs.not_kept",
                  LOG_FIELDS({"why", log_str("no hub has kept all of it in time: what was printed "
                                             "last may be missing in its store")}));
    f->report.stuck |= !written;
    f->writer = report_writer_destroy(f->writer);
    f->streams = streams_destroy(f->streams);
    f->output = home_output_destroy(f->output);
    f->caller = home_caller_destroy(f->caller);
    if (f->dir[0] && file_remove(f->loop, f->dir, NULL) < 0)
        log_event(LOG_INFO, "run.folder_stays", LOG_FIELDS({"folder", log_str(f->dir)}));
    f->tls = tls_config_unref(f->tls);
    f->asked->done(&f->report, f->asked->arg);
}

static void life_end(struct life *f, const struct run_report *r, bool leaves)
{
    f->runner = NULL;
    f->over = true;
    f->step = RUN_STEP_ENDED;
    f->report = *r;
    /* A plain report may be a pipe, whose reader comes when it likes. */
    f->end_by_ms = f->caller || f->token[0] ? loop_now_ms(f->loop) + LINGER_MS : UINT64_MAX;
    f->kept_by_ms = loop_now_ms(f->loop) + KEPT_END_MS;
    home_output_over(f->output);
    streams_hang_up(f->streams);
    streams_look(f->streams);
    if (f->writer && leaves)
        report_writer_put(f->writer, r);
    if (f->caller)
        home_caller_tell(f->caller, r);
    timer_start(&f->linger, f->caller ? LINGER_MS : 0);
}

static void life_done(const struct run_report *r, void *arg)
{
    life_end(arg, r, true);
}

/* spent: another process may have begun with its token, and what that leaves behind counts. */
static void life_never(struct life *f, bool spent, const char *why)
{
    struct run_report r = {.step = RUN_STEP_ENDED, .exit_code = 126, .never_started = true};

    if (f->over)
        return;
    r.grant = 1;
    str_copy(r.reason, sizeof r.reason, end_text(END_START_FAILED));
    (void)snprintf(r.message, sizeof r.message, "%.250s", why);
    life_end(f, &r, !spent);
}

static void life_told(const struct run_report *r, void *arg)
{
    struct life *f = arg;

    f->step = r->step;
    if (r->step == RUN_STEP_ENDED) /* the end is told by life_done */
        return;
    if (f->writer)
        report_writer_put(f->writer, r);
    if (!f->caller)
        return;
    f->cut_told = r->cut_number;
    home_caller_tell(f->caller, r);
}

/* What was put beside the program goes with it, and nothing more comes. */
static void life_exited(void *arg)
{
    struct life *f = arg;

    f->step = RUN_STEP_ENDING;
    streams_hang_up(f->streams);
}

static bool life_owns(int64_t pid, void *arg)
{
    const struct life *f = arg;

    return streams_own(f->streams, pid);
}

static void life_stop(void *arg, int signo, uint64_t grace_ms)
{
    struct life *f = arg;

    if (f->runner)
        runner_stop(f->runner, signo, grace_ms);
    else
        life_never(f, false, "it was stopped before it started");
}

static void life_signal(void *arg, int signo)
{
    const struct life *f = arg;

    if (f->runner)
        runner_signal(f->runner, signo);
}

/* ---- what the hub says ---- */
/* Whoever started it knows best where it is, then the hub; what neither knows stays as the
 * environment has it, which is theirs as well. */
static int seat_take(struct life *f, const struct home_welcome *w, struct err *err)
{
    const char *node = f->args.node ? f->args.node : w ? w->node : "";
    const char *devices = f->args.devices;
    AUTO_BUF list;

    buf_init(&list, DEVICES_MAX);
    buf_str(&list, "");
    for (uint32_t i = 0; w && i < w->n_gpus; i++)
        buf_printf(&list, "%s%lld", i ? "," : "", (long long)w->gpus[i]);
    if (list.failed)
        return err_set(err, E_TOOLARGE, "it was given more devices than can be named");
    if (!devices && w && *w->node && !w->count)
        devices = list.p;
    if ((*node && setenv("HANSE_NODE", node, 1) != 0) ||
        (devices && setenv("HANSE_GPUS", devices, 1) != 0))
        return err_set(err, E_IO, "HANSE_NODE and HANSE_GPUS cannot be set");
    f->cfg.env = (const char *const *)environ;
    return 0;
}

static void on_welcome(void *arg, const struct home_welcome *w)
{
    struct life *f = arg;
    struct err err;

    timer_stop(&f->waiting);
    streams_session(f->streams, home_caller_stream(f->caller));
    if (f->runner || f->over)
        return;
    int rc = seat_take(f, w, &err);
    if (rc == 0)
        rc = runner_create(f->loop, &f->cfg, &f->runner, &err);
    if (rc < 0)
        life_never(f, false, err.text);
}

static void on_refused(void *arg, const struct home_refused *r)
{
    struct life *f = arg;

    if (r->over && f->runner)
        runner_stop(f->runner, SIGTERM, f->cfg.grace_ms);
    else if (r->over)
        life_never(f, r->spent, r->text);
}

static void on_renew(void *arg, const struct shim_renew *q)
{
    const struct life *f = arg;

    /* It counts from a beat that had come before it was granted: what was taken in well before that
     * beat is in the log of whoever grants it. */
    if (f->runner && f->cut_heard && q->from_ms > f->cut_heard_ms + KNOWN_AFTER_MS)
        runner_cut_known(f->runner, f->cut_heard);
    if (f->runner)
        runner_renew(f->runner, q);
}

static void on_stop(void *arg, const struct shim_stop *q)
{
    life_stop(arg, q->signo, q->grace_ms);
}

static void on_save(void *arg, const struct shim_save *q)
{
    const struct life *f = arg;
    struct shim_save own = *q;

    if (!own.signo)
        own.signo = f->args.save_signo;
    if (f->runner)
        runner_save(f->runner, &own);
}

static void on_go(void *arg)
{
    const struct life *f = arg;

    if (f->runner)
        runner_go(f->runner);
}

static void on_heard(void *arg)
{
    struct life *f = arg;

    if (f->cut_heard != f->cut_told) {
        f->cut_heard = f->cut_told;
        f->cut_heard_ms = loop_now_ms(f->loop);
    }
    if (f->over)
        timer_start(&f->linger, 0);
}

static void on_frame(void *arg, const struct frame *fr)
{
    const struct life *f = arg;

    streams_frame(f->streams, fr);
}

static void on_lost(void *arg)
{
    const struct life *f = arg;

    streams_session(f->streams, NULL);
}

static void wait_over(void *arg)
{
    struct life *f = arg;
    char why[400];

    (void)snprintf(why, sizeof why, "no hub has taken it in %llu s: %.200s",
                   (unsigned long long)f->args.wait_ms / 1000, home_caller_why(f->caller));
    life_never(f, false, why);
}

/* ---- what the hub asks for beside the program ---- */
/* The session is this runner's alone, and so is whatever comes on it. */
static int ours(const struct life *f, const struct wire_open *q, struct err *err)
{
    bool same = run_key_same(&q->key, &f->key) && q->rank == f->rank;

    return same ? 0 : err_set(err, E_NOTFOUND, "this is the runner of another run or rank");
}

static int stream_logs(void *arg, struct wire_open *q, char path[4096], struct err *err)
{
    const struct life *f = arg;

    if (!f->output)
        return err_set(err, E_NOTIMPL, "this runner keeps no log");
    str_copy(path, 4096, home_output_path(f->output));
    return ours(f, q, err);
}

static enum log_state stream_log_state(void *arg, const struct run_key *k)
{
    const struct life *f = arg;

    (void)k;
    return home_output_is_over(f->output) ? LOG_WHOLE : LOG_GROWS;
}

static void stream_kept(void *arg)
{
    struct life *f = arg;

    f->kept = home_output_is_over(f->output);
}

static int stream_place(void *arg, const struct wire_open *q, struct arena *m,
                        struct stream_place *ret, struct err *err)
{
    const struct life *f = arg;
    int rc = ours(f, q, err);

    if (rc < 0)
        return rc;
    if (!f->runner || f->step != RUN_STEP_RUNNING)
        return err_set(err, E_CONFLICT, "worker %lld does not run at the moment",
                       (long long)f->rank);
    *ret = (struct stream_place){.group = f->cfg.group,
                                 .will = f->cfg.held == RUN_NAMESPACE ? f->cfg.will : "",
                                 .marker = f->cfg.marker,
                                 .held = f->cfg.held,
                                 .env = runner_env(f->runner, m),
                                 .cwd = f->cfg.cwd};
    return 0;
}

/* Without a folder there is neither; without a socket in it there are logs alone. False: nothing
 * can be put beside the program. */
static bool streams_begin(struct life *f)
{
    static const struct streams_ops ops = {stream_logs, stream_log_state, stream_kept,
                                           stream_place};
    const struct streams_config cfg = {.loop = f->loop,
                                       .os = f->cfg.os,
                                       .at = "of one runner",
                                       .pending_max = PENDING_MAX,
                                       .ops = &ops,
                                       .arg = f};
    char path[HOME_FOLDER_MAX + 8];
    struct err err;

    f->streams = streams_create(&cfg);
    if (home_folder_make(f->args.installed, f->dir) != 0) {
        f->dir[0] = '\0';
        log_event(LOG_WARN, "run.no_folder",
                  LOG_FIELDS({"why", log_str("none can be made in TMPDIR: no logs, no exec")}));
        return false;
    }
    if (!f->cfg.log_path) {
        f->output = home_output_create(f->loop, f->dir);
        f->cfg.log_path = home_output_path(f->output);
    }
    (void)snprintf(path, sizeof path, "%s/attach", f->dir);
    if (streams_listen(f->streams, path, &err) == 0)
        return true;
    log_err(LOG_WARN, "run.no_exec", &err);
    return false;
}

/* ---- the beginning ---- */
static const struct home_caller_events home_events = {.welcome = on_welcome,
                                                      .refused = on_refused,
                                                      .renew = on_renew,
                                                      .stop = on_stop,
                                                      .save = on_save,
                                                      .go = on_go,
                                                      .heard = on_heard,
                                                      .frame = on_frame,
                                                      .lost = on_lost};

/* Removed where that can be done: a Secret of a pod is mounted read-only, and then its program must
 * not have that mount. */
static int token_take(struct life *f, struct home_token *ret, struct err *err)
{
    struct err kept;
    AUTO_BUF text;

    home_memory_keep();
    buf_init(&text, HOME_TOKEN_MAX);
    int rc = file_read(f->loop, f->args.token, HOME_TOKEN_MAX - 1, &text, err);
    if (rc < 0)
        return rc;
    buf_char(&text, '\0');
    text.p[strcspn(text.p, " \t\r\n")] = '\0';
    rc = home_token_read(text.p, ret, err);
    if (rc < 0)
        rc = err_set(err, E_SYNTAX, "%.200s holds no token of a runner", f->args.token);
    else
        str_copy(f->token, sizeof f->token, text.p);
    OPENSSL_cleanse(text.p, text.n);
    if (rc == 0 && file_remove(f->loop, f->args.token, &kept) < 0)
        log_err(LOG_INFO, "run.token_stays", &kept);
    return rc;
}

static int env_number(const char *name, int64_t value, struct err *err)
{
    char text[32];

    (void)snprintf(text, sizeof text, "%lld", (long long)value);
    return setenv(name, text, 1) == 0 ? 0 : err_set(err, E_IO, "%s cannot be set", name);
}

/* Who it is its token says: whose checkpoints it keeps, and in the names that its program reads. */
static int identity_take(struct life *f, const struct home_token *t, struct err *err)
{
    struct run_checkpoints *c = &f->cfg.checkpoints;

    str_copy(f->uid, sizeof f->uid, t->key.uid);
    f->key = t->key;
    f->rank = t->rank;
    c->workload = f->uid;
    c->epoch = t->key.epoch;
    c->rank = t->rank;
    c->world = t->ranks;
    c->told = f->args.home != NULL;
    c->wait_go = f->args.home && t->ranks > 1;
    if (setenv("HANSE_WORKLOAD_UID", f->uid, 1) != 0)
        return err_set(err, E_IO, "HANSE_WORKLOAD_UID cannot be set");
    int rc = env_number("HANSE_EPOCH", t->key.epoch, err);
    if (rc == 0)
        rc = env_number("HANSE_RANK", t->rank, err);
    if (rc == 0)
        rc = env_number("HANSE_WORLD_SIZE", t->ranks, err);
    if (rc == 0 && f->args.save_signo &&
        setenv("HANSE_SAVE_SIGNAL", signal_name(f->args.save_signo), 1) != 0)
        rc = err_set(err, E_IO, "HANSE_SAVE_SIGNAL cannot be set");
    if (rc == 0)
        rc = home_peers_env(t->rank, t->ranks, err);
    f->cfg.env = (const char *const *)environ;
    return rc;
}

/* In a pod nobody but this runner could take them away from its program. */
static int keys_remove(const struct life *f, struct err *err)
{
    static const char *const names[] = {"token", "ca", "proxy"};
    char path[HOME_FOLDER_MAX];

    for (size_t i = 0; f->args.installed && i < sizeof names / sizeof *names; i++) {
        (void)snprintf(path, sizeof path, "%s/" HOME_INSTALLED_KEY "/%s", f->args.installed,
                       names[i]);
        if (file_remove(f->loop, path, err) < 0)
            return err_prefix(err, "its program would be able to read what is for its runner");
    }
    return f->args.installed ? home_path_env(f->args.installed, err) : 0;
}

static int home_begin(struct life *f, int64_t made_ms, struct err *err)
{
    unsigned n = 0;
    AUTO_BUF ca;

    buf_init(&ca, CA_MAX_BYTES);
    f->addresses = mem_strdup(f->args.home);
    int rc = home_addresses_read(f->addresses, f->address, &n, err);
    if (rc == 0)
        rc = file_read(f->loop, f->args.ca, CA_MAX_BYTES - 1, &ca, err);
    if (rc == 0 && f->args.has_proxy && f->args.proxy_auth)
        rc = proxy_login_file(f->loop, f->args.proxy_auth, &f->args.proxy, err);
    if (rc == 0)
        rc = keys_remove(f, err);
    if (rc < 0)
        return rc;
    buf_char(&ca, '\0');
    const struct tls_config_spec spec = {.ca_pem = ca.p, .not_before_ms = made_ms};
    rc = tls_config_create(&spec, false, &f->tls, err);
    if (rc < 0)
        return rc;
    bool execs = streams_begin(f);
    const struct home_caller_config cfg = {.addresses = f->address,
                                           .n_addresses = n,
                                           .tls = f->tls,
                                           .proxy = f->args.has_proxy ? &f->args.proxy : NULL,
                                           .token = f->token,
                                           .logs = f->output != NULL,
                                           .execs = execs,
                                           .events = &home_events,
                                           .arg = f};
    f->caller = home_caller_create(f->loop, &cfg);
    timer_start(&f->waiting, f->args.wait_ms);
    return 0;
}

/* What tells of it comes first: what cannot tell never starts. */
static int life_begin(struct life *f, struct err *err)
{
    bool signs = f->args.report && report_place_signs(&f->args.place);
    struct home_token token = {0};
    int rc = 0;

    if (f->args.report && !signs)
        rc = report_writer_create(f->loop, &f->args.place, "", &f->writer, err);
    if (rc == 0 && f->args.token)
        rc = token_take(f, &token, err);
    if (rc == 0 && f->args.token)
        rc = identity_take(f, &token, err);
    if (rc == 0 && signs)
        rc = report_writer_create(f->loop, &f->args.place, f->token, &f->writer, err);
    if (rc < 0)
        return rc;
    if (f->args.home)
        return home_begin(f, token.made_ms, err);
    rc = keys_remove(f, err);
    if (rc == 0)
        rc = seat_take(f, NULL, err);
    return rc < 0 ? rc : runner_create(f->loop, &f->cfg, &f->runner, err);
}

static int life_create(void *arg, struct loop *l, const struct runner_config *cfg, struct err *err)
{
    struct life *f = arg;

    f->loop = l;
    f->asked = cfg;
    f->cfg = *cfg;
    f->cfg.done = life_done;
    f->cfg.told = life_told;
    f->cfg.exited = life_exited;
    f->cfg.own = life_owns;
    f->cfg.arg = f;
    f->cfg.borrows = f->args.home && !cfg->lease_ms;
    timer_init(&f->waiting, l, wait_over, f);
    timer_init(&f->linger, l, finish, f);
    int rc = life_begin(f, err);
    if (rc == 0 || !f->writer)
        return rc;
    life_never(f, false, err->text); /* nobody else tells of it */
    return 0;
}

int run_main(int argc, char **argv)
{
    struct life f = {.loop = NULL};
    const struct run_host host = {life_create, life_stop, life_signal, &f};
    struct err err;

    if (argc > 1 && strcmp(argv[1], "--stage") == 0)
        return report_stage_main(argc - 2, argv + 2);
    int rc = home_args_take(&argc, argv, &f.args, &err);

    if (rc < 0) {
        (void)fprintf(stderr, "hanse run: %s\nSee hanse run --help.\n", err.text);
        return 2;
    }
    bool ours = f.args.home || f.args.report || f.args.node || f.args.devices;
    rc = shim_main(argc, argv, ours ? &host : NULL);
    mem_free(f.addresses);
    return rc;
}
