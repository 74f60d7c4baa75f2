/* A life in a process of its own: an abort of the program is a failure of that life, and what
 * crashed members held goes with it. */
#include "tests/sim/federation/sim_federation.h"

#include "api/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEED_SECONDS 60 /* of the processor: more is a loop that does not end */

/* What crashed members held is not freed; the process of the seed ends with it. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}

static void no_log(const char *line, void *arg)
{
    (void)arg;
    if (getenv("HANSE_SIM_TRACE"))
        (void)fprintf(stderr, "           %s\n", line);
}

struct fed_outcome fed_run_apart(uint64_t seed, const struct fed_script *script)
{
    struct fed_outcome *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct fed_outcome out;
    int status = 0;

    INV(shared != MAP_FAILED);
    (void)fflush(NULL);
    pid_t pid = fork();
    INV(pid >= 0);
    if (pid == 0) {
        (void)setitimer(ITIMER_PROF, &(struct itimerval){.it_value = {.tv_sec = SEED_SECONDS}},
                        NULL);
        log_capture(no_log, NULL);
        fed_run(seed, script, shared);
        _exit(0);
    }
    INV(waitpid(pid, &status, 0) == pid);
    if (!shared->done && !*shared->failed)
        (void)snprintf(shared->failed, sizeof shared->failed,
                       WIFSIGNALED(status) ? "ended by signal %d" : "ended with status %d",
                       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    out = *shared;
    (void)munmap(shared, sizeof *shared);
    return out;
}

uint64_t fed_number(const char *name, uint64_t otherwise)
{
    const char *s = getenv(name);

    return s ? strtoull(s, NULL, 10) : otherwise;
}

enum sim_plant fed_plant_wanted(void)
{
    const char *name = getenv("HANSE_SIM_PLANT");

    for (int p = PLANT_NONE; name && p < PLANT_NR; p++)
        if (!strcmp(name, sim_plant_text((enum sim_plant)p)))
            return (enum sim_plant)p;
    return PLANT_NONE;
}

unsigned fed_tell(uint64_t seed, const struct fed_outcome *o, const char *program)
{
    if (!*o->failed)
        return 0;
    (void)fprintf(stderr,
                  "seed %llu: %s\n  again: HANSE_SIM_SEED=%llu HANSE_SIM_TRACE=1 tests/sim/%s\n",
                  (unsigned long long)seed, o->failed, (unsigned long long)seed, program);
    return 1;
}
