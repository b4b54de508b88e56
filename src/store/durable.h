/* SPDX-License-Identifier: MIT */
/* Durable files: a file is either complete or absent, and a complete file survives a loss of power.
 * To *sync* a file or directory is to wait until its contents are on the disk (fsync).
 *
 *     ls_file_writer w;
 *     int status = ls_replace_begin(&w, "runs/x/weights.safetensors", host, &err);
 *     if (status == LS_OK)
 *         status = ls_file_writer_write(&w, bytes, count, &err);   // as often as needed
 *     if (status == LS_OK)
 *         status = ls_replace_commit(&w, &err);   // the old file or the new one, always complete
 *     ls_file_writer_abandon(&w);             // always
 *
 * Method: the new contents are written to a file with a hidden name in the same directory, synced,
 * and renamed over the old file; then the directory is synced. The writing process holds a lock on
 * the hidden file. If no process has locked a hidden file, the process that created it was killed.
 * The next writer in that directory removes such a file.
 *
 * Interrupted system calls and short writes are retried. Files are created with mode 0666 and
 * directories with 0777, minus the process's umask. Descriptors are closed on exec. Every failure
 * of the operating system is LS_EIO with the message "PATH: cannot OPERATION: REASON". Any thread
 * may call these functions; a writer belongs to one thread at a time. */
#ifndef STORE_DURABLE_H
#define STORE_DURABLE_H

#include "base/host.h"

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file that is being written. The structure is the caller's, but the caller may read only the
 * fields `bytes` and `target`. */
typedef struct ls_file_writer {
    const ls_host *host;
    uint64_t bytes; /* bytes written so far */
    char *hidden;   /* path of the hidden file, which receives the bytes; NULL: there is no hidden
                     * file, because the writer was committed, abandoned or never opened */
    char *target;   /* path of the final file, which the hidden file replaces; NULL as `hidden` */
    int folder;     /* descriptor of the directory that contains both files */
    int fd;
    /* descriptor with the lock on the hidden file; -1: none. By the lock other processes see that
     * the writer is alive. */
    int lock;
    ls_error failure; /* the first failure; status 0: none */
} ls_file_writer;

/* Appends bytes. After a failure every further call fails with the same message. Errors: LS_EIO. */
int ls_file_writer_write(ls_file_writer *w, const void *bytes, size_t count, ls_error *err);

/* Overwrites bytes that have been written before, for example a header that describes what follows
 * it. Errors: LS_EIO. */
int ls_file_writer_overwrite(ls_file_writer *w, uint64_t at, const void *bytes, size_t count,
                             ls_error *err);

/* Closes and removes the hidden file, if the writer has one. It has none after ls_replace_commit,
 * after an earlier ls_file_writer_abandon, after a failed ls_replace_begin, or if the struct is
 * zeroed. */
void ls_file_writer_abandon(ls_file_writer *w);

/* Finds the file that is created or replaced if a user names `path`: follows symbolic links, also
 * several in a row, relative ones, and those that lead to no file yet. Without this function, the
 * functions below replace a link by a file. They are used in that way for files in a run's
 * directory, where another user who can create a link must not choose which file is replaced.
 * Errors: LS_EINVAL (the path or the link leads to a directory, a device, a pipe or a socket),
 * LS_EIO (more than 40 links; a path that is too long). */
int ls_follow_links(char out[LS_PATH_BYTES], const char *path, ls_error *err);

/* Creates a file with a hidden name in the directory of `path`, and removes the hidden files that
 * killed processes have left in that directory. The caller continues with ls_file_writer_write, and
 * ends with ls_replace_commit or ls_file_writer_abandon. Only a regular file or a link is replaced;
 * anything else at `path` is refused. Errors: LS_EIO, LS_ENOMEM. */
int ls_replace_begin(ls_file_writer *w, const char *path, const ls_host *host, ls_error *err);

/* Syncs the contents, renames the hidden file to the path given to ls_replace_begin, and syncs the
 * directory. After a failure the hidden file has been removed, and the old file is unchanged. But
 * if only syncing the directory fails, the new file has replaced the old one, and a loss of power
 * can bring that back. Errors: LS_EIO (also if something that must not be replaced has come to
 * stand at the path). */
int ls_replace_commit(ls_file_writer *w, ls_error *err);

/* Replaces a file in one call: ls_replace_begin, ls_file_writer_write, ls_replace_commit. Errors:
 * LS_EIO, LS_ENOMEM. */
int ls_replace_file(const char *path, const void *bytes, size_t count, const ls_host *host,
                    ls_error *err);

/* Writes a file whose path a user has given, as ls_replace_file does. There is one difference: if
 * the path is an existing file that is not a regular file (a terminal, a pipe, a symbolic link),
 * the function writes the bytes to that file and does not replace it. Errors: LS_EIO, LS_ENOMEM. */
int ls_write_file(const char *path, const void *bytes, size_t count, const ls_host *host,
                  ls_error *err);

/* Removes a file. Succeeds if the file does not exist. Errors: LS_EIO. */
int ls_remove_file(const char *path, ls_error *err);

/* Syncs the directory that contains `path`, so that files created, renamed or removed in it survive
 * a loss of power. Succeeds if the file system cannot sync a directory. Errors: LS_EIO. */
int ls_sync_parent(const char *path, ls_error *err);

/* Syncs the directory `path` and all directories above it, up to the root of its file
 * system. Errors: LS_EIO. */
int ls_sync_path(const char *path, ls_error *err);

/* Creates the directory `path` and the missing directories above it, and calls ls_sync_path.
 * Directories that existed before are synced as well, because perhaps the process that created them
 * has not synced them. Sets *made to 1 if `path` did not exist before, else to 0. Errors:
 * LS_EIO. */
int ls_make_directory(const char *path, int *made, ls_error *err);

/* ---- locks: one process per directory -------------------------------------------------------- */

/* A lock on a directory. The system releases it when the process that holds it ends.
 *
 *     ls_dir_lock lock;
 *     if (ls_dir_lock_take(&lock, "runs/x", host, &err) != LS_OK)
 *         …   // "runs/x: in use by process 4711; …"
 *     ls_dir_lock_release(&lock);
 *
 * The lock is a flock on the file "lock" in the directory. The file contains the holder's process
 * number, for messages, and is never removed. A symbolic link in place of that file is refused. Any
 * thread. If a process takes the lock of a directory twice, the second call fails. */
typedef struct ls_dir_lock {
    bool held; /* this structure holds the lock */
    int fd;    /* the open lock file, if `held` is set */
} ls_dir_lock;

/* Takes the lock or fails at once. If the file system has no locks, writes a warning to the host's
 * log and succeeds. Errors: LS_EAGAIN if a process holds the lock (the message names the process),
 * LS_EIO. */
int ls_dir_lock_take(ls_dir_lock *lock, const char *directory, const ls_host *host, ls_error *err);

/* Releases the lock. Does nothing to a lock that is not held, or to zeroed memory. */
void ls_dir_lock_release(ls_dir_lock *lock);

#endif
