/* The end of a recovery (RECOVER SETTLE), and the Targets that it waits for: every Target of the
 * state, and every stranger: a Target that the state does not have, either because it was created
 * after the state that came back (its agent has dialed in: RECOVER STRANGER), or because it was
 * deleted meanwhile (root_commit).
 *
 * A recovery must never be settled over a Target that nobody has named as dead, nor accept a name
 * that names no Target. */
#include "controlplane/store/store_internal.h"

#include "api/base/failpoint.h"

#include <stdio.h>

int recover_stranger(struct txn *t, const struct recover_cmd *c)
{
    if (!object_name_valid(c->name))
        return err_set(t->err, E_INVALID, "no Target can be named so");
    t->res->unchanged = !t->w->recovering || root_stranger(t->w, c->name) ||
                        root_agent_target(t->w, c->name, NULL);
    if (t->res->unchanged)
        return 0;
    if (tree_count(t->w->strangers) >= STRANGERS_MAX)
        return err_set(t->err, E_LIMIT,
                       "%d Targets that this state does not have are awaited, and no more are "
                       "counted: apply them",
                       STRANGERS_MAX);
    root_put_stranger(t->w, c->name, false);
    return 0;
}

/* ---- what was deleted meanwhile ---- */
static bool unsettled_each(struct slice key, const void *value, void *arg)
{
    struct key *k = arg;

    (void)value;
    if (*(const char *)key.p == DEAD_UNSETTLED) {
        k->n = key.n;
        memcpy(k->p, key.p, key.n);
    }
    return false;
}

static bool unsettled_next(const struct root *w, struct key *ret)
{
    const char from = DEAD_UNSETTLED;

    tree_scan(w->dead, slice_make(&from, 1), unsettled_each, ret);
    return ret->n > 0;
}

/* What was deleted meanwhile goes, a slice at a time; or waits again, where recovery has begun
 * again. What lives is ended by who drives it, and goes then. */
void recover_collect(struct txn *t, struct slice key)
{
    struct key k = {.n = 0};

    while (!t->w->recovering && unsettled_next(t->w, &k)) {
        k.p[k.n] = '\0';
        const struct object *o = root_workload_by_uid(t->w, k.p + 1);
        if (!txn_charge(t, o ? o->bytes : 1)) {
            dead_set(t, key, 0, false, slice_make("", 0));
            return;
        }
        root_put_dead(t->w, key_slice(&k), NULL);
        if (o && o->meta->deletionTimestamp && txn_removable(t, o))
            txn_remove(t, o);
        else if (o)
            owner_look(t, o);
        k.n = 0;
        arena_reset(t->a);
    }
    root_put_dead(t->w, key, NULL);
}

/* ---- the end ---- */
static bool named(const struct recover_cmd *c, const char *target)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (!strcmp(c->ops[i].name, target))
            return true;
    return false;
}

/* Those that can be named, as far as there is room. */
static const char *all_names(struct txn *t)
{
    size_t n, strangers;
    const struct object *const *targets = txn_all(t, KIND_TARGET, &n);
    char(*v)[256] = arena_alloc(t->a, STRANGERS_MAX * sizeof *v);
    AUTO_BUF b;

    buf_init(&b, 512);
    strangers = root_strangers(t->w, v, STRANGERS_MAX);
    for (size_t i = 0; i < n + strangers; i++) {
        const char *name = i < n ? targets[i]->meta->name : v[i - n];
        if (b.n + strlen(name) > 160 || i - n == STRANGERS_MAX) {
            buf_printf(&b, " and %zu more", n + strangers - i);
            break;
        }
        buf_printf(&b, "%s%s", i ? ", " : "", name);
    }
    return b.n ? arena_strndup(t->a, b.p, b.n) : "none";
}

static int names_known(struct txn *t, const struct recover_cmd *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (!root_get(t->w, KIND_TARGET, "", c->ops[i].name) &&
            !root_stranger(t->w, c->ops[i].name))
            return err_set(t->err, E_NOTFOUND,
                           "there is no Target %.100s, and its agent has not dialed in; there are: "
                           "%s",
                           c->ops[i].name, all_names(t));
    return 0;
}

static int strangers_named(struct txn *t, const struct recover_cmd *c)
{
    char(*v)[256];
    size_t n = tree_count(t->w->strangers), open = 0, first = 0;

    if (!n || PLANTED("recover.no-strangers"))
        return 0;
    v = arena_alloc(t->a, n * sizeof *v);
    (void)root_strangers(t->w, v, n);
    for (size_t i = n; i > 0; i--)
        if (!named(c, v[i - 1])) {
            first = i - 1;
            open++;
        }
    if (!open)
        return 0;
    return err_set(t->err, E_CONFLICT,
                   "Target %.200s is not in this state and may carry work of it%s: apply Target "
                   "%.200s, or say that it is dead (--dead %.200s)",
                   v[first], open > 1 ? arena_printf(t->a, ", and so are %zu more", open - 1) : "",
                   v[first], v[first]);
}

/* Every Target has told all that runs there, or somebody said that it is dead. */
int recover_settle(struct txn *t, const struct recover_cmd *c)
{
    size_t n;
    const struct object *const *targets = txn_all(t, KIND_TARGET, &n);
    int r = names_known(t, c);

    for (size_t i = 0; i < n && !r; i++)
        if (!named(c, targets[i]->meta->name))
            r = err_set(t->err, E_CONFLICT,
                        "Target %.200s has not told what runs there: bring it back, or say that "
                        "it is dead (--dead %.200s)",
                        targets[i]->meta->name, targets[i]->meta->name);
    if (r || (r = strangers_named(t, c)) < 0)
        return r;
    t->res->unchanged = !t->w->recovering;
    t->w->recovering = 0;
    while (tree_count(t->w->strangers)) {
        char one[1][256];
        (void)root_strangers(t->w, one, 1);
        root_put_stranger(t->w, one[0], true);
    }
    if (unsettled_next(t->w, &(struct key){.n = 0}))
        dead_begin(t, DEAD_SETTLED, DEAD_SETTLED_NAME);
    return 0;
}
