/* Bodies of the frames between agent and server. Both ends are authenticated, and neither is
 * trusted: every reader below has an answer for whatever comes. */
#include "connectors/agent/wire.h"

#include "api/base/log.h"
#include "connectors/checkpoint/checkpoint.h"

#include <stdio.h>
#include <string.h>

static const char *const state_names[] = {"unknown", "absent", "starting", "running", "ended"};

const char *wire_str(const cJSON *j, const char *name)
{
    const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(j, name));

    return s ? s : "";
}

int64_t wire_i64(const cJSON *j, const char *name)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, name);

    if (!cJSON_IsNumber(v) || !(v->valuedouble >= -(double)RUN_KEY_NUMBER_MAX &&
                                v->valuedouble <= (double)RUN_KEY_NUMBER_MAX))
        return 0;
    return (int64_t)v->valuedouble;
}

uint64_t wire_u64(const cJSON *j, const char *name)
{
    int64_t v = wire_i64(j, name);

    return v > 0 ? (uint64_t)v : 0;
}

bool wire_bool(const cJSON *j, const char *name)
{
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(j, name));
}

int wire_key(const cJSON *j, struct run_key *ret, struct err *err)
{
    return run_key_parse(wire_str(j, "key"), ret, err);
}

void wire_add_key(cJSON *j, const struct run_key *k)
{
    char text[RUN_KEY_MAX];

    run_key_print(k, text);
    cJSON_AddStringToObject(j, "key", text);
}

int wire_send(struct stream *s, enum agent_frame type, uint64_t id, cJSON *j, struct err *err)
{
    char *text = cJSON_PrintUnformatted(j);
    size_t n = text ? strlen(text) : 0;
    int rc = 0;

    cJSON_Delete(j);
    if (!text)
        return err_set(err, E_NOMEM, "no memory for frame %d", (int)type);
    if (n > FRAME_BODY_MAX)
        rc = err_set(err, E_TOOLARGE, "frame %d has %zu bytes of JSON; at most %d are sent",
                     (int)type, n, FRAME_BODY_MAX);
    else
        frame_send(s, (uint8_t)type, 0, id, text, n);
    cJSON_free(text);
    return rc;
}

void wire_tell(struct stream *s, enum agent_frame type, uint64_t id, cJSON *j)
{
    struct err err;

    if (wire_send(s, type, id, j, &err) < 0)
        log_err(LOG_ERROR, "agent.frame", &err);
}

int wire_parse(const struct frame *f, cJSON **ret, struct err *err)
{
    cJSON *j = cJSON_ParseWithLength(f->body.p, f->body.n);

    if (!cJSON_IsObject(j)) {
        cJSON_Delete(j);
        return err_set(err, E_SYNTAX, "frame %d holds no JSON object", f->type);
    }
    *ret = j;
    return 0;
}

cJSON *wire_checkpoint(const struct run_checkpoint_report *c)
{
    cJSON *j = cJSON_CreateObject();

    if (c->epoch)
        cJSON_AddNumberToObject(j, "epoch", (double)c->epoch);
    cJSON_AddNumberToObject(j, "step", (double)c->step);
    cJSON_AddNumberToObject(j, "bytes", (double)c->bytes);
    cJSON_AddNumberToObject(j, "writeMs", (double)c->write_ms);
    cJSON_AddNumberToObject(j, "writtenMs", (double)c->written_ms);
    cJSON_AddNumberToObject(j, "ranks", (double)c->ranks);
    cJSON_AddStringToObject(j, "digest", c->digest);
    cJSON_AddStringToObject(j, "path", c->path);
    return j;
}

void wire_checkpoint_read(const cJSON *j, struct run_checkpoint_report *ret)
{
    const char *digest = wire_str(j, "digest"), *path = wire_str(j, "path");

    memset(ret, 0, sizeof *ret);
    if (!cJSON_IsObject(j) || (path[0] != '/' && !checkpoint_store_is_remote(path)) ||
        strlen(path) >= sizeof ret->path || strncmp(digest, "sha256:", 7) != 0 ||
        strlen(digest) >= sizeof ret->digest)
        return;
    ret->present = true;
    ret->epoch = (int64_t)wire_u64(j, "epoch");
    ret->step = (int64_t)wire_u64(j, "step");
    ret->bytes = (int64_t)wire_u64(j, "bytes");
    ret->write_ms = (int64_t)wire_u64(j, "writeMs");
    ret->written_ms = (int64_t)wire_u64(j, "writtenMs");
    ret->ranks = (int64_t)wire_u64(j, "ranks");
    str_copy(ret->digest, sizeof ret->digest, digest);
    str_copy(ret->path, sizeof ret->path, path);
}

cJSON *wire_offers(const struct run_offer *offers, size_t n)
{
    cJSON *list = cJSON_CreateArray();

    for (size_t i = 0; i < n; i++) {
        cJSON *j = cJSON_CreateObject();
        wire_add_key(j, &offers[i].key);
        cJSON_AddNumberToObject(j, "number", (double)offers[i].number);
        cJSON_AddNumberToObject(j, "leaseMs", (double)offers[i].lease_ms);
        cJSON_AddNumberToObject(j, "graceMs", (double)offers[i].grace_ms);
        cJSON_AddItemToArray(list, j);
    }
    return list;
}

int wire_offer_parse(const cJSON *j, struct run_offer *ret, struct err *err)
{
    struct run_offer o = {.number = wire_i64(j, "number"),
                          .lease_ms = wire_u64(j, "leaseMs"),
                          .grace_ms = wire_u64(j, "graceMs")};
    int rc = wire_key(j, &o.key, err);

    if (rc < 0)
        return rc;
    if (o.number < 2 || o.lease_ms == 0)
        return err_set(err, E_SYNTAX, "an offer of a lease cannot be read");
    *ret = o;
    return 0;
}

cJSON *wire_listed(const struct observation *o)
{
    cJSON *j = cJSON_CreateObject();

    wire_add_key(j, &o->key);
    cJSON_AddStringToObject(j, "state", state_names[o->state]);
    /* A server that has no word for the weaker one takes it for what it took all of them for. */
    bool searched = o->proof == PROOF_TREE_SEARCHED;
    cJSON_AddNumberToObject(j, "proof", (double)(searched ? PROOF_TREE_GONE : o->proof));
    if (searched)
        cJSON_AddBoolToObject(j, "searched", true);
    return j;
}

cJSON *wire_observation(const struct observation *o)
{
    cJSON *j = wire_listed(o);

    cJSON_AddNumberToObject(j, "exitCode", o->exit_code);
    cJSON_AddNumberToObject(j, "signal", o->term_signal);
    cJSON_AddBoolToObject(j, "leaseLost", o->lease_lost);
    cJSON_AddBoolToObject(j, "stopped", o->stopped);
    cJSON_AddStringToObject(j, "reason", o->reason);
    cJSON_AddStringToObject(j, "message", o->message);
    if (o->grant)
        cJSON_AddNumberToObject(j, "grant", (double)o->grant);
    if (o->checkpoint.present)
        cJSON_AddItemToObject(j, "checkpoint", wire_checkpoint(&o->checkpoint));
    return j;
}

int wire_observation_parse(const cJSON *j, struct observation *ret, struct err *err)
{
    const char *state = wire_str(j, "state");
    struct observation o;
    int64_t proof = wire_i64(j, "proof");
    size_t i = 0;

    memset(&o, 0, sizeof o);
    int rc = wire_key(j, &o.key, err);
    if (rc < 0)
        return rc;
    while (i < sizeof state_names / sizeof *state_names && strcmp(state, state_names[i]) != 0)
        i++;
    if (i == sizeof state_names / sizeof *state_names || proof < 0 || proof > PROOF_NEVER_STARTED)
        return err_set(err, E_SYNTAX, "an observation cannot be read");
    o.state = (enum run_state)i;
    o.exit_code = (int)wire_i64(j, "exitCode");
    o.term_signal = (int)wire_i64(j, "signal");
    o.proof = proof == PROOF_TREE_GONE && wire_bool(j, "searched") ? PROOF_TREE_SEARCHED
                                                                   : (enum proof)proof;
    o.lease_lost = wire_bool(j, "leaseLost");
    o.stopped = wire_bool(j, "stopped");
    o.grant = (int64_t)wire_u64(j, "grant");
    str_copy(o.reason, sizeof o.reason, wire_str(j, "reason"));
    str_copy(o.message, sizeof o.message, wire_str(j, "message"));
    wire_checkpoint_read(cJSON_GetObjectItemCaseSensitive(j, "checkpoint"), &o.checkpoint);
    *ret = o;
    return 0;
}
