/* The table of label dialects, asked. */
#include "connectors/kubernetes/nodes/nodes_internal.h"

#include <stdlib.h>
#include <string.h>

#define LABEL_MAX 63

static bool label_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

const char *kube_label_value(const cJSON *node, const char *label)
{
    const char *v = kube_label(node, label);
    size_t n = 0;

    while (n <= LABEL_MAX && label_letter(v[n]))
        n++;
    return v[n] || n > LABEL_MAX ? "" : v;
}

/* ---- where it stands, how it is paid ---- */
static void first(const char **field, const cJSON *node, const char *label)
{
    if (!**field)
        *field = kube_label_value(node, label);
}

void kube_topology_of(const cJSON *node, struct topology *ret)
{
    *ret = (struct topology){
        .region = "", .zone = "", .block = "", .rack = "", .leaf = "", .nvlinkDomain = ""};
#define TOPOLOGY(field, label, source) first(&ret->field, node, label);
#include "connectors/kubernetes/nodes/dialects.def"
}

static const struct labelled {
    const char *label, *value;
    enum capacity capacity;
} capacities[] = {
#define CAPACITY(label, value, capacity, source) {label, value, capacity},
#include "connectors/kubernetes/nodes/dialects.def"
};

enum capacity kube_capacity_of(const cJSON *node)
{
    for (size_t i = 0; i < sizeof capacities / sizeof *capacities; i++) {
        const char *v = kube_label_value(node, capacities[i].label);

        if (*v && (strcmp(capacities[i].value, "*") == 0 || strcmp(capacities[i].value, v) == 0))
            return capacities[i].capacity;
    }
    return 0;
}

static const struct fabric {
    const char *label, *value, *resource, *interconnect;
} fabrics[] = {
#define FABRIC(label, value, interconnect, source) {label, value, NULL, interconnect},
#define FABRIC_BY(resource, interconnect, source) {NULL, NULL, resource, interconnect},
#include "connectors/kubernetes/nodes/dialects.def"
};

const char *kube_fabric_of(const cJSON *node)
{
    const cJSON *list = kube_at(node, "status.allocatable");

    for (size_t i = 0; i < sizeof fabrics / sizeof *fabrics; i++) {
        const struct fabric *f = &fabrics[i];
        int64_t many = 0;

        if (f->label ? strcmp(kube_label_value(node, f->label), f->value) == 0
                     : kube_quantity(list, f->resource, 1, INT64_MAX, &many, NULL) == 0 && many > 0)
            return f->interconnect;
    }
    return "";
}

/* ---- devices ---- */
static const struct device_row {
    const char *resource, *vendor;
} devices[] = {
#define DEVICE(resource, vendor, source) {resource, vendor},
#include "connectors/kubernetes/nodes/dialects.def"
};

/* "1g.10gb.me" is what stands for "1g.10gb+me" where no plus may be. false: it is no profile. */
static bool profile_take(const char *text, size_t n, char ret[33])
{
    if (n < 4 || n > 32 || text[0] < '1' || text[0] > '9')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!label_letter(text[i]))
            return false;
    memcpy(ret, text, n);
    ret[n] = '\0';
    if (strcmp(ret + n - 3, ".me") == 0)
        ret[n - 3] = '+';
    return true;
}

bool kube_device_of(const char *resource, struct kube_device *ret)
{
    size_t n = strlen(resource);

    *ret = (struct kube_device){.vendor = NULL};
    if (n >= KUBE_RESOURCE_MAX)
        return false;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        const char *pattern = devices[i].resource;
        size_t stem = strcspn(pattern, "*");

        if (pattern[stem] ? strncmp(resource, pattern, stem) != 0 : strcmp(resource, pattern) != 0)
            continue;
        ret->vendor = devices[i].vendor;
        ret->shared = n > 7 && strcmp(resource + n - 7, ".shared") == 0;
        return !pattern[stem] ||
               profile_take(resource + stem, n - stem - (ret->shared ? 7 : 0), ret->mig);
    }
    return false;
}

bool kube_device_taint(const char *key)
{
    struct kube_device d;

    return kube_device_of(key, &d) && !*d.mig && !d.shared;
}

static int64_t number(const char *text, int64_t unit)
{
    char *end;
    long long v = strtoll(text, &end, 10);

    if (end == text || v < 0 || v > (1 << 24))
        return 0;
    if (strcmp(end, "G") == 0)
        unit = 1 << 30;
    else if (strcmp(end, "M") == 0)
        unit = 1 << 20;
    else if (*end)
        return 0;
    return v * unit;
}

static int64_t memory_of(const cJSON *node, const char *vendor)
{
    static const struct {
        const char *vendor, *label;
        int64_t unit;
    } rows[] = {
#define MEMORY(vendor, label, unit, source) {vendor, label, unit},
#include "connectors/kubernetes/nodes/dialects.def"
    };
    int64_t v = 0;

    for (size_t i = 0; !v && i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].vendor, vendor) == 0)
            v = number(kube_label_value(node, rows[i].label), rows[i].unit);
    return v;
}

static const char *model_of(const cJSON *node, const char *resource, const char *vendor,
                            struct arena *a)
{
    static const struct {
        const char *vendor, *label;
    } rows[] = {
#define MODEL(vendor, label, source) {vendor, label},
#include "connectors/kubernetes/nodes/dialects.def"
    };
    const char *v = kube_label_value(node, arena_printf(a, "%s.product", resource));

    for (size_t i = 0; !*v && i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].vendor, vendor) == 0)
            v = kube_label_value(node, rows[i].label);
    return v;
}

/* Without ".shared": labels are named for what is shared. */
static int stem_length(const char *resource)
{
    size_t n = strlen(resource);

    return (int)(n > 7 && strcmp(resource + n - 7, ".shared") == 0 ? n - 7 : n);
}

/* So many are given each GPU, or MIG instance, of that resource; 0: nothing tells. */
static int64_t shares_of(const cJSON *node, const char *resource, bool whole, struct arena *a)
{
    static const char *const labels[] = {
#define SHARES(label, source) label,
#include "connectors/kubernetes/nodes/dialects.def"
    };
    const char *own = arena_printf(a, "%.*s.replicas", stem_length(resource), resource);
    int64_t v = number(kube_label_value(node, own), 1);

    for (size_t i = 0; whole && v < 2 && i < sizeof labels / sizeof *labels; i++)
        v = number(kube_label_value(node, labels[i]), 1);
    return v < 2 ? 0 : v;
}

/* MODEL[-MIG-PROFILE][-SHARED], as GPU Feature Discovery spells it, cut into its parts. */
static int product_cut(char *model, char mig[33], bool *ret_shared, const char *resource,
                       struct err *err)
{
    size_t n = strlen(model);
    char *cut;

    if (n > 7 && strcmp(model + n - 7, "-SHARED") == 0) {
        model[n - 7] = '\0';
        *ret_shared = true;
    }
    cut = strstr(model, "-MIG-");
    if (!cut)
        return 0;
    if (!*mig && !profile_take(cut + 5, strlen(cut + 5), mig))
        return err_set(err, E_INVALID, "its %.80s are called %.63s, which is no MIG profile",
                       resource, model);
    *cut = '\0';
    return 0;
}

int kube_device_row(const cJSON *node, const char *resource, const struct kube_device *d,
                    struct arena *a, struct counted_gpus *ret, struct err *err)
{
    static const char *const profiles[] = {
#define PROFILE(label, source) label,
#include "connectors/kubernetes/nodes/dialects.def"
    };
    char *model = arena_strdup(a, model_of(node, resource, d->vendor, a));
    bool nvidia = strcmp(d->vendor, "nvidia.com") == 0, shared = d->shared;
    char mig[33];
    int rc = 0;

    str_copy(mig, sizeof mig, d->mig);
    for (size_t i = 0; nvidia && !*mig && i < sizeof profiles / sizeof *profiles; i++) {
        const char *v = kube_label_value(node, profiles[i]);
        (void)profile_take(v, strlen(v), mig);
    }
    if (nvidia)
        rc = product_cut(model, mig, &shared, resource, err);
    if (rc < 0)
        return rc;
    ret->class_ = "";
    ret->model = *model ? model : arena_strdup(a, resource);
    ret->mig = arena_strdup(a, mig);
    /* Where all of its nvidia.com/gpu are MIG instances labels tell the memory of one of these. */
    ret->memory = *mig && !*d->mig ? 0 : memory_of(node, d->vendor);
    ret->shares = nvidia ? shares_of(node, resource, !*d->mig, a) : 0;
    if (shared && !ret->shares)
        return err_set(err, E_INVALID,
                       "its %.80s are shares of GPUs, and no label (%.*s.replicas) tells how many "
                       "each GPU is given to",
                       resource, stem_length(resource), resource);
    return 0;
}
