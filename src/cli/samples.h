/* SPDX-License-Identifier: MIT */
/* Predicts some rows of the test set, for the pages of a run. */
#ifndef CLI_SAMPLES_H
#define CLI_SAMPLES_H

#include "base/buffer.h"
#include "cli/cli.h"

/* CLI_SAMPLES: default number of predictions on a page. CLI_SAMPLES_MOST: largest number. */
enum { CLI_SAMPLES = 16, CLI_SAMPLES_MOST = 256 };

/* Predicts rows spread evenly over the test set, chooses `count` of them, and appends a line
 * {"type":"samples"} with the chosen rows. Half of the chosen rows are predicted wrongly (fewer if
 * not enough such rows were found); the others are predicted right. The line has "text", "channels"
 * (1 or 3), "height", "width" and "rows", each with "row", "true", "predicted", "right" and
 * "probability" (for classes) and "pixels" (for pictures: bytes [channels][height] [width] in
 * base64). `set`: assignments to keys of the run's config, such as where its data are now. Errors:
 * those of opening the run, its data and its devices. */
int cli_samples_write(ls_buffer *out, const char *run_dir, int count, const cli_list *set,
                      const ls_registry *registry, ls_error *err);

#endif
