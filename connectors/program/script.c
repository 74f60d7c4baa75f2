/* What the first line of a script says, as the kernel reads it. The interpreter is named here and
 * not left to the kernel, so that a folder that is mounted noexec does no harm. */
#include "connectors/program/script.h"

#include <string.h>

enum { SHEBANG_NONE, SHEBANG_TAKEN, SHEBANG_EMPTY };

static int shebang_read(const char *script, struct arena *m, const char **ret_program,
                        const char **ret_arg)
{
    if (strncmp(script, "#!", 2) != 0)
        return SHEBANG_NONE;
    const char *end = script + strcspn(script, "\n"), *p = script + 2;
    while (end > p && strchr(" \t\r", end[-1]))
        end--;
    p += strspn(p, " \t");
    size_t n = strcspn(p, " \t\r\n");
    if (n == 0)
        return SHEBANG_EMPTY;
    *ret_program = arena_printf(m, "%.*s", (int)n, p);
    p += n;
    p += strspn(p, " \t");
    *ret_arg = p < end ? arena_printf(m, "%.*s", (int)(end - p), p) : NULL; /* one, whole */
    return SHEBANG_TAKEN;
}

int script_check(const char *script, struct err *err)
{
    const char *program, *arg;
    AUTO_ARENA m = arena_create(0);

    if (shebang_read(script, m, &program, &arg) == SHEBANG_EMPTY)
        return err_field(err, E_INVALID, "spec.run.script",
                         "its first line is #! and names no program: write #!/bin/bash, or leave "
                         "the line out for /bin/sh -e");
    return 0;
}

size_t script_argv(const char *script, const char *path, struct arena *a, const char **ret)
{
    const char *program = "/bin/sh", *arg = "-e";
    size_t n = 0;

    (void)shebang_read(script, a, &program, &arg);
    ret[n++] = program;
    if (arg)
        ret[n++] = arg;
    ret[n++] = path;
    return n;
}
