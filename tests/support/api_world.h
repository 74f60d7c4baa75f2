/* An API server over the memory backend, asked over a unix socket on the test's own loop. */
#ifndef HANSE_TESTS_SUPPORT_API_WORLD_H
#define HANSE_TESTS_SUPPORT_API_WORLD_H

#include "api/http/http.h"
#include "api/server/api.h"
#include "tests/support/contract/memory_backend.h"

#include <cjson/cJSON.h>

#define ADMIN "t|admin|system:masters"

struct api_world {
    struct loop *loop;
    struct memory_backend *mem;
    struct backend_ops ops; /* of mem, and which time zones there are: UTC and Europe/Berlin */
    struct api *api;
    struct http_server *http;
    struct listener *listener;
    struct stream *client;
    struct buf got;
    struct timer limit;
    const char *want;
    bool timed_out;
    char path[64], address[80];
    /* the last answer */
    int status;
    cJSON *json;      /* of its body, or NULL */
    const char *body; /* behind the head, chunked answers as they came */
};
struct api_world *api_world_create(void);
struct api_world *api_world_destroy(struct api_world *w);
/* One request, one answer: returns the status. body NULL = none; type NULL = JSON; token NULL = no
 * credentials. */
int api_ask(struct api_world *w, const char *token, const char *method, const char *path,
            const char *type, const char *body);
/* The same with further header lines ("Accept: …\r\n"). */
int api_ask_with(struct api_world *w, const char *token, const char *method, const char *path,
                 const char *headers, const char *type, const char *body);
/* A watch on a connection of its own; api_watch_until runs until the text came (false: 5 s
 * passed). */
struct api_watch {
    struct api_world *w;
    struct stream *st;
    struct buf got;
    const char *want;
    bool closed;
};
void api_watch_open(struct api_watch *x, struct api_world *w, const char *token, const char *path);
bool api_watch_until(struct api_watch *x, const char *text);
void api_watch_close(struct api_watch *x);
/* The text at a path ("metadata.name", "spec.gang.workers", "items.0.metadata.name") of the last
 * answer, or "". */
const char *api_text(struct api_world *w, const char *path);

/* The same with TLS on loopback, until SIGTERM; 0, or 1 with a message on stderr. See
 * api_serve.c. */
int api_serve(const char *dir, const char *address);

#endif
