/* What the files of the WebSocket client share. Nobody outside connectors/websocket includes
 * this. */
#ifndef HANSE_CONNECTORS_WEBSOCKET_INTERNAL_H
#define HANSE_CONNECTORS_WEBSOCKET_INTERNAL_H

#include "connectors/websocket/websocket.h"

#define WEBSOCKET_ANSWER_MAX 16384 /* bytes of the head of an answer */
#define WEBSOCKET_KEY_MAX 32

/* ---- the opening handshake (handshake.c) ---- */
struct websocket_asked {
    char key[WEBSOCKET_KEY_MAX]; /* Sec-WebSocket-Key */
    const char *protocols;
};
void websocket_key_make(const unsigned char random[16], char ret[WEBSOCKET_KEY_MAX]);
struct websocket_answered {
    int status;
    size_t n;          /* bytes of the head */
    char protocol[64]; /* of 101 */
    int64_t length;    /* of the body; -1: it does not say */
    bool chunked;
};
/* Of what has come, ended by a zero byte behind it. 1: it is whole; 0: there is more to come;
 * E_CONNECT: it is no answer, or none to what was asked. */
int websocket_answer(const struct websocket_asked *q, const char *text, size_t n,
                     struct websocket_answered *ret, struct err *err) MUST_CHECK;

#endif
