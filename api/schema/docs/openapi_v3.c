/* /openapi/v3: an index, and one document a group and version. */
#include "api/schema/docs/openapi_internal.h"

int openapi_v3_group(const char *group, const char *version, struct buf *out, struct err *err)
{
    struct openapi o = {.out = out, .v3 = true, .group = group, .version = version};
    const struct kind *kinds[KIND_LIMIT];
    size_t n = kind_all(kinds, KIND_LIMIT), found = 0;

    for (size_t i = 0; i < n; i++)
        found += !strcmp(kinds[i]->group, group) && !strcmp(kinds[i]->version, version);
    if (found == 0)
        return err_set(err, E_NOTFOUND, "no API group \"%s/%s\"", group, version);
    buf_str(out, "{\"openapi\":\"3.0.0\",\"info\":{\"title\":\"Hanse\",\"version\":\"" HANSE_VERSION
                 "\"},\"paths\":{");
    openapi_paths(&o);
    buf_str(out, "},\"components\":{\"schemas\":{");
    o.comma = false;
    openapi_definitions(&o);
    buf_str(out, "}}}");
    return 0;
}

/* Clients cache a document for as long as its hash stays. */
void openapi_v3_index(struct buf *out)
{
    const struct kind *kinds[KIND_LIMIT];
    size_t n = kind_all(kinds, KIND_LIMIT);
    bool comma = false;

    buf_str(out, "{\"paths\":{");
    for (size_t i = 0; i < n; i++) {
        const struct kind *k = kinds[i];
        bool seen = false;
        for (size_t j = 0; j < i; j++)
            seen = seen || !strcmp(kind_api_version(kinds[j]), kind_api_version(k));
        if (seen)
            continue;
        AUTO_BUF doc = {0};
        buf_init(&doc, 16u << 20);
        int r = openapi_v3_group(k->group, k->version, &doc, NULL);
        INV(r == 0 && !doc.failed);
        const char *base = *k->group ? "apis" : "api";
        buf_printf(out, "%s\"%s/%s\":{\"serverRelativeURL\":\"/openapi/v3/%s/%s?hash=%016llX\"}",
                   comma ? "," : "", base, kind_api_version(k), base, kind_api_version(k),
                   (unsigned long long)bytes_digest(doc.p, doc.n));
        comma = true;
    }
    buf_str(out, "}}");
}
