/* Log bytes: whatever decodes encodes to the very same bytes. */
#include "api/schema/schema.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    const struct kind *k = kind_by_id((enum kind_id)(1 + data[0] % 25));
    struct object *o = NULL;
    if (object_decode(k, slice_make(data + 1, size - 1), &o, NULL) < 0)
        return 0;
    AUTO_BUF out = {0};
    buf_init(&out, 1u << 20);
    tlv_add(k->schema, object_body(o, k->schema), &out);
    /* an object without metadata gets an empty one: two bytes more */
    INV(out.n == size - 1 || (out.n == size + 1 && out.p[0] == 3 && out.p[1] == 0));
    INV(out.n == 0 || !memcmp(out.p + (out.n - (size - 1)), data + 1, size - 1));
    buf_reset(&out);
    object_print_json(o, &out);
    (void)object_unref(o);
    return 0;
}
