/* The files of the seam as POSIX has them, for the production loop (api/base/uv) and for whoever
 * has no loop (net/pki.c). The loop is not looked at and may be NULL; what each call promises
 * stands at its wrapper in loop.h. */
#ifndef HANSE_API_BASE_LOOP_FILE_H
#define HANSE_API_BASE_LOOP_FILE_H

#include "api/base/loop/loop.h"

int posix_read(struct loop *l, const char *path, uint64_t offset, size_t max, bool whole,
               struct buf *b, struct err *err);
int posix_write(struct loop *l, const char *path, const void *p, size_t n, unsigned mode,
                struct err *err);
int posix_remove(struct loop *l, const char *path, struct err *err);
int posix_mkdir(struct loop *l, const char *path, unsigned mode, struct err *err);
int posix_list(struct loop *l, const char *dir, void (*each)(const char *, void *), void *arg,
               struct err *err);
int posix_lock(struct loop *l, const char *path, struct err *err);
int sync_parent(const char *path); /* fsync of the directory that path is in; an errno */
int err_errno(struct err *err, int no, const char *doing, const char *what);

#endif
