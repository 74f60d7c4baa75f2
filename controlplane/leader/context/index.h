/* What the brain keeps many of, found by a text of its own. */
#ifndef HANSE_CONTROLPLANE_LEADER_CONTEXT_INDEX_H
#define HANSE_CONTROLPLANE_LEADER_CONTEXT_INDEX_H

/* An entry. The key is its owner's, and stays while it is in there. */
struct indexed {
    const char *key;
};
struct indexed *index_find(void *const *index, const char *key); /* or NULL */
void index_add(void **index, struct indexed *e);                 /* no other has its key */
void index_remove(void **index, struct indexed *e);

#endif
