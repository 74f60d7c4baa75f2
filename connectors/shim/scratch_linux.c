/* What a shim needs for a remote store: the keys that its agent gave it, which its program must not
 * see, and a folder to work in where no agent has named one. */
#include "connectors/shim/shim.h"

#include "api/base/hash.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SETTINGS_MAX 32

const char *const *run_store_env(struct arena *m)
{
    const size_t head = strlen(RUN_STORE_ENV);
    const char **out = arena_array(m, const char *, SETTINGS_MAX + 1);
    char **keep = environ;
    size_t n = 0;

    for (char **e = environ; e && *e; e++) {
        if (strncmp(*e, RUN_STORE_ENV, head) != 0) {
            *keep++ = *e;
            continue;
        }
        if (n < SETTINGS_MAX)
            out[n++] = arena_strdup(m, *e + head);
        OPENSSL_cleanse(*e, strlen(*e)); /* /proc/PID/environ is this memory */
    }
    if (n)
        *keep = NULL;
    return n ? out : NULL;
}

/* Anybody may make folders in /var/tmp: only one that is ours, and that nobody else writes to. */
static int folder_own(const char *path, struct err *err)
{
    struct stat st;

    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return err_set(err, E_IO, "making the folder %.300s: %s", path, strerror(errno));
    if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
        (st.st_mode & 022))
        return err_set(err, E_FORBIDDEN,
                       "%.300s is no folder of this user's alone: name one with "
                       "--checkpoint-scratch",
                       path);
    return 0;
}

int run_scratch_default(const char *base, struct arena *m, const char **ret, struct err *err)
{
    const char *tmp = getenv("TMPDIR");
    const char *own = arena_printf(m, "%.900s/hanse-%u", tmp && *tmp == '/' ? tmp : "/var/tmp",
                                   (unsigned)geteuid());
    int rc = folder_own(own, err);
    if (rc == 0)
        *ret = arena_printf(m, "%s/%016" PRIx64, own, hash_text(base));
    return rc;
}
