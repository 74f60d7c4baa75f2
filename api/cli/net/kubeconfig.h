/* Logins: kubeconfig files as kubectl reads them, so that one login serves both. Only reads; must
 * never print or log a credential. */
#ifndef HANSE_API_CLI_KUBECONFIG_H
#define HANSE_API_CLI_KUBECONFIG_H

#include "api/base/loop/loop.h"

#define LOGIN_SERVERS_MAX 16
#define LOGIN_GROUPS_MAX 16
struct login {
    /* the first is the cluster's own, then its further members */
    const char *servers[LOGIN_SERVERS_MAX];
    unsigned n_servers;
    const char *ca_file, *ca_pem;
    const char *cert_file, *cert_pem, *key_file, *key_pem;
    const char *tls_server_name;
    const char *token;
    const char *as; /* whom to act as, or NULL; then his groups */
    const char *as_groups[LOGIN_GROUPS_MAX];
    unsigned n_as_groups;
    const char *ns; /* the context's namespace, or NULL */
    const char *context;
};
/* paths: KUBECONFIG's form, "a:b"; absent files are skipped, unless it is the only one and `must`.
 * The first file that says something wins, as with kubectl. context NULL = current-context. Texts
 * belong to `a`. Without any file: 0 and an empty login. */
int kubeconfig_load(struct loop *l, const char *paths, bool must, const char *context,
                    struct arena *a, struct login *ret, struct err *err) MUST_CHECK;

#endif
