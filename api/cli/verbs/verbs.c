/* The verbs: one table, from which help, completion and the check of options are made. */
#include "api/cli/cli_internal.h"

#define OUTPUT(formats)                                                                            \
    {                                                                                              \
        "output", 'o', "FORMAT", formats                                                           \
    }
#define FILENAME                                                                                   \
    {                                                                                              \
        "filename", 'f', "FILE", "file, folder (with all below) or - for standard input"           \
    }
#define END                                                                                        \
    {                                                                                              \
        0                                                                                          \
    }

static const struct option get_options[] = {
    OUTPUT("table, wide, json, yaml, name or jsonpath=TEMPLATE"),
    {"all-namespaces", 'A', NULL, "of every namespace"},
    {"selector", 'l', "LABELS", "label selector, a=b,c!=d"},
    {"field-selector", 0, "FIELDS", "field selector, status.phase=Running"},
    {"watch", 'w', NULL, "go on with the changes"},
    {"no-headers", 0, NULL, "without the heading"},
    END};
static const struct option watch_options[] = {
    OUTPUT("table, json, yaml, name or jsonpath=TEMPLATE"),
    {"all-namespaces", 'A', NULL, "of every namespace"},
    {"selector", 'l', "LABELS", "label selector"},
    {"field-selector", 0, "FIELDS", "field selector"},
    {"since", 0, "VERSION", "resourceVersion to begin after"},
    END};
static const struct option delete_options[] = {
    FILENAME,
    {"cascade", 0, "HOW",
     "what it owns goes after it (background), before it (foreground), or "
     "stays (orphan)"},
    {"ignore-not-found", 0, NULL, "what is gone is no error"},
    {"leave-machines", 0, NULL,
     "of a target out of reach: give up its machines, which may cost until their time to live"},
    {"leave-behind", 0, NULL,
     "of a target: give up what Hanse keeps there for itself and cannot take away"},
    {"wait", 0, NULL, "until it is gone: what is held stays until then"},
    END};
static const struct option apply_options[] = {
    FILENAME,
    {"prune", 0, NULL, "delete what the set no longer names"},
    {"revision", 0, "COMMIT", "git commit, kept on objects and decisions"},
    {"set", 0, "NAME", "name of the set (default: default)"},
    {"dry-run", 0, NULL, "only say what would change"},
    OUTPUT("json or yaml"),
    END};
static const struct option diff_options[] = {FILENAME,
                                             {"prune", 0, NULL, "show what would be deleted, too"},
                                             {"revision", 0, "COMMIT", "git commit"},
                                             {"set", 0, "NAME", "name of the set"},
                                             END};
static const struct option submit_options[] = {
    {"filename", 'f', "FILE", "Workload, sbatch script, Job, JobSet, TrainJob, RayJob …"},
    {"name", 0, "NAME", "its name (default: made from the program's)"},
    {"gpus", 0, "N", "GPUs per worker"},
    {"class", 0, "CLASS", "GpuClass; may be repeated: any of them"},
    {"workers", 0, "N", "workers that start together"},
    {"array", 0, "COUNT[%N]", "COUNT alike, N at once, with HANSE_ARRAY_INDEX from 0"},
    {"cpu", 0, "CPU", "per worker"},
    {"memory", 0, "BYTES", "per worker, such as 64Gi"},
    {"queue", 0, "NAME", "Queue"},
    {"priority", 0, "NAME", "PriorityClass"},
    {"topology", 0, "LEVEL",
     "all workers within one node, nvlinkDomain, leaf, rack, block, zone or region"},
    {"type", 0, "TYPE", "training, inference, interactive or batch"},
    {"image", 0, "IMAGE", "container image; targets that start none are not used"},
    {"experiment", 0, "NAME", "for cost reports"},
    {"deadline", 0, "TIME", "must have ended by then"},
    {"label", 'l', "KEY=VALUE", "label; may be repeated"},
    {"checkpoint-store", 0, "DIR", "where it saves: an absolute directory or s3://BUCKET/PREFIX"},
    {"checkpoint-interval", 0, "TIME", "how often it saves, such as 10m; auto: as advised"},
    {"checkpoint-layout", 0, "LAYOUT", "ranks: a folder for each worker; shared: one for all"},
    {"grace", 0, "TIME", "time to save in, once it is asked to stop"},
    {"keep", 0, "N", "checkpoints kept"},
    {"required", 0, NULL, "a stop without a checkpoint is a failure"},
    {"save-signal", 0, "SIGNAL", "its program saves and goes on when it gets it, such as SIGUSR1"},
    {"reshard", 0, NULL, "its program can resume with another number of workers than saved"},
    {"partition", 0, "MODE", "target out of reach: wait, replaceAfter=TIME or stopAfter=TIME"},
    {"dry-run", 0, NULL, "print the Workload, submit nothing"},
    {"wait", 0, NULL, "until it has ended; exit 1 when it failed"},
    {"follow", 0, NULL, "print its logs until it has ended; exit 1 when it failed"},
    END};
static const struct option migrate_options[] = {
    {"to", 0, "TARGET", "there and nowhere else (default: the best place)"},
    {"cancel", 0, "MIGRATION", "give a move up, as long as that can be done"},
    {"wait", 0, NULL, "until it is over; exit 0 only when it succeeded"},
    {"wait-timeout", 0, "TIME", "at most this long (default: 1h); the move goes on"},
    OUTPUT("json, yaml or name"),
    END};
static const struct option save_options[] = {
    {"no-wait", 0, NULL, "only ask; hanse describe workload tells what came of it"},
    {"wait-timeout", 0, "TIME", "at most this long (default: 10m); the save goes on"},
    OUTPUT("json"),
    END};
static const struct option explain_options[] = {
    OUTPUT("json or yaml"), {"fields", 0, NULL, "the word is a kind: list its fields"}, END};
static const struct option drain_options[] = {
    {"wait", 0, NULL, "until nothing is left on it"},
    {"wait-timeout", 0, "TIME", "at most this long (default: 1h)"},
    END};
static const struct option logs_options[] = {{"rank", 0, "N", "worker (default: 0)"},
                                             {"follow", 'f', NULL,
                                              "go with the work to its end, wherever it moves; "
                                              "exit 1 when it failed"},
                                             {"tail", 0, "N", "only the last lines"},
                                             {"since", 0, "TIME", "only of that long, such as 5m"},
                                             {"since-time", 0, "WHEN",
                                              "only since then, such as 2026-11-21T03:33:22Z"},
                                             {"timestamps", 0, NULL, "when each line came"},
                                             {"epoch", 0, "N", "of that life of it"},
                                             {"previous", 'p', NULL, "of the life before"},
                                             END};
static const struct option exec_options[] = {
    {"rank", 0, "N", "worker (default: 0)"},
    {"stdin", 'i', NULL, "pass standard input on"},
    {"tty", 't', NULL, "give it a terminal; with -i this one, whose keys go there as they are"},
    END};
static const struct option attach_options[] = {
    {"rank", 0, "N", "worker (default: 0)"},
    {"stdin", 'i', NULL, "refused: its program has no input; exec -it has"},
    {"tty", 't', NULL, "refused, likewise"},
    END};
static const struct option forward_options[] = {{"rank", 0, "N", "worker (default: 0)"}, END};
static const struct option output_options[] = {OUTPUT("json or yaml"), END};
static const struct option members_options[] = {
    OUTPUT("json or yaml"), {"yes", 0, NULL, "remove: it is meant"}, END};
static const struct option token_options[] = {
    {"user", 0, "NAME", "create: whom the token stands for"},
    {"group", 0, "NAME", "create: a group of his; may be repeated"},
    {"service-account", 0, "NAME", "create: or a ServiceAccount of the namespace"},
    {"audience", 0, "NAME", "create: who may take it (default: hanse, this API); may be repeated"},
    {"ttl", 0, "TIME", "create: how long it is valid (default: 1h)"},
    {"no-headers", 0, NULL, "list: without the heading"},
    OUTPUT("create: json; list: table, wide, json, yaml, name"),
    END};
static const struct option fence_options[] = {{"yes", 0, NULL, "it is known to have stopped"}, END};
static const struct option orphans_options[] = {OUTPUT("table, wide, json or yaml"),
                                                {"no-headers", 0, NULL, "without the heading"},
                                                {"yes", 0, NULL, "end, adopt: it is meant"},
                                                END};
static const struct option recover_options[] = {
    {"from-targets", 0, NULL, "take over what targets carry, then settle"},
    {"dead", 0, "TARGET", "this Target is known to be dead, and all on it; may be repeated"},
    OUTPUT("json or yaml"),
    END};
static const struct option adopt_options[] = {
    {"shadow", 0, NULL, "only say what Hanse would have done with it; nothing is changed"},
    {"limit", 0, "N", "rows at most (default: 500)"},
    OUTPUT("table, wide, json or yaml"),
    END};
static const struct option backup_options[] = {
    {"output", 'o', "FILE", "where it goes; - for standard output"},
    {"json", 0, NULL, "what it is, as JSON"},
    {"data", 0, "DIR", "of a member that does not run, instead of a running cluster"},
    END};
static const struct option version_options[] = {
    {"client", 0, NULL, "ask no server"}, OUTPUT("json"), END};
static const struct option cost_options[] = {
    {"by", 0, "LIST",
     "rows: queue, project, workload, cause, class, target, user, experiment, capacity, day"},
    {"since", 0, "TIME", "the last whole days, such as 7d"},
    {"from", 0, "DAY", "first day (UTC), 2026-11-01"},
    {"to", 0, "DAY", "the day after the last one (default: up to now)"},
    {"where", 0, "KEY=VALUE", "only these, queue=vision; may be repeated"},
    {"limit", 0, "N", "rows at most (default: 1000)"},
    OUTPUT("table, json, yaml or csv"),
    END};
static const struct option none[] = {END};
static const struct option bench_options[] = {{"rate", 0, "N", "writes a second (default: 500)"},
                                              {"duration", 0, "TIME", "how long (default: 10s)"},
                                              {"connections", 0, "N", "connections (default: 16)"},
                                              {"acks", 0, "FILE", "names that were acknowledged"},
                                              END};

#define ALL "Work"
#define SETS "Objects and policies"
#define FLEET "Cluster and targets"
#define OTHER "Other"
const struct verb verb_table[] = {
    {"submit", ALL, "[-f FILE | OPTION... -- COMMAND ARGUMENT...]",
     "start work: a command, a script or a manifest",
     "hanse submit --gpus 2 --class h100-sxm-80gb --workers 4 --topology rack -- python train.py\n"
     "hanse submit -f train.sbatch --follow --checkpoint-interval 10m --grace 90s",
     submit_options, verb_submit, "file"},
    {"explain", ALL, "WORKLOAD | KIND[.FIELD]", "why it runs where it runs, or why not yet",
     "hanse explain resnet-a -n vision-dev\nhanse explain workload.spec.gang\nhanse explain queue",
     explain_options, verb_explain, "workload"},
    {"migrate", ALL, "WORKLOAD [--to TARGET] | --cancel MIGRATION",
     "move work: it saves, stops, and goes on elsewhere from there",
     "hanse migrate resnet-a -n vision-dev --to par-spoke --wait\n"
     "hanse migrate --cancel resnet-a-move-x7k2p -n vision-dev",
     migrate_options, verb_migrate, "workload"},
    {"save", ALL, "WORKLOAD...", "have work save a checkpoint now, and go on",
     "hanse save resnet-a -n vision-dev\nhanse save resnet-a resnet-b --wait-timeout 2m -o json",
     save_options, verb_save, "workload"},
    {"logs", ALL, "WORKLOAD", "what its programs print",
     "hanse logs resnet-a -f --rank 2\nhanse logs resnet-a --since 5m --timestamps",
     logs_options, verb_logs, "workload"},
    {"attach", ALL, "WORKLOAD",
     "what its programs print from now on, until it has ended; exit 1 when it failed",
     "hanse attach resnet-a --rank 2", attach_options, verb_attach, "workload"},
    {"exec", ALL, "WORKLOAD -- COMMAND ARGUMENT...",
     "run a program beside it; its exit status is passed on; 255: exec itself failed",
     "hanse exec resnet-a -- nvidia-smi\nhanse exec -it resnet-a --rank 2 -- bash", exec_options,
     verb_exec, "workload"},
    {"port-forward", ALL, "WORKLOAD[/RANK] [LOCAL:]REMOTE...",
     "ports of this machine that lead to those of its program",
     "hanse port-forward resnet-a 6006\nhanse port-forward resnet-a/2 8080:80 :9090",
     forward_options, verb_port_forward, "workload"},
    {"apply", SETS, "-f FILE|DIR|-", "write documents, all or nothing",
     "hanse apply -f policies/ --prune --revision $(git rev-parse HEAD)", apply_options, verb_apply,
     "file"},
    {"diff", SETS, "-f FILE|DIR|-", "what apply would change; exit 1 when anything would",
     "hanse diff -f policies/ --prune", diff_options, verb_diff, "file"},
    {"get", SETS, "KIND[,KIND...] [NAME...] | KIND/NAME...", "list or show objects",
     "hanse get workloads -A -o wide\nhanse get targets,nodes\nhanse get targets -o "
     "jsonpath='{.items[*].metadata.name}'",
     get_options, verb_get, "kind"},
    {"describe", SETS, "KIND NAME...", "an object as text, with its events",
     "hanse describe target fra-hub", none, verb_describe, "kind"},
    {"watch", SETS, "KIND", "changes as they happen", "hanse watch workloads -A", watch_options,
     verb_watch, "kind"},
    {"delete", SETS, "KIND NAME... | KIND/NAME... | -f FILE", "delete objects",
     "hanse delete workload resnet-a -n vision-dev\n"
     "hanse delete workload/sweep queue/old --cascade foreground",
     delete_options, verb_delete, "kind"},
    {"status", FLEET, "", "members, targets and queues at a glance", "hanse status -o json",
     output_options, verb_status, ""},
    {"cost", FLEET, "[--by LIST] [--since TIME]",
     "what was used, by whom, at what cost, and what was lost",
     "hanse cost --since 7d --by queue,project,workload,cause\n"
     "hanse cost -n vision-dev --from 2026-11-01 --to 2026-12-01 -o csv",
     cost_options, verb_cost, ""},
    {"drain", FLEET, "TARGET...", "move work away and place nothing new",
     "hanse drain fra-hub --wait", drain_options, verb_drain, "target"},
    {"cordon", FLEET, "TARGET...", "place nothing new", "hanse cordon fra-hub", none, verb_cordon,
     "target"},
    {"uncordon", FLEET, "TARGET...", "place work again", "hanse uncordon fra-hub", none,
     verb_uncordon, "target"},
    {"members", FLEET, "[list | add ID HOST:PORT | promote ID | remove ID | transfer ID]",
     "members of the cluster", "hanse members\nhanse members transfer 2", members_options,
     verb_members, ""},
    {"fence", FLEET, "WORKLOAD --yes", "record that a run is known to have stopped",
     "hanse fence resnet-a --yes", fence_options, verb_fence, "workload"},
    {"orphans", FLEET, "[list | end TARGET KEY --yes | adopt TARGET KEY --yes]",
     "runs on targets that the state cannot answer for; nothing ends them but you",
     "hanse get orphans\nhanse orphans end fra-hub "
     "0b6ff7a6-1d9c-4a57-a3a4-0f8a4ad0c7a1.3.1 --yes",
     orphans_options, verb_orphans, "target"},
    {"recover", FLEET, "--from-targets [--dead TARGET]...",
     "after the hub was lost: workloads are made again from what targets carry; what runs goes on",
     "hanse recover --from-targets\nhanse recover --from-targets --dead par-spoke", recover_options,
     verb_recover, ""},
    {"adopt", FLEET, "TARGET --shadow [-n NAMESPACE]",
     "what others run on a target, and what Hanse would have done with it",
     "hanse adopt fra-k8s --shadow\nhanse adopt fra-k8s --shadow -n vision -o wide", adopt_options,
     verb_adopt, "target"},
    {"backup", FLEET, "-o FILE [--data DIR]",
     "the whole state in one file, for hanse restore; keep the CA and the key ring besides",
     "hanse backup -o /backup/hanse-$(date +%F).hsb\n"
     "hanse backup --data /var/lib/hanse -o hanse.hsb\nhanse restore --help",
     backup_options, verb_backup, ""},
    {"token", FLEET,
     "create --user NAME | create --service-account NAME | list | revoke NAME-OR-TOKEN",
     "bearer tokens: made, listed, and taken back at once",
     "hanse token create --user ci --group vision --ttl 12h\n"
     "hanse token create --service-account bot -n team-a\n"
     "hanse token list\nhanse token revoke token-0b6ff7a61d9c4a57",
     token_options, verb_token, ""},
    {"bench", OTHER, "write | verify",
     "write at a steady rate, then prove that nothing acknowledged is missing",
     "hanse bench write --rate 500 --duration 10s --acks acks.txt\nhanse bench verify --acks "
     "acks.txt",
     bench_options, verb_bench, ""},
    {"version", OTHER, "", "versions of this program and of the server", "hanse version",
     version_options, verb_version, ""},
    {"completion", OTHER, "bash | zsh | fish", "completion for a shell",
     "source <(hanse completion bash)", none, verb_completion, ""},
    {"help", OTHER, "[COMMAND]", "this text", "hanse help submit", none, verb_help, ""},
    {"__complete", "", "", "", "", none, verb_complete, ""},
};
const unsigned verb_count = sizeof verb_table / sizeof *verb_table;

const struct verb *verb_find(const char *name)
{
    for (unsigned i = 0; i < verb_count; i++)
        if (!strcmp(verb_table[i].name, name))
            return &verb_table[i];
    return NULL;
}

static void options_print(const struct option *o, FILE *out)
{
    for (; o->name; o++) {
        char left[80];
        (void)snprintf(left, sizeof left, "%s%c%s--%s%s%s", o->letter ? "-" : "",
                       o->letter ? o->letter : ' ', o->letter ? ", " : "   ", o->name,
                       o->value ? " " : "", o->value ? o->value : "");
        (void)fprintf(out, "  %-32s %s\n", left, o->doc);
    }
}

void verb_print_help(const struct verb *v, FILE *out)
{
    (void)fprintf(out, "usage: hanse %s %s\n\n%s\n", v->name, v->usage, v->summary);
    if (*v->examples) {
        (void)fputs("\nexamples:\n", out);
        for (const char *p = v->examples; *p;) {
            size_t n = strcspn(p, "\n");
            (void)fprintf(out, "  %.*s\n", (int)n, p);
            p += n + (p[n] == '\n');
        }
    }
    if (v->options->name) {
        (void)fputs("\noptions:\n", out);
        options_print(v->options, out);
    }
    (void)fputs("\ncommon options:\n", out);
    options_print(options_common, out);
}

void verbs_help(FILE *out)
{
    static const char *const groups[] = {ALL, SETS, FLEET, OTHER};

    (void)fputs("usage: hanse COMMAND [OPTION...]\n", out);
    for (size_t g = 0; g < 4; g++) {
        (void)fprintf(out, "\n%s:\n", groups[g]);
        for (unsigned i = 0; i < verb_count; i++)
            if (!strcmp(verb_table[i].group, groups[g]))
                (void)fprintf(out, "  %-12s %s\n", verb_table[i].name, verb_table[i].summary);
    }
    (void)fputs("\nPrograms:\n"
                "  dev          a cluster of its own on this machine, with a login\n"
                "  server       a member of a cluster\n"
                "  agent        the agent of a target\n"
                "  run          the shim around a program, on a target\n"
                "  checkpoint   writes the manifest of a program's checkpoint, verifies one\n"
                "  archive      verifies what left a cluster's state, offline\n"
                "  restore      a data directory out of a backup, when all members are lost\n"
                "\nhanse COMMAND --help says more of each.\n",
                out);
}

int verb_help(struct cli *c, struct err *err)
{
    const struct verb *v = c->args.n_pos ? verb_find(c->args.pos[0]) : NULL;

    if (c->args.n_pos && !v)
        return err_set(err, E_USAGE, "no command \"%s\"; hanse help lists them", c->args.pos[0]);
    if (v)
        verb_print_help(v, c->out);
    else
        verbs_help(c->out);
    return 0;
}
