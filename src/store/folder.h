/* Giving a complete directory its name, over an older one of that name. Errors come back as the
 * system's numbers. */
#ifndef STORE_FOLDER_H
#define STORE_FOLDER_H

#include <stddef.h>

/* Where names cannot be exchanged, the older one waits under NAME.replaced. */
#define LS_FOLDER_REPLACED ".replaced"

/* How much of "NAME.replaced" is NAME; 0 for any other name. */
size_t ls_folder_original(const char *name);

/* Names change under a lock on `parent`, ls_io_lock_names, so that of two processes that change
 * the same one neither takes the other's directory for its own. */

/* Renames `hidden`, which the caller has locked, to `name`. A bundle of that name is then called
 * `hidden` or NAME.replaced. ENOTEMPTY: the name is taken by a directory that is no bundle. */
int ls_folder_install(int parent, const char *hidden, const char *name);

/* Removes what install has replaced, once the new name lasts. What cannot be removed stays. */
void ls_folder_forget(int parent, const char *hidden, const char *name);

/* Settles what killed processes left: NAME.replaced gets its name back, unless the new one has it
 * already; then it is removed. */
void ls_folder_recover(int parent);

/* Has the directory `name` a manifest? */
int ls_folder_is_bundle(int parent, const char *name);

#endif
