/* What the files of the driver itself share. Its parts (client/, nodes/, runs/) do not see it. */
#ifndef HANSE_CONNECTORS_KUBERNETES_INTERNAL_H
#define HANSE_CONNECTORS_KUBERNETES_INTERNAL_H

#include "connectors/home/home.h"
#include "connectors/kubernetes/client/client.h"
#include "connectors/kubernetes/diagnostics/diagnostics.h"
#include "connectors/kubernetes/kubernetes.h"
#include "connectors/kubernetes/look/look.h"
#include "connectors/kubernetes/nodes/nodes.h"
#include "connectors/kubernetes/runs/runs.h"
#include "connectors/kubernetes/spaces/spaces.h"

enum kubernetes_step {
    KUBERNETES_RESTS, /* until it is asked (again) */
    KUBERNETES_ASKS,  /* for its version, then for its identity */
    KUBERNETES_LISTS, /* for the first time in this session */
    KUBERNETES_KNOWN  /* all was listed in it */
};
enum kubernetes_watched { WATCHED_NODES, WATCHED_PODS, WATCHED_JOBS, WATCHED_NR };

struct kubernetes {
    struct connector base; /* first */
    struct object *doc;    /* the Target; holds a reference */
    struct kube_nodes *nodes;
    struct kube_runs *runs;
    struct kube_checks *checks;
    struct kube_spaces *spaces;
    struct kube_uses *uses; /* how busy their devices are */
    struct kube_look *look;
    struct home_runs *home; /* its runners that call home */
    struct list calls;      /* struct kubernetes_call */

    /* the session: what one cluster tells, without its state going back */
    enum kubernetes_step step;
    struct kube_login login; /* as it was read last; wiped */
    struct kube_client *client;
    struct kube_client *health; /* of exporters alone: their failures are none of the server's */
    char why[256];              /* it is out of reach */
    bool reachable;
    char cluster[64]; /* uid of its namespace kube-system */
    uint64_t sessions;
    struct timer pulse; /* the next question */
    struct kube_request *asking;
    unsigned failures;  /* of these, in a row */
    uint64_t login_ms;  /* when the Secret was read last; 0: it is due */
    bool moved;         /* it names another server now: a new session is due */
    uint64_t unread_ms; /* since when its login cannot be read; 0: it can */
    char unread[256];   /* why */
    struct kubernetes_watch {
        struct kubernetes *k;
        enum kubernetes_watched what;
        struct kube_watch *watch;
        bool listed;
        uint64_t trouble_ms; /* since when it has trouble; 0: none */
        char why[256];
    } watches[WATCHED_NR];
};

/* A call that waits for a request, or only for its answer to come from a fresh callback. */
struct kubernetes_call {
    struct kubernetes *k;
    struct list link;
    struct call *call;
    struct kube_request *rq; /* NULL: what follows is known */
    struct timer told;
    enum outcome out;
    struct err err;
};

struct kubernetes *kubernetes_of(struct connector *c);
bool kubernetes_has_runners(const struct kubernetes *k); /* by its Target */
/* Ends all calls of `calls`. */
void kubernetes_calls_lost(struct kubernetes *k, const char *why);

/* kubernetes_session.c */
void kubernetes_session_begin(struct kubernetes *k);
void kubernetes_session_end(struct kubernetes *k, const char *why);
/* Takes up a Secret or a connection that has changed. */
void kubernetes_login_look(struct kubernetes *k);
void kubernetes_relist_nodes(struct kubernetes *k);

#endif
