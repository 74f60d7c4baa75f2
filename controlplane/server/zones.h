/* IANA time zones, from the machine's zoneinfo files (RFC 8536). The leader reads them for its
 * decisions, which go into the log, and the API when it admits a document; apply needs none. */
#ifndef HANSE_CONTROLPLANE_SERVER_ZONES_H
#define HANSE_CONTROLPLANE_SERVER_ZONES_H

#include <stdbool.h>
#include <stdint.h>

/* True when the machine knows the zone; asked of documents that are newly written. */
bool zone_known(const char *zone);
/* Returns the seconds east of UTC in `zone` at utc_ms; false when there is no such file. */
bool zone_offset(const char *zone, int64_t utc_ms, int *ret_seconds);

#endif
