/* The order that a connector gets, resolved from the Workload, which no driver sees: the command,
 * environment with Secrets resolved, where the checkpoints go, what the run resumes from, how often
 * saving pays. It reads the state; it must never change it,
 * and never keep a secret longer than the order lives. */

#include "controlplane/leader/drive/order.h"

#include "api/base/failpoint.h"
#include "connectors/checkpoint/checkpoint.h"
#include "controlplane/leader/drive/lease.h"
#include "controlplane/leader/logs/logs.h"
#include "controlplane/leader/site/sites.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#define ENV_MAX 600
#define HOUR_MS 3600000.0
#define KEEP_LEAST 2
#define ORDER_DOCUMENT_MAX (1u << 20)
#define ORDER_TOO_LARGE                                                                            \
    "what its runner is told, with its Secrets, has at least %zu bytes of JSON; at most %d: put "  \
    "what is long into a file"

struct order_env {
    const char *v[ENV_MAX];
    unsigned n;
};

/* Resolves spec.run.env; NULL and an error when a Secret is missing, or the order would become too
 * large. */
static const char *const *env_make(struct brain *b, const struct object *o, struct arena *a,
                                   struct err *err)
{
    const struct run_spec *run = object_as(o, workload)->spec->run;
    struct order_env *e = arena_new(a, struct order_env);
    const char *ns = o->meta->namespace_, *field = "";
    size_t bytes = workload_order_bytes(object_as(o, workload)->spec, &field);

    if (bytes > LIMIT_ORDER_MAX_BYTES) {
        (void)err_field(err, E_TOOLARGE, field, ORDER_TOO_LARGE, bytes, LIMIT_ORDER_MAX_BYTES);
        return NULL;
    }

    for (uint32_t i = 0; i < run->n_env && e->n < ENV_MAX - 1; i++) {
        const struct env_var *v = &run->env[i];
        if (!v->valueFrom) {
            e->v[e->n++] = arena_printf(a, "%s=%s", v->name, v->value);
            continue;
        }
        const char *text =
            b->cfg.secret_get
                ? b->cfg.secret_get(b->cfg.arg, ns, v->valueFrom->secret, v->valueFrom->key)
                : NULL;
        if (!text) {
            (void)err_set(err, E_NOTFOUND, "env %s: Secret %s has no key %s in namespace %s",
                          v->name, v->valueFrom->secret, v->valueFrom->key, ns);
            return NULL;
        }
        bytes += json_text_bytes(text);
        if (bytes <= LIMIT_ORDER_MAX_BYTES)
            e->v[e->n++] = arena_printf(a, "%s=%s", v->name, text);
        b->cfg.secret_put(b->cfg.arg, text);
        if (bytes > LIMIT_ORDER_MAX_BYTES) {
            (void)err_field(err, E_TOOLARGE, "spec.run.env", ORDER_TOO_LARGE, bytes,
                            LIMIT_ORDER_MAX_BYTES);
            return NULL;
        }
    }
    return e->v;
}

/* ---- how often to save ---- */
/* Spot machines: the price sheet says how often they are taken away. 0 = not known. */
static double interruptions_per_hour(const struct site *t, const struct placement *p)
{
    const struct target_spec *ts = t && t->doc ? object_as(t->doc, target)->spec : NULL;
    const struct object *o = ts && *ts->priceSheet
                                 ? root_get(t->brain->root, KIND_PRICE_SHEET, "", ts->priceSheet)
                                 : NULL;
    const struct price_sheet_spec *s = o ? object_as(o, price_sheet)->spec : NULL;
    double any = 0;

    if (!s || p->capacity != CAPACITY_SPOT)
        return 0;
    for (uint32_t i = 0; i < s->n_gpuHour; i++) {
        const struct gpu_price *g = &s->gpuHour[i];
        if (strcmp(g->class_, p->class_))
            continue;
        if (*g->region && !strcmp(g->region, ts->region))
            return g->interruptionsPerHour;
        if (!*g->region)
            any = g->interruptionsPerHour;
    }
    return any;
}

/* Expected time between two failures in ms, 0 = not known: a price sheet's figure, else what this
 * workload has lived through. */
static int64_t failures_every(const struct site *t, const struct workload_status *s,
                              const struct placement *p)
{
    double rate = interruptions_per_hour(t, p);
    int64_t failed = 0, lived = s->startedAt ? root_time(t->brain->root) - s->startedAt : 0;

    if (rate > 0)
        return (int64_t)(HOUR_MS / rate);
    for (uint32_t i = 0; i < s->n_ends; i++)
        failed += end_by_target(&s->ends[i]);
    return failed && lived > 0 ? lived / failed : 0;
}

int64_t order_interval_ms(const struct site *t, const struct object *o, const struct placement *p,
                          int64_t write_ms)
{
    const struct checkpoint_spec *ck = object_as(o, workload)->spec->checkpoint;
    int64_t ms;

    if (!ck || !t || !p)
        return 0;
    if (*ck->interval && strcmp(ck->interval, "auto") &&
        duration_parse(ck->interval, &ms, NULL) == 0)
        return ms;
    return policy_checkpoint_interval(write_ms,
                                      failures_every(t, object_as(o, workload)->status, p));
}

/* ---- the order ---- */
/* Bodies that C made leave texts out. */
static const char *text_or_none(const char *s)
{
    return s ? s : "";
}

static bool store_is_s3(const char *store)
{
    return strncmp(store, "s3://", 5) == 0;
}

/* In a key, unlike in a path, a slash too many is another name. */
static int store_length(const char *store)
{
    size_t n = strlen(store);

    while (store_is_s3(store) && store[n - 1] == '/')
        n--;
    return (int)n;
}

/* What runs goes on in the store that its order named, and what it left is looked for there,
 * whatever its spec says by now. */
static const char *store_told(const struct workload *w)
{
    const struct workload_status *s = w->status;
    const struct intent *in = phase_live(s->phase) ? s->intent : NULL;
    int64_t ended = in ? 0 : epoch_ended(s);

    if (in && in->granted)
        return in->store;
    for (uint32_t i = s->n_ends; i > 0 && ended; i--)
        if (s->ends[i - 1].epoch == ended && *s->ends[i - 1].store)
            return s->ends[i - 1].store;
    return w->spec->checkpoint->store;
}

/* Folder of this workload in its store, "": none that a runner could write to. */
static const char *checkpoint_base(const struct object *o, struct arena *a)
{
    const struct workload *w = object_as(o, workload);
    const char *store = w->spec->checkpoint ? store_told(w) : "";

    if (*store != '/' && !store_is_s3(store))
        return "";
    return arena_printf(a, "%.*s/%s/%s-%s", store_length(store), store, o->meta->namespace_,
                        o->meta->name, o->meta->uid);
}

/* "/sealed/eE/cut-N.json", and nothing else: no "..", no other epoch. */
static bool is_cut_of(const char *s, int64_t epoch)
{
    char folder[48];
    int n = snprintf(folder, sizeof folder, "/sealed/e%lld/cut-", (long long)epoch);

    if (strncmp(s, folder, (size_t)n) != 0)
        return false;
    size_t digits = strspn(s + n, "0123456789");
    return digits > 0 && digits < 19 && strcmp(s + n + digits, ".json") == 0;
}

static bool is_sha256(const char *s)
{
    return strncmp(s, "sha256:", 7) == 0 && strlen(s + 7) == 64 &&
           strspn(s + 7, "0123456789abcdef") == 64;
}

static bool in_range(int64_t n, int64_t max)
{
    return n >= 0 && n <= max;
}

/* Its store may have been edited since it began: where the log has one of its checkpoints already
 * is as good. */
static bool is_own_path(const struct object *o, const char *path, int64_t epoch)
{
    AUTO_ARENA a = arena_create(0);
    const char *base = checkpoint_base(o, a);
    const struct run_checkpoint *had = object_as(o, workload)->status->checkpoint;
    const char *end = NULL;
    for (const char *s = had ? had->path : NULL; s && (s = strstr(s, "/sealed/e")) != NULL; s++)
        end = s; /* the last one: the store's own name may have it, too */
    size_t n = strlen(base), n_had = end ? (size_t)(end - had->path) : 0;

    return (n && strncmp(path, base, n) == 0 && is_cut_of(path + n, epoch)) ||
           (n_had && strncmp(path, had->path, n_had) == 0 && is_cut_of(path + n_had, epoch));
}

int order_checkpoint_told(const struct object *o, int64_t epoch,
                          const struct run_checkpoint_report *r, struct err *err)
{
    if (!is_own_path(o, r->path, epoch) && !PLANTED("run.any-path"))
        return err_set(err, E_FORBIDDEN,
                       "\"%.160s\" is no cut of epoch %lld in the store of this workload", r->path,
                       (long long)epoch);
    if (!is_sha256(r->digest))
        return err_set(err, E_INVALID, "its digest is no sha256");
    if (!in_range(r->step, CHECKPOINT_NUMBER_MAX) || !in_range(r->bytes, CHECKPOINT_NUMBER_MAX) ||
        !in_range(r->writeTime, CHECKPOINT_NUMBER_MAX) ||
        !in_range(r->writtenAt, CHECKPOINT_NUMBER_MAX) || !in_range(r->ranks, LIMIT_GANG_MAX))
        return err_set(err, E_INVALID, "its step, bytes, times or ranks are out of range");
    return 0;
}

/* A larger one runs all the same; only it cannot be made again from what its target keeps. */
static const char *order_document(const struct object *o, struct arena *a)
{
    AUTO_BUF text;

    buf_init(&text, ORDER_DOCUMENT_MAX);
    object_print_json(o, &text);
    return text.failed ? "" : arena_strdup(a, text.p);
}

void order_resolve(const struct object *o, struct arena *a, struct run_order *ret)
{
    const struct workload_spec *s = object_as(o, workload)->spec;
    const struct run_spec *run = s->run;
    const char **argv = arena_array(a, const char *, run->n_command + run->n_args + 1);
    uint32_t n = 0;

    for (uint32_t i = 0; i < run->n_command; i++)
        argv[n++] = run->command[i];
    for (uint32_t i = 0; i < run->n_args; i++)
        argv[n++] = run->args[i];
    ret->ns = o->meta->namespace_;
    ret->name = o->meta->name;
    ret->priority_class = text_or_none(s->priorityClassName);
    ret->image = text_or_none(run->image);
    ret->argv = argv;
    ret->script = text_or_none(run->script);
    ret->cwd = text_or_none(run->workingDir);
    ret->manifest = run->manifest.n ? arena_strndup(a, run->manifest.p, run->manifest.n) : "";
    ret->cpu_milli = s->resources ? s->resources->cpu : 0;
    ret->memory_bytes = s->resources ? s->resources->memory : 0;
    ret->gpus = s->resources && s->resources->gpu ? s->resources->gpu->count : 0;
    ret->processes = s->isolation ? s->isolation->processes : 0;
    ret->tenants = s->isolation ? s->isolation->tenants : 0;
    ret->saves = s->checkpoint != NULL;
    ret->signal = s->checkpoint ? text_or_none(s->checkpoint->signal) : "";
    ret->save_signal = s->checkpoint ? text_or_none(s->checkpoint->saveSignal) : "";
    ret->document = "";
}

static void order_checkpoint(struct site *t, const struct object *of, struct arena *a,
                             struct run_order *o)
{
    const struct workload *w = object_as(of, workload);
    const struct checkpoint_spec *ck = w->spec->checkpoint;
    const struct run_checkpoint *from = w->status->checkpoint;

    o->checkpoint_dir = o->resume_path = o->resume_digest = "";
    o->resume_step = -1;
    if (!ck)
        return;
    o->checkpoint_dir = checkpoint_base(of, a);
    o->checkpoint_keep = ck->keep > KEEP_LEAST ? ck->keep : KEEP_LEAST;
    o->checkpoint_interval_ms = order_interval_ms(t, of, o->placement, from ? from->writeTime : 0);
    if (from) {
        o->resume_epoch = from->epoch;
        o->resume_step = from->step;
        o->resume_ranks = from->ranks;
    }
    o->reshard = ck->reshard;
    o->shared = ck->layout == LAYOUT_SHARED;
    if (from && *from->path && *from->digest) {
        o->resume_path = from->path;
        o->resume_digest = from->digest;
    }
}

void order_stage(struct site *t, const struct object *o, const struct placement *p,
                 const struct run_key *k, struct arena *a, struct run_order *ret)
{
    static const char *const none[] = {NULL};

    *ret = (struct run_order){.key = *k, .placement = p, .env = none};
    order_resolve(o, a, ret);
    order_checkpoint(t, o, a, ret);
    if (store_is_s3(ret->checkpoint_dir) || store_is_s3(ret->resume_path)) { /* needs the keys */
        const char *const *env = env_make(t->brain, o, a, NULL);
        ret->env = env ? env : none; /* a Secret that is gone: the target says what is missing */
    }
}

/* In whose name it runs there. Its Target may have been changed since it was placed. */
static int order_principal(const struct site *t, const struct object *o, struct run_order *ret,
                           struct err *err)
{
    const struct target_spec *s = t->doc ? object_as(t->doc, target)->spec : NULL;
    const char *queue = text_or_none(object_as(o, workload)->status->queue);
    const struct target_principal *p =
        s ? target_principal_of(s, o->meta->namespace_, queue) : NULL;

    ret->principal = p ? p->name : "";
    if (p || !s || !s->n_principals)
        return 0;
    return err_set(err, E_FORBIDDEN,
                   "spec.principals of target %.100s have nobody for namespace %.63s%s%.100s",
                   t->name, o->meta->namespace_, *queue ? ", queue " : "", queue);
}

/* Where what it prints is kept, as its intent has it. */
static int order_logs(const struct site *t, const struct object *o, const struct run_key *k,
                      struct arena *a, struct run_order *ret, struct err *err)
{
    struct logs_place at;
    int rc = logs_place(t->brain, o, k, a, &at, err);

    ret->log_base = at.base;
    ret->log_env = at.env;
    ret->log_max_bytes = at.max_bytes;
    return rc;
}

int order_make(struct site *t, const struct object *o, const struct placement *p,
               const struct run_key *k, struct arena *a, struct run_order *ret, struct err *err)
{
    const char *const *env = env_make(t->brain, o, a, err);

    if (!env)
        return err->code;
    order_stage(t, o, p, k, a, ret);
    int rc = order_principal(t, o, ret, err);
    if (rc == 0)
        rc = order_logs(t, o, k, a, ret, err);
    if (rc < 0)
        return rc;
    ret->env = env;
    ret->document = order_document(o, a);
    const struct intent *in = object_as(o, workload)->status->intent;
    struct lease_grant g = in && in->granted ? *in->granted : lease_wanted(o, t);
    ret->claims = in && *in->home;
    if (in && in->startBy) {
        ret->start_from_ms = in->at > in->clockError ? in->at - in->clockError : 1;
        ret->start_by_ms = in->startBy;
    }
    ret->lease_ms = (uint64_t)g.lease;
    ret->grace_ms = (uint64_t)g.grace;
    return 0;
}

/* ---- the same order again ---- */
#define SENDS_MAX 4

/* Each text with its zero, and a number of texts ahead of a list: nothing is read as another
 * order. */
static void add(EVP_MD_CTX *m, const void *p, size_t n)
{
    INV(EVP_DigestUpdate(m, p, n) == 1);
}

static void add_text(EVP_MD_CTX *m, const char *s)
{
    add(m, text_or_none(s), strlen(text_or_none(s)) + 1);
}

static void add_texts(EVP_MD_CTX *m, const char *const *v)
{
    uint64_t n = 0;

    while (v && v[n])
        n++;
    add(m, &n, sizeof n);
    for (uint64_t i = 0; i < n; i++)
        add_text(m, v[i]);
}

static void add_place(EVP_MD_CTX *m, const struct placement *p)
{
    AUTO_BUF text;

    buf_init(&text, LIMIT_OBJECT_MAX_BYTES);
    if (p && tlv_encode(&schema_placement, p, &text, NULL) == 0)
        add(m, text.p, text.n);
}

static void digest(const struct run_order *o, unsigned char ret[32])
{
    const char *const texts[] = {o->key.uid,
                                 o->ns,
                                 o->name,
                                 o->priority_class,
                                 o->principal,
                                 o->image,
                                 o->script,
                                 o->cwd,
                                 o->manifest,
                                 o->signal,
                                 o->save_signal,
                                 o->document,
                                 o->checkpoint_dir,
                                 o->resume_path,
                                 o->resume_digest,
                                 o->log_base};
    const int64_t numbers[] = {o->key.epoch,
                               o->key.try_,
                               o->cpu_milli,
                               o->memory_bytes,
                               o->gpus,
                               o->claims,
                               o->processes,
                               o->tenants,
                               o->saves,
                               o->start_from_ms,
                               o->start_by_ms,
                               (int64_t)o->lease_ms,
                               (int64_t)o->grace_ms,
                               o->checkpoint_keep,
                               o->checkpoint_interval_ms,
                               o->resume_epoch,
                               o->resume_step,
                               o->resume_ranks,
                               o->reshard,
                               o->shared,
                               o->look_workers,
                               o->look_epoch,
                               o->log_max_bytes};
    EVP_MD_CTX *m = EVP_MD_CTX_new();

    INV(m && EVP_DigestInit_ex(m, EVP_sha256(), NULL) == 1);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        add_text(m, texts[i]);
    add(m, numbers, sizeof numbers);
    add_texts(m, o->argv);
    add_texts(m, o->env);
    add_texts(m, o->log_env);
    add_place(m, o->placement);
    INV(EVP_DigestFinal_ex(m, ret, NULL) == 1);
    EVP_MD_CTX_free(m);
}

/* Whose memory makes it the same run; "": nobody's. */
static const char *memory_of(const struct site *t)
{
    const struct connector_ops *ops = t->connector->ops;
    const char *s = ops->repeats ? ops->repeats(t->connector) : NULL;

    return s && strlen(s) < sizeof((struct order_sent *)0)->memory ? s : "";
}

void order_note(struct order_sent *s, const struct run_order *o, const struct site *t)
{
    const char *memory = memory_of(t);

    INV(!s->settled);
    if (s->n++)
        return; /* the same again */
    s->term = t->brain->term;
    str_copy(s->memory, sizeof s->memory, memory);
    if (*memory)
        digest(o, s->digest);
}

bool order_repeats(const struct order_sent *s, const struct site *t)
{
    return s->n > 0 && s->n < SENDS_MAX && !s->settled && s->term == t->brain->term &&
           *s->memory && strcmp(s->memory, memory_of(t)) == 0;
}

bool order_same(const struct order_sent *s, const struct run_order *o)
{
    unsigned char now[32];

    digest(o, now);
    return memcmp(s->digest, now, sizeof now) == 0;
}
