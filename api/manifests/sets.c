/* Manifests that make pods of several templates: JobSet, the jobs of Kubeflow's training operators,
 * and Volcano's. Their pods all begin together, by one gate; so whatever begins one of them by how
 * another one is, or again, is refused.
 * https://jobset.sigs.k8s.io, https://www.kubeflow.org/docs/components/trainer/legacy-v1,
 * https://volcano.sh/en/docs/vcjob */
#include "api/manifests/manifests_internal.h"

#include <stdio.h>
#include <string.h>

#define REPLICAS_MAX LIMIT_GANG_MAX
#define EXCLUSIVE "alpha.jobset.sigs.k8s.io/"
#define DEADLINE                                                                                   \
    "who fails it by then is not the kubelet: say activeDeadlineSeconds in the templates of pods"
#define RULES(rules) rules, sizeof rules / sizeof *rules

static int64_t times(int64_t a, int64_t b)
{
    return a > 0 && b > INT32_MAX / a ? INT32_MAX : a * b;
}

/* ---- JobSets ---- */
static const struct manifest_rule jobset_rules[] = {
    {"startupPolicy", IS_THERE, true,
     "its Jobs would begin one after another, and all workers of a run begin together: leave it "
     "out"},
    {"failurePolicy.rules", IS_THERE, true,
     "an epoch ends as a whole, and so it is begun again: say maxRestarts"},
    {"failurePolicy.restartStrategy", IS_THERE, false,
     "left out: an epoch begins once the one before is known to have ended"},
    {"network.subdomain", IS_THERE, true,
     "it names a Service, which others may have: leave it out, then it is the JobSet's own name"},
    {"managedBy", IS_THERE, true, "a controller of its own promises nothing here: leave it out"},
    {"volumeClaimPolicies", IS_THERE, true,
     "claims that it makes are those of one epoch: name a claim in the templates of pods"},
    {"activeDeadlineSeconds", IS_THERE, true, DEADLINE},
};
static const struct manifest_rule jobset_job_rules[] = {
    {"dependsOn", IS_THERE, true,
     "it would begin after others, and all workers of a run begin together: leave it out"},
};

/* Pods of one domain each: those behind the first would only be made once that has a node. */
static void exclusive_check(struct reading *r, const cJSON *meta, const char *at)
{
    const cJSON *map = manifest_at(meta, "annotations"), *e;
    char field[MANIFEST_FIELD_MAX], of[MANIFEST_FIELD_MAX];

    manifest_field(field, at, "metadata.annotations");
    for (e = cJSON_IsObject(map) ? map->child : NULL; e; e = e->next) {
        if (strncmp(e->string, EXCLUSIVE, strlen(EXCLUSIVE)) != 0)
            continue;
        manifest_field(of, field, e->string);
        manifest_refuse(r, of,
                        "its pods would wait for one that has a node: say topology in the "
                        "Workload");
    }
}

static void success_check(struct reading *r, const cJSON *spec)
{
    const cJSON *p = manifest_at(spec, "successPolicy");
    const char *how = manifest_text(p, "operator");

    if (!p || cJSON_IsNull(p))
        return;
    if (strcmp(how, "All") != 0)
        manifest_refuse(r, "spec.successPolicy.operator",
                        "\"%.20s\": a run has succeeded when all pods that decide it have; say "
                        "All",
                        how);
}

/* Jobs that its successPolicy does not name are ended by those that it does. */
static bool follows(const cJSON *spec, const char *name)
{
    const cJSON *list = manifest_at(spec, "successPolicy.targetReplicatedJobs"), *e;

    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) == 0)
        return false;
    cJSON_ArrayForEach(e, list)
    {
        if (cJSON_IsString(e) && strcmp(e->valuestring, name) == 0)
            return false;
    }
    return true;
}

static void replicated_read(struct reading *r, const cJSON *spec, const cJSON *e, int i,
                            struct manifest *m)
{
    char at[MANIFEST_FIELD_MAX], job[MANIFEST_FIELD_MAX], path[MANIFEST_FIELD_MAX];
    const cJSON *template = manifest_at(e, "template");
    struct manifest_part *p;

    manifest_item(at, "spec", "replicatedJobs", i);
    if (!*manifest_text(e, "name")) {
        manifest_refuse(r, at, "each has a name, and a template of a Job");
        return;
    }
    manifest_rules(r, e, at, RULES(jobset_job_rules));
    manifest_field(path, at, "template");
    manifest_words(r, manifest_at(template, "metadata"), path, false);
    exclusive_check(r, manifest_at(template, "metadata"), path);
    manifest_field(job, path, "spec");
    int64_t n = manifest_int(r, e, at, "replicas", 1, 1, REPLICAS_MAX);
    int64_t pods = manifest_job(r, manifest_at(template, "spec"), job, LIMIT_GANG_MAX);
    int64_t again = manifest_int(r, manifest_at(template, "spec"), job, "backoffLimit", 6, 0,
                                 MANIFEST_RETRIES_MAX);
    m->retries = again > m->retries ? again : m->retries;
    manifest_field(path, job, "template");
    p = manifest_part_add(r, m, path, manifest_at(template, "spec.template"), times(n, pods));
    if (p)
        p->follows = follows(spec, manifest_text(e, "name"));
}

void manifest_jobset(struct reading *r, const cJSON *doc, struct manifest *m)
{
    const cJSON *spec = manifest_at(doc, "spec"), *list = manifest_at(spec, "replicatedJobs"), *e;
    int i = 0;

    manifest_rules(r, spec, "spec", RULES(jobset_rules));
    exclusive_check(r, manifest_at(doc, "metadata"), "");
    success_check(r, spec);
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) < 1 ||
        cJSON_GetArraySize(list) > MANIFEST_PARTS_MAX) {
        manifest_refuse(r, "spec.replicatedJobs", "it is a list of 1 to %d", MANIFEST_PARTS_MAX);
        return;
    }
    cJSON_ArrayForEach(e, list) replicated_read(r, spec, e, i++, m);
    int64_t whole = manifest_int(r, manifest_at(spec, "failurePolicy"), "spec.failurePolicy",
                                 "maxRestarts", 0, 0, MANIFEST_RETRIES_MAX);
    m->retries = whole > m->retries ? whole : m->retries;
    m->ttl_s = manifest_int(r, spec, "spec", "ttlSecondsAfterFinished", -1, 0, MANIFEST_TTL_MAX);
    m->suspended = cJSON_IsTrue(manifest_at(spec, "suspend"));
    bool decided = false;
    for (unsigned p = 0; p < m->n; p++)
        decided = decided || !m->parts[p].follows;
    if (m->n && !decided)
        manifest_refuse(r, "spec.successPolicy.targetReplicatedJobs",
                        "it names none of its replicatedJobs");
}

/* ---- jobs of Kubeflow ---- */
static const struct manifest_rule policy_rules[] = {
    {"activeDeadlineSeconds", IS_THERE, true, DEADLINE},
    {"managedBy", IS_THERE, true, "a controller of its own promises nothing here: leave it out"},
    {"schedulingPolicy", IS_THERE, false,
     "left out: a run begins whole, and its Target says queue and scheduler"},
    {"cleanPodPolicy", IS_THERE, false,
     "becomes None: its pods go once the log has their end, and those that still run are ended by "
     "those that decide it"},
};
static const struct manifest_rule pytorch_rules[] = {
    {"elasticPolicy", IS_THERE, true,
     "a run has the workers that it began with: leave it out, or say gang.minWorkers in a "
     "Workload of its own"},
};

static void policy_read(struct reading *r, const cJSON *spec, struct manifest *m)
{
    static const char at[] = "spec.runPolicy";
    const cJSON *p = manifest_at(spec, "runPolicy");

    manifest_rules(r, p, at, RULES(policy_rules));
    m->retries = manifest_int(r, p, at, "backoffLimit", -1, 0, MANIFEST_RETRIES_MAX);
    m->ttl_s = manifest_int(r, p, at, "ttlSecondsAfterFinished", -1, 0, MANIFEST_TTL_MAX);
    m->suspended = cJSON_IsTrue(manifest_at(p, "suspend"));
}

/* Of that role, which a manifest need not have. */
static void replica_read(struct reading *r, const cJSON *spec, const char *list, const char *role,
                         bool decided, struct manifest *m)
{
    char at[MANIFEST_FIELD_MAX], path[MANIFEST_FIELD_MAX], field[MANIFEST_FIELD_MAX];
    const cJSON *e = manifest_at(manifest_at(spec, list), role);
    const char *restart = manifest_text(e, "restartPolicy");
    struct manifest_part *p;

    if (!e || cJSON_IsNull(e))
        return;
    (void)snprintf(at, sizeof at, "spec.%.100s.%.50s", list, role);
    if (*restart && strcmp(restart, "Never") != 0) {
        manifest_field(field, at, "restartPolicy");
        manifest_warn(r, field,
                      "becomes Never: a program that fails is begun again in another epoch, with "
                      "all workers (spec.run.retries)");
    }
    int64_t n = manifest_int(r, e, at, "replicas", 1, 1, REPLICAS_MAX);
    manifest_field(path, at, "template");
    p = manifest_part_add(r, m, path, manifest_at(e, "template"), n);
    if (p)
        p->follows = decided && strcmp(role, m->kind->decides) != 0;
}

static void replicas_read(struct reading *r, const cJSON *spec, const char *list,
                          const char *const roles[2], struct manifest *m)
{
    const cJSON *map = manifest_at(spec, list), *e;
    bool decided = manifest_at(map, m->kind->decides) != NULL;
    char at[MANIFEST_FIELD_MAX], field[MANIFEST_FIELD_MAX];

    manifest_field(at, "spec", list);
    for (e = cJSON_IsObject(map) ? map->child : NULL; e; e = e->next) {
        manifest_field(field, at, e->string);
        if (strcmp(e->string, roles[0]) != 0 && strcmp(e->string, roles[1]) != 0)
            manifest_refuse(r, field, "its roles are %s and %s", roles[0], roles[1]);
    }
    for (int i = 0; i < 2; i++)
        replica_read(r, spec, list, roles[i], decided, m);
    if (!m->n)
        manifest_refuse(r, at, "it makes no pods");
}

void manifest_pytorchjob(struct reading *r, const cJSON *doc, struct manifest *m)
{
    static const char *const roles[] = {"Master", "Worker"};
    const cJSON *spec = manifest_at(doc, "spec");

    manifest_rules(r, spec, "spec", RULES(pytorch_rules));
    policy_read(r, spec, m);
    replicas_read(r, spec, "pytorchReplicaSpecs", roles, m);
}

void manifest_mpijob(struct reading *r, const cJSON *doc, struct manifest *m)
{
    static const char *const roles[] = {"Launcher", "Worker"};
    const cJSON *spec = manifest_at(doc, "spec");

    policy_read(r, spec, m);
    if (strcmp(manifest_text(spec, "launcherCreationPolicy"), "WaitForWorkersReady") == 0)
        manifest_refuse(r, "spec.launcherCreationPolicy",
                        "its launcher would begin after its workers, and all of a run begin "
                        "together: say AtStartup");
    if (!manifest_at(spec, "mpiReplicaSpecs.Launcher"))
        manifest_refuse(r, "spec.mpiReplicaSpecs.Launcher", "is missing");
    replicas_read(r, spec, "mpiReplicaSpecs", roles, m);
}

/* ---- Jobs of Volcano ---- */
#define ONCE                                                                                       \
    "left out: a pod that fails ends the run, which is begun again as a whole (spec.run.retries)"
static const struct manifest_rule volcano_rules[] = {
    {"volumes", IS_THERE, true,
     "claims that it makes are those of one epoch: name a claim in the templates of pods"},
    {"minAvailable", IS_THERE, false, "left out: a run begins with all of its pods"},
    {"queue", IS_THERE, false, "left out: the Target says it (spec.kubernetes.queue)"},
    {"priorityClassName", IS_THERE, false,
     "left out: whose turn it is says spec.priorityClassName of the Workload (--priority)"},
    {"minSuccess", IS_THERE, true,
     "a run has succeeded when all pods that decide it have: leave it out"},
    {"networkTopology", IS_THERE, false,
     "kept, and nothing is placed by it: say topology in the Workload"},
};
static const struct manifest_rule task_rules[] = {
    {"dependsOn", IS_THERE, true,
     "it would begin after others, and all workers of a run begin together: leave it out"},
    {"minAvailable", IS_THERE, false, "left out: a run begins with all of its pods"},
    {"maxRetry", IS_THERE, false, ONCE},
};

/* One whose end completes the whole: TaskCompleted, CompleteJob. */
static bool completes(const cJSON *o)
{
    const cJSON *p;

    cJSON_ArrayForEach(p, manifest_at(o, "policies"))
    {
        if (strcmp(manifest_text(p, "action"), "CompleteJob") == 0)
            return true;
    }
    return false;
}

static void policies_check(struct reading *r, const cJSON *o, const char *at, bool whole)
{
    const cJSON *list = manifest_at(o, "policies"), *p;
    char field[MANIFEST_FIELD_MAX];

    if (!list || cJSON_IsNull(list))
        return;
    manifest_field(field, at, "policies");
    manifest_warn(r, field, "%s", ONCE);
    cJSON_ArrayForEach(p, list)
    {
        if (strcmp(manifest_text(p, "action"), "CompleteJob") != 0)
            continue;
        if (whole || strcmp(manifest_text(p, "event"), "TaskCompleted") != 0)
            manifest_refuse(r, field,
                            "CompleteJob: which task completes the run says the policy "
                            "TaskCompleted of that task");
    }
}

static void task_read(struct reading *r, const cJSON *e, int i, bool decided, struct manifest *m)
{
    char at[MANIFEST_FIELD_MAX], path[MANIFEST_FIELD_MAX];
    struct manifest_part *p;

    manifest_item(at, "spec", "tasks", i);
    manifest_rules(r, e, at, RULES(task_rules));
    policies_check(r, e, at, false);
    manifest_field(path, at, "template");
    p = manifest_part_add(r, m, path, manifest_at(e, "template"),
                          manifest_int(r, e, at, "replicas", 1, 1, REPLICAS_MAX));
    if (p)
        p->follows = decided && !completes(e);
}

void manifest_volcano(struct reading *r, const cJSON *doc, struct manifest *m)
{
    const cJSON *spec = manifest_at(doc, "spec"), *list = manifest_at(spec, "tasks"), *e;
    bool decided = false;
    int i = 0;

    manifest_rules(r, spec, "spec", RULES(volcano_rules));
    policies_check(r, spec, "spec", true);
    m->retries = manifest_int(r, spec, "spec", "maxRetry", -1, 0, MANIFEST_RETRIES_MAX);
    m->ttl_s = manifest_int(r, spec, "spec", "ttlSecondsAfterFinished", -1, 0, MANIFEST_TTL_MAX);
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) < 1 ||
        cJSON_GetArraySize(list) > MANIFEST_PARTS_MAX) {
        manifest_refuse(r, "spec.tasks", "it is a list of 1 to %d", MANIFEST_PARTS_MAX);
        return;
    }
    cJSON_ArrayForEach(e, list) decided = decided || completes(e);
    cJSON_ArrayForEach(e, list) task_read(r, e, i++, decided, m);
}
