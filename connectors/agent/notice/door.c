/* The agent's end of `hanse agent notice`: a socket in its state folder, which only the agent's
 * user may enter. Each question gets one answer. */
#include "api/base/log.h"
#include "connectors/agent/notice/notice.h"

#include <stdio.h>
#include <string.h>

struct caller {
    struct list link;
    struct notices *of;
    struct stream *stream;
    struct frame_reader reader;
};

static int asked(const struct caller *c, const struct frame *f, struct err *err)
{
    AUTO_ARENA a = arena_create(0);
    struct notice_ask *q = NULL;
    int rc = f->type == NOTICE_FRAME_ASK ? wire_read(notice_ask, f->body, a, &q, err)
                                         : err_set(err, E_SYNTAX, "not a question about notices");

    if (rc < 0)
        return rc;
    if (q->clear)
        return notices_clear(c->of, q->node, err);
    return q->notice ? notices_put(c->of, q->notice, err)
                     : err_set(err, E_SYNTAX, "nothing is announced");
}

static int caller_frame(const struct frame *f, void *arg)
{
    struct caller *c = arg;
    struct err err = {0};
    struct wire_result r = {.outcome = OUT_DONE};

    if (asked(c, f, &err) < 0) {
        r.outcome = OUT_REJECTED;
        r.code = err.code;
        r.text = err.text;
    }
    wire_tell(c->stream, NOTICE_FRAME_ANSWER, f->id, wire_result, &r);
    return 0;
}

static void caller_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct caller *c = arg;
    struct err err;

    if (frame_feed(&c->reader, p, n, caller_frame, c, &err) < 0)
        stream_abort(s, err.text);
}

static void caller_free(struct caller *c)
{
    list_remove(&c->link);
    c->of->n_callers--;
    frame_reader_fini(&c->reader);
    mem_free(c);
}

static void caller_closed(struct stream *s, const struct err *why, void *arg)
{
    (void)s;
    (void)why;
    caller_free(arg);
}

static const struct stream_events caller_events = {.data = caller_data, .closed = caller_closed};
static const struct stream_events nobody = {0};

static void came(struct listener *li, struct stream *s, void *arg)
{
    struct notices *x = arg;
    struct caller *c;

    (void)li;
    if (x->n_callers == NOTICE_CALLERS_MAX) {
        stream_set(s, &nobody, NULL);
        stream_abort(s, "too many callers");
        return;
    }
    c = mem_new(struct caller);
    c->of = x;
    c->stream = s;
    frame_reader_init(&c->reader);
    list_push(&x->callers, &c->link);
    x->n_callers++;
    stream_set(s, &caller_events, c);
}

int notice_door_open(struct notices *x, const char *state, struct err *err)
{
    char path[512], address[520];
    int port;

    (void)snprintf(path, sizeof path, "%s/s/notice", state);
    (void)snprintf(address, sizeof address, "unix:%s", path);
    int rc = file_remove(x->loop, path, err);
    return rc < 0 ? rc : listener_create(x->loop, address, NULL, came, x, &x->door, &port, err);
}

void notice_door_close(struct notices *x)
{
    if (x->door)
        listener_close(x->door);
    x->door = NULL;
    while (!list_empty(&x->callers)) {
        struct caller *c = container_of(x->callers.next, struct caller, link);
        stream_set(c->stream, &nobody, NULL);
        stream_abort(c->stream, "the agent stops");
        caller_free(c);
    }
}
