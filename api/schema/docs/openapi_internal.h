/* Shared by the OpenAPI documents of both versions. */
#ifndef HANSE_API_SCHEMA_OPENAPI_INTERNAL_H
#define HANSE_API_SCHEMA_OPENAPI_INTERNAL_H

#include "api/schema/schema_internal.h"

struct openapi {
    struct buf *out;
    bool v3;
    bool comma;                  /* something stands before in this object */
    const char *group, *version; /* NULL: all kinds */
};
void openapi_gvk(struct openapi *o, const struct kind *k, bool list);
void openapi_definitions(struct openapi *o); /* members of definitions / components.schemas */
void openapi_paths(struct openapi *o);       /* members of paths */
const char *definition_name(const struct schema *s, char out[160]);

#endif
