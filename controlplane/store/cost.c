/* What a command costs to apply, found from its bytes without decoding its objects: a DELETE of few
 * bytes may touch a large object. The log uses it to decide whether the command may enter, so it
 * may be wrong by a factor, but never by what a client sends: unreadable bytes cost their own
 * length. */
#include "controlplane/store/store_internal.h"

/* Where the names of objects stand in a command: in it, or in records of it (command.c). */
static const struct named {
    enum command_type type;
    uint16_t nested; /* tag of the records, or 0 */
    uint16_t kind, ns, name;
} rows[] = {{CMD_WRITE, 50, 2, 3, 4},    {CMD_REQUEST, 50, 2, 3, 4}, {CMD_REMOVE, 50, 2, 3, 4},
            {CMD_ARCHIVE, 50, 2, 3, 4},  {CMD_MIGRATE, 56, 0, 1, 2}, {CMD_MIGRATE, 0, 0, 14, 15},
            {CMD_PLACE, 0, 0, 10, 11},   {CMD_RUN, 0, 0, 10, 11},    {CMD_RECOVER, 50, 2, 3, 4},
            {CMD_RECOVER, 0, 0, 13, 14}, {CMD_ARRAY, 0, 0, 10, 11}};

/* Kind 0: a Workload. */
static uint64_t object_cost(const struct root *r, const struct named *row, struct slice record)
{
    char ns[64] = "", name[256] = "";
    uint64_t kind = KIND_WORKLOAD;
    struct slice v;
    uint16_t tag;

    for (struct wire w = {record.p, record.n}; record_next(&w, &tag, &v) > 0;) {
        if (row->kind && tag == row->kind)
            kind = record_get_u64(v);
        else if (tag == row->ns)
            (void)record_get_str(v, ns, sizeof ns);
        else if (tag == row->name)
            (void)record_get_str(v, name, sizeof name);
    }
    const struct object *o = kind < KIND_LIMIT ? root_get(r, (enum kind_id)kind, ns, name) : NULL;
    return o ? o->bytes : 0;
}

uint64_t command_cost(const struct root *r, struct slice in)
{
    uint64_t cost = in.n;

    if (in.n < 2)
        return cost;
    const unsigned char *p = in.p;
    const struct slice fields = slice_make(p + 2, in.n - 2);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct named *row = &rows[i];
        struct slice v;
        uint16_t tag;

        if ((int)row->type != p[0])
            continue;
        if (!row->nested) {
            cost += object_cost(r, row, fields);
            continue;
        }
        for (struct wire w = {fields.p, fields.n}; record_next(&w, &tag, &v) > 0;)
            if (tag == row->nested)
                cost += object_cost(r, row, v);
    }
    return cost;
}
