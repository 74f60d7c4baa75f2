/* The virtual world itself: repeatable, and faithful in what it breaks. */
#include "tests/sim/world/sim_loop.h"
#include "tests/support/unit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- an echo server and a client that calls again and again ---- */

struct server {
    struct listener *li;
    struct timer beat;
    unsigned beats;
};
static struct {
    struct sim_world *w;
    unsigned opened, closed, echoed, gone;
    int last_code;
    struct peer_identity seen;
} g;
static struct tls_config *server_tls, *client_tls;

static void echo_data(struct stream *s, const void *p, size_t n, void *arg)
{
    (void)arg;
    stream_write(s, p, n);
}

static const struct stream_events echo_events = {.data = echo_data};

static void on_accept(struct listener *li, struct stream *s, void *arg)
{
    (void)li;
    g.seen = *stream_peer(s);
    stream_set(s, &echo_events, arg);
}

static void on_beat(void *arg)
{
    struct server *s = arg;

    s->beats++;
    timer_start(&s->beat, 100);
}

static void server_main(struct loop *l, const char *const *argv, const char *const *env, void *arg)
{
    struct server *s = mem_new(struct server);
    struct err err = {0};

    (void)argv;
    (void)env;
    (void)arg;
    *sim_self(l) = s;
    timer_init(&s->beat, l, on_beat, s);
    timer_start(&s->beat, 100);
    if (listener_create(l, "0.0.0.0:7000", server_tls, on_accept, s, &s->li, NULL, &err))
        fail_msg("%s", err.text);
}

static void server_gone(struct loop *l, void *arg)
{
    (void)arg;
    g.gone++;
    mem_free(*sim_self(l));
}

struct client {
    struct loop *l;
    struct stream *s;
    struct timer again;
};

static void client_call(void *arg);

static void client_open(struct stream *s, void *arg)
{
    (void)arg;
    g.opened++;
    stream_write(s, "hello", 5);
}

static void client_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct client *c = arg;

    (void)s;
    (void)p;
    g.echoed += (unsigned)n;
    if (!timer_active(&c->again))
        timer_start(&c->again, 10);
}

static void client_closed(struct stream *s, const struct err *why, void *arg)
{
    struct client *c = arg;

    (void)s;
    g.closed++;
    g.last_code = why->code;
    c->s = NULL;
    timer_start(&c->again, 50 + loop_random_u64(c->l) % 100);
}

static const struct stream_events client_events = {
    .open = client_open, .data = client_data, .closed = client_closed};

static void client_call(void *arg)
{
    struct client *c = arg;
    struct err err = {0};

    if (c->s)
        stream_write(c->s, "again", 5);
    else if (stream_connect(c->l, "a:7000", client_tls, client_tls ? ALPN_RAFT : NULL, 2000,
                            &client_events, c, &c->s, &err))
        fail_msg("%s", err.text);
}

static void client_main(struct loop *l, const char *const *argv, const char *const *env, void *arg)
{
    struct client *c = mem_new(struct client);

    (void)argv;
    (void)env;
    (void)arg;
    *sim_self(l) = c;
    c->l = l;
    timer_init(&c->again, l, client_call, c);
    client_call(c);
    assert_int_equal(g.opened, 0); /* never from inside the call */
}

static void client_gone(struct loop *l, void *arg)
{
    (void)arg;
    mem_free(*sim_self(l));
}

static const struct sim_program server = {server_main, server_gone, NULL};
static const struct sim_program client = {client_main, client_gone, NULL};

static struct sim_host *hosts[2];

static void set_up_pair(uint64_t seed)
{
    memset(&g, 0, sizeof g);
    g.w = sim_world_create(seed);
    hosts[0] = sim_host_create(g.w, "a");
    hosts[1] = sim_host_create(g.w, "b");
    (void)sim_start(hosts[0], "server", &server);
    (void)sim_start(hosts[1], "client", &client);
}

static uint64_t faulty_run(uint64_t seed, uint64_t *events)
{
    set_up_pair(seed);
    sim_loss(g.w, 2000, 0);
    for (uint64_t t = 1000; t <= 60000; t += 1000) {
        (void)sim_run_until(g.w, t, NULL, NULL);
        uint64_t dice = sim_random_below(g.w, 10);
        if (dice == 0)
            sim_partition(hosts[0], hosts[1], true);
        else if (dice == 1)
            sim_partition_one_way(hosts[1], hosts[0], true);
        else if (dice < 5)
            sim_heal(g.w);
        else if (dice == 5)
            sim_pause(hosts[0], true);
        else if (dice == 6)
            sim_pause(hosts[0], false);
        else if (dice == 7 && sim_up(hosts[0]))
            sim_crash(hosts[0]);
        else if (!sim_up(hosts[0])) {
            sim_boot(hosts[0]);
            (void)sim_start(hosts[0], "server", &server);
        }
    }
    uint64_t hash = sim_event_hash(g.w);
    *events = sim_events(g.w);
    g.w = sim_world_destroy(g.w);
    return hash;
}

static void test_repeatable(void **state)
{
    unsigned different = 0, worked = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        uint64_t n1, n2, n3, h1 = faulty_run(seed, &n1);
        unsigned echoed = g.echoed;

        void *noise = malloc(1000 + seed); /* other addresses in the second run */
        uint64_t h2 = faulty_run(seed, &n2);
        free(noise);
        assert_true(h1 == h2);
        assert_true(n1 == n2);
        assert_int_equal(echoed, g.echoed);
        different += faulty_run(seed + 1000, &n3) != h1;
        worked += echoed > 100;
    }
    assert_int_equal(different, 30);
    assert_true(worked > 20); /* and in spite of the faults something was said */
}

static void test_echo_and_kill(void **state)
{
    (void)state;
    set_up_pair(5);
    (void)sim_run_until(g.w, 1000, NULL, NULL);
    assert_int_equal(g.opened, 1);
    assert_true(g.echoed > 200 && g.echoed < 500); /* a round each 11 ms or so */
    assert_int_equal(sim_processes(hosts[0]), 1);
    sim_kill(hosts[0], 100, SIGKILL); /* the kernel resets its connections */
    (void)sim_run_until(g.w, 1040, NULL, NULL);
    assert_int_equal(g.gone, 1);
    assert_int_equal(g.closed, 1);
    assert_int_equal(g.last_code, E_CONNECT);
    (void)sim_run_until(g.w, 2000, NULL, NULL);
    assert_true(g.closed > 2); /* refused */
    (void)sim_start(hosts[0], "server", &server);
    (void)sim_run_until(g.w, 3000, NULL, NULL);
    assert_int_equal(g.opened, 2);
    g.w = sim_world_destroy(g.w);
}

static void test_partition(void **state)
{
    (void)state;
    set_up_pair(6);
    (void)sim_run_until(g.w, 1000, NULL, NULL);
    sim_partition(hosts[0], hosts[1], true);
    unsigned before = g.echoed;
    (void)sim_run_until(g.w, 20000, NULL, NULL);
    assert_true(g.echoed <= before + 10);
    assert_int_equal(g.closed, 0);
    sim_heal(g.w);
    (void)sim_run_until(g.w, 21000, NULL, NULL);
    assert_true(g.echoed > before + 200); /* the same connection goes on */
    assert_int_equal(g.opened, 1);
    sim_partition_one_way(hosts[1], hosts[0], true);
    (void)sim_run_until(g.w, 60000, NULL, NULL);
    assert_true(g.closed > 1); /* lost after 30 s; new ones run into their deadline */
    assert_int_equal(g.last_code, E_TIMEOUT);
    g.w = sim_world_destroy(g.w);
}

static void test_power_cut_is_silent(void **state)
{
    (void)state;
    set_up_pair(7);
    (void)sim_run_until(g.w, 1000, NULL, NULL);
    sim_crash(hosts[0]);
    (void)sim_run_until(g.w, 10000, NULL, NULL);
    assert_int_equal(g.closed, 0); /* nobody told the client */
    sim_boot(hosts[0]);
    (void)sim_start(hosts[0], "server", &server);
    (void)sim_run_until(g.w, 12000, NULL, NULL);
    assert_int_equal(g.closed, 1); /* the new kernel knows nothing of the old connection */
    assert_int_equal(g.opened, 2);
    g.w = sim_world_destroy(g.w);
}

static void test_pause(void **state)
{
    (void)state;
    set_up_pair(8);
    struct loop *l = sim_start(hosts[0], "other", &client);
    (void)l;
    (void)sim_run_until(g.w, 1000, NULL, NULL);
    sim_pause(hosts[0], true);
    unsigned before = g.echoed;
    (void)sim_run_until(g.w, 5000, NULL, NULL);
    assert_int_equal(g.echoed, before);
    sim_pause(hosts[0], false);
    (void)sim_run_until(g.w, 6000, NULL, NULL);
    assert_true(g.echoed > before + 300);
    g.w = sim_world_destroy(g.w);
}

static void test_identities(void **state)
{
    static const char *const mutual[] = {ALPN_RAFT, NULL}, *const groups[] = {"hanse:members",
                                                                              NULL};

    (void)state;
    server_tls = sim_tls("member:2", NULL, true, mutual, NULL);
    client_tls = sim_tls("member:1", groups, false, NULL, "member:2");
    set_up_pair(9);
    (void)sim_run_until(g.w, 500, NULL, NULL);
    assert_int_equal(g.opened, 1);
    assert_true(g.seen.certified);
    assert_string_equal(g.seen.name, "member:1");
    assert_string_equal(g.seen.groups[0], "hanse:members");
    assert_string_equal(g.seen.alpn, ALPN_RAFT);
    g.w = sim_world_destroy(g.w);
    (void)tls_config_unref(client_tls);

    client_tls = sim_tls("", NULL, false, NULL, "member:2"); /* no certificate */
    set_up_pair(9);
    (void)sim_run_until(g.w, 500, NULL, NULL);
    assert_int_equal(g.opened, 0);
    assert_int_equal(g.last_code, E_TLS);
    g.w = sim_world_destroy(g.w);
    (void)tls_config_unref(client_tls);

    client_tls = sim_tls("member:1", NULL, false, NULL, "member:3"); /* somebody else answers */
    set_up_pair(9);
    (void)sim_run_until(g.w, 500, NULL, NULL);
    assert_int_equal(g.opened, 0);
    assert_int_equal(g.last_code, E_TLS);
    g.w = sim_world_destroy(g.w);
    (void)tls_config_unref(client_tls);
    (void)tls_config_unref(server_tls);
    client_tls = server_tls = NULL;
}

/* ---- files, processes, threads, datagrams ---- */

static struct {
    int code, signo, exits;
    unsigned datagrams, thread_ran;
    struct process *p;
    bool alive_before, alive_after;
    struct loop *outer;
} x;

static void on_child_exit(struct process *p, int code, int signo, void *arg)
{
    uint64_t *ticks = arg;

    x.code = code;
    x.signo = signo;
    x.exits++;
    x.alive_after = process_alive(p->loop, process_pid(p), *ticks);
}

static void child_exit(void *arg)
{
    sim_exit(arg, 7);
}

static void child_main(struct loop *l, const char *const *argv, const char *const *env, void *arg)
{
    struct err err = {0};

    (void)arg;
    sim_print(l, "%s %s\n", argv[1], env[0]);
    if (strcmp(argv[1], "exit") == 0)
        child_exit(l);
    else if (strcmp(argv[1], "polite") == 0)
        assert_int_equal(loop_signal(l, SIGTERM, child_exit, l, &err), 0);
}

static const struct sim_program child = {child_main, NULL, NULL};

static uint64_t ticks;

static void spawn(struct loop *l, const char *what, bool session)
{
    const char *argv[] = {"/usr/bin/child", what, NULL}, *env[] = {"A=b", NULL};
    struct process_spec spec = {
        .argv = argv, .env = env, .stdout_path = "/log", .session = session};
    struct err err = {0};

    if (process_spawn(l, &spec, on_child_exit, &ticks, &x.p, &err))
        fail_msg("%s", err.text);
    ticks = process_start_ticks(l, process_pid(x.p));
    x.alive_before = process_alive(l, process_pid(x.p), ticks);
}

static void nothing_main(struct loop *l, const char *const *argv, const char *const *env, void *arg)
{
    (void)l;
    (void)argv;
    (void)env;
    (void)arg;
}

static const struct sim_program nothing = {nothing_main, NULL, NULL};

static void test_processes(void **state)
{
    struct sim_world *w = sim_world_create(1);
    struct sim_host *h = sim_host_create(w, "h");
    struct loop *l = sim_start(h, "parent", &nothing);
    struct buf b;

    (void)state;
    memset(&x, 0, sizeof x);
    sim_program_add(w, "child", &child);
    spawn(l, "exit", false);
    (void)sim_run_until(w, 100, NULL, NULL);
    assert_int_equal(x.code, 7);
    assert_true(x.alive_before && !x.alive_after);
    spawn(l, "polite", true);
    (void)sim_run_until(w, 200, NULL, NULL);
    process_signal(x.p, SIGTERM);
    assert_int_equal(x.exits, 1);
    (void)sim_run_until(w, 300, NULL, NULL);
    assert_int_equal(x.exits, 2);
    assert_int_equal(x.code, 7);
    spawn(l, "rude", true);
    (void)sim_run_until(w, 400, NULL, NULL);
    process_signal(x.p, SIGTERM);
    (void)sim_run_until(w, 500, NULL, NULL);
    assert_int_equal(x.exits, 3);
    assert_int_equal(x.signo, SIGTERM);
    buf_init(&b, 1000);
    assert_int_equal(file_read(l, "/log", 1000, &b, NULL), 0);
    assert_string_equal(b.p, "exit A=b\npolite A=b\nrude A=b\n");
    buf_fini(&b);
    spawn(l, "orphan", true); /* outlives its parent */
    (void)sim_run_until(w, 600, NULL, NULL);
    sim_kill(h, 100, SIGKILL);
    (void)sim_run_until(w, 700, NULL, NULL);
    assert_int_equal(sim_processes(h), 1);
    assert_int_equal(x.exits, 3);
    (void)sim_world_destroy(w);
}

static void test_files_survive(void **state)
{
    struct sim_world *w = sim_world_create(1);
    struct sim_host *h = sim_host_create(w, "h");
    struct loop *l = sim_start(h, "p", &nothing);
    struct err err = {0};
    struct buf b;

    (void)state;
    assert_int_equal(file_write(l, "/d/f", "x", 1, 0600, &err), E_NOTFOUND);
    assert_int_equal(file_mkdir(l, "/d/e", 0700, &err), 0);
    assert_int_equal(file_write(l, "/d/f", "one", 3, 0600, &err), 0);
    assert_int_equal(file_lock(l, "/d/lock", &err), 0);
    struct loop *second = sim_start(h, "q", &nothing);
    assert_int_equal(file_lock(second, "/d/lock", &err), E_BUSY);
    assert_non_null(strstr(err.text, "process 100"));
    sim_disk_full(h, true);
    assert_int_equal(file_write(l, "/d/f", "two", 3, 0600, &err), E_NOSPACE);
    sim_crash(h);
    sim_disk_full(h, false);
    sim_boot(h);
    l = sim_start(h, "p", &nothing);
    assert_int_equal(file_lock(l, "/d/lock", &err), 0);
    buf_init(&b, 100);
    assert_int_equal(file_read(l, "/d/f", 100, &b, &err), 0);
    assert_string_equal(b.p, "one");
    buf_fini(&b);
    assert_int_equal(file_remove(l, "/d", &err), 0);
    assert_int_equal(file_mkdir(l, "/d", 0700, &err), 0);
    (void)sim_world_destroy(w);
}

static void on_datagram(const char *from, const void *p, size_t n, void *arg)
{
    (void)arg;
    assert_string_equal(from, "a");
    assert_memory_equal(p, "ping", n);
    x.datagrams++;
}

static void test_datagrams(void **state)
{
    struct sim_world *w = sim_world_create(3);
    struct sim_host *a = sim_host_create(w, "a"), *b = sim_host_create(w, "b");
    struct loop *la = sim_start(a, "p", &nothing), *lb = sim_start(b, "p", &nothing);

    (void)state;
    memset(&x, 0, sizeof x);
    sim_datagram_bind(lb, 9, on_datagram, NULL);
    sim_datagram_send(la, "b", 9, "ping", 4);
    sim_datagram_send(la, "b", 8, "ping", 4); /* nobody is bound there */
    assert_int_equal(x.datagrams, 0);
    (void)sim_run_until(w, 10, NULL, NULL);
    assert_int_equal(x.datagrams, 1);
    sim_partition_one_way(a, b, true);
    sim_datagram_send(la, "b", 9, "ping", 4);
    (void)sim_run_until(w, 1000, NULL, NULL);
    sim_heal(w);
    (void)sim_run_until(w, 2000, NULL, NULL);
    assert_int_equal(x.datagrams, 1); /* lost, not late */
    sim_loss(w, 0, 500000);
    for (int i = 0; i < 1000; i++)
        sim_datagram_send(la, "b", 9, "ping", 4);
    (void)sim_run_until(w, 3000, NULL, NULL);
    assert_in_range(x.datagrams, 400, 600);
    sim_datagram_send(la, "b", 9, "ping", 4);
    sim_crash(b); /* with one on its way, and one sent later */
    sim_datagram_send(la, "b", 9, "ping", 4);
    (void)sim_world_destroy(w);
}

static void in_thread(struct loop *l, void *arg)
{
    (void)l;
    (void)arg;
    x.thread_ran++;
}

static void count(void *arg)
{
    ++*(unsigned *)arg;
}

static void stop_outer(void *arg)
{
    loop_stop(arg);
}

static void join_outer(void *arg)
{
    loop_post(x.outer, count, &x.thread_ran);
    loop_post(x.outer, stop_outer, x.outer);
    loop_thread_join(x.outer);
    assert_int_equal(x.thread_ran, 3);
    loop_stop(arg);
}

static void threads_main(struct loop *l, const char *const *argv, const char *const *env, void *arg)
{
    struct err err = {0};

    (void)argv;
    (void)env;
    (void)arg;
    assert_int_equal(loop_thread_start(l, "outer", in_thread, NULL, &x.outer, &err), 0);
    assert_int_equal(x.thread_ran, 0);
    loop_work(x.outer, count, NULL, &x.thread_ran);
    static struct timer t;
    timer_init(&t, l, join_outer, l);
    timer_start(&t, 20);
}

static void test_threads(void **state)
{
    static const struct sim_program p = {threads_main, NULL, NULL};
    struct sim_world *w = sim_world_create(3);
    struct sim_host *h = sim_host_create(w, "h");

    (void)state;
    memset(&x, 0, sizeof x);
    (void)sim_start(h, "p", &p);
    (void)sim_run_until(w, 100, NULL, NULL);
    assert_int_equal(x.thread_ran, 3);
    assert_int_equal(sim_processes(h), 0); /* loop_stop of the first loop ends the program */
    (void)sim_world_destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repeatable), cmocka_unit_test(test_echo_and_kill),
        cmocka_unit_test(test_partition),  cmocka_unit_test(test_power_cut_is_silent),
        cmocka_unit_test(test_pause),      cmocka_unit_test(test_identities),
        cmocka_unit_test(test_processes),  cmocka_unit_test(test_files_survive),
        cmocka_unit_test(test_datagrams),  cmocka_unit_test(test_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
