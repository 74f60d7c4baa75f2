/* What the parts of the judge share. */
#ifndef HANSE_TESTS_SUPPORT_HISTORY_HISTORY_INTERNAL_H
#define HANSE_TESTS_SUPPORT_HISTORY_HISTORY_INTERNAL_H

#include "tests/support/history/history.h"

struct history_stream {
    uint32_t client;
    uint64_t from;
};
struct history {
    char (*keys)[HISTORY_KEY_MAX];
    size_t n_keys, cap_keys;
    struct history_op *ops;
    size_t n_ops, cap_ops;
    struct history_list *lists;
    size_t n_lists, cap_lists;
    struct history_stream *watches;
    size_t n_watches, cap_watches;
    struct history_event *events;
    size_t n_events, cap_events;
    struct history_answer *answers;
    size_t n_answers, cap_answers;
};

/* Makes room for one more. */
#define HISTORY_GROW(p, n, cap)                                                                    \
    do {                                                                                           \
        if ((n) == (cap)) {                                                                        \
            (cap) = (cap) ? (cap)*2 : 64;                                                          \
            (p) = mem_realloc((p), (cap) * sizeof *(p));                                           \
        }                                                                                          \
    } while (0)

/* Says why, once: true when this was the first. */
bool history_bad(struct history_report *r, enum history_verdict v, const char *check,
                 const char *fmt, ...) PRINTF_LIKE(4, 5);
/* linear.c: the operations of one object, in any order. */
void history_linear(const struct history *h, struct history_op *ops, size_t n,
                    size_t configurations, struct history_report *ret);
/* order.c */
void history_order(const struct history *h, struct history_report *ret);

#endif
