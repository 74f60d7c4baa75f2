/* Fuzz target: bytes as a server's answer to an opening handshake and as the frames after it. What
 * is read is the same in any pieces, and never more than there was. */
#include "connectors/websocket/websocket_internal.h"

#include <stdint.h>
#include <string.h>

int fuzz_websocket(const uint8_t *data, size_t size);

struct heard { /* of all that was read */
    uint64_t hash, bytes;
    unsigned messages, controls;
    int rc;
};

static void hear(struct heard *h, const struct websocket_frame *f)
{
    const unsigned char *p = f->p;

    if (f->opcode == WEBSOCKET_BINARY) {
        h->messages += f->last;
        h->bytes += f->n;
    } else {
        INV(f->n <= WEBSOCKET_CONTROL_MAX && f->first && f->last);
        h->controls++;
    }
    for (size_t i = 0; i < f->n; i++)
        h->hash = (h->hash ^ p[i] ^ (uint64_t)f->opcode << 8) * 1099511628211u;
}

static struct heard heard_in(const uint8_t *data, size_t size, size_t piece)
{
    struct websocket_reader r = {0};
    struct heard h = {.hash = 14695981039346656037u};
    struct websocket_frame f;
    bool amid = false;

    for (size_t at = 0; at < size && h.rc >= 0;) {
        size_t n = size - at < piece ? size - at : piece, taken = 0, from = 0;
        while ((h.rc = websocket_read(&r, data + at + from, n - from, &taken, &f, NULL)) == 1) {
            INV(taken <= n - from);
            INV(f.opcode != WEBSOCKET_BINARY || f.first == !amid);
            if (f.opcode == WEBSOCKET_BINARY)
                amid = !f.last;
            hear(&h, &f);
            from += taken;
        }
        at += n;
    }
    INV(h.bytes <= size);
    return h;
}

static void answer_try(const uint8_t *data, size_t size)
{
    static const struct websocket_asked q = {.key = "dGhlIHNhbXBsZSBub25jZQ==",
                                             .protocols = "v5.channel.k8s.io, v4.channel.k8s.io"};
    struct websocket_answered a;
    size_t n = size < WEBSOCKET_ANSWER_MAX ? size : WEBSOCKET_ANSWER_MAX;
    char *text = mem_alloc(n + 1);

    if (n)
        memcpy(text, data, n);
    text[n] = '\0';
    if (websocket_answer(&q, text, n, &a, NULL) == 1) {
        INV(a.n <= n && a.status >= 0 && a.status <= 999);
        INV(a.status != 101 || strcmp(a.protocol, "v5.channel.k8s.io") == 0 ||
            strcmp(a.protocol, "v4.channel.k8s.io") == 0);
    }
    mem_free(text);
}

int fuzz_websocket(const uint8_t *data, size_t size)
{
    const struct heard whole = heard_in(data, size, size ? size : 1);

    for (size_t piece = 1; piece < 4; piece++) {
        const struct heard h = heard_in(data, size, piece);
        INV((h.rc < 0) == (whole.rc < 0) && h.hash == whole.hash && h.bytes == whole.bytes &&
            h.messages == whole.messages && h.controls == whole.controls);
    }
    answer_try(data, size);
    return 0;
}

#ifndef FUZZ_IN_TEST
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_websocket(data, size);
}
#endif
