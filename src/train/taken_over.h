/* Weights that a run begins with and that another run has trained (init.weights). */
#ifndef TRAIN_TAKEN_OVER_H
#define TRAIN_TAKEN_OVER_H

#include "data/dataset.h"

/* Compares the names in the description of the model in the file `path` (config/card.h) with those
 * of the training rows `train`: columns, levels and classes. Weights are taken over by position, so
 * a weight whose column, level or class has another name was trained for something else. Logs a
 * warning that names the first such difference of each kind, and their number. A file without a
 * description, as other programs write it, causes no warning. */
void ls_warn_of_other_names(const char *path, const ls_dataset_info *train, const ls_host *host);

#endif
