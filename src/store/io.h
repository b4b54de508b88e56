/* The system calls of this room: a signal does not interrupt them, and errors come back as the
 * system's numbers, 0 being success. `folder` is a directory's descriptor or AT_FDCWD. Any
 * thread. */
#ifndef STORE_IO_H
#define STORE_IO_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* LS_EIO "PATH: cannot OPERATION: REASON"; of a very long path only the end is named. */
int ls_io_fail(ls_error *err, const char *path, const char *operation, int error);

/* A path as it fits a message: its end. */
const char *ls_io_tail(const char *path);

/* What stands behind the last slash. */
const char *ls_io_base(const char *path);

/* Opens the directory that holds `path`. */
int ls_io_open_parent(int *fd, const char *path, ls_error *err);

/* With O_CLOEXEC and, when it creates, mode 0666. */
int ls_io_open(int *fd, int folder, const char *name, int flags);
/* The descriptor is gone, whatever comes back. */
int ls_io_close(int fd);
int ls_io_write(int fd, const void *bytes, size_t count);
/* *done < count at the file's end. */
int ls_io_read(int fd, void *bytes, size_t count, size_t *done);
/* Behind `count` bytes written at `at`: the disk begins with whole pieces of 4 MiB, so that the sync has less to
 * wait for. A hint, which takes no error of writing away from the sync. */
void ls_io_write_back(int fd, uint64_t at, size_t count);
int ls_io_sync(int fd);
/* A file system that cannot sync directories is none the worse. */
int ls_io_sync_folder(int fd);
int ls_io_stat(struct stat *out, int folder, const char *name); /* follows no link */
int ls_io_make_folder(int folder, const char *name);
int ls_io_remove(int folder, const char *name);
int ls_io_rename(int folder, const char *from, const char *to);

/* An exclusive flock, without waiting: EWOULDBLOCK when another process holds it, any other number when the file system
 * gives no lock for this file: ENOLCK, ENOSYS, EBADF (a network file system, and the file is not open for writing) … */
int ls_io_lock(int fd);

#endif
