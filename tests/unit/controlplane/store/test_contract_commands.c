/* The contract of the log: one command of every type, one entry and one small snapshot as bytes
 * (tests/golden/commands.hex). Members of different versions read each other's logs, and a member
 * reads its own after an upgrade: bytes that were once written mean the same for ever.
 *
 * To extend: a new command gets a line of its own. When a new field changes an encoding, keep the
 * old line under NAME@1 (NAME@2, …: it is still decoded, never encoded again), then write the file
 * anew with HANSE_GOLDEN_WRITE=1, which keeps those lines. Any other difference is a fault of
 * the change. */
#include "controlplane/store/store_internal.h"
#include "tests/support/store/golden_commands.h"
#include "tests/support/golden/golden.h"

#include <errno.h>

#define GOLDEN "tests/golden/commands.hex"

static void command_bytes(const struct golden_command *g, struct buf *out)
{
    union command c;
    AUTO_ARENA a = arena_create(0);

    g->make(&c, a);
    command_encode(&c, out);
    command_release(&c);
}

/* An entry of the commands that hold on the empty state, and the state after it. */
static void command_make(const char *name, union command *c, struct arena *a)
{
    size_t i = 0;

    while (strcmp(golden_commands[i].name, name) != 0)
        assert_true(++i < GOLDEN_COMMANDS);
    golden_commands[i].make(c, a);
}

static void entry_bytes(struct buf *out)
{
    AUTO_BUF b;

    buf_init(&b, LIMIT_COMMAND_MAX_BYTES);
    entry_begin(out, &(struct entry_head){.number = 7, .term = 3, .time_ms = TIME_MS});
    for (int i = 0; i < 2; i++) {
        AUTO_ARENA a = arena_create(0);
        union command c;
        if (i == 0) {
            command_make("write", &c, a);
            c.write.ops[1].object = object_unref(c.write.ops[1].object);
            c.write.n = 1;
        } else {
            command_make("member", &c, a);
            c.member.remove = false;
            (void)snprintf(c.head.request_id, sizeof c.head.request_id, "id-2");
        }
        buf_reset(&b);
        command_encode(&c, &b);
        entry_add(out, slice_make(b.p, b.n));
        command_release(&c);
    }
    entry_end(out);
}

static void entry_result(const struct result *r, void *arg)
{
    assert_string_equal(r->request_id, *(int *)arg ? "id-2" : "id-1");
    if (r->code)
        fail_msg("%s", r->text);
    ++*(int *)arg;
}
static struct root *state_of(struct slice entry)
{
    struct root *r = root_create();
    struct err e;
    int n = 0;

    if (store_apply(&r, 11, 3, entry, entry_result, &n, &e))
        fail_msg("%s", e.text);
    assert_int_equal(n, 2);
    return r;
}

static void state_check(const struct root *r)
{
    struct member_info m[2];

    assert_int_equal(root_index(r), 11);
    assert_int_equal(root_number(r), 7);
    assert_int_equal(root_term(r), 3);
    assert_true(root_time(r) == TIME_MS);
    assert_string_equal(root_cluster_uid(r), "cluster-1");
    assert_string_equal(root_revision(r), "0123abc");
    assert_int_equal(root_members(r, m, 2), 1);
    assert_string_equal(m[0].address, "m3:7444");
    const struct object *o = root_get(r, KIND_NAMESPACE, "", "golden");
    assert_non_null(o);
    assert_string_equal(o->meta->uid, "7f1c");
    assert_true(o->meta->creationTimestamp == TIME_MS);
    assert_int_equal(tree_count(r->requests), 2);
}

static void snapshot_bytes(struct buf *out)
{
    AUTO_BUF entry;
    struct err e;

    buf_init(&entry, LIMIT_ENTRY_MAX_BYTES);
    entry_bytes(&entry);
    struct root *r = state_of(slice_make(entry.p, entry.n));
    assert_int_equal(snapshot_encode(r, out, &e), 0);
    (void)root_unref(r);
}

/* ---- the file: "name hex" a line ---- */
struct line {
    char *name;
    struct buf bytes;
};
static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}
static bool line_next(FILE *f, struct line *l)
{
    char *text = NULL;
    size_t room = 0;
    ssize_t n;

    do
        n = getline(&text, &room, f);
    while (n > 0 && text[0] == '#');
    if (n <= 0) {
        free(text);
        return false;
    }
    text[strcspn(text, "\n")] = '\0';
    char *hex = strchr(text, ' ');
    assert_non_null(hex);
    *hex++ = '\0';
    l->name = mem_strdup(text);
    buf_init(&l->bytes, LIMIT_ENTRY_MAX_BYTES);
    for (; hex[0]; hex += 2) {
        int high = hex_digit(hex[0]), low = hex_digit(hex[1]);

        if (high < 0 || low < 0)
            fail_msg("%s: not two digits: %s", l->name, hex);
        buf_char(&l->bytes, (char)((unsigned)high << 4 | (unsigned)low));
    }
    free(text);
    return true;
}
static void line_fini(struct line *l)
{
    mem_free(l->name);
    buf_fini(&l->bytes);
}
static bool golden_find(const char *name, struct buf *out)
{
    FILE *f = fopen(GOLDEN, "r");
    struct line l;
    bool found = false;

    assert_non_null(f);
    while (!found && line_next(f, &l)) {
        found = strcmp(l.name, name) == 0;
        if (found)
            buf_add(out, l.bytes.p, l.bytes.n);
        line_fini(&l);
    }
    (void)fclose(f);
    return found;
}

static void golden_equal(const char *name, const struct buf *have)
{
    AUTO_BUF want;

    buf_init(&want, LIMIT_ENTRY_MAX_BYTES);
    if (!golden_find(name, &want))
        fail_msg("%s has no line \"%s\"; see the top of this test", GOLDEN, name);
    size_t same = 0;
    while (same < want.n && same < have->n && want.p[same] == have->p[same])
        same++;
    if (want.n != have->n || same != want.n)
        fail_msg("%s: byte %zu of \"%s\" is another one now (%zu bytes, %zu before): old logs "
                 "would not be read",
                 GOLDEN, same, name, have->n, want.n);
}

/* ---- the tests ---- */
static void test_commands(void **state)
{
    (void)state;
    for (size_t i = 0; i < GOLDEN_COMMANDS; i++) {
        AUTO_ARENA a = arena_create(0);
        AUTO_BUF b;
        AUTO_BUF old;
        union command *c = NULL;
        struct err e;

        buf_init(&b, LIMIT_COMMAND_MAX_BYTES);
        buf_init(&old, LIMIT_COMMAND_MAX_BYTES);
        command_bytes(&golden_commands[i], &b);
        golden_equal(golden_commands[i].name, &b);
        assert_true(golden_find(golden_commands[i].name, &old));
        assert_int_equal(command_decode(slice_make(old.p, old.n), a, &c, &e), 0);
        assert_int_equal(c->head.type, golden_commands[i].type);
        assert_string_equal(c->head.request_id, "id-1");
        assert_string_equal(c->head.user, "alice");
        golden_commands[i].check(c);
        command_release(c);
    }
}

/* A type in commands.def that this version can decode has its bytes here. */
static void test_every_type_has_its_bytes(void **state)
{
    (void)state;
    for (int type = 1; type < 256; type++) {
        unsigned char empty[2] = {(unsigned char)type, 1};
        AUTO_ARENA a = arena_create(0);
        union command *c = NULL;
        struct err e;
        bool golden = false;

        for (size_t i = 0; i < GOLDEN_COMMANDS; i++)
            golden |= (int)golden_commands[i].type == type;
        int r = command_decode(slice_make(empty, 2), a, &c, &e);
        if (r == 0)
            command_release(c);
        if (golden)
            assert_int_equal(r, 0);
        else if (r != E_NOTIMPL)
            fail_msg("command %d has no line in %s", type, GOLDEN);
    }
    assert_int_equal(CMD_WRITE, 1); /* numbers are never given anew */
    assert_int_equal(CMD_PLACE, 2);
    assert_int_equal(CMD_RUN, 3);
    assert_int_equal(CMD_FACTS, 4);
    assert_int_equal(CMD_MEMBER, 5);
    assert_int_equal(CMD_REMOVE, 6);
    assert_int_equal(CMD_MIGRATE, 7);
    assert_int_equal(CMD_LEDGER, 8);
    assert_int_equal(CMD_ARCHIVE, 9);
    assert_int_equal(CMD_REQUEST, 11);
    assert_int_equal(CMD_RECOVER, 12);
    assert_int_equal(CMD_ARRAY, 13);
    assert_int_equal(CMD_MACHINE, 14);
}

static void one_entry(struct slice command, struct buf *out)
{
    entry_begin(out, &(struct entry_head){.number = 7, .term = 3, .time_ms = TIME_MS});
    entry_add(out, command);
    entry_end(out);
}

static void applied(const struct result *r, void *arg)
{
    *(int *)arg = r->code;
}

/* A member that does not know a step stops, and its state is as it was; one that knows the command
 * but not the step would otherwise say no where the others say yes. */
static void stops_at(enum command_type type, int step)
{
    union command c = {.head = {.type = type, .request_id = "id-1"}}, *back = NULL;
    struct root *r = root_create(), *was = r;
    AUTO_ARENA a = arena_create(0);
    AUTO_BUF b;
    AUTO_BUF entry;
    struct err e = {0};
    int code = 1;

    if (type == CMD_RUN)
        c.run.step = (enum run_step)step;
    else if (type == CMD_MACHINE)
        c.machine.step = (enum machine_step)step;
    else
        c.migrate.step = (enum move_step)step;
    buf_init(&b, LIMIT_COMMAND_MAX_BYTES);
    buf_init(&entry, LIMIT_ENTRY_MAX_BYTES);
    command_encode(&c, &b);
    assert_true(command_needs(slice_make(b.p, b.n)) == UINT32_MAX);
    assert_int_equal(command_decode(slice_make(b.p, b.n), a, &back, &e), E_NOTIMPL);
    one_entry(slice_make(b.p, b.n), &entry);
    assert_int_equal(store_apply(&r, 11, 3, slice_make(entry.p, entry.n), applied, &code, &e),
                     E_NOTIMPL);
    assert_non_null(strstr(e.text, "a newer version of hanse is needed"));
    assert_ptr_equal(r, was);
    assert_int_equal(code, 1);
    (void)root_unref(r);
    (void)tree_reap(SIZE_MAX);
}

/* One table says what came when, and every command and step has its row in it. */
static void test_what_came_when(void **state)
{
    int run = 1, move = 1, machine = 1;

    (void)state;
    for (int type = 1; type < 256; type++) {
        bool golden = false;
        for (size_t i = 0; i < GOLDEN_COMMANDS; i++)
            golden |= (int)golden_commands[i].type == type;
        if (golden != (command_feature_level((enum command_type)type, 0) != UINT32_MAX))
            fail_msg("command %d: features.def and the commands disagree", type);
    }
    for (; strcmp(run_step_text((enum run_step)run), "?") != 0; run++)
        if (command_feature_level(CMD_RUN, run) > FEATURE_LEVEL)
            fail_msg("step %s of RUN has no row in features.def",
                     run_step_text((enum run_step)run));
    for (; strcmp(move_step_text((enum move_step)move), "?") != 0; move++)
        if (command_feature_level(CMD_MIGRATE, move) > FEATURE_LEVEL)
            fail_msg("step %s of MIGRATE has no row in features.def",
                     move_step_text((enum move_step)move));
    for (; strcmp(machine_step_text((enum machine_step)machine), "?") != 0; machine++)
        if (command_feature_level(CMD_MACHINE, machine) != FEATURE_MACHINES)
            fail_msg("step %s of MACHINE has no row in features.def",
                     machine_step_text((enum machine_step)machine));
    stops_at(CMD_MACHINE, machine);
    stops_at(CMD_RUN, run);
    stops_at(CMD_MIGRATE, move);
    assert_true(command_feature_level(CMD_RECOVER, RECOVER_SETTLE) == FEATURE_GRANTS);
    for (size_t i = 0; i < GOLDEN_COMMANDS; i++) {
        AUTO_BUF b;
        buf_init(&b, LIMIT_COMMAND_MAX_BYTES);
        command_bytes(&golden_commands[i], &b);
        assert_true(command_needs(slice_make(b.p, b.n)) <= FEATURE_LEVEL);
    }
    for (int kind = KIND_LEASE + 1; kind < KIND_LIMIT; kind++) /* up to Lease: the first version */
        if (kind_by_id((enum kind_id)kind) &&
            kind_feature_level((enum kind_id)kind) == FEATURE_FIRST)
            fail_msg("%s came later, and has no row KIND in controlplane/store/features.def",
                     kind_by_id((enum kind_id)kind)->kind);
    assert_true(kind_feature_level(KIND_WORKLOAD) == FEATURE_FIRST);
    assert_true(kind_feature_level(KIND_TOKEN) == FEATURE_GRANTS);
    assert_true(command_feature_level(CMD_RUN, STEP_ENDED) == FEATURE_FIRST);
    assert_true(command_feature_level(CMD_RUN, STEP_CHECKPOINT) == FEATURE_MOVES);
    assert_true(command_feature_level(CMD_MIGRATE, MOVE_START) == FEATURE_MOVES);
}

static void test_entry_and_snapshot(void **state)
{
    AUTO_BUF entry;
    AUTO_BUF snapshot;
    AUTO_BUF old;
    struct root *r = NULL;
    struct err e;

    (void)state;
    buf_init(&entry, LIMIT_ENTRY_MAX_BYTES);
    buf_init(&snapshot, LIMIT_ENTRY_MAX_BYTES);
    buf_init(&old, LIMIT_ENTRY_MAX_BYTES);
    entry_bytes(&entry);
    golden_equal("entry", &entry);
    snapshot_bytes(&snapshot);
    golden_equal("snapshot", &snapshot);
    assert_true(golden_find("entry", &old));
    struct root *applied = state_of(slice_make(old.p, old.n));
    state_check(applied);
    buf_reset(&old);
    assert_true(golden_find("snapshot", &old));
    assert_int_equal(snapshot_decode(slice_make(old.p, old.n), &r, &e), 0);
    state_check(r);
    root_check(r);
    assert_true(root_digest(r) == root_digest(applied));
    (void)root_unref(r);
    (void)root_unref(applied);
    (void)tree_reap(SIZE_MAX);
}

/* NAME@N: what older versions wrote is still read. */
static void test_old_bytes_are_read(void **state)
{
    FILE *f = fopen(GOLDEN, "r");
    struct line l;
    struct err e;

    (void)state;
    assert_non_null(f);
    while (line_next(f, &l)) {
        struct slice in = slice_make(l.bytes.p, l.bytes.n);
        AUTO_ARENA a = arena_create(0);
        union command *c = NULL;
        struct root *r = NULL;

        if (strncmp(l.name, "entry", 5) == 0) {
            r = state_of(in);
        } else if (strncmp(l.name, "snapshot", 8) == 0) {
            assert_int_equal(snapshot_decode(in, &r, &e), 0);
        } else {
            assert_int_equal(command_decode(in, a, &c, &e), 0);
            command_release(c);
        }
        (void)root_unref(r);
        line_fini(&l);
    }
    (void)fclose(f);
    (void)tree_reap(SIZE_MAX);
}

static void line_put(FILE *f, const char *name, const struct buf *b)
{
    (void)fprintf(f, "%s ", name);
    for (size_t i = 0; i < b->n; i++)
        (void)fprintf(f, "%02x", (unsigned char)b->p[i]);
    (void)fputc('\n', f);
}
static int golden_write(void)
{
    FILE *f = fopen(GOLDEN, "r"), *out = fopen(GOLDEN ".tmp", "w");
    struct line l;

    if (!out)
        return errno;
    while (f && line_next(f, &l)) {
        if (strchr(l.name, '@'))
            line_put(out, l.name, &l.bytes);
        line_fini(&l);
    }
    if (f)
        (void)fclose(f);
    for (size_t i = 0; i < GOLDEN_COMMANDS + 2; i++) {
        AUTO_BUF b;
        size_t n = GOLDEN_COMMANDS;
        buf_init(&b, LIMIT_ENTRY_MAX_BYTES);
        if (i < n)
            command_bytes(&golden_commands[i], &b);
        else if (i == n)
            entry_bytes(&b);
        else
            snapshot_bytes(&b);
        line_put(out, i < n ? golden_commands[i].name : i == n ? "entry" : "snapshot", &b);
    }
    (void)fclose(out);
    return rename(GOLDEN ".tmp", GOLDEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commands),           cmocka_unit_test(test_every_type_has_its_bytes),
        cmocka_unit_test(test_what_came_when),     cmocka_unit_test(test_entry_and_snapshot),
        cmocka_unit_test(test_old_bytes_are_read),
    };

    if (golden_writes())
        return golden_write();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
