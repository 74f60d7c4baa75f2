/* What both sides of the relay share: its frames. */
#ifndef HANSE_CONTROLPLANE_SERVER_RELAY_H
#define HANSE_CONTROLPLANE_SERVER_RELAY_H

#include "controlplane/server/backend.h"

#include "api/base/net/frame.h"

#include <cjson/cJSON.h>

#define RELAY_PENDING_MAX (1u << 20) /* neither side holds more for a slow reader */
#define RELAY_ROOM_POLL_MS 20

enum relay_frame {
    RELAY_OPEN = 1, /* first, from who was asked: JSON */
    RELAY_DATA,     /* output, flags = 1 or 2 as its descriptor; input, flags 1 = its end */
    RELAY_END,      /* last, from the leader: {"exitCode","code","text"} */
    RELAY_OPENED,   /* from the leader, no body: it is open; older members tell and heed it not */
    RELAY_ASK,      /* as OPEN, for what older leaders do not know: they refuse a frame like this */
    RELAY_SIZE,     /* from who was asked: rows and columns, two bytes each, little-endian */
    RELAY_EOF,      /* from the leader, no body: no more output comes, input is still taken */
    RELAY_AT        /* from the leader, where it was asked for: the place of a log, as JSON */
};

void relay_pieces_send(struct stream *st, enum relay_frame type, uint8_t flags, uint8_t last,
                       const void *p, size_t n);
bool relay_json_send(struct stream *st, enum relay_frame type, cJSON *j); /* takes j */
const char *relay_text(const cJSON *j, const char *key);                  /* "": it has none */
int64_t relay_number(const cJSON *j, const char *key); /* 0: it has none, or too large a one */
bool relay_flag(const cJSON *j, const char *key);
/* The place of a log as members tell it to each other. */
cJSON *relay_at_make(const struct api_log_at *at);
struct api_log_at relay_at_read(const cJSON *j);

#endif
