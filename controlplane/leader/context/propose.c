/* How a brain proposes: always in the term in which it leads, so that a brain that lost leadership
 * changes nothing. While the state may be an older copy it proposes nothing about work. */

#include "controlplane/leader/context/context.h"

#include "api/base/log.h"

#include <stdio.h>

#define PROPOSE_DEADLINE_MS 10000

struct proposal {
    struct brain *brain;
    propose_cb cb;
    void *arg;
};

void brain_request_id(struct brain *b, char out[REQUEST_ID_MAX])
{
    (void)snprintf(out, REQUEST_ID_MAX, "brain-%llu-%016llx", (unsigned long long)b->term,
                   (unsigned long long)loop_random_u64(b->loop));
}

static void answered(void *arg, const struct result *r, const struct err *err)
{
    struct proposal *p = arg;

    brain_answered(p->brain);
    p->cb(p->arg, r, err);
    mem_free(p);
}

void brain_propose_bytes(struct brain *b, const char *request_id, struct slice bytes, propose_cb cb,
                         void *arg)
{
    struct proposal *p = mem_new(struct proposal);

    *p = (struct proposal){b, cb, arg};
    brain_under_way(b, 1);
    core_propose_in_term(b->cfg.core, b->loop, b->term, request_id, bytes, PROPOSE_DEADLINE_MS,
                         answered, p);
}

struct refused {
    struct brain *brain;
    propose_cb cb;
    void *arg;
    enum command_type type;
    bool in_doubt;
};

/* True for commands that decide nothing about work. */
static bool harmless(enum command_type t)
{
    return t == CMD_RECOVER || t == CMD_FACTS || t == CMD_WRITE;
}

static void refused(void *arg)
{
    struct refused *x = arg;
    struct err e;

    if (x->in_doubt) {
        (void)err_set(&e, E_UNAVAIL, "the state may be an older copy: that is being found out");
    } else {
        (void)err_set(&e, E_TOOLARGE, "a command of type %d would be larger than %d bytes",
                      (int)x->type, (int)LIMIT_COMMAND_MAX_BYTES);
        log_err(LOG_ERROR, "brain.propose", &e);
    }
    brain_answered(x->brain);
    x->cb(x->arg, NULL, &e);
    mem_free(x);
}

/* A command's contents come from users and targets, so it may be too large. Its caller learns that
 * as any other refusal. */
void brain_propose(struct brain *b, const union command *c, propose_cb cb, void *arg)
{
    bool in_doubt = b->in_doubt && !harmless(c->head.type);
    AUTO_BUF bytes;

    buf_init(&bytes, LIMIT_COMMAND_MAX_BYTES);
    if (!in_doubt)
        command_encode(c, &bytes);
    if (bytes.failed || in_doubt) {
        struct refused *x = mem_new(struct refused);

        *x = (struct refused){b, cb, arg, c->head.type, in_doubt};
        brain_under_way(b, 1);
        loop_post(b->loop, refused, x);
        return;
    }
    brain_propose_bytes(b, c->head.request_id, slice_make(bytes.p, bytes.n), cb, arg);
}
