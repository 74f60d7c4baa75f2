/* The kubelets of kube_world.h with their programs, and what is made of nodes that are silent. */
#include "tests/support/kube/world_parts.h"

#include <stdio.h>
#include <stdlib.h>

#define SILENT_MS 2000 /* then its node is not ready */
#define EVICT_MS 5000  /* then its pods are deleted */

/* ---- programs ---- */
static struct kube_proc *proc_of(const char *pod)
{
    list_for_each (it, &W.procs) {
        struct kube_proc *p = container_of(it, struct kube_proc, link);
        if (!strcmp(p->pod, pod))
            return p;
    }
    return NULL;
}

static bool says(const struct kube_object *pod, const char *word)
{
    const cJSON *c = cJSON_GetArrayItem(kube_at(pod->doc, "spec.containers"), 0), *a;

    cJSON_ArrayForEach(a, kube_at(c, "command"))
    {
        if (!strcmp(a->valuestring, word))
            return true;
    }
    return false;
}

static void proc_start(struct kube_object *pod, const char *node)
{
    struct kube_proc *p = mem_new(struct kube_proc);

    str_copy(p->pod, sizeof p->pod, uid_of(pod));
    str_copy(p->node, sizeof p->node, node);
    p->rank = rank_of(pod);
    if (p->rank < 0 && *kube_annotation(pod->doc, "hanse.dev/part"))
        kube_world_break("%s started, and is no rank", kube_text(pod->doc, "metadata.name"));
    if (run_key_parse(kube_label(pod->doc, "hanse.dev/key"), &p->key, NULL) < 0)
        p->key = (struct run_key){.uid = "none"};
    list_for_each (it, &W.procs) {
        const struct kube_proc *o = container_of(it, struct kube_proc, link);
        bool same = !strcmp(o->key.uid, p->key.uid) && o->rank == p->rank && p->key.epoch;
        if (same && o->alive)
            kube_world_break("two of %s live at once", p->key.uid);
        if (same && o->key.epoch == p->key.epoch && o->key.try_ == p->key.try_)
            kube_world_break("%s started twice under one key", p->key.uid);
    }
    p->alive = true;
    p->from_ms = now_ms();
    p->ends = says(pod, "ends") || says(pod, "passes");
    p->over_ms = p->ends ? now_ms() + 200 : 0;
    p->exit_code = says(pod, "passes") ? 0 : 3;
    list_push(&W.procs, &p->link);
}

void kube_world_procs(void)
{
    list_for_each (it, &W.procs) {
        struct kube_proc *p = container_of(it, struct kube_proc, link);
        if (p->alive && p->over_ms && now_ms() >= p->over_ms)
            p->alive = false;
        if (p->alive && p->kill_ms && now_ms() >= p->kill_ms) {
            p->alive = false;
            p->exit_code = 137;
        }
    }
}

/* ---- kubelets ---- */
static cJSON *container_told(const char *name, const char *state, const struct kube_proc *p)
{
    cJSON *c = cJSON_CreateObject(), *s, *t;
    char at[32];

    cJSON_AddStringToObject(c, "name", name);
    s = cJSON_AddObjectToObject(c, "state");
    t = cJSON_AddObjectToObject(s, state);
    time_print((loop_wall_ms(W.loop) + W.kubelets_ahead_ms) / 1000 * 1000, at);
    if (!strcmp(state, "waiting"))
        cJSON_AddStringToObject(t, "reason", "PodInitializing");
    else
        cJSON_AddStringToObject(c, "containerID", "containerd://1");
    if (p)
        cJSON_AddStringToObject(t, "startedAt", at);
    if (!strcmp(state, "terminated")) {
        cJSON_AddStringToObject(t, "finishedAt", at);
        cJSON_AddNumberToObject(t, "exitCode", p->exit_code);
        cJSON_AddStringToObject(t, "reason",
                                p->why         ? p->why
                                : p->exit_code ? "Error"
                                               : "Completed");
    }
    return c;
}

/* All containers of a pod are one program here. */
static void container_tell(struct kube_object *pod, const char *state, const struct kube_proc *p)
{
    cJSON *list = cJSON_CreateArray();
    const cJSON *c;

    cJSON_ArrayForEach(c, kube_at(pod->doc, "spec.containers"))
        cJSON_AddItemToArray(list, container_told(kube_text(c, "name"), state, p));
    set(status_of(pod), "containerStatuses", list);
}

static void pod_over(struct kube_object *pod, const struct kube_proc *p)
{
    bool good = p && p->exit_code == 0;

    container_tell(pod, p ? "terminated" : "waiting", p);
    set(status_of(pod), "phase", cJSON_CreateString(good ? "Succeeded" : "Failed"));
    (void)condition_set(pod, "Ready", false, "PodCompleted", "");
    (void)condition_set(pod, "ContainersReady", false, "PodCompleted", "");
    kube_world_changed(pod);
}

static void turn_away(struct kube_object *pod)
{
    char text[128];

    (void)snprintf(text, sizeof text, "Pod was rejected: %s", W.turns_away);
    set(status_of(pod), "phase", cJSON_CreateString("Failed"));
    set(status_of(pod), "reason", cJSON_CreateString(W.turns_away));
    set(status_of(pod), "message", cJSON_CreateString(text));
    kube_world_changed(pod);
}

static bool secret_is_there(const struct kube_object *pod)
{
    const cJSON *v;

    cJSON_ArrayForEach(v, kube_at(pod->doc, "spec.volumes"))
    {
        const char *name = kube_text(v, "secret.secretName");
        if (*name && !kube_world_find("secrets", KUBE_WORLD_NS, name))
            return false;
    }
    return true;
}

static void pod_run(struct kube_object *pod, unsigned i, const char *node)
{
    struct kube_proc *p = proc_of(uid_of(pod));
    bool deleting = kube_deleting(pod->doc);
    uint64_t grace = (uint64_t)number(pod->doc, "metadata.deletionGracePeriodSeconds") * 1000;

    const cJSON *own = cJSON_GetArrayItem(kube_at(pod->doc, "status.containerStatuses"), 0);
    bool told = !p || kube_at(own, "state.terminated");

    (void)i;
    if (is_over(pod) && told) {
        if (deleting && (!p || !p->alive) &&
            number(pod->doc, "metadata."
                             "deletionGracePeriodSeconds"))
            kube_world_delete(pod, 0); /* which it confirms */
        return;
    }
    if (!p && deleting) {
        pod_over(pod, NULL);
    } else if (!p && W.turns_away) {
        turn_away(pod);
    } else if (!p && secret_is_there(pod)) {
        proc_start(pod, node);
        p = proc_of(uid_of(pod));
        container_tell(pod, "running", p);
        set(status_of(pod), "phase", cJSON_CreateString("Running"));
        (void)condition_set(pod, "Ready", true, "", "");
        (void)condition_set(pod, "ContainersReady", true, "", "");
        kube_world_changed(pod);
    } else if (p && p->alive && deleting) {
        uint64_t kill = now_ms() + (grace ? grace : 1000);
        if (!p->kill_ms && !p->stubborn) { /* SIGTERM: it saves, and ends */
            p->over_ms = now_ms() + 100 + kube_world_below(400);
            p->exit_code = p->traps ? 0 : 75;
        }
        p->kill_ms = p->kill_ms && p->kill_ms < kill ? p->kill_ms : kill;
    } else if (p && !p->alive) {
        pod_over(pod, p);
    }
}

void kube_world_kubelet(struct kube_object *pod)
{
    for (unsigned i = 0; i < KUBE_WORLD_NODES; i++)
        if (!strcmp(kube_text(pod->doc, "spec.nodeName"), node_names[i]) && W.nodes[i].linked &&
            W.nodes[i].power) {
            pod_run(pod, i, node_names[i]); /* it may be gone then */
            return;
        }
}

/* A kubelet ends what the API server does not have. */
void kube_world_clean(void)
{
    list_for_each (it, &W.procs) {
        struct kube_proc *p = container_of(it, struct kube_proc, link);
        bool there = false;
        list_for_each (jt, &W.objects)
            there |= !strcmp(uid_of(container_of(jt, struct kube_object, link)), p->pod);
        for (unsigned i = 0; i < KUBE_WORLD_NODES && !there && p->alive; i++)
            if (!strcmp(p->node, node_names[i]) && W.nodes[i].linked && !p->kill_ms)
                p->kill_ms = now_ms() + 1000;
    }
}

/* ---- nodes that are silent ---- */
static void of_silent(struct kube_object *pod)
{
    for (unsigned i = 0; i < KUBE_WORLD_NODES; i++) {
        uint64_t silent = W.nodes[i].linked ? 0 : now_ms() - W.unlinked_ms[i];
        if (strcmp(kube_text(pod->doc, "spec.nodeName"), node_names[i]) != 0 || is_over(pod))
            continue;
        if (silent > SILENT_MS && condition_set(pod, "Ready", false, "NodeNotReady", ""))
            kube_world_changed(pod);
        if (silent > EVICT_MS && !kube_deleting(pod->doc)) {
            (void)condition_set(pod, "DisruptionTarget", true, "DeletionByTaintManager",
                                "Taint manager: deleting due to NoExecute taint");
            kube_world_delete(pod, -1);
        }
    }
}

static void node_heard(struct kube_object *pod)
{
    for (unsigned i = 0; i < KUBE_WORLD_NODES; i++)
        if (!strcmp(kube_text(pod->doc, "spec.nodeName"), node_names[i]) && W.nodes[i].linked &&
            phase_is(pod, "Running") && condition_set(pod, "Ready", true, "", ""))
            kube_world_changed(pod);
}

void kube_world_silent(struct kube_object *pod)
{
    node_heard(pod);
    of_silent(pod);
}
