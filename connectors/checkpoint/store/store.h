/* A checkpoint store: where seals and cuts are kept. One interface, two drivers: a directory that
 * everybody reaches (directory.c), and S3 (s3.c). The code above it knows no driver.
 *
 * Names are relative to the store's base, parts separated by '/': "sealed/e1/cut-3.json". They mean
 * the same in every store.
 *
 * A store that is no directory has a stand-in on this machine (store_local): a folder with the same
 * layout, in which programs write, seals are made and what is resumed from is read. What lies there
 * becomes part of the store by store_put, and comes from it by store_fetch. The stand-in of a
 * directory is the directory itself, so there is nothing to put or to fetch.
 *
 * A driver must never say that something is not there unless the store itself has said so. Whatever
 * else goes wrong (out of reach, not permitted, answers that are none) is no verdict on what it
 * holds: err->field is CHECKPOINT_UNREACHABLE then, or the code is E_CANCELLED. A directory says
 * what the system said; whether it is there at all is store_is_here.
 *
 * Calls block, for as long as store.c's limits say; one thread at a time. Private to
 * connectors/checkpoint and connectors/kept. */
#ifndef HANSE_CONNECTORS_CHECKPOINT_STORE_STORE_H
#define HANSE_CONNECTORS_CHECKPOINT_STORE_STORE_H

#include "connectors/checkpoint/checkpoint.h"

/* Patience with a store that does not answer: all attempts of one call together end when nothing
 * has moved for this long. Shorter than what the shim waits for a store (KEEPER_PATIENCE_MS). */
#define STORE_PATIENCE_MS 45000

struct store;
/* Checks what is said, asks nothing of the store. p (may be NULL) is told of bytes that move, and
 * may cancel any call. */
int store_open(const struct checkpoint_store *at, struct checkpoint_progress *p, struct store **ret,
               struct err *err) MUST_CHECK;
struct store *store_close(struct store *s);                          /* accepts NULL */
void store_progress(struct store *s, struct checkpoint_progress *p); /* from now on */

const char *store_base(const struct store *s);  /* as it was given */
const char *store_local(const struct store *s); /* absolute folder; "" = none was given */
bool store_is_remote(const struct store *s);    /* store_local is not the store itself */

/* Is the store there at all? False is an answer, and no error. Asked to tell a checkpoint that is
 * missing from a directory that is not mounted. */
bool store_is_here(struct store *s);
/* A folder, so that it can be listed while it is empty: also the proof that one may write. */
int store_make(struct store *s, const char *folder, struct err *err) MUST_CHECK;
/* A small file. E_NOTFOUND, E_TOOLARGE; E_FORBIDDEN: what bears this name is no file. */
int store_get(struct store *s, const char *name, size_t max, struct buf *ret,
              int64_t *ret_written_ns, struct err *err) MUST_CHECK;
/* A small file, durable when it returns, never over one that is there: E_EXISTS, whoever was
 * quicker. */
int store_create(struct store *s, const char *name, const void *p, size_t n,
                 struct err *err) MUST_CHECK;
/* Calls each for what lies in the folder, unsorted; each returns non-zero to stop. An absent folder
 * holds nothing. */
int store_list(struct store *s, const char *folder, int (*each)(const char *name, void *arg),
               void *arg, struct err *err) MUST_CHECK;
/* When it was last written to, by the store's clock: the folder, or what lies in it. 0 = never. */
enum store_written { STORE_FOLDER, STORE_ENTRIES };
int store_written(struct store *s, const char *folder, enum store_written what, int64_t *ret_ns,
                  struct err *err) MUST_CHECK;
/* With all that lies below; absent is 0. */
int store_remove(struct store *s, const char *name, struct err *err) MUST_CHECK;

/* ---- only where store_is_remote ---- */
/* The first bytes of an open file. When it returns 0 the store has them whole: it has been told
 * their SHA-256, and asked what it has. E_CHECKPOINT: the file is not what sha256 says. */
int store_put(struct store *s, const char *name, int fd, const struct checkpoint_file *f,
              struct err *err) MUST_CHECK;
/* The same without sending it, out of another file that the store has: its own checksum says that
 * it is what sha256 says. *ret_copied false: it could not, so it has to be put. */
int store_copy(struct store *s, const char *from, const char *name, const struct checkpoint_file *f,
               bool *ret_copied, struct err *err) MUST_CHECK;
/* Into f->name below the folder `to` (a descriptor), under that name whole or not at all, read back
 * as it came: f->bytes bytes with that SHA-256. E_CHECKPOINT with CheckpointTorn (not there, or
 * shorter) or CheckpointAltered; asked twice before it says so. */
int store_fetch(struct store *s, const char *name, int to, const struct checkpoint_file *f,
                struct err *err) MUST_CHECK;

/* ---- for drivers ---- */
struct store_ops {
    void (*close)(struct store *s);
    bool (*is_here)(struct store *s);
    int (*make)(struct store *s, const char *folder, struct err *err);
    int (*get)(struct store *s, const char *name, size_t max, struct buf *ret,
               int64_t *ret_written_ns, struct err *err);
    int (*create)(struct store *s, const char *name, const void *p, size_t n, struct err *err);
    int (*list)(struct store *s, const char *folder, int (*each)(const char *name, void *arg),
                void *arg, struct err *err);
    int (*written)(struct store *s, const char *folder, enum store_written what, int64_t *ret_ns,
                   struct err *err);
    int (*remove)(struct store *s, const char *name, struct err *err);
    /* NULL: the store is a directory */
    int (*put)(struct store *s, const char *name, int fd, const struct checkpoint_file *f,
               struct err *err);
    int (*copy)(struct store *s, const char *from, const char *name,
                const struct checkpoint_file *f, bool *ret_copied, struct err *err);
    int (*fetch)(struct store *s, const char *name, int to, const struct checkpoint_file *f,
                 struct err *err);
};
struct store { /* a driver's struct begins with it */
    const struct store_ops *ops;
    struct checkpoint_progress *progress;
    char base[CHECKPOINT_PATH_MAX], local[CHECKPOINT_PATH_MAX];
};
struct store *store_directory_open(void);
int store_s3_open(const struct checkpoint_store *at, struct store **ret,
                  struct err *err) MUST_CHECK;

#endif
