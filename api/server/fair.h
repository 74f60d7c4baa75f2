/* Fair queueing of requests between users: so many seats are under way at once, and one turn of the
 * loop serves so many (or computes for so long), each user's in turn. Who sends ten times his share
 * waits behind himself; who asks for less than his share goes at once.
 *
 * A request has a width, its cost in seats: a write by its bytes, a list by its objects. One user
 * may hold SEATS / (users of the last second + 1), so a newcomer always finds room. What lasts
 * (watches, logs, exec, backups) holds no seat, but is counted for each user. Users whose names
 * fall into one slot share its part. All on one loop. */
#ifndef HANSE_API_SERVER_FAIR_H
#define HANSE_API_SERVER_FAIR_H

#include "api/base/list.h"
#include "api/base/loop/loop.h"

struct fair;
struct flow;       /* one user's */
struct fair_item { /* embedded in what is served; zeroed before its first use */
    struct list link;
    struct flow *flow; /* NULL: it holds nothing, and waits for nothing */
    /* Its turn has come, or the next one of what it began. why: it is refused (E_LIMIT, or
     * E_UNAVAIL at the end), and holds nothing. */
    void (*run)(struct fair_item *it, const struct err *why);
    unsigned width;
    size_t bytes;
    uint64_t since_ms;
    bool waits, holds, part, small;
};
#define FAIR_WIDTH_MAX 32

struct fair *fair_create(struct loop *l);
struct fair *fair_destroy(struct fair *f); /* nothing holds a seat, nothing waits */
/* Runs it at once, from within, or later. width: 1 to FAIR_WIDTH_MAX; bytes: what it keeps in
 * memory while it waits. small: leader election and the like, which passes ahead of all others
 * while a user has few of them. */
void fair_enter(struct fair *f, const char *user, struct fair_item *it, bool small);
/* What began goes on in a later turn, as a part of it: it->run comes again. flow: of what entered;
 * its own when it did. */
void fair_again(struct fair *f, struct flow *flow, struct fair_item *it);
void fair_leave(struct fair *f, struct fair_item *it); /* also what waits, or never entered */
/* What lasts, for as long as it does: E_LIMIT when this user has too many. *ret, NULL before,
 * stands for one that is counted: it is moved, never copied, and fair_lasted() gives it back and
 * makes it NULL, so that several ends of one thing give it back once. */
int fair_last(struct fair *f, const char *user, struct flow **ret, struct err *err) MUST_CHECK;
void fair_lasted(struct fair *f, struct flow **held); /* NULL in it: nothing to give back */
void fair_stop(struct fair *f); /* what waits is refused, and what comes from now on */
void fair_metrics(const struct fair *f, struct buf *out);

#endif
