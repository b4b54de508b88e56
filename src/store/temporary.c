#include "store/temporary.h"

#include "store/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char mark[] = ".lockstep-";

enum { BASE = 128 /* bytes of a hidden name that say what it will be */, TRIES = 100000 };

/* Length of at most BASE bytes of a name, without cutting a UTF-8 character. */
static int base_length(const char *base)
{
    size_t n = strlen(base);
    if (n <= BASE)
        return (int)n;
    for (n = BASE; n > 0 && ((unsigned char)base[n] & 0xC0) == 0x80;)
        n--;
    return (int)n;
}

static void hidden_name(char out[LS_TEMPORARY_NAME], const char *base, int n)
{
    snprintf(out, LS_TEMPORARY_NAME, ".%.*s%s%ld-%d", base_length(base), base, mark, (long)getpid(),
             n);
}

/* Past a run of digits, or NULL when there is none. */
static const char *skip_digits(const char *p)
{
    const char *start = p;
    while (*p >= '0' && *p <= '9')
        p++;
    return p == start ? NULL : p;
}

static int is_hidden_name(const char *name)
{
    const char *p = NULL;
    if (name[0] != '.')
        return 0;
    for (const char *at = name; (at = strstr(at, mark)) != NULL; at++)
        p = at + sizeof mark - 1; /* the last one: NAME may contain it too */
    p = p ? skip_digits(p) : NULL;
    p = p && *p == '-' ? skip_digits(p + 1) : NULL;
    return p && *p == '\0';
}

/* Does `name` still lead to what is open as `fd`? */
static int still_there(int parent, const char *name, int fd)
{
    struct stat there, open_one;
    return ls_io_stat(&there, parent, name) == 0 && fstat(fd, &open_one) == 0 &&
           there.st_dev == open_one.st_dev && there.st_ino == open_one.st_ino;
}

/* Locks what was just created. EEXIST: a sweeper was faster, take another name. */
static int lock_created(int parent, const char *name, int fd)
{
    int error = ls_io_lock(fd, 1);
    if (error == EOPNOTSUPP)
        return 0;
    if (error == EWOULDBLOCK)
        return EEXIST;
    return error ? error : still_there(parent, name, fd) ? 0 : EEXIST;
}

static int create_file(int *fd, int parent, const char *name)
{
    int error = ls_io_open(fd, parent, name, O_WRONLY | O_CREAT | O_EXCL);
    if (error)
        return error;
    error = lock_created(parent, name, *fd);
    if (error) {
        (void)ls_io_close(*fd);
        if (error != EEXIST)
            (void)ls_io_remove(parent, name);
    }
    return error;
}

int ls_temporary_file(int *fd, char name[LS_TEMPORARY_NAME], int parent, const char *base)
{
    int error = EEXIST;
    for (int n = 1; n < TRIES && error == EEXIST; n++) {
        hidden_name(name, base, n);
        error = create_file(fd, parent, name);
    }
    if (error)
        *fd = -1;
    return error;
}

/* A stream over a directory that leaves `fd` and its position alone. */
static DIR *open_stream(int fd)
{
    int own;
    if (ls_io_open(&own, fd, ".", O_RDONLY | O_DIRECTORY) != 0)
        return NULL;
    DIR *stream = fdopendir(own);
    if (!stream)
        (void)ls_io_close(own);
    return stream;
}

/* Removes one left-over unless its writer lives. */
static void sweep_one(int parent, const char *name)
{
    int fd;
    if (ls_io_open(&fd, parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK) != 0)
        return;
    if (ls_io_lock(fd, 1) == 0 && still_there(parent, name, fd))
        (void)ls_io_remove(parent, name);
    (void)ls_io_close(fd);
}

void ls_temporary_sweep(int parent)
{
    DIR *stream = open_stream(parent);
    if (!stream)
        return;
    for (const struct dirent *e; (e = readdir(stream)) != NULL;)
        if (is_hidden_name(e->d_name))
            sweep_one(parent, e->d_name);
    closedir(stream);
}
