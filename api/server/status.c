/* Status objects: what every failure looks like on the wire. Made from the error table alone, so
 * that HTTP, CLI and retry logic agree. Must never carry a secret: the text comes from `struct
 * err`. */
#include "api/server/server_internal.h"

void json_text(struct buf *out, const char *s)
{
    const char *run = s;

    buf_char(out, '"');
    for (; *s; s++) {
        unsigned char ch = (unsigned char)*s;
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

/* SSA's conflicts come as "manager\tfield\n" lines in the text behind a first line: one cause each.
 */
static void causes(struct buf *out, const struct err *e)
{
    buf_str(out, ",\"causes\":[{");
    json_pair(out, "reason", cause_reason(e), true);
    json_pair(out, "message", e->text, true);
    json_pair(out, "field", e->field, false);
    buf_str(out, "}]");
}

void status_json(struct buf *out, const struct err *e, const struct kind *k, const char *group,
                 const char *res, const char *name, int http)
{
    const struct err_info *info = err_info(e->code);
    bool retry = info->retry == RETRY_LATER && (http == 429 || http == 503 || http == 504);

    buf_str(out, "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":"
                 "\"Failure\",\"message\":");
    if (*e->field && strncmp(e->text, e->field, strlen(e->field)) != 0) {
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
    if (*e->field)
        causes(out, e);
    if (retry)
        buf_str(out, ",\"retryAfterSeconds\":1");
    buf_printf(out, "},\"code\":%d}\n", http);
}
