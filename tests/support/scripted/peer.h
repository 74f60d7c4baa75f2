/* The world outside: see scripted.h. What is said over a link, and the peer itself. */
#ifndef HANSE_TESTS_SUPPORT_SCRIPTED_PEER_H
#define HANSE_TESTS_SUPPORT_SCRIPTED_PEER_H

#include "api/base/list.h"
#include "api/base/loop/loop.h"
#include "connectors/wire/wire.h"

#include <stdbool.h>

enum scripted_kind { LIKE_KUBERNETES, LIKE_SLURM, LIKE_CLOUD, LIKE_NR };

/* ---- what is asked ---- */
#define SCRIPTED_LOAD 1600
enum scripted_verb {
    ASK_NODES = 1,
    ASK_LOOK,    /* the things of this uid, as far as the API shows them; Kubernetes: the record */
    ASK_ACCOUNT, /* Slurm's accounting, of this uid or (uid "") of all */
    ASK_LIST,    /* all things, or what changed since that revision */
    ASK_RECORD,  /* Kubernetes: make or change the record, if it is still as of that revision */
    ASK_MAKE,
    ASK_SIGNAL,
    ASK_DELETE,
    ASK_RELEASE, /* what was held for us may go */
    ASK_MARK,    /* it is that cluster's */
    ASK_RENEW    /* of all whose runners can be reached, from `since` on; no answer */
};
enum record_state { RECORD_NONE, RECORD_OPEN, RECORD_CLAIMED, RECORD_REFUSED };
struct scripted_record { /* one a uid, as of its newest key */
    struct run_key key;
    enum record_state state;
    uint64_t revision;
    bool lives, gone; /* CLAIMED: its kubelet says so; neither: it says nothing */
};
struct scripted_ask {
    uint64_t id;
    enum scripted_verb verb;
    struct run_key key;
    char cluster[64];
    uint64_t thing, since, revision, grace_ms, lease_ms;
    int64_t ranks, gpus;
    int64_t start_from_ms, start_by_ms; /* MAKE: by its node's clock; 0: at any time */
    int signo;
    enum record_state record;
    /* MAKE: it is no order, but keeps one from being taken; it is kept until RELEASE; it is made
     * whether another one of that name is there or not. */
    bool tombstone, holds, blind;
    unsigned char load[SCRIPTED_LOAD];
};
/* ---- what is told: any number of things and nodes, then the end ---- */
enum thing_phase { THING_WAITS, THING_STARTS, THING_RUNS, THING_DOUBT, THING_OVER };
struct scripted_view {
    uint64_t id;
    struct run_key key;
    char cluster[64]; /* "": it is not ours */
    enum thing_phase phase;
    bool tombstone, started, proved, going, waited, removed;
    bool disowned; /* Kubernetes: its record is not open for it, nor claimed by it */
    unsigned node;
    uint32_t devices; /* bit node * 4 + device */
    int64_t position, estimate_ms, made_ms, started_ms, ended_ms;
    int64_t ranks, gpus;
    int exit_code, signo;
    char why[48];
    struct observation report; /* of its runner, where one reports */
};
enum scripted_what { TELL_THING = 1, TELL_NODE, TELL_END };
struct scripted_tell {
    uint64_t id;
    enum scripted_what what;
    int status; /* as of HTTP */
    int error;  /* E_…, of a refusal; of Slurm also with status 200 */
    enum refusal_class class_;
    enum refusal_scope scope;
    uint64_t retry_ms, revision;
    int64_t clock_ms;
    bool garbled; /* no answer that anybody could read */
    bool whole;   /* END: nothing is missing */
    struct scripted_view thing;
    struct scripted_record record;
    unsigned node, gpus; /* NODE */
    bool linked;
    uint64_t notice_ms; /* NODE: it goes away in so long; 0: no notice */
};

/* ---- the peer ---- */
#define PEER_NODES 4
#define PEER_GPUS 4
struct scripted_peer;
struct thing {
    struct list link;
    struct scripted_peer *peer;
    struct scripted_view v; /* as the API has it */
    void *program;          /* not NULL: it lives, whatever the API says */
    bool hidden, gone, holds, requeues, forgotten;
    unsigned starts;
    int64_t start_from_ms, start_by_ms;
    uint64_t visible_ms, next_ms, grace_ms, kill_ms, back_ms, ended_ms, over_ms, changed;
    unsigned char load[SCRIPTED_LOAD];
};
/* Programs, as they really run. */
struct scripted_programs {
    void *(*begin)(struct scripted_peer *p, const struct thing *t);
    void (*signal)(void *program, int signo); /* to save and end */
    void (*kill)(void *program);              /* calls peer_program_over at once */
    void (*report)(const void *program, struct observation *o);
    void (*renew)(void *program, uint64_t from_ms, uint64_t lease_ms); /* or NULL */
};
extern const struct scripted_programs scripted_plain_programs; /* by contract_program in load[0] */

struct peer_node {
    bool linked;
    int64_t clock_ms; /* how far its clock is ahead */
    uint32_t used;
    uint64_t unlinked_ms, notice_until_ms;
};
/* What answers may become of requests, in percent. */
struct peer_chaos {
    unsigned lost, mute, late, twice, half, wrong, slow, busy;
};
struct peer_record {
    struct list link;
    struct scripted_record r;
    uint64_t thing; /* that claimed it */
};
struct scripted_peer {
    enum scripted_kind kind;
    char name[32];
    struct loop *loop;
    uint64_t (*below)(void *arg, uint64_t n);
    void (*say)(void *arg, uint64_t session, const struct scripted_tell *m);
    void (*log)(void *arg, const char *text);                  /* or NULL */
    void (*begins)(void *arg, const struct thing *t);          /* or NULL */
    void (*stops)(void *arg, const struct run_key *k);         /* or NULL */
    void *arg;
    const struct scripted_programs *programs;
    struct peer_chaos chaos;
    bool silent;               /* nothing is heard or said, and what was under way is lost */
    uint64_t accounting_ms;    /* until then there is no accounting */
    uint64_t queue_ms;         /* so long everything waits */
    uint64_t order_ms;         /* so late orders come, and nobody hears of them */
    int refuse;                /* E_…: orders are refused like that, so many times */
    unsigned refusals;
    bool no_check;             /* planted: runners do not look whether they are the one */
    /* It cannot refuse a key, and its runners ask nobody: they start in time, or never. An order
     * comes once, however late. */
    bool in_time;
    bool starts_late;          /* planted: they do not look by when they start */
    struct list things, records, pending;
    struct peer_node nodes[PEER_NODES];
    struct timer tick;
    uint64_t serial, revision, forget_ms, lag_ms;
    unsigned asked, lost, submits;
    char broken[256];
};
void peer_init(struct scripted_peer *p, enum scripted_kind kind, const char *name, struct loop *l);
void peer_fini(struct scripted_peer *p);
void peer_hear(struct scripted_peer *p, uint64_t session, const struct scripted_ask *q);
void peer_program_over(struct thing *t, int exit_code, int signo);
const char *peer_broken(const struct scripted_peer *p); /* "": no rule was */

/* What happens there by itself, or by the hands of others. */
#define PEER_TROUBLES(T)                                                                           \
    T(NODE_LOST, "node-lost")       /* its node is out of reach, and the program runs on */        \
    T(POWER, "power")               /* its node has lost power, and is out of reach */             \
    T(FORCED, "forced")             /* somebody deletes the object by force */                     \
    T(FORCED_LOST, "forced-lost")   /* the same on a node that is out of reach */                  \
    T(EVICTED, "evicted")           /* the target ends it */                                       \
    T(BACKWARDS, "backwards")       /* the target falls back to what it knew before */             \
    T(REQUEUED, "requeued")         /* it is to start again, if the target may */                  \
    T(FORGOTTEN, "forgotten")       /* its end is old, and the API does not have it any more */    \
    T(NO_ACCOUNTS, "no-accounts")   /* the accounting is down, for a while */
enum peer_trouble {
#define T(name, text) TROUBLE_##name,
    PEER_TROUBLES(T)
#undef T
        TROUBLE_NR
};
const char *peer_trouble_text(enum peer_trouble w);
/* False: that cannot happen there, or not to it now. */
bool peer_trouble(struct scripted_peer *p, const struct run_key *k, enum peer_trouble what);
void peer_node_link(struct scripted_peer *p, unsigned node, bool linked);
void peer_node_power(struct scripted_peer *p, unsigned node); /* all that runs there ends */
void peer_notice(struct scripted_peer *p, unsigned node, uint64_t in_ms); /* then it loses power */
void peer_heal(struct scripted_peer *p);
/* From outside. The thing of a key that started, or any; how often it did, and whether it lives;
 * things of somebody else with its name, and how many of them are as they were; how many of ours
 * live, or are kept (cluster NULL: of all clusters). */
struct thing *peer_thing(struct scripted_peer *p, const struct run_key *k);
unsigned peer_starts(const struct scripted_peer *p, const struct run_key *k);
bool peer_alive(const struct scripted_peer *p, const struct run_key *k);
void peer_stranger(struct scripted_peer *p, const struct run_key *k);
unsigned peer_strangers(const struct scripted_peer *p);
unsigned peer_left(const struct scripted_peer *p, const char *cluster);

/* between the two files of the peer */
struct thing *peer_make(struct scripted_peer *p, const struct scripted_ask *q, bool ours);
void peer_say(struct scripted_peer *p, const struct thing *t, const char *what); /* to its log */
void peer_changed(struct thing *t);
void peer_view(const struct thing *t, struct scripted_view *v);
void peer_break(struct scripted_peer *p, const char *fmt, ...) PRINTF_LIKE(2, 3);
struct peer_record *peer_record(struct scripted_peer *p, const char *uid, bool make);

#endif
