/* The leader's side of COLLECT: while something is left to be removed or matched anew, this
 * proposes its next slice, one at a time. No user's write is needed to go on.
 *
 * A slice is small, and after it the part rests for as long as it took: a user's write waits for
 * one slice at most. */
#include "controlplane/leader/keep/collect.h"

#define SLICE_OBJECTS 256
#define SLICE_BYTES (1u << 20)
#define REST_MAX_MS 100
#define AGAIN_MS 1000 /* after a slice that was not taken */

static void sliced(void *arg, const struct result *r, const struct err *err)
{
    struct brain *b = arg;
    uint64_t took = loop_now_ms(b->loop) - b->collect->asked_ms;

    b->collect->under_way = false;
    b->collect->slices++;
    if (err || r->code)
        took = AGAIN_MS;
    else if (took > REST_MAX_MS)
        took = REST_MAX_MS;
    brain_later(b, &b->collect->rest, took);
}

void collect_look(struct brain *b)
{
    if (!b->leads || b->collect->under_way || timer_active(&b->collect->rest))
        return;
    struct root *r = core_root(b->cfg.core);
    bool due =
        root_collect_due(r) && root_feature_level(r) >= command_feature_level(CMD_COLLECT, 0);
    (void)root_unref(r);
    if (!due)
        return;
    union command c = {.collect = {.head = {.type = CMD_COLLECT, .user = "hanse:collect"},
                                   .objects = SLICE_OBJECTS,
                                   .bytes = SLICE_BYTES}};
    brain_request_id(b, c.head.request_id);
    b->collect->under_way = true;
    b->collect->asked_ms = loop_now_ms(b->loop);
    brain_propose(b, &c, sliced, b);
}

static void rested(void *arg)
{
    collect_look(arg);
}

void collect_reset(struct brain *b)
{
    timer_init(&b->collect->rest, b->loop, rested, b);
    collect_look(b);
}

void collect_drop(struct brain *b)
{
    if (b->collect->rest.loop)
        timer_stop(&b->collect->rest);
}
