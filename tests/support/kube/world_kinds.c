/* Which kinds the API server of kube_world.h serves, and how it says so. */
#include "tests/support/kube/world_parts.h"

#include <stdio.h>

#define KUBEFLOW "/apis/kubeflow.org/"

void kube_world_torch(enum kube_torch is)
{
    W.torch = is;
    if (is != TORCH_GONE && is != TORCH_ALONE)
        return;
    list_for_each_safe (it, tmp, &W.objects) {
        struct kube_object *o = container_of(it, struct kube_object, link);
        if (!strcmp(o->kind, "pytorchjobs"))
            kube_world_remove(o);
    }
}

/* Of what nobody serves it says so in plain words. */
static void no_path(struct kube_reply *ret)
{
    ret->status = 404;
    ret->text = "404 page not found\n";
}

static void down(struct kube_reply *ret)
{
    ret->status = 503;
    ret->body = kube_world_status(503, "ServiceUnavailable", "service unavailable");
}

static void groups(struct kube_reply *ret)
{
    static const char *const versions[] = {[TORCH_IS] = "{\"version\":\"v1\"}",
                                           [TORCH_GONE] = "",
                                           [TORCH_ALONE] =
                                               "{\"version\":\"v2\"},{\"version\":\"v1\"}",
                                           [TORCH_NEXT] = "{\"version\":\"v2\"}",
                                           [TORCH_DOWN] = "{\"version\":\"v1\"}"};
    char text[300], group[150] = "";

    W.groups_asked++;
    if (*versions[W.torch])
        (void)snprintf(group, sizeof group, ",{\"name\":\"kubeflow.org\",\"versions\":[%s]}",
                       versions[W.torch]);
    (void)snprintf(text, sizeof text,
                   "{\"kind\":\"APIGroupList\",\"groups\":[{\"name\":\"batch\",\"versions\":[{"
                   "\"version\":\"v1\"}]}%s]}",
                   group);
    ret->status = 200;
    ret->body = cJSON_Parse(text);
}

static void resources(struct kube_reply *ret, const char *plural)
{
    char text[150];

    (void)snprintf(text, sizeof text,
                   "{\"kind\":\"APIResourceList\",\"resources\":[{\"name\":\"%s\"}]}", plural);
    ret->status = 200;
    ret->body = cJSON_Parse(text);
}

bool kube_world_kinds(const char *url, struct kube_reply *ret)
{
    const char *version = strstr(url, KUBEFLOW), *end = strstr(url, "/apis");
    bool served = W.torch == TORCH_IS || W.torch == TORCH_NEXT, object;

    if (end && !end[strlen("/apis")]) {
        groups(ret);
        return true;
    }
    if (!version)
        return false;
    version += strlen(KUBEFLOW);
    object = strchr(version, '/') != NULL;
    served = served && !strncmp(version, W.torch == TORCH_NEXT ? "v2" : "v1", 2);
    if (served && object)
        return false;
    if (W.torch == TORCH_DOWN)
        down(ret);
    else if (served)
        resources(ret, "pytorchjobs");
    else if (W.torch == TORCH_ALONE && !object)
        resources(ret, version[1] == '1' ? "tfjobs" : "mpijobs");
    else
        no_path(ret);
    return true;
}
