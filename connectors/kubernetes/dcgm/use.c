/* What DCGM's exporter tells of how busy GPUs are, by the pods that hold them. The exporter asks
 * the kubelet which pod that is, and prints it beside each sample: labels pod and namespace, or
 * pod_name and pod_namespace with --use-old-namespace; of shares also vgpu
 * (internal/pkg/transformation/kubernetes.go and rendermetrics/render_metrics.go of
 * https://github.com/NVIDIA/dcgm-exporter). It tells no processes: what a GPU does for several pods
 * is told of one of them, or of each (its issue 307), and so is nobody's here.
 *
 * DCGM_FI_DEV_GPU_UTIL is 0 of instances of MIG, whatever they do; what they do is in
 * DCGM_FI_PROF_GR_ENGINE_ACTIVE (its issue 216), which a cluster may or may not have it print. That
 * one is a mean over the exporter's interval, the other a look at the newest moment: where both are
 * told the mean counts, and a device rests where both say so. */
#include "connectors/kubernetes/dcgm/dcgm_internal.h"

#include "api/base/hash.h"

#include <string.h>

#define READ_MAX 256 /* devices of one node, and pods of a device that has several */
#define MIB_MAX ((long long)16 << 20)

struct reading {
    uint64_t gpu, id; /* of the whole GPU; of it, or of the instance */
    char ns[64], pod[254];
    bool shared;
    int util, engine; /* in percent; in 1/1000; -1: not told */
    long long mib;    /* likewise */
};
struct readings {
    size_t n;
    struct reading v[READ_MAX];
};

enum use_of { USE_UTIL, USE_ENGINE, USE_MEMORY };
static const struct {
    const char *name;
    enum use_of what;
} metrics[] = {
#define USE(name, what, source) {name, USE_##what},
#include "connectors/kubernetes/nodes/dialects.def"
};

static bool reading_head(const struct kube_sample *s, struct reading *ret)
{
    char uuid[96], instance[16], share[64];

    *ret = (struct reading){.util = -1, .engine = -1, .mib = -1};
    /* The exporter may print labels of the pod behind its own, and whoever makes a pod writes
     * these: where names of both of its ways are there, either may be his. */
    bool one = kube_sample_has(s, "pod") || kube_sample_has(s, "namespace");
    bool other = kube_sample_has(s, "pod_name") || kube_sample_has(s, "pod_namespace");
    if (one && !other) {
        kube_sample_label(s, "pod", ret->pod, sizeof ret->pod);
        kube_sample_label(s, "namespace", ret->ns, sizeof ret->ns);
    } else if (other && !one) {
        kube_sample_label(s, "pod_name", ret->pod, sizeof ret->pod);
        kube_sample_label(s, "pod_namespace", ret->ns, sizeof ret->ns);
    }
    kube_sample_label(s, "UUID", uuid, sizeof uuid);
    if (!*uuid)
        kube_sample_label(s, "gpu", uuid, sizeof uuid);
    kube_sample_label(s, "GPU_I_ID", instance, sizeof instance);
    kube_sample_label(s, "vgpu", share, sizeof share);
    ret->shared = *share != '\0';
    ret->gpu = hash_more(1, uuid, strlen(uuid));
    ret->id = *instance ? hash_more(ret->gpu, instance, strlen(instance)) : ret->gpu;
    return *uuid && *ret->pod && *ret->ns;
}

/* The larger one counts where one device is told of twice. */
static void value_take(struct reading *r, enum use_of what, const struct kube_sample *s)
{
    long long milli = s->value < 1000000 ? s->value * 1000 + s->milli : -1;
    bool instance = r->id != r->gpu;

    if (s->milli < 0)
        return;
    if (what == USE_UTIL && !instance && milli >= 0 && milli <= 100000)
        r->util = (int)((milli + 999) / 1000) > r->util ? (int)((milli + 999) / 1000) : r->util;
    if (what == USE_ENGINE && milli >= 0 && milli <= 1000)
        r->engine = (int)milli > r->engine ? (int)milli : r->engine;
    if (what == USE_MEMORY && s->value <= MIB_MAX)
        r->mib = s->value > r->mib ? s->value : r->mib;
}

static void sample_take(struct readings *all, enum use_of what, const struct kube_sample *s)
{
    struct reading head, *r = NULL;

    if (!reading_head(s, &head))
        return;
    for (size_t i = 0; i < all->n && !r; i++)
        if (all->v[i].id == head.id && strcmp(all->v[i].pod, head.pod) == 0 &&
            strcmp(all->v[i].ns, head.ns) == 0)
            r = &all->v[i];
    if (!r) {
        if (all->n == READ_MAX)
            return;
        r = &all->v[all->n++];
        *r = head;
    }
    r->shared |= head.shared;
    value_take(r, what, s);
}

/* It is told of alone, and how busy it is; of a GPU that is cut, its instances are. */
static bool counts(const struct readings *all, const struct reading *r)
{
    if (r->shared || (r->util < 0 && r->engine < 0))
        return false;
    for (size_t i = 0; i < all->n; i++) {
        const struct reading *o = &all->v[i];
        if (o != r && (o->id == r->id || (o->gpu == r->gpu && r->id == r->gpu)))
            return false;
    }
    return true;
}

static void pod_tell(struct readings *all, size_t first,
                     void (*each)(void *arg, const struct kube_pod_use *u), void *arg)
{
    struct kube_device_use devices[READ_MAX];
    struct kube_pod_use u = {.ns = all->v[first].ns, .pod = all->v[first].pod, .devices = devices};

    for (size_t i = first; i < all->n; i++) {
        struct reading *r = &all->v[i];
        if (strcmp(r->pod, u.pod) != 0 || strcmp(r->ns, u.ns) != 0 || !counts(all, r))
            continue;
        devices[u.n++] = (struct kube_device_use){
            .id = r->id,
            .percent = (unsigned)(r->engine >= 0 ? (r->engine + 5) / 10 : r->util),
            .rests = r->engine <= 0 && r->util <= 0,
            .bytes = r->mib >= 0 ? (int64_t)r->mib << 20 : -1};
    }
    if (u.n)
        each(arg, &u);
}

void kube_dcgm_use(const char *text, size_t n,
                   void (*each)(void *arg, const struct kube_pod_use *u), void *arg)
{
    const char *end = text + n;
    struct readings *all = mem_new(struct readings);

    while (text < end) {
        struct kube_sample s;

        if (!kube_sample_next(&text, end, &s))
            continue;
        for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
            if (kube_sample_named(&s, metrics[i].name))
                sample_take(all, metrics[i].what, &s);
    }
    for (size_t i = 0; i < all->n; i++) {
        bool told = false;
        for (size_t k = 0; k < i; k++)
            told |= strcmp(all->v[k].pod, all->v[i].pod) == 0 &&
                    strcmp(all->v[k].ns, all->v[i].ns) == 0;
        if (!told)
            pod_tell(all, i, each, arg);
    }
    mem_free(all);
}
