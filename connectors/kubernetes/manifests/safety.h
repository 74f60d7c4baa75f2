/* What of an order is kept from others, and what its pods may do. */
#ifndef HANSE_CONNECTORS_KUBERNETES_MANIFESTS_SAFETY_H
#define HANSE_CONNECTORS_KUBERNETES_MANIFESTS_SAFETY_H

#include "connectors/home/home.h"
#include "connectors/kubernetes/client/client.h"

int kube_secret_make(const struct connector *base, const struct run_order *o,
                     const struct home_brought *b, const char *const *tokens, cJSON *ret_data,
                     cJSON *ret_env, const char *secret, struct err *err) MUST_CHECK;
/* Puts into a whole pod spec what spec.kubernetes says of its users and of Pod Security. */
void kube_security_in(const struct target_kubernetes *k, cJSON *pod);
void kube_document_wipe(cJSON *o); /* NULL is accepted; what is secret in it is wiped */

#endif
