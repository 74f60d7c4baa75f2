/* Intrusive doubly linked list, as in the Linux kernel. A zeroed head is NOT valid: list_init
 * it. */
#ifndef HANSE_API_BASE_LIST_H
#define HANSE_API_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next, *prev;
};

#define container_of(p, type, member) ((type *)(void *)((char *)(p)-offsetof(type, member)))
#define list_for_each(it, head)                                                                    \
    for (struct list *it = list_next(head); it != (head); it = list_next(it))
#define list_for_each_safe(it, tmp, head)                                                          \
    for (struct list *it = list_next(head), *tmp = list_next(it); it != (head);                    \
         it = tmp, tmp = list_next(it))

/* A list is a ring: there is always a next one. It is said here for analysers, which would follow
 * a NULL at each loop otherwise. */
static inline struct list *list_next(const struct list *l)
{
    if (!l->next)
        __builtin_unreachable();
    return l->next;
}
static inline void list_init(struct list *l)
{
    l->next = l->prev = l;
}
static inline bool list_empty(const struct list *l)
{
    return l->next == l;
}
static inline void list_push(struct list *head, struct list *e) /* at the end */
{
    e->prev = head->prev;
    e->next = head;
    head->prev->next = e;
    head->prev = e;
}
static inline void
list_remove(struct list *e) /* leaves e a valid empty list: removing twice is harmless */
{
    e->prev->next = e->next;
    e->next->prev = e->prev;
    list_init(e);
}
static inline struct list *list_pop(struct list *head)
{
    struct list *e = head->next;

    if (e == head)
        return NULL;
    list_remove(e);
    return e;
}

#endif
