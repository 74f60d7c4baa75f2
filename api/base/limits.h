/* Limits, generated from limits.def, as LIMIT_<NAME>. */
#ifndef HANSE_API_BASE_LIMITS_H
#define HANSE_API_BASE_LIMITS_H

#include <stdint.h>

enum {
#define L(name, value, what) LIMIT_##name = (value),
#include "api/base/limits.def"
#undef L
};

#endif
