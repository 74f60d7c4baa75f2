/* The HTTP client over a scripted server, in virtual time: how requests end, when they are sent
 * again, what limits hold, and that no secret gets out. */
#include "connectors/web/web.h"
#include "tests/support/unit.h"
#include "tests/support/web/script_web.h"
#include "tests/support/web/still_loop.h"

#include <stdio.h>
#include <string.h>

#define TOKEN "token-that-nobody-sees"
#define SECRET "key-that-nobody-sees"
#define DEADLINE_MS 20000

static struct world {
    struct loop *l;
    struct web_client *c;
    struct script_reply replies[16]; /* of the tries in turn; the last one goes on */
    size_t n_replies, n_tries;
    char seen[64][128]; /* "METHOD url authorization" */
    uint64_t at_ms[64];
} W;

struct heard {
    unsigned times;
    enum outcome out;
    int status;
    bool doubt;
    unsigned attempts;
    uint64_t retry_after_ms, at_ms;
    char body[64], mark[64];
    struct err err;
};

static void serve(void *arg, const struct script_try *t, struct script_reply *ret)
{
    size_t i = W.n_tries < W.n_replies ? W.n_tries : W.n_replies - 1;

    (void)arg;
    if (W.n_tries < 64) {
        (void)snprintf(W.seen[W.n_tries], sizeof W.seen[0], "%s %s %s %s", t->method, t->url,
                       script_header(t, "Authorization"), script_header(t, "X-Stamp"));
        W.at_ms[W.n_tries] = loop_now_ms(W.l);
    }
    W.n_tries++;
    *ret = W.replies[i];
}

static void sign(void *arg, const char *method, const char *path, struct slice body,
                 struct web_stamp *ret)
{
    (void)arg;
    str_copy(ret->headers[0].name, sizeof ret->headers[0].name, "X-Stamp");
    (void)snprintf(ret->headers[0].value, sizeof ret->headers[0].value, "%s|%s|%zu|%u", method,
                   path, body.n, (unsigned)W.n_tries);
    ret->n = 1;
    str_copy(ret->mark, sizeof ret->mark, ret->headers[0].value);
}

static void heard(void *arg, enum outcome out, const struct web_answer *a, const struct err *err)
{
    struct heard *h = arg;

    h->times++;
    h->out = out;
    h->at_ms = loop_now_ms(W.l);
    assert_true((out == OUT_DONE) == (a != NULL) && (out == OUT_DONE) == (err == NULL));
    if (err)
        h->err = *err;
    if (!a)
        return;
    h->status = a->status;
    h->doubt = a->doubt;
    h->attempts = a->attempts;
    h->retry_after_ms = a->retry_after_ms;
    (void)snprintf(h->body, sizeof h->body, "%.*s", (int)a->body.n, (const char *)a->body.p);
    str_copy(h->mark, sizeof h->mark, a->mark);
}

static struct web_request *ask_first(struct heard *h, bool idempotent, bool ahead)
{
    struct web_ask q = {.method = idempotent ? "GET" : "POST",
                        .path = "/v1/thing?x=1",
                        .idempotent = idempotent,
                        .ahead = ahead,
                        .answer_max = 1000,
                        .deadline_ms = loop_now_ms(W.l) + DEADLINE_MS,
                        .done = heard,
                        .arg = h};

    *h = (struct heard){0};
    struct web_request *r = web_ask(W.c, &q);
    assert_int_equal(h->times, 0); /* never from inside the call */
    return r;
}

static struct web_request *ask(struct heard *h, bool idempotent)
{
    return ask_first(h, idempotent, false);
}

static void begin_with(const struct script_reply *replies, size_t n, unsigned in_flight)
{
    struct web_config g = {.target = "t1",
                           .url = "https://example.test:8443/base/",
                           .token = TOKEN,
                           .secret = SECRET,
                           .in_flight = in_flight,
                           .queue_max = 4,
                           .sign = sign,
                           .transport = &script_web_ops};
    struct err e;

    W.l = still_loop_create(7);
    script_web = (struct script){.serve = serve};
    W.n_tries = 0;
    W.n_replies = n;
    memcpy(W.replies, replies, n * sizeof *replies);
    assert_int_equal(web_client_create(W.l, &g, &W.c, &e), 0);
}
#define BEGIN(...)                                                                                 \
    begin_with((const struct script_reply[]){__VA_ARGS__},                                         \
               sizeof((const struct script_reply[]){__VA_ARGS__}) / sizeof(struct script_reply),   \
               2)
static void end(void)
{
    W.c = web_client_destroy(W.c);
    assert_int_equal(script_web.under_way, 0);
    W.l = still_loop_destroy(W.l);
}

static void answers_come_whole(void **state)
{
    struct heard h;

    (void)state;
    BEGIN({.status = 404, .body = "no", .headers = {{"X-A", "1"}}, .n_headers = 1});
    (void)ask(&h, true);
    still_loop_run(W.l, 10);
    assert_int_equal(h.times, 1);
    assert_int_equal(h.out, OUT_DONE);
    assert_int_equal(h.status, 404);
    assert_string_equal(h.body, "no");
    assert_string_equal(W.seen[0], "GET https://example.test:8443/base/v1/thing?x=1 Bearer " TOKEN
                                   " GET|/base/v1/thing?x=1|0|0");
    assert_string_equal(h.mark, "GET|/base/v1/thing?x=1|0|0");
    end();
}

/* Nothing left: rejected. Something may have left: unknown, however it ended. */
static void ends_in_one_of_three_ways(void **state)
{
    static const struct {
        enum script_how how;
        enum outcome out;
        int code;
    } all[] = {
        {SCRIPT_REFUSES, OUT_REJECTED, E_CONNECT}, {SCRIPT_BAD_TLS, OUT_REJECTED, E_TLS},
        {SCRIPT_RESETS, OUT_UNKNOWN, E_CONNECT},   {SCRIPT_IS_SILENT, OUT_UNKNOWN, E_UNKNOWN},
        {SCRIPT_HALVES, OUT_UNKNOWN, E_CONNECT},   {SCRIPT_TRICKLES, OUT_UNKNOWN, E_UNKNOWN},
        {SCRIPT_FLOODS, OUT_UNKNOWN, E_TOOLARGE},  {SCRIPT_BEGINS_TWICE, OUT_UNKNOWN, E_CONNECT}};

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct heard h;
        BEGIN({.how = all[i].how, .body = "half of it"});
        (void)ask(&h, false);
        still_loop_run(W.l, DEADLINE_MS + 1);
        assert_int_equal(h.times, 1);
        assert_int_equal(h.out, all[i].out);
        assert_int_equal(h.err.code, all[i].code);
        assert_int_equal(script_web.tries, 1); /* it is not said to be idempotent */
        assert_int_equal(script_web.under_way, 0);
        assert_true(script_web.sent_bytes <= 65536);
        end();
    }
}

static void sends_idempotent_requests_again(void **state)
{
    struct heard h;

    (void)state;
    BEGIN({.how = SCRIPT_RESETS}, {.status = 503}, {.how = SCRIPT_REFUSES}, {.body = "yes"});
    (void)ask(&h, true);
    still_loop_run(W.l, 5000);
    assert_int_equal(h.out, OUT_DONE);
    assert_int_equal(h.status, 200);
    assert_int_equal(h.attempts, 4);
    assert_true(h.doubt); /* the first may have had its effect */
    assert_string_equal(h.mark, "GET|/base/v1/thing?x=1|0|3"); /* signed anew each time */
    assert_true(W.at_ms[2] - W.at_ms[1] >= 200);               /* later each time */
    end();
    BEGIN({.how = SCRIPT_REFUSES}, {.status = 429}, {.body = "yes"});
    (void)ask(&h, true);
    still_loop_run(W.l, 5000);
    assert_int_equal(h.status, 200);
    assert_false(h.doubt); /* neither did anything */
    end();
}

/* What was sent once is not "never sent" because the last attempt could not connect. */
static void never_rejects_what_an_earlier_attempt_sent(void **state)
{
    struct heard h;

    (void)state;
    BEGIN({.how = SCRIPT_RESETS}, {.how = SCRIPT_REFUSES});
    (void)ask(&h, true);
    still_loop_run(W.l, DEADLINE_MS + 1);
    assert_int_equal(h.times, 1);
    assert_int_equal(h.out, OUT_UNKNOWN);
    end();
}

static void a_dead_kept_connection_leaves_a_doubt(void **state)
{
    struct heard h;

    (void)state;
    BEGIN({.how = SCRIPT_BEGINS_TWICE, .body = "yes"});
    (void)ask(&h, true);
    still_loop_run(W.l, 10);
    assert_int_equal(h.out, OUT_DONE);
    assert_true(h.doubt);
    end();
}

static void waits_as_long_as_it_is_told(void **state)
{
    struct heard h;
    uint64_t from;

    (void)state;
    BEGIN({.status = 503, .headers = {{"Retry-After", "7"}}, .n_headers = 1}, {.body = "yes"});
    from = loop_now_ms(W.l);
    (void)ask(&h, true);
    still_loop_run(W.l, 6999);
    assert_int_equal(script_web.tries, 1);
    still_loop_run(W.l, 2000);
    assert_int_equal(h.status, 200);
    assert_true(h.at_ms - from >= 7000);
    end();
    BEGIN({.status = 429,
           .headers = {{"Date", "Fri, 01 Mar 2024 10:00:00 GMT"},
                       {"Retry-After", "Fri, 01 Mar 2024 10:00:05 GMT"}},
           .n_headers = 2},
          {.body = "yes"});
    from = loop_now_ms(W.l);
    (void)ask(&h, true);
    still_loop_run(W.l, 6000);
    assert_int_equal(h.status, 200);
    assert_true(h.at_ms - from >= 5000); /* by the server's own clock */
    end();
    BEGIN({.status = 429, .headers = {{"retry-after", "100"}}, .n_headers = 1});
    (void)ask(&h, true);
    still_loop_run(W.l, 10);
    assert_int_equal(h.out, OUT_DONE); /* longer than it may wait: who asked is told at once */
    assert_int_equal(h.status, 429);
    assert_int_equal(h.retry_after_ms, 100000);
    end();
}

static void an_attempt_is_bounded_too(void **state)
{
    struct heard h;
    struct web_ask q = {.method = "GET",
                        .path = "/",
                        .idempotent = true,
                        .attempt_ms = 1000,
                        .answer_max = 100,
                        .done = heard,
                        .arg = &h};

    (void)state;
    BEGIN({.how = SCRIPT_IS_SILENT}, {.body = "yes"});
    h = (struct heard){0};
    q.deadline_ms = loop_now_ms(W.l) + DEADLINE_MS;
    (void)web_ask(W.c, &q);
    still_loop_run(W.l, 3000);
    assert_int_equal(h.out, OUT_DONE);
    assert_true(h.doubt);
    assert_int_equal(script_web.aborted, 1);
    end();
}

static void holds_the_limits_of_its_target(void **state)
{
    struct heard h[8];
    unsigned done = 0, refused = 0;

    (void)state;
    BEGIN({.body = "yes", .after_ms = 100});
    for (unsigned i = 0; i < 2; i++)
        (void)ask(&h[i], false);
    still_loop_run(W.l, 1);
    for (unsigned i = 2; i < 8; i++) /* two under way, four wait, two are too many */
        (void)ask(&h[i], false);
    still_loop_run(W.l, 50);
    assert_int_equal(web_client_stats(W.c).in_flight, 2);
    assert_int_equal(web_client_stats(W.c).queued, 4);
    still_loop_run(W.l, 1000);
    for (unsigned i = 0; i < 8; i++) {
        done += h[i].out == OUT_DONE && h[i].times == 1;
        refused += h[i].out == OUT_REJECTED && h[i].err.code == E_LIMIT;
    }
    assert_int_equal(done, 6);
    assert_int_equal(refused, 2);
    assert_int_equal(script_web.most_under_way, 2);
    end();
}

/* Where the queue is full, too: whoever asks how the target is must not wait for all the others. */
static void what_goes_ahead_is_sent_first(void **state)
{
    struct heard h[6], first;

    (void)state;
    BEGIN({.body = "yes", .after_ms = 100});
    for (unsigned i = 0; i < 6; i++)
        (void)ask(&h[i], false);
    still_loop_run(W.l, 10);
    (void)ask_first(&first, true, true);
    still_loop_run(W.l, 1000);
    assert_int_equal(first.out, OUT_DONE);
    assert_int_equal(h[5].out, OUT_DONE);
    assert_true(first.at_ms <= h[2].at_ms && first.at_ms < h[4].at_ms);
    end();
}

static void keeps_away_from_a_target_that_fails(void **state)
{
    struct heard h;

    (void)state;
    BEGIN({.status = 500}, {.status = 500}, {.how = SCRIPT_RESETS}, {.how = SCRIPT_REFUSES},
          {.how = SCRIPT_REFUSES}, {.how = SCRIPT_REFUSES}, {.body = "yes"});
    for (unsigned i = 0; i < 5; i++) {
        (void)ask(&h, false);
        still_loop_run(W.l, 10);
        assert_int_equal(h.times, 1);
    }
    assert_true(web_client_stats(W.c).open);
    (void)ask(&h, false);
    still_loop_run(W.l, 10);
    assert_int_equal(h.out, OUT_REJECTED); /* at once, and nothing is sent */
    assert_int_equal(h.err.code, E_UNAVAIL);
    assert_int_equal(script_web.tries, 5);
    still_loop_run(W.l, 2000);
    (void)ask(&h, false); /* one may find out */
    still_loop_run(W.l, 10);
    assert_int_equal(script_web.tries, 6);
    assert_true(web_client_stats(W.c).open); /* for longer */
    still_loop_run(W.l, 1990);
    assert_true(web_client_stats(W.c).open);
    still_loop_run(W.l, 2000);
    (void)ask(&h, false);
    still_loop_run(W.l, 10);
    assert_int_equal(h.status, 200);
    assert_int_equal(web_client_stats(W.c).failed, 0);
    end();
}

static void one_request_finds_out_how_it_is(void **state)
{
    struct heard h[4];

    (void)state;
    BEGIN({.how = SCRIPT_REFUSES}, {.how = SCRIPT_REFUSES}, {.how = SCRIPT_REFUSES},
          {.how = SCRIPT_REFUSES}, {.how = SCRIPT_REFUSES}, {.body = "yes", .after_ms = 100});
    for (unsigned i = 0; i < 5; i++) {
        (void)ask(&h[0], false);
        still_loop_run(W.l, 10);
    }
    still_loop_run(W.l, 2000);
    for (unsigned i = 0; i < 4; i++)
        (void)ask(&h[i], false);
    still_loop_run(W.l, 50);
    assert_int_equal(web_client_stats(W.c).in_flight, 1);
    still_loop_run(W.l, 500);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(h[i].out, OUT_DONE);
    end();
}

/* A request that was sent before keeps waiting while the breaker is open, and is never rejected. */
static void a_doubted_request_outlives_the_breaker(void **state)
{
    struct heard h;

    (void)state;
    BEGIN({.how = SCRIPT_RESETS}, {.how = SCRIPT_REFUSES}, {.how = SCRIPT_REFUSES},
          {.how = SCRIPT_REFUSES}, {.how = SCRIPT_REFUSES}, {.how = SCRIPT_REFUSES},
          {.body = "yes"});
    (void)ask(&h, true);
    still_loop_run(W.l, DEADLINE_MS + 1);
    assert_int_equal(h.times, 1);
    assert_int_not_equal(h.out, OUT_REJECTED);
    assert_true(h.out == OUT_UNKNOWN || h.doubt);
    end();
}

static void secrets_are_cut_out_of_errors(void **state)
{
    static char many[40000];
    struct heard h;

    (void)state;
    memset(many, 'h', sizeof many - 1);
    BEGIN({.headers = {{"X-Long", many}}, .n_headers = 1});
    (void)ask(&h, false);
    still_loop_run(W.l, 10);
    assert_int_equal(h.out, OUT_UNKNOWN);
    assert_int_equal(h.err.code, E_TOOLARGE);
    assert_null(strstr(h.err.text, TOKEN));
    end();
    struct web_config g = {.target = "x" TOKEN "y" SECRET "z",
                           .url = "https://a.test",
                           .token = TOKEN,
                           .secret = SECRET,
                           .transport = &script_web_ops};
    struct err e;
    BEGIN({.how = SCRIPT_REFUSES});
    (void)web_client_destroy(W.c);
    assert_int_equal(web_client_create(W.l, &g, &W.c, &e), 0);
    (void)ask(&h, false);
    still_loop_run(W.l, 10);
    assert_null(strstr(h.err.text, TOKEN));
    assert_null(strstr(h.err.text, SECRET));
    assert_non_null(strstr(h.err.text, "x***y***z"));
    end();
}

static void is_asked_for_nothing_in_clear(void **state)
{
    static const struct {
        const char *url, *ca, *token;
        bool good;
    } all[] = {{"https://a.test", "", "", true},
               {"http://127.0.0.1:80/x", "", "t", true},
               {"http://localhost:1", "", "", true},
               {"http://[::1]:1/", "", "", true},
               {"http://a.test", "", "", false},
               {"http://127.0.0.1.a.test", "", "", false},
               {"http://127.0.0.1@a.test", "", "", false},
               {"ftp://a.test", "", "", false},
               {"file:///etc/passwd", "", "", false},
               {"https://u:p@a.test", "", "", false},
               {"https://a.test/?q", "", "", false},
               {"https://a.test/../x", "", "", false},
               {"https://", "", "", false},
               {"https://a.test:x", "", "", false},
               {"http://127.0.0.1", "PEM", "", false},
               {"https://a.test", "", "a\nb", false}};
    struct loop *l = still_loop_create(1);

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct web_config g = {.target = "t",
                               .url = all[i].url,
                               .ca_pem = all[i].ca,
                               .token = all[i].token,
                               .transport = &script_web_ops};
        struct web_client *c = NULL;
        struct err e;
        if ((web_client_create(l, &g, &c, &e) == 0) != all[i].good)
            fail_msg("%s", all[i].url);
        (void)web_client_destroy(c);
    }
    (void)still_loop_destroy(l);
}

static size_t taken, taken_most;
static bool take(void *arg, const void *p, size_t n)
{
    (void)arg;
    (void)p;
    taken += n;
    return taken < taken_most;
}

static void streams_with_backpressure(void **state)
{
    struct heard h = {0};
    struct web_ask q = {.method = "GET",
                        .path = "/log",
                        .idempotent = true,
                        .data = take,
                        .done = heard,
                        .arg = &h};

    (void)state;
    BEGIN({.how = SCRIPT_FLOODS});
    q.deadline_ms = loop_now_ms(W.l) + DEADLINE_MS;
    taken = 0;
    taken_most = 10 << 20;
    struct web_request *r = web_ask(W.c, &q);
    still_loop_run(W.l, 10);
    assert_true(taken >= 65536);
    size_t had = taken;
    web_pause(r, true);
    still_loop_run(W.l, 1000);
    assert_int_equal(taken, had);
    web_pause(r, false);
    still_loop_run(W.l, 1000);
    assert_true(taken >= taken_most && taken < taken_most + 65536); /* it said: no more */
    assert_int_equal(h.out, OUT_UNKNOWN);
    assert_int_equal(script_web.tries, 1); /* what was taken in part is not asked for again */
    end();
}

static void destroy_and_cancel(void *arg, enum outcome out, const struct web_answer *a,
                               const struct err *err)
{
    (void)out;
    (void)a;
    (void)err;
    W.c = web_client_destroy(W.c); /* allowed in done() */
    ++*(unsigned *)arg;
}

static void ends_without_a_word(void **state)
{
    struct heard h[4];
    unsigned times = 0;
    struct web_ask q = {
        .method = "GET", .path = "/", .answer_max = 10, .done = destroy_and_cancel, .arg = &times};

    (void)state;
    BEGIN({.how = SCRIPT_IS_SILENT});
    for (unsigned i = 0; i < 4; i++)
        (void)ask(&h[i], true);
    struct web_request *r = ask(&h[0], true);
    still_loop_run(W.l, 10);
    web_cancel(r);
    end();
    assert_int_equal(h[0].times + h[1].times + h[2].times + h[3].times, 0);
    BEGIN({.body = "yes"});
    q.deadline_ms = loop_now_ms(W.l) + DEADLINE_MS;
    (void)web_ask(W.c, &q);
    (void)web_ask(W.c, &q);
    still_loop_run(W.l, 10);
    assert_int_equal(times, 1);
    end();
}

/* A watch lasts for hours: once it is answered, others need not wait for its end. */
static void what_lasts_closes_the_breaker(void **state)
{
    struct web_ask q = {
        .method = "GET", .path = "/w", .answer_max = 1000, .data = take, .done = heard};
    struct heard h[6], watch = {0};

    (void)state;
    taken = 0;
    taken_most = 1000;
    BEGIN({.how = SCRIPT_REFUSES}, {.how = SCRIPT_REFUSES}, {.how = SCRIPT_REFUSES},
          {.how = SCRIPT_REFUSES}, {.how = SCRIPT_REFUSES}, {.how = SCRIPT_LASTS, .body = "a"},
          {.body = "yes"});
    for (unsigned i = 0; i < 5; i++) {
        (void)ask(&h[i], false);
        still_loop_run(W.l, 10);
    }
    assert_true(web_client_stats(W.c).open);
    still_loop_run(W.l, 1600);
    q.deadline_ms = loop_now_ms(W.l) + 1000000;
    q.arg = &watch;
    (void)web_ask(W.c, &q);
    still_loop_run(W.l, 10);
    assert_int_equal(watch.times, 0);
    (void)ask(&h[5], false);
    still_loop_run(W.l, 10);
    assert_int_equal(h[5].times, 1);
    assert_int_equal(h[5].out, OUT_DONE);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_come_whole),
                                       cmocka_unit_test(ends_in_one_of_three_ways),
                                       cmocka_unit_test(sends_idempotent_requests_again),
                                       cmocka_unit_test(never_rejects_what_an_earlier_attempt_sent),
                                       cmocka_unit_test(a_dead_kept_connection_leaves_a_doubt),
                                       cmocka_unit_test(waits_as_long_as_it_is_told),
                                       cmocka_unit_test(an_attempt_is_bounded_too),
                                       cmocka_unit_test(holds_the_limits_of_its_target),
                                       cmocka_unit_test(what_goes_ahead_is_sent_first),
                                       cmocka_unit_test(keeps_away_from_a_target_that_fails),
                                       cmocka_unit_test(one_request_finds_out_how_it_is),
                                       cmocka_unit_test(a_doubted_request_outlives_the_breaker),
        cmocka_unit_test(what_lasts_closes_the_breaker),
                                       cmocka_unit_test(secrets_are_cut_out_of_errors),
                                       cmocka_unit_test(is_asked_for_nothing_in_clear),
                                       cmocka_unit_test(streams_with_backpressure),
                                       cmocka_unit_test(ends_without_a_word)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
