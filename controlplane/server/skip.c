/* `hanse server skip-entry`: an operator's act to step over an entry of the log that no member can
 * apply. It writes into a data directory and starts nothing; the member takes the act as it
 * starts. */
#include "controlplane/server/server.h"

#include "api/schema/schema.h"
#include "controlplane/raft/core.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char help[] =
    "usage: hanse server skip-entry --data DIR --index N --checksum C --reason TEXT --by NAME "
    "[--at TIME]\n"
    "\n"
    "Steps over an entry of the log that members cannot apply (alarm apply-stopped in hanse "
    "status\n"
    "says which). What the entry says is lost. First look whether a newer version of hanse is "
    "asked\n"
    "for: that applies it. Do the same on every member, with the same words, then start them "
    "again:\n"
    "members that did something else are found out and stop. The act stays in the state, as an\n"
    "Event in hanse-system.\n"
    "\n"
    "  --data DIR       data directory of the member\n"
    "  --index N        index of the entry\n"
    "  --checksum C     its checksum\n"
    "  --reason TEXT    why\n"
    "  --by NAME        who\n"
    "  --at TIME        when, RFC 3339 (default now); the same on all members\n";

enum { OPT_DATA = 256, OPT_INDEX, OPT_CHECKSUM, OPT_REASON, OPT_BY, OPT_AT };
static const struct option options[] = {{"data", 1, NULL, OPT_DATA},
                                        {"index", 1, NULL, OPT_INDEX},
                                        {"checksum", 1, NULL, OPT_CHECKSUM},
                                        {"reason", 1, NULL, OPT_REASON},
                                        {"by", 1, NULL, OPT_BY},
                                        {"at", 1, NULL, OPT_AT},
                                        {"help", 0, NULL, 'h'},
                                        {0}};

static int text_option(const char *flag, const char *arg, char *ret, size_t n, struct err *err)
{
    bool plain = true;

    for (const char *p = arg; *p; p++)
        plain = plain && (unsigned char)*p >= 0x20 && *p != 0x7f;
    if (!plain || !*arg || strlen(arg) >= n)
        return err_set(err, E_USAGE, "--%s: expected 1 to %zu bytes without control characters",
                       flag, n - 1);
    (void)snprintf(ret, n, "%s", arg);
    return 0;
}

static int option_take(int opt, const char *arg, const char **dir, struct entry_skip *a,
                       struct err *err)
{
    int64_t at;
    char *end;

    switch (opt) {
    case OPT_DATA:
        *dir = arg;
        return 0;
    case OPT_INDEX:
        a->index = strtoull(arg, &end, 10);
        return a->index > 0 && !*end && *arg != '-'
                   ? 0
                   : err_set(err, E_USAGE, "--index %.40s: expected a number, 1 or higher", arg);
    case OPT_CHECKSUM:
        return strlen(arg) == ENTRY_CHECKSUM_MAX - 1
                   ? text_option("checksum", arg, a->checksum, sizeof a->checksum, err)
                   : err_set(err, E_USAGE, "--checksum: expected %d hexadecimal digits",
                             ENTRY_CHECKSUM_MAX - 1);
    case OPT_REASON:
        return text_option("reason", arg, a->reason, sizeof a->reason, err);
    case OPT_BY:
        return text_option("by", arg, a->by, sizeof a->by, err);
    case OPT_AT:
        if (time_parse(arg, &at, err))
            return E_USAGE;
        return text_option("at", arg, a->at, sizeof a->at, err);
    default:
        return err_set(err, E_USAGE, "unknown option; see hanse server skip-entry --help");
    }
}

static int skip(const char *dir, struct entry_skip *a, struct err *err)
{
    struct loop *l;

    if (!*dir || !a->index || !*a->checksum || !*a->reason || !*a->by)
        return err_set(
            err, E_USAGE,
            "--data, --index, --checksum, --reason and --by are needed; see hanse server "
            "skip-entry --help");
    l = loop_uv_create(err);
    if (!l)
        return E_INTERNAL;
    if (!*a->at)
        time_print(loop_wall_ms(l) / 1000 * 1000, a->at);
    int r = core_skip_entry(l, dir, a, err);
    (void)loop_uv_destroy(l);
    return r;
}

int skip_entry_main(int argc, char **argv)
{
    struct entry_skip a = {0};
    const char *dir = "";
    struct err err = {0};
    int rv = 0, opt;

    optind = 1;
    opterr = 0;
    while (!rv && (opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (opt == 'h') {
            (void)fputs(help, stdout);
            return 0;
        }
        rv = option_take(opt, optarg, &dir, &a, &err);
    }
    if (!rv && optind < argc)
        rv = err_set(&err, E_USAGE, "unexpected argument %.100s", argv[optind]);
    if (!rv)
        rv = skip(dir, &a, &err);
    if (rv) {
        (void)fprintf(stderr, "hanse server skip-entry: %s\n", err.text);
        return err_info(rv)->exit;
    }
    (void)printf("Recorded: entry %llu is stepped over when this member starts again.\n"
                 "On every other member, exactly:\n"
                 "  hanse server skip-entry --data DIR --index %llu --checksum %s --by '%s' "
                 "--reason '%s' --at %s\n",
                 (unsigned long long)a.index, (unsigned long long)a.index, a.checksum, a.by,
                 a.reason, a.at);
    return 0;
}
