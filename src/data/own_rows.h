/* SPDX-License-Identifier: MIT */
/* Rows of the calling program (lockstep/data_source.h): resident, or streamed.
 *
 * Scales are fixed in the config, or learnt: from all rows if they are resident; from the first
 * data.scale_rows ones if they are streamed; from the first ones that are passed to ls_trainer_step
 * if the source has none. In the last case the scales change until that many rows were trained on,
 * and resident test rows are scaled again before they are evaluated. */
#ifndef DATA_OWN_ROWS_H
#define DATA_OWN_ROWS_H

#include "data/kinds.h"

/* Keys below `data` for a program's own rows, in the form of ls_dataset_about.keys. */
#define LS_OWN_ROWS_KEYS "standardize clip standardize_target target_mean target_std scale_rows"

/* Opener of a data source, which is o->kind->detail. */
int ls_own_rows_open(ls_dataset *split[2], const ls_opening *o);

/* Returns whether scales are learnt from the rows of a streamed dataset, so that a checkpoint
 * determines them. Other datasets: false. */
bool ls_own_rows_learn(const ls_dataset *train);
/* Returns the weights of a streamed dataset's training rows, [info.rows]; NULL: the caller gives
 * none, and all are 1. */
const float *ls_own_rows_weights(const ls_dataset *train);
/* Returns the type of the caller's rows. `train` is streamed. */
ls_row_type ls_own_rows_type(const ls_dataset *train);
/* Returns the type of the numbers of the caller's targets. `train` is streamed. */
ls_row_type ls_own_rows_target_type(const ls_dataset *train);
/* Learns from `n` rows of ls_trainer_step, unless enough rows were learnt from. `rows` and
 * `targets` have the types of the data source. Returns whether the scales have changed. */
bool ls_own_rows_observe(ls_dataset *train, const void *rows, const void *targets, uint32_t n);
/* Undoes the last change by ls_own_rows_observe. */
void ls_own_rows_undo(ls_dataset *train);
/* Returns whether the scales are known: not those of a dataset that learns them from the rows of
 * ls_trainer_step and has seen none yet. */
bool ls_own_rows_know(const ls_dataset *train);
/* Takes over from `prep`, the preparation in a file, the scales that the dataset learns. If they
 * were not learnt from the rows of ls_trainer_step, no further rows change them. Errors: LS_EDATA
 * (`prep` has other scales than the dataset). */
int ls_own_rows_adopt(ls_dataset *train, const ls_prep *prep, const char *path, ls_error *err);
/* Scales the test rows by the present scales of the training rows. *changed: whether the rows have
 * changed since the last call. No device may read them meanwhile. Errors: LS_EDATA (a float does
 * not hold a scaled number; some rows then have the former scales). */
int ls_own_rows_scale_test(ls_dataset *train, bool *changed, ls_error *err);

/* Copies `n` rows of the caller and their targets to `out` and `out_targets`, scaled. Errors:
 * LS_EDATA (a float does not hold a scaled number). */
int ls_own_rows_take(const ls_dataset *train, const void *rows, const void *targets, uint32_t n,
                     void *out, void *out_targets, ls_error *err);

#endif
