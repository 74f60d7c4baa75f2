/* An operator's act: members step over an entry that they cannot apply. It is no command, since the
 * entry stands in the log where a command cannot; each member does it by the same words, which the
 * operator gave it (raft/core_skip.c). It must depend on nothing but the state and those words. */
#include "controlplane/store/store_internal.h"

/* It takes the number that the entry would have had, so that members which applied it instead are
 * compared with those that did not. */
void store_skip(struct root **root, const struct entry_skip *s)
{
    const struct kind *k = kind_by_id(KIND_EVENT);
    struct root *w = root_fork(*root);
    AUTO_ARENA a = arena_create(0);
    struct result res = {0};
    struct err e = {0};
    struct txn t = {.w = w, .now = w->time, .a = a, .res = &res, .err = &e, .user = s->by};
    const char *name =
        arena_printf(a, "entry-%llu.%.16s", (unsigned long long)s->index, s->checksum);
    const struct object *old = root_get(w, KIND_EVENT, "hanse-system", name);
    struct event *b = arena_new(a, struct event);

    w->index = s->index;
    w->number++;
    b->metadata = txn_meta(&t, "hanse-system", name);
    b->involvedObject = arena_new(a, struct object_ref);
    b->involvedObject->kind = "LogEntry";
    b->involvedObject->name = name;
    b->reason = "EntrySkipped";
    b->message = arena_printf(a, "entry %llu with checksum %s was stepped over by %s at %s: %s",
                              (unsigned long long)s->index, s->checksum, s->by, s->at, s->reason);
    b->type = "Warning";
    b->count = 1;
    b->firstTimestamp = b->lastTimestamp = w->time;
    (void)txn_put(&t, k, old, b);
    quotas_settle(&t);
    (void)root_unref(*root);
    *root = w;
}
