/* What runner.c and runner_link.c share. Private to connectors/shim. */
#ifndef HANSE_CONNECTORS_SHIM_RUNNER_INTERNAL_H
#define HANSE_CONNECTORS_SHIM_RUNNER_INTERNAL_H

#include "api/base/list.h"
#include "connectors/output/output.h"
#include "connectors/shim/keeper.h"

enum runner_state {
    RS_PREPARING,
    RS_WAITING,
    RS_RUNNING,
    RS_ENDING,
    RS_KILLING,
    RS_SEALING,
    RS_GONE
};

struct runner_link {
    struct list link;
    struct runner *runner;
    struct stream *stream;
    struct frame_reader reader;
};
struct runner {
    struct loop *loop;
    struct runner_config cfg;
    enum runner_state state;
    struct run_report report;
    struct process *program; /* NULL: none (any more) */
    bool exited; /* the program has exited; the kernel keeps its status until end.json is there */
    /* loop time; 0: no lease; else cfg.lease_from_ms + cfg.lease_ms of the held lease */
    uint64_t lease_until_ms;
    uint64_t kill_at_ms; /* loop time of the kill, in RS_ENDING */
    /* When it was asked to stop, and the step that was sealed then (-1: none) */
    int64_t stopped_wall_ms, step_when_stopped;
    struct timer tick, mark;
    struct output_writer *output; /* NULL: its log is not ours to bound */
    struct listener *listener;
    struct list links;
    unsigned n_links;
    bool written;          /* end.json is on disk */
    struct keeper *keeper; /* NULL: no checkpoints */
    bool go;               /* the other ranks are ready */
    int save_signo;        /* asks the program to save and go on; 0: nobody has */
    int end_signo; /* asks it to end, and is held back until ask_by_ms at most; 0: none is */
    uint64_t ask_by_ms;
};

/* ---- runner.c ---- */
void runner_look_again(struct runner *r); /* soon, on the loop */
void runner_free_when_quiet(struct runner *r);
struct runner_tree runner_tree(const struct runner *r); /* all its processes */

/* ---- runner_link.c ---- */
/* Sends the report to every link, or to `only`. */
void runner_tell(struct runner *r, struct stream *only);
void runner_accept(struct listener *li, struct stream *s, void *arg);
/* Signals the program and its whole group to end; signo 0: nobody. A commit that is being started
 * would die of it ahead of ignoring it, and the program take that for a save that failed: then the
 * signal is held back for moments. runner_asked_to_end looks again, and is true once nothing is
 * held back. */
void runner_ask_to_end(struct runner *r, int signo);
bool runner_asked_to_end(struct runner *r);
/* Tells at once what the keeper has sealed meanwhile, and how far a request to save is; signals for
 * one that is due. */
void runner_take_kept(struct runner *r);
void runner_hang_up(struct runner *r); /* closes the links once everything has been sent */

#endif
