/* Frames and handshakes of RFC 6455: its own examples, what it forbids, and the fuzz target over
 * frames that were changed. */
#define FUZZ_IN_TEST
#include "tests/fuzz/fuzz_websocket.c"
#include "tests/support/unit.h"

#include <stdio.h>

static uint64_t seed = 7;

static uint32_t rnd(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 13) % n;
}

static int read_all(const void *p, size_t n, char *ret_text, unsigned *ret_frames, struct err *err)
{
    struct websocket_reader r = {0};
    struct websocket_frame f;
    const char *b = p;
    size_t taken = 0, at = 0;
    int rc;

    *ret_frames = 0;
    while ((rc = websocket_read(&r, b, n, &taken, &f, err)) == 1) {
        if (f.n)
            memcpy(ret_text + at, f.p, f.n);
        at += f.n;
        ++*ret_frames;
        b += taken;
        n -= taken;
    }
    ret_text[at] = '\0';
    return rc;
}
#define READ(bytes) read_all(bytes, sizeof bytes - 1, text, &n, &err)

static void messages_come_in_parts(void **state)
{
    char text[300];
    unsigned n;
    struct err err;

    (void)state;
    assert_int_equal(READ("\x82\x05Hello"), 0);
    assert_string_equal(text, "Hello");
    assert_int_equal(n, 1);
    assert_int_equal(READ("\x02\x03Hel\x89\x02hi\x80\x02lo"), 0); /* with a ping amid */
    assert_string_equal(text, "Helhilo");
    assert_int_equal(n, 3);
    assert_int_equal(READ("\x02\x03Hel\x00\x00\x80\x00"), 0);
    assert_int_equal(n, 2); /* its end is told, and what is empty is not */
    assert_int_equal(READ("\x82\x00"), 0);
    assert_int_equal(n, 1);
    assert_int_equal(READ("\x82\x7e\x01\x00x"), 0); /* 256 bytes, of which one has come */
    assert_string_equal(text, "x");
}

static void what_is_forbidden_ends_it(void **state)
{
    static const struct {
        const char *bytes, *why;
        size_t n;
    } rows[] = {
        {"\xc2\x01x", "extension", 3},
        {"\x82\x81xxxx\x01", "masked", 7},
        {"\x81\x01x", "type 1", 3},
        {"\x83\x01x", "type 3", 3},
        {"\x8b\x01x", "type 11", 3},
        {"\x80\x01x", "never began", 3},
        {"\x02\x01x\x02\x01y", "amid another", 6},
        {"\x09\x01x", "in parts", 3},
        {"\x89\x7e\x00\x7e", "too long", 4},
        {"\x82\x7e\x00\x7d", "not written", 4},
        {"\x82\x7f\x00\x00\x00\x00\x00\x00\xff\xff", "not written", 10},
        {"\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x00", "not written", 10},
    };
    char text[300];
    unsigned n;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err err = {0};
        assert_int_equal(read_all(rows[i].bytes, rows[i].n, text, &n, &err), E_SYNTAX);
        if (!strstr(err.text, rows[i].why))
            fail_msg("%zu: %s", i, err.text);
    }
}

static void what_a_client_sends_is_masked(void **state)
{
    static const unsigned char mask[4] = {0x37, 0xfa, 0x21, 0x3d};
    unsigned char h[WEBSOCKET_HEAD_MAX], p[] = "Hello";

    (void)state;
    assert_int_equal(websocket_head(WEBSOCKET_BINARY, 5, mask, h), 6);
    assert_memory_equal(h, "\x82\x85\x37\xfa\x21\x3d", 6);
    websocket_mask(p, 5, mask, 0);
    assert_memory_equal(p, "\x7f\x9f\x4d\x51\x58", 5); /* of section 5.7 */
    assert_int_equal(websocket_head(WEBSOCKET_BINARY, 256, mask, h), 8);
    assert_memory_equal(h, "\x82\xfe\x01\x00", 4);
    assert_int_equal(websocket_head(WEBSOCKET_BINARY, 65536, mask, h), 14);
    assert_memory_equal(h, "\x82\xff\x00\x00\x00\x00\x00\x01\x00\x00", 10);
}

#define OPENS "HTTP/1.1 101 Switching Protocols\r\n"
#define UPGRADE "upgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n"
#define ACCEPT "Sec-WebSocket-Accept:  s3pPLMBiTxaQ9kYGzzhZRbK+xOo= \r\n"
#define PROTOCOL "Sec-WebSocket-Protocol: b\r\n"

static int answered(const char *text, struct websocket_answered *ret, struct err *err)
{
    static const struct websocket_asked q = {.key = "dGhlIHNhbXBsZSBub25jZQ==",
                                             .protocols = "a, b"};

    return websocket_answer(&q, text, strlen(text), ret, err);
}

static void an_answer_is_one_to_this_request(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"HTTP/1.0 101 x\r\n\r\n", "HTTP/1.1"},
        {"SSH-2.0-x", "HTTP/1.1"},
        {"HTTP/1.1 1x1 y\r\n\r\n", "no status"},
        {"HTTP/1.1 \r\n\r\n", "no status"},
        {OPENS "\r\n", "opens no WebSocket"},
        {OPENS UPGRADE "\r\n", "not one to this"},
        {OPENS UPGRADE "Sec-WebSocket-Accept: x\r\n" PROTOCOL "\r\n", "not one to this"},
        {OPENS UPGRADE ACCEPT ACCEPT PROTOCOL "\r\n", "not one to this"},
        {OPENS UPGRADE ACCEPT "\r\n", "none of the protocols"},
        {OPENS UPGRADE ACCEPT "Sec-WebSocket-Protocol: c\r\n\r\n", "none of the protocols"},
        {OPENS UPGRADE ACCEPT "Sec-WebSocket-Protocol: a, b\r\n\r\n", "none of the protocols"},
        {OPENS UPGRADE ACCEPT PROTOCOL "Sec-WebSocket-Extensions: x\r\n\r\n", "extension"},
    };
    struct websocket_answered a;
    struct err err;

    (void)state;
    assert_int_equal(answered(OPENS UPGRADE ACCEPT PROTOCOL "\r\n", &a, &err), 1);
    assert_int_equal(a.status, 101);
    assert_string_equal(a.protocol, "b");
    assert_int_equal(answered(OPENS UPGRADE ACCEPT, &a, &err), 0);
    assert_int_equal(answered("", &a, &err), 0);
    assert_int_equal(answered("HTTP/1.1 403 Forbidden\r\nContent-Length: 12\r\n\r\n", &a, &err), 1);
    assert_int_equal(a.status, 403);
    assert_int_equal(a.length, 12);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(answered(bad[i].text, &a, &err), E_CONNECT);
        if (!strstr(err.text, bad[i].why))
            fail_msg("%zu: %s", i, err.text);
    }
}

static void whatever_comes(void **state)
{
    static const char from[] =
        "\x82\x05Hello\x02\x03Hel\x89\x02hi\x00\x00\x80\x02lo\x88\x02\x03\xe8"
        "\x82\x7e\x00\x7e";
    static const char answer[] =
        OPENS UPGRADE ACCEPT "Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n";

    (void)state;
    for (int i = 0; i < 20000; i++) {
        const bool frames = rnd(3) > 0;
        const char *what = frames ? from : answer;
        size_t n = frames ? sizeof from - 1 : sizeof answer - 1;
        uint8_t copy[400];
        memcpy(copy, what, n);
        for (uint32_t m = rnd(4); m > 0; m--)
            copy[rnd((uint32_t)n)] = (uint8_t)rnd(256);
        (void)fuzz_websocket(copy, rnd(8) ? n : rnd((uint32_t)n));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_come_in_parts),
        cmocka_unit_test(what_is_forbidden_ends_it),
        cmocka_unit_test(what_a_client_sends_is_masked),
        cmocka_unit_test(whatever_comes),
        cmocka_unit_test(an_answer_is_one_to_this_request),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
