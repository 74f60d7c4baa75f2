/* Memory: the one file of the tree that calls malloc for small things, so that limits and failure
 * have one place. This file must never return NULL from an aborting allocator, and never grow a
 * buffer past its maximum. */
#include "api/base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void out_of_memory(size_t n) __attribute__((noreturn));
static void out_of_memory(size_t n)
{
    (void)fprintf(stderr, "hanse: out of memory (%zu bytes)\n", n);
    abort();
}

void *mem_alloc(size_t n)
{
    void *p = malloc(n ? n : 1);

    if (!p)
        out_of_memory(n);
    return p;
}

void *mem_zalloc(size_t n)
{
    void *p = calloc(1, n ? n : 1);

    if (!p)
        out_of_memory(n);
    return p;
}

void *mem_realloc(void *p, size_t n)
{
    p = realloc(p, n ? n : 1);
    if (!p)
        out_of_memory(n);
    return p;
}

char *mem_strdup(const char *s)
{
    size_t n = strlen(s) + 1;

    return memcpy(mem_alloc(n), s, n);
}

void str_copy(char *to, size_t n, const char *from)
{
    size_t length = from ? strnlen(from, n - 1) : 0;

    PRE(n > 0);
    if (length)
        memcpy(to, from, length);
    to[length] = '\0';
}

void str_mark_cut(char *text, size_t n)
{
    static const char mark[] = "\xe2\x80\xa6";
    size_t at = n - sizeof mark;

    PRE(n >= sizeof mark);
    while (at && ((unsigned char)text[at] & 0xc0) == 0x80) /* never in the midst of a character */
        at--;
    memcpy(text + at, mark, sizeof mark);
}

void str_cut(char *to, size_t n, const char *from)
{
    str_copy(to, n, from);
    if (from && from[strnlen(from, n - 1)])
        str_mark_cut(to, n);
}

#define WORD_MAX ((size_t)48)

void str_cut_words(char *to, size_t n, const char *from)
{
    static const char mark[] = " \xe2\x80\xa6";

    str_cut(to, n, from);
    if (!from || !from[strnlen(from, n - 1)])
        return;
    for (size_t at = strlen(to); at > 1 && strlen(to) - at < WORD_MAX; at--) {
        if (to[at - 1] == ' ' && at - 1 + sizeof mark <= n) {
            memcpy(to + at - 1, mark, sizeof mark);
            return;
        }
    }
}

void mem_free(void *p)
{
    free(p);
}

/* ---- arenas ---- */

#define ARENA_FIRST_BYTES ((size_t)4096)
#define ARENA_CHUNK_MIN ((size_t)512)
#define ARENA_CHUNK_MAX ((size_t)1 << 20)
#define ARENA_ALIGN ((size_t)16)

struct chunk {
    struct chunk *next; /* the one before it in time */
    size_t used, cap;
    _Alignas(16) unsigned char data[];
};

struct arena {
    struct chunk *top; /* newest first; the last of the list is the first chunk */
    size_t used, limit;
    bool soft;
    struct chunk first; /* freed with the arena */
};

static struct chunk *chunk_create(size_t cap, struct chunk *next)
{
    struct chunk *c = mem_alloc(sizeof *c + cap);

    c->next = next;
    c->used = 0;
    c->cap = cap;
    return c;
}

static size_t align_up(size_t n)
{
    return n ? (n + ARENA_ALIGN - 1) & ~(ARENA_ALIGN - 1) : ARENA_ALIGN;
}

struct arena *arena_create_sized(size_t first_bytes, size_t limit_bytes)
{
    PRE(first_bytes <= ARENA_LIMIT_DEFAULT);
    size_t cap = align_up(first_bytes);
    struct arena *a = mem_alloc(sizeof *a + cap);

    *a = (struct arena){.top = &a->first,
                        .limit = limit_bytes ? limit_bytes : ARENA_LIMIT_DEFAULT,
                        .first = {.cap = cap}};
    return a;
}

struct arena *arena_create(size_t limit_bytes)
{
    return arena_create_sized(ARENA_FIRST_BYTES - sizeof(struct arena), limit_bytes);
}

struct arena *arena_destroy(struct arena *a)
{
    if (!a)
        return NULL;
    arena_reset(a);
    free(a);
    return NULL;
}

void arena_reset(struct arena *a)
{
    while (a->top->next) {
        struct chunk *c = a->top;

        a->top = c->next;
        free(c);
    }
    a->top->used = 0;
    a->used = 0;
}

size_t arena_used(const struct arena *a)
{
    return a->used;
}

size_t arena_room(const struct arena *a)
{
    return a->limit - a->used;
}

void arena_set_soft(struct arena *a, bool soft)
{
    a->soft = soft;
}

/* A chunk of its own for what is large, beneath the top one so that the top's rest is not lost; but
 * never beneath the first chunk, which must stay last since arena_reset keeps it. */
static void *alloc_large(struct arena *a, size_t n)
{
    struct chunk **at = a->top->next ? &a->top->next : &a->top;
    struct chunk *c = chunk_create(n, *at);

    *at = c;
    c->used = n;
    return memset(c->data, 0, n);
}

void *arena_alloc(struct arena *a, size_t n)
{
    size_t size = align_up(n);

    if (size < n || size > a->limit || a->used > a->limit - size) {
        if (a->soft)
            return NULL;
        (void)fprintf(stderr, "hanse: arena limit of %zu bytes passed\n", a->limit);
        abort();
    }
    a->used += size;
    if (size > a->top->cap - a->top->used) {
        size_t next = a->top->cap >= ARENA_CHUNK_MAX / 2 ? ARENA_CHUNK_MAX : a->top->cap * 2;

        if (next < ARENA_CHUNK_MIN)
            next = ARENA_CHUNK_MIN;
        if (size > next / 2)
            return alloc_large(a, size);
        a->top = chunk_create(next, a->top);
    }
    void *p = a->top->data + a->top->used;
    a->top->used += size;
    return memset(p, 0, size);
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    char *p = n == SIZE_MAX ? NULL : arena_alloc(a, n + 1);

    if (p && n)
        memcpy(p, s, n);
    return p;
}

char *arena_strdup(struct arena *a, const char *s)
{
    return arena_strndup(a, s, strlen(s));
}

void *arena_memdup(struct arena *a, const void *p, size_t n)
{
    void *q = arena_alloc(a, n);

    if (q && n)
        memcpy(q, p, n);
    return q;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    char small[256];
    va_list ap, again;

    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    PRE(n >= 0);
    char *p = arena_alloc(a, (size_t)n + 1);
    if (p && (size_t)n < sizeof small)
        memcpy(p, small, (size_t)n + 1);
    else if (p)
        (void)vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

void arena_cleanup(struct arena **a)
{
    *a = arena_destroy(*a);
}

/* ---- buffers ---- */

void buf_init(struct buf *b, size_t max_bytes)
{
    *b = (struct buf){.max = max_bytes};
}

void buf_fini(struct buf *b)
{
    free(b->p);
    buf_init(b, b->max);
}

void buf_reset(struct buf *b)
{
    b->n = 0;
    b->failed = false;
    if (b->p)
        b->p[0] = '\0';
}

char *buf_reserve(struct buf *b, size_t n)
{
    if (b->failed)
        return NULL;
    if (n > b->max || b->n > b->max - n) {
        b->failed = true;
        return NULL;
    }
    if (b->n + n + 1 > b->cap) {
        size_t cap = b->cap ? b->cap : 64;

        while (cap < b->n + n + 1)
            cap *= 2;
        if (cap > b->max + 1 && b->max < SIZE_MAX)
            cap = b->max + 1;
        b->p = mem_realloc(b->p, cap);
        b->cap = cap;
    }
    b->p[b->n + n] = '\0';
    return b->p + b->n;
}

void buf_add(struct buf *b, const void *p, size_t n)
{
    char *to = buf_reserve(b, n);

    if (!to)
        return;
    if (n)
        memcpy(to, p, n);
    b->n += n;
    b->p[b->n] = '\0';
}

void buf_str(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_char(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    char small[256];
    va_list ap, again;

    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    PRE(n >= 0);
    if ((size_t)n < sizeof small) {
        buf_add(b, small, (size_t)n);
    } else {
        char *to = buf_reserve(b, (size_t)n);

        if (to) {
            (void)vsnprintf(to, (size_t)n + 1, fmt, again);
            b->n += (size_t)n;
        }
    }
    va_end(again);
}

void buf_consume(struct buf *b, size_t n)
{
    PRE(n <= b->n);
    b->n -= n;
    if (b->p) {
        memmove(b->p, b->p + n, b->n);
        b->p[b->n] = '\0';
    }
}

char *buf_steal(struct buf *b, size_t *ret_n)
{
    char *p = b->p ? b->p : mem_strdup("");

    if (ret_n)
        *ret_n = b->n;
    buf_init(b, b->max);
    return p;
}

void buf_cleanup(struct buf *b)
{
    buf_fini(b);
}
