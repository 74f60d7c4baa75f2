/* What a server's Status says, as our own errors, and the encoding of paths. The table of errors is
 * the only place that knows which is which. */
#include "api/cli/net/client.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

void client_encode(struct buf *out, const char *text)
{
    for (const char *p = text; *p; p++) {
        if ((*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
            strchr("-_.~", *p))
            buf_char(out, *p);
        else
            buf_printf(out, "%%%02X", (unsigned char)*p);
    }
}

static int code_of(int http, const char *reason)
{
    int first = 0;

    for (int i = 0; i < E_ROW_NR; i++) {
        const struct err_info *info = err_info(-(i + 1));
        if (info->http == http && !first)
            first = -(i + 1);
        if (info->http == http && reason && !strcmp(info->reason, reason))
            return -(i + 1);
    }
    return first ? first : http >= 500 ? E_INTERNAL : E_SYNTAX;
}

int client_status(const struct client_answer *a, struct err *err)
{
    if (a->status < 400)
        return a->status ? 0 : err_set(err, E_INTERNAL, "no answer");
    cJSON *j = a->body.n ? cJSON_ParseWithLength(a->body.p, a->body.n) : NULL;
    const cJSON *message = cJSON_GetObjectItemCaseSensitive(j, "message");
    const cJSON *reason = cJSON_GetObjectItemCaseSensitive(j, "reason");
    const cJSON *causes =
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(j, "details"), "causes");
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(causes, 0), "field");
    int code = code_of(a->status, cJSON_IsString(reason) ? reason->valuestring : NULL);

    if (cJSON_IsString(message))
        (void)err_set(err, code, "%s", message->valuestring);
    else
        (void)err_set(err, code, "the server answered %d: %s", a->status, err_info(code)->sentence);
    if (err && cJSON_IsString(field))
        str_copy(err->field, sizeof err->field, field->valuestring);
    cJSON_Delete(j);
    return code;
}
