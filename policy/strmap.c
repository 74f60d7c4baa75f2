/* Text → number by open addressing. It is only looked up, never walked: the order of its slots must
 * not reach any decision. The caller owns the keys, which must outlive their entries. */
#include "policy/pool/pool_internal.h"

#include "api/base/hash.h"

#include <string.h>

uint64_t strmap_hash(const char *s)
{
    uint64_t h = hash_text(s);

    h ^= h >> 32;
    h *= 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

static uint32_t slot_of(const struct strmap *m, const char *key, uint32_t hash)
{
    uint32_t mask = m->cap - 1, i = hash & mask;

    while (m->slots[i].key && (m->slots[i].hash != hash || strcmp(m->slots[i].key, key) != 0))
        i = (i + 1) & mask;
    return i;
}

uint32_t strmap_get(const struct strmap *m, const char *key)
{
    uint32_t i;

    if (!m->n)
        return NONE;
    i = slot_of(m, key, (uint32_t)strmap_hash(key));
    return m->slots[i].key ? m->slots[i].value : NONE;
}

static void strmap_grow(struct strmap *m)
{
    struct strmap old = *m;

    m->cap = old.cap ? old.cap * 2 : 16;
    m->slots = mem_zalloc(sizeof(*m->slots) * m->cap);
    for (uint32_t i = 0; i < old.cap; i++) {
        if (old.slots[i].key)
            m->slots[slot_of(m, old.slots[i].key, old.slots[i].hash)] = old.slots[i];
    }
    mem_free(old.slots);
}

void strmap_set(struct strmap *m, const char *key, uint32_t value)
{
    uint32_t hash = (uint32_t)strmap_hash(key), i;

    if ((m->n + 1) * 2 > m->cap)
        strmap_grow(m);
    i = slot_of(m, key, hash);
    if (!m->slots[i].key)
        m->n++;
    m->slots[i] = (struct strmap_slot){key, hash, value};
}

bool strmap_change(struct strmap *m, const char *key, uint32_t value)
{
    uint32_t i = m->n ? slot_of(m, key, (uint32_t)strmap_hash(key)) : 0;

    if (!m->n || !m->slots[i].key)
        return false;
    m->slots[i].value = value;
    return true;
}

void strmap_unset(struct strmap *m, const char *key)
{
    uint32_t mask = m->cap - 1, i, j;

    if (!m->n)
        return;
    i = slot_of(m, key, (uint32_t)strmap_hash(key));
    if (!m->slots[i].key)
        return;
    m->slots[i].key = NULL;
    m->n--;
    /* Close the gap: move back whatever was pushed past it. */
    for (j = (i + 1) & mask; m->slots[j].key; j = (j + 1) & mask) {
        uint32_t home = m->slots[j].hash & mask;

        if (((j - home) & mask) >= ((j - i) & mask)) {
            m->slots[i] = m->slots[j];
            m->slots[j].key = NULL;
            i = j;
        }
    }
}

void strmap_fini(struct strmap *m)
{
    mem_free(m->slots);
    *m = (struct strmap){0};
}
