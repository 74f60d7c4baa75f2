/* An index of the brain's objects by a text key: Targets by name, Migrations and nominations by
 * uid. The entry, and its key, lie inside the object that is found. */
#include "controlplane/leader/context/index.h"

#include "api/base/err.h"

#include <search.h>
#include <string.h>

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct indexed *)a)->key, ((const struct indexed *)b)->key);
}

struct indexed *index_find(void *const *index, const char *key)
{
    const struct indexed wanted = {key};
    struct indexed **found = tfind(&wanted, index, by_key);

    return found ? *found : NULL;
}

void index_add(void **index, struct indexed *e)
{
    struct indexed **in = tsearch(e, index, by_key);

    INV(in && *in == e); /* the caller has looked first */
}

void index_remove(void **index, struct indexed *e)
{
    (void)tdelete(e, index, by_key);
}
