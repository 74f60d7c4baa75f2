/* What is told of a node: what was read of it, what pods of others hold, and what is wrong with its
 * GPUs by DCGM. It is told where that is another than was told last. */
#include "connectors/kubernetes/nodes/records.h"

#include "api/base/hash.h"

#include <string.h>

#define CPU_STEP 100             /* milli; what others hold is told in steps, rounded up */
#define MEMORY_STEP (64ll << 20) /* bytes */
#define OTHERS_DEVICES_MAX 256   /* as the schema has it */
#define OTHERS_CLASSES_MAX 16
#define FAULTS_MAX 64

static int64_t steps(int64_t v, int64_t step, int64_t max)
{
    return v > max - step ? max : (v + step - 1) / step * step;
}

/* *ret_more: there are kinds of which there is no room. */
static struct node_others *others_of(const struct kube_rec *r, const struct node_spec *s,
                                     struct arena *a, bool *ret_more)
{
    struct node_others *o = arena_new(a, struct node_others);

    o->cpu = steps(r->cpu, CPU_STEP, KUBE_CPU_MAX);
    o->memory = r->memory_kib < KUBE_MEMORY_MAX / 1024
                    ? steps(r->memory_kib * 1024, MEMORY_STEP, KUBE_MEMORY_MAX)
                    : KUBE_MEMORY_MAX;
    o->classes = arena_array(a, struct others_class, OTHERS_CLASSES_MAX);
    for (uint32_t i = 0; i < s->n_counted && i < r->n_rows; i++) {
        for (unsigned k = 0; k < r->n_held; k++) {
            int64_t count = r->held[k].count;
            if (r->held[k].resource != r->rows[i])
                continue;
            if (o->n_classes == OTHERS_CLASSES_MAX) {
                *ret_more = true;
                continue;
            }
            o->classes[o->n_classes++] = (struct others_class){
                .class_ = s->counted[i].model,
                .count = count < OTHERS_DEVICES_MAX ? count : OTHERS_DEVICES_MAX,
                .mig = s->counted[i].mig,
                .shares = s->counted[i].shares > 1};
        }
    }
    return o->cpu || o->memory || o->n_classes ? o : NULL;
}

/* GPUs that the device plugin gives to nobody, of those whose number can be told. */
static int64_t withheld(const struct node_spec *s)
{
    int64_t sum = 0;

    for (uint32_t i = 0; i < s->n_counted; i++) {
        const struct counted_gpus *c = &s->counted[i];
        sum += *c->mig ? 0 : c->shares > 1 ? c->unhealthy / c->shares : c->unhealthy;
    }
    return sum;
}

/* What DCGM says is wrong with it, where that may come upon a pod. */
static const struct kube_exporter *sick_of(const struct kube_rec *r, const struct node_spec *s)
{
    return r->exporter && r->exporter->sick > withheld(s) ? r->exporter : NULL;
}

static void fault_add(struct node_status *status, const struct node_fault *f, struct arena *a)
{
    struct node_fault *v = arena_array(a, struct node_fault, status->n_faults + 1);

    for (uint32_t i = 0; i < status->n_faults; i++)
        v[i] = status->faults[i];
    v[status->n_faults] = *f;
    status->faults = v;
    status->n_faults += status->n_faults < FAULTS_MAX;
}

static uint64_t told_hash(const struct kube_rec *r, const struct node_others *o,
                          const struct kube_exporter *sick, const struct kube_check_told *check,
                          const char *unknown)
{
    uint64_t h = hash_more(HASH_START, r->bytes, r->n_bytes);

    if (check->going)
        h = hash_more(h, "going", 6);
    if (*check->failed)
        h = hash_more(h, check->failed, strlen(check->failed) + 1);
    if (sick) {
        h = hash_more(h, sick->reason, strlen(sick->reason) + 1);
        h = hash_more(h, sick->message, strlen(sick->message) + 1);
    }

    h = hash_more(h, unknown, strlen(unknown) + 1);
    if (!o)
        return h;
    h = hash_more(h, &o->cpu, sizeof o->cpu);
    h = hash_more(h, &o->memory, sizeof o->memory);
    for (uint32_t i = 0; i < o->n_classes; i++) {
        h = hash_more(h, o->classes[i].class_, strlen(o->classes[i].class_) + 1);
        h = hash_more(h, o->classes[i].mig, strlen(o->classes[i].mig) + 1);
        h = hash_more(h, &o->classes[i].count, sizeof o->classes[i].count);
    }
    return h;
}

/* Why nobody knows what others hold of it; "": that is known. */
static const char *unknown_of(const struct kube_rec *r, bool more)
{
    return r->uncounted ? "the cluster has more pods than are counted: what others hold of it is "
                          "not known"
           : more       ? "pods of others hold more kinds of devices than are counted: what others "
                          "hold of it is not known"
                        : "";
}

static void faults_tell(const struct kube_exporter *sick, const struct kube_check_told *check,
                        struct arena *a, struct node_status *status)
{
    if (sick)
        fault_add(status,
                  &(struct node_fault){.health = HEALTH_NOT_READY,
                                       .reason = sick->reason,
                                       .source = SOURCE_XID,
                                       .message = sick->message},
                  a);
    if (*check->failed)
        fault_add(status,
                  &(struct node_fault){.health = HEALTH_NOT_READY,
                                       .reason = "DiagnosticsFailed",
                                       .source = SOURCE_DIAGNOSTICS,
                                       .message = arena_strdup(a, check->failed)},
                  a);
}

/* Nothing is given there meanwhile, as if it were cordoned. */
static void going_tell(const struct kube_check_told *check, struct node *node)
{
    if (!check->going || node->spec->unschedulable)
        return;
    node->spec->unschedulable = true;
    if (node->status->health == HEALTH_READY)
        node->status->reason = "its GPUs are being diagnosed";
}

size_t kube_rec_idle(const struct kube_records *t, const struct kube_rec *r,
                     struct kube_nodes_devices ret[KUBE_NODES_DEVICES_MAX])
{
    AUTO_ARENA a = arena_create(0);
    const struct node *v;
    size_t n = 0;
    void *body;

    if (!r->n_rows || r->partial || r->uncounted)
        return 0;
    for (unsigned i = 0; i < r->n_rows; i++)
        for (unsigned k = 0; k < r->n_held; k++)
            if (r->rows[i] == UINT16_MAX || r->held[k].resource == r->rows[i])
                return 0;
    INV(tlv_decode(&schema_node, slice_make(r->bytes, r->n_bytes), a, &body, NULL) == 0);
    v = body;
    if (v->spec->unschedulable || v->status->health != HEALTH_READY)
        return 0;
    for (uint32_t i = 0; i < v->spec->n_counted && i < r->n_rows; i++) {
        const struct counted_gpus *c = &v->spec->counted[i];
        if (r->rows[i] != UINT16_MAX && c->count > c->unhealthy && n < KUBE_NODES_DEVICES_MAX)
            ret[n++] =
                (struct kube_nodes_devices){t->resources[r->rows[i]], c->count - c->unhealthy};
    }
    return n;
}

bool kube_rec_tell(struct kube_rec *r, const struct kube_check_told *check, struct arena *a,
                   struct node *ret)
{
    bool more = r->partial;
    const struct kube_exporter *sick;
    struct node_others *o;
    const char *unknown;
    struct node *node;
    uint64_t hash;
    void *body;

    INV(tlv_decode(&schema_node, slice_make(r->bytes, r->n_bytes), a, &body, NULL) == 0);
    node = body;
    o = others_of(r, node->spec, a, &more);
    unknown = unknown_of(r, more);
    sick = sick_of(r, node->spec);
    hash = told_hash(r, o, sick, check, unknown);
    hash += !hash;
    if (hash == r->told_hash)
        return false;
    node->status->others = o;
    faults_tell(sick, check, a, node->status);
    going_tell(check, node);
    if (*unknown) {
        node->status->health = HEALTH_NOT_READY;
        node->status->reason = unknown;
    }
    r->told = true;
    r->told_hash = hash;
    *ret = *node;
    return true;
}

/* ---- what others ask about ---- */
const struct kube_rec *kube_rec_read(const struct kube_records *t, const char *name,
                                     struct arena *a, const struct node **ret)
{
    const struct kube_rec *r = kube_rec_find(t, name);
    void *body;

    if (!r || !r->known || !r->n_bytes)
        return NULL;
    INV(tlv_decode(&schema_node, slice_make(r->bytes, r->n_bytes), a, &body, NULL) == 0);
    *ret = body;
    return r;
}

void kube_rec_holds(const struct kube_records *t, const char *target, const cJSON *pod,
                    struct arena *a, struct foreign_item *ret)
{
    const char *name = kube_text(pod, "spec.nodeName");
    const struct node *v = NULL;
    struct kube_asks asks;

    ret->node = "";
    if (!kube_pod_asks(pod, &asks))
        return;
    const struct kube_rec *r = kube_rec_read(t, name, a, &v);
    ret->node = arena_printf(a, "%s.%s", target, name);
    ret->cpu_milli = asks.cpu_milli;
    ret->memory_bytes = asks.memory_bytes;
    ret->more = asks.more;
    for (unsigned i = 0; i < asks.n && i < FOREIGN_DEVICES_MAX; i++) {
        struct foreign_device *d = &ret->devices[ret->n_devices++];
        *d = (struct foreign_device){.resource = arena_strdup(a, asks.devices[i].resource),
                                     .model = "",
                                     .mig = "",
                                     .count = asks.devices[i].count};
        for (uint32_t k = 0; r && k < v->spec->n_counted && k < r->n_rows; k++) {
            const struct counted_gpus *c = &v->spec->counted[k];
            if (r->rows[k] == UINT16_MAX || strcmp(t->resources[r->rows[k]], d->resource) != 0)
                continue;
            d->model = c->model;
            d->mig = c->mig;
            d->shares = c->shares;
        }
    }
}
