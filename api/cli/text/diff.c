/* Unified diff of two short texts, by the longest common run of lines. Texts larger than the table
 * allows are shown as one whole change: still right, only longer. */
#include "api/cli/cli_internal.h"

#define CONTEXT 3
#define CELLS_MAX (16u << 20)

struct lines {
    const char **v;
    unsigned n;
};

static struct lines split(const char *text, struct arena *mem)
{
    struct lines l = {0};
    unsigned n = 1;

    for (const char *p = text; *p; p++)
        n += *p == '\n';
    l.v = arena_array(mem, const char *, n);
    for (const char *p = text; *p;) {
        size_t len = strcspn(p, "\n");
        l.v[l.n++] = arena_strndup(mem, p, len);
        p += len + (p[len] == '\n');
    }
    return l;
}

struct edit {
    char op; /* ' ', '-', '+' */
    const char *line;
};

/* The edits in order; table[i][j] = common lines of a[i..], b[j..]. */
static struct edit *edits_make(const struct lines *a, const struct lines *b, struct arena *mem,
                               unsigned *ret_n)
{
    struct edit *e = arena_array(mem, struct edit, a->n + b->n + 1);
    size_t w = b->n + 1;
    unsigned i = 0, j = 0, n = 0;
    uint32_t *t = (a->n + 1) * w <= CELLS_MAX ? arena_array(mem, uint32_t, (a->n + 1) * w) : NULL;

    if (t)
        for (unsigned x = a->n; x-- > 0;)
            for (unsigned y = b->n; y-- > 0;) {
                uint32_t down = t[(x + 1) * w + y], right = t[x * w + y + 1];
                t[x * w + y] = !strcmp(a->v[x], b->v[y]) ? t[(x + 1) * w + y + 1] + 1
                               : down > right            ? down
                                                         : right;
            }
    while (i < a->n || j < b->n) {
        if (t && i < a->n && j < b->n && !strcmp(a->v[i], b->v[j])) {
            e[n++] = (struct edit){' ', a->v[i++]};
            j++;
        } else if (i < a->n && (j == b->n || !t || t[(i + 1) * w + j] >= t[i * w + j + 1])) {
            e[n++] = (struct edit){'-', a->v[i++]};
        } else {
            e[n++] = (struct edit){'+', b->v[j++]};
        }
    }
    *ret_n = n;
    return e;
}

void diff_unified(const char *from_name, const char *to_name, const char *a_text,
                  const char *b_text, struct arena *mem, struct buf *out)
{
    struct lines a = split(a_text, mem), b = split(b_text, mem);
    unsigned n, line_a = 1, line_b = 1;

    if (!strcmp(a_text, b_text))
        return;
    struct edit *e = edits_make(&a, &b, mem, &n);
    buf_printf(out, "--- %s\n+++ %s\n", from_name, to_name);
    for (unsigned i = 0; i < n;) {
        unsigned first = i;
        while (first < n && e[first].op == ' ')
            first++;
        if (first == n)
            return;
        unsigned begin = first > i + CONTEXT ? first - CONTEXT : i, end = first, quiet = 0;
        line_a += begin - i;
        line_b += begin - i;
        for (unsigned k = first; k < n && quiet <= 2 * CONTEXT; k++) {
            quiet = e[k].op == ' ' ? quiet + 1 : 0;
            if (!quiet)
                end = k + 1;
        }
        end = end + CONTEXT < n ? end + CONTEXT : n;
        unsigned in_a = 0, in_b = 0;
        for (unsigned k = begin; k < end; k++) {
            in_a += e[k].op != '+';
            in_b += e[k].op != '-';
        }
        buf_printf(out, "@@ -%u,%u +%u,%u @@\n", in_a ? line_a : line_a - 1, in_a,
                   in_b ? line_b : line_b - 1, in_b);
        for (unsigned k = begin; k < end; k++)
            buf_printf(out, "%c%s\n", e[k].op, e[k].line);
        line_a += in_a;
        line_b += in_b;
        i = end;
    }
}
