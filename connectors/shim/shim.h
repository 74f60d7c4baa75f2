/* The shim: `hanse run -- CMD` starts one program, holds its lease, and reports when all of it is
 * gone.
 *
 * The agent or user that started a run may die, be cut off or be killed. The shim alone keeps the
 * promise that the program stops when the lease is over. It reports the end (end.json) only when no
 * process of the tree is left, however it hid (runner_os.h). It must never report it earlier, and
 * never start the program twice.
 *
 * With a folder it belongs to the agent: RANKDIR/end.json at the end, and frames (below) on a unix
 * socket. Without one it belongs to the user, inside a pod or an sbatch script. */
#ifndef HANSE_CONNECTORS_SHIM_SHIM_H
#define HANSE_CONNECTORS_SHIM_SHIM_H

#include "api/base/net/frame.h"
#include "connectors/checkpoint/checkpoint.h"
#include "connectors/shim/runner_os.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- its report: run_report, connectors/wire/wire.def ---- */
/* Prints one JSON object, as in end.json and in RUN_FRAME_STATE. */
int run_report_print(const struct run_report *r, struct buf *out, struct err *err) MUST_CHECK;
int run_report_write(struct loop *l, const char *path, const struct run_report *r,
                     struct err *err) MUST_CHECK;
int run_report_parse(const void *p, size_t n, struct run_report *ret, struct err *err) MUST_CHECK;
/* Fills in how the program ended; the message too, unless there is a reason already. */
void run_report_exit(struct run_report *r, int exit_code, int term_signal);
/* Its keeper or the first process of its namespace was killed, unless we have done that. */
void run_report_keeper_died(struct run_report *r);
/* Leaves beside end.json, in that folder, how the program ended whose tree may live. */
void run_report_exited(struct loop *l, const char *dir, const struct run_report *r);
void run_report_lease_lost(struct run_report *r);
/* True when it may not be started at that time of day, which the report then says. */
bool run_report_late(struct run_report *r, int64_t wall_ms, int64_t from_ms, int64_t by_ms);
/* A launcher (torchrun, above all) that is asked to stop hands the signal on, and ends with 1
 * although its workers have saved and ended with 75. Where the program had been asked, ended with
 * 1, and what it sealed last is of after that, this is no error: END_SAVED. step: what had been
 * sealed when it was asked; -1: nothing. */
void run_report_saved(struct run_report *r, const struct checkpoint_sealed *newest, int64_t step,
                      int64_t asked_wall_ms);
#define RUN_END_FILE "end.json"
/* also a report: the program has exited, but the tree may live */
#define RUN_EXIT_FILE "exit.json"

#define RUN_WILL_FILE "will" /* will_linux.h */

#define RUN_RESUME_LATEST "latest"
/* Prefix of names in the shim's own environment, not in its program's: how the store is reached.
 * None: as the usual names say. */
#define RUN_STORE_ENV "HANSE_STORE_"
/* A variable of the program's, in the environment of what starts it: the dynamic loader and every
 * library of ours read an environment (LD_PRELOAD, OPENSSL_CONF, …), and they run with the agent's
 * rights. enter_become() takes the prefix away, right before the program. */
#define RUN_PROGRAM_ENV "HANSE_PROGRAM_ENV:"
/* The checkpoints of a rank; strings are never NULL. connectors/checkpoint/README.md has the
 * folders. */
struct run_checkpoints {
    const char *base; /* "": none; then the rest does not matter */
    /* Folders of this machine that stand in for a remote store: for what is written, and for what
     * is read to resume. They may be the same. */
    const char *scratch, *resume_scratch;
    const char *const *store_env;     /* environment to reach the store; NULL: this process's own */
    const char *roots;                /* below which stores may lie; NULL: anywhere */
    const char *workload;             /* uid */
    int64_t epoch, rank, world, keep; /* epoch 0: one above the newest */
    /* Path of a cut; "": start anew; RUN_RESUME_LATEST: the newest in base that verifies, or
     * anew. */
    const char *resume_path, *resume_digest;
    const char *proofs_dir; /* what the agent has verified already; "": nothing */
    bool own_cuts;          /* this process gathers the ranks' seals into cuts itself */
    bool told;              /* and a hub is told of them: runner_cut_known says which it has */
    bool wait_go;           /* start only when all ranks of the gang can */
    bool shared;  /* all ranks save in one folder, that of the first, whose runner seals it */
    bool reshard; /* the program resumes from what any number of ranks saved, and sees all of it */
};

/* ---- a program among strangers (tenant_linux.h) ---- */
/* Its own folders below RANKDIR. */
#define TENANT_WORK "work"
#define TENANT_TMP "tmp"
#define TENANT_SAVE "save"     /* mount point of its checkpoint folder */
#define TENANT_RESUME "resume" /* mount point, read-only, of the checkpoint to resume from */
struct tenant_spec {           /* strings are never NULL */
    uint32_t uid, gid;         /* uid 0: the shim's own user; then the rest does not matter */
    const char *state;         /* the agent's folder, which is hidden from it */
    const char *dir; /* RANKDIR, below state; it sees TENANT_… and the script beside them */
    const char *save, *resume; /* "": none; the runner sets them */
};

/* ---- the shim on any loop ---- */
struct runner_config {
    struct runner_os *os;
    const char *dir;         /* RANKDIR, exists; NULL: no records, no socket */
    const char *socket_path; /* required with dir */
    const char *marker;      /* "": none */
    enum run_processes held; /* how its processes are held together */
    /* control group that the caller made; "": none; the runner removes it at the end */
    const char *group;
    const char *const *argv;
    const char *const *env;           /* the program's whole environment, with the marker */
    const char *cwd;                  /* NULL: the present one */
    const char *log_path;             /* NULL: this process's output */
    uint64_t lease_ms, lease_from_ms; /* 0: no lease; from: loop_now_ms when it was asked for */
    /* UTC ms between which it may start, by this machine's time of day; 0: no such bound */
    int64_t start_from_ms, start_by_ms;
    /* grace of a lost lease, and for processes that a finished program leaves behind */
    uint64_t grace_ms;
    int64_t guard_pid; /* 0 = none */
    const char *will;  /* path of the will for the guard (will_linux.h); "": no guard */
    struct run_checkpoints checkpoints;
    struct tenant_spec tenant;
    int64_t memory_bytes; /* its limit, as set in the kernel; 0: none */
    bool borrows;         /* it begins without a lease, and takes the first that it is offered */
    void (*told)(const struct run_report *r, void *arg); /* NULL, or called on every change */
    /* NULL, or: the program has exited. What was put beside it (connectors/streams) is to end: it
     * is in its tree, and the run has not ended before it. */
    void (*exited)(void *arg);
    bool (*own)(int64_t pid, void *arg); /* NULL, or: as of runner_tree */
    /* The last call: the runner is freed. */
    void (*done)(const struct run_report *r, void *arg);
    void *arg;
};
struct runner;
/* Starts the program. On an error nothing runs and nothing was written. */
int runner_create(struct loop *l, const struct runner_config *cfg, struct runner **ret,
                  struct err *err) MUST_CHECK;
void runner_stop(struct runner *r, int signo, uint64_t grace_ms);
/* signals the program alone, without stopping it */
void runner_signal(struct runner *r, int signo);

/* As on the socket: renews the lease, or begins another one. A runner that holds none takes its
 * first where it `borrows`. */
void runner_renew(struct runner *r, const struct shim_renew *q);
/* Has its program save and go on. signo 0: there is no signal for it, and the request fails. */
void runner_save(struct runner *r, const struct shim_save *q);
void runner_go(struct runner *r); /* the other ranks are ready */
/* The environment of its program, in arena m. */
const char *const *runner_env(const struct runner *r, struct arena *m);
/* The hub surely has that cut (run_report.cut_number), or a newer one. */
void runner_cut_known(struct runner *r, int64_t number);

/* `hanse run …`: options of home and of reports, then shim_main (connectors/home/home_main.c). */
int run_main(int argc, char **argv);
/* `hanse run …` without what connectors/home adds; argv[0] is "run". Exit status: the program's,
 * 128 + signal, 126/127 as the shell's. host: NULL, or who starts the runner in place of this
 * program, and is told what was asked of it. Its create() returns as runner_create does, may start
 * the runner later, and calls cfg->done at the end; cfg is good until then. */
struct run_host {
    int (*create)(void *arg, struct loop *l, const struct runner_config *cfg, struct err *err);
    void (*stop)(void *arg, int signo, uint64_t grace_ms);
    void (*signal)(void *arg, int signo);
    void *arg;
};
int shim_main(int argc, char **argv, const struct run_host *host);

/* ---- a store that is elsewhere (scratch_linux.c) ---- */
/* Takes RUN_STORE_ENV… out of this process's environment, also out of what others may read of it;
 * NULL: there was none. */
const char *const *run_store_env(struct arena *m);
/* Returns a folder that only this user can reach; the same base gives the same folder. */
int run_scratch_default(const char *base, struct arena *m, const char **ret,
                        struct err *err) MUST_CHECK;

/* ---- parts that are plain Linux programs ---- */
/* Forks, and returns 0 in the child, which is the shim. The parent is its guard: it waits, passes
 * signals on, and, when the shim dies without a report or lets its deadline pass, ends the tree,
 * finds out how the program ended, and writes end.json. The parent never returns. ret_will: path of
 * the shim's will. */
#define RUN_WILL_MAX 4160
struct guard_spec {
    const char *dir, *marker, *group; /* as of runner_config */
    enum run_processes held;
    uint64_t lease_until_ms; /* CLOCK_BOOTTIME, until the shim tells another; 0: none */
};
int guard_split(const struct guard_spec *g, char ret_will[RUN_WILL_MAX],
                struct err *err) MUST_CHECK;
/* Signals that ask a program for something (to save, above all) without stopping it: guard and shim
 * pass them on. Slurm's --signal sends any of them. */
#define RUN_SIGNALS 5
extern const int run_signals[RUN_SIGNALS];
void guard_deadline_tell(uint64_t until_ms, bool lost); /* called in the shim */
/* How long after the deadline the guard, and then the agent, enforce it in place of the shim. Both
 * fit into the kill time of 5 s that the hub adds (drive/lease.c). */
#define GUARD_MARGIN_MS 1000
#define AGENT_MARGIN_MS 2000
/* Joins the group, arranges to die with its parent, writes itself into the will, and becomes argv.
 * It returns only the exit status of a failure. */
struct enter_spec { /* strings are never NULL */
    const char *group, *will;
    int64_t parent;     /* 0 = none */
    bool own_namespace; /* argv runs in a PID namespace of its own */
    struct tenant_spec tenant;
};
int enter_exec(const struct enter_spec *s, const char *const *argv);
int enter_group(const struct enter_spec *s); /* joins the group; returns 0 or an exit status */
int enter_become(const char *const *argv);   /* the very last step */
/* `hanse run --attach SOCKET --id N -- CMD`: runs CMD for `hanse exec`, with its three streams over
 * a unix socket, where the program is: in its group, and in the namespace that its will names.
 * terminal: "ROWSxCOLUMNS" of the terminal that it gets; NULL: none. */
int attach_exec(const char *socket_path, uint64_t id, const struct enter_spec *s,
                const char *terminal, const char *const *argv);
/* `hanse run --attach SOCKET --id N --port PORT`: a connection to a port of this machine on which
 * nobody but processes of the tree listen. */
int attach_port(const char *socket_path, uint64_t id, const struct runner_tree *t, unsigned port);
/* Frames on that socket: the helper's HELLO carries the id as frame id; then both ways. */
enum attach_frame {
    ATTACH_HELLO = 1, /* flags: 0, or why it has no connection: ATTACH_NOBODY, ATTACH_STRANGER */
    ATTACH_DATA = 2,  /* flags: 0 to its input, 1 or 2 from it */
    ATTACH_EOF = 3,   /* its input ends; from it: no more data comes from the port */
    ATTACH_END = 4,   /* body: exit status as one byte */
    ATTACH_SIZE = 5   /* body: rows and columns, two bytes each, little-endian */
};
#define ATTACH_NOBODY 1   /* no process of the tree listens there */
#define ATTACH_STRANGER 2 /* another one does */

#endif
