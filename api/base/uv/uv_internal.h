/* What the files of the production loop share. Nobody outside api/base/uv includes this. */
#ifndef HANSE_API_BASE_UV_INTERNAL_H
#define HANSE_API_BASE_UV_INTERNAL_H

#include "api/base/loop/file.h"
#include "api/base/loop/loop.h"

#include <openssl/ssl.h>
#include <uv.h>

#define UV_READ_MAX 65536    /* one read, shared by all streams of a loop */
#define HANDSHAKES_A_TURN 32 /* the rest queue: a storm of clients must not hold up the loop */
#define HANDSHAKES_NS_A_TURN 1000000 /* and neither may 32 slow ones */
#define SHAKE_SOURCES 64             /* peers' addresses that fall into one slot share its turns */
#define HANDSHAKE_DEADLINE_MS 10000
#define CLOSE_DEADLINE_MS 5000

struct post {
    void (*fn)(void *arg);
    void *arg;
};
struct posts {
    struct post *v;
    size_t n, cap;
};

/* The production loop. `base.impl` points to it. */
struct uv_impl {
    struct loop base;
    uv_loop_t uv;
    uv_async_t async;
    uv_mutex_t mu;      /* guards posts and closing */
    struct posts posts; /* appended to by any thread */
    bool closing;
    bool stopped;
    bool finished; /* all handles closed */
    struct posts running;

    int timer_fd; /* CLOCK_BOOTTIME: leases must run out across a suspend, too */
    uv_poll_t timer_poll;
    uint64_t armed_ms;
    bool due; /* what was due when it was set runs once the loop has read; it does not wait */

    uv_prepare_t turn; /* runs before each wait: a turn is over */
    uv_check_t woke;   /* and after it */
    struct loop_turns turns;
    struct {
        uint64_t ns, idle_ns, cpu_ns; /* when it was over; ns 0: none yet */
        uint64_t woke_ms;             /* when the wait after that was */
    } turned;

    uv_idle_t idle;   /* runs only while todo or handshakes hold something, or a timer is due */
    struct list todo; /* struct uv_stream_impl.todo_link: calls that must not happen at once */
    struct list shakes[SHAKE_SOURCES]; /* struct uv_stream_impl.shake_link: handshakes that wait */
    unsigned shake_source, n_shakes;   /* whose turn is next; of all */
    struct list streams, listeners, processes, signals;
    unsigned n_streams, streams_max;
    bool accept_waits;
    unsigned handshake_ms;

    char raw[UV_READ_MAX];   /* bytes as read */
    char plain[UV_READ_MAX]; /* bytes as decrypted */
    BIO_METHOD *bio_method;
    char *out; /* bytes as encrypted, before they go to the kernel */
    size_t out_n, out_cap;

    uv_thread_t thread;
    bool has_thread;
    void (*thread_main)(struct loop *l, void *arg);
    void *thread_arg;
    char thread_name[16];
};

static inline struct uv_impl *impl_of(const struct loop *l)
{
    return l->impl;
}

enum stream_state { ST_RESOLVE, ST_CONNECT, ST_PROXY, ST_HANDSHAKE, ST_OPEN, ST_CLOSING, ST_GONE };

struct resolve; /* outlives its stream when that is aborted meanwhile */
struct way;     /* through a proxy (proxy_uv.c) */

struct uv_stream_impl {
    struct stream base;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } h;
    struct uv_impl *im;
    struct list link, todo_link, shake_link;
    enum stream_state state;
    bool has_handle, server, is_unix, paused, reading;
    bool shut, peer_ended, opened;
    bool finished; /* the user writes no more, and goes on reading */
    struct err *why; /* set once, at the first reason to end */
    struct timer deadline;

    /* connecting */
    struct resolve *resolve;
    struct way *way; /* NULL: straight */
    struct addrinfo *addresses, *next_address;
    uv_connect_t connect_req;

    /* accepting */
    struct listener *listener;
    accept_cb accept;
    void *accept_arg;

    /* sending: one write is with libuv at most, what comes meanwhile waits */
    uv_write_t write_req;
    uv_shutdown_t shutdown_req;
    char *flight;
    size_t flight_n;
    struct buf wait;
    struct buf early; /* plain bytes written before the stream was open */

    /* TLS */
    const struct tls_config *tls;
    SSL *ssl;
    const char *in; /* encrypted bytes that SSL may take */
    size_t in_n;
    char *held; /* encrypted bytes kept while paused or waiting for the handshake's turn */
    size_t held_n;
};

#define STREAM_OF(s) container_of((s), struct uv_stream_impl, base)

/* stream_uv.c */
extern const struct stream_ops uv_stream_ops;
struct uv_stream_impl *ustream_create(struct uv_impl *im, const struct stream_events *ev,
                                      void *arg);
void ustream_fail(struct uv_stream_impl *s, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* closes now; `closed` follows */
void ustream_end(struct uv_stream_impl *s, const struct err *why);
void ustream_retry(struct uv_stream_impl *s); /* closes the handle, then ustream_connect_next */
void ustream_opened(struct uv_stream_impl *s);
void ustream_send(struct uv_stream_impl *s, const char *p, size_t n); /* raw bytes to the kernel */
void ustream_todo(struct uv_stream_impl *s);
void ustream_read(struct uv_stream_impl *s, bool on);
void ustream_peer_ended(struct uv_stream_impl *s, bool orderly);
void uv_todo_run(struct uv_impl *im);

/* stream_tls.c */
int ustream_tls_begin(struct uv_stream_impl *s, const char *host, const char *alpn,
                      struct err *err);
/* bytes from the kernel */
void ustream_tls_input(struct uv_stream_impl *s, const char *p, size_t n);
void ustream_shake_later(struct uv_stream_impl *s); /* queues it for ustream_tls_shakes */
void ustream_tls_resume(struct uv_stream_impl *s);
void ustream_shake_forget(struct uv_stream_impl *s);
void ustream_tls_shakes(struct uv_impl *im); /* a turn of those that wait */
void ustream_tls_write(struct uv_stream_impl *s, const char *p, size_t n);
void ustream_tls_bye(struct uv_stream_impl *s);
void ustream_tls_fini(struct uv_stream_impl *s);

/* connect_uv.c, listen_uv.c */
struct address {
    bool is_unix;
    char host[256]; /* or the path of the socket */
    char port[8];
};
int address_parse(const char *text, struct address *ret, struct err *err);
int uv_connect_op(struct loop *l, const char *address, const struct tls_config *tls,
                  const char *alpn, uint64_t deadline_ms, const struct stream_events *ev, void *arg,
                  struct stream **ret, struct err *err);
/* Likewise; dialed is who is connected to, way how it goes on from there: the stream owns it. */
int ustream_dial(struct loop *l, const char *dialed, struct way *way, const char *address,
                 const struct tls_config *tls, const char *alpn, uint64_t deadline_ms,
                 const struct stream_events *ev, void *arg, struct stream **ret, struct err *err);
/* The connection leads to the peer: TLS begins. */
void ustream_reached(struct uv_stream_impl *s);
void ustream_connect_next(struct uv_stream_impl *s);
void ustream_resolve_forget(struct uv_stream_impl *s);
int uv_listen_op(struct loop *l, const char *address, const struct tls_config *tls, accept_cb cb,
                 void *arg, struct listener **ret, int *ret_port, struct err *err);
void uv_listener_close_op(struct listener *li);
void uv_listeners_retry(struct uv_impl *im); /* a stream went: who waited to accept goes on */
void uv_listeners_close(struct uv_impl *im);

/* proxy_uv.c */
int uv_connect_via_op(struct loop *l, const struct proxy *via, const char *address,
                      const struct tls_config *tls, const char *alpn, uint64_t deadline_ms,
                      const struct stream_events *ev, void *arg, struct stream **ret,
                      struct err *err);
void way_ask(struct uv_stream_impl *s); /* the proxy is connected */
void way_input(struct uv_stream_impl *s, const char *p, size_t n);
void way_forget(struct uv_stream_impl *s);
const char *way_host(const struct way *w); /* of the peer */
/* Whom an attempt that failed was about, for messages. */
const char *ustream_dialed(const struct uv_stream_impl *s);

/* process_uv.c */
int uv_spawn_op(struct loop *l, const struct process_spec *spec, process_exit_cb cb, void *arg,
                struct process **ret, struct err *err);
int64_t uv_pid_op(const struct process *p);
void uv_signal_op(struct process *p, int signo);
void uv_unref_op(struct process *p);
bool uv_alive_op(struct loop *l, int64_t pid, uint64_t start_ticks);
uint64_t uv_start_ticks_op(struct loop *l, int64_t pid);
void uv_processes_close(struct uv_impl *im);

#endif
