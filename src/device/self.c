#define _GNU_SOURCE /* dladdr; this file alone in the room */
#include "device/self.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void cut_at_last_slash(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = '\0';
    else
        path[0] = '\0';
}

void ls_library_folder(char *out, size_t size)
{
    static const char here; /* anything that lies in the file in question */
    Dl_info info;
    out[0] = '\0';
    /* A name that is not absolute was meant from where the program was started, which may not be
     * where it is now. Programs have such, and are found by ls_program_folder. */
    if (dladdr(&here, &info) == 0 || !info.dli_fname || info.dli_fname[0] != '/')
        return;
    int length = snprintf(out, size, "%s", info.dli_fname);
    if (length < 0 || (size_t)length >= size)
        out[0] = '\0';
    cut_at_last_slash(out);
}

void ls_program_folder(char *out, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", out, size - 1);
    out[length > 0 ? length : 0] = '\0';
    cut_at_last_slash(out);
}
