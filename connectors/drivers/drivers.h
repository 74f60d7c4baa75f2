/* Which driver a type of Target has. */
#ifndef HANSE_CONNECTORS_DRIVERS_DRIVERS_H
#define HANSE_CONNECTORS_DRIVERS_DRIVERS_H

#include "connectors/connector.h"

/* NULL: this build drives none of that type. */
const struct connector_ops *connector_driver(enum target_type type);

#endif
