/* The API server: Kubernetes conventions over the backend table, for all kinds from the descriptor
 * table. */
#ifndef HANSE_API_SERVER_API_H
#define HANSE_API_SERVER_API_H

#include "api/http/http.h"
#include "api/server/backend.h"

struct api_config {
    struct loop *loop;
    struct backend *backend;
    const char *version;    /* "0.1.0" */
    const char *git_commit; /* or "" */
    const char *member_name;
    uint32_t max_watches; /* 0 = 10000 */
};
struct api;
struct api *api_create(const struct api_config *cfg);
http_handler api_handler(struct api *a); /* pass with arg = a to http_server_create */
/* What waits for its turn is answered (503), and nothing more is begun; no call may be made of the
 * backend's brain afterwards. */
void api_stop(struct api *a);
struct api *api_destroy(struct api *a);
/* Documents that every cluster begins with (namespaces default, kube-system?, hanse-system; shipped
 * PriorityClasses; ClusterRoles view, edit, admin, cluster-admin and their bindings): each() per
 * object. */
void api_bootstrap_objects(void (*each)(struct object *o, void *arg), void *arg);

#endif
