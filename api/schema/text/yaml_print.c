/* A tree as YAML, block style, for `get -o yaml`. What it prints, yaml.c reads back as the same
 * tree: a text that could be taken for anything else is quoted. */
#include "api/schema/schema_internal.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <strings.h>

static bool plain_ok(const char *s)
{
    static const char *const words[] = {"true", "false", "null", "yes", "no",
                                        "on",   "off",   "y",    "n"};
    size_t n = strlen(s);

    if (!isalpha((unsigned char)*s) && *s != '/' && *s != '_')
        return false; /* empty, numbers, times, signs */
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (!strcasecmp(s, words[i]))
            return false;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c < 0x20 || c >= 0x7f || strchr("{}[],&*!|>'\"%@`", c))
            return false;
        if ((c == ':' && (s[i + 1] == ' ' || !s[i + 1])) || (c == '#' && i > 0 && s[i - 1] == ' '))
            return false;
    }
    return s[n - 1] != ' ';
}

/* A literal block keeps scripts readable; only texts that it can hold exactly. */
static bool block_ok(const char *s)
{
    size_t n = strlen(s);

    if (n < 2 || !strchr(s, '\n') || s[n - 1] != '\n' || s[n - 2] == '\n' || *s == ' ' ||
        *s == '\n')
        return false;
    for (; *s; s++)
        if (((unsigned char)*s < 0x20 && *s != '\n') || (unsigned char)*s >= 0x7f)
            return false;
    return true;
}

static void indent(struct buf *out, unsigned depth)
{
    for (unsigned i = 0; i < depth; i++)
        buf_add(out, "  ", 2);
}

/* Double-quoted. JSON's escapes are YAML's too, but YAML takes some characters as line breaks, or
 * not at all. */
static void quoted(struct buf *out, const char *s)
{
    AUTO_BUF json = {0};
    size_t run = 0;

    buf_init(&json, 16u << 20);
    json_print_string(&json, s, strlen(s));
    for (size_t i = 0; i < json.n; i++) {
        const unsigned char *c = (const unsigned char *)json.p + i;
        unsigned v = *c, width = 1;
        if (v == 0xc2 && c[1] < 0xa0) { /* U+0080 to U+009F, with NEL */
            v = c[1];
            width = 2;
        } else if (v >= 0xe2 && v <= 0xef) {
            v = (v & 15) << 12 | (c[1] & 63u) << 6 | (c[2] & 63u);
            width = 3;
            if (v != 0x2028 && v != 0x2029 && v != 0xfeff && v != 0xfffe && v != 0xffff)
                continue;
        } else if (v != 0x7f) {
            continue;
        }
        buf_add(out, json.p + run, i - run);
        buf_printf(out, "\\u%04x", v);
        run = i + width;
        i = run - 1;
    }
    buf_add(out, json.p + run, json.n - run);
}

static void text(struct buf *out, const char *s, unsigned depth, bool key)
{
    if (plain_ok(s)) {
        buf_str(out, s);
    } else if (!key && block_ok(s)) {
        buf_char(out, '|');
        while (*s) {
            size_t n = strcspn(s, "\n");
            buf_char(out, '\n');
            if (n)
                indent(out, depth);
            buf_add(out, s, n);
            s += n + 1;
        }
    } else {
        quoted(out, s);
    }
}

static void value(struct buf *out, const cJSON *j, unsigned depth, bool in_list);

static void members(struct buf *out, const cJSON *j, unsigned depth, bool in_list)
{
    for (const cJSON *c = j->child; c; c = c->next) {
        if (c != j->child || !in_list)
            indent(out, depth);
        bool is_long =
            strlen(c->string) > 160; /* readers give up on a simple key after 1024 bytes */
        buf_str(out, is_long ? "? " : "");
        text(out, c->string, depth, true);
        if (is_long) {
            buf_char(out, '\n');
            indent(out, depth);
        }
        buf_char(out, ':');
        value(out, c, depth, false);
    }
}

static void value(struct buf *out, const cJSON *j, unsigned depth, bool in_list)
{
    if (cJSON_IsObject(j) && j->child) {
        buf_char(out, in_list ? ' ' : '\n');
        members(out, j, depth + 1, in_list);
        return;
    }
    if (cJSON_IsArray(j) && j->child) {
        buf_char(out, '\n');
        for (const cJSON *c = j->child; c; c = c->next) {
            indent(out, depth + in_list);
            buf_char(out, '-');
            value(out, c, depth + in_list, true);
        }
        return;
    }
    buf_char(out, ' ');
    if (cJSON_IsString(j))
        text(out, j->valuestring, depth + 1, false);
    else
        json_print_tree(j, out);
    buf_char(out, '\n');
}

void yaml_print(const struct cJSON *j, struct buf *out)
{
    if (cJSON_IsObject(j) && j->child) {
        members(out, j, 0, false);
    } else if (cJSON_IsArray(j) && j->child) {
        for (const cJSON *c = j->child; c; c = c->next) {
            buf_char(out, '-');
            value(out, c, 0, true);
        }
    } else {
        json_print_tree(j, out);
        buf_char(out, '\n');
    }
}
