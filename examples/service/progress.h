/* What the training tells: its steps, its rate and how well it does. */
#ifndef SERVICE_PROGRESS_H
#define SERVICE_PROGRESS_H

#include "http/metrics.h"

#include <lockstep/trainer.h>

typedef struct progress {
    metric *steps, *rows, *loss, *accuracy, *rate, *shown, *saves, *failed_saves, *damaged;
    double rate_at;   /* when the rate was last told … */
    double rate_rows; /* … and the rows then */
} progress;

/* `accuracy`: whether it is told, of classes. */
void progress_init(progress *p, metrics *all, int accuracy);
void progress_step(progress *p, const ls_step_result *step, uint32_t rows);

/* Now and then: tells the rate since the last time, if that was a second ago. */
void progress_rate(progress *p);

#endif
