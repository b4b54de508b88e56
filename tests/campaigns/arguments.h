/* SPDX-License-Identifier: MIT */
/* Reads the command lines of campaigns: pairs of a name and its value, such as "--seed 3". */
#ifndef CAMPAIGNS_ARGUMENTS_H
#define CAMPAIGNS_ARGUMENTS_H

#include <stdlib.h>
#include <string.h>

/* Returns the value after `name`, or the fallback. */
static inline const char *argument(int argc, char **argv, const char *name, const char *fallback)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return fallback;
}

static inline double number_argument(int argc, char **argv, const char *name, double fallback)
{
    const char *text = argument(argc, argv, name, NULL);
    return text ? strtod(text, NULL) : fallback;
}

#endif
