/* SPDX-License-Identifier: MIT */
/* Removes a directory and everything in it. */
#ifndef TESTS_CAMPAIGNS_REMOVE_TREE_H
#define TESTS_CAMPAIGNS_REMOVE_TREE_H

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static inline void remove_tree(const char *path)
{
    char inside[4096];
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        const int n = snprintf(inside, sizeof inside, "%s/%s", path, e->d_name);
        if (n > 0 && n < (int)sizeof inside && unlink(inside) != 0)
            remove_tree(inside);
    }
    if (d)
        closedir(d);
    rmdir(path);
}

#endif
