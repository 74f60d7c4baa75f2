/* apply, diff, delete: documents of files as one request. What the schema can judge is judged here,
 * before anything leaves, with FILE:LINE; what the server finds is told with the same places. */
#include "api/cli/cli_internal.h"

static int documents_given(struct cli *c, struct documents *d, struct err *err)
{
    bool any = false;
    int rv = 0;

    for (unsigned i = 0; i < c->args.n_given && !rv; i++)
        if (!strcmp(c->args.given[i].option->name, "filename")) {
            any = true;
            rv = documents_load(c, c->args.given[i].value, d, err);
        }
    return rv || any ? rv : cli_usage(c, err, "-f FILE, folder or - is missing");
}

static cJSON *apply_body(struct cli *c, const struct documents *d, bool dry_run)
{
    cJSON *body = cJSON_CreateObject(), *list;

    (void)cJSON_AddStringToObject(body, "revision", arg_text(&c->args, "revision", ""));
    (void)cJSON_AddStringToObject(body, "set", arg_text(&c->args, "set", "default"));
    (void)cJSON_AddBoolToObject(body, "prune", arg_flag(&c->args, "prune"));
    (void)cJSON_AddBoolToObject(body, "dryRun", dry_run);
    list = cJSON_AddArrayToObject(body, "documents");
    for (unsigned i = 0; i < d->n; i++) {
        cJSON *doc = cJSON_Duplicate(d->v[i].json, true);
        const struct kind *k =
            kind_by_api(json_text_of(doc, "apiVersion"), json_text_of(doc, "kind"));
        cJSON *meta = cJSON_GetObjectItemCaseSensitive(doc, "metadata");
        if (k && k->namespaced && meta && !*json_text_of(meta, "namespace"))
            (void)cJSON_AddStringToObject(meta, "namespace", c->ns);
        (void)cJSON_AddItemToArray(list, doc);
    }
    return body;
}

/* Loads, validates and asks; *ret the server's answer. */
static int apply_ask(struct cli *c, struct documents *d, bool dry_run, cJSON **ret, struct err *err)
{
    int rv = documents_given(c, d, err);

    if (!rv)
        rv = documents_validate(c, d, err);
    if (!rv && !d->n && !arg_flag(&c->args, "prune"))
        rv = err_set(err, E_USAGE, "no document was found (files end in .yaml, .yml or .json)");
    if (!rv)
        rv = cli_connect(c, err);
    if (rv)
        return rv;
    cJSON *body = apply_body(c, d, dry_run);
    rv = cli_json(c, "POST", HANSE_API "/apply", body, ret, err);
    cJSON_Delete(body);
    if (rv)
        documents_locate(d, err);
    return rv;
}

static const char *object_name(struct cli *c, const cJSON *o)
{
    const char *ns = json_text_of(o, "namespace"), *kind = json_text_of(o, "kind");
    const struct kind *k = kind_by_name(kind);

    return arena_printf(c->mem, "%s/%s%s%s", k ? k->singular : kind, k && k->namespaced ? ns : "",
                        k && k->namespaced && *ns ? "/" : "", json_text_of(o, "name"));
}

int verb_apply(struct cli *c, struct err *err)
{
    struct documents d = {0};
    cJSON *answer = NULL;
    const cJSON *o;
    const char *format = arg_text(&c->args, "output", "");
    bool dry = arg_flag(&c->args, "dry-run");
    int rv = apply_ask(c, &d, dry, &answer, err);
    AUTO_BUF b = {0};

    buf_init(&b, OUT_MAX_BYTES);
    if (!rv && !strcmp(format, "json")) {
        tree_print_json(answer, &b);
    } else if (!rv && !strcmp(format, "yaml")) {
        yaml_print(answer, &b);
    } else if (!rv) {
        int counts[4] = {0};
        static const char *const actions[] = {"created", "configured", "unchanged", "pruned"};
        cJSON_ArrayForEach(o, cJSON_GetObjectItemCaseSensitive(answer, "objects"))
        {
            for (int i = 0; i < 4; i++)
                counts[i] += !strcmp(json_text_of(o, "action"), actions[i]);
            if (strcmp(json_text_of(o, "action"), "unchanged") != 0)
                buf_printf(&b, "%s %s%s\n", object_name(c, o), json_text_of(o, "action"),
                           dry ? " (dry run)" : "");
            if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, "deleting")))
                (void)fprintf(c->err,
                              "Warning: %s is being deleted, and what was applied goes with it: "
                              "wait until it is gone, and apply again\n",
                              object_name(c, o));
        }
        buf_printf(&b, "%d created, %d configured, %d unchanged, %d pruned", counts[0], counts[1],
                   counts[2], counts[3]);
        if (*arg_text(&c->args, "revision", ""))
            buf_printf(&b, " at %.12s", arg_text(&c->args, "revision", ""));
        buf_printf(&b, "%s\n", dry ? " (dry run: nothing was written)" : "");
    }
    out_flush(c, &b);
    cJSON_Delete(answer);
    documents_free(&d);
    return rv;
}

/* ---- diff ---- */
static void diff_object(struct cli *c, const cJSON *o, struct buf *out)
{
    const char *sides[] = {"old", "new"};
    AUTO_BUF a = {0};
    AUTO_BUF b = {0};
    struct buf *texts[] = {&a, &b};

    for (int i = 0; i < 2; i++) {
        const cJSON *j = cJSON_GetObjectItemCaseSensitive(o, sides[i]);
        buf_init(texts[i], 16u << 20);
        if (!cJSON_IsObject(j))
            continue;
        cJSON *copy = cJSON_Duplicate(j, true),
              *meta = cJSON_GetObjectItemCaseSensitive(copy, "metadata");
        static const char *const noise[] = {"managedFields", "resourceVersion", "uid",
                                            "creationTimestamp", "generation"};
        for (size_t k = 0; k < sizeof noise / sizeof *noise; k++)
            cJSON_DeleteItemFromObjectCaseSensitive(meta, noise[k]);
        cJSON_DeleteItemFromObjectCaseSensitive(copy, "status");
        yaml_print(copy, texts[i]);
        cJSON_Delete(copy);
    }
    const char *name = object_name(c, o);
    diff_unified(a.n ? arena_printf(c->mem, "a/%s", name) : "/dev/null",
                 b.n ? arena_printf(c->mem, "b/%s", name) : "/dev/null", a.n ? a.p : "",
                 b.n ? b.p : "", c->mem, out);
}

int verb_diff(struct cli *c, struct err *err)
{
    struct documents d = {0};
    cJSON *answer = NULL;
    const cJSON *o;
    int rv = apply_ask(c, &d, true, &answer, err);
    AUTO_BUF b = {0};

    buf_init(&b, OUT_MAX_BYTES);
    if (!rv)
        cJSON_ArrayForEach(o, cJSON_GetObjectItemCaseSensitive(answer, "objects"))
        {
            if (!strcmp(json_text_of(o, "action"), "unchanged"))
                continue;
            c->exit = 1;
            diff_object(c, o, &b);
        }
    out_flush(c, &b);
    cJSON_Delete(answer);
    documents_free(&d);
    if (rv == E_INTERNAL || rv == E_IO) { /* their status is 1, which says "differs" here */
        (void)fprintf(c->err, "error: %s\n", err->text);
        c->exit = 2;
        rv = 0;
    }
    return rv;
}

/* ---- delete ---- */
static const struct {
    const char *word, *policy;
} cascades[] = {{"background", "Background"}, {"foreground", "Foreground"}, {"orphan", "Orphan"}};

static int cascade_check(struct cli *c, struct err *err)
{
    const char *word = arg_text(&c->args, "cascade", "background");
    size_t i = 0;

    while (i < sizeof cascades / sizeof *cascades && strcmp(word, cascades[i].word) != 0)
        i++;
    if (i < sizeof cascades / sizeof *cascades)
        return 0;
    return err_set(err, E_USAGE, "--cascade %s: expected background, foreground or orphan", word);
}

static const char *delete_path(struct cli *c, const struct kind *k, const char *ns,
                               const char *name)
{
    const char *path = cli_path(c, k, ns, false, name), *word = arg_text(&c->args, "cascade", "");

    for (size_t i = 0; i < sizeof cascades / sizeof *cascades; i++)
        if (!strcmp(word, cascades[i].word))
            return arena_printf(c->mem, "%s?propagationPolicy=%s", path, cascades[i].policy);
    return path;
}

/* What an object that is being deleted is still there for. */
static const char *held_by(struct cli *c, const struct kind *k, const cJSON *o)
{
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(
                    cJSON_GetObjectItemCaseSensitive(o, "metadata"), "finalizers"),
                *pools = cJSON_GetObjectItemCaseSensitive(
                    cJSON_GetObjectItemCaseSensitive(o, "status"), "machines"),
                *one;
    const char *finalizer = cJSON_GetStringValue(cJSON_GetArrayItem(all, 0));
    double live = 0;

    if (finalizer && !strcmp(finalizer, TARGET_FINALIZER))
        return "nothing of it is left there (see: hanse describe target)";
    if (finalizer)
        return !strcmp(finalizer, "foregroundDeletion")
                   ? "what it owns is gone"
                   : arena_printf(c->mem, "the finalizer %.200s is taken away",
                                  finalizer);
    cJSON_ArrayForEach(one, pools)
    {
        const cJSON *n = cJSON_GetObjectItemCaseSensitive(one, "live");
        live += cJSON_IsNumber(n) ? n->valuedouble : 0;
    }
    if (k->id == KIND_TARGET && live > 0)
        return arena_printf(c->mem, "its machines have ended (%.0f live)", live);
    return k->id == KIND_WORKLOAD    ? "its run has ended"
           : k->id == KIND_MACHINE   ? "it has ended at its target"
           : k->id == KIND_MIGRATION ? "it is over"
           : k->id == KIND_NAMESPACE ? "what is in it is gone"
                                     : "nothing of it is held any more";
}

struct going {
    struct cli *c;
    const struct kind *k;
    const char *name, *uid;
    char note[400];
};

static bool going_is_gone(struct going *g, const cJSON *o)
{
    char note[400];

    if (strcmp(json_text_at(o, "metadata.uid"), g->uid) != 0)
        return true; /* what has the name now is another one */
    (void)snprintf(note, sizeof note, "%s/%.253s: deletion began; it goes once %.100s",
                   g->k->singular, g->name, held_by(g->c, g->k, o));
    if (strcmp(note, g->note) != 0)
        (void)fprintf(g->c->out, "%s\n", note);
    (void)fflush(g->c->out);
    str_copy(g->note, sizeof g->note, note);
    return false;
}

/* It asks again and again: a watch that begins once it is gone would have nothing to tell. */
static int gone_wait(struct going *g, const char *ns, struct err *err)
{
    for (bool gone = false; !gone;) {
        cJSON *now = NULL;
        int rv;

        cli_pause(g->c, 500);
        rv = cli_json(g->c, "GET", cli_path(g->c, g->k, ns, false, g->name), NULL, &now, err);
        gone = rv == E_NOTFOUND || (!rv && going_is_gone(g, now));
        cJSON_Delete(now);
        if (rv && !gone)
            return rv;
    }
    return 0;
}

/* Which may cost: with their Target they leave the state, and nobody else can tell then. */
static int machines_told(struct cli *c, const char *target, struct err *err)
{
    cJSON *all = NULL;
    const cJSON *o;
    int rv = cli_json(c, "GET", cli_path(c, kind_by_id(KIND_MACHINE), "", false, NULL), NULL, &all,
                      err);

    cJSON_ArrayForEach(o, cJSON_GetObjectItemCaseSensitive(all, "items")) {
        const char *id = json_text_at(o, "status.id"), *until = json_text_at(o, "status.until");
        if (strcmp(json_text_at(o, "spec.target"), target) != 0 ||
            !strcmp(json_text_at(o, "status.phase"), "Ended"))
            continue;
        (void)fprintf(c->out, "machine/%s: id %s, lives until %s unless it is renewed\n",
                      json_text_at(o, "metadata.name"), *id ? id : "not known",
                      *until ? until : "its time to live is over");
    }
    cJSON_Delete(all);
    return rv == E_FORBIDDEN ? 0 : rv; /* he may delete, and not look: the Events tell */
}

/* It is said with the Target, so that whoever leads goes on with it. */
static const struct leaving {
    const char *flag, *annotation, *told;
} leavings[] = {
    {"leave-machines", LEAVE_ANNOTATION,
     "what it has of machines is given up if it is out of reach: they may cost until their time to "
     "live is over; an Event MachineLeft of namespace hanse-system tells of each"},
    {"leave-behind", LEAVE_BEHIND_ANNOTATION,
     "what Hanse keeps there for itself, and has not taken away after a minute, is given up, and "
     "stays there; an Event LeftBehind of namespace hanse-system tells of it"},
};

static int leaving_say(struct cli *c, const struct kind *k, const char *ns, const char *name,
                       const struct leaving *l, struct err *err)
{
    cJSON *body;
    int rv = 0;

    if (!arg_flag(&c->args, l->flag))
        return 0;
    if (k->id != KIND_TARGET)
        return err_set(err, E_USAGE, "--%s is of targets, not of a %s", l->flag, k->singular);
    if (!strcmp(l->annotation, LEAVE_ANNOTATION))
        rv = machines_told(c, name, err);
    if (rv)
        return rv;
    body = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(
        cJSON_AddObjectToObject(cJSON_AddObjectToObject(body, "metadata"), "annotations"),
        l->annotation, "true");
    rv = cli_json(c, "PATCH", cli_path(c, k, ns, false, name), body, NULL, err);
    cJSON_Delete(body);
    if (!rv)
        (void)fprintf(c->err, "%s/%s: %s\n", k->singular, name, l->told);
    return rv;
}

static int delete_one(struct cli *c, const struct kind *k, const char *ns, const char *name,
                      struct err *err)
{
    struct going g = {.c = c, .k = k, .name = name};
    cJSON *left = NULL;
    int rv = 0;

    for (size_t i = 0; i < sizeof leavings / sizeof *leavings && !rv; i++)
        rv = leaving_say(c, k, ns, name, &leavings[i], err);
    if (!rv)
        rv = cli_json(c, "DELETE", delete_path(c, k, ns, name), NULL, &left, err);
    bool there = !rv && *json_text_at(left, "metadata.deletionTimestamp");

    if (rv == E_NOTFOUND && arg_flag(&c->args, "ignore-not-found"))
        rv = 0;
    else if (!rv && there) {
        g.uid = arena_strdup(c->mem, json_text_at(left, "metadata.uid"));
        (void)going_is_gone(&g, left);
        if (arg_flag(&c->args, "wait"))
            rv = gone_wait(&g, ns, err);
    }
    if (!rv && (!there || arg_flag(&c->args, "wait")))
        (void)fprintf(c->out, "%s/%s deleted\n", k->singular, name);
    cJSON_Delete(left);
    return rv;
}

static int delete_documents(struct cli *c, struct err *err)
{
    struct documents d = {0};
    int rv = documents_given(c, &d, err);

    if (!rv)
        rv = cli_connect(c, err);
    for (unsigned i = d.n; i-- > 0 && !rv;) { /* what came last goes first */
        const cJSON *j = d.v[i].json;
        const struct kind *k = kind_by_api(json_text_of(j, "apiVersion"), json_text_of(j, "kind"));
        const char *ns = json_text_at(j, "metadata.namespace"),
                   *name = json_text_at(j, "metadata.name");
        if (!k || !*name)
            rv = err_set(err, E_INVALID, "%s:%d: expected an object of a known kind with a name",
                         d.v[i].file, d.v[i].line);
        else
            rv = delete_one(c, k, *ns ? ns : c->ns, name, err);
    }
    documents_free(&d);
    return rv;
}

/* KIND NAME…, or KIND/NAME…; all words are understood before the first object goes. */
int verb_delete(struct cli *c, struct err *err)
{
    unsigned n = c->args.n_pos, first = n && !strchr(c->args.pos[0], '/') ? 1 : 0;
    const struct kind **kinds = arena_array(c->mem, const struct kind *, n + 1);
    int rv = cascade_check(c, err);

    if (rv)
        return rv;
    if (arg_flag(&c->args, "filename"))
        return delete_documents(c, err);
    if (!n)
        return cli_usage(c, err, "what is to be deleted?");
    if (first == n)
        return cli_usage(c, err, "which one?");
    for (unsigned i = 0; i < n && !rv; i++) {
        const char *word = c->args.pos[i], *slash = strchr(word, '/');

        if (i >= first && !slash != (first == 1))
            rv = err_set(err, E_USAGE, "%s: expected KIND NAME... or KIND/NAME..., not both", word);
        else if (i < first || slash)
            rv = cli_kind(slash ? arena_strndup(c->mem, word, (size_t)(slash - word)) : word,
                          &kinds[i], err);
        else
            kinds[i] = kinds[0];
    }
    if (!rv)
        rv = cli_connect(c, err);
    for (unsigned i = first; i < n && !rv; i++)
        rv = delete_one(c, kinds[i], c->ns,
                        c->args.pos[i] + (first ? 0 : strcspn(c->args.pos[i], "/") + 1), err);
    return rv;
}
