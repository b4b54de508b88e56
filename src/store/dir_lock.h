/* One process per directory: a lock that its holder's death releases.
 *
 *     ls_dir_lock lock;
 *     if (ls_dir_lock_take(&lock, "runs/x", host, &err) != LS_OK)
 *         …   // "runs/x: in use by process 4711; …"
 *     ls_dir_lock_release(&lock);
 *
 * The lock is a flock on the file "lock" in the directory, which holds its holder's process number
 * for the message and is never removed. A symbolic link of that name is refused. Any thread; taken twice in one process, the second fails.
 */
#ifndef STORE_DIR_LOCK_H
#define STORE_DIR_LOCK_H

#include <lockstep/host.h>
#include <lockstep/status.h>

typedef struct ls_dir_lock {
    int held;
    int fd;
} ls_dir_lock;

/* Takes the lock or fails at once. Errors: LS_EAGAIN when somebody holds it, naming the process;
 * LS_EUNSUPPORTED when the file system has no locks; LS_EIO, LS_ENOMEM. */
int ls_dir_lock_take(ls_dir_lock *lock, const char *directory, const ls_host *host, ls_error *err);

/* Nothing happens to a lock that is not held, or to zeroed memory. */
void ls_dir_lock_release(ls_dir_lock *lock);

#endif
