/* The coordinator: leads the run from step to step and from epoch to epoch. */
#ifndef TRAIN_COORDINATOR_H
#define TRAIN_COORDINATOR_H

#include "train/trainer.h"

#include <lockstep/status.h>
#include <stdbool.h>
#include <stdint.h>

/* The coordinator's own state. */
typedef struct ls_coordination {
    struct ls_trainer *t;
    uint32_t rows, steps; /* of an epoch */
    uint32_t sent;  /* steps of this epoch that were sent; t->position.step of them are done */
    uint32_t limit; /* steps of this epoch that may be sent for now */

    uint64_t settled;  /* the step behind which everything due was done; UINT64_MAX: none */
    uint64_t repeated; /* the step, from 1, that was repeated last without a loss */
    uint64_t last_ns;  /* when the last step was complete, in ls_engine_ns */
    uint64_t start_ns; /* likewise, of this epoch, as if it had run without a break */
    double longest_s;  /* of the steps so far */
    ls_report last;    /* of the last step that was done */
    /* Over several processes: where the run stood when the last step, or the last evaluation, had come from all of
     * them, and before this one did what follows by itself. It is what another one takes that lacks it (regroup.c). */
    ls_standing reached;
    /* What ls_trainer_step was given; images NULL: rows come from the dataset. */
    const void *images, *labels;
    uint32_t given;
} ls_coordination;

/* The trainer's, which frees it. Errors: LS_ENOMEM. */
int ls_coordination_create(struct ls_trainer *trainer, ls_error *err);

/* Trains the steps of this epoch from where it stands up to `limit`, and does what is due between and behind them. The
 * epoch's clock runs meanwhile alone: it stands still between the steps of a trainer that is driven. */
int ls_train_steps(ls_coordination *c, uint32_t limit, ls_error *err);
/* All steps of the epoch are done: its record, then (where `may_evaluate`, and it is due) its evaluation,
 * the next epoch's beginning, and its checkpoint. An interrupt may come first. */
int ls_end_epoch(ls_coordination *c, bool may_evaluate, ls_error *err);
/* On the test rows, into trainer->told.result, with its record. *evaluated stays false when an interrupt came
 * first: the workers then left early. */
int ls_evaluate(struct ls_trainer *trainer, bool *evaluated, ls_error *err);
/* Trains and evaluates as the config says, from trainer->position on; fills trainer->told.result but for
 * the weights' hash. */
int ls_coordinate(struct ls_trainer *trainer, ls_error *err);

/* ---- account.c: what a step that is done counts for ------------------------------------------- */

/* In the run's place and totals. */
void ls_count_step(ls_coordination *c, const ls_report *report);
/* Likewise, with its record and in all that is told. Errors: those of the record, LS_ENONFINITE, the cluster's. */
int ls_account_step(ls_coordination *c, const ls_outcome *outcome, ls_error *err);
/* Sets `reached`. */
void ls_note_reached(struct ls_trainer *trainer);
/* A step that another process has done, and whose weights are loaded: it counts as one of this one's, and the run stands
 * where it stood there. */
int ls_adopt_step(ls_coordination *c, const ls_report *report, const ls_standing *standing,
                  ls_error *err);

/* ---- recover.c: what happens when a worker fails, or no longer answers ------------------------- */

/* After a failure of a step or a job, when no worker is at work any more: drops the lost workers, writes the fault
 * records, and has the rest form a new group, ready to repeat what was not done. `when` stands in messages: "step 12".
 * Errors: the failure itself when it is no device's, when it came back, when no worker is left or the config says
 * stop. */
int ls_recover(struct ls_trainer *trainer, const char *when, ls_error *err);
/* Compares the replicas and, with `exports`, brings weights and optimizer state to ls_engine_weights; again, with the
 * workers that are left, when one fails meanwhile. */
int ls_read_back(struct ls_trainer *trainer, bool exports, ls_error *err);

#endif
