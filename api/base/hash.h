/* FNV-1a (Fowler, Noll and Vo): for tables, names and spreading. It is no guard against a client
 * that chooses its keys, and no digest. Names on disk are made of it: its values never change. */
#ifndef HANSE_API_BASE_HASH_H
#define HANSE_API_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_START 14695981039346656037u

/* The hash of what came before (HASH_START: nothing) and n bytes at p. */
static inline uint64_t hash_more(uint64_t h, const void *p, size_t n)
{
    const unsigned char *bytes = p;

    for (size_t i = 0; i < n; i++)
        h = (h ^ bytes[i]) * 1099511628211u;
    return h;
}

static inline uint64_t hash_text(const char *s)
{
    uint64_t h = HASH_START;

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 1099511628211u;
    return h;
}

/* The variant of 32 bits. */
static inline uint32_t hash_text32(const char *s)
{
    uint32_t h = 2166136261u;

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

/* A slot of n for a text: the low bits of FNV-1a alone are its weakest. */
static inline size_t hash_slot(const char *s, size_t n)
{
    uint64_t h = hash_text(s);

    return (size_t)((h ^ h >> 32) % n);
}

#endif
