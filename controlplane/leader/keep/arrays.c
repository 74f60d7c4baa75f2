/* The leader's side of ARRAY: while an array has indexes to begin, suspend or resume, this proposes
 * its next slice, one at a time, the arrays in turn. No user's write is needed to go on.
 *
 * A slice is small, and after it the part rests for as long as it took: a user's write waits for
 * one slice at most. */
#include "controlplane/leader/keep/arrays.h"

#include <stdio.h>

#define SLICE_OBJECTS 64
#define REST_MAX_MS 100
#define AGAIN_MS 1000 /* after a round in which nothing could be done */

static void sliced(void *arg, const struct result *r, const struct err *err)
{
    struct brain *b = arg;
    uint64_t took = loop_now_ms(b->loop) - b->arrays->asked_ms;

    b->arrays->under_way = false;
    if (!err && !r->code && !r->unchanged)
        b->arrays->moved = true;
    brain_later(b, &b->arrays->rest, took > REST_MAX_MS ? REST_MAX_MS : took);
}

/* Returns the next array of this round; NULL: the round is over, or no array is due. */
static const struct object *next(struct brain *b, const struct root *r)
{
    const struct object *o = root_array_due(r, b->arrays->at.ns, b->arrays->at.name);
    bool moved = b->arrays->moved, first = !*b->arrays->at.name;

    if (o)
        return o;
    b->arrays->at = (struct cursor){.ns = ""};
    b->arrays->moved = false;
    if (first)
        return NULL;
    if (moved)
        return root_array_due(r, "", "");
    timer_start(&b->arrays->rest, AGAIN_MS);
    return NULL;
}

void arrays_look(struct brain *b)
{
    if (!b->leads || b->arrays->under_way || timer_active(&b->arrays->rest))
        return;
    struct root *r = core_root(b->cfg.core);
    const struct object *o =
        root_feature_level(r) >= command_feature_level(CMD_ARRAY, 0) ? next(b, r) : NULL;
    if (o) {
        union command c = {.array = {.head = {.type = CMD_ARRAY, .user = "hanse:array"},
                                     .objects = SLICE_OBJECTS}};
        str_copy(c.array.ns, sizeof c.array.ns, o->meta->namespace_);
        str_copy(c.array.name, sizeof c.array.name, o->meta->name);
        str_copy(c.array.uid, sizeof c.array.uid, o->meta->uid);
        b->arrays->at = (struct cursor){.ns = ""};
        str_copy(b->arrays->at.ns, sizeof b->arrays->at.ns, o->meta->namespace_);
        str_copy(b->arrays->at.name, sizeof b->arrays->at.name, o->meta->name);
        brain_request_id(b, c.head.request_id);
        b->arrays->under_way = true;
        b->arrays->asked_ms = loop_now_ms(b->loop);
        brain_propose(b, &c, sliced, b);
    }
    (void)root_unref(r);
}

static void rested(void *arg)
{
    arrays_look(arg);
}

void arrays_reset(struct brain *b)
{
    timer_init(&b->arrays->rest, b->loop, rested, b);
    b->arrays->at = (struct cursor){.ns = ""};
    b->arrays->moved = false;
    arrays_look(b);
}

void arrays_drop(struct brain *b)
{
    if (b->arrays->rest.loop)
        timer_stop(&b->arrays->rest);
}
