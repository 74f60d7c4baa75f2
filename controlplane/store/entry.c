/* Entries of the log: a header and a batch of commands; and apply, which takes them in.
 *
 *   u32 magic  u16 version  u16 0  u64 number  u64 term  i64 time  u32 commands  u32 crc32
 *   u32 bytes  u32 0
 *   then for each command: u32 length, bytes; zeroes up to a multiple of 8 (libraft asks for that)
 *
 * apply must never fail because of what a command says: that is a result. It refuses an entry only
 * when it cannot be what a leader proposed, and then changes nothing. */
#include "controlplane/store/store_internal.h"

#include <stdio.h>
#include <zlib.h>

#define ENTRY_MAGIC 0x31454e48u /* "HNE1" */
#define ENTRY_VERSION 1
#define ENTRY_HEAD 48
enum { AT_NUMBER = 8, AT_TERM = 16, AT_TIME = 24, AT_COUNT = 32, AT_CRC = 36, AT_BYTES = 40 };

static uint32_t entry_crc(const unsigned char *p, size_t n)
{
    static const unsigned char zero[4];
    uLong crc = crc32(0, p, AT_CRC);

    crc = crc32(crc, zero, sizeof zero);
    return (uint32_t)crc32(crc, p + AT_CRC + 4, (uInt)(n - AT_CRC - 4));
}

void entry_begin(struct buf *b, const struct entry_head *h)
{
    unsigned char head[ENTRY_HEAD] = {0};

    PRE(b->n == 0);
    le_put_u32(head, ENTRY_MAGIC);
    le_put_u16(head + 4, ENTRY_VERSION);
    le_put_u64(head + AT_NUMBER, h->number);
    le_put_u64(head + AT_TERM, h->term);
    le_put_u64(head + AT_TIME, (uint64_t)h->time_ms);
    buf_add(b, head, sizeof head);
}

void entry_add(struct buf *b, struct slice command)
{
    unsigned char n[4];

    le_put_u32(n, (uint32_t)command.n);
    buf_add(b, n, sizeof n);
    buf_add(b, command.p, command.n);
    if (b->failed)
        return;
    unsigned char *p = (unsigned char *)b->p;
    le_put_u32(p + AT_COUNT, le_get_u32(p + AT_COUNT) + 1);
}

void entry_end(struct buf *b)
{
    static const char zero[8];

    if (b->failed)
        return;
    PRE(b->n >= ENTRY_HEAD);
    le_put_u32((unsigned char *)b->p + AT_BYTES, (uint32_t)b->n);
    buf_add(b, zero, (8 - b->n % 8) % 8);
    if (!b->failed)
        le_put_u32((unsigned char *)b->p + AT_CRC, entry_crc((unsigned char *)b->p, b->n));
}

/* Header and framing of all commands; *ret_bytes is the length without padding. */
static int entry_check(struct slice in, struct entry_head *ret, uint32_t *ret_count,
                       size_t *ret_bytes, struct err *err)
{
    const unsigned char *p = in.p;

    if (in.n < ENTRY_HEAD || in.n > LIMIT_ENTRY_MAX_BYTES || in.n % 8 != 0)
        return err_set(err, E_CORRUPT, "log entry of %zu bytes", in.n);
    if (le_get_u32(p) != ENTRY_MAGIC)
        return err_set(err, E_CORRUPT, "log entry of another program");
    size_t bytes = le_get_u32(p + AT_BYTES);
    if (bytes < ENTRY_HEAD || bytes > in.n || in.n - bytes >= 8 ||
        le_get_u32(p + AT_CRC) != entry_crc(p, in.n))
        return err_set(err, E_CORRUPT, "log entry is torn: its checksum does not match");
    /* Whole, and yet unknown: the head and its checksum are the same in all versions. */
    if ((p[4] | p[5] << 8) != ENTRY_VERSION)
        return err_set(err, E_NOTIMPL,
                       "a newer version of hanse is needed: log entry of version %d, this one "
                       "knows %d",
                       p[4] | p[5] << 8, ENTRY_VERSION);
    uint32_t count = le_get_u32(p + AT_COUNT), seen = 0;
    size_t at = ENTRY_HEAD;
    for (; bytes - at >= 4 && le_get_u32(p + at) <= bytes - at - 4; seen++)
        at += 4 + le_get_u32(p + at);
    if (at != bytes || seen != count)
        return err_set(err, E_CORRUPT, "log entry holds %u commands where it says %u", seen, count);
    *ret = (struct entry_head){le_get_u64(p + AT_NUMBER), le_get_u64(p + AT_TERM),
                               (int64_t)le_get_u64(p + AT_TIME)};
    *ret_count = count;
    *ret_bytes = bytes;
    return 0;
}

/* ---- one command ---- */
static int dispatch(struct txn *t, const union command *c)
{
    switch (c->head.type) {
    case CMD_WRITE:
        return apply_write(t, &c->write);
    case CMD_REQUEST:
        return apply_request(t, &c->request);
    case CMD_PLACE:
        return apply_place(t, &c->place);
    case CMD_RUN:
        return apply_run(t, &c->run);
    case CMD_FACTS:
        return apply_facts(t, &c->facts);
    case CMD_MEMBER:
        return apply_member(t, &c->member);
    case CMD_REMOVE:
        return apply_remove(t, &c->remove);
    case CMD_MIGRATE:
        return apply_migrate(t, &c->migrate);
    case CMD_ARCHIVE:
        return apply_archive(t, &c->archive);
    case CMD_RECOVER:
        return apply_recover(t, &c->recover);
    case CMD_COLLECT:
        return apply_collect(t, &c->collect);
    case CMD_ARRAY:
        return apply_array(t, &c->array);
    case CMD_MACHINE:
        return apply_machine(t, &c->machine);
    default:
        return err_set(t->err, E_NOTIMPL, "command type %d is not known to this version",
                       (int)c->head.type);
    }
}

static void result_text(struct result *res, int code, const struct err *err)
{
    res->code = code;
    if (code == 0)
        return;
    str_copy(res->text, sizeof res->text, err->code == code ? err->text : err_info(code)->sentence);
    str_copy(res->field, sizeof res->field, err->code == code ? err->field : "");
}

/* All or nothing: the command works on a fork, which takes the state's place when it succeeds. `a`
 * is scratch, and holds nothing of c. trying: a user's write in a dry run. */
static void command_apply(struct root **state, const union command *c, bool trying, struct arena *a,
                          struct result *res)
{
    struct err e = {0};
    uint64_t rv = 0;

    memset(res, 0, sizeof *res);
    str_copy(res->request_id, sizeof res->request_id, c->head.request_id);
    if (request_known(*state, c, res))
        return;
    if (!trying && c->head.type == CMD_REQUEST && rates_refuse(*state, &c->request, res)) {
        res->rv = (*state)->rv;
        request_keep(*state, c, res);
        return;
    }
    struct txn t = {.w = root_fork(*state),
                    .now = (*state)->time,
                    .a = a,
                    .res = res,
                    .err = &e,
                    .user = c->head.user,
                    .by_user = trying || c->head.type == CMD_REQUEST,
                    .sliced = root_feature_level(*state) >= FEATURE_GRANTS,
                    .objects = LIMIT_APPLY_MAX_OBJECTS};
    int r = dispatch(&t, c);
    if (r == 0 && !t.failed.code && !t.sliced)
        txn_collect_all(&t);
    rv = t.w->rv; /* of what was asked for; what the quotas tell of it comes behind */
    if (r == 0 && !t.failed.code)
        quotas_settle(&t);
    if (t.failed.code) {
        e = t.failed;
        r = e.code;
    }
    result_text(res, r, &e);
    arena_reset(a);
    if (r == 0) {
        struct root *old = *state;
        *state = t.w;
        t.w = old;
    } else {
        res->unchanged = false;
    }
    (void)root_unref(t.w);
    res->rv = r == 0 ? rv : (*state)->rv;
    request_keep(*state, c, res);
}

/* The id of a command that cannot be decoded, so that whoever waits for it is told. */
static void undecoded(struct slice in, struct result *res)
{
    const unsigned char *p = in.p;
    struct slice v;
    uint16_t tag;

    if (in.n < 2)
        return;
    for (struct wire w = {p + 2, in.n - 2}; record_next(&w, &tag, &v) > 0;)
        if (tag == 1)
            (void)record_get_str(v, res->request_id, sizeof res->request_id);
}

int store_apply(struct root **root, uint64_t index, uint64_t term, struct slice entry,
                void (*each)(const struct result *r, void *arg), void *arg, struct err *err)
{
    struct entry_head h = {0};
    uint32_t count = 0;
    size_t bytes = 0, at = ENTRY_HEAD;
    AUTO_ARENA a = arena_create(0);
    AUTO_ARENA scratch = arena_create(STORE_SCRATCH_MAX_BYTES);

    int r = entry_check(entry, &h, &count, &bytes, err);
    if (r < 0)
        return r;
    if (h.number <= (*root)->number || h.term < (*root)->term || h.term > term ||
        index <= (*root)->index)
        return err_set(err, E_CORRUPT,
                       "entry %llu of term %llu at index %llu (term %llu) follows entry %llu of "
                       "term %llu at index %llu: "
                       "the log is not the one that this state came from: keep the data directory, "
                       "and let this member join with another",
                       (unsigned long long)h.number, (unsigned long long)h.term,
                       (unsigned long long)index, (unsigned long long)term,
                       (unsigned long long)(*root)->number, (unsigned long long)(*root)->term,
                       (unsigned long long)(*root)->index);
    struct root *w = root_fork(*root);
    w->index = index;
    w->number = h.number;
    w->term = h.term;
    if (h.time_ms > w->time)
        w->time = h.time_ms;
    for (uint32_t i = 0; i < count; i++) {
        const unsigned char *p = (const unsigned char *)entry.p + at;
        struct slice in = slice_make(p + 4, le_get_u32(p));
        union command *c = NULL;
        struct result res = {0};
        struct err e = {0};

        at += 4 + in.n;
        arena_reset(a);
        arena_set_soft(a, true);
        r = command_decode(in, a, &c, &e);
        arena_set_soft(a, false);
        if (r == E_NOTIMPL) { /* others know it: going on would part us from them */
            (void)root_unref(w);
            return err_set(err, E_NOTIMPL, "%s", e.text);
        }
        if (r < 0) {
            undecoded(in, &res);
            result_text(&res, r, &e);
            res.rv = w->rv;
        } else {
            command_apply(&w, c, false, scratch, &res);
            command_release(c);
        }
        if (each)
            each(&res, arg);
    }
    (void)root_unref(*root);
    *root = w;
    return 0;
}

void entry_peek(struct slice in, struct entry_head *ret)
{
    const unsigned char *p = in.p;

    *ret = (struct entry_head){0};
    if (in.n >= ENTRY_HEAD)
        *ret = (struct entry_head){le_get_u64(p + AT_NUMBER), le_get_u64(p + AT_TERM),
                                   (int64_t)le_get_u64(p + AT_TIME)};
}

void store_try(const struct root *root, int64_t now_ms, const union command *c, struct result *ret,
               struct root **ret_after)
{
    struct root *w = root_fork(root);
    AUTO_ARENA a = arena_create(0);
    AUTO_ARENA scratch = arena_create(STORE_SCRATCH_MAX_BYTES);
    AUTO_BUF b;
    union command *copy = NULL;
    struct err e = {0};

    buf_init(&b, LIMIT_COMMAND_MAX_BYTES);
    if (now_ms > w->time)
        w->time = now_ms;
    command_encode(c, &b); /* through bytes, as it would be in the log */
    arena_set_soft(a, true);
    int r = b.failed ? err_set(&e, E_TOOLARGE, "the command is larger than %d bytes",
                               (int)LIMIT_COMMAND_MAX_BYTES)
                     : command_decode(slice_make(b.p, b.n), a, &copy, &e);
    if (r < 0) {
        memset(ret, 0, sizeof *ret);
        result_text(ret, r, &e);
    } else {
        INV(copy);
        copy->head.request_id[0] = 0; /* nothing is remembered, nothing answered from memory */
        command_apply(&w, copy, true, scratch, ret);
        command_release(copy);
    }
    if (ret_after)
        *ret_after = w;
    else
        (void)root_unref(w);
}

/* ---- an operator's act: members step over an entry that they cannot apply ---- */
/* It is no command, since the entry stands in the log where a command cannot; each member does it
 * by the same words, which the operator gave it (raft/core_skip.c), and by nothing but them and the
 * state. It takes the number that the entry would have had, so that members which applied it
 * instead are compared with those that did not. */
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
