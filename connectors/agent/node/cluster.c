/* Whose runs these are: the cluster that this agent serves, remembered over restarts; the cluster
 * that each run belongs to; and what is kept of a run for a hub that has lost its memory.
 *
 * Must never follow a hub whose line has gone on without it, and never forget, by itself, to whom a
 * run belongs. */
#include "connectors/agent/node/agent_internal.h"

#include <stdio.h>
#include <string.h>

#define DOCUMENT_MAX (2u << 20) /* a frame must hold it, escaped */

static void remembered_path(const struct agent *a, char out[AGENT_PATH_MAX])
{
    (void)snprintf(out, AGENT_PATH_MAX, "%s/cluster", a->cfg.state_dir);
}

int cluster_open(struct agent *a, struct err *err)
{
    char path[AGENT_PATH_MAX];
    struct err why;
    AUTO_BUF b;

    buf_init(&b, CLUSTER_UID_MAX);
    remembered_path(a, path);
    int rc = file_read(a->loop, path, CLUSTER_UID_MAX - 1, &b, &why);
    if (rc == E_NOTFOUND)
        return 0;
    if (rc < 0)
        return err_set(err, rc, "%s", why.text);
    (void)snprintf(a->cluster, sizeof a->cluster, "%.*s", (int)b.n, b.n ? b.p : "");
    return 0;
}

bool cluster_welcome(struct agent *a, const char *uid)
{
    char path[AGENT_PATH_MAX];
    struct err err;

    if (cluster_left_behind(uid, a->cluster)) {
        log_event(LOG_ERROR, "agent.hub_left_behind",
                  LOG_FIELDS({"hub", log_str(uid)}, {"serves", log_str(a->cluster)}));
        return false;
    }
    if (!*uid || strcmp(uid, a->cluster) == 0)
        return true; /* a hub without a name renews and ends what it started, no more */
    if (*a->cluster)
        log_event(LOG_WARN, "agent.other_cluster",
                  LOG_FIELDS({"was", log_str(a->cluster)}, {"is", log_str(uid)}));
    (void)snprintf(a->cluster, sizeof a->cluster, "%.63s", uid);
    remembered_path(a, path);
    if (file_write(a->loop, path, a->cluster, strlen(a->cluster), 0600, &err) < 0)
        log_err(LOG_WARN, "agent.cluster", &err); /* the next welcome tells it again */
    return true;
}

const char *run_cluster(const struct run *r)
{
    return wire_str(r->order, "cluster");
}

/* A lease is renewed by whom it was granted by: another cluster may already count it as over. */
bool run_renewable(const struct run *r)
{
    const char *its = run_cluster(r);

    return !*its || strcmp(its, r->agent->cluster) == 0;
}

/* ---- what a hub may ask
 * ------------------------------------------------------------------------------------------ */
int run_claim(struct run *r, const char *cluster, struct err *err)
{
    if (strlen(cluster) == 0 || strlen(cluster) >= CLUSTER_UID_MAX)
        return err_set(err, E_INVALID, "a claim names the cluster that claims");
    if (cluster_left_behind(r->agent->cluster, cluster))
        (void)cluster_welcome(r->agent, cluster); /* the hub's line went on in this session */
    if (strcmp(run_cluster(r), cluster) == 0)
        return 0;
    cJSON_DeleteItemFromObjectCaseSensitive(r->order, "cluster");
    cJSON_AddStringToObject(r->order, "cluster", cluster);
    return order_rewrite(r, err);
}

cJSON *run_listing(const struct run *r, size_t *room)
{
    struct observation o;
    cJSON *j, *workers;

    run_observe(r, &o);
    j = wire_listed(&o);
    cJSON_AddStringToObject(j, "cluster", run_cluster(r));
    cJSON_AddStringToObject(j, "namespace", wire_str(r->order, "namespace"));
    cJSON_AddStringToObject(j, "workload", wire_str(r->order, "workload"));
    cJSON_AddNumberToObject(j, "since", (double)wire_i64(r->order, "acceptedAt"));
    cJSON_AddNumberToObject(j, "stateRv", (double)wire_u64(r->order, "stateRv"));
    workers = cJSON_GetObjectItemCaseSensitive(r->order, "workers");
    if (workers && o.state != RUN_ENDED && o.state != RUN_ABSENT && r->n_workers <= *room) {
        cJSON_AddItemToObject(j, "workers", cJSON_Duplicate(workers, true));
        *room -= r->n_workers;
    }
    return j;
}

static void document_path(const struct agent *a, const struct run_key *k, char out[AGENT_PATH_MAX])
{
    char key[RUN_KEY_MAX];

    run_key_print(k, key);
    (void)snprintf(out, AGENT_PATH_MAX, "%s/runs/%s/workload.json", a->cfg.state_dir, key);
}

/* Ahead of the order: what was accepted can be told whole. */
int document_write(struct agent *a, const struct run_key *k, const cJSON *document, struct err *err)
{
    char path[AGENT_PATH_MAX];
    const char *text = cJSON_GetStringValue(document);

    if (!text || strlen(text) > DOCUMENT_MAX)
        return 0;
    document_path(a, k, path);
    return file_write(a->loop, path, text, strlen(text), 0600, err);
}

void document_answer(struct agent *a, uint64_t id, const struct run *r)
{
    char path[AGENT_PATH_MAX];
    struct err err;
    AUTO_BUF b;

    buf_init(&b, DOCUMENT_MAX);
    document_path(a, &r->key, path);
    if (file_read(a->loop, path, DOCUMENT_MAX, &b, &err) < 0) {
        session_answer(a, id, OUT_REJECTED, &err, NULL);
        return;
    }
    buf_char(&b, '\0');
    cJSON *j = cJSON_CreateObject();
    cJSON_AddNumberToObject(j, "outcome", (double)OUT_DONE);
    cJSON_AddStringToObject(j, "document", b.failed ? "" : b.p);
    wire_tell(a->stream, AF_RESULT, id, j);
}
