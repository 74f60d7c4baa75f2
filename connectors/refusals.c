/* The table of connectors/refusals.def. */
#include "connectors/connector.h"

static const struct {
    int code;
    enum refusal_class class_;
    enum refusal_scope scope;
} rows[] = {
#define R(code, class_told, scope_told) {code, REFUSED_##class_told, BLAMES_##scope_told},
#include "connectors/refusals.def"
#undef R
};

struct refusal refusal_of_code(int code)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].code == code)
            return (struct refusal){.class_ = rows[i].class_, .scope = rows[i].scope};
    return (struct refusal){0};
}
