/* /openapi/v2 as JSON: one document for all kinds. gnostic.c makes the protobuf from this very
 * text. */
#include "api/schema/docs/openapi_internal.h"

void openapi_v2_json(struct buf *out)
{
    struct openapi o = {.out = out};

    buf_str(out, "{\"swagger\":\"2.0\",\"info\":{\"title\":\"Hanse\",\"version\":\"" HANSE_VERSION
                 "\"},\"paths\":{");
    openapi_paths(&o);
    buf_str(out, "},\"definitions\":{");
    o.comma = false;
    openapi_definitions(&o);
    buf_str(out, "}}");
}
