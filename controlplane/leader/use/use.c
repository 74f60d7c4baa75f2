/* How busy the GPUs of runs are. Targets tell it every minute or so, and the log hears of it only
 * what is worth an entry: that it is measured at all, or no more; that all GPUs of the run have
 * come to do nothing, or do something again; and what else has changed, once in a quarter of an
 * hour. Where that comes too often it waits, until there are no more than four an hour for long. No
 * idle time is lost by that: each entry brings what was gathered since the one before.
 *
 * This file must never tell of a GPU that is not measured, nor of shares of one: what several runs
 * do with it, nobody knows apart. Nor must it count a time in which nobody measured. */
#include "controlplane/leader/use/use.h"

#include "api/base/log.h"
#include "controlplane/leader/context/index.h"
#include "controlplane/leader/context/refusals.h"
#include "controlplane/leader/keep/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TELL_EVERY_MS 900000
#define AT_ONCE_MAX 4 /* entries; each further one has to wait for TELL_EVERY_MS */
#define AGAIN_MS 10000
#define PERCENT_NEWS 5

struct used { /* a Workload that runs, and is measured */
    struct brain *brain;
    struct indexed by_uid;
    struct list link;
    char uid[64];
    const struct object *o; /* as the newest root has it; holds a reference */
    int64_t epoch, try_;
    struct timer over; /* nothing was told of it for long */
    bool telling, dead;
    int64_t spent_ms, spent_at; /* how much room its entries had used up by then */
    bool gathered;              /* it is measured no more, and the log has what it did before */
    /* By the log's time: since then, and until then, it was measured; so much of it was, and was
     * idle. */
    int64_t seen_since, seen, seen_measured, seen_idle;
    /* What it did since the log heard of it; and what the entry that is under way says. */
    struct sums {
        int64_t measured_ms;
        int64_t idle; /* 1/1000 GPU × ms */
        int64_t late; /* likewise: what an entry had no room for */
    } sums, under_way;
    int64_t told_at;            /* of the entry ahead of that one; 0: there was none */
    uint64_t percent, readings; /* percent: their sum, since the log heard of it */
    struct gpu_use now;         /* as it was told last; measured 0: nothing was */
};

static int64_t try_of(const struct workload_status *s)
{
    return s->intent ? s->intent->try_ : 0;
}

static const struct workload_status *status_of(const struct used *d)
{
    return object_as(d->o, workload)->status;
}

/* ---- what it holds ---- */
static int64_t devices_of(const struct placement *p)
{
    int64_t n = 0;

    for (uint32_t i = 0; i < p->n_assignments; i++) {
        const struct assignment *a = &p->assignments[i];
        bool cut = a->mig && *a->mig;
        if (a->shares > 0 || a->gpuMilli <= 0 || (a->gpuMilli < 1000 && !cut))
            return 0;
        n += a->count > 0 ? a->count : a->n_gpus;
    }
    return n;
}

static int64_t milli_of(const struct placement *p, int64_t all, uint32_t devices)
{
    return p->gpus * (devices < all ? devices : all) / all;
}

static uint64_t idle_after(const struct used *d)
{
    const char *queue = status_of(d)->queue;
    const struct object *o = *queue ? root_get(d->brain->root, KIND_QUEUE, "", queue) : NULL;
    const struct queue_spec *s = o ? object_as(o, queue)->spec : NULL;

    return (uint64_t)(s && s->idleAfter > 0 ? s->idleAfter
                                            : schema_default_ms(&schema_queue_spec, "idleAfter"));
}

/* ---- how often ---- */
static int64_t spent_ms(const struct used *d)
{
    int64_t left = d->spent_ms - (brain_time_ms(d->brain) - d->spent_at);

    return left > 0 ? left : 0;
}

static bool has_room(const struct used *d)
{
    return spent_ms(d) <= (int64_t)(AT_ONCE_MAX - 1) * TELL_EVERY_MS;
}

static void spend(struct used *d)
{
    d->spent_ms = spent_ms(d) + TELL_EVERY_MS;
    d->spent_at = brain_time_ms(d->brain);
}

/* ---- what it did since the log heard of it ---- */
/* From one reading to the next it is what it was. Those that are found idle have been for a
 * while. */
static void gather(struct used *d, const struct gpu_use *is)
{
    int64_t now = brain_time_ms(d->brain), ms = now - d->seen, since;
    int64_t more = is->idle - d->seen_idle, most = d->seen_measured - d->seen_idle;

    if (!d->seen_measured || ms > RUN_USE_FRESH_MS) {
        d->seen_since = now;
    } else if (ms > 0) {
        since = is->idleSince > d->seen_since ? is->idleSince : d->seen_since;
        more = more < most ? more : most;
        d->sums.measured_ms += ms;
        d->sums.idle += d->seen_idle * ms;
        d->sums.idle += more > 0 && since < now ? more * (now - since) : 0;
    }
    d->seen = now;
    d->seen_measured = is->measured;
    d->seen_idle = is->idle;
}

/* ---- what is told ---- */
/* The log may know of a longer rest than the target does, which begins to count with the leader. It
 * goes on where no more devices are measured now, and readings are not far apart: also those of the
 * leader before, who would have told the log that there are none. */
static uint64_t rested_ms(const struct used *d, const struct gpu_use *is, int64_t now)
{
    const struct gpu_use *had = status_of(d)->gpuUse;

    return had && had->idle && had->idle == had->measured && is->measured <= had->measured &&
                   now - d->seen <= RUN_USE_FRESH_MS && now > had->idleSince
               ? (uint64_t)(now - had->idleSince)
               : 0;
}

static void use_make(const struct used *d, const struct run_use *u, struct gpu_use *ret)
{
    const struct placement *p = status_of(d)->placement;
    const struct gpu_use *had = status_of(d)->gpuUse;
    int64_t all = devices_of(p), now = brain_time_ms(d->brain);
    uint64_t after = idle_after(d), idle_ms = u->idle_ms, resting_ms = u->resting_ms;
    uint32_t idle = u->idle;

    *ret = (struct gpu_use){.percent = u->percent, .memory = u->memory_bytes};
    if (!all || !u->devices)
        return;
    ret->measured = milli_of(p, all, u->devices);
    bool rests = u->resting == u->devices;
    uint64_t rested = rests ? rested_ms(d, ret, now) : 0;
    resting_ms = rested > resting_ms ? rested : resting_ms;
    bool told = rests && resting_ms >= after;
    if (rests && (told || resting_ms >= RUN_IDLE_MS)) {
        idle = u->devices;
        idle_ms = resting_ms;
    }
    ret->idle = idle == u->devices ? ret->measured : milli_of(p, all, idle);
    ret->idleSince = ret->idle ? now - (int64_t)idle_ms : 0;
    ret->told = told || (had && had->told && ret->idle == ret->measured);
}

static bool all_rest(const struct gpu_use *u)
{
    return u->measured && u->idle == u->measured;
}

static int64_t apart(int64_t a, int64_t b)
{
    return a > b ? a - b : b - a;
}

/* Is it worth an entry by now? That it does something again always is: what was told of it would
 * be wrong. */
static bool news(const struct used *d, const struct gpu_use *is)
{
    const struct gpu_use *was = status_of(d)->gpuUse;

    if (was && all_rest(was) && !all_rest(is))
        return true;
    if (!has_room(d))
        return false;
    if (!was || all_rest(is) != all_rest(was) || is->told != was->told)
        return true;
    if (brain_time_ms(d->brain) - was->at < TELL_EVERY_MS)
        return false;
    return is->measured != was->measured || is->idle != was->idle ||
           d->sums.idle != was->idle * d->sums.measured_ms ||
           apart(is->percent, was->percent) >= PERCENT_NEWS ||
           apart(is->memory, was->memory) > was->memory / 10;
}

static void used_free(struct used *d)
{
    timer_stop(&d->over);
    d->dead = true;
    if (d->telling)
        return;
    index_remove(&d->brain->uses->by_uid, &d->by_uid);
    list_remove(&d->link);
    (void)object_unref(d->o);
    mem_free(d);
}

static void look(struct used *d);

static void answered(void *arg, const struct result *r, const struct err *err)
{
    struct used *d = arg;
    const struct gpu_use *has = d->dead ? NULL : status_of(d)->gpuUse;
    bool heard = !err && !r->code;

    if (!err && r->code && r->code != E_STALE)
        log_event(LOG_WARN, "run.use",
                  LOG_FIELDS({"workload", log_str(d->o->meta->name)}, {"why", log_str(r->text)}));
    d->telling = false; /* what is not in the log by now is told with the next reading */
    if (d->dead) {
        used_free(d);
        return;
    }
    if (!heard && has && has->at == d->told_at) {
        d->sums.measured_ms += d->under_way.measured_ms;
        d->sums.idle += d->under_way.idle;
        d->sums.late = d->under_way.late;
    }
    d->gathered = d->gathered && heard;
    if (d->gathered)
        look(d);
    if (!d->telling && !timer_active(&d->over))
        timer_start(&d->over, AGAIN_MS); /* or, where there is none any more, then */
}

/* What was found idle late may be more than all that was measured since the entry before: the rest
 * of it goes with the next one. */
static void sums_put(struct used *d, const struct gpu_use *was, struct gpu_use *told)
{
    const struct sums *s = &d->under_way;
    int64_t idle = s->idle + s->late, most = was->measured * s->measured_ms;

    told->measuredFor = s->measured_ms > 0 ? s->measured_ms : 1;
    told->idleSum = idle < most ? idle : most;
    d->sums.late = idle - told->idleSum;
}

static void propose(struct used *d, struct gpu_use *told)
{
    const struct gpu_use *was = status_of(d)->gpuUse;
    union command c = {.run = {.head = {.type = CMD_RUN, .user = "hanse:use"},
                               .step = STEP_USE,
                               .epoch = d->epoch,
                               .try_ = d->try_,
                               .use = told}};

    brain_request_id(d->brain, c.head.request_id);
    str_copy(c.run.ns, sizeof c.run.ns, d->o->meta->namespace_);
    str_copy(c.run.name, sizeof c.run.name, d->o->meta->name);
    str_copy(c.run.uid, sizeof c.run.uid, d->uid);
    d->under_way = d->sums;
    d->sums = (struct sums){0};
    if (told)
        told->measuredFor = told->idleSum = 0;
    if (told && was)
        sums_put(d, was, told);
    d->told_at = was ? was->at : 0;
    spend(d);
    d->percent = d->readings = 0;
    d->telling = true;
    brain_propose(d->brain, &c, answered, d);
}

/* Nobody measures it any more. What it did before goes into the log first, so that the time since
 * then does not count. */
static void end_tell(struct used *d)
{
    const struct gpu_use *was = status_of(d)->gpuUse;
    struct gpu_use told;
    bool ends = d->gathered;

    if (!was)
        return;
    told = *was;
    d->gathered = true;
    propose(d, ends ? NULL : &told);
}

static void look(struct used *d)
{
    struct gpu_use told = d->now;

    if (d->telling || d->dead || root_feature_level(d->brain->root) < FEATURE_TELLS)
        return;
    if (!told.measured) {
        end_tell(d);
        return;
    }
    if (d->readings)
        told.percent = (int64_t)(d->percent / d->readings);
    if (all_rest(&told))
        told.percent = 0; /* it is what it is now, whatever it was before */
    if (news(d, &told))
        propose(d, &told);
}

static void forget(struct used *d)
{
    d->now = (struct gpu_use){0};
    d->percent = d->readings = 0;
    d->seen_measured = d->seen_idle = 0;
}

/* It is looked at again once what is under way is answered. How often it was told of is known for
 * as long as that counts. */
static void over(void *arg)
{
    struct used *d = arg;

    forget(d);
    look(d);
    if (!d->telling && !spent_ms(d))
        used_free(d);
    else if (!d->telling)
        timer_start(&d->over, (uint64_t)spent_ms(d));
}

/* ---- the table ---- */
static struct used *used_find(struct brain *b, const char *uid)
{
    struct indexed *e = index_find(&b->uses->by_uid, uid);

    return e ? container_of(e, struct used, by_uid) : NULL;
}

static bool runs(const struct object *o)
{
    const struct workload_status *s = o ? object_as(o, workload)->status : NULL;

    return s && s->phase == PHASE_RUNNING && s->placement &&
           !workload_array(object_as(o, workload));
}

static struct used *used_create(struct brain *b, const struct object *o)
{
    struct used *d = mem_new(struct used);

    d->brain = b;
    str_copy(d->uid, sizeof d->uid, o->meta->uid);
    d->by_uid.key = d->uid;
    timer_init(&d->over, b->loop, over, d);
    index_add(&b->uses->by_uid, &d->by_uid);
    list_push(&b->uses->all, &d->link);
    return d;
}

static void used_take(struct used *d, const struct object *o)
{
    const struct workload_status *s = object_as(o, workload)->status;

    (void)object_unref(d->o);
    d->o = object_ref(o);
    if (d->epoch == s->epoch && d->try_ == try_of(s))
        return;
    d->epoch = s->epoch;
    d->try_ = try_of(s);
    d->sums = d->under_way = (struct sums){0};
    d->gathered = false;
    forget(d);
}

static void event(struct brain *b, const struct object *before, const struct object *after)
{
    const struct workload_status *was = object_as(before, workload)->status,
                                 *is = object_as(after, workload)->status;
    char since[32];
    double gpus, measured;

    if (!is || !is->gpuUse || !is->gpuUse->told || !is->placement ||
        (was && was->gpuUse && was->gpuUse->told))
        return;
    time_print(is->gpuUse->idleSince, since);
    gpus = (double)is->placement->gpus / 1000;
    measured = (double)is->gpuUse->measured / 1000;
    if (is->gpuUse->measured < is->placement->gpus)
        events_of_checkpoint(b, after, "GPUIdle",
                             "%g of its %g GPUs on %.200s have done nothing since %s, and the "
                             "others are not measured; nobody else can have them",
                             measured, gpus, is->placement->target, since);
    else
        events_of_checkpoint(b, after, "GPUIdle",
                             "its GPUs have done nothing since %s, and nobody else can have "
                             "them: %g on %.200s",
                             since, gpus, is->placement->target);
}

void use_change(struct brain *b, const struct object *before, const struct object *after)
{
    const struct object *o = after ? after : before;
    struct used *d = o ? used_find(b, o->meta->uid) : NULL;

    if (before && after)
        event(b, before, after);
    if (!d)
        return;
    d->dead = !runs(after);
    if (d->dead)
        used_free(d);
    else
        used_take(d, after);
}

/* Who led before has told the log of it: where nobody tells of it any more, the log hears that. He
 * measured it until the newest entry, as far as anybody knows. */
static void reset_one(struct brain *b, struct used *d, const struct object *o)
{
    const struct gpu_use *had = object_as(o, workload)->status->gpuUse;
    int64_t now = brain_time_ms(b);

    used_take(d, o);
    forget(d);
    d->dead = d->gathered = false;
    d->seen = root_time(b->root);
    d->sums = d->under_way = (struct sums){0};
    if (had) {
        d->sums = (struct sums){.measured_ms = d->seen - had->at,
                                .idle = had->idle * (d->seen - had->at)};
        d->seen_since = had->at;
        d->seen_measured = had->measured;
        d->seen_idle = had->idle;
    }
    timer_start(&d->over, now - d->seen > RUN_USE_FRESH_MS ? 0 : RUN_USE_FRESH_MS);
}

static bool reset_each(const struct object *o, void *arg)
{
    struct brain *b = arg;

    if (runs(o) && object_as(o, workload)->status->gpuUse && !used_find(b, o->meta->uid))
        reset_one(b, used_create(b, o), o);
    return true;
}

void uses_reset(struct brain *b)
{
    list_for_each_safe (it, tmp, &b->uses->all) {
        struct used *d = container_of(it, struct used, link);
        const struct object *o = root_workload_by_uid(b->root, d->uid);
        if (runs(o))
            reset_one(b, d, o);
        else
            used_free(d);
    }
    root_scan(b->root, KIND_WORKLOAD, NULL, NULL, NULL, reset_each, b);
}

void uses_init(struct brain *b)
{
    list_init(&b->uses->all);
}

void uses_drop(struct brain *b)
{
    list_for_each_safe (it, tmp, &b->uses->all)
        used_free(container_of(it, struct used, link));
}

void use_told(struct brain *b, const char *target, const struct run_use *u)
{
    const struct object *o = root_workload_by_uid(b->root, u->key.uid);
    const struct workload_status *s = runs(o) ? object_as(o, workload)->status : NULL;

    if (!s || strcmp(s->placement->target, target) != 0 || u->key.epoch != s->epoch ||
        u->key.try_ != try_of(s))
        return;
    struct used *d = used_find(b, u->key.uid);
    d = d ? d : used_create(b, o);
    d->dead = false;
    used_take(d, o);
    use_make(d, u, &d->now);
    gather(d, &d->now);
    d->gathered = false;
    d->percent += u->percent < 100 ? u->percent : 100;
    d->readings++;
    timer_start(&d->over, RUN_USE_FRESH_MS);
    look(d);
}

/* ---- figures ---- */
struct sum {
    const char *target;
    int64_t measured, idle, busy; /* busy: 1/1000 GPU × percent */
};

static int by_target(const void *a, const void *b)
{
    return strcmp(((const struct sum *)a)->target, ((const struct sum *)b)->target);
}

/* Sums by target, where anything is measured; returns how many. */
static size_t sums_make(const struct brain *b, struct sum *v)
{
    size_t n = 0, k = 0;

    list_for_each (it, &b->uses->all) {
        const struct used *d = container_of(it, struct used, link);
        const struct gpu_use *u = &d->now;
        if (u->measured)
            v[n++] = (struct sum){status_of(d)->placement->target, u->measured, u->idle,
                                  u->measured * u->percent};
    }
    qsort(v, n, sizeof *v, by_target);
    for (size_t i = 0; i < n; i++) {
        if (k == 0 || by_target(&v[k - 1], &v[i]) != 0) {
            v[k++] = v[i];
            continue;
        }
        v[k - 1].measured += v[i].measured;
        v[k - 1].idle += v[i].idle;
        v[k - 1].busy += v[i].busy;
    }
    return k;
}

/* A target where nothing is measured has no figure: that is no 0. */
void uses_metrics(struct brain *b, struct buf *out)
{
    static const struct {
        const char *name, *help;
    } rows[] = {
        {"hanse_target_gpus_measured", "GPUs that runs hold, whose use the target measures"},
        {"hanse_target_gpus_idle", "of these: GPUs that have done nothing for minutes"},
        {"hanse_target_gpu_utilisation_ratio", "how busy these are, 0 to 1"}};
    size_t all = 0;

    list_for_each (it, &b->uses->all)
        all++;
    struct sum *v = mem_alloc((all + 1) * sizeof *v);
    size_t n = sums_make(b, v);
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        buf_printf(out, "# HELP %s %s\n# TYPE %s gauge\n", rows[i].name, rows[i].help,
                   rows[i].name);
        for (size_t k = 0; k < n; k++)
            buf_printf(out, "%s{target=\"%s\"} %g\n", rows[i].name, v[k].target,
                       i == 0   ? (double)v[k].measured / 1000
                       : i == 1 ? (double)v[k].idle / 1000
                                : (double)v[k].busy / (double)v[k].measured / 100);
    }
    mem_free(v);
}
