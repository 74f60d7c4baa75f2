/* Completion: scripts for three shells that ask `hanse __complete WORD...`, and its answers. It
 * must never fail loudly or wait long: a shell stands still meanwhile. */
#include "api/cli/cli_internal.h"

#define ANSWER_WITHIN_MS 800

static const char bash_script[] =
    "_hanse() {\n"
    "    local IFS=$'\\n'\n"
    "    COMPREPLY=($(hanse __complete -- \"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null))\n"
    "}\n"
    "complete -o default -F _hanse hanse\n";
static const char zsh_script[] =
    "#compdef hanse\n"
    "_hanse() {\n"
    "    local -a found\n"
    "    found=(${(f)\"$(hanse __complete -- \"${(@)words[2,CURRENT]}\" 2>/dev/null)\"})\n"
    "    if (( $#found )); then compadd -a found; else _files; fi\n"
    "}\n"
    "compdef _hanse hanse\n";
static const char fish_script[] = "complete -c hanse -a '(hanse __complete -- (commandline "
                                  "-opc)[2..-1] (commandline -ct) 2>/dev/null)'\n";

int verb_completion(struct cli *c, struct err *err)
{
    const char *shell = c->args.n_pos == 1 ? c->args.pos[0] : "";
    const char *script = !strcmp(shell, "bash")   ? bash_script
                         : !strcmp(shell, "zsh")  ? zsh_script
                         : !strcmp(shell, "fish") ? fish_script
                                                  : NULL;

    if (!script)
        return cli_usage(c, err, "for which shell?");
    (void)fputs(script, c->out);
    return 0;
}

static void offer(struct cli *c, const char *word, const char *prefix)
{
    if (!strncmp(word, prefix, strlen(prefix)))
        (void)fprintf(c->out, "%s\n", word);
}

static void offer_options(struct cli *c, const struct option *o, const char *prefix)
{
    for (; o->name; o++)
        offer(c, arena_printf(c->mem, "--%s", o->name), prefix);
}

static void offer_names(struct cli *c, const struct kind *k, const char *prefix)
{
    struct client_answer a;
    struct err e = {0};
    const cJSON *o;

    if (cli_connect(c, &e))
        return;
    client_answer_init(&a);
    struct client_request rq = {
        .method = "GET",
        .path = cli_path(c, k, c->ns, false, NULL),
        .accept =
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
        .timeout_ms = ANSWER_WITHIN_MS};
    cJSON *j = !client_perform(c->lane, &rq, &a, &e) && a.status == 200 && a.body.n
                   ? cJSON_ParseWithLength(a.body.p, a.body.n)
                   : NULL;
    cJSON_ArrayForEach(o, cJSON_GetObjectItemCaseSensitive(j, "items"))
        offer(c, json_text_at(o, "metadata.name"), prefix);
    cJSON_Delete(j);
    client_answer_fini(&a);
}

/* Options whose value is the name of an object. */
static bool offer_value(struct cli *c, const char *option, const char *prefix)
{
    static const struct {
        const char *option;
        enum kind_id kind;
    } known[] = {{"--to", KIND_TARGET},       {"--cancel", KIND_MIGRATION},
                 {"--queue", KIND_QUEUE},     {"--priority", KIND_PRIORITY_CLASS},
                 {"--class", KIND_GPU_CLASS}, {"--namespace", KIND_NAMESPACE},
                 {"-n", KIND_NAMESPACE}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(option, known[i].option)) {
            offer_names(c, kind_by_id(known[i].kind), prefix);
            return true;
        }
    return false;
}

/* The words behind "hanse", the last being completed. */
int verb_complete(struct cli *c, struct err *err)
{
    const char *const *w = c->args.rest;
    unsigned n = c->args.n_rest;
    const char *word = n ? w[n - 1] : "";
    const struct kind *kinds[KIND_LIMIT], *k;

    (void)err;
    if (n <= 1) {
        static const char *const programs[] = {"server", "dev", "agent", "run"};
        for (unsigned i = 0; i < verb_count; i++)
            if (*verb_table[i].group)
                offer(c, verb_table[i].name, word);
        for (size_t i = 0; i < 4; i++)
            offer(c, programs[i], word);
        return 0;
    }
    const struct verb *v = verb_find(w[0]);
    if (!v)
        return 0;
    if (offer_value(c, w[n - 2], word))
        return 0;
    if (*word == '-') {
        offer_options(c, v->options, word);
        offer_options(c, options_common, word);
    } else if (!strcmp(v->completes, "kind") && n == 2) {
        size_t m = kind_all(kinds, KIND_LIMIT);
        for (size_t i = 0; i < m; i++)
            offer(c, kinds[i]->plural, word);
    } else if (!strcmp(v->completes, "kind") && !cli_kind(w[1], &k, NULL)) {
        offer_names(c, k, word);
    } else if (!strcmp(v->completes, "workload") || !strcmp(v->completes, "target")) {
        if (!cli_kind(v->completes, &k, NULL))
            offer_names(c, k, word);
    }
    return 0;
}
