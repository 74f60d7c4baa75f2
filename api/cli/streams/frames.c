/* Frames of exec and of forwarded ports (frames.h). Must never hold more of a server's bytes than
 * two frames. */
#include "api/cli/streams/frames.h"

#include <cjson/cJSON.h>
#include <string.h>

#define HEAD 5

bool frames_take(struct buf *in, const void *p, size_t n,
                 void (*each)(void *arg, enum frame_type type, const char *p, size_t n), void *arg)
{
    size_t at = 0;

    buf_add(in, p, n);
    while (!in->failed && in->n - at >= HEAD) {
        const unsigned char *h = (const unsigned char *)in->p + at;
        size_t length = (size_t)h[1] << 24 | (size_t)h[2] << 16 | (size_t)h[3] << 8 | h[4];

        if (length > FRAME_MAX_BYTES)
            return false;
        if (in->n - at < HEAD + length)
            break;
        if (h[0] <= FRAME_PLACE)
            each(arg, (enum frame_type)h[0], in->p + at + HEAD, length);
        at += HEAD + length;
    }
    buf_consume(in, at);
    return !in->failed;
}

void frames_send(struct stream *st, enum frame_type type, const void *p, size_t n)
{
    const unsigned char head[HEAD] = {(unsigned char)type, (unsigned char)(n >> 24),
                                      (unsigned char)(n >> 16), (unsigned char)(n >> 8),
                                      (unsigned char)n};

    PRE(n <= FRAME_MAX_BYTES);
    stream_write(st, head, sizeof head);
    if (n)
        stream_write(st, p, n);
}

void frames_end_read(const char *json, size_t n, struct frames_end *ret, struct err *ret_why)
{
    cJSON *j = cJSON_ParseWithLength(json, n);
    const cJSON *code = cJSON_GetObjectItemCaseSensitive(j, "exitCode");
    const cJSON *reason = cJSON_GetObjectItemCaseSensitive(j, "reason");
    const cJSON *message = cJSON_GetObjectItemCaseSensitive(j, "message");

    ret->told = cJSON_IsNumber(code);
    ret->exit_code = ret->told ? code->valueint : 1;
    /* Its own exit status for a leader that was lost: a program may end with any other. */
    const char *why = cJSON_IsString(reason) ? reason->valuestring : "";
    bool lost = !strcmp(why, "BadGateway") || !strcmp(why, "ServiceUnavailable");
    if (cJSON_IsString(message) && *message->valuestring)
        (void)err_set(ret_why, lost ? E_CONNECT : E_INTERNAL, "%s%s", message->valuestring,
                      lost ? "; try again" : "");
    cJSON_Delete(j);
}
