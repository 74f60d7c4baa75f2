/* The `hanse` command line: everything that is a client of a cluster. Programs that are no clients
 * (server, dev, agent, run) have their own entries; controlplane/main.c picks. */
#ifndef HANSE_API_CLI_CLI_H
#define HANSE_API_CLI_CLI_H

/* argv[0] is the verb ("get"); argc 0 prints the help. Returns the exit status
 * (api/base/err.def). */
int cli_main(int argc, char **argv);

#endif
