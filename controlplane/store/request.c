/* Requests are carried out at most once, and their answers are kept: under a client's key for 24 h
 * of the state's time, under a member's stamp until that member says that nobody waits for them.
 * This is part of apply: the state and the entry alone decide what is kept, and when it is dropped.
 * No answer may be dropped before its time: where there is no room, the new request waits. */
#include "controlplane/store/store_internal.h"

#include "api/base/failpoint.h"

#include <stdio.h>

#define KEY_AGE_MS (24ll * 3600 * 1000)
/* that are let go at once, so that a day's worth never falls on one entry */
#define KEYS_SLICE 16
#define RECENTS_SLICE 8
#define BOX_BYTES 256 /* what a kept answer costs beside its texts and its keys */

/* In snapshots; other tags of that level are in snapshot.c. */
enum { S_KEY = 30, S_SESSION = 31, S_RECENT = 32 };
enum { R_KEY = 1, R_AT, R_SEQ, R_CODE, R_RV, R_OP, R_UNCHANGED, R_FIELD, R_TEXT, R_PRINT };
enum { X_MEMBER = 1, X_SESSION, X_FLOOR };

static void put(struct tree **t, struct slice key, const void *v)
{
    *t = tree_put_own(*t, key, v);
}

static void del(struct tree **t, struct slice key)
{
    *t = tree_del_own(*t, key);
}

/* ---- answers that are kept ---- */
struct request_box *request_box_make(int64_t at, uint64_t seq, const struct result *res,
                                     const char *print)
{
    size_t nf = strlen(res->field) + 1, nt = strlen(res->text) + 1, np = strlen(print) + 1;
    struct request_box *b = box_new(sizeof *b + nf + nt + np, NULL);

    b->at = at;
    b->seq = seq;
    b->code = res->code;
    b->rv = res->rv;
    b->op = res->op;
    b->unchanged = res->unchanged;
    b->field = (char *)(b + 1);
    b->text = b->field + nf;
    b->print = b->text + nt;
    memcpy(b->field, res->field, nf);
    memcpy(b->text, res->text, nt);
    memcpy(b->print, print, np);
    return b;
}

uint64_t request_hash(uint64_t seed, struct slice key, const struct request_box *b)
{
    uint64_t h = hash_bytes(seed, key.p, key.n);

    h = hash_u64(h, (uint64_t)b->at);
    h = hash_u64(h, b->seq);
    h = hash_u64(h, (uint64_t)(int64_t)b->code);
    h = hash_u64(h, b->rv);
    h = hash_u64(h, b->op * 2u + b->unchanged);
    h = hash_bytes(h, b->field, strlen(b->field));
    h = hash_bytes(h, b->text, strlen(b->text));
    return *b->print ? hash_bytes(h, b->print, strlen(b->print)) : h;
}

static bool tell(const struct request_box *b, struct result *res)
{
    if (!b)
        return false;
    res->code = b->code;
    res->rv = b->rv;
    res->op = b->op;
    res->unchanged = b->unchanged;
    res->final = res->repeated = true;
    str_copy(res->field, sizeof res->field, b->field);
    str_copy(res->text, sizeof res->text, b->text);
    return true;
}

static bool refuse(struct result *res, int code, const char *field, const char *text)
{
    res->code = code;
    str_copy(res->field, sizeof res->field, field);
    str_copy(res->text, sizeof res->text, text);
    return true;
}

/* ---- by id: MEMBER, and WRITE as members before FEATURE_GRANTS propose it ---- */
#define OLD_ATTEMPTS 8
/* Only what users ask for twice is kept by id; the brain's commands carry their own fence (epoch,
 * try, rv). */
static bool id_of(const struct command_head *h, struct key *k)
{
    if (!*h->request_id || (h->type != CMD_WRITE && h->type != CMD_MEMBER))
        return false;
    key_pair(k, h->user, h->request_id);
    return true;
}

static bool id_known(const struct root *w, const struct command_head *h, struct result *res)
{
    struct key k;

    if (!id_of(h, &k))
        return false;
    if (tell(tree_get(w->requests, key_slice(&k)), res))
        return true;
    /* Of a member that has not seen yet what the others are at: its key may be answered already. */
    return h->type == CMD_WRITE &&
           strncmp(h->request_id, OLD_KEY_PREFIX, strlen(OLD_KEY_PREFIX)) == 0 &&
           root_feature_level(w) >= FEATURE_GRANTS &&
           refuse(res, E_UNAVAIL, "",
                  "the member that was asked is behind: nothing was done, ask again");
}

/* Was it done before all members knew REQUEST? Refusals of then were not for good. */
static bool old_done(const struct root *w, const struct request_cmd *c, struct result *res)
{
    char id[REQUEST_ID_MAX];
    struct key k;

    for (int i = 0; *c->old_id && i <= OLD_ATTEMPTS && tree_count(w->requests); i++) {
        if (i)
            (void)snprintf(id, sizeof id, "%.100s-%d", c->old_id, i);
        key_pair(&k, c->write.head.user, i ? id : c->old_id);
        const struct request_box *b = tree_get(w->requests, key_slice(&k));
        if (b && b->code == 0)
            return tell(b, res);
    }
    return false;
}

/* ---- by key ---- */
#define KEY_SEED 6
static uint64_t key_bytes(struct slice key, const struct request_box *b)
{
    return BOX_BYTES + 2 * key.n + strlen(b->field) + strlen(b->text) + strlen(b->print);
}

static struct slice user_of(struct slice key) /* user \0 key */
{
    return slice_make(key.p, strnlen(key.p, key.n));
}

static void key_count(struct root *w, struct slice key, const struct request_box *b, int sign)
{
    int64_t n = sign * (int64_t)key_bytes(key, b);

    root_count_add(&w->key_use, user_of(key), n);
    w->keys_bytes = (uint64_t)((int64_t)w->keys_bytes + n);
    w->digest = sign > 0 ? w->digest + request_hash(KEY_SEED, key, b)
                         : w->digest - request_hash(KEY_SEED, key, b);
}

static void key_put(struct root *w, struct slice key, struct request_box *b) /* takes b over */
{
    struct bytes_box *id = box_new(sizeof *id + key.n, NULL);
    struct key k;

    PRE(!tree_get(w->keys, key));
    id->n = (uint32_t)key.n;
    memcpy(id->p, key.p, key.n);
    key_u64(&k, b->seq);
    put(&w->keys, key, b);
    put(&w->key_order, key_slice(&k), id);
    key_count(w, key, b, 1);
    box_unref(id);
    box_unref(b);
}

struct oldest {
    struct key order;
    const struct bytes_box *id;
};

static bool take_oldest(struct slice key, const void *value, void *arg)
{
    struct oldest *o = arg;

    INV(key.n <= sizeof o->order.p);
    memcpy(o->order.p, key.p, key.n);
    o->order.n = key.n;
    o->id = value;
    return false;
}

/* Those whose time is over, oldest first. */
static void keys_let_go(struct root *w)
{
    for (int i = 0; i < KEYS_SLICE; i++) {
        struct oldest o = {.id = NULL};

        tree_scan(w->key_order, slice_make("", 0), take_oldest, &o);
        if (!o.id)
            return;
        struct slice key = slice_make(o.id->p, o.id->n);
        const struct request_box *b = tree_get(w->keys, key);
        INV(b);
        if (b->at + KEY_AGE_MS > w->time)
            return;
        key_count(w, key, b, -1);
        del(&w->keys, key);
        del(&w->key_order, key_slice(&o.order));
    }
}

bool root_key_room(const struct root *r, const char *user, const char **ret_why)
{
    static const uint64_t most =
        BOX_BYTES + 2 * STORE_KEY_MAX + ERR_FIELD_MAX + RESULT_TEXT_MAX + FINGERPRINT_MAX;
    uint64_t used = (uint64_t)root_count_of(r->key_use, key_str(user));

    *ret_why =
        "the answers under Idempotency-Keys of the last 24 h fill the room that there is for "
        "them: try again later, or without a key";
    if (r->keys_bytes + most > LIMIT_KEYS_MAX_BYTES)
        return false;
    *ret_why = "this user's answers under Idempotency-Keys of the last 24 h fill his share of the "
               "room for them: try again later, or without a key";
    return used + most <= LIMIT_KEYS_USER_MAX_BYTES;
}

bool request_answered(const struct root *r, const struct request_cmd *c)
{
    struct result unused = {0};
    struct key k;

    if (!*c->key)
        return false;
    key_pair(&k, c->write.head.user, c->key);
    return tree_get(r->keys, key_slice(&k)) != NULL || old_done(r, c, &unused);
}

static bool key_known(struct root *w, const struct request_cmd *c, struct result *res)
{
    const char *why = NULL;
    struct key k;

    key_pair(&k, c->write.head.user, c->key);
    keys_let_go(w);
    const struct request_box *b = tree_get(w->keys, key_slice(&k));
    if (!b && old_done(w, c, res))
        return true;
    if (!b)
        return !root_key_room(w, c->write.head.user, &why) && refuse(res, E_LIMIT, "", why);
    if (strcmp(b->print, c->fingerprint) != 0) {
        res->final = res->repeated = true;
        return refuse(res, E_INVALID, "Idempotency-Key",
                      "this key was used within 24 h for another request (method, path or body "
                      "differ): a key names one request, take a new one for another");
    }
    return tell(b, res);
}

/* What is worth keeping: what would be said again, not "later" and not "nobody knows". */
static bool key_final(const struct request_cmd *c, const struct result *res)
{
    enum err_retry retry = err_info(res->code)->retry;

    if (res->code == 0)
        return !c->part;
    if (c->refusal && PLANTED("store.refusal-forgotten"))
        return false;
    if (c->again && (res->code == E_CONFLICT || res->code == E_NOTFOUND || res->code == E_EXISTS))
        return false;
    return retry == RETRY_NEVER || retry == RETRY_AGAIN;
}

/* ---- by stamp ---- */
/* A member numbers what it proposes and says which of it nobody waits for any more (floor). What
 * is below is let go, and refused should it come (again); what is above is answered as the first
 * time. So a repetition, however late, is never carried out twice, and no time needs to be guessed
 * for which one may come. A member that starts anew begins a new session; older ones are over. */
#define RECENT_SEED 7
#define SESSION_SEED 8
static void recent_key(struct key *k, uint64_t member, uint64_t session, uint64_t number)
{
    uint64_t v[3] = {member, session, number};

    k->n = 0;
    for (int i = 0; i < 3; i++) {
        struct key part;

        key_u64(&part, v[i]);
        memcpy(k->p + k->n, part.p, part.n);
        k->n += part.n;
    }
}

static uint64_t session_hash(uint64_t member, const struct session_box *s)
{
    return hash_u64(hash_u64(hash_u64(SESSION_SEED, member), s->session), s->floor);
}

static const struct session_box *session_get(const struct root *r, uint64_t member)
{
    struct key k;

    key_u64(&k, member);
    return tree_get(r->sessions, key_slice(&k));
}

static void session_put(struct root *w, uint64_t member, uint64_t session, uint64_t floor)
{
    const struct session_box *old = session_get(w, member);
    struct session_box *s = box_new(sizeof *s, NULL);
    struct key k;

    if (old)
        w->digest -= session_hash(member, old);
    s->session = session;
    s->floor = floor;
    key_u64(&k, member);
    put(&w->sessions, key_slice(&k), s);
    w->digest += session_hash(member, s);
    box_unref(s);
}

uint64_t root_session(const struct root *r, uint64_t member)
{
    const struct session_box *s = session_get(r, member);

    return s ? s->session : 0;
}

static void recent_put(struct root *w, struct slice key, struct request_box *b) /* takes b over */
{
    put(&w->recents, key, b);
    w->digest += request_hash(RECENT_SEED, key, b);
    box_unref(b);
}

struct recent_first {
    struct key key;
    const struct request_box *b;
};

static bool take_recent(struct slice key, const void *value, void *arg)
{
    struct recent_first *f = arg;

    INV(key.n <= sizeof f->key.p);
    memcpy(f->key.p, key.p, key.n);
    f->key.n = key.n;
    f->b = value;
    return false;
}

/* What lies below the floor of its member's session. */
static void recents_let_go(struct root *w, uint64_t member)
{
    const struct session_box *s = session_get(w, member);
    struct key from, end;

    INV(s);
    recent_key(&from, member, 0, 0);
    recent_key(&end, member, s->session, s->floor);
    for (int i = 0; i < RECENTS_SLICE; i++) {
        struct recent_first f = {.b = NULL};

        tree_scan(w->recents, key_slice(&from), take_recent, &f);
        if (!f.b || memcmp(f.key.p, end.p, end.n) >= 0)
            return;
        w->digest -= request_hash(RECENT_SEED, key_slice(&f.key), f.b);
        del(&w->recents, key_slice(&f.key));
    }
}

static bool stamp_known(struct root *w, const struct request_cmd *c, struct result *res)
{
    const struct session_box *s = session_get(w, c->member);
    struct key k;

    if (s && c->session < s->session)
        return refuse(res, E_UNAVAIL, "",
                      "it comes from before the member that took it started anew: it was not "
                      "carried out");
    uint64_t floor = s && s->session == c->session ? s->floor : 0;
    if (c->number < floor)
        return refuse(res, E_UNAVAIL, "",
                      "its member has told that nobody waits for it: it was not carried out now");
    if (c->floor > floor && c->floor <= c->number)
        floor = c->floor;
    if (c->number - floor >= LIMIT_STAMPS_MAX)
        return refuse(res, E_LIMIT, "", "too many writes of one member wait: try again later");
    if (!s || s->session != c->session || s->floor != floor)
        session_put(w, c->member, c->session, floor);
    recents_let_go(w, c->member);
    recent_key(&k, c->member, c->session, c->number);
    return tell(tree_get(w->recents, key_slice(&k)), res);
}

/* ---- around one command ---- */
bool request_known(struct root *w, const union command *c, struct result *res)
{
    if (PLANTED("store.applied-twice"))
        return false;
    if (c->head.type == CMD_REQUEST)
        return *c->request.key ? key_known(w, &c->request, res) : stamp_known(w, &c->request, res);
    return id_known(w, &c->head, res);
}

void request_keep(struct root *w, const union command *c, struct result *res)
{
    const struct request_cmd *q = &c->request;
    struct key k;

    if (PLANTED("store.applied-twice"))
        return;
    if (c->head.type != CMD_REQUEST) {
        if (id_of(&c->head, &k)) {
            root_put_request(w, key_slice(&k),
                             request_box_make(w->time, ++w->request_seq, res, ""));
            root_bound(w);
        }
        return;
    }
    res->final = key_final(q, res);
    if (!*q->key) {
        recent_key(&k, q->member, q->session, q->number);
        recent_put(w, key_slice(&k), request_box_make(w->time, 0, res, ""));
    } else if (res->final) {
        key_pair(&k, q->write.head.user, q->key);
        key_put(w, key_slice(&k), request_box_make(w->time, ++w->request_seq, res, q->fingerprint));
    }
}

int apply_request(struct txn *t, const struct request_cmd *c)
{
    int code = -(int)c->refusal;

    if (!c->refusal)
        return apply_write(t, &c->write);
    if (*c->field)
        return err_field(t->err, code, c->field, "%s", c->text);
    return err_set(t->err, code, "%s", c->text);
}

/* ---- as bytes ---- */
void request_write(uint16_t tag, struct slice key, const struct request_box *b, struct buf *out)
{
    size_t at = record_open(out, tag);

    record_bytes(out, R_KEY, key.p, key.n);
    record_i64(out, R_AT, b->at);
    record_u64(out, R_SEQ, b->seq);
    record_i64(out, R_CODE, b->code);
    record_u64(out, R_RV, b->rv);
    record_u64(out, R_OP, b->op);
    record_u64(out, R_UNCHANGED, b->unchanged);
    record_str(out, R_FIELD, b->field);
    record_str(out, R_TEXT, b->text);
    record_str(out, R_PRINT, b->print);
    record_close(out, at);
}

struct request_box *request_read(struct slice in, struct slice *ret_key)
{
    struct wire w = {in.p, in.n};
    struct slice v, key = {NULL, 0};
    struct result res = {0};
    uint64_t f[R_FIELD] = {0};
    char print[FINGERPRINT_MAX] = "";
    uint16_t tag;
    bool ok = true;
    int r;

    while ((r = record_next(&w, &tag, &v)) > 0) {
        if (tag == R_KEY)
            key = v;
        else if (tag == R_FIELD)
            ok = ok && record_get_str(v, res.field, sizeof res.field);
        else if (tag == R_TEXT)
            ok = ok && record_get_str(v, res.text, sizeof res.text);
        else if (tag == R_PRINT)
            ok = ok && record_get_str(v, print, sizeof print);
        else if (tag < R_FIELD)
            f[tag] = record_get_u64(v);
    }
    if (r < 0 || !ok || !key.p || !key.n || key.n > STORE_KEY_MAX)
        return NULL;
    res.code = (int)(int64_t)f[R_CODE];
    res.rv = f[R_RV];
    res.op = (uint32_t)f[R_OP];
    res.unchanged = f[R_UNCHANGED] != 0;
    *ret_key = key;
    return request_box_make((int64_t)f[R_AT], f[R_SEQ], &res, print);
}

static bool write_key(struct slice key, const void *value, void *arg)
{
    request_write(S_KEY, key, value, ((const struct fields_out *)arg)->buf);
    field_whole(arg);
    return true;
}

static bool write_recent(struct slice key, const void *value, void *arg)
{
    request_write(S_RECENT, key, value, ((const struct fields_out *)arg)->buf);
    field_whole(arg);
    return true;
}

static uint64_t be_u64(const char *p)
{
    uint64_t v = 0;

    for (int i = 0; i < 8; i++)
        v = v << 8 | (unsigned char)p[i];
    return v;
}

static bool write_session(struct slice key, const void *value, void *arg)
{
    const struct session_box *s = value;
    struct buf *out = ((const struct fields_out *)arg)->buf;
    size_t at = record_open(out, S_SESSION);

    record_u64(out, X_MEMBER, be_u64(key.p));
    record_u64(out, X_SESSION, s->session);
    record_u64(out, X_FLOOR, s->floor);
    record_close(out, at);
    return true;
}

void requests_write(const struct root *r, const struct fields_out *out)
{
    const struct slice start = slice_make("", 0);
    struct fields_out to = *out;

    tree_scan(r->keys, start, write_key, &to);
    tree_scan(r->sessions, start, write_session, &to);
    tree_scan(r->recents, start, write_recent, &to);
}

static int read_session(struct root *w, struct slice in)
{
    struct wire wire = {in.p, in.n};
    uint64_t f[X_FLOOR + 1] = {0};
    struct slice v;
    uint16_t tag;
    int r;

    while ((r = record_next(&wire, &tag, &v)) > 0)
        if (tag <= X_FLOOR)
            f[tag] = record_get_u64(v);
    if (r < 0 || session_get(w, f[X_MEMBER]))
        return E_CORRUPT;
    session_put(w, f[X_MEMBER], f[X_SESSION], f[X_FLOOR]);
    return 0;
}

static int read_answer(struct root *w, uint16_t tag, struct slice in)
{
    struct slice key;
    struct key order;
    struct request_box *b = request_read(in, &key);

    if (!b)
        return E_CORRUPT;
    key_u64(&order, b->seq);
    if (tag == S_RECENT ? key.n != 24 || tree_get(w->recents, key) != NULL
                        : !memchr(key.p, 0, key.n) || tree_get(w->keys, key) ||
                              tree_get(w->key_order, key_slice(&order))) {
        box_unref(b);
        return E_CORRUPT;
    }
    if (tag == S_RECENT)
        recent_put(w, key, b);
    else
        key_put(w, key, b);
    return 0;
}

int requests_read(struct root *w, uint16_t tag, struct slice in, struct err *err)
{
    int r = 0;

    if (tag == S_SESSION)
        r = read_session(w, in);
    else if (tag == S_KEY || tag == S_RECENT)
        r = read_answer(w, tag, in);
    return r ? err_set(err, r, "snapshot: an answer that is kept cannot be read") : 0;
}

/* ---- for tests ---- */
static bool sum_key(struct slice key, const void *value, void *arg)
{
    *(uint64_t *)arg += key_bytes(key, value);
    return true;
}

static bool sum_count(struct slice key, const void *value, void *arg)
{
    (void)key;
    *(uint64_t *)arg += (uint64_t)((const struct count_box *)value)->n;
    return true;
}

void requests_check(const struct root *r)
{
    const struct slice start = slice_make("", 0);
    uint64_t bytes = 0, users = 0;

    tree_scan(r->keys, start, sum_key, &bytes);
    tree_scan(r->key_use, start, sum_count, &users);
    INV(bytes == r->keys_bytes && users == bytes && bytes <= LIMIT_KEYS_MAX_BYTES);
    INV(tree_count(r->keys) == tree_count(r->key_order));
}
