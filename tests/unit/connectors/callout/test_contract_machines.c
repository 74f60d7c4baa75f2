/* The callout driver under the contract of machines, with the server that is an example for others:
 * the real one, as a process, over real connections. */
#include "connectors/callout/callout.h"
#include "tests/support/machines/machines_contract.h"

#include <arpa/inet.h>
#include <cjson/cJSON.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEY "a-secret-of-thirty-two-letters-or-more"
#define OFFERS                                                                                     \
    "[{\"class\":\"h100\",\"gpus\":1,\"zone\":\"a\",\"market\":\"spot\",\"price\":2.5,"            \
    "\"count\":2,\"boot\":0.2}]"

static struct {
    struct machines_rig rig;
    struct object *target;
    char dir[64], file[256];
    int port;
    pid_t pid;
} W;

static const char *path(const char *name)
{
    (void)snprintf(W.file, sizeof W.file, "%s/%s", W.dir, name);
    return W.file;
}

static void file_make(const char *name, const char *text)
{
    FILE *f = fopen(path(name), "w");

    assert_non_null(f);
    (void)fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static int port_free(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&at, n), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    (void)close(fd);
    return ntohs(at.sin_port);
}

static void serve(void)
{
    char port[16], key[80], state[80], offers[80];

    (void)snprintf(port, sizeof port, "%d", W.port);
    (void)snprintf(key, sizeof key, "%s/key", W.dir);
    (void)snprintf(state, sizeof state, "%s/state", W.dir);
    (void)snprintf(offers, sizeof offers, "%s/offers", W.dir);
    W.pid = fork();
    assert_true(W.pid >= 0);
    if (W.pid == 0) {
        (void)execlp("python3", "python3", "deploy/examples/callout/server.py", "--port", port,
                     "--key-file", key, "--state", state, "--offers", offers, "--nodes", "0",
                     (char *)NULL);
        _exit(127);
    }
}

/* ---- the rig ---- */
static const char *secret(void *arg, const char *name, const char *key)
{
    (void)arg;
    (void)name;
    return !strcmp(key, "key") ? KEY : NULL;
}

/* By what the server keeps: a file a key, with an id of a machine that was made. */
static unsigned given(struct machines_rig *r, const char *key)
{
    char name[128], text[2000];
    FILE *f;

    (void)r;
    (void)snprintf(name, sizeof name, "state/machines/%s.json", key);
    f = fopen(path(name), "r");
    if (!f)
        return 0;
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    (void)fclose(f);
    return strstr(text, "\"id\"") ? 1 : 0;
}

static void take(struct machines_rig *r, const char *key)
{
    char name[128];

    (void)r;
    (void)snprintf(name, sizeof name, "state/machines/%s.interrupt", key);
    file_make(name, "0.2");
}

static void silence(struct machines_rig *r, bool on)
{
    (void)r;
    assert_int_equal(kill(W.pid, on ? SIGSTOP : SIGCONT), 0);
}

static int group_begin(void **state)
{
    char text[400];
    struct err e;
    cJSON *j;

    str_copy(W.dir, sizeof W.dir, "/tmp/hanse-machines-XXXXXX");
    assert_non_null(mkdtemp(W.dir));
    W.port = port_free();
    file_make("key", KEY);
    file_make("offers", OFFERS);
    (void)snprintf(text, sizeof text,
                   "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Target\",\"metadata\":{"
                   "\"name\":\"t1\"},\"spec\":{\"type\":\"callout\",\"tier\":\"burst\","
                   "\"connection\":{\"server\":\"http://127.0.0.1:%d\",\"credentialsFrom\":{"
                   "\"secret\":\"rack\"}}}}",
                   W.port);
    j = cJSON_Parse(text);
    if (object_from_json(kind_by_id(KIND_TARGET), j, 0, &W.target, &e))
        fail_msg("%s: %s", e.field, e.text);
    cJSON_Delete(j);
    W.rig = (struct machines_rig){.loop = loop_uv_create(&e),
                                  .run = loop_uv_run,
                                  .ops = &connector_callout_ops,
                                  .target = W.target,
                                  .secret = secret,
                                  .given = given,
                                  .take = take,
                                  .silence = silence};
    serve();
    machines_rig_begin(&W.rig);
    *state = &W.rig;
    return 0;
}

static int between(void **state)
{
    machines_rig_end(*state);
    machines_rig_begin(*state);
    return 0;
}

static int group_end(void **state)
{
    pid_t pid;

    machines_rig_end(*state);
    (void)kill(W.pid, SIGKILL);
    (void)waitpid(W.pid, NULL, 0);
    (void)object_unref(W.target);
    W.rig.loop = loop_uv_destroy(W.rig.loop);
    pid = fork();
    if (pid == 0) {
        (void)execlp("rm", "rm", "-rf", W.dir, (char *)NULL);
        _exit(127);
    }
    return waitpid(pid, NULL, 0) == pid ? 0 : -1;
}

int main(void)
{
    struct CMUnitTest tests[] = {MACHINES_CONTRACT_TESTS};

    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tests[i].teardown_func = between;
    return cmocka_run_group_tests(tests, group_begin, group_end);
}
