/* Runs whose pods a controller of others makes (JobSet, PyTorchJob, …). Their Job is an anchor: it
 * makes no pods, and holds what any run's Job holds (name, admission, end, finalizer). What is to
 * be made stands in it, signed; it is made once the Job is there, with it as its owner, by whoever
 * leads then, and again where it is gone before anything was admitted. What is admitted are pods by
 * their uids: so nothing of it begins twice, whoever makes it how often. Must never make, by this
 * hub's right, what this hub has not written. */
#include "connectors/kubernetes/runs/runs_internal.h"

#include <string.h>

#define MAKES_ANNOTATION "hanse.dev/makes"
#define MAKES_MARK_ANNOTATION "hanse.dev/makes-mark"
#define KIND_ANNOTATION "hanse.dev/kind" /* "jobset.x-k8s.io/v1alpha2/JobSet" */
#define ANNOTATIONS_MAX ((size_t)240000) /* of 256 KiB that an API server takes */
#define AGAIN_MS 500
#define LOOK_MS 5000
#define LACKING_TIMES 2 /* so often in a row a kind has to be missing */
#define VERSIONS_MAX 1024

/* ---- kinds ---- */
static const struct manifest_kind *kind_of(const cJSON *job)
{
    const char *text = kube_annotation(job, KIND_ANNOTATION), *kind = strrchr(text, '/');
    char version[128];

    if (!kind || (size_t)(kind - text) >= sizeof version)
        return NULL;
    str_copy(version, (size_t)(kind - text) + 1, text);
    return manifest_kind_find(version, kind + 1);
}

const char *kube_kind_path(const struct manifest_kind *k, struct arena *a)
{
    return arena_printf(a, "/apis/%s/%s", k->group, k->version);
}

bool kube_kind_served(const struct manifest_kind *k, const cJSON *list)
{
    const cJSON *e;

    cJSON_ArrayForEach(e, kube_at(list, "resources"))
    {
        if (strcmp(kube_text(e, "name"), k->plural) == 0)
            return true;
    }
    return false;
}

/* By that version, or by its kind's own. */
static const char *path_of(const struct kube_run *x, const char *version, const char *name,
                           struct arena *a)
{
    const struct manifest_kind *k = x->kind;

    return kube_path(a, arena_printf(a, "apis/%s/%s", k->group, *version ? version : k->version),
                     x->mark.place, k->plural, name);
}

/* ---- into its Job ---- */
static void signed_text(const char *key, const char *place, const char *makes, struct buf *out)
{
    buf_init(out, ANNOTATIONS_MAX + 1024);
    buf_printf(out, "hanse-kube-makes-1/%s/%s/", place, key);
    buf_str(out, makes);
}

/* A Job that makes no pods, and never ends by itself. */
static void nothing_in(cJSON *job)
{
    cJSON *spec = cJSON_Parse(
        "{\"parallelism\":0,\"completions\":1,\"backoffLimit\":0,\"template\":{\"spec\":{"
        "\"restartPolicy\":\"Never\",\"schedulingGates\":[{\"name\":\"" KUBE_GATE "\"}],"
        "\"containers\":[{\"name\":\"" KUBE_CONTAINER "\",\"image\":\"hanse.dev/none\"}]}}}");

    cJSON_AddItemToObject(job, "spec", spec);
}

static int makes_in(const struct kube_runs_env *env, const struct run_order *o,
                    const struct kube_manifest *m, const char *makes, cJSON *job, struct err *err)
{
    cJSON *said = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(job, "metadata"), "annotations");
    size_t rest = strlen(kube_annotation(job, KUBE_NODES_ANNOTATION)) +
                  (size_t)KUBE_UID_MAX * o->placement->n_assignments;
    char key[RUN_KEY_MAX], mark[KUBE_MARK_MAX], version[128];
    AUTO_BUF text = {0};
    AUTO_ARENA a = arena_create(0);

    run_key_print(&o->key, key);
    if (strlen(makes) + rest > ANNOTATIONS_MAX)
        return err_field(err, E_TOOLARGE, "spec.run.manifest",
                         "it is larger than a Job can say: %zu bytes of %zu", strlen(makes),
                         ANNOTATIONS_MAX - rest);
    signed_text(key, m->ns, makes, &text);
    if (text.failed || !kube_sign(text.p, env->base->env.keys, mark))
        return err_set(err, E_UNAVAIL, "this hub has no keys by which it could sign what it makes");
    manifest_kind_version(m->kind, version, sizeof version);
    cJSON_AddStringToObject(said, KIND_ANNOTATION,
                            arena_printf(a, "%s/%s", version, m->kind->kind));
    cJSON_AddStringToObject(said, MAKES_ANNOTATION, makes);
    cJSON_AddStringToObject(said, MAKES_MARK_ANNOTATION, mark);
    return 0;
}

int kube_anchor_in(const struct kube_runs_env *env, const struct run_order *o,
                   const struct kube_manifest *m, cJSON *object, cJSON *job, struct err *err)
{
    const struct connector_env *e = &env->base->env;
    struct kube_mark mark = {.key = o->key};
    cJSON *all, *meta = cJSON_GetObjectItemCaseSensitive(object, "metadata");
    char name[KUBE_NAME_MAX], *text;

    str_copy(mark.cluster, sizeof mark.cluster, e->cluster_uid ? e->cluster_uid(e->arg) : "");
    str_copy(mark.place, sizeof mark.place, m->ns);
    if (!kube_made_name(e->keys, &mark, 0, name))
        return err_set(err, E_UNAVAIL, "this hub has no keys by which it could name what it makes");
    cJSON_AddStringToObject(meta, "name", name);
    cJSON_AddStringToObject(meta, "namespace", m->ns);
    all = cJSON_CreateObject();
    cJSON_AddStringToObject(all, "as", m->as);
    cJSON_AddItemReferenceToObject(all, "object", object);
    text = cJSON_PrintUnformatted(all);
    cJSON_Delete(all);
    nothing_in(job);
    int rc = makes_in(env, o, m, text ? text : "", job, err);
    cJSON_free(text);
    return rc;
}

/* ---- what its Job says ---- */
void kube_anchor_take(struct kube_run *x, const cJSON *job)
{
    const char *makes = kube_annotation(job, MAKES_ANNOTATION);
    char key[RUN_KEY_MAX];
    AUTO_BUF text = {0};

    x->kind = kind_of(job);
    x->foreign |= x->kind != NULL;
    if (!x->kind || x->admitted)
        makes = "";
    if (strcmp(x->makes ? x->makes : "", makes) == 0)
        return;
    mem_free(x->makes);
    x->makes = NULL;
    if (!*makes)
        return;
    run_key_print(&x->key, key);
    signed_text(key, x->mark.place, makes, &text);
    if (!text.failed &&
        kube_signed(text.p, kube_annotation(job, MAKES_MARK_ANNOTATION), x->r->env.base->env.keys))
        x->makes = mem_strdup(makes);
}

/* ---- making it ---- */
static void trouble_set(struct kube_run *x, const char *text)
{
    mem_free(x->trouble);
    x->trouble = *text ? mem_strdup(text) : NULL;
}

/* Nothing is admitted of it any more: its Job is undone as it was read. */
static void refuse(struct kube_run *x, const char *why)
{
    x->refused = true;
    trouble_set(x, why);
    kube_run_touch(x);
}

static void again(struct kube_run *x)
{
    x->again_ms = loop_now_ms(x->r->env.base->env.loop) + AGAIN_MS;
    kube_run_later(x, AGAIN_MS);
}

/* ---- a kind that its cluster has no more ---- */
/* Whoever takes a definition away takes what there is of its kind: such an object is gone, and none
 * can be made. Of that a path which is not there says nothing (it may be of another version by now,
 * or of a server that does not answer): it is believed of the cluster's own lists, of its groups
 * and of what each version of that group has, and not of the first look. */
void kube_kind_look_end(struct kube_kind_look *l)
{
    mem_free(l->versions);
    *l = (struct kube_kind_look){.versions = NULL};
}

static struct kube_kind_look *look_of(struct kube_run *x, struct kube_work *work)
{
    return work ? &work->kind_look : &x->kind_look;
}

/* From the object on, in a while. */
static void kind_again(struct kube_run *x, struct kube_work *work)
{
    if (work)
        kube_work_again(work, kube_ask_go);
    else
        again(x);
}

static void kind_unsaid(struct kube_run *x, struct kube_work *work, const struct kube_answer *a)
{
    kube_kind_look_end(look_of(x, work));
    if (!work || !a || !kube_work_throttled(work, a, kube_ask_go))
        kind_again(x, work);
}

static void kind_is_gone(struct kube_run *x, struct kube_work *work)
{
    const struct manifest_kind *k = x->kind;
    AUTO_ARENA a = arena_create(0);

    kube_kind_look_end(look_of(x, work));
    if (++x->lacking < LACKING_TIMES) {
        kind_again(x, work);
    } else if (work) {
        x->unmade = true;
        kube_ask_look(work);
    } else {
        refuse(x, arena_printf(a,
                               "target %.100s serves no %s of %s/%s any more: its definition was "
                               "taken from the cluster",
                               x->r->env.base->target, k->kind, k->group, k->version));
    }
}

/* By the version that was asked last. What was written for another one cannot be made by it, but it
 * can be taken away. */
static void kind_is_there(struct kube_run *x, struct kube_work *work)
{
    const struct manifest_kind *k = x->kind;
    struct kube_kind_look *l = look_of(x, work);
    bool own = strcmp(l->version, k->version) == 0;
    AUTO_ARENA a = arena_create(0);

    x->lacking = 0;
    if (own || work)
        kind_again(x, work);
    else
        refuse(x, arena_printf(a, "target %.100s serves %s of %s by %s, and no more by %s",
                               x->r->env.base->target, k->kind, k->group, l->version, k->version));
    if (own || !work)
        kube_kind_look_end(l);
}

static void kind_ask(struct kube_run *x, struct kube_work *work, const char *path,
                     void (*done)(struct kube_step *s, const struct kube_answer *a))
{
    bool sent = kube_step(x->r, &(struct kube_step_ask){.work = work,
                                                        .key = &x->key,
                                                        .method = "GET",
                                                        .path = path,
                                                        .idempotent = true,
                                                        .done = done});

    if (!work)
        x->busy = sent;
    if (!sent)
        kind_unsaid(x, work, NULL);
}

/* NULL: it stands for nothing any more, and whoever asked begins again. */
static struct kube_run *asked_of(const struct kube_step *s)
{
    struct kube_run *x = kube_run_find(s->r, &s->key);

    if (x && !s->work)
        x->busy = false;
    if (x && x->kind)
        return x;
    if (s->work)
        kube_work_again(s->work, kube_ask_go);
    return NULL;
}

static void version_came(struct kube_step *s, const struct kube_answer *a);

static void version_ask(struct kube_run *x, struct kube_work *work)
{
    struct kube_kind_look *l = look_of(x, work);
    size_t n = l->versions ? strcspn(l->versions, " ") : 0;
    AUTO_ARENA a = arena_create(0);

    if (!n) {
        kind_is_gone(x, work);
        return;
    }
    str_copy(l->version, n + 1 < sizeof l->version ? n + 1 : sizeof l->version, l->versions);
    memmove(l->versions, l->versions + n + 1, strlen(l->versions + n));
    kind_ask(x, work, arena_printf(a, "/apis/%s/%s", x->kind->group, l->version), version_came);
}

static bool is_list(const struct kube_answer *a, const char *kind)
{
    return a->out == OUT_DONE && strcmp(kube_text(a->body, "kind"), kind) == 0;
}

static void version_came(struct kube_step *s, const struct kube_answer *a)
{
    struct kube_run *x = asked_of(s);

    if (!x)
        return;
    if (!is_list(a, "APIResourceList"))
        kind_unsaid(x, s->work, a);
    else if (kube_kind_served(x->kind, a->body))
        kind_is_there(x, s->work);
    else
        version_ask(x, s->work);
}

static void groups_came(struct kube_step *s, const struct kube_answer *a)
{
    struct kube_run *x = asked_of(s);
    const cJSON *g, *v;
    AUTO_BUF versions = {0};

    if (!x)
        return;
    if (!is_list(a, "APIGroupList")) {
        kind_unsaid(x, s->work, a);
        return;
    }
    buf_init(&versions, VERSIONS_MAX);
    cJSON_ArrayForEach(g, kube_at(a->body, "groups"))
    {
        if (strcmp(kube_text(g, "name"), x->kind->group) != 0)
            continue;
        cJSON_ArrayForEach(v, kube_at(g, "versions"))
        {
            buf_printf(&versions, "%s ", kube_text(v, "version"));
        }
    }
    if (versions.failed) {
        kind_unsaid(x, s->work, a);
        return;
    }
    struct kube_kind_look *l = look_of(x, s->work);
    kube_kind_look_end(l);
    l->versions = versions.n ? mem_strdup(versions.p) : NULL;
    version_ask(x, s->work);
}

void kube_anchor_kind(struct kube_run *x, struct kube_work *work)
{
    kind_ask(x, work, "/apis", groups_came);
}

static bool is_owned(const struct kube_run *x, const cJSON *object)
{
    const cJSON *o;

    cJSON_ArrayForEach(o, kube_at(object, "metadata.ownerReferences"))
    {
        if (strcmp(kube_text(o, "uid"), x->uid) == 0)
            return true;
    }
    return false;
}

static void is_there(struct kube_run *x, const cJSON *object)
{
    bool suspended = cJSON_IsTrue(kube_at(object, "spec.suspend")) ||
                     cJSON_IsTrue(kube_at(object, "spec.runPolicy.suspend"));

    x->made = true;
    x->lacking = 0;
    x->queued = suspended;
    if (kube_condition_is(object, "Failed"))
        trouble_set(x, kube_condition_message(object, "Failed"));
    kube_run_touch(x);
}

static void got(struct kube_step *s, const struct kube_answer *a)
{
    struct kube_run *x = kube_run_find(s->r, &s->key);

    if (!x)
        return;
    x->busy = false;
    if (a->out == OUT_DONE && is_owned(x, a->body) && !kube_deleting(a->body)) {
        is_there(x, a->body);
    } else if (a->out == OUT_DONE && !kube_deleting(a->body)) {
        refuse(x, "an object of somebody else has the name that it would have");
    } else if (kube_no_path(a)) {
        kube_anchor_kind(x, NULL);
    } else {
        if (strcmp(a->reason, "NotFound") == 0)
            x->made = false;
        again(x);
    }
}

/* By the name that it was given when it was ordered. */
static void look(struct kube_run *x)
{
    cJSON *all = x->makes ? cJSON_Parse(x->makes) : NULL;
    const char *name = kube_text(all, "object.metadata.name");
    AUTO_ARENA a = arena_create(0);

    if (*name)
        x->busy = kube_step(x->r, &(struct kube_step_ask){.key = &x->key,
                                                          .method = "GET",
                                                          .path = path_of(x, "", name, a),
                                                          .idempotent = true,
                                                          .done = got});
    cJSON_Delete(all);
}

static void made(struct kube_step *s, const struct kube_answer *a)
{
    struct kube_run *x = kube_run_find(s->r, &s->key);

    if (!x)
        return;
    x->busy = false;
    if (a->out == OUT_DONE)
        is_there(x, a->body);
    else if (strcmp(a->reason, "AlreadyExists") == 0)
        look(x);
    else if (kube_no_path(a))
        kube_anchor_kind(x, NULL);
    else if (a->out == OUT_REJECTED && a->status >= 400 && a->status != 401 && a->status != 409 &&
             a->status != 429)
        refuse(x, a->err->text);
    else
        again(x);
}

/* Its pods say by which Job they were asked for, wherever their templates stand. */
static void anchors_in(cJSON *o, const char *uid)
{
    for (cJSON *e = o->child; e; e = e->next) {
        if (e->string && strcmp(e->string, KUBE_ANCHOR_ANNOTATION) == 0 && cJSON_IsString(e))
            (void)cJSON_SetValuestring(e, uid);
        else
            anchors_in(e, uid);
    }
}

/* The garbage collector takes it with its Job; no controller of either is told by that. */
static void owner_in(const struct kube_run *x, cJSON *object)
{
    cJSON *meta = cJSON_GetObjectItemCaseSensitive(object, "metadata");
    cJSON *list = cJSON_AddArrayToObject(meta, "ownerReferences"), *o = cJSON_CreateObject();

    cJSON_AddItemToArray(list, o);
    cJSON_AddStringToObject(o, "apiVersion", "batch/v1");
    cJSON_AddStringToObject(o, "kind", "Job");
    cJSON_AddStringToObject(o, "name", x->name);
    cJSON_AddStringToObject(o, "uid", x->uid);
}

static void make(struct kube_run *x)
{
    cJSON *all = cJSON_Parse(x->makes), *object = cJSON_GetObjectItemCaseSensitive(all, "object");
    AUTO_ARENA a = arena_create(0);

    INV(object); /* this hub has written it */
    anchors_in(object, x->uid);
    owner_in(x, object);
    x->busy = kube_step(x->r, &(struct kube_step_ask){.key = &x->key,
                                                      .method = "POST",
                                                      .path = path_of(x, "", "", a),
                                                      .type = KUBE_JSON,
                                                      .body = object,
                                                      .idempotent = true,
                                                      .as = kube_text(all, "as"),
                                                      .done = made});
    cJSON_Delete(all);
}

bool kube_anchor_step(struct kube_run *x)
{
    if (!x->kind || x->made)
        return true;
    if (!x->makes)
        refuse(x, "what its Job says is to be made was not written by this hub");
    else
        make(x);
    return false;
}

void kube_anchor_look(struct kube_run *x)
{
    uint64_t now = loop_now_ms(x->r->env.base->env.loop);

    if (now < x->made_look_ms) {
        kube_run_later(x, x->made_look_ms - now);
        return;
    }
    x->made_look_ms = now + LOOK_MS;
    kube_run_later(x, LOOK_MS);
    look(x);
}

/* ---- taking it away ---- */
int kube_anchor_drop(struct kube_run *x, struct kube_work *work,
                     void (*done)(struct kube_step *s, const struct kube_answer *a))
{
    char name[KUBE_NAME_MAX];
    cJSON *body;
    AUTO_ARENA a = arena_create(0);

    if (!kube_made_name(x->r->env.base->env.keys, &x->mark, (unsigned)work->at, name))
        return 0;
    body = cJSON_CreateObject();
    cJSON_AddStringToObject(body, "apiVersion", "v1");
    cJSON_AddStringToObject(body, "kind", "DeleteOptions");
    cJSON_AddStringToObject(body, "propagationPolicy", "Background");
    bool sent = kube_step(
        x->r, &(struct kube_step_ask){.work = work,
                                      .key = &x->key,
                                      .method = "DELETE",
                                      .path = path_of(x, work->kind_look.version, name, a),
                                      .type = KUBE_JSON,
                                      .body = body,
                                      .idempotent = true,
                                      .done = done});
    cJSON_Delete(body);
    return sent ? 1 : -1;
}
