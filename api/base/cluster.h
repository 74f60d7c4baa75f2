/* A cluster's uid: "LINE", 32 hex digits made when it began, "LINE.N" or "LINE.N.LOG". N, from 2
 * on, grows each time that the state of this line goes back to an older one. Whoever carries an
 * older N may be unknown to the state, and yet do what it once said; a hub of an older N was left
 * behind.
 *
 * LOG, 8 hex digits, names the log where it is not the one that the line began with: a log begins
 * anew when the state is restored from a backup, or taken on by one member alone, who knows nothing
 * of what others do meanwhile. Members of one log may be of several N for a moment (the log itself
 * takes them on); members of two logs have nothing to say to each other. */
#ifndef HANSE_API_BASE_CLUSTER_H
#define HANSE_API_BASE_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLUSTER_UID_MAX 64

size_t cluster_line(const char *uid);         /* length of LINE */
uint64_t cluster_generation(const char *uid); /* N; 1 where none is told, 0 of "" */
bool cluster_same_line(const char *a, const char *b);
/* Of the same line, and `a` was left behind by `b`. */
bool cluster_left_behind(const char *a, const char *b);
/* The next generation of it, in the same log. */
void cluster_next(const char *uid, char out[CLUSTER_UID_MAX]);
/* The next generation, in a log of its own. By the time of day, so that of two that begin from the
 * same state the later one leaves the earlier behind. */
void cluster_begin_anew(const char *uid, int64_t wall_ms, uint64_t random,
                        char out[CLUSTER_UID_MAX]);
/* Of the same line, and of the same log; "" is of any. */
bool cluster_same_log(const char *a, const char *b);
/* The same, not below n: of two that went back from the same place each has its own. */
void cluster_next_from(const char *uid, uint64_t n, char out[CLUSTER_UID_MAX]);

#endif
