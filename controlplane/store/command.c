/* Commands as bytes: u8 type, u8 version, then fields (record.c). One table per command says where
 * each field lies, so that encoding and decoding cannot disagree. Must never trust what it decodes:
 * lengths, counts and numbers of enums are checked here, meaning is checked by apply. */
#include "controlplane/store/store_internal.h"

#define COMMAND_VERSION 1
#define FACTS_NODES_MAX 50000

enum record_type { W_STR, W_U64, W_I64, W_U32, W_INT, W_BOOL };
struct record_field {
    uint16_t tag;
    enum record_type type;
    size_t off, size;
};
#define SIZE_OF(st, m) sizeof(((struct st *)0)->m)
#define FIELD(st, tag_, type_, m)                                                                  \
    {                                                                                              \
        (tag_), (type_), offsetof(struct st, m), SIZE_OF(st, m)                                    \
    }
#define HEAD(st) FIELD(st, 1, W_STR, head.request_id), FIELD(st, 2, W_STR, head.user)

static const struct record_field write_fields[] = {
    HEAD(write_cmd), FIELD(write_cmd, 10, W_STR, revision), FIELD(write_cmd, 11, W_BOOL, apply),
    FIELD(write_cmd, 12, W_BOOL, if_absent)};
static const struct record_field op_fields[] = {
    FIELD(write_op, 1, W_INT, verb), FIELD(write_op, 2, W_INT, kind),
    FIELD(write_op, 3, W_STR, ns),   FIELD(write_op, 4, W_STR, name),
    FIELD(write_op, 5, W_STR, uid),  FIELD(write_op, 6, W_U64, rv)};
static const struct record_field place_fields[] = {HEAD(place_cmd),
                                                 FIELD(place_cmd, 10, W_STR, ns),
                                                 FIELD(place_cmd, 11, W_STR, name),
                                                 FIELD(place_cmd, 12, W_STR, uid),
                                                 FIELD(place_cmd, 13, W_I64, epoch),
                                                 FIELD(place_cmd, 14, W_U64, rv_read),
                                                 FIELD(place_cmd, 15, W_STR, queue)};
static const struct record_field run_fields[] = {HEAD(run_cmd),
                                               FIELD(run_cmd, 10, W_STR, ns),
                                               FIELD(run_cmd, 11, W_STR, name),
                                               FIELD(run_cmd, 12, W_STR, uid),
                                               FIELD(run_cmd, 13, W_I64, epoch),
                                               FIELD(run_cmd, 14, W_I64, try_),
                                               FIELD(run_cmd, 15, W_INT, step),
                                               FIELD(run_cmd, 16, W_I64, exit_code),
                                               FIELD(run_cmd, 17, W_I64, term_signal),
                                               FIELD(run_cmd, 18, W_INT, proof),
                                               FIELD(run_cmd, 19, W_STR, reason),
                                               FIELD(run_cmd, 20, W_STR, message),
                                               FIELD(run_cmd, 21, W_BOOL, requeue)};
static const struct record_field facts_fields[] = {HEAD(facts_cmd),
                                                 FIELD(facts_cmd, 10, W_STR, target),
                                                 FIELD(facts_cmd, 11, W_STR, session),
                                                 FIELD(facts_cmd, 12, W_BOOL, reach_told),
                                                 FIELD(facts_cmd, 13, W_BOOL, reachable),
                                                 FIELD(facts_cmd, 14, W_STR, why),
                                                 FIELD(facts_cmd, 15, W_BOOL, complete)};
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

/* Nested fields, the same numbers in all commands. */
enum {
    TAG_OP = 50,
    TAG_OBJECT = 51,
    TAG_DECISION = 52,
    TAG_PLACEMENT = 53,
    TAG_CHECKPOINT = 54,
    TAG_NODE = 55
};

struct command_desc {
    enum command_type type;
    size_t size;
    const struct record_field *fields;
    size_t n;
};
#define DESC(T, st)                                                                                \
    {                                                                                              \
        CMD_##T, sizeof(struct st##_cmd), st##_fields, sizeof st##_fields / sizeof st##_fields[0]  \
    }
static const struct command_desc commands[] = {DESC(WRITE, write),   DESC(PLACE, place),
                                               DESC(RUN, run),       DESC(FACTS, facts),
                                               DESC(MEMBER, member), DESC(REMOVE, remove)};

static const struct command_desc *desc_of(int type)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if ((int)commands[i].type == type)
            return &commands[i];
    return NULL;
}

/* ---- flat fields
 * ----------------------------------------------------------------------------------------- */
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
            record_u64(out, f->tag, *(const uint64_t *)(const void *)at);
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
        *(uint64_t *)(void *)at = u;
    return 1;
}

/* ---- ops, nodes
 * --------------------------------------------------------------------------------------------- */
static void nested(struct buf *out, uint16_t tag, const struct schema *s, const void *body)
{
    if (!body)
        return;
    size_t at = record_open(out, tag);
    tlv_encode(s, body, out);
    record_close(out, at);
}

static void ops_encode(const struct write_op *ops, uint32_t n, struct buf *out)
{
    for (uint32_t i = 0; i < n; i++) {
        size_t at = record_open(out, TAG_OP);

        fields_encode(op_fields, sizeof op_fields / sizeof op_fields[0], &ops[i], out);
        if (ops[i].object) {
            size_t in = record_open(out, TAG_OBJECT);

            object_encode(ops[i].object, out);
            record_close(out, in);
        }
        record_close(out, at);
    }
}

static int op_decode(struct slice in, struct write_op *op, struct err *err)
{
    struct wire w = {in.p, in.n};
    struct slice v, object = {NULL, 0};
    uint16_t tag;
    int r;

    while ((r = record_next(&w, &tag, &v)) > 0) {
        if (tag == TAG_OBJECT)
            object = v;
        else if ((r = field_decode(op_fields, sizeof op_fields / sizeof op_fields[0], op, tag, v,
                                   err)) < 0)
            return r;
    }
    if (r < 0)
        return err_set(err, E_CORRUPT, "command: an operation is cut off");
    const struct kind *k = kind_by_id(op->kind);
    if (!k || (int)op->verb < WRITE_CREATE || op->verb > WRITE_DELETE)
        return err_set(err, E_CORRUPT, "command: unknown kind %d or verb %d", (int)op->kind,
                       (int)op->verb);
    if (object.n > LIMIT_OBJECT_MAX_BYTES)
        return err_set(err, E_TOOLARGE, "an object of %zu bytes; at most %d are allowed", object.n,
                       (int)LIMIT_OBJECT_MAX_BYTES);
    return object.p ? object_decode(k, object, &op->object, err) : 0;
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

static void ops_of(union command *c, struct write_op ***ret_ops, uint32_t **ret_n)
{
    bool remove = c->head.type == CMD_REMOVE;

    *ret_ops = remove ? &c->remove.ops : &c->write.ops;
    *ret_n = remove ? &c->remove.n : &c->write.n;
}

static int nested_decode(union command *c, uint16_t tag, struct slice v, struct arena *a,
                         struct err *err)
{
    enum command_type type = c->head.type;
    void *body = NULL;
    int r;

    if (tag == TAG_OP && (type == CMD_WRITE || type == CMD_REMOVE)) {
        struct write_op **ops;
        uint32_t *n;

        ops_of(c, &ops, &n);
        return op_decode(v, &(*ops)[(*n)++], err);
    }
    if (tag == TAG_DECISION && type == CMD_PLACE) {
        r = tlv_decode(&schema_decision_spec, v, a, &body, err);
        c->place.decision = r < 0 ? NULL : body;
        return r;
    }
    if (tag == TAG_PLACEMENT && type == CMD_PLACE) {
        r = tlv_decode(&schema_placement, v, a, &body, err);
        c->place.placement = r < 0 ? NULL : body;
        return r;
    }
    if (tag == TAG_CHECKPOINT && type == CMD_RUN) {
        r = tlv_decode(&schema_run_checkpoint, v, a, &body, err);
        c->run.checkpoint = r < 0 ? NULL : body;
        return r;
    }
    if (tag == TAG_NODE && type == CMD_FACTS) {
        r = tlv_decode(&schema_node, v, a, &body, err);
        if (r == 0)
            c->facts.nodes[c->facts.n++] = *(struct node *)body;
        return r;
    }
    return 0;
}

/* ---- the whole
 * -------------------------------------------------------------------------------------------------
 */
void command_encode(const union command *c, struct buf *out)
{
    const struct command_desc *d = desc_of((int)c->head.type);

    PRE(d);
    buf_char(out, (char)d->type);
    buf_char(out, COMMAND_VERSION);
    fields_encode(d->fields, d->n, c, out);
    switch (c->head.type) {
    case CMD_WRITE:
        ops_encode(c->write.ops, c->write.n, out);
        break;
    case CMD_REMOVE:
        ops_encode(c->remove.ops, c->remove.n, out);
        break;
    case CMD_PLACE:
        nested(out, TAG_DECISION, &schema_decision_spec, c->place.decision);
        nested(out, TAG_PLACEMENT, &schema_placement, c->place.placement);
        break;
    case CMD_RUN:
        nested(out, TAG_CHECKPOINT, &schema_run_checkpoint, c->run.checkpoint);
        break;
    case CMD_FACTS:
        for (uint32_t i = 0; i < c->facts.n; i++)
            nested(out, TAG_NODE, &schema_node, &c->facts.nodes[i]);
        break;
    default:
        break;
    }
}

static int rooms_make(union command *c, struct slice in, struct arena *a, struct err *err)
{
    uint32_t ops = count_tags(in, TAG_OP), nodes = count_tags(in, TAG_NODE);
    struct write_op **list;
    uint32_t *n;

    if (ops > LIMIT_APPLY_MAX_OBJECTS)
        return err_set(err, E_TOOLARGE, "%u objects in one write; at most %d are allowed", ops,
                       (int)LIMIT_APPLY_MAX_OBJECTS);
    if (nodes > FACTS_NODES_MAX)
        return err_set(err, E_TOOLARGE, "%u nodes at once; at most %d are allowed", nodes,
                       FACTS_NODES_MAX);
    if (c->head.type == CMD_WRITE || c->head.type == CMD_REMOVE) {
        ops_of(c, &list, &n);
        *list = arena_array(a, struct write_op, ops ? ops : 1);
        return *list ? 0 : err_set(err, E_NOMEM, "command: no room for %u operations", ops);
    }
    if (c->head.type == CMD_FACTS) {
        c->facts.nodes = arena_array(a, struct node, nodes ? nodes : 1);
        return c->facts.nodes ? 0 : err_set(err, E_NOMEM, "command: no room for %u nodes", nodes);
    }
    return 0;
}

int command_decode(struct slice in, struct arena *a, union command **ret, struct err *err)
{
    const unsigned char *p = in.p;
    struct slice v;
    uint16_t tag;
    int r;

    *ret = NULL;
    if (in.n < 2 || in.n > LIMIT_COMMAND_MAX_BYTES)
        return err_set(err, E_CORRUPT, "command of %zu bytes", in.n);
    const struct command_desc *d = desc_of(p[0]);
    if (!d)
        return err_set(err, E_NOTIMPL,
                       "command type %u is not known to this version: upgrade this member", p[0]);
    union command *c = arena_new(a, union command);
    if (!c)
        return err_set(err, E_NOMEM, "command: no room");
    c->head.type = d->type;
    struct slice fields = slice_make(p + 2, in.n - 2);
    struct wire w = {fields.p, fields.n};
    if ((r = rooms_make(c, fields, a, err)) < 0)
        return r;
    while ((r = record_next(&w, &tag, &v)) > 0) {
        r = tag < TAG_OP ? field_decode(d->fields, d->n, c, tag, v, err)
                         : nested_decode(c, tag, v, a, err);
        if (r < 0)
            break;
    }
    if (r < 0) {
        command_release(c);
        return err && err->code == r ? r : err_set(err, E_CORRUPT, "command: cut off");
    }
    *ret = c;
    return 0;
}

void command_release(union command *c)
{
    struct write_op **ops;
    uint32_t *n;

    if (!c || (c->head.type != CMD_WRITE && c->head.type != CMD_REMOVE))
        return;
    ops_of(c, &ops, &n);
    for (uint32_t i = 0; i < *n; i++)
        (*ops)[i].object = object_unref((*ops)[i].object);
}
