/* core/v1 Events of placements, moves and ends, for people: `hanse describe`, `kubectl describe`.
 *
 * There is one object for each workload (or target) and reason, with a count; it is removed with
 * its workload. Events must never hold anything up: one that does not fit is dropped, and one that
 * is refused is forgotten. */

#include "controlplane/leader/keep/events.h"

#include "api/base/hash.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FLUSH_EVERY_MS 500
#define FLUSH_MAX 32
#define AGAIN_MIN_MS 10000  /* an Event that repeats is written no more often, */
#define AGAIN_SAME_MS 60000 /* and with the same message less often still */

struct told { /* an event that waits for the next flush */
    struct list link;
    enum kind_id kind;
    char ns[64], name[256], uid[64];
    const char *reason; /* static */
    bool warning, lasts; /* lasts: also when what it is about has left the state */
    char message[512];
};

static void PRINTF_LIKE(6, 7) tell(struct brain *b, const char *ns, const char *name,
                                   const char *uid, const char *reason, const char *fmt, ...)
{
    static const char *const warnings[] = {
        "TargetUnreachable", "NotReplaced",       "Stopped",      "Failed",   "MoveFailed",
        "StoreNotSearched",  "CheckpointRefused", "TwoAgents",    "BookFull", "AgentReplaced",
        "SaveFailed",        "GoesAway",          "CheckpointBad", "MachineUnknown",
        "PriceAboveCap",     "OrderRefused",      "EndDenied",    "NotAsOrdered",
        "MachinesEndEarly",  "MachineUnreadable", "NotAnswered",   "MachineLeft",
        "RunNotRead",        "DeletionWaits",     "LeftBehind",   "NotDiagnosed",
        "NamespaceNotKept",  "GPUIdle"};
    struct events *e = b->events;
    struct told *t;
    va_list ap;

    if (!e || e->n == EVENTS_MAX) /* NULL: a brain without this part */
        return;
    t = mem_new(struct told);
    t->kind = KIND_WORKLOAD;
    str_copy(t->ns, sizeof t->ns, ns);
    str_copy(t->name, sizeof t->name, name);
    str_copy(t->uid, sizeof t->uid, uid);
    t->reason = reason;
    for (size_t i = 0; i < sizeof warnings / sizeof *warnings; i++)
        t->warning |= !strcmp(reason, warnings[i]);
    va_start(ap, fmt);
    (void)vsnprintf(t->message, sizeof t->message, fmt, ap);
    va_end(ap);
    for (size_t n = strlen(t->message); n && t->message[n - 1] == ' '; n--)
        t->message[n - 1] = '\0'; /* nothing is said of it but its reason */
    list_push(&e->waiting, &t->link);
    e->n++;
    if (!timer_active(&e->timer))
        timer_start(&e->timer, FLUSH_EVERY_MS);
}

/* ---- what is worth telling ---- */
static void of_workload(struct brain *b, const struct object *o, const struct workload_status *was,
                        const struct workload_status *s)
{
    const struct meta *m = o->meta;
    const char *ns = m->namespace_, *target = s->placement ? s->placement->target : "";
    const struct run_end *end = s->n_ends ? &s->ends[s->n_ends - 1] : NULL;

    if (workload_array(object_as(o, workload)) && s->phase == PHASE_RUNNING) {
        tell(b, ns, m->name, m->uid, "Started", "%lld indexes",
             (long long)object_as(o, workload)->spec->array->count);
        return;
    }
    switch (s->phase) {
    case PHASE_RESERVED:
        if (was && was->epoch != s->epoch)
            tell(b, ns, m->name, m->uid, "Placed", "on %s in epoch %lld: %.300s", target,
                 (long long)s->epoch, s->message);
        return;
    case PHASE_RUNNING:
        if (was && was->phase == PHASE_UNKNOWN)
            tell(b, ns, m->name, m->uid, "Reachable", "%s is in reach again; it went on", target);
        else if (*s->resumedFrom)
            tell(b, ns, m->name, m->uid, "Started", "on %s in epoch %lld, from step %lld", target,
                 (long long)s->epoch, (long long)s->resumedStep);
        else
            tell(b, ns, m->name, m->uid, "Started", "on %s in epoch %lld", target,
                 (long long)s->epoch);
        return;
    case PHASE_UNKNOWN:
        tell(b, ns, m->name, m->uid, "TargetUnreachable", "%s: %.300s", target, s->message);
        return;
    case PHASE_QUEUED:
        if (was && phase_live(was->phase) && end)
            tell(b, ns, m->name, m->uid, "Requeued", "it ended on %s: %s%s%.300s", end->target,
                 end->reason, *end->message ? " " : "", end->message);
        return;
    case PHASE_STOPPED:
    case PHASE_SUCCEEDED:
    case PHASE_FAILED:
    case PHASE_CANCELLED:
        tell(b, ns, m->name, m->uid, phase_text(s->phase), "%s%s%.300s", s->reason,
             *s->message ? " " : "", s->message);
        return;
    default:
        return;
    }
}

/* More is saved than anybody was told of. */
static void of_found(struct brain *b, const struct object *o, const struct workload_status *was,
                     const struct workload_status *s)
{
    const struct run_checkpoint *ck = s->checkpoint, *old = was->checkpoint;
    const struct meta *m = o->meta;

    if (s->phase != PHASE_RESERVED || (old && !strcmp(old->name, ck->name)))
        return;
    if (old)
        tell(b, m->namespace_, m->name, m->uid, "CheckpointFound",
             "%s found step %lld of epoch %lld in the store; step %lld of epoch %lld was known",
             s->placement ? s->placement->target : "", (long long)ck->step, (long long)ck->epoch,
             (long long)old->step, (long long)old->epoch);
    else
        tell(b, m->namespace_, m->name, m->uid, "CheckpointFound",
             "%s found step %lld of epoch %lld in the store; none was known",
             s->placement ? s->placement->target : "", (long long)ck->step, (long long)ck->epoch);
}

/* Work is lost for it: it goes on from an older one, or from the start. */
static void of_checkpoint(struct brain *b, const struct object *before, const struct object *o)
{
    const struct checkpoint_obj_status *s = object_as(o, checkpoint)->status,
                                       *was = before ? object_as(before, checkpoint)->status : NULL;
    const struct checkpoint_obj_spec *spec = object_as(o, checkpoint)->spec;

    if (!s || !*s->reason || (was && *was->reason))
        return;
    tell(b, o->meta->namespace_, spec->workload, spec->workloadUid, "CheckpointBad",
         "step %lld of epoch %lld does not hold, nothing goes on from it: %s: %.300s",
         (long long)spec->step, (long long)spec->epoch, s->reason, s->message);
}

/* Requests to save and go on. */
static void of_save(struct brain *b, const struct object *o, const struct save_status *was,
                    const struct save_status *s)
{
    const struct meta *m = o->meta;

    if (s->asked > s->saved && s->asked > s->failed && (!was || was->asked < s->asked))
        tell(b, m->namespace_, m->name, m->uid, "SaveAsked", "request %lld: it saves, and goes on",
             (long long)s->asked);
    if (s->saved > (was ? was->saved : 0))
        tell(b, m->namespace_, m->name, m->uid, "Saved", "request %lld: step %lld, checkpoint %s",
             (long long)s->saved, (long long)s->step, s->checkpoint);
    if (s->failed > (was ? was->failed : 0))
        tell(b, m->namespace_, m->name, m->uid, "SaveFailed", "request %lld: %s: %.300s",
             (long long)s->failed, s->reason, s->message);
}

void events_of_checkpoint(struct brain *b, const struct object *workload, const char *reason,
                          const char *fmt, ...)
{
    const struct meta *m = workload->meta;
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tell(b, m->namespace_, m->name, m->uid, reason, "%s", text);
}

static void of_migration(struct brain *b, const struct object *o,
                         const struct migration_status *was, const struct migration_status *s)
{
    const struct migration_spec *spec = object_as(o, migration)->spec;
    const char *ns = o->meta->namespace_, *cause = move_cause_text(spec->cause);

    switch (s->phase) {
    case MP_QUIESCING:
    case MP_FENCING:
        if (!was || was->phase < MP_QUIESCING)
            tell(b, ns, spec->workload, s->workloadUid, "Moving", "%s: from %s to %s; %.300s",
                 cause, s->from, *s->to ? s->to : "the queue", s->message);
        return;
    case MP_SUCCEEDED:
        tell(b, ns, spec->workload, s->workloadUid, "Moved",
             "%s: from %s to %s, %lld ms without progress", cause, s->from,
             *s->to ? s->to : "the queue", (long long)s->pause);
        return;
    case MP_FAILED:
    case MP_CANCELLED:
        tell(b, ns, spec->workload, s->workloadUid,
             s->phase == MP_FAILED ? "MoveFailed" : "MoveCancelled", "%s: %s %.300s", cause,
             s->reason, s->message);
        return;
    default:
        return;
    }
}

/* Of a Target or a Node, which have no namespace: where what is Hanse's own is. */
static void of_global(struct brain *b, const struct object *o, const char *reason,
                      const char *message)
{
    const struct meta *m = o->meta;
    unsigned n = b->events->n;

    tell(b, "hanse-system", m->name, m->uid, reason, "%.500s", message);
    if (b->events->n > n) {
        struct told *t = container_of(b->events->waiting.prev, struct told, link);
        t->kind = o->kind->id;
        /* they are told of what is there still, and go with their Target */
        t->lasts = !strcmp(reason, "MachineLeft") || !strcmp(reason, "LeftBehind");
    }
}

void events_end_denied(struct brain *b, const struct object *target, const struct object *workload,
                       const char *why)
{
    const struct meta *m = workload->meta;

    of_global(b, target, "EndDenied", why);
    tell(b, m->namespace_, m->name, m->uid, "EndDenied", "target %.200s: %.500s",
         target->meta->name, why);
}

void events_book_full(struct brain *b, const struct object *target, const char *why)
{
    of_global(b, target, "BookFull", why);
}

void events_of_target(struct brain *b, const struct object *target, const char *reason,
                      const char *why)
{
    of_global(b, target, reason, why);
}

/* Conditions that came to be False, or are so for another reason. */
static void of_conditions(struct brain *b, const struct object *o,
                          const struct machine_status *was, const struct machine_status *s)
{
    char text[400];

    for (uint32_t i = 0; i < s->n_conditions; i++) {
        const struct condition *c = &s->conditions[i], *had = NULL;
        for (uint32_t k = 0; k < was->n_conditions; k++)
            had = strcmp(was->conditions[k].type, c->type) == 0 ? &was->conditions[k] : had;
        if (c->status != COND_FALSE || (had && had->status == COND_FALSE &&
                                        strcmp(had->reason, c->reason) == 0))
            continue;
        (void)snprintf(text, sizeof text, "%.63s: %.300s", c->reason, c->message);
        of_global(b, o, strcmp(c->type, "Readable") == 0 ? "MachineUnreadable" : "NotAsOrdered",
                  text);
    }
}

static void of_machine(struct brain *b, const struct object *before, const struct object *o)
{
    const struct machine_status *s = object_as(o, machine)->status,
                                *was = before ? object_as(before, machine)->status : NULL;
    const struct machine_spec *spec = object_as(o, machine)->spec;
    char text[400];

    if (!was) {
        (void)snprintf(text, sizeof text, "for pool %s of target %.200s", spec->pool, spec->target);
        of_global(b, o, "Ordered", text);
        return;
    }
    (void)snprintf(text, sizeof text, "%s: %.300s", s->reason, s->message);
    of_conditions(b, o, was, s);
    if (s->phase == MACHINE_IS_ORDERED && *s->reason && strcmp(s->reason, was->reason) != 0 &&
        strcmp(s->reason, "Unreadable") != 0)
        of_global(b, o, "OrderRefused", text);
    if (*s->release && !*was->release)
        of_global(b, o, "Released", s->release);
    if (s->phase != was->phase)
        of_global(b, o, !strcmp(s->reason, "Left") ? "MachineLeft" : machine_phase_text(s->phase),
                  *s->reason ? text : "");
}

static const struct condition *one_agent(const struct target_status *s)
{
    for (uint32_t i = 0; s && i < s->n_conditions; i++)
        if (!strcmp(s->conditions[i].type, "OneAgent"))
            return &s->conditions[i];
    return NULL;
}

/* part: of spec.agents; "": all of it. */
static void agent_replaced(struct brain *b, const struct object *o, const char *part,
                           const char *was, const char *now)
{
    char text[400];

    if (!*was || !strcmp(was, now))
        return;
    (void)snprintf(
        text, sizeof text,
        "%s%.63s%sstate folder %.12s speaks for it instead of %.12s, and knows nothing of what "
        "that one runs: those runs are Unknown until their leases are over. Once the old "
        "machine is known to be off: hanse fence WORKLOAD",
        *part ? "agent " : "", part, *part ? ": " : "", now, was);
    of_global(b, o, "AgentReplaced", text);
}

static void of_agents(struct brain *b, const struct object *o, const struct target_status *was,
                      const struct target_status *s)
{
    const struct condition *now = one_agent(s), *before = one_agent(was);

    if (now && now->status == COND_FALSE && (!before || before->status != COND_FALSE))
        of_global(b, o, "TwoAgents", now->message);
    if (!was || !s)
        return;
    agent_replaced(b, o, "", was->agent, s->agent);
    for (uint32_t i = 0; i < was->n_agents; i++)
        for (uint32_t k = 0; k < s->n_agents; k++)
            if (strcmp(was->agents[i].name, s->agents[k].name) == 0)
                agent_replaced(b, o, s->agents[k].name, was->agents[i].agent, s->agents[k].agent);
}

static const struct node_notice *notice_of(const struct object *node)
{
    const struct node_status *s = node ? object_as(node, node)->status : NULL;

    return s ? s->notice : NULL;
}

/* Faults that came, and those that went. */
static void of_faults(struct brain *b, const struct object *before, const struct object *o)
{
    const struct node *was = before ? object_as(before, node) : NULL, *is = object_as(o, node);
    char text[400];

    for (uint32_t i = 0; is->status && i < is->status->n_faults; i++) {
        const struct node_fault *f = &is->status->faults[i];
        const struct node_fault *had = was ? node_fault(was, fault_device(f)) : NULL;

        if (had && strcmp(had->reason, f->reason) == 0)
            continue;
        node_fault_print(o->meta->name, f, text, sizeof text);
        of_global(b, o, "Faulty", text);
    }
    for (uint32_t i = 0; was && was->status && i < was->status->n_faults; i++) {
        const struct node_fault *f = &was->status->faults[i];

        if (node_fault(is, fault_device(f)))
            continue;
        (void)snprintf(text, sizeof text, "%.63s, by %s, is not told any more", f->reason,
                       health_source_text(f->source));
        of_global(b, o, "FaultGone", text);
    }
}

static void of_node(struct brain *b, const struct object *before, const struct object *o)
{
    const struct node_notice *was = notice_of(before), *now = notice_of(o);
    char text[300];

    of_faults(b, before, o);
    if (now && (!was || was->kind != now->kind || was->deadline != now->deadline)) {
        policy_notice_print(o->meta->name, now, text, sizeof text);
        of_global(b, o, "GoesAway", text);
    } else if (was && !now) {
        of_global(b, o, "NoticeWithdrawn", "it stays: the notice was withdrawn");
    }
}

void events_change(struct brain *b, const struct change *c)
{
    if (!c->after)
        return;
    if (c->kind == KIND_MACHINE)
        of_machine(b, c->before, c->after);
    if (c->kind == KIND_NODE)
        of_node(b, c->before, c->after);
    if (c->kind == KIND_CHECKPOINT)
        of_checkpoint(b, c->before, c->after);
    if (c->kind == KIND_TARGET && c->before)
        of_agents(b, c->after, object_as(c->before, target)->status,
                  object_as(c->after, target)->status);
    if (c->kind == KIND_WORKLOAD) {
        const struct workload_status *s = object_as(c->after, workload)->status;
        const struct workload_status *was =
            c->before ? object_as(c->before, workload)->status : NULL;
        if (s && (!was || was->phase != s->phase))
            of_workload(b, c->after, was, s);
        if (s && was && s->checkpoint && s->checkpoint->found)
            of_found(b, c->after, was, s);
        if (s && s->save)
            of_save(b, c->after, was ? was->save : NULL, s->save);
    } else if (c->kind == KIND_MIGRATION) {
        const struct migration_status *s = object_as(c->after, migration)->status;
        const struct migration_status *was =
            c->before ? object_as(c->before, migration)->status : NULL;
        if (s && (!was || was->phase != s->phase))
            of_migration(b, c->after, was, s);
    }
}

static const char *event_name(const struct told *t, struct arena *a);

/* Looked for every second; told when there is something new in it, or when it was long ago. */
void events_sometimes(struct brain *b, const struct object *workload, const char *reason,
                      const char *why)
{
    const struct meta *m = workload->meta;
    struct told t = {.reason = reason};
    AUTO_ARENA a = arena_create(0);
    const struct object *had;

    str_copy(t.name, sizeof t.name, m->name);
    str_copy(t.uid, sizeof t.uid, m->uid);
    had = root_get(b->root, KIND_EVENT, m->namespace_, event_name(&t, a));
    if (had) {
        const struct event *e = object_as(had, event);
        int64_t ago = core_time_ms(b->cfg.core) - e->lastTimestamp;
        bool same = !strcmp(e->message, why);
        if (ago >= 0 && ago < (same ? AGAIN_SAME_MS : AGAIN_MIN_MS))
            return;
    }
    tell(b, m->namespace_, m->name, m->uid, t.reason, "%.400s", why);
}

void events_stays(struct brain *b, const struct object *workload, enum move_cause cause,
                  const char *why)
{
    char text[400];

    (void)snprintf(text, sizeof text, "%s, and it stays there until %s: %.240s",
                   cause == MOVE_SPOT ? "a node that it runs on will go away"
                                      : "a node that it runs on is sick",
                   cause == MOVE_SPOT
                       ? "there is room for all of it elsewhere, or the deadline comes near"
                       : "there is room for all of it elsewhere",
                   *why ? why : "nothing has room");
    events_sometimes(b, workload, cause == MOVE_SPOT ? "StaysUntilDeadline" : "StaysOnSickNode",
                   text);
}

void events_lease_runs(struct brain *b, const struct object *workload, uint64_t left_ms)
{
    int64_t until = core_time_ms(b->cfg.core) + (int64_t)left_ms;
    char text[400], at[32];

    time_print((until / 60000 + 1) * 60000, at); /* by the minute: the same for the whole wait */
    (void)snprintf(text, sizeof text,
                   "by the lease that it was granted its runner may live until %s; until then "
                   "nothing is started elsewhere, unless it comes back or is fenced (hanse fence)",
                   at);
    events_sometimes(b, workload, "LeaseRuns", text);
}

/* ---- into the log ---- */
static const char *event_name(const struct told *t, struct arena *a)
{
    return arena_printf(a, "%.200s.%08x", t->name, hash_text32(t->uid) ^ hash_text32(t->reason));
}

const char *events_uid(struct brain *b, struct arena *a)
{
    uint64_t x = loop_random_u64(b->loop), y = loop_random_u64(b->loop);

    return arena_printf(a, "%08llx-%04llx-4%03llx-a%03llx-%012llx", (unsigned long long)(x >> 32),
                        (unsigned long long)(x >> 16 & 0xffff), (unsigned long long)(x & 0xfff),
                        (unsigned long long)(y >> 48 & 0xfff),
                        (unsigned long long)(y & 0xffffffffffffull));
}

static struct event *event_first(struct brain *b, const struct told *t, const char *name,
                                 int64_t now, struct arena *a)
{
    const struct kind *k = kind_by_id(t->kind);
    struct event *e = arena_new(a, struct event);
    struct owner_ref *owner = arena_new(a, struct owner_ref);

    e->metadata = arena_new(a, struct meta);
    *e->metadata = (struct meta){.name = name, .namespace_ = t->ns, .uid = events_uid(b, a)};
    owner->apiVersion = kind_api_version(k);
    owner->kind = k->kind;
    owner->name = t->name;
    owner->uid = t->uid;
    e->metadata->ownerReferences = owner;
    e->metadata->n_ownerReferences = !t->lasts;
    e->involvedObject = arena_new(a, struct object_ref);
    e->involvedObject->apiVersion = kind_api_version(k);
    e->involvedObject->kind = k->kind;
    e->involvedObject->name = t->name;
    e->involvedObject->namespace_ = k->namespaced ? t->ns : "";
    e->involvedObject->uid = t->uid;
    e->source = arena_new(a, struct event_source);
    e->source->component = "hanse";
    e->reportingComponent = "hanse";
    e->reason = t->reason;
    e->type = t->warning ? "Warning" : "Normal";
    e->firstTimestamp = now;
    return e;
}

static void written(void *arg, const struct result *r, const struct err *err)
{
    (void)arg;
    (void)r;
    (void)err; /* Events inform people; no decision depends on them */
}

static void write_one(struct brain *b, const struct told *t)
{
    AUTO_ARENA a = arena_create(0);
    const char *name = event_name(t, a);
    const struct object *had = root_get(b->root, KIND_EVENT, t->ns, name);
    int64_t now = core_time_ms(b->cfg.core);
    struct event *e = had ? object_edit_as(had, event, a) : event_first(b, t, name, now, a);
    struct write_op op = {.verb = had ? WRITE_UPDATE : WRITE_CREATE, .kind = KIND_EVENT};
    union command c = {
        .write = {.head = {.type = CMD_WRITE, .user = "hanse:events"}, .ops = &op, .n = 1}};

    e->message = t->message;
    e->lastTimestamp = now;
    e->count++;
    str_copy(op.ns, sizeof op.ns, t->ns);
    str_copy(op.name, sizeof op.name, name);
    if (object_make_within(kind_by_id(KIND_EVENT), e, LIMIT_OBJECT_MAX_BYTES, &op.object, NULL))
        return; /* somebody wrote it full */
    brain_request_id(b, c.head.request_id);
    brain_propose(b, &c, written, b);
    (void)object_unref(op.object);
}

void events_act(struct brain *b, const char *who, const char *target, const char *reason,
                propose_cb cb, void *arg, const char *fmt, ...)
{
    const struct kind *k = kind_by_id(KIND_TARGET);
    AUTO_ARENA a = arena_create(0);
    struct told t = {.kind = KIND_TARGET, .ns = "hanse-system", .reason = reason};
    struct write_op op = {.verb = WRITE_CREATE, .kind = KIND_EVENT, .ns = "hanse-system"};
    union command c = {.write = {.head = {.type = CMD_WRITE}, .ops = &op, .n = 1}};
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(t.message, sizeof t.message, fmt, ap);
    va_end(ap);
    str_copy(t.name, sizeof t.name, target);
    (void)snprintf(op.name, sizeof op.name, "%.200s.%016llx", target,
                   (unsigned long long)loop_random_u64(b->loop));
    int64_t now = core_time_ms(b->cfg.core);
    struct event *e = event_first(b, &t, op.name, now, a);
    e->metadata->ownerReferences = NULL;
    e->metadata->n_ownerReferences = 0;
    e->involvedObject->apiVersion = kind_api_version(k);
    e->involvedObject->kind = k->kind;
    e->involvedObject->namespace_ = "";
    e->message = t.message;
    e->lastTimestamp = now;
    e->count = 1;
    op.object = object_make(kind_by_id(KIND_EVENT), e);
    brain_request_id(b, c.head.request_id);
    str_copy(c.head.user, sizeof c.head.user, who);
    brain_propose(b, &c, cb, arg);
    (void)object_unref(op.object);
}

static void flush(void *arg)
{
    struct brain *b = arg;
    struct events *e = b->events;
    struct list *it;

    for (unsigned i = 0; i < FLUSH_MAX && (it = list_pop(&e->waiting)) != NULL; i++) {
        struct told *t = container_of(it, struct told, link);
        e->n--;
        write_one(b, t);
        mem_free(t);
    }
    if (e->n)
        timer_start(&e->timer, FLUSH_EVERY_MS);
}

void events_init(struct brain *b)
{
    list_init(&b->events->waiting);
    timer_init(&b->events->timer, b->loop, flush, b);
}
void events_drop(struct brain *b)
{
    struct list *it;

    timer_stop(&b->events->timer);
    while ((it = list_pop(&b->events->waiting)) != NULL)
        mem_free(container_of(it, struct told, link));
    b->events->n = 0;
}
