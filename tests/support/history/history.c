/* Histories as they are gathered, and the three questions in turn. */
#include "tests/support/history/history_internal.h"

#include "api/base/err.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIGURATIONS 4000000

struct history *history_create(void)
{
    return mem_new(struct history);
}
struct history *history_destroy(struct history *h)
{
    if (!h)
        return NULL;
    for (size_t i = 0; i < h->n_lists; i++)
        mem_free(h->lists[i].items);
    mem_free(h->keys);
    mem_free(h->ops);
    mem_free(h->lists);
    mem_free(h->watches);
    mem_free(h->events);
    mem_free(h->answers);
    mem_free(h);
    return NULL;
}
uint32_t history_key(struct history *h, const char *name)
{
    for (size_t i = 0; i < h->n_keys; i++)
        if (!strcmp(h->keys[i], name))
            return (uint32_t)i;
    HISTORY_GROW(h->keys, h->n_keys, h->cap_keys);
    (void)snprintf(h->keys[h->n_keys], HISTORY_KEY_MAX, "%s", name);
    return (uint32_t)h->n_keys++;
}
const char *history_key_name(const struct history *h, uint32_t key)
{
    PRE(key < h->n_keys);
    return h->keys[key];
}
void history_add(struct history *h, const struct history_op *op)
{
    PRE(op->key < h->n_keys);
    PRE(op->outcome == HISTORY_UNKNOWN || op->returned >= op->called);
    HISTORY_GROW(h->ops, h->n_ops, h->cap_ops);
    h->ops[h->n_ops] = *op;
    if (op->outcome == HISTORY_UNKNOWN) {
        h->ops[h->n_ops].returned = HISTORY_NEVER;
        h->ops[h->n_ops].rv = 0;
    }
    h->n_ops++;
}
void history_add_list(struct history *h, const struct history_list *l)
{
    struct history_list *x;

    PRE(l->returned >= l->called);
    HISTORY_GROW(h->lists, h->n_lists, h->cap_lists);
    x = &h->lists[h->n_lists++];
    *x = *l;
    x->items = mem_zalloc((l->n + 1) * sizeof *x->items);
    if (l->n)
        memcpy(x->items, l->items, l->n * sizeof *x->items);
}
uint32_t history_watch(struct history *h, uint32_t client, uint64_t from)
{
    HISTORY_GROW(h->watches, h->n_watches, h->cap_watches);
    h->watches[h->n_watches] = (struct history_stream){client, from};
    return (uint32_t)h->n_watches++;
}
void history_add_event(struct history *h, const struct history_event *e)
{
    PRE(e->watch < h->n_watches && e->key < h->n_keys);
    HISTORY_GROW(h->events, h->n_events, h->cap_events);
    h->events[h->n_events++] = *e;
}
void history_add_answer(struct history *h, const struct history_answer *a)
{
    HISTORY_GROW(h->answers, h->n_answers, h->cap_answers);
    h->answers[h->n_answers++] = *a;
}
size_t history_ops(const struct history *h)
{
    return h->n_ops + h->n_lists;
}
struct history_op *history_at(struct history *h, size_t i)
{
    return i < h->n_ops ? &h->ops[i] : NULL;
}

/* ---- words ---- */
static const char *const kinds[] = {"?", "create", "get", "update", "delete"};
static const char *const outcomes[] = {"unknown", "ok", "absent", "exists", "conflict"};

const char *history_verdict_text(enum history_verdict v)
{
    static const char *const verdicts[] = {"good", "bad", "undecided"};

    return verdicts[v];
}
void history_print_op(const struct history *h, const struct history_op *o, struct buf *out)
{
    buf_printf(out, "client %u: %s %s", o->client, kinds[o->kind], history_key_name(h, o->key));
    if (o->kind == HISTORY_CREATE || o->kind == HISTORY_UPDATE)
        buf_printf(out, " := %" PRIu64, o->value);
    if (o->expect)
        buf_printf(out, " at rv %" PRIu64, o->expect);
    buf_printf(out, " -> %s", outcomes[o->outcome]);
    if (o->kind == HISTORY_GET && o->outcome == HISTORY_OK)
        buf_printf(out, " %" PRIu64, o->value);
    if (o->rv)
        buf_printf(out, " rv %" PRIu64, o->rv);
    buf_printf(out, " [%" PRIu64 ", ", o->called);
    if (o->outcome == HISTORY_UNKNOWN)
        buf_str(out, "...]");
    else
        buf_printf(out, "%" PRIu64 "]", o->returned);
}
bool history_bad(struct history_report *r, enum history_verdict v, const char *check,
                 const char *fmt, ...)
{
    va_list ap;

    if (r->verdict == HISTORY_BAD || (r->verdict == HISTORY_UNDECIDED && v != HISTORY_BAD))
        return false;
    r->verdict = v;
    str_copy(r->check, sizeof r->check, check);
    va_start(ap, fmt);
    (void)vsnprintf(r->why, sizeof r->why, fmt, ap);
    va_end(ap);
    return true;
}

/* ---- object by object ---- */
/* A list is a read of each object, the absent ones too. */
static void list_as_reads(const struct history_list *l, uint32_t key, struct history_op *op)
{
    *op = (struct history_op){.called = l->called,
                              .returned = l->returned,
                              .key = key,
                              .client = l->client,
                              .kind = HISTORY_GET,
                              .outcome = HISTORY_ABSENT};
    for (size_t i = 0; i < l->n; i++)
        if (l->items[i].key == key) {
            op->outcome = HISTORY_OK;
            op->value = l->items[i].value;
            op->rv = l->items[i].rv;
        }
}
static void check_key(const struct history *h, uint32_t key, size_t configurations,
                      struct history_report *ret)
{
    struct history_op *ops = mem_zalloc((h->n_ops + h->n_lists + 1) * sizeof *ops);
    size_t n = 0;

    for (size_t i = 0; i < h->n_ops; i++)
        if (h->ops[i].key == key &&
            !(h->ops[i].kind == HISTORY_GET && h->ops[i].outcome == HISTORY_UNKNOWN))
            ops[n++] = h->ops[i];
    for (size_t i = 0; i < h->n_lists; i++)
        if (!h->lists[i].stale)
            list_as_reads(&h->lists[i], key, &ops[n++]);
    if (n)
        history_linear(h, ops, n, configurations, ret);
    mem_free(ops);
}
/* ---- request by request ---- */
static int by_request(const void *a, const void *b)
{
    const struct history_answer *x = a, *y = b;

    if (x->client != y->client)
        return x->client < y->client ? -1 : 1;
    return x->request < y->request ? -1 : x->request > y->request;
}
static void check_final(struct history *h, struct history_report *ret)
{
    const struct history_answer *first = NULL;

    if (h->n_answers)
        qsort(h->answers, h->n_answers, sizeof *h->answers, by_request);
    for (size_t i = 0; i < h->n_answers; i++) {
        const struct history_answer *a = &h->answers[i];

        if (a->outcome == HISTORY_UNKNOWN)
            continue;
        if (first && !by_request(first, a) && (a->outcome != first->outcome || a->rv != first->rv))
            (void)history_bad(ret, HISTORY_BAD, "final",
                              "request %" PRIu64 " of client %u was answered %s rv %" PRIu64
                              " and also %s rv %" PRIu64,
                              a->request, a->client, outcomes[first->outcome], first->rv,
                              outcomes[a->outcome], a->rv);
        first = a;
    }
}
void history_check(struct history *h, const struct history_limits *l, struct history_report *ret)
{
    size_t configurations = l && l->configurations ? l->configurations : CONFIGURATIONS;

    *ret = (struct history_report){
        .ops = h->n_ops, .keys = h->n_keys, .lists = h->n_lists, .events = h->n_events};
    for (size_t i = 0; i < h->n_ops; i++)
        ret->unknown += h->ops[i].outcome == HISTORY_UNKNOWN;
    history_order(h, ret);
    check_final(h, ret);
    for (uint32_t key = 0; key < h->n_keys && ret->verdict != HISTORY_BAD; key++)
        check_key(h, key, configurations, ret);
}
