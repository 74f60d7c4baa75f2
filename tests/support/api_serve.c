/* `unit_api_server_server --serve DIR`: the API over the memory backend with TLS on loopback, for
 * kubectl. DIR gets a CA, and a certificate of group system:masters; the port is printed. Ends
 * on SIGTERM. */
#include "api/base/net/tls.h"
#include "tests/support/api_world.h"

#include <signal.h>
#include <stdio.h>

struct server {
    struct loop *loop;
    struct http_server *http;
};
static void served(struct listener *li, struct stream *st, void *arg)
{
    (void)li;
    http_server_accept(((struct server *)arg)->http, st);
}
static void put(struct object *o, void *arg)
{
    memory_backend_put(arg, o);
}
static void over(void *arg)
{
    loop_stop(((struct server *)arg)->loop);
}
static void http_over(void *arg)
{
    loop_stop(((struct server *)arg)->loop);
}
int api_serve(const char *dir, const char *address)
{
    static const char *const org[] = {"system:masters", NULL}, *const names[] = {"127.0.0.1",
                                                                                 "localhost", NULL};
    char ca[300], ca_key[300], cert[300], key[300], ucert[300], ukey[300];
    struct server s = {0};
    struct err e = {0};
    struct tls_config *tls;
    struct listener *li;
    int port;

    (void)snprintf(ca, sizeof ca, "%s/ca.crt", dir);
    (void)snprintf(ca_key, sizeof ca_key, "%s/ca.key", dir);
    (void)snprintf(cert, sizeof cert, "%s/server.crt", dir);
    (void)snprintf(key, sizeof key, "%s/server.key", dir);
    (void)snprintf(ucert, sizeof ucert, "%s/admin.crt", dir);
    (void)snprintf(ukey, sizeof ukey, "%s/admin.key", dir);
    struct pki_request server = {"server", NULL, names, true, 1},
                       user = {"admin", org, NULL, false, 1};
    struct tls_config_spec spec = {.cert_file = cert, .key_file = key, .ca_file = ca};
    if (pki_ca_create(ca, ca_key, "test", 1, &e) || pki_issue(ca, ca_key, &server, cert, key, &e) ||
        pki_issue(ca, ca_key, &user, ucert, ukey, &e) || tls_config_create(&spec, true, &tls, &e)) {
        (void)fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    s.loop = loop_uv_create(&e);
    struct memory_backend *m = memory_backend_create(s.loop);
    api_bootstrap_objects(put, m);
    struct api_config cfg = {.loop = s.loop,
                             .backend = memory_backend_table(m),
                             .version = "0.1.0",
                             .git_commit = "",
                             .member_name = "m1"};
    struct api *a = api_create(&cfg);
    struct http_config hc = {0};
    s.http = http_server_create(s.loop, &hc, api_handler(a), a);
    if (listener_create(s.loop, address, tls, served, &s, &li, &port, &e) ||
        loop_signal(s.loop, SIGTERM, over, &s, &e)) {
        (void)fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    (void)printf("%d\n", port);
    (void)fflush(stdout);
    loop_uv_run(s.loop);
    listener_close(li);
    http_server_close(s.http, 100, http_over, &s);
    loop_uv_run(s.loop);
    a = api_destroy(a);
    m = memory_backend_destroy(m);
    INV(!loop_signal(s.loop, SIGTERM, NULL, NULL, &e));
    tls = tls_config_unref(tls);
    (void)loop_uv_destroy(s.loop);
    return 0;
}
