/* Proofs: which files this machine has read to the last byte named, and what their facts were then,
 * so that who needs the same bytes next reads only what has changed. A proof must never be believed
 * after a restart (device numbers and the kernel's pages are others then), nor from somebody who
 * could not have read for us. */
#include "connectors/checkpoint/files/sealfs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BOOT_ID "/proc/sys/kernel/random/boot_id"
#define BOOT_MAX 40

/* "BOOT sha256:MANIFEST\n" */
static bool head_print(const char *manifest, char *out, size_t max)
{
    char boot[BOOT_MAX] = "";
    int fd = open(BOOT_ID, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, boot, sizeof boot - 1);

    sealfs_close(fd);
    boot[n > 0 ? strcspn(boot, "\n") : 0] = '\0';
    return *boot && (size_t)snprintf(out, max, "%s %s\n", boot, manifest) < max;
}

void proofs_begin(const char *manifest, struct buf *out)
{
    char head[BOOT_MAX + CHECKPOINT_DIGEST_MAX + 8];

    buf_str(out, head_print(manifest, head, sizeof head) ? head : "-\n");
}

/* "dev ino size mtime ctime read bytes sha256 name" */
void proofs_add(struct buf *out, const char *name, const struct file_proof *p)
{
    buf_printf(out,
               "%" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64
               " %s %s\n",
               p->facts.device, p->facts.inode, p->facts.size, p->facts.mtime_ns, p->facts.ctime_ns,
               p->read_ns, p->bytes, p->sha256, name);
}

/* A decimal number and the one space behind it. */
static bool number_next(const char **at, int64_t *ret)
{
    char *end;

    errno = 0;
    *ret = strtoll(*at, &end, 10);
    if (end == *at || errno || *end != ' ')
        return false;
    *at = end + 1;
    return true;
}

static bool id_next(const char **at, uint64_t *ret)
{
    char *end;

    errno = 0;
    *ret = strtoull(*at, &end, 10);
    if (end == *at || errno || *end != ' ')
        return false;
    *at = end + 1;
    return true;
}

bool proofs_next(const char **line, const char *name, struct file_proof *ret)
{
    const char *at = *line, *end = at ? strchr(at, '\n') : NULL;
    struct file_proof p = {0};

    if (!end)
        return false;
    *line = end + 1;
    if (!id_next(&at, &p.facts.device) || !id_next(&at, &p.facts.inode) ||
        !number_next(&at, &p.facts.size) || !number_next(&at, &p.facts.mtime_ns) ||
        !number_next(&at, &p.facts.ctime_ns) || !number_next(&at, &p.read_ns) ||
        !number_next(&at, &p.bytes) || end - at < 65 || at[64] != ' ')
        return false;
    memcpy(p.sha256, at, 64);
    at += 65;
    if ((size_t)(end - at) != strlen(name) || strncmp(at, name, strlen(name)) != 0)
        return false;
    *ret = p;
    return true;
}

bool proof_holds(const struct file_proof *p, const struct checkpoint_file *f,
                 const struct file_facts *now)
{
    return p->read_ns > 0 && p->bytes == f->bytes && strcmp(p->sha256, f->sha256) == 0 &&
           file_facts_equal(&p->facts, now) && p->facts.ctime_ns == now->ctime_ns &&
           file_facts_settled(&p->facts, p->read_ns);
}

/* Root's, or our own, and nobody else may have written to it. */
static bool is_ours(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && (st.st_uid == 0 || st.st_uid == geteuid()) &&
           !(st.st_mode & (S_IWGRP | S_IWOTH));
}

const char *proofs_read(const char *folder, const char *name, const char *manifest,
                        struct buf *text)
{
    char head[BOOT_MAX + CHECKPOINT_DIGEST_MAX + 8];
    int dir = -1, fd = -1;
    bool good = false;

    if (!head_print(manifest, head, sizeof head) || sealfs_dir_open(folder, &dir, NULL) < 0)
        return NULL;
    if (sealfs_open(dir, name, &fd, NULL, NULL) == 0) {
        good = is_ours(fd) && sealfs_read(fd, PROOFS_MAX, text, NULL) == 0 &&
               text->n > strlen(head) && strncmp(text->p, head, strlen(head)) == 0;
        sealfs_close(fd);
    }
    sealfs_close(dir);
    return good ? text->p + strlen(head) : NULL;
}

int proofs_write(const char *folder, const char *name, const struct buf *text, struct err *err)
{
    int dir = -1;
    int rc = sealfs_dir_make(folder, err);

    if (rc == 0)
        rc = sealfs_dir_open(folder, &dir, err);
    if (rc < 0 || text->failed) /* too many files: they are read again */
        sealfs_close(dir);
    if (rc < 0 || text->failed)
        return rc;
    rc = sealfs_write(dir, name, text->p, text->n, false, err);
    sealfs_close(dir);
    return rc;
}
