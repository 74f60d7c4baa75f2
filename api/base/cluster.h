/* A cluster's uid: "LINE", 32 hex digits made when it began, or "LINE.N". N, from 2 on, counts how
 * often the state of this line went back to an older one: restored from a backup, or taken on by
 * one member alone. Whoever carries an older N may be unknown to the state, and yet do what it once
 * said; a member of an older N was left behind. */
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
/* The next generation of it. */
void cluster_next(const char *uid, char out[CLUSTER_UID_MAX]);

#endif
