/* A client of one kube-apiserver: credentials, requests with their answers read, list and watch.
 * The API's concepts: https://kubernetes.io/docs/reference/using-api/api-concepts/
 *
 * Nothing is called back from inside the call that asked. */
#ifndef HANSE_CONNECTORS_KUBERNETES_CLIENT_H
#define HANSE_CONNECTORS_KUBERNETES_CLIENT_H

#include "connectors/connector.h"
#include "connectors/web/web.h"

#include <cjson/cJSON.h>

/* ---- credentials (kubeconfig.c) ---- */
/* What a Secret and spec.connection say, resolved: PEM texts and a bearer token, NULL where there
 * is none. Everything secret is wiped by kube_login_clear. */
struct kube_login {
    char *server; /* https://HOST:PORT[/PATH] */
    char *ca_pem, *cert_pem, *key_pem, *token;
    char *namespace_; /* of the context; NULL: none */
};
/* Reads a kubeconfig: the context of that name, or with "" its current one. Refused with a sentence
 * that names the field: exec and auth-provider plugins, files instead of …-data, user and password,
 * insecure-skip-tls-verify, http to another machine. E_INVALID, E_NOTFOUND, E_NOTIMPL. */
int kube_kubeconfig_read(const char *text, const char *context, struct kube_login *ret,
                         struct err *err) MUST_CHECK;
/* Of the Secret that spec.connection.credentialsFrom names: "kubeconfig", or "token" and "ca.crt"
 * (a service account's own), or "tls.crt", "tls.key" and "ca.crt"; spec.connection.server and
 * caBundle go first where they are given. */
int kube_login_read(const struct connector_env *env, const struct target_spec *spec,
                    struct kube_login *ret, struct err *err) MUST_CHECK;
bool kube_login_same(const struct kube_login *a, const struct kube_login *b);
void kube_login_clear(struct kube_login *l);

/* ---- requests (client.c) ---- */
struct kube_client;
int kube_client_create(struct loop *l, const char *target, const struct kube_login *login,
                       unsigned in_flight, const struct web_transport_ops *transport,
                       struct kube_client **ret, struct err *err) MUST_CHECK;
/* From now on requests go out with this login; what is under way ends with the one that it began
 * with. On an error nothing has changed. */
int kube_client_renew(struct kube_client *c, const struct kube_login *login,
                      struct err *err) MUST_CHECK;
/* Forgets what is under way, without a word. Accepts NULL; returns NULL. Allowed in done(). */
struct kube_client *kube_client_destroy(struct kube_client *c);
/* UTC ms by the server's clock, which puts the times into its objects: as the Date of its last
 * answer has it, so up to a second behind. 0: it has not said yet. */
int64_t kube_client_wall_ms(const struct kube_client *c);

#define KUBE_JSON "application/json"
#define KUBE_MERGE "application/merge-patch+json"
#define KUBE_FIELD_MANAGER "hanse"

struct kube_answer { /* borrowed for the call */
    /* DONE: 2xx, and what was asked for is done. REJECTED: provably not done; err and refused say
     * why. UNKNOWN: whatever leaves that open (no answer, half of one, 5xx, an answer to a later
     * attempt). */
    enum outcome out;
    int status; /* of HTTP; 0: none came */
    /* Of a Status: "NotFound", "AlreadyExists", "Conflict", "Expired", …; or "". */
    const char *reason;
    const cJSON *body; /* of DONE: the object; of a Status: that; else NULL */
    bool doubt; /* an earlier attempt may have been carried out: AlreadyExists may be our own */
    uint64_t retry_after_ms; /* 0: it did not say */
    struct refusal refused;
    const struct err *err; /* set unless DONE: a sentence, with the target's name and words */
};
/* What an answer that is none of these says, of who was asked otherwise: the server's own words
 * where its body has a Status, else the status of HTTP (0: none, it is a command that failed). */
void kube_refusal_read(const char *target, int status, struct slice body, struct err *err);
struct kube_ask {              /* everything is copied */
    const char *method, *path; /* "/apis/batch/v1/namespaces/x/jobs"; fieldManager is added */
    const char *type;          /* of the body, KUBE_…; NULL: KUBE_JSON */
    const cJSON *body;         /* NULL: there is none */
    const char *as;            /* Impersonate-User; "" or NULL: nobody */
    const char *as_group[4];   /* Impersonate-Group */
    /* May be sent twice: GET, and what meets its own effect (a create under a name of ours, where
     * 409 is looked at; a patch under a resourceVersion is not). */
    bool idempotent;
    bool ahead;        /* it goes ahead of what waits: a question how the server is */
    size_t answer_max; /* 0: 2 MiB */
    uint64_t deadline_ms;
    void (*done)(void *arg, const struct kube_answer *a);
    void *arg;
};
struct kube_request;
struct kube_request *kube_send(struct kube_client *c, const struct kube_ask *ask);
void kube_cancel(struct kube_request *r); /* done() does not come */
/* Bytes of a GET as they come (logs): data() false ends it. */
struct kube_request *kube_stream(struct kube_client *c, const char *path,
                                 bool (*data)(void *arg, const void *p, size_t n),
                                 void (*done)(void *arg, const struct kube_answer *a), void *arg);
void kube_pause(struct kube_request *r, bool paused);

/* ---- list and watch (watch.c) ---- */
/* One kind of object, all namespaces or one: listed in pages, then watched with bookmarks; what the
 * watch cannot go on from (410) is listed again. One page, or one object of a watch, is in memory
 * at a time. A watch that is cut goes on from where it was, without a listing: nothing is told
 * then.
 *
 * Each time, ahead of a listing and of a watch that goes on, it looks how far the server's state
 * is. A server whose state is older than what was seen is behind the others, or was restored from a
 * backup: nothing of it is taken, it is asked again, and once it has come as far, or has not for
 * ten seconds, back() is told. Who did not answer at all for a while is listed anew. */
enum kube_change { KUBE_IS, KUBE_GONE }; /* added, modified, or listed; deleted */
struct kube_watch_events {
    /* A listing begins: what no item names until listed() is gone. */
    void (*begins)(void *arg);
    void (*item)(void *arg, enum kube_change change, const cJSON *object);
    /* The listing is whole, as of rv; once for each that begins() told and that came to its end. */
    void (*listed)(void *arg, const char *rv);
    /* The server does not answer, or refuses, or expires what it has just told, three times in a
     * row, or a watch tells nothing at all: told once at the first failure in a row that is no mere
     * cut, and when it goes well again with err NULL. It goes on trying. */
    void (*trouble)(void *arg, const struct err *err);
    /* The server's state had gone back in time: it needs a new session, which makes a watch of its
     * own. It is told once, and nothing comes after it. */
    void (*back)(void *arg, const struct err *err);
};
struct kube_watch;
struct kube_watch *kube_watch_create(struct loop *l, struct kube_client *c, const char *path,
                                     const char *selectors, /* "labelSelector=…" or "" */
                                     unsigned page, const struct kube_watch_events *ev, void *arg);
/* Has it list anew: what its caller knows may be stale. */
void kube_watch_relist(struct kube_watch *w);
struct kube_watch *kube_watch_destroy(struct kube_watch *w); /* accepts NULL; returns NULL */

/* ---- reading objects ---- */
/* "metadata.labels" needs no dots in its names: a path of member names, "" where it is not there
 * or no text. */
const char *kube_text(const cJSON *o, const char *path);
const cJSON *kube_at(const cJSON *o, const char *path); /* or NULL */
/* Value of a label or annotation, or "". */
const char *kube_label(const cJSON *o, const char *name);
const char *kube_annotation(const cJSON *o, const char *name);
bool kube_deleting(const cJSON *o);                                   /* has a deletionTimestamp */
bool kube_condition_is(const cJSON *o, const char *type);             /* its status is True */
const char *kube_condition_message(const cJSON *o, const char *type); /* or "" */
int64_t kube_time_ms(const char *rfc3339);                            /* UTC ms; 0: none */

#endif
