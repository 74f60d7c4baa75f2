/* An index of the brain's objects by a text key: Targets by name, Migrations and nominations by
 * uid. */
#ifndef HANSE_CONTROLPLANE_LEADER_CONTEXT_INDEX_H
#define HANSE_CONTROLPLANE_LEADER_CONTEXT_INDEX_H

/* An entry, embedded in the object that is found. The object owns the key, which must not change
 * while the entry is in an index. */
struct indexed {
    const char *key;
};
struct indexed *index_find(void *const *index, const char *key); /* NULL if there is none */
void index_add(void **index, struct indexed *e); /* no other entry may have its key */
void index_remove(void **index, struct indexed *e);

#endif
