/* Every field of every kind that users write is one of these: acted upon, in a test that is named
 * here; refused, or taken with a warning (api/schema/promises.c), each of which is tried; or for
 * people and for other clients, which its doc says. A new field in none of them fails. */
#include "api/schema/schema.h"
#include "tests/support/unit.h"

#include <cJSON.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNIT "tests/unit/"
#define KITS "tests/support/"
#define E2E "tests/e2e/"

/* The test names each field, and a source that is no part of the schema reads it. */
static const struct acts {
    const char *schema, *test, *fields;
} acts[] = {
#include "tests/unit/api/schema/acts.def"
};

/* Refused wherever it comes from (validate.c). */
static const struct {
    const char *schema, *field, *kind, *spec;
} never[] = {
    {"partition_spec", "acceptTwo", "Workload",
     "{run: {command: [x]}, partition: {mode: replace, acceptTwo: true}}"},
};

/* Kinds of Kubernetes are kept for their clients as they come: what these say is acted upon by who
 * reads them, and by nobody here. "*": all fields. */
static const struct {
    const char *schema, *fields;
} kept[] = {
    {"event", "*"},          {"lease", "*"},           {"namespace_", "spec"},
    {"namespace_spec", "*"}, {"secret", "type"},       {"service_account", "*"},
    {"subject", "apiGroup"}, {"role_ref", "apiGroup"}, {"certificate_revocation_spec", "reason"},
};

/* targets/test_pods.c has more of these. */
#define CREDENTIALS "credentialsFrom: {secret: a}"
#define RACK "{type: callout, tier: hub, connection: {server: 'https://rack.example', " CREDENTIALS
#define POD(more) "{type: kubernetes, tier: hub, connection: {" CREDENTIALS "}, " more
#define POD_RUNNER "kubernetes: {runner: {image: hanse-run}, "

/* Of each row of promises.c a document that says it, and one that does not. */
static const struct {
    const char *kind, *field, *spec;
} said[] = {
    {"Budget", "kind", "{amount: 1, period: month}"},
    {"GitSource", "kind", "{repository: https://git.example/a.git}"},
    {"Reservation", "kind",
     "{class: h100, gpus: 1, from: 2030-01-01T00:00:00Z, until: 2030-01-02T00:00:00Z}"},
    {"Queue", "spec.admins", "{admins: [anna]}"},
    {"Queue", "spec.gpuHours", "{gpuHours: {limit: 1, period: day}}"},
    {"Queue", "spec.gpus[].lendLimit",
     "{lend: false, gpus: [{class: a, guaranteed: 4}, {class: b, guaranteed: 4, lendLimit: 1}]}"},
    {"Target", "spec.type", "{type: slurm, tier: hub}"},
    {"Target", "spec.connection", "{type: slurm, tier: hub, connection: {server: https://a}}"},
    {"Target", "spec.connection", "{type: agent, tier: hub, connection: {user: root}}"},
    {"Target", "spec.connection",
     "{type: callout, tier: hub, connection: {server: 'http://r', " CREDENTIALS "}}"},
    {"Target", "spec.connection.user",
     "{type: callout, tier: hub, connection: {user: me, server: 'https://x', " CREDENTIALS "}}"},
    {"Target", "spec.connection.runners",
     "{type: slurm, tier: hub, connection: {server: https://10.0.0.1, runners: true}}"},
    {"Target", "spec.connection", "{type: kubernetes, tier: hub, " POD_RUNNER "}}"},
    {"Target", "spec.principals[].credentialsFrom",
     POD(POD_RUNNER "}, principals: [{name: a, namespaces: [n], credentialsFrom: {secret: b}}]}")},
    {"Target", "spec.kubernetes", "{type: agent, tier: hub, kubernetes: {image: box}}"},
    {"Target", "spec.kubernetes.runner", POD("kubernetes: {image: box}}")},
    {"Target", "spec.connection.namespace",
     "{type: kubernetes, tier: hub, connection: {namespace: a/b, " CREDENTIALS "}, " POD_RUNNER
     "}}"},
    {"Target", "spec.kubernetes.volumes", POD(POD_RUNNER "volumes: [{path: /ckpt}]}}")},
    {"Target", "spec.kubernetes.podSecurity",
     POD(POD_RUNNER "podSecurity: restricted, volumes: [{path: /a, hostPath: /b}]}}")},
    {"Target", "spec.kubernetes.podLabels", POD(POD_RUNNER "podLabels: {hanse.dev/key: a}}}")},
    {"Target", "spec.kubernetes.nodeLabels", POD(POD_RUNNER "nodeLabels: {a/b/c: a}}}")},
    {"Target", "spec.kubernetes.tolerations", POD(POD_RUNNER "tolerations: {key: gpu}}}")},
    {"Target", "spec.kubernetes.namespaces",
     POD(POD_RUNNER "namespaces: [{namespace: a, as: a, managed: true}]}}")},
    {"Target", "spec.kubernetes.diagnostics",
     POD(POD_RUNNER "diagnostics: {image: dcgm, every: 1d, timeout: 10m}}}")},
    {"Target", "spec.kubernetes", POD(POD_RUNNER "imagePullSecrets: [Upper]}}")},
    {"Target", "spec.stores", POD("stores: [/ckpt], " POD_RUNNER "}}")},
    {"Target", "spec.connection.homeProxy",
     RACK ", runners: true, homeProxy: 'http://anna:secret@proxy:3128'}}"},
    {"Target", "spec.principals", "{type: agent, tier: hub, principals: [{name: anna}]}"},
    {"Target", "spec.logs", "{type: callout, tier: hub, connection: {" CREDENTIALS ", server: "
     "'https://x'}, logs: {store: /logs}}"},
    {"Target", "spec.principals[].queues", RACK "}, principals: [{name: anna, queues: [q]}]}"},
    {"Target", "spec.limits.machines", "{type: agent, tier: hub, limits: {machines: 3}}"},
    {"Target", "spec.limits.pendingFor", "{type: agent, tier: hub, limits: {pendingFor: 1h}}"},
    {"Target", "spec.partition.lease",
     "{type: callout, tier: hub, connection: {server: 'https://r', " CREDENTIALS "}, partition: "
     "{lease: 1m}}"},
    {"Target", "spec.connection.caBundle", RACK ", caBundle: garbage}}"},
    {"Target", "spec.limits.startWithin",
     "{type: agent, tier: hub, limits: {startWithin: 1h, clockError: 5m}}"},
    {"Target", "spec.limits",
     "{type: callout, tier: hub, connection: {server: 'https://r', " CREDENTIALS "}, limits: "
     "{startWithin: 1h}}"},
    {"Target", "spec.machines", "{type: agent, tier: hub, machines: [{name: warm, count: 1}]}"},
    {"Workload", "spec.data[].mountPath",
     "{run: {command: [x]}, data: [{dataset: a}, {dataset: b, mountPath: /data}]}"},
    {"Workload", "spec.expected.utilisation",
     "{run: {command: [x]}, expected: {utilisation: 0.3}}"},
    {"Workload", "spec.type", "{type: interactive, run: {command: [x]}}"},
    {"ResourceQuota", "spec.scopes", "{scopes: [BestEffort]}"},
    {"ResourceQuota", "spec.scopeSelector", "{scopeSelector: {matchExpressions: []}}"},
    {"Workload", "spec.partition",
     "{run: {command: [x]}, partition: {mode: wait, replaceAfter: 5m}}"},
    {"Workload", "spec.resources.gpu",
     "{run: {command: [x]}, resources: {gpu: {classes: [h100]}}}"},
    {"Workload", "spec.run.env[].valueFrom",
     "{run: {command: [x], env: [{name: A, value: a, valueFrom: {secret: s, key: k}}]}}"},
    {"PlacementPolicy", "spec.prefer[]", "{prefer: [{weight: 5}]}"},
    {"CompliancePolicy", "spec.allow", "{selects: {namespaces: [a]}, allow: {}}"},
    {"CompliancePolicy", "spec.allow.jurisdictions",
     "{selects: {namespaces: [a]}, allow: {jurisdictions: [EU, de]}}"},
    {"Target", "spec.jurisdiction", "{type: agent, tier: hub, jurisdiction: Germany}"},
};

#define PEM                                                                                        \
    "\"-----BEGIN CERTIFICATE-----\\nMIIBszCCAVmgAwIBAgIUQmFkQmFkQmFkQmFkQmFkQmFkQmFk\\n"          \
    "FkQmFkQmFkQmFkQmFkQmE=\\n-----END CERTIFICATE-----\\n\""

/* Others that say the same of a row: refused, too. */
static const struct {
    const char *kind, *field, *spec;
} crossed[] = {
    {"Workload", "spec.partition",
     "{run: {command: [x]}, partition: {replaceAfter: 1m, stopAfter: 2m}}"},
    {"Workload", "spec.partition", "{run: {command: [x]}, partition: {mode: stop, keep: new}}"},
    {"Target", "spec.connection.homeProxy",
     RACK ", runners: true, homeProxy: 'https://proxy:3128'}}"},
    {"Target", "spec.connection.homeProxy", RACK ", homeProxy: 'http://proxy:3128'}}"},
    {"Target", "spec.connection.caBundle",
     "{type: callout, tier: hub, connection: {server: 'http://127.0.0.1:8640', credentialsFrom: "
     "{secret: a}, caBundle: " PEM "}}"},
    {"Target", "spec.connection.caBundle",
     RACK ", caBundle: \"-----BEGIN CERTIFICATE-----\\nMIIB\\n\"}}"},
    {"Target", "spec.connection.caBundle",
     "{type: kubernetes, tier: hub, connection: {caBundle: x, " CREDENTIALS "}, " POD_RUNNER "}}"},
    {"Target", "spec.partition.lease", POD(POD_RUNNER "}, partition: {lease: 1m}}")},
    {"Workload", "spec.run.env[].valueFrom",
     "{run: {command: [x], env: [{name: A, valueFrom: {secret: s}}]}}"},
};
static const struct {
    const char *kind, *spec;
} plain[] = {
    {"Queue", "{weight: 2}"},
    {"Queue", "{lend: true, gpus: [{class: a, guaranteed: 4, lendLimit: 1}]}"},
    {"Queue", "{gpus: [{class: a, guaranteed: 4, lendLimit: 1}]}"}, /* lend is true by default */
    {"Queue", "{lend: false, gpus: [{class: a, guaranteed: 4, lendLimit: 0}]}"},
    {"Target", "{type: agent, tier: hub, limits: {inFlight: 4}}"},
    {"Workload", "{run: {command: [x]}, data: [{dataset: a}], expected: {duration: 1h}}"},
    {"Workload", "{type: batch, priorityClassName: batch, run: {command: [x]}}"},
    {"ResourceQuota", "{hard: {count/workloads.hanse.dev: 10}}"},
    {"Workload",
     "{run: {command: [x], env: [{name: A, valueFrom: {secret: s, key: k}}]}, resources: "
     "{gpu: {count: 0}}, partition: {mode: replace, replaceAfter: 1m, keep: new}}"},
    {"CompliancePolicy", "{selects: {namespaces: [a]}, allow: {jurisdictions: [EU, DE]}}"},
    {"Target", "{type: agent, tier: hub, jurisdiction: DE}"},
    {"Target", "{type: callout, tier: hub, connection: {server: 'http://127.0.0.1:8640', "
               "credentialsFrom: {secret: a}}}"},
    {"Target", "{type: callout, tier: hub, connection: {server: 'http://127.0.0.1:8640', runners: "
               "true, homeProxy: 'http://proxy:3128', credentialsFrom: {secret: a}}}"},
    {"Target", RACK ", runners: true, caBundle: " PEM "}, partition: {lease: 1m}, "
                    "limits: {machines: 3, pendingFor: 1h}}"},
    {"Target", RACK "}, partition: {suspectAfter: 30s}}"},
    {"Target", POD(POD_RUNNER "}}")},
    {"Target", "{type: kubernetes, tier: hub, connection: {server: 'https://10.0.0.1:6443', "
               "namespace: gpu, runners: true, caBundle: " PEM ", " CREDENTIALS "}, " POD_RUNNER
               "context: a}, partition: {lease: 1m}, principals: [{name: anna, namespaces: [n]}], "
               "limits: {pendingFor: 1h, inFlight: 3}}"},
};

static struct object *object_try(const char *kind, const char *spec, struct err *e)
{
    char text[2048];
    struct yaml_doc *docs;
    size_t n;
    struct object *o = NULL;

    (void)snprintf(text, sizeof text, "apiVersion: %s\nkind: %s\nmetadata: {name: a}\nspec: %s\n",
                   kind_api_version(kind_by_name(kind)), kind, spec);
    if (yaml_parse_all(text, strlen(text), "t", &docs, &n, e))
        return NULL;
    int r = object_from_json(kind_by_name(kind), docs[0].json, DECODE_USER, &o, e);
    yaml_docs_free(docs, n);
    if (r || !object_validate(o, e))
        return o;
    (void)object_unref(o);
    return NULL;
}

static struct object *object_of(const char *kind, const char *spec)
{
    struct err e = {0};
    struct object *o = object_try(kind, spec, &e);

    if (!o)
        fail_msg("%s %s: %s", kind, spec, e.text);
    return o;
}

static bool word_in(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = list; (p = strstr(p, word)) != NULL; p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || !p[n]))
            return true;
    return false;
}

static bool word_char(char c)
{
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static bool text_names(const char *text, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = text; (p = strstr(p, word)) != NULL; p += n)
        if ((p == text || !word_char(p[-1])) && !word_char(p[n]))
            return true;
    return false;
}

static void text_add(struct buf *b, const char *path)
{
    char part[65536];
    FILE *f = fopen(path, "r");
    size_t n;

    if (!f)
        fail_msg("%s is not there", path);
    while ((n = fread(part, 1, sizeof part, f)) > 0)
        buf_add(b, part, n);
    (void)fclose(f);
    buf_char(b, '\n');
}

static void sources_add(struct buf *b, const char *folder, unsigned depth)
{
    DIR *d = opendir(folder);
    struct dirent *e;

    assert_non_null(d);
    assert_true(depth < 8);
    while ((e = readdir(d)) != NULL) {
        char path[1024];
        size_t n = strlen(e->d_name);

        (void)snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_type == DT_DIR && e->d_name[0] != '.')
            sources_add(b, path, depth + 1);
        else if (n > 2 && (!strcmp(e->d_name + n - 2, ".c") || !strcmp(e->d_name + n - 2, ".h")))
            text_add(b, path);
    }
    (void)closedir(d);
}

struct walk {
    struct buf sources; /* all that is no part of the schema */
    const struct schema *seen[256];
    size_t n_seen;
    unsigned acted, people, kept, refused, unenforced;
    unsigned wrong;
};

static void wrong(struct walk *w, const struct schema *s, const struct field *f, const char *why)
{
    w->wrong++;
    print_message("%s.%s %s\n", s->name, f->json, why);
}

/* Of a field that is acted upon: its test names it, and somebody reads it. */
static bool field_acts(struct walk *w, const struct schema *s, const struct field *f)
{
    char arrow[96], dot[96];

    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        struct buf test;

        if (strcmp(acts[i].schema, s->name) != 0 || !word_in(acts[i].fields, f->json))
            continue;
        buf_init(&test, 4u << 20);
        text_add(&test, acts[i].test);
        buf_char(&test, '\0');
        if (!text_names(test.p, f->json) && !text_names(test.p, f->name))
            wrong(w, s, f, "is not named by its test");
        buf_fini(&test);
        (void)snprintf(arrow, sizeof arrow, "->%s", f->name);
        (void)snprintf(dot, sizeof dot, ".%s", f->name);
        if (!strstr(w->sources.p, arrow) && !strstr(w->sources.p, dot))
            wrong(w, s, f, "is read by no source outside of the schema");
        w->acted++;
        return true;
    }
    return false;
}

static bool field_kept(const struct schema *s, const struct field *f)
{
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (!strcmp(kept[i].schema, s->name) &&
            (!strcmp(kept[i].fields, "*") || word_in(kept[i].fields, f->json)))
            return true;
    return false;
}

/* The last part of the path of a promise: what of the kind's fields it is about. */
static const struct promise *promise_of(enum kind_id kind, const struct field *f)
{
    size_t n;
    const struct promise *all = promises_all(&n);

    for (size_t i = 0; i < n; i++) {
        const char *last = strrchr(all[i].field, '.');
        if (all[i].kind == kind && last && !strcmp(last + 1, f->json))
            return &all[i];
    }
    return NULL;
}

static bool field_never(const struct schema *s, const struct field *f)
{
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        struct err e = {0};

        if (strcmp(never[i].schema, s->name) != 0 || strcmp(never[i].field, f->json) != 0)
            continue;
        assert_null(object_try(never[i].kind, never[i].spec, &e));
        assert_non_null(strstr(e.field, f->json));
        return true;
    }
    return false;
}

static void walk_schema(struct walk *w, enum kind_id kind, const struct schema *s)
{
    for (size_t i = 0; i < w->n_seen; i++)
        if (w->seen[i] == s)
            return;
    assert_true(w->n_seen < 256);
    w->seen[w->n_seen++] = s;
    for (unsigned i = 0; i < s->n; i++) {
        const struct field *f = &s->fields[i];
        const struct promise *p = promise_of(kind, f);
        const char *people = strstr(f->doc, "for people");

        if (f->flags & FIELD_STATUS || !strcmp(f->json, "metadata") || !*f->json)
            continue;
        bool acted = field_acts(w, s, f), keeps = field_kept(s, f);
        if (p)
            *(p->how == PROMISE_REFUSED ? &w->refused : &w->unenforced) += 1;
        else if (field_never(s, f))
            w->refused++;
        else if (people && !acted)
            w->people++;
        else if (keeps && !acted)
            w->kept++;
        else if (!acted && strcmp(f->json, "spec") != 0)
            wrong(w, s, f,
                  "is neither acted upon by a test that is named here, nor refused or warned about "
                  "in promises.c, nor for people");
        if (acted && keeps)
            wrong(w, s, f, "is in two lists");
        if ((f->type == T_OBJ || f->type == T_LIST) && f->sub && !keeps &&
            !(p && p->how == PROMISE_REFUSED) && !(p && kind == KIND_TARGET) &&
            !(p && kind == KIND_QUEUE))
            walk_schema(w, kind, f->sub);
    }
}

static bool refused_whole(enum kind_id kind)
{
    size_t n;
    const struct promise *all = promises_all(&n);

    for (size_t i = 0; i < n; i++)
        if (all[i].kind == kind && !strcmp(all[i].field, "kind"))
            return true;
    return false;
}

static void test_every_field_has_its_place(void **state)
{
    static const char *const folders[] = {"policy", "controlplane", "connectors", "api/server",
                                          "api/cli"};
    static struct walk w;
    unsigned whole = 0, read_only = 0, kinds = 0;

    (void)state;
    buf_init(&w.sources, 64u << 20);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        sources_add(&w.sources, folders[i], 0);
    text_add(&w.sources, "api/schema/revocation.c");
    text_add(&w.sources, "api/schema/object.c"); /* selectors */
    buf_char(&w.sources, '\0');
    assert_false(w.sources.failed);
    for (int id = 1; id < 256; id++) {
        const struct kind *k = kind_by_id((enum kind_id)id);

        if (!k)
            continue;
        kinds++;
        if (k->flags & KINDF_RO)
            read_only++;
        else if (refused_whole(k->id))
            whole++;
        else
            walk_schema(&w, k->id, k->schema);
    }
    print_message("%u kinds: %u written by Hanse alone, %u refused whole; of the fields of the "
                  "others %u act, %u are refused, %u are Enforced=False, %u are for people, %u are "
                  "kept for Kubernetes' clients\n",
                  kinds, read_only, whole, w.acted, w.refused, w.unenforced, w.people, w.kept);
    buf_fini(&w.sources);
    assert_true(kinds >= 27);
    assert_int_equal(whole, 3);
    assert_int_equal(w.wrong, 0);
}

/* What is listed here must be there: a field that went, or was renamed, leaves no promise
 * behind. */
static void test_what_is_not_acted_upon_is_refused_or_told(void **state)
{
    size_t n;
    const struct promise *all = promises_all(&n);
    unsigned seen = 0;
    char why[UNKEPT_MAX];

    (void)state;
    for (size_t i = 0; i < n; i++) {
        unsigned before = seen;

        for (size_t k = 0; k < sizeof said / sizeof *said; k++) {
            struct err e = {0};
            struct object *o = object_of(said[k].kind, said[k].spec);

            if (o->kind->id == all[i].kind && !strcmp(said[k].field, all[i].field) &&
                all[i].said(o)) {
                int r = object_admit(NULL, o, &e);
                bool refused = all[i].how == PROMISE_REFUSED;
                seen += !r == !refused; /* else by another row of that field */
                if (r && refused) {
                    assert_string_equal(e.field, all[i].field);
                    assert_non_null(strstr(e.text, all[i].sentence));
                }
                assert_int_equal(object_admit(o, o, &e), 0); /* it was there before */
                assert_true(promises_unkept(o, why, sizeof why));
                assert_non_null(strstr(why, all[i].sentence));
            }
            (void)object_unref(o);
        }
        if (seen == before)
            fail_msg("%s %s has a row in promises.c, and no document in the list said",
                     kind_by_id(all[i].kind)->kind, all[i].field);
    }
    assert_int_equal(seen, n);
    for (size_t k = 0; k < sizeof crossed / sizeof *crossed; k++) {
        struct object *o = object_of(crossed[k].kind, crossed[k].spec);
        struct err e = {0};

        assert_int_equal(object_admit(NULL, o, &e), E_INVALID);
        assert_string_equal(e.field, crossed[k].field);
        (void)object_unref(o);
    }
    for (size_t k = 0; k < sizeof plain / sizeof *plain; k++) {
        struct object *o = object_of(plain[k].kind, plain[k].spec);
        struct err e = {0};

        assert_int_equal(object_admit(NULL, o, &e), 0);
        if (promises_unkept(o, why, sizeof why))
            fail_msg("%s %s: %s", plain[k].kind, plain[k].spec, why);
        (void)object_unref(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_field_has_its_place),
        cmocka_unit_test(test_what_is_not_acted_upon_is_refused_or_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
