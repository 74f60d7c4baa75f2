/* Processes and their loops in the virtual world. A process ends only between events: a signal, an
 * exit and a crash never run while one of its callbacks is on the stack. */
#include "tests/sim/world/sim_internal.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- clock, randomness, timers ---- */

static uint64_t now_ms(const struct loop *base)
{
    const struct sim_loop *l = sim_loop_of(base);

    return world_of(l)->now_us / 1000 + l->proc->host->boot_offset_ms;
}

static int64_t wall_ms(const struct loop *base)
{
    const struct sim_loop *l = sim_loop_of(base);

    return sim_utc_ms(world_of(l)) + l->proc->host->wall_offset_ms;
}

static void random_op(struct loop *base, void *buf, size_t n)
{
    struct sim_world *w = world_of(sim_loop_of(base));
    unsigned char *p = buf;

    while (n) {
        uint64_t v = sim_random(w);
        size_t take = n < sizeof v ? n : sizeof v;

        memcpy(p, &v, take);
        p += take;
        n -= take;
    }
}

static void wake_fire(struct sim_event *e)
{
    struct sim_loop *l = container_of(e, struct sim_loop, wake);

    if (!l->stopped)
        loop_timers_run(&l->base);
}

static void wake_at(struct loop *base, uint64_t due_ms)
{
    struct sim_loop *l = sim_loop_of(base);
    struct sim_world *w = world_of(l);
    uint64_t offset = l->proc->host->boot_offset_ms;

    if (due_ms >= UINT64_MAX / 1000 || l->stopped)
        return;
    uint64_t at_us = due_ms > offset ? (due_ms - offset) * 1000 : 0;
    if (l->wake.fire && (l->wake.held || l->wake.at_us <= at_us))
        return;
    sim_cancel(w, &l->wake);
    sim_schedule(w, &l->wake, SIM_WAKE, l, at_us > w->now_us ? at_us - w->now_us : 0, wake_fire,
                 NULL);
}

/* ---- posts and work ---- */

struct call {
    struct sim_event e;
    struct sim_loop *l;
    void (*fn)(void *), (*done)(void *);
    void *arg;
};

static void call_drop(struct sim_event *e)
{
    mem_free(container_of(e, struct call, e));
}

static void call_fire(struct sim_event *e)
{
    struct call c = *container_of(e, struct call, e);

    call_drop(e);
    if (c.l->stopped)
        return;
    c.fn(c.arg);
    if (c.done)
        c.done(c.arg);
}

static void call_later(struct loop *base, enum sim_kind kind, uint64_t delay_us, void (*fn)(void *),
                       void (*done)(void *), void *arg)
{
    struct sim_loop *l = sim_loop_of(base);

    if (l->stopped || !l->proc->alive)
        return;
    struct call *c = mem_new(struct call);
    c->l = l;
    c->fn = fn;
    c->done = done;
    c->arg = arg;
    sim_schedule(world_of(l), &c->e, kind, l, delay_us, call_fire, call_drop);
}

static void post(struct loop *l, void (*fn)(void *), void *arg)
{
    call_later(l, SIM_POST, 0, fn, NULL, arg);
}

static void work(struct loop *l, void (*run)(void *), void (*done)(void *), void *arg)
{
    call_later(l, SIM_WORK, 50 + sim_random_below(sim_world_of(l), 450), run, done, arg);
}

/* ---- loops ---- */

struct sim_loop *sim_loop_create(struct sim_proc *p)
{
    struct sim_loop *l = mem_new(struct sim_loop);

    l->base.ops = &sim_ops;
    l->base.impl = l;
    l->proc = p;
    list_init(&l->events);
    list_init(&l->streams);
    list_init(&l->children);
    list_push(&p->loops, &l->link);
    return l;
}

static void drop_events(struct sim_loop *l)
{
    struct sim_world *w = world_of(l);
    struct list *lists[] = {&l->events, &l->proc->host->held};

    for (int i = 0; i < 2; i++)
        list_for_each_safe (it, tmp, lists[i]) {
            struct sim_event *e = container_of(it, struct sim_event, link);

            if (e->loop != l)
                continue;
            sim_cancel(w, e);
            if (e->drop)
                e->drop(e);
        }
}

struct thread {
    struct sim_event e;
    struct sim_loop *l;
    void (*main)(struct loop *l, void *arg);
    void *arg;
};

static void thread_drop(struct sim_event *e)
{
    mem_free(container_of(e, struct thread, e));
}

static void thread_fire(struct sim_event *e)
{
    struct thread t = *container_of(e, struct thread, e);

    thread_drop(e);
    t.main(&t.l->base, t.arg);
}

static int thread_start(struct loop *parent, const char *name, void (*main)(struct loop *, void *),
                        void *arg, struct loop **ret, struct err *err)
{
    struct thread *t = mem_new(struct thread);

    (void)name;
    (void)err;
    t->l = sim_loop_create(sim_loop_of(parent)->proc);
    t->main = main;
    t->arg = arg;
    sim_schedule(world_of(t->l), &t->e, SIM_START, t->l, 0, thread_fire, thread_drop);
    *ret = &t->l->base;
    return 0;
}

/* What was posted before loop_stop is run first, as on a real thread. */
static void thread_join(struct loop *base)
{
    struct sim_loop *l = sim_loop_of(base);
    struct sim_world *w = world_of(l);

    while (!l->stopped) {
        struct sim_event *first = NULL;

        list_for_each (it, &l->events) {
            struct sim_event *e = container_of(it, struct sim_event, link);

            if (!first || e->at_us < first->at_us ||
                (e->at_us == first->at_us && e->seq < first->seq))
                first = e;
        }
        INV(first && first->at_us <= w->now_us + 1000); /* loop_stop must have been posted to it */
        sim_fire_early(w, first);
    }
    sim_loop_end_listeners(l);
    sim_loop_end_streams(l, false, true);
    sim_loop_end_children(l);
    drop_events(l);
    loop_timers_fini(base);
    list_remove(&l->link);
    mem_free(l);
}

/* ---- the end of a process ---- */

static void exit_fire(struct sim_event *e)
{
    struct call c = *container_of(e, struct call, e);

    call_drop(e);
    sim_proc_end(c.l->proc, c.l->proc->exit_code, 0, false);
}

void sim_exit(struct loop *base, int code)
{
    struct sim_proc *p = sim_loop_of(base)->proc;

    if (p->ending)
        return;
    p->ending = true;
    p->exit_code = code;
    list_for_each (it, &p->loops)
        container_of(it, struct sim_loop, link)->stopped = true;
    struct call *c = mem_new(struct call);
    c->l = p->first;
    sim_schedule(p->host->w, &c->e, SIM_EXIT, p->first, 0, exit_fire, call_drop);
}

static void stop(struct loop *base)
{
    struct sim_loop *l = sim_loop_of(base);

    l->stopped = true;
    if (l == l->proc->first)
        sim_exit(base, 0);
}

static void child_fire(struct sim_event *e)
{
    struct sim_child *c = container_of(e, struct sim_child, exit);

    list_remove(&c->link);
    if (c->cb && !sim_loop_of(c->base.loop)->stopped)
        c->cb(&c->base, c->code, c->signo, c->arg);
    mem_free(c);
}

void sim_loop_end_children(struct sim_loop *l)
{
    struct list *it;

    while ((it = list_pop(&l->children))) {
        struct sim_child *c = container_of(it, struct sim_child, link);

        sim_cancel(world_of(l), &c->exit);
        if (c->proc)
            c->proc->as_child = NULL; /* it lives on without us */
        mem_free(c);
    }
}

void sim_proc_end(struct sim_proc *p, int code, int signo, bool silent)
{
    struct sim_world *w = p->host->w;

    if (!p->alive)
        return;
    if (!silent)
        sim_log(w, "%s: process %lld (%s) ends: %d, signal %d", p->host->name, (long long)p->pid,
                p->argv[0], code, signo);
    p->alive = false;
    list_remove(&p->link);
    list_push(&w->dead, &p->link);
    sim_proc_end_listeners(p);
    sim_files_unlock(p);
    list_for_each (it, &p->loops) {
        struct sim_loop *l = container_of(it, struct sim_loop, link);

        l->stopped = true;
        sim_loop_end_streams(l, silent, false);
        sim_loop_end_children(l);
        drop_events(l);
        loop_timers_fini(&l->base);
    }
    if (p->as_child) {
        struct sim_child *c = p->as_child;

        c->proc = NULL;
        c->code = code;
        c->signo = signo;
        sim_schedule(w, &c->exit, SIM_EXIT, sim_loop_of(c->base.loop), 100, child_fire, NULL);
    }
    if (p->program.gone)
        p->program.gone(&p->first->base, p->program.arg);
}

void sim_proc_free(struct sim_proc *p)
{
    struct list *it;

    while ((it = list_pop(&p->loops)))
        mem_free(container_of(it, struct sim_loop, link));
    (void)arena_destroy(p->arena);
    mem_free(p);
}

/* ---- starting ---- */

struct known {
    struct list link;
    const char *name;
    struct sim_program program;
};

void sim_program_add(struct sim_world *w, const char *name, const struct sim_program *p)
{
    struct known *k = mem_new(struct known);

    k->name = name;
    k->program = *p;
    list_push(&w->programs, &k->link);
}

void sim_programs_free(struct sim_world *w)
{
    struct list *it;

    while ((it = list_pop(&w->programs)))
        mem_free(container_of(it, struct known, link));
}

static void start_fire(struct sim_event *e)
{
    struct call c = *container_of(e, struct call, e);
    struct sim_proc *p = c.l->proc;

    call_drop(e);
    p->program.main(&c.l->base, p->argv, p->env, p->program.arg);
}

static const char **copy_strings(struct arena *a, const char *const *v)
{
    size_t n = 0;

    while (v && v[n])
        n++;
    const char **copy = arena_alloc(a, (n + 1) * sizeof(char *));
    for (size_t i = 0; i < n; i++)
        copy[i] = arena_strdup(a, v[i]);
    return copy;
}

static struct sim_proc *start(struct sim_host *h, const struct sim_program *program,
                              const char *const *argv, const char *const *env, uint64_t delay_us)
{
    struct sim_proc *p = mem_new(struct sim_proc);

    PRE(h->up);
    p->host = h;
    p->alive = true;
    p->pid = p->group = h->next_pid++;
    p->start_ticks = h->w->now_us / 10000 + 1;
    p->program = *program;
    p->arena = arena_create(0);
    p->argv = copy_strings(p->arena, argv);
    p->env = copy_strings(p->arena, env);
    list_init(&p->loops);
    list_init(&p->listeners);
    list_init(&p->datagrams);
    list_push(&h->procs, &p->link);
    p->first = sim_loop_create(p);
    struct call *c = mem_new(struct call);
    c->l = p->first;
    sim_schedule(h->w, &c->e, SIM_START, p->first, delay_us, start_fire, call_drop);
    return p;
}

struct loop *sim_start(struct sim_host *h, const char *name, const struct sim_program *program)
{
    const char *argv[] = {name, NULL};

    return &start(h, program, argv, NULL, 0)->first->base;
}

int sim_spawn_op(struct loop *base, const struct process_spec *spec, process_exit_cb cb, void *arg,
                 struct process **ret, struct err *err)
{
    struct sim_loop *l = sim_loop_of(base);
    struct sim_world *w = world_of(l);
    const char *slash = strrchr(spec->argv[0], '/'), *name = slash ? slash + 1 : spec->argv[0];
    const struct known *found = NULL;

    list_for_each (it, &w->programs)
        if (strcmp(container_of(it, struct known, link)->name, name) == 0)
            found = container_of(it, struct known, link);
    if (!found)
        return err_set(err, E_NOTFOUND, "no program %s in PATH", spec->argv[0]);
    struct sim_proc *p = start(l->proc->host, &found->program, spec->argv, spec->env,
                               1000 + sim_random_below(w, 2000));
    if (!spec->session)
        p->group = l->proc->group;
    p->output = spec->stdout_path ? arena_strdup(p->arena, spec->stdout_path) : NULL;
    struct sim_child *c = mem_new(struct sim_child);
    c->base.loop = base;
    c->proc = p;
    c->pid = p->pid;
    c->session = spec->session;
    c->cb = cb;
    c->arg = arg;
    p->as_child = c;
    list_push(&l->children, &c->link);
    *ret = &c->base;
    return 0;
}

/* ---- signals ---- */

struct signalled {
    struct sim_event e;
    struct sim_proc *p;
    int signo;
};

static void signalled_drop(struct sim_event *e)
{
    mem_free(container_of(e, struct signalled, e));
}

static void signalled_fire(struct sim_event *e)
{
    struct signalled s = *container_of(e, struct signalled, e);
    const struct sim_signal *h = &s.p->handlers[s.signo];

    signalled_drop(e);
    if (h->fn && s.signo != SIGKILL) {
        if (!s.p->ending)
            h->fn(h->arg);
    } else if (s.signo != SIGCHLD && s.signo != SIGPIPE && s.signo != SIGCONT &&
               s.signo != SIGURG && s.signo != SIGWINCH) {
        sim_proc_end(s.p, 0, s.signo, false);
    }
}

void sim_kill(struct sim_host *h, int64_t pid, int signo)
{
    PRE(signo >= 0 && signo <= 64);
    list_for_each (it, &h->procs) {
        struct sim_proc *p = container_of(it, struct sim_proc, link);

        if (!signo || (pid > 0 ? p->pid != pid : p->group != -pid))
            continue;
        struct signalled *s = mem_new(struct signalled);
        s->p = p;
        s->signo = signo;
        s->e.about = (uint64_t)signo;
        sim_schedule(h->w, &s->e, SIM_SIGNAL, p->first, 50, signalled_fire, signalled_drop);
    }
}

int sim_on_signal_op(struct loop *l, int signo, void (*fn)(void *), void *arg, struct err *err)
{
    (void)err;
    PRE(signo > 0 && signo <= 64);
    sim_loop_of(l)->proc->handlers[signo] = (struct sim_signal){fn, arg};
    return 0;
}

void sim_signal_op(struct process *base, int signo)
{
    struct sim_child *c = container_of(base, struct sim_child, base);

    sim_kill(sim_loop_of(base->loop)->proc->host, c->session ? -c->pid : c->pid, signo);
}

int64_t sim_pid_op(const struct process *p)
{
    return container_of(p, struct sim_child, base)->pid;
}

void sim_unref_op(struct process *p)
{
    container_of(p, struct sim_child, base)->cb = NULL;
}

static const struct sim_proc *find(const struct sim_host *h, int64_t pid)
{
    list_for_each (it, &h->procs)
        if (container_of(it, struct sim_proc, link)->pid == pid)
            return container_of(it, struct sim_proc, link);
    return NULL;
}

uint64_t sim_start_ticks_op(struct loop *l, int64_t pid)
{
    const struct sim_proc *p = find(sim_loop_of(l)->proc->host, pid);

    return p ? p->start_ticks : 0;
}

bool sim_alive_op(struct loop *l, int64_t pid, uint64_t start_ticks)
{
    return start_ticks && sim_start_ticks_op(l, pid) == start_ticks;
}

unsigned sim_processes(const struct sim_host *h)
{
    unsigned n = 0;

    list_for_each (it, &h->procs)
        n++;
    return n;
}

void **sim_self(struct loop *l)
{
    return &sim_loop_of(l)->proc->self;
}

void sim_print(struct loop *l, const char *fmt, ...)
{
    struct sim_proc *p = sim_loop_of(l)->proc;
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    sim_log(p->host->w, "%s: [%lld] %s", p->host->name, (long long)p->pid, text);
    if (p->output)
        sim_append(p->host, p->output, text, strlen(text));
}

const struct loop_ops sim_ops = {
    .now_ms = now_ms,
    .wall_ms = wall_ms,
    .random = random_op,
    .wake_at = wake_at,
    .post = post,
    .work = work,
    .thread_start = thread_start,
    .thread_join = thread_join,
    .stop = stop,
    .on_signal = sim_on_signal_op,
    .connect = sim_connect_op,
    .listen = sim_listen_op,
    .listener_close = sim_listener_close_op,
    .read_file = sim_read_op,
    .write_file = sim_write_op,
    .remove_file = sim_remove_op,
    .mkdir = sim_mkdir_op,
    .list_dir = sim_list_op,
    .lock_file = sim_lock_op,
    .spawn = sim_spawn_op,
    .pid = sim_pid_op,
    .signal = sim_signal_op,
    .unref = sim_unref_op,
    .alive = sim_alive_op,
    .start_ticks = sim_start_ticks_op,
};
