/* Requests to an API server over a scripted transport, in virtual time: what goes out, what answers
 * prove, and that a new login takes over without losing what is under way. */
#include "connectors/kubernetes/client/client.h"
#include "tests/support/unit.h"
#include "tests/support/web/script_web.h"
#include "tests/support/web/still_loop.h"

#include <stdio.h>
#include <string.h>

static struct world {
    struct loop *l;
    struct kube_client *c;
    struct script_reply reply;
    bool first_lost; /* the first try is taken, and not answered */
    unsigned tries;
    char seen[2048], headers[2048];
} W;

static void serve(void *arg, const struct script_try *t, struct script_reply *ret)
{
    size_t n = 0;

    (void)arg;
    W.tries++;
    (void)snprintf(W.seen, sizeof W.seen, "%s %s %.*s", t->method, t->url, (int)t->body.n,
                   (const char *)t->body.p);
    W.headers[0] = '\0';
    for (size_t i = 0; i < t->n_headers; i++)
        n += (size_t)snprintf(W.headers + n, sizeof W.headers - n, "%s: %s\n", t->headers[i].name,
                              t->headers[i].value);
    *ret = W.reply;
    if (W.first_lost && W.tries == 1)
        ret->how = SCRIPT_RESETS;
}

static struct kube_login login = {.server = (char[]){"https://api.test:6443/k8s/"},
                                  .token = (char[]){"token-one"}};

static void begin(void)
{
    struct err e;

    W = (struct world){.l = still_loop_create(3)};
    script_web = (struct script){.serve = serve};
    assert_int_equal(kube_client_create(W.l, "t1", &login, 4, &script_web_ops, &W.c, &e), 0);
}

static void end(void)
{
    W.c = kube_client_destroy(W.c);
    assert_int_equal(script_web.under_way, 0);
    W.l = still_loop_destroy(W.l);
}

struct heard {
    unsigned times;
    enum outcome out;
    int status, code;
    struct refusal refused;
    bool body, doubt, destroys;
    char reason[64], text[512], name[64];
};

static void heard(void *arg, const struct kube_answer *a)
{
    struct heard *h = arg;

    h->times++;
    h->out = a->out;
    h->status = a->status;
    h->refused = a->refused;
    h->body = a->body != NULL;
    h->doubt = a->doubt;
    str_copy(h->reason, sizeof h->reason, a->reason);
    str_copy(h->name, sizeof h->name, kube_text(a->body, "metadata.name"));
    assert_true((a->out == OUT_DONE) == (a->err == NULL));
    h->code = a->err ? a->err->code : 0;
    str_copy(h->text, sizeof h->text, a->err ? a->err->text : "");
    if (h->destroys)
        W.c = kube_client_destroy(W.c);
}

static struct heard asked(const struct kube_ask *with)
{
    struct kube_ask q = *with;
    struct heard h = {0};

    q.deadline_ms = loop_now_ms(W.l) + 60000;
    q.done = heard;
    q.arg = &h;
    W.tries = 0;
    (void)kube_send(W.c, &q);
    assert_int_equal(h.times, 0); /* never from inside the call */
    still_loop_run(W.l, 100000);
    assert_int_equal(h.times, 1);
    return h;
}
#define ASK(...) asked(&(const struct kube_ask){__VA_ARGS__})

static void writes_say_who_writes(void **state)
{
    cJSON *body = cJSON_CreateObject();
    struct heard h;

    (void)state;
    begin();
    cJSON_AddStringToObject(body, "kind", "Job");
    W.reply.status = 201;
    W.reply.body = "{\"metadata\":{\"name\":\"j1\"}}";
    h = ASK(.method = "POST", .path = "/apis/batch/v1/namespaces/x/jobs", .body = body,
            .as = "alice", .as_group = {"g1", "g2"});
    assert_int_equal(h.out, OUT_DONE);
    assert_string_equal(h.name, "j1");
    assert_string_equal(W.seen, "POST https://api.test:6443/k8s/apis/batch/v1/namespaces/x/jobs"
                                "?fieldManager=hanse {\"kind\":\"Job\"}");
    assert_non_null(strstr(W.headers, "Content-Type: application/json\n"));
    assert_non_null(strstr(W.headers, "Impersonate-User: alice\nImpersonate-Group: g1\n"
                                      "Impersonate-Group: g2\n"));
    assert_non_null(strstr(W.headers, "User-Agent: hanse/" HANSE_VERSION "\n"));
    assert_non_null(strstr(W.headers, "Authorization: Bearer token-one\n"));
    h = ASK(.method = "PATCH", .path = "/p?a=b", .type = KUBE_MERGE, .body = body);
    assert_string_equal(W.seen, "PATCH https://api.test:6443/k8s/p?a=b&fieldManager=hanse "
                                "{\"kind\":\"Job\"}");
    assert_non_null(strstr(W.headers, "Content-Type: application/merge-patch+json\n"));
    assert_null(strstr(W.headers, "Impersonate"));
    h = ASK(.method = "GET", .path = "/p");
    assert_string_equal(W.seen, "GET https://api.test:6443/k8s/p ");
    h = ASK(.method = "DELETE", .path = "/p");
    assert_string_equal(W.seen, "DELETE https://api.test:6443/k8s/p ");
    cJSON_Delete(body);
    end();
}

/* A name could bring headers of its own. */
static void names_are_no_headers(void **state)
{
    struct heard h;

    (void)state;
    begin();
    h = ASK(.method = "POST", .path = "/p", .as = "alice\r\nImpersonate-Group: system:masters");
    assert_int_equal(h.out, OUT_REJECTED);
    assert_int_equal(h.code, E_INVALID);
    assert_int_equal(h.refused.scope, BLAMES_WORKLOAD);
    assert_int_equal(W.tries, 0);
    end();
}

#define STATUS(code, reason, message)                                                              \
    "{\"kind\":\"Status\",\"status\":\"Failure\",\"code\":" #code ",\"reason\":\"" reason          \
    "\",\"message\":\"" message "\"}"

static void answers_prove_what_they_prove(void **state)
{
    static const struct {
        int status;
        const char *body;
        enum outcome out;
        int code;
        enum refusal_class class_;
        enum refusal_scope scope;
    } rows[] = {
        {401, STATUS(401, "Unauthorized", "Unauthorized"), OUT_REJECTED, E_UNAUTH,
         REFUSED_AUTHORISATION, BLAMES_TARGET},
        {401, "who are you", OUT_REJECTED, E_UNAUTH, REFUSED_AUTHORISATION, BLAMES_TARGET},
        {403, STATUS(403, "Forbidden", "jobs is forbidden"), OUT_REJECTED, E_FORBIDDEN,
         REFUSED_AUTHORISATION, BLAMES_WORKLOAD},
        {403, STATUS(403, "Forbidden", "forbidden: exceeded quota: q, requested: count=1"),
         OUT_REJECTED, E_FORBIDDEN, REFUSED_QUOTA, BLAMES_WORKLOAD},
        {403, "<html>a proxy</html>", OUT_UNKNOWN, E_UNKNOWN, 0, 0},
        {404, STATUS(404, "NotFound", "namespaces not found"), OUT_REJECTED, E_NOTFOUND,
         REFUSED_INVALID, BLAMES_WORKLOAD},
        {404, "404 page not found", OUT_UNKNOWN, E_UNKNOWN, 0, 0},
        {404, "{\"kind\":\"Job\"}", OUT_UNKNOWN, E_UNKNOWN, 0, 0},
        {409, STATUS(409, "AlreadyExists", "it exists"), OUT_REJECTED, E_EXISTS, REFUSED_CONFLICT,
         BLAMES_WORKLOAD},
        {409, STATUS(409, "Conflict", "the object has been modified"), OUT_REJECTED, E_CONFLICT,
         REFUSED_CONFLICT, BLAMES_WORKLOAD},
        {410, STATUS(410, "Expired", "too old"), OUT_REJECTED, E_GONE, REFUSED_CONFLICT,
         BLAMES_WORKLOAD},
        {413, STATUS(413, "RequestEntityTooLarge", "too large"), OUT_REJECTED, E_INVALID,
         REFUSED_INVALID, BLAMES_WORKLOAD},
        {422, STATUS(422, "Invalid", "spec: invalid"), OUT_REJECTED, E_INVALID, REFUSED_INVALID,
         BLAMES_WORKLOAD},
        {429, "Too many requests, please try again later.", OUT_REJECTED, E_LIMIT,
         REFUSED_THROTTLED, BLAMES_TARGET},
        {500, STATUS(500, "InternalError", "etcd"), OUT_UNKNOWN, E_UNKNOWN, 0, 0},
        {503, "", OUT_UNKNOWN, E_UNKNOWN, 0, 0},
        {504, STATUS(504, "Timeout", "timeout"), OUT_UNKNOWN, E_UNKNOWN, 0, 0},
        {302, "", OUT_UNKNOWN, E_UNKNOWN, 0, 0},
        {408, STATUS(408, "Timeout", "x"), OUT_UNKNOWN, E_UNKNOWN, 0, 0},
        {200, "<html>It works!</html>", OUT_UNKNOWN, E_UNKNOWN, 0, 0},
        {200, "[]", OUT_UNKNOWN, E_UNKNOWN, 0, 0},
        {200, "", OUT_UNKNOWN, E_UNKNOWN, 0, 0},
        {200, "{\"a\":\"\\u0000\",\"n\":9223372036854775807}", OUT_DONE, 0, 0, 0},
        {200, "{\"kind\":\"Status\",\"status\":\"Success\"}", OUT_DONE, 0, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        begin();
        W.reply.status = rows[i].status;
        W.reply.body = rows[i].body;
        struct heard h = ASK(.method = "POST", .path = "/p");
        if (h.out != rows[i].out || h.code != rows[i].code || h.refused.class_ != rows[i].class_ ||
            h.refused.scope != rows[i].scope || h.status != rows[i].status)
            fail_msg("row %zu: out %d code %d class %d scope %d: %s", i, (int)h.out, h.code,
                     (int)h.refused.class_, (int)h.refused.scope, h.text);
        assert_int_equal(W.tries, 1); /* a write leaves once, and 5xx are answers */
        end();
    }
}

static void what_is_said_is_plain_text(void **state)
{
    struct heard h;

    (void)state;
    begin();
    W.reply.status = 422;
    W.reply.body = STATUS(422, "Invalid", "a\\n\\u001b[31mb\xc3\xbc");
    h = ASK(.method = "POST", .path = "/p");
    assert_string_equal(h.text, "target t1: a  [31mb??");
    assert_string_equal(h.reason, "Invalid");
    end();
}

static void throttling_names_its_end(void **state)
{
    struct heard h;

    (void)state;
    begin();
    W.reply = (struct script_reply){.status = 429,
                                    .headers = {{"Retry-After", "7"}},
                                    .n_headers = 1,
                                    .body = "Too many requests"};
    h = ASK(.method = "POST", .path = "/p");
    assert_int_equal(h.refused.retry_ms, 7000);
    W.reply = (struct script_reply){
        .status = 429,
        .body = "{\"kind\":\"Status\",\"code\":429,\"details\":{\"retryAfterSeconds\":3}}"};
    h = ASK(.method = "POST", .path = "/p");
    assert_int_equal(h.refused.retry_ms, 3000);
    end();
}

/* A create that was sent twice: the second answer may be about the first one's effect. */
static void a_later_attempt_proves_nothing(void **state)
{
    struct heard h;

    (void)state;
    begin();
    W.reply.status = 409;
    W.reply.body = STATUS(409, "AlreadyExists", "it exists");
    W.first_lost = true;
    h = ASK(.method = "POST", .path = "/p", .idempotent = true);
    assert_int_equal(W.tries, 2);
    assert_int_equal(h.out, OUT_UNKNOWN);
    assert_string_equal(h.reason, "AlreadyExists");
    assert_true(h.doubt);
    h = ASK(.method = "POST", .path = "/p"); /* may not be sent twice */
    assert_int_equal(W.tries, 1);
    assert_int_equal(h.out, OUT_UNKNOWN);
    assert_int_equal(h.status, 0);
    W.reply.status = 404;
    W.reply.body = STATUS(404, "NotFound", "it is not there");
    h = ASK(.method = "GET", .path = "/p"); /* reading twice changes nothing */
    assert_int_equal(W.tries, 2);
    assert_int_equal(h.out, OUT_REJECTED);
    end();
}

static void large_answers_end(void **state)
{
    struct heard h;

    (void)state;
    begin();
    W.reply.how = SCRIPT_FLOODS;
    h = ASK(.method = "GET", .path = "/p", .answer_max = 100000);
    assert_int_equal(h.out, OUT_UNKNOWN);
    assert_int_equal(h.code, E_TOOLARGE);
    end();
}

static bool taken(void *arg, const void *p, size_t n)
{
    (void)p;
    *(size_t *)arg += n;
    return true;
}

static void stream_over(void *arg, const struct kube_answer *a)
{
    assert_int_equal(a->out, OUT_DONE);
    *(size_t *)arg += 1000;
}

static void a_new_login_takes_over(void **state)
{
    struct kube_login renewed = login;
    struct heard h;
    struct err e;
    size_t n = 0;

    (void)state;
    begin();
    W.reply.how = SCRIPT_LASTS;
    W.reply.body = "12345";
    struct kube_request *r = kube_stream(W.c, "/log", taken, stream_over, &n);
    still_loop_run(W.l, 1000);
    assert_int_equal(n, 5);
    renewed.token = (char[]){"token-two"};
    assert_int_equal(kube_client_renew(W.c, &renewed, &e), 0);
    W.reply = (struct script_reply){.body = "{}"};
    h = ASK(.method = "GET", .path = "/p");
    assert_int_equal(h.out, OUT_DONE);
    assert_non_null(strstr(W.headers, "Bearer token-two"));
    assert_int_equal(script_web.under_way, 1); /* the log goes on */
    kube_cancel(r);
    assert_int_equal(script_web.under_way, 0);
    renewed.token = (char[]){"token three"};
    assert_int_equal(kube_client_renew(W.c, &renewed, &e), E_INVALID);
    h = ASK(.method = "GET", .path = "/p");
    assert_non_null(strstr(W.headers, "Bearer token-two"));
    end();
}

static void done_may_destroy(void **state)
{
    struct kube_ask q = {.method = "GET", .path = "/p", .done = heard};
    struct heard h = {.destroys = true}, never = {0};

    (void)state;
    begin();
    W.reply.body = "{}";
    q.deadline_ms = loop_now_ms(W.l) + 60000;
    q.arg = &h;
    (void)kube_send(W.c, &q);
    q.arg = &never;
    (void)kube_send(W.c, &q);
    still_loop_run(W.l, 100000);
    assert_int_equal(h.times, 1);
    assert_int_equal(never.times, 0);
    assert_null(W.c);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_say_who_writes),
        cmocka_unit_test(names_are_no_headers),
        cmocka_unit_test(answers_prove_what_they_prove),
        cmocka_unit_test(what_is_said_is_plain_text),
        cmocka_unit_test(throttling_names_its_end),
        cmocka_unit_test(a_later_attempt_proves_nothing),
        cmocka_unit_test(large_answers_end),
        cmocka_unit_test(a_new_login_takes_over),
        cmocka_unit_test(done_may_destroy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
