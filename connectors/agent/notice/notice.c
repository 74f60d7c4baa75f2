/* What is announced of this machine: a list, on disk before anybody is told that it was taken. A
 * deadline counts by the clock of the boot in which it was announced, which no step of the time of
 * day moves; after a reboot the time of day is all that is left of it.
 *
 * A notice whose deadline has passed stays until it is withdrawn or the machine reboots: a
 * maintenance that has begun is not over. */
#include "connectors/agent/notice/notice.h"

#include "api/base/log.h"

#include <stdio.h>
#include <string.h>

#define FILE_MAX ((size_t)1 << 20)

static struct notice_entry *entry_find(const struct notices *x, const char *node)
{
    for (size_t i = 0; i < x->n; i++)
        if (strcmp(x->v[i].node, node) == 0)
            return &x->v[i];
    return NULL;
}

static int keep(struct notices *x, struct err *err)
{
    int64_t wall = loop_wall_ms(x->loop);
    uint64_t now = loop_now_ms(x->loop);
    AUTO_ARENA a = arena_create(0);
    AUTO_BUF text;
    struct notices_kept k = {.boot = x->boot,
                             .notices = arena_array(a, struct notice_kept, x->n + 1),
                             .n_notices = (uint32_t)x->n};

    for (size_t i = 0; i < x->n; i++) {
        const struct notice_entry *e = &x->v[i];
        struct notice_kept *to = &k.notices[i];
        to->notice = arena_new(a, struct wire_notice);
        *to->notice = (struct wire_notice){.node = e->node, .kind = e->kind, .ends = e->ends};
        to->until_ms = e->until_ms;
        to->time_ms = wall + (int64_t)(e->until_ms - now);
    }
    buf_init(&text, FILE_MAX);
    int rc = body_print_json(&schema_notices_kept, &k, &text, err);
    return rc < 0 ? rc : file_write(x->loop, x->path, text.p, text.n, 0600, err);
}

static void entry_load(struct notices *x, const struct notice_kept *k, bool same_boot)
{
    const struct wire_notice *n = k->notice;
    int64_t left = k->time_ms - loop_wall_ms(x->loop);
    struct notice_entry *e = &x->v[x->n];

    if (!n || strlen(n->node) >= sizeof e->node || x->n == NOTICES_MAX ||
        (!same_boot && n->ends && left <= 0))
        return;
    *e = (struct notice_entry){.kind = n->kind, .ends = n->ends, .until_ms = k->until_ms};
    str_copy(e->node, sizeof e->node, n->node);
    if (!same_boot)
        e->until_ms = loop_now_ms(x->loop) + (uint64_t)(left > 0 ? left : 0);
    x->n++;
}

static int load(struct notices *x, struct err *err)
{
    AUTO_ARENA a = arena_create(0);
    struct notices_kept *k = NULL;
    struct err why;
    AUTO_BUF b;

    buf_init(&b, FILE_MAX);
    int rc = file_read(x->loop, x->path, FILE_MAX, &b, &why);
    if (rc == E_NOTFOUND)
        return 0;
    if (rc < 0 || (rc = wire_read(notices_kept, slice_make(b.p, b.n), a, &k, &why)) < 0)
        return err_set(err, rc,
                       "%s cannot be read (%s): remove it, and announce again what it said",
                       x->path, why.text);
    for (uint32_t i = 0; i < k->n_notices; i++)
        entry_load(x, &k->notices[i], strcmp(k->boot, x->boot) == 0);
    return 0;
}

int notices_open(struct notices *x, struct loop *l, const char *state, const char *boot,
                 const struct notices_owner *owner, void *arg, struct err *err)
{
    *x = (struct notices){.loop = l, .owner = owner, .arg = arg};
    list_init(&x->callers);
    (void)snprintf(x->path, sizeof x->path, "%s/notices.json", state);
    str_copy(x->boot, sizeof x->boot, boot);
    x->v = mem_zalloc(NOTICES_MAX * sizeof *x->v);
    int rc = load(x, err);
    return rc < 0 ? rc : notice_door_open(x, state, err);
}

void notices_close(struct notices *x)
{
    if (!x->loop)
        return;
    notice_door_close(x);
    mem_free(x->v);
    *x = (struct notices){0};
}

bool notices_of(const struct notices *x, const char *name, struct wire_notice *ret)
{
    const char *dot = strrchr(name, '.');
    const struct notice_entry *e = entry_find(x, dot ? dot + 1 : name);
    uint64_t now = loop_now_ms(x->loop);

    if (!e)
        e = entry_find(x, "");
    if (!e)
        return false;
    *ret = (struct wire_notice){.node = name, .kind = e->kind, .ends = e->ends};
    ret->in_ms = e->ends && e->until_ms > now ? e->until_ms - now : 0;
    return true;
}

static int settled(struct notices *x, const struct notice_entry *was, size_t n_was, struct err *err)
{
    int rc = keep(x, err);

    if (rc < 0) {
        memcpy(x->v, was, n_was * sizeof *was);
        x->n = n_was;
        return rc;
    }
    x->owner->changed(x->arg);
    return 0;
}

int notices_put(struct notices *x, const struct wire_notice *n, struct err *err)
{
    AUTO_ARENA a = arena_create(0);
    struct notice_entry *e = entry_find(x, n->node), *was;
    size_t n_was = x->n;

    if (*n->node && (strlen(n->node) >= sizeof e->node || !x->owner->has_node(n->node, x->arg)))
        return err_set(err, E_NOTFOUND, "this agent's inventory has no node \"%.63s\"", n->node);
    if (!n->ends && n->kind != NOTICE_REBALANCE)
        return err_set(err, E_USAGE, "a notice of kind %s says when: --in SPAN",
                       notice_kind_text(n->kind));
    if (!e && x->n == NOTICES_MAX)
        return err_set(err, E_LIMIT, "more than %d notices", NOTICES_MAX);
    was = arena_memdup(a, x->v, NOTICES_MAX * sizeof *was);
    if (!e)
        e = &x->v[x->n++];
    *e = (struct notice_entry){
        .kind = n->kind, .ends = n->ends, .until_ms = loop_now_ms(x->loop) + n->in_ms};
    str_copy(e->node, sizeof e->node, n->node);
    log_event(LOG_WARN, "agent.notice",
              LOG_FIELDS({"kind", log_str(notice_kind_text(n->kind))}, {"node", log_str(e->node)},
                         {"inMs", log_u64(n->in_ms)}));
    return settled(x, was, n_was, err);
}

int notices_clear(struct notices *x, const char *node, struct err *err)
{
    AUTO_ARENA a = arena_create(0);
    struct notice_entry *was = arena_memdup(a, x->v, NOTICES_MAX * sizeof *was);
    size_t n_was = x->n, kept = 0;

    for (size_t i = 0; *node && i < n_was; i++)
        if (strcmp(was[i].node, node) != 0)
            x->v[kept++] = was[i];
    if (kept == n_was)
        return 0;
    x->n = kept;
    log_event(LOG_INFO, "agent.notice_withdrawn", LOG_FIELDS({"node", log_str(node)}));
    return settled(x, was, n_was, err);
}
