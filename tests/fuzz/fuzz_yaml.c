/* YAML: what is read prints as YAML that reads as the same. */
#include "api/schema/schema.h"

#include <cjson/cJSON.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct yaml_doc *docs, *again;
    size_t n, m;

    if (yaml_parse_all((const char *)data, size, "fuzz", &docs, &n, NULL) < 0)
        return 0;
    for (size_t i = 0; i < n; i++) {
        AUTO_BUF out = {0};
        buf_init(&out, 1u << 20);
        yaml_print(docs[i].json, &out);
        int r = yaml_parse_all(out.p, out.n, "again", &again, &m, NULL);
        INV(r == 0 && m == 1 && cJSON_Compare(docs[i].json, again[0].json, 1));
        (void)yaml_line_of(&docs[i], "a.b[0].c");
        yaml_docs_free(again, m);
    }
    yaml_docs_free(docs, n);
    return 0;
}
