/* SPDX-License-Identifier: MIT */
/* State of a thread of the host program (the program that embeds the library) that the library
 * changes for a while and restores: the floating-point environment and the locale. All functions
 * may be called from any thread, and affect only the calling thread. */
#ifndef BASE_THREAD_STATE_H
#define BASE_THREAD_STATE_H

#include <fenv.h>
#include <locale.h>

/* CMake refuses flags such as -ffast-math where it sees them. Here gcc refuses them wherever they
 * come from, and clang those that change what an infinity or NaN is. */
#if defined(__FAST_MATH__) || __FINITE_MATH_ONLY__ > 0 ||                                          \
    (defined(__GCC_IEC_559) && __GCC_IEC_559 == 0)
#error "a flag such as -ffast-math lets the compiler reorder sums: take it out of the flags"
#endif

/* Switches to the floating-point environment in which Lockstep computes, and returns the previous
 * environment, for fesetenv. Lockstep computes in the environment in which a C program starts:
 * rounding to nearest, with subnormal numbers. The host program's threads can have another one, as
 * a library built with -ffast-math sets it. Results depend on the environment, and new threads
 * inherit it. */
static inline fenv_t ls_arithmetic_enter(void)
{
    fenv_t before;
    fegetenv(&before);
    fesetenv(FE_DFL_ENV);
    return before;
}

/* Declaration with which a public function that computes begins: switches to Lockstep's
 * floating-point environment until the function returns. Every return restores the host program's
 * environment, exception flags included. */
#define LS_OWN_ARITHMETIC                                                                          \
    __attribute__((cleanup(fesetenv), unused)) const fenv_t ls_environment_of_host =               \
        ls_arithmetic_enter()

/* State of a switch of the calling thread to the "C" locale, for reading or printing numbers. The
 * switch affects neither the process's locale nor other threads. */
typedef struct ls_c_locale {
    locale_t own;    /* the "C" locale; 0: memory ran out, and nothing was switched */
    locale_t before; /* the thread's previous locale */
} ls_c_locale;

/* Switches the calling thread to the "C" locale. If memory runs out, the thread keeps its
 * locale. */
static inline ls_c_locale ls_c_locale_enter(void)
{
    ls_c_locale l = {newlocale(LC_ALL_MASK, "C", (locale_t)0), (locale_t)0};
    if (l.own)
        l.before = uselocale(l.own);
    return l;
}

/* Restores the thread's previous locale. */
static inline void ls_c_locale_leave(ls_c_locale l)
{
    if (!l.own)
        return;
    uselocale(l.before);
    freelocale(l.own);
}

#endif
