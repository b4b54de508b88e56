/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "fs_record.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int out = -1;
static long long said;
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;

/* Lines of standard output are said when they are complete, as on a terminal. */
void fs_record_start(int fd)
{
    out = fd;
    if (fd >= 0)
        setvbuf(stdout, NULL, _IOLBF, 0);
}

int fs_record_begin(int concerned)
{
    struct stat st;
    if (out < 0 || !concerned)
        return 0;
    pthread_mutex_lock(&one);
    said = fstat(STDOUT_FILENO, &st) == 0 && S_ISREG(st.st_mode) ? (long long)st.st_size : 0;
    return 1;
}

void fs_record_end(int begun)
{
    if (begun)
        pthread_mutex_unlock(&one);
}

/* A record that has a gap proves nothing. */
static void put(const char *line, const void *bytes, size_t count)
{
    struct iovec parts[2] = {{(void *)line, strlen(line)}, {(void *)bytes, count}};
    if (syscall(SYS_writev, out, parts, 2) != (long)(strlen(line) + count)) {
        fprintf(stderr, "fs_record: cannot write the record\n");
        _exit(99);
    }
}

void fs_record_name(const char *what, const char *path)
{
    char line[2 * PATH_MAX];
    snprintf(line, sizeof line, "%lld %s %s\n", said, what, path);
    put(line, NULL, 0);
}

void fs_record_names(const char *what, const char *from, const char *to)
{
    char line[3 * PATH_MAX];
    snprintf(line, sizeof line, "%lld %s %s\t%s\n", said, what, from, to);
    put(line, NULL, 0);
}

void fs_record_new(const char *what, const char *path)
{
    char line[2 * PATH_MAX];
    struct stat st;
    if (lstat(path, &st) != 0)
        return;
    snprintf(line, sizeof line, "%lld %s %llu\t%s\n", said, what, (unsigned long long)st.st_ino,
             path);
    put(line, NULL, 0);
}

static void put_inode(const char *what, int fd, long long a, long long b, const void *bytes)
{
    char line[200];
    struct stat st;
    if (fstat(fd, &st) != 0)
        return;
    snprintf(line, sizeof line, "%lld %s %llu\t%lld\t%lld\n", said, what,
             (unsigned long long)st.st_ino, a, b);
    put(line, bytes, bytes ? (size_t)b : 0);
}

void fs_record_write(int fd, const void *bytes, ssize_t count, off_t at)
{
    if (count > 0)
        put_inode("write", fd, at >= 0 ? at : lseek(fd, 0, SEEK_CUR) - count, count, bytes);
}

void fs_record_blocks(int fd, const struct iovec *blocks, ssize_t count)
{
    off_t at = lseek(fd, 0, SEEK_CUR) - count;
    for (int i = 0; count > 0; i++) {
        ssize_t some = (ssize_t)blocks[i].iov_len < count ? (ssize_t)blocks[i].iov_len : count;
        fs_record_write(fd, blocks[i].iov_base, some, at);
        at += some;
        count -= some;
    }
}

void fs_record_cut(int fd)
{
    struct stat st;
    if (fstat(fd, &st) == 0)
        put_inode("cut", fd, st.st_size, 0, NULL);
}

void fs_record_sync(int fd)
{
    put_inode("sync", fd, 0, 0, NULL);
}

void fs_record_whole(int fd)
{
    char link[40];
    struct stat st;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int own = (int)syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC);
    char *bytes =
        own >= 0 && fstat(own, &st) == 0 && st.st_size > 0 ? malloc((size_t)st.st_size) : NULL;
    if (bytes && pread(own, bytes, (size_t)st.st_size, 0) == st.st_size)
        put_inode("write", fd, 0, st.st_size, bytes);
    free(bytes);
    syscall(SYS_close, own);
}
