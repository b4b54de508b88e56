/* SPDX-License-Identifier: MIT */
/* A sweep: trains one config with every combination of the values of some keys.
 *
 *     const char *vary[] = {"lr=0.05,0.1", "devices,batch_size=1:256,2:512"};
 *     cli_sweep *sweep;
 *     cli_sweep_create(&sweep, vary, 2, registry, host, &err);     // 4 combinations
 *     for (int i = 0; i < cli_sweep_count(sweep); i++)             // for each combination i
 *         for (int k = 0; k < cli_sweep_keys(sweep); k++)          // for each key k
 *             puts(cli_sweep_assignment(sweep, i, k));             // "optimizer.lr=0.05", …
 *     cli_sweep_destroy(sweep);
 *
 * Each argument is an axis of the sweep. "KEY=V,V,…" varies one key; "KEY,KEY=V:V,V:V,…" varies
 * several keys together. Combinations are numbered so that the first axis changes slowest. A comma
 * or colon within brackets, braces or double quotes is part of the value. Every key of a config is
 * allowed; lr, momentum and weight_decay are short for optimizer.lr, optimizer.momentum and
 * optimizer.weight_decay. If the value of `devices` is a whole number, it is a number of devices of
 * the kind that "auto" selects. */
#ifndef CLI_SWEEP_H
#define CLI_SWEEP_H

#include "json/writer.h"

#include <lockstep/trainer.h>
#include <stdbool.h>

#define CLI_SWEEP_KEYS 8    /* largest number of keys that a sweep varies, and of its axes */
#define CLI_SWEEP_MOST 1000 /* largest number of combinations */

typedef struct cli_sweep cli_sweep;

/* Creates a sweep from the arguments of --vary, which are copied. Errors: LS_EINVAL (an argument
 * has a syntax error or repeats a key, or a limit is exceeded); LS_EDEVICE if a number of devices
 * is requested and there are none; LS_ENOMEM. */
int cli_sweep_create(cli_sweep **out, const char *const *vary, int vary_count,
                     const ls_registry *registry, const ls_host *host, ls_error *err);
void cli_sweep_destroy(cli_sweep *sweep); /* NULL is allowed */

int cli_sweep_count(const cli_sweep *sweep); /* number of combinations, at least 1 */
int cli_sweep_keys(const cli_sweep *sweep);  /* number of keys that the sweep varies */

/* Returns a key as it was written ("lr"). The text belongs to the sweep. */
const char *cli_sweep_key(const cli_sweep *sweep, int key);
/* Returns the value of a key in a combination ("0.05"). The text belongs to the sweep. */
const char *cli_sweep_value(const cli_sweep *sweep, int combination, int key);
/* Returns key and value as an assignment for ls_trainer_options.set ("optimizer.lr=0.05"). The text
 * belongs to the sweep. */
const char *cli_sweep_assignment(const cli_sweep *sweep, int combination, int key);

/* ---- results -------------------------------------------------------------------------------- */

/* Result of the run with one combination. Numbers that are not known are NaN. */
typedef struct cli_sweep_row {
    bool ran;   /* false: the sweep was stopped before this combination */
    int status; /* LS_OK, or the status with which the run stopped; `error` is its message */
    char error[LS_ERROR_TEXT];
    char devices[128]; /* "[cpu(0), cpu(1)]", truncated if it is longer */
    char run_dir[256]; /* "" if there is none */
    bool synthetic;    /* the library generated the data instead of reading files */
    const char *rows;  /* "images" or "rows"; NULL: the trainer was not opened */
    /* the split that was evaluated: "test" or "validation"; NULL: the trainer was not opened */
    const char *judged_by;
    /* The result of the trainer, except that `devices` and `checkpoint` are NULL. If the trainer
     * was not opened, result.metric is NULL too. */
    ls_result result;
    /* train_loss: loss of the last finished epoch. images_per_s: training rate of all finished
     * epochs together, which is the harmonic mean of the epochs' rates. */
    double train_loss, images_per_s;
    /* sum over the finished epochs of 1 / (the epoch's rate in images per second); images_per_s is
     * the number of these epochs divided by this sum */
    double inverse_rates;
} cli_sweep_row;

/* Initialises a row for a combination that has not run yet. */
void cli_sweep_row_init(cli_sweep_row *row);

/* Stores the progress of a run in its row. Call it from the run's progress callback. */
void cli_sweep_row_progress(cli_sweep_row *row, const ls_progress *progress);

/* Stores the end of a run in its row. `status` and `error` are those of ls_trainer_open or
 * ls_trainer_run. `trainer` NULL: the trainer could not be opened. */
void cli_sweep_row_end(cli_sweep_row *row, ls_trainer *trainer, int status, const char *error);

/* Returns the images per second of row number `row`, divided by the images per second of the first
 * row for which this number is known. NaN: the number is not known for `row`, or not for any
 * row. */
double cli_sweep_speedup(const cli_sweep_row *rows, int count, int row);

/* Writes the whole sweep as JSON. `config` is the path of the config. */
void cli_sweep_json(ls_json_writer *w, const cli_sweep *sweep, const cli_sweep_row *rows,
                    const char *config);

#endif
