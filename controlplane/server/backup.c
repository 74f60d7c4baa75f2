/* Backups of a running cluster: any member that is caught up makes them. The state is an immutable
 * root, so nothing waits for it; pieces are made on the thread pool as they are asked for. One at a
 * time, for each needs room on the disk of the data directory. */
#include "controlplane/backup/backup.h"

#include "api/base/log.h"
#include "controlplane/server/backend.h"

#include <stdio.h>
#include <string.h>

#define FRESH_DEADLINE_MS 10000
#define PIECE_MAX ((size_t)2 << 20)

struct api_backup {
    struct control *c; /* NULL: closed */
    struct loop *loop;
    struct backup *source;
    char user[256];
    struct buf out;
    bool busy, last;
    uint64_t bytes;
    int code;
    struct err err;
    void (*cb)(void *arg, struct slice piece, bool last, const struct err *err);
    void *arg;
};

static void api_backup_free(struct api_backup *x)
{
    (void)backup_destroy(x->source);
    buf_fini(&x->out);
    mem_free(x);
}

static void told(struct api_backup *x, const struct err *err)
{
    x->busy = false;
    if (!x->c) {
        api_backup_free(x);
        return;
    }
    if (x->last && !err)
        log_event(LOG_INFO, "backup.made",
                  LOG_FIELDS({"user", log_str(x->user)}, {"bytes", log_u64(x->bytes)},
                             {"resourceVersion", log_u64(backup_about(x->source)->rv)}));
    x->cb(x->arg, slice_make(x->out.p, err ? 0 : x->out.n), x->last, err);
}

static void piece_make(void *arg) /* thread pool */
{
    struct api_backup *x = arg;

    buf_reset(&x->out);
    x->code = backup_next(x->source, &x->out, &x->last, &x->err);
    x->bytes += x->out.n;
}

static void piece_made(void *arg)
{
    struct api_backup *x = arg;

    told(x, x->code ? &x->err : NULL);
}

static void caught_up(void *arg, const struct err *err)
{
    struct api_backup *x = arg;

    if ((err && err->code) || !x->c) {
        told(x, err);
        return;
    }
    struct root *r = core_root(x->c->core);
    struct member_info one;
    if (!root_members(r, &one, 1)) { /* a restore would have to name what they listen on */
        struct err none;
        (void)root_unref(r);
        (void)err_set(&none, E_UNAVAIL,
                      "this cluster has just begun, and no member of it is in its state yet: ask "
                      "again in a moment");
        told(x, &none);
        return;
    }
    x->source = backup_create(x->loop, r, root_rv(r), core_archive_dir(x->c->core),
                              core_data_dir(x->c->core));
    (void)root_unref(r);
    loop_work(x->loop, piece_make, piece_made, x);
}

int backend_backup_open(struct backend *b, const struct api_identity *who, struct api_backup **ret,
                        struct err *err)
{
    struct control *c = (struct control *)b;

    if (c->backup)
        return err_set(err, E_BUSY,
                       "this member is making a backup already, for %.200s: wait for it, or "
                       "ask another member (--server)",
                       c->backup->user);
    struct api_backup *x = mem_new(struct api_backup);
    *x = (struct api_backup){.c = c, .loop = c->loop};
    str_copy(x->user, sizeof x->user, who->user);
    buf_init(&x->out, PIECE_MAX);
    c->backup = x;
    log_event(LOG_INFO, "backup.begins", LOG_FIELDS({"user", log_str(x->user)}));
    *ret = x;
    return 0;
}

void backend_backup_next(struct api_backup *x,
                         void (*cb)(void *arg, struct slice piece, bool last,
                                    const struct err *err),
                         void *arg)
{
    PRE(x->c && !x->busy && !x->last);
    x->busy = true;
    x->cb = cb;
    x->arg = arg;
    if (x->source)
        loop_work(x->loop, piece_make, piece_made, x);
    else
        x->c->backend.ops->fresh(&x->c->backend, 0, FRESH_DEADLINE_MS, caught_up, x);
}

void backend_backup_close(struct api_backup *x)
{
    x->c->backup = NULL;
    x->c = NULL;
    if (!x->busy)
        api_backup_free(x);
}
