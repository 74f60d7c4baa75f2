/* IANA time zones, from the machine's zoneinfo files (RFC 8536). The leader reads them, whose
 * decisions go into the log, and who lets a document in: apply needs none. */
#ifndef HANSE_CONTROLPLANE_SERVER_ZONES_H
#define HANSE_CONTROLPLANE_SERVER_ZONES_H

#include <stdbool.h>
#include <stdint.h>

/* Is it one, as is asked of what is newly written? */
bool zone_known(const char *zone);
/* Seconds east of UTC in `zone` at utc_ms; false when there is no such file. */
bool zone_offset(const char *zone, int64_t utc_ms, int *ret_seconds);

#endif
