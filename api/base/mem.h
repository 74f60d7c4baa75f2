/* Memory: arenas, bounded buffers, byte slices. malloc is called in api/base only.
 *
 * Lifetimes are four: process, loop object (freed in its close callback), request arena, state.
 * Allocation failure of small pieces aborts (we hold limits on everything, so it is our own error);
 * whatever grows with input goes through a bounded buffer or an arena with a limit, and is an
 * error. */
#ifndef HANSE_API_BASE_MEM_H
#define HANSE_API_BASE_MEM_H

#include "api/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slice {
    const void *p;
    size_t n;
};
static inline struct slice slice_make(const void *p, size_t n)
{
    return (struct slice){p, n};
}

/* Aborting allocators for small, bounded objects; mem_free accepts NULL. */
void *mem_alloc(size_t n) __attribute__((malloc, returns_nonnull)); /* not zeroed */
void *mem_zalloc(size_t n) __attribute__((malloc, returns_nonnull));
void *mem_realloc(void *p, size_t n) __attribute__((returns_nonnull));
char *mem_strdup(const char *s) __attribute__((malloc, returns_nonnull));
void mem_free(void *p);
#define mem_new(type) ((type *)mem_zalloc(sizeof(type)))

/* An arena: everything that one parse, decision or reply allocates, freed at once. Grows by
 * chunks. */
struct arena;
#define ARENA_LIMIT_DEFAULT ((size_t)256 << 20)
struct arena *arena_create(size_t limit_bytes); /* 0 = ARENA_LIMIT_DEFAULT */
/* For what is kept in large numbers and whose size is known: the first `first_bytes` come with the
 * arena, in one piece of memory and no more. It still grows up to the limit. */
struct arena *arena_create_sized(size_t first_bytes, size_t limit_bytes);
struct arena *arena_destroy(struct arena *a); /* accepts NULL, returns NULL */
void arena_reset(struct arena *a);            /* keeps the first chunk */
size_t arena_used(const struct arena *a);
size_t arena_room(const struct arena *a); /* what may still be taken; each piece rounded up to 16 */
/* Zeroed, 16-byte aligned. Past the limit: NULL when `arena_set_soft` was called, else abort. */
void *arena_alloc(struct arena *a, size_t n);
void arena_set_soft(struct arena *a, bool soft);
char *arena_strdup(struct arena *a, const char *s);
char *arena_strndup(struct arena *a, const char *s, size_t n);
void *arena_memdup(struct arena *a, const void *p, size_t n);
char *arena_printf(struct arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
#define arena_new(a, type) ((type *)arena_alloc((a), sizeof(type)))
#define arena_array(a, type, n) ((type *)arena_alloc((a), sizeof(type) * (size_t)(n)))
void arena_cleanup(struct arena **a);
#define AUTO_ARENA __attribute__((cleanup(arena_cleanup))) struct arena *

/* from (NULL is "") into n bytes, cut where it is longer. n > 0; the two do not overlap. */
void str_copy(char *to, size_t n, const char *from);

/* Marks a text that was cut to n bytes: an ellipsis takes the place of its last characters.
 * n >= 4. */
void str_mark_cut(char *text, size_t n);
/* as str_copy, with that mark where from is longer */
void str_cut(char *to, size_t n, const char *from);
/* as str_cut, and what is left ends with a whole word, unless that is a very long one */
void str_cut_words(char *to, size_t n, const char *from);

/* A growing byte buffer with a hard maximum given at init (after curl's dynbuf). Appending past the
 * maximum sets `failed` and appends nothing; callers check once, at the end. */
struct buf {
    char *p; /* always NUL-terminated when n > 0 */
    size_t n, cap, max;
    bool failed;
};
void buf_init(struct buf *b, size_t max_bytes);
void buf_fini(struct buf *b); /* leaves an empty, usable buffer */
void buf_reset(struct buf *b);
void buf_add(struct buf *b, const void *p, size_t n);
void buf_str(struct buf *b, const char *s);
void buf_char(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* room for n more bytes, or NULL; then set b->n += used */
char *buf_reserve(struct buf *b, size_t n);
void buf_consume(struct buf *b, size_t n); /* drops n bytes from the front */
/* caller frees with mem_free; b is empty afterwards */
char *buf_steal(struct buf *b, size_t *ret_n);
void buf_cleanup(struct buf *b);
#define AUTO_BUF __attribute__((cleanup(buf_cleanup))) struct buf

#endif
