/* Acts on orphans: a user with the permission decides what becomes of a run that the state cannot
 * answer for. An Event with the user's name is in the log before anything is done; the next sweep
 * does it. Nothing may be done to a run that this leader did not list as an orphan. */

#include "controlplane/leader/recover/orphans.h"

#include "api/base/log.h"
#include "controlplane/leader/keep/events.h"
#include "controlplane/leader/recover/sweep.h"
#include "controlplane/leader/site/sites.h"

#include <stdio.h>
#include <string.h>

struct act {
    struct brain *brain;
    char target[256], key[RUN_KEY_MAX];
    void (*cb)(void *arg, const struct err *err);
    void *arg;
};

struct site *orphan_site(struct brain *b, const char *target, struct err *err)
{
    struct site *t = b->leads ? site_find(b, target) : NULL;

    if (!b->leads)
        (void)err_set(err, E_UNAVAIL, "this member does not lead; ask the leader");
    else if (!t)
        (void)err_field(err, E_NOTFOUND, "target", "there is no Target %.200s", target);
    return t;
}

const struct orphan *orphan_listed(const struct site *t, const char *key, struct err *err)
{
    const struct orphan *o = orphan_find(t, key);

    if (!o && (!t->listed || t->lacks))
        (void)err_set(err, E_UNAVAIL,
                      "what runs on Target %.200s is being listed: try again in a moment", t->name);
    else if (!o)
        (void)err_field(err, E_NOTFOUND, "key",
                        "Target %.100s has no orphan %.100s; hanse get orphans lists them", t->name,
                        key);
    return o;
}

static bool condemned(const struct site *t, const struct run_key *k)
{
    for (size_t i = 0; i < t->n_condemned; i++)
        if (run_key_same(&t->condemned[i], k))
            return true;
    return false;
}

bool orphan_condemned(const struct site *t, const struct run_key *k)
{
    char key[RUN_KEY_MAX];

    run_key_print(k, key);
    const struct orphan *o = orphan_find(t, key);
    return condemned(t, k) || (o && o->why == ORPHAN_DENIED); /* that one is ended in any case */
}

static void condemn(struct site *t, const struct run_key *k)
{
    if (condemned(t, k))
        return;
    if (t->n_condemned == ORPHANS_MAX) { /* the oldest are long done */
        memmove(t->condemned, t->condemned + 1, (t->n_condemned - 1) * sizeof *k);
        t->n_condemned--;
    }
    t->condemned = mem_realloc(t->condemned, (t->n_condemned + 1) * sizeof *k);
    t->condemned[t->n_condemned++] = *k;
}

static void recorded(void *arg, const struct result *r, const struct err *err)
{
    struct act *x = arg;
    struct brain *b = x->brain;
    struct site *t = site_find(b, x->target);
    struct run_key k;
    struct err e;

    if (!err && r->code) {
        (void)err_set(&e, r->code, "%s", r->text);
        err = &e;
    }
    if (!err && t && b->leads && run_key_parse(x->key, &k, NULL) == 0) {
        condemn(t, &k);
        site_sweep(t);
    } else if (!err) {
        (void)err_set(&e, E_UNAVAIL, "recorded, and the leadership has gone since: end it again");
        err = &e;
    }
    x->cb(x->arg, err);
    mem_free(x);
}

void brain_orphan_end(struct brain *b, const char *target, const char *key, const char *who,
                      void (*cb)(void *arg, const struct err *err), void *arg)
{
    struct err err = {0};
    struct site *t = orphan_site(b, target, &err);
    const struct orphan *o = t ? orphan_listed(t, key, &err) : NULL;

    if (!o) {
        cb(arg, &err);
        return;
    }
    struct act *x = mem_new(struct act);
    *x = (struct act){.brain = b, .cb = cb, .arg = arg};
    str_copy(x->target, sizeof x->target, target);
    str_copy(x->key, sizeof x->key, key);
    events_act(b, who, target, "OrphanEnded", recorded, x,
               "%.100s said that the run %.100s of %.63s/%.100s, of cluster %.64s, is to be ended",
               who, key, o->ns, o->name, *o->cluster ? o->cluster : "unknown");
}
