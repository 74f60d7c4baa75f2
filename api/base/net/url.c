/* Addresses of web servers. Must refuse what two readers could understand differently: who checks
 * an address and who connects to it have to mean the same host. */
#include "api/base/net/url.h"

#include <string.h>
#include <strings.h>

#define URL_MAX 1024
#define HOST_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"
#define PATH_LETTERS HOST_LETTERS "~/%+,:@!$&'()*;="

static bool is_loopback(const char *host, size_t n)
{
    return (n == 9 && strncasecmp(host, "localhost", 9) == 0) ||
           (n == 5 && strncmp(host, "[::1]", 5) == 0) ||
           (n > 4 && strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") >= n);
}

static size_t host_length(const char *s)
{
    size_t n;

    if (*s != '[')
        return strspn(s, HOST_LETTERS);
    n = 1 + strspn(s + 1, "0123456789abcdefABCDEF:.");
    return s[n] == ']' ? n + 1 : 0;
}

int url_parse(const char *s, struct url *ret, struct err *err)
{
    struct url u = {.tls = strncmp(s, "https://", 8) == 0};
    const char *host = s + (u.tls ? 8 : 7), *at;
    size_t n, digits;

    if (strlen(s) > URL_MAX || (!u.tls && strncmp(s, "http://", 7) != 0))
        return err_set(err, E_INVALID, "\"%.100s\" is no https:// or http:// URL", s);
    n = host_length(host);
    at = host + n;
    if (n && *at == ':') {
        digits = strspn(at + 1, "0123456789");
        n = digits >= 1 && digits <= 5 ? n : 0;
        at += 1 + digits;
    }
    if (n == 0 || (*at && *at != '/'))
        return err_set(err, E_INVALID,
                       "\"%.100s\" names no host: expected https://host[:port][/path], without a "
                       "user",
                       s);
    u.loopback = is_loopback(host, n);
    u.origin_n = (int)(at - s);
    n = strspn(at, PATH_LETTERS);
    if (at[n] || strstr(at, "/../") || strstr(at, "//"))
        return err_set(err, E_INVALID,
                       "\"%.100s\": a path without query, fragment, blanks, \"//\" and \"..\" is "
                       "expected",
                       s);
    while (n && at[n - 1] == '/')
        n--;
    u.path_n = (int)n;
    *ret = u;
    return 0;
}
