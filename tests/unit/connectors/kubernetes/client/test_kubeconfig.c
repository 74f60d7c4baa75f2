/* Credentials out of kubeconfigs and Secrets: what is taken, what is refused by its field's name,
 * that hostile documents are errors, and that no error shows a secret. */
#include "connectors/kubernetes/client/client.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN "a-token-that-nobody-sees"
/* the same three in base64 */
#define CA64 "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tClFRPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="
#define KEY64                                                                                      \
    "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tClFRPT0KLS0tLS1FTkQgUFJJVkFURSBLRVktLS0tLQo="
#define LOCKED64                                                                                   \
    "LS0tLS1CRUdJTiBFTkNSWVBURUQgUFJJVkFURSBLRVktLS0tLQpRUT09Ci0tLS0tRU5EIEVOQ1JZUFRFRCBQUklW" \
    "QVRFIEtFWS0tLS0tCg=="

#define CONFIG(cluster, user)                                                                      \
    "apiVersion: v1\nkind: Config\ncurrent-context: one\npreferences: {}\n"                        \
    "contexts:\n- name: one\n  context: {cluster: c, user: u, namespace: ns1}\n"                   \
    "- name: two\n  context:\n    cluster: c2\n    user: u2\n"                                     \
    "clusters:\n- name: c\n  cluster: {" cluster "}\n"                                             \
    "- name: c2\n  cluster: {server: 'http://127.0.0.1:8001'}\n"                                   \
    "users:\n- name: u\n  user: {" user "}\n- name: u2\n  user: {}\n"
#define SERVER "server: 'https://api.test:6443', certificate-authority-data: " CA64

static int reads(const char *text, const char *context, struct kube_login *l, struct err *e)
{
    *l = (struct kube_login){0};
    *e = (struct err){0};
    return kube_kubeconfig_read(text, context, l, e);
}

static void takes_a_token(void **state)
{
    struct kube_login l, m;
    struct err e;

    (void)state;
    assert_int_equal(reads(CONFIG(SERVER, "token: " TOKEN), "", &l, &e), 0);
    assert_string_equal(l.server, "https://api.test:6443");
    assert_string_equal(l.token, TOKEN);
    assert_string_equal(l.namespace_, "ns1");
    assert_non_null(strstr(l.ca_pem, "-----BEGIN CERTIFICATE-----"));
    assert_null(l.cert_pem);
    assert_int_equal(reads(CONFIG(SERVER, "token: another"), "", &m, &e), 0);
    assert_true(kube_login_same(&l, &l));
    assert_false(kube_login_same(&l, &m));
    kube_login_clear(&l);
    assert_null(l.token);
    kube_login_clear(&m);
}

static void takes_a_certificate(void **state)
{
    struct kube_login l;
    struct err e;
    const char *json = "{\"current-context\":\"a\",\"contexts\":[{\"name\":\"a\",\"context\":"
                       "{\"cluster\":\"c\",\"user\":\"u\"}}],\"clusters\":[{\"name\":\"c\","
                       "\"cluster\":{\"server\":\"https://h\",\"insecure-skip-tls-verify\":false}}]"
                       ",\"users\":[{\"name\":\"u\",\"user\":{\"client-certificate-data\":\"" CA64
                       "\",\"client-key-data\":\"" KEY64 "\",\"username\":\"\"}}]}";

    (void)state;
    assert_int_equal(reads(json, "", &l, &e), 0);
    assert_non_null(strstr(l.cert_pem, "CERTIFICATE"));
    assert_non_null(strstr(l.key_pem, "PRIVATE KEY"));
    assert_null(l.token);
    assert_null(l.ca_pem); /* whom the machine trusts */
    kube_login_clear(&l);
}

static void a_context_is_named(void **state)
{
    struct kube_login l;
    struct err e;

    (void)state;
    assert_int_equal(reads(CONFIG(SERVER, "exec: {command: aws}"), "two", &l, &e), 0);
    assert_string_equal(l.server, "http://127.0.0.1:8001");
    kube_login_clear(&l);
    assert_int_equal(reads(CONFIG(SERVER, "token: x"), "three", &l, &e), E_NOTFOUND);
    assert_string_equal(e.field, "contexts[three].name");
}

static const struct {
    const char *text;
    int code;
    const char *field, *why;
} rows[] = {
    {CONFIG(SERVER, "exec: {command: aws}, token: " TOKEN), E_NOTIMPL, "users[u].user.exec",
     "no program is started"},
    {CONFIG(SERVER, "auth-provider: {name: oidc}"), E_NOTIMPL, "users[u].user.auth-provider",
     "plugins"},
    {CONFIG(SERVER, "tokenFile: /t"), E_NOTIMPL, "users[u].user.tokenFile", "files"},
    {CONFIG(SERVER, "client-certificate: /c"), E_NOTIMPL, "users[u].user.client-certificate",
     "client-certificate-data"},
    {CONFIG(SERVER, "client-key: /c"), E_NOTIMPL, "users[u].user.client-key",
     "client-key-data"},
    {CONFIG(SERVER, "username: a, password: " TOKEN), E_NOTIMPL, "users[u].user.username",
     "passwords"},
    {CONFIG(SERVER, "token: x, as: admin"), E_NOTIMPL, "users[u].user.as", "spec.principals"},
    {CONFIG("server: 'https://h', insecure-skip-tls-verify: true", "token: " TOKEN), E_INVALID,
     "clusters[c].cluster.insecure-skip-tls-verify", "not verified"},
    {CONFIG("server: 'https://h', certificate-authority: /ca", "token: x"), E_NOTIMPL,
     "clusters[c].cluster.certificate-authority", "certificate-authority-data"},
    {CONFIG("server: 'https://h', proxy-url: 'http://p'", "token: x"), E_NOTIMPL,
     "clusters[c].cluster.proxy-url", "proxy"},
    {CONFIG("server: 'https://h', tls-server-name: n", "token: x"), E_NOTIMPL,
     "clusters[c].cluster.tls-server-name", "name in server"},
    {CONFIG("x: y", "token: x"), E_INVALID, "clusters[c].cluster.server", "not there"},
    {CONFIG(SERVER, "token: 12345"), E_INVALID, "users[u].user.token", "quotes"},
    {CONFIG(SERVER, "client-certificate-data: '" TOKEN "!'"), E_INVALID,
     "users[u].user.client-certificate-data", "base64"},
    {CONFIG(SERVER, "client-certificate-data: QUJD"), E_INVALID, "", "no certificate in PEM"},
    {CONFIG(SERVER, "client-certificate-data: QQBC"), E_INVALID, /* a NUL in it */
     "users[u].user.client-certificate-data", "base64"},
    {CONFIG(SERVER, "client-certificate-data: " CA64 ", client-key-data: " LOCKED64), E_NOTIMPL,
     "", "passphrase"},
    {CONFIG(SERVER, "client-certificate-data: " CA64), E_INVALID, "", "come together"},
    {CONFIG(SERVER, "token: x, client-certificate-data: " CA64 ", client-key-data: " KEY64),
     E_INVALID, "", "whose rights"},
    {CONFIG(SERVER, "x: y"), E_NOTFOUND, "", "no token"},
    {CONFIG(SERVER, "token: \"" TOKEN "\\r\\nX-Evil: 1\""), E_INVALID, "", "no header takes"},
    {CONFIG("server: 'http://far.test'", "token: " TOKEN), E_INVALID, "", "https://"},
    {CONFIG("server: 'https://u:p@h'", "token: x"), E_INVALID, "", "no URL"},
    {CONFIG("server: 'file:///etc/passwd'", "token: x"), E_INVALID, "", "no URL"},
    {"kind: Pod\ncurrent-context: a\n", E_INVALID, "kind", "no Config"},
    {"kind: Config\n", E_INVALID, "current-context", "spec.kubernetes.context"},
    {"current-context: [a]\n", E_INVALID, "current-context", "names none"},
    {"current-context: a\ncontexts: {name: a}\n", E_NOTFOUND, "contexts[a].name", "not there"},
    {"current-context: a\ncontexts: [1, null, {name: a, context: x}]\n", E_INVALID,
     "contexts[a].context", "no object"},
    {"current-context: a\ncontexts:\n- {name: a, context: {cluster: c, user: u}}\n"
     "- {name: a, context: {cluster: d, user: u}}\n",
     E_INVALID, "contexts[a].name", "twice"},
    {"", E_INVALID, "", "not one document"},
    {"a: b\n---\nc: d\n", E_INVALID, "", "not one document"},
    {"- a\n", E_INVALID, "", "no object"},
    {"token: &x " TOKEN "\nother: *x\n", E_INVALID, "", "kubeconfig:1:"},
    {"users: " TOKEN "\nusers: " TOKEN "\n", E_INVALID, "", "kubeconfig:2:"},
    {"token: 0x7abcdef\n", E_INVALID, "", "cannot be read"},
    {"a: \"" TOKEN "\\0\"\n", E_INVALID, "", "cannot be read"},
    {"{\"a\": [\xff\xfe" TOKEN, E_INVALID, "", "cannot be read"},
};

static void what_is_refused_is_named(void **state)
{
    struct kube_login l;
    struct err e;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int rc = reads(rows[i].text, "", &l, &e);
        if (rc != rows[i].code || !strstr(e.text, rows[i].why) ||
            strcmp(e.field, rows[i].field) != 0)
            fail_msg("row %zu: %d %s (%s)", i, rc, e.text, e.field);
        assert_null(strstr(e.text, TOKEN));
        assert_null(strstr(e.text, "7abcdef"));
        assert_null(l.server);
    }
}

static void depth_and_size_are_bounded(void **state)
{
    size_t n = 3u << 20;
    char *deep = mem_alloc(n + 1);
    struct kube_login l;
    struct err e;

    (void)state;
    memset(deep, '[', n);
    deep[n] = '\0';
    assert_int_equal(reads(deep, "", &l, &e), E_TOOLARGE);
    deep[100000] = '\0';
    assert_int_equal(reads(deep, "", &l, &e), E_INVALID);
    mem_free(deep);
}

/* Any prefix, and any one byte of it turned round, is an error or a login, and leaks nothing. */
static void broken_documents(void **state)
{
    char text[] = CONFIG(SERVER, "client-certificate-data: " CA64 ", client-key-data: " KEY64);
    size_t n = strlen(text);
    struct kube_login l;
    struct err e;

    (void)state;
    for (size_t i = 0; i < n; i += 3) {
        char was = text[i];
        text[i] = (char)(was ^ 0x15);
        if (reads(text, "", &l, &e) == 0)
            kube_login_clear(&l);
        text[i] = '\0';
        if (reads(text, "", &l, &e) == 0)
            kube_login_clear(&l);
        text[i] = was;
    }
}

/* ---- Secrets ---- */
static struct {
    const char *config, *token, *ca, *cert, *key;
    int held;
} secret;

static const char *secret_get(void *arg, const char *name, const char *key)
{
    const char *v = !strcmp(key, "kubeconfig") ? secret.config
                    : !strcmp(key, "token")    ? secret.token
                    : !strcmp(key, "ca.crt")   ? secret.ca
                    : !strcmp(key, "tls.crt")  ? secret.cert
                    : !strcmp(key, "tls.key")  ? secret.key
                                               : NULL;

    (void)arg;
    assert_string_equal(name, "creds");
    secret.held += v != NULL;
    return v;
}

static void secret_put(void *arg, const char *text)
{
    (void)arg;
    assert_non_null(text);
    secret.held--;
}

static int secret_reads(const char *server, const char *bundle, const char *context,
                        struct kube_login *l, struct err *e)
{
    struct secret_ref ref = {.secret = "creds"};
    struct target_connection g = {.server = server,
                                  .caBundle = bundle,
                                  .credentialsFrom = &ref,
                                  .user = "",
                                  .namespace_ = "",
                                  .region = "",
                                  .homeProxy = ""};
    struct target_kubernetes k = {.context = context};
    struct target_spec spec = {.connection = &g, .kubernetes = *context ? &k : NULL};
    struct connector_env env = {.secret_get = secret_get, .secret_put = secret_put};

    *l = (struct kube_login){0};
    *e = (struct err){0};
    int rc = kube_login_read(&env, &spec, l, e);
    assert_int_equal(secret.held, 0);
    return rc;
}

static const char ca[] = "-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n";
static const char key[] = "-----BEGIN PRIVATE KEY-----\nQQ==\n-----END PRIVATE KEY-----\n";

static void secrets_of_service_accounts(void **state)
{
    struct kube_login l;
    struct err e;

    (void)state;
    secret.token = TOKEN "\n";
    secret.ca = ca;
    assert_int_equal(secret_reads("https://h:6443", "", "", &l, &e), 0);
    assert_string_equal(l.token, TOKEN);
    assert_string_equal(l.ca_pem, ca);
    kube_login_clear(&l);
    assert_int_equal(secret_reads("", "", "", &l, &e), E_INVALID);
    assert_string_equal(e.field, "spec.connection.server");
    assert_int_equal(secret_reads("http://h:6443", "", "", &l, &e), E_INVALID);
    assert_int_equal(secret_reads("https://h:6443", "", "ctx", &l, &e), E_INVALID);
    assert_string_equal(e.field, "spec.kubernetes.context");
    secret.token = " \n";
    assert_int_equal(secret_reads("https://h:6443", "", "", &l, &e), E_NOTFOUND);
    secret.token = TOKEN;
    secret.ca = "no PEM";
    assert_int_equal(secret_reads("https://h:6443", "", "", &l, &e), E_INVALID);
    assert_non_null(strstr(e.text, "ca.crt"));
    memset(&secret, 0, sizeof secret);
}

static void secrets_of_certificates(void **state)
{
    struct kube_login l;
    struct err e;

    (void)state;
    secret.cert = ca;
    secret.key = key;
    assert_int_equal(secret_reads("https://h:6443", ca, "", &l, &e), 0);
    assert_string_equal(l.cert_pem, ca);
    assert_string_equal(l.key_pem, key);
    assert_string_equal(l.ca_pem, ca);
    kube_login_clear(&l);
    secret.key = NULL;
    assert_int_equal(secret_reads("https://h:6443", "", "", &l, &e), E_INVALID);
    memset(&secret, 0, sizeof secret);
}

static void secrets_of_kubeconfigs(void **state)
{
    struct kube_login l;
    struct err e;

    (void)state;
    secret.config = CONFIG(SERVER, "token: " TOKEN);
    assert_int_equal(secret_reads("", "", "one", &l, &e), 0);
    assert_string_equal(l.server, "https://api.test:6443");
    kube_login_clear(&l);
    assert_int_equal(secret_reads("https://by.target:1", ca, "", &l, &e), 0);
    assert_string_equal(l.server, "https://by.target:1"); /* the Target goes first */
    assert_string_equal(l.ca_pem, ca);
    kube_login_clear(&l);
    secret.token = "x";
    assert_int_equal(secret_reads("", "", "", &l, &e), E_INVALID);
    assert_non_null(strstr(e.text, "beside it"));
    memset(&secret, 0, sizeof secret);
    assert_int_equal(secret_reads("https://h", "", "", &l, &e), E_NOTFOUND); /* an empty Secret */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_a_token),
        cmocka_unit_test(takes_a_certificate),
        cmocka_unit_test(a_context_is_named),
        cmocka_unit_test(what_is_refused_is_named),
        cmocka_unit_test(depth_and_size_are_bounded),
        cmocka_unit_test(broken_documents),
        cmocka_unit_test(secrets_of_service_accounts),
        cmocka_unit_test(secrets_of_certificates),
        cmocka_unit_test(secrets_of_kubeconfigs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
