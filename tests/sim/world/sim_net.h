/* What the streams' files share: a conn, its two ends and its two directions. */
#ifndef HANSE_TESTS_SIM_WORLD_SIM_NET_H
#define HANSE_TESTS_SIM_WORLD_SIM_NET_H

#include "tests/sim/world/sim_internal.h"

#define KERNEL_BYTES 262144 /* taken by the kernel; what is more is pending */
#define GIVE_UP_US 30000000 /* without an answer */
#define RETRY_US 100000ul
#define KEEPALIVE_US 75000000
#define CLOSE_US 5000000

struct conn;

enum end_state { END_NONE, END_CONNECTING, END_ACCEPTING, END_OPEN, END_CLOSING, END_GONE };
enum packet_kind { DATA, FIN, RST };

struct packet {
    struct list link;
    enum packet_kind kind;
    uint64_t at_us;
    size_t n;
    char p[];
};
struct dir {
    struct conn *conn;
    unsigned side; /* whose packets these are */
    struct list packets;
    size_t bytes;
    uint64_t last_us, stalled_us;
    struct sim_event ev;
};
struct end {
    struct stream base;
    struct conn *conn;
    unsigned side;
    struct sim_loop *l; /* NULL: never was, or `closed` was called */
    struct list link;   /* in l->streams */
    enum end_state state;
    bool paused, was_pending;
    struct err why;
    struct buf early;
    struct sim_event closed, deadline, drained;
};
struct listener_ {
    struct listener base;
    struct list link; /* in the process's listeners */
    struct sim_loop *l;
    unsigned port; /* 0: a unix socket */
    char path[256];
    struct tls_config *tls;
    accept_cb cb;
    void *arg;
};
struct conn {
    struct sim_world *w;
    struct list link;
    struct sim_host *host[2];
    struct end end[2]; /* 0: who connected */
    struct dir dir[2]; /* dir[i]: from end i */
    struct sim_event step, keepalive;
    struct listener_ *li;
    struct tls_config *tls;
    char address[256], alpn[32];
    bool is_unix;
};

#define END_OF(s) container_of((s), struct end, base)

extern const struct stream_ops sim_stream_ops;
void sim_enqueue(struct end *e, enum packet_kind kind, const void *bytes, size_t n);
void sim_end_stream(struct end *e, int code, const char *text);
void sim_end_detach(struct end *e);
void sim_conn_reap(struct conn *c);
void sim_drained_fire(struct sim_event *ev);
size_t sim_pending(const struct stream *s);

#endif
