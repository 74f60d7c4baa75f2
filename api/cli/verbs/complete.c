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

/* A list in an option's doc: "table, wide, json, yaml or name". */
static void offer_list(struct cli *c, const char *doc, const char *prefix)
{
    for (const char *p = doc; *p;) {
        size_t n = strcspn(p, ", ");
        const char *word = arena_strndup(c->mem, p, n), *value = strchr(word, '=');
        if (n && strcmp(word, "or") != 0)
            offer(c, value ? arena_strndup(c->mem, word, (size_t)(value - word) + 1) : word,
                  prefix);
        p += n + strspn(p + n, ", ");
    }
}

static void offer_enum(struct cli *c, const char *name, const char *prefix)
{
    const struct enum_desc *e = enum_by_name(name);

    for (unsigned i = 0; e && i < e->n; i++)
        offer(c, e->values[i].text, prefix);
}

/* The value of an option: the name of an object, or one word of a list. */
static bool offer_value(struct cli *c, const struct option *o, const char *prefix)
{
    static const struct {
        const char *option;
        enum kind_id kind;
    } known[] = {{"to", KIND_TARGET},       {"cancel", KIND_MIGRATION},
                 {"queue", KIND_QUEUE},     {"priority", KIND_PRIORITY_CLASS},
                 {"class", KIND_GPU_CLASS}, {"namespace", KIND_NAMESPACE}};
    const char *colon = strchr(o->doc, ':');

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(o->name, known[i].option) && strcmp(o->value, "DAY") != 0) {
            offer_names(c, kind_by_id(known[i].kind), prefix);
            return true;
        }
    if (!strcmp(o->name, "output"))
        offer_list(c, o->doc, prefix);
    else if (!strcmp(o->name, "by"))
        offer_list(c, colon ? colon + 1 : "", prefix);
    else if (!strcmp(o->name, "topology"))
        offer_enum(c, "domain_level", prefix);
    else if (!strcmp(o->name, "type"))
        offer_enum(c, "workload_type", prefix);
    else if (!strcmp(o->name, "partition"))
        offer_list(c, "wait replaceAfter= stopAfter=", prefix);
    else
        return false; /* the shell may know files */
    return true;
}

/* The option that waits for a value in `w`, or NULL. */
static const struct option *option_open(const struct verb *v, const char *w)
{
    const struct option *sets[] = {v->options, options_common};

    for (size_t i = 0; i < 2; i++)
        for (const struct option *o = sets[i]; o->name; o++)
            if (o->value && ((!strncmp(w, "--", 2) && !strcmp(w + 2, o->name)) ||
                             (w[0] == '-' && o->letter && w[1] == o->letter && !w[2])))
                return o;
    return NULL;
}

static void offer_first(struct cli *c, const char *word)
{
    static const char *const programs[] = {"server",     "dev",     "agent",  "run",
                                           "checkpoint", "archive", "restore"};

    for (unsigned i = 0; i < verb_count; i++)
        if (*verb_table[i].group)
            offer(c, verb_table[i].name, word);
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        offer(c, programs[i], word);
}

static void offer_kinds(struct cli *c, const char *word)
{
    const struct kind *kinds[KIND_LIMIT];
    size_t n = kind_all(kinds, KIND_LIMIT);

    for (size_t i = 0; i < n; i++)
        offer(c, kinds[i]->plural, word);
}

static void offer_word(struct cli *c, const struct verb *v, const char *word)
{
    static const char *const shells[] = {"bash", "zsh", "fish"};
    static const char *const members[] = {"list", "add", "promote", "remove", "transfer"};
    bool kind_first = !strcmp(v->completes, "kind");
    bool objects =
        kind_first || !strcmp(v->completes, "workload") || !strcmp(v->completes, "target");
    const struct kind *k;

    if (*word == '-') {
        offer_options(c, v->options, word);
        offer_options(c, options_common, word);
    } else if (!strcmp(v->name, "completion") && !c->args.n_pos) {
        for (size_t i = 0; i < 3; i++)
            offer(c, shells[i], word);
    } else if (!strcmp(v->name, "members") && !c->args.n_pos) {
        for (size_t i = 0; i < 5; i++)
            offer(c, members[i], word);
    } else if (!strcmp(v->name, "help") && !c->args.n_pos) {
        offer_first(c, word);
    } else if (kind_first && !c->args.n_pos) {
        offer_kinds(c, word);
    } else if (!strcmp(v->name, "port-forward") && c->args.n_pos) {
        return; /* ports: nobody knows which ones */
    } else if (objects && !cli_kind(kind_first ? c->args.pos[0] : v->completes, &k, NULL)) {
        offer_names(c, k, word);
    }
}

/* The words behind "hanse", the last being completed. What stands before it counts: -n names the
 * namespace whose names are offered, --context and the rest the server that is asked. */
int verb_complete(struct cli *c, struct err *err)
{
    const char **w = c->args.rest;
    unsigned n = c->args.n_rest;
    const char *word = n ? w[n - 1] : "";
    const struct verb *v;
    struct args before;

    (void)err;
    if (n <= 1) {
        offer_first(c, word);
        return 0;
    }
    v = verb_find(w[0]);
    if (!v)
        return 0;
    const struct option *open = n > 2 ? option_open(v, w[n - 2]) : NULL;
    int words = (int)n - 2 - (open != NULL);
    if (args_parse(words > 0 ? words : 0, (char **)(void *)(w + 1), v->options, c->mem, &before,
                   NULL))
        return 0;
    if (before.rest) /* a command of the user's own */
        return 0;
    c->args = before;
    if (open)
        (void)offer_value(c, open, word);
    else
        offer_word(c, v, word);
    return 0;
}
