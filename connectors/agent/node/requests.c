/* What the server may ask about runs. Every request is idempotent, and is answered once. */
#include "api/base/failpoint.h"
#include "connectors/agent/node/agent_internal.h"

#include <signal.h>
#include <string.h>

static void request_submit(struct agent *a, uint64_t id, cJSON *j)
{
    struct err err;
    struct observation o;
    struct run *r;
    int rc = run_submit(a, j, &r, &err);

    if (rc == 0) {
        run_observe(r, &o);
        if (o.state == RUN_ABSENT) /* it was refused; now it stays so */
            session_answer(
                a, id, OUT_REJECTED,
                (err_set(&err, E_STALE, "this key was given up: %.300s", o.message), &err), &o);
        else
            session_answer(a, id, OUT_DONE, NULL, &o);
        return;
    }
    /* A failed write may have left the order on disk: whether it starts after a restart cannot be
     * told. */
    bool unsure = rc == E_IO || rc == E_NOSPACE || rc == E_INTERNAL;
    session_answer(a, id, unsure ? OUT_UNKNOWN : OUT_REJECTED, &err, NULL);
    cJSON_Delete(j);
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

static void request_stop(uint64_t id, struct run *r, const cJSON *j)
{
    struct waiter *w = mem_new(struct waiter);

    w->id = id;
    list_push(&r->waiters, &w->link);
    run_stop(r, SIGTERM, wire_u64(j, "graceMs"));
}

static void request_forget(struct agent *a, uint64_t id, struct run *r)
{
    struct err err;

    if (run_forget(r, &err) < 0)
        session_answer(a, id, OUT_REJECTED, &err, NULL);
    else
        session_answer(a, id, OUT_DONE, NULL, NULL);
}

static void request_claim(struct agent *a, uint64_t id, struct run *r, const cJSON *j)
{
    struct observation o;
    struct err err;

    run_observe(r, &o);
    if (run_claim(r, j, &err) < 0)
        session_answer(a, id, OUT_UNKNOWN, &err, NULL);
    else
        session_answer(a, id, OUT_DONE, NULL, &o);
}

static void request_list(struct agent *a, uint64_t id)
{
    cJSON *j = cJSON_CreateObject(), *runs = cJSON_AddArrayToObject(j, "runs");

    cJSON_AddNumberToObject(j, "outcome", (double)OUT_DONE);
    /* No more than who sweeps needs: thousands of runs go into one frame. */
    size_t room = LISTED_WORKERS_MAX;
    list_for_each (it, &a->runs)
        cJSON_AddItemToArray(runs, run_listing(container_of(it, struct run, link), &room));
    wire_tell(a->stream, AF_RESULT, id, j);
}

/* ---- the book: what was let go by the hub's own log ---- */
static void request_book(struct agent *a, uint64_t id, const cJSON *j)
{
    cJSON *out = cJSON_CreateObject();
    unsigned next;
    struct err err;

    cJSON_AddNumberToObject(out, "outcome", (double)OUT_DONE);
    cJSON_AddItemToObject(out, "promises",
                          book_page(&a->book, (unsigned)wire_u64(j, "from"), loop_wall_ms(a->loop),
                                    wire_i64(j, "olderMs"), &next));
    cJSON_AddNumberToObject(out, "next", next);
    if (book_room(&a->book, a->n_alive + a->n_ended, &err) < 0)
        cJSON_AddStringToObject(out, "full", err.text);
    wire_tell(a->stream, AF_RESULT, id, out);
}

static bool uid_is_here(const struct agent *a, const char *uid)
{
    list_for_each (it, &a->runs)
        if (strcmp(container_of(it, struct run, link)->key.uid, uid) == 0)
            return true;
    return false;
}

static void request_let_go(struct agent *a, uint64_t id, const cJSON *j)
{
    const struct book_hub by = {wire_str(j, "cluster"), wire_u64(j, "rv")};
    const cJSON *uid;
    struct err err = {0};
    int rc = book_floor_raise(&a->book, by, &err);

    FAILPOINT("agent.let_go.floor");
    cJSON_ArrayForEach(
        uid, cJSON_GetObjectItemCaseSensitive(j, "uids")) if (rc == 0 && cJSON_IsString(uid) &&
                                                              !uid_is_here(a, uid->valuestring))
        rc = book_forget(&a->book, uid->valuestring, by, &err);
    session_answer(a, id, rc < 0 ? OUT_REJECTED : OUT_DONE, rc < 0 ? &err : NULL, NULL);
}

/* What is offered is kept for shims that are dialed later. */
static void renew_offers(struct agent *a, const cJSON *j)
{
    const cJSON *i;

    cJSON_ArrayForEach(i, cJSON_GetObjectItemCaseSensitive(j, "offers"))
    {
        struct run_offer o;
        struct run *r = wire_offer_parse(i, &o, NULL) == 0 ? run_by_key(a, &o.key) : NULL;
        if (r && o.number > r->offer.number)
            r->offer = o;
    }
}

static void request_renew(struct agent *a, const cJSON *j)
{
    a->renew_from_ms = wire_u64(j, "from");
    a->renew_lease_ms = wire_u64(j, "leaseMs");
    renew_offers(a, j);
    list_for_each (it, &a->runs) {
        struct run *r = container_of(it, struct run, link);
        checkpoints_renewed(r);
        if (!run_renewable(r))
            continue;
        for (unsigned i = 0; i < r->n_workers; i++)
            worker_renew(&r->workers[i]);
    }
}

/* FIND, SIGNAL, STOP, FORGET, CLAIM and DOCUMENT: about one key. */
static void request_about(struct agent *a, const struct frame *f, const cJSON *j)
{
    struct run_key k;
    struct err err;
    struct observation o;

    if (wire_key(j, &k, &err) < 0) {
        session_answer(a, f->id, OUT_REJECTED, &err, NULL);
        return;
    }
    struct run *r = run_by_key(a, &k);
    if (!r && (f->type == AF_CLAIM || f->type == AF_DOCUMENT)) { /* these promise nothing */
        session_answer(a, f->id, OUT_REJECTED,
                       (err_set(&err, E_NOTFOUND, "no such run is kept here"), &err), NULL);
        return;
    }
    if (!r) {
        answer_absent(a, f->id, &k, wire_u64(j, "stateRv"));
        return;
    }
    run_observe(r, &o);
    if (f->type == AF_CLAIM) {
        request_claim(a, f->id, r, j);
    } else if (f->type == AF_DOCUMENT) {
        document_answer(a, f->id, r);
    } else if (f->type == AF_FORGET) {
        request_forget(a, f->id, r);
    } else if (f->type == AF_FIND || o.state == RUN_ENDED || o.state == RUN_ABSENT) {
        session_answer(a, f->id, OUT_DONE, NULL, &o);
    } else if (f->type == AF_SIGNAL) {
        run_stop(r, (int)wire_u64(j, "signal"), wire_u64(j, "graceMs"));
        FAILPOINT("agent.quiesce.after");
        session_answer(a, f->id, OUT_DONE, NULL, &o);
    } else {
        request_stop(f->id, r, j);
    }
}

void request_frame(struct agent *a, const struct frame *f)
{
    cJSON *j;
    struct err err;

    if (wire_parse(f, &j, &err) < 0) {
        session_answer(a, f->id, OUT_REJECTED, &err, NULL);
        return;
    }
    switch ((enum agent_frame)f->type) {
    case AF_SUBMIT:
        request_submit(a, f->id, j);
        return; /* it took j */
    case AF_FIND:
    case AF_SIGNAL:
    case AF_STOP:
    case AF_FORGET:
    case AF_CLAIM:
    case AF_DOCUMENT:
        request_about(a, f, j);
        break;
    case AF_STAGE:
        stage_request(a, f->id, j);
        break;
    case AF_LIST:
        request_list(a, f->id);
        break;
    case AF_RENEW:
        request_renew(a, j);
        break;
    case AF_BOOK:
        request_book(a, f->id, j);
        break;
    case AF_LET_GO:
        request_let_go(a, f->id, j);
        break;
    case AF_INVENTORY:
        session_nodes(a, f->id);
        break;
    default:
        (void)err_set(&err, E_NOTIMPL, "this agent (%s) does not know request %d: upgrade it",
                      HANSE_VERSION, f->type);
        session_answer(a, f->id, OUT_REJECTED, &err, NULL);
    }
    cJSON_Delete(j);
}
