/* The driver of Kubernetes targets; README.md says how. */
#ifndef HANSE_CONNECTORS_KUBERNETES_H
#define HANSE_CONNECTORS_KUBERNETES_H

#include "connectors/connector.h"

extern const struct connector_ops connector_kubernetes_ops;

#endif
