/* What programs printed is kept in a store, piece by piece, and read from there as it would be read
 * from its log: the same lines, times and ends; and what is missing is told. */
#include "tests/support/kept/kept_world.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
    for (int i = 0; i < 2000 && !K.settled; i++) {
        struct kept_reader *r = NULL;
        struct timer t;
        timer_init(&t, K.l, settled, NULL);
        timer_start(&t, 5);
        loop_uv_run(K.l);
        K.settled = false;
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
    assert_true(K.n < 4 * KEPT_PIECE_MAX);
    assert_memory_equal(K.text, text, KEPT_PIECE_MAX); /* how it began, */
    const char *gap = strstr(K.text, "[hanse: ");
    assert_non_null(gap);
    assert_true(gap[-1] == '\n');
    size_t ahead = (size_t)(gap - K.text), behind = K.n - ahead;
    const char *line = strchr(gap, '\n') + 1;
    size_t rest = (size_t)(K.text + K.n - line);
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
    (void)snprintf(path, sizeof path, "%s/e3.2/0/%016d.log.gz", K.base, KEPT_PIECE_MAX);
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
    K.holds = true;
    print_at(T0, "one\n", 4);
    struct kept_writer *w = writer(0);
    uint64_t begun = loop_now_ms(K.l);
    kept_writer_over(w);
    loop_uv_run(K.l);
    uint64_t waited = loop_now_ms(K.l) - begun;
    assert_true(K.settled && kept_writer_settled(w));
    assert_true(waited >= KEPT_END_MS && waited < KEPT_END_MS + 3000);
    (void)kept_writer_destroy(w);
    kept_job_done(K.held);
}

static void a_piece_is_a_gzip_file(void **state)
{
    char command[KEPT_PATH_MAX + 128], line[32] = "";

    (void)state;
    print_at(T0, "for anybody\n", 12);
    keep_all(0);
    (void)snprintf(command, sizeof command, "gzip -dc %s/e3.2/0/%016d.log.gz", K.base, 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        KEPT(it_is_read_as_from_its_log),        KEPT(the_newest_try_of_an_epoch),
        KEPT(nothing_printed_is_an_answer),      KEPT(a_later_process_goes_on),
        KEPT(what_is_too_much_goes_and_is_told), KEPT(a_damaged_piece_is_missing),
        KEPT(an_end_waits_so_long),              KEPT(a_piece_is_a_gzip_file),
        KEPT(names_are_read_strictly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
