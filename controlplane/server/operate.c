/* Operations: requests that concern no object. Their bodies are JSON, documented in
 * api/server/README.md. */
#include "controlplane/archive/archive_files.h"
#include "controlplane/server/backend.h"

#include "api/base/limits.h"

#include <cjson/cJSON.h>
#include <openssl/crypto.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPERATE_DEADLINE_MS 15000
#define ADOPT_ROWS 500 /* of a report, unless told otherwise */

typedef void (*operate_cb)(void *arg, const char *json, const struct err *err);

struct operation {
    struct control *c;
    operate_cb cb;
    void *arg;
    char *answer; /* told when it is done; owned */
};

static void operation_end(struct operation *o, const struct err *err)
{
    o->cb(o->arg, err ? NULL : o->answer ? o->answer : "{}", err);
    if (o->answer)
        OPENSSL_cleanse(o->answer, strlen(o->answer));
    mem_free(o->answer);
    mem_free(o);
}
static void operation_read_done(void *arg, const struct err *err)
{
    operation_end(arg, err);
}
static void operation_tell(void *arg)
{
    operation_end(arg, NULL);
}
static const char *text_of(const cJSON *j, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, key);

    return cJSON_IsString(v) ? v->valuestring : "";
}

/* ---- status and members ---- */
static void members_print(const struct root *r, const struct core_status *st, cJSON *list)
{
    struct member_info m[64];
    size_t n = root_members(r, m, 64);

    for (size_t i = 0; i < n; i++) {
        cJSON *j = cJSON_CreateObject();
        (void)cJSON_AddNumberToObject(j, "id", (double)m[i].id);
        (void)cJSON_AddStringToObject(j, "name", m[i].name);
        (void)cJSON_AddStringToObject(j, "address", m[i].address);
        (void)cJSON_AddStringToObject(j, "api", m[i].api_address);
        (void)cJSON_AddBoolToObject(j, "leader", m[i].id == st->leader_id);
        bool voter = false;
        for (unsigned k = 0; k < st->voters; k++)
            voter = voter || st->voter_ids[k] == m[i].id;
        (void)cJSON_AddBoolToObject(j, "voter", voter);
        (void)cJSON_AddNumberToObject(j, "featureLevel", m[i].feature_level);
        (void)cJSON_AddItemToArray(list, j);
    }
}

/* The archive: how much, the newest digest, and how far this member's files are. */
static void archive_print(struct control *c, const struct root *r, cJSON *j)
{
    struct archive_totals t = root_archive(r);
    char digest[2 * ARCHIVE_DIGEST + 8];
    struct archive_info i;
    struct archive_files_status s;

    core_archive_status(c->core, &s);
    (void)cJSON_AddNumberToObject(j, "segments", (double)t.segments);
    (void)cJSON_AddNumberToObject(j, "records", (double)t.records);
    (void)cJSON_AddNumberToObject(j, "bytes", (double)t.bytes);
    if (t.segments && root_archive_info(r, t.segments, &i)) {
        archive_digest_text(i.digest, digest);
        (void)cJSON_AddStringToObject(j, "newestDigest", digest);
    }
    (void)cJSON_AddNumberToObject(j, "files", (double)s.present);
    (void)cJSON_AddNumberToObject(j, "waiting", (double)s.waiting);
    (void)cJSON_AddNumberToObject(j, "missing", (double)s.missing);
    (void)cJSON_AddNumberToObject(j, "damaged", (double)s.bad);
    if (*s.trouble)
        (void)cJSON_AddStringToObject(j, "trouble", s.trouble);
}

static void alarms_print(struct control *c, cJSON *list)
{
    struct core_alarm a[ALARM_NR];
    size_t n = core_alarms(c->core, a);
    char since[32];

    for (size_t i = 0; i < n; i++) {
        cJSON *j = cJSON_CreateObject();
        time_print(core_time_ms(c->core) - (int64_t)a[i].for_ms, since);
        (void)cJSON_AddStringToObject(j, "alarm", a[i].name);
        (void)cJSON_AddStringToObject(j, "since", since);
        (void)cJSON_AddNumberToObject(j, "seconds", floor((double)a[i].for_ms / 1000));
        (void)cJSON_AddStringToObject(j, "message", a[i].text);
        (void)cJSON_AddStringToObject(j, "remedy", a[i].remedy);
        (void)cJSON_AddItemToArray(list, j);
    }
}

static char *status_print(struct control *c)
{
    struct core_status st;
    struct root *r = core_root(c->core);
    cJSON *j = cJSON_CreateObject(), *me = cJSON_AddObjectToObject(j, "member");
    char digest[20];
    AUTO_BUF brain;

    core_status(c->core, &st);
    (void)cJSON_AddStringToObject(j, "cluster", root_cluster_uid(r));
    (void)cJSON_AddNumberToObject(me, "id", (double)st.id);
    (void)cJSON_AddNumberToObject(me, "pid", (double)getpid());
    (void)cJSON_AddBoolToObject(me, "leads", st.leads);
    (void)cJSON_AddBoolToObject(me, "ready", st.ready);
    (void)cJSON_AddNumberToObject(j, "term", (double)st.term);
    (void)cJSON_AddNumberToObject(j, "leader", (double)st.leader_id);
    (void)cJSON_AddStringToObject(j, "leaderApi", st.leader_api_address);
    (void)cJSON_AddNumberToObject(j, "appliedIndex", (double)st.index);
    (void)cJSON_AddNumberToObject(j, "commitIndex", (double)st.commit);
    (void)cJSON_AddNumberToObject(j, "resourceVersion", (double)root_rv(r));
    (void)snprintf(digest, sizeof digest, "%016llx", (unsigned long long)root_digest(r));
    (void)cJSON_AddStringToObject(j, "digest", digest);
    (void)cJSON_AddStringToObject(j, "revision", root_revision(r));
    (void)cJSON_AddNumberToObject(j, "voters", st.voters);
    alarms_print(c, cJSON_AddArrayToObject(j, "alarms"));
    members_print(r, &st, cJSON_AddArrayToObject(j, "members"));
    figures_print(r, cJSON_AddObjectToObject(j, "pool"));
    if (root_archive(r).begun)
        archive_print(c, r, cJSON_AddObjectToObject(j, "archive"));
    cJSON *counts = cJSON_AddObjectToObject(j, "objects");
    const struct kind *kinds[KIND_LIMIT];
    size_t n = kind_all(kinds, KIND_LIMIT);
    for (size_t i = 0; i < n; i++)
        if (root_count(r, kinds[i]->id))
            (void)cJSON_AddNumberToObject(counts, kinds[i]->plural,
                                          (double)root_count(r, kinds[i]->id));
    buf_init(&brain, 1u << 20);
    brain_status(c->brain, &brain);
    cJSON *b = brain.n ? cJSON_ParseWithLength(brain.p, brain.n) : NULL;
    if (b)
        (void)cJSON_AddItemToObject(j, "brain", b);
    char *text = cJSON_PrintUnformatted(j), *ret = mem_strdup(text);
    cJSON_free(text);
    cJSON_Delete(j);
    (void)root_unref(r);
    return ret;
}

static void op_status(struct operation *o, const struct api_identity *who, const cJSON *in)
{
    (void)who;
    (void)in;
    o->answer = status_print(o->c);
    loop_post(o->c->loop, operation_tell, o);
}

static void member_ask(struct operation *o, const cJSON *in, enum member_op op)
{
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(in, "id");
    struct core_peer p = {0};
    struct err e;

    if (!cJSON_IsNumber(id) || id->valuedouble < 1 || id->valuedouble > 1e9) {
        (void)err_field(&e, E_INVALID, "id", "expected the member's number, 1 or higher");
        operation_end(o, &e);
        return;
    }
    p.id = (uint64_t)id->valuedouble;
    str_copy(p.address, sizeof p.address, text_of(in, "address"));
    if (op == MEMBER_JOIN && !*p.address) {
        (void)err_field(&e, E_INVALID, "address",
                        "expected HOST:PORT of the new member's peer listener");
        operation_end(o, &e);
        return;
    }
    core_member(o->c->core, o->c->loop, op, &p, OPERATE_DEADLINE_MS, operation_read_done, o);
}
static void op_join(struct operation *o, const struct api_identity *who, const cJSON *in)
{
    (void)who;
    member_ask(o, in, MEMBER_JOIN);
}
static void op_promote(struct operation *o, const struct api_identity *who, const cJSON *in)
{
    (void)who;
    member_ask(o, in, MEMBER_PROMOTE);
}
static void op_remove(struct operation *o, const struct api_identity *who, const cJSON *in)
{
    (void)who;
    member_ask(o, in, MEMBER_REMOVE);
}
static void op_transfer(struct operation *o, const struct api_identity *who, const cJSON *in)
{
    (void)who;
    member_ask(o, in, MEMBER_TRANSFER);
}

static void op_fence(struct operation *o, const struct api_identity *who, const cJSON *in)
{
    char user[256];

    (void)snprintf(user, sizeof user, "%.120s%s%.120s%s", who->user, *who->by ? " (by " : "",
                   who->by, *who->by ? ")" : "");
    brain_fence(o->c->brain, text_of(in, "namespace"), text_of(in, "workload"), user,
                operation_read_done, o);
}

static void op_answer(void *arg, const char *json, const struct err *err)
{
    struct operation *o = arg;

    o->answer = json ? mem_strdup(json) : NULL;
    operation_end(o, err);
}
static void op_cost(struct operation *o, const struct api_identity *who, const cJSON *in)
{
    (void)who; /* the route asked for the right, and says whose cost is asked for */
    cost_operate(o->c, in, op_answer, o);
}
static void op_history(struct operation *o, const struct api_identity *who, const cJSON *in)
{
    (void)who; /* likewise: whose history is asked for */
    history_operate(o->c, in, op_answer, o);
}

static void op_pods(struct operation *o, const struct api_identity *who, const cJSON *in)
{
    (void)who; /* likewise: whose pods are asked for */
    brain_pods(o->c->brain, text_of(in, "namespace"), text_of(in, "workload"), op_answer, o);
}

static void op_adopt_shadow(struct operation *o, const struct api_identity *who, const cJSON *in)
{
    const cJSON *limit = cJSON_GetObjectItemCaseSensitive(in, "limit");
    struct adopt_ask ask = {
        .target = text_of(in, "target"), .ns = text_of(in, "namespace"), .limit = ADOPT_ROWS};
    struct err e;

    (void)who; /* the route asked for the right */
    if (limit && (!cJSON_IsNumber(limit) || limit->valuedouble < 1 ||
                  limit->valuedouble > ADOPT_ROWS_MAX ||
                  limit->valuedouble != floor(limit->valuedouble))) {
        (void)err_field(&e, E_INVALID, "limit", "expected a whole number from 1 to %d",
                        ADOPT_ROWS_MAX);
        operation_end(o, &e);
        return;
    }
    if (limit)
        ask.limit = (size_t)limit->valuedouble;
    brain_adopt_shadow(o->c->brain, &ask, op_answer, o);
}

static void op_token(struct operation *o, const struct api_identity *who, const cJSON *in)
{
    token_operate(o->c, who, in, op_answer, o);
}

void backend_operate(struct backend *b, const struct api_identity *who, const char *op,
                     const char *json, operate_cb cb, void *arg)
{
    static const struct {
        const char *name;
        void (*run)(struct operation *o, const struct api_identity *who, const cJSON *in);
    } table[] = {
        {"status", op_status},
        {"members.list", op_status},
        {"members.add", op_join},
        {"members.promote", op_promote},
        {"members.remove", op_remove},
        {"members.transfer", op_transfer},
        {"workload.fence", op_fence},
        {"token.create", op_token},
        {"cost", op_cost},
        {"history", op_history},
        {"pods", op_pods},
        {"adopt.shadow", op_adopt_shadow},
    };
    struct operation *o = mem_new(struct operation);
    cJSON *in = NULL;
    struct err e;

    *o = (struct operation){.c = (struct control *)b, .cb = cb, .arg = arg};
    if (json && *json && json_parse(json, strlen(json), &in, &e)) {
        operation_end(o, &e);
        return;
    }
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (!strcmp(table[i].name, op)) {
            table[i].run(o, who, in);
            cJSON_Delete(in);
            return;
        }
    }
    if (recovery_operate(o->c, who, op, in, op_answer, o)) {
        cJSON_Delete(in);
        return;
    }
    cJSON_Delete(in);
    (void)err_set(
        &e, E_NOTIMPL,
        "no operation \"%s\"; there are status, members.list, members.add, members.promote, "
        "members.remove, members.transfer, workload.fence, orphans.list, orphans.end, "
        "orphans.adopt, "
        "recover.targets, "
        "token.create, cost, history, pods and adopt.shadow",
        op);
    operation_end(o, &e);
}
