/* Diagnostics as a Job: its name and mark, what it asks for, and what its end says. Its own status
 * says all: whoever leads next reads it again. */
#include "connectors/kubernetes/diagnostics/diagnostics_internal.h"

#include "connectors/kubernetes/manifests/overlay.h"
#include "connectors/kubernetes/manifests/safety.h"
#include "connectors/report/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRACE_S 10
#define NAME_HEAD "hanse-diagnostics-n"
#define NODE_DIGITS 16
#define TRIES_MAX 9999
#define MAC_DIGITS ((size_t)2 * HOME_MAC_BYTES)
#define TEXT_MAX 1024

static void hex_print(const unsigned char mac[HOME_MAC_BYTES], size_t digits, char *out)
{
    for (size_t i = 0; i < digits / 2; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", mac[i]);
}

static const char *cluster_of(const struct connector_env *e)
{
    return e->cluster_uid ? e->cluster_uid(e->arg) : "";
}

/* ---- names and marks ---- */
bool kube_check_name(const struct connector_env *e, const char *place, const char *node,
                     int64_t period, unsigned in_vain, char ret[KUBE_CHECK_NAME_MAX])
{
    unsigned char mac[HOME_MAC_BYTES];
    char text[TEXT_MAX], digits[NODE_DIGITS + 1], tries[16] = "";

    (void)snprintf(text, sizeof text, "hanse-kube-diagnostics-name-1/%s/%s/%s", cluster_of(e),
                   place, node);
    if (!e->keys || !e->keys->again || !e->keys->again(e->keys->arg, 0, text, mac))
        return false;
    hex_print(mac, NODE_DIGITS, digits);
    if (in_vain)
        (void)snprintf(tries, sizeof tries, "-%u", in_vain < TRIES_MAX ? in_vain : TRIES_MAX);
    (void)snprintf(ret, KUBE_CHECK_NAME_MAX, NAME_HEAD "%s-%lld%s", digits, (long long)period,
                   tries);
    return true;
}

unsigned kube_check_in_vain(const char *name)
{
    const size_t head = sizeof NAME_HEAD - 1 + NODE_DIGITS + 1;
    const char *dash = strlen(name) > head ? strchr(name + head, '-') : NULL;
    unsigned long n = dash ? strtoul(dash + 1, NULL, 10) : 0;

    return n < TRIES_MAX ? (unsigned)n : TRIES_MAX;
}

static void mark_text(const struct connector_env *e, const char *place, const char *name,
                      const char *node, char ret[TEXT_MAX])
{
    (void)snprintf(ret, TEXT_MAX, "hanse-kube-diagnostics-1/%s/%s/%s/%s", cluster_of(e), place,
                   name, node);
}

static bool hex_read(const char *s, unsigned char ret[HOME_MAC_BYTES])
{
    if (strlen(s) != MAC_DIGITS || strspn(s, "0123456789abcdef") != MAC_DIGITS)
        return false;
    for (size_t i = 0; i < HOME_MAC_BYTES; i++) {
        const char two[3] = {s[2 * i], s[2 * i + 1], '\0'};
        ret[i] = (unsigned char)strtoul(two, NULL, 16);
    }
    return true;
}

bool kube_check_is_ours(const struct connector_env *e, const cJSON *job)
{
    const char *place = kube_text(job, "metadata.namespace");
    const char *name = kube_text(job, "metadata.name");
    const char *node = kube_annotation(job, KUBE_CHECK_NODE_ANNOTATION);
    unsigned char mac[HOME_MAC_BYTES];
    char text[TEXT_MAX];

    if (!*kube_label(job, KUBE_CHECK_LABEL) || !*node || strlen(node) > 253 ||
        strlen(name) >= KUBE_CHECK_NAME_MAX || strlen(place) > 63 || !e->keys || !e->keys->holds)
        return false;
    mark_text(e, place, name, node, text);
    return hex_read(kube_annotation(job, KUBE_MARK_ANNOTATION), mac) &&
           e->keys->holds(e->keys->arg, text, mac);
}

/* ---- the document ---- */
static cJSON *object_in(cJSON *o, const char *name)
{
    return cJSON_AddObjectToObject(o, name);
}

static void text_in(cJSON *o, const char *name, const char *value)
{
    cJSON_AddStringToObject(o, name, value);
}

static cJSON *item_in(cJSON *list)
{
    cJSON *e = cJSON_CreateObject();

    cJSON_AddItemToArray(list, e);
    return e;
}

/* Kubernetes replaces $(NAME) in a command; two $ stand for one. */
static void arg_in(cJSON *list, const char *s)
{
    AUTO_BUF text;

    buf_init(&text, (size_t)1 << 20);
    for (; *s; s++)
        buf_str(&text, *s == '$' ? "$$" : (const char[]){*s, '\0'});
    cJSON_AddItemToArray(list, cJSON_CreateString(text.n ? text.p : ""));
}

static void container_in(const struct kube_check_ask *ask, cJSON *pod)
{
    cJSON *c = item_in(cJSON_AddArrayToObject(pod, "containers")), *limits, *requests, *r;

    text_in(c, "name", KUBE_CHECK_CONTAINER);
    text_in(c, "image", ask->d->image);
    if (ask->d->n_command) {
        cJSON *v = cJSON_AddArrayToObject(c, "command");
        for (uint32_t i = 0; i < ask->d->n_command; i++)
            arg_in(v, ask->d->command[i]);
    }
    r = object_in(c, "resources");
    limits = object_in(r, "limits");
    requests = object_in(r, "requests");
    for (size_t i = 0; i < ask->n_devices; i++) {
        char count[24];
        (void)snprintf(count, sizeof count, "%lld", (long long)ask->devices[i].count);
        text_in(limits, ask->devices[i].resource, count);
        text_in(requests, ask->devices[i].resource, count);
    }
    text_in(c, "terminationMessagePolicy", "FallbackToLogsOnError");
}

static void node_in(const char *node, cJSON *pod)
{
    cJSON *terms =
        cJSON_AddArrayToObject(object_in(object_in(object_in(pod, "affinity"), "nodeAffinity"),
                                         "requiredDuringSchedulingIgnoredDuringExecution"),
                               "nodeSelectorTerms");
    cJSON *field = item_in(cJSON_AddArrayToObject(item_in(terms), "matchFields"));

    text_in(field, "key", "metadata.name");
    text_in(field, "operator", "In");
    cJSON_AddItemToArray(cJSON_AddArrayToObject(field, "values"), cJSON_CreateString(node));
}

static int64_t timeout_s(const struct kubernetes_diagnostics *d)
{
    return (d->timeout + 999) / 1000;
}

static int pod_in(const struct kube_check_ask *ask, cJSON *template, struct err *err)
{
    const struct kube_overlay overlay = {.k = ask->k};
    cJSON *meta = object_in(template, "metadata"), *pod = object_in(template, "spec");

    text_in(object_in(meta, "labels"), KUBE_CHECK_LABEL, "gpus");
    text_in(pod, "restartPolicy", "Never");
    cJSON_AddNumberToObject(pod, "activeDeadlineSeconds", (double)timeout_s(ask->d));
    cJSON_AddNumberToObject(pod, "terminationGracePeriodSeconds", GRACE_S);
    cJSON_AddFalseToObject(pod, "automountServiceAccountToken");
    cJSON_AddFalseToObject(pod, "enableServiceLinks");
    kube_names_in(&overlay, pod);
    container_in(ask, pod);
    node_in(ask->node, pod);
    kube_security_in(ask->k, pod);
    return kube_tolerations_in(&overlay, pod, err);
}

/* What was disrupted says nothing, and is made anew; a status of its program is the last word. */
static void policy_in(cJSON *spec)
{
    cJSON *rules = cJSON_AddArrayToObject(object_in(spec, "podFailurePolicy"), "rules");
    cJSON *rule = item_in(rules), *c;

    text_in(rule, "action", "Ignore");
    c = item_in(cJSON_AddArrayToObject(rule, "onPodConditions"));
    text_in(c, "type", "DisruptionTarget");
    text_in(c, "status", "True");
    rule = item_in(rules);
    text_in(rule, "action", "FailJob");
    c = object_in(rule, "onExitCodes");
    text_in(c, "containerName", KUBE_CHECK_CONTAINER);
    text_in(c, "operator", "NotIn");
    cJSON_AddItemToArray(cJSON_AddArrayToObject(c, "values"), cJSON_CreateNumber(0));
}

static int spec_in(const struct kube_check_ask *ask, cJSON *spec, struct err *err)
{
    cJSON_AddNumberToObject(spec, "completions", 1);
    cJSON_AddNumberToObject(spec, "parallelism", 1);
    cJSON_AddNumberToObject(spec, "backoffLimit", 0);
    cJSON_AddNumberToObject(spec, "activeDeadlineSeconds",
                            (double)(timeout_s(ask->d) + KUBE_CHECK_START_S));
    text_in(spec, "podReplacementPolicy", "Failed");
    policy_in(spec);
    return pod_in(ask, object_in(spec, "template"), err);
}

cJSON *kube_check_job(const struct connector_env *e, const struct kube_check_ask *ask,
                      struct err *err)
{
    unsigned char mac[HOME_MAC_BYTES];
    char text[TEXT_MAX], mark[MAC_DIGITS + 1];
    cJSON *job, *meta, *words;

    if (!e->keys || !e->keys->sign) {
        (void)err_set(err, E_UNAVAIL, "this hub has no keys by which it could mark what it makes");
        return NULL;
    }
    mark_text(e, ask->place, ask->name, ask->node, text);
    e->keys->sign(e->keys->arg, text, mac);
    hex_print(mac, MAC_DIGITS, mark);
    job = cJSON_CreateObject();
    text_in(job, "apiVersion", "batch/v1");
    text_in(job, "kind", "Job");
    meta = object_in(job, "metadata");
    text_in(meta, "name", ask->name);
    text_in(meta, "namespace", ask->place);
    words = object_in(meta, "labels");
    text_in(words, KUBE_RUN_LABEL, "diagnostics"); /* by which Jobs are watched */
    text_in(words, KUBE_CHECK_LABEL, "gpus");
    words = object_in(meta, "annotations");
    text_in(words, KUBE_MARK_ANNOTATION, mark);
    text_in(words, KUBE_CHECK_NODE_ANNOTATION, ask->node);
    if (spec_in(ask, object_in(job, "spec"), err) < 0) {
        cJSON_Delete(job);
        return NULL;
    }
    return job;
}

/* ---- what its end says ---- */
static int exit_code_of(const char *message)
{
    static const char words[] = "exit code ";
    const char *at = strstr(message, words);
    long n = at ? strtol(at + sizeof words - 1, NULL, 10) : -1;

    return n > 0 && n < 256 ? (int)n : -1;
}

void kube_check_read(const cJSON *job, struct kube_check_verdict *ret)
{
    const cJSON *c;

    *ret = (struct kube_check_verdict){.is = CHECK_GOING, .exit_code = -1};
    cJSON_ArrayForEach(c, kube_at(job, "status.conditions"))
    {
        const char *type = kube_text(c, "type");
        if (strcmp(kube_text(c, "status"), "True") != 0)
            continue;
        if (strcmp(type, "Complete") == 0)
            ret->is = CHECK_PASSED;
        else if (strcmp(type, "Failed") == 0)
            ret->is =
                strcmp(kube_text(c, "reason"), "PodFailurePolicy") == 0 ? CHECK_FAILED : CHECK_VOID;
        else
            continue;
        ret->over_ms = kube_time_ms(kube_text(c, "lastTransitionTime"));
        if (!ret->over_ms)
            ret->over_ms = kube_time_ms(kube_text(job, "metadata.creationTimestamp"));
        if (ret->is == CHECK_FAILED)
            ret->exit_code = exit_code_of(kube_text(c, "message"));
        return;
    }
}

void kube_check_why(const struct kube_check_verdict *v, const char *words, char ret[256])
{
    bool killed = v->exit_code == 128 + 9 || v->exit_code == 128 + 15;
    char code[40] = "have failed";

    if (v->exit_code > 0)
        (void)snprintf(code, sizeof code, "ended with exit code %d", v->exit_code);
    (void)snprintf(ret, 256, "its diagnostics %s%s%s%.150s", code,
                   killed ? " (killed: its time or memory was over)" : "", *words ? ": " : "",
                   words);
}
