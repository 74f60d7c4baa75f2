/* What the files of the HTTP client share. Nobody outside connectors/web includes this. */
#ifndef HANSE_CONNECTORS_WEB_INTERNAL_H
#define HANSE_CONNECTORS_WEB_INTERNAL_H

#include "api/base/net/url.h"
#include "connectors/web/web.h"

#define WEB_HEADERS_MAX 64         /* of an answer, and of a request */
#define WEB_HEADER_BYTES_MAX 32768 /* of an answer: names and values */
#define WEB_REQUEST_BODY_MAX (16u << 20)
#define WEB_SECRETS 4

struct web_client {
    struct loop *loop;
    struct web_config config; /* its texts are in `arena`, and wiped with it */
    struct arena *arena;
    struct url url;
    struct web_transport *transport;
    struct list queued, others; /* struct web_request.link; others: under way, waiting or over */
    unsigned in_flight, n_queued, n_waiting;
    const char *secrets[WEB_SECRETS], *authorization;

    /* the breaker */
    unsigned failed;
    uint64_t open_until_ms, open_ms; /* 0: it is closed; how long it was open last */
    struct timer half_open;
    struct timer pump; /* looks at the queue from a fresh callback */
};

enum web_state {
    WEB_QUEUED,
    WEB_SENDING,
    WEB_WAITING, /* for its next attempt */
    WEB_OVER     /* done() comes next */
};

struct web_request {
    struct web_exchange x; /* first */
    struct web_client *client;
    struct list link;
    enum web_state state;
    struct arena *arena;
    struct web_ask ask; /* its texts are in `arena` */
    struct timer deadline, step;
    struct web_header *headers; /* with the client's own, remade for each attempt */
    struct web_stamp stamp;

    unsigned attempts;
    bool left;         /* of this attempt something may have left */
    bool doubt;        /* an earlier attempt left, and was not answered */
    unsigned sendings; /* of this attempt: a transport begins again on a kept connection */

    /* the answer as far as it came */
    struct arena *answered;
    struct web_header got[WEB_HEADERS_MAX];
    size_t n_got, got_bytes;
    int status;
    struct buf body;
    struct err why; /* what ended this attempt */
    enum outcome out;
};

/* web_request.c */
void web_request_begin(struct web_request *r); /* an attempt; the client counted it */
void web_request_end(struct web_request *r, enum outcome out, int code, const char *why);
void web_request_free(struct web_request *r);

/* web_client.c */
void web_client_pump(struct web_client *c);
void web_client_counted(struct web_client *c, bool good); /* an attempt is over */
void web_client_heard(struct web_client *c); /* it answers: the breaker is closed */
void web_client_enqueue(struct web_client *c, struct web_request *r, bool first);
/* ms until the breaker lets a request through; 0: it does */
uint64_t web_client_shut_ms(const struct web_client *c);
void web_redact(const struct web_client *c, char *text);

#endif
