/* SPDX-License-Identifier: MIT */
/* Parameters that are frozen for the first epochs (config key freeze_epochs). In these epochs the
 * workers have the model ls_trainer.held. Before the first step of the next epoch they get
 * ls_trainer.model instead, and the optimizer begins anew: its states become 0, except a moving
 * average of the weights, and it counts its steps from there. (Otherwise the states of released
 * parameters would be younger than AdamW's correction assumes.) The change depends on the position
 * of the run alone. */
#ifndef TRAIN_RELEASE_H
#define TRAIN_RELEASE_H

#include "train/trainer.h"

/* Chooses the model with which the workers are opened. Called when the position of the run is
 * known. Errors: LS_ECONFIG (freeze_epochs in a run that continues after the loss of a host). */
int ls_release_at_start(struct ls_trainer *trainer, ls_error *err);
/* Fails if the workers that were opened cannot change their model: if several processes use devices
 * that choose among kernels. Errors: LS_ECONFIG. */
int ls_release_check(struct ls_trainer *trainer, ls_error *err);
/* Returns whether the workers need another model before the step that follows `steps` steps, or the
 * optimizer begins anew there. */
bool ls_release_is_due(const struct ls_trainer *trainer, uint64_t steps);
/* Gives the workers the model of the present epoch. No worker may have work. Errors: those of
 * ls_read_back, of ls_engine_renew and of ls_recover. */
int ls_release(struct ls_trainer *trainer, uint64_t steps, ls_error *err);

#endif
