/* What the server may ask about runs. Every request is idempotent, and is answered once. */
#include "api/base/failpoint.h"
#include "connectors/agent/node/agent_internal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Of part of a gang also where it meets: the other parts are not ordered before that is known. */
static void answer_accepted(struct agent *a, uint64_t id, const struct run *r,
                            struct observation *o)
{
    const struct wire_result told = {.outcome = OUT_DONE,
                                     .seen = o,
                                     .port = order_spans(r->order) ? r->order->rendezvous_port : 0};

    if (a->welcome)
        wire_tell(a->stream, AF_RESULT, id, wire_result, &told);
}

static void request_submit(struct agent *a, uint64_t id, struct wire_order *order)
{
    struct err err;
    struct observation o;
    struct run *r;
    int rc = run_submit(a, order, &r, &err);

    if (rc == 0) {
        workers_tell(r);
        run_observe(r, &o);
        if (o.state == RUN_ABSENT) /* it was refused; now it stays so */
            session_answer(
                a, id, OUT_REJECTED,
                (err_set(&err, E_STALE, "this key was given up: %.300s", o.message), &err), &o);
        else
            answer_accepted(a, id, r, &o);
        return;
    }
    /* A failed write may have left the order on disk: whether it starts after a restart cannot be
     * told. */
    bool unsure = rc == E_IO || rc == E_NOSPACE || rc == E_INTERNAL;
    session_answer(a, id, unsure ? OUT_UNKNOWN : OUT_REJECTED, &err, NULL);
}

static bool run_has_processes(struct agent *a, const struct run_key *k)
{
    char key[RUN_KEY_MAX], marker[RUN_MARKER_MAX];
    struct runner_tree t = {.marker = marker};

    run_key_print(k, key);
    (void)snprintf(marker, sizeof marker, "%s/", key);
    return a->cfg.os->ops->tree_process_count(a->cfg.os, &t) != 0;
}

/* The key is not known: promises, durably, that it never starts here. */
static void answer_absent(struct agent *a, uint64_t id, const struct run_key *k, uint64_t rv)
{
    struct observation o = {.key = *k, .state = RUN_UNKNOWN};
    struct err err;

    if (book_find(&a->book, k, &o)) {
        session_answer(a, id, OUT_DONE, NULL, &o);
        return;
    }
    if (run_has_processes(a, k)) { /* its records are lost, it is not */
        (void)err_set(&err, E_CORRUPT, "processes of this run live here, and its records are gone");
        session_answer(a, id, OUT_DONE, &err, &o);
        return;
    }
    heard_keep(a);
    if (book_write(&a->book, k, NULL, book_hub_of(a, a->cluster, rv), &err) < 0) {
        session_answer(a, id, OUT_UNKNOWN, &err, NULL);
        return;
    }
    o.state = RUN_ABSENT;
    o.proof = PROOF_NEVER_STARTED;
    session_answer(a, id, OUT_DONE, NULL, &o);
}

static void request_stop(uint64_t id, struct run *r, uint64_t grace_ms)
{
    struct waiter *w = mem_new(struct waiter);

    w->id = id;
    list_push(&r->waiters, &w->link);
    run_stop(r, SIGTERM, grace_ms);
}

static void request_forget(struct agent *a, uint64_t id, struct run *r)
{
    struct err err;

    if (run_forget(r, &err) < 0)
        session_answer(a, id, OUT_REJECTED, &err, NULL);
    else
        session_answer(a, id, OUT_DONE, NULL, NULL);
}

static void request_claim(struct agent *a, uint64_t id, struct run *r, const struct wire_about *by)
{
    struct observation o;
    struct err err;

    run_observe(r, &o);
    if (run_claim(r, by, &err) < 0)
        session_answer(a, id, OUT_UNKNOWN, &err, NULL);
    else
        session_answer(a, id, OUT_DONE, NULL, &o);
}

/* Its logs are kept as long as those of other ended runs; only that nobody will ask for its end
 * again is new. Nothing is promised of a run that is not here. */
static void request_finalize(struct agent *a, uint64_t id, const struct run_key *k, struct run *r)
{
    struct observation o = {.key = *k, .state = RUN_UNKNOWN};
    struct err err;

    if (r)
        run_observe(r, &o);
    else
        (void)book_find(&a->book, k, &o);
    if (r && o.state != RUN_ENDED && o.state != RUN_ABSENT) {
        session_answer(a, id, OUT_REJECTED, (err_set(&err, E_BUSY, "the run has not ended"), &err),
                       &o);
        return;
    }
    if (r)
        r->final = true;
    session_answer(a, id, OUT_DONE, NULL, &o);
}

static void request_list(struct agent *a, uint64_t id)
{
    AUTO_ARENA m = arena_create(0);
    struct wire_result r = {.outcome = OUT_DONE};

    r.runs = arena_array(m, struct wire_listed, runs_count(a, NULL) + 1);
    /* No more than who sweeps needs: thousands of runs go into one frame. */
    size_t room = LISTED_WORKERS_MAX;
    list_for_each (it, &a->runs)
        run_listing(container_of(it, struct run, link), &room, &r.runs[r.n_runs++]);
    wire_tell(a->stream, AF_RESULT, id, wire_result, &r);
}

/* Observations tell how far it is. Nothing is promised of a run that is not here. */
static void request_save(struct agent *a, uint64_t id, const struct wire_save *q)
{
    struct run *r = run_by_key(a, &q->key);
    struct observation o;
    struct err err;
    int rc = r ? run_save(r, q->number, q->grace_ms, &err)
               : err_set(&err, E_NOTFOUND, "no such run is kept here");

    if (rc < 0) {
        session_answer(a, id, OUT_REJECTED, &err, NULL);
        return;
    }
    run_observe(r, &o);
    session_answer(a, id, OUT_DONE, NULL, &o);
}

/* ---- the book: what was let go by the hub's own log ---- */
static void request_book(struct agent *a, uint64_t id, const struct wire_book_ask *q)
{
    AUTO_ARENA m = arena_create(0);
    struct wire_result r = {.outcome = OUT_DONE};
    struct err err;

    book_list(&a->book, (unsigned)q->from, loop_wall_ms(a->loop), q->older_ms, m, &r);
    if (book_room(&a->book, runs_count(a, NULL), &err) < 0)
        r.full = err.text;
    wire_tell(a->stream, AF_RESULT, id, wire_result, &r);
}

static bool uid_is_here(const struct agent *a, const char *uid)
{
    list_for_each (it, &a->runs)
        if (strcmp(container_of(it, struct run, link)->key.uid, uid) == 0)
            return true;
    return false;
}

static void request_let_go(struct agent *a, uint64_t id, const struct wire_let_go *q)
{
    const struct book_hub by = {q->cluster, q->rv};
    struct err err = {0};
    int rc = book_floor_raise(&a->book, by, &err);

    FAILPOINT("agent.let_go.floor");
    for (uint32_t i = 0; rc == 0 && i < q->n_uids; i++)
        if (!uid_is_here(a, q->uids[i]))
            rc = book_forget(&a->book, q->uids[i], by, &err);
    session_answer(a, id, rc < 0 ? OUT_REJECTED : OUT_DONE, rc < 0 ? &err : NULL, NULL);
}

/* What is offered is kept for shims that are dialed later. */
static void request_renew(struct agent *a, const struct wire_renew *q)
{
    a->renew_from_ms = q->from_ms;
    a->renew_lease_ms = q->lease_ms;
    for (uint32_t i = 0; i < q->n_offers; i++) {
        struct run *r = run_by_key(a, &q->offers[i].key);
        if (r && q->offers[i].number > r->offer.number)
            r->offer = q->offers[i];
    }
    list_for_each (it, &a->runs) {
        struct run *r = container_of(it, struct run, link);
        checkpoints_renewed(r);
        if (!run_renewable(r) || !run_renewed_by(r, q))
            continue;
        r->renew_from_ms = q->from_ms;
        for (unsigned i = 0; i < r->n_workers; i++)
            worker_renew(&r->workers[i]);
    }
}

/* FIND, SIGNAL, STOP, FORGET, CLAIM, DOCUMENT and FINALIZE: about one key. */
static void request_about(struct agent *a, const struct frame *f, const struct wire_about *q)
{
    const struct run_key *k = &q->key;
    struct err err;
    struct observation o;
    struct run *r = run_by_key(a, k);

    if (f->type == AF_FINALIZE) {
        request_finalize(a, f->id, k, r);
        return;
    }
    if (!r && (f->type == AF_CLAIM || f->type == AF_DOCUMENT)) { /* these promise nothing */
        session_answer(a, f->id, OUT_REJECTED,
                       (err_set(&err, E_NOTFOUND, "no such run is kept here"), &err), NULL);
        return;
    }
    if (!r) {
        answer_absent(a, f->id, k, q->state_rv);
        return;
    }
    workers_tell(r);
    run_observe(r, &o);
    if (f->type == AF_CLAIM) {
        request_claim(a, f->id, r, q);
    } else if (f->type == AF_DOCUMENT) {
        document_answer(a, f->id, r);
    } else if (f->type == AF_FORGET) {
        request_forget(a, f->id, r);
    } else if (f->type == AF_FIND || o.state == RUN_ENDED || o.state == RUN_ABSENT) {
        session_answer(a, f->id, OUT_DONE, NULL, &o);
    } else if (f->type == AF_SIGNAL) {
        run_stop(r, q->signo, q->grace_ms);
        FAILPOINT("agent.quiesce.after");
        session_answer(a, f->id, OUT_DONE, NULL, &o);
    } else {
        request_stop(f->id, r, q->grace_ms);
    }
}

/* By what schema a request is read; NULL: it has no body, or is not known. */
static const struct schema *request_schema(uint8_t type)
{
    switch ((enum agent_frame)type) {
    case AF_SUBMIT:
        return &schema_wire_order;
    case AF_FIND:
    case AF_SIGNAL:
    case AF_STOP:
    case AF_FORGET:
    case AF_CLAIM:
    case AF_DOCUMENT:
    case AF_FINALIZE:
        return &schema_wire_about;
    case AF_STAGE:
        return &schema_wire_stage;
    case AF_SAVE:
        return &schema_wire_save;
    case AF_RENEW:
        return &schema_wire_renew;
    case AF_BOOK:
        return &schema_wire_book_ask;
    case AF_LET_GO:
        return &schema_wire_let_go;
    default:
        return NULL;
    }
}

void request_frame(struct agent *a, const struct frame *f)
{
    const struct schema *schema = request_schema(f->type);
    AUTO_ARENA m = arena_create(0);
    struct err err;
    void *q = NULL;

    if (schema && wire_read_body(schema, f->body, m, &q, &err) < 0) {
        session_answer(a, f->id, OUT_REJECTED, &err, NULL);
        return;
    }
    switch ((enum agent_frame)f->type) {
    case AF_SUBMIT:
        request_submit(a, f->id, q);
        break;
    case AF_FIND:
    case AF_SIGNAL:
    case AF_STOP:
    case AF_FORGET:
    case AF_CLAIM:
    case AF_DOCUMENT:
    case AF_FINALIZE:
        request_about(a, f, q);
        break;
    case AF_STAGE:
        stage_request(a, f->id, q);
        break;
    case AF_SAVE:
        request_save(a, f->id, q);
        break;
    case AF_LIST:
        request_list(a, f->id);
        break;
    case AF_RENEW:
        request_renew(a, q);
        break;
    case AF_BOOK:
        request_book(a, f->id, q);
        break;
    case AF_LET_GO:
        request_let_go(a, f->id, q);
        break;
    case AF_INVENTORY:
        session_nodes(a, f->id);
        break;
    default:
        (void)err_set(&err, E_NOTIMPL, "this agent (%s) does not know request %d: upgrade it",
                      HANSE_VERSION, f->type);
        session_answer(a, f->id, OUT_REJECTED, &err, NULL);
    }
}
