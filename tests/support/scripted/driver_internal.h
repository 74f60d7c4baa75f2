/* What the files of the scripted driver share. */
#ifndef HANSE_TESTS_SUPPORT_SCRIPTED_DRIVER_INTERNAL_H
#define HANSE_TESTS_SUPPORT_SCRIPTED_DRIVER_INTERNAL_H

#include "tests/support/scripted/scripted.h"

#include "api/base/limits.h"

#define LAG_MS 3500 /* a listing of a cloud may be that old */

struct told { /* of one key, so that nothing is told twice; it proves nothing */
    struct list link;
    struct run_key key;
    enum run_state state;
    int64_t position, step;
    uint64_t id; /* of what stands for it */
    bool seated;
    bool missing; /* what stood for it is gone, and its end is not known yet */
};
struct scripted_driver {
    struct connector base; /* first */
    struct loop *loop;
    enum scripted_kind kind;
    void *link;
    bool gone, reached, polling, checking;
    bool in_time; /* its target cannot refuse a key: by when it starts is all that there is */
    uint64_t next_id, heard_ms, revision, serial;
    struct list works, told, mine; /* mine: promises, for a planted bug */
    struct timer poll;
    char session[80];
};
enum work_kind {
    WORK_PROBE,
    WORK_INVENTORY,
    WORK_SUBMIT,
    WORK_FIND,
    WORK_STOP,
    WORK_QUIESCE,
    WORK_FINALIZE,
    WORK_SWEEP,
    WORK_CHECK, /* nobody asked: what became of one that is gone */
    WORK_POLL
};
/* What the driver does about one call, from the beginning again whenever an answer does not come:
 * every request of it may be sent any number of times. */
struct work {
    struct list link;
    struct scripted_driver *d;
    struct call *call; /* NULL: nobody waits for it */
    enum work_kind kind;
    struct run_key key;
    struct scripted_ask order; /* of SUBMIT */
    uint64_t grace_ms;
    int signo;
    run_judge judge;
    void *judge_arg;

    uint64_t waits_for; /* id of the request; 0: none */
    void (*next)(struct work *w);
    struct timer deadline, step;
    bool making;      /* its order is under way */
    bool uncertain;   /* something with an effect was asked for, and not answered */
    uint64_t used_ms; /* of a cloud: when its token was seen to be used; 0: it was not */
    struct scripted_view *v;
    size_t n, cap, first; /* first: of the present request */
    struct scripted_tell end;
    struct scripted_record record;
    bool accounted;
    bool all; /* of POLL: it lists all that there is */
    uint64_t revision; /* of POLL: that its listing leads to */
    struct scripted_tell nodes[PEER_NODES];
    unsigned n_nodes;
};

/* driver.c */
extern enum scripted_plant planted;
struct work *work_begin(struct scripted_driver *d, enum work_kind kind, const struct run_key *k,
                        struct call *call);
void work_send(struct work *w, struct scripted_ask *q, void (*next)(struct work *w));
void work_again(struct work *w, uint64_t ms); /* from the beginning */
void work_end(struct work *w, enum outcome out, const struct observation *o, int code);
void work_refused(struct work *w); /* as its last answer says */
void scripted_run_tell(struct scripted_driver *d, const struct scripted_view *v,
                 const struct observation *o, bool observed);
void scripted_end_tell(struct scripted_driver *d, const struct observation *o);
void scripted_nodes_tell(struct scripted_driver *d, const struct work *w);
struct told *scripted_told(struct scripted_driver *d, const struct run_key *k);
/* driver_judge.c */
enum verdict { V_NOTHING, V_SEEN, V_DOUBT, V_STRANGER, V_OLD };
bool key_same(const struct run_key *a, const struct run_key *b);
const struct scripted_view *view_pick(const struct work *w, const struct run_key *k);
/* What a view alone says of a run; RUN_UNKNOWN: nothing. */
void view_read(const struct scripted_driver *d, const struct scripted_view *v,
               struct observation *o);
/* Of all that was looked at. */
enum verdict work_judge(struct work *w, struct observation *o, const struct scripted_view **ret_v);
/* driver_steps.c: the first step of each kind of work */
void work_first(struct work *w);

#endif
