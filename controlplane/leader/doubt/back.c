/* A state that went back: somebody put an older copy of the data in place. A target that was in
 * contact with a later state of the same cluster reveals it: agents remember how far that state had
 * come, and a run carries the uid and resourceVersion of the state that started it. From then on
 * the log says so: the cluster's next generation, a resourceVersion far ahead, and every workload
 * that has not ended may have gone on (RECOVER BEGIN and LOST). hanse recover --from-targets
 * settles it.
 *
 * While the state is in doubt, nothing is placed, dispatched, moved or ended. The same holds for as
 * long as this member leads by a state of which another log of its line went on (restored, or taken
 * on by one member alone). The state must not count as older before a majority has confirmed this
 * leadership: a member that lags behind would look the same. */

#include "controlplane/leader/doubt/back.h"

#include "api/base/failpoint.h"
#include "api/base/log.h"
#include "controlplane/leader/recover/sweep.h"
#include "controlplane/leader/site/sites.h"

#include <stdio.h>
#include <string.h>

#define CONFIRM_DEADLINE_MS 5000
#define AGAIN_MS 250
#define HEARD_MAX (1ull << 52) /* JSON carries it as a number */

/* ---- in doubt ---- */
/* most: how far r can have come when the target heard rv. Where r is now says nothing about
 * then. */
bool root_is_behind(const struct root *r, const char *cluster, uint64_t rv, uint64_t most)
{
    const char *own = root_cluster_uid(r);

    if (PLANTED("run.never-back") || !cluster_same_line(own, cluster) ||
        !cluster_same_log(own, cluster))
        return false;
    if (rv > HEARD_MAX)
        return false; /* no state has come so far: the report is wrong */
    return cluster_left_behind(own, cluster) ||
           (rv > (most < root_rv(r) ? most : root_rv(r)) && strcmp(own, cluster) == 0);
}

/* Another log of this line went on: the target follows that one, and this cluster is left
 * behind. */
bool root_left_behind(const struct root *r, const char *cluster)
{
    const char *own = root_cluster_uid(r);

    return cluster_left_behind(own, cluster) && !cluster_same_log(own, cluster);
}

static bool still_behind(struct brain *b)
{
    struct root *r = core_root(b->cfg.core);
    bool is = root_is_behind(r, b->back->cluster, b->back->rv,
                             rv_curve_most(&b->back->curve, b->back->time_ms));

    (void)root_unref(r);
    return is;
}

/* Called also while another member leads, because this one may be the next leader. */
void back_seen(struct brain *b)
{
    struct root *r = core_root(b->cfg.core);

    rv_curve_add(&b->back->curve, root_time(r), root_rv(r));
    (void)root_unref(r);
}

static void doubt_over(struct brain *b)
{
    b->in_doubt = false;
    timer_stop(&b->back->again);
    back_look(b);
    sites_sweep(b);
    brain_allowed(b);
}

static void confirmed(void *arg, const struct err *err)
{
    struct brain *b = arg;

    b->back->asking = false;
    if (!b->in_doubt || b->back->left)
        return;
    if (err)
        brain_later(b, &b->back->again, AGAIN_MS);
    else if (still_behind(b))
        brain_went_back(b, b->back->cluster, b->back->rv);
    else
        doubt_over(b);
}

static void doubt_ask(void *arg)
{
    struct brain *b = arg;

    if (!b->leads || b->back->asking || b->back->beginning)
        return;
    b->back->asking = true;
    brain_confirm(b, CONFIRM_DEADLINE_MS, confirmed, b);
}

/* Keeps the report that is furthest ahead. */
static void doubt(struct brain *b, const char *cluster, uint64_t rv, int64_t time_ms)
{
    bool other = strcmp(b->back->cluster, cluster) != 0;

    if (b->in_doubt && cluster_left_behind(cluster, b->back->cluster))
        return;
    if (!b->in_doubt || other || rv > b->back->rv) {
        b->back->rv = rv;
        b->back->time_ms = time_ms;
    }
    if (other)
        str_copy(b->back->cluster, sizeof b->back->cluster, cluster);
    b->in_doubt = true;
}

void brain_heard(struct brain *b, const char *target, const char *cluster, uint64_t rv,
                 int64_t time_ms)
{
    struct root *r = core_root(b->cfg.core);
    bool left = root_left_behind(r, cluster),
         behind = root_is_behind(r, cluster, rv, rv_curve_most(&b->back->curve, time_ms)) &&
                  root_feature_level(r) >= FEATURE_GRANTS;

    (void)root_unref(r);
    if (!b->leads || b->back->left || !(left || behind))
        return;
    log_event(LOG_WARN, "state.doubt",
              LOG_FIELDS({"target", log_str(target)}, {"cluster", log_str(cluster)},
                         {"heard", log_u64(rv)}, {"heardTime", log_i64(time_ms)},
                         {"most", log_u64(rv_curve_most(&b->back->curve, time_ms))}));
    if (left) { /* for as long as we lead */
        log_event(LOG_ERROR, "state.left_behind",
                  LOG_FIELDS({"cluster", log_str(root_cluster_uid(b->root))},
                             {"seenCluster", log_str(cluster)},
                             {"remedy", log_str("stop these members, or begin anew with their "
                                                "state: hanse restore")}));
        b->in_doubt = b->back->left = true;
        return;
    }
    doubt(b, cluster, rv, time_ms);
    doubt_ask(b);
}

void back_init(struct brain *b)
{
    timer_init(&b->back->again, b->loop, doubt_ask, b);
}

void back_fini(struct brain *b)
{
    rv_curve_fini(&b->back->curve);
}

bool back_marking(const struct brain *b)
{
    return b->back->marking;
}

void back_drop(struct brain *b)
{
    timer_stop(&b->back->again);
    b->in_doubt = b->back->left = false;
}

/* ---- marks: every workload that has not ended may have gone on ---- */
struct marking {
    struct brain *brain;
    struct root *root; /* the root at the start: workloads created later are not marked */
    char ns[64], name[256];
    bool failed; /* one could not be marked: begin again */
};

static void marking_next(struct marking *x);

static void marking_end(struct marking *x)
{
    struct brain *b = x->brain;
    bool again = x->failed;

    (void)root_unref(x->root);
    mem_free(x);
    b->back->marking = false;
    brain_under_way(b, -1);
    if (!b->leads)
        return;
    if (again)
        back_look(b);
    else
        sites_sweep(b);
}

static void lost_told(void *arg, const struct result *r, const struct err *err)
{
    struct marking *x = arg;

    (void)r; /* refused: it is gone or has ended since, and is settled */
    if (err) {
        log_err(LOG_WARN, "state.went_back", err);
        x->failed = true;
    }
    marking_next(x);
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

static void marking_next(struct marking *x)
{
    struct brain *b = x->brain;
    const struct object *o = NULL;
    union command c = {
        .recover = {.head = {.type = CMD_RECOVER, .user = "hanse:brain"}, .step = RECOVER_LOST}};

    if (b->leads)
        root_scan(x->root, KIND_WORKLOAD, NULL, *x->name ? x->ns : NULL, *x->name ? x->name : NULL,
                  next_each, &o);
    if (!o) {
        marking_end(x);
        return;
    }
    str_copy(x->ns, sizeof x->ns, o->meta->namespace_);
    str_copy(x->name, sizeof x->name, o->meta->name);
    str_copy(c.recover.ns, sizeof c.recover.ns, x->ns);
    str_copy(c.recover.name, sizeof c.recover.name, x->name);
    str_copy(c.recover.uid, sizeof c.recover.uid, o->meta->uid);
    brain_request_id(b, c.head.request_id);
    brain_propose(b, &c, lost_told, x);
}

/* Apply passes over a workload that is marked already: an earlier leader may have marked some. */
void back_look(struct brain *b)
{
    if (b->back->marking || !root_went_back(b->root))
        return;
    struct marking *x = mem_new(struct marking);
    x->brain = b;
    x->root = root_ref(b->root);
    b->back->marking = true;
    brain_under_way(b, 1);
    marking_next(x);
}

/* ---- into the log ---- */
static void begun(void *arg, const struct result *r, const struct err *err)
{
    struct brain *b = arg;

    b->back->beginning = false;
    if (!b->in_doubt || b->back->left)
        return; /* the next leader hears the same report */
    if (err || r->code) {
        log_event(LOG_ERROR, "state.went_back",
                  LOG_FIELDS({"why", log_str(err ? err->text : r->text)}));
        brain_later(b, &b->back->again, AGAIN_MS);
        return;
    }
    doubt_over(b);
}

void brain_went_back(struct brain *b, const char *cluster, uint64_t rv)
{
    union command c = {
        .recover = {.head = {.type = CMD_RECOVER, .user = "hanse:brain"}, .step = RECOVER_BEGIN}};
    uint64_t least = cluster_generation(cluster) + 1,
             now = (uint64_t)core_time_ms(b->cfg.core) / 1000;

    if (b->back->beginning || root_feature_level(b->root) < FEATURE_GRANTS)
        return;
    doubt(b, cluster, rv, 0);
    b->back->beginning = true;
    log_event(LOG_ERROR, "state.went_back",
              LOG_FIELDS({"cluster", log_str(root_cluster_uid(b->root))},
                         {"resourceVersion", log_u64(root_rv(b->root))},
                         {"seenCluster", log_str(cluster)}, {"seen", log_u64(rv)},
                         {"remedy", log_str("hanse recover --from-targets")}));
    c.recover.rv = (rv > root_rv(b->root) ? rv : root_rv(b->root)) + RECOVER_RV_JUMP;
    /* N is taken from the time, so that it differs from the N of any copy that was put back
     * before. */
    cluster_next_from(root_cluster_uid(b->root), now > least ? now : least, c.recover.cluster_uid);
    brain_request_id(b, c.head.request_id);
    brain_propose(b, &c, begun, b);
}
