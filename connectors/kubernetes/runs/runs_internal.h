/* What the files of runs/ share. Nobody outside of connectors/kubernetes/runs includes this. */
#ifndef HANSE_CONNECTORS_KUBERNETES_RUNS_INTERNAL_H
#define HANSE_CONNECTORS_KUBERNETES_RUNS_INTERNAL_H

#include "api/manifests/manifests.h"
#include "connectors/kubernetes/manifests/safety.h"
#include "connectors/kubernetes/runs/runs.h"

#include <string.h>

#define KUBE_TOMBSTONE_ANNOTATION "hanse.dev/tombstone"
#define KUBE_LOST_ANNOTATION "hanse.dev/lost" /* what had its name may have run */
#define KUBE_WORKS_HEADS 256u
#define KUBE_INDEX_LABEL "batch.kubernetes.io/job-completion-index"

/* ---- manifests (manifest.c) ---- */
struct kube_manifest {                /* everything is in the arena, but for the documents */
    const struct manifest_kind *kind; /* of what its Job stands for; NULL: its Job is all */
    char ns[64], name[KUBE_NAME_MAX], beside[KUBE_NAME_MAX];
    char as[256];                  /* in whose name it is made; "": the target's own */
    cJSON *secret, *service, *job; /* service: NULL of one rank, and of what has its own */
};
int kube_manifest_make(const struct kube_runs_env *env, const struct run_order *o, struct arena *a,
                       struct kube_manifest *ret, struct err *err) MUST_CHECK;
void kube_manifest_clear(struct kube_manifest *m); /* wipes what is secret */
bool kube_calls_home(const struct target_spec *s);

/* ---- what a pod proves (pods.c) ---- */
enum kube_pod_is {
    POD_GATED,  /* it waits for us */
    POD_WAITS,  /* it has no node yet */
    POD_STARTS, /* it has one, and its program was not seen to run */
    POD_RUNS,
    POD_SILENT, /* its program ran when its node was heard last, and that is silent */
    POD_LOST,   /* the API server calls it over, and its kubelet has not said so */
    POD_ENDED,  /* proved: its containers have terminated */
    POD_NEVER   /* proved: its program was never started, nor will be */
};
struct kube_pod_seen {
    enum kube_pod_is is;
    int64_t rank;        /* -1: it does not say */
    int64_t base, count; /* it may be any rank of these; count 0: rank is its own */
    bool follows;        /* the run ends without it */
    bool deleting, held; /* held: it carries our finalizer */
    bool over_alone;     /* its program has ended, and other containers of it have not */
    int grace_s;         /* that a manifest gives it, at least; 0: it does not say */
    int exit_code, term_signal;
    char reason[64];   /* of an end a row of ends.def, or the target's own word; why it waits */
    char message[400]; /* a sentence, or "" */
    int64_t started_ms, ended_ms; /* 0: not known */
    int64_t asked_ms;             /* when somebody had it deleted; 0: nobody has */
    /* As the cluster calls it, for people: "Pending", "ImagePullBackOff"; "" */
    char phase[16], word[64];
};
#define KUBE_RAN_AND_NEVER                                                                         \
    "its kubelet says that it never began, and it had: nobody says that its program has ended"
void kube_pod_read(const cJSON *pod, struct kube_pod_seen *ret);
/* Last words of its program's container, borrowed; "". */
const char *kube_pod_left(const cJSON *pod);

/* ---- what is known of runs (records.c) ---- */
struct kube_pod {
    struct list link; /* kube_run.pods */
    struct kube_run *run;
    char uid[KUBE_UID_MAX], owner[KUBE_UID_MAX], rv[24];
    char *name, *node;   /* node: "" while it has none */
    char *gates, *terms; /* as JSON: gates of others, terms of its node affinity; NULL: none */
    char *held_too;      /* finalizers of others, as JSON; NULL: none */
    char *program;       /* container of a manifest's first program; NULL: KUBE_CONTAINER */
    char *left;          /* what its runner has left behind; NULL: nothing */
    struct kube_pod_seen seen;
    bool ran;    /* its program was seen to run */
    bool named;  /* its Job's admission names it */
    bool listed; /* in the listing under way */
    bool busy;   /* a request about it is under way */
    bool asked_to_end;
    char answered[24]; /* resourceVersion that an answer had and the watch has yet to tell; "" */
    uint64_t again_ms; /* nothing is asked of it before that */
};
struct kube_kind_look { /* whether a cluster has objects of a kind (anchor.c) */
    char *versions;     /* of its group, that are yet to be asked for it: "v1 v2"; NULL: none */
    char version[64];   /* the one that is asked, or by which they are there; "": the kind's own */
};
struct kube_run { /* of one key; it proves nothing that its objects do not */
    struct kube_runs *r;
    struct list link, dirty; /* kube_runs.all, kube_runs.dirty */
    struct list kin;         /* other runs of its uid */
    struct list held;        /* kube_runs.held */
    struct timer again;      /* it is looked at then */
    struct run_key key;
    struct kube_mark mark;
    char name[KUBE_NAME_MAX];
    bool job;  /* its Job is there; else what follows is as it was last */
    bool lost; /* a Job of this key that may have been admitted is not there any more */
    bool deleting, suspended, tombstone, failed, listed;
    bool foreign;                     /* its programs are a manifest's: no runner speaks for them */
    const struct manifest_kind *kind; /* of what its Job stands for; NULL: its Job is all */
    char *makes;           /* the order for that, while it may have to be made; NULL: none */
    bool made, refused;    /* it is there; it cannot be */
    bool queued;           /* it is suspended */
    bool unmade;           /* it is known to be gone */
    uint64_t made_look_ms; /* it is looked at then */
    struct kube_kind_look kind_look;
    unsigned lacking; /* so often in a row its cluster had no such kind */
    char uid[KUBE_UID_MAX], rv[24];
    char *admitted, *nodes, *end; /* annotations; NULL: none */
    char *trouble;                /* why it has no pods, or why its Job has failed; NULL */
    int64_t trouble_at;           /* when the Event said so, by its cluster's time */
    char *held_too;               /* its finalizers of others, as JSON; NULL: none */
    int64_t made_ms, gone_ms;     /* gone_ms: it is deleted; 0: it is not */
    struct list pods;
    bool wanted;                   /* the leader has asked for it, in the life of this driver */
    bool stopping;                 /* it was asked to end */
    bool busy;                     /* a request about its Job is under way */
    uint64_t again_ms, trouble_ms; /* when something may be asked of its Job; of its events */
    uint64_t unheard_ms;           /* when it is told that no runner has called home; 0: not so */
    bool bare;                     /* what was made beside its Job is gone */
    bool seated, told;
    enum run_state told_state;
    uint64_t told_hash, told_workers;
};
struct kube_runs {
    struct kube_runs_env env;
    struct object *doc;
    void *by_key, *by_uid, *pods_by_uid; /* tsearch; by_uid: one of each uid, with its kin */
    struct list all, dirty, works, steps;
    struct list held;                       /* what they ask for waits for requests under way */
    struct list troubles;                   /* struct kube_trouble, list.c */
    struct list works_of[KUBE_WORKS_HEADS]; /* the same works, by their uid */
    unsigned asked;                         /* requests under way for which no call waits */
    bool jobs_listed, pods_listed;
    struct timer tick;
    uint64_t looks;
};
/* Any run of that uid, or NULL; the others are its kin. */
struct kube_run *kube_run_of_uid(const struct kube_runs *r, const char *uid);
/* UTC ms by the server's clock; 0: it has not said, or is out of reach. */
static inline int64_t kube_runs_wall_ms(const struct kube_runs *r)
{
    const struct kube_client *c = r->env.client(r->env.base);

    return c ? kube_client_wall_ms(c) : 0;
}
struct kube_run *kube_run_find(const struct kube_runs *r, const struct run_key *k);
struct kube_run *kube_run_of(struct kube_runs *r, const struct run_key *k); /* is made if need be */
/* Has it looked at again, soon, and whoever waits for it. */
void kube_run_touch(struct kube_run *x);
void kube_run_later(struct kube_run *x, uint64_t ms); /* likewise, in so long */
/* Takes in a Job that an answer has. NULL: it is not ours. */
struct kube_run *kube_run_job(struct kube_runs *r, const cJSON *job);
void kube_run_gone(struct kube_run *x); /* the API server does not have its Job */
void kube_run_unmarked(struct kube_runs *r, const cJSON *job); /* this one is not ours any more */
struct kube_pod *kube_pod_find(const struct kube_run *x, const char *uid);
void kube_runs_records_fini(struct kube_runs *r);

/* ---- what follows from it (judge.c) ---- */
bool kube_over(const struct observation *o);                           /* ended or absent */
bool kube_has_run(const struct kube_runs *r, const struct run_key *k); /* by the log */
bool kube_run_settled(const struct kube_run *x); /* nothing is left of it but its name */
/* There are pods that its Job's admission, which there is none of, does not explain: they may have
 * been admitted by an earlier Job of this name, or somebody took their gates away. */
bool kube_run_has_strays(const struct kube_run *x);
/* One of its pods has failed, or those that decide its end have ended: the others are ended. */
bool kube_run_decided(const struct kube_run *x);
/* As kube_run_judge, with what is told ahead of an answer. */
void kube_run_answer(struct kube_run *x, struct observation *ret);
/* Everything is in the arena; with what its runners have told and left behind. */
void kube_run_judge(struct kube_run *x, struct arena *a, struct observation *ret,
                    struct run_workers *ret_workers);
void kube_run_tell(struct kube_run *x); /* what is news */

/* ---- requests about runs (steps.c) ---- */
struct kube_work;
struct kube_step {    /* a request under way */
    struct list link; /* kube_runs.steps */
    struct kube_runs *r;
    struct kube_request *rq;
    struct kube_work *work; /* NULL: nobody waits for it */
    struct run_key key;
    char pod[KUBE_UID_MAX];
    void (*done)(struct kube_step *s, const struct kube_answer *a);
};
struct kube_step_ask {
    struct kube_work *work;
    const struct run_key *key;
    const char *pod; /* uid, or NULL */
    const char *method, *path, *type;
    const cJSON *body;
    bool idempotent;
    const char *as; /* in whose name; NULL or "": the target's own */
    size_t answer_max;
    void (*done)(struct kube_step *s, const struct kube_answer *a); /* NULL: nobody cares */
};
#define KUBE_STEP_MS 10000  /* a request of nobody's call */
#define KUBE_ANSWER_MS 5000 /* one of a call: then it is sent again, or looked at */
/* It was kept back, as all is for a while from a server that fails, and can be sent later. */
static inline bool kube_not_sent(const struct kube_answer *a)
{
    return a->out == OUT_REJECTED && !a->status &&
           (a->err->code == E_UNAVAIL || a->err->code == E_TIMEOUT || a->err->code == E_LIMIT);
}
bool kube_step(struct kube_runs *r, const struct kube_step_ask *q);      /* false: out of reach */
void kube_steps_drop(struct kube_runs *r, const struct kube_work *work); /* NULL: all of them */
const char *kube_path(struct arena *a, const char *group, const char *ns, const char *kind,
                      const char *name);
/* Takes our finalizer from its Job, as it was read, and leaves those of others. */
void kube_run_let_go(struct kube_run *x);
/* A merge patch of its Job for which nobody waits; takes the body. */
void kube_run_patch(struct kube_run *x, cJSON *body);
/* So many requests are under way that nobody's call has made: others wait, so that what asks how
 * the server is does not. */
bool kube_steps_full(const struct kube_runs *r);
/* What its state asks for: admission, gates, the cause of what is missing. */
void kube_run_step(struct kube_run *x);
/* Has its pods end that have not, each with that grace; returns how many are asked, or -1: out of
 * reach. */
int kube_run_end_pods(struct kube_run *x, struct kube_work *work, uint64_t grace_ms,
                      void (*done)(struct kube_step *s, const struct kube_answer *a));
/* Has its pods deleted that are not, and takes our finalizer from those that are. */
void kube_run_release_pods(struct kube_run *x, struct kube_work *work);
bool kube_run_delete(struct kube_run *x, struct kube_work *work,
                     void (*done)(struct kube_step *s, const struct kube_answer *a));
/* Has its Job deleted while it is as it was read: not admitted. */
bool kube_run_undo(struct kube_run *x, struct kube_work *work,
                   void (*done)(struct kube_step *s, const struct kube_answer *a));
/* What was made for an order beside its Job: Secret and, but of one rank, Service. */
struct kube_drop {
    struct kube_runs *r;
    struct kube_work *work;
    const struct run_key *key;
    const char *place;
    int64_t ranks; /* 0: not known */
    void (*done)(struct kube_step *s, const struct kube_answer *a);
};
bool kube_drop_secret(const struct kube_drop *d); /* false: out of reach */
bool kube_run_drop_secret(struct kube_run *x, struct kube_work *work,
                          void (*done)(struct kube_step *s, const struct kube_answer *a));

/* ---- objects of other kinds (anchor.c) ---- */
/* Into the Job that stands for it: what is to be made, and how it is signed. */
int kube_anchor_in(const struct kube_runs_env *env, const struct run_order *o,
                   const struct kube_manifest *m, cJSON *object, cJSON *job,
                   struct err *err) MUST_CHECK;
void kube_anchor_take(struct kube_run *x, const cJSON *job); /* what its Job says of it */
/* What is missing of it is asked for; true: it is there. */
bool kube_anchor_step(struct kube_run *x);
void kube_anchor_look(struct kube_run *x); /* its pods do not come: how it is, now and then */
/* Has it deleted, for a call, by the work->at-th of the names that it may have. 0: there are no
 * more; -1: out of reach. */
int kube_anchor_drop(struct kube_run *x, struct kube_work *work,
                     void (*done)(struct kube_step *s, const struct kube_answer *a));
/* Nobody serves that path: it says nothing of an object there, nor of its kind. */
static inline bool kube_no_path(const struct kube_answer *a)
{
    return a->status == 404 && strcmp(a->reason, "NotFound") != 0;
}
/* A call (NULL: nobody's) has met that at its object: asks whether its cluster has the kind any
 * more, and goes on. */
void kube_anchor_kind(struct kube_run *x, struct kube_work *work);
void kube_kind_look_end(struct kube_kind_look *l);
/* Whether that cluster has such objects: GET of their version; true: it has. */
const char *kube_kind_path(const struct manifest_kind *k, struct arena *a);
bool kube_kind_served(const struct manifest_kind *k, const cJSON *list);

/* ---- why runs have no pods (list.c) ---- */
void kube_trouble_look(struct kube_run *x); /* it has none yet */
void kube_troubles_drop(struct kube_runs *r);

/* ---- calls (calls.c, ask.c, list.c) ---- */
enum kube_op {
    KUBE_SUBMIT,
    KUBE_FIND,
    KUBE_STOP,
    KUBE_QUIESCE,
    KUBE_FINALIZE,
    KUBE_SWEEP,
    KUBE_PROMISES
};
struct kube_work {    /* what is done about a call, or unasked (call NULL) */
    struct list link; /* kube_runs.works */
    struct list of;   /* kube_runs.works_of */
    struct kube_runs *r;
    enum kube_op op;
    struct call *call;
    struct run_key key;
    uint64_t deadline_ms;
    struct timer timer, pause;         /* until its deadline; until it asks again */
    void (*next)(struct kube_work *w); /* what it does after that pause */
    uint64_t pause_ms;
    unsigned throttled; /* SUBMIT: how often it came too fast */
    bool doubt;         /* SUBMIT: a request for its Job was not answered */
    bool inherits;      /* SUBMIT: what it needs may be there, and which one is not known */
    bool by_name;       /* SUBMIT: nothing else can need what has its name */
    bool served;        /* SUBMIT: its cluster has objects of that kind */
    struct err refusal; /* SUBMIT: told once what was made for it is gone */
    struct refusal blamed;
    bool begun, waits; /* waits: for news of its run */
    bool told;         /* QUIESCE, STOP: its pods were asked to end; FINALIZE: its Secret to go */
    unsigned pending;  /* requests of it under way */
    unsigned rounds;   /* how often it began anew */
    uint64_t looked;
    struct kube_manifest m; /* of SUBMIT; with what was made for it */
    char secret_uid[KUBE_UID_MAX], service_uid[KUBE_UID_MAX];
    char place[64], name[KUBE_NAME_MAX];
    uint64_t grace_ms;
    struct err why; /* decided ahead of any request: rejected */
    run_judge judge;
    promise_judge promise;
    void *judge_arg;
    struct run_key *keys;            /* PROMISES: those that may be let go; owned */
    size_t n_keys, at;               /* at: FINALIZE: which of its names what was made may have */
    struct kube_kind_look kind_look; /* FINALIZE */
};
struct kube_work *kube_work_begin(struct kube_runs *r, enum kube_op op, const struct run_key *k,
                                  struct call *call, uint64_t deadline_ms);
void kube_work_reject(struct kube_work *w, const struct err *err); /* by a fresh callback */
void kube_work_end(struct kube_work *w, enum outcome out, const struct observation *seen,
                   const struct err *err);
/* Its last request was not answered: goes on with that in a while, by its deadline. */
void kube_work_again(struct kube_work *w, void (*next)(struct kube_work *w));
/* It came too fast (429), and is made again once it may; false: it is no matter of that. */
bool kube_work_throttled(struct kube_work *w, const struct kube_answer *a,
                         void (*next)(struct kube_work *w));
void kube_work_failed(struct kube_work *w, const struct kube_answer *a); /* as that answer says */
void kube_work_seen(struct kube_work *w); /* DONE, with what is known of its run */
bool kube_work_step(struct kube_work *w, const char *method, const char *path, const char *type,
                    const cJSON *body,
                    void (*done)(struct kube_step *s, const struct kube_answer *a));
void kube_works_look(struct kube_runs *r, const struct run_key *k); /* NULL: of all */
void kube_ask_go(struct kube_work *w);   /* find, stop, quiesce, finalize: from the beginning */
void kube_ask_look(struct kube_work *w); /* there may be news */
void kube_list_go(struct kube_work *w);
void kube_token_print(const char *token, struct buf *out); /* of a next page, for a URL */
void kube_promises_go(struct kube_work *w);
/* An end of its life that nobody waits for. */
void kube_run_unasked(struct kube_runs *r, const struct run_key *k, enum kube_op op,
                      uint64_t grace_ms);
bool kube_work_on(const struct kube_runs *r, const struct run_key *k, enum kube_op op);
bool kube_run_awaited(const struct kube_runs *r, const struct run_key *k); /* by any of them */

#endif
