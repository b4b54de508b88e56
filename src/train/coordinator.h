/* The coordinator: runs the training loop over steps and epochs. engine/engine.h explains the terms
 * range, report and outcome. */
#ifndef TRAIN_COORDINATOR_H
#define TRAIN_COORDINATOR_H

#include "train/trainer.h"

#include <lockstep/status.h>
#include <stdbool.h>
#include <stdint.h>

/* State of the coordinator. */
typedef struct ls_coordination {
    struct ls_trainer *t;
    uint32_t rows, steps; /* number of rows of an epoch, and number of its steps */
    /* Number of steps of this epoch that were submitted. t->position.step is the number of those
     * that are done. */
    uint32_t sent;
    /* number of steps of this epoch that ls_train_steps may submit in the present call */
    uint32_t limit;

    /* Number of steps of the run when do_due_work (coordinator.c) last did the work that was due.
     * That work is not due again at the same number of steps. UINT64_MAX: it was never done.
     */
    uint64_t due_work_done_at;
    /* Number, from 1, of the last step that was repeated although no worker was lost; such a step
     * is repeated only once. */
    uint64_t repeated;
    uint64_t last_ns; /* time of ls_engine_ns at which the last step ended */
    /* Time of ls_engine_ns at which this epoch would have begun if its steps had run without pauses
     * between them. */
    uint64_t start_ns;
    double longest_s; /* duration of the longest step so far */
    ls_report last;   /* report of the last completed step */
    /* In a run of several processes: position and results of the run immediately after the last
     * step or evaluation that this process has completed, before the records and checkpoints that
     * follow. After a loss, a process that lacks that step or evaluation adopts this state
     * (regroup.c). */
    ls_standing completed;
    /* Arguments of ls_trainer_step: `given` rows of the caller. `images` NULL: the rows come from
     * the dataset. */
    const void *images, *labels;
    uint32_t given;
} ls_coordination;

/* Creates trainer->coordination, which the trainer frees. Errors: LS_ENOMEM. */
int ls_coordination_create(struct ls_trainer *trainer, ls_error *err);

/* Runs the steps of this epoch from the current position until `limit` steps of the epoch are done.
 * Also does the work that is due between and after these steps. The time of an epoch includes only
 * the time of these calls, and not the time between the steps of a trainer that its caller drives.
 * When the function returns, no worker has work. Returns LS_OK early if the run is to stop. Errors:
 * those of steps, of recovery, of records and of saving. */
int ls_train_steps(ls_coordination *c, uint32_t limit, ls_error *err);
/* Ends an epoch whose steps are all done: writes the epoch's record, evaluates if `may_evaluate`
 * and an evaluation is due, begins the next epoch, and saves a checkpoint if one is due. If an
 * interrupt ends the function before the evaluation, the epoch has not ended. */
int ls_end_epoch(ls_coordination *c, bool may_evaluate, ls_error *err);
/* Evaluates the model on the test rows, writes the result to trainer->reported.result, and emits
 * its record. *evaluated stays false if an interrupt has made the workers end early. */
int ls_evaluate(struct ls_trainer *trainer, bool *evaluated, ls_error *err);
/* Trains and evaluates as the config says, from trainer->position on. Sets
 * trainer->reported.result, except the hash of the weights. Errors: LS_EINTERRUPTED, and those of
 * ls_train_steps and ls_end_epoch. */
int ls_coordinate(struct ls_trainer *trainer, ls_error *err);

/* ---- account.c: accounting for a completed step --------------------------------------------- */

/* Counts a completed step in the run's position and totals. */
void ls_count_step(ls_coordination *c, const ls_report *report);
/* Counts a completed step, emits its record and reports progress. Errors: those of the record,
 * LS_ENONFINITE, those of the cluster. */
int ls_account_step(ls_coordination *c, const ls_outcome *outcome, ls_error *err);
/* Sets ls_coordination.completed to the present position and results. */
void ls_note_completed(struct ls_trainer *trainer);
/* Accounts for a step that another process has done, as if this process had done it. The weights
 * after that step have been loaded. `standing`: the state of the run on the other process, which
 * this process adopts. Errors: those of the record. */
int ls_adopt_step(ls_coordination *c, const ls_report *report, const ls_standing *standing,
                  ls_error *err);

/* ---- recover.c: recovery after a worker has failed or stalled ------------------------------- */

/* Recovers after the failure of a step or a job: removes the lost workers, writes the fault
 * records, and has the remaining workers form a new group. After LS_OK the caller repeats the step
 * or job. No worker may have work. `when` names the failed work in messages, such as "step 12". If
 * no device was lost, the function returns LS_OK only once per step, and only after an error that
 * may not occur again (LS_ENOMEM, LS_ETIMEDOUT, LS_EABORTED). Errors: the error of the failure, if
 * the step or job is not to be repeated, if no worker is left, or if the config's on_device_loss is
 * "stop". */
int ls_recover(struct ls_trainer *trainer, const char *when, ls_error *err);
/* Compares the replicas and, if `exports`, copies the weights and optimizer states of one replica
 * to ls_engine_weights. If a worker fails meanwhile, recovers and repeats both with the remaining
 * workers. Errors: LS_EDIVERGED, those of ls_recover. */
int ls_read_back(struct ls_trainer *trainer, bool exports, ls_error *err);

#endif
