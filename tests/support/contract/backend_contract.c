/* The contract of struct backend_ops, asked through the table alone. Must know nothing of who is
 * behind it. */
#include "tests/support/contract/backend_contract_internal.h"

#define PATIENCE_MS 20000

/* ---- waiting ---- */
struct waiting {
    const struct backend_rig *rig;
    bool (*cond)(void *arg);
    void *arg;
    uint64_t until_ms;
    struct timer timer;
    bool held;
};
static void wait_tick(void *arg)
{
    struct waiting *w = arg;

    w->held = w->cond(w->arg);
    if (w->held || loop_now_ms(w->rig->loop) >= w->until_ms)
        loop_stop(w->rig->loop);
    else
        timer_start(&w->timer, 1);
}
bool backend_until(const struct backend_rig *r, bool (*cond)(void *arg), void *arg, uint64_t ms)
{
    struct waiting w = {.rig = r, .cond = cond, .arg = arg, .until_ms = loop_now_ms(r->loop) + ms};

    timer_init(&w.timer, r->loop, wait_tick, &w);
    timer_start(&w.timer, 0);
    r->run(r->loop);
    timer_stop(&w.timer);
    return w.held;
}

static bool answered(void *arg)
{
    return ((struct contract_answer *)arg)->done;
}
void contract_await(struct backend_rig *r, struct contract_answer *a)
{
    assert_true(backend_until(r, answered, a, PATIENCE_MS));
}

/* ---- objects and writes ---- */
struct object *contract_object(enum kind_id kind, const char *json)
{
    struct object *o = NULL;
    cJSON *j = NULL;
    struct err e;

    if (json_parse(json, strlen(json), &j, &e) || object_from_json(kind_by_id(kind), j, 0, &o, &e))
        fail_msg("%s: %s", json, e.text);
    cJSON_Delete(j);
    return o;
}
static struct object *dataset(const char *name, int64_t bytes)
{
    char json[512];

    (void)snprintf(json, sizeof json,
                   "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Dataset\",\"metadata\":{"
                   "\"name\":\"%s\",\"namespace\":\"" NS "\"},\"spec\":{\"bytes\":%lld}}",
                   name, (long long)bytes);
    return contract_object(KIND_DATASET, json);
}
static int64_t bytes_of(const struct object *o)
{
    return object_as(o, dataset)->spec->bytes;
}
static const struct object *look(struct backend *b, const struct view *v, const char *name)
{
    return b->ops->get(v, kind_by_id(KIND_DATASET), NS, name);
}

static void on_write(void *arg, const struct api_result *r, const struct err *err)
{
    struct contract_answer *a = arg;

    assert_false(a->done); /* once */
    a->done = true;
    a->code = err ? err->code : 0;
    if (err)
        a->err = *err;
    a->rv = r->rv;
    a->op = r->op;
    a->unchanged = r->unchanged;
    a->view = r->view ? a->b->ops->view_ref(r->view) : NULL;
}
void contract_answer_fini(struct contract_answer *a)
{
    if (a->view)
        a->b->ops->view_release(a->view);
    *a = (struct contract_answer){0};
}
struct api_write_op contract_op(enum api_write_verb verb, const char *name, struct object *o)
{
    return (struct api_write_op){.verb = verb,
                                 .kind = o ? o->kind : kind_by_id(KIND_DATASET),
                                 .ns = NS,
                                 .name = name,
                                 .object = o};
}
/* Objects of ops are let go. */
int contract_write_all(struct backend_rig *r, const struct api_write *w, struct contract_answer *a)
{
    *a = (struct contract_answer){.b = r->backend};
    r->backend->ops->write(r->backend, w, on_write, a);
    for (size_t i = 0; i < w->n; i++)
        (void)object_unref(w->ops[i].object);
    contract_await(r, a);
    return a->code;
}
int contract_write(struct backend_rig *r, struct api_write_op op, struct contract_answer *a)
{
    struct api_write w = {.user = "contract", .ops = &op, .n = 1};

    return contract_write_all(r, &w, a);
}
static int put(struct backend_rig *r, enum api_write_verb verb, const char *name, int64_t bytes)
{
    AUTO_ANSWER a;

    return contract_write(
        r, contract_op(verb, name, verb == API_DELETE ? NULL : dataset(name, bytes)), &a);
}

/* ---- reading and writing ---- */
void backend_keeps_old_views(void **state)
{
    struct backend_rig *r = *state;
    const struct backend_ops *ops = r->backend->ops;
    const struct kind *k = kind_by_id(KIND_DATASET);

    assert_int_equal(put(r, API_CREATE, "view", 1), 0);
    struct view *v = ops->view(r->backend), *again = ops->view_ref(v);
    const struct object *o = look(r->backend, v, "view");
    uint64_t rv = ops->view_rv(v), n = ops->count(v, k);
    assert_non_null(o);
    assert_int_equal(put(r, API_UPDATE, "view", 2), 0);
    assert_int_equal(put(r, API_CREATE, "view-2", 1), 0);
    assert_ptr_equal(look(r->backend, v, "view"), o);
    assert_int_equal(bytes_of(o), 1);
    assert_null(look(r->backend, v, "view-2"));
    assert_int_equal(ops->view_rv(v), rv);
    assert_int_equal(ops->count(v, k), n);
    assert_int_equal(put(r, API_DELETE, "view", 0), 0);
    ops->view_release(v);
    assert_int_equal(bytes_of(look(r->backend, again, "view")), 1); /* the other reference */
    ops->view_release(again);
    v = ops->view(r->backend);
    assert_null(look(r->backend, v, "view"));
    assert_int_equal(ops->count(v, k), n);
    assert_true(ops->view_rv(v) >= rv + 3);
    ops->view_release(v);
}

void backend_creates_updates_and_deletes(void **state)
{
    struct backend_rig *r = *state;
    AUTO_ANSWER a;
    AUTO_ANSWER b;
    AUTO_ANSWER c;

    assert_int_equal(contract_write(r, contract_op(API_CREATE, "crud", dataset("crud", 1)), &a), 0);
    const struct object *o = look(r->backend, a.view, "crud"); /* the view contains the write */
    assert_non_null(o);
    assert_true(*o->meta->uid != 0 && o->meta->creationTimestamp > 0);
    assert_int_equal(o->meta->generation, 1);
    assert_int_equal(o->meta->resourceVersion, a.rv);
    assert_int_equal(put(r, API_CREATE, "crud", 1), E_EXISTS);
    assert_int_equal(contract_write(r, contract_op(API_UPDATE, "crud", dataset("crud", 2)), &b), 0);
    const struct object *u = look(r->backend, b.view, "crud");
    assert_int_equal(bytes_of(u), 2);
    assert_string_equal(u->meta->uid, o->meta->uid);
    assert_int_equal(u->meta->creationTimestamp, o->meta->creationTimestamp);
    assert_int_equal(u->meta->generation, 2);
    assert_int_equal(u->meta->resourceVersion, b.rv);
    assert_true(b.rv > a.rv && !b.unchanged);
    assert_int_equal(contract_write(r, contract_op(API_UPDATE, "crud", object_ref(u)), &c), 0);
    assert_true(c.unchanged); /* and nothing moved */
    assert_int_equal(look(r->backend, c.view, "crud")->meta->resourceVersion, b.rv);
    assert_int_equal(put(r, API_DELETE, "crud", 0), 0);
    assert_int_equal(put(r, API_DELETE, "crud", 0), E_NOTFOUND);
    assert_int_equal(put(r, API_UPDATE, "crud", 3), E_NOTFOUND);
}

void backend_holds_to_preconditions(void **state)
{
    struct backend_rig *r = *state;
    AUTO_ANSWER a;

    assert_int_equal(contract_write(r, contract_op(API_CREATE, "pre", dataset("pre", 1)), &a), 0);
    assert_int_equal(put(r, API_UPDATE, "pre", 2), 0);
    for (int verb = API_UPDATE; verb <= API_DELETE; verb += API_DELETE - API_UPDATE) {
        AUTO_ANSWER b;
        AUTO_ANSWER c;
        struct object *body = verb == API_DELETE ? NULL : dataset("pre", 3);
        struct api_write_op op = contract_op((enum api_write_verb)verb, "pre", body);
        op.rv = a.rv;
        assert_int_equal(contract_write(r, op, &b), E_CONFLICT);
        assert_true(*b.err.text != 0);
        op = contract_op((enum api_write_verb)verb, "pre", body ? dataset("pre", 3) : NULL);
        op.uid = "of-another";
        assert_int_equal(contract_write(r, op, &c), E_CONFLICT);
        assert_int_equal(bytes_of(look(r->backend, c.view, "pre")), 2);
    }
    AUTO_ANSWER d;
    AUTO_ANSWER e;
    struct api_write_op op = contract_op(API_UPDATE, "pre", dataset("pre", 4));
    struct view *v = r->backend->ops->view(r->backend);
    const struct object *now = look(r->backend, v, "pre");
    op.rv = (uint64_t)now->meta->resourceVersion;
    op.uid = now->meta->uid;
    assert_int_equal(contract_write(r, op, &d), 0);
    op = contract_op(API_DELETE, "pre", NULL);
    op.rv = d.rv;
    op.uid = now->meta->uid;
    assert_int_equal(contract_write(r, op, &e), 0);
    r->backend->ops->view_release(v);
}

void backend_writes_all_or_nothing(void **state)
{
    struct backend_rig *r = *state;
    AUTO_ANSWER a;
    AUTO_ANSWER b;

    assert_int_equal(put(r, API_CREATE, "many-1", 1), 0);
    struct api_write_op ops[] = {contract_op(API_UPDATE, "many-1", dataset("many-1", 2)),
                                 contract_op(API_CREATE, "many-2", dataset("many-2", 2)),
                                 contract_op(API_DELETE, "many-none", NULL)};
    struct api_write w = {.user = "contract", .ops = ops, .n = 3};
    assert_int_equal(contract_write_all(r, &w, &a), E_NOTFOUND);
    assert_int_equal(a.op, 2); /* which one was at fault */
    assert_int_equal(bytes_of(look(r->backend, a.view, "many-1")), 1);
    assert_null(look(r->backend, a.view, "many-2"));
    ops[0].object = dataset("many-1", 3);
    ops[1].object = dataset("many-2", 3);
    ops[2] = contract_op(API_CREATE, "many-3", dataset("many-3", 3));
    w.revision = "0123abc"; /* as `hanse apply` does it: the commit stays on the objects */
    assert_int_equal(contract_write_all(r, &w, &b), 0);
    for (int i = 1; i <= 3; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "many-%d", i);
        const struct object *o = look(r->backend, b.view, name);
        assert_int_equal(bytes_of(o), 3);
        assert_string_equal(o->meta->revision, "0123abc");
    }
}

void backend_keeps_nothing_of_a_dry_run(void **state)
{
    struct backend_rig *r = *state;
    const struct backend_ops *ops = r->backend->ops;
    AUTO_ANSWER a;
    AUTO_ANSWER b;

    assert_int_equal(put(r, API_CREATE, "dry", 1), 0);
    struct view *before = ops->view(r->backend);
    struct api_write_op op = contract_op(API_UPDATE, "dry", dataset("dry", 2));
    struct api_write w = {.user = "contract", .key = "dry-1", .ops = &op, .n = 1, .dry_run = true};
    assert_int_equal(contract_write_all(r, &w, &a), 0);
    assert_int_equal(bytes_of(look(r->backend, a.view, "dry")), 2); /* as it would be */
    op = contract_op(API_CREATE, "dry", dataset("dry", 2));
    assert_int_equal(contract_write_all(r, &w, &b), E_EXISTS);
    struct view *after = ops->view(r->backend);
    assert_int_equal(ops->view_rv(after), ops->view_rv(before));
    assert_int_equal(bytes_of(look(r->backend, after, "dry")), 1);
    ops->view_release(after);
    ops->view_release(before);
    AUTO_ANSWER c;
    op = contract_op(API_UPDATE, "dry", dataset("dry", 3));
    w.dry_run = false; /* nor was the request id */
    assert_int_equal(contract_write_all(r, &w, &c), 0);
    assert_int_equal(bytes_of(look(r->backend, c.view, "dry")), 3);
}

/* ---- changes and lists ---- */
struct seen {
    uint64_t since, last;
    int n, stop_after;
    char text[256]; /* "+name", "~name", "-name" */
};
static bool on_change(uint64_t rv, const struct kind *k, const struct object *before,
                      const struct object *after, void *arg)
{
    struct seen *s = arg;
    const struct object *o = after ? after : before;

    assert_true(rv > s->since && rv > s->last && o && o->kind == k);
    assert_int_equal(o->meta->resourceVersion, rv); /* also of a deletion */
    s->last = rv;
    s->n++;
    if (k->id == KIND_DATASET && strlen(s->text) + strlen(o->meta->name) + 3 < sizeof s->text) {
        char c = !before ? '+' : !after ? '-' : '~';
        size_t n = strlen(s->text);
        (void)snprintf(s->text + n, sizeof s->text - n, "%c%s ", c, o->meta->name);
    }
    return s->n != s->stop_after;
}
static uint64_t rv_now(struct backend *b)
{
    struct view *v = b->ops->view(b);
    uint64_t rv = b->ops->view_rv(v);

    b->ops->view_release(v);
    return rv;
}

void backend_tells_changes_in_order(void **state)
{
    struct backend_rig *r = *state;
    const struct backend_ops *ops = r->backend->ops;
    struct seen s = {.since = rv_now(r->backend)};
    struct err e;

    assert_int_equal(put(r, API_CREATE, "ch-a", 1), 0);
    assert_int_equal(put(r, API_UPDATE, "ch-a", 1), 0); /* no change */
    assert_int_equal(put(r, API_UPDATE, "ch-a", 2), 0);
    struct view *middle = ops->view(r->backend);
    AUTO_ANSWER a;
    struct api_write_op two[] = {contract_op(API_CREATE, "ch-b", dataset("ch-b", 1)),
                                 contract_op(API_DELETE, "ch-a", NULL)};
    struct api_write w = {.user = "contract", .ops = two, .n = 2};
    assert_int_equal(contract_write_all(r, &w, &a), 0);
    assert_int_equal(ops->changes(a.view, s.since, on_change, &s, &e), 0);
    assert_string_equal(s.text, "+ch-a ~ch-a +ch-b -ch-a ");
    assert_int_equal(s.last, ops->view_rv(a.view)); /* one step each: a watch goes on between two */
    assert_int_equal(s.last, s.since + 4);
    struct seen from = {.since = s.last - 1};
    assert_int_equal(ops->changes(a.view, from.since, on_change, &from, &e), 0);
    assert_string_equal(from.text, "-ch-a ");
    struct seen none = {.since = s.last};
    assert_int_equal(ops->changes(a.view, none.since, on_change, &none, &e), 0);
    assert_int_equal(none.n, 0);
    struct seen old = {.since = s.since}; /* a view tells nothing that is newer than itself */
    assert_int_equal(ops->changes(middle, old.since, on_change, &old, &e), 0);
    assert_string_equal(old.text, "+ch-a ~ch-a ");
    struct seen first = {.since = s.since, .stop_after = 1};
    assert_int_equal(ops->changes(a.view, first.since, on_change, &first, &e), 0);
    assert_int_equal(first.n, 1);
    ops->view_release(middle);
}

bool contract_list(const struct object *o, void *arg)
{
    struct contract_listed *l = arg;
    size_t n = strlen(l->text);

    (void)snprintf(l->text + n, sizeof l->text - n, "%s/%s ", o->meta->namespace_, o->meta->name);
    return ++l->n != l->stop_after;
}
void backend_scans_in_order(void **state)
{
    struct backend_rig *r = *state;
    const struct backend_ops *ops = r->backend->ops;
    const struct kind *k = kind_by_id(KIND_DATASET);
    struct contract_listed all = {0}, page = {.stop_after = 2}, rest = {0}, other = {0};

    assert_int_equal(put(r, API_CREATE, "scan-b", 1), 0);
    assert_int_equal(put(r, API_CREATE, "scan-c", 1), 0);
    assert_int_equal(put(r, API_CREATE, "scan-a", 1), 0);
    struct view *v = ops->view(r->backend);
    ops->scan(v, k, NS, NS, "scan", contract_list, &all);
    assert_non_null(strstr(all.text, NS "/scan-a " NS "/scan-b " NS "/scan-c "));
    ops->scan(v, k, NS, NS, "scan", contract_list, &page);
    assert_string_equal(page.text, NS "/scan-a " NS "/scan-b ");
    ops->scan(v, k, NULL, NS, "scan-b", contract_list, &rest); /* after it, not with it */
    assert_memory_equal(rest.text, NS "/scan-c ", strlen(NS "/scan-c "));
    ops->scan(v, k, "nowhere", NULL, NULL, contract_list, &other);
    assert_int_equal(other.n, 0);
    ops->view_release(v);
}

static void on_fresh(void *arg, const struct err *err)
{
    struct contract_answer *a = arg;

    a->done = true;
    a->code = err ? err->code : 0;
}
void backend_reads_afresh(void **state)
{
    struct backend_rig *r = *state;
    const struct backend_ops *ops = r->backend->ops;
    AUTO_ANSWER w;
    struct contract_answer a = {0}, late = {0}, soon = {0};

    assert_int_equal(contract_write(r, contract_op(API_CREATE, "fresh", dataset("fresh", 1)), &w),
                     0);
    ops->fresh(r->backend, 0, 5000, on_fresh, &a);
    assert_false(a.done);
    contract_await(r, &a);
    assert_int_equal(a.code, 0);
    struct view *v = ops->view(r->backend); /* what was acknowledged before is in it */
    assert_non_null(look(r->backend, v, "fresh"));
    assert_true(ops->view_rv(v) >= w.rv);
    uint64_t next = ops->view_rv(v) + 1;
    ops->view_release(v);
    uint64_t from = loop_now_ms(r->loop);
    ops->fresh(r->backend, next + 1000000, 200, on_fresh, &late);
    contract_await(r, &late);
    assert_int_equal(late.code, E_TIMEOUT);
    assert_true(loop_now_ms(r->loop) - from >= 200);
    assert_true(loop_now_ms(r->loop) - from < 5000);
    ops->fresh(r->backend, next, PATIENCE_MS, on_fresh, &soon); /* waits for the one that comes */
    assert_int_equal(put(r, API_UPDATE, "fresh", 2), 0);
    contract_await(r, &soon);
    assert_int_equal(soon.code, 0);
    v = ops->view(r->backend);
    assert_int_equal(bytes_of(look(r->backend, v, "fresh")), 2);
    ops->view_release(v);
}

void backend_answers_an_id_once(void **state)
{
    struct backend_rig *r = *state;
    AUTO_ANSWER a;
    AUTO_ANSWER b;
    AUTO_ANSWER c;
    AUTO_ANSWER d;
    struct api_write_op op = contract_op(API_CREATE, "once", dataset("once", 1));
    struct api_write w = {.user = "contract", .key = "once-1", .ops = &op, .n = 1};

    assert_int_equal(contract_write_all(r, &w, &a), 0);
    assert_int_equal(put(r, API_UPDATE, "once", 5), 0);
    op.object = dataset("once", 1);
    assert_int_equal(contract_write_all(r, &w, &b), 0); /* not E_EXISTS: the first answer */
    assert_int_equal(b.rv, a.rv);
    assert_int_equal(bytes_of(look(r->backend, b.view, "once")), 5);
    w.key = "once-2"; /* refusals are remembered, too */
    op = contract_op(API_CREATE, "once", dataset("once", 1));
    assert_int_equal(contract_write_all(r, &w, &c), E_EXISTS);
    assert_int_equal(put(r, API_DELETE, "once", 0), 0);
    op.object = dataset("once", 1);
    assert_int_equal(contract_write_all(r, &w, &d), E_EXISTS);
    AUTO_ANSWER e;
    w.user = "another"; /* keys are each user's own */
    op.object = dataset("once", 1);
    assert_int_equal(contract_write_all(r, &w, &e), 0);
    /* A refusal that its caller found is the answer, unless there is one. */
    AUTO_ANSWER f;
    AUTO_ANSWER g;
    AUTO_ANSWER h;
    AUTO_ANSWER i;
    struct err no = {.code = E_FORBIDDEN, .text = "no"};
    struct api_write refuse = {.user = "another", .key = "once-3", .refusal = &no};
    assert_int_equal(contract_write_all(r, &refuse, &f), E_FORBIDDEN);
    refuse.key = "once-2";
    assert_int_equal(contract_write_all(r, &refuse, &g), 0);
    assert_int_equal(g.rv, e.rv);
    w.key = "once-3";
    op = contract_op(API_CREATE, "never", dataset("never", 1));
    assert_int_equal(contract_write_all(r, &w, &h), E_FORBIDDEN);
    w.fingerprint = "another request";
    op.object = dataset("never", 1);
    assert_int_equal(contract_write_all(r, &w, &i), E_INVALID);
}

/* ---- what costs more: at the end ---- */
static void fill(struct backend_rig *r, enum api_write_verb verb, unsigned n)
{
    struct api_write_op *ops = mem_zalloc(n * sizeof *ops);
    struct api_write w = {.user = "contract", .ops = ops, .n = n, .deadline_ms = PATIENCE_MS};
    char(*names)[16] = mem_zalloc(n * sizeof *names);
    AUTO_ANSWER a;

    for (unsigned i = 0; i < n; i++) {
        (void)snprintf(names[i], sizeof names[i], "fill-%05u", i);
        ops[i] = contract_op(verb, names[i], verb == API_DELETE ? NULL : dataset(names[i], 1));
    }
    assert_int_equal(contract_write_all(r, &w, &a), 0);
    mem_free(names);
    mem_free(ops);
}
void backend_lets_old_changes_go(void **state)
{
    struct backend_rig *r = *state;
    struct seen s = {.since = rv_now(r->backend)};
    struct err e;
    unsigned left = r->changes_kept + 1;

    for (bool there = false; left > 0; there = !there) { /* created, deleted, … */
        static unsigned n;
        n = there ? n : left < 4000 ? left : 4000;
        fill(r, there ? API_DELETE : API_CREATE, n);
        left -= left < n ? left : n;
    }
    struct view *v = r->backend->ops->view(r->backend);
    assert_int_equal(r->backend->ops->changes(v, s.since, on_change, &s, &e), E_GONE);
    assert_int_equal(s.n, 0); /* not a part of them */
    struct seen last = {.since = r->backend->ops->view_rv(v) - 10};
    assert_int_equal(r->backend->ops->changes(v, last.since, on_change, &last, &e), 0);
    assert_int_equal(last.n, 10);
    r->backend->ops->view_release(v);
}

static void on_view(void *arg)
{
    ((struct contract_answer *)arg)->done = true;
}
void backend_tells_of_new_views(void **state)
{
    static struct contract_answer told; /* it may be told until the backend is closed */
    struct backend_rig *r = *state;

    r->backend->ops->subscribe(r->backend, on_view, &told);
    told.done = false;
    assert_int_equal(put(r, API_CREATE, "told", 1), 0);
    contract_await(r, &told);
}
