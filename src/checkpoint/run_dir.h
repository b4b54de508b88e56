/* The run directory: where everything a run leaves behind lies; and going on from what lies there (resume.c). */
#ifndef CHECKPOINT_RUN_DIR_H
#define CHECKPOINT_RUN_DIR_H

#include "checkpoint/checkpoint.h"
#include "store/durable.h"

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stddef.h>
#include <time.h>

/* The checkpoint that a run goes on from. */
typedef struct ls_resumed {
    char *path;
    ls_json *doc; /* the texts of `state` belong to it */
    ls_state state;
} ls_resumed;

/* What a run keeps on the disk. */
typedef struct ls_run_files {
    char *path; /* of its directory; NULL when there is none */
    ls_dir_lock lock;
    struct ls_saver *saver; /* NULL: nothing is saved */
    ls_resumed *resumed;    /* NULL: a new run */
} ls_run_files;

/* What the directory of a run is called where the config says nothing: runs/20240131-093000-lenet, of the time when
 * it begins (UTC), with -n behind it from 2 on, where the names before are taken. */
void ls_run_dir_name(char *path, size_t size, time_t begun, const char *name, int n);

/* Makes the directory, durably, takes its lock, and writes the config into it: `wanted` NULL: a new runs/<UTC
 * time>-<name>; else that very one, which may exist. Errors: LS_EIO (also where it holds a run already), LS_EAGAIN
 * (another process trains there), LS_ENOMEM. */
int ls_run_dir_make(ls_run_files *files, const char *wanted, const ls_config *config,
                    const ls_host *host, ls_error *err);
/* Likewise of a member of several, beside where the run's own directory is, or would be, on its host:
 * DIR.member-N. */
int ls_run_dir_make_apart(ls_run_files *files, int member, const ls_config *config,
                          const ls_host *host, ls_error *err);

/* ---- resume.c: going on where a run was left --------------------------------------------------- */

/* Finds the directory of the run that `wanted` names, or of the latest (into files->path), locks it, and reads the
 * state of its newest whole checkpoint (into files->resumed). `config` NULL: none was given, and *config_path is the
 * run's own (the caller frees it). Errors: LS_ENOENT, LS_EDATA, LS_EIO, LS_EAGAIN (another process trains there),
 * LS_ENOMEM. */
int ls_resume_find(ls_run_files *files, char **config_path, const char *wanted,
                   const ls_config *config, const ls_host *host, ls_error *err);
/* The run in runs/ that began last, by its own records, and has a checkpoint: its directory, which the caller
 * frees. `name` NULL: of any config. Errors: LS_ENOENT, LS_ENOMEM. */
int ls_resume_latest(char **out, const char *name, const ls_host *host, ls_error *err);
/* The same of a run that has records, whether it has a checkpoint or not. */
int ls_run_latest(char **out, const ls_host *host, ls_error *err);

/* The checkpoint `path`, of the verified `state`. It is destroyed also after a failure. Errors: LS_EDATA, LS_ENOMEM. */
int ls_resumed_read(ls_resumed *out, const char *path, const char *state, const ls_host *host,
                    ls_error *err);
void ls_resumed_fini(ls_resumed *resumed, const ls_host *host); /* a zeroed one is allowed */

/* The run that goes on: a checkpoint has to be of the same recipe and data. */
typedef struct ls_successor {
    const ls_config *config;
    int shards;
    ls_dataset *const *data; /* [LS_SUBSETS] */
    const ls_model *model;
    const ls_host *host;
} ls_successor;

/* Checks that they are, and that the position exists, and reads weights and optimizer state into `values`; after a
 * failure nothing else has changed. Errors: LS_ECONFIG, LS_EDATA, LS_EIO, LS_ENOMEM. */
int ls_resume_load(const ls_checkpoint_values *values, const ls_resumed *resumed,
                   const ls_successor *run, ls_error *err);
/* Warns when library or instruction set are others than the run began with. */
void ls_resume_compare_libraries(const ls_resumed *resumed, const char *isa, const char *library,
                                 const ls_host *host);

#endif
