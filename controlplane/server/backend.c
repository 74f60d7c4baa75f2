/* The API's table of calls over core, store and brain. This file must never propose a Secret's
 * value in clear. */
#include "controlplane/server/backend.h"
#include "controlplane/server/zones.h"

#include "api/base/limits.h"

#include <cjson/cJSON.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#define SECRET_MAX (1u << 20)

/* Every kind's body begins like this (KIND_BODY and META_ONLY in kinds.def). */
struct any_kind {
    uint64_t has;
    struct slice unknown;
    struct meta *metadata;
};

static struct control *control_of(struct backend *b)
{
    return (struct control *)b;
}
static const struct root *root_of(const struct view *v)
{
    return (const struct root *)v;
}

void uuid_make(struct loop *l, char out[37])
{
    unsigned char u[16];

    loop_random(l, u, sizeof u);
    u[6] = (unsigned char)((u[6] & 0x0f) | 0x40);
    u[8] = (unsigned char)((u[8] & 0x3f) | 0x80);
    (void)snprintf(out, 37, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                   u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12],
                   u[13], u[14], u[15]);
}

/* ---- reading ---- */
static struct view *b_view(struct backend *b)
{
    return (struct view *)core_root(control_of(b)->core);
}
static struct view *b_view_ref(struct view *v)
{
    return (struct view *)root_ref(root_of(v));
}
static void b_view_release(struct view *v)
{
    (void)root_unref((struct root *)v);
}
static uint64_t b_view_rv(const struct view *v)
{
    return root_rv(root_of(v));
}
static const struct object *b_get(const struct view *v, const struct kind *k, const char *ns,
                                  const char *name)
{
    return root_get(root_of(v), k->id, ns, name);
}
static void b_scan(const struct view *v, const struct kind *k, const char *ns, const char *after_ns,
                   const char *after_name, bool (*each)(const struct object *o, void *arg),
                   void *arg)
{
    root_scan(root_of(v), k->id, ns, after_ns, after_name, each, arg);
}
static uint64_t b_count(const struct view *v, const struct kind *k)
{
    return root_count(root_of(v), k->id);
}

static struct object *b_shown(struct backend *b, const struct view *v, const struct object *o)
{
    struct control *c = control_of(b);

    return figures_shown(&c->figures, root_of(v), core_time_ms(c->core), o);
}

struct change_walk {
    bool (*each)(uint64_t rv, const struct kind *k, const struct object *before,
                 const struct object *after, void *arg);
    void *arg;
};
static bool change_each(const struct change *c, void *arg)
{
    struct change_walk *w = arg;

    return w->each(c->rv, kind_by_id(c->kind), c->before, c->after, w->arg);
}
static int b_changes(const struct view *v, uint64_t since,
                     bool (*each)(uint64_t rv, const struct kind *k, const struct object *before,
                                  const struct object *after, void *arg),
                     void *arg, struct err *err)
{
    struct change_walk w = {each, arg};

    return root_changes(root_of(v), since, change_each, &w, err);
}

static void b_subscribe(struct backend *b, void (*on_view)(void *arg), void *arg)
{
    control_of(b)->on_view = on_view;
    control_of(b)->on_view_arg = arg;
}

/* fresh(min_rv): a ReadIndex round, then (for a future rv) looking again until the deadline. */
struct fresh {
    struct control *c;
    uint64_t min_rv, due_ms;
    void (*cb)(void *arg, const struct err *err);
    void *arg;
    struct timer again;
};
static void fresh_end(struct fresh *f, const struct err *err)
{
    timer_stop(&f->again);
    f->cb(f->arg, err);
    mem_free(f);
}
static void fresh_look(void *arg)
{
    struct fresh *f = arg;
    struct root *r = core_root(f->c->core);
    bool there = root_rv(r) >= f->min_rv;

    (void)root_unref(r);
    if (there) {
        fresh_end(f, NULL);
        return;
    }
    if (loop_now_ms(f->c->loop) >= f->due_ms) {
        struct err e;
        (void)err_set(&e, E_UNKNOWN, "Too large resource version: %llu has not come yet",
                      (unsigned long long)f->min_rv);
        e.code = E_TIMEOUT;
        fresh_end(f, &e);
        return;
    }
    timer_start(&f->again, 20);
}
static void fresh_read(void *arg, const struct err *err)
{
    struct fresh *f = arg;

    if (err)
        fresh_end(f, err);
    else
        fresh_look(f);
}
static void b_fresh(struct backend *b, uint64_t min_rv, uint64_t deadline_ms,
                    void (*cb)(void *arg, const struct err *err), void *arg)
{
    struct control *c = control_of(b);
    struct fresh *f = mem_new(struct fresh);

    c->reads++;
    *f = (struct fresh){.c = c, .min_rv = min_rv, .cb = cb, .arg = arg};
    f->due_ms = loop_now_ms(c->loop) + deadline_ms;
    timer_init(&f->again, c->loop, fresh_look, f);
    core_read(c->core, c->loop, deadline_ms, fresh_read, f);
}

/* ---- secrets ---- */
static void base64_add(cJSON *data, const char *key, const char *text)
{
    size_t n = strlen(text);
    char *b64 = mem_zalloc(n * 4 / 3 + 8);

    (void)EVP_EncodeBlock((unsigned char *)b64, (const unsigned char *)text, (int)n);
    cJSON_DeleteItemFromObjectCaseSensitive(data, key);
    (void)cJSON_AddStringToObject(data, key, b64);
    OPENSSL_cleanse(b64, n * 4 / 3 + 8);
    mem_free(b64);
}

/* data and stringData of a Secret as it came, merged: the JSON text that is sealed. */
static char *secret_plain(const struct secret *s)
{
    cJSON *data = s->data.n ? cJSON_ParseWithLength(s->data.p, s->data.n) : cJSON_CreateObject();
    cJSON *strings =
        s->stringData.n ? cJSON_ParseWithLength(s->stringData.p, s->stringData.n) : NULL;
    const cJSON *it;

    if (!cJSON_IsObject(data)) {
        cJSON_Delete(data);
        data = cJSON_CreateObject();
    }
    cJSON_ArrayForEach(it, strings)
    {
        if (cJSON_IsString(it))
            base64_add(data, it->string, it->valuestring);
    }
    char *text = cJSON_PrintUnformatted(data);
    cJSON_Delete(data);
    cJSON_Delete(strings);
    return text;
}

static int b_secret_open(struct backend *b, const struct object *o, struct buf *ret,
                         struct err *err)
{
    const struct secret *s = object_as(o, secret);

    if (!s->sealed.n) {
        buf_str(ret, "{}");
        return 0;
    }
    return keyring_unseal(control_of(b)->keys, o->meta->uid, "data", s->sealed, ret, err);
}

/* Replaces clear values by the sealed form; an unchanged value keeps its old ciphertext, so that
 * nothing moves. */
static void secret_seal(struct control *c, struct secret *s, const struct object *old)
{
    char *plain = secret_plain(s);
    size_t n = strlen(plain);
    AUTO_BUF before;
    AUTO_BUF sealed;

    buf_init(&before, SECRET_MAX);
    buf_init(&sealed, SECRET_MAX);
    const struct secret *os = old ? object_as(old, secret) : NULL;
    if (os && os->sealed.n && !b_secret_open(&c->backend, old, &before, NULL) && before.n == n &&
        !CRYPTO_memcmp(before.p, plain, n))
        buf_add(&sealed, os->sealed.p, os->sealed.n);
    else
        keyring_seal(c->keys, c->loop, s->metadata->uid, "data", slice_make(plain, n), &sealed);
    s->data = s->stringData = slice_make(NULL, 0);
    if (sealed.failed) /* nothing rather than a part: its caller refuses it */
        buf_fini(&sealed);
    size_t sealed_n = 0;
    char *p = buf_steal(&sealed, &sealed_n);
    s->sealed = slice_make(p, sealed_n); /* freed by backend_op_object, after it was copied */
    if (before.p)
        OPENSSL_cleanse(before.p, before.n);
    OPENSSL_cleanse(plain, n);
    cJSON_free(plain);
}

const char *backend_secret_get(void *control, const char *ns, const char *name, const char *key)
{
    struct control *c = control;
    struct root *r = core_root(c->core);
    const struct object *o = root_get(r, KIND_SECRET, ns, name);
    char *ret = NULL;
    AUTO_BUF data;

    buf_init(&data, SECRET_MAX);
    if (o && !b_secret_open(&c->backend, o, &data, NULL)) {
        cJSON *j = cJSON_ParseWithLength(data.p, data.n);
        const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, key);
        if (cJSON_IsString(v)) {
            size_t n = strlen(v->valuestring);
            ret = mem_zalloc(n + 4);
            int got = EVP_DecodeBlock((unsigned char *)ret, (const unsigned char *)v->valuestring,
                                      (int)n);
            for (size_t i = n; got > 0 && i > 0 && v->valuestring[i - 1] == '='; i--)
                ret[--got] = 0;
        }
        cJSON_Delete(j);
        OPENSSL_cleanse(data.p, data.n);
    }
    (void)root_unref(r);
    return ret;
}

void backend_secret_put(void *control, const char *text)
{
    (void)control;
    if (text) {
        char *p = (char *)(uintptr_t)text;
        OPENSSL_cleanse(p, strlen(p));
        mem_free(p);
    }
}

#define RUNNER_TOKENS "hanse tokens of runners, 1"

static void home_sign(void *arg, const char *text, unsigned char ret[HOME_MAC_BYTES])
{
    keyring_mac(((const struct control *)arg)->keys, RUNNER_TOKENS, text, ret);
}

static bool home_holds(void *arg, const char *text, const unsigned char mac[HOME_MAC_BYTES])
{
    return keyring_mac_holds(((const struct control *)arg)->keys, RUNNER_TOKENS, text, mac);
}

static bool home_again(void *arg, unsigned i, const char *text, unsigned char ret[HOME_MAC_BYTES])
{
    return keyring_mac_again(((const struct control *)arg)->keys, i, RUNNER_TOKENS, text, ret);
}

struct home_keys backend_home_keys(struct control *c)
{
    _Static_assert(HOME_MAC_BYTES == KEYRING_MAC_BYTES, "the same");
    return (struct home_keys){home_sign, home_holds, home_again, c};
}

/* ---- writing ---- */
struct object *backend_op_object(struct control *c, const struct api_write_op *op,
                                 const struct root *r)
{
    bool secret = op->kind->id == KIND_SECRET, create = op->verb == API_CREATE;

    if (!op->object)
        return NULL;
    if (!secret && !(create && !*op->object->meta->uid))
        return object_ref(op->object);
    AUTO_ARENA a = arena_create(0);
    struct any_kind *body = object_edit(op->object, a);
    const struct object *old = root_get(r, op->kind->id, op->ns, op->name);
    if (create && !*body->metadata->uid) {
        char *uid = arena_alloc(a, 37);
        uuid_make(c->loop, uid);
        body->metadata->uid = uid;
    } else if (old) {
        body->metadata->uid = old->meta->uid;
    }
    struct slice sealed = {0};
    if (secret) {
        secret_seal(c, (struct secret *)body, old);
        sealed = ((struct secret *)body)->sealed;
    }
    struct object *o = NULL; /* NULL: it is larger than an object may be */
    if (!secret || sealed.n)
        (void)!object_make_within(op->kind, body, LIMIT_OBJECT_MAX_BYTES, &o, NULL);
    if (secret)
        mem_free((void *)(uintptr_t)sealed.p);
    return o;
}

static bool b_zone_known(struct backend *b, const char *zone)
{
    (void)b;
    return zone_known(zone);
}

/* ---- running work, operations ---- */
static const char *b_leader(struct backend *b)
{
    /* borrowed by the caller until the next call on this thread */
    static _Thread_local struct core_status st;

    core_status(control_of(b)->core, &st);
    return st.leads ? NULL : st.leader_id ? st.leader_api_address : "";
}
static void alarms_metrics(struct control *c, struct buf *out)
{
    struct core_alarm alarms[ALARM_NR];
    size_t n = core_alarms(c->core, alarms);
    bool on[ALARM_NR] = {false};

    for (size_t i = 0; i < n; i++)
        on[alarms[i].id] = true;
    buf_str(out, "# HELP hanse_alarm 1 while something is wrong with this member\n"
                 "# TYPE hanse_alarm gauge\n");
    for (unsigned a = 0; a < ALARM_NR; a++)
        buf_printf(out, "hanse_alarm{alarm=\"%s\"} %d\n", core_alarm_name((enum alarm)a), on[a]);
}
static void clocks_metrics(struct control *c, struct buf *out)
{
    struct core_clocks k;

    core_clocks(c->core, &k);
    if (!k.known)
        return;
    buf_printf(out,
               "# HELP hanse_clock_offset_seconds this machine's clock less the cluster's time\n"
               "# TYPE hanse_clock_offset_seconds gauge\nhanse_clock_offset_seconds %.3f\n"
               "# HELP hanse_clock_skew_seconds a member's clock less this one's\n"
               "# TYPE hanse_clock_skew_seconds gauge\n",
               (double)k.skew_ms / 1000);
    for (unsigned i = 0; i < k.n; i++)
        buf_printf(out, "hanse_clock_skew_seconds{member=\"%llu\"} %.3f\n",
                   (unsigned long long)k.peers[i].member, (double)k.peers[i].skew_ms / 1000);
}
static void loops_metrics(struct control *c, struct buf *out)
{
    const struct loop_turns *core = loop_turns(c->core_loop), *outer = loop_turns(c->loop);
    static const char *const labels[] = {"loop=\"core\"", "loop=\"outer\""};

    if (!core || !outer)
        return;
    const struct durations *held[] = {&core->held, &outer->held};
    const struct durations *computed[] = {&core->computed, &outer->computed};
    durations_tell(held, labels, 2, "hanse_loop_turn", "one turn of a loop, from waking to waiting",
                   out);
    durations_tell(computed, labels, 2, "hanse_loop_turn_cpu",
                   "what the loop's thread computed in one turn", out);
}
static void b_metrics(struct backend *b, struct buf *out)
{
    struct control *c = control_of(b);
    struct core_status st;

    core_status(c->core, &st);
    buf_printf(
        out,
        "# HELP hanse_raft_leader 1 where this member leads\n# TYPE hanse_raft_leader gauge\n"
        "hanse_raft_leader %d\n"
        "# HELP hanse_raft_term Raft term\n# TYPE hanse_raft_term gauge\nhanse_raft_term %llu\n"
        "# HELP hanse_raft_commit_index index committed\n# TYPE hanse_raft_commit_index counter\n"
        "hanse_raft_commit_index %llu\n"
        "# HELP hanse_raft_applied_index index applied\n# TYPE hanse_raft_applied_index counter\n"
        "hanse_raft_applied_index %llu\n"
        "# HELP hanse_writes_total writes asked of this member\n# TYPE hanse_writes_total counter\n"
        "hanse_writes_total %llu\n"
        "# HELP hanse_reads_total linearizable reads asked of this member\n"
        "# TYPE hanse_reads_total counter\nhanse_reads_total %llu\n",
        st.leads, (unsigned long long)st.term, (unsigned long long)st.commit,
        (unsigned long long)st.index, (unsigned long long)c->writes, (unsigned long long)c->reads);
    alarms_metrics(c, out);
    clocks_metrics(c, out);
    loops_metrics(c, out);
    brain_metrics(c->brain, out);
}
/* Alarms are told in any case; only what must not be sent requests is not ready. */
static bool b_ready(struct backend *b, struct buf *why)
{
    struct core_alarm alarms[ALARM_NR];
    size_t n = core_alarms(control_of(b)->core, alarms);
    struct core_status st;
    bool ready;

    core_status(control_of(b)->core, &st);
    ready = st.ready;
    if (!st.ready)
        buf_str(why, st.leader_id ? "catching up with the leader\n" : "no leader is known\n");
    for (size_t i = 0; i < n; i++) {
        buf_printf(why, "alarm %s: %s\n", alarms[i].name, alarms[i].text);
        ready &= alarms[i].serves;
    }
    return ready;
}
static int64_t b_now(struct backend *b)
{
    return core_time_ms(control_of(b)->core);
}

void backend_init(struct control *c)
{
    static const struct backend_ops ops = {
        .view = b_view,
        .view_ref = b_view_ref,
        .view_release = b_view_release,
        .view_rv = b_view_rv,
        .fresh = b_fresh,
        .get = b_get,
        .scan = b_scan,
        .count = b_count,
        .shown = b_shown,
        .changes = b_changes,
        .subscribe = b_subscribe,
        .write = backend_write,
        .secret_open = b_secret_open,
        .check = backend_check,
        .zone_known = b_zone_known,
        .token = backend_token,
        .exec = relay_exec,
        .exec_input = relay_exec_input,
        .exec_resize = relay_exec_resize,
        .exec_pending = relay_exec_pending,
        .exec_close = relay_exec_close,
        .leader = b_leader,
        .operate = backend_operate,
        .backup_open = backend_backup_open,
        .backup_next = backend_backup_next,
        .backup_close = backend_backup_close,
        .metrics = b_metrics,
        .ready = b_ready,
        .now = b_now,
    };
    c->backend.ops = &ops;
    list_init(&c->waiting);
    list_init(&c->relayed);
}
