/* SPDX-License-Identifier: MIT */
/* Agreement: up to which step a run knows that all its replicas were equal, over all processes, and
 * what follows when they are not. base/digest.h explains how the steps compare replicas. */
#ifndef TRAIN_AGREEMENT_H
#define TRAIN_AGREEMENT_H

#include <lockstep/status.h>
#include <stdbool.h>
#include <stdint.h>

struct ls_trainer;
struct ls_report;

/* The run's knowledge about its replicas. */
typedef struct ls_agreement {
    uint64_t steps; /* the state after this many steps was equal in all replicas of all members */
    /* Number of steps of the state that the last levelling (regroup.c) has compared; UINT64_MAX:
     * none. All members have done that comparison, so none of them repeats it. */
    uint64_t levelled;
    /* All members compare their states after each multiple of these numbers of steps, as the config
     * of the first member says (checkpoint.every_steps, verify_every_steps). 0: never. */
    int64_t save_every, verify_every;
    /* checkpoint.every_seconds of the first member. Only the member that saves looks at its clock:
     * what the members do together depends on numbers of steps and epochs alone. */
    double save_seconds;
    /* All members compare and hash their states at the chain's positions (chaining.h), as `receipt`
     * in the config of the first member says. */
    bool chained;
} ls_agreement;

/* Begins anew: the run has just loaded a state of trainer->position.steps steps. */
void ls_agreement_begin(struct ls_trainer *trainer);
/* Notes what the comparison in a completed step says: number n compares the states after up to
 * n − 2 steps, or n − 3 on GPUs. */
void ls_agreement_note_step(struct ls_trainer *trainer, const struct ls_report *report);

/* Returns whether all members compare their states after `steps` steps. false if the run has one
 * process. */
bool ls_agreement_is_due(const struct ls_trainer *trainer, uint64_t steps);
/* Compares checksums and digests of the states of all members, after ls_copy_replicas. All
 * members must call it after the same number of steps. Does nothing in a run of one process, or if
 * a levelling has compared this state. Errors: LS_EDIVERGED, LS_ENOMEM, the cluster's. */
int ls_agreement_compare(struct ls_trainer *trainer, ls_error *err);

/* Called when the replicas are no longer equal, with the error LS_EDIVERGED in *err. Sets the
 * checkpoints aside that were saved after the last step for which the replicas are known to be
 * equal, and adds to the message which checkpoint is good. Does nothing after the first call. */
void ls_agreement_lost(struct ls_trainer *trainer, ls_error *err);

#endif
