/* The file system as checkpoints need it: below a folder, never through a link, by descriptor.
 * Private to connectors/checkpoint.
 *
 *   sealfs_linux.c   names, descriptors, links and copies
 *   beneath_linux.c  whether a folder truly lies below another one
 *   hash.c           SHA-256
 *   crew.c           several files at once
 *   proofs.c         what has been read already, on this machine */
#ifndef HANSE_CONNECTORS_CHECKPOINT_FILES_SEALFS_H
#define HANSE_CONNECTORS_CHECKPOINT_FILES_SEALFS_H

#include "connectors/checkpoint/checkpoint.h"

struct file_facts {
    uint64_t device, inode;
    int64_t size, mtime_ns, ctime_ns;
    int64_t birth_ns; /* 0 where the file system does not tell */
};
/* The same file, not written since. */
bool file_facts_equal(const struct file_facts *a, const struct file_facts *b);
/* Its clock does not move with every write: what was written in the tick in which it was read could
 * look unchanged. Was it last written long enough before read_ns? */
bool file_facts_settled(const struct file_facts *f, int64_t read_ns);
int64_t sealfs_now_ns(void); /* the clock of mtime */

/* Folders are descriptors; sealfs_close for both. */
int sealfs_dir_open(const char *path, int *ret_fd, struct err *err) MUST_CHECK;
int sealfs_dir_make(const char *path, struct err *err) MUST_CHECK; /* with parents, 0700 */
/* A folder below dir; negative when it is none. */
int sealfs_dir_below(int dir, const char *name, int *ret_fd) MUST_CHECK;
/* A regular file below dir, read only. E_NOTFOUND; E_FORBIDDEN for links and whatever is no
 * file. */
int sealfs_open(int dir, const char *name, int *ret_fd, struct file_facts *ret_facts,
                struct err *err) MUST_CHECK;
/* What is there of root/below lies in root: no link leads out, and no other user may put one there.
 * 0 also where nothing of it is there. E_FORBIDDEN: it does not. */
int sealfs_beneath(const char *root, const char *below, struct err *err) MUST_CHECK;
int sealfs_facts(int fd, struct file_facts *ret, struct err *err) MUST_CHECK;
void sealfs_close(int fd); /* accepts -1 */
/* All of a file; E_TOOLARGE. */
int sealfs_read(int fd, size_t max, struct buf *b, struct err *err) MUST_CHECK;
/* SHA-256 over the first `bytes` bytes; E_CORRUPT when it is shorter. ret_head (may be NULL): over
 * the first `head` bytes of these, in the same go. */
int sealfs_hash(int fd, int64_t bytes, int64_t head, struct checkpoint_progress *p,
                char ret_hex[65], char ret_head[65], struct err *err) MUST_CHECK;
int sealfs_sync(int fd, struct err *err) MUST_CHECK;
void sealfs_sync_begin(int fd); /* the kernel may write meanwhile */
/* Puts this very file, or a copy of its first `bytes` bytes, at `name` below `to` (which gets the
 * folders in between). A store that cannot link gets a copy; E_CORRUPT: the file has become
 * shorter. *ret_copy: the copy, on disk and open, to be read again; -1 when it was linked. */
int sealfs_take(int fd, int64_t bytes, bool want_copy, int to, const char *name, int *ret_copy,
                struct err *err) MUST_CHECK;
/* Writes NAME.tmp below dir, syncs, renames, syncs dir. durable false: no syncs. */
int sealfs_write(int dir, const char *name, const void *p, size_t n, bool durable,
                 struct err *err) MUST_CHECK;
/* The same, durable, but never over one that is there: E_EXISTS. Safe against others who try the
 * same. */
int sealfs_create(int dir, const char *name, const void *p, size_t n, struct err *err) MUST_CHECK;
/* A file that will be `name` below dir, with the folders in between: open to be written and read
 * again, under a name of its own (ret_part) until it is done. */
int sealfs_new(int dir, const char *name, char *ret_part, size_t max, int *ret_fd,
               struct err *err) MUST_CHECK;
/* It gets its name. modified: UTC seconds of its last change where it comes from, 0 = not known. */
int sealfs_new_done(int dir, const char *part, const char *name, int fd, int64_t modified,
                    struct err *err) MUST_CHECK;
/* All folders below dir and dir itself are on disk. */
int sealfs_tree_sync(int dir, struct err *err) MUST_CHECK;
int sealfs_rename(int dir, const char *from, const char *to, struct err *err) MUST_CHECK;
/* Recursive, without following links; absent is 0. */
int sealfs_remove(int dir, const char *name, struct err *err) MUST_CHECK;
/* Calls each for the entries, unsorted; each returns non-zero to stop. */
int sealfs_list(int dir, int (*each)(const char *name, void *arg), void *arg,
                struct err *err) MUST_CHECK;
/* The same by path; an absent folder holds nothing. */
int sealfs_list_path(const char *path, int (*each)(const char *name, void *arg), void *arg,
                     struct err *err) MUST_CHECK;
/* Newest modification of path (not of what lies below it); 0 = absent. */
int64_t sealfs_mtime_ns(const char *path);

/* "PREFIX" and a number in decimal, nothing else; -1 otherwise. */
int64_t sealfs_number(const char *name, const char *prefix, const char *suffix);
void sealfs_hex(const unsigned char digest[32], char out[65]);
int sealfs_digest(const void *p, size_t n, char out[CHECKPOINT_DIGEST_MAX],
                  struct err *err) MUST_CHECK;

/* ---- several at once (crew.c) ---- */
#define SEALFS_CREW_MAX 4 /* threads, the caller's with them; never more than it has cores */
/* Calls each for 0 to n - 1, in that order, on several threads where that many bytes are worth it;
 * returns when all have returned. After a failure none is begun any more. The error is that of the
 * lowest number that failed. */
int sealfs_crew(size_t n, int64_t bytes, int (*each)(size_t i, void *arg, struct err *err),
                void *arg, struct err *err) MUST_CHECK;

/* ---- proofs (proofs.c) ---- */
#define PROOFS_MAX (16u << 20)
struct file_proof {
    struct file_facts facts; /* of the file that was read */
    int64_t bytes, read_ns;  /* read_ns: when reading began; 0: it proves nothing */
    char sha256[65];
};
/* A text of proofs: of the files of one manifest, in its order, for this machine until it is
 * started again. */
void proofs_begin(const char *manifest, struct buf *out); /* "sha256:…" */
void proofs_add(struct buf *out, const char *name, const struct file_proof *p);
/* Writes it as `name` in the folder, which is made. A text that has failed is not written. */
int proofs_write(const char *folder, const char *name, const struct buf *text,
                 struct err *err) MUST_CHECK;
/* Its first line, in text; NULL: there is none that is to be believed. */
const char *proofs_read(const char *folder, const char *name, const char *manifest,
                        struct buf *text);
/* The next line, if it is about this file. Accepts *line NULL. */
bool proofs_next(const char **line, const char *name, struct file_proof *ret);
bool proof_holds(const struct file_proof *p, const struct checkpoint_file *f,
                 const struct file_facts *now);

#endif
