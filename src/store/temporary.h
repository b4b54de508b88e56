/* Hidden names for what is not complete yet: ".NAME.lockstep-PID-N".
 *
 * Whoever writes under such a name holds a lock on it; so what nobody has locked was left by a
 * process that was killed, and may be removed. Errors come back as the system's numbers. */
#ifndef STORE_TEMPORARY_H
#define STORE_TEMPORARY_H

#include <stddef.h>

#define LS_TEMPORARY_NAME 256 /* bytes, the zero included */

/* Creates and locks a file or a directory under a hidden name in the directory `parent`. The file
 * is open for writing. */
int ls_temporary_file(int *fd, char name[LS_TEMPORARY_NAME], int parent, const char *base);
int ls_temporary_folder(int *fd, char name[LS_TEMPORARY_NAME], int parent, const char *base);

/* Removes a directory and the files in it, whose descriptor `fd` is. One with a directory in it
 * cannot be removed. */
int ls_temporary_remove(int parent, const char *name, int fd);

/* Renames the directory `name`, open as `fd` and locked by the caller, to a hidden name and removes
 * it. ENOENT when the name is another directory's by now. The name is gone even if removing fails
 * afterwards. */
int ls_temporary_discard(int parent, const char *name, int fd);

/* Removes whatever killed processes left in the directory. What cannot be removed stays. */
void ls_temporary_sweep(int parent);

#endif
