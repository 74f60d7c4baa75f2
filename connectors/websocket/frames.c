/* Frames of RFC 6455, section 5: what a server sends is read in parts, and taken only if the
 * protocol allows it just there; what a client sends is masked. Must hold no more of a message than
 * a control frame. */
#include "connectors/websocket/websocket.h"

#include <string.h>

#define FIN 0x80
#define RESERVED 0x70
#define MASKED 0x80

static bool is_control(uint8_t opcode)
{
    return (opcode & 8) != 0;
}

/* ---- reading ---- */
static unsigned head_length(const struct websocket_reader *r)
{
    unsigned n;

    if (r->n_head < 2)
        return 2;
    n = r->head[1] & 0x7f;
    return n == 127 ? 10 : n == 126 ? 4 : 2;
}

static uint64_t payload_length(const struct websocket_reader *r)
{
    unsigned n = head_length(r);
    uint64_t v = 0;

    if (n == 2)
        return r->head[1] & 0x7f;
    for (unsigned i = 2; i < n; i++)
        v = v << 8 | r->head[i];
    return v;
}

static int opcode_check(const struct websocket_reader *r, uint8_t opcode, struct err *err)
{
    switch (opcode) {
    case WEBSOCKET_CONTINUES:
        return r->message ? 0 : err_set(err, E_SYNTAX, "a message goes on that never began");
    case WEBSOCKET_BINARY:
        return r->message ? err_set(err, E_SYNTAX, "a message begins amid another one") : 0;
    case WEBSOCKET_CLOSE:
    case WEBSOCKET_PING:
    case WEBSOCKET_PONG:
        return 0;
    default:
        return err_set(err, E_SYNTAX, "a frame of type %u, where bytes were agreed on", opcode);
    }
}

static int head_take(struct websocket_reader *r, struct err *err)
{
    uint8_t opcode = r->head[0] & 0x0f;
    uint64_t n = payload_length(r);
    unsigned short_of = head_length(r) == 4 ? 126 : head_length(r) == 10 ? 65536 : 0;

    if (r->head[0] & RESERVED)
        return err_set(err, E_SYNTAX, "a frame of an extension that was not agreed on");
    if (r->head[1] & MASKED)
        return err_set(err, E_SYNTAX, "a masked frame, which only clients send");
    if (n < short_of || n >> 63)
        return err_set(err, E_SYNTAX, "a length that is not written as it must be");
    if (is_control(opcode) && (n > WEBSOCKET_CONTROL_MAX || !(r->head[0] & FIN)))
        return err_set(err, E_SYNTAX, "a control frame that is too long, or in parts");
    int rc = opcode_check(r, opcode, err);
    if (rc < 0)
        return rc;
    if (opcode == WEBSOCKET_BINARY) {
        r->message = true;
        r->told = false;
    }
    r->opcode = opcode;
    r->last = (r->head[0] & FIN) != 0;
    r->left = n;
    r->amid = true;
    r->n_control = 0;
    return 0;
}

/* The frame is whole. */
static void frame_over(struct websocket_reader *r)
{
    r->amid = false;
    r->n_head = 0;
    if (!is_control(r->opcode) && r->last)
        r->message = false;
}

static bool control_take(struct websocket_reader *r, const unsigned char *p, size_t n,
                         struct websocket_frame *ret)
{
    INV(r->n_control + n <= sizeof r->control);
    if (n)
        memcpy(r->control + r->n_control, p, n);
    r->n_control += (unsigned)n;
    r->left -= n;
    if (r->left)
        return false;
    *ret = (struct websocket_frame){
        .opcode = r->opcode, .p = r->control, .n = r->n_control, .first = true, .last = true};
    frame_over(r);
    return true;
}

static bool part_take(struct websocket_reader *r, const unsigned char *p, size_t n,
                      struct websocket_frame *ret)
{
    r->left -= n;
    *ret = (struct websocket_frame){
        .opcode = WEBSOCKET_BINARY, .p = p, .n = n, .first = !r->told, .last = !r->left && r->last};
    if (!r->left)
        frame_over(r);
    if (!n && !ret->last) /* an empty frame amid a message says nothing */
        return false;
    r->told = true;
    return true;
}

int websocket_read(struct websocket_reader *r, const void *p, size_t n, size_t *ret_taken,
                   struct websocket_frame *ret, struct err *err)
{
    const unsigned char *b = p;
    size_t at = 0;

    for (;;) {
        while (!r->amid && r->n_head < head_length(r) && at < n)
            r->head[r->n_head++] = b[at++];
        if (!r->amid && r->n_head < head_length(r))
            break;
        if (!r->amid) {
            int rc = head_take(r, err);
            if (rc < 0)
                return rc;
        }
        if (r->left && at == n)
            break;
        size_t take = n - at < r->left ? n - at : (size_t)r->left;
        const unsigned char *from = b + at;
        at += take;
        if (is_control(r->opcode) ? control_take(r, from, take, ret)
                                  : part_take(r, from, take, ret)) {
            *ret_taken = at;
            return 1;
        }
    }
    *ret_taken = n;
    return 0;
}

/* ---- writing ---- */
unsigned websocket_head(uint8_t opcode, uint64_t n, const unsigned char mask[4],
                        unsigned char ret[WEBSOCKET_HEAD_MAX])
{
    unsigned bytes = n > 65535 ? 8 : n > 125 ? 2 : 0, at = 2;

    ret[0] = FIN | opcode;
    ret[1] = (unsigned char)(MASKED | (bytes == 8 ? 127 : bytes == 2 ? 126 : n));
    for (unsigned i = bytes; i > 0; i--)
        ret[at++] = (unsigned char)(n >> (8 * (i - 1)));
    memcpy(ret + at, mask, 4);
    return at + 4;
}

void websocket_mask(unsigned char *p, size_t n, const unsigned char mask[4], uint64_t at)
{
    for (size_t i = 0; i < n; i++)
        p[i] ^= mask[(at + i) & 3];
}
