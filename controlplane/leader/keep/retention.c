/* Retention: what ended long ago moves from the state into the archive
 * (controlplane/store/archive), so that the state stays bounded and can still be explained.
 *
 * It looks a slice at a time and proposes a few objects at a time: an ARCHIVE must never hold up
 * what is under way. It must never run ahead of this member's own files: while they cannot be
 * written (a full disk), the state keeps what it has. */
#include "controlplane/leader/keep/retention.h"

#include "controlplane/archive/archive_files.h"

#include <stdio.h>

#define LOOK_EVERY_MS (15ul * 1000)
#define FIRST_MS 1000
#define MORE_MS 50
#define LOOK_OBJECTS 10000
#define OPS_MAX 64
#define WAITING_MAX 2
#define CLOSE_BYTES (4u << 20)
#define CLOSE_AFTER_MS (24ll * 3600 * 1000)

static void proposed(void *arg, const struct result *r, const struct err *err)
{
    struct brain *b = arg;

    (void)r;
    (void)err; /* what is left is found again */
    brain_later(b, &b->retention->look, b->retention->more ? MORE_MS : LOOK_EVERY_MS);
}

/* Nothing is archived before every member knows the command, nor faster than files are written. */
static bool may_archive(const struct brain *b)
{
    struct archive_files_status s;

    core_archive_status(b->cfg.core, &s);
    return root_feature_level(b->root) >= command_feature_level(CMD_ARCHIVE, 0) &&
           *root_cluster_uid(b->root) && s.waiting <= WAITING_MAX;
}

static void look(void *arg)
{
    struct brain *b = arg;
    struct write_op ops[OPS_MAX];
    union command c = {.archive = {.head = {.type = CMD_ARCHIVE, .user = "hanse:retention"},
                                   .close_bytes = CLOSE_BYTES,
                                   .close_after_ms = CLOSE_AFTER_MS,
                                   .ops = ops}};
    int64_t now = core_time_ms(b->cfg.core); /* not the state's, which a fault may have stamped */
    size_t n = 0;

    if (!may_archive(b)) {
        timer_start(&b->retention->look, LOOK_EVERY_MS);
        return;
    }
    b->retention->more =
        !root_archive_due(b->root, now, &b->retention->at, LOOK_OBJECTS, ops, OPS_MAX, &n);
    struct archive_totals t = root_archive(b->root);
    bool close = t.open.records && now - t.open.first_ms >= CLOSE_AFTER_MS;
    c.archive.n = (uint32_t)n;
    if (n || close || !t.begun) {
        brain_request_id(b, c.head.request_id);
        brain_propose(b, &c, proposed, b);
    } else {
        timer_start(&b->retention->look, b->retention->more ? MORE_MS : LOOK_EVERY_MS);
    }
}

void retention_reset(struct brain *b)
{
    b->retention->at = (struct archive_cursor){0};
    timer_init(&b->retention->look, b->loop, look, b);
    timer_start(&b->retention->look, FIRST_MS);
}
void retention_drop(struct brain *b)
{
    if (b->retention->look.loop)
        timer_stop(&b->retention->look);
}
