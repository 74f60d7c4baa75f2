/* What a request that writes an object says: dry run, validation, whose fields they are, which
 * version it is meant for, and which object; the names in the body must be those of the path. */
#include "api/server/write/write_internal.h"

static void writing_fini(struct call *c)
{
    struct writing *w = c->state;

    owners_free(&w->owners);
    w->now = object_unref(w->now);
}

static const char *manager_of(struct call *c)
{
    const char *m = call_param(c, "fieldManager"), *agent = http_header_get(c->rq, "user-agent");

    if (*m)
        return m;
    if (!agent || !*agent)
        return "unknown";
    return arena_strndup(c->mem, agent, strcspn(agent, "/ "));
}

static int validation_of(struct call *c, struct writing *w, struct err *err)
{
    const char *v = call_param(c, "fieldValidation");

    if (!*v || !strcmp(v, "Strict"))
        return 0;
    if (strcmp(v, "Warn") != 0 && strcmp(v, "Ignore") != 0)
        return err_set(err, E_SYNTAX, "fieldValidation must be Strict, Warn or Ignore");
    w->decode = DECODE_LOOSE;
    w->warn = !strcmp(v, "Warn");
    return 0;
}

const char *write_meta(const cJSON *body, const char *key)
{
    const cJSON *v =
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(body, "metadata"), key);
    return cJSON_IsString(v) ? v->valuestring : "";
}

int writing_begin(struct call *c, struct writing **ret, struct err *err)
{
    struct writing *w = arena_new(c->mem, struct writing);

    c->state = w;
    c->fini = writing_fini;
    w->manager = manager_of(c);
    w->status = c->sub && !strcmp(c->sub, "status");
    w->created_status = 200;
    w->retry = true;
    *ret = w;
    if (strlen(w->manager) > 128)
        return err_set(err, E_SYNTAX, "fieldManager has at most 128 characters");
    if (call_dry_run(c, &w->dry_run, err))
        return err->code;
    c->dry_run = w->dry_run;
    int r = repr_choose(c, err);
    return r ? r : validation_of(c, w, err);
}

int write_preconditions(struct writing *w, const cJSON *body, struct err *err)
{
    const char *rv = write_meta(body, "resourceVersion"), *uid = write_meta(body, "uid");

    if (*rv && call_u64(rv, &w->rv))
        return err_field(err, E_INVALID, "metadata.resourceVersion", "must be a number");
    if (w->rv)
        w->retry = false;
    w->uid = *uid ? uid : NULL;
    return 0;
}

/* What the path says already need not be repeated: typed clients leave it out, as Kubernetes
 * permits. */
static void header_from_path(const struct call *c, cJSON *body)
{
    if (!cJSON_HasObjectItem(body, "apiVersion"))
        (void)cJSON_AddStringToObject(body, "apiVersion", kind_api_version(c->kind));
    if (!cJSON_HasObjectItem(body, "kind"))
        (void)cJSON_AddStringToObject(body, "kind", c->kind->kind);
}

int write_names_match(struct call *c, cJSON *body, const char *name, struct err *err)
{
    cJSON *meta = cJSON_GetObjectItemCaseSensitive(body, "metadata");

    if (cJSON_IsObject(body))
        header_from_path(c, body);
    if (!meta)
        meta = cJSON_AddObjectToObject(body, "metadata");
    if (!cJSON_IsObject(meta))
        return err_field(err, E_INVALID, "metadata", "must be an object");
    if (c->kind->namespaced) {
        const char *ns = write_meta(body, "namespace");
        if (*ns && strcmp(ns, c->ns) != 0)
            return err_field(err, E_SYNTAX, "metadata.namespace",
                             "the namespace of the object (%.63s) does not match the namespace of "
                             "the path (%.63s)",
                             ns, c->ns);
        cJSON_DeleteItemFromObjectCaseSensitive(meta, "namespace");
        cJSON_AddStringToObject(meta, "namespace", c->ns);
    } else {
        cJSON_DeleteItemFromObjectCaseSensitive(meta, "namespace");
    }
    if (name) {
        const char *have = write_meta(body, "name");
        if (*have && strcmp(have, name) != 0)
            return err_field(
                err, E_SYNTAX, "metadata.name",
                "the name of the object (%.100s) does not match the name of the path (%.100s)",
                have, name);
        if (!*have) {
            cJSON_DeleteItemFromObjectCaseSensitive(meta, "name");
            cJSON_AddStringToObject(meta, "name", name);
        }
    }
    return 0;
}
