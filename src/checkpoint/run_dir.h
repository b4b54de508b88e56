/* SPDX-License-Identifier: MIT */
/* The run directory, in which a run writes all its files: creating it (run_dir.c), and resuming the
 * run whose files it contains (resume.c). */
#ifndef CHECKPOINT_RUN_DIR_H
#define CHECKPOINT_RUN_DIR_H

#include "checkpoint/checkpoint.h"
#include "store/durable.h"

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stddef.h>
#include <time.h>

/* The checkpoint from which a run is resumed. */
typedef struct ls_resumed {
    char *path;   /* path of the checkpoint file */
    ls_json *doc; /* owner of the texts of `state` */
    ls_state state;
    bool doubtful; /* the checkpoint was set aside (ls_checkpoints_set_aside) */
} ls_resumed;

/* Files of a run. */
typedef struct ls_run_files {
    char *path;             /* path of the run's directory; NULL: there is none */
    ls_dir_lock lock;       /* lock on the directory, held while the run trains in it */
    struct ls_saver *saver; /* writes checkpoints; NULL: nothing is saved */
    /* time in nanoseconds at which the last save began or, before the first one, at which the saver
     * was created */
    uint64_t saved_ns;
    ls_resumed *resumed; /* NULL: the run is new */
} ls_run_files;

/* Writes the default name of a run's directory, such as runs/20240131-093000-lenet. It contains
 * `begun`, the time at which the run began, in UTC. For n ≥ 2 the function appends "-n"; callers
 * try n = 1, 2, … until no directory has the name. */
void ls_run_dir_name(char *path, size_t size, time_t begun, const char *name, int n);

/* Creates the directory of a new run, which then survives a loss of power; takes the directory's
 * lock; and writes the config into the directory. `wanted`: path of the directory, which may exist;
 * NULL: a new runs/<UTC time>-<name>. Errors: LS_EIO (also if the directory already contains a
 * run), LS_EAGAIN (another process trains there), LS_ENOMEM. */
int ls_run_dir_make(ls_run_files *files, const char *wanted, const ls_config *config,
                    const ls_host *host, ls_error *err);
/* Does the same as ls_run_dir_make for a member of a run over several hosts. After another host was
 * lost, the member writes the run's files to its own disk: to DIR.member-N if the usual directory
 * is DIR, where N is `member`, or, if a run has used that one, to DIR.member-N-2, and so on.
 * Errors: those of ls_run_dir_make. */
int ls_run_dir_make_apart(ls_run_files *files, int member, const ls_config *config,
                          const ls_host *host, ls_error *err);

/* ---- resume.c: resuming a run --------------------------------------------------------------- */

/* Finds the directory of the run to resume, locks it, and reads the state of its newest complete
 * checkpoint, or of the checkpoint after `at` steps.
 *
 * - files: receives the directory (path, lock) and the state (resumed)
 * - wanted: path of the directory, or "latest" for the latest run
 * - config: the caller's config; NULL: the caller has none, and *config_path receives the path of
 *   the config in the run's directory, which the caller frees
 * - at: number of steps of the checkpoint; 0: the newest that was not set aside
 *
 * Errors: LS_ENOENT, LS_EDATA, LS_EIO, LS_EAGAIN (another process trains there), LS_ENOMEM. */
int ls_resume_find(ls_run_files *files, char **config_path, const char *wanted,
                   const ls_config *config, uint64_t at, const ls_host *host, ls_error *err);
/* Checks that the options set no other run_dir than `run`, the directory of the run that is
 * resumed, in which it goes on. Errors: LS_EINVAL. */
int ls_resume_check_place(const char *run, const ls_config *config,
                          const ls_trainer_options *options, ls_error *err);
/* Finds, among the runs in runs/ that have a checkpoint, the run that began last according to its
 * records, and returns its directory, which the caller frees. If a run that began later has no
 * checkpoint, a warning in the log names it. `name`: only runs whose config has this name; NULL:
 * all runs. Errors: LS_ENOENT, LS_ENOMEM. */
int ls_resume_latest(char **out, const char *name, const ls_host *host, ls_error *err);

/* Reads the first record of the run in the directory `run`, the first line of its metrics.jsonl.
 * The caller destroys *out. Errors: LS_ENOENT, LS_EIO, LS_EDATA, LS_ENOMEM. */
int ls_run_first_record(ls_json **out, const char *run, const ls_host *host, ls_error *err);

/* Files that a run must have so that ls_run_latest prefers it. */
typedef enum ls_run_needs {
    LS_RUN_RECORDS,   /* its records, which every run has */
    LS_RUN_WEIGHTS,   /* its final weights or a checkpoint */
    LS_RUN_CHECKPOINT /* a checkpoint */
} ls_run_needs;

/* Returns the directory of the run in runs/ that began last according to its records and has the
 * needed files; the caller frees it. A warning names a later run that lacks them. If no run has
 * them, returns the run that began last. Errors: LS_ENOENT (there is no run), LS_ENOMEM. */
int ls_run_latest(char **out, ls_run_needs needs, const ls_host *host, ls_error *err);

/* Parses `state`, the text of the state of the checkpoint file `path`. The caller has verified the
 * file's SHA-256 before. The caller must call ls_resumed_fini even after a failure. Errors:
 * LS_EDATA, LS_ENOMEM. */
int ls_resumed_read(ls_resumed *out, const char *path, const char *state, const ls_host *host,
                    ls_error *err);
/* Frees the contents. A zeroed struct is allowed. */
void ls_resumed_fini(ls_resumed *resumed, const ls_host *host);

/* The run that is to continue from a checkpoint. Its recipe (the keys of the config on which the
 * weights depend) and its data must be those of the checkpoint. */
typedef struct ls_successor {
    const ls_config *config;
    int shards;              /* number of shards of a minibatch */
    ls_dataset *const *data; /* [LS_SUBSETS] */
    const ls_network *model;
    const ls_host *host;
} ls_successor;

/* Checks that the recipe and the data of `run` are those of the checkpoint. Reads weights and
 * optimizer states into `values`. Checks that the checkpoint's numbers of steps and epochs fit the
 * number of steps of an epoch of `run`. `file`: the opened checkpoint. After a failure only the
 * contents of `values` can have changed. Errors: LS_ECONFIG, LS_EDATA, LS_EIO, LS_ENOMEM. */
int ls_resume_load(const ls_checkpoint_values *values, const ls_resumed *resumed,
                   const ls_tensor_file *file, const ls_successor *run, ls_error *err);
/* Logs a warning if the library or the instruction set of the devices differs from the one that the
 * checkpoint names. (Results depend on the library and, on some devices, on the instruction
 * set.) */
void ls_resume_compare_libraries(const ls_resumed *resumed, const char *isa, const char *library,
                                 const ls_host *host);

#endif
