/* What a document may say and this build does not act upon. A row per field, or per kind: refused
 * where nobody who writes it today would get what it says, or taken with a warning and the
 * condition Enforced=False where what it says is true all the same. A field in no row is acted
 * upon, or its doc says that it is for people; tests/unit/api/schema/test_promises.c holds
 * every field to one of these.
 *
 * What is stored already stays as it is: only what is newly said is refused. */
#include "api/schema/schema_internal.h"

#include "api/base/net/proxy.h"
#include "api/base/net/url.h"

#include <stdio.h>

#define SPEC(type_) object_as(o, type_)->spec

static bool always(const struct object *o)
{
    return o != NULL;
}

static bool queue_admins(const struct object *o)
{
    return SPEC(queue)->n_admins > 0;
}

static bool queue_hours(const struct object *o)
{
    return SPEC(queue)->gpuHours != NULL;
}

/* "0 may be borrowed" is what lend: false says already. */
static bool lend_limit_idle(const struct object *o)
{
    const struct queue_spec *s = SPEC(queue);

    for (uint32_t i = 0; !s->lend && i < s->n_gpus; i++)
        if (s->gpus[i].lendLimit > 0)
            return true;
    return false;
}

static bool target_undriven(const struct object *o)
{
    return !target_can(SPEC(target)->type, CAN_BE_DRIVEN);
}

static bool target_connection(const struct object *o)
{
    return target_undriven(o) && SPEC(target)->connection;
}

static bool agent_connection(const struct object *o)
{
    return target_can(SPEC(target)->type, CAN_DIAL_IN) && SPEC(target)->connection;
}

static bool callout_unclear(const struct object *o)
{
    const struct target_connection *c = SPEC(target)->connection;
    struct url u;

    if (SPEC(target)->type != TARGET_CALLOUT)
        return false;
    return !c || !c->credentialsFrom || url_parse(c->server, &u, NULL) < 0 ||
           (!u.tls && !u.loopback);
}

/* It starts pods in a principal's name by its own right to do so. */
static bool impersonated_secrets(const struct object *o)
{
    for (uint32_t i = 0; i < SPEC(target)->n_principals; i++)
        if (pods_target(o) && SPEC(target)->principals[i].credentialsFrom)
            return true;
    return false;
}

static bool connection_more(const struct object *o)
{
    const struct target_connection *c = SPEC(target)->connection;
    bool callout = SPEC(target)->type == TARGET_CALLOUT;

    return (callout || pods_target(o)) && c &&
           (*c->user || *c->region || (callout && *c->namespace_));
}

static bool runners_elsewhere(const struct object *o)
{
    const struct target_connection *c = SPEC(target)->connection;

    return c && c->runners && !target_can(SPEC(target)->type, CAN_CALL_HOME);
}

/* A password in a Target could be read by whoever sees Targets. */
static bool proxy_unclear(const struct object *o)
{
    const struct target_connection *c = SPEC(target)->connection;
    struct proxy p;

    return c && *c->homeProxy &&
           (!c->runners || strchr(c->homeProxy, '@') ||
            strncmp(c->homeProxy, "http://", 7) != 0 || proxy_parse(c->homeProxy, &p, NULL) < 0);
}

static bool principals_elsewhere(const struct object *o)
{
    return SPEC(target)->n_principals && !target_can(SPEC(target)->type, CAN_ACT_FOR);
}

/* A Queue is named by who asks for it, and proves nothing. */
static bool principal_of_a_queue(const struct object *o)
{
    for (uint32_t i = 0; i < SPEC(target)->n_principals; i++)
        if (SPEC(target)->principals[i].n_queues && !SPEC(target)->principals[i].n_namespaces)
            return true;
    return false;
}

static bool logs_elsewhere(const struct object *o)
{
    const struct target_connection *c = SPEC(target)->connection;
    bool runners = target_can(SPEC(target)->type, CAN_CALL_HOME) && c && c->runners;

    return SPEC(target)->logs && SPEC(target)->type != TARGET_AGENT && !runners;
}

static bool machines_elsewhere(const struct object *o)
{
    return SPEC(target)->n_machines > 0 && !target_can(SPEC(target)->type, CAN_ORDER_MACHINES);
}

static bool machine_limit_elsewhere(const struct object *o)
{
    const struct target_limits *l = SPEC(target)->limits;

    return l && l->machines > 0 && !target_can(SPEC(target)->type, CAN_ORDER_MACHINES);
}

static bool pending_elsewhere(const struct object *o)
{
    const struct target_limits *l = SPEC(target)->limits;

    return l && l->pendingFor > 0 && target_can(SPEC(target)->type, CAN_DIAL_IN);
}

/* A partition that says nothing of it has the default, which is no word of the user's. */
static bool lease_of_nobody(const struct object *o)
{
    const struct target_partition *p = SPEC(target)->partition;
    const struct target_connection *c = SPEC(target)->connection;

    return target_can(SPEC(target)->type, CAN_CALL_HOME) && p && p->lease && !(c && c->runners) &&
           p->lease != schema_default_ms(&schema_target_partition, "lease");
}

#define PEM_BEGIN "-----BEGIN CERTIFICATE-----"
#define PEM_END "-----END CERTIFICATE-----"

/* By its form: whether it is the server's is seen once it answers. */
static bool pem_like(const char *s)
{
    const char *at = strstr(s, PEM_BEGIN);

    if (!at)
        return false;
    for (; at; at = strstr(at, PEM_BEGIN)) {
        at += strlen(PEM_BEGIN);
        size_t n = strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                              "0123456789+/=\r\n");
        if (n < 64 || strncmp(at + n, PEM_END, strlen(PEM_END)) != 0)
            return false;
        at += n;
    }
    return true;
}

static bool trust_unclear(const struct object *o)
{
    const struct target_connection *c = SPEC(target)->connection;
    struct url u;

    return (SPEC(target)->type == TARGET_CALLOUT || pods_target(o)) && c && *c->caBundle &&
           (!pem_like(c->caBundle) || (url_parse(c->server, &u, NULL) == 0 && !u.tls));
}

static bool start_by_elsewhere(const struct object *o)
{
    const struct target_limits *l = SPEC(target)->limits;

    return l && l->startWithin > 0 && !target_can(SPEC(target)->type, CAN_START_BY);
}

static bool start_by_half(const struct object *o)
{
    const struct target_limits *l = SPEC(target)->limits;

    return l && (l->startWithin > 0) != (l->clockError > 0);
}

static bool data_mounted(const struct object *o)
{
    for (uint32_t i = 0; i < SPEC(workload)->n_data; i++)
        if (*SPEC(workload)->data[i].mountPath)
            return true;
    return false;
}

static bool utilisation_expected(const struct object *o)
{
    const struct expected *e = SPEC(workload)->expected;

    return e && e->utilisation > 0;
}

/* Beside a priority class it is a word for people; alone it looks like one. */
static bool type_alone(const struct object *o)
{
    const struct workload_spec *s = SPEC(workload);

    return s->type && s->type != WORKLOAD_TRAINING && !*s->priorityClassName;
}

static bool quota_scopes(const struct object *o)
{
    return SPEC(resource_quota)->n_scopes > 0;
}

static bool quota_scope_selector(const struct object *o)
{
    return SPEC(resource_quota)->scopeSelector.n > 0;
}

/* What is to be done when a target is out of reach is one thing. */
static bool partition_crossed(const struct object *o)
{
    const struct partition_spec *p = SPEC(workload)->partition;

    return p && ((p->mode != PARTITION_REPLACE && (p->replaceAfter || p->keep)) ||
                 (p->mode != PARTITION_STOP && p->stopAfter));
}

static bool gpu_of_none(const struct object *o)
{
    const struct resources *r = SPEC(workload)->resources;
    const struct gpu_request *g = r ? r->gpu : NULL;

    return g && !g->count && !(g->fraction > 0) && !*g->mig &&
           (g->n_classes || g->minMemory || *g->interconnect || g->minSpeed > 0);
}

static bool env_unclear(const struct object *o)
{
    const struct run_spec *r = SPEC(workload)->run;

    for (uint32_t i = 0; r && i < r->n_env; i++) {
        const struct secret_key_ref *from = r->env[i].valueFrom;

        if (from && (*r->env[i].value || !*from->key))
            return true;
    }
    return false;
}

static bool preference_empty(const struct object *o)
{
    const struct placement_policy_spec *s = SPEC(placement_policy);

    for (uint32_t i = 0; i < s->n_prefer; i++) {
        const struct preference *p = &s->prefer[i];

        if (!p->cost && !p->locality && !p->topology && !p->energy && !p->targets)
            return true;
    }
    return false;
}

static bool allows_all(const struct object *o)
{
    const struct compliance_allow *a = SPEC(compliance_policy)->allow;

    return a && !a->n_jurisdictions && !a->n_certifications && !a->n_targets && !a->n_tiers &&
           a->tenants != TENANTS_NEED_SEPARATE;
}

/* Codes are compared as they are written. */
static bool code_ok(const char *s, size_t longest)
{
    size_t n = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");

    return n >= 2 && n <= longest && s[n] == '\0';
}

static bool country_unknown(const struct object *o)
{
    return *SPEC(target)->jurisdiction && !code_ok(SPEC(target)->jurisdiction, 2);
}

static bool allowed_unknown(const struct object *o)
{
    const struct compliance_allow *a = SPEC(compliance_policy)->allow;

    for (uint32_t i = 0; a && i < a->n_jurisdictions; i++)
        if (!code_ok(a->jurisdictions[i], 16))
            return true;
    return false;
}

static const struct promise promises[] = {
    {KIND_BUDGET, PROMISE_REFUSED, "kind", always,
     "nothing is held to a Budget yet: limit a Queue by gpus[].burst and a Workload by maxCost, "
     "and read what was spent with hanse cost"},
    {KIND_GIT_SOURCE, PROMISE_REFUSED, "kind", always,
     "no repository is read yet: have CI run hanse apply -f DIR --revision COMMIT --prune"},
    {KIND_RESERVATION, PROMISE_REFUSED, "kind", always,
     "no capacity is held for a time yet: give a Queue gpus[].guaranteed, or cordon a Target"},
    {KIND_QUEUE, PROMISE_REFUSED, "spec.admins", queue_admins,
     "nobody gets rights by it: bind a role that may patch queues, with resourceNames of this "
     "one, and leave it out"},
    {KIND_QUEUE, PROMISE_UNENFORCED, "spec.gpuHours", queue_hours,
     "GPU-hours over time are not limited yet; gpus[].burst limits what is held at once, hanse "
     "cost tells what was used"},
    {KIND_QUEUE, PROMISE_REFUSED, "spec.gpus[].lendLimit", lend_limit_idle,
     "with lend: false nothing is lent, so a limit of it has no effect: leave it out, or say "
     "lend: true"},
    {KIND_TARGET, PROMISE_UNENFORCED, "spec.type", target_undriven,
     "this build has no driver for this type: nothing is placed on this target until it has one"},
    {KIND_TARGET, PROMISE_UNENFORCED, "spec.connection", target_connection,
     "nobody connects to it until this build has a driver for its type"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.connection", agent_connection,
     "agents dial in, and nobody connects to them: leave it out"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.connection", callout_unclear,
     "a callout target needs server, an https:// URL (http:// to this machine alone), and "
     "credentialsFrom, a Secret of namespace hanse-system with key: what both sides sign with"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.connection.user", connection_more,
     "user and region mean nothing to callout and kubernetes targets, nor does namespace to a "
     "callout: put them into the path of server, or into the credentials"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.connection", pods_connection_unclear,
     "a kubernetes target needs credentialsFrom, a Secret of namespace hanse-system with "
     "kubeconfig (or with token, or tls.crt and tls.key, and ca.crt), and beside the latter "
     "server, an https:// URL"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.connection.namespace", pods_namespace_unclear,
     "is a namespace of the cluster: at most 63 small letters, digits and -"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.kubernetes", pods_elsewhere,
     "only kubernetes targets make pods: leave it out"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.kubernetes.runner", pods_runner_unclear,
     "a kubernetes target needs one way by which hanse-run comes into its pods: runner.image, "
     "or runner.hostPath, a folder that every node has"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.kubernetes.volumes", pods_volumes_unclear,
     "each has a path, as /a/b and not where every image has something (/dev, /proc, /sys, "
     "/.hanse), and either hostPath, as /a/b, or claim, a PersistentVolumeClaim"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.kubernetes.podSecurity", pods_security_unclear,
     "baseline and restricted take no folders of nodes: give its volumes claims, and the runner an "
     "image"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.kubernetes.podLabels", pods_labels_unclear,
     "are labels as Kubernetes has them, and none of hanse.dev: those say whose a pod is"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.kubernetes.nodeLabels", pods_nodes_unclear,
     "are labels as Kubernetes has them"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.kubernetes.tolerations", pods_tolerations_unclear,
     "is a list of tolerations as Kubernetes has them: key, operator (Exists or Equal), value, "
     "effect, and tolerationSeconds with effect NoExecute; 64 at most"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.kubernetes.namespaces", pods_spaces_unclear,
     "one that is managed needs spec.kubernetes.podSecurity, which it enforces; and rows with the "
     "same `as` say the same of managed and network"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.kubernetes.diagnostics", pods_diagnostics_unclear,
     "they run in a namespace of the cluster, of small letters, digits and -: name one here, or in "
     "spec.connection"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.kubernetes", pods_names_unclear,
     "namespaces[].as, priorityClasses[].as, imagePullSecrets, serviceAccountName, queue and "
     "schedulerName are names of the cluster's objects: small letters, digits, - and . (none in a "
     "namespace; and a queue's has at most 63)"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.stores", pods_stores_unmounted,
     "its pods have no such folder: say in spec.kubernetes.volumes where it comes from, or leave "
     "it out"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.principals[].credentialsFrom", impersonated_secrets,
     "pods are started in a principal's name by the target's own right to impersonate it: leave "
     "it out"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.connection.runners", runners_elsewhere,
     "only runners of callout and kubernetes targets call home: leave it out"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.connection.homeProxy", proxy_unclear,
     "it is the HTTP proxy of runners that call home (runners: true), as http://HOST:PORT; a "
     "user and a password for it belong into the Secret of credentialsFrom, as proxy: "
     "USER:PASSWORD"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.principals", principals_elsewhere,
     "runs on targets of this type go by no other name (an agent itself gives each namespace a "
     "user of its machine: hanse agent --users): leave it out"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.principals[].queues", principal_of_a_queue,
     "anybody may ask for a Queue, so it gives no name by itself: say the namespaces, too"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.logs", logs_elsewhere,
     "only agents, and runners that call home (spec.connection.runners), have what their "
     "programs print kept in a store: leave it out"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.machines", machines_elsewhere,
     "only callout targets order machines: leave it out"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.limits.machines", machine_limit_elsewhere,
     "only callout targets order machines: leave it out"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.limits.pendingFor", pending_elsewhere,
     "an agent has no queue of its own in which a run could wait: leave it out"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.partition.lease", lease_of_nobody,
     "only runners that call home (spec.connection.runners) hold leases there: say runners: "
     "true, or leave it out"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.connection.caBundle", trust_unclear,
     "is certificates in PEM (-----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----), for a "
     "server with https://: leave it out where there is no TLS"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.limits.startWithin", start_by_elsewhere,
     "only servers of callout targets can be told by when to start a run: leave it out"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.limits", start_by_half,
     "startWithin and clockError belong together: by when a run is started, and how far the "
     "clocks of the target's machines may be off"},
    {KIND_WORKLOAD, PROMISE_REFUSED, "spec.data[].mountPath", data_mounted,
     "nothing is mounted: tell the program by spec.run.env or args where the data lies, and "
     "leave it out"},
    {KIND_WORKLOAD, PROMISE_REFUSED, "spec.expected.utilisation", utilisation_expected,
     "nothing is placed by it: ask for a share of a GPU with resources.gpu.fraction, and leave "
     "it out"},
    {KIND_WORKLOAD, PROMISE_REFUSED, "spec.partition", partition_crossed,
     "replaceAfter and keep are for mode replace, stopAfter is for mode stop: say that mode, or "
     "leave them out"},
    {KIND_WORKLOAD, PROMISE_REFUSED, "spec.resources.gpu", gpu_of_none,
     "says which GPUs and asks for none: give count, fraction or mig, or leave it out"},
    {KIND_WORKLOAD, PROMISE_REFUSED, "spec.run.env[].valueFrom", env_unclear,
     "is instead of value, and names a key of the Secret: leave value out, and give secret and "
     "key"},
    {KIND_PLACEMENT_POLICY, PROMISE_REFUSED, "spec.prefer[]", preference_empty,
     "a weight without what it weighs: give cost, locality, topology, energy or targets"},
    {KIND_COMPLIANCE_POLICY, PROMISE_REFUSED, "spec.allow", allows_all,
     "nothing is asked for, so everything would be allowed: give jurisdictions, certifications, "
     "targets, tiers or tenants: separate"},
    {KIND_COMPLIANCE_POLICY, PROMISE_REFUSED, "spec.allow.jurisdictions", allowed_unknown,
     "are ISO 3166 codes of countries such as DE, or groups such as EU, in capital letters"},
    {KIND_TARGET, PROMISE_REFUSED, "spec.jurisdiction", country_unknown,
     "is the ISO 3166 code of a country, two capital letters such as DE"},
    {KIND_WORKLOAD, PROMISE_UNENFORCED, "spec.type", type_alone,
     "it is a word for people and field selectors: whose turn it is and who makes room is said "
     "by priorityClassName, which is not given"},
    {KIND_RESOURCE_QUOTA, PROMISE_REFUSED, "spec.scopes", quota_scopes,
     "scopes choose among Pods, and there are none: leave it out, and give a Queue to the work "
     "that is to be limited by itself"},
    {KIND_RESOURCE_QUOTA, PROMISE_REFUSED, "spec.scopeSelector", quota_scope_selector,
     "scopes choose among Pods, and there are none: leave it out, and give a Queue to the work "
     "that is to be limited by itself"},
};

const struct promise *promises_all(size_t *ret_n)
{
    *ret_n = sizeof promises / sizeof *promises;
    return promises;
}

int promises_admit(const struct object *old, const struct object *now, struct err *err)
{
    for (size_t i = 0; i < sizeof promises / sizeof *promises; i++) {
        const struct promise *p = &promises[i];

        if (p->kind == now->kind->id && p->how == PROMISE_REFUSED && p->said(now) &&
            !(old && p->said(old)))
            return err_field(err, E_INVALID, p->field, "%s", p->sentence);
    }
    return 0;
}

bool promises_unkept(const struct object *o, char *out, size_t size)
{
    size_t used = 0;

    *out = '\0';
    for (size_t i = 0; i < sizeof promises / sizeof *promises && used < size; i++) {
        const struct promise *p = &promises[i];

        if (p->kind == o->kind->id && p->said(o))
            used += (size_t)snprintf(out + used, size - used, "%s%s: %s", used ? "; " : "",
                                     p->field, p->sentence);
    }
    return used > 0;
}
