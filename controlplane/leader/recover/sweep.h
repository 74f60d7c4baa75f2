/* Sweeps: each run that a target lists is owned, let go (and then ended), or an orphan. */
#ifndef HANSE_CONTROLPLANE_LEADER_RECOVER_SWEEP_H
#define HANSE_CONTROLPLANE_LEADER_RECOVER_SWEEP_H

#include "controlplane/leader/recover/orphans.h"

void site_sweep(struct site *t);
void sites_sweep(struct brain *b);
enum orphan_why sweep_why(const struct root *r, const struct run_listed *l);
bool sweep_from_our_future(const struct root *r, const struct run_listed *l);
/* True when the log has the end of a listed run and its target has not heard so: a leader before
 * this one may not have told it. */
bool sweep_unfinished(const struct root *r, const struct run_listed *l);
/* A list is due: it was wanted, it is long ago, or what could not be read of it may be by now. */
bool site_sweep_due(const struct site *t);

/* ---- what is told of runs in rows that cannot be read ---- */
#define UNREAD_RUNS_MAX 64 /* that are known one by one; more are counted */
struct unread_run {
    char key[RUN_KEY_MAX]; /* "": that cannot be read either; one entry for all of these rows */
    char why[200];
    uint64_t list; /* the list, or the time after it, in which it was told last */
    size_t rows;   /* 1; without a key, as many as the newest list had */
};
struct site_unread {
    struct unread_run *v; /* owned */
    size_t n, more;       /* more: of the newest list, beyond UNREAD_RUNS_MAX */
    uint64_t list;        /* counts the lists of its runs */
    bool open;            /* a list is under way: its rows are counted */
    bool listed;          /* one was complete */
    bool told;            /* the state was told, in this term: told_text */
    char told_text[512];
};

/* A row of a run cannot be read; k NULL: nor can its key. */
void site_run_unread(struct site *t, const struct run_key *k, const char *why);
void site_run_read(struct site *t, const struct run_key *k); /* it was told, and can be read */
void site_runs_begin(struct site *t);  /* a list of its runs begins */
void site_runs_listed(struct site *t); /* it is complete: what it did not tell so is over */
/* True when the state is to be told of it. */
bool site_unread_due(const struct site *t);
void site_unread_fill(struct site *t, struct facts_cmd *c); /* from then on it counts as told */
void site_unread_drop(struct site *t);

#endif
