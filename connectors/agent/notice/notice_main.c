/* `hanse agent notice`: the command line. */
#include "connectors/agent/notice/notice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_MS 15000 /* an agent that is being restarted is waited for */
#define AGAIN_MS 200

static const char usage[] =
    "usage: hanse agent notice --state FOLDER --kind KIND [--in SPAN] [--node NAME]\n"
    "       hanse agent notice --state FOLDER --clear [--node NAME]\n"
    "\n"
    "Tells the agent of this machine that it will go away, or that it will not. From then on\n"
    "nothing new is placed on it, and what runs there is saved and moves elsewhere before the\n"
    "deadline; where nothing has room it is saved, stopped and queued. Announce a machine when\n"
    "work shall leave it, not days ahead. The agent keeps a notice over restarts, until it is\n"
    "withdrawn, or the machine has rebooted after the deadline. The same again changes nothing.\n"
    "\n"
    "  --state FOLDER   the agent's (default: $HANSE_AGENT_STATE)\n"
    "  --kind KIND      spot: the cloud takes it back; maintenance; timeLimit: its allocation\n"
    "                   ends; rebalance: the cloud may take it soon (work moves only where\n"
    "                   something else has room)\n"
    "  --in SPAN        how long from now: 2m, 90s. Left out: with rebalance alone\n"
    "  --node NAME      that node of the inventory; default: all of this agent's\n"
    "  --clear          withdraws it\n"
    "  --help           this text\n"
    "\n"
    "Exit status: 0 once the agent has it on disk.\n";

struct args {
    const char *state, *kind, *in, *node;
    bool clear, help;
};
struct asking {
    struct loop *loop;
    const char *address;
    struct notice_ask q;
    struct stream *stream;
    struct frame_reader reader;
    struct timer again;
    uint64_t until_ms;
    bool answered;
    int rc;
    struct err err;
};

static int args_parse(int argc, char **argv, struct args *a, struct err *err)
{
    const struct {
        const char *name;
        const char **value;
    } options[] = {
        {"--state", &a->state}, {"--kind", &a->kind}, {"--in", &a->in}, {"--node", &a->node}};
    const size_t n = sizeof options / sizeof *options;

    a->state = getenv("HANSE_AGENT_STATE");
    for (int i = 1; i < argc; i++) {
        size_t k = 0;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            a->help = true;
        if (strcmp(argv[i], "--clear") == 0)
            a->clear = true;
        if (a->help || strcmp(argv[i], "--clear") == 0)
            continue;
        while (k < n && strcmp(argv[i], options[k].name) != 0)
            k++;
        if (k == n)
            return err_set(err, E_USAGE, "unknown option \"%s\"", argv[i]);
        if (++i == argc)
            return err_set(err, E_USAGE, "%s needs a value", argv[i - 1]);
        *options[k].value = argv[i];
    }
    if (a->help)
        return 0;
    if (!a->state || !*a->state)
        return err_set(err, E_USAGE, "--state is missing");
    if (a->clear ? a->kind || a->in : !a->kind)
        return err_set(err, E_USAGE, "expected --kind KIND, or --clear without it");
    return 0;
}

static int ask_make(const struct args *a, struct notice_ask *q, struct wire_notice *n,
                    struct err *err)
{
    int64_t span = 0;

    *q = (struct notice_ask){.clear = a->clear, .node = a->node ? a->node : ""};
    if (a->clear)
        return 0;
    *n = (struct wire_notice){.node = q->node};
    for (int k = NOTICE_SPOT; k <= NOTICE_TIME_LIMIT; k++)
        if (strcmp(a->kind, notice_kind_text((enum notice_kind)k)) == 0)
            n->kind = (enum notice_kind)k;
    if (!n->kind)
        return err_set(err, E_USAGE,
                       "--kind %.60s: expected spot, rebalance, maintenance or timeLimit", a->kind);
    if (!a->in && n->kind != NOTICE_REBALANCE)
        return err_set(err, E_USAGE, "--kind %s says when: --in SPAN", a->kind);
    if (a->in && duration_parse(a->in, &span, err) < 0)
        return err_set(err, E_USAGE, "--in %.60s: expected a span such as 2m or 90s", a->in);
    n->ends = a->in != NULL;
    n->in_ms = (uint64_t)(span > 0 ? span : 0);
    q->notice = n;
    return 0;
}

/* ---- the question ---- */
static void dial(void *arg);

static void asking_over(struct asking *k, int rc)
{
    k->rc = rc;
    loop_stop(k->loop);
}

static int answer_frame(const struct frame *f, void *arg)
{
    struct asking *k = arg;
    AUTO_ARENA a = arena_create(0);
    struct wire_result *r = NULL;
    int rc = wire_read(wire_result, f->body, a, &r, &k->err);

    if (rc == 0 && r->outcome != OUT_DONE)
        rc = err_set(&k->err, r->code < 0 ? r->code : E_UNKNOWN, "%s", r->text);
    k->answered = true;
    asking_over(k, rc);
    return 0;
}

static void asking_open(struct stream *s, void *arg)
{
    struct asking *k = arg;

    wire_tell(s, NOTICE_FRAME_ASK, 1, notice_ask, &k->q);
}

static void asking_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct asking *k = arg;
    struct err err;

    if (frame_feed(&k->reader, p, n, answer_frame, k, &err) < 0)
        stream_abort(s, err.text);
}

static void later(struct asking *k, const struct err *why)
{
    k->stream = NULL;
    frame_reader_fini(&k->reader);
    if (k->answered)
        return;
    if (loop_now_ms(k->loop) < k->until_ms) {
        timer_start(&k->again, AGAIN_MS);
        return;
    }
    asking_over(k, err_set(&k->err, E_UNAVAIL,
                           "no agent answers at %s (%s): is it the --state of a running agent, and "
                           "are you its user?",
                           k->address, why->code ? why->text : "it closed the connection"));
}

static void asking_closed(struct stream *s, const struct err *why, void *arg)
{
    (void)s;
    later(arg, why);
}

static const struct stream_events asking_events = {
    .open = asking_open, .data = asking_data, .closed = asking_closed};

static void dial(void *arg)
{
    struct asking *k = arg;
    struct err why;

    frame_reader_init(&k->reader);
    if (stream_connect(k->loop, k->address, NULL, NULL, PATIENCE_MS, &asking_events, k, &k->stream,
                       &why) < 0)
        later(k, &why);
}

static int ask(const struct args *a, struct err *err)
{
    static const struct stream_events nobody = {0};
    struct wire_notice n;
    struct asking k = {0};
    char address[512];

    int rc = ask_make(a, &k.q, &n, err);
    if (rc == 0 && !(k.loop = loop_uv_create(err)))
        rc = err->code;
    if (rc < 0)
        return rc;
    (void)snprintf(address, sizeof address, "unix:%s/s/notice", a->state);
    k.address = address;
    k.until_ms = loop_now_ms(k.loop) + PATIENCE_MS;
    timer_init(&k.again, k.loop, dial, &k);
    timer_start(&k.again, 0);
    loop_uv_run(k.loop);
    timer_stop(&k.again);
    if (k.stream) {
        stream_set(k.stream, &nobody, NULL);
        stream_abort(k.stream, "done");
        frame_reader_fini(&k.reader);
    }
    loop_uv_destroy(k.loop);
    if (k.rc < 0)
        *err = k.err;
    return k.rc;
}

int notice_main(int argc, char **argv)
{
    struct args args = {0};
    struct err err;
    int rc = args_parse(argc, argv, &args, &err);

    if (rc == 0 && args.help)
        return fputs(usage, stdout) < 0;
    if (rc == 0)
        rc = ask(&args, &err);
    if (rc == 0)
        return 0;
    (void)fprintf(stderr, "hanse agent notice: %s\n", err.text);
    if (rc == E_USAGE)
        (void)fprintf(stderr, "See hanse agent notice --help.\n");
    return err_info(rc)->exit;
}
