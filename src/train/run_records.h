/* What a run says of itself, put together from where it stands: records for its sinks, progress and results for its
 * caller, spans for its timeline. All of it is the coordinator's. */
#ifndef TRAIN_RUN_RECORDS_H
#define TRAIN_RUN_RECORDS_H

#include "records/record.h"
#include "train/trainer.h"

struct ls_coordination;

/* ---- records -------------------------------------------------------------------------------- */

/* Each puts a record together from where the trainer stands, and hands it to the trainer's sinks. Errors: those of
 * ls_sinks_emit. */
/* `type`: run_start or resume. */
int ls_record_start(struct ls_trainer *trainer, ls_record_type type, ls_error *err);
int ls_record_step(struct ls_trainer *trainer, double images_per_s, const struct ls_report *report,
                   ls_error *err);
/* Of the step that comes next. */
int ls_record_nonfinite(struct ls_trainer *trainer, int worker, int shard, ls_error *err);
int ls_record_fault(struct ls_trainer *trainer, const ls_fault *fault, ls_fault_action action,
                    ls_error *err);
int ls_record_epoch(struct ls_trainer *trainer, ls_error *err);
int ls_record_eval(struct ls_trainer *trainer, double seconds, ls_error *err);
int ls_record_run_end(struct ls_trainer *trainer, int status, const char *error, ls_error *err);

/* A mean or a sum of the loss as the workers compute it → in the unit that the run tells, which is another one where the
 * target is standardised. */
double ls_loss_of_run(const struct ls_trainer *trainer, double loss);

/* ---- the caller ----------------------------------------------------------------------------- */

/* Tells the caller how far the run is. */
void ls_tell_progress(const struct ls_coordination *c, bool epoch_done, bool evaluated);

/* The result has the devices that are at work, and none that were lost. */
void ls_tell_devices(struct ls_trainer *trainer);

/* Which metric the result tells, and its value where it was measured. */
void ls_tell_metric(struct ls_trainer *trainer, const ls_measured *measured);

/* ---- the timeline --------------------------------------------------------------------------- */

/* Takes what the workers have marked into the run's trace, if it writes one. */
void ls_drain_trace(const struct ls_trainer *trainer);

#endif
