/* Commands as bytes: u8 type, u8 version, then fields (record.c). Tables say where each field lies
 * and what is nested in it, so that encoding and decoding cannot disagree. This file must never
 * trust what it decodes: it checks lengths, counts and enums, and apply checks the meaning. */
#include "controlplane/store/store_internal.h"

#include <math.h>

#define COMMAND_VERSION 1
#define FACTS_NODES_MAX 50000
#define MOVES_MAX 4096 /* of one plan */

enum record_type { W_STR, W_U64, W_I64, W_U32, W_INT, W_BOOL, W_F64 };
struct record_field {
    uint16_t tag;
    enum record_type type;
    size_t off, size;
};
#define FIELD(st, tag_, type_, m)                                                                  \
    {                                                                                              \
        (tag_), (type_), offsetof(struct st, m), sizeof(((struct st *)0)->m)                       \
    }
#define HEAD(st) FIELD(st, 1, W_STR, head.request_id), FIELD(st, 2, W_STR, head.user)

static const struct record_field write_fields[] = {
    HEAD(write_cmd), FIELD(write_cmd, 10, W_STR, revision), FIELD(write_cmd, 11, W_BOOL, apply),
    FIELD(write_cmd, 12, W_BOOL, if_absent), FIELD(write_cmd, 13, W_STR, as)};
static const struct record_field request_fields[] = {
    FIELD(request_cmd, 1, W_STR, write.head.request_id),
    FIELD(request_cmd, 2, W_STR, write.head.user),
    FIELD(request_cmd, 10, W_STR, write.revision),
    FIELD(request_cmd, 11, W_BOOL, write.apply),
    FIELD(request_cmd, 12, W_BOOL, write.if_absent),
    FIELD(request_cmd, 13, W_STR, key),
    FIELD(request_cmd, 14, W_STR, fingerprint),
    FIELD(request_cmd, 15, W_BOOL, again),
    FIELD(request_cmd, 16, W_BOOL, part),
    FIELD(request_cmd, 17, W_U32, refusal),
    FIELD(request_cmd, 18, W_STR, field),
    FIELD(request_cmd, 19, W_STR, text),
    FIELD(request_cmd, 20, W_U64, member),
    FIELD(request_cmd, 21, W_U64, session),
    FIELD(request_cmd, 22, W_U64, number),
    FIELD(request_cmd, 23, W_U64, floor),
    FIELD(request_cmd, 24, W_STR, old_id),
    FIELD(request_cmd, 25, W_STR, write.as)};
static const struct record_field op_fields[] = {
    FIELD(write_op, 1, W_INT, verb),       FIELD(write_op, 2, W_INT, kind),
    FIELD(write_op, 3, W_STR, ns),         FIELD(write_op, 4, W_STR, name),
    FIELD(write_op, 5, W_STR, uid),        FIELD(write_op, 6, W_U64, rv),
    FIELD(write_op, 7, W_BOOL, graced),    FIELD(write_op, 8, W_I64, grace_seconds),
    FIELD(write_op, 9, W_INT, propagation)};
static const struct record_field place_fields[] = {HEAD(place_cmd),
                                                   FIELD(place_cmd, 10, W_STR, ns),
                                                   FIELD(place_cmd, 11, W_STR, name),
                                                   FIELD(place_cmd, 12, W_STR, uid),
                                                   FIELD(place_cmd, 13, W_I64, epoch),
                                                   FIELD(place_cmd, 14, W_U64, rv_read),
                                                   FIELD(place_cmd, 15, W_STR, queue)};
#define RUN(tag, type, m) FIELD(run_cmd, tag, type, m)
static const struct record_field run_fields[] = {
    RUN(1, W_STR, head.request_id), RUN(2, W_STR, head.user),  RUN(10, W_STR, ns),
    RUN(11, W_STR, name),           RUN(12, W_STR, uid),       RUN(13, W_I64, epoch),
    RUN(14, W_I64, try_),           RUN(15, W_INT, step),      RUN(16, W_I64, exit_code),
    RUN(17, W_I64, term_signal),    RUN(18, W_INT, proof),     RUN(19, W_STR, reason),
    RUN(20, W_STR, message),        RUN(21, W_BOOL, requeue),  RUN(40, W_STR, agent),
    RUN(41, W_BOOL, lease_held),    RUN(42, W_I64, behind_ms), RUN(43, W_I64, rank),
    RUN(44, W_STR, instance),       RUN(45, W_I64, unlisted_ms)};
#undef RUN
#define FACT(tag, type, m) FIELD(facts_cmd, tag, type, m)
static const struct record_field facts_fields[] = {
    HEAD(facts_cmd), FACT(10, W_STR, target), FACT(11, W_STR, session),
    FACT(12, W_BOOL, reach_told), FACT(13, W_BOOL, reachable), FACT(14, W_STR, why),
    FACT(15, W_BOOL, complete), FACT(16, W_BOOL, gone), FACT(17, W_BOOL, noticed),
    FACT(40, W_STR, agent), FACT(41, W_STR, rival), FACT(42, W_STR, part),
    FACT(43, W_BOOL, part_reached), FACT(44, W_STR, part_why), FACT(45, W_STR, denies),
    FACT(46, W_BOOL, refused_told), FACT(47, W_STR, refused), FACT(48, W_BOOL, unread_told),
    FACT(49, W_STR, unread)};
#undef FACT
static const struct record_field member_fields[] = {
    HEAD(member_cmd),
    FIELD(member_cmd, 10, W_U64, member.id),
    FIELD(member_cmd, 11, W_STR, member.address),
    FIELD(member_cmd, 12, W_STR, member.api_address),
    FIELD(member_cmd, 13, W_STR, member.name),
    FIELD(member_cmd, 14, W_U32, member.feature_level),
    FIELD(member_cmd, 15, W_BOOL, remove),
    FIELD(member_cmd, 16, W_STR, cluster_uid)};
static const struct record_field remove_fields[] = {HEAD(remove_cmd)};
static const struct record_field archive_fields[] = {HEAD(archive_cmd),
                                                     FIELD(archive_cmd, 10, W_U64, close_bytes),
                                                     FIELD(archive_cmd, 11, W_I64, close_after_ms)};
#define REC(tag, type, m) FIELD(recover_cmd, tag, type, m)
static const struct record_field recover_fields[] = {
    HEAD(recover_cmd), REC(10, W_INT, step), REC(11, W_STR, cluster_uid), REC(12, W_U64, rv),
    REC(13, W_STR, ns), REC(14, W_STR, name), REC(15, W_STR, uid), REC(16, W_I64, epoch),
    REC(17, W_I64, try_), REC(18, W_BOOL, ended), REC(19, W_BOOL, requeue),
    REC(20, W_I64, exit_code), REC(21, W_I64, term_signal), REC(22, W_INT, proof),
    REC(23, W_STR, reason), REC(24, W_STR, message), REC(25, W_U64, known)};
#undef REC
static const struct record_field collect_fields[] = {HEAD(collect_cmd),
                                                     FIELD(collect_cmd, 10, W_U32, objects),
                                                     FIELD(collect_cmd, 11, W_U64, bytes)};
static const struct record_field array_fields[] = {
    HEAD(array_cmd), FIELD(array_cmd, 10, W_STR, ns), FIELD(array_cmd, 11, W_STR, name),
    FIELD(array_cmd, 12, W_STR, uid), FIELD(array_cmd, 13, W_U32, objects)};
#define MIG(tag, type, m) FIELD(migrate_cmd, tag, type, m)
static const struct record_field migrate_fields[] = {
    HEAD(migrate_cmd), MIG(10, W_INT, step), MIG(11, W_STR, ns), MIG(12, W_STR, name),
    MIG(13, W_STR, uid), MIG(14, W_STR, for_ns), MIG(15, W_STR, for_name), MIG(16, W_STR, for_uid),
    MIG(17, W_I64, for_epoch), MIG(18, W_INT, outcome), MIG(19, W_STR, reason),
    MIG(20, W_STR, message)};
#undef MIG
#define MACH(tag, type, m) FIELD(machine_cmd, tag, type, m)
static const struct record_field machine_fields[] = {
    HEAD(machine_cmd), MACH(10, W_INT, step), MACH(11, W_STR, target), MACH(12, W_STR, target_uid),
    MACH(13, W_STR, pool), MACH(14, W_I64, number), MACH(15, W_STR, name), MACH(16, W_STR, uid),
    MACH(17, W_STR, reason), MACH(18, W_STR, message)};
#undef MACH
static const struct record_field begin_fields[] = {
    FIELD(move_begin, 1, W_STR, ns),    FIELD(move_begin, 2, W_STR, workload),
    FIELD(move_begin, 3, W_STR, uid),   FIELD(move_begin, 4, W_I64, epoch),
    FIELD(move_begin, 5, W_INT, cause), FIELD(move_begin, 6, W_F64, lost_gpu_seconds),
    FIELD(move_begin, 7, W_F64, cost),  FIELD(move_begin, 8, W_F64, saving)};

/* What lies nested in a record. Tags are the same numbers in all commands. */
enum { TAG_OP = 50, TAG_OBJECT, TAG_DECISION, TAG_PLACEMENT, TAG_CHECKPOINT, TAG_NODE };
enum { TAG_BEGIN = 56, TAG_NOMINATED, TAG_GRANT, TAG_PAUSE, TAG_PENDING, TAG_SAVE, TAG_WORKER };
enum { TAG_TOLD = 63, TAG_USE };
enum nested_type {
    N_BODY,    /* a pointer to a body */
    N_BODIES,  /* a list of bodies, and its count */
    N_RECORDS, /* a list of records, and its count */
    N_OBJECT   /* of a write_op: its kind is told beside it */
};
struct nested_field {
    uint16_t tag;
    enum nested_type type;
    size_t off, off_n;                /* of the pointer, of the count */
    const struct schema *schema;      /* of bodies */
    const struct record_desc *record; /* of records: these hold bodies and objects only */
    uint32_t max;                     /* of a list */
    const char *what;
};
struct record_desc {
    size_t size;
    const struct record_field *fields;
    size_t n;
    const struct nested_field *nested;
    size_t n_nested;
    int (*check)(const void *record, struct err *err); /* or NULL; what nested fields rest on */
};
#define BODY(st, tag_, body_, m)                                                                   \
    {                                                                                              \
        .tag = (tag_), .type = N_BODY, .off = offsetof(struct st, m), .schema = &schema_##body_    \
    }
#define LIST(st, tag_, m, max_, what_)                                                             \
    .tag = (tag_), .off = offsetof(struct st, m), .off_n = offsetof(struct st, n), .max = (max_),  \
    .what = (what_)
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define RECORD(st, f, nest)                                                                        \
    .size = sizeof(struct st), .fields = (f), .n = COUNT(f), .nested = (nest),                     \
    .n_nested = COUNT(nest)

static int op_check(const void *record, struct err *err)
{
    const struct write_op *op = record;

    if (!kind_by_id(op->kind) || (int)op->verb < WRITE_CREATE || op->verb > WRITE_DELETE ||
        (unsigned)op->propagation > PROPAGATE_ORPHAN)
        return err_set(err, E_CORRUPT, "command: unknown kind, verb or propagation");
    return 0;
}

static const struct nested_field op_nested[] = {
    {.tag = TAG_OBJECT, .type = N_OBJECT, .off = offsetof(struct write_op, object)}};
static const struct record_desc op_desc = {RECORD(write_op, op_fields, op_nested),
                                           .check = op_check};
static const struct nested_field begin_nested[] = {
    BODY(move_begin, TAG_DECISION, decision_spec, decision),
    BODY(move_begin, TAG_PLACEMENT, placement, placement)};
static const struct record_desc begin_desc = {RECORD(move_begin, begin_fields, begin_nested)};

#define OPS(st, max_, what_)                                                                       \
    {                                                                                              \
        .type = N_RECORDS, .record = &op_desc, LIST(st, TAG_OP, ops, max_, what_)                  \
    }
static const struct nested_field write_nested[] = {
    OPS(write_cmd, LIMIT_APPLY_MAX_OBJECTS, "objects in one write")};
/* Its ops are those of the WRITE that it begins with. */
_Static_assert(offsetof(struct request_cmd, write) == 0, "a REQUEST begins with its WRITE");
static const struct nested_field remove_nested[] = {
    OPS(remove_cmd, LIMIT_APPLY_MAX_OBJECTS, "objects in one write")};
static const struct nested_field archive_nested[] = {
    OPS(archive_cmd, LIMIT_APPLY_MAX_OBJECTS, "objects in one ARCHIVE")};
static const struct nested_field recover_nested[] = {
    OPS(recover_cmd, LIMIT_APPLY_MAX_OBJECTS, "objects in one RECOVER"),
    BODY(recover_cmd, TAG_CHECKPOINT, run_checkpoint, checkpoint)};
static const struct nested_field place_nested[] = {
    BODY(place_cmd, TAG_DECISION, decision_spec, decision),
    BODY(place_cmd, TAG_PLACEMENT, placement, placement)};
static const struct nested_field run_nested[] = {
    {.type = N_BODIES,
     .schema = &schema_worker_status,
     LIST(run_cmd, TAG_WORKER, workers, LIMIT_GANG_MAX, "workers of one run")},
    BODY(run_cmd, TAG_CHECKPOINT, run_checkpoint, checkpoint),
    BODY(run_cmd, TAG_GRANT, lease_grant, grant),
    BODY(run_cmd, TAG_PAUSE, target_pause, pause),
    BODY(run_cmd, TAG_PENDING, run_pending, pending),
    BODY(run_cmd, TAG_SAVE, save_status, save),
    BODY(run_cmd, TAG_PLACEMENT, placement, seats),
    BODY(run_cmd, TAG_USE, gpu_use, use)};
static const struct nested_field facts_nested[] = {
    {.type = N_BODIES,
     .schema = &schema_node,
     LIST(facts_cmd, TAG_NODE, nodes, FACTS_NODES_MAX, "nodes at once")}};
static const struct nested_field migrate_nested[] = {
    {.type = N_RECORDS,
     .record = &begin_desc,
     LIST(migrate_cmd, TAG_BEGIN, begins, MOVES_MAX, "moves in one plan")},
    BODY(migrate_cmd, TAG_NOMINATED, placement, nominated)};

static const struct nested_field machine_nested[] = {
    OPS(machine_cmd, MACHINES_AT_ONCE, "machines at once"),
    BODY(machine_cmd, TAG_TOLD, machine_status, told),
    BODY(machine_cmd, TAG_PAUSE, target_pause, pause)};

struct command_desc {
    enum command_type type;
    struct record_desc record;
};
#define DESC(T, st)                                                                                \
    {                                                                                              \
        CMD_##T,                                                                                   \
        {                                                                                          \
            RECORD(st##_cmd, st##_fields, st##_nested)                                             \
        }                                                                                          \
    }
#define DESC_FLAT(T, st)                                                                           \
    {                                                                                              \
        CMD_##T,                                                                                   \
        {                                                                                          \
            .size = sizeof(struct st##_cmd), .fields = st##_fields, .n = COUNT(st##_fields)        \
        }                                                                                          \
    }
#define request_nested write_nested
static const struct command_desc commands[] = {
    DESC(REQUEST, request),      DESC(WRITE, write),
    DESC(PLACE, place),          DESC(RUN, run),
    DESC(FACTS, facts),          DESC(REMOVE, remove),
    DESC_FLAT(MEMBER, member),   DESC(MIGRATE, migrate),
    DESC(ARCHIVE, archive),      DESC(RECOVER, recover),
    DESC_FLAT(COLLECT, collect), DESC_FLAT(ARRAY, array),
    DESC(MACHINE, machine)};

static const struct command_desc *desc_of(int type)
{
    for (size_t i = 0; i < COUNT(commands); i++)
        if ((int)commands[i].type == type)
            return &commands[i];
    return NULL;
}

/* ---- what came when (features.def) ---- */
uint32_t command_feature_level(enum command_type type, int step)
{
    static const struct {
        enum command_type type;
        int step;
        uint32_t level;
    } rows[] = {
#define N(command, step, level) {CMD_##command, (step), FEATURE_##level},
#include "controlplane/store/features.def"
    };

    for (size_t i = 0; i < COUNT(rows); i++)
        if (rows[i].type == type && rows[i].step == step)
            return rows[i].level;
    return UINT32_MAX;
}

/* The number of its field `step`, where its type has one; 0 = none. */
static uint16_t step_tag(const struct command_desc *d)
{
    size_t at = d->type == CMD_RUN       ? offsetof(struct run_cmd, step)
                : d->type == CMD_MIGRATE ? offsetof(struct migrate_cmd, step)
                : d->type == CMD_RECOVER ? offsetof(struct recover_cmd, step)
                : d->type == CMD_MACHINE ? offsetof(struct machine_cmd, step)
                                         : 0;

    for (size_t i = 0; at && i < d->record.n; i++)
        if (d->record.fields[i].off == at)
            return d->record.fields[i].tag;
    return 0;
}

uint32_t command_needs(struct slice in)
{
    const unsigned char *p = in.p;
    const struct command_desc *d = in.n >= 2 ? desc_of(p[0]) : NULL;
    uint16_t want = d ? step_tag(d) : 0, tag;
    struct slice v;

    if (!d || !want)
        return d ? command_feature_level(d->type, 0) : UINT32_MAX;
    for (struct wire w = {p + 2, in.n - 2}; record_next(&w, &tag, &v) > 0;)
        if (tag == want)
            return record_get_u64(v) <= INT32_MAX
                       ? command_feature_level(d->type, (int)record_get_u64(v))
                       : UINT32_MAX;
    return command_feature_level(d->type, 0);
}

/* ---- flat fields ---- */
static uint64_t u64_at(const void *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

static void fields_encode(const struct record_field *f, size_t n, const void *base, struct buf *out)
{
    for (; n > 0; n--, f++) {
        const char *at = (const char *)base + f->off;

        switch (f->type) {
        case W_STR:
            record_str(out, f->tag, at);
            break;
        case W_U64:
        case W_I64:
        case W_F64: /* its bits */
            record_u64(out, f->tag, u64_at(at));
            break;
        case W_U32:
        case W_INT:
            record_u64(out, f->tag, *(const uint32_t *)(const void *)at);
            break;
        case W_BOOL:
            record_u64(out, f->tag, *(const bool *)(const void *)at);
            break;
        }
    }
}

/* 1 when the tag is one of these, 0 when not. */
static int field_decode(const struct record_field *f, size_t n, void *base, uint16_t tag,
                        struct slice v, struct err *err)
{
    for (; n > 0 && f->tag != tag; n--, f++)
        ;
    if (n == 0)
        return 0;
    char *at = (char *)base + f->off;
    if (f->type == W_STR) {
        if (!record_get_str(v, at, f->size))
            return err_set(err, E_CORRUPT, "command: field %u is longer than %zu bytes", tag,
                           f->size - 1);
        return 1;
    }
    uint64_t u = record_get_u64(v);
    if (v.n != 8 || ((f->type == W_U32 || f->type == W_INT) && u > INT32_MAX) ||
        (f->type == W_BOOL && u > 1))
        return err_set(err, E_CORRUPT, "command: field %u holds no such number", tag);
    if (f->type == W_BOOL)
        *(bool *)(void *)at = u != 0;
    else if (f->type == W_U32 || f->type == W_INT)
        *(uint32_t *)(void *)at = (uint32_t)u;
    else
        memcpy(at, &u, sizeof u);
    if (f->type == W_F64 && !isfinite(*(const double *)(const void *)at))
        return err_set(err, E_CORRUPT, "command: field %u holds no such number", tag);
    return 1;
}

/* ---- what is nested ---- */
static void **pointer_at(const struct nested_field *f, const void *base)
{
    return (void **)(void *)((char *)(uintptr_t)base + f->off);
}

static uint32_t *count_at(const struct nested_field *f, const void *base)
{
    return (uint32_t *)(void *)((char *)(uintptr_t)base + f->off_n);
}

static size_t item_size(const struct nested_field *f)
{
    return f->type == N_BODIES ? f->schema->size : f->record->size;
}

static void body_encode(uint16_t tag, const struct schema *s, const void *body, struct buf *out)
{
    size_t at = record_open(out, tag);

    tlv_add(s, body, out);
    record_close(out, at);
}

static void record_encode(const struct record_desc *d, const void *base, struct buf *out);

static void nested_encode(const struct nested_field *f, const void *base, struct buf *out)
{
    const char *p = *pointer_at(f, base);
    size_t at;

    if (f->type == N_BODY && p)
        body_encode(f->tag, f->schema, p, out);
    if (f->type == N_OBJECT && p) {
        at = record_open(out, f->tag);
        object_encode((const struct object *)(const void *)p, out);
        record_close(out, at);
    }
    if (f->type == N_BODY || f->type == N_OBJECT)
        return;
    for (uint32_t i = 0; i < *count_at(f, base); i++, p += item_size(f)) {
        if (f->type == N_BODIES) {
            body_encode(f->tag, f->schema, p, out);
            continue;
        }
        at = record_open(out, f->tag);
        record_encode(f->record, p, out);
        record_close(out, at);
    }
}

/* Calls itself for the records in a command, and no deeper: those hold no records. */
static void record_encode(const struct record_desc *d, const void *base, struct buf *out)
{
    fields_encode(d->fields, d->n, base, out);
    for (size_t i = 0; i < d->n_nested; i++)
        nested_encode(&d->nested[i], base, out);
}

static int record_decode(const struct record_desc *d, struct slice in, void *base, struct arena *a,
                         struct err *err);

static int nested_decode(const struct nested_field *f, struct slice v, void *base, struct arena *a,
                         struct err *err)
{
    void **at = pointer_at(f, base), *body = NULL;
    int r;

    if (f->type == N_OBJECT) {
        if (v.n > LIMIT_OBJECT_MAX_BYTES)
            return err_set(err, E_TOOLARGE, "an object of %zu bytes; at most %d are allowed", v.n,
                           (int)LIMIT_OBJECT_MAX_BYTES);
        *at = object_unref(*at);
        struct object *o = NULL;
        r = object_decode(kind_by_id(((const struct write_op *)base)->kind), v, &o, err);
        *at = o;
        return r;
    }
    if (f->type == N_RECORDS) {
        void *item = (char *)*at + (size_t)(*count_at(f, base))++ * item_size(f);

        return record_decode(f->record, v, item, a, err);
    }
    if ((r = tlv_decode(f->schema, v, a, &body, err)) < 0)
        return r;
    if (f->type == N_BODY)
        *at = body;
    else
        memcpy((char *)*at + (size_t)(*count_at(f, base))++ * item_size(f), body, item_size(f));
    return 0;
}

static uint32_t count_tags(struct slice in, uint16_t what)
{
    struct wire w = {in.p, in.n};
    struct slice v;
    uint16_t tag;
    uint32_t n = 0;

    while (record_next(&w, &tag, &v) > 0)
        n += tag == what;
    return n;
}

/* Room for its lists. */
static int rooms_make(const struct record_desc *d, struct slice in, void *base, struct arena *a,
                      struct err *err)
{
    for (size_t i = 0; i < d->n_nested; i++) {
        const struct nested_field *f = &d->nested[i];

        if (f->type != N_BODIES && f->type != N_RECORDS)
            continue;
        uint32_t n = count_tags(in, f->tag);
        if (n > f->max)
            return err_set(err, E_TOOLARGE, "%u %s; at most %u are allowed", n, f->what, f->max);
        *pointer_at(f, base) = arena_alloc(a, (size_t)(n ? n : 1) * item_size(f));
        if (!*pointer_at(f, base))
            return err_set(err, E_NOMEM, "command: no room for %u %s", n, f->what);
    }
    return 0;
}

/* Flat fields first: what is nested may rest on them, wherever it stands. */
static int record_decode(const struct record_desc *d, struct slice in, void *base, struct arena *a,
                         struct err *err)
{
    struct wire w = {in.p, in.n};
    struct slice v;
    uint16_t tag;
    int r;

    while ((r = record_next(&w, &tag, &v)) > 0)
        if ((r = field_decode(d->fields, d->n, base, tag, v, err)) < 0)
            return r;
    if (r < 0)
        return err_set(err, E_CORRUPT, "command: cut off");
    if ((d->check && (r = d->check(base, err)) < 0) || (r = rooms_make(d, in, base, a, err)) < 0)
        return r;
    w = (struct wire){in.p, in.n};
    while (record_next(&w, &tag, &v) > 0)
        for (size_t i = 0; i < d->n_nested; i++)
            if (d->nested[i].tag == tag && (r = nested_decode(&d->nested[i], v, base, a, err)) < 0)
                return r;
    return 0;
}

/* ---- the whole ---- */
void command_encode(const union command *c, struct buf *out)
{
    const struct command_desc *d = desc_of((int)c->head.type);

    PRE(d);
    buf_char(out, (char)d->type);
    buf_char(out, COMMAND_VERSION);
    record_encode(&d->record, c, out);
}

int command_decode(struct slice in, struct arena *a, union command **ret, struct err *err)
{
    const unsigned char *p = in.p;

    *ret = NULL;
    if (in.n < 2 || in.n > LIMIT_COMMAND_MAX_BYTES)
        return err_set(err, E_CORRUPT, "command of %zu bytes", in.n);
    const struct command_desc *d = desc_of(p[0]);
    if (!d)
        return err_set(err, E_NOTIMPL,
                       "a newer version of hanse is needed: a command of type %u was met, this one "
                       "knows feature level %d",
                       p[0], (int)FEATURE_LEVEL);
    if (step_tag(d) && command_needs(in) == UINT32_MAX)
        return err_set(err, E_NOTIMPL,
                       "a newer version of hanse is needed: a step of a command of type %u was "
                       "met that this one, of feature level %d, does not know",
                       p[0], (int)FEATURE_LEVEL);
    union command *c = arena_new(a, union command);
    if (!c)
        return err_set(err, E_NOMEM, "command: no room");
    c->head.type = d->type;
    int r = record_decode(&d->record, slice_make(p + 2, in.n - 2), c, a, err);
    if (r < 0) {
        command_release(c);
        return r;
    }
    *ret = c;
    return 0;
}

void command_release(union command *c)
{
    struct write_op *ops = NULL;
    uint32_t n = 0;

    if (!c)
        return;
    switch (c->head.type) {
    case CMD_WRITE:
    case CMD_REQUEST: /* begins as a WRITE does */
        ops = c->write.ops;
        n = c->write.n;
        break;
    case CMD_REMOVE:
        ops = c->remove.ops;
        n = c->remove.n;
        break;
    case CMD_ARCHIVE:
        ops = c->archive.ops;
        n = c->archive.n;
        break;
    case CMD_RECOVER:
        ops = c->recover.ops;
        n = c->recover.n;
        break;
    case CMD_MACHINE:
        ops = c->machine.ops;
        n = c->machine.n;
        break;
    default:
        break;
    }
    for (uint32_t i = 0; i < n; i++)
        ops[i].object = object_unref(ops[i].object);
}
