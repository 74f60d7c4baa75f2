/* The shim: `hanse run -- CMD` starts one program, holds its lease, and tells when all of it is
 * gone.
 *
 * Why it exists: whoever started a run may die, be cut off or be killed. The shim keeps the promise
 * "stops by itself when the lease is over" alone, and "it has ended" is said (end.json) only when
 * no process of the tree is left, however it hid (runner_os.h). It must never say so earlier, and
 * never start the program twice.
 *
 * With a folder it is the agent's: RANKDIR/end.json at the end, and frames (below) on a unix
 * socket. Without one it is the user's own, inside a pod or an sbatch script. */
#ifndef HANSE_CONNECTORS_SHIM_SHIM_H
#define HANSE_CONNECTORS_SHIM_SHIM_H

#include "api/base/net/frame.h"
#include "connectors/checkpoint/checkpoint.h"
#include "connectors/shim/runner_os.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- what it tells: run_report, connectors/wire/wire.def ---- */
/* One JSON object, as in end.json and in RUN_FRAME_STATE. */
int run_report_print(const struct run_report *r, struct buf *out, struct err *err) MUST_CHECK;
int run_report_write(struct loop *l, const char *path, const struct run_report *r,
                     struct err *err) MUST_CHECK;
int run_report_parse(const void *p, size_t n, struct run_report *ret, struct err *err) MUST_CHECK;
/* Puts in how the program ended; the message too, unless there is a reason already. */
void run_report_exit(struct run_report *r, int exit_code, int term_signal);
void run_report_lease_lost(struct run_report *r);
#define RUN_END_FILE "end.json"
/* a report as well: the program has exited, the tree may live */
#define RUN_EXIT_FILE "exit.json"

#define RUN_WILL_FILE "will" /* will_linux.h */

#define RUN_RESUME_LATEST "latest"
/* In the shim's own environment, and not in its program's: how the store is reached, each name with
 * this before it. None: as the usual names say. */
#define RUN_STORE_ENV "HANSE_STORE_"
/* A rank's checkpoints; strings are never NULL. connectors/checkpoint/README.md has the folders. */
struct run_checkpoints {
    const char *base; /* "" = none: then the rest does not matter */
    /* Folders of this machine that stand in for a store which is elsewhere: for what is written,
     * and for what is resumed from. They may be the same. */
    const char *scratch, *resume_scratch;
    const char *const *store_env;     /* NULL: this process's own */
    const char *workload;             /* uid */
    int64_t epoch, rank, world, keep; /* epoch 0: one more than there has been */
    /* Cut; "" = starts anew; RUN_RESUME_LATEST: the newest in base that holds, or anew when there
     * is none. */
    const char *resume_path, *resume_digest;
    const char *proofs_dir; /* what the agent has verified already; "" = nothing */
    bool own_cuts;          /* nobody else gathers the ranks' seals */
    bool wait_go;           /* a gang starts together: only when all its ranks can */
    bool reshard; /* its program resumes from what any number of ranks saved, and sees all */
};

/* ---- a program among strangers (tenant_linux.h) ---- */
/* Where it finds what is its own, below RANKDIR. */
#define TENANT_WORK "work"
#define TENANT_TMP "tmp"
#define TENANT_SAVE "save"     /* its checkpoint folder is mounted there */
#define TENANT_RESUME "resume" /* what it resumes from, which it cannot change */
struct tenant_spec {           /* strings are never NULL */
    uint32_t uid, gid;         /* uid 0: it is as its shim is, and the rest does not matter */
    const char *state;         /* the agent's folder: out of sight */
    const char *dir; /* RANKDIR, below it: TENANT_... and the script beside it are in sight */
    const char *save, *resume; /* "" = none; the runner's own to say */
};

/* ---- the shim on any loop ---- */
struct runner_config {
    struct runner_os *os;
    const char *dir;         /* RANKDIR, exists; NULL: no records, no socket */
    const char *socket_path; /* with dir */
    const char *marker;      /* "" = none */
    enum run_processes held; /* what holds its processes together */
    const char *group;       /* made by the caller; "" = none; removed at the end */
    const char *const *argv;
    const char *const *env;           /* the program's whole environment, with the marker */
    const char *cwd;                  /* NULL: as it is */
    const char *log_path;             /* NULL: this process's own output */
    uint64_t lease_ms, lease_from_ms; /* 0 = no lease; from: loop_now_ms when it was asked for */
    uint64_t grace_ms; /* of a lost lease, and for what a finished program leaves behind */
    int64_t guard_pid; /* 0 = none */
    const char *will;  /* what the guard reads when we die (will_linux.h); "" = nobody does */
    struct run_checkpoints checkpoints;
    struct tenant_spec tenant;
    int64_t memory_bytes; /* its limit, as the kernel has taken it; 0 = none */
    /* Last call; the runner is gone then. */
    void (*done)(const struct run_report *r, void *arg);
    void *arg;
};
struct runner;
/* Starts it. On an error nothing runs and nothing was written. */
int runner_create(struct loop *l, const struct runner_config *cfg, struct runner **ret,
                  struct err *err) MUST_CHECK;
void runner_stop(struct runner *r, int signo, uint64_t grace_ms);
void runner_signal(struct runner *r, int signo); /* for the program alone; asks for no end */

/* `hanse run …`; argv[0] is "run". Exit status: the program's, 128 + signal, 126/127 as the
 * shell's. */
int run_main(int argc, char **argv);

/* ---- a store that is elsewhere (scratch_linux.c) ---- */
/* Takes RUN_STORE_ENV… out of this process's environment, also out of what others may read of it.
 * NULL: there was none. */
const char *const *run_store_env(struct arena *m);
/* A folder of this user's alone, the same for the same base. */
int run_scratch_default(const char *base, struct arena *m, const char **ret,
                        struct err *err) MUST_CHECK;

/* ---- parts that are plain Linux programs ---- */
/* Forks: 0 in the child, which is the shim. The parent is its guard: it waits, hands signals on,
 * and when the shim dies without a word, or lets its deadline pass, it ends the tree, finds out how
 * the program ended, and writes end.json. It never returns. ret_will: where the shim leaves its
 * will. */
#define RUN_WILL_MAX 4160
struct guard_spec {
    const char *dir, *marker, *group; /* as of runner_config */
    enum run_processes held;
    uint64_t lease_until_ms; /* CLOCK_BOOTTIME, until the shim tells another; 0 = none */
};
int guard_split(const struct guard_spec *g, char ret_will[RUN_WILL_MAX],
                struct err *err) MUST_CHECK;
/* What a program may be asked without being stopped, to save above all: guard and shim hand it on.
 * Slurm's --signal sends any of them. */
#define RUN_SIGNALS 5
extern const int run_signals[RUN_SIGNALS];
void guard_deadline_tell(uint64_t until_ms, bool lost); /* in the shim: to its guard */
/* Until when the program may live, whoever has to see to it: the shim until then, its guard and the
 * agent so long after it. They fit into the kill time of 5 s that the hub adds (drive/lease.c). */
#define GUARD_MARGIN_MS 1000
#define AGENT_MARGIN_MS 2000
/* Joins the group, dies with its parent, puts itself into the will, becomes argv. Returns only the
 * exit status of a failure. */
struct enter_spec { /* strings are never NULL */
    const char *group, *will;
    int64_t parent;     /* 0 = none */
    bool own_namespace; /* in a PID namespace of its own */
    struct tenant_spec tenant;
};
int enter_exec(const struct enter_spec *s, const char *const *argv);
int enter_group(const struct enter_spec *s); /* joins it; 0, or an exit status */
int enter_become(const char *const *argv);   /* the very last step */
/* `hanse run --attach SOCKET --id N -- CMD`: runs CMD for `hanse exec`, its three streams over a
 * unix socket; where the program is: in its group, in the namespace that its will names. */
int attach_exec(const char *socket_path, uint64_t id, const struct enter_spec *s,
                const char *const *argv);
/* Frames on that socket: the helper's HELLO carries the id as frame id; then both ways. */
enum attach_frame {
    ATTACH_HELLO = 1,
    ATTACH_DATA = 2, /* flags: 0 to its input, 1 or 2 from it */
    ATTACH_EOF = 3,  /* its input ends */
    ATTACH_END = 4   /* body: exit status as one byte */
};

#endif
