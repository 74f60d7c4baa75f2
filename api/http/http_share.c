/* Who holds how much memory: bodies that come or are worked on, answers that wait for their
 * clients. Bounded in all and for each client, so that one who sends or reads slowly takes a share
 * only. Must outlive the server: a handler may still have a request when its connection is gone. */
#include "api/http/http_internal.h"

#include "api/base/hash.h"

#include <string.h>

#define SLOTS 4096 /* clients that fall into one share its part */

struct http_share {
    unsigned refs;
    size_t all[HTTP_SIDES], of[HTTP_SIDES][SLOTS];
};
static const struct {
    size_t all, client;
} most[HTTP_SIDES] = {
    [HTTP_IN] = {LIMIT_BODIES_MAX_BYTES, LIMIT_BODIES_CLIENT_BYTES},
    [HTTP_OUT] = {LIMIT_ANSWERS_MAX_BYTES, LIMIT_ANSWERS_CLIENT_BYTES},
};

struct http_share *http_share_create(void)
{
    struct http_share *s = mem_new(struct http_share);

    s->refs = 1;
    return s;
}
struct http_share *http_share_ref(struct http_share *s)
{
    s->refs++;
    return s;
}
struct http_share *http_share_unref(struct http_share *s)
{
    INV(s->refs > 0);
    if (--s->refs == 0) {
        for (int i = 0; i < HTTP_SIDES; i++)
            INV(s->all[i] == 0);
        mem_free(s);
    }
    return NULL;
}

unsigned http_share_slot(const struct peer_identity *who, const char *authorization)
{
    const char *name = who->certified ? who->name : authorization ? authorization : who->address;

    return (unsigned)hash_slot(name, SLOTS);
}

/* What is alone is let through whatever its size: other limits bound it. */
bool http_share_over(const struct http_share *s, enum http_side side, unsigned slot, size_t n)
{
    return (s->of[side][slot] && s->of[side][slot] + n > most[side].client) ||
           (s->all[side] && s->all[side] + n > most[side].all);
}
void http_share_set(struct http_share *s, enum http_side side, unsigned slot, size_t *held,
                    size_t n)
{
    INV(s->of[side][slot] >= *held && s->all[side] >= *held);
    s->of[side][slot] += n - *held;
    s->all[side] += n - *held;
    *held = n;
}
