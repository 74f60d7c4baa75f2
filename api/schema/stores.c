/* Names of checkpoint stores: a folder by its absolute path, s3://BUCKET/PREFIX, or a name. Whose
 * store it is, and so under which law checkpoints lie, is found by comparing names, so one store
 * has one name: no "..", no ".", no empty part.
 *
 * This file must never refuse to leave as it is what an older version let in. */
#include "api/schema/schema_internal.h"

#include <stdio.h>

#define S3 "s3://"

static bool parts_plain(const char *p)
{
    while (*p) {
        size_t n = strcspn(p, "/");

        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        p += n + (p[n] == '/');
    }
    return true;
}

static const char *store_fault(const char *store)
{
    const char *rest = store[0] == '/'                   ? store + 1
                       : !strncmp(store, S3, strlen(S3)) ? store + strlen(S3)
                                                         : NULL;

    for (const char *p = store; *p; p++) {
        if ((unsigned char)*p < ' ' || *p == 127)
            return "has a control character: leave it out";
    }
    if (!*store)
        return "is empty: name a store, or leave it out";
    if (!rest)
        return strchr(store, '/')
                   ? "is neither a folder by its absolute path, nor s3://BUCKET/PREFIX, "
                     "nor a name, which has no \"/\""
                   : NULL;
    if (store[0] != '/' && !*rest)
        return "names no bucket: write s3://BUCKET or s3://BUCKET/PREFIX";
    if (!parts_plain(rest))
        return "has a part that is empty, \".\" or \"..\": write the path without it";
    return NULL;
}

static bool listed(const char *store, const char *const *v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (!strcmp(v[i], store))
            return true;
    }
    return false;
}

static int list_admit(const char *field, const char *const *was, uint32_t n_was,
                      const char *const *now, uint32_t n_now, struct err *err)
{
    char at[64];

    for (uint32_t i = 0; i < n_now; i++) {
        const char *fault = store_fault(now[i]);

        if (!fault || listed(now[i], was, n_was))
            continue;
        (void)snprintf(at, sizeof at, "%s[%u]", field, i);
        return err_field(err, E_INVALID, at, "\"%.200s\" %s", now[i], fault);
    }
    return 0;
}

int stores_admit(const struct object *old, const struct object *now, struct err *err)
{
    static const struct target_spec none;

    if (now->kind->id == KIND_TARGET) {
        const struct target_spec *is = object_as(now, target)->spec,
                                 *was = old ? object_as(old, target)->spec : &none;
        int r = list_admit("spec.stores", (const char *const *)was->stores, was->n_stores,
                           (const char *const *)is->stores, is->n_stores, err);
        return r < 0 ? r
                     : list_admit("spec.localStores", (const char *const *)was->localStores,
                                  was->n_localStores, (const char *const *)is->localStores,
                                  is->n_localStores, err);
    }
    if (now->kind->id != KIND_WORKLOAD)
        return 0;
    const struct checkpoint_spec *c = object_as(now, workload)->spec->checkpoint,
                                 *was = old ? object_as(old, workload)->spec->checkpoint : NULL;
    const char *fault = c && *c->store ? store_fault(c->store) : NULL;

    if (!fault || (was && !strcmp(was->store, c->store)))
        return 0;
    return err_field(err, E_INVALID, "spec.checkpoint.store", "\"%.200s\" %s", c->store, fault);
}
