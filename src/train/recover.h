/* What happens when a worker fails, or no longer answers. */
#ifndef TRAIN_RECOVER_H
#define TRAIN_RECOVER_H

#include "sync/heartbeat.h"

#include <lockstep/status.h>
#include <stdbool.h>
#include <stdint.h>

struct ls_trainer;

/* Leaves a worker behind that shows no sign of life in or behind step `step`: presence LS_STALLED, with
 * the message in its verdict. */
void ls_quarantine(struct ls_trainer *trainer, int worker, uint64_t step,
                   const ls_silence *silence);

/* After a failure of a step or a gang, when no worker is at work any more and each worker's `status`
 * says how it went: drops the lost workers, writes the fault records, and forms a new group of the rest,
 * ready to repeat what was not done. `when` stands in messages: "step 12". Errors: the failure itself when it is no device's, when it
 * came back, when no worker is left or the config says stop. */
int ls_recover(struct ls_trainer *trainer, const char *when, ls_error *err);

/* The shards of each live worker, and its rank. */
void ls_assign_shards(struct ls_trainer *trainer);
/* Makes a group for the live workers, which join and check it. */
int ls_form_group(struct ls_trainer *trainer, ls_error *err);
/* Whether a worker that was left behind may still read what its peers showed to their group. */
bool ls_readers_asleep(const struct ls_trainer *trainer);
/* How long a worker may be silent: the config's deadline_s, or else what the longest step so far
 * suggests (0: none was measured yet). */
void ls_set_deadline(struct ls_trainer *trainer, double longest_s);

#endif
