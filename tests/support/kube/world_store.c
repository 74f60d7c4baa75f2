/* The API server of kube_world.h: objects with their rules. */
#include "connectors/kubernetes/client/client.h"
#include "tests/support/kube/kube_world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kube_world kube_world;
#define W kube_world

void kube_world_break(const char *fmt, ...)
{
    va_list ap;

    if (*W.broken)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(W.broken, sizeof W.broken, fmt, ap);
    va_end(ap);
}

uint64_t kube_world_below(uint64_t n)
{
    W.random ^= W.random << 13;
    W.random ^= W.random >> 7;
    W.random ^= W.random << 17;
    return n ? (W.random >> 11) % n : 0;
}

int kube_world_number(const char *text)
{
    return (int)strtol(text, NULL, 10);
}

/* ---- documents ---- */
static cJSON *get(cJSON *o, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(o, name);
}

static cJSON *meta_of(const struct kube_object *o)
{
    return get(o->doc, "metadata");
}

static void set(cJSON *o, const char *name, cJSON *v)
{
    cJSON_DeleteItemFromObjectCaseSensitive(o, name);
    cJSON_AddItemToObject(o, name, v);
}

static void set_text(cJSON *o, const char *name, const char *v)
{
    set(o, name, cJSON_CreateString(v));
}

int64_t kube_world_wall_ms(void)
{
    return loop_wall_ms(W.loop) + W.api_ahead_ms;
}

static const char *now_text(char ret[32])
{
    time_print(kube_world_wall_ms() / 1000 * 1000, ret);
    return ret;
}

cJSON *kube_world_status(int code, const char *reason, const char *message)
{
    cJSON *s = cJSON_CreateObject();

    cJSON_AddStringToObject(s, "kind", "Status");
    cJSON_AddStringToObject(s, "apiVersion", "v1");
    cJSON_AddStringToObject(s, "status", code < 300 ? "Success" : "Failure");
    cJSON_AddStringToObject(s, "message", message);
    cJSON_AddStringToObject(s, "reason", reason);
    cJSON_AddNumberToObject(s, "code", code);
    return s;
}

static void rv_next(struct kube_object *o)
{
    char text[32];

    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)++W.rv);
    set_text(meta_of(o), "resourceVersion", text);
}

void kube_world_changed(struct kube_object *o)
{
    rv_next(o);
    kube_world_event("MODIFIED", o);
}

void kube_world_remove(struct kube_object *o)
{
    rv_next(o);
    kube_world_event("DELETED", o);
    list_remove(&o->link);
    cJSON_Delete(o->doc);
    mem_free(o);
}

struct kube_object *kube_world_find(const char *kind, const char *ns, const char *name)
{
    list_for_each (it, &W.objects) {
        struct kube_object *o = container_of(it, struct kube_object, link);
        if (!strcmp(o->kind, kind) && !strcmp(kube_text(o->doc, "metadata.name"), name) &&
            !strcmp(kube_text(o->doc, "metadata.namespace"), ns))
            return o;
    }
    return NULL;
}

struct kube_object *kube_world_put(const char *kind, cJSON *doc)
{
    static const char *const kinds[] = {"jobs",        "pods",           "secrets",
                                        "services",    "nodes",          "events",
                                        "namespaces",  "networkpolicies", "pytorchjobs"};
    struct kube_object *o = mem_new(struct kube_object);
    char uid[40], at[32];

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i], kind))
            o->kind = kinds[i];
    INV(o->kind && get(doc, "metadata"));
    o->doc = doc;
    (void)snprintf(uid, sizeof uid, "0000-uid-%llu-", (unsigned long long)++W.uids);
    set_text(meta_of(o), "uid", uid);
    set_text(meta_of(o), "creationTimestamp", now_text(at));
    rv_next(o);
    list_push(&W.objects, &o->link);
    kube_world_event("ADDED", o);
    return o;
}

unsigned kube_world_count(const char *kind)
{
    unsigned n = 0;

    list_for_each (it, &W.objects)
        n += !strcmp(container_of(it, struct kube_object, link)->kind, kind);
    return n;
}

bool kube_world_matches(const cJSON *doc, const char *ns, const char *selector)
{
    static const char by_uid[] = "involvedObject.uid%3D";
    const char *uid = strstr(selector, by_uid);

    if (*ns && strcmp(kube_text(doc, "metadata.namespace"), ns) != 0)
        return false;
    if (uid) {
        const char *of = kube_text(doc, "involvedObject.uid");
        uid += sizeof by_uid - 1;
        if (strlen(of) != strcspn(uid, "&,") || strncmp(uid, of, strlen(of)) != 0)
            return false;
    }
    if (strstr(selector, "labelSelector=hanse.dev%2Ftarget")) {
        const char *value = strstr(selector, "%3D") + 3, *of = kube_label(doc, "hanse.dev/target");
        return strlen(of) == strcspn(value, "&") && !strncmp(value, of, strlen(of));
    }
    return !strstr(selector, "labelSelector=hanse.dev") || *kube_label(doc, "hanse.dev/key");
}

/* ---- deletion ---- */
static bool is_pod(const struct kube_object *o)
{
    return !strcmp(o->kind, "pods");
}

static bool is_final_grace(const struct kube_object *o)
{
    const cJSON *grace = kube_at(o->doc, "metadata.deletionGracePeriodSeconds");

    return !is_pod(o) || (cJSON_IsNumber(grace) && grace->valueint == 0);
}

void kube_world_collect(struct kube_object *o)
{
    if (kube_deleting(o->doc) && is_final_grace(o) &&
        cJSON_GetArraySize(kube_at(o->doc, "metadata.finalizers")) == 0)
        kube_world_remove(o);
}

static int64_t own_grace(const struct kube_object *o)
{
    const char *phase = kube_text(o->doc, "status.phase");
    const cJSON *own = kube_at(o->doc, "spec.terminationGracePeriodSeconds");

    if (!*kube_text(o->doc, "spec.nodeName") || !strcmp(phase, "Failed") ||
        !strcmp(phase, "Succeeded"))
        return 0;
    return cJSON_IsNumber(own) ? own->valueint : 30;
}

void kube_world_delete(struct kube_object *o, int64_t grace_s)
{
    const cJSON *had = kube_at(o->doc, "metadata.deletionGracePeriodSeconds");
    int64_t own = is_pod(o) ? own_grace(o) : 0;
    int64_t asked = kube_world_wall_ms() / 1000 * 1000;
    char at[32];

    if (is_pod(o)) {
        grace_s = grace_s < 0 || own == 0 ? own : grace_s;
        if (cJSON_IsNumber(had) && had->valueint < grace_s)
            grace_s = had->valueint; /* it is never made longer */
        if (cJSON_IsNumber(had))
            asked = kube_time_ms(kube_text(o->doc, "metadata.deletionTimestamp")) -
                    (int64_t)had->valueint * 1000;
        if (!cJSON_IsNumber(had) || had->valueint != grace_s) {
            time_print(asked + grace_s * 1000, at); /* when the grace is over */
            set(meta_of(o), "deletionGracePeriodSeconds", cJSON_CreateNumber((double)grace_s));
            set_text(meta_of(o), "deletionTimestamp", at);
            kube_world_changed(o);
        }
    } else if (!kube_deleting(o->doc)) {
        set_text(meta_of(o), "deletionTimestamp", now_text(at));
        kube_world_changed(o);
    }
    kube_world_collect(o);
}

/* ---- verbs ---- */
struct place { /* what a path names */
    char kind[32], ns[64], name[128], sub[32];
    const char *query;
};

static bool path_read(const char *url, struct place *p)
{
    static const char *const groups[] = {"/apis/batch/v1", "/apis/kubeflow.org/v1",
                                         "/apis/kubeflow.org/v2", "/apis/networking.k8s.io/v1"};
    const char *at = strstr(url, "/api/v1"), *end;
    char path[512];
    char a[64] = "", b[64] = "", c[64] = "", d[128] = "", e[32] = "";

    for (size_t i = 0; i < sizeof groups / sizeof *groups && !at; i++)
        if ((at = strstr(url, groups[i])))
            at += strlen(groups[i]) - 7;
    if (!at)
        return false;
    at += 7;
    end = at + strcspn(at, "?");
    p->query = *end ? end + 1 : "";
    (void)snprintf(path, sizeof path, "%.*s", (int)(end - at), at);
    int n = sscanf(path, "/%63[^/]/%63[^/]/%63[^/]/%127[^/]/%31[^/]", a, b, c, d, e);
    bool spaced = n >= 3 && !strcmp(a, "namespaces");
    str_copy(p->kind, sizeof p->kind, spaced ? c : a);
    str_copy(p->ns, sizeof p->ns, spaced ? b : "");
    str_copy(p->name, sizeof p->name, spaced ? d : b);
    str_copy(p->sub, sizeof p->sub, e);
    return n >= 1;
}

static void refuse(struct kube_reply *r, int code, const char *reason, const char *message)
{
    cJSON_Delete(r->body);
    r->status = code;
    r->body = kube_world_status(code, reason, message);
}

static void answer(struct kube_reply *r, int code, const struct kube_object *o)
{
    r->status = code;
    r->body = cJSON_Duplicate(o->doc, true);
}

static const char *kind_word(const char *kind)
{
    return !strcmp(kind, "jobs")              ? "Job"
           : !strcmp(kind, "pods")            ? "Pod"
           : !strcmp(kind, "secrets")         ? "Secret"
           : !strcmp(kind, "services")        ? "Service"
           : !strcmp(kind, "nodes")           ? "Node"
           : !strcmp(kind, "events")          ? "Event"
           : !strcmp(kind, "pytorchjobs")     ? "PyTorchJob"
           : !strcmp(kind, "networkpolicies") ? "NetworkPolicy"
                                              : "Namespace";
}

static void create(const struct place *p, cJSON *doc, struct kube_reply *r)
{
    const char *name = kube_text(doc, "metadata.name");

    if (!kube_world_find("namespaces", "", p->ns)) {
        refuse(r, 404, "NotFound", "namespaces not found");
    } else if (kube_world_find(p->kind, p->ns, name)) {
        refuse(r, 409, "AlreadyExists", "it already exists");
    } else if (W.refuse_made && !strcmp(p->kind, "pytorchjobs")) {
        refuse(r, W.refuse_made, W.refuse_made == 422 ? "Invalid" : "InternalError",
               "its webhook says no");
    } else if (W.refuse && !strcmp(p->kind, "jobs") &&
               !kube_annotation(doc, "hanse.dev/tombstone")[0]) {
        refuse(r, W.refuse,
               W.refuse == 403   ? "Forbidden"
               : W.refuse == 422 ? "Invalid"
                                 : "TooManyRequests",
               W.refuse == 403 ? "jobs.batch is forbidden: exceeded quota: q" : "refused");
        r->retry_s = W.refuse == 429 ? 2 : 0;
    } else {
        cJSON *copy = cJSON_Duplicate(doc, true);
        set_text(get(copy, "metadata"), "namespace", p->ns);
        set_text(copy, "kind", kind_word(p->kind));
        cJSON_DeleteItemFromObjectCaseSensitive(copy, "status");
        cJSON_AddObjectToObject(copy, "status");
        answer(r, 201, kube_world_put(p->kind, copy));
    }
}

static void merge(cJSON *to, const cJSON *patch)
{
    const cJSON *e;

    cJSON_ArrayForEach(e, patch)
    {
        cJSON *had = get(to, e->string);
        if (cJSON_IsNull(e)) {
            cJSON_DeleteItemFromObjectCaseSensitive(to, e->string);
        } else if (cJSON_IsObject(e)) {
            if (!cJSON_IsObject(had)) {
                set(to, e->string, cJSON_CreateObject());
                had = get(to, e->string);
            }
            merge(had, e);
        } else {
            set(to, e->string, cJSON_Duplicate(e, true));
        }
    }
}

static bool differs(const cJSON *a, const cJSON *b, const char *path)
{
    return !cJSON_Compare(kube_at(a, path), kube_at(b, path), true) &&
           (kube_at(a, path) || kube_at(b, path));
}

/* What the API server does not let be changed. */
static const char *immutable(const struct kube_object *o, const cJSON *to)
{
    const cJSON *f;
    bool gated = cJSON_GetArraySize(kube_at(o->doc, "spec.schedulingGates")) > 0;

    if (differs(o->doc, to, "metadata.uid") || differs(o->doc, to, "metadata.name"))
        return "metadata.uid: field is immutable";
    if (is_pod(o) && cJSON_GetArraySize(kube_at(to, "spec.schedulingGates")) >
                         cJSON_GetArraySize(kube_at(o->doc, "spec.schedulingGates")))
        return "spec.schedulingGates: only deletion is allowed";
    if (is_pod(o) && !gated && differs(o->doc, to, "spec.affinity"))
        return "spec.affinity: only gated pods may be changed";
    if (!kube_deleting(o->doc))
        return NULL;
    cJSON_ArrayForEach(f, kube_at(to, "metadata.finalizers"))
    {
        bool had = false;
        const cJSON *g;
        cJSON_ArrayForEach(g, kube_at(o->doc, "metadata.finalizers")) had |= cJSON_Compare(f, g, 1);
        if (!had)
            return "metadata.finalizers: no new finalizers can be added";
    }
    return NULL;
}

static void patch(struct kube_object *o, const cJSON *p, struct kube_reply *r)
{
    const char *rv = kube_text(p, "metadata.resourceVersion"), *why;
    cJSON *to;

    if (*rv && strcmp(rv, kube_text(o->doc, "metadata.resourceVersion")) != 0) {
        refuse(r, 409, "Conflict", "the object has been modified");
        return;
    }
    to = cJSON_Duplicate(o->doc, true);
    merge(to, p);
    why = immutable(o, to);
    if (why) {
        refuse(r, 422, "Invalid", why);
        cJSON_Delete(to);
        return;
    }
    if (cJSON_Compare(o->doc, to, true)) { /* nothing has changed, and nobody hears of it */
        cJSON_Delete(to);
        answer(r, 200, o);
        return;
    }
    cJSON_Delete(o->doc);
    o->doc = to;
    kube_world_changed(o);
    answer(r, 200, o);
    kube_world_collect(o);
}

/* Server-side apply of labels and a spec by the one manager that applies here; it forces nothing.
 * What it applied last stands beside the document. */
static void apply(const struct place *p, struct kube_object *o, const cJSON *doc,
                  struct kube_reply *r)
{
    const char *uid = kube_text(doc, "metadata.uid");
    const cJSON *labels = kube_at(doc, "metadata.labels"), *had, *e;
    cJSON *to;

    if (!o && *uid) {
        refuse(r, 409, "Conflict", "uid mismatch: no existing object was found");
        return;
    }
    if (!o) {
        create(p, (cJSON *)(uintptr_t)doc, r);
        o = kube_world_find(p->kind, p->ns, p->name);
        if (o)
            set(o->doc, "applied", cJSON_Duplicate(labels, true));
        return;
    }
    if (*uid && strcmp(uid, kube_text(o->doc, "metadata.uid")) != 0) {
        refuse(r, 409, "Conflict", "Precondition failed: UID in precondition");
        return;
    }
    had = get(o->doc, "applied");
    cJSON_ArrayForEach(e, labels)
    {
        const char *is = kube_label(o->doc, e->string);
        if (*is && strcmp(is, e->valuestring) != 0 &&
            !cJSON_GetObjectItemCaseSensitive(had, e->string)) {
            refuse(r, 409, "Conflict", "Apply failed with 1 conflict: conflict with \"kubectl\"");
            return;
        }
    }
    to = cJSON_Duplicate(o->doc, true);
    cJSON *meta = get(to, "metadata"), *all = get(meta, "labels");
    all = all ? all : cJSON_AddObjectToObject(meta, "labels");
    cJSON_ArrayForEach(e, had) cJSON_DeleteItemFromObjectCaseSensitive(all, e->string);
    cJSON_ArrayForEach(e, labels) set(all, e->string, cJSON_Duplicate(e, true));
    if (kube_at(doc, "spec"))
        set(to, "spec", cJSON_Duplicate(kube_at(doc, "spec"), true));
    set(to, "applied", labels ? cJSON_Duplicate(labels, true) : cJSON_CreateObject());
    if (cJSON_Compare(o->doc, to, true)) {
        cJSON_Delete(to);
    } else {
        cJSON_Delete(o->doc);
        o->doc = to;
        kube_world_changed(o);
    }
    answer(r, 200, o);
}

static void delete (struct kube_object *o, const cJSON *options, struct kube_reply *r)
{
    const char *uid = kube_text(options, "preconditions.uid");
    const char *rv = kube_text(options, "preconditions.resourceVersion");
    const cJSON *grace = kube_at(options, "gracePeriodSeconds");
    char kind[16], ns[64], name[128];

    if ((*uid && strcmp(uid, kube_text(o->doc, "metadata.uid")) != 0) ||
        (*rv && strcmp(rv, kube_text(o->doc, "metadata.resourceVersion")) != 0)) {
        refuse(r, 409, "Conflict", "Precondition failed");
        return;
    }
    str_copy(kind, sizeof kind, o->kind);
    str_copy(ns, sizeof ns, kube_text(o->doc, "metadata.namespace"));
    str_copy(name, sizeof name, kube_text(o->doc, "metadata.name"));
    kube_world_delete(o, cJSON_IsNumber(grace) ? grace->valueint : -1);
    o = kube_world_find(kind, ns, name);
    if (o)
        answer(r, 200, o);
    else
        refuse(r, 200, "", "");
}

static void list(const struct place *p, struct kube_reply *r)
{
    cJSON *l = cJSON_CreateObject(), *meta = cJSON_AddObjectToObject(l, "metadata"), *items;
    const char *at = strstr(p->query, "continue=");
    unsigned long from = at ? strtoul(at + 9, NULL, 10) : 0, n = 0, limit = 0;
    char text[32];

    at = strstr(p->query, "limit=");
    limit = at ? strtoul(at + 6, NULL, 10) : 0;
    items = cJSON_AddArrayToObject(l, "items");
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)W.rv);
    cJSON_AddStringToObject(meta, "resourceVersion", text);
    list_for_each (it, &W.objects) {
        const struct kube_object *o = container_of(it, struct kube_object, link);
        if (strcmp(o->kind, p->kind) != 0 || !kube_world_matches(o->doc, p->ns, p->query))
            continue;
        if (n++ < from)
            continue;
        if (limit && n > from + limit) {
            (void)snprintf(text, sizeof text, "%lu", from + limit);
            cJSON_AddStringToObject(meta, "continue", text);
            break;
        }
        cJSON_AddItemToArray(items, cJSON_Duplicate(o->doc, true));
    }
    r->status = 200;
    r->body = l;
}

static void log_read(const struct place *p, struct kube_reply *r)
{
    str_copy(W.log_asked, sizeof W.log_asked, p->query);
    if (!W.log) {
        refuse(r, 403, "Forbidden", "pods/log is forbidden");
        return;
    }
    r->status = 200;
    r->text = strstr(p->query, "limitBytes=1") ? "x" : W.log;
}

void kube_world_serve(const char *method, const char *url, struct slice body,
                      struct kube_reply *ret)
{
    struct place p = {.query = ""};
    struct kube_object *o;
    cJSON *doc = body.n ? cJSON_ParseWithLength(body.p, body.n) : NULL;

    *ret = (struct kube_reply){.status = 404};
    if (strstr(url, "/version")) {
        ret->status = 200;
        ret->body = cJSON_Parse("{\"major\":\"1\",\"minor\":\"36\",\"gitVersion\":\"v1.36.3\"}");
        cJSON_Delete(doc);
        return;
    }
    if (kube_world_kinds(url, ret)) {
        cJSON_Delete(doc);
        return;
    }
    if (!path_read(url, &p)) {
        refuse(ret, 404, "NotFound", "no such path");
        cJSON_Delete(doc);
        return;
    }
    o = *p.name ? kube_world_find(p.kind, p.ns, p.name) : NULL;
    if (!strcmp(method, "POST"))
        create(&p, doc, ret);
    else if (!*p.name && strstr(p.query, "watch=")) {
        const char *rv = strstr(p.query, "resourceVersion=");
        ret->status = 200;
        ret->watch = true;
        ret->watch_rv = rv ? strtoull(rv + 16, NULL, 10) : 0;
        ret->kind = kind_word(p.kind);
        ret->selector = strstr(p.query, "labelSelector=hanse.dev") ? "labelSelector=hanse.dev" : "";
    } else if (!*p.name)
        list(&p, ret);
    else if (!strcmp(method, "PATCH") && *kube_text(doc, "apiVersion"))
        apply(&p, o, doc, ret);
    else if (!o)
        refuse(ret, 404, "NotFound", "not found");
    else if (!strcmp(p.sub, "log"))
        log_read(&p, ret);
    else if (!strcmp(method, "GET"))
        answer(ret, 200, o);
    else if (!strcmp(method, "PATCH"))
        patch(o, doc, ret);
    else if (!strcmp(method, "DELETE"))
        delete (o, doc, ret);
    else
        refuse(ret, 405, "MethodNotAllowed", "no");
    cJSON_Delete(doc);
}
