/* The receipt: a file by which another person can verify a run (docs/verify.md). */
#ifndef TRAIN_RECEIPT_H
#define TRAIN_RECEIPT_H

#include "train/trainer.h"

/* Returns why the run cannot be verified, as the end of a sentence; NULL: it can. */
const char *ls_unverifiable(const struct ls_trainer *trainer);

/* For a run with the key `receipt`: logs how much the checkpoints at the chain's positions need, or
 * why the run cannot be verified. */
void ls_tell_receipt(const struct ls_trainer *trainer);

/* Writes receipt.json to the directory of a run that has finished, after the weights were read
 * back. Does nothing if the run has no directory, does not have the key `receipt`, or cannot be
 * verified. Errors: LS_EIO, LS_ENOMEM, those of ls_rows_sha256. */
int ls_write_receipt(struct ls_trainer *trainer, ls_error *err);

#endif
