/* Files of a virtual host: a sorted list. file_write is atomic and durable, so a crash loses
 * nothing here. */
#include "tests/sim/world/sim_internal.h"

#include <stdio.h>
#include <string.h>

static struct sim_file *find(const struct sim_host *h, const char *path)
{
    list_for_each (it, &h->files)
        if (strcmp(container_of(it, struct sim_file, link)->path, path) == 0)
            return container_of(it, struct sim_file, link);
    return NULL;
}

static struct sim_file *add(struct sim_host *h, const char *path, bool dir)
{
    struct sim_file *f = mem_new(struct sim_file);
    struct list *at = h->files.next;

    f->path = mem_strdup(path);
    f->dir = dir;
    while (at != &h->files && strcmp(container_of(at, struct sim_file, link)->path, path) < 0)
        at = at->next;
    list_push(at, &f->link); /* before `at` */
    return f;
}

static void file_free(struct sim_file *f)
{
    list_remove(&f->link);
    mem_free(f->path);
    mem_free(f->p);
    mem_free(f);
}

static struct sim_host *host_of(struct loop *l)
{
    return sim_loop_of(l)->proc->host;
}

int sim_read_op(struct loop *l, const char *path, uint64_t offset, size_t max, bool whole,
                struct buf *b, struct err *err)
{
    const struct sim_file *f = find(host_of(l), path);

    if (!f)
        return err_set(err, E_NOTFOUND, "reading %s: No such file or directory", path);
    if (f->dir)
        return err_set(err, E_IO, "reading %s: it is a directory", path);
    size_t n = offset < f->n ? f->n - (size_t)offset : 0;
    if (whole && n > max)
        return err_set(err, E_TOOLARGE, "%s is larger than %zu bytes", path, max);
    n = n < max ? n : max;
    buf_add(b, n ? f->p + offset : "", n);
    return b->failed ? err_set(err, E_TOOLARGE, "%s does not fit in %zu bytes", path, b->max) : 0;
}

/* "" for a path without a folder. */
static bool parent_exists(const struct sim_host *h, const char *path)
{
    char dir[1024];
    const char *slash = strrchr(path, '/');

    if (!slash || slash == path)
        return true;
    (void)snprintf(dir, sizeof dir, "%.*s", (int)(slash - path), path);
    const struct sim_file *f = find(h, dir);
    return f && f->dir;
}

int sim_write_op(struct loop *l, const char *path, const void *p, size_t n, unsigned mode,
                 struct err *err)
{
    struct sim_host *h = host_of(l);
    struct sim_file *f = find(h, path);

    if (!parent_exists(h, path))
        return err_set(err, E_NOTFOUND, "writing %s.tmp: No such file or directory", path);
    if (f && f->dir)
        return err_set(err, E_IO, "writing %s: Is a directory", path);
    if (h->disk_full)
        return err_set(err, E_NOSPACE,
                       "writing %s: No space left on device: free some space, nothing was changed",
                       path);
    if (!f)
        f = add(h, path, false);
    char *copy = mem_alloc(n);
    if (n)
        memcpy(copy, p, n);
    mem_free(f->p);
    f->p = copy;
    f->n = n;
    f->mode = mode;
    return 0;
}

void sim_append(struct sim_host *h, const char *path, const void *p, size_t n)
{
    struct sim_file *f = find(h, path);

    if (!f)
        f = add(h, path, false);
    f->p = mem_realloc(f->p, f->n + n);
    memcpy(f->p + f->n, p, n);
    f->n += n;
}

static bool beneath(const char *path, const char *dir)
{
    size_t n = strlen(dir);

    return strncmp(path, dir, n) == 0 && path[n] == '/';
}

int sim_remove_op(struct loop *l, const char *path, struct err *err)
{
    (void)err;
    list_for_each_safe (it, tmp, &host_of(l)->files) {
        struct sim_file *f = container_of(it, struct sim_file, link);

        if (strcmp(f->path, path) == 0 || beneath(f->path, path))
            file_free(f);
    }
    return 0;
}

int sim_mkdir_op(struct loop *l, const char *path, unsigned mode, struct err *err)
{
    struct sim_host *h = host_of(l);
    char part[1024];
    size_t n = strlen(path);

    if (!n || n >= sizeof part)
        return err_set(err, E_INVALID, "the path %.200s is empty or too long", path);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        (void)snprintf(part, sizeof part, "%.*s", (int)i, path);
        struct sim_file *f = find(h, part);
        if (f && !f->dir)
            return err_set(err, E_EXISTS, "%s exists and is no directory", part);
        if (!f)
            add(h, part, true)->mode = mode;
    }
    return 0;
}

int sim_list_op(struct loop *l, const char *dir, void (*each)(const char *, void *), void *arg,
                struct err *err)
{
    (void)err;
    list_for_each_safe (it, tmp, &host_of(l)->files) {
        const char *path = container_of(it, struct sim_file, link)->path;

        if (beneath(path, dir) && !strchr(path + strlen(dir) + 1, '/'))
            each(path + strlen(dir) + 1, arg);
    }
    return 0;
}

int sim_lock_op(struct loop *l, const char *path, struct err *err)
{
    struct sim_host *h = host_of(l);
    struct sim_proc *p = sim_loop_of(l)->proc;
    struct sim_file *f = find(h, path);

    if (!parent_exists(h, path))
        return err_set(err, E_NOTFOUND, "locking %s: No such file or directory", path);
    if (!f)
        f = add(h, path, false);
    if (f->locked_by) /* a second lock of the same process is refused on Linux, too */
        return err_set(err, E_BUSY,
                       "%s is locked by process %lld: stop it, or use another directory", path,
                       (long long)f->locked_by->pid);
    f->locked_by = p;
    return 0;
}

void sim_files_unlock(struct sim_proc *p)
{
    list_for_each (it, &p->host->files) {
        struct sim_file *f = container_of(it, struct sim_file, link);

        if (f->locked_by == p)
            f->locked_by = NULL;
    }
}

void sim_files_free(struct sim_host *h)
{
    while (!list_empty(&h->files))
        file_free(container_of(h->files.next, struct sim_file, link));
}

/* ---- copies of all ---- */
struct sim_files {
    struct list all; /* struct sim_file */
};
static void files_drop(struct list *all)
{
    list_for_each_safe (it, tmp, all)
        file_free(container_of(it, struct sim_file, link));
}
static void files_assign(struct list *to, const struct list *from)
{
    for (const struct list *it = from->next; it != from; it = it->next) {
        const struct sim_file *f = container_of(it, struct sim_file, link);
        struct sim_file *c = mem_new(struct sim_file);
        c->path = mem_strdup(f->path);
        c->dir = f->dir;
        c->mode = f->mode;
        c->n = f->n;
        c->p = mem_alloc(f->n + 1);
        if (f->n)
            memcpy(c->p, f->p, f->n);
        list_push(to, &c->link);
    }
}
struct sim_files *sim_folder_copy(const struct sim_host *h)
{
    struct sim_files *c = mem_new(struct sim_files);

    list_init(&c->all);
    files_assign(&c->all, &h->files);
    return c;
}
void sim_folder_put_back(struct sim_host *h, const struct sim_files *c)
{
    files_drop(&h->files);
    files_assign(&h->files, &c->all);
}
void sim_folder_free(struct sim_files *c)
{
    files_drop(&c->all);
    mem_free(c);
}
