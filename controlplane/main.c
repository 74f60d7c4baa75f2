/* The entry of the one binary. It picks the command and hands over; it must never hold logic of its
 * own, because nothing here can be reached by a unit test. */
#if __has_include("api/cli/cli.h")
#include "api/cli/cli.h"
#else
#define cli_main(c, v) ((void)(c), (void)(v), 2)
#endif
#include "connectors/agent/agent.h"
#include "connectors/run/run.h"
#include "controlplane/server/server.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*main)(int argc, char **argv);
    } programs[] = {
#if __has_include("api/server/verbs.c")
        {"server", server_main}, {"dev", dev_main},
#endif
        {"agent", agent_main}, {"run", run_main}};

    for (size_t i = 0; argc > 1 && i < sizeof programs / sizeof *programs; i++)
        if (!strcmp(argv[1], programs[i].name))
            return programs[i].main(argc - 1, argv + 1);
    return cli_main(argc - 1, argv + 1);
}
