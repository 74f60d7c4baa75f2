/* What a ResourceQuota says of how fast its namespace is written (quota.c). */
#ifndef HANSE_API_SCHEMA_QUOTA_H
#define HANSE_API_SCHEMA_QUOTA_H

#include "api/schema/schema.h"

#define QUOTA_RATE "hanse.dev/writes-per-second"
#define QUOTA_BURST "hanse.dev/writes-burst"
struct quota_rate {
    int64_t milli; /* writes in 1000 s */
    int64_t burst; /* that may come at once */
};
bool quota_rate_of(const struct resource_quota_spec *s, struct quota_rate *ret); /* false: none */

#endif
