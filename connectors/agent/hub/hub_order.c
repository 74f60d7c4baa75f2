/* The order as the agent gets it, from the Workload and its placement. */
#include "connectors/agent/hub/hub_internal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* A larger one runs all the same; only it cannot be made again from what its target keeps. */
#define DOCUMENT_MAX (1u << 20)
/* Beside the order itself, in one frame: where it has no room, it does not go along. */
#define DOCUMENT_ROOM (FRAME_BODY_MAX - LIMIT_ORDER_MAX_BYTES - 65536)

static int signal_number(const char *name, struct err *err)
{
    static const struct {
        const char *name;
        int no;
    } known[] = {{"TERM", SIGTERM}, {"INT", SIGINT},   {"HUP", SIGHUP},
                 {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"QUIT", SIGQUIT}};
    const char *s = strncmp(name, "SIG", 3) == 0 ? name + 3 : name;

    if (!*s)
        return SIGTERM;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(s, known[i].name) == 0)
            return known[i].no;
    return err_field(err, E_INVALID, "spec.checkpoint.signal",
                     "\"%.16s\": agents send SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2 or SIGQUIT",
                     name);
}

static void order_workers(cJSON *j, const struct placement *p)
{
    cJSON *workers = cJSON_AddArrayToObject(j, "workers");

    for (uint32_t i = 0; i < p->n_assignments; i++) {
        const struct assignment *a = &p->assignments[i];
        cJSON *w = cJSON_CreateObject(), *gpus;
        cJSON_AddNumberToObject(w, "rank", (double)a->rank);
        cJSON_AddStringToObject(w, "node", a->node);
        gpus = cJSON_AddArrayToObject(w, "gpus");
        for (uint32_t g = 0; g < a->n_gpus; g++)
            cJSON_AddItemToArray(gpus, cJSON_CreateNumber((double)a->gpus[g]));
        cJSON_AddItemToArray(workers, w);
    }
}

static void order_command(cJSON *j, const struct run_spec *run)
{
    cJSON *argv = cJSON_AddArrayToObject(j, "argv");

    for (uint32_t i = 0; i < run->n_command; i++)
        cJSON_AddItemToArray(argv, cJSON_CreateString(run->command[i]));
    for (uint32_t i = 0; i < run->n_args; i++)
        cJSON_AddItemToArray(argv, cJSON_CreateString(run->args[i]));
    cJSON_AddStringToObject(j, "script", run->script);
    cJSON_AddStringToObject(j, "cwd", run->workingDir);
}

static void order_resume(cJSON *j, const struct run_order *o)
{
    cJSON_AddStringToObject(j, "resumePath", o->resume_path ? o->resume_path : "");
    cJSON_AddStringToObject(j, "resumeDigest", o->resume_digest ? o->resume_digest : "");
    if (o->reshard)
        cJSON_AddBoolToObject(j, "reshard", true);
}

/* An agent of an older version would give each worker what the worker of its own number saved, and
 * call a checkpoint of another number of workers foreign. */
static int reshard_check(const struct hub *h, const struct run_order *o, struct err *err)
{
    if (!o->reshard || !o->resume_path || !*o->resume_path || h->session->reshards)
        return 0;
    return err_field(err, E_NOTIMPL, "spec.checkpoint.reshard",
                     "the agent of target %s is of an older version, which knows no reshard: "
                     "upgrade it",
                     h->base.target);
}

/* The Workload as it is: who has lost its memory makes it again from this. Secrets are named in it,
 * never told. */
static void order_document(cJSON *j, const struct object *workload)
{
    struct err err;
    cJSON *d = NULL;

    if (object_to_json(workload, &d, &err) < 0) {
        log_err(LOG_WARN, "agent.document", &err);
        return;
    }
    char *text = cJSON_PrintUnformatted(d);

    if (text && strlen(text) <= DOCUMENT_MAX && json_text_bytes(text) <= DOCUMENT_ROOM)
        cJSON_AddStringToObject(j, "document", text);
    cJSON_free(text);
    cJSON_Delete(d);
}

cJSON *hub_order(const struct hub *h, const struct run_order *o, struct err *err)
{
    const struct workload *w = object_as(o->workload, workload);
    const struct run_spec *run = w->spec->run;
    const struct checkpoint_spec *ck = w->spec->checkpoint;
    int signo = signal_number(ck ? ck->signal : "", err);
    cJSON *j, *env;

    if (signo < 0 || reshard_check(h, o, err) < 0)
        return NULL;
    if (run->n_command == 0 && run->n_args == 0 && !*run->script) {
        (void)err_field(err, E_INVALID, "spec.run.command",
                        "agent targets run a command or a script; there is none");
        return NULL;
    }
    j = cJSON_CreateObject();
    wire_add_key(j, &o->key);
    cJSON_AddStringToObject(j, "workload", o->workload->meta->name);
    cJSON_AddStringToObject(j, "namespace", o->workload->meta->namespace_);
    hub_tell_state(h, j);
    order_document(j, o->workload);
    order_workers(j, o->placement);
    order_command(j, run);
    env = cJSON_AddArrayToObject(j, "env");
    for (const char *const *e = o->env; e && *e; e++)
        cJSON_AddItemToArray(env, cJSON_CreateString(*e));
    cJSON_AddNumberToObject(j, "leaseMs", (double)o->lease_ms);
    cJSON_AddNumberToObject(j, "leaseFrom", (double)hub_lease_from(h));
    cJSON_AddNumberToObject(j, "signal", signo);
    cJSON_AddNumberToObject(j, "graceMs", (double)o->grace_ms);
    cJSON_AddStringToObject(j, "checkpointBase", o->checkpoint_dir ? o->checkpoint_dir : "");
    cJSON_AddNumberToObject(j, "checkpointKeep", (double)o->checkpoint_keep);
    cJSON_AddNumberToObject(j, "checkpointInterval", (double)o->checkpoint_interval_ms);
    if (w->spec->isolation && w->spec->isolation->processes == PROCESSES_PROVED)
        cJSON_AddStringToObject(j, "processes", "proved");
    if (w->spec->isolation && w->spec->isolation->tenants == TENANTS_NEED_SEPARATE)
        cJSON_AddStringToObject(j, "tenants", "separate");
    if (w->spec->resources) { /* of each worker */
        cJSON_AddNumberToObject(j, "memoryBytes", (double)w->spec->resources->memory);
        cJSON_AddNumberToObject(j, "cpuMilli", (double)w->spec->resources->cpu);
    }
    order_resume(j, o);
    return j;
}

cJSON *hub_stage_order(const struct run_order *o)
{
    cJSON *j = cJSON_CreateObject(), *env;

    wire_add_key(j, &o->key);
    order_resume(j, o);
    int64_t world = o->placement ? o->placement->n_assignments : 0;
    if (o->look_epoch && o->look_workers) /* agents of older versions look by it, too */
        world = o->look_workers;
    else if (o->reshard)
        world = 0;
    cJSON_AddNumberToObject(j, "world", (double)world);
    env = cJSON_AddArrayToObject(j, "env"); /* how its store is reached, no more of it */
    for (const char *const *e = o->env; e && *e; e++)
        if (strncmp(*e, "AWS_", 4) == 0)
            cJSON_AddItemToArray(env, cJSON_CreateString(*e));
    if (!o->look_epoch)
        return j;
    cJSON_AddStringToObject(j, "checkpointBase", o->checkpoint_dir);
    cJSON_AddNumberToObject(j, "lookEpoch", (double)o->look_epoch);
    cJSON_AddNumberToObject(j, "lookWorkers", (double)o->look_workers);
    cJSON_AddNumberToObject(j, "resumeEpoch", (double)o->resume_epoch);
    cJSON_AddNumberToObject(j, "resumeStep", (double)o->resume_step);
    return j;
}
