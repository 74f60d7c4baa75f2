/* drain, cordon, uncordon: a Target's own fields, patched; the schedulers do the rest. */
#include "api/cli/cli_internal.h"

#include <unistd.h>

static int target_patch(struct cli *c, const char *name, bool unschedulable, bool drain,
                        struct err *err)
{
    cJSON *body = cJSON_CreateObject(), *spec = cJSON_AddObjectToObject(body, "spec");

    (void)cJSON_AddBoolToObject(spec, "unschedulable", unschedulable);
    (void)cJSON_AddBoolToObject(spec, "drain", drain);
    int rv = cli_connect(c, err);
    if (!rv)
        rv = cli_json(c, "PATCH", cli_path(c, kind_by_id(KIND_TARGET), "", false, name), body, NULL,
                      err);
    cJSON_Delete(body);
    return rv;
}

/* Workloads whose placement is on the target. */
static int placed_count(struct cli *c, const char *name, unsigned *ret, struct err *err)
{
    cJSON *list = NULL;
    const cJSON *w;
    int rv = cli_json(c, "GET", cli_path(c, kind_by_id(KIND_WORKLOAD), "", true, NULL), NULL, &list,
                      err);

    *ret = 0;
    cJSON_ArrayForEach(w, cJSON_GetObjectItemCaseSensitive(list, "items"))
    {
        const char *phase = json_text_at(w, "status.phase");
        if (!strcmp(json_text_at(w, "status.placement.target"), name) &&
            strcmp(phase, "Succeeded") != 0 && strcmp(phase, "Failed") != 0 &&
            strcmp(phase, "Cancelled") != 0)
            ++*ret;
    }
    cJSON_Delete(list);
    return rv;
}

static int drain_wait(struct cli *c, const char *name, struct err *err)
{
    unsigned left = 0, told = UINT32_MAX;
    int64_t limit;
    int rv = arg_duration(&c->args, "wait-timeout", 3600 * 1000, &limit, err);
    uint64_t deadline = loop_now_ms(c->loop) + (uint64_t)limit;

    while (!rv) {
        rv = placed_count(c, name, &left, err);
        if (rv || !left)
            break;
        if (left != told && isatty(STDERR_FILENO))
            (void)fprintf(c->err, "%u workloads still on %s\n", left, name);
        told = left;
        if (loop_now_ms(c->loop) > deadline)
            return err_set(
                err, E_UNKNOWN,
                "%u workloads are still on %s; the drain goes on (hanse explain says why)", left,
                name);
        cli_pause(c, 500);
    }
    if (!rv)
        (void)fprintf(c->out, "target/%s is empty\n", name);
    return rv;
}

static int targets_set(struct cli *c, bool unschedulable, bool drain, const char *done,
                       struct err *err)
{
    int rv = c->args.n_pos ? 0 : cli_usage(c, err, "which target?");

    for (unsigned i = 0; i < c->args.n_pos && !rv; i++) {
        rv = target_patch(c, c->args.pos[i], unschedulable, drain, err);
        if (!rv)
            (void)fprintf(c->out, "target/%s %s\n", c->args.pos[i], done);
    }
    for (unsigned i = 0; drain && i < c->args.n_pos && !rv && arg_flag(&c->args, "wait"); i++)
        rv = drain_wait(c, c->args.pos[i], err);
    return rv;
}

int verb_drain(struct cli *c, struct err *err)
{
    return targets_set(c, true, true, "drains", err);
}
int verb_cordon(struct cli *c, struct err *err)
{
    return targets_set(c, true, false, "cordoned", err);
}
int verb_uncordon(struct cli *c, struct err *err)
{
    return targets_set(c, false, false, "uncordoned", err);
}
