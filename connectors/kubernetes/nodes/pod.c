/* What a pod asks for, as the scheduler counts it: of its init containers only the largest runs at
 * a time, beside those sidecars that were started before it, and its containers run beside all
 * sidecars (https://github.com/kubernetes/enhancements, KEP-753). */
#include "connectors/kubernetes/nodes/nodes_internal.h"

#include <string.h>

#define CONTAINERS_MAX 256
#define COUNT_MAX 1000000

static int64_t capped(int64_t a, int64_t b, int64_t max)
{
    return a > max - b ? max : a + b;
}

/* NULL: it has no room, which is kept in mind. */
static struct kube_asked *device(struct kube_asks *to, const char *resource)
{
    for (unsigned i = 0; i < to->n; i++)
        if (strcmp(to->devices[i].resource, resource) == 0)
            return &to->devices[i];
    to->more |= to->n == KUBE_DEVICES_MAX;
    if (to->more)
        return NULL;
    str_copy(to->devices[to->n].resource, KUBE_RESOURCE_MAX, resource);
    to->devices[to->n].count = 0;
    return &to->devices[to->n++];
}

static void add(struct kube_asks *to, const struct kube_asks *v)
{
    to->cpu_milli = capped(to->cpu_milli, v->cpu_milli, KUBE_CPU_MAX);
    to->memory_bytes = capped(to->memory_bytes, v->memory_bytes, KUBE_MEMORY_MAX);
    to->more |= v->more;
    for (unsigned i = 0; i < v->n; i++) {
        struct kube_asked *d = device(to, v->devices[i].resource);
        if (d)
            d->count = capped(d->count, v->devices[i].count, COUNT_MAX);
    }
}

static void larger(struct kube_asks *to, const struct kube_asks *v)
{
    if (v->cpu_milli > to->cpu_milli)
        to->cpu_milli = v->cpu_milli;
    if (v->memory_bytes > to->memory_bytes)
        to->memory_bytes = v->memory_bytes;
    to->more |= v->more;
    for (unsigned i = 0; i < v->n; i++) {
        struct kube_asked *d = device(to, v->devices[i].resource);
        if (d && v->devices[i].count > d->count)
            d->count = v->devices[i].count;
    }
}

/* What cannot be read, as what is too large, is more than any node has. */
static int64_t quantity(const cJSON *list, const char *name, int64_t scale, int64_t max)
{
    int64_t v;

    return kube_quantity(list, name, scale, max, &v, NULL) < 0 ? max : v;
}

static void list_read(const cJSON *list, struct kube_asks *ret)
{
    const cJSON *r;

    *ret = (struct kube_asks){.cpu_milli = quantity(list, "cpu", 1000, KUBE_CPU_MAX),
                              .memory_bytes = quantity(list, "memory", 1, KUBE_MEMORY_MAX)};
    for (r = cJSON_IsObject(list) ? list->child : NULL; r; r = r->next) {
        struct kube_device what;
        int64_t count =
            kube_device_of(r->string, &what) ? quantity(list, r->string, 1, COUNT_MAX) : 0;
        struct kube_asked *d = count > 0 ? device(ret, r->string) : NULL;
        if (d)
            d->count = count;
    }
}

/* While a container is resized it has what it was given until it has what it asks for. */
static void status_read(const cJSON *statuses, const char *name, struct kube_asks *to)
{
    const cJSON *s;
    int n = 0;

    cJSON_ArrayForEach(s, statuses)
    {
        struct kube_asks has;

        if (++n > CONTAINERS_MAX)
            return;
        if (strcmp(kube_text(s, "name"), name) != 0)
            continue;
        list_read(kube_at(s, "allocatedResources"), &has);
        larger(to, &has);
        list_read(kube_at(s, "resources.requests"), &has);
        larger(to, &has);
    }
}

static void container_read(const cJSON *c, const cJSON *statuses, struct kube_asks *ret)
{
    list_read(kube_at(c, "resources.requests"), ret);
    if (*kube_text(c, "name"))
        status_read(statuses, kube_text(c, "name"), ret);
}

/* For cpu and memory of all of it together a pod may have numbers of its own. */
static void of_pod(const cJSON *pod, struct kube_asks *ret)
{
    const cJSON *list = kube_at(pod, "spec.resources.requests");
    struct kube_asks all;

    list_read(list, &all);
    if (cJSON_IsObject(list) && cJSON_GetObjectItemCaseSensitive(list, "cpu"))
        ret->cpu_milli = all.cpu_milli;
    if (cJSON_IsObject(list) && cJSON_GetObjectItemCaseSensitive(list, "memory"))
        ret->memory_bytes = all.memory_bytes;
}

bool kube_pod_asks(const cJSON *pod, struct kube_asks *ret)
{
    const cJSON *statuses = kube_at(pod, "status.containerStatuses"), *c;
    const cJSON *init_statuses = kube_at(pod, "status.initContainerStatuses");
    const char *phase = kube_text(pod, "status.phase");
    struct kube_asks sidecars = {0}, init = {0}, one;
    int n = 0;

    *ret = (struct kube_asks){0};
    if (!*kube_text(pod, "spec.nodeName") || strcmp(phase, "Succeeded") == 0 ||
        strcmp(phase, "Failed") == 0)
        return false;
    cJSON_ArrayForEach(c, kube_at(pod, "spec.containers"))
    {
        if (++n > CONTAINERS_MAX)
            break;
        container_read(c, statuses, &one);
        add(ret, &one);
    }
    n = 0;
    cJSON_ArrayForEach(c, kube_at(pod, "spec.initContainers"))
    {
        if (++n > CONTAINERS_MAX)
            break;
        container_read(c, init_statuses, &one);
        if (strcmp(kube_text(c, "restartPolicy"), "Always") == 0) {
            add(&sidecars, &one);
            one = sidecars;
        } else {
            add(&one, &sidecars);
        }
        larger(&init, &one);
    }
    add(ret, &sidecars);
    larger(ret, &init);
    of_pod(pod, ret);
    list_read(kube_at(pod, "spec.overhead"), &one);
    add(ret, &one);
    return true;
}
