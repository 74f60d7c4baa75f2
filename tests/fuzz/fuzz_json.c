/* JSON: the scanner and the parser agree, and what decodes prints as JSON. */
#include "api/schema/schema.h"

#include <cjson/cJSON.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cJSON *j = NULL;
    int scanned = json_scan((const char *)data, size, NULL);
    int parsed = json_parse((const char *)data, size, &j, NULL);

    INV(scanned == parsed);
    if (parsed < 0)
        return 0;
    for (int id = 1; id <= 25; id++) {
        const struct kind *k = kind_by_id((enum kind_id)id);
        struct object *o = NULL;
        AUTO_ARENA a = arena_create(0);
        void *body;
        (void)!body_from_json(k->schema, j, DECODE_USER | DECODE_LOOSE, a, &body, NULL);
        if (object_from_json(k, j, DECODE_USER, &o, NULL) < 0)
            continue;
        (void)!object_validate(o, NULL);
        struct cJSON *tree = NULL;
        int rc = object_to_json(o, &tree, NULL);
        INV(rc == 0);
        cJSON_Delete(tree);
        (void)object_unref(o);
    }
    cJSON_Delete(j);
    return 0;
}
