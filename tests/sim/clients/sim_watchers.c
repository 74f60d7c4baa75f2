/* Watchers: each follows the changes of one member's view, as api/server/read/watch.c does, and
 * goes on where it was at another when that one is gone. A new stream begins with a list that any
 * member may answer. */
#include "tests/sim/clients/sim_clients.h"

#include "api/base/failpoint.h"
#include "controlplane/server/backend.h"

#include <string.h>

static bool item_each(const struct object *o, void *arg)
{
    struct history_list *l = arg;

    if (l->n < CLIENT_KEYS + 1)
        l->items[l->n++] = (struct history_item){0, (uint64_t)object_as(o, dataset)->spec->bytes,
                                                 (uint64_t)o->meta->resourceVersion};
    return true;
}
struct names {
    struct sim_clients *x;
    struct history_list *l;
    size_t n;
};
static bool name_each(const struct object *o, void *arg)
{
    struct names *s = arg;

    if (s->n < s->l->n)
        s->l->items[s->n++].key = sim_clients_key(s->x, o->meta->name);
    return true;
}
/* From the view's state on. */
static void begin(struct sim_watcher *w, struct backend *b, struct view *v)
{
    struct history_item items[CLIENT_KEYS + 1];
    struct history_list l = {.called = sim_clients_moment(w->x),
                             .client = 100 + w->id,
                             .stale = true,
                             .rv = b->ops->view_rv(v),
                             .items = items};
    struct names names = {w->x, &l, 0};

    b->ops->scan(v, kind_by_id(KIND_DATASET), "dev", NULL, NULL, item_each, &l);
    b->ops->scan(v, kind_by_id(KIND_DATASET), "dev", NULL, NULL, name_each, &names);
    l.returned = sim_clients_moment(w->x);
    if (l.rv)
        history_add_list(sim_clients_history(w->x), &l);
    w->since = l.rv;
    w->watch = history_watch(sim_clients_history(w->x), 100 + w->id, l.rv);
    w->begun = true;
}
static bool change_each(uint64_t rv, const struct kind *k, const struct object *before,
                        const struct object *after, void *arg)
{
    struct sim_watcher *w = arg;

    w->since = rv;
    if (k->id != KIND_DATASET)
        return true;
    if (PLANTED("clients.watch-gap") && rv % 50 == 7)
        return true;
    const char *name = (after ? after : before)->meta->name;
    w->seen_last |= !strcmp(name, "last");
    history_add_event(sim_clients_history(w->x),
                      &(struct history_event){
                          .at = sim_clients_moment(w->x),
                          .watch = w->watch,
                          .key = sim_clients_key(w->x, name),
                          .value = after ? (uint64_t)object_as(after, dataset)->spec->bytes : 0,
                          .rv = rv});
    return true;
}
static bool alive(const struct sim_watcher *w)
{
    return w->m && w->f->members[w->m->id - 1] == w->m && w->m->core && !w->m->closing &&
           !w->m->error.code;
}
static void look(void *arg)
{
    struct sim_watcher *w = arg;
    struct err err;

    sim_at(w->f->w, sim_now_ms(w->f->w) + 20 + sim_random_below(w->f->w, 200), look, w);
    if (!alive(w) || sim_random_below(w->f->w, 100) == 0)
        w->m = sim_clients_member(w->x);
    if (!w->m || w->f->paused[w->m->id - 1])
        return;
    struct backend *b = sim_clients_backend(w->x, w->m);
    struct view *v = b->ops->view(b);
    if (!w->begun)
        begin(w, b, v);
    else if (b->ops->view_rv(v) > w->since && /* else: it is behind what this one has seen */
             b->ops->changes(v, w->since, change_each, w, &err))
        begin(w, b, v); /* they are no longer kept */
    b->ops->view_release(v);
}
void sim_watcher_start(struct sim_watcher *w)
{
    sim_at(w->f->w, CLIENTS_FROM_MS + sim_random_below(w->f->w, 1000), look, w);
}
