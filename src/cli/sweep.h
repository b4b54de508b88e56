/* A sweep: one config trained with every combination of some keys' values.
 *
 *     const char *vary[] = {"lr=0.05,0.1", "devices,batch_size=1:256,2:512"};
 *     ls_sweep *sweep;
 *     ls_sweep_create(&sweep, vary, 2, registry, host, &err);     // 4 combinations
 *     for (int i = 0; i < ls_sweep_count(sweep); i++)
 *         ls_sweep_value(sweep, i, k), ls_sweep_assignment(sweep, i, k);
 *     ls_sweep_destroy(sweep);
 *
 * "KEY=V,V,…" varies one key; "KEY,KEY=V:V,V:V,…" varies several together. The first axis changes
 * slowest. A comma or colon inside brackets, braces or double quotes belongs to the value. A key is
 * any of the config's; lr, momentum and weight_decay stand for the optimizer's. A whole number for
 * `devices` means so many of the kind that "auto" would take.
 */
#ifndef CLI_SWEEP_H
#define CLI_SWEEP_H

#include "json/writer.h"

#include <lockstep/trainer.h>
#include <stdbool.h>

#define LS_SWEEP_KEYS 8
#define LS_SWEEP_MOST 1000 /* combinations */

typedef struct ls_sweep ls_sweep;

/* Texts are copied. Errors: LS_EINVAL for what cannot be read, with the fix; LS_EDEVICE when a
 * number of devices is asked for and there are none; LS_ENOMEM. */
int ls_sweep_create(ls_sweep **out, const char *const *vary, int vary_count,
                    const ls_registry *registry, const ls_host *host, ls_error *err);
void ls_sweep_destroy(ls_sweep *sweep); /* NULL is allowed */

int ls_sweep_count(const ls_sweep *sweep); /* combinations, at least 1 */
int ls_sweep_keys(const ls_sweep *sweep);

/* A key as it was written ("lr"), its value in a combination, and both as an assignment for
 * ls_trainer_options.set ("optimizer.lr=0.05"). They belong to the sweep. */
const char *ls_sweep_key(const ls_sweep *sweep, int key);
const char *ls_sweep_value(const ls_sweep *sweep, int combination, int key);
const char *ls_sweep_assignment(const ls_sweep *sweep, int combination, int key);

/* ---- results -------------------------------------------------------------------------------- */

/* What came out of one combination. Numbers that there are not are NaN. */
typedef struct ls_sweep_row {
    bool ran;   /* false: the sweep was stopped before it was its turn */
    int status; /* LS_OK, or why it stopped, and in words */
    char error[LS_ERROR_TEXT];
    char devices[128]; /* "[cpu(0), cpu(1)]", cut when it is longer */
    char run_dir[256]; /* "" when there is none */
    bool synthetic;
    const char
        *judged_by;   /* the rows of its evaluations: "test" or "validation"; NULL: it has none */
    ls_result result; /* without `devices` and `checkpoint`; metric NULL: it was not opened */
    double train_loss, images_per_s;
    double inverse_rates; /* summed over finished epochs: what images_per_s is made of */
} ls_sweep_row;

/* An empty row: not run, no numbers. */
void ls_sweep_row_init(ls_sweep_row *row);

/* Takes in what a run says of itself: call it from the run's progress callback … */
void ls_sweep_row_progress(ls_sweep_row *row, const ls_progress *progress);

/* … and when the run is over, with what ls_trainer_open or ls_trainer_run returned. `trainer` NULL:
 * it could not be opened. */
void ls_sweep_row_end(ls_sweep_row *row, const ls_trainer *trainer, int status, const char *error);

/* Images per second compared with the first row that has any; NaN without. */
double ls_sweep_speedup(const ls_sweep_row *rows, int count, int row);

/* Writes the whole sweep as JSON; `config` is the config's path. */
void ls_sweep_json(ls_json_writer *w, const ls_sweep *sweep, const ls_sweep_row *rows,
                   const char *config);

#endif
