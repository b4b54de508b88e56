/* SPDX-License-Identifier: MIT */
/* A library for LD_PRELOAD that makes one file system call of a program fail.
 *
 * It counts the calls that concern files below one directory, and at call number N injects the
 * fault. A script first runs the program without a fault to learn the number of calls, and then
 * once for each of them.
 *
 *     LS_FS_ROOT     the directory; only calls about it and what is below it count. Without it the
 *                    library does nothing
 *     LS_FS_COUNT    a file outside the directory that always contains the number of calls so far
 *     LS_FS_TRACE    a file outside the directory that gets a line "N CALL PATH" for each call
 *     LS_FS_RECORD   a file outside the directory to which every call is appended that changes or
 *                    syncs files (fs_record.h); standard output must then be a file
 *     LS_FS_CALLS    names of calls, separated by commas: only these count
 *     LS_FS_WITHOUT  names of calls that fail with ENOSYS and do not count
 *     LS_FS_AT       N, from 1
 *     LS_FS_FAULT    kill-before, kill-after   SIGKILL, before or after the call
 *                    kill-half                 writes half, then SIGKILL
 *                    power                     SIGKILL before the call, and what was written to
 *                                              files since their last sync is lost
 *                    short                     writes half and returns that count
 *                    ENOSPC, EIO, EDQUOT, EINTR, EROFS, ENOMEM, or a number: the call fails
 *     LS_FS_KEEP     not empty: every call from N on fails, until the end. EINTR then fails each
 *                    call once and lets its repetition pass
 *
 * A close that fails has closed the file nevertheless, as on Linux. Calls that standard I/O makes
 * internally are not seen, but fopen and fclose are; what they wrote is recorded when the stream is
 * closed. Mappings, copies within the system and fallocate are not recorded. Paths are compared as
 * texts once LS_FS_ROOT is resolved: the program must use a path to the directory without symbolic
 * links. */
#define _GNU_SOURCE
#include "fs_record.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

typedef enum fault { NONE, KILL_BEFORE, KILL_AFTER, KILL_HALF, POWER, SHORT, ERROR } fault;

/* The decision about one call: it passes, fails, does half, or is the last. */
typedef enum verdict { PASS, FAIL, HALF, LAST, HALF_AND_LAST } verdict;

static struct {
    char root[PATH_MAX];
    size_t root_length;
    const char *calls, *without;
    int count_file, trace_file;
    long at;
    fault fault;
    int error;
    int keep;
    atomic_long seen;
} shim = {.count_file = -1, .trace_file = -1};

static _Thread_local char where[2 * PATH_MAX]; /* the path (the new one) of the call being judged */
static _Thread_local int interrupted;          /* the last call failed with EINTR */

/* ---- the environment ------------------------------------------------------------------------ */

static void set_fault(const char *text)
{
    static const struct {
        const char *name;
        fault fault;
        int error;
    } known[] = {{"kill-before", KILL_BEFORE, 0},
                 {"kill-after", KILL_AFTER, 0},
                 {"kill-half", KILL_HALF, 0},
                 {"power", POWER, 0},
                 {"short", SHORT, 0},
                 {"ENOSPC", ERROR, ENOSPC},
                 {"EIO", ERROR, EIO},
                 {"EDQUOT", ERROR, EDQUOT},
                 {"EINTR", ERROR, EINTR},
                 {"EROFS", ERROR, EROFS},
                 {"ENOMEM", ERROR, ENOMEM}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(text, known[i].name) == 0) {
            shim.fault = known[i].fault;
            shim.error = known[i].error;
            return;
        }
    shim.fault = ERROR;
    shim.error = atoi(text);
    if (shim.error <= 0) {
        fprintf(stderr, "fs_fault: unknown LS_FS_FAULT \"%s\"\n", text);
        _exit(99);
    }
}

/* Past the shim's own wrappers, and above the descriptors that the program expects. */
static int open_report(const char *variable, int flags)
{
    const char *path = getenv(variable);
    if (!path || !*path)
        return -1;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 500);
    if (fd >= 0)
        syscall(SYS_close, fd);
    return high;
}

__attribute__((constructor)) static void begin(void)
{
    const char *root = getenv("LS_FS_ROOT");
    const char *at = getenv("LS_FS_AT");
    const char *kind = getenv("LS_FS_FAULT");
    const char *keep = getenv("LS_FS_KEEP");
    if (!root || !*root)
        return;
    if (!realpath(root, shim.root))
        snprintf(shim.root, sizeof shim.root, "%s", root);
    shim.calls = getenv("LS_FS_CALLS");
    shim.without = getenv("LS_FS_WITHOUT");
    shim.at = at ? atol(at) : 0;
    shim.keep = keep && *keep;
    if (kind && *kind)
        set_fault(kind);
    shim.count_file = open_report("LS_FS_COUNT", O_TRUNC);
    shim.trace_file = open_report("LS_FS_TRACE", O_APPEND);
    fs_record_start(open_report("LS_FS_RECORD", O_APPEND));
    shim.root_length = strlen(shim.root); /* from here on calls are counted */
}

static int listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; p && (p = strstr(p, name)); p += n)
        if ((p == list || p[-1] == ',') && (p[n] == ',' || p[n] == '\0'))
            return 1;
    return 0;
}

/* ---- the path of a call --------------------------------------------------------------------- */

static int below_root(const char *path)
{
    return strncmp(path, shim.root, shim.root_length) == 0 &&
           (path[shim.root_length] == '/' || path[shim.root_length] == '\0');
}

static int path_of(int fd, char *out, size_t size)
{
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* Takes out "//", "." and ".." in place. */
static void simplify(char *path)
{
    char *out = path;
    for (char *p = path; *p;) {
        while (*p == '/')
            p++;
        size_t n = strcspn(p, "/");
        if (n == 2 && p[0] == '.' && p[1] == '.') {
            while (out > path && *--out != '/')
                continue;
        } else if (n > 0 && !(n == 1 && p[0] == '.')) {
            *out++ = '/';
            memmove(out, p, n);
            out += n;
        }
        p += n;
    }
    *out = '\0';
}

static int concerns_fd(int fd)
{
    return shim.root_length > 0 && path_of(fd, where, sizeof where) && below_root(where);
}

static int full_path(char out[2 * PATH_MAX], int folder, const char *path)
{
    size_t n = 0;
    if (path[0] != '/') {
        if (folder == AT_FDCWD ? !getcwd(out, PATH_MAX) : !path_of(folder, out, PATH_MAX))
            return 0;
        n = strlen(out);
    }
    snprintf(out + n, 2 * PATH_MAX - n, "/%s", path);
    simplify(out);
    return 1;
}

static int concerns_path(int folder, const char *path)
{
    return shim.root_length > 0 && full_path(where, folder, path) && below_root(where);
}

/* ---- recording ------------------------------------------------------------------------------ */

/* The calls below have been judged: `where` is the path, the new one where there are two. */

static void record_move(const char *what, int folder, const char *from)
{
    char full[2 * PATH_MAX];
    if (full_path(full, folder, from))
        fs_record_names(what, full, where);
}

static int is_there(int folder, const char *path)
{
    struct stat st;
    return fstatat(folder, path, &st, 0) == 0;
}

/* An open that may have created or emptied a file. */
static void record_open(int fd, int flags, int was_there)
{
    if (fd < 0)
        return;
    if (!was_there)
        fs_record_new("create", where);
    else if (flags & O_TRUNC)
        fs_record_cut(fd);
}

/* ---- unsynced writes ------------------------------------------------------------------------ */

enum { FILES = 64 };

static struct {
    struct unsynced {
        int fd; /* another open file, so that locks are not held by it; 0: free */
        dev_t device;
        ino_t inode;
        off_t size; /* that would survive */
    } file[FILES];
    pthread_mutex_t mutex;
} unsynced = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct unsynced *find(const struct stat *st)
{
    for (int i = 0; i < FILES; i++)
        if (unsynced.file[i].fd > 0 && unsynced.file[i].device == st->st_dev &&
            unsynced.file[i].inode == st->st_ino)
            return &unsynced.file[i];
    return NULL;
}

static void note_write(int fd)
{
    char link[40];
    struct stat st;
    if (shim.fault != POWER || fstat(fd, &st) != 0)
        return;
    pthread_mutex_lock(&unsynced.mutex);
    for (int i = 0; i < FILES && !find(&st); i++)
        if (unsynced.file[i].fd == 0) {
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
            int own = (int)syscall(SYS_openat, AT_FDCWD, link, O_WRONLY | O_CLOEXEC);
            int high = own < 0 ? -1 : fcntl(own, F_DUPFD_CLOEXEC, 600);
            syscall(SYS_close, own);
            if (high >= 0)
                unsynced.file[i] = (struct unsynced){high, st.st_dev, st.st_ino, st.st_size};
            break;
        }
    pthread_mutex_unlock(&unsynced.mutex);
}

static void note_sync(int fd)
{
    struct stat st;
    if (shim.fault != POWER || fstat(fd, &st) != 0)
        return;
    pthread_mutex_lock(&unsynced.mutex);
    struct unsynced *file = find(&st);
    if (file) {
        syscall(SYS_close, file->fd);
        file->fd = 0;
    }
    pthread_mutex_unlock(&unsynced.mutex);
}

static void lose_unsynced(void)
{
    pthread_mutex_lock(&unsynced.mutex);
    for (int i = 0; i < FILES; i++)
        if (unsynced.file[i].fd > 0)
            syscall(SYS_ftruncate, unsynced.file[i].fd, unsynced.file[i].size);
}

/* ---- the verdict ---------------------------------------------------------------------------- */

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static void report(long n, const char *call)
{
    char line[2 * PATH_MAX + 64];
    if (shim.count_file >= 0) {
        int length = snprintf(line, sizeof line, "%ld\n", n);
        syscall(SYS_pwrite64, shim.count_file, line, (size_t)length, (off_t)0);
    }
    if (shim.trace_file >= 0) {
        int length = snprintf(line, sizeof line, "%ld %s %s\n", n, call, where);
        syscall(SYS_write, shim.trace_file, line, (size_t)length);
    }
}

static verdict fail_call(void)
{
    if (shim.error == EINTR) {
        interrupted = !interrupted;
        if (!interrupted)
            return PASS;
    }
    errno = shim.error;
    return FAIL;
}

/* Sets errno for FAIL. */
static verdict judge(const char *call, int concerned)
{
    if (!concerned)
        return PASS;
    if (listed(shim.without, call)) {
        errno = ENOSYS;
        return FAIL;
    }
    if (shim.calls && *shim.calls && !listed(shim.calls, call))
        return PASS;
    long n = atomic_fetch_add(&shim.seen, 1) + 1;
    report(n, call);
    if (shim.at <= 0 || !(shim.keep ? n >= shim.at : n == shim.at))
        return PASS;
    switch (shim.fault) {
    case NONE: return PASS;
    case POWER:
        lose_unsynced();
        die();
        return PASS;
    case KILL_BEFORE: die(); return PASS;
    case KILL_AFTER: return LAST;
    case KILL_HALF: return HALF_AND_LAST;
    case SHORT: return HALF;
    case ERROR: break;
    }
    return fail_call();
}

static void settle(verdict v)
{
    if (v == LAST || v == HALF_AND_LAST)
        die();
}

/* How much of `count` bytes the verdict lets pass. */
static size_t allowed(verdict v, size_t count)
{
    return (v == HALF || v == HALF_AND_LAST) && count > 1 ? count / 2 : count;
}

/* ---- the calls ------------------------------------------------------------------------------ */

/* NOLINTBEGIN(bugprone-macro-parentheses,readability-inconsistent-declaration-parameter-name):
 * types take no parentheses, and the C library's own names for parameters are no names for ours. */

/* The next definition of a function, looked up once. */
#define REAL(type, name, params)                                                                   \
    static type(*real) params;                                                                     \
    if (!real)                                                                                     \
    *(void **)&real = dlsym(RTLD_NEXT, name)

/* `note` records a call that has succeeded. */
#define CALL(name, params, args, concerned, note)                                                  \
    int name params                                                                                \
    {                                                                                              \
        REAL(int, #name, params);                                                                  \
        int about = concerned;                                                                     \
        verdict v = judge(#name, about);                                                           \
        if (v == FAIL)                                                                             \
            return -1;                                                                             \
        int begun = fs_record_begin(about);                                                        \
        int result = real args;                                                                    \
        int error = errno;                                                                         \
        if (begun && result == 0)                                                                  \
            note;                                                                                  \
        fs_record_end(begun);                                                                      \
        errno = error;                                                                             \
        settle(v);                                                                                 \
        return result;                                                                             \
    }

CALL(creat, (const char *path, mode_t mode), (path, mode), concerns_path(AT_FDCWD, path),
     fs_record_name("unknown", where))
CALL(creat64, (const char *path, mode_t mode), (path, mode), concerns_path(AT_FDCWD, path),
     fs_record_name("unknown", where))
CALL(truncate, (const char *path, off_t size), (path, size), concerns_path(AT_FDCWD, path),
     fs_record_name("unknown", where))
CALL(rename, (const char *from, const char *to), (from, to),
     concerns_path(AT_FDCWD, from) | concerns_path(AT_FDCWD, to),
     record_move("rename", AT_FDCWD, from))
CALL(renameat, (int f, const char *from, int t, const char *to), (f, from, t, to),
     concerns_path(f, from) | concerns_path(t, to), record_move("rename", f, from))
CALL(renameat2, (int f, const char *from, int t, const char *to, unsigned flags),
     (f, from, t, to, flags), concerns_path(f, from) | concerns_path(t, to),
     record_move(flags &RENAME_EXCHANGE ? "exchange" : "rename", f, from))
CALL(link, (const char *from, const char *to), (from, to), concerns_path(AT_FDCWD, to),
     record_move("link", AT_FDCWD, from))
CALL(linkat, (int f, const char *from, int t, const char *to, int flags), (f, from, t, to, flags),
     concerns_path(t, to), record_move("link", f, from))
CALL(symlink, (const char *from, const char *to), (from, to), concerns_path(AT_FDCWD, to),
     fs_record_name("unknown", where))
CALL(unlink, (const char *path), (path), concerns_path(AT_FDCWD, path),
     fs_record_name("remove", where))
CALL(unlinkat, (int folder, const char *path, int flags), (folder, path, flags),
     concerns_path(folder, path), fs_record_name("remove", where))
CALL(remove, (const char *path), (path), concerns_path(AT_FDCWD, path),
     fs_record_name("remove", where))
CALL(mkdir, (const char *path, mode_t mode), (path, mode), concerns_path(AT_FDCWD, path),
     fs_record_new("mkdir", where))
CALL(mkdirat, (int folder, const char *path, mode_t mode), (folder, path, mode),
     concerns_path(folder, path), fs_record_new("mkdir", where))
CALL(rmdir, (const char *path), (path), concerns_path(AT_FDCWD, path),
     fs_record_name("remove", where))
CALL(ftruncate, (int fd, off_t size), (fd, size), concerns_fd(fd), fs_record_cut(fd))
CALL(ftruncate64, (int fd, off64_t size), (fd, size), concerns_fd(fd), fs_record_cut(fd))
CALL(fchmod, (int fd, mode_t mode), (fd, mode), concerns_fd(fd), (void)0)
CALL(flock, (int fd, int operation), (fd, operation), concerns_fd(fd), (void)0)

#define SYNC(name)                                                                                 \
    int name(int fd)                                                                               \
    {                                                                                              \
        REAL(int, #name, (int));                                                                   \
        int about = concerns_fd(fd);                                                               \
        verdict v = judge(#name, about);                                                           \
        if (v == FAIL)                                                                             \
            return -1;                                                                             \
        int begun = fs_record_begin(about);                                                        \
        int result = real(fd);                                                                     \
        if (begun && result == 0)                                                                  \
            fs_record_sync(fd);                                                                    \
        fs_record_end(begun);                                                                      \
        note_sync(fd);                                                                             \
        settle(v);                                                                                 \
        return result;                                                                             \
    }

SYNC(fsync)
SYNC(fdatasync)

/* The mode is there only when a file may be created. */
#define OPEN(name, params, last, args, folder, path)                                               \
    int name params                                                                                \
    {                                                                                              \
        REAL(int, #name, params);                                                                  \
        mode_t mode = 0;                                                                           \
        if (flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) {                                      \
            va_list list;                                                                          \
            va_start(list, last);                                                                  \
            mode = va_arg(list, mode_t);                                                           \
            va_end(list);                                                                          \
        }                                                                                          \
        int about = concerns_path(folder, path);                                                   \
        verdict v = judge(#name, about);                                                           \
        if (v == FAIL)                                                                             \
            return -1;                                                                             \
        int begun = fs_record_begin(about);                                                        \
        int was_there = begun && is_there(folder, path);                                           \
        int result = real args;                                                                    \
        int error = errno;                                                                         \
        if (begun && (flags & (O_CREAT | O_TRUNC)))                                                \
            record_open(result, flags, was_there);                                                 \
        fs_record_end(begun);                                                                      \
        errno = error;                                                                             \
        settle(v);                                                                                 \
        return result;                                                                             \
    }

OPEN(open, (const char *path, int flags, ...), flags, (path, flags, mode), AT_FDCWD, path)
OPEN(open64, (const char *path, int flags, ...), flags, (path, flags, mode), AT_FDCWD, path)
OPEN(openat, (int folder, const char *path, int flags, ...), flags, (folder, path, flags, mode),
     folder, path)
OPEN(openat64, (int folder, const char *path, int flags, ...), flags, (folder, path, flags, mode),
     folder, path)

/* Functions that fortified programs call. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int folder, const char *path, int flags);
int __openat64_2(int folder, const char *path, int flags);

int __open_2(const char *path, int flags)
{
    return open(path, flags);
}

int __open64_2(const char *path, int flags)
{
    return open64(path, flags);
}

int __openat_2(int folder, const char *path, int flags)
{
    return openat(folder, path, flags);
}

int __openat64_2(int folder, const char *path, int flags)
{
    return openat64(folder, path, flags);
}

#define WRITE(name, params, args, at)                                                              \
    ssize_t name params                                                                            \
    {                                                                                              \
        REAL(ssize_t, #name, params);                                                              \
        int concerned = concerns_fd(fd);                                                           \
        verdict v = judge(#name, concerned);                                                       \
        if (v == FAIL)                                                                             \
            return -1;                                                                             \
        if (concerned)                                                                             \
            note_write(fd);                                                                        \
        count = allowed(v, count);                                                                 \
        int begun = fs_record_begin(concerned);                                                    \
        ssize_t result = real args;                                                                \
        int error = errno;                                                                         \
        if (begun)                                                                                 \
            fs_record_write(fd, bytes, result, at);                                                \
        fs_record_end(begun);                                                                      \
        errno = error;                                                                             \
        settle(v);                                                                                 \
        return result;                                                                             \
    }

WRITE(write, (int fd, const void *bytes, size_t count), (fd, bytes, count), -1)
WRITE(pwrite, (int fd, const void *bytes, size_t count, off_t at), (fd, bytes, count, at), at)
WRITE(pwrite64, (int fd, const void *bytes, size_t count, off64_t at), (fd, bytes, count, at), at)

/* Half of it is its first block. */
ssize_t writev(int fd, const struct iovec *blocks, int count)
{
    REAL(ssize_t, "writev", (int, const struct iovec *, int));
    int concerned = concerns_fd(fd);
    verdict v = judge("writev", concerned);
    if (v == FAIL)
        return -1;
    if (concerned)
        note_write(fd);
    int begun = fs_record_begin(concerned);
    ssize_t result = real(fd, blocks, (int)allowed(v, (size_t)count));
    int error = errno;
    if (begun)
        fs_record_blocks(fd, blocks, result);
    fs_record_end(begun);
    errno = error;
    settle(v);
    return result;
}

int close(int fd)
{
    REAL(int, "close", (int));
    verdict v = judge("close", concerns_fd(fd));
    int error = errno;
    int result = real(fd);
    settle(v);
    if (v == FAIL) {
        errno = error;
        return -1;
    }
    return result;
}

#define FOPEN(name)                                                                                \
    FILE *name(const char *path, const char *mode)                                                 \
    {                                                                                              \
        REAL(FILE *, #name, (const char *, const char *));                                         \
        int about = concerns_path(AT_FDCWD, path);                                                 \
        verdict v = judge(#name, about);                                                           \
        if (v == FAIL)                                                                             \
            return NULL;                                                                           \
        int begun = fs_record_begin(about);                                                        \
        int was_there = begun && is_there(AT_FDCWD, path);                                         \
        FILE *result = real(path, mode);                                                           \
        int error = errno;                                                                         \
        if (begun && result && *mode != 'r')                                                       \
            record_open(fileno(result), *mode == 'w' ? O_TRUNC : 0, was_there);                    \
        fs_record_end(begun);                                                                      \
        errno = error;                                                                             \
        settle(v);                                                                                 \
        return result;                                                                             \
    }

FOPEN(fopen)
FOPEN(fopen64)

int fclose(FILE *stream)
{
    REAL(int, "fclose", (FILE *));
    int fd = fileno(stream);
    int about = fd >= 0 && concerns_fd(fd);
    verdict v = judge("fclose", about);
    int error = errno;
    int begun = fs_record_begin(about && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY);
    if (begun && fflush(stream) == 0)
        fs_record_whole(fd);
    fs_record_end(begun);
    int result = real(stream);
    settle(v);
    if (v == FAIL) {
        errno = error;
        return EOF;
    }
    return result;
}

/* NOLINTEND(bugprone-macro-parentheses,readability-inconsistent-declaration-parameter-name) */
