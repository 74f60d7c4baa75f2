/* The report of one worker as JSON: what the shim says on its socket and leaves behind in
 * end.json. */
#include "connectors/shim/shim.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

static const char *const step_names[] = {"starting", "running", "ending", "ended"};

void run_report_print(const struct run_report *r, struct buf *out)
{
    cJSON *j = cJSON_CreateObject();

    cJSON_AddStringToObject(j, "state", step_names[r->step]);
    cJSON_AddNumberToObject(j, "exitCode", r->exit_code);
    cJSON_AddNumberToObject(j, "signal", r->term_signal);
    cJSON_AddBoolToObject(j, "leaseLost", r->lease_lost);
    cJSON_AddBoolToObject(j, "stopped", r->stopped);
    cJSON_AddStringToObject(j, "reason", r->reason);
    cJSON_AddStringToObject(j, "message", r->message);
    if (r->ready)
        cJSON_AddBoolToObject(j, "ready", true);
    if (r->never_started)
        cJSON_AddBoolToObject(j, "neverStarted", true);
    if (r->unsealed)
        cJSON_AddBoolToObject(j, "unsealed", true);
    if (r->searched)
        cJSON_AddBoolToObject(j, "searched", true);
    if (r->gone)
        cJSON_AddBoolToObject(j, "gone", true);
    if (r->grant) {
        cJSON_AddNumberToObject(j, "grant", (double)r->grant);
        cJSON_AddNumberToObject(j, "leaseMs", (double)r->lease_ms);
    }
    if (r->checkpoint.present) {
        cJSON *c = cJSON_AddObjectToObject(j, "checkpoint");
        cJSON_AddNumberToObject(c, "step", (double)r->checkpoint.step);
        cJSON_AddNumberToObject(c, "bytes", (double)r->checkpoint.bytes);
        cJSON_AddNumberToObject(c, "writeMs", (double)r->checkpoint.write_ms);
        cJSON_AddNumberToObject(c, "writtenMs", (double)r->checkpoint.written_ms);
        cJSON_AddStringToObject(c, "manifest", r->checkpoint.manifest);
    }
    char *text = cJSON_PrintUnformatted(j);
    buf_str(out, text);
    cJSON_free(text);
    cJSON_Delete(j);
}

static int number(const cJSON *j, const char *name)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, name);

    return cJSON_IsNumber(v) ? v->valueint : 0;
}

static void text(const cJSON *j, const char *name, char *out, size_t n)
{
    const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(j, name));

    (void)snprintf(out, n, "%s", s ? s : "");
}

static int64_t large(const cJSON *j, const char *name)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, name);

    return cJSON_IsNumber(v) && v->valuedouble >= 0 &&
                   v->valuedouble <= (double)CHECKPOINT_NUMBER_MAX
               ? (int64_t)v->valuedouble
               : 0;
}

static void seal_read(const cJSON *j, struct checkpoint_sealed *ret)
{
    if (!cJSON_IsObject(j))
        return;
    *ret = (struct checkpoint_sealed){.present = true,
                                      .step = large(j, "step"),
                                      .bytes = large(j, "bytes"),
                                      .write_ms = large(j, "writeMs"),
                                      .written_ms = large(j, "writtenMs")};
    text(j, "manifest", ret->manifest, sizeof ret->manifest);
}

int run_report_parse(const void *p, size_t n, struct run_report *ret, struct err *err)
{
    cJSON *j = cJSON_ParseWithLength(p, n);
    const char *state = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(j, "state"));
    struct run_report r = {.step = RUN_STEP_STARTING};
    bool known = false;

    for (unsigned i = 0; state && i < sizeof step_names / sizeof *step_names; i++)
        if (strcmp(state, step_names[i]) == 0) {
            r.step = (enum runner_step)i;
            known = true;
        }
    if (known) {
        r.exit_code = number(j, "exitCode");
        r.term_signal = number(j, "signal");
        r.lease_lost = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(j, "leaseLost"));
        r.stopped = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(j, "stopped"));
        r.ready = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(j, "ready"));
        r.never_started = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(j, "neverStarted"));
        r.unsealed = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(j, "unsealed"));
        r.searched = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(j, "searched"));
        r.gone = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(j, "gone"));
        r.grant = large(j, "grant");
        r.lease_ms = (uint64_t)large(j, "leaseMs");
        seal_read(cJSON_GetObjectItemCaseSensitive(j, "checkpoint"), &r.checkpoint);
        text(j, "reason", r.reason, sizeof r.reason);
        text(j, "message", r.message, sizeof r.message);
        *ret = r;
    }
    cJSON_Delete(j);
    return known ? 0 : err_set(err, E_CORRUPT, "a runner's report cannot be read");
}

void run_report_exit(struct run_report *r, int exit_code, int term_signal)
{
    r->exit_code = exit_code;
    r->term_signal = term_signal;
    if (!r->reason[0] && term_signal)
        (void)snprintf(r->message, sizeof r->message, "killed by signal %d", term_signal);
    else if (!r->reason[0] && exit_code)
        (void)snprintf(r->message, sizeof r->message, "exit status %d", exit_code);
}

void run_report_lease_lost(struct run_report *r)
{
    r->lease_lost = true;
    str_copy(r->reason, sizeof r->reason, end_text(END_LEASE_LOST));
    (void)snprintf(r->message, sizeof r->message,
                   "the lease was not renewed in time: stopped by its own runner");
}
