/* Status objects: what every failure looks like on the wire. Made from the error table alone, so
 * that HTTP, CLI and retry logic agree. This file must never carry a secret: the text comes from
 * `struct err`. */
#include "api/server/server_internal.h"

/* Texts may come from a path, or be cut: what is no UTF-8 becomes U+FFFD, so that it is JSON. */
void json_text(struct buf *out, const char *s)
{
    const char *run = s;

    buf_char(out, '"');
    for (; *s; s++) {
        unsigned char ch = (unsigned char)*s;
        if (ch >= 0x80) {
            size_t n = utf8_length(s, strnlen(s, 4));
            if (n) {
                s += n - 1;
                continue;
            }
            buf_add(out, run, (size_t)(s - run));
            buf_str(out, "\xef\xbf\xbd");
            run = s + 1;
            continue;
        }
        if (ch >= 0x20 && ch != '"' && ch != '\\')
            continue;
        buf_add(out, run, (size_t)(s - run));
        run = s + 1;
        if (ch == '"' || ch == '\\')
            buf_printf(out, "\\%c", ch);
        else if (ch == '\n')
            buf_str(out, "\\n");
        else
            buf_printf(out, "\\u%04x", ch);
    }
    buf_add(out, run, (size_t)(s - run));
    buf_char(out, '"');
}

void json_pair(struct buf *out, const char *key, const char *value, bool comma)
{
    json_text(out, key);
    buf_char(out, ':');
    json_text(out, value);
    if (comma)
        buf_char(out, ',');
}

static const char *cause_reason(const struct err *e)
{
    if (strstr(e->text, "unknown field"))
        return "FieldValueUnknown";
    if (strstr(e->text, "required") || strstr(e->text, "must be given"))
        return "FieldValueRequired";
    if (e->code == E_CONFLICT)
        return "FieldManagerConflict";
    return "FieldValueInvalid";
}

/* The field stands beside it: kubectl puts it ahead of the message itself. */
static const char *beside_field(const struct err *e)
{
    size_t n = strlen(e->field);

    return n && !strncmp(e->text, e->field, n) && !strncmp(e->text + n, ": ", 2) ? e->text + n + 2
                                                                                 : e->text;
}

static void cause(struct buf *out, const char *reason, const char *message, const char *field)
{
    buf_char(out, '{');
    json_pair(out, "reason", reason, true);
    json_pair(out, "message", message, true);
    json_pair(out, "field", field, false);
    buf_char(out, '}');
}

static unsigned shown(const struct conflicts *c)
{
    return c->n < CONFLICTS_MAX ? c->n : CONFLICTS_MAX;
}

static void causes(struct buf *out, const struct err *e, const struct conflicts *c)
{
    buf_str(out, ",\"causes\":[");
    if (!c)
        cause(out, cause_reason(e), beside_field(e), e->field);
    for (unsigned i = 0; c && i < shown(c); i++) {
        char text[1024];
        (void)snprintf(text, sizeof text, "conflict with %s", c->v[i].who);
        buf_str(out, i ? "," : "");
        cause(out, "FieldManagerConflict", text, c->v[i].path);
    }
    buf_char(out, ']');
}

/* In the words of Kubernetes: clients look for them. */
static void conflict_message(struct buf *out, const struct conflicts *c)
{
    AUTO_BUF b = {0};

    buf_init(&b, 1 << 20);
    if (c->n == 1)
        buf_printf(&b, "Apply failed with 1 conflict: conflict with %s: %s", c->v[0].who,
                   c->v[0].path);
    else
        buf_printf(&b, "Apply failed with %u conflicts: ", c->n);
    for (unsigned i = 0; c->n > 1 && i < shown(c); i++) {
        if (!i || strcmp(c->v[i].who, c->v[i - 1].who) != 0)
            buf_printf(&b, "%sconflicts with %s:", i ? "\n" : "", c->v[i].who);
        buf_printf(&b, "\n- %s", c->v[i].path);
    }
    if (c->n > shown(c))
        buf_printf(&b, "\nand %u more", c->n - shown(c));
    json_text(out, b.n ? b.p : "");
}

void status_json(struct buf *out, const struct err *e, const struct conflicts *conflicts,
                 const struct kind *k, const char *group, const char *res, const char *name,
                 int http, unsigned retry_s)
{
    const struct err_info *info = err_info(e->code);
    const struct conflicts *c =
        e->code == E_CONFLICT && conflicts && conflicts->n ? conflicts : NULL;
    bool retry = info->retry == RETRY_LATER && (http == 429 || http == 503 || http == 504);

    buf_str(out, "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":"
                 "\"Failure\",\"message\":");
    if (c) {
        conflict_message(out, c);
    } else if (*e->field && strncmp(e->text, e->field, strlen(e->field)) != 0) {
        char text[ERR_TEXT_MAX + ERR_FIELD_MAX + 4];
        (void)snprintf(text, sizeof text, "%s: %s", e->field, e->text);
        json_text(out, text);
    } else {
        json_text(out, *e->text ? e->text : info->sentence);
    }
    buf_char(out, ',');
    json_pair(out, "reason", info->reason, true);
    buf_str(out, "\"details\":{");
    json_pair(out, "name", name ? name : "", true);
    json_pair(out, "group", k ? k->group : group ? group : "", true);
    json_pair(out, "kind", k ? k->plural : res ? res : "", false);
    if (c || *e->field)
        causes(out, e, c);
    if (retry)
        buf_printf(out, ",\"retryAfterSeconds\":%u", retry_s ? retry_s : 1);
    buf_printf(out, "},\"code\":%d}\n", http);
}
