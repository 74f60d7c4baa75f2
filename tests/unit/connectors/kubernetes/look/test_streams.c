/* Logs, execs and forwarded ports through the API server, of runners that have no way home: what is
 * asked for, what sinks hear (`opened` once, ahead of all data, and one end), what is cut. */
#include "connectors/kubernetes/client/client.h"
#include "connectors/websocket/websocket.h"
#include "connectors/kubernetes/runs/runs.h"
#include "tests/support/contract/connector_contract_internal.h"
#include "tests/support/kube/kube_rig.h"
#include "tests/support/web/still_stream.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S still_stream

static struct heard {
    unsigned opened, ended, eofs;
    int exit_code, code;
    char why[512];
    struct buf out, errors;
    bool full, closes; /* closes: the session, by its first data */
    struct exec_session *session;
    struct connector_rig *r;
} heard;

static void on_opened(void *arg)
{
    (void)arg;
    assert_int_equal(heard.out.n + heard.errors.n, 0);
    heard.opened++;
}

static void on_data(int fd, const void *p, size_t n, void *arg)
{
    (void)arg;
    assert_int_equal(heard.opened, 1);
    assert_int_equal(heard.ended, 0);
    buf_add(fd == 2 ? &heard.errors : &heard.out, p, n);
    if (heard.closes)
        heard.r->ops->exec_close(heard.session);
}

static void on_end(int exit_code, const struct err *err, void *arg)
{
    (void)arg;
    heard.ended++;
    heard.exit_code = exit_code;
    heard.code = err ? err->code : 0;
    str_copy(heard.why, sizeof heard.why, err ? err->text : "");
}

static bool is_full(void *arg)
{
    (void)arg;
    return heard.full;
}

static const struct log_sink sink = {
    .opened = on_opened, .data = on_data, .end = on_end, .full = is_full};

static int setup(void **state)
{
    int rc = kube_rig_setup(state);

    heard = (struct heard){.r = *state};
    buf_init(&heard.out, 1 << 20);
    buf_init(&heard.errors, 1 << 20);
    still_stream_begin(heard.r->loop);
    return rc;
}

static int teardown(void **state)
{
    int rc;

    kube_rig_passes(heard.r, 10000);
    still_stream_end(heard.r->loop);
    rc = kube_rig_teardown(state);
    assert_true(heard.ended <= 1 && heard.opened <= 1);
    buf_fini(&heard.out);
    buf_fini(&heard.errors);
    return rc;
}

static const char *text_of(struct buf *b)
{
    buf_char(b, '\0');
    b->n--;
    return b->p;
}

static int ask(const struct run_key *k, bool with_stdin, bool tty)
{
    static const char *const argv[] = {"sh", "-c", "a b&c", NULL};
    const struct exec_request rq = {.argv = argv,
                                    .with_stdin = with_stdin,
                                    .tty = tty,
                                    .size = {.rows = 24, .columns = 80},
                                    .deadline_ms = loop_now_ms(heard.r->loop) + 20000};
    struct err err = {0};
    int rc = heard.r->ops->exec(heard.r->connector, k, &rq, &sink, &heard.session, &err);

    str_copy(heard.why, sizeof heard.why, err.text);
    return rc;
}

/* Answers the handshake as an API server does. */
static void accepted(const char *protocol)
{
    static const char name[] = "Sec-WebSocket-Key: ";
    char key[100], accept[64], answer[400];
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    const char *at;

    kube_rig_passes(heard.r, 100);
    at = strstr(text_of(&S.sent), name);
    assert_non_null(at);
    (void)snprintf(key, sizeof key, "%.24s258EAFA5-E914-47DA-95CA-C5AB0DC85B11",
                   at + sizeof name - 1);
    assert_int_equal(EVP_Digest(key, strlen(key), digest, &n, EVP_sha1(), NULL), 1);
    (void)EVP_EncodeBlock((unsigned char *)accept, digest, 20);
    int len = snprintf(answer, sizeof answer,
                       "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                       "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n"
                       "Sec-WebSocket-Protocol: %s\r\n\r\n",
                       accept, protocol);
    buf_reset(&S.sent);
    still_stream_say(answer, (size_t)len);
}

static void say(int channel, const char *text)
{
    char b[2000];
    size_t n = strlen(text) + 1;

    b[0] = (char)0x82;
    b[1] = n < 126 ? (char)n : 126;
    if (n < 126) {
        b[2] = (char)channel;
        memcpy(b + 3, text, n);
        still_stream_say(b, 2 + n);
        return;
    }
    b[2] = (char)(n >> 8);
    b[3] = (char)n;
    b[4] = (char)channel;
    memcpy(b + 5, text, n);
    still_stream_say(b, 4 + n);
}

/* What was sent, unmasked: "CHANNEL:BYTES|" of each message; "ping|" and so on. */
static const char *sent(void)
{
    static char text[4000];
    const unsigned char *p = (const unsigned char *)S.sent.p;
    size_t at = 0, n = 0;

    text[0] = '\0';
    while (at + 6 <= S.sent.n) {
        uint8_t opcode = p[at] & 15;
        size_t len = p[at + 1] & 127, head = len == 126 ? 4 : 2;
        assert_true(p[at + 1] & 128);
        if (len == 126)
            len = (size_t)p[at + 2] << 8 | p[at + 3];
        unsigned char b[2000];
        for (size_t i = 0; i < len; i++)
            b[i] = p[at + head + 4 + i] ^ p[at + head + (i & 3)];
        if (opcode == 2)
            n += (size_t)snprintf(text + n, sizeof text - n, "%d:%.*s%s", b[0], (int)len - 1, b + 1,
                                  b[0] == 255 ? "" : "|");
        else
            n += (size_t)snprintf(text + n, sizeof text - n, "%s|",
                                  opcode == 8   ? "close"
                                  : opcode == 9 ? "ping"
                                                : "pong");
        at += head + 4 + len;
    }
    buf_reset(&S.sent);
    return text;
}

/* ---- exec ---- */
static void a_command_with_its_streams(void **state)
{
    struct asked a;
    struct run_key k = contract_running(*state, &a);
    char wanted[300];

    assert_int_equal(ask(&k, true, false), 0);
    heard.r->ops->exec_input(heard.session, "early", 5, false);
    assert_int_equal(heard.r->ops->exec_pending(heard.session), 5);
    kube_rig_passes(heard.r, 100);
    assert_string_equal(S.address, "kube.test:6443");
    (void)snprintf(wanted, sizeof wanted,
                   "GET /api/v1/namespaces/work/pods/%s/exec?container=main&stdout=true"
                   "&stderr=true&stdin=true&command=sh&command=-c&command=a%%20b%%26c HTTP/1.1\r\n",
                   kube_text(kube_world_pod(&k, 0)->doc, "metadata.name"));
    assert_true(strncmp(text_of(&S.sent), wanted, strlen(wanted)) == 0);
    assert_non_null(strstr(S.sent.p, "\r\nAuthorization: Bearer a-token\r\n"));
    assert_non_null(strstr(S.sent.p, "\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n"));
    accepted("v5.channel.k8s.io");
    assert_int_equal(heard.opened, 1);
    assert_string_equal(sent(), "0:early|");
    heard.r->ops->exec_input(heard.session, "late", 4, true);
    heard.r->ops->exec_input(heard.session, "too late", 8, false);
    assert_string_equal(sent(), "0:late|255:"); /* and the channel's number, a zero byte */
    say(1, "out");
    say(2, "err");
    say(1, " more");
    assert_string_equal(text_of(&heard.out), "out more");
    assert_string_equal(text_of(&heard.errors), "err");
    say(3, "{\"status\":\"Failure\",\"reason\":\"NonZeroExitCode\",\"details\":{\"causes\":[{"
           "\"reason\":\"ExitCode\",\"message\":\"7\"}]}}");
    assert_int_equal(heard.ended, 1);
    assert_int_equal(heard.exit_code, 7);
    assert_int_equal(heard.code, 0);
    assert_true(S.ended);
}

static void a_terminal_has_its_size(void **state)
{
    struct asked a;
    struct run_key k = contract_running(*state, &a);

    assert_int_equal(ask(&k, true, true), 0);
    kube_rig_passes(heard.r, 100);
    assert_non_null(strstr(text_of(&S.sent), "&tty=true&stdin=true"));
    assert_null(strstr(S.sent.p, "stderr"));
    accepted("v5.channel.k8s.io");
    assert_string_equal(sent(), "4:{\"Width\":80,\"Height\":24}|");
    heard.r->ops->exec_resize(heard.session, &(const struct exec_size){.rows = 50, .columns = 132});
    assert_string_equal(sent(), "4:{\"Width\":132,\"Height\":50}|");
    say(3, "{\"status\":\"Success\"}");
    assert_int_equal(heard.exit_code, 0);
    assert_int_equal(heard.code, 0);
}

/* Without its Status nobody knows how it ended, whatever else is said. */
static void an_end_without_a_status_is_no_end_of_the_command(void **state)
{
    struct asked a;
    struct run_key k = contract_running(*state, &a);

    assert_int_equal(ask(&k, false, false), 0);
    accepted("v4.channel.k8s.io");
    say(1, "out");
    still_stream_say("\x88\x02\x03\xe8", 4);
    kube_rig_passes(heard.r, 100);
    assert_int_equal(heard.ended, 1);
    assert_int_equal(heard.code, E_CONNECT);
    assert_non_null(strstr(heard.why, "not known"));
}

static void what_the_server_refuses_is_told_in_its_words(void **state)
{
    static const char status[] =
        "{\"kind\":\"Status\",\"status\":\"Failure\",\"message\":\"you may "
        "not\",\"reason\":\"Forbidden\",\"code\":403}";
    struct asked a;
    struct run_key k = contract_running(*state, &a);
    char answer[400];

    assert_int_equal(ask(&k, false, false), 0);
    kube_rig_passes(heard.r, 100);
    int n =
        snprintf(answer, sizeof answer, "HTTP/1.1 403 Forbidden\r\nContent-Length: %zu\r\n\r\n%s",
                 strlen(status), status);
    for (int i = 0; i < n; i++) /* in whatever pieces */
        still_stream_say(answer + i, 1);
    kube_rig_passes(heard.r, 100);
    assert_int_equal(heard.opened, 0);
    assert_int_equal(heard.ended, 1);
    assert_int_equal(heard.code, E_FORBIDDEN);
    assert_non_null(strstr(heard.why, "you may not"));
    assert_non_null(strstr(heard.why, "streams.yaml"));
}

static void a_command_that_cannot_start_says_why(void **state)
{
    struct asked a;
    struct run_key k = contract_running(*state, &a);

    assert_int_equal(ask(&k, false, false), 0);
    accepted("v4.channel.k8s.io");
    say(3, "{\"metadata\":{},\"status\":\"Failure\",\"message\":\"no such file: "
           "sh\",\"reason\":\"InternalError\",\"code\":500}");
    assert_int_equal(heard.exit_code, 1);
    assert_int_equal(heard.code, E_INVALID);
    assert_non_null(strstr(heard.why, "no such file: sh"));
}

static void who_does_not_answer_is_given_up_by_the_deadline(void **state)
{
    struct asked a;
    struct run_key k = contract_running(*state, &a);

    S.opens = false;
    assert_int_equal(ask(&k, false, false), 0);
    kube_rig_passes(heard.r, 25000);
    assert_int_equal(heard.opened, 0);
    assert_int_equal(heard.ended, 1);
    assert_int_equal(heard.code, E_TIMEOUT);
}

static void a_full_sink_stops_the_connection(void **state)
{
    struct asked a;
    struct run_key k = contract_running(*state, &a);

    assert_int_equal(ask(&k, false, false), 0);
    accepted("v4.channel.k8s.io");
    heard.full = true;
    say(1, "a lot");
    assert_true(S.paused);
    kube_rig_passes(heard.r, 1000);
    assert_true(S.paused);
    heard.full = false;
    kube_rig_passes(heard.r, 1000);
    assert_false(S.paused);
    S.pending = 12345; /* and what does not leave is told to who types */
    assert_int_equal(heard.r->ops->exec_pending(heard.session), 12345);
    heard.r->ops->exec_close(heard.session);
    kube_rig_passes(heard.r, 1000);
    assert_int_equal(heard.ended, 0);
    assert_string_equal(sent(), "close|");
}

/* Whoever closes it amid its data, or goes with the whole driver. */
static void who_closes_it_hears_no_more(void **state)
{
    struct asked a;
    struct run_key k = contract_running(*state, &a);

    assert_int_equal(ask(&k, false, false), 0);
    accepted("v4.channel.k8s.io");
    heard.closes = true;
    still_stream_say("\x82\x02\x01x\x82\x02\x01y", 8);
    assert_string_equal(text_of(&heard.out), "x");
    kube_rig_passes(heard.r, 1000);
    assert_int_equal(heard.ended, 0);
    heard = (struct heard){.r = heard.r, .out = heard.out, .errors = heard.errors};
    buf_reset(&heard.out);
    assert_int_equal(ask(&k, false, false), 0);
    accepted("v4.channel.k8s.io");
    connector_rig_end(heard.r);
    assert_int_equal(heard.ended, 1);
    assert_int_not_equal(heard.code, 0);
    connector_rig_begin(heard.r);
}

static void what_does_not_run_has_none(void **state)
{
    struct run_key k = contract_fresh_key(*state);
    struct asked a;

    assert_int_equal(ask(&k, false, false), E_NOTFOUND);
    assert_int_equal(contract_submit(*state, &k, PROGRAM_ENDS, &a), OUT_DONE);
    (void)contract_await_run(*state, &k, RUN_ENDED);
    assert_int_equal(ask(&k, false, false), E_CONFLICT);
    assert_non_null(strstr(heard.why, "does not run any more"));
    kube_world.queue_until_ms = UINT64_MAX;
    k = contract_fresh_key(*state);
    assert_int_equal(contract_submit(*state, &k, PROGRAM_STAYS, &a), OUT_DONE);
    kube_rig_passes(heard.r, 5000);
    assert_int_equal(ask(&k, false, false), E_CONFLICT);
    assert_non_null(strstr(heard.why, "has not begun"));
}

static void there_are_no_more_than_so_many(void **state)
{
    struct asked a;
    struct run_key k = contract_running(*state, &a);
    const struct log_request rq = {.tail_lines = -1};
    struct exec_session *all[32];
    struct err err;

    for (unsigned i = 0; i < 32; i++)
        assert_int_equal(heard.r->ops->logs(heard.r->connector, &k, &rq, &sink, &all[i], &err), 0);
    assert_int_equal(ask(&k, false, false), E_LIMIT);
    for (unsigned i = 0; i < 32; i++)
        heard.r->ops->exec_close(all[i]);
    assert_int_equal(ask(&k, false, false), 0);
    heard.r->ops->exec_close(heard.session);
    assert_int_equal(heard.ended + heard.opened, 0);
}

/* ---- ports ---- */
static void a_port_ahead_of_its_bytes(void **state)
{
    struct asked a;
    struct run_key k = contract_running(*state, &a);
    const struct forward_request rq = {.port = 8080};
    struct err err;

    assert_int_equal(
        heard.r->ops->forward(heard.r->connector, &k, &rq, &sink, &heard.session, &err), 0);
    kube_rig_passes(heard.r, 100);
    assert_non_null(strstr(text_of(&S.sent), "/portforward?ports=8080 HTTP/1.1"));
    accepted("v4.channel.k8s.io");
    still_stream_say("\x82\x03\x00\x90\x1f\x82\x03\x01\x90\x1f", 10); /* 8080 */
    assert_int_equal(heard.out.n, 0);
    heard.r->ops->exec_input(heard.session, "ask", 3, true);
    assert_string_equal(sent(), "0:ask|");
    say(0, "answer");
    assert_string_equal(text_of(&heard.out), "answer");
    still_stream_say("\x88\x02\x03\xe8", 4);
    kube_rig_passes(heard.r, 100);
    assert_int_equal(heard.ended, 1);
    assert_int_equal(heard.code, 0);
}

static void a_port_on_which_nobody_listens(void **state)
{
    struct asked a;
    struct run_key k = contract_running(*state, &a);
    const struct forward_request rq = {.port = 8080};
    struct err err;

    assert_int_equal(
        heard.r->ops->forward(heard.r->connector, &k, &rq, &sink, &heard.session, &err), 0);
    accepted("v4.channel.k8s.io");
    still_stream_say("\x82\x03\x00\x90\x1f\x82\x03\x01\x90\x1f", 10);
    say(1, "connection refused");
    still_stream_lose(NULL);
    kube_rig_passes(heard.r, 100);
    assert_int_equal(heard.code, E_CONNECT);
    assert_non_null(strstr(heard.why, "connection refused"));
}

/* ---- logs ---- */
static void log_ask(const struct run_key *k, const struct log_request *rq)
{
    struct err err;

    assert_int_equal(heard.r->ops->logs(heard.r->connector, k, rq, &sink, &heard.session, &err), 0);
    assert_int_equal(heard.opened, 0);
}

static void a_log_comes_whole(void **state)
{
    struct asked a;
    struct run_key k = contract_running(*state, &a);
    const struct log_request rq = {.tail_lines = 3,
                                   .timestamps = true,
                                   .since_span_ms = 1500,
                                   .deadline_ms = loop_now_ms(heard.r->loop) + 20000};

    kube_world.log = "one\ntwo\n";
    log_ask(&k, &rq);
    kube_rig_passes(heard.r, 5000);
    assert_int_equal(heard.opened, 1);
    assert_string_equal(text_of(&heard.out), "one\ntwo\n");
    assert_int_equal(heard.ended, 1);
    assert_int_equal(heard.code, 0);
    assert_string_equal(kube_world.log_asked,
                        "container=main&sinceSeconds=2&tailLines=3&timestamps=true");
}

/* Its programs have the names that it gives them, and the first one is meant. */
static void a_log_of_a_manifest_is_its_program_s(void **state)
{
    const struct log_request rq = {.tail_lines = -1};
    struct run_key k;
    struct asked a;

    kube_rig.manifest = CARRIES_JOB;
    k = contract_running(*state, &a);
    kube_world.log = "one\n";
    log_ask(&k, &rq);
    kube_rig_passes(heard.r, 5000);
    assert_string_equal(text_of(&heard.out), "one\n");
    assert_string_equal(kube_world.log_asked, "container=train");
}

/* The annotation is anybody's who may write to pods: it puts no words into a request. */
static void a_name_of_a_container_is_no_more_than_that(void **state)
{
    const struct log_request rq = {.tail_lines = -1};
    struct asked a;
    struct run_key k = contract_running(*state, &a);
    struct kube_object *pod = kube_world_pod(&k, 0);
    cJSON *meta = cJSON_GetObjectItemCaseSensitive(pod->doc, "metadata");

    cJSON_AddStringToObject(cJSON_GetObjectItemCaseSensitive(meta, "annotations"),
                            KUBE_CONTAINERS_ANNOTATION, "main&previous=true,main");
    kube_world_changed(pod);
    kube_rig_passes(heard.r, 1000);
    kube_world.log = "one\n";
    log_ask(&k, &rq);
    kube_rig_passes(heard.r, 5000);
    assert_string_equal(kube_world.log_asked, "container=main");
}

/* It ends while the program goes on: that is no end of what it says. */
static void a_followed_log_that_is_cut_says_so(void **state)
{
    struct asked a;
    struct run_key k = contract_running(*state, &a);
    const struct log_request rq = {.tail_lines = -1, .follow = true};

    kube_world.log = "one\n";
    log_ask(&k, &rq);
    kube_rig_passes(heard.r, 30000);
    assert_string_equal(kube_world.log_asked, "container=main&follow=true");
    assert_int_equal(heard.ended, 1);
    assert_int_equal(heard.code, E_CONNECT);
    assert_non_null(strstr(heard.why, "its program goes on"));
}

static void a_log_that_may_not_be_read_is_not_opened(void **state)
{
    struct asked a;
    struct run_key k = contract_running(*state, &a);
    const struct log_request rq = {.tail_lines = -1};

    log_ask(&k, &rq); /* kube_world.log NULL: it answers 403 */
    kube_rig_passes(heard.r, 5000);
    assert_int_equal(heard.opened, 0);
    assert_int_equal(heard.code, E_FORBIDDEN);
    assert_non_null(strstr(heard.why, "streams.yaml"));
}

static void a_log_that_is_closed_amid_its_data(void **state)
{
    struct asked a;
    struct run_key k = contract_running(*state, &a);
    const struct log_request rq = {.tail_lines = -1};

    kube_world.log = "one\n";
    heard.closes = true;
    log_ask(&k, &rq);
    kube_rig_passes(heard.r, 5000);
    assert_int_equal(heard.opened, 1);
    assert_int_equal(heard.ended, 0);
}

static void a_log_of_who_does_not_answer(void **state)
{
    struct asked a;
    struct run_key k = contract_running(*state, &a);
    const struct log_request rq = {.tail_lines = -1,
                                   .deadline_ms = loop_now_ms(heard.r->loop) + 2000};

    kube_world.silent = true;
    log_ask(&k, &rq);
    kube_rig_passes(heard.r, 3000);
    assert_int_equal(heard.ended, 1);
    assert_int_equal(heard.code, E_TIMEOUT);
    kube_world.silent = false;
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_command_with_its_streams),
        T(a_terminal_has_its_size),
        T(an_end_without_a_status_is_no_end_of_the_command),
        T(what_the_server_refuses_is_told_in_its_words),
        T(a_command_that_cannot_start_says_why),
        T(who_does_not_answer_is_given_up_by_the_deadline),
        T(a_full_sink_stops_the_connection),
        T(who_closes_it_hears_no_more),
        T(what_does_not_run_has_none),
        T(there_are_no_more_than_so_many),
        T(a_port_ahead_of_its_bytes),
        T(a_port_on_which_nobody_listens),
        T(a_log_comes_whole),
        T(a_log_of_a_manifest_is_its_program_s),
        T(a_name_of_a_container_is_no_more_than_that),
        T(a_followed_log_that_is_cut_says_so),
        T(a_log_that_may_not_be_read_is_not_opened),
        T(a_log_that_is_closed_amid_its_data),
        T(a_log_of_who_does_not_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
