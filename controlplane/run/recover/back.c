/* A state that went back: somebody put an older copy of the data in place, and a target carries a
 * run that a later state of the same cluster started. From then on the log says so: the cluster's
 * next generation, resourceVersion far ahead, and every workload that has not ended may have gone
 * on (RECOVER BEGIN and LOST). hanse recover --from-targets settles it. */
#include "controlplane/run/brain_internal.h"

#include "api/base/log.h"

#include <stdio.h>
#include <string.h>

struct back {
    struct brain *brain;
    struct root *root; /* as it was when BEGIN was in: whoever comes later is not meant */
    char ns[64], name[256];
};

static void back_next(struct back *x);

static void back_end(struct back *x)
{
    struct brain *b = x->brain;

    if (b->leads && !b->closing)
        list_for_each (it, &b->sites)
            site_sweep(container_of(it, struct site, link));
    (void)root_unref(x->root);
    mem_free(x);
    brain_under_way(b, -1);
}

static void lost_told(void *arg, const struct result *r, const struct err *err)
{
    (void)r; /* gone, or ended since: nothing is open about it */
    if (err)
        log_err(LOG_WARN, "state.went_back", err);
    back_next(arg);
}

static bool next_each(const struct object *o, void *arg)
{
    const struct object **ret = arg;
    const struct workload_status *s = object_as(o, workload)->status;

    if (!s || phase_final(s->phase))
        return true;
    *ret = o;
    return false;
}

static void back_next(struct back *x)
{
    struct brain *b = x->brain;
    const struct object *o = NULL;
    union command c = {.recover = {.head = {.type = CMD_RECOVER, .user = "hanse:brain"},
                                   .step = RECOVER_LOST}};

    if (b->leads && !b->closing)
        root_scan(x->root, KIND_WORKLOAD, NULL, *x->name ? x->ns : NULL, *x->name ? x->name : NULL,
                  next_each, &o);
    if (!o) {
        back_end(x);
        return;
    }
    (void)snprintf(x->ns, sizeof x->ns, "%s", o->meta->namespace_);
    (void)snprintf(x->name, sizeof x->name, "%s", o->meta->name);
    (void)snprintf(c.recover.ns, sizeof c.recover.ns, "%s", x->ns);
    (void)snprintf(c.recover.name, sizeof c.recover.name, "%s", x->name);
    (void)snprintf(c.recover.uid, sizeof c.recover.uid, "%s", o->meta->uid);
    brain_request_id(b, c.head.request_id);
    brain_propose(b, &c, lost_told, x);
}

static void back_begun(void *arg, const struct result *r, const struct err *err)
{
    struct back *x = arg;

    x->brain->went_back = false; /* if it is not in, the next sweep finds it again */
    if (err || r->code) {
        log_event(LOG_ERROR, "state.went_back",
                  LOG_FIELDS({"why", log_str(err ? err->text : r->text)}));
        back_end(x);
        return;
    }
    x->root = core_root(x->brain->cfg.core);
    back_next(x);
}

void brain_went_back(struct brain *b, uint64_t rv)
{
    union command c = {.recover = {.head = {.type = CMD_RECOVER, .user = "hanse:brain"},
                                   .step = RECOVER_BEGIN,
                                   .rv = rv + RECOVER_RV_JUMP}};
    struct back *x;

    if (b->went_back || root_feature_level(b->root) < FEATURE_GRANTS)
        return;
    b->went_back = true;
    log_event(LOG_ERROR, "state.went_back",
              LOG_FIELDS({"resourceVersion", log_u64(root_rv(b->root))}, {"seen", log_u64(rv)},
                         {"remedy", log_str("hanse recover --from-targets")}));
    cluster_next(root_cluster_uid(b->root), c.recover.cluster_uid);
    x = mem_new(struct back);
    x->brain = b;
    brain_under_way(b, 1);
    brain_request_id(b, c.head.request_id);
    brain_propose(b, &c, back_begun, x);
}
