/* Arrays: what of one, and of its indexes, is refused when it is written, and what may still
 * change.
 *
 * This file must never refuse to leave as it is what an older version let in. */
#include "api/schema/schema_internal.h"

#include <ctype.h>
#include <stdio.h>

bool workload_array(const struct workload *w)
{
    return w->spec && w->spec->array && (!w->status || w->status->epoch == 0);
}

#define ARRAY_TEMPLATE_BYTES (64u << 10)
#define ARRAY_ENV_MAX 508 /* four more are set for each index */
#define ARRAY_NAME_MAX 63 /* of an index; the array's own is a label of each */

static int admit_template(const struct workload_spec *s, struct err *err)
{
    AUTO_BUF b = {0};

    buf_init(&b, 8u << 20);
    if (tlv_encode(&schema_workload_spec, s, &b, NULL) == 0 && b.n <= ARRAY_TEMPLATE_BYTES)
        return 0;
    return err_field(err, E_INVALID, "spec.run",
                     "has %zu bytes, and each index of an array carries a copy; at most %u: put "
                     "what is long into a file",
                     b.n, ARRAY_TEMPLATE_BYTES);
}

static bool env_has(const struct run_spec *r, const char *name)
{
    for (uint32_t i = 0; r && i < r->n_env; i++)
        if (!strcmp(r->env[i].name, name))
            return true;
    return false;
}

static int array_fault(const struct meta *m, const struct workload_spec *s, struct err *err)
{
    const struct run_spec *r = s->run;
    char last[24];
    int64_t count = s->array->count;

    if (count < 1)
        return err_field(err, E_INVALID, "spec.array.count",
                         "is required: how many indexes, from 1 to 100000");
    (void)snprintf(last, sizeof last, "-%lld", (long long)count - 1);
    if (strlen(m->name) + strlen(last) > ARRAY_NAME_MAX)
        return err_field(err, E_INVALID, "metadata.name",
                         "%.80s%s would be the name of its last index and has %zu characters; at "
                         "most %d: give the array a shorter name",
                         m->name, last, strlen(m->name) + strlen(last), ARRAY_NAME_MAX);
    if (r && r->manifest.n > 0)
        return err_field(err, E_INVALID, "spec.array",
                         "each index is a run of its own, and the names in a foreign manifest are "
                         "those of one: give run.command or run.script, or the manifest without "
                         "array");
    if (r && r->n_env > ARRAY_ENV_MAX)
        return err_field(err, E_INVALID, "spec.run.env",
                         "has %u variables; an array has at most %d", r->n_env, ARRAY_ENV_MAX);
    if (env_has(r, ENV_ARRAY_INDEX) || env_has(r, ENV_ARRAY_COUNT))
        return err_field(err, E_INVALID, "spec.run.env",
                         ENV_ARRAY_INDEX " and " ENV_ARRAY_COUNT
                                         " are set for each index: leave them out");
    return admit_template(s, err);
}

/* ---- an index ---- */
#define LABEL_AT "metadata.labels."

struct whose { /* of a name like that of an index: ARRAY-INDEX */
    char array[256];
    const char *index;
};

static bool whose_name(const char *name, struct whose *ret)
{
    const char *dash = strrchr(name, '-');
    size_t digits = dash ? strspn(dash + 1, "0123456789") : 0;

    if (!digits || dash[1 + digits] || (size_t)(dash - name) >= sizeof ret->array)
        return false;
    (void)snprintf(ret->array, sizeof ret->array, "%.*s", (int)(dash - name), name);
    ret->index = dash + 1;
    return true;
}

static const struct owner_ref *array_ref(const struct meta *m, const char *array)
{
    const struct kind *k = kind_by_id(KIND_WORKLOAD);

    for (uint32_t i = 0; i < m->n_ownerReferences; i++) {
        const struct owner_ref *r = &m->ownerReferences[i];

        if (!strcmp(r->kind, k->kind) && !strcmp(r->apiVersion, kind_api_version(k)) &&
            !strcmp(r->name, array))
            return r;
    }
    return NULL;
}

static bool ref_kept(const struct meta *m, const struct owner_ref *was)
{
    for (uint32_t i = 0; i < m->n_ownerReferences; i++)
        if (body_equal(&schema_owner_ref, &m->ownerReferences[i], was))
            return true;
    return false;
}

static const char *label(const struct meta *m, const char *key)
{
    const char *v = label_get(m->labels, m->n_labels, key);
    return v ? v : "";
}

static int label_kept(const struct meta *was, const struct meta *is, const char *key,
                      const char *right, const char *array, struct err *err)
{
    char at[sizeof LABEL_AT + sizeof LABEL_ARRAY_INDEX];

    if (!strcmp(label(was, key), label(is, key)) || !strcmp(label(is, key), right))
        return 0;
    (void)snprintf(at, sizeof at, LABEL_AT "%s", key);
    return err_field(
        err, E_INVALID, at,
        "must stay \"%.63s\", by which this index of array %.63s is found: leave it as "
        "it is, and edit the array instead",
        right, array);
}

/* Its owner reference or its labels tell an index, so that who took away one in an older version
 * may put it back, and nobody the other. The state machine does not come here. */
static int index_kept(const struct meta *was, const struct meta *is, struct err *err)
{
    struct whose w;

    if (!whose_name(was->name, &w))
        return 0;
    const struct owner_ref *ref = array_ref(was, w.array);
    if (!ref && (strcmp(label(was, LABEL_ARRAY), w.array) != 0 ||
                 strcmp(label(was, LABEL_ARRAY_INDEX), w.index) != 0))
        return 0;
    if (ref && !ref_kept(is, ref))
        return err_field(err, E_INVALID, "metadata.ownerReferences",
                         "must keep the reference to array %.63s as it is, since this index ends "
                         "with it: leave it in, and edit or delete the array instead",
                         w.array);
    int r = label_kept(was, is, LABEL_ARRAY, w.array, w.array, err);
    return r < 0 ? r : label_kept(was, is, LABEL_ARRAY_INDEX, w.index, w.array, err);
}

/* What an older version let in may stay as it is. */
int array_admit(const struct object *old, const struct object *now, struct err *err)
{
    int r =
        old && !object_as(old, workload)->spec->array ? index_kept(old->meta, now->meta, err) : 0;

    if (r < 0)
        return r;
    const struct workload_spec *s = object_as(now, workload)->spec;
    const struct workload_spec *was = old ? object_as(old, workload)->spec : NULL;
    struct err unused;

    if (!s->array || (was && was->array && array_fault(old->meta, was, &unused) < 0))
        return 0;
    return array_fault(now->meta, s, err);
}

/* What of an array may change while its indexes run. */
static bool array_free(const struct field *f)
{
    return !strcmp(f->json, "suspend") || !strcmp(f->json, "ttlSecondsAfterFinished") ||
           !strcmp(f->json, "array");
}

int array_validate_update(const struct object *old, const struct object *now, struct err *err)
{
    const struct workload *was = object_as(old, workload), *is = object_as(now, workload);
    char at[64];

    if (!was->spec->array != !is->spec->array)
        return err_field(err, E_INVALID, "spec.array",
                         "cannot be added or taken away: delete the workload and make it anew");
    if (!workload_array(was) || (!was->status->begun && !was->status->active))
        return 0;
    if (was->spec->array->count != is->spec->array->count)
        return err_field(err, E_INVALID, "spec.array.count",
                         "must not change once indexes were begun: make another array");
    schema_for_each (f, &schema_workload_spec) {
        if (array_free(f) || field_equal(f, &schema_workload_spec, was->spec, is->spec))
            continue;
        (void)snprintf(at, sizeof at, "spec.%s", f->json);
        return err_field(err, E_INVALID, at,
                         "must not change once indexes of an array were begun, since all run "
                         "the same; suspend, array.parallelism and ttlSecondsAfterFinished "
                         "may: make another array");
    }
    return 0;
}
