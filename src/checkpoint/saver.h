/* Saving checkpoints (checkpoint.h) while a run goes on. */
#ifndef CHECKPOINT_SAVER_H
#define CHECKPOINT_SAVER_H

#include "checkpoint/checkpoint.h"
#include "records/trace.h"

#include <lockstep/status.h>
#include <stdbool.h>

struct ls_saver;

/* The run whose checkpoints these are. All of it outlives the saver. */
typedef struct ls_saver_desc {
    const ls_config *config;
    const ls_model *model;
    ls_dataset *const *data; /* [LS_SUBSETS] */
    ls_sinks *sinks;         /* whose records a checkpoint counts on */
    ls_trace *trace;         /* gets a span for each save; NULL: there is none */
    const ls_host *host;
} ls_saver_desc;

/* Checkpoints go to <run_dir>/checkpoints. Errors: LS_ENOMEM, LS_ESYSTEM, LS_EIO. */
int ls_saver_create(struct ls_saver **out, const char *run_dir, const ls_saver_desc *run,
                    ls_error *err);
/* Waits for the save under way; none is begun any more. NULL is allowed. LS_ESTALLED: it hangs. */
int ls_saver_stop(struct ls_saver *saver);
/* Likewise, and frees the saver; where the save hangs its memory is left. */
int ls_saver_destroy(struct ls_saver *saver);

/* Waits until nothing is being written. A save that failed is logged. NULL is allowed. Errors: LS_ESTALLED. */
int ls_saver_rest(struct ls_saver *saver, ls_error *err);

/* Saves where the run stands, unless that is saved already, by all that a checkpoint says of it but times. The state lacks the recipe, what counts of
 * the records and the checksum of the data, which are added here. The values are read until the save is done. With
 * `wait` it is on the disk at the return; else it is written while training goes on, and a failure is logged: the next
 * one may succeed. Errors: those of the records' sinks, of ls_checkpoint_write, LS_ESTALLED. */
int ls_saver_save(struct ls_saver *saver, const ls_state *state, const ls_checkpoint_values *values,
                  bool wait, ls_error *err);

/* The file of the last save that succeeded; "": none has. As long as the saver. */
const char *ls_saver_path(const struct ls_saver *saver);

/* The position has changed otherwise than by training: a checkpoint of the same step is another one. */
void ls_saver_forget(struct ls_saver *saver); /* NULL is allowed */

/* Saves to the file `path`; on the disk at the return. Needs no saver. Errors: LS_EINVAL (a directory), as above. */
int ls_save_to_file(const char *path, const ls_saver_desc *run, const ls_state *state,
                    const ls_checkpoint_values *values, ls_error *err);

#endif
