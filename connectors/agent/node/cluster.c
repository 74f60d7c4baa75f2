/* The cluster that this agent serves, remembered over restarts; how far its state had come, so that
 * a hub whose data somebody put back learns it; the cluster that each run belongs to; and what is
 * kept of a run for a hub that has lost its memory.
 *
 * The agent must never follow a hub whose line has gone on without it, and never forget by itself
 * to which cluster a run belongs. */
#include "connectors/agent/node/agent_internal.h"
#include "connectors/pace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEARD_MAX (CLUSTER_UID_MAX + 48)
#define HEARD_SAVE_MS 5000      /* what was heard is on the disk so soon after it */
#define DOCUMENT_MAX (2u << 20) /* a frame must hold it, escaped */

static void remembered_path(const struct agent *a, char out[AGENT_PATH_MAX])
{
    (void)snprintf(out, AGENT_PATH_MAX, "%s/cluster", a->cfg.state_dir);
}

/* As text, ended by a NUL; "" when it is not there. */
static int text_read(struct agent *a, const char *path, size_t max, struct buf *b, struct err *err)
{
    struct err why;
    int rc = file_read(a->loop, path, max, b, &why);

    buf_char(b, '\0');
    return rc == E_NOTFOUND || rc == 0 ? 0 : err_set(err, rc, "%s", why.text);
}

/* ---- how far the state of its hub had come ---- */
static void heard_path(const struct agent *a, char out[AGENT_PATH_MAX])
{
    (void)snprintf(out, AGENT_PATH_MAX, "%s/heard", a->cfg.state_dir);
}

void heard_keep(struct agent *a)
{
    char path[AGENT_PATH_MAX], text[HEARD_MAX];
    struct err err;

    timer_stop(&a->heard.save);
    if (!a->heard.unsaved)
        return;
    int n = snprintf(text, sizeof text, "%s %" PRIu64 " %" PRId64 "\n", a->heard.cluster,
                     a->heard.rv, a->heard.time_ms);
    heard_path(a, path);
    if (file_write(a->loop, path, text, (size_t)n, 0600, &err) < 0) {
        log_err(LOG_WARN, "agent.heard", &err); /* what it hears next, it tries again */
        return;
    }
    a->heard.unsaved = false;
}

static void heard_due(void *arg)
{
    heard_keep(arg);
}

static int heard_open(struct agent *a, struct err *err)
{
    char path[AGENT_PATH_MAX];
    AUTO_BUF b;

    timer_init(&a->heard.save, a->loop, heard_due, a);
    buf_init(&b, HEARD_MAX);
    heard_path(a, path);
    int rc = text_read(a, path, HEARD_MAX - 1, &b, err);
    if (rc < 0 || b.failed)
        return rc;
    char *rv = strchr(b.p, ' ');
    if (!rv || rv - b.p >= CLUSTER_UID_MAX)
        return 0; /* what it hears next, it writes */
    char *end;
    a->heard.rv = strtoull(rv, &end, 10);
    a->heard.time_ms = strtoll(end, NULL, 10);
    *rv = '\0';
    str_copy(a->heard.cluster, sizeof a->heard.cluster, b.p);
    return 0;
}

void cluster_heard(struct agent *a, const char *uid, uint64_t rv, int64_t time_ms)
{
    struct heard *h = &a->heard;

    if (*a->cluster && cluster_left_behind(a->cluster, uid))
        (void)cluster_welcome(a, uid); /* the hub's line went on in this session */
    if (!*uid || strcmp(uid, a->cluster) != 0)
        return;
    if (strcmp(uid, h->cluster) == 0 && rv <= h->rv)
        return;
    (void)snprintf(h->cluster, sizeof h->cluster, "%.63s", uid);
    h->rv = rv;
    h->time_ms = time_ms;
    if (!h->unsaved)
        timer_start(&h->save, HEARD_SAVE_MS);
    h->unsaved = true;
}

int cluster_open(struct agent *a, struct err *err)
{
    char path[AGENT_PATH_MAX];
    AUTO_BUF b;

    buf_init(&b, CLUSTER_UID_MAX);
    remembered_path(a, path);
    int rc = text_read(a, path, CLUSTER_UID_MAX - 1, &b, err);
    if (rc < 0)
        return rc;
    str_copy(a->cluster, sizeof a->cluster, b.failed ? "" : b.p);
    return heard_open(a, err);
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
    return r->order->cluster;
}

/* An order with a lease is kept to it by the agent from its acceptance on, by shim and guard from
 * theirs. */
bool run_lease_held(const struct run *r)
{
    for (unsigned i = 0; i < r->n_workers; i++) {
        const struct run_report *p = &r->workers[i].report;
        if (p->step != RUN_STEP_ENDED && p->grant && !p->lease_ms)
            return false;
    }
    return r->order->lease_ms != 0;
}

void agent_redirected(struct agent *a, const char *address)
{
    str_copy(a->redirect, sizeof a->redirect, address);
    for (unsigned i = 0; i < a->cfg.n_servers; i++)
        if (strcmp(a->cfg.servers[i], address) == 0)
            a->server = i;
}

uint64_t agent_lease_ms(const struct agent *a)
{
    uint64_t shortest = 0;

    list_for_each (it, &a->runs) {
        const struct run *r = container_of(it, struct run, link);
        for (unsigned i = 0; i < r->n_workers; i++) {
            const struct worker *w = &r->workers[i];
            uint64_t ms = w->report.grant ? w->report.lease_ms : r->order->lease_ms;
            if (w->state != WS_ENDED && ms && (!shortest || ms < shortest))
                shortest = ms;
        }
    }
    return shortest;
}

uint64_t agent_silence_ms(const struct agent *a)
{
    return pace_silence_ms(agent_lease_ms(a), a->cfg.silence_ms);
}

uint64_t agent_beat_ms(const struct agent *a)
{
    uint64_t ms = pace_beat_ms(agent_lease_ms(a));

    return ms < a->cfg.heartbeat_ms ? ms : a->cfg.heartbeat_ms;
}

/* A lease is renewed by whom it was granted by: another cluster may already count it as over. */
bool run_renewable(const struct run *r)
{
    const char *its = run_cluster(r);

    return !*its || strcmp(its, r->agent->cluster) == 0;
}

bool run_renewed_by(const struct run *r, const struct wire_renew *q)
{
    uint32_t found = 0;

    for (uint32_t i = 0; order_spans(r->order) && i < r->order->n_peers; i++)
        for (uint32_t k = 0; k < q->n_peers; k++)
            if (strcmp(r->order->peers[i], q->peers[k]) == 0) {
                found++;
                break;
            }
    return !order_spans(r->order) || found == r->order->n_peers;
}

struct book_hub book_hub_of(const struct agent *a, const char *cluster, uint64_t rv)
{
    if (strcmp(a->heard.cluster, cluster) == 0 && a->heard.rv > rv)
        rv = a->heard.rv;
    return (struct book_hub){cluster, rv};
}

/* ---- what a hub may ask ---- */
int run_claim(struct run *r, const struct wire_about *by, struct err *err)
{
    const char *cluster = by->cluster;

    if (strlen(cluster) == 0 || strlen(cluster) >= CLUSTER_UID_MAX)
        return err_set(err, E_INVALID, "a claim names the cluster that claims");
    if (cluster_left_behind(r->agent->cluster, cluster))
        (void)cluster_welcome(r->agent, cluster); /* the hub's line went on in this session */
    if (strcmp(run_cluster(r), cluster) == 0)
        return 0;
    char *kept = arena_strdup(r->order_mem, cluster);
    if (!kept)
        return err_set(err, E_NOMEM, "an order that was claimed too often");
    r->order->cluster = kept;
    r->order->state_rv = by->state_rv; /* what was told before is another state's */
    r->order->state_time_ms = by->state_rv ? by->state_time_ms : 0;
    return order_rewrite(r, err);
}

void run_listing(const struct run *r, size_t *room, struct wire_listed *ret)
{
    struct wire_order *w = r->order;
    struct observation o;

    run_observe(r, &o);
    *ret = (struct wire_listed){.key = o.key,
                                .state = o.state,
                                .proof = o.proof,
                                .cluster = w->cluster,
                                .namespace_ = w->namespace_,
                                .workload = w->workload,
                                .since_ms = w->accepted_ms,
                                .state_rv = w->state_rv,
                                .final = r->final};
    if (o.state == RUN_ENDED || o.state == RUN_ABSENT || r->n_workers > *room)
        return;
    ret->workers = w->workers;
    ret->n_workers = w->n_workers;
    *room -= r->n_workers;
}

static void document_path(const struct agent *a, const struct run_key *k, char out[AGENT_PATH_MAX])
{
    char key[RUN_KEY_MAX];

    run_key_print(k, key);
    (void)snprintf(out, AGENT_PATH_MAX, "%s/runs/%s/workload.json", a->cfg.state_dir, key);
}

/* Ahead of the order: what was accepted can be told whole. */
int document_write(struct agent *a, const struct run_key *k, const char *document, struct err *err)
{
    char path[AGENT_PATH_MAX];

    if (!*document || strlen(document) > DOCUMENT_MAX)
        return 0;
    document_path(a, k, path);
    return file_write(a->loop, path, document, strlen(document), 0600, err);
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
    const struct wire_result told = {.outcome = OUT_DONE, .document = b.failed ? "" : b.p};
    if (wire_send(a->stream, AF_RESULT, id, wire_result, &told, &err) < 0)
        session_answer(a, id, OUT_REJECTED, &err, NULL);
}
