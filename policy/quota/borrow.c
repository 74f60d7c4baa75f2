/* What a queue may take back because its guarantee is not filled, and from which queues. Two queues
 * meet at the nearest queue above both, or at the root. There the branch of the one lends to the
 * branch of the other, and only what a branch holds above its own guarantee can be taken back. Work
 * that is directly in a queue with children counts as a branch of its own, guaranteed what the
 * children's guarantees leave over. The result is never more than a queue holds above any guarantee
 * on its way up: reclaim takes nobody's own. */
#include "policy/quota/quota_internal.h"

#include <string.h>

static uint32_t depth_of(const struct quota_view *v, uint32_t queue)
{
    uint32_t n = 0;

    for (; queue != NONE; queue = v->tree.parent[queue])
        n++;
    return n;
}

static uint32_t meet(const struct quota_view *v, uint32_t a, uint32_t b)
{
    uint32_t da = depth_of(v, a), db = depth_of(v, b);

    for (; da > db; da--)
        a = v->tree.parent[a];
    for (; db > da; db--)
        b = v->tree.parent[b];
    while (a != b) {
        a = v->tree.parent[a];
        b = v->tree.parent[b];
    }
    return a;
}

static int64_t guaranteed(const struct quota_view *v, uint32_t queue, bool all)
{
    const struct queue_gpus *g = quota_line(v->queues[queue], all ? "" : v->class_name);

    return g ? quota_milli(g->guaranteed) : 0;
}

/* One branch: what a queue and those below it are guaranteed and hold; direct: only the work in
 * it. */
struct branch {
    int64_t guaranteed, held;
    bool line; /* the queue says something of this class */
};
static struct branch branch_of(const struct quota_view *v, uint32_t queue, bool direct, bool all)
{
    struct branch b = {guaranteed(v, queue, all), v->held(v, queue, all),
                       quota_line(v->queues[queue], all ? "" : v->class_name) != NULL};

    for (uint32_t i = direct ? v->tree.child[queue] : NONE; i != NONE; i = v->tree.sibling[i]) {
        b.guaranteed -= guaranteed(v, i, all);
        b.held -= v->held(v, i, all);
    }
    b.guaranteed = b.guaranteed > 0 ? b.guaranteed : 0;
    return b;
}

static int64_t above(struct branch b)
{
    return b.held > b.guaranteed ? b.held - b.guaranteed : 0;
}

static int64_t below(struct branch b)
{
    return b.guaranteed > b.held ? b.guaranteed - b.held : 0;
}

/* Above the guarantee of the class and, where there is one, that of any class. */
static int64_t branch_above(const struct quota_view *v, uint32_t queue, bool direct)
{
    struct branch own = branch_of(v, queue, direct, false), any = branch_of(v, queue, direct, true);
    int64_t most = above(own);

    return any.line && above(any) < most ? above(any) : most;
}

/* Of the work in a queue, on its way up to `top` (not included): the least that any branch holds
 * above its own. */
static int64_t borrowed_below(const struct quota_view *v, uint32_t queue, uint32_t top)
{
    int64_t least = branch_above(v, queue, true);

    for (; queue != top; queue = v->tree.parent[queue]) {
        int64_t own = branch_above(v, queue, false);

        least = own < least ? own : least;
    }
    return least;
}

static int64_t unfilled_below(const struct quota_view *v, uint32_t claimant, uint32_t top)
{
    bool direct = claimant == top;
    int64_t own, any;

    while (!direct && v->tree.parent[claimant] != top)
        claimant = v->tree.parent[claimant];
    own = below(branch_of(v, claimant, direct, false));
    any = below(branch_of(v, claimant, direct, true));
    return own > any ? own : any;
}

int64_t quota_borrowed(const struct quota_view *v, uint32_t queue, uint32_t claimant,
                       int64_t *ret_unfilled)
{
    uint32_t top = claimant == NONE || queue == NONE ? NONE : meet(v, queue, claimant);
    int64_t least, unfilled = 0;

    if (claimant != NONE && claimant != queue)
        unfilled = unfilled_below(v, claimant, top);
    if (ret_unfilled)
        *ret_unfilled = unfilled;
    if (claimant == queue && queue != NONE)
        return 0;
    /* Work outside of any queue is guaranteed nothing. */
    if (queue == NONE) {
        least = v->held(v, NONE, false);
        for (uint32_t i = v->tree.child[v->n]; i != NONE; i = v->tree.sibling[i])
            least -= v->held(v, i, false);
    } else {
        least = borrowed_below(v, queue, top);
    }
    return claimant == NONE || least < unfilled ? least : unfilled;
}

int64_t policy_quota_borrowed(const char *queue, const char *claimant_or_null, const char *class_,
                              const struct object *const *queues, size_t n_queues,
                              int64_t (*held)(const char *queue, const char *class_, void *arg),
                              void *arg, int64_t *ret_unfilled)
{
    struct quota_callback c;
    struct quota_view v;
    uint32_t at, claimant = NONE;
    int64_t r = 0;

    quota_callback_init(&c, &v, class_, queues, n_queues, held, arg);
    at = quota_place(queues, n_queues, queue);
    if (claimant_or_null)
        claimant = quota_place(queues, n_queues, claimant_or_null);
    if (ret_unfilled)
        *ret_unfilled = 0;
    /* A queue that does not exist has no guarantee to claim by; without a name: work in no
     * queue. */
    if ((at != NONE || !queue[0]) && (!claimant_or_null || claimant != NONE))
        r = quota_borrowed(&v, at, claimant, ret_unfilled);
    quota_callback_fini(&c);
    return r;
}
