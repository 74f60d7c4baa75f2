/* Documents from files, with their places: an error, ours or the server's, names FILE:LINE. */
#include "api/cli/cli_internal.h"
#include "api/manifests/manifests.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX_BYTES (16u << 20)
#define FILES_MAX 4096
#define DEPTH_MAX 16

static void document_add(struct cli *c, struct documents *d, struct document doc)
{
    if (d->n == d->cap) {
        unsigned cap = d->cap ? d->cap * 2 : 64;
        struct document *more = arena_array(c->mem, struct document, cap);
        if (d->n)
            memcpy(more, d->v, d->n * sizeof *more);
        d->v = more;
        d->cap = cap;
    }
    d->v[d->n++] = doc;
}

/* {"kind": "List", "items": […]} stands for its items. */
static void spread(struct cli *c, struct documents *d, struct document doc)
{
    cJSON *item, *items = cJSON_GetObjectItemCaseSensitive(doc.json, "items");

    if (strcmp(json_text_of(doc.json, "kind"), "List") != 0 || !cJSON_IsArray(items)) {
        document_add(c, d, doc);
        return;
    }
    cJSON_ArrayForEach(item, items)
    {
        struct document one = {.file = doc.file, .line = doc.line, .json = item};
        document_add(c, d, one);
    }
}

int documents_parse(struct cli *c, const char *text, size_t n, const char *file,
                    struct documents *d, struct err *err)
{
    struct yaml_doc *docs = NULL;
    size_t count = 0;
    int rv = yaml_parse_all(text, n, file, &docs, &count, err); /* JSON is YAML */

    if (rv)
        return rv;
    if (!d->sets) {
        d->sets = arena_array(c->mem, struct yaml_doc *, FILES_MAX);
        d->set_n = arena_array(c->mem, size_t, FILES_MAX);
    }
    if (d->n_sets == FILES_MAX) {
        yaml_docs_free(docs, count);
        return err_set(err, E_LIMIT, "more than %d files", FILES_MAX);
    }
    d->sets[d->n_sets] = docs;
    d->set_n[d->n_sets++] = count;
    for (size_t i = 0; i < count; i++) {
        struct document doc = {.file = arena_strdup(c->mem, file),
                               .line = docs[i].line,
                               .json = docs[i].json,
                               .yaml = &docs[i]};
        if (!docs[i].json || cJSON_IsNull(docs[i].json))
            continue;
        if (!cJSON_IsObject(docs[i].json))
            return err_set(err, E_INVALID, "%s:%d: expected a document with apiVersion and kind",
                           file, docs[i].line);
        spread(c, d, doc);
    }
    return 0;
}

static int read_stdin(struct buf *b, struct err *err)
{
    for (;;) {
        char *to = buf_reserve(b, 65536);
        if (!to)
            return err_set(err, E_TOOLARGE, "standard input is larger than %u MiB",
                           FILE_MAX_BYTES >> 20);
        ssize_t n = read(STDIN_FILENO, to, 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(err, E_IO, "standard input cannot be read: %s", strerror(errno));
        if (!n)
            return 0;
        b->n += (size_t)n;
    }
}

static int load_file(struct cli *c, const char *path, struct documents *d, struct err *err)
{
    AUTO_BUF b = {0};
    bool input = !strcmp(path, "-");

    buf_init(&b, FILE_MAX_BYTES + 65536);
    int rv = input ? read_stdin(&b, err) : file_read(c->loop, path, FILE_MAX_BYTES, &b, err);
    return rv ? rv
              : documents_parse(c, b.n ? b.p : "", b.n, input ? "standard input" : path, d, err);
}

struct listing {
    struct arena *mem;
    const char *names[FILES_MAX];
    unsigned n;
    bool full;
};
static void list_each(const char *name, void *arg)
{
    struct listing *l = arg;

    if (*name == '.')
        return;
    if (l->n == FILES_MAX)
        l->full = true;
    else
        l->names[l->n++] = arena_strdup(l->mem, name);
}

static bool is_document(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml") || !strcmp(dot, ".json"));
}

static int load_dir(struct cli *c, const char *dir, unsigned depth, struct documents *d,
                    struct err *err)
{
    struct listing *l = arena_new(c->mem, struct listing);

    l->mem = c->mem;
    if (depth > DEPTH_MAX)
        return err_set(err, E_LIMIT, "%s: folders are nested deeper than %d", dir, DEPTH_MAX);
    int rv = file_list(c->loop, dir, list_each, l, err);
    if (!rv && l->full)
        return err_set(err, E_LIMIT, "%s holds more than %d files", dir, FILES_MAX);
    for (unsigned i = 0; i < l->n && !rv; i++) {
        const char *path = arena_printf(c->mem, "%s%s%s", dir,
                                        dir[strlen(dir) - 1] == '/' ? "" : "/", l->names[i]);
        struct stat st;
        if (stat(path, &st)) /* gone meanwhile, or a link to nowhere */
            rv = is_document(path) ? err_set(err, E_IO, "%s: %s", path, strerror(errno)) : 0;
        else if (S_ISDIR(st.st_mode))
            rv = load_dir(c, path, depth + 1, d, err);
        else if (is_document(path))
            rv = load_file(c, path, d, err);
    }
    return rv;
}

int documents_load(struct cli *c, const char *path, struct documents *d, struct err *err)
{
    struct stat st;

    if (!strcmp(path, "-"))
        return load_file(c, path, d, err);
    if (stat(path, &st))
        return err_set(err, errno == ENOENT ? E_NOTFOUND : E_IO, "%s: %s", path, strerror(errno));
    return S_ISDIR(st.st_mode) ? load_dir(c, path, 0, d, err) : load_file(c, path, d, err);
}

static int at(const struct document *doc, const char *field, struct err *err)
{
    struct err e = *err;
    int line = doc->yaml && *field ? yaml_line_of(doc->yaml, field) : doc->line;
    bool named = *e.field && !strncmp(e.text, e.field, strlen(e.field));

    (void)err_field(err, e.code, e.field, "%s:%d: %s%s%s", doc->file, line > 0 ? line : doc->line,
                    *e.field && !named ? e.field : "", *e.field && !named ? ": " : "", e.text);
    return e.code;
}

void cli_warn_unkept(struct cli *c, const struct object *o)
{
    char why[UNKEPT_MAX];

    if (promises_unkept(o, why, sizeof why))
        (void)fprintf(c->err, "Warning: %s %s: %s\n", o->kind->kind, o->meta->name, why);
}

static int document_check(struct cli *c, const struct document *doc, struct err *err)
{
    const char *api = json_text_of(doc->json, "apiVersion"),
               *name = json_text_of(doc->json, "kind");
    const struct kind *k = kind_by_api(api, name);
    struct object *o = NULL;

    if (!k && kind_by_name(name))
        return err_field(err, E_INVALID, "apiVersion", "\"%s\": expected %s for kind %s", api,
                         kind_api_version(kind_by_name(name)), name);
    if (!k)
        return err_field(
            err, E_INVALID, "kind",
            "\"%s\" (%s) is no kind of Hanse; a foreign manifest goes to hanse submit -f", name,
            api);
    int rv = object_from_json(k, doc->json, DECODE_USER, &o, err);
    if (!rv)
        rv = object_validate(o, err);
    if (!rv)
        rv = object_admit(NULL, o, err);
    if (!rv)
        rv = manifest_admit(NULL, o, err);
    if (!rv)
        cli_warn_unkept(c, o);
    (void)object_unref(o);
    return rv;
}

int documents_validate(struct cli *c, const struct documents *d, struct err *err)
{
    for (unsigned i = 0; i < d->n; i++) {
        struct err e = {0};
        if (document_check(c, &d->v[i], &e)) {
            int rv = at(&d->v[i], e.field, &e);
            if (err)
                *err = e;
            return rv;
        }
    }
    return 0;
}

/* "queue qa: …": an object of the set that the text names by itself. */
static const struct document *named_in(const struct documents *d, const char *text)
{
    for (unsigned i = 0; i < d->n; i++) {
        const cJSON *j = d->v[i].json;
        const struct kind *k = kind_by_api(json_text_of(j, "apiVersion"), json_text_of(j, "kind"));
        char what[400];
        if (!k)
            continue;
        (void)snprintf(what, sizeof what, "%s %s:", k->singular, json_text_at(j, "metadata.name"));
        if (strstr(text, what))
            return &d->v[i];
    }
    return NULL;
}

/* The server says "[FIELD: ]document 3 (Queue vision): [FIELD: ]…". */
void documents_locate(const struct documents *d, struct err *err)
{
    unsigned long i;
    int used = 0;
    char what[300] = "", *end;
    struct err e = err ? *err : (struct err){0};
    const char *at = strstr(e.text, "document "), *text = e.text, *field = e.field;
    const struct document *doc = NULL;

    if (at && (i = strtoul(at + strlen("document "), &end, 10)) < d->n && *end == ' ') {
        doc = &d->v[i];
        text = end;
        if (sscanf(text, " (%299[^)])%n", what, &used) == 1)
            text += used;
        text += strspn(text, ": ");
    } else {
        doc = named_in(d, e.text);
    }
    if (!doc)
        return;
    int line = doc->yaml && *field ? yaml_line_of(doc->yaml, field) : doc->line;
    bool told = !*field || !strncmp(text, field, strlen(field));
    (void)err_field(err, e.code, field, "%s:%d: %s%s%s%s%s", doc->file, line > 0 ? line : doc->line,
                    what, *what ? ": " : "", told ? "" : field, told ? "" : ": ", text);
}

void documents_free(struct documents *d)
{
    for (unsigned i = 0; i < d->n_sets; i++)
        yaml_docs_free(d->sets[i], d->set_n[i]);
    *d = (struct documents){0};
}
