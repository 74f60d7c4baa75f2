/* What a ResourceQuota says: which of Kubernetes' keys are acted upon here, and as what. Whoever
 * holds somebody to a quota asks here, so that what was let in is what holds.
 *
 * This file must never take a key that nobody acts upon: its author would rely on it. */
#include "api/schema/quota.h"

#include "api/schema/schema_internal.h"

#include <stdio.h>

#define COUNT "count/"
#define WHOLE_MAX 1000000000ll
#define RATE_MIN_MILLI 1ll
#define RATE_MAX_MILLI 1000000000ll /* a million a second */
#define BURST_MAX 1000000ll
#define BURST_SECONDS 10 /* worth of the rate, where none is given */

/* ---- keys ---- */
/* RESOURCE or RESOURCE.GROUP, as discovery tells them. */
static const struct kind *resource_kind(const char *s)
{
    for (int i = 1; i < KIND_LIMIT; i++) {
        const struct kind *k = kind_by_id((enum kind_id)i);
        size_t n = k ? strlen(k->plural) : 0;

        if (k && !strncmp(s, k->plural, n) &&
            (!s[n] || (s[n] == '.' && *k->group && !strcmp(s + n + 1, k->group))))
            return k;
    }
    return NULL;
}

/* Hanse makes these by itself, and never holds up what runs for want of one. */
static bool only_ours(const struct kind *k)
{
    return (k->flags & KINDF_RO) && !(k->flags & KINDF_REVOKED);
}

const struct kind *quota_counts(const char *key)
{
    const struct kind *k = NULL;

    if (!strncmp(key, COUNT, strlen(COUNT)))
        k = resource_kind(key + strlen(COUNT));
    else if (!strcmp(key, "secrets") || !strcmp(key, "resourcequotas"))
        k = resource_kind(key);
    return k && k->namespaced && !only_ours(k) ? k : NULL;
}

static bool of_machines(const char *key)
{
    static const char *const names[] = {"pods", "cpu", "memory", "storage", "ephemeral-storage"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(key, names[i]))
            return true;
    return !strncmp(key, "requests.", 9) || !strncmp(key, "limits.", 7) ||
           !strncmp(key, "hugepages-", 10);
}

static int key_refused(const char *key, const char *field, struct err *err)
{
    const struct kind *k =
        !strncmp(key, COUNT, strlen(COUNT)) ? resource_kind(key + strlen(COUNT)) : NULL;

    if (k && !k->namespaced)
        return err_field(err, E_INVALID, field,
                         "%s are in no namespace, and a quota counts what is in its own: leave it "
                         "out",
                         k->plural);
    if (k)
        return err_field(err, E_INVALID, field,
                         "Hanse makes %s by itself and holds up no work for them: limit what they "
                         "are made for with count/workloads.hanse.dev",
                         k->plural);
    if (of_machines(key))
        return err_field(err, E_INVALID, field,
                         "machines are not shared out by namespaces: limit GPUs by a Queue "
                         "(spec.gpus[].burst, spec.namespaces), and how many Workloads there are "
                         "by count/workloads.hanse.dev");
    return err_field(err, E_INVALID, field,
                     "nothing is counted by it here: a quota takes count/RESOURCE.GROUP for what "
                     "kubectl api-resources lists in namespaces (count/workloads.hanse.dev, "
                     "count/secrets), " QUOTA_RATE " and " QUOTA_BURST);
}

/* ---- values ---- */
bool quota_whole(const char *value, int64_t *ret)
{
    int64_t milli, whole;

    if (quantity_parse(value, 1000, &milli, NULL) < 0 || quantity_parse(value, 1, &whole, NULL) < 0)
        return false;
    *ret = whole;
    return milli % 1000 == 0 && whole <= WHOLE_MAX;
}

static bool rate_read(const char *value, int64_t *ret_milli)
{
    return quantity_parse(value, 1000, ret_milli, NULL) == 0 && *ret_milli >= RATE_MIN_MILLI &&
           *ret_milli <= RATE_MAX_MILLI;
}

static bool burst_read(const char *value, int64_t *ret)
{
    return quota_whole(value, ret) && *ret >= 1 && *ret <= BURST_MAX;
}

bool quota_rate_of(const struct resource_quota_spec *s, struct quota_rate *ret)
{
    const char *rate = s ? label_get(s->hard, s->n_hard, QUOTA_RATE) : NULL;
    const char *burst = s ? label_get(s->hard, s->n_hard, QUOTA_BURST) : NULL;

    if (!rate || !rate_read(rate, &ret->milli))
        return false;
    if (burst && burst_read(burst, &ret->burst))
        return true;
    ret->burst = (ret->milli * BURST_SECONDS + 999) / 1000;
    if (ret->burst > BURST_MAX)
        ret->burst = BURST_MAX;
    return true;
}

static int value_admit(const struct kv *kv, const char *field, struct err *err)
{
    int64_t unused;

    if (!strcmp(kv->key, QUOTA_RATE))
        return rate_read(kv->value, &unused)
                   ? 0
                   : err_field(err, E_INVALID, field,
                               "\"%.40s\" is no rate: from 1m (one write in 1000 seconds) to 1M; "
                               "to let nobody write take the right away (RoleBinding)",
                               kv->value);
    if (!strcmp(kv->key, QUOTA_BURST))
        return burst_read(kv->value, &unused)
                   ? 0
                   : err_field(err, E_INVALID, field,
                               "\"%.40s\" is no number of writes: a whole one from 1 to 1M",
                               kv->value);
    return quota_whole(kv->value, &unused)
               ? 0
               : err_field(err, E_INVALID, field,
                           "\"%.40s\" is no number of objects: a whole one from 0 to 1G",
                           kv->value);
}

int quota_admit(const struct object *o, struct err *err)
{
    const struct resource_quota_spec *s = object_as(o, resource_quota)->spec;
    bool rate = label_get(s->hard, s->n_hard, QUOTA_RATE) != NULL;

    for (uint32_t i = 0; i < s->n_hard; i++) {
        const struct kv *kv = &s->hard[i];
        char field[ERR_FIELD_MAX];

        (void)snprintf(field, sizeof field, "spec.hard[%.100s]", kv->key);
        if (!strcmp(kv->key, QUOTA_BURST) && !rate)
            return err_field(err, E_INVALID, field,
                             "is the burst of " QUOTA_RATE ": give that, too");
        if (strcmp(kv->key, QUOTA_RATE) != 0 && strcmp(kv->key, QUOTA_BURST) != 0 &&
            !quota_counts(kv->key))
            return key_refused(kv->key, field, err);
        int r = value_admit(kv, field, err);
        if (r < 0)
            return r;
    }
    return 0;
}
