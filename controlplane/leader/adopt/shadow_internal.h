/* What the files of adopt/ share. Nobody outside of controlplane/leader/adopt includes this. */
#ifndef HANSE_CONTROLPLANE_LEADER_ADOPT_SHADOW_INTERNAL_H
#define HANSE_CONTROLPLANE_LEADER_ADOPT_SHADOW_INTERNAL_H

#include "controlplane/leader/adopt/shadow.h"

#define SHADOW_JOBS_MAX 4096             /* that ask for devices */
#define SHADOW_PLAIN_MAX 1024            /* that ask for none */
#define SHADOW_GROUPS_MAX 1024           /* of pods that no such Job has made */
#define SHADOW_HOLDS_MAX ((size_t)65536) /* nodes on which Jobs have pods, each counted by itself */
#define SHADOW_NOTES_MAX 8               /* about one Job */
#define SHADOW_NODES_SHOWN 8             /* of one Job */
#define SHADOW_TABLE 16384 /* slots; more than twice all of the above that are found by a key */

struct shadow_hold { /* what pods of one Job have of one node, of one kind of devices at a time */
    struct shadow_hold *next;
    const struct shadow_job *job;
    const char *node;
    const char *class_, *model, *mig; /* class_ "": that is not known; all "": no devices */
    int64_t shares, count, milli;
    int64_t cpu_milli, memory_bytes;
};
struct shadow_note { /* what of a manifest is not kept as it is */
    const char *field, *text;
};
struct shadow_node { /* with what is held of it */
    const char *name;
    int64_t milli;
};
struct shadow_nodes { /* the first of them by name; more: of the others, so many */
    struct shadow_node v[SHADOW_NODES_SHOWN];
    size_t n, more;
};
struct shadow_job {
    const char *ns, *name, *uid, *hanse_ns;
    const char *why;               /* it cannot be handed over; NULL: it can */
    bool owned;                    /* since something else makes it */
    bool suspended, runs, devices; /* devices: it asks for some */
    int64_t made_ms, since_ms;     /* since: its first pod was begun; 0: none was */
    int64_t workers, asks_milli;   /* asks: GPUs, of all of them */
    uint64_t pods;                 /* that are on a node */
    struct object *workload;       /* with why NULL; holds a reference */
    struct shadow_note notes[SHADOW_NOTES_MAX];
    unsigned n_notes, more_notes;
    struct shadow_hold *holds;
    int64_t milli; /* GPUs that it holds */
    double cost;   /* of these, an hour */
    bool priced, mixed;
    char currency[4];

    /* what would have become of it */
    bool decided;
    const char *target, *class_; /* NULL: it would wait */
    int64_t would_milli;
    struct shadow_nodes nodes;
    const char *outcome, *reason, *message, *queue, *policy;
    double would_cost;
    bool would_priced;
    char would_currency[4];
};
struct shadow_slot { /* of a table by open addressing, which is never walked */
    const char *key;
    void *what;
};
struct shadow_group { /* pods that cannot be handed over */
    const char *ns, *kind, *name, *why;
    const char *code; /* "Bare", "Controller", "JobGone" */
    uint64_t pods;
    int64_t milli, since_ms;
};
struct shadow {
    struct arena *a;       /* all that is kept */
    struct arena *scratch; /* of one Job, or of one decision */
    const char *target, *ns;
    struct shadow_job **jobs; /* those with devices and those without; sorted once all are there */
    size_t n_jobs, n_plain;
    struct shadow_group *groups;
    size_t n_groups;
    struct shadow_slot *by_uid, *by_owner;
    struct shadow_hold **by_hold; /* likewise, of twice as many slots as there are holds */
    size_t n_holds;
    uint64_t jobs_omitted, groups_omitted, holds_omitted, unread_pods;
    uint64_t plain_pods; /* that hold no devices, and are of no Job that is looked at */
    uint64_t omitted_pods;
    int64_t omitted_milli;

    struct pool *pool;          /* the copy */
    struct shadow_hold **freed; /* of the Jobs that are placed anew, by node */
    size_t n_freed, at_freed, at_job;
    bool observe_only;
};

/* pods.c: a table from texts to what they stand for; keys outlive it */
void *shadow_find(const struct shadow_slot *t, const char *key);
void shadow_put(struct shadow_slot *t, const char *key, void *what);
/* tell.c: sorts v, and sums up what stands in it of the same node; names are v's. */
void shadow_nodes_sum(struct shadow_node *v, size_t n, struct shadow_nodes *ret);
/* The row of that node which counts such devices; false: there is none. */
bool shadow_row(const struct shadow_docs *docs, const struct shadow_hold *h,
                struct counted_gpus *ret);

#endif
