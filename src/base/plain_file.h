/* Files that must be plain ones.
 *
 * No call waits for the other end of a pipe, and none opens a directory, a device, a pipe or
 * a socket. Descriptors are closed on exec. Any thread. */
#ifndef BASE_PLAIN_FILE_H
#define BASE_PLAIN_FILE_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stddef.h>
#include <stdint.h>

/* Opens the file `path` for reading, through symbolic links; *size is its length. `what` is what it
 * should be, for messages: "a JSON file". Errors: LS_ENOENT when there is no such file; LS_EIO when it
 * cannot be read; `wrong` when it is no plain file. *fd is -1 after a failure. */
int ls_open_to_read(int *fd, uint64_t *size, const char *path, const char *what, int wrong,
                    ls_error *err);

/* Reads a whole file of 1 to `most` bytes into memory that the caller frees with ls_free(host, …).
 * *count is less than the file's length when it has become shorter meanwhile. Errors: as above,
 * `wrong` also for an empty file and one that is too large; LS_ENOMEM. */
int ls_read_plain_file(void **out, size_t *count, const char *path, const char *what, int wrong,
                       size_t most, const ls_host *host, ls_error *err);

/* The same into memory of *room bytes, none to begin with, which is asked for anew where it is too little and is the
 * caller's in any case. `folder`: the directory of `path`, open, where a plain file is known to be there; or AT_FDCWD. */
int ls_read_plain_file_into(void **memory, size_t *room, size_t *count, int folder,
                            const char *path, const char *what, int wrong, size_t most,
                            const ls_host *host, ls_error *err);

/* The first `most` bytes of a file, or all there are. Otherwise the same. */
int ls_read_file_start(void **out, size_t *count, const char *path, const char *what, int wrong,
                       size_t most, const ls_host *host, ls_error *err);

/* Opens a file that the program keeps for itself, for writing where it stands; `flags` as for open.
 * A symbolic link is not followed: another user who can put one into the directory would choose what is
 * overwritten. Errors: LS_EIO. *fd is -1 after a failure. */
int ls_open_to_write(int *fd, const char *path, int flags, ls_error *err);

#endif
