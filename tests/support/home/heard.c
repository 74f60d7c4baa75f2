#include "tests/support/home/heard.h"

#include "tests/support/unit.h"

#include <string.h>

struct heard heard;

static void on_opened(void *arg)
{
    (void)arg;
    assert_int_equal(heard.bytes + heard.ends, 0);
    heard.opened++;
}

static void on_data(int fd, const void *p, size_t n, void *arg)
{
    (void)arg;
    assert_true(fd == 1 || fd == 2);
    assert_int_equal(heard.opened, 1);
    assert_int_equal(heard.ends, 0);
    heard.bytes += n;
    if (heard.n + n >= sizeof heard.text)
        return;
    memcpy(heard.text + heard.n, p, n);
    heard.n += n;
    heard.text[heard.n] = '\0';
}

static void on_end(int exit_code, const struct err *err, void *arg)
{
    (void)arg;
    heard.ends++;
    heard.exit_code = exit_code;
    if (err)
        heard.err = *err;
}

static void on_eof(void *arg)
{
    (void)arg;
    heard.eofs++;
}

static void on_at(const struct log_at *at, void *arg)
{
    (void)arg;
    assert_int_equal(heard.opened, 1);
    if (!heard.told++)
        heard.first = *at;
    heard.last = *at;
}

static bool on_full(void *arg)
{
    (void)arg;
    return heard.full;
}

const struct log_sink heard_sink = {.opened = on_opened,
                                    .data = on_data,
                                    .end = on_end,
                                    .eof = on_eof,
                                    .full = on_full,
                                    .at = on_at};
