/* A virtual world beneath the unchanged program: many hosts, one thread, one clock, one seed.
 *
 * Every process has a `struct loop` of its own (more with loop_thread_start). Time moves only from
 * event to event, so an hour passes in seconds, and the same seed gives the same events:
 * sim_event_hash compares runs. What a program must not do here: ask the real clock, random(),
 * files or sockets. */
#ifndef HANSE_TESTS_SIM_WORLD_SIM_LOOP_H
#define HANSE_TESTS_SIM_WORLD_SIM_LOOP_H

#include "api/base/loop/loop.h"
#include "api/base/net/tls.h"

struct sim_world;
struct sim_host;

struct sim_world *sim_world_create(uint64_t seed);
struct sim_world *sim_world_destroy(struct sim_world *w); /* ends all processes as a crash does */
uint64_t sim_now_ms(const struct sim_world *w);
int64_t sim_utc_ms(const struct sim_world *w); /* what a right wall clock says */
uint64_t sim_random(struct sim_world *w);      /* for the test's own choices */
uint64_t sim_random_below(struct sim_world *w, uint64_t n);

/* Runs events until `until_ms` of the world's clock, or until done() holds after an event (then
 * true). */
bool sim_run_until(struct sim_world *w, uint64_t until_ms, bool (*done)(void *arg), void *arg);
/* Calls fn(arg) at that time, outside of all hosts: for the test's script of faults. */
void sim_at(struct sim_world *w, uint64_t at_ms, void (*fn)(void *arg), void *arg);
uint64_t sim_event_hash(const struct sim_world *w); /* over all events so far */
uint64_t sim_events(const struct sim_world *w);     /* how many */
/* A line of the trace, on stderr when HANSE_SIM_TRACE is set; always part of the hash. */
void sim_log(struct sim_world *w, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* ---- hosts and programs ---- */
/* A program as a process runs it. main prepares and returns; the process lives until sim_exit,
 * loop_stop on its first loop, a signal, or a crash. argv and env live as long as the process. */
struct sim_program {
    void (*main)(struct loop *l, const char *const *argv, const char *const *env, void *arg);
    /* The process has ended, however: frees its memory, found by sim_self(l), and does nothing
     * else. May be NULL. */
    void (*gone)(struct loop *l, void *arg);
    void *arg;
};
/* name: its address, "m1" */
struct sim_host *sim_host_create(struct sim_world *w, const char *name);
/* Starts a process that no other one spawned (the machine's service); its argv is {name, NULL}. */
struct loop *sim_start(struct sim_host *h, const char *name, const struct sim_program *p);
/* What process_spawn finds for the base name of argv[0], on every host; the table's name is
 * kept. */
void sim_program_add(struct sim_world *w, const char *name, const struct sim_program *p);
/* For programs. */
void **sim_self(struct loop *l); /* a place for the process's own state */
void sim_exit(struct loop *l, int code);
void sim_print(struct loop *l, const char *fmt, ...) PRINTF_LIKE(2, 3); /* to its stdout_path */
struct sim_host *sim_host_of(const struct loop *l);
struct sim_world *sim_world_of(const struct loop *l);
int64_t sim_pid_of(const struct loop *l);
const char *sim_host_name(const struct sim_host *h);
struct sim_host *sim_host_find(struct sim_world *w, const char *name);

/* ---- faults ---- */
void sim_crash(
    struct sim_host *h); /* power cut: everything but the files is gone; peers hear nothing */
struct sim_host *
sim_firing(const struct sim_world *w); /* whose callback this is; NULL: the test's own */
/* A power cut of that host in the midst of its callback: does not return. What the callback held is
 * not freed. */
void sim_crash_here(struct sim_world *w) __attribute__((noreturn));
void sim_boot(struct sim_host *h); /* up again; then sim_start what it runs */
bool sim_up(const struct sim_host *h);
void sim_pause(struct sim_host *h, bool paused); /* like a stopped VM: time goes on, nothing runs */
void sim_kill(struct sim_host *h, int64_t pid, int signo); /* pid < 0: a process group */
unsigned sim_processes(const struct sim_host *h);          /* alive on it */
/* Packets from a to b are held back, as TCP does, and dropped for datagrams; both directions or
 * one. */
void sim_partition(struct sim_host *a, struct sim_host *b, bool on);
void sim_partition_one_way(struct sim_host *from, struct sim_host *to, bool on);
void sim_heal(struct sim_world *w); /* no partitions any more */
/* default 300 + 0…400 */
void sim_latency(struct sim_world *w, uint64_t base_us, uint64_t jitter_us);
/* Of a million delivered packets so many break their connection; so many datagrams are lost. */
void sim_loss(struct sim_world *w, unsigned reset_ppm, unsigned datagram_ppm);
void sim_wall_jump(struct sim_host *h, int64_t by_ms);
void sim_wall_right(struct sim_host *h);           /* its clock is set right again */
void sim_disk_full(struct sim_host *h, bool full); /* file_write: E_NOSPACE */

/* ---- identities ---- */
/* For tls parameters of simulated loops. name "" = no certificate. groups and alpn_mutual:
 * NULL-terminated or NULL. server_name: what a client wants to reach ("member:2"), or NULL. Unref
 * it with tls_config_unref. */
struct tls_config *sim_tls(const char *name, const char *const *groups, bool server,
                           const char *const *alpn_mutual, const char *server_name);

/* ---- for libraft's virtual I/O ---- */
/* Unreliable messages under the same latency, partitions, pauses and crashes. The binding goes with
 * its process. */
typedef void (*sim_datagram_cb)(const char *from_host, const void *p, size_t n, void *arg);
void sim_datagram_bind(struct loop *l, unsigned port, sim_datagram_cb cb, void *arg);
void sim_datagram_send(struct loop *l, const char *to_host, unsigned port, const void *p, size_t n);
/* A place on the host's disk for an object of the test's own; survives crashes. destroy is called
 * with the world. */
void **sim_disk(struct sim_host *h, const char *name, void (*destroy)(void *));

/* All files of a host, and these put in the place of what it has: while nothing runs there. */
struct sim_files;
struct sim_files *sim_folder_copy(const struct sim_host *h);
void sim_folder_put_back(struct sim_host *h, const struct sim_files *c);
void sim_folder_free(struct sim_files *c);

#endif
