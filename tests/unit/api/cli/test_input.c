/* What the CLI reads: command lines, kubeconfig files, documents with their places. */
#include "api/cli/cli_internal.h"
#include "api/base/log.h"
#include "tests/support/unit.h"

#include <unistd.h>

static struct cli cli;
static char dir[128];

static int begin(void **state)
{
    struct err e = {0};

    (void)state;
    (void)snprintf(dir, sizeof dir, "%s/hanse-cli-XXXXXX",
                   getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(dir));
    cli = (struct cli){.out = stdout,
                       .err = stderr,
                       .mem = arena_create(0),
                       .loop = loop_uv_create(&e),
                       .ns = "default"};
    return 0;
}

static int end(void **state)
{
    (void)state;
    assert_int_equal(file_remove(cli.loop, dir, NULL), 0);
    cli.loop = loop_uv_destroy(cli.loop);
    cli.mem = arena_destroy(cli.mem);
    return 0;
}

static const char *file(const char *name, const char *text)
{
    const char *path = arena_printf(cli.mem, "%s/%s", dir, name);
    struct err e = {0};

    if (file_write(cli.loop, path, text, strlen(text), 0600, &e))
        fail_msg("%s", e.text);
    return path;
}

/* ---- command lines ---- */
static int parse(const char *const *words, int n, struct args *a, struct err *e)
{
    return args_parse(n, (char **)(void *)words, verb_find("get")->options, cli.mem, a, e);
}

static void command_lines(void **state)
{
    const char *words[] = {
        "workloads", "-Aojson", "--selector=a=b", "x", "--namespace", "ns", "-w", "--", "-x", "y"};
    struct args a;
    struct err e = {0};

    (void)state;
    assert_int_equal(parse(words, 10, &a, &e), 0);
    assert_int_equal(a.n_pos, 2);
    assert_string_equal(a.pos[1], "x");
    assert_true(arg_flag(&a, "all-namespaces"));
    assert_true(arg_flag(&a, "watch"));
    assert_string_equal(arg_text(&a, "output", ""), "json");
    assert_string_equal(arg_text(&a, "selector", ""), "a=b");
    assert_string_equal(arg_text(&a, "namespace", ""), "ns");
    assert_int_equal(a.n_rest, 2);
    assert_string_equal(a.rest[0], "-x");
}

static void wrong_command_lines(void **state)
{
    static const struct {
        const char *words[2], *text;
    } t[] = {{{"--watchh"}, "unknown option --watchh; did you mean --watch?"},
             {{"-q"}, "unknown option -q (--help lists them)"},
             {{"--output"}, "--output needs a value: --output FORMAT"},
             {{"-n"}, "-n needs a value: -n NAME"},
             {{"--watch=x"}, "--watch takes no value"}};
    struct args a;
    struct err e;
    long v;
    int64_t ms;

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        assert_int_equal(parse(t[i].words, 1, &a, &e), E_USAGE);
        assert_string_equal(e.text, t[i].text);
    }
    const char *words[] = {"-o", "12x", "--selector", "-3"};
    assert_int_equal(parse(words, 4, &a, &e), 0);
    assert_int_equal(arg_number(&a, "output", 0, 100, 1, &v, &e), E_USAGE);
    assert_int_equal(arg_number(&a, "selector", 0, 100, 1, &v, &e), E_USAGE);
    assert_int_equal(arg_number(&a, "absent", 0, 100, 1, &v, &e), 0);
    assert_int_equal(v, 1);
    assert_int_equal(arg_duration(&a, "output", 5, &ms, &e), E_USAGE);
}

/* A word that is meant as a name and is empty, as "$NAME" is where NAME is not set, must not become
 * a request for the whole collection. All verbs say so ahead of any login. */
static void empty_names_are_refused(void **state)
{
    static const char *const words[] = {"", "secret/", "/", "secret//", "secret/.", "..", "."};
    static const char *const verbs[] = {"explain", "migrate", "save",     "logs",
                                        "fence",   "drain",   "cordon",   "uncordon",
                                        "exec",    "get",     "describe", "delete"};
    struct args a;
    struct err e;

    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (size_t v = 0; v < sizeof verbs / sizeof *verbs; v++) {
            char *line[] = {(char *)(uintptr_t)verbs[v], (char *)(uintptr_t) "secret",
                            (char *)(uintptr_t)words[i]};
            assert_int_equal(args_parse(2, line + 1, verb_find(verbs[v])->options, cli.mem, &a, &e),
                             E_USAGE);
            assert_non_null(strstr(e.text, i < 4 ? "an empty name" : "is not a name"));
            assert_int_equal(cli_main(3, line), strcmp(verbs[v], "exec") ? 2 : 255);
        }
    const char *fine[] = {"secret/a", "--selector", "", "-o", "", "a.b", "--", "", "x/"};
    assert_int_equal(parse(fine, 9, &a, &e), 0);
    assert_int_equal(a.n_pos, 2);
    assert_int_equal(a.n_rest, 2);
}

/* Whatever a verb takes for a name, an option's value or what a server answered. */
static void no_path_of_a_name_is_the_collection(void **state)
{
    static const char *const names[] = {"", ".", ".."};
    const struct kind *k = kind_by_id(KIND_DATASET);
    struct client_answer answer;
    struct err e = {0};

    (void)state;
    client_answer_init(&answer);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = cli_path(&cli, k, "ns", false, names[i]);
        assert_int_not_equal(*path, '/');
        assert_int_equal(
            cli_request(&cli, "DELETE", path, NULL, NULL, slice_make(NULL, 0), &answer, &e),
            E_USAGE);
        assert_null(cli.client);
    }
    client_answer_fini(&answer);
    assert_non_null(strstr(cli_path(&cli, k, "ns", false, "a.b"), "/namespaces/ns/datasets/a.b"));
    assert_non_null(strstr(cli_path(&cli, k, "ns", false, NULL), "/namespaces/ns/datasets"));
}

static void every_verb_is_whole(void **state)
{
    (void)state;
    for (unsigned i = 0; i < verb_count; i++) {
        const struct verb *v = &verb_table[i];
        assert_non_null(v->run);
        assert_non_null(v->options);
        assert_true(verb_find(v->name) == v);
        for (const struct option *o = v->options; o->name; o++) {
            assert_non_null(o->doc);
            assert_null(
                option_find(options_common, o->name, strlen(o->name), 0)); /* no second meaning */
            assert_true(!o->letter || !option_find(options_common, NULL, 0, o->letter));
            assert_true(option_find(v->options, o->name, strlen(o->name), 0) == o);
        }
    }
}

static void count_line(const char *line, void *arg)
{
    (void)line;
    ++*(unsigned *)arg;
}

/* What a server logs of its machine is not for who asked for something else. */
static void commands_log_errors_alone(void **state)
{
    char *version[] = {(char *)(void *)"version"};
    unsigned lines = 0;

    (void)state;
    assert_int_equal(cli_main(1, version), 0);
    log_capture(count_line, &lines);
    log_event(LOG_WARN, "loop.held", LOG_FIELDS({"ms", log_u64(200)}));
    assert_int_equal(lines, 0);
    log_event(LOG_ERROR, "lost", LOG_FIELDS({"n", log_u64(1)}));
    assert_int_equal(lines, 1);
    log_capture(NULL, NULL);
    log_set(LOG_INFO, false);
}

static void kinds_and_nearest_words(void **state)
{
    const struct kind *k;
    struct err e = {0};

    (void)state;
    assert_int_equal(cli_kind("wl", &k, &e), 0);
    assert_int_equal(k->id, KIND_WORKLOAD);
    assert_int_equal(cli_kind("Workloads", &k, &e), 0);
    assert_int_equal(cli_kind("CompliancePolicy", &k, &e), 0);
    assert_int_equal(cli_kind("worklod", &k, &e), E_USAGE);
    assert_string_equal(e.text, "unknown kind \"worklod\"; did you mean workload?");
    char *unknown[] = {(char *)(void *)"gett"};
    assert_int_equal(cli_main(1, unknown), 2);
}

/* ---- kubeconfig ---- */
static const char config[] =
    "apiVersion: v1\nkind: Config\ncurrent-context: b\nclusters:\n"
    "- name: c\n  cluster:\n    server: https://one:1\n    certificate-authority: pki/ca.crt\n    "
    "extensions:\n"
    "    - name: hanse.dev/servers\n      extension: {servers: [\"https://one:1\", "
    "\"https://two:2\"]}\n"
    "- name: d\n  cluster: {server: \"https://d:1\", certificate-authority-data: Q0E=, "
    "tls-server-name: hub}\n"
    "- name: bad\n  cluster: {server: \"https://d:1\", insecure-skip-tls-verify: true}\n"
    "contexts:\n- name: a\n  context: {cluster: c, user: u, namespace: vision}\n"
    "- name: b\n  context: {cluster: d, user: t}\n- name: x\n  context: {cluster: bad, user: u}\n"
    "- name: e\n  context: {cluster: d, user: e}\n"
    "users:\n- name: u\n  user: {client-certificate: u.crt, client-key: /abs/u.key}\n"
    "- name: t\n  user: {tokenFile: token, token: old}\n- name: e\n  user: {exec: {command: "
    "login}}\n";

static void logins(void **state)
{
    const char *path = file("config", config);
    struct login in;
    struct err e = {0};

    (void)state;
    (void)file("token", "secret-1\n");
    if (kubeconfig_load(cli.loop, path, true, "a", cli.mem, &in, &e))
        fail_msg("%s", e.text);
    assert_int_equal(in.n_servers, 2);
    assert_string_equal(in.servers[0], "https://one:1");
    assert_string_equal(in.servers[1], "https://two:2");
    assert_string_equal(in.ca_file, arena_printf(cli.mem, "%s/pki/ca.crt", dir));
    assert_string_equal(in.cert_file, arena_printf(cli.mem, "%s/u.crt", dir));
    assert_string_equal(in.key_file, "/abs/u.key");
    assert_string_equal(in.ns, "vision");
    if (kubeconfig_load(cli.loop, path, true, NULL, cli.mem, &in, &e)) /* current-context: b */
        fail_msg("%s", e.text);
    assert_string_equal(in.ca_pem, "CA");
    assert_string_equal(in.token, "secret-1");
    assert_string_equal(in.tls_server_name, "hub");
    assert_null(in.ns);
}

static void several_files(void **state)
{
    const char *first =
        file("first", "contexts: [{name: z, context: {cluster: d, user: t2, namespace: n}}]\n"
                      "current-context: z\nusers: [{name: t2, user: {token: abc}}]\n");
    const char *paths =
        arena_printf(cli.mem, "%s/absent:%s:%s", dir, first, file("config", config));
    struct login in;
    struct err e = {0};

    (void)state;
    if (kubeconfig_load(cli.loop, paths, true, NULL, cli.mem, &in, &e))
        fail_msg("%s", e.text);
    assert_string_equal(in.context, "z");
    assert_string_equal(in.servers[0], "https://d:1");
    assert_string_equal(in.token, "abc");
}

static void refused_logins(void **state)
{
    const char *path = file("config", config);
    struct login in;
    struct err e = {0};

    (void)state;
    assert_int_equal(kubeconfig_load(cli.loop, path, true, "x", cli.mem, &in, &e), E_USAGE);
    assert_non_null(strstr(e.text, "insecure-skip-tls-verify is refused"));
    assert_int_equal(kubeconfig_load(cli.loop, path, true, "e", cli.mem, &in, &e), E_NOTIMPL);
    assert_int_equal(kubeconfig_load(cli.loop, path, true, "nope", cli.mem, &in, &e), E_USAGE);
    assert_int_equal(kubeconfig_load(cli.loop, "/nonexistent/k", true, NULL, cli.mem, &in, &e),
                     E_NOTFOUND);
    assert_int_equal(kubeconfig_load(cli.loop, "/nonexistent/k", false, NULL, cli.mem, &in, &e), 0);
    assert_int_equal(in.n_servers, 0);
}

/* ---- documents ---- */
static void folders_are_read_with_places(void **state)
{
    struct documents d = {0};
    struct err e = {0};

    (void)state;
    assert_int_equal(file_mkdir(cli.loop, arena_printf(cli.mem, "%s/p/sub", dir), 0700, NULL), 0);
    (void)file("p/b.yaml", "# a\n---\napiVersion: hanse.dev/v1alpha1\nkind: Queue\nmetadata: "
                           "{name: q}\nspec:\n  weight: 2\n");
    (void)file(
        "p/sub/c.json",
        "{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[{\"apiVersion\":\"v1\",\"kind\":"
        "\"Namespace\",\"metadata\":{\"name\":\"n\"}}]}");
    (void)file("p/readme.txt", "no document");
    (void)file("p/.hidden.yaml", "{");
    if (documents_load(&cli, arena_printf(cli.mem, "%s/p", dir), &d, &e) ||
        documents_validate(&cli, &d, &e))
        fail_msg("%s", e.text);
    assert_int_equal(d.n, 2);
    assert_string_equal(json_text_of(d.v[1].json, "kind"), "Namespace");
    (void)err_field(&e, E_INVALID, "spec.weight", "spec.weight: document 0 (Queue q): too much");
    documents_locate(&d, &e);
    assert_non_null(strstr(e.text, "p/b.yaml:7: Queue q: spec.weight: too much"));
    (void)err_field(&e, E_INVALID, "spec.weight", "spec.weight: queue q: a cycle");
    documents_locate(&d, &e);
    assert_non_null(strstr(e.text, "p/b.yaml:7: spec.weight: queue q: a cycle"));
    documents_free(&d);
}

static void wrong_documents_name_their_line(void **state)
{
    static const struct {
        const char *text, *says;
    } t[] = {
        {"apiVersion: hanse.dev/v1alpha1\nkind: Queue\nmetadata: {name: q}\nspec:\n  wieght: 2\n",
         ":5: spec.wieght: unknown field; did you mean weight?"},
        {"apiVersion: v1\nkind: Queue\nmetadata: {name: q}\n",
         ":1: apiVersion: \"v1\": expected hanse.dev/v1alpha1"},
        {"apiVersion: batch/v1\nkind: Job\n", ":2: kind: \"Job\" (batch/v1) is no kind of Hanse"}};
    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct documents d = {0};
        struct err e = {0};
        assert_int_equal(documents_parse(&cli, t[i].text, strlen(t[i].text), "f.yaml", &d, &e), 0);
        assert_int_equal(documents_validate(&cli, &d, &e), E_INVALID);
        if (!strstr(e.text, t[i].says))
            fail_msg("%s", e.text);
        documents_free(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(command_lines, begin, end),
        cmocka_unit_test_setup_teardown(wrong_command_lines, begin, end),
        cmocka_unit_test_setup_teardown(empty_names_are_refused, begin, end),
        cmocka_unit_test_setup_teardown(no_path_of_a_name_is_the_collection, begin, end),
        cmocka_unit_test_setup_teardown(every_verb_is_whole, begin, end),
        cmocka_unit_test_setup_teardown(commands_log_errors_alone, begin, end),
        cmocka_unit_test_setup_teardown(kinds_and_nearest_words, begin, end),
        cmocka_unit_test_setup_teardown(logins, begin, end),
        cmocka_unit_test_setup_teardown(several_files, begin, end),
        cmocka_unit_test_setup_teardown(refused_logins, begin, end),
        cmocka_unit_test_setup_teardown(folders_are_read_with_places, begin, end),
        cmocka_unit_test_setup_teardown(wrong_documents_name_their_line, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
