/* IANA time zones, from the machine's zoneinfo files (RFC 8536). Only the leader reads them; what
 * they give is written into the entry, so that apply needs none. */
#ifndef HANSE_CONTROLPLANE_SERVER_ZONES_H
#define HANSE_CONTROLPLANE_SERVER_ZONES_H

#include <stdbool.h>
#include <stdint.h>

/* Seconds east of UTC in `zone` at utc_ms; false when the zone is unknown. */
bool zone_offset(const char *zone, int64_t utc_ms, int *ret_seconds);

#endif
