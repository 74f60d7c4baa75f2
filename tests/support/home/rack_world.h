/* A real callout server (deploy/examples/callout/server.py) with real runners, and the hub's side
 * of both in this process, over real TLS. The test's program is also the runner and the shim that
 * the server starts: its main() begins with rack_main(). Must hold no opinion of what is right. */
#ifndef HANSE_TESTS_SUPPORT_RACK_WORLD_H
#define HANSE_TESTS_SUPPORT_RACK_WORLD_H

#include "tests/support/contract/connector_contract.h"

extern struct rack_world {
    struct connector_rig rig; /* of the contract; its state is this */
    char dir[64];
    unsigned came;      /* runners that have shown a good token */
    const char *signal; /* by which a program is asked to save and go on; of the next orders */
} rack_world;

int rack_main(int argc, char **argv); /* -1: this is the test itself */
int rack_setup(void **state);
int rack_teardown(void **state);
/* The server is killed, or is there again, with the memory that it has on disk. */
void rack_server_kill(void);
void rack_server_start(void);
void rack_nodes(const char *json); /* that it offers from now on */
const char *rack_file(const char *name);

#endif
