/* See policy_world.h. */
#include "tests/support/policy/policy_world.h"

const struct object *world_docs(struct world *w, const char *text, bool put)
{
    struct yaml_doc *docs;
    size_t n;
    struct err err = {0};

    if (yaml_parse_all(text, strlen(text), "test", &docs, &n, &err) != 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < n; i++) {
        const cJSON *kind = cJSON_GetObjectItem(docs[i].json, "kind");
        const struct kind *k = kind_by_name(kind->valuestring);

        assert_true(w->n_made < WORLD_MAX);
        if (!cJSON_GetObjectItem(docs[i].json, "apiVersion"))
            cJSON_AddStringToObject(docs[i].json, "apiVersion", "hanse.dev/v1alpha1");
        if (object_from_json(k, docs[i].json, 0, &w->made[w->n_made], &err) != 0)
            fail_msg("%s: %s (%s)", kind->valuestring, err.text, err.field);
        if (put)
            pool_put(w->p, w->made[w->n_made]);
        w->n_made++;
    }
    yaml_docs_free(docs, n);
    return w->made[w->n_made - 1];
}

const struct object *world_large(struct world *w, const struct object *o)
{
    struct any_body {
        uint64_t has;
        struct slice unknown;
        struct meta *metadata;
    } *body = object_edit(o, w->a);
    char *text = arena_alloc(w->a, OBJECT_MADE_MAX_BYTES + 1);
    struct object *large = NULL;

    memset(text, 'x', OBJECT_MADE_MAX_BYTES);
    text[OBJECT_MADE_MAX_BYTES] = '\0';
    body->metadata->annotations = arena_new(w->a, struct kv);
    *body->metadata->annotations = (struct kv){"large", text};
    body->metadata->n_annotations = 1;
    assert_int_equal(object_make_within(o->kind, body, 2 * OBJECT_MADE_MAX_BYTES, &large, NULL), 0);
    assert_true(w->n_made < WORLD_MAX);
    w->made[w->n_made++] = large;
    return large;
}

void world_put(struct world *w, const char *text)
{
    (void)world_docs(w, text, true);
}

void world_init(struct world *w)
{
    *w = (struct world){.p = pool_create(), .a = arena_create(0)};
}

void world_fini(struct world *w)
{
    w->p = pool_destroy(w->p);
    w->a = arena_destroy(w->a);
    for (size_t i = 0; i < w->n_made; i++)
        (void)object_unref(w->made[i]);
}

int world_setup(void **state)
{
    static struct world w;

    world_init(&w);
    *state = &w;
    return 0;
}

int world_teardown(void **state)
{
    world_fini(*state);
    return 0;
}

void world_nodes(struct world *w, const char *target, int n, int gpus, const char *class_,
                 const char *more)
{
    for (int i = 1; i <= n; i++) {
        char text[4096];
        int used = snprintf(text, sizeof(text),
                            "kind: Node\nmetadata: {name: %s-n%d}\nspec:\n  target: %s\n"
                            "  cpu: 64\n  memory: 512Gi\n"
                            "  topology: {block: b1, rack: r%d, leaf: l%d}\n%s  gpus:\n",
                            target, i, target, (i + 1) / 2, (i + 1) / 2, more);

        for (int k = 0; k < gpus; k++)
            used += snprintf(text + used, sizeof(text) - (size_t)used,
                             "  - {index: %d, class: %s, memory: 80Gi}\n", k, class_);
        if (gpus == 0)
            (void)snprintf(text + used - 8, 8, "\n");
        world_put(w, text);
    }
}

void world_target(struct world *w, const char *name, const char *more)
{
    char text[1024];

    (void)snprintf(text, sizeof(text),
                   "kind: Target\nmetadata: {name: %s}\nspec: {type: agent, %s}\n", name, more);
    world_put(w, text);
    pool_target_reachable(w->p, name, REACH_YES);
}

const struct object *world_workload(struct world *w, const char *name, const char *spec)
{
    char text[4096];

    (void)snprintf(
        text, sizeof(text),
        "kind: Workload\nmetadata: {name: %s, namespace: dev, uid: uid-%s, labels: {app: "
        "%s}}\nspec:\n  run: {command: [x]}\n%s",
        name, name, name, spec);
    return world_docs(w, text, false);
}

void world_decide_at(struct world *w, const struct object *o, int64_t now)
{
    struct place_request rq = {.workload = o, .now_ms = now};
    struct err err = {0};
    AUTO_BUF b;

    buf_init(&b, 1 << 20);
    assert_int_equal(policy_place(w->p, &rq, w->a, &w->d, &w->pl, &err), 0);
    tlv_add(&schema_decision_spec, w->d, &b);
    assert_true(b.n <= LIMIT_DECISION_MAX_BYTES);
    assert_string_equal(w->d->outcome, w->pl ? "Placed" : "Pending");
}

void world_run(struct world *w, const char *name, const char *spec)
{
    const struct object *o = world_workload(w, name, spec);

    world_decide_at(w, o, NOW);
    if (w->pl)
        pool_hold_placement(w->p, o, w->pl);
}

const struct candidate *world_row(const struct world *w, const char *target)
{
    for (uint32_t i = 0; i < w->d->n_candidates; i++) {
        if (strcmp(w->d->candidates[i].target, target) == 0)
            return &w->d->candidates[i];
    }
    fail_msg("no row of %s", target);
    return NULL;
}
