/* A list and a watch over a small API server in a script, in virtual time: nothing is lost between
 * a listing and its watch or behind a cut, nothing is taken away by half a listing or by an older
 * state, and what the server does wrong is bounded. */
#include "connectors/kubernetes/client/client.h"
#include "tests/support/unit.h"
#include "tests/support/web/script_web.h"
#include "tests/support/web/still_loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS 4096
static struct world {
    struct loop *l;
    struct kube_client *c;
    struct kube_watch *w;
    /* the server */
    unsigned rv, compacted;
    struct {
        unsigned rv;
        bool gone;
        char name[16];
    } events[EVENTS];
    size_t n_events;
    unsigned fat;        /* bytes beside each object */
    bool cuts;           /* watches end as soon as they have told */
    bool floods;         /* watches tell one object without an end */
    unsigned lists, looks, watches;
    const char *instead; /* body of all answers */
    const char *watch_body;
    int status;      /* 0: as it should be */
    int page_status; /* of pages after the first */
    enum script_how how;
    char selectors[200];
    /* what was told */
    unsigned items;
    char told[4096];
    char destroys[16]; /* at that word */
    bool relists;      /* once, at the first item */
} W;

static void change(const char *name, bool gone)
{
    INV(W.n_events < EVENTS);
    W.events[W.n_events].rv = ++W.rv;
    W.events[W.n_events].gone = gone;
    str_copy(W.events[W.n_events].name, sizeof W.events[0].name, name);
    W.n_events++;
}

static unsigned number(const char *url, const char *name)
{
    const char *at = strstr(url, name);

    return at ? (unsigned)strtoul(at + strlen(name), NULL, 10) : 0;
}

static void object_print(struct buf *b, size_t i)
{
    buf_printf(b, "{\"metadata\":{\"name\":\"%s\",\"resourceVersion\":\"%u\"},\"fat\":\"",
               W.events[i].name, W.events[i].rv);
    for (unsigned n = 0; n < W.fat; n++)
        buf_char(b, 'x');
    buf_str(b, "\"}");
}

static bool newest(size_t i, unsigned rv)
{
    for (size_t k = i + 1; k < W.n_events && W.events[k].rv <= rv; k++)
        if (!strcmp(W.events[k].name, W.events[i].name))
            return false;
    return !W.events[i].gone && W.events[i].rv <= rv;
}

/* The token is the listing's revision and how many were told. */
static void list(const char *url, struct buf *b)
{
    const char *token = strstr(url, "continue=");
    unsigned limit = number(url, "limit="), at = token ? number(url, "continue=c") : W.rv;
    unsigned skip = token ? (unsigned)strtoul(strchr(token, '-') + 1, NULL, 10) : 0, n = 0;
    bool more = false;

    W.lists += limit > 1;
    W.looks += limit == 1;
    buf_printf(b, "{\"kind\":\"List\",\"items\":[");
    for (size_t i = 0; i < W.n_events; i++) {
        if (!newest(i, at))
            continue;
        if (++n <= skip)
            continue;
        more = n > skip + limit;
        if (more)
            break;
        buf_str(b, n > skip + 1 ? "," : "");
        object_print(b, i);
    }
    buf_printf(b, "],\"metadata\":{\"resourceVersion\":\"%u\"", at);
    if (more)
        buf_printf(b, ",\"continue\":\"c%u-%u\"", at, skip + limit);
    buf_str(b, "}}");
}

static void watch(const char *url, struct buf *b, struct script_reply *ret)
{
    unsigned from = number(url, "resourceVersion=");

    W.watches++;
    assert_non_null(strstr(url, "watch=1&allowWatchBookmarks=true&"));
    assert_in_range(number(url, "timeoutSeconds="), 300, 600);
    ret->how = W.cuts ? SCRIPT_ANSWERS : SCRIPT_LASTS;
    if (from < W.compacted) {
        buf_str(b, "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,"
                   "\"reason\":\"Expired\"}}\n");
        return;
    }
    for (size_t i = 0; i < W.n_events; i++) {
        if (W.events[i].rv <= from)
            continue;
        buf_printf(b, "{\"type\":\"%s\",\"object\":", W.events[i].gone ? "DELETED" : "ADDED");
        object_print(b, i);
        buf_str(b, "}\n");
    }
    buf_printf(b,
               "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"%u\"}}}\n",
               W.rv);
}

static char room[8 << 20];
static void serve(void *arg, const struct script_try *t, struct script_reply *ret)
{
    bool watches = strstr(t->url, "watch=1") != NULL, page = strstr(t->url, "continue=") != NULL;
    struct buf b;

    (void)arg;
    ret->body = W.instead;
    ret->status = W.status;
    ret->how = W.how;
    if (W.status || W.how || W.instead)
        return;
    if (page && W.page_status) {
        ret->status = W.page_status;
        ret->body = "{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\"}";
        return;
    }
    if (*W.selectors && number(t->url, "limit=") != 1)
        assert_non_null(strstr(t->url, W.selectors));
    buf_init(&b, sizeof room);
    if (watches && W.watch_body)
        buf_str(&b, W.watch_body);
    else if (watches)
        watch(t->url, &b, ret);
    else
        list(t->url, &b);
    if (watches && (W.watch_body || W.floods))
        ret->how = W.floods ? SCRIPT_FLOODS : SCRIPT_LASTS;
    INV(!b.failed);
    memcpy(room, b.n ? b.p : "", b.n);
    room[b.n] = '\0';
    ret->body = room;
    buf_fini(&b);
}

/* ---- what is told ---- */
static void told(const char *what)
{
    size_t n = strlen(W.told);

    (void)snprintf(W.told + n, sizeof W.told - n, "%s%s", n ? " " : "", what);
    if (*W.destroys && !strncmp(what, W.destroys, strlen(W.destroys)))
        W.w = kube_watch_destroy(W.w);
}
static void begins(void *arg)
{
    (void)arg;
    told("begins");
}
static void item(void *arg, enum kube_change c, const cJSON *o)
{
    char text[64];

    (void)arg;
    W.items++;
    (void)snprintf(text, sizeof text, "%c%s", c == KUBE_GONE ? '-' : '+',
                   kube_text(o, "metadata.name"));
    if (W.relists)
        kube_watch_relist(W.w);
    W.relists = false;
    told(text);
}
static void listed(void *arg, const char *rv)
{
    char text[64];

    (void)arg;
    (void)snprintf(text, sizeof text, "listed@%s", rv);
    told(text);
}
static void trouble(void *arg, const struct err *err)
{
    (void)arg;
    told(err ? "trouble" : "well");
}
static void back(void *arg, const struct err *err)
{
    (void)arg;
    assert_int_equal(err->code, E_STALE);
    told("back");
}
static const struct kube_watch_events events = {
    .begins = begins, .item = item, .listed = listed, .trouble = trouble, .back = back};

static void begin(const char *selectors, unsigned page)
{
    const struct kube_login login = {.server = (char[]){"https://api.test"},
                                     .token = (char[]){"t"}};
    struct err e;

    memset(&W, 0, sizeof W);
    W.l = still_loop_create(5);
    script_web = (struct script){.serve = serve};
    change("a", false);
    change("b", false);
    change("c", false);
    str_copy(W.selectors, sizeof W.selectors, selectors);
    assert_int_equal(kube_client_create(W.l, "t1", &login, 4, &script_web_ops, &W.c, &e), 0);
    W.w = kube_watch_create(W.l, W.c, "/api/v1/pods", selectors, page, &events, NULL);
}

static void end(void)
{
    W.w = kube_watch_destroy(W.w);
    W.c = kube_client_destroy(W.c);
    assert_int_equal(script_web.under_way, 0);
    W.l = still_loop_destroy(W.l);
}

static void run(uint64_t ms)
{
    still_loop_run(W.l, ms);
}
static void forget(void)
{
    W.told[0] = '\0';
}

/* ---- what is held to ---- */
static void lists_in_pages_and_watches(void **state)
{
    (void)state;
    begin("labelSelector=hanse.dev%2Fkey", 2);
    run(1000);
    assert_string_equal(W.told, "begins +a +b +c listed@3");
    assert_int_equal(W.lists, 2);
    assert_int_equal(W.watches, 1);
    run(5000);
    assert_int_equal(W.watches, 1); /* it lasts */
    end();
}

static void a_cut_watch_goes_on_where_it_was(void **state)
{
    (void)state;
    begin("", 100);
    W.cuts = true;
    run(200);
    change("d", false);
    change("a", true);
    W.rv = 50; /* of other kinds; told by a bookmark */
    run(2000);
    W.compacted = 40; /* what a bookmark has brought beyond this is not expired */
    change("e", false);
    run(3000);
    assert_string_equal(W.told, "begins +a +b +c listed@3 +d -a +e");
    assert_int_equal(W.lists, 1);
    assert_true(W.watches > 4 && W.watches < 40);
    assert_true(W.looks + 1 >= W.watches);
    end();
}

static void what_has_expired_is_listed_anew(void **state)
{
    (void)state;
    begin("", 100);
    W.cuts = true;
    run(400);
    forget();
    change("b", true);
    change("d", false);
    W.compacted = W.rv;
    run(3000);
    assert_string_equal(W.told, "begins +a +c +d listed@5");
    end();
}

static void expired_amid_the_pages(void **state)
{
    (void)state;
    begin("", 2);
    W.page_status = 410;
    run(1000);
    assert_true(strncmp(W.told, "begins +a +b begins +a +b", 25) == 0);
    assert_null(strstr(W.told, "listed"));
    assert_true(W.lists < 10); /* it does not go round in haste */
    forget();
    W.page_status = 0;
    run(20000);
    assert_non_null(strstr(W.told, "begins +a +b +c listed@3"));
    assert_null(strstr(W.told, "trouble"));
    end();
}

static void trouble_is_told_once(void **state)
{
    (void)state;
    begin("", 100);
    run(5000);
    forget();
    W.how = SCRIPT_REFUSES;
    kube_watch_relist(W.w);
    run(300000);
    assert_string_equal(W.told, "trouble");
    W.how = SCRIPT_ANSWERS;
    run(60000);
    assert_string_equal(W.told, "trouble begins +a +b +c listed@3 well");
    end();
}

static void refusals_are_trouble(void **state)
{
    (void)state;
    begin("", 100);
    W.status = 403;
    W.instead = "{\"kind\":\"Status\",\"code\":403,\"message\":\"pods is forbidden\"}";
    run(60000);
    assert_string_equal(W.told, "trouble");
    assert_true(script_web.tries < 20);
    W.status = 0;
    W.instead = "<html>";
    run(60000);
    W.instead = "{\"items\":3,\"metadata\":{\"resourceVersion\":\"1\"}}";
    run(60000);
    W.instead = "{\"items\":[],\"metadata\":{\"resourceVersion\":\"1&x=y\"}}";
    run(60000);
    assert_string_equal(W.told, "trouble");
    assert_true(script_web.tries < 100);
    end();
}

/* Nothing is taken of a member of the server's that lags, or of a state that was restored; what
 * comes once it has come as far may be another history. */
static void an_older_state_is_not_taken(void **state)
{
    (void)state;
    begin("", 100);
    W.rv = 100;
    run(3000);
    forget();
    W.rv = 60;
    kube_watch_relist(W.w);
    run(4000);
    assert_string_equal(W.told, "trouble");
    W.rv = 100;
    run(10000);
    assert_string_equal(W.told, "trouble back");
    end();
    begin("", 100);
    W.rv = 100;
    W.cuts = true;
    run(1500);
    forget();
    W.n_events = 1;
    W.rv = 99; /* restored: its watch is cut, and would be silent until 100 comes again */
    run(60000);
    assert_string_equal(W.told, "trouble back");
    unsigned tries = script_web.tries;
    run(60000);
    assert_int_equal(script_web.tries, tries); /* it rests for good */
    end();
}

/* It may be another one that comes back, of a state that has come as far meanwhile. */
static void who_was_away_is_listed_anew(void **state)
{
    (void)state;
    begin("", 100);
    run(3000);
    forget();
    W.cuts = true;
    W.how = SCRIPT_REFUSES;
    run(200000); /* its connection is silent, then it does not answer */
    assert_string_equal(W.told, "trouble");
    W.how = SCRIPT_ANSWERS;
    W.n_events = 1;
    W.rv = 200;
    run(60000);
    assert_string_equal(W.told, "trouble begins +a listed@200 well");
    end();
}

static void revisions_are_compared_as_numbers(void **state)
{
    (void)state;
    begin("", 100);
    W.rv = 99;
    run(1000);
    W.rv = 100;
    kube_watch_relist(W.w);
    run(3000);
    assert_non_null(strstr(W.told, "listed@99"));
    assert_non_null(strstr(W.told, "listed@100"));
    assert_null(strstr(W.told, "trouble"));
    end();
}

static void hostile_watches(void **state)
{
    static const char *const bodies[] = {
        "no JSON\n",
        "{\"type\":\"ADDED\"}\n",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"x\"}}}\n",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"resourceVersion\":\"1\"}}}\n",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"resourceVersion\":\"9 9\"}}}\n",
        "{\"type\":\"ERROR\",\"object\":{\"code\":500,\"message\":\"etcd\"}}\n",
        "{\"type\":\"ERROR\",\"object\":7}\n",
        "[[[[\n",
        "7\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        begin("", 100);
        W.watch_body = bodies[i];
        run(30000);
        assert_string_equal(W.told, "begins +a +b +c listed@3 trouble");
        assert_true(script_web.tries < 30);
        W.watch_body = NULL;
        run(30000);
        assert_string_equal(W.told, "begins +a +b +c listed@3 trouble well");
        end();
    }
}

static void an_endless_object_ends(void **state)
{
    (void)state;
    begin("", 100);
    run(3000);
    forget();
    W.floods = true; /* without a line's end */
    kube_watch_relist(W.w);
    run(5000);
    assert_true(script_web.sent_bytes < 64u << 20);
    assert_string_equal(W.told, "begins +a +b +c listed@3 trouble");
    end();
}

static void a_dead_connection_is_left(void **state)
{
    (void)state;
    begin("", 100);
    run(3000);
    forget();
    change("d", false); /* nobody tells it */
    run(200000);
    assert_string_equal(W.told, "+d");
    assert_int_equal(W.watches, 2);
    end();
}

static void pages_shrink_until_they_fit(void **state)
{
    (void)state;
    begin("", 8);
    W.fat = 2 << 20;
    W.n_events = 0;
    W.rv = 0;
    for (char n = 'a'; n < 'i'; n++)
        change((char[]){n, '\0'}, false);
    W.fat = 900 << 10;
    run(5000);
    assert_string_equal(W.told, "begins +a +b +c +d +e +f +g +h listed@8");
    end();
}

static void many_changes_take_turns(void **state)
{
    (void)state;
    begin("", 100);
    W.cuts = true;
    run(100);
    for (unsigned i = 0; i < 3000; i++)
        change("d", false);
    W.items = 0;
    forget();
    run(5000);
    assert_int_equal(W.items, 3000);
    assert_null(strstr(W.told, "trouble"));
    end();
}

static void may_be_destroyed_anywhere(void **state)
{
    static const char *const at[] = {"begins", "+b", "listed", "+d", "-a"};

    (void)state;
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        begin("", 2);
        W.cuts = true;
        str_copy(W.destroys, sizeof W.destroys, at[i]);
        run(300);
        change("d", false);
        change("a", true);
        change("e", false);
        run(5000);
        assert_null(W.w);
        assert_null(strstr(W.told, "+e"));
        end();
    }
}

static void relists_while_it_lists(void **state)
{
    (void)state;
    begin("", 2);
    W.relists = true;
    run(3000);
    assert_string_equal(W.told, "begins +a +b begins +a +b +c listed@3");
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_in_pages_and_watches),
        cmocka_unit_test(a_cut_watch_goes_on_where_it_was),
        cmocka_unit_test(what_has_expired_is_listed_anew),
        cmocka_unit_test(expired_amid_the_pages),
        cmocka_unit_test(trouble_is_told_once),
        cmocka_unit_test(refusals_are_trouble),
        cmocka_unit_test(an_older_state_is_not_taken),
        cmocka_unit_test(who_was_away_is_listed_anew),
        cmocka_unit_test(revisions_are_compared_as_numbers),
        cmocka_unit_test(hostile_watches),
        cmocka_unit_test(an_endless_object_ends),
        cmocka_unit_test(a_dead_connection_is_left),
        cmocka_unit_test(pages_shrink_until_they_fit),
        cmocka_unit_test(many_changes_take_turns),
        cmocka_unit_test(may_be_destroyed_anywhere),
        cmocka_unit_test(relists_while_it_lists),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
