/* Strangers: agents with a certificate of this cluster whose Target the state does not have. While
 * a recovery is open, one of them may carry work of this state: its Target was created after the
 * copy that came back. So any member that a stranger dials tells the log (RECOVER STRANGER), and
 * recovery is not settled before its Target was applied and has listed its runs.
 *
 * Nothing may be settled before agents had the time to dial: AGENT_REDIAL_MAX_MS
 * (brain_config.redial_ms) after this member began to lead, every agent that can reach it has
 * dialed. A stranger that dials while no recovery is open is only remembered here, because one may
 * begin later. */

#include "controlplane/leader/recover/strangers.h"

#include "api/base/failpoint.h"
#include "api/base/log.h"
#include "controlplane/leader/doubt/back.h"
#include "controlplane/leader/site/sites.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#define SEEN_FOR_MS 600000 /* a stranger that has not dialed for this long is forgotten */
#define DEADLINE_MS 10000
#define STRANGERS_NAMED 16 /* at most so many in an error message */

/* ---- into the log ---- */
static void counted(void *arg, const struct result *r, const struct err *err)
{
    struct brain *b = arg;

    brain_under_way(b, -1);
    if (!err && r->code != E_LIMIT)
        return; /* a lost command is proposed again when the agent dials again */
    /* While a stranger is not counted, recovery waits until it dials again. */
    b->strangers->since_ms = loop_now_ms(b->loop);
    log_event(LOG_WARN, "stranger.uncounted",
              LOG_FIELDS({"why", log_str(err ? err->text : r->text)}));
}

/* Any member may propose it; apply passes over a stranger that the state has. */
static void count(struct brain *b, const char *target)
{
    union command c = {.recover = {.head = {.type = CMD_RECOVER, .user = "hanse:brain"},
                                   .step = RECOVER_STRANGER}};
    AUTO_BUF bytes;

    str_copy(c.recover.name, sizeof c.recover.name, target);
    brain_request_id(b, c.head.request_id);
    buf_init(&bytes, LIMIT_COMMAND_MAX_BYTES);
    command_encode(&c, &bytes);
    INV(!bytes.failed);
    brain_under_way(b, 1);
    core_propose(b->cfg.core, b->loop, c.head.request_id, slice_make(bytes.p, bytes.n), DEADLINE_MS,
                 counted, b);
}

static bool counts(const struct root *r, const char *target)
{
    return root_recovering(r) && root_feature_level(r) >= FEATURE_GRANTS &&
           !root_stranger(r, target) && !root_agent_target(r, target, NULL);
}

/* ---- agents that dial ---- */
static void remember(struct brain *b, const char *target)
{
    struct strangers *x = b->strangers;
    uint64_t now = loop_now_ms(b->loop);
    size_t i = 0, oldest = 0;

    for (; i < x->n && strcmp(x->v[i].name, target) != 0; i++)
        if (x->v[i].at_ms < x->v[oldest].at_ms)
            oldest = i;
    if (i == x->n && x->n == STRANGERS_MAX)
        i = oldest;
    else if (i == x->n)
        x->v = mem_realloc(x->v, ++x->n * sizeof *x->v);
    str_copy(x->v[i].name, sizeof x->v[i].name, target);
    x->v[i].at_ms = now;
}

void stranger_came(struct brain *b, const char *target)
{
    struct core_status st;

    if (b->closing || !object_name_valid(target))
        return;
    core_status(b->cfg.core, &st);
    struct root *r = core_root(b->cfg.core);
    if (st.leader_id && counts(r, target)) {
        log_event(LOG_WARN, "stranger.came",
                  LOG_FIELDS({"target", log_str(target)},
                             {"remedy", log_str("hanse apply it, ahead of hanse recover")}));
        count(b, target);
    }
    (void)root_unref(r);
    if (b->leads)
        remember(b, target);
}

static void heard(void *arg, const char *target, const char *cluster, uint64_t rv, int64_t time_ms)
{
    brain_heard(arg, target, cluster, rv, time_ms);
}

void stranger_turn_away(struct brain *b, struct stream *s, const char *target, const char *why)
{
    if (!b->strangers->lobby)
        b->strangers->lobby = connector_lobby_create(b->loop, heard, b);
    connector_lobby_enter(b->strangers->lobby, s, target, why);
}

/* ---- what recovery waits for ---- */
static bool uncounted(const struct brain *b, size_t i)
{
    return loop_now_ms(b->loop) - b->strangers->v[i].at_ms < SEEN_FOR_MS &&
           counts(b->root, b->strangers->v[i].name);
}

void strangers_look(struct brain *b)
{
    for (size_t i = 0; b->leads && i < b->strangers->n; i++)
        if (uncounted(b, i))
            count(b, b->strangers->v[i].name);
}

bool strangers_uncounted(const struct brain *b)
{
    for (size_t i = 0; i < b->strangers->n && !PLANTED("recover.no-strangers"); i++)
        if (uncounted(b, i))
            return true;
    return false;
}

uint64_t strangers_wait_ms(const struct brain *b)
{
    uint64_t passed = loop_now_ms(b->loop) - b->strangers->since_ms;

    return passed < b->cfg.redial_ms && !PLANTED("recover.no-strangers") ? b->cfg.redial_ms - passed
                                                                         : 0;
}

/* ---- Targets said to be dead ---- */
static bool known(const struct brain *b, const char *target)
{
    for (size_t i = 0; i < b->strangers->n; i++)
        if (!strcmp(b->strangers->v[i].name, target))
            return true;
    return root_stranger(b->root, target) || root_get(b->root, KIND_TARGET, "", target);
}

static void name_print(struct buf *out, const char *name)
{
    if (out->n + strlen(name) < 180)
        buf_printf(out, "%s%s", out->n ? ", " : "", name);
}

bool stranger_unnamed(const struct brain *b, const struct recover_ask *ask, struct err *err)
{
    char one[STRANGERS_NAMED][256];
    size_t n = root_strangers(b->root, one, STRANGERS_NAMED), at = 0;
    AUTO_BUF names = {0};

    while (at < ask->n_dead && known(b, ask->dead[at]))
        at++;
    if (at == ask->n_dead)
        return false;
    buf_init(&names, 512);
    for_each_site (t, b)
        name_print(&names, t->name);
    for (size_t i = 0; i < n && i < STRANGERS_NAMED; i++)
        name_print(&names, one[i]);
    buf_char(&names, '\0');
    (void)err_field(err, E_NOTFOUND, "dead",
                    "there is no Target %.100s, and its agent has not dialed in; there are: %s",
                    ask->dead[at], names.n > 1 ? names.p : "none");
    return true;
}

void strangers_begin(struct brain *b)
{
    b->strangers->since_ms = loop_now_ms(b->loop);
}

void strangers_drop(struct brain *b)
{
    b->strangers->lobby = connector_lobby_destroy(b->strangers->lobby);
    mem_free(b->strangers->v);
    b->strangers->v = NULL;
    b->strangers->n = 0;
}

void strangers_status(const struct brain *b, struct cJSON *j)
{
    cJSON *list = cJSON_AddArrayToObject(j, "strangers");
    bool recovering = b->leads && root_recovering(b->root);
    size_t n = recovering ? root_strangers(b->root, NULL, 0) : 0;
    char(*v)[256] = mem_alloc((n + 1) * sizeof *v);

    (void)cJSON_AddBoolToObject(j, "recovering", recovering);
    (void)cJSON_AddNumberToObject(j, "recoverWaitMs",
                                  recovering ? (double)strangers_wait_ms(b) : 0);
    if (n)
        (void)root_strangers(b->root, v, n);
    for (size_t i = 0; i < n; i++)
        (void)cJSON_AddItemToArray(list, cJSON_CreateString(v[i]));
    mem_free(v);
}
