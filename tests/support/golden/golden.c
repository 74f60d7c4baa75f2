/* Golden files, line by line. Must never write one unless it was asked to. */
#include "tests/support/golden/golden.h"

#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

bool golden_writes(void)
{
    return getenv("HANSE_GOLDEN_WRITE") != NULL;
}

void golden_open(struct golden *g, const char *name)
{
    char path[128];

    (void)snprintf(path, sizeof path, "tests/golden/%s", name);
    g->name = name;
    g->f = fopen(path, golden_writes() ? "w" : "r");
    if (!g->f)
        fail_msg("%s cannot be opened: tests run in the top folder", path);
}

void golden_next(struct golden *g, const char *line)
{
    char has[GOLDEN_LINE_MAX] = "";

    if (golden_writes())
        (void)fputs(line, g->f);
    else if (!fgets(has, sizeof has, g->f) || strcmp(has, line) != 0)
        fail_msg("tests/golden/%s has \"%s\" where the table has \"%s\"; where lines are only "
                 "added, this program writes it anew with HANSE_GOLDEN_WRITE=1",
                 g->name, has, line);
}

void golden_holds(struct golden *g, const char *line)
{
    char has[GOLDEN_LINE_MAX] = "";

    if (golden_writes()) {
        (void)fputs(line, g->f);
        return;
    }
    rewind(g->f);
    while (fgets(has, sizeof has, g->f)) {
        if (!strcmp(has, line))
            return;
    }
    fail_msg("not in tests/golden/%s, which this program writes anew with HANSE_GOLDEN_WRITE=1: %s",
             g->name, line);
}

void golden_close(struct golden *g, bool all)
{
    char has[GOLDEN_LINE_MAX];

    if (all && !golden_writes() && fgets(has, sizeof has, g->f))
        fail_msg("tests/golden/%s goes on with \"%s\"", g->name, has);
    (void)fclose(g->f);
}
