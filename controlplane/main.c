/* The entry of the one binary. It picks the command and hands over; it must never hold logic of its
 * own, because nothing here can be reached by a unit test. */
#include "api/base/loop/loop.h"
#include "api/cli/cli.h"
#include "connectors/agent/agent.h"
#include "connectors/checkpoint/checkpoint.h"
#include "connectors/shim/shim.h"
#include "controlplane/archive/archive_files.h"
#include "controlplane/backup/backup.h"
#include "controlplane/server/server.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*main)(int argc, char **argv);
    } programs[] = {{"server", server_main},         {"dev", dev_main},
                    {"agent", agent_main},           {"run", run_main},
                    {"checkpoint", checkpoint_main}, {"archive", archive_main},
                    {"backup", backup_main},         {"restore", restore_main}};

    process_stdio_keep();
    bool help = argc == 3 && !strcmp(argv[1], "help"); /* `hanse help dev` is `hanse dev --help` */
    const char *name = help ? argv[2] : argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (!strcmp(name, programs[i].name))
            return help ? programs[i].main(2, (char *[]){argv[2], (char[]){"--help"}, NULL})
                        : programs[i].main(argc - 1, argv + 1);
    return cli_main(argc - 1, argv + 1);
}
