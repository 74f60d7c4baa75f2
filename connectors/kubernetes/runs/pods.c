/* What a pod proves. Its kubelet alone knows that containers have ended; whatever the API server
 * or a controller says of them by itself (a phase set by garbage collection, a deletion, a node
 * that is not ready) proves nothing. Must never call a pod over of which a process may be left. */
#include "api/base/failpoint.h"
#include "connectors/ends.h"
#include "connectors/kubernetes/runs/runs_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */
static const cJSON *list_at(const cJSON *o, const char *path)
{
    const cJSON *l = kube_at(o, path);

    return cJSON_IsArray(l) ? l : NULL;
}

static const cJSON *named(const cJSON *list, const char *field, const char *name)
{
    const cJSON *e;

    cJSON_ArrayForEach(e, list)
    {
        if (strcmp(kube_text(e, field), name) == 0)
            return e;
    }
    return NULL;
}

static const cJSON *condition(const cJSON *pod, const char *type)
{
    return named(list_at(pod, "status.conditions"), "type", type);
}

static bool condition_is(const cJSON *pod, const char *type, const char *status)
{
    return strcmp(kube_text(condition(pod, type), "status"), status) == 0;
}

static int number_at(const cJSON *o, const char *path)
{
    const cJSON *n = kube_at(o, path);

    return cJSON_IsNumber(n) && n->valuedouble >= -2147483647 && n->valuedouble <= 2147483647
               ? (int)n->valuedouble
               : 0;
}

/* ---- its programs ---- */
/* Names of the containers that run them; those beside them somebody else has added. */
static const char *programs_of(const cJSON *pod)
{
    const char *names = kube_annotation(pod, KUBE_CONTAINERS_ANNOTATION);

    return *names ? names : KUBE_CONTAINER;
}

static bool is_manifest(const cJSON *pod)
{
    return *kube_annotation(pod, KUBE_CONTAINERS_ANNOTATION) != '\0';
}

static bool is_named(const char *names, const char *name)
{
    size_t n = strlen(name);

    for (const char *s = names; *s; s += strcspn(s, ","), s += *s == ',')
        if (n && strncmp(s, name, n) == 0 && (s[n] == ',' || !s[n]))
            return true;
    return false;
}

struct programs {     /* as the kubelet has told of them */
    const cJSON *own; /* the one that says most: failed, running, ended, waiting; NULL: none */
    int told, running, terminated, begun;
};

static bool has_failed(const cJSON *status)
{
    const cJSON *t = kube_at(status, "state.terminated");

    return t && (number_at(t, "exitCode") || number_at(t, "signal"));
}

static int says(const cJSON *status)
{
    return has_failed(status)                         ? 3
           : kube_at(status, "state.running") != NULL ? 2
           : kube_at(status, "state.terminated")      ? 1
                                                      : 0;
}

static struct programs programs_read(const cJSON *pod)
{
    const char *names = programs_of(pod);
    struct programs p = {.own = NULL};
    const cJSON *s;

    cJSON_ArrayForEach(s, list_at(pod, "status.containerStatuses"))
    {
        if (!is_named(names, kube_text(s, "name")))
            continue;
        p.told++;
        p.running += kube_at(s, "state.running") != NULL;
        p.terminated += kube_at(s, "state.terminated") != NULL;
        p.begun += !kube_at(s, "state.waiting") || kube_at(s, "lastState.terminated") ||
                   *kube_text(s, "containerID");
        if (!p.own || says(s) > says(p.own))
            p.own = s;
    }
    return p;
}

/* A manifest's programs leave words for people; those of a runner are its report. */
const char *kube_pod_left(const cJSON *pod)
{
    return is_manifest(pod) ? "" : kube_text(programs_read(pod).own, "state.terminated.message");
}

/* "BASE/COUNT" */
static void part_of(const cJSON *pod, struct kube_pod_seen *p)
{
    const char *text = kube_annotation(pod, KUBE_PART_ANNOTATION);
    char *end;

    errno = 0;
    long long base = strtoll(text, &end, 10), n = *end == '/' ? strtoll(end + 1, &end, 10) : 0;
    if (errno || *end || base < 0 || n < 1 || base >= LIMIT_GANG_MAX || n > LIMIT_GANG_MAX - base)
        return;
    p->base = base;
    p->count = n;
    p->follows = *kube_annotation(pod, KUBE_FOLLOWS_ANNOTATION) != '\0';
}

/* Of a part it is told once it was let in, whatever a Job of its own counts. */
static int64_t rank_of(const cJSON *pod)
{
    bool part = *kube_annotation(pod, KUBE_PART_ANNOTATION) != '\0';
    const char *text = part ? "" : kube_label(pod, KUBE_INDEX_LABEL);
    char *end;

    text = *text ? text : kube_annotation(pod, part ? KUBE_RANK_ANNOTATION : KUBE_INDEX_LABEL);
    errno = 0;
    long long v = strtoll(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno && v < LIMIT_GANG_MAX ? v : -1;
}

static bool has_text(const cJSON *list, const char *text)
{
    const cJSON *e;

    cJSON_ArrayForEach(e, list)
    {
        if (cJSON_IsString(e) && strcmp(e->valuestring, text) == 0)
            return true;
    }
    return false;
}

static void words(struct kube_pod_seen *p, const char *reason, const char *message)
{
    str_cut(p->reason, sizeof p->reason, reason);
    str_cut(p->message, sizeof p->message, message);
}

/* ---- containers ---- */
struct containers {                   /* as the kubelet has told of them */
    int terminated, running, waiting; /* those of init, too */
    bool all;                         /* it has told of each container that is no init one */
};

static void count(const cJSON *statuses, struct containers *c)
{
    const cJSON *s;

    cJSON_ArrayForEach(s, statuses)
    {
        if (kube_at(s, "state.terminated"))
            c->terminated++;
        else if (kube_at(s, "state.running"))
            c->running++;
        else
            c->waiting++;
    }
}

static struct containers containers_of(const cJSON *pod)
{
    const cJSON *main = list_at(pod, "status.containerStatuses");
    struct containers c = {.terminated = 0};

    count(main, &c);
    count(list_at(pod, "status.initContainerStatuses"), &c);
    c.all = main && cJSON_GetArraySize(main) > 0 &&
            cJSON_GetArraySize(main) >= cJSON_GetArraySize(list_at(pod, "spec.containers"));
    return c;
}

static bool phase_over(const cJSON *pod)
{
    const char *phase = kube_text(pod, "status.phase");

    return strcmp(phase, "Failed") == 0 || strcmp(phase, "Succeeded") == 0;
}

/* Not by its kubelet: the controller that collects pods of lost nodes has called it failed. */
static bool collected(const cJSON *pod)
{
    return strcmp(kube_text(condition(pod, "DisruptionTarget"), "reason"), "DeletionByPodGC") ==
               0 &&
           !PLANTED("kube.collected-is-over");
}

/* Its kubelet calls it over, and writes this condition when it does: whoever else calls it failed
 * leaves the condition as it was, and need not say who he is. */
static bool kubelet_over(const cJSON *pod)
{
    const char *reason = kube_text(condition(pod, "ContainersReady"), "reason");

    return phase_over(pod) &&
           (strcmp(reason, "PodFailed") == 0 || strcmp(reason, "PodCompleted") == 0);
}

/* A kubelet that did not take it has started nothing of it, and says so in these words. */
static bool turned_away(const cJSON *pod)
{
    static const char rejected[] = "Pod was rejected";

    return strcmp(kube_text(pod, "status.phase"), "Failed") == 0 &&
           *kube_text(pod, "status.reason") && !collected(pod) &&
           cJSON_GetArraySize(list_at(pod, "status.containerStatuses")) == 0 &&
           strncmp(kube_text(pod, "status.message"), rejected, strlen(rejected)) == 0;
}

/* ---- how it ended ---- */
struct blamed {
    const char *word;
    enum end end;
};

/* Words of a kubelet about the container. */
static const struct blamed container_words[] = {{"OOMKilled", END_OUT_OF_MEMORY},
                                                {"ContainerStatusUnknown", END_RUNNER_KILLED},
                                                {"Unknown", END_MACHINE_RESTARTED},
                                                {"StartError", END_START_FAILED},
                                                {"ContainerCannotRun", END_START_FAILED}};
/* Of the pod, by its kubelet. */
static const struct blamed pod_words[] = {
    {"Evicted", END_RUNNER_KILLED},    {"NodeShutdown", END_RUNNER_KILLED},
    {"Terminated", END_RUNNER_KILLED}, {"Preempting", END_RUNNER_KILLED},
    {"Shutdown", END_RUNNER_KILLED},   {"NodeLost", END_RUNNER_KILLED}};

static const char *blame(const struct blamed *v, size_t n, const char *word)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(v[i].word, word) == 0)
            return end_text(v[i].end);
    return "";
}
#define BLAME(table, word) blame(table, sizeof table / sizeof *table, word)

/* Why it was asked to end by others than us: preempted, drained, evicted from a node. */
static void disrupted(const cJSON *pod, struct kube_pod_seen *p)
{
    const cJSON *c = condition(pod, "DisruptionTarget");
    const char *reason = kube_text(c, "reason");
    char text[sizeof p->message];

    if (strcmp(kube_text(c, "status"), "True") != 0 || !*reason)
        return;
    str_cut(text, sizeof text, kube_text(c, "message"));
    str_copy(p->reason, sizeof p->reason, end_text(END_RUNNER_KILLED));
    str_cut(p->message, sizeof p->message, reason);
    size_t n = strlen(p->message);
    if (*text && n + 3 < sizeof p->message) {
        str_copy(p->message + n, sizeof p->message - n, ": ");
        str_cut(p->message + n + 2, sizeof p->message - n - 2, text);
    }
}

/* Of several programs one may never have begun when the pod was over: it has failed, too. */
static void manifest_ended(const cJSON *pod, const cJSON *t, struct kube_pod_seen *p)
{
    if (!is_manifest(pod))
        return;
    if (!p->exit_code && !p->term_signal && strcmp(kube_text(pod, "status.phase"), "Failed") == 0) {
        p->exit_code = 1;
        if (!*p->message)
            str_cut(p->message, sizeof p->message, "a container of it never began");
    }
    if ((p->exit_code || p->term_signal) && !*p->message)
        str_cut(p->message, sizeof p->message, kube_text(t, "message"));
}

static void ended(const cJSON *pod, const cJSON *own, struct kube_pod_seen *p)
{
    const cJSON *t = kube_at(own, "state.terminated");
    const char *word = kube_text(t, "reason"), *why = kube_text(pod, "status.reason");

    p->is = POD_ENDED;
    p->exit_code = number_at(t, "exitCode");
    p->term_signal = number_at(t, "signal");
    p->started_ms = kube_time_ms(kube_text(t, "startedAt"));
    p->ended_ms = kube_time_ms(kube_text(t, "finishedAt"));
    if (p->ended_ms && p->started_ms > p->ended_ms)
        p->started_ms = p->ended_ms;
    words(p, BLAME(container_words, word), "");
    if (strcmp(word, "Unknown") == 0 && p->exit_code != 255)
        p->reason[0] = '\0';
    if (*p->reason || (!p->exit_code && !p->term_signal))
        return;
    words(p, BLAME(pod_words, why), kube_text(pod, "status.message"));
    if (!*p->reason && strcmp(why, "DeadlineExceeded") == 0) /* by a limit that is not ours */
        str_copy(p->reason, sizeof p->reason, why);
    if (!*p->reason)
        disrupted(pod, p);
}

static void never(const cJSON *pod, struct kube_pod_seen *p)
{
    const cJSON *init = list_at(pod, "status.initContainerStatuses"), *s;
    const char *reason = kube_text(pod, "status.reason");

    p->is = POD_NEVER;
    cJSON_ArrayForEach(s, init)
    {
        int code = number_at(s, "state.terminated.exitCode");
        if (code == 0 || p->deleting)
            continue;
        words(p, end_text(END_TARGET_REFUSED), kube_text(s, "state.terminated.message"));
        if (!*p->message)
            str_cut(p->message, sizeof p->message,
                    "a container that is to run ahead of its program has failed");
        return;
    }
    if (*reason)
        words(p, end_text(END_TARGET_REFUSED), kube_text(pod, "status.message"));
}

/* ---- while it lives ---- */
/* The node controller takes Ready away when a kubelet is silent, and leaves ContainersReady. */
static bool silent(const cJSON *pod)
{
    return strcmp(kube_text(pod, "status.phase"), "Unknown") == 0 ||
           (condition_is(pod, "Ready", "False") && condition_is(pod, "ContainersReady", "True") &&
            cJSON_GetArraySize(list_at(pod, "spec.readinessGates")) == 0);
}

static void waits(const cJSON *pod, struct kube_pod_seen *p)
{
    const cJSON *c = condition(pod, "PodScheduled");

    p->is = named(list_at(pod, "spec.schedulingGates"), "name", KUBE_GATE) ? POD_GATED : POD_WAITS;
    if (strcmp(kube_text(c, "status"), "False") == 0)
        words(p, kube_text(c, "reason"), kube_text(c, "message"));
}

/* Why it does not run yet: an image that cannot be pulled, a container that cannot be made. */
static void starts(const cJSON *pod, struct kube_pod_seen *p)
{
    static const char *const lists[] = {"status.initContainerStatuses", "status.containerStatuses"};

    p->is = POD_STARTS;
    for (unsigned i = 0; i < 2; i++) {
        const cJSON *s;
        cJSON_ArrayForEach(s, list_at(pod, lists[i]))
        {
            const char *reason = kube_text(s, "state.waiting.reason");
            if (!*reason || strcmp(reason, "PodInitializing") == 0 ||
                strcmp(reason, "ContainerCreating") == 0)
                continue;
            words(p, reason, kube_text(s, "state.waiting.message"));
            return;
        }
    }
}

/* A kubelet may begin a container again that has terminated, whatever its pod's policy says
 * (ContainerRestartRules): between the two it tells of it as of one that has ended. */
static bool may_begin_again(const cJSON *pod)
{
    const cJSON *c;

    cJSON_ArrayForEach(c, list_at(pod, "spec.containers"))
    {
        const char *policy = kube_text(c, "restartPolicy");
        if (kube_at(c, "restartPolicyRules") || (*policy && strcmp(policy, "Never") != 0))
            return true;
    }
    return false;
}

/* All of its containers have terminated; or its kubelet calls the pod over, and those that have
 * not were never started. */
static bool has_ended(const cJSON *pod, const struct programs *p, const struct containers *c)
{
    if (PLANTED("kube.collected-is-over") && phase_over(pod))
        return true;
    if (!p->terminated || c->running)
        return false;
    return (c->all && !c->waiting && !may_begin_again(pod)) || kubelet_over(pod);
}

/* Its kubelet calls the pod over, and its programs' containers still waited then. */
static bool never_began(const cJSON *pod, const struct programs *p, const struct containers *c)
{
    return kubelet_over(pod) && !c->running && p->told && !p->begun;
}

static void lives(const cJSON *pod, const struct programs *p, struct kube_pod_seen *ret)
{
    const char *names = programs_of(pod);
    int n = 1;

    for (const char *at = names; *at; at++)
        n += *at == ',';
    ret->is = silent(pod) ? POD_SILENT : POD_RUNS;
    ret->over_alone = p->terminated == n;
    ret->started_ms = kube_time_ms(kube_text(p->own, kube_at(p->own, "state.running")
                                                         ? "state.running.startedAt"
                                                         : "state.terminated.startedAt"));
    if (ret->is == POD_SILENT)
        words(ret, "NodeLost", "its node does not answer");
}

/* ---- for people ---- */
static const char *disruption(const cJSON *pod)
{
    const cJSON *c = condition(pod, "DisruptionTarget");

    return strcmp(kube_text(c, "status"), "True") == 0 ? kube_text(c, "reason") : "";
}

static const char *first_of(const char *a, const char *b)
{
    return *a ? a : b;
}

/* The cluster's word for how it is; why it was taken away goes ahead of how its program ended. */
static const char *word_of(const cJSON *pod, const struct kube_pod_seen *p)
{
    const char *of_pod = first_of(disruption(pod), kube_text(pod, "status.reason"));

    switch (p->is) {
    case POD_GATED:
    case POD_WAITS:
        return kube_text(condition(pod, "PodScheduled"), "reason");
    case POD_STARTS:
        return first_of(p->deleting ? first_of(of_pod, "Terminating") : p->reason,
                        "ContainerCreating");
    case POD_RUNS:
        return p->deleting ? first_of(of_pod, "Terminating") : "";
    case POD_SILENT:
        return "NodeLost";
    case POD_LOST:
        return first_of(of_pod, "NodeLost");
    case POD_ENDED:
        return first_of(of_pod, kube_text(programs_read(pod).own, "state.terminated.reason"));
    default:
        return of_pod;
    }
}

/* deletionTimestamp is when its grace is over. */
static int64_t asked_ms(const cJSON *pod)
{
    int64_t at = kube_time_ms(kube_text(pod, "metadata.deletionTimestamp"));
    int64_t grace = number_at(pod, "metadata.deletionGracePeriodSeconds");

    return at && grace >= 0 ? at - grace * 1000 : at;
}

void kube_pod_read(const cJSON *pod, struct kube_pod_seen *ret)
{
    const struct programs p = programs_read(pod);
    struct containers c = containers_of(pod);
    bool bound = *kube_text(pod, "spec.nodeName") != '\0';

    *ret = (struct kube_pod_seen){
        .rank = rank_of(pod),
        .deleting = kube_deleting(pod),
        .asked_ms = asked_ms(pod),
        .held = has_text(kube_at(pod, "metadata.finalizers"), KUBE_FINALIZER),
        .grace_s = is_manifest(pod) ? number_at(pod, "spec.terminationGracePeriodSeconds") : 0};
    part_of(pod, ret);
    if (!bound && ret->deleting) {
        ret->is = POD_NEVER; /* the API server gives it no node any more */
    } else if (!bound) {
        waits(pod, ret);
    } else if (has_ended(pod, &p, &c)) {
        ended(pod, p.own, ret);
        manifest_ended(pod, kube_at(p.own, "state.terminated"), ret);
    } else if (turned_away(pod) || never_began(pod, &p, &c)) {
        never(pod, ret);
    } else if (phase_over(pod)) {
        ret->is = POD_LOST;
        words(ret, kube_text(condition(pod, "DisruptionTarget"), "reason"),
              "its object is over, and its kubelet has not said that its containers are");
    } else if (p.running || p.terminated) {
        lives(pod, &p, ret);
    } else {
        starts(pod, ret);
    }
    str_copy(ret->phase, sizeof ret->phase, kube_text(pod, "status.phase"));
    str_cut(ret->word, sizeof ret->word, word_of(pod, ret));
}
