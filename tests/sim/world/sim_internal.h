/* What the files of the simulator share. */
#ifndef HANSE_TESTS_SIM_WORLD_SIM_INTERNAL_H
#define HANSE_TESTS_SIM_WORLD_SIM_INTERNAL_H

#include "tests/sim/world/sim_loop.h"

#include <setjmp.h>

enum sim_kind {
    SIM_WAKE = 1,
    SIM_POST,
    SIM_WORK,
    SIM_SCRIPT,
    SIM_SYN,
    SIM_OPEN,
    SIM_PACKET,
    SIM_CLOSED,
    SIM_DEADLINE,
    SIM_DRAINED,
    SIM_DATAGRAM,
    SIM_START,
    SIM_SIGNAL,
    SIM_EXIT,
    SIM_LOG
};

struct sim_loop;

/* Something that will happen. The owner embeds or allocates it; fire() gets it back exactly
 * once. */
struct sim_event {
    uint64_t at_us, seq;
    size_t heap; /* place + 1; 0 = not scheduled */
    enum sim_kind kind;
    uint64_t about;        /* into the hash */
    struct sim_loop *loop; /* whose; NULL = the world's, fires also when hosts are down */
    bool held;             /* waits for its host to go on */
    struct list link;      /* in its loop's list, for the end of the process */
    void (*fire)(struct sim_event *e);
    void (*drop)(struct sim_event *e); /* its process ended before; may be NULL */
};

struct sim_file {
    struct list link; /* sorted by path */
    char *path;
    bool dir;
    unsigned mode;
    char *p;
    size_t n;
    struct sim_proc *locked_by;
};

struct sim_slot {
    struct list link;
    char *name;
    void *p;
    void (*destroy)(void *);
};

struct sim_host {
    struct sim_world *w;
    struct list link;
    char name[64];
    unsigned id;
    bool up, paused, disk_full;
    int64_t wall_offset_ms;
    uint64_t boot_offset_ms;
    struct list procs, files, slots;
    struct list held; /* events that came while paused */
    int64_t next_pid;
};

struct sim_signal {
    void (*fn)(void *arg);
    void *arg;
};

struct sim_proc {
    struct sim_host *host;
    struct list link;
    bool alive, ending;
    int64_t pid, group;
    uint64_t start_ticks;
    struct list loops;
    struct sim_loop *first;
    struct sim_program program;
    void *self;
    struct arena *arena; /* argv, env, output path */
    const char **argv, **env;
    const char *output;
    int exit_code, term_signal;
    struct sim_signal handlers[65];
    struct list listeners, datagrams;
    struct sim_child *as_child; /* the parent's handle */
};

/* A parent's handle. */
struct sim_child {
    struct process base;
    struct sim_proc *proc; /* NULL once it has ended */
    int64_t pid;
    bool session;
    process_exit_cb cb;
    void *arg;
    int code, signo;
    struct sim_event exit;
    struct list link; /* in its loop's children */
};

struct sim_loop {
    struct loop base;
    struct sim_proc *proc;
    struct list link;
    bool stopped; /* no more events */
    struct sim_event wake;
    struct list events, streams, children;
};

struct sim_world {
    uint64_t now_us, seq, fired;
    uint64_t rng[4];
    uint64_t hash;
    struct sim_event **heap;
    size_t heap_n, heap_cap;
    struct list hosts, conns, dead; /* dead: processes that ended, kept until the world goes */
    struct list programs;
    unsigned next_host;
    bool *blocked; /* [from * hosts_max + to] */
    uint64_t latency_us, jitter_us;
    unsigned reset_ppm, datagram_ppm;
    bool trace;
    int depth;
    struct sim_host *firing; /* whose event this is */
    jmp_buf here;
};

#define SIM_HOSTS_MAX 256ul

static inline struct sim_loop *sim_loop_of(const struct loop *l)
{
    return l->impl;
}
static inline struct sim_world *world_of(const struct sim_loop *l)
{
    return l->proc->host->w;
}

/* sim_world.c */
void sim_schedule(struct sim_world *w, struct sim_event *e, enum sim_kind kind, struct sim_loop *l,
                  uint64_t delay_us, void (*fire)(struct sim_event *),
                  void (*drop)(struct sim_event *));
void sim_cancel(struct sim_world *w, struct sim_event *e);
void sim_hash(struct sim_world *w, const void *p, size_t n);
void sim_fire_early(struct sim_world *w, struct sim_event *e);
/* sim_process.c */
extern const struct loop_ops sim_ops;
struct sim_loop *sim_loop_create(struct sim_proc *p);
void sim_proc_end(struct sim_proc *p, int code, int signo, bool silent); /* silent: power cut */
void sim_proc_free(struct sim_proc *p);
int sim_spawn_op(struct loop *l, const struct process_spec *spec, process_exit_cb cb, void *arg,
                 struct process **ret, struct err *err);
int64_t sim_pid_op(const struct process *p);
void sim_signal_op(struct process *p, int signo);
void sim_unref_op(struct process *p);
bool sim_alive_op(struct loop *l, int64_t pid, uint64_t start_ticks);
uint64_t sim_start_ticks_op(struct loop *l, int64_t pid);
int sim_on_signal_op(struct loop *l, int signo, void (*fn)(void *), void *arg, struct err *err);
void sim_loop_end_children(struct sim_loop *l);
void sim_programs_free(struct sim_world *w);
/* sim_net.c */
bool sim_reachable(const struct sim_host *from, const struct sim_host *to);
uint64_t sim_latency_us(struct sim_world *w, const struct sim_host *a, const struct sim_host *b);
int sim_connect_op(struct loop *l, const char *address, const struct tls_config *tls,
                   const char *alpn, uint64_t deadline_ms, const struct stream_events *ev,
                   void *arg, struct stream **ret, struct err *err);
int sim_listen_op(struct loop *l, const char *address, const struct tls_config *tls, accept_cb cb,
                  void *arg, struct listener **ret, int *ret_port, struct err *err);
void sim_listener_close_op(struct listener *li);
void sim_loop_end_streams(struct sim_loop *l, bool silent, bool tell);
void sim_proc_end_listeners(struct sim_proc *p);
void sim_loop_end_listeners(struct sim_loop *l);
void sim_loop_end_datagrams(struct sim_loop *l);
void sim_conns_free(struct sim_world *w);
/* sim_file.c */
int sim_read_op(struct loop *l, const char *path, uint64_t offset, size_t max, bool whole,
                struct buf *b, struct err *err);
int sim_write_op(struct loop *l, const char *path, const void *p, size_t n, unsigned mode,
                 struct err *err);
int sim_remove_op(struct loop *l, const char *path, struct err *err);
int sim_mkdir_op(struct loop *l, const char *path, unsigned mode, struct err *err);
int sim_list_op(struct loop *l, const char *dir, void (*each)(const char *, void *), void *arg,
                struct err *err);
int sim_lock_op(struct loop *l, const char *path, struct err *err);
void sim_append(struct sim_host *h, const char *path, const void *p, size_t n);
void sim_files_unlock(struct sim_proc *p);
void sim_files_free(struct sim_host *h);

#endif
