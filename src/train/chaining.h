/* SPDX-License-Identifier: MIT */
/* The chain of a run with the key `receipt` (checkpoint/chain.h): hashes of its states after
 * numbers of steps that follow from the recipe. In a run of several processes all members keep the
 * chain, so that each of them can go on when the first one is lost. */
#ifndef TRAIN_CHAINING_H
#define TRAIN_CHAINING_H

#include "checkpoint/chain.h"
#include "train/trainer.h"

/* Returns whether the chain has an entry after `steps` steps. false if the run keeps no chain. */
bool ls_chain_is_due(const struct ls_trainer *trainer, uint64_t steps);
/* Computes the hash of the run's state. The weights must have been read back (ls_read_back) after
 * the last step. Errors: LS_ENOMEM. */
int ls_hash_state(uint8_t out[LS_SHA256_BYTES], const struct ls_trainer *trainer, ls_error *err);
/* Begins the chain of a new run, whose first weights are in ls_engine_weights. Hashes the file from
 * which they were read, if there is one. Errors: those of ls_sha256_of_file. */
int ls_chain_begin(struct ls_trainer *trainer, ls_error *err);
/* Adds the present state to the chain if ls_chain_is_due after the steps done, unless the chain
 * already has it. As ls_hash_state otherwise. */
int ls_chain_state(struct ls_trainer *trainer, ls_error *err);
/* Takes the chain over from the checkpoint from which the run goes on. Does nothing if the run
 * keeps no chain. After an error the chain is unchanged. Errors: LS_ECONFIG (the checkpoint's run
 * kept no chain), LS_EDATA, LS_ENOMEM. */
int ls_chain_go_on(struct ls_trainer *trainer, const struct ls_resumed *resumed, ls_error *err);

#endif
