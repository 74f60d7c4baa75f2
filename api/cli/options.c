/* Reads a command line against a table of options. The same tables make help and completion, so a
 * flag that is not in a table does not exist. */
#include "api/cli/cli_internal.h"

const struct option options_common[] = {
    {"kubeconfig", 0, "FILE", "the login (default: KUBECONFIG, ~/.kube/config)"},
    {"context", 0, "NAME", "context of the kubeconfig"},
    {"namespace", 'n', "NAME", "namespace (default: the context's, or default)"},
    {"server", 's', "URL", "a member, https://HOST:PORT; may be repeated"},
    {"token", 0, "TOKEN", "bearer token"},
    {"as", 0, "USER", "act as this user (verb impersonate on users)"},
    {"as-group", 0, "GROUP", "in this group; may be repeated"},
    {"certificate-authority", 0, "FILE", "CA that signed the servers' certificates"},
    {"timeout", 0, "TIME", "of a request with its repetitions (default: 30s)"},
    {"help", 'h', NULL, "this text"},
    {0}};

const struct option *option_find(const struct option *options, const char *name, size_t n,
                                 char letter)
{
    for (const struct option *o = options; o && o->name; o++)
        if (letter ? o->letter == letter : strlen(o->name) == n && !memcmp(o->name, name, n))
            return o;
    return NULL;
}

static const struct option *find_any(const struct option *options, const char *name, size_t n,
                                     char letter)
{
    const struct option *o = option_find(options, name, n, letter);
    return o ? o : option_find(options_common, name, n, letter);
}

static int unknown_option(const struct option *options, const char *word, struct err *err)
{
    const char *names[64];
    size_t n = 0;

    for (const struct option *o = options; o && o->name && n < 48; o++)
        names[n++] = o->name;
    for (const struct option *o = options_common; o->name && n < 64; o++)
        names[n++] = o->name;
    const char *near = nearest_word(word + strspn(word, "-"), names, n);
    if (near)
        return err_set(err, E_USAGE, "unknown option %s; did you mean --%s?", word, near);
    return err_set(err, E_USAGE, "unknown option %s (--help lists them)", word);
}

static int give(struct args *a, const struct option *o, const char *value, struct err *err)
{
    if (a->n_given == sizeof a->given / sizeof *a->given)
        return err_set(err, E_USAGE, "too many options");
    a->given[a->n_given++] = (struct given){o, value};
    return 0;
}

/* ---- name, --name=value, --name value. *used: further words that it took. ---- */
static int long_option(const char *word, const char *next, const struct option *options,
                       struct args *a, int *used, struct err *err)
{
    const char *name = word + 2, *eq = strchr(name, '=');
    size_t n = eq ? (size_t)(eq - name) : strlen(name);
    const struct option *o = find_any(options, name, n, 0);

    if (!o)
        return unknown_option(options, word, err);
    if (!o->value) {
        if (eq && strcmp(eq + 1, "true") != 0 && strcmp(eq + 1, "false") != 0)
            return err_set(err, E_USAGE, "--%s takes no value", o->name);
        return eq && !strcmp(eq + 1, "false") ? 0 : give(a, o, "", err);
    }
    if (!eq && !next)
        return err_set(err, E_USAGE, "--%s needs a value: --%s %s", o->name, o->name, o->value);
    *used = eq ? 0 : 1;
    return give(a, o, eq ? eq + 1 : next, err);
}

/* -f FILE, -fFILE, -Aw. */
static int short_options(const char *word, const char *next, const struct option *options,
                         struct args *a, int *used, struct err *err)
{
    for (const char *p = word + 1; *p; p++) {
        const struct option *o = find_any(options, NULL, 0, *p);
        if (!o)
            return unknown_option(options, word, err);
        if (!o->value) {
            int rv = give(a, o, "", err);
            if (rv)
                return rv;
            continue;
        }
        if (!p[1] && !next)
            return err_set(err, E_USAGE, "-%c needs a value: -%c %s", *p, *p, o->value);
        *used = p[1] ? 0 : 1;
        return give(a, o, p[1] ? p + 1 + (p[1] == '=') : next, err);
    }
    return 0;
}

/* All such words are names, kinds or KIND/NAME: what is empty would mean all of a kind. */
static int give_word(struct args *a, const char *word, struct err *err)
{
    const char *slash = strrchr(word, '/'), *name = slash ? slash + 1 : word;

    if (!*name)
        return err_set(err, E_USAGE, "\"%s\": an empty name", word);
    if (!cli_name_ok(name))
        return err_set(err, E_USAGE, "\"%s\": %s is not a name", word, name);
    a->pos[a->n_pos++] = word;
    return 0;
}

int args_parse(int argc, char **argv, const struct option *options, struct arena *mem,
               struct args *ret, struct err *err)
{
    *ret = (struct args){0};
    if (argc > ARGS_MAX)
        return err_set(err, E_USAGE, "more than %d words on the command line", ARGS_MAX);
    ret->pos = arena_array(mem, const char *, argc + 1);
    for (int i = 0; i < argc; i++) {
        const char *w = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
        int used = 0, rv = 0;
        if (!strcmp(w, "--")) {
            ret->rest = (const char **)(void *)(argv + i + 1);
            ret->n_rest = (unsigned)(argc - i - 1);
            return 0;
        }
        if (!strncmp(w, "--", 2))
            rv = long_option(w, next, options, ret, &used, err);
        else if (*w == '-' && w[1])
            rv = short_options(w, next, options, ret, &used, err);
        else
            rv = give_word(ret, w, err);
        if (rv)
            return rv;
        i += used;
    }
    return 0;
}

bool arg_flag(const struct args *a, const char *name)
{
    return arg_text(a, name, NULL) != NULL;
}

const char *arg_text(const struct args *a, const char *name, const char *otherwise)
{
    const char *found = otherwise;

    for (unsigned i = 0; i < a->n_given; i++)
        if (!strcmp(a->given[i].option->name, name))
            found = a->given[i].value;
    return found;
}

int arg_number(const struct args *a, const char *name, long lo, long hi, long otherwise, long *ret,
               struct err *err)
{
    const char *s = arg_text(a, name, NULL);
    char *end;

    *ret = otherwise;
    if (!s)
        return 0;
    long v = strtol(s, &end, 10);
    if (!*s || *end || v < lo || v > hi)
        return err_set(err, E_USAGE, "--%s %s: expected a number from %ld to %ld", name, s, lo, hi);
    *ret = v;
    return 0;
}

int arg_duration(const struct args *a, const char *name, int64_t otherwise_ms, int64_t *ret,
                 struct err *err)
{
    const char *s = arg_text(a, name, NULL);

    *ret = otherwise_ms;
    if (!s)
        return 0;
    if (duration_parse(s, ret, NULL) || *ret <= 0)
        return err_set(err, E_USAGE, "--%s %s: expected a time such as 30s, 5m or 1h30m", name, s);
    return 0;
}
