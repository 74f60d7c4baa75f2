/* The production loop: clock, timers, posts, threads and signals over libuv. This file must never
 * wake without a reason: an idle server has no periodic timer. */
#include "api/base/uv/uv_internal.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#include "api/base/failpoint.h"
#include "api/base/limits.h"
#include "api/base/log.h"

static uint64_t clock_ms(clockid_t id)
{
    struct timespec ts;

    (void)clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static uint64_t now_ms(const struct loop *l)
{
    (void)l;
    return clock_ms(CLOCK_BOOTTIME);
}

static int64_t wall_ms(const struct loop *l)
{
    (void)l;
#ifdef HANSE_FAILPOINTS
    return (int64_t)clock_ms(CLOCK_REALTIME) + failpoint_wall_shift_ms();
#else
    return (int64_t)clock_ms(CLOCK_REALTIME);
#endif
}

static void random_bytes(struct loop *l, void *buf, size_t n)
{
    char *p = buf;

    (void)l;
    while (n) {
        ssize_t got = getrandom(p, n, 0);

        INV(got > 0 || errno == EINTR);
        if (got > 0) {
            p += got;
            n -= (size_t)got;
        }
    }
}

/* ---- timers ---- */

static void on_idle(uv_idle_t *idle)
{
    uv_todo_run(idle->data);
}

/* Only an earlier time costs a system call; a later one is set when the earlier has fired. What is
 * due already waits for the next turn's end without one (see on_woke). */
static void wake_at(struct loop *l, uint64_t due_ms)
{
    struct uv_impl *im = impl_of(l);
    struct itimerspec it = {0};

    if (due_ms >= im->armed_ms || im->due)
        return;
    if (due_ms <= now_ms(l) && !im->closing) {
        im->due = true;
        (void)uv_idle_start(&im->idle, on_idle);
        return;
    }
    im->armed_ms = due_ms;
    it.it_value.tv_sec = (time_t)(due_ms / 1000);
    it.it_value.tv_nsec = (long)(due_ms % 1000) * 1000000;
    if (due_ms == 0)
        it.it_value.tv_nsec = 1;
    INV(timerfd_settime(im->timer_fd, TFD_TIMER_ABSTIME, &it, NULL) == 0);
}

static void on_timer(uv_poll_t *poll, int status, int events)
{
    struct uv_impl *im = poll->data;
    uint64_t fired;
    ssize_t n = read(im->timer_fd, &fired, sizeof fired);

    (void)status;
    (void)events;
    if (n != (ssize_t)sizeof fired)
        return;
    im->armed_ms = UINT64_MAX;
    loop_timers_run(&im->base);
}

/* ---- posts ---- */

static void post(struct loop *l, void (*fn)(void *), void *arg)
{
    struct uv_impl *im = impl_of(l);
    struct posts *q = &im->posts;

    uv_mutex_lock(&im->mu);
    if (!im->closing) {
        if (q->n == q->cap) {
            q->cap = q->cap ? q->cap * 2 : 64;
            q->v = mem_realloc(q->v, q->cap * sizeof *q->v);
        }
        q->v[q->n++] = (struct post){fn, arg};
        if (q->n == 1)
            INV(uv_async_send(&im->async) == 0);
    }
    uv_mutex_unlock(&im->mu);
}

static void on_async(uv_async_t *async)
{
    struct uv_impl *im = async->data;

    uv_mutex_lock(&im->mu);
    struct posts run = im->posts;
    im->posts = im->running;
    im->running = (struct posts){0};
    uv_mutex_unlock(&im->mu);
    for (size_t i = 0; i < run.n; i++)
        run.v[i].fn(run.v[i].arg);
    run.n = 0;
    if (run.cap > 65536) { /* a rare flood must not hold its memory for ever */
        mem_free(run.v);
        run = (struct posts){0};
    }
    im->running = run;
}

struct work {
    uv_work_t req;
    void (*work)(void *), (*done)(void *);
    void *arg;
};

static void work_run(uv_work_t *req)
{
    struct work *w = req->data;

    w->work(w->arg);
}

static void work_done(uv_work_t *req, int status)
{
    struct work *w = req->data;
    void (*done)(void *) = w->done;
    void *arg = w->arg;

    (void)status;
    mem_free(w);
    if (done)
        done(arg);
}

static void work(struct loop *l, void (*run)(void *), void (*done)(void *), void *arg)
{
    struct work *w = mem_new(struct work);

    w->req.data = w;
    w->work = run;
    w->done = done;
    w->arg = arg;
    INV(uv_queue_work(&impl_of(l)->uv, &w->req, work_run, work_done) == 0);
}

/* ---- signals ---- */

struct uv_signal_entry {
    uv_signal_t handle;
    struct list link;
    int signo;
    void (*fn)(void *arg);
    void *arg;
};

static void on_signal(uv_signal_t *handle, int signo)
{
    struct uv_signal_entry *e = handle->data;

    (void)signo;
    e->fn(e->arg);
}

static void signal_free(uv_handle_t *handle)
{
    mem_free(handle->data);
}

static int signal_op(struct loop *l, int signo, void (*fn)(void *), void *arg, struct err *err)
{
    struct uv_impl *im = impl_of(l);
    struct uv_signal_entry *e = NULL;

    list_for_each (it, &im->signals)
        if (container_of(it, struct uv_signal_entry, link)->signo == signo)
            e = container_of(it, struct uv_signal_entry, link);
    if (!fn) {
        if (e) {
            list_remove(&e->link);
            uv_close((uv_handle_t *)&e->handle, signal_free);
        }
        return 0;
    }
    if (!e) {
        e = mem_new(struct uv_signal_entry);
        INV(uv_signal_init(&im->uv, &e->handle) == 0);
        e->handle.data = e;
        e->signo = signo;
        list_push(&im->signals, &e->link);
    }
    e->fn = fn;
    e->arg = arg;
    int rc = uv_signal_start(&e->handle, on_signal, signo);
    if (rc) {
        list_remove(&e->link);
        uv_close((uv_handle_t *)&e->handle, signal_free);
        return err_set(err, E_INTERNAL, "signal %d cannot be caught: %s", signo, uv_strerror(rc));
    }
    return 0;
}

/* ---- threads ---- */

static void stop(struct loop *l)
{
    struct uv_impl *im = impl_of(l);

    im->stopped = true;
    uv_stop(&im->uv);
}

static void finish(struct uv_impl *im);

static void thread_entry(void *arg)
{
    struct uv_impl *im = arg;

    (void)pthread_setname_np(pthread_self(), im->thread_name);
    im->thread_main(&im->base, im->thread_arg);
    loop_uv_run(&im->base);
    finish(im); /* `closed` of what is still open comes on this thread */
}

static int thread_start(struct loop *parent, const char *name, void (*main)(struct loop *, void *),
                        void *arg, struct loop **ret, struct err *err)
{
    struct loop *l = loop_uv_create(err);

    (void)parent;
    if (!l)
        return E_INTERNAL;
    struct uv_impl *im = impl_of(l);
    im->thread_main = main;
    im->thread_arg = arg;
    str_copy(im->thread_name, sizeof im->thread_name, name);
    int rc = uv_thread_create(&im->thread, thread_entry, im);
    if (rc) {
        (void)loop_uv_destroy(l);
        return err_set(err, E_LIMIT, "no thread can be started for %s: %s", name, uv_strerror(rc));
    }
    im->has_thread = true;
    *ret = l;
    return 0;
}

static void thread_join(struct loop *l)
{
    struct uv_impl *im = impl_of(l);

    PRE(im->has_thread);
    INV(uv_thread_join(&im->thread) == 0);
    (void)loop_uv_destroy(l);
}

/* ---- turns ---- */
static const struct loop_turns *turns(const struct loop *l)
{
    return &impl_of(l)->turns;
}

static uint64_t computed_ns(const struct loop *l)
{
    struct timespec ts;

    (void)l;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static void turn_tell(const struct uv_impl *im, uint64_t held_ns, uint64_t cpu_ns)
{
    if (held_ns > LIMIT_TURN_TOLD_MS * 1000000ull)
        log_event(LOG_WARN, "loop.held",
                  LOG_FIELDS({"loop", log_str(*im->thread_name ? im->thread_name : "main")},
                             {"ms", log_u64(held_ns / 1000000)},
                             {"computed_ms", log_u64(cpu_ns / 1000000)}));
}

static void on_woke(uv_check_t *check)
{
    struct uv_impl *im = check->data;

    im->turned.woke_ms = uv_now(&im->uv);
    if (im->due) {
        im->due = false;
        loop_timers_run(&im->base);
    }
}

/* From the loop's idle time, which is exact, unless a signal interrupted the wait: libuv 1.44 then
 * forgets what had passed of it, and only the time of waking is right, to a millisecond. */
static uint64_t held_ns(const struct uv_impl *im, uint64_t now, uint64_t idle)
{
    uint64_t since = now - im->turned.ns, waited = idle - im->turned.idle_ns;
    uint64_t held = since > waited ? since - waited : 0, woke = im->turned.woke_ms * 1000000;

    return now > woke && held > now - woke ? now - woke : held;
}

static void on_turn(uv_prepare_t *prepare)
{
    struct uv_impl *im = prepare->data;
    uint64_t now = uv_hrtime(), idle = uv_metrics_idle_time(&im->uv), cpu = computed_ns(&im->base);

    if (im->turned.ns) {
        uint64_t held = held_ns(im, now, idle);

        durations_add(&im->turns.held, held);
        durations_add(&im->turns.computed, cpu - im->turned.cpu_ns);
        turn_tell(im, held, cpu - im->turned.cpu_ns);
    }
    im->turned.ns = now;
    im->turned.idle_ns = idle;
    im->turned.cpu_ns = cpu;
}

/* ---- making, running, ending ---- */

static const struct loop_ops uv_ops = {
    .now_ms = now_ms,
    .wall_ms = wall_ms,
    .random = random_bytes,
    .wake_at = wake_at,
    .post = post,
    .work = work,
    .thread_start = thread_start,
    .thread_join = thread_join,
    .stop = stop,
    .turns = turns,
    .computed_ns = computed_ns,
    .on_signal = signal_op,
    .connect = uv_connect_op,
    .connect_via = uv_connect_via_op,
    .listen = uv_listen_op,
    .listener_close = uv_listener_close_op,
    .read_file = posix_read,
    .write_file = posix_write,
    .remove_file = posix_remove,
    .mkdir = posix_mkdir,
    .list_dir = posix_list,
    .lock_file = posix_lock,
    .spawn = uv_spawn_op,
    .pid = uv_pid_op,
    .signal = uv_signal_op,
    .unref = uv_unref_op,
    .alive = uv_alive_op,
    .start_ticks = uv_start_ticks_op,
};

struct loop *loop_uv_create(struct err *err)
{
    struct uv_impl *im = mem_new(struct uv_impl);

    (void)signal(SIGPIPE, SIG_IGN); /* else a peer that goes away ends the program */
    im->base.ops = &uv_ops;
    im->base.impl = im;
    im->armed_ms = UINT64_MAX;
    im->handshake_ms = HANDSHAKE_DEADLINE_MS;
    im->streams_max = LIMIT_CONNECTIONS_MAX;
    list_init(&im->todo);
    for (unsigned i = 0; i < SHAKE_SOURCES; i++)
        list_init(&im->shakes[i]);
    list_init(&im->streams);
    list_init(&im->listeners);
    list_init(&im->processes);
    list_init(&im->signals);
    int rc = uv_loop_init(&im->uv);
    if (rc)
        goto fail;
    INV(uv_loop_configure(&im->uv, UV_METRICS_IDLE_TIME) == 0);
    im->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (im->timer_fd < 0) {
        rc = uv_translate_sys_error(errno);
        (void)uv_loop_close(&im->uv);
        goto fail;
    }
    INV(uv_mutex_init(&im->mu) == 0);
    INV(uv_async_init(&im->uv, &im->async, on_async) == 0);
    INV(uv_poll_init(&im->uv, &im->timer_poll, im->timer_fd) == 0);
    INV(uv_idle_init(&im->uv, &im->idle) == 0);
    INV(uv_prepare_init(&im->uv, &im->turn) == 0);
    im->async.data = im->timer_poll.data = im->idle.data = im->turn.data = im;
    INV(uv_prepare_start(&im->turn, on_turn) == 0);
    uv_unref((uv_handle_t *)&im->turn);
    INV(uv_check_init(&im->uv, &im->woke) == 0);
    im->woke.data = im;
    INV(uv_check_start(&im->woke, on_woke) == 0);
    uv_unref((uv_handle_t *)&im->woke);
    INV(uv_poll_start(&im->timer_poll, UV_READABLE, on_timer) == 0);
    return &im->base;

fail:
    (void)err_set(err, E_LIMIT, "no event loop can be made: %s (raise the limit of open files)",
                  uv_strerror(rc));
    mem_free(im);
    return NULL;
}

void loop_uv_run(struct loop *l)
{
    struct uv_impl *im = impl_of(l);

    while (!im->stopped)
        (void)uv_run(&im->uv, UV_RUN_DEFAULT);
    im->stopped = false;
}

/* Idle rounds run while there is something to do in them. */
void ustream_todo(struct uv_stream_impl *s)
{
    if (list_empty(&s->todo_link))
        list_push(&s->im->todo, &s->todo_link);
    (void)uv_idle_start(&s->im->idle, on_idle);
}

/* Closes everything of the loop's own; on its thread. Owners of foreign handles closed them
 * before. */
static void finish(struct uv_impl *im)
{
    struct err why = {0};

    if (im->finished)
        return;
    uv_mutex_lock(&im->mu);
    im->closing = true;
    uv_mutex_unlock(&im->mu);
    (void)err_set(&why, E_CANCELLED, "the loop has ended");
    uv_listeners_close(im);
    uv_processes_close(im);
    list_for_each_safe (it, tmp, &im->signals) {
        struct uv_signal_entry *e = container_of(it, struct uv_signal_entry, link);

        uv_close((uv_handle_t *)&e->handle, signal_free);
    }
    /* Streams without a handle end in an idle round, so idle goes last. */
    while (!list_empty(&im->streams)) {
        list_for_each_safe (it, tmp, &im->streams)
            ustream_end(container_of(it, struct uv_stream_impl, link), &why);
        (void)uv_run(&im->uv, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&im->idle, NULL);
    uv_close((uv_handle_t *)&im->turn, NULL);
    uv_close((uv_handle_t *)&im->woke, NULL);
    uv_close((uv_handle_t *)&im->async, NULL);
    uv_close((uv_handle_t *)&im->timer_poll, NULL);
    (void)uv_run(&im->uv, UV_RUN_NOWAIT); /* a loop_stop that came late ends this one */
    (void)uv_run(&im->uv, UV_RUN_DEFAULT);
    INV(uv_loop_close(&im->uv) == 0); /* else: a handle taken from loop_uv_handle is still open */
    im->finished = true;
}

struct loop *loop_uv_destroy(struct loop *l)
{
    if (!l)
        return NULL;
    struct uv_impl *im = impl_of(l);

    finish(im);
    loop_timers_fini(l);
    (void)close(im->timer_fd);
    uv_mutex_destroy(&im->mu);
    mem_free(im->posts.v);
    mem_free(im->running.v);
    mem_free(im->out);
    if (im->bio_method)
        BIO_meth_free(im->bio_method);
    mem_free(im);
    return NULL;
}

void *loop_uv_handle(struct loop *l)
{
    return &impl_of(l)->uv;
}

void loop_uv_set_handshake_ms(struct loop *l, unsigned ms)
{
    impl_of(l)->handshake_ms = ms;
}
