/* Namespaces are gone through one after the other, one request at a time: those that have our label
 * are found by it, whoever put it there before; each is read, and what it is to have is applied to
 * the one with that uid, so that another one of the same name gets nothing. Must never take away
 * what another manager has: nothing is forced, and of a policy the label and the uid are looked
 * at. */
#include "connectors/kubernetes/spaces/spaces.h"

#include "api/base/hash.h"
#include "api/base/log.h"
#include "connectors/kubernetes/runs/runs.h"

#include <stdio.h>
#include <string.h>

#define SOON_MS 50
#define ROUND_MS 600000 /* what others have changed is put right */
#define AGAIN_MS 30000  /* after one that was refused, or not answered */
#define ANSWER_MS 10000
#define SPACES_MAX 1024
#define APPLY "application/apply-patch+yaml"
#define ENFORCE "pod-security.kubernetes.io/enforce"
#define OWNER_MAX 64

enum step { /* of a namespace in this round, in this order */
            SPACE_READ,
            SPACE_APPLY,
            SPACE_POLICY_READ, /* there may be one of ours, or of others */
            SPACE_POLICY,
            SPACE_CLEAR, /* last: by its label what is left is found */
            SPACE_DONE
};
struct space {
    struct list link;
    char name[64], uid[40], policy_uid[40];
    bool managed, isolated; /* asked for */
    bool found;             /* it has our label */
    enum step step;
};
struct kube_spaces {
    struct kube_spaces_env env;
    const struct object *doc;
    struct list all;
    size_t n;
    bool reached, listed, leaving;
    bool failed; /* in this round something was refused, or not answered */
    bool over;   /* the round: all was asked */
    struct timer timer;
    struct kube_request *rq;
    struct space *asked; /* that the request is about; NULL: the list */
    char why[256];       /* what was refused last; "": nothing in this round */
    char complained[256];
};

/* ---- what is asked for ---- */
/* A label's value: the cluster's uid and the Target's name, or what stands for a long one. */
static void owner_print(const struct kube_spaces *s, char ret[OWNER_MAX])
{
    const struct connector *c = s->env.base;
    const char *cluster = c->env.cluster_uid ? c->env.cluster_uid(c->env.arg) : "";

    if (strlen(cluster) + strlen(c->target) + 1 < OWNER_MAX)
        (void)snprintf(ret, OWNER_MAX, "%s.%s", cluster, c->target);
    else
        (void)snprintf(ret, OWNER_MAX, "%.36s.%.8s-%016llx", cluster, c->target,
                       (unsigned long long)hash_text(c->target));
}

static struct space *space_find(const struct kube_spaces *s, const char *name)
{
    list_for_each (it, &s->all) {
        struct space *x = container_of(it, struct space, link);
        if (strcmp(x->name, name) == 0)
            return x;
    }
    return NULL;
}

static struct space *space_get(struct kube_spaces *s, const char *name)
{
    struct space *x = space_find(s, name);

    if (x || s->n >= SPACES_MAX || strlen(name) >= sizeof x->name)
        return x;
    x = mem_new(struct space);
    str_copy(x->name, sizeof x->name, name);
    list_push(&s->all, &x->link);
    s->n++;
    return x;
}

static void spaces_drop(struct kube_spaces *s)
{
    for (struct list *it; (it = list_pop(&s->all));)
        mem_free(container_of(it, struct space, link));
    s->n = 0;
}

static const struct target_kubernetes *spec_of(const struct kube_spaces *s)
{
    const struct target_spec *t = object_as(s->doc, target)->spec;

    return s->leaving || t->observeOnly ? NULL : t->kubernetes;
}

static void wanted_take(struct kube_spaces *s)
{
    const struct target_kubernetes *k = spec_of(s);

    for (uint32_t i = 0; k && i < k->n_namespaces; i++) {
        const struct kubernetes_namespace *n = &k->namespaces[i];
        struct space *x = n->managed || n->network ? space_get(s, n->as) : NULL;
        if (!x)
            continue;
        x->managed |= n->managed;
        x->isolated |= n->network == NETWORK_ISOLATED;
    }
}

/* ---- requests ---- */
static uint64_t now_ms(const struct kube_spaces *s)
{
    return loop_now_ms(s->env.base->env.loop);
}

static void soon(struct kube_spaces *s)
{
    if (s->reached && !s->rq)
        timer_start(&s->timer, SOON_MS);
}

static void complain(struct kube_spaces *s, const char *space, const char *why)
{
    s->failed = true;
    str_cut_words(s->why, sizeof s->why, why);
    if (strcmp(s->complained, s->why) == 0)
        return;
    str_copy(s->complained, sizeof s->complained, s->why);
    log_event(LOG_WARN, "kubernetes.namespace",
              LOG_FIELDS({"target", log_str(s->env.base->target)}, {"namespace", log_str(space)},
                         {"why", log_str(why)}));
    const struct connector_env *e = &s->env.base->env;
    if (e->events->not_given) {
        char text[400];
        (void)snprintf(text, sizeof text, "namespace %.63s does not have what is asked for: %.250s",
                       space, s->why);
        e->events->not_given(e->arg, "NamespaceNotKept", text);
    }
}

static void send(struct kube_spaces *s, struct space *x, const char *method, const char *path,
                 const cJSON *body, void (*done)(void *arg, const struct kube_answer *a))
{
    const struct kube_ask ask = {.method = method,
                                 .path = path,
                                 .type = strcmp(method, "PATCH") == 0 ? APPLY : KUBE_JSON,
                                 .body = body,
                                 .idempotent = true,
                                 .deadline_ms = now_ms(s) + ANSWER_MS,
                                 .done = done,
                                 .arg = s};

    s->asked = x;
    s->rq = kube_send(s->env.client(s->env.base), &ask);
}

/* What is not there needs nothing; what is refused waits for the next round. */
static bool went_well(struct kube_spaces *s, const struct kube_answer *a, bool *ret_gone)
{
    struct space *x = s->asked;

    s->rq = NULL;
    s->asked = NULL;
    *ret_gone = a->out == OUT_REJECTED && a->status == 404;
    soon(s);
    if (a->out == OUT_DONE || *ret_gone)
        return true;
    if (a->out == OUT_REJECTED && a->status != 429)
        complain(s, x ? x->name : "", a->err->text);
    s->failed = true;
    if (x)
        x->step = SPACE_DONE;
    return false;
}

static bool is_ours(const struct kube_spaces *s, const cJSON *o)
{
    char owner[OWNER_MAX];

    owner_print(s, owner);
    return strcmp(kube_label(o, KUBE_SPACE_LABEL), owner) == 0;
}

/* Kept by another hub: of its own a name may have changed, as a cluster's does that goes back. */
#define LINE_LETTERS 36
static bool is_anothers(const struct kube_spaces *s, const cJSON *o)
{
    const char *owner = kube_label(o, KUBE_SPACE_LABEL);
    char own[OWNER_MAX];

    owner_print(s, own);
    return *owner && strncmp(owner, own, LINE_LETTERS) != 0;
}

static bool wanted(const struct space *x)
{
    return x->managed || x->isolated;
}

static void space_came(void *arg, const struct kube_answer *a)
{
    struct kube_spaces *s = arg;
    struct space *x = s->asked;
    bool gone;

    if (!went_well(s, a, &gone))
        return;
    x->found = !gone && is_ours(s, a->body);
    if (gone || kube_deleting(a->body)) {
        if (wanted(x))
            complain(s, x->name,
                     gone ? "the cluster has no such namespace" : "it is being deleted");
        x->step = SPACE_DONE;
        x->found = false; /* what it had goes with it */
        return;
    }
    if (is_anothers(s, a->body)) {
        if (wanted(x))
            complain(s, x->name,
                     "another hub keeps it, by its label " KUBE_SPACE_LABEL
                     ": it is left as it is until that label is gone");
        x->step = SPACE_DONE;
        return;
    }
    str_copy(x->uid, sizeof x->uid, kube_text(a->body, "metadata.uid"));
    x->step = wanted(x) ? SPACE_APPLY : SPACE_POLICY_READ;
}

static void space_applied(void *arg, const struct kube_answer *a)
{
    struct kube_spaces *s = arg;
    struct space *x = s->asked;
    bool gone;

    if (!went_well(s, a, &gone))
        return;
    x->found = !gone && wanted(x);
    x->step = gone || x->step == SPACE_CLEAR ? SPACE_DONE : SPACE_POLICY_READ;
}

static void policy_came(void *arg, const struct kube_answer *a)
{
    struct kube_spaces *s = arg;
    struct space *x = s->asked;
    bool gone;

    if (!went_well(s, a, &gone))
        return;
    bool ours = !gone && is_ours(s, a->body);
    x->policy_uid[0] = '\0';
    if (ours)
        str_copy(x->policy_uid, sizeof x->policy_uid, kube_text(a->body, "metadata.uid"));
    if (x->isolated && !gone && (!ours || kube_deleting(a->body))) {
        complain(s, x->name,
                 ours ? "its NetworkPolicy " KUBE_SPACE_POLICY " is being deleted"
                      : "somebody else's NetworkPolicy has the name " KUBE_SPACE_POLICY
                        " there: it is left as it is, and nothing is isolated");
        x->step = SPACE_DONE;
        return;
    }
    x->step = x->isolated || ours ? SPACE_POLICY : wanted(x) ? SPACE_DONE : SPACE_CLEAR;
}

static void policy_done(void *arg, const struct kube_answer *a)
{
    struct kube_spaces *s = arg;
    struct space *x = s->asked;
    bool gone;

    if (went_well(s, a, &gone))
        x->step = wanted(x) ? SPACE_DONE : SPACE_CLEAR;
}

/* ---- documents ---- */
static cJSON *document(const char *version, const char *kind, const char *name, cJSON **ret_meta)
{
    cJSON *o = cJSON_CreateObject();

    cJSON_AddStringToObject(o, "apiVersion", version);
    cJSON_AddStringToObject(o, "kind", kind);
    *ret_meta = cJSON_AddObjectToObject(o, "metadata");
    cJSON_AddStringToObject(*ret_meta, "name", name);
    return o;
}

static void owner_in(const struct kube_spaces *s, cJSON *labels)
{
    char owner[OWNER_MAX];

    owner_print(s, owner);
    cJSON_AddStringToObject(labels, KUBE_SPACE_LABEL, owner);
}

/* With what is left out goes what was applied before. */
static void space_apply(struct kube_spaces *s, struct space *x)
{
    static const char *const levels[] = {[POD_SECURITY_PRIVILEGED] = "privileged",
                                         [POD_SECURITY_BASELINE] = "baseline",
                                         [POD_SECURITY_RESTRICTED] = "restricted"};
    const struct target_kubernetes *k = spec_of(s);
    cJSON *meta, *o = document("v1", "Namespace", x->name, &meta), *labels;
    char path[128];

    cJSON_AddStringToObject(meta, "uid", x->uid);
    if (wanted(x)) {
        labels = cJSON_AddObjectToObject(meta, "labels");
        owner_in(s, labels);
        if (x->managed && k && k->podSecurity)
            cJSON_AddStringToObject(labels, ENFORCE, levels[k->podSecurity]);
    }
    (void)snprintf(path, sizeof path, "/api/v1/namespaces/%s", x->name);
    send(s, x, "PATCH", path, o, space_applied);
    cJSON_Delete(o);
}

static void runs_in(cJSON *selector)
{
    cJSON *e = cJSON_CreateObject();

    cJSON_AddStringToObject(e, "key", KUBE_RUN_LABEL);
    cJSON_AddStringToObject(e, "operator", "Exists");
    cJSON_AddItemToArray(cJSON_AddArrayToObject(selector, "matchExpressions"), e);
}

static void policy_path(const struct space *x, char ret[192])
{
    (void)snprintf(ret, 192, "/apis/networking.k8s.io/v1/namespaces/%s/networkpolicies/%s", x->name,
                   KUBE_SPACE_POLICY);
}

static void policy_apply(struct kube_spaces *s, struct space *x)
{
    cJSON *meta, *o = document("networking.k8s.io/v1", "NetworkPolicy", KUBE_SPACE_POLICY, &meta);
    cJSON *spec = cJSON_AddObjectToObject(o, "spec"), *rule = cJSON_CreateObject(), *from;
    char path[192];

    cJSON_AddStringToObject(meta, "namespace", x->name);
    if (*x->policy_uid)
        cJSON_AddStringToObject(meta, "uid", x->policy_uid);
    owner_in(s, cJSON_AddObjectToObject(meta, "labels"));
    runs_in(cJSON_AddObjectToObject(spec, "podSelector"));
    cJSON_AddItemToArray(cJSON_AddArrayToObject(spec, "policyTypes"),
                         cJSON_CreateString("Ingress"));
    cJSON_AddItemToArray(cJSON_AddArrayToObject(spec, "ingress"), rule);
    from = cJSON_CreateObject();
    cJSON_AddItemToArray(cJSON_AddArrayToObject(rule, "from"), from);
    runs_in(cJSON_AddObjectToObject(from, "podSelector"));
    policy_path(x, path);
    send(s, x, "PATCH", path, o, policy_done);
    cJSON_Delete(o);
}

static void policy_delete(struct kube_spaces *s, struct space *x)
{
    cJSON *o = cJSON_CreateObject();
    char path[192];

    cJSON_AddStringToObject(o, "apiVersion", "v1");
    cJSON_AddStringToObject(o, "kind", "DeleteOptions");
    cJSON_AddStringToObject(cJSON_AddObjectToObject(o, "preconditions"), "uid", x->policy_uid);
    policy_path(x, path);
    send(s, x, "DELETE", path, o, policy_done);
    cJSON_Delete(o);
}

/* ---- rounds ---- */
static void list_came(void *arg, const struct kube_answer *a)
{
    struct kube_spaces *s = arg;
    const cJSON *o;
    bool gone;

    /* Whoever never asked for any of this need not give the right to look for it. */
    if (a->out == OUT_REJECTED && a->status == 403 && list_empty(&s->all)) {
        s->rq = NULL;
        s->listed = true;
        soon(s);
        return;
    }
    if (!went_well(s, a, &gone))
        return;
    s->listed = true;
    cJSON_ArrayForEach(o, kube_at(a->body, "items"))
    {
        struct space *x = space_get(s, kube_text(o, "metadata.name"));
        if (x)
            x->found = true;
    }
}

static void list_ask(struct kube_spaces *s)
{
    char owner[OWNER_MAX], path[256];

    owner_print(s, owner);
    (void)snprintf(path, sizeof path,
                   "/api/v1/namespaces?labelSelector=hanse.dev%%2Ftarget%%3D%s&limit=500", owner);
    send(s, NULL, "GET", path, NULL, list_came);
}

static void round_begin(struct kube_spaces *s)
{
    spaces_drop(s);
    s->listed = s->failed = s->over = false;
    s->why[0] = '\0';
    wanted_take(s);
}

static void space_step(struct kube_spaces *s, struct space *x)
{
    char path[192];

    switch (x->step) {
    case SPACE_READ:
        (void)snprintf(path, sizeof path, "/api/v1/namespaces/%s", x->name);
        send(s, x, "GET", path, NULL, space_came);
        break;
    case SPACE_POLICY_READ:
        policy_path(x, path);
        send(s, x, "GET", path, NULL, policy_came);
        break;
    case SPACE_POLICY:
        if (x->isolated)
            policy_apply(s, x);
        else
            policy_delete(s, x);
        break;
    default:
        space_apply(s, x);
        break;
    }
}

static void on_timer(void *arg)
{
    struct kube_spaces *s = arg;

    if (s->rq || !s->reached)
        return;
    if (!s->env.client(s->env.base)) {
        timer_start(&s->timer, AGAIN_MS);
        return;
    }
    if (s->over)
        round_begin(s);
    if (!s->listed && !s->failed) {
        list_ask(s);
        return;
    }
    list_for_each (it, &s->all) {
        struct space *x = container_of(it, struct space, link);
        if (s->listed && x->step != SPACE_DONE) {
            space_step(s, x);
            return;
        }
    }
    s->over = true;
    timer_start(&s->timer, s->failed ? AGAIN_MS : ROUND_MS);
}

/* ---- its life ---- */
size_t kube_spaces_leave(struct kube_spaces *s, char why[256])
{
    size_t n = 0;

    if (!s->leaving) {
        s->leaving = true;
        if (s->rq)
            kube_cancel(s->rq);
        s->rq = NULL;
        round_begin(s);
        soon(s);
    }
    list_for_each (it, &s->all)
        n += container_of(it, struct space, link)->found;
    str_copy(why, 256, s->why);
    return n ? n : !s->over || s->failed;
}

void kube_spaces_update(struct kube_spaces *s, const struct object *doc)
{
    s->doc = doc;
    if (s->rq)
        kube_cancel(s->rq);
    s->rq = NULL;
    round_begin(s);
    soon(s);
}

void kube_spaces_reached(struct kube_spaces *s)
{
    s->reached = true;
    round_begin(s);
    soon(s);
}

void kube_spaces_lost(struct kube_spaces *s)
{
    if (s->rq)
        kube_cancel(s->rq);
    s->rq = NULL;
    s->reached = false;
    timer_stop(&s->timer);
}

struct kube_spaces *kube_spaces_create(const struct kube_spaces_env *env)
{
    struct kube_spaces *s = mem_new(struct kube_spaces);

    s->env = *env;
    s->doc = env->doc;
    list_init(&s->all);
    timer_init(&s->timer, env->base->env.loop, on_timer, s);
    return s;
}

struct kube_spaces *kube_spaces_destroy(struct kube_spaces *s)
{
    if (!s)
        return NULL;
    kube_spaces_lost(s);
    spaces_drop(s);
    mem_free(s);
    return NULL;
}
