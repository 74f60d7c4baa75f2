/* The signals by which a program is asked for something. It must never name one that cannot be
 * caught. */
#include "connectors/signals.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    int number;
} known[] = {{"TERM", SIGTERM}, {"INT", SIGINT},   {"HUP", SIGHUP},   {"USR1", SIGUSR1},
             {"USR2", SIGUSR2}, {"QUIT", SIGQUIT}, {"CONT", SIGCONT}, {"WINCH", SIGWINCH}};

int signal_number(const char *name)
{
    const char *s = strncmp(name, "SIG", 3) == 0 ? name + 3 : name;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(s, known[i].name) == 0)
            return known[i].number;
    return 0;
}

const char *signal_name(int number)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].number == number)
            return known[i].name;
    return "";
}
