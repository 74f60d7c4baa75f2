/* See proxy.h. Must never put what may be a password into a message, nor let a byte of an address
 * end a line of what is sent to a proxy. */
#include "api/base/net/proxy.h"

#include "api/base/loop/loop.h"
#include "api/base/mem.h"

#include <arpa/inet.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HOST_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"
#define IPV6_LETTERS "0123456789abcdefABCDEF:."

/* ---- where it is ---- */
static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Length of the host that s begins with, brackets included; 0: none. */
static size_t host_length(const char *s)
{
    size_t n;

    if (*s != '[')
        return strspn(s, HOST_LETTERS);
    n = 1 + strspn(s + 1, IPV6_LETTERS);
    return n > 1 && s[n] == ']' ? n + 1 : 0;
}

/* "HOST[:PORT]"; a slash may follow. */
static int address_take(const char *s, char ret[256])
{
    size_t n = host_length(s), digits = 0;
    unsigned port = 80;

    if (n == 0 || n > 245)
        return -1;
    if (s[n] == ':') {
        digits = strspn(s + n + 1, "0123456789");
        if (digits < 1 || digits > 5)
            return -1;
        port = (unsigned)strtoul(s + n + 1, NULL, 10);
        digits++;
    }
    if (port < 1 || port > 65535 || (s[n + digits] && strcmp(s + n + digits, "/") != 0))
        return -1;
    (void)snprintf(ret, 256, "%.*s:%u", (int)n, s, port);
    return 0;
}

/* %XX become bytes; none of them may be one that ends a text or a line. */
static int unescape(const char *s, size_t n, char *ret, size_t max)
{
    size_t k = 0;

    for (size_t i = 0; i < n; i++) {
        int c = (unsigned char)s[i];
        if (c == '%') {
            int high = i + 2 < n ? hex(s[i + 1]) : -1, low = i + 2 < n ? hex(s[i + 2]) : -1;
            if (high < 0 || low < 0)
                return -1;
            c = high * 16 + low;
            i += 2;
        }
        if (c < 0x20 || c == 0x7f || k + 1 >= max)
            return -1;
        ret[k++] = (char)c;
    }
    ret[k] = '\0';
    return 0;
}

int proxy_login(struct proxy *p, const char *login, struct err *err)
{
    unsigned char coded[PROXY_LOGIN_MAX * 4 / 3 + 8];
    size_t n = strcspn(login, "\r\n");

    for (size_t i = 0; i < n; i++)
        if ((unsigned char)login[i] < 0x20 || login[i] == 0x7f)
            return err_set(err, E_INVALID, "what logs in at the proxy has control characters");
    if (n == 0 || n > PROXY_LOGIN_MAX || !memchr(login, ':', n))
        return err_set(err, E_INVALID,
                       "what logs in at the proxy is no USER:PASSWORD of at most %d bytes",
                       PROXY_LOGIN_MAX);
    (void)EVP_EncodeBlock(coded, (const unsigned char *)login, (int)n);
    (void)snprintf(p->authorization, sizeof p->authorization, "Basic %s", (const char *)coded);
    OPENSSL_cleanse(coded, sizeof coded);
    return 0;
}

static int user_take(struct proxy *p, const char *s, size_t n, struct err *err)
{
    char login[PROXY_LOGIN_MAX + 2];
    const char *colon = memchr(s, ':', n);
    int rc = unescape(s, n, login, sizeof login - 1);

    if (rc < 0)
        return err_set(err, E_INVALID, "the user and password of the proxy's URL cannot be read");
    if (!colon) /* a user without a password */
        str_copy(login + strlen(login), 2, ":");
    rc = proxy_login(p, login, err);
    OPENSSL_cleanse(login, sizeof login);
    return rc;
}

int proxy_parse(const char *text, struct proxy *ret, struct err *err)
{
    struct proxy p = {.address = ""};
    const char *scheme = strstr(text, "://"), *s = scheme ? scheme + 3 : text;
    size_t n = strcspn(s, "/?#");
    int rc = 0;

    if (strlen(text) > PROXY_URL_MAX)
        return err_set(err, E_INVALID, "the proxy's URL is longer than %d bytes", PROXY_URL_MAX);
    if (scheme && strncasecmp(text, "https://", 8) == 0)
        return err_set(err, E_INVALID,
                       "a proxy that is itself spoken to by TLS (https://) is not supported: give "
                       "its http:// port; what goes through it is TLS to the hub all the same");
    if (scheme && strncasecmp(text, "http://", 7) != 0)
        return err_set(err, E_INVALID,
                       "only HTTP proxies are supported: expected http://HOST:PORT");
    for (size_t i = n; i > 0 && rc == 0; i--)
        if (s[i - 1] == '@') {
            rc = user_take(&p, s, i - 1, err);
            s += i;
            break;
        }
    if (rc == 0 && address_take(s, p.address) < 0)
        rc = err_set(err, E_INVALID,
                     "the proxy's URL names no host: expected http://[USER:PASSWORD@]HOST[:PORT]");
    if (rc == 0)
        *ret = p;
    proxy_wipe(&p);
    return rc;
}

void proxy_wipe(struct proxy *p)
{
    OPENSSL_cleanse(p->authorization, sizeof p->authorization);
}

/* ---- for whom it is ---- */
static const char *env_either(const char *upper, const char *lower)
{
    const char *v = getenv(upper);

    if (!v || !*v)
        v = getenv(lower);
    return v ? v : "";
}

int proxy_environment(struct proxy *ret, struct err *err)
{
    const char *url = env_either("HTTPS_PROXY", "https_proxy");
    const char *bypass = env_either("NO_PROXY", "no_proxy");

    if (!*url)
        return 0;
    if (strlen(bypass) >= sizeof ret->bypass)
        return err_set(err, E_INVALID, "NO_PROXY is longer than %zu bytes",
                       sizeof ret->bypass - 1);
    int rc = proxy_parse(url, ret, err);
    if (rc < 0)
        return err_prefix(err, "HTTPS_PROXY in the environment");
    str_copy(ret->bypass, sizeof ret->bypass, bypass);
    return 1;
}

int proxy_option(char *text, struct proxy *ret, struct err *err)
{
    if (strcmp(text, "environment") == 0)
        return proxy_environment(ret, err);
    if (!strstr(text, "://"))
        return err_set(err, E_INVALID, "expected http://HOST:PORT, or \"environment\"");
    int rc = proxy_parse(text, ret, err);
    if (strchr(text, '@'))
        memset(text, '*', strlen(text));
    return rc < 0 ? rc : 1;
}

int proxy_login_file(struct loop *l, const char *path, struct proxy *p, struct err *err)
{
    AUTO_BUF text;

    buf_init(&text, PROXY_LOGIN_MAX + 3); /* and what ends its line */
    int rc = file_read(l, path, PROXY_LOGIN_MAX + 2, &text, err);
    if (rc < 0)
        return rc;
    buf_char(&text, '\0');
    rc = proxy_login(p, text.p, err);
    OPENSSL_cleanse(text.p, text.n);
    return rc < 0 ? err_prefix(err, "%.200s", path) : 0;
}

/* Is the address in "NETWORK/BITS"? */
static bool in_network(const char *network, const unsigned char *host, int family)
{
    const char *slash = strchr(network, '/');
    char text[64];
    unsigned char net[16];
    char *end = NULL;
    unsigned long bits;
    unsigned whole, rest;

    if (!slash || (size_t)(slash - network) >= sizeof text)
        return false;
    (void)snprintf(text, sizeof text, "%.*s", (int)(slash - network), network);
    bits = strtoul(slash + 1, &end, 10);
    if (inet_pton(family, text, net) != 1 || *end || end == slash + 1 ||
        bits > (family == AF_INET ? 32 : 128))
        return false;
    whole = (unsigned)bits / 8;
    rest = (unsigned)bits % 8;
    return memcmp(net, host, whole) == 0 &&
           (!rest || ((net[whole] ^ host[whole]) & (0xff00u >> rest) & 0xff) == 0);
}

/* One entry of the list; host without brackets. */
static bool entry_covers(char *entry, const char *host, const char *port)
{
    unsigned char ip[16], other[16];
    int family = inet_pton(AF_INET, host, ip) == 1    ? AF_INET
                 : inet_pton(AF_INET6, host, ip) == 1 ? AF_INET6
                                                      : 0;
    char *colon = strrchr(entry, ':');
    size_t n, k = strlen(host);

    if (strcmp(entry, "*") == 0)
        return true;
    if (family && strchr(entry, '/'))
        return in_network(entry, ip, family);
    if (colon && (strchr(entry, ':') == colon || colon[-1] == ']')) {
        if (strcmp(colon + 1, port) != 0)
            return false;
        *colon = '\0';
    }
    n = strlen(entry);
    if (n > 1 && *entry == '[' && entry[n - 1] == ']') {
        entry[n - 1] = '\0';
        entry++;
    }
    if (family)
        return inet_pton(family, entry, other) == 1 &&
               memcmp(ip, other, family == AF_INET ? 4 : 16) == 0;
    if (strncmp(entry, "*.", 2) == 0)
        entry++;
    if (*entry == '.')
        entry++;
    n = strlen(entry);
    return n > 0 && n <= k && strcasecmp(host + k - n, entry) == 0 &&
           (n == k || host[k - n - 1] == '.');
}

bool proxy_is_for(const struct proxy *p, const char *address)
{
    const char *port = strrchr(address, ':'), *s = p->bypass;
    char host[256], entry[256];
    size_t n = port ? (size_t)(port - address) : 0;

    if (n == 0 || n >= sizeof host)
        return true;
    bool brackets = *address == '[' && address[n - 1] == ']' && n > 2;
    (void)snprintf(host, sizeof host, "%.*s", (int)(brackets ? n - 2 : n), address + brackets);
    while (*s) {
        s += strspn(s, ", \t");
        n = strcspn(s, ", \t");
        if (n > 0 && n < sizeof entry) {
            (void)snprintf(entry, sizeof entry, "%.*s", (int)n, s);
            if (entry_covers(entry, host, port + 1))
                return false;
        }
        s += n;
    }
    return true;
}

/* ---- its answer ---- */
static int no_answer(struct err *err)
{
    return err_set(err, E_CONNECT,
                   "it does not answer as an HTTP proxy does (is its address right?)");
}

/* "HTTP/1.1 200", and what may follow. */
static int status_read(const struct proxy_answer *a, int *ret)
{
    const char *s = a->line;
    size_t n = a->line_n < sizeof a->line ? a->line_n : sizeof a->line;

    if (n < 12 || memcmp(s, "HTTP/1.", 7) != 0 || s[7] < '0' || s[7] > '9' || s[8] != ' ' ||
        (n > 12 && s[12] != ' '))
        return -1;
    *ret = 0;
    for (int i = 9; i < 12; i++) {
        if (s[i] < '0' || s[i] > '9')
            return -1;
        *ret = *ret * 10 + (s[i] - '0');
    }
    return *ret >= 100 && *ret < 600 ? 0 : -1;
}

/* A line has ended. 1: and the answer with it. */
static int line_over(struct proxy_answer *a, struct err *err)
{
    bool empty = a->line_n == 0;

    if (!a->status) {
        if (status_read(a, &a->status) < 0 || a->status == 101)
            return no_answer(err);
    } else if (empty && a->status < 200) {
        a->status = 0; /* another one follows */
    } else if (empty) {
        return 1;
    }
    a->line_n = 0;
    return 0;
}

int proxy_answer_take(struct proxy_answer *a, const char *p, size_t n, size_t *ret_taken,
                      struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        int rc = 0;
        if (++a->n > PROXY_ANSWER_MAX)
            return err_set(err, E_CONNECT, "its answer is longer than %d bytes", PROXY_ANSWER_MAX);
        if (p[i] == '\n') {
            a->cr = false;
            rc = line_over(a, err);
        } else if (a->cr || p[i] == '\0') {
            return no_answer(err);
        } else if (p[i] == '\r') {
            a->cr = true;
        } else {
            if (a->line_n < sizeof a->line)
                a->line[a->line_n] = p[i];
            a->line_n++;
            /* What is no HTTP is told at once, however long its line is. */
            if (!a->status && a->line_n <= 7 && p[i] != "HTTP/1."[a->line_n - 1])
                return no_answer(err);
        }
        if (rc) {
            *ret_taken = i + 1;
            return rc;
        }
    }
    *ret_taken = n;
    return 0;
}

int proxy_answer_judge(int status, const char *address, struct err *err)
{
    if (status >= 200 && status < 300)
        return 0;
    if (status == 407 || status == 401)
        return err_set(err, E_CONNECT,
                       "it wants a user and a password, or others than it was told (%d; Basic is "
                       "the only way that we know)",
                       status);
    if (status == 403)
        return err_set(err, E_CONNECT, "it permits no way to %s (403): its rules have to name it",
                       address);
    if (status == 405 || status == 501)
        return err_set(err, E_CONNECT, "it opens no ways at all (CONNECT: %d)", status);
    if (status >= 500) /* which one differs from proxy to proxy */
        return err_set(err, E_CONNECT, "it does not reach %s at the moment (%d)", address, status);
    return err_set(err, E_CONNECT, "it opens no way to %s (%d)", address, status);
}
