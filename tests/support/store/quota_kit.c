/* See quota_kit.h. */
#include "tests/support/store/quota_kit.h"

void quota_begin(struct kit *k)
{
    kit_begin(k);
    kit_level_set(k, FEATURE_GRANTS);
    kit_pool(k, 2, 8);
}

union command user_command(struct kit *k, struct write_op *ops, uint32_t n)
{
    union command c = {.head = {.type = CMD_REQUEST, .user = "alice"}};

    c.request.write.ops = ops;
    c.request.write.n = n;
    c.request.member = 2;
    c.request.session = 1;
    c.request.number = k->number + 1;
    c.request.floor = c.request.number;
    return c;
}

struct result user_ops(struct kit *k, struct write_op *ops, uint32_t n)
{
    union command c = user_command(k, ops, n);
    struct err ahead = {0};
    int over = n == 1 ? root_quota_over(k->root, &ops[0], &ahead) : 0;
    struct result r = kit_apply(k, &c);

    if (over || (n == 1 && r.code == E_FORBIDDEN)) { /* who asks ahead is told what apply says */
        assert_int_equal(r.code, over);
        assert_string_equal(r.text, ahead.text);
    }
    for (uint32_t i = 0; i < n; i++)
        ops[i].object = object_unref(ops[i].object);
    root_check(k->root);
    return r;
}

void user_op(struct kit *k, struct write_op *op, enum kind_id kind, const char *name, void *body)
{
    ((struct any_body *)body)->metadata = kit_meta(k, k->ns, name);
    kit_op(op, WRITE_CREATE, kind, k->ns, name, body);
}

struct result user_create(struct kit *k, enum kind_id kind, const char *name, void *body)
{
    struct write_op op;

    user_op(k, &op, kind, name, body);
    return user_ops(k, &op, 1);
}

struct result user_delete(struct kit *k, enum kind_id kind, const char *name)
{
    struct write_op op;

    kit_op(&op, WRITE_DELETE, kind, k->ns, name, NULL);
    return user_ops(k, &op, 1);
}

struct resource_quota *quota_of(struct kit *k, const char *hard)
{
    struct resource_quota *q = arena_new(k->a, struct resource_quota);
    char *text = arena_strdup(k->a, hard), *save = NULL;

    q->spec = arena_new(k->a, struct resource_quota_spec);
    q->spec->hard = arena_array(k->a, struct kv, 16);
    for (char *p = strtok_r(text, " ", &save); p; p = strtok_r(NULL, " ", &save)) {
        char *equal = strrchr(p, '=');

        *equal = 0;
        q->spec->hard[q->spec->n_hard++] = (struct kv){p, equal + 1};
    }
    return q;
}

void quota_make(struct kit *k, const char *name, const char *hard)
{
    struct result r = user_create(k, KIND_RESOURCE_QUOTA, name, quota_of(k, hard));

    if (r.code)
        fail_msg("%s", r.text);
}

const char *quota_used(struct kit *k, const char *name, const char *key)
{
    const struct object *o = root_get(k->root, KIND_RESOURCE_QUOTA, k->ns, name);
    const struct resource_quota_status *s = object_as(o, resource_quota)->status;
    const char *value = label_get(s->used, s->n_used, key);

    return value ? value : "-";
}

struct workload *quota_workload(struct kit *k, int64_t array)
{
    struct workload *w = arena_new(k->a, struct workload);

    w->spec = arena_new(k->a, struct workload_spec);
    w->spec->run = arena_new(k->a, struct run_spec);
    w->spec->run->script = "true";
    w->spec->resources = arena_new(k->a, struct resources);
    w->spec->resources->cpu = 1000;
    w->spec->resources->gpu = arena_new(k->a, struct gpu_request);
    w->spec->resources->gpu->count = 1;
    if (array) {
        w->spec->array = arena_new(k->a, struct array_spec);
        w->spec->array->count = array;
    }
    return w;
}

struct result user_workload(struct kit *k, const char *name, int64_t array)
{
    return user_create(k, KIND_WORKLOAD, name, quota_workload(k, array));
}
