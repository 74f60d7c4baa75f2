/* Structured log: one JSON or logfmt line per event on stderr. No free text with values from
 * secrets. log_event(LOG_INFO, "raft.leader", LOG_FIELDS({"term", log_u64(7)}, {"member",
 * log_str("m1")})); Thread-safe; rate-limited per event name (100 a second, then one line that
 * counts what was dropped). */
#ifndef HANSE_API_BASE_LOG_H
#define HANSE_API_BASE_LOG_H

#include "api/base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
struct log_value {
    int kind; /* 0 string, 1 signed, 2 unsigned, 3 double */
    union {
        const char *s;
        int64_t i;
        uint64_t u;
        double d;
    };
};
static inline struct log_value log_str(const char *s)
{
    return (struct log_value){.kind = 0, .s = s ? s : ""};
}
static inline struct log_value log_i64(int64_t i)
{
    return (struct log_value){.kind = 1, .i = i};
}
static inline struct log_value log_u64(uint64_t u)
{
    return (struct log_value){.kind = 2, .u = u};
}
static inline struct log_value log_f64(double d)
{
    return (struct log_value){.kind = 3, .d = d};
}
struct log_field {
    const char *key;
    struct log_value value;
};
#define LOG_FIELDS(...) ((const struct log_field[]){__VA_ARGS__ __VA_OPT__(, ){NULL, {0}}})
/* fields: array ended by a NULL key, made with LOG_FIELDS({"term", log_u64(7)}, …). */
void log_event(enum log_level level, const char *event, const struct log_field *fields);
void log_err(enum log_level level, const char *event, const struct err *e);
void log_set(enum log_level min_level, bool json);
/* Tests: lines go to fn instead; NULL = stderr again. */
void log_capture(void (*fn)(const char *line, void *arg), void *arg);

#endif
