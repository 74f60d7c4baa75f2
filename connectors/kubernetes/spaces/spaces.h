/* What a Target asks for of the cluster's namespaces (spec.kubernetes.namespaces[].managed and
 * network): a label of Pod Security, and a NetworkPolicy. Both are applied under our field manager,
 * without force, and go once they are not asked for any more. */
#ifndef HANSE_CONNECTORS_KUBERNETES_SPACES_H
#define HANSE_CONNECTORS_KUBERNETES_SPACES_H

#include "connectors/kubernetes/client/client.h"

#define KUBE_SPACE_LABEL "hanse.dev/target" /* on the namespace and the policy: whose they are */
#define KUBE_SPACE_POLICY "hanse-isolated"

struct kube_spaces;
struct kube_spaces_env {                                   /* borrowed until kube_spaces_destroy */
    struct connector *base;                                /* env of the driver */
    const struct object *doc;                              /* the Target */
    struct kube_client *(*client)(struct connector *base); /* NULL: out of reach */
};
struct kube_spaces *kube_spaces_create(const struct kube_spaces_env *env);
struct kube_spaces *kube_spaces_destroy(struct kube_spaces *s); /* accepts NULL; returns NULL */
void kube_spaces_update(struct kube_spaces *s, const struct object *doc);
void kube_spaces_reached(struct kube_spaces *s); /* a session begins: what is there is read anew */
void kube_spaces_lost(struct kube_spaces *s);
/* The Target is let go: nothing is asked for any more. Returns how many namespaces have something
 * of it, as far as is known; why: what stands against its going, or "". */
size_t kube_spaces_leave(struct kube_spaces *s, char why[256]);

#endif
