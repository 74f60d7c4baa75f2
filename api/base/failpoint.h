/* Failpoints: named places where a test makes the process die, so that a crash happens exactly
 * there.
 *
 * FAILPOINT("move.start.before") does nothing unless the environment asks for it, and is not in the
 * release build at all (CMake option HANSE_FAILPOINTS). Asked for by
 *
 *   HANSE_FAILPOINT=SPEC        this process dies there
 *
 *   HANSE_FAILPOINT_FILE=FILE   the file holds a SPEC, or is not there. The first process that
 *                               comes by takes it (it is renamed to FILE.fired, with the pid in it)
 *                               and dies: one death among many processes, none after a restart
 *
 *   HANSE_FAILPOINT_LIST=FILE   each name that is reached is appended, with role and pid
 *
 *   HANSE_FAILPOINT_ROLE=ROLE   what this process calls itself in a SPEC
 *
 * SPEC is NAME[@ROLE][:N][=kill|exit|stop|plant]: the Nth time (1), only in a process of that role;
 * by SIGKILL, by _exit(70), or stopped by SIGSTOP; plant: see below. In a file N counts what this
 * process has passed since the file was written.
 *
 * FAILPOINT_TAKES("log.entry") is a place where something else happens than a death: true once, in
 * the first process that comes by and takes the file, which holds SPEC=plant.
 *
 * HANSE_WALL_SHIFT_FILE=FILE shifts the wall clock, and no other: by the ms of FILE's first line
 * "PID MS" that is of this process, or of 0.
 *
 * A point lies just before or just after an effect, and is named for it. It must never stand where
 * nothing could have died: between two lines of which neither can be seen from outside. */
#ifndef HANSE_API_BASE_FAILPOINT_H
#define HANSE_API_BASE_FAILPOINT_H

#include <stdbool.h>

#ifdef HANSE_FAILPOINTS
extern bool failpoint_armed; /* written before main; by failpoint_init in tests */
#define FAILPOINT(name)                                                                            \
    do {                                                                                           \
        if (__builtin_expect(failpoint_armed, 0))                                                  \
            failpoint_reached(name);                                                               \
    } while (0)
/* A planted bug: is this one planted now? Only tests plant (failpoint_plant), to prove that their
 * checks would see it. Written as `if (!proved && !PLANTED("store.start-unproved")) refuse`. */
#define PLANTED(name) (__builtin_expect(failpoint_armed, 0) && failpoint_planted(name))
#define FAILPOINT_TAKES(name) (__builtin_expect(failpoint_armed, 0) && failpoint_takes(name))
#else
#define FAILPOINT(name) ((void)(name)) /* tables of names stay in use */
#define PLANTED(name) (false)
#define FAILPOINT_TAKES(name) (false)
#endif
void failpoint_reached(const char *name); /* any thread */
bool failpoint_takes(const char *name);   /* likewise */
bool failpoint_planted(const char *name);
/* How far off this process's wall clock is meant to be, in ms. */
long long failpoint_wall_shift_ms(void);
/* For tests: one planted bug at a time, NULL = none; and who is told of each point that is reached
 * (it may leave by longjmp). The names are borrowed. */
void failpoint_plant(const char *name);
void failpoint_hook(void (*fn)(const char *name, void *arg), void *arg);
/* Reads the environment again; a SPEC that cannot be read ends the process with 64 and says why.
 * Called before main. */
void failpoint_init(void);

#endif
