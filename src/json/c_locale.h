/* The "C" locale for the calling thread, for as long as numbers are read or printed. Neither the
 * process's locale nor another thread notices. */
#ifndef JSON_C_LOCALE_H
#define JSON_C_LOCALE_H

#include <locale.h>

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
