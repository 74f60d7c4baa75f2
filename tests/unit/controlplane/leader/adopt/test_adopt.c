/* A look at what others run, as the leader asks for it: page after page, Jobs ahead of pods, anew
 * where pages have expired, one at a time, and one answer whatever happens meanwhile. */
#include "controlplane/leader/adopt/adopt.h"
#include "controlplane/leader/site/sites.h"
#include "tests/support/store/store_kit.h"
#include "tests/support/web/still_loop.h"

#include <string.h>

/* ---- a target that answers when the test says so ---- */
static struct {
    unsigned asks;
    struct foreign_ask ask;
    char after[64], ns[64];
    foreign_cb cb;
    void *arg;
} target_;

static void on_foreign(struct connector *c, const struct foreign_ask *ask, foreign_cb cb, void *arg)
{
    (void)c;
    assert_null(target_.cb);
    target_.asks++;
    target_.ask = *ask;
    str_copy(target_.after, sizeof target_.after, ask->after);
    str_copy(target_.ns, sizeof target_.ns, ask->ns);
    target_.cb = cb;
    target_.arg = arg;
}

static const struct connector_ops can = {.type = "kubernetes", .foreign = on_foreign};
static const struct connector_ops cannot = {.type = "agent"};

static void answers(const char *next, int code)
{
    const struct foreign_page p = {.next = next};
    foreign_cb cb = target_.cb;
    struct err err;

    assert_non_null(cb);
    target_.cb = NULL;
    if (code)
        (void)err_set(&err, code, "so it is");
    cb(target_.arg, code ? NULL : &p, code ? &err : NULL);
}

/* ---- who asks ---- */
struct heard {
    unsigned n;
    int code;
    char text[256];
};

static void on_told(void *arg, const char *json, const struct err *err)
{
    struct heard *h = arg;

    h->n++;
    h->code = err ? err->code : 0;
    str_copy(h->text, sizeof h->text, err ? err->text : json);
}

struct world {
    struct kit kit;
    struct brain brain;
    struct sites sites;
    struct adopts adopts;
    struct connector connector;
    struct site site;
    struct heard heard;
};

static void ask(struct world *x, const char *name, const char *ns, struct heard *h)
{
    const struct adopt_ask a = {.target = name, .ns = ns, .limit = 10};

    *h = (struct heard){0};
    brain_adopt_shadow(&x->brain, &a, on_told, h);
}

static void turn(struct world *x)
{
    still_loop_run(x->brain.loop, 10);
}

static int setup(void **state)
{
    struct world *x = mem_new(struct world);
    struct target *t;

    memset(&target_, 0, sizeof target_);
    kit_begin(&x->kit);
    t = arena_new(x->kit.a, struct target);
    t->metadata = kit_meta(&x->kit, "", "fra");
    t->spec = arena_new(x->kit.a, struct target_spec);
    t->spec->type = TARGET_KUBERNETES;
    t->spec->tier = TIER_HUB;
    assert_int_equal(kit_create(&x->kit, KIND_TARGET, "", "fra", t).code, 0);
    x->connector.ops = &can;
    x->brain.leads = true;
    x->brain.root = x->kit.root;
    x->brain.sites = &x->sites;
    x->brain.adopts = &x->adopts;
    x->brain.loop = still_loop_create(1);
    x->site.brain = &x->brain;
    x->site.connector = &x->connector;
    x->site.reachable = true;
    str_copy(x->site.name, sizeof x->site.name, "fra");
    x->site.by_name.key = x->site.name;
    index_add(&x->sites.by_name, &x->site.by_name);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct world *x = *state;

    adopt_drop(&x->brain);
    index_remove(&x->sites.by_name, &x->site.by_name);
    kit_end(&x->kit);
    (void)still_loop_destroy(x->brain.loop);
    mem_free(x);
    return 0;
}

/* ---- tests ---- */
static void jobs_ahead_of_pods_page_after_page(void **state)
{
    struct world *x = *state;

    ask(x, "fra", "vision", &x->heard);
    assert_int_equal(target_.asks, 1);
    assert_int_equal(target_.ask.what, FOREIGN_JOBS);
    assert_string_equal(target_.ns, "vision");
    assert_string_equal(target_.after, "");
    answers("more", 0);
    turn(x);
    assert_int_equal(target_.ask.what, FOREIGN_JOBS);
    assert_string_equal(target_.after, "more");
    answers("", 0);
    turn(x);
    assert_int_equal(target_.ask.what, FOREIGN_PODS);
    assert_string_equal(target_.after, "");
    answers("", 0); /* now it would decide, and has no pool yet */
    turn(x);
    assert_int_equal(x->heard.n, 1);
    assert_int_equal(x->heard.code, E_UNAVAIL);
    ask(x, "fra", "", &x->heard); /* and the next one may ask */
    assert_int_equal(x->heard.n, 0);
    answers("", E_FORBIDDEN);
    assert_int_equal(x->heard.code, E_FORBIDDEN);
}

static void expired_pages_are_asked_for_anew(void **state)
{
    struct world *x = *state;

    ask(x, "fra", "", &x->heard);
    answers("", 0);
    turn(x);
    for (int i = 0; i < 3; i++) {
        answers("", E_GONE);
        assert_int_equal(x->heard.n, 0);
        turn(x);
        assert_int_equal(target_.ask.what, FOREIGN_JOBS);
        assert_string_equal(target_.after, "");
    }
    answers("", E_GONE); /* again and again: that is told */
    assert_int_equal(x->heard.n, 1);
    assert_int_equal(x->heard.code, E_GONE);
}

static void who_cannot_be_answered(void **state)
{
    struct world *x = *state;
    struct heard other;

    ask(x, "nowhere", "", &other);
    assert_int_equal(other.code, E_NOTFOUND);
    ask(x, "fra", "0123456789012345678901234567890123456789012345678901234567890123456789", &other);
    assert_int_equal(other.code, E_INVALID);
    x->site.reachable = false;
    ask(x, "fra", "", &other);
    assert_int_equal(other.code, E_UNAVAIL);
    x->site.reachable = true;
    x->connector.ops = &cannot;
    ask(x, "fra", "", &other);
    assert_int_equal(other.code, E_NOTIMPL);
    x->connector.ops = &can;
    assert_int_equal(target_.asks, 0);
    ask(x, "fra", "", &x->heard);
    ask(x, "fra", "", &other); /* one at a time */
    assert_int_equal(other.code, E_LIMIT);
    assert_int_equal(target_.asks, 1);
    x->site.reachable = false; /* amid its pages */
    answers("more", 0);
    turn(x);
    assert_int_equal(x->heard.code, E_UNAVAIL);
    x->brain.leads = false;
    ask(x, "fra", "", &other);
    assert_int_equal(other.code, E_UNAVAIL);
}

static void a_leadership_that_ends(void **state)
{
    struct world *x = *state;

    ask(x, "fra", "", &x->heard); /* while a page is on its way */
    adopt_drop(&x->brain);
    assert_int_equal(x->heard.n, 1);
    assert_int_equal(x->heard.code, E_UNAVAIL);
    answers("", 0);
    assert_int_equal(x->heard.n, 1);
    ask(x, "fra", "", &x->heard); /* and while none is */
    answers("more", 0);
    adopt_drop(&x->brain);
    assert_int_equal(x->heard.n, 1);
    turn(x);
    assert_int_equal(target_.asks, 2);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(jobs_ahead_of_pods_page_after_page),
        T(expired_pages_are_asked_for_anew),
        T(who_cannot_be_answered),
        T(a_leadership_that_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
