/* Logs that are read from the store to which they went (spec.logs of their Target), where the
 * target itself has none to show: its machine is gone, its agent out of reach, the run is not known
 * there any more. */
#ifndef HANSE_CONTROLPLANE_LEADER_LOGS_LOGS_H
#define HANSE_CONTROLPLANE_LEADER_LOGS_LOGS_H

#include "connectors/kept/kept.h"
#include "controlplane/leader/context/context.h"

/* "NAME=value" of the keys in the Secret that it names, in the arena; *ret NULL: it names none, and
 * each side has its own. They hold secrets. */
int logs_env(struct brain *b, const struct target_logs *logs, struct arena *a,
             const char *const **ret, struct err *err) MUST_CHECK;

void logs_env_wipe(const char *const *env); /* accepts NULL */

/* Where what this try prints goes, by its intent, in the arena. base "": nowhere. */
struct logs_place {
    const char *base;       /* with the name of the try */
    const char *roots;      /* of a folder: itself; what was linked below it is not followed */
    const char *const *env; /* as of logs_env */
    int64_t max_bytes;
};
int logs_place(struct brain *b, const struct object *workload, const struct run_key *k,
               struct arena *a, struct logs_place *ret, struct err *err) MUST_CHECK;

/* The logs of the run that this Workload is, or was last, go to a store. */
bool kept_view_possible(const struct object *workload, int64_t epoch);
/* Reads that. The sink hears of it as of connector_ops.logs, from the loop's next turn on. */
struct kept_view;
struct kept_join { /* with what its target itself can tell (site/exec.c) */
    int64_t try_;  /* 0: the newest of which anything is kept */
    uint64_t before; /* as of struct kept_request, and so are the next ones */
    int64_t tail_lines;
    bool resumes, mid;
    uint64_t from;
    uint64_t stop;
    void (*told)(int64_t try_, uint64_t at, bool mid, void *arg); /* all up to that byte of it */
    /* All that is kept now was told, and that is not all; or there is a gap, and it was to stop at
     * it. True: whoever asked goes on by himself, and the view is gone. */
    bool (*rest)(int64_t try_, void *arg);
    void *arg;
};
int kept_view_open(struct brain *b, const struct object *workload, const struct api_exec *e,
                   const struct kept_join *join, const struct log_sink *sink,
                   struct kept_view **ret, struct err *err) MUST_CHECK;
void kept_view_close(struct kept_view *v); /* the sink hears no more */
void kept_views_drop(struct brain *b);     /* the leadership is over */

#endif
