/* The connector driver of targets that others wrote: it calls out over HTTP and JSON, as README.md
 * describes, so that such a target needs no code in Hanse. */
#ifndef HANSE_CONNECTORS_CALLOUT_H
#define HANSE_CONNECTORS_CALLOUT_H

#include "connectors/connector.h"

extern const struct connector_ops connector_callout_ops;

#endif
