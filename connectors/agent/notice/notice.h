/* Notices of an agent's machine: it, or a node of it, will go away. Whoever hears of that on the
 * machine (a cloud's metadata hook, an operator, a batch system's prolog) says so by `hanse agent
 * notice`, which talks to the running agent over a socket in its state folder; the agent keeps what
 * it was told on disk before it answers, and tells its hub. */
#ifndef HANSE_CONNECTORS_AGENT_NOTICE_H
#define HANSE_CONNECTORS_AGENT_NOTICE_H

#include "api/base/loop/loop.h"
#include "connectors/wire/wire.h"

#define NOTICES_MAX 1025 /* one a node, and one for the whole machine */
#define NOTICE_CALLERS_MAX 16

struct notices_owner {
    /* True when the inventory has a node of that name, without the target's. */
    bool (*has_node)(const char *name, void *arg);
    void (*changed)(void *arg); /* what notices_of says is another thing now */
};
struct notice_entry {
    char node[64]; /* as the inventory calls it; "": all nodes */
    enum notice_kind kind;
    bool ends;
    uint64_t until_ms; /* loop time of the deadline */
};
struct notices { /* embedded in its owner, who reads none of it */
    struct loop *loop;
    const struct notices_owner *owner;
    void *arg;
    char path[512], boot[64];
    struct notice_entry *v; /* owned */
    size_t n;
    struct listener *door;
    struct list callers;
    unsigned n_callers;
};
/* Reads STATE/notices.json and listens at STATE/s/notice, whose folder is there. A notice of an
 * earlier boot (boot: this one's id) whose deadline has passed is over: the machine went, and is
 * back. */
int notices_open(struct notices *x, struct loop *l, const char *state, const char *boot,
                 const struct notices_owner *owner, void *arg, struct err *err) MUST_CHECK;
void notices_close(struct notices *x); /* also of one that was never opened */
/* True when that node ("TARGET.NODE") goes away: by its own notice, or else by that of the whole
 * machine. ret->node borrows name. */
bool notices_of(const struct notices *x, const char *name, struct wire_notice *ret);
/* Both are durable when they return 0, and then tell the owner. */
int notices_put(struct notices *x, const struct wire_notice *n, struct err *err) MUST_CHECK;
/* node "": all of them. One that is not there is withdrawn already. */
int notices_clear(struct notices *x, const char *node, struct err *err) MUST_CHECK;

/* Frames at the socket: one question, and its answer (wire_result). */
enum notice_frame { NOTICE_FRAME_ASK = 1, NOTICE_FRAME_ANSWER = 2 };
int notice_door_open(struct notices *x, const char *state, struct err *err) MUST_CHECK;
void notice_door_close(struct notices *x);
/* `hanse agent notice …`; argv[0] is "notice". Returns the exit status. */
int notice_main(int argc, char **argv);

#endif
