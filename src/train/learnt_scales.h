/* SPDX-License-Identifier: MIT */
/* The scales of rows and targets that are learnt from a program's own streamed rows
 * (data/own_rows.h): their place in the model's card, in checkpoints and on other hosts. The
 * functions do nothing for other data. */
#ifndef TRAIN_LEARNT_SCALES_H
#define TRAIN_LEARNT_SCALES_H

#include "formats/safetensors.h"
#include "nn/network.h"

#include <lockstep/status.h>

struct ls_trainer;

/* Writes the model's card (config/card.h). The class names come from the data or, if the data has
 * none, from the built-in data set that data.name selects. Errors: those of ls_card_write. */
int ls_write_card(ls_network *model, const struct ls_trainer *trainer, ls_error *err);

/* Writes the card of the trainer's model anew if scales were learnt since it was written. No other
 * thread may read the card. */
int ls_renew_card(struct ls_trainer *trainer, ls_error *err);

/* Takes over the scales in the card of `path`, a file of weights or a checkpoint. A file without a
 * card has none. Errors: those of ls_card_parse and of ls_own_rows_adopt. */
int ls_adopt_scales(struct ls_trainer *trainer, const ls_tensor_file *file, ls_error *err);

/* Sends the first member's scales to the others. All members of a run of several processes make the
 * call. Errors: those of the cluster. */
int ls_share_scales(struct ls_trainer *trainer, ls_error *err);

#endif
