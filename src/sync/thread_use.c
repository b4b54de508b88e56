#include "sync/thread_use.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "12/task/34": the number that this /proc knows the thread by, whatever namespace it is of. */
int ls_thread_self(void)
{
    char link[64];
    ssize_t length = readlink("/proc/thread-self", link, sizeof link - 1);
    if (length <= 0)
        return 0;
    link[length] = '\0';
    const char *slash = strrchr(link, '/');
    return slash ? (int)strtol(slash + 1, NULL, 10) : 0;
}

/* The first bytes of a file of the thread's. */
static bool read_file(char *text, size_t size, int thread, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/%s", thread, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t length = read(file, text, size - 1);
    close(file);
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

bool ls_thread_look(ls_thread_use *out, int thread)
{
    char text[160], *end;
    *out = (ls_thread_use){0};
    if (thread <= 0 || !read_file(text, sizeof text, thread, "schedstat"))
        return false;
    out->ran_ns = strtoull(text, &end, 10);
    out->queued_ns = strtoull(end, NULL, 10);
    /* "34 (a name, with any character) S …" */
    const char *name_end = read_file(text, sizeof text, thread, "stat") ? strrchr(text, ')') : NULL;
    if (name_end && name_end[1] == ' ')
        out->state = name_end[2];
    return out->state != 0;
}
