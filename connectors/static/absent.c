/* What hanse-run does without. The C library's own versions of these load libraries of the image at
 * run time, of another C library or version than the one that was linked: here they refuse, so that
 * nothing that we link can get there. lint/static looks that none is missing. */
#include "connectors/checkpoint/store/store.h"

#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <openssl/crypto.h>
#include <pwd.h>

/* An image's openssl.cnf may name modules, and turn off what we need. */
__attribute__((constructor)) static void configuration_pass_over(void)
{
    int begun = OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);

    INV(begun == 1);
}

/* ---- libraries (OpenSSL's engines and modules, NVML) ---- */
void *dlopen(const char *file, int mode)
{
    (void)file;
    (void)mode;
    return NULL;
}

/* The C library's name for it within itself. */
void *__dlopen(const char *file, int mode);
void *__dlopen(const char *file, int mode)
{
    return dlopen(file, mode);
}

int dlclose(void *handle)
{
    (void)handle;
    return -1;
}

void *dlsym(void *restrict handle, const char *restrict name)
{
    (void)handle;
    (void)name;
    return NULL;
}

char *dlerror(void)
{
    static char why[] = "a static program loads no library";

    return why;
}

int dladdr(const void *address, Dl_info *ret)
{
    (void)address;
    (void)ret;
    return 0;
}

/* ---- the image's users, hosts and services; names are resolved by names.c ---- */
int getpwuid_r(uid_t uid, struct passwd *restrict to, char *restrict text, size_t n,
               struct passwd **restrict ret)
{
    (void)uid;
    (void)to;
    (void)text;
    (void)n;
    *ret = NULL;
    return 0;
}

struct hostent *gethostbyname(const char *name)
{
    (void)name;
    return NULL;
}

int getnameinfo(const struct sockaddr *restrict address, socklen_t n, char *restrict host,
                socklen_t host_n, char *restrict service, socklen_t service_n, int flags)
{
    (void)address;
    (void)n;
    (void)host;
    (void)host_n;
    (void)service;
    (void)service_n;
    (void)flags;
    return EAI_FAIL;
}

struct servent *getservbyname(const char *name, const char *protocol)
{
    (void)name;
    (void)protocol;
    return NULL;
}

int getservbyport_r(int port, const char *restrict protocol, struct servent *restrict to,
                    char *restrict text, size_t n, struct servent **restrict ret)
{
    (void)port;
    (void)protocol;
    (void)to;
    (void)text;
    (void)n;
    *ret = NULL;
    return ENOENT;
}

/* ---- stores that are reached through libcurl ---- */
int store_s3_open(const struct checkpoint_store *at, struct store **ret, struct err *err)
{
    (void)ret;
    return err_set(err, E_NOTIMPL,
                   "%.100s: hanse-run is static and has no client for S3; give it a folder as "
                   "store, or start the program with hanse run",
                   at->base);
}
