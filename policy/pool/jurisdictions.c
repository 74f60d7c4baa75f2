/* Which countries a policy means: a country's own code, or a group of countries
 * (policy/jurisdictions.def). A target that names no country is in none. */
#include "policy/pool/pool_internal.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *members;
} groups_of_countries[] = {
#define G(n, m) {n, m},
#include "policy/jurisdictions.def"
#undef G
};

bool policy_jurisdiction_in(const char *country, const char *const *groups, uint32_t n)
{
    char needle[16];

    if (!country[0])
        return false;
    (void)snprintf(needle, sizeof(needle), " %s ", country);
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(country, groups[i]) == 0)
            return true;
        for (size_t g = 0; g < sizeof(groups_of_countries) / sizeof(*groups_of_countries); g++) {
            if (strcmp(groups[i], groups_of_countries[g].name) == 0 &&
                strstr(groups_of_countries[g].members, needle))
                return true;
        }
    }
    return false;
}
