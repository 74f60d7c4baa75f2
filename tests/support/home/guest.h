/* Runners that a test itself hands over to the hub's side, past any door and any network: on
 * whatever loop, also on one whose clock stands still. They keep what they are told, and say
 * nothing by themselves. */
#ifndef HANSE_TESTS_SUPPORT_HOME_GUEST_H
#define HANSE_TESTS_SUPPORT_HOME_GUEST_H

#include "api/base/net/frame.h"
#include "connectors/home/home.h"

struct guest {
    struct stream base;  /* as the hub has it */
    struct stream mouth; /* what is written here it says */
    struct frame_reader reader;
    bool here;         /* the hub has not cut it off, nor refused it */
    char refused[256]; /* why */
    bool over;         /* of that */
    unsigned renewals, goes;
};
typedef int (*guest_taker)(void *taker, const struct home_arrival *a, struct err *err);
/* It calls home with that report; returns what the taker does. It must outlive that one. */
int guest_comes(struct guest *g, struct loop *l, const struct home_token *t,
                const struct run_report *r, guest_taker take, void *taker);
void guest_beats(struct guest *g); /* harmless where it is not here, and so are the others */
void guest_tells(struct guest *g, const struct run_report *r);
void guest_goes(struct guest *g); /* its connection is lost */

#endif
