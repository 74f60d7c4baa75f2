/* A state that begins anew, offline: restored from a backup, or recovered by one member of a
 * cluster that has lost its majority. What was acknowledged after it is not in it, and runs may
 * have gone on since. Entries that store_apply takes mark it so, like the log of a running cluster
 * (leader/doubt/back.c). This file must never decide by itself what an entry would decide. */
#include "controlplane/store/store_internal.h"

#include <inttypes.h>
#include <stdio.h>

struct anew {
    struct root *root; /* ours */
    const struct store_anew *how;
    struct store_anew_found found;
    struct buf entry, command;
    unsigned n; /* commands in it */
    uint64_t made;
    struct err refused;
};

static void answered(const struct result *r, void *arg)
{
    struct anew *x = arg;

    if (r->code && !x->refused.code)
        (void)err_set(&x->refused, r->code, "%s", r->text);
}

static int flush(struct anew *x, struct err *err)
{
    uint64_t index = root_index(x->root) + 1;
    int r = 0;

    if (!x->n)
        return 0;
    entry_end(&x->entry);
    INV(!x->entry.failed);
    x->n = 0;
    r = store_apply(&x->root, index, x->how->term, slice_make(x->entry.p, x->entry.n), answered, x,
                    err);
    while (tree_reap(4096))
        ;
    if (!r && x->refused.code)
        r = err_set(err, x->refused.code, "the state cannot begin anew: %s", x->refused.text);
    return r;
}

static int add(struct anew *x, union command *c, struct err *err)
{
    if (!x->n) {
        buf_reset(&x->entry);
        entry_begin(&x->entry, &(struct entry_head){.number = root_number(x->root) + 1,
                                                    .term = x->how->term,
                                                    .time_ms = root_time(x->root)});
    }
    (void)snprintf(c->head.request_id, sizeof c->head.request_id, "anew-%" PRIu64 "-%" PRIu64,
                   root_number(x->root), ++x->made);
    (void)snprintf(c->head.user, sizeof c->head.user, "hanse:recovery");
    buf_reset(&x->command);
    command_encode(c, &x->command);
    INV(!x->command.failed);
    entry_add(&x->entry, slice_make(x->command.p, x->command.n));
    return ++x->n == LIMIT_ENTRY_COMMANDS_MAX ? flush(x, err) : 0;
}

static int members(struct anew *x, struct err *err)
{
    struct member_info all[64];
    size_t n = root_members(x->root, all, sizeof all / sizeof *all);
    union command c = {.member = {.head = {.type = CMD_MEMBER}, .member = x->how->member}};
    int r = add(x, &c, err);

    for (size_t i = 0; i < n && i < sizeof all / sizeof *all && !r; i++) {
        if (all[i].id == x->how->member.id)
            continue;
        c.member.member = (struct member_info){.id = all[i].id};
        c.member.remove = true;
        x->found.members++;
        r = add(x, &c, err);
    }
    return r;
}

struct next {
    const struct object *o;
    uint64_t ended;
};

static bool next_each(const struct object *o, void *arg)
{
    const struct workload_status *s = object_as(o, workload)->status;
    struct next *x = arg;

    if (!s || phase_final(s->phase)) {
        x->ended++;
        return true;
    }
    x->o = o;
    return false;
}

static int workloads(struct anew *x, struct err *err)
{
    struct root *all = root_ref(x->root); /* the entries change it */
    char ns[64] = "", name[256] = "";
    int r = 0;

    for (bool more = true; more && !r;) {
        struct next next = {0};

        root_scan(all, KIND_WORKLOAD, NULL, *name ? ns : NULL, *name ? name : NULL, next_each,
                  &next);
        x->found.kept += next.ended;
        more = next.o != NULL;
        if (!more)
            break;
        union command c = {.recover = {.head = {.type = CMD_RECOVER}, .step = RECOVER_LOST}};
        str_copy(ns, sizeof ns, next.o->meta->namespace_);
        str_copy(name, sizeof name, next.o->meta->name);
        str_copy(c.recover.ns, sizeof c.recover.ns, ns);
        str_copy(c.recover.name, sizeof c.recover.name, name);
        str_copy(c.recover.uid, sizeof c.recover.uid, next.o->meta->uid);
        x->found.lost++;
        r = add(x, &c, err);
    }
    (void)root_unref(all);
    return r;
}

int store_begin_anew(struct root **root, const struct store_anew *how, struct store_anew_found *ret,
                     struct err *err)
{
    struct anew x = {.root = root_ref(*root), .how = how};
    union command begin = {.recover = {.head = {.type = CMD_RECOVER},
                                       .step = RECOVER_BEGIN,
                                       .rv = root_rv(*root) + RECOVER_RV_JUMP,
                                       .known = how->known}};
    int r;

    PRE(how->term >= root_term(*root) && how->member.id > 0);
    str_copy(begin.recover.cluster_uid, sizeof begin.recover.cluster_uid, how->cluster_uid);
    buf_init(&x.entry, LIMIT_ENTRY_MAX_BYTES);
    buf_init(&x.command, LIMIT_COMMAND_MAX_BYTES);
    r = members(&x, err); /* first: what follows is of this version */
    if (!r)
        r = add(&x, &begin, err);
    if (!r)
        r = workloads(&x, err);
    if (!r)
        r = flush(&x, err);
    buf_fini(&x.entry);
    buf_fini(&x.command);
    if (r) {
        (void)root_unref(x.root);
        return r;
    }
    (void)root_unref(*root);
    *root = x.root;
    if (ret)
        *ret = x.found;
    return 0;
}
