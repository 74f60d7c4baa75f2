/* submit: a command, an sbatch script or a foreign manifest becomes a Workload. */
#include "api/cli/cli_internal.h"
#include "api/manifests/manifests.h"

#define SCRIPT_MAX_BYTES (1u << 20)

static cJSON *object_in(cJSON *o, const char *key)
{
    cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    return v ? v : cJSON_AddObjectToObject(o, key);
}

static int split_pair(cJSON *to, const char *pair, struct err *err)
{
    const char *eq = strchr(pair, '=');
    char key[400];

    if (!eq || eq == pair || (size_t)(eq - pair) >= sizeof key)
        return err_set(err, E_USAGE, "--label %s: expected KEY=VALUE", pair);
    (void)snprintf(key, sizeof key, "%.*s", (int)(eq - pair), pair);
    cJSON_DeleteItemFromObjectCaseSensitive(to, key);
    (void)cJSON_AddStringToObject(to, key, eq + 1);
    return 0;
}

static void gpu_flags(struct cli *c, cJSON *spec, long gpus)
{
    if (gpus > 0) {
        cJSON *gpu = object_in(object_in(spec, "resources"), "gpu");
        cJSON_DeleteItemFromObjectCaseSensitive(gpu, "count");
        (void)cJSON_AddNumberToObject(gpu, "count", (double)gpus);
    }
    cJSON *classes = NULL;
    for (unsigned i = 0; i < c->args.n_given; i++)
        if (!strcmp(c->args.given[i].option->name, "class")) {
            cJSON *gpu = object_in(object_in(spec, "resources"), "gpu");
            if (!classes) {
                cJSON_DeleteItemFromObjectCaseSensitive(gpu, "classes");
                classes = cJSON_AddArrayToObject(gpu, "classes");
            }
            (void)cJSON_AddItemToArray(classes, cJSON_CreateString(c->args.given[i].value));
        }
}

static void text_put(cJSON *to, const char *key, const char *value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(to, key);
    (void)cJSON_AddStringToObject(to, key, value);
}

static int checkpoint_flags(struct cli *c, cJSON *spec, struct err *err)
{
    static const char *const texts[][2] = {{"checkpoint-store", "store"},
                                           {"checkpoint-interval", "interval"},
                                           {"checkpoint-layout", "layout"},
                                           {"grace", "grace"},
                                           {"save-signal", "saveSignal"}};
    static const char *const flags[] = {"required", "reshard"};
    long keep;
    int rv = arg_number(&c->args, "keep", 1, 1000, 0, &keep, err);

    for (size_t i = 0; i < sizeof texts / sizeof *texts && !rv; i++)
        if (arg_text(&c->args, texts[i][0], NULL))
            text_put(object_in(spec, "checkpoint"), texts[i][1],
                     arg_text(&c->args, texts[i][0], NULL));
    if (!rv && keep) {
        cJSON_DeleteItemFromObjectCaseSensitive(object_in(spec, "checkpoint"), "keep");
        (void)cJSON_AddNumberToObject(object_in(spec, "checkpoint"), "keep", (double)keep);
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags && !rv; i++)
        if (arg_flag(&c->args, flags[i])) {
            cJSON_DeleteItemFromObjectCaseSensitive(object_in(spec, "checkpoint"), flags[i]);
            (void)cJSON_AddTrueToObject(object_in(spec, "checkpoint"), flags[i]);
        }
    return rv;
}

/* wait, replace, stop, replaceAfter=TIME or stopAfter=TIME. */
static int partition_flag(struct cli *c, cJSON *spec, struct err *err)
{
    const char *v = arg_text(&c->args, "partition", NULL), *eq = v ? strchr(v, '=') : NULL;
    int64_t ms;

    if (!v)
        return 0;
    size_t n = eq ? (size_t)(eq - v) : strlen(v);
    bool timed =
        (n == 12 && !memcmp(v, "replaceAfter", n)) || (n == 9 && !memcmp(v, "stopAfter", n));
    bool word = !strcmp(v, "wait") || !strcmp(v, "replace") || !strcmp(v, "stop");
    if (!(eq ? timed && !duration_parse(eq + 1, &ms, NULL) : word))
        return err_set(err, E_USAGE,
                       "--partition %s: expected wait, replace, stop, replaceAfter=TIME or "
                       "stopAfter=TIME",
                       v);
    cJSON_DeleteItemFromObjectCaseSensitive(spec, "partition");
    if (eq)
        text_put(object_in(spec, "partition"), timed && n == 12 ? "replaceAfter" : "stopAfter",
                 eq + 1);
    else
        (void)cJSON_AddStringToObject(spec, "partition", v);
    return 0;
}

/* COUNT or COUNT%PARALLELISM. */
static int array_flag(struct cli *c, cJSON *spec, struct err *err)
{
    const char *v = arg_text(&c->args, "array", NULL);
    char *end;
    long n[2] = {0, 0};

    if (!v)
        return 0;
    n[0] = strtol(v, &end, 10);
    if (*end == '%' && end[1])
        n[1] = strtol(end + 1, &end, 10);
    if (*end || n[0] < 1 || n[0] > 100000 || n[1] < (strchr(v, '%') != NULL) || n[1] > 100000)
        return err_set(err, E_USAGE,
                       "--array %s: expected COUNT, or COUNT%%N for N at once, from 1 to 100000",
                       v);
    if (arg_flag(&c->args, "follow"))
        return err_set(err, E_USAGE,
                       "--follow prints the log of one program, and an array has many: say --wait, "
                       "and hanse logs NAME-INDEX");
    cJSON_DeleteItemFromObjectCaseSensitive(spec, "array");
    (void)cJSON_AddNumberToObject(object_in(spec, "array"), "count", (double)n[0]);
    if (n[1])
        (void)cJSON_AddNumberToObject(object_in(spec, "array"), "parallelism", (double)n[1]);
    return 0;
}

/* Flags go over what a file says. */
static int flags_put(struct cli *c, cJSON *j, struct err *err)
{
    static const char *const texts[][2] = {{"queue", "queue"},
                                           {"priority", "priorityClassName"},
                                           {"type", "type"},
                                           {"experiment", "experiment"},
                                           {"deadline", "deadline"}};
    cJSON *spec = object_in(j, "spec");
    long gpus, workers;
    int rv = arg_number(&c->args, "gpus", 0, 256, 0, &gpus, err);

    if (!rv)
        rv = arg_number(&c->args, "workers", 1, 4096, 0, &workers, err);
    if (!rv)
        rv = checkpoint_flags(c, spec, err);
    if (!rv)
        rv = partition_flag(c, spec, err);
    if (!rv)
        rv = array_flag(c, spec, err);
    if (rv)
        return rv;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *v = arg_text(&c->args, texts[i][0], NULL);
        if (v)
            text_put(spec, texts[i][1], v);
    }
    for (int i = 0; i < 2; i++) {
        const char *key = i ? "memory" : "cpu", *v = arg_text(&c->args, key, NULL);
        if (v)
            text_put(object_in(spec, "resources"), key, v);
    }
    if (workers > 0) {
        cJSON_DeleteItemFromObjectCaseSensitive(object_in(spec, "gang"), "workers");
        (void)cJSON_AddNumberToObject(object_in(spec, "gang"), "workers", (double)workers);
    }
    gpu_flags(c, spec, gpus);
    const char *within = arg_text(&c->args, "topology", NULL),
               *image = arg_text(&c->args, "image", NULL);
    if (within) {
        cJSON_DeleteItemFromObjectCaseSensitive(spec, "topology");
        (void)cJSON_AddStringToObject(object_in(spec, "topology"), "within", within);
    }
    if (image)
        (void)cJSON_AddStringToObject(object_in(spec, "run"), "image", image);
    for (unsigned i = 0; i < c->args.n_given && !rv; i++)
        if (!strcmp(c->args.given[i].option->name, "label"))
            rv = split_pair(object_in(object_in(j, "metadata"), "labels"), c->args.given[i].value,
                            err);
    return rv;
}

static int from_command(struct cli *c, cJSON **ret, struct err *err)
{
    if (!c->args.n_rest)
        return cli_usage(c, err, "what is to run? give -- COMMAND ARGUMENT… or -f FILE");
    cJSON *j = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(j, "apiVersion", "hanse.dev/v1alpha1");
    (void)cJSON_AddStringToObject(j, "kind", "Workload");
    cJSON *meta = object_in(j, "metadata"), *run = object_in(object_in(j, "spec"), "run");
    const char *program =
        strrchr(c->args.rest[0], '/') ? strrchr(c->args.rest[0], '/') + 1 : c->args.rest[0];
    if (!arg_flag(&c->args, "name")) {
        char prefix[64];
        size_t n = 0;
        for (const char *p = program; *p && n < 40; p++) {
            char ch = (char)(*p >= 'A' && *p <= 'Z' ? *p + 32 : *p);
            bool good = (ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9');
            if (good || n)
                prefix[n++] = good ? ch : '-';
        }
        (void)snprintf(prefix + n, sizeof prefix - n, "%s",
                       n && prefix[n - 1] == '-' ? ""
                       : n                       ? "-"
                                                 : "job-");
        (void)cJSON_AddStringToObject(meta, "generateName", prefix);
    }
    cJSON *argv = cJSON_AddArrayToObject(run, "command");
    for (unsigned i = 0; i < c->args.n_rest; i++)
        (void)cJSON_AddItemToArray(argv, cJSON_CreateString(c->args.rest[i]));
    *ret = j;
    return 0;
}

static int from_script(struct cli *c, const char *path, const char *text, size_t n, cJSON **ret,
                       struct err *err)
{
    if (memchr(text, '\0', n))
        return err_set(err, E_INVALID, "%s is neither a script nor a manifest", path);
    int rv = sbatch_wrap(text, n, arg_text(&c->args, "name", NULL), ret, err);
    return rv ? err_prefix(err, "%s", path) : 0;
}

/* ---- manifests ---- */
struct notes {
    struct cli *c;
    const struct document *doc;
    unsigned refused;
};

/* Line by line: what is refused, and what is left out. */
static void note_print(void *arg, bool refused, const char *field, const char *text)
{
    struct notes *n = arg;
    int line = n->doc->yaml ? yaml_line_of(n->doc->yaml, field) : 0;

    n->refused += refused;
    (void)fprintf(n->c->err, "%s: %s:%d: %s: %s\n", refused ? "error" : "Warning", n->doc->file,
                  line > 0 ? line : n->doc->line, field, text);
}

static int not_kept(const struct notes *n, const struct err *e, struct err *err)
{
    const struct document *doc = n->doc;

    if (n->refused)
        return err_set(err, e->code,
                       "%s: %u of what it says cannot be kept (above), so nothing was submitted",
                       doc->file, n->refused);
    return err_field(err, e->code, e->field, "%s:%d: %s: %s", doc->file,
                     doc->yaml ? yaml_line_of(doc->yaml, e->field) : doc->line, e->field, e->text);
}

static int from_manifest(struct cli *c, const struct document *doc, cJSON **ret, struct err *err)
{
    struct notes n = {.c = c, .doc = doc};
    struct err e = {0};
    int rv = manifest_workload(doc->json, note_print, &n, ret, &e);

    if (!rv)
        (void)fprintf(c->err,
                      "Warning: %s:%d: its programs are started as they are, without hanse-run: "
                      "they keep no checkpoints for a move, and hold no lease\n",
                      doc->file, doc->line);
    if (!rv)
        return 0;
    return not_kept(&n, &e, err);
}

static int from_made(struct cli *c, struct document *made, const char *what, cJSON **ret,
                     struct err *err)
{
    made->yaml = NULL; /* its fields are not those of the file */
    (void)fprintf(c->err, "Warning: %s:%d: it is run as a JobSet: %s\n", made->file, made->line,
                  what);
    int rv = from_manifest(c, made, ret, err);
    cJSON_Delete(made->json);
    return rv;
}

/* A TrainJob and its runtime, in whatever order: the JobSet that they make is carried. */
static int from_train(struct cli *c, const struct documents *d, const struct document *job,
                      cJSON **ret, struct err *err)
{
    struct notes n = {.c = c, .doc = job};
    const cJSON *runtime = NULL;
    struct document made = *job;
    struct err e = {0};

    for (unsigned i = 0; i < d->n; i++)
        if (manifest_is_runtime(job->json, d->v[i].json))
            runtime = d->v[i].json;
    if (d->n > (runtime ? 2u : 1u))
        return err_set(err, E_INVALID,
                       "%s holds %u documents; a TrainJob is submitted with the runtime that it "
                       "names, and nothing else",
                       job->file, d->n);
    int rv = manifest_train(job->json, runtime, note_print, &n, &made.json, &e);
    if (rv)
        return not_kept(&n, &e, err);
    return from_made(c, &made, "the one that it makes with its runtime", ret, err);
}

static int from_ray(struct cli *c, const struct document *job, cJSON **ret, struct err *err)
{
    struct notes n = {.c = c, .doc = job};
    struct document made = *job;
    struct err e = {0};
    int rv = manifest_ray(job->json, note_print, &n, &made.json, &e);

    if (rv)
        return not_kept(&n, &e, err);
    return from_made(c, &made, "its pods begin ray: no RayCluster is made", ret, err);
}

static const struct document *train_in(const struct documents *d)
{
    for (unsigned i = 0; i < d->n; i++)
        if (manifest_is_train(d->v[i].json))
            return &d->v[i];
    return NULL;
}

static int from_file(struct cli *c, const char *path, cJSON **ret, struct err *err)
{
    AUTO_BUF b = {0};
    struct documents d = {0};
    int rv;

    buf_init(&b, SCRIPT_MAX_BYTES + 1);
    if (strcmp(path, "-") != 0) {
        rv = file_read(c->loop, path, SCRIPT_MAX_BYTES, &b, err);
        if (rv)
            return rv;
        if (b.n > 2 && !memcmp(b.p, "#!", 2))
            return from_script(c, path, b.p, b.n, ret, err);
    }
    rv = documents_load(c, path, &d, err);
    const struct document *train = rv ? NULL : train_in(&d);
    if (train)
        rv = from_train(c, &d, train, ret, err);
    else if (!rv && d.n == 1 && manifest_is_ray(d.v[0].json))
        rv = from_ray(c, &d.v[0], ret, err);
    else if (!rv && d.n != 1)
        rv = err_set(err, E_INVALID,
                     "%s holds %u documents; submit takes one (apply -f takes many)", path, d.n);
    if (!rv && !*ret &&
        kind_by_api(json_text_of(d.v[0].json, "apiVersion"), json_text_of(d.v[0].json, "kind")) !=
            kind_by_id(KIND_WORKLOAD))
        rv = from_manifest(c, &d.v[0], ret, err);
    else if (!rv && !*ret)
        *ret = cJSON_Duplicate(d.v[0].json, true);
    documents_free(&d);
    return rv;
}

static int after_submit(struct cli *c, const char *ns, const char *name, struct err *err)
{
    const struct logs_wish all = {.tail = -1, .follow = true, .all_epochs = true};
    char phase[32] = "";
    int64_t epoch = 0;
    int rv = 0;

    if (arg_flag(&c->args, "follow"))
        rv = work_logs(c, ns, name, &all, phase, err);
    else if (arg_flag(&c->args, "wait"))
        rv = work_wait(c, ns, name, "", false, &epoch, phase, err);
    if (!rv && *phase && strcmp(phase, "Succeeded") != 0)
        c->exit = 1;
    return rv;
}

/* What is sent, and what --dry-run shows: under its name, and checked. */
static int workload_finish(struct cli *c, cJSON *j, struct err *err)
{
    const char *name = arg_text(&c->args, "name", NULL);
    cJSON *meta = object_in(j, "metadata");
    struct object *o = NULL;

    if (name) {
        cJSON_DeleteItemFromObjectCaseSensitive(meta, "name");
        cJSON_DeleteItemFromObjectCaseSensitive(meta, "generateName");
        (void)cJSON_AddStringToObject(meta, "name", name);
    }
    int rv = object_from_json(kind_by_id(KIND_WORKLOAD), j, DECODE_USER, &o, err);
    if (!rv)
        rv = object_validate(o, err);
    if (!rv)
        rv = object_admit(NULL, o, err);
    if (!rv)
        rv = manifest_admit(NULL, o, err);
    if (!rv)
        cli_warn_unkept(c, o);
    (void)object_unref(o);
    if (rv && err && *err->field && strncmp(err->text, err->field, strlen(err->field)) != 0)
        return err_prefix(err, "%s", err->field);
    return rv;
}

static int workload_create(struct cli *c, cJSON *j, struct err *err)
{
    cJSON *meta = object_in(j, "metadata"), *made = NULL;
    int rv = cli_connect(c, err);

    if (rv)
        return rv;
    const char *own = json_text_of(meta, "namespace");
    const char *ns = arena_strdup(c->mem, *own && !arg_flag(&c->args, "namespace") ? own : c->ns);
    cJSON_DeleteItemFromObjectCaseSensitive(meta, "namespace");
    rv =
        cli_json(c, "POST", cli_path(c, kind_by_id(KIND_WORKLOAD), ns, false, NULL), j, &made, err);
    if (!rv) {
        const char *got = arena_strdup(c->mem, json_text_at(made, "metadata.name"));
        (void)fprintf(c->out, "%s\n", got);
        (void)out_now(c);
        rv = after_submit(c, ns, got, err);
    }
    cJSON_Delete(made);
    return rv;
}

int verb_submit(struct cli *c, struct err *err)
{
    const char *file = arg_text(&c->args, "filename", NULL);
    cJSON *j = NULL;

    if (c->args.n_pos)
        return cli_usage(c, err, file ? "unexpected words" : "a command goes behind --");
    int rv = file ? from_file(c, file, &j, err) : from_command(c, &j, err);
    if (!rv)
        rv = flags_put(c, j, err);
    if (!rv)
        rv = workload_finish(c, j, err);
    if (!rv && arg_flag(&c->args, "dry-run")) {
        AUTO_BUF b = {0};
        buf_init(&b, 4u << 20);
        yaml_print(j, &b);
        out_flush(c, &b);
    } else if (!rv) {
        rv = workload_create(c, j, err);
    }
    cJSON_Delete(j);
    return rv;
}
