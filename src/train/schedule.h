/* The learning rate of every step: a pure function of the step's number. Any thread. */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include "json/json.h"

#include <stdint.h>

typedef enum ls_schedule_rule {
    LS_SCHEDULE_CONSTANT,
    LS_SCHEDULE_STEP,  /* × gamma after every `every` epochs */
    LS_SCHEDULE_COSINE /* half a cosine from the full rate to `minimum`, over the whole run */
} ls_schedule_rule;

typedef struct ls_schedule {
    ls_schedule_rule rule;
    double warmup; /* epochs in which the rate grows linearly from 0 to the full rate */
    double every;  /* epochs */
    double gamma;
    double minimum; /* a fraction of the full rate */
} ls_schedule;

/* Reads "constant", "step", "cosine", or an object {"name": …, "warmup_epochs": 0, "every_epochs": 30,
 * "gamma": 0.1, "minimum": 0}; a NULL node means "constant". Errors: LS_ECONFIG. */
int ls_schedule_parse(ls_schedule *out, const ls_json *doc, const cJSON *node, ls_error *err);

/* Whether the rates depend on how many epochs a run has. */
int ls_schedule_needs_end(const ls_schedule *schedule);

/* Writes it as a member of the resolved config. */
void ls_schedule_write(ls_json_writer *w, const char *key, const ls_schedule *schedule);

/* The rate of step `step` (from 0) of `steps_per_epoch` × `epochs`. During warm-up step t of W has
 * lr·(t + 1)/W; behind it the rule counts from the end of the warm-up: cosine runs from there to the
 * run's last step, step counts epochs from the start of the run. */
double ls_schedule_rate(const ls_schedule *schedule, double lr, uint64_t step,
                        uint64_t steps_per_epoch, uint64_t epochs);

#endif
