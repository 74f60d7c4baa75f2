/* How answers look: JSON re-indented without touching a number, simple JSON paths, ages, aligned
 * tables. Pure functions into buffers. */
#include "api/cli/cli_internal.h"

#include <errno.h>
#include <math.h>
#include <signal.h>

/* ---- JSON ---- */
const char *json_text_of(const cJSON *o, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsString(v) ? v->valuestring : "";
}

const cJSON *json_at(const cJSON *o, const char *path)
{
    char key[128];

    while (o && *path) {
        size_t n = strcspn(path, ".");
        if (n >= sizeof key)
            return NULL;
        (void)snprintf(key, sizeof key, "%.*s", (int)n, path);
        o = cJSON_GetObjectItemCaseSensitive(o, key);
        path += n + (path[n] == '.');
    }
    return o;
}

const char *json_text_at(const cJSON *o, const char *path)
{
    const cJSON *v = json_at(o, path);
    return cJSON_IsString(v) ? v->valuestring : "";
}

double json_number_at(const cJSON *o, const char *path)
{
    const cJSON *v = json_at(o, path);
    return cJSON_IsNumber(v) ? v->valuedouble : 0;
}

static void newline(struct buf *out, unsigned depth)
{
    buf_char(out, '\n');
    for (unsigned i = 0; i < depth; i++)
        buf_str(out, "    ");
}

void json_indent(const char *text, size_t n, struct buf *out)
{
    unsigned depth = 0;
    bool quoted = false;

    for (size_t i = 0; i < n; i++) {
        char ch = text[i];
        if (quoted) {
            buf_char(out, ch);
            if (ch == '\\' && i + 1 < n)
                buf_char(out, text[++i]);
            else if (ch == '"')
                quoted = false;
        } else if (ch == '{' || ch == '[') {
            size_t k = i + 1;
            while (k < n && strchr(" \t\r\n", text[k]))
                k++;
            buf_char(out, ch);
            if (k < n && (text[k] == '}' || text[k] == ']')) {
                buf_char(out, text[k]);
                i = k;
            } else {
                newline(out, ++depth);
            }
        } else if (ch == '}' || ch == ']') {
            newline(out, depth ? --depth : 0);
            buf_char(out, ch);
        } else if (ch == ',') {
            buf_char(out, ch);
            newline(out, depth);
        } else if (ch == ':') {
            buf_str(out, ": ");
        } else if (!strchr(" \t\r\n", ch)) {
            quoted = ch == '"';
            buf_char(out, ch);
        }
    }
    buf_char(out, '\n');
}

void tree_print_json(const cJSON *j, struct buf *out)
{
    char *text = cJSON_PrintUnformatted(j);

    json_indent(text ? text : "null", text ? strlen(text) : 4, out);
    cJSON_free(text);
}

/* ---- JSON paths ---- */
static void value_print(const cJSON *v, struct buf *out)
{
    if (cJSON_IsString(v)) {
        buf_str(out, v->valuestring);
    } else if (v) {
        char *text = cJSON_PrintUnformatted(v);
        buf_str(out, text ? text : "");
        cJSON_free(text);
    }
}

struct pathing {
    struct buf *out;
    bool any;
};

static void path_walk(const cJSON *v, const char *p, const char *end, struct pathing *w);

static void path_each(const cJSON *list, const char *p, const char *end, struct pathing *w)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, list) path_walk(item, p, end, w);
}

/* [*], [3], [?(@.type=="Connected")] */
static void path_bracket(const cJSON *v, const char *p, const char *end, struct pathing *w)
{
    const char *close = memchr(p, ']', (size_t)(end - p));
    char key[64], value[128];

    if (!close)
        return;
    if (p[1] == '*') {
        path_each(v, close + 1, end, w);
    } else if (sscanf(p, "[?(@.%63[A-Za-z0-9_]==\"%127[^\"]\")]", key, value) == 2) {
        const cJSON *item;
        cJSON_ArrayForEach(item, v) if (!strcmp(json_text_of(item, key), value))
            path_walk(item, close + 1, end, w);
    } else {
        long i = strtol(p + 1, NULL, 10);
        int n = cJSON_GetArraySize(v);
        path_walk(cJSON_GetArrayItem(v, (int)(i < 0 ? n + i : i)), close + 1, end, w);
    }
}

static void path_walk(const cJSON *v, const char *p, const char *end, struct pathing *w)
{
    char key[256];
    size_t n = 0;

    if (!v)
        return;
    if (p >= end) {
        if (w->any)
            buf_char(w->out, ' ');
        w->any = true;
        value_print(v, w->out);
        return;
    }
    if (*p == '[') {
        path_bracket(v, p, end, w);
        return;
    }
    p += *p == '.';
    while (p < end && *p != '.' && *p != '[' && n < sizeof key - 1) {
        if (*p == '\\' && p + 1 < end) /* a\.b: a dot in a key */
            p++;
        key[n++] = *p++;
    }
    key[n] = '\0';
    path_walk(n ? cJSON_GetObjectItemCaseSensitive(v, key) : v, p, end, w);
}

static void literal(const char *p, const char *end, struct buf *out)
{
    for (; p < end; p++) {
        if (*p == '\\' && p + 1 < end) {
            p++;
            buf_char(out, *p == 'n' ? '\n' : *p == 't' ? '\t' : *p);
        } else {
            buf_char(out, *p);
        }
    }
}

int jsonpath_print(const cJSON *j, const char *template, struct buf *out, struct err *err)
{
    const char *p = template;

    while (*p) {
        if (*p != '{') {
            size_t n = strcspn(p, "{");
            literal(p, p + n, out);
            p += n;
            continue;
        }
        const char *end = p[1] == '"' ? strstr(p + 2, "\"}") : strchr(p, '}');
        if (!end)
            return err_set(err, E_USAGE, "jsonpath %s: a { without its }", template);
        if (p[1] == '"') {
            literal(p + 2, end, out);
            p = end + 2;
        } else if (p[1] == '.' || p[1] == '[' || p[1] == '$') {
            struct pathing w = {.out = out};
            path_walk(j, p + 1 + (p[1] == '$'), end, &w);
            p = end + 1;
        } else {
            return err_set(
                err, E_USAGE,
                "jsonpath %s: expected {.field.field[*].field}; range and filters are not "
                "supported beyond [?(@.key==\"value\")]",
                template);
        }
    }
    return 0;
}

/* ---- texts and tables ---- */
void age_print(int64_t ms, char out[16])
{
    int64_t s = ms < 0 ? 0 : ms / 1000;

    if (s < 120)
        (void)snprintf(out, 16, "%llds", (long long)s);
    else if (s < 2L * 3600)
        (void)snprintf(out, 16, "%lldm", (long long)(s / 60));
    else if (s < 48L * 3600)
        (void)snprintf(out, 16, "%lldh", (long long)(s / 3600));
    else
        (void)snprintf(out, 16, "%lldd", (long long)(s / 86400));
}

size_t text_width(const char *s)
{
    size_t n = 0;

    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

void table_init(struct table *t, struct arena *mem, unsigned columns)
{
    PRE(columns > 0 && columns <= 64);
    *t = (struct table){.columns = columns, .mem = mem};
}

void table_cell(struct table *t, const char *text)
{
    if (t->n == t->cap) {
        unsigned cap = t->cap ? t->cap * 2 : 256;
        const char **more = arena_array(t->mem, const char *, cap);
        if (t->n)
            memcpy(more, t->cells, t->n * sizeof *more);
        t->cells = more;
        t->cap = cap;
    }
    char *copy = arena_strdup(t->mem, text);
    for (char *p = copy; *p;
         p++) /* a cell is one line, and brings no control codes to a terminal */
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = ' ';
    t->cells[t->n++] = copy;
}

void table_print(const struct table *t, struct buf *out)
{
    size_t width[64] = {0};

    for (unsigned i = 0; i < t->n; i++) {
        size_t w = text_width(t->cells[i]);
        if (w > width[i % t->columns])
            width[i % t->columns] = w;
    }
    for (unsigned i = 0; i < t->n; i++) {
        unsigned col = i % t->columns;
        bool last = col == t->columns - 1;
        int pad = (int)(width[col] - text_width(t->cells[i]));
        if (t->right >> col & 1)
            buf_printf(out, "%*s%s", pad, "", t->cells[i]);
        else
            buf_printf(out, "%s%*s", t->cells[i], last ? 0 : pad, "");
        buf_str(out, last ? "\n" : "  ");
    }
}

/* Nobody reads any more (`| head`): ends as every program on a closed pipe does, without a word.
 * SIGPIPE itself is ignored because of the sockets. */
static void out_closed(const struct cli *c)
{
    if (c->out != stdout || errno != EPIPE)
        return;
    (void)signal(SIGPIPE, SIG_DFL);
    (void)raise(SIGPIPE);
}

void out_flush(struct cli *c, struct buf *b)
{
    if (b->n && fwrite(b->p, 1, b->n, c->out) != b->n)
        out_closed(c);
    buf_reset(b);
}

int out_now(struct cli *c)
{
    if (fflush(c->out) == 0)
        return 0;
    out_closed(c);
    return E_IO;
}
