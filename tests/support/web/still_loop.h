/* A loop whose clock stands still until a test lets it run: timers, posts and randomness from a
 * seed, and nothing of the outer world. */
#ifndef HANSE_TESTS_SUPPORT_WEB_STILL_LOOP_H
#define HANSE_TESTS_SUPPORT_WEB_STILL_LOOP_H

#include "api/base/loop/loop.h"

struct loop *still_loop_create(uint64_t seed);
void still_loop_run(struct loop *l, uint64_t ms); /* lets that much time pass */
void still_loop_go(struct loop *l);               /* until loop_stop, as fast as it can */
struct loop *still_loop_destroy(struct loop *l);

#endif
