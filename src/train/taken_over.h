/* SPDX-License-Identifier: MIT */
/* Weights that a run begins with and that another run has trained (init.weights). */
#ifndef TRAIN_TAKEN_OVER_H
#define TRAIN_TAKEN_OVER_H

#include "config/config.h"
#include "data/dataset.h"

/* Reads the weights with which a run begins from config->init_weights into `canonical`, which has
 * the initial weights of `model`. If the file describes its model (config/card.h), the weights of
 * the inputs of a table belong to its columns and levels, and those of the outputs to the classes:
 * they are taken over by name, and scaled if means and deviations of the training rows `train` are
 * others than those in the file, so that the model predicts for a row what it predicted there. Rows
 * of a program whose scales are not known yet take over the scales of the file
 * (ls_own_rows_adopt). A warning names what one of the two does not have, and scales that the
 * weights were not adapted to. A file without a description, as other programs
 * write it, is taken over by position. Errors: those of ls_safetensors_load, with "partial" of
 * ls_safetensors_read_fitting, and of ls_move_weights. */
int ls_take_weights_over(float *canonical, const ls_config *config, const ls_network *model,
                         ls_dataset *train, ls_error *err);

#endif
