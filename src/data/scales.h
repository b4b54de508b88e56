/* SPDX-License-Identifier: MIT */
/* Scales of rows and targets: mean and deviation of each target of a row, and of each channel of
 * its values. Networks learn numbers of mean 0 and deviation 1 best. A scale is stored in the
 * preparation (prep/prep.h), by which new rows are scaled, and predictions are converted back to
 * the unit of the target. */
#ifndef DATA_SCALES_H
#define DATA_SCALES_H

#include "data/kinds.h"

/* Returns number `i` of the numbers `of`. */
typedef double ls_number_at(const void *of, size_t i);

/* Numbers, [rows][each], of which `each` / `scales` consecutive ones of a row share a scale. Those
 * that are not finite are missing, and do not count. */
typedef struct ls_measured_numbers {
    ls_number_at *at;
    const void *of;
    size_t rows, each;
    int scales;
} ls_measured_numbers;

/* Computes mean and deviation of each scale: mean [scales], deviation [scales]. A scale whose
 * numbers are all equal has the deviation 0. If floats hold all numbers closely enough
 * (LS_PREP_CLOSE), *wide becomes false, and mean and deviation are those of the numbers as floats;
 * else it becomes true. */
void ls_scale_measure(const ls_measured_numbers *numbers, double *mean, double *deviation,
                      bool *wide);

/* Computes mean and deviation of scale number `which`. The deviation of equal numbers is 0. */
void ls_scale_measure_one(const ls_measured_numbers *numbers, int which, double *mean,
                          double *deviation);

/* Reads a fixed scale from the config: `mean` and `std` are a number or a list of `count` numbers;
 * NULL: 0 or 1 for all. `key`: the key of `mean`, for messages. Errors: LS_ECONFIG. */
int ls_scale_fixed(double *mean, double *deviation, int count, const cJSON *mean_node,
                   const cJSON *std_node, const char *key, const ls_opening *o);

/* Checks that the rows that `info` describes can have the scale of their values for which the
 * config asks, and the limit data.clip, which rows with height or width do not have. Errors:
 * LS_ECONFIG. */
int ls_scale_check(const ls_dataset_info *info, const ls_opening *o);
/* Sets the scale of the values of training rows in `prep`, if the config asks for one: the fixed
 * one of data.mean and data.std, or with data.standardize that of `numbers`, whose scales are those
 * of the channels. Sets the limit data.clip of scaled values. Logs which scales are constant
 * (prep.h). Errors: LS_ECONFIG, LS_ENOMEM. */
int ls_scale_values(ls_prep *prep, const ls_measured_numbers *numbers, const ls_opening *o);
/* Does the same for the targets, with data.target_mean, data.target_std and
 * data.standardize_target. The scales are those of the targets. */
int ls_scale_targets(ls_prep *prep, const ls_measured_numbers *numbers, const ls_opening *o);

/* Returns whether the config asks for a scale of the values, or of the targets. */
bool ls_scales_values(const ls_data_keys *keys);
bool ls_scales_targets(const ls_data_keys *keys);

#endif
