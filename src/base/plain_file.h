/* SPDX-License-Identifier: MIT */
/* Opening and reading of files that must be regular files.
 *
 * A directory, a device, a pipe or a socket is refused, and no function waits for the other end of
 * a pipe. Descriptors are closed on exec. All functions may be called from any thread.
 */
#ifndef BASE_PLAIN_FILE_H
#define BASE_PLAIN_FILE_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Opens the file `path` for reading and follows symbolic links.
 *
 * - fd, size: receive the descriptor and the file's size in bytes; *fd is −1 after an error
 * - what: the expected kind of file, for messages: "a JSON file"
 * - wrong: the status to return if `path` names a directory, a device or a pipe
 *
 * Errors: LS_ENOENT (there is no such file), LS_EIO (the file cannot be read), `wrong`. */
int ls_open_to_read(int *fd, uint64_t *size, const char *path, const char *what, int wrong,
                    ls_error *err);

/* Reads a whole file of 1 to `most` bytes into *out, which the caller frees with ls_free(host,
 * *out). *count receives the number of bytes, which is less than the file's size if the file became
 * shorter while it was read.
 * Errors: as ls_open_to_read; `wrong` also for an empty file and for a file of more than `most`
 * bytes; LS_ENOMEM. */
int ls_read_plain_file(void **out, size_t *count, const char *path, const char *what, int wrong,
                       size_t most, const ls_host *host, ls_error *err);

/* Reads a whole file as ls_read_plain_file does, but into memory that the caller keeps for many
 * files.
 *
 * - memory, room: *memory is a block of *room bytes, at first NULL and 0. A block that is too small
 *   is replaced, and *room updated. The caller frees *memory, also after an error
 * - folder: AT_FDCWD; or, if the file is known to be a regular file, a descriptor of the directory
 *   to which `path` is relative */
int ls_read_plain_file_into(void **memory, size_t *room, size_t *count, int folder,
                            const char *path, const char *what, int wrong, size_t most,
                            const ls_host *host, ls_error *err);

/* Does the same as ls_read_plain_file, but reads at most the first `most` bytes of a file of any
 * size. */
int ls_read_file_start(void **out, size_t *count, const char *path, const char *what, int wrong,
                       size_t most, const ls_host *host, ls_error *err);

/* Reads the first `most` bytes of a file into `bytes`, and returns their number, which is smaller
 * if the file is shorter or cannot be read. `folder`: as for ls_read_plain_file_into. */
size_t ls_read_start_into(void *bytes, size_t most, int folder, const char *path);

/* Returns whether `path` names a directory, directly or by symbolic links. */
bool ls_is_directory(const char *path);

/* Opens one of the program's own files for writing in place. `flags` are those of open(2). A
 * symbolic link is not followed, because another user who can create a link in the directory could
 * choose which file is overwritten. *fd is −1 after an error. Errors: LS_EIO. */
int ls_open_to_write(int *fd, const char *path, int flags, ls_error *err);

#endif
