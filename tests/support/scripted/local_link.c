/* A link inside of one loop: a little late, in order, and nothing else. */
#include "tests/support/scripted/scripted.h"

#include <string.h>

#define LINKS_MAX 256
#define LATENCY_MS 3

struct local {
    struct loop *loop;
    uint64_t session;
    scripted_heard heard;
    void *arg;
    struct list messages;
};
struct message {
    struct list link;
    struct local *l;
    struct timer at;
    bool asks;
    struct scripted_ask q;
    struct scripted_tell m;
};
static struct local *locals[LINKS_MAX];
static struct scripted_peer *peer;

static void arrived(void *arg)
{
    struct message *x = arg;

    list_remove(&x->link);
    if (x->asks)
        peer_hear(peer, x->l->session, &x->q);
    else
        x->l->heard(x->l->arg, &x->m);
    mem_free(x);
}
static struct message *message(struct local *l, bool asks)
{
    struct message *x = mem_new(struct message);

    x->l = l;
    x->asks = asks;
    list_push(&l->messages, &x->link);
    timer_init(&x->at, l->loop, arrived, x);
    timer_start(&x->at, LATENCY_MS);
    return x;
}
static void *local_open(struct loop *loop, const char *target, scripted_heard heard, void *arg)
{
    struct local *l = mem_new(struct local);

    (void)target;
    l->loop = loop;
    l->heard = heard;
    l->arg = arg;
    list_init(&l->messages);
    while (l->session < LINKS_MAX && locals[l->session])
        l->session++;
    INV(l->session < LINKS_MAX);
    locals[l->session] = l;
    return l;
}
static void local_send(void *link, const struct scripted_ask *q)
{
    message(link, true)->q = *q;
}
/* What was sent last is still on its way when nobody listens any more. */
static void local_close(void *link)
{
    struct local *l = link;

    for (struct list *e; (e = list_pop(&l->messages)) != NULL;) {
        struct message *x = container_of(e, struct message, link);
        timer_stop(&x->at);
        if (x->asks)
            peer_hear(peer, LINKS_MAX, &x->q);
        mem_free(x);
    }
    locals[l->session] = NULL;
    mem_free(l);
}
static void local_say(void *arg, uint64_t session, const struct scripted_tell *m)
{
    (void)arg;
    if (session < LINKS_MAX && locals[session])
        message(locals[session], false)->m = *m;
}
void scripted_local(struct scripted_peer *p)
{
    peer = p;
    p->say = local_say;
}
const struct scripted_link_ops scripted_local_link = {
    .open = local_open, .send = local_send, .close = local_close};
