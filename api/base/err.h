/* Errors: one table (err.def), so that HTTP, the CLI and retry logic cannot disagree.
 *
 * Functions that can fail return 0 or a negative E_* code, and describe what went wrong in the
 * caller's `struct err` (last parameter, may be NULL, written only on failure). Library code never
 * logs. */
#ifndef HANSE_API_BASE_ERR_H
#define HANSE_API_BASE_ERR_H

#include <stddef.h>

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))

enum err_row {
#define E(code, ...) code##_ROW,
#include "api/base/err.def"
#undef E
    E_ROW_NR
};
enum err_code {
    E_OK = 0,
#define E(code, ...) code = -(code##_ROW + 1),
#include "api/base/err.def"
#undef E
};

enum err_retry { RETRY_NEVER, RETRY_LATER, RETRY_LOOK, RETRY_AGAIN };

/* What leaves the process ends in one of three ways; no function turns OUT_UNKNOWN into a
 * failure. */
enum outcome { OUT_DONE, OUT_REJECTED, OUT_UNKNOWN };

#define ERR_TEXT_MAX 512
#define ERR_FIELD_MAX 128

struct err {
    int code;                  /* negative E_*, 0 = none */
    char text[ERR_TEXT_MAX];   /* what happened and what to do about it */
    char field[ERR_FIELD_MAX]; /* the field at fault as a path ("spec.gang.workers"), or "" */
    const char *file;          /* where in Hanse's source */
    int line;
};

struct err_info {
    const char *name;   /* "E_INVALID" */
    int http;           /* HTTP status */
    const char *reason; /* Kubernetes Status reason */
    int exit;           /* exit status of the CLI */
    enum err_retry retry;
    const char *sentence;
};

/* The table's row of a code; never NULL (E_INTERNAL's row for a code that is not in the table). */
const struct err_info *err_info(int code);

/* Fills *e (when not NULL) and returns `code`, so that `return err_set(err, E_INVALID, "…", …);`
 * reads well. */
#define err_set(e, code, ...) err_set_at((e), (code), __FILE__, __LINE__, __VA_ARGS__)
int err_set_at(struct err *e, int code, const char *file, int line, const char *fmt, ...)
    PRINTF_LIKE(5, 6);

/* As err_set, naming the field at fault. */
#define err_field(e, code, path, ...)                                                              \
    err_field_at((e), (code), (path), __FILE__, __LINE__, __VA_ARGS__)
int err_field_at(struct err *e, int code, const char *path, const char *file, int line,
                 const char *fmt, ...) PRINTF_LIKE(6, 7);

/* Puts "prefix: " before the text, for callers that know more (a file name, a document's
 * number). */
int err_prefix(struct err *e, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Invariants: they check our own errors only, never input; they stay on in production and abort. */
void assert_failed(const char *expr, const char *file, int line) __attribute__((noreturn));
#define INV(x) ((x) ? (void)0 : assert_failed(#x, __FILE__, __LINE__))
#define PRE(x) INV(x)
#define POST(x) INV(x)

#ifdef __clang_analyzer__ /* it does not see err.c, and must know that a failure is never 0 */
#undef err_set
#undef err_field
#define err_set(e, code, ...) (err_set_at((e), (code), __FILE__, __LINE__, __VA_ARGS__), (code))
#define err_field(e, code, path, ...)                                                              \
    (err_field_at((e), (code), (path), __FILE__, __LINE__, __VA_ARGS__), (code))
#endif

#endif
