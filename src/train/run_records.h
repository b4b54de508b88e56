/* SPDX-License-Identifier: MIT */
/* The output of a run, which these functions make from the trainer's state: records for the sinks
 * (a *record* is one line of metrics.jsonl), progress and results for the caller, data for the
 * timeline. All functions run on the coordinator's thread (the thread that called the trainer). */
#ifndef TRAIN_RUN_RECORDS_H
#define TRAIN_RUN_RECORDS_H

#include "records/record.h"
#include "train/trainer.h"

struct ls_coordination;

/* ---- records -------------------------------------------------------------------------------- */

/* Each function of this section composes a record from the trainer's state and emits the record to
 * the trainer's sinks. Errors: those of ls_sinks_emit. */
/* Emits the record that begins a run. `type`: run_start or resume. */
int ls_record_start(struct ls_trainer *trainer, ls_record_type type, ls_error *err);
/* Emits the record of a step. `images_per_s`: rows per second. */
int ls_record_step(struct ls_trainer *trainer, double images_per_s, const struct ls_report *report,
                   ls_error *err);
/* Emits the record of a step whose loss is not finite: the step number position.steps + 1. `worker`
 * and `shard`: the shard whose loss was not finite, and the worker that computed this shard; −1:
 * unknown. Logs a warning if the config says that such steps are skipped. */
int ls_record_nonfinite(struct ls_trainer *trainer, int worker, int shard, ls_error *err);
/* Emits the record of the arrival of a host that was admitted to the run. */
int ls_record_arrival(struct ls_trainer *trainer, const char *host, ls_error *err);
/* Emits the record of the failed admission of a host. `why`: the reason. */
int ls_record_failed_arrival(struct ls_trainer *trainer, const char *host, const char *why,
                             ls_error *err);
/* Emits the record of a fault. `action`: what the run does because of the fault. */
int ls_record_fault(struct ls_trainer *trainer, const ls_fault *fault, ls_fault_action action,
                    ls_error *err);
/* Returns the mean loss of the epoch's rows so far; NaN: no step was applied. */
double ls_epoch_loss(const ls_epoch_totals *totals);
/* Emits the record of the present epoch, whose steps are done. */
int ls_record_epoch(struct ls_trainer *trainer, ls_error *err);
/* Emits the record of the last evaluation. `seconds`: its duration. */
int ls_record_eval(struct ls_trainer *trainer, double seconds, ls_error *err);
/* Emits the last record of the run. `status`: how the run ended. `error`: the error message, which
 * is used if the run failed. */
int ls_record_run_end(struct ls_trainer *trainer, int status, const char *error, ls_error *err);

/* Returns the learning rate of step number `step`, from 0: that of the schedule, from the full rate
 * that the caller has set (ls_trainer_set_lr), or else that of the config. Workers use it as a
 * float. */
double ls_rate(const struct ls_trainer *trainer, uint64_t step);

/* Converts a loss from the unit in which workers compute it to the unit in which the run reports
 * it. The units differ if the target is standardised (scaled to mean 0 and deviation 1). */
double ls_loss_of_run(const struct ls_trainer *trainer, double loss);

/* ---- the caller ----------------------------------------------------------------------------- */

/* Calls the caller's progress callback, if there is one. `epoch_done`: all steps of the epoch are
 * done. `evaluated`: the epoch was evaluated. */
void ls_report_progress(const struct ls_coordination *c, bool epoch_done, bool evaluated);

/* Sets the result's list of devices to the devices that still take part in the run. */
void ls_report_devices(struct ls_trainer *trainer);

/* Sets the metric that the result reports, and its value if `measured` has one. */
void ls_report_metric(struct ls_trainer *trainer, const ls_measured *measured);

/* ---- the timeline --------------------------------------------------------------------------- */

/* Writes the workers' new marks (times at which they began an activity) to the run's trace (its
 * timeline), if there is one. */
void ls_drain_trace(const struct ls_trainer *trainer);
/* Writes the lengths of the workers' queues to the run's trace, if there is one. No worker may be
 * running a job (an evaluation, for example) at the time of the call; steps may be running. */
void ls_count_queues(const struct ls_trainer *trainer);

#endif
