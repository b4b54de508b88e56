/* The floating-point environment in which Lockstep computes: that in which a C program starts, rounding to
 * nearest, with numbers below the normal range kept. A host may have set another one on its threads (another
 * rounding; a library built with -ffast-math flushes small numbers to zero), new threads inherit it, and
 * results would depend on it. Any thread; concerns the calling one. */
#ifndef BASE_ARITHMETIC_H
#define BASE_ARITHMETIC_H

#include <fenv.h>

/* The thread's own environment, to be given back. */
typedef struct ls_arithmetic {
    fenv_t own;
} ls_arithmetic;

static inline void ls_arithmetic_enter(ls_arithmetic *a)
{
    fegetenv(&a->own);
    fesetenv(FE_DFL_ENV);
}

/* Also its exception flags are as they were. */
static inline void ls_arithmetic_leave(const ls_arithmetic *a)
{
    fesetenv(&a->own);
}

#endif
