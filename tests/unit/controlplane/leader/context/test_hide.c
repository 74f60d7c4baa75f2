/* Values of Secrets in what a target says reach nobody: not whole, not twice, not cut, and whoever
 * asked the target. */
#include "controlplane/leader/context/hide.h"
#include "tests/support/store/store_kit.h"

static unsigned held; /* values that are not given back yet */

static const char *secret_get(void *arg, const char *ns, const char *name, const char *key)
{
    (void)arg;
    assert_string_equal(ns, "default");
    const char *v = strcmp(name, "s") != 0      ? NULL
                    : strcmp(key, "long") == 0  ? "hunter2hunter"
                    : strcmp(key, "part") == 0  ? "hunter2"
                    : strcmp(key, "short") == 0 ? "abc"
                                                : NULL;
    held += v != NULL;
    return v;
}
static void secret_put(void *arg, const char *text)
{
    (void)arg;
    assert_non_null(text);
    held--;
}

static void follow(struct brain *b)
{
    (void)b;
}

struct world {
    struct kit kit;
    struct brain brain;
    const struct object *w;
};

static void world_init(struct world *x)
{
    static const char *const keys[] = {"part", "long", "short", "gone"};
    struct err err;

    *x = (struct world){0};
    kit_begin(&x->kit);
    kit_pool(&x->kit, 1, 4);
    assert_int_equal(kit_workload(&x->kit, x->kit.ns, "w", 1, 1).code, 0);
    struct workload *w = object_edit_as(kit_get(&x->kit, "w"), workload, x->kit.a);
    if (!w->spec->run)
        w->spec->run = arena_new(x->kit.a, struct run_spec);
    w->spec->run->env = arena_array(x->kit.a, struct env_var, 5);
    w->spec->run->n_env = 5;
    for (int i = 0; i < 4; i++) {
        w->spec->run->env[i].name = arena_printf(x->kit.a, "E%d", i);
        w->spec->run->env[i].value = "";
        w->spec->run->env[i].valueFrom = arena_new(x->kit.a, struct secret_key_ref);
        *w->spec->run->env[i].valueFrom = (struct secret_key_ref){.secret = "s", .key = keys[i]};
    }
    w->spec->run->env[4] = (struct env_var){.name = "PLAIN", .value = "public"};
    assert_int_equal(kit_update(&x->kit, KIND_WORKLOAD, x->kit.ns, "w", w, 0, false).code, 0);
    x->w = kit_get(&x->kit, "w");
    x->brain = (struct brain){.root = x->kit.root,
                              .leads = true,
                              .follow = follow,
                              .cfg = {.secret_get = secret_get, .secret_put = secret_put},
                              .loop = loop_uv_create(&err)};
    assert_non_null(x->brain.loop);
}

static void world_fini(struct world *x)
{
    assert_int_equal(held, 0);
    loop_uv_destroy(x->brain.loop);
    kit_end(&x->kit);
}

static void becomes(struct world *x, const char *said, const char *told)
{
    char text[512];

    str_copy(text, sizeof text, said);
    hide_text(&x->brain, x->w, text);
    assert_string_equal(text, told);
}

static void test_texts(void **state)
{
    struct world x;

    (void)state;
    world_init(&x);
    becomes(&x, "no room", "no room");
    becomes(&x, "", "");
    becomes(&x, "E0=hunter2 is refused", "E0=*** is refused");
    becomes(&x, "hunter2hunter", "***"); /* the longer one, though a shorter one is in it */
    becomes(&x, "hunter2 and hunter2hunter; PLAIN=public", "*** and ***; PLAIN=public");
    becomes(&x, "hunter2hunter2", "***");
    becomes(&x, "abc is no secret of that size", "abc is no secret of that size");
    becomes(&x, "it was cut in the midst of hunt", "it was cut in the midst of ***");
    becomes(&x, "hun is too little to tell", "hun is too little to tell");
    becomes(&x,
            "\x1b[2Jgone\nNAME\x7f \xc2\x9b"
            "2J \xc3\xa9",
            " [2Jgone NAME    2J \xc3\xa9");
    becomes(&x, "a\xe2\x80\xae" "b\xe2\x81\xa6" "c \xe2\x80\xa6", "a   b   c \xe2\x80\xa6");
    becomes(&x, "tokens: [hanse-run-1/c.2/u.1.1/0/2/17/0123456789abcdef]",
            "tokens: [hanse-run-1/c.2/u.1.1/0/2/17/***]");
    world_fini(&x);
}

/* A reason is a word that the hub acts upon: an end that a value begins with is its own. */
static void test_words(void **state)
{
    struct world x;
    struct observation o = {.reason = "Manhunt", .message = "cut: hunt"};
    char id[32] = "pod/a-hunter", full[16] = "pod/abcdef-hunt";

    (void)state;
    world_init(&x);
    hide_observation(&x.brain, x.w, &o);
    assert_string_equal(o.reason, "Manhunt");
    assert_string_equal(o.message, "cut: ***");
    str_copy(o.reason, sizeof o.reason, "hunter2");
    hide_observation(&x.brain, x.w, &o);
    assert_string_equal(o.reason, "***");
    hide_word(&x.brain, x.w, id, sizeof id);
    assert_string_equal(id, "pod/a-hunter");
    hide_word(&x.brain, x.w, full, sizeof full); /* it fills its room */
    assert_string_equal(full, "pod/abcdef-***");
    world_fini(&x);
}

/* ---- whoever asks ---- */
static char seen_text[512], err_text[512];

static void done(struct call *c, enum outcome out, const struct observation *seen,
                 const struct err *err)
{
    (void)c;
    (void)out;
    str_copy(seen_text, sizeof seen_text, seen ? seen->message : "");
    str_copy(err_text, sizeof err_text, err ? err->text : "");
}

static void test_answers(void **state)
{
    struct observation o = {.state = RUN_ENDED, .message = "died of hunter2"};
    struct brain_call call = {0};
    struct world x;
    struct err err;

    (void)state;
    world_init(&x);
    (void)err_set(&err, E_INVALID, "env E0: \"hunter2\" is not wanted");
    struct call *c = brain_call_about(&x.brain, &call, x.w->meta->uid, 1000, done);
    c->done(c, OUT_DONE, &o, &err);
    assert_string_equal(seen_text, "died of ***");
    assert_string_equal(err_text, "env E0: \"***\" is not wanted");
    assert_string_equal(o.message, "died of hunter2"); /* the driver's own stays as it is */
    c = brain_call(&x.brain, &call, 1000, done);       /* of no workload: it was told no Secret */
    c->done(c, OUT_DONE, NULL, &err);
    assert_string_equal(err_text, "env E0: \"hunter2\" is not wanted");
    world_fini(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts), cmocka_unit_test(test_words),
                                       cmocka_unit_test(test_answers)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
