/* What the parts of the API server share: a request under way (`struct call`), its answer, the
 * routes, and the helpers for JSON text. Nothing outside api/server includes this. */
#ifndef HANSE_API_SERVER_SERVER_INTERNAL_H
#define HANSE_API_SERVER_SERVER_INTERNAL_H

#include "api/base/limits.h"
#include "api/base/list.h"
#include "api/base/log.h"
#include "api/server/api.h"
#include "api/server/fair.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ANSWER_MAX ((size_t)256 << 20)
#define KEPT_VIEWS 16
#define KEPT_VIEW_MS (5ul * 60 * 1000)
#define DEADLINE_MS 30000
#define FRESH_MS 10000

/* ---- the server ---- */
struct kept_view { /* a state that a `continue` token names */
    struct view *view;
    uint64_t rv, used_ms;
};
struct api_counters {
    uint64_t requests, by_class[6], watch_events, watch_overflows, writes, conflicts;
};
struct hub; /* read/watch.c */
struct api {
    struct api_config cfg;
    struct backend *b;
    const struct backend_ops *ops;
    struct hub *hub;
    struct fair *fair;
    struct kept_view kept[KEPT_VIEWS];
    struct api_counters counters;
    uint64_t calls; /* under way */
};

/* ---- routes (routes.def, route.c) ---- */
struct call;
enum route_access {
    OPEN,     /* anybody */
    PATH,     /* nonResourceURLs */
    RESOURCE, /* rules on resources */
    SELF      /* anybody with credentials, about himself */
};
struct route {
    const char *id, *method, *domain, *pattern, *verb;
    enum route_access access;
    void (*run)(struct call *c);
};
const struct route *route_table(size_t *ret_n);

/* ---- a request under way ---- */
struct selector;
enum repr_form { FORM_OBJECT, FORM_TABLE, FORM_PARTIAL };
enum repr_include { INCLUDE_METADATA, INCLUDE_NONE, INCLUDE_OBJECT };
struct repr { /* how objects are shown; events are encoded once for each that is in use */
    enum repr_form form;
    enum repr_include include;
    bool v1beta1, yaml;
};
struct call {
    struct api *api;
    struct fair_item item; /* its turn among all requests */
    unsigned retry_s;      /* of a refusal: when to ask again; 0: soon */
    struct http_request *rq;
    const struct http_message *m;
    struct arena *mem;
    struct api_identity who;
    struct api_identity *as; /* whom he acts as, once he may: then `who` is that; or NULL */
    const char *asker;       /* the user who really asks; in `mem` */
    const struct route *route;
    const char *group, *version; /* of the path; "" and "v1" for core */
    const char *res, *ns, *name, *op;
    const char *verb, *sub;  /* as RBAC sees them */
    const struct kind *kind; /* NULL where {res} is none of ours */
    struct repr repr;
    struct selector *selector; /* freed with the call; a watch takes it over */
    struct view *view;
    bool fresh; /* view has all that was acknowledged before this turn */
    cJSON *trees[8];
    unsigned n_trees, attempts;
    struct object *objects[4]; /* given back at the end */
    unsigned n_objects;
    struct conflicts *conflicts; /* in `mem`; of an apply that was refused */
    void (*next)(struct call *c);
    void (*slice)(void *arg); /* of call_again */
    void *slice_arg;
    struct err err;
    const char *warning; /* for a Warning header, or NULL */
    /* of a write under an Idempotency-Key (write/request.c) */
    const char *key, *fingerprint, *old_key;
    unsigned named; /* writes that were sent under it */
    bool by_state;  /* what is wrong with the request follows from the state, too */
    bool dry_run;
    bool settled; /* what is told now is the key's answer, or nobody knows */
    struct err refused;
    const struct kind *refused_kind;
    const char *refused_name;
    /* It was done before, as r says; NULL: told as an object that was written. */
    void (*done_before)(struct call *c, const struct api_result *r);
    void *state;                  /* of the verb, in `mem` */
    void (*fini)(struct call *c); /* lets go of what `state` holds, or NULL */
};
cJSON *call_own(struct call *c, cJSON *j); /* freed at the end of the request; NULL ok */
struct object *call_own_object(struct call *c, struct object *o);
void call_release(struct call *c); /* frees the call without an answer (it was streamed) */
void call_view(struct call *c);    /* takes the newest view into c->view */
/* Linearizable (and at least min_rv), then next(c) with a new view; on failure the request is
 * answered. */
void call_fresh(struct call *c, uint64_t min_rv, void (*next)(struct call *c));
/* What o says and nobody acts upon goes into the answer's Warning header. */
#define WARNING_MAX_BYTES 2048
void call_warn_unkept(struct call *c, const struct object *o);
/* fn(arg) in a turn of this request's user: what is long is done in slices. */
void call_again(struct call *c, void (*fn)(void *arg), void *arg);
/* It becomes one that lasts: refused (answered, NULL) where its user has too many. fair_lasted() at
 * its end. */
struct flow *call_lasts(struct call *c);
/* Answers: each ends the request. */
void call_reply(struct call *c, int status, const char *type, const void *p, size_t n);
void call_reply_buf(struct call *c, int status, struct buf *b); /* JSON, or YAML when asked for */
void call_reply_tree(struct call *c, int status, cJSON *j);     /* takes j */
void call_fail(struct call *c, const struct err *e);
void call_fail_at(struct call *c, const struct err *e, const struct kind *k, const char *name);
void call_fail_code(struct call *c, int code, const char *text);
/* Does it ask for that protocol? Else it fails: `what` of hanse does. */
bool call_upgrades(struct call *c, const char *protocol, const char *what);
int call_not_found(const struct kind *k, const char *name, struct err *err);
/* The body as JSON (from JSON or YAML); NULL with err. Owned by the call. */
cJSON *call_body(struct call *c, struct err *err);
/* A body in Kubernetes' protobuf as the same tree; E_MEDIA for kinds that only come as JSON or
 * YAML. */
int proto_body(struct slice in, cJSON **ret, struct err *err) MUST_CHECK;
int64_t call_now(const struct call *c);
static inline const char *call_param(const struct call *c, const char *name)
{
    const char *v = http_param_get(c->rq, name);
    return v ? v : "";
}
static inline bool call_flag(const struct call *c, const char *name)
{
    const char *v = http_param_get(c->rq, name);
    return v && (!*v || !strcmp(v, "1") || !strcmp(v, "true") || !strcmp(v, "True"));
}
/* Reads ?dryRun=All. An empty word is refused like any other: who wrote it did not mean a write. */
static inline int call_dry_run(const struct call *c, bool *ret, struct err *err)
{
    const char *v = http_param_get(c->rq, "dryRun");
    *ret = v && !strcmp(v, "All");
    return !v || *ret ? 0 : err_set(err, E_SYNTAX, "dryRun must be All");
}
static inline const struct object *call_get(const struct call *c, const struct kind *k,
                                            const char *ns, const char *name)
{
    return c->api->ops->get(c->view, k, ns ? ns : "", name);
}
int call_u64(const char *text, uint64_t *ret);

/* ---- JSON text ---- */
void json_text(struct buf *out, const char *s); /* quoted and escaped */
void json_pair(struct buf *out, const char *key, const char *value, bool comma);
/* Fields that a server-side apply may not set without force: each becomes a cause. Texts are in the
 * request's arena. */
#define CONFLICTS_MAX 256
struct conflict {
    /* "\"kubectl-edit\" using v1", ".spec.weight"; one who after the other */
    const char *who, *path;
};
struct conflicts {
    struct conflict v[CONFLICTS_MAX];
    unsigned n; /* those beyond CONFLICTS_MAX are only counted */
};
/* conflicts: NULL, or what an E_CONFLICT is about. */
void status_json(struct buf *out, const struct err *e, const struct conflicts *conflicts,
                 const struct kind *k, const char *group, const char *res, const char *name,
                 int http, unsigned retry_s);

/* ---- access/ ---- */
int auth_identify(struct call *c, struct err *err) MUST_CHECK;
/* Whom the request's headers name, into c->as; then whether he may: c->who becomes that. */
int impersonate_read(struct call *c, struct err *err) MUST_CHECK;
int impersonate(struct call *c, struct err *err) MUST_CHECK;
struct rbac_ask {
    const char *verb, *group, *resource, *sub, *ns, *name, *path; /* path: a nonResourceURL */
};
bool rbac_allowed(struct api *a, const struct view *v, const struct api_identity *who,
                  const struct rbac_ask *ask);
int rbac_check(struct call *c, const struct rbac_ask *ask, struct err *err) MUST_CHECK;
/* Each rule that `who` has: in a namespace (ns) or everywhere (ns ""). */
void rbac_rules(struct api *a, const struct view *v, const struct api_identity *who, const char *ns,
                bool (*each)(const struct policy_rule *r, bool cluster, void *arg), void *arg);
/* A user may not grant what he lacks. */
int rbac_escalation(struct call *c, const struct object *o, struct err *err) MUST_CHECK;
/* A bearer token that one of these audiences may take (none: this API). E_UNAUTH. */
int auth_token(struct call *c, const char *token, const char *const *audiences, size_t n,
               struct api_identity *ret, struct err *err) MUST_CHECK;
void account_token(struct call *c);            /* TokenRequest */
void token_asked(struct call *c, cJSON *body); /* operation token.create */
void review_token(struct call *c);
cJSON *identity_json(const struct api_identity *who); /* UserInfo */
void review_access(struct call *c);
void review_subject(struct call *c);
void review_rules(struct call *c);
void review_self(struct call *c);

/* ---- read/ ---- */
/* Labels and fields; on success c->selector, NULL when both are empty. */
int selector_parse(const char *labels, const char *fields, const struct kind *k,
                   struct selector **ret, struct err *err) MUST_CHECK;
struct selector *selector_free(struct selector *s);
bool selector_holds(const struct selector *s, const struct object *o); /* NULL = all */
bool selector_trivial(const struct selector *s);
const char *selector_name(const struct selector *s); /* metadata.name=X, or NULL */
int repr_choose(struct call *c, struct err *err) MUST_CHECK;
/* v: the state that figures of its status are made from (backend.h: shown). */
void repr_object(struct api *a, const struct view *v, const struct repr *r, const struct object *o,
                 struct buf *out);
void repr_list_begin(const struct repr *r, const struct kind *k, struct buf *out);
void repr_list_item(struct api *a, const struct view *v, const struct repr *r,
                    const struct object *o, struct buf *out);
void repr_list_end(const struct repr *r, uint64_t rv, const char *token, int64_t remaining,
                   struct buf *out);
void table_columns(const struct kind *k, struct buf *out);
/* as it is stored; with secret values */
int object_tree(struct api *a, const struct object *o, cJSON **ret, struct err *err) MUST_CHECK;
void read_get(struct call *c);
void read_list(struct call *c);
void read_watch(struct call *c);
struct view *view_keep(struct api *a, struct view *v);
struct view *view_kept(struct api *a, uint64_t rv);
void views_drop(struct api *a);
struct hub *hub_create(struct api *a);
struct hub *hub_destroy(struct hub *h);
uint64_t hub_watches(const struct hub *h);

/* ---- write/ ---- */
void write_create(struct call *c);
void write_update(struct call *c);
void write_patch(struct call *c);
void write_delete(struct call *c);
void write_delete_collection(struct call *c);
void apply_set(struct call *c);
/* The write is sent in the name of the request's key, if it has one. */
void write_name(struct call *c, struct api_write *w);
/* A refusal is about to be told. True when it is taken over: it is told once it is the answer under
 * the request's key for good (or what is so already). */
bool write_refusal(struct call *c, const struct err *e, const struct kind *k, const char *name);
/* refused where it means nothing */
int write_check_key(struct call *c, struct err *err) MUST_CHECK;
void write_begin_key(struct call *c); /* reads the key of a request that is a write */
void write_random_name(struct call *c, char *out, size_t n);

/* ---- the rest ---- */
void show_version(struct call *c);
void show_health(struct call *c);
void show_ready(struct call *c);
void show_metrics(struct call *c);
void show_index(struct call *c);
void discover_api(struct call *c);
void discover_core(struct call *c);
void discover_apis(struct call *c);
void discover_group(struct call *c);
void discover_version(struct call *c);
void openapi_two(struct call *c);
void openapi_three(struct call *c);
void openapi_three_group(struct call *c);
void operate(struct call *c);
void operate_in(struct call *c);
void operate_stream(struct call *c); /* operations.c */
void workload_log(struct call *c);
void workload_exec(struct call *c);
void workload_port_forward(struct call *c);
/* An operation of the backend, and how its answer is told as it is. */
void call_operate(struct call *c, const char *op, const cJSON *body,
                  void (*cb)(void *arg, const char *json, const struct err *err));
void call_operated(void *arg, const char *json, const struct err *err);

#endif
