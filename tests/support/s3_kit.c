/* See s3_kit.h. */
#include "tests/support/s3_kit.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BASE "s3://bucket/" S3_KIT_PREFIX
#define ANSWER_MAX 65536

static struct {
    pid_t pid;
    FILE *to, *from;
    char said[ANSWER_MAX], url[96], other[512], scratch[96];
    const char *env[8];
} kit;

static void child(int in[2], int out[2])
{
    (void)dup2(in[0], 0);
    (void)dup2(out[1], 1);
    for (int i = 0; i < 2; i++) {
        (void)close(in[i]);
        (void)close(out[i]);
    }
    (void)execlp("python3", "python3", "tests/support/s3/server.py", (char *)NULL);
    _exit(127);
}

int s3_kit_setup(void **state)
{
    int in[2], out[2];
    char line[64];

    if (kit_setup(state) != 0 || pipe(in) != 0 || pipe(out) != 0)
        return -1;
    kit.pid = fork();
    if (kit.pid == 0)
        child(in, out);
    (void)close(in[0]);
    (void)close(out[1]);
    kit.to = fdopen(in[1], "w");
    kit.from = fdopen(out[0], "r");
    if (kit.pid < 0 || !kit.to || !kit.from || !fgets(line, sizeof line, kit.from) ||
        strncmp(line, "port ", 5) != 0)
        return -1;
    line[strcspn(line, "\n")] = '\0';
    (void)snprintf(kit.url, sizeof kit.url, "AWS_ENDPOINT_URL=http://127.0.0.1:%s", line + 5);
    s3_kit_env(NULL);
    s3_kit_machine("one");
    return 0;
}

int s3_kit_teardown(void **state)
{
    (void)fclose(kit.to); /* it ends with its input */
    (void)fclose(kit.from);
    (void)kill(kit.pid, SIGKILL);
    (void)waitpid(kit.pid, NULL, 0);
    return kit_teardown(state);
}

void s3_kit_env(const char *text)
{
    static const char *const usual[] = {"AWS_DEFAULT_REGION=eu-test-1", "AWS_ACCESS_KEY_ID=tester",
                                        "AWS_SECRET_ACCESS_KEY=" S3_KIT_SECRET,
                                        "AWS_SESSION_TOKEN=token"};
    size_t n = 0;

    str_copy(kit.other, sizeof kit.other, text ? text : "");
    if (text)
        kit.env[n++] = kit.other;
    kit.env[n++] = kit.url;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        kit.env[n++] = usual[i];
    kit.env[n] = NULL;
}

void s3_kit_machine(const char *name)
{
    (void)snprintf(kit.scratch, sizeof kit.scratch, "%s/%s", kit_base, name);
    kit_at = (struct checkpoint_store){
        .base = BASE, .scratch = kit.scratch, .env = kit.env, .patience_ms = 4000};
}

const char *s3_kit_say(const char *fmt, ...)
{
    size_t n = 0;
    va_list ap;

    va_start(ap, fmt);
    (void)vfprintf(kit.to, fmt, ap);
    va_end(ap);
    (void)fputc('\n', kit.to);
    assert_int_equal(fflush(kit.to), 0);
    kit.said[0] = '\0';
    for (;;) {
        assert_true(n + 1 < sizeof kit.said);
        assert_non_null(fgets(kit.said + n, (int)(sizeof kit.said - n), kit.from));
        if (strcmp(kit.said + n, "ok\n") == 0)
            break;
        n += strlen(kit.said + n);
    }
    kit.said[n] = '\0';
    return kit.said;
}

unsigned s3_kit_count(const char *lines, const char *text)
{
    unsigned n = 0;

    while (*lines) {
        const char *end = strchr(lines, '\n');
        const char *found = strstr(lines, text);
        size_t len = end ? (size_t)(end - lines) + 1 : strlen(lines);
        n += found && found < lines + len;
        lines += len;
    }
    return n;
}
