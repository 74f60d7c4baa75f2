/* What is wrong with a node, what keeps new work off it, and that it will go. */
#include "connectors/kubernetes/nodes/nodes_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAULTS_MAX 64
#define MESSAGE_MAX 256
#define CONDITIONS_MAX 256

/* ---- conditions ---- */
static const cJSON *condition(const cJSON *node, const char *type)
{
    const cJSON *c;
    int n = 0;

    cJSON_ArrayForEach(c, kube_at(node, "status.conditions"))
    {
        if (++n > CONDITIONS_MAX)
            break;
        if (strcmp(kube_text(c, "type"), type) == 0)
            return c;
    }
    return NULL;
}

static const char *cut(struct arena *a, const char *text, size_t size)
{
    char *p = arena_alloc(a, size);

    str_cut(p, size, utf8_valid(text, strlen(text)) ? text : "");
    return p;
}

static void fault_add(struct node_status *s, struct arena *a, const char *reason,
                      enum health health, enum health_source source, const char *message)
{
    if (s->n_faults == FAULTS_MAX)
        return;
    s->faults[s->n_faults++] = (struct node_fault){.health = health,
                                                   .reason = cut(a, reason, 64),
                                                   .source = source,
                                                   .message = cut(a, message, MESSAGE_MAX)};
}

static void faults_read(const cJSON *node, struct arena *a, struct node_status *s)
{
    static const struct {
        const char *type, *status;
        enum health health;
    } conditions[] = {
#define CONDITION(type, status, health, source) {type, status, health},
#include "connectors/kubernetes/nodes/dialects.def"
    };
    static const struct {
        const char *label, *value;
        enum health health;
    } states[] = {
#define STATE(label, value, health, source) {label, value, health},
#include "connectors/kubernetes/nodes/dialects.def"
    };
    for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++) {
        const cJSON *c = condition(node, conditions[i].type);
        if (c && strcmp(kube_text(c, "status"), conditions[i].status) == 0)
            fault_add(s, a, conditions[i].type, conditions[i].health, SOURCE_CONDITION,
                      *kube_text(c, "message") ? kube_text(c, "message") : kube_text(c, "reason"));
    }
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        const char *value = kube_label_value(node, states[i].label);
        if (strcmp(value, states[i].value) == 0)
            fault_add(s, a, value, states[i].health, SOURCE_DRAIN, states[i].label);
    }
}

void kube_health_read(const cJSON *node, struct arena *a, struct node_status *ret)
{
    const cJSON *ready = condition(node, "Ready");
    const char *is = kube_text(ready, "status");

    ret->faults = arena_array(a, struct node_fault, FAULTS_MAX);
    ret->health = strcmp(is, "True") == 0    ? HEALTH_READY
                  : strcmp(is, "False") == 0 ? HEALTH_NOT_READY
                                             : HEALTH_UNKNOWN;
    if (ret->health != HEALTH_READY)
        ret->reason = ready ? cut(a, kube_text(ready, "reason"), 128) : "no condition Ready";
    faults_read(node, a, ret);
}

/* ---- taints ---- */
static bool tolerates(const cJSON *t, const cJSON *taint)
{
    const char *key = kube_text(t, "key"), *operator= kube_text(t, "operator");
    const char *effect = kube_text(t, "effect");

    if (*effect && strcmp(effect, kube_text(taint, "effect")) != 0)
        return false;
    if (strcmp(operator, "Exists") == 0)
        return !*key || strcmp(key, kube_text(taint, "key")) == 0;
    return (!*operator|| strcmp(operator, "Equal") == 0) && *key &&
           strcmp(key, kube_text(taint, "key")) == 0 &&
           strcmp(kube_text(t, "value"), kube_text(taint, "value")) == 0;
}

/* Those of the node controller say once more what conditions and spec.unschedulable say. */
static bool repeats(const char *key)
{
    static const char *const keys[] = {"not-ready",     "unreachable",  "memory-pressure",
                                       "disk-pressure", "pid-pressure", "network-unavailable",
                                       "unschedulable"};
    static const char prefix[] = "node.kubernetes.io/";

    if (strncmp(key, prefix, sizeof prefix - 1) != 0)
        return false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key + sizeof prefix - 1, keys[i]) == 0)
            return true;
    return false;
}

bool kube_other_system(const cJSON *node)
{
    const char *os = kube_label_value(node, "kubernetes.io/os");

    return *os && strcmp(os, "linux") != 0;
}

bool kube_unschedulable(const cJSON *node, const cJSON *tolerations, const cJSON **ret_taint)
{
    const cJSON *taint, *t;

    cJSON_ArrayForEach(taint, kube_at(node, "spec.taints"))
    {
        const char *effect = kube_text(taint, "effect"), *key = kube_text(taint, "key");
        bool ok = (strcmp(effect, "NoSchedule") != 0 && strcmp(effect, "NoExecute") != 0) ||
                  repeats(key) || kube_device_taint(key);

        for (t = cJSON_IsArray(tolerations) ? tolerations->child : NULL; !ok && t; t = t->next)
            ok = tolerates(t, taint);
        if (!ok) {
            *ret_taint = taint;
            return true;
        }
    }
    return cJSON_IsTrue(kube_at(node, "spec.unschedulable")) || kube_deleting(node) ||
           kube_other_system(node);
}

/* ---- notices ---- */
static bool tainted(const cJSON *node, const char *key)
{
    const cJSON *taint;

    cJSON_ArrayForEach(taint, kube_at(node, "spec.taints"))
    {
        if (strcmp(kube_text(taint, "key"), key) == 0)
            return true;
    }
    return false;
}

static bool goes_by_taint(const cJSON *node, struct kube_goes *ret)
{
    static const struct {
        const char *key;
        enum notice_kind kind;
        uint64_t within_ms, spot_ms;
    } rows[] = {
#define GOES_TAINT(key, kind, within_ms, spot_ms, source) {key, kind, within_ms, spot_ms},
#include "connectors/kubernetes/nodes/dialects.def"
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!tainted(node, rows[i].key))
            continue;
        *ret = (struct kube_goes){.kind = rows[i].kind, .within_ms = rows[i].within_ms};
        if (rows[i].spot_ms && kube_capacity_of(node) == CAPACITY_SPOT)
            *ret = (struct kube_goes){.kind = NOTICE_SPOT, .within_ms = rows[i].spot_ms};
        return true;
    }
    return false;
}

static bool goes_by_condition(const cJSON *node, struct kube_goes *ret)
{
    static const struct {
        const char *type, *message;
        int kind;
        uint64_t within_ms;
    } rows[] = {
#define GOES_CONDITION(type, message, kind, within_ms, source) {type, message, kind, within_ms},
#include "connectors/kubernetes/nodes/dialects.def"
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const cJSON *c = condition(node, rows[i].type);

        if (!c || strcmp(kube_text(c, "status"), "True") != 0 ||
            strncmp(kube_text(c, "message"), rows[i].message, strlen(rows[i].message)) != 0)
            continue;
        *ret = (struct kube_goes){.kind = (enum notice_kind)rows[i].kind,
                                  .within_ms = rows[i].within_ms};
        return rows[i].kind != 0;
    }
    return false;
}

static bool goes_by_label(const cJSON *node, struct kube_goes *ret)
{
    static const struct {
        const char *label, *value; /* value NULL: it is a time */
        enum notice_kind kind;
    } rows[] = {
#define GOES_LABEL(label, value, kind, source) {label, value, kind},
#define GOES_AT(label, kind, source) {label, NULL, kind},
#include "connectors/kubernetes/nodes/dialects.def"
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *v = kube_label_value(node, rows[i].label);
        char *end;
        long long at = strtoll(v, &end, 10);

        if (!*v || (rows[i].value ? strcmp(v, rows[i].value) != 0
                                  : *end || at <= 0 || at > INT64_MAX / 1000))
            continue;
        *ret = (struct kube_goes){.kind = rows[i].kind, .at_ms = rows[i].value ? 0 : at * 1000};
        return true;
    }
    return false;
}

bool kube_goes_read(const cJSON *node, struct kube_goes *ret)
{
    if (goes_by_taint(node, ret) || goes_by_condition(node, ret) || goes_by_label(node, ret))
        return true;
    *ret = (struct kube_goes){.kind = NOTICE_MAINTENANCE};
    return kube_deleting(node);
}

bool kube_goes_notice(const struct kube_goes *g, int64_t now_ms, uint64_t seen_ms,
                      struct notice *ret)
{
    int64_t left = g->at_ms - now_ms;

    if (g->at_ms && left > KUBE_NOTICE_AHEAD_MS)
        return false;
    *ret = (struct notice){.kind = g->kind, .ends = g->at_ms || g->within_ms};
    if (g->at_ms)
        ret->in_ms = left > 0 ? (uint64_t)left : 0;
    else
        ret->in_ms = g->within_ms > seen_ms ? g->within_ms - seen_ms : 0;
    return true;
}
