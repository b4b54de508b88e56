/* What a thread of the host's is given back as it was: its arithmetic and its locale. Any thread; all of it
 * concerns the calling one alone. */
#ifndef BASE_THREAD_STATE_H
#define BASE_THREAD_STATE_H

#include <fenv.h>
#include <locale.h>

/* The floating-point environment in which Lockstep computes: that in which a C program starts, rounding to
 * nearest, with numbers below the normal range kept. A host may have set another one on its threads (another
 * rounding; a library built with -ffast-math flushes small numbers to zero), new threads inherit it, and
 * results would depend on it. Returns the host's, for fesetenv. */
static inline fenv_t ls_arithmetic_enter(void)
{
    fenv_t before;
    fegetenv(&before);
    fesetenv(FE_DFL_ENV);
    return before;
}

/* The first line of a public function that computes: Lockstep's environment until its end, however it returns. Then all
 * is the host's again, its exception flags too. */
#define LS_OWN_ARITHMETIC                                                                          \
    __attribute__((cleanup(fesetenv))) const fenv_t ls_environment_of_host = ls_arithmetic_enter()

/* The "C" locale for the calling thread, for as long as numbers are read or printed. Neither the
 * process's locale nor another thread notices. */
typedef struct ls_c_locale {
    locale_t own;
    locale_t before;
} ls_c_locale;

/* Switches to the "C" locale; without memory for one, the thread stays with what it has. */
static inline ls_c_locale ls_c_locale_enter(void)
{
    ls_c_locale l = {newlocale(LC_ALL_MASK, "C", (locale_t)0), (locale_t)0};
    if (l.own)
        l.before = uselocale(l.own);
    return l;
}

static inline void ls_c_locale_leave(ls_c_locale l)
{
    if (!l.own)
        return;
    uselocale(l.before);
    freelocale(l.own);
}

#endif
