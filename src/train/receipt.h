/* SPDX-License-Identifier: MIT */
/* The receipt: a file by which another person can verify a run (docs/verify.md). */
#ifndef TRAIN_RECEIPT_H
#define TRAIN_RECEIPT_H

#include "train/trainer.h"
#include "json/writer.h"

/* Value of the key `format`, and the version in it. */
#define LS_RECEIPT_FORMAT "lockstep receipt 2"
#define LS_RECEIPT_VERSION 2

/* Returns why no run with this config can be verified, as the end of a sentence; NULL: one can. */
const char *ls_unverifiable_config(const ls_config *config);
/* Returns why the run cannot be verified, as the end of a sentence; NULL: it can. */
const char *ls_unverifiable(const struct ls_trainer *trainer);

/* For a run with the key `receipt`: logs how much the checkpoints at the chain's positions need, or
 * why the run cannot be verified. */
void ls_tell_receipt(const struct ls_trainer *trainer);

/* Hashes of the rows of a run (ls_rows_sha256). */
typedef struct ls_rows_hashes {
    uint8_t subset[LS_SUBSETS][LS_SHA256_BYTES];
} ls_rows_hashes;

/* Reads and hashes all rows. Errors: those of ls_rows_sha256. */
int ls_hash_rows(ls_rows_hashes *out, const struct ls_trainer *trainer, ls_error *err);
/* Writes the receipt's member `data`. `key` NULL: as the whole document. */
void ls_put_data(ls_json_writer *w, const char *key, const struct ls_trainer *trainer,
                 const ls_rows_hashes *rows);

/* Writes the receipt of the trainer's present state, as the whole JSON document. The weights must
 * have been read back (ls_read_back), and result.weights_sha256 must be theirs. The receipt follows
 * from recipe, data and kernels alone, apart from the version of the program and the names of
 * files, so a verifier can compare it with that of a replay. Errors: LS_ENOMEM. */
int ls_compose_receipt(ls_json_writer *w, const struct ls_trainer *trainer,
                       const ls_rows_hashes *rows, ls_error *err);

/* Writes receipt.json to the directory of a run that has finished, after the weights were read
 * back. Does nothing if the run has no directory, does not have the key `receipt`, or cannot be
 * verified. Errors: LS_EIO, LS_ENOMEM, those of ls_rows_sha256. */
int ls_write_receipt(struct ls_trainer *trainer, ls_error *err);

#endif
