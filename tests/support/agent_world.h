/* A server's side and up to two agents with real processes: driver, TLS, agents and shims as they
 * are shipped. The test program itself is the agent, the shim and `hanse checkpoint`: its main()
 * begins with agent_world_main(). Must hold no opinion of what is right; it asks and waits. */
#ifndef HANSE_TESTS_SUPPORT_AGENT_WORLD_H
#define HANSE_TESTS_SUPPORT_AGENT_WORLD_H

#include "connectors/connector.h"
#include "tests/support/unit.h"

#include <sys/types.h>

#define AGENTS 2
#define PATIENCE_MS 60000
#define CALL_MS 40000 /* of calls that nobody keeps from being answered */

struct asked {        /* the last call */
    struct call call; /* first */
    bool done, has;
    enum outcome out;
    struct observation seen;
    struct err err;
};
struct agent_side {
    char target[8]; /* "t1", "t2"; nodes t1.n1 and t1.n2 */
    struct object *object;
    struct connector *connector;
    struct stream *stream;
    pid_t agent;
    bool reachable, refuse; /* refuse: sessions are turned away */
    char memory[64];        /* whose state folder speaks for it */
    char heard[64];         /* the state that it told to have heard of, and how far */
    uint64_t heard_rv, rv;  /* rv: that we tell, at the time rv * 1000; the cluster is `cluster` */
    int64_t heard_ms;
    char cluster[64];
    char rival[512];   /* why a second one was turned away */
    unsigned silences; /* how often it was taken for silent */
    size_t nodes;      /* that it told last, and the first of them */
    char node_name[128];
    char told[160];           /* of the same page: "SINCE REVISION REMOVED" */
    char processes[16];       /* what holds its runs together, as its first node tells */
    struct notice notices[4]; /* that it told last */
    size_t n_notices;
    unsigned noticed; /* how often */
};
void agent_on_notices(void *arg, const struct notice *v, size_t n); /* agent/notices.c */
uint32_t agent_peers_told(void *arg, struct arena *a, const char ***ret);
/* Runs `hanse agent notice --state (that of the side's agent)` with these words, NULL at their end,
 * without waiting; its end: agent_notice_end, the exit status. What it says is in notice.log. */
pid_t agent_notice_begin(unsigned side, const char *const *words);
int agent_notice_end(pid_t pid);
extern struct agent_world {
    char dir[64], address[32];
    char leader[32];       /* a second address of the server's side; agents do not know it */
    const char *processes; /* --processes of agents that begin from now on; NULL = cgroup */
    const char *redirect;  /* where sessions at `address` are sent; NULL = they are taken */
    unsigned redirected, at_leader; /* sessions that were sent on; that came to `leader` */
    unsigned turned_away;           /* that came to the lobby */
    struct loop *loop;
    struct tls_config *tls;
    struct listener *listener, *leader_listener;
    struct agent_side side[AGENTS];
    bool all_to_first; /* whoever comes is taken for the agent of side 0 */
    bool no_targets;   /* whoever comes is heard in the lobby, and turned away */
    char refusal[512]; /* why an agent was turned away by the driver */
    struct {
        struct observation o; /* the latest of each key */
        unsigned told;        /* how often */
    } seen[1024];
    size_t n_seen;
    uint64_t serial;
    struct run_offer offer; /* with each renewal, unless its number is 0 */
    struct timer renewals;  /* timer_start: every 100 ms, to all */
    const char *peers[2];   /* state folders that renewals name as reached; NULL: no more */
} A;

extern struct connector_events agent_events; /* what is told; a test may listen to more */
/* The forms of `hanse` that agents and programs start; -1 = this is the test itself. */
int agent_world_main(int argc, char **argv);
int agent_world_setup(void **state);
int agent_world_teardown(void **state);

void agent_begin(unsigned side);
/* With the certificate of that name; waits for nothing. */
void agent_begin_as(unsigned side, const char *cert);
/* A second agent for the target of that side, with its certificate and a state folder of this name;
 * its pid. It says what it says into NAME.log. */
pid_t agent_second(unsigned side, const char *state);
void agent_end(unsigned side, int signo);
void agent_lobby_close(void); /* those who are in it go unheard */
/* Ends the session, and turns new ones away until on is false. */
void agent_cut_off(unsigned side, bool on);

struct agent_order {
    unsigned side, workers; /* 0 = 1 worker */
    struct run_key key;
    const char *script; /* of sh -c; $D is the world's folder, $U the uid, $H this program, `$ESC
                           FILE` starts one that wants to get away */
    const char *resume_path, *resume_digest;
    int64_t look_epoch, resume_epoch, resume_step; /* agent_stage: looks for itself */
    int64_t keep;                                  /* 0 = 2 */
    uint64_t lease_ms;
    const char *grace;
    const char *file_script; /* instead of script: a file, as sbatch takes it */
    uint64_t deadline_ms;    /* of the call; 0 = CALL_MS */
    const char *dir;         /* spec.run.workingDir */
    const char *arg;         /* given to the script n_args times */
    unsigned n_args;
    bool reshard; /* from what any number of workers saved */
    bool shared;  /* all save in one folder */
    int64_t look_workers;
    const char *env;         /* NAME=value of its own, or NULL */
    const char *save_signal; /* spec.checkpoint.saveSignal, or NULL */
    const char *base;        /* where it saves, or NULL: agent_base */
    bool proved;             /* only where the end of all processes is proved */
    const char *meeting;     /* agent_stage: of that gang's agents, or NULL */
    bool leaves;
    /* Its workers are those from first_rank on of a larger gang. */
    const struct run_span *span;
    int64_t first_rank;
};
/* Of ends on that side: as far as the machine permits. */
enum proof agent_proof(unsigned side);
struct run_key agent_key(void); /* a fresh one */
/* BASE of a uid, as orders have it. */
const char *agent_base(const char *uid);
enum outcome agent_submit(const struct agent_order *o, struct asked *a);
enum outcome agent_stage(const struct agent_order *o, struct asked *a);
/* Asks for its submission, or its staging, and returns at once. */
void agent_order_begin(const struct agent_order *o, bool stage, struct asked *a, uint64_t ms);
enum outcome agent_find(unsigned side, const struct run_key *k, struct asked *a);
enum outcome agent_stop(unsigned side, const struct run_key *k, struct asked *a);
enum outcome agent_inventory(unsigned side, struct asked *a);
enum outcome agent_sweep(unsigned side, run_judge judge, struct asked *a);
enum outcome agent_promises(unsigned side, uint64_t older_ms, promise_judge judge, struct asked *a);
void agent_quiesce(unsigned side, const struct run_key *k); /* SIGUSR1 */
void agent_pass(uint64_t ms);                               /* lets that much time go by */
bool agent_until(bool (*cond)(void *arg), void *arg, uint64_t ms);
bool agent_call_done(void *arg);                               /* arg: struct asked */
const struct observation *agent_seen(const struct run_key *k); /* NULL = nothing yet */
const struct observation *agent_await(const struct run_key *k, enum run_state state);
/* Until its newest checkpoint has at least this step. */
const struct run_checkpoint_report *agent_await_step(const struct run_key *k, int64_t step);

/* Files of the world's folder. */
bool agent_file_exists(const char *fmt, ...);
void agent_file_put(const char *name, const char *text);
/* As text; "" when it is not there. Good until the next call but seven. */
const char *agent_file_text(const char *fmt, ...);
bool agent_await_file(const char *name);
long agent_await_pid(const char *name);       /* a program writes it there */
const char *agent_name(const char *fmt, ...); /* of a file; good until the next call but seven */

#endif
