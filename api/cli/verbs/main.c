/* A command from its words to its exit status: finds the verb, reads its options, runs it, and
 * prints its error. Exit statuses come from api/base/err.def alone. */
#include "api/cli/cli_internal.h"

#include "api/base/log.h"

/* ---- main ---- */
static void error_print(FILE *out, const struct err *e)
{
    (void)fputs("error: ", out);
    for (const char *p = e->text; *p;
         p++) /* texts of servers bring no control codes to a terminal */
        (void)fputc((unsigned char)*p < 0x20 && *p != '\n' ? ' ' : *p, out);
    (void)fputc('\n', out);
}

static int verb_run(struct cli *c, int argc, char **argv, struct err *err)
{
    int rv = args_parse(argc - 1, argv + 1, c->verb->options, c->mem, &c->args, err);

    if (rv)
        return rv;
    if (arg_flag(&c->args, "help")) {
        verb_print_help(c->verb, c->out);
        return 0;
    }
    c->loop = loop_uv_create(err);
    if (!c->loop)
        return E_INTERNAL;
    rv = c->verb->run(c, err);
    c->lane = client_lane_destroy(c->lane);
    c->client = client_destroy(c->client);
    c->loop = loop_uv_destroy(c->loop);
    return rv;
}

/* Words that other tools have as commands, and what they are here. */
static const char *elsewhere(const char *word)
{
    static const char *const known[][2] = {
        {"top", "hanse status, hanse cost --by queue,class"},
        {"usage", "hanse cost"},
        {"quota", "hanse status, hanse describe queue NAME"},
        {"hint", "hanse explain WORKLOAD"},
        {"hints", "hanse explain WORKLOAD"},
        {"why", "hanse explain WORKLOAD"},
        {"list", "hanse get workloads"},
        {"ls", "hanse get workloads"},
        {"ps", "hanse get workloads"},
        {"squeue", "hanse get workloads -o wide"},
        {"sinfo", "hanse get nodes"},
        {"sbatch", "hanse submit -f SCRIPT"},
        {"create", "hanse apply -f FILE"},
        {"edit", "kubectl edit, or hanse apply -f FILE"},
        {"cancel", "hanse delete workload NAME"},
        {"scancel", "hanse delete workload NAME"},
        {"stop", "hanse delete workload NAME"},
        {"kill", "hanse delete workload NAME"},
        {"move", "hanse migrate WORKLOAD"},
        {"plan", "hanse diff -f DIR"},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(word, known[i][0]))
            return known[i][1];
    return NULL;
}

static int verb_unknown(const char *word, struct err *err)
{
    const char *names[64];
    size_t n = 0;

    if (*word == '-')
        return err_set(err, E_USAGE, "%s: options go behind the command: hanse COMMAND %s", word,
                       word);
    const struct kind *k;
    const char *same = elsewhere(word);
    if (same)
        return err_set(err, E_USAGE, "unknown command \"%s\"; what you look for: %s", word, same);
    if (!cli_kind(word, &k, NULL))
        return err_set(err, E_USAGE, "unknown command \"%s\"; what you look for: hanse get %s",
                       word, k->plural);
    for (unsigned i = 0; i < verb_count && n < 56; i++)
        if (*verb_table[i].group)
            names[n++] = verb_table[i].name;
    static const char *const programs[] = {"server",     "dev",     "agent",  "run",
                                           "checkpoint", "archive", "restore"};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        names[n++] = programs[i];
    const char *near = nearest_word(word, names, n);
    if (near)
        return err_set(err, E_USAGE, "unknown command \"%s\"; did you mean %s?", word, near);
    return err_set(err, E_USAGE, "unknown command \"%s\"; hanse help lists them", word);
}

/* What ends exec itself must not be taken for the end of its program, which has the statuses of
 * err.def as well: 255, as with ssh. */
#define EXEC_FAILED 255

static int failed_status(const struct cli *c, int code)
{
    return c->verb && c->verb->run == verb_exec ? EXEC_FAILED : err_info(code)->exit;
}

int cli_main(int argc, char **argv)
{
    AUTO_ARENA mem = arena_create(0);
    struct cli c = {.out = stdout, .err = stderr, .mem = mem};
    struct err e = {0};
    int rv;

    log_set(LOG_ERROR, false); /* a busy machine is no news to who asked for something else */
    if (argc < 1) {
        verbs_help(stderr);
        return err_info(E_USAGE)->exit;
    }
    const char *word = argv[0];
    if (!strcmp(word, "--help") || !strcmp(word, "-h"))
        word = "help";
    if (!strcmp(word, "--version"))
        word = "version";
    c.verb = verb_find(word);
    rv = c.verb ? verb_run(&c, argc, argv, &e) : verb_unknown(word, &e);
    if (rv < 0)
        error_print(stderr, &e);
    if (out_now(&c) && !rv) {
        (void)fputs("error: the output cannot be written\n", stderr);
        rv = E_IO;
    }
    return rv < 0 ? failed_status(&c, e.code ? e.code : rv) : c.exit;
}
