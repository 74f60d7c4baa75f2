/* Checks that need more than one field. Pure: they look at this object only, never at the state or
 * a clock. */
#include "api/base/limits.h"
#include "api/schema/schema_internal.h"

#include <ctype.h>
#include <stdio.h>

static bool word_char(char c)
{
    return isalnum((unsigned char)c) != 0;
}

static bool dns_subdomain(const char *s)
{
    size_t n = strlen(s);

    if (n == 0 || n > 253)
        return false;
    for (size_t i = 0; i < n; i++) {
        bool edge = i == 0 || i + 1 == n || s[i - 1] == '.' || s[i + 1] == '.';
        bool alnum = (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= '0' && s[i] <= '9');
        if (!alnum && (edge || (s[i] != '-' && s[i] != '.')))
            return false;
    }
    return true;
}

bool object_name_valid(const char *name)
{
    return dns_subdomain(name);
}

bool label_word(const char *s, size_t n, size_t max)
{
    if (n == 0 || n > max || !word_char(s[0]) || !word_char(s[n - 1]))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!word_char(s[i]) && s[i] != '-' && s[i] != '_' && s[i] != '.')
            return false;
    return true;
}

bool label_key_ok(const char *s)
{
    const char *slash = strchr(s, '/');
    char prefix[254];

    if (!slash)
        return label_word(s, strlen(s), 63);
    size_t n = (size_t)(slash - s);
    if (n >= sizeof prefix)
        return false;
    memcpy(prefix, s, n);
    prefix[n] = 0;
    return dns_subdomain(prefix) && label_word(slash + 1, strlen(slash + 1), 63);
}

static int check_map(const struct path *p, const struct kv *kv, uint32_t n, bool values,
                     struct err *err)
{
    for (uint32_t i = 0; i < n; i++) {
        struct path at = {p, kv[i].key, 0};
        if (!label_key_ok(kv[i].key))
            return path_error(err, &at,
                              "not a label key; write [prefix/]name with letters, digits, - _ .");
        if (values && *kv[i].value && !label_word(kv[i].value, strlen(kv[i].value), 63))
            return path_error(err, &at,
                              "\"%.80s\" is not a label value; at most 63 letters, digits, - _ .",
                              kv[i].value);
    }
    return 0;
}

int meta_validate(const struct kind *k, const struct meta *m, unsigned flags, struct err *err)
{
    static const struct path meta = {NULL, "metadata", 0};
    struct path name = {&meta, "name", 0}, space = {&meta, "namespace", 0};
    struct path labels = {&meta, "labels", 0}, notes = {&meta, "annotations", 0};
    bool rbac = !strcmp(k->group, "rbac.authorization.k8s.io");

    if (!m || (!*m->name && !*m->generateName))
        return flags & DECODE_NO_REQUIRED
                   ? 0
                   : path_error(err, &name, "is required: %s", "name or generateName");
    if (*m->name && rbac ? strpbrk(m->name, "/%") || !strcmp(m->name, ".") || !strcmp(m->name, "..")
                         : *m->name && !dns_subdomain(m->name))
        return path_error(err, &name,
                          "\"%.80s\" is not a name; lower-case letters, digits, '-' and '.', "
                          "beginning and ending with a letter or digit",
                          m->name);
    if (*m->namespace_ && !k->namespaced)
        return path_error(err, &space, "a %s has no namespace", k->kind);
    if (*m->namespace_ && (!dns_subdomain(m->namespace_) || strchr(m->namespace_, '.')))
        return path_error(err, &space, "\"%.80s\" is not the name of a namespace", m->namespace_);
    int r = check_map(&labels, m->labels, m->n_labels, true, err);
    return r < 0 ? r : check_map(&notes, m->annotations, m->n_annotations, false, err);
}

void body_normalise(const struct schema *s, void *body)
{
    if (s == &schema_partition_spec) {
        struct partition_spec *p = body;
        if (!p->mode && (p->replaceAfter || p->stopAfter)) {
            p->mode = p->replaceAfter ? PARTITION_REPLACE : PARTITION_STOP;
            body_mark(body, schema_field(s, "mode", 4));
        }
    }
}

/* ---- checks by schema ---- */
static int check_selector(const struct path *p, const struct label_selector *s, struct err *err)
{
    struct path labels = {p, "matchLabels", 0}, list = {p, "matchExpressions", 0};
    int r = check_map(&labels, s->matchLabels, s->n_matchLabels, true, err);

    for (uint32_t i = 0; r == 0 && i < s->n_matchExpressions; i++) {
        const struct selector_term *t = &s->matchExpressions[i];
        struct path at = {&list, NULL, i}, key = {&at, "key", 0}, values = {&at, "values", 0};
        bool in = t->operator_ == SEL_IN || t->operator_ == SEL_NOT_IN;
        if (!label_key_ok(t->key))
            return path_error(err, &key, "\"%.80s\" is not a label key", t->key);
        if (in && t->n_values == 0)
            return path_error(err, &values, "%s needs at least one value",
                              selector_op_text(t->operator_));
        if (!in && t->n_values > 0)
            return path_error(err, &values, "%s takes no values", selector_op_text(t->operator_));
    }
    return r;
}

static bool clock_ok(const char *s)
{
    return strlen(s) == 5 && isdigit((unsigned char)s[0]) && isdigit((unsigned char)s[1]) &&
           s[2] == ':' && isdigit((unsigned char)s[3]) && isdigit((unsigned char)s[4]) &&
           strncmp(s, "24", 2) < 0 && s[3] < '6';
}

static bool zone_ok(const char *s)
{
    for (const char *p = s; *p; p++)
        if (!word_char(*p) && !strchr("_-+/", *p))
            return false;
    return isalpha((unsigned char)*s) && s[strlen(s) - 1] != '/' && !strstr(s, "//");
}

static int check_window(const struct path *p, const struct window *w, struct err *err)
{
    struct path from = {p, "from", 0}, to = {p, "to", 0}, zone = {p, "timezone", 0};

    if (!clock_ok(w->from))
        return path_error(err, &from, "\"%.16s\" is not a time of day; write it as \"08:00\"",
                          w->from);
    if (!clock_ok(w->to))
        return path_error(err, &to, "\"%.16s\" is not a time of day; write it as \"18:00\"", w->to);
    if (!zone_ok(w->timezone))
        return path_error(err, &zone, "\"%.64s\" is not an IANA time zone such as Europe/Berlin",
                          w->timezone);
    return 0;
}

static int check_queue_gpus(const struct path *p, const struct queue_gpus *q, struct err *err)
{
    struct path burst = {p, "burst", 0};

    if (q->burst && q->burst < q->guaranteed)
        return path_error(err, &burst, "%lld is less than guaranteed (%lld)", (long long)q->burst,
                          (long long)q->guaranteed);
    return 0;
}

static int check_price_sheet(const struct path *p, const struct price_sheet_spec *s,
                             struct err *err)
{
    struct path until = {p, "validUntil", 0};

    if (s->validFrom && s->validUntil && s->validUntil <= s->validFrom)
        return path_error(err, &until, "is not after validFrom");
    return 0;
}

static int check_gpu_price(const struct path *p, const struct gpu_price *g, struct err *err)
{
    static const char *const names[] = {"amortised", "reserved", "spot", "onDemand"};

    for (unsigned i = 0; i < 4; i++)
        if (g->has >> schema_field(&schema_gpu_price, names[i], strlen(names[i]))->bit & 1)
            return 0;
    return path_error(err, p, "has no price; give amortised, reserved, spot or onDemand");
}

static int check_run(const struct path *p, const struct run_spec *r, struct err *err)
{
    int whole = (*r->script != 0) + (r->manifest.n > 0);
    bool command = r->n_command > 0 || *r->image;

    if (whole + command == 0)
        return path_error(err, p, "says nothing to run; give command, script, manifest or image");
    if (whole > 1 || (r->manifest.n > 0 && command) || (*r->script && r->n_command > 0))
        return path_error(err, p, "give only one of command, script and manifest");
    return 0;
}

static int check_gpu_request(const struct path *p, const struct gpu_request *g, struct err *err)
{
    if ((g->count > 0) + (g->fraction > 0) + (*g->mig != 0) > 1)
        return path_error(err, p, "give only one of count, fraction and mig");
    return 0;
}

static int check_gang(const struct path *p, const struct gang *g, struct err *err)
{
    struct path at = {p, "minWorkers", 0};

    if (g->minWorkers > (g->workers ? g->workers : 1))
        return path_error(err, &at, "%lld is more than workers (%lld)", (long long)g->minWorkers,
                          (long long)g->workers);
    return 0;
}

static int check_checkpoint(const struct path *p, const struct checkpoint_spec *c, struct err *err)
{
    static const char *const signals[] = {"SIGTERM", "SIGINT",  "SIGUSR1", "SIGUSR2",
                                          "SIGHUP",  "SIGQUIT", "SIGCONT"};
    struct path interval = {p, "interval", 0}, signal = {p, "signal", 0};
    struct err e = {0};
    int64_t ms;
    bool known = !*c->signal;

    if (*c->interval && strcmp(c->interval, "auto") && duration_parse(c->interval, &ms, &e) < 0)
        return path_error(err, &interval, "%s (or auto)", e.text);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        known = known || !strcmp(c->signal, signals[i]);
    if (!known)
        return path_error(err, &signal,
                          "\"%.16s\" is not known; expected SIGTERM, SIGINT, SIGUSR1, SIGUSR2, "
                          "SIGHUP, SIGQUIT or SIGCONT",
                          c->signal);
    return 0;
}

static int check_partition(const struct path *p, const struct partition_spec *s, struct err *err)
{
    struct path two = {p, "acceptTwo", 0};

    /* An epoch begins when the one before it is proved ended: nothing could tell two copies
     * apart. */
    return s->acceptTwo ? path_error(err, &two,
                                     "two copies at once are not supported: a replacement starts "
                                     "once the first copy is proved ended or its lease is over; "
                                     "leave it out")
                        : 0;
}

static int check_reservation(const struct path *p, const struct reservation_spec *r,
                             struct err *err)
{
    struct path until = {p, "until", 0};

    return r->until <= r->from ? path_error(err, &until, "is not after from") : 0;
}

static int check_migration(const struct path *p, const struct migration_spec *m, struct err *err)
{
    struct path workload = {p, "workload", 0}, to = {p, "to", 0};

    if (!dns_subdomain(m->workload))
        return path_error(err, &workload, "\"%.80s\" is not the name of a workload", m->workload);
    if (*m->to && !dns_subdomain(m->to))
        return path_error(err, &to,
                          "\"%.80s\" is not the name of a target; leave it out for the best one",
                          m->to);
    return 0;
}

#define CHECK(s_, f_)                                                                              \
    if (s == &schema_##s_) {                                                                       \
        int r_ = check_##f_(p, body, err);                                                         \
        if (r_ < 0)                                                                                \
            return r_;                                                                             \
    }

static int check_body(const struct path *p, const struct schema *s, const void *body,
                      struct err *err)
{
    CHECK(label_selector, selector)
    CHECK(window, window)
    CHECK(queue_gpus, queue_gpus)
    CHECK(price_sheet_spec, price_sheet)
    CHECK(gpu_price, gpu_price)
    CHECK(run_spec, run)
    CHECK(gpu_request, gpu_request)
    CHECK(gang, gang)
    CHECK(checkpoint_spec, checkpoint)
    CHECK(partition_spec, partition)
    CHECK(reservation_spec, reservation)
    CHECK(migration_spec, migration)
    schema_for_each (f, s) {
        struct path at = {p, f->json, 0};
        if ((f->type != T_OBJ && f->type != T_LIST) || f->flags & FIELD_STATUS ||
            !member_present(f, body))
            continue;
        const char *sub = *(const char *const *)member(f, body);
        uint32_t n = f->type == T_LIST ? member_count(f, body) : 1;
        for (uint32_t i = 0; i < n; i++) {
            struct path item = {&at, NULL, i};
            int r =
                check_body(f->type == T_LIST ? &item : &at, f->sub, sub + i * f->sub->size, err);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

int object_validate(const struct object *o, struct err *err)
{
    int r = meta_validate(o->kind, o->meta, 0, err);

    return r < 0 ? r : check_body(NULL, o->kind->schema, o->body, err);
}

/* ---- what is too large for its runner ---- */
#define ORDER_FIXED_BYTES (16u << 10) /* keys, paths, numbers; what a target adds */
#define ORDER_WORKER_BYTES 384        /* its rank, its node's name */
#define ORDER_DEVICE_BYTES 4

size_t json_text_bytes(const char *s)
{
    size_t n = 2;

    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        bool two = c == '"' || c == '\\' || (c < 0x20 && strchr("\b\f\n\r\t", c));
        n += two ? 2 : c < 0x20 ? 6 : 1;
    }
    return n;
}

static size_t list_bytes(const char *const *v, uint32_t n)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < n; i++)
        bytes += json_text_bytes(v[i]) + 1;
    return bytes;
}

size_t workload_order_bytes(const struct workload_spec *s, const char **ret_field)
{
    const struct run_spec *r = s->run;
    const struct gpu_request *g = s->resources ? s->resources->gpu : NULL;
    size_t workers = s->gang && s->gang->workers > 1 ? (size_t)s->gang->workers : 1, env = 0;
    size_t devices = g && g->count > 1 ? (size_t)g->count : 1, sum = ORDER_FIXED_BYTES, most = 0;

    for (uint32_t i = 0; r && i < r->n_env; i++)
        env += json_text_bytes(r->env[i].name) + json_text_bytes(r->env[i].value);
    const struct {
        const char *field;
        size_t bytes;
    } parts[] = {
        {"spec.run.command", r ? list_bytes(r->command, r->n_command) : 0},
        {"spec.run.args", r ? list_bytes(r->args, r->n_args) : 0},
        {"spec.run.script", r ? json_text_bytes(r->script) : 0},
        {"spec.run.workingDir", r ? json_text_bytes(r->workingDir) : 0},
        {"spec.run.env", env},
        {"spec.gang.workers", workers * (ORDER_WORKER_BYTES + devices * ORDER_DEVICE_BYTES)}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        sum += parts[i].bytes;
        if (parts[i].bytes > most) {
            most = parts[i].bytes;
            *ret_field = parts[i].field;
        }
    }
    return sum;
}

/* A renewal counts from a beat that came before it was asked for: up to 1.5 s of a lease are gone
 * when it arrives. */
#define LEASE_LEAST_MS 5000
static int admit_lease(const char *field, int64_t was, int64_t now, struct err *err)
{
    if (now <= 0 || now >= LEASE_LEAST_MS || now == was)
        return 0;
    return err_field(err, E_INVALID, field,
                     "must be at least 5s: renewals come every second or two, and what holds a "
                     "shorter lease ends by itself where nothing is wrong");
}

/* The first line of a script, as the kernel would read it (execve(2)). */
static bool shebang_empty(const char *script)
{
    if (strncmp(script, "#!", 2) != 0)
        return false;
    char first = script[2 + strspn(script + 2, " \t\r")];
    return !first || first == '\n';
}

/* As Kubernetes' names of environment variables. */
static bool env_name_ok(const char *s)
{
    if (isdigit((unsigned char)*s))
        return false;
    for (; *s; s++)
        if (!word_char(*s) && !strchr("-._", *s))
            return false;
    return true;
}

static bool env_had(const struct run_spec *r, const char *name)
{
    for (uint32_t i = 0; r && i < r->n_env; i++)
        if (!strcmp(r->env[i].name, name))
            return true;
    return false;
}

static int admit_run(const struct run_spec *was, const struct run_spec *r, struct err *err)
{
    char field[64];

    if (shebang_empty(r->script) && !(was && shebang_empty(was->script)))
        return err_field(err, E_INVALID, "spec.run.script",
                         "its first line is #! and names no program: write #!/bin/bash, or leave "
                         "the line out for /bin/sh -e");
    for (uint32_t i = 0; i < r->n_env; i++) {
        if (env_name_ok(r->env[i].name) || env_had(was, r->env[i].name))
            continue;
        (void)snprintf(field, sizeof field, "spec.run.env[%u].name", i);
        return err_field(err, E_INVALID, field,
                         "\"%.64s\" is no name of an environment variable: letters, digits, "
                         "\".\", \"-\" and \"_\", not beginning with a digit",
                         r->env[i].name);
    }
    return 0;
}

static int admit_workload(const struct workload_spec *was, const struct workload_spec *now,
                          struct err *err)
{
    const char *field = "spec.run", *unused;
    size_t bytes = workload_order_bytes(now, &field);
    size_t before = was ? workload_order_bytes(was, &unused) : 0;

    if (bytes > LIMIT_ORDER_MAX_BYTES && bytes > before)
        return err_field(err, E_INVALID, field,
                         "what its runner is told would be %zu bytes of JSON, where a control "
                         "character takes 6; at most %d: put what is long into a file",
                         bytes, LIMIT_ORDER_MAX_BYTES);
    int r = now->run ? admit_run(was ? was->run : NULL, now->run, err) : 0;
    if (r)
        return r;
    return now->partition ? admit_lease("spec.partition.stopAfter",
                                        was && was->partition ? was->partition->stopAfter : 0,
                                        now->partition->stopAfter, err)
                          : 0;
}

/* Tokens were Secrets once: whoever writes one still is told, rather than left with one that
 * nothing takes. */
static int admit_secret(const struct object *now, struct err *err)
{
    if (strcmp(object_as(now, secret)->type, "hanse.dev/token") != 0)
        return 0;
    return err_field(err, E_INVALID, "type",
                     "a bearer token is made by TokenRequest (kubectl create token) or hanse token "
                     "create; a Secret of this type can only be deleted");
}

/* Who may write Events of one namespace would else tell stories about what is in another. What is
 * in none has its Events where Kubernetes and Hanse put them. */
static int admit_event(const struct object *old, const struct object *now, struct err *err)
{
    const struct object_ref *o = object_as(now, event)->involvedObject;
    const struct object_ref *was = old ? object_as(old, event)->involvedObject : NULL;
    const char *ns = now->meta->namespace_, *about = o ? o->namespace_ : "";

    if (!strcmp(about, ns) || (was && !strcmp(was->namespace_, about)) ||
        (!*about && (!strcmp(ns, "default") || !strcmp(ns, "hanse-system"))))
        return 0;
    return err_field(err, E_INVALID, "involvedObject.namespace",
                     "does not match the Event's namespace \"%s\"%s", ns,
                     *about ? "" : "; Events of what is in no namespace go to default");
}

#define PLACE_OF(type, c, ...) PLACE_##c,
enum { SCHEMA_machine_pool(PLACE_OF) };
#undef PLACE_OF

/* The name of a pool begins the keys of its machines, which are names of objects. */
static int admit_pools(const struct target_spec *s, struct err *err)
{
    static const struct path spec = {NULL, "spec", 0}, machines = {&spec, "machines", 0};

    for (uint32_t i = 0; i < s->n_machines; i++) {
        const char *name = s->machines[i].name;
        struct path item = {&machines, NULL, i}, at = {&item, "name", 0};
        struct path market = {&item, "market", 0}, cap = {&item, "maxPrice", 0};

        if (strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(name) || *name == '-')
            return path_error(err, &at,
                              "\"%.40s\": a pool is named by small letters, digits and -", name);
        if (s->machines[i].market == CAPACITY_OWNED)
            return path_error(err, &market, "owned machines are not ordered");
        if (s->machines[i].maxPrice <= 0 && s->machines[i].has >> PLACE_maxPrice & 1)
            return path_error(err, &cap,
                              "0 would be kept by no machine that costs anything: leave it out for "
                              "any price, or say count: 0 for none");
    }
    return 0;
}

int object_admit(const struct object *old, const struct object *now, struct err *err)
{
    int r = promises_admit(old, now, err);

    if (r == 0)
        r = keys_admit(old, now, err);
    if (r == 0)
        r = stores_admit(old, now, err);
    if (r < 0)
        return r;
    if (now->kind->id == KIND_SECRET)
        return admit_secret(now, err);
    if (now->kind->id == KIND_CERTIFICATE_REVOCATION)
        return revocation_admit(now, err);
    if (now->kind->id == KIND_RESOURCE_QUOTA)
        return quota_admit(now, err);
    if (now->kind->id == KIND_EVENT)
        return admit_event(old, now, err);
    if (now->kind->id == KIND_PRICE_SHEET)
        return rows_admit(old, now, err);
    if (now->kind->id == KIND_WORKLOAD) {
        r = array_admit(old, now, err);
        return r < 0 ? r
                     : admit_workload(old ? object_as(old, workload)->spec : NULL,
                                      object_as(now, workload)->spec, err);
    }
    if (now->kind->id != KIND_TARGET)
        return 0;
    if ((r = admit_pools(object_as(now, target)->spec, err)) < 0 ||
        (r = agents_admit(old, now, err)) < 0 || (r = principals_admit(old, now, err)) < 0)
        return r;
    const struct target_partition *p = object_as(now, target)->spec->partition;
    const struct target_partition *was = old ? object_as(old, target)->spec->partition : NULL;
    return p ? admit_lease("spec.partition.lease", was ? was->lease : 0, p->lease, err) : 0;
}

/* ---- updates ---- */
bool field_equal(const struct field *f, const struct schema *s, const void *a, const void *b)
{
    AUTO_BUF x = {0}, y = {0};
    struct schema one = {s->name, s->size, f, 1};

    buf_init(&x, 8u << 20);
    buf_init(&y, 8u << 20);
    tlv_encode_field(&one, a, &x);
    tlv_encode_field(&one, b, &y);
    return x.n == y.n && (x.n == 0 || !memcmp(x.p, y.p, x.n));
}

static int check_immutable(const struct path *p, const struct schema *s, const void *old,
                           const void *now, struct err *err)
{
    schema_for_each (f, s) {
        struct path at = {p, f->json, 0};
        if (f->flags & FIELD_IMMUT && !field_equal(f, s, old, now))
            return path_error(err, &at,
                              "must not change after creation: delete the object and make it anew");
        if (f->type != T_OBJ || f->flags & FIELD_STATUS || !member_present(f, old) ||
            !member_present(f, now))
            continue;
        int r = check_immutable(&at, f->sub, *(const void *const *)member(f, old),
                                *(const void *const *)member(f, now), err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* What a cancelled move held is gone, so the wish cannot be taken back. */
static int check_cancel(const struct object *old, const struct object *now, struct err *err)
{
    static const struct path spec = {NULL, "spec", 0}, cancel = {&spec, "cancel", 0};

    if (object_as(old, migration)->spec->cancel && !object_as(now, migration)->spec->cancel)
        return path_error(err, &cancel, "cannot be taken back; make a new Migration");
    return 0;
}

int object_validate_update(const struct object *old, const struct object *now, struct err *err)
{
    PRE(old->kind == now->kind);
    int r = object_validate(now, err);

    if (r == 0 && old->kind->id == KIND_MIGRATION)
        r = check_cancel(old, now, err);
    return r < 0 ? r : check_immutable(NULL, old->kind->schema, old->body, now->body, err);
}
