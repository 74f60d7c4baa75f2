/* What programs printed is kept in a store, piece by piece, and read from there as it would be read
 * from its log: the same lines, times and ends; and what is missing is told. */
#include "connectors/kept/kept.h"

#include "tests/support/unit.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define T0 1764104400000 /* 2025-11-25T21:00:00Z */

static struct {
    char dir[64], path[96], store[96], base[KEPT_PATH_MAX];
    struct loop *l;
    int log;
    struct output_writer *marks;
    bool settled, holds; /* holds: jobs are begun, and never done */
    struct kept_job *held;
    char text[24u << 20];
    size_t n;
} W;

static int setup(void **state)
{
    struct err err;

    (void)state;
    str_copy(W.dir, sizeof W.dir, "/tmp/hanse-kept-XXXXXX");
    assert_non_null(mkdtemp(W.dir));
    (void)snprintf(W.path, sizeof W.path, "%s/log.0", W.dir);
    (void)snprintf(W.store, sizeof W.store, "%s/store", W.dir);
    assert_int_equal(kept_base(W.store, "c-1", "team", "w", "u-1", W.base, &err), 0);
    W.l = loop_uv_create(NULL);
    W.log = open(W.path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    W.marks = output_writer_create(W.path, 16u << 20);
    W.holds = false;
    assert_true(W.log >= 0);
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static int teardown(void **state)
{
    (void)state;
    W.marks = output_writer_destroy(W.marks);
    (void)loop_uv_destroy(W.l);
    (void)close(W.log);
    return nftw(W.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void print_at(int64_t ms, const char *text, size_t n)
{
    assert_int_equal(write(W.log, text, n), (ssize_t)n);
    (void)output_writer_mark(W.marks, ms);
}

/* ---- who keeps it ---- */
static void work(void *arg)
{
    kept_job_work(arg);
}

static void done(void *arg)
{
    kept_job_done(arg);
}

static void begin(struct kept_job *j, void *arg)
{
    (void)arg;
    if (W.holds)
        W.held = j;
    else
        loop_work(W.l, work, done, j);
}

static void settled(void *arg)
{
    (void)arg;
    W.settled = true;
    loop_stop(W.l);
}

static struct kept_writer *writer(uint64_t max_bytes)
{
    char base[KEPT_PATH_MAX + 16];
    const struct kept_config cfg = {.loop = W.l,
                                    .path = W.path,
                                    .base = base,
                                    .max_bytes = max_bytes,
                                    .begin = begin,
                                    .settled = settled};

    (void)snprintf(base, sizeof base, "%s/e3.2", W.base);
    W.settled = false;
    return kept_writer_create(&cfg);
}

static void keep_all(uint64_t max_bytes)
{
    struct kept_writer *w = writer(max_bytes);

    kept_writer_over(w);
    assert_false(kept_writer_settled(w));
    loop_uv_run(W.l);
    assert_true(W.settled);
    assert_string_equal(kept_writer_fault(w), "");
    (void)kept_writer_destroy(w);
}

/* ---- who reads it ---- */
static struct kept_request all(void)
{
    return (struct kept_request){.base = W.base, .epoch = 3, .tail_lines = -1};
}

static const char *kept(const struct kept_request *q)
{
    struct kept_reader *r = NULL;
    struct err err;
    bool more = true;
    AUTO_BUF b;

    W.n = 0;
    W.text[0] = '\0';
    assert_int_equal(kept_open(q, &r, &err), 0);
    while (more) {
        buf_init(&b, KEPT_ROOM);
        assert_int_equal(kept_next(r, &b, &more, &err), 0);
        assert_true(W.n + b.n < sizeof W.text);
        memcpy(W.text + W.n, b.n ? b.p : "", b.n);
        W.n += b.n;
        W.text[W.n] = '\0';
        buf_fini(&b);
    }
    (void)kept_close(r);
    return W.text;
}

/* As it is read from the log itself. */
static char *logged(const struct kept_request *k, size_t *ret_n)
{
    const struct output_request q = {
        .tail_lines = k->tail_lines, .timestamps = k->timestamps, .since_ms = k->since_ms};
    struct output o;
    struct err err;
    AUTO_BUF b;

    buf_init(&b, sizeof W.text);
    assert_int_equal(output_open(&o, W.l, W.path, &q, &err), 0);
    for (bool again = true; again;)
        assert_int_equal(output_next(&o, T0, &b, &again, &err), 0);
    return buf_steal(&b, ret_n);
}

static void same(const struct kept_request *q)
{
    size_t n = 0;
    char *expected = logged(q, &n);

    (void)kept(q);
    assert_int_equal(W.n, n);
    if (n > 0)
        assert_memory_equal(W.text, expected, n);
    mem_free(expected);
}

static void print_much(size_t bytes)
{
    char line[256];
    int64_t ms = T0;

    for (size_t n = 0, i = 0; n < bytes; i++) {
        int k = snprintf(line, sizeof line, "step %zu %.*s%s", i, (int)(i * 7 % 90),
                         "loss loss loss loss loss loss loss loss loss loss loss loss loss loss "
                         "loss loss loss loss",
                         i % 5 == 3 ? "" : "\n");
        assert_int_equal(write(W.log, line, (size_t)k), k);
        n += (size_t)k;
        ms += 17;
        if (i % 37 == 0)
            (void)output_writer_mark(W.marks, ms);
    }
    (void)output_writer_mark(W.marks, ms);
}

static void it_is_read_as_from_its_log(void **state)
{
    static const int64_t tails[] = {-1, 0, 1, 2, 100, 3000, 1000000},
                         times[] = {0, 1, T0 - 1, T0 + 1, T0 + 30000, T0 + 77777, T0 + 90000000};
    struct kept_request q = all();

    (void)state;
    print_much((size_t)KEPT_PIECE_MAX * 5);
    keep_all(0);
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
        for (size_t k = 0; k < sizeof times / sizeof *times; k++)
            for (int stamps = 0; stamps < 2; stamps++) {
                q.tail_lines = tails[i];
                q.since_ms = times[k];
                q.timestamps = stamps;
                same(&q);
            }
}

static void the_newest_try_of_an_epoch(void **state)
{
    struct kept_request q = all();
    struct kept_reader *r = NULL;
    struct err err;

    (void)state;
    print_at(T0, "of try 2\n", 9);
    keep_all(0);
    assert_string_equal(kept(&q), "of try 2\n");
    q.try_ = 2;
    assert_string_equal(kept(&q), "of try 2\n");
    q.try_ = 1;
    assert_int_equal(kept_open(&q, &r, &err), E_NOTFOUND);
    q.try_ = 0;
    q.epoch = 2;
    assert_int_equal(kept_open(&q, &r, &err), E_NOTFOUND);
    q.epoch = 3;
    q.rank = 1;
    assert_int_equal(kept_open(&q, &r, &err), E_NOTFOUND);
}

static void nothing_printed_is_an_answer(void **state)
{
    struct kept_request q = all();
    struct kept_reader *r = NULL;
    struct err err;
    bool more;
    AUTO_BUF b;

    (void)state;
    keep_all(0);
    assert_string_equal(kept(&q), "");
    buf_init(&b, KEPT_ROOM);
    assert_int_equal(kept_open(&q, &r, &err), 0);
    assert_int_equal(kept_next(r, &b, &more, &err), 0);
    assert_true(kept_complete(r));
    (void)kept_close(r);
}

/* Its process was killed in the middle: the next one goes on where the store says. */
static void a_later_process_goes_on(void **state)
{
    struct kept_request q = all();

    (void)state;
    print_much(KEPT_PIECE_MAX + 1000);
    struct kept_writer *w = writer(0);
    for (int i = 0; i < 2000 && !W.settled; i++) {
        struct kept_reader *r = NULL;
        struct timer t;
        timer_init(&t, W.l, settled, NULL);
        timer_start(&t, 5);
        loop_uv_run(W.l);
        W.settled = false;
        if (kept_open(&q, &r, NULL) < 0)
            continue;
        (void)kept_close(r); /* its first, full piece is there */
        break;
    }
    (void)kept_writer_destroy(w);
    print_much(2 * KEPT_PIECE_MAX);
    keep_all(0);
    same(&q);
    keep_all(0); /* nothing is left to do */
    same(&q);
}

static void what_is_too_much_goes_and_is_told(void **state)
{
    struct kept_request q = all();
    char expected[80];
    size_t n = 0;

    (void)state;
    print_much((size_t)KEPT_PIECE_MAX * 8);
    char *text = logged(&q, &n);
    keep_all(3 * KEPT_PIECE_MAX);
    (void)kept(&q);
    assert_true(W.n < 4 * KEPT_PIECE_MAX);
    assert_memory_equal(W.text, text, KEPT_PIECE_MAX); /* how it began, */
    const char *gap = strstr(W.text, "[hanse: ");
    assert_non_null(gap);
    assert_true(gap[-1] == '\n');
    size_t ahead = (size_t)(gap - W.text), behind = W.n - ahead;
    const char *line = strchr(gap, '\n') + 1;
    size_t rest = (size_t)(W.text + W.n - line);
    assert_memory_equal(line, text + n - rest, rest); /* and how it ended */
    (void)snprintf(expected, sizeof expected, "[hanse: %zu bytes are missing here",
                   n - rest - KEPT_PIECE_MAX);
    assert_memory_equal(gap, expected, strlen(expected));
    assert_true(behind > rest);
    mem_free(text);
}

/* A piece that somebody damaged is missing, not believed. */
static void a_damaged_piece_is_missing(void **state)
{
    struct kept_request q = all();
    char path[KEPT_PATH_MAX + 96];

    (void)state;
    print_much((size_t)KEPT_PIECE_MAX * 3);
    keep_all(0);
    (void)snprintf(path, sizeof path, "%s/e3.2/0/%016d.log.gz", W.base, KEPT_PIECE_MAX);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "damage", 6, 4000), 6);
    (void)close(fd);
    assert_non_null(strstr(kept(&q), "[hanse: 131072 bytes are missing here: they were "
                                     "not kept]\n"));
    q.tail_lines = 1;
    assert_null(strstr(kept(&q), "hanse"));
}

/* Nothing comes of the store, and no end waits for it longer than is said. */
static void an_end_waits_so_long(void **state)
{
    (void)state;
    W.holds = true;
    print_at(T0, "one\n", 4);
    struct kept_writer *w = writer(0);
    uint64_t begun = loop_now_ms(W.l);
    kept_writer_over(w);
    loop_uv_run(W.l);
    uint64_t waited = loop_now_ms(W.l) - begun;
    assert_true(W.settled && kept_writer_settled(w));
    assert_true(waited >= KEPT_END_MS && waited < KEPT_END_MS + 3000);
    (void)kept_writer_destroy(w);
    kept_job_done(W.held);
}

static void a_piece_is_a_gzip_file(void **state)
{
    char command[KEPT_PATH_MAX + 128], line[32] = "";

    (void)state;
    print_at(T0, "for anybody\n", 12);
    keep_all(0);
    (void)snprintf(command, sizeof command, "gzip -dc %s/e3.2/0/%016d.log.gz", W.base, 0);
    FILE *f = popen(command, "r");
    assert_non_null(fgets(line, sizeof line, f));
    assert_string_equal(line, "for anybody\n");
    assert_int_equal(pclose(f), 0);
}

static void names_are_read_strictly(void **state)
{
    int64_t epoch, try_;
    uint64_t from;

    (void)state;
    assert_true(kept_try_parse("e3.12", &epoch, &try_) && epoch == 3 && try_ == 12);
    assert_false(kept_try_parse("e3", &epoch, &try_));
    assert_false(kept_try_parse("e03.1", &epoch, &try_));
    assert_false(kept_try_parse("e3.1x", &epoch, &try_));
    assert_true(kept_piece_parse("0000000000131072.log.gz", &from) && from == 131072);
    assert_false(kept_piece_parse("131072.log.gz", &from));
    assert_false(kept_piece_parse(".0000000000131072.log.gz.1", &from));
}

/* ---- the log is elsewhere ---- */
static struct {
    uint64_t from;
    unsigned asked, empty;
    bool all;
} A;

static void asked_for(uint64_t from, bool all, void *arg)
{
    (void)arg;
    A.from = from;
    A.all = all;
    A.asked++;
    loop_stop(W.l);
}

static void emptied(void *arg)
{
    (void)arg;
    A.empty++;
    loop_stop(W.l);
}

static struct kept_writer *asking(void)
{
    char base[KEPT_PATH_MAX + 16];
    const struct kept_config cfg = {
        .loop = W.l, .base = base, .begin = begin, .ask = asked_for, .empty = emptied};

    (void)snprintf(base, sizeof base, "%s/e3.2", W.base);
    memset(&A, 0, sizeof A);
    return kept_writer_create(&cfg);
}

/* As whoever has the log makes it. */
static void piece_cut(uint64_t from, size_t max, struct buf *out)
{
    struct kept_piece *p = mem_new(struct kept_piece);
    bool again = false;
    struct err err;
    AUTO_BUF text;

    buf_init(&text, KEPT_PIECE_MAX + 1);
    assert_int_equal(output_cut(W.l, W.path, from, max, T0, &text, &p->at, &again, &err), 0);
    p->bytes = (uint32_t)text.n;
    p->last = text.n < max;
    buf_init(out, KEPT_PACKED_MAX + 1);
    assert_int_equal(kept_pack(p, text.n ? text.p : "", out, &err), 0);
    mem_free(p);
}

static void until_asked(unsigned times)
{
    while (A.asked < times)
        loop_uv_run(W.l);
}

static void it_is_asked_for(void **state)
{
    struct kept_request q = all();
    struct kept_writer *w;
    struct err err;
    AUTO_BUF b;

    (void)state;
    print_much((size_t)KEPT_PIECE_MAX * 3);
    w = asking();
    for (unsigned n = 1; until_asked(n), !A.all; n++) {
        piece_cut(A.from, KEPT_PIECE_MAX, &b);
        assert_int_equal(kept_writer_piece(w, slice_make(b.p, b.n), &err), 0);
        assert_true(kept_writer_holds(w));
        assert_int_equal(kept_writer_piece(w, slice_make(b.p, b.n), &err), E_CONFLICT);
        buf_fini(&b);
    }
    assert_int_equal(A.empty, A.asked - 1);
    kept_writer_again(w); /* the news was lost */
    until_asked(A.asked + 1);
    assert_true(A.all && !kept_writer_holds(w));
    (void)kept_writer_destroy(w);
    same(&q);
    w = asking(); /* the next leader finds that all of it is there */
    until_asked(1);
    assert_true(A.all);
    (void)kept_writer_destroy(w);
}

static void whoever_is_asked_is_not_believed(void **state)
{
    struct kept_request q = all();
    struct kept_reader *r = NULL;
    struct err err;
    AUTO_BUF good, other;

    (void)state;
    print_much((size_t)KEPT_PIECE_MAX * 3);
    struct kept_writer *w = asking();
    until_asked(1);
    piece_cut(0, KEPT_PIECE_MAX, &good);
    buf_init(&other, KEPT_PACKED_MAX + 16);
    assert_int_equal(kept_writer_piece(w, slice_make("", 0), &err), E_CORRUPT);
    assert_int_equal(kept_writer_piece(w, slice_make("../../etc", 9), &err), E_CORRUPT);
    assert_int_equal(kept_writer_piece(w, slice_make(good.p, good.n - 1), &err), E_CORRUPT);
    buf_add(&other, good.p, good.n);
    buf_add(&other, "more", 4); /* something behind it */
    assert_int_equal(kept_writer_piece(w, slice_make(other.p, other.n), &err), E_CORRUPT);
    other.p[3] |= 8; /* a name, for those who unpack it */
    assert_int_equal(kept_writer_piece(w, slice_make(other.p, good.n), &err), E_CORRUPT);
    assert_false(kept_writer_holds(w));
    assert_true(kept_open(&q, &r, &err) < 0);
    assert_int_equal(kept_writer_piece(w, slice_make(good.p, good.n), &err), 0);
    until_asked(2);
    assert_int_equal(A.from, KEPT_PIECE_MAX);
    assert_int_equal(kept_writer_piece(w, slice_make(good.p, good.n), &err), E_CORRUPT);
    (void)kept_writer_destroy(w);
}

static void what_no_store_took_is_asked_for_again(void **state)
{
    struct kept_request q = all();
    char away[112];
    struct err err;
    AUTO_BUF b;

    (void)state;
    (void)snprintf(away, sizeof away, "%s.away", W.store);
    print_at(T0, "one\n", 4);
    struct kept_writer *w = asking();
    until_asked(1);
    assert_int_equal(rename(W.store, away), 0);
    (void)close(open(W.store, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    piece_cut(0, KEPT_PIECE_MAX, &b);
    assert_int_equal(kept_writer_piece(w, slice_make(b.p, b.n), &err), 0);
    while (!A.empty)
        loop_uv_run(W.l);
    assert_false(kept_writer_holds(w)); /* it holds up no memory meanwhile */
    assert_int_equal(unlink(W.store), 0);
    assert_int_equal(rename(away, W.store), 0);
    until_asked(2);
    assert_true(A.from == 0 && !A.all);
    assert_int_equal(kept_writer_piece(w, slice_make(b.p, b.n), &err), 0);
    until_asked(3);
    assert_true(A.all);
    (void)kept_writer_destroy(w);
    assert_string_equal(kept(&q), "one\n");
}

/* Two leaders asked, before and after the front of the log went. */
static void what_overlaps_is_told_once(void **state)
{
    struct kept_request q = all();
    char path[KEPT_PATH_MAX + 96];
    AUTO_BUF b;

    (void)state;
    print_much(4000);
    keep_all(0);
    for (unsigned i = 1; i < 4; i++) {
        piece_cut(1000 * i, i == 2 ? 200 : 4000, &b);
        (void)snprintf(path, sizeof path, "%s/e3.2/0/%016u.log.gz", W.base, 1000 * i);
        FILE *f = fopen(path, "w");
        assert_int_equal(fwrite(b.p, 1, b.n, f), b.n);
        assert_int_equal(fclose(f), 0);
        buf_fini(&b);
    }
    same(&q);
    q.timestamps = true;
    same(&q);
}

#define KEPT(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        KEPT(it_is_read_as_from_its_log),        KEPT(the_newest_try_of_an_epoch),
        KEPT(nothing_printed_is_an_answer),      KEPT(a_later_process_goes_on),
        KEPT(what_is_too_much_goes_and_is_told), KEPT(a_damaged_piece_is_missing),
        KEPT(an_end_waits_so_long),              KEPT(a_piece_is_a_gzip_file),
        KEPT(names_are_read_strictly),           KEPT(it_is_asked_for),
        KEPT(whoever_is_asked_is_not_believed),  KEPT(what_no_store_took_is_asked_for_again),
        KEPT(what_overlaps_is_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
