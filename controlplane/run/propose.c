/* How a brain proposes: always in the term that it leads, so that a brain that was left behind
 * changes nothing. */
#include "controlplane/run/brain_internal.h"

#include <stdio.h>

#define PROPOSE_DEADLINE_MS 10000

struct proposal {
    struct brain *brain;
    propose_cb cb;
    void *arg;
};

void brain_under_way(struct brain *b, int delta)
{
    INV(delta > 0 || b->under_way > 0);
    b->under_way = (unsigned)((int)b->under_way + delta);
}

void brain_request_id(struct brain *b, char out[REQUEST_ID_MAX])
{
    (void)snprintf(out, REQUEST_ID_MAX, "brain-%llu-%016llx", (unsigned long long)b->term,
                   (unsigned long long)loop_random_u64(b->loop));
}

static void answered(void *arg, const struct result *r, const struct err *err)
{
    struct proposal *p = arg;
    struct brain *b = p->brain;

    brain_under_way(b, -1);
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

void brain_propose(struct brain *b, const union command *c, propose_cb cb, void *arg)
{
    AUTO_BUF bytes;

    buf_init(&bytes, LIMIT_COMMAND_MAX_BYTES);
    command_encode(c, &bytes);
    INV(!bytes.failed);
    brain_propose_bytes(b, c->head.request_id, slice_make(bytes.p, bytes.n), cb, arg);
}
