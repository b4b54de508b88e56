/* SPDX-License-Identifier: MIT */
/* The system calls of src/store. A system call that a signal interrupts is repeated, except close.
 * Functions with the result type int and without a comment on the result return the operating
 * system's error number, 0 on success. `folder`: descriptor of a directory, or AT_FDCWD (the
 * current directory). Any thread may call these functions. */
#ifndef STORE_IO_H
#define STORE_IO_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* Writes the error LS_EIO "PATH: cannot OPERATION: REASON" to *err and returns LS_EIO. `error`: the
 * operating system's error number. Of a very long path only the end is printed. */
int ls_io_fail(ls_error *err, const char *path, const char *operation, int error);

/* Returns the end of a path that fits into a message. */
const char *ls_io_tail(const char *path);

/* Returns the part of a path after its last slash. */
const char *ls_io_base(const char *path);

/* Fails if the name at the end of `path` exists in the open directory `folder`, and is neither a
 * regular file nor a symbolic link. The path itself is only for messages. Errors: LS_EIO. */
int ls_io_check_replaceable(int folder, const char *path, ls_error *err);

/* Opens the directory that contains `path`. Errors: LS_EIO. */
int ls_io_open_parent(int *fd, const char *path, ls_error *err);

/* Opens a file with O_CLOEXEC; a file that it creates has mode 0666. */
int ls_io_open(int *fd, int folder, const char *name, int flags);
/* Closes the descriptor, which is closed even if the function returns an error. */
int ls_io_close(int fd);
/* Writes all `count` bytes. */
int ls_io_write(int fd, const void *bytes, size_t count);
/* Reads `count` bytes. *done becomes the number of bytes read, which is less than `count` only at
 * the end of the file or after an error. */
int ls_io_read(int fd, void *bytes, size_t count, size_t *done);
/* Called after `count` bytes have been written at offset `at`. Asks the kernel to begin writing
 * pieces of 4 MiB that are complete now to the disk, so that a later sync waits less. The call is a
 * hint: errors of these writes are reported by ls_io_sync. */
void ls_io_write_back(int fd, uint64_t at, size_t count);
/* Syncs a file. */
int ls_io_sync(int fd);
/* Syncs a directory. Returns 0 if the file system cannot sync directories. */
int ls_io_sync_folder(int fd);
/* Reads the attributes of a file; does not follow a symbolic link. */
int ls_io_stat(struct stat *out, int folder, const char *name);
/* Creates a directory with mode 0777. */
int ls_io_make_folder(int folder, const char *name);
/* Removes a file. */
int ls_io_remove(int folder, const char *name);
/* Renames a file within one directory. */
int ls_io_rename(int folder, const char *from, const char *to);

/* Takes an exclusive flock without waiting. Returns 0 if it has taken the lock, and EWOULDBLOCK if
 * the file is locked through another open. Any other number means that the file system offers no
 * lock for this file: ENOLCK, ENOSYS, EBADF (on a network file system, if the file is not open for
 * writing) and others. */
int ls_io_lock(int fd);

#endif
