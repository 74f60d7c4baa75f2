/* Targets that behave as badly as Kubernetes, Slurm and a cloud can, without any of the three.
 *
 * A peer (peer.h) is the world outside: things that an API tells of (pods, jobs, instances), the
 * programs that really run, nodes that come out of reach, and answers that are lost, late, doubled,
 * cut or wrong. The driver is one struct connector_ops that reaches it as a driver of that kind
 * has to. Both draw from one seed, and know no clock but their loop's.
 *
 * What the peer knows and its API does not say is the truth that a driver is measured against:
 * peer_broken() names the first rule that was broken. */
#ifndef HANSE_TESTS_SUPPORT_SCRIPTED_H
#define HANSE_TESTS_SUPPORT_SCRIPTED_H

#include "connectors/connector.h"
#include "tests/support/scripted/peer.h"

/* One rule that the driver breaks, to prove that somebody notices. */
#define SCRIPTED_PLANTS(P)                                                                         \
    P(NONE, "none")                                                                                \
    P(NO_PROMISE, "no-promise")       /* "absent" without a promise to refuse the key */           \
    P(PROMISE_OF_MINE, "promise-of-mine") /* the promise is the connector's, not the target's */   \
    P(LOST_IS_REJECTED, "lost-is-rejected") /* what was not answered had no effect */              \
    P(LOST_IS_DONE, "lost-is-done")   /* what was not answered was done */                         \
    P(GONE_IS_ENDED, "gone-is-ended") /* what is not listed any more has ended */                  \
    P(DOUBT_IS_ENDED, "doubt-is-ended") /* what the target doubts has ended */                     \
    P(HALF_IS_WHOLE, "half-is-whole") /* a listing that was cut is a whole one */                  \
    P(WRONG_IS_RIGHT, "wrong-is-right") /* an answer about another key is taken */                 \
    P(MISSES_GONE, "misses-gone")     /* nobody asks what became of what is gone */               \
    P(BLIND_SUBMIT, "blind-submit")   /* it neither looks nor uses names and tokens */             \
    P(BACK_IS_PENDING, "back-is-pending") /* a job that is in the queue again never started */     \
    P(ANY_EPOCH, "any-epoch")         /* orders of older epochs are taken */                       \
    P(STRANGERS_TOO, "strangers-too") /* what has no mark of ours is swept, too */                 \
    P(SWEEPS_ALL, "sweeps-all")       /* what the judge keeps is ended */                          \
    P(NO_HOLD, "no-hold")             /* ends are gone before they are read; jobs start again */   \
    P(FINAL_ENDS, "final-ends")       /* finalize() ends what lives */                             \
    P(STOP_UNPROVED, "stop-unproved") /* stop() is done once it was asked for */                   \
    P(NEVER_STOPS, "never-stops")     /* stop() is said to have been heard, and is not sent */     \
    P(INSIDE, "inside")               /* done() from inside of the call */                         \
    P(NO_DEADLINE, "no-deadline")     /* calls wait for their answers */                           \
    P(LOSES_CALLS, "loses-calls")     /* destroyed, it forgets whom it owes an end */              \
    P(ENDS_WITH_ME, "ends-with-me")   /* destroyed, it ends what it started */                     \
    P(NO_SEAT, "no-seat")             /* who was pending runs, and nobody says where */            \
    P(NO_BLAME, "no-blame")           /* a refusal without what it blames */                       \
    P(NO_WORKERS, "no-workers")       /* an end without its workers */                             \
    P(NO_CHECK, "no-check")           /* its runners do not ask whether they are the one */       \
    P(STARTS_LATE, "starts-late")     /* its runners start after their time is over */

enum scripted_plant {
#define P(name, text) SCRIPTED_##name,
    SCRIPTED_PLANTS(P)
#undef P
        SCRIPTED_NR
};
const char *scripted_plant_text(enum scripted_plant p);
void scripted_plant(enum scripted_plant p);

/* How the driver's requests come to a peer, and its answers back. A link loses what it cannot
 * carry, and tells nobody. */
typedef void (*scripted_heard)(void *arg, const struct scripted_tell *m);
struct scripted_link_ops {
    void *(*open)(struct loop *l, const char *target, scripted_heard heard, void *arg);
    void (*send)(void *link, const struct scripted_ask *q);
    void (*close)(void *link); /* nothing is heard any more */
};
/* For drivers that are created from now on. fill: what of an order its program is to know. */
void scripted_use(const struct scripted_link_ops *link,
                  void (*fill)(const struct connector *c, const struct run_order *o,
                               unsigned char load[SCRIPTED_LOAD]));
extern const struct connector_ops scripted_ops;
/* What the driver is told to be like; by its Target's name otherwise. */
enum scripted_kind scripted_kind_of(const char *target);

/* A link inside of one loop, to a peer of that loop. */
extern const struct scripted_link_ops scripted_local_link;
void scripted_local(struct scripted_peer *p); /* for links that are opened from now on */

#endif
