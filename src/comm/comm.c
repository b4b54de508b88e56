#include "comm/comm.h"

#include "base/closest.h"

#include <stdio.h>
#include <string.h>

enum { NAMES = 16 };

const ls_comm_type *const *ls_comm_types(void)
{
#define LS_COMM(name) &ls_comm_##name,
    static const ls_comm_type *const types[] = {
#include "comm/comms.def"
        NULL};
#undef LS_COMM
    return types;
}

const ls_comm_type *ls_comm_find(const ls_comm_type *const *types, const char *name,
                                 char why[LS_COMM_WHY])
{
    const char *names[NAMES];
    char list[LS_COMM_WHY] = "";
    size_t count = 0, used = 0;
    for (; count < NAMES && types[count]; count++) {
        names[count] = types[count]->name;
        if (strcmp(name, names[count]) == 0)
            return types[count];
        if (used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", count ? ", " : "",
                                     names[count]);
    }
    const char *near = ls_closest(name, names, count);
    if (near)
        snprintf(why, LS_COMM_WHY, "did you mean '%s'?", near);
    else
        snprintf(why, LS_COMM_WHY, "use one of %.*s", LS_COMM_WHY - 12, list);
    return NULL;
}
