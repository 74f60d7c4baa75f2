/* The catalogue of checkpoints: the meaning of RUN's CHECKPOINT and CHECKPOINT_BAD, and of SAVE:
 * requests to save and go on. Each verified checkpoint is an object, so that everybody sees what a
 * workload can resume from, and why not.
 *
 * An old epoch must never make its checkpoint current; a workload must never resume from a
 * checkpoint that was found bad; and the one that it resumes from must never be forgotten. */
#include "controlplane/store/store_internal.h"
#include "policy/policy.h"

#include <stdio.h>
#include <stdlib.h>

#define CK_STALE(t, ...) err_set((t)->err, E_STALE, __VA_ARGS__)
#define KEEP_LEAST 2 /* while one is read, and the next one turns out torn */

static bool is_good(const struct object *o)
{
    const struct checkpoint *c = object_as(o, checkpoint);

    return !c->status || !*c->status->reason;
}

/* Newest first. */
static int newer(const void *a, const void *b)
{
    const struct checkpoint_obj_spec *x =
        object_as(*(const struct object *const *)a, checkpoint)->spec;
    const struct checkpoint_obj_spec *y =
        object_as(*(const struct object *const *)b, checkpoint)->spec;

    if (x->epoch != y->epoch)
        return x->epoch < y->epoch ? 1 : -1;
    return x->step < y->step ? 1 : x->step > y->step ? -1 : 0;
}

struct catalogue {
    const struct object **v;
    size_t n, cap;
    struct arena *a;
};

static bool catalogue_each(const struct object *o, void *arg)
{
    struct catalogue *c = arg;

    if (c->n == c->cap) {
        const struct object **more = arena_array(c->a, const struct object *, 2 * c->cap + 8);

        if (c->n)
            memcpy(more, c->v, c->n * sizeof(const struct object *));
        c->v = more;
        c->cap = 2 * c->cap + 8;
    }
    c->v[c->n++] = o;
    return true;
}

static struct catalogue catalogue_of(struct txn *t, const struct object *wo)
{
    struct catalogue c = {.a = t->a};

    root_owned(t->w, wo->meta->uid, KIND_CHECKPOINT, catalogue_each, &c);
    if (c.n)
        qsort(c.v, c.n, sizeof(const struct object *), newer);
    return c;
}

/* Bad ones are kept as long as good ones of their age, so that the reason can be read. */
static void catalogue_bound(struct txn *t, const struct object *wo, const char *current)
{
    const struct checkpoint_spec *s = object_as(wo, workload)->spec->checkpoint;
    int64_t keep = s && s->keep > KEEP_LEAST ? s->keep : KEEP_LEAST, good = 0, bad = 0;
    struct catalogue c = catalogue_of(t, wo);

    for (size_t i = 0; i < c.n; i++) {
        bool over = is_good(c.v[i]) ? ++good > keep : ++bad > keep || good >= keep;

        if (over && strcmp(c.v[i]->meta->name, current) != 0)
            txn_forget(t, c.v[i]);
    }
}

static const char *checkpoint_name(struct txn *t, const struct object *wo, int64_t epoch,
                                   int64_t step)
{
    return workload_derived_name(
        t, wo->meta->name, arena_printf(t->a, "-e%lld-s%lld", (long long)epoch, (long long)step));
}

static const struct object *catalogued(const struct txn *t, const struct object *wo,
                                       const char *name)
{
    const struct object *o = root_get(t->w, KIND_CHECKPOINT, wo->meta->namespace_, name);

    return o && strcmp(object_as(o, checkpoint)->spec->workloadUid, wo->meta->uid) == 0 ? o : NULL;
}

static const char *last_target(const struct workload_status *s)
{
    return s->placement ? s->placement->target : s->n_ends ? s->ends[s->n_ends - 1].target : "";
}

/* Where what runs writes to, or what ran last: as it was told, whatever its spec says since. */
static const char *store_of(const struct object *wo, const struct workload_status *s)
{
    const struct checkpoint_spec *contract = object_as(wo, workload)->spec->checkpoint;
    const char *told = s->intent && phase_live(s->phase) ? s->intent->store
                       : s->n_ends                       ? s->ends[s->n_ends - 1].store
                                                         : "";

    return *told ? told : contract ? contract->store : "";
}

/* Makes or refreshes the entry of `ck`. */
static void catalogue_put(struct txn *t, const struct object *wo, const struct workload_status *s,
                          const struct run_checkpoint *ck)
{
    const struct kind *k = kind_by_id(KIND_CHECKPOINT);
    const struct object *old = root_get(t->w, k->id, wo->meta->namespace_, ck->name);
    struct checkpoint *c = NULL;

    if (old && !catalogued(t, wo, ck->name)) { /* of a workload of the same name, that is gone */
        txn_forget(t, old);
        old = NULL;
    }
    if (old) {
        c = object_edit_as(old, checkpoint, t->a);
    } else {
        c = arena_new(t->a, struct checkpoint);
        c->metadata = txn_meta(t, wo->meta->namespace_, ck->name);
        c->metadata->ownerReferences = workload_owner(t, wo);
        c->metadata->n_ownerReferences = 1;
        c->spec = arena_new(t->a, struct checkpoint_obj_spec);
        c->status = arena_new(t->a, struct checkpoint_obj_status);
    }
    if (!c->status)
        c->status = arena_new(t->a, struct checkpoint_obj_status);
    struct copy_at *at = arena_new(t->a, struct copy_at);
    *at = (struct copy_at){
        .target = last_target(s), .region = "", .url = ck->path, .verifiedAt = ck->verifiedAt};
    c->spec->workload = wo->meta->name;
    c->spec->workloadUid = wo->meta->uid;
    c->spec->epoch = ck->epoch;
    c->spec->step = ck->step;
    c->spec->bytes = ck->bytes;
    c->spec->digest = ck->digest;
    c->spec->locations = at;
    c->spec->n_locations = 1;
    c->spec->writeTime = ck->writeTime;
    c->spec->writtenAt = ck->writtenAt;
    c->spec->store = store_of(wo, s);
    c->spec->ranks = ck->ranks;
    c->spec->found = ck->found;
    *c->status =
        (struct checkpoint_obj_status){.verifiedAt = ck->verifiedAt, .reason = "", .message = ""};
    if (!old || !body_equal(&schema_checkpoint, c, old->body))
        (void)txn_put(t, k, old, c);
}

/* Whose checkpoint may be told now: of this epoch; as long as nothing of this one has run, of the
 * last one that did. 0: of none. */
static int64_t told_epoch(const struct workload_status *s)
{
    if (s->phase != PHASE_RESERVED)
        return s->epoch;
    return s->n_ends > 0 ? s->ends[s->n_ends - 1].epoch : 0;
}

/* Digest by digest: what was found bad is not current again. */
static int check_not_bad(struct txn *t, const struct object *wo, const struct run_checkpoint *ck)
{
    const struct object *entry = catalogued(t, wo, ck->name);

    if (entry && !is_good(entry) &&
        strcmp(object_as(entry, checkpoint)->spec->digest, ck->digest) == 0)
        return CK_STALE(t, "checkpoint %.200s was found bad: %.100s", ck->name,
                        object_as(entry, checkpoint)->status->reason);
    return 0;
}

int checkpoint_take(struct txn *t, const struct object *wo, struct workload_status *s,
                    const struct run_checkpoint *now, int64_t by_epoch)
{
    const struct run_checkpoint *old = s->checkpoint;
    int64_t epoch = told_epoch(s);

    if (!now || now->step < 0)
        return err_field(t->err, E_INVALID, "checkpoint", "a checkpoint was to be told");
    if (by_epoch != epoch || (now->epoch && now->epoch != epoch) || epoch == 0)
        return CK_STALE(t,
                        "checkpoint of epoch %lld, the workload is in epoch %lld: an old writer "
                        "cannot make its checkpoint current",
                        (long long)by_epoch, (long long)s->epoch);
    if (old && old->epoch == epoch && now->step < old->step)
        return CK_STALE(t, "checkpoint at step %lld, step %lld is verified already",
                        (long long)now->step, (long long)old->step);
    struct run_checkpoint *ck = arena_memdup(t->a, now, sizeof *ck);
    ck->epoch = epoch;
    ck->name = checkpoint_name(t, wo, epoch, ck->step);
    int r = check_not_bad(t, wo, ck);
    if (r < 0)
        return r;
    ck->found = false;
    if (!ck->verifiedAt)
        ck->verifiedAt =
            old && old->epoch == epoch && old->step == ck->step ? old->verifiedAt : t->now;
    if (ck->verifiedAt > t->now) /* by another clock */
        ck->verifiedAt = t->now;
    /* By the target's clock: never later than its digests were checked, never back. */
    if (!ck->writtenAt || ck->writtenAt > ck->verifiedAt)
        ck->writtenAt = ck->verifiedAt;
    if (old && old->epoch == epoch && ck->writtenAt < checkpoint_saved_at(old))
        ck->writtenAt = checkpoint_saved_at(old);
    s->checkpoint = ck;
    catalogue_put(t, wo, s, ck);
    catalogue_bound(t, wo, ck->name);
    return 0;
}

/* ---- one that nobody was told of ---- */
static const struct run_end *end_of(const struct workload_status *s, int64_t epoch)
{
    for (uint32_t i = s->n_ends; i > 0; i--)
        if (s->ends[i - 1].epoch == epoch)
            return &s->ends[i - 1];
    return NULL;
}

/* The move that leads here resumes from more than was known when the old epoch ended. */
static void move_found(struct txn *t, const struct object *wo, const struct workload_status *s,
                       const struct run_checkpoint *ck, const struct run_end *end)
{
    const struct object *o =
        *s->migration ? root_get(t->w, KIND_MIGRATION, wo->meta->namespace_, s->migration) : NULL;
    int64_t ms = end && end->at > ck->writtenAt ? end->at - ck->writtenAt : 0;

    if (!o || !object_open_move(o) || object_as(o, migration)->status->fromEpoch != ck->epoch)
        return;
    struct migration *m = object_edit_as(o, migration, t->a);
    double lost = (double)s->placement->gpus / 1000 * (double)ms / 1000;
    m->status->checkpoint = ck->name;
    m->status->step = ck->step;
    if (lost < m->status->lostGpuSeconds)
        m->status->lostGpuSeconds = lost;
    (void)txn_put(t, o->kind, o, m);
}

/* Not the writer of the checkpoint makes it current, but the target that is about to start the next
 * epoch. A later writer has no say: from DISPATCH on nothing of an old epoch is taken. */
int checkpoint_found(struct txn *t, const struct object *wo, struct workload_status *s,
                     const struct run_checkpoint *now)
{
    const struct run_checkpoint *old = s->checkpoint;
    int64_t ended = epoch_ended(s);
    int r;

    if (!now || now->step < 0 || now->epoch <= 0 || !*now->path || !*now->digest)
        return err_field(t->err, E_INVALID, "checkpoint",
                         "a checkpoint that was found was to be told, with its epoch and path");
    if (now->epoch > ended)
        return CK_STALE(t, "checkpoint of epoch %lld: the newest that is proved ended is %lld",
                        (long long)now->epoch, (long long)ended);
    if (old && (old->epoch > now->epoch || (old->epoch == now->epoch && old->step >= now->step)))
        return CK_STALE(t, "checkpoint at step %lld of epoch %lld: %.200s is as new",
                        (long long)now->step, (long long)now->epoch, old->name);
    struct run_checkpoint *ck = arena_memdup(t->a, now, sizeof *ck);
    const struct run_end *end = end_of(s, ck->epoch);
    ck->name = checkpoint_name(t, wo, ck->epoch, ck->step);
    if ((r = check_not_bad(t, wo, ck)) < 0)
        return r;
    ck->found = true;
    ck->verifiedAt = t->now;
    int64_t latest = end && end->at < t->now ? end->at : t->now;
    if (!ck->writtenAt || ck->writtenAt > latest) /* by another clock */
        ck->writtenAt = latest;
    s->checkpoint = ck;
    catalogue_put(t, wo, s, ck);
    catalogue_bound(t, wo, ck->name);
    move_found(t, wo, s, ck, end);
    return 0;
}

void checkpoint_adopt(struct txn *t, const struct object *wo, const struct run_checkpoint *from)
{
    if (!from || from->epoch < 1 || !*from->path || !*from->digest)
        return;
    struct object *kept = object_ref(wo);
    struct workload *w = object_edit_as(wo, workload, t->a);
    struct run_checkpoint *ck = arena_memdup(t->a, from, sizeof *ck);
    ck->name = checkpoint_name(t, wo, ck->epoch, ck->step);
    if (!ck->verifiedAt || ck->verifiedAt > t->now)
        ck->verifiedAt = t->now;
    if (!ck->writtenAt || ck->writtenAt > ck->verifiedAt)
        ck->writtenAt = ck->verifiedAt;
    w->status->checkpoint = ck;
    catalogue_put(t, wo, w->status, ck);
    (void)txn_put(t, wo->kind, wo, w);
    (void)object_unref(kept);
}

/* ---- one that cannot be resumed from ---- */
static bool same_checkpoint(const struct run_checkpoint *a, int64_t epoch, int64_t step,
                            const char *digest)
{
    return a->epoch == epoch && a->step == step && strcmp(a->digest, digest) == 0;
}

/* The newest good one, as the workload tells it. */
static struct run_checkpoint *fall_back(struct txn *t, const struct object *wo, int64_t interval)
{
    struct catalogue c = catalogue_of(t, wo);

    for (size_t i = 0; i < c.n; i++) {
        const struct checkpoint *e = object_as(c.v[i], checkpoint);
        struct run_checkpoint *ck = arena_new(t->a, struct run_checkpoint);

        if (!is_good(c.v[i]))
            continue;
        *ck = (struct run_checkpoint){
            .step = e->spec->step,
            .verifiedAt = e->status ? e->status->verifiedAt : 0,
            .digest = arena_strdup(t->a, e->spec->digest),
            .name = arena_strdup(t->a, c.v[i]->meta->name),
            .epoch = e->spec->epoch,
            .bytes = e->spec->bytes,
            .path = e->spec->n_locations ? arena_strdup(t->a, e->spec->locations[0].url) : "",
            .writeTime = e->spec->writeTime,
            .ranks = e->spec->ranks,
            .found = e->spec->found,
            .interval = interval};
        return ck;
    }
    return NULL;
}

int checkpoint_bad(struct txn *t, const struct object *wo, struct workload_status *s,
                   const struct run_checkpoint *bad, const char *reason, const char *message)
{
    if (!bad || !*reason)
        return err_field(t->err, E_INVALID, "checkpoint",
                         "which checkpoint cannot be resumed from, and why, was to be told");
    const char *name = checkpoint_name(t, wo, bad->epoch, bad->step);
    const struct object *o = catalogued(t, wo, name);
    bool current =
        s->checkpoint && same_checkpoint(s->checkpoint, bad->epoch, bad->step, bad->digest);
    if (o && strcmp(object_as(o, checkpoint)->spec->digest, bad->digest) != 0)
        o = NULL; /* another one has taken its place since */
    if (!o && !current)
        return CK_STALE(t, "checkpoint %.200s with this digest is not known", name);
    if (o && is_good(o)) {
        struct checkpoint *c = object_edit_as(o, checkpoint, t->a);

        if (!c->status)
            c->status = arena_new(t->a, struct checkpoint_obj_status);
        c->status->reason = reason;
        c->status->message = message;
        (void)txn_put(t, o->kind, o, c);
    }
    if (current)
        s->checkpoint = fall_back(t, wo, s->checkpoint->interval);
    return 0;
}

/* ---- requests to save and go on ---- */
static bool save_open(const struct save_status *v)
{
    return v->asked > v->saved && v->asked > v->failed;
}

static struct save_status *save_edit(struct txn *t, struct workload_status *s)
{
    static const struct save_status none = {.checkpoint = "", .reason = "", .message = ""};

    s->save = arena_memdup(t->a, s->save ? s->save : &none, sizeof none);
    return s->save;
}

static void save_fail(struct save_status *v, int64_t number, const char *reason,
                      const char *message)
{
    v->failed = number;
    if (v->asked < number)
        v->asked = number;
    v->reason = reason;
    v->message = message;
}

int checkpoint_save(struct txn *t, struct workload *w, enum phase from, const struct run_cmd *c)
{
    const struct save_status *told = c->save;
    struct workload_status *s = w->status;
    struct save_status *v = save_edit(t, s);
    const struct run_checkpoint *ck = s->checkpoint;

    if (!told || (told->asked > 0) + (told->saved > 0) + (told->failed > 0) != 1)
        return err_field(t->err, E_INVALID, "save",
                         "one of asked, saved and failed was to be told");
    int64_t number = told->asked + told->saved + told->failed;
    bool open = save_open(v), next = number > v->asked && number <= w->spec->saveRequest;
    if (told->saved ? !open || number != v->asked
                    : !(open && told->failed && number == v->asked) &&
                          (open || !next || from != PHASE_RUNNING))
        return CK_STALE(t, "request %lld to save; %lld was asked for last, %lld is wanted",
                        (long long)number, (long long)v->asked, (long long)w->spec->saveRequest);
    if (told->saved && (!ck || ck->epoch != s->epoch))
        return CK_STALE(t, "request %lld is said to be saved, and no checkpoint of epoch %lld is",
                        (long long)number, (long long)s->epoch);
    if (told->asked) {
        v->asked = number;
        v->askedAt = t->now;
    } else if (told->failed) {
        save_fail(v, number, c->reason, c->message);
    } else {
        v->saved = number;
        v->savedAt = t->now;
        v->checkpoint = ck->name;
        v->step = ck->step;
    }
    return 0;
}

void checkpoint_save_ended(struct txn *t, struct workload *w, enum phase to)
{
    struct save_status *v = w->status->save;
    bool never = root_feature_level(t->w) >= FEATURE_GRANTS && phase_final(to) &&
                 w->spec->saveRequest > (v ? v->asked : 0);

    if (!never && !(v && save_open(v)))
        return;
    v = save_edit(t, w->status);
    save_fail(v, never ? w->spec->saveRequest : v->asked, "RunEnded",
              "its run ended before it was known to have saved for this; what it saved in the end "
              "is its newest checkpoint");
}
