/* The system calls of src/store. A call that a signal interrupts is retried. Unless its comment
 * says otherwise, a function returns the operating system's error number, 0 on success. `folder`:
 * descriptor of a directory, or AT_FDCWD. Any thread. */
#ifndef STORE_IO_H
#define STORE_IO_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* Writes and returns the error LS_EIO "PATH: cannot OPERATION: REASON". Of a very long path only
 * the end is printed. */
int ls_io_fail(ls_error *err, const char *path, const char *operation, int error);

/* Returns the end of a path that fits into a message. */
const char *ls_io_tail(const char *path);

/* Returns the part of a path after its last slash. */
const char *ls_io_base(const char *path);

/* Opens the directory that contains `path`. Errors: LS_EIO. */
int ls_io_open_parent(int *fd, const char *path, ls_error *err);

/* Opens a file with O_CLOEXEC; a file that it creates has mode 0666. */
int ls_io_open(int *fd, int folder, const char *name, int flags);
/* Closes the descriptor. It is closed even if the function returns an error. */
int ls_io_close(int fd);
/* Writes all `count` bytes. */
int ls_io_write(int fd, const void *bytes, size_t count);
/* Reads `count` bytes; *done is less at the end of the file. */
int ls_io_read(int fd, void *bytes, size_t count, size_t *done);
/* Called after `count` bytes have been written at offset `at`: asks the kernel to begin writing
 * complete pieces of 4 MiB to the disk, so that a later sync waits less. The call is a hint: errors
 * of these writes are reported by ls_io_sync. */
void ls_io_write_back(int fd, uint64_t at, size_t count);
/* Syncs a file. */
int ls_io_sync(int fd);
/* Syncs a directory. Returns 0 if the file system cannot sync directories. */
int ls_io_sync_folder(int fd);
/* Reads the attributes of a file; does not follow a symbolic link. */
int ls_io_stat(struct stat *out, int folder, const char *name);
/* ls_io_make_folder creates a directory with mode 0777, ls_io_remove removes a file, and
 * ls_io_rename renames a file within one directory. */
int ls_io_make_folder(int folder, const char *name);
int ls_io_remove(int folder, const char *name);
int ls_io_rename(int folder, const char *from, const char *to);

/* Takes an exclusive flock without waiting. Returns EWOULDBLOCK if another process holds the lock.
 * Returns any other number if the file system offers no lock for this file: ENOLCK, ENOSYS, EBADF
 * (a network file system, and the file is not open for writing) and others. */
int ls_io_lock(int fd);

#endif
