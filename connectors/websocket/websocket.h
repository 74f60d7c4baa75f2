/* A WebSocket client (RFC 6455) for drivers: one connection, one owner, on the driver's loop.
 *
 *   - It opens by its deadline, or closes with a sentence, and closes once.
 *   - A message comes in parts as they come, so that none is too large. All are binary: a text
 *     message, an extension, a masked frame, or what else the protocol forbids ends the connection.
 *   - Nothing is called back from inside the call that asked. */
#ifndef HANSE_CONNECTORS_WEBSOCKET_H
#define HANSE_CONNECTORS_WEBSOCKET_H

#include "api/base/loop/loop.h"

#define WEBSOCKET_REFUSAL_MAX 65536 /* bytes of an answer that refuses it */

struct websocket_config { /* everything is copied; texts that are NULL are "" */
    const char *who;      /* the other side, for sentences: "target a" */
    const char *url;      /* of the server: "https://host[:port][/path]" */
    const char *path;     /* after that, with its query */
    /* PEM texts: whom to trust ("": the machine's CAs) and what to show; and a bearer token */
    const char *ca_pem, *cert_pem, *key_pem, *token;
    const char *protocols; /* that may be spoken, by preference: "a, b" */
    uint64_t deadline_ms;  /* loop_now_ms by which it is open */
};
struct websocket;
struct websocket_end { /* borrowed */
    struct err err;    /* code 0: the other side closed it rightly */
    int status;        /* of HTTP, of a server that refused it; 0: it did not answer so */
    struct slice body; /* of that answer */
};
struct websocket_events {
    void (*open)(void *arg, const char *protocol);
    /* Part of a message: its first, its last, both or neither. */
    void (*data)(void *arg, const void *p, size_t n, bool first, bool last);
    void (*closed)(void *arg, const struct websocket_end *end); /* last call */
};
int websocket_create(struct loop *l, const struct websocket_config *g,
                     const struct websocket_events *ev, void *arg, struct websocket **ret,
                     struct err *err) MUST_CHECK;
/* One message of both pieces, once it is open. */
void websocket_send(struct websocket *w, const void *head, size_t n_head, const void *p, size_t n);
size_t websocket_pending(const struct websocket *w);    /* bytes that have not left yet */
void websocket_pause(struct websocket *w, bool paused); /* what has come by then still comes */
/* No event comes any more; the other side hears that it is over, if it can. */
void websocket_close(struct websocket *w);

/* ---- frames (frames.c), apart from connections ---- */
#define WEBSOCKET_CONTROL_MAX 125
enum websocket_opcode {
    WEBSOCKET_CONTINUES = 0,
    WEBSOCKET_TEXT = 1,
    WEBSOCKET_BINARY = 2,
    WEBSOCKET_CLOSE = 8,
    WEBSOCKET_PING = 9,
    WEBSOCKET_PONG = 10
};
struct websocket_reader { /* zeroed before its first use */
    unsigned char head[10];
    unsigned n_head;
    uint64_t left; /* of the frame's payload */
    bool amid;     /* its header is whole, and its payload is not */
    bool last;     /* of the frame under way: it ends its message */
    bool message;  /* a message has begun and not ended */
    bool told;     /* a part of that message was told */
    uint8_t opcode;
    unsigned char control[WEBSOCKET_CONTROL_MAX];
    unsigned n_control;
};
struct websocket_frame { /* what was read: part of a message, or a whole control frame; borrowed */
    uint8_t opcode;      /* WEBSOCKET_BINARY for all parts */
    const void *p;
    size_t n;
    bool first, last;
};
/* Takes bytes of a server. 1: *ret is something that was read; 0: all is taken, and more is needed;
 * E_SYNTAX: it breaks the protocol. *ret_taken: of these bytes. */
int websocket_read(struct websocket_reader *r, const void *p, size_t n, size_t *ret_taken,
                   struct websocket_frame *ret, struct err *err) MUST_CHECK;
/* A client's frame: its header, for so many bytes, with that mask. Returns the header's length. */
#define WEBSOCKET_HEAD_MAX 14
unsigned websocket_head(uint8_t opcode, uint64_t n, const unsigned char mask[4],
                        unsigned char ret[WEBSOCKET_HEAD_MAX]);
void websocket_mask(unsigned char *p, size_t n, const unsigned char mask[4], uint64_t at);

#endif
