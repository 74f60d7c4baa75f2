/* Diagnostics as the watches tell them: which there are of a node, and what the newest of
 * them says. */
#include "connectors/kubernetes/diagnostics/diagnostics_internal.h"

#include <search.h>
#include <stdio.h>
#include <string.h>

#define CHECKS_MAX ((size_t)4 * LIMIT_TARGET_NODES)

/* ---- what is known ---- */
static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct kube_checked *)a)->name, ((const struct kube_checked *)b)->name);
}

static int by_uid(const void *a, const void *b)
{
    return strcmp(((const struct kube_check *)a)->uid, ((const struct kube_check *)b)->uid);
}

struct kube_checked *kube_checked_find(const struct kube_checks *c, const char *name)
{
    struct {
        struct kube_checked head;
        char name[256];
    } key;

    if (strlen(name) >= sizeof key.name)
        return NULL;
    memcpy(key.head.name, name, strlen(name) + 1);
    struct kube_checked **found = tfind(&key.head, &c->by_name, by_name);
    return found ? *found : NULL;
}

struct kube_checked *kube_checked_get(struct kube_checks *c, const char *name)
{
    struct kube_checked *x = kube_checked_find(c, name);
    size_t n = strlen(name) + 1;

    if (x)
        return x;
    x = mem_zalloc(sizeof *x + n);
    memcpy(x->name, name, n);
    list_init(&x->checks);
    list_push(&c->nodes, &x->link);
    INV(tsearch(x, &c->by_name, by_name));
    return x;
}

struct kube_check *kube_check_find(const struct kube_checks *c, const char *uid)
{
    struct kube_check key = {.name = ""};

    if (!*uid || strlen(uid) >= sizeof key.uid)
        return NULL;
    str_copy(key.uid, sizeof key.uid, uid);
    struct kube_check **found = tfind(&key, &c->by_uid, by_uid);
    return found ? *found : NULL;
}

void kube_check_drop(struct kube_checks *c, struct kube_check *x)
{
    list_remove(&x->link);
    (void)tdelete(x, &c->by_uid, by_uid);
    c->n--;
    kube_nodes_checked(c->env.nodes, x->node->name);
    mem_free(x->words);
    mem_free(x);
}

void kube_checked_drop(struct kube_checks *c, struct kube_checked *x)
{
    while (!list_empty(&x->checks))
        kube_check_drop(c, container_of(x->checks.next, struct kube_check, link));
    list_remove(&x->link);
    (void)tdelete(x, &c->by_name, by_name);
    mem_free(x);
}

bool kube_check_later(const struct kube_check *a, const struct kube_check *b)
{
    return !b || a->v.over_ms > b->v.over_ms ||
           (a->v.over_ms == b->v.over_ms && strcmp(a->name, b->name) > 0);
}

struct kube_newest kube_newest_of(const struct kube_checked *x)
{
    struct kube_newest n = {.verdict = NULL};

    list_for_each (it, &x->checks) {
        const struct kube_check *k = container_of(it, struct kube_check, link);
        const struct kube_check **to = k->v.is == CHECK_GOING  ? &n.going
                                       : k->v.is == CHECK_VOID ? &n.nothing
                                                               : &n.verdict;
        if (kube_check_later(k, *to))
            *to = k;
    }
    return n;
}

void kube_checks_told(const struct kube_checks *c, const char *node, struct kube_check_told *ret)
{
    const struct kube_checked *x = kube_checked_find(c, node);

    *ret = (struct kube_check_told){.going = false};
    if (!x)
        return;
    const struct kube_newest n = kube_newest_of(x);
    ret->going = n.going || x->claimed_ms || x->making;
    if (n.verdict && n.verdict->v.is == CHECK_FAILED)
        kube_check_why(&n.verdict->v, n.verdict->words ? n.verdict->words : "", ret->failed);
}

/* ---- what is told ---- */
static struct kube_check *check_get(struct kube_checks *c, const cJSON *job)
{
    const char *uid = kube_text(job, "metadata.uid");
    struct kube_check *x = kube_check_find(c, uid);

    if (x || !*uid || strlen(uid) >= KUBE_CHECK_UID_MAX || c->n >= CHECKS_MAX)
        return x;
    x = mem_new(struct kube_check);
    str_copy(x->uid, sizeof x->uid, uid);
    str_copy(x->name, sizeof x->name, kube_text(job, "metadata.name"));
    str_copy(x->place, sizeof x->place, kube_text(job, "metadata.namespace"));
    x->node = kube_checked_get(c, kube_annotation(job, KUBE_CHECK_NODE_ANNOTATION));
    list_push(&x->node->checks, &x->link);
    INV(tsearch(x, &c->by_uid, by_uid));
    c->n++;
    return x;
}

static void verdict_take(struct kube_checks *c, struct kube_check *x, const cJSON *job)
{
    enum kube_check_is was = x->v.is;

    kube_check_read(job, &x->v);
    x->deleting = kube_deleting(job);
    x->listed = true;
    if (was != x->v.is && (x->v.is == CHECK_PASSED || x->v.is == CHECK_FAILED)) {
        x->node->taken = 0;
        x->node->told = false;
    }
    kube_nodes_checked(c->env.nodes, x->node->name);
    kube_checks_soon(c);
}

bool kube_checks_job(struct kube_checks *c, enum kube_change change, const cJSON *job)
{
    struct kube_check *x = kube_check_find(c, kube_text(job, "metadata.uid"));
    bool ours = kube_check_is_ours(&c->env.base->env, job);

    if (x && (change == KUBE_GONE || !ours)) {
        if (x->taken && x->v.is == CHECK_GOING)
            kube_checks_taken(c, x);
        kube_check_drop(c, x);
        kube_checks_soon(c);
    }
    if (change == KUBE_GONE || !ours)
        return ours;
    x = check_get(c, job);
    if (x)
        verdict_take(c, x, job);
    return true;
}

void kube_checks_jobs_begin(struct kube_checks *c)
{
    list_for_each (it, &c->nodes) {
        const struct kube_checked *x = container_of(it, struct kube_checked, link);
        list_for_each (jt, &x->checks)
            container_of(jt, struct kube_check, link)->listed = false;
    }
}

void kube_checks_jobs_listed(struct kube_checks *c)
{
    list_for_each (it, &c->nodes) {
        struct kube_checked *x = container_of(it, struct kube_checked, link);
        for (struct list *jt = x->checks.next, *next; jt != &x->checks; jt = next) {
            struct kube_check *k = container_of(jt, struct kube_check, link);
            next = jt->next;
            if (!k->listed)
                kube_check_drop(c, k);
        }
    }
    c->listed = true;
    kube_checks_soon(c);
}

static const char *owner_of(const cJSON *pod)
{
    const cJSON *o;

    cJSON_ArrayForEach(o, kube_at(pod, "metadata.ownerReferences"))
    {
        if (cJSON_IsTrue(kube_at(o, "controller")))
            return kube_text(o, "uid");
    }
    return "";
}

bool kube_checks_ours(const struct kube_checks *c, const cJSON *object, bool job)
{
    return job ? kube_check_is_ours(&c->env.base->env, object)
               : kube_check_find(c, owner_of(object)) != NULL;
}

/* The last words of a program may be anything: one line of them, without what is no text. */
static void words_take(struct kube_check *x, const char *message)
{
    size_t n = strlen(message), from;
    char text[128];

    while (n && (unsigned char)message[n - 1] <= ' ')
        n--;
    for (from = n; from && message[from - 1] != '\n' && n - from < sizeof text - 1; from--)
        ;
    (void)snprintf(text, sizeof text, "%.*s", (int)(n - from), message + from);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < ' ' || (unsigned char)*p > '~')
            *p = '?';
    mem_free(x->words);
    x->words = *text ? mem_strdup(text) : NULL;
}

void kube_checks_pod(struct kube_checks *c, enum kube_change change, const cJSON *pod)
{
    struct kube_check *x =
        *kube_label(pod, KUBE_CHECK_LABEL) ? kube_check_find(c, owner_of(pod)) : NULL;
    const cJSON *end;

    if (!x || change == KUBE_GONE)
        return;
    end = kube_at(cJSON_GetArrayItem(kube_at(pod, "status.containerStatuses"), 0),
                  "state.terminated");
    if (end) {
        words_take(x, kube_text(end, "message"));
        kube_nodes_checked(c->env.nodes, x->node->name);
    } else if (kube_deleting(pod) && !x->deleting && !x->let_go && x->v.is == CHECK_GOING) {
        x->taken = true;
        kube_checks_soon(c);
    }
}
