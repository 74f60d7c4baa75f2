/* Finds out whether the state is an older copy of the data that somebody put back. */
#ifndef HANSE_CONTROLPLANE_LEADER_DOUBT_BACK_H
#define HANSE_CONTROLPLANE_LEADER_DOUBT_BACK_H

#include "controlplane/leader/context/context.h"

/* curve.c: how far the resourceVersion had come at which time of the state, as this process has
 * seen it. */
#define RV_CURVE_MAX 4096
struct rv_curve {
    struct rv_point {
        int64_t time_ms;
        uint64_t rv;
    } * v; /* owned; both values rise; NULL while n is 0 */
    size_t n;
};
void rv_curve_add(struct rv_curve *c, int64_t time_ms, uint64_t rv);
/* Returns a resourceVersion not below the state's at that time; UINT64_MAX when the time is later
 * than every point. */
uint64_t rv_curve_most(const struct rv_curve *c, int64_t time_ms);
void rv_curve_fini(struct rv_curve *c);

struct went_back {
    bool left;                       /* another log of this line went on: the doubt never ends */
    bool asking, beginning, marking; /* answers that are awaited */
    char cluster[CLUSTER_UID_MAX];   /* the cluster uid that a target heard, with rv */
    uint64_t rv;
    int64_t time_ms; /* the time of that state when it reached rv */
    struct timer again;
    struct rv_curve curve;
};

/* True when a target that heard rv of that cluster's state proves root r an older one. most: the
 * resourceVersion that r had at most reached when the target heard it. */
bool root_is_behind(const struct root *r, const char *cluster, uint64_t rv, uint64_t most);
bool root_left_behind(const struct root *r, const char *cluster);
void brain_heard(struct brain *b, const char *target, const char *cluster, uint64_t rv,
                 int64_t time_ms);
/* Writes into the log that the state went back; a majority has confirmed this leadership. From then
 * on every workload that has not ended is unsettled. */
void brain_went_back(struct brain *b, const char *cluster, uint64_t rv);
bool back_marking(const struct brain *b); /* true until RECOVER LOST has marked every workload */
void back_seen(struct brain *b);          /* adds a point to the curve; called on any member */
void back_look(struct brain *b);          /* marks workloads if the root says that it went back */
void back_init(struct brain *b);
void back_drop(struct brain *b);
void back_fini(struct brain *b);

#endif
