/* s3://BUCKET/PREFIX and the environment, under the names that all of AWS's tools use. What the
 * workload brings comes first. Keys are taken together or not at all: an id of one and a secret of
 * another would only look like a wrong password.
 *
 * This file must never say a key in an error. */
#include "connectors/checkpoint/store/s3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *env_of(const char *const *env, const char *name)
{
    size_t n = strlen(name);

    for (; env && *env; env++)
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=' && (*env)[n + 1])
            return *env + n + 1;
    return NULL;
}

static const char *setting(const struct checkpoint_store *at, const char *name)
{
    const char *v = at->env ? env_of(at->env, name) : getenv(name);

    return v && *v ? v : NULL;
}

static int copy(char *out, size_t max, const char *value, const char *what, struct err *err)
{
    if (strlen(value) >= max)
        return err_set(err, E_INVALID, "%s is longer than %zu bytes", what, max - 1);
    for (const char *p = value; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) /* it would end a header */
            return err_set(err, E_INVALID, "%s has a control character in it", what);
    (void)snprintf(out, max, "%s", value);
    return 0;
}

static int bucket_read(const char *base, struct s3_config *c, struct err *err)
{
    const char *at = base + strlen("s3://");
    size_t n = strcspn(at, "/");

    if (n < 3 || n > 63 || strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789.-") < n ||
        at[0] == '.' || at[0] == '-' || at[n - 1] == '.' || at[n - 1] == '-')
        return err_set(err, E_INVALID,
                       "%.100s: a bucket's name has 3 to 63 of a-z, 0-9, '-' and '.'", base);
    (void)snprintf(c->bucket, sizeof c->bucket, "%.*s", (int)n, at);
    for (at += n; *at == '/'; at++) {
    }
    int rc = copy(c->prefix, sizeof c->prefix, at, "the prefix of the checkpoint store", err);
    for (n = strlen(c->prefix); n && c->prefix[n - 1] == '/'; n--)
        c->prefix[n - 1] = '\0';
    return rc;
}

static int keys_read(const struct checkpoint_store *at, struct s3_config *c, struct err *err)
{
    const char *id = setting(at, "AWS_ACCESS_KEY_ID"), *token = setting(at, "AWS_SESSION_TOKEN");
    const char *secret = setting(at, "AWS_SECRET_ACCESS_KEY");

    if (!id || !secret)
        return err_field(err, E_UNAUTH, CHECKPOINT_UNREACHABLE,
                         "%.150s: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not both set, "
                         "neither in the workload's environment nor in the agent's",
                         at->base);
    int rc = copy(c->key_id, sizeof c->key_id, id, "AWS_ACCESS_KEY_ID", err);
    if (rc == 0)
        rc = copy(c->secret, sizeof c->secret, secret, "AWS_SECRET_ACCESS_KEY", err);
    if (rc == 0 && token)
        rc = copy(c->token, sizeof c->token, token, "AWS_SESSION_TOKEN", err);
    return rc;
}

/* scheme://host[:port][/path]; the bucket is a folder of it. */
static int endpoint_read(const char *url, struct s3_config *c, struct err *err)
{
    bool tls = strncmp(url, "https://", 8) == 0;
    size_t head = tls ? 8 : 7, n;

    if (!tls && strncmp(url, "http://", 7) != 0)
        return err_set(err, E_INVALID, "AWS_ENDPOINT_URL: give http://HOST or https://HOST");
    n = strcspn(url + head, "/");
    if (!n || strcspn(url + head, "@?# ") < strlen(url + head) || strlen(url) > 180)
        return err_set(err, E_INVALID,
                       "AWS_ENDPOINT_URL is no scheme, host and port alone, or longer than 180 "
                       "bytes");
    (void)snprintf(c->origin, sizeof c->origin, "%.*s", (int)(head + n), url);
    (void)snprintf(c->host, sizeof c->host, "%.*s", (int)n, url + head);
    const char *port = tls ? ":443" : ":80"; /* is not sent: the default */
    if (n > strlen(port) && strcmp(c->host + n - strlen(port), port) == 0)
        c->host[n - strlen(port)] = '\0';
    const char *path = url + head + n;
    size_t keep = strlen(path);
    while (keep && path[keep - 1] == '/')
        keep--;
    (void)snprintf(c->root, sizeof c->root, "%.*s/%s/", (int)keep, path, c->bucket);
    return 0;
}

/* A bucket with a dot in it has no certificate of its own. */
static void amazon(struct s3_config *c)
{
    const char *domain = strncmp(c->region, "cn-", 3) == 0 ? "amazonaws.com.cn" : "amazonaws.com";
    bool own_host = !strchr(c->bucket, '.');

    (void)snprintf(c->host, sizeof c->host, "%s%ss3.%s.%s", own_host ? c->bucket : "",
                   own_host ? "." : "", c->region, domain);
    (void)snprintf(c->origin, sizeof c->origin, "https://%.240s", c->host);
    (void)snprintf(c->root, sizeof c->root, "/%s%s", own_host ? "" : c->bucket,
                   own_host ? "" : "/");
}

int s3_config_read(const struct checkpoint_store *at, struct s3_config *ret, struct err *err)
{
    const char *endpoint = setting(at, "AWS_ENDPOINT_URL_S3"), *region = setting(at, "AWS_REGION");
    const char *ca = setting(at, "AWS_CA_BUNDLE");
    int rc = bucket_read(at->base, ret, err);

    if (!endpoint)
        endpoint = setting(at, "AWS_ENDPOINT_URL");
    if (!region)
        region = setting(at, "AWS_DEFAULT_REGION");
    if (rc == 0 && !region && !endpoint)
        rc = err_field(err, E_UNAUTH, CHECKPOINT_UNREACHABLE,
                       "%.150s: AWS_REGION is not set, nor an AWS_ENDPOINT_URL", at->base);
    if (rc == 0)
        rc =
            copy(ret->region, sizeof ret->region, region ? region : "us-east-1", "AWS_REGION", err);
    if (rc == 0 && ca)
        rc = copy(ret->ca_file, sizeof ret->ca_file, ca, "AWS_CA_BUNDLE", err);
    if (rc == 0)
        rc = keys_read(at, ret, err);
    if (rc == 0 && endpoint)
        rc = endpoint_read(endpoint, ret, err);
    else if (rc == 0)
        amazon(ret);
    return rc;
}
