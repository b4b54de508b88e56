/* The run directory: where everything a run leaves behind lies. */
#ifndef TRAIN_RUN_DIR_H
#define TRAIN_RUN_DIR_H

#include <lockstep/host.h>
#include <lockstep/status.h>

/* Makes the directory, durably, and returns its path, owned by the caller (ls_free). `wanted` NULL: a
 * new runs/<UTC time>-<name>; else that very directory, which may exist. Errors: LS_EIO, LS_ENOMEM. */
int ls_run_dir_make(char **out, const char *wanted, const char *name, const ls_host *host,
                    ls_error *err);

/* Whether a new run may use the directory: LS_EIO when it holds one already. */
int ls_run_dir_check(const char *dir, ls_error *err);

/* "<dir>/<file>", owned by the caller; NULL when memory runs out. */
char *ls_run_dir_path(const char *dir, const char *file, const ls_host *host);

#endif
