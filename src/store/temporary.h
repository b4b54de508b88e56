/* Hidden names for what is not complete yet: ".NAME.lockstep-PID-N".
 *
 * Whoever writes under such a name holds a lock on it; so what nobody has locked was left by a
 * process that was killed, and may be removed. Errors come back as the system's numbers. */
#ifndef STORE_TEMPORARY_H
#define STORE_TEMPORARY_H

#include <stddef.h>

#define LS_TEMPORARY_NAME 256 /* bytes, the zero included */

/* Creates and locks a file under a hidden name in the directory `parent`, open for writing. */
int ls_temporary_file(int *fd, char name[LS_TEMPORARY_NAME], int parent, const char *base);

/* Removes whatever killed processes left in the directory. What cannot be removed stays. */
void ls_temporary_sweep(int parent);

#endif
