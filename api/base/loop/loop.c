/* What all loops share: the timer heap, and the thin wrappers over a loop's table. This file must
 * never call the system: everything goes through ops, or a simulated world would leak into the real
 * one. */
#include "api/base/loop/loop.h"

#include <string.h>

/* ---- timers: a binary heap by (due, order of starting) ---- */

static bool sooner(const struct timer *a, const struct timer *b)
{
    return a->due_ms != b->due_ms ? a->due_ms < b->due_ms : a->seq < b->seq;
}

static void place(struct timer_heap *h, size_t i, struct timer *t)
{
    h->v[i] = t;
    t->heap = i + 1;
}

static void sift_up(struct timer_heap *h, size_t i, struct timer *t)
{
    for (; i && sooner(t, h->v[(i - 1) / 2]); i = (i - 1) / 2)
        place(h, i, h->v[(i - 1) / 2]);
    place(h, i, t);
}

static void sift_down(struct timer_heap *h, size_t i, struct timer *t)
{
    for (;;) {
        size_t child = 2 * i + 1;

        if (child + 1 < h->n && sooner(h->v[child + 1], h->v[child]))
            child++;
        if (child >= h->n || !sooner(h->v[child], t))
            break;
        place(h, i, h->v[child]);
        i = child;
    }
    place(h, i, t);
}

static void heap_remove(struct timer_heap *h, struct timer *t)
{
    size_t i = t->heap - 1;
    struct timer *last = h->v[--h->n];

    INV(h->v[i] == t || last == t);
    t->heap = 0;
    if (last == t)
        return;
    if (i && sooner(last, h->v[(i - 1) / 2]))
        sift_up(h, i, last);
    else
        sift_down(h, i, last);
}

void timer_init(struct timer *t, struct loop *l, timer_cb cb, void *arg)
{
    *t = (struct timer){.loop = l, .cb = cb, .arg = arg};
}

void timer_start(struct timer *t, uint64_t delay_ms)
{
    struct loop *l = t->loop;
    struct timer_heap *h = &l->timers;
    uint64_t now = l->ops->now_ms(l);

    if (t->heap)
        heap_remove(h, t);
    if (h->n == h->cap) {
        h->cap = h->cap ? h->cap * 2 : 64;
        h->v = mem_realloc(h->v, h->cap * sizeof(struct timer *));
    }
    t->due_ms = delay_ms > UINT64_MAX - 1 - now ? UINT64_MAX - 1 : now + delay_ms;
    t->seq = h->seq++;
    sift_up(h, h->n++, t);
    if (h->v[0] == t)
        l->ops->wake_at(l, t->due_ms);
}

void timer_stop(struct timer *t)
{
    if (t->heap)
        heap_remove(&t->loop->timers, t);
    /* No wake_at: the loop may wake once for nothing, which is cheaper than a system call here. */
}

void loop_timers_run(struct loop *l)
{
    struct timer_heap *h = &l->timers;
    uint64_t now = l->ops->now_ms(l), last = h->seq;

    /* Timers that callbacks start wait for the next round: a timer of 0 ms must not hold up the
     * loop. */
    while (h->n && h->v[0]->due_ms <= now && h->v[0]->seq < last) {
        struct timer *t = h->v[0];

        heap_remove(h, t);
        t->cb(t->arg);
    }
    l->ops->wake_at(l, h->n ? h->v[0]->due_ms : UINT64_MAX);
}

void loop_timers_fini(struct loop *l)
{
    for (size_t i = 0; i < l->timers.n; i++)
        l->timers.v[i]->heap = 0;
    mem_free(l->timers.v);
    l->timers = (struct timer_heap){0};
}

/* ---- wrappers ---- */

uint64_t loop_now_ms(const struct loop *l)
{
    return l->ops->now_ms(l);
}

int64_t loop_wall_ms(const struct loop *l)
{
    return l->ops->wall_ms(l);
}

void loop_random(struct loop *l, void *buf, size_t n)
{
    l->ops->random(l, buf, n);
}

uint64_t loop_random_u64(struct loop *l)
{
    uint64_t v;

    l->ops->random(l, &v, sizeof v);
    return v;
}

void loop_post(struct loop *l, void (*fn)(void *arg), void *arg)
{
    l->ops->post(l, fn, arg);
}

void loop_work(struct loop *l, void (*work)(void *arg), void (*done)(void *arg), void *arg)
{
    l->ops->work(l, work, done, arg);
}

int loop_thread_start(struct loop *parent, const char *name,
                      void (*main)(struct loop *l, void *arg), void *arg, struct loop **ret_loop,
                      struct err *err)
{
    return parent->ops->thread_start(parent, name, main, arg, ret_loop, err);
}

void loop_thread_join(struct loop *l)
{
    l->ops->thread_join(l);
}

const struct loop_turns *loop_turns(const struct loop *l)
{
    return l->ops->turns ? l->ops->turns(l) : NULL;
}

uint64_t loop_computed_ns(const struct loop *l)
{
    return l->ops->computed_ns ? l->ops->computed_ns(l) : 0;
}

void loop_stop(struct loop *l)
{
    l->ops->stop(l);
}

int loop_signal(struct loop *l, int signo, void (*fn)(void *arg), void *arg, struct err *err)
{
    return l->ops->on_signal(l, signo, fn, arg, err);
}

int stream_connect(struct loop *l, const char *address, const struct tls_config *tls,
                   const char *alpn, uint64_t deadline_ms, const struct stream_events *ev,
                   void *arg, struct stream **ret_stream, struct err *err)
{
    return l->ops->connect(l, address, tls, alpn, deadline_ms, ev, arg, ret_stream, err);
}

int stream_connect_via(struct loop *l, const struct proxy *via, const char *address,
                       const struct tls_config *tls, const char *alpn, uint64_t deadline_ms,
                       const struct stream_events *ev, void *arg, struct stream **ret_stream,
                       struct err *err)
{
    if (!via)
        return l->ops->connect(l, address, tls, alpn, deadline_ms, ev, arg, ret_stream, err);
    if (!l->ops->connect_via)
        return err_set(err, E_NOTIMPL, "%s: this loop knows no proxies", address);
    return l->ops->connect_via(l, via, address, tls, alpn, deadline_ms, ev, arg, ret_stream, err);
}

void stream_write(struct stream *s, const void *p, size_t n)
{
    s->ops->write(s, p, n);
}

size_t stream_pending(const struct stream *s)
{
    return s->ops->pending(s);
}

bool stream_hung_up(const struct stream *s)
{
    return s->ops->hung_up && s->ops->hung_up(s);
}

void stream_pause(struct stream *s, bool paused)
{
    s->ops->pause(s, paused);
}

void stream_close(struct stream *s)
{
    s->ops->close(s);
}

void stream_abort(struct stream *s, const char *why)
{
    s->ops->abort(s, why);
}

void stream_finish(struct stream *s)
{
    PRE(s->ops->finish);
    s->ops->finish(s);
}

const struct peer_identity *stream_peer(const struct stream *s)
{
    return &s->peer;
}

void stream_set(struct stream *s, const struct stream_events *ev, void *arg)
{
    s->ev = ev;
    s->arg = arg;
}

struct loop *stream_loop(const struct stream *s)
{
    return s->loop;
}

int listener_create(struct loop *l, const char *address, const struct tls_config *tls, accept_cb cb,
                    void *arg, struct listener **ret_listener, int *ret_port, struct err *err)
{
    return l->ops->listen(l, address, tls, cb, arg, ret_listener, ret_port, err);
}

void listener_close(struct listener *li)
{
    if (li)
        li->loop->ops->listener_close(li);
}

int file_read(struct loop *l, const char *path, size_t max, struct buf *b, struct err *err)
{
    return l->ops->read_file(l, path, 0, max, true, b, err);
}

int file_read_at(struct loop *l, const char *path, uint64_t offset, size_t max, struct buf *b,
                 struct err *err)
{
    return l->ops->read_file(l, path, offset, max, false, b, err);
}

int file_write(struct loop *l, const char *path, const void *p, size_t n, unsigned mode,
               struct err *err)
{
    return l->ops->write_file(l, path, p, n, mode, err);
}

int file_remove(struct loop *l, const char *path, struct err *err)
{
    return l->ops->remove_file(l, path, err);
}

int file_mkdir(struct loop *l, const char *path, unsigned mode, struct err *err)
{
    return l->ops->mkdir(l, path, mode, err);
}

int file_list(struct loop *l, const char *dir, void (*each)(const char *name, void *arg), void *arg,
              struct err *err)
{
    return l->ops->list_dir(l, dir, each, arg, err);
}

int file_lock(struct loop *l, const char *path, struct err *err)
{
    return l->ops->lock_file(l, path, err);
}

int process_spawn(struct loop *l, const struct process_spec *spec, process_exit_cb cb, void *arg,
                  struct process **ret_process, struct err *err)
{
    return l->ops->spawn(l, spec, cb, arg, ret_process, err);
}

int64_t process_pid(const struct process *p)
{
    return p->loop->ops->pid(p);
}

void process_signal(struct process *p, int signo)
{
    p->loop->ops->signal(p, signo);
}

void process_unref(struct process *p)
{
    if (p)
        p->loop->ops->unref(p);
}

bool process_alive(struct loop *l, int64_t pid, uint64_t start_ticks)
{
    return l->ops->alive(l, pid, start_ticks);
}

uint64_t process_start_ticks(struct loop *l, int64_t pid)
{
    return l->ops->start_ticks(l, pid);
}
