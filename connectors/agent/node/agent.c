/* The agent's life: it opens its state folder, reads its inventory, adopts its runs, and dials.
 * Everything that it must not forget is on disk before it acts on it, so it needs no orderly
 * end. */
#include "connectors/agent/node/agent_internal.h"

#include <stdio.h>
#include <string.h>

/* Names the state folder, so that the server can tell an agent that has lost its memory. */
static int state_id_open(struct agent *a, struct err *err)
{
    char path[AGENT_PATH_MAX];
    AUTO_BUF b;
    struct err why;

    buf_init(&b, 64);
    (void)snprintf(path, sizeof path, "%s/id", a->cfg.state_dir);
    int rc = file_read(a->loop, path, 63, &b, &why);
    if (rc == 0 && b.n > 0) {
        (void)snprintf(a->state_id, sizeof a->state_id, "%.32s", b.p);
        return 0;
    }
    if (rc < 0 && rc != E_NOTFOUND)
        return err_set(err, rc, "%s", why.text);
    (void)snprintf(a->state_id, sizeof a->state_id, "%016llx%016llx",
                   (unsigned long long)loop_random_u64(a->loop),
                   (unsigned long long)loop_random_u64(a->loop));
    return file_write(a->loop, path, a->state_id, strlen(a->state_id), 0600, err);
}

/* A state folder speaks for the runs of one place: one machine, one path. A copy of it would find
 * none of their shims, end what it finds of them, and call that their end. Says so ahead of
 * anything else. A machine without a machine-id is not told apart from others. */
static int state_home_check(struct agent *a, struct err *err)
{
    char path[AGENT_PATH_MAX], home[AGENT_PATH_MAX];
    AUTO_BUF machine, was;
    struct err why;

    buf_init(&machine, 128);
    buf_init(&was, AGENT_PATH_MAX);
    if (file_read(a->loop, "/etc/machine-id", 64, &machine, NULL) < 0 || !machine.n)
        buf_reset(&machine);
    (void)snprintf(home, sizeof home, "%.*s %s\n",
                   machine.n ? (int)strspn(machine.p, "0123456789abcdef") : 0,
                   machine.n ? machine.p : "", a->cfg.state_dir);
    (void)snprintf(path, sizeof path, "%s/home", a->cfg.state_dir);
    int rc = file_read(a->loop, path, AGENT_PATH_MAX - 1, &was, &why);
    if (rc == E_NOTFOUND)
        return file_write(a->loop, path, home, strlen(home), 0600, err);
    if (rc < 0)
        return err_set(err, rc, "%s", why.text);
    if (was.n == strlen(home) && memcmp(was.p, home, was.n) == 0)
        return 0;
    return err_set(
        err, E_USAGE,
        "%s was copied: it belongs to \"%.*s\" (machine, folder), and what it runs does "
        "not run here. Begin with an empty --state; if it was moved, and no agent uses the "
        "old one, remove %s",
        a->cfg.state_dir, (int)strcspn(was.n ? was.p : "", "\n"), was.n ? was.p : "", path);
}

static int state_open(struct agent *a, struct err *err)
{
    const char *dir = a->cfg.state_dir;
    char path[AGENT_PATH_MAX];
    int rc;

    if (strlen(dir) > AGENT_STATE_MAX)
        return err_set(err, E_USAGE,
                       "--state: at most %d characters, because the sockets below it may have 107",
                       AGENT_STATE_MAX);
    if (dir[0] != '/')
        return err_set(err, E_USAGE, "--state %s: give an absolute path", dir);
    rc = file_mkdir(a->loop, dir, 0700, err);
    (void)snprintf(path, sizeof path, "%s/lock", dir);
    if (rc == 0 && (rc = file_lock(a->loop, path, err)) == E_BUSY)
        (void)err_prefix(err, "another agent uses %s: give each agent a --state of its own: ", dir);
    if (rc == 0)
        rc = state_home_check(a, err);
    (void)snprintf(path, sizeof path, "%s/s", dir);
    if (rc == 0)
        rc = file_mkdir(a->loop, path, 0700, err);
    (void)snprintf(path, sizeof path, "%s/book", dir);
    if (rc == 0)
        rc = book_open(&a->book, a->loop, path, err);
    if (rc == 0)
        rc = cluster_open(a, err);
    return rc < 0 ? rc : state_id_open(a, err);
}

/* What was asked for and cannot be had is no reason to go on without. */
static int tenants_open(struct agent *a, struct err *err)
{
    const char *why = a->cfg.os->ops->tenants_probe(a->cfg.os, a->cfg.state_dir, a->lacks);

    if (!a->cfg.users) {
        log_event(LOG_WARN, "agent.tenants_shared",
                  LOG_FIELDS({"why", log_str(why ? why : "--users is not given")},
                             {"means", log_str("programs of all namespaces run as the agent's own "
                                               "user and can read each other's secrets")},
                             {"lacks", log_str(a->lacks)}));
        return 0;
    }
    if (!why && a->held != RUN_NAMESPACE)
        why = "no PID namespace keeps their processes apart";
    if (why)
        return err_set(err, E_USAGE, "--users: programs cannot be kept apart here: %s", why);
    log_event(LOG_INFO, "agent.tenants_separate", LOG_FIELDS({"lacks", log_str(a->lacks)}));
    return 0;
}

static bool notice_has_node(const char *name, void *arg)
{
    const struct agent *a = arg;
    char full[512];

    (void)snprintf(full, sizeof full, "%s.%s", a->cfg.target, name);
    return inventory_find(&a->inventory, full) != NULL;
}

static void notice_changed(void *arg)
{
    session_notices(arg);
}

static const struct notices_owner notices_owner = {notice_has_node, notice_changed};

int agent_create(struct loop *l, const struct agent_config *cfg, struct agent **ret,
                 struct err *err)
{
    struct agent *a = mem_new(struct agent);
    struct err why;
    int rc;

    PRE(cfg->n_servers > 0 && cfg->n_servers <= AGENT_SERVERS_MAX);
    a->loop = l;
    a->cfg = *cfg;
    if (!a->cfg.heartbeat_ms)
        a->cfg.heartbeat_ms = 1000;
    if (!a->cfg.silence_ms)
        a->cfg.silence_ms = 10000;
    list_init(&a->runs);
    store_jobs_init(a);
    cfg->os->ops->boot_id(cfg->os, a->boot_id);
    (void)snprintf(a->instance, sizeof a->instance, "%016llx",
                   (unsigned long long)loop_random_u64(l));
    timer_init(&a->dial, l, NULL, NULL);
    timer_init(&a->beat, l, NULL, NULL);
    timer_init(&a->orphans, l, NULL, NULL);
    char weak[256];
    a->held = cfg->os->ops->processes_probe(cfg->os, cfg->most, weak);
    log_event(LOG_INFO, "agent.processes",
              LOG_FIELDS({"held", log_str(run_processes_text(a->held))}, {"why", log_str(weak)}));
    rc = store_roots_open(a, &why);
    if (rc == 0)
        rc = tenants_open(a, &why);
    if (rc == 0)
        rc = inventory_load(a, &a->inventory, &why);
    if (rc == 0)
        rc = state_open(a, &why);
    if (rc == 0)
        rc = notices_open(&a->notices, l, cfg->state_dir, a->boot_id, &notices_owner, a, &why);
    if (rc == 0)
        rc = users_open(a, &why);
    if (rc == 0)
        rc = agent_streams_open(a, &why);
    if (rc == 0)
        rc = stage_open(a, &why);
    if (rc == 0)
        rc = runs_adopt(a, &why);
    if (rc == 0)
        rc = runs_load(a, &why);
    if (rc == 0)
        scratch_sweep(a);
    if (rc < 0) {
        (void)agent_destroy(a);
        if (err)
            *err = why;
        return rc;
    }
    session_start(a);
    *ret = a;
    return 0;
}

struct agent *agent_destroy(struct agent *a)
{
    if (!a)
        return NULL;
    session_stop(a);
    heard_keep(a);
    a->streams = streams_destroy(a->streams);
    store_jobs_fini(a);
    runs_free(a);
    notices_close(&a->notices);
    book_close(&a->book);
    users_close(&a->users);
    inventory_fini(&a->inventory);
    mem_free(a);
    return NULL;
}

int agent_reload(struct agent *a, struct err *err)
{
    struct inventory now;
    int rc = inventory_load(a, &now, err);

    if (rc < 0)
        return rc;
    struct inventory was = a->inventory;
    a->inventory = now;
    if (now.hash != was.hash) {
        session_nodes_changed(a, &was);
        session_notices(a); /* of a machine that has more nodes now, these go with it */
    }
    inventory_fini(&was);
    return 0;
}
