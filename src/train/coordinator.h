/* SPDX-License-Identifier: MIT */
/* The coordinator: runs the training loop over steps and epochs. It submits ranges to the workers
 * (engine/engine.h). Each worker sends a *report* of each step; the *outcome* of a step is made
 * from the reports. */
#ifndef TRAIN_COORDINATOR_H
#define TRAIN_COORDINATOR_H

#include "train/trainer.h"

#include <lockstep/status.h>
#include <stdbool.h>
#include <stdint.h>

/* State of the coordinator. */
typedef struct ls_coordination {
    struct ls_trainer *t;
    uint32_t rows, /* number of rows of an epoch */
        steps;     /* number of steps of an epoch */
    /* Number of steps of this epoch that were submitted. (The number of steps of this epoch that
     * are done is t->position.step.) */
    uint32_t sent;
    /* total number of steps of this epoch up to which ls_train_steps submits in the present call */
    uint32_t limit;

    /* *Due work* is the work between steps: comparing the replicas, saving a checkpoint, passing a
     * model to the caller. The field is the number of steps that the run had done when due work was
     * last done. Due work is not done again after the same step. Initially the field is the number
     * of steps with which the trainer begins. */
    uint64_t due_work_done_at;
    /* Number, from 1, of the last step that was repeated although no worker was lost. A step for
     * which this field has been set is not repeated again. */
    uint64_t repeated;
    uint64_t last_ns; /* time of ls_engine_ns at which the last step ended */
    /* Time of ls_engine_ns at which the steps of this epoch began, moved later by the time that has
     * passed outside ls_train_steps since then. So `last_ns` minus `start_ns` is the epoch's
     * training time. */
    uint64_t start_ns;
    double longest_s; /* duration of the longest step so far */
    ls_report last;   /* report of the last completed step */
    /* In a run of several processes: position and results of the run immediately after the last
     * step or evaluation that this process has completed, before the records and checkpoints that
     * follow. If a process is lost, another process that lacks that step or evaluation adopts this
     * state (regroup.c). */
    ls_standing completed;
    /* Arguments of ls_trainer_step: values and labels (or targets) of the caller's rows. `images`
     * NULL: the rows come from the dataset. */
    const void *images, *labels;
    const float *weights; /* [given] weights of the rows; NULL: all are 1 */
    uint32_t given;       /* number of the caller's rows */
} ls_coordination;

/* Creates trainer->coordination, which the trainer frees. Errors: LS_ENOMEM. */
int ls_coordination_create(struct ls_trainer *trainer, ls_error *err);

/* Runs the steps of this epoch until `limit` of them are done, with the due work between and after
 * them. The training time of an epoch is the time from the beginning of this function to the end of
 * its last step, summed over its calls; the time between calls of ls_trainer_step does not count.
 * When the function returns, no worker has work. Returns LS_OK early if the run is to stop. Errors:
 * those of steps, of recovery, of records and of saving. */
int ls_train_steps(ls_coordination *c, uint32_t limit, ls_error *err);
/* Ends an epoch whose steps are all done: writes the epoch's record, evaluates if `may_evaluate`
 * and an evaluation is due, begins the next epoch, and saves a checkpoint if one is due. If an
 * interrupt ends the function before a due evaluation, the epoch does not end. */
int ls_end_epoch(ls_coordination *c, bool may_evaluate, ls_error *err);
/* Trains and evaluates as the config says, from trainer->position on. Sets
 * trainer->reported.result, except its `weights_sha256`. Errors: LS_EINTERRUPTED, and those of
 * ls_train_steps and ls_end_epoch. */
int ls_coordinate(struct ls_trainer *trainer, ls_error *err);

/* ---- account.c: accounting for a completed step --------------------------------------------- */

/* Counts a completed step in the run's position and totals. `report` is that of one worker: loss
 * and counts are those of the whole minibatch, but the times are only this worker's. */
void ls_count_step(ls_coordination *c, const ls_report *report);
/* Counts a completed step, emits its record and reports progress. Errors: those of the record,
 * LS_ENONFINITE, those of the cluster. */
int ls_account_step(ls_coordination *c, const ls_outcome *outcome, ls_error *err);
/* Sets ls_coordination.completed to the present position and results. Does nothing in a run of one
 * process. */
void ls_note_completed(struct ls_trainer *trainer);
/* Accounts for a step that another process has done, as if this process had done it. The caller has
 * loaded the weights after that step. `standing`: position and results of the run on the other
 * process, which this process adopts. Errors: those of the record. */
int ls_adopt_step(ls_coordination *c, const ls_report *report, const ls_standing *standing,
                  ls_error *err);

/* ---- recover.c: recovery after a worker has failed or stalled ------------------------------- */

/* Recovers after the failure of a step or a job. Removes the lost workers, writes the fault
 * records, and has the remaining workers form a new group. After LS_OK the caller repeats the step
 * or job. The workers must have no work. `when` names the failed work in messages, such as "step
 * 12". If no device was lost, the function returns LS_OK only once per step, and only after a
 * possibly temporary error (LS_ENOMEM, LS_ETIMEDOUT, LS_EABORTED). Errors: the error of the
 * failure, if the step or job is not to be repeated, if no worker is left, or if the config's
 * on_device_loss is "stop". */
int ls_recover(struct ls_trainer *trainer, const char *when, ls_error *err);
/* ---- evaluate.c: evaluation, the best evaluation, and patience ------------------------------ */

/* Evaluates the model on the test rows, writes the result to trainer->reported.result, and emits
 * its record. *evaluated: whether the evaluation was completed; false if an interrupt has made the
 * workers end early. */
int ls_evaluate(struct ls_trainer *trainer, bool *evaluated, ls_error *err);
/* Measures the last evaluation again if it was made before the run was resumed, so that all its
 * metrics are known; a checkpoint has only some. Emits no record. All members must make this call.
 */
int ls_measure_again(struct ls_trainer *trainer, ls_error *err);
/* Returns whether the model is evaluated at the end of the present epoch. */
bool ls_evaluation_is_due(const struct ls_trainer *trainer);
/* Returns whether `patience` evaluations in a row were not better than the best. The number of
 * these evaluations is part of a checkpoint, so a resumed run continues to count. */
bool ls_patience_is_used_up(const struct ls_trainer *trainer);
/* Sets the text that says why the run stops early, which its last record contains, and logs it. */
void ls_stop_early(struct ls_trainer *trainer);

/* ---- read_back.c: copying the weights out of a replica -------------------------------------- */

/* Compares the replicas (if `all`, those of all members: all members must then make this call) and,
 * if `exports`, copies the weights and optimizer states of one replica
 * to ls_engine_weights. If a worker fails meanwhile, recovers and repeats the comparison and the
 * copy with the remaining workers. Errors: LS_EDIVERGED, those of ls_saver_wait and of ls_recover.
 */
int ls_read_back(struct ls_trainer *trainer, bool exports, bool all, ls_error *err);
/* Returns whether the error is a fault of workers or of other processes, which ls_recover handles.
 * Replicas that differ and memory that the coordinator lacks are no such faults. */
bool ls_is_fault(const struct ls_trainer *trainer, int status);

#endif
