/* A parcel: much data of several kinds in one file or stream, in frames, with a digest at its end.
 * What was cut off, changed or is something else is found out by whoever reads it to its end; and
 * nothing of it may be believed before.
 *
 *   "HANSEPCL"  u32 version  u32 0      frames: u32 type  u32 bytes  bytes      (little-endian)
 *   the last frame:  u32 0  u32 32  SHA-256 of all bytes before this frame
 *
 * Kinds of frames are the writer's; a backup's are in controlplane/backup/backup.h, and the first
 * of them says in JSON what it is. */
#ifndef HANSE_API_BASE_PARCEL_H
#define HANSE_API_BASE_PARCEL_H

#include "api/base/err.h"
#include "api/base/mem.h"

#include <stdbool.h>
#include <stdint.h>

#define PARCEL_VERSION 1
#define PARCEL_FRAME_MAX ((size_t)1 << 20)
#define PARCEL_ABOUT 1 /* type of the first frame: JSON */

struct parcel_out;
struct parcel_out *parcel_out_create(struct buf *out); /* begins it; `out` is where all goes */
struct parcel_out *parcel_out_destroy(struct parcel_out *p); /* NULL ok */
/* type > 0, n <= PARCEL_FRAME_MAX */
void parcel_frame(struct parcel_out *p, struct buf *out, uint32_t type, const void *bytes,
                  size_t n);
void parcel_end(struct parcel_out *p, struct buf *out);

struct parcel_in;
/* Not 0 ends the reading, and is what parcel_feed returns; it has set err then. */
typedef int (*parcel_cb)(void *arg, uint32_t type, struct slice bytes, struct err *err);
struct parcel_in *parcel_in_create(parcel_cb each, void *arg);
struct parcel_in *parcel_in_destroy(struct parcel_in *p); /* NULL ok */
/* The next bytes, as they come. E_CORRUPT, or E_NOTIMPL: a newer version wrote it. */
int parcel_feed(struct parcel_in *p, const void *bytes, size_t n, struct err *err) MUST_CHECK;
/* There are no more bytes: E_CORRUPT unless its end has come. */
int parcel_whole(const struct parcel_in *p, struct err *err) MUST_CHECK;

#endif
