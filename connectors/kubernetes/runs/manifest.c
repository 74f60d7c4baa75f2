/* An order as a Job, with the Secret that it needs, and the Service by whose name the ranks of a
 * gang find each other. What cannot be carried over is refused with a sentence. */
#include "connectors/kubernetes/manifests/overlay.h"
#include "connectors/kubernetes/runs/runs_internal.h"

#include "connectors/program/script.h"

#include <stdio.h>
#include <string.h>

#define DIR "/.hanse"
#define SECRET_DIR "/.hanse-secret"
#define NODE_DIR "/.hanse-node"
#define ARGS_MAX 2048
#define END_ROOM_MS 10000 /* the runner tells its end within this, once its program has ended */
#define MEET_PORT 29500   /* of rank 0, in a network of its pod's own */
#define ANNOTATIONS_MAX ((size_t)240000)

bool kube_calls_home(const struct target_spec *s)
{
    return s->connection && s->connection->runners;
}

struct making {
    const struct kube_runs_env *env;
    const struct target_spec *spec;
    const struct target_kubernetes *k; /* never NULL */
    const struct run_order *o;
    struct arena *a;
    const char *mark;
    char key[RUN_KEY_MAX];
    struct home_brought home;
    bool calls;           /* its runners call home */
    const char **tokens;  /* NULL: none sign */
    const char *resource; /* that each pod gets some of; NULL: no devices */
    int64_t count;
    cJSON *foreign; /* a manifest that its workload carries; NULL: it says a command */
    struct kube_overlay overlay;
    struct kube_manifest *m;
};

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

static const char *node_of(const struct making *x, const char *name)
{
    const char *target = x->env->base->target;
    size_t n = strlen(target);

    return strncmp(name, target, n) == 0 && name[n] == '.' ? name + n + 1 : name;
}

static bool is_foreign(const struct run_order *o)
{
    return o->manifest && *o->manifest;
}

/* ---- what can be carried over ---- */
static int program_check(const struct making *x, struct err *err)
{
    const struct run_order *o = x->o;
    const char *target = x->env->base->target;
    uint32_t n = 0;

    while (o->argv && o->argv[n])
        n++;
    if (!*o->image && !*x->k->image)
        return err_field(err, E_NOTIMPL, "spec.run.image",
                         "target %.100s starts pods, and neither this workload nor "
                         "spec.kubernetes.image of the Target names an image",
                         target);
    if (!n && !*o->script)
        return err_field(err, E_NOTIMPL, "spec.run.command",
                         "an image without a command: what it would start by itself is not known "
                         "here, and the runner that starts it has to be told");
    if (n > ARGS_MAX)
        return err_field(err, E_TOOLARGE, "spec.run.args", "more than %d arguments", ARGS_MAX);
    if (!x->k->runner || (!*x->k->runner->image && !*x->k->runner->hostPath))
        return err_field(err, E_NOTIMPL, "spec.kubernetes.runner",
                         "target %.100s does not say how hanse-run comes into pods: name its "
                         "image, or a hostPath",
                         target);
    return script_check(o->script, err);
}

static int order_check(const struct making *x, struct err *err)
{
    const struct run_order *o = x->o;
    const char *target = x->env->base->target;

    if (o->tenants == TENANTS_NEED_SEPARATE)
        return err_field(err, E_NOTIMPL, "spec.isolation.tenants",
                         "separate: the images of pods say whose user their programs are, and "
                         "target %.100s cannot promise another one for each namespace",
                         target);
    if (o->span)
        return err_set(err, E_NOTIMPL, "target %.100s takes gangs whole", target);
    return is_foreign(o) ? 0 : program_check(x, err);
}

/* What lies in no volume of the pod goes with it. Stores of objects are no folders. */
static int folder_check(const struct making *x, const char *path, struct err *err)
{
    if (*path != '/')
        return 0;
    for (uint32_t i = 0; i < x->k->n_volumes; i++) {
        size_t n = strlen(x->k->volumes[i].path);
        if (strncmp(path, x->k->volumes[i].path, n) == 0 && (!path[n] || path[n] == '/'))
            return 0;
    }
    return err_field(err, E_NOTIMPL, "spec.kubernetes.volumes",
                     "%.200s lies in no volume that pods of target %.100s have: what they save "
                     "there would go with them",
                     path, x->env->base->target);
}

/* All pods of a Job are of one form. */
static int devices_check(struct making *x, struct err *err)
{
    const struct placement *p = x->o->placement;
    const struct assignment *first = &p->assignments[0];

    for (uint32_t i = 0; i < p->n_assignments; i++) {
        const struct assignment *at = &p->assignments[i];
        const char *mig = at->mig ? at->mig : "", *had = first->mig ? first->mig : "";
        if (at->n_gpus)
            return err_set(err, E_INVALID,
                           "devices by number: the kubelet of %.200s picks them itself", at->node);
        if (at->count != first->count || at->shares != first->shares || strcmp(mig, had) != 0)
            return err_set(err, E_NOTIMPL, "its workers do not all get the same devices");
        if (!at->count)
            continue;
        const char *name =
            x->env->resource ? x->env->resource(x->env->base, at->node, mig, at->shares) : NULL;
        if (!name)
            return err_set(err, E_UNAVAIL, "node %.200s does not count such devices any more",
                           at->node);
        name = arena_strdup(x->a, name);
        if (x->resource && strcmp(x->resource, name) != 0)
            return err_set(err, E_NOTIMPL,
                           "its nodes call their devices %.80s and %.80s, and all pods of a Job "
                           "ask for the same",
                           x->resource, name);
        x->resource = name;
        x->count = at->count;
    }
    return 0;
}

static int tokens_make(struct making *x, struct err *err)
{
    const struct connector_env *e = &x->env->base->env;
    int rc = home_order_make(e, x->env->base->target, kube_calls_home(x->spec), x->o, x->a,
                             &x->home, err);

    if (rc < 0)
        return rc;
    x->calls = rc > 0;
    x->tokens = x->calls ? x->home.way.tokens : NULL;
    if (!x->calls && (!e->tokens || !e->tokens(e->arg, &x->o->key, x->o->placement->n_assignments,
                                               x->a, &x->tokens)))
        return err_set(err, E_UNAVAIL,
                       "this hub makes no tokens, by which the runners of target %.100s would sign "
                       "what they tell",
                       x->env->base->target);
    return 0;
}

/* ---- the container of its program ---- */
/* Kubernetes replaces $(NAME) in a command; two $ stand for one. */
static void arg_in(cJSON *list, const char *s)
{
    AUTO_BUF text;

    buf_init(&text, (size_t)1 << 20);
    for (; *s; s++)
        buf_str(&text, *s == '$' ? "$$" : (const char[]){*s, '\0'});
    cJSON_AddItemToArray(list, cJSON_CreateString(text.n ? text.p : ""));
}

static void option_in(cJSON *list, const char *name, const char *value)
{
    arg_in(list, name);
    if (value)
        arg_in(list, value);
}

static void home_in(const struct making *x, cJSON *command)
{
    AUTO_BUF list;

    buf_init(&list, 65536);
    if (!x->calls)
        return;
    for (uint32_t i = 0; i < x->home.way.n_addresses; i++)
        buf_printf(&list, "%s%s", i ? "," : "", x->home.way.addresses[i]);
    option_in(command, "--home", list.n ? list.p : "");
    if (*x->home.way.proxy)
        option_in(command, "--home-proxy", x->home.way.proxy);
}

static void command_in(const struct making *x, cJSON *container)
{
    const struct run_order *o = x->o;
    cJSON *v = cJSON_AddArrayToObject(container, "command");
    const char *script[SCRIPT_ARGS];
    size_t n = *o->script ? script_argv(o->script, DIR "/bin/script", x->a, script) : 0;

    option_in(v, DIR "/bin/hanse-run", NULL);
    option_in(v, "--installed", DIR);
    home_in(x, v);
    option_in(v, "--report", "termination-message");
    option_in(v, "--grace", arena_printf(x->a, "%llu", (unsigned long long)o->grace_ms));
    if (o->start_by_ms) {
        option_in(v, "--start-from", arena_printf(x->a, "%lld", (long long)o->start_from_ms));
        option_in(v, "--start-by", arena_printf(x->a, "%lld", (long long)o->start_by_ms));
    }
    for (uint32_t i = 0; i < x->home.n_options; i++)
        arg_in(v, x->home.options[i]);
    arg_in(v, "--");
    for (size_t i = 0; i < n; i++)
        arg_in(v, script[i]);
    for (uint32_t i = 0; o->argv && o->argv[i]; i++)
        arg_in(v, o->argv[i]);
}

/* A quota may want each container to say what it needs; one that runs ahead of another takes
 * nothing more by the same. */
static void resources_in(const struct making *x, cJSON *container, bool devices)
{
    const struct run_order *o = x->o;
    cJSON *r = object_in(container, "resources"), *limits = object_in(r, "limits");
    cJSON *requests = object_in(r, "requests");

    if (o->cpu_milli)
        text_in(requests, "cpu", arena_printf(x->a, "%lldm", (long long)o->cpu_milli));
    if (o->memory_bytes) {
        const char *bytes = arena_printf(x->a, "%lld", (long long)o->memory_bytes);
        text_in(requests, "memory", bytes);
        text_in(limits, "memory", bytes);
    }
    if (x->resource && devices) {
        const char *count = arena_printf(x->a, "%lld", (long long)x->count);
        text_in(requests, x->resource, count);
        text_in(limits, x->resource, count);
    }
}

static void mount_in(cJSON *list, const char *volume, const char *path, bool read_only)
{
    cJSON *m = item_in(list);

    text_in(m, "name", volume);
    text_in(m, "mountPath", path);
    if (read_only)
        cJSON_AddTrueToObject(m, "readOnly");
}

static void env_text(cJSON *list, const char *name, const char *value)
{
    cJSON *e = item_in(list);

    text_in(e, "name", name);
    text_in(e, "value", value);
}

/* Ahead of what is secret. $NAME of a program's own is none of Kubernetes' here. */
static void meeting_in(const struct making *x, cJSON *env)
{
    if (!x->overlay.service)
        return;
    env_text(env, "MASTER_ADDR",
             arena_printf(x->a, "%s-0.%s.%s.svc", x->m->name, x->m->beside, x->m->ns));
    env_text(env, "MASTER_PORT", arena_printf(x->a, "%d", MEET_PORT));
}

static const char *image_of(const struct making *x)
{
    return *x->o->image ? x->o->image : x->k->image;
}

static void main_in(const struct making *x, cJSON *list, cJSON *env)
{
    cJSON *c = item_in(list);

    text_in(c, "name", KUBE_CONTAINER);
    text_in(c, "image", image_of(x));
    command_in(x, c);
    if (*x->o->cwd)
        text_in(c, "workingDir", x->o->cwd);
    cJSON_AddItemToObject(c, "env", env);
    resources_in(x, c, true);
    text_in(c, "terminationMessagePolicy", "File");
    cJSON *mounts = cJSON_AddArrayToObject(c, "volumeMounts");
    mount_in(mounts, "hanse", DIR, false);
    for (uint32_t i = 0; i < x->k->n_volumes; i++)
        mount_in(mounts, arena_printf(x->a, "volume-%u", i), x->k->volumes[i].path, false);
}

/* ---- the container that brings the runner ---- */
static void install_in(const struct making *x, cJSON *list)
{
    static const char *const args[] = {"install", "--from", SECRET_DIR, "--to", DIR};
    const struct kubernetes_runner *from = x->k->runner;
    bool on_node = from && *from->hostPath;
    cJSON *c = item_in(list), *v;

    text_in(c, "name", "hanse-install");
    text_in(c, "image", on_node || !from ? image_of(x) : from->image);
    v = cJSON_AddArrayToObject(c, on_node ? "command" : "args");
    if (on_node)
        arg_in(v, NODE_DIR "/hanse-run");
    for (size_t i = 0; i < sizeof args / sizeof *args; i++)
        arg_in(v, args[i]);
    resources_in(x, c, false);
    v = cJSON_AddArrayToObject(c, "volumeMounts");
    mount_in(v, "hanse", DIR, false);
    mount_in(v, "hanse-secret", SECRET_DIR, true);
    if (on_node)
        mount_in(v, "hanse-node", NODE_DIR, true);
}

static void volumes_in(const struct making *x, cJSON *pod)
{
    cJSON *list = cJSON_AddArrayToObject(pod, "volumes"), *v = item_in(list), *s;

    text_in(v, "name", "hanse");
    s = object_in(v, "emptyDir");
    text_in(s, "medium", "Memory");
    text_in(s, "sizeLimit", "128Mi");
    v = item_in(list);
    text_in(v, "name", "hanse-secret");
    text_in(object_in(v, "secret"), "secretName", x->m->beside);
    if (x->k->runner && *x->k->runner->hostPath) {
        v = item_in(list);
        text_in(v, "name", "hanse-node");
        s = object_in(v, "hostPath");
        text_in(s, "path", x->k->runner->hostPath);
        text_in(s, "type", "Directory");
    }
    for (uint32_t i = 0; i < x->k->n_volumes; i++) {
        const struct kubernetes_volume *from = &x->k->volumes[i];
        v = item_in(list);
        text_in(v, "name", arena_printf(x->a, "volume-%u", i));
        s = object_in(v, *from->claim ? "persistentVolumeClaim" : "hostPath");
        if (*from->claim) {
            text_in(s, "claimName", from->claim);
        } else {
            text_in(s, "path", from->hostPath);
            text_in(s, "type", "Directory");
        }
    }
}

/* ---- the pod ---- */
static int pod_in(const struct making *x, cJSON *template, cJSON *env, struct err *err)
{
    cJSON *meta = object_in(template, "metadata"), *pod = object_in(template, "spec");
    int64_t grace_s = ((int64_t)x->o->grace_ms + END_ROOM_MS + 999) / 1000;

    kube_labels_in(&x->overlay, meta, true);
    text_in(object_in(meta, "annotations"), KUBE_MARK_ANNOTATION, x->mark);
    cJSON_AddItemToObject(meta, "finalizers", kube_finalizers());
    text_in(item_in(cJSON_AddArrayToObject(pod, "schedulingGates")), "name", KUBE_GATE);
    text_in(pod, "restartPolicy", "Never");
    cJSON_AddNumberToObject(pod, "terminationGracePeriodSeconds", (double)grace_s);
    cJSON_AddFalseToObject(pod, "automountServiceAccountToken");
    cJSON_AddFalseToObject(pod, "enableServiceLinks");
    if (x->m->service)
        text_in(pod, "subdomain", x->m->beside);
    kube_names_in(&x->overlay, pod);
    install_in(x, cJSON_AddArrayToObject(pod, "initContainers"));
    main_in(x, cJSON_AddArrayToObject(pod, "containers"), env);
    volumes_in(x, pod);
    kube_security_in(x->k, pod);
    return kube_tolerations_in(&x->overlay, pod, err);
}

/* ---- the documents ---- */
static cJSON *document(const struct making *x, const char *version, const char *kind,
                       cJSON **ret_meta)
{
    cJSON *o = cJSON_CreateObject();

    text_in(o, "apiVersion", version);
    text_in(o, "kind", kind);
    *ret_meta = object_in(o, "metadata");
    text_in(*ret_meta, "name", strcmp(kind, "Job") == 0 ? x->m->name : x->m->beside);
    text_in(*ret_meta, "namespace", x->m->ns);
    kube_labels_in(&x->overlay, *ret_meta, false);
    text_in(object_in(*ret_meta, "annotations"), KUBE_MARK_ANNOTATION, x->mark);
    return o;
}

static int object_spec_in(struct making *x, cJSON *job, cJSON *env, struct err *err)
{
    cJSON *object = NULL;

    int rc = kube_overlay_object(&x->overlay, x->foreign, &object, err);
    cJSON_Delete(env);
    if (rc == 0)
        rc = kube_anchor_in(x->env, x->o, x->m, object, job, err);
    cJSON_Delete(object);
    return rc;
}

static int job_spec_in(struct making *x, cJSON *job, cJSON *env, struct err *err)
{
    uint32_t ranks = x->o->placement->n_assignments;

    if (x->m->kind)
        return object_spec_in(x, job, env, err);
    cJSON *spec = object_in(job, "spec");
    if (x->foreign) {
        int rc = kube_overlay_job(&x->overlay, x->foreign, ranks, spec, err);
        cJSON_Delete(env);
        kube_security_in(x->k, cJSON_GetObjectItem(cJSON_GetObjectItem(spec, "template"), "spec"));
        return rc;
    }
    text_in(spec, "completionMode", "Indexed");
    cJSON_AddNumberToObject(spec, "completions", ranks);
    cJSON_AddNumberToObject(spec, "parallelism", ranks);
    cJSON_AddNumberToObject(spec, "backoffLimit", 0);
    text_in(spec, "podReplacementPolicy", "Failed");
    return pod_in(x, object_in(spec, "template"), env, err);
}

static int job_make(struct making *x, cJSON *env, struct err *err)
{
    const struct placement *p = x->o->placement;
    const char **nodes = arena_array(x->a, const char *, p->n_assignments + 1);
    cJSON *meta, *job = document(x, "batch/v1", "Job", &meta);
    AUTO_BUF text;

    x->m->job = job;
    if (!x->m->kind)
        kube_overlay_words(x->foreign, meta);
    buf_init(&text, ANNOTATIONS_MAX);
    for (uint32_t i = 0; i < p->n_assignments; i++)
        nodes[i] = node_of(x, p->assignments[i].node);
    kube_nodes_print(nodes, p->n_assignments, &text);
    if (text.failed || text.n + (size_t)KUBE_UID_MAX * p->n_assignments > ANNOTATIONS_MAX) {
        cJSON_Delete(env);
        return err_set(err, E_TOOLARGE,
                       "a gang of %u workers on so many nodes is larger than a Job can say",
                       p->n_assignments);
    }
    text_in(cJSON_GetObjectItemCaseSensitive(meta, "annotations"), KUBE_NODES_ANNOTATION,
            text.n ? text.p : "");
    if (*x->k->queue && !x->m->kind)
        text_in(cJSON_GetObjectItemCaseSensitive(meta, "labels"), "kueue.x-k8s.io/queue-name",
                x->k->queue);
    cJSON_AddItemToObject(meta, "finalizers", kube_finalizers());
    return job_spec_in(x, job, env, err);
}

/* Without an address of its own: its name leads to rank 0, also before that is ready. */
static void service_make(const struct making *x)
{
    cJSON *meta, *s, *spec;

    if (!x->overlay.service)
        return;
    s = document(x, "v1", "Service", &meta);
    spec = object_in(s, "spec");
    text_in(spec, "clusterIP", "None");
    cJSON_AddTrueToObject(spec, "publishNotReadyAddresses");
    text_in(object_in(spec, "selector"), KUBE_RUN_LABEL, x->key);
    x->m->service = s;
}

static int secret_make(const struct making *x, cJSON *env, struct err *err)
{
    cJSON *meta, *data;

    x->m->secret = document(x, "v1", "Secret", &meta);
    text_in(x->m->secret, "type", "Opaque");
    cJSON_AddTrueToObject(x->m->secret, "immutable");
    data = object_in(x->m->secret, "data");
    return kube_secret_make(x->env->base, x->o, x->calls ? &x->home : NULL, x->tokens, data, env,
                            x->m->beside, err);
}

static int mark_make(struct making *x, struct err *err)
{
    const struct connector_env *e = &x->env->base->env;
    int64_t time_ms = 0;
    struct kube_mark m = {.key = x->o->key,
                          .ranks = x->o->placement->n_assignments,
                          .state_rv = e->state_rv ? e->state_rv(e->arg, &time_ms) : 0};
    char *mark = arena_alloc(x->a, KUBE_MARK_MAX);

    str_copy(m.cluster, sizeof m.cluster, e->cluster_uid ? e->cluster_uid(e->arg) : "");
    str_copy(m.place, sizeof m.place, x->m->ns);
    str_copy(m.ns, sizeof m.ns, x->o->ns);
    str_copy(m.name, sizeof m.name, x->o->name);
    x->mark = mark;
    run_key_print(&x->o->key, x->key);
    if (strlen(x->key) > 63)
        return err_set(err, E_INVALID, "its key is longer than a label of Kubernetes: %.100s",
                       x->key);
    int rc = kube_mark_make(&m, e->keys, mark, err);
    INV(rc < 0 || kube_beside_name(e, &m.key, m.place, 0, x->m->beside)); /* by the same keys */
    return rc;
}

static int order_read(struct making *x, struct err *err)
{
    const struct run_order *o = x->o;
    int rc = order_check(x, err);

    if (rc == 0)
        rc = folder_check(x, o->checkpoint_dir, err);
    if (rc == 0)
        rc = folder_check(x, o->resume_path, err);
    if (rc == 0)
        rc = devices_check(x, err);
    if (rc == 0 && is_foreign(o))
        rc = kube_overlay_read(o, x->resource, x->count, &x->foreign, &x->m->kind, err);
    if (rc == 0)
        rc = mark_make(x, err);
    if (rc == 0 && !x->foreign)
        rc = tokens_make(x, err);
    return rc;
}

static int documents_make(struct making *x, struct err *err)
{
    cJSON *env = cJSON_CreateArray();
    int rc;

    x->overlay = (struct kube_overlay){
        .key = x->key,
        .mark = x->mark,
        .k = x->k,
        .priority_class = x->o->priority_class,
        .env = env,
        .service = x->o->placement->n_assignments > 1 && !x->m->kind ? x->m->beside : NULL};
    meeting_in(x, env);
    rc = secret_make(x, env, err);
    if (rc < 0) {
        cJSON_Delete(env);
        return rc;
    }
    service_make(x);
    return job_make(x, env, err);
}

int kube_manifest_make(const struct kube_runs_env *env, const struct run_order *o, struct arena *a,
                       struct kube_manifest *ret, struct err *err)
{
    static const struct target_kubernetes none = {
        .context = "", .image = "", .serviceAccountName = "", .queue = "", .schedulerName = ""};
    const struct target_spec *spec = object_as(env->doc, target)->spec;
    struct making x = {.env = env,
                       .spec = spec,
                       .k = spec->kubernetes ? spec->kubernetes : &none,
                       .o = o,
                       .a = a,
                       .m = ret};
    int rc;

    *ret = (struct kube_manifest){.secret = NULL};
    str_copy(ret->ns, sizeof ret->ns, kube_place_of(spec, o->ns));
    if (o->principal && strlen(o->principal) >= sizeof ret->as)
        return err_set(err, E_INVALID, "a principal of more than %zu letters", sizeof ret->as - 1);
    str_copy(ret->as, sizeof ret->as, o->principal);
    rc = kube_run_name(&o->key, o->placement->n_assignments, ret->name, err);
    if (rc == 0)
        rc = order_read(&x, err);
    if (rc == 0)
        rc = documents_make(&x, err);
    cJSON_Delete(x.foreign);
    if (rc < 0)
        kube_manifest_clear(ret);
    return rc;
}

void kube_manifest_clear(struct kube_manifest *m)
{
    kube_document_wipe(m->secret);
    cJSON_Delete(m->service);
    cJSON_Delete(m->job);
    m->secret = m->service = m->job = NULL;
}
