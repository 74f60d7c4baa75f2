/* A Kubernetes cluster in memory, in virtual time: an API server behind the HTTP client's seam (a
 * struct web_transport), a Job controller, a scheduler, kubelets with their programs, the node and
 * pod-GC controllers. It keeps to what the real ones do with names, uids, resourceVersions,
 * finalizers, preconditions, graceful deletion, scheduling gates and watches, and misbehaves where
 * a test wants it: requests and answers that are lost, late, doubled or cut, slow controllers,
 * nodes out of reach, objects taken away by hand.
 *
 * What really runs (struct kube_proc) no API call shows: it is what a driver is measured by. */
#ifndef HANSE_TESTS_SUPPORT_KUBE_WORLD_H
#define HANSE_TESTS_SUPPORT_KUBE_WORLD_H

#include "connectors/connector.h"
#include "connectors/web/web.h"

#include <cjson/cJSON.h>

#define KUBE_WORLD_NODES 3 /* "n0", "n1", "n2" */
#define KUBE_WORLD_NS "work"

struct kube_chaos { /* per cent of requests */
    unsigned lost;  /* they are not heard */
    unsigned mute;  /* done, and not answered */
    unsigned late;  /* they come some seconds later */
    unsigned twice; /* they come again, some seconds later */
    unsigned half;  /* the answer is cut */
    unsigned busy;  /* 429 with Retry-After */
    unsigned fails; /* 500, done or not */
};
struct kube_object {
    struct list link;
    const char *kind; /* "jobs", … */
    cJSON *doc;
};
struct kube_proc { /* a program that runs, whatever the API says */
    struct list link;
    struct run_key key;
    int64_t rank;
    char pod[40], node[16];             /* uid */
    bool alive, ends;                   /* ends: at once, with 3 */
    bool stubborn;                      /* SIGTERM does not end it */
    bool traps;                         /* SIGTERM ends it with 0 */
    uint64_t from_ms, kill_ms, over_ms; /* 0: not */
    int exit_code;
    const char *why; /* word of its end: "OOMKilled"; NULL: as its exit says */
};
struct kube_node_state {
    bool linked, power;
};
/* How PyTorchJobs (kubeflow.org/v1) are served. */
enum kube_torch {
    TORCH_IS,
    TORCH_GONE,  /* they have no definition any more, and neither has any other of their group */
    TORCH_ALONE, /* likewise, and others of their group are there */
    TORCH_NEXT,  /* by v2 alone */
    TORCH_DOWN   /* the server that serves them does not answer */
};
struct kube_world {
    struct loop *loop;
    uint64_t rv, uids, random;
    struct list objects, procs, exchanges, events;
    struct timer tick;
    struct kube_node_state nodes[KUBE_WORLD_NODES];
    uint64_t unlinked_ms[KUBE_WORLD_NODES]; /* since when */
    struct kube_chaos chaos;
    int64_t api_ahead_ms, kubelets_ahead_ms; /* of our clock: below zero, behind */
    bool silent;
    uint64_t queue_until_ms; /* nothing is scheduled before */
    uint64_t controller_ms;  /* the Job controller is that slow */
    bool blind_controller;   /* it makes pods of Jobs that are being deleted */
    enum kube_torch torch;
    unsigned groups_asked;   /* requests for the list of groups */
    int refuse_made;         /* creates of PyTorchJobs are answered like that; 0: not */
    int refuse;              /* creates of Jobs are answered like that; 0: not */
    const char *forbid_pods; /* its pods are refused, with that message; NULL: not */
    const char *turns_away;  /* kubelets refuse pods, for that reason; NULL: not */
    const char *log;         /* of each pod; NULL: nobody may read any */
    char log_asked[300];     /* by what query, last */
    char broken[256];
    unsigned requests, lost;
    unsigned events_asked, jobs_read; /* of those: lists of Events; reads of one Job */
    unsigned pods_written, secrets_deleted;
    unsigned pods_busy; /* so many requests that end pods are answered 429 */
    bool jobs_fail;     /* requests that name one Job are answered 500, and not done */
    uint64_t watch_ms;  /* so long what a watch tells takes */
};
extern struct kube_world kube_world;
extern const struct web_transport_ops kube_world_web;
int64_t kube_world_wall_ms(void); /* UTC ms by its API server's clock */

void kube_world_begin(struct loop *l, uint64_t seed);
void kube_world_end(void);
void kube_world_break(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* ---- by hand, past the API's rules where that says so ---- */
struct kube_object *kube_world_find(const char *kind, const char *ns, const char *name);
struct kube_object *kube_world_job(const struct run_key *k);
struct kube_object *kube_world_pod(const struct run_key *k, int64_t rank); /* the newest */
struct kube_object *kube_world_put(const char *kind, cJSON *doc); /* makes one; takes doc */
void kube_world_changed(struct kube_object *o);                   /* after its doc was edited */
void kube_world_remove(struct kube_object *o);                    /* at once, whatever holds it */
/* DELETE as the API does it; grace_s -1: as it says itself. */
void kube_world_delete(struct kube_object *o, int64_t grace_s);

/* ---- what is so ---- */
unsigned kube_world_starts(const struct run_key *k);
bool kube_world_alive(const struct run_key *k);
unsigned kube_world_count(const char *kind); /* objects of it */
void kube_world_heal(void);
/* From now on; where their definition goes, so do they. */
void kube_world_torch(enum kube_torch is);

/* between its files */
struct kube_reply {
    int status;
    cJSON *body;      /* or NULL */
    const char *text; /* instead of body; NULL: none */
    bool watch;       /* it goes on: the exchange is fed by kube_world_event */
    uint64_t watch_rv;
    const char *kind, *ns, *selector; /* of what is watched or listed */
    unsigned retry_s;
};
void kube_world_serve(const char *method, const char *url, struct slice body,
                      struct kube_reply *ret);
/* What is served: true, it is answered by that. */
bool kube_world_kinds(const char *url, struct kube_reply *ret);
void kube_world_event(const char *type, const struct kube_object *o); /* to watches */
void kube_world_life(void *arg);
uint64_t kube_world_below(uint64_t n);
int kube_world_number(const char *text); /* of digits */
cJSON *kube_world_status(int code, const char *reason, const char *message);
bool kube_world_matches(const cJSON *doc, const char *ns, const char *selector);
void kube_world_collect(struct kube_object *o); /* it goes once nothing holds it */

#endif
