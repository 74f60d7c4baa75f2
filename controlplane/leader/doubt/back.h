/* A state that went back: is it an older copy, that somebody put in place? */
#ifndef HANSE_CONTROLPLANE_LEADER_DOUBT_BACK_H
#define HANSE_CONTROLPLANE_LEADER_DOUBT_BACK_H

#include "controlplane/leader/context/context.h"

/* curve.c: how far the state had come at which of its times, as this process has seen it. */
#define RV_CURVE_MAX 4096
struct rv_curve {
    struct rv_point {
        int64_t time_ms;
        uint64_t rv;
    } * v; /* rising; NULL until the first */
    size_t n;
};
void rv_curve_add(struct rv_curve *c, int64_t time_ms, uint64_t rv);
/* No less than it had come to at that time; UINT64_MAX: that time is newer than all that was
 * seen. */
uint64_t rv_curve_most(const struct rv_curve *c, int64_t time_ms);
void rv_curve_fini(struct rv_curve *c);

struct went_back {
    bool left;                       /* another log went on: it stays in doubt */
    bool asking, beginning, marking; /* answers on their way */
    char cluster[CLUSTER_UID_MAX];   /* how far it had come, as somebody heard */
    uint64_t rv;
    int64_t time_ms; /* of that state, when it had come there */
    struct timer again;
    struct rv_curve curve;
};

/* A target has heard so much of the state of that cluster: is ours an older one? */
bool root_is_behind(const struct root *r, const char *cluster, uint64_t rv, uint64_t most);
bool root_left_behind(const struct root *r, const char *cluster);
void brain_heard(struct brain *b, const char *target, const char *cluster, uint64_t rv,
                 int64_t time_ms);
/* It is, and a majority confirmed that we lead: into the log; what has not ended is open then. */
void brain_went_back(struct brain *b, const char *cluster, uint64_t rv);
bool back_marking(const struct brain *b); /* not all workloads are marked yet */
void back_seen(struct brain *b);          /* of any member: how far the state has come */
void back_look(struct brain *b);          /* the log says so: are all workloads marked? */
void back_init(struct brain *b);
void back_drop(struct brain *b);
void back_fini(struct brain *b);

#endif
