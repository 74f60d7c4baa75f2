/* What each C test begins with: cmocka, and what cmocka.h needs before it. */
#ifndef HANSE_TESTS_SUPPORT_UNIT_H
#define HANSE_TESTS_SUPPORT_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
