/* SPDX-License-Identifier: MIT */
/* trainer CONFIG --folds K --wrong FILE: trains K times, each time without a part of the training
 * rows, the *fold*, and predicts the rows of the fold. Each training row is predicted once, by a
 * model that has not seen it. */
#ifndef CLI_FOLDS_H
#define CLI_FOLDS_H

#include "cli/cli.h"

enum { CLI_FOLDS_MOST = 100 };

/* Trains and predicts all folds, and writes the wrong rows. Returns the exit code, after a message
 * if it fails or is interrupted. */
int cli_folds(const cli_arguments *a, const ls_registry *registry);

/* Prints the first wrong rows of a sorted list on stdout, at most `most`. */
struct ls_wrong;
void cli_wrong_print(const struct ls_wrong *wrong, size_t most);

#endif
