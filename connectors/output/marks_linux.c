/* The runner's side of what a program printed (output.h): it bounds the file, and notes when bytes
 * came. The program writes the file itself, without anybody in between, so a dead or stopped runner
 * holds up nobody; times are as exact as this looks often. */
#include "connectors/output/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD 16
#define MARK 16

struct output_writer {
    char *path, *times_path;
    uint64_t max_bytes;
    int log, times; /* -1: not there yet */
    uint64_t base, marked;
    uint32_t generation;
    size_t n;
};

static void head_write(const struct output_writer *w, bool moving)
{
    unsigned char h[HEAD];

    le_put(h, w->base, 8);
    le_put(h + 8, w->generation, 4);
    le_put(h + 12, moving, 4);
    (void)!pwrite(w->times, h, sizeof h, 0);
}

/* Of a runner that was here before. */
static void head_read(struct output_writer *w)
{
    unsigned char h[HEAD], last[MARK];
    struct stat st;

    if (fstat(w->times, &st) != 0 || st.st_size < HEAD || pread(w->times, h, HEAD, 0) != HEAD)
        return;
    w->base = le_get(h, 8);
    w->generation = (uint32_t)le_get(h + 8, 4) + 1;
    w->n = (size_t)(st.st_size - HEAD) / MARK;
    w->marked = w->base;
    if (w->n && pread(w->times, last, MARK, HEAD + (off_t)((w->n - 1) * MARK)) == MARK)
        w->marked = le_get(last, 8);
}

struct output_writer *output_writer_create(const char *path, uint64_t max_bytes)
{
    struct output_writer *w;
    AUTO_BUF b;

    buf_init(&b, 8192);
    if (!path)
        return NULL;
    w = mem_new(struct output_writer);
    buf_printf(&b, "%s.times", path);
    w->path = mem_strdup(path);
    w->times_path = mem_strdup(b.p);
    w->max_bytes = max_bytes;
    w->log = -1;
    w->times = open(w->times_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (w->times >= 0) {
        head_read(w);
        head_write(w, false);
    }
    return w;
}

struct output_writer *output_writer_destroy(struct output_writer *w)
{
    if (!w)
        return NULL;
    if (w->log >= 0)
        (void)close(w->log);
    if (w->times >= 0)
        (void)close(w->times);
    mem_free(w->path);
    mem_free(w->times_path);
    mem_free(w);
    return NULL;
}

/* Keeps the marks of which keep() is true; readers are kept away meanwhile. */
static void marks_rewrite(struct output_writer *w, bool thin)
{
    size_t kept = 0;

    for (size_t i = 0; i < w->n; i++) {
        unsigned char m[MARK];
        if (pread(w->times, m, MARK, HEAD + (off_t)(i * MARK)) != MARK)
            break;
        if (le_get(m, 8) <= w->base || (thin && i % 2 == 0 && i + 1 < w->n))
            continue;
        if (pwrite(w->times, m, MARK, HEAD + (off_t)(kept * MARK)) != MARK)
            break;
        kept++;
    }
    w->n = kept;
    (void)!ftruncate(w->times, HEAD + (off_t)(kept * MARK));
    w->generation++;
}

static void trim(struct output_writer *w)
{
    const off_t half =
        (off_t)(w->max_bytes / 2) & ~(off_t)0xfffff; /* whole blocks of any file system */
    struct stat st;

    while (half > 0 && fstat(w->log, &st) == 0 && (uint64_t)st.st_size > w->max_bytes) {
        if (fallocate(w->log, FALLOC_FL_COLLAPSE_RANGE, 0, half) == 0) {
            w->base += (uint64_t)half;
            continue;
        }
        /* Not on this file system: all goes; bounded is more important than whole. */
        if (ftruncate(w->log, 0) != 0)
            break;
        w->base += (uint64_t)st.st_size;
    }
}

static void mark_add(struct output_writer *w, uint64_t end, int64_t now_ms)
{
    unsigned char m[MARK];

    le_put(m, end, 8);
    le_put(m + 8, (uint64_t)now_ms, 8);
    if (pwrite(w->times, m, MARK, HEAD + (off_t)(w->n * MARK)) == MARK) {
        w->n++;
        w->marked = end;
    }
}

static void look(struct output_writer *w, int64_t now_ms)
{
    struct stat st;

    if (w->log < 0)
        w->log = open(w->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (w->log < 0 || fstat(w->log, &st) != 0)
        return;
    uint64_t end = w->base + (uint64_t)st.st_size;
    if (end > w->marked && w->times >= 0)
        mark_add(w, end, now_ms);
    bool large = (uint64_t)st.st_size > w->max_bytes;
    if (!large && w->n < OUTPUT_MARKS_MAX)
        return;
    if (w->times >= 0)
        head_write(w, true);
    if (large)
        trim(w);
    if (w->times >= 0) {
        marks_rewrite(w, w->n >= OUTPUT_MARKS_MAX);
        head_write(w, false);
    }
}

bool output_writer_mark(struct output_writer *w, int64_t now_ms)
{
    if (w)
        look(w, now_ms);
    return w != NULL;
}
