/* Bodies of frames, by wire.def. Every reader has an answer for whatever comes. */
#include "connectors/wire/wire.h"

#include "api/base/log.h"
#include "connectors/checkpoint/checkpoint.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- run keys ---- */
void run_key_print(const struct run_key *k, char out[RUN_KEY_MAX])
{
    (void)snprintf(out, RUN_KEY_MAX, "%s.%lld.%lld", k->uid, (long long)k->epoch,
                   (long long)k->try_);
}

static bool key_number(const char *s, const char *end, int64_t *ret)
{
    char *stop;

    if (s == end || *s < '0' || *s > '9' || (*s == '0' && s + 1 != end)) /* one spelling each */
        return false;
    errno = 0;
    *ret = strtoll(s, &stop, 10);
    return stop == end && errno == 0 && *ret <= RUN_KEY_NUMBER_MAX;
}

int run_key_parse(const char *s, struct run_key *ret, struct err *err)
{
    struct run_key k;
    const char *last = strrchr(s, '.');
    const char *mid = last ? memrchr(s, '.', (size_t)(last - s)) : NULL;

    memset(&k, 0, sizeof k);
    if (!mid || mid == s || (size_t)(mid - s) >= sizeof k.uid ||
        !key_number(mid + 1, last, &k.epoch) || !key_number(last + 1, s + strlen(s), &k.try_))
        return err_set(err, E_SYNTAX, "\"%.100s\" is no run key; expected UID.EPOCH.TRY", s);
    memcpy(k.uid, s, (size_t)(mid - s));
    /* It becomes a folder's name on the other side. */
    if (strspn(k.uid, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") !=
        strlen(k.uid))
        return err_set(err, E_SYNTAX,
                       "\"%.100s\" is no run key: letters, digits, - and _ make a uid", s);
    *ret = k;
    return 0;
}

bool run_key_same(const struct run_key *a, const struct run_key *b)
{
    return run_key_compare(a, b) == 0;
}

bool run_key_same_workload(const struct run_key *a, const struct run_key *b)
{
    return strcmp(a->uid, b->uid) == 0;
}

int run_key_compare(const struct run_key *a, const struct run_key *b)
{
    int uid = strcmp(a->uid, b->uid);

    if (uid)
        return uid;
    if (a->epoch != b->epoch)
        return a->epoch < b->epoch ? -1 : 1;
    return a->try_ < b->try_ ? -1 : a->try_ > b->try_;
}

static bool key_present(const void *k)
{
    return *((const struct run_key *)k)->uid != '\0';
}

static void key_print(const void *k, char out[SPELLING_MAX])
{
    _Static_assert(RUN_KEY_MAX <= SPELLING_MAX, "a key is a spelling");
    run_key_print(k, out);
}

static int key_parse(const char *text, void *ret, struct err *err)
{
    return run_key_parse(text, ret, err);
}

/* ---- descriptors ---- */
static const struct spelling spelling_run_key = {key_present, key_print, key_parse};

#define LONG FIELD_LONG
#define DESCRIBED_SCHEMAS WIRE_SCHEMAS
#define DESCRIBED_ENUMS WIRE_ENUMS
#include "api/schema/describe.def"

__attribute__((constructor)) static void wire_init(void)
{
    describe();
}

/* ---- what a body cannot say by itself ---- */
void checkpoint_settle(struct run_checkpoint_report *c)
{
    if (c->present && ((c->path[0] != '/' && !checkpoint_store_is_remote(c->path)) ||
                       strncmp(c->digest, "sha256:", 7) != 0))
        *c = (struct run_checkpoint_report){0};
}

void observation_settle(struct observation *o)
{
    checkpoint_settle(&o->checkpoint);
}

/* ---- reading and writing ---- */
int wire_read_body(const struct schema *schema, struct slice text, struct arena *a, void **ret,
                   struct err *err)
{
    cJSON *j = json_parse_bytes(text.p, text.n);
    int rc = 0;

    if (!cJSON_IsObject(j)) {
        cJSON_Delete(j);
        return err_set(err, E_SYNTAX, "a %s holds no JSON object", schema->name);
    }
    arena_set_soft(a, true);
    rc = body_from_json(schema, j, 0, a, ret, err);
    cJSON_Delete(j);
    return rc;
}

int wire_send_body(struct stream *s, int type, uint64_t id, const struct schema *schema,
                   const void *body, struct err *err)
{
    AUTO_BUF text;

    buf_init(&text, FRAME_BODY_MAX);
    int rc = body_print_json(schema, body, &text, err);
    if (rc == 0)
        frame_send(s, (uint8_t)type, 0, id, text.p, text.n);
    return rc;
}

void wire_tell_body(struct stream *s, int type, uint64_t id, const struct schema *schema,
                    const void *body)
{
    struct err err;

    if (wire_send_body(s, type, id, schema, body, &err) < 0)
        log_err(LOG_ERROR, "agent.frame", &err);
}
