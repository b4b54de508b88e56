/* The coordinator: runs the training loop, from step to step and from epoch to epoch. */
#ifndef TRAIN_COORDINATOR_H
#define TRAIN_COORDINATOR_H

#include "train/trainer.h"

#include <lockstep/status.h>
#include <stdbool.h>
#include <stdint.h>

/* State of the coordinator. */
typedef struct ls_coordination {
    struct ls_trainer *t;
    uint32_t rows, steps; /* number of rows, and of steps, of an epoch */
    /* Number of steps of this epoch that were submitted; t->position.step of them are done. */
    uint32_t sent;
    uint32_t limit; /* number of steps of this epoch that may be submitted for now */

    /* Number of steps of the run when the work that was due was last done (do_due_work in
     * coordinator.c): that work is not due again at the same number. UINT64_MAX: it was never done.
     */
    uint64_t settled;
    /* Number, from 1, of the last step that was repeated although no worker was lost. */
    uint64_t repeated;
    uint64_t last_ns; /* time of ls_engine_ns when the last step was complete */
    /* Time of ls_engine_ns at which this epoch would have begun had it run without a break. */
    uint64_t start_ns;
    double longest_s; /* duration of the longest step so far */
    ls_report last;   /* report of the last step done */
    /* In a run of several processes: position and results of the run immediately after the last
     * step or evaluation that this process has completed, before the work that follows it (records,
     * checkpoints). After a loss, a process that has not completed that step or evaluation adopts
     * this state (regroup.c). */
    ls_standing completed;
    /* Arguments of ls_trainer_step: `given` rows. `images` NULL: rows come from the dataset. */
    const void *images, *labels;
    uint32_t given;
} ls_coordination;

/* Creates trainer->coordination, which the trainer frees. Errors: LS_ENOMEM. */
int ls_coordination_create(struct ls_trainer *trainer, ls_error *err);

/* Trains this epoch's steps from the current position up to `limit`, and does what is due between
 * and after them. The epoch's clock runs only during this call, so it stands still between the
 * steps of a trainer that the caller drives. On return no worker has work. Returns LS_OK early if
 * the run is to stop. Errors: those of steps, of recovery, of records and of saving. */
int ls_train_steps(ls_coordination *c, uint32_t limit, ls_error *err);
/* Ends an epoch whose steps are all done: writes its record, evaluates (if `may_evaluate`, and if
 * an evaluation is due), begins the next epoch, and saves a checkpoint if one is due. An interrupt
 * may end the function before the evaluation; the epoch then has not ended. */
int ls_end_epoch(ls_coordination *c, bool may_evaluate, ls_error *err);
/* Evaluates the model on the test rows, writes the result to trainer->reported.result, and emits
 * its record. *evaluated stays false if an interrupt came first, which makes workers end early. */
int ls_evaluate(struct ls_trainer *trainer, bool *evaluated, ls_error *err);
/* Trains and evaluates from trainer->position on as the config says. Fills trainer->reported.result
 * except the hash of the weights. Errors: LS_EINTERRUPTED, and those of ls_train_steps and
 * ls_end_epoch. */
int ls_coordinate(struct ls_trainer *trainer, ls_error *err);

/* ---- account.c: accounting for a completed step --------------------------------------------- */

/* Counts a completed step in the run's position and totals. */
void ls_count_step(ls_coordination *c, const ls_report *report);
/* Counts a completed step, emits its record and reports progress. Errors: those of the record,
 * LS_ENONFINITE, those of the cluster. */
int ls_account_step(ls_coordination *c, const ls_outcome *outcome, ls_error *err);
/* Sets `completed` to the present position and results. */
void ls_note_completed(struct ls_trainer *trainer);
/* Accounts for a step that another process has done and whose weights are loaded, as if this
 * process had done it. The run then stands where it stood on the other process. Errors: those of
 * the record. */
int ls_adopt_step(ls_coordination *c, const ls_report *report, const ls_standing *standing,
                  ls_error *err);

/* ---- recover.c: recovery after a worker has failed or stalled ------------------------------- */

/* Recovers after the failure of a step or a job: removes the lost workers, writes the fault
 * records, and has the other workers form a new group. The caller then repeats the step or job. No
 * worker may have work. `when` describes the moment in messages, such as "step 12". If no device
 * was lost, LS_OK is returned once per step, and only after an error that need not occur again
 * (LS_ENOMEM, LS_ETIMEDOUT, LS_EABORTED). Errors: that of the failure, if the step or job is not to
 * be repeated, if no worker is left, or if the config's on_device_loss is "stop". */
int ls_recover(struct ls_trainer *trainer, const char *when, ls_error *err);
/* Compares the replicas and, with `exports`, copies weights and optimizer states to
 * ls_engine_weights. If a worker fails meanwhile, recovers and repeats this with the remaining
 * workers. Errors: LS_EDIVERGED, those of ls_recover. */
int ls_read_back(struct ls_trainer *trainer, bool exports, ls_error *err);

#endif
