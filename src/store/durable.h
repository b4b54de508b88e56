/* Files that are kept: written so that nothing is lost and nothing half written is taken for whole.
 *
 *     ls_file_writer w;
 *     int status = ls_replace_begin(&w, "runs/x/weights.safetensors", host, &err);
 *     if (status == LS_OK)
 *         status = ls_file_writer_write(&w, bytes, count, &err);   // as often as needed
 *     if (status == LS_OK)
 *         status = ls_replace_commit(&w, &err);   // the old file or the new one is there, never less
 *     ls_file_writer_abandon(&w);             // after whatever came before
 *
 * A signal that interrupts a call and a write that takes only some of the bytes are dealt with
 * here. Files are made with mode 0666 and directories with 0777, less the process's umask;
 * descriptors are closed on exec. Every failure of the operating system is LS_EIO and reads
 * "PATH: cannot OPERATION: REASON". Any thread; a writer belongs to one thread at a time.
 */
#ifndef STORE_DURABLE_H
#define STORE_DURABLE_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file being written. The caller's memory; a caller reads `bytes` and leaves the rest alone. */
typedef struct ls_file_writer {
    const ls_host *host;
    uint64_t bytes; /* written so far */
    char *path;     /* of the file being written; NULL: committed, abandoned, never opened */
    char *target;   /* the path that it is to replace */
    int folder;     /* of both */
    int fd;
    int lock;         /* keeps other processes from taking it for a left-over; -1: none */
    ls_error failure; /* the first one; status 0: none yet */
} ls_file_writer;

/* Appends bytes. After a failure every further call fails with the same message. Errors: LS_EIO. */
int ls_file_writer_write(ls_file_writer *w, const void *bytes, size_t count, ls_error *err);

/* Writes over bytes that were written before: a header that says what follows it. Errors: LS_EIO. */
int ls_file_writer_overwrite(ls_file_writer *w, uint64_t at, const void *bytes, size_t count,
                             ls_error *err);

/* Closes and removes a file that was not committed. Nothing happens after commit, abandon, a failed
 * begin, or to a zeroed writer. */
void ls_file_writer_abandon(ls_file_writer *w);

/* Opens a writer beside `path`, under a hidden name of its own, and removes what killed writers
 * left in that directory. Use ls_file_writer_write and _abandon, and ls_replace_commit to finish.
 * Errors: LS_EIO, LS_ENOMEM. */
int ls_replace_begin(ls_file_writer *w, const char *path, const ls_host *host, ls_error *err);

/* Makes the contents last, renames the file to `path`, and makes that last. On failure the new
 * file is removed and the old one still stands; only when the last step fails, syncing the
 * directory, the new file stands complete, but might not survive a loss of power.
 * Errors: LS_EIO. */
int ls_replace_commit(ls_file_writer *w, ls_error *err);

/* All of the above at once. Errors: LS_EIO, LS_ENOMEM. */
int ls_replace_file(const char *path, const void *bytes, size_t count, const ls_host *host,
                    ls_error *err);

/* A file that a person has named: as ls_replace_file, but what is there and is no plain file (a terminal, a
 * pipe, a symbolic link) is written to as it is. Errors: LS_EIO, LS_ENOMEM. */
int ls_write_file(const char *path, const void *bytes, size_t count, const ls_host *host,
                  ls_error *err);

/* Removes a file. One that is not there is no failure. Errors: LS_EIO. */
int ls_remove_file(const char *path, ls_error *err);

/* Makes the names last that are in the directory of `path`: what was created, renamed or removed there. A
 * file system that cannot sync a directory is no failure. Errors: LS_EIO. */
int ls_sync_name(const char *path, ls_error *err);

/* Makes the names in the directory `path` last, and its own, and those of the directories above, up to
 * the root of its file system. Errors: LS_EIO. */
int ls_sync_path(const char *path, ls_error *err);

/* Makes the directory `path` and those above that are missing, and has ls_sync_path make all of it last:
 * also of directories that were there, since it is not known whether the process that made them did. *made: the
 * directory is new. Errors: LS_EIO. */
int ls_make_directory(const char *path, int *made, ls_error *err);

/* ---- one process per directory ---------------------------------------------------------------- */

/* A lock that its holder's death releases.
 *
 *     ls_dir_lock lock;
 *     if (ls_dir_lock_take(&lock, "runs/x", host, &err) != LS_OK)
 *         …   // "runs/x: in use by process 4711; …"
 *     ls_dir_lock_release(&lock);
 *
 * The lock is a flock on the file "lock" in the directory, which holds its holder's process number
 * for the message and is never removed. A symbolic link of that name is refused. Any
 * thread; taken twice in one process, the second fails. */
typedef struct ls_dir_lock {
    bool held;
    int fd;
} ls_dir_lock;

/* Takes the lock or fails at once. Where the file system gives no locks it says so in the host's log, and there is
 * nothing to release. Errors: LS_EAGAIN when a process holds it, naming the process; LS_EIO. */
int ls_dir_lock_take(ls_dir_lock *lock, const char *directory, const ls_host *host, ls_error *err);

/* Nothing happens to a lock that is not held, or to zeroed memory. */
void ls_dir_lock_release(ls_dir_lock *lock);

#endif
