/* The seam: everything that a program reaches outside of its memory goes through a `struct loop`:
 * clock, randomness, timers, other threads, network, files, processes. Production has one over
 * libuv (api/base/uv), tests have one over a virtual world (tests/sim/). Code above
 * never calls libuv, time(), random(), socket(), open() or fork() itself; that is what lets a whole
 * federation run from a seed.
 *
 * One loop = one thread. Only loop_post() may be called from another thread.
 * Callbacks run on the loop's thread, never from inside the call that asked for them. */
#ifndef HANSE_API_BASE_LOOP_H
#define HANSE_API_BASE_LOOP_H

#include "api/base/err.h"
#include "api/base/list.h"
#include "api/base/loop/durations.h"
#include "api/base/mem.h"

#include <stdbool.h>
#include <stdint.h>

struct loop;
struct stream;
struct listener;
struct process;

/* ---- clock and randomness ---- */
/* CLOCK_BOOTTIME in ms: monotonic, counts suspend. Leases are held on it. */
uint64_t loop_now_ms(const struct loop *l);
/* UTC in ms as this machine has it; may jump, and be wrong. For people, and for one vote on what
 * time it is; a server decides by core_time_ms. */
int64_t loop_wall_ms(const struct loop *l);
void loop_random(struct loop *l, void *buf, size_t n); /* cryptographic in production */
uint64_t loop_random_u64(struct loop *l);

/* ---- timers ---- */
typedef void (*timer_cb)(void *arg);
struct timer { /* embedded; zero it with timer_init before first use */
    struct loop *loop;
    timer_cb cb;
    void *arg;
    uint64_t due_ms;
    size_t heap; /* place in the loop's heap + 1; 0 = stopped */
    uint64_t seq;
};
void timer_init(struct timer *t, struct loop *l, timer_cb cb, void *arg);
void timer_start(struct timer *t, uint64_t delay_ms); /* restarts when running */
void timer_stop(struct timer *t);                     /* harmless when stopped */
static inline bool timer_active(const struct timer *t)
{
    return t->heap != 0;
}

/* ---- other threads ---- */
/* Runs fn(arg) on loop l's thread, in the order posted; callable from any thread. */
void loop_post(struct loop *l, void (*fn)(void *arg), void *arg);
/* Runs work(arg) on the thread pool, which touches nothing shared, then done(arg) on l's thread. */
void loop_work(struct loop *l, void (*work)(void *arg), void (*done)(void *arg), void *arg);
/* A further loop on a thread of its own (in the simulator: the same loop), running until
 * loop_stop. */
int loop_thread_start(struct loop *parent, const char *name,
                      void (*main)(struct loop *l, void *arg), void *arg, struct loop **ret_loop,
                      struct err *err) MUST_CHECK;
void loop_thread_join(struct loop *l); /* after loop_stop was posted to it; frees it */
void loop_stop(struct loop *l);        /* loop_run returns after the current callbacks */
/* Calls fn(arg) on l's thread whenever this program gets the signal; fn NULL: the default again. */
int loop_signal(struct loop *l, int signo, void (*fn)(void *arg), void *arg,
                struct err *err) MUST_CHECK;

/* How long the turns of the loop held it, from what woke it to waiting again, and what its thread
 * computed meanwhile: what a held turn did not compute, the machine kept from it. Callable from any
 * thread while the loop lives; NULL where nobody measures (in the simulator). */
struct loop_turns {
    struct durations held, computed;
};
const struct loop_turns *loop_turns(const struct loop *l);
/* What the loop's thread has computed so far; on that thread. 0 in the simulator. */
uint64_t loop_computed_ns(const struct loop *l);

/* ---- network: an ordered, reliable byte stream to an authenticated peer ---- */
/* Addresses: "host:port", "127.0.0.1:0", "[::1]:7443" or "unix:/path". */
struct tls_config; /* api/base/net/tls.h; NULL = plain, allowed for unix: only, for who listens on
                      127.0.0.1, too (and anywhere in the simulator) */

#define PEER_NAME_MAX 256
struct peer_identity {
    bool certified;                /* a certificate that the configured CA signed was presented */
    char name[PEER_NAME_MAX];      /* its CN: a user name, "member:3", "agent:fra-hub" */
    char groups[8][PEER_NAME_MAX]; /* its O entries */
    unsigned n_groups;
    char fingerprint[65];  /* SHA-256 of the certificate, hex */
    int64_t not_before_ms; /* since when it holds; UTC */
    char alpn[32];         /* protocol agreed on: "http/1.1", "hanse-raft/1", … or "" */
    char address[PEER_NAME_MAX];
    uint32_t unix_uid; /* of a unix: peer */
    int64_t unix_pid;  /* of the process that dialed it; 0: not known */
};

struct stream_events {
    void (*open)(struct stream *s, void *arg); /* connected, handshake done */
    void (*data)(struct stream *s, const void *p, size_t n, void *arg); /* borrowed for the call */
    void (*drained)(struct stream *s, void *arg); /* pending fell to 0 again */
    /* Last call; then s is gone. why is never NULL; its code is 0 when either side ended it
     * orderly. */
    void (*closed)(struct stream *s, const struct err *why, void *arg);
    /* Of plain streams: the peer sends no more, and still takes what is written. NULL: the stream
     * is closed then. */
    void (*eof)(struct stream *s, void *arg);
};
/* Returns at once; `open` or `closed` follows. deadline_ms bounds connecting and handshake. */
int stream_connect(struct loop *l, const char *address, const struct tls_config *tls,
                   const char *alpn, uint64_t deadline_ms, const struct stream_events *ev,
                   void *arg, struct stream **ret_stream, struct err *err) MUST_CHECK;
/* Likewise, through that HTTP proxy (api/base/net/proxy.h), where `via` is one that is for this
 * address; TLS is with the address itself, whose name the proxy resolves. NULL: straight. */
struct proxy;
int stream_connect_via(struct loop *l, const struct proxy *via, const char *address,
                       const struct tls_config *tls, const char *alpn, uint64_t deadline_ms,
                       const struct stream_events *ev, void *arg, struct stream **ret_stream,
                       struct err *err) MUST_CHECK;
/* Copies n bytes for sending. A stream has no send limit of its own: callers look at
 * stream_pending. */
void stream_write(struct stream *s, const void *p, size_t n);
size_t stream_pending(const struct stream *s);    /* bytes not yet taken by the kernel */
void stream_pause(struct stream *s, bool paused); /* stop or go on calling `data` */
/* True when the peer is gone, or sends no more, though what it had sent is not read: who pauses a
 * stream hears nothing of that otherwise. */
bool stream_hung_up(const struct stream *s);
void stream_close(struct stream *s); /* sends what waits (bounded: 5 s), then `closed` */
/* Of plain streams in production: nothing more is written, while `data` goes on coming. Once both
 * sides have ended theirs, `closed` follows. */
void stream_finish(struct stream *s);
void stream_abort(struct stream *s, const char *why); /* drops what waits; `closed` follows */
const struct peer_identity *stream_peer(const struct stream *s);
/* hands a stream over */
void stream_set(struct stream *s, const struct stream_events *ev, void *arg);
struct loop *stream_loop(const struct stream *s);

/* accept: the stream is open and authenticated; the callee calls stream_set or stream_abort in
 * it. */
typedef void (*accept_cb)(struct listener *li, struct stream *s, void *arg);
/* *ret_port: the port in use (for ":0"). E_BUSY when the address is in use, naming it and the
 * remedy. */
int listener_create(struct loop *l, const char *address, const struct tls_config *tls, accept_cb cb,
                    void *arg, struct listener **ret_listener, int *ret_port,
                    struct err *err) MUST_CHECK;
void listener_close(struct listener *li); /* open streams stay */

/* ---- files: small and rare (keys, an agent's records); never on a hot path ---- */
/* Reads a whole file of at most max bytes into b. E_NOTFOUND, E_TOOLARGE, E_IO. */
int file_read(struct loop *l, const char *path, size_t max, struct buf *b,
              struct err *err) MUST_CHECK;
/* At most max bytes from offset on: a part of a log. Nothing at or past its end: 0, and b as it
 * was. */
int file_read_at(struct loop *l, const char *path, uint64_t offset, size_t max, struct buf *b,
                 struct err *err) MUST_CHECK;
/* Writes path.tmp, fsyncs, renames, fsyncs the directory: after 0 the content is there for good. */
int file_write(struct loop *l, const char *path, const void *p, size_t n, unsigned mode,
               struct err *err) MUST_CHECK;
/* recursive; absent is 0 */
int file_remove(struct loop *l, const char *path, struct err *err) MUST_CHECK;
/* with parents */
int file_mkdir(struct loop *l, const char *path, unsigned mode, struct err *err) MUST_CHECK;
/* Calls each(name, arg) for the entries, sorted by name; 0 when the directory is absent. */
int file_list(struct loop *l, const char *dir, void (*each)(const char *name, void *arg), void *arg,
              struct err *err) MUST_CHECK;
/* An advisory lock held until the process ends; E_BUSY names the holder's pid. */
int file_lock(struct loop *l, const char *path, struct err *err) MUST_CHECK;

/* A large file in pieces, for commands that people run (a backup): not through the seam, and on the
 * thread that waits for it. Written as PATH.part; under its name only once all of it is on disk. */
struct file_out;
int file_out_open(const char *path, unsigned mode, struct file_out **ret,
                  struct err *err) MUST_CHECK;
int file_out_add(struct file_out *f, const void *p, size_t n, struct err *err) MUST_CHECK;
/* Both end it. commit: fsync, rename, fsync of its directory. */
int file_out_commit(struct file_out *f, struct err *err) MUST_CHECK;
void file_out_abort(struct file_out *f); /* NULL ok; PATH.part goes */

/* ---- processes ---- */
/* Before anything is opened: input, output and error that the caller had closed lead to /dev/null,
 * so that no file or socket of ours gets their numbers. */
void process_stdio_keep(void);
/* this process's own output, whatever that is; /dev/null when it is closed */
#define PROCESS_OWN "-"
struct process_spec {
    const char *const *argv; /* NULL-terminated; argv[0] searched in PATH */
    const char *const *env;  /* NULL-terminated, the whole environment */
    const char *cwd;
    const char *stdout_path; /* appended to; NULL = /dev/null; PROCESS_OWN = handed on as it is */
    const char *stderr_path; /* may equal stdout_path */
    bool session;            /* setsid: a session and process group of its own */
    /* Its exit status stays with the kernel, where whoever inherits our children finds it: exit_cb
     * never comes, the caller looks (SIGCHLD) and reaps. p lives until process_unref. Production
     * loop only. */
    bool kept;
};
/* p is gone when this returns. A spawn that fails for its cwd has err.field "cwd". */
typedef void (*process_exit_cb)(struct process *p, int exit_code, int term_signal, void *arg);
int process_spawn(struct loop *l, const struct process_spec *spec, process_exit_cb cb, void *arg,
                  struct process **ret_process, struct err *err) MUST_CHECK;
int64_t process_pid(const struct process *p);
/* to its group when it has a session of its own */
void process_signal(struct process *p, int signo);
void process_unref(struct process *p); /* forgets it: it lives on, the callback will not come */
/* A process that is not our child (found again after a restart). */
bool process_alive(struct loop *l, int64_t pid, uint64_t start_ticks);
uint64_t process_start_ticks(struct loop *l, int64_t pid); /* /proc/PID/stat field 22; 0 = none */

/* ---- the table behind it ---- */
struct loop_ops {
    uint64_t (*now_ms)(const struct loop *l);
    int64_t (*wall_ms)(const struct loop *l);
    void (*random)(struct loop *l, void *buf, size_t n);
    /* the first timer's due time; UINT64_MAX = none */
    void (*wake_at)(struct loop *l, uint64_t due_ms);
    void (*post)(struct loop *l, void (*fn)(void *), void *arg);
    void (*work)(struct loop *l, void (*work)(void *), void (*done)(void *), void *arg);
    int (*thread_start)(struct loop *parent, const char *name, void (*main)(struct loop *, void *),
                        void *arg, struct loop **ret, struct err *err);
    void (*thread_join)(struct loop *l);
    void (*stop)(struct loop *l);
    const struct loop_turns *(*turns)(const struct loop *l); /* may be NULL, as the next */
    uint64_t (*computed_ns)(const struct loop *l);
    int (*on_signal)(struct loop *l, int signo, void (*fn)(void *), void *arg, struct err *err);
    int (*connect)(struct loop *l, const char *address, const struct tls_config *tls,
                   const char *alpn, uint64_t deadline_ms, const struct stream_events *ev,
                   void *arg, struct stream **ret, struct err *err);
    /* via: never NULL; NULL in the simulator */
    int (*connect_via)(struct loop *l, const struct proxy *via, const char *address,
                       const struct tls_config *tls, const char *alpn, uint64_t deadline_ms,
                       const struct stream_events *ev, void *arg, struct stream **ret,
                       struct err *err);
    int (*listen)(struct loop *l, const char *address, const struct tls_config *tls, accept_cb cb,
                  void *arg, struct listener **ret, int *ret_port, struct err *err);
    void (*listener_close)(struct listener *li);
    /* whole: E_TOOLARGE when there is more than max */
    int (*read_file)(struct loop *l, const char *path, uint64_t offset, size_t max, bool whole,
                     struct buf *b, struct err *err);
    int (*write_file)(struct loop *l, const char *path, const void *p, size_t n, unsigned mode,
                      struct err *err);
    int (*remove_file)(struct loop *l, const char *path, struct err *err);
    int (*mkdir)(struct loop *l, const char *path, unsigned mode, struct err *err);
    int (*list_dir)(struct loop *l, const char *dir, void (*each)(const char *, void *), void *arg,
                    struct err *err);
    int (*lock_file)(struct loop *l, const char *path, struct err *err);
    int (*spawn)(struct loop *l, const struct process_spec *spec, process_exit_cb cb, void *arg,
                 struct process **ret, struct err *err);
    int64_t (*pid)(const struct process *p);
    void (*signal)(struct process *p, int signo);
    void (*unref)(struct process *p);
    bool (*alive)(struct loop *l, int64_t pid, uint64_t start_ticks);
    uint64_t (*start_ticks)(struct loop *l, int64_t pid);
};
/* A stream's first member; the loop's implementation puts its own after it. */
struct stream_ops {
    void (*write)(struct stream *s, const void *p, size_t n);
    size_t (*pending)(const struct stream *s);
    void (*pause)(struct stream *s, bool paused);
    void (*close)(struct stream *s);
    void (*abort)(struct stream *s, const char *why);
    void (*finish)(struct stream *s); /* NULL in the simulator, and so is the next */
    bool (*hung_up)(const struct stream *s);
};
struct stream {
    const struct stream_ops *ops;
    struct loop *loop;
    const struct stream_events *ev;
    void *arg;
    struct peer_identity peer;
};
struct listener { /* first members likewise */
    struct loop *loop;
};
struct process {
    struct loop *loop;
};
struct timer_heap {
    struct timer **v;
    size_t n, cap;
    uint64_t seq; /* equal due times fire in the order started */
};
struct loop {
    const struct loop_ops *ops;
    struct timer_heap timers;
    void *impl;
};
/* For implementations: fires what is due at ops->now_ms, then calls wake_at for the next. */
void loop_timers_run(struct loop *l);
void loop_timers_fini(struct loop *l);

/* The production loop. loop_uv_create on the thread that will run it. */
struct loop *loop_uv_create(struct err *err);
void loop_uv_run(struct loop *l); /* until loop_stop */
struct loop *loop_uv_destroy(struct loop *l);
void *loop_uv_handle(struct loop *l); /* the uv_loop_t*, for libraft and curl only */
void loop_uv_set_handshake_ms(struct loop *l, unsigned ms); /* deadline of accepted streams; 10 s */

#endif
