/* A write under an Idempotency-Key is one request, however often and wherever it is sent. Its
 * answer is kept in the state: a success as it is written, and every refusal that rests on the
 * state before it is told, whichever verb or check it comes from (call_fail_at asks here). So what
 * was refused is never done later, though its first sending may wait in a member that was stopped.
 *
 * Not kept: "later" and "nobody knows" (429, 5xx), what the request's bytes alone forbid, dry
 * runs. */
#include "api/server/write/write_internal.h"

#include <openssl/evp.h>

#define DIGEST_BYTES 16 /* of a SHA-256 */

static void digest_add(EVP_MD_CTX *md, const void *p, size_t n)
{
    unsigned char length[8];

    for (unsigned i = 0; i < sizeof length; i++)
        length[i] = (unsigned char)((uint64_t)n >> (8 * i));
    INV(EVP_DigestUpdate(md, length, sizeof length) == 1 && EVP_DigestUpdate(md, p, n) == 1);
}

static void digest_text(EVP_MD_CTX *md, const char *s)
{
    digest_add(md, s, strlen(s));
}

static EVP_MD_CTX *digest_begin(void)
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();

    INV(md && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1);
    return md;
}

static const char *digest_end(struct call *c, EVP_MD_CTX *md)
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    char *text = arena_alloc(c->mem, 2 * DIGEST_BYTES + 1);

    INV(EVP_DigestFinal_ex(md, hash, NULL) == 1);
    EVP_MD_CTX_free(md);
    for (unsigned i = 0; i < DIGEST_BYTES; i++)
        (void)snprintf(text + (size_t)2 * i, 3, "%02x", hash[i]);
    return text;
}

/* Members of older versions keep answers by user, method and path under this, and only ever so:
 * while there is one, and for a day after, a repetition must be known by it. */
static const char *old_key(struct call *c, const char *key)
{
    const char *parts[] = {c->asker, "\n", key, "\n", c->m->method_text, "\n", c->m->path};
    uint64_t hash = 1469598103934665603u, other = 88172645463325252u;

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (const char *p = parts[i]; *p; p++) {
            hash = (hash ^ (unsigned char)*p) * 1099511628211u;
            other = (other + (unsigned char)*p) * 6364136223846793005u + 1442695040888963407u;
        }
    return arena_printf(c->mem, "%016llx%016llx", (unsigned long long)hash,
                        (unsigned long long)other);
}

static bool writes(const struct call *c)
{
    static void (*const verbs[])(struct call * c) = {
        write_create, write_update, write_patch, write_delete, write_delete_collection, apply_set};

    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (c->route && c->route->run == verbs[i])
            return true;
    return false;
}

/* What changes nothing may be asked as often as one likes. */
static bool changes_nothing(const struct call *c)
{
    static void (*const reviews[])(struct call * c) = {review_access, review_rules, review_subject,
                                                       review_self, review_token};

    for (size_t i = 0; i < sizeof reviews / sizeof *reviews; i++)
        if (c->route->run == reviews[i])
            return true;
    return c->m->method == HTTP_GET_ || c->m->method == HTTP_HEAD_;
}

/* Passed over in silence, a key would promise what nobody keeps. */
int write_check_key(struct call *c, struct err *err)
{
    const char *key = http_header_get(c->rq, "idempotency-key");

    if (!key || !*key || writes(c) || changes_nothing(c))
        return 0;
    return err_field(err, E_INVALID, "Idempotency-Key",
                     "this request takes no Idempotency-Key: only writes of objects are done once "
                     "under one. Send it without, and after an answer that was lost read back "
                     "before you send it again");
}

void write_begin_key(struct call *c)
{
    const char *key = http_header_get(c->rq, "idempotency-key");
    const char *type = http_header_get(c->rq, "content-type");

    if (!key || !*key || !writes(c) || c->who.anonymous)
        return;
    EVP_MD_CTX *md = digest_begin();
    digest_text(md, c->asker);
    digest_text(md, key);
    c->key = digest_end(c, md);
    c->old_key = old_key(c, key);
    md = digest_begin();
    digest_text(md, c->m->method_text);
    digest_text(md, c->m->path);
    digest_text(md, type ? type : "");
    for (unsigned i = 0; i < c->m->n_params; i++) {
        digest_text(md, c->m->params[i].name);
        digest_text(md, c->m->params[i].value);
    }
    digest_add(md, c->m->body.p, c->m->body.n);
    for (unsigned i = 0; c->as && i < c->m->n_headers; i++)
        if (!strncmp(c->m->headers[i].name, "impersonate-", 12)) {
            digest_text(md, c->m->headers[i].name);
            digest_text(md, c->m->headers[i].value);
        }
    c->fingerprint = digest_end(c, md);
}

void write_name(struct call *c, struct api_write *w)
{
    w->key = c->key;
    w->fingerprint = c->fingerprint;
    w->old_key = c->old_key;
    w->attempt = c->named++;
    c->fresh = false; /* what comes after it is computed on what it leads to */
}

/* Under a key the name that is made up is the same each time. */
void write_random_name(struct call *c, char *out, size_t n)
{
    static const char letters[] = "bcdfghjklmnpqrstvwxz2456789";

    for (size_t i = 0; i + 1 < n; i++) {
        uint64_t v =
            c->key ? (uint64_t)(unsigned char)c->key[2 * i] * 16 + (unsigned char)c->key[2 * i + 1]
                   : loop_random_u64(c->api->cfg.loop);
        out[i] = letters[v % (sizeof letters - 1)];
    }
    out[n - 1] = 0;
}

/* ---- refusals ---- */
static bool rests_on_the_state(const struct call *c, int code)
{
    static const int pure[] = {E_SYNTAX,    E_MEDIA,  E_TOOLARGE, E_METHOD,
                               E_NOTACCEPT, E_UNAUTH, E_USAGE,    E_NOTIMPL};
    enum err_retry retry = err_info(code)->retry;

    for (size_t i = 0; i < sizeof pure / sizeof *pure; i++)
        if (code == pure[i])
            return false;
    if (code == E_INVALID && !c->by_state)
        return false;
    return c->view && (retry == RETRY_NEVER || retry == RETRY_AGAIN);
}

/* Also where the body says so, which may not have been looked at yet. */
static bool is_dry_run(struct call *c)
{
    struct err e = {0};

    if (c->dry_run || *call_param(c, "dryRun"))
        return true;
    if (!c->m->body.n || (c->route->run != apply_set && c->m->method != HTTP_DELETE_))
        return false;
    const cJSON *dry = cJSON_GetObjectItemCaseSensitive(call_body(c, &e), "dryRun");
    return cJSON_IsTrue(dry) || cJSON_GetArraySize(dry) > 0;
}

static void refusal_kept(void *arg, const struct api_result *r, const struct err *err)
{
    struct call *c = arg;

    if (!err || !err->code) { /* it was done, before this sending was refused */
        if (c->done_before)
            c->done_before(c, r);
        else
            write_tell_before(c, r);
    } else if (!r->final || r->repeated) { /* nobody knows, or another refusal came first */
        c->conflicts = NULL;
        call_fail_at(c, err, c->refused_kind, c->refused_name);
    } else {
        call_fail_at(c, &c->refused, c->refused_kind, c->refused_name);
    }
}

bool write_refusal(struct call *c, const struct err *e, const struct kind *k, const char *name)
{
    if (!c->key || c->settled || !rests_on_the_state(c, e->code) || is_dry_run(c))
        return false;
    struct api_write w = {.user = c->asker,
                          .as = c->as ? c->as->user : NULL,
                          .refusal = &c->refused,
                          .deadline_ms = DEADLINE_MS};

    c->settled = true;
    c->refused = *e;
    c->refused_kind = k;
    c->refused_name = name ? arena_strdup(c->mem, name) : NULL;
    write_name(c, &w);
    c->api->ops->write(c->api->b, &w, refusal_kept, c);
    return true;
}
