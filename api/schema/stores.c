/* What a document may say of saving: names of checkpoint stores, and requests to save and go on.
 *
 * A store is a folder by its absolute path, s3://BUCKET/PREFIX, or a name. Whose store it is, and
 * so under which law checkpoints lie, is found by comparing names, so one store has one name: no
 * "..", no ".", no empty part.
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

/* ---- spec.checkpoint.saveSignal, spec.saveRequest ---- */
static const char *signal_of(const struct workload_spec *s)
{
    return s && s->checkpoint ? s->checkpoint->saveSignal : "";
}

/* A signal that ends who does not wait for it reaches those alone who do (connectors/shim); one
 * that means two things could not be told apart by anybody. */
static int signal_admit(const struct workload_spec *was, const struct workload_spec *now,
                        struct err *err)
{
    static const char *const known[] = {"SIGUSR1", "SIGUSR2", "SIGHUP", "SIGWINCH"};
    const char *signal = signal_of(now);
    bool ok = !*signal || !strcmp(signal, signal_of(was));

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        ok = ok || !strcmp(signal, known[i]);
    if (!ok)
        return err_field(err, E_INVALID, "spec.checkpoint.saveSignal",
                         "\"%.16s\" is not known; expected SIGUSR1, SIGUSR2, SIGHUP or SIGWINCH",
                         signal);
    if (*signal && !strcmp(signal, now->checkpoint->signal))
        return err_field(err, E_INVALID, "spec.checkpoint.saveSignal",
                         "%s is spec.checkpoint.signal, by which it saves and ends: give each a "
                         "signal of its own",
                         signal);
    return 0;
}

static int request_admit(const struct object *old, const struct object *now, struct err *err)
{
    const struct workload_spec *is = object_as(now, workload)->spec,
                               *was = old ? object_as(old, workload)->spec : NULL;
    const struct workload_status *s = old ? object_as(old, workload)->status : NULL;
    int64_t before = was ? was->saveRequest : 0;

    if (is->saveRequest == before)
        return 0;
    if (is->saveRequest < before)
        return err_field(err, E_INVALID, "spec.saveRequest",
                         "%lld is less than %lld: each request to save has a higher number than "
                         "the one before; leave it as it is",
                         (long long)is->saveRequest, (long long)before);
    if (is->array)
        return err_field(err, E_INVALID, "spec.saveRequest",
                         "an array itself runs nothing: ask its indexes (hanse save %s-0)",
                         now->meta->name);
    if (!*signal_of(is))
        return err_field(err, E_INVALID, "spec.saveRequest",
                         "its program does not say by which signal it is asked to save and go on: "
                         "set spec.checkpoint.saveSignal, and start it anew");
    if (s && s->phase != PHASE_RUNNING)
        return err_field(err, E_INVALID, "spec.saveRequest",
                         "it is %s: only what is Running can be asked to save",
                         phase_text(s->phase));
    return 0;
}

/* ---- spec.logs ---- */
#define LOGS_LEAST (256 << 10) /* of one worker */

/* As S3 wants it (connectors/checkpoint/store/s3_config.c). */
static bool bucket_fits(const char *store)
{
    const char *at = store + strlen(S3);
    size_t n = strcspn(at, "/");

    return n >= 3 && n <= 63 && strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789.-") >= n &&
           at[0] != '.' && at[0] != '-' && at[n - 1] != '.' && at[n - 1] != '-';
}

static int logs_admit(const struct target_logs *is, const struct target_logs *was, struct err *err)
{
    const char *fault = is ? store_fault(is->store) : NULL;

    if (!is)
        return 0;
    if (!fault && is->store[0] != '/' && strncmp(is->store, S3, strlen(S3)) != 0)
        fault = "is no store that anybody could write to: name a folder by its absolute path, or "
                "s3://BUCKET/PREFIX";
    if (!fault && is->store[0] != '/' && !bucket_fits(is->store))
        fault = "names no bucket: that has 3 to 63 of a-z, 0-9, '-' and '.'";
    if (is->maxBytes && is->maxBytes < LOGS_LEAST && !(was && was->maxBytes == is->maxBytes))
        return err_field(err, E_INVALID, "spec.logs.maxBytes",
                         "%lld bytes are too few to keep anything: 256Ki or more",
                         (long long)is->maxBytes);
    if (fault && !(was && !strcmp(was->store, is->store)))
        return err_field(err, E_INVALID, "spec.logs.store", "\"%.200s\" %s", is->store, fault);
    if (is->credentialsFrom && is->store[0] == '/' &&
        !(was && was->credentialsFrom && !strcmp(was->store, is->store)))
        return err_field(err, E_INVALID, "spec.logs.credentialsFrom",
                         "a folder is reached without keys: leave it out");
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
        if (r == 0)
            r = list_admit("spec.localStores", (const char *const *)was->localStores,
                           was->n_localStores, (const char *const *)is->localStores,
                           is->n_localStores, err);
        return r < 0 ? r : logs_admit(is->logs, was->logs, err);
    }
    if (now->kind->id != KIND_WORKLOAD)
        return 0;
    const struct checkpoint_spec *c = object_as(now, workload)->spec->checkpoint,
                                 *was = old ? object_as(old, workload)->spec->checkpoint : NULL;
    const char *fault = c && *c->store ? store_fault(c->store) : NULL;

    if (!fault || (was && !strcmp(was->store, c->store))) {
        int r = signal_admit(old ? object_as(old, workload)->spec : NULL,
                             object_as(now, workload)->spec, err);
        return r < 0 ? r : request_admit(old, now, err);
    }
    return err_field(err, E_INVALID, "spec.checkpoint.store", "\"%.200s\" %s", c->store, fault);
}
