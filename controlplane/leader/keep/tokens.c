/* Tokens that are expired or revoked leave the state: the leader looks for them a slice at a time,
 * and apply judges by the entry's time. Nothing waits for it: such a token is refused at once. */
#include "controlplane/leader/keep/tokens.h"

#define LOOK_EVERY_MS (15ul * 1000)
#define FIRST_MS 1000
#define MORE_MS 50
#define LOOK_OBJECTS 10000
#define OPS_MAX 256

static void removed(void *arg, const struct result *r, const struct err *err)
{
    struct brain *b = arg;

    if (err || r->code) /* what is left is found again */
        b->tokens->more = false;
    brain_later(b, &b->tokens->look, b->tokens->more ? MORE_MS : LOOK_EVERY_MS);
}

static void look(void *arg)
{
    struct brain *b = arg;
    AUTO_ARENA a = arena_create(0);
    struct write_op *ops = arena_array(a, struct write_op, OPS_MAX);
    union command c = {
        .remove = {.head = {.type = CMD_REMOVE, .user = "hanse:tokens"}, .ops = ops}};
    size_t n = 0;

    b->tokens->more = !root_tokens_void(b->root, core_time_ms(b->cfg.core), &b->tokens->at,
                                        LOOK_OBJECTS, ops, OPS_MAX, &n);
    c.remove.n = (uint32_t)n;
    if (!n) {
        timer_start(&b->tokens->look, b->tokens->more ? MORE_MS : LOOK_EVERY_MS);
        return;
    }
    brain_request_id(b, c.head.request_id);
    brain_propose(b, &c, removed, b);
}

void tokens_reset(struct brain *b)
{
    b->tokens->at = (struct token_cursor){0};
    timer_init(&b->tokens->look, b->loop, look, b);
    timer_start(&b->tokens->look, FIRST_MS);
}

void tokens_drop(struct brain *b)
{
    if (b->tokens->look.loop)
        timer_stop(&b->tokens->look);
}
