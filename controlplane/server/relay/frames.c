/* Frames of the relay, as both sides send and read them. */
#include "controlplane/server/relay/relay.h"

#include <string.h>

#define PIECE 65536u

void relay_pieces_send(struct stream *st, enum relay_frame type, uint8_t flags, uint8_t last,
                       const void *p, size_t n)
{
    const char *b = p;

    for (; n > PIECE; b += PIECE, n -= PIECE)
        frame_send(st, type, flags, 0, b, PIECE);
    frame_send(st, type, last, 0, b, n);
}

bool relay_json_send(struct stream *st, enum relay_frame type, cJSON *j)
{
    char *text = cJSON_PrintUnformatted(j);
    size_t n = text ? strlen(text) : 0;
    bool fits = text && n <= FRAME_BODY_MAX;

    if (fits)
        frame_send(st, (uint8_t)type, 0, 0, text, n);
    cJSON_free(text);
    cJSON_Delete(j);
    return fits;
}

const char *relay_text(const cJSON *j, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, key);

    return cJSON_IsString(v) ? v->valuestring : "";
}

int64_t relay_number(const cJSON *j, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, key);
    bool fits = cJSON_IsNumber(v) && v->valuedouble >= -1e15 && v->valuedouble <= 1e15;

    return fits ? (int64_t)v->valuedouble : 0;
}

bool relay_flag(const cJSON *j, const char *key)
{
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(j, key));
}

cJSON *relay_at_make(const struct api_log_at *at)
{
    cJSON *j = cJSON_CreateObject();

    (void)cJSON_AddBoolToObject(j, "known", at->known);
    (void)cJSON_AddNumberToObject(j, "epoch", (double)at->epoch);
    (void)cJSON_AddNumberToObject(j, "try", (double)at->try_);
    (void)cJSON_AddNumberToObject(j, "from", (double)at->from);
    (void)cJSON_AddBoolToObject(j, "mid", at->mid);
    return j;
}

struct api_log_at relay_at_read(const cJSON *j)
{
    int64_t from = relay_number(j, "from");

    return (struct api_log_at){.known = relay_flag(j, "known") && from >= 0,
                               .epoch = relay_number(j, "epoch"),
                               .try_ = relay_number(j, "try"),
                               .from = from > 0 ? (uint64_t)from : 0,
                               .mid = relay_flag(j, "mid")};
}
