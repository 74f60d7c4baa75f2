/* The shim's socket: its links, their requests, and the reports to them. One agent at a time is
 * usual; a second is a new one that has not noticed its predecessor's end. This file only passes
 * on: requests, what the keeper has sealed, signals to save and to end. It must never decide
 * anything. */
#include "connectors/shim/runner_internal.h"

#define LINKS_MAX 8          /* agents come one at a time; more is somebody else */
#define COMMIT_START_MS 1000 /* a commit ignores signals sooner after its start */

void runner_tell(struct runner *r, struct stream *only)
{
    list_for_each (it, &r->links) {
        struct runner_link *k = container_of(it, struct runner_link, link);
        if (!only || k->stream == only)
            wire_tell(k->stream, RUN_FRAME_STATE, 0, run_report, &r->report);
    }
    if (!only && r->cfg.told)
        r->cfg.told(&r->report, r->cfg.arg);
}

/* ---- the program ---- */
bool runner_asked_to_end(struct runner *r)
{
    struct runner_os *os = r->cfg.os;
    struct runner_tree t = runner_tree(r);

    if (r->program && !r->exited && r->end_signo) {
        if (loop_now_ms(r->loop) < r->ask_by_ms && os->ops->tree_commits(os, &t, r->end_signo) > 0)
            return false;
        process_signal(r->program, r->end_signo);
    }
    r->end_signo = 0;
    return true;
}

void runner_ask_to_end(struct runner *r, int signo)
{
    uint64_t by = loop_now_ms(r->loop) + COMMIT_START_MS;

    r->end_signo = signo;
    r->ask_by_ms = by < r->kill_at_ms ? by : r->kill_at_ms;
    (void)runner_asked_to_end(r);
}

/* ---- what the keeper has ---- */
void runner_take_kept(struct runner *r)
{
    struct runner_os *os = r->cfg.os;
    const struct checkpoint_sealed *s = r->keeper ? keeper_newest(r->keeper) : NULL;
    const struct run_save *save = r->keeper ? keeper_saved(r->keeper) : NULL;

    if (!s)
        return;
    if (r->state == RS_RUNNING && keeper_save_due(r->keeper)) {
        struct runner_tree t = runner_tree(r);
        if (os->ops->tree_ask(os, &t, r->save_signo) > 0)
            keeper_save_asked(r->keeper);
    }
    const struct checkpoint_gathered *cut = keeper_cut(r->keeper);
    const struct run_save *had = &r->report.save;
    bool sealed =
        s->present && !(r->report.checkpoint.present && r->report.checkpoint.step == s->step);
    bool gathered = cut->cut.present && cut->number != r->report.cut_number;
    if (sealed)
        r->report.checkpoint = *s;
    if (gathered) {
        r->report.cut = cut->cut;
        r->report.cut_number = cut->number;
    }
    bool saved =
        save->number > had->number ||
        (save->number == had->number && (save->state != had->state || save->from != had->from));
    if (saved)
        r->report.save = *save;
    if (sealed || gathered || saved)
        runner_tell(r, NULL);
}

void runner_cut_known(struct runner *r, int64_t number)
{
    if (r->keeper)
        keeper_cut_known(r->keeper, number);
}

const char *const *runner_env(const struct runner *r, struct arena *m)
{
    return r->keeper ? keeper_env(r->keeper, &r->cfg, m) : r->cfg.env;
}

void runner_go(struct runner *r)
{
    r->go = true;
    runner_look_again(r);
}

static void save_cannot(struct runner *r, const struct shim_save *q)
{
    struct run_save *s = &r->report.save;

    if (q->number <= s->number)
        return;
    *s = (struct run_save){.present = true, .state = SAVE_FAILED, .number = q->number};
    str_copy(s->reason, sizeof s->reason, "SignalNotTaken");
    str_copy(s->message, sizeof s->message,
             "its program was started without spec.checkpoint.saveSignal, and may not wait for it: "
             "it takes effect with the next start (hanse migrate)");
    runner_tell(r, NULL);
}

void runner_save(struct runner *r, const struct shim_save *q)
{
    if (!r->keeper || q->signo <= 0 || q->signo > 64) {
        save_cannot(r, q);
        return;
    }
    if (q->number > keeper_saved(r->keeper)->number)
        r->save_signo = q->signo;
    keeper_save(r->keeper, q->number, q->grace_ms);
    runner_look_again(r);
}

/* Non-zero: what came is none of ours, the connection ends. */
static int link_frame(const struct frame *f, void *arg)
{
    struct runner_link *k = arg;
    struct shim_renew *renew = NULL;
    struct shim_stop *stop = NULL;
    struct shim_save *save = NULL;
    AUTO_ARENA a = arena_create(0);
    struct err err;
    int rc = 0;

    if (f->type == RUN_FRAME_RENEW)
        rc = wire_read(shim_renew, f->body, a, &renew, &err);
    else if (f->type == RUN_FRAME_STOP)
        rc = wire_read(shim_stop, f->body, a, &stop, &err);
    else if (f->type == RUN_FRAME_SAVE)
        rc = wire_read(shim_save, f->body, a, &save, &err);
    if (rc < 0) {
        stream_abort(k->stream, err.text);
        return 1;
    }
    if (renew)
        runner_renew(k->runner, renew);
    else if (stop)
        runner_stop(k->runner, stop->signo, stop->grace_ms);
    else if (save)
        runner_save(k->runner, save);
    else if (f->type == RUN_FRAME_GO)
        runner_go(k->runner);
    return 0;
}

static void link_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct runner_link *k = arg;
    struct err err;

    if (frame_feed(&k->reader, p, n, link_frame, k, &err) < 0)
        stream_abort(s, err.text);
}

static void link_closed(struct stream *s, const struct err *why, void *arg)
{
    struct runner_link *k = arg;
    struct runner *r = k->runner;

    (void)s;
    (void)why;
    list_remove(&k->link);
    r->n_links--;
    frame_reader_fini(&k->reader);
    mem_free(k);
    runner_free_when_quiet(r);
}

static const struct stream_events link_events = {.data = link_data, .closed = link_closed};

static const struct stream_events refused_events = {0};

void runner_accept(struct listener *li, struct stream *s, void *arg)
{
    struct runner *r = arg;

    (void)li;
    if (r->n_links == LINKS_MAX) {
        stream_set(s, &refused_events, NULL);
        stream_abort(s, "too many connections to one runner");
        return;
    }
    struct runner_link *k = mem_new(struct runner_link);
    k->runner = r;
    k->stream = s;
    frame_reader_init(&k->reader);
    list_push(&r->links, &k->link);
    r->n_links++;
    stream_set(s, &link_events, k);
    runner_tell(r, s);
}

void runner_hang_up(struct runner *r)
{
    list_for_each (it, &r->links)
        stream_close(container_of(it, struct runner_link, link)->stream);
}
