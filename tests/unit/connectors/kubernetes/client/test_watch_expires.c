/* Watches that expire each time, and such that tell nothing, over a small API server in a script,
 * in virtual time: both are told as trouble, and what there is then is listed. */
#include "connectors/kubernetes/client/client.h"
#include "tests/support/unit.h"
#include "tests/support/web/script_web.h"
#include "tests/support/web/still_loop.h"

#include <stdio.h>
#include <string.h>

static struct world {
    struct loop *l;
    struct kube_client *c;
    struct kube_watch *w;
    /* the server: objects of one letter */
    const char *objects;
    unsigned rv, lists, watches;
    bool mute;            /* watches tell nothing */
    int watch_status;     /* of watches, with no Status */
    unsigned long_tokens; /* lists come in two pages, and so many bytes say which is next */
    /* what was told */
    char told[4096];
    bool relists; /* once, when a listing is whole */
} W;

static char room[64 << 10];

static void list(const char *url, struct buf *b)
{
    bool last = !W.long_tokens || strstr(url, "continue=");
    const char *from = W.objects + (strstr(url, "continue=") ? 1 : 0);

    W.lists += strcmp(strstr(url, "limit="), "limit=1") != 0;
    buf_str(b, "{\"kind\":\"List\",\"items\":[");
    for (const char *o = from; *o && (last || o == from); o++)
        buf_printf(b, "%s{\"metadata\":{\"name\":\"%c\",\"resourceVersion\":\"1\"}}",
                   o == from ? "" : ",", *o);
    buf_printf(b, "],\"metadata\":{\"resourceVersion\":\"%u\",\"continue\":\"", W.rv);
    for (unsigned i = 0; !last && i < W.long_tokens; i++)
        buf_char(b, 'c');
    buf_str(b, "\"}}");
}

static void serve(void *arg, const struct script_try *t, struct script_reply *ret)
{
    bool watches = strstr(t->url, "watch=1") != NULL;
    struct buf b;

    (void)arg;
    W.watches += watches;
    if (watches && W.watch_status) {
        ret->status = W.watch_status;
        ret->body = "gone";
        return;
    }
    buf_init(&b, sizeof room);
    if (!watches)
        list(t->url, &b);
    else if (!W.mute)
        buf_printf(&b,
                   "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":"
                   "\"%u\"}}}\n",
                   W.rv);
    if (watches)
        ret->how = SCRIPT_LASTS;
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
    (void)snprintf(text, sizeof text, "%c%s", c == KUBE_GONE ? '-' : '+',
                   kube_text(o, "metadata.name"));
    told(text);
}
static void listed(void *arg, const char *rv)
{
    char text[64];

    (void)arg;
    (void)snprintf(text, sizeof text, "listed@%s", rv);
    if (W.relists)
        kube_watch_relist(W.w);
    W.relists = false;
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
    (void)err;
    told("back");
}
static const struct kube_watch_events events = {
    .begins = begins, .item = item, .listed = listed, .trouble = trouble, .back = back};

static void begin(void)
{
    const struct kube_login login = {.server = (char[]){"https://api.test"},
                                     .token = (char[]){"t"}};
    struct err e;

    W = (struct world){.l = still_loop_create(5), .objects = "abc", .rv = 3};
    script_web = (struct script){.serve = serve};
    assert_int_equal(kube_client_create(W.l, "t1", &login, 4, &script_web_ops, &W.c, &e), 0);
    W.w = kube_watch_create(W.l, W.c, "/api/v1/pods", "", 100, &events, NULL);
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
/* Each listing is whole, and cannot be watched. */
static void what_expires_each_time_is_trouble(void **state)
{
    (void)state;
    begin();
    W.watch_status = 410; /* from something between, without a Status */
    run(60000);
    assert_true(W.lists >= 3 && W.lists < 20);
    assert_non_null(strstr(W.told, "begins +a +b +c listed@3 begins"));
    assert_non_null(strstr(W.told, "trouble"));
    assert_null(strstr(strstr(W.told, "trouble") + 1, "trouble"));
    forget();
    W.watch_status = 0;
    run(60000);
    assert_string_equal(W.told, "begins +a +b +c listed@3 well");
    end();
}

/* From ahead of what the server has a watch is silent without an error. */
static void a_watch_that_tells_nothing_is_listed_anew(void **state)
{
    (void)state;
    begin();
    W.mute = true;
    run(100000);
    assert_string_equal(W.told, "begins +a +b +c listed@3");
    forget();
    W.objects = "abcd";
    W.rv = 4;
    run(100000);
    assert_string_equal(W.told, "trouble begins +a +b +c +d listed@4 well");
    end();
}

static void tokens_of_pages_may_be_long(void **state)
{
    (void)state;
    begin();
    W.long_tokens = 16000;
    run(5000);
    assert_string_equal(W.told, "begins +a +b +c listed@3");
    end();
}

static void relists_once_it_has_listed(void **state)
{
    (void)state;
    begin();
    W.relists = true;
    run(5000);
    assert_string_equal(W.told, "begins +a +b +c listed@3 begins +a +b +c listed@3");
    assert_int_equal(W.watches, 1);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_expires_each_time_is_trouble),
        cmocka_unit_test(a_watch_that_tells_nothing_is_listed_anew),
        cmocka_unit_test(tokens_of_pages_may_be_long),
        cmocka_unit_test(relists_once_it_has_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
