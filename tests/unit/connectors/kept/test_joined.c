/* What is kept is one half of a text whose other half is elsewhere: who reads it goes on from any
 * byte; who keeps it asks for pieces, and believes nobody. */
#include "tests/support/kept/kept_world.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- one text out of two places ---- */
static void it_goes_on_from_any_byte(void **state)
{
    const uint64_t piece = KEPT_PIECE_MAX;
    const uint64_t from[] = {0, 1, 777, piece - 1, piece, piece + 1, 2 * piece, 2 * piece + 4000};
    struct kept_request q = all();
    size_t n = 0;

    (void)state;
    print_much((size_t)KEPT_PIECE_MAX * 2 + 5000);
    keep_all(0);
    char *text = logged(&q, &n);
    q.resumes = true;
    for (size_t i = 0; i <= sizeof from / sizeof *from; i++) {
        q.from = i < sizeof from / sizeof *from ? from[i] : n;
        q.mid = q.from > 0 && text[q.from - 1] != '\n';
        (void)kept(&q);
        assert_int_equal(K.n, n - q.from);
        assert_memory_equal(K.text, text + q.from, K.n);
    }
    mem_free(text);
}

/* Somebody else has what begins there, and so many lines were wanted ahead of it. */
static void lines_ahead_of_a_byte(void **state)
{
    static const int64_t tails[] = {0, 1, 2, 700};
    struct kept_request q = all();
    size_t n = 0;

    (void)state;
    print_much((size_t)KEPT_PIECE_MAX * 2);
    keep_all(0);
    char *text = logged(&q, &n);
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
        for (uint64_t before = KEPT_PIECE_MAX - 30; before < KEPT_PIECE_MAX + 300; before += 11) {
            size_t at = before;
            int64_t lines = -1;
            while (at > 0 && !(text[at - 1] == '\n' && ++lines == tails[i]))
                at--;
            q.before = before;
            q.tail_lines = tails[i];
            (void)kept(&q);
            assert_int_equal(K.n, n - at);
            assert_memory_equal(K.text, text + at, K.n);
        }
    mem_free(text);
}

static void it_stops_where_somebody_else_has_more(void **state)
{
    struct kept_request q = all();
    struct kept_reader *r = NULL;
    bool more = true, mid;
    struct err err;
    AUTO_BUF b;

    (void)state;
    print_much((size_t)KEPT_PIECE_MAX * 8);
    keep_all(3 * KEPT_PIECE_MAX);
    q.stop = KEPT_PIECE_MAX + 5;
    buf_init(&b, 8 * KEPT_ROOM);
    assert_int_equal(kept_open(&q, &r, &err), 0);
    while (more)
        assert_int_equal(kept_next(r, &b, &more, &err), 0);
    assert_int_equal(b.n, KEPT_PIECE_MAX);
    assert_int_equal(kept_at(r, &mid), KEPT_PIECE_MAX);
    assert_int_equal(kept_try(r), 2);
    assert_false(kept_complete(r));
    assert_true(kept_go_on(r)); /* that one is away */
    for (more = true; more;)
        assert_int_equal(kept_next(r, &b, &more, &err), 0);
    buf_char(&b, '\0');
    assert_non_null(strstr(b.p, "[hanse: "));
    assert_true(kept_complete(r));
    assert_false(kept_go_on(r));
    (void)kept_close(r);
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
    loop_stop(K.l);
}

static void emptied(void *arg)
{
    (void)arg;
    A.empty++;
    loop_stop(K.l);
}

static struct kept_writer *asking(void)
{
    char base[KEPT_PATH_MAX + 16];
    const struct kept_config cfg = {
        .loop = K.l, .base = base, .begin = kept_world_begin, .ask = asked_for, .empty = emptied};

    (void)snprintf(base, sizeof base, "%s/e3.2", K.base);
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
    assert_int_equal(output_cut(K.l, K.path, from, max, T0, &text, &p->at, &again, &err), 0);
    p->bytes = (uint32_t)text.n;
    p->last = text.n < max;
    buf_init(out, KEPT_PACKED_MAX + 1);
    assert_int_equal(kept_pack(p, text.n ? text.p : "", out, &err), 0);
    mem_free(p);
}

static void until_asked(unsigned times)
{
    while (A.asked < times)
        loop_uv_run(K.l);
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
    (void)snprintf(away, sizeof away, "%s.away", K.store);
    print_at(T0, "one\n", 4);
    struct kept_writer *w = asking();
    until_asked(1);
    assert_int_equal(rename(K.store, away), 0);
    (void)close(open(K.store, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    piece_cut(0, KEPT_PIECE_MAX, &b);
    assert_int_equal(kept_writer_piece(w, slice_make(b.p, b.n), &err), 0);
    while (!A.empty)
        loop_uv_run(K.l);
    assert_false(kept_writer_holds(w)); /* it holds up no memory meanwhile */
    assert_int_equal(unlink(K.store), 0);
    assert_int_equal(rename(away, K.store), 0);
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
        (void)snprintf(path, sizeof path, "%s/e3.2/0/%016u.log.gz", K.base, 1000 * i);
        FILE *f = fopen(path, "w");
        assert_int_equal(fwrite(b.p, 1, b.n, f), b.n);
        assert_int_equal(fclose(f), 0);
        buf_fini(&b);
    }
    same(&q);
    q.timestamps = true;
    same(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KEPT(it_is_asked_for),
        KEPT(whoever_is_asked_is_not_believed),
        KEPT(what_no_store_took_is_asked_for_again),
        KEPT(what_overlaps_is_told_once),
        KEPT(it_goes_on_from_any_byte),
        KEPT(lines_ahead_of_a_byte),
        KEPT(it_stops_where_somebody_else_has_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
